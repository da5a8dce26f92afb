"""The universal functions of a row's loss as tables that a browser evaluates.

Conventions
-----------
t          separation of a row: scale(ε)·distance, scale = β under norm-Laplace noise, 1/σ under
           Gaussian noise.
x          log t, or log ε for the scale. Every function is analytic in it, with singularities at
           ∣Im x∣ ≥ π/2 alone (:mod:`expost.noise.tabulated`), so that Chebyshev interpolants on
           pieces of unit length converge like 6⁻ᵏ.
exposure   E∣ℓ∣/t.
advantage  P(ℓ > 0) − P(ℓ < 0).
posterior  E[sigmoid(logit(prior) + ℓ)].
scale      log(scale(ε)/ε): a constant under norm-Laplace noise.

Below ``SMALLEST`` = 10⁻¹² no table is needed. With β = 1, u the direction of the shift and b the
noise, ℓ/t = (∥b − tu∥ − ∥b∥)/t grows with t (a convex function of t over t) from −b·u/∥b∥, whose
mean is 0; so E∣ℓ/t − (its limit)∣ = E[ℓ]/t ≤ tanh(t/2) ≤ t/2, as E[ℓ] = E[a tanh(a/2)] and
a = ∣ℓ∣ ≤ t. Hence E∣ℓ∣/t is within t/2 of its limit, the advantage E[tanh(a/2)] within t³ of ½E∣ℓ∣,
and the posterior within t of the prior. With Gaussian noise this follows from the closed forms.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial import chebyshev

from expost._numerics import ROUNDOFF
from expost.errors import InvalidInput
from expost.mechanisms import ClosedForm
from expost.noise import LossLaw
from expost.types import FloatArray

__all__ = ["SMALLEST", "LawTable", "Pieces", "law_table", "scale_table"]

SMALLEST = 1e-12
_DEGREE = 17
# Lengths of pieces that are tried until the measured error is small enough.
_WIDTHS = (1.0, 0.5, 0.25, 0.125, 0.0625)
_ENOUGH = 1e-11
# The number of values of ε by which a scale is found to be proportional to ε.
_PROPORTIONAL = 5
# Coefficients that change nothing in float64 are left out.
_NEGLIGIBLE = 1e-16
# Relative error of the law itself (:mod:`expost.noise.law`).
_LAW_ERROR = 1e-12


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """A function of x on pieces of equal ``width`` from ``low`` on, each by its Chebyshev series.

    Past either end the end's value is taken.
    """

    low: float
    width: float
    coefficients: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        series = (self.low, *(value for piece in self.coefficients for value in piece))
        if not (0 < self.width < math.inf and all(map(math.isfinite, series))):
            raise InvalidInput("pieces: their width must be positive, and their series finite.")
        if not (self.coefficients and all(self.coefficients)):
            raise InvalidInput("pieces: there must be at least one, and none without a series.")

    @property
    def high(self) -> float:
        """The end of the last piece."""
        return self.low + self.width * len(self.coefficients)

    def __call__(self, x: float) -> float:
        """Return the value at ``x``."""
        offset = min(max(x, self.low), self.high) - self.low
        piece = min(int(offset / self.width), len(self.coefficients) - 1)
        node = 2 * (offset / self.width - piece) - 1
        return float(chebyshev.chebval(node, self.coefficients[piece]))


@dataclass(frozen=True, kw_only=True)
class LawTable:
    """The law of a row's loss at every separation up to the tables' ends, for any ε.

    Parameters
    ----------
    prior : float
        The attacker's prior; the posterior is for it alone.
    error : float
        That of the law, plus the largest measured difference from it between the nodes: relative
        for exposures, absolute for the others.
    """

    prior: float
    exposure: Pieces
    advantage: Pieces
    posterior: Pieces
    error: float

    def exposure_at(self, separation: float) -> float:
        """Return E∣ℓ∣ at one separation."""
        return separation * self.exposure(math.log(separation)) if separation > 0 else 0.0

    def advantage_at(self, separation: float) -> float:
        """Return the advantage of the Bayes-optimal attacker."""
        if not separation >= SMALLEST:
            return 0.5 * self.exposure_at(separation)
        return min(self.advantage(math.log(separation)), 1.0)

    def posterior_at(self, separation: float) -> float:
        """Return the expected posterior."""
        if not separation >= SMALLEST:
            return self.prior
        return min(self.posterior(math.log(separation)), 1.0)


def law_table(mechanism: ClosedForm, prior: float, least: float, largest: float) -> LawTable:
    """Return the table of the mechanism's law for separations from ``least`` to ``largest``."""
    start = math.floor(math.log(max(min(least, largest), SMALLEST)))
    end = math.ceil(math.log(max(largest, SMALLEST))) + 1
    # The law is free of ε: one table serves all.
    return _law_table(_any_epsilon(mechanism), prior, start, max(end, start + 1))


