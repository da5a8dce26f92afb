"""Verdicts are decided by the numbers: right ones hold, falsified ones do not."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from expost.errors import InvalidInput
from papers.common.claims import Check, Claim, Verdict, quote
from papers.leblond.gaussian import GaussianTransition, gaussian_claim
from papers.leblond.onset import Onset, Sampled, protection_claim, scaling_claim
from papers.leblond.peak import Peak, peak_claim
from papers.leblond.points import farthest_row_claim, worst_case_claim
from papers.leblond.regimes import Regimes, onset_claim, range_claim, regimes_claim

HOLDS, PARTLY, FAILS = Verdict.HOLDS, Verdict.PARTLY, Verdict.FAILS


def check(value=1.0, relation="<=", bound=1.0):
    return Check(what="x", value=value, relation=relation, bound=bound)


@pytest.mark.parametrize(
    ("value", "relation", "bound", "passed"),
    [
        (1, "<", 2, True),
        (2, "<", 2, False),
        (2, "<=", 2, True),
        (3, "<=", 2, False),
        (2, ">=", 2, True),
        (1, ">=", 2, False),
        (2, "==", 2, True),
        (1, "==", 2, False),
    ],
)
def test_a_check_is_its_relation(value, relation, bound, passed):
    assert check(value, relation, bound).passed is passed
    assert not check(math.nan, relation, bound).passed


def claim(*passed):
    checks = tuple(check(1.0 if success else 2.0) for success in passed)
    return Claim(key="z", says="s", where="w", outcome="f", checks=checks)


def test_the_verdict_counts_the_checks():
    assert claim(True, True).verdict is HOLDS
    assert claim(True, False).verdict is PARTLY
    assert claim(False, False).verdict is FAILS
    with pytest.raises(InvalidInput, match="no checks"):
        claim()
    with pytest.raises(InvalidInput, match="relation"):
        check(relation="!=")


def test_json_is_strict():
    made = Claim(
        key="z", says="s", where="w", outcome="f", checks=(check(math.nan), check(math.inf))
    )
    text = json.dumps(made.to_json(), allow_nan=False)
    assert json.loads(text)["verdict"] == "does not hold"
    assert json.loads(text)["checks"][0] == {
        "what": "x",
        "value": None,
        "relation": "<=",
        "bound": 1.0,
        "passed": False,
    }
    assert quote(math.nan) == "not found"
    assert quote(14_123.0) == "14,100"


RANKS = 200


def ideal_regimes(*, shared=True, narrow=True, **changes):
    """Profiles whose ranks rise from 1 to 2 over a chosen range of β, in logistic steps of log β."""
    epsilons = 10.0 ** np.arange(-3, 6.01, 0.1)
    share = np.linspace(0, 1, RANKS)
    start = 1.0 if shared else 10 ** (-1.5 * share)
    # Ranks arrive earlier, the higher they are.
    width = (2 - share if narrow else 1 + share) * np.ones(RANKS)
    middle = np.log10(start) + width / 2
    slope = 2 * math.log(9) / width
    progress = 1 / (1 + np.exp(-slope * (np.log10(epsilons)[:, None] - middle)))
    given = {
        "epsilons": epsilons,
        "rate": 1.0,
        "profile": 1 + progress,
        "error": 0 * progress,
        "first": np.ones(RANKS),
        "last": 2 * np.ones(RANKS),
        "low": 0.05,
        "high": 0.5,
        "settled": 1e4,
        "single": (0.05, 0.5),
        "models": 1,
    }
    return Regimes(**(given | changes))


def test_three_regimes():
    right = ideal_regimes()
    assert regimes_claim(right).verdict is HOLDS
    early = right.epsilons <= right.low
    bumped = right.profile.copy()
    bumped[early] *= np.linspace(1.3, 1.0, early.sum())[:, None]
    assert regimes_claim(replace(right, profile=bumped)).verdict is PARTLY
    drifting = right.profile * np.where(right.epsilons >= 1e4, 1.2, 1.0)[:, None]
    assert regimes_claim(replace(right, profile=drifting)).verdict is PARTLY
    falling = right.profile.copy()
    falling[(right.epsilons > 10) & (right.epsilons < 300)] = 1.0
    assert regimes_claim(replace(right, profile=falling)).verdict is PARTLY
    # Nothing to look at is no evidence.
    assert regimes_claim(replace(right, low=1e-9)).verdict is PARTLY


def test_a_shared_onset():
    assert onset_claim(ideal_regimes()).verdict is HOLDS
    checks = {c.what[:12]: c.passed for c in onset_claim(ideal_regimes(shared=False)).checks}
    assert list(checks.values()) != [True] * 4
    assert onset_claim(ideal_regimes(shared=False)).verdict is PARTLY
    assert onset_claim(ideal_regimes(narrow=False)).verdict is PARTLY
    assert onset_claim(ideal_regimes(low=100.0)).verdict is PARTLY
    # A rank that never leaves is not overlooked.
    lost = ideal_regimes()
    profile = lost.profile.copy()
    profile[:, 50] = 1.0
    assert onset_claim(replace(lost, profile=profile)).verdict is not HOLDS


def test_an_order_of_magnitude():
    assert range_claim(ideal_regimes()).verdict is HOLDS
    assert range_claim(ideal_regimes(high=5.0)).verdict is PARTLY
    assert range_claim(ideal_regimes(high=5.0, single=(0.05, 5.0))).verdict is FAILS


def ideal_onset(**changes):
    distance = np.array([1e-6, 1e-5, 1e-4])
    given = {
        "rows": np.arange(3),
        "distance": distance,
        "critical": 3.87354 / distance,
        "sampled": tuple(Sampled(value=3.87 + 0.01 * k, error=0.01) for k in range(3)),
        "constant": 3.87354,
        "smallest": 3.87354 / 1e-4,
        "low": 10.0,
        "posterior": (0.6, 0.51),
        "exposure": (1.0, 0.95),
        "dimension": 2,
        "rate": 1.0,
    }
    return Onset(**(given | changes))


def test_the_onset_scales_with_one_over_the_distance():
    assert scaling_claim(ideal_onset()).verdict is HOLDS
    wrong = tuple(Sampled(value=v, error=0.01) for v in (3.87, 3.87, 4.2))
    assert scaling_claim(ideal_onset(sampled=wrong)).verdict is PARTLY
    # β* the same for all rows, whatever their distance.
    same = tuple(Sampled(value=v, error=0.01) for v in (0.0387, 0.387, 3.87))
    assert scaling_claim(ideal_onset(sampled=same, smallest=1.0)).verdict is FAILS
    lost = (Sampled(value=math.nan, error=math.nan), *ideal_onset().sampled[1:])
    assert scaling_claim(ideal_onset(sampled=lost)).verdict is PARTLY


def test_protection_below_the_onset():
    assert protection_claim(ideal_onset()).verdict is HOLDS
    assert protection_claim(ideal_onset(posterior=(0.83, 0.51))).verdict is PARTLY
    real = ideal_onset(posterior=(0.83, 0.51), exposure=(2.6, 0.25))
    assert protection_claim(real).verdict is FAILS


def table(distance, error=1e-3):
    """As much of a setting as the claims look at."""
    distance = np.asarray(distance)
    return SimpleNamespace(
        farthest=int(np.argmax(distance)),
        distance=distance,
        rows=len(distance),
        worst_case_error=np.full(len(distance), error),
        neighbours=SimpleNamespace(error_bound=1e-9 * distance),
    )


def test_the_farthest_row():
    distance = np.ones(30_000)
    distance[24_238] = 2
    assert farthest_row_claim(table(distance)).verdict is HOLDS
    assert farthest_row_claim(table(np.roll(distance, 1))).verdict is FAILS


def test_the_error_of_the_worst_case():
    good, bad = table(np.ones(9), 1.9e-3), table(np.ones(9), 2.1e-3)
    assert worst_case_claim(good, good).verdict is HOLDS
    assert worst_case_claim(good, bad).verdict is PARTLY
    assert worst_case_claim(bad, bad).verdict is FAILS


def ideal_peak(**changes):
    given = {
        "rows": np.arange(2),
        "distance": np.ones(2),
        "geometric": 3.8,
        "arithmetic": 3.9,
        "sampled": (Sampled(value=3.81, error=0.01), Sampled(value=3.79, error=0.01)),
        "onset": 3.87,
        "maxima": (1, 1),
        "decay": (1.0, 1.0),
        "ratio": (0.95, 0.95),
        "alike": 3.0,
        "dimension": 2,
    }
    return Peak(**(given | changes))


@pytest.mark.parametrize(
    "change",
    [
        {"geometric": 2.59, "sampled": ideal_peak().sampled},
        {"arithmetic": 3.05},
        {"maxima": (2, 1)},
        {"maxima": (1, 0)},
        {"decay": (1.0, 0.9)},
        {"ratio": (0.29, 0.95)},
        {"sampled": (Sampled(value=3.4, error=0.01),) * 2},
        {"onset": 5.0},
    ],
)
def test_the_coverage_peak(change):
    assert peak_claim(ideal_peak()).verdict is HOLDS
    assert peak_claim(ideal_peak(**change)).verdict is PARTLY


def ideal_gaussian(*, growth=0.0, **changes):
    inverse = 10.0 ** np.arange(-2, 3.01, 0.2)
    level = np.linspace(1, 2, 100)
    given = {
        "inverse_scales": inverse,
        "profile": level * np.where(inverse > 1, inverse, 1.0)[:, None] ** growth,
        "error": np.zeros((len(inverse), 100)),
        "first": level,
        "rows": np.arange(2),
        "distance": np.ones(2),
        "sampled": (Sampled(value=0.9, error=0.01),) * 2,
        "leaves": 0.902,
        "arrives": 2.353,
        "farthest": 1.0,
        "low": 1.0,
        "high": 2.0,
        "models": 1,
    }
    return GaussianTransition(**(given | changes))


def test_gaussian_noise():
    assert gaussian_claim(ideal_gaussian()).verdict is HOLDS
    assert gaussian_claim(ideal_gaussian(growth=1.0)).verdict is PARTLY
    off = (Sampled(value=1.0, error=0.01),) * 2
    assert gaussian_claim(ideal_gaussian(sampled=off)).verdict is PARTLY
    wrong = ideal_gaussian(growth=1.0, sampled=off)
    assert gaussian_claim(replace(wrong, first=2 * wrong.first)).verdict is FAILS
    assert "below every ε" in gaussian_claim(ideal_gaussian(low=0.0)).outcome
