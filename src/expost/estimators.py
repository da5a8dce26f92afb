"""scikit-learn estimators that release one private linear model.

A fitted estimator holds ``release_`` (θ and public constants) and what follows from it: nothing
else of the data, neither the minimiser nor the noise.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from expost import _checks
from expost.data import Encoding, given_encoding, is_frame, open_encoded
from expost.data.frames import (
    frame_of,
    given_ranges,
    label_values,
    target_name,
    text_columns,
    with_target,
)
from expost.engine import engine_of
from expost.errors import (
    BudgetWarning,
    ExpostError,
    InvalidInput,
    PrivacyLeakWarning,
    UnscaledColumnsWarning,
)
from expost.labels import LabelScale, class_codes, class_set, signs, two_classes
from expost.losses import Huber, Logistic, Loss, Softmax, Squared
from expost.mechanisms import MECHANISMS
from expost.neighbouring.persons import read_persons
from expost.notices import FILTER_LOCK, ignored, warn
from expost.preparing import read_rows
from expost.release import Release
from expost.rows import HeldRows, RowStream, TableRows
from expost.training import (
    ClassifierTraining,
    HingeTraining,
    LinearTraining,
    LogisticTraining,
    Prepared,
    RidgeTraining,
)
from expost.types import FloatArray

__all__ = [
    "ESTIMATORS",
    "BudgetWarning",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
]


# Columns of another root mean square are named in a warning.
_SCALES = (0.1, 10.0)

_SHARED = """Each fit spends ``epsilon`` again: a search over k settings and f folds, with a refit,
    spends it k·f + 1 times (and warns, see :class:`BudgetWarning`).

    Parameters
    ----------
    epsilon : float, default=1.0
        The privacy budget of this one fit; ``inf`` gives the exact minimiser.
    delta : float or "auto", default="auto"
        Of Gaussian noise: min(10⁻⁶, 1/(10n)), rounded down to a power of ten. Norm-Laplace noise is
        pure and takes none; 0 selects it.
    mechanism : {"objective", "output"} or "auto", default="auto"
        What is released: the minimiser of J(θ) + b·θ/n, or A(D) + b. "auto" is the first
        one, or the second for a loss whose gradient is not bounded.
    noise : {"gaussian", "laplace"} or "auto", default="auto"
        The density of b: normal, or ∝ exp(−β∥b∥). "auto" is normal, or the other where ``delta`` is
        0 or where there are at most 3 coefficients.
    regularization : float, "auto" or "for-publishing", default="auto"
        Λ of J(θ) = (1/n) Σ ℓ + (Λ/2)∥θ∥²; "auto" chooses it from n, d, epsilon and delta alone.
        Objective perturbation raises it where epsilon needs more, and warns. "for-publishing":
        the least that epsilon and ``publishing`` need.
    calibration : {"tight", "published"}, default="tight"
        Of objective perturbation: the tightest that is proved here, or that of Kifer et al. (2012)
        and Chaudhuri et al. (2011).
    publishing : PublishingBudget, default=None
        Of objective perturbation: the data-dependent report that :func:`expost.publish` is to make
        of this model. A regularization too small for it is refused before anything is spent.
    fit_intercept : bool, default=True
        Whether a constant feature is added.
    intercept_scaling : float or "auto", default="auto"
        The length, inside the unit ball, of that constant feature: 1/√(min(p, 7) + 1) of p columns.
    rows_per_person : int, default=1
        A bound, known without the data, on the number of rows of a person: epsilon and delta hold
        for all rows of a person together. ``fit(X, y, persons=…)`` refuses rows that pass it.
    data_norm : float or "auto", default="auto"
        Rows longer than this are clipped to it, also when the model predicts. "auto" is √p/2 of p
        columns, which is meant for columns of mean 0 and scale 1: most rows are then clipped, and
        keep their direction.
    encoding : Encoding, dict or path, default=None
        The encoding of the columns of a table as features: a whole :class:`expost.data.Encoding`,
        its JSON or the path of its encoding.json, or a part of one. What a part leaves out is read
        from the data, under PrivacyLeakWarning; {} reads all of it. X is then a frame, which may
        hold strings (pandas, polars, Arrow, a dict of columns), encoded as the command line encodes
        tables; predictions take frames too. p counts the columns of the table that are encoded.
    private_encoding : float, default=None
        The share of ``epsilon`` that noisy histograms of the columns spend, 0.1 for example: means,
        scales and levels then follow from them, and nothing is read from the data but the number of
        rows and, where they are not given, the classes or the label range. ``encoding`` (or
        ``ranges``) must name every column, with its public range, {"range": [0, 100]}, or as
        {"kind": "levels"}; columns whose constants are given cost nothing. A third of ``delta``
        each goes to the histograms, to the levels that they show, and to the model. ``epsilon`` and
        ``delta`` hold for all of it together.
    ranges : pairs (low, high) by column, default=None
        The range of each column that is known without the data: a sequence with a pair for each
        column, or a dict by the names of columns. Each range is mapped linearly to [−1, 1], and
        values outside of it are cut to its ends. Columns of a frame that a dict leaves out are
        encoded as by ``encoding={}``.
    random_state : int, Generator or RandomState, default=None
        None draws the noise from the operating system, which is what a release needs. A seed is
        for simulation: the noise can be removed with it, and fit warns."""


@dataclass(eq=False, repr=False, kw_only=True)
class _PrivateLinearModel(LinearTraining, BaseEstimator):
    """The rows, the release and the predictions that the three estimators share."""

    encoding: Any = None
    ranges: Any = None

    _loss_name: ClassVar[str]
    # Parameters that are fields of the loss, with the names of these fields.
    _of_loss: ClassVar[dict[str, str]] = {}

    def fit(self, X: Any, y: Any, *, persons: Any = None, **unsupported: Any) -> Self:
        """Release one model of these rows, at a cost of ``epsilon``.

        Parameters
        ----------
        X : array or frame of shape (n, p)
            The rows.
        y : array of shape (n,)
            The labels.
        persons : sequence of n labels, default=None
            Whose row each row is. A person with more rows than ``rows_per_person`` is refused
            before anything is spent. Without it nothing is checked.
        **unsupported : Any
            ``sample_weight`` of None, which scikit-learn passes. Weights are refused.

        Returns
        -------
        self
            The fitted estimator, with ``release_``.

        Raises
        ------
        InvalidInput
            If the rows, the labels or a parameter cannot be used.
        ReleaseRefused
            If no model can be released safely with these parameters.
        """
        _refuse(unsupported)
        prepared = self.prepared(X, y, release=True)
        if persons is not None:
            read_persons(persons, prepared.mechanism.rows).check_sizes(
                prepared.mechanism.rows_per_person
            )
        return self._keep(self.release(prepared))

    def prepared(self, X: Any, y: Any, *, release: bool = False) -> Prepared:
        """Return the rows as the objective takes them, and their mechanism.

        Parameters
        ----------
        X, y : Any
            The rows and their labels.
        release : bool, default=False
            Whether a private encoding is drawn, which spends a part of ``epsilon``. Otherwise
            nothing is spent.

        Returns
        -------
        Prepared
            The objective, the mechanism, and what was read.

        Raises
        ------
        InvalidInput
            If the rows, the labels or a parameter cannot be used.
        """
        _checks.one_of("mechanism", self.mechanism, ("auto", *MECHANISMS))
        X, y = _plain(X, "X"), _plain(y, "y")
        if self.private_encoding is not None and not release:
            raise InvalidInput(
                "private_encoding: is spent by a release, and nothing is released here; leave it"
                " out, and pass it to the estimator that is fitted."
            )
        tables = self.encoding, self.ranges, self.private_encoding
        if any(known is not None for known in tables):
            return self._prepared_table(X, y)
        _check_numeric(X)
        with _refusals(X=X, y=y):
            # "numeric" keeps integers, so that the next line sees those past 2⁵³.
            X, y = validate_data(self, X, y, dtype="numeric", ensure_min_samples=2)
        features, names = _checks.matrix(X), self._names()
        read: list[str] = []
        target, known, loss, past = self._targets(y, read)
        scale = known if isinstance(known, LabelScale) else None
        ball = self.ball(features.shape[1])
        if self.data_norm == "auto":
            _warn_of_scales(features, names)
        rows, longer = ball.rows(features)
        return self.ready(
            HeldRows(X=rows, y=target),
            loss=loss,
            ball=ball,
            classes=None if isinstance(known, LabelScale) else known,
            label_scale=scale,
            feature_names=names,
            read=read,
            past=past,
            longer=longer,
        )

    def _prepared_table(self, X: Any, y: Any) -> Prepared:
        """Return the rows of a frame or an array by the requested encoding."""
        frame = frame_of(X)
        given = self._given_encoding(frame.column_names)
        goal = target_name(y, frame.column_names)
        if isinstance(given, Encoding):
            goal = given.target.column
        elif isinstance(given.get("target"), Mapping):
            goal = given["target"].get("column", goal)
        classes = getattr(self, "classes", None)
        # Constants that were read are reported when a model is released.
        with ignored(PrivacyLeakWarning):
            table, encoding = open_encoded(
                with_target(frame, y, goal),
                target=goal,
                classes=None if classes is None else list(classes),
                regression=self.is_regression,
                given=given,
                release=self.histogram_release(),
            )
        labels = None
        if encoding.target.classes is not None:
            encoding, labels = _sorted_by_value(encoding, y)
        columns = len(encoding.entries)
        ball = replace(self.ball(columns), data_norm=encoding.data_norm)
        stream = RowStream.of(table, encoding, ball, label_scale=self._given_scale())
        with engine_of("local") as engine:
            source = TableRows(stream=stream, engine=engine)
            rows, facts = read_rows(source, hold=True)
        ready = self.ready_table(rows, source, facts)
        return ready if labels is None else replace(ready, classes=labels)

    def _given_encoding(self, columns: list[str]) -> "Encoding | dict[str, Any]":
        """Return the whole encoding that was given, or the part of one."""
        if self.ranges is not None:
            if self.encoding is not None:
                raise InvalidInput(
                    "ranges: cannot be combined with encoding; give the columns in the encoding, as"
                    " mean, scale and cut."
                )
            given: Encoding | dict[str, Any] = given_ranges(self.ranges, columns)
        else:
            given = given_encoding({} if self.encoding is None else self.encoding)
        norm = self.data_norm
        if isinstance(given, Encoding):
            if norm not in ("auto", given.data_norm):
                raise InvalidInput(
                    f"data_norm={norm!r}: the encoding has its own ({given.data_norm:g}); leave it"
                    " out."
                )
            return given
        if norm == "auto":
            return given
        if "data_norm" in given:
            raise InvalidInput("data_norm: the encoding has its own; leave it out.")
        return {**given, "data_norm": _checks.positive("data_norm", norm)}

    def _names(self) -> tuple[str, ...] | None:
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return None
        if len(set(names)) < len(names):
            raise InvalidInput("X has duplicate column names: all names must differ.")
        if not all(map(_checks.is_encodable, names)):
            raise InvalidInput(f"X: a column name {_checks.LONE_SURROGATE}.")
        return tuple(names)

    def _keep(self, release: Release) -> Self:
        self.release_ = release
        coef, intercept = release.coefficients
        encoding = release.table_encoding
        self.n_features_in_ = coef.shape[-1] if encoding is None else len(encoding.columns)
        names = release.feature_names if encoding is None else encoding.columns
        if names is None or (encoding is not None and encoding.is_positional):
            self.__dict__.pop("feature_names_in_", None)
        else:
            self.feature_names_in_ = np.array(names, dtype=object)
        if release.classes is None:
            self.coef_: FloatArray = coef
            self.intercept_: float | FloatArray = intercept
        else:
            self.classes_ = release.classes
            self.coef_, self.intercept_ = np.atleast_2d(coef), np.atleast_1d(intercept)
        return self

    def _linear(self, X: Any) -> FloatArray:
        check_is_fitted(self, "release_")
        X = _plain(X, "X")
        encoding = self.release_.table_encoding
        if encoding is not None:
            if not self.release_.encodes(X):
                columns = _checks.named(encoding.columns)
                raise InvalidInput(
                    f"X: has no column names, and the model reads {columns}; pass a frame that has"
                    " them."
                )
            return self.release_.scores(X)
        _check_numeric(X)
        with _refusals(X=X):
            X = validate_data(self, X, reset=False, dtype="numeric")
        return self.release_.scores(_checks.matrix(X, min_rows=1))

    def save(self, path: str | Path) -> Path:
        """Write model.json: θ and public constants, no pickle.

        Parameters
        ----------
        path : str | Path
            The file to write.

        Returns
        -------
        Path
            The path of the written file.
        """
        check_is_fitted(self, "release_")
        return self.release_.save(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the estimator that wrote ``path``.

        Parameters
        ----------
        path : str | Path
            A model.json of this kind of estimator.

        Returns
        -------
        Self
            The fitted estimator.

        Raises
        ------
        InvalidInput
            If the file cannot be read, or holds a model with another loss.
        """
        release = Release.load(path)
        loss = release.mechanism.loss
        name = {Softmax.name: Logistic.name, Huber.name: Squared.name}.get(loss.name, loss.name)
        if name != cls._loss_name:
            raise InvalidInput(
                f"{path}: holds a model with {loss.name} loss; {cls.__name__}"
                f" needs one with {cls._loss_name} loss."
            )
        return cls.from_release(release)

    @classmethod
    def from_release(cls, release: Release) -> Self:
        """Return the fitted estimator of a released model.

        Parameters
        ----------
        release : Release
            The released model.

        Returns
        -------
        Self
            The estimator, with the parameters of the model.
        """
        mechanism, ball = release.mechanism, release.ball
        parameters: dict[str, Any] = {
            "epsilon": mechanism.epsilon,
            "delta": mechanism.delta,
            "mechanism": mechanism.kind,
            "noise": mechanism.noise,
            "regularization": mechanism.regularization,
            "rows_per_person": mechanism.rows_per_person,
            **ball.to_json(),
        }
        if release.encoding is not None:
            # The bound on the rows is the encoding's own.
            parameters["encoding"] = release.table_encoding
            del parameters["data_norm"]
        own = set(mechanism.options) & set(cls._get_param_names())
        parameters |= {name: getattr(mechanism, name) for name in own}
        parameters |= {
            name: getattr(mechanism.loss, field)
            for name, field in cls._of_loss.items()
            if hasattr(mechanism.loss, field)
        }
        if release.classes is not None:
            parameters["classes"] = tuple(release.classes.tolist())
        if release.label_scale is not None:
            parameters["label_range"] = release.label_scale.ends
            parameters["huber_width"] = getattr(mechanism.loss, "width", None)
        # A bound that was read from the data was not given: another fit must warn again.
        for entry in release.read_from_data:
            parameters.pop(entry.split(" ")[0], None)
        estimator = cls(**parameters)
        return estimator._keep(release)

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy; warn at the second one, as searches make several.

        Searches, cross-validation and ensembles fit copies of one estimator. They make them in
        the calling process, whatever n_jobs is, so that counting copies catches them all, and
        where warnings are errors stops them before a second fit.
        """
        copy: Self = super().__sklearn_clone__()
        self._copies = copy._number = getattr(self, "_copies", 0) + 1
        if self._copies == 2:
            warn(
                f"{type(self).__name__} was copied a second time, as searches, cross-validation"
                " and ensembles do: every fit spends its epsilon again, and k settings × f folds"
                " and a refit on the same rows compose to k·f + 1 times that; choose"
                " settings on rows that are public, or count every fit.",
                BudgetWarning,
                stacklevel=3,
            )
        return copy

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the parameters; once fitted, also the release and the number of copies."""
        text: str = super().__repr__(N_CHAR_MAX)
        release = getattr(self, "release_", None)
        if release is None:
            return text
        number = getattr(self, "_number", 1)
        spent = f", copy {number} of one estimator: every fit spent epsilon" if number > 1 else ""
        return f"{text} fitted: {release!r}{spent}"


