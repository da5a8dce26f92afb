"""``python -m papers``: make the figures and numbers of a paper again."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expost.cli.mistakes import exit_code, sentence
from expost.cli.open_page import show
from expost.cli.progress import progress

if TYPE_CHECKING:
    from papers.common.reproduction import Reproduction

__all__ = ["app", "main"]

app = typer.Typer(
    name="papers",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    add_completion=False,
)


@app.callback()
def _papers() -> None:
    """Make the figures and numbers of a paper again, and compare its claims with the results."""


def main() -> None:
    """Run the program; a user error is one sentence and exit code 2, never a traceback."""
    try:
        app(prog_name="python -m papers")
    except Exception as error:
        message = sentence(error)
        if message is None:
            raise
        print(f"papers: {message}", file=sys.stderr)
        raise SystemExit(exit_code(error)) from None


Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the results of an earlier run.")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in your browser.")]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log progress to stderr as JSON lines.")]
Seed = Annotated[int, typer.Option(help="Of the models that are drawn.")]


@app.command("leblond")
def leblond_command(
    *,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="UCI Adult as a CSV file, plain or gzipped (default: found or fetched).",
        ),
    ] = None,
    seed: Seed = 0,
    out: Out,
    force: Force = False,
    open_it: Open = False,
    log_json: LogJson = False,
) -> None:
    """Make the figures of LeBlond et al. (2023) again from UCI Adult.

    Writes Figures 1 to 8 as PNG and their numbers as CSV, and index.html, which compares the
    paper's claims with the results; about a minute. Adult is public, so the files may be
    shown.
    """
    from papers.leblond import run as leblond

    with progress(leblond.PHASES, quiet=False, log=log_json) as shown:
        reproduction = leblond.reproduce(out, data=data, seed=seed, phase=shown.phase, force=force)
    _report(reproduction, open_it)


@app.command("redberg-wang")
def redberg_wang_command(
    *,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="UCI default of credit card clients as a CSV file (default: found or fetched).",
        ),
    ] = None,
    seed: Seed = 0,
    out: Out,
    force: Force = False,
    open_it: Open = False,
    log_json: LogJson = False,
) -> None:
    """Make the figures of Redberg & Wang (2021) again, from made-up rows and credit card clients.

    Writes Figures 1 to 3 and linear regression as PNG and their numbers as CSV, and index.html,
    which compares the paper's claims with the results; about a minute. The data are public or
    random, so the files may be shown.
    """
    from papers.redberg_wang import run as redberg_wang

    with progress(redberg_wang.PHASES, quiet=False, log=log_json) as shown:
        reproduction = redberg_wang.reproduce(
            out, data=data, seed=seed, phase=shown.phase, force=force
        )
    _report(reproduction, open_it)


@app.command("d5.3")
def d53_command(
    *,
    bounds: Annotated[
        bool, typer.Option("--bounds", help="Only chapters 3 and 4: formulas, a few seconds.")
    ] = False,
    training: Annotated[
        bool,
        typer.Option("--training", help="Only chapter 5: trainings; needs the extra torch."),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="MNIST as mnist.npz or a CSV file (default: found or fetched)."
        ),
    ] = None,
    trainings: Annotated[
        int, typer.Option(help="Of each of the four cases; fewer are quicker and less sharp.")
    ] = 1000,
    workers: Annotated[
        int | None, typer.Option(help="Processes that train (default: one for each processor).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of what is sampled.")] = 0,
    out: Out,
    force: Force = False,
    open_it: Open = False,
    log_json: LogJson = False,
) -> None:
    """Make the figures of MOSAICrOWN D5.3 (2020) again: identifiability.

    Writes Figures 3.2, 4.1 and 4.2, Table 5.1 and Figures 5.1 to 5.3 as PNG and their numbers as
    CSV, and index.html, which compares the paper's claims with the results. Chapters 3 and
    4 take seconds, the 1,000 trainings of each case about an hour on two processors; stopped, the
    same command continues with the finished ones. MNIST is public, so the files may be shown.
    """
    from papers.d53 import run as d53
    from papers.d53.training import Effort

    wanted = {"bounds": bounds, "training": training}
    parts = [name for name, named in wanted.items() if named] or list(wanted)
    request = d53.Request(data=data, effort=Effort(trainings=trainings), workers=workers)
    with progress(d53.phases(parts), quiet=False, log=log_json) as shown:
        reproduction = d53.reproduce(
            out, parts=parts, request=request, seed=seed, phase=shown.phase, force=force
        )
    _report(reproduction, open_it)


@app.command("lecture")
def lecture_command(
    *,
    trainings: Annotated[
        int, typer.Option(min=2, help="Federated trainings of each kind of observer.")
    ] = 16,
    repetitions: Annotated[
        int, typer.Option(min=2, help="How often members are drawn for each defence.")
    ] = 3,
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = 0,
    out: Out,
    force: Force = False,
    open_it: Open = False,
    log_json: LogJson = False,
) -> None:
    """Compare defences, and observers of federated rounds, as in the lecture. Needs torch.

    Writes the tables as CSV, their figures as PNG, and index.html, which compares each claim with
    the results; some minutes. The data are public or random, so the files may be shown.
    """
    from expost.errors import require
    from papers.lecture import run as lecture

    require("torch", caller="papers lecture", extra="torch")
    from papers.lecture.experiments import Effort

    effort = Effort(trainings=trainings, repetitions=repetitions)
    with progress(lecture.PHASES, quiet=False, log=log_json) as shown:
        reproduction = lecture.reproduce(
            out, seed=seed, effort=effort, phase=shown.phase, force=force
        )
    _report(reproduction, open_it)


def _report(reproduction: "Reproduction", open_it: bool) -> None:
    """Print the verdicts, and open the page if that was asked for."""
    print("\n".join(reproduction.lines()))
    if open_it:
        show(reproduction.files[-1])


if __name__ == "__main__":
    main()
