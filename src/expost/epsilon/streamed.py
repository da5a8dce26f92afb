"""Which ε, for rows that do not fit into memory (LeBlond 4.4 and 5.4).

One pass writes each row's distance and critical ε as parts; their digest answers what
:class:`expost.epsilon.sweep.LawSweep` asks of all rows together. What depends on the farthest row
alone (``low``, the ε of a belief, every belief that is promised) is as exact as in memory; order
statistics come from histograms and are rounded to the safe side: the transition ends no sooner, and
rows leave their plateau no later, than is said.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from expost._order import Histogram
from expost.epsilon.choice import EpsilonChoice
from expost.epsilon.choose import description_of, notices_of
from expost.epsilon.question import Question, ends_of, values_around
from expost.epsilon.ranked import RankedProfiles
from expost.epsilon.recommend import recommend
from expost.epsilon.streamed_ranked import ranked_sample
from expost.epsilon.streamed_utility import streamed_utility
from expost.epsilon.sweep import Distances, LawSweep
from expost.epsilon.transition import transition
from expost.errors import InvalidInput
from expost.estimators import Prepared
from expost.files.parts import Part, PartStore
from expost.glm import Objective
from expost.mechanisms import OutputPerturbation
from expost.mechanisms.output import TOLERANCE
from expost.neighbouring.expansion import expand_curvature
from expost.neighbouring.streamed import streamed_curvature
from expost.neighbouring.streamed_refinement import refinement_of
from expost.profiles.streamed_losses import BlockLosses
from expost.rows import RowBlock, RowStream
from expost.types import FloatArray, IntArray

__all__ = ["SketchedDistances", "StreamedSweep", "check_streamed", "choose_epsilon_streamed"]

# What order statistics are rounded by: a bucket of the histogram, 2⁻⁹.
_NOTICE = (
    "The rows were read in blocks: where the transition ends, when a share of the rows leaves its"
    " plateau, and what is said of a middle row come from a sketch of the rows' distances, right to"
    " 0.2 % of a distance and otherwise on the safe side; what is said of the most exposed row is"
    " as exact as in memory."
)
_DISTANCES = ["distance", "distance_error"]


def check_streamed(mechanism: str | None) -> None:
    """Refuse what cannot be followed without the rows."""
    if mechanism == "objective":
        raise InvalidInput(
            "mechanism='objective': its sweep minimises the objective for every model that it"
            " samples, which rows that are read in blocks are too slow for; give the rows memory"
            " (--memory, and neither --engine nor --resume), or take mechanism='output'."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class SketchedDistances:
    """The distances of rows that were counted and not held; two add up to those of both.

    ``top``      a bound on distances, by which they are counted; what is larger counts as that.
    ``nearest``  the least upper end.

    ``counts, lower, upper``  histograms of the distances and of their two ends.

    Order statistics of ``lower`` are rounded down and all others up: by 2⁻⁹ of themselves at most,
    or by 2⁻⁴⁰ of ``top``.
    """

    top: float
    rows: int
    farthest: float
    largest: float
    least: float
    nearest: float
    counts: Histogram
    lower: Histogram
    upper: Histogram

    error = 2 * Histogram.RELATIVE_ERROR

    @classmethod
    def of(cls, distance: FloatArray, error: FloatArray, top: float) -> "SketchedDistances":
        """Count some rows."""
        # A bound that is not a number proves nothing.
        error = np.where(np.isnan(error), np.inf, error)
        counts, lower, upper = Histogram(top), Histogram(top), Histogram(top)
        counts.add(distance)
        lower.add(np.maximum(distance - error, 0.0))
        upper.add(distance + error)
        return cls(
            top=top,
            rows=len(distance),
            farthest=float(np.max(distance + error)),
            largest=float(np.max(distance)),
            least=float(np.min(distance[distance > 0], initial=math.inf)),
            nearest=float(np.min(distance + error)),
            counts=counts,
            lower=lower,
            upper=upper,
        )

    def merged(self, other: "SketchedDistances") -> "SketchedDistances":
        """Both together."""
        for name in ("counts", "lower", "upper"):
            getattr(self, name).merge(getattr(other, name))
        return replace(
            self,
            rows=self.rows + other.rows,
            farthest=max(self.farthest, other.farthest),
            largest=max(self.largest, other.largest),
            least=min(self.least, other.least),
            nearest=min(self.nearest, other.nearest),
        )

    @cached_property
    def median(self) -> float:
        """The median distance."""
        n = self.rows
        return float(np.mean(self.at(np.array([n // 2 + 1, (n + 1) // 2]))))

    def at(self, ranks: IntArray) -> FloatArray:
        """At least the distances at ``ranks``, 1 for the largest, which is exact."""
        places = self.rows + 1 - ranks
        least, most = self.counts.at_least(places), self.counts.at_most(places)
        # In the lowest bucket nothing but zeros may lie.
        most = np.where((least == 0) & (self.least > most), 0.0, np.minimum(most, self.largest))
        return np.where(ranks == 1, self.largest, most)

    def near(self, rank: int) -> float:
        """At most the rank-th largest lower end."""
        return float(self.lower.at_least(np.array([self.rows + 1 - rank]))[0])

    def far(self, ranks: IntArray) -> FloatArray:
        """At least the largest upper ends of these ranks; the first and the last are exact."""
        most = self.upper.at_most(self.rows + 1 - ranks)
        # Past the top they are not told apart.
        most = np.where(most > self.top, self.farthest, np.minimum(most, self.farthest))
        most = np.where(ranks == self.rows, self.nearest, most)
        return np.where(ranks == 1, self.farthest, most)


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamedSweep(LawSweep):
    """The sweep of rows that are read in passes; their own figures are in the parts of a table.

    ``losses``  what each row's distance follows from.
    ``models``  drawn for ``ranked``, from ``seed``; that takes another pass over the rows.
    """

    counted: SketchedDistances
    problem: Objective
    losses: BlockLosses
    models: int
    seed: np.random.SeedSequence

    @property
    def distances(self) -> Distances:
        """Those of all rows."""
        return self.counted

    @property
    def critical(self) -> FloatArray:
        """It is in the parts."""
        raise _not_held("critical")

    @property
    def typical(self) -> FloatArray:
        """It follows from ``typical_at`` and the distances in the parts."""
        raise _not_held("typical")

    @cached_property
    def ranked(self) -> RankedProfiles:
        """The rank-averaged profile, of a sample of very many rows."""
        noise = self.mechanism.unit_noise
        draws = noise.sample(self.models, np.random.default_rng(self.seed))
        # Not by `spawn`, which counts: whoever asks again gets the same rows.
        sample = np.random.SeedSequence(self.seed.entropy, spawn_key=(*self.seed.spawn_key, 0))
        return ranked_sample(self.problem, self.losses, noise, self.resolutions, draws, sample)


def _not_held(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name}: a sweep over rows that are read in blocks holds no figure of each row; read the"
        " folder epsilon.CURATOR-ONLY.parquet."
    )


def unreleased(problem: Objective, mechanism: OutputPerturbation) -> BlockLosses:
    """Where the minimiser goes without each row of any block, before there is a model."""
    base = problem.minimiser(TOLERANCE)
    expansion = expand_curvature(
        streamed_curvature(problem, base), signs=(-1,), rows_after=problem.count - 1
    )
    refinement = refinement_of(problem, expansion)
    return BlockLosses(
        theta=base.theta, mechanism=mechanism, expansion=expansion, refinement=refinement
    )


@dataclass(frozen=True, kw_only=True)
class _RowPart:
    """Work out one part: how far the rows of one item move the model, and their critical ε."""

    stream: RowStream
    losses: BlockLosses
    mechanism: OutputPerturbation
    leaves: float
    store: PartStore

    def __call__(self, numbered: tuple[int, Any]) -> Part:
        """Write it."""
        number, item = numbered
        blocks = [self._columns(block) for block in self.stream.blocks(item)]
        return self.store.write(number, pa.concat_tables(blocks).combine_chunks())

    def _columns(self, block: RowBlock) -> Any:
        """The names are those of a choice in memory."""
        near = self.losses.neighbours(RowBlock.of(block.X, block.y))
        far = near.distance + near.error_bound
        columns: dict[str, Any] = {"row": np.arange(block.start, block.start + len(block))}
        if block.ids is not None:
            columns["id"] = pa.array(block.ids, pa.string())
        return pa.table(
            {
                **columns,
                "critical_epsilon": self.mechanism.epsilon_at(self.leaves, far),
                "distance": near.distance,
                "distance_error": near.error_bound,
            }
        )


def _row_parts(
    problem: Objective,
    losses: BlockLosses,
    mechanism: OutputPerturbation,
    tolerance: float,
    store: PartStore,
) -> dict[int, Part]:
    """A part for each item of the stream; those that are there are left as they are."""
    ends = transition(noise=mechanism.noise, dimension=mechanism.dimension, tolerance=tolerance)
    finished, progress = store.finished(), problem.table.progress
    progress.rows(problem.count)
    for part in finished.values():
        progress.advance(part.rows)
    task = _RowPart(
        stream=problem.table.stream,
        losses=losses,
        mechanism=mechanism,
        leaves=ends.leaves,
        store=store,
    )
    missing = (
        (n, item) for n, item in enumerate(problem.table.stream.items()) if n not in finished
    )
    for part in problem.table.engine.map(task, missing):
        finished[part.index] = part
        progress.advance(part.rows)
    return finished


@dataclass(frozen=True, kw_only=True)
class _Counted:
    """The distances of one part, counted."""

    store: PartStore
    top: float

    def __call__(self, part: Part) -> SketchedDistances:
        """Read them."""
        table = self.store.read(part, columns=_DISTANCES)
        distance, error = (table.column(name).to_numpy() for name in _DISTANCES)
        return SketchedDistances.of(distance, error, self.top)


def _counted(
    problem: Objective, store: PartStore, parts: Mapping[int, Part], top: float
) -> SketchedDistances:
    total: SketchedDistances | None = None
    task = _Counted(store=store, top=top)
    for one in problem.table.engine.map(task, [parts[number] for number in sorted(parts)]):
        total = one if total is None else total.merged(one)
    assert total is not None
    if total.rows != problem.count:
        raise ArithmeticError(f"{total.rows} rows of {problem.count} were counted")
    return total


def choose_epsilon_streamed(
    prepared: Prepared,
    question: Question,
    seeds: list[np.random.SeedSequence],
    store: PartStore,
) -> tuple[EpsilonChoice, dict[int, Part]]:
    """:func:`expost.choose_epsilon` of a stream, and the parts of its table in ``store``."""
    how, problem = prepared.mechanism, prepared.objective
    check_streamed(how.kind)
    assert isinstance(how, OutputPerturbation)
    bound, given = question.bound, question.epsilons
    losses = unreleased(problem, how)
    parts = _row_parts(problem, losses, how, question.tolerance, store)
    sweep = StreamedSweep(
        mechanism=how,
        epsilons=np.ones(1) if given is None else given,
        tolerance=question.tolerance,
        share=question.share,
        # The bound on how far any row moves the minimiser; a loose certificate may pass it.
        counted=_counted(problem, store, parts, how.sensitivity),
        problem=problem,
        losses=losses,
        models=question.models,
        seed=seeds[0],
    )
    limit = sweep.epsilon_for_belief(bound)
    if given is None:
        sweep = replace(sweep, epsilons=values_around(sweep, limit))
    measured = None
    if question.folds:
        measured = streamed_utility(
            problem,
            how,
            losses.theta,
            np.union1d(sweep.epsilons, ends_of(sweep.low, sweep.high, limit)),
            folds=question.folds,
            releases=question.releases,
            rng=np.random.default_rng(seeds[1]),
        )
    choice = EpsilonChoice(
        sweep=sweep,
        bound=bound,
        epsilon_for_belief=limit,
        utility=measured,
        recommendation=recommend(sweep, bound, limit, measured, question.utility),
        description=description_of(prepared),
        notices=(*notices_of(prepared), _NOTICE),
        is_held=False,
    )
    return choice, parts
