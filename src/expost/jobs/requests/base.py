"""What the requests of several commands share: options, and the classes that hold them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from expost.jobs.options import (
    CRITERIA,
    RESULTS,
    TABLE,
    WORK,
    Option,
    flag_of,
    options_of,
    read_baseline,
    read_bytes,
)

if TYPE_CHECKING:
    from expost.jobs.streaming import Streaming

__all__ = [
    "BASELINE",
    "MISSING",
    "RELATIONS",
    "AnswerRequest",
    "Baseline",
    "BlocksRequest",
    "CuratorJson",
    "Dropped",
    "FolderRequest",
    "JsonLog",
    "Key",
    "Missing",
    "PageRequest",
    "PredictedColumn",
    "Request",
    "RowsRequest",
    "WorkRequest",
    "command_line",
    "ledger_option",
    "table_option",
]

RELATIONS = ("remove", "replace")
# Cells that count as missing, those of `expost.data.MISSING`.
MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "NULL", "null")
CuratorJson = Annotated[
    bool,
    Option(
        "The same with curator-only figures; keep it out of logs.", RESULTS, flag="--json-curator"
    ),
]
JsonLog = Annotated[bool, Option("Log progress to stderr as JSON lines.", WORK)]
PredictedColumn = Annotated[
    str | None, Option("Column that the model predicts.", TABLE, metavar="COLUMN")
]
Key = Annotated[
    str | None, Option("Column that identifies the rows.", TABLE, flag="--id", metavar="COLUMN")
]
Dropped = Annotated[
    tuple[str, ...], Option("Column to leave out (repeatable).", TABLE, metavar="COLUMN")
]
Missing = Annotated[
    tuple[str, ...],
    Option(
        "String of missing cells (repeatable).",
        TABLE,
        metavar="TOKEN",
        default="'', ?, NA, NaN, NULL, …",
    ),
]
BASELINE = Option(
    "Bound re-identification, attribute inference and reconstruction by an attacker who"
    " succeeds with this probability without the release, as 0.001 or 1/1000; or NAME=P for"
    " some of re-identification, attribute-inference and reconstruction.",
    CRITERIA,
    metavar="P",
    read=read_baseline,
)
Baseline = Annotated[float | Mapping[str, float] | None, BASELINE]


def ledger_option(default: str) -> Option:
    """Return the option of the ledger, with the default of a command."""
    return Option("Ledger of the data set.", RESULTS, metavar="FILE", default=default)


def table_option(help: str, panel: str | None = None) -> Option:
    """Return the option of a table; without a panel it is an argument."""
    return Option(help, panel, metavar="DATA", kind=str)


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of every command.

    Parameters
    ----------
    stated : tuple[str, ...], default=()
        The options on the command line, also those that repeat a default.
    """

    stated: tuple[str, ...] = ()
    as_json: Annotated[
        bool, Option("Print public figures as one JSON object.", RESULTS, flag="--json")
    ] = False

    @property
    def prints_json(self) -> bool:
        """Whether JSON is printed in place of text."""
        return self.as_json or bool(getattr(self, "curator_json", False))

    def is_given(self, name: str) -> bool:
        """Return whether an option was given: stated, or other than its default."""
        value, default = getattr(self, name), {item.name: item.default for item in fields(self)}
        differs = value is not None and (default[name] is None or value != default[name])
        return name in self.stated or bool(differs)

    def sets(self, name: str) -> bool:
        """Return whether an option was given a value of its own, and not the word auto."""
        return self.is_given(name) and getattr(self, name) != "auto"


@dataclass(frozen=True, kw_only=True)
class PageRequest(Request):
    """The options of a command that writes a page."""

    force: Annotated[bool, Option("Overwrite the results of an earlier run in DIR.", RESULTS)] = (
        False
    )
    open_page: Annotated[
        bool, Option("Open the report in your browser.", RESULTS, flag="--open")
    ] = False


@dataclass(frozen=True, kw_only=True)
class FolderRequest(PageRequest):
    """The options of a command that writes a folder."""

    curator_json: CuratorJson = False
    out: Annotated[
        Path,
        Option("Folder for the results.", RESULTS, metavar="DIR", default="a new one, expost-…"),
    ]


