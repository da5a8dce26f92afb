"""The answer of :func:`expost.choose_epsilon`: which ε, why, and where every row stands."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from expost.epsilon.limit import Plan, PosteriorLimit
from expost.epsilon.recommend import MEASURE_NAMES, Recommendation, score_text
from expost.epsilon.sampled import Sweep
from expost.epsilon.sweep import Pair
from expost.epsilon.utility import Utility
from expost.files.atomic import write_bytes
from expost.files.parts import Part
from expost.files.sealed import plain
from expost.mechanisms import Mechanism
from expost.results import RowTable
from expost.rounding import fixed, lower_text, percent_at_most, trimmed, upper_text
from expost.types import Audience, FloatArray, IntArray

__all__ = [
    "TABLE",
    "EpsilonChoice",
    "Posteriors",
    "posterior_sentences",
    "share_text",
    "transition_sentence",
]

_FORMAT = "expost-epsilon/3"
# The table with a line for each row: a file, or a folder of parts.
TABLE = Audience.FAIL.file_name("epsilon", "parquet")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EpsilonChoice(RowTable):
    """Which ε is worth using on these rows. For the curator only.

    ``recommendation``  the verdict, the ε and the reasons.
    ``limit``        the posterior that no row may pass.
    ``utility``      held-out log loss, AUC and accuracy (R²) of released models, or None.
    ``sweep``        all rows' losses over ε (:mod:`expost.epsilon.sweep`, :mod:`.sampled`): the
                     transition of LeBlond et al. (2023), which explains and does not decide.
    ``plan``         how a model would be released at each ε; None of a black box.
    ``is_public``    whether posteriors are bounded by public constants, and not by the sweep.
    ``description``  what would be released, in one line.
    ``notices``      what the reader must know: the cost of choosing, bounds read from the data.
    ``ids``          the rows' keys, or None: rows are then counted from 0.
    ``parts``        of rows that are read in blocks: the parts of the table with each row's
                     figures; None where rows are in memory.

    ``typical`` and ``ranked`` are computed when they are first asked for.
    """

    sweep: Sweep
    limit: PosteriorLimit
    utility: Utility | None
    recommendation: Recommendation
    description: str
    notices: tuple[str, ...]
    plan: Plan | None = None
    is_public: bool = False
    ids: tuple[Any, ...] | None = None
    parts: Mapping[int, Part] | None = None

    audience = Audience.FAIL

    @property
    def verdict(self) -> str:
        """enough, most, none or useless."""
        return self.recommendation.verdict.value

    @property
    def ceiling(self) -> float:
        """The largest ε that keeps the limit; 0 where none does."""
        return self.recommendation.ceiling

    @property
    def enough(self) -> float | None:
        """The smallest ε tried that is enough, or would be; None if none is."""
        return self.recommendation.enough

    @property
    def share(self) -> float | None:
        """The share of the best reachable gain at the recommended ε, or at the ceiling."""
        return self.recommendation.share

    @property
    def rows_needed(self) -> int | None:
        """About how many rows would be enough within the limit; None where they are, or unknown."""
        return self.recommendation.rows_needed

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
    def mechanism(self) -> Mechanism | None:
        """How a model would be released at the recommended ε (the ceiling, if none is)."""
        at = self.recommended or self.ceiling
        return None if self.plan is None or not at > 0 else self.plan(at)

    @cached_property
    def posterior(self) -> FloatArray:
        """(k,) the posterior of the most exposed row at the limit's quantile, over ``epsilons``."""
        return self.posterior_at(self.epsilons)

    def posterior_at(self, epsilons: FloatArray) -> FloatArray:
        """Bound the posterior of the most exposed row at the quantile, for each of ``epsilons``."""
        if self.plan is None or not self.is_public:
            return self.sweep.posterior(epsilons)
        each = (self.plan(float(epsilon)) for epsilon in epsilons)
        return np.array([self.limit.of_a_row(mechanism) for mechanism in each])

    @cached_property
    def posteriors(self) -> "Posteriors | None":
        """Bounds at the recommended ε (the ceiling, if none is); None where the sweep has them."""
        how = self.mechanism
        if how is None or not self.is_public:
            return None
        return Posteriors(
            epsilon=how.epsilon,
            row=self.limit.of_a_row(how),
            all_rows=self.limit.of_all_rows(how),
            certainty=self.limit.certainty(how),
        )

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
        ceiling = lower_text(self.ceiling, 4)
        return f"EpsilonChoice(verdict={self.verdict!r}, recommended={found}, ceiling={ceiling})"

    def __str__(self) -> str:
        return "\n".join([*self.lines(), *(f"! {notice}" for notice in self.notices)])

    def lines(self) -> list[str]:
        """The answer for a person; no row's values."""
        lines = [
            *self.reasons,
            *posterior_sentences(self),
            transition_sentence(self),
            f"model        {self.description}",
            *self._table_lines(),
        ]
        return [*lines, f"mark         {self.audience.value}: {self.audience.meaning}"]

    def _table_lines(self) -> list[str]:
        """Return the scores over ε, as a table of fixed width."""
        utility = self.utility
        if utility is None:
            return []
        names = list(utility.curves)
        ratios = self.noise_ratios(utility.epsilons)
        headings = ["epsilon", "r", *(MEASURE_NAMES[name] for name in names), "share", "posterior"]
        rows = []
        shares = utility.leading.share
        posteriors = self.posterior_at(utility.epsilons)
        for place, epsilon in enumerate(utility.epsilons.tolist()):
            scores = [score_text(name, float(utility.curves[name].mean[place])) for name in names]
            worth = (
                ""
                if math.isnan(shares[place])
                else f"{fixed(float(shares[place]), 0, 'down', percent=True)} %"
            )
            mark = " *" if epsilon == self.recommended else ""
            posterior = percent_at_most(float(posteriors[place]))
            ratio = "" if ratios is None else f"{ratios[place]:.2g}"
            rows.append([f"{epsilon:g}{mark}", ratio, *scores, worth, posterior])
        rows.append(
            [
                "best",
                "",
                *(score_text(name, utility.curves[name].best) for name in names),
                "100 %",
                "",
            ]
        )
        rows.append(
            [
                "base rate",
                "",
                *(score_text(name, utility.curves[name].base_rate) for name in names),
                "0 %",
                "",
            ]
        )
        widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
        return [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (headings, *rows)
        ]

    def noise_ratios(self, epsilons: FloatArray) -> FloatArray | None:
        """(k,) the noise ratio r at each of ``epsilons`` (:mod:`expost.forecast`); None unknown."""
        if self.plan is None:
            return None
        return np.array([self.plan(float(e)).forecast.noise_ratio for e in epsilons])

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
            "verdict": self.verdict,
            "recommended": self.recommended,
            "ceiling": plain(self.ceiling, missing=True),
            "enough": self.enough,
            "share": self.share,
            "rows_needed": self.rows_needed,
            "columns_needed": self.recommendation.columns_needed,
            "reasons": list(self.reasons),
            "low": plain(self.low, missing=True),
            "high": plain(self.high, missing=True),
            "measure": self.sweep.measure,
            **vars(self.limit),
            "posteriors": None if self.posteriors is None else vars(self.posteriors),
            "epsilons": self.epsilons.tolist(),
            "posterior": self.posterior.tolist(),
            "one_sidedness": plain(self.one_sidedness._asdict(), missing=True),
            "utility": None if self.utility is None else _utility_fields(self.utility),
            "table": plain(self.columns(), missing=True) if self.parts is None else TABLE,
            "notices": list(self.notices),
        }


