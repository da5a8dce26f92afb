"""The privacy profile: every field against its formula, every way in, every way out."""

import json
import math
import re
import stat
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import expost
from expost import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge, profile
from expost.errors import (
    ClippedRowsWarning,
    InvalidInput,
    NoGuaranteeWarning,
    PrivacyLeakWarning,
    RaisedRegularizationWarning,
    SeededReleaseWarning,
    WrongRows,
)
from expost.losses import Logistic, Squared
from expost.mechanisms import OutputPerturbation, Tangent
from expost.mechanisms.sampling import perturbed_minimisers
from expost.profiles.digest import FIGURES
from expost.types import Audience, Neighbouring
from mechanisms.changes import changed
from naive import logistic_minimiser as minimiser
from settings import OUTPUT

N, D = 60, 3
RNG = np.random.default_rng(7)
X = RNG.normal(size=(N, D))
X /= np.linalg.norm(X, axis=1).max()
Y = np.where(X @ np.array([3.0, -1.0, 0.5]) + 0.5 * RNG.normal(size=N) > 0, 1.0, -1.0)
TARGET = np.clip(X @ np.array([1.0, -2.0, 0.5]) + 0.1 * RNG.normal(size=N), -2, 2)
OTHERS = (RNG.normal(size=(5, D)) / 10, np.array([1.0, -1.0, 1.0, 1.0, -1.0]))


def logistic(**parameters):
    given = {
        **OUTPUT,
        "epsilon": 5.0,
        "regularization": 0.1,
        "data_norm": 1.0,
        "classes": [-1.0, 1.0],
        "fit_intercept": False,
    }
    return PrivateLogisticRegression(**{**given, **parameters})


def without(row):
    return np.delete(X, row, axis=0), np.delete(Y, row)


def neighbours_of_every_row():
    return np.array([minimiser(*without(row)) for row in range(N)])


@pytest.fixture(scope="module")
def fitted():
    return logistic().fit(X, Y)


@pytest.fixture(scope="module")
def profiled(fitted):
    return profile(fitted, X, Y)


# The fields.


def test_losses_and_distances(fitted, profiled):
    theta, base, others = fitted.release_.theta, minimiser(X, Y), neighbours_of_every_row()
    beta = N * 0.1 * 5.0 / 2
    apart = np.linalg.norm(others - base, axis=1)
    loss = beta * (np.linalg.norm(theta - others, axis=1) - np.linalg.norm(theta - base))
    width = profiled.loss_high - profiled.loss_low
    assert np.allclose(profiled.distance, apart, rtol=2e-3)
    assert np.all(np.abs(profiled.distance - apart) <= profiled.losses.distance_error + 1e-14)
    # 1e-9: what the plain formula itself loses.
    assert np.all(loss >= profiled.loss_low - 1e-9)
    assert np.all(loss <= profiled.loss_high + 1e-9)
    assert np.all((profiled.loss_low <= profiled.loss) & (profiled.loss <= profiled.loss_high))
    assert np.max(width) <= 0.01
    assert len(profiled) == N


