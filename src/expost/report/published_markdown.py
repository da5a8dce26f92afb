"""A published report as Markdown, and what it answers to a person."""

from collections.abc import Iterator, Sequence

from expost.report.markup import escaped, section, table
from expost.report.published_part import PublishedPart
from expost.report.wording import count

__all__ = ["published_markdown"]


def published_markdown(part: PublishedPart, lead: Sequence[str]) -> Iterator[str]:
    """Its sections; ``lead`` are sentences that open them."""
    if part.bounds:
        yield from section("What is known of your row", _bounds(part, lead))
    said = [] if part.bounds else [line for text in lead for line in (escaped(text), "")]
    yield from section("What it says", [*said, *_listed(part.statements)])
    yield from section("What it does not say", _listed(part.limits))
    budget = [
        [
            f"{escaped(line.what)}: {escaped(line.words)}",
            escaped(line.epsilon_text),
            escaped(line.delta_text),
        ]
        for line in part.budget
    ]
    yield from section("What was spent for what", table(("spent for", "ε", "δ"), budget))
    more = f" and {count(part.more_columns)} more" if part.more_columns else ""
    asked = f"It asks for {escaped(', '.join(part.columns))}{more}."
    if part.labels:
        asked += f" The label is {escaped(' or '.join(part.labels))}."
    # Indented, it is code: shown as it stands.
    yield from section("To ask about your own row", [f"    {part.command}", "", asked])


def _listed(texts: Sequence[str]) -> list[str]:
    return [f"- {escaped(text)}" for text in texts]


def _bounds(part: PublishedPart, lead: Sequence[str]) -> list[str]:
    is_named = len(part.bounds) > 1
    headings = ["if your label is"] if is_named else []
    headings += ["how sure an attacker can get, in or out", "exposure at most (nats)"]
    if part.is_spending:
        headings += ["how sure with this report as well", "ε of its gradient", "ε of its Hessian"]
    headings.append("wrong with a probability of")
    rows = []
    for bound in part.bounds:
        cells = [escaped(bound.label or "")] if is_named else []
        cells += [escaped(bound.belief_text), escaped(bound.exposure_text)]
        if part.is_spending:
            cells += [escaped(bound.everything_text), bound.gradient_text, bound.hessian_text]
        rows.append([*cells, escaped(bound.fails_text)])
    return [*(line for text in lead for line in (escaped(text), "")), *table(headings, rows)]
