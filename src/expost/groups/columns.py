"""One column of any kind, read as numbers or as levels, and divided into parts.

A label states the rule that was applied: edges are first rounded to the printed digits, then used.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from expost import _checks
from expost.errors import InvalidInput
from expost.types import FloatArray, IntArray

__all__ = [
    "MISSING",
    "OTHER",
    "Bins",
    "LevelSet",
    "Levels",
    "Numbers",
    "Partition",
    "number_text",
    "printable",
    "read_column",
    "read_columns",
]

MISSING, OTHER = "(missing)", "(other)"
# A longer table is not readable: the other levels are combined, and integers are binned.
_MOST_LEVELS = 50
_MOST_INTEGERS = 20
_LONGEST_LABEL = 80
_NO_BREAK = "\N{NO-BREAK SPACE}"


def printable(text: object, limit: int = _LONGEST_LABEL) -> str:
    """Return ``text`` on one line, invisible characters escaped, and shortened to ``limit``."""
    shown = "".join(
        character
        if character.isprintable() or character == _NO_BREAK
        else character.encode("unicode_escape").decode()
        for character in str(text)
    )
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def number_text(value: float) -> str:
    """Return the number with all its digits, without an exponent for ordinary sizes."""
    number = float(value) + 0.0
    text = f"{number:.15g}"
    return text if float(text) == number else repr(number)


@dataclass(frozen=True, kw_only=True, eq=False)
class Partition(ABC):
    """A rule that divides rows by one column, made from some of them and applied to any.

    Parameters
    ----------
    labels : tuple[str, ...]
        The labels of the parts; the last two hold the rows of any other level, and those whose cell
        is missing. Parts without rows are not shown.
    notices : tuple[str, ...], default=()
        What the reader must know about the rule.

    Attributes
    ----------
    ordered : bool
        Whether the order of the parts means something.
    """

    labels: tuple[str, ...]
    notices: tuple[str, ...] = ()

    ordered: ClassVar[bool]

    @abstractmethod
    def parts(self, column: Any) -> IntArray:
        """Return the part of each cell of ``column``, of the kind the rule was made from."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Bins(Partition):
    """Numbers by value (``exact``), or in bins up to each of the ``edges`` and past the last."""

    edges: FloatArray
    exact: bool

    ordered = True

    def parts(self, column: Any) -> IntArray:
        """Divide a column of numbers."""
        other, missing = len(self.labels) - 2, len(self.labels) - 1
        codes = np.searchsorted(self.edges, column.values)
        if self.exact and len(self.edges):
            nearest = self.edges[np.minimum(codes, len(self.edges) - 1)]
            codes = np.where(nearest == column.values, codes, other)
        codes = np.where(np.isnan(column.values), missing, codes)
        return codes.astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelSet(Partition):
    """Cells by level."""

    ordered = False

    def parts(self, column: Any) -> IntArray:
        """Divide a column of levels."""
        other, missing = len(self.labels) - 2, len(self.labels) - 1
        known = {label: index for index, label in enumerate(self.labels[:other])}
        indices = np.array([*(known.get(label, other) for label in column.labels), missing])
        codes: IntArray = indices[column.codes]
        return codes


@dataclass(frozen=True, kw_only=True, eq=False)
class Numbers:
    """A column of numbers; NaN where a cell is missing."""

    name: str
    values: FloatArray

    def __len__(self) -> int:
        return len(self.values)

    def take(self, index: IntArray | slice) -> "Numbers":
        """Return the cells of some rows."""
        return replace(self, values=self.values[index])

    def partition(self, bins: int) -> Bins:
        """Divide integers of few values by value, other numbers by quantile bins."""
        values = np.sort(self.values[~np.isnan(self.values)])
        distinct = np.unique(values)
        whole = bool(np.all(np.isfinite(distinct) & (distinct == np.floor(distinct))))
        exact = whole and len(distinct) <= _MOST_INTEGERS
        edges = distinct if exact else _edges(values, bins)
        labels = [number_text(value) for value in distinct] if exact else _bin_labels(edges)
        return Bins(labels=(*labels, OTHER, MISSING), edges=edges, exact=exact)


@dataclass(frozen=True, kw_only=True, eq=False)
class Levels:
    """A column of any other type: the index of each cell in ``labels``, len(labels) if missing.

    The labels are sorted alphabetically, which has no meaning.
    """

    name: str
    codes: IntArray
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, index: IntArray | slice) -> "Levels":
        """Return the cells of some rows."""
        return replace(self, codes=self.codes[index])

    def partition(self, bins: int = 0) -> LevelSet:
        """Divide by level: of more than 50 the largest, and the others together."""
        levels = len(self.labels)
        if levels <= _MOST_LEVELS:
            return LevelSet(labels=(*self.labels, OTHER, MISSING))
        counts = np.bincount(self.codes, minlength=levels + 1)[:-1]
        kept = np.sort(np.lexsort((np.arange(levels), -counts))[:_MOST_LEVELS])
        notice = f"{levels:,} levels: the {_MOST_LEVELS} largest are shown, the others as {OTHER}."
        labels = (*(self.labels[level] for level in kept), OTHER, MISSING)
        return LevelSet(labels=labels, notices=(notice,))


