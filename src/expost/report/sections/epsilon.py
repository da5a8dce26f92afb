"""The document of a choice of ε.

It holds figures over ε and shares of rows, and no value or key of a row.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from expost._order import share_ranks
from expost.epsilon.choice import EpsilonChoice
from expost.epsilon.frontier import FrontierCurve
from expost.epsilon.sampled import Sweep
from expost.epsilon.sweep import LawSweep, ends_of
from expost.epsilon.utility import Utility
from expost.groups.columns import printable
from expost.numbers import (
    count,
    figure,
    fixed,
    number,
    rounded_down,
    rounded_up,
    share,
    symbols,
)
from expost.report.document import Block, Code, Document, Section, Table, Text, one_line, table
from expost.report.sections.bounds import at_most
from expost.report.sections.epsilon_figures import (
    EpsilonCurves,
    epsilon_curves,
    frontier_figure,
    posterior_figure,
    transition_figure,
)
from expost.report.sections.epsilon_overview import (
    MEASURES,
    alerts,
    below_one,
    epsilon_text,
    facts,
    glossary,
    methods,
    posterior_text,
    score_text,
    subtitle,
    tiles,
    tried_index,
    verdict,
)
from expost.report.slider import slider_of_choice, slider_widget
from expost.selection.private import selection_cost
from expost.types import FloatArray

__all__ = ["epsilon_document"]

# Shares of the rows whose critical ε is listed.
_SHARES = (0.001, 0.01, 0.1, 0.5, 0.9, 1.0)
# The ε of a private choice that is described, and the probability that it loses more.
_CHOOSING, _FAILURE = 0.1, 0.05
# A command that is cut would be another one.
_LONGEST_COMMAND = 10**6
_ENDS = "transition ends"


def epsilon_document(choice: EpsilonChoice, *, command: str | None = None) -> Document:
    """Return the document of a choice of ε.

    Parameters
    ----------
    choice : EpsilonChoice
        The result of ``choose_epsilon``.
    command : str, optional
        The command that releases a model at the recommended ε.
    """
    curves = epsilon_curves(choice)
    steps: tuple[Code, ...] = ()
    if command is not None:
        text = printable(command, _LONGEST_COMMAND)
        steps = (Code(text=text, purpose="release a model at this ε and profile it"),)
    return Document(
        kind="epsilon",
        title="Choice of ε",
        subtitle=subtitle(choice),
        audience=choice.audience,
        verdict=verdict(choice),
        tiles=tuple(tiles(choice)),
        alerts=tuple(alerts(choice)),
        steps=steps,
        sections=tuple(_sections(choice, curves)),
        glossary=glossary(choice),
        facts=facts(choice),
    )


# -- sections --------------------------------------------------------------------------------------


def _sections(choice: EpsilonChoice, curves: EpsilonCurves) -> Iterator[Section]:
    if choice.utility is not None:
        yield Section(
            id="frontier",
            title="Utility against ε and against the posterior",
            nav="Overview",
            brief=True,
            blocks=(
                frontier_figure(choice),
                _tried_table(choice, choice.utility),
                Text(text=_measured(choice.utility), small=True),
            ),
        )
        if choice.alternatives:
            yield Section(
                id="frontier-others",
                title="Other mechanisms on these rows",
                nav="Overview",
                blocks=(*_other_blocks(choice, choice.utility),),
            )
    yield Section(
        id="epsilon-posterior",
        title="Posterior against ε",
        nav="Exposure",
        blocks=(posterior_figure(choice, curves), *map(_text, _posterior_sentences(choice))),
    )
    slider = slider_of_choice(choice)
    if slider is not None:
        yield Section(
            id="epsilon-slider",
            title="Expected exposures at another ε",
            nav="Exposure",
            blocks=(
                Text(text="Figures are expected values over all models released at an ε."),
                slider_widget(slider),
            ),
        )
    yield Section(
        id="transition",
        title="Transition from much noise to little",
        nav="Exposure",
        blocks=tuple(_transition_blocks(choice, curves)),
    )
    yield Section(
        id="epsilon-cost",
        title="Cost of a private choice",
        nav="Guarantee",
        blocks=(Text(text=_private_choice(choice)),),
    )
    yield Section(
        id="epsilon-table",
        title="Values of ε in detail",
        nav="Details",
        blocks=(
            _detailed_table(choice),
            Text(text=f"Model at any ε: {symbols(one_line(choice.description))}."),
        ),
    )


def _text(sentence: str) -> Text:
    return Text(text=sentence)


def _measured(utility: Utility) -> str:
    models = utility.folds * utility.releases
    return (
        f"Means over {count(models)} models at each ε on held-out rows ({utility.folds} folds of"
        f" {count(utility.rows)} rows); none was released. Share of gain: the gain over the base"
        " rate, divided by that of the best reachable model. Gain per ε: how much better the"
        f" {MEASURES[utility.measure]} gets with one more unit of ε, from this ε to the next."
    )


def _other_blocks(choice: EpsilonChoice, utility: Utility) -> Iterator[Block]:
    """Yield what the other mechanisms reach at some ε, and which were not compared."""
    _, *others = choice.frontier
    yield from (_other_table(curve, utility) for curve in others)
    if others:
        yield Text(
            text="Means over fewer models on the same held-out rows, each mechanism with its own"
            " automatic regularization. Compare mechanisms at the same posterior: the same ε does"
            " not bound the posterior of a row equally.",
            small=True,
        )
    if choice.not_compared:
        names = "; ".join(choice.not_compared)
        yield Text(
            text="Not compared, because they have no guarantee for this loss, or refuse these ε:"
            f" {names}.",
            small=True,
        )


def _posterior_sentences(choice: EpsilonChoice) -> Iterator[str]:
    epsilon, bounds = choice.recommended or choice.ceiling, choice.posteriors
    if not 0 < epsilon < math.inf:
        return
    at = f"At ε = {epsilon_text(epsilon)} the posterior probability that"
    often = f"in {share(choice.limit.quantile)} of releases"
    if bounds is None:
        largest = posterior_text(choice.posterior_at(np.array([epsilon]))[0])
        yield f"{at} the most exposed row was in the training data is {at_most(largest)} {often}."
        return
    row, all_rows, certainty = map(posterior_text, (bounds.row, bounds.all_rows, bounds.certainty))
    yield (
        f"{at} a row was in the training data is {at_most(row)} {often}, for any row. It follows"
        f" from public constants alone. The largest over all rows of one release is"
        f" {at_most(all_rows)}, and the certainty about one row, present or absent,"
        f" {at_most(certainty)}, each {often}."
    )


def _transition_blocks(choice: EpsilonChoice, curves: EpsilonCurves) -> Iterator[Block]:
    low, high, sweep = choice.low, choice.high, choice.sweep
    yield transition_figure(choice, curves)
    if math.isnan(low):
        begins = "Where the transition begins was not found"
    elif low > 0:
        about = "about " if choice.is_public else ""
        begins = (
            f"Up to ε = {epsilon_text(low)} the exposure of every row is {about}proportional to ε"
        )
    else:
        begins = "At no ε is the exposure of every row proportional to ε"
    rows = f"{share(sweep.share)} of the rows"
    if math.isnan(high):
        ends = "where it ends was not found"
    elif high < math.inf:
        ends = f"from ε = {number(high, 'up')} on {rows} have hardly any protection left"
    else:
        ends = f"no ε leaves {rows} without protection"
    yield Text(text=f"{begins}; {ends}. The transition explains and does not decide.")
    yield _critical_table(sweep)
    remarks = (symbols(one_line(remark)) for remark in methods(choice))
    yield Text(text=" ".join((f"Followed: {symbols(sweep.measure)}.", *remarks)), small=True)


def _private_choice(choice: EpsilonChoice) -> str:
    candidates = len(choice.epsilons)
    scores = [1.0, *([0.0] * (candidates - 1))]
    lost = selection_cost(scores, 1.0, _CHOOSING, failure=_FAILURE).shortfall_bound
    return (
        "This ε was chosen by looking at the rows, which no noise covers. If the choice itself must"
        " be private, name the candidates without looking at the data and choose among them with"
        " expost.selection.select_privately; its ε adds to that of the release. A choice among"
        f" {count(candidates)} by the number of rows predicted correctly, at ε ="
        f" {number(_CHOOSING)}, loses at most {number(lost, 'up')} such rows against the best with"
        f" probability {share(1 - _FAILURE)}."
    )


# -- tables ----------------------------------------------------------------------------------------


def _tried_table(choice: EpsilonChoice, utility: Utility) -> Table:
    """Return the scores and the posterior at every ε that was tried, with what they compare to."""
    posteriors = choice.frontier[0].posterior
    # What one more unit of ε buys, up to the next value that was tried.
    rates = [*(np.diff(utility.leading.gain) / np.diff(utility.epsilons)).tolist(), None]
    marks = {
        epsilon: mark
        for epsilon, mark in (
            (choice.ceiling, "largest within the limit"),
            (choice.recommended, "recommended"),
        )
        if epsilon is not None
    }
    tried = [
        (
            epsilon,
            marks.get(epsilon, ""),
            {name: float(curve.mean[index]) for name, curve in utility.curves.items()},
            _known(utility.leading.share[index]),
            below_one(posteriors[index]),
            rates[index],
        )
        for index, epsilon in enumerate(utility.epsilons.tolist())
    ]
    best = {name: curve.best for name, curve in utility.curves.items()}
    base = {name: curve.base_rate for name, curve in utility.curves.items()}
    is_gain = utility.leading.best_gain > 0
    return table(
        [
            *tried,
            (None, "best reachable, no noise", best, 1.0 if is_gain else None, None, None),
            (None, "base rate", base, 0.0 if is_gain else None, None, None),
        ],
        ("ε", lambda row: row[0], lambda epsilon: number(epsilon, "down")),
        ("", lambda row: row[1], str),
        *(_score_column(name) for name in utility.curves),
        ("share of gain", lambda row: row[3], _gain_share),
        ("posterior", lambda row: row[4], posterior_text),
        ("gain per ε", lambda row: row[5], lambda rate: _rate_text(utility.measure, rate)),
        caption="Held-out scores of released models, and the posterior of the most exposed row",
    )


def _rate_text(measure: str, rate: float) -> str:
    """Return a gain per unit of ε with two digits; of a share of rows, in percentage points."""
    value, least, unit = (100 * rate, 0.1, " %") if measure == "accuracy" else (rate, 0.001, "")
    if value < least:
        return f"< {number(least) if value >= 0 else 0}{unit}"
    return f"{number(value, digits=2)}{unit}"


def _other_table(curve: FrontierCurve, utility: Utility) -> Table:
    """Return the leading measure and the posterior of another mechanism at each of its ε."""
    name = utility.measure
    columns = curve.epsilons.tolist(), curve.score.tolist(), curve.posterior.tolist()
    return table(
        zip(*columns, strict=True),
        ("ε", lambda line: line[0], lambda epsilon: number(epsilon, "down")),
        (MEASURES[name], lambda line: line[1], lambda score: score_text(name, score)),
        ("posterior", lambda line: below_one(line[2]), posterior_text),
        caption=curve.name,
    )


def _score_column(name: str) -> tuple[str, Callable[[Any], float], Callable[[float], str]]:
    return MEASURES[name], lambda row: row[2][name], lambda value: score_text(name, value)


def _cell(text: str) -> str:
    """Return the text of a cell that is set like a number."""
    return text


def _gain_share(value: float) -> str:
    """Return a share of the best reachable gain, rounded down."""
    return "< 0 %" if value < 0 else f"{fixed(value, 0, 'down', percent=True)} %"


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


@dataclass(frozen=True, kw_only=True)
class _Line:
    """One ε of the detailed table.

    Parameters
    ----------
    exact : float
        The ε; ``typed`` as it is typed, and ``text`` as it is shown.
    median, largest : float
        Expected exposures of rows, in nats.
    """

    exact: float
    typed: float
    text: str
    mark: str
    posterior: float
    noise_ratio: float | None
    median: float
    largest: float


def _detailed_table(choice: EpsilonChoice) -> Table:
    """Return one line for each ε that was tried; the ends of interest where a law is known."""
    utility = choice.utility
    names = () if utility is None else tuple(utility.curves)
    lines = tuple(_lines(choice))
    texts = {line.typed: line.text for line in lines}
    return table(
        lines,
        ("ε", lambda line: line.typed, lambda typed: texts[typed]),
        ("", lambda line: line.mark, str),
        ("noise ratio r", lambda line: line.noise_ratio, _figure_up),
        ("posterior, most exposed row", lambda line: line.posterior, posterior_text),
        ("expected exposure, median row (nats)", lambda line: line.median, _figure_up),
        ("largest (nats)", lambda line: line.largest, _figure_up),
        *(_range_column(utility, name) for name in names if utility is not None),
    )


def _figure_up(value: float) -> str:
    return figure(value, "up")


def _range_column(
    utility: Utility, name: str
) -> tuple[str, Callable[[_Line], str | None], Callable[[str], str]]:
    curve = utility.curves[name]

    def scores(line: _Line) -> str | None:
        index = tried_index(utility, line.exact)
        if index is None:
            return None
        low, high = (
            score_text(name, float(curve.low[index])),
            score_text(name, float(curve.high[index])),
        )
        return f"{low} to {high}"

    return f"{MEASURES[name]}, nine of ten releases", scores, _cell


def _lines(choice: EpsilonChoice) -> Iterator[_Line]:
    sweep = choice.sweep
    special = _special(choice)
    if isinstance(sweep, LawSweep):
        tried = sweep.epsilons if choice.utility is None else choice.utility.epsilons
        sweep = replace(sweep, epsilons=np.union1d(tried, [*special]))
    median, largest = _expected_exposures(sweep)
    posterior = choice.posterior_at(sweep.epsilons)
    ratios = choice.noise_ratios(sweep.epsilons)
    for index, epsilon in enumerate(sweep.epsilons.tolist()):
        marks, exact = special.get(epsilon, ([], epsilon))
        yield _Line(
            exact=exact,
            typed=epsilon,
            text=number(epsilon, "up" if marks == [_ENDS] else "down"),
            mark=", ".join(marks),
            posterior=below_one(posterior[index]),
            noise_ratio=None if ratios is None else float(ratios[index]),
            median=float(median[index]),
            largest=float(largest[index]),
        )


def _special(choice: EpsilonChoice) -> dict[float, tuple[list[str], float]]:
    """Return the marks of every ε of interest as it is typed, and the ε itself."""
    special: dict[float, tuple[list[str], float]] = {}
    for epsilon, mark in (
        (choice.recommended, "recommended"),
        (choice.ceiling, "largest within the limit"),
        (choice.low, "transition begins"),
        (choice.high, _ENDS),
    ):
        if epsilon is None or not ends_of(epsilon):
            continue
        typed = float(epsilon)
        # A mechanism that is sampled is known only where it was.
        if isinstance(choice.sweep, LawSweep):
            typed = (rounded_up if mark == _ENDS else rounded_down)(epsilon)
        special.setdefault(typed, ([], float(epsilon)))[0].append(mark)
    return special


def _expected_exposures(sweep: Sweep) -> tuple[FloatArray, FloatArray]:
    """Return (k,) the median and the largest expected exposure, each that of a row."""
    if isinstance(sweep, LawSweep):
        median = sweep.rows + 1 - share_ranks(sweep.rows, np.array([0.5]))
        exposures = sweep.expected_at(np.array([int(median[0]), 1]))
        return exposures[:, 0], exposures[:, 1]
    expected = sweep.expected
    return np.quantile(expected, 0.5, axis=1, method="inverted_cdf"), np.max(expected, axis=1)


def _critical_table(sweep: Sweep) -> Table:
    """Return the ε by which shares of the rows have left their first plateau."""
    rows = sweep.rows
    shares = [0.0, *(part for part in _SHARES if part == 1 or part * rows >= 2)]
    critical = sweep.critical_at(share_ranks(rows, np.array(shares))).tolist()
    return table(
        zip(shares, critical, strict=True),
        ("rows past their first plateau", lambda row: row[0], _rows_share),
        ("by ε", lambda row: row[1], lambda value: number(value, "down") if value > 0 else "any"),
    )


def _rows_share(part: float) -> str:
    return "the first row" if part == 0 else share(part)
