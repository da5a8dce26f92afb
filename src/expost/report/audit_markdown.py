"""An audit as Markdown, for an assessment; charts are left to the page."""

from collections.abc import Iterator, Sequence

from expost.attacks.roc import Interval
from expost.report.audit_part import AuditPart, DisparityTable
from expost.report.markup import escaped, or_unknown, section, table
from expost.report.wording import (
    count,
    figure_down,
    figure_up,
    interval,
    number,
    percent,
    percent_up,
    rate_interval,
    share,
)

__all__ = ["audit_markdown"]


def audit_markdown(part: AuditPart, lead: Sequence[str]) -> Iterator[str]:
    """Its sections; ``lead`` are sentences that open them."""
    yield from section(
        "What attacks find", [f"**{part.warning}**", *(f"\n{escaped(text)}" for text in lead)]
    )
    yield from section("The attacks in numbers", _attacks(part))
    yield from section("Which rows are vulnerable", _rows(part))
    for disparity in part.disparity:
        yield from section(f"By {escaped(disparity.column)}", _groups(disparity))
    if part.measure is not None:
        yield from section("Beside what theory says of each row", _exposures(part))
    yield from section("What is proved about ε", _bounds(part))
    questions = [
        line
        for entry in part.questions
        for line in (f"**{entry.question}** {escaped(' '.join(entry.answer))}", "")
    ]
    yield from section("For a data-protection impact assessment", questions[:-1])


def _attacks(part: AuditPart) -> list[str]:
    headings = (
        "attack",
        "AUC",
        "balanced accuracy",
        "advantage",
        "members found at 1 % of the others",
        "at 0.1 %",
    )
    rows = [
        [
            escaped(one.name),
            _interval(one.auc),
            _interval(one.accuracy),
            _interval(one.advantage),
            _rate(one.tpr_at_1_percent),
            _rate(one.tpr_at_01_percent),
        ]
        for one in part.attacks
    ]
    skipped = [
        line
        for name, why in part.skipped
        for line in ("", f"Not made: {escaped(name)} ({escaped(why)}).")
    ]
    said = f"Intervals at {share(part.confidence)}, over the rows of this one model."
    return [*table(headings, rows), "", said, *skipped]


def _interval(one: Interval | None) -> str:
    if one is None:
        return "too few"
    return interval(one.value, one.low, one.high, 3)


def _rate(one: Interval | None) -> str:
    if one is None:
        return "too few"
    return escaped(rate_interval(one.value, one.low, one.high))


def _rows(part: AuditPart) -> list[str]:
    names = ["rank", "member"]
    if part.average is not None:
        names += ["told apart", "standard error", "times the average, beyond a coin"]
    names.append("others that score as high")
    names += ["exposure (nats)"] if part.exposed else []
    names += [] if part.measure is None else [part.measure]
    rows = []
    for row in part.vulnerable:
        cells = [str(row.rank), escaped(row.key)]
        if part.average is not None:
            beyond = row.beyond_average
            cells += [
                or_unknown(row.told_apart, percent),
                escaped(or_unknown(row.error, percent_up)),
                "unknown" if beyond is None else f"{beyond:.1f}".replace("-", "−"),
            ]
        cells.append(percent(row.as_high))
        cells += [or_unknown(row.exposure)] if part.exposed else []
        cells += [] if part.measure is None else [or_unknown(row.measured)]
        rows.append(cells)
    lines = table(names, rows)
    if part.average is None:
        return lines
    levels = [[share(one.level), count(one.members), count(one.mirrored)] for one in part.levels]
    return [
        f"The average member is told apart {percent(part.average)} of the time; a coin gets"
        f" {percent(0.5)}.",
        "",
        *table(("told apart at least", "members", "about as many by luck"), levels),
        "",
        *lines,
    ]


def _groups(found: DisparityTable) -> list[str]:
    headings = (
        escaped(found.column),
        "members",
        "others",
        f"AUC of {escaped(found.attack)}",
        f"members found at {share(found.false_positive_rate)} of all others",
        "others taken for members",
    )
    rows = [
        [
            escaped(one.label),
            count(one.members),
            count(one.others),
            _interval(one.auc),
            _rate(one.found),
            _rate(one.accused),
        ]
        for one in found.groups
    ]
    notices = [line for notice in found.notices for line in ("", escaped(notice))]
    return [*table(headings, rows), *notices]


def _exposures(part: AuditPart) -> list[str]:
    correlations = [
        [
            escaped(one.what),
            interval(one.value, one.low, one.high, 2),
            count(one.rows),
        ]
        for one in part.correlations
    ]
    rows = [
        [
            escaped(row.key),
            or_unknown(row.measured),
            count(row.measured_rank),
            or_unknown(row.told_apart, percent),
            count(row.attack_rank),
        ]
        for row in part.disagreements
    ]
    measure = part.measure or ""
    headings = ("member", measure, "rank by theory", "told apart", "rank by attacks")
    return [
        *table(("rank correlation of", "Spearman's ρ", "members"), correlations),
        "",
        "Where they disagree most:",
        "",
        *table(headings, rows),
    ]


def _bounds(part: AuditPart) -> list[str]:
    promise = (
        "No promise is known of this model."
        if part.promise is None
        else f"Promised: {escaped(part.promise)}; "
        + ("refuted." if part.promise_refuted else "not refuted.")
    )
    rows = [
        [
            escaped(one.method),
            figure_down(one.epsilon),
            figure_up(one.most),
            number(one.delta),
            "nothing" if one.promised is None else figure_up(one.promised),
            share(one.confidence),
            escaped(one.rests_on),
        ]
        for one in part.bounds
    ]
    if not rows:
        return [promise, "", "No bound could be proved with this evidence."]
    headings = (
        "how",
        "ε is at least",
        "could be shown",
        "at δ",
        "promised there",
        "confidence",
        "rests on",
    )
    return [promise, "", *table(headings, rows)]