@dataclass(eq=False, repr=False, kw_only=True)
class _PrivateClassifier(ClassifierMixin, _PrivateLinearModel, ClassifierTraining):
    """A classifier of two classes, or of more where :meth:`_takes_more` is true."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._takes_more()
        return tags

    def _targets(self, y: Any, read: list[str]) -> tuple[FloatArray, NDArray[Any], Loss, int]:
        if self.classes is None:
            read.append("classes (the label set)")
        with _refusals():
            check_classification_targets(y)
        if self._takes_more() and np.size(y if self.classes is None else self.classes) > 2:
            known = class_set(y, self.classes)
            if len(known) > 2:
                return class_codes(y, known), known, self.loss_of(len(known)), 0
        # Sorted, because scikit-learn's scorers rely on it: they would silently reverse an area
        # under the curve.
        classes = np.sort(two_classes(y, self.classes))
        return signs(y, classes), classes, self.loss_of(2), 0

    def decision_function(self, X: Any) -> FloatArray:
        """Return x·coef + intercept of the clipped rows, > 0 for the second class; (n, K).

        Parameters
        ----------
        X : Any
            The rows, as for ``fit``.

        Returns
        -------
        FloatArray
            (n,) scores of the second of two classes, or (n, K).
        """
        return self._linear(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on these rows.

        Parameters
        ----------
        X, y : Any
            The rows and their labels.
        sample_weight : Any, optional
            (n,) the weight of each row; None: equal weights.

        Returns
        -------
        float
            The accuracy, between 0 and 1.
        """
        y = _plain(y, "y")
        with _refusals(_UNLIKE, y=y):
            return float(super().score(X, y, sample_weight))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row.

        Parameters
        ----------
        X : Any
            The rows, as for ``fit``.

        Returns
        -------
        NDArray[Any]
            (n,) labels.
        """
        scores = self._linear(X)
        chosen = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[chosen.astype(int)]
        return labels


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLogisticRegression(_PrivateClassifier, LogisticTraining):  # noqa: D101 (it has one, below)
    __doc__ = f"""Logistic regression, released once under differential privacy.

    With more than two classes, which objective perturbation alone takes, softmax regression.

    {_SHARED}
    margin : float or "auto", default=0.0
        a ≥ 0 of the loss log(1 + e^(a − yz)), for two classes, at no cost in epsilon: rows that are
        classified correctly by less than about a keep a slope near 1. It improves the order of the
        scores where the noise is large. ``predict_proba`` stays σ(z), which is not calibrated then.
        "auto" is 3 + log₁₀(r) of the noise ratio r (:mod:`expost.forecast`), from 0 to 3.
    classes : labels, default=None
        The labels, in any order; ``classes_`` is sorted and the second one of two positive. None
        reads them from the data, under PrivacyLeakWarning.
    """

    _loss_name = "logistic"
    _of_loss: ClassVar[dict[str, str]] = {"margin": "margin"}

    def predict_proba(self, X: Any) -> FloatArray:
        """Return σ(decision) for the second class, the rest for the first; softmax for more.

        Parameters
        ----------
        X : Any
            The rows, as for ``fit``.

        Returns
        -------
        FloatArray
            (n, K) the probability of each class, in the order of ``classes_``.
        """
        scores = self._linear(X)
        if scores.ndim == 2:
            return np.asarray(softmax(scores, axis=1))
        return np.column_stack([expit(-scores), expit(scores)])

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithm of :meth:`predict_proba`, without underflow.

        Parameters
        ----------
        X : Any
            The rows, as for ``fit``.

        Returns
        -------
        FloatArray
            (n, K) the log probability of each class.
        """
        scores = self._linear(X)
        if scores.ndim == 2:
            return np.asarray(log_softmax(scores, axis=1))
        return -np.logaddexp(0, np.column_stack([scores, -scores]))


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLinearSVC(_PrivateClassifier, HingeTraining):  # noqa: D101 (it has one, below)
    __doc__ = f"""A linear support vector classifier (Huber-smoothed hinge), released once.

    {_SHARED}
    huber_width : float, default=0.5
        h ≤ 1, half the width of the smoothed corner.
    classes : pair of labels, default=None
        The two labels, in either order; ``classes_`` is sorted and its second one positive. None
        reads them from the data, under PrivacyLeakWarning.
    """

    _loss_name = "huber-hinge"
    _of_loss: ClassVar[dict[str, str]] = {"huber_width": "width"}


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateRidge(RegressorMixin, _PrivateLinearModel, RidgeTraining):  # noqa: D101 (below)
    __doc__ = f"""Ridge regression with Huber's loss, released once under differential privacy.

    Labels are centred and scaled to [−1, 1] by their range. Predictions are clipped to the range.

    {_SHARED}
    label_range : (low, high), default=None
        The range of the labels, known without the data; labels outside of it are clipped. None
        reads it from the data, under PrivacyLeakWarning.
    huber_width : float or None, default=0.5
        h ≤ 1, in units of half the label range: residuals past h count linearly, which bounds the
        gradient, so that objective perturbation has a guarantee. None: squared loss, whose gradient
        is not bounded; "auto" is then output perturbation.
    """

    _loss_name = "squared"

    def _targets(self, y: Any, read: list[str]) -> tuple[FloatArray, LabelScale, Loss, int]:
        target = _checks.vector(y)
        scale = self.label_scale((float(target.min()), float(target.max())), read)
        return scale.inside(target), scale, self.loss, scale.past(target)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R² on these rows.

        Parameters
        ----------
        X, y : Any
            The rows and their labels.
        sample_weight : Any, optional
            (n,) the weight of each row; None: equal weights.

        Returns
        -------
        float
            R², at most 1.
        """
        y = _plain(y, "y")
        with _refusals(_UNLIKE, y=y):
            return float(super().score(X, y, sample_weight))

    def predict(self, X: Any) -> FloatArray:
        """Return x·coef + intercept of the clipped rows, clipped to the label range.

        Parameters
        ----------
        X : Any
            The rows, as for ``fit``.

        Returns
        -------
        FloatArray
            (n,) the predicted labels.
        """
        scores = self._linear(X)
        assert self.release_.label_scale is not None
        return self.release_.label_scale.outside(scores)


Estimator = PrivateLogisticRegression | PrivateLinearSVC | PrivateRidge
# By the name of their loss.
ESTIMATORS: dict[str, type[Estimator]] = {
    kind._loss_name: kind for kind in (PrivateLogisticRegression, PrivateLinearSVC, PrivateRidge)
}


def _warn_of_scales(features: FloatArray, names: tuple[str, ...] | None) -> None:
    """Warn of columns that clipping would make the only ones that count, or not count at all."""
    scales = np.sqrt(np.mean(np.square(features), axis=0))
    odd = np.flatnonzero((scales > _SCALES[1]) | ((scales < _SCALES[0]) & (scales > 0)))
    if not odd.size:
        return
    columns = odd.tolist() if names is None else [names[column] for column in odd]
    warn(
        f"X: the scale of {_checks.named(columns)} is far from 1 (root mean square outside of"
        f" [{_SCALES[0]:g}, {_SCALES[1]:g}]): clipped rows keep little but the largest columns;"
        " give ranges= or encoding= with what is known of the columns without the data, or"
        " data_norm= if their scales are meant.",
        UnscaledColumnsWarning,
        stacklevel=4,
    )


def _sorted_by_value(encoding: Encoding, y: Any) -> tuple[Encoding, NDArray[Any]]:
    """Return the encoding with its classes in the order of the labels in y, and these, sorted.

    Scorers rely on sorted labels. The order differs from that of the strings where numbers of
    different lengths are labels (2 and 10).
    """
    classes = encoding.target.classes
    assert classes is not None
    labels = label_values(classes, y)
    order = np.argsort(labels, kind="stable")
    target = replace(encoding.target, classes=tuple(classes[index] for index in order))
    return replace(encoding, target=target), labels[order]


def _refuse(unsupported: dict[str, Any]) -> None:
    """Refuse weights, which would change the sensitivity that the noise is calibrated to."""
    if unsupported.pop("sample_weight", None) is not None:
        raise InvalidInput(
            "sample_weight: is not supported, since the noise is calibrated to rows of equal"
            " weight 1/n; leave it out."
        )
    if unsupported:
        raise TypeError(f"fit() got unexpected keyword arguments: {', '.join(unsupported)}.")


def _plain(values: Any, name: str) -> Any:
    """Return ``values`` for scikit-learn to read, as an array where it must be one.

    scikit-learn would silently drop the mask of a masked array, and refuses ``np.matrix``.
    """
    known = isinstance(values, np.matrix | np.ma.MaskedArray) or _checks.is_sparse(values)
    array = _checks.array(values, name) if known else values
    return array[:, 0] if known and name == "y" and array.shape[1] == 1 else array


# The beginnings of scikit-learn's messages that quote cells of the data, or advise another
# estimator, and what replaces them.
_REPHRASED = {
    "Expected 2D array": "X must have two dimensions, rows and columns. Reshape your data with"
    " X.reshape(-1, 1) if it is one column.",
    "Complex data not supported": "Complex data not supported: X and y must be real.",
    "could not convert": "X and the labels of a regression must be numeric: encode strings first.",
    "'<' not supported": "y holds labels of several types, or missing ones: use strings or integers"
    " for all of them.",
    "Input X contains NaN": "Input X contains NaN: every cell must be finite; drop or fill them.",
    "The DType": "X holds columns of types that do not go together: all must be numeric; encode"
    " dates and strings first.",
    "boolean value of NA": "X or y holds missing values (NA): drop or fill them.",
    "float() argument": "X and the labels of a regression must be real numbers (an argument must be"
    " a string or a number): drop, fill or encode the other entries.",
}


# Those of them about cells that are not numbers: the columns are named instead.
_NOT_NUMBERS = tuple(
    _REPHRASED[start] for start in ("could not convert", "The DType", "float() argument")
)


# Scorers quote the labels that they refuse.
_UNLIKE = (
    "y: must hold one label for each row, of the type that the model was fitted with, and"
    " sample_weight, if given, one number."
)


def _check_numeric(X: Any) -> None:
    """Refuse a frame with string columns, by their names; keys of a dictionary may be rows'."""
    if not isinstance(X, Mapping) and is_frame(X) and (columns := text_columns(X)):
        raise InvalidInput(_not_numeric(columns))


