"""The private choice of Λ: parts, budget, neighbours, real data, what the result holds, refusals."""

import inspect
import math
import warnings
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from sklearn.datasets import load_breast_cancer

from expost import glm
from expost.errors import (
    ClippedRowsWarning,
    InvalidInput,
    PrivacyLeakWarning,
    ReleaseRefused,
    SeededReleaseWarning,
)
from expost.estimators import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from expost.release import Release
from expost.selection import tuning
from expost.selection.private import byte_source
from expost.selection.tuning import (
    SelectedRegularization,
    row_predictions,
    select_regularization,
    split_rows,
)
from expost.types import Audience
from parameters import every_parameter_reaches
from settings import OUTPUT

CANDIDATES = (0.001, 0.1, 10.0)
KINDS = {
    "logistic": PrivateLogisticRegression,
    "huber-hinge": PrivateLinearSVC,
    "squared": PrivateRidge,
}
DATA_NORM, LABEL_BOUND = 6.0, 3.0
NOISE = {name: OUTPUT[name] for name in ("noise", "delta", "intercept_scaling")}


def table(loss, *, n=240, seed=0):
    """Rows and labels within their bounds."""
    rng = np.random.default_rng(seed)
    X = np.clip(rng.normal(size=(n, 3)), -3, 3)
    signal = X @ [1.0, -0.5, 0.25] + 0.3 * rng.normal(size=n)
    if loss == "squared":
        return X, np.clip(signal, -LABEL_BOUND, LABEL_BOUND)
    return X, np.where(signal > 0, "yes", "no")


def bounds(loss):
    own = (
        {"label_range": (-LABEL_BOUND, LABEL_BOUND)}
        if loss == "squared"
        else {"classes": ("no", "yes")}
    )
    return {"data_norm": DATA_NORM, **own}


def select(loss="logistic", *, data=None, candidates=CANDIDATES, seed=None, **parameters):
    """With every bound given; a seed is for the test, and does not warn."""
    X, y = table(loss) if data is None else data
    given = {"epsilon": 1.0, "loss": loss, **NOISE, **bounds(loss), **parameters}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if seed is not None else "error", SeededReleaseWarning)
        return select_regularization(X, y, candidates, random_state=seed, **given)


@pytest.fixture
def spy(monkeypatch):
    """What the choice is made from: scores, sensitivity, budget, and every model."""
    recorded = {"releases": []}
    draw = tuning.draw_index

    def watched_draw(scores, sensitivity, epsilon, **options):
        recorded.update(scores=list(scores), sensitivity=sensitivity, epsilon=epsilon, **options)
        return draw(scores, sensitivity, epsilon, **options)

    def watched_release(**fields):
        recorded["releases"].append(Release(**fields))
        return recorded["releases"][-1]

    monkeypatch.setattr(tuning, "draw_index", watched_draw)
    monkeypatch.setattr(tuning, "Release", watched_release)
    return recorded


# Parts.


def test_parts_are_disjoint_and_cover():
    for rows, parts in ((1, 3), (500, 2), (1000, 7)):
        members = split_rows(rows, parts, byte_source(None))
        assert len(members) == parts
        assert sorted(np.concatenate(members)) == list(range(rows))


def test_parts_are_uniform_and_independent():
    """A fixed seed; of all seeds one in a thousand would fail each line."""
    rng = np.random.default_rng(5)
    members = split_rows(40_000, 5, byte_source(rng))
    sizes = np.array([len(part) for part in members])
    assert scipy.stats.chisquare(sizes).pvalue > 1e-3
    # Not of one size, as shuffled parts would be: such sizes are too even for independent draws.
    assert scipy.stats.chisquare(sizes).pvalue < 1 - 1e-3
    part = np.empty(40_000, dtype=int)
    for number, rows in enumerate(members):
        part[rows] = number
    pairs = np.bincount(5 * part[:-1:2] + part[1::2], minlength=25)
    assert scipy.stats.chisquare(pairs).pvalue > 1e-3
    # Power.
    assert scipy.stats.chisquare(np.bincount(part % 4)).pvalue < 1e-12


def test_a_part_is_a_remainder_of_whole_ranges_only():
    """The words that would make low parts likelier are thrown away, and drawn again."""
    words = iter([[0, 2**64 - 1, 4], [5]])

    def source(size):
        drawn = np.array(next(words), dtype="<u8").tobytes()
        assert len(drawn) == size
        return drawn

    # 2⁶⁴ = 1 (mod 3): the last word alone is beyond.
    assert [part.tolist() for part in split_rows(3, 3, source)] == [[0], [1], [2]]


