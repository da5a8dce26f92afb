"""Which ε, and why: from the transition, the bound on belief and the held-out utility.

The rule
--------
ceiling   min(high, ε for the belief): past ``high`` nothing changes, past the other a person could
          be believed to be in the data with more certainty than was asked for.
floor     min(low, ceiling): below ``low`` more noise no longer changes the shape of the profile.
          (The ceiling, where at a fixed δ no ε has every row on its first plateau.)
choice    the smallest ε in [floor, ceiling] that reaches the utility asked for (or the largest one
          below it that does, if none there does); or, where no utility was asked for, the smallest
          whose mean utility is within one standard error of that at the ceiling; or the
          ceiling, where the utility was not measured.
None      where no ε keeps every bound: the sentences say which one fails and by how much.
"""

import math
from dataclasses import dataclass

import numpy as np

from expost.epsilon.sampled import Sweep
from expost.epsilon.sweep import BeliefBound
from expost.epsilon.utility import Utility
from expost.rounding import fixed, lower_text, upper_text

__all__ = ["Recommendation", "recommend"]

# Where the belief is shown that even the smallest ε leaves.
_NEXT_TO_NOTHING = 1e-6
_NAMES = {"accuracy": "accuracy", "r2": "R²"}


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """An ε, or None where no ε will do, and the reasons, a sentence each."""

    epsilon: float | None
    reasons: tuple[str, ...]


def recommend(
    sweep: Sweep,
    bound: BeliefBound,
    epsilon_for_belief: float,
    utility: Utility | None,
    least_utility: float | None,
) -> Recommendation:
    """Apply the rule of this module."""
    low, high = sweep.low, sweep.high
    trouble = _trouble(sweep, bound, epsilon_for_belief)
    if trouble is not None:
        return Recommendation(epsilon=None, reasons=(trouble,))
    # What is not known of the transition is no bound: the belief decides alone.
    ceiling = epsilon_for_belief if math.isnan(high) else min(high, epsilon_for_belief)
    floor = min(low, ceiling) if low > 0 else ceiling
    reasons = [*_range_sentences(sweep), *_belief_sentences(sweep, bound, ceiling)]
    measured = utility is not None and np.any(
        (utility.epsilons >= floor) & (utility.epsilons <= ceiling)
    )
    if not measured and least_utility is not None:
        reasons.append(
            f"Whether it is of any use there was not measured, though a utility of at least"
            f" {lower_text(least_utility)} was asked for: add values between {_short(floor)} and"
            f" {_short(ceiling)} to epsilons."
        )
        return Recommendation(epsilon=None, reasons=tuple(reasons))
    if utility is None or not measured:
        reasons.append(
            f"The utility was not measured there, so that ε = {_short(ceiling)} is simply the"
            " largest that keeps both."
        )
        return Recommendation(epsilon=ceiling, reasons=tuple(reasons))
    name, curve = utility.leading
    inside = (utility.epsilons >= floor) & (utility.epsilons <= ceiling)
    places = np.flatnonzero(inside)
    top = places[-1]
    word = _NAMES[name]
    if least_utility is not None:
        enough = places[curve.mean[places] >= least_utility]
        if not len(enough):
            # Noise may do without harm below the floor, too: the largest such ε.
            under = np.flatnonzero(utility.epsilons < floor)
            enough = under[curve.mean[under] >= least_utility][-1:]
        if not len(enough):
            reasons += _short_of(sweep, bound, utility, least_utility, ceiling)
            return Recommendation(epsilon=None, reasons=tuple(reasons))
        chosen = enough[0]
        others = (
            "larger value tried that keeps the belief"
            if chosen < places[0]
            else "smaller value tried from there on"
        )
        reasons.append(
            f"At ε = {_short(utility.epsilons[chosen])} the mean held-out {word},"
            f" {curve.mean[chosen]:.3f}, reaches the {least_utility:g} asked for, as at no"
            f" {others}."
        )
    else:
        near = curve.mean[places] >= curve.mean[top] - curve.error[top]
        chosen = places[np.flatnonzero(near)[0]]
        if chosen == top:
            reasons.append(
                f"A smaller ε would cost {word}: it is {curve.mean[top]:.3f} on held-out rows at"
                f" ε = {_short(ceiling)}, and {curve.mean[places[0]]:.3f} at"
                f" ε = {_short(utility.epsilons[places[0]])}."
                if len(places) > 1
                else f"There the mean held-out {word} is {curve.mean[top]:.3f}."
            )
        else:
            reasons.append(
                f"ε = {_short(utility.epsilons[chosen])} is the smallest value tried whose mean"
                f" held-out {word}, {curve.mean[chosen]:.3f}, is within a standard error"
                f" ({curve.error[top]:.3f}) of the {curve.mean[top]:.3f} at ε = {_short(ceiling)}."
            )
    reasons.append(
        f"Beside it: {curve.base_rate:.3f} for a model that knows the labels alone,"
        f" {curve.noiseless:.3f} without noise; nine of ten releases score between"
        f" {curve.low[chosen]:.3f} and {curve.high[chosen]:.3f}."
    )
    reasons += _remarks(utility, chosen)
    return Recommendation(epsilon=float(utility.epsilons[chosen]), reasons=tuple(reasons))


