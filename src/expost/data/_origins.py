"""Where rows come from: files and tables in memory, each turned into a relation of raw columns.

A raw column is an SQL expression with the type its source declares. CSV declares none: its cells
are text until all of them have been looked at (``expost.data.sources``).
"""

import glob
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from expost.data._csv import LONGEST_RECORD, CsvShape, read_shape
from expost.data._duck import Relation, glob_quoted, identifier, string
from expost.errors import InvalidInput

__all__ = ["Origin", "RawColumn", "plain", "raw"]

# cell: of a CSV file. other: a type that cannot become a feature (dates, lists, binary …).
RawType = Literal["cell", "text", "integer", "float", "boolean", "other"]

_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"
_NUMBER = re.compile(r"[+-]?[0-9.]*[0-9][0-9.]*([eE][+-]?[0-9]+)?")
_GLOB_MARKS = frozenset("*?[")


@dataclass(frozen=True, kw_only=True)
class RawColumn:
    """A column as its source has it; ``categorical`` where the source declares it so."""

    name: str
    sql: str
    type: RawType
    described: str
    categorical: bool = False


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A relation, its raw columns and its number of rows.

    ``doubtful_header``: a CSV file whose first line may have been a row. ``parquet``: its files can
    be entered anywhere.
    """

    relation: Relation
    columns: tuple[RawColumn, ...]
    rows: int
    doubtful_header: bool = False
    parquet: bool = False

    def __getitem__(self, name: str) -> RawColumn:
        """The column called ``name``."""
        return next(column for column in self.columns if column.name == name)


def raw(source: Any, *, delimiter: str | None) -> Origin:
    """The raw columns of a path, a glob, a frame, an Arrow table or a dict of columns."""
    if isinstance(source, str | Path):
        paths = _paths(source)
        if _starts_with(paths[0], _PARQUET):
            return _parquet(paths)
        return _csv(paths, delimiter)
    return _in_memory(source)


def _paths(source: str | Path) -> list[Path]:
    """The file, or the files that a glob matches, sorted by name."""
    path = Path(source)
    text = str(source)
    try:
        if path.exists() or not _GLOB_MARKS & set(text):
            found = [path]
        else:
            found = [Path(name) for name in sorted(glob.glob(text, recursive=True))]
            found = [path for path in found if not path.is_dir()]
    except (OSError, ValueError):  # a name too long, or with a NUL
        raise InvalidInput(f"{text!r}: is not a file name.") from None
    if not found:
        raise InvalidInput(f"{text}: no file matches.")
    for path in found:
        if path.is_dir():
            raise InvalidInput(f"{path}: is a folder: name a file, or a glob such as {path}/*.csv.")
        if not path.exists():
            raise InvalidInput(f"{path}: no such file.")
        if not path.is_file():
            raise InvalidInput(f"{path}: is not a regular file: it is read more than once.")
    return found


def _starts_with(path: Path, mark: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(mark)) == mark
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None


def _label(paths: Sequence[Path]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} … {paths[-1]}"


def _stamps(paths: Sequence[Path]) -> tuple[tuple[Path, int, int], ...]:
    return tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in paths)


def _csv(paths: Sequence[Path], delimiter: str | None) -> Origin:
    stamps = _stamps(paths)
    shapes = [
        read_shape(path, compressed=_starts_with(path, _GZIP), delimiter=delimiter)
        for path in paths
    ]
    first = shapes[0]
    for path, shape in zip(paths, shapes, strict=True):
        if replace(shape, records=first.records) != first:
            raise InvalidInput(
                f"{path}: differs from {paths[0]} in its header, delimiter, line ends or"
                " compression: files read together must agree in all of them."
            )
    label = _label(paths)
    _check_names(label, first.names)
    columns = tuple(
        RawColumn(name=name, sql=f"c{index}", type="cell", described="text")
        for index, name in enumerate(first.names)
    )
    relation = Relation(label=label, clause=_read_csv(paths, first), files=stamps)
    return Origin(
        relation=relation,
        columns=columns,
        rows=sum(shape.records for shape in shapes),
        doubtful_header=any(_NUMBER.fullmatch(name) for name in first.names),
    )


def _read_csv(paths: Sequence[Path], shape: CsvShape) -> str:
    """DuckDB's reader with nothing left to guess; columns are called c0, c1, …"""
    files = ", ".join(glob_quoted(path) for path in paths)
    columns = ", ".join(f"'c{index}': 'VARCHAR'" for index in range(len(shape.names)))
    compression = "gzip" if shape.compressed else "none"
    return (
        f"read_csv([{files}], auto_detect = false, columns = {{{columns}}}, header = true,"
        f" delim = {string(shape.delimiter)}, quote = '\"', escape = '\"', comment = '',"
        f" compression = '{compression}', max_line_size = {LONGEST_RECORD + 1000},"
        " strict_mode = true, null_padding = false, ignore_errors = false)"
    )


