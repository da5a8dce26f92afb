"""Which ε: the typical profile, the transition, and a recommendation (LeBlond 4.4 and 5.4).

``choose_epsilon`` is the function users call, before they release anything.
"""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from expost import _checks
from expost.epsilon.black_box import BlackBox, fixed_to
from expost.epsilon.choice import EpsilonChoice
from expost.epsilon.question import Question, ends_of, seeds_of, values_around
from expost.epsilon.recommend import recommend
from expost.epsilon.sampled import DEFAULT_EPSILONS, SampledMechanism, SampledSweep
from expost.epsilon.sweep import OutputSweep, Sweep
from expost.epsilon.utility import held_out_utility
from expost.errors import InvalidInput
from expost.estimators import ESTIMATORS, Prepared
from expost.glm import minimise
from expost.mechanisms import ObjectivePerturbation
from expost.mechanisms.output import TOLERANCE
from expost.mechanisms.sampling import ObjectiveSampler
from expost.neighbouring.neighbours import tight_neighbours
from expost.results import row_keys
from expost.rounding import for_persons, upper_text

__all__ = ["EpsilonChoice", "choose_epsilon", "description_of", "notices_of"]

_COST = (
    "Looking at the data to choose epsilon is not private: this choice, made known, tells something"
    " of the rows; expost.selection.select_privately chooses at a cost that is counted."
)
_SAMPLED = (
    "Every figure comes from sampled models; what they do not resolve counts as exposed.",
    "The utility was not measured: only the sampler knows what its models are for.",
)