def _not_numeric(columns: Sequence[str | int]) -> str:
    return (
        f"X must be numeric: strings or other values in {_checks.named(columns)}; encode them"
        " first, or give encoding= (encoding={} reads levels, means and scales from the data)."
    )


class _WrongType(InvalidInput, TypeError):
    """An :class:`InvalidInput` where scikit-learn's conventions ask for a ``TypeError``."""


@contextmanager
def _refusals(words: str = "", **arrays: Any) -> Iterator[None]:
    """Raise scikit-learn's refusals as :class:`InvalidInput`, never with a row's values in them.

    Parameters
    ----------
    words : str, default=""
        Replace those of any refusal.
    arrays : Any
        The arguments of scikit-learn: an argument that is no array is refused by its name.
    """
    try:
        with FILTER_LOCK:
            yield
    except (ExpostError, NotFittedError, Warning):
        raise
    # Arrays and frames of other libraries run their own code here, and may raise anything.
    except Exception as error:  # noqa: BLE001 (see above)
        if not isinstance(error, ValueError):
            for name, values in arrays.items():
                _checks.array(values, name)
        text = words or str(error)
        for start, rephrased in _REPHRASED.items():
            if text.startswith(start):
                text = rephrased
        if text in _NOT_NUMBERS and "X" in arrays and (columns := text_columns(arrays["X"])):
            text = _not_numeric(columns)
        raise (_WrongType if isinstance(error, TypeError) else InvalidInput)(text) from None
