"""The encoding against a naive one, its marks, its file, and its refusals."""

import json
import math
import statistics
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from expost.data import (
    Encoding,
    LevelEntry,
    Mark,
    NumericEntry,
    _summaries,
    open_table,
)
from expost.errors import InvalidInput, PrivacyLeakWarning
from expost.types import Audience

PEOPLE = {
    "age": [20.0, 30.0, None, 60.0, 25.0],
    "sex": ["f", "m", "m", None, "f"],
    "member": [True, False, True, True, False],
    "same": [7, 7, 7, 7, 7],
    "label": ["no", "yes", "no", "yes", "no"],
}


def read(source, *, target="label", **options) -> Encoding:
    """Encoding.read with its warning expected or not, as its marks say."""
    table = source if hasattr(source, "blocks") else open_table(source)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        encoding = Encoding.read(table, target=target, **options)
    leaks = [w for w in caught if issubclass(w.category, PrivacyLeakWarning)]
    assert len(caught) == len(leaks) == (1 if encoding.read_from_data else 0)
    if leaks:
        assert leaks[0].filename == __file__
    return encoding


def naive(columns: dict[str, list], encoding: Encoding) -> np.ndarray:
    """X cell by cell, from the JSON alone."""
    made = []
    for name, entry in encoding.to_json()["columns"].items():
        cells = columns[name]
        if entry["kind"] == "numeric":
            fill = entry.get("fill")
            most = math.inf if entry["cut"] is None else entry["cut"]
            standard = [
                ((fill if c is None else c) - entry["mean"]) / entry["scale"] for c in cells
            ]
            made.append([min(max(z, -most), most) for z in standard])
            if fill is not None:
                made.append([float(c is None) for c in cells])
        else:
            words = [c if not isinstance(c, bool) else str(c).lower() for c in cells]
            made += [[float(w == level) for w in words] for level in entry["levels"]]
            if entry.get("missing_level"):
                made.append([float(w is None) for w in words])
    return np.array(made).T


def test_people():
    encoding = read(PEOPLE)
    ages = [20.0, 30.0, 60.0, 25.0]
    age, sex, member = encoding.entries
    assert isinstance(age, NumericEntry)
    assert age.mean == pytest.approx(statistics.fmean(ages), rel=1e-15)
    assert age.scale == pytest.approx(statistics.pstdev(ages), rel=1e-15)
    assert age.fill == statistics.median(ages) == 27.5
    assert isinstance(sex, LevelEntry)
    assert (sex.levels, sex.missing_level) == (("f", "m"), True)
    assert member.levels == ("false", "true")
    assert encoding.dropped == (("same", Mark.READ),)
    (notice,) = encoding.notices
    assert "'same': is constant" in notice
    assert encoding.target.classes == ("no", "yes")
    assert encoding.feature_names == (
        "age",
        "age is missing",
        "sex=f",
        "sex=m",
        "sex is missing",
        "member=false",
        "member=true",
    )
    encoded = encoding.encode_table(open_table(PEOPLE))
    np.testing.assert_allclose(encoded.X, naive(PEOPLE, encoding), rtol=1e-15)
    assert encoded.y.tolist() == [-1, 1, -1, 1, -1]
    assert encoded.ids is None
    assert encoded.unknown == {}
    assert encoding.target.labels(encoded.y) == PEOPLE["label"]
    assert encoding.data_norm == pytest.approx(math.sqrt(3) / 2, rel=1e-15)
    assert encoding.data_norm_mark is Mark.RULE
    assert encoding.audience is Audience.NEEDS_REVIEW


def test_read_from_data_names_everything():
    assert read(PEOPLE).read_from_data == (
        "the mean and scale of 'age'",
        "the median of 'age'",
        "the levels of 'sex'",
        "that cells of 'sex' are missing",
        "the levels of 'member'",
        "that 'same' is constant",
        "the classes of 'label'",
    )


