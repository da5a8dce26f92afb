"""The overview of a choice of ε: verdict, tiles, alerts, terms and facts.

What holds up to an ε (recommended, ceiling, start of the transition) is rounded down; what holds
from an ε on (end of the transition, an ε that would be enough) is rounded up.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.special import logit

from expost.epsilon.choice import EpsilonChoice
from expost.epsilon.recommend import Verdict as Decision
from expost.epsilon.sweep import LawSweep
from expost.epsilon.utility import Utility
from expost.mechanisms.base import noise_title
from expost.notices import listed
from expost.numbers import (
    certainty,
    count,
    fixed,
    number,
    percent,
    relation_words,
    rounded_down,
    share,
    significant,
    symbols,
)
from expost.report.compare import model_facts
from expost.report.document import Alert, Tile, Tone, Verdict, one_line
from expost.report.sections.bounds import at_most, exception
from expost.types import Neighbouring

__all__ = [
    "MEASURES",
    "alerts",
    "below_one",
    "epsilon_text",
    "facts",
    "glossary",
    "methods",
    "posterior_text",
    "released_epsilon",
    "score_text",
    "subtitle",
    "tiles",
    "tried_index",
    "verdict",
]

MEASURES = {"log_loss": "log loss", "r2": "R²", "auc": "AUC", "accuracy": "accuracy"}
_TONES: dict[Decision, Tone] = {
    Decision.ENOUGH: "good",
    Decision.MOST: "caution",
    Decision.NONE: "bad",
    Decision.USELESS: "bad",
}
_PRIORITY = 60


def subtitle(choice: EpsilonChoice) -> tuple[str, ...]:
    """Return the model and the data in short phrases."""
    if choice.plan is None:
        return (one_line(choice.description),)
    mechanism = choice.plan(choice.recommended or 1.0)
    return (
        one_line(mechanism.title),
        noise_title(mechanism.noise),
        f"{count(choice.sweep.rows)} rows",
        f"{count(mechanism.dimension)} coefficients",
    )


def facts(choice: EpsilonChoice) -> dict[str, Any]:
    """Return what other documents on the page are compared with."""
    ceiling = choice.ceiling
    return {
        "verdict": choice.verdict,
        "recommended": released_epsilon(choice),
        "ceiling": rounded_down(ceiling) if 0 < ceiling < math.inf else None,
        "delta": None if choice.plan is None else choice.plan(1.0).delta,
        "rows": choice.sweep.rows,
        "max_posterior": choice.limit.max_posterior,
        "prior": choice.limit.prior,
        "quantile": choice.limit.quantile,
        "largest_loss": choice.limit.largest_loss,
    } | ({} if choice.plan is None else model_facts(choice.plan(1.0)))


def released_epsilon(choice: EpsilonChoice) -> float | None:
    """Return the recommended ε as it is typed, rounded down."""
    epsilon = choice.recommended
    return None if epsilon is None or not epsilon < math.inf else rounded_down(epsilon)


def verdict(choice: EpsilonChoice) -> Verdict:
    """Return the decision in one sentence, and what it follows from."""
    decision = choice.recommendation.verdict
    if not choice.ceiling > 0 and decision is Decision.NONE:
        text = "No ε keeps the limit on the posterior."
        more = "Allow a larger posterior, or use another noise."
    elif choice.utility is None:
        text = f"ε = {epsilon_text(choice.ceiling)} is the most that {_limit(choice)} allows."
        more = "How useful a model is there was not measured."
    else:
        text, more = _SENTENCES[decision](choice, choice.utility)
    return Verdict(text=text, more=more, tone=_TONES[decision], priority=_PRIORITY)


def _enough(choice: EpsilonChoice, utility: Utility) -> tuple[str, str]:
    curve, index = utility.leading, tried_index(utility, choice.recommended)
    assert index is not None
    if curve.gap[index] <= curve.gap_error[index]:
        onward = "a larger ε gains nothing that can be measured"
    else:
        left = max(float(curve.gap[index]) / curve.best_gain, 0.0)
        onward = f"a larger ε gains at most {fixed(left, 0, 'up', percent=True)} % more"
    return (
        f"ε = {epsilon_text(choice.recommended)} is enough: {_learnt(choice)}.",
        f"{_scores_text(utility, index)}; {onward}.",
    )


def _most(choice: EpsilonChoice, utility: Utility) -> tuple[str, str]:
    recommendation = choice.recommendation
    required = fixed(recommendation.required_share or 0.0, 0, percent=True)
    if recommendation.enough is None:
        onward = f"no ε that was tried reaches {required} %"
    else:
        rows = _needed(recommendation.rows_needed)
        onward = f"{required} % would take ε = {number(recommendation.enough, 'up')}{rows}"
    return (
        f"ε = {epsilon_text(choice.recommended)} is the most that {_limit(choice)} allows:"
        f" {_learnt(choice)}.",
        f"{_scores_text(utility, tried_index(utility, choice.recommended))}; {onward}.",
    )


def _none(choice: EpsilonChoice, utility: Utility) -> tuple[str, str]:
    recommendation = choice.recommendation
    onward = "no ε that was tried makes a better one"
    if recommendation.better is not None:
        rows, columns = _needed(recommendation.rows_needed), ""
        if recommendation.columns_needed is not None and choice.plan is not None:
            dimension = choice.plan(choice.ceiling).dimension
            columns = (
                f", or {count(recommendation.columns_needed)} coefficients instead of"
                f" {count(dimension)}"
            )
        onward = f"a better one would take ε = {number(recommendation.better, 'up')}{rows}{columns}"
    scores = _scores_text(utility, tried_index(utility, choice.ceiling))
    most = f"at ε = {epsilon_text(choice.ceiling)}, the most that the limit allows"
    return (
        "No ε within the limit makes a model that is better than the base rate: release none.",
        f"{scores} {most}; {onward}.",
    )


def _useless(choice: EpsilonChoice, utility: Utility) -> tuple[str, str]:
    curve = utility.leading
    return (
        "Useless even without noise: no linear model of these columns is shown to predict the"
        " label.",
        f"{_scores_text(utility, None)}, a gain of {number(curve.best_gain, digits=2)} with a"
        f" standard error of {number(curve.best_error, digits=2)}. No ε helps: use other columns or"
        " more rows.",
    )


_SENTENCES: dict[Decision, Callable[[EpsilonChoice, Utility], tuple[str, str]]] = {
    Decision.ENOUGH: _enough,
    Decision.MOST: _most,
    Decision.NONE: _none,
    Decision.USELESS: _useless,
}


def _learnt(choice: EpsilonChoice) -> str:
    part = min(choice.share or 0.0, 1.0)
    learnt = fixed(part, 0, "down", percent=True)
    return f"models reach {learnt} % of what a linear model can learn from these columns"


def _limit(choice: EpsilonChoice) -> str:
    return f"the limit of {share(choice.limit.max_posterior)} on the posterior"


def _needed(rows: int | None) -> str:
    """Return a number of rows with two digits, rounded up."""
    return "" if rows is None else f", or about {count(int(significant(rows, 2, 'up')))} rows"


def epsilon_text(epsilon: float | None) -> str:
    """Return an ε up to which something holds, rounded down."""
    return number(epsilon or 0.0, "down")


def _scores_text(utility: Utility, index: int | None) -> str:
    """Return the leading measure at an ε that was tried, the base rate and the best."""
    name, curve = utility.measure, utility.leading
    here = "" if index is None else f" {score_text(name, float(curve.mean[index]))}"
    return (
        f"Held-out {MEASURES[name]}{here} (base rate {score_text(name, curve.base_rate)}, best"
        f" reachable {score_text(name, curve.best)})"
    )


def score_text(measure: str, value: float) -> str:
    """Return a score: a share of rows, or a number with three decimals."""
    if measure == "accuracy":
        return percent(value)
    return fixed(value, 3).replace("-", "−")


def tried_index(utility: Utility, epsilon: float | None) -> int | None:
    """Return the position of an ε that was tried; None of another."""
    if epsilon is None:
        return None
    index = int(np.searchsorted(utility.epsilons, epsilon))
    tried = index < len(utility.epsilons) and utility.epsilons[index] == epsilon
    return index if tried else None


def tiles(choice: EpsilonChoice) -> Iterator[Tile]:
    """Return utility, guarantee, posterior and limit."""
    yield _useful_tile(choice)
    yield _guarantee_tile(choice)
    posterior = _exposed_tile(choice)
    if posterior is not None:
        yield posterior
    limit, ceiling = choice.limit, choice.ceiling
    kept = f"kept up to ε = {epsilon_text(ceiling)}" if ceiling > 0 else "kept by no ε"
    yield Tile(
        label="Limit",
        value=share(limit.max_posterior),
        lines=(f"posterior of any row in {share(limit.quantile)} of releases", kept),
    )


def _useful_tile(choice: EpsilonChoice) -> Tile:
    """Return the scores at the recommended ε, or at the ceiling."""
    utility = choice.utility
    if utility is None:
        return Tile(label="Useful?", value="not measured")
    name, curve = utility.measure, utility.leading
    epsilon = choice.recommended or choice.ceiling
    index = tried_index(utility, epsilon)
    if index is None:
        value, where = f"{MEASURES[name]} –", "on held-out rows"
    else:
        value = f"{MEASURES[name]} {score_text(name, float(curve.mean[index]))}"
        where = f"on held-out rows at ε = {epsilon_text(epsilon)}"
    base, best = score_text(name, curve.base_rate), score_text(name, curve.best)
    return Tile(
        label="Useful?",
        value=value,
        lines=(f"{best} by the best reachable model", f"{base} by the base rate", where),
        tone=_TONES[choice.recommendation.verdict],
    )


def _guarantee_tile(choice: EpsilonChoice) -> Tile:
    epsilon = released_epsilon(choice)
    if epsilon is None:
        return Tile(label="Guarantee", value="none", lines=("no ε is recommended",), tone="bad")
    value = f"ε = {number(epsilon)}"
    if choice.plan is None:
        return Tile(label="Guarantee", value=value, lines=("as the sampler defines it",))
    mechanism = choice.plan(epsilon)
    delta = "" if mechanism.delta is None else f"δ = {number(mechanism.delta, 'up')}, "
    relation = relation_words(mechanism.covers(Neighbouring.REPLACE), mechanism.rows_per_person)
    worst, passed = mechanism.worst_case, mechanism.worst_case_passed
    lines = [f"{delta}{relation}"]
    if worst < math.inf:
        allowed = certainty(abs(float(logit(choice.limit.prior))) + worst)
        lines.append(f"attacker {at_most(allowed)} certain about any row")
    else:
        lines.append("nothing is guaranteed for one row")
    if passed > 0:
        lines.append(exception(passed))
    return Tile(label="Guarantee", value=value, lines=tuple(lines))


def _exposed_tile(choice: EpsilonChoice) -> Tile | None:
    """Return the posterior at the recommended ε, or at the ceiling."""
    epsilon, limit = choice.recommended or choice.ceiling, choice.limit
    if not 0 < epsilon < math.inf:
        return None
    bounds = choice.posteriors
    exact = choice.posterior_at(np.array([epsilon]))[0] if bounds is None else bounds.row
    posterior = below_one(exact)
    lines = [
        f"bound on its posterior in {share(limit.quantile)} of releases",
        f"at ε = {epsilon_text(epsilon)}, prior {share(limit.prior)}",
    ]
    if bounds is not None:
        lines.append(f"over all rows of one release: {posterior_text(bounds.all_rows)}")
    return Tile(
        label="Most exposed row",
        value=posterior_text(posterior),
        lines=tuple(lines),
        people=min(100, math.ceil(100 * posterior - 1e-9)),
    )


def below_one(posterior: float) -> float:
    """Return a posterior that is never 1, though the nearest float may be."""
    return min(float(posterior), math.nextafter(1.0, 0.0))


def posterior_text(posterior: float) -> str:
    """Return a bound on a posterior, rounded up and never 100 %."""
    return percent(below_one(posterior), "up")


def alerts(choice: EpsilonChoice) -> Iterator[Alert]:
    """Return what the reader must know."""
    yield Alert(
        severity="review",
        title="The chosen ε and the verdict were read from the data, which is not private.",
        text="Review them before you publish them, or choose ε with select_privately.",
    )
    if choice.read_from_data:
        yield Alert(
            severity="review",
            title="Read from the data, which is not private:",
            text=f"{one_line(listed(choice.read_from_data, most=4))}.",
        )
    shown = methods(choice)
    for notice in choice.notices:
        if notice not in shown:
            yield Alert.of("note", symbols(notice))


def methods(choice: EpsilonChoice) -> tuple[str, ...]:
    """Return the notices on how a law was followed, which are shown with the transition."""
    return choice.sweep.remarks if isinstance(choice.sweep, LawSweep) else ()


def glossary(choice: EpsilonChoice) -> tuple[tuple[str, str], ...]:
    """Return the terms of the document."""
    limit = choice.limit
    return (
        (
            "ε",
            "The privacy budget of one release: the smaller, the more noise. Under pure ε no"
            " attacker's odds change by more than a factor of exp(ε), for any data.",
        ),
        (
            "posterior",
            "The probability that a row was in the training data, for an attacker who knows every"
            f" other row and the released model, from a prior of {share(limit.prior)}. It holds in"
            f" {share(limit.quantile)} of the possible releases, for a row that is fixed before the"
            " noise is drawn.",
        ),
        (
            "noise ratio r",
            "The length of the noise over the number of rows. Up to 0.003 a model is about as good"
            " as without privacy; from 0.3 on it is useless.",
        ),
        (
            "share of gain",
            "How much better than the base rate the released models are, as a share of how much"
            " better the best reachable model is.",
        ),
        (
            "expected exposure",
            "The absolute privacy loss of a row, averaged over models: 0 nats reveal nothing, 0.7"
            " nats are a factor of 2 in the odds, 2.3 nats a factor of 10.",
        ),
        (
            "first plateau",
            "So much noise that a row's exposure is proportional to ε.",
        ),
        (
            "second regime",
            "So little noise that every model proves that the row was in the data.",
        ),
        (
            "held out",
            "Models are evaluated on rows that they were not trained on, with the noise and the"
            " regularization of a release of all rows.",
        ),
    )
