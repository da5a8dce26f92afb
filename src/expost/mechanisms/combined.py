"""Several independent releases of one data set, composed.

Conventions
-----------
θ₁ … θ_k  releases whose noises were drawn independently of each other; how the later ones were made
          may depend on the earlier ones, but not what each of them guarantees.
ℓ         Σℓⱼ: given the data p(θ₁, …, θ_k ∣ D) = Π p(θⱼ ∣ D, θ₁ … θⱼ₋₁), so that the evidence adds
          up (D5.3 Lemma 1). E[exp(−ℓ)] = 1 as for each of them.

Together they are one point of the product space, (A₁, …, A_k) and a noise on each part. A row moves
that point by √Σ∥sⱼ∥², which is the ``distance`` here; what it means for a loss is in the law.

Gaussian noise only: ℓ ~ N(μ²/2, μ²) with μ² = Σμⱼ², a closed form again. Norm-Laplace losses and
those of objective perturbation have none; their expected exposures are sampled, the losses of each
release from its own exact law, or from new releases. Under norm-Laplace noise with
∥b∥ = r/β, t = β∥s∥ and c the cosine of the angle between b and s,

    ℓ = ∥b − s∥β − r = t(t − 2rc) / (√((r − tc)² + t²(1 − c²)) + r),     r ~ Gamma(d, 1).
"""

import math
from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
from scipy.special import log_ndtr, ndtr

from expost._numerics import ROUNDOFF, bracket_root
from expost.errors import InvalidInput
from expost.mechanisms.row_losses import RowLosses, mean_exposures
from expost.noise import GaussianLaw, LossLaw, NormLaplaceLaw
from expost.risk import Guarantee
from expost.risk.composition import Composition
from expost.types import FloatArray, Neighbouring

__all__ = ["check_distinct", "combine", "combine_gaussian"]

_SEED = 0
# Releases behind an expected exposure: fewer where models must be fitted, or rows are many.
_FITTED, _DRAWN, _WORK = 64, 1024, 2**26
# A bound on the relative rounding of two normal tails and of what leads to them.
_TAIL_ERROR = 1e-12


def combine(losses: Sequence[RowLosses], *, expected: bool = True) -> RowLosses:
    """Return the losses of independent releases of one data set together: they are summed.

    - ``loss``, ``low``, ``high``: sums, the ends rounded outwards. Where one release has no noise,
      and proves a row, the others cannot take that back.
    - ``distance``: √Σ distance², in the product space of all releases.
    - ``law``: that of μ = √Σμ² under Gaussian noise alone, else None.
    - ``worst_case``: the sum of the worst cases, passed with at most the sum of their
      probabilities; releases with Gaussian noise count as one of μ = √Σμ².
    - ``guarantee``: all guarantees, composed; None where a release guarantees nothing.

    The same release twice is refused: it adds no information. ``expected``: whether expected
    exposures are wanted, for which every part must have a law or be drawn.
    """
    parts = _checked(losses, expected)
    if len(parts) == 1:
        return parts[0]
    noiseless = any(part.noiseless for part in parts)
    law = None if noiseless else _gaussian_law([part.law for part in parts])
    far_law = None if noiseless else _gaussian_law([part.far_law for part in parts])
    sampled = not noiseless and law is None and expected
    worst_case, passed = _worst_case(parts)
    return RowLosses(
        loss=_sum([part.loss for part in parts], towards=None),
        low=_sum([part.low for part in parts], towards=-np.inf),
        high=_sum([part.high for part in parts], towards=np.inf),
        distance=reduce(np.hypot, [part.distance for part in parts]),
        distance_error=_norm_above([part.distance_error for part in parts]),
        relation=parts[0].relation,
        law=law,
        far_law=far_law,
        worst_case=worst_case,
        worst_case_passed=passed,
        noiseless=noiseless,
        guarantee=_composed([part.guarantee for part in parts]),
        sampled=(lambda: _expected_exposures(parts)) if sampled else None,
        draw=(lambda size, rng: _drawn(parts, size, rng)) if sampled else None,
    )


def check_distinct(thetas: Sequence[FloatArray | None]) -> None:
    """Refuse the same θ twice: two draws of any noise are never equal. None: θ is not known."""
    for index, theta in enumerate(thetas):
        for earlier, other in enumerate(thetas[:index]):
            if theta is not None and other is not None and np.array_equal(theta, other):
                raise _twice(earlier, index)


def _twice(first: int, second: int) -> InvalidInput:
    return InvalidInput(
        f"models {first + 1} and {second + 1} are the same release, which adds nothing: pass"
        " each release once."
    )


