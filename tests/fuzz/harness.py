"""The law that everything which is read must keep, whatever its bytes are.

A *target* makes a case out of random choices and reads it. The case is kept to the law where it is

accepted  and what was read means something: the target itself checks what, with ``assert``;
refused   by an :class:`~expost.errors.ExpostError`, whose message is one sentence;

in less than ``LIMIT`` seconds of computing, and the folder holds the same files as before. Anything else that
happens is a :class:`Fault`. A case is known by its target, seed and number alone.
"""

import random
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from expost import errors
from expost.errors import ExpostError

SEED = 9
LIMIT = 20.0
_WARNINGS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Warning)
]


class Fault(Exception):
    """The law is broken."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Something that is read.

    ``make(rng, folder)``  a case: what ``read`` is given. It writes its files into the folder.
    ``read(case)``         reads it, and checks what was read.
    ``writes``             it checks the files that it leaves itself.
    ``context``            a refusal may tell what it was refused for.
    """

    name: str
    make: Callable[[random.Random, Path], Any]
    read: Callable[[Any], object]
    writes: bool = False
    context: bool = False


@dataclass(kw_only=True)
class Tally:
    """What became of cases."""

    accepted: int = 0
    refused: int = 0
    slowest: float = 0.0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def add(self, accepted: bool, seconds: float) -> None:
        self.accepted += accepted
        self.refused += not accepted
        self.slowest = max(self.slowest, seconds)
        self.seconds += seconds

    def merge(self, other: "Tally") -> None:
        self.accepted += other.accepted
        self.refused += other.refused
        self.slowest = max(self.slowest, other.slowest)
        self.seconds += other.seconds
        self.faults += other.faults

    @property
    def cases(self) -> int:
        return self.accepted + self.refused + len(self.faults)


def choices(target: str, number: int, seed: int = SEED) -> random.Random:
    """The random choices of a case."""
    return random.Random(f"{seed}/{target}/{number}")


def judge(target: Target, rng: random.Random, folder: Path) -> tuple[bool, float]:
    """Whether the case is accepted, and the seconds that took; :class:`Fault` if it breaks the law."""
    case = target.make(rng, folder)
    before = _files(folder)
    # Of a busy machine's clock a case would be judged by who else is computing.
    start = time.process_time()
    try:
        with _quiet():
            target.read(case)
        accepted = True
    except ExpostError as error:
        _check_refusal(error, target.context)
        accepted = False
    # The law is about every kind of failure, MemoryError and RecursionError too.
    except Exception as error:
        raise Fault(f"{type(error).__name__}: {error}"[:500]) from error
    took = time.process_time() - start
    if not took < LIMIT:
        raise Fault(f"took {took:.0f} s")
    if not target.writes and _files(folder) != before:
        raise Fault(f"left files behind: {sorted(_files(folder) ^ before)}")
    return accepted, took


def run(target: Target, numbers: Iterable[int], tally: Tally, seed: int = SEED) -> Tally:
    """Judge the cases of these numbers; faults are noted with their numbers."""
    for number in numbers:
        with fresh_folder() as folder:
            try:
                accepted, took = judge(target, choices(target.name, number, seed), folder)
            except Fault as fault:
                tally.faults.append(f"{target.name} {number}: {fault}")
                continue
        tally.add(accepted, took)
    return tally


@contextmanager
def fresh_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_refusal(error: ExpostError, context: bool) -> None:
    message = str(error)
    if not message.strip():
        raise Fault(f"{type(error).__name__} without a word") from error
    is_plain = error.__cause__ is None and (error.__suppress_context__ or error.__context__ is None)
    if not is_plain and not context:
        # A traceback would show the message of a library, which quotes cells.
        raise Fault(f"a refusal shows what it was made from: {message}"[:500]) from error


def _files(folder: Path) -> set[str]:
    """The files there, but for SQLite's own beside a database that says it is written ahead."""
    files = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    return {name for name in files if not name.endswith(("-shm", "-wal"))}


@contextmanager
def _quiet() -> Iterator[None]:
    """Warnings of ours are no matter here; any other is a failure, as in the suite."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in _WARNINGS:
            warnings.simplefilter("ignore", kind)
        yield
