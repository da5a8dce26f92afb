"""The laws of a model before and after some rows leave or enter, and their certified ratio.

Conventions
-----------
P, Q     the laws of θ given the present rows D and given the rows D′ after the change.
ℓ(θ)     log P − log Q at θ. For rows that leave it is their privacy loss.
h        a bound on the error of the computed ℓ, from public constants alone.
r        the distance of a computed θ from the exact draw that it stands for.

Output perturbation: θ = A + b is rounded to the grid. Given the rounded θ, the point A + b has the
density P on the cell of θ, so that a point θ* of the cell drawn from P has the law P itself. The
ratio is that of the noise at θ* − A and at θ* − A′. r = 0.

Objective perturbation: the minimiser is exact to ∥∇J∥ ≤ tolerance, which often is coarser than the
grid. The computed θ lies within r of the exact minimiser for its b, and ℓ is taken at the computed
θ; its interval covers every point within r (:mod:`expost.mechanisms.tangent`).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from expost._numerics import ROUNDOFF
from expost.errors import ReleaseRefused
from expost.glm import Minimiser, Objective
from expost.mechanisms.base import TOLERANCE, Mechanism
from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.output import OutputPerturbation
from expost.mechanisms.person_losses import loss_of_rows
from expost.mechanisms.ratio_error import (
    UNLIKELY,
    has_ratio_error,
    largest_volume,
    noise_error,
    ratio_error,
)
from expost.mechanisms.tangent import Tangent
from expost.noise import Gaussian, draw
from expost.noise.coins import exponentials
from expost.rows import RowBlock
from expost.types import FloatArray

__all__ = ["LawPair", "ObjectivePair", "OutputPair", "Perturbed", "Ratio", "can_erase"]
__all__ += ["centre_error", "law_pair"]

# The mechanisms whose laws are known well enough to be coupled.
Perturbed = OutputPerturbation | ObjectivePerturbation


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """ℓ at one point, and a bound on its error.

    Attributes
    ----------
    loss : float
        The computed ℓ in nats.
    error : float
        A bound on its error.
    """

    loss: float
    error: float

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.loss - self.error

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.loss + self.error


class LawPair(Protocol):
    """P and Q of one change of rows.

    Attributes
    ----------
    error_bound : float
        h: a bound on the error of every ℓ, except with probability ``UNLIKELY``.
    distance : float
        r.
    centre_error : float
        A bound on the total variation by which the computed centres may change P and Q.
    """

    @property
    def error_bound(self) -> float:
        """h."""

    @property
    def distance(self) -> float:
        """r."""

    @property
    def centre_error(self) -> float:
        """The total variation between Q as it is drawn here and as another machine draws it."""

    def point_of(self, theta: FloatArray, rng: np.random.Generator | None = None) -> FloatArray:
        """Return a point that stands for the released ``theta``.

        Parameters
        ----------
        theta : FloatArray
            The released θ, on the grid and not on its clamp.
        rng : np.random.Generator, optional
            For simulation; None: the operating system's randomness.

        Returns
        -------
        FloatArray
            A point with the law P within the cell of θ, or within ``distance`` of it.
        """

    def ratio(self, point: FloatArray) -> Ratio:
        """Return ℓ at a point.

        Parameters
        ----------
        point : FloatArray
            (q·d,) the point.

        Returns
        -------
        Ratio
            ℓ with its error.
        """

    def draw(self, most: float, rng: np.random.Generator | None = None) -> FloatArray | None:
        """Return a draw from Q, unless its −ℓ is less than ``most`` for certain.

        Parameters
        ----------
        most : float
            The level that −ℓ must reach to be of use.
        rng : np.random.Generator, optional
            For simulation; None: the operating system's randomness.

        Returns
        -------
        FloatArray or None
            The point before it is rounded to the grid; None where it could not be of use.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputPair:
    """P and Q of output perturbation: one noise about two minimisers.

    Parameters
    ----------
    before, after : OutputPerturbation
        The mechanism with the present number of rows, and with that after the change.
    base, target : Minimiser
        A(D) and A(D′).
    changed : int
        The number of rows that leave or enter.
    """

    before: OutputPerturbation
    after: OutputPerturbation
    base: Minimiser
    target: Minimiser
    changed: int

    @classmethod
    def of(
        cls,
        before: OutputPerturbation,
        after: OutputPerturbation,
        present: Objective,
        changed: Objective,
    ) -> "OutputPair":
        """Return the pair of two data sets.

        Parameters
        ----------
        before, after : OutputPerturbation
            The mechanism with the numbers of rows of the two.
        present, changed : Objective
            J over D and over D′.

        Returns
        -------
        OutputPair
            The pair with both minimisers.
        """
        return cls(
            before=before,
            after=after,
            base=present.minimiser(TOLERANCE),
            target=changed.minimiser(TOLERANCE),
            changed=abs(present.count - changed.count),
        )

    @cached_property
    def shift(self) -> FloatArray:
        """A(D′) − A(D)."""
        return self.target.theta - self.base.theta

    @property
    def _base_error(self) -> float:
        """How far the centre of the release may be from the computed A(D), at most."""
        return (self.base.gradient_bound + TOLERANCE) / self.before.regularization

    @property
    def error_bound(self) -> float:
        """h, from public constants (docs/theory/erasure.md, section 5)."""
        return ratio_error(self.before, self.after)

    @property
    def distance(self) -> float:
        """0: the point of a cell has the law P."""
        return 0.0

    @property
    def centre_error(self) -> float:
        """The total variation of centres that are computed elsewhere, and of rounded sums."""
        return centre_error(self.before)

    def point_of(self, theta: FloatArray, rng: np.random.Generator | None = None) -> FloatArray:
        """Return a point of the cell of ``theta`` from P, by rejection from the uniform law."""
        grid, law = self.before.grid, self.before.law
        centre = theta - self.base.theta
        half = grid.diagonal(len(theta)) / 2
        # The largest density on the cell, at most: at the distance of its nearest point.
        nearest = np.zeros(len(theta))
        nearest[0] = max(float(np.linalg.norm(centre)) - half, 0.0)
        most = float(law.log_density(nearest))
        while True:
            share = np.exp(-exponentials(len(theta), rng)) - 0.5
            point: FloatArray = theta + grid.step * share
            level = most - float(law.log_density(centre + grid.step * share))
            if float(exponentials(1, rng)[0]) >= level:
                return point

    def ratio(self, point: FloatArray) -> Ratio:
        """Return ℓ at a point: that of the noise."""
        law, noise = self.before.law, point - self.base.theta
        norm, apart = float(np.linalg.norm(noise)), float(np.linalg.norm(self.shift))
        loss = law.loss(noise, self.shift)
        size = float(np.linalg.norm(point)) + float(np.linalg.norm(self.base.theta))
        base = self._base_error + 4 * ROUNDOFF * size
        error = noise_error(law, norm, apart, base + 4 * ROUNDOFF * size, base)
        return Ratio(loss=float(loss), error=error)

    def draw(self, most: float, rng: np.random.Generator | None = None) -> FloatArray | None:
        """Return A(D′) + b."""
        return self.target.theta + draw(self.after.law, rng)