def _remarks(utility: Utility, chosen: int) -> list[str]:
    """What the rule leaves out and a person would want to know."""
    name, curve = utility.leading
    word = _NAMES[name]
    remarks = []
    least = curve.mean[chosen] - curve.error[chosen]
    # From there on without a gap, up to the chosen one.
    worse = np.flatnonzero(curve.mean[:chosen] < least)
    start = 0 if not len(worse) else int(worse[-1]) + 1
    if start < chosen:
        remarks.append(
            f"Down to ε = {_short(utility.epsilons[start])} the mean {word} stays within a standard"
            " error of that: if nothing else speaks against it, a smaller ε costs nothing here,"
            " and every loss shrinks with it."
        )
    if not curve.noiseless > curve.base_rate:
        remarks.append(
            f"Not even without noise does this model beat the labels alone in {word}: its columns"
            " or its regularization must change before ε matters."
        )
    return remarks


def _trouble(sweep: Sweep, bound: BeliefBound, limit: float) -> str | None:
    """Why there is no range to choose from, if so."""
    if not limit > 0:
        least = float(sweep.belief(bound, np.array([_NEXT_TO_NOTHING]))[0])
        return (
            f"No ε keeps {_whose(bound)} at {upper_text(bound.largest)}: however small ε is, that"
            " much"
            f" cannot be vouched for; at ε = {_NEXT_TO_NOTHING:g} it may be {upper_text(least)},"
            f" {upper_text(least - bound.largest, 2)} more. Take a smaller δ if there is one, a"
            " larger"
            " regularization, or a larger max_belief."
        )
    if not np.fmin(sweep.high, limit) < math.inf:
        return (
            "Nothing limits ε: no row moves the model so far that its typical belief could pass"
            f" {upper_text(bound.largest)}, and fewer rows than were asked for ever reach a second"
            " regime."
        )
    return None


def _range_sentences(sweep: Sweep) -> list[str]:
    if math.isnan(sweep.low):
        below = "Where rows leave their first plateau was not found (the notices say why)"
    elif sweep.low > 0:
        below = (
            f"Below ε = {_short(sweep.low)} every row is on its first plateau: more noise only"
            " shrinks all losses alike"
        )
    else:
        below = (
            "At no ε is every row on its first plateau, since at this δ the noise stays finite as"
            " ε falls to 0"
        )
    if math.isnan(sweep.high):
        above = (
            "nor was the end of the transition"
            if math.isnan(sweep.low)
            else ("where the transition ends was not found (the notices say why)")
        )
    elif sweep.high < math.inf:
        above = (
            f"above ε = {upper_text(sweep.high, 3)} no more privacy is lost to speak of, for there"
            " is hardly any left"
        )
    else:
        above = (
            "no ε brings the asked share of rows to its second regime, since too many of them do"
            " not move the model"
        )
    return [f"{below}; {above} (followed: {sweep.measure})."]


def _belief_sentences(sweep: Sweep, bound: BeliefBound, ceiling: float) -> list[str]:
    whose = _whose(bound)
    if ceiling < sweep.low:
        at_low = float(sweep.belief(bound, np.array([sweep.low]))[0])
        return [
            f"The belief decides: up to ε = {_short(ceiling)} {whose} stays within"
            f" {upper_text(bound.largest)}.",
            f"The transition lies above that, and begins where that belief is already"
            f" {at_low:.3f}: the shape of the profile would not tell you to stop so soon, the size"
            " of the losses does.",
        ]
    if not sweep.high <= ceiling:
        where = " inside the transition" if sweep.low <= ceiling < sweep.high else ""
        return [
            f"The belief decides{where}: up to ε = {_short(ceiling)} {whose} stays"
            f" within {upper_text(bound.largest)}."
        ]
    at_high = float(sweep.belief(bound, np.array([sweep.high]))[0])
    return [
        f"The belief does not limit ε here: {whose} is {fixed(at_high, 3, 'up')} at ε ="
        f" {_short(ceiling)},"
        f" within {upper_text(bound.largest)}."
    ]


def _whose(bound: BeliefBound) -> str:
    kind = "typical belief" if bound.quantile is None else f"{bound.quantile:g}-quantile of belief"
    return f"the {kind} in the most exposed row (from a prior of {bound.prior:g})"


def _short_of(
    sweep: Sweep, bound: BeliefBound, utility: Utility, least: float, ceiling: float
) -> list[str]:
    """Which bound fails, and by how much."""
    name, curve = utility.leading
    word = _NAMES[name]
    place = int(np.flatnonzero(utility.epsilons <= ceiling)[-1])
    reached = float(curve.mean[place])
    sentences = [
        f"No ε keeps every bound: at ε = {_short(ceiling)}, the largest that is left, the mean"
        f" held-out {word} is {reached:.4g}, which is {least - reached:.3g} short of the"
        f" {least:g} asked for."
    ]
    beyond = np.flatnonzero((utility.epsilons > ceiling) & (curve.mean >= least))
    if len(beyond):
        there = utility.epsilons[beyond[0]]
        belief = float(sweep.belief(bound, np.array([there]))[0])
        broken = []
        if belief > bound.largest:
            broken.append(f"{belief - bound.largest:.3g} more than allowed")
        if there > sweep.high:
            broken.append("past the end of the transition")
        where = f"It is reached at ε = {_short(there)}, where {_whose(bound)} is {belief:.3f}"
        sentences.append(", ".join([where, *broken]) + ".")
    elif curve.noiseless < least:
        sentences.append(
            f"Not even without noise is it reached: {word} is {curve.noiseless:.3f} there, so that"
            " the model, its regularization or its columns must change, not ε."
        )
    else:
        sentences.append("No ε that was tried reaches it; widen epsilons.")
    return sentences


def _short(epsilon: float) -> str:
    return lower_text(epsilon, 3)
