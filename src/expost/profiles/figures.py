"""What is said of a profile as a whole, however its rows were worked on, and the lines of it."""

import math
from dataclasses import dataclass

import numpy as np

from expost.groups.columns import nats
from expost.rounding import certainty_at_most, lower_text, upper_text
from expost.types import Audience, Neighbouring

__all__ = ["BELIEF", "ProfileFigures"]

# The belief that `choose_epsilon` keeps where nothing else is asked for.
BELIEF = 0.75


@dataclass(frozen=True, kw_only=True)
class ProfileFigures:
    """The figures that sentences about a profile are made of.

    ``count``         how many rows, candidates or persons there are; ``rows`` of the table.
    ``most_rows``     of a person, where persons were profiled; else None.
    ``middle``, ``late``  what half of them, and 99 of 100, are exposed by at most.
    ``typical``       the median and the largest typical exposure, where they are known.
    ``least_exposure``  the largest lower end of an exposure's proved interval.
    ``outer``         the largest upper end.
    ``width``         the widest proved interval of a loss.
    ``past_promise``, ``proved_past``  how many are exposed past the worst case, and provably.
    ``past_belief``   of how many an undecided attacker may be surer than ``BELIEF``.
    ``inside``        of how many the loss is > 0.
    ``top``           the keys of the most exposed, as they are shown.

    Scores are exposures, or distances where there is no noise.
    """

    description: str
    relation: Neighbouring
    count: int
    rows: int
    most_rows: int | None
    noiseless: bool
    middle: float
    late: float
    largest: float
    typical: tuple[float, float] | None
    worst_case: float
    worst_case_passed: float
    least_exposure: float
    outer: float
    width: float
    past_promise: int
    proved_past: int
    past_belief: int
    inside: int
    top: tuple[str, ...]

    audience = Audience.FAIL

    @property
    def unit(self) -> str:
        """What every figure is of."""
        return "row" if self.most_rows is None else "person"

    @property
    def rows_past_promise(self) -> int:
        """How many are proved to pass an ε that was promised without exception."""
        return 0 if self.worst_case_passed > 0 else self.proved_past

    @property
    def promise_broken(self) -> bool:
        """Whether any are."""
        return self.rows_past_promise > 0

    def lines(self) -> list[str]:
        """Ten readable lines; no row's values, but ranks and exposures: curator only."""
        of_rows = "" if self.most_rows is None else f" with {self.rows} rows"
        title = f"Privacy profile of {self.count} {self.unit}s{of_rows} ({self.relation.value})"
        return [
            self._broken if self.promise_broken else title,
            f"model        {self.description}",
            *(self._noiseless if self.noiseless else self._noisy),
            f"most exposed {', '.join(self.top)}",
            f"mark         {self.audience.value}: {self.audience.meaning}",
        ]

    @property
    def _broken(self) -> str:
        promised = nats(upper_text(self.worst_case))
        verb = "was" if promised == "1 nat" else "were"
        return (
            f"PROMISE BROKEN: {self.rows_past_promise} of {self.count} {self.unit}s"
            f" ({self.relation.value}) lose more than the {promised} that {verb} promised, one of"
            f" them at least {lower_text(self.least_exposure, 3)}"
        )

    @property
    def _noiseless(self) -> list[str]:
        return [
            f"No noise: every loss is infinite, so {self.unit}s are ranked by how far they move θ.",
            f"distance     median {upper_text(self.middle, 3)}, largest"
            f" {upper_text(self.largest, 3)}",
        ]

    @property
    def _noisy(self) -> list[str]:
        risk = self.worst_case_passed
        passed = f", except with probability {upper_text(risk, 3)}" if risk > 0 else ""
        return [
            f"exposure     median {upper_text(self.middle, 3)}, 99 % {upper_text(self.late, 3)},"
            f" largest {nats(upper_text(self.largest, 3))}",
            *self._typical,
            f"worst case   at most {nats(upper_text(self.worst_case, 3))} promised, {self._anyone},"
            f" any data{passed}"
            if self.worst_case < np.inf
            else "worst case   none is promised",
            f"confidence   an undecided attacker is at most {self._certainty} sure of any"
            f" {self.unit}",
            f"direction    {self.inside / self.count:.0%} of {self.unit}s show evidence that they"
            " were in the data, the others that they were not",
            f"precision    every loss is proved to within {upper_text(self._half, 2)} nats",
        ]

    @property
    def _half(self) -> float:
        """Half of the widest interval; ∞ where its width is not known."""
        return math.inf if math.isnan(self.width) else self.width / 2

    @property
    def _certainty(self) -> str:
        """How sure an undecided attacker gets of any of them, at most."""
        return certainty_at_most(self.outer)

    @property
    def _typical(self) -> list[str]:
        if self.typical is None:
            return []
        median, largest = self.typical
        return [
            f"typical      median {upper_text(median, 3)}, largest {nats(upper_text(largest, 3))},"
            " the mean over all models it might be"
        ]

    @property
    def _anyone(self) -> str:
        if self.most_rows is None:
            return "any row"
        return f"any person of up to {self.most_rows} row{'s' if self.most_rows > 1 else ''}"
