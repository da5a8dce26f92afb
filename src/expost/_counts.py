"""Counted attacks: shares with their exact intervals, and what they prove about ε.

Conventions
-----------
Limits are Clopper and Pearson's (1934): for every true probability they miss at most as often as
``confidence`` allows. Hits whose probabilities differ spread less than hits of one probability
(Hoeffding 1956), so that the limits hold for a mixture of trials too, but for the lower limit of a
single hit, which may then miss with −log(1 − miss) instead of miss (attacks.lower_bounds mends it).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betainccinv, betaincinv, ndtri

from expost import _checks
from expost.errors import InvalidInput
from expost.rounding import interval_text
from expost.types import FloatArray

__all__ = ["Attack", "Share", "best_threshold", "lower_limit", "upper_limit"]


def lower_limit(hits: int, trials: int, miss: float) -> float:
    """The one-sided lower limit of a probability, wrong with probability ``miss`` at most."""
    return 0.0 if hits == 0 else float(betaincinv(hits, trials - hits + 1, miss))


def upper_limit(hits: int, trials: int, miss: float) -> float:
    """The one-sided upper limit of a probability, wrong with probability ``miss`` at most."""
    return 1.0 if hits == trials else float(betainccinv(hits + 1, trials - hits, miss))


@dataclass(frozen=True, kw_only=True)
class Share:
    """``hits`` of ``trials``, with its interval at ``confidence``."""

    hits: int
    trials: int
    confidence: float = 0.95

    def __post_init__(self) -> None:
        _checks.whole("trials", self.trials, least=1)
        if not _checks.whole("hits", self.hits, least=0) <= self.trials:
            raise InvalidInput(f"hits={self.hits}: must be at most trials={self.trials}.")
        _checks.probability("confidence", self.confidence)

    @property
    def value(self) -> float:
        """hits/trials."""
        return self.hits / self.trials

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return lower_limit(self.hits, self.trials, (1 - self.confidence) / 2)

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return upper_limit(self.hits, self.trials, (1 - self.confidence) / 2)

    def __str__(self) -> str:
        return interval_text(self.value, self.low, self.high, 3)


@dataclass(frozen=True, kw_only=True)
class Attack:
    """How often an attack says "with the row": in runs with it (``true``) and without (``false``).

    Both limits below hold together with probability ``confidence``: each may miss with half of
    what is left.
    """

    true: Share
    false: Share
    confidence: float = 0.95

    @classmethod
    def at(
        cls, scores: Any, truth: Any, threshold: float = 0.0, *, confidence: float = 0.95
    ) -> "Attack":
        """Says "with the row" where the score passes a ``threshold`` that these runs did not set.

        One that was chosen on these very runs would make every limit below too good.
        """
        scores, truth = np.asarray(scores, dtype=np.float64), np.asarray(truth, dtype=np.bool_)
        if scores.ndim != 1 or scores.shape != truth.shape or not 0 < truth.sum() < len(truth):
            raise InvalidInput(
                "scores, truth: must be two vectors of one length, with runs of either kind."
            )
        if np.any(np.isnan(scores)) or math.isnan(threshold):
            raise InvalidInput("scores: hold NaN, of which no attack can be made.")
        said = scores > threshold

        def share(runs: Any) -> Share:
            return Share(hits=int(said[runs].sum()), trials=int(runs.sum()), confidence=confidence)

        return cls(true=share(truth), false=share(~truth), confidence=confidence)

    @property
    def limits(self) -> tuple[float, float]:
        """(least true positive rate, most false positive rate), jointly at ``confidence``."""
        miss = (1 - self.confidence) / 2
        return (
            lower_limit(self.true.hits, self.true.trials, miss),
            upper_limit(self.false.hits, self.false.trials, miss),
        )

    def epsilon(self, delta: float) -> float:
        """The least ε with which this is (ε, δ)-private: a smaller one is refuted, 0 says nothing.

        TPR ≤ e^ε·FPR + δ and 1 − FPR ≤ e^ε·(1 − TPR) + δ for every attack (Kairouz et al. 2015).
        """
        if not 0 <= delta < 1:
            raise InvalidInput(f"delta={delta!r}: must lie between 0 and 1, below 1.")
        true, false = self.limits
        ratios = [0.0]
        for gain, cost in ((true - delta, false), (1 - false - delta, 1 - true)):
            if gain > 0:
                ratios.append(math.log(gain / cost) if cost > 0 else math.inf)
        return max(ratios)

    def mu(self) -> float:
        """The least μ: Φ⁻¹(TPR) − Φ⁻¹(FPR) ≤ μ for every attack on Gaussian noise."""
        true, false = self.limits
        return max(0.0, float(ndtri(true) - ndtri(false)))


def best_threshold(scores: FloatArray, truth: Any, *, delta: float, confidence: float) -> float:
    """The threshold at which these runs refute most; for other runs than these."""
    places = np.quantile(scores, np.linspace(0.01, 0.99, 99))
    found = [
        Attack.at(scores, truth, float(place), confidence=confidence).epsilon(delta)
        for place in places
    ]
    return float(places[int(np.argmax(found))])