def _parquet(paths: Sequence[Path]) -> Origin:
    stamps = _stamps(paths)
    schemas, rows = [], 0
    for path in paths:
        try:
            with pa.parquet.ParquetFile(path) as file:
                schemas.append(file.schema_arrow)
                rows += file.metadata.num_rows
        except (pa.ArrowException, OSError, ValueError):
            raise InvalidInput(
                f"{path}: is not a whole Parquet file; write or copy it again."
            ) from None
    for path, schema in zip(paths, schemas, strict=True):
        if not schema.equals(schemas[0], check_metadata=False):
            raise InvalidInput(
                f"{path}: its columns or types differ from those of {paths[0]}: files read"
                " together must agree in them."
            )
    label = _label(paths)
    _check_names(label, schemas[0].names)
    columns = tuple(
        _typed(field.name, f"c{index}", field.type) for index, field in enumerate(schemas[0])
    )
    files = ", ".join(glob_quoted(path) for path in paths)
    renamed = ", ".join(f"{identifier(column.name)} AS {column.sql}" for column in columns)
    clause = (
        f"(SELECT {renamed} FROM"
        f" read_parquet([{files}], hive_partitioning = false, union_by_name = false))"
    )
    return Origin(
        relation=Relation(label=label, clause=clause, files=stamps),
        columns=columns,
        rows=rows,
        parquet=True,
    )


def _in_memory(source: Any) -> Origin:
    arrays = _arrays(source)
    label = "the table"
    names = [name for name, _ in arrays]
    _check_names(label, names)
    lengths = {len(array) for _, array in arrays}
    if len(lengths) > 1:
        raise InvalidInput(
            f"{label}: its columns have different lengths: all must have one cell a row."
        )
    columns, kept = [], {}
    for index, (name, array) in enumerate(arrays):
        column = _typed(name, f"c{index}", array.type)
        columns.append(column)
        if column.type != "other":
            kept[f"c{index}"] = plain(array)
    return Origin(
        relation=Relation(label=label, clause="source", arrow=pa.table(kept)),
        columns=tuple(columns),
        rows=lengths.pop() if lengths else 0,
    )


def _arrays(source: Any) -> list[tuple[str, Any]]:
    """(name, Arrow array) of each column; the frame libraries are recognised, not imported."""
    module = type(source).__module__.partition(".")[0]
    kind = type(source).__name__
    if module == "pandas" and kind == "DataFrame":
        # A NaN in a pandas frame is a missing cell.
        return [
            (str(name), _array(str(name), source.iloc[:, index], from_pandas=True))
            for index, name in enumerate(source.columns)
        ]
    if module == "polars" and kind == "LazyFrame":
        raise InvalidInput("the table is a polars LazyFrame: pass it collected, .collect().")
    if module == "polars" and kind == "DataFrame":
        source = source.to_arrow()
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        return list(zip(source.column_names, source.columns, strict=True))
    if isinstance(source, Mapping):
        return [(str(name), _array(str(name), values)) for name, values in source.items()]
    raise InvalidInput(
        f"a {kind} cannot be read as a table: pass a path, a glob, a pandas or polars frame, a"
        " pyarrow table or a dict of columns."
    )


def _array(name: str, values: Any, *, from_pandas: bool = False) -> Any:
    problem = "cannot be read as a column of one type; convert it to numbers or text."
    if isinstance(values, np.ma.MaskedArray):
        raise InvalidInput(f"column {name!r}: is a masked array; pass a list with None for these.")
    try:
        array = pa.array(values, from_pandas=from_pandas)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InvalidInput(f"column {name!r}: {problem}") from None
    if not isinstance(array, pa.Array | pa.ChunkedArray):
        raise InvalidInput(f"column {name!r}: {problem}")
    return array


def plain(array: Any) -> Any:
    """``array`` in a type that DuckDB scans: no dictionaries, half floats or wide decimals."""
    type_ = array.type
    if pa.types.is_dictionary(type_):
        array = array.cast(type_.value_type)
        type_ = array.type
    if pa.types.is_null(type_):
        return array.cast(pa.string())
    if pa.types.is_float16(type_) or pa.types.is_decimal(type_):
        return array.cast(pa.float64())
    if pa.types.is_string_view(type_):
        return array.cast(pa.large_string())
    return array


def _typed(name: str, sql: str, type_: Any) -> RawColumn:
    """The raw column that an Arrow type declares."""
    categorical = pa.types.is_dictionary(type_)
    value = type_.value_type if categorical else type_
    kind: RawType = "other"
    if pa.types.is_integer(value):
        kind = "integer"
    elif pa.types.is_floating(value) or pa.types.is_decimal(value):
        kind = "float"
    elif pa.types.is_boolean(value):
        kind = "boolean"
    elif (
        pa.types.is_string(value)
        or pa.types.is_large_string(value)
        or pa.types.is_string_view(value)
        or pa.types.is_null(value)
    ):
        kind = "text"
    return RawColumn(name=name, sql=sql, type=kind, described=str(type_), categorical=categorical)


def _check_names(label: str, names: Sequence[str]) -> None:
    """Names are present, free of control characters, and differ in more than their case."""
    if not names:
        raise InvalidInput(f"{label}: has no columns: must have at least one.")
    seen: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if not name.strip():
            raise InvalidInput(f"{label}: column {position} has no name; name every column.")
        if any(ord(mark) < 32 or ord(mark) == 127 for mark in name):
            raise InvalidInput(
                f"{label}: the name of column {position} holds a control character; rename it."
            )
        # Positions, not names: without a header the first line is a row.
        other = seen.setdefault(name.casefold(), position)
        if other != position:
            raise InvalidInput(
                f"{label}: columns {other} and {position} have the same name, but for case at most:"
                " names must differ; rename one (or is the header line missing?)."
            )
