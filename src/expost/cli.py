"""The ``expost`` program: options in, files out; no mathematics here.

The job and all that it needs (scikit-learn, DuckDB …) are imported when a command runs, so that
``--help`` and the shell's completion need not wait for them.
"""

import io
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from expost.errors import ExpostError

if TYPE_CHECKING:
    from expost._job import Job, Outcome

__all__ = ["main"]

app = typer.Typer(
    name="expost",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

# A job that is over sooner shows no bar.
_PATIENCE = 2.0
# A longer one is cut on the screen; the report has the whole.
_LONGEST_NOTICE = 400


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
    print(f"expost: {message}", file=sys.stderr)
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
    """How much one released model gives each training row away.

    Start with `expost demo`, which needs no data. Then, with a table of your own:

    `expost profile people.csv --target income --out report`

    A mistake in what you ask for is one sentence and exit code 2, and nothing is written.
    """


_DATA, _MODEL, _OUTPUT = "The table", "The model", "The results"

Out = Annotated[
    Path,
    typer.Option(
        help="The folder for the results; made if it is not there.", rich_help_panel=_OUTPUT
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Write into a folder that is not empty.", rich_help_panel=_OUTPUT),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object, for machines.", rich_help_panel=_OUTPUT),
]


@app.command("profile")
def profile_command(
    data: Annotated[str, typer.Argument(help="CSV, TSV or Parquet, or a glob of them.")],
    *,
    target: Annotated[str, typer.Option(help="The column to predict.", rich_help_panel=_DATA)],
    id_column: Annotated[
        str | None,
        typer.Option(
            "--id", help="The column that keys the rows in every result.", rich_help_panel=_DATA
        ),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="A column to leave out; repeat.", rich_help_panel=_DATA)
    ] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option(
            help="A token that stands for a missing cell; repeat (default: '' and '?').",
            rich_help_panel=_DATA,
        ),
    ] = None,
    encoding: Annotated[
        Path | None,
        typer.Option(
            help="An encoding.json with means, scales and levels known without the data.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    data_norm: Annotated[
        float | None,
        typer.Option(
            help="A bound on an encoded row's norm, known without the data.", rich_help_panel=_DATA
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="The two labels, 'no,yes', known without the data.", rich_help_panel=_DATA
        ),
    ] = None,
    label_bound: Annotated[
        float | None,
        typer.Option(help="A bound on the target's size, for squared loss.", rich_help_panel=_DATA),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="The privacy budget of this one release (default: 1).", rich_help_panel=_MODEL
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            help="laplace (pure epsilon) or gaussian (default: laplace).", rich_help_panel=_MODEL
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="Needed by Gaussian noise, and by no other.", rich_help_panel=_MODEL),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="logistic, huber-hinge (SVM) or squared (ridge) (default: logistic).",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    regularization: Annotated[
        str | None,
        typer.Option(
            help="Λ of the averaged objective, or auto (default): from n, d and epsilon alone.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="For simulation: a seeded release is not private.", rich_help_panel=_MODEL
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Profile this model.json; no second one is drawn.", rich_help_panel=_MODEL
        ),
    ] = None,
    out: Out,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Release one private linear model of a table, and say how much it gives each row away.

    The model is drawn once. It is in DIR/model.json before anything is computed from it; then
    come, for the curator only, profile.CURATOR-ONLY.parquet and .json (a line for each row) and
    report.CURATOR-ONLY.html. Should the rest fail, profile that model with --model DIR/model.json.

    Examples:

    `expost profile people.csv --target income --id number --out report`

    `expost profile 'y*.parquet' --target wage --loss squared --label-bound 9e3 --out report`

    `expost profile people.csv --target income --model report/model.json --out again`

    Bounds that are not given (--encoding, --data-norm, --classes, --label-bound) are read from the
    data, which is not private; the results say which.
    """
    from expost._job import Job

    _do(
        Job(
            source=data,
            target=target,
            out=out,
            name=Path(data).name,
            epsilon=epsilon,
            delta=delta,
            noise=noise,
            loss=loss,
            regularization=_number_or_auto(regularization),
            data_norm=data_norm,
            label_bound=label_bound,
            classes=_two(classes),
            id_column=id_column,
            drop=tuple(drop) if drop else None,
            missing=tuple(missing) if missing else None,
            encoding=encoding,
            model=model,
            seed=seed,
            force=force,
        ),
        as_json,
    )


def _number_or_auto(text: str | None) -> float | str | None:
    """Λ as a number, or "auto"."""
    if text is None or text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} must be a number > 0 or 'auto'", param_hint="'--regularization'"
        ) from None


def _two(classes: str | None) -> tuple[str, str] | None:
    if classes is None:
        return None
    labels = classes.split(",")
    if len(labels) != 2:
        raise typer.BadParameter(
            f"{classes!r} must be two labels with a comma between them", param_hint="'--classes'"
        )
    return labels[0].strip(), labels[1].strip()


@app.command("demo")
def demo_command(
    *,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="The privacy budget of this one release (default: 1).", rich_help_panel=_MODEL
        ),
    ] = None,
    out: Out = Path("demo-report"),
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Do the main job on 569 patients: scikit-learn's breast-cancer data, keyed by patient.

    It releases one model that tells benign from malignant, prints how exposed the patients are,
    how accurate the model is beside the base rate and beside epsilon = ∞, and where the report is.
    """
    from sklearn.datasets import load_breast_cancer

    from expost._job import Job

    patients = load_breast_cancer()
    columns: dict[str, Any] = {
        str(name): patients.data[:, place] for place, name in enumerate(patients.feature_names)
    }
    columns["diagnosis"] = [str(patients.target_names[label]) for label in patients.target]
    columns["patient"] = [f"patient {number}" for number in range(1, len(patients.target) + 1)]
    _do(
        Job(
            source=columns,
            target="diagnosis",
            out=out,
            name="breast cancer, 569 patients",
            epsilon=epsilon,
            id_column="patient",
            classes=("benign", "malignant"),
            force=force,
        ),
        as_json,
    )


def _do(job: "Job", as_json: bool) -> None:
    from expost._job import PHASES, run

    with _progress(PHASES, quiet=as_json) as phase:
        outcome = run(job, phase)
    if as_json:
        print(json.dumps(_machine(outcome), indent=1, allow_nan=False))
    else:
        print("\n".join(_lines(outcome)))


@contextmanager
def _progress(phases: int, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A bar for a job of more than two seconds, at a terminal; silence elsewhere."""
    # Not the console's own word for it: FORCE_COLOR makes that of any file a terminal.
    if quiet or not sys.stderr.isatty():
        yield lambda name: None
        return
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("starting", total=phases)
    timer = threading.Timer(_PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    started = 0

    def phase(name: str) -> None:
        nonlocal started
        bar.update(task, description=name, completed=started)
        started += 1

    try:
        yield phase
    finally:
        timer.cancel()
        # A bar that is being started this very moment must not outlive its job.
        timer.join()
        bar.stop()


def _lines(outcome: "Outcome") -> list[str]:
    """What a person reads at the end of a run."""
    from expost._groups import printable

    summary = outcome.summary
    lines = [*outcome.profile.lines(), "", "Choices"]
    width = max(len(choice.name) for choice in summary.choices)
    lines += [
        f"  {choice.name:<{width}}  {choice.value}  ({choice.origin.value})"
        for choice in summary.choices
    ]
    score = summary.accuracy
    if score is not None and score.noiseless is not None:
        form = ".1%" if score.measure == "accuracy" else ".3f"
        lines += [
            "",
            f"{score.measure.capitalize()} on {score.rows}: {score.released:{form}} released,"
            f" {score.base_rate:{form}} by the base rate alone,"
            f" {score.noiseless:{form}} at epsilon = ∞",
        ]
    if summary.notices:
        lines += ["", "Notices"]
        lines += [f"  {printable(notice, _LONGEST_NOTICE)}" for notice in summary.notices]
    lines += ["", "Files", *(f"  {name:<9} {path}" for name, path in outcome.files.items())]
    return [*lines, "", f"Report: {outcome.files['report'].resolve()}"]


def _machine(outcome: "Outcome") -> dict[str, Any]:
    """What a program reads at the end of a run."""
    from expost.report import render_json

    return {
        "files": {name: str(path) for name, path in outcome.files.items()},
        "summary": json.loads(render_json(outcome.summary)),
    }
