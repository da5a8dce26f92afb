"""Members and non-members that differ, or not, without the model: false alarms and power."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier

import evidence
import expost
from expost._counts import Share
from expost.auditing import arrays_of, audit_arrays
from expost.auditing.shift import LEVEL, blind_features, detect_shift, rank_p_value

PATIENTS = load_breast_cancer()


def split(rng, rows):
    truth = np.zeros(rows, dtype=bool)
    truth[rng.permutation(rows)[: rows // 2]] = True
    return truth


def compared(X, y, truth, seed=0):
    return detect_shift(X, y, truth, classes=True, confidence=0.95, seed=seed)


def normal(rng, rows=400, columns=6):
    return rng.normal(size=(rows, columns)), rng.integers(0, 2, rows)


def test_p_values_are_valid_for_every_scorer():
    """Scores that were fitted to the memberships of earlier parts, ties and all."""
    rng = np.random.default_rng(0)
    values = []
    for _ in range(400):
        parts, seen = [], np.zeros(4)
        for _ in range(3):
            cells, truth = rng.integers(0, 4, 30), split(rng, 30)
            # An overfitted scorer: the share of members in each cell so far.
            parts.append((seen[cells], truth))
            seen += np.bincount(cells[truth], minlength=4) - np.bincount(cells[~truth], minlength=4)
        values.append(rank_p_value(parts, rng, 199))
    values = np.array(values)
    for level in (0.01, 0.05, 0.2, 0.5):
        # False alarm of this test: 1e-4 for each level.
        assert Share(hits=int(np.sum(values <= level)), trials=400, confidence=0.9998).low <= level
    # And they are not needlessly large.
    assert np.mean(values <= 0.5) > 0.35


def test_p_values_agree_with_enumeration():
    """One part of five rows, two members: the exact share of the ten subsets."""
    scores, truth = np.array([5.0, 4.0, 3.0, 2.0, 1.0]), np.array([True, False, True, False, False])
    values = [
        rank_p_value([(scores, truth)], np.random.default_rng(seed), 999) for seed in range(9)
    ]
    # Rank sums of at least 8: {5,4} and {5,3}.
    assert np.mean(values) == pytest.approx(0.2, abs=0.02)
    assert rank_p_value([(scores, np.ones(5, dtype=bool))], np.random.default_rng(0)) == 1


@pytest.mark.parametrize("kind", ["mean", "spread", "label", "category", "missing"])
def test_made_up_shifts_are_found(kind):
    rng = np.random.default_rng(1)
    X, y = normal(rng, 1000)
    truth = split(rng, 1000)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    frame["town"] = rng.choice(["north", "south", "west"], 1000)
    assert not compared(frame, y, truth).is_detected
    if kind == "mean":
        frame.loc[truth, "a"] += 0.6
    if kind == "spread":
        frame.loc[truth, "a"] *= 2
    if kind == "label":
        y = np.where(truth & (rng.random(1000) < 0.4), 1, y)
    if kind == "category":
        frame.loc[truth & (rng.random(1000) < 0.4), "town"] = "east"
    if kind == "missing":
        frame.loc[truth & (rng.random(1000) < 0.15), "b"] = np.nan
    shift = compared(frame, y, truth)
    assert shift.is_detected
    assert shift.auc.value > 0.55
    # The estimated propensities are those of members and of non-members.
    assert shift.propensity[truth].mean() > shift.propensity[~truth].mean() + 0.02


def test_the_estimated_propensity_is_near_the_true_one():
    rng = np.random.default_rng(2)
    X, y = normal(rng, 4000, 3)
    chance = 1 / (1 + np.exp(-1.5 * X[:, 0]))
    truth = rng.random(4000) < chance
    shift = compared(X, y, truth)
    assert np.mean(np.abs(shift.propensity - chance)) < 0.06


def test_rows_of_every_kind():
    rng = np.random.default_rng(3)
    X, y = normal(rng, 100)
    truth = split(rng, 100)
    frame = pd.DataFrame(X)
    frame[6] = pd.to_datetime("2026-01-01") + pd.to_timedelta(np.arange(100), unit="D")
    for rows in (X, scipy.sparse.csr_matrix(X), frame, X.reshape(100, 2, 3), X.astype(object)):
        assert 0 < compared(rows, y, truth).p_value <= 1
    wide = np.hstack([X] * 60)
    assert blind_features(wide, None, classes=True, seed=0).shape == (100, 256)
    assert compared(np.ones((100, 2)), np.zeros(100), truth).p_value > LEVEL
    # Too few rows to test.
    assert compared(X[:20], y[:20], truth[:20]) is None
    # The same seed, the same figures; memberships have no part in the features.
    assert compared(X, y, truth).p_value == compared(X, y, truth).p_value


def test_an_audit_compares_first():
    """A forest, and non-members that were measured on another scale."""
    X, y = PATIENTS.data[:, :5], PATIENTS.target
    truth = split(np.random.default_rng(4), len(y))
    forest = RandomForestClassifier(20, random_state=0).fit(X[truth], y[truth])
    same = expost.audit(
        forest, X[truth], y[truth], X[~truth], y[~truth], references=0, random_state=0
    )
    assert same.shift is not None
    assert not same.is_confounded
    moved = expost.audit(
        forest, X[truth], y[truth], 1.15 * X[~truth], y[~truth], references=0, random_state=0
    )
    assert moved.is_confounded
    assert moved.aggregate()["shift"]["detected"]
    assert "blind" in moved.columns()
    assert "no evidence" in str(moved).splitlines()[0]
    # A model that is trained here needs no test.
    trained = expost.audit(RandomForestClassifier(5), X, y, references=0, random_state=0)
    assert trained.shift is None
    assert trained.chosen_by == "coins"


@pytest.mark.filterwarnings("ignore::expost.errors.SeededReleaseWarning")
@pytest.mark.parametrize(
    "stated", [{"coins": True}, {"propensity": 0.5}, {"propensity": 0.51}], ids=str
)
def test_a_shift_contradicts_coins_of_one_probability(stated):
    """Non-members of other labels: a bound that rested on the statement would refute ε = ½."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(1200, 4))
    y = (X[:, 0] + 0.3 * rng.normal(size=1200) > 0).astype(int)
    truth = np.arange(1200) < 600
    model = expost.PrivateLogisticRegression(
        epsilon=0.5, delta=1e-6, data_norm=6.0, classes=(0, 1), random_state=0
    ).fit(X[truth], y[truth])

    def audited(labels, **options):
        return expost.audit(
            *(model, X[truth], y[truth], X[~truth], labels),
            **{"references": 0, "random_state": 0} | options,
        )

    believed = audited(y[~truth], **stated)
    assert not believed.is_confounded
    assert [bound.method.split(",")[0] for bound in believed.bounds] == ["One training"]
    shifted = audited(1 - y[~truth], **stated)
    assert shifted.is_confounded
    assert shifted.bounds == ()
    assert not shifted.guarantee_refuted
    assert shifted.shift.bound.epsilon >= 0
    text = str(shifted)
    assert text.startswith("Members and non-members differ")
    assert "is refuted" not in text
    assert "contradicts" in text
    # Trainings with coins of their own hold all the same, and so do propensities by design.
    many = audited(1 - y[~truth], **stated, references=32)
    assert ["One training" in bound.method for bound in many.bounds] == [False]
    chances = np.where(truth, 0.9, 0.1)
    known = audited(1 - y[~truth], propensity=chances)
    assert not known.is_confounded
    assert [bound.method for bound in known.bounds] == ["One training, propensities"]


