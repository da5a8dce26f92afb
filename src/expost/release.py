"""One released model: θ, and the public constants that it was made with. One file, model.json.

It holds nothing else of the data, so it is public, unless a bound was read from the data: then it
needs review, and names that bound.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from expost import _checks
from expost.data import Encoding, UnitBall, is_frame
from expost.data.frames import with_target
from expost.data.histograms import Counted
from expost.errors import InvalidInput
from expost.files.atomic import write_json
from expost.files.model_format import audit_command, model_format
from expost.files.sealed import Sealed, checksum, from_fields, number, plain, to_fields
from expost.glm import Objective, predictors, two_classes_only
from expost.labels import LabelScale, class_codes, signs
from expost.ledger import Entry
from expost.losses import LOSSES, Loss, Softmax
from expost.mechanisms import MECHANISMS, Mechanism
from expost.mechanisms.encoded import model_mechanism, with_histograms
from expost.mechanisms.perturbation import Perturbation
from expost.mechanisms.ratio_error import UNLIKELY, clamp_probability, ratio_error
from expost.mechanisms.statement import relation_text
from expost.numbers import for_persons, upper_text
from expost.results import Displayed
from expost.risk import EpsilonDelta
from expost.rows import HeldRows
from expost.types import Audience, FloatArray, Neighbouring

__all__ = ["Release", "Revision", "coupling_charge", "public_scalars"]

# How a model was made after rows left or entered.
METHODS = ("fresh", "coupled")
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Revision:
    """One change of the rows of a released model, with all other constants kept.

    Attributes
    ----------
    model : str
        The checksum of the model before.
    rows : int
        Its number of rows.
    method : str
        "fresh": drawn independently of the model before; "coupled": kept, or else redrawn
        (:mod:`expost.erasure.coupling`).
    request : str
        The keyed hash of the request, by which a ledger lists it.
    """

    model: str
    rows: int
    method: str
    request: str

    def __post_init__(self) -> None:
        _checks.one_of("history.method", self.method, METHODS)
        _checks.integer("history.rows", self.rows, least=2)
        for name in ("model", "request"):
            digits = getattr(self, name)
            if not isinstance(digits, str) or not _DIGEST.fullmatch(digits):
                raise InvalidInput(f"history.{name}: must be 64 hexadecimal digits.")


@dataclass(frozen=True, kw_only=True, eq=False)
class Release(Sealed, Displayed):
    """A released model.

    Attributes
    ----------
    theta : FloatArray
        (d,) in the coordinates of the unit ball, the intercept last; for K > 2 classes (K·d,),
        class by class.
    mechanism : Mechanism
        The mechanism, with n, Λ, the loss and the noise.
    ball : UnitBall
        The map of rows to the unit ball.
    classes : NDArray[Any] | None
        The labels, of two the second one positive; None for regression.
    feature_names : tuple[str, ...], optional
        The names of the features; None for an array.
    encoding : dict[str, Any] | None
        The table's encoding (JSON), where there was a table.
    label_scale : LabelScale | None
        The scale of the labels of a regression; None for a classifier.
    read_from_data : tuple[str, ...]
        The constants that were read from the data, those of the encoding among them: not private.
    seeded : bool
        Whether the noise came from a seed instead of the operating system.
    history : tuple[Revision, ...]
        The changes of its rows since the first release, the last one last.
    """

    theta: FloatArray
    mechanism: Mechanism
    ball: UnitBall
    classes: NDArray[Any] | None
    feature_names: tuple[str, ...] | None = None
    encoding: dict[str, Any] | None = None
    label_scale: LabelScale | None = None
    read_from_data: tuple[str, ...] = ()
    seeded: bool = False
    history: tuple[Revision, ...] = ()

    FORMAT = "expost-model/1"
    NOUN = "a released model"

    def __post_init__(self) -> None:
        mechanism = self.mechanism
        if self.theta.shape != (mechanism.dimension,) or not np.all(np.isfinite(self.theta)):
            raise InvalidInput(f"theta: must hold {mechanism.dimension} finite numbers.")
        if mechanism.is_private and not mechanism.grid.holds(self.theta):
            raise InvalidInput(
                "theta: does not lie on the grid that its own constants give; the file was edited."
            )
        if (self.classes is None) is mechanism.loss.is_classification:
            raise InvalidInput("classes: labels for a classifier, none for a regression.")
        if (self.label_scale is None) is not mechanism.loss.is_classification:
            raise InvalidInput("label_scale: one for a regression, none for a classifier.")
        if self.label_scale is not None and self.label_scale.bound != mechanism.loss.label_bound:
            raise InvalidInput(
                "label_scale: its bound is not that of the loss; the file was edited."
            )
        calibrated = getattr(model_mechanism(mechanism), "calibrated", None)
        if calibrated is not None and not self.history:
            raise InvalidInput("history: the number of rows has changed; the file was edited.")
        mechanism.check_classes()
        many = mechanism.loss.classes if isinstance(mechanism.loss, Softmax) else 2
        if self.classes is not None and not (
            self.classes.shape == (many,) and len(np.unique(self.classes)) == many
        ):
            raise InvalidInput(f"classes: must be {many} different labels.")
        encoding = self.table_encoding
        if encoding is not None:
            # What the encoding read from the data is in the file, whether it was listed or not.
            own = self.read_from_data
            read = (name for name in encoding.read_from_data if name not in own)
            object.__setattr__(self, "read_from_data", (*own, *read))
            if encoding.histograms is not None and encoding.histograms.seeded:
                object.__setattr__(self, "seeded", True)
        width = self._width
        if self.feature_names is not None and len(self.feature_names) != width:
            raise InvalidInput(f"feature_names: must be {width}, one for each feature.")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read the model.json at ``path``, strictly.

        Parameters
        ----------
        path : str | Path
            The file.

        Returns
        -------
        Self
            The released model.

        Raises
        ------
        InvalidInput
            If the file cannot be read, or holds something else; a saved model of another library is
            pointed to ``audit``.
        """
        if isinstance(path, str | Path) and Path(path).is_file():
            kind = model_format(path)
            if kind is not None and kind.is_foreign:
                raise InvalidInput(
                    f"{path}: is a saved model of another library ({kind.value}), whose noise, if"
                    " it has any, is not known here: it has no privacy losses that could be"
                    f" certified. Attack it instead: {audit_command(path, kind)}"
                )
        return super().load(path)

    @property
    def audience(self) -> Audience:
        """The audience of this model: public, unless something about it needs review."""
        guaranteed = self.mechanism.worst_case < np.inf
        if not guaranteed or self.seeded or self.read_from_data:
            return Audience.NEEDS_REVIEW
        return Audience.PUBLIC

    @property
    def identity(self) -> str:
        """The SHA-256 of θ and of the changes of its rows; equal for no two draws.

        Unlike the checksum of model.json it covers no number that is computed from others, and so
        is the same on every machine.
        """
        history = [to_fields(step) for step in self.history]
        return checksum({"theta": plain(self.theta), "history": history})

    @property
    def _width(self) -> int:
        """The number of features."""
        dimension, loss = self.mechanism.dimension, self.mechanism.loss
        if isinstance(loss, Softmax):
            if dimension % loss.classes:
                raise InvalidInput(f"theta: must be as long for each of {loss.classes} classes.")
            dimension //= loss.classes
        return dimension - self.ball.fit_intercept

    @property
    def coefficients(self) -> tuple[FloatArray, float | FloatArray]:
        """(coef, intercept) in the units of the features; (K, d) and (K,) for K > 2 classes."""
        loss, scale = self.mechanism.loss, self.label_scale
        if scale is not None:
            coef, intercept = self.ball.coefficients(self.theta)
            return scale.scale * coef, scale.centre + scale.scale * intercept
        if not isinstance(loss, Softmax):
            return self.ball.coefficients(self.theta)
        each = [self.ball.coefficients(theta) for theta in self.theta.reshape(loss.classes, -1)]
        return np.array([coef for coef, _ in each]), np.array([intercept for _, intercept in each])

    @cached_property
    def table_encoding(self) -> Encoding | None:
        """How a table becomes features, where the model was made from one."""
        return None if self.encoding is None else Encoding.from_json(self.encoding)

    @property
    def has_private_encoding(self) -> bool:
        """Whether the encoding follows from a private release."""
        encoding = self.table_encoding
        return encoding is not None and encoding.histograms is not None

    def encodes(self, X: Any) -> bool:
        """Return whether rows are encoded: frames, and arrays where the model was made from one.

        Otherwise the columns of X are the features.

        Parameters
        ----------
        X : Any
            The rows.

        Returns
        -------
        bool
            True if the model's encoding reads them.
        """
        encoding = self.table_encoding
        return encoding is not None and (is_frame(X) or encoding.is_positional)

    def scores(self, X: Any) -> FloatArray:
        """Return the predictors of rows, which are clipped as the training rows were: (n,), (n, K).

        For a row that is not clipped they are x·coef + intercept. X: see :meth:`encodes`.

        Parameters
        ----------
        X : Any
            The rows; see :meth:`encodes`.

        Returns
        -------
        FloatArray
            (n,) or (n, K) the predictors.

        Raises
        ------
        InvalidInput
            If the columns are not those of the model.
        """
        if self.encodes(X):
            assert self.table_encoding is not None
            self._check_columns(X)
            X = self.table_encoding.encode_features(X)
        rows, _ = self.ball.rows(X)
        return predictors(rows, self.theta, self.mechanism.loss.outputs)

    def targets(self, y: Any, rows: int) -> FloatArray:
        """Return labels as the loss takes them: ±1, the class from 0 up, or scaled and clipped.

        Parameters
        ----------
        y : Any
            The labels.
        rows : int
            The number of rows, which ``y`` must match.

        Returns
        -------
        FloatArray
            (n,) the labels.

        Raises
        ------
        InvalidInput
            If a label is not one of the model.
        """
        if self.classes is not None:
            return (signs if len(self.classes) == 2 else class_codes)(y, self.classes)
        assert self.label_scale is not None
        return self.label_scale.inside(_checks.vector(y, length=rows))

    def problem(self, X: Any, y: Any) -> Objective:
        """Return :meth:`objective`, for code that works on models of two classes alone.

        Parameters
        ----------
        X, y : Any
            The rows and their labels.

        Returns
        -------
        Objective
            J over these rows.

        Raises
        ------
        InvalidInput
            If the model has more than two classes, or rows or labels do not fit it.
        """
        return two_classes_only(self.objective(X, y))

    def objective(self, X: Any, y: Any) -> Objective:
        """Return the objective of this model over these rows; X: see :meth:`encodes`.

        Parameters
        ----------
        X, y : Any
            The rows (see :meth:`encodes`) and their labels.

        Returns
        -------
        Objective
            J over these rows.

        Raises
        ------
        InvalidInput
            If rows or labels do not fit the model.
        """
        rows = self._encoded(X, y) if self.encodes(X) else self._plain(X, y)
        penalty = np.full(self.mechanism.dimension, self.mechanism.total_regularization)
        return Objective(rows=rows, loss=self.mechanism.loss, penalty=penalty)

    def _encoded(self, X: Any, y: Any) -> HeldRows:
        """Return rows of the table in the unit ball, their labels as the loss takes them."""
        encoding = self.table_encoding
        assert encoding is not None
        self._check_columns(X)
        table = encoding.open(with_target(X, y, encoding.target.column))
        encoded = encoding.encode_table(table)
        scale, histograms = self.label_scale, encoding.histograms
        labels = encoded.y if scale is None else scale.inside(encoded.y)
        rows, _ = self.ball.rows(encoded.X)
        if histograms is None:
            return HeldRows(X=rows, y=labels)
        counted = Counted.of_release(table, histograms)
        return HeldRows(X=rows, y=labels, cells=counted.cells_of(table), counted=counted)

    def _plain(self, X: Any, y: Any) -> HeldRows:
        """Return rows of features in the unit ball, their labels as the loss takes them."""
        features = _checks.matrix(X, min_rows=1)
        width = self._width
        if features.shape[1] != width:
            raise InvalidInput(
                f"X has {features.shape[1]} columns: the model was made with {width}."
            )
        if not hasattr(y, "__len__") or len(y) != len(features):
            raise InvalidInput(f"y: must have one entry for each of {len(features)} rows.")
        rows, _ = self.ball.rows(features)
        return HeldRows(X=rows, y=self.targets(y, len(features)))

    def _check_columns(self, X: Any) -> None:
        """Refuse an array of another number of columns than the model's; frames have names."""
        assert self.table_encoding is not None
        width = len(self.table_encoding.columns)
        if not is_frame(X) and np.ndim(X) == 2 and np.shape(X)[1] != width:
            raise InvalidInput(f"X has {np.shape(X)[1]} columns: the model was made with {width}.")

    def __repr__(self) -> str:
        seeded = ", made with a random_state: not a private release" if self.seeded else ""
        mechanism = self.mechanism
        kind, noise = mechanism.loss.name, mechanism.noise
        delta = "" if mechanism.delta is None else f", delta={upper_text(mechanism.delta)}"
        covered = f" {relation_text(mechanism)}" if mechanism.worst_case < np.inf else ""
        return (
            f"Release({kind}, n={mechanism.rows},"
            f" epsilon={upper_text(mechanism.epsilon)}{delta}"
            f"{for_persons(mechanism.rows_per_person)}{covered},"
            f" noise={noise!r}, forecast: {self.mechanism.forecast.label}{seeded})"
        )

    def content(self) -> dict[str, Any]:
        """Return what model.json holds.

        Returns
        -------
        dict[str, Any]
            The fields by name.
        """
        mechanism = self.mechanism
        return {
            "theta": plain(self.theta),
            "mechanism": mechanism.to_fields(),
            "loss": {"name": mechanism.loss.name, **to_fields(mechanism.loss)},
            "n": mechanism.rows,
            "regularization": mechanism.regularization,
            "unit_ball": self.ball.to_json(),
            "classes": None if self.classes is None else [_label(c) for c in self.classes],
            **self._label_fields,
            "feature_names": None if self.feature_names is None else list(self.feature_names),
            "encoding": self.encoding,
            "read_from_data": list(self.read_from_data),
            "seeded": self.seeded,
            **({"history": [to_fields(step) for step in self.history]} if self.history else {}),
        }

    @property
    def _label_fields(self) -> dict[str, Any]:
        """The scale of the labels; left out where there is none, or if it is the identity."""
        scale = self.label_scale
        if scale is None or scale == LabelScale(bound=scale.bound):
            return {}
        return {"label_scale": to_fields(scale)}

    def save(self, path: str | Path) -> Path:
        """Write model.json, completely or not at all.

        Parameters
        ----------
        path : str | Path
            The file to write.

        Returns
        -------
        Path
            The path of the written file.
        """
        return write_json(path, self.audience, self.to_json())

    def derived(self) -> Iterable[tuple[str, str]]:
        """Return the paths of the constants that follow from others.

        Returns
        -------
        Iterable[tuple[str, str]]
            The paths, each as the names of nested fields.
        """
        return (("mechanism", name) for name in self.mechanism.derived)

    @classmethod
    def from_content(cls, value: dict[str, Any]) -> Self:
        """Return the release with these fields.

        Parameters
        ----------
        value : dict[str, Any]
            The fields of model.json.

        Returns
        -------
        Self
            The checked release.

        Raises
        ------
        InvalidInput
            If a field is missing or invalid.
        """
        fields = value["mechanism"]
        kind = _checks.one_of("mechanism.kind", fields["kind"], tuple(MECHANISMS))
        theta = np.array([number(entry, "theta") for entry in value["theta"]])
        mechanism = MECHANISMS[kind].from_fields(
            fields,
            loss=_loss_from_json(value["loss"]),
            regularization=number(value["regularization"], "regularization"),
            rows=value["n"],
            dimension=len(theta),
        )
        classes = value["classes"]
        names, scale = value["feature_names"], value.get("label_scale")
        if scale is None and mechanism.loss.label_bound is not None:
            # Labels are not scaled, only bounded.
            scale = {"bound": mechanism.loss.label_bound}
        encoding = _object_or_none(value["encoding"])
        released = None if encoding is None else Encoding.from_json(encoding).histograms
        return cls(
            theta=theta,
            mechanism=with_histograms(mechanism, released),
            ball=UnitBall.from_json(value["unit_ball"]),
            classes=None if classes is None else np.array(classes),
            feature_names=None if names is None else tuple(str(name) for name in names),
            label_scale=None if scale is None else from_fields(LabelScale, scale),
            encoding=encoding,
            read_from_data=tuple(str(name) for name in value["read_from_data"]),
            seeded=bool(value["seeded"]),
            history=tuple(from_fields(Revision, step) for step in value.get("history", ())),
        )

    def scalars(self) -> dict[str, Any]:
        """Return what is public of every model: its guarantee, its mechanism and its size.

        Returns
        -------
        dict[str, Any]
            The scalars by name.
        """
        return public_scalars(self.mechanism)

    def entries(
        self, written: Mapping[str, Any], *, name: str, made: str, data: str | None
    ) -> tuple[Entry, ...]:
        """Return the line of this model in a ledger (:class:`expost.ledger.Listable`).

        Parameters
        ----------
        written : Mapping[str, Any]
            The document as it was written, whose checksum is listed.
        name : str
            The file of the release.
        made : str
            The time of the release.
        data : str | None
            The salted digest of the rows; None where it is not known.

        Returns
        -------
        tuple[Entry, ...]
            One entry, or two where the encoding was released privately.
        """
        *others, entry = self.entries_alone(written, name=name, made=made, data=data)
        return *others, self._changed(entry) if self.history else entry

    def entries_alone(
        self, written: Mapping[str, Any], *, name: str, made: str, data: str | None
    ) -> tuple[Entry, ...]:
        """Return the lines of :meth:`entries` as if this model had not been coupled with others.

        Parameters
        ----------
        written : Mapping[str, Any]
            The document as it was written.
        name : str
            The file of the release.
        made : str
            The time of the release.
        data : str | None
            The salted digest of the rows; None where it is not known.

        Returns
        -------
        tuple[Entry, ...]
            The guarantee of this model alone, and that of an encoding that was released privately.
        """
        mechanism = model_mechanism(self.mechanism)
        known: dict[str, Any] = {
            "made": made,
            "name": name,
            "rows": mechanism.rows,
            "data": data,
            "rows_per_person": mechanism.rows_per_person,
        }
        entry = Entry(
            release=written["sha256"],
            kind="model",
            **known,
            mechanism=mechanism.kind,
            noise=mechanism.noise,
            epsilon=mechanism.epsilon,
            delta=mechanism.delta or 0.0,
            guarantee=mechanism.guarantee(mechanism.rows_per_person),
            dimension=mechanism.dimension,
            seeded=self.seeded,
            read_from_data=len(self.read_from_data),
            relation=_relation(mechanism.covers(Neighbouring.REPLACE)),
        )
        encoding = self.table_encoding
        histograms = None if encoding is None else encoding.histograms
        if histograms is None:
            return (entry,)
        # Models that share an encoding list it once.
        spent = EpsilonDelta(
            epsilon=histograms.epsilon, delta=histograms.delta + histograms.threshold_delta
        )
        first = Entry(
            release=checksum(histograms.to_json()),
            kind="encoding",
            **known,
            mechanism="histograms",
            noise="gaussian",
            epsilon=spent.guaranteed_epsilon,
            delta=spent.guaranteed_delta,
            guarantee=spent,
            dimension=len(histograms.columns),
            seeded=histograms.seeded,
            read_from_data=0,
            relation=_relation(histograms.replaces),
        )
        return first, entry

    def _changed(self, entry: Entry) -> Entry:
        """Return the line of a model whose rows have changed: listed by its request."""
        last = self.history[-1]
        entry = replace(entry, kind="erasure", release=last.request)
        if last.method == "fresh":
            return entry
        mechanism = cast(Perturbation, model_mechanism(self.mechanism))
        charge = coupling_charge(
            mechanism, self.coupled_rows, rows_per_person=mechanism.rows_per_person
        )
        return replace(
            entry,
            epsilon=charge.guaranteed_epsilon,
            delta=charge.guaranteed_delta,
            guarantee=charge,
            coupled_with=last.model,
        )

    @property
    def coupled_rows(self) -> tuple[int, ...]:
        """The numbers of rows of this model and of those before it that it is coupled with."""
        rows = [self.mechanism.rows]
        for step in reversed(self.history):
            if step.method != "coupled":
                break
            rows.insert(0, step.rows)
        return tuple(rows)


