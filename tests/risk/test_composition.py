"""Compositions: exact where there is a closed form, by counting and integrals where there is not."""

import json
import math

import numpy as np
import pytest
from scipy.special import ndtr

from expost.errors import InvalidInput
from expost.risk import (
    DPSGD,
    Composition,
    EpsilonDelta,
    GaussianNoise,
    NormLaplaceNoise,
    compare_compositions,
)
from expost.risk.dpsgd import gaussian_loss
from parameters import refuse_nan

PURE = EpsilonDelta(epsilon=0.5)
SLIP = EpsilonDelta(epsilon=0.3, delta=1e-6)
NOISE = GaussianNoise(mu=0.6)
LINE = NormLaplaceNoise(separation=0.8, dimension=1)
SPACE = NormLaplaceNoise(separation=1.0, dimension=6)
TRAINED = DPSGD(noise_multiplier=1.0, sampling_rate=0.02, steps=300)
MIXED = (PURE, SLIP, NOISE, SPACE, TRAINED)


class TestExact:
    def test_gaussian_parts_are_one(self):
        parts = (GaussianNoise(mu=0.3), GaussianNoise(mu=0.4), DPSGD(noise_multiplier=2.0))
        whole, single = Composition(parts), GaussianNoise(mu=math.sqrt(0.09 + 0.16 + 0.25))
        for delta in (1e-300, 1e-5, 0.2):
            assert whole.epsilon(delta) == pytest.approx(single.epsilon(delta), rel=1e-12)
            # A later release may react to an earlier one.
            assert whole.loss(delta) == pytest.approx(gaussian_loss(single.mu, delta), rel=1e-12)
            assert whole.loss(delta) > single.loss(delta)
        # Eight releases of μ = ½ are eight steps of a full batch with σ = 2.
        several, steps = (
            Composition((GaussianNoise(mu=0.5),) * 8),
            DPSGD(noise_multiplier=2.0, steps=8),
        )
        assert several.loss(0.05) == pytest.approx(steps.loss(0.05), rel=1e-12)
        assert whole.advantage == pytest.approx(single.advantage, rel=1e-13)
        assert whole.advantage >= single.advantage * (1 - 1e-15)
        assert whole.true_positive_rate(0.01) == pytest.approx(single.true_positive_rate(0.01))
        assert whole.delta(1.0) == pytest.approx(single.delta(1.0), rel=1e-9)

    def test_a_release_that_reacts_to_the_one_before_it(self):
        """The second is made only where the first gave little away: exactly, by an integral."""
        first, second, delta = 1.0, 0.7, 1e-2
        parts = (GaussianNoise(mu=first), GaussianNoise(mu=second))
        plain = GaussianNoise(mu=math.hypot(first, second)).loss(delta)
        guaranteed_loss = Composition(parts).loss(delta)

        def passed(b):
            outputs = np.linspace(-8, 8, 200_001)
            loss = first * outputs + first**2 / 2
            later = np.where(loss > b, 1.0, ndtr(second / 2 - (b - loss) / second))
            return float(np.trapezoid(later * np.exp(-(outputs**2) / 2), outputs)) / math.sqrt(
                2 * math.pi
            )

        assert passed(plain) > delta * 1.02
        assert passed(guaranteed_loss) < delta

    def test_pure_parts_without_delta(self):
        whole = Composition((PURE, EpsilonDelta(epsilon=2.0), SPACE))
        assert whole.loss() == whole.epsilon(0.0) == 3.5
        assert whole.delta(3.5) == whole.delta(math.inf) == 0
        assert whole.posterior() == pytest.approx(1 / (1 + math.exp(-3.5)))

    @pytest.mark.parametrize("part", [PURE, SLIP, NOISE, LINE, SPACE])
    def test_one_part_is_itself(self, part):
        whole = Composition((part,))
        for delta in (1e-7, 1e-3, 0.5):
            assert whole.epsilon(delta) == part.epsilon(delta)
            assert whole.loss(delta) == part.loss(delta)
        assert whole.true_positive_rate(0.03) == part.true_positive_rate(0.03)
        assert whole.describe() == part.describe()
        assert Composition((whole, EpsilonDelta(epsilon=0.0))).advantage == pytest.approx(
            part.advantage, rel=1e-3
        )

    def test_nothing_and_everything(self):
        nothing = Composition((EpsilonDelta(epsilon=0.0), GaussianNoise(mu=0.0)))
        assert nothing.epsilon(0.0) == nothing.loss(0.0) == nothing.advantage == 0
        for bare in (EpsilonDelta(epsilon=math.inf), GaussianNoise(mu=math.inf)):
            whole = Composition((PURE, bare))
            assert whole.epsilon(0.5) == whole.loss(0.5) == math.inf
            assert whole.advantage == whole.true_positive_rate(0.0) == whole.delta(10.0) == 1


