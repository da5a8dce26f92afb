"""The private choice of one candidate among k: exponential mechanism and permute-and-flip.

Conventions
-----------
sᵢ, s*   the score of candidate i (higher is better); the best score. m: how many have it.
Δ        ``sensitivity``: one row changes each score by at most this.
λ        ε/(2Δ), or ε/Δ for monotone scores.
γᵢ       λ(s* − sᵢ) ≥ 0, and aᵢ = e^(−γᵢ), which is 1 for the best.

The two laws
------------
exponential       P(i) = aᵢ/Σaⱼ (McSherry and Talwar 2007).
permute-and-flip  visit the candidates in a random order, take the first that a coin of probability
                  aᵢ accepts (McKenna and Sheldon 2020). Let every candidate come at an independent
                  uniform time in [0, 1]: i is taken at time t if its coin accepts and each other
                  one came later or was rejected, so

                      P(i) = aᵢ ∫₀¹ Π_{j≠i} (1 − aⱼt) dt.

                  The expected score is never below that of the exponential mechanism.

Formal guarantees
-----------------
Both are ε-DP if each score changes by at most Δ between neighbours. Exponential: e^(λsᵢ) and
Σe^(λsⱼ) change by a factor of at most e^(λΔ) = e^(ε/2) each. Permute-and-flip: put t = e^(−λx) into
its integral, and it is the law of the largest sᵢ + Eᵢ, Eᵢ independent exponentials of rate λ (Ding
et al. 2021). Given the others' noise, i wins if Eᵢ > M − sᵢ with M their maximum; neighbours move
M − sᵢ by at most 2Δ, and P(Eᵢ > x) changes by at most e^(2Δλ) = e^ε.

Scores are monotone if one more row never lowers any of them, or never raises any (counts do the
one, counts of mistakes with a minus the other). Then the two factors of the exponential mechanism
go the same way, M − sᵢ moves by at most Δ, and λ = ε/Δ is enough under REMOVE and ADD; under
REPLACE it is not.

Sampling is exact
-----------------
A float is a rational number, so γᵢ is known exactly (``fractions``), and coins of probability
e^(−γ) are made from uniform integers (:func:`accepts`). No logarithm, no exponential, no float is
between the scores and the choice: nothing of the kind that Mironov (2012) and Ilvento (2020) read
from rounded arithmetic. The guarantee is about the numbers as they are passed: Δ must bound the
change of the *computed* scores. Integers, such as counts, have no rounding. The number of coins
depends on the scores, so that the running time of the call reveals it (SECURITY.md).

| case | result |
|---|---|
| ε = ∞ | the best candidate, ties broken uniformly: no privacy, as in the estimators |
| one candidate | it is chosen |
| candidates that depend on the rows | not covered: their list must be public |
"""

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from expost import _checks
from expost._numerics import gauss_legendre
from expost.errors import InvalidInput, SeededReleaseWarning
from expost.notices import warn
from expost.results import Displayed
from expost.types import Audience, FloatArray

__all__ = [
    "METHODS",
    "SelectionCost",
    "accepts",
    "byte_source",
    "choose",
    "draw_index",
    "select_privately",
    "selection_cost",
    "selection_probabilities",
    "simulation_generator",
    "uniform_below",
]

METHODS = ("exponential", "permute-and-flip")

# A uniform integer in [0, n).
Below = Callable[[int], int]

# Σa·t beyond which permute-and-flip's integrand is below e^−39, and the nodes that the rest needs.
_REACH = 40.0
_NODES = 48


def select_privately(
    scores: Any,
    sensitivity: float,
    epsilon: float,
    *,
    method: str = "exponential",
    monotone: bool = False,
    random_state: Any = None,
) -> int:
    """Return the index of a candidate with a high score, chosen at a cost of ``epsilon``.

    The laws, guarantees and edge cases are in the module docstring.

    Parameters
    ----------
    scores : Any
        (k,) one number for each candidate of a public list; higher is better.
    sensitivity : float
        One row changes each score by at most this.
    epsilon : float
        The privacy cost of the choice.
    method : str, default="exponential"
        "exponential" or "permute-and-flip", which is never worse in expected score.
    monotone : bool, default=False
        States that one more row never lowers any score, or never raises any: half the noise is then
        enough, for neighbouring data sets with a row removed or added (not replaced).
    random_state : Any, optional
        An integer or a Generator, for simulation: anyone who knows the seed can repeat the choice,
        and it warns. None: every bit comes from the operating system.

    Returns
    -------
    int
        The index of the chosen candidate.

    Raises
    ------
    InvalidInput
        If there are no scores, or an argument is invalid.
    """
    rng = simulation_generator(random_state)
    return draw_index(scores, sensitivity, epsilon, method=method, monotone=monotone, rng=rng)


def draw_index(
    scores: Any,
    sensitivity: float,
    epsilon: float,
    *,
    method: str,
    monotone: bool = False,
    rng: np.random.Generator | None = None,
) -> int:
    """Return :func:`select_privately` without its warning, for callers that warn themselves."""
    exponents = _Contest.of(scores, sensitivity, epsilon, monotone).exponents()
    source = byte_source(rng)
    return choose(exponents, method, lambda count: uniform_below(count, source))