GIVEN = {
    "columns": {
        "age": {"mean": 40, "scale": 15, "fill": 40},
        "sex": {"levels": ["m", "f", "x"], "missing_level": True},
        "member": {"levels": [False, True]},
        "same": {"mean": 7, "scale": 2},
    },
    "target": {"classes": ["yes", "no"]},
    "data_norm": 4,
}


def test_a_given_encoding_reads_nothing(tmp_path):
    encoding = read(PEOPLE, given=GIVEN)
    assert encoding.read_from_data == ()
    assert encoding.notices == ()
    assert encoding.audience is Audience.PUBLIC
    assert encoding.data_norm == 4.0
    assert encoding.target.classes == ("yes", "no")
    # A constant column that is given is kept: dropping it would depend on the data.
    assert encoding.feature_names[-1] == "same"
    encoded = encoding.encode_table(open_table(PEOPLE))
    np.testing.assert_allclose(encoded.X, naive(PEOPLE, encoding), rtol=1e-15)
    assert encoded.X[0, 0] == pytest.approx(-20 / 15)
    assert encoded.y.tolist() == [1, -1, 1, -1, 1]
    path = tmp_path / "given.json"
    path.write_text(json.dumps(GIVEN))
    assert read(PEOPLE, given=path) == encoding
    assert read(PEOPLE, given=str(path)) == encoding
    assert read(PEOPLE, given=encoding) is encoding


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [-2, -1.9, 0, 2, 2]),
        ({"cut": 3}, [-3, -1.9, 0, 2.5, 3]),
        ({"cut": None}, [-30, -1.9, 0, 2.5, 70]),
    ],
)
def test_numbers_are_cut_at_two_scales_unless_the_encoding_says_otherwise(given, expected):
    columns = {"x": [-290, -9, 10, 35, 710], "label": PEOPLE["label"]}
    part = {"columns": {"x": {"mean": 10, "scale": 10, **given}}}
    encoding = read(columns, given=part, classes=["no", "yes"])
    assert encoding.encode_table(open_table(columns)).X[:, 0].tolist() == expected
    assert encoding.read_from_data == ()
    assert Encoding.from_json(encoding.to_json()) == encoding


def test_a_part_is_given_and_the_rest_is_read():
    given = {"columns": {"age": {"mean": 40, "scale": 15}}, "dropped": ["sex"], "data_norm": 9}
    encoding = read(PEOPLE, given=given, classes=["yes", "no"])
    assert encoding.read_from_data == (
        "the median of 'age'",
        "the levels of 'member'",
        "that 'same' is constant",
    )
    assert encoding.entries[0].mark is Mark.GIVEN
    assert encoding.dropped == (("sex", Mark.GIVEN), ("same", Mark.READ))
    assert encoding.feature_names[0] == "age"


def test_marks_survive_the_file_and_as_given_clears_them(tmp_path):
    encoding = read(PEOPLE)
    path = encoding.save(tmp_path / "encoding.json")
    again = read(PEOPLE, given=path)
    assert again == encoding
    assert again.read_from_data == encoding.read_from_data
    cleared = encoding.as_given()
    assert cleared.read_from_data == ()
    assert cleared.feature_names == encoding.feature_names
    assert cleared.data_norm == encoding.data_norm
    assert read(PEOPLE, given=cleared) is cleared


@pytest.mark.parametrize("missing", [("",), ("", "?")])
def test_moments_and_medians_of_a_large_table(tmp_path, missing):
    rng = np.random.default_rng(7)
    n = 30_000
    frame = pd.DataFrame(
        {
            "far": 1e9 + rng.normal(size=n),
            "tiny": rng.normal(size=n) * 1e-200,
            "wild": rng.standard_cauchy(size=n) * 1e6,
            "rare": (np.arange(n) == 17).astype(float),
            "holes": np.where(rng.random(n) < 0.2, np.nan, rng.exponential(size=n)),
            "y": rng.choice(["a", "b"], size=n),
        }
    )
    encoding = read(frame, target="y")
    for entry in encoding.entries:
        values = frame[entry.name].dropna().to_numpy()
        mean = math.fsum(values) / len(values)
        peak = np.abs(values - mean).max()
        spread = peak * math.sqrt(math.fsum(((values - mean) / peak) ** 2) / len(values))
        assert entry.mean == pytest.approx(mean, rel=1e-14, abs=1e-14 * spread)
        assert entry.scale == pytest.approx(spread, rel=1e-12)
        assert entry.scale != pytest.approx(np.std(values, ddof=1), rel=1e-9, abs=0)
    assert encoding.entries[-1].fill == np.median(frame["holes"].dropna())
    assert encoding.data_norm == pytest.approx(math.sqrt(5) / 2, rel=1e-15)
    # The same table as CSV, with the missing cells written as one of the tokens.
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False, na_rep=missing[-1])
    other = read(open_table(path, missing=missing), target="y")
    assert other.to_json() | {"missing": []} == encoding.to_json() | {"missing": []}


