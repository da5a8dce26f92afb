"""The likelihood-ratio attack: the target's confidence compared with that of references.

Conventions
-----------
φ         the target's confidence in a row (``Evidence.confidence``), the log odds of its label.
IN, OUT   the references that were trained with the row, and those that were not; k of them.
μ, s²     mean and variance of φ over the k references of a side; d = k − 1.

Carlini, Chien, Nasr, Song, Terzis, Tramèr (2022), *Membership inference attacks from first
principles*: by Neyman and Pearson the best test between "trained with the row" and "trained
without it" orders models by p(model ∣ IN)/p(model ∣ OUT). What the attacker sees of the model is
φ, and over trainings φ is close to normal, so that

    online    log N(φ; μ_in, s²_in) − log N(φ; μ_out, s²_out)              (Algorithm 1)
    offline   1 − Pr[Z > φ], Z ~ N(μ_out, s²_out)                          (one-sided test)

The offline score here is (φ − μ_out)/s_out, which orders rows alike and does not run into 1.

Estimates
---------
- ``row``: μ and s² of each row, as in Algorithm 1: for hundreds of references.
- ``pooled``: μ of each row, one s² a side for all rows: Carlini et al. for few references.
- ``moderated``: the default, for any number. Means and variances of k models are noisy, and a score
  adds the noise of four of them. Instead, all rows are estimated together (empirical Bayes):

    s̃²     one a row, s²_out = s̃² and s²_in = ρ s̃² with one ρ for all rows; s̃² = (d₀ s₀² + d s²)/
           (d₀ + d), d of both sides, (d₀, s₀²) fitted to the rows' own s² (Smyth 2004, *Linear
           models and empirical Bayes methods*, section 6.2).
    g̃      the gap (μ_in − μ_out)/s̃ has the sampling variance v = ρ/k_in + 1/k_out. With gaps
           spread as N(g₀, τ²) over rows, g̃ = (v g₀ + τ² g)/(v + τ²), of variance τ²v/(τ² + v).
    μ̃      on both sides of the mean of all k models, weighted by precision, g̃ s̃ apart.

    The next model's φ then has Student's law with d₀ + d degrees of freedom around μ̃, of a scale
    that includes s̃², the mean's error and the gap's. If rows agree, the score is that of pooled
    estimates, with many references that of each row's own. With one model per side it orders rows
    as the offline score with the mean of both.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import digamma, polygamma

from expost import _checks
from expost._numerics import bracket_root, row_blocks
from expost.auditing.evidence import Confidences, Evidence, Flags
from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = ["LiraOffline", "LiraOnline", "variance_prior"]

_ESTIMATES = ("moderated", "row", "pooled")
# Of s²: s is then a few steps of float32 at φ = 36, so that rounding is no evidence.
_LEAST = 1e-10
# Of d₀/2: one degree of freedom, so that a row's own s² is never used alone.
_LEAST_HALF, _LARGEST_HALF = 0.5, 1e6


@dataclass(frozen=True, kw_only=True)
class LiraOnline:
    """log p(φ ∣ IN) − log p(φ ∣ OUT); see the module.

    A row's score is the evidence in nats that it was a member, relative to that row's own laws:
    scores of different rows are comparable.
    """

    name: ClassVar[str] = "lira-online"
    needs: ClassVar[frozenset[str]] = frozenset({"references", "both"})
    description: ClassVar[str] = (
        "the fit, against models trained with the row and without it (Carlini 2022)"
    )
    white_box: ClassVar[bool] = False

    estimates: str = "moderated"

    def __post_init__(self) -> None:
        _checks.one_of("estimates", self.estimates, _ESTIMATES)

    def __call__(self, evidence: Evidence) -> FloatArray:
        """Return (n,) scores."""
        inner = _moments(evidence.references, evidence.inside, True)
        outer = _moments(evidence.references, evidence.inside, False)
        if not (np.all(inner.count > 0) and np.all(outer.count > 0)):
            raise InvalidInput(
                "inside: some row is in all references or in none; lira-online needs models with"
                " and without each row, lira-offline only models without."
            )
        phi = evidence.confidence.astype(np.float64)
        if self.estimates == "moderated":
            return _moderated(phi, inner, outer)
        scores = np.zeros(len(phi))
        for side, sign in ((inner, 1.0), (outer, -1.0)):
            variance = (
                _own(side, (inner, outer))
                if self.estimates == "row"
                else _pooled(side, (inner, outer))
            )
            scores -= sign * 0.5 * ((phi - side.mean) ** 2 / variance + np.log(variance))
        return scores


@dataclass(frozen=True, kw_only=True)
class LiraOffline:
    """(φ − μ_out)/s_out; see the module.

    No reference is trained with a row in question, so that references can be trained before the
    rows are known. The cost: a row that training moves by g standard deviations has the log
    likelihood ratio gz − g²/2, and g is unknown here. If all rows have the same g, the order of z
    is optimal; if they differ, the attack cannot distinguish a row that never moves from one that
    moved by chance, and is weaker.
    """

    name: ClassVar[str] = "lira-offline"
    needs: ClassVar[frozenset[str]] = frozenset({"references", "out"})
    description: ClassVar[str] = "the fit, against models trained without the row (Carlini 2022)"
    white_box: ClassVar[bool] = False

    estimates: str = "moderated"

    def __post_init__(self) -> None:
        _checks.one_of("estimates", self.estimates, _ESTIMATES)

    def __call__(self, evidence: Evidence) -> FloatArray:
        """Return (n,) scores."""
        outer = _moments(evidence.references, evidence.inside, False)
        if not np.all(outer.count > 0):
            raise InvalidInput(
                "inside: some row is in all references; lira-offline needs models without each row."
            )
        if self.estimates == "row":
            variance = _own(outer, (outer,))
        elif self.estimates == "pooled":
            variance = np.full(evidence.rows, _pooled(outer, (outer,)))
        else:
            variance, _ = _shrunk(outer.squares, outer.freedom, _pooled(outer, (outer,)))
            variance *= 1 + 1 / outer.count
        result: FloatArray = (evidence.confidence - outer.mean) / np.sqrt(variance)
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class _Moments:
    """k, μ and Σ(φ − μ)² of each row over the references of one side, (n,) each."""

    count: FloatArray
    mean: FloatArray
    squares: FloatArray

    @property
    def freedom(self) -> FloatArray:
        """d = k − 1, at least 0."""
        return np.maximum(self.count - 1, 0)


def _moments(references: Confidences, inside: Flags, side: bool) -> _Moments:
    """Return the moments of each column over the entries where ``inside`` is ``side``.

    Two passes over each block in float64: no cancellation, and a file of references is read once.
    """
    models, rows = references.shape
    moments = _Moments(count=np.zeros(rows), mean=np.zeros(rows), squares=np.zeros(rows))
    for block in row_blocks(rows, models):
        values = np.asarray(references[:, block], dtype=np.float64)
        weights = (np.asarray(inside[:, block]) == side).astype(np.float64)
        count = weights.sum(axis=0)
        mean = (weights * values).sum(axis=0) / np.maximum(count, 1)
        moments.count[block] = count
        moments.mean[block] = mean
        moments.squares[block] = (weights * (values - mean) ** 2).sum(axis=0)
    return moments


def _pooled(side: _Moments, sides: tuple[_Moments, ...]) -> float:
    """Return one s² for all rows: of ``side``, or of all ``sides`` if no row has two models of it.

    If no row has, the gap between the sides varies over rows by 2s², and with one side and one
    model μ itself does: that only sets the unit of the scores.
    """
    for chosen in ((side,), sides):
        freedom = sum(float(moments.freedom.sum()) for moments in chosen)
        if freedom > 0:
            squares = sum(float(moments.squares.sum()) for moments in chosen)
            return max(squares / freedom, _LEAST)
    if len(sides) > 1:
        return max(float(np.var(sides[0].mean - sides[1].mean)) / 2, _LEAST)
    return max(float(np.var(side.mean)), _LEAST)


def _own(side: _Moments, sides: tuple[_Moments, ...]) -> FloatArray:
    """Return s² of each row; the pooled one if a row has a single model of this side."""
    known = side.freedom > 0
    variance = np.full(len(known), _pooled(side, sides))
    variance[known] = np.maximum(side.squares[known] / side.freedom[known], _LEAST)
    return variance


def _shrunk(
    squares: FloatArray, freedom: FloatArray, pooled: float
) -> tuple[FloatArray, FloatArray | float]:
    """Return (s̃², d₀ + d): each row's variance shrunk to that of all rows, and its freedom."""
    known = freedom > 0
    if known.sum() < 2:
        return np.full(len(freedom), pooled), math.inf
    own = np.maximum(squares[known] / freedom[known], _LEAST)
    prior_freedom, prior = variance_prior(own, freedom[known])
    if math.isinf(prior_freedom):
        return np.full(len(freedom), pooled), math.inf
    total = prior_freedom + freedom
    return (prior_freedom * prior + np.maximum(squares, freedom * _LEAST)) / total, total


