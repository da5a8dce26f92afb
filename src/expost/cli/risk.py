"""The command that says what a promise allows an attacker, or what keeps a goal."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expost.cli import options
from expost.cli.open_page import check_page, page_folder, page_lines, show
from expost.cli.options import OUTPUT, QUESTION

if TYPE_CHECKING:
    from expost.profiles.identifiability import Identifiability

__all__ = ["risk_command"]

PROMISE, GOAL, FORECAST = "One promise", "Or one goal", "A forecast without data"
# Longer lines are harder to read.
_WIDEST = 120


def risk_command(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="MODEL", help="A model.json, whose own promise is told."),
    ] = None,
    *,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Any mechanism with this epsilon.", rich_help_panel=PROMISE),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="The delta of epsilon, or where that of noise is told (default: 0, or with --rows"
            " that of a release).",
            rich_help_panel=PROMISE,
        ),
    ] = None,
    mu: Annotated[
        float | None,
        typer.Option(help="Gaussian noise of this sensitivity / sigma.", rich_help_panel=PROMISE),
    ] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="DP-SGD with this noise multiplier.", rich_help_panel=PROMISE),
    ] = None,
    sampling_rate: Annotated[
        float | None,
        typer.Option(
            help="DP-SGD: the share of rows in a batch (default: 1).", rich_help_panel=PROMISE
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="DP-SGD: the number of steps (default: 1).", rich_help_panel=PROMISE),
    ] = None,
    relation: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="DP-SGD: rows that are removed or added (remove, the default), or replaced"
            " (replace).",
            autocompletion=options.completes(options.RELATIONS),
            rich_help_panel=PROMISE,
        ),
    ] = None,
    releases: Annotated[
        int,
        typer.Option(help="So many releases, each of that promise.", rich_help_panel=PROMISE),
    ] = 1,
    rows: Annotated[
        int | None,
        typer.Option(
            help="Forecast a model of so many rows, before any is read (with --features).",
            rich_help_panel=FORECAST,
        ),
    ] = None,
    features: Annotated[
        int | None,
        typer.Option(
            help="The number of features of that model: a column of K levels counts K times.",
            rich_help_panel=FORECAST,
        ),
    ] = None,
    belief: Annotated[
        float | None,
        typer.Option(help="How sure an attacker may get, from 0 to 1.", rich_help_panel=GOAL),
    ] = None,
    advantage: Annotated[
        float | None,
        typer.Option(
            help="How much better than a coin she may guess, from 0 to 1.", rich_help_panel=GOAL
        ),
    ] = None,
    tpr: Annotated[
        float | None,
        typer.Option(help="The share of members that she may find.", rich_help_panel=GOAL),
    ] = None,
    one_in: Annotated[
        float | None,
        typer.Option(help="A person stays one in so many at least.", rich_help_panel=GOAL),
    ] = None,
    prior: Annotated[
        float,
        typer.Option(
            help="How sure the attacker is beforehand, from 0 to 1.", rich_help_panel=QUESTION
        ),
    ] = 0.5,
    fpr: Annotated[
        float,
        typer.Option(
            help="The share of others that she takes for members.", rich_help_panel=QUESTION
        ),
    ] = 0.01,
    exceeded: Annotated[
        float | None,
        typer.Option(
            help="How probable it may be that the belief is passed (default: delta where the noise"
            " is known, ten times delta for any mechanism).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png",
            help="Draw belief and advantage over epsilon, with the asked point.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    out: options.PageOut = None,
    force: options.Force = False,
    open_it: options.Open = False,
    as_json: options.AsJson = False,
) -> None:
    """Say what epsilon means for a person in the data, or which epsilon keeps what you ask for.

    Name one promise or one goal. The answer is how sure an attacker gets who knows every other
    row, how often she guesses right, how many members she finds, and among how many a person
    hides: by bounds that hold, and by the formulas of MOSAICrOWN D5.3. No data is read, and all of
    it may be published, but for what is told of a MODEL that is marked review: that is for the
    curator.

    With --rows and --features it also forecasts how good a linear model at this epsilon will be,
    and how many rows a better one needs. The default of delta is then that of a release.

    Examples:

    `expost risk --epsilon 1 --delta 1e-5`

    `expost risk --epsilon 1 --rows 1000 --features 60`

    `expost risk --belief 0.9`

    `expost risk --noise-multiplier 1.1 --sampling-rate 0.01 --steps 10000 --delta 1e-5`

    `expost risk --one-in 100 --prior 0.001 --delta 1e-6 --plot risk.png`

    `expost risk report/model.json --open`
    """
    from expost.profiles.identifiability import identifiability

    check_page(out, force=force)
    found = identifiability(
        model,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        noise_multiplier=noise_multiplier,
        sampling_rate=sampling_rate,
        steps=steps,
        relation=relation,
        belief=belief,
        advantage=advantage,
        true_positive_rate=tpr,
        one_in=one_in,
        prior=prior,
        false_positive_rate=fpr,
        exceeded=exceeded,
        releases=releases,
        rows=rows,
        features=features,
    )
    files: dict[str, Path] = {}
    if out is not None or open_it:
        files |= _page(found, model, page_folder(out), force=force)
    if plot is not None:
        files |= {"plot": _draw(found, plot, model)}
    if as_json:
        told = {"files": {name: str(path) for name, path in files.items()}}
        print(json.dumps({**told, **found.fields()}, indent=1, allow_nan=False))
    else:
        width = min(shutil.get_terminal_size((80, 24)).columns, _WIDEST)
        print("\n".join([*found.lines(width), *page_lines(files)]))
    if open_it:
        show(files["report"])


def _page(
    found: "Identifiability", model: Path | None, folder: Path, *, force: bool
) -> dict[str, Path]:
    from expost.jobs.output import made_now
    from expost.jobs.pages import named_source, store_page
    from expost.jobs.workspace import held
    from expost.report import collect

    source = None
    if model is not None:
        named = {"usual": "model.json", "what": "a released model"}
        source = named_source(model, found.audience, **named)
    summary = collect(found, source=source, made=made_now())
    with held(folder, force=force, inputs=[] if model is None else [model], page=True) as workspace:
        return store_page(workspace, summary)


def _draw(found: "Identifiability", path: Path, model: Path | None) -> Path:
    from expost.files.atomic import is_same_file, write_bytes
    from expost.report.risk_displays import RiskDisplay

    if path.suffix.lower() != ".png":
        raise typer.BadParameter(f"{str(path)!r} must end in .png", param_hint="'--plot'")
    display = RiskDisplay.from_identifiability(found)
    target = display.audience.path(path)
    if model is not None and is_same_file(model, target):
        raise typer.BadParameter(f"{str(target)!r} is the model", param_hint="'--plot'")
    return write_bytes(target, display.audience, display.png())
