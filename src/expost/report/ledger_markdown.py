"""A ledger as Markdown."""

from collections.abc import Iterator, Sequence

from expost.report.ledger_part import LedgerPart
from expost.report.markup import escaped, section, table
from expost.report.risk_markdown import ways_markdown
from expost.report.wording import count, number_up

__all__ = ["ledger_markdown"]


def ledger_markdown(part: LedgerPart, lead: Sequence[str]) -> Iterator[str]:
    """Its sections; ``lead`` are sentences that open them."""
    headings = ("listed (UTC)", "release", "what", "ε", "δ", "rows", "of", "file")
    rows = [
        [
            escaped(one.listed or "not listed"),
            escaped(one.release),
            escaped(one.what),
            escaped(one.epsilon_text),
            escaped(number_up(one.delta)),
            count(one.rows),
            escaped(one.data),
            escaped(one.file),
        ]
        for one in part.releases
    ]
    body = [line for text in lead for line in (escaped(text), "")]
    yield from section("The releases", [*body, *table(headings, rows)])
    if part.ways:
        yield from ways_markdown(part.ways, part.ways_heading)
