"""Lower bounds on ε from one training whose rows were chosen by coins.

Conventions
-----------
m canaries, each in the training data by a fair coin of its own. From the output, and without the
coins, exactly r of them are guessed: some "in", some "out"; the attack abstains on the rest. W
guesses are right. N = m; N = m/2 if all guesses are "in" (or all "out").

Let p_k = P(W = k). If training is (ε, δ)-private with respect to each canary, then
(docs/theory/mathematics-audit.md, sections 3 and 4)

    Σ_k ((k + 1)·p_(k+1) − e^ε (r − k)·p_k)₊ ≤ N·δ,                                           (1)

which implies the two bounds on P(W ≥ v) below. With δ = 0 it is the binomial tail of Steinke,
Nasr and Jagielski (2023). With δ > 0 it is sharper than theirs, and sharp: a mechanism reaches it.
For a whole curve δ(ε), as of Gaussian noise, (1) holds at every ε at once: the constraint of
Mahloujifar, Melis and Chaudhuri (2024), for more events than theirs.

Coins need not be fair. Where canary i is a member with probability pᵢ, its propensity, a guess that
is right with odds o before training is right with odds e^ε·o after it, and W lies below a sum of
independent coins of these odds, except with the probability that δ adds (section 6).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betainc, expit, gammaln, i0e, i1e, logit, ndtr, ndtri

from expost import _checks
from expost._numerics import bracket_root
from expost.auditing.evidence import Flags
from expost.auditing.lower_bounds import LowerBound, checked, epsilon_of_mu
from expost.auditing.roc import checked_scores
from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = [
    "Guesses",
    "Priors",
    "checked_propensity",
    "count_law",
    "epsilon_lower_bound",
    "gaussian_p_value",
    "make_guesses",
    "p_value",
]

# (share of the canaries guessed "in", share guessed "out"): fixed before any coin is used; the
# failure probability is divided among them.
_SHARES = ((0.5, 0.5), (0.25, 0.25), (0.1, 0.1), (0.03, 0.03), (0.05, 0.0))
_TIES = 1
# No ε or μ beyond this is refuted; below, to about five digits.
_LARGEST = 64.0
_HALVINGS = 24
_RESOLUTION = 1e-6
# The mean of W above v is unknown; this many values are tried, and each gives a valid bound.
_TAILS = 16
# The largest number of events used; leaving some out only weakens the bound.
_EVENTS = 4000
# The largest log a whose exponential can still be multiplied in float64.
_STEEPEST = 300.0
# More than the rounding error of a sum of this many events.
_SLACK = 1e-7
# Rows that are members, or non-members, with a probability below this say little about ε, and let
# δ cost more: they are no canaries.
_LEAST_PROPENSITY = 0.05
# More than the rounding error of the law of a count, which Fourier transforms compute.
_TRANSFORMED = 1e-9
# The ends of the intervals of ε on which the cost of δ is bounded; from the last on it is nil.
_EPSILONS = np.arange(0.0, 24.25, 0.25)


@dataclass(frozen=True, kw_only=True, eq=False)
class Priors:
    """What is known of the guesses before training, where coins are not fair.

    Parameters
    ----------
    guessed : FloatArray
        (r,) the log odds that each guess is right.
    propensity : FloatArray
        (m,) the probability that each canary is a member.
    """

    guessed: FloatArray
    propensity: FloatArray


class Guesses(NamedTuple):
    """``right`` of ``guesses`` about ``canaries``; ``one_sided`` if all guesses are "in".

    ``priors`` None: every coin is fair.
    """

    right: int
    guesses: int
    canaries: int
    one_sided: bool = False
    priors: Priors | None = None

    @property
    def weight(self) -> float:
        """The weight N of δ in (1)."""
        return self.canaries / 2 if self.one_sided else float(self.canaries)


def epsilon_lower_bound(
    scores: Any,
    truth: Any,
    *,
    coins: bool,
    delta: float = 1e-5,
    confidence: float = 0.95,
    gaussian: bool = False,
    propensity: Any = None,
    chosen_from: int = 1,
    random_state: int = 0,
) -> LowerBound:
    """Return a lower bound on ε from one training.

    Parameters
    ----------
    scores : Any
        (m,) the score of each canary.
    truth : Any
        (m,) whether the canary was in the training data.
    coins : bool
        Must be True: states that each canary was included by a coin of its own, fair or with its
        ``propensity``, and that the scores depend on the coins only through the model. Otherwise
        nothing follows: members and non-members may differ in kind.
    gaussian : bool, default=False
        The hypothesis is that training is μ-GDP; the result is the ε(δ) of the least μ. Without
        effect if propensities differ from ½: the bound then needs no hypothesis.
    propensity : Any, optional
        (m,) the probability with which each canary was included; None: ½. Canaries with less than
        0.05, or more than 0.95, are left out.
    chosen_from : int, default=1
        The number of attacks from which the scores were chosen by their success on these rows; the
        failure probability is divided by it.
    random_state : int, default=0
        Breaks ties. The order of the rows, which may depend on the coins, does not.

    Notes
    -----
    The highest scores are guessed "in", the lowest "out", in five amounts that are fixed here. The
    best of the five is returned, each at a fifth of the failure probability.
    """
    delta, confidence = checked(delta, confidence, gaussian)
    scores, truth = checked_scores(scores, truth)
    if coins is not True:
        raise InvalidInput(
            f"coins={coins!r}: rows of one model bound ε only if each was included by a fair coin"
            " of its own, or one of known propensity; pass coins=True if so, else use"
            " expost.auditing.lower_bounds."
        )
    miss = (1 - confidence) / len(_SHARES) / _checks.integer("chosen_from", chosen_from, least=1)
    chances = None if propensity is None else checked_propensity(propensity, len(scores))
    if chances is not None and np.all(chances == 0.5):
        chances = None
    if chances is not None:
        gaussian = False
        kept = np.minimum(chances, 1 - chances) >= _LEAST_PROPENSITY
        scores, truth, chances = scores[kept], truth[kept], chances[kept]
        if not len(scores):
            return _no_overlap(delta, confidence)
    tried = make_guesses(scores, truth, random_state, chances)
    epsilon, best = _most_refuted(tried, delta, miss, gaussian)
    perfect = [guesses._replace(right=guesses.guesses) for guesses in tried]
    return LowerBound(
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        method=_method(gaussian, chances is not None),
        detail=(
            f"{best.right} of {best.guesses} guesses right about {best.canaries} rows included"
            f" {'by coins' if chances is None else 'with the given probabilities'}"
        ),
        most=_most_refuted(perfect, delta, miss, gaussian)[0],
        assumption="that training is μ-GDP, as Gaussian noise alone makes it" if gaussian else "",
    )


def _method(gaussian: bool, unfair: bool) -> str:
    return "One training" + (", Gaussian noise" if gaussian else ", propensities" if unfair else "")


def _no_overlap(delta: float, confidence: float) -> LowerBound:
    """Return the void bound of rows that are all but certain to be members, or not to be."""
    return LowerBound(
        epsilon=0.0,
        delta=delta,
        confidence=confidence,
        method=_method(False, True),
        detail="no row could have been a member as well as a non-member",
        most=0.0,
    )


def checked_propensity(propensity: Any, rows: int) -> FloatArray:
    """Return (rows,) probabilities of membership; one number is that of every row."""
    values = np.asarray(propensity)
    if values.ndim == 0:
        values = np.full(rows, values)
    if values.shape != (rows,) or values.dtype.kind not in "biuf":
        raise InvalidInput(f"propensity: must be a number, or {rows} of them, one for each row.")
    values = values.astype(np.float64)
    if not np.all((values >= 0) & (values <= 1)):
        raise InvalidInput("propensity: must be probabilities, from 0 to 1.")
    return values


def make_guesses(
    scores: FloatArray, truth: Flags, seed: int, propensity: FloatArray | None = None
) -> list[Guesses]:
    """Guess rows by their scores in each of the five amounts; ``truth`` only counts right ones.

    Parameters
    ----------
    scores : FloatArray
        (n,) the larger, the more likely a member.
    truth : Flags
        (n,) whether the row is a member.
    seed : int
        Breaks ties, by a stream of its own: the coins may have been drawn with the same seed.
    propensity : FloatArray, optional
        (n,) the probability with which each row is a member; None: ½.

    Returns
    -------
    list[Guesses]
        The guesses of each amount.
    """
    count = len(scores)
    ties = np.random.SeedSequence(seed, spawn_key=(_TIES,))
    order = np.random.default_rng(ties).permutation(count)
    order = order[np.argsort(-scores[order], kind="stable")]
    falling = truth[order]
    tried = []
    for share_in, share_out in _SHARES:
        ins = max(1, math.floor(share_in * count))
        outs = math.floor(share_out * count)
        right = int(falling[:ins].sum()) + int((~falling[count - outs :]).sum())
        priors = None
        if propensity is not None:
            odds = logit(propensity[order])
            guessed = np.concatenate([odds[:ins], -odds[count - outs :]])
            priors = Priors(guessed=guessed, propensity=propensity)
        tried.append(Guesses(right, ins + outs, count, outs == 0, priors))
    return tried


def _most_refuted(
    tried: list[Guesses], delta: float, miss: float, gaussian: bool
) -> tuple[float, Guesses]:
    """Return the largest ε that the guesses refute at ``miss`` (0 if none), and which of them."""
    largest, best = 0.0, tried[0]
    for guesses in tried:
        # Most need no search: they do not refute more than another already has.
        if _surplus(guesses, largest + _RESOLUTION, delta, miss, gaussian) <= 0:
            refuted = _largest_refuted(guesses, delta, miss, gaussian)
            largest, best = max((largest, best), (refuted, guesses))
    return (epsilon_of_mu(largest, delta) if gaussian else largest), best


@lru_cache(maxsize=2**12)
def _largest_refuted(guesses: Guesses, delta: float, miss: float, gaussian: bool) -> float:
    """Return an ε (or μ) that is refuted, and with it every smaller one, a stronger guarantee."""

    def surplus(value: FloatArray) -> FloatArray:
        return np.asarray(_surplus(guesses, float(value), delta, miss, gaussian))

    below, _ = bracket_root(surplus, _RESOLUTION, _LARGEST, halvings=_HALVINGS)
    return float(below)


def _surplus(guesses: Guesses, value: float, delta: float, miss: float, gaussian: bool) -> float:
    """Return a number above 0 if ε (or μ) = ``value`` is not refuted."""
    bound = gaussian_p_value(guesses, value, miss) if gaussian else p_value(guesses, value, delta)
    return bound * (1 + _SLACK) - miss


# -- (ε, δ) ----------------------------------------------------------------------------------------


def p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Return the largest P(W ≥ v) under (ε, δ): β + N·δ·β·(1 − β)/(v·b).

    β = P(B ≥ v) and b = P(B = v) of B ~ Binomial(r, e^ε/(1 + e^ε)). Where coins are not fair, the
    coins of B have odds e^ε·o, o those of each guess, and δ adds what :func:`_cost` bounds.
    """
    v, r = guesses.right, guesses.guesses
    if v == 0:
        return 1.0
    if guesses.priors is not None:
        tail = float(count_law(expit(guesses.priors.guessed + epsilon))[v:].sum()) + _TRANSFORMED
        return min(1.0, tail + delta * _cost(r, guesses.one_sided, guesses.priors))
    # P(B ≥ v) and P(B < v) as beta integrals.
    beta = float(betainc(v, r - v + 1, expit(epsilon)))
    rest = float(betainc(r - v + 1, v, expit(-epsilon)))
    if rest == 0 or delta == 0:
        return beta
    ratio = float(_tail_over_term(v, r, np.asarray(math.exp(epsilon))))
    return min(1.0, beta + guesses.weight * delta * rest * ratio / v)


