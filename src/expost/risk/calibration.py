"""The least noise multiplier with which DP-SGD keeps a goal.

Conventions
-----------
As in :mod:`expost.risk.dpsgd`. More noise is a degradation of the same release, so every figure
falls as the noise grows. What is returned keeps the goal: the promise :class:`DPSGD` of it was
evaluated. It is at most 5e-4 of itself more than needed, or the least noise that is served (1e-4)
where even that keeps the goal, as it does where a row is hardly ever sampled.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from expost import _checks
from expost._numerics import bracket_root
from expost.accounting.pld import PrivacyLoss
from expost.errors import ConvergenceError, InvalidInput
from expost.risk._arguments import between, rate
from expost.risk.dpsgd import DPSGD
from expost.risk.guarantee import belief_after
from expost.types import FloatArray, Neighbouring

__all__ = [
    "noise_multiplier_for_advantage",
    "noise_multiplier_for_belief",
    "noise_multiplier_for_epsilon",
    "noise_multiplier_for_one_in",
    "noise_multiplier_for_true_positive_rate",
]

_LEAST, _MOST = 1e-4, 1e8
_FACTOR = 4.0
# A bracket of that factor shrinks to 1e-4 of itself; a closed form costs nothing.
_HALVINGS = 15
_MANY_HALVINGS = 60
# Steps up, should the full grid see a little more than the draft.
_STEP = 1e-4
_STEPS = 20


class _Figures(Protocol):
    """What a goal may be about."""

    def delta(self, epsilon: float) -> float:
        """δ(ε)."""

    def epsilon(self, delta: float) -> float:
        """ε(δ)."""

    def loss(self, delta: float) -> float:
        """The evidence that is passed with probability δ at most."""

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """TPR(FPR)."""


def noise_multiplier_for_epsilon(
    epsilon: float,
    *,
    steps: int,
    sampling_rate: float,
    delta: float,
    relation: Neighbouring = Neighbouring.REMOVE,
) -> float:
    """The least noise with which ε(δ) ≤ ``epsilon``."""
    epsilon = _checks.positive("epsilon", epsilon)
    delta = _checks.probability("delta", delta)
    return _least(
        lambda figures: figures.epsilon(delta) <= epsilon,
        steps,
        sampling_rate,
        relation,
        f"epsilon={epsilon!r}",
    )


def noise_multiplier_for_belief(
    belief: float,
    *,
    steps: int,
    sampling_rate: float,
    delta: float,
    prior: float = 0.5,
    relation: Neighbouring = Neighbouring.REMOVE,
) -> float:
    """The least noise with which a belief from ``prior`` passes ``belief`` with P ≤ ``delta``."""
    prior = _checks.probability("prior", prior)
    belief = between("belief", belief, prior, 1.0, "the prior and certainty")
    delta = _checks.probability("delta", delta)
    return _least(
        lambda figures: belief_after(prior, figures.loss(delta)) <= belief,
        steps,
        sampling_rate,
        relation,
        f"belief={belief!r}",
    )


def noise_multiplier_for_one_in(
    k: float,
    *,
    steps: int,
    sampling_rate: float,
    prior: float,
    delta: float,
    relation: Neighbouring = Neighbouring.REMOVE,
) -> float:
    """The least noise that leaves a person one of ``k`` alike, but with probability ``delta``."""
    prior = _checks.probability("prior", prior)
    k = between("k", k, 1.0, 1 / prior, "certainty and one over the prior")
    delta = _checks.probability("delta", delta)
    return _least(
        lambda figures: 1 / belief_after(prior, figures.loss(delta)) >= k,
        steps,
        sampling_rate,
        relation,
        f"k={k!r}",
    )


def noise_multiplier_for_advantage(
    advantage: float,
    *,
    steps: int,
    sampling_rate: float,
    relation: Neighbouring = Neighbouring.REMOVE,
) -> float:
    """The least noise with which the Bayes adversary's advantage is at most ``advantage``."""
    advantage = _checks.probability("advantage", advantage)
    return _least(
        lambda figures: figures.delta(0.0) <= advantage,
        steps,
        sampling_rate,
        relation,
        f"advantage={advantage!r}",
    )


def noise_multiplier_for_true_positive_rate(
    true_positive_rate: float,
    *,
    false_positive_rate: float,
    steps: int,
    sampling_rate: float,
    relation: Neighbouring = Neighbouring.REMOVE,
) -> float:
    """The least noise with which no test finds more than this at ``false_positive_rate``."""
    fpr = rate("false_positive_rate", false_positive_rate)
    goal = between(
        "true_positive_rate", true_positive_rate, fpr, 1.0, "what guessing finds and all"
    )
    return _least(
        lambda figures: figures.true_positive_rate(fpr) <= goal,
        steps,
        sampling_rate,
        relation,
        f"true_positive_rate={goal!r}",
    )


def _least(
    keeps: Callable[[_Figures], bool],
    steps: int,
    sampling_rate: float,
    relation: Neighbouring,
    goal: str,
) -> float:
    """The least noise for which ``keeps`` holds: sought on a draft, then checked."""

    def promise(noise: float) -> DPSGD:
        return DPSGD(
            noise_multiplier=noise, sampling_rate=sampling_rate, steps=steps, relation=relation
        )

    def draft(noise: float) -> bool:
        each = promise(noise)
        if each.gaussian is not None:
            return keeps(each)
        return keeps(PrivacyLoss(steps=each.privacy_loss.steps, draft=True))

    low, high = _bracket(draft, goal)
    if low < high:

        def excess(noise: FloatArray) -> FloatArray:
            return np.array(1.0 if draft(float(noise)) else -1.0)

        halvings = _HALVINGS if sampling_rate < 1 else _MANY_HALVINGS
        _, above = bracket_root(excess, low, high, halvings=halvings)
        high = float(above)
    for _ in range(_STEPS):
        if keeps(promise(high)):
            return high
        high *= 1 + _STEP
    raise ConvergenceError(
        f"no noise multiplier found for {goal}, steps={steps!r}, sampling_rate={sampling_rate!r}:"
        " the goal is too extreme; use a less extreme one."
    )


def _bracket(keeps: Callable[[float], bool], goal: str) -> tuple[float, float]:
    """(low, high) within a factor of 4: high keeps the goal, and low does not, or is high."""
    noise = 1.0
    if keeps(noise):
        while noise > _LEAST:
            lower = max(noise / _FACTOR, _LEAST)
            if not keeps(lower):
                return lower, noise
            noise = lower
        return noise, noise
    while noise < _MOST:
        higher = min(_FACTOR * noise, _MOST)
        if keeps(higher):
            return noise, higher
        noise = higher
    raise InvalidInput(
        f"{goal}: no noise multiplier up to {_MOST:g} keeps it; ask for less, or take fewer steps."
    )
