"""The command that says which epsilon is worth using."""

from typing import TYPE_CHECKING, Annotated

import typer

from expost.cli import options
from expost.cli.lines import choice_lines, end_lines, print_json
from expost.cli.open_page import show
from expost.cli.options import MODEL, OUTPUT, QUESTION
from expost.cli.progress import progress
from expost.rounding import lower_text

if TYPE_CHECKING:
    from expost.jobs import epsilon as epsilon_job

__all__ = ["epsilon_command"]

# The exit code where no epsilon is recommended; docs/cli.md has all of them.
_NO_RECOMMENDATION = 3


def epsilon_command(
    data: options.Data,
    *,
    target: options.Target,
    query: options.Query = None,
    id_column: options.IdColumn = None,
    drop: options.Drop = None,
    missing: options.Missing = None,
    encoding: options.Encoding = None,
    data_norm: options.DataNorm = None,
    classes: options.Classes = None,
    label_range: options.LabelRange = None,
    mechanism: options.Mechanism = None,
    noise: options.Noise = None,
    delta: options.Delta = None,
    loss: options.Loss = None,
    regularization: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER",
            help="Λ of the averaged objective, or auto (default): each epsilon has its own.",
            autocompletion=options.completes(("auto",)),
            rich_help_panel=MODEL,
        ),
    ] = None,
    max_posterior: Annotated[
        float | None,
        typer.Option(
            help="The largest posterior probability of presence of any row (default: 0.75).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    prior: Annotated[
        float | None,
        typer.Option(
            help="The prior of the attacker (default: 0.5).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    quantile: Annotated[
        float | None,
        typer.Option(
            help="The share of releases in which the limit holds (default: 0.95).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            help="The share of the best reachable gain that is enough (default: 0.95).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    measure: Annotated[
        str | None,
        typer.Option(
            help="Judge models by log_loss, auc, accuracy or r2 (default: the first that applies).",
            autocompletion=options.completes(("log_loss", "auc", "accuracy", "r2")),
            rich_help_panel=QUESTION,
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="How far off its plateau a row still counts as on it (default: 0.1).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    rows: Annotated[
        float | None,
        typer.Option(
            help="The share of rows past the transition at its end (default: 0.5).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    epsilons: Annotated[
        str | None,
        typer.Option(
            metavar="E,E,…",
            help="Values to try, '0.1,1,10' (default: a grid from 0.01 to 10, refined).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    models: Annotated[
        int | None,
        typer.Option(
            help="Models drawn at each epsilon (default: 200).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Parts that are held out once each; 0 measures no utility (default: 5).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="For the same figures; releases nothing.", rich_help_panel=QUESTION),
    ] = None,
    out: options.Out,
    picture: Annotated[
        bool,
        typer.Option(
            "--picture",
            help="Also write the transition as a PNG.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    force: options.Force = False,
    open_it: options.Open = False,
    as_json: options.AsJson = False,
    engine: options.Engine = None,
    resume: options.Resume = False,
    memory: options.Memory = None,
    log_json: options.LogJson = False,
) -> None:
    """Say which epsilon is worth using for a private linear model of a table; release nothing.

    The first sentence is the verdict: the smallest epsilon that is enough, the most that the limit
    allows, none, or useless. Models are judged on rows that they have not seen; the limit is on
    the posterior probability that a row was in the training data. It ends with the command that
    releases such a model. Exit code 3 says that no epsilon is recommended.

    For the curator only: DIR/report.CURATOR-ONLY.html is the page to read,
    epsilon.CURATOR-ONLY.json and .parquet hold the figures. Looking at the data to choose epsilon
    is not private, and the page says what that means.

    Examples:

    `expost epsilon people.csv --target income --id number --out choice`

    `expost epsilon people.csv --target income --max-posterior 0.6 --out choice`
    """
    from expost.jobs.epsilon import EpsilonJob

    source = options.rows_of(data, query, id_column)
    _epsilon(
        EpsilonJob(
            source=source,
            target=target,
            out=out,
            name=options.called(source),
            delta=delta,
            mechanism=mechanism,
            noise=noise,
            loss=loss,
            regularization=options.number_or_auto(regularization),
            data_norm=data_norm,
            label_range=options.label_range(label_range),
            classes=options.labels(classes),
            id_column=id_column,
            drop=tuple(drop) if drop else None,
            missing=tuple(missing) if missing else None,
            encoding=encoding,
            seed=seed,
            force=force,
            streaming=options.streaming(engine, resume, memory),
            epsilons=options.numbers(epsilons, "--epsilons", "0.1,1,10"),
            models=models,
            tolerance=tolerance,
            rows=rows,
            max_posterior=max_posterior,
            prior=prior,
            quantile=quantile,
            share=share,
            measure=measure,
            folds=folds,
            picture=picture,
        ),
        as_json=as_json,
        log_json=log_json,
        open_it=open_it,
    )


def _epsilon(
    job: "epsilon_job.EpsilonJob", *, as_json: bool, log_json: bool, open_it: bool
) -> None:
    from expost.jobs import epsilon

    with progress(epsilon.PHASES, quiet=as_json, log=log_json) as shown:
        outcome = epsilon.run(job, shown)
    if as_json:
        print_json(outcome.summary, outcome.files, command=outcome.command)
    else:
        print("\n".join(_epsilon_lines(outcome)))
    if open_it:
        show(outcome.files["report"])
    if outcome.choice.recommended is None:
        raise typer.Exit(_NO_RECOMMENDATION)


def _epsilon_lines(outcome: "epsilon_job.Outcome") -> list[str]:
    """What a person reads at the end of a run, and what to type next."""
    summary = outcome.summary
    lines = [*outcome.choice.lines(), *choice_lines(summary)]
    choice, onward = summary.epsilon, []
    if choice is not None and choice.command is not None and choice.recommended is not None:
        onward = [
            f"Next: release a model at epsilon = {lower_text(choice.recommended)}, and profile it",
            f"  {choice.command}",
        ]
    return [*lines, *end_lines(summary, outcome.files, onward)]
