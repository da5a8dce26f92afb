"""The overview of an audit: verdict, tiles, alerts and terms.

Leakage is determined from intervals that hold for all attacks together. The best of many attacks is
biased upwards, so each interval is taken at 1 − (1 − confidence)/(2·attacks): two figures of each
attack are considered.

NONE  no AUC is certain to exceed ½, no TPR at 1 % FPR to exceed 1 %, and no ε > 0 is proved.
MUCH  an AUC is certain to exceed ¾, or a TPR at 1 % FPR to exceed 10 %.
SOME  in between.

Where members and non-members differ without the model, separation is no evidence: the leakage is
UNKNOWN, unless a lower bound on ε is proved.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

from expost.auditing.lower_bounds import LowerBound
from expost.auditing.result import WARNING, Audit
from expost.auditing.roc import Interval, auc, tpr_at
from expost.auditing.shift import Shift
from expost.numbers import count, fixed, number, percent, share, symbols
from expost.report.document import Alert, Tile, Verdict, one_line
from expost.report.sections.audit_shift import confounded_verdict, shift_alerts
from expost.types import FloatArray

__all__ = ["RISK_LEVEL", "Attacked", "Leakage", "fit_text", "terms"]

# A member counts as a row at risk from this per-row AUC on.
RISK_LEVEL = 0.8
_MUCH_AUC, _MUCH_RATE = 0.75, 0.1
# An AUC is a share of pairs: rounding of a level may not lose one of them.
_ROUNDING = 1e-12
_MISREAD = (
    "It predicts the rows it was trained on no better than a constant does, or worse than other"
    " rows. Check --classes and the order of columns, and that DATA holds the training rows. If"
    " they are right, the model learned nothing from these rows."
)


class Leakage(Enum):
    """The amount of leakage, as defined by the module."""

    NONE = "none"
    SOME = "some"
    MUCH = "much"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """An audit with the figures that its sentences and tables show."""

    audit: Audit

    @property
    def members(self) -> int:
        """The number of members."""
        return len(self.audit.members)

    @property
    def non_members(self) -> int:
        """The number of non-members."""
        return len(self.audit) - self.members

    @cached_property
    def order(self) -> list[str]:
        """The attacks, by falling AUC."""
        return sorted(self.audit.figures, key=lambda name: -self.audit.figures[name].auc.value)

    @cached_property
    def sharpest(self) -> str:
        """The attack with the largest TPR at 1 % FPR; the best one where it is among them."""
        figures = self.audit.figures
        most = max(each.tpr_at_1_percent.value for each in figures.values())
        if figures[self.audit.best].tpr_at_1_percent.value == most:
            return self.audit.best
        return next(name for name in figures if figures[name].tpr_at_1_percent.value == most)

    @cached_property
    def certain(self) -> tuple[float, float]:
        """The AUC and the TPR at 1 % FPR that some attack certainly reaches."""
        audit = self.audit
        confidence = 1 - (1 - audit.confidence) / (2 * len(audit.figures))
        area = auc(audit.scores[audit.best], audit.truth, confidence=confidence)
        rate = tpr_at(audit.scores[self.sharpest], audit.truth, 0.01, confidence=confidence)
        return area.low, rate.low

    @cached_property
    def separation(self) -> Leakage:
        """How far the attacks' scores separate members from non-members beyond chance."""
        area, rate = self.certain
        if area > _MUCH_AUC or rate > _MUCH_RATE:
            return Leakage.MUCH
        return Leakage.SOME if area > 0.5 or rate > 0.01 else Leakage.NONE

    @property
    def leakage(self) -> Leakage:
        """The leakage by separation, and by proved bounds on ε."""
        proved = any(bound.epsilon > 0 for bound in self.audit.bounds)
        if self.audit.is_confounded:
            return Leakage.SOME if proved else Leakage.UNKNOWN
        if self.separation is Leakage.NONE and proved:
            return Leakage.SOME
        return self.separation

    # -- bounds on ε ---------------------------------------------------------------------------

    def guaranteed(self, bound: LowerBound) -> float | None:
        """Return the ε of the guarantee at the δ of a bound; None without a guarantee."""
        guarantee = self.audit.guarantee
        return None if guarantee is None else guarantee.epsilon(bound.delta)

    def refutes(self, bound: LowerBound) -> bool:
        """Return whether a bound exceeds the guarantee."""
        allowed = self.guaranteed(bound)
        return allowed is not None and bound.epsilon > allowed

    @cached_property
    def bound(self) -> LowerBound | None:
        """The largest bound; the largest of those that refute the guarantee, if there are any."""
        bounds = [bound for bound in self.audit.bounds if self.refutes(bound)] or self.audit.bounds
        return max(bounds, key=lambda bound: bound.epsilon, default=None)

    # -- rows ----------------------------------------------------------------------------------

    @cached_property
    def row_auc(self) -> FloatArray:
        """(members,) per-row AUC; NaN where it is not known."""
        if self.audit.row_auc is None:
            return np.full(self.members, np.nan)
        return self.audit.row_auc.value[self.audit.truth]

    @cached_property
    def mean_row_auc(self) -> float | None:
        """The mean of the known per-row AUCs; None without any."""
        known = self.row_auc[~np.isnan(self.row_auc)]
        return float(known.mean()) if len(known) else None

    @property
    def unknown(self) -> int:
        """The number of members without a per-row AUC."""
        return int(np.count_nonzero(np.isnan(self.row_auc)))

    def reaching(self, level: float) -> int:
        """Return the number of members with at least this per-row AUC."""
        return int(np.count_nonzero(self.row_auc >= level - _ROUNDING))

    def mirrored(self, level: float) -> int:
        """Return the number of members with at most 1 − ``level``.

        A row about which the models reveal nothing is as likely to fall there by chance as to
        reach ``level``.
        """
        return int(np.count_nonzero(self.row_auc <= 1 - level + _ROUNDING))

    # -- the overview --------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        """Return the result and the decision."""
        audit, bound = self.audit, self.bound
        if audit.guarantee_refuted:
            assert bound is not None
            allowed = self.guaranteed(bound)
            assert allowed is not None
            return Verdict(
                text=f"The guarantee is refuted: {_at_least(bound)}, where the guarantee allows"
                f" {number(allowed, 'up')}.",
                more="Do not release this model or any other of the same mechanism until the cause"
                " is known: the noise, the bounds that scale it, or data used twice.",
                tone="bad",
                priority=100,
            )
        if audit.is_confounded:
            return confounded_verdict(audit, self._held_nevertheless())
        if self.leakage is Leakage.NONE and audit.is_misread:
            return Verdict(
                text="No conclusion: the attacks found no leakage, but the model may have been read"
                f" wrongly ({fit_text(audit)}).",
                more=_MISREAD,
                tone="caution",
                priority=40,
            )
        if self.leakage is Leakage.NONE:
            return Verdict(
                text="The attacks found no leakage. This is not a guarantee.",
                more="If you need a guarantee, release the model with noise: `expost epsilon`"
                " recommends an ε."
                if audit.guarantee is None
                else f"The guarantee is {self.guarantee_text()}.",
                priority=40,
            )
        if self.separation is Leakage.NONE:
            assert bound is not None
            return Verdict(
                text=f"The attacks prove leakage: {_at_least(bound)}.",
                more="Check the most exposed rows and groups before you share the model.",
                tone="caution",
                priority=40,
            )
        much = self.leakage is Leakage.MUCH
        attack, area = one_line(audit.best), f"AUC {audit.figures[audit.best].auc.value:.3f}"
        text = f"Attack {attack} separates members from non-members: {area}."
        if self.certain[1] > 0.01:
            some = "" if much else "some "
            text = f"Attack {attack} identifies {some}members: {area}, {self._rate()}."
        return Verdict(
            text=text,
            more="Share the model only with people who may see its training rows, or train it with"
            " noise (`expost epsilon` recommends an ε) and audit it again."
            if much
            else "Check the most exposed rows and groups before you share the model.",
            tone="bad" if much else "caution",
            priority=40,
        )

    def _held_nevertheless(self) -> str:
        """Return what is shown although members and non-members differ; empty if nothing is."""
        shown = []
        if self.bound is not None and self.bound.epsilon > 0:
            shown.append(_at_least(self.bound))
        exceeding, by_chance = self.reaching(RISK_LEVEL), self.mirrored(RISK_LEVEL)
        if exceeding > by_chance:
            shown.append(
                f"{count(exceeding)} members have a per-row AUC of {RISK_LEVEL} or more, about"
                f" {count(by_chance)} by chance"
            )
        return "; ".join(shown)

    def guarantee_text(self) -> str:
        """Return the guarantee in words; it must be known."""
        assert self.audit.guarantee is not None
        return symbols(one_line(self.audit.guarantee.describe()))

    def _rate(self) -> str:
        rate = percent(self.audit.figures[self.sharpest].tpr_at_1_percent.value)
        by = "" if self.sharpest == self.audit.best else f" by {one_line(self.sharpest)}"
        return f"TPR {rate} at 1 % FPR{by}"

    def tiles(self) -> Iterator[Tile]:
        """Yield the tiles."""
        figures = self.audit.figures
        tone: Any = {Leakage.NONE: "plain", Leakage.MUCH: "bad"}.get(self.leakage, "caution")
        best, rate = figures[self.audit.best].auc, figures[self.sharpest].tpr_at_1_percent
        yield Tile(
            label="Best attack",
            value=f"AUC {best.value:.3f}",
            lines=(
                f"{one_line(self.audit.best)}, best of {count(len(figures))}",
                _ends(best),
                "random guessing: 0.5",
            ),
            tone=tone,
        )
        yield Tile(
            label="TPR at 1 % FPR",
            value=percent(rate.value),
            lines=(
                one_line(self.sharpest),
                _ends(rate, percent=True),
                "random guessing: 1 %",
            ),
            tone=tone,
        )
        # Four tiles are shown.
        last = [self._bound_tile(), self._risk_tile()]
        if self.audit.shift is not None and self.audit.is_confounded:
            yield self._blind_tile(self.audit.shift)
            last = last if self.bound is not None and self.bound.epsilon > 0 else last[::-1]
        yield from last

    def _blind_tile(self, shift: Shift) -> Tile:
        return Tile(
            label="Without the model",
            value=f"AUC {shift.auc.value:.3f}",
            lines=(
                "a classifier of the rows alone",
                "members and non-members differ",
            ),
            tone="bad",
        )

    def _bound_tile(self) -> Tile:
        label, bound = "Proved lower bound on ε", self.bound
        if bound is None:
            return Tile(label=label, value="none", lines=("the evidence proves no bound",))
        lines = [f"at δ = {number(bound.delta)}, {share(bound.confidence)} confidence"]
        allowed = self.guaranteed(bound)
        if allowed is not None:
            lines.append(f"the guarantee allows ε = {number(allowed, 'up')}")
        return Tile(
            label=label,
            value=f"ε ≥ {number(bound.epsilon, 'down')}" if bound.epsilon > 0 else "none",
            lines=tuple(lines),
            tone="bad" if self.refutes(bound) else "plain",
        )

    def _risk_tile(self) -> Tile:
        label = "Rows at risk"
        if self.mean_row_auc is None:
            return Tile(label=label, value="unknown", lines=("per-row AUCs need reference models",))
        exceeding, by_chance = self.reaching(RISK_LEVEL), self.mirrored(RISK_LEVEL)
        lines = [
            f"of {count(self.members)} members have a per-row AUC of {RISK_LEVEL} or more",
            f"about {count(by_chance)} by chance",
        ]
        if self.unknown:
            lines.append(f"{count(self.unknown)} unknown ones included")
        return Tile(
            label=label,
            value=count(exceeding + self.unknown),
            lines=tuple(lines),
            tone="caution" if exceeding + self.unknown > by_chance else "plain",
        )

    def alerts(self) -> Iterator[Alert]:
        """Yield the alerts."""
        if self.audit.guarantee_refuted:
            yield Alert(severity="problem", title="The guarantee is refuted.")
        else:
            yield from self._beyond_guarantee()
        yield from shift_alerts(self.audit)
        if self.audit.is_misread:
            yield Alert(
                severity="problem",
                title=f"The model may have been read wrongly: {fit_text(self.audit)}.",
                text=_MISREAD,
            )
        for notice in self.audit.notices:
            yield Alert.of("review", notice)
        yield Alert(severity="note", title=WARNING)

    def _beyond_guarantee(self) -> Iterator[Alert]:
        """Yield an alert where an advantage in this model exceeds what the guarantee allows."""
        allowed = self.audit.advantage_bound
        if allowed is None:
            return
        advantages = {name: each.advantage for name, each in self.audit.figures.items()}
        beyond = [name for name, advantage in advantages.items() if advantage.low > allowed]
        if beyond:
            worst = max(beyond, key=lambda name: advantages[name].value)
            yield Alert(
                severity="review",
                title=f"Attack {one_line(worst)} has an advantage of"
                f" {number(advantages[worst].value)} in this model; the guarantee allows"
                f" {number(allowed, 'up')} on average over models.",
                text="Check whether members and non-members differ in more than membership.",
            )

    def facts(self) -> dict[str, Any]:
        """Return the facts by which documents of a page are compared."""
        audit, bound = self.audit, self.bound
        return {
            "members": self.members,
            "non_members": self.non_members,
            "references": audit.models,
            "best": one_line(audit.best),
            "auc": audit.figures[audit.best].auc.value,
            "leakage": self.leakage.value,
            "proved": None if bound is None else float(bound.epsilon),
            "delta": None if bound is None else float(bound.delta),
            "guarantee_refuted": audit.guarantee_refuted,
            "confounded": audit.is_confounded,
        }


