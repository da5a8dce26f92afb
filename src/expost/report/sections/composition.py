"""The composition of several releases by each method, as a table and as a document."""

import math
from collections.abc import Iterator

from expost.numbers import certainty, figure, percent, share, symbols
from expost.report.document import (
    Block,
    Bullets,
    Document,
    Section,
    Text,
    Verdict,
    one_line,
    table,
)
from expost.report.sections.bounds import cell_up, up
from expost.risk.composition import CompositionComparison, CompositionRow

__all__ = ["composition_blocks", "composition_document"]

_METHODS = {
    "sequential": "sequential (sum of ε)",
    "rdp-mironov": "Rényi divergences",
    "rdp-tight": "Rényi divergences, tighter conversion",
    "pld": "privacy-loss distribution",
}


def composition_document(comparison: CompositionComparison) -> Document:
    """Return the document of the same releases composed by each method."""
    tightest = comparison.row("pld")
    return Document(
        kind="composition",
        title=f"{one_line(comparison.description)}, composed",
        audience=comparison.audience,
        verdict=Verdict(
            text=(
                f"Together the releases spend ε = {up(tightest.epsilon)} at"
                f" δ = {up(comparison.delta)}."
            ),
            more="Every method gives a valid ε; the smallest is the tightest bound.",
        ),
        sections=(
            Section(
                id="composition",
                title="Composition",
                nav="Guarantee",
                brief=True,
                blocks=tuple(composition_blocks(comparison)),
            ),
        ),
        facts={"epsilon": tightest.epsilon, "delta": comparison.delta},
    )


def composition_blocks(comparison: CompositionComparison) -> Iterator[Block]:
    """Yield a table with a line for each method, and how each works."""
    passed = ""
    if comparison.delta > 0:
        passed = f" The posterior is exceeded with probability at most {up(comparison.delta)}."
    prior = comparison.prior
    # Upwards, except at ½, where the log odds are exactly 0.
    before = 0.0 if prior == 0.5 else math.nextafter(math.log(prior / (1 - prior)), math.inf)
    yield table(
        comparison.rows,
        ("composed by", _method, str),
        (f"ε at δ = {up(comparison.delta)}", lambda row: row.epsilon, cell_up),
        ("times the smallest", _times, figure),
        ("posterior at most", lambda row: before + row.loss, certainty)
        if before
        else ("attacker's certainty at most", lambda row: row.loss, certainty),
        (
            "membership advantage at most",
            lambda row: _short_of_one(row.advantage, row.epsilon),
            _share,
        ),
        caption=symbols(one_line(comparison.description)),
    )
    yield Text(text=f"The attacker starts from {share(prior)}.{passed}", small=True)
    notes = (f"{_method(row)}: {symbols(one_line(row.note))}" for row in comparison.rows)
    yield Bullets(items=tuple(notes))


def _method(row: CompositionRow) -> str:
    return _METHODS.get(row.name, one_line(row.name))


def _times(row: CompositionRow) -> float | None:
    return row.times if math.isfinite(row.times) else None


def _short_of_one(probability: float, bound: float) -> float:
    """Return the probability, below 1 where the bound that it follows from is finite."""
    return probability if bound == math.inf else min(probability, math.nextafter(1.0, 0.0))


def _share(probability: float) -> str:
    return percent(probability, "up")
