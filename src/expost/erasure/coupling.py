"""The rule of an erasure: keep the released model, or draw another one (docs/theory/erasure.md).

    keep     θ, with probability min(1, e^(−ℓ(θ)));
    redraw   else draw θ′ from Q until one is accepted, with probability (1 − e^(ℓ(θ′)))₊.

Proposition 1. If θ ~ P, and the request does not depend on θ, then the result has the law Q. What
is kept has the density min(P, Q), of mass 1 − T with T = TV(P, Q); what is redrawn has (Q − P)₊/T,
with probability T. The sum is Q.

Every ℓ is known within an interval. A coin that falls into it counts as "do not keep", or as "do
not accept". With w a bound on the width of the intervals the law of the result is within 2w of Q in
total variation: 2·TV is at most ∫P∣κ̂ − κ∣ + ∣(1 − K̂) − Â∣ + ∫Q∣â − a∣ ≤ w + 2w + w, where κ and a
are the probabilities of keeping and accepting, and K, A their means.

If none of N draws is accepted, the next one is taken. Where Â ≥ 10/N that has a probability of at
most (Â + 2w)(1 − Â)^N ≤ 1/(eN) + 2w·e^(−10). Otherwise the model is kept with probability
K̂ ≥ 1 − Â − 2w and has at most the density Q then, so that TV ≤ 10/N + 2w.
"""

from dataclasses import dataclass

import numpy as np

from expost.mechanisms.grid import Grid
from expost.mechanisms.law_pairs import LawPair, Perturbed, Ratio, centre_error
from expost.mechanisms.ratio_error import UNLIKELY, clamp_probability, ratio_error
from expost.noise.coins import exponentials
from expost.types import FloatArray

__all__ = ["Coupled", "couple", "total_variation"]

# Coins have 64 random bits, and their logarithms one rounding.
_COINS = 1e-14
# Draws of a remainder. If none of them is accepted the two laws nearly agree, and one is kept.
_MOST_TRIES = 10**7
# e^(−10): what is left of 10 expected acceptances.
_UNFINISHED = 5e-5


@dataclass(frozen=True, kw_only=True, eq=False)
class Coupled:
    """The result of one coupling. Curator-only.

    Attributes
    ----------
    theta : FloatArray
        The model after the change, on the grid.
    is_kept : bool
        Whether it is the model before.
    ratio : Ratio | None
        ℓ at the model before; None where that lay on the clamp of the grid and was not compared.
    tries : int
        The number of draws from Q.
    """

    theta: FloatArray
    is_kept: bool
    ratio: Ratio | None
    tries: int

    @property
    def keeping(self) -> tuple[float, float]:
        """The interval of the probability with which the model before is kept."""
        if self.ratio is None:
            return 0.0, 0.0
        low, high = (float(np.exp(-max(end, 0.0))) for end in (self.ratio.high, self.ratio.low))
        return low, high


def couple(
    pair: LawPair,
    theta: FloatArray,
    grid: Grid,
    *,
    coin: float | None = None,
    rng: np.random.Generator | None = None,
) -> Coupled:
    """Keep a released model, or redraw it, so that the result has the law after the change.

    Parameters
    ----------
    pair : LawPair
        P and Q.
    theta : FloatArray
        The released θ ~ P, on the grid.
    grid : Grid
        The grid of both releases.
    coin : float, optional
        The exponential that decides whether θ is kept, drawn before; None: drawn here.
    rng : np.random.Generator, optional
        For simulation and tests; None: the operating system's randomness.

    Returns
    -------
    Coupled
        The model after the change.
    """
    if coin is None:
        coin = float(exponentials(1, rng)[0])
    if grid.is_clamped(theta):
        # Its cell is unbounded. How often that happens is part of the error.
        return Coupled(theta=_fresh(pair, grid, rng), is_kept=False, ratio=None, tries=1)
    ratio = pair.ratio(pair.point_of(theta, rng))
    if not ratio.error <= pair.error_bound:
        # The noise is longer than the bound assumes; its probability is part of the error, too.
        return Coupled(theta=_fresh(pair, grid, rng), is_kept=False, ratio=ratio, tries=1)
    if coin > ratio.high:
        return Coupled(theta=theta, is_kept=True, ratio=ratio, tries=0)
    for tries in range(1, _MOST_TRIES):
        other = float(exponentials(1, rng)[0])
        point = pair.draw(other, rng)
        # Accepted with probability 1 − e^ℓ: the exponential is at most −ℓ.
        if point is not None and _is_accepted(pair.ratio(point), pair.error_bound, other):
            return Coupled(theta=grid.snap(point), is_kept=False, ratio=ratio, tries=tries)
    return Coupled(theta=_fresh(pair, grid, rng), is_kept=False, ratio=ratio, tries=_MOST_TRIES)


def total_variation(before: Perturbed, after: Perturbed) -> float:
    """Bound the total variation between the law of a coupled model and that of a fresh one.

    Parameters
    ----------
    before, after : OutputPerturbation or ObjectivePerturbation
        The mechanism with the number of rows before and after the change.

    Returns
    -------
    float
        The bound, from public constants; of models that are moved by ``LawPair.distance`` at most.
    """
    width = 2 * ratio_error(before, after) + 2 * UNLIKELY
    total = 2 * width * (1 + _UNFINISHED) + 10 / _MOST_TRIES + _COINS
    return min(total + centre_error(before) + clamp_probability(before), 1.0)


def _fresh(pair: LawPair, grid: Grid, rng: np.random.Generator | None) -> FloatArray:
    """Return a draw from Q on the grid."""
    point = pair.draw(-np.inf, rng)
    assert point is not None
    return grid.snap(point)


def _is_accepted(ratio: Ratio, bound: float, coin: float) -> bool:
    """Return whether a draw is accepted; not where its ℓ is known less precisely than assumed."""
    return ratio.error <= bound and coin <= -ratio.high