# The algorithm, written down again.


def naive_errors(loss, model, X, y):
    predicted = model.predict(X)
    if loss == "squared":
        return sum(min((a - b) ** 2, LABEL_BOUND**2) for a, b in zip(y, predicted, strict=True))
    return sum(a != b for a, b in zip(y, predicted, strict=True))


@pytest.mark.parametrize("loss", KINDS)
def test_without_noise_it_is_the_plain_algorithm(loss, spy):
    X, y = table(loss)
    for seed in range(4):
        result = select(loss, seed=seed, epsilon=math.inf)
        parts = split_rows(len(X), 4, byte_source(np.random.default_rng(seed)))
        assert result.part_rows == tuple(len(part) for part in parts)
        errors = []
        for value, part in zip(CANDIDATES, parts, strict=False):
            model = KINDS[loss](
                math.inf, regularization=value, mechanism="output", **NOISE, **bounds(loss)
            )
            errors.append(naive_errors(loss, model.fit(X[part], y[part]), X[parts[3]], y[parts[3]]))
        unit, rounding = 1.0, 0.0
        if loss == "squared":
            # Each row is rounded down by less than a unit.
            unit = LABEL_BOUND**2 / 2**20
            rounding = unit * len(parts[3])
        np.testing.assert_allclose(-np.array(spy["scores"]) * unit, errors, rtol=0, atol=rounding)
        assert errors[result.index] <= min(errors) + rounding
        given = {"mechanism": "output", **NOISE, **bounds(loss)}
        expected = KINDS[loss](math.inf, regularization=CANDIDATES[result.index], **given)
        part = parts[result.index]
        np.testing.assert_array_equal(result.model.coef_, expected.fit(X[part], y[part]).coef_)


# Budget.


@pytest.mark.parametrize("loss", KINDS)
def test_every_part_has_the_whole_epsilon(loss, spy):
    result = select(loss, epsilon=0.7)
    assert (result.epsilon, result.delta) == (0.7, None)
    assert spy["epsilon"] == 0.7
    assert spy["sensitivity"] == (2**20 if loss == "squared" else 1)
    # Not monotone: a replaced row may raise one count and lower another.
    assert not spy.get("monotone", False)
    assert spy["method"] == "permute-and-flip"
    for release, value, rows in zip(spy["releases"], CANDIDATES, result.part_rows, strict=False):
        mechanism = release.mechanism
        assert (mechanism.epsilon, mechanism.delta, mechanism.regularization) == (0.7, None, value)
        assert mechanism.rows == rows
        if loss != "squared":
            assert mechanism.law.rate == pytest.approx(rows * value * 0.7 / 2, rel=1e-6)
    assert result.release is spy["releases"][result.index]
    assert sum(result.part_rows) == 240


def test_gaussian_noise_has_its_delta_once(spy):
    result = select(noise="gaussian", delta=1e-6, method="exponential")
    assert (result.epsilon, result.delta) == (1.0, 1e-6)
    assert {release.mechanism.delta for release in spy["releases"]} == {1e-6}
    assert spy["method"] == result.method == "exponential"
    assert "ε = 1, δ = 10⁻⁶" in str(result)


# Neighbours: given the draws, one row is in one part only.


def seen_by(spy, data, parts, monkeypatch, loss, epsilon=math.inf):
    """The models' θ and the scores on these rows, with the parts given."""
    spy["releases"].clear()
    monkeypatch.setattr(tuning, "split_rows", lambda *_: parts)
    select(loss, data=data, epsilon=epsilon)
    return [release.theta for release in spy["releases"]], np.array(spy["scores"])


@pytest.mark.parametrize("relation", ["remove", "replace"])
@pytest.mark.parametrize("loss", KINDS)
def test_one_row_changes_one_part(loss, relation, spy, monkeypatch):
    X, y = table(loss)
    parts = split_rows(len(X), 4, byte_source(np.random.default_rng(0)))
    models, scores = seen_by(spy, (X, y), parts, monkeypatch, loss)
    largest = 0.0
    for number, part in enumerate(parts):
        for row in part[:6]:
            X2, y2, parts2 = X.copy(), y, parts
            if relation == "remove":
                X2, y2 = np.delete(X, row, axis=0), np.delete(y, row)
                parts2 = [np.where(p > row, p - 1, p)[p != row] for p in parts]
            else:
                X2[row] = -0.5 * X[row]
            models2, scores2 = seen_by(spy, (X2, y2), parts2, monkeypatch, loss)
            same = [np.array_equal(a, b) for a, b in zip(models, models2, strict=True)]
            assert same == [number != other for other in range(3)]
            change = np.abs(scores2 - scores)
            if number == 3:
                largest = max(largest, change.max())
                assert np.all(change <= spy["sensitivity"])
            else:
                assert np.all(change[[other for other in range(3) if other != number]] == 0)
    assert largest > 0


