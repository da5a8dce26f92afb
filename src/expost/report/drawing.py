"""Figures by matplotlib, which is imported when something is drawn.

``plot(result)`` draws a figure of the result's document with the colours, dashes and ticks of its
page, and prints the audience of the result into it. No global state is read or changed.
"""

import io
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from expost.errors import InvalidInput
from expost.report.figure import Axis, Figure, Line, Panel
from expost.report.registry import document_of
from expost.report.svg import STYLES, ticks
from expost.types import Audience

__all__ = ["Drawing", "draw", "plot", "print_audience"]

_INCHES, _HEIGHT, _LOW_HEIGHT = 6.8, 4.0, 2.9
# The width of each panel of those side by side.
_NARROW_INCHES = 4.8
# The group id of the audience on axes that several drawings share.
_AUDIENCE = "expost-audience"
_STRICTNESS = (Audience.CURATOR_ONLY, Audience.NEEDS_REVIEW, Audience.PUBLIC)
# Colours of text and shades.
_QUIET, _SHADE = "#5b6570", "#e3e6ea"


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawing:
    """A drawn figure of matplotlib.

    Parameters
    ----------
    figure : Figure
        The figure as a description.
    audience : Audience
        Who may see it.
    figure_ : Any
        The figure of matplotlib.
    axes_ : tuple[Any, ...]
        One axes for each panel.
    is_own : bool
        Whether the figure was made for it; a notebook shows such a figure by itself.
    """

    figure: Figure
    audience: Audience
    figure_: Any
    axes_: tuple[Any, ...]
    is_own: bool

    def __repr__(self) -> str:
        """Return the figure's key and audience; the figure as data holds figures of single rows."""
        return f"Drawing({self.figure.key!r}, {self.audience.value})"

    @property
    def ax_(self) -> Any:
        """The axes of the first panel."""
        return self.axes_[0]

    def png(self, *, dpi: int = 110) -> bytes:
        """Return the figure as the bytes of a PNG file, which also holds its texts and audience."""
        stream = io.BytesIO()
        texts = {"Description": "\n".join((*self.figure.texts, self.audience.meaning))}
        self.figure_.savefig(stream, format="png", dpi=dpi, metadata=texts)
        return stream.getvalue()

    def _repr_png_(self) -> bytes | None:
        return self.png() if self.is_own else None


def plot(result: Any, kind: str | None = None, ax: Any = None, **options: Any) -> Drawing:
    """Draw a figure of the result's document.

    Parameters
    ----------
    result : object
        A result of one of expost's verbs.
    kind : str, optional
        The key of the figure; the first one by default.
    ax : matplotlib axes or sequence of axes, optional
        Where to draw, one for each panel; a new figure by default.
    **options : Any
        Further options of the document of this kind of result.

    Returns
    -------
    Drawing
        The figure, with ``figure_`` and ``axes_`` of matplotlib.

    Raises
    ------
    InvalidInput
        If the document has no figure, or none of this kind.
    """
    document = document_of(result, **options)
    figures = document.figures
    if not figures:
        raise InvalidInput(f"plot: the document of a {type(result).__name__} has no figure.")
    if kind is not None and kind not in figures:
        raise InvalidInput(f"kind={kind!r}: must be one of {', '.join(map(repr, figures))}.")
    figure = next(iter(figures.values())) if kind is None else figures[kind]
    return draw(figure, document.audience, ax=ax)


def draw(figure: Figure, audience: Audience, ax: Any = None) -> Drawing:
    """Draw all panels into ``ax``, or into a new figure that pyplot does not manage."""
    panels = len(figure.panels)
    if ax is None:
        from matplotlib.figure import Figure as Canvas

        across, down = (panels, 1) if figure.beside else (1, panels)
        height = down * (_LOW_HEIGHT if down > 1 else _HEIGHT)
        width = _INCHES if across == 1 else _NARROW_INCHES * across
        canvas = Canvas(figsize=(width, height), layout="constrained")
        axes = tuple(canvas.subplots(down, across, squeeze=False).ravel())
    else:
        axes = tuple(np.ravel(np.asarray(ax, dtype=object)))
        if len(axes) != panels:
            raise InvalidInput(
                f"ax: has {len(axes)} axes: must have one for each of {panels} panels."
            )
    for each, panel in zip(axes, figure.panels, strict=True):
        _draw_panel(each, panel)
        print_audience(each, audience)
    if not figure.beside:
        for each in axes:
            _draw_legend(each, each)
    else:
        _draw_legend(axes[0] if ax is not None else axes[0].figure, *axes)
    return Drawing(
        figure=figure,
        audience=audience,
        figure_=axes[0].figure,
        axes_=axes,
        is_own=ax is None,
    )