class TestByHand:
    def test_k_guarantees_by_counting(self):
        """The tight composition of k (ε, δ) guarantees (Kairouz, Oh and Viswanath 2015)."""
        count, epsilon, slip = 12, 0.4, 1e-4
        truth = 1 / (1 + math.exp(-epsilon))
        losses = epsilon * (2 * np.arange(count + 1) - count)
        masses = np.array(
            [math.comb(count, k) * truth**k * (1 - truth) ** (count - k) for k in range(count + 1)]
        )
        kept = (1 - slip) ** count
        whole = Composition((EpsilonDelta(epsilon=epsilon, delta=slip),) * count)
        for at in (0.0, 1.0, 2.7):
            exact = 1 - kept + kept * float(masses @ np.maximum(-np.expm1(at - losses), 0))
            assert exact * (1 - 1e-9) <= whole.delta(at) <= exact * 1.002
        assert whole.epsilon(1e-4) == math.inf, "less than they tell outright"
        assert whole.loss(1.0e-3) == math.inf
        assert whole.loss(2e-3) < math.inf

    def test_laplace_noise_beside_gaussian_noise(self):
        """d = 1: an atom on either side and a density between; δ of the rest for each of its losses."""
        t, mu, at = LINE.separation, NOISE.mu, 0.7

        def curve(x):
            return ndtr(mu / 2 - x / mu) - np.exp(x) * ndtr(-mu / 2 - x / mu)

        inner = np.linspace(-t, t, 20_001)
        density = 0.25 * np.exp((inner - t) / 2)
        exact = 0.5 * curve(at - t) + 0.5 * math.exp(-t) * curve(at + t)
        exact += float(np.trapezoid(density * curve(at - inner), inner))
        delta = Composition((LINE, NOISE)).delta(at)
        assert exact * (1 - 1e-7) <= delta <= exact * 1.002
        off = Composition((NormLaplaceNoise(separation=1.01 * t, dimension=1), NOISE)).delta(at)
        assert off > exact * 1.003

    def test_the_evidence_of_independent_releases(self):
        """10⁵ draws of each loss: the guaranteed loss is passed no more often than said."""
        rng = np.random.default_rng(3)
        games = 100_000
        noise = rng.normal(NOISE.mu**2 / 2, NOISE.mu, games)
        # Laplace noise of scale 1 at distance t.
        b = rng.laplace(size=games)
        line = np.abs(b + LINE.separation) - np.abs(b)
        evidence = noise + line
        whole = Composition((NOISE, LINE))
        gain = np.maximum(-np.expm1(0.5 - evidence), 0)
        error = float(np.std(gain)) / math.sqrt(games)
        assert abs(float(np.mean(gain)) - whole.delta(0.5)) <= 3 * error + 1e-4
        louder = Composition((GaussianNoise(mu=0.63), LINE)).delta(0.5)
        assert abs(float(np.mean(gain)) - louder) > 3 * error
        for delta in (0.1, 0.01):
            assert np.mean(evidence > whole.loss(delta)) <= delta


def test_a_row_that_stops_does_not_pass_the_loss_of_gaussian_releases():
    """The row moves the model until the evidence has passed b, then no more."""
    parts, mu, delta, games = 8, 0.5, 0.05, 200_000
    bound = Composition((GaussianNoise(mu=mu),) * parts).loss(delta)
    fixed = GaussianNoise(mu=mu * math.sqrt(parts)).loss(delta)
    rng = np.random.default_rng(4)
    passed = {}
    for name, level in {"bound": bound, "fixed": fixed}.items():
        loss = np.zeros(games)
        for _ in range(parts):
            step = mu * (0.5 * mu + rng.standard_normal(games))
            loss = np.where(loss > level, loss, loss + step)
        passed[name] = np.mean(loss > level)
    error = math.sqrt(delta * (1 - delta) / games)
    assert passed["bound"] < delta + 3 * error
    # Power: the quantile of releases that do not react is passed too often.
    assert passed["fixed"] > delta + 5 * error