def test_moments_are_joined_over_blocks(monkeypatch):
    """Sorted values, so that the blocks' means differ; a block of missing cells among them."""
    values = np.sort(np.random.default_rng(9).normal(size=1000)) + 1e6
    cells = [*values[:300].tolist(), *[None] * 200, *values[300:].tolist()]
    columns = {"x": cells, "y": ["a", "b"] * 600}
    whole = read(columns, target="y").entries[0]
    monkeypatch.setattr(_summaries, "LEAF", 64)
    monkeypatch.setattr(_summaries, "_BLOCK_CELLS", 64)
    joined = read(columns, target="y").entries[0]
    for entry in (whole, joined):
        assert entry.mean == pytest.approx(math.fsum(values) / 1000, rel=1e-15)
        assert entry.scale == pytest.approx(statistics.pstdev(values.tolist()), rel=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_the_block_size_changes_nothing(size):
    encoding = read(PEOPLE)
    table = open_table(PEOPLE)
    whole = encoding.encode_table(table)
    blocks = list(encoding.blocks(table, size))
    assert np.array_equal(np.concatenate([b.X for b in blocks]), whole.X)
    assert np.array_equal(np.concatenate([b.y for b in blocks]), whole.y)


def test_every_source_gives_the_same_encoding(tmp_path):
    frame = pd.DataFrame(PEOPLE)
    frame["sex"] = frame["sex"].astype("category")
    expected = read(PEOPLE).to_json()
    polars = pl.DataFrame(PEOPLE)
    polars.write_parquet(tmp_path / "t.parquet")
    for source in (frame, polars, tmp_path / "t.parquet"):
        assert read(source).to_json() == expected
    polars.write_csv(tmp_path / "t.csv")
    assert read(tmp_path / "t.csv").to_json() == expected


def test_ids_come_with_the_rows():
    columns = PEOPLE | {"who": [11, 12, 13, 14, 2**60]}
    table = open_table(columns, id_column="who")
    encoding = read(table)
    assert "who" not in encoding.feature_names
    encoded = encoding.encode_table(table)
    assert encoded.ids.tolist() == ["11", "12", "13", "14", str(2**60)]
    blocks = list(encoding.blocks(table, 2))
    assert blocks[1].ids.tolist() == ["13", "14"]
    assert "11" not in repr(encoded)


def test_unknown_levels_are_zeros_and_counted():
    encoding = read(PEOPLE)
    later = {
        "age": [33.0, 34.0],
        "sex": ["q", "f"],
        "member": [True, None],
        "same": [1, 2],
        "label": ["no", "no"],
    }
    encoded = encoding.encode_table(encoding.open(later))
    assert encoded.unknown == {"sex": 1, "member": 1}
    assert encoded.X[0, 2:5].tolist() == [0, 0, 0]
    assert encoded.X[1, 5:].tolist() == [0, 0]


def test_a_later_file_is_read_as_the_first_was(tmp_path):
    """A code that looks like a number is still the level it was; one row is enough."""
    first = tmp_path / "first.csv"
    first.write_text("zip,age,label\n01,20,0\n1,30,1\nx,?,0\n")
    table = open_table(first, missing=("", "?"))
    encoding = read(table)
    later = tmp_path / "later.csv"
    later.write_text("label,more,zip,age\n1,q,01,34\n")
    encoded = encoding.encode_table(encoding.open(later))
    assert dict(zip(encoded.feature_names, encoded.X[0], strict=True)) == {
        "zip=01": 1.0,
        "zip=1": 0.0,
        "zip=x": 0.0,
        "age": (34 - 25.0) / 5.0,
        "age is missing": 0.0,
    }
    # The same through a table that was opened without the encoding.
    assert np.array_equal(encoding.encode_table(open_table(later)).X, encoded.X)
    later.write_text("label,zip,age\n1,01,n/a\n")
    with pytest.raises(InvalidInput, match="'age', row 1: is not a number"):
        encoding.open(later)


def test_missing_cells_that_the_encoding_does_not_know():
    given = GIVEN["columns"] | {"age": {"mean": 40, "scale": 15}}
    whole = {name: cells[:2] for name, cells in PEOPLE.items()}
    encoding = read(whole, given=GIVEN | {"columns": given})
    assert encoding.read_from_data == ()
    with pytest.raises(InvalidInput, match=r"'age', row 3: is missing.* no fill"):
        encoding.encode_table(open_table(PEOPLE))
    with pytest.raises(InvalidInput, match="row 3"):
        list(encoding.blocks(open_table(PEOPLE), 2))


def test_constant_and_empty_columns():
    columns = {
        "one": [5.0, 5.0, None],
        "none": [None, None, None],
        "word": ["a", "a", "a"],
        "some": ["a", None, "a"],
        "y": [0, 2, 0],
    }
    encoding = read(columns, target="y")
    assert encoding.feature_names == ("one", "one is missing", "some=a", "some is missing")
    assert [name for name, _ in encoding.dropped] == ["none", "word"]
    assert encoding.target.classes == ("0", "2")
    X = encoding.encode_table(open_table(columns)).X
    assert X.tolist() == [[0, 0, 1, 0], [0, 0, 0, 1], [0, 1, 1, 0]]


def test_subnormals_and_negative_zero():
    columns = {"x": [5e-324, 0.0, -0.0, 1e-323], "y": ["a", "b", "a", "b"]}
    encoding = read(columns, target="y")
    X = encoding.encode_table(open_table(columns)).X
    assert np.isfinite(X).all()
    assert X[:, 0].std() > 0


# Targets ---------------------------------------------------------------------------------------


def test_numeric_labels_sort_by_value_and_floats_are_integers():
    assert read({"x": [1, 2, 3], "y": [10, 9, 10]}, target="y").target.classes == ("9", "10")
    given = read({"x": [1, 2, 3], "y": [1.0, 0.0, 1.0]}, target="y", classes=[1, 0])
    assert given.target.classes == ("1", "0")
    assert given.target.mark is Mark.GIVEN


def test_regression():
    columns = {"x": [1, 2, 4], "y": [0.5, 1.5, -2.0]}
    encoding = read(columns, target="y", regression=True)
    assert encoding.target.classes is None
    assert encoding.encode_table(open_table(columns)).y.tolist() == [0.5, 1.5, -2.0]
    assert Encoding.from_json(encoding.to_json()) == encoding
    with pytest.raises(InvalidInput, match="no classes"):
        encoding.target.labels(np.ones(2))
    with pytest.raises(InvalidInput, match="classes"):
        read(columns, target="y", regression=True, classes=[0, 1])


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"x": [1, 2], "y": ["a", "a"]}, {}, "has one class only"),
        ({"x": [1, 2], "y": ["a", "a"]}, {"classes": ["a", "b"]}, "has one class only"),
        (
            {"x": range(101), "y": [f"canary {i}" for i in range(101)]},
            {},
            "more than 100 classes",
        ),
        (
            {"x": [1, 2, 3], "y": ["a", "b", "canary"]},
            {"classes": ["a", "b"]},
            "neither 'a' nor 'b'",
        ),
        ({"x": [1, 2, 3], "y": ["a", "b", None]}, {}, "is missing in 1 of 3 rows"),
        ({"x": [1, 2, 3], "y": [1.0, 2.0, None]}, {"regression": True}, "is missing in 1 of 3"),
        ({"x": [1, 2], "y": ["a", "b"]}, {"regression": True}, "is not a number"),
        ({"x": [1], "y": ["a"]}, {}, "must have at least 2"),
        ({"y": ["a", "b"]}, {}, "no feature columns"),
        ({"x": [1, 1], "y": ["a", "b"]}, {}, "no feature columns"),
        ({"x": [1, 2], "z": ["a", "b"]}, {}, "column 'y': is not in"),
        (
            {"x": [1, 2], "y": ["a", "b"]},
            {"classes": ["a"]},
            "has 1 labels: must have at least two",
        ),
        ({"x": [1, 2], "y": ["a", "b"]}, {"classes": ["a", "a"]}, "twice"),
        ({"x": [1, 2], "y": ["a", "b"]}, {"classes": "ab"}, "must be a list"),
        ({"x": [1, 2], "y": ["a", "b"]}, {"classes": ["a", None]}, "must be a string"),
        (
            {"x": [f"canary{i}" for i in range(1200)], "y": ["a", "b"] * 600},
            {},
            "more than 1,000 levels: drop it",
        ),
        ({"a": ["b", "c"], "a=b": [1, 2], "y": ["a", "b"]}, {}, "two features would have"),
    ],
)
def test_tables_that_cannot_be_encoded(columns, options, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        read(columns, target="y", **options)
    assert "canary" not in str(caught.value)


def test_too_many_levels_because_of_a_token(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(1500)) + "?,1\n")
    with pytest.raises(InvalidInput, match=r"1,000 levels.*1 of 1501 cells.*if '\?' means missing"):
        read(path, target="y")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"age": {"mean": 1, "scale": 2}}, "has an unknown member 'age'; it may have 'columns'"),
        ({"columns": [1]}, "must be an object"),
        ({"columns": {"nobody": {"mean": 1, "scale": 2}}}, "column 'nobody': is not in"),
        ({"columns": {"age": {"mean": 1}}}, "lacks 'scale'"),
        ({"columns": {"age": {"mean": 1, "scale": 0}}}, "must be > 0"),
        ({"columns": {"age": {"mean": 1, "scale": -1}}}, "must be > 0"),
        ({"columns": {"age": {"mean": 1, "scale": 1, "cut": 0}}}, "cut=0: must be > 0, or null"),
        ({"columns": {"age": {"mean": 1, "scale": 1, "cut": math.inf}}}, "must be a number"),
        ({"columns": {"age": {"mean": math.nan, "scale": 1}}}, "must be a number"),
        ({"columns": {"age": {"mean": "1", "scale": 1}}}, "must be a number"),
        ({"columns": {"age": {"mean": 1, "scale": 10**400}}}, "must be a number"),
        ({"columns": {"age": {"mean": 1, "scale": 1, "typo": 2}}}, "has an unknown member 'typo'"),
        ({"columns": {"age": {"mean": 1, "scale": 1, "kind": "levels"}}}, "kind"),
        ({"columns": {"age": {"mean": 1, "scale": 1, "origin": "heaven"}}}, "origin"),
        ({"columns": {"age": 3}}, "must be a JSON object"),
        ({"columns": {"sex": {"mean": 1, "scale": 1}}}, "'sex', row 1: is not a number"),
        ({"columns": {"sex": {"levels": []}}}, "must name at least one"),
        ({"columns": {"sex": {"levels": ["a", "a"]}}}, "twice"),
        ({"columns": {"sex": {"levels": "ab"}}}, "must be a list"),
        ({"columns": {"sex": {"levels": ["a"], "kind": "numeric"}}}, "kind"),
        ({"columns": {"sex": {"levels": ["a"], "missing_level": 1}}}, "missing_level"),
        ({"columns": {"label": {"levels": ["a"]}}}, "only one of these"),
        ({"columns": {"age": {"mean": 1, "scale": 1}}, "dropped": ["age"]}, "only one of these"),
        ({"dropped": ["nobody"]}, "column 'nobody': is not in"),
        ({"dropped": [1]}, "list of column names"),
        ({"data_norm": 0}, "must be > 0"),
        ({"columns": {"age": {"mean": 1, "scale": 1, "unit": 7}}}, "unit: must be a string"),
        ({"columns": {"age": {"mean": 1, "scale": 1, "unit": " "}}}, "unit: must be a string"),
        ({"data_norm": math.inf}, "must be a number"),
        ({"target": {"classes": ["no"]}}, "must have at least two"),
        ({"target": {"column": "age"}}, "given encoding is for 'age'"),
        ([], "must be an Encoding, its JSON object"),
        ({"format": "expost encoding"}, "version"),
        ({"format": "other"}, "was not written by expost"),
    ],
)
def test_bad_given_encodings(given, message):
    with pytest.raises(InvalidInput, match=message):
        read(PEOPLE, given=given)