def _checked(losses: Sequence[RowLosses], expected: bool) -> tuple[RowLosses, ...]:
    parts = tuple(losses)
    if not parts:
        raise InvalidInput("models: must be at least one release.")
    rows, relation = len(parts[0].loss), parts[0].relation
    for index, part in enumerate(parts):
        if len(part.loss) != rows:
            raise InvalidInput(
                f"models: one is of {rows} rows, another of {len(part.loss)}; only releases of the"
                " same rows, in the same order, can be combined."
            )
        if part.relation is not relation:
            raise InvalidInput(
                f"models: one was profiled for {relation.value!r}, another for"
                f" {part.relation.value!r}; profile all for one relation."
            )
        for earlier, other in enumerate(parts[:index]):
            moved = bool(np.any(part.distance > 0))
            same = np.array_equal(part.loss, other.loss)
            if part is other or (moved and same and np.array_equal(part.distance, other.distance)):
                raise _twice(earlier, index)
        if expected and part.law is None and part.draw is None and not part.noiseless:
            raise InvalidInput(
                f"models: the losses of release {index + 1} can neither be drawn nor have a law;"
                " profile it alone."
            )
    return parts


# -- sums ----------------------------------------------------------------------------------------


def _sum(terms: Sequence[FloatArray], *, towards: float | None) -> FloatArray:
    """Return Σ terms, each addition rounded ``towards`` −∞ or +∞ where that is given.

    An end at ∓∞ means that nothing is known there; a term at the other infinity is proved, and wins
    (the loss itself is finite wherever there is noise).
    """
    total = terms[0].copy()
    proved = np.zeros(len(total), dtype=bool) if towards is None else total == -towards
    for term in terms[1:]:
        with np.errstate(invalid="ignore"):
            total = total + term
        if towards is not None:
            total = np.nextafter(total, towards)
            proved |= term == -towards
    if towards is not None:
        total = np.where(proved, -towards, total)
    if np.any(np.isnan(total)):
        raise ArithmeticError("losses that are infinite in both directions have no sum")
    return total


def _norm_above(terms: Sequence[FloatArray]) -> FloatArray:
    """Return √Σ terms², rounded up."""
    norm = reduce(np.hypot, terms)
    rounded: FloatArray = norm * (1 + 4 * len(terms) * ROUNDOFF)
    return rounded


# -- laws ----------------------------------------------------------------------------------------


def _gaussian_law(laws: Sequence[LossLaw | None]) -> GaussianLaw | None:
    """Return N(μ²/2, μ²), μ² = Σμⱼ², the sum of independent normal losses, or None."""
    separations = []
    for law in laws:
        if not isinstance(law, GaussianLaw):
            return None
        separations.append(law.separation)
    return GaussianLaw(separation=reduce(np.hypot, separations))


