"""Which promise keeps a goal: an ε for any mechanism, a μ for Gaussian noise, DP-SGD's noise.

Conventions
-----------
As in :mod:`expost.risk.questions`. Everything is rounded towards more noise, and the promise of
what is answered was evaluated: it keeps the goal. Of k releases the ε of each is that of all, found
for k·δ, over k (sequential composition); μ is over √k, which keeps a belief where all releases are
fixed beforehand and every other goal always; DP-SGD runs k times its steps.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from expost.errors import InvalidInput
from expost.risk import calibration, inverse, paper
from expost.risk._arguments import extended
from expost.risk.answer import Identifiability, Route
from expost.risk.figures import Setting, Told
from expost.risk.forward import together_gaussian
from expost.risk.promises import EpsilonDelta
from expost.risk.questions import (
    Asked,
    Training,
    answer,
    any_route,
    dpsgd_route,
    gaussian_route,
    paper_route,
)
from expost.risk.wording import chosen_percent
from expost.rounding import at_least, at_most, lower_text

__all__ = ["GOALS", "of_goal"]

_DIGITS = 4
_AS_GIVEN = 17
_NO_DELTA = (
    "Without a delta the goal is kept for certain, which no Gaussian noise does: name a delta well"
    " below one over the number of rows to see what noise keeps it but with a small chance."
)


@dataclass(frozen=True, kw_only=True)
class _Goal(ABC):
    """What an attacker may reach, and the three inverses that keep her from more."""

    value: float
    setting: Setting

    name: ClassVar[str]
    is_belief: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._check()

    @abstractmethod
    def _check(self) -> None:
        """Refuse what an attacker has without any release, and what nothing keeps her from."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The goal as a person says it."""

    @abstractmethod
    def epsilon(self) -> float:
        """The ε of all releases together, at the δ of all."""

    @abstractmethod
    def mu(self) -> float:
        """The μ of each release."""

    @abstractmethod
    def noise_multiplier(self, run: dict[str, Any]) -> float:
        """That of DP-SGD; ``run`` holds its steps, sampling rate and relation."""

    def _between(self, low: float, what: str) -> None:
        if not low < self.value < 1:
            raise InvalidInput(
                f"{self.name}={self.value!r}: must lie strictly between {low!r}, {what}, and 1."
            )

    @property
    def _from_prior(self) -> str:
        prior = self.setting.prior
        return "" if prior == 0.5 else f" from a prior of {chosen_percent(prior)}"

    @property
    def _passed(self) -> float | None:
        """The probability with which a belief may be passed under (ε, δ); None for pure ε."""
        return self.setting.exceeded if self.setting.delta > 0 else None


class _Belief(_Goal):
    name = "belief"
    is_belief = True

    def _check(self) -> None:
        self._between(self.setting.prior, "the prior")

    @property
    def words(self) -> str:
        return f"a belief of at most {chosen_percent(self.value)}{self._from_prior}"

    def epsilon(self) -> float:
        return inverse.epsilon_from_belief(
            self.value, prior=self.setting.prior, delta=self.setting.delta, exceeded=self._passed
        )

    def mu(self) -> float:
        return inverse.mu_from_belief(
            self.value,
            prior=self.setting.prior,
            delta=self.setting.known,
            releases=self.setting.releases,
        )

    def noise_multiplier(self, run: dict[str, Any]) -> float:
        return calibration.noise_multiplier_for_belief(
            self.value, prior=self.setting.prior, delta=self.setting.known, **run
        )


class _OneIn(_Goal):
    name = "one_in"
    is_belief = True

    def _check(self) -> None:
        most = 1 / self.setting.prior
        if not 1 < self.value < most:
            raise InvalidInput(
                f"one_in={self.value!r}: must lie strictly between 1 and 1/prior = {most:g}; for"
                " one of 1,000 suspects say prior=0.001."
            )

    @property
    def words(self) -> str:
        return f"one in {at_least(self.value, _AS_GIVEN)} or more{self._from_prior}"

    def epsilon(self) -> float:
        return inverse.epsilon_from_one_in(
            self.value, prior=self.setting.prior, delta=self.setting.delta, exceeded=self._passed
        )

    def mu(self) -> float:
        return inverse.mu_from_one_in(
            self.value,
            prior=self.setting.prior,
            delta=self.setting.known,
            releases=self.setting.releases,
        )

    def noise_multiplier(self, run: dict[str, Any]) -> float:
        return calibration.noise_multiplier_for_one_in(
            self.value, prior=self.setting.prior, delta=self.setting.known, **run
        )


class _Advantage(_Goal):
    name = "advantage"

    def _check(self) -> None:
        self._between(self.setting.delta, "delta")

    @property
    def words(self) -> str:
        return f"an advantage of at most {at_least(self.value, _AS_GIVEN)}"

    def epsilon(self) -> float:
        return inverse.epsilon_from_advantage(self.value, delta=self.setting.delta)

    def mu(self) -> float:
        return inverse.mu_from_advantage(self.value, releases=self.setting.releases)

    def noise_multiplier(self, run: dict[str, Any]) -> float:
        return calibration.noise_multiplier_for_advantage(self.value, **run)


