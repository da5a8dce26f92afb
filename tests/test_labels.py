"""Any two labels outside, ±1 inside."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

from expost.errors import InvalidInput
from expost.labels import signs, two_classes

PATTERN = np.array([False, True, True, False])
PAIRS = {
    "plus minus one": np.where(PATTERN, 1, -1),
    "zero two": np.where(PATTERN, 2, 0),
    "floats": np.where(PATTERN, 0.5, -7.25),
    "booleans": PATTERN,
    "text": np.where(PATTERN, "yes", "no"),
    "text objects": np.where(PATTERN, "yes", "no").astype(object),
    "bytes": np.where(PATTERN, b"yes", b"no"),
    "past 2**53": np.where(PATTERN, 2**60 + 1, 2**60),
    "list": ["a", "b", "b", "a"],
    "column": np.where(PATTERN, 1, 0)[:, None],
    "pandas": pd.Series(["a", "b", "b", "a"]),
    "pandas categories": pd.Series(["a", "b", "b", "a"], dtype="category"),
    "pandas nullable": pd.Series([0, 1, 1, 0], dtype="Int64"),
    "polars": pl.Series(["a", "b", "b", "a"]),
    "dates": np.where(PATTERN, np.datetime64("2021"), np.datetime64("2020")),
}


@pytest.mark.parametrize("labels", PAIRS.values(), ids=PAIRS)
def test_the_larger_label_is_positive(labels):
    classes = two_classes(labels)
    np.testing.assert_array_equal(signs(labels, classes), np.where(PATTERN, 1.0, -1.0))


def test_given_classes_set_the_order():
    classes = two_classes(["a", "b"], classes=["b", "a"])
    np.testing.assert_array_equal(signs(["a", "b"], classes), [1.0, -1.0])


BAD = {
    "one class": ([1, 1, 1], None, "one class only"),
    "zeros of both signs": ([0.0, -0.0], None, "one class only"),
    "three classes": ([1, 2, 3], None, "3 classes"),
    "one class of two given": ([1, 1], [0, 1], "one class only"),
    "a label beside those given": ([0, 1, 2], [0, 1], "other than"),
    "the same class twice": ([0, 1], [1, 1], "two different"),
    "three given": ([0, 1], [0, 1, 2], "two different"),
    "NaN": ([0.0, np.nan], None, "NaN"),
    "infinity": ([0.0, np.inf], None, "infinite"),
    "None": (np.array([None, "a"], dtype=object), None, "missing"),
    "NaN object": (np.array([np.nan, "a"], dtype=object), None, "missing"),
    "pandas missing": (pd.Series([pd.NA, "a", "b"], dtype="string"), None, "y holds"),
    "pandas missing whole": (pd.Series([pd.NA, 1, 0], dtype="Int64"), None, "y holds"),
    "polars missing": (pl.Series([None, "a", "b"]), None, "missing"),
    "NaT": (np.array(["NaT", "2021"], dtype="M8[Y]"), None, "y holds"),
    "mixed types": (np.array([1, "a"], dtype=object), None, "types"),
    "complex": (np.array([1j, 2j]), None, "complex"),
    "two columns": (np.ones((2, 2)), None, "dimensions"),
    "text": ("ab", None, "dimensions"),
    "nothing": (None, None, "dimensions"),
    "ragged": ([[0], [1, 2]], None, "different lengths"),
    "masked": (np.ma.masked_array([0, 1], mask=[True, False]), None, "masked"),
    "sparse": (scipy.sparse.csr_array([[0], [1]]), None, "sparse"),
}


@pytest.mark.parametrize(("labels", "classes", "words"), BAD.values(), ids=BAD)
def test_bad_labels(labels, classes, words):
    with pytest.raises(InvalidInput, match=words):
        signs(labels, two_classes(labels, classes))


def test_a_new_label_is_refused():
    with pytest.raises(InvalidInput, match="other than"):
        signs([0, 1, 5], np.array([0, 1]))
    with pytest.raises(InvalidInput, match="other than"):
        signs(["yes"], np.array([0, 1]))
