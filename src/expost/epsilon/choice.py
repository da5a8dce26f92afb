"""The answer of :func:`expost.choose_epsilon`: which ε, why, and where every row stands."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from expost.epsilon.recommend import Recommendation
from expost.epsilon.sampled import Sweep
from expost.epsilon.sweep import BeliefBound, Pair
from expost.epsilon.utility import Utility
from expost.files.atomic import write_bytes
from expost.files.parts import Part
from expost.files.sealed import plain
from expost.results import RowTable
from expost.rounding import lower_text, upper_text
from expost.types import Audience, FloatArray, IntArray

__all__ = ["TABLE", "EpsilonChoice"]

_FORMAT = "expost-epsilon/2"
# The table with a line for each row: a file, or a folder of parts.
TABLE = Audience.FAIL.file_name("epsilon", "parquet")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EpsilonChoice(RowTable):
    """Which ε is worth using on these rows. For the curator only.

    ``sweep``        all rows' losses over ε (:mod:`expost.epsilon.sweep`, :mod:`.sampled`).
    ``bound``        the belief that no row may pass, from which prior, mean or quantile.
    ``utility``      held-out accuracy, AUC and log loss (R²) of released models, or None.
    ``recommendation``  the ε and the reasons.
    ``description``  what would be released, in one line.
    ``notices``      what the reader must know: the cost of choosing, bounds read from the data.
    ``ids``          the rows' keys, or None: rows are then counted from 0.
    ``parts``        of rows that are read in blocks: the parts of the table with each row's
                     figures; None where rows are in memory.

    ``typical`` and ``ranked`` are computed when they are first asked for.
    """

    sweep: Sweep
    bound: BeliefBound
    epsilon_for_belief: float
    utility: Utility | None
    recommendation: Recommendation
    description: str
    notices: tuple[str, ...]
    ids: tuple[Any, ...] | None = None
    parts: Mapping[int, Part] | None = None

    audience = Audience.FAIL

    @property
    def epsilons(self) -> FloatArray:
        """(k,) the values of ε that were looked at, ascending."""
        return self.sweep.epsilons

    @property
    def low(self) -> float:
        """The largest ε at which every row is still on its first plateau."""
        return self.sweep.low

    @property
    def high(self) -> float:
        """The smallest ε at which the asked share of rows has reached its second regime."""
        return self.sweep.high

    @property
    def recommended(self) -> float | None:
        """The ε to use; None where no ε keeps every bound, and ``reasons`` say which fails."""
        return self.recommendation.epsilon

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why, a sentence each."""
        return self.recommendation.reasons

    @property
    def critical_epsilon(self) -> FloatArray:
        """(n,) the ε at which each row leaves its first plateau."""
        return self.sweep.critical

    @property
    def one_sidedness(self) -> Pair:
        """E[loss]/E∣loss∣ of the farthest and of the median row over ε, from 0 to 1."""
        return self.sweep.one_sidedness

    @cached_property
    def belief(self) -> FloatArray:
        """(k,) the largest typical belief of any row over ε."""
        return self.sweep.belief(self.bound, self.epsilons)

    @property
    def typical(self) -> FloatArray:
        """(k, n) E∣loss∣ of every row over θ ~ p(· ∣ D), by quadrature (LeBlond 4.4).

        Of a sampled mechanism, the mean over its models: ``sweep.typical_error`` belongs to it.
        """
        return self.sweep.typical

    @property
    def ranked(self) -> FloatArray:
        """(k, n) the mean over models of the exposure at each rank, ascending (LeBlond Fig. 5).

        Of more than 200,000 rows, at the 2,000 ``ranks`` alone.
        """
        return self.sweep.ranked.mean

    @property
    def ranked_error(self) -> FloatArray:
        """(k, n) the standard error of ``ranked`` over the models drawn."""
        return self.sweep.ranked.error

    @property
    def ranks(self) -> IntArray:
        """The ranks of the columns of ``ranked``, from 1 for the least exposed."""
        return self.sweep.ranked.ranks

    @property
    def ranked_resolution(self) -> float:
        """The relative error of an exposure before it was averaged: rounding, or the sketch's."""
        return self.sweep.ranked.resolution

    @property
    def rank_error(self) -> float:
        """The share of rows by which a rank of ``ranked`` may be off: 0 where all were ranked."""
        return self.sweep.ranked.rank_error

    def __repr__(self) -> str:
        found = "none" if self.recommended is None else lower_text(self.recommended, 4)
        low = "unknown" if math.isnan(self.low) else lower_text(self.low, 4)
        high = "unknown" if math.isnan(self.high) else upper_text(self.high, 4)
        return f"EpsilonChoice(recommended={found}, low={low}, high={high})"

    def __str__(self) -> str:
        return "\n".join([*self.lines(), *(f"! {notice}" for notice in self.notices)])

    def lines(self) -> list[str]:
        """The answer for a person; no row's values."""
        answer = (
            "No epsilon keeps every bound"
            if self.recommended is None
            else f"epsilon      {_short(self.recommended)} is recommended"
        )
        limit = self.epsilon_for_belief
        belief = f"up to {_short(limit)}" if limit > 0 else "at no epsilon"
        prior = "" if self.bound.prior == 0.5 else f" from a prior of {self.bound.prior:g}"
        lines = [
            f"Choice of epsilon for {self.sweep.rows} rows",
            f"model        {self.description}",
            answer,
            f"transition   from {_short(self.low)} (up to there all rows are protected alike) to"
            f" {'unknown' if math.isnan(self.high) else upper_text(self.high, 3)} (nothing more"
            " to lose)",
            f"belief       {belief} no row's typical belief passes"
            f" {upper_text(self.bound.largest)}{prior}",
        ]
        if self.utility is not None and self.recommended is not None:
            name, curve = self.utility.leading
            lines += [
                f"{name:<12} {curve.mean[place]:.3f} on held-out rows there,"
                f" {curve.base_rate:.3f} by the base rate alone, {curve.noiseless:.3f} without"
                " noise"
                for place in np.flatnonzero(self.utility.epsilons == self.recommended)
            ]
        lines += [f"- {reason}" for reason in self.reasons]
        return [*lines, f"mark         {self.audience.value}: {self.audience.meaning}"]

    def columns(self) -> dict[str, Any]:
        """Return every per-row figure, by name."""
        keys = {} if self.ids is None else {"id": list(self.ids)}
        return {"row": np.arange(self.sweep.rows), **keys, **self.sweep.row_columns()}

    def to_json(self, path: str | Path | None = None) -> str | Path:
        """Return the choice as JSON text, or write it to a CURATOR-ONLY file.

        ``table`` holds the columns of rows in memory, or names the folder of the parts.
        """
        text = json.dumps(self._fields(), allow_nan=False, ensure_ascii=False)
        if path is None:
            return text
        return write_bytes(self.audience.path(path), self.audience, text.encode())

    def _fields(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "model": self.description,
            "rows": self.sweep.rows,
            "recommended": self.recommended,
            "reasons": list(self.reasons),
            "low": plain(self.low, missing=True),
            "high": plain(self.high, missing=True),
            "measure": self.sweep.measure,
            "epsilon_for_belief": plain(self.epsilon_for_belief, missing=True),
            "max_belief": self.bound.largest,
            "prior": self.bound.prior,
            "quantile": self.bound.quantile,
            "epsilons": self.epsilons.tolist(),
            "belief": self.belief.tolist(),
            "one_sidedness": plain(self.one_sidedness._asdict(), missing=True),
            "utility": None if self.utility is None else _utility_fields(self.utility),
            "table": plain(self.columns(), missing=True) if self.parts is None else TABLE,
            "notices": list(self.notices),
        }


def _utility_fields(utility: Utility) -> dict[str, Any]:
    return {
        "epsilons": utility.epsilons.tolist(),
        "folds": utility.folds,
        "releases": utility.folds * utility.releases,
        **{name: plain(vars(curve)) for name, curve in utility.curves.items()},
    }


def _short(epsilon: float) -> str:
    return "unknown" if math.isnan(epsilon) else lower_text(epsilon, 3)
