"""Everything that a report shows of beliefs: how sure an attacker gets of each row, and '1 in k'.

It holds figures, and the keys of two rows, and no row's values. Text that came from outside is one
line and printable; each renderer escapes it for its own format.

Every figure is that of the exposed end of its proved interval, rounded towards more exposed.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit, logit

from expost._order import OrderStatistics
from expost.groups.exposure import printable
from expost.profiles.digest import ExtremeRow
from expost.profiles.posterior import RowIdentifiability
from expost.report.parts import Context, Headline, Part, one_line
from expost.report.wording import (
    certainty,
    count,
    percent_down,
    percent_up,
    sure_text,
    symbols,
    upper,
)
from expost.report.wording import share as share_text
from expost.risk.wording import chance, one_in_text
from expost.rounding import at_least, decimal
from expost.types import Audience, Neighbouring

__all__ = [
    "AdvantageFigures",
    "BeliefLevel",
    "BeliefQuantile",
    "BeliefRow",
    "BeliefsPart",
    "WorstFigures",
    "collect_beliefs",
]

_SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)
# Past this 1 in k says no more than certain.
_CERTAIN = 1e-12
# Beliefs are shown to a tenth of a per cent.
_SHOWN = 0.001


@dataclass(frozen=True, kw_only=True)
class BeliefLevel:
    """How many rows a belief may pass: in one line that they were in, and that they were not."""

    belief: float
    rows: int
    doubt: float
    rows_out: int


@dataclass(frozen=True, kw_only=True)
class BeliefQuantile:
    """The log odds of the belief that at least ``share`` of the rows have at most."""

    share: float
    log_odds: float

    @property
    def text(self) -> str:
        """The belief, rounded up."""
        return sure_text(self.log_odds)


@dataclass(frozen=True, kw_only=True)
class BeliefRow:
    """One row by its key: the log odds of the belief that it was in, and their proved interval.

    Log odds, because beliefs are all 1 in float64 past some loss.
    """

    key: str
    log_odds: float
    low: float
    high: float

    @property
    def belief_text(self) -> str:
        """The belief, at most."""
        return sure_text(self.high)

    @property
    def interval_text(self) -> str:
        """Where it is proved to lie."""
        low, high = float(expit(self.low)), float(expit(self.high))
        if high - low < _SHOWN:
            return symbols("proved to within 0.1 %")
        return f"proved to lie from {percent_down(certainty(self.low))} to {sure_text(self.high)}"


@dataclass(frozen=True, kw_only=True)
class AdvantageFigures:
    """Of the Bayes adversary over all models it might have been (D5.3 Def. 5).

    ``surest``   against the row whose presence is believed most;  ``error`` its standard error,
                 0 where it is exact.
    ``largest``  against the row where it is largest, with that row's ``key``.
    """

    surest: float
    error: float
    largest: float
    key: str

    @property
    def surest_text(self) -> str:
        """Rounded up, with its error where there is one."""
        error = f" ± {upper(self.error, 2)}" if self.error > 0 else ""
        return upper(self.surest) + error

    @property
    def largest_text(self) -> str:
        """Rounded up."""
        return upper(self.largest)


@dataclass(frozen=True, kw_only=True)
class WorstFigures:
    """What the promise allows against any row of any data; ``promise`` None: there is none.

    ``log_odds``  of the belief, which may be passed with probability ``failure`` at most.
    ``found``     the share of members that are found where ``false`` of the others are taken for
                  members.
    """

    promise: str | None
    log_odds: float
    failure: float
    advantage: float
    found: float
    false: float

    @property
    def belief_text(self) -> str:
        """The belief, rounded up."""
        return sure_text(self.log_odds)

    @property
    def advantage_text(self) -> str:
        """Rounded up."""
        return upper(self.advantage)

    @property
    def failure_text(self) -> str:
        """How often the belief may be passed, or nothing."""
        return f", except with a chance of {chance(self.failure)}" if self.failure > 0 else ""

    @property
    def found_text(self) -> str:
        """Rounded up."""
        return percent_up(self.found)


@dataclass(frozen=True, kw_only=True)
class BeliefsPart(Part):
    """How sure an attacker gets of each row. For the curator only.

    ``unit``        "row", or "person".
    ``prior``       what the attacker held it for beforehand that a row was there.
    ``surest``      the row whose presence is believed most.
    ``least``       the row whose absence is.
    ``either_way``  the log odds of the surest she gets of any row, in or out.
    ``advantage``   None where it was not computed: it takes hundreds of sampled models.
    """

    unit: str
    rows: int
    relation: Neighbouring
    prior: float
    levels: tuple[BeliefLevel, ...]
    quantiles: tuple[BeliefQuantile, ...]
    surest: BeliefRow
    least: BeliefRow
    either_way: float
    advantage: AdvantageFigures | None
    worst: WorstFigures
    audience: Literal[Audience.FAIL] = Audience.FAIL

    @property
    def title(self) -> str:
        """What stands above its page."""
        return f"How sure an attacker gets of {count(self.rows)} {self.unit}s"

    @property
    def is_even(self) -> bool:
        """Whether in and out were equally likely, so that one level serves both."""
        return self.prior == 0.5

    @property
    def either_way_text(self) -> str:
        """How sure that is, rounded up."""
        return sure_text(self.either_way)


def collect_beliefs(
    found: RowIdentifiability, *, beside_profile: bool = False, context: Context | None = None
) -> BeliefsPart:
    """Gather the beliefs.

    ``beside_profile``  they are shown below the profile that they come from, which has told the
                        main thing; an advantage that must be sampled is left out, for that takes
                        longer than the profile itself.
    """
    context = context or Context()
    losses, prior, digest = found.losses, float(logit(found.prior)), found.digest
    surest, doubted = _row(digest.surest, prior), _row(digest.least, prior)
    either = max(prior + digest.highest.largest, -(prior + found.lowest_loss))
    worst = _worst(found, prior)
    # Without a law it is sampled, which needs every row.
    is_sampled = losses.law is None and (losses.draw is not None or not found.is_held)
    return BeliefsPart(
        model=one_line(found.description),
        headline=Headline() if beside_profile else _headline(found, surest, either, worst),
        answer=tuple(_answer(found, surest, doubted)),
        unit=found.unit,
        rows=len(found),
        relation=losses.relation,
        prior=found.prior,
        levels=tuple(_levels(found)),
        quantiles=tuple(_quantiles(digest.highest, prior)),
        surest=surest,
        least=doubted,
        either_way=either,
        advantage=None if beside_profile and is_sampled else _advantage(found),
        worst=worst,
        **context.fields(found.notices),
    )


def _row(row: ExtremeRow, prior: float) -> BeliefRow:
    # What is not known counts as exposed.
    low = -math.inf if math.isnan(row.loss_low) else row.loss_low
    high = math.inf if math.isnan(row.loss_high) else row.loss_high
    return BeliefRow(
        key=printable(row.key),
        log_odds=prior + (high if math.isnan(row.loss) else row.loss),
        low=prior + low,
        high=prior + high,
    )


def _levels(found: RowIdentifiability) -> Iterator[BeliefLevel]:
    for belief, doubt in zip(found.levels, found.doubt_levels, strict=True):
        yield BeliefLevel(
            belief=belief,
            rows=found.rows_above(belief),
            doubt=doubt,
            rows_out=found.rows_doubted(doubt),
        )


def _quantiles(highest: OrderStatistics, prior: float) -> Iterator[BeliefQuantile]:
    for share in _SHARES:
        # With few rows the outer quantiles are the largest one again.
        if share == 1 or highest.count * (1 - share) >= 1:
            at = float(highest.quantile(np.array([share]))[0])
            yield BeliefQuantile(share=share, log_odds=prior + at)


def _advantage(found: RowIdentifiability) -> AdvantageFigures:
    surest, largest = found.surest_advantage, found.largest_advantage
    return AdvantageFigures(
        surest=surest.high,
        error=surest.error,
        largest=largest.high,
        key=printable(largest.key),
    )


def _worst(found: RowIdentifiability, prior: float) -> WorstFigures:
    worst = found.worst_case
    return WorstFigures(
        promise=None if worst.promise == "nothing" else symbols(one_line(worst.promise)),
        log_odds=prior + float(found.losses.worst_case),
        failure=worst.failure,
        advantage=worst.advantage,
        found=worst.true_positive_rate,
        false=worst.false_positive_rate,
    )


# -- in words --------------------------------------------------------------------------------------


def _headline(
    found: RowIdentifiability, surest: BeliefRow, either: float, worst: WorstFigures
) -> Headline:
    """What is promised; how sure she gets of any row; what to do."""
    unit = found.unit
    told = (
        f"{sure_text(either)} sure whether any one {unit} was in the data"
        if found.prior == 0.5
        else f"{surest.belief_text} sure that any one {unit} was in the data"
    )
    known = "all other rows" if unit == "row" else "the rows of all others"
    return Headline(
        epsilon="Nothing is promised about any row: what an attacker may learn is known of this"
        " model only."
        if worst.promise is None
        else f"The promise, {worst.promise}, allows an attacker to get {worst.belief_text} sure of"
        f" any {unit} of any data{worst.failure_text}.",
        exposed=(
            f"Somebody who knows {known} and {_before(found.prior)} gets at most {told}, from this"
            " one model."
        ),
        advice=(
            "Where that is surer than you would accept, release at a smaller ε (expost epsilon"
            f" finds one for a belief that you set), and tell nobody which {unit}s they are."
        ),
    )


def _before(prior: float) -> str:
    return "was undecided" if prior == 0.5 else f"held it for {share_text(prior)} likely"


def _answer(found: RowIdentifiability, surest: BeliefRow, least: BeliefRow) -> Iterator[str]:
    """The surest row in words, in and out, as '1 in k'."""
    unit, prior = found.unit, float(logit(found.prior))
    was, about = ("it was", "it") if unit == "row" else ("they were", "them")
    if not surest.high > prior:
        yield (
            f"No {unit}'s presence is any more probable after seeing this model than it was before."
        )
    elif found.prior == 0.5:
        yield (
            f"An attacker who was undecided is at most {surest.belief_text} sure of the surest"
            f" {unit} that {was} in the data: she is {_wrong(surest.high, about)}."
        )
    else:
        suspects = at_least(1 / found.prior, 4)
        crowd = one_in_text(found.prior, surest.high - prior)
        yield (
            f"An attacker who {_before(found.prior)} is at most {surest.belief_text} sure of the"
            f" surest {unit} that {was} in the data: one of {suspects} suspects has become 1 in"
            f" {crowd}."
        )
    if least.low < prior and found.prior == 0.5:
        yield (
            f"Of the {unit} that the model speaks against most she is at most"
            f" {sure_text(-least.low)} sure that {was} not: she is {_wrong(-least.low, about)}."
        )


def _wrong(log_odds: float, about: str) -> str:
    """How often she is wrong who says so, at least: '1 time in k', k rounded up."""
    doubt = float(expit(-log_odds))
    if log_odds == math.inf:
        return "never wrong"
    if doubt < _CERTAIN:
        return "as good as never wrong"
    if doubt >= 0.1:
        # Near a coin '1 time in 2.1' is hard to read.
        return f"wrong about {about} {at_least(100 * decimal(doubt))} times in 100"
    return f"wrong about {about} 1 time in {upper(math.ceil(1 / decimal(doubt)))}"
