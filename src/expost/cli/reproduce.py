"""The commands that make a paper's figures again."""

from pathlib import Path
from typing import Annotated

import typer

from expost.cli import options
from expost.cli.open_page import show
from expost.cli.progress import progress

__all__ = ["reproduce_app"]

reproduce_app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")


@reproduce_app.callback()
def _reproduce() -> None:
    """Make the figures and numbers of a paper again, and set its claims beside what comes out."""


Seed = Annotated[int, typer.Option(help="Of the models that are drawn.")]


@reproduce_app.command("leblond")
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
    out: options.Out,
    force: options.Force = False,
    open_it: options.Open = False,
    log_json: options.LogJson = False,
) -> None:
    """Make the figures of LeBlond et al. (2023) again from UCI Adult.

    Writes Figures 1 to 8 as PNG and their numbers as CSV, and index.html, which sets each of the
    paper's claims beside what came out; about a minute. Adult is public, so the files may be
    shown.
    """
    from expost.reproduce import leblond

    with progress(leblond.PHASES, quiet=False, log=log_json) as shown:
        found = leblond.reproduce(out, data=data, seed=seed, phase=shown.phase, force=force)
    print("\n".join(found.lines()))
    if open_it:
        show(found.files[-1])


@reproduce_app.command("redberg-wang")
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
    out: options.Out,
    force: options.Force = False,
    open_it: options.Open = False,
    log_json: options.LogJson = False,
) -> None:
    """Make the figures of Redberg & Wang (2021) again, from made-up rows and credit card clients.

    Writes Figures 1 to 3 and linear regression as PNG and their numbers as CSV, and index.html,
    which sets each of the paper's claims beside what came out; about a minute. The data are public
    or random, so the files may be shown.
    """
    from expost.reproduce import redberg_wang

    with progress(redberg_wang.PHASES, quiet=False, log=log_json) as shown:
        found = redberg_wang.reproduce(out, data=data, seed=seed, phase=shown.phase, force=force)
    print("\n".join(found.lines()))
    if open_it:
        show(found.files[-1])


@reproduce_app.command("d5.3")
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
    out: options.Out,
    force: options.Force = False,
    open_it: options.Open = False,
    log_json: options.LogJson = False,
) -> None:
    """Make the figures of MOSAICrOWN D5.3 (2020) again: identifiability.

    Writes Figures 3.2, 4.1 and 4.2, Table 5.1 and Figures 5.1 to 5.3 as PNG and their numbers as
    CSV, and index.html, which sets each of the paper's claims beside what came out. Chapters 3 and
    4 take seconds, the 1,000 trainings of each case about an hour on two processors; stopped, the
    same command goes on from the finished ones. MNIST is public, so the files may be shown.
    """
    from expost.reproduce import d53
    from expost.reproduce.d53_training import Effort

    wanted = {"bounds": bounds, "training": training}
    parts = [name for name, named in wanted.items() if named] or list(wanted)
    request = d53.Request(data=data, effort=Effort(trainings=trainings), workers=workers)
    with progress(d53.phases(parts), quiet=False, log=log_json) as shown:
        found = d53.reproduce(
            out, parts=parts, request=request, seed=seed, phase=shown.phase, force=force
        )
    print("\n".join(found.lines()))
    if open_it:
        show(found.files[-1])
