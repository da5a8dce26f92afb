"""A run of DP-SGD as Markdown; the charts are left to the page."""

from collections.abc import Iterator, Sequence

from expost.report.markup import escaped, section, table
from expost.report.training_part import TrainingPart
from expost.report.wording import count, figure_up, upper

__all__ = ["training_markdown"]


def training_markdown(part: TrainingPart, lead: Sequence[str]) -> Iterator[str]:
    """Its section; ``lead`` are sentences that open it."""
    body = [line for text in lead for line in (escaped(text), "")]
    rows = [[escaped(name), escaped(value)] for name, value in part.facts]
    yield from section("How it was trained", [*body, *table(("", ""), rows)])
    if part.epochs:
        headings = (
            "epoch",
            "most exposed in the end",
            "most exposed so far",
            "99 of 100 rows at most",
            "middle row",
        )
        grown = [
            [
                count(one.epoch),
                figure_up(abs(one.own)),
                figure_up(one.largest),
                figure_up(one.late),
                figure_up(one.middle),
            ]
            for one in part.shown_epochs
        ]
        yield from section("How the exposure grew, in nats", table(headings, grown))
    if part.spent:
        spent = [[count(one.steps), upper(one.epsilon)] for one in part.spent]
        yield from section("The ε of so many steps", table(("steps", "ε"), spent))
