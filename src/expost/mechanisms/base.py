"""The interface of a mechanism, and the registry of mechanisms.

A mechanism releases θ and computes the privacy loss of each row. Code outside of this package
depends on the capabilities of a mechanism (``closed_form is None``, ``is_multiclass``), and never
on its class or its name.

To add a mechanism
------------------
Write a class that has the methods of :class:`Mechanism`. ``Perturbation`` (:mod:`.perturbation`)
holds the constants and checks that most of them share, ``MinimiserPerturbation``
(:mod:`.minimiser`) everything about noise on a minimiser but its law. Register it with
:func:`register`, or name it under the entry points ``expost.mechanisms`` of another package:

    [project.entry-points."expost.mechanisms"]
    coordinate = "my_package:CoordinatePerturbation"

Its ``kind`` must be the name of the entry point. Estimators, model.json, ledgers, commands and
pages then accept it by that name; a line in tests/conformance/subjects.py puts it under every law.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from expost import _checks
from expost.errors import InvalidInput
from expost.forecast import Forecast
from expost.glm import Minimiser, Objective
from expost.losses import Loss
from expost.mechanisms.grid import Grid
from expost.mechanisms.row_losses import RowLosses
from expost.neighbouring.change import Change
from expost.noise import LossLaw, Noise
from expost.noise.transition import Transition
from expost.risk import Guarantee
from expost.rows import RowBlock
from expost.types import FloatArray, Neighbouring

if TYPE_CHECKING:
    from expost.mechanisms.bounds import ExposureBound
    from expost.mechanisms.publishing import NoisyTangent, PublishingBudget, TangentMechanism
    from expost.mechanisms.tangent import Tangent
    from expost.neighbouring.influence import Exact

__all__ = [
    "MECHANISMS",
    "TOLERANCE",
    "ClosedForm",
    "Losses",
    "Mechanism",
    "Sampler",
    "default_delta",
    "default_mechanism",
    "default_noise",
    "mechanism_name",
    "noise_title",
    "register",
]

# η: the certified gradient of every minimiser that is released.
TOLERANCE = 1e-12
# The same of a model that is simulated.
GRADIENT = 1e-10
# The probability of a noise below which the rows are taken for the wrong ones.
IMPLAUSIBLE = 1e-9
# The entry points of mechanisms in other packages.
GROUP = "expost.mechanisms"


class Losses(Protocol):
    """The losses of the rows of one released model, each of which leaves.

    It follows from passes over all rows, holds O((q·d)²) numbers and no row, and is pickled to
    where rows are read.
    """

    @property
    def mechanism(self) -> "Mechanism":
        """The mechanism of the model."""

    @property
    def tangent(self) -> "Tangent | None":
        """J at θ, from which a data-dependent report draws; None where there is no such report."""

    @property
    def exact(self) -> "Exact | None":
        """The rows that were refined to their leave-one-out minimiser; None for none."""

    def refined(self, objective: Objective, *, top: int) -> "Losses":
        """Return the losses with the ``top`` rows of the largest shifts refined.

        Only losses without noise have such rows: others are returned as they are.

        Parameters
        ----------
        objective : Objective
            J over the training rows.
        top : int
            The number of rows.

        Returns
        -------
        Losses
            The losses.
        """

    def __call__(self, block: RowBlock) -> RowLosses:
        """Return the losses of the rows of a block."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampler(ABC):
    """A mechanism on fixed rows at any ε, for simulation (an epsilon.SampledMechanism).

    Parameters
    ----------
    mechanism : Mechanism
        Its own ε is not used.
    """

    mechanism: "Mechanism"
    objective: Objective

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return self.objective.count

    @property
    def description(self) -> str:
        """The mechanism, in one line."""
        return self.mechanism.describe(epsilon=False)

    def sample(self, epsilon: float, size: int, rng: np.random.Generator) -> FloatArray:
        """Return ``size`` releases; the draws of every ε are multiples of one another."""
        return self.perturbed(epsilon, self.mechanism.unit_noise.sample(size, rng))

    @abstractmethod
    def perturbed(
        self, epsilon: float, unit_noise: FloatArray, tolerance: float = GRADIENT
    ) -> FloatArray:
        """Return the releases with these noises, in units of the resolution at ε.

        Parameters
        ----------
        tolerance : float, default=GRADIENT
            The largest gradient (averaged form) at a minimiser.
        """

    @abstractmethod
    def losses(
        self, epsilon: float, models: FloatArray, seed: np.random.SeedSequence
    ) -> FloatArray:
        """Return (m, n) the loss of every row in each model, exactly; ``seed`` is not needed."""


