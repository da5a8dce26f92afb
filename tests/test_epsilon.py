"""choose_epsilon from end to end: real rows, every parameter, what is written and what is not."""

import dataclasses
import inspect
import json
import math
import re
import stat
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from scipy.special import expit
from sklearn.datasets import load_breast_cancer, load_diabetes

import expost
from expost import EpsilonChoice, choose_epsilon
from expost.datasets import load_adult
from expost.epsilon.sweep import BeliefBound, Distances
from expost.errors import InvalidInput, SeededReleaseWarning
from expost.estimators import ESTIMATORS
from expost.noise import GaussianLaw, NormLaplaceLaw
from expost.types import Audience

GAUSSIAN = {"noise": "gaussian", "delta": 1e-6}


def small(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0, "yes", "no")


def quick(**options):
    return choose_epsilon(*small(), **{"folds": 0, "models": 4, "random_state": 0, **options})


@cache
def cancer_rows():
    data = load_breast_cancer()
    X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    return X, data.target


@cache
def cancer(noise="laplace"):
    options = GAUSSIAN if noise == "gaussian" else {}
    X, y = cancer_rows()
    return choose_epsilon(
        X, y, models=40, random_state=1, data_norm=30.0, classes=(0, 1), **options
    )


@cache
def adult():
    """The paper's two columns, train split, no intercept: d = 2."""
    table = load_adult().rows("train")
    X = table.numeric(["age", "education-num"])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return choose_epsilon(X, table.labels(), fit_intercept=False, folds=0, models=4, random_state=0)


def separation(choice, epsilon):
    """Of the farthest row, with the noise of an actual release."""
    how = dataclasses.replace(choice.sweep.mechanism, epsilon=float(epsilon))
    near = choice.sweep.neighbours
    return float(np.max(near.distance + near.error_bound)) / how.resolution


def law_at(choice, t):
    if choice.sweep.mechanism.noise == "gaussian":
        return GaussianLaw(separation=np.array([t]))
    return NormLaplaceLaw(separation=np.array([t]), dimension=choice.sweep.mechanism.dimension)


