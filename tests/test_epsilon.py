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
from expost import choose_epsilon
from expost.epsilon.recommend import GRID
from expost.epsilon.sweep import Distances
from expost.errors import InvalidInput, SeededReleaseWarning
from expost.estimators import ESTIMATORS
from expost.neighbouring.neighbours import tight_neighbours
from expost.noise import GaussianLaw, NormLaplaceLaw
from expost.report import document_of
from expost.types import Audience
from papers.datasets import load_adult
from settings import OUTPUT

GAUSSIAN = {"noise": "gaussian", "delta": 1e-6}
# One Λ for all ε and a law for each row: what the sweep says is exact.
EXACT = {**OUTPUT, "data_norm": 5.0}


def small(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0, "yes", "no")


def quick(**options):
    plain = {"folds": 0, "models": 4, "random_state": 0}
    return choose_epsilon(*small(), **{**EXACT, **plain, **options})


def default(**options):
    return choose_epsilon(*small(400), **{"random_state": 0, **options})


@cache
def cancer_rows():
    data = load_breast_cancer()
    X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    return X, data.target


@cache
def cancer(noise="laplace"):
    options = GAUSSIAN if noise == "gaussian" else {}
    X, y = cancer_rows()
    settings = {**OUTPUT, **options}
    return choose_epsilon(
        X, y, models=40, random_state=1, data_norm=30.0, classes=(0, 1), **settings
    )


@cache
def adult():
    """The paper's two columns, train split, no intercept: d = 2."""
    table = load_adult().rows("train")
    X = table.numeric(["age", "education-num"])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    norm = float(np.linalg.norm(X, axis=1).max())
    plain = {"fit_intercept": False, "folds": 0, "models": 4, "random_state": 0}
    return choose_epsilon(X, table.labels(), **{**OUTPUT, "data_norm": norm, **plain})


def separation(choice, epsilon):
    """Of the farthest row, with the noise of an actual release."""
    mechanism = dataclasses.replace(choice.sweep.mechanism, epsilon=float(epsilon))
    distance, error = choice.sweep.held
    return float(np.max(distance + error)) / mechanism.resolution


def law_at(choice, t):
    if choice.sweep.mechanism.noise == "gaussian":
        return GaussianLaw(separation=np.array([t]))
    return NormLaplaceLaw(separation=np.array([t]), dimension=choice.sweep.mechanism.dimension)


