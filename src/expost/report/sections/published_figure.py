"""The figure of a published report: bounds of example rows by label."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from expost.groups.columns import printable
from expost.numbers import certainty, posterior_at
from expost.publishing.report import PublishedReport
from expost.release import Release
from expost.report.figure import Axis, Figure, Line, Panel, Role, Rule
from expost.types import FloatArray

__all__ = ["bounds_figure", "largest_bound"]

# Points of the figure along the coefficients, and the labels it shows at most.
_POINTS = 81
_ROLES: tuple[Role, ...] = ("main", "second", "third", "fourth", "fifth")


def largest_bound(report: PublishedReport) -> float | None:
    """Return the largest bound of any row, or None if the model guarantees none with certainty."""
    epsilon = report.spending.model[0]
    return epsilon if report.release.mechanism.delta is None and epsilon < math.inf else None


def bounds_figure(report: PublishedReport) -> Figure:
    """Return the bound for rows along the coefficients of the model, a line for each label."""
    release = report.release
    points = np.linspace(-1.0, 1.0, _POINTS)
    lines = []
    for role, (label, direction) in zip(_ROLES, _directions(release), strict=False):
        rows = points[:, None] * release.ball.data_norm * _unit(direction)
        exposure, _, _ = report.bound(rows, [label] * len(rows))
        lines.append(
            Line(
                name=f"label {printable(label, 40)}",
                x=tuple(points.tolist()),
                y=tuple(posterior_at(float(value)) for value in exposure),
                role=role,
            )
        )
    largest = largest_bound(report)
    rules: tuple[Rule, ...] = ()
    if largest is not None:
        words = f"any row: {certainty(largest)}"
        rules = (Rule(name=words, at=posterior_at(largest), label=words),)
    return Figure(
        key="bounds",
        description=(
            "The largest certainty of an attacker, for rows along the coefficients of the model"
            " from −1 to 1 times the data norm, by label."
        ),
        caption="Bounds of example rows; look up your own for yours.",
        panels=(
            Panel(
                title="Bound by label",
                x=Axis(label="row along the coefficients (data norms)", low=-1.0, high=1.0),
                y=Axis(
                    label="attacker's certainty, at most",
                    low=0.5,
                    high=_top(lines, largest),
                    format="percent",
                ),
                lines=tuple(lines),
                rules=rules,
            ),
        ),
    )


def _top(lines: Sequence[Line], largest: float | None) -> float:
    """Return the upper end of the axis: what is drawn and some space, 1 at most."""
    most = max(max(line.y) for line in lines)
    most = most if largest is None else max(most, posterior_at(largest))
    return min(0.5 + 1.1 * (most - 0.5) + 1e-6, 1.0)


def _directions(release: Release) -> Iterator[tuple[Any, FloatArray]]:
    """Yield labels, and the direction of the rows that are shown with each."""
    coefficients = np.atleast_2d(release.coefficients[0])
    if release.label_scale is not None:
        low, high = release.label_scale.ends
        yield from ((label, coefficients[0]) for label in (low, release.label_scale.centre, high))
        return
    assert release.classes is not None
    for index, label in enumerate(release.classes.tolist()):
        yield label, coefficients[index if len(coefficients) > 1 else 0]


def _unit(direction: FloatArray) -> FloatArray:
    """Return the direction with length 1; the first coordinate where it is zero."""
    length = float(np.linalg.norm(direction))
    if length > 0:
        unit: FloatArray = direction / length
        return unit
    first: FloatArray = np.eye(1, len(direction))[0]
    return first
