"""The training of one private linear model: its parameters, its bounds and its release.

Commands train models with this module and import no scikit-learn, which takes longer to import
than many tables take to be fitted. :mod:`expost.estimators` has the same training behind the
interface of scikit-learn, and documents the parameters.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from expost import _checks
from expost.data import Encoding, Table, UnitBall
from expost.data.encoding import ReleaseHistograms
from expost.data.histograms import Histograms
from expost.data.unit_ball import default_intercept, default_norm
from expost.errors import (
    ClippedRowsWarning,
    InvalidInput,
    NoGuaranteeWarning,
    PrivacyLeakWarning,
    RaisedRegularizationWarning,
    SeededReleaseWarning,
    UselessModelWarning,
)
from expost.glm import Objective, two_classes_only
from expost.labels import LabelScale
from expost.losses import Huber, HuberHinge, Logistic, Loss, Softmax, Squared, default_margin
from expost.mechanisms import MECHANISMS, Mechanism
from expost.mechanisms.base import (
    default_delta,
    default_mechanism,
    default_noise,
    mechanism_name,
)
from expost.mechanisms.encoded import EncodingBudget, draw_histograms, left_of, with_histograms
from expost.mechanisms.publishing import PublishingBudget, regularization_for_publishing
from expost.notices import listed, warn
from expost.numbers import count, number
from expost.preparing import Facts, objective_over, rescaled
from expost.release import Release
from expost.rows import Rows, TableRows
from expost.types import Neighbouring

__all__ = [
    "TRAININGS",
    "ClassifierTraining",
    "HingeTraining",
    "LinearTraining",
    "LogisticTraining",
    "Prepared",
    "RidgeTraining",
]


# More coefficients than the default noise of few.
_SOME = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """A data set ready to be fitted: its objective, its mechanism, and what was read from it.

    Parameters
    ----------
    mechanism_at : callable
        The mechanism at another ε, with the Λ and the loss (an automatic margin) of that ε;
        ``has_one_loss``: the loss is that of all ε.
    alternatives : Mapping[str, callable]
        By name: the same with each other pair of mechanism and noise of expost's own. A pair may
        refuse, as a mechanism does: at an ε, or the loss at any.
    noiseless_loss : Loss
        The loss that a model without noise would have.
    clipped : tuple[str, ...]
        Sentences on the rows and labels that lay past their bound and were clipped.
    encoding : Encoding, optional
        How a table became these rows; ``read_from_data`` names what it read.
    """

    objective: Objective
    mechanism: Mechanism
    mechanism_at: Callable[[float], Mechanism]
    alternatives: Mapping[str, Callable[[float], Mechanism]]
    has_one_loss: bool
    noiseless_loss: Loss
    ball: UnitBall
    classes: NDArray[Any] | None
    label_scale: LabelScale | None
    feature_names: tuple[str, ...] | None
    read_from_data: tuple[str, ...]
    clipped: tuple[str, ...]
    encoding: Encoding | None = None

    @property
    def problem(self) -> Objective:
        """``objective``, for code that works on two classes alone, with their rows in memory."""
        return two_classes_only(self.objective)


@dataclass(eq=False, repr=False)
class LinearTraining(ABC):
    """The parameters, bounds and release that the three kinds of training share."""

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
    private_encoding: float | None = None
    random_state: Any = None

    # Whether labels are numbers that are predicted, not classes.
    is_regression: ClassVar[bool] = False

    def release(self, prepared: Prepared) -> Release:
        """Draw one model of rows that were prepared, at a cost of ``epsilon``.

        Parameters
        ----------
        prepared : Prepared
            What :meth:`ready` returned.

        Returns
        -------
        Release
            The model, with θ and its public constants.

        Raises
        ------
        ReleaseRefused
            If no model can be released safely with these parameters.
        """
        mechanism, read = prepared.mechanism, prepared.read_from_data
        rng = None
        if mechanism.is_private:
            # A mechanism without a safe grid refuses, before anything is computed.
            _ = mechanism.grid
            rng = self._rng()
        for clipped in prepared.clipped:
            warn(clipped, ClippedRowsWarning, stacklevel=3)
        if mechanism.is_private and not mechanism.worst_case < np.inf:
            warn(
                f"the {mechanism.loss.name} loss has an unbounded gradient:"
                f" {mechanism.kind} perturbation has no epsilon guarantee for it; use"
                " mechanism='output' for a guarantee.",
                NoGuaranteeWarning,
                stacklevel=3,
            )
        if mechanism.is_raised:
            warn(
                f"regularization={mechanism.regularization:.4g} is too little for"
                f" {mechanism.kind} perturbation at epsilon={mechanism.epsilon:g}: it was raised to"
                f" {mechanism.total_regularization:.4g};"
                " give that much, or a larger epsilon.",
                RaisedRegularizationWarning,
                stacklevel=3,
            )
        useless = mechanism.forecast.warning
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
            theta=mechanism.release(prepared.objective, rng),
            mechanism=mechanism,
            ball=prepared.ball,
            classes=prepared.classes,
            label_scale=prepared.label_scale,
            feature_names=prepared.feature_names,
            encoding=None if encoding is None else encoding.to_json(),
            read_from_data=read,
            seeded=rng is not None,
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
    ) -> Prepared:
        """Return a data set that is ready to be fitted; spends nothing.

        Parameters
        ----------
        rows : Rows
            The rows, in the unit ball.
        loss : Loss
            The loss of a model without noise.
        ball : UnitBall
            The map of rows to the unit ball.
        classes : NDArray[Any] | None
            The labels of a classifier, in the order of the loss; None: a regression.
        label_scale : LabelScale | None
            The scale of the labels of a regression.
        feature_names : tuple[str, ...] | None
            The names of the features, if they have any.
        read : list[str]
            The bounds that were read from the data.
        past : int
            The number of labels that were clipped.
        longer : int
            The number of rows that were clipped.
        encoding : Encoding, optional
            The encoding of a table.

        Returns
        -------
        Prepared
            The objective, the mechanism, and what was read.

        Raises
        ------
        InvalidInput
            If a parameter is invalid.
        """
        clipped = []
        if past:
            low, high = (label_scale or LabelScale()).ends
            clipped.append(
                f"{count(past)} labels are outside of label_range=({low:g}, {high:g}) and were"
                " clipped."
            )
        if longer:
            clipped.append(
                f"{count(longer)} of {count(rows.count)} rows are longer than the norm limit"
                f" {number(ball.data_norm)} (data_norm) and were clipped to it. That is intended:"
                " they keep their direction, which is what a linear model uses, and predictions"
                " clip rows in the same way."
            )
        size = rows.count, loss.outputs * rows.columns
        histograms = None if encoding is None else encoding.histograms
        if histograms is not None and self.publishing is not None:
            raise InvalidInput(
                "publishing: a model with a private encoding has no data-dependent report; leave it"
                " out."
            )

        mechanism_at = self.plan(loss, *size, histograms)
        mechanism = mechanism_at(self.epsilon)
        return Prepared(
            objective=objective_over(rows, mechanism.loss, mechanism.total_regularization),
            mechanism=mechanism,
            mechanism_at=mechanism_at,
            alternatives={
                name: training.plan(loss, *size, histograms)
                for name, training in self._alternatives(mechanism)
            },
            has_one_loss=self._has_one_loss,
            noiseless_loss=loss,
            ball=ball,
            classes=classes,
            label_scale=label_scale,
            feature_names=feature_names,
            read_from_data=(*(() if encoding is None else encoding.read_from_data), *read),
            clipped=tuple(clipped),
            encoding=encoding,
        )

    def plan(
        self, loss: Loss, rows: int, dimension: int, histograms: Histograms | None = None
    ) -> Callable[[float], Mechanism]:
        """Return the mechanism as a function of ε.

        Parameters
        ----------
        loss : Loss
            The loss of a model without noise.
        rows : int
            The number n of rows.
        dimension : int
            The number of coefficients.
        histograms : Histograms, optional
            Those of the encoding, which spend a part of ε.

        Returns
        -------
        Callable[[float], Mechanism]
            The mechanism at an ε, with the Λ and the loss of that ε.
        """

        def mechanism_at(epsilon: float) -> Mechanism:
            settled = self._settled_loss(loss, rows, dimension, epsilon)
            return self.mechanism_for(
                settled, rows, dimension, epsilon=epsilon, histograms=histograms
            )

        return mechanism_at

    def _alternatives(self, own: Mechanism) -> Iterator[tuple[str, "LinearTraining"]]:
        """Yield the same training with each other mechanism and noise that takes the loss.

        Λ is automatic: a given one is for the mechanism it was given with. A given δ is kept where
        a noise needs one.
        """
        for kind in MECHANISMS.own:
            if own.loss.outputs > 1 and not kind.is_multiclass:
                continue
            for noise, needs_delta in kind.noises.items():
                if (kind.kind, noise) == (own.kind, own.noise):
                    continue
                training = copy.copy(self)
                training.mechanism, training.noise = kind.kind, noise
                training.delta = (self.delta or "auto") if needs_delta else "auto"
                training.regularization, training.publishing = "auto", None
                yield mechanism_name(kind.kind, noise), training

    def ready_table(self, rows: Rows, source: TableRows, facts: Facts) -> Prepared:
        """Return a table that is ready to be fitted; spends nothing.

        Parameters
        ----------
        rows : Rows
            The rows of the table, in memory or not.
        source : TableRows
            The table, whose encoding has the bounds and classes.
        facts : Facts
            What was counted while the rows were read.

        Returns
        -------
        Prepared
            The objective, the mechanism, and what was read.

        Raises
        ------
        InvalidInput
            If a parameter is invalid.
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

    @abstractmethod
    def _loss_of_table(self, classes: tuple[str, ...] | None) -> Loss:
        """Return the loss of a table with these classes, None of a regression."""

    @property
    def _has_one_loss(self) -> bool:
        """Whether the loss is the same at every ε."""
        return True

    def _settled_loss(self, loss: Loss, rows: int, dimension: int, epsilon: float) -> Loss:
        """Return the loss of so many rows and coefficients at an ε, where it depends on them.

        Parameters
        ----------
        loss : Loss
            The loss of a model without noise.
        """
        del rows, dimension, epsilon
        return loss

    def _given_scale(self) -> LabelScale | None:
        """Return the scale of the labels of a regression, where that was given."""
        return None

    def _scale_of_table(self, facts: Facts, read: list[str]) -> LabelScale | None:
        """Return the scale of the labels of a regression, as given or from the facts of rows."""
        del facts, read
        return None

    def ball(self, columns: int) -> UnitBall:
        """Return the map of rows of so many columns (of the table, not of X) to the unit ball.

        Parameters
        ----------
        columns : int
            The number p of columns of the table.

        Returns
        -------
        UnitBall
            The map, with ``data_norm`` as given or by its rule.

        Raises
        ------
        InvalidInput
            If a parameter is invalid.
        """
        scaling = default_intercept(columns)
        return UnitBall(
            data_norm=_or_rule("data_norm", self.data_norm, default_norm(columns)),
            fit_intercept=self.fit_intercept,
            intercept_scaling=_or_rule("intercept_scaling", self.intercept_scaling, scaling),
        )

    def _kind(self, loss: Loss) -> type[Mechanism]:
        """Return the class of the requested mechanism, or the default of the loss."""
        if self.mechanism == "auto":
            return MECHANISMS.find(default_mechanism(loss))
        if self.mechanism not in MECHANISMS:
            _checks.one_of("mechanism", self.mechanism, ("auto", *MECHANISMS))
        return MECHANISMS.find(self.mechanism)

    def histogram_release(self) -> ReleaseHistograms | None:
        """Return how histograms for a private encoding are released; None: they are not.

        Returns
        -------
        ReleaseHistograms | None
            A function of a table and the public ranges of its columns.

        Raises
        ------
        InvalidInput
            If ``private_encoding`` is not in (0, 1).
        """
        share = self.private_encoding
        if share is None:
            return None
        share = _checks.probability("private_encoding", share)

        def release(table: Table, columns: Mapping[str, tuple[float, float] | None]) -> Histograms:
            # A model of some coefficients, to ask which relation its guarantee will cover.
            model = self.mechanism_for(self._loss_of_table(None), table.rows, _SOME)
            budget = EncodingBudget(
                epsilon=_checks.positive("epsilon", self.epsilon, finite=False),
                delta=default_delta(table.rows) if self.delta == "auto" else float(self.delta or 0),
                share=share,
                rows_per_person=model.rows_per_person,
                replaces=model.covers(Neighbouring.REPLACE),
            )
            return draw_histograms(table, columns, budget, self._rng("encoding"))[0]

        return release

    def mechanism_for(
        self,
        loss: Loss,
        rows: int,
        dimension: int,
        *,
        epsilon: float | None = None,
        histograms: Histograms | None = None,
    ) -> Mechanism:
        """Return the mechanism of a model with the given number of rows and coefficients.

        Parameters
        ----------
        loss : Loss
            The loss of a row.
        rows : int
            The number n of rows.
        dimension : int
            The number of coefficients.
        epsilon : float, optional
            The privacy budget; None: that of the estimator.
        histograms : Histograms, optional
            Those of the encoding, which spend a part of ε.

        Returns
        -------
        Mechanism
            The mechanism, with Λ and δ as given or by their rules.

        Raises
        ------
        InvalidInput
            If a parameter is invalid, or the histograms leave no ε.
        """
        kind = self._kind(loss)
        epsilon = self.epsilon if epsilon is None else epsilon
        noise = _checks.one_of("noise", self.noise, ("auto", *kind.noises))
        if noise == "auto":
            noise = default_noise(kind, dimension, self.delta)
        delta = self._delta(kind, noise, rows)
        epsilon = _checks.positive("epsilon", epsilon, finite=False)
        if histograms is not None:
            spent = histograms.delta, histograms.threshold_delta
            epsilon = left_of(epsilon, histograms.epsilon)
            delta = None if delta is None else left_of(delta, *spent)
            if not (epsilon > 0 and (delta is None or delta > 0)):
                raise InvalidInput(
                    "epsilon: the private encoding has spent"
                    f" ({histograms.epsilon:.3g}, {sum(spent):.3g}) of it; give a larger one."
                )
        budget: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": delta,
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
                " use rows_per_person=1."
            )
        budget |= {name: getattr(self, name) for name in kind.options if hasattr(self, name)}
        if publishing is not None and regularization == "for-publishing":
            regularization = regularization_for_publishing(publishing, **budget)
        elif isinstance(regularization, str):
            _checks.one_of("regularization", regularization, ("auto", "for-publishing"))
            regularization = kind.automatic_regularization(**budget)
        budget["regularization"] = _checks.positive("regularization", regularization)
        mechanism = MECHANISMS.create(kind.kind, **budget)
        if publishing is not None:
            publishing.check_penalty(mechanism)
        return with_histograms(mechanism, histograms)

    def _delta(self, kind: type[Mechanism], noise: str, rows: int) -> float | None:
        """Return δ: what was given, the default of so many rows, or None for a pure noise."""
        delta = self.delta
        if isinstance(delta, str):
            _checks.one_of("delta", delta, ("auto",))
            return default_delta(rows) if kind.noises.get(noise) else None
        pure = delta is None or (delta == 0 and not kind.noises.get(noise))
        return None if pure else _checks.probability("delta", delta)

    def _publishing(self) -> PublishingBudget | None:
        """Return the budget of this model's report, where there is to be one."""
        publishing = self.publishing
        if publishing is None:
            if self.regularization == "for-publishing":
                raise InvalidInput(
                    "publishing=None: regularization='for-publishing' needs a PublishingBudget that"
                    " sets what the report may spend."
                )
            return None
        if not isinstance(publishing, PublishingBudget):
            raise InvalidInput(f"publishing={publishing!r}: must be a PublishingBudget, or None.")
        if self.mechanism != "auto" and not MECHANISMS[self.mechanism].has_report:
            raise InvalidInput(
                "publishing: only objective perturbation has a data-dependent report; use"
                " mechanism='objective', or leave it out."
            )
        return publishing

    def _rng(self, purpose: str = "model") -> np.random.Generator | None:
        """Return None for the operating system's randomness, or a seeded generator that warns.

        Draws for another ``purpose`` than the model are independent of those for it.
        """
        seed = self.random_state
        if seed is None:
            return None
        warn(
            "random_state is set: anyone who knows the seed can remove the noise; leave it at None"
            " for a real release.",
            SeededReleaseWarning,
            stacklevel=4,
        )
        if isinstance(seed, np.random.Generator):
            return seed
        if isinstance(seed, np.random.RandomState):
            return np.random.default_rng(seed.randint(2**31, size=4))
        number = _checks.integer("random_state", seed, least=0)
        if purpose == "model":
            return np.random.default_rng(number)
        return np.random.default_rng(np.random.SeedSequence(number).spawn(1)[0])


