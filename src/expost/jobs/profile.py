"""``expost profile``: release one model of a table, profile it, write the report.

One path for rows in memory and for rows in blocks. Every step writes its result completely or not
at all, and finished steps are not repeated:

facts    about the rows, from one pass;
model    θ, drawn once: model.json is on the disk before anything is computed from it, and the
         ledger lists it before it appears (:mod:`expost.jobs.ledger`);
losses   with blocks: parts with one line for each row;
profile  the same with ranks, in a folder that appears atomically.

An existing model is copied only after its rows were checked.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from expost.data import Encoding, Table
from expost.engine import SILENT, Engine, Progress
from expost.errors import InvalidInput
from expost.files.atomic import write_bytes
from expost.files.parts import Part
from expost.glm import Objective
from expost.groups.exposure import Explanation, Grouping
from expost.jobs.ledger import (
    MODEL,
    POINTER,
    Lister,
    check_ledgers,
    copy_model,
    drawn_before,
    drawn_in,
    ledgers_for,
    model_notices,
    store_drawn,
    store_model,
)
from expost.jobs.options import MODEL as MODEL_OPTIONS
from expost.jobs.options import TABLE as TABLE_OPTIONS
from expost.jobs.output import CONTINUE, check_place, writing
from expost.jobs.pages import write_page
from expost.jobs.profile_options import (
    Outcome,
    check_request,
    open_for_profile,
    settings_of,
)
from expost.jobs.requests import EpsilonRequest, ProfileRequest, command_line
from expost.jobs.streaming import TableWork, inputs_of, is_streamed, salted
from expost.jobs.table import (
    label_scale_of,
    noted,
    table_notices,
    target_notices,
    training_of,
)
from expost.mechanisms.base import TOLERANCE
from expost.mechanisms.statement import statements
from expost.preparing import Facts, objective_of
from expost.profiles.digest import Terms
from expost.profiles.fit import fit_of
from expost.profiles.left_out import TopRows
from expost.profiles.parts import (
    RowParts,
    digest_of_parts,
    maxima_of_parts,
    ranked_parts,
    row_parts,
)
from expost.profiles.profile import Profile
from expost.profiles.subpopulations import readable_features
from expost.profiles.verb import Target, checked_top, profile_of_table
from expost.release import Release
from expost.report import Context, Page, page_of, render_html
from expost.report.document import Code
from expost.report.rows import MOST_ROWS
from expost.types import Audience

__all__ = ["PHASES", "Outcome", "run", "run_opened"]

# How often `run` reports a phase.
PHASES = 6
# Columns with more levels than this say little as groups.
_MOST_LEVELS = 50
# Columns that are read in one pass over the table.
_COLUMNS_A_PASS = 16
_TABLE = Audience.CURATOR_ONLY.file_name("profile", "parquet")
_NOTHING_RELEASED = "nothing was released; free some space, or name another folder"


def run(job: ProfileRequest, progress: Progress = SILENT) -> Outcome:
    """Run the job; ``progress`` receives ``PHASES`` phases."""
    with noted() as notes:
        _check(job)
        progress.phase("reading the table")
        given = None if job.model is None else Release.load(job.model)
        drawn = given or _drawn_before(job)
        with job.streaming.workers() as engine:
            opened = open_for_profile(job, drawn, engine)
            return run_opened(job, given, opened, notes, engine, progress)


def run_opened(
    job: ProfileRequest,
    given: Release | None,
    opened: tuple[Table, Encoding],
    notes: Callable[[], list[str]],
    engine: Engine,
    progress: Progress = SILENT,
) -> Outcome:
    """Run the job of an open table; ``given`` is the model to profile, None to draw one."""
    table, encoding = opened
    if given is not None:
        checked_top(job.top, noisy=given.mechanism.is_private)
    blocks = is_streamed(job.streaming, job.out, table.rows, len(encoding.feature_names))
    if blocks and job.person_column is not None:
        raise InvalidInput(
            f"--person {job.person_column!r} cannot be combined with processing in blocks; leave"
            " --engine and --resume out, and set --memory large enough for all rows."
        )
    keeps = job.keeps_model
    with _Work.start(
        "profile",
        job,
        opened,
        notes,
        progress,
        engine,
        more={"model": None if given is None else given.to_json()["sha256"]},
        lost=job.lost,
        inputs=[path for path in inputs_of(job) if not (keeps and path == job.model)],
        releases=() if keeps else (MODEL, POINTER),
    ) as work:
        return work.done(given)


def _check(job: ProfileRequest) -> None:
    """Refuse options that are wrong for every table, before one is read."""
    check_request(job)
    check_place(job.out, resume=job.resume, force=job.force, lost=job.lost)
    if job.model is None:
        check_ledgers(_ledgers(job), job.out)


def _ledgers(job: ProfileRequest) -> tuple[Path, ...]:
    return ledgers_for(job.out, job.ledger, job.source)


def _drawn_before(job: ProfileRequest) -> Release | None:
    """Return the model that the run to be resumed has drawn, or None."""
    drawn = drawn_before(job.out, _ledgers(job)) if job.resume else None
    return None if drawn is None else drawn.release


@dataclass(frozen=True, kw_only=True, eq=False)
class _Model:
    """The model and its rows.

    Parameters
    ----------
    notices : tuple[str, ...]
        On both; ``noted`` is the number of warnings among them.
    """

    release: Release
    objective: Objective
    facts: Facts
    notices: tuple[str, ...]
    noted: int
    ledger: Path | None

    @cached_property
    def target(self) -> Target:
        """The model as a target of the profile."""
        return Target.of(self.release)


class _Work(TableWork):
    """One run, from the table to the page."""

    job: ProfileRequest

    def done(self, given: Release | None) -> Outcome:
        """Run every step that is not finished."""
        job, progress = self.job, self.progress
        model = self._model(given)
        noun = "row" if job.person_column is None else "person"
        progress.phase(f"finding every {noun}'s neighbour")
        result = self._in_blocks(model, given) if self.blocks else self._held(model, given)
        progress.phase("collecting the report")
        page = self._page(model, result)
        progress.phase("writing the report")
        files = {"model": job.out / MODEL}
        if model.ledger is not None:
            files["ledger"] = model.ledger
        with writing(job.out, CONTINUE):
            files |= self._write(result, page)
        return Outcome(release=model.release, profile=result, page=page, files=files)

    # -- the model -----------------------------------------------------------------------------

    def _model(self, given: Release | None) -> _Model:
        if given is not None:
            objective, facts = self._objective(given)
            self.progress.phase("fitting the model")
            listed: tuple[str, ...] = ()
            if self.job.model is not None:
                listed = model_notices(
                    self.job.model, self.job.ledger, self.job.source, salted(facts)
                )
            return _Model(
                release=given,
                objective=objective,
                facts=facts,
                notices=(*self._reading(facts), *listed),
                noted=0,
                ledger=None,
            )
        drawn = drawn_in(self.run, _ledgers(self.job))
        if drawn is None:
            return self._draw()
        objective, facts = self._objective(drawn.release)
        self.progress.phase("fitting the model")
        lister = self._lister(drawn.release, facts)
        store_drawn(self.run, drawn, lister)
        return _Model(
            release=drawn.release,
            objective=objective,
            facts=facts,
            notices=(*drawn.reading, *lister.notices, *drawn.fitting),
            noted=len(self.notes()),
            ledger=lister.ledgers[0],
        )

    def _reading(self, facts: Facts) -> tuple[str, ...]:
        notices = table_notices(self.table, self.encoding, facts.unknown)
        return (*target_notices(self.encoding.target), *notices)

    def _lister(self, release: Release, facts: Facts) -> Lister:
        return Lister(
            release=release,
            path=self.job.out / MODEL,
            ledgers=_ledgers(self.job),
            digest=salted(facts),
            run=self.run,
        )

    def _objective(self, release: Release) -> tuple[Objective, Facts]:
        """Return the objective of an existing model on the rows, and their facts."""
        _, rows, facts = self.known_rows(release.ball, release.label_scale)
        return objective_of(release, rows), facts

    def _draw(self) -> _Model:
        """Draw θ and store it, before anything is computed from it."""
        job = self.job
        training = training_of(
            job,
            self.encoding,
            epsilon=job.epsilon,
            random_state=job.seed,
            rows_per_person=job.max_rows_per_person or 1,
        )
        ball = training.ball(len(self.encoding.entries))
        source, rows, facts = self.known_rows(ball, label_scale_of(job))
        self.progress.phase("fitting the model")
        ready = training.ready_table(rows, source, facts)
        release = training.release(ready)
        reading = self._reading(facts)
        fitting, lister = self.notes(), self._lister(release, facts)
        store_model(self.run, release, lister, reading=reading, fitting=fitting)
        return _Model(
            release=Release.load(job.out / MODEL),
            objective=ready.objective,
            facts=facts,
            notices=(*reading, *lister.notices, *fitting),
            noted=len(fitting),
            ledger=lister.ledgers[0],
        )

    # -- its rows' losses ----------------------------------------------------------------------

    def _held(self, model: _Model, given: Release | None) -> Profile:
        """Profile rows in memory."""
        result = profile_of_table(
            model.target,
            model.objective,
            by_person=self.job.person_column is not None,
            notices=model.target.notices,
            top=self.job.top,
            progress=self.progress,
        )
        exact = model.objective.minimiser(TOLERANCE).theta
        result = replace(result, fit=fit_of(model.objective, model.release.theta, exact))
        self.progress.phase("averaging over the models it might have been")
        _ = result.expected
        if given is not None:
            with writing(self.job.out, _NOTHING_RELEASED):
                copy_model(self.run, given, self.job.model)
        return result

    def _in_blocks(self, model: _Model, given: Release | None) -> Profile:
        """Profile rows in blocks, into parts."""
        with writing(self.job.out, CONTINUE):
            parts = self._losses(model)
            if given is not None:
                copy_model(self.run, given, self.job.model)
            self.progress.phase("ranking the rows")
            return self._ranked(model, parts)

    def _losses(self, model: _Model) -> dict[int, Part]:
        """Compute every row's loss."""
        mechanism, store = model.release.mechanism, self.run.store("losses")
        finished, known = store.finished(), self.run.kept("losses", int)
        if known is None or len(finished) != known:
            models = model.release.theta, model.objective.minimiser(TOLERANCE).theta
            losses = mechanism.prepare(model.objective, model.release.theta, expected=True)
            top = checked_top(self.job.top, noisy=False)
            losses = losses.refined(model.objective, top=top)
            refined = TopRows.of(losses.exact)
            if refined is not None:
                self.run.keep("top", refined.__dict__)
            finished = row_parts(
                model.objective,
                losses,
                models,
                store,
                finished=finished,
                label_scale=model.release.label_scale,
            )
            self.run.keep("losses", len(finished))
        self.run.check_rows(finished, self.table.rows)
        return finished

    def _ranked(self, model: _Model, parts: dict[int, Part]) -> Profile:
        """Rank the rows, and write the table."""
        release = model.release
        source, terms = self.run.store("losses"), Terms.of_removal(release.mechanism)
        maxima = maxima_of_parts(source, parts, self.engine)
        digest = digest_of_parts(source, parts, maxima, terms, self.engine)
        # A finished table is checked again.
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
        description = release.mechanism.describe()
        self.run.check_rows(ranked, self.table.rows)
        store.finish(ranked, {"model": description, "relation": "remove", "unit": "row"})
        return Profile(
            release=release,
            description=description,
            rows=self.table.rows,
            parts=RowParts(
                store=self.run.workspace.deliver(store, _TABLE),
                terms=terms,
                maxima=maxima,
                digest=digest,
                most=most,
                stream=model.objective.table.stream,
            ),
            notices=model.target.notices,
            fit=maxima.scores,
            left_out=maxima.left_out if maxima.left_out.rows else None,
            top=self.run.kept("top", _top_rows),
            forecast=release.mechanism.forecast,
            guarantee=statements(release.mechanism),
        )

    # -- the page ------------------------------------------------------------------------------

    def _page(self, model: _Model, result: Profile) -> Page:
        groups, explanation = self._explored(model, result)
        return page_of(
            result,
            context=Context(
                settings=settings_of(self.job, self.encoding, model.release),
                notices=(*model.notices, *self.notes()[model.noted :]),
                source=self.job.title,
                made=self.run.made,
            ),
            release=model.release,
            groups=tuple(sorted(groups, key=_unevenness, reverse=True)),
            explanation=explanation,
            next_steps=self._next(result),
        )

    def _next(self, result: Profile) -> tuple[Code, ...]:
        """Return the next command: publish the model, or choose another ε."""
        job = self.job
        shown = result.useless is None and (result.fit is None or not result.fit.is_within_chance)
        if shown and not result.digest.past_posterior and not result.is_noiseless:
            publish = ("expost", "publish", "--model", str(job.out / MODEL))
            purpose = "a page where people look up their bound"
            return (Code(text=shlex.join(publish), purpose=purpose),)
        panels = TABLE_OPTIONS, MODEL_OPTIONS
        choose = command_line(job, "epsilon", EpsilonRequest, panels, drop=job.person_column)
        return () if choose is None else (Code(text=shlex.join(choose), purpose="recommend an ε"),)

    def _explored(
        self, model: _Model, result: Profile
    ) -> tuple[Iterable[Grouping], Explanation | None]:
        """Return the exposures by each column of numbers or of few levels, and the tree."""
        names = [
            entry.name
            for entry in self.encoding.entries
            if entry.kind == "numeric" or len(entry.features) <= _MOST_LEVELS
        ]
        if result.parts is not None:
            return result.parts.cells.explored(names, self.engine)
        features = model.objective.held.encoded
        assert features is not None
        explanation = result.explain(
            readable_features(self.encoding, features), feature_names=self.encoding.feature_names
        )
        return self._groups(result, names), explanation

    def _groups(self, result: Profile, names: list[str]) -> Iterator[Grouping]:
        """Yield the exposures of rows in memory by each of the columns, a few at a time."""
        for start in range(0, len(names), _COLUMNS_A_PASS):
            some = names[start : start + _COLUMNS_A_PASS]
            cells = pa.Table.from_batches(self.table.blocks(columns=some))
            for name in some:
                yield result.by(cells.column(name).combine_chunks(), name=name)

    def _write(self, result: Profile, page: Page) -> dict[str, Path]:
        """Write the curator's files, each completely or not at all."""
        out, encoding = self.job.out, self.encoding
        html = render_html(page).encode()
        files = {
            "encoding": encoding.save(out / encoding.audience.file_name("encoding", "json")),
            "table": result.to_parquet(out / "profile.parquet")
            if result.parts is None
            else result.parts.store.folder,
        }
        # The columns of the rows are in the table alone: as JSON they are twice as long.
        path = result.to_json(out / "profile.json", table=files["table"].name)
        files["profile"] = Path(path)
        report = out / page.audience.file_name("report", "html")
        files["summary"] = write_page(out, page)
        files["report"] = write_bytes(report, page.audience, html)
        return files


def _top_rows(value: dict[str, int] | None) -> TopRows | None:
    return None if value is None else TopRows(**value)


def _unevenness(grouping: Grouping) -> float:
    """Return how far the distribution of exposed rows over the groups is from that of all rows."""
    return sum(abs(group.top_share - group.share) for group in grouping.groups)
