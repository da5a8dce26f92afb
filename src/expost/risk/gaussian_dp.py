"""The Gaussian guarantee that a guarantee implies, and how much it overstates the attacker.

Conventions
-----------
δ(ε)      the privacy curve of the guarantee, δ_μ(ε) that of Gaussian noise of μ.
slip δ₀   the additive term of the statement. "μ-GDP up to δ₀" says TPR(α) ≤ TPR_μ(α) + δ₀ at every
          false-positive rate α, that is δ(ε) ≤ δ_μ(ε) + δ₀ for every ε ≥ 0: the two are conjugate,
          and at −ε the difference of the curves is e^(−ε) times that at ε.
error     sup over ε ≥ 0 of (δ_μ(ε) + δ₀ − δ(ε))/(1 + e^ε): the most by which the statement
          overstates the Bayes adversary's chance of being right about membership, over all priors
          (the Δ-divergence of the two trade-off curves).
u         e^ε. δ(ε), δ_μ(ε) are convex and decreasing in u, with the slope −Q(ℓ > ε): a chord is an
          upper bound between its ends, a tangent a lower one, and so is a neighbouring chord that
          is continued. Between two points of a grid every comparison is one of straight lines.

Proofs are in docs/theory/mathematics-risk.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from expost.accounting import gaussian_deltas
from expost.risk.guarantee import Guarantee, level, up
from expost.types import FloatArray

__all__ = ["GaussianDP", "gaussian_dp"]

# Past this ε nothing useful is left to state, and e^ε nears the end of float64.
_LARGEST_EPSILON = 300.0
# Points of the first grid, and points that are added where the statement is tightest.
_POINTS = 24
_ADDED = 24
# Relative widths of μ and of the error at which no point is added.
_WIDTH = 1e-3
_ERROR_WIDTH = 0.05
_HALVINGS = 44
# Relative errors of the Gaussian curve and its slope, with room.
_ERROR = 2e-11
_LARGEST_MU = 1e4
_TINY = 1e-300


@dataclass(frozen=True, kw_only=True)
class GaussianDP:
    """The statement "μ-GDP up to δ₀" and its error.

    Parameters
    ----------
    mu : float
        The least μ of which the statement is proved, rounded up; infinite where there is none.
    least : float
        A lower bound on the μ of every such statement: ``mu`` is at most so far above the best.
    slip : float
        The additive term δ₀; 0 where the trade-off curve of μ itself is a bound.
    error : float
        The most by which the statement overstates the chance that a guess about membership is
        right, over all priors; rounded up. 0 for Gaussian noise.
    """

    mu: float
    least: float
    slip: float
    error: float


def gaussian_dp(guarantee: Guarantee, *, slip: float = 0.0) -> GaussianDP:
    """Return the least μ of which the guarantee is μ-GDP up to ``slip``, and the error of that.

    Parameters
    ----------
    guarantee : Guarantee
        Any guarantee.
    slip : float, default=0.0
        δ₀ in [0, 1). A guarantee with a δ of its own needs at least that, and DP-SGD with sampled
        batches some: its rarest losses are those of all batches with the row.

    Returns
    -------
    GaussianDP
        μ and the error, both rounded up.

    Raises
    ------
    InvalidInput
        If ``slip`` is not in [0, 1).
    """
    slip = level("slip", slip)
    gaussian = guarantee.gaussian
    if gaussian is not None:
        return GaussianDP(mu=gaussian.mu, least=gaussian.mu, slip=0.0, error=0.0)
    end = guarantee.epsilon(slip)
    if not end <= _LARGEST_EPSILON:
        return GaussianDP(mu=math.inf, least=0.0, slip=slip, error=1.0)
    if end == 0:
        return GaussianDP(mu=0.0, least=0.0, slip=slip, error=slip)
    # From ε(δ₀) on, δ(ε) ≤ δ₀ and every μ is enough.
    # More points near 0, where most of an error is.
    epsilon = [end * (point / _POINTS) ** 2 for point in range(_POINTS)] + [end]
    delta = [*(guarantee.delta(value) for value in epsilon[:-1]), min(guarantee.delta(end), slip)]
    for added in range(_ADDED + 1):
        curve = _Curve(epsilon=np.array(epsilon), delta=np.array(delta), slip=slip)
        mu, least = curve.least_mu()
        if mu == math.inf:
            return GaussianDP(mu=mu, least=least, slip=slip, error=1.0)
        error, error_cell, reached = curve.error(mu)
        if mu > least * (1 + _WIDTH):
            cell = curve.tightest_cell(mu)
        elif error > reached * (1 + _ERROR_WIDTH):
            cell = error_cell
        else:
            break
        if added < _ADDED:
            middle = 0.5 * (epsilon[cell] + epsilon[cell + 1])
            epsilon.insert(cell + 1, middle)
            delta.insert(cell + 1, guarantee.delta(middle))
    return GaussianDP(mu=mu, least=least, slip=slip, error=error)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Curve:
    """δ(ε) at increasing ε from 0 to ε(δ₀), in cells between neighbouring points.

    In a cell, v runs from 0 to ``width``: e^ε = e^(its left end)·(1 + v).
    """

    epsilon: FloatArray
    delta: FloatArray
    slip: float

    @property
    def width(self) -> FloatArray:
        """The width of each cell in v."""
        return np.expm1(np.diff(self.epsilon))

    def least_mu(self) -> tuple[float, float]:
        """Return (high, low): high is proved in every cell, and below low some point is above."""
        high = 1.0
        while not self._is_proved(high):
            high *= 2
            if high > _LARGEST_MU:
                return math.inf, 0.0
        low = _search(self._reaches_points, high) * (1 - 2.0**-_HALVINGS * 4)
        return _search(self._is_proved, high), max(low, 0.0)

    def _is_proved(self, mu: float) -> bool:
        return bool(np.all(self._room(mu) >= 0))

    def _reaches_points(self, mu: float) -> bool:
        curve = _gaussian(self.epsilon, mu) * (1 + _ERROR) + self.slip
        return bool(np.all(self.delta * (1 - _ERROR) <= curve))

    def tightest_cell(self, mu: float) -> int:
        """Return the cell whose proof leaves the least room at μ, relative to δ."""
        return int(np.argmin(self._room(mu) / np.maximum(self.delta[:-1], _TINY)))

    def _room(self, mu: float) -> FloatArray:
        """Return the least δ_μ + δ₀ − δ that is proved in each cell.

        The chord of δ lies below its ends, and δ_μ above its tangents at both ends. The difference
        of the chord and the larger tangent is concave: it is largest where the tangents cross.
        """
        curve, (left, right) = _gaussian(self.epsilon, mu), self._slopes(mu)
        first, last = curve[:-1], curve[1:]
        with np.errstate(divide="ignore", invalid="ignore"):
            cross = (first - last - right * self.width) / (left - right)
        cross = np.clip(np.nan_to_num(cross), 0.0, self.width)
        chord = self.delta[:-1] + np.diff(self.delta) * (cross / self.width)
        tangent = np.maximum(first - left * cross, last + right * (self.width - cross))
        rounding = _ERROR * (first + left * self.width + self.delta[:-1])
        ends = curve * (1 - _ERROR) + self.slip - self.delta
        room: FloatArray = np.minimum(tangent + self.slip - chord - rounding, ends[:-1])
        return np.minimum(room, ends[1:])

    def _slopes(self, mu: float) -> tuple[FloatArray, FloatArray]:
        """Return −dδ_μ/dv = e^(left end)·Φ(−μ/2 − ε/μ) at both ends of each cell."""
        start = self.epsilon[:-1]
        logs = log_ndtr(-0.5 * mu - self.epsilon / mu)
        return np.exp(start + logs[:-1]), np.exp(start + logs[1:])

    def error(self, mu: float) -> tuple[float, int, float]:
        """Return the error, rounded up, the cell where it may be largest, and a value it reaches.

        δ_μ lies below its chord, and δ above the chords of the two neighbouring cells, continued.
        Left of 0 these are those of the mirrored curve, δ(−ε) = 1 − e^(−ε)(1 − δ(ε)); right of the
        last point δ does not grow. Over a straight piece the quotient is monotone.
        """
        curve = _gaussian(self.epsilon, mu) * (1 + _ERROR) + self.slip
        scale, width = np.exp(self.epsilon[:-1]), self.width
        # −dδ/dv of each cell's own chord, and of the cell before the first, in units of e^ε.
        falls = -np.diff(self.delta) / (width * scale)
        back = math.exp(-float(self.epsilon[1]))
        mirrored = 1 - back * (1 - float(self.delta[1]))
        before = (mirrored - float(self.delta[0])) / (1 - back)
        left = np.concatenate([[before], falls[:-1]]) * scale
        right = np.concatenate([falls[1:], [0.0]]) * scale
        start, end = self.delta[:-1], self.delta[1:]
        with np.errstate(divide="ignore", invalid="ignore"):
            cross = (start - end - right * width) / (left - right)
        cross = np.clip(np.nan_to_num(cross), 0.0, width)
        below = np.maximum(start - left * cross, end + right * (width - cross))
        chord = curve[:-1] + np.diff(curve) * (cross / width)
        inner = (chord - below) / (1 + scale * (1 + cross))
        points = (curve - self.delta) / (1 + np.exp(self.epsilon))
        beyond = float(curve[-1]) / (1 + math.exp(float(self.epsilon[-1])))
        reached = max(float(np.max(points)), beyond)
        largest = up(max(float(np.max(inner)), reached), most=1.0, error=_ERROR)
        return largest, int(np.argmax(inner)), reached


def _search(holds: Callable[[float], bool], high: float) -> float:
    """Return the least value that holds, from above, between 0 and ``high``, which does."""
    low = 0.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _gaussian(epsilon: FloatArray, mu: float) -> FloatArray:
    return gaussian_deltas(epsilon, np.full_like(epsilon, mu))
