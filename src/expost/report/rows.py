"""The figures of every row on a page, for its search and for the read-out of a rank.

No values of the table: keys, losses with their intervals, distances. Rows are in the order of their
ranks, the most exposed first, so that a rank needs no sorting in single precision.
"""

import base64
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from expost.errors import InvalidInput
from expost.groups.columns import printable
from expost.numbers import count
from expost.profiles.profile import Profile
from expost.report.document import Text, Widget
from expost.types import FloatArray, Neighbouring

__all__ = ["MOST_ROWS", "RowsData", "packed_rows", "rows_of_profile", "search_widget", "shown_key"]

# A page with more rows would be slow to open: it holds the most exposed of them.
MOST_ROWS = 100_000
_LONGEST_KEY = 200
_LEFT_OUT = ("distance_error", "prediction", "prediction_without")


@dataclass(frozen=True, kw_only=True)
class RowsData:
    """The most exposed rows, in the order of their ranks; all of them up to 100,000.

    Parameters
    ----------
    unit : str
        Row, candidate or person.
    total : int
        The number of units.
    rows : int
        The number of rows of the table: more than ``total`` if the units are persons.
    numbers : tuple[int, ...]
        Of each row, counted from 0 in the table's order (persons: in the order in which they first
        appear).
    keys : tuple[str, ...] | None
        Their ids, or None.
    loss, low, high : tuple[float, ...]
        Each loss and the ends of its certified interval.
    distance : tuple[float, ...]
        How far each row moves the quantity that the noise is added to.
    noiseless : bool
        Whether rows are ranked by distances alone.
    left_out : tuple
        Of models without noise: the certified error of each distance, the prediction of each row,
        and that without it; or none.
    in_order : bool
        Whether row i of the table is the row with the number i.
    """

    unit: str
    total: int
    rows: int
    numbers: tuple[int, ...]
    keys: tuple[str, ...] | None
    loss: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    distance: tuple[float, ...]
    noiseless: bool
    in_order: bool
    left_out: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        keys = self.numbers if self.keys is None else self.keys
        figures = (self.loss, self.low, self.high, self.distance, keys, *self.left_out)
        if any(len(each) != len(self.numbers) for each in figures):
            raise InvalidInput("rows: must have one of each figure.")
        if self.numbers and not 0 <= min(self.numbers) <= max(self.numbers) < 2**32:
            raise InvalidInput("numbers: must be of at least 0, and below 2**32.")

    def __len__(self) -> int:
        """Return the number of rows on the page."""
        return len(self.numbers)

    @property
    def within(self) -> FloatArray:
        """The certified error of each loss in nats; 0 without noise."""
        loss, low, high = (np.asarray(ends) for ends in (self.loss, self.low, self.high))
        if self.noiseless:
            return np.zeros(len(loss))
        with np.errstate(invalid="ignore"):
            width = np.maximum(high - loss, loss - low)
        # A loss that is infinite at both ends is unknown.
        return np.where(np.isnan(width), np.inf, width)


def rows_of_profile(profile: Profile, *, most: int = MOST_ROWS) -> RowsData:
    """Return the figures of the ``most`` most exposed rows of a profile."""
    names = ("loss", "loss_low", "loss_high", "distance")
    more = () if profile.left_out is None else _LEFT_OUT
    table = profile.most(most, (*names, *more))
    loss, low, high, distance = (tuple(table.column(name).to_pylist()) for name in names)
    removed, persons = profile.relation is Neighbouring.REMOVE, profile.owner is not None
    return RowsData(
        unit=profile.unit if removed or persons else "candidate",
        total=len(profile),
        rows=profile.rows,
        numbers=tuple(table.column(profile.unit).to_pylist()),
        keys=tuple(map(shown_key, table.column("id").to_pylist())) if profile.keyed else None,
        loss=loss,
        low=low,
        high=high,
        distance=distance,
        noiseless=profile.is_noiseless,
        in_order=removed and not persons,
        left_out=tuple(tuple(table.column(name).to_pylist()) for name in more),
    )


def search_widget(profile: Profile) -> Widget:
    """Return the search by key over the rows of a profile."""
    rows = rows_of_profile(profile)
    listed = "all" if len(rows) == rows.total else f"the {count(len(rows))} most exposed of"
    by = "ids" if rows.keys else "numbers, counted from 0 in the order of the table,"
    return Widget(
        name="search",
        data=packed_rows(rows),
        blocks=(
            Text(
                text=f"This page holds the {by} and figures of {listed} {count(rows.total)}"
                f" {rows.unit}s, and no values."
            ),
        ),
    )


def shown_key(key: object) -> str:
    """Return an id as a page shows it."""
    return printable(key, _LONGEST_KEY)


def packed_rows(rows: RowsData) -> dict[str, object]:
    """Return the rows for the script of a page: arrays as base64 of little-endian bytes.

    They are in single precision, with a relative error of 6·10⁻⁸. The interval of a loss is stored
    as its half width, rounded up: its ends may be closer together than single precision resolves.
    """
    return {
        "unit": rows.unit,
        "total": rows.total,
        "rows": rows.rows,
        "noiseless": rows.noiseless,
        "inOrder": rows.in_order,
        "keys": None if rows.keys is None else list(rows.keys),
        "numbers": _base64(np.asarray(rows.numbers, dtype="<u4")),
        "loss": _base64(_single(rows.loss)),
        "within": _base64(_single(rows.within, up=True)),
        "distance": _base64(_single(rows.distance)),
        **{
            name: _base64(_single(values, up=name == "distance_error"))
            for name, values in zip(_LEFT_OUT, rows.left_out, strict=False)
        },
    }


def _single(values: tuple[float, ...] | FloatArray, *, up: bool = False) -> NDArray[np.float32]:
    exact: FloatArray = np.asarray(values, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore"):
        near = exact.astype(np.float32)
        above = np.nextafter(near, np.float32(np.inf))
    return np.where(near < exact, above, near) if up else near


def _base64(array: NDArray[np.generic]) -> str:
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode("ascii")
