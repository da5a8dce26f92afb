"""Everything that a report shows of audits over ε: how attacks and theory relate.

It holds figures of attacks at each ε, and nothing of a row. Text that came from outside is one line
and printable; each renderer escapes it for its own format.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from expost.attacks.roc import Interval, auc
from expost.audits.result import WARNING, Audit
from expost.audits.sweep import AuditSweep
from expost.report.audit_part import CorrelationLine
from expost.report.audit_words import words
from expost.report.parts import Context, Headline, Part, one_line
from expost.report.wording import count, number, percent, upper
from expost.report.wording import share as share_text
from expost.types import Audience

__all__ = ["AuditsPart", "SweepLine", "collect_audits"]

# From where a rank correlation is called strong, and up to where there is hardly any.
_STRONG, _WEAK = 0.6, 0.2
_EPSILON = re.compile(r",? epsilon=[^,]*")


@dataclass(frozen=True, kw_only=True)
class SweepLine:
    """One ε: its best attack by AUC, and what the promise allows (None: there is none).

    ``above_coin``  whether any attack's AUC passes ½ for sure, all ε and attacks considered.
    ``proved``      the largest ε that the attacks prove, at ``delta``; None without a bound.
    ``refuted``     whether what they prove, or the advantage, surely passes the promise.
    ``relation``    None where nothing is known of the members, or all are alike.
    """

    epsilon: float
    attack: str
    words: str
    auc: Interval
    advantage: Interval
    tpr_at_1_percent: Interval
    allowed: float | None
    above_coin: bool
    proved: float | None
    delta: float | None
    refuted: bool
    relation: CorrelationLine | None

    @property
    def allowed_text(self) -> str:
        """Rounded up."""
        return "nothing promised" if self.allowed is None else upper(self.allowed)


@dataclass(frozen=True, kw_only=True)
class AuditsPart(Part):
    """What a report shows of audits of the same rows over ε. For review: aggregates alone.

    ``lines``  one for each ε, rising.
    """

    members: int
    others: int
    references: int
    confidence: float
    warning: str
    lines: tuple[SweepLine, ...]
    audience: Literal[Audience.REVIEW] = Audience.REVIEW

    @property
    def title(self) -> str:
        """What stands above its page."""
        return f"What attacks get out of models of {count(self.members)} rows, by ε"


def collect_audits(sweep: AuditSweep, *, context: Context | None = None) -> AuditsPart:
    """Gather the figures of audits over ε."""
    context = context or Context()
    first = sweep.audits[0]
    inside = int(np.count_nonzero(first.truth))
    lines = tuple(_lines(sweep))
    return AuditsPart(
        model=one_line(_EPSILON.sub("", first.description)),
        headline=_headline(lines),
        answer=tuple(_related(lines)),
        members=inside,
        others=len(first) - inside,
        references=first.models,
        confidence=first.confidence,
        warning=WARNING,
        lines=lines,
        **context.fields(*(one.notices for one in sweep.audits)),
    )


def _lines(sweep: AuditSweep) -> Iterator[SweepLine]:
    tried = sum(len(one.figures) for one in sweep.audits)
    beaten = {epsilon for epsilon, _ in sweep.beaten}
    for (epsilon, one), related in zip(sweep, sweep.correlations, strict=True):
        found = one.figures[one.best]
        proved = max(one.bounds, key=lambda bound: bound.epsilon, default=None)
        yield SweepLine(
            epsilon=epsilon,
            attack=one_line(one.best),
            words=words(one.best),
            auc=found.auc,
            advantage=found.advantage,
            tpr_at_1_percent=found.tpr_at_1_percent,
            allowed=one.advantage_bound,
            above_coin=_above_coin(one, tried),
            proved=None if proved is None else float(proved.epsilon),
            delta=None if proved is None else float(proved.delta),
            refuted=one.promise_refuted or epsilon in beaten,
            relation=None if related is None else CorrelationLine(**related._asdict()),
        )


def _above_coin(one: Audit, tried: int) -> bool:
    """Of so many intervals some would lie above ½ by chance: they are taken wider (Bonferroni)."""
    sure = 1 - (1 - one.confidence) / tried
    return any(auc(score, one.truth, confidence=sure).low > 0.5 for score in one.scores.values())


# -- in words --------------------------------------------------------------------------------------


def _headline(lines: tuple[SweepLine, ...]) -> Headline:
    """Whether the promise holds over ε; how far the best attacks come; what to do."""
    refuted = [line.epsilon for line in lines if line.refuted]
    return Headline(
        epsilon=_promise(lines, refuted),
        exposed=_reached(lines),
        advice=_advice(lines, refuted),
        alarm=bool(refuted),
    )


def _span(lines: tuple[SweepLine, ...]) -> str:
    low, high = number(lines[0].epsilon), number(lines[-1].epsilon)
    return f"At ε = {low}" if low == high else f"From ε = {low} to {high}"


def _promise(lines: tuple[SweepLine, ...], refuted: list[float]) -> str:
    if refuted:
        return (
            f"The promise is refuted at ε = {', '.join(map(number, refuted))}: an attack surely got"
            " further there than it allows."
        )
    promised = [line.epsilon for line in lines if line.allowed is not None]
    if not promised:
        return f"{_span(lines)} no promise is known, so that only the attacks speak."
    at = _span(lines)
    if len(promised) < len(lines):
        at = f"At ε = {', '.join(map(number, promised))}, where a promise is known,"
    return f"{at} no attack got further than the promise allows; that is no proof that it is kept."


def _reached(lines: tuple[SweepLine, ...]) -> str:
    first, last = lines[0], lines[-1]
    told = f"{percent(first.auc.value)} of the time at ε = {number(first.epsilon)}"
    if len(lines) > 1:
        told += f" and {percent(last.auc.value)} at ε = {number(last.epsilon)}"
    return (
        "Somebody who has the model and a person's row picks the member out of a pair, by the best"
        f" of the attacks, {told} (a coin: {share_text(0.5)})."
    )


def _advice(lines: tuple[SweepLine, ...], refuted: list[float]) -> str:
    if refuted:
        return (
            "Do not release this model at that ε, and trust no other by the same mechanism, until"
            " it is known why."
        )
    found = [line.epsilon for line in lines if line.above_coin]
    theory = (
        "attacks find less than theory's attacker, so choose ε by what the rows lose (expost"
        " epsilon), and take this for a check"
    )
    if not found:
        return f"At none of these ε is any attack surely better than a coin; {theory}."
    return (
        f"From ε = {number(min(found))} on attacks are surely better than a coin; {theory}."
        if all(line.above_coin for line in lines if line.epsilon >= min(found))
        else f"At ε = {', '.join(map(number, found))} attacks are surely better than a coin;"
        f" {theory}."
    )


def _related(lines: tuple[SweepLine, ...]) -> Iterator[str]:
    """Whether the rows that theory calls exposed are those that attacks tell apart, by ε."""
    known = [(line.epsilon, line.relation) for line in lines if line.relation is not None]
    if not known:
        return
    shown = ", ".join(
        f"{one.value:.2f}".replace("-", "−") + f" at ε = {number(e)}" for e, one in known
    )
    values = [one.value for _, one in known]
    if min(values) >= _STRONG:
        meaning = "the rows that theory calls exposed are those that attacks tell apart, at every ε"
    elif max(values) <= _WEAK:
        meaning = "attacks tell hardly any of the rows apart that theory calls exposed"
    elif values[-1] - values[0] >= _WEAK:
        meaning = (
            "the more ε allows, the more the rows that theory calls exposed are those that attacks"
            " tell apart; below, noise hides from attacks what theory still sees"
        )
    else:
        meaning = "what theory calls exposed is in part what attacks tell apart"
    yield f"Theory and attacks, by ε: {meaning} (rank correlation {shown})."
