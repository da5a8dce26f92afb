"""Reading whose row each row is."""

import datetime

import numpy as np
import pandas as pd
import pytest

from expost.errors import InvalidInput
from expost.neighbouring.persons import read_persons
from expost.types import Neighbouring


def naive(labels):
    """Names in order of first appearance, and the rows of each."""
    collected = {}
    for row, label in enumerate(labels):
        collected.setdefault(label, []).append(row)
    return list(collected), list(collected.values())


LABELS = {
    "integers": np.array([7, 3, 7, 0, 3, 7]),
    "a list": [7, 3, 7, 0, 3, 7],
    "texts": ["b", "a", "b", "zz", "a", "b"],
    "an array of texts": np.array(["b", "a", "b", "zz", "a", "b"]),
    "objects": np.array(["b", 1, "b", (1, 2), 1, "b"], dtype=object),
    "tuples": [("x", 1), ("x", 2), ("x", 1), ("y", 1), ("x", 2), ("x", 1)],
    "numbers": np.array([0.5, -1.0, 0.5, 2.0, -1.0, 0.5]),
    "truths": [True, False, True, False, False, True],
    "a series": pd.Series(["b", "a", "b", "zz", "a", "b"], index=[5, 4, 3, 2, 1, 0]),
    "categories": pd.Series(["b", "a", "b", "zz", "a", "b"], dtype="category"),
    "days": np.array(["2020-01-02", "2020-01-01", "2020-01-02", "2021-01-01", "2020-01-01",
                      "2020-01-02"], dtype="datetime64[D]"),
    "a column": np.array([[7], [3], [7], [0], [3], [7]]),
    "dates": [datetime.date(2020, 1, day) for day in (2, 1, 2, 3, 1, 2)],
}  # fmt: skip


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_persons_stand_in_the_order_in_which_they_appear(labels):
    plain = np.asarray(labels).ravel().tolist() if hasattr(labels, "ravel") else list(labels)
    names, rows = naive(plain)
    persons = read_persons(labels, len(plain))
    assert list(persons.names) == names
    assert persons.sizes.tolist() == [len(own) for own in rows]
    assert [persons.rows_of(person).tolist() for person in range(len(persons))] == rows
    assert [names[owner] for owner in persons.owner] == plain
    assert not persons.are_rows
    assert persons.largest == max(map(len, rows))


def test_persons_of_one_size_go_together():
    labels = np.random.default_rng(0).integers(0, 30, 200)
    result = read_persons(labels, 200)
    sizes = {}
    for persons, rows in result.by_size():
        assert rows.shape == (len(persons), result.sizes[persons[0]])
        sizes.update(zip(persons.tolist(), rows.tolist(), strict=True))
    assert sizes == {person: result.rows_of(person).tolist() for person in range(len(result))}
    assert list(sizes) != sorted(sizes)


def test_everyone_with_one_row_is_the_rows_themselves():
    persons = read_persons([f"p{k}" for k in (3, 1, 2)], 3)
    assert persons.are_rows
    assert persons.owner.tolist() == [0, 1, 2]


MISSING = {
    "none": [1, None, 2],
    "not a number": [1.0, float("nan"), 2.0],
    "an array": np.array([1.0, np.nan, 2.0]),
    "an object array": np.array([1, np.nan, 2], dtype=object),
    "pandas": pd.Series([1, None, 2], dtype="Int64"),
    "a text": pd.Series(["a", None, "b"]),
    "a time": np.array(["2020-01-01", "NaT", "2020-01-02"], dtype="datetime64[D]"),
    "masked": np.ma.array([1, 2, 3], mask=[False, True, False]),
    "in a tuple": [("a", 1), ("a", None), ("b", 1)],
}


@pytest.mark.parametrize("labels", MISSING.values(), ids=MISSING)
def test_a_row_without_a_person_is_refused(labels):
    with pytest.raises(InvalidInput, match="persons: entry 1 is missing"):
        read_persons(labels, 3)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("aab", "must be a sequence"),
        ({1, 2, 3}, "must be a sequence"),
        ({1: 2, 2: 3, 3: 4}, "must be a sequence"),
        (7, "must be a sequence"),
        ([1, 2], "has 2 entries: must have one for each of 3 rows"),
        (np.ones((3, 2)), "has 2 dimensions"),
        ([1, [2], 3], "entry 1 is a list"),
        ([1, np.ones(2), 3], "entry 1 is a ndarray"),
        ([5, 5, 5], "one person owns every row"),
        (np.zeros(3), "one person owns every row"),
    ],
    ids=repr,
)
def test_what_is_not_a_label_a_row_is_refused(labels, message):
    with pytest.raises(InvalidInput, match=message):
        read_persons(labels, 3)


@pytest.mark.parametrize("relation", [Neighbouring.ADD, Neighbouring.REPLACE])
def test_only_removal_knows_persons(relation):
    with pytest.raises(InvalidInput, match=f"relation='{relation.value}' changes single rows"):
        read_persons([1, 1, 2], 3, relation)


def test_no_label_is_ever_shown():
    persons = read_persons(["Mrs Canary", "Mrs Canary", "Mr Wren"], 3)
    assert "Canary" not in repr(persons)
    assert "2 of 3 rows" in repr(persons)
    with pytest.raises(InvalidInput) as refused:
        read_persons(["Mrs Canary", ["Mr Wren"], "Mrs Canary"], 3)
    assert "Wren" not in str(refused.value)
