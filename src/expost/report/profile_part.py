"""Everything that a report shows of a profile; renderers only lay it out.

It holds figures, keys of rows and names, and no row's values: of the table only the names of
levels, and the edges of bins and conditions, in groupings that its maker asked for. Text that
came from outside is one line and printable; each renderer escapes it for its own format.
"""

import math
from dataclasses import dataclass
from typing import Literal

from expost.errors import InvalidInput
from expost.groups.exposure import Explanation, Grouping
from expost.report.parts import Part
from expost.report.rows import RowsData
from expost.report.slider import SliderData
from expost.report.wording import count
from expost.types import Audience, Neighbouring

__all__ = [
    "Accuracy",
    "CurvePoint",
    "ExposedRow",
    "LogLoss",
    "PersonFigures",
    "ProfilePart",
    "Quantile",
]


@dataclass(frozen=True, kw_only=True)
class LogLoss:
    """The log loss of the released model, of the shares of the classes, and of ε = ∞, in nats."""

    released: float
    base_rate: float
    noiseless: float | None = None

    def __post_init__(self) -> None:
        _check_finite(self.released, self.base_rate, self.noiseless)


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """How useful the released model is, beside one that knows nothing and one without noise.

    ``measure``    "accuracy", or "R²" for a regression.
    ``base_rate``  what the most frequent label (the mean) achieves.
    ``noiseless``  what ε = ∞ would achieve on the same rows: not released, not private.
    ``rows``       which rows it was measured on, in words.
    ``log_loss``   the same by log loss, where the model's loss is one.
    """

    released: float
    base_rate: float
    noiseless: float | None = None
    measure: str = "accuracy"
    rows: str = "the training rows"
    log_loss: LogLoss | None = None

    def __post_init__(self) -> None:
        _check_finite(self.released, self.base_rate, self.noiseless)


@dataclass(frozen=True, kw_only=True)
class Quantile:
    """At least ``share`` of the rows have at most this ``score``, and this ``typical`` exposure."""

    share: float
    score: float
    typical: float | None


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """The ``rank``-th largest score, and the ``rank``-th largest typical exposure."""

    rank: int
    score: float
    typical: float | None


@dataclass(frozen=True, kw_only=True)
class ExposedRow:
    """One of the most exposed rows, by its key; ``low`` and ``high`` are the loss's interval.

    ``rows``  how many a person has, where it is one.
    """

    rank: int
    key: str
    loss: float
    low: float
    high: float
    belief: float
    typical: float | None
    distance: float
    rows: int | None = None

    @property
    def exposure(self) -> float:
        """∣loss∣."""
        return abs(self.loss)

    @property
    def precision(self) -> float:
        """The loss is proved to lie within so many nats of its figure."""
        return max(self.high - self.loss, self.loss - self.low) if self.low < self.high else 0.0


@dataclass(frozen=True, kw_only=True)
class PersonFigures:
    """Who was profiled where all rows of a person are taken out at once.

    ``count``        how many persons there are.
    ``median_rows``, ``most_rows``  how many rows half of them have at most, and any of them.
    ``row_epsilon``  what the mechanism promises to one row; None where it is not known, or where
                     the mechanism is calibrated to persons with several rows.
    ``passed``       how likely it is at most that a person of ``most_rows`` rows loses more than
                     the worst case.
    """

    count: int
    median_rows: int
    most_rows: int
    row_epsilon: float | None
    passed: float

    @property
    def anyone(self) -> str:
        """Whom the worst case is promised to."""
        return f"any person of up to {rows_text(self.most_rows)}"

    @property
    def sentence(self) -> str:
        """What was done, and how many rows they have."""
        return (
            "All rows of a person are taken out at once. Half of the persons have at most"
            f" {rows_text(self.median_rows)}, and nobody has more than {count(self.most_rows)}."
        )


@dataclass(frozen=True, kw_only=True)
class ProfilePart(Part):
    """What a report shows of a profile. For the curator only.

    ``rows``        how many rows there are, or candidates.
    ``persons``     whose they are, where every figure is one of a person and not of a row.
    ``measure``     "exposure" in nats; "distance" where the model carries no noise.
    ``epsilon``     what the model was released at; None where that is not known.
    ``quantiles``, ``curve``, ``top``  the profile: a few shares, a chart, the most exposed rows.
    ``keyed``       whether rows have ids; else they are counted from 0.
    ``precision``   every loss is proved to within this many nats, but for ``unproved`` rows.
    ``evidence_in`` the share of rows whose loss is > 0.
    ``seeded``      whether the noise came from a seed (None: it has no noise or is unknown).
    ``row_data``    every row's figures, for the page's search.
    ``slider``      how typical figures depend on ε; None where that is not known.
    """

    # No other mark can be given, or read from a file.
    audience: Literal[Audience.FAIL] = Audience.FAIL
    measure: str
    rows: int
    relation: Neighbouring
    model_audience: Audience | None
    seeded: bool | None
    epsilon: float | None
    worst_case: float
    delta: float | None
    accuracy: Accuracy | None
    quantiles: tuple[Quantile, ...]
    curve: tuple[CurvePoint, ...]
    top: tuple[ExposedRow, ...]
    keyed: bool
    precision: float
    unproved: int
    evidence_in: float
    groups: tuple[Grouping, ...]
    explanation: Explanation | None
    persons: PersonFigures | None = None
    row_data: RowsData | None = None
    slider: SliderData | None = None

    @property
    def title(self) -> str:
        """What stands above its page."""
        return f"Privacy profile of {self.heading}"

    @property
    def is_noiseless(self) -> bool:
        """Whether rows are told apart by distances alone."""
        return self.measure == "distance"

    @property
    def unit(self) -> str:
        """What every figure is of."""
        return "row" if self.persons is None else "person"

    @property
    def heading(self) -> str:
        """How many of them there are, in words."""
        if self.persons is not None:
            return f"{count(self.persons.count)} persons with {rows_text(self.rows)}"
        noun = "rows" if self.relation is Neighbouring.REMOVE else "candidates"
        return f"{count(self.rows)} {noun}"


def _check_finite(*figures: float | None) -> None:
    """Refuse figures that cannot be shown."""
    if not all(figure is None or math.isfinite(figure) for figure in figures):
        raise InvalidInput("accuracy: its figures must be finite numbers.")


def rows_text(number_of_rows: int) -> str:
    """So many rows, in words."""
    return f"{count(number_of_rows)} row{'' if number_of_rows == 1 else 's'}"