def _draw_panel(ax: Any, panel: Panel) -> None:
    for rule in panel.rules:
        if not math.isfinite(rule.at):
            continue
        if rule.to is not None:
            span = ax.axvspan if rule.axis == "x" else ax.axhspan
            span(rule.at, rule.to, color=_SHADE, lw=0, zorder=0, label=_name(rule.name))
        else:
            across = ax.axvline if rule.axis == "x" else ax.axhline
            across(rule.at, label=_name(rule.name), zorder=1.5, **_line_style(rule.role))
    for band in panel.bands:
        style = {"color": STYLES[band.role].colour, "alpha": 0.2, "lw": 0}
        ax.fill_between(band.x, band.low, band.high, label=_name(band.name), **style)
    for depth, line in enumerate(panel.lines):
        _draw_line(ax, line, zorder=3 - 0.01 * depth)
    _set_axis(ax, "x", panel.x)
    _set_axis(ax, "y", panel.y)
    _label_rules(ax, panel)
    ax.set_title(_plain(panel.title), fontsize="medium", loc="left")
    ax.grid(visible=True, axis="y", color=_SHADE, lw=0.8)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _draw_legend(owner: Any, *axes: Any) -> None:
    """Draw the legend of the names in ``axes``, each once, inside of axes or above a figure."""
    entries: dict[str, Any] = {}
    for ax in axes:
        handles, names = ax.get_legend_handles_labels()
        entries |= {name: handle for handle, name in zip(handles, names, strict=True)}
    if not entries:
        return
    style: dict[str, Any] = {"loc": "best"}
    if owner not in axes:
        style = {"loc": "outside upper center", "ncols": 3}
    owner.legend(entries.values(), entries.keys(), fontsize="small", frameon=False, **style)


def _draw_line(ax: Any, line: Line, zorder: float) -> None:
    style = _line_style(line.role)
    if line.dots or len(line.x) == 1:
        style |= {"ls": "", "marker": "o", "ms": 1.25 * line.radius}
    if line.step:
        style["drawstyle"] = "steps-post"
    ax.plot(line.x, line.y, label=_name(line.name), zorder=zorder, **style)
    if line.low is not None and line.high is not None:
        ax.vlines(line.x, line.low, line.high, color=style["color"], lw=1.4, zorder=zorder - 0.005)


def _line_style(role: Any) -> dict[str, Any]:
    style = STYLES[role]
    # Dashes of matplotlib are in widths of the line.
    dashes = tuple(length / style.width for length in style.dashes)
    return {
        "color": style.colour,
        "lw": 0.75 * style.width,
        "ls": (0, dashes) if dashes else "-",
    }


def _set_axis(ax: Any, which: str, axis: Axis) -> None:
    from matplotlib.ticker import NullLocator

    if axis.log:
        getattr(ax, f"set_{which}scale")("log")
    getattr(ax, f"set_{which}label")(_plain(axis.label))
    drawn = getattr(ax, f"{which}axis")
    drawn.set_minor_locator(NullLocator())
    places = ticks(axis)
    drawn.set_ticks([value for value, _ in places], [_plain(label) for _, label in places])
    getattr(ax, f"set_{which}lim")(axis.low, axis.high)


def _label_rules(ax: Any, panel: Panel) -> None:
    """Draw the labels of vertical lines below one another, away from those of horizontal lines."""
    labelled = [rule for rule in panel.rules if rule.label and math.isfinite(rule.at)]
    upright = [rule for rule in labelled if rule.axis == "x"]
    style = {"fontsize": "small", "color": _QUIET, "clip_on": True}
    for line, rule in enumerate(upright):
        # A label is on the side of its line that has more room.
        at = ax.transAxes.inverted().transform(ax.transData.transform((rule.at, 0.0)))[0]
        side = "left" if at <= 0.5 else "right"
        where = {"transform": ax.get_xaxis_transform(), "ha": side, "va": "top"}
        ax.text(rule.at, 0.98 - 0.09 * line, f" {_plain(rule.label)} ", **where, **style)
    for rule in labelled:
        if rule.axis == "y":
            x, side = (0.01, "left") if upright else (0.99, "right")
            where = {"transform": ax.get_yaxis_transform(), "ha": side, "va": "bottom"}
            ax.text(x, rule.at, _plain(rule.label), **where, **style)


def print_audience(ax: Any, audience: Audience) -> None:
    """Print the audience below the axes; the strictest of several."""
    for text in ax.texts:
        if text.get_gid() == _AUDIENCE:
            before = next(each for each in _STRICTNESS if each.meaning == text.get_text())
            text.set_text(min(before, audience, key=_STRICTNESS.index).meaning)
            return
    ax.annotate(
        audience.meaning,
        xy=(1, 0),
        xytext=(0, -38),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=6.5,
        color=_QUIET,
        gid=_AUDIENCE,
        annotation_clip=False,
    )


def _name(text: str) -> str:
    """Return a name for the legend; matplotlib omits names that start with an underscore."""
    return _plain(text) if text else "_unnamed"


def _plain(text: str) -> str:
    """Return text that matplotlib neither reads as mathematics nor hides."""
    shown = text.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown
