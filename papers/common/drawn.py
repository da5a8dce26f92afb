"""Results of the papers, which draw themselves."""

from abc import ABC, abstractmethod
from html import escape
from typing import Any

from expost.errors import InvalidInput
from expost.types import Audience
from papers.common.figures import Display

__all__ = ["Drawn"]


class Drawn(ABC):
    """A result with a figure; a notebook shows its text."""

    audience: Audience

    @abstractmethod
    def display(self) -> Display:
        """Return the figure, not yet drawn."""

    def plot(self, kind: str | None = None, *, ax: Any = None, **options: Any) -> Display:
        """Draw into the axes ``ax``, or into a figure of its own, with the result's audience."""
        if kind is not None or options:
            raise InvalidInput("plot: this result has one figure, which takes no options.")
        return self.display().of(self.audience).plot(ax)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
