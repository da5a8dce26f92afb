"""The privacy profile: how much one released model gives each row away (LeBlond 4.3).

A set of views of the one vector that the mechanism gives.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from expost._order import rank_numbers, ranking
from expost.files.atomic import write_bytes
from expost.files.sealed import plain
from expost.groups.columns import printable
from expost.groups.exposure import Explanation, Grouping, explain_exposure, group_exposure
from expost.mechanisms import RowLosses
from expost.neighbouring.neighbours import Neighbours
from expost.profiles.figures import BELIEF, ProfileFigures
from expost.profiles.posterior import RowIdentifiability
from expost.results import RowTable
from expost.types import Audience, FloatArray, IntArray

__all__ = ["PrivacyProfile"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PrivacyProfile(RowTable):
    """How much one released model gives each row away. For the curator only.

    ``losses``      what the mechanism says of each row (see :class:`~expost.mechanisms.RowLosses`).
    ``description`` the model in one line.
    ``ids``         the rows' keys, or None: rows are then counted from 0.
    ``owner``       (rows,) the person of each row, where all rows of a person are removed at once:
                    every figure is then one of a person. None: rows are on their own.
    ``notices``     what the reader must know: choices read from the data, missing noise.
    """

    losses: RowLosses
    description: str
    rows: int
    ids: tuple[Any, ...] | None = None
    owner: IntArray | None = None
    notices: tuple[str, ...] = ()
    neighbours: Neighbours | None = field(default=None)

    audience = Audience.FAIL

    @property
    def loss(self) -> FloatArray:
        """(n,) log p(θ ∣ D) − log p(θ ∣ D₋ᵢ), in nats; > 0: evidence that the row was there."""
        return self.losses.loss

    @property
    def loss_low(self) -> FloatArray:
        """(n,) the lower end of each loss's proved interval."""
        return self.losses.low

    @property
    def loss_high(self) -> FloatArray:
        """(n,) the upper end of each loss's proved interval."""
        return self.losses.high

    @property
    def distance(self) -> FloatArray:
        """(n,) how far removing the row moves the minimiser (objective perturbation: ∇J at θ)."""
        return self.losses.distance

    @property
    def exposure(self) -> FloatArray:
        """(n,) ∣loss∣ (LeBlond Eq. 2)."""
        return np.abs(self.loss)

    @cached_property
    def ranking(self) -> IntArray:
        """(n,) row indices, most exposed first; equal exposures by distance, then by index."""
        return ranking(self.exposure, self.distance)

    @property
    def ranked(self) -> FloatArray:
        """(n,) exposures ascending: the paper's privacy profile."""
        return np.sort(self.exposure)

    @property
    def belief(self) -> FloatArray:
        """(n,) sigmoid(loss): an undecided attacker's belief that the row was in the data."""
        return expit(self.loss)

    @property
    def confidence(self) -> FloatArray:
        """(n,) sigmoid(exposure): how sure that attacker is, in or out (D5.3 Lemma 1)."""
        return expit(self.exposure)

    @property
    def typical(self) -> FloatArray:
        """(n,) E∣loss∣ over θ ~ p(· ∣ D) (LeBlond 4.4).

        By quadrature of the exact law; under objective perturbation from sampled releases.
        """
        return self._typical[0]

    @property
    def typical_error(self) -> FloatArray:
        """(n,) the standard error of ``typical``: of sampling, 0 where nothing is sampled."""
        return self._typical[1]

    @cached_property
    def _typical(self) -> tuple[FloatArray, FloatArray]:
        if self.losses.sampled is not None:
            return self.losses.sampled()
        exact = self.exposure if self.losses.law is None else self.losses.law.expected_exposure
        return exact, np.zeros(len(self))

    @cached_property
    def sizes(self) -> IntArray | None:
        """How many rows each person has; None where rows are on their own."""
        return None if self.owner is None else np.bincount(self.owner, minlength=len(self))

    @property
    def worst_case(self) -> float:
        """The exposure that the mechanism promises (pure ε), or its ε at δ."""
        return self.losses.worst_case

    @property
    def promise_broken(self) -> bool:
        """Whether a row's exposure is proved to pass an ε that was promised without exception."""
        return self.rows_past_promise > 0

    @property
    def rows_past_promise(self) -> int:
        """How many rows do; never any where ε may be passed with some probability."""
        if self.losses.worst_case_passed > 0:
            return 0
        return int(np.count_nonzero(self._least_exposure > self.worst_case))

    @property
    def _least_exposure(self) -> FloatArray:
        """(n,) the lower end of each exposure's proved interval."""
        return np.maximum(np.maximum(self.loss_low, -self.loss_high), 0.0)

    @property
    def is_noiseless(self) -> bool:
        """Whether the model carries no noise, so that only distances tell rows apart."""
        return self.losses.noiseless

    def by(self, column: Any, *, name: str = "column", bins: int = 4) -> Grouping:
        """The exposures by the levels, or the quantile bins, of a column with a cell a row.

        Of persons: each row counts with its person's exposure (rows of exposed persons). A cell a
        person is spread over her rows by ``cells[profile.owner]``.
        """
        return group_exposure(self._scores, column, name=name, bins=bins, owner=self.owner)

    def explain(
        self, X: Any, *, feature_names: Sequence[str] | None = None, depth: int = 3
    ) -> Explanation:
        """The groups that hold the exposed rows, as a shallow decision tree over ``X`` (n, …).

        Of persons: the rows of exposed persons, as in ``by``.
        """
        return explain_exposure(
            self._scores, X, feature_names=feature_names, depth=depth, owner=self.owner
        )

    def identifiability(self, prior: float = 0.5) -> RowIdentifiability:
        """What an attacker who held ``prior`` beforehand can tell of each row (D5.3)."""
        return RowIdentifiability(
            losses=self.losses,
            prior=prior,
            description=self.description,
            ids=self.ids,
            notices=self.notices,
            unit=self._noun,
        )

    @property
    def _scores(self) -> FloatArray:
        return self.distance if self.is_noiseless else self.exposure

    def __len__(self) -> int:
        return len(self.loss)

    def __repr__(self) -> str:
        return f"PrivacyProfile({len(self)} {self._noun}s, {self.description})"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Ten readable lines; no row's values, but ranks and exposures: curator only."""
        return self.figures.lines()

    @cached_property
    def figures(self) -> ProfileFigures:
        """What is said of all rows together."""
        scores, exposure = self._scores, self.exposure
        # As on the page: so many rows are exposed by at most that.
        middle, late = np.quantile(scores, (0.5, 0.99), method="inverted_cdf")
        known = self.losses.law is not None or self.losses.sampled is not None
        ends = np.maximum(np.abs(self.loss_low), np.abs(self.loss_high))
        with np.errstate(invalid="ignore"):
            width = float(np.max(self.loss_high - self.loss_low))
        return ProfileFigures(
            description=self.description,
            relation=self.losses.relation,
            count=len(self),
            rows=self.rows,
            most_rows=None if self.sizes is None else int(np.max(self.sizes)),
            noiseless=self.is_noiseless,
            middle=float(np.median(scores)) if self.is_noiseless else float(middle),
            late=float(late),
            largest=float(np.max(scores)),
            typical=(float(np.median(self.typical)), float(np.max(self.typical)))
            if known
            else None,
            worst_case=self.worst_case,
            worst_case_passed=self.losses.worst_case_passed,
            least_exposure=float(np.max(self._least_exposure)),
            outer=float(np.max(ends)),
            width=width,
            past_promise=int(np.count_nonzero(exposure > self.worst_case)),
            proved_past=int(np.count_nonzero(self._least_exposure > self.worst_case)),
            past_belief=int(np.count_nonzero(self.confidence > BELIEF)),
            inside=int(np.count_nonzero(self.loss > 0)),
            top=tuple(printable(self.key(int(row))) for row in self.ranking[:5]),
        )

    @property
    def _noun(self) -> str:
        return "row" if self.sizes is None else "person"

    def key(self, row: int) -> Any:
        """The id of a row, or its index."""
        return row if self.ids is None else self.ids[row]

    def columns(self) -> dict[str, Any]:
        """Every per-row figure, by name."""
        columns: dict[str, Any] = {self._noun: np.arange(len(self))}
        if self.ids is not None:
            columns["id"] = list(self.ids)
        if self.sizes is not None:
            columns["rows"] = self.sizes
        columns |= {
            "rank": rank_numbers(self.ranking),
            "loss": self.loss,
            "loss_low": self.loss_low,
            "loss_high": self.loss_high,
            "exposure": self.exposure,
            "belief": self.belief,
            "confidence": self.confidence,
            "typical": self.typical,
            "distance": self.distance,
            "distance_error": self.losses.distance_error,
        }
        return columns

    def to_json(self, path: str | Path | None = None) -> str | Path:
        """The table by columns, as JSON text, or written to a CURATOR-ONLY file."""
        value = {
            "format": "expost-profile/1",
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "model": self.description,
            "relation": self.losses.relation.value,
            "unit": self._noun,
            "worst_case": plain(self.worst_case),
            "promise_broken": self.promise_broken,
            "notices": list(self.notices),
            "rows": plain(self.columns()),
        }
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        if path is None:
            return text
        return write_bytes(self.audience.path(path), self.audience, text.encode())
