"""D5.3 Fig. 4.2: belief and advantage over ε for several δ, by the paper and as they are.

Conventions
-----------
paper     ρ_β = sigmoid(ε) (Thm 2); ρ_α by Thm 3, for Gaussian noise of the classical σ.
Gaussian  noise calibrated exactly: the curves run through (ε(μ, δ), figure of μ).
any       (ε, δ) is all that is known.
A belief is the one that may be passed with probability δ under Gaussian noise. Of any mechanism it
is ``exceeded``, ten times δ, since (ε, δ) bounds no belief at δ itself (erratum 10).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from expost import _checks
from expost.accounting import gaussian_epsilon_below
from expost.errors import InvalidInput
from expost.results import Displayed
from expost.risk import paper
from expost.risk.guarantee import belief_after
from expost.risk.inverse import mu_from_epsilon
from expost.risk.promises import EpsilonDelta, GaussianNoise
from expost.types import Audience, FloatArray

__all__ = ["DeltaCurves", "RiskCurves", "risk_curves", "tenfold"]

_POINTS = 81


@dataclass(frozen=True, kw_only=True, eq=False)
class DeltaCurves:
    """The curves of one δ.

    ``paper_advantage, any_belief, any_advantage``  (m,) over the common ε.
    ``epsilon``  (m,) of their own for ``belief`` and ``advantage`` of Gaussian noise.
    """

    delta: float
    exceeded: float
    paper_advantage: FloatArray
    any_belief: FloatArray
    any_advantage: FloatArray
    epsilon: FloatArray
    belief: FloatArray
    advantage: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class RiskCurves(Displayed):
    """Fig. 4.2 over ``epsilon`` (m,), one entry of ``deltas`` for each δ.

    ``pure_belief, pure_advantage``  of any mechanism at δ = 0; the paper's ρ_β is the first.
    ``audience``  that of the promise around which they are, where there is one.
    """

    prior: float
    epsilon: FloatArray
    pure_belief: FloatArray
    pure_advantage: FloatArray
    deltas: tuple[DeltaCurves, ...]
    audience: Audience = Audience.PASS


def risk_curves(
    deltas: Sequence[float],
    *,
    low: float = 0.01,
    high: float = 10.0,
    prior: float = 0.5,
) -> RiskCurves:
    """The curves for ε from ``low`` to ``high``."""
    low, high = _checks.positive("low", low), _checks.positive("high", high)
    prior = _checks.probability("prior", prior)
    if not low < high:
        raise InvalidInput(f"low={low!r}: must be below high={high!r}.")
    epsilon = np.geomspace(low, high, _POINTS)
    pure = [EpsilonDelta(epsilon=float(e)) for e in epsilon]
    return RiskCurves(
        prior=prior,
        epsilon=epsilon,
        pure_belief=np.array([promise.belief(prior) for promise in pure]),
        pure_advantage=np.array([promise.advantage for promise in pure]),
        deltas=tuple(_of_delta(float(delta), epsilon, prior) for delta in deltas),
    )


def _of_delta(delta: float, epsilon: FloatArray, prior: float) -> DeltaCurves:
    delta = _checks.probability("delta", delta)
    exceeded = tenfold(delta)
    any_of = [EpsilonDelta(epsilon=float(e), delta=delta) for e in epsilon]
    ends = [mu_from_epsilon(float(end), delta=delta) for end in (epsilon[0], epsilon[-1])]
    mu = np.geomspace(ends[0], ends[1], _POINTS)
    noises = [GaussianNoise(mu=float(m)) for m in mu]
    losses = [noise.loss(delta) for noise in noises]
    return DeltaCurves(
        delta=delta,
        exceeded=exceeded,
        paper_advantage=np.array([paper.gaussian_advantage(float(e), delta) for e in epsilon]),
        any_belief=np.array([promise.belief(prior, delta=exceeded) for promise in any_of]),
        any_advantage=np.array([promise.advantage for promise in any_of]),
        epsilon=gaussian_epsilon_below(mu, delta),
        belief=np.array([belief_after(prior, loss) for loss in losses]),
        advantage=np.array([noise.advantage for noise in noises]),
    )


def tenfold(delta: float) -> float:
    """A probability well above δ, so that what is told of a belief is close to ε; below 1."""
    return 10 * delta if delta <= 0.05 else 0.5 * (1 + delta)
