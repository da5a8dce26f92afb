"""Groups of rows: how exposed they are, as a table, a figure, a section and a document."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from expost.groups.exposure import Explanation, Group, Grouping
from expost.numbers import certainty, count, figure, percent, posterior_at
from expost.report.document import (
    Alert,
    Block,
    Document,
    Fold,
    Heading,
    Section,
    Table,
    Text,
    Verdict,
    one_line,
    table,
)
from expost.report.figure import Axis, Figure, Line, Panel

__all__ = ["groups_document", "groups_figure", "groups_section", "groups_table", "named_groups"]

# Groups in the figure of a page: more have no room for their names.
_GROUPS_DRAWN = 8


def groups_document(result: Grouping | Explanation) -> Document:
    """Return the document of the parts of a column, or of the leaves of a decision tree."""
    groups = result.groups
    largest = max(groups, key=lambda group: group.lift)
    verdict = (
        f"“{one_line(largest.label)}” holds {percent(min(largest.top_share, 1.0))} of the most"
        f" exposed 1 % of the rows, and {percent(min(largest.share, 1.0))} of all rows."
    )
    return Document(
        kind="groups",
        title=one_line(result.title),
        audience=result.audience,
        verdict=Verdict(text=verdict),
        alerts=tuple(Alert(severity="note", title=one_line(text)) for text in result.notices),
        sections=(
            Section(
                id="groups",
                title="Groups",
                nav="Groups",
                brief=True,
                blocks=(groups_figure(groups), groups_table(result, "group", "exposure")),
            ),
        ),
    )


def groups_section(
    groups: Sequence[Grouping], explanation: Explanation | None, measure: str
) -> Section | None:
    """Return the groups that hold the exposed rows; None where there are none to show.

    The first column is shown with a figure, then the conditions; the other columns are folded.
    """
    tables = (*groups, *(() if explanation is None else (explanation,)))
    if not tables:
        return None
    of_persons = any(each.of_persons for each in tables)
    blocks: list[Block] = [
        Text(
            text=("Each row counts with the exposure of its person. " if of_persons else "")
            + "Lift: how many times as often a row of the group is among the most exposed 1 % as"
            " any row."
        )
    ]
    parts: list[tuple[Block, ...]] = [
        (
            Heading(text=f"By {grouping.name}"),
            *(_shares_figure(grouping) if at == 0 else ()),
            groups_table(grouping, grouping.name, measure, in_nats=False),
            *(Text(text=notice, small=True) for notice in grouping.notices),
        )
        for at, grouping in enumerate(groups)
    ]
    blocks += [block for part in parts[:1] for block in part]
    if explanation is not None:
        blocks += [
            Heading(text="By conditions"),
            groups_table(explanation, "rows with", measure, in_nats=False),
            Text(
                text="A decision tree of at most three questions. It explains"
                f" {percent(explanation.explained)} of the variation between rows.",
                small=True,
            ),
        ]
    if len(parts) > 1:
        title = f"By {len(parts) - 1} more column{'s' if len(parts) > 2 else ''}"
        folded = tuple(block for part in parts[1:] for block in part)
        blocks.append(Fold(title=title, blocks=folded))
    return Section(
        id="groups", title="Who the exposed rows are", blocks=tuple(blocks), nav="Groups"
    )


def named_groups(
    groups: Sequence[Grouping], explanation: Explanation | None
) -> Iterator[tuple[str, Grouping | Explanation]]:
    """Yield the groups with the heading of their first column."""
    yield from ((grouping.name, grouping) for grouping in groups)
    if explanation is not None:
        yield "rows with", explanation


def groups_table(
    grouping: Grouping | Explanation, heading: str, measure: str, *, in_nats: bool = True
) -> Table:
    """Return the groups with their shares and exposures, or certainties unless ``in_nats``."""
    of_persons = grouping.of_persons
    unit = "" if measure == "distance" else " (nats)"
    exposures: tuple[Any, ...] = (
        (f"mean {measure}{unit}", lambda group: group.mean, figure),
        (f"median{unit}", lambda group: group.median, figure),
        (f"largest{unit}", lambda group: group.largest, lambda value: figure(value, "up")),
    )
    if not in_nats and measure != "distance":
        exposures = (
            ("certainty, median", lambda group: group.median, certainty),
            ("certainty, largest", lambda group: group.largest, certainty),
        )
    return table(
        grouping.groups,
        (heading, lambda group: group.label, str),
        ("lift", lambda group: group.lift, "{:.1f}".format),
        ("rows", lambda group: group.rows, count),
        ("persons", lambda group: group.persons, count) if of_persons else None,
        ("of all rows", lambda group: min(group.share, 1.0), percent),
        ("of the top 1 %", lambda group: min(group.top_share, 1.0), percent),
        *exposures,
    )


def groups_figure(
    groups: Sequence[Group], *, key: str = "groups", is_distance: bool = False
) -> Figure:
    """Return the exposures of the groups, and their shares of all and of the most exposed rows.

    ``is_distance``: the figures are distances, of a model without noise.
    """
    y, at = _places(groups, "")
    median, mean, largest = (
        tuple(_drawn(getattr(group, name), is_distance) for group in groups)
        for name in ("median", "mean", "largest")
    )
    exposures = Panel(
        title="Distance" if is_distance else "Attacker's certainty",
        x=_exposure_axis(largest, is_distance),
        y=y,
        lines=(
            Line(name="median", x=median, y=at, dots=True),
            Line(name="mean", x=mean, y=at, role="second", dots=True),
            Line(name="largest", x=largest, y=at, role="third", dots=True),
        ),
    )
    shares = _shares_panel(groups, y, at)
    return Figure(
        key=key,
        description="Median, mean and largest exposure of each group, and the group's share.",
        panels=(exposures, shares),
    )


def _shares_figure(grouping: Grouping) -> tuple[Figure, ...]:
    """Return the shares of the groups with the largest lift; nothing where there is one group."""
    groups = sorted(grouping.groups, key=lambda group: -group.lift)[:_GROUPS_DRAWN]
    if len(groups) < 2:
        return ()
    return (
        Figure(
            key="groups",
            description="The share of each group of all rows and of the most exposed 1 %.",
            panels=(_shares_panel(groups, *_places(groups, one_line(grouping.name))),),
        ),
    )


def _places(groups: Sequence[Group], label: str) -> tuple[Axis, tuple[float, ...]]:
    """Return the axis that names the groups, the first on top, and their places on it."""
    names = tuple(one_line(group.label) for group in reversed(groups))
    axis = Axis(label=label, low=-0.5, high=len(groups) - 0.5, categories=names)
    return axis, tuple(float(index) for index in reversed(range(len(groups))))


def _shares_panel(groups: Sequence[Group], y: Axis, at: tuple[float, ...]) -> Panel:
    return Panel(
        title="Share of the group",
        x=Axis(label="share", low=0.0, high=1.0, format="percent"),
        y=y,
        lines=(
            Line(name="of all rows", x=tuple(group.share for group in groups), y=at, dots=True),
            Line(
                name="of the most exposed 1 %",
                x=tuple(group.top_share for group in groups),
                y=at,
                role="second",
                dots=True,
            ),
        ),
    )


def _drawn(value: float, is_distance: bool) -> float:
    return value if is_distance else posterior_at(value)


def _exposure_axis(largest: Sequence[float], is_distance: bool) -> Axis:
    most = max(largest)
    if is_distance:
        finite = float(most) if np.isfinite(most) and most > 0 else 1.0
        return Axis(label="distance", low=0.0, high=1.08 * finite)
    high = min(0.5 + 1.08 * max(most - 0.5, 1e-4), 1.0)
    return Axis(label="certainty", low=0.5, high=high, format="percent")
