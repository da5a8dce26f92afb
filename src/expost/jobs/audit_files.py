"""Audits of saved models of other libraries: their tables, labels and references.

Such a model takes the raw table, the columns that it names in its order, and not expost's encoding.
Labels are those of its classes; a model that knows 0 … K − 1 only takes labels 0 … K − 1, or has
their order named.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder

from expost import _checks
from expost.auditing.model_files import load_model
from expost.auditing.saved_model import EXTRA, LoadedModel
from expost.auditing.training import prototype, seeded
from expost.data import open_table
from expost.data.sources import origin_of
from expost.errors import InvalidInput, require
from expost.jobs.audit_rows import Part
from expost.notices import listed

__all__ = ["EMPTY", "FileReader", "ReferenceTrainer"]

# Cells that count as missing: other strings may be categories that the model knows.
EMPTY = ("",)
_TRUE, _FALSE = frozenset({"True", "TRUE", "true"}), frozenset({"False", "FALSE", "false"})
_ASSUMED = (
    "The model has one output and does not state what it is: it was taken for a regression, with"
    " squared errors. If the output is a probability, name the labels with --classes NO,YES."
)
# Cells that are read at a time to see a model's classes.
_FIRST = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class FileReader:
    """A reader of tables as frames of the columns that a saved model takes.

    Parameters
    ----------
    loaded : LoadedModel
        The model in its file.
    columns : tuple[str, ...]
        The columns of the table that it takes, in its order.
    kinds : Mapping[str, Any], default={}
        The kinds of the columns in the first table; another table must agree.
    model : Any, optional
        The model to attack; None: not yet known.
    """

    loaded: LoadedModel
    target: str
    id_column: str | None
    missing: tuple[str, ...]
    columns: tuple[str, ...]
    kinds: Mapping[str, Any] = field(default_factory=dict)
    model: Any = None
    notices: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        path: Path,
        source: Any,
        *,
        target: str,
        id_column: str | None,
        drop: Sequence[str],
        missing: Sequence[str] | None,
        classes: Sequence[str] | None,
        trust_pickle: bool,
        trust_types: Sequence[str],
    ) -> "FileReader":
        """Load the model, and find its columns in the table and its classes."""
        loaded = load_model(path, trust_pickle=trust_pickle, trust_types=trust_types)
        names = [column.name for column in origin_of(source).columns]
        for name in (target, *drop):
            if name not in names:
                raise InvalidInput(
                    f"column {name!r}: is not in the table.{_checks.did_you_mean(name, names)}"
                )
        available = [name for name in names if name not in {target, id_column, *drop}]
        columns, notices = _chosen_columns(loaded, available, names)
        reader = cls(
            loaded=loaded,
            target=target,
            id_column=id_column,
            missing=EMPTY if missing is None else tuple(missing),
            columns=columns,
            # Categories that are strings: "01" is no number.
            kinds={
                columns[index]: "text"
                for index, known in loaded.categories.items()
                if known.dtype.kind in "OUT"
            },
            notices=(*loaded.notices, *notices),
        )
        frame, _, _, kinds = reader._cells(source, keyed=False)
        return replace(reader, kinds=kinds, model=loaded.answering(frame[:_FIRST], classes))

    def read(self, source: Any, *, keyed: bool = True) -> Part:
        """Return the rows; with keys if ``keyed``."""
        frame, labels, ids, _ = self._cells(source, keyed=keyed)
        notices = (*self.notices, *self._unseen(frame))
        if getattr(self.model, "is_assumed", False):
            notices += (_ASSUMED,)
        return Part(X=frame, labels=self._labels(labels), ids=ids, notices=notices)

    def _unseen(self, frame: Any) -> Iterator[str]:
        """Yield a notice for each column with categories that the model does not know."""
        for index, known in self.loaded.categories.items():
            cells = frame.iloc[:, index].dropna()
            unseen = int(np.count_nonzero(~cells.isin(known)))
            if unseen and unseen == len(cells):
                raise InvalidInput(
                    f"column {self.columns[index]!r}: holds none of the categories of"
                    f" {self.loaded.path}: {listed([repr(str(value)) for value in known])}."
                )
            if unseen:
                yield (
                    f"column {self.columns[index]!r}: {unseen} cells hold a category that the model"
                    " has not seen, and count as missing."
                )

    def _cells(
        self, source: Any, *, keyed: bool
    ) -> tuple[Any, list[str], list[Any] | None, dict[str, Any]]:
        """Return the frame, the labels as strings, the keys, and the kinds of the columns."""
        table = open_table(
            source,
            columns=[*self.columns, self.target],
            id_column=self.id_column if keyed else None,
            missing=self.missing,
            kinds={**self.kinds, self.target: "text"},
        )
        kinds = {name: table[name].kind for name in self.columns if table[name].kind != "boolean"}
        whole = pa.Table.from_batches(table.blocks())
        labels = whole.column(self.target)
        if labels.null_count:
            raise InvalidInput(
                f"target {self.target!r}: is missing in {labels.null_count} of {table.rows} rows:"
                " every row needs one; drop these rows."
            )
        ids = whole.column(table.id_column).to_pylist() if table.id_column else None
        frame = whole.select(list(self.columns))
        return self._frame(frame), labels.to_pylist(), ids, kinds

    def _frame(self, cells: Any) -> Any:
        """Return the columns as a frame, or as a matrix of numbers, as the model takes them."""
        pandas = require("pandas", caller="a saved model", extra=EXTRA)
        frame = pandas.DataFrame(
            {name: _column(cells.column(name)) for name in self.columns}, copy=False
        )
        if self.loaded.columns is not None:
            frame = frame.set_axis(list(self.loaded.columns), axis=1)
        if not self.loaded.as_matrix:
            return frame
        strings = [name for name, kind in frame.dtypes.items() if kind.kind not in "biuf"]
        if strings:
            raise InvalidInput(
                f"{self.loaded.path}: takes numbers, and column {strings[0]!r} holds strings; leave"
                " it out with --drop, or name what marks missing cells with --missing."
            )
        return frame.to_numpy(dtype=np.float64)

    def _labels(self, labels: list[str]) -> NDArray[Any]:
        """Return the labels as the model knows them."""
        classes = getattr(self.model, "classes_", None)
        if classes is None or getattr(self.model, "predicts_numbers", False):
            numbers = _as_numbers(labels)
            if numbers is None:
                assumed = getattr(self.model, "is_assumed", False)
                remedy = ", or --classes if its output is a probability" if assumed else ""
                raise InvalidInput(
                    f"target {self.target!r}: holds strings, and {self.loaded.path} predicts"
                    f" numbers; name another column{remedy}."
                )
            return numbers
        known = np.asarray(classes)
        matched = _matched_labels(labels, known)
        if matched is None:
            shown = listed([repr(str(value)) for value in known])
            remedy = "drop rows with other labels"
            if getattr(self.model, "is_numbered", False):
                remedy = "name the labels in the order of its outputs with --classes"
            elif known.dtype.kind in "iuf":
                remedy = "write these numbers into it"
            raise InvalidInput(
                f"target {self.target!r}: holds labels that {self.loaded.path} does not know; its"
                f" classes are {shown}. Name the right column, or {remedy}."
            )
        return matched


def _chosen_columns(
    loaded: LoadedModel, available: list[str], names: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns of the table that the model takes, and notices."""
    if loaded.columns is None:
        if loaded.width is not None and loaded.width != len(available):
            remedy = "pass the table that the model was trained on"
            if len(available) > loaded.width:
                remedy = "leave the others out with --drop"
            raise InvalidInput(
                f"{loaded.path}: takes {loaded.width} columns without names, and the table has"
                f" {len(available)} next to target and id; {remedy}."
            )
        notice = (
            "The model does not name its columns: those of the table are used in their order,"
            f" {listed(available)}."
        )
        return tuple(available), (notice,)
    # Libraries replace spaces and signs in names.
    plain = {re.sub(r"\W", "_", name): name for name in reversed(available)}
    left_out = {re.sub(r"\W", "_", name) for name in names}
    chosen = []
    for name in loaded.columns:
        own = re.sub(r"\W", "_", name)
        match = name if name in available else plain.get(own)
        if match is None and own in left_out:
            raise InvalidInput(
                f"{loaded.path}: takes column {name!r}, which is named by --target, --id, --drop or"
                " --propensity; leave it for the model."
            )
        if match is None:
            raise InvalidInput(
                f"{loaded.path}: takes column {name!r}, which the table does not have."
                f"{_checks.did_you_mean(name, available)}"
            )
        chosen.append(match)
    return tuple(chosen), ()


