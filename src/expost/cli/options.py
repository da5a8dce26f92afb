"""The options that commands share, and how their texts are read."""

import math
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from expost.jobs.streaming import Streaming

__all__ = [
    "WORK",
    "AsJson",
    "CapRows",
    "Classes",
    "Data",
    "DataNorm",
    "Delta",
    "Drop",
    "Encoding",
    "Engine",
    "Force",
    "IdColumn",
    "LabelRange",
    "Ledger",
    "LogJson",
    "Loss",
    "Margin",
    "MaxRowsPerPerson",
    "Mechanism",
    "Memory",
    "Missing",
    "Noise",
    "Open",
    "Out",
    "PageOut",
    "PersonColumn",
    "Query",
    "Regularization",
    "Resume",
    "Target",
    "called",
    "completes",
    "labels",
    "number_or_auto",
    "numbers",
    "rows_of",
    "streaming",
]

# What the shell completes: names that are checked where they are used, and listed here once more,
# so that completion need not import what checks them (a test holds the two together).
MECHANISMS = ("output", "objective")
# Where other packages name theirs; they are listed, and not imported.
_PLUG_INS = "expost.mechanisms"
NOISES = ("laplace", "gaussian")
LOSSES = ("logistic", "huber-hinge", "squared")
KINDS = ("data-independent", "data-dependent")
RELATIONS = ("remove", "replace")
ATTACKS = (
    "loss",
    "class-loss",
    "population",
    "shadow",
    "lira-offline",
    "lira-online",
    "rmia-offline",
    "rmia-online",
)


def completes(names: Sequence[str], plug_ins: str | None = None) -> Callable[[str], list[str]]:
    """Return what an option of these names, and of these entry points, completes to."""

    def matching(incomplete: str) -> list[str]:
        others = () if plug_ins is None else entry_points(group=plug_ins).names
        return [name for name in (*names, *sorted(others)) if name.startswith(incomplete)]

    return matching


# The panels of the help.
DATA, MODEL, QUESTION, OUTPUT = "The table", "The model", "The question", "The results"
PERSONS = "Persons with several rows"
WORK = "The work"

Data = Annotated[
    str,
    typer.Argument(metavar="DATA", help="A file, glob, folder of Parquet files or database."),
]
Query = Annotated[
    str | None,
    typer.Option(
        metavar="SELECT",
        help="Of a database: a SELECT, or a table.",
        rich_help_panel=DATA,
    ),
]
Target = Annotated[
    str, typer.Option(metavar="COLUMN", help="The column to predict.", rich_help_panel=DATA)
]
IdColumn = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="The column that keys the rows.",
        rich_help_panel=DATA,
    ),
]
PersonColumn = Annotated[
    str | None,
    typer.Option(
        "--person",
        metavar="COLUMN",
        help="The column that identifies persons.",
        rich_help_panel=PERSONS,
    ),
]
MaxRowsPerPerson = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        help="Calibrate to this many; refuse more.",
        rich_help_panel=PERSONS,
    ),
]
CapRows = Annotated[
    bool,
    typer.Option(
        "--cap-rows",
        help="Keep the first rows of each instead.",
        rich_help_panel=PERSONS,
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="A column to leave out; repeat.", rich_help_panel=DATA),
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TOKEN",
        help="A token that stands for a missing cell; repeat (default: '' and '?').",
        rich_help_panel=DATA,
    ),
]
Encoding = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="An encoding.json with means, scales and levels known without the data.",
        rich_help_panel=DATA,
    ),
]
DataNorm = Annotated[
    float | None,
    typer.Option(help="Clip rows to it (default: √p/2).", rich_help_panel=DATA),
]
Classes = Annotated[
    str | None,
    typer.Option(
        metavar="NO,YES",
        help="Labels, 'no,yes', not from the data.",
        rich_help_panel=DATA,
    ),
]
LabelRange = Annotated[
    str | None,
    typer.Option(
        metavar="LOW,HIGH",
        help="The range of the target, squared loss.",
        rich_help_panel=DATA,
    ),
]
Mechanism = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="objective (noise in what is minimised) or output (on the model).",
        autocompletion=completes(MECHANISMS, _PLUG_INS),
        rich_help_panel=MODEL,
    ),
]
Noise = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="gaussian (default) or laplace (pure ε).",
        autocompletion=completes(NOISES),
        rich_help_panel=MODEL,
    ),
]
Delta = Annotated[
    float | None,
    typer.Option(help="Default: 1e-6, less above 10⁵ rows.", rich_help_panel=MODEL),
]
Loss = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="logistic (default), huber-hinge or squared.",
        autocompletion=completes(LOSSES),
        rich_help_panel=MODEL,
    ),
]
Regularization = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER",
        help="Λ, or auto (default): from n, d, ε, δ.",
        autocompletion=completes(("auto",)),
        rich_help_panel=MODEL,
    ),
]
Margin = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER",
        help="Of the logistic loss, or auto (default: 0).",
        autocompletion=completes(("auto",)),
        rich_help_panel=MODEL,
    ),
]
Out = Annotated[
    Path,
    typer.Option(metavar="DIR", help="The folder for the results.", rich_help_panel=OUTPUT),
]
PageOut = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="A folder for a page of it, and the same as Markdown and JSON (default: none is"
        " written, or with --open in a private temporary folder).",
        rich_help_panel=OUTPUT,
    ),
]
Open = Annotated[
    bool,
    typer.Option("--open", help="Open the report in your browser.", rich_help_panel=OUTPUT),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Write over an earlier run in DIR.", rich_help_panel=OUTPUT),
]
Ledger = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The ledger of the data set (default: ledger.CURATOR-ONLY.json beside model.json).",
        rich_help_panel=OUTPUT,
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="In blocks: local, local:4, dask, dask://host:port.",
        autocompletion=completes(("local", "dask")),
        rich_help_panel=WORK,
    ),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue the unfinished run in DIR.", rich_help_panel=WORK),
]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="In blocks beyond it, '2GiB' (default: half of all).",
        rich_help_panel=WORK,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object, for machines.", rich_help_panel=OUTPUT),
]
LogJson = Annotated[
    bool,
    typer.Option(
        "--log-json",
        help="Tell of the work on stderr, as JSON lines.",
        rich_help_panel=OUTPUT,
    ),
]


