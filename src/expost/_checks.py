"""Checks of the arguments that a user passes.

NaN fails every check. Each message names the parameter, its value, the constraint and the remedy.
Values of rows are never shown.
"""

import difflib
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.errors import InvalidInput
from expost.types import Audience, FloatArray

__all__ = [
    "LONE_SURROGATE",
    "array",
    "between",
    "closest",
    "dense",
    "did_you_mean",
    "finite",
    "integer",
    "is_encodable",
    "is_missing",
    "is_sparse",
    "levels",
    "matrix",
    "named",
    "nonnegative",
    "numbers",
    "one_of",
    "points",
    "positive",
    "probability",
    "regularization",
    "rows_per_person",
    "spread",
    "text_columns",
    "triple",
    "vector",
]

# Squares and products of two entries must not overflow.
_LARGEST = 1e150
# The fault of a string for which :func:`is_encodable` is false, for a message.
LONE_SURROGATE = "is a string with a lone surrogate, which no file can hold; replace that character"
# A larger integer need not be a float64.
_LARGEST_INTEGER = 2**53


def positive(name: str, value: Any, *, finite: bool = True) -> float:
    """Return ``value`` as a float > 0; infinity passes only where ``finite`` is false."""
    number = _number(name, value)
    if not number > 0 or (finite and not number < math.inf):
        constraint = "a finite number > 0" if finite else "a number > 0 (infinity is allowed)"
        raise InvalidInput(f"{name}={value!r}: must be {constraint}.")
    return number


def between(name: str, value: Any, low: float, high: float) -> float:
    """Return ``value`` as a float from ``low`` to ``high``, both included."""
    number = _number(name, value)
    if not low <= number <= high:
        raise InvalidInput(f"{name}={value!r}: must lie between {low:g} and {high:g}.")
    return number


def probability(name: str, value: Any) -> float:
    """Return ``value`` as a float strictly between 0 and 1."""
    number = _number(name, value)
    if not 0 < number < 1:
        raise InvalidInput(f"{name}={value!r}: must lie strictly between 0 and 1.")
    return number


