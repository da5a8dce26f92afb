"""``expost profile`` of a table of any length: in blocks of rows, gone on with after a crash.

Every step leaves something whole or nothing, and what is there is not made again:

facts    what one pass says of the rows;
model    θ (:mod:`expost.jobs.model_file`);
losses   parts with a line for each row;
profile  the same with ranks, in a folder that appears whole beside the page.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from expost.data import Encoding, Table, UnitBall
from expost.engine import Engine, engine_of
from expost.engine.progress import Progress
from expost.errors import InvalidInput
from expost.files.atomic import write_bytes
from expost.files.parts import Part
from expost.glm import Objective
from expost.jobs.ledger import model_notices
from expost.jobs.model_file import MODEL, copy_model, drawn_in, store_drawn, store_model
from expost.jobs.output import writing
from expost.jobs.pages import write_summary
from expost.jobs.profile_asked import (
    Outcome,
    ProfileJob,
    choices_of,
    completed,
    estimator_of,
    lister_of,
)
from expost.jobs.runs import Run
from expost.jobs.stream_facts import known_facts, salted
from expost.jobs.table import table_notices
from expost.losses import Softmax, Squared
from expost.mechanisms.output import TOLERANCE
from expost.preparing import Facts, prepared_stream
from expost.profiles.digest import Terms
from expost.profiles.parts import (
    RowParts,
    digest_of_parts,
    maxima_of_parts,
    ranked_parts,
    row_parts,
)
from expost.profiles.profile import Profile
from expost.profiles.streamed_losses import block_losses
from expost.profiles.target import find_target
from expost.release import Release
from expost.report import Accuracy, Summary, collect, render_html
from expost.report.rows import MOST_ROWS
from expost.rows import RowStream, TableRows
from expost.types import Audience

__all__ = ["run"]

_TABLE = Audience.FAIL.file_name("profile", "parquet")
_CONTINUE = "progress was saved: free some space, and continue with --resume"


def run(
    job: ProfileJob,
    given: Release | None,
    opened: tuple[Table, Encoding],
    begun: Run,
    notes: Callable[[], list[str]],
    progress: Progress,
) -> Outcome:
    """Do the job; ``given`` is the model to profile, if none is to be drawn."""
    table, encoding = opened
    _check(job, given)
    with engine_of("local" if job.streaming.engine is None else job.streaming.engine) as engine:
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


@dataclass(frozen=True, kw_only=True)
class _Model:
    """The model, its rows, and what is told of both."""

    release: Release
    problem: Objective
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
        with writing(job.out, _CONTINUE):
            parts = self._losses(model)
            if given is not None:
                copy_model(self.run, given, job.model)
            progress.phase("ranking the rows")
            result = self._ranked(model, parts)
        progress.phase("collecting the report")
        notices = (*model.notices, *self.notes()[model.noted :])
        summary = self._summary(model, result, notices)
        progress.phase("writing the report")
        files = {"model": job.out / MODEL}
        if model.ledger is not None:
            files["ledger"] = model.ledger
        with writing(job.out, _CONTINUE):
            files |= self._write(result, summary)
        return Outcome(release=model.release, profile=result, summary=summary, files=files)

    # -- the rows ------------------------------------------------------------------------------

    def _rows(self, ball: UnitBall, label_bound: float | None) -> TableRows:
        stream = RowStream.of(self.table, self.encoding, ball, label_bound=label_bound)
        return TableRows(stream=stream, engine=self.engine, progress=self.progress)

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
        drawn = drawn_in(self.run, self.job.ledger)
        if drawn is None:
            return self._draw()
        problem, facts = self._problem(drawn.release)
        self.progress.phase("fitting the model")
        lister = lister_of(self.job, drawn.release, salted(facts), self.run)
        store_drawn(self.run, drawn, lister)
        return _Model(
            release=drawn.release,
            problem=problem,
            facts=facts,
            notices=(*drawn.reading, *lister.notices, *drawn.fitting),
            noted=len(self.notes()),
            ledger=lister.ledgers[0],
        )

    def _problem(self, release: Release) -> tuple[Objective, Facts]:
        """The rows as the objective of a model that exists sees them."""
        how = release.mechanism
        bound = how.loss.label_bound if isinstance(how.loss, Squared) else None
        rows = self._rows(release.ball, bound)
        facts = known_facts(self.run, self.table, rows)
        problem = Objective(
            rows=replace(rows, summary=facts.look),
            loss=how.loss,
            penalty=np.full(rows.columns, how.total_regularization),
        )
        return problem, facts

    def _draw(self) -> _Model:
        """Draw θ and store it, before anything is computed from it."""
        job = self.job
        estimator = estimator_of(job, self.encoding)
        ball = UnitBall(
            data_norm=self.encoding.data_norm,
            fit_intercept=estimator.fit_intercept,
            intercept_scaling=estimator.intercept_scaling,
        )
        rows = self._rows(ball, job.label_bound)
        facts = known_facts(self.run, self.table, rows)
        self.progress.phase("fitting the model")
        prepared = prepared_stream(estimator, rows, facts)
        release = completed(estimator.release(prepared), self.encoding)
        reading = table_notices(self.table, self.encoding, facts.unknown)
        fitting, lister = self.notes(), lister_of(job, release, salted(facts), self.run)
        store_model(self.run, release, lister, reading=reading, fitting=fitting)
        return _Model(
            release=Release.load(job.out / MODEL),
            problem=prepared.objective,
            facts=facts,
            notices=(*reading, *lister.notices, *fitting),
            noted=len(fitting),
            ledger=lister.ledgers[0],
        )

    # -- its rows' losses ----------------------------------------------------------------------

    def _losses(self, model: _Model) -> dict[int, Part]:
        """Work out every row's loss."""
        store = self.run.store("losses")
        finished, known = store.finished(), self.run.kept("losses", int)
        if known is None or len(finished) != known:
            losses = block_losses(model.release, model.problem)
            base = (
                model.problem.minimiser(TOLERANCE).theta
                if losses.expansion is None
                else losses.expansion.base.theta
            )
            finished = row_parts(
                model.problem.table.stream,
                losses,
                (model.release.theta, base),
                store,
                self.engine,
                self.progress,
                finished=finished,
            )
            self.run.keep("losses", len(finished))
        self.run.check_rows(finished, self.table.rows)
        return finished

    def _ranked(self, model: _Model, parts: dict[int, Part]) -> Profile:
        """Rank the rows, and let the table appear."""
        release = model.release
        source, terms = self.run.store("losses"), Terms.of_removal(release.mechanism)
        maxima = maxima_of_parts(source, parts, self.engine)
        digest = digest_of_parts(source, parts, maxima, terms, self.engine)
        # What has appeared is looked through once more.
        self.run.workspace.take_back(_TABLE, "profile")
        store = self.run.store("profile")
        ranked, most = ranked_parts(
            source,
            parts,
            store,
            digest,
            terms,
            self.engine,
            most=MOST_ROWS,
            progress=self.progress,
        )
        target = find_target(release, None)
        assert target is not None
        description = target.describe()
        self.run.check_rows(ranked, self.table.rows)
        store.finish(ranked, {"model": description, "relation": "remove", "unit": "row"})
        return Profile(
            release=release,
            description=description,
            rows=self.table.rows,
            parts=RowParts(
                store=self.run.workspace.place(store, _TABLE),
                terms=terms,
                maxima=maxima,
                digest=digest,
                most=most,
            ),
            notices=target.notices,
        )

    # -- the page ------------------------------------------------------------------------------

    def _summary(self, model: _Model, result: Profile, notices: tuple[str, ...]) -> Summary:
        return collect(
            result,
            source=self.job.name,
            made=self.run.made,
            choices=choices_of(self.job, self.encoding, model.release),
            accuracy=_accuracy(model, result),
            notices=notices,
        )

    def _write(self, result: Profile, summary: Summary) -> dict[str, Path]:
        """The curator's files, each whole or absent."""
        out, encoding = self.job.out, self.encoding
        assert result.parts is not None
        page = render_html(summary).encode()
        return {
            "encoding": encoding.save(out / encoding.audience.file_name("encoding", "json")),
            "profile": Path(result.to_json(out / "profile.json")),
            "table": result.parts.store.folder,
            "summary": write_summary(out, summary),
            "report": write_bytes(
                out / summary.audience.file_name("report", "html"), summary.audience, page
            ),
        }


def _accuracy(model: _Model, result: Profile) -> Accuracy:
    """How good the released model is on these rows, beside knowing nothing and beside ε = ∞."""
    assert result.parts is not None
    fits = result.parts.maxima.scores
    rows = fits.rows
    if model.release.classes is None:
        spread = fits.spread / rows or 1.0
        scores = [1 - error / rows / spread for error in fits.errors]
        return Accuracy(measure="R²", released=scores[0], base_rate=0.0, noiseless=scores[1])
    share = model.facts.positive / rows
    released, noiseless = (right / rows for right in fits.right)
    return Accuracy(released=released, base_rate=max(share, 1 - share), noiseless=noiseless)
