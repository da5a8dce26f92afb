"""The constants and checks that all perturbations share."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from expost import _checks
from expost._numerics import bracket_root
from expost.errors import InvalidInput, ReleaseRefused, WrongRows
from expost.files.sealed import from_fields, number, plain, to_fields
from expost.forecast import Forecast
from expost.glm import Objective
from expost.losses import Loss
from expost.mechanisms.base import IMPLAUSIBLE, MECHANISMS, ClosedForm, noise_title
from expost.noise import Gaussian, LossLaw, Noise, NormLaplace
from expost.numbers import for_persons, relation_words, upper_text
from expost.risk import Guarantee
from expost.types import FloatArray, Neighbouring

if TYPE_CHECKING:
    from expost.mechanisms.publishing import PublishingBudget, TangentMechanism

__all__ = ["Calibrated", "Perturbation", "share_of"]

# A quantile of losses is computed to 1e-9 of itself; past the other it is no bound.
_HALVINGS = 32
_LARGEST_LOSS = 1e12


# How far an ε that was computed on another machine may be off, relative to itself.
_ROUNDED = 1e-9


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """The constants of a first release that the models after an erasure keep.

    Attributes
    ----------
    rows : int
        n₀, from which the noise, Λ and the grid of the first release follow.
    epsilon : float
        Its ε.
    """

    rows: int
    epsilon: float

    def __post_init__(self) -> None:
        _checks.integer("calibrated.rows", self.rows, least=2)
        _checks.positive("calibrated.epsilon", self.epsilon, finite=False)


@dataclass(frozen=True, kw_only=True)
class Perturbation(ABC):
    """The checked constants of one release by a perturbation.

    Attributes
    ----------
    epsilon : float
        The guaranteed ε > 0.
    delta : float, optional
        The guaranteed δ; None for pure ε.
    noise : str, default="laplace"
        The name of the noise's law, a key of ``noises``.
    loss : Loss
        The loss of one row, with its bounds.
    regularization : float
        The requested Λ.
    rows : int
        The number n of training rows, which is public.
    dimension : int
        The number of coefficients, the intercept included.
    rows_per_person : int
        k: (ε, δ) holds for all rows of a person who has at most k.
    calibrated : Calibrated, optional
        After rows were erased or inserted: what the noise, Λ and the grid were calibrated to. They
        stay as they are, and ``rows`` and ``epsilon`` are those of the present model.
    """

    epsilon: float
    delta: float | None = None
    noise: str = "laplace"
    loss: Loss
    regularization: float
    rows: int
    dimension: int
    rows_per_person: int = 1
    calibrated: Calibrated | None = None

    kind: ClassVar[str]
    noises: ClassVar[Mapping[str, bool]] = {"laplace": False, "gaussian": True}
    options: ClassVar[tuple[str, ...]] = ()
    is_multiclass: ClassVar[bool] = False
    has_report: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _checks.one_of("noise", self.noise, tuple(self.noises))
        # Kept as plain numbers: they are written to model.json.
        known = {
            "epsilon": _checks.positive("epsilon", self.epsilon, finite=False),
            "regularization": _checks.regularization(self.regularization),
            "rows": _checks.integer("rows", self.rows, least=2),
            "dimension": _checks.integer("dimension", self.dimension, least=1),
            "rows_per_person": _checks.rows_per_person(self.rows_per_person),
        }
        if self.delta is not None:
            known["delta"] = _checks.probability("delta", self.delta)
        if not self.epsilon >= 1e-50:
            raise InvalidInput(f"epsilon={self.epsilon!r}: must be at least 1e-50.")
        for name, value in known.items():
            object.__setattr__(self, name, value)
        self._check_delta()
        if self.calibrated is not None:
            self._check_calibrated()

    def _check_calibrated(self) -> None:
        """Refuse an ε that does not follow from the first release and the number of rows."""
        if not isinstance(self.calibrated, Calibrated):
            raise InvalidInput("calibrated: must hold the rows and epsilon of the first release.")
        epsilon = self.first.epsilon_with(self.rows)
        if not abs(self.epsilon - epsilon) <= _ROUNDED * epsilon:
            raise InvalidInput(
                f"epsilon={self.epsilon!r}: the first release and {self.rows} rows give"
                f" {epsilon!r}; the file was edited."
            )

    @cached_property
    def first(self) -> Self:
        """The mechanism of the first release, from which the public constants follow."""
        if self.calibrated is None:
            return self
        return replace(
            self, rows=self.calibrated.rows, epsilon=self.calibrated.epsilon, calibrated=None
        )

    def epsilon_with(self, rows: int) -> float:
        """Return the ε of a model of ``rows`` rows with the noise of this one: the same.

        Parameters
        ----------
        rows : int
            The number of rows after some were erased or inserted.

        Returns
        -------
        float
            ε, rounded up.
        """
        return self.epsilon

    def with_rows(self, rows: int) -> Self:
        """Return the mechanism of a model of ``rows`` rows; noise, Λ and grid stay as they are.

        Parameters
        ----------
        rows : int
            The number of rows after some were erased or inserted.

        Returns
        -------
        Self
            The mechanism, whose ε is that of the present number of rows.
        """
        first = self.first
        if rows == first.rows:
            return first
        calibrated = Calibrated(rows=first.rows, epsilon=first.epsilon)
        epsilon = first.epsilon_with(rows)
        return replace(first, rows=rows, epsilon=epsilon, calibrated=calibrated)

    def _check_delta(self) -> None:
        """Refuse a δ that the noise does not take, or its absence."""
        needs = self.noises[self.noise]
        other = next((name for name, need in self.noises.items() if need is not needs), None)
        instead = "" if other is None else f", or take noise={other!r}"
        if needs and self.delta is None:
            raise InvalidInput(
                f"delta=None: {self.noise.capitalize()} noise needs a delta between 0 and 1; give"
                f" one well below 1/n{instead}."
            )
        if not needs and self.delta is not None:
            raise InvalidInput(
                f"delta={self.delta!r}: {self.noise.capitalize()} noise guarantees pure epsilon and"
                f" takes none; leave it out{instead}."
            )

    def check_classes(self) -> None:
        """Refuse a loss of more than two classes if the mechanism does not take it.

        Not where the constants are checked: an automatic Λ is computed for any loss.

        Raises
        ------
        InvalidInput
            If the loss has more than one output, and the mechanism does not take it.
        """
        if self.loss.outputs > 1 and not self.is_multiclass:
            able = " or ".join(MECHANISMS.multiclass)
            raise InvalidInput(f"mechanism: only {able} perturbation takes more than two classes.")

    @property
    def is_private(self) -> bool:
        """Whether there is any noise."""
        return self.epsilon < math.inf

    @property
    def total_regularization(self) -> float:
        """The Λ of the objective that is minimised: the requested one."""
        return self.regularization

    @property
    def is_raised(self) -> bool:
        """Whether ε needed more regularization than was requested."""
        return False

    @property
    def worst_case(self) -> float:
        """The exposure of one row that is guaranteed; see :meth:`worst_case_of`."""
        return self.worst_case_of(1)[0]

    @property
    def worst_case_passed(self) -> float:
        """The probability with which the exposure of one row may pass ``worst_case``."""
        return self.worst_case_of(1)[1]

    @property
    def closed_form(self) -> ClosedForm | None:
        """None: the losses are sampled."""
        return None

    @property
    def gradient_noise(self) -> ClosedForm | None:
        """None: the sum of gradients is not perturbed."""
        return None

    def loss_law(self, separation: FloatArray) -> LossLaw | None:
        """Return None: the law of a loss is not known in closed form."""
        return None

    def covers(self, relation: Neighbouring) -> bool:
        """Return True: the guarantee holds for every relation."""
        return True

    def delta_at(self, epsilon: float) -> float:
        """Return δ at another ε, of the same noise, relations and persons, rounded up."""
        return self.guarantee(self.rows_per_person).delta(epsilon)

    def check_report(self) -> None:
        """Refuse: there is no data-dependent report."""
        raise ReleaseRefused(
            f"kind='data-dependent': the model was released by {self.kind} perturbation, which has"
            " only a data-independent report; use that, or fit with mechanism='objective'."
        )

    def tangent_mechanism(
        self, budget: "PublishingBudget", theta: FloatArray
    ) -> "TangentMechanism":
        """Refuse: there is no data-dependent report."""
        raise InvalidInput("budget: only models of two classes by objective perturbation take one.")

    @property
    @abstractmethod
    def law(self) -> Noise:
        """The noise b."""

    @property
    def resolution(self) -> float:
        """The length over which the density of b is nearly constant: 1/β or σ."""
        return self.law.resolution

    @property
    def unit_noise(self) -> Noise:
        """The noise at resolution 1: that of every ε is ``resolution`` times it."""
        if self.noise == "laplace":
            return NormLaplace(rate=1.0, dimension=self.dimension)
        return Gaussian(scale=1.0, dimension=self.dimension)

    @property
    @abstractmethod
    def derived(self) -> dict[str, float]:
        """What follows from the constants, and is written with them."""

    @abstractmethod
    def guarantee(self, rows: int = 1) -> Guarantee:
        """Return the guarantee for two data sets, one of which lacks ``rows`` rows."""

    @abstractmethod
    def worst_case_of(self, rows: int) -> tuple[float, float]:
        """Return (b, p): the exposure of ``rows`` rows together passes b with probability ≤ p."""

    def worst_case_either(self, rows: int) -> tuple[float, float]:
        """Return (b, p) of :meth:`worst_case_of`, θ drawn with the rows or without them.

        Parameters
        ----------
        rows : int
            The number of rows that one data set lacks.

        Returns
        -------
        tuple[float, float]
            b, and the probability with which it is passed.
        """
        return self.worst_case_of(rows)

    def advantage_of(self, rows: int) -> float:
        """Bound the total variation between the laws of θ where ``rows`` rows leave or enter.

        Parameters
        ----------
        rows : int
            The number of rows that one data set lacks.

        Returns
        -------
        float
            The bound, rounded up.
        """
        return self.guarantee(rows).advantage

    def loss_passed(self, bound: float, *, two_sided: bool = False) -> float:
        """Bound the probability with which the loss (exposure) of a fixed row passes ``bound``.

        Parameters
        ----------
        bound : float
            The loss in nats, at least 0.
        two_sided : bool, default=False
            Whether ∣loss∣ is compared with ``bound``.

        Returns
        -------
        float
            The probability over releases, rounded up.
        """
        worst, passed = self.worst_case_of(1)
        return passed if bound >= worst else 1.0

    def loss_quantile(self, quantile: float, *, two_sided: bool = False) -> float:
        """Bound the q-quantile, over releases, of the loss of any one row that is removed.

        The row is fixed before the noise is drawn. It follows from public constants alone, and is
        rounded up. ``two_sided``: the same of the exposure, ∣loss∣. Infinite where nothing is
        guaranteed.
        """
        left = 1 - quantile

        def kept(bound: FloatArray) -> FloatArray:
            each = bound.ravel().tolist()
            passed = [self.loss_passed(value, two_sided=two_sided) for value in each]
            return left - np.array(passed).reshape(bound.shape)

        if kept(np.array(0.0)) >= 0:
            return 0.0
        top = 1e-6
        while not kept(np.array(top)) >= 0:
            top *= 4
            if not top < _LARGEST_LOSS:
                return math.inf
        _, above = bracket_root(kept, top / 4 if top > 1e-6 else 0.0, top, halvings=_HALVINGS)
        return float(above)

    def check_count(self, objective: Objective) -> None:
        """Refuse rows of another number than the model was made from.

        Parameters
        ----------
        objective : Objective
            J over the training rows.

        Raises
        ------
        WrongRows
            If the number of rows is another.
        InvalidInput
            If the loss has more classes than the mechanism takes.
        """
        self.check_classes()
        if objective.count != self.rows:
            raise WrongRows(
                f"the table has {objective.count} rows: the model was made from {self.rows}; pass"
                " its training rows."
            )

    def check_noise(self, norm: float, slack: float, *, without: float) -> None:
        """Refuse rows that cannot have made the model: a noise outside its own law at 1e-9.

        Parameters
        ----------
        norm : float
            The norm of the noise that they imply, which is known to ``slack``.
        slack : float
            A bound on the error of ``norm``.
        without : float
            What it may be where there is none.

        Raises
        ------
        WrongRows
            If the noise has a norm that the mechanism does not draw.
        """
        if self.is_private:
            below, _ = self.law.norm_tails(norm + slack)
            _, above = self.law.norm_tails(max(norm - slack, 0.0))
            plausible = float(above) >= IMPLAUSIBLE / 2 and float(below) >= IMPLAUSIBLE / 2
        else:
            plausible = norm <= without
        if not plausible:
            raise WrongRows(
                "X, y: these rows cannot have made this model (its noise would have a norm of"
                f" {norm:.3g}, outside its law at {IMPLAUSIBLE:g}); pass the training rows, in"
                " their order and with their encoding."
            )

    @abstractmethod
    def gradient_variance(self, mean_square_curvature: float) -> float:
        """Return the variance of a coordinate of the noise in the sum of gradients at θ."""

    @property
    def forecast(self) -> Forecast:
        """r = ν/(n·u·√q) and its meaning (:mod:`expost.forecast`); r = 0 without noise."""
        loss, ratio = self.loss, 0.0
        if self.is_private:
            rank, curvature = loss.determinant
            curved = rank * curvature / self.dimension + self.total_regularization
            noise = math.sqrt(self.dimension / loss.outputs * self.gradient_variance(curved**2))
            bound = loss.label_bound
            # Of squared loss, whose slope is not bounded, that of the labels.
            unit = loss.lipschitz(self.total_regularization)
            if bound is not None and not loss.has_bounded_slope:
                unit = bound
            ratio = noise / (self.rows * unit)
        return Forecast(noise_ratio=ratio, rows=self.rows, is_classification=loss.is_classification)

    def with_constants(self, **constants: Any) -> Self:
        """Return the same mechanism with other constants; the noise is then calibrated to them."""
        return replace(self, **{"calibrated": None, **constants})

    # -- JSON and words --------------------------------------------------------------------------

    def to_fields(self) -> dict[str, Any]:
        """Return the constants as model.json holds them; a ``rows_per_person`` of 1 is left out."""
        persons = {} if self.rows_per_person == 1 else {"rows_per_person": self.rows_per_person}
        first = {} if self.calibrated is None else {"calibrated": to_fields(self.calibrated)}
        return {
            "kind": self.kind,
            "noise": self.noise,
            "epsilon": plain(self.epsilon),
            "delta": self.delta,
            **{name: getattr(self, name) for name in self.options},
            **persons,
            **first,
            **self.derived,
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], **constants: Any) -> Self:
        """Return the mechanism with these fields of model.json; ``derived`` ones are not read."""
        first = fields.get("calibrated")
        return cls(
            epsilon=number(fields["epsilon"], "mechanism.epsilon", infinite=True),
            delta=fields["delta"],
            noise=fields["noise"],
            rows_per_person=fields.get("rows_per_person", 1),
            calibrated=None if first is None else from_fields(Calibrated, first),
            **{name: fields[name] for name in cls.options},
            **constants,
        )

    @property
    def title(self) -> str:
        """The loss and the mechanism, in a few words."""
        margin = getattr(self.loss, "margin", 0.0)
        detail = f" of margin {margin:.3g}" if margin else ""
        return f"{self.loss.name}{detail} by {self.kind} perturbation"

    def describe(self, *, epsilon: bool = True) -> str:
        """Return one line about the release, with its ε or for any."""
        noise = noise_title(self.noise) if self.is_private else "no noise"
        spent = f", epsilon={upper_text(self.epsilon)}" if epsilon else ""
        delta = "" if self.delta is None else f", delta={upper_text(self.delta)}"
        penalty = self.total_regularization if epsilon else self.regularization
        # Items are separated by commas, and the relation goes with the last of ε and δ.
        covered = ""
        if (epsilon or self.delta is not None) and self.worst_case < math.inf:
            replaced = self.covers(Neighbouring.REPLACE)
            covered = f" {relation_words(replaced, self.rows_per_person)}"
        return (
            f"{self.title}, {noise}{spent}{delta}{for_persons(self.rows_per_person)}{covered},"
            f" regularization={penalty:.4g}, n={self.rows}, d={self.dimension}"
        )


def share_of(epsilon: float, rows: int, rows_per_person: int) -> float:
    """Return ε·rows/k, rounded up."""
    if rows == rows_per_person or not epsilon < math.inf:
        return epsilon
    exact = Fraction(epsilon) * rows / rows_per_person
    share = rows * epsilon / rows_per_person
    return share if Fraction(share) >= exact else math.nextafter(share, math.inf)
