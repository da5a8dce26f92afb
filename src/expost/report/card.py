"""A result that no part of a report shows, as text and one table: what a notebook shows of it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from expost.report.parts import one_line
from expost.report.wording import figure, figure_down, figure_up, share
from expost.types import Audience, FloatArray

__all__ = ["Card", "figures_of", "from_lines", "quantiles", "text_of"]

# More lines are counted, and not shown.
MOST_LINES = 40
# How a figure begins; a dash stands for none.
_NUMBER = re.compile(r"[−<>≥≤±]?\s?[\d∞]|[–—]$")
_SHARES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True, kw_only=True)
class Card:
    """A title, sentences, a table whose first column names its lines, and what to know.

    Texts may come from outside: they are shown on one line, and escaped where they are rendered.
    """

    title: str
    sentences: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()
    lines: tuple[tuple[str, ...], ...] = ()
    notices: tuple[str, ...] = ()
    audience: Audience = Audience.FAIL

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Of each column, whether it holds figures; they are set to the right."""
        columns = zip(*self.lines, strict=True)
        return tuple(all(_NUMBER.match(cell) for cell in column) for column in columns)

    def shown(self, audience: Audience) -> "Card":
        """The same for ``audience``, on single lines, and no more lines than can be read."""
        left = len(self.lines) - MOST_LINES
        more = (f"{left:,} more lines are not shown.",) if left > 0 else ()
        return replace(
            self,
            title=one_line(self.title),
            sentences=_lines_of(self.sentences),
            headings=_lines_of(self.headings),
            lines=tuple(_lines_of(line) for line in self.lines[:MOST_LINES]),
            notices=_lines_of((*self.notices, *more)),
            audience=audience,
        )


def from_lines(lines: Sequence[str]) -> Card:
    """A title, and lines of a name and what it is: the readable form of a result."""
    title, *rest = lines
    pairs = [line.strip().partition("  ") for line in rest if line.strip()]
    return Card(
        title=title,
        sentences=tuple(name for name, _, text in pairs if not text),
        lines=tuple((name, text.strip()) for name, _, text in pairs if text),
    )


def quantiles(values: FloatArray, *, what: str, of: str = "rows") -> dict[str, Any]:
    """The headings and lines of a table of how large ``values`` are."""
    if not len(values):
        return {}
    found = np.quantile(values, _SHARES, method="higher")
    return {
        "headings": (f"share of the {of}", f"{what} at most"),
        "lines": tuple(
            (share(part), figure_up(float(value)))
            for part, value in zip(_SHARES, found, strict=True)
        ),
    }


def figures_of(value: float, low: float, high: float) -> str:
    """A figure with its interval."""
    return f"{figure(value)} ({figure_down(low)} … {figure_up(high)})"


def text_of(value: float | None) -> str:
    """A figure; a dash where there is none."""
    return "–" if value is None or np.isnan(value) else figure(float(value))


def _lines_of(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(one_line(text) for text in texts)
