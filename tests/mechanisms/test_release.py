"""model.json: byte-exact, strict, whole or absent, never a pickle."""

import copy
import hashlib
import json
import math
import os
import stat

import numpy as np
import pytest

from expost import (
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    profile,
)
from expost.data import UnitBall
from expost.errors import (
    InvalidInput,
    NoGuaranteeWarning,
    RaisedRegularizationWarning,
)
from expost.losses import HuberHinge, Logistic, Squared
from expost.mechanisms import OutputPerturbation
from expost.release import Release
from expost.types import Audience
from settings import OUTPUT

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
X /= np.linalg.norm(X, axis=1).max()
LABELS = np.where(X[:, 0] > 0, "yes", "no")
TARGET = X @ np.array([1.0, -2.0, 0.5])

GAUSSIAN = {"noise": "gaussian", "delta": 1e-6}
CLASSES = {"classes": ["no", "yes"]}
RANGE = {"label_range": (-3.0, 3.0), "huber_width": None}
OBJECTIVE = {**OUTPUT, "mechanism": "objective"}
ESTIMATORS = {
    "logistic": (PrivateLogisticRegression(**OUTPUT, data_norm=1.0, **CLASSES), LABELS),
    "gaussian": (
        PrivateLogisticRegression(epsilon=2, **(OUTPUT | GAUSSIAN), data_norm=1.0, **CLASSES),
        LABELS,
    ),
    "numbers for labels": (
        PrivateLogisticRegression(**OUTPUT, data_norm=1, classes=[0, 2], fit_intercept=False),
        np.where(LABELS == "yes", 2, 0),
    ),
    "truths for labels": (
        PrivateLogisticRegression(**OUTPUT, data_norm=1.0, classes=[False, True]),
        LABELS == "yes",
    ),
    "huber": (
        PrivateLinearSVC(epsilon=0.1, **OUTPUT, data_norm=2, huber_width=0.25, **CLASSES),
        LABELS,
    ),
    "ridge": (
        PrivateRidge(**(OUTPUT | {"intercept_scaling": 0.3}), data_norm=1.5, **RANGE),
        TARGET,
    ),
    "no noise": (
        PrivateRidge(epsilon=math.inf, **OUTPUT, data_norm=1.0, **RANGE),
        TARGET,
    ),
    "automatic": (
        PrivateRidge(
            **(OUTPUT | {"regularization": "auto"}),
            data_norm=1.0,
            **(RANGE | {"label_range": (-np.float32(3), np.float32(3))}),
        ),
        TARGET,
    ),
    "defaults": (PrivateLogisticRegression(data_norm=1.0, **CLASSES), LABELS),
    "objective": (PrivateLogisticRegression(**OBJECTIVE, data_norm=1.0, **CLASSES), LABELS),
    "objective, gaussian": (
        PrivateLogisticRegression(2, **(OBJECTIVE | GAUSSIAN), data_norm=1.0, **CLASSES),
        LABELS,
    ),
    "objective, published": (
        PrivateLinearSVC(
            **OBJECTIVE, calibration="published", data_norm=2, huber_width=0.25, **CLASSES
        ),
        LABELS,
    ),
    "objective, no noise": (
        PrivateLogisticRegression(math.inf, **OBJECTIVE, data_norm=1.0, **CLASSES),
        LABELS,
    ),
}


def fitted(name="logistic"):
    estimator, y = ESTIMATORS[name]
    return copy.deepcopy(estimator).fit(X, y)


def written(tmp_path, name="logistic"):
    """The path of a model.json and what it holds."""
    path = fitted(name).save(tmp_path / "model.json")
    return path, json.loads(path.read_text())


def sealed(value):
    """The same with a checksum that fits, so that the other checks are what is tested."""
    if not isinstance(value, dict) or "sha256" not in value:
        return value
    fields = {name: field for name, field in value.items() if name != "sha256"}
    seal = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    return {**fields, "sha256": seal}


