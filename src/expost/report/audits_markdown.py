"""Audits over ε as Markdown; the charts are left to the page."""

from collections.abc import Iterator, Sequence

from expost.attacks.roc import Interval
from expost.report.audit_part import CorrelationLine
from expost.report.audits_part import AuditsPart, SweepLine
from expost.report.markup import escaped, section, table
from expost.report.wording import interval, number, number_down, rate_interval, share

__all__ = ["audits_markdown"]


def audits_markdown(part: AuditsPart, lead: Sequence[str]) -> Iterator[str]:
    """Its section; ``lead`` are sentences that open it."""
    headings = (
        "ε",
        "best attack",
        "AUC",
        "advantage",
        "allowed",
        "members found at 1 % of the others",
        "ε is at least",
        "rank correlation",
    )
    body = [line for text in lead for line in (escaped(text), "")]
    rows = [_cells(line) for line in part.lines]
    said = f"Intervals at {share(part.confidence)}, over the rows of one model at each ε."
    yield from section(
        "Attacks and theory over ε",
        [f"**{part.warning}**", "", *body, *table(headings, rows), "", said],
    )


def _cells(line: SweepLine) -> list[str]:
    found, proved = line.tpr_at_1_percent, line.proved
    return [
        number(line.epsilon),
        escaped(line.attack),
        _interval(line.auc, 3),
        _interval(line.advantage, 3),
        line.allowed_text,
        escaped(rate_interval(found.value, found.low, found.high)),
        ("not tried" if proved is None else number_down(proved))
        + (" (the promise is refuted)" if line.refuted else ""),
        "unknown" if line.relation is None else _interval(line.relation, 2),
    ]


def _interval(one: Interval | CorrelationLine, digits: int) -> str:
    return interval(one.value, one.low, one.high, digits)
