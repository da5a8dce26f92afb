"""The summary of a choice of ε as Markdown; the charts are left to the page."""

from collections.abc import Iterator

from expost._recommend import rounded_down
from expost.report.epsilon_answer import score_text
from expost.report.epsilon_summary import EpsilonRow, EpsilonSummary
from expost.report.markdown import escaped, head, section, table
from expost.report.wording import count, figure, number, percent, share

__all__ = ["render_epsilon_markdown"]


def render_epsilon_markdown(summary: EpsilonSummary) -> str:
    """The text; the same summary gives the same bytes."""
    return "\n".join(_lines(summary)) + "\n"


def _lines(summary: EpsilonSummary) -> Iterator[str]:
    yield from head(summary, f"Which ε for a model of {count(summary.rows)} rows?")
    yield from section("What to know first", [f"- {escaped(text)}" for text in summary.notices])
    if summary.command is not None:
        # Indented, it is code: shown as it stands.
        yield from section("What to type next", [f"    {summary.command}"])
    yield from section("Why", [f"- {escaped(text)}" for text in summary.reasons])
    yield from section("Over ε", _table(summary))
    critical = [
        [
            "the first row" if entry.share == 0 else share(entry.share),
            "any" if entry.epsilon is None else number(rounded_down(entry.epsilon)),
        ]
        for entry in summary.critical
    ]
    headings = ("share of the rows that have left the first plateau", "by ε")
    yield from section("Which rows leave the plateau when", table(headings, critical))
    if summary.choices:
        rows = [(c.name, c.value, c.origin.value) for c in summary.choices]
        yield from section(
            "Choices made",
            table(("setting", "value", "where from"), [[*map(escaped, row)] for row in rows]),
        )
    yield from (escaped(summary.model), "")
    yield ", ".join(f"{escaped(name)} {escaped(value)}" for name, value in summary.versions)


def _table(summary: EpsilonSummary) -> list[str]:
    headings = ["ε", "", "belief, most exposed row", "typical exposure, middle row", "largest"]
    headings += [score.measure for score in summary.table[0].scores]
    return table(headings, [_cells(row) for row in summary.table])


def _cells(row: EpsilonRow) -> list[str]:
    epsilon = number(rounded_down(row.epsilon)) if row.mark else figure(row.epsilon)
    scores = [
        f"{score_text(score.measure, score.mean)}"
        f" ({score_text(score.measure, score.low)} to {score_text(score.measure, score.high)})"
        for score in row.scores
    ]
    return [
        epsilon,
        row.mark,
        percent(row.belief),
        figure(row.middle),
        figure(row.largest),
        *scores,
    ]
