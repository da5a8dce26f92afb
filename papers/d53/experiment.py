"""What came out of many trainings with and without a row, beside what the noise allows."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr, ndtri

from expost._counts import Share
from expost.numbers import fixed, interval_text
from expost.risk import GaussianNoise
from expost.types import Audience, FloatArray, Neighbouring
from papers.common.drawn import Drawn
from papers.common.figures import Display
from papers.d53 import training_displays
from papers.d53.counted import Attack, best_threshold

__all__ = ["Experiment", "Interval"]


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return interval_text(self.value, self.low, self.high, 3)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Experiment(Drawn):
    """k trainings in two worlds (D5.3 Exp^DI). For the curator only: it is about one row.

    ``losses``      (k, steps) log p(transcript so far ∣ D) − log p(… ∣ D').
    ``truth``       (k,) whether a training was made on D.
    ``lengths``     (k, steps) the distance of the two sums of gradients: local sensitivity.
    ``scales``      (k, steps) the noise's standard deviation.
    ``accuracies``  (k,) on the test rows; NaN where there were none.
    ``belief``      ρ_β.
    """

    losses: FloatArray
    truth: NDArray[np.bool_]
    lengths: FloatArray
    scales: FloatArray
    accuracies: FloatArray
    noise_multiplier: float
    relation: Neighbouring
    is_local: bool
    belief: float
    confidence: float

    audience = Audience.CURATOR_ONLY

    def display(self) -> Display:
        """Return the evidence at the end of every training, by world."""
        return training_displays.experiment(self)

    @property
    def trainings(self) -> int:
        """k."""
        return len(self.truth)

    @property
    def beliefs(self) -> FloatArray:
        """(k, steps) the belief in the world that the training was made in, prior ½."""
        beliefs: FloatArray = expit(np.where(self.truth[:, np.newaxis], self.losses, -self.losses))
        return beliefs

    @property
    def separations(self) -> FloatArray:
        """(k,) μ of each run, √Σ(∥d∥/s)²: at most ``guarantee.mu``."""
        squares: FloatArray = np.sum((self.lengths / self.scales) ** 2, axis=1)
        return np.sqrt(squares)

    @property
    def guarantee(self) -> GaussianNoise:
        """What the noise guarantees: μ = √steps/σ; under local sensitivity, for this pair only."""
        return GaussianNoise(mu=math.sqrt(self.losses.shape[1]) / self.noise_multiplier)

    @property
    def advantage(self) -> Interval:
        """2·(share of right answers) − 1, counted (D5.3 Def. 1), with its exact interval."""
        right = int(np.count_nonzero(self.beliefs[:, -1] > 0.5))
        share = Share(hits=right, trials=self.trainings, confidence=self.confidence)
        low, value, high = (2 * rate - 1 for rate in (share.low, share.value, share.high))
        return Interval(value=value, low=low, high=high)

    @cached_property
    def believed_advantage(self) -> Interval:
        """The mean of ∣2·belief − 1∣: what the adversary expects of its own answer.

        Given a transcript the adversary is right with probability max(β, 1 − β), so that the mean
        is the advantage too, with a fraction of the spread of right and wrong answers. It assumes
        that the beliefs are right, which counting does not. The interval is the normal one.
        """
        advantages = np.abs(np.tanh(self.losses[:, -1] / 2))
        error = float(np.std(advantages, ddof=1)) / math.sqrt(len(advantages))
        width = error * float(ndtri((1 + self.confidence) / 2))
        value = float(np.mean(advantages))
        return Interval(value=value, low=value - width, high=value + width)

    @property
    def analytic_advantage(self) -> float:
        """ρ_α = 2Φ(μ/2) − 1 with the μ that the noise guarantees: no adversary has more."""
        return self.guarantee.advantage

    @property
    def passed(self) -> Share:
        """The share of runs after which the belief in the truth is above ρ_β: the empirical δ."""
        above = int(np.count_nonzero(self.beliefs[:, -1] > self.belief))
        return Share(hits=above, trials=self.trainings, confidence=self.confidence)

    @property
    def analytic_passed(self) -> float:
        """Φ(μ/2 − ε/μ), ε = logit ρ_β: the probability of that at full sensitivity."""
        mu = self.guarantee.mu
        return float(ndtr(mu / 2 - logit(self.belief) / mu))

    def attack(self, threshold: float = 0.0) -> Attack:
        """Count the answers D where the loss is above a threshold fixed beforehand."""
        return Attack.at(self.losses[:, -1], self.truth, threshold, confidence=self.confidence)

    def epsilon_lower_bound(self, delta: float, *, threshold: float | None = 0.0) -> float:
        """Return an ε below which (ε, δ) is refuted by these runs, at ``confidence``.

        ``threshold``  of the loss, fixed beforehand; None: chosen on the first half of the runs
                       and counted on the second.
        """
        if threshold is not None:
            return self.attack(threshold).epsilon(delta)
        scores, half = self.losses[:, -1], self.trainings // 2
        chosen = best_threshold(
            scores[:half], self.truth[:half], delta=delta, confidence=self.confidence
        )
        return Attack.at(
            scores[half:], self.truth[half:], chosen, confidence=self.confidence
        ).epsilon(delta)

    def __repr__(self) -> str:
        kind = "local" if self.is_local else "global"
        return (
            f"Experiment({self.trainings} trainings, {self.relation.value}, {kind} sensitivity,"
            f" advantage {self.advantage.value:.3f})"
        )

    def __str__(self) -> str:
        share = interval_text(self.passed.value, self.passed.low, self.passed.high, 4)
        level = f"{self.confidence:.0%}"
        return "\n".join(
            (
                f"Strong adversary, {self.trainings} trainings of {self.losses.shape[1]} steps"
                f" ({level} intervals)",
                f"  advantage, counted     {self.advantage}",
                f"  advantage, believed    {self.believed_advantage}",
                f"  at most (analytic)     {fixed(self.analytic_advantage, 3, 'up')}, μ ="
                f" {self.guarantee.mu:.3f}; runs had μ = {np.median(self.separations):.3f}",
                f"  belief above {self.belief:g}       {share}; at most"
                f" {fixed(self.analytic_passed, 4, 'up')}",
            )
        )
