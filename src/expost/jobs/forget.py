"""``expost forget``: erase persons from a released model, and certify it.

The order on the disk, so that no crash tosses the coin of a request twice:

request  the method of the run, before the ledger lists the request;
ledger   the request, before its coin is tossed; one of another run is refused;
coin     before anything is computed with it;
erasure  the model that was drawn, its certificate and its record, before any of them appears.

A resumed run reads what is there. Keys of persons are in no file: the ledger and the model hold a
keyed hash of the request.
"""

import hashlib
import json
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.data import Encoding, Table
from expost.engine import SILENT, Engine, Progress
from expost.erasure.certificate import OTHER_FOLDERS, Certificate, Erasure, Record
from expost.erasure.plan import ErasurePlan, data_digest, request_digest
from expost.erasure.verb import check_coupling, check_request, is_fresh_by_default
from expost.errors import InvalidInput
from expost.files.atomic import sync_folder, write_bytes
from expost.glm import Objective
from expost.groups.columns import printable
from expost.jobs.ledger import (
    MODEL,
    POINTER,
    check_ledgers,
    composition_notices,
    ledger_in,
    ledgers_for,
    listed_for,
    point_to,
)
from expost.jobs.output import (
    CONTINUE,
    RELEASES,
    REPORTS,
    RESULTS,
    check_place,
    is_unfinished,
    writing,
)
from expost.jobs.pages import write_page
from expost.jobs.requests import ForgetRequest
from expost.jobs.runs import identity_of, read_state
from expost.jobs.streaming import TableWork, inputs_of
from expost.jobs.table import check_no_feature, key_options, model_encoding, noted, table_notices
from expost.ledger import Entry, Ledger, append, entries_of, now
from expost.noise.coins import exponentials
from expost.preparing import Facts, content_without, objective_of
from expost.release import Release
from expost.report import (
    Context,
    Page,
    page_of,
    render_html,
    render_markdown,
    render_text,
)
from expost.rows import HeldRows, RowBlock, Rows, TableRows
from expost.types import IntArray

__all__ = ["PHASES", "Outcome", "run"]

