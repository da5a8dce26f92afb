"""Intervals and p-values of the checks, each exact where the claims hold.

An interval at ``level`` misses the true value with that probability. A p-value is at most ``a``
with probability ``a``, or less.
"""

import math

import numpy as np
from scipy import stats

from expost.types import FloatArray

__all__ = [
    "Interval",
    "cosine_p_value",
    "count_quantiles",
    "extreme_p_value",
    "law_p_value",
    "mean_interval",
    "normal_scores",
    "ratio_interval",
    "scale_interval",
    "successive_p_value",
    "uniform_p_value",
]

Interval = tuple[float, float]


def mean_interval(values: FloatArray, level: float) -> Interval:
    """Return Student's interval of the mean of normal values."""
    middle = float(np.mean(values))
    width = float(stats.t.isf(level / 2, len(values) - 1))
    half = width * float(np.std(values, ddof=1)) / np.sqrt(len(values))
    return middle - half, middle + half


def scale_interval(squares: float, count: int, level: float) -> Interval:
    """Return the interval of the standard deviation of ``count`` normal values with mean 0."""
    low, high = (float(stats.chi2.isf(tail, count)) for tail in (level / 2, 1 - level / 2))
    return float(np.sqrt(squares / low)), float(np.sqrt(squares / high))


def ratio_interval(values: FloatArray, others: FloatArray, level: float) -> Interval:
    """Return the interval of the ratio of two standard deviations of normal values with mean 0."""
    ratio = np.mean(np.square(values)) / np.mean(np.square(others))
    sizes = values.size, others.size
    low, high = (float(stats.f.isf(tail, *sizes)) for tail in (level / 2, 1 - level / 2))
    return float(np.sqrt(ratio / low)), float(np.sqrt(ratio / high))


def uniform_p_value(quantiles: FloatArray) -> float:
    """Return the p-value of Kolmogorov and Smirnov's test that values are uniform on [0, 1]."""
    return float(stats.kstest(quantiles, stats.uniform.cdf).pvalue)


def normal_scores(quantiles: FloatArray) -> FloatArray:
    """Return standard normals for values that are uniform on [0, 1]."""
    scores: FloatArray = stats.norm.ppf(np.clip(quantiles, 1e-15, 1 - 1e-15))
    return scores


def law_p_value(quantiles: FloatArray) -> float:
    """Return the p-value of three tests that values are uniform: of shape, spread and mean.

    Spread and mean are those of their normal scores; each p-value counts three times.
    """
    scores = normal_scores(quantiles)
    squares = float(np.sum(np.square(scores)))
    tails = stats.chi2.cdf(squares, len(scores)), stats.chi2.sf(squares, len(scores))
    spread = 2 * float(min(tails))
    mean = 2 * float(stats.norm.sf(abs(np.sum(scores)) / np.sqrt(len(scores))))
    return min(1.0, 3 * uniform_p_value(quantiles), 3 * spread, 3 * mean)


def extreme_p_value(scores: FloatArray) -> float:
    """Return the p-value of the largest absolute value of standard normals, from both sides."""
    tail = min(2 * float(stats.norm.sf(np.max(np.abs(scores)))), 1 - 1e-15)
    log_below = scores.size * float(np.log1p(-tail))
    return float(min(1.0, 2 * np.exp(log_below), -2 * np.expm1(log_below)))


def cosine_p_value(vectors: FloatArray) -> tuple[float, float]:
    """Return the largest absolute cosine between two of the vectors, and a bound of its p-value.

    The cosine r of independent normal vectors in D dimensions has r² ~ Beta(½, (D − 1)/2). The
    bound is the sum over all pairs.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions = vectors / np.maximum(lengths, np.finfo(float).tiny)
    cosines = np.abs(np.triu(directions @ directions.T, 1))
    largest = float(min(np.max(cosines), 1.0))
    pairs = len(vectors) * (len(vectors) - 1) // 2
    each = stats.beta.sf(largest**2, 0.5, (vectors.shape[1] - 1) / 2)
    return largest, min(1.0, pairs * float(each))


def successive_p_value(*series: FloatArray) -> tuple[float, float]:
    """Return the correlation of successive steps, over all columns of all series, and its p-value.

    A series has (steps, columns) independent normal values with mean 0, with the same scale in
    all series. The sum of products of successive steps is ⟨odd, around⟩, with the values of odd
    steps, and the sums of the values before and after them. These two vectors are independent, so
    that the law of their cosine is exact (``cosine_p_value``).
    """
    odd, around = [], []
    products = before_squared = after_squared = 0.0
    for values in series:
        odd.append(values[1::2].ravel())
        neighbours = values[:-1:2].copy()
        neighbours[: len(values[2::2])] += values[2::2]
        around.append(neighbours.ravel())
        products += float(np.sum(values[:-1] * values[1:]))
        before_squared += float(np.sum(np.square(values[:-1])))
        after_squared += float(np.sum(np.square(values[1:])))
    _, p_value = cosine_p_value(np.stack([np.concatenate(odd), np.concatenate(around)]))
    lengths = max(math.sqrt(before_squared * after_squared), float(np.finfo(float).tiny))
    return products / lengths, p_value


def count_quantiles(
    values: FloatArray, trials: int, rate: float, noise: float, opposite: int = 0
) -> FloatArray:
    """Return the quantile of each value in the law of Bin(trials, rate) + N(0, noise²).

    ``opposite``: less an independent Bin(opposite, rate).
    """
    counts, weights = _binomial(trials, rate)
    if opposite:
        others, their_weights = _binomial(opposite, rate)
        weights = np.convolve(weights, their_weights[::-1])
        counts = np.arange(counts[0] - others[-1], counts[-1] - others[0] + 1)
    law = stats.norm.cdf((np.asarray(values)[:, None] - counts) / noise)
    quantiles: FloatArray = np.clip(law @ weights / weights.sum(), 0.0, 1.0)
    return quantiles


def _binomial(trials: int, rate: float) -> tuple[FloatArray, FloatArray]:
    """Return the counts within twelve standard deviations, and their probabilities."""
    spread = np.sqrt(trials * rate * (1 - rate))
    low = max(0, int(trials * rate - 12 * spread - 12))
    high = min(trials, int(trials * rate + 12 * spread + 12))
    counts = np.arange(low, high + 1, dtype=float)
    return counts, stats.binom.pmf(counts, trials, rate)
