"""Arrow files and datasets as feeds: read a record batch at a time, in order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.ipc

from expost.data._raw import plain
from expost.errors import InvalidInput

__all__ = ["DatasetFeed", "IpcFeed", "ipc_shape"]

_FETCH = 2**14
_NOTHING = ("nothing", pa.null())


def ipc_shape(path: Path) -> tuple[Any, int]:
    """The schema of an Arrow IPC (Feather) file, and its number of rows."""
    try:
        with pa.memory_map(str(path)) as file:
            schema = pa.ipc.open_file(file).schema
            first = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=[0]))
            batches = map(first.get_batch, range(first.num_record_batches))
            return schema, sum(batch.num_rows for batch in batches)
    except (pa.ArrowException, OSError, ValueError):
        raise _broken(path) from None


@dataclass(frozen=True, kw_only=True, eq=False)
class IpcFeed:
    """Arrow IPC files of one schema, one after another; no type where a column cannot be used."""

    paths: tuple[Path, ...]
    types: tuple[Any, ...]

    def schema(self, names: Sequence[str]) -> Any:
        """The columns asked for, in types that DuckDB scans."""
        return _schema(self.types, names)

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        """The batches of the files."""
        schema = self.schema(names)
        # None at all would mean every one.
        options = pa.ipc.IpcReadOptions(included_fields=_places(schema) or [0])
        for path in self.paths:
            try:
                with pa.memory_map(str(path)) as file:
                    reader = pa.ipc.open_file(file, options=options)
                    for index in range(reader.num_record_batches):
                        yield from _cut(reader.get_batch(index), schema)
            except (pa.ArrowException, OSError, ValueError):
                raise _broken(path) from None


@dataclass(frozen=True, kw_only=True, eq=False)
class DatasetFeed:
    """A pyarrow dataset, in the order of its fragments."""

    dataset: Any
    types: tuple[Any, ...]

    def schema(self, names: Sequence[str]) -> Any:
        """The columns asked for, in types that DuckDB scans."""
        return _schema(self.types, names)

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        """The batches of the fragments."""
        schema = self.schema(names)
        wanted = [self.dataset.schema.names[place] for place in _places(schema)]
        try:
            for batch in self.dataset.to_batches(
                columns=wanted, batch_size=_FETCH, batch_readahead=2, fragment_readahead=1
            ):
                yield from _cut(batch, schema)
        except (pa.ArrowException, OSError, ValueError):
            raise InvalidInput(
                "the dataset: could not be read to its end; check its files."
            ) from None


def _schema(types: Sequence[Any], names: Sequence[str]) -> Any:
    places = sorted(place for place in map(_place, names) if place < len(types))
    known = [(place, types[place]) for place in places if types[place] is not None]
    fields = [(f"c{place}", plain(pa.array([], type_)).type) for place, type_ in known]
    # Rows are counted by a column of nothing, where no other is asked for.
    return pa.schema(fields or [_NOTHING])


def _places(schema: Any) -> list[int]:
    return [_place(name) for name in schema.names if name != _NOTHING[0]]


def _cut(batch: Any, schema: Any) -> Iterator[Any]:
    """The batch in parts, checked in every cell: a file may hold anything."""
    batch.validate(full=True)
    if schema.names == [_NOTHING[0]]:
        arrays = [pa.nulls(batch.num_rows, _NOTHING[1])]
    else:
        arrays = [plain(column) for column in batch.columns]
    whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
    for start in range(0, whole.num_rows, _FETCH):
        yield whole.slice(start, _FETCH)


def _place(name: str) -> int:
    return int(name.removeprefix("c"))


def _broken(path: Path) -> InvalidInput:
    return InvalidInput(f"{path}: is not a whole Arrow file; write or copy it again.")
