"""What docs/groups.md advises for persons of k rows, against the δ(ε) that a person then has."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from conformance.line import Line, divergence, pair
from expost.accounting import gaussian_delta
from expost.losses import Logistic
from expost.mechanisms import ObjectivePerturbation, OutputPerturbation
from expost.risk import GaussianNoise, calibrate

PAGE = Path(__file__).parent.parent / "docs" / "groups.md"
EPSILON, DELTA = 1.0, 1e-5
SIZES = (2, 8)


def constants(epsilon, delta, penalty=1.0):
    """At ``penalty`` = λ, of 100 rows on a line."""
    return {
        "epsilon": epsilon,
        "delta": delta,
        "noise": "laplace" if delta is None else "gaussian",
        "loss": Logistic(),
        "regularization": penalty / 100,
        "rows": 100,
        "dimension": 1,
    }


def persons_delta(mechanism, k, tilt, noise=1.0):
    """δ(1) of k equal rows, σ × ``noise``; 10⁵ rows next to 0 add ``tilt`` to the gradient."""
    count = 100_000
    line = Line(
        x=np.array([1.0, -2 * tilt / count]),
        y=np.ones(2),
        times=np.array([k, count]),
        loss="logistic",
        penalty_sum=mechanism.penalty_sum,
        noise="gaussian",
        unit=noise * mechanism.resolution,
    )
    p, q = pair(line, line.without_first())
    return max(divergence(p, q, EPSILON), divergence(q, p, EPSILON))


def published(start):
    """The figures of the table's line that begins with ``start``, in units of δ, k = 2 and 8."""
    line = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {start}"))
    return [float(cell.replace(",", "")) for cell in re.findall(r"([0-9.,]+) δ", line)]


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("mechanism", [OutputPerturbation, ObjectivePerturbation])
def test_pure_noise_at_a_share_of_epsilon_keeps_epsilon(mechanism, k):
    perturbation = mechanism(**constants(EPSILON / k, None))
    guarantee = perturbation.guarantee(k)
    assert guarantee.epsilon(0.0) == pytest.approx(EPSILON, rel=1e-12)
    assert guarantee.delta(EPSILON * (1 + 1e-12)) == 0.0


@pytest.mark.parametrize("k", SIZES)
def test_k_times_the_noise_on_a_minimiser_keeps_epsilon_and_delta(k):
    """And ε/k at the same δ does not: the page has by how much."""
    noise = calibrate(GaussianNoise, epsilon=EPSILON, delta=DELTA)
    smaller = GaussianNoise(mu=noise.mu / k).epsilon(DELTA)
    assert smaller < EPSILON / k
    row = OutputPerturbation(**constants(EPSILON, DELTA))
    mechanism = OutputPerturbation(**constants(smaller, DELTA))
    assert mechanism.resolution == pytest.approx(k * row.resolution, rel=1e-6)
    assert mechanism.guarantee(k).delta(EPSILON) == pytest.approx(DELTA, rel=1e-5)
    share = OutputPerturbation(**constants(EPSILON / k, DELTA))
    mu = k * share.sensitivity / share.resolution
    times = gaussian_delta(EPSILON, mu) / DELTA
    assert times == pytest.approx({2: 2.55, 8: 12.26}[k], abs=0.01)
    shown = published("output perturbation, Gaussian, with ε/k")[SIZES.index(k)]
    assert times == pytest.approx(shown, abs=0.05)


@pytest.mark.parametrize("k", SIZES)
def test_k_times_the_noise_on_an_objective_does_not_keep_delta(k):
    """The determinant of k rows stays; where λ is large it hardly counts."""
    mechanism = ObjectivePerturbation(**constants(EPSILON, DELTA, penalty=1e-3))
    assert mechanism.is_raised
    worst = (
        max(persons_delta(mechanism, k, tilt, noise=k) for tilt in np.linspace(0, 60, 61)) / DELTA
    )
    assert worst > 30
    shown = published("objective perturbation, Gaussian, with k times")[SIZES.index(k)]
    assert shown <= worst <= 1.05 * shown
    large = ObjectivePerturbation(**constants(EPSILON, DELTA, penalty=3.0))
    least = max(persons_delta(large, k, tilt, noise=k) for tilt in np.linspace(0, 60, 61)) / DELTA
    assert 0.9 < least < 1.05


@pytest.mark.parametrize("penalty", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("k", SIZES)
def test_rows_per_person_keeps_both_on_an_objective(k, penalty):
    """With a little less noise than ε/k and δ(e^(ε/k) − 1)/(e^ε − 1) need."""
    mechanism = ObjectivePerturbation(**constants(EPSILON, DELTA, penalty), rows_per_person=k)
    assert mechanism.guarantee(k).delta(EPSILON) == DELTA
    tilts = np.linspace(0, 60 + 12 * penalty, 31)
    result = max(persons_delta(mechanism, k, tilt) for tilt in tilts)
    assert result <= DELTA
    share = DELTA * math.expm1(EPSILON / k) / math.expm1(EPSILON)
    shares = ObjectivePerturbation(**constants(EPSILON / k, share, penalty))
    assert mechanism.penalty_sum == shares.penalty_sum
    assert mechanism.resolution < (1 - 1e-3) * shares.resolution
    if penalty == 30.0:
        assert result > 0.9 * DELTA
        assert mechanism.resolution == pytest.approx(
            k * ObjectivePerturbation(**constants(EPSILON, DELTA, penalty)).resolution, rel=1e-5
        )
