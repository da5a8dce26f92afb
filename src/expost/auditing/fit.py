"""Fit: whether an existing model predicts its own training rows at all.

A model whose classes or columns are read in the wrong order answers nonsense, and attacks on
nonsense find nothing. Such a model does not beat the most frequent label on the rows it was
trained on.

Conventions
-----------
p      (n,) the probability of each row's own label, p = sigmoid(φ) (:mod:`auditing.evidence`).
right  1 where p is the largest probability of the row, ½ where it is tied with another.
R²     1 − mean((y − ŷ)²)/var(y) of a regression, over the rows of one kind.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from expost._counts import Share
from expost.auditing.evidence import Evidence, Flags
from expost.types import FloatArray

__all__ = ["Fit", "fit_of"]

# Probabilities are stored in float32, and φ within about 10⁻⁶ of itself.
_TIE = 1e-5
# Standard errors by which the mean recall must exceed that of random guessing.
_ERRORS = 3.0


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How well a model predicts the labels of its members and of non-members.

    Parameters
    ----------
    measure : str
        ``accuracy``, or ``R²`` of a regression.
    members, non_members : float
        The measure on rows of each kind.
    baseline : float
        What a constant prediction reaches on the members: the share of the most frequent label, or
        an R² of 0.
    is_certain : bool
        Whether the model certainly predicts its members better than a constant does: by accuracy
        or, where labels are unbalanced, by the mean recall of the classes. An R² must exceed 0.
    """

    measure: str
    members: float
    non_members: float
    baseline: float
    is_certain: bool

    @property
    def is_regression(self) -> bool:
        """Whether the model predicts numbers."""
        return self.measure == "R²"

    def to_json(self) -> dict[str, Any]:
        """Return every figure by name.

        Returns
        -------
        dict[str, Any]
            The fields.
        """
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def fit_of(
    evidence: Evidence, truth: Flags, y: Any, *, scale: float | None, confidence: float
) -> Fit | None:
    """Return how well the target predicts its rows.

    Parameters
    ----------
    evidence : Evidence
        The answers of the target.
    truth : Flags
        (n,) the members.
    y : Any
        (n,) the labels.
    scale : float | None
        The s of a regression (:mod:`auditing.signals`); None for classes.
    confidence : float
        With which the accuracy exceeds the baseline.

    Returns
    -------
    Fit | None
        None if the evidence lacks probabilities.
    """
    if scale is not None:
        labels = np.asarray(y, dtype=np.float64)
        squares = 2 * scale**2 * np.logaddexp(0, -evidence.confidence.astype(np.float64))
        members, non_members = (
            1 - float(np.mean(squares[kind])) / (float(np.var(labels[kind])) or 1.0)
            for kind in (truth, ~truth)
        )
        return Fit(
            measure="R²",
            members=members,
            non_members=non_members,
            baseline=0.0,
            is_certain=members > 0,
        )
    if evidence.views.shape[1] < 2:
        return None
    right = _right(evidence)
    _, codes, counts = np.unique(evidence.labels[truth], return_inverse=True, return_counts=True)
    baseline = float(counts.max() / counts.sum())
    hits = np.bincount(codes, weights=right[truth]) / counts
    error = float(np.sqrt(np.sum(hits * (1 - hits) / counts))) / len(counts)
    accuracy = Share(hits=int(right[truth].sum()), trials=int(counts.sum()), confidence=confidence)
    return Fit(
        measure="accuracy",
        members=float(right[truth].mean()),
        non_members=float(right[~truth].mean()),
        baseline=baseline,
        # Rows of one class cannot show it.
        is_certain=len(counts) > 1
        and (accuracy.low > baseline or float(hits.mean()) - _ERRORS * error > 1 / len(counts)),
    )


def _right(evidence: Evidence) -> FloatArray:
    own = expit(evidence.confidence.astype(np.float64))
    largest, second = evidence.views[:, 0], evidence.views[:, 1]
    right = np.where(largest - second <= _TIE * largest, 0.5, 1.0)
    return np.where(own >= largest * (1 - _TIE), right, 0.0)
