"""What attacks got out of a model, row by row and as figures, beside what theory says."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm, rankdata

from expost import _checks
from expost.attacks.evidence import Flags
from expost.attacks.lower_bounds import LowerBound
from expost.attacks.roc import AttackFigures, Roc, roc
from expost.attacks.told_apart import ToldApart
from expost.audits.disparity import Disparity
from expost.files.sealed import plain
from expost.groups.columns import printable
from expost.results import RowTable
from expost.risk import Guarantee
from expost.rounding import interval_text, upper_text
from expost.types import Audience, FloatArray, IntArray

__all__ = ["WARNING", "Audit", "Correlation", "Exposures"]

WARNING = "This is an attack, not a guarantee: what these attacks miss, another may find."


@dataclass(frozen=True, kw_only=True, eq=False)
class Exposures:
    """What theory says of the k members, in their order.

    ``loss``, ``typical``  (k,) in this model, and on average over all that it might be; infinite
                           where the model carries no noise.
    ``distance``           (k,) how far the row moves the parameters.
    """

    loss: FloatArray
    typical: FloatArray
    distance: FloatArray

    @property
    def exposure(self) -> FloatArray:
        """(k,) ∣loss∣."""
        return np.abs(self.loss)

    @property
    def is_noiseless(self) -> bool:
        """Whether only distances tell rows apart."""
        return not bool(np.all(np.isfinite(self.typical)))

    @property
    def measure(self) -> tuple[str, FloatArray]:
        """What rows are ordered by, and its name."""
        if self.is_noiseless:
            return "distance", self.distance
        return "typical exposure", self.typical


class Correlation(NamedTuple):
    """Spearman's rank correlation of ``rows`` rows with its interval."""

    what: str
    value: float
    low: float
    high: float
    rows: int

    def __str__(self) -> str:
        return f"{self.what} {interval_text(self.value, self.low, self.high, 2)}"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Audit(RowTable):
    """What attacks get out of one model. For the curator only.

    ``description``  the model in one line.
    ``truth``        (n,) whether the model was trained with the row: members and others.
    ``scores``       (n,) of each attack by its name; the larger, the more likely a member.
    ``figures``      how well each attack did on these rows, by its name.
    ``told_apart``   (n,) each row's own figure over the references; None without references.
    ``bounds``       what the attacks prove about ε, each with its confidence.
    ``guarantee``    what the model promises; None where its noise law is not known.
    ``exposures``    what theory says of the members; None where nothing is known.
    ``disparity``    the best attack by class and by group.
    ``models``       how many references were trained.
    ``skipped``      attacks that could not be made, and why.
    """

    description: str
    truth: Flags
    scores: Mapping[str, FloatArray]
    figures: Mapping[str, AttackFigures]
    told_apart: ToldApart | None
    bounds: tuple[LowerBound, ...]
    guarantee: Guarantee | None
    exposures: Exposures | None
    disparity: tuple[Disparity, ...]
    models: int
    confidence: float
    skipped: Mapping[str, str]
    ids: tuple[Any, ...] | None = None
    notices: tuple[str, ...] = ()

    audience = Audience.FAIL

    def __len__(self) -> int:
        return len(self.truth)

    @cached_property
    def best(self) -> str:
        """The attack with the largest AUC on these rows (and so a little flattered)."""
        return max(self.figures, key=lambda name: self.figures[name].auc.value)

    def roc(self, attack: str | None = None) -> Roc:
        """The ROC curve of an attack, the best one if None."""
        name = self.best if attack is None else attack
        _checks.one_of("attack", name, tuple(self.scores))
        return roc(self.scores[name], self.truth)

    @property
    def members(self) -> IntArray:
        """The rows that the model was trained with."""
        return np.flatnonzero(self.truth)

    # -- beside what is known ------------------------------------------------------------------

    @cached_property
    def advantage_bound(self) -> float | None:
        """No attack's expected advantage is larger, by the model's promise; None without one."""
        return None if self.guarantee is None else self.guarantee.advantage

    @property
    def promise_refuted(self) -> bool:
        """Whether a proved lower bound passes the ε that was promised at its δ."""
        if self.guarantee is None:
            return False
        return any(one.epsilon > self.guarantee.epsilon(one.delta) for one in self.bounds)

    @cached_property
    def correlations(self) -> tuple[Correlation, ...]:
        """How far attacks order the members as their exposures do; none without exposures."""
        if self.exposures is None:
            return ()
        name, measure = self.exposures.measure
        best = self.scores[self.best][self.truth]
        pairs = [(f"{name} and {self.best}", measure, best)]
        if not self.exposures.is_noiseless:
            pairs.insert(0, (f"loss in this model and {self.best}", self.exposures.loss, best))
        if self.told_apart is not None:
            pairs.append((f"{name} and told apart", measure, self.told_apart.value[self.truth]))
        found = [_correlation(what, one, two, self.confidence) for what, one, two in pairs]
        return tuple(one for one in found if one is not None)

    def disagreements(self, count: int = 10) -> IntArray:
        """Members whose rank by exposure and by the attacks differs most.

        By ``told_apart`` where it is known, which like a typical exposure is no figure of the one
        model; else by the best attack's score.
        """
        if self.exposures is None:
            return np.empty(0, dtype=np.int64)
        measure = self.exposures.measure[1]
        gap = np.abs(rankdata(measure) - rankdata(self._vulnerability[self.truth]))
        return self.members[np.argsort(-gap, kind="stable")[:count]]

    @property
    def _vulnerability(self) -> FloatArray:
        """(n,) what rows are ranked by: unknown ones first, for the unknown is not private."""
        if self.told_apart is None:
            return self.scores[self.best]
        return np.where(np.isnan(self.told_apart.value), np.inf, self.told_apart.value)

    @cached_property
    def ranking(self) -> IntArray:
        """The members, most vulnerable first."""
        return self.members[np.argsort(-self._vulnerability[self.truth], kind="stable")]

    def vulnerable(self, count: int = 10) -> IntArray:
        """The ``count`` most vulnerable members."""
        return self.ranking[: _checks.whole("count", count, least=1)]

    # -- in words ------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Audit({len(self)} rows, {len(self.scores)} attacks, {self.description})"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """A readable page; ranks of rows and no values: curator only."""
        inside = int(np.count_nonzero(self.truth))
        return [
            f"Audit of {inside:,} members and {len(self) - inside:,} others,"
            f" {self.models} reference models",
            f"model        {self.description}",
            *self.table_lines(),
            *(f"skipped      {name}: {why}" for name, why in self.skipped.items()),
            *self.promise_lines(),
            *(f"proved       {one.sentence}" for one in self.bounds),
            *(f"correlation  {one}" for one in self.correlations),
            "most at risk "
            + ", ".join(printable(self.key(int(row))) for row in self.vulnerable(5)),
            *(f"notice       {notice}" for notice in self.notices),
            f"remember     {WARNING}",
            f"mark         {self.audience.value}: {self.audience.meaning}",
        ]

    def table_lines(self) -> list[str]:
        """One line an attack, the best first."""
        order = sorted(self.figures, key=lambda name: -self.figures[name].auc.value)
        width = max(len(name) for name in order)
        head = f"{'attack':<{width}}  {'AUC':>20}  accuracy  advantage  TPR at 1 %  at 0.1 % FPR"
        return [head] + [_line(name, self.figures[name], width) for name in order]

    def promise_lines(self) -> list[str]:
        """What the promise allows beside what was reached."""
        if self.guarantee is None or self.advantage_bound is None:
            return ["promise      none is known: only attacks speak here"]
        reached = self.figures[self.best].advantage
        verdict = "REFUTED by a proved bound" if self.promise_refuted else "not refuted"
        return [
            f"promise      {self.guarantee.describe()}: advantage at most"
            f" {upper_text(self.advantage_bound, 3)}, the best attack reached {reached.value:.3g};"
            f" {verdict}"
        ]

    def key(self, row: int) -> Any:
        """The id of a row, or its place: members first where both kinds were given."""
        return row if self.ids is None else self.ids[row]

    # -- as data -------------------------------------------------------------------------------

    def columns(self) -> dict[str, Any]:
        """Every per-row figure, by name; NaN where nothing is known of a row."""
        columns: dict[str, Any] = {"row": np.arange(len(self))}
        if self.ids is not None:
            columns["id"] = list(self.ids)
        columns["member"] = self.truth
        if self.exposures is not None:
            for name in ("loss", "exposure", "typical", "distance"):
                columns[name] = self._spread(getattr(self.exposures, name))
        if self.told_apart is not None:
            columns["told_apart"] = self.told_apart.value
            columns["told_apart_error"] = self.told_apart.error
        # An attack may be called like a column: there is one called loss.
        return columns | {f"score_{name}": np.asarray(one) for name, one in self.scores.items()}

    def _spread(self, of_members: FloatArray) -> FloatArray:
        found = np.full(len(self), np.nan)
        found[self.truth] = of_members
        return found

    def aggregate(self) -> dict[str, Any]:
        """The figures without a row: for review."""
        return {
            "format": "expost-audit/1",
            "audience": Audience.REVIEW.value,
            "meaning": Audience.REVIEW.meaning,
            "warning": WARNING,
            "model": self.description,
            "members": int(np.count_nonzero(self.truth)),
            "others": int(np.count_nonzero(~self.truth)),
            "references": self.models,
            "confidence": self.confidence,
            "best": self.best,
            "attacks": {name: figures.to_json() for name, figures in self.figures.items()},
            "skipped": dict(self.skipped),
            "promise": None if self.guarantee is None else self.guarantee.describe(),
            "advantage_bound": self.advantage_bound,
            "promise_refuted": self.promise_refuted,
            "lower_bounds": [one.to_json() for one in self.bounds],
            "correlations": [one._asdict() for one in self.correlations],
            "disparity": [one.to_json() for one in self.disparity],
            "notices": list(self.notices),
        }

    def to_json(self, path: str | Path | None = None) -> str | Path:
        """All of it as JSON text, or written to a CURATOR-ONLY file; a missing value is null."""
        value = self.aggregate() | {
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "rows": plain(self.columns(), missing=True),
        }
        return self._json(value, path)


