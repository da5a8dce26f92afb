"""What a run in blocks knows of its rows: found once, and told to whoever goes on with it."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from expost._jobs.streaming import Run
from expost._ledger import Ledger
from expost._progress import Progress
from expost._streamed import Look
from expost._streamed_release import Facts, facts_of
from expost.data import Table
from expost.data.stream import RowStream
from expost.engine import Engine
from expost.errors import InvalidInput

__all__ = ["known_facts", "salted"]


def known_facts(
    run: Run, table: Table, stream: RowStream, engine: Engine, progress: Progress
) -> Facts:
    """What is known of the rows; files cannot have changed unnoticed, other rows can."""
    kept = run.kept("facts")
    if kept is not None and table.origin.relation.files:
        return _facts_from(kept)
    facts = facts_of(stream, engine, progress)
    if kept is None:
        run.keep("facts", _facts_to(facts))
    elif _facts_from(kept) != facts:
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
    content, look = bytes.fromhex(kept["content"]), Look(**kept["look"])
    return Facts(**{**kept, "content": content, "look": look})