@dataclass(eq=False, repr=False, kw_only=True)
class ClassifierTraining(LinearTraining):
    """The training of a classifier of two classes, or of more where :meth:`_takes_more` is true."""

    classes: Any = None

    def _takes_more(self) -> bool:
        """Return whether more than two classes can be fitted."""
        return False

    def _loss_of_table(self, classes: tuple[str, ...] | None) -> Loss:
        if classes is not None and len(classes) > 2 and not self._takes_more():
            raise InvalidInput(
                f"y holds {len(classes)} classes: exactly two are needed here; fit one class"
                " against the rest, or use the logistic loss with objective perturbation."
            )
        return self.loss_of(2 if classes is None else len(classes))

    @abstractmethod
    def loss_of(self, classes: int) -> Loss:
        """Return the loss of so many classes."""


@dataclass(eq=False, repr=False, kw_only=True)
class LogisticTraining(ClassifierTraining):
    """The training of a logistic or softmax regression."""

    margin: float | str = 0.0

    def loss_of(self, classes: int) -> Loss:
        """Return the loss of so many classes; of an automatic margin that without one.

        Parameters
        ----------
        classes : int
            The number of classes.

        Returns
        -------
        Loss
            The loss.

        Raises
        ------
        InvalidInput
            If a margin is given for more than two classes.
        """
        loss = Logistic(margin=_or_rule("margin", self.margin, 0.0))
        if classes <= 2:
            return loss
        if self.margin != 0:
            raise InvalidInput(
                f"margin={self.margin!r}: is for two classes, and y holds {classes}; leave it out."
            )
        return Softmax(classes=classes)

    @property
    def _has_one_loss(self) -> bool:
        return self.margin != "auto"

    def _settled_loss(self, loss: Loss, rows: int, dimension: int, epsilon: float) -> Loss:
        if self._has_one_loss:
            return loss
        ratio = self.mechanism_for(loss, rows, dimension, epsilon=epsilon).forecast.noise_ratio
        return Logistic(margin=default_margin(ratio))

    def _takes_more(self) -> bool:
        name = default_mechanism(Logistic()) if self.mechanism == "auto" else self.mechanism
        return isinstance(name, str) and name in MECHANISMS and MECHANISMS[name].is_multiclass


