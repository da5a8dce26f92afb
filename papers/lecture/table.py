"""Train, test and attack accuracy of several defences, as one table.

Conventions
-----------
k repetitions: in each, rows are split again into members and others, and a model is trained.

over rows         Clopper and Pearson's interval (:class:`~expost._counts.Share`) at the mean number
                  of hits of the repetitions, as wide as that of one of them: they share their
                  rows, and so k of them are not k times as many rows.
over repetitions  Student's interval of the mean: what another parting of these same rows, and
                  another training, would change. The partings are independent draws of them.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from expost._counts import Share, lower_limit, upper_limit
from expost.auditing.roc import Interval
from expost.errors import InvalidInput
from expost.numbers import fixed, interval_text
from expost.results import RowTable
from expost.types import Audience
from papers.common.drawn import Drawn
from papers.common.figures import Display
from papers.lecture import displays

__all__ = ["Cell", "DefenceRow", "DefenceTable"]

WARNING = (
    "These are attacks, not guarantees: what they miss, another may find. Only the last column is"
    " proved."
)
MEASURES = ("train", "test", "attack")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One figure of one defence: a share of rows in each repetition."""

    shares: tuple[Share, ...]

    def __post_init__(self) -> None:
        kinds = {(share.trials, share.confidence) for share in self.shares}
        if len(kinds) != 1:
            raise InvalidInput("shares: must be at least one, all of as many rows.")

    @property
    def value(self) -> float:
        """The mean over the repetitions."""
        return sum(share.hits for share in self.shares) / (self.trials * len(self.shares))

    @property
    def trials(self) -> int:
        """The rows of each repetition."""
        return self.shares[0].trials

    @property
    def confidence(self) -> float:
        """Of either interval."""
        return self.shares[0].confidence

    @property
    def over_rows(self) -> Interval:
        """Had the rows been others of the same source."""
        hits, k = sum(share.hits for share in self.shares), len(self.shares)
        miss = (1 - self.confidence) / 2
        return Interval(
            value=self.value,
            low=lower_limit(hits // k, self.trials, miss),
            high=upper_limit(-(-hits // k), self.trials, miss),
            confidence=self.confidence,
        )

    @property
    def over_repetitions(self) -> Interval | None:
        """Had these rows been parted otherwise; None for a single repetition."""
        k = len(self.shares)
        if k < 2:
            return None
        values = np.array([share.value for share in self.shares])
        quantile = float(stdtrit(k - 1, (1 + self.confidence) / 2))
        width = quantile * float(np.std(values, ddof=1)) / math.sqrt(k)
        return Interval(
            value=self.value,
            low=max(0.0, self.value - width),
            high=min(1.0, self.value + width),
            confidence=self.confidence,
        )

    def __str__(self) -> str:
        """Per cent, as in the lecture."""
        rows, repeated = self.over_rows, self.over_repetitions
        text = interval_text(self.value, rows.low, rows.high, 1, percent=True)
        if repeated is None:
            return text
        width = max(repeated.high - self.value, self.value - repeated.low)
        return f"{text} ±{fixed(width, 1, 'up', percent=True)}"

    def to_json(self) -> dict[str, Any]:
        """Return every figure by name."""
        repeated = self.over_repetitions
        return {
            "value": self.value,
            "over_rows": self.over_rows.to_json(),
            "over_repetitions": None if repeated is None else repeated.to_json(),
            "repetitions": [share.value for share in self.shares],
            "rows": self.trials,
        }


@dataclass(frozen=True, kw_only=True)
class DefenceRow:
    """A defence and what it does.

    ``train``   accuracy on the members;
    ``test``    … on the others, which the model has not seen;
    ``attack``  the share of members and others of which the strongest attack says rightly what
                they are, ½ for one that guesses. Attack and threshold were chosen on other rows.
    ``limit``   the accuracy that no attack passes in expectation; None where nothing is guaranteed.
    ``by``      the attack that was chosen most often.
    """

    name: str
    train: Cell
    test: Cell
    attack: Cell
    limit: float | None
    by: str

    @property
    def gap(self) -> float:
        """Train less test accuracy."""
        return self.train.value - self.test.value

    @property
    def limit_in_words(self) -> str:
        """Per cent, rounded up: a limit that is shown holds."""
        return "—" if self.limit is None else fixed(self.limit, 1, "up", percent=True)

    def to_json(self) -> dict[str, Any]:
        """Return every figure by name."""
        return {
            "defence": self.name,
            **{measure: getattr(self, measure).to_json() for measure in MEASURES},
            "attack_by": self.by,
            "attack_limit": self.limit,
        }


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DefenceTable(Drawn, RowTable):
    """Defences beside the model without one, which is the first of ``rows``.

    ``members``, ``others``  how many rows each model was trained on, and how many it was not.
    ``references``           the reference models that attacks had for each defence.
    ``notices``              what was left out, and why; what was read from the data.
    """

    rows: tuple[DefenceRow, ...]
    members: int
    others: int
    references: int
    confidence: float
    notices: tuple[str, ...] = ()

    audience = Audience.NEEDS_REVIEW

    def display(self) -> Display:
        """Return the accuracies of model and attack by defence."""
        return displays.defence_table(self)

    def __post_init__(self) -> None:
        if not self.rows:
            raise InvalidInput("rows: must be at least one.")

    @property
    def without(self) -> DefenceRow:
        """The model without a defence."""
        return self.rows[0]

    @property
    def repetitions(self) -> int:
        """How often rows were parted and each model trained."""
        return len(self.without.attack.shares)

    @cached_property
    def _by_name(self) -> dict[str, DefenceRow]:
        return {row.name: row for row in self.rows}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> DefenceRow:
        try:
            return self._by_name[name]
        except KeyError:
            known = ", ".join(map(repr, self._by_name))
            raise InvalidInput(f"name={name!r}: must be one of {known}.") from None

    def __repr__(self) -> str:
        return f"DefenceTable({len(self)} defences, {self.members} members, {self.others} others)"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return the table as lines of text."""
        times = "once" if self.repetitions == 1 else f"{self.repetitions} times"
        spread = "" if self.repetitions == 1 else ", ± over repetitions"
        return [
            f"Defences against membership inference, {self.members:,} members and"
            f" {self.others:,} others, parted {times}",
            f"{self.confidence:.0%} intervals over rows{spread}; {self.references} reference"
            " models for the attacks",
            *self._table_lines(),
            *(f"! {notice}" for notice in self.notices),
            WARNING,
            f"audience: {self.audience.line}",
        ]

    def _table_lines(self) -> list[str]:
        head = ("accuracy, %", "training", "testing", "attack", "at most")
        body = [
            (
                row.name,
                *(str(getattr(row, measure)) for measure in MEASURES),
                row.limit_in_words,
            )
            for row in self.rows
        ]
        widths = [max(len(line[column]) for line in (head, *body)) for column in range(len(head))]
        return [
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
            for line in (head, *body)
        ]

    def columns(self) -> dict[str, Any]:
        """One line a defence; NaN where there is no interval over repetitions, or no limit."""
        columns: dict[str, Any] = {"defence": [row.name for row in self.rows]}
        for measure in MEASURES:
            cells = [getattr(row, measure) for row in self.rows]
            columns[measure] = np.array([cell.value for cell in cells])
            for name in ("over_rows", "over_repetitions"):
                ends = [getattr(cell, name) for cell in cells]
                for end in ("low", "high"):
                    columns[f"{measure}_{name}_{end}"] = np.array(
                        [
                            math.nan if interval is None else getattr(interval, end)
                            for interval in ends
                        ]
                    )
        columns["attack_by"] = [row.by for row in self.rows]
        columns["attack_limit"] = np.array(
            [math.nan if row.limit is None else row.limit for row in self.rows]
        )
        return columns

    def to_json(self, path: str | Path | None = None) -> str | Path:
        """Return all of it as JSON text, or in a CURATOR-ONLY file."""
        value = {
            "format": "expost-defences/1",
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "warning": WARNING,
            "members": self.members,
            "others": self.others,
            "references": self.references,
            "repetitions": self.repetitions,
            "confidence": self.confidence,
            "defences": [row.to_json() for row in self.rows],
            "notices": list(self.notices),
        }
        return self._json(value, path)
