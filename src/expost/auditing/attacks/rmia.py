"""RMIA: a row's likelihood under the target relative to models in general and to other rows.

Conventions
-----------
p(x ∣ θ)  the probability that the model θ gives x's label, sigmoid(φ).
p(x)      the same for models in general: the mean over models with the row and without.
z         rows of a population, or the other rows in question where there is none.

Zarifzadeh, Liu, Shokri (2024), *Low-cost high-power membership inference attacks*: the hypothesis
"x was a member" is tested against every "z was a member instead". By Bayes

    LR(x, z) = p(θ ∣ x)/p(θ ∣ z) = (p(x ∣ θ)/p(x)) / (p(z ∣ θ)/p(z)),
    score(x) = Pr_z[LR(x, z) ≥ γ].

The score increases with the ratio p(x ∣ θ)/p(x): γ and the population set its scale (the share of
other rows that the row exceeds γ-fold), the ratio its order. Ties of the share are ordered by the
ratio. With γ = 1 and a population, 1 − score is about the probability that a row of the population
reaches the ratio of the row.

    online    p(x) = ½ (p_in + p_out), means over the references with and without x
    offline   p(x) = ½ ((1 + a) p_out + (1 − a)), assuming p_in = a·p_out + (1 − a)

a ∈ [0, 1] is how far training on a row lifts it towards 1: a = 1 not at all. The authors choose it
for a data set by letting one reference attack another. So does ``a=None``: each of a few references
is the target of the others, whose rows are known, and the a with the largest AUC of the ratio is
used. The target itself is not used.

A population row is in no reference: its p(z) is the offline one also in the online attack, with the
a of the rows in question, the least squares of 1 − p_in = a (1 − p_out).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit, log_expit
from scipy.stats import rankdata

from expost import _checks
from expost._numerics import row_blocks
from expost.auditing.attacks.thresholds import share_at_most
from expost.auditing.evidence import Confidences, Evidence, Flags
from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = ["RmiaOffline", "RmiaOnline"]

_GRID = tuple(step / 10 for step in range(11))
# References attacked to choose a: each costs a sort of all rows for every a.
_SIMULATED = 4
_DEFAULT = 0.3
# The largest number of answers from which a is chosen.
_MOST_VALUES = 2**22


@dataclass(frozen=True, kw_only=True)
class RmiaOnline:
    """Pr_z[p(x ∣ θ)/p(x) ≥ γ p(z ∣ θ)/p(z)], p(x) from models with x and without; see above."""

    name: ClassVar[str] = "rmia-online"
    needs: ClassVar[frozenset[str]] = frozenset({"references", "both"})
    description: ClassVar[str] = (
        "the fit, against other rows and models with and without the row (Zarifzadeh 2024)"
    )
    white_box: ClassVar[bool] = False

    gamma: float = 1.0

    def __post_init__(self) -> None:
        _checks.positive("gamma", self.gamma)

    def __call__(self, evidence: Evidence) -> FloatArray:
        """Return (n,) scores."""
        inner, outer = _means(evidence.references, evidence.inside)
        if not (np.all(inner > 0) and np.all(outer > 0)):
            raise InvalidInput(
                "inside: some row is in all references or in none; rmia-online needs models with"
                " and without each row, rmia-offline only models without."
            )
        return _scores(evidence, 0.5 * (inner + outer), self.gamma, _lift(inner, outer))


@dataclass(frozen=True, kw_only=True)
class RmiaOffline:
    """Pr_z[p(x ∣ θ)/p(x) ≥ γ p(z ∣ θ)/p(z)], p(x) from models without x alone; see above."""

    name: ClassVar[str] = "rmia-offline"
    needs: ClassVar[frozenset[str]] = frozenset({"references", "out"})
    description: ClassVar[str] = (
        "the fit, against other rows and models without the row (Zarifzadeh 2024)"
    )
    white_box: ClassVar[bool] = False

    gamma: float = 1.0
    a: float | None = None

    def __post_init__(self) -> None:
        _checks.positive("gamma", self.gamma)
        if self.a is not None and not 0 <= self.a <= 1:
            raise InvalidInput(f"a={self.a!r}: must be from 0 to 1, or None to choose it.")

    def __call__(self, evidence: Evidence) -> FloatArray:
        """Return (n,) scores."""
        _, outer = _means(evidence.references, evidence.inside)
        if not np.all(outer > 0):
            raise InvalidInput(
                "inside: some row is in all references; rmia-offline needs models without each row."
            )
        a = _chosen(evidence) if self.a is None else self.a
        return _scores(evidence, _offline(outer, a), self.gamma, a)


def _scores(evidence: Evidence, general: FloatArray, gamma: float, a: float) -> FloatArray:
    """Return Pr_z[LR(x, z) ≥ γ] with p(x) = ``general``, ties ordered by the ratio."""
    ratio = _log_ratio(evidence.confidence, general)
    others = ratio
    if len(evidence.population):
        never = np.zeros(evidence.population_references.shape, dtype=np.bool_)
        _, outer = _means(evidence.population_references, never)
        others = _log_ratio(evidence.population, _offline(outer, a))
    return share_at_most(ratio - np.log(gamma), others)


def _log_ratio(confidence: Confidences, general: FloatArray) -> FloatArray:
    """Return log p(x ∣ θ)/p(x); finite, because φ ≥ −36 keeps every p above 10⁻¹⁶."""
    result: FloatArray = log_expit(confidence.astype(np.float64)) - np.log(general)
    return result


def _offline(outer: FloatArray, a: float) -> FloatArray:
    """Return ½ ((1 + a) p_out + (1 − a))."""
    return 0.5 * ((1 + a) * outer + (1 - a))


def _means(references: Confidences, inside: Flags) -> tuple[FloatArray, FloatArray]:
    """Return (p_in, p_out) of each row; 0 where there is no such model."""
    models, rows = references.shape
    inner, outer = np.zeros(rows), np.zeros(rows)
    for block in row_blocks(rows, models):
        probability = expit(np.asarray(references[:, block], dtype=np.float64))
        flags = np.asarray(inside[:, block])
        for means, chosen in ((inner, flags), (outer, ~flags)):
            means[block] = (probability * chosen).sum(axis=0) / np.maximum(chosen.sum(axis=0), 1)
    return inner, outer


def _lift(inner: FloatArray, outer: FloatArray) -> float:
    """Return the a of 1 − p_in = a (1 − p_out) by least squares, within [0, 1]."""
    square = float(np.square(1 - outer).sum())
    return float(np.clip(((1 - inner) * (1 - outer)).sum() / square, 0, 1)) if square > 0 else 1.0


def _chosen(evidence: Evidence) -> float:
    """Return the a with which references attack each other best; ``_DEFAULT`` with one reference.

    The largest a among equals: it assumes least.
    """
    rows = slice(None, None, max(1, -(-evidence.rows * evidence.models // _MOST_VALUES)))
    probability = expit(np.asarray(evidence.references[:, rows], dtype=np.float64))
    outside = ~np.asarray(evidence.inside[:, rows])
    total, count = (probability * outside).sum(axis=0), outside.sum(axis=0)
    areas = np.zeros(len(_GRID))
    for model in range(min(evidence.models, _SIMULATED)):
        left = count - outside[model]
        usable = left > 0
        truth = ~outside[model, usable]
        if truth.all() or not truth.any():
            continue
        outer = (total - probability[model] * outside[model])[usable] / left[usable]
        own = np.log(probability[model, usable])
        areas += [_area(own - np.log(_offline(outer, a)), truth) for a in _GRID]
    if not areas.any():
        return _DEFAULT
    return max(a for a, area in zip(_GRID, areas, strict=True) if area == areas.max())


def _area(scores: FloatArray, truth: Flags) -> float:
    """Return the AUC of ``scores`` by the members' rank sum (Mann and Whitney), ties at half."""
    members, others = int(truth.sum()), int(truth.size - truth.sum())
    ranks = float(rankdata(scores)[truth].sum())
    return (ranks - members * (members + 1) / 2) / (members * others)
