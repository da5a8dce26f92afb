"""The commands of the ``expost`` program, in the order in which a person uses them.

The jobs and all that they need (scikit-learn, DuckDB …) are imported when a command runs, so that
``--help`` and the shell's completion need not wait for them.
"""

from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import typer

from expost.cli.audit import audit_command
from expost.cli.doctor import doctor_command
from expost.cli.epsilon import epsilon_command
from expost.cli.ledger import ledger_command
from expost.cli.profile import demo_command, profile_command
from expost.cli.publish import lookup_command, publish_command
from expost.cli.report import report_command
from expost.cli.reproduce import reproduce_app
from expost.cli.risk import risk_command

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
    r"""How much one released model gives each training row away, and which epsilon is worth using.

    Start with `expost demo --open`, which needs no data. Then, with a table of your own:

    1. Which epsilon is worth using? Nothing is released.\
       `expost epsilon people.csv --target income --out choice`

    2. Release one model, and see how much it gives each row away.\
       `expost profile people.csv --target income --out report --open`

    3. Let everybody bound what the model gives away of her.\
       `expost publish --model report/model.json --out published`

    4. What does its epsilon mean for a person?\
       `expost risk report/model.json`

    5. What do attacks on the model find?\
       `expost audit people.csv --target income --model report/model.json --holdout others.csv
       --out audit`

    **Files.** Each command writes to the folder --out, and ends with the path of its report; --open
    shows it. Files named CURATOR-ONLY are for you alone (mode 0600); `expost report --public`
    writes a page of what may be published. A model is drawn once, and the ledger beside model.json
    lists what it spent.

    **Exit codes.** 0: done. 1: `doctor` found something broken, or stdout is full (the files are
    complete). 2: a mistake in what was asked: one sentence, and nothing is written. 130, 143:
    interrupted.

    **Environment.** BROWSER (for --open), TMPDIR, NO_COLOR, and OMP_NUM_THREADS (processors).

    **Completion.** `expost --install-completion`, then start a new shell: the Tab key completes
    commands, options, their values, and files. bash, zsh, fish and PowerShell.
    """


# One panel of the help for each thing that a person wants, and its commands.
_PANELS: dict[str, dict[str, Callable[..., Any]]] = {
    "Start": {"demo": demo_command, "doctor": doctor_command},
    "Answer": {
        "epsilon": epsilon_command,
        "profile": profile_command,
        "risk": risk_command,
        "audit": audit_command,
    },
    "Publish": {"publish": publish_command, "lookup": lookup_command},
    "Books": {"report": report_command, "ledger": ledger_command},
}

for _panel, _commands in _PANELS.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_panel)(_command)
app.add_typer(reproduce_app, name="reproduce", rich_help_panel="Papers")
