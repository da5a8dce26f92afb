"""The coverage of a model by a mechanism whose density is unknown, by drawing from it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from expost import _checks
from expost._counts import lower_limit, upper_limit
from expost._numerics import row_blocks, spawned_seeds
from expost.errors import InvalidInput
from expost.results import Displayed
from expost.types import Audience, FloatArray

__all__ = ["Coverage", "Sampler", "empirical_coverage"]

Sampler = Callable[[int, np.random.Generator], Any]


@dataclass(frozen=True, kw_only=True)
class Coverage(Displayed):
    """C(D, θ) = P(∥𝒜(D) − θ∥ ≤ radius), estimated (LeBlond 4.1, footnote 1).

    Curator-only: the coverage by the data without a row reveals the privacy loss of that row.

    Parameters
    ----------
    probability : float
        The fraction ``inside``/``samples`` of draws that lie within the radius.
    low, high : float
        The Clopper–Pearson interval: it holds the coverage with probability at least
        ``confidence``, however small the coverage or the number of draws is.
    inside : int
        The number of draws within the radius.
    samples : int
        The number of draws.
    radius : float
        The radius of the ball around the model.
    confidence : float
        The confidence of the interval.
    """

    probability: float
    low: float
    high: float
    inside: int
    samples: int
    radius: float
    confidence: float

    audience = Audience.CURATOR_ONLY


def empirical_coverage(
    sampler: Sampler,
    model: Any,
    radius: float,
    samples: int,
    *,
    confidence: float = 0.95,
    random_state: int | np.random.Generator | None = None,
) -> Coverage:
    """Return the share of a mechanism's draws that fall within ``radius`` of ``model`` (d,).

    The sampler is called with blocks of about 2 MiB, whose size depends on d alone and whose seeds
    are drawn beforehand: the result depends on the arguments and on nothing else. A mechanism that
    draws one model at a time: ``lambda size, rng: np.stack([draw(rng) for _ in range(size)])``.

    Parameters
    ----------
    sampler : callable
        ``sampler(size, rng)`` returns (size, d): that many independent draws of the mechanism on
        one data set, all of their randomness taken from ``rng``.
    model : array of shape (d,)
        The centre θ of the ball.
    radius : float
        The radius of the ball.
    samples : int
        The number of draws.
    confidence : float, default=0.95
        The confidence of the Clopper–Pearson interval.
    random_state : int, Generator or None, default=None
        A seed or a generator, for a reproducible result.

    Returns
    -------
    Coverage
        The share of draws in the ball, and its interval.

    Raises
    ------
    InvalidInput
        If an argument is out of range, or the sampler returns draws of another shape.
    """
    if not callable(sampler):
        raise InvalidInput("sampler: must be a function of (size, rng) that returns draws.")
    centre = _checks.vector(model, name="model")
    if len(centre) < 1:
        raise InvalidInput("model has 0 entries: must have at least one.")
    radius = _checks.positive("radius", radius)
    samples = _checks.integer("samples", samples, least=1)
    confidence = _checks.probability("confidence", confidence)
    blocks = list(row_blocks(samples, len(centre)))
    inside = 0
    for block, seed in zip(blocks, spawned_seeds(random_state, len(blocks)), strict=True):
        draws = _draw(sampler, block.stop - block.start, len(centre), seed)
        inside += int(np.count_nonzero(np.linalg.norm(draws - centre, axis=1) <= radius))
    miss = (1 - confidence) / 2
    low, high = lower_limit(inside, samples, miss), upper_limit(inside, samples, miss)
    return Coverage(
        probability=inside / samples,
        low=low,
        high=high,
        inside=inside,
        samples=samples,
        radius=radius,
        confidence=confidence,
    )


def _draw(sampler: Sampler, size: int, dimension: int, seed: np.random.SeedSequence) -> FloatArray:
    drawn = sampler(size, np.random.default_rng(seed))
    draws = _checks.matrix(drawn, name="sampler(size, rng)", min_rows=1)
    if draws.shape != (size, dimension):
        raise InvalidInput(
            f"sampler(size, rng) has shape {draws.shape} for size={size}: must be ({size},"
            f" {dimension}), one draw a row, as long as the model."
        )
    return draws