def _column(cells: Any) -> Any:
    """Return a column as pandas reads it: numbers, booleans, or strings with None."""
    cells = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    if not pa.types.is_string(cells.type):
        return cells.to_numpy(zero_copy_only=False)
    values = np.array(cells.to_pylist(), dtype=object)
    distinct = set(cells.unique().to_pylist())
    if distinct and distinct <= _TRUE | _FALSE:
        return np.isin(values, list(_TRUE))
    # Missing strings are NaN in frames that pandas read.
    return np.where(values == None, np.nan, values)  # noqa: E711 (elementwise)


def _as_numbers(labels: Sequence[str]) -> NDArray[Any] | None:
    try:
        numbers = np.array([float(label) for label in labels])
    except ValueError:
        return None
    return numbers if np.all(np.isfinite(numbers)) else None


def _matched_labels(labels: Sequence[str], classes: NDArray[Any]) -> NDArray[Any] | None:
    """Return the labels as values of the classes; None if one is not among them."""
    known: dict[Any, Any] = {}
    if classes.dtype.kind == "b":
        known = {word: value for words, value in ((_TRUE, True), (_FALSE, False)) for word in words}
        known |= {"1": True, "0": False}
    elif classes.dtype.kind in "iuf":
        numbers = _as_numbers(labels)
        known = {float(value): value for value in classes}
        if numbers is None or any(number not in known for number in numbers):
            return None
        return np.array([known[number] for number in numbers], dtype=classes.dtype)
    else:
        known = {str(value): value for value in classes}
    if any(label not in known for label in labels):
        return None
    return np.array([known[label] for label in labels])


@dataclass(frozen=True, kw_only=True)
class ReferenceTrainer:
    """A training function for references of a model that cannot be trained again.

    The estimator is fitted to the raw table: numbers with medians in place of missing cells, and an
    indicator for each string.

    Parameters
    ----------
    estimator : Any
        An unfitted estimator of scikit-learn's interface.
    trains_target : bool, default=False
        Whether the target was trained like this; nothing states so.
    """

    estimator: Any
    trains_target: bool = False

    def __call__(self, X: Any, y: Any, seed: int) -> Any:
        """Train the estimator on these rows."""
        strings: list[Any] = []
        numbers: Any = slice(None)
        if hasattr(X, "dtypes"):
            strings = [name for name, kind in X.dtypes.items() if kind.kind not in "biuf"]
            numbers = [name for name in X.columns if name not in strings]
        columns = ColumnTransformer(
            [
                ("numbers", SimpleImputer(strategy="median"), numbers),
                ("strings", OneHotEncoder(handle_unknown="ignore", sparse_output=False), strings),
            ]
        )
        estimator = seeded(prototype(self.estimator), seed)
        return Pipeline([("columns", columns), ("model", estimator)]).fit(X, y)
