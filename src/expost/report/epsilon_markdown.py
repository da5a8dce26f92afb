"""A choice of ε as Markdown; the charts are left to the page."""

from collections.abc import Iterator, Sequence

from expost.epsilon.recommend import score_text
from expost.report.epsilon_part import EpsilonPart, EpsilonRow
from expost.report.markup import escaped, section, table
from expost.report.wording import figure_up, number_down, percent_up, share
from expost.rounding import fixed

__all__ = ["epsilon_markdown"]


def epsilon_markdown(part: EpsilonPart, lead: Sequence[str]) -> Iterator[str]:
    """Its sections; ``lead`` are sentences that open them."""
    if part.command is not None:
        # Indented, it is code: shown as it stands.
        yield from section("What to type next", [f"    {part.command}"])
    yield from section("From much noise to little", [*map(escaped, lead)])
    yield from section("Over ε", _table(part))
    critical = [
        [
            "the first row" if entry.share == 0 else share(entry.share),
            "any" if entry.epsilon is None else number_down(entry.epsilon),
        ]
        for entry in part.critical
    ]
    headings = ("share of the rows that have left the first plateau", "by ε")
    yield from section("Which rows leave the plateau when", table(headings, critical))


def _table(part: EpsilonPart) -> list[str]:
    headings = ["ε", "", "noise ratio r", "posterior, most exposed row", "share of the gain"]
    headings += ["typical exposure, middle row", "largest"]
    headings += [escaped(score.measure) for score in part.table[0].scores]
    return table(headings, [_cells(row) for row in part.table])


def _cells(row: EpsilonRow) -> list[str]:
    scores = [
        f"{score_text(score.measure, score.mean)}"
        f" ({score_text(score.measure, score.low)} to {score_text(score.measure, score.high)})"
        for score in row.scores
    ]
    return [
        row.epsilon_text,
        escaped(row.mark),
        "" if row.noise_ratio is None else figure_up(row.noise_ratio),
        escaped(percent_up(row.posterior)),
        "" if row.share is None else f"{fixed(row.share, 0, 'down', percent=True)} %",
        figure_up(row.middle),
        figure_up(row.largest),
        *scores,
    ]
