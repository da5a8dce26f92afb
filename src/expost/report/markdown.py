"""The summary as Markdown, for a ticket or a log of decisions; charts are left to the page."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

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

# Of each part its sections, by the name that it has in a summary.
_SECTIONS: dict[str, Callable[[Any, Sequence[str]], Iterator[str]]] = {
    "profile": profile_markdown,
    "epsilon": epsilon_markdown,
    "beliefs": beliefs_markdown,
    "risk": risk_markdown,
    "published": published_markdown,
    "training": training_markdown,
    "audit": audit_markdown,
    "audits": audits_markdown,
    "ledger": ledger_markdown,
}


def render_markdown(summary: Summary) -> str:
    """The text; the same summary gives the same bytes."""
    return "\n".join(_lines(summary)) + "\n"


def _lines(summary: Summary) -> Iterator[str]:
    yield from _head(summary)
    for name, part in summary.by_name.items():
        yield from _SECTIONS[name](part, summary.lead(part))
    if summary.guarantee:
        yield from section("The guarantee", [f"- {escaped(line)}" for line in summary.guarantee])
    if summary.forecast:
        yield from section(
            "What the noise leaves", [f"- {escaped(line)}" for line in summary.forecast]
        )
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
