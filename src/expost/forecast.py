"""A forecast of the quality of a model under noise, from public constants alone.

Derivation
----------
Noise on a released θ is noise in the gradient at which it was released. Objective perturbation adds
b to the sum of the gradients of n rows, and θ = A + b′ is the minimiser of an objective whose
summed gradient differs by about nHb′, H the Hessian of the averaged one. Let ν² be the mean square
of that noise. A row adds at most u to the sum (u = L, the bound on the gradient, or the bound on
the labels of a regression), so that

    r = ν/(n·u·√q)

compares the noise with the largest sum that n rows could agree on. Of q > 1 outputs (classes) each
has ν²/q of the noise; softmax of two classes then has the r of logistic regression. In the
quadratic model the excess risk depends on n, d, ε and δ through r alone; models of n rows at ε and
of n/16 rows at 16ε had the same AUC to within .01 in 11 of 12 cases (docs/utility.md).

H is not public. For noise on θ it is taken to have equal eigenvalues, (r·c/d + Λ) with r·c the
largest trace of a row's curvature (``Loss.determinant``), d the number of coefficients: rows of the
unit ball spread over them. That is what the automatic Λ of output perturbation assumes too.

The limits of the levels were read from tables of two classes. They are empirical, not a bound.
"""

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from expost import _checks
from expost.numbers import at_most, plain, significant

__all__ = ["LEVELS", "NEAR", "USELESS", "Forecast", "Level"]

_DIGITS = 2


@dataclass(frozen=True, kw_only=True)
class Level:
    """A range of noise ratios r and what it means.

    Parameters
    ----------
    most : float
        The largest r of the level; the next level begins above it.
    meaning : str
        What to expect of a model.
    detail : str, default=""
        The same for a classifier, in points of AUC; "" where ``meaning`` is enough.
    """

    name: str
    most: float
    meaning: str
    detail: str = ""


LEVELS = (
    Level(
        name="as good as non-private",
        most=0.003,
        meaning="The model is expected to be about as good as one without privacy.",
    ),
    Level(
        name="near non-private",
        most=0.01,
        meaning="The model is expected to be close to one without privacy",
        detail=": one or two points of AUC are lost",
    ),
    Level(
        name="some loss",
        most=math.nextafter(0.3, 0.0),
        meaning="The model is expected to be worse than one without privacy",
        detail=": up to 15 points of AUC are lost at r = 0.1, more beyond and for rare classes",
    ),
    Level(
        name="useless",
        most=math.inf,
        meaning="The noise exceeds any useful model: expect no more than the base rate.",
    ),
)
# Up to this r a model is near a non-private one; from this r on it is useless.
NEAR = LEVELS[1].most
USELESS = 0.3


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The noise ratio r of a release of n rows, and what it means (module docstring: derivation).

    Parameters
    ----------
    noise_ratio : float
        r ≥ 0.
    rows : int
        n.
    is_classification : bool, default=True
        Whether points of AUC can be named.
    """

    noise_ratio: float
    rows: int
    is_classification: bool = True

    def __post_init__(self) -> None:
        if not self.noise_ratio >= 0:
            raise ArithmeticError("the noise ratio is not a number of at least 0")

    @property
    def level(self) -> Level:
        """The level that r lies in."""
        return next(level for level in LEVELS if self.noise_ratio <= level.most)

    @property
    def is_useless(self) -> bool:
        """Whether the noise exceeds any useful model."""
        return self.noise_ratio >= USELESS

    def rows_needed(self, noise_ratio: float) -> int:
        """Return n′ = n·r/``noise_ratio``, rounded up: so many rows have that ratio, or a smaller.

        ε, δ, Λ and the columns stay. ν does not grow with n then, and where Λ is not tiny it does
        not depend on n at all.
        """
        needed = self.rows * self.noise_ratio / _checks.positive("noise_ratio", noise_ratio)
        return math.ceil(needed)

    @property
    def label(self) -> str:
        """The level and r, for one line about a model."""
        return f"{self.level.name} (r = {at_most(self.noise_ratio)})"

    @property
    def sentence(self) -> str:
        """What r means, in one sentence."""
        level = self.level
        meaning = level.meaning.removesuffix(".")
        return f"{meaning}{level.detail if self.is_classification else ''}."

    @property
    def warning(self) -> str | None:
        """The warning about a useless model, with a remedy; None of all others."""
        if not self.is_useless:
            return None
        return (
            "This model is forecast to be no better than the base rate: its noise exceeds any"
            f" useful model (r = {at_most(self.noise_ratio)}, useless from {USELESS:g} on). Use a"
            f" larger epsilon, fewer columns, or about {_count(self.rows_needed(NEAR))} rows for a"
            " model near a non-private one."
        )

    def lines(self) -> list[str]:
        """Return the level, its meaning, and the rows that each better level needs."""
        lines = [f"forecast: {self.label}. {self.sentence}"]
        better = [level for level in LEVELS[:-1] if self.noise_ratio > level.most]
        if better:
            needed = [
                f"{_count(self.rows_needed(level.most))} for {level.name!r}"
                f" (r ≤ {at_most(level.most, 1)})"
                for level in reversed(better)
            ]
            lines.append(f"rows needed at this epsilon and delta: about {', '.join(needed)}.")
        return lines

    def fields(self) -> dict[str, Any]:
        """Return what JSON holds."""
        return {
            "noise_ratio": self.noise_ratio,
            "level": self.level.name,
            "meaning": self.sentence,
            "rows_needed": {
                level.name: self.rows_needed(level.most)
                for level in LEVELS[:-1]
                if self.noise_ratio > level.most
            },
        }

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _count(rows: int) -> str:
    """Return a number of rows with two digits, rounded up: 43,000."""
    return plain(significant(Decimal(rows), _DIGITS, "up"))
