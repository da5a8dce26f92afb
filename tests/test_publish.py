"""expost.publish: what it refuses, and that its bounds hold as often as they state."""

import math
import re
import warnings
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import expost
from evidence import record
from expost import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge, profile
from expost.data import UnitBall
from expost.errors import (
    ClippedRowsWarning,
    InvalidInput,
    NoGuaranteeWarning,
    PrivacyLeakWarning,
    ReleaseRefused,
    SeededReleaseWarning,
    WrongRows,
)
from expost.glm import Objective, minimise
from expost.losses import Logistic
from expost.mechanisms import ObjectivePerturbation, OutputPerturbation, Tangent
from expost.mechanisms.bounds import ObjectiveBound, upper_norms
from expost.mechanisms.output_bound import OutputBound
from expost.mechanisms.publishing import (
    PublishingBudget,
    TangentMechanism,
    regularization_for_publishing,
)
from expost.mechanisms.sampling import perturbed_minimisers
from expost.neighbouring.change import Change
from expost.neighbouring.neighbours import tight_neighbours
from expost.publishing.publish import publish
from expost.publishing.report import PublishedReport
from expost.release import Release
from expost.types import Audience, Neighbouring
from mechanisms.changes import changed
from mechanisms.test_release import sealed
from settings import OUTPUT

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(80, 3))
LABELS = np.where(X[:, 0] + 0.3 * RNG.normal(size=80) > 0, "yes", "no")
TARGET = np.clip(X @ np.array([1.0, -0.5, 0.2]), -1, 1)
PUBLIC = {"data_norm": 2.0, "classes": ("no", "yes")}
BUDGET = PublishingBudget(epsilon_gradient=0.7, epsilon_hessian=0.3, delta=1e-6)
SPENT = {"epsilon_gradient": 0.7, "epsilon_hessian": 0.3}
OBJECTIVE = {
    "mechanism": "objective",
    "noise": "gaussian",
    "delta": 1e-6,
    "regularization": "for-publishing",
    "publishing": BUDGET,
}
LAPLACE = {**OBJECTIVE, "noise": "laplace", "delta": None}
MODELS = {
    "output": (PrivateLogisticRegression(**PUBLIC, **OUTPUT), LABELS),
    "output gaussian": (
        PrivateLogisticRegression(**PUBLIC, **{**OUTPUT, "noise": "gaussian", "delta": 1e-6}),
        LABELS,
    ),
    "objective": (PrivateLogisticRegression(**PUBLIC, **OBJECTIVE), LABELS),
    "objective laplace": (PrivateLogisticRegression(**PUBLIC, **LAPLACE), LABELS),
    "svc": (PrivateLinearSVC(**PUBLIC, **OBJECTIVE), LABELS),
    "svc output": (PrivateLinearSVC(**PUBLIC, **OUTPUT), LABELS),
    "ridge": (
        PrivateRidge(data_norm=2.0, label_range=(-1.0, 1.0), huber_width=None, **OBJECTIVE),
        TARGET,
    ),
    "ridge output": (
        PrivateRidge(data_norm=2.0, label_range=(-1.0, 1.0), huber_width=None, **OUTPUT),
        TARGET,
    ),
}


@cache
def fitted(name):
    model, y = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoGuaranteeWarning)
        return type(model)(**model.get_params(deep=False)).fit(X, y), y


@pytest.mark.parametrize("name", MODELS)
def test_a_data_independent_report_of_every_model(name):
    model, y = fitted(name)
    report = publish(model, X, y)
    assert isinstance(report, PublishedReport)
    assert report.kind == "data-independent"
    # The squared loss has no guarantee of ε under objective perturbation: a review decides.
    assert report.audience is (Audience.NEEDS_REVIEW if name == "ridge" else Audience.PUBLIC)
    exposure, first, second = report.bound(X, y)
    assert exposure.shape == (80,)
    assert np.all(exposure > 0)
    assert np.all(np.isfinite(exposure))
    assert not np.any(first)
    assert not np.any(second)
    # At ρ = 1e-6 none of the eighty fails.
    assert np.all(profile(model, X, y).exposure <= exposure)
    assert report.spending.sequential == report.spending.model
    # It needs no rows, and is the same without them.
    again = publish(model)
    assert np.array_equal(again.bound(X, y)[0], exposure)
    assert again.to_json() == report.to_json()


