"""Lower bounds on ε from attacks: with a smaller ε they would rarely succeed as often.

Conventions
-----------
A bound is wrong, that is above the mechanism's true ε(δ), with probability at most
1 − ``confidence``, over what is drawn: the coins of membership and the noise of training.
Neighbouring data sets differ by the removal of a row. A bound of 0 is void.
docs/theory/mathematics-audit.md proves each bound.

Rows of one model are *not* independent trials: noise that they share moves all their scores at
once, so Clopper and Pearson's limits over the rows of one model bound nothing. Here a trial is a
training, and one row, fixed before, is tested in all of them. ``one_run`` has the bounds from a
single training.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from expost import _checks
from expost._counts import lower_limit
from expost.auditing.evidence import Confidences, Flags
from expost.errors import InvalidInput
from expost.results import Displayed
from expost.risk import GaussianNoise
from expost.types import Audience, FloatArray

__all__ = ["LEAST_MODELS", "LowerBound", "epsilon_lower_bound", "epsilon_of_mu"]
__all__ += ["epsilon_of_rates", "least_rate"]

# With fewer trainings the bound is 0.
LEAST_MODELS = 8
# The share of the trainings that chooses the row and the threshold.
_CHOOSING = 1 / 3
_THRESHOLDS = 101


@dataclass(frozen=True, kw_only=True)
class LowerBound(Displayed):
    """A lower bound on the true ε at ``delta``, valid at ``confidence``.

    Parameters
    ----------
    epsilon : float
        The lower bound; 0 if nothing is proved.
    delta : float
        The δ at which ε is bounded.
    confidence : float
        The probability, over models and attacks, with which the bound holds.
    method : str
        The method in a few words.
    detail : str
        The counts that it is computed from.
    most : float
        The largest bound that so many trials can reach.
    assumption : str, default=""
        What is assumed in addition to the random draws; empty if nothing.
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    detail: str
    most: float
    assumption: str = ""

    audience = Audience.NEEDS_REVIEW

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < math.inf:
            raise InvalidInput(f"epsilon={self.epsilon!r}: must be a finite number ≥ 0.")

    @property
    def value(self) -> float:
        """``epsilon``."""
        return self.epsilon

    def to_json(self) -> dict[str, Any]:
        """Return every figure by name.

        Returns
        -------
        dict[str, Any]
            The fields, and values that follow from them.
        """
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def epsilon_lower_bound(
    signals: Any,
    inside: Any,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    gaussian: bool = False,
) -> LowerBound:
    """Return a lower bound on ε from many trainings, with and without one row.

    Parameters
    ----------
    signals : Any
        (m, n) the signal of each row under each of m independently trained models.
    inside : Any
        (m, n) whether the model was trained with the row. For every row the models with it must be
        a uniformly random subset (of fixed size, or by coins), drawn independently of all else.
    gaussian : bool, default=False
        The hypothesis is that training is μ-GDP (Dong et al. 2022), as Gaussian noise is:
        p̄ ≤ Φ(Φ⁻¹(q̄) + μ), and the result is the ε(δ) of the least μ.

    Notes
    -----
    The first third of the models choose the row and the threshold, the rest are counted.

    Conditionally on the memberships of the other rows, p̄ and q̄ are the means over the counted
    models of the probability that the signal passes, with the row and without. p̄ ≤ e^ε·q̄ + δ, and
    the counts are, in law, sums of independent trials with these means (strongly Rayleigh; Pitman
    1997), so that limits by Clopper and Pearson hold after Hoeffding (1956).
    """
    delta, confidence = checked(delta, confidence, gaussian)
    signals, inside = _checked_trainings(signals, inside)
    models = len(signals)
    choosing = max(4, math.ceil(models * _CHOOSING))
    counted = inside[choosing:]
    miss = (1 - confidence) / 2
    means = _means(signals[:choosing], inside[:choosing])
    row = _best_separated(means, counted)
    method = "Many trainings of one row" + (", Gaussian noise" if gaussian else "")
    assumption = "that training is μ-GDP, as Gaussian noise alone makes it" if gaussian else ""
    if row is None:
        return LowerBound(
            epsilon=0.0,
            delta=delta,
            confidence=confidence,
            method=method,
            detail=f"no row is in some and left out of others of both {choosing} and"
            f" {models - choosing} models",
            most=0.0,
            assumption=assumption,
        )
    with_row = np.asarray(counted[:, row])
    trials = _Trials(int(with_row.sum()), int((~with_row).sum()), miss, delta, gaussian)
    sign, threshold = _best_threshold(means, row, trials)
    positive = sign * _finite(signals[choosing:, row]) > threshold
    true, false = int(positive[with_row].sum()), int(positive[~with_row].sum())
    return LowerBound(
        epsilon=trials.epsilon(true, false),
        delta=delta,
        confidence=confidence,
        method=method,
        detail=(
            f"{true} of {trials.true} models with it and {false} of {trials.false} without it"
            " were classified as models with it"
        ),
        most=trials.epsilon(trials.true, 0),
        assumption=assumption,
    )