def test_views_of_the_one_vector(profiled):
    assert np.array_equal(profiled.exposure, np.abs(profiled.loss))
    assert np.array_equal(profiled.ranked, sorted(abs(value) for value in profiled.loss))
    by_hand = sorted(
        range(N), key=lambda row: (-abs(profiled.loss[row]), -profiled.distance[row], row)
    )
    assert profiled.ranking.tolist() == by_hand
    assert np.array_equal(profiled.exposure[profiled.ranking], profiled.ranked[::-1])
    assert np.allclose(profiled.posterior, 1 / (1 + np.exp(-profiled.loss)), rtol=1e-14)
    assert np.allclose(profiled.certainty, 1 / (1 + np.exp(-np.abs(profiled.loss))), rtol=1e-14)
    assert np.all(profiled.certainty >= 0.5)
    assert profiled.worst_case == 5.0
    assert np.all(profiled.exposure <= profiled.worst_case)
    assert not profiled.is_noiseless
    assert profiled.audience is Audience.CURATOR_ONLY


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_expected_loss_is_the_mean_of_simulated_releases(noise):
    """5 standard errors over 3,000 releases; the draws also reject typical × 1.1."""
    model = logistic(noise=noise, delta=1e-4 if noise == "gaussian" else None, epsilon=20.0)
    model.fit(X, Y)
    profiled = profile(model, X, Y)
    mechanism, near = model.release_.mechanism, profiled.neighbours
    noises = mechanism.law.sample(3000, np.random.default_rng(11))
    losses = np.abs(
        [
            mechanism.law.loss_from(np.linalg.norm(b), near.shifts.inner(b), near.distance)
            for b in noises
        ]
    )
    mean, error = losses.mean(), losses.mean(axis=1).std() / np.sqrt(3000)
    assert abs(mean - profiled.expected.mean()) <= 5 * error
    assert abs(mean - 1.1 * profiled.expected.mean()) > 5 * error
    each = 5 * losses.std(axis=0) / np.sqrt(3000)
    assert np.all(np.abs(losses.mean(axis=0) - profiled.expected) <= each)


def test_equal_exposures_rank_by_distance_then_by_index():
    losses = expost.mechanisms.RowLosses(
        loss=np.array([1.0, -1.0, 2.0, 1.0, 0.0]),
        low=np.zeros(5),
        high=np.zeros(5),
        distance=np.array([0.1, 0.3, 0.0, 0.1, 9.0]),
        distance_error=np.zeros(5),
        relation=Neighbouring.REMOVE,
        law=None,
        worst_case=3.0,
    )
    ranked = expost.Profile(losses=losses, description="", rows=5)
    assert ranked.ranking.tolist() == [2, 1, 0, 3, 4]


def test_without_noise_everything_is_infinite_and_ranks_by_distance():
    model = logistic(epsilon=math.inf).fit(X, Y)
    profiled = profile(model, X, Y)
    apart = np.linalg.norm(neighbours_of_every_row() - minimiser(X, Y), axis=1)
    assert profiled.is_noiseless
    assert np.all(profiled.loss == np.inf)
    assert np.all(profiled.loss_low == np.inf)
    assert np.all(profiled.expected == np.inf)
    assert np.all(profiled.posterior == 1.0)
    assert profiled.worst_case == np.inf
    assert np.array_equal(profiled.ranking, np.argsort(-apart, kind="stable"))
    assert any("no noise" in notice for notice in profiled.notices)
    assert "no noise" in str(profiled)
    assert json.loads(profiled.to_json())["table"]["loss"] == ["infinity"] * N
    assert json.loads(profiled.to_json())["worst_case"] == "infinity"


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (PrivateLinearSVC(epsilon=3.0, data_norm=1.0, classes=[-1.0, 1.0], **OUTPUT), Y),
        (
            PrivateRidge(
                epsilon=3.0, data_norm=1.0, label_range=(-2.0, 2.0), huber_width=None, **OUTPUT
            ),
            TARGET,
        ),
        (
            PrivateRidge(
                epsilon=3.0,
                data_norm=1,
                label_range=(-1, 1),
                huber_width=None,
                **{**OUTPUT, "noise": "gaussian", "delta": 1e-5},
            ),
            TARGET,
        ),
    ],
    ids=["svc", "ridge", "gaussian ridge, clipped labels"],
)
def test_other_estimators(model, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClippedRowsWarning)
        model.fit(X, y)
        profiled = profile(model, X, y)
    assert np.all(np.isfinite(profiled.loss))
    assert np.max(profiled.loss_high - profiled.loss_low) <= 0.01
    assert profiled.neighbours.base.shape == (D + 1,)
    if model.noise == "laplace":
        assert np.all(profiled.exposure <= 3.0)


# The neighbouring relations.