class TestBreastCancer:
    @pytest.mark.parametrize("noise", ["laplace", "gaussian"])
    def test_the_headline_keeps_what_it_says(self, noise):
        choice = cancer(noise)
        assert choice.low < choice.high
        assert 0 < choice.recommended <= min(choice.high, choice.epsilon_for_belief)
        # The belief bound, from the law at the noise of a release at that ε.
        kept = law_at(choice, separation(choice, choice.epsilon_for_belief))
        passed = law_at(choice, separation(choice, choice.epsilon_for_belief * (1 + 1e-6)))
        assert kept.expected_belief(0.5)[0] <= 0.75 < passed.expected_belief(0.5)[0]
        assert separation(choice, choice.low) <= choice.sweep.transition.leaves
        assert choice.low == choice.critical_epsilon.min()
        assert choice.critical_epsilon.shape == (569,)

    def test_the_pure_constant(self):
        """β*·distance is the same for every row: leaves of d = 31."""
        choice = cancer()
        near, how = choice.sweep.neighbours, choice.sweep.mechanism
        assert how.dimension == 31
        beta = choice.critical_epsilon / how.sensitivity
        np.testing.assert_allclose(
            beta * (near.distance + near.error_bound), choice.sweep.transition.leaves, rtol=1e-12
        )
        assert choice.sweep.transition.leaves == pytest.approx(13.7, abs=0.2)

    @pytest.mark.parametrize("noise", ["laplace", "gaussian"])
    def test_twenty_five_values_around_the_transition(self, noise):
        choice = cancer(noise)
        assert len(choice.epsilons) == 25
        ends = (choice.low, choice.high, choice.epsilon_for_belief)
        assert choice.epsilons[0] == pytest.approx(min(ends) / 100)
        assert choice.epsilons[-1] == pytest.approx(max(ends) * 10)
        assert np.all(np.diff(choice.epsilons) > 0)
        # The utility is also measured at the ends themselves.
        assert set(choice.utility.epsilons) == {*choice.epsilons, *ends}

    @pytest.mark.parametrize("noise", ["laplace", "gaussian"])
    def test_curves(self, noise):
        choice = cancer(noise)
        assert np.all(np.diff(choice.belief) >= -1e-12)
        assert choice.belief[0] >= 0.5
        inside = choice.epsilons <= choice.epsilon_for_belief
        assert np.all((choice.belief <= 0.75) == inside)
        for curve in choice.one_sidedness:
            assert np.all((curve >= 0) & (curve <= 1))
            assert np.all(np.diff(curve) >= -1e-12)
        assert choice.utility.accuracy.noiseless > 0.9
        assert set(choice.utility.curves) == {"accuracy", "auc", "log_loss"}

    @pytest.mark.parametrize("noise", ["laplace", "gaussian"])
    def test_the_estimator_releases_that_very_mechanism(self, noise):
        """Sensitivity, Λ, n, d, noise: nothing but ε was varied; and the profile agrees."""
        choice = cancer(noise)
        X, y = cancer_rows()
        options = GAUSSIAN if noise == "gaussian" else {}
        model = expost.PrivateLogisticRegression(
            epsilon=choice.recommended, data_norm=30.0, classes=(0, 1), **options
        ).fit(X, y)
        how = model.release_.mechanism
        assert how == dataclasses.replace(choice.sweep.mechanism, epsilon=choice.recommended)
        assert how.sensitivity == choice.sweep.mechanism.sensitivity
        found = expost.profile(model, X, y)
        np.testing.assert_allclose(found.distance, choice.sweep.neighbours.distance, rtol=1e-6)
        one = dataclasses.replace(choice.sweep, epsilons=np.array([choice.recommended]))
        np.testing.assert_allclose(found.expected, one.typical[0], rtol=1e-6)

    def test_typical_and_ranked_wait_until_they_are_asked_for(self):
        choice = quick()
        assert not {"typical", "ranked", "one_sidedness"} & set(vars(choice.sweep))
        assert choice.typical is choice.typical
        assert choice.typical.shape == choice.ranked.shape == choice.ranked_error.shape == (25, 60)
        assert choice.ranks.tolist() == list(range(1, 61))
        assert choice.ranked_resolution == 2.0**-21
        assert np.all(choice.ranked_error > 0)

    def test_sampled_releases_keep_the_belief_bound(self):
        """2,000 releases at ε for the belief: the farthest row's mean belief is .75, not more.

        Knows nothing of the law: densities of the noise at the refitted point. Three standard
        errors; the same at 1.3 ε is seen to pass.
        """
        choice = quick(max_belief=0.75)
        near = choice.sweep.neighbours
        row = int(np.argmax(near.distance))
        for factor, passes in ((1.0, False), (1.3, True)):
            epsilon = choice.epsilon_for_belief * factor
            law = dataclasses.replace(choice.sweep.mechanism, epsilon=epsilon).law
            b = law.sample(20_000, np.random.default_rng(3))
            loss = law.log_density(b) - law.log_density(b - near.shift[row])
            belief = expit(loss)
            error = belief.std() / math.sqrt(len(belief))
            assert (belief.mean() > 0.75 + 3 * error) == passes
            assert belief.mean() > 0.75 - 3 * error


