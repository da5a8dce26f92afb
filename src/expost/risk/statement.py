"""What a guarantee allows an attacker, or which guarantee keeps a goal: the figures of the answer.

Conventions
-----------
route   one derivation of the figures, a column of the table: for any mechanism of which (ε, δ) is
        all that is known, for Gaussian noise that is calibrated exactly, by the privacy-loss
        distribution of DP-SGD, or by the law of a model's own noise.
figure  one line of the table. Bounds are rounded up, parameters towards more noise.

:mod:`expost.risk.questions` chooses the routes.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from expost.errors import InvalidInput
from expost.files.atomic import write_json
from expost.files.sealed import plain
from expost.forecast import Forecast
from expost.numbers import at_least, at_most, percent_at_most, share, upper_text
from expost.results import Displayed
from expost.risk.composition import CompositionComparison
from expost.risk.curves import RiskCurves, risk_curves
from expost.risk.guarantee import Guarantee, doubt_after, one_in_after, posterior_after
from expost.risk.sentences import (
    advantage_sentence,
    one_in_sentence,
    one_in_text,
    posterior_sentence,
    true_positive_sentence,
)
from expost.types import Audience, FloatArray

__all__ = [
    "DIGITS",
    "PARAMETERS",
    "REVIEWED",
    "Figure",
    "Identifiability",
    "Parameters",
    "RateCurves",
    "Route",
    "Setting",
    "state",
]

# Of the curves of Fig. 4.2.
_DELTAS = (1e-6, 1e-4, 1e-2)
# An edited summary is recognised by this notice: a public guarantee never has it.
REVIEWED = (
    "The model behind these figures needs review: something was read from its rows that its"
    " guarantee does not cover, or its noise was seeded, or it has no guarantee. Have"
    " it reviewed before you share this."
)
# What is set, not what an attacker reaches.
PARAMETERS = ("epsilon", "epsilon_each", "mu", "sigma", "noise_multiplier")
# Digits of ε, μ, σ and noise multipliers, which are typed again.
DIGITS = 4
_TINY = 5e-324
# A δ at which every guarantee has some ε.
_NEARLY_ALL = 1 - 2.0**-50
# False-positive rates of a curve: at each, a privacy-loss distribution takes a tenth of a second.
_RATES = np.geomspace(1e-4, 1.0, 17)
# e^ε past this is left as a power.
_LARGEST_EXPONENT = 30.0

# The values of ε, μ, σ and noise multipliers, by the name of the figure and the key of the route.
Parameters = dict[str, dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the figures are for.

    ``delta``     of all releases together.
    ``exceeded``  the probability with which a posterior may be exceeded where (ε, δ) with δ > 0 is
                  all that is known, which bounds none at δ itself (erratum 10); 0: never.
    ``known``     the same where the noise is known: δ, unless another one was given.
    """

    prior: float
    delta: float
    exceeded: float
    known: float
    false_positive_rate: float
    releases: int

    @property
    def observed(self) -> str:
        """What the attacker sees."""
        return "the model" if self.releases == 1 else f"all {self.releases:,} releases"

    @property
    def of_releases(self) -> str:
        """'3 releases of ', or nothing for one."""
        return "" if self.releases == 1 else f"{self.releases:,} releases of "


