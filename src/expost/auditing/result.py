"""The result of an audit: scores of each row, figures of each attack, and the rows' exposures."""

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
from expost.auditing.fit import Fit
from expost.auditing.lower_bounds import LowerBound
from expost.auditing.roc import AttackFigures, Roc, RowAuc, auc, roc
from expost.auditing.shift import Shift
from expost.files.sealed import plain
from expost.results import ScalarTable
from expost.risk import Guarantee
from expost.types import Audience, FloatArray, IntArray

__all__ = ["WARNING", "Audit", "Correlation", "Exposures"]

# The confidence with which a model predicts its members worse than others: by chance it is rare.
_MISREAD = 0.999
# Ways to choose members that make them exchangeable with non-members, in words.
_STATEMENTS = {
    "coins": "fair coins chose the members",
    "constant propensity": "every row was a member with the same probability",
}
WARNING = "This is an attack, not a guarantee: another attack may find what these miss."


@dataclass(frozen=True, kw_only=True, eq=False)
class Exposures:
    """The certified privacy losses of the k members, in their order.

    Parameters
    ----------
    loss, expected : FloatArray
        (k,) in this model, and expected over releases; infinite where the model carries no
        noise.
    distance : FloatArray
        (k,) how far the row moves the parameters.
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
        """Whether the model carries no noise, so that rows differ in distances only."""
        return not bool(np.all(np.isfinite(self.expected)))

    @property
    def measure(self) -> tuple[str, FloatArray]:
        """The name of the measure by which rows are ordered, and its values."""
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
    """What membership inference attacks reach on one model. Curator-only.

    Parameters
    ----------
    description : str
        The model in one line.
    truth : Flags
        (n,) whether the model was trained with the row: members and non-members.
    scores : Mapping[str, FloatArray]
        (n,) of each attack by its name; the larger, the more likely a member.
    figures : Mapping[str, AttackFigures]
        How well each attack did on these rows, by its name.
    row_auc : RowAuc | None
        (n,) each row's own AUC over the references; None without references.
    bounds : tuple[LowerBound, ...]
        What the attacks prove about ε, each with its confidence.
    guarantee : Guarantee | None
        The guarantee of the model; None where its noise law is not known.
    exposures : Exposures | None
        The certified privacy losses of the members; None if unknown.
    disparity : tuple[Disparity, ...]
        The best attack by class and by group.
    models : int
        How many references were trained.
    confidence : float
        The confidence of every interval and bound.
    skipped : Mapping[str, str]
        Attacks that could not be run, and why.
    ids : tuple[Any, ...], optional
        A key for each row; None: rows are named by their index.
    shift : Shift, optional
        How well membership is predicted without the model; None if it was not tested.
    chosen_by : str, default="unknown"
        How the members were stated to be chosen: by ``coins`` that are fair, with one probability
        for all rows (``constant propensity``) or one of each (``propensity``); or ``unknown``.
    fit : Fit, optional
        How well an existing model predicts its rows; None if unknown, or if it was trained here.
    identity : str, optional
        The :attr:`expost.release.Release.identity` of a model of expost; None for other models.
    notices : tuple[str, ...], default=()
        What a reader of the figures must know.
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
    shift: Shift | None = None
    chosen_by: str = "unknown"
    fit: Fit | None = None
    identity: str | None = None
    notices: tuple[str, ...] = ()

    audience = Audience.CURATOR_ONLY

    def __len__(self) -> int:
        return len(self.truth)

    @cached_property
    def best(self) -> str:
        """The attack with the largest AUC on these rows (and so a little flattered)."""
        return max(self.figures, key=lambda name: self.figures[name].auc.value)

    def roc(self, attack: str | None = None) -> Roc:
        """Return the ROC curve of an attack, by default of the best one.

        Parameters
        ----------
        attack : str, optional
            The name of the attack; None: the best one.

        Returns
        -------
        Roc
            The curve over all rows.

        Raises
        ------
        InvalidInput
            If no attack of this name was run.
        """
        name = self.best if attack is None else attack
        _checks.one_of("attack", name, tuple(self.scores))
        return roc(self.scores[name], self.truth)

    @property
    def members(self) -> IntArray:
        """The rows that the model was trained on."""
        return np.flatnonzero(self.truth)

    @property
    def is_confounded(self) -> bool:
        """Whether members and non-members differ without the model, for no known reason.

        Then the success of an attack on these rows is no evidence of leakage.
        """
        return self.shift is not None and self.shift.is_detected and self.chosen_by != "propensity"

    @property
    def contradicted(self) -> str:
        """The statement on the members that the shift contradicts; empty if there is none.

        Coins of one probability make members and non-members exchangeable. Where they are not, no
        bound on ε rests on the statement: ``bounds`` holds none from this one training.
        """
        return _STATEMENTS.get(self.chosen_by, "") if self.is_confounded else ""

    @cached_property
    def is_misread(self) -> bool:
        """Whether the model may have been read wrongly, so that attacks cannot find anything.

        It does not certainly predict the rows it was trained on better than a constant does, or it
        certainly predicts them worse than other rows. A model of expost has its classes and
        columns in its file.
        """
        if self.fit is None or self.guarantee is not None:
            return False
        if not self.fit.is_certain:
            return True
        if self.is_confounded or "loss" not in self.scores:
            return False
        return auc(self.scores["loss"], self.truth, confidence=_MISREAD).high < 0.5

    def exceeds_blind(self, attack: str) -> bool:
        """Return whether the AUC of an attack certainly exceeds that of the blind attack, and ½.

        Parameters
        ----------
        attack : str
            The name of the attack.

        Returns
        -------
        bool
            False without a blind attack.
        """
        if self.shift is None:
            return False
        # A blind attack below ½ is one of luck, or of rows that are in both tables.
        return self.figures[attack].auc.low > max(self.shift.auc.high, 0.5)

    # -- compared with theory ------------------------------------------------------------------

    @cached_property
    def advantage_bound(self) -> float | None:
        """The bound on any attack's expected advantage by the guarantee; None without one."""
        return None if self.guarantee is None else self.guarantee.advantage

    @property
    def guarantee_refuted(self) -> bool:
        """Whether a lower bound exceeds the ε of the guarantee at its δ."""
        if self.guarantee is None:
            return False
        return any(bound.epsilon > self.guarantee.epsilon(bound.delta) for bound in self.bounds)

    @cached_property
    def correlations(self) -> tuple[Correlation, ...]:
        """Rank correlations of attacks and exposures over the members; none without exposures."""
        if self.exposures is None:
            return ()
        name, measure = self.exposures.measure
        best = self.scores[self.best][self.truth]
        pairs = [(f"{name} and {self.best}", measure, best)]
        if not self.exposures.is_noiseless:
            pairs.insert(0, (f"loss in this model and {self.best}", self.exposures.loss, best))
        if self.row_auc is not None:
            pairs.append((f"{name} and per-row AUC", measure, self.row_auc.value[self.truth]))
        correlations = [
            _correlation(label, first, second, self.confidence) for label, first, second in pairs
        ]
        return tuple(first for first in correlations if first is not None)

    def disagreements(self, count: int = 10) -> IntArray:
        """Return the members whose ranks by exposure and by the attacks differ most.

        By ``row_auc`` if it is known, which like an expected exposure is not a figure of the one
        model; else by the best attack's score.

        Parameters
        ----------
        count : int, default=10
            The largest number of members to return.

        Returns
        -------
        IntArray
            Row numbers, the largest difference of ranks first; empty without exposures.
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
        """(n,) the measure by which rows are ranked; unknown values rank first: fail closed."""
        if self.row_auc is None:
            return self.scores[self.best]
        return np.where(np.isnan(self.row_auc.value), np.inf, self.row_auc.value)

    @cached_property
    def ranking(self) -> IntArray:
        """The members, most vulnerable first."""
        return self.members[np.argsort(-self._vulnerability[self.truth], kind="stable")]

    def vulnerable(self, count: int = 10) -> IntArray:
        """Return the ``count`` most vulnerable members.

        Parameters
        ----------
        count : int, default=10
            The largest number of members to return.

        Returns
        -------
        IntArray
            Row numbers, the most vulnerable first.
        """
        return self.ranking[: _checks.integer("count", count, least=1)]

    def __repr__(self) -> str:
        return f"Audit({len(self)} rows, {len(self.scores)} attacks, {self.description})"

    def key(self, row: int) -> Any:
        """Return the id of a row, or its index; members come first if both kinds were given.

        Parameters
        ----------
        row : int
            The row's number, counted from 0.

        Returns
        -------
        Any
            The id, or ``row`` where rows have none.
        """
        return row if self.ids is None else self.ids[row]

    # -- as data -------------------------------------------------------------------------------

    def columns(self) -> dict[str, Any]:
        """Return every per-row figure by name; NaN where it is unknown."""
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
        if self.shift is not None:
            columns["blind"] = self.shift.propensity
        # An attack may have the name of a column, e.g. loss.
        return columns | {f"score_{name}": np.asarray(score) for name, score in self.scores.items()}

    def _spread(self, of_members: FloatArray) -> FloatArray:
        values = np.full(len(self), np.nan)
        values[self.truth] = of_members
        return values

    def aggregate(self) -> dict[str, Any]:
        """Return the figures without those of single rows. Needs review.

        Returns
        -------
        dict[str, Any]
            The figures of attacks, bounds and groups, by name.
        """
        return {
            "format": "expost-audit/1",
            "audience": Audience.NEEDS_REVIEW.value,
            "meaning": Audience.NEEDS_REVIEW.meaning,
            "warning": WARNING,
            "model": self.description,
            "identity": self.identity,
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
            "lower_bounds": [item.to_json() for item in self.bounds],
            "correlations": [item._asdict() for item in self.correlations],
            "disparity": [item.to_json() for item in self.disparity],
            "members_chosen_by": self.chosen_by,
            "shift": None if self.shift is None else self.shift.to_json(),
            "fit": None if self.fit is None else self.fit.to_json(),
            "notices": list(self.notices),
        }

    def scalars(self) -> dict[str, Any]:
        """Return the number of rows, and the names of the attacks.

        Returns
        -------
        dict[str, Any]
            The scalars by name.
        """
        return {"n": len(self.truth), "attacks": [*self.figures]}

    def to_json(self, path: str | Path | None = None) -> str | Path:
        """Return the audit as a JSON string, or write it to a CURATOR-ONLY file."""
        value = self.aggregate() | {
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "rows": plain(self.columns(), missing=True),
        }
        return self._json(value, path)


def _correlation(
    label: str, first: FloatArray, second: FloatArray, confidence: float
) -> Correlation | None:
    """Return Spearman's ρ; the interval is Fisher's z with Bonett and Wright's variance (2000)."""
    known = ~(np.isnan(first) | np.isnan(second))
    rows = int(known.sum())
    if rows < 4:
        return None
    from scipy.stats import norm, rankdata

    ranks = rankdata(first[known]), rankdata(second[known])
    if any(np.ptp(rank) == 0 for rank in ranks):
        return None
    value = float(np.clip(np.corrcoef(*ranks)[0, 1], -1, 1))
    spread = norm.ppf((1 + confidence) / 2) * math.sqrt((1 + value**2 / 2) / (rows - 3))
    centre = math.atanh(np.clip(value, -1 + 1e-15, 1 - 1e-15))
    return Correlation(label, value, math.tanh(centre - spread), math.tanh(centre + spread), rows)