def test_people_who_are_not_in_the_data(fitted):
    """ADD: log p(θ ∣ D ∪ z) − log p(θ ∣ D); > 0 still is evidence that z was there."""
    profiled = profile(fitted, X, Y, relation="add", candidates=OTHERS)
    theta, base = fitted.release_.theta, minimiser(X, Y)
    beta = fitted.release_.mechanism.law.rate
    for k in range(5):
        larger = minimiser(np.vstack([X, OTHERS[0][k]]), np.append(Y, OTHERS[1][k]))
        loss = beta * (np.linalg.norm(theta - base) - np.linalg.norm(theta - larger))
        assert profiled.loss_low[k] - 1e-9 <= loss <= profiled.loss_high[k] + 1e-9
        assert profiled.loss[k] == pytest.approx(loss, abs=1e-3)
    assert len(profiled) == 5
    assert profiled.rows == N
    assert profiled.relation is Neighbouring.ADD
    assert "5 candidates" in str(profiled)


@pytest.mark.parametrize("single", [True, False])
def test_rows_exchanged(fitted, single):
    candidates = (OTHERS[0][:1], OTHERS[1][:1]) if single else (X[::-1] / 2, -Y)
    profiled = profile(fitted, X, Y, relation=Neighbouring.REPLACE, candidates=candidates)
    theta, base = fitted.release_.theta, minimiser(X, Y)
    beta = fitted.release_.mechanism.law.rate
    for row in (0, 17, 59):
        swapped, labels = X.copy(), Y.copy()
        swapped[row], labels[row] = (part[0 if single else row] for part in candidates)
        other = minimiser(swapped, labels)
        loss = beta * (np.linalg.norm(theta - other) - np.linalg.norm(theta - base))
        assert profiled.loss_low[row] - 1e-9 <= loss <= profiled.loss_high[row] + 1e-9
    assert len(profiled) == N


@pytest.mark.parametrize(
    ("options", "word"),
    [
        # Other candidates that are refused: tests/test_neighbours.py.
        ({"relation": "drop"}, "relation"),
        ({"relation": "add"}, "candidates"),
        ({"candidates": OTHERS}, "candidates"),
        ({"relation": "replace", "candidates": OTHERS}, "candidates"),
        ({"relation": "add", "candidates": (OTHERS[0][:, :2], OTHERS[1])}, "columns"),
        ({"relation": "add", "candidates": (OTHERS[0], OTHERS[1] * 3)}, "labels"),
        ({"relation": "add", "candidates": (OTHERS[0] * np.nan, OTHERS[1])}, "NaN"),
        ({"ids": range(5)}, "ids"),
    ],
    ids=range(8),
)
def test_wrong_options_are_refused(fitted, options, word):
    with pytest.raises(InvalidInput, match=word):
        profile(fitted, X, Y, **options)


# What counts as a model.


def test_every_form_of_the_same_model_gives_the_same_profile(fitted, profiled, tmp_path):
    release = fitted.release_
    path = fitted.save(tmp_path / "model.json")
    rows, _ = release.ball.rows(X)
    ways = [
        (release, X),
        (str(path), X),
        (path, X),
        (PrivateLogisticRegression.load(path), X),
        (make_pipeline(fitted), X),
    ]
    for model, features in ways:
        again = profile(model, features, Y)
        assert again.loss.tobytes() == profiled.loss.tobytes()
        assert again.description == profiled.description
    bare = profile(release.theta, rows, Y, mechanism=release.mechanism)
    assert bare.loss.tobytes() == profiled.loss.tobytes()
    bare = profile(release.theta.tolist(), rows, Y, mechanism=release.mechanism)
    assert bare.loss.tobytes() == profiled.loss.tobytes()


