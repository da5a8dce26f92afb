"""The margin of the logistic loss as users meet it: estimators, model.json, the command line."""

import json
import math
import warnings

import numpy as np
import pytest
from scipy.special import expit

import expost
from expost import PrivateLinearSVC, PrivateLogisticRegression
from expost.epsilon.choose import seeds_of
from expost.epsilon.sweep import child
from expost.epsilon.utility import Trials
from expost.errors import ClippedRowsWarning, InvalidInput, SeededReleaseWarning
from expost.glm import Objective, minimise
from expost.losses import Logistic
from expost.profiles.fit import FitScores
from expost.release import Release
from expost.report import parse_json
from expost.rows import RowBlock
from expost.types import Audience
from naive import gaussian_scale
from program import page_in, settings_in, text
from test_defaults import CLASSES, clipped, rows
from test_sealed import resealed


@pytest.fixture(autouse=True)
def _expected_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClippedRowsWarning)
        warnings.simplefilter("ignore", SeededReleaseWarning)
        yield


RULE = "by rule, from public numbers alone"


def fitted(X, y, **parameters):
    classes = tuple(sorted(set(y)))
    return PrivateLogisticRegression(classes=classes, random_state=3, **parameters).fit(X, y)


@pytest.mark.parametrize("mechanism", ["objective", "output"])
def test_the_minimiser_is_that_of_the_formula(mechanism):
    """Without noise the gradient of the objective, written down again, is 0."""
    X, y = rows()
    model = fitted(X, y, epsilon=math.inf, margin=1.5, mechanism=mechanism, regularization=0.01)
    theta, s = model.release_.theta, 1 / math.sqrt(6)
    unit = clipped(X) * math.sqrt(1 - s * s) / (math.sqrt(5) / 2)
    unit = np.column_stack([unit, np.full(len(X), s)])
    labels = np.where(y == "yes", 1.0, -1.0)
    slope = -labels / (1 + np.exp(labels * (unit @ theta) - 1.5))
    np.testing.assert_allclose(unit.T @ slope / len(X), -0.01 * theta, atol=1e-9)


def test_no_margin_changes_nothing():
    X, y = rows()
    plain, none = fitted(X, y), fitted(X, y, margin=0)
    assert plain.release_.to_json() == none.release_.to_json()
    assert plain.release_.to_json()["loss"] == {"name": "logistic"}


def test_the_noise_and_the_regularization_are_those_without_a_margin():
    X, y = rows()
    plain, other = (fitted(X, y, margin=a).release_.mechanism for a in (0.0, 2.0))
    for name in ("law", "total_regularization", "delta", "worst_case", "forecast"):
        assert getattr(plain, name) == getattr(other, name), name
    assert other.loss_quantile(0.95) == plain.loss_quantile(0.95)
    assert "margin 2" in other.title


@pytest.mark.parametrize(("epsilon", "n"), [(0.1, 300), (1.0, 300), (8.0, 300), (30.0, 2000)])
def test_the_automatic_margin_follows_from_public_facts(epsilon, n):
    X, y = rows(n)
    result = fitted(X, y, epsilon=epsilon, margin="auto").release_
    ratio = gaussian_scale(epsilon, 1e-6) * math.sqrt(6) / n
    margin = min(max(3 + math.log10(ratio), 0.0), 3.0)
    # Determinants may take 0.6 % of the noise: log₁₀ 1.006 = 0.0026.
    assert margin <= result.mechanism.loss.margin + 1e-9 <= margin + 0.003
    again, labels = rows(n, seed=1)
    assert fitted(3 * again, labels, epsilon=epsilon, margin="auto").release_.mechanism == (
        result.mechanism
    )


def test_an_automatic_margin_reads_nothing_of_the_data():
    X, y = rows()
    release = PrivateLogisticRegression(classes=CLASSES, margin="auto").fit(X, y).release_
    assert release.audience is Audience.PUBLIC


