"""The profile of rows in memory: models of expost, of other libraries, and several at once."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from expost.errors import InvalidInput, NotInLedgerWarning, WrongRows
from expost.foreign.models import read_foreign
from expost.foreign.private import read_private
from expost.glm import Objective, minimise
from expost.ledger import ledger_notice
from expost.mechanisms import Mechanism, RowLosses
from expost.mechanisms.combined import check_distinct, combine
from expost.neighbouring.change import Change, entering_rows
from expost.neighbouring.neighbours import tight_neighbours
from expost.neighbouring.persons import Persons, read_persons
from expost.notices import warn
from expost.profiles.profile import Profile
from expost.profiles.target import Target, find_target
from expost.results import row_keys
from expost.types import FloatArray, Neighbouring

__all__ = ["profile", "profile_of"]


def profile(
    model: Any,
    X: Any,
    y: Any,
    *,
    relation: Neighbouring | str = Neighbouring.REMOVE,
    candidates: tuple[Any, Any] | None = None,
    mechanism: Mechanism | Sequence[Mechanism | None] | None = None,
    persons: Any = None,
    ids: Sequence[Any] | None = None,
) -> Profile:
    """Return the profile of rows in memory; see :func:`expost.profile`."""
    options: dict[str, Any] = {
        "relation": Neighbouring.parse(relation),
        "candidates": candidates,
        "persons": persons,
        "ids": ids,
    }
    if _are_several(model):
        return _together(model, X, y, mechanism, options)
    if isinstance(mechanism, Sequence):
        raise InvalidInput("mechanism: is a list, and model is not; pass one of each.")
    return _of_one(model, X, y, mechanism=mechanism, **options)


def _are_several(model: Any) -> bool:
    """Whether this is a list of models; a list of numbers is the coefficients of one."""
    numbers = (int, float, np.number)
    return isinstance(model, list | tuple) and not isinstance(next(iter(model), None), numbers)


def _together(
    models: Sequence[Any],
    X: Any,
    y: Any,
    mechanism: Mechanism | Sequence[Mechanism | None] | None,
    options: dict[str, Any],
) -> Profile:
    """What independent releases of the same rows give away to whoever sees them all."""
    if not models:
        raise InvalidInput("model: is an empty list; pass at least one release.")
    if mechanism is None:
        mechanism = [None] * len(models)
    if not isinstance(mechanism, Sequence) or len(mechanism) != len(models):
        raise InvalidInput(
            f"mechanism: must be a list of {len(models)}, one for each model (None where the model"
            " knows its own)."
        )
    targets = [
        find_target(model[-1] if isinstance(model, Pipeline) else model, how)
        for model, how in zip(models, mechanism, strict=True)
    ]
    check_distinct([None if target is None else target.theta for target in targets])
    each = [
        _of_one(model, X, y, mechanism=how, **options)
        for model, how in zip(models, mechanism, strict=True)
    ]
    if len(each) == 1:
        return each[0]
    shared = [notice for found in each for notice in found.notices]
    return replace(
        each[0],
        losses=combine([found.losses for found in each if found.losses is not None]),
        description=f"{len(each)} releases: " + "; ".join(found.description for found in each),
        notices=tuple(dict.fromkeys([*_dependent(targets), *shared])),
        neighbours=None,
    )


def _dependent(targets: Sequence[Target | None]) -> list[str]:
    """Losses add only where the noises were drawn independently, which equal seeds are not."""
    releases = [target.release for target in targets if target is not None]
    if sum(release is not None and release.seeded for release in releases) < 2:
        return []
    return [
        "Two releases or more drew their noise from seeds: if the seeds were equal the noises are"
        " not independent, and the losses do not add up."
    ]


def _of_one(
    model: Any,
    X: Any,
    y: Any,
    *,
    relation: Neighbouring,
    candidates: tuple[Any, Any] | None,
    mechanism: Mechanism | None,
    persons: Any,
    ids: Sequence[Any] | None,
) -> Profile:
    persons = _persons(persons, X, relation, ids)
    unlisted = _unlisted(model)
    steps: Any = None
    if isinstance(model, Pipeline):
        steps, model = model[:-1], model[-1]
    target = find_target(model, mechanism)
    if target is None:
        rows = _transformed(steps, X)
        return _foreign_profile(model, rows, y, relation, candidates, persons, ids)
    _, _, problem, notices = target.bind(_transformed(steps, X), y)
    entering = None
    if relation is not Neighbouring.REMOVE:
        if not isinstance(candidates, tuple | list) or len(candidates) != 2:
            raise InvalidInput(
                f"candidates: relation={relation.value!r} needs a pair (rows, labels)."
            )
        # Candidates go through the same preprocessing as the rows.
        others = target.bind(_transformed(steps, candidates[0]), candidates[1])[2]
        entering = (others.held.X, others.held.y)
        if problem.loss.outputs == 1:
            entering = entering_rows(entering, relation, problem.count)
    elif candidates is not None:
        raise InvalidInput("candidates: relation='remove' takes none; leave it out.")
    return profile_of(
        target,
        problem,
        relation=relation,
        entering=entering,
        persons=persons,
        ids=ids,
        notices=(*notices, *unlisted),
    )


def profile_of(
    target: Target,
    objective: Objective,
    *,
    relation: Neighbouring = Neighbouring.REMOVE,
    entering: tuple[FloatArray, FloatArray] | None = None,
    persons: Persons | None = None,
    ids: Sequence[Any] | None = None,
    notices: Sequence[str] = (),
) -> Profile:
    """Return the profile of a model over its rows in memory.

    ``entering``  the rows and labels that enter, encoded as those of ``objective`` are.
    """
    how = target.mechanism
    if objective.count != how.rows:
        raise WrongRows(
            f"X has {objective.count} rows: the model was made from {how.rows}; pass its training"
            " rows."
        )
    change = Change.of(objective.held, relation, entering, persons)
    losses = how.losses(objective, target.theta, change)
    keys, entry = (ids, "ids: entry")
    if persons is not None:
        keys, entry = persons.names, "persons: the label of person"
    return Profile(
        losses=losses,
        description=target.describe(),
        rows=objective.count,
        ids=row_keys(keys, len(losses.loss), entry=entry),
        owner=None if persons is None else persons.owner,
        notices=tuple(notices),
        neighbours=losses.neighbours,
    )


def _unlisted(model: Any) -> tuple[str, ...]:
    """A notice, and a warning, where a ledger lies beside a model's file and does not list it."""
    notice = ledger_notice(model) if isinstance(model, str | Path) else None
    if notice is None:
        return ()
    warn(notice, NotInLedgerWarning, stacklevel=5)
    return (notice,)


