"""What is refused, with which words, and what simply works."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

from expost import _checks
from expost.errors import InvalidInput


@pytest.mark.parametrize("value", [0, -1, 0.0, -0.0, math.nan, -math.inf, math.inf])
def test_positive_refuses(value):
    with pytest.raises(InvalidInput, match=r"epsilon=.*finite number > 0"):
        _checks.positive("epsilon", value)


@pytest.mark.parametrize("value", ["1", None, True, np.True_, 1j, [1.0], np.array(1.0), object()])
def test_positive_refuses_what_is_no_number(value):
    with pytest.raises(InvalidInput, match=r"epsilon=.*must be a number"):
        _checks.positive("epsilon", value)


@pytest.mark.parametrize("value", [1, 2.5, np.float32(0.5), np.int64(3), 5e-324, 10**300])
def test_positive_accepts(value):
    result = _checks.positive("epsilon", value)
    assert type(result) is float
    assert result == float(value)


def test_positive_may_be_infinite_where_allowed():
    assert _checks.positive("epsilon", math.inf, finite=False) == math.inf
    for value in (math.nan, 0.0, -math.inf):
        with pytest.raises(InvalidInput, match="infinity is allowed"):
            _checks.positive("epsilon", value, finite=False)


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0, -0.1, 1.1, math.nan, math.inf, "0.5", None])
def test_probability_refuses(value):
    with pytest.raises(InvalidInput, match="delta="):
        _checks.probability("delta", value)


def test_probability_accepts_the_open_interval():
    assert _checks.probability("delta", 5e-324) == 5e-324
    assert _checks.probability("delta", np.nextafter(1.0, 0.0)) < 1


@pytest.mark.parametrize("value", [1, 2.0, True, "3", None, math.nan])
def test_whole_refuses(value):
    with pytest.raises(InvalidInput, match=r"samples=.*an integer of at least 2"):
        _checks.integer("samples", value, least=2)


def test_whole_accepts():
    assert _checks.integer("samples", np.int32(7), least=2) == 7


@pytest.mark.parametrize("value", [0, -1, 1.5, True, None, "2", 2**60, math.nan])
def test_rows_per_person_refuses(value):
    with pytest.raises(InvalidInput, match="rows_per_person"):
        _checks.rows_per_person(value)


@pytest.mark.parametrize("value", ["c", "", None, 1, ["a"]])
def test_one_of_refuses(value):
    with pytest.raises(InvalidInput, match=r"mode=.*must be one of 'a', 'b'"):
        _checks.one_of("mode", value, ("a", "b"))


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "1", True, None, 1e-320, 1e308])
def test_regularization_refuses(value):
    with pytest.raises(InvalidInput, match="regularization="):
        _checks.regularization(value)


GOOD = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def _with(value):
    spoilt = GOOD.copy()
    spoilt[1, 1] = value
    return spoilt


# Past float64 where a long double is longer, infinite where it is not.
with np.errstate(over="ignore"):
    TOO_LONG = np.ldexp(GOOD.astype(np.longdouble), 1400)
MASKED = np.ma.masked_array(GOOD, mask=GOOD > 5)
BAD_MATRICES = {
    "nan": (_with(math.nan), "NaN"),
    "inf": (_with(math.inf), "infinite"),
    "minus inf": (_with(-math.inf), "infinite"),
    "1e300": (_with(1e300), "huge"),
    "minus 1e300": (_with(-1e300), "huge"),
    "long double past float64": (TOO_LONG, "infinite"),
    "strings": (GOOD.astype(str), "numeric"),
    "bytes": (GOOD.astype("S"), "numeric"),
    "strings as objects": (GOOD.astype(str).astype(object), "numeric"),
    "one string among objects": (np.array([[1.0, "2"], [3, 4]], dtype=object), "numeric"),
    "complex": (GOOD + 1j, "complex"),
    "complex objects": ((GOOD + 1j).astype(object), "not real"),
    "None": ([[1.0, None], [2.0, 3.0]], "X holds"),
    "nothing": (None, "X "),
    "dict": ({"a": [1, 2]}, "X "),
    "masked": (MASKED, "masked"),
    "masked without a mask": (np.ma.masked_array(GOOD), "masked"),
    "ragged": ([[1, 2], [3]], "different lengths"),
    "one row": (GOOD[:1], "at least 2"),
    "no rows": (GOOD[:0], "at least 2"),
    "no columns": (GOOD[:, :0], "at least one"),
    "vector": (GOOD[:, 0], "reshape"),
    "scalar": (3.0, "dimensions"),
    "cube": (GOOD[:, :, None], "dimensions"),
    "dates": (np.array([["2020"], ["2021"]], dtype="M8[Y]"), "numeric"),
    "CSR matrix": (scipy.sparse.csr_matrix(GOOD), "toarray"),
    "CSR array": (scipy.sparse.csr_array(GOOD), "toarray"),
    "COO array": (scipy.sparse.coo_array(GOOD), "toarray"),
    "int past 2**53": (np.array([[2**53 + 2, 1], [1, 2]]), r"2\*\*53"),
    "least int": (np.array([[-(2**63), 1], [1, 2]]), r"2\*\*53"),
    "uint past 2**63": (np.array([[2**63 + 2, 1], [1, 2]], dtype=np.uint64), r"2\*\*53"),
    "Python int past 2**64": ([[2**70, 1], [1, 2]], r"2\*\*53"),
    "pandas text": (pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), "numeric"),
    "pandas missing": (pd.DataFrame({"a": pd.array([1, pd.NA], dtype="Int64")}), "X holds"),
    "pandas dates": (pd.DataFrame({"a": pd.to_datetime(["2020", "2021"])}), "numeric"),
    "polars text": (pl.DataFrame({"a": ["1", "2"]}), "numeric"),
    "polars missing": (pl.DataFrame({"a": [1.0, None]}), "NaN"),
}


@pytest.mark.parametrize(("value", "words"), BAD_MATRICES.values(), ids=BAD_MATRICES)
def test_bad_matrices(value, words):
    with pytest.raises(InvalidInput, match=words) as caught:
        _checks.matrix(value)
    assert str(caught.value).startswith("X")


def test_an_error_never_shows_a_value():
    secret = 1234567.890123
    for spoiler in (math.nan, 1e300, "text", 1j, 2**70):
        rows = np.array([[secret, spoiler], [secret, secret]], dtype=object)
        with pytest.raises(InvalidInput) as caught:
            _checks.matrix(rows)
        assert "1234567" not in str(caught.value)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


def _read_only():
    rows = GOOD.copy()
    rows.setflags(write=False)
    return rows


GOOD_MATRICES = {
    "float64": GOOD,
    "read-only": _read_only(),
    "Fortran": np.asfortranarray(GOOD),
    "strided": np.repeat(GOOD, 2, axis=0)[::2],
    "big-endian": GOOD.astype(">f8"),
    "float16": GOOD.astype(np.float16),
    "float32": GOOD.astype(np.float32),
    "long double": GOOD.astype(np.longdouble),
    "int8": GOOD.astype(np.int8),
    "uint64": GOOD.astype(np.uint64),
    "objects": GOOD.astype(object),
    "lists": GOOD.tolist(),
    "tuples": tuple(map(tuple, GOOD)),
    "pandas": pd.DataFrame(GOOD, columns=["a", "b"]),
    "pandas nullable": pd.DataFrame(GOOD).astype("Float64"),
    "polars": pl.DataFrame(GOOD),
    "matrix": GOOD.view(np.matrix),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("value", GOOD_MATRICES.values(), ids=GOOD_MATRICES)
def test_good_matrices(value):
    result = _checks.matrix(value)
    np.testing.assert_array_equal(result, GOOD)
    assert type(result) is np.ndarray
    assert result.dtype == np.float64
    assert result.flags.c_contiguous


def test_no_copy_is_made_of_what_is_right_already():
    assert np.shares_memory(_checks.matrix(GOOD), GOOD)


@pytest.mark.parametrize("value", [5e-324, -0.0, 2**53, -(2**53), 1e20, True])
def test_odd_entries_that_work(value):
    assert _checks.matrix([[value, 1], [1, 1]])[0, 0] == value


def test_names_in_messages():
    with pytest.raises(InvalidInput, match=r"^candidates\[0\] holds NaN"):
        _checks.matrix(_with(math.nan), name="candidates[0]")


def test_vectors():
    for value in ([1, 2, 3], np.array([[1], [2], [3]]), pd.Series([1, 2, 3]), pl.Series([1, 2, 3])):
        np.testing.assert_array_equal(_checks.vector(value, length=3), [1.0, 2.0, 3.0])
    for value, words in [
        ([1, 2], "one for each of 3"),
        (np.ones((3, 2)), "dimensions"),
        (3.0, "dimensions"),
        ([1, math.nan, 2], "NaN"),
        (["1", "2", "3"], "numeric"),
        (np.ma.masked_array([1, 2, 3]), "masked"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            _checks.vector(value, length=3)
