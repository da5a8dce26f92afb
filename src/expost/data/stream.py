"""Rows of the unit ball, block by block, through a saved encoding: never more than a block at once.

Blocks have a size that is fixed by the number of columns alone, so that neither the files' layout
nor workers nor machines change what a pass adds up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost import _checks
from expost.data.encoding import Encoded, Encoding
from expost.data.readers import Reader, reader_of
from expost.data.sources import Table
from expost.data.unit_ball import UnitBall
from expost.errors import InvalidInput
from expost.files.digest import LEAF
from expost.types import FloatArray

__all__ = ["RowStream", "StreamBlock", "block_rows"]

# A block has at most so many rows, and so many entries of float64: 8 MiB.
_BLOCK_ROWS = 2**15
_BLOCK_ENTRIES = 2**20


def block_rows(columns: int) -> int:
    """How many rows a block has: a multiple of a leaf of the data's digest."""
    return min(_BLOCK_ROWS, max(LEAF, _BLOCK_ENTRIES // max(columns, 1) // LEAF * LEAF))


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamBlock:
    """Rows ``start`` to ``start + len``, counted from 0: in the unit ball, with labels and keys.

    ``encoded``  the same rows as the encoding gives them; ``clipped`` of them are longer than it
                 says any is.
    """

    start: int
    X: FloatArray
    y: FloatArray
    ids: NDArray[np.object_] | None
    encoded: Encoded
    clipped: int

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, kw_only=True, eq=False)
class RowStream:
    """A table as a model sees it, read again in every pass.

    ``label_bound``  labels of a regression are clipped to ± this.
    """

    reader: Reader
    encoding: Encoding
    ball: UnitBall
    label_bound: float | None = None
    id_column: str | None = None

    @classmethod
    def of(
        cls,
        table: Table,
        encoding: Encoding,
        ball: UnitBall,
        *,
        label_bound: float | None = None,
        size: int | None = None,
    ) -> "RowStream":
        """The rows of ``table``, in blocks of ``size`` rows (None: by the number of columns)."""
        table = table.retyped(encoding.kinds)
        key = table.id_column
        wanted = [*encoding.kinds, *([] if key is None else [key])]
        width = len(encoding.feature_names) + ball.fit_intercept
        size = block_rows(width) if size is None else _checks.whole("size", size, least=1)
        if size > _BLOCK_ROWS:
            # What is proved of sums counts on it.
            raise InvalidInput(f"size={size}: a block has at most {_BLOCK_ROWS} rows.")
        reader = reader_of(table, wanted, size)
        return cls(
            reader=reader,
            encoding=encoding,
            ball=ball,
            label_bound=label_bound,
            id_column=key,
        )

    @classmethod
    def of_arrays(
        cls,
        X: Any,
        y: Any,
        ball: UnitBall,
        *,
        classes: Sequence[Any] | None = None,
        label_bound: float | None = None,
        size: int | None = None,
    ) -> "RowStream":
        """The rows of Dask arrays X (n, d) and y (n,), whose numbers are taken as they are.

        ``classes``: the two labels in y, the one that counts as −1 first; None: y is a number.
        """
        from expost.data.dask_rows import array_encoding, array_table

        table = array_table(X, y, text=classes is not None)
        encoding = array_encoding(X.shape[1], ball, classes)
        return cls.of(table, encoding, ball, label_bound=label_bound, size=size)

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return self.reader.rows

    @property
    def columns(self) -> int:
        """The number d of columns, with the intercept's."""
        return len(self.encoding.feature_names) + self.ball.fit_intercept

    def items(self) -> Iterator[Any]:
        """What there is to read, in order; see :class:`~expost.data.readers.Reader`."""
        return self.reader.items()

    def blocks(self, item: Any) -> Iterator[StreamBlock]:
        """The blocks of an item, in order."""
        for block in self.reader.blocks(item):
            encoded = self.encoding.encode(block.batch, first_row=block.start + 1)
            X, clipped = self.ball.rows(encoded.X)
            y = encoded.y
            if self.label_bound is not None:
                y = np.clip(y, -self.label_bound, self.label_bound)
            ids = None
            if self.id_column is not None:
                ids = np.array(block.batch.column(self.id_column).to_pylist(), dtype=object)
            yield StreamBlock(
                start=block.start, X=X, y=y, ids=ids, encoded=encoded, clipped=clipped
            )
