"""The figures of a choice of ε, over one axis of ε.

Conventions
-----------
posterior  of a row at the limit's quantile, from the attacker's prior to 1.
transition how far a row has come from its first plateau to its second regime, from 0 to 1.
           norm-Laplace: s(t) = (E∣ℓ∣/t − c_d)/(1 − c_d), t = β·distance; at d = 1, where exposures
           have no transition, E[ℓ]/t. Gaussian noise has no second plateau, and models that are
           only sampled have no law: there it is the one-sidedness E[ℓ]/E∣ℓ∣.
rows       the farthest from the base, which is the most exposed; and the median one.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle

import numpy as np

from expost.epsilon.choice import EpsilonChoice
from expost.epsilon.frontier import FrontierCurve
from expost.epsilon.sweep import LawSweep, Pair, ends_of
from expost.epsilon.utility import Curve, Utility
from expost.noise.transition import first_plateau
from expost.numbers import number, percent, rounded_down, share
from expost.report.figure import Axis, Band, Figure, Line, Panel, Role, Rule
from expost.report.sections.bounds import at_most
from expost.report.sections.epsilon_overview import (
    MEASURES,
    epsilon_text,
    posterior_text,
    released_epsilon,
    score_text,
    tried_index,
)
from expost.report.slider import epsilon_range
from expost.types import FloatArray

__all__ = [
    "EpsilonCurves",
    "epsilon_curves",
    "frontier_figure",
    "posterior_figure",
    "transition_figure",
]

# Values of ε on a curve that is computed from the exact law; a public bound takes a search each.
_POINTS, _FEWER = 121, 19
# Of the other mechanisms on the frontier.
_OTHERS: tuple[Role, ...] = ("second", "third", "fourth", "limit")


@dataclass(frozen=True, kw_only=True, eq=False)
class EpsilonCurves:
    """Curves of the most exposed and of the median row over ε, each (m,).

    Parameters
    ----------
    median_posterior : FloatArray | None
        None where only the largest posterior is known.
    transition : Pair
        How far the rows have come.
    has_plateaus : bool
        Whether that is between plateaus, and not the one-sidedness.
    """

    epsilons: FloatArray
    posterior: FloatArray
    median_posterior: FloatArray | None
    transition: Pair
    has_plateaus: bool


def epsilon_curves(choice: EpsilonChoice) -> EpsilonCurves:
    """Return fine curves from the exact law, or what is known at ``choice.epsilons``."""
    sweep = choice.sweep
    if not isinstance(sweep, LawSweep):
        return EpsilonCurves(
            epsilons=choice.epsilons,
            posterior=choice.posterior,
            median_posterior=None,
            transition=choice.one_sidedness,
            has_plateaus=False,
        )
    points = _FEWER if choice.is_public else _POINTS
    fine = replace(sweep, epsilons=np.geomspace(*epsilon_range(choice), points))
    has_plateaus = sweep.transition.plateau is not None
    return EpsilonCurves(
        epsilons=fine.epsilons,
        posterior=choice.posterior_at(fine.epsilons),
        median_posterior=fine.posterior_at(fine.distances.median, fine.epsilons),
        transition=_between_plateaus(fine) if has_plateaus else fine.one_sidedness,
        has_plateaus=has_plateaus,
    )


def _between_plateaus(sweep: LawSweep) -> Pair:
    """Return s(t), or E[ℓ]/t at d = 1; a row that the model does not depend on stays at 0."""
    dimension, distances = sweep.mechanism.dimension, sweep.distances
    start = 0.0 if dimension == 1 else first_plateau(dimension)
    pair = []
    for distance in (distances.largest, distances.median):
        separation = distance / sweep.resolutions
        law = sweep.mechanism.loss_law(separation)
        followed = law.expected_loss if dimension == 1 else law.expected_exposure
        with np.errstate(invalid="ignore"):
            progress = (followed / separation - start) / (1 - start)
        pair.append(np.where(separation > 0, progress, 0.0))
    return Pair(*pair)


def frontier_figure(choice: EpsilonChoice) -> Figure:
    """Return the leading measure over ε and over the posterior, of this and other mechanisms."""
    utility, limit = choice.utility, choice.limit
    assert utility is not None
    name, curve, own = utility.measure, utility.leading, choice.frontier[0]
    better = "less" if name == "log_loss" else "more"
    low, high = _utility_limits(choice, utility)
    y = Axis(
        label=f"{MEASURES[name]} ({better} is better)",
        low=low,
        high=high,
        format="percent" if name == "accuracy" else "number",
    )
    references = (
        Rule(name=f"best reachable, {score_text(name, curve.best)}", at=curve.best, role="fifth"),
        Rule(name=f"base rate, {score_text(name, curve.base_rate)}", at=curve.base_rate),
    )
    bound = f"limit: {share(limit.max_posterior)}"
    ends = [
        f"{score_text(name, float(curve.mean[index]))} at ε = {number(float(own.epsilons[index]))},"
        f" where the posterior is {at_most(posterior_text(own.posterior[index]))}"
        for index in (0, -1)
    ]
    return Figure(
        key="frontier",
        description=f"The mean {MEASURES[name]} is {ends[0]}, and {ends[1]}.",
        panels=(
            Panel(
                title=f"Held-out {MEASURES[name]} against ε",
                x=_tried_axis(choice),
                y=y,
                bands=(_releases_band(curve, own.epsilons),),
                lines=(*_frontier_lines(choice, lambda each: each.epsilons),),
                rules=(*references, *_ceiling_mark(choice)),
            ),
            Panel(
                title=f"Held-out {MEASURES[name]} against the posterior",
                x=_posterior_axis(choice),
                y=y,
                bands=(_releases_band(curve, own.posterior),),
                lines=(*_frontier_lines(choice, lambda each: each.posterior),),
                rules=(*references, Rule(name="", at=limit.max_posterior, axis="x", label=bound)),
            ),
        ),
        beside=True,
    )


def _frontier_lines(
    choice: EpsilonChoice, over: Callable[[FrontierCurve], FloatArray]
) -> Iterator[Line]:
    """Yield the recommended point, this mechanism and the others."""
    assert choice.utility is not None
    own, *others = choice.frontier
    index = tried_index(choice.utility, choice.recommended)
    if index is not None:
        yield Line(
            name=f"recommended: ε = {epsilon_text(choice.recommended)}",
            x=(float(over(own)[index]),),
            y=(float(own.score[index]),),
            dots=True,
            radius=7.0,
        )
    yield Line(name=own.name, x=_series(over(own)), y=_series(own.score))
    for curve, role in zip(others, cycle(_OTHERS), strict=False):
        yield Line(name=curve.name, x=_series(over(curve)), y=_series(curve.score), role=role)


def _releases_band(curve: Curve, x: FloatArray) -> Band:
    low, high = _series(curve.low), _series(curve.high)
    return Band(name="nine of ten releases", x=_series(x), low=low, high=high)


def _tried_axis(choice: EpsilonChoice) -> Axis:
    """Return the axis of the values of ε at which utility was measured."""
    tried = np.concatenate([curve.epsilons for curve in choice.frontier])
    low, high = float(tried.min()), float(tried.max())
    if low == high:
        low, high = low / 2, high * 2
    return replace(_epsilon_axis(choice), low=low, high=high)


def _posterior_axis(choice: EpsilonChoice) -> Axis:
    """Return the axis of posteriors: some way past the limit, and past what would be enough."""
    limit, own, advice = choice.limit, choice.frontier[0], choice.recommendation
    reached = own.posterior[np.isin(own.epsilons, [advice.enough or 0.0, advice.better or 0.0])]
    most = max([limit.max_posterior, *reached.tolist()])
    return Axis(
        label=f"posterior of a row in {share(limit.quantile)} of releases",
        low=limit.prior,
        high=min(1.0, most + (most - limit.prior) / 5),
        format="percent",
    )


def _utility_limits(choice: EpsilonChoice, utility: Utility) -> tuple[float, float]:
    """Return the ends of the axis; what is far worse than the base rate is cut off."""
    curve, name = utility.leading, utility.measure
    references = (curve.best, curve.base_rate)
    scores = np.concatenate([curve.low, curve.high, *(each.score for each in choice.frontier)])
    least = min(float(scores.min()), *references)
    most = max(float(scores.max()), *references)
    # A noisy model may be worse than nothing by any amount.
    worst = max(abs(curve.best - curve.base_rate), 0.1)
    if name == "log_loss":
        most = min(most, max(references) + worst)
    elif name != "accuracy":
        least = max(least, min(references) - worst)
    margin = 0.06 * (most - least) or 0.05
    low, high = least - margin, most + margin
    return (max(low, 0.0), min(high, 1.0)) if name == "accuracy" else (low, high)


def posterior_figure(choice: EpsilonChoice, curves: EpsilonCurves | None = None) -> Figure:
    """Return the posterior of the most exposed and of the median row over ε, with the limit."""
    curves = epsilon_curves(choice) if curves is None else curves
    limit, epsilons = choice.limit, _series(curves.epsilons)
    lines = [Line(name="most exposed row", x=epsilons, y=_series(curves.posterior))]
    if curves.median_posterior is not None:
        median = _series(curves.median_posterior)
        lines.append(Line(name="median row", x=epsilons, y=median, role="second"))
    panel = Panel(
        title=f"Posterior of presence in {share(limit.quantile)} of releases",
        x=_epsilon_axis(choice),
        y=Axis(label="posterior", low=limit.prior, high=1.0, format="percent"),
        lines=tuple(lines),
        rules=(
            Rule(name=f"limit, {share(limit.max_posterior)}", at=limit.max_posterior),
            *_marks(choice),
        ),
    )
    first, last = (
        f"{posterior_text(curves.posterior[index])} at ε = {number(epsilons[index])}"
        for index in (0, -1)
    )
    return _figure(
        "posterior", panel, f"The posterior of the most exposed row is {first} and {last}."
    )


def transition_figure(choice: EpsilonChoice, curves: EpsilonCurves | None = None) -> Figure:
    """Return how far the rows have come from their first plateau to their second regime."""
    curves = epsilon_curves(choice) if curves is None else curves
    lines, ends = [], []
    series: tuple[tuple[str, Role, FloatArray], ...] = (
        ("most exposed row", "main", curves.transition.farthest),
        ("median row", "second", curves.transition.median),
    )
    for name, role, values in series:
        known = ~np.isnan(values)
        if not np.any(known):
            continue
        x, y = curves.epsilons[known], values[known]
        lines.append(Line(name=name, x=_series(x), y=_series(y), role=role))
        first, last = (
            f"{percent(float(np.clip(y[index], 0, 1)))} at ε = {number(float(x[index]))}"
            for index in (0, -1)
        )
        ends.append(f"{name}: {first}, {last}")
    axis, low, high = _epsilon_axis(choice), choice.low, choice.high
    rules = [*_marks(choice)]
    if 0 < low < high:
        to = f"ε = {number(high, 'up')}" if high < math.inf else "no end"
        shaded = max(low, axis.low), min(high, axis.high)
        name = f"transition, ε = {epsilon_text(low)} to {to}"
        rules.insert(0, Rule(name=name, at=shaded[0], to=shaded[1], axis="x", role="fourth"))
    if curves.has_plateaus:
        title = "Share of the noise's protection that a row has lost"
        caption = (
            "At 0 % a row's exposure is proportional to ε; at 100 % the noise no longer hides it."
        )
    else:
        title = "One-sidedness of the evidence about a row"
        caption = (
            "At 0 % as many models indicate absence as presence; at 100 % every model proves that"
            " the row was in the data."
        )
    panel = Panel(
        title=title,
        x=axis,
        y=Axis(label="transition", low=0.0, high=1.0, format="percent"),
        lines=tuple(lines),
        rules=tuple(rules),
    )
    return _figure("transition", panel, f"{'; '.join(ends)}.", caption)


def _series(values: FloatArray) -> tuple[float, ...]:
    return tuple(values.tolist())


def _figure(key: str, panel: Panel, description: str, caption: str = "") -> Figure:
    return Figure(key=key, description=description, panels=(panel,), caption=caption)


def _epsilon_axis(choice: EpsilonChoice) -> Axis:
    low, high = epsilon_range(choice)
    return Axis(label="ε (less noise →)", low=low, high=high, log=True, quantity="epsilon")


def _marks(choice: EpsilonChoice) -> Iterator[Rule]:
    """Return the recommended ε, and the ceiling where that is another."""
    recommended = released_epsilon(choice)
    if recommended is not None and ends_of(recommended):
        label = f"recommended: ε = {number(recommended)}"
        yield Rule(name="", at=recommended, axis="x", role="main", label=label)
    yield from _ceiling_mark(choice)


def _ceiling_mark(choice: EpsilonChoice) -> Iterator[Rule]:
    ceiling = choice.ceiling
    if ends_of(ceiling) and rounded_down(ceiling) != released_epsilon(choice):
        label = f"limit reached: ε = {epsilon_text(ceiling)}"
        yield Rule(name="", at=rounded_down(ceiling), axis="x", role="limit", label=label)
