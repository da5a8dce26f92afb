"""The rows of a job, in memory or in blocks, and the task that its results depend on.

One pass collects the facts about the rows; a resumed run must have the same facts.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from expost.data import Encoding, Query, Table, UnitBall, files_of
from expost.engine import SILENT, Engine, Progress, engine_of
from expost.engine.threads import available_cores
from expost.errors import InvalidInput
from expost.jobs.output import is_unfinished
from expost.jobs.runs import Run, read_state, running
from expost.labels import LabelScale
from expost.ledger import Ledger
from expost.preparing import Facts, read_rows
from expost.report.registry import installed
from expost.rows import Rows, RowStream, RowSummary, TableRows

__all__ = ["Streaming", "TableWork", "available_memory", "inputs_of", "is_streamed"]
__all__ += ["running_job", "salted", "table_rows", "task_of"]

_MIB = 2**20
# What libraries add that are imported later, and what a process holds where it cannot be read.
_LATER_IMPORTS, _TYPICAL = 36 * _MIB, 160 * _MIB
# Bytes of a cell of the rows that are explored, and of anything that is always there.
_EXPLORED_CELL, _EXPLORED_ROWS, _ALWAYS = 47, 100_000, 20 * _MIB
# Rows in memory: bytes of a cell and of a row.
_HELD_CELL, _HELD_ROW = 36, 300
# Rows in blocks: the rows that a thread reads at once, and bytes of a cell and of a row of these.
_READ_ROWS, _READ_CELL, _READ_ROW = 2**17, 4, 1_100
# A given memory has one more thread for each of these.
_PER_THREAD = 2**30
# Options on which no byte of the results depends.
_WITHOUT_EFFECT = (
    *("out", "force", "ledger", "name", "resume", "workers", "engine", "memory"),
    *("stated", "as_json", "curator_json", "open_page", "log_json"),
    # The keys of persons: a run compares their digest.
    *("remove", "insert"),
)
# The options that name tables, and those that name other files.
_TABLES = ("source", "holdout", "population", "arrays")
_FILES = ("encoding", "model", "ledger")


@dataclass(frozen=True, kw_only=True)
class Streaming:
    """Whether and where rows are processed in blocks.

    Parameters
    ----------
    engine : Any, optional
        An :func:`expost.engine.engine_of`; None: in memory, or local if that is too small.
    resume : bool, default=False
        Continue the unfinished run, if there is one.
    memory : int, optional
        The most bytes that this process may hold; a run that needs more is refused. None: rows that
        need more than half of the available memory are processed in blocks.
    """

    engine: Any = None
    resume: bool = False
    memory: int | None = None

    def workers(self) -> AbstractContextManager[Engine]:
        """Return the engine of all passes, which open the table too."""
        name = "local" if self.engine is None else self.engine
        if self.memory is not None and name == "local":
            # No result depends on their number, and each holds a block.
            name = f"local:{max(1, min(available_cores(), self.memory // _PER_THREAD))}"
        return engine_of(name)


def available_memory() -> int:
    """Return the bytes of memory of this machine, or of the control group of this process."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        return min(physical, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return physical


def is_streamed(streaming: Streaming, out: Path, rows: int, columns: int) -> bool:
    """Return whether a job of this size works in blocks; a resumed run works as before."""
    if streaming.engine is not None:
        return True
    if streaming.resume and is_unfinished(out):
        blocks: bool = read_state(out)["blocks"]
        return blocks
    memory = available_memory() // 2 if streaming.memory is None else streaming.memory
    return needed_memory(rows, columns) > memory


def needed_memory(rows: int, columns: int, *, workers: int | None = None) -> int:
    """Return a bound of the bytes that a job holds at its peak, with what this process holds now.

    The constants are measured (bench/memory.py), with a margin: the peak of a run is
    compared with them by a test.

    Parameters
    ----------
    rows, columns : int
        The size of the encoded table.
    workers : int, optional
        The threads that process blocks; None: all rows are held.
    """
    explored = _EXPLORED_CELL * min(rows, _EXPLORED_ROWS) * columns
    start = _resident() + _LATER_IMPORTS + _ALWAYS + explored
    if workers is None:
        return start + rows * (_HELD_CELL * (columns + 1) + _HELD_ROW)
    return start + workers * min(rows, _READ_ROWS) * (_READ_CELL * columns + _READ_ROW)