@dataclass(eq=False, repr=False, kw_only=True)
class HingeTraining(ClassifierTraining):
    """The training of a linear support vector classifier."""

    huber_width: float = 0.5

    def loss_of(self, classes: int) -> Loss:
        """Return the loss of two classes.

        Parameters
        ----------
        classes : int
            The number of classes, which is two.

        Returns
        -------
        Loss
            The loss.

        Raises
        ------
        InvalidInput
            If ``huber_width`` is not in (0, 1].
        """
        width = _checks.positive("huber_width", self.huber_width)
        if not width <= 1:
            raise InvalidInput(f"huber_width={width!r}: must be at most 1.")
        return HuberHinge(width=width)


@dataclass(eq=False, repr=False, kw_only=True)
class RidgeTraining(LinearTraining):
    """The training of a ridge regression."""

    label_range: Any = None
    huber_width: float | None = 0.5

    is_regression: ClassVar[bool] = True

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
        """Return the scale of labels: by the range that was given, or that of ``labels``.

        Parameters
        ----------
        labels : tuple[float, float]
            The least and the largest label.
        read : list[str]
            The list of what was read from the data, to which the range is added if it was not
            given.

        Returns
        -------
        LabelScale
            The map of labels to [−1, 1].

        Raises
        ------
        InvalidInput
            If the range is invalid.
        """
        if self.label_range is not None:
            return LabelScale.within(self.label_range)
        read.append("label_range (the smallest and the largest label)")
        return LabelScale.read(*labels)

    def _loss_of_table(self, classes: tuple[str, ...] | None) -> Loss:
        del classes
        return self.loss

    def _given_scale(self) -> LabelScale | None:
        return None if self.label_range is None else LabelScale.within(self.label_range)

    def _scale_of_table(self, facts: Facts, read: list[str]) -> LabelScale:
        return self.label_scale(facts.labels, read)


# By the name of their loss.
TRAININGS: dict[str, type[LogisticTraining | HingeTraining | RidgeTraining]] = {
    "logistic": LogisticTraining,
    "huber-hinge": HingeTraining,
    "squared": RidgeTraining,
}


def _or_rule(name: str, value: float | str, rule: float) -> float:
    """Return ``value``, or the value of the rule where it is "auto"."""
    if not isinstance(value, str):
        return value
    _checks.one_of(name, value, ("auto",))
    return rule
