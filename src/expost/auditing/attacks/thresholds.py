"""Attacks by a threshold on the loss: one for all, one per class, one set by a population.

Conventions
-----------
loss      −log p = softplus(−φ), of the row's own label under the target.
order     an attack's figures depend on the order of its scores alone; a threshold is where the
          order is cut.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from expost import _checks
from expost.auditing.evidence import Evidence
from expost.types import FloatArray

__all__ = ["ClassThresholds", "LossThreshold", "Population", "best_cut", "share_at_most"]

# The largest number of values from which a class's threshold is chosen: more do not improve it.
_MOST_VALUES = 2**20


@dataclass(frozen=True, kw_only=True)
class LossThreshold:
    """The score −loss: a row that the model fits well was probably a member.

    Yeom, Giacomelli, Fredrikson, Jha (2018), *Privacy risk in machine learning: analyzing the
    connection to overfitting*, Adversary 2 (threshold): answer "member" where a loss this small is
    likelier for a member; for laws of losses that cross once, below a threshold. It does not know
    which rows are easy for every model, which is the purpose of references.
    """

    name: ClassVar[str] = "loss"
    needs: ClassVar[frozenset[str]] = frozenset()
    description: ClassVar[str] = (
        "how well the model fits the row: the better, the more likely a member (Yeom 2018)"
    )
    white_box: ClassVar[bool] = False

    def __call__(self, evidence: Evidence) -> FloatArray:
        """Return (n,) scores."""
        result: FloatArray = -np.logaddexp(0.0, -evidence.confidence.astype(np.float64))
        return result


@dataclass(frozen=True, kw_only=True)
class ClassThresholds:
    """The score φ − τ_c: the confidence above the best threshold of the row's class.

    Song, Mittal (2021), *Systematic evaluation of privacy risks of machine learning models*:
    a threshold for each class, learned on shadow models, since classes differ in how well any model
    fits them. τ_c maximises TPR − FPR over the references' own members and non-members
    of the class; a class without both uses the threshold of all rows.
    """

    name: ClassVar[str] = "class-loss"
    needs: ClassVar[frozenset[str]] = frozenset({"references", "both"})
    description: ClassVar[str] = (
        "how well the model fits the row, against rows of its own class (Song 2021)"
    )
    white_box: ClassVar[bool] = False

    def __call__(self, evidence: Evidence) -> FloatArray:
        """Return (n,) scores."""
        everywhere = np.ones(evidence.rows, dtype=np.bool_)
        common = _threshold(evidence, everywhere)
        scores = evidence.confidence.astype(np.float64)
        for label in np.unique(evidence.labels):
            rows = evidence.labels == label
            own = _threshold(evidence, rows)
            scores[rows] -= next((cut for cut in (own, common) if cut is not None), 0.0)
        return scores


def _threshold(evidence: Evidence, rows: NDArray[np.bool_]) -> float | None:
    """Return the best threshold of the references on ``rows``; None without both sides."""
    models = min(evidence.models, max(1, _MOST_VALUES // max(int(rows.sum()), 1)))
    values = np.asarray(evidence.references[:models, rows], dtype=np.float64).ravel()
    truth = np.asarray(evidence.inside[:models, rows]).ravel()
    return best_cut(values, truth)


def best_cut(values: FloatArray, truth: NDArray[np.bool_]) -> float | None:
    """Return the τ that maximises TPR − FPR of "member if value ≥ τ"; None without both sides.

    Midway to the next smaller value, the smallest such cut among equals; the least value, if no cut
    is better than to call all of them members.
    """
    members, others = int(truth.sum()), int(truth.size - truth.sum())
    if members == 0 or others == 0:
        return None
    distinct, index = np.unique(values, return_inverse=True)
    inside = np.bincount(index, weights=truth, minlength=len(distinct)) / members
    outside = np.bincount(index, weights=~truth, minlength=len(distinct)) / others
    # Every cut loses the members below it, and gains the non-members below it.
    gain = np.cumsum(outside - inside)[:-1]
    if gain.size == 0 or not gain.max() > 0:
        return float(distinct[0])
    best = int(np.argmax(gain))
    return float(0.5 * (distinct[best] + distinct[best + 1]))


@dataclass(frozen=True, kw_only=True)
class Population:
    """The share of a population, of the row's class, in which the target is not more confident.

    Ye, Maddi, Murakonda, Bindschaedler, Shokri (2022), *Enhanced membership inference attacks
    against machine learning models*, Attack P: the threshold for a false-positive rate α is the
    α-quantile of the target's losses on rows that were not in its training, so that the score is
    1 − α for the smallest α at which the row is called a member. Within a class it orders rows as
    the loss does; between classes it compares each row with the population's rows of that class. A
    class with fewer than ``least`` of them is compared with the whole population.
    """

    name: ClassVar[str] = "population"
    needs: ClassVar[frozenset[str]] = frozenset({"population"})
    description: ClassVar[str] = (
        "the fit, against rows that were certainly not in the training data (Ye 2022)"
    )
    white_box: ClassVar[bool] = False

    least: int = 50

    def __post_init__(self) -> None:
        _checks.integer("least", self.least, least=1)

    def __call__(self, evidence: Evidence) -> FloatArray:
        """Return (n,) scores."""
        confidence = evidence.confidence.astype(np.float64)
        population = evidence.population.astype(np.float64)
        scores = share_at_most(confidence, population)
        for label in np.unique(evidence.labels):
            alike = evidence.population_labels == label
            if int(alike.sum()) >= self.least:
                rows = evidence.labels == label
                scores[rows] = share_at_most(confidence[rows], population[alike])
        return scores


def share_at_most(values: FloatArray, others: FloatArray) -> FloatArray:
    """Return the share of ``others`` at most each value, in (0, 1), ties ordered by the value.

    (count + t)/(len(others) + 1) with t in (0, 1) increasing in the value: the order by the share
    is unchanged; rows beyond all others, which determine low false-positive rates, are not tied.
    """
    count = np.searchsorted(np.sort(others), values, side="right")
    within = 0.5 + 0.5 * values / (1 + np.abs(values))
    result: FloatArray = (count + within) / (len(others) + 1)
    return result
