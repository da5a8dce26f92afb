"""What all figures share: how they are drawn, in which colours, and the mark that goes with them.

A display holds what it draws and computes nothing: ``from_…`` takes the arrays of a result, and
``plot`` draws them into the axes that it is given, or into a figure of its own that pyplot knows
nothing of. It returns the display, as scikit-learn's do: ``figure_`` and ``ax_`` (``axes_`` where
there are several) are what was drawn last. No global state is read or changed, and matplotlib is
imported when something is drawn. A notebook shows a display by itself.
"""

import io
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from expost.errors import InvalidInput
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
    "PanelsDisplay",
    "drawn_places",
    "few_ticks",
    "mark",
    "percents",
    "plain",
    "png",
]

# Okabe and Ito's colours, which the colour-blind can tell apart and the page's style sheet has too;
# markers and dashes differ as well.
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#C7629D"
GREY, GRID, INK = "#666666", "#DDDDDD", "black"
# By which a mark is found again on a figure that several displays share.
_MARK = "expost-mark"
# So many values are drawn one by one; of more, some thousands.
_ALL_DRAWN, _PLACES = 20_000, 2_000
_STRICTEST = (Audience.FAIL, Audience.REVIEW, Audience.PASS)


class _Drawing(ABC):
    """What displays of one and of several axes share."""

    audience: Audience = Audience.FAIL
    # Figures of the papers are drawn from public data, and carry no mark unless a result is drawn.
    is_marked: ClassVar[bool] = False

    figure_: Any
    _is_own: bool = False
    _marked_as: Audience | None = None

    @property
    def size(self) -> tuple[float, float]:
        """Inches, of a figure of its own."""
        return (6.4, 4.0)

    def png(self) -> bytes:
        """The figure as a PNG file."""
        return png(self._figure())

    def _repr_png_(self) -> bytes | None:
        # What was drawn into a figure of the user's is shown with that figure.
        return self.png() if self._is_own or not hasattr(self, "figure_") else None

    def of(self, audience: Audience) -> Self:
        """The same, marked as the result that it is drawn from."""
        self._keep(_marked_as=audience)
        return self

    @abstractmethod
    def plot(self) -> Self:
        """Draw into a figure of its own."""

    def _figure(self) -> Any:
        """Its own figure: what was drawn last, or is drawn now."""
        return self.figure_ if self._is_own else self.plot().figure_

    def _print_mark(self, ax: Any) -> None:
        audience = self._marked_as or (self.audience if self.is_marked else None)
        if audience is not None:
            mark(ax, audience)

    def _keep(self, **drawn: Any) -> None:
        """A display is frozen, but for what it was drawn into."""
        for name, value in drawn.items():
            object.__setattr__(self, name, value)


class Display(_Drawing):
    """A figure of one axes."""

    ax_: Any

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


class PanelsDisplay(_Drawing):
    """A figure of several axes."""

    axes_: Any

    @property
    @abstractmethod
    def grid(self) -> tuple[int, int]:
        """The rows and columns of its axes."""

    def plot(self, axes: Any = None) -> Self:
        """Draw into ``axes``, as many as there are panels, or into a figure of its own."""
        is_own = axes is None
        rows, columns = self.grid
        if is_own:
            axes = self._new_axes()
        if len(axes) != rows * columns:
            raise InvalidInput(
                f"axes: are {len(axes)}; this figure has {rows * columns} panels, side by side or"
                " one above the other."
            )
        self._draw(axes)
        self._print_mark(axes[-1])
        self._keep(axes_=axes, figure_=axes[0].figure, _is_own=is_own)
        return self

    def _new_axes(self) -> Any:
        from matplotlib.figure import Figure

        figure = Figure(figsize=self.size, layout="constrained")
        return figure.subplots(*self.grid, squeeze=False).ravel()

    @abstractmethod
    def _draw(self, axes: Any) -> None:
        """Draw everything that it holds."""


def mark(ax: Any, audience: Audience) -> None:
    """Print along the right edge of ``ax`` who may see it; of several marks the strictest stays.

    A figure is copied out of a page, or out of a notebook, without the words around it.
    """
    for text in ax.texts:
        if text.get_gid() == _MARK:
            before = Audience(text.get_text().partition(":")[0].lower())
            strictest = min(before, audience, key=_STRICTEST.index)
            text.set_text(_words(strictest))
            return
    ax.text(
        1.008,
        0,
        _words(audience),
        transform=ax.transAxes,
        rotation=90,
        ha="left",
        va="bottom",
        fontsize=6.5,
        color=GREY,
        gid=_MARK,
    )


def _words(audience: Audience) -> str:
    match audience:
        case Audience.FAIL:
            return "FAIL: for the curator only"
        case Audience.REVIEW:
            return "REVIEW: only after a review"
        case Audience.PASS:
            return "PASS: may be published"


def png(figure: Any, *, dpi: int = 110) -> bytes:
    """The figure as the bytes of a PNG file."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=dpi)
    return stream.getvalue()


def plain(text: str) -> str:
    """A name that matplotlib does not read as mathematics, and does not hide."""
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
    axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