# How often `run` reports a phase.
PHASES = 4
_LONGEST_NOTICE = 400
# The results that may hold something of single rows; certificates of other persons do not.
_OF_ROWS = tuple(
    name
    for name in RESULTS
    if "CURATOR-ONLY" in name and not name.startswith(("certificate.", "erasure."))
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The erasure, the page of its certificate, and the files."""

    erasure: Erasure
    page: Page
    files: dict[str, Path]
    notices: tuple[str, ...]

    def scalars(self) -> dict[str, Any]:
        """Return the public figures: those of the model, and bounds from its constants."""
        certificate = self.erasure.certificate
        return {
            **self.erasure.release.scalars(),
            "n_before": certificate.before.rows,
            "method": certificate.method,
            "audience": certificate.audience.value,
            "total_variation": certificate.total_variation,
            "distance": certificate.distance,
        }

    def to_json(self) -> dict[str, Any]:
        """Return all figures, for the curator."""
        return {
            "certificate": self.erasure.certificate.to_json(),
            "record": self.erasure.record.to_json(),
            "notices": list(self.notices),
        }

    def lines(self) -> list[str]:
        """Return the lines that the command prints: nothing about the fate of the model."""
        lines = [render_text(self.page)]
        record, erased = self.erasure.record, not self.erasure.certificate.is_insertion
        steps = ["Delete the rows from the table itself."] if erased else []
        if record.stale_files:
            steps += [
                "Delete these earlier results, which were made with the rows:",
                *(f"  {printable(name, _LONGEST_NOTICE)}" for name in record.stale_files),
            ]
        if erased:
            steps.append(OTHER_FOLDERS)
        if record.other_releases:
            steps += [
                "These other releases of the data are not erased:",
                *(f"  {printable(name, _LONGEST_NOTICE)}" for name in record.other_releases),
            ]
        if steps:
            lines += ["", "For the curator", *(f"  {step}" for step in steps)]
        if self.notices:
            notices = (f"  {printable(notice, _LONGEST_NOTICE)}" for notice in self.notices)
            lines += ["", "Notices", *notices]
        lines += ["", "Files", *(f"  {name:<11} {path}" for name, path in self.files.items())]
        return [*lines, "", f"Report: {self.files['page'].resolve()}"]


def run(job: ForgetRequest, progress: Progress = SILENT) -> Outcome:
    """Run the job; ``progress`` receives ``PHASES`` phases."""
    with noted() as notes:
        keys, files = _keys(job)
        check_place(job.out, resume=job.resume, force=job.force, lost=job.lost)
        check_ledgers(_ledgers(job), job.out)
        _check_unfinished(job)
        progress.phase("reading the table")
        release = Release.load(job.model)
        # Models that cannot be erased from are refused before a row is read.
        _plan(job, release, changed=1, is_fresh=job.fresh is not False)
        digest = hashlib.sha256(json.dumps([job.insert != (), *keys]).encode()).hexdigest()
        with job.streaming.workers() as engine:
            opened = _opened(job, release, engine)
            with _Work.start(
                "forget",
                job,
                opened,
                notes,
                progress,
                engine,
                more={"model": release.to_json()["sha256"], "--remove or --insert": digest},
                lost=job.lost,
                inputs=[*inputs_of(job), *files],
                releases=(MODEL, POINTER),
                release=release,
                keys=keys,
            ) as work:
                return work.done()


def _keys(job: ForgetRequest) -> tuple[tuple[str, ...], list[Path]]:
    """Return the keys of the persons, each once, and the files that hold some of them."""
    if bool(job.remove) is bool(job.insert):
        raise InvalidInput("--remove, --insert: name persons who leave, or persons who enter.")
    keys, files = list[str](), list[Path]()
    for value in job.remove or job.insert:
        path = Path(value)
        is_file = False
        # A key may be no possible name of a file.
        with suppress(OSError, ValueError):
            is_file = path.is_file()
        if not is_file:
            keys.append(value.strip())
            continue
        files.append(path)
        try:
            keys += [line.strip() for line in path.read_text("utf-8-sig").splitlines()]
        except (OSError, ValueError):
            raise InvalidInput(
                "--remove, --insert: the file of keys cannot be read; it must be UTF-8 text with a"
                " key on each line."
            ) from None
    named = tuple(sorted({key for key in keys if key}))
    if not named:
        raise InvalidInput("--remove, --insert: name at least one person; there is no key.")
    return named, files


def _ledgers(job: ForgetRequest) -> tuple[Path, ...]:
    """Return the ledgers of the model's data set."""
    ledger = job.ledger or ledger_in(job.model.parent)
    return ledgers_for(job.model.parent, ledger, job.source)


def _check_unfinished(job: ForgetRequest) -> None:
    """Refuse to discard a run whose request is listed: its coin would be lost."""
    if job.resume or not is_unfinished(job.out):
        return
    identity = identity_of(read_state(job.out)["salt"])
    if listed_for(_ledgers(job), identity, "erasure"):
        raise InvalidInput(
            f"out={str(job.out)!r}: holds an unfinished erasure whose request is listed, and which"
            " cannot be made again; continue it with --resume, or name another folder."
        )


def _plan(job: ForgetRequest, release: Release, *, changed: int, is_fresh: bool) -> ErasurePlan:
    return ErasurePlan(
        release=release,
        changed=changed,
        is_insertion=bool(job.insert),
        is_fresh=is_fresh,
        requests_independent=job.requests_independent,
    )


def _opened(job: ForgetRequest, release: Release, engine: Engine) -> tuple[Table, Encoding]:
    """Open the table with the model's encoding; no row is held."""
    remedy = "erase rows from it in Python with expost.forget"
    encoding = model_encoding(release, job.model, job.target, remedy=remedy)
    check_no_feature(job.id_column, encoding, "model", flag="--id")
    keys = key_options(None, job.id_column)
    return encoding.open(job.source, engine=engine, **keys), encoding


@dataclass(frozen=True, kw_only=True)
class _RowsOf:
    """A pass that finds the rows of some persons."""

    keys: frozenset[str]

    def __call__(self, block: RowBlock) -> tuple[list[int], set[str]]:
        """Return the numbers of their rows in a block, and the keys that have any."""
        assert block.ids is not None
        return self.among(block.ids, block.start)

    def among(self, ids: NDArray[np.object_], start: int = 0) -> tuple[list[int], set[str]]:
        """Return the same for the keys of consecutive rows, the first of which is ``start``."""
        own = [(start + at, key) for at, key in enumerate(ids) if key in self.keys]
        return [number for number, _ in own], {key for _, key in own}


@dataclass(frozen=True, kw_only=True, eq=False)
class _Work(TableWork):
    """The steps of a run; each continues where an earlier process stopped."""

    job: ForgetRequest
    release: Release
    keys: tuple[str, ...]

    def done(self) -> Outcome:
        """Run every step that is not finished."""
        job, progress = self.job, self.progress
        progress.phase("checking the rows")
        _ = self.facts
        erasure = self.run.kept("erasure", _erasure_from)
        if erasure is None:
            erasure = self._drawn()
        else:
            progress.phase("drawing the model")
        progress.phase("writing the certificate")
        with writing(job.out, CONTINUE):
            page, files = self._write(erasure)
        ledger, path = Ledger.load(self.ledgers[0]), self.ledgers[0]
        reading = table_notices(self.table, self.encoding, self.facts.unknown)
        return Outcome(
            erasure=erasure,
            page=page,
            files=files | {"ledger": path},
            notices=(*composition_notices(ledger, path, None), *reading, *self.notes()),
        )

    # -- the rows --------------------------------------------------------------------------------

    @cached_property
    def ledgers(self) -> tuple[Path, ...]:
        """The ledgers that list the erasure, the one with the key of its request first."""
        return _ledgers(self.job)

    @cached_property
    def _known(self) -> tuple[TableRows, Rows, Facts]:
        return self.known_rows(self.release.ball, self.release.label_scale)

    @property
    def facts(self) -> Facts:
        """The facts about the rows from one pass."""
        return self._known[2]

    @cached_property
    def _numbers(self) -> IntArray:
        """The numbers of the rows that change, ascending; a person without a row is refused."""
        source, rows, _ = self._known
        task, numbers, known = _RowsOf(keys=frozenset(self.keys)), list[int](), set[str]()
        held = rows.ids if isinstance(rows, HeldRows) else None
        for some, owners in source.map(task) if held is None else [task.among(held)]:
            numbers += some
            known |= owners
        absent = len(self.keys) - len(known)
        if absent:
            option = "--insert" if self.job.insert else "--remove"
            raise InvalidInput(
                f"{option}: {absent} of {len(self.keys)} persons have no row in the table; nothing"
                " is erased, and no certificate is made. Check the keys and --id."
            )
        return np.array(numbers, dtype=np.int64)

    @cached_property
    def _contents(self) -> tuple[bytes | None, bytes | None]:
        """The digests of the rows before and after; None where the rows are not in memory."""
        every = self.facts.content
        fewer = None if self.blocks else content_without(self._known[0], self._numbers)
        return (fewer, every) if self.job.insert else (every, fewer)

    @cached_property
    def _objective(self) -> Objective:
        """J over the rows that stay and those that change; its passes report no progress.

        How many there are depends on the fate of the model.
        """
        rows = self._known[1]
        if isinstance(rows, TableRows):
            rows = replace(rows, progress=SILENT)
        return objective_of(self.release, rows)

    # -- the model -------------------------------------------------------------------------------

    def _drawn(self) -> Erasure:
        """List the request, toss the coin, draw the model, and store all of it."""
        plan = self._plan
        present, changed = plan.objectives(self._objective, self._numbers)
        plan.check_rows(present)
        pair = None if plan.is_fresh else plan.pair(self._objective, self._numbers)
        errors = plan.errors(pair)
        with writing(self.run.out, CONTINUE):
            key, request = self._listed(plan)
            coin = None if pair is None else self._coin
        self.progress.phase("drawing the model")
        start = time.perf_counter()
        coupled = plan.drawn(self._objective, self._numbers, pair, coin=coin)
        seconds = time.perf_counter() - start
        after = plan.release_of(coupled.theta, request)
        certificate = Certificate.of(
            plan, after, errors=errors, data=data_digest(key, changed.rows)
        )
        record = replace(
            Record.of(certificate, coupled, coin, seconds),
            stale_files=self._stale_files,
            other_releases=self._other_releases(request),
        )
        erasure = Erasure(release=after, certificate=certificate, record=record)
        with writing(self.run.out, CONTINUE):
            self.run.keep("erasure", _erasure_to(erasure))
        return erasure

    @property
    def _plan(self) -> ErasurePlan:
        """The plan; the method of a run is decided once."""
        job, changed = self.job, len(self._numbers)
        kept = self.run.kept("request", _method_from)
        if kept is None:
            kept = "fresh" if self._is_fresh else "coupled"
        return _plan(job, self.release, changed=changed, is_fresh=kept == "fresh")

    @property
    def _is_fresh(self) -> bool:
        """Whether the model is redrawn: as requested, and where nothing was requested by rule."""
        job = self.job
        if job.fresh is not None:
            return job.fresh
        # A report invites people to look at the model, whether or not a ledger lists it.
        if any((job.model.parent / name).exists() for name in REPORTS):
            return True
        ledgers = [None, *(Ledger.load(path) for path in self.ledgers if path.exists())]
        return any(
            is_fresh_by_default(self.release, job.requests_independent, ledger)
            for ledger in ledgers
        )

    def _listed(self, plan: ErasurePlan) -> tuple[str, str]:
        """List the erasure in every ledger; return the key of the first, and the request's hash."""
        run, model = self.run, self.release.to_json()["sha256"]
        # Read before the ledger is locked.
        _ = self._contents
        run.keep("request", plan.method)
        known: dict[str, str] = {}

        def entries(ledger: Ledger) -> Sequence[Entry]:
            own = request_digest(ledger.salt, model, self.keys)
            self._check(ledger, own)
            check_coupling(ledger, plan, run=run.identity)
            # The first ledger names the request in all of them.
            known.setdefault("key", ledger.salt)
            request = known.setdefault("request", own)
            self._check(ledger, request)
            before, after = (
                None if content is None else ledger.salted(content) for content in self._contents
            )
            line = plan.entry(request, name=str(run.out / MODEL), made=now(), data=after)
            return (*entries_of(self.job.model, data=before), replace(line, run=run.identity))

        try:
            for path in self.ledgers:
                if path.exists():
                    ledger = Ledger.load(path)
                    self._check(ledger, request_digest(ledger.salt, model, self.keys))
                    check_coupling(ledger, plan, run=run.identity)
            for path in self.ledgers:
                append(path, entries)
        except BaseException:
            if not listed_for(self.ledgers, run.identity, "erasure"):
                # Nothing to resume.
                run.forget("request")
            raise
        return known["key"], known["request"]

    def _check(self, ledger: Ledger, request: str) -> None:
        """Refuse a request that a ledger lists for another run."""
        if request not in ledger.of_run(self.run.identity, "erasure"):
            check_request(ledger, request)

    @property
    def _coin(self) -> float:
        """The coin of this run: tossed once, and on the disk before it is used."""
        coin = self.run.kept("coin", _coin_from)
        if coin is None:
            coin = float(exponentials(1)[0])
            self.run.keep("coin", coin)
        return coin

    # -- what is left of the rows ----------------------------------------------------------------

    @property
    def _stale_files(self) -> tuple[str, ...]:
        """The model, the results next to it, and those next to the other listed releases."""
        if self.job.insert:
            return ()
        own, folder = self.run.out.resolve(), self.job.model.parent
        listed = (Path(entry.name) for path in self.ledgers for entry in Ledger.load(path).entries)
        others = {file.parent for file in listed if file.is_file()} - {folder}
        files = [folder / name for name in (*RELEASES, *_OF_ROWS)]
        files += [other / name for other in sorted(others) for name in _OF_ROWS]
        return tuple(str(file) for file in files if file.exists() and file.parent.resolve() != own)

    def _other_releases(self, request: str) -> tuple[str, ...]:
        """Return the releases of the ledger but the model before and the one after."""
        before = {entry.release for entry in entries_of(self.job.model)} | {request}
        entries = {
            entry.release: entry for path in self.ledgers for entry in Ledger.load(path).entries
        }
        return tuple(
            f"{entry.kind} {entry.release[:8]} of {entry.made[:10]}: {entry.name}"
            for release, entry in entries.items()
            if release not in before
        )

    # -- the files -------------------------------------------------------------------------------

    def _write(self, erasure: Erasure) -> tuple[Page, dict[str, Path]]:
        """Write the model, the certificate with its page, and the record."""
        out, certificate = self.run.out, erasure.certificate
        # Results of an earlier run belong to another model.
        self.run.workspace.remove_results()
        files = erasure.save(out)
        point_to(self.ledgers[0], out)
        page = page_of(certificate, context=Context(made=self.run.made))
        for name, suffix, text in (
            ("page", "html", render_html(page)),
            ("text", "md", render_markdown(page)),
        ):
            path = out / page.audience.file_name("certificate", suffix)
            files[name] = write_bytes(path, page.audience, text.encode())
        files["summary"] = write_page(out, page)
        sync_folder(out)
        return page, files


def _erasure_to(erasure: Erasure) -> dict[str, Any]:
    return {
        "model": erasure.release.to_json(),
        "certificate": erasure.certificate.to_json(),
        "record": erasure.record.to_json(),
    }


def _erasure_from(value: Any) -> Erasure:
    return Erasure(
        release=Release.from_json(value["model"]),
        certificate=Certificate.from_json(value["certificate"]),
        record=Record.from_json(value["record"]),
    )


def _method_from(value: Any) -> str:
    if value not in ("fresh", "coupled"):
        raise ValueError
    return str(value)


def _coin_from(value: Any) -> float:
    if not (isinstance(value, float) and 0 <= value < math.inf):
        raise ValueError
    return value
