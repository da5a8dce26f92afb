"""The tight calibration of objective perturbation for softmax regression.

Of a row with u = p − e_y and S = diag p − ppᵀ, the noise meets ∥u∥² = 1 − 2p_y + ∥p∥² and the
determinants tr S = 1 − ∥p∥²: not both are large. With s = ∥x∥ ≤ 1 and r = K − 1 the determinants'
part of a removal is at most D = log det(I + s²S/λ), which is at most s²·tr S/λ, and at most
c₁ = r·log(1 + 1/(Kλ)) (:mod:`expost.losses`). A share w of it is bounded by the first, the rest by
the second.

gaussian  D + s²∥u∥²/(2σ²) + (s/σ)u·Z ≤ (1 − w)c₁ + [w·s²(1 − ∥p∥²)/λ + s²∥u∥²/(2σ²) + (s/σ)u·Z].
          The bracket is convex in p as long as w/λ ≤ 1/(2σ²), so it is largest at a vertex of the
          simplex, where S = 0: 0 at e_y, and s²/σ² + (s/σ)(Zₖ − Z_y), convex in s, at eₖ. So with
          w = min(1, λ/(2σ²)) and μ = √2/σ

              loss ≤ (1 − w)c₁ + max(0, maxₖ [1/σ² + (Zₖ − Z_y)/σ]),
              δ(ε) ≤ r·δ_Gauss(ε − (1 − w)c₁, μ).

laplace   With m = ∥u∥, tr S = 2(1 − p_y) − m² ≤ 2 − m² ≤ 2√2(√2 − m), so that βm + w·tr S/λ ≤ √2·β
          as long as w ≤ βλ/(2√2): a removal loses at most √2·β + (1 − w)c₁. An exchange adds the
          other row's √2·β; its determinants only help.

So determinants cost nothing once λ ≥ 2σ², or λ ≥ 8/ε.

persons   Of k rows the sum of the brackets, with ∥Σ(s/σ)u ⊗ x∥²/2 for their squares, is convex in
          the p of each row alone as long as w/λ ≤ 1/(2σ²), so it is largest where every p is a
          vertex: loss ≤ k(1 − w)c₁ + F, with F of :mod:`.person_noise`, and
          δ(ε) ≤ r·δ_Gauss(ε − k(1 − w)c₁, kμ) where ε − k(1 − w)c₁ ≥ k(k − 1)μ²/2.
"""

import math
from functools import lru_cache

import numpy as np

from expost._numerics import bracket_root
from expost.accounting import gaussian_delta
from expost.errors import ConvergenceError
from expost.mechanisms.person_noise import person_scale
from expost.types import FloatArray

__all__ = ["softmax_rate", "softmax_scale", "softmax_spent"]

# Relative error of δ_Gauss, with room.
_ERROR = 1e-11
_HALVINGS = 60


def _most_spent(epsilon: float, penalty: float, classes: int, rows: int = 1) -> float:
    """c₁ of every row, together."""
    spent = rows * ((classes - 1) * math.log1p(1 / (classes * penalty)))
    if not spent < epsilon:
        raise ConvergenceError("the penalty is too small for this epsilon: raise it.")
    return spent


def softmax_spent(scale: float, penalty: float, classes: int) -> float:
    """(1 − w)c₁: what of ε the determinants may cost under Gaussian noise."""
    left = max(0.0, 1 - penalty / (2 * scale * scale))
    return left * _most_spent(math.inf, penalty, classes)


def softmax_rate(epsilon: float, penalty: float, classes: int) -> float:
    """The largest β with 2√2·β + (1 − w)c₁ ≤ ε, w = min(1, βλ/(2√2)), rounded down."""
    longest = 2 * math.sqrt(2)
    rate = epsilon / longest
    if penalty * epsilon < 8:
        spent = _most_spent(epsilon, penalty, classes)
        # λc₁ ≤ 1 − 1/K.
        rate = (epsilon - spent) / (longest * (1 - penalty * spent / 8))
    return rate * (1 - 1e-14)


@lru_cache(maxsize=256)
def softmax_scale(
    epsilon: float, delta: float, penalty: float, classes: int, rows: int = 1
) -> float:
    """Return the least σ with which removing and adding ``rows`` rows are (ε, δ), rounded up."""
    share, sensitivity = delta / (classes - 1), math.sqrt(2)
    least = person_scale(epsilon, share, sensitivity, rows)
    if penalty >= 2 * least**2 * (1 + 1e-14):
        return least
    spent = _most_spent(epsilon, penalty, classes, rows)
    # Proved without the coupling.
    most = person_scale(epsilon - spent, share, sensitivity, rows)

    def kept(scale: FloatArray) -> FloatArray:
        sigma = float(scale)
        left = epsilon - rows * softmax_spent(sigma, penalty, classes)
        if left < rows * (rows - 1) / sigma**2 * (1 + 1e-14):
            return np.asarray(-1.0)
        mu = math.nextafter(rows * sensitivity / sigma, math.inf)
        return np.asarray(share - gaussian_delta(left, mu) * (1 + _ERROR))

    _, above = bracket_root(kept, least, most, halvings=_HALVINGS)
    return float(above) if kept(above) >= 0 else most
