"""Everything that the report on a choice of ε shows, collected once; renderers only lay it out.

It holds figures over ε and shares of rows, and no row's values, not even its key. Text that came
from outside is one line and printable; each renderer escapes it for its own format.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from expost._epsilon import EpsilonChoice
from expost._groups import printable
from expost._recommend import rounded_down
from expost._sweep import BeliefBound, OutputSweep
from expost._utility import Curve, Utility
from expost.errors import InvalidInput
from expost.report.epsilon_curves import EpsilonCurves, epsilon_curves, is_shown, middle_belief
from expost.report.parts import Choice, installed, one_line, shown_choices
from expost.report.wording import count, number, percent
from expost.report.wording import share as share_text
from expost.types import Audience, FloatArray

__all__ = [
    "CriticalShare",
    "EpsilonRow",
    "EpsilonSummary",
    "Score",
    "TransitionPoint",
    "UtilityCurve",
    "UtilityPoint",
    "collect_epsilon",
    "score_text",
]

_SHARES = (0.001, 0.01, 0.1, 0.5, 0.9, 1.0)
_NAMES = {"accuracy": "accuracy", "auc": "AUC", "log_loss": "log loss", "r2": "R²"}
# Cut off it would be another command.
_LONGEST_COMMAND = 10**6
# What a private choice is set beside: its own ε, and how seldom it may lose more.
_CHOOSING, _SELDOM = 0.1, 0.05


@dataclass(frozen=True, kw_only=True)
class TransitionPoint:
    """The curves at one ε: of the most exposed row, and of a middle one; None where not known."""

    epsilon: float
    belief: float
    middle_belief: float | None
    way: float | None
    middle_way: float | None


@dataclass(frozen=True, kw_only=True)
class UtilityPoint:
    """The leading measure at one ε: its mean, and the two ends of nine releases in ten."""

    epsilon: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class UtilityCurve:
    """Accuracy, or R², on rows held out.

    ``base_rate``  what knowing the labels alone gets;  ``noiseless`` what ε = ∞ gets.
    ``models``     how many were drawn at each ε, over all folds.
    """

    measure: str
    base_rate: float
    noiseless: float
    folds: int
    models: int
    points: tuple[UtilityPoint, ...]


@dataclass(frozen=True, kw_only=True)
class Score:
    """One measure at one ε: its mean, and the two ends of nine releases in ten."""

    measure: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class EpsilonRow:
    """One ε of the table; ``mark`` says what is special about it.

    ``belief``   the typical belief in the most exposed row.
    ``middle``, ``largest``  the median and the largest typical exposure of all rows, in nats.
    """

    epsilon: float
    mark: str
    belief: float
    middle: float
    largest: float
    scores: tuple[Score, ...]


@dataclass(frozen=True, kw_only=True)
class CriticalShare:
    """Share of the rows that leave their first plateau by this ε; None: at every ε, however small.

    Share 0 stands for the first row.
    """

    share: float
    epsilon: float | None


@dataclass(frozen=True, kw_only=True)
class EpsilonSummary:
    """What a report on a choice of ε shows. For the curator only.

    ``recommended``  an ε as it is to be typed, rounded down; None where none keeps every bound.
    ``low, high, limit``  the ends of the transition, and the ε of the belief bound; None where
                     there is none, infinite where none is needed.
    ``bound``        the belief that no row may pass.
    ``measure``      what is followed from ``low`` to ``high``, in words.
    ``is_way``       whether the curves are ways between plateaus, and not one-sidednesses.
    ``command``      what to type next, or None.
    ``candidates, choosing, lost``  a private choice among so many ε at a cost of ``choosing``
                     gets, nineteen times in twenty, at most so many rows fewer right.
    """

    rows: int
    model: str
    answer: tuple[str, ...]
    reasons: tuple[str, ...]
    recommended: float | None
    low: float | None
    high: float | None
    limit: float | None
    bound: BeliefBound
    measure: str
    is_way: bool
    axis: tuple[float, float]
    curve: tuple[TransitionPoint, ...]
    utility: UtilityCurve | None
    table: tuple[EpsilonRow, ...]
    critical: tuple[CriticalShare, ...]
    candidates: int
    choosing: float
    lost: float
    command: str | None
    choices: tuple[Choice, ...]
    notices: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]
    source: str | None
    made: str | None

    audience = Audience.FAIL


def collect_epsilon(
    choice: EpsilonChoice,
    *,
    command: str | None = None,
    choices: Sequence[Choice] = (),
    notices: Sequence[str] = (),
    source: str | None = None,
    made: str | None = None,
    versions: Mapping[str, str] | None = None,
) -> EpsilonSummary:
    """Gather the figures of a choice of ε; the arguments mean what they mean for ``collect``."""
    curves = epsilon_curves(choice)
    candidates = len(choice.epsilons)
    return EpsilonSummary(
        rows=choice.sweep.rows,
        model=one_line(choice.description),
        answer=_answer(choice),
        reasons=tuple(one_line(reason) for reason in choice.reasons),
        recommended=_typed(choice.recommended),
        low=_end(choice.low),
        high=_end(choice.high),
        limit=_end(choice.epsilon_for_belief),
        bound=choice.bound,
        measure=choice.sweep.measure,
        is_way=curves.is_way,
        axis=curves.axis,
        curve=tuple(_curve(curves)),
        utility=None if choice.utility is None else _utility(choice.utility),
        table=_table(choice),
        critical=_critical(choice.critical_epsilon),
        candidates=candidates,
        choosing=_CHOOSING,
        lost=2 / _CHOOSING * math.log(candidates / _SELDOM),
        command=None if command is None else printable(command, _LONGEST_COMMAND),
        choices=shown_choices(choices),
        notices=tuple(dict.fromkeys(one_line(notice) for notice in (*choice.notices, *notices))),
        versions=tuple((installed() if versions is None else dict(versions)).items()),
        source=None if source is None else one_line(source),
        made=None if made is None else one_line(made),
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _end(epsilon: float) -> float | None:
    """An end of interest; 0 and NaN say that there is none."""
    return float(epsilon) if epsilon > 0 else None


def _typed(epsilon: float | None) -> float | None:
    return None if epsilon is None else rounded_down(epsilon)


def _short(epsilon: float) -> str:
    """An ε that promises something: never more than it is."""
    return number(rounded_down(epsilon))


def _curve(curves: EpsilonCurves) -> Iterator[TransitionPoint]:
    for place, epsilon in enumerate(curves.epsilons):
        middle = curves.middle_belief
        yield TransitionPoint(
            epsilon=float(epsilon),
            belief=_uncertain(curves.belief[place]),
            middle_belief=None if middle is None else _uncertain(middle[place]),
            way=_known(curves.way.farthest[place]),
            middle_way=_known(curves.way.median[place]),
        )


def _utility(utility: Utility) -> UtilityCurve:
    name, curve = utility.leading
    return UtilityCurve(
        measure=_NAMES[name],
        base_rate=curve.base_rate,
        noiseless=curve.noiseless,
        folds=utility.folds,
        models=utility.folds * utility.releases,
        points=tuple(
            UtilityPoint(
                epsilon=float(epsilon),
                mean=float(curve.mean[place]),
                low=float(curve.low[place]),
                high=float(curve.high[place]),
            )
            for place, epsilon in enumerate(utility.epsilons)
        ),
    )


def _table(choice: EpsilonChoice) -> tuple[EpsilonRow, ...]:
    """A line for each ε that was tried; the ends of interest too, where the law is known there."""
    sweep = choice.sweep
    special = _special(choice)
    if isinstance(sweep, OutputSweep):
        sweep = replace(sweep, epsilons=np.union1d(sweep.epsilons, [*special]))
    typical = sweep.typical
    belief = sweep.belief(choice.bound, sweep.epsilons)
    rows = []
    for place, epsilon in enumerate(sweep.epsilons.tolist()):
        words, tried = special.get(epsilon, ([], epsilon))
        rows.append(
            EpsilonRow(
                epsilon=epsilon,
                mark=", ".join(words),
                belief=_uncertain(belief[place]),
                middle=float(np.median(typical[place])),
                largest=float(np.max(typical[place])),
                scores=() if choice.utility is None else tuple(_scores(choice.utility, tried)),
            )
        )
    return tuple(rows)


def _special(choice: EpsilonChoice) -> dict[float, tuple[list[str], float]]:
    """What to say beside an ε as it is typed, and the ε itself: one may be both of two things."""
    said: dict[float, tuple[list[str], float]] = {}
    for epsilon, words in (
        (choice.recommended, "recommended"),
        (choice.epsilon_for_belief, "belief bound"),
        (choice.low, "transition begins"),
        (choice.high, "transition ends"),
    ):
        if epsilon is None or not is_shown(epsilon):
            continue
        # A mechanism that is sampled is known only where it was.
        typed = rounded_down(epsilon) if isinstance(choice.sweep, OutputSweep) else float(epsilon)
        said.setdefault(typed, ([], float(epsilon)))[0].append(words)
    return said


def _uncertain(belief: float) -> float:
    """A belief is never 1, though the nearest float may be."""
    return min(float(belief), math.nextafter(1.0, 0.0))


def _scores(utility: Utility, epsilon: float) -> Iterator[Score]:
    """The measures at an ε that was tried; none at another."""
    place = int(np.searchsorted(utility.epsilons, epsilon))
    if place == len(utility.epsilons) or utility.epsilons[place] != epsilon:
        return
    for name, curve in utility.curves.items():
        yield Score(
            measure=_NAMES[name],
            mean=float(curve.mean[place]),
            low=float(curve.low[place]),
            high=float(curve.high[place]),
        )


def _critical(critical: FloatArray) -> tuple[CriticalShare, ...]:
    # A row without a critical ε has left its plateau at every ε: it comes first.
    ascending = np.sort(np.where(np.isnan(critical), 0.0, critical))
    if not len(ascending):
        raise InvalidInput("choice: has no rows.")
    shares = [share for share in _SHARES if share == 1 or share * len(ascending) >= 2]
    found = np.quantile(ascending, shares, method="inverted_cdf")
    places = [(0.0, ascending[0]), *zip(shares, found, strict=True)]
    return tuple(
        CriticalShare(share=share, epsilon=float(epsilon) if epsilon > 0 else None)
        for share, epsilon in places
    )


# ── the answer: numbers only, so that no name from outside stands in these sentences ─────────────


def _answer(choice: EpsilonChoice) -> tuple[str, ...]:
    if choice.recommended is None:
        # The last sentences say which bound fails, and by how much.
        return ("No ε is recommended.", *(one_line(reason) for reason in choice.reasons[-2:]))
    sentences = [f"Use ε = {_short(choice.recommended)}.", _belief_sentence(choice)]
    utility = choice.utility
    if utility is not None and choice.recommended in utility.epsilons:
        place = int(np.searchsorted(utility.epsilons, choice.recommended))
        sentences.append(_utility_sentence(utility, place))
        sentences += _cheaper_sentence(utility, place)
    return (*sentences, _transition_sentence(choice))


def _belief_sentence(choice: EpsilonChoice) -> str:
    bound, epsilon = choice.bound, choice.recommended
    assert epsilon is not None
    if isinstance(choice.sweep, OutputSweep):
        epsilon = rounded_down(epsilon)
    belief = _uncertain(choice.sweep.belief(bound, np.array([epsilon]))[0])
    before = (
        "was undecided (50\N{NO-BREAK SPACE}%)"
        if bound.prior == 0.5
        else f"held it for {share_text(bound.prior)} likely"
    )
    how = (
        "gets, on average over the models that may be released,"
        if bound.quantile is None
        else f"gets, from the models that may be released, with probability {bound.quantile:g} at"
        " most"
    )
    found = middle_belief(choice, np.array([epsilon]))
    middle = "" if found is None else f"; of a middle row {percent(_uncertain(found[0]))}"
    return (
        f"Somebody who knows all other rows and {before} then {how} {percent(belief)} sure that the"
        f" most exposed of the {count(choice.sweep.rows)} rows is in the data{middle}."
    )


def _utility_sentence(utility: Utility, place: int) -> str:
    name, curve = utility.leading
    figures = (curve.mean, curve.low, curve.high)
    mean, low, high = (score_text(_NAMES[name], float(part[place])) for part in figures)
    rest = [score_text(_NAMES[name], part) for part in (curve.noiseless, curve.base_rate)]
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
        f"The {_NAMES[name]} alone would allow a smaller one: down to ε ="
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
    share = sweep.share if isinstance(sweep, OutputSweep) else None
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
        f"{start}; from ε = {_short(high)} on {many} the rows have hardly any protection left. In"
        " between it is lost by one row after the other."
    )


def score_text(measure: str, value: float) -> str:
    """A score as a person reads it: a share of rows, or a plain number."""
    if measure == "accuracy":
        return percent(min(max(value, 0.0), 1.0))
    return f"{value:.3f}".replace("-", "−")