class TestAdult:
    def test_the_papers_row_decides(self):
        choice = adult()
        assert int(np.argmin(choice.critical_epsilon)) + 1 == 24239
        assert choice.sweep.rows == 32_561

    def test_the_published_onset(self):
        choice = adult()
        near, how = choice.sweep.neighbours, choice.sweep.mechanism
        farthest = float(np.max(near.distance))
        beta = how.rows * how.regularization * choice.low / 2
        assert beta * farthest == pytest.approx(3.87354, abs=2e-5)
        # The belief there, DESIGN.md.
        assert choice.sweep.belief(choice.bound, np.array([choice.low]))[0] == pytest.approx(
            0.835, abs=5e-4
        )
        assert choice.recommended == choice.epsilon_for_belief < choice.low
        assert "The transition lies above that" in str(choice)

    def test_half_of_the_rows_have_arrived_at_high(self):
        choice = adult()
        rate = dataclasses.replace(choice.sweep.mechanism, epsilon=choice.high).law.rate
        arrived = rate * choice.sweep.neighbours.distance >= choice.sweep.transition.arrives
        assert 0.5 <= arrived.mean() < 0.5 + 2e-3

    def test_many_rows_are_tabulated_to_the_same_digits(self):
        choice = adult()
        some = np.random.default_rng(0).choice(32_561, 200, replace=False)
        how = choice.sweep.mechanism
        for place in (0, 12, 24):
            rate = dataclasses.replace(how, epsilon=float(choice.epsilons[place])).law.rate
            law = NormLaplaceLaw(
                separation=rate * choice.sweep.neighbours.distance[some], dimension=2
            )
            np.testing.assert_allclose(
                choice.typical[place, some], law.expected_exposure, rtol=1e-11
            )


class TestAgainstRetraining:
    @pytest.mark.parametrize("loss", ["logistic", "huber-hinge", "squared"])
    @pytest.mark.parametrize("noise", ["laplace", "gaussian"])
    def test_low_and_the_belief_from_refitted_models(self, loss, noise):
        """Every neighbour is minimised anew; no Newton step, no certificate."""
        X, y = small(14)
        y = np.where(y == "yes", 1.0, -1.0) if loss != "squared" else X[:, 1] / 4
        options = GAUSSIAN if noise == "gaussian" else {}
        choice = choose_epsilon(
            X, y, loss=loss, regularization=0.2, folds=0, models=4, data_norm=4.0, **options
        )
        prepared = ESTIMATORS[loss](regularization=0.2, data_norm=4.0, **options).prepared(X, y)
        again = expost.neighbours(
            prepared.problem.held.X,
            prepared.problem.held.y,
            loss=prepared.problem.loss,
            regularization=0.2,
            method="retrain",
        )
        farthest = float(np.max(again.distance))
        for epsilon, target in (
            (choice.low, choice.sweep.transition.leaves),
            (choice.critical_epsilon[7], None),
        ):
            how = dataclasses.replace(prepared.mechanism, epsilon=float(epsilon))
            apart = farthest if target else float(again.distance[7])
            assert apart / how.resolution == pytest.approx(choice.sweep.transition.leaves, rel=2e-3)
            assert apart / how.resolution <= choice.sweep.transition.leaves * (1 + 1e-9)


class TestLosses:
    def test_ridge_speaks_of_r2(self):
        X, y = load_diabetes(return_X_y=True)
        y = (y - 150) / 200
        choice = choose_epsilon(
            X, y, loss="squared", label_range=(-1.0, 1.0), data_norm=0.5, regularization=0.01,
            models=20, random_state=0,
        )  # fmt: skip
        assert set(choice.utility.curves) == {"r2"}
        assert choice.utility.r2.noiseless > 0.2
        assert "R²" in str(choice)
        assert "squared by output perturbation" in choice.description
        model = expost.PrivateRidge(
            epsilon=1.0, label_range=(-1.0, 1.0), data_norm=0.5, regularization=0.01
        ).fit(X, y)
        assert model.release_.mechanism.sensitivity == choice.sweep.mechanism.sensitivity

    def test_huber_has_no_log_loss(self):
        X, y = small()
        choice = choose_epsilon(
            X, y, loss="huber-hinge", huber_width=0.3, models=20, random_state=0
        )
        assert set(choice.utility.curves) == {"accuracy", "auc"}
        assert choice.sweep.mechanism.loss.width == 0.3

    def test_automatic_regularization_is_that_of_epsilon_one(self):
        choice = quick(regularization="auto")
        model = expost.PrivateLogisticRegression(
            epsilon=1.0, regularization="auto", data_norm=5.0, classes=("no", "yes")
        ).fit(*small())
        assert choice.sweep.mechanism.regularization == model.release_.mechanism.regularization

    def test_clipping_is_a_notice_not_a_warning(self):
        X, _ = small()
        choice = choose_epsilon(
            X, X[:, 0], loss="squared", label_range=(-0.5, 0.5), data_norm=1.0, folds=0, models=4
        )
        assert any("label_range" in notice for notice in choice.notices)
        assert any("data_norm" in notice for notice in choice.notices)
        assert not any("clipped" in notice for notice in quick().notices)


