"""The document of audits over ε: what attacks reach at each, and what the guarantee allows.

It holds figures of attacks and nothing of a row.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from expost.auditing.result import WARNING, Audit, Correlation
from expost.auditing.roc import Interval, auc
from expost.auditing.sweep import AuditSweep
from expost.numbers import count, figure, number, share, symbols
from expost.report.document import (
    Alert,
    Document,
    Section,
    Text,
    Tile,
    Verdict,
    one_line,
    table,
)
from expost.report.figure import Axis, Figure, Line, Panel, Rule
from expost.report.sections.attacks import estimate_text, rate_text, with_values
from expost.report.sections.audit_overview import terms

__all__ = ["audits_document", "audits_figure"]

# Space at both ends of the ε axis.
_MARGIN = 1.3
_EPSILON = re.compile(r",? epsilon=[^,]*")


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """One ε with its audit.

    Parameters
    ----------
    is_better : bool
        Whether any attack is better than random guessing, all ε and attacks considered.
    is_refuted : bool
        Whether a proved bound or an advantage is certain to exceed the guarantee.
    """

    epsilon: float
    audit: Audit
    correlation: Correlation | None
    is_better: bool
    is_refuted: bool

    @property
    def auc(self) -> Interval:
        """The AUC of the best attack."""
        return self.audit.figures[self.audit.best].auc

    @property
    def advantage(self) -> Interval:
        """The advantage of the best attack."""
        return self.audit.figures[self.audit.best].advantage

    @property
    def proved(self) -> float | None:
        """The largest ε that the attacks prove; None without a bound."""
        return max((float(bound.epsilon) for bound in self.audit.bounds), default=None)


def audits_document(sweep: AuditSweep) -> Document:
    """Describe audits of the same rows over ε.

    Parameters
    ----------
    sweep : AuditSweep
        One audit for each ε.
    """
    settings = tuple(_settings(sweep))
    first = sweep.audits[0]
    members = len(first.members)
    return Document(
        kind="audits",
        title=f"Audits of {count(members)} members and {count(len(first) - members)} non-members,"
        " by ε",
        audience=sweep.audience,
        subtitle=(
            symbols(one_line(_EPSILON.sub("", first.description))),
            f"{count(first.models)} reference models",
        ),
        verdict=_verdict(settings),
        tiles=tuple(_tiles(settings)),
        alerts=(
            *(Alert(severity="problem", title=_refuted(settings)) for _ in _refuting(settings)[:1]),
            *(
                Alert.of("review", notice)
                for notice in dict.fromkeys(n for each in sweep.audits for n in each.notices)
            ),
            Alert(severity="note", title=WARNING),
        ),
        sections=(_section(sweep, settings),),
        glossary=terms(rows=False),
        facts={
            "members": members,
            "non_members": len(first) - members,
            "references": first.models,
            "guarantee_refuted": bool(_refuting(settings)),
        },
    )


def _settings(sweep: AuditSweep) -> Iterator[_Setting]:
    tried = sum(len(each.figures) for each in sweep.audits)
    beaten = {epsilon for epsilon, _ in sweep.beaten}
    for (epsilon, each), correlation in zip(sweep, sweep.correlations, strict=True):
        yield _Setting(
            epsilon=epsilon,
            audit=each,
            correlation=correlation,
            is_better=_is_better(each, tried),
            is_refuted=each.guarantee_refuted or epsilon in beaten,
        )


def _is_better(audit: Audit, tried: int) -> bool:
    """Return whether an AUC exceeds ½ by its interval, widened for all of them (Bonferroni)."""
    confidence = 1 - (1 - audit.confidence) / tried
    return any(
        auc(scores, audit.truth, confidence=confidence).low > 0.5
        for scores in audit.scores.values()
    )


# -- the overview ----------------------------------------------------------------------------------


def _refuting(settings: Sequence[_Setting]) -> list[_Setting]:
    return [each for each in settings if each.is_refuted]


def _refuted(settings: Sequence[_Setting]) -> str:
    at = ", ".join(number(each.epsilon) for each in _refuting(settings))
    return f"The guarantee is refuted at ε = {at}."


def _verdict(settings: Sequence[_Setting]) -> Verdict:
    if _refuting(settings):
        return Verdict(
            text=_refuted(settings),
            more="Do not release this model at that ε or any other of the same mechanism until the"
            " cause is known.",
            tone="bad",
            priority=100,
        )
    better = [each.epsilon for each in settings if each.is_better]
    known = [each.epsilon for each in settings if each.audit.guarantee is not None]
    guarantee = "No guarantee is known."
    if known:
        where = "" if len(known) == len(settings) else f" at ε = {', '.join(map(number, known))}"
        guarantee = f"No attack exceeds what the guarantee allows{where}. This does not prove it."
    if not better:
        return Verdict(
            text="The attacks found no leakage at any ε. This is not a guarantee.",
            more=guarantee,
            priority=38,
        )
    from_least = all(each.is_better for each in settings if each.epsilon >= min(better))
    at = (
        f"From ε = {number(min(better))} on"
        if from_least and len(settings) > 1
        else f"At ε = {', '.join(map(number, better))}"
    )
    return Verdict(
        text=f"{at} attacks identify members better than random guessing.",
        more=f"{guarantee} Choose ε by the exposures of the rows (`expost epsilon`), which are"
        " larger than what attacks find.",
        tone="caution",
        priority=38,
    )


def _tiles(settings: Sequence[_Setting]) -> Iterator[Tile]:
    best = max(settings, key=lambda each: each.auc.value)
    yield Tile(
        label="Best attack at any ε",
        value=f"AUC {best.auc.value:.3f}",
        lines=(
            f"{one_line(best.audit.best)} at ε = {number(best.epsilon)}",
            "random guessing: 0.5",
        ),
        tone="caution" if best.is_better else "plain",
    )
    better = [each.epsilon for each in settings if each.is_better]
    yield Tile(
        label="Attacks better than guessing",
        value=f"at ε = {number(min(better))}" if better else "at no ε",
        lines=(f"at {count(len(better))} of {count(len(settings))} ε",),
        tone="caution" if better else "plain",
    )
    largest = max(settings, key=lambda each: each.proved or 0.0)
    if largest.proved:
        yield Tile(
            label="Largest lower bound on ε",
            value=f"ε ≥ {number(largest.proved, 'down')}",
            lines=(f"of the model at ε = {number(largest.epsilon)}",),
            tone="bad" if largest.is_refuted else "plain",
        )


# -- the section -----------------------------------------------------------------------------------


def _section(sweep: AuditSweep, settings: Sequence[_Setting]) -> Section:
    reached = table(
        settings,
        ("ε", lambda each: each.epsilon, number),
        ("best attack", lambda each: one_line(each.audit.best), str),
        ("AUC", lambda each: each.auc, estimate_text),
        (
            "TPR at 1 % FPR",
            lambda each: each.audit.figures[each.audit.best].tpr_at_1_percent,
            rate_text,
        ),
        ("advantage", lambda each: each.advantage, estimate_text),
    )
    guaranteed = table(
        settings,
        ("ε", lambda each: each.epsilon, number),
        ("guarantee", _state, str),
        (
            "advantage it allows",
            lambda each: each.audit.advantage_bound,
            lambda value: figure(value, "up"),
        ),
        ("ε is at least", lambda each: each.proved, lambda value: figure(value, "down")),
        ("rank correlation", lambda each: each.correlation, lambda each: estimate_text(each, 2)),
    )
    confidence = share(settings[0].audit.confidence)
    return Section(
        id="audits",
        title="Attacks by ε",
        nav="Attacks",
        brief=True,
        blocks=(
            audits_figure(sweep),
            with_values(reached),
            with_values(guaranteed),
            Text(
                text=f"With {confidence} confidence intervals over the rows of one model at each ε."
                " Rank correlation: of the members' exposures and the attacks' scores.",
                small=True,
            ),
        ),
    )


def _state(setting: _Setting) -> str:
    if setting.is_refuted:
        return "refuted"
    return "none known" if setting.audit.guarantee is None else "not refuted"


def audits_figure(sweep: AuditSweep) -> Figure:
    """Return AUC, advantage and rank correlation by ε, each with its interval."""
    axis = Axis(
        label="ε",
        low=sweep.epsilons[0] / _MARGIN,
        high=sweep.epsilons[-1] * _MARGIN,
        log=True,
        quantity="epsilon",
    )
    best = [each.figures[each.best] for each in sweep.audits]
    bounds = [
        (epsilon, each.advantage_bound)
        for epsilon, each in sweep
        if each.advantage_bound is not None
    ]
    allowed = Line(
        name="allowed by the guarantee",
        x=tuple(epsilon for epsilon, _ in bounds),
        y=tuple(bound for _, bound in bounds),
        role="second",
        dots=len(bounds) == 1,
    )
    panels = [
        _panel(axis, "AUC", sweep.epsilons, [each.auc for each in best], 0.5, "random guessing"),
        _panel(
            axis,
            "advantage",
            sweep.epsilons,
            [each.advantage for each in best],
            0.0,
            "random guessing",
            *((allowed,) if bounds else ()),
        ),
    ]
    related = [
        (epsilon, each)
        for epsilon, each in zip(sweep.epsilons, sweep.correlations, strict=True)
        if each is not None
    ]
    if related:
        epsilons, values = zip(*related, strict=True)
        panels.append(_panel(axis, "rank correlation", epsilons, values, 0.0, "no correlation"))
    reached = "; ".join(
        f"{each.auc.value:.2f} at ε = {number(epsilon)}"
        for epsilon, each in zip(sweep.epsilons, best, strict=True)
    )
    return Figure(
        key="audits", description=f"AUC of the best attack: {reached}.", panels=tuple(panels)
    )


def _panel(
    axis: Axis,
    name: str,
    epsilons: Sequence[float],
    estimates: Sequence[Interval] | Sequence[Correlation],
    level: float,
    meaning: str,
    *more: Line,
) -> Panel:
    """Return an estimate with its interval by ε, and the level that means nothing."""
    low = tuple(each.low for each in estimates)
    line = Line(
        name="best attack" if not name.startswith("rank") else "exposures and attacks",
        x=tuple(epsilons),
        y=tuple(each.value for each in estimates),
        low=low,
        high=tuple(each.high for each in estimates),
        dots=len(estimates) == 1,
    )
    return Panel(
        title=f"{name[0].upper()}{name[1:]} by ε",
        x=axis,
        y=Axis(label=name, low=float(np.floor(10 * min(*low, level) - 1e-9)) / 10, high=1.0),
        lines=(line, *more),
        rules=(Rule(name=meaning, at=level),),
    )