def _utility_fields(utility: Utility) -> dict[str, Any]:
    return {
        "epsilons": utility.epsilons.tolist(),
        "measure": utility.measure,
        "folds": utility.folds,
        "releases": utility.folds * utility.releases,
        "rows": utility.rows,
        **{
            name: plain(vars(curve) | {"share": curve.share}, missing=True)
            for name, curve in utility.curves.items()
        },
    }


@dataclass(frozen=True, kw_only=True)
class Posteriors:
    """Bounds on posteriors at one ε, at the limit's quantile over releases.

    ``row``        of one row that is fixed before the noise is drawn.
    ``all_rows``   the largest of all rows of one release.
    ``certainty``  max(posterior, 1 − posterior) of one row.
    """

    epsilon: float
    row: float
    all_rows: float
    certainty: float


def posterior_sentences(choice: EpsilonChoice) -> list[str]:
    """Say what an attacker may learn at the recommended ε, or at the ceiling."""
    limit, found = choice.limit, choice.posteriors
    share = share_text(limit.quantile)
    if found is None:
        at = choice.recommended or choice.ceiling
        if not at > 0:
            return []
        largest = float(choice.posterior_at(np.array([at]))[0])
        return [
            f"At ε = {_short(at)} the posterior probability that the most exposed row was in the"
            f" training data is at most {percent_at_most(largest)} in {share} of releases, from a"
            f" prior of {share_text(limit.prior)} (limit {share_text(limit.max_posterior)})."
        ]
    return [
        f"At ε = {_short(found.epsilon)} the posterior probability that a row was in the training"
        f" data is at most {percent_at_most(found.row)} in {share} of releases, whichever row it"
        f" is, from a prior of {share_text(limit.prior)} (limit"
        f" {share_text(limit.max_posterior)}); the largest over all rows of one release is at most"
        f" {percent_at_most(found.all_rows)}, the certainty about one row, present or absent, at"
        f" most {percent_at_most(found.certainty)}, each in {share} of releases."
    ]


def transition_sentence(choice: EpsilonChoice) -> str:
    """Say where the transition of LeBlond et al. (2023) lies, and on which side the choice is."""
    low, high = choice.low, choice.high
    many = f"{share_text(choice.sweep.share)} of the rows"
    if math.isnan(low):
        begins = "Where the transition begins was not found"
    elif low > 0:
        about = "about " if choice.is_public else ""
        begins = f"Up to ε = {_short(low)} the exposure of every row shrinks {about}in step with ε"
    else:
        begins = "At no ε does the exposure of every row shrink in step with ε"
    if math.isnan(high):
        ends = "where it ends was not found"
    elif high < math.inf:
        ends = f"from ε = {upper_text(high, 3)} on {many} have hardly any protection left"
    else:
        ends = f"no ε leaves {many} without protection"
    return f"{begins}; {ends} (the transition)."


def share_text(value: float) -> str:
    """Return a given share as a percentage, every digit of it."""
    return f"{trimmed(fixed(value, 6, percent=True))} %"


def _short(epsilon: float) -> str:
    return lower_text(epsilon, 3)
