"""The ``expost`` program: options in, files out; no mathematics here."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from expost._job import Job, Outcome, run
from expost.errors import ExpostError
from expost.report import render_json

__all__ = ["main"]

app = typer.Typer(
    name="expost",
    help="How much one released model gives each training row away.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

_PHASES = 5
# A job that is over sooner shows no bar.
_PATIENCE = 2.0


def main() -> None:
    """Run the program; a user's mistake is one sentence and exit code 2, never a traceback."""
    try:
        app()
    except ExpostError as error:
        print(f"expost: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        print(f"expost: {error.strerror or error}{where}.", file=sys.stderr)
        raise SystemExit(2) from None


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

    Start with [bold]expost demo[/bold]. Then: expost profile people.csv --target income --out DIR
    """


def _number_or_auto(text: str) -> float | str:
    """Λ as a number, or "auto"."""
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter("must be a number > 0 or 'auto'") from None


Out = Annotated[Path, typer.Option(help="The folder for the results; made if it is not there.")]
Force = Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]


@app.command("profile")
def profile_command(
    data: Annotated[str, typer.Argument(help="CSV, TSV or Parquet, or a glob of them.")],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    out: Out,
    epsilon: Annotated[
        float | None, typer.Option(help="The privacy budget of this one release.  [default: 1]")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="For Gaussian noise only.")] = None,
    noise: Annotated[
        str | None, typer.Option(help="laplace (pure epsilon) or gaussian.  [default: laplace]")
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(help="logistic, huber-hinge (SVM) or squared (ridge).  [default: logistic]"),
    ] = None,
    regularization: Annotated[
        str | None,
        typer.Option(help="Λ of the averaged objective, or auto: from n, d and epsilon alone."),
    ] = None,
    data_norm: Annotated[
        float | None, typer.Option(help="A bound on a row's norm, known without the data.")
    ] = None,
    label_bound: Annotated[
        float | None, typer.Option(help="A bound on the target's size, for squared loss.")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="The two labels, 'no,yes': the second counts as positive.")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", help="The column that keys the rows in every result.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A column to leave out; repeat.")] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option(help="A token that stands for a missing cell; repeat.  [default: '' and '?']"),
    ] = None,
    encoding: Annotated[
        Path | None, typer.Option(help="An encoding.json with bounds known without the data.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Profile this model.json; no second one is drawn.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="For simulation: a seeded release is not private.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Release one private linear model of a table, and say how much it gives each row away."""
    job = Job(
        source=data,
        target=target,
        out=out,
        name=Path(data).name,
        epsilon=epsilon,
        delta=delta,
        noise=noise,
        loss=loss,
        regularization=None if regularization is None else _number_or_auto(regularization),
        data_norm=data_norm,
        label_bound=label_bound,
        classes=_two(classes),
        id_column=id_column,
        drop=tuple(drop or ()),
        missing=tuple(missing) if missing else ("", "?"),
        encoding=encoding,
        model=model,
        seed=seed,
        force=force,
    )
    _do(job, as_json)


def _two(classes: str | None) -> tuple[str, str] | None:
    if classes is None:
        return None
    labels = classes.split(",")
    if len(labels) != 2:
        raise typer.BadParameter(
            "must be two labels with a comma between them", param_hint="--classes"
        )
    return labels[0].strip(), labels[1].strip()


@app.command("demo")
def demo_command(
    out: Out = Path("demo-report"),
    epsilon: Annotated[float, typer.Option(help="The privacy budget.")] = 1.0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """The main job on 569 patients of scikit-learn's breast-cancer data."""
    from sklearn.datasets import load_breast_cancer

    patients = load_breast_cancer()
    columns: dict[str, Any] = {
        str(name): patients.data[:, place] for place, name in enumerate(patients.feature_names)
    }
    columns["diagnosis"] = [str(patients.target_names[label]) for label in patients.target]
    columns["patient"] = [f"patient {number}" for number in range(1, len(patients.target) + 1)]
    job = Job(
        source=columns,
        target="diagnosis",
        out=out,
        name="breast cancer, 569 patients",
        epsilon=epsilon,
        id_column="patient",
        classes=("malignant", "benign"),
        force=force,
    )
    _do(job, as_json)


def _do(job: Job, as_json: bool) -> None:
    console = Console(stderr=True)
    with _progress(console, quiet=as_json) as phase:
        outcome = run(job, phase)
    if as_json:
        print(json.dumps(_machine(outcome), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        print("\n".join(_lines(outcome)))


@contextmanager
def _progress(console: Console, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A bar for a job of more than two seconds, at a terminal; silence elsewhere."""
    if quiet or not console.is_terminal:
        yield lambda name: None
        return
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task("starting", total=_PHASES)
    timer = threading.Timer(_PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    started = [0]

    def phase(name: str) -> None:
        bar.update(task, description=name, completed=started[0])
        started[0] += 1

    try:
        yield phase
    finally:
        timer.cancel()
        bar.stop()


def _lines(outcome: Outcome) -> list[str]:
    """What a person reads at the end of a run."""
    summary = outcome.summary
    lines = [*outcome.profile.lines(), "", "Choices"]
    width = max(len(choice.name) for choice in summary.choices)
    lines += [
        f"  {choice.name:<{width}}  {choice.value}  ({choice.origin.value})"
        for choice in summary.choices
    ]
    score = summary.accuracy
    if score is not None and score.noiseless is not None:
        lines += [
            "",
            f"{score.measure.capitalize()} on {score.rows}: {score.released:.1%} released,"
            f" {score.base_rate:.1%} by the base rate alone, {score.noiseless:.1%} at epsilon = ∞",
        ]
    if summary.notices:
        lines += ["", "Notices", *(f"  {notice}" for notice in summary.notices)]
    lines += ["", "Files", *(f"  {name:<9} {path}" for name, path in outcome.files.items())]
    return [*lines, "", f"Report: {outcome.files['report'].resolve()}"]


def _machine(outcome: Outcome) -> dict[str, Any]:
    """What a program reads at the end of a run."""
    return {
        "files": {name: str(path) for name, path in outcome.files.items()},
        "summary": json.loads(render_json(outcome.summary)),
    }
