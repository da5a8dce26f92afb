"""The command that shows what other commands found on one page."""

from pathlib import Path
from typing import Annotated

import typer

from expost.cli import options
from expost.cli.lines import print_json
from expost.cli.open_page import show
from expost.cli.options import QUESTION

__all__ = ["report_command"]


def report_command(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH", help="Folders that expost commands wrote, or summaries in them."
        ),
    ],
    *,
    public: Annotated[
        bool,
        typer.Option(
            "--public", help="Show nothing but what is marked pass.", rich_help_panel=QUESTION
        ),
    ] = False,
    out: options.Out,
    force: options.Force = False,
    open_it: options.Open = False,
    as_json: options.AsJson = False,
) -> None:
    """Show what other commands found on one page; nothing is computed again.

    Every command that computes leaves its figures in summary.CURATOR-ONLY.json, or in summary.json
    where all of them may be published. They go on one page, DIR/report.CURATOR-ONLY.html, with the
    same as .md, and a summary.CURATOR-ONLY.json of its own: a profile, a choice of epsilon, a
    published report, an audit and what a promise allows, one of each kind and all of one table.

    With --public nothing but what is marked pass is shown, and the files are report.html,
    report.md and summary.json, for everybody. It is refused where nothing is pass.

    Examples:

    `expost report choice report audit --out page --open`

    `expost report report published --public --out site`
    """
    from expost.jobs import report

    outcome = report.run(report.ReportJob(paths=tuple(paths), out=out, public=public, force=force))
    if as_json:
        print_json(outcome.summary, outcome.files)
    else:
        print("\n".join(outcome.lines()))
    if open_it:
        show(outcome.files["report"])