def _tail_over_term(v: int, r: int, slope: FloatArray) -> FloatArray:
    """Return an upper bound on P(B ≥ v)/P(B = v) of B ~ Binomial(r, a/(1 + a)).

    Both may underflow in float64. Then v is far above the mean, each term of the tail is at most
    ρ = a·(r − v)/(v + 1) times the previous term, and the ratio at most 1/(1 − ρ).
    """
    q = slope / (1 + slope)
    log_term = (
        gammaln(r + 1)
        - gammaln(v + 1)
        - gammaln(r - v + 1)
        + v * np.log(q)
        - (r - v) * np.log1p(slope)
    )
    tail = betainc(v, r - v + 1, q)
    geometric = slope * (r - v) / (v + 1)
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        exact = tail * np.exp(-log_term)
        most = np.where(geometric < 1, 1 / np.maximum(1 - geometric, 1e-300), np.inf)
    ratio: FloatArray = np.where(tail > 1e-250, exact, most)
    return ratio


def count_law(probabilities: FloatArray) -> FloatArray:
    """Return (r + 1,) P(B = k) of the number B of independent coins that show heads.

    The generating polynomials are multiplied in pairs, by Fourier transforms; the error of any
    tail is far below ``_TRANSFORMED``.
    """
    count = len(probabilities)
    width = 1 << max(0, count - 1).bit_length()
    heads = np.zeros(width)
    heads[:count] = probabilities
    laws = np.column_stack([1 - heads, heads])
    while len(laws) > 1:
        size = 2 * laws.shape[1]
        product = np.fft.rfft(laws[0::2], size) * np.fft.rfft(laws[1::2], size)
        laws = np.maximum(np.fft.irfft(product, size)[:, :-1], 0.0)
    law: FloatArray = laws[0, : count + 1]
    return law