@pytest.mark.parametrize("name", [name for name in MODELS if "output" not in name])
def test_a_data_dependent_report_of_every_objective(name):
    model, y = fitted(name)
    mechanism = model.release_.mechanism
    report = publish(model, X, y, kind="data-dependent", **SPENT, delta=1e-6)
    plain = publish(model)
    assert report.kind == "data-dependent"
    exposure, first, second = report.bound(X, y)
    assert np.all(exposure <= plain.bound(X, y)[0] * (1 + 1e-9))
    assert np.all(profile(model, X, y).exposure <= exposure)
    assert np.all((first >= 0) & (first <= 0.7 * (1 + 1e-5)))
    # ε = 0 only where the two laws differ by δ at most: a row that the model fits, by chance.
    rows = model.release_.objective(X, y).held
    apart = 2 * stats.norm.cdf(report.separations(rows.X, rows.y)[0] / 2) - 1
    assert np.all((first > 0) | (apart <= 1e-6))
    assert np.all((second >= 0) & (second <= 0.3 * (1 + 1e-5)))
    everything = report.everything(X, y)
    assert np.all(everything > exposure)
    assert report.fails_with == pytest.approx(3e-6)
    assert report.everything_fails_with == pytest.approx(4e-6)
    spent = report.spending
    assert spent.model == ((math.inf if name == "ridge" else 1.0), mechanism.delta or 0.0)
    assert spent.gradient == (0.7, 1e-6)
    assert spent.hessian == (0.3, 1e-6)
    assert spent.sequential[0] == pytest.approx(spent.model[0] + 1.0)
    assert spent.sequential[1] == pytest.approx((mechanism.delta or 0) + 2e-6)
    assert spent.together[1] == spent.sequential[1]
    if name != "ridge":
        assert 1.7 < spent.together[0] < spent.sequential[0]


def test_the_noise_of_two_reports_differs():
    model, y = fitted("objective")
    first, two = (publish(model, X, y, kind="data-dependent", **SPENT) for _ in range(2))
    assert first.release is two.release
    assert not np.any(first.released.gradient == two.released.gradient)
    assert not np.array_equal(first.released.hessian, two.released.hessian)
    assert "spend that again" in " ".join(first.statements)


def test_all_forms_of_a_model(tmp_path):
    model, _ = fitted("objective")
    path = model.save(tmp_path / "model.json")
    texts = {repr(publish(form).to_json()) for form in (model, model.release_, path, str(path))}
    assert len(texts) == 1


def test_the_python_of_the_page_runs(tmp_path, monkeypatch, capsys):
    page = Path(__file__).parent.parent / "docs" / "publishing.md"
    published, erased = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(published, "publishing.md", "exec"), names)
    assert capsys.readouterr().out.startswith("(Answer(label='no', exposure=")
    assert (tmp_path / "report.json").exists()
    exec(compile(erased, "publishing.md", "exec"), names)
    assert Release.load(tmp_path / "model.json").history


# -- refusals -------------------------------------------------------------------------------------


def test_classes_read_from_the_data_need_a_review(tmp_path):
    with pytest.warns(PrivacyLeakWarning):
        model = PrivateLogisticRegression(**{**PUBLIC, "classes": None}).fit(X, LABELS)
    report = publish(model)
    assert report.audience is Audience.NEEDS_REVIEW
    assert report.read_from_data == model.release_.read_from_data == ("classes (the label set)",)
    path = report.save(tmp_path / "report.json")
    assert path.name == "report.CURATOR-ONLY.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert PublishedReport.load(path).audience is Audience.NEEDS_REVIEW


