"""What a mechanism that is calibrated to one row promises a person who has k of them.

Formal guarantees
-----------------
Removing all k rows at once, n, Λ (or λ) and the law of the noise kept; ε, δ are those of a row.

output, laplace      ∣loss∣ ≤ kε. ∇J(A; D_S) = −Σ_S(∇ℓᵢ − mean ∇ℓ)/(n − k) has norm at most 2kL/n:
                     Σ_S ∇ℓᵢ − k·mean ∇ℓ = (1 − k/n)Σ_S − (k/n)Σ_rest is at most 2kL(n − k)/n long.
                     So A moves by at most 2kL/(nΛ), the solver by 2η/Λ as ever: at most kΔ.
output, gaussian     that is μ_k ≤ kμ, and P(∣ℓ∣ > b) grows with μ. At b = kε + k(k − 1)μ²/2,
                     kμ/2 − b/(kμ) = μ/2 − ε/μ and −kμ/2 − b/(kμ) ≤ −μ/2 − ε/μ: passed no more
                     often than a row passes ε.
objective, laplace   ∣loss∣ ≤ kε: k removals one after the other, each of which loses at most ε,
                     for the proof asks for λ, L and c, and not for how many rows there are.
objective, gaussian  With aᵢ = ∣f′ᵢ∣∥xᵢ∥/σ ≤ A and Zᵢ ~ N(0, 1) the component of b along −yᵢxᵢ (not
                     independent of each other), ∥Σ∇ℓᵢ∥²/2σ² ≤ (Σaᵢ)²/2 ≤ kΣaᵢ²/2, and the
                     determinants are at most Σlog(1 + f″ᵢ∥xᵢ∥²/λ). So

                         loss ≤ Σᵢ [log(1 + f″ᵢ∥xᵢ∥²/λ) + aᵢ²/2 + aᵢZᵢ + (k − 1)A²/2]

                     whose bracket, but for its last term, is what bounds a row's loss from Zᵢ.
                     If the sum passes kε + k(k − 1)A²/2, one of the brackets passes ε: with
                     probability at most k times that of a row. Downwards −loss ≤ Σaᵢ(−Zᵢ), which
                     passes that with probability at most kΦ(−ε/A − (k − 1)A/2), for k ≥ 2 at most
                     k times a row's Φ(−ε/A − A/2). For K classes the brackets are those of
                     :mod:`.objective`, A = √2/σ, and the argument is the same.

As a guarantee (ε, δ) of a row is (kε, δ(e^(kε) − 1)/(e^ε − 1)) of k rows; noise on a minimiser has
its own: norm-Laplace at separation kε, Gaussian at kμ.
"""

import math

from expost._numerics import ROUNDOFF
from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.output import OutputPerturbation
from expost.risk import EpsilonDelta, GaussianNoise, Guarantee, NormLaplaceNoise

__all__ = ["group_guarantee", "group_worst_case"]

# The few operations behind each figure round up.
_UP = 1 + 16 * ROUNDOFF


def group_worst_case(
    mechanism: OutputPerturbation | ObjectivePerturbation, rows: int
) -> tuple[float, float]:
    """(b, p): the exposure of a person of ``rows`` rows passes b with probability p at most."""
    worst, passed = mechanism.worst_case, mechanism.worst_case_passed
    if rows == 1 or not worst < math.inf:
        return worst, passed
    if mechanism.noise == "laplace":
        return rows * worst, passed
    if isinstance(mechanism, OutputPerturbation):
        apart, times = mechanism.sensitivity / mechanism.resolution, 1
    else:
        apart, times = mechanism.slope_bound / mechanism.resolution, rows
    bound = (rows * worst + rows * (rows - 1) * apart * apart / 2) * _UP
    return bound, min(times * passed * _UP, 1.0)


def group_guarantee(mechanism: OutputPerturbation | ObjectivePerturbation, rows: int) -> Guarantee:
    """The promise about two data sets of which one lacks all of a person's ``rows`` rows."""
    if rows == 1 or not mechanism.worst_case < math.inf:
        return mechanism.guarantee
    if mechanism.noise == "laplace":
        epsilon = rows * mechanism.epsilon
        if isinstance(mechanism, OutputPerturbation):
            return NormLaplaceNoise(separation=epsilon, dimension=mechanism.dimension)
        return EpsilonDelta(epsilon=epsilon)
    if isinstance(mechanism, OutputPerturbation):
        return GaussianNoise(mu=rows * mechanism.sensitivity / mechanism.resolution * _UP)
    assert mechanism.delta is not None
    return _grouped(mechanism.epsilon, mechanism.delta, rows)


def _grouped(epsilon: float, delta: float, rows: int) -> EpsilonDelta:
    """(kε, δ(e^(kε) − 1)/(e^ε − 1)), or no promise where that δ reaches 1."""
    # Where the exponent is this large, only a δ below 1e-304 would leave a promise: none is made.
    if (rows - 1) * epsilon > 700:
        return EpsilonDelta(epsilon=math.inf)
    growth = math.exp((rows - 1) * epsilon) * math.expm1(-rows * epsilon) / math.expm1(-epsilon)
    together = delta * growth * (1 + 1e-12)
    if not together < 1:
        return EpsilonDelta(epsilon=math.inf)
    return EpsilonDelta(epsilon=rows * epsilon, delta=together)
