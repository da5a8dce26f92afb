"""The likelihood-ratio attack: how far the target's confidence is from that of models like it.

Conventions
-----------
φ         the target's confidence in a row (``Evidence.confidence``), the log odds of its label.
IN, OUT   the references that were trained with the row, and those that were not; k of them.
μ, s²     mean and variance of φ over k references; d = k − 1 the degrees of freedom of s².

Carlini, Chien, Nasr, Song, Terzis, Tramèr (2022), *Membership inference attacks from first
principles*: by Neyman and Pearson the best test between "trained with the row" and "trained
without it" orders models by p(model ∣ IN)/p(model ∣ OUT). What the attacker sees of the model is
φ, and over trainings φ is close to normal, so that

    online    log N(φ; μ_in, σ²_in) − log N(φ; μ_out, σ²_out)              (Algorithm 1)
    offline   1 − Pr[Z > φ], Z ~ N(μ_out, σ²_out)                          (one-sided test)

Here the offline score is (φ − μ_out)/σ_out, which orders rows alike and does not run into 1.

A mean of k references is itself uncertain by s²/k: the next model's φ has variance s²(1 + 1/k)
around it, and that is the σ² used. The variances themselves are the weak point for few references.
Carlini et al. estimate one variance for all rows below 64 models and one a row from there on.
``moderated``, the default, needs no such switch: a scaled inverse χ² prior with d₀ degrees of
freedom around s₀², both fitted to the rows' own s² (Smyth 2004, *Linear models and empirical Bayes
methods*, section 6.2), gives

    s̃² = (d₀ s₀² + d s²)/(d₀ + d),

one variance for all where the rows agree (d₀ = ∞), each row's own where they do not.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, polygamma

from expost import _validate
from expost._numerics import bracket_root, row_blocks
from expost.attacks.evidence import Confidences, Evidence, Flags
from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = ["LiraOffline", "LiraOnline", "Moments", "moments_of", "spread_of"]

_VARIANCES = ("moderated", "row", "pooled")
# Of φ's standard deviation: a few steps of float32 at φ = 36, so that rounding is no evidence.
_LEAST_DEVIATION = 1e-5
# Of d₀/2: one degree of freedom, so that a row's own s² is never all that is believed.
_LEAST_HALF, _LARGEST_HALF = 0.5, 1e6


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """k, μ and Σ(φ − μ)² of each row over the references of one side, (n,) each."""

    count: FloatArray
    mean: FloatArray
    squares: FloatArray

    @property
    def freedom(self) -> FloatArray:
        """d = k − 1, at least 0."""
        return np.maximum(self.count - 1, 0)


def moments_of(references: Confidences, chosen: Flags) -> Moments:
    """Moments of each column of ``references`` over the ``chosen`` entries, block by block.

    Two passes over a block in float64: no cancellation, and a file of references is read once.
    """
    models, rows = references.shape
    moments = Moments(count=np.zeros(rows), mean=np.zeros(rows), squares=np.zeros(rows))
    for block in row_blocks(rows, models):
        values = np.asarray(references[:, block], dtype=np.float64)
        weights = np.asarray(chosen[:, block], dtype=np.float64)
        count = weights.sum(axis=0)
        mean = (weights * values).sum(axis=0) / np.maximum(count, 1)
        moments.count[block] = count
        moments.mean[block] = mean
        moments.squares[block] = (weights * (values - mean) ** 2).sum(axis=0)
    return moments


def spread_of(moments: Moments, variance: str, fallback: float | None = None) -> FloatArray:
    """(n,) standard deviations σ of the next model's φ around μ: s̃√(1 + 1/k).

    ``fallback`` is the s² of all rows where no row has two references of this side.
    """
    freedom = moments.freedom
    known = freedom > 0
    if np.any(known):
        pooled = float(moments.squares.sum() / freedom.sum())
    elif fallback is not None:
        pooled = fallback
    else:
        raise InvalidInput(
            "references: no row is on one side of two reference models, so that no spread can be"
            " told; train at least 4 (online) or 2 (offline)."
        )
    least = _LEAST_DEVIATION**2
    pooled = max(pooled, least)
    own = np.full(len(freedom), pooled)
    own[known] = np.maximum(moments.squares[known] / freedom[known], least)
    squared = np.full(len(freedom), pooled)
    if variance == "row":
        squared = own
    elif variance == "moderated" and known.sum() > 1:
        prior_freedom, prior = _prior(own[known], freedom[known], pooled)
        if prior_freedom < math.inf:
            squared = (prior_freedom * prior + freedom * own) / (prior_freedom + freedom)
    result: FloatArray = np.sqrt(squared * (1 + 1 / np.maximum(moments.count, 1)))
    return result


def _prior(variances: FloatArray, freedom: FloatArray, pooled: float) -> tuple[float, float]:
    """(d₀, s₀²) by the moments of log s² (Smyth 2004, section 6.2); (∞, pooled) for equal rows.

    log s² has mean log s₀² + ψ(d/2) − log(d/2) − ψ(d₀/2) + log(d₀/2) and variance
    ψ′(d/2) + ψ′(d₀/2).
    """
    half = freedom / 2
    centred = np.log(variances) - digamma(half) + np.log(half)
    mean = float(centred.mean())
    excess = float(centred.var(ddof=1) - polygamma(1, half).mean())
    if not excess > polygamma(1, _LARGEST_HALF):
        return math.inf, pooled
    # ψ′ decreases from ∞ to 0: −ψ′ + excess increases.
    root, _ = bracket_root(lambda x: excess - polygamma(1, x), _LEAST_HALF, _LARGEST_HALF)
    found = float(root)
    return 2 * found, math.exp(mean + float(digamma(found)) - math.log(found))


@dataclass(frozen=True, kw_only=True)
class LiraOnline:
    """log N(φ; μ_in, σ²_in) − log N(φ; μ_out, σ²_out); see the module.

    A row's score is the evidence in nats that it was among the target's, given what is normal for
    that very row: scores of different rows compare.
    """

    variance: str = "moderated"

    def __post_init__(self) -> None:
        _validate.one_of("variance", self.variance, _VARIANCES)

    @property
    def name(self) -> str:
        """``lira-online``."""
        return "lira-online"

    @property
    def needs(self) -> frozenset[str]:
        """References on both sides of each row."""
        return frozenset({"references", "both"})

    def __call__(self, evidence: Evidence) -> FloatArray:
        """(n,) scores."""
        inner = moments_of(evidence.references, evidence.inside)
        outer = moments_of(evidence.references, ~np.asarray(evidence.inside))
        if not (np.all(inner.count > 0) and np.all(outer.count > 0)):
            raise InvalidInput(
                "inside: some row is in all references or in none; lira-online needs models with"
                " and without each row, lira-offline only models without."
            )
        # With two models a row is once in and once out: what the rows' differences disagree by is
        # all that is known of the spread.
        gap = inner.mean - outer.mean
        fallback = float(gap.var() / 2)
        phi = evidence.confidence.astype(np.float64)
        return _log_normal(phi, inner, self.variance, fallback) - _log_normal(
            phi, outer, self.variance, fallback
        )


@dataclass(frozen=True, kw_only=True)
class LiraOffline:
    """(φ − μ_out)/σ_out; see the module.

    No model is trained with a row in question, so that references can be made before the rows are
    known. What that costs: a row that trainings move by δ standard deviations has the log
    likelihood ratio δz − δ²/2, and δ is unknown here. Where all rows have the same δ the order of
    z is the best order; where δ differs, offline cannot tell a row that never moves from one that
    moved by chance, and falls behind.
    """

    variance: str = "moderated"

    def __post_init__(self) -> None:
        _validate.one_of("variance", self.variance, _VARIANCES)

    @property
    def name(self) -> str:
        """``lira-offline``."""
        return "lira-offline"

    @property
    def needs(self) -> frozenset[str]:
        """References without each row."""
        return frozenset({"references", "out"})

    def __call__(self, evidence: Evidence) -> FloatArray:
        """(n,) scores."""
        outer = moments_of(evidence.references, ~np.asarray(evidence.inside))
        if not np.all(outer.count > 0):
            raise InvalidInput(
                "inside: some row is in all references; lira-offline needs models without each row."
            )
        # With one model the rows' own spread of φ stands in: one scale for all, so that the score
        # is φ less the reference's φ (Watson et al. 2022, difficulty calibration).
        fallback = float(np.var(outer.mean))
        result: FloatArray = (evidence.confidence - outer.mean) / spread_of(
            outer, self.variance, fallback
        )
        return result


def _log_normal(phi: FloatArray, moments: Moments, variance: str, fallback: float) -> FloatArray:
    """log N(φ; μ, σ²) without the constant."""
    deviation = spread_of(moments, variance, fallback)
    result: FloatArray = -0.5 * ((phi - moments.mean) / deviation) ** 2 - np.log(deviation)
    return result
