"""The largest true-positive rate against a row, from the law of its loss."""

import numpy as np

from expost import _checks
from expost.noise.law import LossLaw
from expost.types import FloatArray

__all__ = ["true_positive_rate_above"]

# Absolute error of a law's cdf and survival, with room.
_ERROR = 2e-11
# The largest threshold on the loss: past it the error of the law, times e^c, would count.
_LARGEST = 12.0


def true_positive_rate_above(law: LossLaw, false_positive_rate: float) -> FloatArray:
    """Return the largest true-positive rate of any test against each row, rounded up.

    P(ℓ > c) + e^c (α − Q(ℓ > c)) is a bound at every c, and the rate itself where Q(ℓ > c) = α
    (Neyman and Pearson). Q(ℓ ≥ c) = P(ℓ ≤ −c) by the symmetry of the law, so that c is minus the
    α-quantile of ℓ; an error in c costs tightness and no validity.

    Parameters
    ----------
    law : LossLaw
        The law of the loss of (n,) rows.
    false_positive_rate : float
        α in (0, 1).

    Returns
    -------
    FloatArray
        (n,) the rates, between α and 1.

    Raises
    ------
    InvalidInput
        If ``false_positive_rate`` is not in (0, 1).
    """
    alpha = _checks.probability("false_positive_rate", false_positive_rate)
    threshold = np.clip(-law.quantile(alpha), -_LARGEST, _LARGEST)
    factor = np.exp(threshold)
    # {ℓ ≥ c} in both worlds: a law may have an atom at c.
    detected = law.survival(np.nextafter(threshold, -np.inf))
    rate = detected + factor * (alpha - law.cdf(-threshold)) + _ERROR * (1 + factor)
    bounded: FloatArray = np.clip(np.nan_to_num(rate, nan=1.0), alpha, 1.0)
    return np.where(law.separation == 0, alpha, bounded)