@dataclass(frozen=True, kw_only=True)
class WorkRequest(FolderRequest):
    """The options of a command that can be resumed."""

    resume: Annotated[
        bool, Option("Continue the unfinished run (default: the only one).", WORK)
    ] = False
    log_json: JsonLog = False


@dataclass(frozen=True, kw_only=True)
class RowsRequest(WorkRequest):
    """The options of a command that reads the rows of a table.

    Parameters
    ----------
    source : Any
        A path, glob, address of a database, :class:`~expost.data.Query`, frame, Arrow table or Dask
        dataframe.
    name : str, optional
        The name of the table in results; None: the name of its file.
    """

    source: Any
    name: str | None = None
    query: Annotated[
        str | None,
        Option("SELECT or name of a table, for a database.", TABLE, metavar="SELECT"),
    ] = None
    id_column: Key = None

    def __post_init__(self) -> None:
        """Turn the address of a database into a query, which shows no password."""
        from expost.data._query import query_of

        if self.source is None:
            if self.query is not None:
                from expost.errors import InvalidInput

                raise InvalidInput("--query: name the database of the query as DATA.")
            return
        object.__setattr__(self, "source", query_of(self.source, self.query, self.id_column))
        object.__setattr__(self, "query", None)

    @property
    def title(self) -> str:
        """The name of the table in results."""
        if self.name is not None:
            return self.name
        if isinstance(self.source, str | Path):
            return Path(self.source).name
        return str(getattr(self.source, "title", "a table"))


@dataclass(frozen=True, kw_only=True)
class BlocksRequest(RowsRequest):
    """The options of a command that can process a table in blocks."""

    engine: Annotated[
        Any,
        Option(
            "Process the table in blocks on local, local:4, dask or dask://host:port.",
            WORK,
            metavar="NAME",
            kind=str,
            choices=("local", "dask"),
        ),
    ] = None
    memory: Annotated[
        int | None,
        Option(
            "Most memory to use, e.g. 2GiB: in blocks if the rows need more.",
            WORK,
            metavar="SIZE",
            read=read_bytes,
            default="half of the available memory",
        ),
    ] = None

    @property
    def streaming(self) -> "Streaming":
        """Whether and where rows are processed in blocks."""
        from expost.jobs.streaming import Streaming

        return Streaming(engine=self.engine, resume=self.resume, memory=self.memory)


@dataclass(frozen=True, kw_only=True)
class AnswerRequest(PageRequest):
    """The options of a command that prints an answer, and writes a page on request."""

    out: Annotated[
        Path | None,
        Option(
            "Folder for a page of the answer, with the same as Markdown and JSON.",
            RESULTS,
            metavar="DIR",
            default="no page, or with --open a private temporary folder",
        ),
    ] = None


def command_line(
    request: "RowsRequest",
    name: str,
    command: type,
    panels: Collection[str],
    *more: str,
    drop: str | None = None,
) -> tuple[str, ...] | None:
    """Return another command on the same table; None if the table is not in a file.

    It has the given options of these panels and ``more`` arguments, and leaves out the column
    ``drop``. An address of a database may contain a password, and is not repeated.
    """
    in_files = isinstance(request.source, str | Path)
    if not in_files or not isinstance(getattr(request, "encoding", None), Path | None):
        return None
    left = () if drop is None else ("--drop", drop)
    return ("expost", name, *_arguments(request, command, (None, *panels)), *left, *more)


def _arguments(request: "Request", command: type, panels: Collection[str | None]) -> list[str]:
    arguments: list[str] = []
    taken = options_of(command)
    for name, option in options_of(type(request)).items():
        if name not in taken or option.panel not in panels or not request.is_given(name):
            continue
        value = getattr(request, name)
        if isinstance(value, tuple) and option.read is not None:
            value = ",".join(map(str, value))
        values = value if isinstance(value, tuple) else (value,)
        flags = () if option.panel is None else (flag_of(name, option),)
        arguments += [part for value in values for part in (*flags, str(value))]
    return arguments