def test_what_was_read_is_named_and_conditions_every_figure():
    with pytest.warns(PrivacyLeakWarning):
        model = PrivateLogisticRegression(**{**PUBLIC, "classes": None, **OBJECTIVE}).fit(X, LABELS)
    given = PrivateLogisticRegression(**PUBLIC, **OBJECTIVE).fit(X, LABELS)
    with pytest.warns(PrivacyLeakWarning, match="classes") as caught:
        report = expost.publish(model, X, LABELS, kind="data-dependent", **SPENT)
    assert caught[0].filename == __file__
    same = publish(replace(given.release_, theta=model.release_.theta))
    read = publish(model.release_)
    # The bounds are those of the same constants, given; only what they mean differs.
    assert np.array_equal(read.bound(X, LABELS)[0], same.bound(X, LABELS)[0])
    assert same.audience is Audience.PUBLIC
    assert same.conditions == ()
    for result in (read, report):
        first, second = result.conditions
        assert "without noise: classes (the label set)" in first
        assert "holds given these constants" in second
        assert "is not covered" in second
        assert set(result.conditions) <= set(result.statements)
        assert ": classes (the label set)" in str(result)
        assert Audience.NEEDS_REVIEW.meaning in str(result)
        assert all(
            item.audience is Audience.NEEDS_REVIEW
            for item in result.lookup(dict.fromkeys(result.form.names, 0.1))
        )
    # The ledger counts both lines among those whose constants no ε covers.
    lines = report.entries(report.to_json(), name="report", made="2026-01-01T00:00:00Z", data=None)
    assert [line.read_from_data for line in lines] == [1, 1]


@pytest.mark.parametrize("field", ["audience", "read_from_data", "steps", "model"])
def test_a_report_that_needs_review_cannot_be_made_public(field):
    """Not even by a hand that computes the checksum again, unless it also edits the model."""
    with pytest.warns(PrivacyLeakWarning):
        model = PrivateLogisticRegression(**{**PUBLIC, "classes": None}).fit(X, LABELS)
    value = publish(make_pipeline(StandardScaler().fit(X), model)).to_json()
    model = {**value["model"], "audience": "public", "meaning": Audience.PUBLIC.meaning}
    edited = {
        "audience": {"audience": "public", "meaning": Audience.PUBLIC.meaning},
        "read_from_data": {"read_from_data": []},
        "steps": {"steps": []},
        "model": {"model": sealed(model)},
    }[field]
    with pytest.raises(InvalidInput, match="do not agree"):
        PublishedReport.from_json(sealed({**value, **edited}))
    assert PublishedReport.from_json(value).to_json() == value


def test_a_clip_by_the_rule_is_published():
    with pytest.warns(ClippedRowsWarning):
        model = PrivateLogisticRegression(**{**PUBLIC, "data_norm": "auto"}).fit(X, LABELS)
    assert publish(model).audience is Audience.PUBLIC


def test_an_encoding_read_from_the_data_needs_a_review():
    """Also where the release does not list it: the encoding has it."""
    from expost.data import Encoding, open_table

    frame = pd.DataFrame({"age": X[:, 0], "sex": np.where(X[:, 1] > 0, "f", "m"), "income": LABELS})
    with pytest.warns(PrivacyLeakWarning):
        encoding = Encoding.read(open_table(frame), target="income")
    encoded = encoding.encode_table(encoding.open(frame))
    model = PrivateLogisticRegression(**{**PUBLIC, "data_norm": 3.0}).fit(encoded.X, LABELS)
    release = replace(model.release_, encoding=encoding.to_json())
    assert model.release_.read_from_data == ()
    assert release.read_from_data == encoding.read_from_data
    assert release.audience is Audience.NEEDS_REVIEW
    report = publish(release)
    assert report.audience is Audience.NEEDS_REVIEW
    assert "the mean and scale of 'age'" in report.conditions[0]
    unlisted = {**release.to_json(), "read_from_data": []}
    with pytest.raises(InvalidInput, match="do not agree"):
        Release.from_json(sealed(unlisted))
    given = publish(replace(model.release_, encoding=encoding.as_given().to_json()))
    assert given.audience is Audience.PUBLIC