class TestBreastCancer:
    @pytest.mark.parametrize("noise", ["laplace", "gaussian"])
    def test_the_headline_holds(self, noise):
        choice = cancer(noise)
        assert choice.low < choice.high
        assert choice.recommended is None or 0 < choice.recommended <= choice.ceiling
        # The limit, from the law at the noise of a release at that ε.
        kept = law_at(choice, separation(choice, choice.ceiling))
        passed = law_at(choice, separation(choice, choice.ceiling * (1 + 1e-6)))
        assert expit(kept.quantile(0.95)[0]) <= 0.75 < expit(passed.quantile(0.95)[0])
        assert separation(choice, choice.low) <= choice.sweep.transition.leaves
        assert choice.low == choice.critical_epsilon.min()
        assert choice.critical_epsilon.shape == (569,)

    def test_the_pure_constant(self):
        """β*·distance is the same for every row: leaves of d = 31."""
        choice = cancer()
        (distance, error), mechanism = choice.sweep.held, choice.sweep.mechanism
        assert mechanism.dimension == 31
        beta = choice.critical_epsilon / mechanism.sensitivity
        np.testing.assert_allclose(
            beta * (distance + error), choice.sweep.transition.leaves, rtol=1e-12
        )
        assert choice.sweep.transition.leaves == pytest.approx(13.7, abs=0.2)

    @pytest.mark.parametrize("noise", ["laplace", "gaussian"])
    def test_twenty_five_values_around_the_transition(self, noise):
        choice = cancer(noise)
        assert len(choice.epsilons) == 25
        ends = (choice.low, choice.high, choice.ceiling)
        assert choice.epsilons[0] == pytest.approx(min(ends) / 100)
        assert choice.epsilons[-1] == pytest.approx(max(ends) * 10)
        assert np.all(np.diff(choice.epsilons) > 0)
        # The utility is measured on a grid of its own, and at the ceiling.
        assert {*GRID, choice.ceiling} <= set(choice.utility.epsilons)

    @pytest.mark.parametrize("noise", ["laplace", "gaussian"])
    def test_curves(self, noise):
        choice = cancer(noise)
        assert np.all(np.diff(choice.posterior) >= -1e-12)
        assert choice.posterior[0] >= 0.5
        inside = choice.epsilons <= choice.ceiling
        assert np.all((choice.posterior <= 0.75) == inside)
        for curve in choice.one_sidedness:
            assert np.all((curve >= 0) & (curve <= 1))
            assert np.all(np.diff(curve) >= -1e-12)
        assert choice.utility.curves["accuracy"].best > 0.9
        assert set(choice.utility.curves) == {"accuracy", "auc", "log_loss"}

    @pytest.mark.parametrize("noise", ["laplace", "gaussian"])
    def test_the_estimator_releases_that_very_mechanism(self, noise):
        """Sensitivity, Λ, n, d, noise: nothing but ε was varied; and the profile agrees."""
        choice = cancer(noise)
        X, y = cancer_rows()
        options = {**OUTPUT, **(GAUSSIAN if noise == "gaussian" else {})}
        model = expost.PrivateLogisticRegression(
            epsilon=choice.ceiling, data_norm=30.0, classes=(0, 1), **options
        ).fit(X, y)
        mechanism = model.release_.mechanism
        assert mechanism == dataclasses.replace(choice.sweep.mechanism, epsilon=choice.ceiling)
        assert mechanism.sensitivity == choice.sweep.mechanism.sensitivity
        profile = expost.profile(model, X, y)
        np.testing.assert_allclose(profile.distance, choice.sweep.held[0], rtol=1e-6)
        single = dataclasses.replace(choice.sweep, epsilons=np.array([choice.ceiling]))
        np.testing.assert_allclose(profile.expected, single.expected[0], rtol=1e-6)

    def test_expected_and_ranked_exposures_are_computed_on_demand(self):
        choice = quick()
        assert not {"expected", "ranked", "one_sidedness"} & set(vars(choice.sweep))
        assert choice.expected is choice.expected
        assert choice.expected.shape == choice.ranked.shape == choice.ranked_error.shape == (25, 60)
        assert choice.ranks.tolist() == list(range(1, 61))
        assert choice.ranked_resolution == 2.0**-21
        assert np.all(choice.ranked_error > 0)

    def test_sampled_releases_keep_the_limit(self):
        """20,000 releases at the ceiling: the farthest row passes .75 once in twenty, not more.

        Knows nothing of the law: densities of the noise at the refitted point. Three standard
        errors; the same at 1.3 ε is seen to pass.
        """
        X, y = small()
        choice = quick(max_posterior=0.75)
        prepared = ESTIMATORS["logistic"](**EXACT).prepared(X, y)
        near = tight_neighbours(prepared.problem, prepared.problem.minimiser(1e-12))
        row = int(np.argmax(near.distance))
        for factor, passes in ((1.0, False), (1.3, True)):
            epsilon = choice.ceiling * factor
            law = dataclasses.replace(choice.sweep.mechanism, epsilon=epsilon).law
            b = law.sample(20_000, np.random.default_rng(3))
            loss = law.log_density(b) - law.log_density(b - near.shift[row])
            passed, error = np.mean(expit(loss) > 0.75), math.sqrt(0.05 * 0.95 / 20_000)
            assert (passed > 0.05 + 3 * error) == passes
            assert passed > 0.05 - 3 * error


class TestAdult:
    def test_the_papers_row_decides(self):
        choice = adult()
        assert int(np.argmin(choice.critical_epsilon)) + 1 == 24239
        assert choice.sweep.rows == 32_561

    def test_the_published_onset(self):
        choice = adult()
        mechanism = choice.sweep.mechanism
        farthest = float(np.max(choice.sweep.held[0]))
        beta = mechanism.rows * mechanism.regularization * choice.low / 2
        assert beta * farthest == pytest.approx(3.87354, abs=2e-5)
        # The mean posterior there, DESIGN.md.
        law = law_at(choice, separation(choice, choice.low))
        assert law.expected_posterior(0.5)[0] == pytest.approx(0.835, abs=5e-4)
        assert choice.recommended == choice.ceiling < choice.low

    def test_half_of_the_rows_have_arrived_at_high(self):
        choice = adult()
        rate = dataclasses.replace(choice.sweep.mechanism, epsilon=choice.high).law.rate
        arrived = rate * choice.sweep.held[0] >= choice.sweep.transition.arrives
        assert 0.5 <= arrived.mean() < 0.5 + 2e-3

    def test_many_rows_are_tabulated_to_the_same_digits(self):
        choice = adult()
        some = np.random.default_rng(0).choice(32_561, 200, replace=False)
        mechanism = choice.sweep.mechanism
        for index in (0, 12, 24):
            rate = dataclasses.replace(mechanism, epsilon=float(choice.epsilons[index])).law.rate
            law = NormLaplaceLaw(separation=rate * choice.sweep.held[0][some], dimension=2)
            np.testing.assert_allclose(
                choice.expected[index, some], law.expected_exposure, rtol=1e-11
            )