@pytest.mark.parametrize("known", [{"mean": 40, "scale": 15}, {"range": [0, 100]}])
def test_a_unit_is_kept_and_changes_no_number(known):
    given = {"columns": {"age": {**known, "unit": " years "}}}
    encoding = read(PEOPLE, given=given)
    (entry, *_) = [entry for entry in encoding.entries if entry.name == "age"]
    assert entry.unit == "years"
    assert Encoding.from_json(encoding.to_json()) == encoding
    plain = read(PEOPLE, given={"columns": {"age": known}})
    table = open_table(PEOPLE)
    assert np.array_equal(encoding.encode_table(table).X, plain.encode_table(table).X)


def test_a_scale_that_overflows():
    encoding = read(PEOPLE, given=GIVEN)
    tiny = encoding.to_json()
    tiny["columns"]["age"]["scale"] = 5e-324
    with pytest.raises(InvalidInput, match="'age', row 1: overflows"):
        Encoding.from_json(tiny).encode_table(open_table(PEOPLE))


def test_a_whole_encoding_of_another_table_or_target():
    encoding = read(PEOPLE, given=GIVEN)
    with pytest.raises(InvalidInput, match="column 'age': is not in"):
        read({"x": [1, 2], "label": ["no", "yes"]}, given=encoding)
    with pytest.raises(InvalidInput, match="for 'label' as a class"):
        read(PEOPLE, given=encoding, target="sex")
    with pytest.raises(InvalidInput, match="for 'label' as a class"):
        read(PEOPLE, given=encoding, regression=True)
    with pytest.raises(InvalidInput, match="classes"):
        read(PEOPLE, given=encoding, classes=["no", "yes"])
    with pytest.raises(InvalidInput, match="one class only"):
        read(PEOPLE | {"label": ["no"] * 5}, given=encoding)


