"""The limit on the posterior of a row, and the largest ε that keeps it.

The posterior is the probability, for an attacker who knows all other rows and the released model,
that a row was in the training data: expit(logit(prior) + loss). The limit is on its quantile over
the possible releases, for the most exposed row.

Under a mechanism of expost the quantile of the loss of any one row is bounded by public constants
(``Mechanism.loss_quantile``, docs/epsilon.md). So the largest ε that keeps the limit is public too:
no row is read and no model is drawn.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from expost import _checks
from expost._numerics import bracket_root
from expost.errors import InvalidInput
from expost.mechanisms import Mechanism
from expost.numbers import rounded_down
from expost.types import FloatArray

__all__ = ["Plan", "PosteriorLimit", "find_ceiling"]

# How a model would be released at each ε.
Plan = Callable[[float], Mechanism]
# A posterior that is closer to its prior is within the law's numerical error.
_LEAST_GAIN = 1e-9
# The range of the search for ε, to a relative precision of 1e-3.
_SMALLEST, _LARGEST = 1e-4, 1e4
_HALVINGS = 15


@dataclass(frozen=True, kw_only=True)
class PosteriorLimit:
    """The posterior that no row may exceed in a share ``quantile`` of the releases.

    Parameters
    ----------
    max_posterior : float, default=0.75
        The largest posterior that is allowed.
    prior : float, default=0.5
        The attacker's probability of presence before the release.
    quantile : float, default=0.95
        The share of the releases in which it holds.
    """

    max_posterior: float = 0.75
    prior: float = 0.5
    quantile: float = 0.95

    def __post_init__(self) -> None:
        prior = _checks.probability("prior", self.prior)
        largest = _checks.probability("max_posterior", self.max_posterior)
        if not largest > prior + _LEAST_GAIN:
            raise InvalidInput(
                f"max_posterior={largest!r}: must lie above prior={prior!r}, which no model lowers,"
                f" by more than {_LEAST_GAIN:g}."
            )
        quantile = _checks.probability("quantile", self.quantile)
        if not 0.5 <= quantile <= 1 - _LEAST_GAIN:
            raise InvalidInput(
                f"quantile={quantile!r}: must lie between 0.5, below which more noise may raise the"
                f" posterior, and 1 - {_LEAST_GAIN:g}."
            )

    @property
    def largest_loss(self) -> float:
        """The loss at which the posterior reaches ``max_posterior``."""
        return float(logit(self.max_posterior) - logit(self.prior))

    def posterior(self, loss: FloatArray | float) -> FloatArray:
        """Return the posterior at a loss."""
        posterior: FloatArray = expit(logit(self.prior) + np.asarray(loss))
        return posterior

    def of_a_row(self, mechanism: Mechanism) -> float:
        """Bound the posterior of one row, fixed before the noise, at the quantile."""
        return float(self.posterior(mechanism.loss_quantile(self.quantile)))

    def of_all_rows(self, mechanism: Mechanism) -> float:
        """Bound the largest posterior of all n rows of one release, at the quantile.

        Each row passes the bound with probability at most (1 − q)/n, all together with 1 − q.
        """
        each = 1 - (1 - self.quantile) / mechanism.rows
        return float(self.posterior(mechanism.loss_quantile(each)))

    def certainty(self, mechanism: Mechanism) -> float:
        """Bound max(posterior, 1 − posterior) of one row, at the quantile."""
        exposure = mechanism.loss_quantile(self.quantile, two_sided=True)
        return float(expit(abs(float(logit(self.prior))) + exposure))


def find_ceiling(plan: Plan, limit: PosteriorLimit) -> float:
    """Return the largest ε whose public bound keeps the limit, rounded down to three digits.

    Every ε has the constants that ``plan`` gives it. 0 where no ε keeps the limit.
    """
    most = limit.largest_loss

    def passed(log_epsilon: FloatArray) -> FloatArray:
        each = np.exp(log_epsilon).ravel().tolist()
        quantiles = [plan(epsilon).loss_quantile(limit.quantile) for epsilon in each]
        return (np.array(quantiles) - most).reshape(log_epsilon.shape)

    low, high = math.log(_SMALLEST), math.log(_LARGEST)
    below, _ = bracket_root(passed, low, high, halvings=_HALVINGS)
    ceiling = rounded_down(math.exp(float(below)), 3)
    return ceiling if passed(np.log(np.array(ceiling))) <= 0 else 0.0
