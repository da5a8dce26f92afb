"""Which ε: the typical profile, the transition, and a recommendation (LeBlond 4.4 and 5.4).

``choose_epsilon`` is the function users call, before they release anything. It asks a
:class:`Question` of rows in memory; :func:`choose_for` asks it of prepared rows of any source.
"""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np

from expost import _checks
from expost._numerics import spawned_seeds
from expost._order import Histogram
from expost.epsilon.black_box import BlackBox, fixed_to
from expost.epsilon.choice import EpsilonChoice
from expost.epsilon.ranked import RankedRows
from expost.epsilon.recommend import recommend
from expost.epsilon.sampled import SampledMechanism, SampledSweep, Sweep
from expost.epsilon.sweep import BeliefBound, Distances, LawSweep, distance_columns, ends_of
from expost.epsilon.utility import held_out_utility
from expost.errors import InvalidInput
from expost.estimators import ESTIMATORS, Prepared
from expost.files.parts import Part, PartStore
from expost.glm import Objective
from expost.mechanisms import ClosedForm
from expost.mechanisms.base import TOLERANCE
from expost.neighbouring.leave_one_out import LeaveOneOut
from expost.neighbouring.neighbours import tight_neighbours
from expost.results import row_keys
from expost.rows import RowBlock
from expost.types import FloatArray

__all__ = ["EpsilonChoice", "Question", "choose_epsilon", "choose_for", "seeds_of"]