def _line(name: str, figures: AttackFigures, width: int) -> str:
    auc = str(figures.auc)
    return (
        f"{name:<{width}}  {auc:>20}  {figures.accuracy.value:>8.3f}"
        f"  {figures.advantage.value:>9.3f}  {figures.tpr_at_1_percent.value:>10.4f}"
        f"  {figures.tpr_at_01_percent.value:>12.4f}"
    )


def _correlation(
    what: str, one: FloatArray, two: FloatArray, confidence: float
) -> Correlation | None:
    """Spearman's ρ; its interval by Fisher's z with the variance of Bonett and Wright (2000)."""
    known = ~(np.isnan(one) | np.isnan(two))
    rows = int(known.sum())
    if rows < 4:
        return None
    ranks = rankdata(one[known]), rankdata(two[known])
    if any(np.ptp(rank) == 0 for rank in ranks):
        return None
    value = float(np.clip(np.corrcoef(*ranks)[0, 1], -1, 1))
    spread = norm.ppf((1 + confidence) / 2) * math.sqrt((1 + value**2 / 2) / (rows - 3))
    middle = math.atanh(np.clip(value, -1 + 1e-15, 1 - 1e-15))
    return Correlation(what, value, math.tanh(middle - spread), math.tanh(middle + spread), rows)
