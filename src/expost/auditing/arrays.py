"""Audits of answers that were computed elsewhere: losses, probabilities or log odds as arrays.

Exactly one quantity is given for every model:

    losses          −log p of each row's own label, the cross-entropy: (n,)
    confidence      log(p/(1 − p)): (n,)
    probabilities   p of the own label (n,), or of every class (n, K) with ``labels``

For m references the same quantity has a leading axis, (m, n) or (m, n, K), and comes with
``inside`` (m, n). ``population`` (k,) or (k, K) are answers for rows that were in no training data,
``population_references`` those of the references. ``features`` (n, d) are the rows themselves: with
them members and non-members are compared without the model. ``propensity`` (n,) is the probability
with which each row was included, independently, where that is known by design.

Files
-----
npz       arrays under these names, and ``member`` (n,), ``labels``, ``ids``, ``population_labels``;
          numbers as ``features``.
table     CSV or Parquet, a row each: ``loss``, ``confidence`` or ``probability`` of its own label;
          ``member``, 0 or 1; and optionally ``label``, ``id``, ``population`` (1: the row is in no
          training data and not in question; ``member`` 0), ``propensity``, columns of the row
          itself as ``feature_NAME``, and for each reference j ``reference_j`` (the same quantity)
          with ``inside_j``, 0 or 1.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.auditing import signals
from expost.auditing.evidence import LARGEST, Confidences, Evidence, Flags
from expost.auditing.one_run import checked_propensity
from expost.auditing.signals import Labels, as_rows, count_rows
from expost.data import Table, open_table
from expost.errors import InvalidInput
from expost.files.atomic import BROKEN_NPZ
from expost.types import FloatArray

__all__ = ["Arrays", "arrays_of", "read_arrays"]

_MORE = (
    "labels",
    "member",
    "ids",
    "references",
    "inside",
    "population",
    "population_labels",
    "population_references",
    "features",
    "propensity",
)
_FEATURE = "feature_"
# The columns of a table, and the arrays that they are.
_COLUMNS = {"loss": "losses", "confidence": "confidence", "probability": "probabilities"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Arrays:
    """Evidence from elsewhere.

    Parameters
    ----------
    evidence : Evidence
        The outputs of the target and of its references, as attacks read them.
    member : Flags | None
        (n,) whether each row was in the target's training data; None if unknown.
    classes : NDArray[Any] | None
        (K,) the labels in the order of their codes; None without labels.
    ids : NDArray[Any] | None
        (n,) the rows' keys, or None.
    features : Any, default=None
        (n, d) the rows themselves, an array or a list of columns, or None.
    propensity : FloatArray, optional
        (n,) the probability with which each row was a member; None if unknown.
    """

    evidence: Evidence
    member: Flags | None
    classes: NDArray[Any] | None
    ids: NDArray[Any] | None
    features: Any = None
    propensity: FloatArray | None = None


def arrays_of(
    *,
    losses: Any = None,
    confidence: Any = None,
    probabilities: Any = None,
    labels: Any = None,
    member: Any = None,
    ids: Any = None,
    references: Any = None,
    inside: Any = None,
    population: Any = None,
    population_labels: Any = None,
    population_references: Any = None,
    features: Any = None,
    propensity: Any = None,
) -> Arrays:
    """Return the evidence in these arrays.

    Parameters
    ----------
    losses, confidence, probabilities : Any, optional
        The target's answers, exactly one of them (:mod:`expost.auditing.arrays`).
    labels : Any, optional
        (n,) the rows' own labels; needed with probabilities of every class.
    member : Any, optional
        (n,) whether each row was in the target's training data.
    ids : Any, optional
        (n,) the rows' keys.
    references, inside : Any, optional
        (m, n) or (m, n, K) the same quantity under each reference, and (m, n) whether the reference
        was trained with the row.
    population, population_labels, population_references : Any, optional
        The same for rows that were in no training data.
    features : Any, optional
        (n, d) the rows themselves, an array or a frame: members and non-members are then compared
        without the model.
    propensity : Any, optional
        (n,) or one number: the probability with which each row was included, by design.

    Returns
    -------
    Arrays
        For :func:`expost.auditing.audit_arrays`.

    Raises
    ------
    InvalidInput
        If an array is missing or has the wrong shape, or a value is NaN or out of range.
    """
    given = {"losses": losses, "confidence": confidence, "probabilities": probabilities}
    named = [name for name, values in given.items() if values is not None]
    if len(named) != 1:
        raise InvalidInput(f"{', '.join(given)}: exactly one must be given.")
    if (references is None) is not (inside is None):
        raise InvalidInput("references: must be given with inside, the rows each was trained on.")
    if (population_references is None) is not (population is None or references is None):
        raise InvalidInput(
            "population_references: the references' answers for the population; must be given if"
            " and only if references and population are."
        )
    quantity = named[0]
    values = _array(quantity, given[quantity])
    wide = quantity == "probabilities" and values.ndim == 2
    numbers, outside, classes = _numbered(labels, population_labels, values.shape[1] if wide else 0)
    target = _confidence(quantity, values, numbers, "the target")
    theirs = _of_models(quantity, references, numbers, len(target))
    known = _confidence(quantity, () if population is None else population, outside, "population")
    n, m, k = len(target), len(theirs), len(known)
    views = signals.views(values) if wide else np.empty((n, 0), dtype=np.float32)
    return Arrays(
        evidence=Evidence(
            confidence=target,
            labels=np.zeros(n, dtype=np.int32) if numbers is None else numbers,
            references=theirs,
            inside=np.zeros((0, n), dtype=np.bool_) if inside is None else _flags("inside", inside),
            population=known,
            population_labels=np.zeros(k, dtype=np.int32) if outside is None else outside,
            population_references=(
                np.empty((m, k), dtype=np.float32)
                if population_references is None
                else _of_models(quantity, population_references, outside, k)
            ),
            views=views,
            reference_views=_views(references if wide else None, views.shape),
        ),
        member=None if member is None else _of_length("member", _flags("member", member), n),
        classes=classes,
        ids=None if ids is None else _of_length("ids", _array("ids", ids), n),
        features=None if features is None else _features(features, n),
        propensity=None if propensity is None else checked_propensity(propensity, n),
    )


def _features(features: Any, rows: int) -> Any:
    content = as_rows(features, name="features")
    if len(content.shape) != 2 or count_rows(content) != rows:
        raise InvalidInput(f"features: must have {rows} rows of columns, as the answers have.")
    return content


def read_arrays(path: str | Path) -> Arrays:
    """Return the evidence in an npz file, a CSV or a Parquet table (:mod:`expost.auditing.arrays`).

    Parameters
    ----------
    path : str | Path
        The path of the file.

    Returns
    -------
    Arrays
        For :func:`expost.auditing.audit_arrays`.

    Raises
    ------
    InvalidInput
        If the file cannot be read, or does not hold the arrays or columns that are documented.
    """
    if not isinstance(path, str | Path):
        raise InvalidInput(
            f"answers: is a {type(path).__name__}; must be the path of a file, or a result of"
            " expost.auditing.arrays_of."
        )
    path = Path(path)
    content = _read_npz(path) if path.suffix == ".npz" else _read_table(path)
    try:
        return arrays_of(**content)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def _numbered(
    labels: Any, outside: Any, columns: int
) -> tuple[NDArray[np.int32] | None, NDArray[np.int32] | None, NDArray[Any] | None]:
    """Return the codes of the labels in question and of the population, and the classes.

    With ``columns`` of probabilities, labels are column numbers from 0, or exactly that many
    different labels, sorted as the columns are.
    """
    if labels is None:
        if columns or outside is not None:
            raise InvalidInput("labels: must be given with probabilities of every class.")
        return None, None, None
    classes = Labels.of_classes(labels, outside).classes
    assert classes is not None
    if columns and classes.dtype.kind in "iu" and classes[0] >= 0 and classes[-1] < columns:
        classes = np.arange(columns)
    if columns not in (0, len(classes)):
        raise InvalidInput(
            f"labels: hold {len(classes)} classes, probabilities {columns}; give the numbers of the"
            " columns, from 0."
        )
    game = Labels(classes=classes)
    theirs = None if outside is None else game.numbers(outside)
    return game.numbers(labels), theirs, classes


def _confidence(
    quantity: str, values: Any, numbers: NDArray[np.int32] | None, name: str
) -> Confidences:
    """Return (n,) φ of one model's answers."""
    answers = _array(quantity, values)
    if answers.ndim == 2 and quantity == "probabilities":
        if numbers is None:
            raise InvalidInput(f"labels: are needed with probabilities of every class of {name}.")
        return signals.confidence(answers, numbers, name=name)
    if answers.ndim != 1 or answers.dtype.kind not in "biuf":
        raise InvalidInput(f"{quantity}: {name} must have one number for each row.")
    answers = answers.astype(np.float64)
    match quantity:
        case "losses":
            return signals.confidence_of_losses(answers, name=name)
        case "confidence":
            log_odds = answers
        case _:
            if not np.all((answers >= 0) & (answers <= 1)):
                raise InvalidInput(f"probabilities: {name} must have values from 0 to 1 only.")
            with np.errstate(divide="ignore"):
                log_odds = np.log(answers) - np.log1p(-answers)
    if np.any(np.isnan(log_odds)):
        raise InvalidInput(f"{quantity}: {name} has NaN; drop those rows.")
    clipped: Confidences = np.clip(log_odds, -LARGEST, LARGEST).astype(np.float32)
    return clipped


