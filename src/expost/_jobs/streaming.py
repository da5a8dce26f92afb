"""Jobs in blocks of rows: when one is, how it is begun, gone on with after a crash, and ended.

A run keeps what it has finished in ``DIR/.expost-run``, and removes that as its last act: where it
is, the results are not whole. What is in it belongs to one task (the options, the data, this
expost), so that nothing of another task is ever taken for its own.

    DIR/.expost-run/state.json   the task, and the date that the page will bear
    DIR/.expost-run/<name>.json  what one step has found
    DIR/.expost-run/<name>/      parts that are finished (:class:`~expost._store.PartStore`)
    DIR/.expost-run/lock         held by the process that works here
"""

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any

from expost._files import read_json, settle, write_json
from expost._jobs.folder import RUN, STATE, check_folder, holds_anything, remove_drafts
from expost._jobs.pages import made_now
from expost._store import PartStore
from expost.data import Query, Table
from expost.errors import InvalidInput
from expost.report.parts import installed
from expost.types import Audience

__all__ = [
    "AS_USUAL",
    "Run",
    "Streaming",
    "abandon",
    "available_memory",
    "begun",
    "check_place",
    "is_streamed",
    "kept_in",
    "running",
    "task_of",
]

_LOCK = "lock"
_FORMAT = "expost-run/1"
# How often a row in memory is held, about: as it was read, in the unit ball, its shift, …
_COPIES = 5
# Options that decide where and how work is done, and no byte of what comes of it.
_HOW = ("out", "force", "streaming", "ledger", "name")


@dataclass(frozen=True, kw_only=True)
class Streaming:
    """Whether and how rows are worked on in blocks.

    ``engine``  where (:func:`expost.engine.engine_of`); None: here, and only if it must be.
    ``resume``  go on with a run that was begun, if there is one.
    ``memory``  bytes that rows may take before they are no longer held; None: half of all.
    """

    engine: Any = None
    resume: bool = False
    memory: int | None = None


# In memory if that is possible.
AS_USUAL = Streaming()


def available_memory() -> int:
    """What this machine, or the group of processes that this one belongs to, may use at most."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        return min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return whole


def is_streamed(asked: Streaming, rows: int, columns: int) -> bool:
    """Whether a job of so many rows and columns is done in blocks."""
    if asked.engine is not None or asked.resume:
        return True
    memory = available_memory() // 2 if asked.memory is None else asked.memory
    return rows * (columns + 1) * 8 * _COPIES > memory


def task_of(command: str, job: Any, table: Table, more: Mapping[str, Any]) -> dict[str, Any]:
    """What the results of a job depend on, as JSON values: its options, the data, this expost.

    ``more``  what else they depend on, such as a digest of the rows of a database.
    """
    names = [field.name for field in fields(job) if field.name not in _HOW]
    options = {name: getattr(job, name) for name in names}
    source = job.source
    if isinstance(source, Query):
        # Not its address, which may hold a password.
        options["source"] = [source.label, source.statement, source.key]
    elif not isinstance(source, str | Path):
        options["source"] = table.label
    files = [
        (str(path.resolve()), size, changed) for path, size, changed in table.origin.relation.files
    ]
    value = {
        "command": command,
        "versions": installed(),
        "options": options,
        "files": files,
        "rows": table.rows,
        **more,
    }
    # As it will be read again: tuples are lists there, and paths and infinities texts.
    text = json.dumps(value, default=str, sort_keys=True)
    plain: dict[str, Any] = json.loads(text, parse_constant=str)
    return plain


def begun(out: Path) -> bool:
    """Whether a run was begun in this folder, and is not at its end."""
    return (out / RUN / STATE).exists()


def kept_in(out: Path, name: str) -> Any:
    """What a run in this folder has kept under this name, or None."""
    path = out / RUN / f"{name}.json"
    return read_json(path) if path.exists() else None


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that was begun; ``made`` is the date of its results, ``resumed`` whether it goes on."""

    out: Path
    made: str
    salt: str
    resumed: bool

    @property
    def folder(self) -> Path:
        """Where its finished parts are kept."""
        return self.out / RUN

    def store(self, name: str, audience: Audience = Audience.FAIL) -> PartStore:
        """The finished parts of one step."""
        return PartStore.at(self.folder / name, audience)

    def keep(self, name: str, value: Any) -> None:
        """Let a later process know what was found; a value of the same name is replaced."""
        write_json(self.folder / f"{name}.json", Audience.FAIL, value)
        settle(self.folder)

    def kept(self, name: str) -> Any:
        """What was kept under this name, or None."""
        return kept_in(self.out, name)

    @property
    def has_results(self) -> bool:
        """Whether anything would be lost with it: a release above all, that may be listed.

        One that lies beside this folder, and is not kept in it, is another run's.
        """
        drawn = any((self.folder / name).exists() for name in ("model.json", "report.json"))
        return drawn or any(self.folder.glob("*/part-*"))

    def finish(self) -> None:
        """The results are whole: forget how they came about."""
        (self.folder / STATE).unlink()
        # Whoever waits for the lock may have begun to work here meanwhile.
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def running(
    out: Path, task: Mapping[str, Any], asked: Streaming, *, force: bool, lost: str = ""
) -> Iterator[Run]:
    """The run of ``task`` in ``out``: a new one, or with ``asked.resume`` the one that was begun.

    What ends early is kept for ``--resume`` if there is anything to keep, and otherwise leaves no
    trace. ``lost`` says what writing over an earlier run would cost.
    """
    made = [folder for folder in (out, *out.absolute().parents) if not folder.exists()]
    check_place(out, asked, force=force, lost=lost)
    with _locked(out):
        try:
            # Once more: another process may have been quicker.
            check_place(out, asked, force=force, lost=lost)
            run = _gone_on(out, task) if asked.resume and begun(out) else _new(out, task)
            remove_drafts(out)
        except BaseException:
            if not begun(out):
                _forget(out, made)
            raise
        try:
            yield run
        except BaseException as error:
            if run.has_results:
                error.add_note("What is finished is kept: the same command with --resume goes on.")
            else:
                _forget(out, made)
            raise
        if begun(out):
            run.finish()