class TestAgainstRetraining:
    @pytest.mark.parametrize("loss", ["logistic", "huber-hinge", "squared"])
    @pytest.mark.parametrize("noise", ["laplace", "gaussian"])
    def test_low_and_the_posterior_from_refitted_models(self, loss, noise):
        """Every neighbour is minimised again; no Newton step, no certificate."""
        X, y = small(14)
        y = np.where(y == "yes", 1.0, -1.0) if loss != "squared" else X[:, 1] / 4
        options = {**OUTPUT, **(GAUSSIAN if noise == "gaussian" else {})}
        options |= {"regularization": 0.2, "data_norm": 4.0}
        choice = choose_epsilon(X, y, loss=loss, folds=0, models=4, **options)
        prepared = ESTIMATORS[loss](**options).prepared(X, y)
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
            mechanism = dataclasses.replace(prepared.mechanism, epsilon=float(epsilon))
            apart = farthest if target else float(again.distance[7])
            assert apart / mechanism.resolution == pytest.approx(
                choice.sweep.transition.leaves, rel=2e-3
            )
            assert apart / mechanism.resolution <= choice.sweep.transition.leaves * (1 + 1e-9)


class TestLosses:
    def test_ridge_reports_r2(self):
        X, y = load_diabetes(return_X_y=True)
        y = (y - 150) / 200
        options = {**OUTPUT, "data_norm": 0.5, "regularization": 0.01}
        choice = choose_epsilon(
            X, y, loss="squared", label_range=(-1.0, 1.0), random_state=0, **options
        )
        assert set(choice.utility.curves) == {"r2"}
        assert choice.utility.curves["r2"].best > 0.2
        assert "huber by output perturbation" in choice.description

    def test_huber_is_judged_by_its_auc(self):
        X, y = small()
        choice = choose_epsilon(X, y, loss="huber-hinge", huber_width=0.3, random_state=0)
        assert list(choice.utility.curves) == ["auc", "accuracy"]
        assert choice.utility.measure == "auc"

    def test_every_epsilon_has_its_own_regularization(self):
        X, y = small(400)
        choice = default()
        for epsilon in (0.1, 1.0, 3.0):
            model = expost.PrivateLogisticRegression(epsilon=epsilon, classes=("no", "yes"))
            assert choice.plan(epsilon) == model.prepared(X, y).mechanism
        assert choice.plan(0.1).regularization > choice.plan(3.0).regularization
        # The transition is that of the Λ of the recommended ε.
        used = choice.sweep.mechanism.regularization
        assert used == choice.plan(choice.recommended).regularization

    def test_clipping_is_a_notice_not_a_warning(self):
        X, _ = small()
        choice = choose_epsilon(
            X,
            X[:, 0],
            loss="squared",
            label_range=(-0.5, 0.5),
            folds=0,
            **{**OUTPUT, "data_norm": 1.0},
        )
        assert any("label_range" in notice for notice in choice.notices)
        assert any("data_norm" in notice for notice in choice.notices)
        assert not any("clipped" in notice for notice in quick().notices)


