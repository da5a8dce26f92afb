"""Objective perturbation: θ = argmin Σℓᵢ(θ) + (λ/2)∥θ∥² + b·θ.

Chaudhuri et al. 2011, Algorithm 2; Kifer et al. 2012; Redberg & Wang 2021, Algorithm 1. The losses
of the rows are in :mod:`expost.mechanisms.tangent`.

Conventions
-----------
J(θ; D)  Σᵢ ℓᵢ(θ) + (λ/2)∥θ∥², the *sum* over rows; λ = n(Λ + Δ) with Λ the ``regularization`` of
         the averaged form and Δ ≥ 0 what ε asks for on top. Removing a row keeps λ and b's law.
c, L     sup f″ and sup∣f′∣; rows lie in the unit ball.

Formal guarantees
-----------------
gaussian  Let Z ~ N(0, 1) be b's component along x in units of σ, and A = L/σ. With a = ∣f′∣∥x∥/σ,
          at most A, the loss of a removal is at most log(1 + c/λ) + a²/2 ± aZ: the determinant's
          part 1/(1 − f″μ) is 1 + f″m with m the row's leverage without itself, at most 1/λ. f′ has
          one sign for a given label, so the sign of Z is fixed; and a²/2 + aZ, convex in a, is
          largest at an end of [0, A]:

              loss ≤ c₁ + max(0, A²/2 + AZ),     c₁ = log(1 + c/λ).

          A²/2 + AZ is the loss of a Gaussian mechanism of sensitivity L, and (1 − e^(ε − loss))₊
          grows with the loss, so δ(ε) ≤ δ_Gauss(ε − c₁, L/σ). Adding a row gives the same without
          c₁. (Redberg, Koskela & Wang 2023 have −log(1 − c/λ), and twice that δ.)
laplace   b of density ∝ exp(−β∥b∥), β = ε′/(2L), ε′ = ε − ln(1 + c/λ): pure ε for rows that are
          removed, added or replaced. The determinants of an exchange differ by a factor of
          (1 + f″m)/(1 + f″′m′), both leverages without either row: between 1/(1 + c/λ) and 1 + c/λ.
          Chaudhuri et al. count that factor twice.
logistic  f″ = p(1 − p) where ∣f′∣ = p, so that both are never at their bounds together. That makes
          the noise smaller under either law: :mod:`expost.mechanisms.coupled`.
softmax   K classes: with r = K − 1 a removal changes log det H by at most r·log(1 + c/λ), c = 1/K,
          r·c = sup tr ∇²ℓ = 1 − 1/K (:mod:`expost.losses`), and L = √2. Gaussian: ∇ℓ = u ⊗ x with
          u in the convex hull of 0 and the r vectors eₖ − e_y, and of b it meets Z ~ N(0, I_K),
          σ⁻¹b's component along x; a²∥u∥²/2 + a·u·Z, convex in au, is largest at a vertex:

              loss ≤ c₁ + max(0, maxₖ [A² + A(Zₖ − Z_y)]),     A = 1/σ,

          r losses of a Gaussian mechanism of sensitivity √2, so δ(ε) ≤ r·δ_Gauss(ε − c₁, √2/σ);
          adding a row turns the sign of Z and has no c₁. Laplace: two rows' ∇ℓ differ by at most
          2√2, which is reached for d > 1. Slope and curvature are coupled here too, which spends
          less than c₁: :mod:`expost.mechanisms.coupled_softmax`.

persons   m rows that leave or enter at once; (ε, δ) is calibrated to k = ``rows_per_person``.
          Laplace: m changes one after the other lose at most m times what one row does, because
          the proof asks for λ, L and c, and not for how many rows there are. So k rows are ε where
          one row is ε/k, with ε/k > r·log(1 + c/λ). That spends k·r·log(1 + c/λ) on determinants
          and k·2Lβ on the noise; rows at right angles reach the first, equal ones the second.
          Gaussian: loss ≤ k·c₁ + F, whatever the angles between the rows, and F has the
          δ_Gauss(ε, kA) of one row of k times the slope: δ(ε) ≤ r·δ_Gauss(ε − k·c₁, kA). The proof,
          and the chain for the logistic loss, are in :mod:`expost.mechanisms.person_noise`.

``calibration="tight"`` raises λ as soon as the determinant's part of ε passes ε/2. "published" is
Kifer et al. (λ ≥ 2rc/ε, σ² = L²(8 ln(2r/δ) + 4ε)/ε², errata 4 and 5; r = 1 for two classes) and
Chaudhuri et al. as diffprivlib has it (ε′ = ε − 2 ln(1 + c/λ); λ is raised only where ε′ ≤ 0, and
then ε′ = ε/2), for persons with one row. Gaussian noise is calibrated for rows that are removed or
added, not exchanged.

Squared loss has an unbounded gradient: the losses are right, and no ε is promised.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from expost import _checks
from expost._numerics import ROUNDOFF
from expost.errors import InvalidInput
from expost.glm import Minimiser, Objective
from expost.losses import Logistic, Loss, Softmax, Squared
from expost.mechanisms.coupled import (
    logistic_delta,
    logistic_passed,
    logistic_rate,
    logistic_scale,
)
from expost.mechanisms.coupled_softmax import softmax_rate, softmax_scale, softmax_spent
from expost.mechanisms.grid import Grid
from expost.mechanisms.output import NOISES, TOLERANCE, share_of
from expost.mechanisms.person_noise import person_delta, person_scale
from expost.noise import Gaussian, NormLaplace
from expost.risk import EpsilonDelta
from expost.types import FloatArray, Neighbouring

__all__ = ["CALIBRATIONS", "ObjectivePerturbation"]

CALIBRATIONS = ("tight", "published")
_CLAMPED = 1e-12


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbation:
    """The public constants of one release by objective perturbation.

    ``regularization`` is the Λ that was asked for, ``total_regularization`` what it became.
    ``rows_per_person`` is k: (ε, δ) holds for all rows of a person who has at most k.
    """

    epsilon: float
    delta: float | None = None
    noise: str = "gaussian"
    calibration: str = "tight"
    loss: Loss
    regularization: float
    rows: int
    dimension: int
    rows_per_person: int = 1

    kind = "objective"

    def __post_init__(self) -> None:
        _checks.one_of("noise", self.noise, NOISES)
        _checks.one_of("calibration", self.calibration, CALIBRATIONS)
        plain = {
            "epsilon": _checks.positive("epsilon", self.epsilon, finite=False),
            "regularization": _checks.regularization(self.regularization),
            "rows": _checks.whole("rows", self.rows, least=2),
            "dimension": _checks.whole("dimension", self.dimension, least=1),
            "rows_per_person": _checks.rows_per_person(self.rows_per_person),
        }
        if self.delta is not None:
            plain["delta"] = _checks.probability("delta", self.delta)
        if not self.epsilon >= 1e-50:
            raise InvalidInput(f"epsilon={self.epsilon!r}: must be at least 1e-50.")
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        if self.noise == "gaussian" and self.delta is None:
            raise InvalidInput(
                "delta=None: Gaussian noise needs a delta between 0 and 1; give one well below"
                " 1/n, or take noise='laplace'."
            )
        if self.noise == "laplace" and self.delta is not None:
            raise InvalidInput(
                f"delta={self.delta!r}: norm-Laplace noise promises pure epsilon and takes none;"
                " leave it out, or take noise='gaussian'."
            )
        if self.calibration == "published" and self.rows_per_person > 1:
            raise InvalidInput(
                f"rows_per_person={self.rows_per_person}: calibration='published' is for persons"
                " with one row; take calibration='tight'."
            )

    @property
    def is_private(self) -> bool:
        """Whether there is any noise."""
        return self.epsilon < math.inf

    @property
    def _curved(self) -> tuple[int, float]:
        """(r, c) with sup log det(I + ∇²ℓ/λ) = r·log(1 + c/λ) and sup tr ∇²ℓ = r·c."""
        if isinstance(self.loss, Softmax):
            return self.loss.classes - 1, 1 / self.loss.classes
        return 1, self.loss.curvature_bound

    @cached_property
    def _budget(self) -> tuple[float, float]:
        """(λ, what of ε/k is left for the noise)."""
        asked = self.rows * self.regularization
        if not self.is_private:
            return asked, math.inf
        rank, curvature = self._curved
        epsilon = self.epsilon / self.rows_per_person
        if self.calibration == "published" and self.noise == "gaussian":
            return max(asked, 2 * rank * curvature / epsilon), epsilon
        # A change of one row changes the determinant by a factor of at most 1 + c/λ (r of them); as
        # published, an exchange does by its square.
        factors = 2 * rank if self.calibration == "published" else rank
        left = epsilon - factors * math.log1p(curvature / asked)
        least = 0.0 if self.calibration == "published" else epsilon / 2
        if left > least or (left == least and left > 0):
            return asked, left
        return curvature / math.expm1(epsilon / (2 * factors)), epsilon / 2

    @property
    def penalty_sum(self) -> float:
        """λ = n(Λ + Δ), the coefficient of ½∥θ∥² in the summed objective."""
        return self._budget[0]

    @property
    def total_regularization(self) -> float:
        """Λ + Δ of the averaged form."""
        return self.penalty_sum / self.rows

    @property
    def derived(self) -> dict[str, float]:
        """What follows from the constants, and is written beside them."""
        scale = self.resolution if self.is_private else 0.0
        return {"penalty_sum": self.penalty_sum, "scale": scale}

    @property
    def is_raised(self) -> bool:
        """Whether ε needed more regularization than was asked for."""
        return self.penalty_sum > self.rows * self.regularization

    @property
    def slope_bound(self) -> float:
        """L; of the squared loss only a scale, for its gradient is not bounded."""
        return self.loss.lipschitz(self.total_regularization)

    @cached_property
    def law(self) -> NormLaplace | Gaussian:
        """The law of b."""
        if not self.is_private:
            raise InvalidInput("epsilon=inf: a release without noise has no noise law.")
        left, bound, rank = self._budget[1], self.slope_bound, self._curved[0]
        k, penalty = self.rows_per_person, self.penalty_sum
        coupled = self.calibration == "tight" and isinstance(self.loss, Logistic)
        if self.noise == "laplace":
            rate = left / (2 * bound)
            if coupled:
                rate = logistic_rate(self.epsilon / k, penalty)
            elif self.calibration == "tight" and isinstance(self.loss, Softmax):
                rate = softmax_rate(self.epsilon / k, penalty, self.loss.classes)
            return NormLaplace(rate=rate, dimension=self.dimension)
        assert self.delta is not None
        if coupled:
            scale = logistic_scale(self.epsilon, self.delta, penalty, k)
        elif self.calibration == "published":
            scale = bound * math.sqrt(8 * math.log(2 * rank / self.delta) + 4 * left) / left
        elif isinstance(self.loss, Softmax):
            scale = softmax_scale(self.epsilon, self.delta, penalty, self.loss.classes, k)
        else:
            scale = person_scale(k * left, self.delta, bound, k)
        return Gaussian(scale=scale, dimension=self.dimension)

    @property
    def unit_noise(self) -> NormLaplace | Gaussian:
        """b at β = 1 or σ = 1: that of every ε is ``resolution`` times it."""
        if self.noise == "laplace":
            return NormLaplace(rate=1.0, dimension=self.dimension)
        return Gaussian(scale=1.0, dimension=self.dimension)

    @property
    def resolution(self) -> float:
        """1/β or σ of b."""
        law = self.law
        return 1 / law.rate if isinstance(law, NormLaplace) else law.scale

    @property
    def steepest(self) -> float:
        """A bound on every eigenvalue of H, whatever the rows: λ + n·c."""
        return self.penalty_sum + self.rows * self.loss.curvature_bound

    @cached_property
    def grid(self) -> Grid:
        """The grid of the release: θ moves by at least resolution/∥H∥ where b moves by its own."""
        noise = self.law.norm_exceeded_with(_CLAMPED)
        reach = self.loss.solution_bound(self.total_regularization) + noise / self.penalty_sum
        return Grid.for_noise(
            reach=reach, resolution=self.resolution / self.steepest, dimension=self.dimension
        )

    @property
    def worst_case(self) -> float:
        """The exposure of one row that is guaranteed, ε/k; see :meth:`worst_case_of`."""
        return share_of(self.epsilon, 1, self.rows_per_person) if self._promises else math.inf

    @property
    def worst_case_passed(self) -> float:
        """The probability with which the exposure of a row in the data may pass ``worst_case``."""
        return self.worst_case_of(1)[1]

    @property
    def _promises(self) -> bool:
        """Whether there is any ε: none without noise, or for a gradient that is not bounded."""
        return self.is_private and not isinstance(self.loss, Squared)

    def guarantee(self, rows: int = 1) -> EpsilonDelta:
        """Return what two data sets are guaranteed of which one lacks ``rows`` rows of the other.

        ∞ where nothing is. Under norm-Laplace noise also where the rows are exchanged for others.

        Formal guarantees
        -----------------
        norm-Laplace  ε·rows/k: so many changes of one row, each of which loses at most ε/k.
        Gaussian      (ε, δ) at rows = k, else (ε·rows/k, δ′). For ``rows`` rows
                      δ(ε) ≤ r·δ_Gauss(ε − rows·c₁, rows·A), for K classes with (1 − w)c₁ for c₁,
                      for the logistic loss the chain if it is smaller (:mod:`.coupled`).
                      Additions have the same without c₁. No guarantee is left where δ′ reaches 1.
        """
        rows = _checks.whole("rows", rows, least=1)
        if not self._promises:
            return EpsilonDelta(epsilon=math.inf)
        epsilon = share_of(self.epsilon, rows, self.rows_per_person)
        if rows == self.rows_per_person or self.noise == "laplace":
            return EpsilonDelta(epsilon=epsilon, delta=self.delta or 0.0)
        assert self.delta is not None
        reach = self.slope_bound / self.resolution
        if isinstance(self.loss, Logistic):
            delta = logistic_delta(epsilon, reach, self.penalty_sum, rows)
        else:
            left = epsilon - rows * self._spent() * (1 + 1e-12)
            delta = self._curved[0] * person_delta(left, reach, rows)
        if rows > self.rows_per_person:
            # The published noise is more than ε needs: more rows are not guaranteed a smaller δ.
            delta = max(delta, self.delta)
        if not delta < 1:
            return EpsilonDelta(epsilon=math.inf)
        # What underflows is still not 0.
        return EpsilonDelta(epsilon=epsilon, delta=max(delta, math.ulp(0.0)))

    def worst_case_of(self, rows: int) -> tuple[float, float]:
        """Return (b, p): removing ``rows`` rows has an exposure that passes b with probability ≤ p.

        Formal guarantees
        -----------------
        norm-Laplace  b = ε·rows/k is never passed.
        Gaussian      b = ε·rows/k + rows·(rows − k)₊A²/2; p is that of :meth:`passed_by` for one
                      row. With m = rows ≥ 2, aᵢ = ∣f′ᵢ∣∥xᵢ∥/σ ≤ A and Zᵢ ~ N(0, 1) the component of
                      b/σ along −yᵢxᵢ (they depend on each other),

                          loss ≤ Σᵢ [log(1 + f″ᵢ∥xᵢ∥²/λ) + m·aᵢ²/2 + aᵢZᵢ],   −loss ≤ Σᵢ aᵢ(−Zᵢ),

                      as ∥Σ∇ℓᵢ∥² ≤ σ²(Σaᵢ)² ≤ mσ²Σaᵢ². If a sum passes b, one of its terms passes
                      b/m ≥ c₁: upwards with probability at most m·Φ(mA/2 − (b/m − c₁)/A), or
                      m·P(h_m(Z) > b/m) for the logistic loss; downwards m·Φ(−b/(mA)). For K classes
                      the terms are convex in p as for one row, A = √2/σ, and each counts r times.
        """
        rows = _checks.whole("rows", rows, least=1)
        if not self._promises:
            return math.inf, 0.0
        bound = share_of(self.epsilon, rows, self.rows_per_person)
        if self.noise == "laplace":
            return bound, 0.0
        if rows == 1:
            return bound, self._passed(bound, Neighbouring.REMOVE)
        a, rank = self.slope_bound / self.resolution, self._curved[0]
        if rows > self.rows_per_person:
            bound = (bound + rows * (rows - self.rows_per_person) * a * a / 2) * (1 + 1e-14)
        each = bound / rows
        above = float(ndtr(rows * a / 2 - (each - self._spent()) / a))
        if isinstance(self.loss, Logistic):
            above = logistic_passed(each, a, self.penalty_sum, rows=rows)
        return bound, min(rows * rank * (above + float(ndtr(-each / a))) * (1 + 1e-14), 1.0)

    def worst_case_passed_by(self, relation: Neighbouring) -> float:
        """The probability with which the exposure of one row may pass ``worst_case``.

        0 under norm-Laplace noise. Gaussian noise is not calibrated for an exchange: 1.
        """
        if self.noise == "laplace" or isinstance(self.loss, Squared):
            return 0.0
        if relation is Neighbouring.REPLACE:
            return 1.0
        return self._passed(self.worst_case, relation)

    def _spent(self) -> float:
        """c₁, or (1 − w)c₁ for K classes: what a removal of one row may spend on determinants."""
        if isinstance(self.loss, Softmax):
            return softmax_spent(self.resolution, self.penalty_sum, self.loss.classes)
        return math.log1p(self.loss.curvature_bound / self.penalty_sum)

    def _passed(self, epsilon: float, relation: Neighbouring) -> float:
        """The probability with which the exposure of one row may pass ε under Gaussian noise.

        Removal: upwards at most Φ(A/2 − (ε − c₁)/A); downwards, −a²/2 − aZ − (something ≥ 0)
        passes ε for some a ≤ A with probability at most t(ε) = Φ(−A/2 − ε/A), or Φ(−√(2ε)) where
        ε ≤ A²/2. Addition, θ drawn without the row: downwards at most Φ(A/2 − ε/A); upwards
        c₁ − a²/2 + aZ passes ε with probability at most t(ε − c₁). For the logistic loss the
        upward probabilities are those of :mod:`.coupled` (docs/objective.md, section 3).

        For K classes A = √2/σ; au = Σ sₖ(eₖ − e_y) with Σ sₖ = s has ∥au∥² ≥ κs², κ = 1 + 1/r, and
        meets at most s·max(Zₖ − Z_y): t(ε) = Φ(−κA/4 − ε/A), or Φ(−√(κε)) where ε ≤ κA²/4, and all
        probabilities count r times.
        """
        added = relation is Neighbouring.ADD
        a = self.slope_bound / self.resolution
        rank, curvature = self._curved
        kappa = 1 + 1 / rank
        spent = rank * math.log1p(curvature / self.penalty_sum) if added else self._spent()
        # With a²/2 a loss is largest at a = A; with −a²/2 perhaps before.
        whole, part = (epsilon, epsilon - spent) if added else (epsilon - spent, epsilon)
        first = float(ndtr(a / 2 - whole / a))
        inner = part > kappa * a * a / 4
        second = float(ndtr(-kappa * a / 4 - part / a if inner else -math.sqrt(kappa * part)))
        if isinstance(self.loss, Logistic):
            above = logistic_passed(epsilon, a, self.penalty_sum, added=added)
            first, second = (first, above) if added else (above, second)
        return min(rank * (first + second), 1.0)

    def release(self, problem: Objective, rng: np.random.Generator | None = None) -> FloatArray:
        """Draw b from the operating system's randomness, and minimise; ``rng`` is for tests."""
        if not self.is_private:
            return problem.minimiser(self.tolerance).theta
        noise = self.law.sample_secure() if rng is None else self.law.sample(1, rng)[0]
        return self.grid.snap(self.minimiser(problem, noise).theta)

    def minimiser(self, problem: Objective, noise: FloatArray) -> Minimiser:
        """The minimiser of the perturbed objective, ∥∇J∥ ≤ ``tolerance`` in the averaged form."""
        return problem.with_linear(noise / self.rows).minimiser(self.tolerance)

    @cached_property
    def tolerance(self) -> float:
        """The certified gradient (averaged form) of every minimiser that is released: 1e-12.

        Where the noise is so large that float64 cannot get there, it is what float64 can: public
        constants alone decide, for a refusal that depends on b or on the rows would tell of them.
        """
        if not self.is_private:
            return TOLERANCE
        largest = self.law.norm_exceeded_with(_CLAMPED) / self.rows
        steep = self.total_regularization + self.loss.curvature_bound
        reached = steep * self.grid.clamp + largest + self.slope_bound
        return max(TOLERANCE, 64 * math.sqrt(self.dimension) * ROUNDOFF * reached)

    @property
    def half_cell(self) -> float:
        """How far rounding to the grid may have moved θ."""
        return self.grid.diagonal(self.dimension) / 2 if self.is_private else 0.0

    @property
    def reach_of_cell(self) -> float:
        """How far the exact minimiser may lie from the θ that was released.

        Half a cell of the grid, and the distance that ∥∇J∥ ≤ ``tolerance`` leaves open.
        """
        return self.half_cell + self.tolerance / self.total_regularization
