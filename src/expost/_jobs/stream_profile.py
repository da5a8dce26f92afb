"""``expost profile`` of a table of any length: in blocks of rows, gone on with after a crash.

Every step leaves something whole or nothing, and what is there is not made again:

facts    what one pass says of the rows;
model    θ. When all of model.json is on the disk, its checksum is kept, then the ledger lists it,
         then it appears. A run that kept a checksum never draws another θ: it has model.json, or
         the whole draft of it, or it ends with an error where neither is left of one that the
         ledger lists;
losses   parts with a line for each row;
profile  the same with ranks, in a folder that appears whole beside the page.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from expost._files import adopt, drafts, read_json, settle, write_bytes, write_json
from expost._jobs.folder import remove_stale, writing
from expost._jobs.ledger import Lister, ledgers_for, model_notices
from expost._jobs.pages import write_summary
from expost._jobs.profile_asked import (
    Outcome,
    ProfileJob,
    choices_of,
    completed,
    estimator_of,
    lister_of,
)
from expost._jobs.stream_facts import known_facts, salted
from expost._jobs.streaming import Run, kept_in, running, task_of
from expost._jobs.table import table_notices
from expost._ledger import Ledger
from expost._progress import Progress
from expost._store import Part, PartStore, remove_store
from expost._streamed import StreamedProblem
from expost._streamed_losses import block_losses
from expost._streamed_profile import Tops, digest, ranked_parts, row_parts, tops_of
from expost._streamed_release import Facts, prepared_stream
from expost._streamed_result import StreamedProfile
from expost._target import find_target
from expost.data import Encoding, Table, UnitBall
from expost.data.stream import RowStream
from expost.engine import Engine, engine_of
from expost.errors import ExpostError, InvalidInput
from expost.losses import Squared
from expost.mechanisms import Release
from expost.mechanisms.output import TOLERANCE
from expost.report import Accuracy, Summary, collect, render_html
from expost.report.rows import MOST_ROWS
from expost.softmax import Softmax
from expost.types import Audience

__all__ = ["drawn_before", "run"]

_MODEL = "model.json"
_NOT_RELEASED = "nothing was released; free some space, or name another folder"
_GO_ON = "what is finished is kept: free some space, and go on with --resume"


def drawn_before(job: ProfileJob) -> Release | None:
    """The θ that the run which is to be gone on with has drawn, if it has."""
    if not job.streaming.resume or job.model is not None:
        return None
    kept = kept_in(job.out, "model")
    return None if kept is None else _drawn(job.out, kept["sha256"])


def _drawn(out: Path, checksum: str) -> Release | None:
    """The model with this checksum: it has appeared, or all of it is there to appear."""
    path = out / _MODEL
    for place in (path, *drafts(path)):
        if place.exists() and _is_model(place, checksum):
            return Release.load(place)
    return None


def _is_model(path: Path, checksum: str) -> bool:
    try:
        value = read_json(path)
        return isinstance(value, dict) and Release.from_json(value).to_json()["sha256"] == checksum
    except ExpostError:
        return False


def run(
    job: ProfileJob,
    given: Release | None,
    opened: tuple[Table, Encoding],
    notes: Callable[[], list[str]],
    progress: Progress,
) -> Outcome:
    """Do the job; ``given`` is the model to profile, if none is to be drawn."""
    table, encoding = opened
    _check(job, given)
    more = {
        "model": None if given is None else given.to_json()["sha256"],
        "encoding": None if job.encoding is None else _checksum(job.encoding),
    }
    task = task_of("profile", job, table, more)
    asked = job.streaming
    with (
        running(job.out, task, asked, force=job.force, lost=job.lost) as begun,
        engine_of("local" if asked.engine is None else asked.engine) as engine,
    ):
        work = _Work(
            job=job,
            run=begun,
            engine=engine,
            progress=progress,
            table=table,
            encoding=encoding,
            notes=notes,
        )
        return work.done(given)


def _check(job: ProfileJob, given: Release | None) -> None:
    if job.group_column is not None:
        raise InvalidInput(
            f"--group {job.group_column!r}: the rows of a person cannot be brought together in"
            " blocks; leave --engine and --resume out, and let --memory hold all rows."
        )
    if given is not None and isinstance(given.mechanism.loss, Softmax):
        raise InvalidInput(
            "model: has more than two classes, and is not worked on in blocks; profile it in"
            " Python with expost.profile."
        )


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class _Model:
    """The model, its rows, and what is told of both."""

    release: Release
    problem: StreamedProblem
    facts: Facts
    notices: tuple[str, ...]
    noted: int
    ledger: Path | None


@dataclass(frozen=True, kw_only=True)
class _Work:
    """One run, from the table to the page."""

    job: ProfileJob
    run: Run
    engine: Engine
    progress: Progress
    table: Table
    encoding: Encoding
    notes: Callable[[], list[str]]

    def done(self, given: Release | None) -> Outcome:
        """Take every step that has not been taken."""
        job, progress = self.job, self.progress
        model = self._model(given)
        progress.phase("finding every row's neighbour")
        with writing(job.out, _GO_ON):
            parts = self._losses(model)
            if given is not None:
                self._store_copy(given)
            progress.phase("ranking the rows")
            result = self._ranked(model, parts)
        progress.phase("collecting the report")
        notices = (*model.notices, *self.notes()[model.noted :])
        summary = self._summary(model, result, notices)
        progress.phase("writing the report")
        files = {"model": job.out / _MODEL}
        if model.ledger is not None:
            files["ledger"] = model.ledger
        with writing(job.out, _GO_ON):
            files |= self._write(result, summary)
        return Outcome(release=model.release, profile=result, summary=summary, files=files)

    # -- the rows ------------------------------------------------------------------------------

    def _stream(self, ball: UnitBall, label_bound: float | None) -> RowStream:
        return RowStream.of(self.table, self.encoding, ball, label_bound=label_bound)

    def _facts(self, stream: RowStream) -> Facts:
        return known_facts(self.run, self.table, stream, self.engine, self.progress)

    # -- the model -----------------------------------------------------------------------------

    def _model(self, given: Release | None) -> _Model:
        if given is not None:
            problem, facts = self._problem(given)
            self.progress.phase("fitting the model")
            listed: tuple[str, ...] = ()
            if self.job.model is not None:
                listed = model_notices(self.job.model, self.job.ledger, salted(facts))
            reading = table_notices(self.table, self.encoding, facts.unknown)
            return _Model(
                release=given,
                problem=problem,
                facts=facts,
                notices=(*reading, *listed),
                noted=0,
                ledger=None,
            )
        kept = self.run.kept("model")
        release = None if kept is None else _drawn(self.job.out, kept["sha256"])
        if release is None or kept is None:
            if kept is not None:
                self._check_unlisted(kept["sha256"])
            return self._draw()
        problem, facts = self._problem(release)
        self.progress.phase("fitting the model")
        lister = lister_of(self.job, release, salted(facts))
        self._appear(release, kept["sha256"], lister)
        return _Model(
            release=release,
            problem=problem,
            facts=facts,
            notices=(*kept["reading"], *lister.notices, *kept["fitting"]),
            noted=len(self.notes()),
            ledger=lister.ledgers[0],
        )

    def _problem(self, release: Release) -> tuple[StreamedProblem, Facts]:
        """The rows as the objective of a model that exists sees them."""
        how = release.mechanism
        bound = how.loss.label_bound if isinstance(how.loss, Squared) else None
        stream = self._stream(release.ball, bound)
        facts = self._facts(stream)
        problem = StreamedProblem(
            stream=stream,
            engine=self.engine,
            loss=how.loss,
            penalty=np.full(stream.columns, how.total_regularization),
            progress=self.progress,
            seen=facts.look,
        )
        return problem, facts

    def _draw(self) -> _Model:
        """Draw θ and store it, before anything is computed from it."""
        job, path = self.job, self.job.out / _MODEL
        estimator = estimator_of(job, self.encoding)
        ball = UnitBall(
            data_norm=self.encoding.data_norm,
            fit_intercept=estimator.fit_intercept,
            intercept_scaling=estimator.intercept_scaling,
        )
        stream = self._stream(ball, job.label_bound)
        facts = self._facts(stream)
        self.progress.phase("fitting the model")
        prepared = prepared_stream(estimator, stream, self.engine, facts, self.progress)
        release = completed(estimator.release(prepared), self.encoding)
        reading = table_notices(self.table, self.encoding, facts.unknown)
        fitting, lister = self.notes(), lister_of(job, release, salted(facts))
        value = release.to_json()

        def before() -> None:
            told = {"sha256": value["sha256"], "reading": reading, "fitting": fitting}
            self.run.keep("model", told)
            lister()

        with writing(job.out, _NOT_RELEASED):
            self._clear(path)
            write_json(path, release.audience, value, before=before)
            settle(job.out)
        assert isinstance(prepared.objective, StreamedProblem)
        return _Model(
            release=Release.load(path),
            problem=prepared.objective,
            facts=facts,
            notices=(*reading, *lister.notices, *fitting),
            noted=len(fitting),
            ledger=lister.ledgers[0],
        )

    def _clear(self, path: Path) -> None:
        """Remove the results of an earlier run, which belong to another model, and its drafts."""
        remove_stale(self.job.out, keep=[self.job.encoding])
        for draft in drafts(path):
            draft.unlink(missing_ok=True)

    def _appear(self, release: Release, checksum: str, lister: Lister) -> None:
        """List the model that was drawn, and let it appear, where that is still to be done."""
        path = self.job.out / _MODEL
        with writing(self.job.out, _GO_ON):
            if path.exists() and _is_model(path, checksum):
                lister()
                return
            # The one of an earlier run, which this one's takes the place of.
            path.unlink(missing_ok=True)
            adopt(
                path,
                release.audience,
                lambda draft: _is_model(draft, checksum),
                before=lister,
            )
            settle(self.job.out)

    def _check_unlisted(self, checksum: str) -> None:
        """Refuse to draw again what was listed."""
        for path in ledgers_for(self.job.out, self.job.ledger):
            if path.exists() and Ledger.load(path).holds(checksum):
                raise InvalidInput(
                    f"out={str(self.job.out)!r}: this run has drawn a model, which {path} lists and"
                    " which is gone; it is not drawn a second time: restore model.json, or release"
                    " another one with --force, which spends its epsilon again."
                )

    def _store_copy(self, release: Release) -> None:
        """Store the model that was given, once its rows are known to be the right ones."""
        job, path = self.job, self.job.out / _MODEL
        if self.run.kept("model") is None:
            content = None if job.model is None else job.model.read_bytes()
            self._clear(path)
            if content is None:
                write_json(path, release.audience, release.to_json())
            else:
                write_bytes(path, release.audience, content)
            self.run.keep("model", {"sha256": release.to_json()["sha256"]})

    # -- its rows' losses ----------------------------------------------------------------------

    def _losses(self, model: _Model) -> dict[int, Part]:
        """Work out every row's loss."""
        store = self.run.store("losses")
        finished, known = store.finished(), self.run.kept("losses")
        if known is None or len(finished) != known["parts"]:
            losses = block_losses(model.release, model.problem)
            base = (
                model.problem.minimiser(TOLERANCE).theta
                if losses.expansion is None
                else losses.expansion.base.theta
            )
            finished = row_parts(
                model.problem.stream,
                losses,
                (model.release.theta, base),
                store,
                self.engine,
                self.progress,
                finished=finished,
            )
            self.run.keep("losses", {"parts": len(finished)})
        return finished

    def _ranked(self, model: _Model, parts: dict[int, Part]) -> StreamedProfile:
        """Rank the rows, and let the table appear."""
        release = model.release
        source, noiseless = self.run.store("losses"), not release.mechanism.is_private
        tops = tops_of(source, parts, self.engine)
        total = digest(
            source,
            parts,
            tops,
            self.engine,
            worst_case=np.inf if noiseless else release.mechanism.worst_case,
            noiseless=noiseless,
        )
        place = self.job.out / Audience.FAIL.file_name("profile", "parquet")
        store = self._ranked_store(place)
        ranked, most = ranked_parts(
            source,
            parts,
            store,
            total.scores,
            self.engine,
            noiseless=noiseless,
            most=MOST_ROWS,
            progress=self.progress,
        )
        target = find_target(release, None)
        assert target is not None
        description = target.describe()
        store.finish(ranked, {"model": description, "relation": "remove", "unit": "row"})
        return StreamedProfile(
            release=release,
            description=description,
            digest=total,
            tops=tops,
            most=most,
            store=store.moved(place),
            notices=target.notices,
        )

    def _ranked_store(self, place: Path) -> PartStore:
        """Where ranked parts are written; what has appeared is looked through once more."""
        folder = self.run.folder / "profile"
        if place.is_dir():
            if folder.exists():
                remove_store(place)
            else:
                place.rename(folder)
        return self.run.store("profile")

    # -- the page ------------------------------------------------------------------------------

    def _summary(self, model: _Model, result: StreamedProfile, notices: tuple[str, ...]) -> Summary:
        return collect(
            result,
            source=self.job.name,
            made=self.run.made,
            choices=choices_of(self.job, self.encoding, model.release),
            accuracy=_accuracy(model, result.tops),
            notices=notices,
        )

    def _write(self, result: StreamedProfile, summary: Summary) -> dict[str, Path]:
        """The curator's files, each whole or absent."""
        out, encoding = self.job.out, self.encoding
        page = render_html(summary).encode()
        return {
            "encoding": encoding.save(out / encoding.audience.file_name("encoding", "json")),
            "profile": result.to_json(out / "profile.json"),
            "table": result.store.folder,
            "summary": write_summary(out, summary),
            "report": write_bytes(
                out / summary.audience.file_name("report", "html"), summary.audience, page
            ),
        }


def _accuracy(model: _Model, tops: Tops) -> Accuracy:
    """How good the released model is on these rows, beside knowing nothing and beside ε = ∞."""
    fits, rows = tops.fits, tops.fits.rows
    if model.release.classes is None:
        spread = fits.spread / rows or 1.0
        scores = [1 - error / rows / spread for error in fits.errors]
        return Accuracy(measure="R²", released=scores[0], base_rate=0.0, noiseless=scores[1])
    share = model.facts.positive / rows
    released, noiseless = (right / rows for right in fits.right)
    return Accuracy(released=released, base_rate=max(share, 1 - share), noiseless=noiseless)