def test_an_edit_that_stays_on_the_grid_is_found_by_the_checksum(tmp_path):
    path, value = written(tmp_path)
    value["theta"][0] += 0.5
    path.write_text(json.dumps(sealed(value)))
    Release.load(path)
    path.write_text(json.dumps(value))
    with pytest.raises(InvalidInput, match="sha256"):
        Release.load(path)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_round_trip_is_byte_exact(tmp_path, name):
    model = fitted(name)
    first = model.save(tmp_path / "model.json").read_bytes()
    loaded = type(model).load(tmp_path / "model.json")
    assert loaded.save(tmp_path / "again.json").read_bytes() == first
    assert loaded.release_.theta.tobytes() == model.release_.theta.tobytes()
    assert loaded.release_.mechanism == model.release_.mechanism
    assert loaded.release_.mechanism.grid.step if loaded.release_.mechanism.is_private else True
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert repr(loaded.release_) == repr(model.release_)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_file_says_what_it_is(tmp_path, name):
    path, value = written(tmp_path, name)
    model = fitted(name)
    assert value["format"] == "expost-model/1"
    assert value["n"] == 60
    assert value["audience"] == ("needs-review" if "no noise" in name else "public")
    assert value["meaning"] == Audience(value["audience"]).meaning
    assert value["seeded"] is False
    assert value["read_from_data"] == []
    assert len(value["theta"]) == 3 + model.fit_intercept
    assert value["mechanism"]["epsilon"] == ("infinity" if "no noise" in name else model.epsilon)
    assert value["mechanism"]["kind"] == model.release_.mechanism.kind
    assert value["mechanism"].get("calibration", "tight") == model.calibration
    assert "NaN" not in path.read_text()
    assert "Infinity" not in path.read_text()


def test_what_may_not_be_published_is_readable_by_its_owner_alone(tmp_path):
    old = os.umask(0)
    try:
        public = fitted().save(tmp_path / "public.json")
        private = fitted("no noise").save(tmp_path / "private.json")
    finally:
        os.umask(old)
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    assert stat.S_IMODE(private.stat().st_mode) == 0o600


def test_the_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: done.append("fsync") or fsync(handle))
    monkeypatch.setattr(
        os, "replace", lambda *names, **at: done.append("replace") or replace(*names, **at)
    )
    fitted().save(tmp_path / "model.json")
    assert done[:2] == ["fsync", "replace"]


def test_no_pickle_is_written_or_read(tmp_path, monkeypatch):
    import pickle

    def fail(*_, **__):
        raise AssertionError("model.json is no pickle")

    for name in ("dump", "dumps", "load", "loads"):
        monkeypatch.setattr(pickle, name, fail)
    model = fitted()
    path = model.save(tmp_path / "model.json")
    Release.load(path)
    path.write_bytes(b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00]\x94.")
    with pytest.raises(InvalidInput, match=r"model\.json"):
        Release.load(path)


def test_random_damage_never_raises_anything_but_invalid_input(tmp_path):
    """A changed byte is refused, or it is one that changes no constant (a name, a space)."""
    path, _ = written(tmp_path)
    content = path.read_bytes()
    rng = np.random.default_rng(3)
    refused = 0
    for _ in range(400):
        damaged = bytearray(content)
        damaged[int(rng.integers(len(content)))] = int(rng.integers(256))
        path.write_bytes(bytes(damaged))
        try:
            Release.load(path)
        except InvalidInput:
            refused += 1
    assert refused >= 350


def edited(value, keys, new):
    """``value`` with one field, named by its path, exchanged."""
    result = copy.deepcopy(value)
    inner = result
    for key in keys[:-1]:
        inner = inner[key]
    if new is None and keys[-1] in inner:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = new
    return result


WRONG = [None, "text", -3, 1.5, 10**400, True, [], {}, [1, 2, 3], {"name": 3}, "infinity"]


