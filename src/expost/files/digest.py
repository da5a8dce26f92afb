"""The digest of a data set: of all rows in their order, computed block by block.

leaf     BLAKE2b of ``LEAF`` consecutive rows and of their labels;
content  BLAKE2b of the shape, the names of the labels and all leaves, in order.

A worker computes the leaves of blocks that start at multiples of ``LEAF`` rows, and sends only the
leaves. The digest is not salted: a ledger keys it with its own salt and stores only the result.
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
# Rows in memory that are converted to little-endian at a time.
_STEP = 64 * LEAF


def leaves(X: FloatArray, y: FloatArray) -> bytes:
    """Return the digests of the leaves; ``y`` holds numbers, or the indices of classes."""
    # Adding 0 turns −0 into 0.
    rows = np.ascontiguousarray(X, dtype="<f8") + 0.0
    labels = np.ascontiguousarray(y, dtype="<f8") + 0.0
    digests = bytearray()
    for start in range(0, len(rows), LEAF):
        leaf = hashlib.blake2b(rows[start : start + LEAF].data, digest_size=_SIZE)
        leaf.update(labels[start : start + LEAF].data)
        digests += leaf.digest()
    return bytes(digests)


class Content:
    """The digest of a data set whose leaves are added in order."""

    def __init__(self, columns: int, names: tuple[str, ...] | None) -> None:
        head = json.dumps({"columns": columns, "names": names})
        self._hash = hashlib.blake2b(head.encode(), digest_size=_SIZE)
        self._rows = 0

    def add(self, rows: int, digests: bytes) -> None:
        """Add the leaves of the next ``rows`` rows, a multiple of a leaf except at the end."""
        if self._rows % LEAF or len(digests) != -(-rows // LEAF) * _SIZE:
            raise ArithmeticError("leaves: a block did not start at a multiple of a leaf.")
        self._rows += rows
        self._hash.update(digests)

    @property
    def value(self) -> bytes:
        """The digest of all added leaves."""
        total = self._hash.copy()
        total.update(str(self._rows).encode())
        return total.digest()


def content_of(X: Any, y: Any) -> bytes:
    """Return the digest of rows in memory, X (n, d) and y (n,)."""
    rows = _checks.matrix(X, min_rows=1)
    labels, names = np.asarray(y), None
    if labels.dtype.kind not in "biuf":
        # Few different strings, and an index per row: a list of strings would need more memory.
        classes, labels = np.unique(labels.astype(str), return_inverse=True)
        names = tuple(classes.tolist())
    content = Content(rows.shape[1], names)
    for start in range(0, len(rows), _STEP):
        block = slice(start, start + _STEP)
        content.add(len(rows[block]), leaves(rows[block], labels[block]))
    return content.value
