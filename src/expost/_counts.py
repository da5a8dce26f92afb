"""Counted shares with their exact intervals.

Conventions
-----------
Limits are Clopper and Pearson's (1934): for every true probability they miss at most as often as
``confidence`` allows. Hits whose probabilities differ spread less than hits of one probability
(Hoeffding 1956), so that the limits hold for a mixture of trials too, but for the lower limit of a
single hit, which may then miss with −log(1 − miss) instead of miss (attacks.lower_bounds mends it).
"""

from dataclasses import dataclass

from scipy.special import betainccinv, betaincinv

from expost import _checks
from expost.errors import InvalidInput
from expost.numbers import interval_text

__all__ = ["Share", "lower_limit", "upper_limit"]


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