class TestLaws:
    def test_doubling_every_row_changes_little(self):
        """n doubles, every distance and Δ halve: ε stays, to 1/n."""
        X, y = small(200)
        one = choose_epsilon(X, y, folds=0, models=4)
        two = choose_epsilon(np.vstack([X, X]), np.concatenate([y, y]), folds=0, models=4)
        assert two.low == pytest.approx(one.low, rel=0.02)
        assert two.high == pytest.approx(one.high, rel=0.02)
        assert two.epsilon_for_belief == pytest.approx(one.epsilon_for_belief, rel=0.02)
        np.testing.assert_allclose(
            two.critical_epsilon[:200], two.critical_epsilon[200:], rtol=1e-9
        )

    def test_strong_regularization_makes_the_answer_free_of_it(self):
        """Past the loss's curvature distance ∝ 1/Λ, as Δ is."""
        one, two = quick(regularization=1e3), quick(regularization=2e3)
        assert two.low == pytest.approx(one.low, rel=1e-3)
        assert quick(regularization=1e-2).low > 1.05 * one.low

    def test_permuting_rows_permutes_the_critical_epsilons(self):
        X, y = small()
        order = np.random.default_rng(1).permutation(60)
        one = choose_epsilon(X, y, folds=0, models=4)
        two = choose_epsilon(X[order], y[order], folds=0, models=4)
        np.testing.assert_allclose(two.critical_epsilon, one.critical_epsilon[order], rtol=1e-9)
        assert two.low == pytest.approx(one.low, rel=1e-9)

    def test_a_stricter_question_never_raises_epsilon(self):
        ask = quick().sweep.epsilon_for_belief
        beliefs = [ask(BeliefBound(largest=b)) for b in (0.51, 0.6, 0.75, 0.9, 0.99)]
        assert beliefs == sorted(beliefs)
        assert quick(max_belief=0.6).epsilon_for_belief == beliefs[1]
        levels = [ask(BeliefBound(largest=0.75, quantile=q)) for q in (0.5, 0.95)]
        assert levels == sorted(levels, reverse=True)
        highs = [quick(rows=share).high for share in (0.1, 0.5, 0.9, 1)]
        assert highs == sorted(highs)
        assert quick(tolerance=0.01).low < quick().low < quick(tolerance=0.25).low
        priors = [ask(BeliefBound(largest=p + 0.1, prior=p)) for p in (0.5, 0.8)]
        assert priors[0] < priors[1]