class TestLaws:
    def test_doubling_every_row_changes_little(self):
        """n doubles, every distance and Δ halve: ε stays, to 1/n."""
        X, y = small(200)
        single = choose_epsilon(X, y, folds=0, models=4, **EXACT)
        two = choose_epsilon(np.vstack([X, X]), np.concatenate([y, y]), folds=0, **EXACT)
        assert two.low == pytest.approx(single.low, rel=0.02)
        assert two.high == pytest.approx(single.high, rel=0.02)
        assert two.ceiling == pytest.approx(single.ceiling, rel=0.02)
        np.testing.assert_allclose(
            two.critical_epsilon[:200], two.critical_epsilon[200:], rtol=1e-9
        )

    def test_strong_regularization_makes_the_answer_free_of_it(self):
        """Past the loss's curvature distance ∝ 1/Λ, as Δ is."""
        first, two = quick(regularization=1e3), quick(regularization=2e3)
        assert two.low == pytest.approx(first.low, rel=1e-3)
        assert quick(regularization=1e-2).low > 1.05 * first.low

    def test_permuting_rows_permutes_the_critical_epsilons(self):
        X, y = small()
        order = np.random.default_rng(1).permutation(60)
        single = choose_epsilon(X, y, folds=0, models=4, **EXACT)
        two = choose_epsilon(X[order], y[order], folds=0, models=4, **EXACT)
        np.testing.assert_allclose(two.critical_epsilon, single.critical_epsilon[order], rtol=1e-9)
        assert two.low == pytest.approx(single.low, rel=1e-9)

    def test_a_stricter_question_never_raises_epsilon(self):
        ceilings = [quick(max_posterior=b).ceiling for b in (0.51, 0.6, 0.75, 0.9, 0.99)]
        assert ceilings == sorted(ceilings)
        levels = [quick(quantile=q).ceiling for q in (0.5, 0.95, 0.99)]
        assert levels == sorted(levels, reverse=True)
        highs = [quick(rows=share).high for share in (0.1, 0.5, 0.9, 1)]
        assert highs == sorted(highs)
        assert quick(tolerance=0.01).low < quick().low < quick(tolerance=0.25).low
        priors = [quick(max_posterior=p + 0.1, prior=p).ceiling for p in (0.5, 0.8)]
        assert priors[0] < priors[1]
        shares = [default(share=share, folds=3).enough for share in (0.5, 0.95)]
        assert shares[0] <= shares[1]


class TestRandomness:
    def test_random_state_decides_everything(self):
        def run(state, **options):
            return choose_epsilon(
                *small(), random_state=state, folds=3, models=12, epsilons=[1.0, 10.0],
                **EXACT, **options,
            )  # fmt: skip

        first, again = run(5), run(5, workers=2)
        assert first.to_json() == again.to_json()
        np.testing.assert_array_equal(first.ranked, again.ranked)
        other = run(6)
        assert not np.array_equal(first.ranked, other.ranked)
        assert not np.array_equal(first.utility.leading.mean, other.utility.leading.mean)
        assert (first.low, first.high) == (other.low, other.high)
        left, two = run(np.random.default_rng(5)), run(np.random.default_rng(5))
        assert left.to_json() == two.to_json()
        assert run(None).low == first.low
        # The models that are ranked do not depend on whether a utility is measured.
        bare = choose_epsilon(
            *small(), random_state=5, folds=0, models=12, epsilons=[1.0, 10.0], **EXACT
        )
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


def test_every_option_has_a_name_and_is_documented():
    """The defaults: tests/test_requests.py."""
    parameters = inspect.signature(choose_epsilon).parameters
    assert all(
        parameter.kind is inspect.Parameter.KEYWORD_ONLY
        for name, parameter in parameters.items()
        if name not in ("X", "y")
    )
    for name in parameters:
        assert name in choose_epsilon.__doc__ or name in ("X", "y", "ids", "random_state")


# Not of arrays, or not looked at there: tests/test_cli_epsilon.py.
OF_TABLES = {"target", "out", "engine", "memory", "resume", "force", "drop", "missing", "progress"}


def test_every_parameter_reaches_its_validator():
    """What each refuses: tests/test_validate.py, test_estimators.py, test_limit.py."""
    for name in inspect.signature(choose_epsilon).parameters.keys() - {"X", "y", *OF_TABLES}:
        for value in (math.nan, -1, "nonsense", object()):
            # A text may be the path of an encoding.
            with pytest.raises(InvalidInput, match=f"{name}|^nonsense: cannot be read"):
                quick(**{"folds": 2, name: value})


@pytest.mark.parametrize(
    ("options", "word"),
    [
        *[({"share": bad}, "share") for bad in (0, 1, None, True)],
        *[({"measure": bad, "folds": 2}, "measure") for bad in ("r2", 5)],
        *[({"rows": bad}, "rows") for bad in (0, 1.5, math.inf, True, np.array([0.5, 0.6]))],
        *[({"tolerance": bad}, "tolerance") for bad in (0, 0.3, 1e-7, True)],
        *[({"models": bad}, "models") for bad in (1, 2.0)],
        *[({"folds": bad}, "folds") for bad in (1, 2.0, 1000)],
        *[
            ({"epsilons": bad}, "epsilons")
            for bad in ([], [0.0], [math.inf], [1e-60], [[1.0, 2.0]])
        ],
        *[({"ids": bad}, "ids") for bad in (["a"], "a" * 60)],
        ({"huber_width": 0.5}, "huber_width"),
        ({"label_range": (0.0, 1.0)}, "label_range"),
        ({"loss": "huber-hinge", "label_range": (0.0, 3.0)}, "label_range"),
    ],
)
def test_options_that_this_verb_refuses(options, word):
    with pytest.raises(InvalidInput, match=word):
        quick(**options)


