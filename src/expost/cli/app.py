"""The commands of the ``expost`` program, in the order in which they are used.

Jobs and their dependencies (scikit-learn, PyArrow …) are imported when a command runs, so that
``--help`` and shell completion are fast.
"""

from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import typer

from expost.cli import commands
from expost.cli.options import add_command
from expost.jobs import requests

__all__ = ["app"]

app = typer.Typer(
    name="expost",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["--help", "-h"]},
)


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
    r"""Measure the privacy loss of each training row of a released model, and choose its ε.

    Start with `expost demo --open`, which needs no data. Then, with a table of your own:

    1. Choose ε. Nothing is released.\
       `expost epsilon people.csv --target income --out choice`

    2. Release one model, and report the privacy loss of each row.\
       `expost profile people.csv --target income --out report --open`

    3. Publish a report in which people look up a bound on their own privacy loss.\
       `expost publish --model report/model.json --out published`

    4. Explain what its ε means for a person.\
       `expost risk report/model.json`

    5. Attack the model.\
       `expost audit people.csv --target income --model report/model.json --holdout others.csv
       --out audit`

    **Files.** Each command writes to the folder --out and prints the path of its report; --open
    shows it. Files named CURATOR-ONLY must not be shared (mode 0600); `expost report --public`
    writes a page that may be published. A model is drawn once and recorded in the ledger.

    **Exit codes.** 0: done. 1: `doctor` found a problem, or stdout is full (the files are
    complete). 2: an error in the options or the data; nothing is written. 3:
    `epsilon` recommends no ε. 130, 143: interrupted.

    **Environment.** BROWSER (for --open), TMPDIR, NO_COLOR and OMP_NUM_THREADS (processors).

    **Completion.** `expost --install-completion`, then start a new shell: the Tab key completes
    commands, options, values and files. bash, zsh, fish and PowerShell.
    """


# The commands of each panel of the help.
_PANELS: dict[str, tuple[tuple[type[Any], Callable[[Any], None]], ...]] = {
    "Start": (
        (requests.DemoRequest, commands.demo),
        (requests.DoctorRequest, commands.doctor),
        (requests.EncodingRequest, commands.encoding),
    ),
    "Answer": (
        (requests.EpsilonRequest, commands.epsilon),
        (requests.ProfileRequest, commands.profile),
        (requests.RiskRequest, commands.risk),
        (requests.AuditRequest, commands.audit),
    ),
    "Publish": (
        (requests.PublishRequest, commands.publish),
        (requests.LookupRequest, commands.lookup),
    ),
    "Records": (
        (requests.ReportRequest, commands.report),
        (requests.LedgerRequest, commands.ledger),
    ),
}

for _panel, _commands in _PANELS.items():
    for _request, _run in _commands:
        add_command(app, _run.__name__, _request, _run, panel=_panel)
