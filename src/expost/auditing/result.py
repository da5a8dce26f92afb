"""What attacks find out about a model, row by row and as figures, with the rows' exposures."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from expost import _checks
from expost.auditing.disparity import Disparity
from expost.auditing.evidence import Flags
from expost.auditing.lower_bounds import LowerBound
from expost.auditing.roc import AttackFigures, Roc, RowAuc, roc
from expost.files.sealed import plain
from expost.results import ScalarTable
from expost.risk import Guarantee
from expost.types import Audience, FloatArray, IntArray

__all__ = ["WARNING", "Audit", "Correlation", "Exposures"]

WARNING = "This is an attack, not a guarantee: what these attacks miss, another may find."


@dataclass(frozen=True, kw_only=True, eq=False)
class Exposures:
    """What theory says of the k members, in their order.

    ``loss``, ``expected`` (k,) in this model, and expected over releases; infinite where the model
                           carries no noise.
    ``distance``           (k,) how far the row moves the parameters.
    """

    loss: FloatArray
    expected: FloatArray
    distance: FloatArray

    @property
    def exposure(self) -> FloatArray:
        """(k,) ∣loss∣."""
        return np.abs(self.loss)

    @property
    def is_noiseless(self) -> bool:
        """Whether rows differ in distances only."""
        return not bool(np.all(np.isfinite(self.expected)))

    @property
    def measure(self) -> tuple[str, FloatArray]:
        """What rows are ordered by, and its name."""
        if self.is_noiseless:
            return "distance", self.distance
        return "expected exposure", self.expected


class Correlation(NamedTuple):
    """Spearman's rank correlation of ``rows`` rows with its interval."""

    what: str
    value: float
    low: float
    high: float
    rows: int


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Audit(ScalarTable):
    """What attacks get out of one model. For the curator only.

    ``description``  the model in one line.
    ``truth``        (n,) whether the model was trained with the row: members and non-members.
    ``scores``       (n,) of each attack by its name; the larger, the more likely a member.
    ``figures``      how well each attack did on these rows, by its name.
    ``row_auc``      (n,) each row's own AUC over the references; None without references.
    ``bounds``       what the attacks prove about ε, each with its confidence.
    ``guarantee``    of the model; None where its noise law is not known.
    ``exposures``    what theory says of the members; None where nothing is known.
    ``disparity``    the best attack by class and by group.
    ``models``       how many references were trained.
    ``skipped``      attacks that could not be made, and why.
    """

    description: str
    truth: Flags
    scores: Mapping[str, FloatArray]
    figures: Mapping[str, AttackFigures]
    row_auc: RowAuc | None
    bounds: tuple[LowerBound, ...]
    guarantee: Guarantee | None
    exposures: Exposures | None
    disparity: tuple[Disparity, ...]
    models: int
    confidence: float
    skipped: Mapping[str, str]
    ids: tuple[Any, ...] | None = None
    notices: tuple[str, ...] = ()

    audience = Audience.CURATOR_ONLY

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
        """No attack's expected advantage is larger, by the model's guarantee; None without one."""
        return None if self.guarantee is None else self.guarantee.advantage

    @property
    def guarantee_refuted(self) -> bool:
        """Whether a proved lower bound passes the ε of the guarantee at its δ."""
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
        if self.row_auc is not None:
            pairs.append((f"{name} and per-row AUC", measure, self.row_auc.value[self.truth]))
        found = [_correlation(what, one, two, self.confidence) for what, one, two in pairs]
        return tuple(one for one in found if one is not None)

    def disagreements(self, count: int = 10) -> IntArray:
        """Members whose rank by exposure and by the attacks differs most.

        By ``row_auc`` where it is known, which like an expected exposure is no figure of the one
        model; else by the best attack's score.
        """
        if self.exposures is None:
            return np.empty(0, dtype=np.int64)
        # Imported here and below: it takes half a second, and reports import this module.
        from scipy.stats import rankdata

        measure = self.exposures.measure[1]
        gap = np.abs(rankdata(measure) - rankdata(self._vulnerability[self.truth]))
        return self.members[np.argsort(-gap, kind="stable")[:count]]

    @property
    def _vulnerability(self) -> FloatArray:
        """(n,) what rows are ranked by: unknown ones first, for the unknown is not private."""
        if self.row_auc is None:
            return self.scores[self.best]
        return np.where(np.isnan(self.row_auc.value), np.inf, self.row_auc.value)

    @cached_property
    def ranking(self) -> IntArray:
        """The members, most vulnerable first."""
        return self.members[np.argsort(-self._vulnerability[self.truth], kind="stable")]

    def vulnerable(self, count: int = 10) -> IntArray:
        """The ``count`` most vulnerable members."""
        return self.ranking[: _checks.whole("count", count, least=1)]

    def __repr__(self) -> str:
        return f"Audit({len(self)} rows, {len(self.scores)} attacks, {self.description})"

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
            for name in ("loss", "exposure", "expected", "distance"):
                columns[name] = self._spread(getattr(self.exposures, name))
        if self.row_auc is not None:
            columns["row_auc"] = self.row_auc.value
            columns["row_auc_error"] = self.row_auc.error
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
            "audience": Audience.NEEDS_REVIEW.value,
            "meaning": Audience.NEEDS_REVIEW.meaning,
            "warning": WARNING,
            "model": self.description,
            "members": int(np.count_nonzero(self.truth)),
            "non_members": int(np.count_nonzero(~self.truth)),
            "references": self.models,
            "confidence": self.confidence,
            "best": self.best,
            "attacks": {name: figures.to_json() for name, figures in self.figures.items()},
            "skipped": dict(self.skipped),
            "guarantee": None if self.guarantee is None else self.guarantee.describe(),
            "advantage_bound": self.advantage_bound,
            "guarantee_refuted": self.guarantee_refuted,
            "lower_bounds": [one.to_json() for one in self.bounds],
            "correlations": [one._asdict() for one in self.correlations],
            "disparity": [one.to_json() for one in self.disparity],
            "notices": list(self.notices),
        }

    def scalars(self) -> dict[str, Any]:
        """Return the number of rows, and the names of the attacks."""
        return {"n": len(self.truth), "attacks": [*self.figures]}

    def to_json(self, path: str | Path | None = None) -> str | Path:
        """All of it as JSON text, or written to a CURATOR-ONLY file; a missing value is null."""
        value = self.aggregate() | {
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "rows": plain(self.columns(), missing=True),
        }
        return self._json(value, path)


def _correlation(
    what: str, one: FloatArray, two: FloatArray, confidence: float
) -> Correlation | None:
    """Spearman's ρ; its interval by Fisher's z with the variance of Bonett and Wright (2000)."""
    known = ~(np.isnan(one) | np.isnan(two))
    rows = int(known.sum())
    if rows < 4:
        return None
    from scipy.stats import norm, rankdata

    ranks = rankdata(one[known]), rankdata(two[known])
    if any(np.ptp(rank) == 0 for rank in ranks):
        return None
    value = float(np.clip(np.corrcoef(*ranks)[0, 1], -1, 1))
    spread = norm.ppf((1 + confidence) / 2) * math.sqrt((1 + value**2 / 2) / (rows - 3))
    middle = math.atanh(np.clip(value, -1 + 1e-15, 1 - 1e-15))
    return Correlation(what, value, math.tanh(middle - spread), math.tanh(middle + spread), rows)