def test_labels_at_encoding_time():
    encoding = read(PEOPLE)
    with pytest.raises(InvalidInput, match=r"'label', row 4: .*'no' nor 'yes'") as caught:
        encoding.encode_table(open_table(PEOPLE | {"label": ["no", "no", "no", "canary", "no"]}))
    assert "canary" not in str(caught.value)
    with pytest.raises(InvalidInput, match="target 'label', row 2: is missing"):
        encoding.encode_table(open_table(PEOPLE | {"label": ["no", None, "no", "no", "no"]}))
    block = next(open_table({"age": [1.0]}).blocks(1))
    with pytest.raises(InvalidInput, match="column 'sex': is not in the table"):
        encoding.encode(block)
    block = next(open_table(PEOPLE).blocks(5))
    with pytest.raises(InvalidInput, match="'member': is read as bool"):
        encoding.encode(block)


# The file --------------------------------------------------------------------------------------


def test_the_file_round_trips_and_has_its_mode(tmp_path):
    for encoding, mode in ((read(PEOPLE), 0o600), (read(PEOPLE, given=GIVEN), 0o644)):
        path = encoding.save(tmp_path / "encoding.json")
        assert path.stat().st_mode & 0o777 == mode
        assert Encoding.load(path) == encoding
        assert Encoding.load(str(path)).to_json() == encoding.to_json()
        table = open_table(PEOPLE)
        again = Encoding.load(path).encode_table(table)
        assert np.array_equal(again.X, encoding.encode_table(table).X)