def rows_of(data: Any, query: str | None, key: str | None) -> Any:
    """The table that DATA names; an address with a password goes no further than this."""
    from expost.data._query import query_of

    return query_of(data, query, key)


def called(source: Any) -> str:
    """What the results call the table that :func:`rows_of` found."""
    return Path(source).name if isinstance(source, str) else str(source.title)


def streaming(engine: str | None, resume: bool, memory: str | None) -> "Streaming":
    """Whether and how rows are worked on in blocks."""
    from expost.jobs.streaming import Streaming

    return Streaming(engine=engine, resume=resume, memory=_bytes(memory))


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.strip().rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text.strip()[len(digits) :].strip().upper()
    try:
        size = float(digits) * _UNITS[unit]
    except (KeyError, ValueError):
        size = math.nan
    if not 0 <= size < 2**63:
        raise typer.BadParameter(
            f"{text!r} must be a number of bytes, as 500MB or 2GiB", param_hint="'--memory'"
        )
    return int(size)


def number_or_auto(
    text: str | None, option: str = "--regularization", least: str = "> 0"
) -> float | str | None:
    """An option as a number, or "auto"; ``least`` is what the number must be."""
    if text is None or text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} must be a number {least} or 'auto'", param_hint=f"'{option}'"
        ) from None


def numbers(text: str | None, option: str, example: str) -> tuple[float, ...] | None:
    """Numbers with commas between them."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} must be numbers with commas between them, as {example}",
            param_hint=f"'{option}'",
        ) from None


def label_range(text: str | None) -> tuple[float, float] | None:
    """LOW,HIGH."""
    ends = numbers(text, "--label-range", "0,100")
    if ends is None:
        return None
    if len(ends) != 2:
        raise typer.BadParameter(
            f"{text!r} must be two numbers, as 0,100", param_hint="'--label-range'"
        )
    return ends[0], ends[1]


def labels(text: str | None) -> tuple[str, ...] | None:
    """Return the labels of ``--classes``."""
    if text is None:
        return None
    found = tuple(label.strip() for label in text.split(","))
    if len(found) < 2:
        raise typer.BadParameter(
            f"{text!r} must be two labels or more with commas between them",
            param_hint="'--classes'",
        )
    return found
