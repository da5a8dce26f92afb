"""A saved model of another library as something that answers rows, and rows as it takes them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.auditing.signals import probabilities_of_scores
from expost.errors import ExpostError, InvalidInput, require
from expost.notices import listed
from expost.types import FloatArray

__all__ = [
    "EXTRA",
    "LoadedModel",
    "SavedModel",
    "as_frame",
    "as_probabilities",
    "ordered_classes",
    "typed",
    "with_categories",
    "without_rounding",
]

# The extra that installs the libraries of all formats.
EXTRA = "models"
# Sums of hundreds of numbers of single precision are this exact.
_ROUNDING = 1e-4


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedModel:
    """The answers of a saved model that has no scikit-learn interface of its own.

    Parameters
    ----------
    description : str
        The model in one line.
    evaluate : callable
        Takes rows and returns (n, K) probabilities, or (n,) predictions of a regression.
    classes_ : NDArray[Any] | None
        (K,) the labels in the order of the probabilities; None for a regression.
    is_assumed : bool, default=False
        Whether one output is taken for a regression's, and nothing in the file states so.
    is_numbered : bool, default=False
        Whether ``classes_`` are the numbers of the outputs, in whose place names can be given.
    """

    description: str
    evaluate: Callable[[Any], FloatArray]
    classes_: NDArray[Any] | None
    is_assumed: bool = False
    is_numbered: bool = False

    @property
    def predicts_numbers(self) -> bool:
        """Whether it is a regression."""
        return self.classes_ is None

    def predict_proba(self, X: Any) -> FloatArray:
        """Return (n, K) the probabilities of the classes.

        Parameters
        ----------
        X : Any
            (n, d) rows.

        Returns
        -------
        FloatArray
            The probabilities.
        """
        return self.evaluate(X)

    def predict(self, X: Any) -> FloatArray:
        """Return (n,) the predictions of a regression.

        Parameters
        ----------
        X : Any
            (n, d) rows.

        Returns
        -------
        FloatArray
            The predictions.
        """
        return self.evaluate(X)


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadedModel:
    """A model from a file, and the columns that it takes.

    Parameters
    ----------
    path : Path
        The file.
    description : str
        The model in one line.
    columns : tuple[str, ...] | None
        The names of its inputs, in order; None: it names none.
    width : int | None
        The number of its inputs; None if unknown.
    as_matrix : bool
        Whether it takes a matrix of numbers, not a frame.
    finish : callable
        (rows, classes) -> the model to attack; rows are needed by models that state their classes
        in their answers.
    categories : Mapping[int, NDArray[Any]], default={}
        The categories of columns that have some, by the index of the column.
    is_trainable : bool, default=False
        Whether models like it can be trained: it has ``fit``.
    notices : tuple[str, ...], default=()
        What a reader of the results must know.
    """

    path: Path
    description: str
    columns: tuple[str, ...] | None
    width: int | None
    as_matrix: bool
    finish: Callable[[Any, tuple[str, ...] | None], Any]
    categories: Mapping[int, NDArray[Any]] = field(default_factory=dict)
    is_trainable: bool = False
    notices: tuple[str, ...] = ()

    def answering(self, rows: Any = None, classes: Sequence[str] | None = None) -> Any:
        """Return the model as :func:`expost.audit` takes it.

        Parameters
        ----------
        rows : Any, optional
            A few rows, on which a model states its classes (ONNX); None: without.
        classes : Sequence[str], optional
            The labels in the order of the model's outputs, if it does not know them.

        Returns
        -------
        Any
            The estimator in the file, or a :class:`SavedModel`.

        Raises
        ------
        InvalidInput
            If the classes are not those of the model, or it does not answer.
        """
        try:
            return self.finish(rows, None if classes is None else tuple(classes))
        except ExpostError as error:
            raise InvalidInput(f"{self.path}: {error}") from None
        # Code of another library runs here. Its message may quote a cell and is not repeated.
        except Exception as error:  # noqa: BLE001 (see above)
            raise InvalidInput(
                f"{self.path}: the model does not answer the rows of the table"
                f" ({type(error).__name__}); it must accept their columns and types."
            ) from None


def as_probabilities(answers: FloatArray, scores: bool) -> FloatArray:
    """Return (n, K) probabilities; one number for each row is that of the second class."""
    if scores:
        return probabilities_of_scores(answers)
    if answers.ndim == 1:
        return np.column_stack([1 - answers, answers])
    total = answers.sum(axis=1, keepdims=True)
    shares: FloatArray = answers / total
    return shares


def without_rounding(probabilities: Any) -> FloatArray:
    """Return probabilities of single precision whose rounding errors below 0 are 0."""
    values: FloatArray = np.asarray(probabilities, dtype=np.float64)
    return np.where((values < 0) & (values > -_ROUNDING), 0.0, values)


def ordered_classes(count: int, given: tuple[str, ...] | None) -> NDArray[Any]:
    """Return the labels of ``count`` outputs: as given, or their numbers."""
    if given is None:
        return np.arange(count)
    if len(given) != count or len(set(given)) != count:
        raise InvalidInput(
            f"--classes: names {len(given)} classes, and the model has {count} outputs; name each"
            " once, in the order of the outputs."
        )
    return np.array(given)


# -- rows ------------------------------------------------------------------------------------------


def as_frame(X: Any, names: Sequence[str] | None) -> Any:
    """Return rows as a frame of pandas with these names, by name or by position."""
    pandas = require("pandas", caller="a saved model", extra=EXTRA)
    if not hasattr(X, "iloc"):
        if hasattr(X, "to_pandas"):
            X = X.to_pandas()
        else:
            return pandas.DataFrame(np.asarray(X), columns=names)
    if names is None:
        return X
    if list(map(str, X.columns)) == list(names):
        return X
    if len(X.columns) != len(names):
        raise InvalidInput(
            f"X: has {len(X.columns)} columns, and the model takes {len(names)}: {listed(names)}."
        )
    missing = [name for name in names if name not in set(map(str, X.columns))]
    # Names that the library changed when it saved them, in the same order.
    return X.set_axis(list(names), axis=1) if missing else X[list(names)]


def with_categories(frame: Any, categories: Mapping[int, NDArray[Any]]) -> Any:
    """Return the frame with the model's categories, and refuse strings in all other columns.

    Cells of another category become missing.
    """
    pandas = require("pandas", caller="a saved model", extra=EXTRA)
    columns = {}
    for index, name in enumerate(frame.columns):
        column = frame.iloc[:, index]
        if index in categories:
            known = categories[index]
            # pandas 3 warns of cells outside of the categories.
            cells = pandas.Categorical(column.where(column.isin(known)), categories=known)
            columns[name] = pandas.Series(cells, index=frame.index)
        else:
            typed(column.to_frame(), np.float64)
            columns[name] = column
    return pandas.DataFrame(columns, index=frame.index)


def typed(cells: Any, kind: Any) -> NDArray[Any]:
    """Return cells as an array of a type; refuse strings where numbers are taken."""
    if kind is np.object_:
        if bool(cells.isna().to_numpy().any()):
            raise InvalidInput(
                f"column {cells.columns[0]!r}: has missing cells, which a string of ONNX cannot be;"
                " write in them what the model was trained with."
            )
        return np.asarray(cells.astype(object).map(_text), dtype=np.object_)
    for name, dtype in cells.dtypes.items():
        if dtype.kind not in "biuf":
            raise InvalidInput(
                f"column {name!r}: holds strings, and the model takes numbers there; name the"
                " strings that mark missing cells with --missing."
            )
    values = cells.to_numpy(dtype=np.float64)
    if kind not in (np.float32, np.float64) and not np.all(values == np.floor(values)):
        raise InvalidInput("a column of integers holds fractions or missing cells.")
    return np.ascontiguousarray(values.astype(kind))


def _text(cell: Any) -> str:
    """Return a cell as a string, integers without a point."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)