@dataclass(frozen=True, kw_only=True, eq=False)
class ObjectivePair:
    """P and Q of objective perturbation.

    Parameters
    ----------
    before, after : ObjectivePerturbation
        The mechanism with the present number of rows, and with that after the change.
    present, changed : Objective
        J over D and over D′.
    rows : RowBlock
        The rows that leave or enter.
    """

    before: ObjectivePerturbation
    after: ObjectivePerturbation
    present: Objective
    changed: Objective
    rows: RowBlock

    def __post_init__(self) -> None:
        if not has_ratio_error(self.before):
            raise ReleaseRefused(
                f"fresh=False: the interval of the ratio of two models is not bounded by public"
                f" constants for the {self.before.loss.name} loss; redraw with fresh=True."
            )
        if not self.error_bound < math.inf:
            raise ReleaseRefused(
                "fresh=False: so many rows change the determinants by more than can be bounded;"
                " redraw with fresh=True."
            )

    @property
    def is_removal(self) -> bool:
        """Whether the rows leave."""
        return self.changed.count < self.present.count

    @property
    def _larger(self) -> tuple[ObjectivePerturbation, Objective]:
        """The mechanism and J of the data set that has the rows."""
        return (self.before, self.present) if self.is_removal else (self.after, self.changed)

    @cached_property
    def error_bound(self) -> float:
        """h, from public constants (docs/theory/erasure.md, section 5)."""
        return ratio_error(self.before, self.after)

    @property
    def distance(self) -> float:
        """How far a computed θ may be from the exact minimiser for its noise."""
        return max(self.before.reach_of_cell, self.after.reach_of_cell)

    @property
    def centre_error(self) -> float:
        """0: the minimisers are within ``distance`` of the exact ones."""
        return 0.0

    def point_of(self, theta: FloatArray, rng: np.random.Generator | None = None) -> FloatArray:
        """Return θ itself, which is within ``distance`` of the exact draw."""
        return theta

    def ratio(self, point: FloatArray) -> Ratio:
        """Return ℓ at a point, by one pass over the rows."""
        mechanism, objective = self._larger
        loss, error = loss_of_rows(Tangent.at(mechanism, objective, point), self.rows)
        return Ratio(loss=loss if self.is_removal else -loss, error=error)

    def draw(self, most: float, rng: np.random.Generator | None = None) -> FloatArray | None:
        """Return the minimiser over D′ for a new b, unless b shows that −ℓ stays below ``most``."""
        noise = draw(self.after.law, rng)
        if most > self._largest_gain(noise):
            return None
        return self.after.minimiser(self.changed, noise).theta

    def _largest_gain(self, noise: FloatArray) -> float:
        """Return a bound on −ℓ of the model that ``noise`` leads to.

        Rows that leave: the volume only lowers −ℓ, and with G = Σ∇ℓ over them, ∥G∥ ≤ LΣ∥x∥ and
        ∣b·G∣ ≤ Σ L∣b·x∣, the noise gives at most (∣b·G∣ + ∥G∥²/2)/σ² or β∥G∥. Rows that enter add
        their volume.
        """
        mechanism, _ = self._larger
        law, slope = mechanism.law, mechanism.slope_bound * (1 + 1e-9)
        size = slope * float(self.rows.norms.sum())
        outputs = mechanism.loss.outputs
        along = np.linalg.norm(self.rows.X @ noise.reshape(outputs, -1).T, axis=1)
        volume = 0.0 if self.is_removal else largest_volume(mechanism, len(self.rows))
        if isinstance(law, Gaussian):
            return float(slope * along.sum() + size**2 / 2) / law.scale**2 + volume
        return law.rate * size + volume