def fit_text(audit: Audit) -> str:
    """Return how well the model predicts its rows; it must be known."""
    fit = audit.fit
    assert fit is not None
    shown = number if fit.is_regression else percent
    constant = "a constant" if fit.is_regression else "the most frequent label"
    return (
        f"{fit.measure} {shown(fit.members)} on members and {shown(fit.non_members)} on"
        f" non-members; {constant} reaches {shown(fit.baseline)} on members"
    )


def _ends(estimate: Interval, *, percent: bool = False) -> str:
    """Return the interval of an estimate, rounded outwards."""
    places = 1 if percent else 3
    low = fixed(estimate.low, places, "down", percent=percent)
    high = fixed(estimate.high, places, "up", percent=percent)
    return f"{share(estimate.confidence)} confidence: {low} to {high}{' %' if percent else ''}"


def _at_least(bound: LowerBound) -> str:
    return (
        f"ε is at least {number(bound.epsilon, 'down')} at δ = {number(bound.delta)} with"
        f" {share(bound.confidence)} confidence"
    )


def terms(*, rows: bool) -> tuple[tuple[str, str], ...]:
    """Return the terms of audits; ``rows``: with those of single rows."""
    of_rows = (
        "per-row AUC",
        "Of a reference model trained with the row and one trained without it, how often the first"
        " is more confident about the row. 0.5 is random guessing.",
    )
    blind = (
        "blind attack, AUC without the model",
        "How well a classifier that sees the rows and labels, but not the model, separates members"
        " from non-members. Above 0.5, the two differ in more than membership.",
    )
    return (
        (
            "members, non-members",
            "Rows that the model was trained on, and rows that it was not trained on. An attack"
            " tries to distinguish them.",
        ),
        (
            "AUC",
            "How often an attack gives a member a larger score than a non-member. 0.5 is random"
            " guessing.",
        ),
        (
            "TPR at 1 % FPR",
            "The share of the members that an attack identifies while it takes 1 % of the"
            " non-members for members. 1 % is random guessing.",
        ),
        (
            "membership advantage",
            "TPR − FPR at a threshold that was chosen on other rows. 0 is random guessing.",
        ),
        *((of_rows,) if rows else ()),
        *((blind,) if rows else ()),
        (
            "lower bound on ε",
            "No mechanism with a smaller ε allows attacks this successful, except with the"
            " probability that the confidence leaves.",
        ),
    )
