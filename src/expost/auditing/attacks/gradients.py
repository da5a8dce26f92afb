"""White-box scores: membership inference from a row's gradient at the target.

Conventions
-----------
g       (D,) the gradient of a row's own loss at the target's θ, without any penalty.
S       the sum of gradients over the target's n members, or what is known of it: an observed
        update, or, since a fitted model is a minimiser, −nΛθ (0 without a penalty).
ḡ, C    mean and covariance of g over a population; h = g − ḡ.

Which inner product is a likelihood ratio
-----------------------------------------
With noise. To an attacker who knows the sum m of the other rows' gradients, a step that publishes
S = Σ g + b, b ~ N(0, s²I), is N(m + g, s²I) with the row and N(m, s²I) without it:

    log p(S ∣ with) − log p(S ∣ without) = [g·(S − m) − ½∥g∥²]/s².                            (1)

With the row S − m = g + b, and this is the (2b·g + ∥g∥²)/(2s²) of :mod:`expost.torch`. A row's g is
the same in both cases only if θ was fixed before S: in each step of a training. Log ratios of steps
compose by addition.

Without noise. To an attacker who does not know the other rows they are the noise: drawn from the
population, their gradients sum to about N(nḡ, nC), and replacing one of them by the row moves that
by h:

    hᵀM⁻¹(S − nḡ) − ½hᵀM⁻¹h,     M = nC + s²I.                                                (2)

So the score is ⟨g, S − nḡ⟩ in the metric of M⁻¹, minus half of g's squared norm in it. Without S
and a population only the second term is left: a member's gradient is short (Nasr et al. 2019), the
score −∥g∥. At a minimiser (2) treats g as fixed although θ moved with the row; it leaves out
log(1 + f″μ) of the change of variables, which matters for a row with a large leverage μ.

C is estimated with the shrinkage of Ledoit and Wolf (2004), and nothing of size D × D is formed:
only inner products of gradients are needed.
"""

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import scipy.linalg

from expost import _checks
from expost._numerics import row_blocks
from expost.auditing.evidence import Signal
from expost.errors import InvalidInput
from expost.types import FloatArray, IntArray

__all__ = [
    "GRADIENT_INNER_PRODUCT",
    "GRADIENT_NORM",
    "DenseGradients",
    "Gradients",
    "gradient_norm",
    "gradient_ratio",
    "update_ratio",
]

GRADIENT_NORM = Signal(
    name="gradient-norm",
    description="how short the row's own gradient is in the model's parameters (Nasr 2019)",
)
GRADIENT_INNER_PRODUCT = Signal(
    name="gradient-inner-product",
    description="how the row's own gradient lies to the parameters (Nasr 2019)",
)
# Rows of the population from which C is estimated: a Gram matrix of 32 MiB.
MOST_ROWS = 2048


class Gradients(Protocol):
    """The gradients of n rows, of which only inner products are needed."""

    @property
    def rows(self) -> int:
        """The number n of rows."""

    @property
    def dimension(self) -> int:
        """The number D of parameters."""

    def squares(self) -> FloatArray:
        """Return (n,) ∥g∥²."""

    def mean(self) -> FloatArray:
        """Return (D,) the mean gradient."""

    def along(self, direction: FloatArray) -> FloatArray:
        """Return (n,) g·direction."""

    def take(self, rows: IntArray) -> Self:
        """Return the gradients of some of the rows."""

    def gram(self, others: Self) -> FloatArray:
        """Return (n, k) the inner products with other rows' gradients of the same model."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DenseGradients:
    """Gradients that were computed elsewhere: ``vectors`` (n, D)."""

    vectors: FloatArray

    def __post_init__(self) -> None:
        vectors = _checks.matrix(self.vectors, name="vectors", min_rows=1)
        object.__setattr__(self, "vectors", vectors)

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return len(self.vectors)

    @property
    def dimension(self) -> int:
        """The number D of parameters."""
        return int(self.vectors.shape[1])

    def squares(self) -> FloatArray:
        """Return (n,) ∥g∥²."""
        squares: FloatArray = np.einsum("ij,ij->i", self.vectors, self.vectors)
        return squares

    def mean(self) -> FloatArray:
        """Return (D,) the mean gradient."""
        mean: FloatArray = self.vectors.mean(axis=0)
        return mean

    def along(self, direction: FloatArray) -> FloatArray:
        """Return (n,) g·direction."""
        products: FloatArray = self.vectors @ direction
        return products

    def take(self, rows: IntArray) -> "DenseGradients":
        """Return the gradients of some of the rows."""
        return DenseGradients(vectors=self.vectors[rows])

    def gram(self, others: "DenseGradients") -> FloatArray:
        """Return (n, k) the inner products."""
        gram: FloatArray = self.vectors @ others.vectors.T
        return gram


def gradient_norm(gradients: Gradients) -> FloatArray:
    """Return (n,) −∥g∥: members' gradients are short."""
    return _finite(-np.sqrt(gradients.squares()))