def least_rate(hits: int, trials: int, miss: float) -> float:
    """Return a lower limit of the mean probability of independent ``trials`` that may differ.

    Clopper and Pearson's, except for a single hit: P(any hit) is at most the sum of the
    probabilities, and *more* than for equal ones, so the limit is then miss/trials and not
    1 − (1 − miss)^(1/k). For miss ≤ ¼ Hoeffding (1956, Theorem 4) covers all other counts.
    """
    limit = lower_limit(hits, trials, miss)
    return min(limit, miss / trials) if hits == 1 else limit


def epsilon_of_rates(true: float, false: float, delta: float) -> float:
    """Return the least ε that allows a test of TPR ≥ ``true``, FPR ≤ ``false`` (Kairouz 2015)."""
    ratios = [0.0]
    for gain, cost in ((true - delta, false), (1 - false - delta, 1 - true)):
        if gain > 0 and cost > 0:
            ratios.append(math.log(gain / cost))
    return max(ratios)


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Return ε(δ) of Gaussian noise, rounded down; the library elsewhere rounds up.

    The increase of δ exceeds the rounding by which ε would be too large.
    """
    more = delta * (1 + 1e-10)
    if not (mu > 0 and more < 1):
        return 0.0
    return GaussianNoise(mu=mu).epsilon(more) * (1 - 1e-12)


def checked(delta: float, confidence: float, gaussian: bool) -> tuple[float, float]:
    """Return δ and the confidence; refuse values that the theorems do not cover."""
    confidence = _checks.probability("confidence", confidence)
    if not confidence >= 0.5:
        raise InvalidInput(f"confidence={confidence!r}: must be at least 0.5, as in the theorems.")
    if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 <= delta < 1:
        raise InvalidInput(f"delta={delta!r}: must be a number from 0, below 1.")
    if gaussian and delta == 0:
        raise InvalidInput(
            "delta=0: Gaussian noise has no finite ε at δ = 0; pass a delta > 0, e.g. 1e-5."
        )
    return float(delta), confidence


class _Trials(NamedTuple):
    """The counted models with the row (``true``) and without (``false``), and the hypothesis."""

    true: int
    false: int
    miss: float
    delta: float
    gaussian: bool

    def shown(self, true: int, false: int) -> float:
        """Return the least ε (or μ of Gaussian noise) that these counts do not refute."""
        low = least_rate(true, self.true, self.miss)
        high = 1 - least_rate(self.false - false, self.false, self.miss)
        if self.gaussian:
            return max(0.0, float(ndtri(low) - ndtri(high)))
        return epsilon_of_rates(low, high, self.delta)

    def epsilon(self, true: int, false: int) -> float:
        """Return the bound of :meth:`shown` as ε."""
        shown = self.shown(true, false)
        return epsilon_of_mu(shown, self.delta) if self.gaussian else shown


class _Means(NamedTuple):
    """Number, mean and variance of each row's signals, with the row and without, (2, n)."""

    models: FloatArray
    mean: FloatArray
    variance: FloatArray