def _any_epsilon(mechanism: ClosedForm) -> ClosedForm:
    return mechanism.with_constants(epsilon=1.0)


@lru_cache(maxsize=16)
def _law_table(mechanism: ClosedForm, prior: float, start: int, end: int) -> LawTable:
    def law(x: FloatArray) -> LossLaw:
        return mechanism.loss_law(np.exp(x))

    exposure, first = _resolved(
        lambda x: law(x).expected_exposure / np.exp(x), start, end, relative=True
    )
    advantage, second = _resolved(lambda x: law(x).advantage, start, end)
    posterior, third = _resolved(lambda x: law(x).expected_posterior(prior), start, end)
    return LawTable(
        prior=prior,
        exposure=exposure,
        advantage=advantage,
        posterior=posterior,
        error=max(first, second, third) + _LAW_ERROR,
    )


def scale_table(mechanism: ClosedForm, low: float, high: float) -> tuple[Pieces, float]:
    """Return log(scale(ε)/ε) over log ε from ``low`` to ``high``, and its measured error."""
    start, end = math.floor(math.log(low)), math.ceil(math.log(high))
    return _scale_table(_any_epsilon(mechanism), start, end)


@lru_cache(maxsize=16)
def _scale_table(mechanism: ClosedForm, start: int, end: int) -> tuple[Pieces, float]:
    def logarithm(x: FloatArray) -> FloatArray:
        scales = [mechanism.with_constants(epsilon=math.exp(at)).resolution for at in x]
        return -np.log(scales) - x

    tried = logarithm(np.linspace(start, end, _PROPORTIONAL))
    if np.ptp(tried) <= 64 * ROUNDOFF * (1 + np.max(np.abs(tried)) + max(abs(start), abs(end))):
        # The scale is proportional to ε.
        rate = float(np.median(tried))
        return Pieces(low=float(start), width=float(end - start), coefficients=((rate,),)), 0.0
    # Finding a scale takes milliseconds: pieces are longer here.
    return _interpolated(logarithm, start, end, 5)


def _resolved(
    function: Callable[[FloatArray], FloatArray], start: int, end: int, *, relative: bool = False
) -> tuple[Pieces, float]:
    """Return interpolants on unit pieces, or on the longest pieces that are accurate enough.

    For a prior p other than ½ the posterior has poles at ℓ = −logit(p) ± iπ, closer to the real
    line.
    """
    candidates = [_interpolated(function, start, end, _WIDTHS[0], relative=relative)]
    for width in _WIDTHS[1:]:
        if candidates[-1][1] <= _ENOUGH:
            break
        candidates.append(_interpolated(function, start, end, width, relative=relative))
    return min(candidates, key=lambda candidate: candidate[1])


def _interpolated(
    function: Callable[[FloatArray], FloatArray],
    start: int,
    end: int,
    width: float,
    *,
    relative: bool = False,
) -> tuple[Pieces, float]:
    """Return interpolants of degree 17, and their largest error between the nodes."""
    nodes = chebyshev.chebpts1(_DEGREE + 1)
    between = np.cos(np.pi * np.arange(_DEGREE + 2) / (_DEGREE + 1))
    lows = start + width * np.arange(math.ceil((end - start) / width))

    def at(places: FloatArray) -> FloatArray:
        # All pieces at once: a law costs less by the hundred. (places, pieces).
        x = lows + 0.5 * width * (places[:, None] + 1)
        return function(x.ravel()).reshape(x.shape)

    # As many nodes as coefficients: the fit is the interpolant.
    fitted = np.asarray(chebyshev.chebfit(nodes, at(nodes), _DEGREE), dtype=np.float64)
    series = [_shortened(column) for column in fitted.T]
    exact = at(between)
    shown = np.stack([chebyshev.chebval(between, column) for column in series], axis=1)
    off = np.abs(shown - exact)
    error = float(np.max(off / np.abs(exact) if relative else off))
    coefficients = tuple(tuple(column.tolist()) for column in series)
    return Pieces(low=float(start), width=float(width), coefficients=coefficients), error


def _shortened(coefficients: FloatArray) -> FloatArray:
    """Return the series without the last coefficients if their sum is below the rounding error."""
    rest = np.cumsum(np.abs(coefficients[::-1]))[::-1]
    kept = np.flatnonzero(rest > _NEGLIGIBLE * rest[0])
    return coefficients[: int(kept[-1]) + 1] if len(kept) else coefficients[:1]