def coupling_charge(
    mechanism: Perturbation, rows: Sequence[int], *, rows_per_person: int = 1
) -> EpsilonDelta:
    """Return what coupled models reveal beyond the first of them, about everybody who stays.

    Formal guarantees (docs/theory/erasure.md, section 4)
    -----------------------------------------------------
    T bounds the probability of a redraw: the total variation between the laws before and after, the
    width w of the intervals of their ratio, and the clamp of the grid.
    Two models: with δ₀ and δ₁ the curves of the two laws, the pair has the curve
    δ₀(ε) + δ₁(ε) + T + 2(e^w − 1), which is at most that of the first model composed with
    (0, (δ₁(0) + T + 2(e^w − 1))/(1 − δ₀(0))).
    m > 1 changes: if the exposure of a person passes b with probability at most p in each model,
    all of them together are ((2m − 1)b + Σw, ΣT + (m + 1)p): listed whole, the first model
    included.

    Parameters
    ----------
    mechanism : Perturbation
        The mechanism of the last model.
    rows : Sequence[int]
        The numbers of rows of the models, the last one last: two or more.
    rows_per_person : int, default=1
        The number of rows that a person has at most.

    Returns
    -------
    EpsilonDelta
        The charge; ε = ∞ where nothing is guaranteed.
    """
    models = [mechanism.with_rows(count) for count in rows]
    steps = list(pairwise(models))
    widths = [2 * ratio_error(before, after) for before, after in steps]
    apart = [before.advantage_of(abs(after.rows - before.rows)) for before, after in steps]
    clamped = [clamp_probability(before) + 2 * UNLIKELY for before, _ in steps]
    total = sum(apart) + sum(widths) + sum(clamped)
    if len(steps) == 1:
        first, last = (model.advantage_of(rows_per_person) for model in models)
        extra = 2 * math.expm1(widths[0]) if widths[0] < 1 else math.inf
        delta = (last + total + extra) / (1 - first) if first < 1 else 1.0
        epsilon = 0.0
    else:
        worst = [model.worst_case_either(rows_per_person) for model in models]
        epsilon = (2 * len(steps) - 1) * max(bound for bound, _ in worst) + sum(widths)
        delta = total + sum(passed for _, passed in worst)
    if not (delta * (1 + 1e-12) < 1 and epsilon < np.inf):
        return EpsilonDelta(epsilon=np.inf)
    return EpsilonDelta(epsilon=epsilon * (1 + 1e-12), delta=delta * (1 + 1e-12))