def _edges(values: FloatArray, bins: int) -> FloatArray:
    """Return the inner edges of quantile bins (low, high] of sorted ``values``, none empty."""
    quantiles = np.quantile(values, np.arange(1, bins) / bins, method="inverted_cdf")
    # As many digits as distinguish different edges: four at least.
    edges = quantiles
    for digits in range(4, 18):
        edges = np.unique([float(f"{edge:.{digits}g}") for edge in quantiles])
        if len(edges) == len(np.unique(quantiles)):
            break
    below = np.searchsorted(values, edges, side="right")
    _, first = np.unique(below, return_index=True)
    return edges[first][(below[first] > 0) & (below[first] < len(values))]


def _bin_labels(edges: FloatArray) -> list[str]:
    if len(edges) == 0:
        return ["all values"]
    text = [number_text(edge) for edge in edges]
    between = [f"> {low} and <= {high}" for low, high in pairwise(text)]
    return [f"<= {text[0]}", *between, f"> {text[-1]}"]


def read_column(column: Any, name: str, rows: int) -> Numbers | Levels:
    """Read an array, list, Series or Arrow array with one cell per row."""
    entries = len(column) if hasattr(column, "__len__") else None
    if isinstance(column, str | bytes) or getattr(column, "ndim", 1) != 1 or entries != rows:
        given = "no" if entries is None or isinstance(column, str | bytes) else f"{entries}"
        raise InvalidInput(
            f"{name} has {given} entries: must be a column of one value for each of {rows} rows."
        )
    if isinstance(column, np.ma.MaskedArray):
        cells = column.data.astype(object)
        cells[np.ma.getmaskarray(column)] = None
        column = cells
    if isinstance(column, np.ndarray) and column.dtype.kind in "fiu":
        return Numbers(name=name, values=column.astype(np.float64))
    array = _arrow(column, name)
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        cast = array.cast(pa.float64(), safe=False)
        return Numbers(name=name, values=cast.to_numpy(zero_copy_only=False))
    return _levels(array, name)


def read_columns(X: Any, names: Sequence[str] | None, rows: int) -> list[Numbers | Levels]:
    """Read the columns of a frame, an Arrow table or a matrix, with their names."""
    if hasattr(X, "to_arrow"):
        X = X.to_arrow()
    cells: list[Any]
    if isinstance(X, pa.Table | pa.RecordBatch):
        own, cells = list(X.column_names), list(X.columns)
    elif hasattr(X, "iloc") and hasattr(X, "columns"):
        own = list(X.columns)
        cells = [X.iloc[:, index] for index in range(len(own))]
    else:
        mixed = isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUSb"
        matrix = X if mixed else _checks.matrix(X, min_rows=1)
        own = [f"column {index}" for index in range(matrix.shape[1])]
        cells = list(matrix.T)
    if names is None:
        names = own
    if isinstance(names, str) or len(names) != len(cells):
        raise InvalidInput(
            f"feature_names has {len(names)} entries: must have one for each of {len(cells)}"
            " columns of X."
        )
    return [
        read_column(cell, printable(name), rows) for cell, name in zip(cells, names, strict=True)
    ]


def _arrow(column: Any, name: str) -> Any:
    """Return the column as one Arrow array of a plain type; mixed types become strings."""
    if hasattr(column, "to_arrow"):
        column = column.to_arrow()
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        try:
            column = pa.array(column, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            column = pa.array(_strings(column, name), pa.string())
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_nested(column.type):
        raise InvalidInput(
            f"{name} holds {column.type} values: must hold numbers, strings or booleans."
        )
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    return column


def _strings(column: Any, name: str) -> list[str | None]:
    """Return cells of any type as strings; lone surrogates, which no file can hold, escaped."""
    try:
        texts = [None if _checks.is_missing(cell) else str(cell) for cell in column]
    # The cells' own code runs here, and may raise anything.
    except Exception as error:  # noqa: BLE001 (see above)
        raise InvalidInput(
            f"{name}: cannot be read as a column ({type(error).__name__}); pass numbers, strings or"
            " booleans."
        ) from None
    return [
        text if text is None else text.encode(errors="backslashreplace").decode() for text in texts
    ]


def _levels(array: Any, name: str) -> Levels:
    encoded = array.dictionary_encode()
    texts = [_level_text(value) for value in encoded.dictionary.to_pylist()]
    labels = tuple(sorted(set(texts)))
    indices = {label: number for number, label in enumerate(labels)}
    recoded = np.array([*(indices[text] for text in texts), len(labels)], dtype=np.int64)
    codes = encoded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
    return Levels(name=name, codes=recoded[codes], labels=labels)


def _level_text(value: object) -> str:
    return "(empty)" if value == "" else printable(value)
