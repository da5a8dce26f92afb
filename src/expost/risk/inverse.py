"""The ε or μ that keeps a goal: how sure, how often, one in how many an attacker may get.

Conventions
-----------
As in :mod:`expost.risk.forward`. What is returned is the largest ε or μ (the least noise) of *each*
release that keeps the goal, rounded towards more noise: the promise of what is returned was
evaluated, and keeps it. Where a goal cannot be told from what an attacker has without any release
(her prior, the false-positive rate), no number is returned.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import erfinv, ndtri

from expost import _checks
from expost._numerics import ROUNDOFF, bracket_root
from expost.errors import InvalidInput
from expost.risk._arguments import between, count, extended, level
from expost.risk.forward import (
    advantage_from_epsilon,
    advantage_from_mu,
    belief_from_epsilon,
    belief_from_mu,
    one_in_from_epsilon,
    one_in_from_mu,
    passing,
    together_gaussian,
    true_positive_rate_from_epsilon,
    true_positive_rate_from_mu,
)
from expost.risk.promises import GaussianNoise
from expost.types import FloatArray

__all__ = [
    "epsilon_from_advantage",
    "epsilon_from_belief",
    "epsilon_from_one_in",
    "epsilon_from_true_positive_rate",
    "mu_from_advantage",
    "mu_from_belief",
    "mu_from_epsilon",
    "mu_from_one_in",
    "mu_from_true_positive_rate",
]

# Φ(−38.5) is the least normal number: past it there is no probability to keep.
_FURTHEST_SCORE = 38.5


def epsilon_from_belief(
    belief: float,
    *,
    prior: float = 0.5,
    delta: float = 0.0,
    exceeded: float | None = None,
    releases: int = 1,
) -> float:
    """ε = logit(belief) − logit(prior), over k for k releases (D5.3, after Thm 2, any prior).

    With δ > 0: the ε of :meth:`EpsilonDelta.loss`, for the probability ``exceeded`` > δ.
    """
    room = _room_for_belief(belief, prior)
    return _keeping(
        lambda epsilon: (
            belief_from_epsilon(
                epsilon, prior=prior, delta=delta, exceeded=exceeded, releases=releases
            )
            <= belief
        ),
        _epsilon_within(room, delta, exceeded) / count("releases", releases),
        f"belief={belief!r}",
    )


def epsilon_from_one_in(
    k: float,
    *,
    prior: float,
    delta: float = 0.0,
    exceeded: float | None = None,
    releases: int = 1,
) -> float:
    """ε that leaves the person one of ``k`` alike: the belief at most 1/k, 1 < k < 1/prior."""
    room = _room_for_one_in(k, prior)
    return _keeping(
        lambda epsilon: (
            one_in_from_epsilon(
                epsilon, prior=prior, delta=delta, exceeded=exceeded, releases=releases
            )
            >= k
        ),
        _epsilon_within(room, delta, exceeded) / count("releases", releases),
        f"k={k!r}",
    )


def epsilon_from_advantage(advantage: float, *, delta: float = 0.0) -> float:
    """ε = log((1 + ρ_α − 2δ)/(1 − ρ_α)), 2·artanh(ρ_α) for pure ε (erratum 9)."""
    slip = level("delta", delta)
    advantage = between(
        "advantage", advantage, slip, 1.0, "delta (which epsilon = 0 allows) and no promise"
    )
    return _keeping(
        lambda epsilon: advantage_from_epsilon(epsilon, delta=slip) <= advantage,
        math.log1p(2 * (advantage - slip) / (1 - advantage)),
        f"advantage={advantage!r}",
    )


def epsilon_from_true_positive_rate(
    tpr: float, *, false_positive_rate: float, delta: float = 0.0
) -> float:
    """ε = log(1 + (tpr − δ − fpr)/min(fpr, 1 − tpr)): the larger of what its two bounds allow."""
    slip = level("delta", delta)
    fpr = _checks.probability("false_positive_rate", false_positive_rate)
    tpr = between(
        "tpr",
        tpr,
        min(fpr + slip, 1.0),
        1.0,
        "false_positive_rate + delta (which epsilon = 0 allows) and no promise",
    )
    return _keeping(
        lambda epsilon: (
            true_positive_rate_from_epsilon(epsilon, false_positive_rate=fpr, delta=slip) <= tpr
        ),
        _log1p_ratio((tpr - fpr) - slip, min(fpr, 1 - tpr), 1.0),
        f"tpr={tpr!r}",
    )


def mu_from_belief(belief: float, *, delta: float, prior: float = 0.5, releases: int = 1) -> float:
    """μ with μ²/2 + μΦ⁻¹(1 − δ) = logit(belief) − logit(prior), over √k for k releases."""
    room = _room_for_belief(belief, prior)
    return _keeping(
        lambda mu: belief_from_mu(mu, prior=prior, delta=delta, releases=releases) <= belief,
        _mu_within(room, delta) / math.sqrt(count("releases", releases)),
        f"belief={belief!r}",
    )


def mu_from_one_in(k: float, *, prior: float, delta: float, releases: int = 1) -> float:
    """μ that leaves the person one of ``k`` alike, but with probability δ; 1 < k < 1/prior."""
    room = _room_for_one_in(k, prior)
    return _keeping(
        lambda mu: one_in_from_mu(mu, prior=prior, delta=delta, releases=releases) >= k,
        _mu_within(room, delta) / math.sqrt(count("releases", releases)),
        f"k={k!r}",
    )


def mu_from_advantage(advantage: float, *, releases: int = 1) -> float:
    """μ = 2Φ⁻¹((1 + ρ_α)/2), over √k for k releases."""
    advantage = _checks.probability("advantage", advantage)
    return _keeping(
        lambda mu: advantage_from_mu(mu, releases=releases) <= advantage,
        math.sqrt(8) * float(erfinv(advantage)) / math.sqrt(count("releases", releases)),
        f"advantage={advantage!r}",
    )


def mu_from_true_positive_rate(
    tpr: float, *, false_positive_rate: float, releases: int = 1
) -> float:
    """μ = Φ⁻¹(tpr) − Φ⁻¹(fpr), over √k for k releases."""
    fpr = _checks.probability("false_positive_rate", false_positive_rate)
    tpr = between("tpr", tpr, fpr, 1.0, "false_positive_rate and no promise")
    return _keeping(
        lambda mu: (
            true_positive_rate_from_mu(mu, false_positive_rate=fpr, releases=releases) <= tpr
        ),
        float(ndtri(tpr) - ndtri(fpr)) / math.sqrt(count("releases", releases)),
        f"tpr={tpr!r}",
    )


def mu_from_epsilon(epsilon: float, *, delta: float, releases: int = 1) -> float:
    """The largest μ with which Gaussian noise is (ε, δ)-DP (Balle and Wang 2018)."""
    epsilon = extended("epsilon", epsilon)
    delta = _checks.probability("delta", delta)
    if epsilon == math.inf:
        raise InvalidInput(
            "epsilon=inf: must be finite; any noise, and none, keeps an infinite epsilon."
        )

    def excess(mu: FloatArray) -> FloatArray:
        return np.array(GaussianNoise(mu=float(mu)).delta(epsilon) - delta)

    # δ(ε, μ) ≤ δ(0, μ) < μ, and from the upper end on P(ℓ > ε) is 1 in float64.
    highest = _FURTHEST_SCORE + math.sqrt(_FURTHEST_SCORE**2 + 2 * epsilon)
    below, _ = bracket_root(excess, delta, highest)
    return _keeping(
        lambda mu: together_gaussian(mu, releases).delta(epsilon) <= delta,
        float(below) / math.sqrt(count("releases", releases)),
        f"epsilon={epsilon!r}",
    )


def _keeping(keeps: Callable[[float], bool], largest: float, goal: str) -> float:
    """``largest``, or as little below it as keeps the goal; never a number that does not."""
    value, step = largest, ROUNDOFF
    while not (0 < value < math.inf and keeps(value)):
        value = largest * (1 - step)
        step *= 2
        if not step < 1:
            raise InvalidInput(
                f"{goal}: too close to what an attacker has without any release for float64 to"
                " keep; allow a little more."
            )
    return value


def _room_for_belief(belief: float, prior: float) -> float:
    """logit(belief) − logit(prior), in (0, ∞), without cancellation."""
    prior = _checks.probability("prior", prior)
    belief = between("belief", belief, prior, 1.0, "the prior and certainty")
    return _log1p_ratio(belief - prior, prior, 1 - belief)


def _room_for_one_in(k: float, prior: float) -> float:
    """logit(1/k) − logit(prior)."""
    prior = _checks.probability("prior", prior)
    k = between("k", k, 1.0, 1 / prior, "certainty and 1/prior")
    if not prior * k < 1:
        raise InvalidInput(f"k={k!r}: must be below 1/prior={1 / prior!r} by more than rounding.")
    return _log1p_ratio(1 - prior * k, prior, k - 1)


def _log1p_ratio(top: float, first: float, second: float) -> float:
    """log(1 + top/(first·second)), without overflow; rounded down where 1 does not count."""
    if not top > 0:
        return 0.0
    logs = math.log(top) - math.log(first) - math.log(second)
    return logs if logs > 36 else math.log1p(top / first / second)


def _epsilon_within(room: float, delta: float, exceeded: float | None) -> float:
    """The largest ε whose loss at ``exceeded`` is ``room``: the larger of its two bounds'."""
    slip, allowed = level("delta", delta), passing(delta, exceeded)
    if allowed == 0:
        return room
    first = room + math.log1p(-slip / allowed)
    rest = (allowed * -math.expm1(-room) - slip) / (1 - allowed)
    epsilon = max(first, math.log1p(rest) if rest > 0 else 0.0)
    if not epsilon > 0:
        raise InvalidInput(
            f"exceeded={allowed!r}: no epsilon keeps this belief at delta={slip!r}; allow a higher"
            " belief, a larger exceeded or a smaller delta."
        )
    return epsilon


def _mu_within(room: float, delta: float) -> float:
    """The positive root of μ²/2 + μz = room, z = Φ⁻¹(1 − δ)."""
    score = -float(ndtri(_checks.probability("delta", delta)))
    root = math.sqrt(score * score + 2 * room)
    return 2 * room / (score + root) if score > 0 else root - score
