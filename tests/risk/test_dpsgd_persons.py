"""DP-SGD for persons with several rows, each sampled on its own."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.stats import binom, norm

from expost.errors import InvalidInput
from expost.risk import DPSGD, Composition, EpsilonDelta, GaussianNoise


@pytest.mark.parametrize(("sigma", "rate", "rows"), [(1.0, 0.1, 3), (0.4, 0.3, 4), (3.0, 0.02, 12)])
def test_one_step_is_the_mixture(sigma, rate, rows):
    guarantee = DPSGD(noise_multiplier=sigma, sampling_rate=rate, rows_per_person=rows)
    x = np.linspace(-12 * sigma, 12 * sigma + rows, 400_001)
    q = norm.pdf(x, scale=sigma)
    p = sum(binom.pmf(j, rows, rate) * norm.pdf(x, loc=j, scale=sigma) for j in range(rows + 1))
    width = x[1] - x[0]
    for epsilon in (0.0, 0.2, 1.0, 2.0):
        exact = width * max(
            np.sum(np.maximum(a - math.exp(epsilon) * b, 0)) for a, b in ((p, q), (q, p))
        )
        assert guarantee.delta(epsilon) == pytest.approx(exact, rel=1e-3, abs=1e-12)


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "rows"), [(1.0, 0.05, 40, 4), (1.5, 0.1, 50, 2)]
)
def test_many_steps_agree_with_dp_accounting(sigma, rate, steps, rows):
    counts = range(rows + 1)
    theirs = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        standard_deviation=sigma,
        sensitivities=list(counts),
        sampling_probs=[float(binom.pmf(j, rows, rate)) for j in counts],
        value_discretization_interval=1e-3,
    ).self_compose(steps)
    mine = DPSGD(noise_multiplier=sigma, sampling_rate=rate, steps=steps, rows_per_person=rows)
    assert mine.epsilon(1e-5) == pytest.approx(theirs.get_epsilon_for_delta(1e-5), rel=5e-3)


def test_persons_compose_and_lose_more_than_rows():
    options = {"noise_multiplier": 1.5, "sampling_rate": 0.1, "steps": 50}
    epsilons = [DPSGD(**options, rows_per_person=k).epsilon(1e-5) for k in (1, 2, 4)]
    assert epsilons[0] < epsilons[1] < epsilons[2]
    assert DPSGD(**options).epsilon(1e-5) == epsilons[0]
    both = Composition((DPSGD(**options, rows_per_person=2), EpsilonDelta(epsilon=0.3)))
    assert epsilons[1] < both.epsilon(1e-5) <= (epsilons[1] + 0.3) * (1 + 1e-3)
    full = DPSGD(noise_multiplier=2.0, steps=9, rows_per_person=4)
    assert full.epsilon(1e-5) == pytest.approx(GaussianNoise(mu=6.0).epsilon(1e-5), rel=1e-9)
    assert "4 rows" in full.describe()


@pytest.mark.parametrize(
    "options", [{"rows_per_person": 0}, {"rows_per_person": 2, "relation": "replace"}]
)
def test_what_is_refused(options):
    with pytest.raises(InvalidInput):
        DPSGD(noise_multiplier=1.0, sampling_rate=0.1, **options)