def choose(exponents: list[Fraction | None], method: str, below: Below) -> int:
    """Draw a candidate, given every γᵢ (None if infinite) and a source of uniform integers.

    Exponential, by rejection: propose a candidate uniformly, accept it with probability aᵢ, else
    propose again. One proposal ends in i with probability aᵢ/k and in nothing with r = 1 − Σaⱼ/k,
    whatever came before, so that

        P(i) = Σ_{t≥0} r^t·aᵢ/k = (aᵢ/k)/(1 − r) = aᵢ/Σaⱼ,

    exactly, and no normaliser is ever computed. The best has a = 1, so r < 1: k/m proposals are
    enough on average. Permute-and-flip is the same without replacement: at most k proposals.
    """
    count = len(exponents)
    if _checks.one_of("method", method, METHODS) == "exponential":
        while True:
            proposal = below(count)
            if accepts(exponents[proposal], below):
                return proposal
    order = list(range(count))
    while True:
        # The last candidate of the order is swapped with a uniformly chosen remaining one.
        pick = below(len(order))
        order[pick], order[-1] = order[-1], order[pick]
        proposal = order.pop()
        # The best is always accepted, so the order never runs out.
        if accepts(exponents[proposal], below):
            return proposal


def accepts(exponent: Fraction | None, below: Below) -> bool:
    """Return True with probability exactly e^(−γ), γ = ``exponent`` ≥ 0 rational; None is ∞.

    e^(−γ) is e^(−1) once for every integer unit of γ, times e^(−rest): all these coins must
    succeed, and the first failure ends it. (Compare Canonne, Kamath and Steinke 2020.)
    """
    if exponent is None:
        return False
    units, rest = divmod(exponent, 1)
    unit = Fraction(1)
    return all(_short_coin(unit, below) for _ in range(units)) and _short_coin(rest, below)


def _short_coin(exponent: Fraction, below: Below) -> bool:
    """Return True with probability e^(−γ), 0 ≤ γ ≤ 1.

    Toss coins of probability γ/1, γ/2, γ/3 … until one fails, the K-th. P(K > k) = γ^k/k!, so

        P(K odd) = Σ_{j≥0} P(K > 2j) − P(K > 2j + 1) = Σ_k (−γ)^k/k! = e^(−γ).

    With γ = p/q the k-th coin is: a uniform integer below qk is less than p.
    """
    tosses = 1
    while below(exponent.denominator * tosses) < exponent.numerator:
        tosses += 1
    return tosses % 2 == 1


def uniform_below(count: int, source: Callable[[int], bytes]) -> int:
    """Return a uniform integer in [0, count), by rejection of draws of just enough bits."""
    bits = (count - 1).bit_length()
    size = (bits + 7) // 8
    while True:
        value = int.from_bytes(source(size), "big") >> (8 * size - bits)
        if value < count:
            return value


def byte_source(rng: np.random.Generator | None) -> Callable[[int], bytes]:
    """Return a source of random bytes: the operating system, or a simulation."""
    return secrets.token_bytes if rng is None else rng.bytes


def simulation_generator(random_state: Any) -> np.random.Generator | None:
    """Return None for the operating system's randomness, or a seeded generator, and warn."""
    if random_state is None:
        return None
    if isinstance(random_state, np.random.Generator):
        rng = random_state
    else:
        rng = np.random.default_rng(_checks.integer("random_state", random_state, least=0))
    warn(
        "random_state is set: anyone who knows the seed can repeat the choice, which is then not"
        " private; use None for a real release.",
        SeededReleaseWarning,
        stacklevel=3,
    )
    return rng


def selection_probabilities(
    scores: Any,
    sensitivity: float,
    epsilon: float,
    *,
    method: str = "exponential",
    monotone: bool = False,
) -> FloatArray:
    """Return (k,) the probability with which each candidate is chosen. Curator-only.

    The probabilities are a function of the scores, and so of the rows, without noise. Each has a
    relative error of about 1e-12 (or 1e-300 absolute, if it underflows), for any k.

    Parameters
    ----------
    scores, sensitivity, epsilon, method, monotone : Any, float, str, bool
        As for :func:`select_privately`.

    Returns
    -------
    FloatArray
        (k,) the probabilities.

    Raises
    ------
    InvalidInput
        If there are no scores, or an argument is invalid.
    """
    contest = _Contest.of(scores, sensitivity, epsilon, monotone)
    return contest.probabilities(method)


@dataclass(frozen=True, kw_only=True, eq=False)
class SelectionCost(Displayed):
    """The cost of a private choice in units of the score. Curator-only: it depends on the rows.

    Parameters
    ----------
    probabilities : FloatArray
        (k,) of each candidate.
    best_probability : float
        The probability that a candidate with the best score is chosen.
    expected_shortfall : float
        Σ P(i)(s* − sᵢ): the score lost on average against the best.
    shortfall_bound : float
        ln(k/(βm))/λ: the score lost is at most this with probability 1 − β, m candidates having the
        best score (the lecture's theorem). With m = 1 it is free of the data.
    failure : float
        β.
    """

    probabilities: FloatArray = field(repr=False)
    best_probability: float
    expected_shortfall: float
    shortfall_bound: float
    failure: float

    audience = Audience.NEEDS_REVIEW


