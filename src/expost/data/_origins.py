"""Files, databases and tables in memory, as feeds of raw columns.

A raw column has the type that its source declares. CSV declares none: its cells are strings until
a pass over all of them (``expost.data.sources``).
"""

import glob
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from expost.data._cells import RawColumn, check_names, declared, one_type, typed
from expost.data._csv import csv_batches, read_shape
from expost.data._databases import database
from expost.data._feeds import (
    Origin,
    ParquetFeed,
    Stamp,
    StreamFeed,
    broken,
    checked,
    no_columns,
    reading_arrow,
)
from expost.data._query import Query
from expost.errors import InvalidInput

if TYPE_CHECKING:
    from expost.engine import Engine

__all__ = ["arrow_array", "columns_of", "files_of", "is_frame", "open_origin"]

_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"
_ARROW = b"ARROW1"
# Rows of a dataset that are read at a time.
_FETCH = 2**14
# Hive's name for a null.
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_NUMBER = re.compile(r"[+-]?[0-9.]*[0-9][0-9.]*([eE][+-]?[0-9]+)?")
_GLOB_MARKS = frozenset("*?[")
_ROW_NAMES = (
    "The first column has no name and was left out, as the row names that pandas and R write; name"
    " it to use it."
)


def open_origin(
    source: Any, *, delimiter: str | None = None, engine: "Engine | None" = None
) -> Origin:
    """Open a source of rows: a path, a glob, a folder, a query, a frame or a dict of columns."""
    if isinstance(source, Query):
        return database(source)
    if isinstance(source, str | Path):
        if _is_folder(source):
            return _folder(Path(source))
        paths = _paths(source)
        if _starts_with(paths[0], _PARQUET):
            return _parquet(paths)
        if _starts_with(paths[0], _ARROW):
            return _arrow_files(paths)
        return _csv(paths, delimiter)
    if _is_dataset(source):
        return _dataset(source)
    if type(source).__module__.startswith("dask.dataframe") and hasattr(source, "columns"):
        # Imported here: it imports this module.
        from expost.data.dask_rows import frame_origin

        return frame_origin(source, engine)
    return _in_memory(source)


def files_of(source: Any) -> tuple[Path, ...]:
    """Return the files that a source of rows is read from.

    Parameters
    ----------
    source : Any
        A source of :func:`open_table`.

    Returns
    -------
    tuple of Path
        Empty for rows that are not in files, and for a source that cannot be read.
    """
    if isinstance(source, Query):
        if source.kind != "sqlite":
            return ()
        names = [str(source.path) + ending for ending in ("", "-wal", "-shm", "-journal")]
        return tuple(Path(name) for name in names if os.path.exists(name))
    if _is_dataset(source):
        return tuple(Path(name) for name in getattr(source, "files", ()))
    if not isinstance(source, str | Path):
        return ()
    try:
        return tuple(_parquet_files(Path(source)) if _is_folder(source) else _paths(source))
    except InvalidInput:
        # An error is raised when it is opened.
        return ()


def _is_dataset(source: Any) -> bool:
    """Return whether ``source`` is a pyarrow dataset.

    The module of datasets, which imports pandas, is not imported: a program that has a dataset has
    imported it already.
    """
    module = sys.modules.get("pyarrow.dataset")
    return module is not None and isinstance(source, module.Dataset)


def _is_folder(source: str | Path) -> bool:
    try:
        return Path(source).is_dir()
    except (OSError, ValueError):
        return False


def _folder(folder: Path) -> Origin:
    """Open the Parquet files of a folder, by name; folders ``column=cell`` hold a column."""
    paths = _parquet_files(folder)
    if not paths:
        raise InvalidInput(
            f"{folder}: is a folder without Parquet files: name a file, or a glob such as"
            f" {folder}/*.csv."
        )
    for path in paths:
        if not _starts_with(path, _PARQUET):
            raise broken(path, "Parquet")
    cells = [_partition(path.relative_to(folder).parts[:-1]) for path in paths]
    for path, partition in zip(paths, cells, strict=True):
        if list(partition) != list(cells[0]):
            raise InvalidInput(
                f"{path}: its folders name other columns than those of {paths[0]}: files read"
                " together must agree in them."
            )
    partitions = tuple((name, tuple(partition[name] for partition in cells)) for name in cells[0])
    return _parquet(paths, partitions, label=str(folder))


def _parquet_files(folder: Path) -> list[Path]:
    paths = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        paths += [Path(parent, name) for name in files if name.endswith((".parquet", ".pq"))]
    return sorted(path for path in paths if not path.name.startswith((".", "_")))


