"""Whose row each row is: the privacy unit where one person has several rows.

Persons are numbered in the order in which they first appear. Their labels are names of people:
no message shows one.
"""

from collections.abc import Hashable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost import _checks
from expost.errors import InvalidInput
from expost.types import IntArray, Neighbouring

__all__ = ["Persons", "read_persons"]

# Kinds of arrays whose equal entries NumPy finds by itself.
_PLAIN_KINDS = "biufSUmM"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Persons:
    """A partition of n rows.

    Attributes
    ----------
    names : tuple[Hashable, ...]
        The label of each person.
    owner : IntArray
        (n,) the person of each row.
    rows : IntArray
        (n,) all row indices, those of each person together and in ascending order.
    sizes : IntArray
        The number of rows of each person.
    """

    names: tuple[Hashable, ...]
    owner: IntArray
    rows: IntArray
    sizes: IntArray

    @classmethod
    def of(cls, names: tuple[Hashable, ...], owner: IntArray) -> "Persons":
        """Return the partition that ``owner`` describes."""
        return cls(
            names=names,
            owner=owner,
            rows=np.argsort(owner, kind="stable"),
            sizes=np.bincount(owner, minlength=len(names)),
        )

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Persons({len(self)} of {len(self.owner)} rows)"

    @cached_property
    def starts(self) -> IntArray:
        """Where each person's indices begin in ``rows``."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def largest(self) -> int:
        """The most rows that one person has."""
        return int(self.sizes.max())

    @property
    def are_rows(self) -> bool:
        """Whether every person has one row: persons are then the rows, in their order."""
        return self.largest == 1

    def check_sizes(self, most: int) -> None:
        """Refuse persons with more than ``most`` rows."""
        beyond = int(np.count_nonzero(self.sizes > most))
        if beyond:
            subject = "1 person has" if beyond == 1 else f"{beyond:,} persons have"
            raise InvalidInput(
                f"persons: {subject} more than rows_per_person={most} rows (the largest number is"
                f" {self.largest:,}); leave rows out until no person has more, or"
                " raise rows_per_person."
            )

    def first_rows(self, most: int) -> IntArray:
        """Return the row indices of the first ``most`` rows of every person, ascending."""
        rank = np.arange(len(self.rows)) - np.repeat(self.starts, self.sizes)
        return np.sort(self.rows[rank < most])

    def rows_of(self, person: int) -> IntArray:
        """Return the row indices of one person."""
        start = self.starts[person]
        return self.rows[start : start + self.sizes[person]]

    def by_size(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield (persons (p,), their rows (p, k)) for every k that occurs, ascending."""
        for size in np.unique(self.sizes):
            persons = np.flatnonzero(self.sizes == size)
            yield persons, self.rows[self.starts[persons][:, None] + np.arange(size)]


def read_persons(persons: Any, rows: int, relation: Neighbouring = Neighbouring.REMOVE) -> Persons:
    """Return the persons of a label for each row; each must leave at least one row of others."""
    if relation is not Neighbouring.REMOVE:
        raise InvalidInput(
            f"persons: relation={relation.value!r} changes single rows; leave persons out, or use"
            " relation='remove'."
        )
    labels = _labels(persons)
    if len(labels) != rows:
        raise InvalidInput(
            f"persons has {len(labels)} entries: must have one for each of {rows} rows, whose row"
            " it is."
        )
    plain = isinstance(labels, np.ndarray) and labels.dtype.kind in _PLAIN_KINDS
    partition = Persons.of(*(_numbered(labels) if plain else _collected(labels)))
    if len(partition) < 2:
        raise InvalidInput(
            "persons: one person owns every row; nothing would be left to train on without them."
        )
    return partition


def _labels(persons: Any) -> Any:
    """Return a one-dimensional array of a plain kind, or a list."""
    if isinstance(persons, str | bytes | Set | Mapping) or not hasattr(persons, "__iter__"):
        raise InvalidInput("persons: must be a sequence with one label for each row.")
    if isinstance(persons, np.ma.MaskedArray) and np.any(np.ma.getmaskarray(persons)):
        raise _missing(int(np.argmax(np.ma.getmaskarray(persons))))
    dimensions = getattr(persons, "ndim", 1)
    if dimensions != 1:
        array = _checks.array(persons, "persons")
        if array.ndim != 2 or array.shape[1] != 1:
            raise InvalidInput(f"persons has {dimensions} dimensions: must have one.")
        persons = array[:, 0]
    kind = getattr(getattr(persons, "dtype", None), "kind", "")
    if isinstance(getattr(persons, "dtype", None), np.dtype) and kind in _PLAIN_KINDS:
        return _checks.array(persons, "persons")
    return list(persons)


def _numbered(labels: NDArray[Any]) -> tuple[tuple[Hashable, ...], IntArray]:
    """Return names and owners of a plain array, in the order of first appearance."""
    absent = np.zeros(len(labels), dtype=bool)
    if labels.dtype.kind == "f":
        absent = np.isnan(labels)
    elif labels.dtype.kind in "mM":
        absent = np.isnat(labels)
    if np.any(absent):
        raise _missing(int(np.argmax(absent)))
    values, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    return tuple(values[order].tolist()), number[inverse.reshape(-1)]


def _collected(labels: Any) -> tuple[tuple[Hashable, ...], IntArray]:
    """Return names and owners of any hashable labels."""
    numbers: dict[Hashable, int] = {}
    owner = np.empty(len(labels), dtype=np.int64)
    for row, label in enumerate(labels):
        if _checks.is_missing(label):
            raise _missing(row)
        try:
            owner[row] = numbers.setdefault(label, len(numbers))
        except TypeError:
            raise InvalidInput(
                f"persons: entry {row} is a {type(label).__name__}, which cannot be compared by its"
                " hash; pass numbers, strings or tuples of them."
            ) from None
    return tuple(numbers), owner


def _missing(row: int) -> InvalidInput:
    return InvalidInput(
        f"persons: entry {row} is missing (None or NaN), so it is not known whose row that is; give"
        " it a label of its own if it belongs to no other person."
    )
