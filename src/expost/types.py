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
    """The relation by which data sets are neighbours of D.

    REMOVE: D without one of its rows. ADD: D with one more row. REPLACE: one row of D exchanged.
    """

    REMOVE = "remove"
    ADD = "add"
    REPLACE = "replace"

    @classmethod
    def parse(cls, value: "Neighbouring | str") -> "Neighbouring":
        """Return the member that ``value`` names.

        Parameters
        ----------
        value : Neighbouring | str
            A member, or its value, such as "remove".

        Returns
        -------
        Neighbouring
            The member.

        Raises
        ------
        InvalidInput
            If there is no such member.
        """
        try:
            return cls(value)
        except ValueError:
            names = ", ".join(repr(member.value) for member in cls)
            raise InvalidInput(f"relation={value!r}: must be one of {names}.") from None


class Audience(Enum):
    """The readers of a result.

    CURATOR_ONLY: exact per-row figures or their ranking, a function of the data. NEEDS_REVIEW:
    aggregates that depend on the data. PUBLIC: data-independent, or released through a mechanism
    with a budget.
    """

    CURATOR_ONLY = "curator-only"
    NEEDS_REVIEW = "needs-review"
    PUBLIC = "public"

    @property
    def meaning(self) -> str:
        """The audience and its reason, for the holder of the file."""
        match self:
            case Audience.CURATOR_ONLY:
                return "Curator only: contains exact figures of single rows. Do not share."
            case Audience.NEEDS_REVIEW:
                return (
                    "Needs review: aggregates that depend on the data. Share only after a review."
                )
            case Audience.PUBLIC:
                return "Public: released through the mechanism, or independent of the data."

    @property
    def line(self) -> str:
        """The value and the meaning, as 'public: released …'."""
        return f"{self.value}:{self.meaning.partition(':')[2]}"

    def file_name(self, stem: str, suffix: str) -> str:
        """Return ``stem.suffix``, with CURATOR-ONLY between them unless the file is public.

        Parameters
        ----------
        stem : str
            The name without its suffix.
        suffix : str
            The suffix, without a point.

        Returns
        -------
        str
            The name of the file.
        """
        return f"{stem}.{suffix}" if self is Audience.PUBLIC else f"{stem}.CURATOR-ONLY.{suffix}"

    def path(self, path: str | Path) -> Path:
        """Return ``path`` with CURATOR-ONLY in its name unless the file is public.

        Parameters
        ----------
        path : str | Path
            The path of a file whose name has a suffix.

        Returns
        -------
        Path
            The path of the file.

        Raises
        ------
        InvalidInput
            If ``path`` is not a path, or has no suffix.
        """
        try:
            path = Path(path)
        except TypeError:
            raise InvalidInput("path: must be the name of a file, as 'profile.json'.") from None
        if "CURATOR-ONLY" in path.name:
            return path
        if not path.suffix:
            raise InvalidInput(f"path={str(path)!r}: must end in a suffix, as .json or .parquet.")
        return path.with_name(self.file_name(path.stem, path.suffix.lstrip(".")))
