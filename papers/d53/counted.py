"""Counted attacks on trainings in two worlds, and what they prove about ε."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from expost._counts import Share, lower_limit, upper_limit
from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = ["Attack", "best_threshold"]


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
        guesses = scores > threshold

        def share(runs: Any) -> Share:
            return Share(
                hits=int(guesses[runs].sum()), trials=int(runs.sum()), confidence=confidence
            )

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
        """Return the least ε with which this is (ε, δ)-private: smaller ones are refuted.

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
        """Return the least μ: Φ⁻¹(TPR) − Φ⁻¹(FPR) ≤ μ for every attack on Gaussian noise."""
        true, false = self.limits
        return max(0.0, float(ndtri(true) - ndtri(false)))


def best_threshold(scores: FloatArray, truth: Any, *, delta: float, confidence: float) -> float:
    """Return the threshold at which these runs refute most; use it on other runs."""
    places = np.quantile(scores, np.linspace(0.01, 0.99, 99))
    epsilons = [
        Attack.at(scores, truth, float(threshold), confidence=confidence).epsilon(delta)
        for threshold in places
    ]
    return float(places[int(np.argmax(epsilons))])