def test_the_largest_errors_count_one_unit_each(spy, monkeypatch):
    """Labels at one bound and predictions past the other."""
    X, y = table("squared")
    parts = split_rows(len(X), 4, byte_source(np.random.default_rng(0)))
    X, y = np.where(X > 0, 3.0, -3.0), np.where(X[:, 0] > 0, 3.0, -3.0)
    y[parts[3]] *= -1
    _, scores = seen_by(spy, (X, y), parts, monkeypatch, "squared")
    # The smallest Λ follows the labels, and is wrong by twice the bound.
    assert scores[0] == -len(parts[3]) * 2**20
    assert np.all(scores >= scores[0])


def test_the_bits_of_a_prediction_depend_on_its_row_alone():
    rng = np.random.default_rng(0)
    for width in (1, 3, 17, 200):
        rows, theta = rng.normal(size=(501, width)), rng.normal(size=width)
        whole = row_predictions(rows, theta)
        np.testing.assert_allclose(whole, rows @ theta, rtol=1e-9, atol=1e-12)
        for keep in (np.arange(1, 501), np.arange(500), rng.permutation(501)[:77]):
            assert np.array_equal(row_predictions(rows[keep], theta), whole[keep])


def test_a_part_of_one_class_is_no_error(monkeypatch):
    """It would give away that the part has no row of the other class."""
    X, y = table("logistic")
    order = np.argsort(y == "yes", kind="stable")
    parts = [np.sort(part) for part in np.array_split(order, 4)]
    assert len(set(y[parts[0]])) == 1
    monkeypatch.setattr(tuning, "split_rows", lambda *_: parts)
    assert select().model.predict(X).shape == (240,)


# Real data.


@pytest.fixture(scope="module")
def cancer():
    """The breast cancer table, shifted and scaled by round numbers."""
    X, y = load_breast_cancer(return_X_y=True)
    scale = 10.0 ** np.round(np.log10(X.std(axis=0)))
    return (X - np.round(X.mean(axis=0) / scale) * scale) / scale, y


@pytest.mark.filterwarnings("ignore::expost.errors.ClippedRowsWarning")
def test_a_sensible_choice_on_real_data(cancer):
    """With Λ = 1e-4 the noise has a norm of thousands. By chance it would be chosen 20 times."""
    chosen, accuracy = Counter(), []
    for seed in range(80):
        result = select(
            data=cancer,
            candidates=(1e-4, 0.03, 0.1, 1.0),
            epsilon=3.0,
            data_norm=5.0,
            classes=(0, 1),
            seed=seed,
        )
        chosen[result.regularization] += 1
        accuracy.append(result.model.score(*cancer))
    assert chosen[1e-4] <= 4
    assert np.mean(accuracy) > 0.85


def test_a_sensible_choice_for_a_regression():
    data = table("squared", n=4000)
    chosen = Counter(
        select("squared", data=data, candidates=(1e-5, 0.01), epsilon=2.0, seed=seed).index
        for seed in range(40)
    )
    assert chosen[1] >= 36


# The result.


def test_the_result_may_be_published_where_its_bounds_were_given(tmp_path):
    result = select()
    assert isinstance(result, SelectedRegularization)
    assert isinstance(result.release, Release)
    assert result.audience is result.release.audience is Audience.PUBLIC
    assert result.regularization == CANDIDATES[result.index] == result.model.regularization
    assert result.candidates == CANDIDATES

    X, _ = table("logistic")
    again = PrivateLogisticRegression.load(result.model.save(tmp_path / "model.json"))
    assert np.array_equal(again.predict(X), result.model.predict(X))