def integer(name: str, value: Any, *, least: int) -> int:
    """Return ``value`` as an int of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not value >= least:
        raise InvalidInput(f"{name}={value!r}: must be an integer of at least {least}.")
    return int(value)


def rows_per_person(value: Any) -> int:
    """Return ``value`` as a bound on the number of rows of a person, from 1 to 2⁵³."""
    rows = integer("rows_per_person", value, least=1)
    if rows > 2**53:
        raise InvalidInput("rows_per_person: must be an integer of at most 2**53.")
    return rows


def one_of(name: str, value: Any, allowed: Sequence[str]) -> str:
    """Return ``value`` if it is among ``allowed``."""
    if not isinstance(value, str) or value not in allowed:
        raise InvalidInput(
            f"{name}={value!r}: must be one of {', '.join(map(repr, allowed))}."
            f"{did_you_mean(value, allowed)}"
        )
    return value


def audience(value: Audience | str) -> Audience:
    """Return the audience, also by its name."""
    if isinstance(value, Audience):
        return value
    return Audience(one_of("audience", value, [each.value for each in Audience]))


def did_you_mean(name: Any, names: Iterable[str]) -> str:
    """Return " Did you mean …?" for an unknown name, or "" if no known name is similar."""
    if not isinstance(name, str):
        return ""
    close = closest(name, names)
    return "" if close is None else f" Did you mean {close!r}?"


def closest(name: str, names: Iterable[str]) -> str | None:
    """Return the known name that is most like an unknown one; None if none is similar."""
    lowered = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.7)
    return lowered[close[0]] if close else None


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(
        value, int | float | np.integer | np.floating
    ):
        raise InvalidInput(f"{name}={value!r}: must be a number.")
    try:
        return float(value)
    except OverflowError:
        # The value is not shown: Python refuses to format integers of thousands of digits.
        raise InvalidInput(
            f"{name}: is an integer too large for float64; pass a number of at most 1e308."
        ) from None


def matrix(X: Any, *, name: str = "X", min_rows: int = 2) -> FloatArray:
    """Return ``X`` as a finite, C-ordered float64 matrix (n, d), n ≥ ``min_rows`` and d ≥ 1."""
    array = _numeric(X, name)
    if array.ndim != 2:
        raise InvalidInput(
            f"{name} has {array.ndim} dimensions: must have two, rows and columns;"
            " reshape a single column with X.reshape(-1, 1)."
        )
    rows, columns = array.shape
    if rows < min_rows:
        raise InvalidInput(f"{name} has {rows} row(s): must have at least {min_rows}.")
    if columns < 1:
        raise InvalidInput(f"{name} has 0 columns: must have at least one.")
    return np.ascontiguousarray(array)


def vector(y: Any, *, name: str = "y", length: int | None = None) -> FloatArray:
    """Return ``y`` as a finite float64 vector (of the given ``length``)."""
    array = _numeric(y, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InvalidInput(f"{name} has {array.ndim} dimensions: must have one.")
    if length is not None and len(array) != length:
        raise InvalidInput(
            f"{name} has {len(array)} entries: must have one for each of {length} rows."
        )
    return np.ascontiguousarray(array)


def regularization(value: Any) -> float:
    """Return Λ as a float from 1e-100 to 1e100, whose square neither over- nor underflows."""
    number = positive("regularization", value)
    if not 1e-100 <= number <= 1e100:
        raise InvalidInput(f"regularization={value!r}: must lie between 1e-100 and 1e100.")
    return number


def text_columns(array: NDArray[Any]) -> tuple[int, ...]:
    """Return the indices of the columns of a matrix that hold anything but numbers."""
    if array.ndim != 2 or array.dtype.kind in "biufc":
        return ()
    columns = range(array.shape[1])
    if array.dtype != object:
        return tuple(columns)
    return tuple(
        column
        for column in columns
        if any(isinstance(value, str | bytes) for value in array[:, column])
    )


def named(columns: Sequence[Any]) -> str:
    """Return the first few columns for a message: names quoted, positions as integers."""
    noun = "column" if len(columns) == 1 else "columns"
    shown = ", ".join(str(name) if isinstance(name, int) else repr(name) for name in columns[:5])
    return f"{noun} {shown}" + (f" and {len(columns) - 5} more" if len(columns) > 5 else "")


def _from_objects(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return an object array as float64; refuse strings, even those that look like numbers."""
    if any(isinstance(value, str | bytes) for value in array.flat):
        columns = text_columns(array)
        where = f" in {named(columns)}" if columns else ""
        raise InvalidInput(
            f"{name} holds strings{where}: must be numeric; encode the table first (by the command"
            " line, expost.data or encoding= of the estimators)."
        )
    if any(isinstance(value, int) and abs(value) > _LARGEST_INTEGER for value in array.flat):
        raise InvalidInput(
            f"{name} holds integers past 2**53, which float64 cannot represent exactly;"
            " rescale them."
        )
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(
            f"{name} holds entries that are not real numbers: drop, fill or encode them."
        ) from None


def is_sparse(values: Any) -> bool:
    """Return whether ``values`` is a sparse matrix or array of SciPy.

    Sparse values exist only where scipy.sparse was imported, which is slow and not done here.
    """
    module = sys.modules.get("scipy.sparse")
    return module is not None and bool(module.issparse(values))


def dense(values: Any, name: str) -> None:
    """Refuse sparse matrices, sparse frames and masked arrays."""
    if is_sparse(values):
        raise InvalidInput(
            f"{name} is a sparse matrix: a dense one is needed; pass {name}.toarray()."
        )
    if isinstance(values, np.ma.MaskedArray):
        raise InvalidInput(
            f"{name} is a masked array: missing values are not handled here; pass {name}.filled(…)"
            " or encode the table with expost.data."
        )
    kinds = getattr(values, "dtypes", ()) if getattr(values, "ndim", 1) == 2 else ()
    if len(kinds) and all(type(kind).__name__ == "SparseDtype" for kind in kinds):
        raise InvalidInput(
            f"{name} is a sparse frame: a dense one is needed; pass {name}.sparse.to_dense()."
        )


def array(values: Any, name: str) -> NDArray[Any]:
    """Return ``values`` as an array of any type, ``np.matrix`` included."""
    dense(values, name)
    try:
        return np.asarray(values)
    except ValueError:
        raise InvalidInput(f"{name} has rows of different lengths: must be a matrix.") from None
    # Arrays and frames of other libraries run their own code here and may raise any exception.
    except Exception as error:  # noqa: BLE001 (see above)
        raise InvalidInput(
            f"{name} is a {type(values).__name__} that NumPy cannot read ({type(error).__name__}):"
            f" pass a NumPy array of one type ({name}.get() for CuPy)."
        ) from None


def is_missing(value: Any) -> bool:
    """Return whether ``value`` is None, NaN, NaT or pandas' NA, or a tuple that holds one."""
    if value is None:
        return True
    if isinstance(value, tuple):
        return any(map(is_missing, value))
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        # pandas' NA has no boolean value. Neither has an array, which is not a single value.
        return not hasattr(value, "__len__")