def check_memory(streaming: Streaming, rows: int, columns: int, *, blocks: bool) -> None:
    """Refuse a job that would hold more than the given memory; name the least that is possible.

    Workers of a cluster have limits of their own: the limit is that of this process.
    """
    if streaming.memory is None:
        return
    threads = str(streaming.engine or "local")
    kind, _, count = threads.partition(":")
    local = kind == "local"
    workers = int(count) if local and count.isdigit() else 1
    if blocks and workers == 1 and local and not count:
        workers = max(1, min(available_cores(), streaming.memory // _PER_THREAD))
    needed = needed_memory(rows, columns, workers=workers if blocks else None)
    if needed <= streaming.memory:
        return
    least = needed_memory(rows, columns, workers=1)
    if not blocks:
        least = min(needed, least)
    limit = f"{streaming.memory // _MIB}MiB" if streaming.memory >= _MIB else str(streaming.memory)
    # What a process holds when it has opened a table differs a little from run to run.
    remedy = f"--memory {-(-least // _MIB) + 48}MiB"
    if workers > 1:
        remedy += " with --engine local:1"
    raise InvalidInput(
        f"--memory {limit}: is not enough for {rows:,} rows of"
        f" {columns} encoded columns; the least that is possible is {remedy}."
    )


def _resident() -> int:
    """Return the bytes that this process holds now."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return _TYPICAL


def inputs_of(job: Any) -> Iterator[Path]:
    """Yield the files and folders that a job reads, and its ledger."""
    for name in (*_TABLES, *_FILES):
        value = getattr(job, name, None)
        if isinstance(value, str | Path):
            yield Path(value)
        yield from files_of(value)


def task_of(command: str, job: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return all that the results of a job depend on as JSON values: options, data, versions.

    Parameters
    ----------
    more : Mapping[str, Any]
        Further dependencies, such as the number of rows and checksums of other files.
    """
    names = [field.name for field in fields(job) if field.name not in _WITHOUT_EFFECT]
    options = {name: _plain(getattr(job, name)) for name in names}
    if "encoding" in names:
        more = {**more, "encoding": _encoding(job.encoding)}
    # The rows of a database are compared instead: its file changes when it is read.
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
    # As JSON reads it: tuples become lists, paths and infinities strings.
    text = json.dumps(value, default=str, sort_keys=True)
    plain: dict[str, Any] = json.loads(text, parse_constant=str)
    return plain


def _encoding(given: Any) -> Any:
    """Return the checksum of the file of an encoding, or its JSON."""
    if isinstance(given, Path):
        return hashlib.sha256(given.read_bytes()).hexdigest()
    return given.to_json() if isinstance(given, Encoding) else given


def _plain(value: Any) -> Any:
    """Return an option as it may be stored: of a query neither its address nor its text."""
    if isinstance(value, Query):
        digest = hashlib.sha256(value.statement.encode("utf-8", "surrogatepass")).hexdigest()
        return [value.name, digest, value.key]
    plain = value is None or isinstance(value, bool | int | float | str | Path | tuple)
    return value if plain else type(value).__name__


def running_job(
    command: str,
    job: Any,
    *,
    blocks: bool,
    more: Mapping[str, Any],
    lost: str = "",
    inputs: Iterable[Path] | None = None,
    releases: Sequence[str] = (),
) -> AbstractContextManager[Run]:
    """Run a job of rows (:func:`~expost.jobs.runs.running`); ``more`` as in :func:`task_of`."""
    return running(
        job.out,
        task_of(command, job, more),
        resume=job.resume,
        force=job.force,
        blocks=blocks,
        lost=lost,
        inputs=inputs_of(job) if inputs is None else inputs,
        releases=releases,
    )


# -- the rows of a table -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class TableWork:
    """One run over the rows of a table, in memory or in ``blocks``; commands add their steps.

    Parameters
    ----------
    notes : callable
        Returns the warnings so far, which are notices of the report.
    """

    job: Any
    run: Run
    blocks: bool
    engine: Engine
    progress: Progress
    table: Table
    encoding: Encoding
    notes: Callable[[], list[str]]

    @classmethod
    @contextmanager
    def start(
        cls,
        command: str,
        job: Any,
        opened: tuple[Table, Encoding],
        notes: Callable[[], list[str]],
        progress: Progress,
        engine: Engine,
        *,
        more: Mapping[str, Any] | None = None,
        lost: str = "",
        inputs: Iterable[Path] | None = None,
        releases: Sequence[str] = (),
        **fields: Any,
    ) -> Iterator[Self]:
        """Run a job of an open table; ``fields`` are those that a command adds.

        The other options are those of :func:`running_job`.
        """
        table, encoding = opened
        columns = len(encoding.feature_names)
        blocks = is_streamed(job.streaming, job.out, table.rows, columns)
        check_memory(job.streaming, table.rows, columns, blocks=blocks)
        more = {**(more or {}), "rows": table.rows}
        with running_job(
            command,
            job,
            blocks=blocks,
            more=more,
            lost=lost,
            inputs=inputs,
            releases=releases,
        ) as run:
            if encoding.histograms is not None:
                # Drawn once: a resumed run has the encoding that it began with.
                kept = run.kept("encoding", Encoding.from_json)
                encoding = encoding if kept is None else kept
                run.keep("encoding", encoding.to_json())
            yield cls(
                job=job,
                run=run,
                blocks=blocks,
                engine=engine,
                progress=progress,
                table=table,
                encoding=encoding,
                notes=notes,
                **fields,
            )

    def known_rows(
        self, ball: UnitBall, label_scale: LabelScale | None
    ) -> tuple[TableRows, Rows, Facts]:
        """Return the rows of the table, the same in memory unless in blocks, and their facts.

        Changed files are noticed by size and time; the rows of other sources are compared.
        """
        opened, hold = (self.table, self.encoding), not self.blocks
        source = table_rows(opened, ball, label_scale, self.engine, self.progress)
        kept = self.run.kept("facts", _facts_from)
        if kept is not None and not hold and self.table.origin.files:
            return source, replace(source, summary=kept.summary), kept
        rows, facts = read_rows(source, hold=hold)
        if kept is None:
            self.run.keep("facts", _facts_to(facts))
        elif kept != facts:
            raise InvalidInput(
                f"{self.table.label}: its rows are not those that the run started with; name"
                " another folder."
            )
        return source, rows, facts


def table_rows(
    opened: tuple[Table, Encoding],
    ball: UnitBall,
    label_scale: LabelScale | None,
    engine: Engine,
    progress: Progress = SILENT,
) -> TableRows:
    """Return the rows of an open table, encoded for the model."""
    table, encoding = opened
    stream = RowStream.of(table, encoding, ball, label_scale=label_scale)
    return TableRows(stream=stream, engine=engine, progress=progress)


def salted(facts: Facts) -> Callable[[Ledger], str]:
    """Return the function that identifies the rows in a ledger."""
    return lambda ledger: ledger.salted(facts.content)


def _facts_to(facts: Facts) -> dict[str, Any]:
    return {**asdict(facts), "unknown": dict(facts.unknown), "content": facts.content.hex()}


def _facts_from(kept: Any) -> Facts:
    content, summary = bytes.fromhex(kept["content"]), RowSummary(**kept["summary"])
    classes, labels = tuple(kept["classes"]), tuple(kept["labels"])
    read = {"classes": classes, "labels": labels, "content": content, "summary": summary}
    facts = Facts(**{**kept, **read})
    counts = (facts.rows, *classes, facts.past, facts.clipped, *facts.unknown.values())
    sizes = (labels[1] - labels[0], summary.longest, summary.label_size, summary.common_norm)
    if not (
        all(isinstance(count, int) and count >= 0 for count in counts)
        and all(isinstance(size, float | int) and size >= 0 for size in sizes)
        and len(content) == len(_facts_to(facts)["content"]) // 2 > 0
    ):
        raise ValueError
    return facts
