"""The result of :func:`expost.choose_epsilon`: the recommended ε, the reasons, and every row."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from expost.epsilon.frontier import FrontierCurve
from expost.epsilon.limit import Plan, PosteriorLimit
from expost.epsilon.recommend import Recommendation
from expost.epsilon.sampled import Sweep
from expost.epsilon.sweep import Pair
from expost.epsilon.utility import Utility
from expost.files.atomic import write_bytes
from expost.files.parts import Part
from expost.files.sealed import plain
from expost.mechanisms import Mechanism
from expost.mechanisms.base import mechanism_name
from expost.numbers import lower_text
from expost.results import ScalarTable
from expost.types import Audience, FloatArray, IntArray

__all__ = ["TABLE", "EpsilonChoice", "Posteriors"]

_FORMAT = "expost-epsilon/4"
# The table with a line for each row: a file, or a folder of parts.
TABLE = Audience.CURATOR_ONLY.file_name("epsilon", "parquet")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EpsilonChoice(ScalarTable):
    """The recommended ε for these rows, and the reasons. Curator-only.

    Parameters
    ----------
    sweep : Sweep
        All rows' losses over ε (:mod:`expost.epsilon.sweep`, :mod:`.sampled`): the transition of
        LeBlond et al. (2023), which explains and does not decide.
    limit : PosteriorLimit
        The posterior that no row may pass.
    utility : Utility | None
        Held-out log loss, AUC and accuracy (R²) of released models, or None.
    recommendation : Recommendation
        The verdict, the ε and what it follows from.
    description : str
        What would be released, in one line.
    read_from_data : tuple[str, ...], default=()
        The constants of the model that were read from the data, as the choice was.
    notices : tuple[str, ...], default=()
        What else the reader must know, a sentence each.
    plan : Plan, optional
        How a model would be released at each ε; None of a black box.
    alternatives : tuple[FrontierCurve, ...], default=()
        The other mechanisms and noises that take the loss, each over a few ε; empty where the
        utility was not measured. A curve without an ε is of a mechanism that refused.
    is_public : bool, default=False
        Whether posteriors are bounded by public constants, and not by the sweep.
    ids : tuple[Any, ...], optional
        The rows' keys, or None: rows are then counted from 0.
    parts : Mapping[int, Part], optional
        Of rows that are read in blocks: the parts of the table with each row's figures; None where
        rows are in memory.

    Notes
    -----
    ``expected`` and ``ranked`` are computed on first use.
    """

    sweep: Sweep
    limit: PosteriorLimit
    utility: Utility | None
    recommendation: Recommendation
    description: str
    read_from_data: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    plan: Plan | None = None
    alternatives: tuple[FrontierCurve, ...] = ()
    is_public: bool = False
    ids: tuple[Any, ...] | None = None
    parts: Mapping[int, Part] | None = None

    audience = Audience.CURATOR_ONLY

    @property
    def verdict(self) -> str:
        """The verdict: "enough", "most", "none" or "useless"."""
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
        """The approximate number of rows that would be enough within the limit, or None."""
        return self.recommendation.rows_needed

    @property
    def epsilons(self) -> FloatArray:
        """(k,) the values of ε that were tried, ascending."""
        return self.sweep.epsilons

    @property
    def low(self) -> float:
        """The largest ε at which every row is still on its first plateau."""
        return self.sweep.low

    @property
    def high(self) -> float:
        """The smallest ε at which the requested share of rows has reached its second regime."""
        return self.sweep.high

    @property
    def recommended(self) -> float | None:
        """The ε to use; None for the verdicts "none" and "useless"."""
        return self.recommendation.epsilon

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
        """Bound the posterior of the most exposed row at the quantile, for each of ``epsilons``.

        Parameters
        ----------
        epsilons : FloatArray
            (k,) values of ε > 0.

        Returns
        -------
        FloatArray
            (k,) the bounds.
        """
        if self.plan is None or not self.is_public:
            return self.sweep.posterior(epsilons)
        each = (self.plan(float(epsilon)) for epsilon in epsilons)
        return np.array([self.limit.of_a_row(mechanism) for mechanism in each])

    @cached_property
    def frontier(self) -> tuple[FrontierCurve, ...]:
        """The leading measure and the posterior over ε: of this mechanism, then of the others.

        Empty where the utility was not measured.
        """
        if self.utility is None or self.plan is None:
            return ()
        mechanism, epsilons = self.plan(float(self.utility.epsilons[-1])), self.utility.epsilons
        own = FrontierCurve(
            name=mechanism_name(mechanism.kind, mechanism.noise),
            epsilons=epsilons,
            score=self.utility.leading.mean,
            posterior=self.posterior_at(epsilons),
        )
        return own, *(curve for curve in self.alternatives if len(curve.epsilons))

    @property
    def not_compared(self) -> tuple[str, ...]:
        """The names of the mechanisms that refused every ε at which others were measured."""
        return tuple(curve.name for curve in self.alternatives if not len(curve.epsilons))

    @cached_property
    def posteriors(self) -> "Posteriors | None":
        """Bounds at the recommended ε (the ceiling, if none is); None where the sweep has them."""
        mechanism = self.mechanism
        if mechanism is None or not self.is_public:
            return None
        return Posteriors(
            epsilon=mechanism.epsilon,
            row=self.limit.of_a_row(mechanism),
            all_rows=self.limit.of_all_rows(mechanism),
            certainty=self.limit.certainty(mechanism),
        )

    @property
    def expected(self) -> FloatArray:
        """(k, n) E∣loss∣ of every row over θ ~ p(· ∣ D), by quadrature (LeBlond 4.4).

        Of a sampled mechanism, the mean over its models: ``sweep.expected_error`` belongs to it.
        """
        return self.sweep.expected

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
        """The error of a rank of ``ranked`` as a share of rows: 0 if all rows were ranked."""
        return self.sweep.ranked.rank_error

    def __repr__(self) -> str:
        recommended = "none" if self.recommended is None else lower_text(self.recommended, 4)
        ceiling = lower_text(self.ceiling, 4)
        return (
            f"EpsilonChoice(verdict={self.verdict!r}, recommended={recommended}, ceiling={ceiling})"
        )

    def noise_ratios(self, epsilons: FloatArray) -> FloatArray | None:
        """Return (k,) the noise ratio at each of ``epsilons`` (:mod:`expost.forecast`), or None.

        Parameters
        ----------
        epsilons : FloatArray
            (k,) values of ε > 0.

        Returns
        -------
        FloatArray | None
            (k,) the ratios; None of a black box.
        """
        if self.plan is None:
            return None
        return np.array([self.plan(float(e)).forecast.noise_ratio for e in epsilons])

    def columns(self) -> dict[str, Any]:
        """Return every per-row figure, by name."""
        keys = {} if self.ids is None else {"id": list(self.ids)}
        return {"row": np.arange(self.sweep.rows), **keys, **self.sweep.row_columns()}

    def scalars(self) -> dict[str, Any]:
        """Return the number of rows; the recommended ε was read from them, and is not public.

        Returns
        -------
        dict[str, Any]
            The scalars by name.
        """
        return {"n": self.sweep.rows}

    def to_json(self, path: str | Path | None = None) -> str | Path:
        """Return the choice as a JSON string, or write it to a CURATOR-ONLY file.

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
            "better": self.recommendation.better,
            "required_share": self.recommendation.required_share,
            "low": plain(self.low, missing=True),
            "high": plain(self.high, missing=True),
            "measure": self.sweep.measure,
            **vars(self.limit),
            "posteriors": None if self.posteriors is None else vars(self.posteriors),
            "epsilons": self.epsilons.tolist(),
            "posterior": self.posterior.tolist(),
            "one_sidedness": plain(self.one_sidedness._asdict(), missing=True),
            "utility": None if self.utility is None else _utility_fields(self.utility),
            "frontier": [plain(vars(curve), missing=True) for curve in self.frontier],
            "not_compared": list(self.not_compared),
            "table": plain(self.columns(), missing=True) if self.parts is None else TABLE,
            "read_from_data": list(self.read_from_data),
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

    Parameters
    ----------
    row : float
        The posterior of one row that is fixed before the noise is drawn.
    all_rows : float
        The largest of all rows of one release.
    certainty : float
        max(posterior, 1 − posterior) of one row.
    """

    epsilon: float
    row: float
    all_rows: float
    certainty: float