def test_a_pipeline_transforms_rows_and_candidates():
    raw = 100 + 7 * X
    pipeline = make_pipeline(StandardScaler(), logistic(data_norm=5.0))
    pipeline.fit(raw, Y)
    profiled = profile(pipeline, raw, Y)
    scaled = pipeline[:-1].transform(raw)
    assert profiled.loss.tobytes() == profile(pipeline[-1], scaled, Y).loss.tobytes()
    candidates = (100 + 7 * OTHERS[0], OTHERS[1])
    added = profile(pipeline, raw, Y, relation="add", candidates=candidates)
    by_hand = profile(
        pipeline[-1],
        scaled,
        Y,
        relation="add",
        candidates=(pipeline[:-1].transform(candidates[0]), OTHERS[1]),
    )
    assert added.loss.tobytes() == by_hand.loss.tobytes()


def test_any_two_labels_and_frames(profiled):
    names = ["age", "hours", "gain"]
    words = np.where(Y > 0, "rich", "poor")
    for frame in (pd.DataFrame(X, columns=names), pl.DataFrame(X, schema=names)):
        model = logistic(classes=["poor", "rich"]).fit(frame, words)
        again = profile(model, frame, pd.Series(words))
        assert np.allclose(again.distance, profiled.distance, rtol=1e-12)
        assert model.release_.feature_names == tuple(names)


@pytest.mark.parametrize(
    "model",
    [None, 3, object(), PrivateLogisticRegression(), np.zeros(D), "absent.json", b"bytes"],
    ids=lambda model: type(model).__name__,
)
def test_what_is_no_model_is_refused(model):
    with pytest.raises(InvalidInput):
        profile(model, X, Y)


def bare_mechanism(**changes):
    values = {
        "epsilon": 5.0,
        "loss": Logistic(),
        "regularization": 0.1,
        "rows": N,
        "dimension": D,
        **changes,
    }
    return OutputPerturbation(**values)


@pytest.mark.parametrize(
    ("theta", "rows", "y", "changes", "word"),
    [
        (np.zeros(D + 1), X, Y, {}, "model"),
        (np.array([0.0, np.nan, 0.0]), X, Y, {}, "NaN"),
        (np.zeros(D), X[:, :2], Y, {}, "columns"),
        (np.zeros(D), 2 * X, Y, {}, "unit ball"),
        (np.zeros(D), X, (Y + 1) / 2, {}, "labels"),
        (np.zeros(D), X, Y[:5], {}, "entries"),
        (np.zeros(D), X[:50], Y[:50], {}, "rows"),
        (np.zeros(D), X, 5 * TARGET, {"loss": Squared(label_bound=2.0)}, "label"),
    ],
    ids=["width", "nan", "columns", "outside", "labels", "short", "rows", "label bound"],
)
def test_bare_coefficients_must_fit(theta, rows, y, changes, word):
    with pytest.raises(InvalidInput, match=word):
        profile(theta, rows, y, mechanism=bare_mechanism(**changes))


# Rows that cannot have made the model.


CHANGES = {
    "rows reversed": (lambda X, y: (X[::-1], y), WrongRows),
    "labels turned": (lambda X, y: (X, -y), WrongRows),
    "labels rolled": (lambda X, y: (X, np.roll(y, 1)), WrongRows),
    "signs": (lambda X, y: (-X, y), WrongRows),
    "another centre": (lambda X, y: (X + 0.2, y), WrongRows),
    "columns reversed": (lambda X, y: (X[:, ::-1], y), WrongRows),
    "one row less": (lambda X, y: (X[:-1], y[:-1]), WrongRows),
    "one row more": (lambda X, y: (np.vstack([X, X[:1]]), np.append(y, y[0])), WrongRows),
    "shuffled": (lambda X, y: (np.random.default_rng(5).permuted(X, axis=0), y), WrongRows),
    "narrow": (lambda X, y: (X[:, :2], y), InvalidInput),
    "short labels": (lambda X, y: (X, y[:-1]), InvalidInput),
    "other labels": (lambda X, y: (X, y * 2), InvalidInput),
    "nan": (lambda X, y: (X * np.nan, y), InvalidInput),
}