def choose_epsilon(
    X: Any,
    y: Any,
    *,
    mechanism: str | BlackBox | SampledMechanism = "output",
    noise: str = "laplace",
    delta: float | None = None,
    loss: str = "logistic",
    regularization: float | str = 1.0,
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
    intercept_scaling: float = 0.1,
    data_norm: float | None = None,
    classes: Any = None,
    huber_width: float | None = None,
    label_bound: float | None = None,
    ids: Sequence[Any] | None = None,
    random_state: int | np.random.Generator | None = None,
    workers: int | None = None,
) -> EpsilonChoice:
    """Which ε is worth using for a private model of these rows; releases nothing.

    The model
    ---------
    ``mechanism, noise, delta, loss, regularization, fit_intercept, intercept_scaling, data_norm,
    classes, huber_width, label_bound`` mean what they mean for the estimators, which would release
    it. ``regularization="auto"`` takes the Λ of ε = 1, since one Λ must serve all ε.

    Objective perturbation has no closed form: its releases are sampled, the losses in each of them
    are computed without sampling, and the transition is followed in the one-sidedness.

    A :class:`BlackBox` or :class:`SampledMechanism` in place of ``mechanism`` is sampled: all other
    options of the model are its own and must be left out, the utility is not measured, and every
    figure is an estimate that errs towards exposed (docs/black-box.md).

    The question
    ------------
    ``tolerance``   how far off its plateau a row still counts as on it.
    ``rows``        the share of rows that are in their second regime at ``high``.
    ``max_belief``  no row's typical belief may pass it, from the attacker's ``prior``; the mean
                    over models, or with ``quantile`` = q ≥ ½ their q-quantile.
    ``utility``     the least mean accuracy (R² for squared loss) on held-out rows, or None.

    The work
    --------
    ``epsilons``    the values to tabulate; 25 around the transition if None. ``low``, ``high``,
                    ``critical_epsilon`` and ``epsilon_for_belief`` do not depend on them.
    ``models``      models drawn for ``ranked`` and, over all folds, for the utility.
    ``folds``       the utility is measured on this many held-out folds; 0 leaves it out.
    ``workers``     threads; no result depends on it.

    Curator-only: looking at the data to choose ε is not private (see ``notices``).
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
    bound, given = question.bound, question.epsilons
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
    }
    if not isinstance(mechanism, str):
        _refuse_options(
            **options,
            loss=loss,
            utility=utility,
            classes=classes,
            huber_width=huber_width,
            label_bound=label_bound,
        )
        fixed, keys = fixed_to(X, y, mechanism, ids)
        return _sampled_choice(
            SampledSweep(
                mechanism=fixed,
                epsilons=DEFAULT_EPSILONS if given is None else given,
                tolerance=tolerance,
                share=question.share,
                models=question.models,
                bound=bound,
                seed=seeds[0],
            ),
            keys,
        )
    prepared = _prepared(X, y, loss, options, classes, huber_width, label_bound)
    how, problem = prepared.mechanism, prepared.problem
    keys = row_keys(ids, problem.count)
    sweep: Sweep
    if isinstance(how, ObjectivePerturbation):
        sweep = SampledSweep(
            mechanism=ObjectiveSampler(mechanism=how, problem=problem),
            epsilons=DEFAULT_EPSILONS if given is None else given,
            tolerance=tolerance,
            share=question.share,
            models=question.models,
            bound=bound,
            seed=seeds[0],
        )
    else:
        exact = OutputSweep(
            mechanism=how,
            neighbours=tight_neighbours(problem, minimise(problem, tolerance=TOLERANCE)),
            epsilons=np.ones(1) if given is None else given,
            tolerance=tolerance,
            share=question.share,
            models=question.models,
            seed=seeds[0],
            workers=workers,
        )
        limit = exact.epsilon_for_belief(bound)
        around = values_around(exact, limit) if given is None else given
        sweep = replace(exact, epsilons=around)
    limit = sweep.epsilon_for_belief(bound)
    measured = None
    if question.folds:
        measured = held_out_utility(
            problem,
            how,
            np.union1d(sweep.epsilons, ends_of(sweep.low, sweep.high, limit)),
            folds=question.folds,
            releases=question.releases,
            rng=np.random.default_rng(seeds[1]),
        )
    sampled = (_SAMPLED[0], *sweep.remarks) if isinstance(sweep, SampledSweep) else ()
    return EpsilonChoice(
        sweep=sweep,
        bound=bound,
        epsilon_for_belief=limit,
        utility=measured,
        recommendation=recommend(sweep, bound, limit, measured, question.utility),
        description=description_of(prepared),
        notices=(*notices_of(prepared), *sampled),
        ids=keys,
    )


def _refuse_options(**options: Any) -> None:
    """An option that a sampled mechanism would not heed is an error."""
    parameters = inspect.signature(choose_epsilon).parameters
    for name, value in options.items():
        default = parameters[name].default
        given = value is not default and (default is None or value != default)
        if given and name != "mechanism":
            raise InvalidInput(
                f"{name}: belongs to the sampler of mechanism, which is not told of it; leave it"
                " out here."
            )


def _sampled_choice(sweep: SampledSweep, keys: tuple[Any, ...] | None) -> EpsilonChoice:
    limit = sweep.epsilon_for_belief(sweep.bound)
    return EpsilonChoice(
        sweep=sweep,
        bound=sweep.bound,
        epsilon_for_belief=limit,
        utility=None,
        recommendation=recommend(sweep, sweep.bound, limit, None, None),
        description=sweep.mechanism.description,
        notices=(_COST, *_SAMPLED, *sweep.remarks),
        ids=keys,
    )


def _prepared(
    X: Any,
    y: Any,
    loss: str,
    options: dict[str, Any],
    classes: Any,
    huber_width: float | None,
    label_bound: float | None,
) -> Prepared:
    """The rows as the estimator that would release the model sees them."""
    _checks.one_of("loss", loss, tuple(ESTIMATORS))
    given = {"classes": classes, "huber_width": huber_width, "label_bound": label_bound}
    takes = {
        "logistic": ("classes",),
        "huber-hinge": ("classes", "huber_width"),
        "squared": ("label_bound",),
    }[loss]
    for name, value in given.items():
        if value is None:
            continue
        if name not in takes:
            raise InvalidInput(f"{name}={value!r}: loss={loss!r} takes none; leave it out.")
        options[name] = value
    # Its ε plays no part but for regularization="auto".
    return ESTIMATORS[loss](epsilon=1.0, **options).prepared(X, y)


def description_of(prepared: Prepared) -> str:
    """What would be released, in one line."""
    how = prepared.mechanism
    delta = "" if how.delta is None else f", delta={upper_text(how.delta)}"
    return (
        f"{how.loss.name} by {how.kind} perturbation, {how.noise} noise{delta}"
        f"{for_persons(how.rows_per_person)},"
        f" regularization={how.regularization:.4g}, n={how.rows}, d={how.dimension}"
    )


def notices_of(prepared: Prepared) -> tuple[str, ...]:
    """The cost of choosing, what was read from the data, and what was clipped."""
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