def test_a_prepared_model_has_the_margin_of_each_epsilon():
    """That of the model which the estimator would release there; a given one is that of all."""
    X, y = rows()
    prepared = PrivateLogisticRegression(classes=CLASSES, margin="auto").prepared(X, y)
    assert prepared.objective.loss == prepared.mechanism.loss
    assert prepared.mechanism.loss.margin > 0
    margins = [prepared.mechanism_at(epsilon).loss.margin for epsilon in (0.01, 1.0, 100.0)]
    assert margins[0] > margins[1] == prepared.mechanism.loss.margin > margins[2]
    for epsilon in (0.01, 100.0):
        other = PrivateLogisticRegression(epsilon=epsilon, classes=CLASSES, margin="auto")
        assert other.prepared(X, y).mechanism == prepared.mechanism_at(epsilon)
    assert (prepared.has_one_loss, prepared.noiseless_loss) == (False, Logistic())
    given = PrivateLogisticRegression(classes=CLASSES, margin=1.5).prepared(X, y)
    assert given.mechanism_at(0.01).loss == given.noiseless_loss == Logistic(margin=1.5)
    assert given.has_one_loss


def test_model_json(tmp_path):
    X, y = rows()
    model = fitted(X, y, margin="auto")
    path = model.save(tmp_path / "model.json")
    loaded = PrivateLogisticRegression.load(path)
    assert loaded.release_.mechanism == model.release_.mechanism
    assert loaded.margin == model.release_.mechanism.loss.margin > 0
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert json.loads(path.read_text())["loss"] == {"name": "logistic", "margin": loaded.margin}


@pytest.mark.parametrize("margin", [0.0, 0, -1.0, "infinity", "1.5", None, True, 1e9])
def test_other_margins_in_model_json_are_refused(margin):
    X, y = rows()
    value = fitted(X, y, margin=1.5).release_.to_json()
    value["loss"]["margin"] = margin
    with pytest.raises(InvalidInput):
        Release.from_json(resealed(value))


def test_probabilities_are_those_of_the_score():
    """And so is the log loss of a profile, which is not the loss that was minimised."""
    X, y = rows()
    model = fitted(X, y, margin=2.0)
    scores = model.decision_function(X)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], expit(scores), rtol=1e-14)
    labels = np.where(y == "yes", 1.0, -1.0)
    wanted = -np.mean(np.log(expit(labels * scores)))
    problem = model.release_.objective(X, y)
    assert isinstance(problem, Objective)
    block = RowBlock.of(problem.held.X, problem.held.y)
    result = FitScores.of(block, (model.release_.theta,), problem.loss)
    assert result.log_losses[0] / len(X) == pytest.approx(wanted, rel=1e-12)
    assert np.mean(Logistic(margin=2.0).value(scores, labels)) > 1.5 * wanted


def test_a_margin_is_for_two_classes_and_the_logistic_loss():
    X, y = rows(classes=("a", "b", "c"))
    for margin in (1.0, "auto"):
        with pytest.raises(InvalidInput, match=r"margin=.*two classes.* 3"):
            fitted(X, y, margin=margin)
    assert fitted(X, y, margin=0.0).release_.mechanism.loss.name == "softmax"
    with pytest.raises(TypeError, match="margin"):
        PrivateLinearSVC(margin=1.0)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("mechanism", ["objective", "output"])
def test_profile_and_publish_take_a_margin(mechanism, noise):
    """Profiles of all relations that need no other rows, and no exposure past the guarantee."""
    X, y = rows()
    delta = 1e-6 if noise == "gaussian" else None
    model = fitted(X, y, margin=1.5, mechanism=mechanism, noise=noise, delta=delta)
    profile = expost.profile(model, X, y)
    assert np.all(profile.loss_low <= profile.losses.loss)
    assert np.all(profile.losses.loss <= profile.loss_high)
    assert np.max(profile.exposure) <= model.release_.mechanism.worst_case
    persons = np.arange(len(y)) // 2
    assert len(expost.profile(model, X, y, persons=persons).exposure) == 150


