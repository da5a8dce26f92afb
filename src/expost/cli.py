"""The ``expost`` program: options in, files out; no mathematics here.

The jobs and all that they need (scikit-learn, DuckDB …) are imported when a command runs, so that
``--help`` and the shell's completion need not wait for them.
"""

import io
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expost import _cli_options as options
from expost._cli_audit import audit_command
from expost._cli_doctor import doctor_command
from expost._cli_ledger import ledger_command
from expost._cli_lines import choice_lines, end_lines, print_json
from expost._cli_options import MODEL, QUESTION
from expost._cli_progress import progress
from expost._cli_publish import lookup_command, publish_command
from expost._cli_reproduce import reproduce_app
from expost._cli_risk import risk_command
from expost.errors import ExpostError

if TYPE_CHECKING:
    from expost._jobs import epsilon as epsilon_job
    from expost._jobs import profile as profile_job

__all__ = ["main"]

app = typer.Typer(
    name="expost",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def main() -> None:
    """Run the program; a user's mistake is one sentence and exit code 2, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that knows no Λ must not cost the result of a job that is done.
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except ExpostError as error:
        message = str(error)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        message = f"{where}{error.strerror or error}."
    except MemoryError as error:
        message = f"{str(error) or 'not enough memory'}; drop columns, or take fewer rows."
    # One line, whatever a path or a column is called.
    print(f"expost: {' '.join(message.splitlines())}", file=sys.stderr)
    raise SystemExit(2)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"expost {version('expost')}")
        raise typer.Exit


@app.callback()
def _program(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """How much one released model gives each training row away, and which epsilon is worth using.

    Start with `expost demo`, which needs no data. Then, with a table of your own:

    `expost epsilon people.csv --target income --out choice`

    `expost profile people.csv --target income --out report`

    `expost publish people.csv --target income --model report/model.json --out published`

    A mistake in what you ask for is one sentence and exit code 2, and nothing is written.
    """


@app.command("profile")
def profile_command(
    data: options.Data,
    *,
    target: options.Target,
    id_column: options.IdColumn = None,
    group_column: options.GroupColumn = None,
    drop: options.Drop = None,
    missing: options.Missing = None,
    encoding: options.Encoding = None,
    data_norm: options.DataNorm = None,
    classes: options.Classes = None,
    label_bound: options.LabelBound = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="The privacy budget of this one release (default: 1).", rich_help_panel=MODEL
        ),
    ] = None,
    mechanism: options.Mechanism = None,
    noise: options.Noise = None,
    delta: options.Delta = None,
    loss: options.Loss = None,
    regularization: options.Regularization = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="For simulation: a seeded release is not private.", rich_help_panel=MODEL
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Profile this model.json; no second one is drawn.", rich_help_panel=MODEL
        ),
    ] = None,
    out: options.Out,
    ledger: options.Ledger = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Release one private linear model of a table, and say how much it gives each row away.

    The model is drawn once. It is in DIR/model.json before anything is computed from it; then
    come, for the curator only, profile.CURATOR-ONLY.parquet and .json (a line for each row) and
    report.CURATOR-ONLY.html. Should the rest fail, profile that model with --model DIR/model.json.
    The ledger lists every release of the data: a model that nobody liked was seen, and is spent.

    Examples:

    `expost profile people.csv --target income --id number --out report`

    `expost profile 'y*.parquet' --target wage --loss squared --label-bound 9e3 --out report`

    `expost profile people.csv --target income --model report/model.json --out again`

    `expost profile visits.csv --target ill --group patient --out report`

    With --group all rows of a person are taken out at once, and every result has a line a person.

    Bounds that are not given (--encoding, --data-norm, --classes, --label-bound) are read from the
    data, which is not private; the results say which.
    """
    from expost._jobs.profile import ProfileJob

    _profile(
        ProfileJob(
            source=data,
            target=target,
            out=out,
            name=Path(data).name,
            epsilon=epsilon,
            delta=delta,
            mechanism=mechanism,
            noise=noise,
            loss=loss,
            regularization=options.number_or_auto(regularization),
            data_norm=data_norm,
            label_bound=label_bound,
            classes=options.two_labels(classes),
            id_column=id_column,
            group_column=group_column,
            drop=tuple(drop) if drop else None,
            missing=tuple(missing) if missing else None,
            encoding=encoding,
            model=model,
            seed=seed,
            ledger=ledger,
            force=force,
        ),
        as_json,
    )


@app.command("epsilon")
def epsilon_command(
    data: options.Data,
    *,
    target: options.Target,
    id_column: options.IdColumn = None,
    drop: options.Drop = None,
    missing: options.Missing = None,
    encoding: options.Encoding = None,
    data_norm: options.DataNorm = None,
    classes: options.Classes = None,
    label_bound: options.LabelBound = None,
    mechanism: options.Mechanism = None,
    noise: options.Noise = None,
    delta: options.Delta = None,
    loss: options.Loss = None,
    regularization: Annotated[
        str | None,
        typer.Option(
            help="Λ of the averaged objective, or auto (default): that of epsilon = 1.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    max_belief: Annotated[
        float | None,
        typer.Option(
            help="How sure an attacker may get of any row (default: 0.75).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    prior: Annotated[
        float | None,
        typer.Option(
            help="How sure the attacker is beforehand (default: 0.5).", rich_help_panel=QUESTION
        ),
    ] = None,
    quantile: Annotated[
        float | None,
        typer.Option(
            help="Bound this quantile of the belief over models (default: bound its mean).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    utility: Annotated[
        float | None,
        typer.Option(
            help="The least accuracy (R²) on held-out rows (default: none asked for).",
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
            help="Values to tabulate, '0.1,1,10' (default: 25 around the transition).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    models: Annotated[
        int | None,
        typer.Option(
            help="Models drawn at each epsilon, over all folds (default: 200).",
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
        typer.Option(
            help="The same seed, the same figures; nothing is released.", rich_help_panel=QUESTION
        ),
    ] = None,
    out: options.Out,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Say which epsilon is worth using for a private linear model of a table; release nothing.

    It looks at how far each row moves the model, and finds the largest epsilon at which no
    attacker gets too sure of any row, the range outside of which nothing changes, and what a model
    is worth on rows that it has not seen. It ends with the command that releases such a model.

    For the curator only: DIR/report.CURATOR-ONLY.html is the page to read, transition its picture,
    epsilon.CURATOR-ONLY.json and .parquet hold the figures. Looking at the data to choose epsilon
    is not private, and the page says what that means.

    Examples:

    `expost epsilon people.csv --target income --id number --out choice`

    `expost epsilon people.csv --target income --max-belief 0.6 --utility 0.8 --out choice`
    """
    from expost._jobs.epsilon import EpsilonJob

    _epsilon(
        EpsilonJob(
            source=data,
            target=target,
            out=out,
            name=Path(data).name,
            delta=delta,
            mechanism=mechanism,
            noise=noise,
            loss=loss,
            regularization=options.number_or_auto(regularization),
            data_norm=data_norm,
            label_bound=label_bound,
            classes=options.two_labels(classes),
            id_column=id_column,
            drop=tuple(drop) if drop else None,
            missing=tuple(missing) if missing else None,
            encoding=encoding,
            seed=seed,
            force=force,
            epsilons=options.numbers(epsilons),
            models=models,
            tolerance=tolerance,
            rows=rows,
            max_belief=max_belief,
            prior=prior,
            quantile=quantile,
            utility=utility,
            folds=folds,
        ),
        as_json,
    )


app.command("publish")(publish_command)
app.command("lookup")(lookup_command)
app.command("ledger")(ledger_command)
app.command("risk")(risk_command)
app.command("audit")(audit_command)
app.command("doctor")(doctor_command)


@app.command("demo")
def demo_command(
    *,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="The privacy budget of this one release (default: 1).", rich_help_panel=MODEL
        ),
    ] = None,
    out: options.Out = Path("demo-report"),
    ledger: options.Ledger = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Do the main job on 569 patients: scikit-learn's breast-cancer data, keyed by patient.

    It releases one model that tells benign from malignant, prints how exposed the patients are,
    how accurate the model is beside the base rate and beside epsilon = ∞, and where the report is.
    """
    from sklearn.datasets import load_breast_cancer

    from expost._jobs.profile import ProfileJob

    patients = load_breast_cancer()
    columns: dict[str, Any] = {
        str(name): patients.data[:, place] for place, name in enumerate(patients.feature_names)
    }
    columns["diagnosis"] = [str(patients.target_names[label]) for label in patients.target]
    columns["patient"] = [f"patient {number}" for number in range(1, len(patients.target) + 1)]
    _profile(
        ProfileJob(
            source=columns,
            target="diagnosis",
            out=out,
            name="breast cancer, 569 patients",
            epsilon=epsilon,
            id_column="patient",
            classes=("benign", "malignant"),
            ledger=ledger,
            force=force,
        ),
        as_json,
    )


app.add_typer(reproduce_app, name="reproduce")


def _profile(job: "profile_job.ProfileJob", as_json: bool) -> None:
    from expost._jobs import profile

    with progress(profile.PHASES, quiet=as_json) as phase:
        outcome = profile.run(job, phase)
    if as_json:
        print_json(outcome.summary, outcome.files)
    else:
        print("\n".join(_profile_lines(outcome)))


def _epsilon(job: "epsilon_job.EpsilonJob", as_json: bool) -> None:
    from expost._jobs import epsilon

    with progress(epsilon.PHASES, quiet=as_json) as phase:
        outcome = epsilon.run(job, phase)
    if as_json:
        print_json(outcome.summary, outcome.files, command=outcome.command)
    else:
        print("\n".join(_epsilon_lines(outcome)))


def _profile_lines(outcome: "profile_job.Outcome") -> list[str]:
    """What a person reads at the end of a run."""
    summary = outcome.summary
    lines = [*outcome.profile.lines(), *choice_lines(summary)]
    score = None if summary.profile is None else summary.profile.accuracy
    if score is not None and score.noiseless is not None:
        form = ".1%" if score.measure == "accuracy" else ".3f"
        lines += [
            "",
            f"{score.measure.capitalize()} on {score.rows}: {score.released:{form}} released,"
            f" {score.base_rate:{form}} by the base rate alone,"
            f" {score.noiseless:{form}} at epsilon = ∞",
        ]
    return [*lines, *end_lines(summary, outcome.files)]


def _epsilon_lines(outcome: "epsilon_job.Outcome") -> list[str]:
    """The same after a choice of ε; it ends with what to type next."""
    summary = outcome.summary
    lines = [*outcome.choice.lines(), *choice_lines(summary)]
    lines += end_lines(summary, outcome.files)
    choice = summary.epsilon
    if choice is None or choice.command is None:
        return lines
    return [
        *lines,
        "",
        f"Next: release a model at epsilon = {choice.recommended:g}, and profile it",
        f"  {choice.command}",
    ]
