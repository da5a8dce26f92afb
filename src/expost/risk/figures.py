"""The lines of an answer: every figure by every route that has it, each with its sentence."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from expost.risk.answer import Figure, Route
from expost.risk.composition import Composition
from expost.risk.guarantee import Guarantee, belief_after, one_in_after
from expost.risk.promises import EpsilonDelta
from expost.risk.wording import (
    advantage_sentence,
    belief_sentence,
    chosen_percent,
    doubt_after,
    one_in_sentence,
    one_in_text,
    true_positive_sentence,
)
from expost.rounding import at_least, at_most, percent_at_most, upper_text

__all__ = [
    "Setting",
    "Told",
    "delta_figures",
    "epsilon_figure",
    "limit_figures",
    "risk_figures",
]

# Digits of ε, μ, σ and noise multipliers: what is typed again.
_DIGITS = 4
_TINY = 5e-324
# A δ that any promise at all has some ε for.
_NEARLY_ALL = 1 - 2.0**-50
# e^ε past this is left as a power.
_LARGEST_EXPONENT = 30.0


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the figures are for: the attacker, and how often a bound may fail.

    ``delta``     of all releases together.
    ``exceeded``  the probability with which a belief may be passed where (ε, δ) with δ > 0 is all
                  that is known, which bounds none at δ itself (erratum 10); 0: never.
    ``known``     the same where the noise is known: δ, unless another one was named.
    """

    prior: float
    delta: float
    exceeded: float
    known: float
    false_positive_rate: float
    releases: int

    def exceeded_by(self, promise: Guarantee | None) -> float:
        """The probability with which a belief that this promise bounds may be passed."""
        return self.exceeded if _slips(promise) else self.known

    @property
    def seen(self) -> str:
        """What the attacker sees."""
        return "the model" if self.releases == 1 else f"all {self.releases:,} releases"


@dataclass(frozen=True, kw_only=True)
class Told:
    """Values that are no function of a promise: those of the paper's formulas, and goals."""

    by: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def of(self, name: str) -> Mapping[str, float]:
        """The values of this figure, by the key of the route."""
        return self.by.get(name, {})


def risk_figures(routes: Sequence[Route], setting: Setting, told: Told) -> list[Figure]:
    """Belief, advantage, true-positive rate and '1 in k' by every route."""
    prior, fpr = setting.prior, setting.false_positive_rate
    losses = {
        route.key: route.promise.loss(route.exceeded)
        for route in routes
        if route.promise is not None and _bounds_beliefs(route.promise, route.exceeded)
    }
    beliefs = {key: belief_after(prior, loss) for key, loss in losses.items()}
    shown = {key: _sure(prior, loss) for key, loss in losses.items()}
    paper = told.of("belief")
    figures = []
    if beliefs:
        key, first = next(iter(losses.items()))
        exceeded = next(route.exceeded for route in routes if route.key == key)
        sentence = belief_sentence(prior=prior, loss=first, failure=exceeded, seen=setting.seen)
        figures.append(
            Figure(
                name="belief",
                label="belief, at most",
                by={**beliefs, **paper},
                shown={**shown, **{key: _printed_percent(value) for key, value in paper.items()}},
                sentence=sentence,
            )
        )
    figures.append(
        _bound(
            routes,
            told,
            lambda promise: promise.advantage,
            name="advantage",
            label="advantage, at most",
            text=lambda value, certain: at_most(value) if certain else _below_one(at_most(value)),
            printed=lambda value: _below_one(f"{value:.4g}"),
            words=lambda value, certain: advantage_sentence(value, certain=certain),
        )
    )
    figures.append(
        _bound(
            routes,
            told,
            lambda promise: promise.true_positive_rate(fpr),
            name="true_positive_rate",
            label=f"found at {chosen_percent(fpr)} false",
            text=lambda value, certain: percent_at_most(
                value, None if certain else max(1 - value, _TINY)
            ),
            printed=_printed_percent,
            words=lambda value, certain: true_positive_sentence(
                false_positive_rate=fpr, true_positive_rate=value, certain=certain
            ),
        )
    )
    if beliefs:
        group = {key: one_in_after(prior, loss) for key, loss in losses.items()}
        figures.append(
            Figure(
                name="one_in",
                label="one in, at least",
                by=group,
                shown={key: one_in_text(prior, loss) for key, loss in losses.items()},
                sentence=one_in_sentence(
                    prior=prior, loss=first, failure=exceeded, seen=setting.seen
                ),
            )
        )
    return figures


