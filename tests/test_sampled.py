"""Sampled mechanisms: against the exact law of output perturbation, loops, and made-up losses."""

import json
import math
import re
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from scipy.special import expit, logit, ndtri
from scipy.stats import t as student

from expost import _numerics
from expost._numerics import bracket_root
from expost.epsilon.black_box import BlackBox
from expost.epsilon.choose import choose_epsilon
from expost.epsilon.limit import PosteriorLimit
from expost.epsilon.row_figures import EstimatedLosses, row_figures
from expost.epsilon.sampled import DEFAULT_EPSILONS, SampledMechanism, SampledSweep
from expost.epsilon.sweep import LawSweep
from expost.errors import InvalidInput
from expost.estimators import PrivateLogisticRegression
from expost.glm import minimise
from expost.mechanisms.base import TOLERANCE
from expost.neighbouring.neighbours import tight_neighbours
from expost.report import document_of

LIMIT = PosteriorLimit(max_posterior=0.75)
ROWS = 12


@cache
def table():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(ROWS, 2))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * rng.uniform(1, 2, size=(ROWS, 1))
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=ROWS) > 0, 1, -1)


@cache
def output(noise):
    """(mechanism, neighbours) of output perturbation on the table."""
    prepared = PrivateLogisticRegression(
        epsilon=1.0,
        mechanism="output",
        noise=noise,
        delta=1e-3 if noise == "gaussian" else None,
        regularization=0.1,
        fit_intercept=False,
        data_norm=1.0,
        classes=[-1, 1],
    ).prepared(*table())
    base = minimise(prepared.problem, tolerance=TOLERANCE)
    return prepared.mechanism, tight_neighbours(prepared.problem, base)


@dataclass(frozen=True)
class SampledOutput:
    """Output perturbation as if its law were not known."""

    noise: str
    description = "output perturbation, sampled"
    rows = ROWS

    def law(self, epsilon):
        return replace(output(self.noise)[0], epsilon=epsilon).law

    def sample(self, epsilon, size, rng):
        return output(self.noise)[1].base + self.law(epsilon).sample(size, rng)

    def losses(self, epsilon, models, seed):
        _, neighbours = output(self.noise)
        b = models - neighbours.base
        norms = np.linalg.norm(b, axis=1)[:, np.newaxis]
        return self.law(epsilon).loss_from(norms, b @ neighbours.shift.T, neighbours.distance)


@dataclass(frozen=True)
class MadeUp:
    """Any losses at all; the models are never looked at."""

    make: object
    rows: int = 1
    description = "made up"

    def sample(self, epsilon, size, rng):
        return rng.normal(size=(size, 1))

    def losses(self, epsilon, models, seed):
        return self.make(epsilon, models, np.random.default_rng(seed))


def sweep_of(mechanism, **options):
    seed = options.pop("seed", 3)
    return SampledSweep(
        **{
            "mechanism": mechanism,
            "epsilons": DEFAULT_EPSILONS,
            "tolerance": 0.1,
            "share": 0.5,
            "models": 2000,
            "limit": LIMIT,
            "seed": np.random.SeedSequence(seed),
            **options,
        }
    )


@cache
def both(noise):
    """The sampled sweep and the exact one."""
    mechanism, neighbours = output(noise)
    exact = LawSweep.of(
        neighbours,
        mechanism=mechanism,
        limit=LIMIT,
        epsilons=DEFAULT_EPSILONS,
        tolerance=0.1,
        share=0.5,
        models=2000,
        seed=np.random.SeedSequence(8),
    )
    return sweep_of(SampledOutput(noise)), exact


def exact_one_sidedness(noise, epsilon):
    mechanism, neighbours = output(noise)
    law = mechanism.loss_law(neighbours.distance / replace(mechanism, epsilon=epsilon).resolution)
    return law.expected_loss / law.expected_exposure


NOISES = pytest.mark.parametrize("noise", ["laplace", "gaussian"])


# Against the exact law -------------------------------------------------------------------------


@NOISES
def test_expected_exposures_are_the_exact_ones_and_no_others(noise):
    # 156 comparisons at five standard errors: a false alarm in 10,000 runs.
    sampled, exact = both(noise)
    for factor, right in ((1.0, True), (1.2, False), (1 / 1.2, False)):
        apart = np.abs(factor * sampled.expected - exact.expected) / sampled.expected_error
        assert np.all((apart <= 5) == right)


