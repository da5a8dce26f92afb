"""The privacy profile: the privacy loss of each row under one released model (LeBlond 4.3).

Every figure of a row follows from the one vector of losses that the mechanism gives. Every figure
of all rows together follows from their digest (:mod:`expost.profiles.digest`), in memory and for
rows that were processed in blocks alike.

Conventions
-----------
maxima, counts     exact, and so are the ranks of the most exposed rows;
quantiles          exact in memory; of rows in blocks rounded up, by 2⁻⁹ of themselves at most;
ranks in parts     ± their own ``rank_error``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from expost import _checks
from expost._order import OrderStatistics, Sorted, rank_numbers, ranking
from expost.engine import engine_of
from expost.errors import InvalidInput
from expost.files.sealed import plain
from expost.forecast import Forecast
from expost.groups.exposure import (
    Explanation,
    Grouping,
    RowScores,
    checked_depth,
    explain_exposure,
    group_exposure,
)
from expost.mechanisms import Mechanism, RowLosses
from expost.neighbouring.neighbours import Neighbours
from expost.noise import LossLaw
from expost.profiles.attackers import Attackers
from expost.profiles.digest import FIGURES, Digest, RowFigures, Terms, figure_columns
from expost.profiles.fit import FitScores, useless_sentence
from expost.profiles.left_out import LeftOut, TopRows
from expost.profiles.parts import RowParts
from expost.profiles.posterior import RowIdentifiability
from expost.release import Release, public_scalars
from expost.results import ScalarTable
from expost.types import Audience, FloatArray, IntArray, Neighbouring

__all__ = ["Profile"]

FORMAT = "expost-profile/2"
_SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)
_TOP_ROWS = 20
# The figures of the most exposed rows, and more of models without noise.
_TOP_FIGURES = ("loss", "loss_low", "loss_high", "expected", "distance")
_LEFT_OUT_FIGURES = ("distance_error", "prediction", "prediction_without")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Profile(ScalarTable):
    """The privacy loss of every row under one released model. Curator-only.

    Parameters
    ----------
    losses : RowLosses, optional
        What the mechanism states of each row (:class:`~expost.mechanisms.RowLosses`), where all
        rows are held in memory; else None.
    parts : RowParts, optional
        The rows that were processed in blocks and lie on the disk; else None.
    description : str
        The model in one line.
    rows : int
        The number of rows of the table.
    ids : tuple[Any, ...], optional
        The rows' keys, or None: rows are then counted from 0.
    owner : IntArray, optional
        (rows,) the person of each row, where all rows of a person are removed at once: every figure
        is then one of a person. None: rows are on their own.
    notices : tuple[str, ...], default=()
        What the reader must know: choices read from the data, missing noise.
    release : Release, optional
        The model, where it is known.
    mechanism : Mechanism, optional
        How θ was drawn, where it is known.
    fit : FitScores, optional
        How well the model predicts its rows, where it is known.
    forecast : Forecast, optional
        What the noise leaves of the model's quality, where it is known.
    guarantee : tuple[str, ...], default=()
        What the mechanism guarantees, in sentences: its relation, and δ at other ε.
    left_out : LeftOut, optional
        How the predictions of the rows change when each of them leaves: of a model without noise.
    top : TopRows, optional
        The rows that were refined: of a model without noise.
    model_distance : float, optional
        A bound on the distance of the model from the minimiser: of a model without noise.
    attackers : Attackers, optional
        Who sees what of a training, where losses are those of its transcript.

    Notes
    -----
    The arrays with one figure for each row, and :meth:`columns`, exist where :attr:`is_held`;
    :meth:`batches`, :meth:`most`, the figures of all rows and the files exist always.
    """

    losses: RowLosses | None = None
    parts: RowParts | None = None
    description: str
    rows: int
    ids: tuple[Any, ...] | None = None
    owner: IntArray | None = None
    notices: tuple[str, ...] = ()
    release: Release | None = None
    mechanism: Mechanism | None = None
    fit: FitScores | None = None
    forecast: Forecast | None = None
    guarantee: tuple[str, ...] = ()
    left_out: LeftOut | None = None
    top: TopRows | None = None
    model_distance: float | None = None
    attackers: Attackers | None = None

    audience = Audience.CURATOR_ONLY

    def __post_init__(self) -> None:
        if (self.losses is None) == (self.parts is None):
            raise InvalidInput("losses, parts: give the losses in memory or the parts on the disk.")

    # -- all rows together ---------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether every row's figures are held in memory."""
        return self.losses is not None

    @property
    def neighbours(self) -> Neighbours | None:
        """The leave-one-out minimisers of rows in memory, where losses follow from them."""
        return None if self.losses is None else self.losses.neighbours

    @cached_property
    def terms(self) -> Terms:
        """What the mechanism guarantees about each row."""
        return Terms.of(self._held) if self.parts is None else self.parts.terms

    @cached_property
    def digest(self) -> Digest:
        """The figures of all rows together, except expected exposures of rows in memory."""
        if self.parts is not None:
            return self.parts.digest
        columns = figure_columns(RowFigures(losses=self._held))
        return Digest.of(columns, self.terms, ids=self.ids)

    @property
    def scores(self) -> OrderStatistics:
        """The order statistics of exposures, or of distances where there is no noise."""
        return self.digest.scores

    @cached_property
    def expected_scores(self) -> OrderStatistics | None:
        """The order statistics of expected exposures; None without noise or if not known."""
        if self.parts is not None:
            return self.parts.digest.expected
        return None if self.is_noiseless else Sorted(self.expected)

    @property
    def relation(self) -> Neighbouring:
        """The neighbouring relation."""
        return self.terms.relation

    @property
    def worst_case(self) -> float:
        """The exposure that the mechanism guarantees (pure ε), or its ε at δ."""
        return self.terms.worst_case

    @property
    def is_noiseless(self) -> bool:
        """Whether the model carries no noise, so that rows are compared by distance."""
        return self.terms.noiseless

    @property
    def useless(self) -> str | None:
        """The warning for a model that is not better than the base rate; None for others."""
        return useless_sentence(self.fit, self.forecast)

    @property
    def guarantee_exceeded(self) -> bool:
        """Whether an exposure certifiably exceeds an ε that was guaranteed without exception."""
        return self.rows_past_guarantee > 0

    @property
    def rows_past_guarantee(self) -> int:
        """The number of such rows; 0 if ε may be exceeded with some probability."""
        return 0 if self.terms.worst_case_passed > 0 else self.digest.proved_past

    def quantile(self, share: float) -> float:
        """Return the least score that at least this ``share`` of the rows do not exceed.

        Parameters
        ----------
        share : float
            The share of the rows, in [0, 1].

        Returns
        -------
        float
            The score: an exposure in nats, or a distance where there is no noise.
        """
        return float(self.scores.quantile(np.array([share]))[0])

    @property
    def unit(self) -> str:
        """The unit of every figure: "row" or "person"."""
        return "row" if self.owner is None else "person"

    @property
    def keyed(self) -> bool:
        """Whether rows have ids; else they are counted from 0."""
        if self.parts is not None:
            return "id" in self.parts.most.column_names
        return self.ids is not None

    # -- one figure for each row ---------------------------------------------------------------

    @property
    def loss(self) -> FloatArray:
        """(n,) log p(θ ∣ D) − log p(θ ∣ D₋ᵢ), in nats; > 0: evidence that the row was there."""
        return self._figure("loss")

    @property
    def loss_low(self) -> FloatArray:
        """(n,) the lower end of each loss's certified interval."""
        return self._figure("loss_low")

    @property
    def loss_high(self) -> FloatArray:
        """(n,) the upper end of each loss's certified interval."""
        return self._figure("loss_high")

    @property
    def distance(self) -> FloatArray:
        """(n,) how far removing the row moves the minimiser (objective perturbation: ∇J at θ)."""
        return self._figure("distance")

    @property
    def distance_error(self) -> FloatArray:
        """(n,) a certified bound on the error of ``distance``."""
        return self._figure("distance_error")

    @property
    def prediction(self) -> FloatArray:
        """(n,) what the minimiser A(D) predicts for each row: models without noise only.

        A probability (logistic loss), else the linear predictor, of a regression in the units of
        the labels.
        """
        return self._prediction("prediction")

    @property
    def prediction_without(self) -> FloatArray:
        """(n,) what the leave-one-out minimiser A(D₋ᵢ) predicts for row i."""
        return self._prediction("prediction_without")

    @property
    def prediction_without_low(self) -> FloatArray:
        """(n,) the lower end of the certified interval of ``prediction_without``."""
        return self._prediction("prediction_without_low")

    @property
    def prediction_without_high(self) -> FloatArray:
        """(n,) the upper end of the certified interval of ``prediction_without``."""
        return self._prediction("prediction_without_high")

    def _prediction(self, name: str) -> FloatArray:
        if self._held.predictors is None:
            raise InvalidInput(
                f"{name}: is known for models without noise whose rows leave one at a time."
            )
        return self._figure(name)

    @property
    def exposure(self) -> FloatArray:
        """(n,) ∣loss∣ (LeBlond Eq. 2)."""
        return self._figure("exposure")

    @property
    def posterior(self) -> FloatArray:
        """(n,) sigmoid(loss): P(row was in the training data ∣ θ) from a prior of ½."""
        return self._figure("posterior")

    @property
    def certainty(self) -> FloatArray:
        """(n,) sigmoid(exposure): the larger of posterior and 1 − posterior (D5.3 Lemma 1)."""
        return self._figure("certainty")

    @property
    def expected(self) -> FloatArray:
        """(n,) E∣loss∣ over θ ~ p(· ∣ D) (LeBlond 4.4).

        By quadrature of the exact law; under objective perturbation from sampled releases.
        """
        return self._figure("expected")

    @property
    def expected_error(self) -> FloatArray:
        """(n,) the standard error of ``expected``: of sampling, 0 where nothing is sampled."""
        return self._expected[1]

    @cached_property
    def ranking(self) -> IntArray:
        """(n,) row indices, most exposed first; equal exposures by distance, then by index."""
        return ranking(self.exposure, self.distance)

    @property
    def ranked(self) -> FloatArray:
        """(n,) exposures ascending: the paper's privacy profile."""
        return np.sort(self.exposure)

    @cached_property
    def sizes(self) -> IntArray | None:
        """The number of rows of each person; None where rows are on their own."""
        return None if self.owner is None else np.bincount(self.owner, minlength=len(self))

    @cached_property
    def _expected(self) -> tuple[FloatArray, FloatArray]:
        losses = self._held
        if losses.sampled is not None:
            return losses.sampled()
        exact = self.exposure if losses.law is None else losses.law.expected_exposure
        return exact, np.zeros(len(self))

    @property
    def _held(self) -> RowLosses:
        """The losses of all rows in memory."""
        if self.losses is None:
            raise InvalidInput(
                "profile: its rows were processed in blocks and are not held in memory; read them"
                " with batches()."
            )
        return self.losses

    @property
    def _row_figures(self) -> RowFigures:
        return RowFigures(losses=self._held, expected=lambda: self._expected[0])

    def _figure(self, name: str) -> FloatArray:
        values = FIGURES[name](self._row_figures)
        assert values is not None
        return values

    @cached_property
    def _row_scores(self) -> RowScores:
        """The scores by which rows are grouped: of persons, each row has its person's score."""
        return RowScores.of(self._figure(self.terms.measure), self.owner)

    # -- views ---------------------------------------------------------------------------------

    def by(
        self, column: Any, *, name: str = "column", bins: int = 4, engine: Any = "local"
    ) -> Grouping:
        """Return the exposures by the levels, or the quantile bins, of a column.

        Parameters
        ----------
        column : Any
            A cell for each row; of rows in blocks the name of a column of their table.
        name : str, default="column"
            The column's name in the result.
        bins : int, default=4
            The number of quantile bins of a numeric column.
        engine : Any, default="local"
            Where rows in blocks are read again (:func:`expost.engine.engine_of`).

        Returns
        -------
        Grouping
            The groups with their numbers of rows and exposures.

        Raises
        ------
        InvalidInput
            If the column does not fit the rows.

        Notes
        -----
        Of persons: each row counts with its person's exposure (rows of exposed persons). A cell for
        each person is spread over the rows by ``cells[profile.owner]``.
        """
        if self.parts is not None:
            if not isinstance(column, str):
                raise InvalidInput("column: the rows were processed in blocks; name a column.")
            bins = _checks.integer("bins", bins, least=1)
            with engine_of(engine) as workers:
                return self.parts.cells.explored([column], workers, depth=None, bins=bins)[0][0]
        return group_exposure(self._row_scores, column, name=name, bins=bins)

    def explain(
        self,
        X: Any = None,
        *,
        feature_names: Sequence[str] | None = None,
        depth: int = 3,
        engine: Any = "local",
    ) -> Explanation:
        """Return the groups of exposed rows, as a shallow decision tree over ``X`` (n, …).

        Of rows in blocks leave ``X`` out: the tree is grown on the columns of their table, on a
        sample of at most 100,000 rows. Of persons: the rows of exposed persons, as in ``by``.

        Parameters
        ----------
        X : Any, optional
            The columns of the rows, a frame or an array; of rows in blocks None.
        feature_names : Sequence[str], optional
            The names of the columns of an array.
        depth : int, default=3
            The largest number of conditions of a group.
        engine : Any, default="local"
            Where rows in blocks are read again (:func:`expost.engine.engine_of`).

        Returns
        -------
        Explanation
            The groups as plain conditions.

        Raises
        ------
        InvalidInput
            If ``X`` does not fit the rows, or is given for rows in blocks.
        """
        if self.parts is not None:
            if X is not None or feature_names is not None:
                raise InvalidInput("X: the rows were processed in blocks; leave it out.")
            with engine_of(engine) as workers:
                explanation = self.parts.cells.explored((), workers, depth=checked_depth(depth))[1]
            assert explanation is not None
            return explanation
        return explain_exposure(self._row_scores, X, feature_names=feature_names, depth=depth)

    def identifiability(
        self, prior: float = 0.5, *, baseline: float | None = None
    ) -> RowIdentifiability:
        """Return the posterior of each row from this ``prior`` (D5.3).

        Parameters
        ----------
        prior : float, default=0.5
            The attacker's probability of presence before the release, in (0, 1).
        baseline : float, optional
            The probability with which an attack on a row succeeds without it, in (0, 1): adds the
            bound of each row on attacks beyond membership.

        Returns
        -------
        RowIdentifiability
            The posteriors with their intervals. Curator-only.
        """
        shared: dict[str, Any] = {
            "description": self.description,
            "notices": self.notices,
            "baseline": baseline,
            "attacker": "attacker" if self.attackers is None else self.attackers.noun,
        }
        if self.parts is None:
            return RowIdentifiability(
                losses=self._held, prior=prior, ids=self.ids, unit=self.unit, **shared
            )
        counted = self.digest.posterior
        if counted is None or counted.prior != prior:
            counted = self.parts.posterior(prior)
        rows = counted.extremes
        distance = np.array([row.distance for row in rows])
        error = np.array([row.distance_error for row in rows])
        losses = RowLosses(
            loss=np.array([row.loss for row in rows]),
            low=np.array([row.loss_low for row in rows]),
            high=np.array([row.loss_high for row in rows]),
            distance=distance,
            distance_error=error,
            law=law_at(self.release, distance),
            far_law=law_at(self.release, distance + error),
            **self.terms.__dict__,
        )
        keys = tuple(row.key for row in rows)
        return RowIdentifiability(losses=losses, counted=counted, prior=prior, ids=keys, **shared)

    def __len__(self) -> int:
        return self.digest.count if self.losses is None else len(self.losses.loss)

    def __repr__(self) -> str:
        useless = "" if self.useless is None else f"{self.useless} "
        return f"{useless}Profile({len(self)} {self.unit}s, {self.description})"

    @property
    def _expected_figures(self) -> tuple[float, float] | None:
        """The median and the largest expected exposure, if there is a law of the losses."""
        losses = self.losses
        if losses is not None and losses.law is None and losses.sampled is None:
            return None
        expected = self.expected_scores
        if expected is None:
            return None
        return float(expected.quantile(np.array([0.5]))[0]), expected.largest

    def key(self, row: int) -> Any:
        """Return the id of a row in memory, or its index.

        Parameters
        ----------
        row : int
            The row's number, counted from 0.

        Returns
        -------
        Any
            The id, or ``row`` where rows have none.
        """
        _ = self._held
        return row if self.ids is None else self.ids[row]

    # -- tables and files ----------------------------------------------------------------------

    def columns(self) -> dict[str, Any]:
        """Return every per-row figure by name: keys, rank, and the figures of the docs' table."""
        ranks = {"rank": rank_numbers(self.ranking)}
        return self._labels(np.arange(len(self))) | ranks | figure_columns(self._row_figures)

    def _labels(self, rows: IntArray) -> dict[str, Any]:
        """Return the columns that identify these rows, and the number of rows of each person."""
        columns: dict[str, Any] = {self.unit: rows}
        if self.ids is not None:
            columns["id"] = [self.ids[row] for row in rows.tolist()]
        if self.sizes is not None:
            columns["rows"] = self.sizes[rows]
        return columns

    def batches(self) -> Iterator[Any]:
        """Yield the table in its order, as pyarrow tables: one for each part, or one in memory.

        Yields
        ------
        Any
            A pyarrow table of some rows.
        """
        if self.parts is None:
            yield self.to_arrow()
        else:
            yield from self.parts.store.tables()

    def most(
        self,
        count: int = _TOP_ROWS,
        names: Sequence[str] | None = None,
    ) -> Any:
        """Return the ``count`` most exposed rows in order, as a pyarrow table.

        It holds the rows' numbers, ids and, of persons, numbers of rows, and the figures ``names``
        as far as they are known (None: losses, expected exposures and distances; of models without
        noise also the predictions). Of rows in blocks the 100,000 most exposed are kept.

        Parameters
        ----------
        count : int, optional
            The number of rows.
        names : Sequence[str], optional
            The figures to include.

        Returns
        -------
        Any
            A pyarrow table with at most ``count`` rows.
        """
        import pyarrow as pa

        if names is None:
            names = _TOP_FIGURES if self.left_out is None else (*_TOP_FIGURES, *_LEFT_OUT_FIGURES)
        if self.parts is not None:
            table = self.parts.most.slice(0, count)
            return table.select([n for n in ("row", "id", *names) if n in table.column_names])
        chosen = self.ranking[:count]
        figures = {name: self._figure(name)[chosen] for name in names}
        return pa.table(self._labels(chosen) | figures)

    def scalars(self) -> dict[str, Any]:
        """Return the public scalars of the model, and the number of rows.

        Returns
        -------
        dict[str, Any]
            The scalars by name.
        """
        mechanism = self.mechanism if self.release is None else self.release.mechanism
        return {"n": self.rows} | ({} if mechanism is None else public_scalars(mechanism))

    def _left_out_fields(self) -> dict[str, Any]:
        """Return what JSON holds of a model without noise; nothing of others."""
        if self.left_out is None:
            return {}
        return {
            "left_out": self.left_out.fields(),
            "top_rows": None if self.top is None else self.top.__dict__,
            "model_distance": self.model_distance,
        }

    def to_json(self, path: str | Path | None = None, *, table: str | None = None) -> str | Path:
        """Return the profile as a JSON string, or write it to a CURATOR-ONLY file.

        Parameters
        ----------
        path : str | Path, optional
            The path of the file; None returns the JSON string.
        table : str, optional
            The name of the file that holds the columns of the rows. By default they are part of
            the JSON, or in the folder of the parts if the rows were read in blocks.

        Returns
        -------
        str or Path
            The JSON string, or the path that was written.
        """
        digest, shares = self.digest, np.array(_SHARES)
        scores = self.scores.quantile(shares)
        expected = self.expected_scores
        expected_quantiles = None if expected is None else expected.quantile(shares)
        median, largest = self._expected_figures or (None, None)
        rows: Any = table
        if table is None:
            rows = self.columns() if self.parts is None else self.parts.store.folder.name
        value = {
            "format": FORMAT,
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "model": self.description,
            "identity": None if self.release is None else self.release.identity,
            "relation": self.relation.value,
            "unit": self.unit,
            "rows": self.rows,
            "measure": self.terms.measure,
            "worst_case": self.worst_case,
            "guarantee_exceeded": self.guarantee_exceeded,
            "guarantee": list(self.guarantee),
            "useless": self.useless,
            "fit": None if self.fit is None else self.fit.fields(),
            "forecast": None if self.forecast is None else self.forecast.fields(),
            **self._left_out_fields(),
            "figures": {
                "count": len(self),
                "median": self.quantile(0.5),
                "largest": self.scores.largest,
                "median_expected": median,
                "largest_expected": largest,
                "least_exposure": digest.least_exposure,
                "precision": digest.half_width,
                "unproved": digest.unproved,
                "past_guarantee": digest.past_guarantee,
                "proved_past": digest.proved_past,
                "past_posterior": digest.past_posterior,
                "evidence_in": digest.inside / len(self),
            },
            "quantiles": [
                {
                    "share": share,
                    "at_most": scores[index],
                    "expected": (None if expected_quantiles is None else expected_quantiles[index]),
                }
                for index, share in enumerate(_SHARES)
            ],
            "quantile_error": self.scores.error,
            "top": self.most().to_pylist(),
            "table": rows,
            "notices": list(self.notices),
        }
        if self.attackers is not None:
            value["training"] = self.attackers.fields()
        return self._json(plain(value), path)


def law_at(release: Release | None, distance: FloatArray) -> LossLaw | None:
    """Return the law of the losses at ``distance``, if it depends on the distance alone."""
    mechanism = None if release is None else release.mechanism.closed_form
    if mechanism is None or not mechanism.is_private:
        return None
    return mechanism.loss_law(distance / mechanism.resolution)
