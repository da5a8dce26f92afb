"""What a long job tells of itself while it runs.

A job is done in phases, and a phase goes over rows in none, one or several passes. The job says so
to a :class:`Progress`, and knows nothing of terminals. Nothing that is told holds a row's values
or its id: names of phases, and counts.
"""

from typing import Protocol

__all__ = ["SILENT", "Progress"]


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


# For jobs that nobody listens to.
SILENT: Progress = _Silent()