@dataclass(frozen=True, kw_only=True)
class Route:
    """One derivation of the figures.

    ``key``        "any", "gaussian", "dpsgd" or "model".
    ``guarantee``  what it is computed from.
    ``note``       what it holds for.
    ``exceeded``   the probability with which its posteriors may be exceeded.
    """

    key: str
    name: str
    guarantee: Guarantee
    note: str
    exceeded: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure by every route that has it.

    ``by``        its value, by the key of the route; '1 in k' and what keeps a goal are lower
                  bounds, all others upper ones.
    ``shown``     the same as strings, rounded to the safe side.
    ``sentence``  what the first of them means; "" where the label is enough.
    """

    name: str
    label: str
    by: Mapping[str, float]
    shown: Mapping[str, str]
    sentence: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class RateCurves:
    """True-positive rates (m,) by the key of the route over ``false_positive_rate`` (m,)."""

    false_positive_rate: FloatArray
    by: Mapping[str, FloatArray]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Identifiability(Displayed):
    """What a guarantee means. It holds nothing of any data, except for the guarantee of a model.

    ``question``  the guarantee, or the goal, in a few words.
    ``is_goal``   whether ε, μ or the noise are the answer to a goal.
    ``routes``    the columns; sentences and properties are about the first one.
    ``figures``   the lines.
    ``prior``     the attacker's probability of presence before the release.
    ``delta``     of all releases together; 0 if none is given.
    ``exceeded``  the probability with which a posterior of the first route may be exceeded.
    ``comparison``  the cost of each composition theorem; None for one release.
    ``forecast``  the quality of a linear model with so many rows and features; None if their
                  numbers are not known.
    ``statements``  the guarantee of a model in sentences: its relation, and δ at other ε.
    ``notices``   what the reader must know.
    ``audience``  that of the model; a guarantee without one is public.
    """

    question: str
    is_goal: bool
    routes: tuple[Route, ...]
    figures: tuple[Figure, ...]
    prior: float
    delta: float
    exceeded: float
    false_positive_rate: float
    releases: int
    comparison: CompositionComparison | None = None
    forecast: Forecast | None = None
    statements: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    audience: Audience = Audience.PUBLIC

    def __post_init__(self) -> None:
        if self.audience is Audience.PUBLIC:
            return
        if REVIEWED not in self.notices:
            object.__setattr__(self, "notices", (*self.notices, REVIEWED))
        if self.comparison is not None:
            own = replace(self.comparison, audience=self.audience)
            object.__setattr__(self, "comparison", own)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the first route."""
        return self.routes[0].guarantee

    @property
    def epsilon(self) -> float | None:
        """ε of all releases together at ``delta``; None where there is none."""
        return self._first("epsilon")

    @property
    def epsilon_each(self) -> float | None:
        """ε of each release that keeps a goal; None where there is none."""
        return self._first("epsilon" if self.releases == 1 else "epsilon_each")

    @property
    def mu(self) -> float | None:
        """μ of each release with Gaussian noise, sensitivity/σ."""
        return self._first("mu")

    @property
    def noise_multiplier(self) -> float | None:
        """That of DP-SGD."""
        return self._first("noise_multiplier")

    @property
    def posterior(self) -> float | None:
        """The largest posterior, exceeded with probability ``exceeded`` at most."""
        return self._first("posterior")

    @property
    def advantage(self) -> float | None:
        """The Bayes adversary's expected membership advantage, at most."""
        return self._first("advantage")

    @property
    def true_positive_rate(self) -> float | None:
        """The share of members detected at ``false_positive_rate``, at most."""
        return self._first("true_positive_rate")

    @property
    def one_in(self) -> float | None:
        """k with posterior = 1/k, at least."""
        return self._first("one_in")

    def curves(self) -> RiskCurves:
        """Return the curves of D5.3 Fig. 4.2 around ``epsilon``, for some δ and ``delta``."""
        epsilon = self.epsilon
        if epsilon is None or not 0 < epsilon < math.inf:
            raise InvalidInput(
                f"epsilon={epsilon!r}: the curves run over epsilon; name a delta, at which it is"
                " finite."
            )
        deltas = list(_DELTAS)
        if self.delta > 0:
            # In place of the one that is nearest to it.
            away = [abs(math.log(delta / self.delta)) for delta in deltas]
            deltas[away.index(min(away))] = self.delta
        low, high = min(0.01, epsilon / 10), 10.0 if epsilon <= 2 else 20 * epsilon
        curves = risk_curves(deltas, low=low, high=high, prior=self.prior)
        return replace(curves, audience=self.audience)

    @cached_property
    def rates(self) -> RateCurves:
        """The largest true-positive rate over false-positive rates, by the key of the route."""
        return RateCurves(
            false_positive_rate=_RATES,
            by={
                route.key: np.array(
                    [route.guarantee.true_positive_rate(rate) for rate in _RATES.tolist()]
                )
                for route in self.routes
            },
        )

    def figure(self, name: str) -> Figure:
        """Return the line of this name."""
        for figure in self.figures:
            if figure.name == name:
                return figure
        names = ", ".join(repr(figure.name) for figure in self.figures)
        raise InvalidInput(f"name={name!r}: must be one of {names}.")

    @property
    def sentences(self) -> tuple[str, ...]:
        """A sentence for each figure, about the first route that has it."""
        return tuple(figure.sentence for figure in self.figures if figure.sentence)

    def _first(self, name: str) -> float | None:
        """Return the value by the first route that has it."""
        for figure in self.figures:
            if figure.name == name:
                keys = [route.key for route in self.routes]
                return next((figure.by[key] for key in keys if key in figure.by), None)
        return None

    def __repr__(self) -> str:
        return f"Identifiability({self.question})"

    def fields(self) -> dict[str, Any]:
        """Return the values of the JSON."""
        return {
            "format": "expost-identifiability/1",
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "question": self.question,
            "is_goal": self.is_goal,
            "prior": self.prior,
            "delta": self.delta,
            "exceeded": self.exceeded,
            "false_positive_rate": self.false_positive_rate,
            "releases": self.releases,
            "routes": {
                route.key: {
                    "name": route.name,
                    "guarantee": route.guarantee.describe(),
                    "note": route.note,
                    "exceeded": route.exceeded,
                }
                for route in self.routes
            },
            "figures": {
                figure.name: {
                    "label": figure.label,
                    "sentence": figure.sentence,
                    "values": plain(figure.by),
                }
                for figure in self.figures
            },
            "comparison": None if self.comparison is None else self.comparison.fields(),
            "forecast": None if self.forecast is None else self.forecast.fields(),
            "statements": list(self.statements),
            "notices": list(self.notices),
        }

    def to_json(self, path: str | Path | None = None) -> str | Path:
        """Return everything as a JSON string, or write it to a file and return its path."""
        if path is None:
            return json.dumps(self.fields(), indent=1, ensure_ascii=False, allow_nan=False)
        return write_json(self.audience.path(path), self.audience, self.fields())


# -- the figures -----------------------------------------------------------------------------------


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
