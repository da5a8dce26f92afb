"""Whether a job works on its rows in blocks, and what its results depend on."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from expost.data import Query, files_of
from expost.jobs.output import begun
from expost.jobs.runs import read_state
from expost.report.parts import installed

__all__ = ["AS_USUAL", "Streaming", "available_memory", "inputs_of", "is_streamed", "task_of"]

# How often a row in memory is held, about: as it was read, in the unit ball, its shift, …
_COPIES = 5
# Options that decide where and how work is done, and no byte of its results.
_HOW = ("out", "force", "streaming", "ledger", "name", "resume", "workers")
# The options that name tables, and those that name other files.
_TABLES = ("source", "holdout", "population", "arrays")
_FILES = ("encoding", "model", "ledger")


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


def is_streamed(asked: Streaming, out: Path, rows: int, columns: int) -> bool:
    """Whether a job of so many rows and columns works in blocks; one that is resumed as before."""
    if asked.engine is not None:
        return True
    if asked.resume and begun(out):
        blocks: bool = read_state(out)["blocks"]
        return blocks
    memory = available_memory() // 2 if asked.memory is None else asked.memory
    return rows * (columns + 1) * 8 * _COPIES > memory


def inputs_of(job: Any) -> Iterator[Path]:
    """Return the files and folders that a job reads, and its ledger."""
    for name in (*_TABLES, *_FILES):
        value = getattr(job, name, None)
        if isinstance(value, str | Path):
            yield Path(value)
        yield from files_of(value)


def task_of(command: str, job: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the results of a job depend on, as JSON values: options, data, this expost.

    ``more``  what else they depend on, such as the number of rows, and checksums of other files.
    """
    names = [field.name for field in fields(job) if field.name not in _HOW]
    options = {name: _plain(getattr(job, name)) for name in names}
    # Of a database the rows are compared: its file changes when it is read.
    tables = [getattr(job, name) for name in _TABLES if name in names]
    paths = [path for table in tables if not isinstance(table, Query) for path in files_of(table)]
    files = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    value = {
        "command": command,
        "versions": installed(),
        "options": options,
        "files": files,
        **more,
    }
    # As it will be read again: tuples are lists there, and paths and infinities strings.
    text = json.dumps(value, default=str, sort_keys=True)
    plain: dict[str, Any] = json.loads(text, parse_constant=str)
    return plain


def _plain(value: Any) -> Any:
    """Return an option as it may be kept: of a query neither its address nor its text."""
    if isinstance(value, Query):
        digest = hashlib.sha256(value.statement.encode("utf-8", "surrogatepass")).hexdigest()
        return [value.name, digest, value.key]
    plain = value is None or isinstance(value, bool | int | float | str | Path | tuple)
    return value if plain else type(value).__name__
