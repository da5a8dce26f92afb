"""The law after an erasure is that of a fresh release without the rows; faults are rejected.

Each comparison raises a false alarm once in 10⁶ runs (``pairs.ALARM``); fresh releases are made by a
naive minimiser.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from erasure.pairs import (
    ALARM,
    FAULTS,
    Case,
    Setting,
    alarms,
    compared,
    direction,
    erased,
    line_advantage,
    rejected,
)
from evidence import record
from expost.erasure import coupling
from expost.risk import NormLaplaceNoise
from expost.rows import HeldRows, rows_at, without

PAIRS = 1500
CASES = [
    Case(kind=kind, noise=noise, separation=2.0, dimension=d)
    for kind in ("output", "objective")
    for noise in ("laplace", "gaussian")
    for d in (1, 2)
]
THRESHOLD = -ndtri(ALARM / 2)


def exact_advantage(case, setting):
    """T: in closed form, or by quadrature."""
    if case.kind == "objective":
        return line_advantage(setting)
    apart = float(np.linalg.norm(setting.pair.shift)) / setting.before.resolution
    if case.noise == "gaussian":
        return 1 - 2 * float(ndtr(-apart / 2))
    return NormLaplaceNoise(separation=apart, dimension=case.dimension).advantage


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_law_is_that_of_a_fresh_release(case):
    setting = case.setting()
    _, couplings = erased(setting, PAIRS, 1)
    found = compared(setting, couplings, 2)
    assert not rejected(found), found
    # Power: the present model itself, which is what erases nothing.
    before = setting.released(PAIRS, np.random.default_rng(3))
    fresh = setting.fresh(20 * PAIRS, np.random.default_rng(4))
    assert rejected(alarms(before, fresh, direction(setting)))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_faults_are_rejected(noise, fault):
    setting = Case(kind="output", noise=noise, separation=2.0).setting()
    _, couplings = erased(setting, 6000, 5, fault)
    assert rejected(compared(setting, couplings, 6))


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.kind == "output" or case.dimension == 1], ids=repr
)
def test_mean_keeping_and_tries(case):
    setting = case.setting()
    _, couplings = erased(setting, PAIRS, 7)
    advantage = exact_advantage(case, setting)
    kept = np.array([coupled.is_kept for coupled in couplings], dtype=float)
    keeping = np.array([coupled.keeping for coupled in couplings])
    spread = np.sqrt(advantage * (1 - advantage) / PAIRS)
    assert abs(kept.mean() - (1 - advantage)) < THRESHOLD * spread
    # The probabilities themselves vary less; the wrong T would be seen.
    middle, error = keeping.mean(), keeping.mean(axis=1).std() / np.sqrt(PAIRS)
    assert abs(middle - (1 - advantage)) < THRESHOLD * error
    assert abs(middle - (1 - 0.8 * advantage)) > THRESHOLD * error
    tries = np.array([coupled.tries for coupled in couplings], dtype=float)
    # A redraw takes 1/T tries on average, and its probability is T: E = 1, E of the square 2/T − 1.
    assert abs(tries.mean() - 1) < THRESHOLD * np.sqrt((2 / advantage - 2) / PAIRS)


def test_three_classes():
    case = Case(kind="objective", noise="gaussian", separation=2.5, dimension=1, classes=3)
    setting = case.setting()
    _, couplings = erased(setting, 1000, 8)
    assert not rejected(compared(setting, couplings, 9))
    _, wrong = erased(setting, 1000, 8, "wrong sign")
    assert rejected(compared(setting, wrong, 9))


def test_clamped_models_are_redrawn():
    setting = Case(kind="output", noise="gaussian", separation=1.0).setting()
    theta = np.array([setting.grid.clamp])
    (coupled,) = setting.coupled([theta], np.random.default_rng(0))
    assert not coupled.is_kept
    assert coupled.ratio is None
    assert coupled.keeping == (0.0, 0.0)


def test_requests_that_depend_on_the_model_break_the_law():
    """The counterexample of docs/theory/erasure.md: ask only where θ is below its median."""
    setting = Case(kind="output", noise="gaussian", separation=0.5).setting()
    rng = np.random.default_rng(14)
    before = setting.released(4000, rng)
    asked = before[before[:, 0] < np.median(before[:, 0])]
    after = np.array([coupled.theta for coupled in setting.coupled(asked, rng)])
    fresh = setting.fresh(40_000, rng)
    assert rejected(alarms(after, fresh, direction(setting)))
    # What is left: P(θ′ ∈ S ∣ asked) ≤ Q(S)/P(asked).
    for level in np.quantile(fresh[:, 0], (0.1, 0.3, 0.5, 0.7, 0.9)):
        share = np.mean(after[:, 0] < level)
        assert share < 2 * np.mean(fresh[:, 0] < level) + THRESHOLD * np.sqrt(0.5 / len(after))


def test_pair_gives_the_erased_person_an_advantage_of_total_variation():
    """Somebody who has both models: "in, then erased" against "never in"."""
    size = 6000
    setting = Case(kind="output", noise="gaussian", separation=1.0).setting()
    before, couplings = erased(setting, size, 15)
    after = np.array([coupled.theta for coupled in couplings])
    never = setting.fresh(size, np.random.default_rng(16))
    advantage = 1 - 2 * float(ndtr(-0.5))
    margin = THRESHOLD * np.sqrt(0.5 / size)
    redrawn = np.any(after != before, axis=1)
    assert abs(redrawn.mean() - advantage) < margin
    # Other attacks: the model before, the model after, redrawn or a threshold.
    levels = np.quantile(never[:, 0], np.linspace(0.02, 0.98, 49))
    for level in levels:
        for sign in (1, -1):
            first = sign * before[:, 0] > sign * level
            second = sign * after[:, 0] > sign * level
            base = np.mean(sign * never[:, 0] > sign * level)
            for guess in (first, second, first & second, first | redrawn, second | redrawn):
                assert np.mean(guess) - base < advantage + margin


# -- full counts -----------------------------------------------------------------------------------


@pytest.mark.long
def test_law_full_count():
    """10⁴ pairs for each mechanism, noise, dimension and separation, and all faults."""
    seed, size = 20_261_118, 10_000
    rows, faults = [], []
    for case in CASES:
        for separation in (0.5, 1.0, 2.0):
            at = replace(case, separation=separation)
            setting = at.setting()
            _, couplings = erased(setting, size, seed)
            fresh = setting.fresh(20 * size, np.random.default_rng(seed + 1))
            values, statistic, _ = found = compared(setting, couplings, fresh)
            row = {
                "case": at.name,
                "pairs": size,
                "p of KS": values,
                "energy over its mean": statistic,
                "kept": float(np.mean([coupled.is_kept for coupled in couplings])),
                "mean tries": float(np.mean([coupled.tries for coupled in couplings])),
            }
            if at.kind == "output" or at.dimension == 1:
                row["1 − T"] = 1 - exact_advantage(at, setting)
            print(row, flush=True)
            rows.append(row)
            assert not rejected(found)
        # The last separation is that of the case.
        assert separation == case.separation
        for fault in FAULTS:
            _, couplings = erased(setting, size, seed, fault)
            values, statistic, _ = found = compared(setting, couplings, fresh)
            least = min(values.values())
            faults.append({"case": case.name, "fault": fault, "p": least, "energy": statistic})
            print(faults[-1], flush=True)
            assert rejected(found)
    softmax = Case(kind="objective", noise="gaussian", separation=2.0, classes=3)
    setting = softmax.setting()
    _, couplings = erased(setting, 4000, seed)
    found = compared(setting, couplings, seed + 1)
    assert not rejected(found)
    record(
        "erasure-law",
        command="python -m pytest -m long tests/erasure/test_law.py",
        seed=seed,
        figures={
            "false-alarm rate of each comparison": ALARM,
            "comparisons": rows,
            "three classes, 4,000 pairs": {"p of KS": found[0], "energy over its mean": found[1]},
            "faults caught": len(faults),
            "faults": faults,
        },
    )


def test_a_redraw_ends_where_nothing_is_accepted(monkeypatch):
    """A row that changes nothing: with a coin inside the interval no draw is ever accepted."""
    monkeypatch.setattr(coupling, "_MOST_TRIES", 50)
    case = Case(kind="objective", noise="gaussian", separation=1.0)
    rows = case.data()
    rows.X[0] = 0.0
    whole = HeldRows(X=rows.X, y=rows.y)
    before = case.calibrated()
    after = before.with_rows(whole.count - 1)
    sides = [
        (mechanism, case.objective(mechanism, part))
        for mechanism, part in ((before, whole), (after, without(whole, np.array([0]))))
    ]
    setting = Setting.between(*sides, rows_at(whole, np.array([0])))
    rng = np.random.default_rng(0)
    (theta,) = setting.released(1, rng)
    assert abs(setting.pair.ratio(theta).loss) <= setting.pair.ratio(theta).error
    coupled = coupling.couple(setting.pair, theta, setting.grid, coin=0.0, rng=rng)
    assert (coupled.is_kept, coupled.tries) == (False, 50)
    assert setting.grid.holds(coupled.theta)
