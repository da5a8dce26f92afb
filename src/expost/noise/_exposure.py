"""The law of the exposure a = ∣ℓ∣ as nodes and weights, one rule a row.

Given a, the loss is +a with probability sigmoid(a) and −a otherwise, under both noises; so every
expectation over ℓ is one over a, of positive terms. ``turn`` is where the integrand bends,
∣logit(prior)∣: a sigmoid that is centred inside the interval has poles next to it, which nodes at
an interval's end resolve and those in its middle do not. Hence two panels, [low, turn] and
[turn, high].
"""

from collections.abc import Callable

import numpy as np
from scipy.special import expit, logit

from expost import _checks
from expost._numerics import gauss_legendre, row_blocks
from expost.noise._angle import DROP, NODES, FoldedAngle
from expost.types import FloatArray

__all__ = [
    "BLOCK_WIDTH",
    "by_blocks",
    "expected_posterior",
    "gaussian_exposure",
    "norm_laplace_exposure",
]

BLOCK_WIDTH = 2 * NODES


def by_blocks(
    separation: FloatArray,
    compute: Callable[[FloatArray], FloatArray],
    *,
    at_zero: float,
    at_infinity: float | FloatArray,
    width: int | None = None,
) -> FloatArray:
    """Apply ``compute`` to the positive, finite separations (n,) in blocks; elsewhere the limits.

    The result is (n,), or (n, width) where ``compute`` returns several figures a row.
    """
    result = np.full(separation.shape if width is None else (len(separation), width), at_zero)
    result[separation == np.inf] = at_infinity
    ordinary = np.flatnonzero((separation > 0) & (separation < np.inf))
    for block in row_blocks(len(ordinary), BLOCK_WIDTH):
        rows = ordinary[block]
        result[rows] = compute(separation[rows])
    return result


def norm_laplace_exposure(
    separation: FloatArray, dimension: int, turn: float
) -> tuple[FloatArray, FloatArray]:
    """Return (a, weight), each (n, k), weights of sum 1, under norm-Laplace noise, 0 < t < ∞."""
    if dimension == 1:
        return _one_dimensional(separation, turn)
    angle = FoldedAngle.of(separation, dimension)
    if turn == 0:
        return _normalised(*angle.rule(angle.low, angle.high))
    cut = angle.angle_of(np.minimum(turn, separation))
    near, far = angle.rule(angle.low, cut), angle.rule(cut, angle.high)
    return _normalised(
        np.concatenate([near[0], far[0]], axis=1), np.concatenate([near[1], far[1]], axis=1)
    )


def _one_dimensional(separation: FloatArray, turn: float) -> tuple[FloatArray, FloatArray]:
    """Return the rule of d = 1: the atom ½(1 + e^(−t)) at t, below it ¼e^((a−t)/2)(1 + e^(−a))."""
    reach = np.minimum(separation, 2 * DROP)
    fall, weight = _two_panels(0 * reach, np.clip(separation - turn, 0.0, reach), reach)
    between = np.maximum(separation[:, None] - fall, 0.0)
    weight = 0.25 * weight * np.exp(-0.5 * fall) * (1 + np.exp(-between))
    atom = 0.5 * (1 + np.exp(-separation))
    return _normalised(
        np.concatenate([between, separation[:, None]], axis=1),
        np.concatenate([weight, atom[:, None]], axis=1),
    )


def gaussian_exposure(separation: FloatArray, turn: float) -> tuple[FloatArray, FloatArray]:
    """Return (a, weight) under Gaussian noise: a = μ(μ/2 + z) ≥ 0, z ~ φ(z)(1 + e^(−a))."""
    high = np.full_like(separation, np.sqrt(2 * DROP))
    low = np.maximum(-0.5 * separation, -high)
    with np.errstate(over="ignore"):
        cut = np.clip(turn / separation - 0.5 * separation, low, high)
        score, weight = _two_panels(low, cut, high)
        exposure = separation[:, None] * (0.5 * separation[:, None] + score)
    density = np.exp(-0.5 * score**2) * (1 + np.exp(-exposure))
    return _normalised(exposure, weight * density)


def _two_panels(
    low: FloatArray, turn: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    points, weights = gauss_legendre(NODES)
    halves = np.stack([turn - low, high - turn], axis=1)[:, :, None] / 2
    middles = np.stack([turn + low, high + turn], axis=1)[:, :, None] / 2
    rows = len(low)
    return (middles + halves * points).reshape(rows, -1), (halves * weights).reshape(rows, -1)


def _normalised(exposure: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    return exposure, weight / weight.sum(axis=1, keepdims=True)


def expected_posterior(
    separation: FloatArray,
    exposure: Callable[[FloatArray, float], tuple[FloatArray, FloatArray]],
    prior: float,
) -> FloatArray:
    """Return E[sigmoid(logit(prior) + ℓ)] at each separation, by the rule ``exposure``."""
    prior = _checks.probability("prior", prior)
    turn = abs(float(logit(prior)))

    def posterior(some: FloatArray) -> FloatArray:
        return _mean_posterior(*exposure(some, turn), prior)

    flat = by_blocks(separation.ravel(), posterior, at_zero=prior, at_infinity=1.0)
    return flat.reshape(separation.shape)


def _mean_posterior(exposure: FloatArray, weight: FloatArray, prior: float) -> FloatArray:
    """Return E[sigmoid(logit(prior) + ℓ)]; for prior ½ it is ½(1 + E[tanh²(a/2)])."""
    if prior == 0.5:
        lean: FloatArray = (weight * np.tanh(0.5 * exposure) ** 2).sum(axis=1)
        return np.minimum(0.5 * (1 + lean), 1.0)
    odds = float(logit(prior))
    posterior = expit(exposure) * expit(odds + exposure)
    posterior = posterior + expit(-exposure) * expit(odds - exposure)
    mean: FloatArray = (weight * posterior).sum(axis=1)
    return np.minimum(mean, 1.0)
