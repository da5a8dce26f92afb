"""Where work on blocks of rows is done: threads of this machine, or a Dask cluster.

An engine maps a task over items and gives the results in the order of the items; it knows no
mathematics, and no result depends on it: tasks run with one BLAS thread each, and results are
reduced in that order.

A long job reports to a :class:`Progress` while it runs. It is done in phases, and a phase goes over
rows in none, one or several passes. The job knows nothing of terminals. Nothing that is reported
holds a row's values or its id: names of phases, and counts.

The engines are imported when they are used: the command line needs :class:`Progress` alone, and
answers ``--help`` before NumPy is there.
"""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from expost.engine.base import Engine, LocalEngine, engine_of

__all__ = ["SILENT", "Engine", "LocalEngine", "Progress", "engine_of"]


class Progress(Protocol):
    """Listens to a job.

    Laws: a pass belongs to the phase in which it began, and ends with its last row, or when the
    next pass or the next phase begins. Two threads may call at once, and a call is cheap: one for
    each row costs next to nothing beside the row.
    """

    def phase(self, name: str) -> None:
        """A new phase begins, in words."""

    def rows(self, total: int) -> None:
        """A pass over ``total`` rows begins within the phase."""

    def advance(self, rows: int) -> None:
        """So many more rows of the pass are done."""


class _Silent:
    def phase(self, name: str) -> None:
        pass

    def rows(self, total: int) -> None:
        pass

    def advance(self, rows: int) -> None:
        pass


# For jobs without a listener.
SILENT: Progress = _Silent()


def __getattr__(name: str) -> Any:
    if name not in ("Engine", "LocalEngine", "engine_of"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from expost.engine import base

    return getattr(base, name)
