"""What a promise allows as Markdown; the charts are left to the page."""

from collections.abc import Iterator, Sequence

from expost.report.markup import escaped, section, table
from expost.report.risk_part import RiskPart, RiskWay
from expost.report.wording import figure

__all__ = ["risk_markdown", "ways_markdown"]


def risk_markdown(part: RiskPart, lead: Sequence[str]) -> Iterator[str]:
    """Its sections; ``lead`` are sentences that open them."""
    headings = ("", *(escaped(route.name) for route in part.routes))
    rows = [[escaped(one.label), *map(escaped, one.shown)] for one in part.figures]
    notes = [f"- {escaped(route.name)}: {escaped(route.note)}" for route in part.routes]
    body = [line for text in (*lead, part.attacker) for line in (escaped(text), "")]
    yield from section(part.heading, [*body, *table(headings, rows), "", *notes])
    if part.ways:
        yield from ways_markdown(part.ways, part.ways_heading)


def ways_markdown(ways: Sequence[RiskWay], heading: str) -> list[str]:
    """What each way of adding releases up gives."""
    headings = ("added up by", "ε", "times the least", "belief", "advantage", "")
    rows = [
        [
            escaped(way.name),
            escaped(way.epsilon_text),
            figure(way.times),
            escaped(way.belief_text),
            escaped(way.advantage_text),
            escaped(way.note),
        ]
        for way in ways
    ]
    return section("Several releases", [escaped(heading), "", *table(headings, rows)])