class TestWrongRows:
    """Enough rows and ε that the noise is far smaller than what the mistakes move."""

    rng = np.random.default_rng(3)
    rows = rng.normal(size=(2000, D))
    rows /= np.linalg.norm(rows, axis=1).max()
    labels = np.where(rows @ np.array([3.0, -1.0, 0.5]) > 0, 1.0, -1.0)

    @pytest.fixture(scope="class", params=[("output", 50.0), ("objective", 5.0)])
    @classmethod
    def model(cls, request):
        mechanism, epsilon = request.param
        frame = pd.DataFrame(cls.rows, columns=["a", "b", "c"])
        given = {"mechanism": mechanism, "epsilon": epsilon, "regularization": 0.01}
        return logistic(**given).fit(frame, cls.labels)

    def frame(self, rows):
        return pd.DataFrame(rows, columns=["a", "b", "c"])

    def test_the_right_ones_are_accepted(self, model):
        assert len(profile(model, self.frame(self.rows), self.labels)) == 2000
        assert len(profile(model, self.rows, self.labels)) == 2000
        order = self.rng.permutation(2000)
        # All rows in another order, labels with them: the same data set.
        again = profile(model, self.rows[order], self.labels[order])
        straight = profile(model, self.rows, self.labels)
        assert np.allclose(again.loss, straight.loss[order], rtol=0, atol=1e-8)

    @pytest.mark.parametrize(("change", "error"), CHANGES.values(), ids=CHANGES)
    def test_others_are_refused(self, model, change, error):
        with pytest.raises(error):
            profile(model, *change(self.rows, self.labels))

    def test_other_columns_are_refused(self, model):
        for names in (["b", "a", "c"], ["a", "b", "d"], ["a", "b", "C"]):
            frame = pd.DataFrame(self.rows, columns=names)
            with pytest.raises(InvalidInput, match="a, b, c"):
                profile(model, frame, self.labels)

    @pytest.mark.parametrize("mechanism", ["output", "objective"])
    def test_another_encoding_is_refused(self, mechanism):
        given = {"mechanism": mechanism, "epsilon": 50.0, "regularization": 0.01}
        model = logistic(**given).fit(self.rows, self.labels)
        with pytest.raises(WrongRows):
            profile(model, StandardScaler().fit_transform(self.rows), self.labels)


# What the reader gets.


def test_notices_name_what_was_read_from_the_data_or_seeded():
    with pytest.warns((PrivacyLeakWarning, SeededReleaseWarning)):
        model = PrivateLogisticRegression(data_norm=1.0, random_state=3).fit(X, Y)
    profiled = profile(model, X, Y)
    text = " ".join(profiled.notices)
    assert "classes" in text
    assert "seed" in text
    assert profile(logistic().fit(X, Y), X, Y).notices == ()


COLUMNS = [
    "row",
    "rank",
    "loss",
    "loss_low",
    "loss_high",
    "exposure",
    "posterior",
    "certainty",
    "expected",
    "distance",
    "distance_error",
]


def same_table(table, profiled):
    assert table["row"] == list(range(N))
    assert table["loss"] == profiled.loss.tolist()
    assert table["expected"] == profiled.expected.tolist()
    assert [table["rank"][row] for row in profiled.ranking] == list(range(1, N + 1))


def test_the_docs_list_every_column(profiled):
    text = (Path(__file__).parents[1] / "docs" / "api" / "results.md").read_text()
    listed = re.findall(
        r"`([a-z_]+)`", text[text.index("| column |") : text.index("EpsilonChoice")]
    )
    assert listed[: len(FIGURES)] == list(FIGURES)


def test_to_arrow_and_frames(profiled):
    """Libraries and files: tests/test_table.py."""
    table = profiled.to_arrow()
    assert table.column_names == COLUMNS
    assert table.schema.metadata[b"audience"] == b"curator-only"
    same_table(table.to_pydict(), profiled)
    same_table(profiled.to_frame().to_dict("list"), profiled)


