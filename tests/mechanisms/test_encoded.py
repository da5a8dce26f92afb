"""Noisy histograms: what they guarantee, and what they reveal about each row."""

import itertools
import json
import math
import pickle

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from expost.accounting import gaussian_delta
from expost.data import open_table
from expost.data.histograms import Counted, Histograms, LevelHistogram, NumericHistogram
from expost.errors import InvalidInput, WrongRows
from expost.mechanisms import encoded
from expost.mechanisms.encoded import EncodingBudget, EncodingLosses, draw_histograms
from expost.neighbouring.persons import read_persons
from expost.numbers import summed_up

COLUMNS = {"age": (0.0, 100.0), "job": None, "town": None}


def people(rows=120, seed=0):
    """A table with a number, a column of common levels, and one of rare and single levels."""
    rng = np.random.default_rng(seed)
    age = np.where(rng.random(rows) < 0.1, np.nan, rng.normal(45, 30, rows))
    town = [f"t{min(int(value), 40)}" for value in rng.geometric(0.12, rows)]
    return pa.table(
        {
            "age": pa.array(age, from_pandas=True),
            "job": rng.choice(["clerk", "nurse", "smith"], rows),
            "town": town,
        }
    )


def budget(**changes):
    known = {"epsilon": 20.0, "delta": 0.3, "share": 0.1}
    return EncodingBudget(**known | changes)


def released(table=None, seed=1, **changes):
    """Histograms of a table with small noise, so that levels pass and fail, and their cells."""
    opened = open_table(people() if table is None else table)
    histograms, counted = draw_histograms(
        opened, COLUMNS, budget(**changes), np.random.default_rng(seed)
    )
    kinds = {name: "text" if ends is None else "numeric" for name, ends in COLUMNS.items()}
    blocks = opened.retyped(kinds).blocks(columns=list(COLUMNS))
    return histograms, counted, np.concatenate([counted.cells(block) for block in blocks])


# -- losses ------------------------------------------------------------------------------------


def log_density(histograms, counts):
    """log p(e ∣ D), cell by cell as it is defined; ``counts`` by column and cell."""
    total = 0.0
    sigma, barrier = histograms.scale, histograms.threshold + histograms.step / 2
    for column in histograms.columns:
        cells = counts[column.name]
        if isinstance(column, NumericHistogram):
            total += sum(
                norm.logpdf(noisy, cells.get(index, 0), sigma)
                for index, noisy in enumerate(column.counts)
            )
        else:
            noisy = dict(zip(column.levels, column.counts, strict=True))
            if not set(noisy) <= {level for level, count in cells.items() if count > 0}:
                return -math.inf
            for level, count in cells.items():
                if level is None or count == 0:
                    continue
                if level in noisy:
                    total += norm.logpdf(noisy[level], count, sigma)
                else:
                    total += norm.logcdf(barrier, count, sigma)
        total += norm.logpdf(column.missing, cells.get(None, 0), sigma)
    return total


def naive_counts(table, histograms):
    """Count the cells of a table row by row."""
    bins = histograms.bins
    counts = {name: {} for name in COLUMNS}
    for row in table.to_pylist():
        for name, ends in COLUMNS.items():
            value = row[name]
            if value is not None and ends is not None:
                low, high = ends
                value = min(max(math.floor((value - low) / (high - low) * bins), 0), bins - 1)
            counts[name][value] = counts[name].get(value, 0) + 1
    return counts


def without(table, rows):
    return table.take([row for row in range(len(table)) if row not in set(rows)])


def test_losses_are_differences_of_log_densities():
    table = people()
    histograms, counted, cells = released(table)
    losses = EncodingLosses.of(histograms, counted).rows(cells)
    whole = log_density(histograms, naive_counts(table, histograms))
    town = histograms.columns[2]
    assert 0 < len(town.levels) < len(counted.columns[2].levels)
    for row in range(len(table)):
        rest = log_density(histograms, naive_counts(without(table, [row]), histograms))
        if rest == -math.inf:
            assert losses.loss[row] == losses.low[row] == math.inf
        else:
            assert losses.loss[row] == pytest.approx(whole - rest, abs=1e-9)
            assert losses.low[row] <= whole - rest + 1e-9
            assert losses.high[row] >= whole - rest - 1e-9


def test_losses_of_persons_are_differences_of_log_densities():
    table = people()
    histograms, counted, cells = released(table)
    owner = np.random.default_rng(5).integers(0, 30, len(table))
    persons = read_persons(owner, len(table))
    losses = EncodingLosses.of(histograms, counted).persons(cells, persons)
    whole = log_density(histograms, naive_counts(table, histograms))
    for index in range(len(persons.names)):
        gone = np.flatnonzero(persons.owner == index)
        rest = log_density(histograms, naive_counts(without(table, gone), histograms))
        assert losses.loss[index] == pytest.approx(whole - rest, abs=1e-9)
    assert np.isinf(losses.loss).any()