@NOISES
def test_one_sidedness_is_the_exact_one(noise):
    # Five standard errors of 312 figures, of rows that share their models.
    sampled, exact = both(noise)
    score, held, medians = student.ppf(0.95, 1999), [], []
    for epsilon in DEFAULT_EPSILONS.tolist():
        figures, truth = sampled.figures(epsilon), exact_one_sidedness(noise, epsilon)
        error = (figures.one_sidedness - figures.one_sidedness_low) / score
        assert np.all(np.abs(figures.one_sidedness - truth) <= 5 * error + 1e-3)
        if truth.min() > 0.03 and truth.max() < 0.4:
            assert np.all(np.abs(1.3 * figures.one_sidedness - truth) > 5 * error + 1e-3)
        held.append((figures.one_sidedness_low <= truth) & (truth <= figures.one_sidedness_high))
        medians.append(np.sort(truth)[ROWS // 2])
    # Each limit holds nineteen times out of twenty, but their misses come together.
    assert np.mean(held) > 0.8
    one_sidedness = sampled.one_sidedness
    # The row with the largest expected loss is the farthest one.
    np.testing.assert_allclose(one_sidedness.farthest, exact.one_sidedness.farthest, atol=0.03)
    np.testing.assert_allclose(one_sidedness.median, medians, atol=0.03)


@NOISES
@pytest.mark.parametrize(
    "limit", [LIMIT, PosteriorLimit(max_posterior=0.6, prior=0.2, quantile=0.8)]
)
def test_posteriors_are_limits_just_above_the_exact_ones(noise, limit):
    # The limits of 13 ε share their models: all hold, or a run in twenty misses.
    sampled, exact = (replace(sweep, limit=limit) for sweep in both(noise))
    figures = sampled.posterior(DEFAULT_EPSILONS)
    # The samples have the distances themselves, not the upper ends of their certificates.
    truth = exact.posterior_at(exact.distances.largest, DEFAULT_EPSILONS)
    assert np.all(figures >= truth)
    assert np.all(figures <= truth + 0.03)


@NOISES
def test_ranked_profiles_are_those_of_the_fast_path(noise):
    sampled, exact = both(noise)
    error = np.hypot(sampled.ranked.error, exact.ranked.error)
    assert np.all(np.abs(sampled.ranked.mean - exact.ranked.mean) <= 5 * error)
    # The largest of twelve exposures is far more precise than a factor of 1.2.
    assert np.all(np.abs(1.2 * sampled.ranked.mean - exact.ranked.mean)[:, -1] > 5 * error[:, -1])
    assert np.array_equal(sampled.ranked.ranks, np.arange(1, ROWS + 1))
    assert sampled.ranked.resolution < 1e-15


@NOISES
def test_the_transition_is_that_of_the_exact_one_sidedness(noise):
    sampled, _ = both(noise)

    def crossing(level, pick):
        below, _ = bracket_root(
            lambda e: np.array([pick(exact_one_sidedness(noise, float(e[0]))) - level]),
            np.array([0.01]),
            np.array([1000.0]),
        )
        return float(below[0])

    low = crossing(0.1, np.max)
    # The share of half of twelve rows: the sixth largest.
    high = crossing(0.9, lambda values: np.sort(values)[-6])
    # Within a sixteenth of a step of the grid (6 %) and the sampling error, on the safe side.
    assert 0.8 * low <= sampled.low <= low
    assert high <= sampled.high <= 1.25 * high
    critical = [crossing(0.1, lambda values, row=row: values[row]) for row in range(ROWS)]
    assert np.all(sampled.critical <= critical)
    assert np.min(sampled.critical) == sampled.low
    # Rows are distinguished by no more than the grid: a step is a factor of 2.6.
    assert np.all(sampled.critical >= np.array(critical) / 3.2)
    assert sampled.remarks == ()


@NOISES
@pytest.mark.parametrize("quantile", [0.6, 0.95])
def test_the_ceiling_is_below_the_exact_one(noise, quantile):
    # Each limit misses with a probability of a twentieth: nine of ten, but for a run in twelve.
    limit = replace(LIMIT, quantile=quantile)
    truth = replace(both(noise)[1], limit=limit).ceiling()
    grid = np.geomspace(truth / 8, truth * 2, 5)
    figures = np.array(
        [
            sweep_of(
                SampledOutput(noise), epsilons=grid, models=400, limit=limit, seed=seed
            ).ceiling()
            for seed in range(10)
        ]
    )
    assert np.count_nonzero(figures <= truth) >= 9
    assert np.all(figures >= truth / 2)


# What is found ---------------------------------------------------------------------------------


def naive_figures(losses, limit):
    """Means, standard errors and the limit of the posterior of one row after another."""
    results = []
    for column in range(losses.loss.shape[1]):
        values = [float(v) for v in losses.loss[:, column]]
        noises = [float(v) for v in losses.noise[:, column]]
        shifts = [float(v) for v in losses.correction[:, column]]
        shared, m = float(losses.shared[column]), len(values)
        score = student.ppf(0.95, m - 1)

        def mean(numbers, m=m):
            return sum(numbers) / m

        def error(numbers, shared, m=m):
            spread = sum((x - sum(numbers) / m) ** 2 for x in numbers) / (m - 1)
            return math.sqrt(spread / m + shared**2)

        # Half of the losses past the quantile have estimates past it.
        assert all(noise > 0 for noise in noises)
        half = (1 - limit.quantile) / 2
        moved = sorted(v + abs(mean(shifts)) + score * shared for v in values)
        # The least rank r with P(fewer than r of m losses lie below the quantile) ≥ 0.95.
        below, rank = 0.0, 0
        while below < 0.95:
            below += math.comb(m, rank) * (1 - half) ** rank * half ** (m - rank)
            rank += 1
        loss = moved[rank - 1] if rank <= m else math.inf
        posterior = 1 / (1 + math.exp(-logit(limit.prior) - loss))
        sizes = [abs(v) for v in values]
        results.append((mean(values), mean(sizes), error(sizes, shared), posterior))
    return np.array(results).T


def noisy_losses(rng, models=130, rows=5):
    return EstimatedLosses(
        loss=rng.normal(1.0, 1.0, size=(models, rows)),
        noise=rng.uniform(0.1, 0.5, size=(models, rows)),
        correction=rng.normal(0.05, 0.1, size=(models, rows)),
        shared=rng.uniform(0, 0.1, size=rows),
    )


@pytest.mark.parametrize("prior", [0.5, 0.1])
@pytest.mark.parametrize("quantile", [0.5, 0.8, 0.95])
def test_figures_are_those_of_a_loop(prior, quantile):
    losses = noisy_losses(np.random.default_rng(0))
    limit = PosteriorLimit(max_posterior=0.9, prior=prior, quantile=quantile)
    figures = row_figures(losses, limit)
    mean, size, error, posterior = naive_figures(losses, limit)
    assert np.all(posterior < 1)
    np.testing.assert_allclose(figures.expected_loss, mean, rtol=1e-12)
    np.testing.assert_allclose(figures.exposure, size, rtol=1e-12)
    np.testing.assert_allclose(figures.exposure_error, error, rtol=1e-12)
    np.testing.assert_allclose(figures.posterior_high, posterior, rtol=1e-12)


def test_the_block_of_rows_changes_nothing(monkeypatch):
    losses = noisy_losses(np.random.default_rng(4), rows=200)
    whole = row_figures(losses, LIMIT)
    monkeypatch.setattr(_numerics, "_BLOCK_ROWS", 7)
    for name, values in vars(row_figures(losses, LIMIT)).items():
        np.testing.assert_allclose(values, getattr(whole, name), rtol=1e-12)


def test_the_order_of_questions_changes_nothing():
    def answers(names):
        sweep = sweep_of(SampledOutput("laplace"), models=50)
        answered = {name: getattr(sweep, name) for name in names}
        return [np.asarray(answered[name]) for name in sorted(names)]

    names = ["low", "high", "critical", "expected", "expected_error", "remarks"]
    for first, other in zip(answers(names), answers(names[::-1]), strict=True):
        assert np.array_equal(first, other, equal_nan=first.dtype.kind == "f")


def test_another_seed_draws_other_models():
    first, same, other = (
        sweep_of(SampledOutput("laplace"), models=50, seed=seed).expected for seed in (1, 1, 2)
    )
    assert np.array_equal(first, same)
    assert not np.any(first == other)


def test_small_expected_losses_take_few_models():
    # The mean of ℓ itself has a relative error of 1/(μ/2·√m), 20 at this ε; that of ℓ − 1 + e^(−ℓ)
    # has √2/√m.
    figures = sweep_of(SampledOutput("gaussian"), models=400).figures(0.05)
    mechanism, neighbours = output("gaussian")
    law = mechanism.loss_law(neighbours.distance / replace(mechanism, epsilon=0.05).resolution)
    np.testing.assert_allclose(figures.expected_loss, law.expected_loss, rtol=0.4)


def test_a_mechanism_without_all_outputs_does_not_take_the_short_cut():
    # D₋ᵢ gives a tenth of its mass to models that D never makes: every loss is −log 0.9.
    constant = MadeUp(lambda epsilon, models, rng: np.full((len(models), 1), -math.log(0.9)))
    figures = sweep_of(constant, models=30).figures(1.0)
    assert figures.one_sidedness[0] == 1
    assert figures.expected_loss[0] == pytest.approx(-math.log(0.9))


# Never private for want of knowledge -----------------------------------------------------------


@pytest.mark.parametrize("noise", [0.05, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0])
def test_a_noisy_estimate_is_not_less_one_sided(mu, noise):
    # Quantiles in place of draws: hardly any sampling error is left to hide behind.
    scores = ndtri((np.arange(4000) + 0.5) / 4000)[:, np.newaxis]
    true = mu**2 / 2 + mu * scores
    shape = true.shape
    losses = EstimatedLosses(
        loss=true + noise * np.random.default_rng(5).permutation(scores),
        noise=np.full(shape, noise),
        correction=np.zeros(shape),
        shared=np.zeros(1),
    )
    figures = row_figures(losses, LIMIT)
    truth = mu**2 / 2 / np.mean(np.abs(true))
    assert math.isnan(figures.one_sidedness_high[0]) or figures.one_sidedness_high[0] >= truth
    assert figures.one_sidedness_low[0] <= truth
    plain = np.mean(losses.loss) / np.mean(np.abs(losses.loss))
    if noise >= mu:
        # What would have read as private.
        assert plain < 0.95 * truth
    assert figures.posterior_high[0] >= expit(np.quantile(true, 0.95))


def test_losses_within_the_noise_show_no_plateau():
    rng = np.random.default_rng(6)

    def make(epsilon, models, _):
        shape = (len(models), 2)
        return EstimatedLosses(
            loss=np.stack([rng.normal(0, 0.3, len(models)), np.full(len(models), 5.0)], axis=1)
            if epsilon > 5
            else rng.normal(0, 0.3, shape),
            noise=np.full(shape, 0.3),
            correction=np.zeros(shape),
            shared=np.full(2, 0.02),
        )

    sweep = sweep_of(MadeUp(make, rows=2), models=100)
    assert math.isnan(sweep.low)
    assert np.all(np.isnan(sweep.critical))
    assert np.all(np.isnan(sweep.one_sidedness.farthest[DEFAULT_EPSILONS < 5]))
    assert any("within the noise" in remark for remark in sweep.remarks)


def test_without_noise_every_row_is_exposed():
    proof = MadeUp(lambda epsilon, models, rng: np.full((len(models), 3), np.inf), rows=3)
    sweep = sweep_of(proof, models=30)
    assert np.all(sweep.expected == np.inf)
    assert np.all(sweep.expected_error == np.inf)
    assert np.all(sweep.ranked.mean == np.inf)
    assert np.all(sweep.ranked.error == np.inf)
    assert np.all(sweep.posterior(DEFAULT_EPSILONS) == 1)
    assert sweep.ceiling() == 0
    assert math.isnan(sweep.low)
    assert math.isnan(sweep.high)
    assert np.all(sweep.critical == 0)
    assert np.all(sweep.one_sidedness.farthest == 1)
    choice = choose_epsilon(np.zeros((3, 1)), None, mechanism=proof, models=30, random_state=0)
    assert choice.recommended is None


@pytest.mark.parametrize("quantile", [0.5, 0.6])
def test_losses_that_are_not_resolved_count_as_proof(quantile):
    def make(epsilon, models, rng):
        # Half of the models leave it open how much they tell.
        noise = np.where(np.arange(len(models)) % 2, np.inf, 0.1)[:, np.newaxis]
        return EstimatedLosses(
            loss=np.full(noise.shape, 0.2),
            noise=noise,
            correction=np.zeros(noise.shape),
            shared=np.zeros(1),
        )

    limit = replace(LIMIT, quantile=quantile)
    figures = sweep_of(MadeUp(make), models=40, limit=limit).figures(1.0)
    assert figures.posterior_high[0] == 1
    assert figures.exposure_error[0] == np.inf
    assert figures.one_sidedness_high[0] == 1


def test_too_few_models_for_a_quantile_show_nothing():
    # 0.99²⁹⁸ > 0.05 ≥ 0.99²⁹⁹, 0.95⁵⁸ > 0.05 ≥ 0.95⁵⁹: the largest of them is a limit.
    for quantile, least in ((0.99, 299), (0.95, 59)):
        limit = replace(LIMIT, quantile=quantile)
        few = sweep_of(SampledOutput("laplace"), models=least - 1, limit=limit)
        assert few.posterior(np.array([0.01]))[0] == 1
        assert few.ceiling() == 0
        assert any("needs many models" in remark for remark in few.remarks)
        enough = sweep_of(SampledOutput("laplace"), models=least, limit=limit)
        assert enough.posterior(np.array([0.01]))[0] < 0.51


@pytest.mark.parametrize(("models", "is_enough"), [(118, False), (119, True)])
def test_estimated_losses_take_twice_as_many_models_for_a_quantile(models, is_enough):
    shape = (models, 1)
    losses = EstimatedLosses(
        loss=np.zeros(shape),
        noise=np.full(shape, 0.01),
        correction=np.zeros(shape),
        shared=np.zeros(1),
    )
    assert (row_figures(losses, LIMIT).posterior_high[0] < 1) == is_enough


def test_rows_that_no_model_depends_on_are_on_their_plateau_throughout():
    nothing = MadeUp(lambda epsilon, models, rng: np.zeros((len(models), 2)), rows=2)
    sweep = sweep_of(nothing, models=60)
    assert np.all(sweep.posterior(DEFAULT_EPSILONS) == 0.5)
    assert sweep.ceiling() == DEFAULT_EPSILONS[-1]
    assert np.all(sweep.critical == DEFAULT_EPSILONS[-1])
    assert np.all(sweep.one_sidedness.farthest == 0)
    # Where it ends was not seen.
    assert math.isnan(sweep.low)
    assert math.isnan(sweep.high)
    assert len(sweep.remarks) == 3


def test_a_limit_that_was_passed_once_is_passed():
    def make(epsilon, models, rng):
        return np.full((len(models), 1), 3.0 if 1 < epsilon < 4 else 0.01)

    sweep = sweep_of(MadeUp(make), models=60)
    assert 0.5 < sweep.ceiling() <= 1


def test_the_ceiling_is_sought_below_the_grid():
    truth = both("laplace")[1].ceiling()
    sweep = sweep_of(SampledOutput("laplace"), epsilons=np.array([100.0, 300.0]), models=400)
    # Sixteen steps a factor of ten, and the sampling error.
    assert truth / 1.4 <= sweep.ceiling() <= truth


def test_the_grid_may_lie_beside_the_transition():
    for grid, side in ((np.geomspace(50, 500, 4), "below"), (np.geomspace(1e-4, 1e-2, 4), "above")):
        sweep = sweep_of(SampledOutput("laplace"), epsilons=grid, models=100)
        assert math.isnan(sweep.low)
        assert any(f"lies {side} the values" in remark for remark in sweep.remarks)


# Through choose_epsilon ------------------------------------------------------------------------


def test_a_sampled_mechanism_is_chosen_for():
    X, y = table()
    mechanism = SampledOutput("laplace")
    assert isinstance(mechanism, SampledMechanism)
    choice = choose_epsilon(X, y, mechanism=mechanism, random_state=4, ids=range(100, 112))
    exact = both("laplace")[1]
    assert choice.verdict == "most"
    assert choice.recommended == choice.ceiling <= exact.ceiling()
    assert max(choice.low, choice.recommended) < choice.high
    assert choice.posteriors is None
    assert choice.utility is None
    assert choice.ids == tuple(range(100, 112))
    assert np.array_equal(choice.epsilons, DEFAULT_EPSILONS)
    assert choice.expected.shape == choice.ranked.shape == (13, ROWS)
    assert any("utility was not measured" in notice for notice in choice.notices)
    assert choice.description == mechanism.description
    assert json.loads(choice.to_json())["recommended"] == choice.recommended
    again = choose_epsilon(X, y, mechanism=mechanism, random_state=4, workers=2)
    assert again.recommended == choice.recommended
    assert np.array_equal(again.expected, choice.expected)


def test_what_is_unknown_is_written_as_such():
    X, y = table()
    choice = choose_epsilon(
        X, y, mechanism=SampledOutput("laplace"), epsilons=[40, 80, 160], models=60, random_state=0
    )
    assert math.isnan(choice.low)
    assert document_of(choice).figures["transition"].panels
    written = json.loads(choice.to_json())
    assert written["low"] is None
    assert written["epsilons"] == [40, 80, 160]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("noise", "gaussian"),
        ("delta", 1e-6),
        ("loss", "squared"),
        ("regularization", 0.5),
        ("share", 0.7),
        ("measure", "auc"),
        ("fit_intercept", False),
        ("intercept_scaling", 1.0),
        ("data_norm", 1.0),
        ("classes", [0, 1]),
        ("huber_width", 0.1),
        ("label_range", (-2.0, 2.0)),
    ],
)
def test_options_of_the_estimators_belong_to_the_sampler(name, value):
    X, y = table()
    with pytest.raises(InvalidInput, match=f"^{name}: belongs to the sampler"):
        choose_epsilon(X, y, mechanism=SampledOutput("laplace"), **{name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mechanism": 3}, "mechanism is a int: must be 'output', a BlackBox"),
        ({"mechanism": MadeUp(None, rows=7)}, "X has 12 rows: must have the 7"),
        ({"models": 10}, "models=10: must be an integer of at least 20"),
        ({"models": 2**25}, "models=33554432: must be at most 2796202 for 12 rows"),
        ({"tolerance": 0.5}, "tolerance=0.5: must lie between"),
        ({"tolerance": math.nan}, "tolerance=nan: must be"),
        ({"ids": [1]}, "ids has 1 entries: must have one for each of 12 rows"),
        ({"mechanism": BlackBox(print, draws=100), "ids": [1]}, "ids has 1 entries"),
    ],
)
def test_misuse_is_refused_in_a_sentence(options, message):
    X, y = table()
    with pytest.raises(InvalidInput, match=re.escape(message)):
        choose_epsilon(X, y, **{"mechanism": SampledOutput("laplace"), **options})


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (np.full((30, 1), np.nan), "must not hold NaN"),
        (np.zeros((30, 2)), "has shape (30, 2): must be (30, 1), models and rows"),
        (np.zeros(30), "loss has 1 dimensions"),
    ],
)
def test_losses_of_another_shape_or_none_are_refused(made, message):
    sweep = sweep_of(MadeUp(lambda epsilon, models, rng: made), models=30)
    with pytest.raises(InvalidInput, match=re.escape(message)):
        sweep.figures(1.0)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("noise", np.full((4, 2), -1.0), "noise: must hold numbers ≥ 0"),
        ("noise", np.full((4, 2), np.nan), "noise: must hold numbers ≥ 0"),
        ("noise", np.zeros((4, 1)), "noise: must have the shape of loss"),
        ("correction", np.full((4, 2), np.inf), "loss, correction: must not hold"),
        ("shared", np.zeros(3), "shared: must have one entry for each of 2 rows"),
    ],
)
def test_estimates_are_checked(name, value, message):
    parts = {
        "loss": np.zeros((4, 2)),
        "noise": np.zeros((4, 2)),
        "correction": np.zeros((4, 2)),
        "shared": np.zeros(2),
    }
    with pytest.raises(InvalidInput, match=re.escape(message)):
        EstimatedLosses(**{**parts, name: value})
