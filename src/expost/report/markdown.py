"""The summary as Markdown, for a ticket or a log of decisions; charts are left to the page."""

from collections.abc import Iterator

from expost.report.audit_markdown import audit_markdown
from expost.report.audits_markdown import audits_markdown
from expost.report.beliefs_markdown import beliefs_markdown
from expost.report.epsilon_markdown import epsilon_markdown
from expost.report.ledger_markdown import ledger_markdown
from expost.report.markup import escaped, section, table
from expost.report.profile_markdown import profile_markdown
from expost.report.published_markdown import published_markdown
from expost.report.risk_markdown import risk_markdown
from expost.report.summary import Summary
from expost.report.training_markdown import training_markdown

__all__ = ["render_markdown"]


def render_markdown(summary: Summary) -> str:
    """The text; the same summary gives the same bytes."""
    return "\n".join(_lines(summary)) + "\n"


def _lines(summary: Summary) -> Iterator[str]:
    yield from _head(summary)
    if summary.profile is not None:
        yield from profile_markdown(summary.profile, summary.lead(summary.profile))
    if summary.epsilon is not None:
        yield from epsilon_markdown(summary.epsilon, summary.lead(summary.epsilon))
    if summary.beliefs is not None:
        yield from beliefs_markdown(summary.beliefs, summary.lead(summary.beliefs))
    if summary.risk is not None:
        yield from risk_markdown(summary.risk, summary.lead(summary.risk))
    if summary.published is not None:
        yield from published_markdown(summary.published, summary.lead(summary.published))
    if summary.training is not None:
        yield from training_markdown(summary.training, summary.lead(summary.training))
    if summary.audit is not None:
        yield from audit_markdown(summary.audit, summary.lead(summary.audit))
    if summary.audits is not None:
        yield from audits_markdown(summary.audits, summary.lead(summary.audits))
    if summary.ledger is not None:
        yield from ledger_markdown(summary.ledger, summary.lead(summary.ledger))
    if summary.choices:
        rows = [(c.name, c.value, c.origin.value) for c in summary.choices]
        yield from section(
            "Choices made",
            table(("setting", "value", "where from"), [[*map(escaped, row)] for row in rows]),
        )
    if summary.notices:
        yield from section("What to know", [f"- {escaped(notice)}" for notice in summary.notices])
    yield ", ".join(f"{escaped(name)} {escaped(value)}" for name, value in summary.versions)


def _head(summary: Summary) -> Iterator[str]:
    """The mark, the title, where it comes from, and the answer."""
    mark = summary.audience
    yield from (f"> **{mark.value.upper()}** {mark.meaning}", "", f"# {escaped(summary.title)}", "")
    for line in (*summary.models, *summary.sources, *summary.answer):
        yield from (escaped(line), "")
