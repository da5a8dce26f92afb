"""The verbs that take rows as arrays or as a table of any length.

Arrays (or frames of numbers) are passed with their labels, and everything is computed in memory. A
table is any source of :func:`expost.data.open_table`: a path or a glob of files, a query of a
database, a frame, an Arrow table, a Dask dataframe; or a pair of Dask arrays. A table that does not
fit into memory is processed in blocks, and its results are written to a folder.
"""

import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from expost import _checks
from expost.data import Encoding, Table
from expost.data.dask_rows import array_encoding, array_table
from expost.data.frames import given_ranges
from expost.engine import SILENT, Engine, Progress
from expost.epsilon import choose
from expost.epsilon.choice import EpsilonChoice
from expost.errors import InvalidInput, PrivacyLeakWarning
from expost.glm import Objective
from expost.jobs import epsilon
from expost.jobs.epsilon import QUESTION
from expost.jobs.output import check_place
from expost.jobs.profile import PHASES, run_opened
from expost.jobs.profile_options import open_for_profile
from expost.jobs.requests import EpsilonRequest, ProfileRequest
from expost.jobs.streaming import Streaming, is_streamed, table_rows
from expost.jobs.table import check_options, label_scale_of, noted, table_notices, training_of
from expost.jobs.table import opened as opened_table
from expost.mechanisms import Mechanism
from expost.notices import warn
from expost.preparing import Facts, objective_of, read_rows
from expost.profiles import verb
from expost.profiles.profile import Profile
from expost.publishing import publish as publishing
from expost.publishing.report import PublishedReport
from expost.release import Release
from expost.results import row_keys
from expost.rows import held
from expost.types import Neighbouring

__all__ = ["choose_epsilon", "profile", "publish"]

# Options of `choose_epsilon` for a table; the others apply to arrays only.
_OF_A_TABLE = (
    *("mechanism", "noise", "delta", "loss", "regularization", "margin", "data_norm", "classes"),
    *("label_range", "encoding", "ranges", "drop", "missing", *QUESTION),
)
# The names of phases, as the progress bar prints them.
_LOSSES = "computing the loss of every row"
_MODELS = "following every row over epsilon, and models on held-out rows"
_REPORT = "making the report"