# The choice of ε.

QUESTION = {"folds": 3, "epsilons": (0.5, 4.0), "models": 5, "random_state": 3}


@pytest.mark.parametrize("mechanism", ["objective", "output"])
@pytest.mark.parametrize("margin", [1.5, "auto"])
def test_a_choice_measures_the_models_that_would_be_released(mechanism, margin):
    """At each ε the means of held-out scores are those of a loop over folds and releases."""
    X, y = rows()
    options = {"classes": CLASSES, "mechanism": mechanism, "margin": margin}
    choice = expost.choose_epsilon(X, y, **options, **QUESTION)
    prepared = PrivateLogisticRegression(**options).prepared(X, y)
    objective, (_, seed) = prepared.objective, seeds_of(3)
    folds = Trials(objective=objective, plan=prepared.mechanism_at, folds=3, releases=4, seed=seed)
    for index, epsilon in enumerate(choice.utility.epsilons):
        perturbation = (
            PrivateLogisticRegression(epsilon=epsilon, **options).prepared(X, y).mechanism
        )
        assert (perturbation.loss.margin == 1.5) is (margin == 1.5)
        scores = []
        for fold in range(3):
            train, held_out = folds.rows.split(fold)
            draws = perturbation.unit_noise.sample(4, np.random.default_rng(child(seed, fold)))
            penalty = np.full(6, perturbation.total_regularization)
            training = Objective(rows=train, loss=perturbation.loss, penalty=penalty)
            models = perturbation.sampler(training).perturbed(epsilon, draws, 1e-9)
            z = held_out.y * (models @ held_out.X.T)
            scores.append(np.mean(np.log1p(np.exp(-z))))
        curve = choice.utility.curves["log_loss"]
        assert curve.mean[index] == pytest.approx(np.mean(scores), rel=1e-4)
    # The best reachable model has the margin that is given, and none where the noise decides.
    plain = expost.choose_epsilon(X, y, **options | {"margin": 0}, **QUESTION).utility.leading
    assert (choice.utility.leading.best == plain.best) is (margin == "auto")
    assert choice.utility.leading.base_rate == plain.base_rate


@pytest.mark.parametrize("mechanism", ["objective", "output"])
def test_the_ceiling_of_a_public_bound_is_that_without_a_margin(mechanism):
    X, y = rows()
    options = {
        "classes": CLASSES,
        "mechanism": mechanism,
        "folds": 0,
        "models": 5,
        "random_state": 3,
    }
    plain, given, auto = (
        expost.choose_epsilon(X, y, **options, margin=margin) for margin in (0.0, 2.0, "auto")
    )
    assert plain.ceiling == given.ceiling == auto.ceiling
    assert plain.posteriors == given.posteriors == auto.posteriors
    assert "of margin 2" in given.description
    if mechanism == "output":
        # With a Λ that is given the distances of these rows are known: of one loss.
        options |= {"regularization": 0.05}
        assert not expost.choose_epsilon(X, y, **options, margin=2.0).is_public
        assert expost.choose_epsilon(X, y, **options, margin="auto").is_public


def test_the_transition_is_that_of_the_margin():
    """Critical values of ε by output perturbation follow from the distances with the margin."""
    X, y = rows(100)
    options = {"classes": CLASSES, "mechanism": "output", "noise": "laplace", "delta": None}
    options |= {"regularization": 0.05}
    choice = expost.choose_epsilon(X, y, **options, margin=2.0, folds=0, models=5)
    problem = PrivateLogisticRegression(**options, margin=2.0).prepared(X, y).objective
    base = minimise(problem).theta
    kept = problem.held
    for row in (0, 7, 50):
        others = [index for index in range(100) if index != row]
        without = Objective.of(
            X=kept.X[others], y=kept.y[others], loss=problem.loss, penalty=problem.penalty
        )
        moved = np.linalg.norm(minimise(without).theta - base)
        assert choice.columns()["distance"][row] == pytest.approx(moved, rel=1e-3)


