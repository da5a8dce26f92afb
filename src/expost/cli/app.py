"""The commands of the ``expost`` program, in the order in which they are used.

Jobs and their dependencies (NumPy, pyarrow …) are imported when a command runs, and options are
made for that command alone, so that ``--help`` and shell completion are fast.
"""

import os
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

# The help and the progress need rich: a broken one is reported before anything runs.
import rich  # noqa: F401 (see above)
import typer

from expost.cli import commands

__all__ = ["app_for"]

# The commands of each panel of the help; the options of `epsilon` are those of EpsilonRequest.
_PANELS = {
    "Start": ("demo", "doctor", "encoding"),
    "Answer": ("epsilon", "profile", "risk", "audit"),
    "Publish": ("publish", "lookup", "forget", "card"),
    "Records": ("report", "ledger"),
    "Check": ("check", "conform", "dossier", "verify"),
}


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """Return the program that parses ``arguments``: other commands have no options there."""
    first = arguments[0] if arguments else ""
    # The shell asks for completions of a line that is not among the arguments.
    return _app(None if "_EXPOST_COMPLETE" in os.environ else first)


def __getattr__(name: str) -> Any:
    # All commands with their options: what tests and the reference of the options read.
    if name == "app":
        return _app(None)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _app(command: str | None) -> typer.Typer:
    """Return the program with the options of one command, or of all if None."""
    program = typer.Typer(
        name="expost",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    program.callback()(_program)
    for panel, names in _PANELS.items():
        for name in names:
            run = getattr(commands, name)
            if command is None or command == name:
                # Imported here: the help of the program needs no options of commands.
                from expost.cli.options import add_command
                from expost.jobs import requests

                request = getattr(requests, f"{name.capitalize()}Request")
                add_command(program, name, request, run, panel=panel)
            else:
                program.command(name, rich_help_panel=panel, help=run.__doc__)(_without_options)
    return program


def _without_options() -> None:
    """Stand for a command that the arguments do not name."""


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"expost {version('expost')}")
        raise typer.Exit


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
    complete). 2: an error in the options or the data; nothing is written. 3: `epsilon` recommends
    no ε, or `check`, `conform` or `verify` found a violation. 4: `check` found a limit that no
    result answers. 130, 143: interrupted.

    **Environment.** BROWSER (for --open), TMPDIR, NO_COLOR and OMP_NUM_THREADS (processors).

    **Completion.** `expost --install-completion`, then start a new shell: the Tab key completes
    commands, options, values and files. bash, zsh, fish and PowerShell.
    """
