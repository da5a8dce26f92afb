"""Proportions of trials with their exact confidence intervals.

Conventions
-----------
Limits are Clopper and Pearson's (1934): for every true probability they miss it at most as often
as ``confidence`` allows. Hits of different probabilities vary less than hits of one probability
(Hoeffding 1956), so that the limits hold for a mixture of trials too. The exception is the lower
limit of a single hit, which may then miss with probability −log(1 − miss) instead of miss
(attacks.lower_bounds corrects it).
"""

from dataclasses import dataclass

from scipy.special import betainccinv, betaincinv

from expost import _checks
from expost.errors import InvalidInput
from expost.numbers import interval_text

__all__ = ["Share", "lower_limit", "upper_limit"]


def lower_limit(hits: int, trials: int, miss: float) -> float:
    """Return the one-sided lower limit, wrong with probability at most ``miss``."""
    return 0.0 if hits == 0 else float(betaincinv(hits, trials - hits + 1, miss))


def upper_limit(hits: int, trials: int, miss: float) -> float:
    """Return the one-sided upper limit, wrong with probability at most ``miss``."""
    return 1.0 if hits == trials else float(betainccinv(hits + 1, trials - hits, miss))


@dataclass(frozen=True, kw_only=True)
class Share:
    """The proportion of ``hits`` in ``trials``, with its interval at ``confidence``."""

    hits: int
    trials: int
    confidence: float = 0.95

    def __post_init__(self) -> None:
        _checks.integer("trials", self.trials, least=1)
        if not _checks.integer("hits", self.hits, least=0) <= self.trials:
            raise InvalidInput(f"hits={self.hits}: must be at most trials={self.trials}.")
        _checks.probability("confidence", self.confidence)

    @property
    def value(self) -> float:
        """The proportion hits/trials."""
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