def profile(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    relation: Neighbouring | str = Neighbouring.REMOVE,
    candidates: tuple[Any, Any] | None = None,
    mechanism: Mechanism | Sequence[Mechanism | None] | None = None,
    persons: Any = None,
    ids: Sequence[Any] | str | None = None,
    top: int | None = None,
    out: str | Path | None = None,
    engine: Any = None,
    memory: int | None = None,
    resume: bool = False,
    force: bool = False,
    progress: bool | Progress = False,
) -> Profile:
    """Return the certified privacy loss of each row that a released model was trained on.

    Parameters
    ----------
    model : Any
        A fitted expost estimator, alone or last in a Pipeline (``notices`` names steps that were
        fitted to the data, which no guarantee covers), a released model or the path of its
        model.json, a fitted scikit-learn LogisticRegression, RidgeClassifier or Ridge (no noise:
        certified shifts and leave-one-out predictions), or θ itself with its ``mechanism`` (rows
        then lie in the unit ball as they are, and labels are −1 and +1, or count the classes from 0
        where there are more than two). A list of these: independent releases of the same rows,
        whose losses add (``mechanism`` is then a list, too). Of a table: a released model that was
        made from a table, or its path.
    X, y : Any
        The training rows and their labels, in their order: arrays, or frames, which a model with an
        encoding reads as it read them for the fit. Another number of rows or columns is refused,
        and so is a label that the model does not have. Other rows, or labels in another order, are
        refused only if the noise that they imply has a norm that the mechanism does not draw.
        Otherwise the figures are those of the rows that were passed.
        Without ``y``, a table that holds both: a path or glob, a query, a frame, an Arrow table, a
        Dask dataframe. Two Dask arrays are processed in blocks.
    relation : Neighbouring | str, default=Neighbouring.REMOVE
        "remove": each row leaves. "add": each of ``candidates`` enters. "replace": row i is
        exchanged for candidate i.
    candidates : tuple[Any, Any], optional
        (rows, labels) that are not in the training data, for "add" and "replace".
    mechanism : Mechanism | Sequence[Mechanism | None], optional
        The mechanism that released θ, if ``model`` is θ itself; a list for a list of models. None:
        the model has its own, or carries no noise.
    persons : Any, optional
        The person of each row, one label per row, or of a table the name of a column: all rows of a
        person are removed at once, and the result has one entry for each person, in the order in
        which they first appear, with the labels as keys. "remove" only, and in memory only.
    ids : Sequence[Any] | str, optional
        Keys of the rows for the result, or of a table the name of a column; not with ``persons``.
    top : int, optional
        Of a model without noise: the number of rows with the largest shifts that are refined to
        their exact leave-one-out model (default: 100). The others have a certified interval.
    out : str | Path, optional
        Of a table: a folder for the files that ``expost profile`` writes. It is needed where the
        table does not fit into memory: the table of results is then a folder of parts in it.
    engine : Any, optional
        Where blocks of rows are processed: "local", "local:4" (threads), "dask", "dask:4",
        "dask://host:port", or a Dask client. Results do not depend on it. None: in memory if the
        rows fit.
    memory : int, optional
        Bytes that rows in memory may use before they are processed in blocks (default: half of the
        available memory).
    resume, force : bool, default=False
        Continue an unfinished run in ``out``, or overwrite its files.
    progress : bool | Progress, default=False
        True prints the phase, the share done and the time left to stderr; or an object that listens
        (:class:`expost.engine.Progress`).

    Returns
    -------
    Profile
        Curator-only: the losses are a function of the data (Redberg & Wang, Example 4).

    Raises
    ------
    InvalidInput
        If an argument is invalid, or does not apply to arrays or to a table.
    WrongRows
        If the rows cannot be those that the model was trained on.
    """
    if ids is not None and persons is not None:
        raise InvalidInput(
            "ids: cannot be combined with persons, whose labels are the keys of the result; leave"
            " it out."
        )
    if y is not None and not _are_dask(X, y):
        if not (out is None and engine is None and memory is None and not (resume or force)):
            raise InvalidInput(
                "out, engine, memory, resume, force: are for tables, and X and y are arrays in"
                " memory; leave them out."
            )
        if isinstance(ids, str):
            raise InvalidInput("ids: must be a sequence with one key for each row.")
        with _listener(progress, 1) as listener:
            listener.phase(_LOSSES)
            return verb.profile(
                model,
                X,
                y,
                relation=relation,
                candidates=candidates,
                mechanism=mechanism,
                persons=persons,
                ids=ids,
                top=top,
                progress=listener,
            )
    if Neighbouring.parse(relation) is not Neighbouring.REMOVE or candidates is not None:
        raise InvalidInput("relation: rows of a table are profiled for 'remove' only; pass arrays.")
    if mechanism is not None:
        raise InvalidInput("mechanism: the model of a table has its own; leave it out.")
    id_column, person_column = _column("ids", ids), _column("persons", persons)
    path, release = _release_of(model)
    given = None if y is None else _arrays(X, y, release)
    if given is None and release.encoding is None:
        raise _no_encoding()
    encoding = given[1].to_json() if given is not None else release.encoding
    assert encoding is not None
    job = ProfileRequest(
        source=X,
        target=encoding["target"]["column"],
        out=Path("." if out is None else out),
        id_column=id_column,
        person_column=person_column,
        model=path,
        top=top,
        force=force,
        engine=engine,
        resume=resume,
        memory=memory,
    )
    phases = PHASES if out is not None else 2
    with noted() as notes, _listener(progress, phases) as listener:
        listener.phase("reading the table")
        if out is not None:
            check_place(job.out, resume=resume, force=force, lost=job.lost)
        with job.streaming.workers() as worker:
            opened = open_for_profile(job, release, worker) if given is None else given
            if out is not None:
                return run_opened(job, release, opened, notes, worker, listener).profile
            return _in_memory(job, release, opened, worker, listener)


