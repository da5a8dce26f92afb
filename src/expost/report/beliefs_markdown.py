"""Beliefs as Markdown."""

from collections.abc import Iterator, Sequence

from expost.report.beliefs_part import BeliefsPart
from expost.report.markup import escaped, section, table
from expost.report.wording import count, percent, share

__all__ = ["beliefs_markdown"]


def beliefs_markdown(part: BeliefsPart, lead: Sequence[str]) -> Iterator[str]:
    """Its sections; ``lead`` are sentences that open them."""
    body = [line for text in lead for line in (escaped(text), "")]
    yield from section(
        f"How sure an attacker gets of each {escaped(part.unit)}",
        [*body, *_levels(part), "", *_quantiles(part), "", *_allowed(part)],
    )


def _levels(part: BeliefsPart) -> list[str]:
    headings = ["surer than", f"that it was in: {escaped(part.unit)}s", "of all"]
    headings += [f"that it was not: {escaped(part.unit)}s", "of all"] if part.is_even else []
    rows = []
    for level in part.levels:
        cells = [share(level.belief), count(level.rows), percent(level.rows / part.rows)]
        if part.is_even:
            cells += [count(level.rows_out), percent(level.rows_out / part.rows)]
        rows.append([escaped(cell) for cell in cells])
    return table(headings, rows)


def _quantiles(part: BeliefsPart) -> list[str]:
    rows = [[share(one.share), escaped(one.text)] for one in part.quantiles]
    return table((f"share of the {escaped(part.unit)}s", "belief at most"), rows)


def _allowed(part: BeliefsPart) -> list[str]:
    worst, surest = part.worst, part.surest
    rows = [
        [
            f"belief in the surest {escaped(part.unit)}: {escaped(surest.key)},"
            f" {escaped(surest.interval_text)}",
            escaped(surest.belief_text),
            escaped(worst.belief_text + worst.failure_text),
        ],
    ]
    if part.is_even:
        either = escaped(part.either_way_text)
        rows.append(
            [f"how sure of any {escaped(part.unit)}, in or out", either, escaped(worst.belief_text)]
        )
    if part.advantage is not None:
        key = escaped(part.advantage.key)
        rows += [
            [
                f"advantage against the surest {escaped(part.unit)}",
                escaped(part.advantage.surest_text),
                escaped(worst.advantage_text),
            ],
            [f"the largest advantage: {key}", escaped(part.advantage.largest_text), ""],
        ]
    else:
        rows.append(["advantage: not computed", "", escaped(worst.advantage_text)])
    found = f"members found where {share(worst.false)} of the others are taken for members"
    rows.append([found, "", escaped(worst.found_text)])
    return table(("", "here", f"allowed against any {escaped(part.unit)}"), rows)