def test_to_json(profiled, tmp_path):
    value = json.loads(profiled.to_json())
    assert value["format"] == "expost-profile/2"
    assert value["audience"] == "curator-only"
    assert value["relation"] == "remove"
    assert value["worst_case"] == 5.0
    assert value["rows"] == N
    assert list(value["table"]) == COLUMNS
    same_table(value["table"], profiled)
    path = profiled.to_json(str(tmp_path / "profile.json"))
    assert path.name == "profile.CURATOR-ONLY.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == profiled.to_json()
    with pytest.raises(InvalidInput, match="path"):
        profiled.to_json(tmp_path / "profile")


def test_ids_key_every_result(fitted, profiled):
    """Keys of every kind: tests/test_table.py."""
    keyed = profile(fitted, X, Y, ids=pd.Series([f"é{k}" for k in range(N)]))
    first = keyed.key(int(keyed.ranking[0]))
    assert str(first) in str(keyed)
    assert profiled.key(3) == 3
    assert list(json.loads(keyed.to_json())["table"])[:2] == ["row", "id"]
    assert keyed.to_arrow()["id"][7].as_py() == "é7"
    assert np.array_equal(keyed.ranking, profiled.ranking)


def test_a_figure_that_is_no_number_is_not_written(profiled):
    import dataclasses

    losses = dataclasses.replace(profiled.losses, loss=np.full(N, np.nan))
    with pytest.raises(ArithmeticError):
        dataclasses.replace(profiled, losses=losses).to_json()


def test_groups_take_exposures_or_distances(profiled, fitted):
    """The views themselves are tested with their module."""
    levels = np.where(X[:, 0] > 0, "high", "low")
    assert len(profiled.by(levels, name="side")) == 2
    assert str(profiled.explain(X))
    exact = LogisticRegression(C=1.0, tol=1e-10, fit_intercept=False).fit(X, Y)
    assert len(profile(exact, X, Y).by(levels)) == 2


# Objective perturbation.

OBJECTIVE = {
    "laplace": {"mechanism": "objective"},
    "gaussian": {"mechanism": "objective", "noise": "gaussian", "delta": 1e-4},
    "published": {"mechanism": "objective", "calibration": "published"},
    "raised": {"mechanism": "objective", "regularization": 1e-4, "epsilon": 0.2},
}


@pytest.fixture(scope="module", params=OBJECTIVE)
def objective(request):
    model = logistic(**OBJECTIVE[request.param])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RaisedRegularizationWarning)
        return model.fit(X, Y)


def log_density(mechanism, X, y, theta):
    """log p(θ ∣ D) by its definition, but for the normaliser of b; λ and b's law are D's own."""
    p = 1 / (1 + np.exp(y * (X @ theta)))
    gradient = mechanism.penalty_sum * theta - X.T @ (y * p)
    hessian = mechanism.penalty_sum * np.eye(len(theta)) + (X * (p * (1 - p))[:, None]).T @ X
    norm = np.linalg.norm(gradient) / mechanism.resolution
    return np.linalg.slogdet(hessian)[1] - (norm if mechanism.noise == "laplace" else norm**2 / 2)


def test_objective_losses_by_their_definition(objective):
    profiled = profile(objective, X, Y)
    theta, mechanism = objective.release_.theta, objective.release_.mechanism
    here = log_density(mechanism, X, Y, theta)
    loss = np.array([here - log_density(mechanism, *without(row), theta) for row in range(N)])
    assert np.max(np.abs(profiled.loss - loss)) <= 1e-11
    assert np.all((profiled.loss_low <= loss + 1e-11) & (loss - 1e-11 <= profiled.loss_high))
    assert np.max(profiled.loss_high - profiled.loss_low) <= 1e-5
    slope = 1 / (1 + np.exp(Y * (X @ theta)))
    assert np.allclose(profiled.distance, slope * np.linalg.norm(X, axis=1), rtol=1e-12)
    assert np.array_equal(profiled.exposure, np.abs(profiled.loss))
    assert profiled.worst_case == mechanism.epsilon
    assert not profiled.is_noiseless
    assert not profiled.guarantee_exceeded
    if mechanism.noise == "laplace":
        assert np.max(profiled.exposure) <= mechanism.epsilon


