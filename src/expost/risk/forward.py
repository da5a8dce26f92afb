"""ε or μ in other words, one function a word: the twins of :mod:`expost.risk.inverse`.

Conventions
-----------
epsilon, delta   a mechanism of which (ε, δ) is all that is known: :class:`EpsilonDelta`.
mu               Gaussian noise of σ = sensitivity/μ: :class:`GaussianNoise`.
exceeded         the probability with which a belief may be passed. (ε, δ) with δ > 0 bounds no
                 belief for certain, nor "but with probability δ" (erratum 10): only but with a
                 probability above δ, which has to be named. Gaussian noise has no δ of its own,
                 and there this probability is the ``delta``.
releases         how many releases have this ε or this μ *each*: kε (pure ε, beliefs), μ√k.

Every figure is an upper bound, rounded up; '1 in k' is rounded down.
"""

import math

from expost import _checks
from expost.errors import InvalidInput
from expost.risk._arguments import count, extended, level
from expost.risk.promises import EpsilonDelta, GaussianNoise

__all__ = [
    "advantage_from_epsilon",
    "advantage_from_mu",
    "belief_from_epsilon",
    "belief_from_mu",
    "epsilon_from_mu",
    "one_in_from_epsilon",
    "one_in_from_mu",
    "together",
    "together_gaussian",
    "true_positive_rate_from_epsilon",
    "true_positive_rate_from_mu",
]


def belief_from_epsilon(
    epsilon: float,
    *,
    prior: float = 0.5,
    delta: float = 0.0,
    exceeded: float | None = None,
    releases: int = 1,
) -> float:
    """How sure an attacker can get, but with probability ``exceeded``: sigmoid(logit prior + ε).

    With δ > 0 the loss of :meth:`EpsilonDelta.loss` takes the place of ε.
    """
    promise = together(epsilon, delta, releases)
    return promise.belief(prior, delta=passing(delta, exceeded))


def one_in_from_epsilon(
    epsilon: float,
    *,
    prior: float = 0.5,
    delta: float = 0.0,
    exceeded: float | None = None,
    releases: int = 1,
) -> float:
    """k = 1/belief: as if the person were one of k alike."""
    promise = together(epsilon, delta, releases)
    return promise.one_in(prior, delta=passing(delta, exceeded))


def advantage_from_epsilon(epsilon: float, *, delta: float = 0.0) -> float:
    """(e^ε − 1 + 2δ)/(e^ε + 1): tanh(ε/2) for pure ε."""
    return EpsilonDelta(epsilon=epsilon, delta=delta).advantage


def true_positive_rate_from_epsilon(
    epsilon: float, *, false_positive_rate: float, delta: float = 0.0
) -> float:
    """min(1, δ + e^ε·fpr, 1 − e^(−ε)(1 − δ − fpr))."""
    return EpsilonDelta(epsilon=epsilon, delta=delta).true_positive_rate(false_positive_rate)


def belief_from_mu(mu: float, *, delta: float, prior: float = 0.5, releases: int = 1) -> float:
    """How sure an attacker can get, but with probability ``delta``.

    sigmoid(logit prior + μ²/2 + μΦ⁻¹(1 − δ)).
    """
    return together_gaussian(mu, releases).belief(prior, delta=delta)


def one_in_from_mu(mu: float, *, delta: float, prior: float = 0.5, releases: int = 1) -> float:
    """k = 1/belief: as if the person were one of k alike."""
    return together_gaussian(mu, releases).one_in(prior, delta=delta)


def advantage_from_mu(mu: float, *, releases: int = 1) -> float:
    """2Φ(μ/2) − 1."""
    return together_gaussian(mu, releases).advantage


def true_positive_rate_from_mu(
    mu: float, *, false_positive_rate: float, releases: int = 1
) -> float:
    """Φ(Φ⁻¹(fpr) + μ)."""
    return together_gaussian(mu, releases).true_positive_rate(false_positive_rate)


def epsilon_from_mu(mu: float, *, delta: float, releases: int = 1) -> float:
    """The least ε with which Gaussian noise of this μ is (ε, δ)-DP, rounded up."""
    return together_gaussian(mu, releases).epsilon(_checks.probability("delta", delta))


def together(epsilon: float, delta: float, releases: int) -> EpsilonDelta:
    """``releases`` mechanisms of this pure ε as one promise, kε: the largest loss, exactly.

    All but the largest loss composes better, and so does δ > 0: there it is refused.
    """
    times = count("releases", releases)
    if times == 1:
        return EpsilonDelta(epsilon=epsilon, delta=delta)
    if delta != 0:
        raise InvalidInput(
            f"releases={times!r}: (epsilon, delta) with delta > 0 has no closed form for several"
            " releases; use expost.risk.Composition, or Gaussian noise (mu)."
        )
    total = extended("epsilon", epsilon) * times
    return EpsilonDelta(epsilon=math.nextafter(total, math.inf) if total > 0 else 0.0)


def together_gaussian(mu: float, releases: int) -> GaussianNoise:
    """``releases`` releases of this μ as one: √k·μ.

    Its beliefs hold where all releases are fixed beforehand, all other figures always.
    """
    times = count("releases", releases)
    if times == 1:
        return GaussianNoise(mu=mu)
    total = extended("mu", mu) * math.sqrt(times)
    # Two roundings, the root's and the product's.
    return GaussianNoise(mu=total * (1 + 2.0**-51))


def passing(delta: float, exceeded: float | None) -> float:
    """``exceeded``, checked against δ: above it, unless both are 0."""
    slip = level("delta", delta)
    if exceeded is None and slip == 0:
        return 0.0
    if exceeded is None or (slip > 0 and not level("exceeded", exceeded) > slip):
        raise InvalidInput(
            f"exceeded={exceeded!r}: with delta={slip!r} a belief is bounded only but with a"
            " probability above delta; give one, as exceeded=2*delta, or set delta=0."
        )
    return level("exceeded", exceeded)