@pytest.mark.parametrize(
    "parts", [MIXED, (PURE,) * 40, (SPACE,) * 5, (NOISE,) * 9, (TRAINED,)], ids=len
)
def test_what_each_way_costs(parts):
    """PLD ≤ Rényi, tight ≤ Mironov; where all is pure or Gaussian, Mironov ≤ the plain sum."""
    comparison = compare_compositions(parts, delta=1e-5, prior=0.2)
    names = [row.name for row in comparison.rows]
    assert names == ["sequential", "rdp-mironov", "rdp-tight", "pld"]
    epsilons = [comparison.row(name).epsilon for name in reversed(names)]
    assert epsilons == sorted(epsilons)
    losses = [comparison.row(name).loss for name in ("pld", "rdp-tight", "rdp-mironov")]
    assert losses == sorted(losses)
    advantages = [comparison.row(name).advantage for name in ("pld", "rdp-tight", "rdp-mironov")]
    assert advantages == sorted(advantages)
    pld = comparison.row("pld")
    whole = Composition(tuple(parts))
    assert pld.epsilon == whole.epsilon(1e-5)
    assert pld.advantage == whole.advantage
    assert pld.posterior == whole.posterior(0.2, delta=1e-5)
    assert pld.times == 1
    assert comparison.row("sequential").times > 1
    assert pld.epsilon <= pld.loss
    assert (
        json.loads(json.dumps(comparison.fields(), allow_nan=False))["releases"]
        == comparison.releases
    )
    with pytest.raises(InvalidInput, match="name="):
        comparison.row("moments")


def test_the_plain_sum():
    """Each release at an equal share of what is left of δ; a step of DP-SGD is a release."""
    comparison = compare_compositions((PURE, SLIP, NOISE, NOISE), delta=1e-5).row("sequential")
    share = (1e-5 - 1e-6) / 2
    assert comparison.epsilon == pytest.approx(0.8 + 2 * NOISE.epsilon(share), rel=1e-12)
    trained = compare_compositions((TRAINED,), delta=1e-5).row("sequential")
    step = DPSGD(noise_multiplier=1.0, sampling_rate=0.02)
    assert trained.epsilon == pytest.approx(300 * step.epsilon(1e-5 / 300), rel=1e-12)
    assert comparison.advantage == EpsilonDelta(epsilon=comparison.epsilon, delta=1e-5).advantage
    # P(ℓ > loss) ≤ δ for the Gaussian parts alone, whose law is known.
    sums = compare_compositions((NOISE, NOISE), delta=1e-5).row("sequential")
    assert sums.loss > GaussianNoise(mu=NOISE.mu * math.sqrt(2)).loss(1e-5)
    beyond = compare_compositions((SLIP, SLIP), delta=1e-6)
    assert beyond.row("sequential").epsilon == math.inf
    assert beyond.fields()["rows"][0]["epsilon"] == "infinity"


def test_without_delta():
    comparison = compare_compositions((PURE, SPACE), delta=0.0)
    assert [row.epsilon for row in comparison.rows] == [1.5] * 4
    assert [row.loss for row in comparison.rows] == [1.5] * 4
    bare = compare_compositions((PURE, NOISE), delta=0.0)
    assert all(row.epsilon == math.inf and row.posterior == 1 for row in bare.rows)
    assert "∞" in str(bare)


def test_description_counts():
    whole = Composition((PURE, Composition((PURE, NOISE)), PURE))
    assert whole.parts == (PURE, PURE, NOISE, PURE)
    assert whole.describe() == f"3 × {PURE.describe()}; {NOISE.describe()}"


def test_bad_parts():
    with pytest.raises(InvalidInput, match="at least one"):
        Composition(())
    with pytest.raises(InvalidInput, match="cannot be composed"):
        Composition((PURE, 3.0))
    with pytest.raises(InvalidInput, match="same relation"):
        Composition((TRAINED, DPSGD(noise_multiplier=1.0, relation="replace")))
    assert refuse_nan(compare_compositions, {"parts": (PURE,), "delta": 1e-5}) == ["delta", "prior"]


@pytest.mark.parametrize(
    ("parts", "delta"),
    [
        ((EpsilonDelta(epsilon=1e4), EpsilonDelta(epsilon=3.0)), 1e-5),
        ((EpsilonDelta(epsilon=1e-8),) * 1000, 1e-10),
        ((NormLaplaceNoise(separation=1e-8, dimension=3), GaussianNoise(mu=1e-8)), 1e-12),
        ((NormLaplaceNoise(separation=30.0, dimension=1000), GaussianNoise(mu=1.0)), 1e-300),
        ((GaussianNoise(mu=1e5), PURE), 1e-5),
        ((GaussianNoise(mu=1e-200), PURE), 0.2),
        ((GaussianNoise(mu=1e9), PURE), 1e-5),
        ((NormLaplaceNoise(separation=1e11, dimension=5), PURE), 1e-3),
        ((PURE, LINE), 0.9),
    ],
)
def test_extremes(parts, delta):
    whole = Composition(parts)
    low, high = whole.epsilon_interval(delta)
    assert 0 <= low <= high
    assert high <= whole.loss(delta)
    assert high <= sum(part.loss() for part in parts)
    assert high == math.inf or whole.delta(high) <= delta * (1 + 1e-6)
    assert 0 < whole.advantage <= 1
    assert 0.01 <= whole.true_positive_rate(0.01) <= 1