@pytest.mark.parametrize("name", ["logistic", "objective"])
def test_missing_and_wrong_fields_are_refused(name):
    value = json.loads(json.dumps(fitted(name).release_.to_json()))
    fields = [(key, inner) for key in value if isinstance(value[key], dict) for inner in value[key]]
    if name == "logistic":
        fields += [(key,) for key in value if key != "sha256"]
        assert len(fields) >= 24
    for keys in fields:
        for wrong in WRONG:
            changed = edited(value, keys, wrong)
            if changed == value or (keys == ("encoding",) and wrong in ({}, {"name": 3})):
                continue
            # A value may also be another valid constant that nothing contradicts.
            if keys == ("unit_ball", "data_norm") and wrong == 1.5:
                continue
            with pytest.raises(InvalidInput):
                Release.from_json(sealed(changed))


@pytest.mark.parametrize(
    ("keys", "new"),
    [
        (("format",), "expost-model/2"),
        (("theta", 0), 0.1),
        (("theta", 0), 1e300),
        (("n",), 61),
        (("n",), 60.0),
        (("regularization",), 2.0),
        (("mechanism", "epsilon"), 0.5),
        (("mechanism", "epsilon"), math.inf),
        (("mechanism", "noise"), "gaussian"),
        (("mechanism", "scale"), 0.0),
        (("mechanism", "delta"), 1e-5),
        (("classes",), ["no", "no"]),
        (("classes",), ["no", "perhaps", "yes"]),
        (("classes",), [["no"], ["yes"]]),
        (("classes",), [["no"], ["yes", "perhaps"]]),
        (("feature_names",), ["a", "b"]),
        (("audience",), "curator-only"),
    ],
    ids=str,
)
def test_edits_are_refused(tmp_path, keys, new):
    path, value = written(tmp_path)
    path.write_text(json.dumps(sealed(edited(value, keys, new))))
    with pytest.raises(InvalidInput, match=r"model\.json"):
        Release.load(path)
    with pytest.raises(InvalidInput):
        profile(path, X, LABELS)


def test_a_theta_between_the_grid_points_is_refused(tmp_path):
    path, value = written(tmp_path)
    value["theta"][1] = math.nextafter(value["theta"][1], 9.0)
    path.write_text(json.dumps(sealed(value)))
    with pytest.raises(InvalidInput, match="grid"):
        Release.load(path)


def test_an_ulp_of_another_machine_is_not_an_edit(tmp_path):
    """The scale follows from the other constants by floating-point work."""
    path, value = written(tmp_path, "gaussian")
    for name in ("scale", "sensitivity"):
        value["mechanism"][name] = math.nextafter(value["mechanism"][name], math.inf)
    path.write_text(json.dumps(sealed(value)))
    assert Release.load(path).theta.tolist() == value["theta"]


def release_of(**changes):
    values = {
        "theta": np.zeros(2),
        "mechanism": OutputPerturbation(
            epsilon=1.0, loss=Logistic(), regularization=1.0, rows=10, dimension=2
        ),
        "ball": UnitBall(data_norm=1.0, fit_intercept=False),
        "classes": np.array([0, 1]),
        **changes,
    }
    return Release(**values)


@pytest.mark.parametrize(
    "changes",
    [
        {"theta": np.zeros(3)},
        {"theta": np.array([0.0, np.nan])},
        {"theta": np.array([0.0, 0.1])},
        {"classes": None},
        {"classes": np.array([1, 1])},
        {"classes": np.array([1, 2, 3])},
        {"feature_names": ("a",)},
        {
            "mechanism": OutputPerturbation(
                epsilon=1.0,
                loss=Squared(label_bound=1.0),
                regularization=1.0,
                rows=10,
                dimension=2,
            )
        },
    ],
    ids=str,
)
def test_a_release_that_could_not_have_been_made(changes):
    release_of()
    with pytest.raises(InvalidInput):
        release_of(**changes)


