"""Figures of one value for each row, by rank: the largest first, over a log scale of ranks."""

from collections.abc import Sequence

import numpy as np

from expost.numbers import posterior_at
from expost.report.figure import Axis, Band, Figure, Line, Panel, Rule
from expost.types import FloatArray, IntArray

__all__ = ["certainties", "drawn_ranks", "ranked_figure"]

# The first ranks are all drawn, then so many evenly over the logarithm.
_FIRST = 100
_OTHERS = 300


def drawn_ranks(count: int) -> IntArray:
    """Return ranks from 1 to ``count`` that show the curve: all of the first, some of the rest."""
    first = np.arange(1, min(_FIRST, count) + 1)
    if count <= _FIRST:
        return first
    others = np.geomspace(_FIRST, count, _OTHERS).round().astype(np.int64)
    return np.unique(np.concatenate([first, others]))


def certainties(exposure: FloatArray) -> FloatArray:
    """Return the certainty at each exposure: ½ at 0, 1 only where it is infinite."""
    return np.array([posterior_at(float(value)) for value in exposure])


def ranked_figure(
    values: FloatArray,
    *,
    key: str,
    title: str,
    label: str,
    description: str,
    low: FloatArray | None = None,
    high: FloatArray | None = None,
    interval: str = "certified interval",
    unit: str = "row",
    percent: bool = False,
    rules: Sequence[Rule] = (),
    caption: str = "",
) -> Figure:
    """Return the figure of ``values`` (n,) in descending order.

    Parameters
    ----------
    values : ndarray
        One finite value for each row.
    key, title, label, description, caption : str
        The key, the title, the label of the vertical axis and the texts of the figure.
    low, high : ndarray, optional
        The ends of an interval for each row, drawn as a band with the name ``interval``.
    unit : str
        "row" or "person".
    percent : bool
        Whether the values are certainties, drawn from ½ on; else the scale is logarithmic where
        all values are positive.
    rules : sequence of Rule
        Reference lines.
    """
    order = np.argsort(-values, kind="stable")
    ranks = drawn_ranks(len(values))
    rows = order[ranks - 1]
    x_values = tuple(ranks.astype(float).tolist())
    bands: tuple[Band, ...] = ()
    if low is not None and high is not None:
        below, above = tuple(low[rows].tolist()), tuple(high[rows].tolist())
        bands = (Band(name=interval, x=x_values, low=below, high=above),)
    line = Line(name="", x=x_values, y=tuple(values[rows].tolist()))
    ends = [np.min(values), np.max(values), *(rule.at for rule in rules)]
    y = _certainty_axis(label, ends) if percent else _axis(label, ends)
    x = Axis(
        label=f"rank of the {unit} (1 = largest)",
        low=1.0,
        high=float(max(len(values), 2)),
        log=True,
        format="count",
        quantity="rank" if unit == "row" else "",
    )
    panel = Panel(title=title, x=x, y=y, lines=(line,), bands=bands, rules=tuple(rules))
    return Figure(key=key, description=description, panels=(panel,), caption=caption)


def _certainty_axis(label: str, values: Sequence[float]) -> Axis:
    low, high = min(0.5, *values), max(values)
    return Axis(label=label, low=float(low), high=_above(high, 1.0), format="percent")


def _above(value: float, most: float) -> float:
    """Return a value a little above, ``most`` at most, and above ½ in any case."""
    return min(0.5 + 1.08 * max(float(value) - 0.5, 1e-4), most)


def _axis(label: str, values: Sequence[float]) -> Axis:
    low, high = float(min(values)), float(max(values))
    if low > 0:
        return Axis(label=label, low=low / 1.1, high=high * 1.1, log=True)
    return Axis(label=label, low=min(low, 0.0), high=high * 1.08 or 1.0)