def test_models_without_noise_or_with_that_of_a_seed_are_refused():
    model = PrivateLogisticRegression(**PUBLIC, epsilon=math.inf).fit(X, LABELS)
    with pytest.raises(ReleaseRefused, match="finite epsilon"):
        publish(model)
    with pytest.warns(SeededReleaseWarning):
        model = PrivateLogisticRegression(**PUBLIC, random_state=1).fit(X, LABELS)
    with pytest.raises(ReleaseRefused, match="without a random_state"):
        publish(model)


def test_too_little_regularization_is_refused_and_what_is_named_is_enough():
    options = {**OBJECTIVE, "publishing": None, "regularization": 1e-3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PrivateLogisticRegression(**PUBLIC, **options).fit(X, LABELS)
    with pytest.raises(ReleaseRefused, match="needs a model with lambda of at least") as error:
        publish(model, X, LABELS, kind="data-dependent", **SPENT)
    named = str(error.value).split("regularization of at least ")[1].split(")")[0]
    options["regularization"] = float(named)
    model = PrivateLogisticRegression(**PUBLIC, **options).fit(X, LABELS)
    publish(model, X, LABELS, kind="data-dependent", **SPENT)
    publish(model)
    # An estimator that knows of the report refuses before it spends anything.
    options |= {"regularization": 1e-3, "publishing": BUDGET}
    model = PrivateLogisticRegression(**PUBLIC, **options)
    with pytest.raises(ReleaseRefused, match="lambda of at least"):
        model.fit(X, LABELS)
    assert not hasattr(model, "release_")


def test_estimators_refuse_what_makes_no_sense():
    def fit(**options):
        PrivateLogisticRegression(**PUBLIC, **options).fit(X, LABELS)

    with pytest.raises(InvalidInput, match="PublishingBudget"):
        fit(regularization="for-publishing")
    with pytest.raises(InvalidInput, match="must be a PublishingBudget"):
        fit(mechanism="objective", publishing=0.3)
    with pytest.raises(InvalidInput, match="mechanism='objective'"):
        fit(mechanism="output", publishing=BUDGET)
    with pytest.raises(InvalidInput, match="'auto', 'for-publishing'"):
        fit(regularization="for publishing")


def test_rows_that_cannot_have_made_the_model_are_refused():
    for name in ("objective", "output"):
        model, y = fitted(name)
        kind = {"kind": "data-dependent", **SPENT} if name == "objective" else {}
        with pytest.raises(WrongRows, match="79 rows: the model was made from 80"):
            publish(model, X[1:], y[1:], **kind)
        with pytest.raises(InvalidInput, match="columns"):
            publish(model, X[:, 1:], y, **kind)
    options = {**OBJECTIVE, "epsilon": 200.0, "publishing": None, "regularization": 0.5}
    model = PrivateLogisticRegression(**PUBLIC, **options).fit(X, LABELS)
    with pytest.raises(WrongRows, match="cannot have made this model"):
        publish(model, -X, LABELS, kind="data-dependent", **SPENT)
    with pytest.raises(WrongRows, match="cannot have made this model"):
        publish(model, -X, LABELS)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"kind": "exact"}, "kind='exact'"),
        ({"failure_probability": math.nan}, "failure_probability"),
        ({"epsilon_gradient": 1.0}, "epsilon_gradient=1.0: a data-independent report spends"),
        ({"epsilon_hessian": 1.0}, "spends nothing"),
        ({"delta": 1e-6}, "spends nothing"),
        ({"kind": "data-dependent"}, "give each a number"),
        ({"kind": "data-dependent", "epsilon_gradient": 1.0}, "give each a number"),
    ],
)
def test_options_of_nonsense(options, match):
    model, y = fitted("objective")
    with pytest.raises(InvalidInput, match=match):
        publish(model, X, y, **options)


