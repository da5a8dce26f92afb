"""What the figures of the papers share: how they are drawn, and in which colours.

A display holds what it draws and computes nothing: ``from_…`` takes the arrays of a result, and
``plot`` draws them into the axes that it is given, or into a figure of its own that pyplot knows
nothing of. It returns the display, as scikit-learn's do: ``figure_`` and ``ax_`` are
what was drawn last. No global state is read or changed, and matplotlib is
imported when something is drawn. A notebook shows a display by itself.
"""

import io
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from expost.report.drawing import print_audience
from expost.types import Audience, IntArray

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "GRID",
    "INK",
    "ORANGE",
    "PURPLE",
    "Display",
    "drawn_places",
    "few_ticks",
    "percents",
    "plain",
    "png",
]

# Okabe and Ito's colours, which the colour-blind can distinguish and the style sheet of the page
# has too; markers and dashes differ as well.
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#C7629D"
GREY, GRID, INK = "#666666", "#DDDDDD", "black"
# So many values are drawn one by one; of more, some thousands.
_ALL_DRAWN, _PLACES = 20_000, 2_000


class Display(ABC):
    """A figure of one axes."""

    audience: Audience = Audience.CURATOR_ONLY
    # Figures of the papers are drawn from public data, and carry no mark unless a result is drawn.
    is_marked: ClassVar[bool] = False

    figure_: Any
    ax_: Any
    _is_own: bool = False
    _marked_as: Audience | None = None

    @property
    def size(self) -> tuple[float, float]:
        """Inches, of a figure of its own."""
        return (6.4, 4.0)

    def png(self) -> bytes:
        """Return the figure as a PNG file."""
        return png(self._figure())

    def _repr_png_(self) -> bytes | None:
        # What was drawn into a figure of the user's is shown with that figure.
        return self.png() if self._is_own or not hasattr(self, "figure_") else None

    def of(self, audience: Audience) -> Self:
        """Return the display marked with the audience of its result."""
        self._keep(_marked_as=audience)
        return self

    def _figure(self) -> Any:
        """Its own figure: what was drawn last, or is drawn now."""
        return self.figure_ if self._is_own else self.plot().figure_

    def _print_mark(self, ax: Any) -> None:
        audience = self._marked_as or (self.audience if self.is_marked else None)
        if audience is not None:
            print_audience(ax, audience)

    def _keep(self, **drawn: Any) -> None:
        """Store what the display was drawn into, although it is frozen."""
        for name, value in drawn.items():
            object.__setattr__(self, name, value)

    def plot(self, ax: Any = None) -> Self:
        """Draw into ``ax``, or into a figure of its own: ``ax_`` and ``figure_``."""
        is_own = ax is None
        if is_own:
            from matplotlib.figure import Figure

            ax = Figure(figsize=self.size, layout="constrained").add_subplot()
        self._draw(ax)
        self._print_mark(ax)
        self._keep(ax_=ax, figure_=ax.figure, _is_own=is_own)
        return self

    @abstractmethod
    def _draw(self, ax: Any) -> None:
        """Draw everything that it holds."""


def png(figure: Any, *, dpi: int = 110) -> bytes:
    """Return the figure as the bytes of a PNG file."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=dpi)
    return stream.getvalue()


def plain(text: str) -> str:
    """Return a name that matplotlib neither reads as mathematics nor hides."""
    shown = text.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def drawn_places(count: int) -> IntArray:
    """Which of ``count`` sorted values are drawn: all, or of very many those that can be seen.

    Spaced evenly, and closer and closer towards both ends: on a linear as on a log axis of ranks,
    from either side, a line through them is the line through all.
    """
    if count <= _ALL_DRAWN:
        return np.arange(count)
    even = np.linspace(0, count - 1, _PLACES)
    near = np.geomspace(1, count, _PLACES) - 1
    return np.unique(np.rint(np.concatenate([even, near, count - 1 - near])).astype(np.int64))


def percents(axis: Any) -> None:
    """Shares as per cent."""
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1.0))


def few_ticks(axis: Any, values: Sequence[float]) -> None:
    """1, 2 and 5 on a short log axis, where matplotlib's own labels run into one another."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    if not (values and max(values) < 1000 * min(values)):
        return
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}"))