def _checked_trainings(signals: Any, inside: Any) -> tuple[Confidences, Flags]:
    signals, inside = np.asanyarray(signals), np.asanyarray(inside)
    if signals.ndim != 2 or signals.shape != inside.shape or inside.dtype != np.bool_:
        raise InvalidInput(
            f"signals, inside: have the shapes {signals.shape} and {inside.shape}; must both be"
            " (models, rows), and inside must hold bools."
        )
    if len(signals) < LEAST_MODELS:
        raise InvalidInput(
            f"signals: are of {len(signals)} model(s), must be of at least {LEAST_MODELS}"
            " independent trainings. Rows of one model share its noise and are not independent"
            " trials; use expost.auditing.one_run if their membership was decided by coins."
        )
    return signals, inside


def _means(signals: Confidences, inside: Flags) -> _Means:
    """Return the moments in one pass, a model at a time: the matrix may be in a file."""
    rows = signals.shape[1]
    count, total, square = np.zeros((2, rows)), np.zeros((2, rows)), np.zeros((2, rows))
    for signal, within in zip(signals, inside, strict=True):
        value = _finite(signal)
        for side, part in enumerate((within, ~within)):
            count[side] += part
            total[side] += np.where(part, value, 0.0)
            square[side] += np.where(part, value**2, 0.0)
    least = np.maximum(count, 1)
    mean = total / least
    variance = np.maximum(square / least - mean**2, 0.0) * least / np.maximum(least - 1, 1)
    return _Means(count, mean, variance)


def _finite(signals: Any) -> FloatArray:
    values = np.asarray(signals, dtype=np.float64)
    if not np.all(np.isfinite(values)):
        raise InvalidInput("signals: hold values that are not finite (NaN or infinite).")
    return values


def _best_separated(means: _Means, counted: Flags) -> int | None:
    """Return the row whose two means are the most standard deviations apart.

    The variance of a few models is sometimes small by chance: that of the median row is added.
    """
    trials = np.asarray(counted).sum(axis=0)
    possible = np.all(means.models >= 2, axis=0) & (trials > 0) & (trials < len(counted))
    if not np.any(possible):
        return None
    variance = means.variance.sum(axis=0)
    spread = np.sqrt(variance + np.median(variance[possible]) + np.finfo(np.float64).tiny)
    distance = np.abs(means.mean[0] - means.mean[1]) / spread
    return int(np.argmax(np.where(possible, distance, -1.0)))


def _best_threshold(means: _Means, row: int, trials: _Trials) -> tuple[float, float]:
    """Return (sign, threshold) for which normal laws of these means give the largest bound."""
    inside, outside = means.mean[:, row]
    sign = 1.0 if inside >= outside else -1.0
    inside, outside = sign * inside, sign * outside
    floor = 1e-6 + 0.05 * (inside - outside)
    deep, shallow = np.maximum(np.sqrt(means.variance[:, row]), floor)
    thresholds = np.linspace(outside - 3 * shallow, inside + 3 * deep, _THRESHOLDS)
    true = np.floor(trials.true * ndtr((inside - thresholds) / deep)).astype(int)
    false = np.ceil(trials.false * ndtr((outside - thresholds) / shallow)).astype(int)
    shown = [
        trials.shown(int(hits), int(false_alarms))
        for hits, false_alarms in zip(true, false, strict=True)
    ]
    # The median threshold among equally good ones, also if none gives a bound above 0.
    best = np.flatnonzero(np.asarray(shown) >= max(shown) * (1 - 1e-9))
    return sign, float(thresholds[best[len(best) // 2]])
