"""Everything that the report on a choice of ε shows, collected once; renderers only lay it out.

It holds figures over ε and shares of rows, and no row's values, not even its key. Text that came
from outside is one line and printable; each renderer escapes it for its own format.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from expost._order import share_ranks
from expost.epsilon.choice import EpsilonChoice
from expost.epsilon.limit import PosteriorLimit
from expost.epsilon.recommend import MEASURE_NAMES
from expost.epsilon.sampled import Sweep
from expost.epsilon.sweep import LawSweep
from expost.epsilon.utility import Utility
from expost.errors import InvalidInput
from expost.groups.exposure import printable
from expost.report.epsilon_answer import epsilon_answer, epsilon_headline
from expost.report.epsilon_curves import EpsilonCurves, epsilon_curves, is_shown
from expost.report.parts import Context, Part, known, one_line
from expost.report.slider import SliderData, slider_of_choice
from expost.report.wording import count, figure, number, uncertain
from expost.rounding import rounded_down, rounded_up
from expost.selection.private import selection_cost
from expost.types import Audience, FloatArray

__all__ = [
    "CriticalShare",
    "EpsilonPart",
    "EpsilonRow",
    "Score",
    "TransitionPoint",
    "UtilityCurve",
    "UtilityPoint",
    "collect_epsilon",
]

_ENDS = "transition ends"
_SHARES = (0.001, 0.01, 0.1, 0.5, 0.9, 1.0)
# Cut off it would be another command.
_LONGEST_COMMAND = 10**6
# What a private choice is set beside: its own ε, and how seldom it may lose more.
_CHOOSING, _SELDOM = 0.1, 0.05


@dataclass(frozen=True, kw_only=True)
class TransitionPoint:
    """The curves at one ε: of the most exposed row, and of a middle one; None where not known."""

    epsilon: float
    posterior: float
    middle_posterior: float | None
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
    """The leading measure on rows held out.

    ``base_rate``  what knowing the labels alone gets;  ``best`` the best reachable model.
    ``models``     how many were drawn at each ε, over all folds.
    """

    measure: str
    base_rate: float
    best: float
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

    ``posterior``    of the most exposed row, at the limit's quantile.
    ``noise_ratio``  r, or None where it is not known;  ``share`` of the best reachable gain.
    ``middle``, ``largest``  the median and the largest typical exposure of all rows, in nats.
    """

    epsilon: float
    mark: str
    posterior: float
    noise_ratio: float | None
    share: float | None
    middle: float
    largest: float
    scores: tuple[Score, ...]

    @property
    def epsilon_text(self) -> str:
        """The ε as the sentences write it: what is promised up to it down, the end of all up."""
        if not self.mark:
            return figure(self.epsilon)
        return number(self.epsilon, "up" if self.mark == _ENDS else "down")


@dataclass(frozen=True, kw_only=True)
class CriticalShare:
    """Share of the rows that leave their first plateau by this ε; None: at every ε, however small.

    Share 0 stands for the first row.
    """

    share: float
    epsilon: float | None


@dataclass(frozen=True, kw_only=True)
class EpsilonPart(Part):
    """What a report on a choice of ε shows. For the curator only.

    ``verdict``      enough, most, none or useless.
    ``recommended``  an ε as it is to be typed, rounded down; None where none is.
    ``low, high``    the ends of the transition; None where there is none, infinite where none is
                     needed.
    ``ceiling``      the largest ε that keeps the limit; None where none does.
    ``limit``        the posterior that no row may pass.
    ``measure``      what is followed from ``low`` to ``high``, in words.
    ``is_way``       whether the curves are ways between plateaus, and not one-sidednesses.
    ``command``      what to type next, or None.
    ``candidates, choosing, lost``  a private choice among so many ε at a cost of ``choosing``
                     gets, nineteen times in twenty, at most so many rows fewer right.
    ``slider``       how typical figures depend on ε; None where no row moves the model.
    """

    # No other mark can be given, or read from a file.
    audience: Literal[Audience.FAIL] = Audience.FAIL
    rows: int
    verdict: str
    reasons: tuple[str, ...]
    recommended: float | None
    low: float | None
    high: float | None
    ceiling: float | None
    limit: PosteriorLimit
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
    slider: SliderData | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        points = self.curve if self.utility is None else self.utility.points
        for name, entries in {"table": self.table, "curve": self.curve, "utility": points}.items():
            if not entries:
                raise InvalidInput(f"{name}: is empty, must have at least one entry.")

    @property
    def title(self) -> str:
        """What stands above its page."""
        return f"Which ε for a model of {count(self.rows)} rows?"


def collect_epsilon(
    choice: EpsilonChoice,
    *,
    command: str | None = None,
    context: Context | None = None,
) -> EpsilonPart:
    """Gather the figures of a choice of ε; ``command`` releases a model at it."""
    context = context or Context()
    curves = epsilon_curves(choice)
    candidates = len(choice.epsilons)
    return EpsilonPart(
        rows=choice.sweep.rows,
        model=one_line(choice.description),
        headline=epsilon_headline(choice, command=command is not None),
        answer=epsilon_answer(choice),
        verdict=choice.verdict,
        reasons=tuple(one_line(reason) for reason in choice.reasons),
        recommended=_typed(choice.recommended),
        low=_end(choice.low),
        high=_end(choice.high),
        ceiling=_end(choice.ceiling),
        limit=choice.limit,
        measure=choice.sweep.measure,
        is_way=curves.is_way,
        axis=curves.axis,
        curve=tuple(_curve(curves)),
        utility=None if choice.utility is None else _utility(choice.utility),
        table=_table(choice),
        critical=_critical(choice.sweep),
        candidates=candidates,
        choosing=_CHOOSING,
        lost=_lost(candidates),
        command=None if command is None else printable(command, _LONGEST_COMMAND),
        slider=slider_of_choice(choice),
        **context.fields(choice.notices),
    )