def test_a_row_of_bins_has_the_loss_of_the_issue():
    """[Σ 2·noise + p]/(2σ²)."""
    histograms, counted, cells = released()
    losses = EncodingLosses.of(histograms, counted)
    sigma = histograms.scale
    age = histograms.columns[0]
    noise = np.array([*age.counts, age.missing]) - counted.columns[0].counts
    own = (2 * noise[cells[:, 0]] + 1) / (2 * sigma**2)
    rest = losses.rows(cells).loss - own
    # What is left depends on the other two columns alone.
    pairs = {tuple(pair): value for pair, value in zip(cells[:, 1:].tolist(), rest, strict=True)}
    for pair, value in zip(cells[:, 1:].tolist(), rest, strict=True):
        assert pairs[tuple(pair)] == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_evidence_has_mean_one(seed):
    """E[e^(−loss)] = 1 over releases, and losses that are a third too large are seen.

    Five standard errors for each of 120 rows: a false alarm in fewer than one run in 10,000.
    """
    histograms, counted, cells = released(people(seed=seed), seed=seed)
    losses = EncodingLosses.of(histograms, counted).rows(cells)
    draws = 4000
    rng = np.random.default_rng(seed)
    drawn = np.stack(list(losses.draw(draws, rng)))
    ratios = np.exp(-drawn)
    error = ratios.std(axis=0) / math.sqrt(draws)
    # A row whose level nobody else has: D without it never shows the level.
    assert np.all(np.abs(ratios.mean(axis=0) - 1) < 5 * error + 1e-12)
    wrong = np.exp(-1.33 * drawn[:, np.isfinite(drawn).all(axis=0)])
    off = np.abs(wrong.mean(axis=0) - 1) / (wrong.std(axis=0) / math.sqrt(draws))
    assert off.max() > 5


# -- the guarantee -----------------------------------------------------------------------------


def divergence(single, common, sigma, threshold, epsilon, *, towards):
    """δ(ε) of a row alone in ``single`` levels and among others in ``common`` cells, exactly.

    The common cells are one normal loss of μ = √common/σ; a level of its own passes with
    probability Φ((1 − T)/σ), which the other data set never shows.
    """
    mu = math.sqrt(common) / sigma
    hidden = float(ndtr((threshold - 1) / sigma)) ** single
    factor = math.log(hidden)
    if towards == "without":
        # Given that none passes, the loss is normal plus log hidden; else it is infinite.
        return (1 - hidden) + hidden * gaussian_delta(epsilon - factor, mu)
    return gaussian_delta(epsilon + factor, mu)


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-3), (8.0, 1e-9)])
def test_no_pair_of_data_sets_passes_the_budget(epsilon, delta, replaces):
    """All numbers of single levels, both directions; with less noise the budget is passed."""
    table = open_table(people())
    share = budget(epsilon=epsilon, delta=delta, replaces=replaces)
    histograms, _ = draw_histograms(table, COLUMNS, share, np.random.default_rng(0))
    spent = histograms.delta + histograms.threshold_delta
    assert spent <= share.delta * 2 / 3 * (1 + 1e-12)
    columns, levels = len(COLUMNS), 2

    def worst(sigma, threshold):
        return max(
            divergence(single, columns - single, sigma, threshold, histograms.epsilon, towards=side)
            for single, side in itertools.product(range(levels + 1), ("with", "without"))
        )

    assert worst(histograms.scale, histograms.threshold) <= spent
    if not replaces:
        # Power: the budget is used up to rounding, so that less noise or a lower threshold fails.
        assert worst(0.97 * histograms.scale, histograms.threshold) > histograms.delta
        lower = histograms.threshold - 0.2 * histograms.scale
        assert worst(histograms.scale, lower) > spent


def test_the_guarantee_is_that_of_the_constants():
    histograms, counted, cells = released()
    losses = EncodingLosses.of(histograms, counted).rows(cells)
    spent = histograms.delta + histograms.threshold_delta
    assert losses.guarantee.delta(histograms.epsilon) <= spent * (1 + 1e-6)
    # Exposures pass the worst case as rarely as is stated, over 4,000 releases.
    drawn = np.stack(list(losses.draw(4000, np.random.default_rng(3))))
    often = np.mean(np.abs(drawn) > losses.worst_case, axis=0)
    slack = 5 * np.sqrt(losses.worst_case_passed / 4000)
    assert np.all(often <= losses.worst_case_passed + slack)


@pytest.mark.parametrize("tail", [0.3, 0.05, 0.01])
def test_the_quantile_is_a_bound(tail):
    histograms, counted, cells = released(delta=0.003)
    losses = EncodingLosses.of(histograms, counted).rows(cells)
    bound = encoded.loss_quantile(histograms, tail)
    drawn = np.stack(list(losses.draw(4000, np.random.default_rng(4))))
    often = np.mean(np.abs(drawn) > bound, axis=0)
    assert np.all(often <= tail + 5 * math.sqrt(tail / 4000))
    # It is no looser than twice the quantile of a row without levels of its own.
    mu = math.sqrt(len(COLUMNS)) / histograms.scale
    assert bound <= 2 * mu * (mu / 2 + norm.isf(tail / 2)) + 0.5