def test_arrays_with_features(tmp_path):
    rng = np.random.default_rng(5)
    X, _ = normal(rng, 300)
    truth = split(rng, 300)
    loss = rng.exponential(size=300)
    without = audit_arrays(arrays_of(losses=loss, member=truth))
    assert without.shift is None
    assert "not compared" in str(without)
    X[truth, 0] += 2
    found = audit_arrays(arrays_of(losses=loss, member=truth, features=X))
    assert found.is_confounded
    np.savez(tmp_path / "a.npz", losses=loss, member=truth, features=X)
    assert audit_arrays(tmp_path / "a.npz").shift.p_value == found.shift.p_value
    table = pd.DataFrame({"loss": loss, "member": truth.astype(int), "feature_a": X[:, 0]})
    table["feature_town"] = np.where(truth, "north", None)
    table["propensity"] = 0.5
    table.to_csv(tmp_path / "a.csv", index=False)
    read = audit_arrays(tmp_path / "a.csv")
    assert read.shift.auc.value > 0.9
    assert read.bounds == ()
    table["propensity"] = np.where(truth, 0.9, 0.1)
    table.to_csv(tmp_path / "a.csv", index=False)
    read = audit_arrays(tmp_path / "a.csv")
    assert [bound.method for bound in read.bounds] == ["One training, propensities"]


def test_an_attack_of_chance_does_not_exceed_a_blind_attack_below_chance():
    """Every member is also a non-member: a classifier that learned the others is wrong about it."""
    rng = np.random.default_rng(8)
    X = np.repeat(rng.normal(size=(200, 2)), 2, axis=0)
    truth = np.arange(400) % 2 == 0
    audit = audit_arrays(arrays_of(losses=rng.normal(size=400) ** 2, member=truth, features=X))
    assert audit.shift.auc.high < 0.45
    assert audit.figures["loss"].auc.low < 0.5
    assert not audit.exceeds_blind("loss")
    # Power: losses that tell members apart.
    told = audit_arrays(arrays_of(losses=np.where(truth, 0.1, 1), member=truth, features=X))
    assert told.exceeds_blind("loss")


SIZES = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)


@pytest.mark.long
def test_false_alarms_and_power():
    """Exchangeable splits of normal rows and of patients, and means that were moved."""
    figures = {}
    rng = np.random.default_rng(10)
    cases = {"normal, 200 rows": 200, "normal, 1,000 rows": 1000, "patients": 569}
    trials = 400
    for name, rows in cases.items():
        alarms = []
        for seed in range(trials):
            if name == "patients":
                X, y = PATIENTS.data[:, :6], PATIENTS.target
            else:
                X, y = normal(rng, rows)
            alarms.append(compared(X, y, split(rng, rows), seed).is_detected)
        hits = int(np.sum(alarms))
        assert Share(hits=hits, trials=trials, confidence=0.9998).low <= LEVEL
        figures[name] = {"trials": trials, "false_alarms": hits}
    power = {}
    for rows in (400, 2000):
        for size in SIZES[1:]:
            found, areas = [], []
            for seed in range(20):
                X, y = normal(rng, rows)
                truth = split(rng, rows)
                X[truth, 0] += size
                shift = compared(X, y, truth, seed)
                found.append(shift.is_detected)
                areas.append(shift.auc.value)
            power[f"{rows} rows, mean moved by {size:g} standard deviations"] = {
                "detected": float(np.mean(found)),
                "mean_blind_auc": float(np.mean(areas)),
            }
    assert power["2000 rows, mean moved by 0.5 standard deviations"]["detected"] > 0.95
    evidence.record(
        "audit-shift",
        command="pytest -m long tests/auditing/test_shift.py",
        seed=10,
        figures={"level": LEVEL, "exchangeable": figures, "trials_of_power": 20, "power": power},
    )
