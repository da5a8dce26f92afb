"""A figure with its numbers: what is drawn as PNG is also written as CSV."""

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from expost.errors import InvalidInput
from expost.types import IntArray

__all__ = ["Exhibit", "Table", "thinned"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Columns of one length. ``note`` says what was left out, or is empty."""

    columns: Mapping[str, Any]
    note: str = ""

    def __post_init__(self) -> None:
        lengths = {name: len(values) for name, values in self.columns.items()}
        if len(set(lengths.values())) != 1:
            raise InvalidInput(f"columns: must be of one length, not {lengths}.")

    def csv(self) -> bytes:
        """Return a header and a line for each entry; numbers to nine digits."""
        stream = io.StringIO(newline="")
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.columns)
        cells = [_texts(np.asarray(values)) for values in self.columns.values()]
        writer.writerows(zip(*cells, strict=True))
        return stream.getvalue().encode()


@dataclass(frozen=True, kw_only=True, eq=False)
class Exhibit:
    """One figure.

    ``name``     the stem of its PNG; ``tables`` are written as <stem>.csv.
    ``draw``     makes the matplotlib figure.
    ``caption``  sentences for the reader; ``errata`` those that name a slip of the paper.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[], Any]
    tables: Mapping[str, Table]
    errata: tuple[str, ...] = ()


def thinned(count: int, most: int = 400) -> IntArray:
    """About ``most`` of the places 0 … count − 1, closer together at both ends."""
    if count <= most:
        return np.arange(count, dtype=np.int64)
    even = np.linspace(0, count - 1, most // 2)
    ends = np.geomspace(1, count, most // 4) - 1
    chosen = np.concatenate([even, ends, count - 1 - ends])
    return np.unique(np.round(chosen).astype(np.int64))


def _texts(values: Any) -> list[str]:
    if values.dtype.kind == "f":
        return [f"{value:.9g}" for value in values.tolist()]
    return [str(value) for value in values.tolist()]