def is_encodable(value: Any) -> bool:
    """Return whether ``value`` is not a string, or a string that UTF-8 can encode."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
    return True


def _numeric(values: Any, name: str) -> FloatArray:
    numeric = array(values, name)
    if numeric.dtype == object:
        numeric = _from_objects(numeric, name)
    if numeric.dtype.kind == "c":
        raise InvalidInput(f"{name} holds complex numbers: must be real; pass {name}.real.")
    if numeric.dtype.kind not in "biuf":
        raise InvalidInput(
            f"{name} holds {numeric.dtype} values: must be numeric; encode the table first"
            " (by the command line or expost.data)."
        )
    too_long = (
        numeric.dtype.kind in "iu"
        and numeric.size
        and (int(numeric.max()) > _LARGEST_INTEGER or int(numeric.min()) < -_LARGEST_INTEGER)
    )
    if too_long:
        raise InvalidInput(
            f"{name} holds integers past 2**53, which float64 cannot represent exactly;"
            " rescale them."
        )
    with np.errstate(over="ignore"):
        numeric = numeric.astype(np.float64, copy=False)
    # The extremes are finite only if every entry is; they need no temporary of the matrix's size.
    with np.errstate(over="ignore", invalid="ignore"):
        peak = max(float(numeric.max()), -float(numeric.min())) if numeric.size else 0.0
    if not peak <= _LARGEST:
        problem = "NaN" if math.isnan(peak) else "infinite" if math.isinf(peak) else "huge"
        raise InvalidInput(
            f"{name} holds {problem} values: every entry must be finite and at most {_LARGEST:g}"
            " in magnitude; drop, fill or rescale them."
        )
    return numeric


# -- arguments of noise distributions: numbers and arrays of any shape ----------------------------


def numbers(name: str, values: Any) -> FloatArray:
    """Return ``values`` as a float64 array of any shape, infinities allowed."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"{name} is not numeric: must be a number or an array of numbers."
        ) from None
    if np.any(np.isnan(array)):
        raise InvalidInput(f"{name} holds NaN: every entry must be a number.")
    return array


def finite(name: str, values: Any) -> FloatArray:
    """Return ``values`` as a finite float64 array of any shape."""
    array = numbers(name, values)
    if not np.all(np.isfinite(array)):
        raise InvalidInput(f"{name} holds infinite values: every entry must be finite.")
    return array


def nonnegative(name: str, values: Any) -> FloatArray:
    """Return ``values`` as a read-only float64 array of numbers ≥ 0, infinity allowed."""
    array = numbers(name, values).copy()
    if not np.all(array >= 0):
        raise InvalidInput(f"{name} has negative entries: every entry must be at least 0.")
    array.setflags(write=False)
    return array


def levels(probability: Any) -> FloatArray:
    """Return ``probability`` as an array with entries in [0, 1]."""
    array = numbers("probability", probability)
    if not np.all((array >= 0) & (array <= 1)):
        raise InvalidInput("probability has entries outside [0, 1]: every entry must lie in it.")
    return array


def points(name: str, values: Any, dimension: int) -> FloatArray:
    """Return ``values`` as finite float64 vectors of length ``dimension`` along the last axis."""
    vectors = finite(name, values)
    if vectors.ndim == 0 or vectors.shape[-1] != dimension:
        raise InvalidInput(
            f"{name} has shape {vectors.shape}: its last axis must have the noise's"
            f" dimension={dimension}."
        )
    return vectors


def spread(**named: Any) -> tuple[FloatArray, ...]:
    """Broadcast nonnegative arguments, infinity allowed, against each other."""
    return _aligned(**{name: nonnegative(name, values) for name, values in named.items()})


def _aligned(**arrays: FloatArray) -> tuple[FloatArray, ...]:
    """Broadcast ``arrays`` against each other."""
    try:
        return np.broadcast_arrays(*arrays.values())
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InvalidInput(f"{shapes}: the shapes must agree, one entry per row.") from None


def triple(noise_norm: Any, inner: Any, distance: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Broadcast ∥b∥ ≥ 0, b·s and ∥s∥ ≥ 0, all finite, against each other."""
    norm, product, apart = _aligned(
        noise_norm=nonnegative("noise_norm", finite("noise_norm", noise_norm)),
        inner=finite("inner", inner),
        distance=nonnegative("distance", finite("distance", distance)),
    )
    return norm, product, apart