@pytest.mark.parametrize("loss", KINDS)
def test_bounds_read_from_the_data_need_a_review(loss):
    X, y = table(loss)
    own = "label_range" if loss == "squared" else "classes"
    with pytest.warns(PrivacyLeakWarning, match=f"read from the data.*{own}") as caught:
        result = select_regularization(
            X, y, CANDIDATES, epsilon=1.0, loss=loss, data_norm=DATA_NORM
        )
    assert [w.filename for w in caught] == [__file__]
    assert result.audience is Audience.NEEDS_REVIEW
    assert [entry.split(" ")[0] for entry in result.release.read_from_data] == [own]


def test_a_seed_repeats_warns_and_needs_a_review():
    X, y = table("logistic")
    with pytest.warns(SeededReleaseWarning) as caught:
        first = select_regularization(
            X, y, CANDIDATES, epsilon=1.0, random_state=1, **NOISE, **bounds("logistic")
        )
    assert [w.filename for w in caught] == [__file__]
    assert first.audience is Audience.NEEDS_REVIEW
    assert first.release.seeded
    again, other = select(seed=1), select(seed=2)
    assert np.array_equal(first.model.coef_, again.model.coef_)
    assert first.part_rows == again.part_rows != other.part_rows


def test_no_privacy_needs_a_review():
    assert select(epsilon=math.inf).audience is Audience.NEEDS_REVIEW


def test_a_release_draws_from_the_operating_system(monkeypatch):
    def no_generator(*arguments):
        raise AssertionError("a release must not draw from NumPy")

    data = table("logistic")
    monkeypatch.setattr(np.random, "default_rng", no_generator)
    first, second = select(data=data), select(data=data)
    assert not np.array_equal(first.model.coef_, second.model.coef_)


def test_column_names_are_kept():
    X, y = table("huber-hinge")
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    result = select("huber-hinge", data=(frame, y), huber_width=0.25)
    assert result.release.feature_names == ("a", "b", "c")
    assert result.release.mechanism.loss.width == 0.25
    assert result.model.predict(frame).shape == (240,)


def test_rows_past_the_bound_are_clipped():
    with pytest.warns(ClippedRowsWarning, match="rows are longer than the norm limit 1 "):
        select(data_norm=1.0)


# Refusals.

BAD = [
    ({"candidates": []}, r"candidates=\[\]: must be at least two different numbers"),
    ({"candidates": [0.1]}, r"candidates=\[0\.1\].*fit an estimator with it"),
    ({"candidates": [0.1, 0.1]}, r"two different numbers"),
    ({"candidates": [0.1, math.nan]}, r"regularization=nan"),
    ({"candidates": list(range(1, 13))}, r"X has 240 rows: 12 candidates need at least 260"),
    ({"label_range": (0.0, 3.0)}, r"label_range: is not used by loss='logistic'"),
]


@pytest.mark.filterwarnings("ignore::expost.errors.SeededReleaseWarning")
def test_every_parameter_reaches_its_validator():
    """What each refuses: tests/test_estimators.py and tests/test_validate.py."""
    X, y = table("huber-hinge")
    good = {"X": X, "y": y, "candidates": CANDIDATES, "epsilon": 1.0, "loss": "huber-hinge"}
    good |= NOISE | bounds("huber-hinge")
    names = inspect.signature(select_regularization).parameters.keys() - {"X", "y"}
    every_parameter_reaches(select_regularization, good, names)


@pytest.mark.parametrize(("change", "message"), BAD)
def test_refusals(change, message):
    with pytest.raises(InvalidInput, match=message):
        select(**change)


def test_what_does_not_fit_the_loss_or_the_candidates_is_refused():
    """The tables that an estimator refuses: tests/test_estimators.py."""
    X, y = table("logistic")
    with pytest.raises(InvalidInput, match="X has 79 rows: 3 candidates need at least 80"):
        select(data=(X[:79], y[:79]))
    with pytest.raises(InvalidInput, match="classes: is not used by loss='squared'"):
        select("squared", classes=(0, 1))


def test_a_release_that_is_not_safe_is_refused_before_any_is_made(monkeypatch):
    def no_fit(*arguments, **options):
        raise AssertionError("nothing may be computed")

    monkeypatch.setattr(glm, "minimise", no_fit)
    with pytest.raises(ReleaseRefused):
        select(epsilon=1e15)


def test_parts_too_small_are_refused(monkeypatch):
    rows = np.arange(240)
    monkeypatch.setattr(
        tuning, "split_rows", lambda *_: [rows[:1], rows[1:80], rows[80:90], rows[90:]]
    )
    with pytest.raises(InvalidInput, match="fewer than two rows; call again"):
        select()
