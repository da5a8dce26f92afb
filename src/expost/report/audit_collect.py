"""The summary of an audit, collected once."""

from collections.abc import Iterator

import numpy as np
from scipy.stats import rankdata

from expost._counts import Share
from expost.attacks.roc import Interval, Roc
from expost.audits.disparity import Disparity
from expost.audits.result import WARNING, Audit
from expost.report.audit_answer import audit_headline, audit_questions, is_spread
from expost.report.audit_part import (
    AttackLine,
    AuditPart,
    BoundLine,
    CorrelationLine,
    CurvePoint,
    DisagreeingRow,
    DisparityTable,
    GroupLine,
    ScatterPoint,
    ToldShare,
    VulnerableRow,
)
from expost.report.audit_words import words
from expost.report.parts import Context, known, one_line
from expost.report.wording import symbols
from expost.types import FloatArray, IntArray

__all__ = ["collect_audit"]

# Rows that are listed; the file of rows has all of them.
_TOP, _DISAGREEING = 20, 10
# Points of a curve, of the promise's and of the scatter; more are not seen.
_POINTS, _PROMISED, _SCATTERED = 160, 32, 1000
# How often of 100 pairs a row is told apart, from where it is counted.
_LEVELS = (0.6, 0.7, 0.8, 0.9, 0.99)


def collect_audit(audit: Audit, *, context: Context | None = None) -> AuditPart:
    """Gather the figures of an audit."""
    context = context or Context()
    inside = int(np.count_nonzero(audit.truth))
    average, unknown = _average(audit)
    scatter, placed = _scatter(audit)
    return AuditPart(
        model=one_line(audit.description),
        members=inside,
        others=len(audit) - inside,
        references=audit.models,
        confidence=audit.confidence,
        best=one_line(audit.best),
        headline=audit_headline(audit),
        warning=WARNING,
        attacks=tuple(_attacks(audit)),
        skipped=tuple((one_line(name), one_line(why)) for name, why in audit.skipped.items()),
        promise=None if audit.guarantee is None else symbols(one_line(audit.guarantee.describe())),
        promise_refuted=audit.promise_refuted,
        advantage_bound=audit.advantage_bound,
        promised=tuple(_promised(audit)),
        bounds=tuple(_bounds(audit)),
        vulnerable=tuple(_vulnerable(audit, average)),
        keyed=audit.ids is not None,
        average=average,
        unknown=unknown,
        levels=tuple(_levels(audit)),
        disparity=tuple(_disparity(table) for table in audit.disparity),
        measure=_measure(audit),
        exposed=audit.exposures is not None and not audit.exposures.is_noiseless,
        correlations=tuple(CorrelationLine(**one._asdict()) for one in audit.correlations),
        scatter=scatter,
        placed=placed,
        disagreements=tuple(_disagreements(audit)),
        questions=audit_questions(audit),
        **context.fields(audit.notices),
    )


# -- attacks ---------------------------------------------------------------------------------------


def _attacks(audit: Audit) -> Iterator[AttackLine]:
    """The best first."""
    for name in sorted(audit.figures, key=lambda one: -audit.figures[one].auc.value):
        found = audit.figures[name]
        yield AttackLine(
            name=one_line(name),
            words=words(name),
            auc=found.auc,
            accuracy=found.accuracy,
            advantage=found.advantage,
            tpr_at_1_percent=found.tpr_at_1_percent,
            tpr_at_01_percent=found.tpr_at_01_percent,
            curve=_curve(audit.roc(name), found.others),
        )


def _curve(curve: Roc, others: int) -> tuple[CurvePoint, ...]:
    """Points of the curve itself, so dense as a log axis from 1/others shows them.

    The last points up to an FPR of 0.1 % and of 1 % are among them: figures say how high they are.
    """
    wanted = [*np.geomspace(min(0.5, 1 / others), 1.0, _POINTS), 0.001, 0.01]
    places = np.unique(
        [0, *(np.searchsorted(curve.fpr, [0.0, *wanted], side="right") - 1), len(curve.fpr) - 1]
    )
    return tuple(
        CurvePoint(
            false_positive_rate=float(curve.fpr[place]), true_positive_rate=float(curve.tpr[place])
        )
        for place in places
    )


def _promised(audit: Audit) -> Iterator[CurvePoint]:
    if audit.guarantee is None:
        return
    others = int(np.count_nonzero(~audit.truth))
    for rate in np.geomspace(min(0.5, 1 / others) / 10, 1.0, _PROMISED):
        true = audit.guarantee.true_positive_rate(float(rate))
        yield CurvePoint(false_positive_rate=float(rate), true_positive_rate=float(true))


def _bounds(audit: Audit) -> Iterator[BoundLine]:
    for one in audit.bounds:
        promised = None if audit.guarantee is None else audit.guarantee.epsilon(one.delta)
        yield BoundLine(
            epsilon=float(one.epsilon),
            most=float(one.most),
            delta=float(one.delta),
            confidence=float(one.confidence),
            method=one_line(one.method),
            rests_on=one_line(
                f"{one.detail}; given {one.assumption}" if one.assumption else one.detail
            ),
            sentence=one_line(one.sentence),
            promised=promised,
            refutes=promised is not None and one.epsilon > promised,
        )