@runtime_checkable
class Mechanism(Protocol):
    """The public constants of one release, and what follows from them.

    The law that all share: with θ drawn by :meth:`release` from the rows of ``objective``, the
    losses of :meth:`losses` and :meth:`prepare` are log p(θ ∣ D) − log p(θ ∣ D'), their intervals
    hold the loss of the grid's cell, and ∣loss∣ and δ(ε) keep what :meth:`guarantee` and
    ``worst_case`` state, whatever rows lie in the unit ball.

    Attributes
    ----------
    kind : str
        The name of the mechanism.
    noises : Mapping[str, bool]
        The names of its noises, and whether each needs a δ.
    options : tuple[str, ...]
        The names of constants of its own, which are parameters of the estimators.
    is_multiclass : bool
        Whether it takes losses of more than one output.
    has_report : bool
        Whether a data-dependent report can be made of a model of two classes.
    """

    kind: ClassVar[str]
    noises: ClassVar[Mapping[str, bool]]
    options: ClassVar[tuple[str, ...]]
    is_multiclass: ClassVar[bool]
    has_report: ClassVar[bool]

    @property
    def epsilon(self) -> float:
        """ε, infinite for a release without noise."""

    @property
    def delta(self) -> float | None:
        """δ, or None under pure ε."""

    @property
    def noise(self) -> str:
        """The name of the noise."""

    @property
    def loss(self) -> Loss:
        """The loss of a row."""

    @property
    def regularization(self) -> float:
        """The requested Λ."""

    @property
    def rows(self) -> int:
        """The number n of rows."""

    @property
    def dimension(self) -> int:
        """The number q·d of coefficients."""

    @property
    def rows_per_person(self) -> int:
        """k: (ε, δ) holds for all rows of a person who has at most k."""

    @classmethod
    def automatic_regularization(cls, **constants: Any) -> float:
        """Return a Λ that follows from the other ``constants`` alone.

        Parameters
        ----------
        **constants : Any
            The other fields of the mechanism, by name.

        Returns
        -------
        float
            Λ > 0, in the averaged form.
        """

    def check_classes(self) -> None:
        """Refuse a loss of more than two classes if the mechanism does not take it."""

    @property
    def is_private(self) -> bool:
        """Whether there is any noise."""

    @property
    def total_regularization(self) -> float:
        """The Λ of the objective that is minimised."""

    @property
    def is_raised(self) -> bool:
        """Whether ε needed more regularization than was requested."""

    @property
    def derived(self) -> dict[str, float]:
        """What follows from the constants, and is written with them to model.json."""

    @property
    def law(self) -> Noise:
        """The noise b."""

    @property
    def unit_noise(self) -> Noise:
        """The noise at resolution 1."""

    @property
    def resolution(self) -> float:
        """The length over which the density of the noise is nearly constant; it scales with b."""

    @property
    def grid(self) -> Grid:
        """The public grid that a released θ lies on."""

    @property
    def worst_case(self) -> float:
        """The exposure of one row that is guaranteed; infinite where none is."""

    @property
    def worst_case_passed(self) -> float:
        """The probability with which the exposure of one row may pass ``worst_case``."""

    @property
    def closed_form(self) -> "ClosedForm | None":
        """The mechanism itself where a row's loss has a closed law in its distance, else None."""

    def loss_law(self, separation: FloatArray) -> LossLaw | None:
        """Return the law of the losses of rows at ``separation``, or None: it is sampled then.

        Parameters
        ----------
        separation : FloatArray
            (n,) distance in units of the noise's scale.

        Returns
        -------
        LossLaw | None
            The law, one entry per row; None where there is no closed form.
        """

    def release(self, objective: Objective, rng: np.random.Generator | None = None) -> FloatArray:
        """Draw the one θ that is released, from the operating system's randomness.

        ``rng`` is for simulation and tests: its seed reveals the noise.

        Parameters
        ----------
        objective : Objective
            J over the training rows.
        rng : np.random.Generator, optional
            For simulation and tests, since its seed reveals the noise; None: the operating system's
            randomness.

        Returns
        -------
        FloatArray
            (q·d,) θ on the grid.

        Raises
        ------
        InvalidInput
            If the rows are not as many as ``rows``, or do not fit the mechanism.
        ReleaseRefused
            If no θ can be released safely.
        """

    def losses(self, objective: Objective, theta: FloatArray, change: Change) -> RowLosses:
        """Return the losses of all rows in memory; refuse rows that cannot have made ``theta``.

        Parameters
        ----------
        objective : Objective
            J over the training rows.
        theta : FloatArray
            (q·d,) the released θ.
        change : Change
            The rows that leave or enter.

        Returns
        -------
        RowLosses
            One loss for each neighbouring data set.

        Raises
        ------
        WrongRows
            If the rows cannot have made ``theta``.
        """

    def prepare(self, objective: Objective, theta: FloatArray, *, expected: bool = False) -> Losses:
        """Return what the losses of any block follow from; refuse rows as :meth:`losses` does.

        Parameters
        ----------
        objective : Objective
            J over the training rows.
        theta : FloatArray
            (q·d,) the released θ.
        expected : bool, default=False
            Whether the expected exposures of rows are needed too, where they are sampled.

        Returns
        -------
        Losses
            A function of a block of rows; it can be sent to where they are.

        Raises
        ------
        WrongRows
            If the rows cannot have made ``theta``.
        """

    def guarantee(self, rows: int = 1) -> Guarantee:
        """Return the guarantee for two data sets, one of which lacks ``rows`` rows.

        Parameters
        ----------
        rows : int, default=1
            The number of rows by which the data sets differ.

        Returns
        -------
        Guarantee
            The guarantee, rounded towards more exposed.
        """

    def worst_case_of(self, rows: int) -> tuple[float, float]:
        """Return (b, p): the exposure of ``rows`` rows together passes b with probability ≤ p.

        Parameters
        ----------
        rows : int
            The number of rows that are removed together.

        Returns
        -------
        tuple[float, float]
            b in nats, and p.
        """

    @property
    def gradient_noise(self) -> "ClosedForm | None":
        """The law of losses at fixed gradients, of a mechanism that perturbs their sum."""

    def loss_quantile(self, quantile: float, *, two_sided: bool = False) -> float:
        """Bound the q-quantile, over releases, of the loss (exposure) of one row, from constants.

        The row is fixed before the noise is drawn, and removed.

        Parameters
        ----------
        quantile : float
            The share q of releases, in (0, 1).
        two_sided : bool, default=False
            Whether the quantile is that of the exposure, ∣loss∣.

        Returns
        -------
        float
            The bound in nats, rounded up; infinite where nothing is guaranteed.
        """

    def covers(self, relation: Neighbouring) -> bool:
        """Return whether the guarantee holds for this relation too.

        Parameters
        ----------
        relation : Neighbouring
            How the neighbouring data set differs.

        Returns
        -------
        bool
            True if it holds.
        """

    def delta_at(self, epsilon: float) -> float:
        """Return δ at another ε, of the same noise, relations and persons, rounded up.

        Parameters
        ----------
        epsilon : float
            The other ε, at least 0.

        Returns
        -------
        float
            δ, at most 1.
        """

    def bound(
        self,
        theta: FloatArray,
        failure: float,
        tangent: "TangentMechanism | None" = None,
        released: "NoisyTangent | None" = None,
        labels: int = 1,
    ) -> "ExposureBound":
        """Return the bound of a published report, which needs no row but the reader's own.

        Parameters
        ----------
        theta : FloatArray
            (q·d,) the released θ.
        failure : float
            The probability ρ with which the bound may fail.
        tangent : TangentMechanism, optional
            The mechanism of a data-dependent report; None: the report is data-independent.
        released : NoisyTangent, optional
            The noisy gradient and Hessian that ``tangent`` released.
        labels : int, default=1
            The bounds of so many labels of one row hold at once, except with probability ρ.

        Returns
        -------
        ExposureBound
            A function of any row and its label.
        """

    def check(self, objective: Objective, theta: FloatArray) -> "Tangent | None":
        """Refuse rows that cannot have made ``theta``; return J at θ where a report needs it.

        Parameters
        ----------
        objective : Objective
            J over the training rows.
        theta : FloatArray
            (q·d,) the released θ.

        Returns
        -------
        Tangent | None
            J at θ; None where no report needs it.

        Raises
        ------
        WrongRows
            If the rows cannot have made ``theta``.
        """

    def check_report(self) -> None:
        """Refuse if no data-dependent report can be made of this model.

        Raises
        ------
        ReleaseRefused
            If there is none.
        """

    def tangent_mechanism(
        self, budget: "PublishingBudget", theta: FloatArray
    ) -> "TangentMechanism":
        """Return the mechanism of a data-dependent report of this model, where it has one.

        Parameters
        ----------
        budget : PublishingBudget
            What the report may spend.
        theta : FloatArray
            (q·d,) the released θ.

        Returns
        -------
        TangentMechanism
            The mechanism that releases a noisy gradient and a noisy Hessian.

        Raises
        ------
        InvalidInput
            If the mechanism has no data-dependent report, or Λ is too small for it.
        InvalidInput
            If the mechanism, or a model of more than two classes, has no data-dependent report.
        """

    def sampler(self, objective: Objective, near: Minimiser | None = None) -> Sampler:
        """Return releases of these rows at any ε.

        Parameters
        ----------
        objective : Objective
            J over the training rows.
        near : Minimiser, optional
            A minimiser close to the releases at this ε, from which searches start.

        Returns
        -------
        Sampler
            A sampler of θ.
        """

    def gradient_variance(self, mean_square_curvature: float) -> float:
        """Return the variance of a coordinate of the noise in the sum of gradients at θ.

        Parameters
        ----------
        mean_square_curvature : float
            tr H²/d of the averaged objective.

        Returns
        -------
        float
            The variance.
        """

    @property
    def forecast(self) -> Forecast:
        """The expected quality of a model, from public constants alone."""

    def with_constants(self, **constants: Any) -> Self:
        """Return the same mechanism with other constants.

        Parameters
        ----------
        **constants : Any
            The fields to replace, by name.

        Returns
        -------
        Self
            A new mechanism with checked constants.

        Raises
        ------
        InvalidInput
            If a constant is invalid.
        """

    def to_fields(self) -> dict[str, Any]:
        """Return the constants as model.json holds them.

        Returns
        -------
        dict[str, Any]
            The fields by name.
        """

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], **constants: Any) -> Self:
        """Invert :meth:`to_fields`; ``constants`` are those that model.json holds elsewhere.

        Parameters
        ----------
        fields : Mapping[str, Any]
            The fields as model.json holds them.
        **constants : Any
            Fields that model.json holds elsewhere: loss, regularization, rows and dimension.

        Returns
        -------
        Self
            The checked mechanism.

        Raises
        ------
        InvalidInput
            If a field is missing or invalid.
        """

    @property
    def title(self) -> str:
        """The loss and the mechanism, in a few words."""

    def describe(self, *, epsilon: bool = True) -> str:
        """Return one line about the release, with its ε or for any.

        Parameters
        ----------
        epsilon : bool, default=True
            Whether the line names ε and δ.

        Returns
        -------
        str
            The description.
        """