def _lost(candidates: int) -> float:
    """The bound of a private choice by counts, with one best among them: free of the data."""
    scores = [1.0, *([0.0] * (candidates - 1))]
    return selection_cost(scores, 1.0, _CHOOSING, failure=_SELDOM).shortfall_bound


def _end(epsilon: float) -> float | None:
    """An end of interest; 0 and NaN say that there is none."""
    return float(epsilon) if epsilon > 0 else None


def _typed(epsilon: float | None) -> float | None:
    return None if epsilon is None else rounded_down(epsilon)


def _curve(curves: EpsilonCurves) -> Iterator[TransitionPoint]:
    for place, epsilon in enumerate(curves.epsilons):
        middle = curves.middle_posterior
        yield TransitionPoint(
            epsilon=float(epsilon),
            posterior=uncertain(curves.posterior[place]),
            middle_posterior=None if middle is None else uncertain(middle[place]),
            way=known(curves.way.farthest[place]),
            middle_way=known(curves.way.median[place]),
        )


def _utility(utility: Utility) -> UtilityCurve:
    curve = utility.leading
    return UtilityCurve(
        measure=MEASURE_NAMES[utility.measure],
        base_rate=curve.base_rate,
        best=curve.best,
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
    if isinstance(sweep, LawSweep):
        tried = sweep.epsilons if choice.utility is None else choice.utility.epsilons
        sweep = replace(sweep, epsilons=np.union1d(tried, [*special]))
    middle, largest = _typical(sweep)
    posterior = choice.posterior_at(sweep.epsilons)
    ratios = choice.noise_ratios(sweep.epsilons)
    rows = []
    for place, epsilon in enumerate(sweep.epsilons.tolist()):
        words, tried_at = special.get(epsilon, ([], epsilon))
        rows.append(
            EpsilonRow(
                epsilon=epsilon,
                mark=", ".join(words),
                posterior=uncertain(posterior[place]),
                noise_ratio=None if ratios is None else float(ratios[place]),
                share=None if choice.utility is None else _share(choice.utility, tried_at),
                middle=float(middle[place]),
                largest=float(largest[place]),
                scores=() if choice.utility is None else tuple(_scores(choice.utility, tried_at)),
            )
        )
    return tuple(rows)


def _typical(sweep: Sweep) -> tuple[FloatArray, FloatArray]:
    """(k,) the median and the largest typical exposure: a row's own, as on the slider."""
    if isinstance(sweep, LawSweep):
        middle = sweep.rows + 1 - share_ranks(sweep.rows, np.array([0.5]))
        found = sweep.typical_at(np.array([int(middle[0]), 1]))
        return found[:, 0], found[:, 1]
    typical = sweep.typical
    return np.quantile(typical, 0.5, axis=1, method="inverted_cdf"), np.max(typical, axis=1)


def _special(choice: EpsilonChoice) -> dict[float, tuple[list[str], float]]:
    """What to say beside an ε as it is typed, and the ε itself: one may be both of two things."""
    said: dict[float, tuple[list[str], float]] = {}
    for epsilon, words in (
        (choice.recommended, "recommended"),
        (choice.ceiling, "ceiling"),
        (choice.low, "transition begins"),
        (choice.high, _ENDS),
    ):
        if epsilon is None or not is_shown(epsilon):
            continue
        # A mechanism that is sampled is known only where it was.
        typed = float(epsilon)
        if isinstance(choice.sweep, LawSweep):
            typed = (rounded_up if words == _ENDS else rounded_down)(epsilon)
        said.setdefault(typed, ([], float(epsilon)))[0].append(words)
    return said


def _place(utility: Utility, epsilon: float) -> int | None:
    """Return the place of an ε that was tried; None for another."""
    place = int(np.searchsorted(utility.epsilons, epsilon))
    tried = place < len(utility.epsilons) and utility.epsilons[place] == epsilon
    return place if tried else None


def _share(utility: Utility, epsilon: float) -> float | None:
    """Return the share of the best reachable gain at an ε that was tried."""
    place = _place(utility, epsilon)
    return None if place is None else known(utility.leading.share[place])


def _scores(utility: Utility, epsilon: float) -> Iterator[Score]:
    """The measures at an ε that was tried; none at another."""
    place = _place(utility, epsilon)
    if place is None:
        return
    for name, curve in utility.curves.items():
        yield Score(
            measure=MEASURE_NAMES[name],
            mean=float(curve.mean[place]),
            low=float(curve.low[place]),
            high=float(curve.high[place]),
        )


def _critical(sweep: Sweep) -> tuple[CriticalShare, ...]:
    rows = sweep.rows
    if not rows:
        raise InvalidInput("choice: has no rows.")
    shares = [0.0, *(share for share in _SHARES if share == 1 or share * rows >= 2)]
    ranks = share_ranks(rows, np.array(shares))
    if isinstance(sweep, LawSweep):
        found = sweep.critical_at(ranks)
    else:
        # A row without a critical ε has left its plateau at every ε: it comes first.
        found = np.sort(np.where(np.isnan(sweep.critical), 0.0, sweep.critical))[ranks - 1]
    return tuple(
        CriticalShare(share=share, epsilon=float(epsilon) if epsilon > 0 else None)
        for share, epsilon in zip(shares, found, strict=True)
    )
