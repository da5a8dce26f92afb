"""Processes of the program that tests kill: real ones, each a fork of one that has imported it.

Run as a script this is the parent: it reads what to run as JSON lines, forks, says the pid, waits,
and says how it ended. The rows come in small blocks there, so that a short run has many steps, and
the clock of the pages stands still, so that two runs can be compared byte for byte.
"""

import json
import os
import resource
import signal
import sys
from typing import Any

# Rows of a block, and blocks of a part.
BLOCK, BLOCKS = 256, 1
MADE = "2026-11-16 12:00 UTC"


def serve() -> None:
    """Run what is asked for, one after the other."""
    _import_everything()
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(request)
        print(pid, flush=True)
        _, status, used = os.wait4(pid, 0)
        print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, flush=True)


def _import_everything() -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot

    from expost import rows
    from expost.cli import app  # noqa: F401 (what a process would begin with)
    from expost.data import _feeds
    from expost.jobs import audit, epsilon, forget, profile, publish, runs  # noqa: F401 (as above)
    from expost.report.html import script, style_sheet

    script(), style_sheet()
    rows._BLOCK_ROWS, _feeds._BLOCKS_AN_ITEM = BLOCK, BLOCKS
    runs.made_now = lambda: MADE


def _kill_at_sync(number: int) -> None:
    """Kill this process when it has flushed a file or a folder to the disk for the n-th time."""
    fsync, calls = os.fsync, [0]

    def killed(handle: int) -> None:
        fsync(handle)
        calls[0] += 1
        if calls[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = killed


def _become(request: dict[str, Any]) -> None:
    """Be the program, and never come back."""
    code = 70
    try:
        # Until the program begins a signal ends the process, as it does while Python starts.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # A group of its own, to be killed as a whole.
        os.setsid()
        for number, name in ((1, request["out"]), (2, request["err"])):
            handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if request["limit"] is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (request["limit"], request["limit"]))
        if request["killed_at_sync"] is not None:
            _kill_at_sync(request["killed_at_sync"])
        os.chdir(request["cwd"])
        sys.argv = ["expost", *request["argv"]]
        from expost.cli.main import main

        try:
            # A shell lets what it runs in the background not hear of Ctrl-C.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            main()
            code = 0
        except SystemExit as end:
            code = 0 if end.code is None else int(end.code)
        except BaseException:  # noqa: BLE001 (as the interpreter would end)
            import traceback

            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()
