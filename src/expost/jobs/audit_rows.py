"""The tables of an audit as rows of numbers: members, non-members, and a population.

An existing model reads every table with its own encoding. For an estimator, the encoding is read
from the table of members, and the target may have any number of classes: features are encoded
without it, with a column of zeros in its place.

An estimator is named by a class that can be imported, and its parameters:

    sklearn.ensemble.RandomForestClassifier
    sklearn.linear_model.LogisticRegression:C=10,solver=liblinear

Parameters are Python literals; a bare word is a string. Nothing but literals is evaluated.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost import _checks
from expost.data import Encoding, Table, open_table
from expost.data.sources import origin_of
from expost.errors import InvalidInput
from expost.groups.columns import printable
from expost.jobs.table import unknown_notices

__all__ = ["EstimatorReader", "ModelReader", "Part", "group_columns", "is_number"]
__all__ += ["named_estimator", "propensities"]

# The column in place of a target of many classes; the table must not have one of this name.
_NO_TARGET = "expost: no target"


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Rows of one table: ``X`` (n, d), ``labels`` (n,), and their keys.

    ``X`` is a matrix, or a frame for a saved model of another library.
    """

    X: Any
    labels: NDArray[Any]
    ids: list[Any] | None
    notices: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelReader:
    """A reader of tables with the encoding of a released model."""

    encoding: Encoding
    id_column: str | None

    @property
    def missing(self) -> tuple[str, ...]:
        """The tokens of a missing cell."""
        return self.encoding.missing

    def read(self, source: Any, *, keyed: bool = True) -> Part:
        """Return the rows; with keys if ``keyed``."""
        table = self.encoding.open(source, id_column=self.id_column if keyed else None)
        encoded = self.encoding.encode_table(table)
        goal = self.encoding.target
        labels = encoded.y if goal.classes is None else np.array(goal.labels(encoded.y))
        return Part(
            X=encoded.X,
            labels=labels,
            ids=None if encoded.ids is None else list(encoded.ids),
            notices=(*table.notices, *unknown_notices(encoded.unknown)),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimatorReader:
    """A reader of tables with the encoding of the first one."""

    target: str
    id_column: str | None
    missing: tuple[str, ...]
    encoding: Encoding

    @classmethod
    def of(
        cls,
        source: Any,
        *,
        target: str,
        id_column: str | None,
        drop: Sequence[str],
        missing: Sequence[str],
    ) -> "EstimatorReader":
        """Return a reader with the encoding of this table."""
        tokens = tuple(missing)
        names = [column.name for column in origin_of(source).columns]
        for name in drop:
            if name not in names:
                raise InvalidInput(
                    f"drop={name!r}: is not a column of the table; leave it out."
                    f"{_checks.did_you_mean(name, names)}"
                )
            if name in (target, id_column):
                raise InvalidInput(
                    f"drop={name!r}: is the target or the id column; drop another column."
                )
        kept = [name for name in names if name not in drop]
        table = open_table(
            source, columns=kept, id_column=id_column, missing=tokens, kinds={target: "text"}
        )
        whole, _, _ = _split(table, target)
        encoding = Encoding.read(
            open_table(whole, missing=tokens), target=_NO_TARGET, regression=True
        )
        # The estimator may be of any kind: rows are not clipped, which would make some equal.
        return cls(target=target, id_column=id_column, missing=tokens, encoding=encoding.uncut())

    def read(self, source: Any, *, keyed: bool = True) -> Part:
        """Return the rows; with keys if ``keyed``."""
        kinds: dict[str, Any] = {entry.name: entry.kind for entry in self.encoding.entries}
        table = open_table(
            source,
            columns=[*kinds, self.target],
            id_column=self.id_column if keyed else None,
            missing=self.missing,
            kinds=kinds | {self.target: "text"},
        )
        whole, labels, ids = _split(table, self.target)
        encoded = self.encoding.encode_table(self.encoding.open(whole))
        notices = (*self.encoding.notices, *table.notices, *unknown_notices(encoded.unknown))
        return Part(X=encoded.X, labels=labels, ids=ids, notices=notices)


def _split(table: Table, target: str) -> tuple[Any, NDArray[Any], list[Any] | None]:
    """Return the features with zeros in place of the target, the labels, and the keys."""
    if target == table.id_column:
        raise InvalidInput(f"target={target!r}: is the id column; name another.")
    table.require([target])
    if _NO_TARGET in table.names:
        raise InvalidInput(f"column {_NO_TARGET!r}: is a name that expost uses; rename it.")
    whole = pa.Table.from_batches(table.blocks())
    cells = whole.column(target)
    if cells.null_count:
        raise InvalidInput(
            f"target {target!r}: is missing in {cells.null_count} of {table.rows} rows: every row"
            " needs one; drop these rows."
        )
    labels = np.array(cells.to_pylist(), dtype=np.str_)
    key = table.id_column
    ids = None if key is None else whole.column(key).to_pylist()
    features = whole.drop_columns([target, *([] if key is None else [key])])
    zeros = pa.array(np.zeros(table.rows))
    return features.append_column(_NO_TARGET, zeros), labels, ids


def group_columns(
    names: Sequence[str], sources: Sequence[Any], missing: Sequence[str]
) -> dict[str, Any]:
    """Return the columns by which rows are grouped, concatenated over all tables."""
    if not names:
        return {}
    wanted = list(dict.fromkeys(names))
    tables = [open_table(source, columns=wanted, missing=missing) for source in sources]
    # Results by class are always reported, under the name class.
    shown = {name: f"column {name}" if name == "class" else name for name in wanted}
    return {shown[name]: _stacked([table.column(name) for table in tables]) for name in wanted}


def is_number(text: str) -> bool:
    """Return whether an option is a number, and not the name of a column."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def propensities(
    given: str, sources: Sequence[Any], missing: Sequence[str]
) -> float | NDArray[np.float64]:
    """Return the probability with which rows were members: a number, or a column of all tables."""
    if is_number(given):
        return _checks.probability("propensity", float(given))
    tables = [open_table(source, columns=[given], missing=missing) for source in sources]
    parts = []
    for table in tables:
        cells = table.column(given)
        if not pa.types.is_floating(cells.type) or cells.null_count:
            raise InvalidInput(
                f"{table.label}: column {given!r} must hold a probability in every row, from 0 to"
                " 1."
            )
        parts.append(cells.to_numpy(zero_copy_only=False))
    return np.concatenate(parts)


def _stacked(parts: list[Any]) -> Any:
    if len({str(part.type) for part in parts}) > 1:
        # Numbers in one table and strings in another are compared as strings.
        parts = [part.cast(pa.string()) for part in parts]
    return pa.concat_arrays(parts)


# -- the estimator ---------------------------------------------------------------------------------


def named_estimator(text: str) -> Any:
    """Return an unfitted estimator by its name; it must have ``fit`` and ``predict_proba``."""
    path, colon, parameters = text.partition(":")
    name = f"--estimator {printable(text)!r}"
    model = _imported(path, name)
    settings = _parameters(parameters, name) if colon else {}
    try:
        estimator = model(**settings)
    # A class may raise any exception: the parameter is wrong.
    except Exception as error:  # noqa: BLE001 (see above)
        raise InvalidInput(
            f"{name}: {model.__name__} does not take these parameters ({printable(error, 200)})."
        ) from None
    for method in ("fit", "predict_proba", "get_params"):
        if not hasattr(estimator, method):
            hint = "; pass probability=True" if "probability" in _settings(estimator) else ""
            raise InvalidInput(
                f"{name}: has no {method}; name a class of scikit-learn's interface with"
                f" predict_proba{hint}."
            )
    return estimator


def _settings(estimator: Any) -> Any:
    return estimator.get_params() if hasattr(estimator, "get_params") else {}


def _imported(path: str, name: str) -> type:
    """Return the class at a dotted path."""
    module, dot, attribute = path.rpartition(".")
    if not dot or not all(part.isidentifier() for part in path.split(".")):
        raise InvalidInput(
            f"{name}: must be a class with its module, as sklearn.ensemble.RandomForestClassifier."
        )
    try:
        imported = import_module(module)
        estimator = getattr(imported, attribute)
    except ImportError:
        raise InvalidInput(
            f"{name}: the module {module!r} cannot be imported; install it, or put its folder on"
            " PYTHONPATH."
        ) from None
    except AttributeError:
        known = [each for each in dir(imported) if isinstance(getattr(imported, each, None), type)]
        meant = _checks.did_you_mean(attribute, known)
        raise InvalidInput(f"{name}: {module!r} has no {attribute!r}.{meant}") from None
    # A module of the user's runs when it is imported, and may raise anything.
    except Exception as error:  # noqa: BLE001 (see above)
        raise InvalidInput(
            f"{name}: the module {module!r} raises {type(error).__name__} when it is imported;"
            " fix it."
        ) from None
    if not isinstance(estimator, type):
        raise InvalidInput(f"{name}: is not a class; name one with fit(X, y).")
    if not hasattr(estimator, "fit"):
        # Before an instance exists: to create one of subprocess.Popen is to run a program.
        raise InvalidInput(
            f"{name}: has no fit; name a class of scikit-learn's interface with predict_proba."
        )
    return estimator


def _parameters(text: str, name: str) -> dict[str, Any]:
    """Return ``a=1,b=sqrt,c=(10, 5)`` as a dict."""
    remedy = "must be param=value with commas between, as n_estimators=50,max_features=sqrt"
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InvalidInput(f"{name}: {remedy}.") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
        raise InvalidInput(f"{name}: {remedy}.")
    parameters: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise InvalidInput(f"{name}: {remedy}.")
        if keyword.arg in parameters:
            raise InvalidInput(f"{name}: gives {keyword.arg!r} twice; give it once.")
        if isinstance(keyword.value, ast.Name):
            parameters[keyword.arg] = keyword.value.id
            continue
        try:
            parameters[keyword.arg] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            raise InvalidInput(
                f"{name}: the value of {keyword.arg!r} is not a literal; put a string in quotes."
            ) from None
    return parameters
