"""The summary as Markdown, for a ticket or a log of decisions; the chart is left to the page."""

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from expost._groups import Explanation, Grouping, printable
from expost.report.summary import ExposedRow, Summary
from expost.report.wording import count, figure, percent, share
from expost.types import Audience

__all__ = ["escaped", "head", "render_markdown", "section", "table"]

# What could begin markup, a tag, an entity, a link or a table cell anywhere in a line.
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|!~&$@])")
# Bare addresses become links by themselves.
_ADDRESS = re.compile(r"(://|www\.)", re.IGNORECASE)
_LONGEST = 2000


def render_markdown(summary: Summary) -> str:
    """The text; the same summary gives the same bytes."""
    return "\n".join(_lines(summary)) + "\n"


class Headed(Protocol):
    """What every summary begins with."""

    @property
    def audience(self) -> Audience:
        """For whom the page is."""

    @property
    def source(self) -> str | None:
        """What was read."""

    @property
    def made(self) -> str | None:
        """When."""

    @property
    def answer(self) -> tuple[str, ...]:
        """In a few sentences."""


def head(summary: Headed, title: str) -> Iterator[str]:
    """The mark, the title, where it comes from, and the answer."""
    mark = summary.audience
    yield f"> **{mark.value.upper()}** {mark.meaning}"
    yield ""
    yield f"# {title}"
    yield ""
    origin = [escaped(text) for text in (summary.source, summary.made) if text]
    if origin:
        yield from (", ".join(origin), "")
    for sentence in summary.answer:
        yield from (escaped(sentence), "")


def _lines(summary: Summary) -> Iterator[str]:
    yield from head(summary, f"Privacy profile of {summary.heading}")
    if summary.persons is not None:
        yield from (summary.persons.sentence, "")
    if summary.notices:
        yield from section("What to know first", [f"- {escaped(n)}" for n in summary.notices])
    yield from section(f"How exposed the {summary.unit}s are", _quantiles(summary))
    yield from section(f"The most exposed {summary.unit}s", _top(summary))
    if summary.explanation is not None:
        yield from section("In plain conditions", _groups(summary.explanation, "rows with"))
    for grouping in summary.groups:
        name = escaped(grouping.name)
        yield from section(f"By {name}", _groups(grouping, name))
    if summary.accuracy is not None:
        yield from section("What the model is good for", _accuracy(summary))
    yield from section("The model", _model(summary))
    if summary.choices:
        rows = [(c.name, c.value, c.origin.value) for c in summary.choices]
        yield from section(
            "Choices made",
            table(("setting", "value", "where from"), [[*map(escaped, row)] for row in rows]),
        )
    yield ", ".join(f"{escaped(name)} {escaped(value)}" for name, value in summary.versions)


def section(heading: str, body: Sequence[str]) -> list[str]:
    """A heading and its lines."""
    return [f"## {heading}", "", *body, ""]


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no link."""
    marked = _MARKUP.sub(r"\\\1", printable(text, _LONGEST))
    return _ADDRESS.sub(lambda found: rf"{found[0][:-1]}\{found[0][-1]}", marked)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; cells from outside must be escaped."""
    lines = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]


def _quantiles(summary: Summary) -> list[str]:
    if summary.is_noiseless:
        rows = [[share(q.share), figure(q.score)] for q in summary.quantiles]
        return table((f"share of the {summary.unit}s", "distance at most"), rows)
    rows = [
        [share(q.share), figure(q.score), percent(q.certainty), _or_unknown(q.typical)]
        for q in summary.quantiles
    ]
    measures = ("exposure (nats)", "attacker's certainty", "typical")
    return table((f"share of the {summary.unit}s", *measures), rows)


def _or_unknown(value: float | None) -> str:
    return "unknown" if value is None else figure(value)


def _top(summary: Summary) -> list[str]:
    names = ("rank", summary.unit, *(() if summary.persons is None else ("rows",)))
    if summary.is_noiseless:
        rows = [[*_named(r), figure(r.distance)] for r in summary.top]
        return table((*names, "distance"), rows)
    rows = [
        [
            *_named(row),
            figure(row.exposure),
            f"± {figure(row.precision)}",
            percent(row.belief),
            _or_unknown(row.typical),
        ]
        for row in summary.top
    ]
    belief = f"belief that {'it was' if summary.persons is None else 'they were'} in"
    headings = ("exposure (nats)", "proved to within", belief, "typical")
    return table((*names, *headings), rows)


def _named(row: ExposedRow) -> list[str]:
    """Its place, its key, and how many rows a person has."""
    return [str(row.rank), escaped(row.key), *([] if row.rows is None else [count(row.rows)])]


def _groups(grouping: Grouping | Explanation, heading: str) -> list[str]:
    rows = [
        [
            escaped(group.label),
            count(group.rows),
            *([] if group.persons is None else [count(group.persons)]),
            figure(group.mean),
            figure(group.largest),
            percent(min(group.share, 1.0)),
            percent(min(group.top_share, 1.0)),
            f"{group.lift:.1f}",
        ]
        for group in grouping.groups
    ]
    persons = ["persons"] if grouping.of_persons else []
    headings = (
        heading,
        "rows",
        *persons,
        "mean",
        "largest",
        "of all rows",
        "of the top 1 %",
        "lift",
    )
    said = ["Each row counts with its person's exposure."] if persons else []
    notices = [line for notice in (*said, *grouping.notices) for line in ("", escaped(notice))]
    return [*table(headings, rows), *notices]


def _accuracy(summary: Summary) -> list[str]:
    found = summary.accuracy
    assert found is not None
    rows = [
        ["this released model", f"{found.released:.3f}"],
        ["knowing nothing (base rate)", f"{found.base_rate:.3f}"],
    ]
    if found.noiseless is not None:
        rows.append(["without noise (ε = ∞, not released)", f"{found.noiseless:.3f}"])
    return table((escaped(f"{found.measure} on {found.rows}"), ""), rows)


def _model(summary: Summary) -> list[str]:
    lines = [f"- {escaped(summary.model)}"]
    if summary.seeded:
        lines.append("- The noise came from a seed: this is no private release.")
    if summary.model_audience is not None:
        mark = summary.model_audience
        lines.append(f"- model.json: {mark.value}: {mark.meaning}")
    return lines