class TestRandomness:
    def test_random_state_decides_everything(self):
        def run(state, **options):
            return choose_epsilon(
                *small(), random_state=state, folds=3, models=12, epsilons=[1.0, 10.0], **options
            )

        first, again = run(5), run(5, workers=2)
        assert first.to_json() == again.to_json()
        np.testing.assert_array_equal(first.ranked, again.ranked)
        other = run(6)
        assert not np.array_equal(first.ranked, other.ranked)
        assert not np.array_equal(first.utility.auc.mean, other.utility.auc.mean)
        assert (first.low, first.high) == (other.low, other.high)
        one, two = run(np.random.default_rng(5)), run(np.random.default_rng(5))
        assert one.to_json() == two.to_json()
        assert run(None).low == first.low
        # The models that are ranked do not depend on whether a utility is measured.
        bare = choose_epsilon(*small(), random_state=5, folds=0, models=12, epsilons=[1.0, 10.0])
        np.testing.assert_array_equal(bare.ranked, first.ranked)

    def test_the_global_generator_is_left_alone(self):
        with warnings.catch_warnings():
            before = np.random.get_state()  # noqa: NPY002 (what must not change)
            choice = quick(folds=2)
            _ = choice.ranked
            after = np.random.get_state()  # noqa: NPY002
        np.testing.assert_array_equal(before[1], after[1])
        assert before[2:] == after[2:]

    def test_nothing_is_released(self):
        """No draw from the operating system, and no warning that a release was seeded."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", SeededReleaseWarning)
            quick(random_state=3)


DEFAULTS = {
    "mechanism": "output",
    "noise": "laplace",
    "delta": None,
    "loss": "logistic",
    "regularization": 1.0,
    "epsilons": None,
    "models": 200,
    "tolerance": 0.1,
    "rows": 0.5,
    "max_belief": 0.75,
    "quantile": None,
    "utility": None,
    "random_state": None,
}


def test_the_defaults_are_the_documented_ones():
    parameters = inspect.signature(choose_epsilon).parameters
    assert {name: parameters[name].default for name in DEFAULTS} == DEFAULTS
    assert all(
        parameter.kind is inspect.Parameter.KEYWORD_ONLY
        for name, parameter in parameters.items()
        if name not in ("X", "y")
    )
    for name in parameters:
        assert name in choose_epsilon.__doc__ or name in ("X", "y", "ids", "random_state")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        *[
            ({"max_belief": bad}, "max_belief")
            for bad in (0.5, 0.4, 0, 1, 1.2, math.nan, "a", None)
        ],
        ({"max_belief": 0.5 + 1e-13}, "max_belief"),
        ({"max_belief": 0.75, "prior": 0.8}, "max_belief"),
        *[({"prior": bad}, "prior") for bad in (0, 1, -0.1, math.nan, "a", True, None)],
        *[({"quantile": bad}, "quantile") for bad in (0.49, 0, 1, 1.5, math.nan, "a", True)],
        *[({"rows": bad}, "rows") for bad in (0, -1, 1.5, math.nan, math.inf, "a", None, True)],
        ({"rows": np.array([0.5, 0.6])}, "rows"),
        *[({"tolerance": bad}, "tolerance") for bad in (0, 0.3, 1e-7, math.nan, "a", True, None)],
        *[({"models": bad}, "models") for bad in (1, 0, 2.0, "a", True, None)],
        *[({"folds": bad}, "folds") for bad in (1, -1, 2.0, "a", True, None, 1000)],
        *[
            ({"utility": bad, "folds": 2}, "utility")
            for bad in (
                True,
                np.True_,
                math.nan,
                1.1,
                -math.inf,
                "a",
                1j,
                np.complex128(0.5),
                [0.5],
            )
        ],
        ({"utility": 0.9, "folds": 0}, "folds"),
        *[
            ({"epsilons": bad}, "epsilons")
            for bad in (
                [],
                [0.0],
                [-1.0],
                [math.nan],
                [math.inf],
                ["a"],
                5.0,
                [[1.0, 2.0]],
                [1e-60],
            )
        ],
        *[({"workers": bad}, "workers") for bad in (0, -1, 1.5, "a", True)],
        *[({"random_state": bad}, "random_state") for bad in (-1, 1.5, "a", True)],
        *[({"ids": bad}, "ids") for bad in (5, ["a"], "a" * 60)],
        *[({"noise": bad}, "noise") for bad in ("cauchy", None, 5)],
        ({"noise": "gaussian"}, "delta"),
        ({"delta": 1e-5}, "delta"),
        *[
            ({"noise": "gaussian", "delta": bad}, "delta")
            for bad in (0.0, 1.0, math.nan, "a", True)
        ],
        *[({"loss": bad}, "loss") for bad in ("absolute", None, 5)],
        *[({"mechanism": bad}, "mechanism") for bad in ("input", None, 5)],
        *[
            ({"regularization": bad}, "regularization")
            for bad in (0, -1.0, math.nan, math.inf, "much", None, True)
        ],
        *[({"data_norm": bad}, "data_norm") for bad in (0, -1, math.nan, "a")],
        *[({"intercept_scaling": bad}, "intercept_scaling") for bad in (0, 1, math.nan)],
        ({"fit_intercept": "yes"}, "fit_intercept"),
        ({"classes": ("a", "b")}, "classes"),
        ({"huber_width": 0.5}, "huber_width"),
        ({"label_range": (0.0, 1.0)}, "label_range"),
        ({"loss": "huber-hinge", "huber_width": 3.0}, "huber_width"),
        ({"loss": "huber-hinge", "label_range": (0.0, 3.0)}, "label_range"),
    ],
)
def test_every_parameter_is_checked(options, word):
    with pytest.raises(InvalidInput, match=word) as caught:
        quick(**options)
    text = str(caught.value)
    assert text.endswith((".", ")"))
    assert "\n" not in text


def test_rows_and_labels_are_checked_without_being_shown():
    X, y = small()
    bad = X.copy()
    bad[3, 1] = math.nan
    for rows, labels in (
        (bad, y),
        (X, y[:-1]),
        (X[:, 0], y),
        (X, np.full(60, "one")),
        (X[:1], y[:1]),
        (X.astype(str), y),
    ):
        with pytest.raises(InvalidInput) as caught:
            choose_epsilon(rows, labels, folds=0)
        assert not re.search(r"\d\.\d{4}", str(caught.value))


class TestWriting:
    def test_json_is_strict_and_complete(self, tmp_path):
        choice = cancer()

        def refuse(name):
            raise AssertionError(name)

        fields = json.loads(choice.to_json(), parse_constant=refuse)
        assert fields["format"] == "expost-epsilon/2"
        assert fields["audience"] == "fail"
        assert fields["recommended"] == choice.recommended
        assert fields["low"] == choice.low
        assert fields["high"] == choice.high
        assert fields["epsilon_for_belief"] == choice.epsilon_for_belief
        assert fields["reasons"] == list(choice.reasons)
        assert fields["table"]["critical_epsilon"] == choice.critical_epsilon.tolist()
        assert fields["epsilons"] == choice.epsilons.tolist()
        assert fields["belief"] == choice.belief.tolist()
        assert set(fields["one_sidedness"]) == {"farthest", "median"}
        assert fields["utility"]["accuracy"]["mean"] == choice.utility.accuracy.mean.tolist()
        assert fields["utility"]["folds"] == 5
        assert fields["utility"]["releases"] == 40
        assert any("not private" in notice for notice in fields["notices"])
        path = choice.to_json(tmp_path / "choice.json")
        assert path.name == "choice.CURATOR-ONLY.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert json.loads(path.read_text("utf-8")) == fields

    def test_json_where_figures_are_infinite_or_missing(self):
        """Constant rows and A = 0: nothing moves the model, nothing limits ε."""
        X = np.ones((8, 1))
        y = np.array([1, -1] * 4)
        near = choose_epsilon(X, y, fit_intercept=False, folds=0, models=4, classes=(-1, 1))
        nowhere = dataclasses.replace(
            near.sweep.neighbours, distance=np.zeros(8), error_bound=np.zeros(8)
        )
        sweep = dataclasses.replace(
            near.sweep, neighbours=nowhere, distances=Distances.of(np.zeros(8), np.zeros(8))
        )
        bare = dataclasses.replace(near, sweep=sweep, epsilon_for_belief=math.inf)
        fields = json.loads(bare.to_json())
        assert fields["low"] == fields["high"] == fields["epsilon_for_belief"] == "infinity"
        assert fields["table"]["critical_epsilon"] == ["infinity"] * 8
        assert fields["utility"] is None

    def test_parquet_and_frames(self, tmp_path):
        choice = quick(ids=[f"person {i}" for i in range(60)])
        path = choice.to_parquet(tmp_path / "rows.parquet")
        assert path.name == "rows.CURATOR-ONLY.parquet"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        table = pyarrow.parquet.read_table(path)
        assert table.column_names[:3] == ["row", "id", "critical_epsilon"]
        np.testing.assert_array_equal(table["critical_epsilon"].to_numpy(), choice.critical_epsilon)
        assert table["id"][59].as_py() == "person 59"
        assert isinstance(choice.to_frame(), pd.DataFrame)
        assert choice.audience is Audience.FAIL

    def test_text_for_a_person(self):
        choice = cancer()
        text = str(choice)
        assert f"{choice.sweep.rows} rows" in text
        assert "is recommended" in text
        assert "fail: For the curator only" in text
        assert "Looking at the data to choose epsilon is not private" in text
        for reason in choice.reasons:
            assert reason in text
        assert repr(choice).startswith("EpsilonChoice(recommended=")
        assert isinstance(choice, EpsilonChoice)
        assert len(repr(choice)) < 100

    def test_what_is_printed_is_never_rounded_up(self):
        choice = cancer()
        shown = float(re.search(r"epsilon +(\S+) is recommended", str(choice)).group(1))
        assert shown <= choice.recommended < 1.02 * shown
        low, high = re.search(r"transition +from (\S+) .* to (\S+) ", str(choice)).groups()
        assert float(low) <= choice.low
        assert float(high) == pytest.approx(choice.high, rel=0.01)
        limit = float(re.search(r"belief +up to (\S+) no row", str(choice)).group(1))
        assert limit <= choice.epsilon_for_belief

    def test_html_is_escaped(self):
        choice = dataclasses.replace(quick(), description="<script>alert('&')</script>")
        page = choice._repr_html_()
        assert "<script>" not in page
        assert "&lt;script&gt;alert(&#39;&amp;&#39;)" in page
        assert "not private" in page
        assert page.startswith('<div class="expost fragment">')

    def test_none_is_said_plainly(self):
        choice = choose_epsilon(*small(), utility=0.999, folds=2, models=8, random_state=0)
        assert choice.recommended is None
        assert "No epsilon keeps every bound" in str(choice)
        assert "recommended=none" in repr(choice)
        assert json.loads(choice.to_json())["recommended"] is None
        assert "short of the 0.999 asked for" in str(choice)

    def test_a_belief_that_no_epsilon_keeps(self):
        """Huber, A near 0: a row at the sensitivity itself, Gaussian noise at δ = 0.9."""
        X, y = np.ones((40, 1)), np.concatenate([[1, 1], -np.ones(38)])
        options = {
            "loss": "huber-hinge", "regularization": 100.0, "fit_intercept": False,
            "noise": "gaussian", "folds": 0, "models": 4,
        }  # fmt: skip
        none = choose_epsilon(X, y, delta=0.9, **options)
        assert none.recommended is None
        assert none.epsilon_for_belief == 0
        assert "at no epsilon" in str(none)
        assert "more" in none.reasons[0], "by how much"
        json.loads(none.to_json())
        some = choose_epsilon(X, y, delta=0.5, **options)
        assert some.low == 0
        assert some.recommended == some.epsilon_for_belief > 0
        assert "At no ε is every row on its first plateau" in str(some)

    def test_no_row_value_is_written_or_said(self):
        """Canaries of twelve digits, in rows and labels; a file for the curator holds none either."""
        rng = np.random.default_rng(20)
        X = rng.integers(10**11, 10**12, size=(80, 3)) / 10**11
        y = rng.integers(10**11, 10**12, size=80) / 10**12
        for loss, labels in (("squared", y), ("logistic", np.where(X[:, 0] > 5.5, 1, 0))):
            choice = choose_epsilon(X, labels, loss=loss, folds=2, models=8, random_state=0)
            said = choice.to_json() + str(choice) + repr(choice) + choice._repr_html_()
            digits = re.sub(r"\D", "", said)
            for value in [*X.ravel(), *y, *np.linalg.norm(X, axis=1)]:
                # Eight digits of a canary do not occur by chance in a text of this length.
                assert f"{value:.10f}".replace(".", "").lstrip("0")[:9] not in digits


def test_given_epsilons_are_sorted_and_unique():
    choice = quick(epsilons=[3, 1, 1.0, 0.5])
    assert choice.epsilons.tolist() == [0.5, 1.0, 3.0]
    assert choice.typical.shape == (3, 60)
    assert quick(epsilons=np.array([2.0])).low == choice.low


def test_extreme_epsilons_are_tabulated():
    choice = quick(epsilons=[1e-50, 1e-39, 1.0, 1e39, 1e50])
    assert np.all(np.isfinite(choice.ranked))
    ratio = choice.typical / choice.epsilons[:, None]
    np.testing.assert_allclose(ratio[0], ratio[1], rtol=1e-9)
    np.testing.assert_allclose(choice.ranked[0] / 1e-50, choice.ranked[1] / 1e-39, rtol=1e-6)
    json.loads(choice.to_json())


@pytest.mark.parametrize("folds", [0, 2])
@pytest.mark.parametrize("options", [{"data_norm": 1e10}, {"data_norm": 1e6, **GAUSSIAN}])
def test_a_bound_far_too_large_is_still_answered(folds, options):
    """Rows of length 1 under a bound of 1e6: all distances are far below Δ, and ε is huge."""
    choice = quick(fit_intercept=False, folds=folds, **options)
    assert str(choice)
    json.loads(choice.to_json())
    assert choice.recommended is None or choice.recommended <= choice.epsilon_for_belief


@pytest.mark.parametrize("level", [1 - 1e-9, 1 - 1e-10, 1 - 1e-12, 1 - 1e-15])
def test_a_quantile_next_to_one_is_kept_or_refused(level):
    """Under pure ε there is an ε that keeps it: the worst case is bounded."""
    try:
        choice = quick(quantile=level)
    except InvalidInput:
        assert level > 1 - 1e-9
        return
    assert choice.epsilon_for_belief > 0
    assert expit(separation(choice, choice.epsilon_for_belief)) == pytest.approx(0.75, abs=0.01)


def test_frames_are_taken_as_they_come():
    X, y = small()
    frame = pd.DataFrame(X, columns=["a", "b"])
    assert choose_epsilon(frame, pd.Series(y), folds=0, models=4).low == quick().low


def test_a_bound_given_leaves_no_notice():
    given = quick(data_norm=5.0, classes=("no", "yes"))
    assert len(given.notices) == 1
    read = quick()
    assert any("data_norm" in notice and "classes" in notice for notice in read.notices)


@pytest.mark.parametrize(
    "options", [{}, GAUSSIAN, {"mechanism": "objective", "models": 20, "epsilons": [0.5, 2.0]}]
)
def test_the_noise_is_calibrated_to_the_rows_of_a_person(options):
    """Every ε has the noise of a model for persons with up to three rows."""
    one, three = quick(**options), quick(**options, rows_per_person=3)
    sampled, at_two = "mechanism" in options, np.array([2.0])
    how = three.sweep.mechanism.mechanism if sampled else three.sweep.mechanism
    model = {name: options[name] for name in ("mechanism", "noise", "delta") if name in options}
    estimator = ESTIMATORS["logistic"](epsilon=2.0, rows_per_person=3, regularization=1.0, **model)
    released = estimator.prepared(*small()).mechanism
    assert released.rows_per_person == how.rows_per_person == 3
    assert how.with_constants(epsilon=2.0).resolution == released.resolution
    assert "for persons with up to 3 rows" in three.description
    assert "persons" not in one.description
    assert three.sweep.belief(three.bound, at_two) < one.sweep.belief(one.bound, at_two)
    if not options:
        # β = ε/(kΔ): the same noise, and the same losses, at three times the ε.
        for name in ("low", "high", "epsilon_for_belief", "critical_epsilon", "epsilons"):
            np.testing.assert_allclose(
                getattr(three, name), 3 * np.asarray(getattr(one, name)), rtol=1e-9
            )
        np.testing.assert_allclose(three.belief, one.belief, rtol=1e-9)


def test_rows_per_person_are_checked():
    with pytest.raises(InvalidInput, match="rows_per_person=0"):
        quick(rows_per_person=0)