def _of_models(
    quantity: str, values: Any, numbers: NDArray[np.int32] | None, rows: int
) -> Confidences:
    """Return (m, rows) φ of the answers of m models."""
    if values is not None and np.ndim(_array("references", values)) < 2:
        raise InvalidInput("references: must have a line for each reference, a number per row.")
    each = [
        _of_length(
            f"reference {number}",
            _confidence(quantity, answers, numbers, f"reference {number}"),
            rows,
        )
        for number, answers in enumerate(() if values is None else values)
    ]
    return np.stack(each) if each else np.empty((0, rows), dtype=np.float32)


def _views(references: Any, shape: tuple[int, ...]) -> Confidences:
    """Return (m, n, c) the views of references with probabilities of every class; else none."""
    if references is None or np.asarray(references).ndim != 3:
        return np.empty((0, *shape), dtype=np.float32)
    return np.stack([signals.views(answers) for answers in references])


def _flags(name: str, values: Any) -> Flags:
    flags = _array(name, values)
    if flags.dtype == object or flags.dtype.kind in "SU":
        # As tables write booleans.
        words = np.char.lower(flags.astype(str))
        if np.all((words == "true") | (words == "false")):
            return np.asarray(words == "true")
    if flags.dtype.kind not in "biuf" or not np.all((flags == 0) | (flags == 1)):
        raise InvalidInput(f"{name}: must be true or false, or 1 or 0, everywhere.")
    return flags.astype(np.bool_)