def variance_prior(variances: FloatArray, freedom: FloatArray) -> tuple[float, float]:
    """Return (d₀, s₀²) by the moments of log s² (Smyth 2004, section 6.2).

    Under the prior log s² has mean log s₀² + ψ(d/2) − log(d/2) − ψ(d₀/2) + log(d₀/2) and variance
    ψ′(d/2) + ψ′(d₀/2).

    Parameters
    ----------
    variances : FloatArray
        (n,) s² > 0 of each row.
    freedom : FloatArray
        (n,) d, the degrees of freedom of each s².

    Returns
    -------
    tuple[float, float]
        d₀ and s₀²; d₀ = ∞ where the variances differ no more than by chance.
    """
    half = freedom / 2
    centred = np.log(variances) - digamma(half) + np.log(half)
    excess = float(centred.var(ddof=1) - polygamma(1, half).mean())
    if not excess > polygamma(1, _LARGEST_HALF):
        return math.inf, math.exp(float(centred.mean()))
    # ψ′ falls from ∞ to 0, so that this increases.
    root, _ = bracket_root(lambda x: excess - polygamma(1, x), _LEAST_HALF, _LARGEST_HALF)
    half_freedom = float(root)
    return 2 * half_freedom, math.exp(
        float(centred.mean()) + float(digamma(half_freedom)) - math.log(half_freedom)
    )