def _listener(progress: bool | Progress, phases: int) -> AbstractContextManager[Progress]:
    """Return the listener of a job with this many phases."""
    if progress is False:
        return nullcontext(SILENT)
    # Imported here: it imports rich.
    from expost.engine.bar import progress_display

    return progress_display(progress, phases)


def _in_memory(
    job: ProfileRequest,
    release: Release,
    opened: tuple[Table, Encoding],
    engine: Engine,
    progress: Progress,
) -> Profile:
    """Return the profile of a table that fits into memory; nothing is written."""
    _check_fits(job.streaming, *opened)
    objective, facts = _objective(release, opened, engine, progress, hold=True)
    progress.phase(_LOSSES)
    target = verb.Target.of(release)
    return verb.profile_of_table(
        target,
        objective,
        by_person=job.person_column is not None,
        notices=(*table_notices(*opened, facts.unknown), *target.notices),
        top=job.top,
        progress=progress,
    )


def _check_fits(streaming: Streaming, table: Table, encoding: Encoding) -> None:
    """Refuse to process rows in blocks without a folder for the results."""
    columns = len(encoding.feature_names)
    if streaming.resume or is_streamed(streaming, Path("."), table.rows, columns):
        raise InvalidInput(
            "out=None: rows in blocks need a folder for their results; name one with out=, or leave"
            " engine, memory and resume out if the rows fit into memory."
        )


def _objective(
    release: Release,
    opened: tuple[Table, Encoding],
    engine: Engine,
    progress: Progress,
    *,
    hold: bool,
) -> tuple[Objective, Facts]:
    """Return the rows of a table as the objective of ``release`` sees them."""
    source = table_rows(opened, release.ball, release.label_scale, engine, progress)
    rows, facts = read_rows(source, hold=hold)
    return objective_of(release, rows), facts