def check_place(out: Path, asked: Streaming, *, force: bool, lost: str = "") -> None:
    """Refuse a folder that a job must not write to, before any work.

    ``lost`` says what writing over an earlier run would cost.
    """
    if begun(out):
        if asked.resume:
            return
        if not force:
            raise InvalidInput(
                f"out={str(out)!r}: a run was begun here and is not finished; pass --resume to go"
                f" on with it, or --force to throw it away{lost}."
            )
    elif asked.resume and not force and holds_anything(out):
        raise InvalidInput(
            f"out={str(out)!r}: holds no run that was begun and not finished; leave --resume out,"
            " and name another folder."
        )
    check_folder(out, force=force, lost=lost)


def abandon(out: Path) -> None:
    """Forget a run that was begun in this folder, if there is one and nobody works on it."""
    if (out / RUN).is_dir():
        with _locked(out):
            (out / RUN / STATE).unlink(missing_ok=True)
            shutil.rmtree(out / RUN, ignore_errors=True)


def _new(out: Path, task: Mapping[str, Any]) -> Run:
    folder = out / RUN
    try:
        # Of whatever was here before: the state first, without which it is no run.
        (folder / STATE).unlink(missing_ok=True)
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != _LOCK:
                path.unlink()
        run = Run(out=out, made=made_now(), salt=secrets.token_hex(32), resumed=False)
        state = {"format": _FORMAT, "made": run.made, "salt": run.salt, "task": dict(task)}
        write_json(folder / STATE, Audience.FAIL, state)
    except OSError as error:
        raise _unwritable(out, error) from None
    return run


def _unwritable(out: Path, error: OSError) -> InvalidInput:
    return InvalidInput(
        f"out={str(out)!r}: cannot be written to ({error.strerror or error}); free some space,"
        " or name another folder."
    )


def _gone_on(out: Path, task: Mapping[str, Any]) -> Run:
    path = out / RUN / STATE
    state = read_json(path)
    whole = isinstance(state, dict) and state.get("format") == _FORMAT
    if not whole or set(state) != {"format", "made", "salt", "task"}:
        raise InvalidInput(f"{path}: is not one that this expost wrote; name another folder.")
    other = _differences(state["task"], task)
    if other:
        raise InvalidInput(
            f"out={str(out)!r}: the run that was begun here differs in {', '.join(other)}; give the"
            " same options and data, or name another folder."
        )
    return Run(out=out, made=state["made"], salt=state["salt"], resumed=True)


def _differences(before: Any, now: Mapping[str, Any]) -> Sequence[str]:
    """The names of what differs, never its values."""
    if not isinstance(before, dict):
        return ["everything"]
    names: list[str] = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            found = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
            names += ["--" + key.replace("_", "-") for key in found]
        else:
            names.append({"files": "the files (they changed)", "rows": "the rows"}.get(name, name))
    return names


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Let nobody else work here; the lock goes with the process, however it ends."""
    try:
        file = _lock_file(out / RUN)
    except OSError as error:
        raise _unwritable(out, error) from None
    with file:
        yield


def _lock_file(folder: Path) -> IO[str]:
    """The lock, held: it is that of the folder that is there now."""
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            file = (folder / _LOCK).open("a")
        except FileNotFoundError:
            # Whoever worked here has just finished.
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise InvalidInput(
                f"out={str(folder.parent)!r}: another process is at work here; wait for its end, or"
                " name another folder."
            ) from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), (folder / _LOCK).stat()):
                return file
        file.close()


def _forget(out: Path, made: Sequence[Path]) -> None:
    """Leave no trace of a run that has nothing to show."""
    shutil.rmtree(out / RUN, ignore_errors=True)
    for folder in made:
        with suppress(OSError):
            folder.rmdir()
