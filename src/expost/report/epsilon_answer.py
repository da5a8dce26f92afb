"""The answer of a choice of ε in a few sentences.

Numbers only, so that no name from outside stands in them.
"""

import math
from dataclasses import replace

import numpy as np

from expost.epsilon.choice import EpsilonChoice
from expost.epsilon.sweep import LawSweep
from expost.epsilon.utility import Curve, Utility
from expost.report.epsilon_curves import middle_belief
from expost.report.parts import Headline, one_line
from expost.report.wording import (
    count,
    grouped,
    number_down,
    number_up,
    percent,
    percent_up,
    uncertain,
)
from expost.report.wording import share as share_text
from expost.rounding import rounded_down

__all__ = ["MEASURE_NAMES", "epsilon_answer", "epsilon_headline", "score_text"]

# Nineteen releases of twenty.
_UNLUCKY = 0.95
MEASURE_NAMES = {"accuracy": "accuracy", "auc": "AUC", "log_loss": "log loss", "r2": "R²"}


def epsilon_headline(choice: EpsilonChoice, *, command: bool) -> Headline:
    """Which ε, how sure an attacker gets there, what to do; ``command``: one is shown."""
    if choice.recommended is None:
        return Headline(
            epsilon="No ε is recommended.",
            # The last sentences say which bound fails, and by how much.
            exposed=" ".join(grouped(one_line(reason)) for reason in choice.reasons[-2:]),
            advice=(
                "Allow an attacker more (a higher belief), ask less of the model, gather more rows,"
                " or do not release one."
            ),
        )
    typed = "the command below does" if command else "expost profile does"
    return Headline(
        epsilon=f"Use ε = {_short(choice.recommended)}.",
        exposed=_belief_sentence(choice),
        advice=(
            f"If that is sure enough for you to accept, release one model at this ε ({typed}, and"
            " says what it gives away); if not, ask again with a lower belief."
        ),
    )


def epsilon_answer(choice: EpsilonChoice) -> tuple[str, ...]:
    """What it costs, and where the transition is."""
    sentences: list[str] = []
    utility, chosen = choice.utility, choice.recommended
    if utility is not None and chosen is not None and chosen in utility.epsilons:
        place = int(np.searchsorted(utility.epsilons, chosen))
        sentences = [_utility_sentence(utility, place), *_cheaper_sentence(utility, place)]
    return (*sentences, _transition_sentence(choice))


def _belief_sentence(choice: EpsilonChoice) -> str:
    bound, epsilon = choice.bound, choice.recommended
    assert epsilon is not None
    if isinstance(choice.sweep, LawSweep):
        epsilon = rounded_down(epsilon)
    belief = uncertain(choice.sweep.belief(bound, np.array([epsilon]))[0])
    before = (
        "was undecided (50\N{NO-BREAK SPACE}%)"
        if bound.prior == 0.5
        else f"held it for {share_text(bound.prior)} likely"
    )
    how = (
        "on average over the models that may be released,"
        if bound.quantile is None
        else f"from the models that may be released, with probability {bound.quantile:g} at most"
    )
    found = middle_belief(choice, epsilon)
    middle = "" if found is None else f"; of a middle row {percent_up(uncertain(found))}"
    return (
        f"Somebody who knows all other rows and {before} gets at ε = {_short(epsilon)},"
        f" {how} {percent_up(belief)} sure that the most exposed of the {count(choice.sweep.rows)}"
        f" rows is in the data{middle}.{_unlucky_sentence(choice, epsilon)}"
    )


def _unlucky_sentence(choice: EpsilonChoice, epsilon: float) -> str:
    """A mean hides the unlucky release: what the worst in twenty does, where the law is known."""
    if choice.bound.quantile is not None or not isinstance(choice.sweep, LawSweep):
        return ""
    unlucky = replace(choice.bound, quantile=_UNLUCKY)
    belief = uncertain(choice.sweep.belief(unlucky, np.array([epsilon]))[0])
    return (
        f" One release in twenty makes that attacker {percent_up(belief)} sure of the most exposed"
        " row, or surer."
    )


def _utility_sentence(utility: Utility, place: int) -> str:
    name, curve = utility.leading
    figures = (curve.mean, curve.low, curve.high)
    mean, low, high = (score_text(MEASURE_NAMES[name], float(part[place])) for part in figures)
    rest = [score_text(MEASURE_NAMES[name], part) for part in (curve.noiseless, curve.base_rate)]
    is_accuracy = name == "accuracy"
    subject = "is right for" if is_accuracy else "has an R² of"
    rows = "of rows" if is_accuracy else "on rows"
    known = "always naming the more frequent label" if is_accuracy else "the mean alone"
    return (
        f"A model released at this ε {subject} {mean} {rows} that it has not seen (nine releases"
        f" of ten: {low} to {high}). Without any noise it would be {rest[0]},"
        f" {_cost(curve, place)}; {known} gets {rest[1]}."
    )


def _cheaper_sentence(utility: Utility, place: int) -> list[str]:
    """Whether a smaller ε would do as well: from there on without a gap."""
    name, curve = utility.leading
    worse = np.flatnonzero(curve.mean[:place] < curve.mean[place] - curve.error[place])
    start = int(worse[-1]) + 1 if len(worse) else 0
    if start == place:
        return []
    return [
        f"The {MEASURE_NAMES[name]} alone would allow a smaller one: down to ε ="
        f" {_short(float(utility.epsilons[start]))} it is the same within its standard error, and"
        " every exposure shrinks with ε."
    ]


def _cost(curve: Curve, place: int) -> str:
    """What the noise costs, as a share of what the columns are worth."""
    lost, worth = curve.noiseless - float(curve.mean[place]), curve.noiseless - curve.base_rate
    if not worth > 0:
        return "which is no better than knowing the labels alone"
    if lost < 0.005 * worth:
        return "so that the noise costs next to nothing"
    if not lost < worth:
        return "so that the noise costs all that the columns are worth"
    return f"so that the noise costs {percent(lost / worth)} of what the columns are worth"


def _transition_sentence(choice: EpsilonChoice) -> str:
    low, high, sweep = choice.low, choice.high, choice.sweep
    share = sweep.share if isinstance(sweep, LawSweep) else None
    many = (
        "the asked share of"
        if share is None
        else "all"
        if share == 1
        else share_text(share) + " of"
    )
    start = (
        f"Up to ε = {_short(low)} the exposure of every row shrinks in step with ε"
        if low > 0
        else "At no ε does the exposure of every row shrink in step with ε"
    )
    if not high < math.inf:
        return f"{start}; no ε leaves {many} the rows without protection."
    return (
        f"{start}; from ε = {number_up(high)} on {many} the rows have hardly any"
        " protection left. In between it is lost by one row after the other."
    )


def score_text(measure: str, value: float) -> str:
    """A score as a person reads it: a share of rows, or a plain number."""
    if measure == "accuracy":
        return percent(min(max(value, 0.0), 1.0))
    return f"{value:.3f}".replace("-", "−")


def _short(epsilon: float) -> str:
    """An ε that promises something: never more than it is."""
    return number_down(epsilon)
