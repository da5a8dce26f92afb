"""What an attacker can tell of each row: what happened beside what the promise allows (D5.3).

Conventions
-----------
The attacker knows every other row and how the model was made, and holds ``prior`` for the
probability that the row was there. With ℓ the row's loss her belief afterwards is
sigmoid(logit(prior) + ℓ) (D5.3 Lemma 1).
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit

from expost import _checks
from expost._order import rank_numbers, ranking
from expost.errors import InvalidInput
from expost.files.atomic import write_bytes
from expost.groups.columns import printable
from expost.mechanisms import RowLosses
from expost.results import RowTable
from expost.risk.wording import (
    advantage_sentence,
    belief_sentence,
    chance,
    chosen_percent,
)
from expost.rounding import at_most, certainty_at_most, percent_at_most
from expost.types import Audience, FloatArray, IntArray, Neighbouring

__all__ = ["RowIdentifiability", "WorstCase", "belief_levels"]

# Of the worst case: one in a hundred who are not in the data may be taken for members.
_FALSE_POSITIVES = 0.01
# Beliefs whose rows are counted: 60, 75, 90 and 99 % where the attacker was undecided.
_RAISED_ODDS = (1.5, 3.0, 9.0, 99.0)
# Models behind an advantage without a closed form, and their seed: the same profile twice is one.
_MODELS = 256
_SEED = 0
# Relative error of a law's advantage, with room.
_LAW_ERROR = 1e-11


class _Advantage(NamedTuple):
    value: FloatArray
    high: FloatArray
    error: FloatArray


@dataclass(frozen=True, kw_only=True)
class WorstCase:
    """What the promise allows against any row of any data.

    ``belief``     may be passed with probability ``failure`` at most.
    ``advantage``  of the Bayes adversary.
    ``true_positive_rate``  at ``false_positive_rate``.
    """

    promise: str
    belief: float
    failure: float
    advantage: float
    true_positive_rate: float
    false_positive_rate: float = _FALSE_POSITIVES


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowIdentifiability(RowTable):
    """What an attacker can tell of each row from this one model. For the curator only.

    ``losses``  what the mechanism says of each row.
    ``prior``   how probable the attacker holds it beforehand that a row was there.
    ``ids``     the rows' keys, or None: rows are then counted from 0.
    ``unit``    "row", or "person" where all rows of a person are removed at once: every figure is
                then one of a person.

    What is not known counts as identified: beliefs and advantages are then 1.
    """

    losses: RowLosses
    prior: float = 0.5
    description: str
    ids: tuple[Any, ...] | None = None
    notices: tuple[str, ...] = ()
    unit: str = "row"

    audience = Audience.FAIL

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", _checks.probability("prior", self.prior))

    @cached_property
    def belief(self) -> FloatArray:
        """(n,) sigmoid(logit(prior) + loss): that the row was there, after seeing this model."""
        return self._belief(_known(self.losses.loss, np.inf))

    @cached_property
    def belief_low(self) -> FloatArray:
        """(n,) the lower end of its proved interval."""
        return self._belief(self._lowest_loss)

    @cached_property
    def belief_high(self) -> FloatArray:
        """(n,) the upper end of its proved interval."""
        return self._belief(self._highest_loss)

    @property
    def confidence(self) -> FloatArray:
        """(n,) how sure the attacker is, in or out: the larger of belief and 1 − belief."""
        return np.maximum(self.belief, 1 - self.belief)

    @property
    def confidence_high(self) -> FloatArray:
        """(n,) the upper end of its proved interval."""
        return np.maximum(self.belief_high, 1 - self.belief_low)

    def share_above(self, belief: float) -> float:
        """The share of rows whose belief may pass ``belief`` (the upper end of its interval)."""
        return self.rows_above(belief) / max(len(self), 1)

    def rows_above(self, belief: float) -> int:
        """How many rows that are."""
        if not 0 <= belief <= 1:
            raise InvalidInput(f"belief={belief!r}: must lie between 0 and 1.")
        return int(np.count_nonzero(self.belief_high > belief))

    @property
    def levels(self) -> tuple[float, ...]:
        """Beliefs whose rows are counted: 60, 75, 90 and 99 % where the attacker was undecided."""
        return belief_levels(self.prior)

    @property
    def doubt_levels(self) -> tuple[float, ...]:
        """The same of 1 − belief, in a row that the model speaks against."""
        return belief_levels(1 - self.prior)

    def rows_doubted(self, doubt: float) -> int:
        """How many rows' 1 − belief may pass ``doubt`` (the lower end of the belief's interval)."""
        if not 0 <= doubt <= 1:
            raise InvalidInput(f"doubt={doubt!r}: must lie between 0 and 1.")
        against = expit(-float(logit(self.prior)) - self._lowest_loss)
        return int(np.count_nonzero(against > doubt))

    @cached_property
    def ranking(self) -> IntArray:
        """(n,) row indices by the upper end of the belief, the highest first, then by distance."""
        # Losses keep the order of beliefs that are all 1 in float64.
        return ranking(self._highest_loss, self.losses.distance)

    @property
    def row(self) -> int:
        """The row that sets the maximum: whose presence the attacker can be surest of."""
        return int(self.ranking[0])

    @property
    def advantage(self) -> FloatArray:
        """(n,) of the Bayes adversary against each row, over all models it might be (D5.3 Def. 5).

        The total variation of the model's two laws. Where the law of the loss is known, by that
        law, at a distance known to 1e-3 (``advantage_high`` is on the safe side). Else
        E[(1 − e^(−ℓ))₊] over sampled releases.
        """
        return self._advantage.value

    @property
    def advantage_high(self) -> FloatArray:
        """(n,) the same at the far end of each distance's proved interval: never less."""
        return self._advantage.high

    @property
    def advantage_error(self) -> FloatArray:
        """(n,) the standard error of ``advantage``: of sampling, 0 where nothing is sampled."""
        return self._advantage.error

    @cached_property
    def _advantage(self) -> _Advantage:
        losses, zeros = self.losses, np.zeros(len(self))
        if losses.noiseless:
            # The model itself gives every row away that can move it.
            same = (losses.distance == 0) & (losses.distance_error == 0)
            apart = np.where(same, 0.0, 1.0)
            return _Advantage(apart, apart, zeros)
        if losses.law is not None:
            value = np.asarray(losses.law.advantage)
            # Total variation grows with the distance; without its far end anything is possible.
            high = zeros + 1 if losses.far_law is None else np.asarray(losses.far_law.advantage)
            high = np.minimum(high * (1 + _LAW_ERROR), 1.0)
            return _Advantage(value, np.maximum(high, value), zeros)
        if losses.draw is not None:
            return self._sampled_advantage()
        return _Advantage(zeros + 1, zeros + 1, zeros)

    def _sampled_advantage(self) -> _Advantage:
        """TV = E_P[(1 − e^(−ℓ))₊], θ ~ P; the releases of ADD are drawn without the row, from Q."""
        assert self.losses.draw is not None
        sign = -1.0 if self.losses.relation is Neighbouring.ADD else 1.0
        total, squares = np.zeros(len(self)), np.zeros(len(self))
        for loss in self.losses.draw(_MODELS, np.random.default_rng(_SEED)):
            gain = -np.expm1(-np.maximum(_known(sign * loss, np.inf), 0.0))
            total += gain
            squares += gain**2
        mean = total / _MODELS
        variance = np.maximum(squares / _MODELS - mean**2, 0.0)
        return _Advantage(mean, mean, np.sqrt(variance / (_MODELS - 1)))

    @cached_property
    def worst_case(self) -> WorstCase:
        """What the mechanism's promise allows; without one, everything."""
        losses, found = self.losses, self.losses.guarantee
        belief = float(self._belief(np.array([losses.worst_case]))[0])
        if found is None:
            return WorstCase(
                promise="nothing",
                belief=belief,
                failure=losses.worst_case_passed,
                advantage=1.0,
                true_positive_rate=1.0,
            )
        return WorstCase(
            promise=found.describe(),
            belief=belief,
            failure=losses.worst_case_passed,
            advantage=found.advantage,
            true_positive_rate=found.true_positive_rate(_FALSE_POSITIVES),
        )

    @property
    def _highest_loss(self) -> FloatArray:
        return _known(self.losses.high, np.inf)

    @property
    def _lowest_loss(self) -> FloatArray:
        return _known(self.losses.low, -np.inf)

    def _belief(self, loss: FloatArray) -> FloatArray:
        return expit(float(logit(self.prior)) + loss)

    def _log_odds(self, loss: float) -> float:
        return float(logit(self.prior)) + loss

    def __len__(self) -> int:
        return len(self.losses.loss)

    def key(self, row: int) -> Any:
        """The id of a row, or its index."""
        return row if self.ids is None else self.ids[row]

    def __repr__(self) -> str:
        units = f"{len(self)} {self.unit}s"
        return f"RowIdentifiability({units}, prior={self.prior:g}, {self.description})"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """A few readable lines; no row's values, but keys and beliefs: curator only."""
        surest = float(np.max(self._highest_loss))
        either = max(self._log_odds(surest), -self._log_odds(float(np.min(self._lowest_loss))))
        return [
            f"Identifiability of {len(self)} {self.unit}s ({self.losses.relation.value})",
            f"model        {self.description}",
            f"in words     {self._headline(surest)}",
            f"belief       {self._belief_line()}",
            f"above        {self._share_line()}",
            f"either way   at most {certainty_at_most(either)} sure of any {self.unit}, in or out",
            f"advantage    {self._advantage_line()}",
            f"worst case   {self._worst_case_line()}",
            f"mark         {self.audience.value}: {self.audience.meaning}",
        ]

    def _headline(self, surest: float) -> str:
        # The attacker may be surest of all that a row was not there: her belief only fell.
        if surest < 0:
            return (
                f"No {self.unit}'s presence is any more probable after seeing what was released"
                " than before."
            )
        known = "every other row" if self.unit == "row" else "all other people's rows"
        return belief_sentence(prior=self.prior, loss=surest, seen="what was released", known=known)

    def _belief_line(self) -> str:
        # Of losses, and no means of two of them: beliefs are all 1 in float64 past some loss.
        quantiles = np.quantile(self._highest_loss, [0.5, 0.99, 1.0], method="higher")
        middle, late, most = (certainty_at_most(self._log_odds(float(loss))) for loss in quantiles)
        return (
            f"median {middle}, 99 % of {self.unit}s up to {late}, largest {most}"
            f" ({self.unit} {printable(self.key(self.row))})"
        )

    def _share_line(self) -> str:
        parts = []
        for level in self.levels:
            count = self.rows_above(level)
            parts.append(f"{chosen_percent(level)}: {count}")
            if count == 0:
                break
        return f"a belief of {', '.join(parts)} of {len(self)} {self.unit}s"

    def _advantage_line(self) -> str:
        value, high = self._advantage.value[self.row], float(self.advantage_high[self.row])
        error, most = float(self.advantage_error[self.row]), int(np.argmax(self.advantage_high))
        if error > 0:
            shown = f"{value:.3g} ± {at_most(error, 2)} from {_MODELS} sampled models"
        else:
            often = advantage_sentence(high).partition("guesses right ")[2].partition(", ")[0]
            shown = f"{at_most(high)} (right {often})"
        other = (
            f"{at_most(float(self.advantage_high[most]))} ({self.unit} {printable(self.key(most))})"
        )
        return f"{shown}, against that {self.unit} over all models it might be; largest {other}"

    def _worst_case_line(self) -> str:
        worst = self.worst_case
        passed = f" except with a chance of {chance(worst.failure)}" if worst.failure > 0 else ""
        known = "nothing is promised, which" if worst.promise == "nothing" else worst.promise
        return (
            f"{known} allows a belief of"
            f" {certainty_at_most(self._log_odds(self.losses.worst_case))}{passed},"
            f" an advantage of {at_most(worst.advantage)}, and"
            f" {percent_at_most(worst.true_positive_rate)} of members found where"
            f" {chosen_percent(worst.false_positive_rate)} of others are taken for them"
        )

    def columns(self) -> dict[str, Any]:
        """Every per-row figure, by name."""
        keys = {} if self.ids is None else {"id": list(self.ids)}
        return {
            self.unit: np.arange(len(self)),
            **keys,
            "rank": rank_numbers(self.ranking),
            "belief": self.belief,
            "belief_low": self.belief_low,
            "belief_high": self.belief_high,
            "confidence": self.confidence,
            "confidence_high": self.confidence_high,
            "advantage": self.advantage,
            "advantage_high": self.advantage_high,
            "advantage_error": self.advantage_error,
        }

    def to_json(self, path: str | Path | None = None) -> str | Path:
        """The table by columns, as JSON text, or written to a CURATOR-ONLY file."""
        worst = self.worst_case
        value = {
            "format": "expost-row-identifiability/1",
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "model": self.description,
            "relation": self.losses.relation.value,
            "unit": self.unit,
            "prior": self.prior,
            "surest": self.key(self.row),
            "worst_case": {name: getattr(worst, name) for name in worst.__dataclass_fields__},
            "notices": list(self.notices),
            "rows": {
                name: values if isinstance(values, list) else values.tolist()
                for name, values in self.columns().items()
            },
        }
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        if path is None:
            return text
        return write_bytes(self.audience.path(path), self.audience, text.encode())


def _known(values: FloatArray, unknown: float) -> FloatArray:
    """``values`` with what is not a number taken for the exposed end."""
    return np.where(np.isnan(values), unknown, values)


def belief_levels(prior: float) -> tuple[float, ...]:
    """Beliefs whose rows are counted."""
    return tuple(_round_level(prior, odds) for odds in _RAISED_ODDS)


def _round_level(prior: float, odds: float) -> float:
    """The belief whose odds are so many times those of the prior, as round as it is shown."""
    share, rest = odds * prior, 1 - prior
    if share > rest:
        return 1 - float(f"{rest / (share + rest):.2g}")
    return float(f"{share / (share + rest):.2g}")
