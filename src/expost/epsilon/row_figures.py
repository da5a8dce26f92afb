"""Figures of every row from sampled models, with limits that err towards exposed.

Conventions
-----------
ℓ̂ = ℓ + e   the loss of a row in a model and its estimate; e has mean 0 and standard deviation
             ``noise`` given the model, which is 0 where losses are exact.
limit        a one-sided 95 % limit: mean ± t·√(s²/m + shared²), s the spread over the m models,
             ``shared`` the error that all models have in common.

What noise does, and what is done about it
------------------------------------------
E[ℓ]        E[ℓ̂] = E[ℓ]: nothing.
E∣ℓ∣        E∣ℓ̂∣ ≥ E∣ℓ∣ (Jensen), so E[ℓ̂]/E∣ℓ̂∣ would look *less* one-sided than the losses are: a
            noisy estimate would read as private. With h_s(x) = E∣x + sZ∣ − ∣x∣, Z normal, a normal
            error inflates by E h_s(ℓ). Since h_2s(x) = 2h_s(x/2) ≥ 2h_s(x), the mean of h_√3s(ℓ̂)
            over e, h_2s(ℓ) − h_s(ℓ), is at least that, and exactly that at ℓ = 0. So the figure and
            its upper limit divide by the mean of ∣ℓ̂∣ − h_√3s(ℓ̂), which is at most E∣ℓ∣; and they
            are NaN, which is within no bound, where a lower limit of that mean is not positive. The
            lower limit divides by E∣ℓ̂∣, which makes it smaller still.
posterior   sigmoid(logit(prior) + ℓ): the upper limit of its quantile is that of an order
            statistic of the losses, of a higher quantile where there is noise.
correction  where an estimate was corrected for a bias, the bias that is left is taken to be as
            large: ∣mean f(ℓ̂) − mean f(ℓ̂ − correction)∣ widens every limit of a mean of f.
unresolved  a loss beyond what the draws can show (noise = ∞): posterior 1 if it is positive, upper
            limit 1 of the one-sidedness, a standard error of ∞ for the exposure.

The largest of many upper limits is an upper limit for the largest mean: it misses only if that of
the most exposed row does. No correction for the number of rows is needed.

A variance that is not needed
-----------------------------
Where D can produce whatever D₋ᵢ can, E[e^(−ℓ)] = 1, and E[ℓ] = E[ℓ − 1 + e^(−ℓ)], whose terms are
≥ 0 and about ℓ²/2: for small losses that takes a hundredth of the models. It is used for exact
losses of mean size at most ¾ whose mean of e^(−ℓ) does not deny it.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, stdtrit

from expost._numerics import row_blocks
from expost.epsilon.limit import PosteriorLimit
from expost.errors import InvalidInput
from expost.results import Displayed
from expost.types import Audience, FloatArray

__all__ = ["CONFIDENCE", "EstimatedLosses", "RowFigures", "row_figures"]

CONFIDENCE = 0.95
# Up to this mean exposure E[ℓ − 1 + e^(−ℓ)] has the smaller variance, for either noise.
_SMALL = 0.75
# How many standard errors from 1 the mean of e^(−ℓ) may lie.
_DENIED = 4.0
# In place of an infinite loss where only its sign counts; its square is finite.
_HUGE = 1e100


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimatedLosses(Displayed):
    """Losses of n rows in m models, estimated.

    Parameters
    ----------
    loss : FloatArray
        (m, n) ℓ̂.
    noise : FloatArray
        (m, n) the standard deviation of the error of each; 0 where it is exact, ∞ where the loss is
        not resolved: it is then at least as large as ``loss``, in its sign.
    correction : FloatArray
        (m, n) the part of ``loss`` that corrects a bias; the remaining bias is assumed to be as
        large.
    shared : FloatArray
        (n,) the standard deviation of the mean of the errors over the models: what more models do
        not average away.
    """

    loss: FloatArray
    noise: FloatArray
    correction: FloatArray
    shared: FloatArray

    audience = Audience.CURATOR_ONLY

    def __post_init__(self) -> None:
        if self.loss.ndim != 2:
            raise InvalidInput(
                f"loss has {self.loss.ndim} dimensions: must have two, models and rows."
            )
        for name in ("noise", "correction"):
            if getattr(self, name).shape != self.loss.shape:
                raise InvalidInput(f"{name}: must have the shape of loss, {self.loss.shape}.")
        if self.shared.shape != self.loss.shape[1:]:
            raise InvalidInput(
                f"shared: must have one entry for each of {self.loss.shape[1]} rows."
            )
        for name in ("noise", "shared"):
            if not np.all(getattr(self, name) >= 0):
                raise InvalidInput(f"{name}: must hold numbers ≥ 0.")
        if np.any(np.isnan(self.loss)) or not np.all(np.isfinite(self.correction)):
            raise InvalidInput("loss, correction: must not hold NaN, nor a correction infinity.")

    @classmethod
    def exact(cls, loss: FloatArray) -> "EstimatedLosses":
        """Return losses (m, n) without error; an infinite loss proves the presence of the row.

        Parameters
        ----------
        loss : FloatArray
            (m, n) the losses of n rows under m models.

        Returns
        -------
        EstimatedLosses
            The losses, with errors of 0.
        """
        nothing = np.broadcast_to(0.0, loss.shape)
        return cls(loss=loss, noise=nothing, correction=nothing, shared=np.zeros(loss.shape[1:]))

    def columns(self, rows: slice) -> "EstimatedLosses":
        """Return the losses of some rows.

        Parameters
        ----------
        rows : slice
            The rows to take.

        Returns
        -------
        EstimatedLosses
            The losses of these rows under all models.
        """
        return EstimatedLosses(
            loss=self.loss[:, rows],
            noise=self.noise[:, rows],
            correction=self.correction[:, rows],
            shared=self.shared[rows],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class RowFigures:
    """Figures of each row from the models drawn at one ε; each (n,).

    Parameters
    ----------
    expected_loss : FloatArray
        E[ℓ].
    exposure : FloatArray
        E∣ℓ∣, which noise makes larger; ``exposure_error`` its standard error, ∞ where a loss was
        not resolved: the mean is then a lower end.
    one_sidedness : FloatArray
        E[ℓ]/E∣ℓ∣ with the noise taken out of E∣ℓ∣: rather too large than too small; NaN where the
        exposure is within the noise.
    one_sidedness_low : FloatArray
        Its lower limit; ``one_sidedness_high`` its upper one, NaN like it.
    posterior_high : FloatArray
        The upper limit of the posterior at the quantile.
    """

    expected_loss: FloatArray
    exposure: FloatArray
    exposure_error: FloatArray
    one_sidedness: FloatArray
    one_sidedness_low: FloatArray
    one_sidedness_high: FloatArray
    posterior_high: FloatArray


def row_figures(losses: EstimatedLosses, limit: PosteriorLimit) -> RowFigures:
    """Return every row's figures; computed in blocks, which do not change the result."""
    models, rows = losses.loss.shape
    parts = [_figures(losses.columns(block), limit) for block in row_blocks(rows, columns=models)]
    names = RowFigures.__dataclass_fields__
    return RowFigures(**{name: np.concatenate([getattr(p, name) for p in parts]) for name in names})