def test_estimators_bring_their_margin_to_the_choice():
    X, y = rows()
    estimator = PrivateLogisticRegression(classes=CLASSES, margin="auto", epsilon=7.0)
    result = expost.choose_epsilon(X, y, estimator=estimator, **QUESTION)
    wanted = expost.choose_epsilon(X, y, classes=CLASSES, margin="auto", **QUESTION)
    assert np.array_equal(result.utility.leading.mean, wanted.utility.leading.mean)
    with pytest.raises(InvalidInput, match="margin: the estimator has its own"):
        expost.choose_epsilon(X, y, estimator=estimator, margin=1.0, **QUESTION)
    for loss in ("huber-hinge", "squared"):
        with pytest.raises(InvalidInput, match=f"margin=1.0: loss='{loss}' takes none"):
            expost.choose_epsilon(X, y, loss=loss, margin=1.0, **QUESTION)


# The command line.


@pytest.fixture
def table(tmp_path):
    X, y = rows(200, 5)
    names = [f"x{column}" for column in range(5)]
    cells = [[*map(repr, row.tolist()), label] for row, label in zip(X, y, strict=True)]
    path = tmp_path / "t.csv"
    path.write_text(text([[*names, "label"], *cells]))
    return path


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        ("epsilon", ("--margin", "wide"), "--margin"),
        ("profile", ("--margin", "1", "--loss", "huber-hinge"), "leave --margin or --loss out"),
        ("epsilon", ("--margin", "1", "--loss", "squared"), "leave --margin or --loss out"),
        ("profile", ("--margin", "1", "--model", "model.json"), "--m"),
    ],
)
def test_margins_that_make_no_sense_are_refused(program, table, tmp_path, command, options, words):
    done = program(command, table, "--target", "label", *options, "--out", tmp_path / "out")
    assert done.code == 2, done
    assert words in done.err, done
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("margin", "engine"), [("1.5", None), ("auto", "local:2")])
def test_the_command_line_chooses_epsilon_with_a_margin(program, table, tmp_path, margin, engine):
    """In memory and in blocks, as in Python, and it ends with the command that releases it."""
    arguments = ("--target", "label", "--margin", margin, "--folds", "3", "--seed", "3")
    arguments += ("--max-posterior", "0.99", "--epsilons", "4,50,500")
    arguments += ("--classes", "no,yes", "--regularization", "0.01")
    blocks = () if engine is None else ("--engine", engine)
    done = program(
        "epsilon", table, *arguments, *blocks, "--out", tmp_path / "out", "--json-curator"
    )
    assert done.code == 0, done
    answer = json.loads(done.out)
    value = margin if margin == "auto" else float(margin)
    choice = expost.choose_epsilon(
        str(table), target="label", margin=value, folds=3, random_state=3, max_posterior=0.99,
        epsilons=(4, 50, 500), classes=["no", "yes"], regularization=0.01,
    )  # fmt: skip
    chosen = json.loads((tmp_path / "out" / "epsilon.CURATOR-ONLY.json").read_text())
    assert chosen["recommended"] == choice.recommended
    assert chosen["ceiling"] == choice.ceiling
    assert parse_json(json.dumps(answer["summary"])) == page_in(tmp_path / "out")
    command = answer["command"]
    assert command[command.index("--margin") + 1] == margin
    shown, origin = settings_in(tmp_path / "out")["margin"]
    assert float(shown.split(",")[0]) == pytest.approx(choice.mechanism.loss.margin, rel=1e-5)
    assert origin == ("given" if margin == "1.5" else RULE)
    release = program(*command[1:])
    assert release.code == 0, release
    loss = Release.load(tmp_path / "out" / "profile" / "model.json").mechanism.loss
    assert loss.margin == pytest.approx(choice.mechanism.loss.margin, rel=1e-3)