def test_more_rows_of_a_person_need_more_noise():
    table = open_table(people())
    single, _ = draw_histograms(table, COLUMNS, budget(), np.random.default_rng(0))
    many = budget(rows_per_person=3)
    three, _ = draw_histograms(table, COLUMNS, many, np.random.default_rng(0))
    assert three.scale == pytest.approx(3 * single.scale)
    assert three.threshold > 3 * single.threshold - 3 * single.scale
    spent = three.delta + three.threshold_delta
    assert encoded.guarantee_of(three, 3).delta(three.epsilon) <= spent * (1 + 1e-6)
    assert encoded.guarantee_of(three, 4).delta(three.epsilon) > spent


def test_parts_of_a_budget_add_up():
    """To the total as it is written: 0.1 and 0.9 are 1, and no part is above what is left."""
    for epsilon, delta, share in itertools.product(
        (0.1, 1.0, 2.56, math.pi), (1e-6, 3e-7), (0.1, 0.07)
    ):
        part = EncodingBudget(epsilon=epsilon, delta=delta, share=share)
        rest = encoded.left_of(epsilon, part.encoding_epsilon)
        total = summed_up([part.encoding_epsilon, rest])
        assert epsilon * (1 - 1e-15) <= total <= epsilon
        assert total == epsilon or epsilon == math.pi
        thirds = [part.part_of_delta] * 2
        left = encoded.left_of(delta, *thirds)
        assert summed_up([*thirds, left]) == delta
        assert 0 < left == pytest.approx(delta / 3)
    assert encoded.left_of(1.0, 0.1) == 0.9


@pytest.mark.parametrize(
    "changes",
    [{"share": 0.0}, {"share": 1.0}, {"share": math.nan}, {"epsilon": math.inf}, {"delta": 0.0}],
    ids=str,
)
def test_budgets_that_are_none_are_refused(changes):
    with pytest.raises(InvalidInput):
        budget(**changes)


# -- what is released --------------------------------------------------------------------------


def test_only_noisy_counts_on_the_grid_are_released():
    histograms, counted, _ = released()
    encoded.check_constants(histograms)
    for column, exact in zip(histograms.columns, counted.columns, strict=True):
        values = np.array([*column.counts, column.missing])
        assert np.all(values % histograms.step == 0)
        if isinstance(column, LevelHistogram):
            assert set(column.levels) <= set(exact.levels)
            assert all(count > histograms.threshold for count in column.counts)


def test_json_is_read_back_whole_and_pickles():
    histograms, counted, _ = released()
    text = json.dumps(histograms.to_json(), allow_nan=False)
    assert Histograms.from_json(json.loads(text)) == histograms
    losses = EncodingLosses.of(histograms, counted)
    assert pickle.loads(pickle.dumps(losses)).histograms == histograms


@pytest.mark.parametrize("name", ["scale", "threshold", "epsilon", "delta", "threshold_delta"])
def test_edited_constants_are_refused(name):
    histograms, _, _ = released()
    value = histograms.to_json()
    value[name] = value[name] * 0.9
    with pytest.raises(InvalidInput, match=r"histograms"):
        encoded.check_constants(Histograms.from_json(value))


def test_other_rows_are_refused():
    histograms, _, _ = released(people(2000), epsilon=200.0)
    other = Counted.of_release(open_table(people(2000, seed=9)), histograms)
    with pytest.raises(WrongRows):
        EncodingLosses.of(histograms, other)
    lacking = Counted.of_release(open_table(people(30)), histograms)
    with pytest.raises(WrongRows):
        EncodingLosses.of(histograms, lacking)


def test_the_entries_follow_from_what_is_released():
    """Means and scales come near those of the rows; rare levels are left out."""
    rows = 20_000
    rng = np.random.default_rng(2)
    age = rng.normal(40.0, 10.0, rows)
    job = rng.choice(["a", "b", "c"], rows, p=[0.6, 0.398, 0.002])
    table = open_table(pa.table({"age": age, "job": job}))
    columns = {"age": (0.0, 120.0), "job": None}
    share = EncodingBudget(epsilon=1.0, delta=1e-6, share=0.1)
    histograms, _ = draw_histograms(table, columns, share, np.random.default_rng(0))
    entries = histograms.entries()
    assert entries["age"].mean == pytest.approx(40.0, abs=1.0)
    assert entries["age"].scale == pytest.approx(10.0, rel=0.15)
    assert entries["job"].levels == ("a", "b")
    assert not entries["age"].indicator
    assert entries["job"].missing_mark is None


def test_nothing_but_noise_makes_a_usable_entry():
    table = open_table(people(20))
    share = EncodingBudget(epsilon=0.01, delta=1e-6, share=0.1)
    histograms, _ = draw_histograms(table, COLUMNS, share, np.random.default_rng(3))
    entries = histograms.entries()
    assert 0 <= entries["age"].mean <= 100
    assert 0 < entries["age"].scale < 60