class ClosedForm(Mechanism, Protocol):
    """A mechanism under which a row's loss has a law that depends on its distance alone.

    The ``separation`` of a row at ``distance`` is distance/resolution.
    """

    def __hash__(self) -> int:
        """Hash the mechanism by its values: tables of its law are cached by it."""

    @property
    def sensitivity(self) -> float:
        """The largest distance by which one row moves what the noise is added to."""

    def loss_law(self, separation: FloatArray) -> LossLaw:
        """Return the law of the losses of rows at ``separation``; it is free of ε.

        Parameters
        ----------
        separation : FloatArray
            (n,) distance in units of the noise's scale.

        Returns
        -------
        LossLaw
            The law, one entry per row.
        """

    def transition(self, tolerance: float) -> Transition:
        """Return the separations at which a row leaves its first regime and reaches its second.

        Parameters
        ----------
        tolerance : float
            How far off its plateau a row still counts as on it, relative.

        Returns
        -------
        Transition
            Both separations.
        """

    def epsilon_at(self, separation: float, distance: FloatArray) -> FloatArray:
        """Return the largest ε that leaves rows at ``distance`` at most this ``separation``.

        Parameters
        ----------
        separation : float
            The separation that no row may exceed.
        distance : FloatArray
            (n,) how far each row moves what the noise is added to.

        Returns
        -------
        FloatArray
            (n,) ε, rounded down.
        """

    def epsilon_from(self, separation: float, distance: float) -> float:
        """Return the least ε that brings a row at ``distance`` to this ``separation``.

        Parameters
        ----------
        separation : float
            The separation to reach.
        distance : float
            How far the row moves what the noise is added to.

        Returns
        -------
        float
            ε, rounded up.
        """