def _partition(folders: Sequence[str]) -> dict[str, str | None]:
    """Return the columns in the names of folders, with their cells."""
    cells: dict[str, str | None] = {}
    for folder in folders:
        name, mark, cell = folder.partition("=")
        if mark:
            cells[name] = None if cell == _NULL_PARTITION else unquote(cell)
    return cells


def _paths(source: str | Path) -> list[Path]:
    """Return the file, or the files that a glob matches, sorted by name."""
    path = Path(source)
    pattern = str(source)
    try:
        if path.exists() or not _GLOB_MARKS & set(pattern):
            paths = [path]
        else:
            paths = [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]
            paths = [path for path in paths if not path.is_dir()]
    except (OSError, ValueError):  # a name too long, or with a NUL
        raise InvalidInput(f"{pattern!r}: is not a file name.") from None
    if not paths:
        raise InvalidInput(f"{pattern}: no file matches.")
    for path in paths:
        if not path.exists():
            raise InvalidInput(f"{path}: no such file.")
        if not path.is_file():
            raise InvalidInput(f"{path}: is not a regular file: it is read more than once.")
    return paths


def _starts_with(path: Path, mark: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(mark)) == mark
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None


def _label(paths: Sequence[Path]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} … {paths[-1]}"


def _stamps(paths: Sequence[Path]) -> tuple[Stamp, ...]:
    return tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in paths)


def _csv(paths: Sequence[Path], delimiter: str | None) -> Origin:
    stamps = _stamps(paths)
    shapes = [
        read_shape(path, compressed=_starts_with(path, _GZIP), delimiter=delimiter)
        for path in paths
    ]
    first = shapes[0]
    for path, shape in zip(paths, shapes, strict=True):
        if shape != first:
            raise InvalidInput(
                f"{path}: differs from {paths[0]} in its header, delimiter, line ends or"
                " compression: files read together must agree in all of them."
            )
    label = _label(paths)
    # A first column without a name holds the names of the rows, as pandas and R write them.
    skipped = int(len(first.names) > 1 and not first.names[0])
    names = first.names[skipped:]
    check_names(label, names, start=1 + skipped)

    def batches(indices: Sequence[int], check: bool) -> Iterator[Any]:
        own = [index + skipped for index in indices]
        for path in paths:
            yield from csv_batches(path, first, own, check=check)

    return Origin(
        label=label,
        feed=StreamFeed(label=label, batches=batches, files=stamps),
        columns=tuple(RawColumn(name=name, type="cell", described="text") for name in names),
        rows=None,
        files=stamps,
        doubtful_header=any(_NUMBER.fullmatch(name) for name in names),
        notice=_ROW_NAMES if skipped else "",
    )


def _parquet(
    paths: Sequence[Path],
    partitions: tuple[tuple[str, tuple[str | None, ...]], ...] = (),
    *,
    label: str | None = None,
) -> Origin:
    stamps = _stamps(paths)
    schemas, rows = [], 0
    for path in paths:
        with reading_arrow(path, "Parquet"), pa.parquet.ParquetFile(path) as file:
            schemas.append(file.schema_arrow)
            rows += file.metadata.num_rows
    _check_schemas(paths, schemas)
    label = label or _label(paths)
    columns = declared(label, schemas[0])
    check_names(label, [*(column.name for column in columns), *(name for name, _ in partitions)])
    feed = ParquetFeed(
        names=tuple(column.name for column in columns),
        files=stamps,
        partitions=tuple(cells for _, cells in partitions),
    )
    constants = (RawColumn(name=name, type="mixed", described="text") for name, _ in partitions)
    return Origin(label=label, feed=feed, columns=(*columns, *constants), rows=rows, files=stamps)


def _check_schemas(paths: Sequence[Path], schemas: Sequence[Any]) -> None:
    for path, schema in zip(paths, schemas, strict=True):
        if not schema.equals(schemas[0], check_metadata=False):
            raise InvalidInput(
                f"{path}: its columns or types differ from those of {paths[0]}: files read"
                " together must agree in them."
            )


def _arrow_origin(
    label: str,
    schema: Any,
    rows: int,
    batches: Callable[[Sequence[int], bool], Iterator[Any]],
    files: tuple[Stamp, ...] = (),
) -> Origin:
    columns = declared(label, schema)
    check_names(label, [column.name for column in columns])
    feed = StreamFeed(label=label, batches=batches, files=files)
    return Origin(label=label, feed=feed, columns=columns, rows=rows, files=files)