def _expected_exposures(parts: Sequence[RowLosses]) -> tuple[FloatArray, FloatArray]:
    """Return E∣Σℓⱼ∣ and its standard error, from draws of a fixed seed.

    Releases that would have been refused are left out: no loss of theirs is finite. A row that a
    release proves has an infinite expectation.
    """
    rows = len(parts[0].loss)
    fitted = any(part.draw is not None for part in parts)
    size = _FITTED if fitted else min(max(_WORK // max(rows, 1), _FITTED), _DRAWN)
    drawn = _drawn(parts, size, np.random.default_rng(_SEED))
    some = (losses for losses in drawn if np.any(np.isfinite(losses)))
    with np.errstate(invalid="ignore"):
        mean, error = mean_exposures(some, rows)
    return mean, np.where(np.isfinite(mean), error, np.inf)


def _drawn(parts: Sequence[RowLosses], size: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Yield the summed losses (n,) of all rows in each of ``size`` draws of all releases."""
    streams = [
        _of_law(part.law, part.relation, size, own) if part.draw is None else part.draw(size, own)
        for part, own in zip(parts, rng.spawn(len(parts)), strict=True)
    ]
    for each in zip(*streams, strict=True):
        yield np.sum(each, axis=0)


def _of_law(
    law: LossLaw | None, relation: Neighbouring, size: int, rng: np.random.Generator
) -> Iterator[FloatArray]:
    """Yield losses of all rows from their laws, one draw of the noise for all rows at a time.

    Each row's own law is exact; together the rows do not vary as in one release, and no figure here
    is about more than one row. The laws are of a row that was there: for ADD the sign is turned.
    """
    sign = -1.0 if relation is Neighbouring.ADD else 1.0
    for _ in range(size):
        if isinstance(law, GaussianLaw):
            mu = law.separation
            yield sign * mu * (0.5 * mu + rng.standard_normal())
        elif isinstance(law, NormLaplaceLaw):
            yield sign * _norm_laplace(law.separation, law.dimension, rng)
        else:
            raise InvalidInput(f"models: losses of the law {type(law).__name__} cannot be drawn.")


def _norm_laplace(t: FloatArray, dimension: int, rng: np.random.Generator) -> FloatArray:
    """Return ℓ for one draw of r and of the angle, at every separation t."""
    radius = rng.standard_gamma(dimension)
    along, across = rng.standard_normal(), math.sqrt(2 * rng.standard_gamma((dimension - 1) / 2))
    length = math.hypot(along, across)
    cosine, sine = along / length, across / length
    rest = np.hypot(radius - t * cosine, t * sine)
    loss: FloatArray = t * (t - 2 * radius * cosine) / (rest + radius)
    return loss


# -- guarantees ----------------------------------------------------------------------------------


def _worst_case(parts: Sequence[RowLosses]) -> tuple[float, float]:
    """Return (b, p): no exposure passes b, except with probability p; both rounded up.

    A union bound over the releases, of which those with Gaussian noise are combined first.
    """
    bounds: list[tuple[float, float]] = []
    gaussian: list[tuple[float, float]] = []
    for part in parts:
        normal = isinstance(part.law, GaussianLaw) and part.worst_case < math.inf
        bound = (part.worst_case, part.worst_case_passed)
        (gaussian if normal and part.worst_case_passed > 0 else bounds).append(bound)
    if len(gaussian) == 1:
        bounds += gaussian
    elif gaussian:
        bounds.append(combine_gaussian(gaussian))
    worst_case = _sum_above([worst for worst, _ in bounds])
    if not worst_case < math.inf:
        return math.inf, 0.0
    return worst_case, min(_sum_above([passed for _, passed in bounds]), 1.0)


def _composed(guarantees: Sequence[Guarantee | None]) -> Composition | None:
    """Return all guarantees composed; None where a release guarantees nothing."""
    known = [guarantee for guarantee in guarantees if guarantee is not None]
    return Composition(parts=tuple(known)) if len(known) == len(guarantees) else None


def _sum_above(terms: Sequence[float]) -> float:
    """Return Σ terms, rounded up; exact where it was."""
    total = math.fsum(terms)
    return total if len(terms) == 1 or total == 0 else math.nextafter(total, math.inf)


def combine_gaussian(bounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Combine bounds (ε, p) of normal losses: return the least b that proves P(∣ℓ∣ > b) ≤ Σp.

    P(∣ℓ∣ > ε) = Φ(μ/2 − ε/μ) + Φ(−μ/2 − ε/μ) grows with μ, so that (ε, p) bounds μ; the bounds
    combine to √Σμ². How far a row moves the next centre may depend on the releases before it, and
    a row that moves it no further keeps the evidence there is (:func:`_ever_passed`). By the union
    bound b is at most Σε.

    Parameters
    ----------
    bounds : Sequence[tuple[float, float]]
        (ε, p) of each release: P(∣ℓ∣ > ε) ≤ p.

    Returns
    -------
    tuple[float, float]
        b, rounded up, and Σp, at most 1.
    """
    worst, chance = (np.array(column) for column in zip(*bounds, strict=True))
    room = chance * (1 + _TAIL_ERROR)
    # The μ of P = ½ at the least: P(ℓ > ε) is ½ at μ = √(2ε).
    top = 2 * np.sqrt(2 * worst) + 100.0
    _, mu = bracket_root(lambda mu: _passed(worst, mu) - room, np.zeros_like(worst), top)
    together = float(_norm_above(list(mu[:, None]))[0])
    total = min(_sum_above(list(chance)), 1.0)
    most = _sum_above(list(worst))
    allowed = total * (1 - _TAIL_ERROR)
    _, least = bracket_root(
        lambda b: allowed - _ever_passed(b, np.array(together)), np.array(0.0), np.array(most)
    )
    return float(least), total


def _passed(epsilon: FloatArray, mu: FloatArray) -> FloatArray:
    """Return P(∣ℓ∣ > ε) for ℓ ~ N(μ²/2, μ²), μ > 0."""
    chance: FloatArray = ndtr(mu / 2 - epsilon / mu) + ndtr(-mu / 2 - epsilon / mu)
    return chance


def _ever_passed(bound: FloatArray, mu: FloatArray) -> FloatArray:
    """Bound P(∣ℓ∣ > b) over all releases of Σμⱼ² ≤ μ² whose μⱼ may react to those before.

    Given the past ℓⱼ ~ N(μⱼ²/2, μⱼ²): ℓ is a Brownian motion of drift ½ at a time of at most μ².
    With its reflection at b, and at −b, it has passed ±b by then with probability

        Φ(μ/2 − b/μ) + e^b Φ(−μ/2 − b/μ)   and   Φ(−μ/2 − b/μ) + e^(−b) Φ(μ/2 − b/μ)   at most.
    """
    above, below = mu / 2 - bound / mu, -mu / 2 - bound / mu
    turned = np.exp(bound + log_ndtr(below)) + np.exp(-bound) * ndtr(above)
    chance: FloatArray = ndtr(above) + ndtr(below) + turned
    return chance