# -- the registry ----------------------------------------------------------------------------------

M = TypeVar("M", bound=type[Any])


class Registry(Mapping[str, type[Mechanism]]):
    """Mechanisms by their names: those of expost, and those that entry points name.

    Entry points are listed when a name is looked up that expost does not have, or when all names
    are listed, and loaded when they are looked up. They cannot replace a mechanism of expost.
    """

    def __init__(self) -> None:
        self._own: dict[str, type[Mechanism]] = {}
        self._loaded: dict[str, type[Mechanism]] = {}

    def __getitem__(self, name: str) -> type[Mechanism]:
        kind = self._own.get(name) or self._loaded.get(name)
        if kind is None:
            kind = self._loaded[name] = _load(self._points()[name])
        return kind

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in self._points() if name not in self._own)

    def __len__(self) -> int:
        return len(set(self))

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._points()

    def find(self, name: str) -> type[Mechanism]:
        """Return the class of this name; refuse a name that is not known."""
        if not isinstance(name, str) or name not in self._own:
            # Listing entry points takes time: only where they are needed.
            _checks.one_of("mechanism", name, tuple(self))
        return self[name]

    def create(self, name: str, **constants: Any) -> Mechanism:
        """Return the mechanism of this name with these constants."""
        kind: Any = self.find(name)
        mechanism: Mechanism = kind(**constants)
        return mechanism

    @property
    def own(self) -> tuple[type[Mechanism], ...]:
        """The mechanisms of expost's own."""
        return tuple(self._own.values())

    @property
    def multiclass(self) -> tuple[str, ...]:
        """The names of expost's own mechanisms that take more than two classes."""
        return tuple(name for name, kind in self._own.items() if kind.is_multiclass)

    def add(self, kind: type[Mechanism]) -> None:
        """Add a mechanism of expost's own."""
        self._own[kind.kind] = kind

    def _points(self) -> Mapping[str, EntryPoint]:
        return _installed(tuple(sys.path))


