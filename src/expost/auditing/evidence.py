"""The evidence of an attacker, and the protocol of attacks.

Conventions
-----------
n rows are in question, m reference models were trained like the target, each on some of the rows.

confidence    φ = log(p/(1 − p)), p the probability that a model gives a row's own label: the log
              odds of Carlini et al. (2022), so that −log p = softplus(−φ) and p = sigmoid(φ). One
              number a row and model, float32, within ± ``LARGEST`` (a tree that is certain is not
              infinitely so).
score         one number a row: the larger, the more likely the row was a member. No attack sees
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

# About log 2⁵³: past it float64 does not tell p from 1.
LARGEST = 36.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Outputs of the target and of models like it; nothing of it says who was a member.

    ``confidence``   (n,) φ of each row under the target.
    ``labels``       (n,) the number of each row's class; zeros for a regression.
    ``references``   (m, n) φ of each row under each reference; may lie in a file (memmap).
    ``inside``       (m, n) whether the reference was trained with the row.
    ``population``   (k,) φ under the target of rows that surely were not in its training and are
                     not in question; with ``population_labels`` (k,) and
                     ``population_references`` (m, k).
    ``views``        (n, c) more that the target says of each row (largest probabilities, sorted),
                     with ``reference_views`` (s, n, c) for the first s references.
    ``extras``       further signals of the target by name, (n,) each, the larger the more likely a
                     member (a gradient's length, negated …).
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
        """n."""
        return len(self.confidence)

    @property
    def models(self) -> int:
        """m, the reference models."""
        return len(self.references)


class Attack(Protocol):
    """A function of the evidence that describes itself.

    The law all attacks share: on a target that was trained on none of the rows, or on rows chosen
    by coins it has not seen, no attack ranks members before non-members except by chance.
    """

    @property
    def name(self) -> str:
        """The name in tables, files and options: ``lira-online``."""

    @property
    def needs(self) -> frozenset[str]:
        """What the evidence must contain.

        Of {"references", "out", "both", "population", "views", "extras"}. ``out``: every row is
        left out of some reference; ``both``: and is in some other.
        """

    @property
    def description(self) -> str:
        """What the attack compares, and with what, in one line for readers who do not know it."""

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
    name, description, white_box
        As of an :class:`Attack`.
    """

    name: str
    description: str
    white_box: bool = True


def missing(attack: Attack, evidence: Evidence) -> str | None:
    """Return why the attack cannot be made with this evidence, or None."""
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
    """Whether some row is in all references, or in none."""
    return bool(np.any(inside.all(axis=0) | ~inside.any(axis=0)))
