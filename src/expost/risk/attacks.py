"""Attacks beyond membership: re-identification, attribute inference and reconstruction.

Conventions
-----------
S         the other rows, which the attacker knows. Z is the target's row, unknown to the attacker
          except for a prior that may depend on S.
attack    any guess that is computed from the release, at random or not. It succeeds if it is right
          about Z. The three risks differ in what a right guess is, and in nothing else.
baseline  the largest probability with which one fixed guess is right: what the attacker reaches
          with a release that does not depend on Z.
bound     TPR(baseline), the largest true-positive rate at the false-positive rate ``baseline``,
          bounds the probability of success with the real release (Kulynych et al. 2025; the proof
          is in docs/theory/mathematics-risk.md). Some mechanism with the guarantee reaches it.
gain      bound − baseline. It is at most the membership advantage.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from expost import _checks
from expost.errors import InvalidInput
from expost.files.sealed import plain
from expost.numbers import (
    LEAST_DOUBT,
    at_most,
    chance,
    chosen_chance,
    in_words,
    percent_at_most,
)
from expost.risk.guarantee import Guarantee

__all__ = ["RISKS", "AttackBound", "Risk", "attack_bounds", "baselines_of", "gain_over"]

_TINY = 5e-324


@dataclass(frozen=True, kw_only=True)
class Risk:
    """A kind of attack.

    Parameters
    ----------
    name : str
        Its name in Python and JSON.
    label : str
        Its name in a sentence.
    goal : str
        What the attacker does if a guess is right.
    knowledge : str
        What the attacker knows, and what the baseline is.
    """

    name: str
    label: str
    goal: str
    knowledge: str

    @property
    def assumption(self) -> str:
        """What the bound assumes, in sentences."""
        label, knowledge = self.label, self.knowledge
        return f"{label[0].upper()}{label[1:]}: {knowledge[0].lower()}{knowledge[1:]}"


RISKS = {
    risk.name: risk
    for risk in (
        Risk(
            name="re_identification",
            label="re-identification",
            goal="singles out the person whose row it is",
            knowledge="The attacker knows every other row and the rows of all candidates. The"
            " baseline is the prior of the likeliest candidate, 1/N for N equally likely ones.",
        ),
        Risk(
            name="attribute_inference",
            label="attribute inference",
            goal="infers the unknown attribute of a person's row",
            knowledge="The attacker knows every other row and all other attributes of the row. The"
            " baseline is the probability of the likeliest value, given all of these.",
        ),
        Risk(
            name="reconstruction",
            label="reconstruction",
            goal="reconstructs a person's row to the accuracy in question",
            knowledge="The attacker knows every other row and the distribution of the row. The"
            " baseline is the probability that the best fixed guess is as accurate.",
        ),
    )
}


@dataclass(frozen=True, kw_only=True)
class AttackBound:
    """How often an attack succeeds, at most, by every route.

    Parameters
    ----------
    risk : Risk
        The kind of attack.
    baseline : float
        The probability of success without a release.
    by, gain : Mapping[str, float]
        The probability of success with the release, and its excess over the baseline, by the key
        of the route; rounded up.
    shown, gain_shown : Mapping[str, str]
        The same as strings, rounded up.
    sentence : str
        What the bound of the first route means.
    """

    risk: Risk
    baseline: float
    by: Mapping[str, float]
    gain: Mapping[str, float]
    shown: Mapping[str, str]
    gain_shown: Mapping[str, str]
    sentence: str

    def fields(self) -> dict[str, Any]:
        """Return the values of the JSON.

        Returns
        -------
        dict[str, Any]
            The fields by name.
        """
        return {
            "label": self.risk.label,
            "knowledge": self.risk.knowledge,
            "baseline": self.baseline,
            "bound": plain(self.by),
            "gain": plain(self.gain),
            "sentence": self.sentence,
        }


def baselines_of(baseline: float | Mapping[str, float] | None) -> dict[str, float]:
    """Return the baseline of each risk that is asked for: of all three, or by name.

    Parameters
    ----------
    baseline : float | Mapping[str, float] | None
        One probability in (0, 1) for all three risks, or one for each name of ``RISKS``.

    Returns
    -------
    dict[str, float]
        The baselines by the name of the risk; empty for None.

    Raises
    ------
    InvalidInput
        If a name is not known, or a baseline is not in (0, 1).
    """
    if baseline is None:
        return {}
    if not isinstance(baseline, Mapping):
        return dict.fromkeys(RISKS, _checks.probability("baseline", baseline))
    unknown = [name for name in baseline if name not in RISKS]
    if unknown or not baseline:
        names = ", ".join(repr(name) for name in RISKS)
        raise InvalidInput(
            f"baseline={dict(baseline)!r}: must be a probability, or one for each of {names}."
        )
    return {
        name: _checks.probability(f"baseline[{name!r}]", baseline[name])
        for name in RISKS
        if name in baseline
    }


def attack_bounds(
    routes: Mapping[str, Guarantee],
    baselines: Mapping[str, float],
    *,
    is_empty: Callable[[Guarantee], bool],
    observed: str = "the model",
) -> tuple[AttackBound, ...]:
    """Return the bound of each risk at its baseline, by every route."""
    empty = {key: is_empty(guarantee) for key, guarantee in routes.items()}
    rates = {
        value: {key: guarantee.true_positive_rate(value) for key, guarantee in routes.items()}
        for value in dict.fromkeys(baselines.values())
    }
    return tuple(
        _bound(RISKS[name], baseline, rates[baseline], empty, observed)
        for name, baseline in baselines.items()
    )


def _bound(
    risk: Risk,
    baseline: float,
    by: Mapping[str, float],
    empty: Mapping[str, bool],
    observed: str,
) -> AttackBound:
    first = next(iter(by))
    gain = {key: gain_over(baseline, value) for key, value in by.items()}
    return AttackBound(
        risk=risk,
        baseline=baseline,
        by=by,
        gain=gain,
        shown={
            key: percent_at_most(value, None if empty[key] else max(1 - value, _TINY))
            for key, value in by.items()
        },
        gain_shown={key: at_most(value) for key, value in gain.items()},
        sentence=_sentence(risk, baseline, by[first], observed, certain=empty[first]),
    )


def gain_over(baseline: float, bound: float) -> float:
    """Return bound − baseline, rounded up; 0 where they are equal."""
    return math.nextafter(bound - baseline, math.inf) if bound > baseline else 0.0


def _sentence(risk: Risk, baseline: float, bound: float, observed: str, *, certain: bool) -> str:
    start = f"{risk.label[0].upper()}{risk.label[1:]}: an attacker who {risk.goal}"
    before = chosen_chance(baseline)
    often = f"with a chance of {before} before seeing {observed}"
    if 1 - bound < LEAST_DOUBT:
        can = "can always do so" if certain else "can do so nearly always"
        return f"{start} {often} {can} after seeing it."
    most = chance(bound) if before.startswith("1 in") else percent_at_most(bound)
    return f"{start} {often} does so with a chance of {in_words(most)} after seeing it."
