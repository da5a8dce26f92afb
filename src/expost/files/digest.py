"""What tells one data set from another: a digest of all rows in their order, made block by block.

leaf     BLAKE2b of ``LEAF`` consecutive rows and of their labels;
content  BLAKE2b of the shape, the labels' names and all leaves, in order.

A process that has blocks which begin at multiples of ``LEAF`` rows makes their leaves where the
rows are, and only these travel. The digest is not salted: a ledger keys it with its own salt, and
shows only that.
"""

import hashlib
import json
from typing import Any

import numpy as np

from expost import _checks
from expost.types import FloatArray

__all__ = ["LEAF", "Content", "content_of", "leaves"]

# Rows of a leaf.
LEAF = 64
_SIZE = 32
# Rows in memory that are made little-endian at a time.
_STEP = 64 * LEAF


def leaves(X: FloatArray, y: FloatArray) -> bytes:
    """The digests of the rows' leaves; ``y`` holds numbers, or a class's place among the names."""
    # Adding 0 makes −0 the 0 that it equals.
    rows = np.ascontiguousarray(X, dtype="<f8") + 0.0
    labels = np.ascontiguousarray(y, dtype="<f8") + 0.0
    found = bytearray()
    for start in range(0, len(rows), LEAF):
        leaf = hashlib.blake2b(rows[start : start + LEAF].data, digest_size=_SIZE)
        leaf.update(labels[start : start + LEAF].data)
        found += leaf.digest()
    return bytes(found)


class Content:
    """The digest of a data set whose leaves are given in order."""

    def __init__(self, columns: int, names: tuple[str, ...] | None) -> None:
        head = json.dumps({"columns": columns, "names": names})
        self._hash = hashlib.blake2b(head.encode(), digest_size=_SIZE)
        self._rows = 0

    def add(self, rows: int, found: bytes) -> None:
        """The leaves of the next ``rows`` rows; all but the last are of whole leaves."""
        if self._rows % LEAF or len(found) != -(-rows // LEAF) * _SIZE:
            raise ArithmeticError("leaves: a block did not begin at a multiple of a leaf.")
        self._rows += rows
        self._hash.update(found)

    @property
    def value(self) -> bytes:
        """Of all that was added."""
        whole = self._hash.copy()
        whole.update(str(self._rows).encode())
        return whole.digest()


def content_of(X: Any, y: Any) -> bytes:
    """That of rows in memory."""
    rows = _checks.matrix(X, min_rows=1)
    labels, names = np.asarray(y), None
    if labels.dtype.kind not in "biuf":
        # Few different texts, and a number for each row: a list of texts would not fit.
        found, labels = np.unique(labels.astype(str), return_inverse=True)
        names = tuple(found.tolist())
    content = Content(rows.shape[1], names)
    for start in range(0, len(rows), _STEP):
        some = slice(start, start + _STEP)
        content.add(len(rows[some]), leaves(rows[some], labels[some]))
    return content.value
