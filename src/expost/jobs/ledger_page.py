"""The page of ``expost ledger``: what a listing shows."""

import math

from expost.jobs.releases import Line, Listing
from expost.report import Summary
from expost.report.ledger_part import LedgerPart, ListedRelease
from expost.report.parts import Headline, one_line
from expost.report.risk_part import added_up, added_up_heading
from expost.report.wording import count, symbols, upper

__all__ = ["ledger_summary"]

_ADVICE = (
    "Every further release of these rows adds to this: look here before you make one, and list with"
    " --add what was released elsewhere."
)


def ledger_summary(
    found: Listing, *, source: str | None = None, made: str | None = None
) -> Summary:
    """What a page shows of these releases."""
    belief, *others = (symbols(one_line(sentence)) for sentence in found.sentences())
    part = LedgerPart(
        model="",
        headline=Headline(epsilon=_spent(found), exposed=belief, advice=_ADVICE),
        notices=tuple(others),
        source=None if source is None else one_line(source),
        made=made,
        releases=tuple(_release(line) for line in found.releases),
        ways=tuple(added_up(found.comparison)),
        ways_heading=added_up_heading(found.comparison),
    )
    return Summary.of({"ledger": part})


def _spent(found: Listing) -> str:
    total = len(found.releases)
    releases = "One release is" if total == 1 else f"{count(total)} releases are"
    if found.comparison is None:
        return f"{releases} known, and together they promise nothing."
    least = found.comparison.row("pld")
    at = f" at δ = {upper(found.delta)}" if found.delta > 0 else ""
    epsilon = "∞" if least.epsilon == math.inf else upper(least.epsilon)
    spent = "it spends" if total == 1 else "together they spend"
    return f"{releases} known, and {spent} ε = {epsilon}{at}."


def _release(line: Line) -> ListedRelease:
    entry = line.entry
    return ListedRelease(
        listed=None if line.ledger is None else one_line(entry.made[:16].replace("T", " ")),
        release=one_line(entry.release[:8]),
        what=one_line(entry.description),
        epsilon=entry.epsilon if entry.is_promised else math.inf,
        delta=entry.delta,
        rows=entry.rows,
        data=one_line(line.rows),
        file=one_line(entry.name),
    )
