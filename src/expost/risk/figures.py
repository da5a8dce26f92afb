"""The figures of an answer: one line of the table each, by every route that has it.

Conventions
-----------
As in :mod:`expost.risk.statement`. Bounds are rounded up, parameters towards more noise.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from expost.numbers import at_least, at_most, percent_at_most, share, upper_text
from expost.risk.attacks import attack_bounds
from expost.risk.composition import CompositionComparison
from expost.risk.gaussian_dp import gaussian_dp
from expost.risk.guarantee import Guarantee, doubt_after, one_in_after, posterior_after
from expost.risk.sentences import (
    advantage_sentence,
    gaussian_dp_sentence,
    one_in_sentence,
    one_in_text,
    posterior_sentence,
    true_positive_sentence,
)
from expost.risk.statement import DIGITS, Figure, Identifiability, Parameters, Route, Setting

__all__ = ["state"]

_TINY = 5e-324
# A δ at which every guarantee has some ε.
_NEARLY_ALL = 1 - 2.0**-50
# e^ε past this is left as a power.
_LARGEST_EXPONENT = 30.0


def state(
    question: str,
    routes: list[Route],
    setting: Setting,
    parameters: Parameters,
    *,
    goal_sentences: Mapping[str, str] | None = None,
    comparison: CompositionComparison | None = None,
    notices: tuple[str, ...] = (),
) -> Identifiability:
    """Return all lines of the table, in the order in which they are read."""
    routes = [
        replace(route, exceeded=setting.exceeded if route.guarantee.has_delta else setting.known)
        for route in routes
    ]
    epsilon = _epsilon_figure(routes, setting, parameters.get("epsilon", {}), goal_sentences)
    figures: list[Figure] = [] if epsilon is None else [epsilon]
    if epsilon is not None and setting.releases == 1:
        # One point of the curve means little without the curve around it.
        first = next(iter(epsilon.by.values()))
        figures += _delta_figures(routes, first) if 0 < first < math.inf else []
    figures += _gaussian_dp_figures(routes, setting)
    figures += _parameter_figures(parameters, goal_sentences or {}, setting.releases)
    figures += _risk_figures(routes, setting)
    return Identifiability(
        question=question,
        is_goal=goal_sentences is not None,
        routes=tuple(routes),
        figures=tuple(figures),
        prior=setting.prior,
        delta=setting.delta,
        exceeded=routes[0].exceeded,
        false_positive_rate=setting.false_positive_rate,
        releases=setting.releases,
        attacks=attack_bounds(
            {route.key: route.guarantee for route in routes},
            setting.baselines,
            is_empty=_is_empty,
            observed=setting.observed,
        ),
        comparison=comparison,
        notices=notices,
    )


def _epsilon_figure(
    routes: Sequence[Route],
    setting: Setting,
    given: Mapping[str, float],
    goal_sentences: Mapping[str, str] | None,
) -> Figure | None:
    """Return ε at the δ of all releases together; a goal's own ε, in ``given``, rounded down."""
    by, shown = {}, {}
    for route in routes:
        if route.key in given:
            by[route.key] = given[route.key]
            shown[route.key] = _parameter_text(by[route.key], up=goal_sentences is None)
        else:
            epsilon = route.guarantee.epsilon(setting.delta)
            # Gaussian noise has no pure ε; a model without noise has none at all.
            if epsilon < math.inf or route.guarantee.advantage == 1:
                by[route.key] = epsilon
                shown[route.key] = at_most(epsilon, DIGITS)
    if not by:
        return None
    at = f" at delta = {upper_text(setting.delta, 3)}" if setting.delta > 0 else ""
    if goal_sentences is None:
        sentence = _epsilon_sentence(next(iter(by.values())), setting.delta)
    else:
        sentence = goal_sentences.get("epsilon", "")
    return Figure(name="epsilon", label=f"epsilon{at}", by=by, shown=shown, sentence=sentence)


def _delta_figures(routes: Sequence[Route], epsilon: float) -> list[Figure]:
    """Return δ at ε/2 and at 2ε of the same guarantees, rounded up."""
    figures = []
    for name, times in (("delta_at_half", 0.5), ("delta_at_double", 2.0)):
        at = times * epsilon
        by = {route.key: route.guarantee.delta(at) for route in routes}
        shown = {key: at_most(value) for key, value in by.items()}
        label = f"delta at epsilon = {upper_text(at, DIGITS)}"
        figures.append(Figure(name=name, label=label, by=by, shown=shown))
    return figures


def _gaussian_dp_figures(routes: Sequence[Route], setting: Setting) -> list[Figure]:
    """Return μ of the Gaussian guarantee that each route implies, and what that overstates.

    Up to δ where pure ε is not guaranteed.
    """
    stated = {}
    for route in routes:
        is_pure = route.guarantee.epsilon(0.0) < math.inf
        statement = gaussian_dp(route.guarantee, slip=0.0 if is_pure else setting.delta)
        if statement.mu < math.inf:
            stated[route.key] = statement
    if not stated:
        return []
    first = next(iter(stated.values()))
    return [
        Figure(
            name="gaussian_dp",
            label="mu of Gaussian DP, at most",
            by={key: each.mu for key, each in stated.items()},
            shown={key: at_most(each.mu, DIGITS) for key, each in stated.items()},
            sentence=gaussian_dp_sentence(first.mu, slip=first.slip, error=first.error),
        ),
        Figure(
            name="gaussian_dp_error",
            label="error of that mu, at most",
            by={key: each.error for key, each in stated.items()},
            shown={key: at_most(each.error, 2) for key, each in stated.items()},
        ),
    ]