def can_erase(mechanism: Mechanism) -> bool:
    """Return whether rows can leave a model of this mechanism exactly.

    Parameters
    ----------
    mechanism : Mechanism
        The mechanism of a released model.

    Returns
    -------
    bool
        True for output and objective perturbation as they are, and False for others.
    """
    return type(mechanism) in (OutputPerturbation, ObjectivePerturbation)


def law_pair(
    before: Perturbed, after: Perturbed, present: Objective, changed: Objective, rows: RowBlock
) -> LawPair:
    """Return P and Q of one change of rows.

    Parameters
    ----------
    before, after : OutputPerturbation or ObjectivePerturbation
        The mechanism with the numbers of rows before and after.
    present, changed : Objective
        J over D and over D′.
    rows : RowBlock
        The rows that leave or enter.

    Returns
    -------
    LawPair
        The pair.

    Raises
    ------
    ReleaseRefused
        If the error of the ratio is not bounded by public constants.
    """
    if isinstance(before, OutputPerturbation):
        assert isinstance(after, OutputPerturbation)
        return OutputPair.of(before, after, present, changed)
    assert isinstance(after, ObjectivePerturbation)
    return ObjectivePair(before=before, after=after, present=present, changed=changed, rows=rows)


def centre_error(mechanism: Perturbed) -> float:
    """Bound the total variation by which computed centres and rounded sums may change P and Q.

    Output perturbation: a centre that is computed elsewhere may be 2η/Λ away, which changes Q by at
    most η/Λ in units of the noise, and P within a cell by twice that. A + b is rounded to float64
    before it is rounded to the grid; only where that hits the middle between two points of the grid
    the cell may be another one, for each coordinate with probability ulp(θⱼ)/step at most. It is
    counted three times too. Objective perturbation has none: that is part of r.

    Parameters
    ----------
    mechanism : OutputPerturbation or ObjectivePerturbation
        The mechanism of the release.

    Returns
    -------
    float
        The bound.
    """
    if isinstance(mechanism, ObjectivePerturbation):
        return 0.0
    penalty = mechanism.regularization
    longest = mechanism.law.norm_exceeded_with(UNLIKELY) + mechanism.loss.solution_bound(penalty)
    # Σ ulp(θⱼ) ≤ 2u·√d·∥θ∥.
    halfway = 2 * ROUNDOFF * math.sqrt(mechanism.dimension) * longest / mechanism.grid.step
    return 3 * (TOLERANCE / penalty / mechanism.resolution + halfway + UNLIKELY)
