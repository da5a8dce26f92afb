"""How far a job is: its phase, its pass over the rows, how fast that goes and what is left of it.

Conventions: times are seconds of one clock that never goes back, speeds rows a second.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Moment", "Pass", "Tracker"]

# Speeds are averages over about so many seconds: a slower disk shows, a single block does not.
SMOOTHING = 10.0
# A speed is taken at most so often: threads finish blocks in bursts.
_SAMPLED = 0.25
# A listener hears of the rows at most so often, beside the end of each pass.
_TOLD = 1.0


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Where a job is.

    ``number``, ``of``    the phase, counted from 1, and how many there are.
    ``lap``               the pass within the phase, counted from 1; 0 where none is under way.
    ``done``, ``total``   rows of the pass.
    ``seconds``           how long the pass has taken so far.
    ``speed``             its smoothed rows a second; None while nobody can tell.
    ``left``              seconds to its end; None while nobody can tell.
    """

    phase: str
    number: int
    of: int
    lap: int = 0
    done: int = 0
    total: int = 0
    seconds: float = 0.0
    speed: float | None = None
    left: float | None = None


class Pass:
    """One pass over ``total`` rows that began at ``now``.

    The speed at time t is the mean of the speeds s(u) so far, each weighted by exp(−(t − u)/τ),
    τ = SMOOTHING: v(t) = ∫ s(u) exp(−(t − u)/τ) du / ∫ exp(−(t − u)/τ) du from the beginning of the
    pass. Rows that are reported together are taken as done evenly since the report before, so that
    large blocks at a steady speed give that speed.
    """

    def __init__(self, total: int, now: float) -> None:
        self.total, self.done = total, 0
        self._began = self._sampled = now
        self._fresh = 0
        self._spacing = 0.0
        # The two integrals, over τ.
        self._rows = self._weight = 0.0

    @property
    def finished(self) -> bool:
        """Whether all rows of the pass are done."""
        return self.done >= self.total

    def add(self, rows: int, now: float) -> None:
        """So many more rows are done."""
        self.done += rows
        self._fresh += rows
        elapsed = now - self._sampled
        if elapsed >= _SAMPLED or (self.finished and elapsed > 0):
            kept = math.exp(-elapsed / SMOOTHING)
            self._rows = kept * self._rows + (1 - kept) * self._fresh / elapsed
            self._weight = kept * self._weight + (1 - kept)
            self._sampled, self._fresh, self._spacing = now, 0, elapsed

    def speed(self, now: float) -> float | None:
        """Rows a second, smoothed."""
        if not self._weight > 0:
            return None
        # A silence that is longer than the last one counts as rows that were not done: a pass that
        # hangs becomes slower, and one of large blocks does not flicker.
        kept = math.exp(-max(0.0, now - self._sampled - self._spacing) / SMOOTHING)
        return kept * self._rows / (kept * self._weight + (1 - kept))

    def seconds(self, now: float) -> float:
        """Return the seconds since the pass began."""
        return now - self._began

    def left(self, now: float) -> float | None:
        """Seconds to the end at this speed."""
        if self.finished:
            return 0.0
        speed = self.speed(now)
        return (self.total - self.done) / speed if speed else None


def _unheard(moment: Moment) -> None:
    pass


class Tracker:
    """A :class:`~expost.engine.Progress` that knows where the job is.

    ``phases``    how many are expected; should there be more, the count follows them.
    ``on_phase``  is told when one begins.
    ``on_rows``   is told of a pass, at most once a second and at its end.
    """

    def __init__(
        self,
        phases: int,
        *,
        on_phase: Callable[[Moment], None] = _unheard,
        on_rows: Callable[[Moment], None] = _unheard,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._of, self._clock = phases, clock
        self._on_phase, self._on_rows = on_phase, on_rows
        self._lock = threading.Lock()
        self._name, self._number, self._lap = "starting", 0, 0
        self._pass: Pass | None = None
        # When rows were last told of, and how many were done by then.
        self._told, self._heard = 0.0, -1

    def phase(self, name: str) -> None:
        """Begin the phase ``name``."""
        with self._lock:
            self._leave()
            self._name, self._lap = name, 0
            self._number += 1
            self._of = max(self._of, self._number)
            self._on_phase(self._moment())

    def rows(self, total: int) -> None:
        """Begin a pass over ``total`` rows."""
        with self._lock:
            self._leave()
            self._told, self._heard = self._clock(), -1
            self._pass = Pass(total, self._told)
            self._lap += 1

    def advance(self, rows: int) -> None:
        """Count ``rows`` more rows of the pass."""
        with self._lock:
            current = self._pass
            if current is None:
                return
            now = self._clock()
            before = current.finished
            current.add(rows, now)
            if now - self._told >= _TOLD or (current.finished and not before):
                self._tell(now)

    def moment(self) -> Moment:
        """Where the job is now."""
        with self._lock:
            return self._moment()

    def close(self) -> None:
        """Nothing more is coming."""
        with self._lock:
            self._leave()

    def _leave(self) -> None:
        """End the pass that is under way, if there is one."""
        if self._pass is not None and self._pass.done != self._heard:
            self._tell(self._clock())
        self._pass = None

    def _tell(self, now: float) -> None:
        assert self._pass is not None
        self._told, self._heard = now, self._pass.done
        self._on_rows(self._moment())

    def _moment(self) -> Moment:
        current, now = self._pass, self._clock()
        if current is None:
            return Moment(phase=self._name, number=self._number, of=self._of)
        return Moment(
            phase=self._name,
            number=self._number,
            of=self._of,
            lap=self._lap,
            done=current.done,
            total=current.total,
            seconds=current.seconds(now),
            speed=current.speed(now),
            left=current.left(now),
        )
