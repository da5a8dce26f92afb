"""The command that attacks a model and says what the attacks get out of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expost.cli import options
from expost.cli.lines import choice_lines, end_lines, print_json
from expost.cli.open_page import show
from expost.cli.options import DATA, MODEL, QUESTION
from expost.cli.progress import progress

if TYPE_CHECKING:
    from expost.jobs import audit as job_of_audit

__all__ = ["audit_command"]


def audit_command(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="The rows that the model was trained on; with --estimator and without --holdout"
            " the rows of which coins give it half.",
        ),
    ] = None,
    *,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="The column that the model predicts.", rich_help_panel=DATA
        ),
    ] = None,
    holdout: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="A table of rows like those, on which the model was not trained.",
            rich_help_panel=DATA,
        ),
    ] = None,
    population: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="A table of rows that are in nobody's training, to compare with.",
            rich_help_panel=DATA,
        ),
    ] = None,
    query: options.Query = None,
    id_column: options.IdColumn = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="A column by which the attack is told; repeat. By class it always is.",
            rich_help_panel=DATA,
        ),
    ] = None,
    drop: options.Drop = None,
    missing: options.Missing = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Attack this model.json; no second one is drawn.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    estimator: Annotated[
        str | None,
        typer.Option(
            metavar="CLASS[:PARAM=VALUE,…]",
            help="Attack a model of this class with fit and predict_proba, trained here.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    arrays: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Attack answers that were computed elsewhere: npz, CSV or Parquet of losses,"
            " probabilities or log odds, and who was a member.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    references: Annotated[
        int | None,
        typer.Option(
            help="Models trained like it, for the attacker to compare with (default: 64).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="An attack to make; repeat (default: all that can be made).",
            autocompletion=options.completes(options.ATTACKS),
            rich_help_panel=QUESTION,
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="The delta at which epsilon is bounded from below (default: 1e-05).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(help="Of every interval and bound (default: 0.95).", rich_help_panel=QUESTION),
    ] = None,
    coins: Annotated[
        bool,
        typer.Option(
            "--coins",
            help="State that a fair coin for each row decided who is in DATA and who in --holdout:"
            " epsilon is then bounded by this one model.",
            rich_help_panel=QUESTION,
        ),
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(help="The same seed, the same figures.", rich_help_panel=QUESTION),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes that train references, -1 for all processors (default: one).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    resume: options.Resume = False,
    out: options.Out,
    force: options.Force = False,
    open_it: options.Open = False,
    as_json: options.AsJson = False,
    log_json: options.LogJson = False,
) -> None:
    """Attack a model: say who can be found to have been in its training data, and how surely.

    Membership inference by thresholds, shadow models, LiRA and RMIA, on a released model.json, any
    scikit-learn class, or answers computed elsewhere. This is an attack, not a guarantee: what
    these attacks miss, another may find.

    For the curator only: DIR/report.CURATOR-ONLY.html is the page to read (.md the same as text),
    roc and exposure its pictures, audit.CURATOR-ONLY.json and .parquet hold a line for each row,
    figures.CURATOR-ONLY.json the figures without rows, for a review.

    Examples:

    `expost audit people.csv --target income --estimator sklearn.tree.DecisionTreeClassifier --out
    audit`

    `expost audit people.csv --target income --model report/model.json --holdout others.csv
    --group sex --out audit`

    `expost audit --arrays losses.npz --out audit`
    """
    from expost.jobs import audit as job_of_audit

    source = None if data is None else options.rows_of(data, query, id_column)
    if source is None and query is not None:
        raise typer.BadParameter("name the database of the query", param_hint="'DATA'")
    named = source if source is not None else str(arrays or "")
    job = job_of_audit.AuditJob(
        out=out,
        name=options.called(named),
        source=source,
        target=target,
        model=model,
        estimator=estimator,
        arrays=arrays,
        holdout=holdout,
        population=population,
        id_column=id_column,
        groups=tuple(group or ()),
        drop=tuple(drop) if drop else None,
        missing=tuple(missing) if missing else None,
        references=references,
        attacks=tuple(attack) if attack else None,
        delta=delta,
        confidence=confidence,
        coins=coins,
        seed=seed,
        workers=workers,
        resume=resume,
        force=force,
    )
    with progress(job_of_audit.phases(job), quiet=as_json, log=log_json) as shown:
        outcome = job_of_audit.run(job, shown)
    if as_json:
        print_json(outcome.summary, outcome.files)
    else:
        print("\n".join(_lines(outcome)))
    if open_it:
        show(outcome.files["report"])


def _lines(outcome: "job_of_audit.Outcome") -> list[str]:
    # Notices stand at the end, with those of the tables.
    said = [line for line in outcome.audit.lines() if not line.startswith("notice ")]
    lines = [*said, *choice_lines(outcome.summary)]
    return [*lines, *end_lines(outcome.summary, outcome.files)]