def epsilon_figure(
    routes: Sequence[Route], setting: Setting, told: Told, *, sentence: str | None = None
) -> Figure | None:
    """ε at the δ of all releases together; a goal's own ε, in ``told``, is rounded down.

    ``sentence`` None: what ε means for any outcome.
    """
    by, shown = {}, {}
    for route in routes:
        if route.key in told.of("epsilon"):
            by[route.key] = told.of("epsilon")[route.key]
            shown[route.key] = _limit_text(route.key, by[route.key], up=sentence is None)
        elif route.promise is not None:
            epsilon = route.promise.epsilon(setting.delta)
            # Gaussian noise has no pure ε; a model without noise has none at all.
            if epsilon < math.inf or route.promise.advantage == 1:
                by[route.key] = epsilon
                shown[route.key] = at_most(epsilon, _DIGITS)
    if not by:
        return None
    at = f" at delta = {upper_text(setting.delta, 3)}" if setting.delta > 0 else ""
    first = next((value for key, value in by.items() if key != "paper"), math.inf)
    return Figure(
        name="epsilon",
        label=f"epsilon{at}",
        by=by,
        shown=shown,
        sentence=_epsilon_words(first, setting.delta) if sentence is None else sentence,
    )


def delta_figures(routes: Sequence[Route], epsilon: float) -> list[Figure]:
    """δ at ε/2 and at 2ε of the same promises, rounded up."""
    figures = []
    for name, times in (("delta_at_half", 0.5), ("delta_at_double", 2.0)):
        at = times * epsilon
        by = {route.key: route.promise.delta(at) for route in routes if route.promise is not None}
        shown = {key: at_most(value) for key, value in by.items()}
        label = f"delta at epsilon = {upper_text(at, _DIGITS)}"
        figures.append(Figure(name=name, label=label, by=by, shown=shown))
    return figures


def limit_figures(told: Told, sentences: Mapping[str, str], releases: int) -> list[Figure]:
    """What is set to keep a goal or a promise: ε of each release, μ, σ, the noise multiplier."""
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
            by=told.of(name),
            shown={
                key: _limit_text(key, value, up=name in ("sigma", "noise_multiplier"))
                for key, value in told.of(name).items()
            },
            sentence=sentences.get(name, ""),
        )
        for name, label in labels.items()
        if told.of(name)
    ]


def _limit_text(key: str, value: float, *, up: bool = False) -> str:
    """What is set to keep a promise, towards more noise; the paper's to the nearest."""
    if key == "paper":
        return f"{value:.{_DIGITS}g}"
    return at_most(value, _DIGITS) if up else at_least(value, _DIGITS)


def _bound(
    routes: Sequence[Route],
    told: Told,
    value: Callable[[Guarantee], float],
    *,
    name: str,
    label: str,
    text: Callable[[float, bool], str],
    printed: Callable[[float], str],
    words: Callable[[float, bool], str],
) -> Figure:
    """A figure that every promise has; the sentence is about the first of them.

    ``text`` and ``words`` take whether there is no promise at all: then 1 is no rounding.
    """
    promises = {route.key: route.promise for route in routes if route.promise is not None}
    by = {key: value(promise) for key, promise in promises.items()}
    shown = {key: text(number, _is_empty(promises[key])) for key, number in by.items()}
    first, *_ = by
    return Figure(
        name=name,
        label=label,
        by={**by, **told.of(name)},
        shown={**shown, **{key: printed(number) for key, number in told.of(name).items()}},
        sentence=words(by[first], _is_empty(promises[first])),
    )


def _is_empty(promise: Guarantee) -> bool:
    """Whether nothing is promised, so that certainty is what it says."""
    return promise.advantage == 1 and promise.epsilon(_NEARLY_ALL) == math.inf


def _below_one(text: str) -> str:
    """What is short of certain never reads as 1."""
    return "< 1" if text == "1" else text


def _printed_percent(value: float) -> str:
    """A figure of the paper's, to the nearest: it is none of our bounds."""
    text = f"{100 * value:.2f} %"
    return "< 100 %" if text == "100.00 %" else text


def _slips(promise: Guarantee | None) -> bool:
    """Whether (ε, δ) with δ > 0 is all that is known of it, or of a part of it."""
    if isinstance(promise, Composition):
        return any(_slips(part) for part in promise.parts)
    return isinstance(promise, EpsilonDelta) and promise.promised_delta > 0


def _bounds_beliefs(promise: Guarantee, exceeded: float) -> bool:
    """Whether it bounds a belief at all: but for a chance of 0 Gaussian noise does not."""
    return exceeded > 0 or promise.loss(0.0) < math.inf or promise.advantage == 1


def _sure(prior: float, loss: float) -> str:
    doubt = doubt_after(prior, loss)
    # What is left of doubt may be too little for float64; only an infinite loss leaves none.
    return percent_at_most(
        belief_after(prior, loss), doubt if loss == math.inf else max(doubt, _TINY)
    )


def _epsilon_words(epsilon: float, delta: float) -> str:
    if epsilon == math.inf:
        return "Nothing is promised: an outcome may be possible with a person's row alone."
    times = (
        f"{at_most(math.exp(epsilon))} times"
        if epsilon <= _LARGEST_EXPONENT
        else f"e^{at_most(epsilon)} times"
    )
    slip = f", give or take {at_most(delta, 2)}" if delta > 0 else ""
    return f"No outcome is more than {times} as probable with a person's row as without it{slip}."