def test_what_is_no_released_model():
    with pytest.raises(InvalidInput, match="was not released by expost"):
        publish(object(), X, LABELS)
    with pytest.raises(InvalidInput, match="was not released by expost"):
        publish(PrivateLogisticRegression(), X, LABELS)
    model, y = fitted("objective")
    with pytest.raises(InvalidInput, match="was not released by expost"):
        publish(make_pipeline(FunctionTransformer(), PrivateLogisticRegression()), X, y)
    with pytest.raises(InvalidInput, match="needs the rows"):
        publish(model, kind="data-dependent", **SPENT)
    with pytest.raises(InvalidInput, match="both, or neither"):
        publish(model, X)
    with pytest.raises(InvalidInput, match="no delta of its own"):
        publish(fitted("objective laplace")[0], X, y, kind="data-dependent", **SPENT)
    with pytest.raises(ReleaseRefused, match="output perturbation"):
        publish(fitted("output")[0], X, y, kind="data-dependent", **SPENT)


def test_frames_must_have_the_columns_of_the_model():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = PrivateLogisticRegression(**PUBLIC).fit(frame, LABELS)
    report = publish(model, frame, LABELS)
    assert np.array_equal(report.bound(frame, LABELS)[0], report.bound(X, LABELS)[0])
    with pytest.raises(InvalidInput, match="in their order"):
        publish(model, frame[["b", "a", "c"]], LABELS)
    with pytest.raises(InvalidInput, match="in their order"):
        report.bound(frame[["b", "a", "c"]], LABELS)


def test_a_theta_on_its_clamp_is_refused():
    model, _ = fitted("objective")
    release = model.release_
    theta = release.theta.copy()
    theta[0] = release.mechanism.grid.clamp
    with pytest.raises(ReleaseRefused, match="clamp"):
        publish(replace(release, theta=theta))


# -- the bounds hold -------------------------------------------------------------------------------

ROWS, WIDTH, OUTSIDE = 200, 5, 50
# False alarms: 1e-3 for each table of failures, Bonferroni over its rows.
ALARM = 1e-3
BALL = UnitBall(data_norm=3.0, fit_intercept=False)


def table(seed=1):
    rng = np.random.default_rng(seed)
    rows, _ = BALL.rows(rng.normal(size=(ROWS + OUTSIDE, WIDTH)))
    y = np.where(rows @ np.arange(WIDTH) + 0.3 * rng.normal(size=len(rows)) > 0, 1.0, -1.0)
    return (rows[:ROWS], y[:ROWS]), (rows[ROWS:], y[ROWS:])


def worst(failures, count, allowed):
    """The smallest binomial tail over the rows, times their number (Bonferroni)."""
    return float(np.min(stats.binom.sf(failures - 1, count, allowed))) * len(failures)


def pair_losses(second, released, tangent, everyone):
    """The loss of (ĝ, Ĥ) given θ, from the two normal densities: the definition."""
    rows, y = everyone
    slope, curvature = second.mechanism.loss.derivatives(rows @ second.theta, y)
    inside = np.where(np.arange(len(rows)) < ROWS, 1.0, -1.0)
    noise = released.gradient - tangent.gradient
    shift = slope[:, None] * rows
    first = (2 * shift @ noise + inside * np.sum(shift**2, axis=1)) / second.gradient_scale**2
    noise = released.hessian - tangent.hessian
    inner = curvature * np.einsum("ij,jk,ik->i", rows, noise, rows)
    square = (curvature * np.sum(rows**2, axis=1)) ** 2
    return first / 2 + (2 * inner + inside * square) / (4 * second.hessian_scale**2)


def objective_failures(noise, rho, count, seed):
    """How often each bound failed, row by row, over ``count`` releases of one data set.

    What is "halved" has half the quantile of its noise, for the power of the test.
    """
    (rows, y), entering = table()
    budget = PublishingBudget(
        epsilon_gradient=2.0, epsilon_hessian=2.0, delta=1e-3, failure_probability=rho
    )
    constants = {
        "epsilon": 1.0,
        "delta": 1e-3 if noise == "gaussian" else None,
        "noise": noise,
        "loss": Logistic(),
        "rows": ROWS,
        "dimension": WIDTH,
    }
    mechanism = ObjectivePerturbation(
        regularization=regularization_for_publishing(budget, **constants), **constants
    )
    problem = Objective.of(
        X=rows, y=y, loss=mechanism.loss, penalty=np.full(WIDTH, mechanism.total_regularization)
    )
    rng = np.random.default_rng(seed)
    models = perturbed_minimisers(problem, mechanism.law.sample(count, rng) / ROWS)
    everyone = np.vstack([rows, entering[0]]), np.append(y, entering[1])
    norms = upper_norms(everyone[0])
    failed, events = defaultdict(lambda: np.zeros(ROWS + OUTSIDE)), defaultdict(int)
    ratios = {"independent": [], "dependent": []}
    for model in models:
        theta = mechanism.grid.snap(model)
        tangent = Tangent.at(mechanism, problem, theta)
        loss = np.append(
            tangent.row_losses().loss,
            tangent.row_losses(changed(problem, Neighbouring.ADD, entering)).loss,
        )
        exposure = np.abs(loss)
        plain = ObjectiveBound(mechanism=mechanism, theta=theta, failure=rho)
        second = TangentMechanism(budget=budget, mechanism=mechanism, theta=theta)
        released = second.release(tangent, rng)
        bound = replace(plain, tangent=second, released=released)
        for name, single in (("independent", plain), ("dependent", bound)):
            result = single.exposure(*everyone)
            failed[name] += exposure > result
            ratios[name].append(np.median(result / exposure))
        halved = replace(plain, failure=2 * stats.norm.sf(stats.norm.isf(rho / 2) / 2))
        failed["independent halved"] += exposure > halved.exposure(*everyone)
        release = Release(theta=theta, mechanism=mechanism, ball=BALL, classes=np.array([-1, 1]))
        report = PublishedReport(
            release=release, failure_probability=rho, budget=budget, released=released
        )
        mu = np.hypot(*report.separations(*everyone))
        total = np.abs(loss + pair_losses(second, released, tangent, everyone))
        failed["everything"] += total > bound.exposure(*everyone) + mu * (
            mu / 2 + stats.norm.isf(rho / 2)
        )
        # The parts, for a z fixed beforehand.
        inverse = np.linalg.inv(tangent.hessian)
        leverage = np.einsum("ij,jk,ik->i", everyone[0], inverse, everyone[0])
        published = bound.leverage_bound(everyone[0], norms)
        failed["leverage"] += leverage > published
        inner, inner_bound = (
            np.abs(everyone[0] @ tangent.gradient),
            bound.inner_bound(everyone[0], norms),
        )
        failed["gradient"] += inner > inner_bound
        weak = replace(bound, failure=halved.failure)
        failed["gradient halved"] += inner > weak.inner_bound(everyone[0], norms)
        # For all z at once.
        values = np.linalg.eigvalsh(released.hessian - tangent.hessian)
        shift = bound.hessian_shift
        events["H < Ĥ − tI"] += values[-1] > shift
        events["H < Ĥ − tI/2"] += values[-1] > shift / 2
        if max(values[-1], -values[0]) <= shift:
            events["μ̄ > 3μ"] += bool(np.any(published > 3 * leverage * (1 + 1e-6)))
        across = np.abs(everyone[0] @ (released.gradient - tangent.gradient))
        room = norms * second.gradient_scale * stats.norm.isf(rho / 2)
        events["ḡ too large"] += bool(
            np.any((inner_bound > inner + 2 * room + 1e-4)[across <= room])
        )
    return failed, events, {name: float(np.median(values)) for name, values in ratios.items()}


def check_objective(noise, rho, count, seed):
    failed, events, ratios = objective_failures(noise, rho, count, seed)
    allowed = {
        "independent": rho,
        "dependent": 3 * rho,
        "everything": 4 * rho,
        "leverage": rho,
        "gradient": rho,
    }
    figures = {"releases": count, "rows": ROWS, "outside": OUTSIDE}
    for name, probability in allowed.items():
        tail = worst(failed[name], count, probability)
        figures[name] = {
            "allowed": probability,
            "largest share of failures of any row": float(np.max(failed[name]) / count),
            "mean share": float(np.mean(failed[name]) / count),
            "Bonferroni tail": min(tail, 1.0),
        }
        assert tail > ALARM, name
    assert stats.binom.sf(events["H < Ĥ − tI"] - 1, count, rho) > ALARM
    assert events["μ̄ > 3μ"] == 0
    assert events["ḡ too large"] == 0
    figures["median bound/exposure"] = ratios
    figures["events"] = {name: int(value) for name, value in events.items()}
    # Power: with half the noise in the bound, or half of F⁻¹, the same test sees it.
    halved = {"gradient halved": worst(failed["gradient halved"], count, rho)}
    halved["H < Ĥ − tI/2"] = float(stats.binom.sf(events["H < Ĥ − tI/2"] - 1, count, rho))
    if noise == "gaussian":
        halved["independent halved"] = worst(failed["independent halved"], count, rho)
    assert all(tail < ALARM for tail in halved.values()), halved
    return figures | {"Bonferroni tails of what is halved": halved}


