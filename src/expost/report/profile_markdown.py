"""A profile as Markdown; the chart is left to the page."""

from collections.abc import Iterator, Sequence

from expost.groups.exposure import Explanation, Grouping
from expost.report.markup import escaped, or_unknown, section, table
from expost.report.profile_part import ExposedRow, ProfilePart
from expost.report.wording import count, figure, figure_up, percent, share, sure_text

__all__ = ["profile_markdown"]


def profile_markdown(part: ProfilePart, lead: Sequence[str]) -> Iterator[str]:
    """Its sections; ``lead`` are sentences that open them."""
    if part.persons is not None:
        yield from (part.persons.sentence, "")
    body = [*map(escaped, lead), "", *_quantiles(part)]
    yield from section(f"How exposed the {part.unit}s are", body)
    yield from section(f"The most exposed {part.unit}s", _top(part))
    if part.explanation is not None:
        yield from section("In plain conditions", _groups(part.explanation, "rows with"))
    for grouping in part.groups:
        name = escaped(grouping.name)
        yield from section(f"By {name}", _groups(grouping, name))
    if part.accuracy is not None:
        yield from section("What the model is good for", _accuracy(part))
    yield from section("The model", _model(part))


def _quantiles(part: ProfilePart) -> list[str]:
    if part.is_noiseless:
        rows = [[share(q.share), figure_up(q.score)] for q in part.quantiles]
        return table((f"share of the {part.unit}s", "distance at most"), rows)
    rows = [
        [
            share(q.share),
            figure_up(q.score),
            escaped(sure_text(q.score)),
            or_unknown(q.typical, figure_up),
        ]
        for q in part.quantiles
    ]
    measures = ("exposure (nats)", "attacker's certainty", "typical")
    return table((f"share of the {part.unit}s", *measures), rows)


def _top(part: ProfilePart) -> list[str]:
    names = ("rank", part.unit, *(() if part.persons is None else ("rows",)))
    if part.is_noiseless:
        rows = [[*_named(r), figure(r.distance)] for r in part.top]
        return table((*names, "distance"), rows)
    rows = [
        [
            *_named(row),
            figure(row.exposure),
            percent(row.belief),
            f"± {figure_up(row.precision)}",
            or_unknown(row.typical),
        ]
        for row in part.top
    ]
    belief = f"belief that {'it was' if part.persons is None else 'they were'} in"
    headings = ("exposure (nats)", belief, "proved to within", "typical")
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
            figure_up(group.largest),
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


def _accuracy(part: ProfilePart) -> list[str]:
    found = part.accuracy
    assert found is not None
    losses = found.log_loss
    models = {
        "this released model": "released",
        "knowing nothing (base rate)": "base_rate",
        "without noise (ε = ∞, not released)": "noiseless",
    }
    columns = [found] if losses is None else [found, losses]
    rows = [
        [name, *(or_unknown(getattr(column, key), "{:.3f}".format) for column in columns)]
        for name, key in models.items()
        if getattr(found, key) is not None
    ]
    more = () if losses is None else ("log loss",)
    return table((escaped(f"{found.measure} on {found.rows}"), "", *more), rows)


def _model(part: ProfilePart) -> list[str]:
    lines = [f"- {escaped(part.model)}"]
    if part.seeded:
        lines.append("- The noise came from a seed: this is no private release.")
    if part.model_audience is not None:
        mark = part.model_audience
        lines.append(f"- model.json: {mark.value}: {mark.meaning}")
    return lines