def choose_epsilon(
    X: Any,
    y: Any = None,
    *,
    target: str | None = None,
    ids: Sequence[Any] | str | None = None,
    random_state: int | np.random.Generator | None = None,
    out: str | Path | None = None,
    engine: Any = None,
    memory: int | None = None,
    resume: bool = False,
    force: bool = False,
    progress: bool | Progress = False,
    **options: Any,
) -> EpsilonChoice:
    """Recommend the ε of a private model of these rows; releases nothing.

    Parameters
    ----------
    X, y : Any
        The rows and their labels; or without ``y`` a table that holds both (see
        :func:`expost.profile`). A frame with columns of strings is encoded as the command line
        encodes a table, with all of its columns; constants read from the data are named in
        ``notices``. Arrays and frames of numbers are used unchanged unless ``encoding`` or
        ``ranges`` is given.
    target : str, optional
        Of a table: the column to predict.
    ids : Sequence[Any] | str, optional
        Keys of the rows for the result, or of a table the name of a column.
    random_state : int | np.random.Generator, optional
        A seed of the simulation.
    out, engine, memory, resume, force : str | Path | None, Any, int | None, bool
        Of a table, as for :func:`expost.profile`; with ``out`` the files of ``expost epsilon`` are
        written.
    progress : bool | Progress, default=False
        As for :func:`expost.profile`.

    Other Parameters
    ----------------
    max_posterior, prior, quantile : float
        The posterior that no row may exceed (0.75), from the attacker's ``prior`` (0.5), in a share
        ``quantile`` (0.95) of the releases.
    share : float, default=0.95
        The share of the best reachable gain over the base rate that is enough.
    measure : str, optional
        "log_loss", "auc", "accuracy" or "r2", by which models are judged on held-out rows; None:
        log loss, R² of a regression, AUC of a hinge loss.
    epsilons : Sequence[float], optional
        The values to try; None: a grid from 0.01 to 10, refined around the first value that is
        enough.
    tolerance : float, default=0.1
        The distance from its plateau within which a row counts as on it (the transition).
    rows : float, default=0.5
        The share of rows that are in their second regime at ``high``.
    models : int, default=200
        Models drawn for ``ranked``, and for every figure of a sampled mechanism.
    folds : int, default=5
        The utility is measured on this many held-out folds; 0 leaves it out.
    mechanism : str | BlackBox | SampledMechanism, default="auto"
        That of the estimators, or one that is only sampled: all other options of the model are its
        own then and must be left out, the utility is not measured, and every figure is an estimate
        that errs towards exposed (docs/theory/black-box.md).
    loss : str, default="logistic"
        "logistic", "huber-hinge" or "squared".
    regularization, margin : float | str
        Those of the estimators. "auto" chooses Λ, or the margin, for each ε; log losses are those
        of σ(z) for any margin.
    rows_per_person : int, default=1
        Of arrays: k calibrates the noise of every ε to persons with up to k rows. The figures
        remain those of single rows.
    noise, delta, fit_intercept, intercept_scaling, data_norm : float | str | bool
        Those of the estimators, which would release the model.
    classes, huber_width, label_range, encoding, ranges : Any
        Those of the estimators.
    estimator : object, optional
        Sets all options of the model at once: an estimator of expost, or a Pipeline that ends in
        one; its ``epsilon`` is not used. Steps of the pipeline that are not fitted yet are fitted
        to the rows, and steps that were fitted are named in ``notices``.
    drop, missing : Sequence[str]
        Of a table: columns to leave out, and strings that mark missing cells (default:
        :data:`expost.data.MISSING`).
    workers : int, optional
        Threads; no result depends on it.

    Returns
    -------
    EpsilonChoice
        Curator-only: the use of the data to choose ε is not private (see ``notices``).

    Raises
    ------
    InvalidInput
        If an argument is invalid, or does not apply to arrays or to a table.

    Notes
    -----
    A table takes mechanism, noise, delta, loss, regularization, margin, data_norm, classes,
    label_range, encoding and ranges (by name) of the model, every option of the question, ``drop``
    and ``missing``. Arrays take all but the last two.
    """
    if y is not None:
        if not (target is None and out is None and engine is None and memory is None):
            raise InvalidInput(
                "target, out, engine, memory: are for tables, and X and y are arrays in memory;"
                " leave them out."
            )
        with _listener(progress, 1) as listener:
            listener.phase(_MODELS)
            return choose.choose_epsilon(
                X, y, ids=ids, random_state=random_state, progress=listener, **options
            )
    if target is None:
        raise InvalidInput("target=None: must name the column of the table to predict.")
    unknown = sorted(set(options) - set(_OF_A_TABLE))
    if unknown:
        raise InvalidInput(
            f"{unknown[0]}: is not an option of a table; leave it out, or pass arrays."
            f"{_checks.did_you_mean(unknown[0], _OF_A_TABLE)}"
        )
    id_column = _column("ids", ids)
    if random_state is not None and not isinstance(random_state, int):
        raise InvalidInput("random_state: of a table must be an integer or None.")
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in options.items()
    }
    given["encoding"] = _encoding(given.get("encoding"), given.pop("ranges", None))
    job = EpsilonRequest(
        source=X,
        target=target,
        out=Path("." if out is None else out),
        id_column=id_column,
        seed=random_state,
        force=force,
        engine=engine,
        resume=resume,
        memory=memory,
        **given,
    )
    if out is not None:
        with _listener(progress, epsilon.PHASES) as listener:
            return epsilon.run(job, listener).choice
    with noted(), _listener(progress, 2) as listener:
        listener.phase("reading the table")
        check_options(job)
        with job.streaming.workers() as worker:
            opened = opened_table(job, engine=worker)
            _check_fits(job.streaming, *opened)
            training = training_of(job, opened[1], epsilon=1.0)
            ball = training.ball(len(opened[1].entries))
            source = table_rows(opened, ball, label_scale_of(job), worker, listener)
            rows, facts = read_rows(source, hold=True)
            ready = training.ready_table(rows, source, facts)
            keys = held(rows, "the choice").ids
            listener.phase(_MODELS)
            return choose.choose_for(
                ready,
                epsilon.question_of(job),
                choose.seeds_of(random_state),
                progress=listener,
                ids=None if keys is None else row_keys(list(keys), rows.count),
            )