def _parameter_figures(
    parameters: Parameters, sentences: Mapping[str, str], releases: int
) -> list[Figure]:
    """Return what is set: ε of each release, μ, σ, the noise multiplier."""
    labels = {
        "epsilon_each": "epsilon of each release",
        "mu": "mu" if releases == 1 else "mu of each release",
        "sigma": "sigma / sensitivity",
        "noise_multiplier": "noise multiplier",
    }
    return [
        Figure(
            name=name,
            label=label,
            by=parameters[name],
            shown={
                key: _parameter_text(value, up=name in ("sigma", "noise_multiplier"))
                for key, value in parameters[name].items()
            },
            sentence=sentences.get(name, ""),
        )
        for name, label in labels.items()
        if parameters.get(name)
    ]


def _risk_figures(routes: Sequence[Route], setting: Setting) -> list[Figure]:
    """Return posterior, advantage, true-positive rate and '1 in k' by every route."""
    prior, fpr = setting.prior, setting.false_positive_rate
    figures = [
        _bound(
            routes,
            lambda guarantee: guarantee.advantage,
            name="advantage",
            label="advantage, at most",
            text=lambda value, certain: at_most(value) if certain else _below_one(at_most(value)),
            words=lambda value, certain: advantage_sentence(value, certain=certain),
        ),
        _bound(
            routes,
            lambda guarantee: guarantee.true_positive_rate(fpr),
            name="true_positive_rate",
            label=f"TPR at {share(fpr)} FPR, at most",
            text=lambda value, certain: percent_at_most(
                value, None if certain else max(1 - value, _TINY)
            ),
            words=lambda value, certain: true_positive_sentence(
                false_positive_rate=fpr, true_positive_rate=value, certain=certain
            ),
        ),
    ]
    bounding = [route for route in routes if _bounds_posteriors(route)]
    if not bounding:
        return figures
    losses = {route.key: route.guarantee.loss(route.exceeded) for route in bounding}
    loss, exceeded = losses[bounding[0].key], bounding[0].exceeded
    posterior = Figure(
        name="posterior",
        label="posterior, at most",
        by={key: posterior_after(prior, own) for key, own in losses.items()},
        shown={key: _posterior_text(prior, own) for key, own in losses.items()},
        sentence=posterior_sentence(
            prior=prior, loss=loss, failure=exceeded, observed=setting.observed
        ),
    )
    one_in = Figure(
        name="one_in",
        label="one in, at least",
        by={key: one_in_after(prior, own) for key, own in losses.items()},
        shown={key: one_in_text(prior, own) for key, own in losses.items()},
        sentence=one_in_sentence(
            prior=prior, loss=loss, failure=exceeded, observed=setting.observed
        ),
    )
    return [posterior, *figures, one_in]


def _bound(
    routes: Sequence[Route],
    value: Callable[[Guarantee], float],
    *,
    name: str,
    label: str,
    text: Callable[[float, bool], str],
    words: Callable[[float, bool], str],
) -> Figure:
    """Return a figure that every guarantee has; the sentence is about the first of them.

    ``text`` and ``words`` take whether nothing is guaranteed: then 1 is no rounding.
    """
    empty = {route.key: _is_empty(route.guarantee) for route in routes}
    by = {route.key: value(route.guarantee) for route in routes}
    first, *_ = by
    return Figure(
        name=name,
        label=label,
        by=by,
        shown={key: text(number, empty[key]) for key, number in by.items()},
        sentence=words(by[first], empty[first]),
    )


def _is_empty(guarantee: Guarantee) -> bool:
    """Return whether nothing is guaranteed, so that certainty is no rounding."""
    return guarantee.advantage == 1 and guarantee.epsilon(_NEARLY_ALL) == math.inf


def _bounds_posteriors(route: Route) -> bool:
    """Return whether it bounds a posterior at all: with certainty Gaussian noise does not."""
    if route.exceeded > 0:
        return True
    return route.guarantee.loss(0.0) < math.inf or route.guarantee.advantage == 1


def _parameter_text(value: float, *, up: bool = False) -> str:
    """Return a parameter rounded towards more noise."""
    return at_most(value, DIGITS) if up else at_least(value, DIGITS)


def _below_one(text: str) -> str:
    """Return a bound that never reads as 1 if it is short of it."""
    return "< 1" if text == "1" else text


def _posterior_text(prior: float, loss: float) -> str:
    doubt = doubt_after(prior, loss)
    # The doubt may be too small for float64; only an infinite loss leaves none.
    return percent_at_most(
        posterior_after(prior, loss), doubt if loss == math.inf else max(doubt, _TINY)
    )


def _epsilon_sentence(epsilon: float, delta: float) -> str:
    if epsilon == math.inf:
        return "Nothing is guaranteed: an outcome may be possible with a person's row alone."
    times = (
        f"{at_most(math.exp(epsilon))} times"
        if epsilon <= _LARGEST_EXPONENT
        else f"e^{at_most(epsilon)} times"
    )
    slack = f", up to an additive {at_most(delta, 2)}" if delta > 0 else ""
    return f"No outcome is more than {times} as probable with a person's row as without it{slack}."