def update_ratio(
    gradients: Gradients,
    update: Any,
    *,
    others: Any = None,
    scale: float | None = None,
) -> FloatArray:
    """Return (n,) Eq. 1 for an observed ``update`` S, at the θ at which it was computed.

    Parameters
    ----------
    update : Any
        (D,) a sum of gradients: minus the change of θ over the learning rate, times the number
        of rows where the step took their mean.
    others : Any, optional
        (D,) m: S without the row; None for 0. An estimate suffices, n times a population's mean.
    scale : float, optional
        The noise's standard deviation s; None if it is unknown: then the part that does not depend
        on s, g·(S − m) − ½∥g∥².
    """
    size = gradients.dimension
    remainder = _checks.vector(update, name="update", length=size)
    if others is not None:
        remainder = remainder - _checks.vector(others, name="others", length=size)
    variance = 1.0 if scale is None else _checks.positive("scale", scale) ** 2
    return _finite((gradients.along(remainder) - gradients.squares() / 2) / variance)


def gradient_ratio(
    gradients: Gradients,
    population: Gradients | None = None,
    *,
    members: int,
    within: int | None = None,
    total: Any = None,
    noise_variance: float = 0.0,
    most_rows: int | None = None,
) -> FloatArray:
    """Return (n,) Eq. 2, the log likelihood ratio of a model whose members' gradients sum to S.

    Parameters
    ----------
    population : Gradients, optional
        Gradients, at the same θ, of rows that were certainly not trained on. None: the rows in
        question are used, of which ``within`` are members with a mean of S/n, and the others the
        population. This is more informative than other rows: if all members are among the rows in
        question, the sum over the non-members is then known exactly.
    members : int
        The number n of rows that the target was trained on.
    within : int, optional
        How many of them are in question; None for all.
    total : Any, optional
        (D,) S; None for 0.
    noise_variance : float, default=0.0
        The variance s² of each coordinate of the noise on S.
    most_rows : int, optional
        The rows of the population from which C is estimated; ḡ is that of all. None: eight per
        coordinate, at least 512 and at most ``MOST_ROWS``.
    """
    n = _checks.integer("members", members, least=1)
    if not 0 <= noise_variance < np.inf:
        raise InvalidInput(f"noise_variance={noise_variance!r}: must be a finite number ≥ 0.")
    size = gradients.dimension
    known = np.zeros(size) if total is None else _checks.vector(total, name="total", length=size)
    inside = n if within is None else _checks.integer("within", within, least=0)
    centre, reference = _centre(gradients, population, inside, known / n)
    grown = n * (1 + n / reference.rows)
    most = min(MOST_ROWS, max(512, 8 * size)) if most_rows is None else most_rows
    if reference.rows > _checks.integer("most_rows", most, least=2):
        # Spread over all of them: files are often sorted.
        chosen = np.linspace(0, reference.rows - 1, most).astype(np.int64)
        reference = reference.take(chosen)
    law = _OthersLaw.of(reference, centre, grown, noise_variance, known - n * centre)
    scores = np.empty(gradients.rows)
    for block in row_blocks(gradients.rows, reference.rows):
        scores[block] = law.ratio(gradients.take(np.arange(block.start, block.stop)))
    return _finite(scores)


