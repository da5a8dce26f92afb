"""The progress of a job: its phase, its pass over the rows, its speed and the remaining time.

Conventions: times are seconds of one monotonic clock, speeds are rows per second.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["JobStatus", "Pass", "Tracker"]

# Seconds over which speeds are averaged: a slower disk has an effect, a single block has not.
SMOOTHING = 10.0
# Seconds between two samples of the speed, at least: threads finish blocks in bursts.
_SAMPLING = 0.25
# Seconds between two reports of rows, at least; the end of each pass is always reported.
_REPORTING = 1.0


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """The status of a job.

    Parameters
    ----------
    number, phases : int
        The number of the phase, counted from 1, and of all phases.
    pass_number : int, default=0
        The pass within the phase, counted from 1; 0 between passes.
    done, total : int, default=0
        Rows of the pass.
    seconds : float, default=0.0
        Seconds since the start of the pass.
    speed : float, optional
        Smoothed rows per second of the pass; None while unknown.
    left : float, optional
        Seconds to the end of the pass; None while unknown.
    """

    phase: str
    number: int
    phases: int
    pass_number: int = 0
    done: int = 0
    total: int = 0
    seconds: float = 0.0
    speed: float | None = None
    left: float | None = None


class Pass:
    """One pass over ``total`` rows that started at ``now``.

    The speed at time t is the mean of the speeds s(u) so far, each weighted by exp(−(t − u)/τ),
    τ = SMOOTHING: v(t) = ∫ s(u) exp(−(t − u)/τ) du / ∫ exp(−(t − u)/τ) du from the start of the
    pass. Rows that are reported together count as done evenly since the last report, so that large
    blocks at a steady speed have that speed.
    """

    def __init__(self, total: int, now: float) -> None:
        self.total, self.done = total, 0
        self._started = self._sampled = now
        self._unsampled = 0
        self._spacing = 0.0
        # The two integrals, over τ.
        self._rows = self._weight = 0.0

    @property
    def finished(self) -> bool:
        """Whether all rows of the pass are done."""
        return self.done >= self.total

    def add(self, rows: int, now: float) -> None:
        """Count ``rows`` more rows as done."""
        self.done += rows
        self._unsampled += rows
        elapsed = now - self._sampled
        if elapsed >= _SAMPLING or (self.finished and elapsed > 0):
            kept = math.exp(-elapsed / SMOOTHING)
            self._rows = kept * self._rows + (1 - kept) * self._unsampled / elapsed
            self._weight = kept * self._weight + (1 - kept)
            self._sampled, self._unsampled, self._spacing = now, 0, elapsed

    def speed(self, now: float) -> float | None:
        """Return the smoothed rows per second; None while unknown."""
        if not self._weight > 0:
            return None
        # Time without rows beyond the last interval counts with speed 0: a pass that hangs becomes
        # slower, and the speed of a pass of large blocks does not flicker.
        kept = math.exp(-max(0.0, now - self._sampled - self._spacing) / SMOOTHING)
        return kept * self._rows / (kept * self._weight + (1 - kept))

    def seconds(self, now: float) -> float:
        """Return the seconds since the pass started."""
        return now - self._started

    def left(self, now: float) -> float | None:
        """Return the seconds to the end at this speed; None while unknown."""
        if self.finished:
            return 0.0
        speed = self.speed(now)
        return (self.total - self.done) / speed if speed else None


def _ignore(status: JobStatus) -> None:
    pass


class Tracker:
    """A :class:`~expost.engine.Progress` that keeps the status of the job.

    Parameters
    ----------
    phases : int
        The expected number of phases; it is raised if there are more.
    on_phase : callable, optional
        Called when a phase starts.
    on_rows : callable, optional
        Called during a pass, at most once per second, and at its end.
    """

    def __init__(
        self,
        phases: int,
        *,
        on_phase: Callable[[JobStatus], None] = _ignore,
        on_rows: Callable[[JobStatus], None] = _ignore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._phases, self._clock = phases, clock
        self._on_phase, self._on_rows = on_phase, on_rows
        self._lock = threading.Lock()
        self._name, self._number, self._pass_number = "starting", 0, 0
        self._pass: Pass | None = None
        # The time of the last report of rows, and the rows that it reported.
        self._reported_at, self._reported_rows = 0.0, -1

    def phase(self, name: str) -> None:
        """Start the phase ``name``."""
        with self._lock:
            self._end_pass()
            self._name, self._pass_number = name, 0
            self._number += 1
            self._phases = max(self._phases, self._number)
            self._on_phase(self._status())

    def rows(self, total: int) -> None:
        """Start a pass over ``total`` rows."""
        with self._lock:
            self._end_pass()
            self._reported_at, self._reported_rows = self._clock(), -1
            self._pass = Pass(total, self._reported_at)
            self._pass_number += 1

    def advance(self, rows: int) -> None:
        """Count ``rows`` more rows of the pass."""
        with self._lock:
            current = self._pass
            if current is None:
                return
            now = self._clock()
            before = current.finished
            current.add(rows, now)
            if now - self._reported_at >= _REPORTING or (current.finished and not before):
                self._report(now)

    def status(self) -> JobStatus:
        """Return the status of the job now."""
        with self._lock:
            return self._status()

    def close(self) -> None:
        """End the job."""
        with self._lock:
            self._end_pass()

    def _end_pass(self) -> None:
        """End the current pass, if there is one."""
        if self._pass is not None and self._pass.done != self._reported_rows:
            self._report(self._clock())
        self._pass = None

    def _report(self, now: float) -> None:
        assert self._pass is not None
        self._reported_at, self._reported_rows = now, self._pass.done
        self._on_rows(self._status())

    def _status(self) -> JobStatus:
        current, now = self._pass, self._clock()
        if current is None:
            return JobStatus(phase=self._name, number=self._number, phases=self._phases)
        return JobStatus(
            phase=self._name,
            number=self._number,
            phases=self._phases,
            pass_number=self._pass_number,
            done=current.done,
            total=current.total,
            seconds=current.seconds(now),
            speed=current.speed(now),
            left=current.left(now),
        )