def _persons(
    persons: Any, X: Any, relation: Neighbouring, ids: Sequence[Any] | None
) -> Persons | None:
    if persons is None:
        return None
    if ids is not None:
        raise InvalidInput(
            "ids: leave it out beside persons, whose labels are the keys of the result."
        )
    return read_persons(persons, np.shape(X)[0] if np.shape(X) else 0, relation)


def _transformed(steps: Any, X: Any) -> Any:
    return X if steps is None or len(steps) == 0 else steps.transform(X)


def _foreign_profile(
    model: Any,
    X: Any,
    y: Any,
    relation: Neighbouring,
    candidates: tuple[Any, Any] | None,
    persons: Persons | None,
    ids: Sequence[Any] | None,
) -> Profile:
    """Losses of the rows of another library's private model, or distances of scikit-learn's."""
    private = read_private(model, X, y)
    foreign = read_foreign(model, X, y) if private is None else None
    if private is None and foreign is None:
        raise InvalidInput(
            f"model: {type(model).__name__} is not known; pass a fitted expost estimator, a"
            " model.json, a fitted LogisticRegression, RidgeClassifier or Ridge, or θ with its"
            " mechanism."
        )
    if relation is not Neighbouring.REMOVE or candidates is not None:
        raise InvalidInput("relation: models of other libraries are profiled for 'remove' only.")
    if private is not None:
        if persons is not None:
            raise InvalidInput(
                "persons: models of diffprivlib are profiled row by row; leave persons out."
            )
        private.check_rows()
        return Profile(
            losses=private.row_losses(),
            description=private.description,
            rows=private.rows,
            ids=row_keys(ids, private.rows),
            notices=private.notices,
        )
    assert foreign is not None
    problem = foreign.problem
    base = minimise(problem, tolerance=problem.natural_tolerance, require=False)
    length = 1 + float(np.linalg.norm(base.theta))
    if not float(np.linalg.norm(foreign.theta - base.theta)) <= 0.05 * length:
        raise WrongRows(
            "X, y: the model does not minimise its objective on these rows; pass the rows that it"
            " was fitted on (or let it converge: a smaller tol, a larger max_iter)."
        )
    near = tight_neighbours(
        problem, base, Change.of(problem.held, persons=persons), keep_total_penalty=True
    )
    losses = RowLosses.without_noise(near.distance, near.error_bound, relation)
    return Profile(
        losses=losses,
        description=f"{type(model).__name__} of scikit-learn, no noise, n={problem.count}",
        rows=problem.count,
        ids=(
            row_keys(ids, len(losses.loss))
            if persons is None
            else row_keys(persons.names, len(losses.loss), entry="persons: the label of person")
        ),
        owner=None if persons is None else persons.owner,
        notices=(
            "The model carries no noise: every loss is infinite,"
            f" {'rows' if persons is None else 'persons'} rank by distance.",
        ),
        neighbours=near,
    )