class TestWriting:
    def test_json_is_strict_and_complete(self, tmp_path):
        choice = cancer()

        def refuse(name):
            raise AssertionError(name)

        fields = json.loads(choice.to_json(), parse_constant=refuse)
        assert fields["format"] == "expost-epsilon/4"
        assert fields["audience"] == "curator-only"
        assert fields["recommended"] == choice.recommended
        assert fields["low"] == choice.low
        assert fields["high"] == choice.high
        assert fields["verdict"] == choice.verdict
        assert fields["ceiling"] == choice.ceiling
        assert (fields["max_posterior"], fields["prior"], fields["quantile"]) == (0.75, 0.5, 0.95)
        assert fields["required_share"] == 0.95
        assert fields["table"]["critical_epsilon"] == choice.critical_epsilon.tolist()
        assert fields["epsilons"] == choice.epsilons.tolist()
        assert fields["posterior"] == choice.posterior.tolist()
        assert set(fields["one_sidedness"]) == {"farthest", "median"}
        accuracy = choice.utility.curves["accuracy"]
        assert fields["utility"]["accuracy"]["mean"] == accuracy.mean.tolist()
        assert fields["utility"]["measure"] == "log_loss"
        assert fields["utility"]["folds"] == 5
        assert fields["utility"]["releases"] == 20
        assert [curve["name"] for curve in fields["frontier"]] == [
            curve.name for curve in choice.frontier
        ]
        for written, curve in zip(fields["frontier"], choice.frontier, strict=True):
            assert written["epsilons"] == curve.epsilons.tolist()
            assert written["score"] == curve.score.tolist()
            assert written["posterior"] == curve.posterior.tolist()
        assert fields["not_compared"] == list(choice.not_compared)
        assert fields["read_from_data"] == list(choice.read_from_data)
        path = choice.to_json(tmp_path / "choice.json")
        assert path.name == "choice.CURATOR-ONLY.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert json.loads(path.read_text("utf-8")) == fields

    def test_json_where_figures_are_infinite_or_missing(self):
        """Constant rows and A = 0: nothing moves the model, nothing limits ε."""
        X = np.ones((8, 1))
        y = np.array([1, -1] * 4)
        near = choose_epsilon(
            X, y, fit_intercept=False, folds=0, models=4, classes=(-1, 1), **EXACT
        )
        nowhere = np.zeros(8), np.zeros(8)
        sweep = dataclasses.replace(near.sweep, held=nowhere, distances=Distances.of(*nowhere))
        fields = json.loads(dataclasses.replace(near, sweep=sweep).to_json())
        assert fields["low"] == fields["high"] == "infinity"
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
        assert choice.audience is Audience.CURATOR_ONLY

    def test_bounds_at_the_recommended_epsilon(self):
        choice = default()
        posterior, limit, mechanism = (
            choice.posteriors,
            choice.limit,
            choice.plan(choice.recommended),
        )
        assert (posterior.epsilon, choice.mechanism) == (choice.recommended, mechanism)
        assert posterior.row == limit.of_a_row(mechanism)
        assert posterior.all_rows == limit.of_all_rows(mechanism)
        assert posterior.certainty == limit.certainty(mechanism)

    def test_useless_and_none_are_reported_first(self):
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(300, 3)), rng.integers(2, size=300)
        useless = choose_epsilon(X, y, folds=3, random_state=0)
        assert (useless.verdict, useless.recommended) == ("useless", None)
        assert str(useless).splitlines()[0] == document_of(useless).verdict.text
        assert json.loads(useless.to_json())["recommended"] is None
        none = choose_epsilon(*small(100), max_posterior=0.501, folds=3, random_state=0)
        assert (none.verdict, none.recommended) == ("none", None)
        assert str(none).splitlines()[0] == document_of(none).verdict.text
        assert none.rows_needed > 100
        most = choose_epsilon(*small(100), max_posterior=0.57, folds=3, random_state=0)
        assert (most.verdict, most.recommended) == ("most", most.ceiling)
        assert most.share < 0.95
        assert most.rows_needed > 100

    def test_a_posterior_that_no_epsilon_keeps(self):
        """Huber, A near 0: a row at the sensitivity itself, Gaussian noise at δ = 0.9."""
        X, y = np.ones((40, 1)), np.concatenate([[1, 1], -np.ones(38)])
        options = {
            **OUTPUT, "loss": "huber-hinge", "regularization": 100.0, "fit_intercept": False,
            "noise": "gaussian", "folds": 0, "models": 4, "data_norm": 1.0,
        }  # fmt: skip
        none = choose_epsilon(X, y, **{**options, "delta": 0.9})
        assert none.recommended is None
        assert none.ceiling == 0
        assert document_of(none).facts["ceiling"] is None
        json.loads(none.to_json())
        some = choose_epsilon(X, y, **{**options, "delta": 0.1})
        assert some.recommended == some.ceiling > 0

    def test_no_row_value_is_written_or_printed(self):
        """Canaries of twelve digits, in rows and labels; a file for the curator holds none either."""
        rng = np.random.default_rng(20)
        X = rng.integers(10**11, 10**12, size=(80, 3)) / 10**11
        y = rng.integers(10**11, 10**12, size=80) / 10**12
        for loss, labels in (("squared", y), ("logistic", np.where(X[:, 0] > 5.5, 1, 0))):
            choice = choose_epsilon(X, labels, loss=loss, folds=2, random_state=0)
            written = choice.to_json() + str(choice) + repr(choice) + choice._repr_html_()
            digits = re.sub(r"\D", "", written)
            for value in [*X.ravel(), *y, *np.linalg.norm(X, axis=1)]:
                # Eight digits of a canary do not occur by chance in a text of this length.
                assert f"{value:.10f}".replace(".", "").lstrip("0")[:9] not in digits


