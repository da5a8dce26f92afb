"""Posterior and advantage over ε for several δ (D5.3 Fig. 4.2, with bounds that hold).

Conventions
-----------
Gaussian  noise calibrated exactly: the curves run through (ε(μ, δ), figure of μ).
any       (ε, δ) is all that is known.
A posterior may be exceeded with probability δ under Gaussian noise. Of any mechanism it is
``exceeded``, ten times δ, since (ε, δ) bounds no posterior at δ itself (erratum 10).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from expost import _checks
from expost.accounting import gaussian_epsilon_below
from expost.errors import InvalidInput
from expost.results import Displayed
from expost.risk.calibrate import calibrate
from expost.risk.epsilon_delta import EpsilonDelta
from expost.risk.gaussian import GaussianNoise
from expost.risk.guarantee import posterior_after
from expost.types import Audience, FloatArray

__all__ = ["DeltaCurves", "RiskCurves", "risk_curves", "tenfold"]

_POINTS = 81


@dataclass(frozen=True, kw_only=True, eq=False)
class DeltaCurves:
    """The curves of one δ.

    Parameters
    ----------
    any_posterior, any_advantage : FloatArray
        (m,) over the common ε.
    epsilon : FloatArray
        (m,) of their own for ``posterior`` and ``advantage`` of Gaussian noise.
    """

    delta: float
    exceeded: float
    any_posterior: FloatArray
    any_advantage: FloatArray
    epsilon: FloatArray
    posterior: FloatArray
    advantage: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class RiskCurves(Displayed):
    """Fig. 4.2 over ``epsilon`` (m,), one entry of ``deltas`` for each δ.

    Parameters
    ----------
    pure_posterior, pure_advantage : FloatArray
        Of any mechanism at δ = 0.
    audience : Audience, default=Audience.PUBLIC
        That of the guarantee around which they are, if there is one.
    """

    prior: float
    epsilon: FloatArray
    pure_posterior: FloatArray
    pure_advantage: FloatArray
    deltas: tuple[DeltaCurves, ...]
    audience: Audience = Audience.PUBLIC


def risk_curves(
    deltas: Sequence[float],
    *,
    low: float = 0.01,
    high: float = 10.0,
    prior: float = 0.5,
) -> RiskCurves:
    """Return the curves for ε from ``low`` to ``high``."""
    low, high = _checks.positive("low", low), _checks.positive("high", high)
    prior = _checks.probability("prior", prior)
    if not low < high:
        raise InvalidInput(f"low={low!r}: must be below high={high!r}.")
    epsilon = np.geomspace(low, high, _POINTS)
    pure = [EpsilonDelta(epsilon=float(e)) for e in epsilon]
    return RiskCurves(
        prior=prior,
        epsilon=epsilon,
        pure_posterior=np.array([each.posterior(prior) for each in pure]),
        pure_advantage=np.array([each.advantage for each in pure]),
        deltas=tuple(_of_delta(float(delta), epsilon, prior) for delta in deltas),
    )


def _of_delta(delta: float, epsilon: FloatArray, prior: float) -> DeltaCurves:
    delta = _checks.probability("delta", delta)
    exceeded = tenfold(delta)
    any_of = [EpsilonDelta(epsilon=float(e), delta=delta) for e in epsilon]
    ends = [
        calibrate(GaussianNoise, epsilon=float(end), delta=delta).mu
        for end in (epsilon[0], epsilon[-1])
    ]
    mu = np.geomspace(ends[0], ends[1], _POINTS)
    noises = [GaussianNoise(mu=float(m)) for m in mu]
    losses = [noise.loss(delta) for noise in noises]
    return DeltaCurves(
        delta=delta,
        exceeded=exceeded,
        any_posterior=np.array([each.posterior(prior, delta=exceeded) for each in any_of]),
        any_advantage=np.array([each.advantage for each in any_of]),
        epsilon=gaussian_epsilon_below(mu, delta),
        posterior=np.array([posterior_after(prior, loss) for loss in losses]),
        advantage=np.array([noise.advantage for noise in noises]),
    )


def tenfold(delta: float) -> float:
    """Return a probability well above δ, so that the posterior is close to that of ε; below 1."""
    return 10 * delta if delta <= 0.05 else 0.5 * (1 + delta)
