"""Frames and arrays in memory, without their labels, as tables.

The columns of a frame have names: a pandas or polars frame, an Arrow table, a dict of columns. The
columns of an array are called x0, x1, …, as in scikit-learn.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost import _checks
from expost.data._entries import label, range_of
from expost.data._origins import arrow_array, columns_of, is_frame
from expost.errors import InvalidInput
from expost.labels import label_array

__all__ = ["frame_of", "given_ranges", "is_frame", "label_values", "position_names"]
__all__ += ["target_name", "text_columns", "with_target"]


def position_names(count: int) -> list[str]:
    """Return the names of the columns of an array."""
    return [f"x{column}" for column in range(count)]


def frame_of(X: Any) -> pa.Table:
    """Return a frame or an array as an Arrow table."""
    _checks.dense(X, "X")
    if is_frame(X):
        columns = columns_of(X)
    else:
        array = _checks.array(X, "X")
        if array.ndim != 2:
            raise InvalidInput(
                f"X has {array.ndim} dimensions: must have two, rows and columns; reshape a single"
                " column with X.reshape(-1, 1)."
            )
        names = position_names(array.shape[1])
        columns = [
            (name, arrow_array(name, np.ascontiguousarray(array[:, index])))
            for index, name in enumerate(names)
        ]
    arrays = [column for _, column in columns]
    if len({len(column) for column in arrays}) > 1:
        raise InvalidInput("X: its columns have different lengths: all must have one cell per row.")
    return pa.Table.from_arrays(arrays, names=[name for name, _ in columns])


def with_target(X: Any, y: Any, name: str) -> pa.Table:
    """Return rows and their labels as one table, the labels in a last column called ``name``."""
    frame = X if isinstance(X, pa.Table) else frame_of(X)
    if name in frame.column_names:
        raise InvalidInput(
            f"X: has a column {name!r}, which is the name of the labels y; drop it from X."
        )
    labels = _labels(y, name)
    if len(labels) != frame.num_rows:
        raise InvalidInput(
            f"y has {len(labels)} entries: must have one for each of {frame.num_rows} rows."
        )
    return frame.append_column(name, labels)


def _labels(y: Any, name: str) -> Any:
    """Return labels as an Arrow array; NaN in pandas is missing."""
    if y is None:
        raise InvalidInput("y=None: pass the labels of the rows.")
    module = type(y).__module__.partition(".")[0]
    if module == "pandas" and np.ndim(y) == 1:
        return arrow_array(name, y, from_pandas=True)
    if isinstance(y, pa.Array | pa.ChunkedArray):
        return y
    if module == "polars" and hasattr(y, "to_arrow") and np.ndim(y) == 1:
        return y.to_arrow()
    return arrow_array(name, label_array(y))


def target_name(y: Any, columns: Sequence[str]) -> str:
    """Return the name of a column of these labels: that of the series, or y."""
    taken = {column.casefold() for column in columns}
    own = getattr(y, "name", None)
    if isinstance(own, str) and own.strip() and own.casefold() not in taken:
        return own
    name = "y"
    while name in taken:
        name += "_"
    return name


def label_values(classes: Sequence[str], y: Any) -> NDArray[Any]:
    """Return the labels in ``y`` of the ``classes``, in their order.

    A class that no row has is a number if the labels in ``y`` are, else a string.
    """
    array = label_array(y)
    present = array.tolist() if array.dtype == object else np.unique(array).tolist()
    known: dict[str, Any] = {}
    for value in present:
        known.setdefault(label(value, name="y"), value)
    if array.dtype.kind in "iuf":
        for name in classes:
            known.setdefault(name, _number(name))
    return np.array([known.get(name, name) for name in classes])


def _number(name: str) -> Any:
    try:
        value = float(name)
    except ValueError:
        return name
    return int(value) if value.is_integer() else value


def given_ranges(ranges: Any, columns: Sequence[str]) -> dict[str, Any]:
    """Return the encoding that maps the (low, high) of each column linearly to [−1, 1].

    It is a given part of an encoding: mean (low + high)/2, scale (high − low)/2, and values outside
    of the range are cut.
    """
    if isinstance(ranges, Mapping):
        pairs = {str(name): pair for name, pair in ranges.items()}
        absent = [name for name in pairs if name not in columns]
        if absent:
            raise InvalidInput(f"ranges: X has no column {absent[0]!r}; name its columns.")
    else:
        if isinstance(ranges, str) or not hasattr(ranges, "__len__"):
            raise InvalidInput("ranges: must be pairs (low, high), one for each column, by name.")
        if len(ranges) != len(columns):
            raise InvalidInput(
                f"ranges: has {len(ranges)} pairs: must have one for each of {len(columns)}"
                " columns."
            )
        pairs = dict(zip(columns, ranges, strict=True))
    columns_given = {
        name: {"range": range_of(f"ranges[{name!r}]", pair)} for name, pair in pairs.items()
    }
    return {"columns": columns_given}


def text_columns(X: Any) -> tuple[str | int, ...]:
    """Return the names of the columns of a frame, or indices of an array, that are not numeric."""
    _checks.dense(X, "X")
    if not is_frame(X):
        return _checks.text_columns(_checks.array(X, "X"))
    return tuple(name for name, column in columns_of(X) if not _is_numeric(column.type))


def _is_numeric(type_: Any) -> bool:
    kinds = pa.types
    if kinds.is_dictionary(type_):
        type_ = type_.value_type
    return bool(
        kinds.is_integer(type_)
        or kinds.is_floating(type_)
        or kinds.is_decimal(type_)
        or kinds.is_boolean(type_)
        or kinds.is_null(type_)
    )
