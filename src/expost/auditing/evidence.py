"""The evidence of an attacker, and the protocol of attacks.

Conventions
-----------
n rows are in question, m reference models were trained like the target, each on some of the rows.

confidence    φ = log(p/(1 − p)), p the probability that a model gives a row's own label: the log
              odds of Carlini et al. (2022), so that −log p = softplus(−φ) and p = sigmoid(φ). One
              number per row and model, float32, within ± ``LARGEST`` (also for a model that gives
              p = 1).
score         one number per row: the larger, the more likely the row was a member. No attack sees
              which rows were; a score is finite, or the attack raises.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = ["LARGEST", "Attack", "Confidences", "Evidence", "Flags", "Signal", "missing"]

Confidences = NDArray[np.float32]
Flags = NDArray[np.bool_]

# About log 2⁵³: beyond it p is 1 in float64.
LARGEST = 36.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Outputs of the target and of its references; nothing in it states which rows were members.

    Parameters
    ----------
    confidence : Confidences
        (n,) φ of each row under the target.
    labels : NDArray[np.int32]
        (n,) the code of each row's class; zeros for a regression.
    references : Confidences
        (m, n) φ of each row under each reference; may lie in a file (memmap).
    inside : Flags
        (m, n) whether the reference was trained with the row.
    population : Confidences
        (k,) φ under the target of rows that were certainly not in its training data and are not in
        question.
    population_labels : NDArray[np.int32]
        (k,) the codes of their classes.
    population_references : Confidences
        (m, k) their φ under each reference.
    views : Confidences
        (n, c) the largest probabilities of each row under the target, sorted.
    reference_views : Confidences
        (s, n, c) the same under the first s references.
    extras : dict[str, FloatArray], optional
        Further signals of the target by name, (n,) each, the larger the more likely a member (for
        instance minus a gradient's norm).
    """

    confidence: Confidences
    labels: NDArray[np.int32]
    references: Confidences
    inside: Flags
    population: Confidences
    population_labels: NDArray[np.int32]
    population_references: Confidences
    views: Confidences
    reference_views: Confidences
    extras: dict[str, FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n, m, k = len(self.confidence), len(self.references), len(self.population)
        shapes = {
            "labels": (n,),
            "references": (m, n),
            "inside": (m, n),
            "population_labels": (k,),
            "population_references": (m, k),
            "views": (n, *self.views.shape[1:2]),
            "reference_views": (len(self.reference_views), n, *self.views.shape[1:2]),
        }
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise InvalidInput(
                    f"{name}: has the shape {getattr(self, name).shape}, must have {shape}."
                )

    @property
    def rows(self) -> int:
        """The number n of rows in question."""
        return len(self.confidence)

    @property
    def models(self) -> int:
        """The number m of reference models."""
        return len(self.references)


class Attack(Protocol):
    """A function of the evidence, with its name, needs and description.

    The law all attacks share: on a target that was trained on none of the rows, or on rows chosen
    by coins independent of it, no attack ranks members before non-members except by chance.
    """

    @property
    def name(self) -> str:
        """The name in tables, files and options: ``lira-online``."""

    @property
    def needs(self) -> frozenset[str]:
        """The parts of the evidence that the attack needs.

        A subset of {"references", "out", "both", "population", "views", "extras"}. ``out``: every
        row is left out of some reference; ``both``: and is in some other.
        """

    @property
    def description(self) -> str:
        """One line on what the attack compares, for readers who do not know it."""

    @property
    def white_box(self) -> bool:
        """Whether the attack needs more than the model's answers."""

    def __call__(self, evidence: Evidence) -> FloatArray:
        """Return (n,) scores."""


@dataclass(frozen=True, kw_only=True)
class Signal:
    """A score that is computed elsewhere and passed in ``Evidence.extras`` under its name.

    Parameters
    ----------
    name, description, white_box : str, bool
        As of an :class:`Attack`.
    """

    name: str
    description: str
    white_box: bool = True


def missing(attack: Attack, evidence: Evidence) -> str | None:
    """Return why the attack cannot be run on this evidence, or None."""
    have: dict[str, Any] = {
        "references": evidence.models > 0,
        "out": evidence.models > 0 and not np.any(evidence.inside.all(axis=0)),
        "both": evidence.models > 1 and not _one_sided(evidence.inside),
        "population": len(evidence.population) > 0,
        "views": evidence.views.shape[1] > 0 and len(evidence.reference_views) > 0,
        "extras": bool(evidence.extras),
    }
    lacking = sorted(need for need in attack.needs if not have.get(need))
    return f"needs {', '.join(lacking)}" if lacking else None


def _one_sided(inside: Flags) -> bool:
    """Return whether some row is in all references, or in none."""
    return bool(np.any(inside.all(axis=0) | ~inside.any(axis=0)))