def test_labels_that_json_does_not_know_are_not_saved(tmp_path):
    release = release_of(classes=np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[D]"))
    with pytest.raises(InvalidInput, match="classes"):
        release.save(tmp_path / "model.json")
    assert list(tmp_path.iterdir()) == []


def test_rows_come_as_the_objective_saw_them():
    """Clipped rows and labels, ±1, the intercept's column: all by the release's own constants."""
    model = fitted("ridge")
    problem = model.release_.problem(10 * X, 100 * TARGET)
    assert problem.held.X.shape == (60, 4)
    assert np.all(np.linalg.norm(problem.held.X, axis=1) <= 1)
    assert np.max(np.abs(problem.held.y)) == 1.0  # of ±3
    assert isinstance(problem.loss, Squared)
    assert np.all(problem.penalty == 1.0)
    svc = fitted("huber").release_
    assert svc.mechanism.loss == HuberHinge(width=0.25)
    assert np.array_equal(svc.problem(X, LABELS).held.y, np.where(LABELS == "yes", 1.0, -1.0))
    for bad_X, bad_y in (
        (X[:, :2], LABELS),
        (X, LABELS[:5]),
        (X, 3),
        (X, LABELS.astype("U9") + "?"),
    ):
        with pytest.raises(InvalidInput):
            svc.problem(bad_X, bad_y)


def test_theta_and_coefficients_predict_alike():
    model = fitted()
    coef, intercept = model.release_.coefficients
    rows, _ = model.release_.ball.rows(X)
    assert np.allclose(rows @ model.release_.theta, X @ coef + intercept, rtol=0, atol=1e-12)


# Objective perturbation.


@pytest.mark.parametrize(
    ("keys", "new"),
    [
        (("mechanism", "calibration"), "published"),
        (("mechanism", "kind"), "output"),
        (("mechanism", "penalty_sum"), 61.0),
        (("mechanism", "scale"), 1.0),
        (("mechanism", "epsilon"), 1.1),
        (("mechanism", "delta"), 1e-5),
        (("mechanism", "noise"), "laplace"),
        (("regularization",), 0.5),
        (("n",), 61),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["objective", "objective, gaussian"])
def test_edits_of_objective_perturbation_are_refused(tmp_path, name, keys, new):
    path, value = written(tmp_path, name)
    changed = edited(value, keys, new)
    if changed == value:
        return
    path.write_text(json.dumps(sealed(changed)))
    with pytest.raises(InvalidInput, match=r"model\.json"):
        Release.load(path)


def test_what_follows_from_the_constants_is_written_beside_them(tmp_path):
    _, value = written(tmp_path, "objective, gaussian")
    mechanism = fitted("objective, gaussian").release_.mechanism
    assert value["mechanism"]["penalty_sum"] == mechanism.penalty_sum == 60.0
    assert value["mechanism"]["scale"] == mechanism.law.scale
    assert "sensitivity" not in value["mechanism"]


def test_a_raised_regularization_is_kept_with_what_was_asked_for(tmp_path):
    model = PrivateLogisticRegression(
        0.01, mechanism="objective", regularization=1e-3, data_norm=1.0, classes=["no", "yes"]
    )
    with pytest.warns(RaisedRegularizationWarning, match=r"raised to 0\.83"):
        model.fit(X, LABELS)
    loaded = Release.load(model.save(tmp_path / "model.json"))
    assert loaded.mechanism.regularization == 1e-3
    assert loaded.mechanism.is_raised
    assert loaded.mechanism.penalty_sum == model.release_.mechanism.penalty_sum
    assert np.all(loaded.problem(X, LABELS).penalty == loaded.mechanism.total_regularization)


def test_a_release_that_guarantees_nothing_is_not_public(tmp_path):
    model = PrivateRidge(mechanism="objective", data_norm=1.0, **RANGE)
    with pytest.warns(NoGuaranteeWarning, match="has no epsilon guarantee"):
        model.fit(X, TARGET)
    assert model.release_.audience is Audience.NEEDS_REVIEW
    assert json.loads(model.save(tmp_path / "model.json").read_text())["audience"] == "needs-review"