def _signature() -> inspect.Signature:
    """Return the signature of `choose_epsilon` with the options that it hands on."""
    own = inspect.signature(choose_epsilon).parameters
    inner = inspect.signature(choose.choose_epsilon).parameters
    # Without the options of the command line.
    kinds = get_type_hints(EpsilonRequest)
    handed = [inner[name] for name in inner if name not in own]
    table = [
        inspect.Parameter(
            item.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=item.default,
            annotation=kinds[item.name],
        )
        for item in fields(EpsilonRequest)
        if item.name in ("drop", "missing")
    ]
    kept = [item for item in own.values() if item.kind is not item.VAR_KEYWORD]
    return inspect.Signature([*kept, *handed, *table], return_annotation=EpsilonChoice)


choose_epsilon.__signature__ = _signature()  # type: ignore[attr-defined]  # for help()


def publish(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    kind: str = "data-independent",
    failure_probability: float = 1e-6,
    epsilon_gradient: float | None = None,
    epsilon_hessian: float | None = None,
    delta: float | None = None,
    engine: Any = None,
    memory: int | None = None,
    progress: bool | Progress = False,
) -> PublishedReport:
    """Return a report that bounds the exposure of any row under ``model`` (R&W Alg. 2).

    Parameters
    ----------
    model : Any
        A fitted expost estimator, alone or last in a Pipeline, a released model or the path of its
        model.json. The report is of that one release; nothing is drawn again.
    X, y : Any, optional
        The rows it was trained on, in their order; or without ``y`` the table that the model was
        made from (see :func:`expost.profile`, also on which other rows are refused). A
        data-independent report does not need them; if they are given, they are checked.
    kind : str, default="data-independent"
        "data-independent": from θ and public constants, nothing is spent. For models by objective
        perturbation also "data-dependent": a noisy gradient and a noisy Hessian are released in
        addition to θ.
    failure_probability : float, default=1e-06
        ρ. A data-independent bound fails with probability ρ, a data-dependent one with 3ρ, for a
        row that was fixed before the noise was drawn.
    epsilon_gradient, epsilon_hessian, delta : float, optional
        The privacy cost of a data-dependent report, each ε at ``delta`` (by default the model's
        own). A second such report spends them again.
    engine, memory : Any, int | None
        Of a table, as for :func:`expost.profile`. Rows that do not fit into memory are read in
        passes; no folder is needed.
    progress : bool | Progress, default=False
        As for :func:`expost.profile`.

    Returns
    -------
    PublishedReport
        Public if the model is and all constants were given.

    Raises
    ------
    InvalidInput
        If an argument is invalid.
    ReleaseRefused
        If the model carries no noise or seeded noise, or too little regularization for a
        data-dependent report.

    Notes
    -----
    Constants that were read from the data (the means, scales, levels and labels of an encoding, a
    label range, the steps of a Pipeline that were fitted to the rows) are in the report as they
    are, and no ε covers them. Every ε, δ and bound then holds given these constants, as if they had
    been public before. Such a report needs review, names them (``read_from_data``), warns
    (:class:`~expost.errors.PrivacyLeakWarning`) and is saved as a CURATOR-ONLY file. Preprocessing
    outside of a Pipeline that is passed is unknown to the report.

    The rows that a report of a Pipeline bounds are those that its steps return.
    """
    options: dict[str, Any] = {
        "kind": kind,
        "failure_probability": failure_probability,
        "epsilon_gradient": epsilon_gradient,
        "epsilon_hessian": epsilon_hessian,
        "delta": delta,
    }
    if X is None or (y is not None and not _are_dask(X, y)):
        if engine is not None or memory is not None:
            raise InvalidInput("engine, memory: are for tables; leave them out.")
        with _listener(progress, 1) as listener:
            listener.phase(_REPORT)
            return _warned(publishing.publish(model, X, y, **options))
    request = publishing.ReportPlan.of(model, **options)
    release = request.release
    if request.target.preprocessing.steps is not None:
        raise InvalidInput(
            "X: the steps of a Pipeline take rows and labels in memory; pass arrays or frames as X"
            " and y."
        )
    if y is None and release.encoding is None:
        raise _no_encoding()
    with noted(), _listener(progress, 2) as listener:
        listener.phase("reading the table")
        streaming = Streaming(engine=engine, memory=memory)
        with streaming.workers() as worker:
            if y is None:
                assert release.table_encoding is not None
                opened = release.table_encoding.open(X, engine=worker), release.table_encoding
            else:
                opened = _arrays(X, y, release)
            table, encoding = opened
            blocks = is_streamed(streaming, Path("."), table.rows, len(encoding.feature_names))
            objective, _ = _objective(release, opened, worker, listener, hold=not blocks)
            listener.phase(_REPORT)
            report = request.report(publishing.ReleasedRows.of(release, objective))
    return _warned(report)