def _array(name: str, values: Any) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:
        raise InvalidInput(
            f"{name}: has lines of different lengths; must have equal lengths."
        ) from None


def _of_length(name: str, values: NDArray[Any], rows: int) -> NDArray[Any]:
    if values.shape != (rows,):
        raise InvalidInput(f"{name}: must have one entry for each of {rows} rows.")
    return values


def _read_npz(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None
    except MemoryError:
        raise InvalidInput(f"{path}: declares more data than fits into memory.") from None
    except BROKEN_NPZ:
        raise InvalidInput(f"{path}: is not an npz file of plain arrays.") from None
    unknown = sorted(set(arrays) - {*_COLUMNS.values(), *_MORE})
    if unknown:
        raise InvalidInput(
            f"{path}: has unknown arrays {', '.join(map(repr, unknown))}; known are"
            f" {', '.join([*_COLUMNS.values(), *_MORE])}."
        )
    return arrays


def _read_table(path: Path) -> dict[str, Any]:
    table = open_table(path)
    quantities = [name for name in _COLUMNS if name in table.names]
    if len(quantities) != 1 or "member" not in table.names:
        raise InvalidInput(f"{path}: must have 'member', and one of {', '.join(_COLUMNS)}.")
    models = _models(table.names, path)
    columns = {name: _cells(table, name, empty=name.startswith(_FEATURE)) for name in table.names}
    rows = np.ones(table.rows, dtype=np.bool_)
    if "population" in columns:
        rows = ~_flags("population", columns["population"])
        if np.any(_flags("member", columns["member"])[~rows]):
            raise InvalidInput(f"{path}: a row of the population is a member; it must not be one.")
    if not rows.any():
        raise InvalidInput(f"{path}: every row belongs to the population; some must not.")
    quantity = quantities[0]
    arrays = {
        _COLUMNS[quantity]: columns[quantity][rows],
        "member": columns["member"][rows],
        "labels": columns["label"][rows] if "label" in columns else None,
        "ids": columns["id"][rows] if "id" in columns else None,
    }
    if models:
        answers = np.stack([columns[f"reference_{number}"] for number in models])
        trained = _flags("inside", np.stack([columns[f"inside_{number}"] for number in models]))
        if np.any(trained[:, ~rows]):
            raise InvalidInput(f"{path}: a row of the population is inside a reference.")
        arrays |= {"references": answers[:, rows], "inside": trained[:, rows]}
    if "propensity" in columns:
        arrays["propensity"] = columns["propensity"][rows]
    features = [name for name in table.names if name.startswith(_FEATURE)]
    if features:
        arrays["features"] = np.column_stack(
            [columns[name][rows].astype(object) for name in features]
        )
    if not rows.all():
        arrays["population"] = columns[quantity][~rows]
        arrays["population_labels"] = columns["label"][~rows] if "label" in columns else None
        arrays["population_references"] = answers[:, ~rows] if models else None
    return arrays


def _models(names: tuple[str, ...], path: Path) -> list[str]:
    """Return the references' numbers, in the table's order."""
    references = [
        name.removeprefix("reference_") for name in names if name.startswith("reference_")
    ]
    inside = [name.removeprefix("inside_") for name in names if name.startswith("inside_")]
    if sorted(references) != sorted(inside):
        raise InvalidInput(f"{path}: each column 'reference_j' needs an 'inside_j'.")
    return references


def _cells(table: Table, name: str, *, empty: bool = False) -> NDArray[Any]:
    cells = table.column(name)
    if cells.null_count and not empty:
        raise InvalidInput(f"{table.label}: column {name!r} has empty cells; it must have none.")
    values: NDArray[Any] = cells.to_numpy(zero_copy_only=False)
    return values