class _TruePositives(_Goal):
    name = "true_positive_rate"

    def _check(self) -> None:
        low = self.setting.false_positive_rate + self.setting.delta
        self._between(low, "false_positive_rate + delta")

    @property
    def words(self) -> str:
        return (
            f"at most {chosen_percent(self.value)} of members found where"
            f" {chosen_percent(self.setting.false_positive_rate)} of others are taken for them"
        )

    def epsilon(self) -> float:
        return inverse.epsilon_from_true_positive_rate(
            self.value,
            false_positive_rate=self.setting.false_positive_rate,
            delta=self.setting.delta,
        )

    def mu(self) -> float:
        return inverse.mu_from_true_positive_rate(
            self.value,
            false_positive_rate=self.setting.false_positive_rate,
            releases=self.setting.releases,
        )

    def noise_multiplier(self, run: dict[str, Any]) -> float:
        return calibration.noise_multiplier_for_true_positive_rate(
            self.value, false_positive_rate=self.setting.false_positive_rate, **run
        )


_KINDS: dict[str, type[_Goal]] = {
    kind.name: kind for kind in (_Belief, _Advantage, _TruePositives, _OneIn)
}
GOALS = tuple(_KINDS)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One route's answer: what is to be set, and the sentence that says so."""

    route: Route
    told: dict[str, float]
    sentence: tuple[str, str] | None = None


def of_goal(
    name: str, value: float, asked: Asked, training: Training | None = None
) -> Identifiability:
    """What keeps a goal, and what it then means in all other words."""
    goal = _KINDS[name](value=extended(name, value), setting=asked.setting(each=True))
    parts = [_any(goal)]
    if goal.setting.known > 0 or not goal.is_belief:
        parts.append(_gaussian(goal))
    if training is not None:
        parts.append(_dpsgd(goal, training))
    parts += _paper(goal)
    told: dict[str, dict[str, float]] = {}
    for part in parts:
        for figure, number in part.told.items():
            told.setdefault(figure, {})[part.route.key] = number
    count = asked.releases
    return answer(
        goal.words if count == 1 else f"{goal.words} over {count:,} releases",
        [part.route for part in parts],
        goal.setting,
        Told(by=told),
        is_goal=True,
        sentences=dict(part.sentence for part in parts if part.sentence is not None),
        notices=(_NO_DELTA,) if goal.is_belief and not goal.setting.known > 0 else (),
    )


def _any(goal: _Goal) -> _Part:
    setting, epsilon = goal.setting, goal.epsilon()
    count, at = setting.releases, ""
    told = {"epsilon": epsilon}
    if setting.delta > 0:
        at = f" at delta = {lower_text(setting.delta / count, 3)}"
    if count > 1:
        # Down, so that k times it is not above what all may have.
        told["epsilon_each"] = math.nextafter(epsilon / count, 0.0)
    each = told.get("epsilon_each", epsilon)
    which = "" if count == 1 else " for each release"
    return _Part(
        route=any_route(EpsilonDelta(epsilon=epsilon, delta=setting.delta)),
        told=told,
        sentence=(
            "epsilon" if count == 1 else "epsilon_each",
            f"Any mechanism with epsilon = {at_least(each, _DIGITS)}{at}{which} keeps it.",
        ),
    )


def _gaussian(goal: _Goal) -> _Part:
    mu, count = goal.mu(), goal.setting.releases
    sigma = math.nextafter(1 / mu, math.inf)
    return _Part(
        route=gaussian_route(together_gaussian(mu, count), count),
        told={"mu": mu, "sigma": sigma},
        sentence=(
            "mu",
            f"Gaussian noise of {at_most(sigma, _DIGITS)} times what one row can change (its"
            " standard deviation) keeps it.",
        ),
    )


def _dpsgd(goal: _Goal, training: Training) -> _Part:
    if goal.is_belief and not goal.setting.known > 0:
        raise InvalidInput(
            f"delta=None: DP-SGD keeps {goal.name}={goal.value!r} but with a small chance; give a"
            " delta well below one over the number of rows."
        )
    steps = training.steps * goal.setting.releases
    run = replace(training, steps=steps)
    noise = goal.noise_multiplier(vars(run))
    return _Part(
        route=dpsgd_route(run.with_noise(noise)),
        told={"noise_multiplier": noise},
        sentence=(
            "noise_multiplier",
            f"DP-SGD with a noise multiplier of {at_most(noise, _DIGITS)} keeps it, over {steps:,}"
            f" steps at a sampling rate of {training.sampling_rate:g}.",
        ),
    )


def _paper(goal: _Goal) -> list[_Part]:
    """D5.3's own inverses, of one undecided attacker and one release."""
    setting, told = goal.setting, {}
    if setting.prior != 0.5 or setting.releases > 1:
        return []
    note = ""
    if goal.name == "belief":
        told["epsilon"] = paper.epsilon_from_belief(goal.value)
        note = "epsilon by Thm 2, inverted"
        if setting.delta > 0:
            told["mu"] = paper.rdp_mu_from_belief(goal.value, setting.delta)
            told["advantage"] = paper.rdp_advantage_from_belief(goal.value, setting.delta)
            note += " (not every mechanism keeps it but with probability delta: erratum 10)"
            note += "; mu and its advantage by (4.7), from Rényi divergences, at delta itself"
    elif goal.name == "advantage" and setting.delta > 0:
        told["epsilon"] = paper.epsilon_from_gaussian_advantage(goal.value, setting.delta)
        note = "epsilon by Thm 3, inverted (with the 2 that the print lacks), for Gaussian noise of"
        note += " the classical sigma, which is private for epsilon < 1 only"
        note += ": not here" if told["epsilon"] >= 1 else ""
    return [_Part(route=route, told=told) for route in paper_route(f"{note}." if note else "")]