def _warned(report: PublishedReport) -> PublishedReport:
    """Return a report, and warn if it holds constants read from the data."""
    if report.read_from_data:
        warn(" ".join(report.conditions), PrivacyLeakWarning, stacklevel=3)
    return report


def _encoding(encoding: Any, ranges: Any) -> Any:
    """Return the encoding of a table that was given, or that of the ranges of its columns."""
    if ranges is None:
        return Path(encoding) if isinstance(encoding, str) else encoding
    if encoding is not None:
        raise InvalidInput("ranges: cannot be combined with encoding; give one of them.")
    if not isinstance(ranges, Mapping):
        raise InvalidInput("ranges: of a table must be a dict of (low, high) by column.")
    return given_ranges(ranges, [*ranges])


def _are_dask(X: Any, y: Any) -> bool:
    return all(hasattr(array, "__dask_graph__") for array in (X, y))


def _column(name: str, value: Any) -> str | None:
    """Return the name of a column of a table; refuse anything else."""
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"{name}: of a table must be the name of a column.")
    return value


def _release_of(model: Any) -> tuple[Path | None, Release]:
    """Return the path of a released model, if it has one, and the model."""
    path = Path(model) if isinstance(model, str | Path) else None
    release = getattr(model, "release_", model) if path is None else Release.load(path)
    if not isinstance(release, Release):
        raise _no_encoding()
    return path, release


def _no_encoding() -> InvalidInput:
    return InvalidInput(
        "model: must be a released model with the encoding of its table, or the path of its"
        " model.json; other models are profiled with arrays X and y."
    )


def _arrays(X: Any, y: Any, release: Release) -> tuple[Table, Encoding]:
    """Return a pair of Dask arrays as the table that the model was made from."""
    if release.encoding is not None:
        raise InvalidInput(
            "X, y: the model was made from a table; pass that, or a Dask dataframe of it."
        )
    table = array_table(X, y, text=release.classes is not None)
    classes = None if release.classes is None else release.classes.tolist()
    encoding = array_encoding(X.shape[1], release.ball, classes)
    width = release.mechanism.dimension // release.mechanism.loss.outputs
    if X.shape[1] + release.ball.fit_intercept != width:
        raise InvalidInput(
            f"X has {X.shape[1]} columns, and the model {width - release.ball.fit_intercept}; pass"
            " its training rows."
        )
    return table, encoding
