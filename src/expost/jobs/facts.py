"""The rows of a run, and what one pass found out about them; a resumed run must see the same."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from expost.data import Encoding, Table, UnitBall
from expost.engine import SILENT, Engine, Progress
from expost.errors import InvalidInput
from expost.jobs.runs import Run
from expost.ledger import Ledger
from expost.preparing import Facts, read_rows
from expost.rows import Rows, RowStream, RowSummary, TableRows

__all__ = ["known_rows", "salted", "table_rows"]


def table_rows(
    opened: tuple[Table, Encoding],
    ball: UnitBall,
    label_bound: float | None,
    engine: Engine,
    progress: Progress = SILENT,
) -> TableRows:
    """Return the rows of an open table as a model sees them."""
    table, encoding = opened
    stream = RowStream.of(table, encoding, ball, label_bound=label_bound)
    return TableRows(stream=stream, engine=engine, progress=progress)


def known_rows(run: Run, table: Table, rows: TableRows, *, hold: bool) -> tuple[Rows, Facts]:
    """Return the rows, in memory if ``hold``, and their facts.

    Files cannot have changed unnoticed; the rows of other sources are compared with those that the
    run began with.
    """
    kept = run.kept("facts", _facts_from)
    if kept is not None and not hold and table.origin.relation.files:
        return replace(rows, summary=kept.summary), kept
    found, facts = read_rows(rows, hold=hold)
    if kept is None:
        run.keep("facts", _facts_to(facts))
    elif kept != facts:
        raise InvalidInput(
            f"{table.label}: its rows are not those that the run was begun with; name another"
            " folder."
        )
    return found, facts


def salted(facts: Facts) -> Callable[[Ledger], str]:
    """Return how a ledger identifies the rows."""
    return lambda ledger: ledger.salted(facts.content)


def _facts_to(facts: Facts) -> dict[str, Any]:
    return {**asdict(facts), "unknown": dict(facts.unknown), "content": facts.content.hex()}


def _facts_from(kept: Any) -> Facts:
    content, summary = bytes.fromhex(kept["content"]), RowSummary(**kept["summary"])
    classes = tuple(kept["classes"])
    facts = Facts(**{**kept, "classes": classes, "content": content, "summary": summary})
    counts = (facts.rows, *classes, facts.past, facts.clipped, *facts.unknown.values())
    sizes = (facts.largest_label, summary.longest, summary.label_size, summary.common_norm)
    if not (
        all(isinstance(count, int) and count >= 0 for count in counts)
        and all(isinstance(size, float | int) and size >= 0 for size in sizes)
        and len(content) == len(_facts_to(facts)["content"]) // 2 > 0
    ):
        raise ValueError
    return facts