# -- rows ------------------------------------------------------------------------------------------


def _told_apart(audit: Audit) -> FloatArray:
    """(members,) NaN where unknown."""
    if audit.told_apart is None:
        return np.full(len(audit.members), np.nan)
    return audit.told_apart.value[audit.truth]


def _measure(audit: Audit) -> str | None:
    if audit.exposures is None:
        return None
    return audit.exposures.measure[0] + ("" if audit.exposures.is_noiseless else " (nats)")


def _average(audit: Audit) -> tuple[float | None, int]:
    """The mean over the members of whom it is known, and how many the others are."""
    told = _told_apart(audit)
    known = told[~np.isnan(told)]
    return (float(known.mean()) if len(known) else None), len(told) - len(known)


def _levels(audit: Audit) -> Iterator[ToldShare]:
    told = _told_apart(audit)
    if np.all(np.isnan(told)):
        return
    for level in _LEVELS:
        # A share of pairs is a whole number of them: no rounding of 1 − level may lose one.
        yield ToldShare(
            level=level,
            members=int(np.count_nonzero(told >= level - 1e-12)),
            mirrored=int(np.count_nonzero(told <= 1 - level + 1e-12)),
        )


def _vulnerable(audit: Audit, average: float | None) -> Iterator[VulnerableRow]:
    scores = audit.scores[audit.best]
    others = np.sort(scores[~audit.truth])
    place = {int(row): position for position, row in enumerate(audit.members)}
    for rank, row in enumerate(audit.vulnerable(_TOP).tolist(), start=1):
        told = None if audit.told_apart is None else known(audit.told_apart.value[row])
        lower = int(np.searchsorted(others, scores[row], side="left"))
        theory = audit.exposures
        exposed = theory is not None and not theory.is_noiseless
        yield VulnerableRow(
            rank=rank,
            key=one_line(audit.key(row)),
            told_apart=told,
            error=None if audit.told_apart is None else known(audit.told_apart.error[row]),
            beyond_average=_beyond(told, average),
            as_high=(len(others) - lower) / len(others),
            exposure=known(theory.exposure[place[row]]) if theory and exposed else None,
            measured=known(theory.measure[1][place[row]]) if theory else None,
        )


def _beyond(told: float | None, average: float | None) -> float | None:
    """How many times as far from a coin as the average; None where that is not above a coin."""
    if told is None or average is None or not average > 0.5:
        return None
    return (2 * told - 1) / (2 * average - 1)


def _scatter(audit: Audit) -> tuple[tuple[ScatterPoint, ...], int]:
    """Members in the order of theory, every k-th of them where there are many."""
    if audit.exposures is None:
        return (), 0
    measured, told = audit.exposures.measure[1], _told_apart(audit)
    # A log axis has no place for 0.
    known = np.flatnonzero(np.isfinite(measured) & (measured > 0) & ~np.isnan(told))
    order = known[np.argsort(measured[known], kind="stable")]
    if len(order) > _SCATTERED:
        order = order[np.linspace(0, len(order) - 1, _SCATTERED).round().astype(np.int64)]
    points = (ScatterPoint(measured=float(measured[k]), told_apart=float(told[k])) for k in order)
    return tuple(points), len(known)


def _disagreements(audit: Audit) -> Iterator[DisagreeingRow]:
    if audit.exposures is None:
        return
    measured, told = audit.exposures.measure[1], _told_apart(audit)
    by_theory = _ranks(measured)
    by_attack = np.empty(len(measured), dtype=np.int64)
    place = {int(row): position for position, row in enumerate(audit.members)}
    by_attack[[place[int(row)] for row in audit.ranking]] = np.arange(1, len(measured) + 1)
    for row in audit.disagreements(_DISAGREEING).tolist():
        position = place[row]
        yield DisagreeingRow(
            key=one_line(audit.key(row)),
            measured=known(measured[position]),
            measured_rank=int(by_theory[position]),
            told_apart=known(told[position]),
            attack_rank=int(by_attack[position]),
        )


def _ranks(values: FloatArray) -> IntArray:
    """1 for the largest; NaN counts as larger than all, for the unknown is not private."""
    filled = np.where(np.isnan(values), np.inf, values)
    return np.asarray(rankdata(-filled, method="ordinal"), dtype=np.int64)


# -- groups ----------------------------------------------------------------------------------------


def _disparity(found: Disparity) -> DisparityTable:
    groups = tuple(
        GroupLine(
            label=one_line(one.label),
            members=one.members,
            others=one.others,
            auc=one.auc,
            found=_interval(one.true_positive_rate),
            accused=_interval(one.false_positive_rate),
        )
        for one in found.groups
    )
    return DisparityTable(
        column=one_line(found.column),
        attack=one_line(found.attack),
        false_positive_rate=found.false_positive_rate,
        groups=groups,
        spread=is_spread(one.auc for one in groups),
        notices=tuple(one_line(notice) for notice in found.notices),
    )


def _interval(share: Share | None) -> Interval | None:
    if share is None:
        return None
    return Interval(value=share.value, low=share.low, high=share.high, confidence=share.confidence)
