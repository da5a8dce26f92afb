"""Cases of one target in a process of its own: a crash of it, or a hang, is a finding too.

    python -m fuzz.worker TARGET FIRST COUNT PROGRESS

writes a JSON line after each case to the file PROGRESS: the number, and what became of it.
"""

import faulthandler
import json
import resource
import sys
from pathlib import Path

from expost.data import open_table

from .commands import COMMANDS
from .harness import LIMIT, Fault, choices, fresh_folder, judge
from .parsers import PARSERS
from .readers import READERS

TARGETS = PARSERS | READERS | COMMANDS
# A file that claims to be huge must not take the machine with it.
_MEMORY = 8 * 2**30


def main(name: str, first: int, count: int, progress: Path) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    target = TARGETS[name]
    with progress.open("a", encoding="utf-8") as file:
        for number in range(first, first + count):
            faulthandler.dump_traceback_later(10 * LIMIT, exit=True)
            said: dict[str, object] = {"number": number}
            with fresh_folder() as folder:
                try:
                    accepted, took = judge(target, choices(name, number), folder)
                    if number % 50 == 49:
                        _check_alive()
                    said |= {"accepted": accepted, "seconds": round(took, 3)}
                except Fault as fault:
                    said["fault"] = str(fault)
            file.write(json.dumps(said) + "\n")
            file.flush()
    faulthandler.cancel_dump_traceback_later()


def _check_alive() -> None:
    """No broken file has spoilt the one connection that all readers share."""
    try:
        assert open_table({"x": [1.0, 2.0]}).column("x").to_pylist() == [1.0, 2.0]
    except Exception as error:
        raise Fault(f"a whole table is refused after broken ones: {error}") from error


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