def _arrow_files(paths: Sequence[Path]) -> Origin:
    stamps = _stamps(paths)
    schemas, rows = [], 0
    for path in paths:
        with reading_arrow(path, "Arrow"), pa.memory_map(str(path)) as file:
            schemas.append(pa.ipc.open_file(file).schema)
            rows += sum(batch.num_rows for batch in _ipc_batches(file, ()))
    _check_schemas(paths, schemas)

    def batches(indices: Sequence[int], first: bool) -> Iterator[Any]:
        # Arrow returns the columns in the order of the file.
        order = sorted(indices)
        for path in paths:
            with reading_arrow(path, "Arrow"), pa.memory_map(str(path)) as file:
                for batch in map(checked, _ipc_batches(file, order)):
                    yield batch.select([order.index(index) for index in indices] or [0])

    return _arrow_origin(_label(paths), schemas[0], rows, batches, stamps)


def _ipc_batches(file: Any, indices: Sequence[int]) -> Iterator[Any]:
    """Return the batches of an Arrow IPC (Feather) file, with the first column if none is named.

    For Arrow an empty list means all columns.
    """
    options = pa.ipc.IpcReadOptions(included_fields=list(indices) or [0])
    reader = pa.ipc.open_file(file, options=options)
    return map(reader.get_batch, range(reader.num_record_batches))


def _dataset(source: Any) -> Origin:
    label = "the dataset"
    try:
        rows = source.count_rows()
    except (pa.ArrowException, OSError, ValueError):
        raise InvalidInput(f"{label}: cannot be read; check its files.") from None

    def batches(indices: Sequence[int], first: bool) -> Iterator[Any]:
        names = [source.schema.names[index] for index in indices]
        try:
            for batch in source.to_batches(
                columns=names, batch_size=_FETCH, batch_readahead=2, fragment_readahead=1
            ):
                yield checked(batch) if names else no_columns(batch.num_rows)
        except (pa.ArrowException, OSError, ValueError):
            raise InvalidInput(f"{label}: could not be read to its end; check its files.") from None

    return _arrow_origin(label, source.schema, rows, batches)


def _in_memory(source: Any) -> Origin:
    arrays = columns_of(source)
    label = "the table"
    names = [name for name, _ in arrays]
    check_names(label, names)
    lengths = {len(array) for _, array in arrays}
    if len(lengths) > 1:
        raise InvalidInput(
            f"{label}: its columns have different lengths: all must have one cell per row."
        )
    table = pa.table([array for _, array in arrays], names=names)
    return Origin(
        label=label,
        feed=StreamFeed.held(label, table),
        columns=tuple(typed(name, array.type) for name, array in arrays),
        rows=lengths.pop() if lengths else 0,
    )


def is_frame(source: Any) -> bool:
    """Return whether ``source`` is a table in memory whose columns have names.

    These are pandas and polars frames, Arrow tables and record batches, and mappings.

    Parameters
    ----------
    source : Any
        Any object.

    Returns
    -------
    bool
        False for an array, a path and a query.
    """
    library = type(source).__module__.partition(".")[0]
    frame = library in ("pandas", "polars") and type(source).__name__ in ("DataFrame", "LazyFrame")
    return frame or isinstance(source, pa.Table | pa.RecordBatch | Mapping)


def columns_of(source: Any) -> list[tuple[str, Any]]:
    """Return (name, Arrow array) of each column, without an import of the frame libraries."""
    module = type(source).__module__.partition(".")[0]
    kind = type(source).__name__
    if module == "pandas" and kind == "DataFrame":
        # A NaN in a pandas frame is a missing cell.
        return [
            (str(name), arrow_array(str(name), source.iloc[:, index], from_pandas=True))
            for index, name in enumerate(source.columns)
        ]
    if module == "polars" and kind == "LazyFrame":
        raise InvalidInput("the table is a polars LazyFrame: pass the result of its .collect().")
    if module == "polars" and kind == "DataFrame":
        source = source.to_arrow()
    if isinstance(source, pa.RecordBatchReader):
        raise InvalidInput(
            "a RecordBatchReader can be read once, and the rows are read more than once: pass"
            " .read_all(), a file or a pyarrow dataset."
        )
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        names = [column.name for column in declared("the table", source.schema)]
        return list(zip(names, source.columns, strict=True))
    if isinstance(source, Mapping):
        return [(str(name), arrow_array(str(name), values)) for name, values in source.items()]
    raise InvalidInput(
        f"a {kind} cannot be read as a table: pass a path, a glob, a pandas or polars frame, a"
        " pyarrow table or dataset, or a dict of columns."
    )


def arrow_array(name: str, values: Any, *, from_pandas: bool = False) -> Any:
    """Return the cells of a column as an Arrow array; with ``from_pandas`` NaN is missing."""
    if isinstance(values, np.ma.MaskedArray):
        raise InvalidInput(
            f"column {name!r}: is a masked array; pass a list with None for masked cells."
        )
    with one_type(name):
        array = pa.array(values, from_pandas=from_pandas)
        if not isinstance(array, pa.Array | pa.ChunkedArray):
            raise TypeError
    return array