def selection_cost(
    scores: Any,
    sensitivity: float,
    epsilon: float,
    *,
    method: str = "exponential",
    monotone: bool = False,
    failure: float = 0.05,
) -> SelectionCost:
    """Return the score that a private choice loses compared with the best. Curator-only.

    The bound holds for both methods. Candidates more than c below the best have aᵢ < e^(−λc), and
    there are fewer than k; the exponential mechanism divides their sum by at least m, and in
    permute-and-flip's integral the best alone give ∫(1 − t)^m dt = 1/(m + 1). Either way less than
    k·e^(−λc)/m = β is left for them at c = ln(k/(βm))/λ.

    Parameters
    ----------
    scores, sensitivity, epsilon, method, monotone : Any, float, str, bool
        As for :func:`select_privately`.
    failure : float, default=0.05
        β, the probability with which the bound may fail.

    Returns
    -------
    SelectionCost
        Probabilities, and what is lost on average and with probability 1 − β.

    Raises
    ------
    InvalidInput
        If there are no scores, or an argument is invalid.
    """
    failure = _checks.probability("failure", failure)
    contest = _Contest.of(scores, sensitivity, epsilon, monotone)
    probabilities = contest.probabilities(method)
    shortfalls = max(contest.scores) - np.array(contest.scores)
    best = shortfalls == 0
    return SelectionCost(
        probabilities=probabilities,
        best_probability=min(float(probabilities[best].sum()), 1.0),
        expected_shortfall=float(probabilities @ shortfalls),
        shortfall_bound=contest.scale * math.log(len(best) / (failure * np.count_nonzero(best))),
        failure=failure,
    )


@dataclass(frozen=True, kw_only=True)
class _Contest:
    """The scores, and λ: None if infinite."""

    scores: list[float]
    rate: Fraction | None

    @classmethod
    def of(cls, scores: Any, sensitivity: float, epsilon: float, monotone: bool) -> "_Contest":
        """Check the arguments of :func:`select_privately`."""
        values = _checks.vector(scores, name="scores").tolist()
        if not values:
            raise InvalidInput("scores: is empty; must hold one score for each candidate.")
        change = Fraction(_checks.positive("sensitivity", sensitivity))
        budget = _checks.positive("epsilon", epsilon, finite=False)
        if not isinstance(monotone, bool):
            raise InvalidInput(f"monotone={monotone!r}: must be True or False.")
        if budget == math.inf:
            return cls(scores=values, rate=None)
        return cls(scores=values, rate=Fraction(budget) / (change if monotone else 2 * change))

    @property
    def scale(self) -> float:
        """The scale 1/λ of the noise, in units of the score."""
        if self.rate is None:
            return 0.0
        try:
            return float(1 / self.rate)
        except OverflowError:
            return math.inf

    def exponents(self) -> list[Fraction | None]:
        """Return the exact γ of each candidate; None if infinite."""
        top = max(self.scores)
        if self.rate is None:
            return [Fraction(0) if score == top else None for score in self.scores]
        best = Fraction(top)
        return [self.rate * (best - Fraction(score)) for score in self.scores]

    def probabilities(self, method: str) -> FloatArray:
        """Return the probability of each candidate."""
        weights = np.exp([-_finite(exponent) for exponent in self.exponents()])
        if _checks.one_of("method", method, METHODS) == "exponential":
            # The largest weight is 1, as in a log-sum-exp: nothing overflows.
            chances: FloatArray = weights / math.fsum(weights)
            return chances
        return _permute_and_flip(weights)


def _finite(exponent: Fraction | None) -> float:
    """Return γ as a float, at most 800, where e^(−γ) is 0 in float64."""
    return 800.0 if exponent is None or exponent > 800 else float(exponent)


def _permute_and_flip(weights: FloatArray) -> FloatArray:
    """Return aᵢ ∫₀¹ Π_{j≠i}(1 − aⱼt) dt by one Gauss–Legendre rule; every term is positive.

    With S = Σa the product is at most e^(−(S−1)t), and at least (1 − t)^S by 1 − at ≥ (1 − t)^a:
    what lies beyond T = min(1, 40/S) is less than 2e-17 of the integral. On Bernstein's ellipse
    with ρ = 4 around [0, T] the product is at most e^(1.5625·S·T) ≤ e^62.5, so that N = 48 nodes
    err by less than 5·e^62.5·4^(2−2N)·T, 1e-26 of the integral. What is left is rounding.
    """
    total = math.fsum(weights)
    reach = min(1.0, _REACH / total)
    points, masses = gauss_legendre(_NODES)
    chances = np.zeros(len(weights))
    for point, mass in zip(points, masses, strict=True):
        # t < 1 at every node, so no logarithm is infinite.
        logs = np.log1p(-weights * (0.5 * reach * (1 + point)))
        chances += (0.5 * reach * mass) * np.exp(math.fsum(logs) - logs)
    return weights * chances
