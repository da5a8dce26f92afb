"""The command that says what is installed, and what is missing and prevents what."""

import json

import typer

from expost.cli import options

__all__ = ["doctor_command"]


def doctor_command(*, as_json: options.AsJson = False) -> None:
    """Say what is installed, which extras are missing, and what that prevents.

    A line for each package, with its version and the versions that will do, and for each thing that
    is asked of the machine: ok, missing, too old or broken (it is installed, and cannot be
    imported). The exit code is 1 if anything that is needed is not ok.

    Examples:

    `expost doctor`

    `expost doctor --json`
    """
    from expost.jobs.doctor import checkup

    found = checkup()
    print(json.dumps(found.to_json(), indent=1) if as_json else "\n".join(found.lines()))
    if not found.is_well:
        raise typer.Exit(1)