def _moderated(phi: FloatArray, inner: _Moments, outer: _Moments) -> FloatArray:
    """Return the log ratio of the predictive laws of φ with all rows estimated together."""
    sides = (inner, outer)
    pooled = _pooled(outer, sides)
    ratio = _pooled(inner, sides) / pooled
    variance, freedom = _shrunk(
        outer.squares + inner.squares / ratio, outer.freedom + inner.freedom, pooled
    )
    scale = np.sqrt(variance)
    # Precisions of the two means and of their weighted mean, in units of 1/s̃².
    weight_in, weight_out = inner.count / ratio, outer.count
    weight = weight_in + weight_out
    centre = (weight_in * inner.mean + weight_out * outer.mean) / weight
    gap, error = _gaps((inner.mean - outer.mean) / scale, 1 / weight_in + 1 / weight_out)
    part_in, part_out = weight_out / weight, weight_in / weight
    log_in = _log_student(
        (phi - centre) / scale - part_in * gap, ratio + 1 / weight + part_in**2 * error, freedom
    )
    log_out = _log_student(
        (phi - centre) / scale + part_out * gap, 1 + 1 / weight + part_out**2 * error, freedom
    )
    return log_in - log_out


def _gaps(gaps: FloatArray, sampling: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return g̃ and its variance: each gap is shrunk to the mean by its ``sampling`` variance."""
    spread = max(0.0, float(gaps.var() - sampling.mean()))
    total = spread + sampling
    return (sampling * gaps.mean() + spread * gaps) / total, spread * sampling / total


def _log_student(z: FloatArray, variance: FloatArray, freedom: FloatArray | float) -> FloatArray:
    """Return Student's log density up to terms both sides share; the normal one for ∞."""
    squared = z**2 / variance
    if np.all(np.isinf(freedom)):
        tail: FloatArray = -0.5 * squared
    else:
        tail = -0.5 * (freedom + 1) * np.log1p(squared / freedom)
    result: FloatArray = tail - 0.5 * np.log(variance)
    return result