@pytest.mark.parametrize(
    ("noise", "rho"), [("gaussian", 0.05), ("gaussian", 0.01), ("laplace", 0.05)]
)
def test_the_bounds_of_objective_perturbation_hold(noise, rho):
    check_objective(noise, rho, 400, seed=2)


def output_failures(noise, rho, count, seed):
    (rows, y), entering = table()
    mechanism = OutputPerturbation(
        epsilon=1.0,
        delta=1e-3 if noise == "gaussian" else None,
        noise=noise,
        loss=Logistic(),
        regularization=0.1,
        rows=ROWS,
        dimension=WIDTH,
    )
    problem = Objective.of(
        X=rows, y=y, loss=mechanism.loss, penalty=np.full(WIDTH, mechanism.regularization)
    )
    base = minimise(problem)
    gone = tight_neighbours(problem, base)
    more = tight_neighbours(problem, base, Change.of(problem.held, Neighbouring.ADD, entering))
    everyone = np.vstack([rows, entering[0]]), np.append(y, entering[1])
    rng = np.random.default_rng(seed)
    failed, far, halved = np.zeros(ROWS + OUTSIDE), 0, 0
    ratios = []
    for _ in range(count):
        theta = mechanism.add_noise(base, rng)
        exposure = np.abs(
            np.append(
                mechanism.row_losses(theta, gone).loss, mechanism.row_losses(theta, more).loss
            )
        )
        bound = OutputBound(mechanism=mechanism, theta=theta, failure=rho)
        result = bound.exposure(*everyone)
        failed += exposure > result
        ratios.append(np.median(result / exposure))
        distance = np.linalg.norm(theta - base.theta)
        far += distance > bound.radius
        halved += distance > bound.radius / 2
        distances = bound.distance_bound(*everyone)
        if distance <= bound.radius:
            assert np.all(np.append(gone.distance, more.distance) <= distances)
    return failed, far, halved, float(np.median(ratios))


def check_output(noise, rho, count, seed):
    failed, far, halved, ratio = output_failures(noise, rho, count, seed)
    tail = worst(failed, count, rho)
    assert tail > ALARM
    share = rho if noise == "laplace" else rho / 2
    assert stats.binom.sf(far - 1, count, share) > ALARM
    assert stats.binom.cdf(far, count, share) > ALARM
    assert stats.binom.sf(halved - 1, count, share) < ALARM
    return {
        "releases": count,
        "allowed": rho,
        "largest share of failures of any row": float(np.max(failed) / count),
        "noise past its quantile": far / count,
        "median bound/exposure": ratio,
    }


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_bounds_of_output_perturbation_hold(noise):
    check_output(noise, 0.05, 200, seed=3)


@pytest.mark.long
def test_the_bounds_hold_in_ten_thousand_releases():
    count, seed = 10_000, 20_261
    figures = {
        f"objective, {noise} noise, rho = {rho}": check_objective(noise, rho, count, seed)
        for noise in ("gaussian", "laplace")
        for rho in (0.05, 0.01)
    }
    figures |= {
        f"output, {noise} noise, rho = {rho}": check_output(noise, rho, count, seed)
        for noise in ("gaussian", "laplace")
        for rho in (0.05, 0.01)
    }
    record(
        "publish",
        command="pytest -m long tests/test_publish.py",
        seed=seed,
        figures=figures,
    )