# A belief that is closer to its prior is not told from it by the law's accuracy.
_LEAST_GAIN = 1e-9
_COST = (
    "Looking at the data to choose epsilon is not private: this choice, made known, tells something"
    " of the rows; expost.selection.select_privately chooses at a cost that is counted."
)
_SAMPLED = (
    "Every figure comes from sampled models; what they do not resolve counts as exposed.",
    "The utility was not measured: only the sampler knows what its models are for.",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """The options of :func:`choose_epsilon` that do not concern the data, checked.

    ``epsilons``  the values to tabulate, ascending; none: 25 around the transition.
    ``share``     of the rows that are in their second regime at ``high``.
    ``utility``   the least mean accuracy (R²) on held-out rows, or None.
    """

    epsilons: FloatArray
    models: int
    tolerance: float
    share: float
    bound: BeliefBound
    utility: float | None
    folds: int

    @classmethod
    def of(
        cls,
        *,
        epsilons: Sequence[float] | None = None,
        models: int = 200,
        tolerance: float = 0.1,
        rows: float = 0.5,
        max_belief: float = 0.75,
        prior: float = 0.5,
        quantile: float | None = None,
        utility: float | None = None,
        folds: int = 5,
    ) -> "Question":
        """Check the options; the defaults are those of :func:`choose_epsilon`."""
        bound = _bound(max_belief, prior, quantile)
        share = _checks.positive("rows", rows)
        if not share <= 1:
            raise InvalidInput(
                f"rows={rows!r}: must be a share of the rows, above 0 and at most 1."
            )
        models = _checks.whole("models", models, least=2)
        folds = _checks.whole("folds", folds, least=0)
        if folds == 1:
            raise InvalidInput("folds=1: must be 0, or at least 2: every fold is held out once.")
        return cls(
            epsilons=np.empty(0) if epsilons is None else _given(epsilons),
            models=models,
            tolerance=tolerance,
            share=share,
            bound=bound,
            utility=None if utility is None else _least_utility(utility, folds),
            folds=folds,
        )

    @property
    def releases(self) -> int:
        """The number of models that are scored on each fold."""
        return max(2, self.models // self.folds)

    def settings(self, seed: np.random.SeedSequence) -> dict[str, Any]:
        """Return what every sweep is made with."""
        return {
            "epsilons": self.epsilons,
            "models": self.models,
            "tolerance": self.tolerance,
            "share": self.share,
            "bound": self.bound,
            "seed": seed,
        }


def _bound(max_belief: float, prior: float, quantile: float | None) -> BeliefBound:
    prior = _checks.probability("prior", prior)
    largest = _checks.probability("max_belief", max_belief)
    if not largest > prior + _LEAST_GAIN:
        raise InvalidInput(
            f"max_belief={max_belief!r}: must lie above prior={prior!r}, which no model lowers, by"
            f" more than {_LEAST_GAIN:g}."
        )
    if quantile is not None:
        quantile = _checks.probability("quantile", quantile)
        if not 0.5 <= quantile <= 1 - _LEAST_GAIN:
            raise InvalidInput(
                f"quantile={quantile!r}: must lie between 0.5, below which more noise may raise it,"
                f" and 1 - {_LEAST_GAIN:g}."
            )
    return BeliefBound(largest=largest, prior=prior, quantile=quantile)


def _least_utility(utility: float, folds: int) -> float:
    number = isinstance(utility, int | float | np.integer | np.floating)
    if isinstance(utility, bool) or not number:
        raise InvalidInput(f"utility={utility!r}: must be the least accuracy (R²), or None.")
    if not -math.inf < utility <= 1:
        raise InvalidInput(f"utility={utility!r}: must be at most 1, the best there is.")
    if not folds:
        raise InvalidInput("folds=0: the utility asked for needs held-out folds; take 5.")
    return float(utility)


def _given(epsilons: Sequence[float]) -> FloatArray:
    values = _checks.vector(epsilons, name="epsilons")
    if not len(values) or not np.all((values >= 1e-50) & (values <= 1e50)):
        raise InvalidInput("epsilons: must hold numbers between 1e-50 and 1e50, at least one.")
    return np.unique(values)


def seeds_of(random_state: int | np.random.Generator | None) -> list[np.random.SeedSequence]:
    """Return the seeds of the models that are ranked, and of those whose utility is measured."""
    return spawned_seeds(random_state, 2)


def choose_epsilon(
    X: Any,
    y: Any,
    *,
    mechanism: str | BlackBox | SampledMechanism = "auto",
    noise: str = "auto",
    delta: float | str | None = "auto",
    loss: str = "logistic",
    regularization: float | str = "auto",
    epsilons: Sequence[float] | None = None,
    models: int = 200,
    tolerance: float = 0.1,
    rows: float = 0.5,
    max_belief: float = 0.75,
    prior: float = 0.5,
    quantile: float | None = None,
    utility: float | None = None,
    folds: int = 5,
    fit_intercept: bool = True,
    intercept_scaling: float | str = "auto",
    data_norm: float | str = "auto",
    rows_per_person: int = 1,
    classes: Any = None,
    huber_width: float | None = None,
    label_bound: float | None = None,
    ids: Sequence[Any] | None = None,
    random_state: int | np.random.Generator | None = None,
    workers: int | None = None,
) -> EpsilonChoice:
    """Recommend the ε of a private model of these rows; releases nothing.

    Rows are arrays in memory; the options are documented at :func:`expost.choose_epsilon`.
    """
    question = Question.of(
        epsilons=epsilons,
        models=models,
        tolerance=tolerance,
        rows=rows,
        max_belief=max_belief,
        prior=prior,
        quantile=quantile,
        utility=utility,
        folds=folds,
    )
    if workers is not None:
        workers = _checks.whole("workers", workers, least=1)
    seeds = seeds_of(random_state)
    options = {
        "mechanism": mechanism,
        "noise": noise,
        "delta": delta,
        "regularization": regularization,
        "fit_intercept": fit_intercept,
        "intercept_scaling": intercept_scaling,
        "data_norm": data_norm,
        "rows_per_person": rows_per_person,
    }
    given = {"classes": classes, "huber_width": huber_width, "label_bound": label_bound}
    if isinstance(mechanism, str):
        prepared = _prepared(X, y, loss, options, given)
        keys = row_keys(ids, prepared.objective.count)
        return choose_for(prepared, question, seeds, ids=keys, workers=workers)
    _refuse_options(**options, loss=loss, utility=utility, **given)
    fixed, keys = fixed_to(X, y, mechanism, ids)
    sweep = SampledSweep(mechanism=fixed, **question.settings(seeds[0]))
    limit = sweep.epsilon_for_belief(question.bound)
    return EpsilonChoice(
        sweep=sweep,
        bound=question.bound,
        epsilon_for_belief=limit,
        utility=None,
        recommendation=recommend(sweep, question.bound, limit, None, None),
        description=fixed.description,
        notices=(_COST, *_SAMPLED, *sweep.remarks),
        ids=keys,
    )


def choose_for(
    prepared: Prepared,
    question: Question,
    seeds: list[np.random.SeedSequence],
    *,
    store: PartStore | None = None,
    ids: tuple[Any, ...] | None = None,
    workers: int | None = None,
) -> EpsilonChoice:
    """Return the choice of ε for prepared rows of any source; spends nothing.

    ``store``  of rows that are read: where a part with the figures of each row is written for every
               item of the table. Finished parts are not made again.
    """
    how, objective = prepared.mechanism, prepared.objective
    sweep: Sweep
    parts: Mapping[int, Part] | None = None
    notices = _notices(prepared)
    exact, settings = how.closed_form, question.settings(seeds[0])
    if exact is None:
        sweep = SampledSweep(mechanism=how.sampler(objective), **settings)
        notices = (*notices, _SAMPLED[0])
        if store is not None:
            columns = _HeldColumns(columns=sweep.row_columns())
            parts = objective.table.write_parts(columns, store)
    elif store is None:
        near = tight_neighbours(prepared.problem, objective.minimiser(TOLERANCE))
        sweep = LawSweep.of(near, mechanism=exact, workers=workers, **settings)
    else:
        sweep, parts = _read_sweep(exact, prepared.problem, question, seeds[0], store)
    limit = sweep.epsilon_for_belief(question.bound)
    measured = None
    if question.folds:
        measured = held_out_utility(
            objective,
            how,
            np.union1d(sweep.epsilons, ends_of(sweep.low, sweep.high, limit)),
            folds=question.folds,
            releases=question.releases,
            rng=np.random.default_rng(seeds[1]),
        )
    return EpsilonChoice(
        sweep=sweep,
        bound=question.bound,
        epsilon_for_belief=limit,
        utility=measured,
        recommendation=recommend(sweep, question.bound, limit, measured, question.utility),
        description=how.describe(epsilon=False),
        notices=(*notices, *sweep.remarks),
        ids=ids,
        parts=parts,
    )


# -- rows that are read ----------------------------------------------------------------------------


def _read_sweep(
    how: ClosedForm,
    objective: Objective,
    question: Question,
    seed: np.random.SeedSequence,
    store: PartStore,
) -> tuple[LawSweep, dict[int, Part]]:
    """Write the figures of each row as parts, and return the sweep over their distances."""
    ends, table = how.transition(question.tolerance), objective.table
    losses = LeaveOneOut.of(objective, objective.minimiser(TOLERANCE))
    columns = _DistanceColumns(losses=losses, mechanism=how, leaves=ends.leaves)
    parts = table.write_parts(columns, store)
    # The bound on how far any row moves the minimiser; a loose certificate may pass it.
    task = partial(_count_distances, store, how.sensitivity)
    sweep = LawSweep(
        mechanism=how,
        distances=reduce(Distances.merged, table.engine.map(task, [*parts.values()])),
        ranked_rows=partial(RankedRows.sampled, objective, losses),
        workers=table.engine.workers,
        **question.settings(seed),
    )
    return sweep, parts


@dataclass(frozen=True, kw_only=True, eq=False)
class _DistanceColumns:
    """Compute what a part holds: how far each row moves the model, and its critical ε."""

    losses: LeaveOneOut
    mechanism: ClosedForm
    leaves: float

    def __call__(self, block: RowBlock) -> tuple[dict[str, FloatArray], None]:
        """Return the figures of the rows of a block."""
        near = self.losses(block)
        found = distance_columns(self.mechanism, self.leaves, near.distance, near.error_bound)
        return found, None

    def about(self, notes: Sequence[None]) -> dict[str, str]:
        """Return the audience of the part."""
        return {"audience": EpsilonChoice.audience.value}


@dataclass(frozen=True, kw_only=True, eq=False)
class _HeldColumns:
    """Return what a part holds, from figures of all rows that are held."""

    columns: Mapping[str, FloatArray]

    def __call__(self, block: RowBlock) -> tuple[dict[str, FloatArray], None]:
        """Return the figures of the rows of a block."""
        here = slice(block.start, block.start + len(block))
        return {name: values[here] for name, values in self.columns.items()}, None

    about = _DistanceColumns.about


def _count_distances(store: PartStore, top: float, part: Part) -> Distances:
    """Return the counted distances of the rows of one part."""
    names = ["distance", "distance_error"]
    table = store.read(part, columns=names)
    distance, error = (table.column(name).to_numpy() for name in names)
    return Distances.of(distance, error, partial(Histogram.of, top=top))


# -- the model -------------------------------------------------------------------------------------


def _refuse_options(**options: Any) -> None:
    """Refuse options that a sampled mechanism does not use."""
    parameters = inspect.signature(choose_epsilon).parameters
    for name, value in options.items():
        default = parameters[name].default
        given = value is not default and (default is None or value != default)
        if given and name != "mechanism":
            raise InvalidInput(
                f"{name}: belongs to the sampler of mechanism, which is not told of it; leave it"
                " out here."
            )


def _prepared(
    X: Any, y: Any, loss: str, options: dict[str, Any], given: dict[str, Any]
) -> Prepared:
    """Return the rows as the estimator sees them that would release the model."""
    _checks.one_of("loss", loss, tuple(ESTIMATORS))
    takes = inspect.signature(ESTIMATORS[loss]).parameters
    for name, value in given.items():
        if value is None:
            continue
        if name not in takes:
            raise InvalidInput(f"{name}={value!r}: loss={loss!r} takes none; leave it out.")
        options[name] = value
    # Its ε matters for regularization="auto" alone.
    return ESTIMATORS[loss](epsilon=1.0, **options).prepared(X, y)


def _notices(prepared: Prepared) -> tuple[str, ...]:
    """Return the cost of choosing, what was read from the data, and what was clipped."""
    notices = [_COST]
    if prepared.read_from_data:
        notices.append(
            "Read from the data, which is not private either:"
            f" {', '.join(prepared.read_from_data)}."
        )
    if prepared.clipped:
        notices += prepared.clipped
        notices.append(
            "The utility is measured on clipped rows and labels too; a released model predicts"
            " from rows as they are."
        )
    return tuple(notices)
