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

import math
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
from expost.groups.columns import printable
from expost.groups.exposure import (
    Explanation,
    Grouping,
    checked_depth,
    explain_exposure,
    group_exposure,
)
from expost.mechanisms import RowLosses
from expost.neighbouring.neighbours import Neighbours
from expost.noise import LossLaw
from expost.profiles.digest import FIGURES, Digest, RowFigures, Terms, figure_columns
from expost.profiles.fit import FitScores, useless_sentence
from expost.profiles.parts import RowParts
from expost.profiles.posterior import RowIdentifiability
from expost.release import Release
from expost.results import RowTable
from expost.rounding import certainty_at_most, lower_text, nats, upper_text
from expost.types import Audience, FloatArray, IntArray, Neighbouring

__all__ = ["Profile", "ProfileFigures"]

_FORMAT = "expost-profile/2"
_SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)
_TOP_ROWS = 20


@dataclass(frozen=True, kw_only=True)
class ProfileFigures:
    """The aggregate figures that sentences about a profile are made of.

    ``count``           the number of rows, candidates or persons; ``rows`` of the table.
    ``most_rows``       the largest number of rows of a person; None where rows are on their own.
    ``median``, ``late``  the median score and its 99th percentile, each the score of a row.
    ``largest``         the largest score.
    ``expected``        the median and the largest expected exposure, where they are known.
    ``least_exposure``  the largest lower end of an exposure's certified interval.
    ``outer``           the largest upper end.
    ``width``           the widest certified interval of a loss; ∞ where a row has none, and 0
                        without noise.
    ``past_promise``, ``proved_past``  how many exposures pass the worst case, and provably;
                        ``rows_past_promise`` provably pass one promised without exception.
    ``past_posterior``  of how many an undecided attacker may be more certain than ``POSTERIOR``.
    ``inside``          of how many the loss is > 0.
    ``top``             the keys of the most exposed, as they are shown.
    ``useless``         what is said first of a model no better than the base rate; else None.
    ``forecast``        what the noise leaves of the model; None where it is not known.
    ``guarantee``       what the mechanism guarantees, in sentences.

    Scores are exposures, or distances where there is no noise.
    """

    description: str
    relation: Neighbouring
    count: int
    rows: int
    most_rows: int | None
    noiseless: bool
    median: float
    late: float
    largest: float
    expected: tuple[float, float] | None
    worst_case: float
    worst_case_passed: float
    least_exposure: float
    outer: float
    width: float
    past_promise: int
    proved_past: int
    rows_past_promise: int
    past_posterior: int
    inside: int
    top: tuple[str, ...]
    useless: str | None = None
    forecast: Forecast | None = None
    guarantee: tuple[str, ...] = ()

    audience = Audience.FAIL

    @property
    def unit(self) -> str:
        """What every figure is of."""
        return "row" if self.most_rows is None else "person"

    @property
    def promise_broken(self) -> bool:
        """Whether any exposure is proved to pass an ε that was promised without exception."""
        return self.rows_past_promise > 0

    def lines(self) -> list[str]:
        """Ten readable lines; no row's values, but ranks and exposures: curator only."""
        of_rows = "" if self.most_rows is None else f" with {self.rows} rows"
        title = f"Privacy profile of {self.count} {self.unit}s{of_rows} ({self.relation.value})"
        useless = [] if self.useless is None else [self.useless]
        return [
            *([self._broken, *useless] if self.promise_broken else [*useless, title]),
            f"model        {self.description}",
            *([] if self.forecast is None else [f"forecast     {self.forecast.label}"]),
            *(f"guarantee    {line}" for line in self.guarantee),
            *(self._noiseless if self.noiseless else self._noisy),
            f"most exposed {', '.join(self.top)}",
            f"mark         {self.audience.value}: {self.audience.meaning}",
        ]

    @property
    def _broken(self) -> str:
        promised = nats(upper_text(self.worst_case))
        verb = "was" if promised == "1 nat" else "were"
        return (
            f"PROMISE BROKEN: {self.rows_past_promise} of {self.count} {self.unit}s"
            f" ({self.relation.value}) lose more than the {promised} that {verb} promised, one of"
            f" them at least {lower_text(self.least_exposure, 3)}"
        )

    @property
    def _noiseless(self) -> list[str]:
        return [
            f"No noise: every loss is infinite, so {self.unit}s are ranked by how far they move θ.",
            f"distance     median {upper_text(self.median, 3)}, largest"
            f" {upper_text(self.largest, 3)}",
        ]

    @property
    def _noisy(self) -> list[str]:
        risk = self.worst_case_passed
        passed = f", except with probability {upper_text(risk, 3)}" if risk > 0 else ""
        return [
            f"exposure     median {upper_text(self.median, 3)}, 99 % {upper_text(self.late, 3)},"
            f" largest {nats(upper_text(self.largest, 3))}",
            *self._expected,
            f"worst case   at most {nats(upper_text(self.worst_case, 3))} promised, {self._anyone},"
            f" any data{passed}"
            if self.worst_case < np.inf
            else "worst case   none is promised",
            f"confidence   an undecided attacker is at most {certainty_at_most(self.outer)} sure of"
            f" any {self.unit}",
            f"direction    {self.inside / self.count:.0%} of {self.unit}s show evidence that they"
            " were in the data, the others that they were not",
            f"precision    every loss is proved to within {upper_text(self.width / 2, 2)} nats",
        ]

    @property
    def _expected(self) -> list[str]:
        if self.expected is None:
            return []
        median, largest = self.expected
        return [
            f"typical      median {upper_text(median, 3)}, largest {nats(upper_text(largest, 3))},"
            " the mean over all models it might be"
        ]

    @property
    def _anyone(self) -> str:
        if self.most_rows is None:
            return "any row"
        return f"any person of up to {self.most_rows} row{'s' if self.most_rows > 1 else ''}"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Profile(RowTable):
    """The privacy loss of every row under one released model. For the curator only.

    ``losses``      what the mechanism states of each row (:class:`~expost.mechanisms.RowLosses`),
                    where all rows are held in memory; else None.
    ``parts``       the rows that were processed in blocks and lie on the disk; else None.
    ``description`` the model in one line.
    ``rows``        the number of rows of the table.
    ``ids``         the rows' keys, or None: rows are then counted from 0.
    ``owner``       (rows,) the person of each row, where all rows of a person are removed at once:
                    every figure is then one of a person. None: rows are on their own.
    ``notices``     what the reader must know: choices read from the data, missing noise.
    ``release``     the model, where it is known.
    ``fit``         how well it predicts its rows, and ``forecast`` what its noise leaves of it,
                    where they are known.
    ``guarantee``   what the mechanism guarantees, in sentences: its relation, and δ at other ε.

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
    fit: FitScores | None = None
    forecast: Forecast | None = None
    guarantee: tuple[str, ...] = ()

    audience = Audience.FAIL

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
        """What is known of all rows together, but for expected exposures of rows in memory."""
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
        """What is said first of a model no better than the base rate; None of all others."""
        return useless_sentence(self.fit, self.forecast)

    @property
    def promise_broken(self) -> bool:
        """Whether an exposure is proved to pass an ε that was guaranteed without exception."""
        return self.rows_past_promise > 0

    @property
    def rows_past_promise(self) -> int:
        """The number of such rows; 0 where ε may be passed with some probability."""
        return 0 if self.terms.worst_case_passed > 0 else self.digest.proved_past

    def quantile(self, share: float) -> float:
        """Return the least score that at least this ``share`` of the rows do not exceed."""
        return float(self.scores.quantile(np.array([share]))[0])

    @property
    def unit(self) -> str:
        """What every figure is of: "row" or "person"."""
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
    def exposure(self) -> FloatArray:
        """(n,) ∣loss∣ (LeBlond Eq. 2)."""
        return self._figure("exposure")

    @property
    def posterior(self) -> FloatArray:
        """(n,) sigmoid(loss): an undecided attacker's P(row was in the data ∣ θ)."""
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

    # -- views ---------------------------------------------------------------------------------

    def by(
        self, column: Any, *, name: str = "column", bins: int = 4, engine: Any = "local"
    ) -> Grouping:
        """Return the exposures by the levels, or the quantile bins, of a column.

        ``column``  a cell for each row; of rows in blocks the name of a column of their table.
        ``engine``  where rows in blocks are read again (:func:`expost.engine.engine_of`).

        Of persons: each row counts with its person's exposure (rows of exposed persons). A cell for
        each person is spread over the rows by ``cells[profile.owner]``.
        """
        if self.parts is not None:
            if not isinstance(column, str):
                raise InvalidInput("column: the rows were processed in blocks; name a column.")
            bins = _checks.whole("bins", bins, least=1)
            with engine_of(engine) as workers:
                return self.parts.cells.explored([column], workers, depth=None, bins=bins)[0][0]
        scores = self._figure(self.terms.measure)
        return group_exposure(scores, column, name=name, bins=bins, owner=self.owner)

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
        """
        if self.parts is not None:
            if X is not None or feature_names is not None:
                raise InvalidInput("X: the rows were processed in blocks; leave it out.")
            with engine_of(engine) as workers:
                explanation = self.parts.cells.explored((), workers, depth=checked_depth(depth))[1]
            assert explanation is not None
            return explanation
        scores = self._figure(self.terms.measure)
        return explain_exposure(
            scores, X, feature_names=feature_names, depth=depth, owner=self.owner
        )

    def identifiability(self, prior: float = 0.5) -> RowIdentifiability:
        """Return what an attacker with this ``prior`` learns of each row (D5.3)."""
        shared: dict[str, Any] = {"description": self.description, "notices": self.notices}
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
            law=self._law(distance),
            far_law=self._law(distance + error),
            **self.terms.__dict__,
        )
        keys = tuple(row.key for row in rows)
        return RowIdentifiability(losses=losses, counted=counted, prior=prior, ids=keys, **shared)

    def _law(self, distance: FloatArray) -> LossLaw | None:
        """Return the law of the losses at ``distance``, which they depend on alone, if known."""
        how = None if self.release is None else self.release.mechanism.closed_form
        if how is None or not how.is_private:
            return None
        return how.loss_law(distance / how.resolution)

    def __len__(self) -> int:
        return self.digest.count if self.losses is None else len(self.losses.loss)

    def __repr__(self) -> str:
        useless = "" if self.useless is None else f"{self.useless} "
        return f"{useless}Profile({len(self)} {self.unit}s, {self.description})"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Ten readable lines; no row's values, but ranks and exposures: curator only."""
        return self.figures.lines()

    @cached_property
    def figures(self) -> ProfileFigures:
        """The aggregate figures of all rows."""
        digest, terms = self.digest, self.terms
        counted = (
            *("least_exposure", "outer", "past_promise", "proved_past"),
            *("past_posterior", "inside"),
        )
        guaranteed = ("relation", "noiseless", "worst_case", "worst_case_passed")
        top = self.most(5, ()).column("id" if self.keyed else self.unit)
        return ProfileFigures(
            description=self.description,
            count=len(self),
            rows=self.rows,
            most_rows=None if self.sizes is None else int(np.max(self.sizes)),
            median=self.quantile(0.5),
            late=self.quantile(0.99),
            largest=self.scores.largest,
            expected=self._expected_figures,
            width=math.inf if digest.unproved else 2 * digest.half_width,
            rows_past_promise=self.rows_past_promise,
            top=tuple(printable(key) for key in top.to_pylist()),
            useless=self.useless,
            forecast=self.forecast,
            guarantee=self.guarantee,
            **{name: getattr(digest, name) for name in counted},
            **{name: getattr(terms, name) for name in guaranteed},
        )

    @property
    def _expected_figures(self) -> tuple[float, float] | None:
        """The median and the largest expected exposure, where there is a law of the losses."""
        losses = self.losses
        if losses is not None and losses.law is None and losses.sampled is None:
            return None
        expected = self.expected_scores
        if expected is None:
            return None
        return float(expected.quantile(np.array([0.5]))[0]), expected.largest

    def key(self, row: int) -> Any:
        """Return the id of a row in memory, or its index."""
        _ = self._held
        return row if self.ids is None else self.ids[row]

    # -- tables and files ----------------------------------------------------------------------

    def columns(self) -> dict[str, Any]:
        """Return every per-row figure by name: keys, rank, and the figures of the docs' table."""
        ranks = {"rank": rank_numbers(self.ranking)}
        return self._labels(np.arange(len(self))) | ranks | figure_columns(self._row_figures)

    def _labels(self, rows: IntArray) -> dict[str, Any]:
        """Return what identifies these rows in a table, and how many rows each person has."""
        columns: dict[str, Any] = {self.unit: rows}
        if self.ids is not None:
            columns["id"] = [self.ids[row] for row in rows.tolist()]
        if self.sizes is not None:
            columns["rows"] = self.sizes[rows]
        return columns

    def batches(self) -> Iterator[Any]:
        """Yield the table in its order, as pyarrow tables: one for each part, or one in memory."""
        if self.parts is None:
            yield self.to_arrow()
        else:
            yield from self.parts.store.tables()

    def most(
        self,
        count: int = _TOP_ROWS,
        names: Sequence[str] = ("loss", "loss_low", "loss_high", "expected", "distance"),
    ) -> Any:
        """Return the ``count`` most exposed rows in order, as a pyarrow table.

        It holds the rows' numbers, ids and, of persons, numbers of rows, and the figures ``names``
        as far as they are known. Of rows in blocks the 100,000 most exposed are kept.
        """
        import pyarrow as pa

        if self.parts is not None:
            table = self.parts.most.slice(0, count)
            return table.select([n for n in ("row", "id", *names) if n in table.column_names])
        chosen = self.ranking[:count]
        figures = {name: self._figure(name)[chosen] for name in names}
        return pa.table(self._labels(chosen) | figures)

    def to_json(self, path: str | Path | None = None) -> str | Path:
        """Return the profile as JSON text, or write it to a CURATOR-ONLY file.

        ``table`` holds the columns of rows in memory, or names the folder of the parts.
        """
        figures, digest, shares = self.figures, self.digest, np.array(_SHARES)
        scores = self.scores.quantile(shares)
        expected = self.expected_scores
        usual = None if expected is None else expected.quantile(shares)
        median, largest = figures.expected or (None, None)
        table: Any = self.columns() if self.parts is None else self.parts.store.folder.name
        value = {
            "format": _FORMAT,
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "model": self.description,
            "relation": self.relation.value,
            "unit": self.unit,
            "rows": self.rows,
            "measure": self.terms.measure,
            "worst_case": self.worst_case,
            "promise_broken": self.promise_broken,
            "guarantee": list(self.guarantee),
            "useless": self.useless,
            "fit": None if self.fit is None else self.fit.fields(),
            "forecast": None if self.forecast is None else self.forecast.fields(),
            "figures": {
                "count": figures.count,
                "median": figures.median,
                "largest": figures.largest,
                "median_expected": median,
                "largest_expected": largest,
                "least_exposure": figures.least_exposure,
                "precision": digest.half_width,
                "unproved": digest.unproved,
                "past_promise": figures.past_promise,
                "proved_past": figures.proved_past,
                "past_posterior": figures.past_posterior,
                "evidence_in": figures.inside / figures.count,
            },
            "quantiles": [
                {
                    "share": share,
                    "at_most": scores[place],
                    "expected": None if usual is None else usual[place],
                }
                for place, share in enumerate(_SHARES)
            ],
            "quantile_error": self.scores.error,
            "top": self.most().to_pylist(),
            "table": table,
            "notices": list(self.notices),
        }
        return self._json(plain(value), path)