def simulated(mechanism, relation, candidates, count=400):
    """Exposures (count, rows) over other releases."""
    problem = expost.glm.Objective.of(
        X=X, y=Y, loss=mechanism.loss, penalty=np.full(D, mechanism.total_regularization)
    )
    noise = mechanism.law.sample(count, np.random.default_rng(5))
    models = perturbed_minimisers(problem, noise / N)
    return np.abs(
        [
            Tangent.at(mechanism, problem, t)
            .row_losses(changed(problem, relation, candidates))
            .loss
            for t in models
        ]
    )


@pytest.mark.parametrize("relation", Neighbouring, ids=lambda relation: relation.value)
def test_expected_loss_under_objective_perturbation_is_the_mean_of_releases(relation):
    """Sampled: five standard errors of both sides; × 1.3 is rejected."""
    model = logistic(epsilon=10.0, **OBJECTIVE["laplace"]).fit(X, Y)
    candidates = {
        Neighbouring.REMOVE: None,
        Neighbouring.ADD: OTHERS,
        Neighbouring.REPLACE: (X[::-1] / 2, -Y),
    }[relation]
    profiled = profile(model, X, Y, relation=relation, candidates=candidates)
    exposures = simulated(model.release_.mechanism, relation, candidates)
    error = np.hypot(profiled.expected_error, exposures.std(axis=0) / 20)
    assert np.all(profiled.expected_error > 0)
    assert np.all(np.abs(profiled.expected - exposures.mean(axis=0)) <= 5 * error)
    pooled = exposures.mean(axis=1)
    slack = 5 * pooled.std() * np.sqrt(1 / 64 + 1 / 400)
    assert abs(1.3 * profiled.expected.mean() - pooled.mean()) > slack
    # Drawn from a fixed seed: another look gives the same figures.
    again = profile(model, X, Y, relation=relation, candidates=candidates)
    assert again.expected.tobytes() == profiled.expected.tobytes()


def test_expected_loss_under_objective_perturbation_is_drawn_on_demand(monkeypatch):
    model = logistic(**OBJECTIVE["laplace"]).fit(X, Y)

    def fail(*_, **__):
        raise AssertionError("nothing needs sampled releases")

    monkeypatch.setattr(expost.mechanisms.sampling, "expected_exposures", fail)
    profiled = profile(model, X, Y)
    assert len(profiled.loss) == N
    with pytest.raises(AssertionError, match="sampled"):
        _ = profiled.expected


def test_objective_without_noise_ranks_by_how_far_a_row_moves_the_minimiser():
    """λ is kept, so that removing a row leaves the penalty of the sum: Λn/(n − 1) of the mean."""
    model = logistic(epsilon=math.inf, mechanism="objective").fit(X, Y)
    profiled = profile(model, X, Y)
    others = np.array([minimiser(*without(row), 0.1 * N / (N - 1)) for row in range(N)])
    apart = np.linalg.norm(others - minimiser(X, Y), axis=1)
    assert profiled.is_noiseless
    assert np.all(profiled.loss == np.inf)
    assert np.allclose(profiled.distance, apart, rtol=2e-3)
    assert profiled.ranking[0] == np.argmax(apart)


def test_a_squared_loss_has_a_notice_that_nothing_is_guaranteed():
    model = PrivateRidge(
        **{**OUTPUT, "mechanism": "objective"},
        data_norm=1.0,
        label_range=(-2.0, 2.0),
        huber_width=None,
    )
    with pytest.warns(NoGuaranteeWarning):
        model.fit(X, TARGET)
    profiled = profile(model, X, TARGET)
    assert profiled.worst_case == np.inf
    assert any("guarantees no epsilon" in notice for notice in profiled.notices)
    assert "no ε is guaranteed" in str(profiled)
    assert json.loads(profiled.to_json())["worst_case"] == "infinity"
