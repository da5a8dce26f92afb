"""Engines that process blocks of rows: threads of this machine, or a Dask cluster.

An engine maps a task over items and yields the results in the order of the items. No result
depends on the engine: tasks run with one BLAS thread each, and results are reduced in that order.

A long job reports to a :class:`Progress` while it runs. It has phases, and a phase has any number
of passes over the rows. Only names of phases and counts are reported, never the values or the id
of a row.

The engines are imported when they are used: the command line needs only :class:`Progress`, and
prints ``--help`` without NumPy.
"""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from expost.engine.base import Engine, LocalEngine, engine_of

__all__ = ["SILENT", "Engine", "LocalEngine", "Progress", "engine_of"]


class Progress(Protocol):
    """A receiver of the progress of a job.

    A pass belongs to the phase in which it started. It ends with its last row, or when the next
    pass or phase starts. Calls are thread-safe, and cheap enough for one call per row.
    """

    def phase(self, name: str) -> None:
        """Start the phase ``name``.

        Parameters
        ----------
        name : str
            The name of the phase, as displayed.
        """

    def rows(self, total: int) -> None:
        """Start a pass over ``total`` rows within the phase.

        Parameters
        ----------
        total : int
            The number of rows of the pass.
        """

    def advance(self, rows: int) -> None:
        """Count ``rows`` more rows of the pass as done.

        Parameters
        ----------
        rows : int
            The number of rows done since the last call.
        """


class _Silent:
    def phase(self, name: str) -> None:
        pass

    def rows(self, total: int) -> None:
        pass

    def advance(self, rows: int) -> None:
        pass


# For jobs whose progress is not displayed.
SILENT: Progress = _Silent()


def __getattr__(name: str) -> Any:
    if name not in ("Engine", "LocalEngine", "engine_of"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from expost.engine import base

    return getattr(base, name)
