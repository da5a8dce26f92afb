"""The choice of ε for a set of rows, before anything is released.

``choose_epsilon`` is the function users call, for rows in memory. :func:`choose_for` chooses ε for
prepared rows of any source. A :class:`Question` holds the options of both.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from expost import _checks
from expost._numerics import spawned_seeds
from expost._order import Histogram
from expost.data import is_frame
from expost.data.frames import text_columns
from expost.engine import SILENT, Progress
from expost.epsilon.black_box import BlackBox, fixed_to
from expost.epsilon.choice import EpsilonChoice
from expost.epsilon.frontier import FrontierCurve, compare_mechanisms
from expost.epsilon.gradients import Gradients
from expost.epsilon.limit import PosteriorLimit, find_ceiling
from expost.epsilon.ranked import RankedRows
from expost.epsilon.recommend import decide, search
from expost.epsilon.sampled import SampledMechanism, SampledSweep, Sweep
from expost.epsilon.sweep import Distances, LawSweep, distance_columns
from expost.epsilon.utility import Trials, measures_of
from expost.errors import InvalidInput
from expost.files.parts import Part, PartStore
from expost.glm import Objective, two_classes_only
from expost.losses import Loss
from expost.mechanisms import ClosedForm, Mechanism
from expost.mechanisms.base import TOLERANCE
from expost.neighbouring.leave_one_out import LeaveOneOut
from expost.neighbouring.neighbours import tight_neighbours
from expost.profiles.pipelines import Preprocessing
from expost.results import row_keys
from expost.rows import RowBlock
from expost.training import Prepared
from expost.types import FloatArray

if TYPE_CHECKING:
    from expost.estimators import Estimator

__all__ = ["EpsilonChoice", "Question", "choose_epsilon", "choose_for", "seeds_of"]

_SAMPLED = (
    "Every figure comes from sampled models; what they do not resolve counts as exposed.",
    "The utility was not measured: the purpose of the sampler's models is unknown.",
)
_FIXED_SLOPES = (
    "The transition under objective perturbation is computed with the rows' slopes at the minimiser"
    " without noise; its lower end holds for all slopes. The determinants' part of a loss is left"
    " out: the transition is an explanation, not a bound; the posterior is a bound."
)
# Releases of each fold at each ε: twenty with five folds.
_RELEASES = 4
# Two values of ε, at which it is checked whether the regularization depends on ε.
_APART = 0.5, 2.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """The options of :func:`choose_epsilon` that do not concern the data, checked.

    Parameters
    ----------
    limit : PosteriorLimit
        The posterior that no row may pass.
    share : float
        The share of the best reachable gain that is enough.
    measure : str | None
        The measure of models; None: log loss, R² or AUC, the first that applies.
    epsilons : tuple[float, ...]
        The values to try; none: a grid.
    past : float
        The share of rows that are in their second regime at ``high``.
    """

    limit: PosteriorLimit
    share: float
    measure: str | None
    epsilons: tuple[float, ...]
    models: int
    tolerance: float
    past: float
    folds: int

    @classmethod
    def of(
        cls,
        *,
        epsilons: Sequence[float] | None,
        models: int,
        tolerance: float,
        rows: float,
        max_posterior: float,
        prior: float,
        quantile: float,
        share: float,
        measure: str | None,
        folds: int,
    ) -> "Question":
        """Check the options of :func:`choose_epsilon`, which has their defaults."""
        folds = _checks.integer("folds", folds, least=0)
        if folds == 1:
            raise InvalidInput("folds=1: must be 0, or at least 2: every fold is held out once.")
        share = _checks.probability("share", share)
        past = _checks.positive("rows", rows)
        if not past <= 1:
            raise InvalidInput(
                f"rows={rows!r}: must be a share of the rows, above 0 and at most 1."
            )
        return cls(
            limit=PosteriorLimit(max_posterior=max_posterior, prior=prior, quantile=quantile),
            share=share,
            measure=measure,
            epsilons=() if epsilons is None else _given(epsilons),
            models=_checks.integer("models", models, least=2),
            tolerance=tolerance,
            past=past,
            folds=folds,
        )

    def check_measure(self, loss: Loss) -> None:
        """Refuse a measure that does not apply to a loss."""
        if self.measure is not None:
            _checks.one_of("measure", self.measure, measures_of(loss))

    def settings(self, seed: np.random.SeedSequence) -> dict[str, Any]:
        """Return the settings of every sweep."""
        return {
            "epsilons": np.array(self.epsilons),
            "models": self.models,
            "tolerance": self.tolerance,
            "share": self.past,
            "limit": self.limit,
            "seed": seed,
        }


def _given(epsilons: Sequence[float]) -> tuple[float, ...]:
    values = _checks.vector(epsilons, name="epsilons")
    if not len(values) or not np.all((values >= 1e-50) & (values <= 1e50)):
        raise InvalidInput("epsilons: must hold numbers between 1e-50 and 1e50, at least one.")
    return tuple(np.unique(values).tolist())


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
    margin: float | str = 0.0,
    max_posterior: float = 0.75,
    prior: float = 0.5,
    quantile: float = 0.95,
    share: float = 0.95,
    measure: str | None = None,
    epsilons: Sequence[float] | None = None,
    models: int = 200,
    tolerance: float = 0.1,
    rows: float = 0.5,
    folds: int = 5,
    fit_intercept: bool = True,
    intercept_scaling: float | str = "auto",
    data_norm: float | str = "auto",
    rows_per_person: int = 1,
    classes: Any = None,
    huber_width: float | None = None,
    label_range: tuple[float, float] | None = None,
    encoding: Any = None,
    ranges: Any = None,
    estimator: Any = None,
    ids: Sequence[Any] | None = None,
    random_state: int | np.random.Generator | None = None,
    workers: int | None = None,
    progress: Progress = SILENT,
) -> EpsilonChoice:
    """Recommend the ε of a private model of these rows; releases nothing.

    Rows are arrays in memory; the options are documented at :func:`expost.choose_epsilon`.
    """
    question = Question.of(
        epsilons=epsilons,
        models=models,
        tolerance=tolerance,
        rows=rows,
        max_posterior=max_posterior,
        prior=prior,
        quantile=quantile,
        share=share,
        measure=measure,
        folds=folds,
    )
    if workers is not None:
        workers = _checks.integer("workers", workers, least=1)
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
        "encoding": encoding,
        "ranges": ranges,
    }
    given = {
        "classes": classes,
        "huber_width": huber_width,
        "label_range": label_range,
        "margin": margin,
    }
    if estimator is not None:
        _refuse_options("the estimator has its own", **options, loss=loss, **given)
    if isinstance(mechanism, str):
        if estimator is None:
            estimator = _estimator(X, loss, options, given)
        prepared = _prepared(X, y, estimator)
        keys = row_keys(ids, prepared.objective.count)
        return choose_for(prepared, question, seeds, ids=keys, workers=workers, progress=progress)
    del options["mechanism"]
    reason = "belongs to the sampler of mechanism, which does not receive it"
    _refuse_options(reason, **options, loss=loss, measure=measure, share=share, **given)
    fixed, keys = fixed_to(X, y, mechanism, ids)
    sweep = SampledSweep(mechanism=fixed, **question.settings(seeds[0]))
    return EpsilonChoice(
        sweep=sweep,
        limit=question.limit,
        utility=None,
        recommendation=decide(None, sweep.ceiling(), None, share=question.share),
        description=fixed.description,
        notices=(*_SAMPLED, *sweep.remarks),
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
    progress: Progress = SILENT,
) -> EpsilonChoice:
    """Return the choice of ε for prepared rows of any source; spends nothing.

    Parameters
    ----------
    store : PartStore, optional
        Of rows that are read: where a part with the figures of each row is written for every item
        of the table. Finished parts are not computed again.
    """
    if prepared.encoding is not None and prepared.encoding.histograms is not None:
        raise InvalidInput(
            "encoding: is a private release, which has spent a part of one epsilon already; choose"
            " epsilon with its public ranges and levels, then release with a private encoding."
        )
    plan, objective = prepared.mechanism_at, prepared.objective
    question.check_measure(objective.loss)
    followed = _Followed(prepared=prepared, question=question, seed=seeds[0], store=store)
    sweep: Sweep | None = None
    parts: Mapping[int, Part] | None = None
    if followed.is_exact:
        # One Λ for all ε, and a law for each row: the rows themselves decide.
        sweep, parts = followed.sweep(prepared.mechanism, workers)
        ceiling = sweep.ceiling()
    else:
        ceiling = find_ceiling(plan, question.limit)
    utility, others = None, tuple[FrontierCurve, ...]()
    if question.folds:
        trials = Trials(
            objective=replace(objective, loss=prepared.noiseless_loss),
            plan=plan,
            folds=question.folds,
            releases=_RELEASES,
            seed=seeds[1],
            measure=question.measure,
            progress=progress,
        )
        utility = search(trials, ceiling, question.share, question.epsilons)
        plans = prepared.alternatives
        others = tuple(compare_mechanisms(trials, question.limit, plans, question.epsilons))
    recommendation = decide(plan, ceiling, utility, share=question.share)
    if sweep is None:
        at = recommendation.epsilon or recommendation.ceiling or 1.0
        tried = None if utility is None else utility.epsilons
        sweep, parts = followed.sweep(plan(at), workers, tried)
    return EpsilonChoice(
        sweep=sweep,
        limit=question.limit,
        utility=utility,
        recommendation=recommendation,
        description=plan(recommendation.epsilon or 1.0).describe(epsilon=False),
        read_from_data=prepared.read_from_data,
        notices=(*prepared.clipped, *sweep.remarks),
        plan=plan,
        alternatives=others,
        is_public=not followed.is_exact,
        ids=ids,
        parts=parts,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Followed:
    """The transition of prepared rows (LeBlond 4.4 and 5.4), at the Λ and the loss of one ε.

    Parameters
    ----------
    store : PartStore | None
        Of rows that are read: where the figures of each row are written.
    """

    prepared: Prepared
    question: Question
    seed: np.random.SeedSequence
    store: PartStore | None

    @property
    def is_exact(self) -> bool:
        """Whether losses have a law by distance, and Λ and the loss are the same for all ε."""
        first, second = (self.prepared.mechanism_at(epsilon) for epsilon in _APART)
        return (
            self.prepared.mechanism.closed_form is not None
            and self.prepared.has_one_loss
            and first.regularization == second.regularization
        )

    def sweep(
        self, mechanism: Mechanism, workers: int | None, epsilons: FloatArray | None = None
    ) -> tuple[Sweep, Mapping[int, Part] | None]:
        """Return the sweep over ``epsilons``, or those of the question, and the parts written."""
        penalty = np.full(mechanism.dimension, mechanism.total_regularization)
        objective = replace(self.prepared.objective, penalty=penalty, loss=mechanism.loss)
        settings: dict[str, Any] = self.question.settings(self.seed) | {"workers": workers}
        if epsilons is not None:
            settings["epsilons"] = epsilons
        law = mechanism.closed_form or mechanism.gradient_noise
        if law is None:
            return self._sampled(mechanism, objective)
        base = objective.minimiser(TOLERANCE)
        near: LeaveOneOut | Gradients
        if mechanism.closed_form is None:
            bound = objective.loss.lipschitz(mechanism.total_regularization)
            most = bound * objective.rows.longest if objective.loss.has_bounded_slope else np.inf
            settings |= {"most": most, "notices": (_FIXED_SLOPES,)}
            near = Gradients(loss=objective.loss, theta=base.theta)
        elif self.store is None:
            held = tight_neighbours(two_classes_only(objective), base)
            return LawSweep.of(held, mechanism=law, **settings), None
        else:
            near = LeaveOneOut.of(two_classes_only(objective), base)
        if self.store is None:
            rows = objective.held
            block = RowBlock.of(rows.X, rows.y)
            assert isinstance(near, Gradients)
            return LawSweep.of(near(block), mechanism=law, **settings), None
        columns = _DistanceColumns(
            near=near, mechanism=law, leaves=law.transition(self.question.tolerance).leaves
        )
        table = objective.table
        parts = table.write_parts(columns, self.store)
        # The bound on how far any row moves the model; a loose certificate may pass it.
        task = partial(_count_distances, self.store, law.sensitivity)
        sweep = LawSweep(
            mechanism=law,
            distances=reduce(Distances.merged, table.engine.map(task, [*parts.values()])),
            ranked_rows=partial(RankedRows.sampled, objective, near),
            **settings | {"workers": table.engine.workers},
        )
        return sweep, parts

    def _sampled(
        self, mechanism: Mechanism, objective: Objective
    ) -> tuple[SampledSweep, Mapping[int, Part] | None]:
        """Return the sweep of a mechanism whose losses have no law."""
        sweep = SampledSweep(
            mechanism=mechanism.sampler(objective), **self.question.settings(self.seed)
        )
        if self.store is None:
            return sweep, None
        columns = _HeldColumns(columns=sweep.row_columns())
        return sweep, objective.table.write_parts(columns, self.store)


@dataclass(frozen=True, kw_only=True, eq=False)
class _DistanceColumns:
    """The content of a part: how far each row moves the model, and its critical ε."""

    near: LeaveOneOut | Gradients
    mechanism: ClosedForm
    leaves: float

    def __call__(self, block: RowBlock) -> tuple[dict[str, FloatArray], None]:
        """Return the figures of the rows of a block."""
        near = self.near(block)
        columns = distance_columns(self.mechanism, self.leaves, near.distance, near.error_bound)
        return columns, None

    def about(self, notes: Sequence[None]) -> dict[str, str]:
        """Return the audience of the part."""
        return {"audience": EpsilonChoice.audience.value}


@dataclass(frozen=True, kw_only=True, eq=False)
class _HeldColumns:
    """The content of a part, from figures of all rows that are held."""

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


def _refuse_options(reason: str, **options: Any) -> None:
    """Refuse options of the model that are set elsewhere."""
    for name, value in options.items():
        if _is_given(name, value):
            raise InvalidInput(f"{name}: {reason}; leave it out here.")


def _is_given(name: str, value: Any) -> bool:
    """Return whether an option has another value than its default."""
    default = inspect.signature(choose_epsilon).parameters[name].default
    return value is not default and (default is None or bool(value != default))


def _estimator(X: Any, loss: str, options: dict[str, Any], given: dict[str, Any]) -> "Estimator":
    """Return the estimator that would release the model.

    A frame with columns of strings is encoded as the command line encodes a table.
    """
    # Imported where rows are arrays: scikit-learn takes a second.
    from expost.estimators import ESTIMATORS

    _checks.one_of("loss", loss, tuple(ESTIMATORS))
    takes = inspect.signature(ESTIMATORS[loss]).parameters
    for name, value in given.items():
        if not _is_given(name, value):
            continue
        if name not in takes:
            raise InvalidInput(f"{name}={value!r}: loss={loss!r} takes none; leave it out.")
        options[name] = value
    as_it_is = options["encoding"] is None and options["ranges"] is None
    if as_it_is and is_frame(X) and text_columns(X):
        options["encoding"] = {}
    # Every ε that is tried has its own mechanism.
    return ESTIMATORS[loss](epsilon=1.0, **options)


def _prepared(X: Any, y: Any, estimator: Any) -> Prepared:
    """Return the rows as an estimator sees them, after the steps of its pipeline."""
    from expost.estimators import ESTIMATORS, Estimator

    steps, model = Preprocessing.split(estimator)
    if not isinstance(model, Estimator):
        raise InvalidInput(
            f"estimator: {type(model).__name__} is not an estimator of expost; pass one of"
            f" {', '.join(kind.__name__ for kind in ESTIMATORS.values())}, or a Pipeline that ends"
            " in one."
        )
    steps = steps.fitted_to(X, y)
    ready = model.prepared(steps.transform(X), y)
    return replace(ready, read_from_data=(*steps.read_from_data, *ready.read_from_data))