def _relation(replaces: bool) -> str:
    """Return the name of the relation that a guarantee covers."""
    return "replace" if replaces else "remove"


def _object_or_none(value: Any) -> dict[str, Any] | None:
    if value is not None and not isinstance(value, dict):
        raise InvalidInput("encoding: must be an object, or null.")
    return value


def _label(label: Any) -> str | int | float | bool:
    """Return a label as a JSON value."""
    value = label.item() if isinstance(label, np.generic) else label
    if not isinstance(value, str | int | float | bool):
        raise InvalidInput(
            f"classes: labels of type {type(value).__name__} cannot be saved; use strings or"
            " numbers."
        )
    return value


def _loss_from_json(value: Mapping[str, Any]) -> Loss:
    """Invert what :meth:`Release.content` writes of a loss."""
    kind = LOSSES[_checks.one_of("loss", value["name"], tuple(LOSSES))]
    return from_fields(kind, {name: field for name, field in value.items() if name != "name"})


def public_scalars(mechanism: Mechanism) -> dict[str, Any]:
    """Return what is public of every release: its guarantee, its mechanism and its size."""
    return {
        "epsilon": mechanism.epsilon if mechanism.epsilon < np.inf else "infinity",
        "delta": mechanism.delta or 0.0,
        "mechanism": mechanism.kind,
        "noise": mechanism.noise,
        "loss": mechanism.loss.name,
        "n": mechanism.rows,
    }