@lru_cache(maxsize=2**8)
def _cost(guesses: int, one_sided: bool, priors: Priors) -> float:
    """Return what δ is multiplied by where coins are not fair, for every ε.

    Σᵢ cᵢ·κ(V), κ(V) = e^(−V)(I₀(V) + I₁(V)), cᵢ = pᵢ(1 − qᵢ⁺) + (1 − pᵢ)(1 − qᵢ⁻) and V the
    least sum of q(1 − q) over any r − 1 guesses, q = expit(ε ± logit pᵢ). One number for all ε: the
    thresholds of different ε depend on the output, and one cost for all keeps them nested. On an
    interval of ε, c is largest at its start, and q(1 − q), which rises and then falls, is least at
    an end.
    """
    odds = logit(priors.propensity)
    sides = [(priors.propensity, odds)]
    if not one_sided:
        sides.append((1 - priors.propensity, -odds))
    largest = 0.0
    for start, end in zip(_EPSILONS, [*_EPSILONS[1:], np.inf], strict=True):
        missed, least = 0.0, np.full(len(odds), np.inf)
        for share, odd in sides:
            missed += float(np.sum(share * expit(-odd - start)))
            for epsilon in (start, end):
                least = np.minimum(least, expit(odd + epsilon) * expit(-odd - epsilon))
        few = np.partition(least, max(guesses - 2, 0))[: guesses - 1]
        spread = float(few.sum())
        largest = max(largest, missed * float(i0e(spread) + i1e(spread)))
    return largest