def edited(change) -> str:
    json_value = json.loads(json.dumps(read(PEOPLE).to_json()))
    change(json_value)
    return json.dumps(json_value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.update(version=3), "newer expost.*upgrade"),
        (lambda v: v.update(version=1), "older expost.*make the encoding again"),
        (lambda v: v.update(version=True), "version"),
        (lambda v: v.update(format="x"), "was not written by expost"),
        (lambda v: v.pop("target"), "lacks 'target'"),
        (lambda v: v.update(more=1), "has an unknown member 'more'"),
        (lambda v: v.update(columns={}), "no columns"),
        (lambda v: v.update(columns=[]), "must be a JSON object"),
        (lambda v: v.update(dropped=[]), "must be a JSON object"),
        (lambda v: v.update(missing="?"), "list of strings"),
        # Other entries that are refused: those of given encodings, above.
        (lambda v: v["columns"]["age"].update(scale=1e400), "not a whole JSON|must be a number"),
        (lambda v: v["columns"]["age"].update(mean=None), "must be a number"),
        (lambda v: v["columns"]["age"].pop("origin"), "lacks 'origin'"),
        (lambda v: v["columns"]["age"].pop("cut"), "lacks 'cut'"),
        (lambda v: v["columns"]["age"].pop("fill_origin"), "must be given together"),
        (lambda v: v["columns"]["sex"].pop("missing_origin"), "must be given together"),
        (lambda v: v["columns"]["sex"]["levels"].reverse(), "features"),
        (lambda v: v["features"].reverse(), "features"),
        (lambda v: v.update(columns=dict(sorted(v["columns"].items(), reverse=True))), "features"),
        (lambda v: v["target"].update(classes=["no"]), "must have at least two"),
        (lambda v: v["target"].update(column=3), "name of a column"),
        (lambda v: v["target"].update(column="age"), "holds a column twice"),
        (lambda v: v["dropped"].update(age="given"), "holds a column twice"),
        (lambda v: v["dropped"].update(same="x"), "dropped"),
        (lambda v: v["data_norm"].update(value=0), "must be > 0"),
        (lambda v: v.update(data_norm=3), "must be a JSON object"),
    ],
)
def test_edited_files_are_refused(tmp_path, change, message):
    path = tmp_path / "encoding.json"
    path.write_text(edited(change))
    with pytest.raises(InvalidInput, match=message) as caught:
        Encoding.load(path)
    assert str(caught.value).count(str(path)) == 1


def test_cut_and_foreign_files_are_refused(tmp_path):
    path = tmp_path / "encoding.json"
    text = read(PEOPLE).save(path).read_text()
    foreign = ["", "[]", "null", "3", '"x"', "{}", "{" * 5000, "\x00", '{"mean": NaN}']
    for content in [text[:k] for k in range(0, len(text) - 2, 37)] + foreign:
        path.write_text(content)
        with pytest.raises(InvalidInput):
            Encoding.load(path)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(InvalidInput):
        Encoding.load(path)
    for absent in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(InvalidInput, match="cannot be read"):
            Encoding.load(absent)


json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def whole() -> dict:
    return read(PEOPLE).to_json()


@settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@drawn(data=st.data(), value=json_values)
def test_a_value_changed_anywhere_gives_an_encoding_or_invalid_input(whole, data, value):
    changed = json.loads(json.dumps(whole))
    node = changed
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        inner = node[key]
        if isinstance(inner, dict | list) and inner and data.draw(st.booleans()):
            node = inner
        else:
            break
    node[key] = value
    try:
        encoding = Encoding.from_json(changed)
    except InvalidInput:
        return
    assert encoding.to_json() == json.loads(json.dumps(encoding.to_json()))
