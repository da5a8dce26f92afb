"""The command that lists every release of a data set."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expost.cli import options
from expost.cli.open_page import check_page, page_folder, page_lines, show
from expost.cli.options import QUESTION

if TYPE_CHECKING:
    from expost.jobs import releases

__all__ = ["ledger_command"]


def ledger_command(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH", help="Ledgers, folders of releases, model.json or report.json files."
        ),
    ],
    *,
    add: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="List this model.json or report.json in the ledger PATH; repeat.",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="Where epsilon is told (default: 1e-5, or the releases' own together if more).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    out: options.PageOut = None,
    force: options.Force = False,
    open_it: options.Open = False,
    as_json: options.AsJson = False,
) -> None:
    """List every release of a data set, and what seeing all of them gives away.

    `expost profile`, `demo` and `publish` list what they release in ledger.CURATOR-ONLY.json beside
    model.json, or in the --ledger that they are given. A model that was made elsewhere is listed
    with --add, which starts the ledger if there is none.

    Epsilon is composed three ways: by addition, by Rényi divergences and from the whole law of the
    loss; each holds, the last is the least.

    Examples:

    `expost ledger report`

    `expost ledger report --open`

    `expost ledger people.CURATOR-ONLY.json --add mine/model.json --delta 1e-6`
    """
    from expost.jobs import releases

    check_page(out, force=force)
    if add:
        if len(paths) != 1:
            raise typer.BadParameter("name one ledger to add to", param_hint="'PATH'")
        paths = [releases.add(paths[0], add)]
    found = releases.listing(paths, delta)
    files = _page(found, paths, page_folder(out), force=force) if out is not None or open_it else {}
    if as_json:
        told = {"files": {name: str(path) for name, path in files.items()}} if files else {}
        print(json.dumps({**told, **found.to_json()}, indent=1, allow_nan=False))
    else:
        print("\n".join([*found.lines(), *page_lines(files)]))
    if open_it:
        show(files["report"])


def _page(
    found: "releases.Listing", paths: list[Path], folder: Path, *, force: bool
) -> dict[str, Path]:
    from expost.jobs.output import made_now
    from expost.jobs.pages import store_page
    from expost.jobs.releases import ledger_summary
    from expost.jobs.workspace import held

    source = ", ".join(path.name for path in paths)
    with held(folder, force=force, inputs=paths, page=True) as workspace:
        return store_page(workspace, ledger_summary(found, source=source, made=made_now()))