# -- Gaussian noise --------------------------------------------------------------------------------


def gaussian_p_value(guesses: Guesses, mu: float, near: float) -> float:
    """Return a bound on P(W ≥ v) under μ-GDP, sharpest where its value is ``near``.

    Weak duality: of (1) at slopes a = e^ε, with the events {k ≥ c − 1}, multipliers λ_c ≥ 0 that
    make every k < v weigh at least −1 prove

        P(W ≥ v) ≤ (1 + N·Σ_c λ_c δ(a_c))/(1 + K),   K = U·v·P(B = v)/P(B ≥ v),

    with U = Σλ, V = Σλa and B ~ Binomial(r, V/(U + V)), for any slopes; ``_slopes`` returns good
    ones.
    """
    v, r = guesses.right, guesses.guesses
    if v == 0:
        return 1.0
    total, weighed, cost = np.zeros(_TAILS), np.zeros(_TAILS), np.zeros(_TAILS)
    for c, log_slope in reversed(_slopes(guesses, mu, near)):
        k = c - 1
        used = np.isfinite(log_slope)
        log_slope = np.where(used, log_slope, 0.0)
        slope = np.exp(log_slope)
        lack = 1 + k * total - (r - k) * weighed
        multiplier = np.where(used, np.maximum(0.0, lack / (slope * (r - k))), 0.0)
        total += multiplier
        weighed += multiplier * slope
        cost += multiplier * _delta(mu, log_slope, slope)
    some = total > 0
    if not np.any(some):
        return 1.0
    ratio = _tail_over_term(v, r, weighed[some] / total[some])
    bounds = (1 + guesses.weight * cost[some]) / (1 + total[some] * v / ratio)
    return min(1.0, float(np.min(bounds)))


def _slopes(guesses: Guesses, mu: float, near: float) -> list[tuple[int, FloatArray]]:
    """Return (c, log a_c) from v down, one column for each mean of W above v that is tried.

    The law of W that is worst has P(W ≥ v) = near, and as little below as (1) allows: with
    x_c = E[W; W ≥ c]/N and y_c = E[r − W; W ≥ c − 1]/N it keeps x_c = Φ(Φ⁻¹(y_c) + μ), which
    determines p_(c−1), from v down until the probabilities sum to 1. a_c is the curve's slope
    there. Infinite where a column is complete.
    """
    v, r, weight = guesses.right, guesses.guesses, guesses.weight
    step = max(1, r // _EVENTS)
    mean = v + (r - v) / 2 * np.linspace(0, 1, _TAILS) ** 2
    right, wrong = mean * near / weight, (r - mean) * near / weight
    spent, open_ = np.full(_TAILS, near), right < 1
    slopes = []
    for c in range(v, 0, -step):
        quantile = ndtri(np.minimum(right, 1 - 1e-15)) - mu
        steep = np.clip(-mu * quantile - mu**2 / 2, -_STEEPEST, _STEEPEST)
        slopes.append((c, np.where(open_, steep, np.inf)))
        mass = np.maximum(0.0, weight * (ndtr(quantile) - wrong) / (r - c + 1))
        spent = spent + mass
        right = right + (c - 1) * mass / weight
        wrong = wrong + (r - c + 1) * mass / weight
        open_ = open_ & (mass > 0) & (spent < 1) & (right < 1)
        if not np.any(open_):
            break
    return slopes


def _delta(mu: float, log_slope: FloatArray, slope: FloatArray) -> FloatArray:
    """Return δ(ε) of Gaussian noise at ε = log a of either sign (Balle and Wang 2018, Eq. 6)."""
    first = ndtr(mu / 2 - log_slope / mu)
    value: FloatArray = np.maximum(0.0, first - slope * ndtr(-mu / 2 - log_slope / mu))
    # Rounded up: the difference may be far below both terms.
    return value + 1e-15 * first
