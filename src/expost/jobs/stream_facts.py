"""What a run in blocks knows of its rows: found once, and told to whoever goes on with it."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from expost.data import Table
from expost.errors import InvalidInput
from expost.jobs.runs import Run
from expost.ledger import Ledger
from expost.preparing import Facts, facts_of
from expost.rows import RowSummary, TableRows

__all__ = ["known_facts", "salted"]


def known_facts(run: Run, table: Table, rows: TableRows) -> Facts:
    """What is known of the rows; files cannot have changed unnoticed, other rows can."""
    kept = run.kept("facts", _facts_from)
    if kept is not None and table.origin.relation.files:
        return kept
    facts = facts_of(rows)
    if kept is None:
        run.keep("facts", _facts_to(facts))
    elif kept != facts:
        raise InvalidInput(
            f"{table.label}: its rows are not those that the run was begun with; name another"
            " folder."
        )
    return facts


def salted(facts: Facts) -> Callable[[Ledger], str]:
    """What a ledger knows the rows by."""
    return lambda ledger: ledger.salted(facts.content)


def _facts_to(facts: Facts) -> dict[str, Any]:
    return {**asdict(facts), "unknown": dict(facts.unknown), "content": facts.content.hex()}


def _facts_from(kept: Any) -> Facts:
    content, look = bytes.fromhex(kept["content"]), RowSummary(**kept["look"])
    facts = Facts(**{**kept, "content": content, "look": look})
    counts = (facts.rows, facts.positive, facts.past, facts.clipped, *facts.unknown.values())
    sizes = (facts.largest_label, look.longest, look.label_size, look.common_norm)
    if not (
        all(isinstance(count, int) and count >= 0 for count in counts)
        and all(isinstance(size, float | int) and size >= 0 for size in sizes)
        and len(content) == len(_facts_to(facts)["content"]) // 2 > 0
    ):
        raise ValueError
    return facts
