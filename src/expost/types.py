"""The notions that every layer shares.

Conventions (the whole package)
-------------------------------
n, d      number of rows; number of coordinates of θ (an intercept counts).
X, y      rows in the unit ball (n, d) after encoding; labels ±1, or real for regression.
J(θ; D)   (1/n) Σ ℓ(θ; zᵢ) + (Λ/2)∥θ∥²; ``regularization`` is always this Λ.
A         the minimiser of J on D (``base``); Aᵢ the minimiser without row i.
shift     Aᵢ − A;  ``distance`` its norm.
loss      log p(θ ∣ D) − log p(θ ∣ D₋ᵢ) in nats; > 0 is evidence that the row was there.
exposure  ∣loss∣.
"""

from enum import Enum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from expost.errors import InvalidInput

__all__ = ["Audience", "FloatArray", "IntArray", "Neighbouring"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Neighbouring(Enum):
    """Which data sets count as neighbours of D.

    REMOVE: D without one of its rows. ADD: D with one more row. REPLACE: one row of D exchanged.
    """

    REMOVE = "remove"
    ADD = "add"
    REPLACE = "replace"

    @classmethod
    def parse(cls, value: "Neighbouring | str") -> "Neighbouring":
        """Return the member that ``value`` names."""
        try:
            return cls(value)
        except ValueError:
            names = ", ".join(repr(member.value) for member in cls)
            raise InvalidInput(f"relation={value!r}: must be one of {names}.") from None


class Audience(Enum):
    """Whether a result may leave the building (ACRO's three words).

    FAIL: exact per-row figures or their ranking, a function of the data. REVIEW: aggregates that
    depend on the data. PASS: data-independent, or released through a mechanism with a budget.
    """

    FAIL = "fail"
    REVIEW = "review"
    PASS = "pass"

    @property
    def meaning(self) -> str:
        """One sentence for the person who holds the file."""
        match self:
            case Audience.FAIL:
                return "For the curator only: exact figures of single rows; do not pass on."
            case Audience.REVIEW:
                return "Aggregates that depend on the data: pass on only after a review."
            case Audience.PASS:
                return "May be published: released through the mechanism, or free of the data."

    def file_name(self, stem: str, suffix: str) -> str:
        """``stem.suffix``, with CURATOR-ONLY between them unless the file may be published."""
        return f"{stem}.{suffix}" if self is Audience.PASS else f"{stem}.CURATOR-ONLY.{suffix}"

    def path(self, path: str | Path) -> Path:
        """``path`` under a name that says for whom the file is; it must end in a suffix."""
        try:
            path = Path(path)
        except TypeError:
            raise InvalidInput("path: must be the name of a file, as 'profile.json'.") from None
        if "CURATOR-ONLY" in path.name:
            return path
        if not path.suffix:
            raise InvalidInput(f"path={str(path)!r}: must end in a suffix, as .json or .parquet.")
        return path.with_name(self.file_name(path.stem, path.suffix.lstrip(".")))