@lru_cache(maxsize=4)
def _installed(path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Return the mechanisms of other packages on this ``path``, by name; it is searched once."""
    return {point.name: point for point in entry_points(group=GROUP)}


def _load(point: EntryPoint) -> type[Mechanism]:
    """Return the class that an entry point names; refuse a broken one."""
    package = "another package" if point.dist is None else point.dist.name
    try:
        loaded = point.load()
    except Exception as error:  # noqa: BLE001 (the code of another package may raise anything)
        raise InvalidInput(
            f"mechanism={point.name!r}: {package}, which provides it, cannot be loaded"
            f" ({type(error).__name__}: {error}); repair or remove it."
        ) from None
    missing = [name for name in _REQUIRED if not hasattr(loaded, name)]
    if missing or loaded.kind != point.name:
        wrong = f"has no {', '.join(missing)}" if missing else f"calls itself {loaded.kind!r}"
        raise InvalidInput(
            f"mechanism={point.name!r}: {point.value} of {package} {wrong}; repair or remove it."
        )
    kind: type[Mechanism] = loaded
    return kind


# -- defaults, from public facts alone -------------------------------------------------------------

# Up to so many coefficients norm-Laplace noise is as small as Gaussian noise (ε = 1).
_FEW_COEFFICIENTS = 3


def default_mechanism(loss: Loss) -> str:
    """Return the default mechanism: objective, or output for a gradient that is not bounded."""
    return "objective" if loss.has_bounded_slope else "output"


def default_noise(kind: type["Mechanism"], dimension: int, delta: float | str | None) -> str:
    """Return the default noise: pure where ``delta`` is 0 or coefficients are few, else with δ."""
    pure = delta == 0 or (delta in (None, "auto") and dimension <= _FEW_COEFFICIENTS)
    wanted = [name for name, needs_delta in kind.noises.items() if needs_delta is not pure]
    return wanted[0] if wanted else next(iter(kind.noises))


def mechanism_name(kind: str, noise: str) -> str:
    """Return a mechanism and its noise in a few words."""
    return f"{kind} perturbation, {noise_title(noise)}"


def noise_title(noise: str) -> str:
    """Return a noise as readers know it: Gaussian noise."""
    return f"{noise.capitalize()} noise"


def default_delta(rows: int) -> float:
    """Return min(10⁻⁶, 1/(10n)), rounded down to a power of ten."""
    return float(f"1e-{max(6, 1 + len(str(rows - 1)))}")


# What a class must have; the constants are fields.
_REQUIRED = (
    *("kind", "noises", "options", "is_multiclass", "has_report", "from_fields"),
    *(name for name, value in vars(Mechanism).items() if callable(value) and name[0] != "_"),
)

MECHANISMS = Registry()


def register(kind: M) -> M:
    """Register a class of mechanisms under its ``kind``."""
    MECHANISMS.add(kind)
    return kind
