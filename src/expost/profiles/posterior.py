"""The attacker's posterior of each row under one model, and what the guarantee allows (D5.3).

Conventions
-----------
The attacker knows every other row and how the model was trained. ``prior`` is the attacker's
probability of the presence of the row before the release. With ℓ the row's loss, the posterior is
sigmoid(logit(prior) + ℓ) (D5.3 Lemma 1).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit

from expost import _checks
from expost._order import rank_numbers, ranking
from expost.errors import InvalidInput
from expost.files.sealed import plain, to_fields
from expost.mechanisms import RowLosses
from expost.mechanisms.row_losses import mean_exposures
from expost.noise.rates import true_positive_rate_above
from expost.numbers import posterior_at
from expost.profiles.digest import (
    PosteriorDigest,
    RowFigures,
    figure_columns,
    known,
    posterior_levels,
)
from expost.results import RowTable
from expost.types import Audience, FloatArray, IntArray, Neighbouring

__all__ = ["Advantage", "RowIdentifiability", "WorstCase"]

# The false-positive rate of the worst case.
_FALSE_POSITIVES = 0.01
# Models sampled for an advantage without a closed form, and their seed: results are reproducible.
_MODELS = 256
_SEED = 0
# An upper bound on the relative error of a law's advantage.
_LAW_ERROR = 1e-11


class _Advantages(NamedTuple):
    value: FloatArray
    high: FloatArray
    error: FloatArray


@dataclass(frozen=True, kw_only=True)
class Advantage:
    """The advantage of the Bayes adversary against one row, by its key.

    Parameters
    ----------
    high : float
        The upper end of its certified interval.
    error : float
        Its standard error, 0 where nothing is sampled.
    """

    key: Any
    value: float
    high: float
    error: float


@dataclass(frozen=True, kw_only=True)
class WorstCase:
    """What the guarantee allows against any row of any data.

    Parameters
    ----------
    posterior : float
        May be passed with probability ``failure`` at most.
    advantage : float
        The membership advantage of the Bayes adversary.
    true_positive_rate : float
        At ``false_positive_rate``.
    """

    guarantee: str
    posterior: float
    failure: float
    advantage: float
    true_positive_rate: float
    false_positive_rate: float = _FALSE_POSITIVES


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowIdentifiability(RowTable):
    """The attacker's posterior of each row under one model. Curator-only.

    Parameters
    ----------
    losses : RowLosses
        The losses of all rows; where rows are processed in blocks, of those rows that no other
        passes, which set every maximum.
    counted : PosteriorDigest, optional
        What is known of all rows together, where they are processed in blocks; else None.
    prior : float, default=0.5
        The attacker's probability beforehand that a row was in the data.
    description : str
        The model in one line.
    ids : tuple[Any, ...], optional
        The keys of the rows of ``losses``, or None: rows are then counted from 0.
    notices : tuple[str, ...], default=()
        What the reader must know, a sentence each.
    baseline : float, optional
        The probability with which an attack beyond membership succeeds on a row that was not used;
        None: ``attack_bound`` and ``baseline_posterior`` are not asked for.
    unit : str, default="row"
        "row", or "person" where all rows of a person are removed at once: every figure is then one
        of a person.
    attacker : str, default="attacker"
        Who the figures are about, where there are several kinds of attackers.

    Notes
    -----
    What is not known counts as identified: posteriors and advantages are then 1.
    """

    losses: RowLosses
    counted: PosteriorDigest | None = None
    prior: float = 0.5
    description: str
    ids: tuple[Any, ...] | None = None
    notices: tuple[str, ...] = ()
    baseline: float | None = None
    unit: str = "row"
    attacker: str = "attacker"

    audience = Audience.CURATOR_ONLY

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", _checks.probability("prior", self.prior))
        if self.baseline is not None:
            object.__setattr__(self, "baseline", _checks.probability("baseline", self.baseline))

    @property
    def is_held(self) -> bool:
        """Whether every row's figures are held in memory."""
        return self.counted is None

    @cached_property
    def digest(self) -> PosteriorDigest:
        """The figures of all rows together."""
        if self.counted is not None:
            return self.counted
        columns = figure_columns(RowFigures(losses=self.losses))
        return PosteriorDigest.of(columns, prior=self.prior, ids=self.ids)

    @cached_property
    def posterior(self) -> FloatArray:
        """(n,) sigmoid(logit(prior) + loss): P(row was in the data ∣ this model)."""
        return self._posterior(known(self._held.loss, np.inf))

    @cached_property
    def posterior_low(self) -> FloatArray:
        """(n,) the lower end of its certified interval."""
        return self._posterior(known(self._held.low, -np.inf))

    @cached_property
    def posterior_high(self) -> FloatArray:
        """(n,) the upper end of its certified interval."""
        return self._posterior(known(self._held.high, np.inf))

    @property
    def certainty(self) -> FloatArray:
        """(n,) the larger of posterior and 1 − posterior."""
        return np.maximum(self.posterior, 1 - self.posterior)

    @property
    def certainty_high(self) -> FloatArray:
        """(n,) the upper end of its certified interval."""
        return np.maximum(self.posterior_high, 1 - self.posterior_low)

    @property
    def _held(self) -> RowLosses:
        """The losses of all rows."""
        if not self.is_held:
            raise InvalidInput(
                "rows: are processed in blocks and not held; print the result, or use the columns"
                " of the profile's batches()."
            )
        return self.losses

    def share_above(self, posterior: float) -> float:
        """Return the share of rows whose posterior may exceed ``posterior``.

        Parameters
        ----------
        posterior : float
            The level, in (0, 1).

        Returns
        -------
        float
            The share, between 0 and 1.
        """
        return self.rows_above(posterior) / max(len(self), 1)

    def rows_above(self, posterior: float) -> int:
        """Return the number of rows whose posterior may exceed ``posterior``.

        By the upper end of its interval. For rows in blocks only at ``levels``.

        Parameters
        ----------
        posterior : float
            The level, in (0, 1).

        Returns
        -------
        int
            The number of rows.
        """
        counted = dict(zip(self.levels, self.digest.above, strict=True))
        return _rows_past("posterior", posterior, counted, lambda: self.posterior_high)

    @property
    def levels(self) -> tuple[float, ...]:
        """Posteriors whose rows are counted: 60, 75, 90 and 99 % from a prior of ½."""
        return posterior_levels(self.prior)

    @property
    def doubt_levels(self) -> tuple[float, ...]:
        """The levels of 1 − posterior, the probability of absence, whose rows are counted."""
        return posterior_levels(1 - self.prior)

    def rows_doubted(self, doubt: float) -> int:
        """Return the number of rows whose 1 − posterior may exceed ``doubt``.

        By the lower end of the posterior's interval. For rows in blocks only at ``doubt_levels``.

        Parameters
        ----------
        doubt : float
            The level, in (0, 1).

        Returns
        -------
        int
            The number of rows.
        """
        counted = dict(zip(self.doubt_levels, self.digest.doubted, strict=True))
        return _rows_past(
            "doubt", doubt, counted, lambda: expit(-self._log_odds(known(self._held.low, -np.inf)))
        )

    @cached_property
    def ranking(self) -> IntArray:
        """(n,) row indices by the upper end of the posterior, the highest first."""
        # Losses order posteriors that are all 1 in float64.
        return ranking(known(self._held.high, np.inf), self._held.distance)

    @property
    def row(self) -> int:
        """The number of the row with the largest posterior."""
        return self.digest.most_certain.row

    @property
    def advantage(self) -> FloatArray:
        """(n,) the Bayes adversary's advantage against each row, over releases (D5.3 Def. 5).

        The total variation of the model's two laws. Where the law of the loss is known, by that
        law, at a distance known to 1e-3 (``advantage_high`` is on the safe side). Else
        E[(1 − e^(−ℓ))₊] over sampled releases.
        """
        _ = self._held
        return self._advantages.value

    @property
    def advantage_high(self) -> FloatArray:
        """(n,) the same at the far end of each distance's certified interval: never less."""
        _ = self._held
        return self._advantages.high

    @property
    def advantage_error(self) -> FloatArray:
        """(n,) the standard error of ``advantage``: of sampling, 0 where nothing is sampled."""
        _ = self._held
        return self._advantages.error

    @property
    def most_certain_advantage(self) -> Advantage:
        """The advantage against the row with the largest posterior."""
        return self._advantage_at(0 if self.counted is not None else self.row)

    @property
    def largest_advantage(self) -> Advantage:
        """The advantage against the row where it may be largest."""
        return self._advantage_at(int(ranking(self._advantages.high, self.losses.distance)[0]))

    def _advantage_at(self, index: int) -> Advantage:
        """Return the advantage against the row at ``index`` of ``losses``."""
        value, high, error = (float(values[index]) for values in self._advantages)
        return Advantage(key=self.key(index), value=value, high=high, error=error)

    @cached_property
    def _advantages(self) -> _Advantages:
        losses, zeros = self.losses, np.zeros(len(self.losses.loss))
        if losses.noiseless:
            # Without noise the model reveals every row that can move it.
            same = (losses.distance == 0) & (losses.distance_error == 0)
            apart = np.where(same, 0.0, 1.0)
            return _Advantages(apart, apart, zeros)
        if losses.law is not None:
            value = np.asarray(losses.law.advantage)
            # Total variation grows with the distance; an unknown far end allows everything.
            high = zeros + 1 if losses.far_law is None else np.asarray(losses.far_law.advantage)
            high = np.minimum(high * (1 + _LAW_ERROR), 1.0)
            return _Advantages(value, np.maximum(high, value), zeros)
        if losses.draw is not None:
            return self._sampled_advantage()
        # Where the law is not known, as in a stored profile, the guarantee bounds it.
        allowed = zeros + (1.0 if losses.guarantee is None else losses.guarantee.advantage)
        return _Advantages(allowed, allowed, zeros)

    def _sampled_advantage(self) -> _Advantages:
        """Return TV = E_P[(1 − e^(−ℓ))₊], θ ~ P; ADD draws from Q, without the row."""
        assert self.losses.draw is not None
        sign = -1.0 if self.losses.relation is Neighbouring.ADD else 1.0
        drawn = (
            -np.expm1(-np.maximum(known(sign * loss, np.inf), 0.0))
            for loss in self.losses.draw(_MODELS, np.random.default_rng(_SEED))
        )
        mean, error = mean_exposures(drawn, len(self.losses.loss))
        return _Advantages(mean, mean, error)

    @property
    def attack_bound(self) -> FloatArray:
        """(n,) how often an attack on the row succeeds, over releases, at most.

        For any attack that succeeds on this row with probability ``baseline`` at most where the
        model was fitted without it. By the law of the row's own loss, at the far end of its
        distance; where there is none, by the guarantee.
        """
        _ = self._held
        return self._attack_bounds

    @property
    def largest_attack_bound(self) -> float:
        """The largest ``attack_bound`` of any row."""
        return float(np.max(self._attack_bounds))

    @property
    def baseline_posterior(self) -> FloatArray:
        """(n,) sigmoid(logit(baseline) + loss): the posterior under this model, at most.

        From a prior of ``baseline`` that the row was used, against a model without it.
        """
        return expit(float(logit(self._baseline)) + known(self._held.high, np.inf))

    @property
    def _baseline(self) -> float:
        if self.baseline is None:
            raise InvalidInput("baseline=None: pass a baseline to identifiability.")
        return self.baseline

    @cached_property
    def _attack_bounds(self) -> FloatArray:
        losses, baseline = self.losses, self._baseline
        if losses.noiseless or losses.law is None or losses.far_law is None:
            allowed = 1.0
            if losses.guarantee is not None and not losses.noiseless:
                allowed = losses.guarantee.true_positive_rate(baseline)
            return np.full(len(losses.loss), allowed)
        return true_positive_rate_above(losses.far_law, baseline)

    @cached_property
    def worst_case(self) -> WorstCase:
        """The bounds of the mechanism's guarantee; without one, trivial bounds."""
        losses, guarantee = self.losses, self.losses.guarantee
        true_positive_rate = (
            1.0 if guarantee is None else guarantee.true_positive_rate(_FALSE_POSITIVES)
        )
        return WorstCase(
            guarantee="nothing" if guarantee is None else guarantee.describe(),
            posterior=float(expit(self._log_odds(losses.worst_case))),
            failure=losses.worst_case_passed,
            advantage=1.0 if guarantee is None else guarantee.advantage,
            true_positive_rate=true_positive_rate,
        )

    def _log_odds(self, loss: Any) -> Any:
        return float(logit(self.prior)) + loss

    def _posterior(self, loss: FloatArray) -> FloatArray:
        return expit(float(logit(self.prior)) + loss)

    def __len__(self) -> int:
        return len(self.losses.loss) if self.counted is None else self.counted.highest.count

    def key(self, row: int) -> Any:
        """Return the id of a row, or its index.

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

    @property
    def lowest_loss(self) -> float:
        """The least lower end of a loss's interval."""
        return self.digest.least.lowest

    def __repr__(self) -> str:
        units = f"{len(self)} {self.unit}s"
        return f"RowIdentifiability({units}, prior={self.prior:g}, {self.description})"

    def columns(self) -> dict[str, Any]:
        """Return every per-row figure by name."""
        keys = {} if self.ids is None else {"id": list(self.ids)}
        return {
            self.unit: np.arange(len(self)),
            **keys,
            "rank": rank_numbers(self.ranking),
            "posterior": self.posterior,
            "posterior_low": self.posterior_low,
            "posterior_high": self.posterior_high,
            "certainty": self.certainty,
            "certainty_high": self.certainty_high,
            "advantage": self.advantage,
            "advantage_high": self.advantage_high,
            "advantage_error": self.advantage_error,
            **(
                {}
                if self.baseline is None
                else {
                    "attack_bound": self.attack_bound,
                    "baseline_posterior": self.baseline_posterior,
                }
            ),
        }

    def to_json(self, path: str | Path | None = None) -> str | Path:
        """Return the table by columns as a JSON string, or write it to a CURATOR-ONLY file.

        Parameters
        ----------
        path : str | Path, optional
            The file to write; None: nothing is written.

        Returns
        -------
        str | Path
            The JSON string, or the path of the file.
        """
        return self._json(self.fields() | {"table": plain(self.columns())}, path)

    def fields(self) -> dict[str, Any]:
        """Return the values of the JSON without the table of rows.

        Returns
        -------
        dict[str, Any]
            The fields by name.
        """
        beyond = {} if self.baseline is None else self.beyond_membership()
        return {
            "format": "expost-row-identifiability/2",
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "model": self.description,
            "relation": self.losses.relation.value,
            "unit": self.unit,
            "prior": self.prior,
            **beyond,
            "most_certain": self.digest.most_certain.key,
            "worst_case": to_fields(self.worst_case),
            "notices": list(self.notices),
            "rows": len(self),
        }

    def beyond_membership(self) -> dict[str, float]:
        """Return the baseline and the largest bounds of any row on attacks beyond membership.

        Returns
        -------
        dict[str, float]
            ``baseline``, ``attack_bound`` over releases and ``baseline_posterior`` of this model.
        """
        largest = posterior_at(float(logit(self._baseline)) + self.digest.highest.largest)
        return {
            "baseline": self._baseline,
            "attack_bound": self.largest_attack_bound,
            "baseline_posterior": largest,
        }


def _rows_past(
    name: str, level: float, counted: Mapping[float, int], values: Callable[[], FloatArray]
) -> int:
    """Return the number of rows above a level: as counted in blocks, or of the rows in memory."""
    if not 0 <= level <= 1:
        raise InvalidInput(f"{name}={level!r}: must lie between 0 and 1.")
    if level in counted:
        return counted[level]
    return int(np.count_nonzero(values() > level))
