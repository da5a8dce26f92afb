"""Objective perturbation: θ = argmin Σℓᵢ(θ) + (λ/2)∥θ∥² + b·θ.

Chaudhuri et al. 2011, Algorithm 2; Kifer et al. 2012; Redberg & Wang 2021, Algorithm 1. The losses
of the rows are in :mod:`expost.mechanisms.tangent`.

Conventions
-----------
J(θ; D)  Σᵢ ℓᵢ(θ) + (λ/2)∥θ∥², the *sum* over rows; λ = n(Λ + Δ) with Λ the ``regularization`` of
         the averaged form and Δ ≥ 0 what ε needs on top. Removing a row keeps λ and b's law.
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
          c₁. (Redberg, Koskela & Wang 2023 have −log(1 − c/λ), and twice that δ.) Huber's loss has
          slopes of both signs: with ±A for A there are v = 2 vertices, a²/2 + aZ is largest at one
          of them or at 0, and δ(ε) ≤ v·δ_Gauss(ε − c₁, L/σ). All tails below count v times.
laplace   b of density ∝ exp(−β∥b∥), β = ε′/(2L), ε′ = ε − ln(1 + c/λ): pure ε for rows that are
          removed, added or replaced. The determinants of an exchange differ by a factor of
          (1 + f″m)/(1 + f″′m′), both leverages without either row: between 1/(1 + c/λ) and 1 + c/λ.
          Chaudhuri et al. count that factor twice.
logistic  f″ = p(1 − p) where ∣f′∣ = p, so that both are never at their bounds together. That makes
          the noise smaller under either law: :mod:`expost.mechanisms.calibration`.
softmax   K classes: with r = K − 1 a removal changes log det H by at most r·log(1 + c/λ), c = 1/K,
          r·c = sup tr ∇²ℓ = 1 − 1/K (:mod:`expost.losses`), and L = √2. Gaussian: ∇ℓ = u ⊗ x with
          u in the convex hull of 0 and the r vectors eₖ − e_y, and of b it meets Z ~ N(0, I_K),
          σ⁻¹b's component along x; a²∥u∥²/2 + a·u·Z, convex in au, is largest at a vertex:

              loss ≤ c₁ + max(0, maxₖ [A² + A(Zₖ − Z_y)]),     A = 1/σ,

          r losses of a Gaussian mechanism of sensitivity √2, so δ(ε) ≤ r·δ_Gauss(ε − c₁, √2/σ);
          adding a row turns the sign of Z and has no c₁. Laplace: two rows' ∇ℓ differ by at most
          2√2, which is reached for d > 1. Slope and curvature are coupled here too, which spends
          less than c₁: :mod:`expost.mechanisms.calibration`.

persons   m rows that leave or enter at once; (ε, δ) is calibrated to k = ``rows_per_person``.
          Laplace: m changes one after the other lose at most m times what one row does, because
          the proof needs λ, L and c, and not the number of rows. So k rows are ε where
          one row is ε/k, with ε/k > r·log(1 + c/λ). That spends k·r·log(1 + c/λ) on determinants
          and k·2Lβ on the noise; rows at right angles reach the first, equal ones the second.
          Gaussian: loss ≤ k·c₁ + F, whatever the angles between the rows, and F has the
          δ_Gauss(ε, kA) of one row of k times the slope: δ(ε) ≤ r·δ_Gauss(ε − k·c₁, kA). The proof,
          and the chain for the logistic loss, are in :mod:`expost.mechanisms.calibration`.

``calibration="tight"`` raises λ as soon as the determinant's part of ε passes ε/2. "published" is
Kifer et al. (λ ≥ 2rc/ε, σ² = L²(8 ln(2r/δ) + 4ε)/ε², errata 4 and 5; r = 1 for two classes) and
Chaudhuri et al. as diffprivlib has it (ε′ = ε − 2 ln(1 + c/λ); λ is raised only where ε′ ≤ 0, and
then ε′ = ε/2), for persons with one row. Gaussian noise is calibrated for rows that are removed or
added, not exchanged.

Squared loss has an unbounded gradient: the losses are right, and no ε is guaranteed.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import betainc, ndtr

from expost import _checks
from expost._numerics import ROUNDOFF
from expost.errors import InvalidInput, ReleaseRefused
from expost.glm import Minimiser, Objective
from expost.losses import Logistic, Softmax
from expost.mechanisms.base import TOLERANCE, ClosedForm, Losses, register
from expost.mechanisms.calibration import (
    logistic_delta,
    logistic_passed,
    logistic_quantile,
    logistic_rate,
    logistic_scale,
    person_delta,
    person_scale,
    softmax_rate,
    softmax_scale,
    softmax_spent,
)
from expost.mechanisms.grid import Grid
from expost.mechanisms.output import GradientNoise, OutputPerturbation
from expost.mechanisms.perturbation import Perturbation, share_of
from expost.mechanisms.row_losses import RowLosses
from expost.neighbouring.change import Change
from expost.noise import Gaussian, NormLaplace, NormLaplaceLaw, draw
from expost.numbers import for_persons
from expost.risk import EpsilonDelta
from expost.types import FloatArray, Neighbouring

if TYPE_CHECKING:
    from expost.mechanisms.bounds import ExposureBound
    from expost.mechanisms.publishing import NoisyTangent, PublishingBudget, TangentMechanism
    from expost.mechanisms.sampling import ObjectiveSampler
    from expost.mechanisms.tangent import Tangent

__all__ = ["CALIBRATIONS", "ObjectivePerturbation"]

CALIBRATIONS = ("tight", "published")
_CLAMPED = 1e-12
# The most factors of four by which an automatic Λ is raised for its grid.
_RAISES = 12
# A Λ at which determinants spend nothing of ε that rounding does not.
_PLAIN = 1e12
# The exponential of more would overflow.
_LARGEST = 700.0


@register
@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbation(Perturbation):
    """The public constants of one release by objective perturbation.

    ``regularization`` is the requested Λ, ``total_regularization`` what it became.

    Parameters
    ----------
    calibration : str, default="tight"
        "tight", the tightest that is proved here, or "published", that of the papers.
    """

    noise: str = "gaussian"
    calibration: str = "tight"

    kind: ClassVar[str] = "objective"
    options: ClassVar[tuple[str, ...]] = ("calibration",)
    is_multiclass: ClassVar[bool] = True
    has_report: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _checks.one_of("calibration", self.calibration, CALIBRATIONS)
        super().__post_init__()
        if self.calibration == "published" and self.rows_per_person > 1:
            raise InvalidInput(
                f"rows_per_person={self.rows_per_person}: calibration='published' is for persons"
                " with one row; use calibration='tight'."
            )

    @classmethod
    def automatic_regularization(cls, **constants: Any) -> float:
        """Return Λ = max(u(r/20 + r²/L), floor), from n, d, ε, δ and k alone.

        u = 4c/L, r² = E∥b∥²/(qn²).

        In the quadratic model of the summed objective with H = Σ∇²ℓ, eigenvalues Hⱼ, noise of
        variance σ² a coordinate and a useful θ*, the expected excess risk is

            ½ Σⱼ Hⱼ(σ² + λ²θ*ⱼ²)/(Hⱼ + λ)².

        With equal eigenvalues Hⱼ ∝ n/d and θ*ⱼ² equal it is least at λ ∝ σ²d/n; the largest value
        over all spectra and ∥θ*∥ ≤ R is least at λ = σ√d/R. Real spectra lie between: for the
        logistic loss r/20 + r², with constants chosen on ten tables (docs/utility.md).

        Another loss is taken for a scaled logistic one, s·g(z/w) with g″ ≤ ¼: its slope is at most
        L = s/w and its curvature at most c = s/(4w²). With φ = θ/w its objective is s times the
        logistic one of φ, whose penalty is λw²/s and whose noise is (w/s)b. So the rule is
        r/(20w) + r²/s, where 1/w = 4c/L = u and 1/s = u/L. Of q > 1 outputs each has E∥b∥²/q of the
        noise; softmax of two classes then has the minimiser of the logistic rule.

        The noise is that at Λ → ∞, where nothing of ε is spent on determinants; otherwise it would
        depend on Λ. The floor keeps that about so. With m·log(1 + c₀/λ) as what a removal may spend
        on determinants, λ ≥ 2c₀/(e^(ε/(hmk)) − 1) spends about ε/(2h). The logistic loss has h = 2,
        and its tight calibration then spends nothing. The others have h = 4: an eighth of ε was
        chosen on twelve tables. Without noise Λ is 1/n, the default of scikit-learn.

        Of tens of millions of rows it is raised, by factors of four, until float64 has a grid that
        is finer than the noise: ∥θ∥ is bounded by √(2f(0)/Λ), and the noise in θ shrinks with n.
        """
        mechanism = cls(regularization=_PLAIN, **constants)
        n, loss = mechanism.rows, mechanism.loss
        if not mechanism.is_private:
            return 1 / n
        share = math.sqrt(mechanism.law.mean_square / loss.outputs) / n
        bound = loss.lipschitz(_PLAIN)
        unit = 4 * loss.curvature_bound / bound
        rank, curvature = loss.determinant
        parts = 2 if isinstance(loss, Logistic) else 4
        left = mechanism.epsilon / (parts * rank * mechanism.rows_per_person)
        floor = 2 * curvature / math.expm1(left) / n if left < _LARGEST else 0.0
        chosen = max(unit * (share / 20 + share**2 / bound), floor)
        for factor in (4.0**power for power in range(_RAISES)):
            try:
                _ = cls(regularization=factor * chosen, **constants).grid
            except ReleaseRefused:
                continue
            return factor * chosen
        # The release itself reports it.
        return chosen

    @cached_property
    def _budget(self) -> tuple[float, float]:
        """(λ, what of ε/k is left for the noise)."""
        if self.calibrated is not None:
            return self.first._budget
        requested = self.rows * self.regularization
        if not self.is_private:
            return requested, math.inf
        rank, curvature = self.loss.determinant
        epsilon = self.epsilon / self.rows_per_person
        if self.calibration == "published" and self.noise == "gaussian":
            return max(requested, 2 * rank * curvature / epsilon), epsilon
        # A change of one row changes the determinant by a factor of at most 1 + c/λ (r of them); as
        # published, an exchange does by its square.
        factors = 2 * rank if self.calibration == "published" else rank
        left = epsilon - factors * math.log1p(curvature / requested)
        least = 0.0 if self.calibration == "published" else epsilon / 2
        if left > least or (left == least and left > 0):
            return requested, left
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
        """What follows from the constants, and is written with them."""
        scale = self.resolution if self.is_private else 0.0
        return {"penalty_sum": self.penalty_sum, "scale": scale}

    @property
    def is_raised(self) -> bool:
        """Whether ε needed more regularization than was requested."""
        return self.penalty_sum > self.first.rows * self.regularization

    @property
    def slope_bound(self) -> float:
        """L; of the squared loss only a scale, since its gradient is not bounded."""
        return self.loss.lipschitz(self.total_regularization)

    @cached_property
    def law(self) -> NormLaplace | Gaussian:
        """The law of b."""
        if not self.is_private:
            raise InvalidInput("epsilon=inf: a release without noise has no noise law.")
        if self.calibrated is not None:
            return self.first.law
        left, bound, vertices = self._budget[1], self.slope_bound, self.loss.vertices
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
            scale = bound * math.sqrt(8 * math.log(2 * vertices / self.delta) + 4 * left) / left
        elif isinstance(self.loss, Softmax):
            scale = softmax_scale(self.epsilon, self.delta, penalty, self.loss.classes, k)
        else:
            scale = person_scale(k * left, self.delta / vertices, bound, k)
        return Gaussian(scale=scale, dimension=self.dimension)

    @property
    def gradient_noise(self) -> ClosedForm:
        """The law of losses at fixed gradients (:mod:`expost.epsilon.gradients`)."""
        return GradientNoise.of(self)

    @property
    def steepest(self) -> float:
        """A bound on every eigenvalue of H, whatever the rows: λ + n·c."""
        return self.penalty_sum + self.rows * self.loss.curvature_bound

    @cached_property
    def grid(self) -> Grid:
        """The grid of the release: θ moves by at least resolution/∥H∥ where b moves by its own."""
        if self.calibrated is not None:
            return self.first.grid
        noise = self.law.norm_exceeded_with(_CLAMPED)
        reach = self.loss.solution_bound(self.total_regularization) + noise / self.penalty_sum
        return Grid.for_noise(
            reach=reach, resolution=self.resolution / self.steepest, dimension=self.dimension
        )

    @property
    def _has_guarantee(self) -> bool:
        """Whether there is any ε: none without noise, or for a gradient that is not bounded."""
        return self.is_private and self.loss.has_bounded_slope

    def guarantee(self, rows: int = 1) -> EpsilonDelta:
        """Return the guarantee for two data sets, one of which lacks ``rows`` rows of the other.

        ∞ where nothing is. Under norm-Laplace noise also where the rows are exchanged for others.

        Formal guarantees
        -----------------
        - norm-Laplace: ε·rows/k: so many changes of one row, each of which loses at most ε/k.
        - Gaussian: (ε, δ) at rows = k, else (ε·rows/k, δ′). For ``rows`` rows
          δ(ε) ≤ r·δ_Gauss(ε − rows·c₁, rows·A), for K classes with (1 − w)c₁ for c₁, for the
          logistic loss the chain if it is smaller (:mod:`.calibration`). Additions have the same
          without c₁. No guarantee is left where δ′ reaches 1.
        """
        rows = _checks.integer("rows", rows, least=1)
        if not self._has_guarantee:
            return EpsilonDelta(epsilon=math.inf)
        epsilon = share_of(self.epsilon, rows, self.rows_per_person)
        if rows == self.rows_per_person or self.noise == "laplace":
            return EpsilonDelta(epsilon=epsilon, delta=self.delta or 0.0)
        assert self.delta is not None
        delta = self._delta_of(epsilon, rows)
        if rows > self.rows_per_person:
            # The published noise is more than ε needs: more rows are not guaranteed a smaller δ.
            delta = max(delta, self.delta)
        if not delta < 1:
            return EpsilonDelta(epsilon=math.inf)
        # What underflows is still not 0.
        return EpsilonDelta(epsilon=epsilon, delta=max(delta, math.ulp(0.0)))

    def _delta_of(self, epsilon: float, rows: int) -> float:
        """Bound δ(ε) of ``rows`` rows under Gaussian noise, as :meth:`guarantee` states it."""
        reach = self.slope_bound / self.resolution
        if isinstance(self.loss, Logistic):
            return logistic_delta(epsilon, reach, self.penalty_sum, rows)
        left = epsilon - rows * self._spent() * (1 + 1e-12)
        return self.loss.vertices * person_delta(left, reach, rows)

    def delta_at(self, epsilon: float) -> float:
        """Return δ at another ε, of the same noise, for rows that are removed or added."""
        if self.noise == "laplace" or not self._has_guarantee:
            return super().delta_at(epsilon)
        assert self.delta is not None
        known = self.delta if epsilon >= self.epsilon else 1.0
        return min(known, max(self._delta_of(epsilon, self.rows_per_person), math.ulp(0.0)))

    def advantage_of(self, rows: int) -> float:
        """Bound the total variation: δ(0) of rows that are added, which spend nothing on c₁."""
        known = super().advantage_of(rows)
        if self.noise == "laplace" or not self._has_guarantee:
            return known
        reach = self.slope_bound / self.resolution
        return min(known, self.loss.vertices * person_delta(0.0, reach, rows))

    def worst_case_of(self, rows: int) -> tuple[float, float]:
        """Return (b, p): removing ``rows`` rows has an exposure that passes b with probability ≤ p.

        Formal guarantees
        -----------------
        Norm-Laplace: b = ε·rows/k is never passed.

        Gaussian: b = ε·rows/k + rows·(rows − k)₊A²/2; p is that of :meth:`passed_by` for one row.
        With m = rows ≥ 2, aᵢ = ∣f′ᵢ∣∥xᵢ∥/σ ≤ A and Zᵢ ~ N(0, 1) the component of b/σ along −yᵢxᵢ
        (they depend on each other),

            loss ≤ Σᵢ [log(1 + f″ᵢ∥xᵢ∥²/λ) + m·aᵢ²/2 + aᵢZᵢ],   −loss ≤ Σᵢ aᵢ(−Zᵢ),

        as ∥Σ∇ℓᵢ∥² ≤ σ²(Σaᵢ)² ≤ mσ²Σaᵢ². If a sum passes b, one of its terms passes b/m ≥ c₁:
        upwards with probability at most m·Φ(mA/2 − (b/m − c₁)/A), or m·P(h_m(Z) > b/m) for the
        logistic loss; downwards m·Φ(−b/(mA)). For K classes the terms are convex in p as for one
        row and A = √2/σ. Each counts v times.
        """
        rows = _checks.integer("rows", rows, least=1)
        if not self._has_guarantee:
            return math.inf, 0.0
        bound = share_of(self.epsilon, rows, self.rows_per_person)
        if self.noise == "laplace":
            return bound, 0.0
        if rows == 1:
            return bound, self._passed(bound, Neighbouring.REMOVE)
        a, vertices = self.slope_bound / self.resolution, self.loss.vertices
        if rows > self.rows_per_person:
            bound = (bound + rows * (rows - self.rows_per_person) * a * a / 2) * (1 + 1e-14)
        each = bound / rows
        above = float(ndtr(rows * a / 2 - (each - self._spent()) / a))
        if isinstance(self.loss, Logistic):
            above = logistic_passed(each, a, self.penalty_sum, rows=rows)
        return bound, min(rows * vertices * (above + float(ndtr(-each / a))) * (1 + 1e-14), 1.0)

    def worst_case_either(self, rows: int) -> tuple[float, float]:
        """Return (b, p) of :meth:`worst_case_of` for rows that are removed or added.

        Formal guarantees
        -----------------
        Gaussian, m rows that are added: upwards a term passes b/m with probability at most
        Φ(−(b/m − c₁)/A), downwards Φ(mA/2 − b/(mA)); each counts m·v times.
        """
        bound, passed = self.worst_case_of(rows)
        if self.noise == "laplace" or not bound < math.inf:
            return bound, passed
        if rows == 1:
            return bound, max(passed, self._passed(bound, Neighbouring.ADD))
        a, each = self.slope_bound / self.resolution, bound / rows
        rank, curvature = self.loss.determinant
        spent = rank * math.log1p(curvature / self.penalty_sum)
        tails = float(ndtr(rows * a / 2 - each / a)) + float(ndtr((spent - each) / a))
        added = rows * self.loss.vertices * tails * (1 + 1e-14)
        return bound, min(max(passed, added), 1.0)

    def covers(self, relation: Neighbouring) -> bool:
        """Return whether the guarantee holds: Gaussian noise is not calibrated to an exchange."""
        return self.noise == "laplace" or relation is not Neighbouring.REPLACE

    def worst_case_passed_by(self, relation: Neighbouring) -> float:
        """Bound the probability with which the exposure of one row passes ``worst_case``.

        0 under norm-Laplace noise. Gaussian noise is not calibrated for an exchange: 1.

        Parameters
        ----------
        relation : Neighbouring
            How the neighbouring data set differs.

        Returns
        -------
        float
            The probability, at most 1.
        """
        if self.noise == "laplace" or not self.loss.has_bounded_slope:
            return 0.0
        if relation is Neighbouring.REPLACE:
            return 1.0
        return self._passed(self.worst_case, relation)

    def _spent(self) -> float:
        """Return c₁, or (1 − w)c₁ for K classes, which a removal may spend on determinants."""
        if isinstance(self.loss, Softmax):
            return softmax_spent(self.resolution, self.penalty_sum, self.loss.classes)
        return math.log1p(self.loss.curvature_bound / self.penalty_sum)

    def _passed(self, epsilon: float, relation: Neighbouring) -> float:
        """Bound the probability with which the exposure of one row passes ε under Gaussian noise.

        Removal: upwards at most Φ(A/2 − (ε − c₁)/A); downwards, −a²/2 − aZ − (something ≥ 0)
        passes ε for some a ≤ A with probability at most t(ε) = Φ(−A/2 − ε/A), or Φ(−√(2ε)) where
        ε ≤ A²/2. Addition, θ drawn without the row: downwards at most Φ(A/2 − ε/A); upwards
        c₁ − a²/2 + aZ passes ε with probability at most t(ε − c₁). For the logistic loss the
        upward probabilities are those of :mod:`.calibration` (docs/theory/objective.md, section 3).

        For K classes A = √2/σ; au = Σ sₖ(eₖ − e_y) with Σ sₖ = s has ∥au∥² ≥ κs², κ = 1 + 1/r, and
        meets at most s·max(Zₖ − Z_y): t(ε) = Φ(−κA/4 − ε/A), or Φ(−√(κε)) where ε ≤ κA²/4, and all
        probabilities count r times.
        """
        return min(sum(self._tails(epsilon, relation)), 1.0)

    def _tails(self, epsilon: float, relation: Neighbouring) -> tuple[float, float]:
        """Bound the probabilities of :meth:`_passed`, the one with a²/2 first."""
        added = relation is Neighbouring.ADD
        a = self.slope_bound / self.resolution
        rank, curvature = self.loss.determinant
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
        return self.loss.vertices * first, self.loss.vertices * second

    def loss_passed(self, bound: float, *, two_sided: bool = False) -> float:
        """Bound the probability with which the loss (exposure) of a fixed row passes ``bound``.

        Formal guarantees
        -----------------
        - Gaussian: upwards and downwards as in :meth:`_passed`, for a removal. The slope of the row
          depends on the noise: both hold for any slope that the noise may lead to.
        - Laplace: loss = β(∥b + g∥ − ∥b∥) + u with u ≤ c₁ is at most ε/k − Lβ (an exchange, which
          has ε/k, loses Lβ more). The norm is convex in g, so that the loss is at most
          c₁ + max(0, its value at a vertex of length L): r laws at separation Lβ. And
          −loss ≤ −βg·b/∥b∥ ≤ Lβ·max(0, cos), cos being that of an angle between b and one of r
          fixed vertices, P(cos > s) = ½·I_{1−s²}((d − 1)/2, ½).
        """
        if not self._has_guarantee:
            return 1.0
        rank, curvature = self.loss.determinant
        spent = rank * math.log1p(curvature / self.penalty_sum)
        if self.noise == "gaussian":
            if not (bound > self._spent() or isinstance(self.loss, Logistic)) or bound < 0:
                return 1.0
            above, below = self._tails(bound, Neighbouring.REMOVE)
            return min(above + below if two_sided else above, 1.0)
        apart = self.slope_bound / self.resolution
        most = share_of(self.epsilon, 1, self.rows_per_person) - apart
        if bound >= most * (1 + 1e-14):
            return 0.0
        if not bound > spent:
            return 1.0
        law = NormLaplaceLaw(separation=np.array([apart]), dimension=self.dimension)
        above = float(law.survival(np.array([bound - spent]))[0]) + 1e-11
        cosine = min(bound / apart, 1.0)
        below = float(betainc((self.dimension - 1) / 2, 0.5, 1 - cosine**2)) / 2
        if self.dimension == 1:
            below = 0.5 if cosine < 1 else 0.0
        return min(self.loss.vertices * (above + below if two_sided else above), 1.0)

    def loss_quantile(self, quantile: float, *, two_sided: bool = False) -> float:
        """Bound the q-quantile of the loss of one row; of the logistic loss without a search."""
        direct = isinstance(self.loss, Logistic) and self.noise == "gaussian" and not two_sided
        if direct and self._has_guarantee:
            reach = self.slope_bound / self.resolution
            return max(logistic_quantile(quantile, reach, self.penalty_sum), 0.0)
        return super().loss_quantile(quantile, two_sided=two_sided)

    def release(self, objective: Objective, rng: np.random.Generator | None = None) -> FloatArray:
        """Draw b from the operating system's randomness, and minimise; ``rng`` is for tests."""
        if not self.is_private:
            return objective.minimiser(self.tolerance).theta
        return self.grid.snap(self.minimiser(objective, draw(self.law, rng)).theta)

    def minimiser(self, objective: Objective, noise: FloatArray) -> Minimiser:
        """Return the minimiser of the perturbed objective, ∥∇J∥ ≤ ``tolerance`` (averaged form).

        Parameters
        ----------
        objective : Objective
            J over the training rows.
        noise : FloatArray
            (q·d,) b in the summed form.

        Returns
        -------
        Minimiser
            θ before it is rounded to the grid, with the bound on its gradient.
        """
        # Of many rows the model without noise is needed too, to be compared, and is a near start.
        start = objective.minimiser(TOLERANCE).theta if objective.has_many_rows else None
        return objective.with_linear(noise / self.rows).minimiser(self.tolerance, start=start)

    @property
    def _uses_tangent(self) -> bool:
        """Whether losses follow from the tangent at θ: always with noise, and for q > 1 outputs."""
        return self.is_private or self.loss.outputs > 1

    def _without_noise(self) -> OutputPerturbation:
        """Return output perturbation at ε = ∞, where both mechanisms release the minimiser."""
        return OutputPerturbation(
            epsilon=math.inf,
            loss=self.loss,
            regularization=self.total_regularization,
            rows=self.rows,
            dimension=self.dimension,
        )

    def losses(self, objective: Objective, theta: FloatArray, change: Change) -> RowLosses:
        """Return the losses of all rows in memory, from the tangent of J at ``theta``."""
        from expost.mechanisms.sampling import tangent_losses

        if self._uses_tangent:
            return tangent_losses(self, objective, theta, change)
        return self._without_noise().losses(objective, theta, change, keep_total_penalty=True)

    def prepare(self, objective: Objective, theta: FloatArray, *, expected: bool = False) -> Losses:
        """Return what the losses of any block follow from; sampled releases take more passes."""
        from expost.mechanisms.sampling import TangentLosses

        if self._uses_tangent:
            return TangentLosses.of(self, objective, theta, expected=expected)
        return self._without_noise().prepare(objective, theta, keep_total_penalty=True)

    def bound(
        self,
        theta: FloatArray,
        failure: float,
        tangent: "TangentMechanism | None" = None,
        released: "NoisyTangent | None" = None,
        labels: int = 1,
    ) -> "ExposureBound":
        """Return the bound of a published report; data-dependent where ``released`` is given."""
        from expost.mechanisms.bounds import ObjectiveBound

        return ObjectiveBound(
            mechanism=self,
            theta=theta,
            failure=failure,
            tangent=tangent,
            released=released,
            labels=labels,
        )

    def check(self, objective: Objective, theta: FloatArray) -> "Tangent":
        """Refuse rows that cannot have made ``theta``; return the tangent at it."""
        from expost.mechanisms.tangent import Tangent

        self.check_count(objective)
        tangent = Tangent.at(self, objective, theta)
        tangent.check_rows()
        return tangent

    def check_report(self) -> None:
        """Refuse what has no data-dependent report, e.g. more classes than two."""
        if not self.loss.is_classification and self.loss.has_bounded_slope:
            raise ReleaseRefused(
                f"kind='data-dependent': the model has the {self.loss.name} loss, and its slopes"
                " have no sign of their own, which such a report needs; use"
                " kind='data-independent'."
            )
        if self.loss.outputs > 1:
            raise ReleaseRefused(
                f"kind='data-dependent': the model has {self.loss.outputs} classes, and only models"
                " of two have a data-dependent report; use kind='data-independent'."
            )
        if self.rows_per_person > 1:
            raise ReleaseRefused(
                "kind='data-dependent': the model is calibrated"
                f"{for_persons(self.rows_per_person)}, and such a report is for persons with one"
                " row; use kind='data-independent'."
            )

    def tangent_mechanism(
        self, budget: "PublishingBudget", theta: FloatArray
    ) -> "TangentMechanism":
        """Return the mechanism that releases ĝ and Ĥ."""
        from expost.mechanisms.publishing import TangentMechanism

        if self.loss.outputs > 1:
            return super().tangent_mechanism(budget, theta)
        return TangentMechanism(budget=budget, mechanism=self, theta=theta)

    def sampler(self, objective: Objective, near: Minimiser | None = None) -> "ObjectiveSampler":
        """Return releases of these rows at any ε; ``near``: about the minimiser at this ε."""
        from expost.mechanisms.sampling import ObjectiveSampler

        return ObjectiveSampler(mechanism=self, objective=objective, near=near)

    def gradient_variance(self, mean_square_curvature: float) -> float:
        """Return the variance of a coordinate of b, which is added to the sum of gradients."""
        return self.law.mean_square / self.dimension

    @cached_property
    def tolerance(self) -> float:
        """The certified gradient (averaged form) of every minimiser that is released: 1e-12.

        Where the noise is so large that float64 cannot get there, it is what float64 can: public
        constants alone decide, because a refusal that depends on b or the rows would reveal them.
        """
        if not self.is_private:
            return TOLERANCE
        largest = self.law.norm_exceeded_with(_CLAMPED) / self.rows
        steep = self.total_regularization + self.loss.curvature_bound
        reached = steep * self.grid.clamp + largest + self.slope_bound
        tolerance = max(TOLERANCE, 64 * math.sqrt(self.dimension) * ROUNDOFF * reached)
        if self.calibrated is None:
            return tolerance
        # The same in the summed form, so that a model that was kept is as precise as any other.
        first = self.first
        return max(tolerance, first.tolerance * first.rows / self.rows)

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