def test_given_epsilons_are_sorted_and_unique():
    choice = quick(epsilons=[3, 1, 1.0, 0.5])
    assert choice.epsilons.tolist() == [0.5, 1.0, 3.0]
    assert choice.expected.shape == (3, 60)
    assert quick(epsilons=np.array([2.0])).low == choice.low


def test_extreme_epsilons_are_tabulated():
    choice = quick(epsilons=[1e-50, 1e-39, 1.0, 1e39, 1e50])
    assert np.all(np.isfinite(choice.ranked))
    ratio = choice.expected / choice.epsilons[:, None]
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
    assert choice.recommended is None or choice.recommended <= choice.ceiling


@pytest.mark.parametrize("level", [1 - 1e-9, 1 - 1e-10, 1 - 1e-12, 1 - 1e-15])
def test_a_quantile_next_to_one_is_kept_or_refused(level):
    """Under pure ε there is an ε that keeps it: the worst case is bounded."""
    try:
        choice = quick(quantile=level)
    except InvalidInput:
        assert level > 1 - 1e-9
        return
    assert choice.ceiling > 0
    assert expit(separation(choice, choice.ceiling)) == pytest.approx(0.75, abs=0.01)


def test_a_bound_given_leaves_no_notice():
    given = quick(data_norm=5.0, classes=("no", "yes"))
    assert (given.notices, given.read_from_data) == ((), ())
    assert any("classes" in name for name in quick().read_from_data)


@pytest.mark.parametrize("options", [{}, GAUSSIAN, {"mechanism": "objective", **GAUSSIAN}])
def test_the_noise_is_calibrated_to_the_rows_of_a_person(options):
    """Every ε has the noise of a model for persons with up to three rows."""
    first, three = quick(**options), quick(**options, rows_per_person=3)
    estimator = ESTIMATORS["logistic"](epsilon=2.0, rows_per_person=3, **{**EXACT, **options})
    released = estimator.prepared(*small()).mechanism
    assert three.plan(2.0) == released
    assert three.sweep.mechanism.rows_per_person == 3
    assert "for persons with up to 3 rows" in three.description
    assert "persons" not in first.description
    at_two = np.array([2.0])
    assert three.posterior_at(at_two) < first.posterior_at(at_two)
    if not options:
        # β = ε/(kΔ): the same noise, and the same losses, at three times the ε.
        for name in ("low", "high", "ceiling", "critical_epsilon", "epsilons"):
            np.testing.assert_allclose(
                getattr(three, name), 3 * np.asarray(getattr(first, name)), rtol=1e-9
            )
        np.testing.assert_allclose(three.posterior, first.posterior, rtol=1e-9)