def _figures(losses: EstimatedLosses, limit: PosteriorLimit) -> RowFigures:
    size = np.abs(losses.loss)
    unresolved = np.any(np.isinf(losses.noise) | np.isinf(size), axis=0)
    signed = _of_expected_loss(np.clip(losses.loss, -_HUGE, _HUGE), losses.noise)
    with np.errstate(invalid="ignore"):
        error = np.sqrt(_variance(size) / len(size) + losses.shared**2)
    figure, low, high = _one_sidedness(losses, signed)
    return RowFigures(
        expected_loss=np.mean(np.where(np.isinf(size), losses.loss, signed), axis=0),
        exposure=np.mean(size, axis=0),
        exposure_error=np.where(unresolved, np.inf, error),
        one_sidedness=figure,
        one_sidedness_low=low,
        # An unresolved loss may be arbitrarily large and one-sided.
        one_sidedness_high=np.where(unresolved, 1.0, high),
        posterior_high=limit.posterior(_quantile_loss(losses, limit.quantile)),
    )


def _one_sidedness(
    losses: EstimatedLosses, signed: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return E[ℓ]/E∣ℓ∣, its lower and its upper limit; see the module for the effect of noise.

    Parameters
    ----------
    signed : FloatArray
        (m, n) terms whose mean is E[ℓ].
    """
    loss = np.clip(losses.loss, -_HUGE, _HUGE)
    size = np.abs(loss)
    true_size = size - _inflation(size, losses.noise)
    signed_bias = np.abs(np.mean(losses.correction, axis=0))
    size_bias = np.abs(np.mean(size - np.abs(loss - losses.correction), axis=0))
    least = np.mean(true_size, axis=0) - size_bias
    score = _score(len(loss))

    def limit(terms: FloatArray, over: FloatArray, bias: Any, sides: int) -> FloatArray:
        centre = (np.mean(signed, axis=0) + bias) / over
        # The slope of ℓ − R∣ℓ∣, by which a shared error counts.
        slope = np.sqrt(np.mean((1 - centre * np.sign(loss)) ** 2, axis=0))
        spread = _variance(signed - centre * terms) / len(loss) + (slope * losses.shared) ** 2
        value: FloatArray = np.clip(centre + sides * score * np.sqrt(spread) / over, 0.0, 1.0)
        return value

    with np.errstate(divide="ignore", invalid="ignore"):
        figure = limit(true_size, np.mean(true_size, axis=0), 0.0, 0)
        low = limit(size, np.mean(size, axis=0), -signed_bias, -1)
        high = limit(true_size, least, signed_bias, 1)
    exact = ~np.any(losses.noise, axis=0)
    error = np.sqrt(_variance(true_size) / len(loss) + losses.shared**2)
    stands_out = exact | (least - score * error > 0)
    # A row that no model depends on has no loss of either sign.
    still = exact & ~np.any(loss, axis=0)
    figure, high = (
        np.where(still, 0.0, np.where(stands_out, value, np.nan)) for value in (figure, high)
    )
    return figure, np.where(still, 0.0, low), high


def _inflation(size: FloatArray, noise: FloatArray) -> FloatArray:
    """Return terms whose mean is at least E∣ℓ̂∣ − E∣ℓ∣: h_w(ℓ̂) with w = √3·noise."""
    noisy = (noise > 0) & (noise < np.inf)
    width = math.sqrt(3) * np.where(noisy, noise, 1.0)
    score = size / width
    folded = 2 * width * (np.exp(-(score**2) / 2) / math.sqrt(2 * math.pi) - score * ndtr(-score))
    return np.where(noisy, folded, 0.0)


def _of_expected_loss(loss: FloatArray, noise: FloatArray) -> FloatArray:
    """Return (m, n) terms of mean E[ℓ]: ℓ itself, or ℓ − 1 + e^(−ℓ) where that varies less."""
    small = (np.mean(np.abs(loss), axis=0) <= _SMALL) & ~np.any(noise, axis=0)
    if not np.any(small):
        return loss
    terms = loss.copy()
    tilt = np.expm1(-loss[:, small])
    away = np.abs(np.mean(tilt, axis=0))
    consistent = away <= _DENIED * np.sqrt(_variance(tilt) / len(tilt))
    terms[:, small] += np.where(consistent, tilt, 0.0)
    return terms


def _quantile_loss(losses: EstimatedLosses, level: float) -> FloatArray:
    """Return the upper limit of the q-quantile of each row's loss, from an order statistic.

    Given the model, e ≥ 0 with probability ½, so P(ℓ̂ > x) ≥ ½·P(ℓ > x): where there is noise, the
    q-quantile of ℓ is at most the (1 + q)/2-quantile of ℓ̂.
    """
    from scipy.stats import binom

    models = len(losses.loss)
    noisy = bool(np.any(losses.noise))
    rank = int(binom.ppf(CONFIDENCE, models, (1 + level) / 2 if noisy else level)) + 1
    if rank > models:
        # Too few models for a limit of this quantile.
        return np.full(losses.loss.shape[1], np.inf)
    upper = losses.loss
    if noisy:
        bias = np.abs(np.mean(losses.correction, axis=0))
        unresolved = np.isinf(losses.noise) & (losses.loss > 0)
        upper = np.where(unresolved, np.inf, upper) + bias + _score(models) * losses.shared
    quantile: FloatArray = np.partition(upper, rank - 1, axis=0)[rank - 1]
    return quantile


def _variance(values: FloatArray) -> FloatArray:
    """Return the variance over the models, (n,)."""
    result: FloatArray = np.var(values, axis=0, ddof=1)
    return result


def _score(models: int) -> float:
    """Return Student's quantile of a one-sided limit."""
    return float(stdtrit(models - 1, CONFIDENCE))
