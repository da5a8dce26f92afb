"""scikit-learn estimators that release one private linear model.

A fitted estimator holds ``release_`` (θ and public constants) and what follows from it: nothing
else of the data, neither the minimiser nor the noise.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from expost import _checks
from expost.data import Encoding, UnitBall, given_encoding, is_frame, open_encoded
from expost.data.frames import (
    frame_of,
    given_ranges,
    label_values,
    target_name,
    text_columns,
    with_target,
)
from expost.data.unit_ball import default_intercept, default_norm
from expost.engine import engine_of
from expost.errors import (
    BudgetWarning,
    ClippedRowsWarning,
    ExpostError,
    InvalidInput,
    NoPromiseWarning,
    PrivacyLeakWarning,
    RaisedRegularizationWarning,
    SeededReleaseWarning,
    UnscaledColumnsWarning,
    UselessModelWarning,
)
from expost.glm import Objective, two_classes_only
from expost.labels import LabelScale, class_codes, class_set, signs, two_classes
from expost.losses import (
    Huber,
    HuberHinge,
    Logistic,
    Loss,
    Softmax,
    Squared,
    default_margin,
)
from expost.mechanisms import MECHANISMS, Mechanism
from expost.mechanisms.base import default_delta, default_mechanism, default_noise
from expost.mechanisms.publishing import PublishingBudget, regularization_for_publishing
from expost.neighbouring.persons import read_persons
from expost.notices import ALONE, ignored, listed, warn
from expost.preparing import Facts, objective_over, read_rows, rescaled
from expost.release import Release
from expost.rows import HeldRows, Rows, RowStream, TableRows
from expost.types import FloatArray

__all__ = [
    "ESTIMATORS",
    "BudgetWarning",
    "Prepared",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
]


# Columns of another root mean square are named in a warning.
_SCALES = (0.1, 10.0)

_SHARED = """Each fit spends ``epsilon`` anew: a search over k settings and f folds, with its refit,
    spends it k·f + 1 times (and warns, see :class:`BudgetWarning`).

    Parameters
    ----------
    epsilon : float, default=1.0
        The privacy budget of this one fit; ``inf`` gives the exact minimiser.
    delta : float or "auto", default="auto"
        Of Gaussian noise: min(10⁻⁶, 1/(10n)), rounded down to a power of ten. Norm-Laplace noise is
        pure and takes none; 0 asks for it.
    mechanism : {"objective", "output"} or "auto", default="auto"
        How the model is released: the minimiser of J(θ) + b·θ/n, or A(D) + b. "auto" is the first
        one, or the second for a loss whose gradient is not bounded.
    noise : {"gaussian", "laplace"} or "auto", default="auto"
        The density of b: normal, or ∝ exp(−β∥b∥). "auto" is normal, or the other where ``delta`` is
        0 or where there are at most 3 coefficients.
    regularization : float, "auto" or "for-publishing", default="auto"
        Λ of J(θ) = (1/n) Σ ℓ + (Λ/2)∥θ∥²; "auto" chooses it from n, d, epsilon and delta alone.
        Objective perturbation raises it where epsilon needs more, and says so. "for-publishing":
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
        The length, inside the unit ball, of that constant feature: 1/√(p + 1) of p columns.
    rows_per_person : int, default=1
        A bound, known without the data, on the number of rows of a person: epsilon and delta hold
        for all rows of a person together. ``fit(X, y, persons=…)`` refuses rows that pass it.
    data_norm : float or "auto", default="auto"
        Rows longer than this are clipped to it, also when the model predicts. "auto" is √p/2 of p
        columns, which is meant for columns of mean 0 and scale 1: most rows are then clipped, and
        keep their direction.
    encoding : Encoding, dict or path, default=None
        How the columns of a table become features: a whole :class:`expost.data.Encoding`, its JSON
        or the path of its encoding.json, or a part of one. What a part leaves out is read from the
        data, under PrivacyLeakWarning; {} reads all of it. X is then a frame, which may hold text
        (pandas, polars, Arrow, a dict of columns), encoded as the command line encodes tables;
        predictions take frames too. p counts the columns of the table that are encoded.
    ranges : pairs (low, high) by column, default=None
        The range of each column that is known without the data: a sequence with a pair for each
        column, or a dict by the names of columns. Each range is mapped linearly to [−1, 1], and
        values outside of it are cut to its ends. Columns of a frame that a dict leaves out are
        encoded as by ``encoding={}``.
    random_state : int, Generator or RandomState, default=None
        None draws the noise from the operating system, which is what a release needs. A seed is
        for simulation: with it the noise can be taken off, and it warns."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """A data set ready to be fitted: its objective, its mechanism, and what was read from it.

    ``mechanism_at``  how a model would be released at another ε, with the Λ of that ε. The loss,
                      and so an automatic margin, stays that of the estimator's own ε.
    ``clipped``       sentences on the rows and labels that lay past their bound and were clipped.
    ``encoding``      how a table became these rows; ``read_from_data`` names what it read.
    """

    objective: Objective
    mechanism: Mechanism
    mechanism_at: Callable[[float], Mechanism]
    ball: UnitBall
    classes: NDArray[Any] | None
    label_scale: LabelScale | None
    feature_names: tuple[str, ...] | None
    read_from_data: tuple[str, ...]
    clipped: tuple[str, ...]
    encoding: Encoding | None = None

    @property
    def problem(self) -> Objective:
        """``objective``, for what works on two classes alone, with their rows in memory."""
        return two_classes_only(self.objective)


@dataclass(eq=False, repr=False)
class _PrivateLinearModel(BaseEstimator):
    """What the three estimators share: the parameters, the bounds, the minimiser, one release."""

    epsilon: float = 1.0
    delta: float | str | None = "auto"
    _: KW_ONLY
    mechanism: str = "auto"
    noise: str = "auto"
    regularization: float | str = "auto"
    calibration: str = "tight"
    publishing: PublishingBudget | None = None
    fit_intercept: bool = True
    intercept_scaling: float | str = "auto"
    rows_per_person: int = 1
    data_norm: float | str = "auto"
    encoding: Any = None
    ranges: Any = None
    random_state: Any = None

    _loss_name: ClassVar[str]
    # Parameters that are fields of the loss, with the names of these fields.
    _of_loss: ClassVar[dict[str, str]] = {}

    def fit(self, X: Any, y: Any, *, persons: Any = None, **unsupported: Any) -> Self:
        """Release one model of these rows, at a cost of ``epsilon``.

        ``persons``: one label a row, whose row it is. A person with more rows than
        ``rows_per_person`` is refused, before anything is spent. Without it nothing is checked.
        """
        _refuse(unsupported)
        prepared = self.prepared(X, y)
        if persons is not None:
            read_persons(persons, prepared.mechanism.rows).check_sizes(
                prepared.mechanism.rows_per_person
            )
        return self._keep(self.release(prepared))

    def release(self, prepared: "Prepared") -> Release:
        """Draw one model of rows that were prepared, at a cost of ``epsilon``."""
        how, read = prepared.mechanism, prepared.read_from_data
        rng = None
        if how.is_private:
            _ = how.grid  # Where there is no safe one it refuses, before anything is computed.
            rng = self._rng()
        for clipped in prepared.clipped:
            warn(clipped, ClippedRowsWarning, stacklevel=3)
        if how.is_private and not how.worst_case < np.inf:
            warn(
                f"the {how.loss.name} loss has an unbounded gradient: {how.kind} perturbation"
                f" promises no epsilon for it; take mechanism='output' for a promise.",
                NoPromiseWarning,
                stacklevel=3,
            )
        if how.is_raised:
            warn(
                f"regularization={how.regularization:.4g} is too little for {how.kind} perturbation"
                f" at epsilon={how.epsilon:g}: it was raised to {how.total_regularization:.4g};"
                " give that much, or a larger epsilon.",
                RaisedRegularizationWarning,
                stacklevel=3,
            )
        useless = how.forecast.warning
        if useless is not None:
            warn(useless, UselessModelWarning, stacklevel=3)
        if read:
            warn(
                f"read from the data, which is not private: {listed(read)}; give what you know"
                " without the data.",
                PrivacyLeakWarning,
                stacklevel=3,
            )
        encoding = prepared.encoding
        return Release(
            theta=how.release(prepared.objective, rng),
            mechanism=how,
            ball=prepared.ball,
            classes=prepared.classes,
            label_scale=prepared.label_scale,
            feature_names=prepared.feature_names,
            encoding=None if encoding is None else encoding.to_json(),
            read_from_data=read,
            seeded=rng is not None,
        )

    def prepared(self, X: Any, y: Any) -> "Prepared":
        """The rows as the objective sees them, and how they would be released; spends nothing."""
        _checks.one_of("mechanism", self.mechanism, ("auto", *MECHANISMS))
        X, y = _plain(X, "X"), _plain(y, "y")
        if self.encoding is not None or self.ranges is not None:
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

    def ready(
        self,
        rows: Rows,
        *,
        loss: Loss,
        ball: UnitBall,
        classes: NDArray[Any] | None,
        label_scale: LabelScale | None,
        feature_names: tuple[str, ...] | None,
        read: list[str],
        past: int,
        longer: int,
        encoding: Encoding | None = None,
    ) -> "Prepared":
        """Return rows of the unit ball, ``past`` labels and ``longer`` rows of which were clipped.

        ``read``: the bounds that were read from the data.
        """
        clipped = []
        if past:
            low, high = (label_scale or LabelScale()).ends
            clipped.append(
                f"{past} labels are outside of label_range=({low:g}, {high:g}) and were clipped."
            )
        if longer:
            clipped.append(
                f"{longer} of {rows.count} rows are longer than data_norm={ball.data_norm:g} and"
                " were clipped to it. That is intended: they keep their direction, which is what a"
                " linear model uses, and predictions clip rows in the same way."
            )
        dimension = loss.outputs * rows.columns
        loss = self._settled_loss(loss, rows.count, dimension)
        how = self.how(loss, rows.count, dimension)
        return Prepared(
            objective=objective_over(rows, loss, how.total_regularization),
            mechanism=how,
            mechanism_at=lambda epsilon: self.how(loss, rows.count, dimension, epsilon=epsilon),
            ball=ball,
            classes=classes,
            label_scale=label_scale,
            feature_names=feature_names,
            read_from_data=(*(() if encoding is None else encoding.read_from_data), *read),
            clipped=tuple(clipped),
            encoding=encoding,
        )

    def _prepared_table(self, X: Any, y: Any) -> "Prepared":
        """Return the rows of a frame or an array by the encoding that is asked for."""
        frame = frame_of(X)
        given = self._given_encoding(frame.column_names)
        goal = target_name(y, frame.column_names)
        if isinstance(given, Encoding):
            goal = given.target.column
        elif isinstance(given.get("target"), Mapping):
            goal = given["target"].get("column", goal)
        classes = getattr(self, "classes", None)
        # What was read is said when a model is released.
        with ignored(PrivacyLeakWarning):
            table, encoding = open_encoded(
                with_target(frame, y, goal),
                target=goal,
                classes=None if classes is None else list(classes),
                regression=isinstance(self, RegressorMixin),
                given=given,
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
            given = given_encoding(self.encoding)
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

    def ready_table(self, rows: Rows, source: TableRows, facts: Facts) -> "Prepared":
        """Return the rows of a table, and how a model of them would be released; spends nothing.

        ``source`` is the table that ``rows`` come from, in memory or not; the bounds and classes
        are those of its encoding, and ``facts`` those of its rows.
        """
        encoding, read = source.stream.encoding, list[str]()
        classes = encoding.target.classes
        scale = self._scale_of_table(facts, read)
        if scale is not None and source.stream.label_scale is None:
            rows = rescaled(rows, scale, facts)
        return self.ready(
            rows,
            loss=self._loss_of_table(classes),
            ball=source.stream.ball,
            classes=None if classes is None else np.array(classes),
            label_scale=scale,
            feature_names=encoding.feature_names,
            read=read,
            past=facts.past,
            longer=facts.clipped,
            encoding=encoding,
        )

    def _settled_loss(self, loss: Loss, rows: int, dimension: int) -> Loss:
        """Return the loss of so many rows and coefficients, where it depends on them."""
        del rows, dimension
        return loss

    def _given_scale(self) -> LabelScale | None:
        """Return how labels of a regression are scaled, where that was given."""
        return None

    def _scale_of_table(self, facts: Facts, read: list[str]) -> LabelScale | None:
        """Return how labels of a regression are scaled, by what was given or the facts of rows."""
        del facts, read
        return None

    def _names(self) -> tuple[str, ...] | None:
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return None
        if len(set(names)) < len(names):
            raise InvalidInput("X has duplicate column names: every name must be its own.")
        if not all(map(_checks.is_text, names)):
            raise InvalidInput(f"X: a column name {_checks.LONE}.")
        return tuple(names)

    def ball(self, columns: int) -> UnitBall:
        """Return how rows of so many columns (of the table, not of X) come into the unit ball."""
        scaling = default_intercept(columns)
        return UnitBall(
            data_norm=_or_rule("data_norm", self.data_norm, default_norm(columns)),
            fit_intercept=self.fit_intercept,
            intercept_scaling=_or_rule("intercept_scaling", self.intercept_scaling, scaling),
        )

    def _kind(self, loss: Loss) -> type[Mechanism]:
        """Return the class of mechanisms that is asked for, or the default of the loss."""
        name = default_mechanism(loss) if self.mechanism == "auto" else self.mechanism
        return MECHANISMS.find(name)

    def how(
        self, loss: Loss, rows: int, dimension: int, *, epsilon: float | None = None
    ) -> Mechanism:
        """How a model of so many rows and coefficients would be released, at its ε or another."""
        kind = self._kind(loss)
        epsilon = self.epsilon if epsilon is None else epsilon
        noise = self.noise
        if noise == "auto":
            noise = default_noise(kind, dimension, self.delta)
        budget: dict[str, Any] = {
            "epsilon": _checks.positive("epsilon", epsilon, finite=False),
            "delta": self._delta(kind, noise, rows),
            "noise": noise,
            "loss": loss,
            "rows": rows,
            "dimension": dimension,
            "rows_per_person": _checks.rows_per_person(self.rows_per_person),
        }
        regularization, publishing = self.regularization, self._publishing()
        if publishing is not None and isinstance(loss, Softmax | Huber):
            raise InvalidInput(
                "publishing: only classifiers of two classes have a data-dependent report; leave it"
                " out."
            )
        if publishing is not None and budget["rows_per_person"] > 1:
            raise InvalidInput(
                "publishing: a data-dependent report is for persons with one row; leave it out, or"
                " take rows_per_person=1."
            )
        budget |= {name: getattr(self, name) for name in kind.options if hasattr(self, name)}
        if publishing is not None and regularization == "for-publishing":
            regularization = regularization_for_publishing(publishing, **budget)
        elif isinstance(regularization, str):
            _checks.one_of("regularization", regularization, ("auto", "for-publishing"))
            regularization = kind.automatic_regularization(**budget)
        budget["regularization"] = _checks.positive("regularization", regularization)
        how = MECHANISMS.create(kind.kind, **budget)
        if publishing is not None:
            publishing.check_penalty(how)
        return how

    def _delta(self, kind: type[Mechanism], noise: str, rows: int) -> float | None:
        """Return δ: what was given, the default of so many rows, or None for a pure noise."""
        delta = self.delta
        if isinstance(delta, str):
            _checks.one_of("delta", delta, ("auto",))
            return default_delta(rows) if kind.noises.get(noise) else None
        pure = delta is None or (delta == 0 and not kind.noises.get(noise))
        return None if pure else _checks.probability("delta", delta)

    def _publishing(self) -> PublishingBudget | None:
        """What the report of this model is to spend, where there is to be one."""
        publishing = self.publishing
        if publishing is None:
            if self.regularization == "for-publishing":
                raise InvalidInput(
                    "publishing=None: regularization='for-publishing' needs a PublishingBudget that"
                    " says what the report may spend."
                )
            return None
        if not isinstance(publishing, PublishingBudget):
            raise InvalidInput(f"publishing={publishing!r}: must be a PublishingBudget, or None.")
        if self.mechanism != "auto" and not MECHANISMS[self.mechanism].has_report:
            raise InvalidInput(
                "publishing: only objective perturbation has a data-dependent report; take"
                " mechanism='objective', or leave it out."
            )
        return publishing

    def _rng(self) -> np.random.Generator | None:
        """None, for the operating system's randomness, or a seeded generator that warns."""
        seed = self.random_state
        if seed is None:
            return None
        warn(
            "random_state is set: the noise can be taken off by whoever knows the seed; leave it"
            " at None for a real release.",
            SeededReleaseWarning,
            stacklevel=4,
        )
        if isinstance(seed, np.random.Generator):
            return seed
        if isinstance(seed, np.random.RandomState):
            return np.random.default_rng(seed.randint(2**31, size=4))
        return np.random.default_rng(_checks.whole("random_state", seed, least=0))

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
        """Write model.json: θ and public constants, no pickle."""
        check_is_fitted(self, "release_")
        return self.release_.save(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The estimator that wrote ``path``."""
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
        """The fitted estimator of a released model."""
        how, ball = release.mechanism, release.ball
        parameters: dict[str, Any] = {
            "epsilon": how.epsilon,
            "delta": how.delta,
            "mechanism": how.kind,
            "noise": how.noise,
            "regularization": how.regularization,
            "rows_per_person": how.rows_per_person,
            **ball.to_json(),
        }
        if release.encoding is not None:
            # The bound on the rows is the encoding's own.
            parameters["encoding"] = release.table_encoding
            del parameters["data_norm"]
        own = set(how.options) & set(cls._get_param_names())
        parameters |= {name: getattr(how, name) for name in own}
        parameters |= {
            name: getattr(how.loss, field)
            for name, field in cls._of_loss.items()
            if hasattr(how.loss, field)
        }
        if release.classes is not None:
            parameters["classes"] = tuple(release.classes.tolist())
        if release.label_scale is not None:
            parameters["label_range"] = release.label_scale.ends
            parameters["huber_width"] = getattr(how.loss, "width", None)
        # A bound that was read from the data was not given: another fit must warn again.
        for entry in release.read_from_data:
            parameters.pop(entry.split(" ")[0], None)
        estimator = cls(**parameters)
        return estimator._keep(release)

    def __sklearn_clone__(self) -> Self:
        """An unfitted copy; the second one warns, since then a search or the like is under way.

        Searches, cross-validation and ensembles fit copies of one estimator. They make them in
        the calling process, whatever n_jobs is, so that counting copies catches them all, and
        where warnings are errors stops them before a second fit.
        """
        copy: Self = super().__sklearn_clone__()
        self._copies = copy._number = getattr(self, "_copies", 0) + 1
        if self._copies == 2:
            warn(
                f"{type(self).__name__} was copied a second time, as searches, cross-validation"
                " and ensembles do: every fit spends its epsilon anew, and on rows that they"
                " share k settings × f folds and a refit add up to k·f + 1 times that; choose"
                " settings on rows that are public, or count every fit.",
                BudgetWarning,
                stacklevel=3,
            )
        return copy

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The parameters; once fitted, also the release, its forecast and the number of copies."""
        text: str = super().__repr__(N_CHAR_MAX)
        release = getattr(self, "release_", None)
        if release is None:
            return text
        number = getattr(self, "_number", 1)
        spent = f", copy {number} of one estimator: every fit spent epsilon" if number > 1 else ""
        return f"{text} fitted: {release!r}{spent}"


@dataclass(eq=False, repr=False, kw_only=True)
class _PrivateClassifier(ClassifierMixin, _PrivateLinearModel):
    """A classifier of two classes, or of more where :meth:`_takes_more` says so."""

    classes: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._takes_more()
        return tags

    def _takes_more(self) -> bool:
        """Whether more than two classes can be fitted."""
        return False

    def _loss_of_table(self, classes: tuple[str, ...] | None) -> Loss:
        if classes is not None and len(classes) > 2 and not self._takes_more():
            raise InvalidInput(
                f"y holds {len(classes)} classes: exactly two are needed here; fit one class"
                " against the rest, or take the logistic loss with objective perturbation."
            )
        loss: Loss = self.loss_of(2 if classes is None else len(classes))
        return loss

    def _targets(self, y: Any, read: list[str]) -> tuple[FloatArray, NDArray[Any], Loss, int]:
        if self.classes is None:
            read.append("classes (the label set)")
        with _refusals():
            check_classification_targets(y)
        if self._takes_more() and np.size(y if self.classes is None else self.classes) > 2:
            known = class_set(y, self.classes)
            if len(known) > 2:
                return class_codes(y, known), known, self.loss_of(len(known)), 0
        # Sorted, in whatever order they were given: scikit-learn's scorers count on it, and would
        # turn an area under the curve round without a word.
        classes = np.sort(two_classes(y, self.classes))
        return signs(y, classes), classes, self.loss_of(2), 0

    def decision_function(self, X: Any) -> FloatArray:
        """x·coef + intercept of the rows as they are clipped, > 0 for the second class; (n, K)."""
        return self._linear(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy on these rows."""
        y = _plain(y, "y")
        with _refusals(_UNLIKE, y=y):
            return float(super().score(X, y, sample_weight))

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each row."""
        scores = self._linear(X)
        chosen = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[chosen.astype(int)]
        return labels


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLogisticRegression(_PrivateClassifier):  # noqa: D101 (it has one, below)
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

    margin: float | str = 0.0

    _loss_name = "logistic"
    _of_loss: ClassVar[dict[str, str]] = {"margin": "margin"}

    def loss_of(self, classes: int) -> Loss:
        """Return the loss of so many classes; of an automatic margin that without one."""
        loss = Logistic(margin=_or_rule("margin", self.margin, 0.0))
        if classes <= 2:
            return loss
        if self.margin != 0:
            raise InvalidInput(
                f"margin={self.margin!r}: is for two classes, and y holds {classes}; leave it out."
            )
        return Softmax(classes=classes)

    def _settled_loss(self, loss: Loss, rows: int, dimension: int) -> Loss:
        if self.margin != "auto":
            return loss
        ratio = self.how(loss, rows, dimension).forecast.noise_ratio
        return Logistic(margin=default_margin(ratio))

    def _takes_more(self) -> bool:
        name = default_mechanism(Logistic()) if self.mechanism == "auto" else self.mechanism
        return isinstance(name, str) and name in MECHANISMS and MECHANISMS[name].is_multiclass

    def predict_proba(self, X: Any) -> FloatArray:
        """σ(decision) for the second class, and what is left for the first; softmax for more."""
        scores = self._linear(X)
        if scores.ndim == 2:
            return np.asarray(softmax(scores, axis=1))
        return np.column_stack([expit(-scores), expit(scores)])

    def predict_log_proba(self, X: Any) -> FloatArray:
        """log of :meth:`predict_proba`, without underflow."""
        scores = self._linear(X)
        if scores.ndim == 2:
            return np.asarray(log_softmax(scores, axis=1))
        return -np.logaddexp(0, np.column_stack([scores, -scores]))


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLinearSVC(_PrivateClassifier):  # noqa: D101 (it has one, below)
    __doc__ = f"""A linear support vector classifier (Huber-smoothed hinge), released once.

    {_SHARED}
    huber_width : float, default=0.5
        h ≤ 1, half the width of the smoothed corner.
    classes : pair of labels, default=None
        The two labels, in either order; ``classes_`` is sorted and its second one positive. None
        reads them from the data, under PrivacyLeakWarning.
    """

    huber_width: float = 0.5

    _loss_name = "huber-hinge"
    _of_loss: ClassVar[dict[str, str]] = {"huber_width": "width"}

    def loss_of(self, classes: int) -> Loss:
        """Return the loss of two classes."""
        width = _checks.positive("huber_width", self.huber_width)
        if not width <= 1:
            raise InvalidInput(f"huber_width={width!r}: must be at most 1.")
        return HuberHinge(width=width)


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateRidge(RegressorMixin, _PrivateLinearModel):  # noqa: D101 (it has one, below)
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

    label_range: Any = None
    huber_width: float | None = 0.5

    _loss_name = "squared"
    _of_loss: ClassVar[dict[str, str]] = {}

    @property
    def loss(self) -> Loss:
        """The loss, for labels in [−1, 1]."""
        if self.huber_width is None:
            return Squared(label_bound=1.0)
        width = _checks.positive("huber_width", self.huber_width)
        if not width <= 1:
            raise InvalidInput(f"huber_width={width!r}: must be at most 1.")
        return Huber(width=width)

    def label_scale(self, labels: tuple[float, float], read: list[str]) -> LabelScale:
        """Return how labels are scaled: by the range that was given, or that of ``labels``."""
        if self.label_range is not None:
            return LabelScale.within(self.label_range)
        read.append("label_range (the smallest and the largest label)")
        return LabelScale.read(*labels)

    def _targets(self, y: Any, read: list[str]) -> tuple[FloatArray, LabelScale, Loss, int]:
        target = _checks.vector(y)
        scale = self.label_scale((float(target.min()), float(target.max())), read)
        return scale.inside(target), scale, self.loss, scale.past(target)

    def _loss_of_table(self, classes: tuple[str, ...] | None) -> Loss:
        del classes
        return self.loss

    def _given_scale(self) -> LabelScale | None:
        return None if self.label_range is None else LabelScale.within(self.label_range)

    def _scale_of_table(self, facts: Facts, read: list[str]) -> LabelScale:
        return self.label_scale(facts.labels, read)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² on these rows."""
        y = _plain(y, "y")
        with _refusals(_UNLIKE, y=y):
            return float(super().score(X, y, sample_weight))

    def predict(self, X: Any) -> FloatArray:
        """x·coef + intercept, of the clipped row, clipped to the label range."""
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
        " give ranges= or encoding= with what you know of the columns without the data, or"
        " data_norm= if their scales are meant.",
        UnscaledColumnsWarning,
        stacklevel=4,
    )


def _sorted_by_value(encoding: Encoding, y: Any) -> tuple[Encoding, NDArray[Any]]:
    """Return the encoding with its classes in the order of the labels in y, and these, sorted.

    Scorers count on sorted labels. The order differs from that of the text where numbers of
    different lengths are labels (2 and 10).
    """
    classes = encoding.target.classes
    assert classes is not None
    labels = label_values(classes, y)
    order = np.argsort(labels, kind="stable")
    target = replace(encoding.target, classes=tuple(classes[place] for place in order))
    return replace(encoding, target=target), labels[order]


def _or_rule(name: str, value: float | str, rule: float) -> float:
    """Return ``value``, or what the rule says where it is "auto"."""
    if not isinstance(value, str):
        return value
    _checks.one_of(name, value, ("auto",))
    return rule


def _refuse(unsupported: dict[str, Any]) -> None:
    """Weights would change each row's sensitivity, which the noise is calibrated to."""
    if unsupported.pop("sample_weight", None) is not None:
        raise InvalidInput(
            "sample_weight: is not supported, since the noise is calibrated to rows of equal"
            " weight 1/n; leave it out."
        )
    if unsupported:
        raise TypeError(f"fit() got unexpected keyword arguments: {', '.join(unsupported)}.")


def _plain(values: Any, name: str) -> Any:
    """``values``, for scikit-learn to read, unless an array must be made of them or refused here.

    scikit-learn would drop the mask of a masked array without a word, and refuses ``np.matrix``.
    """
    known = isinstance(values, np.matrix | np.ma.MaskedArray) or scipy.sparse.issparse(values)
    array = _checks.array(values, name) if known else values
    return array[:, 0] if known and name == "y" and array.shape[1] == 1 else array


# How scikit-learn's messages begin that quote cells of the data, or advise another estimator.
_REPHRASED = {
    "Expected 2D array": "X must have two dimensions, rows and columns. Reshape your data with"
    " X.reshape(-1, 1) if it is one column.",
    "Complex data not supported": "Complex data not supported: X and y must be real.",
    "could not convert": "X and the labels of a regression must be numeric: encode text first.",
    "'<' not supported": "y holds labels of several types, or none in places: use text or whole"
    " numbers for all of them.",
    "Input X contains NaN": "Input X contains NaN: every cell must be finite; drop or fill them.",
    "The DType": "X holds columns of types that do not go together: all must be numeric; encode"
    " dates and text first.",
    "boolean value of NA": "X or y holds missing values (NA): drop or fill them.",
    "float() argument": "X and the labels of a regression must be real numbers (an argument must be"
    " a string or a number): drop, fill or encode the other entries.",
}


# Those of them that are about cells which are not numbers: the columns are named instead.
_NOT_NUMBERS = tuple(
    _REPHRASED[start] for start in ("could not convert", "The DType", "float() argument")
)


# Scorers quote the labels that they refuse.
_UNLIKE = (
    "y: must hold one label for each row, of the type that the model was fitted with, and"
    " sample_weight, if given, one number."
)


def _check_numeric(X: Any) -> None:
    """Refuse a frame with columns of text, by their names; keys of a dictionary may be rows'."""
    if not isinstance(X, Mapping) and is_frame(X) and (columns := text_columns(X)):
        raise InvalidInput(_not_numeric(columns))


def _not_numeric(columns: Sequence[str | int]) -> str:
    return (
        f"X must be numeric: text or other values in {_checks.named(columns)}; encode it first, or"
        " give encoding= (encoding={} reads levels, means and scales from the data)."
    )


class _WrongType(InvalidInput, TypeError):
    """An :class:`InvalidInput` where scikit-learn's conventions ask for a ``TypeError``."""


@contextmanager
def _refusals(words: str = "", **arrays: Any) -> Iterator[None]:
    """scikit-learn's refusals as :class:`InvalidInput`, and never with a row's values in them.

    ``words``   in place of those of any refusal.
    ``arrays``  what scikit-learn is given: where it is no array at all, that is said.
    """
    try:
        with ALONE:
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
