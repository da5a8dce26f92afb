"""Cases of one target in a process of its own: a crash of it, or a hang, is a finding too."""

import faulthandler
import resource
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from expost.data import open_table

from .commands import COMMANDS
from .harness import LIMIT, Tally, run
from .parsers import PARSERS
from .readers import READERS

TARGETS = PARSERS | READERS | COMMANDS
# A file that claims to be huge must not take the machine with it.
_MEMORY = 8 * 2**30
# Cases a process: what a library leaks over thousands of broken files stays small.
CHUNK = 2_000


def run_apart(name: str, count: int, chunk: int = CHUNK) -> Tally:
    """Judge cases 0 to ``count`` of a target; a process that dies is a fault, the next continues."""
    tally = Tally()
    for first in range(0, count, chunk):
        numbers = range(first, min(first + chunk, count))
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            try:
                tally.merge(pool.submit(_judged, name, numbers).result())
            except BrokenProcessPool:
                tally.faults.append(f"{name}: the process died in one of the cases {numbers}")
    return tally


def _judged(name: str, numbers: range) -> Tally:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    tally = Tally()
    for number in numbers:
        faulthandler.dump_traceback_later(10 * LIMIT, exit=True)
        run(TARGETS[name], [number], tally)
    faulthandler.cancel_dump_traceback_later()
    # No broken file has spoilt the one connection that all readers share.
    if open_table({"x": [1.0, 2.0]}).column("x").to_pylist() != [1.0, 2.0]:
        tally.faults.append(f"{name}: a whole table is misread after the cases {numbers}")
    return tally
