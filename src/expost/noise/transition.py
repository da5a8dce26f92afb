"""Where the shape of a row's expected loss changes (LeBlond 5.4), in units of the noise.

Conventions
-----------
separation  t = β·distance under norm-Laplace noise, μ = distance/σ under Gaussian noise; the law
            of a row's loss ℓ depends on it (and on d) alone, so one transition serves all rows.
plateaus    norm-Laplace, d ≥ 2: E∣ℓ∣/t runs from c_d = Γ(d/2)/(√π Γ((d+1)/2)) to 1, and the
            progress s(t) = (E∣ℓ∣/t − c_d)/(1 − c_d) from 0 to 1. It dips below 0 first at d = 2.
            d = 1 has c₁ = 1, no transition in exposures; E[ℓ]/t = 1 − (1 − e^(−t))/t takes its
            place, which runs from 0 to 1 in every dimension.
            Gaussian: E∣ℓ∣ leaves μ√(2/π) and joins μ²/2; E∣ℓ∣/μ has no second plateau.

``tolerance`` τ is how far off a plateau still counts as on it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from expost import _checks
from expost._numerics import bracket_root
from expost.errors import ConvergenceError, InvalidInput
from expost.noise.law import GaussianLaw, NormLaplaceLaw
from expost.types import FloatArray

__all__ = ["Transition", "first_plateau", "transition"]

# Past this the two ends of the Gaussian transition meet (at μ = √(8/π)).
_MOST_TOLERANCE = 0.3
_LEAST_TOLERANCE = 1e-6


@dataclass(frozen=True, kw_only=True)
class Transition:
    """The separations at which a row leaves its first plateau and reaches its second regime.

    Parameters
    ----------
    leaves : float
        Rounded down: a row at this separation is still on the first plateau.
    arrives : float
        Rounded up: a row at this separation has reached the second regime.
    measure : str
        The quantity that is followed, in words.
    plateau : float, optional
        The value of E∣ℓ∣/separation on the first plateau, where it runs to 1 on a second one; None
        where there is no second plateau.
    """

    leaves: float
    arrives: float
    measure: str
    plateau: float | None = None


@lru_cache(maxsize=64, typed=True)
def transition(*, noise: str, dimension: int, tolerance: float = 0.1) -> Transition:
    """Return the transition under "laplace" or "gaussian" noise in d dimensions.

    norm-Laplace: the last t with s(t) ≤ τ, and the last with s(t) ≤ 1 − τ. Gaussian: where
    E∣ℓ∣ = (1 + τ)·μ√(2/π), and where E∣ℓ∣ = (1 + τ)·μ²/2.
    """
    _checks.one_of("noise", noise, ("laplace", "gaussian"))
    dimension = _checks.integer("dimension", dimension, least=1)
    tolerance = _checks.positive("tolerance", tolerance)
    if not _LEAST_TOLERANCE <= tolerance < _MOST_TOLERANCE:
        raise InvalidInput(
            f"tolerance={tolerance!r}: must lie between {_LEAST_TOLERANCE:g} and"
            f" {_MOST_TOLERANCE:g}; 0.1 is a tenth of the way."
        )
    if noise == "gaussian":
        return Transition(
            leaves=_last(lambda mu: _gaussian_start(mu) - tolerance, 4.0)[0],
            arrives=_last(lambda mu: tolerance - _gaussian_end(mu), 64.0)[1],
            measure="the expected exposure, from μ√(2/π) to μ²/2",
        )
    progress = _exposure_progress(dimension)
    measure = f"the expected exposure over β·distance, from {first_plateau(dimension):.3g} to 1"
    if dimension == 1:
        # Its exposures have no transition.
        progress, measure = _one_sided_progress, "the expected loss over β·distance, from 0 to 1"
    # 1 − E∣ℓ∣/t falls at least as fast as d/t.
    farthest = 4 * (dimension + 4) / tolerance
    return Transition(
        leaves=_last(lambda t: progress(t) - tolerance, farthest)[0],
        arrives=_last(lambda t: progress(t) - (1 - tolerance), farthest)[1],
        measure=measure,
        plateau=first_plateau(dimension),
    )


def first_plateau(dimension: int) -> float:
    """Return c_d = Γ(d/2)/(√π Γ((d+1)/2)), the value of E∣ℓ∣/t as t → 0."""
    return math.exp(float(gammaln(dimension / 2) - gammaln((dimension + 1) / 2))) / math.sqrt(
        math.pi
    )


def _exposure_progress(dimension: int) -> Callable[[FloatArray], FloatArray]:
    start = first_plateau(dimension)

    def progress(t: FloatArray) -> FloatArray:
        law = NormLaplaceLaw(separation=t, dimension=dimension)
        return (law.expected_exposure / t - start) / (1 - start)

    return progress


def _one_sided_progress(t: FloatArray) -> FloatArray:
    """Return E[ℓ]/t at d = 1."""
    return NormLaplaceLaw(separation=t, dimension=1).expected_loss / t


def _gaussian_start(mu: FloatArray) -> FloatArray:
    """Return E∣ℓ∣/(μ√(2/π)) − 1, increasing in μ from 0."""
    return GaussianLaw(separation=mu).expected_exposure / (mu * math.sqrt(2 / math.pi)) - 1


def _gaussian_end(mu: FloatArray) -> FloatArray:
    """Return E∣ℓ∣/(μ²/2) − 1, decreasing in μ to 0."""
    law = GaussianLaw(separation=mu)
    return law.expected_exposure / law.expected_loss - 1


def _last(function: Callable[[FloatArray], FloatArray], top: float) -> tuple[float, float]:
    """Return (below, above) the last sign change of a function that is > 0 from there on."""
    below, above = bracket_root(function, np.array([1e-6]), np.array([top]))
    if not (function(below)[0] <= 0 < function(above)[0]):
        raise ConvergenceError("the transition was not found; use another tolerance.")
    return float(below[0]), float(above[0])