def _centre(
    gradients: Gradients, population: Gradients | None, members: int, theirs: FloatArray
) -> tuple[FloatArray, Gradients]:
    """Return ḡ, and the rows from which C is estimated; ``theirs``: the members' mean."""
    if population is not None:
        if population.dimension != gradients.dimension:
            raise InvalidInput("population: must hold gradients of the same model.")
        if not population.rows >= 2:
            raise InvalidInput("population: must hold at least two rows.")
        return population.mean(), population
    others = gradients.rows - members
    if not others >= 1:
        raise InvalidInput(
            f"members={members}: without a population some of the {gradients.rows} rows in question"
            " must be non-members; pass a population."
        )
    # The sum over the non-members is the sum over all rows minus that over the members.
    return (gradients.rows * gradients.mean() - members * theirs) / others, gradients


@dataclass(frozen=True, kw_only=True, eq=False)
class _OthersLaw:
    """M = ``even``·I + ``weight``·P̃ᵀP̃, P̃ the population's centred gradients (k, D), and S − nḡ.

    M⁻¹v = (v − P̃ᵀA⁻¹P̃v)/even with A = (even/weight)·I + P̃P̃ᵀ (Woodbury). ``factor`` is A's
    Cholesky factor, None where weight = 0; ``shifted`` (k,) P̃(S − nḡ).
    """

    population: Gradients
    centre: FloatArray
    gap: FloatArray
    even: float
    factor: FloatArray | None
    along_centre: FloatArray
    shifted: FloatArray

    @classmethod
    def of(
        cls,
        population: Gradients,
        centre: FloatArray,
        grown: float,
        noise_variance: float,
        gap: FloatArray,
    ) -> "_OthersLaw":
        """Return the law; ``grown`` is n(1 + n/k), because ḡ is an estimate from k rows."""
        along = population.along(centre)
        square = float(centre @ centre)
        gram = population.gram(population) - along[:, None] - along[None, :] + square
        shrinkage, mean = _ledoit_wolf(gram, population.dimension)
        even = grown * shrinkage * mean + noise_variance
        if not even > 0:
            raise InvalidInput(
                "population: the gradients of its rows do not vary, and no noise was given: pass"
                " other rows, or a noise_variance."
            )
        weight = grown * (1 - shrinkage) / population.rows
        factor = None
        if weight > 0:
            gram[np.diag_indices_from(gram)] += even / weight
            factor = scipy.linalg.cholesky(gram, lower=True, overwrite_a=True)
        return cls(
            population=population,
            centre=centre,
            gap=gap,
            even=even,
            factor=factor,
            along_centre=along,
            shifted=population.along(gap) - float(centre @ gap),
        )

    def ratio(self, rows: Gradients) -> FloatArray:
        """Return hᵀM⁻¹(S − nḡ) − ½hᵀM⁻¹h."""
        along, square = rows.along(self.centre), float(self.centre @ self.centre)
        linear = rows.along(self.gap) - float(self.centre @ self.gap)
        length = rows.squares() - 2 * along + square
        if self.factor is not None:
            cross = rows.gram(self.population) - self.along_centre - along[:, None] + square
            half = scipy.linalg.solve_triangular(self.factor, cross.T, lower=True)
            moved = scipy.linalg.solve_triangular(self.factor, self.shifted, lower=True)
            linear = linear - moved @ half
            length = length - np.einsum("ji,ji->i", half, half)
        ratio: FloatArray = (linear - length / 2) / self.even
        return ratio


def _ledoit_wolf(gram: FloatArray, dimension: int) -> tuple[float, float]:
    """Return (ρ, μ) with C* = ρμI + (1 − ρ)C, from the Gram matrix of the centred rows alone.

    Ledoit and Wolf (2004): μ = tr C/D, d² = ∥C − μI∥²/D, b² = min(d², Σ∥ggᵀ − C∥²/(k²D)), ρ = b²/d²
    in the Frobenius norm, where ∥C∥ = ∥Gram∥/k and ∥ggᵀ∥ = ∥g∥².
    """
    k = len(gram)
    squares = np.diag(gram)
    mean = float(squares.sum()) / (k * dimension)
    whole = float(np.sum(gram * gram)) / k**2
    spread = whole / dimension - mean**2
    error = (float(squares @ squares) / k**2 - whole / k) / dimension
    if not spread > 0:
        return 1.0, mean
    return min(max(error, 0.0) / spread, 1.0), mean


def _finite(scores: FloatArray) -> FloatArray:
    if not np.all(np.isfinite(scores)):
        raise InvalidInput(
            "gradients: a score is NaN or infinite; rescale the rows, or check the model's"
            " coefficients."
        )
    return scores
