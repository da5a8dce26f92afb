"""The profile of rows in memory: models of expost, of other libraries, and several at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from expost import _checks
from expost.data.histograms import Histograms
from expost.engine import SILENT, Progress
from expost.errors import InvalidInput, NotInLedgerWarning, WrongRows
from expost.files.model_format import audit_command
from expost.glm import Objective, minimise
from expost.ledger import ledger_notice
from expost.mechanisms import Mechanism, RowLosses
from expost.mechanisms.combined import check_distinct, combine
from expost.mechanisms.encoded import model_mechanism
from expost.mechanisms.minimiser import influence_losses
from expost.mechanisms.statement import statements
from expost.neighbouring.change import Change, entering_rows
from expost.neighbouring.influence import TOP, Influence
from expost.neighbouring.neighbours import tight_neighbours
from expost.neighbouring.persons import Persons, read_persons
from expost.notices import listed, warn
from expost.numbers import upper_text
from expost.profiles.fit import fit_of
from expost.profiles.left_out import LeftOut, TopRows, in_label_units
from expost.profiles.pipelines import Preprocessing
from expost.profiles.profile import Profile
from expost.release import Release
from expost.results import row_keys
from expost.types import FloatArray, Neighbouring

__all__ = [
    "SEEDED",
    "Target",
    "checked_top",
    "find_target",
    "profile",
    "profile_of",
    "profile_of_table",
]

SEEDED = "The noise was seeded: anyone who knows the seed can remove it."


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """A model whose mechanism is known: a release, or bare coefficients.

    Parameters
    ----------
    preprocessing : Preprocessing, optional
        The steps of its pipeline that come before it.
    """

    release: Release | None
    theta: FloatArray
    mechanism: Mechanism
    preprocessing: Preprocessing = field(default_factory=Preprocessing)

    @classmethod
    def of(cls, release: Release, preprocessing: Preprocessing | None = None) -> "Target":
        """Return a released model, and the steps before it."""
        return cls(
            release=release,
            theta=release.theta,
            mechanism=release.mechanism,
            preprocessing=Preprocessing() if preprocessing is None else preprocessing,
        )

    def objective(self, X: Any, y: Any) -> Objective:
        """Return the rows as the model's objective sees them."""
        X = self.preprocessing.transform(X)
        if self.release is not None:
            _check_names(self.release, X)
            return self.release.objective(X, y)
        rows, loss = _checks.matrix(X, min_rows=1), self.mechanism.loss
        width = len(self.theta) / loss.outputs
        if rows.shape[1] != width:
            raise InvalidInput(f"X has {rows.shape[1]} columns: the coefficients have {width:g}.")
        target, penalty = _checks.vector(y, length=len(rows)), self.mechanism.total_regularization
        problem = Objective.of(X=rows, y=target, loss=loss, penalty=penalty)
        if float(problem.held.norms.max()) > 1 + 1e-9:
            raise InvalidInput(
                "X: with bare coefficients its rows must lie in the unit ball; divide them by the"
                " data norm, or pass the estimator."
            )
        if loss.outputs > 1:
            return problem
        if loss.is_classification and not np.all(np.abs(problem.held.y) == 1):
            raise InvalidInput("y: with bare coefficients its labels must be −1 and +1.")
        bound = np.inf if loss.label_bound is None else loss.label_bound
        if not float(np.max(np.abs(problem.held.y))) <= bound:
            raise InvalidInput(
                f"y: with bare coefficients no label may be past {bound:g} in size; clip them."
            )
        return problem

    @property
    def histograms(self) -> Histograms | None:
        """The private release that the encoding follows from, where there is one."""
        encoding = None if self.release is None else self.release.table_encoding
        return None if encoding is None else encoding.histograms

    @property
    def notices(self) -> tuple[str, ...]:
        """What a reader must know about the model."""
        if self.release is None:
            return ()
        return _notices(self.release, self.preprocessing.read_from_data)

    @property
    def whole_release(self) -> Release | None:
        """The release, with what the steps before the model read from the data."""
        read = self.preprocessing.read_from_data
        if self.release is None or not read:
            return self.release
        return replace(self.release, read_from_data=(*read, *self.release.read_from_data))


def find_target(model: Any, mechanism: Mechanism | None) -> Target | None:
    """Return what is known of the model, or of the last step of a pipeline.

    None if its mechanism is unknown.
    """
    steps, model = Preprocessing.split(model)
    if isinstance(model, str | Path):
        model = Release.load(model)
    release = model if isinstance(model, Release) else getattr(model, "release_", None)
    if isinstance(release, Release):
        return Target.of(release, steps)
    if mechanism is not None:
        theta = _checks.vector(model, name="model", length=mechanism.dimension)
        return Target(release=None, theta=theta, mechanism=mechanism, preprocessing=steps)
    return None


def _check_names(release: Release, X: Any) -> None:
    """Refuse a frame whose columns are not those of the model, in their order.

    Columns of a table that the model encodes are selected by name.
    """
    names = getattr(X, "columns", None)
    if release.feature_names is None or names is None or release.encodes(X):
        return
    given = tuple(str(name) for name in names)
    if given != release.feature_names:
        raise InvalidInput(
            "X: its columns are not those of the model, in their order; the model was made with"
            f" {', '.join(release.feature_names)}."
        )


def _notices(release: Release, steps: Sequence[str]) -> tuple[str, ...]:
    """Return the notices of a release; ``steps`` of its pipeline were fitted."""
    notices = []
    if not release.mechanism.is_private:
        notices.append("epsilon=inf: the model carries no noise, so every loss is infinite.")
    elif not release.mechanism.worst_case < np.inf:
        notices.append(
            f"{release.mechanism.kind.capitalize()} perturbation guarantees no epsilon for the"
            f" {release.mechanism.loss.name} loss, whose gradient is not bounded. The privacy"
            " losses of this one model are certified nevertheless."
        )
    read = (*steps, *release.read_from_data)
    if read:
        notices.append(f"Read from the data, which is not private: {listed(read, most=4)}.")
    encoding = release.table_encoding
    histograms = None if encoding is None else encoding.histograms
    if histograms is not None:
        notices.append(
            f"The encoding is a release of its own: noisy histograms of {len(histograms.columns)}"
            f" columns spent {upper_text(histograms.epsilon, 3)} of epsilon. They are in"
            " model.json, so the attacker is assumed to know them: every loss includes what they"
            " reveal."
        )
    if release.seeded:
        notices.append(SEEDED)
    return tuple(notices)


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
    top: int | None = None,
    progress: Progress = SILENT,
) -> Profile:
    """Return the profile of rows in memory; see :func:`expost.profile`."""
    options: dict[str, Any] = {
        "top": top,
        "progress": progress,
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
    """Return whether this is a list of models; a list of numbers is the coefficients of one."""
    numbers = (int, float, np.number)
    return isinstance(model, list | tuple) and not isinstance(next(iter(model), None), numbers)


def _together(
    models: Sequence[Any],
    X: Any,
    y: Any,
    mechanism: Mechanism | Sequence[Mechanism | None] | None,
    options: dict[str, Any],
) -> Profile:
    """Return the profile of independent releases of the same rows, whose losses add."""
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
        find_target(model, of_model) for model, of_model in zip(models, mechanism, strict=True)
    ]
    check_distinct([None if target is None else target.theta for target in targets])
    released = [None if target is None else target.histograms for target in targets]
    each = [
        _of_one(
            model,
            X,
            y,
            mechanism=of_model,
            # An encoding that several models share was released once.
            model_alone=released[index] is not None and released[index] in released[:index],
            **options,
        )
        for index, (model, of_model) in enumerate(zip(models, mechanism, strict=True))
    ]
    if len(each) == 1:
        return each[0]
    useless = [single.useless for single in each if single.useless is not None]
    shared = [*useless, *(notice for single in each for notice in single.notices)]
    return replace(
        each[0],
        losses=combine([single.losses for single in each if single.losses is not None]),
        description=f"{len(each)} releases: " + "; ".join(single.description for single in each),
        notices=tuple(dict.fromkeys([*_dependent(targets), *shared])),
        fit=None,
        forecast=None,
        guarantee=(),
        left_out=None,
        top=None,
        model_distance=None,
    )


def _dependent(targets: Sequence[Target | None]) -> list[str]:
    """Return a notice if seeded noises may be dependent, so that losses do not add."""
    releases = [target.release for target in targets if target is not None]
    if sum(release is not None and release.seeded for release in releases) < 2:
        return []
    return [
        "Two or more releases have seeded noise: if the seeds are equal, the noises are not"
        " independent and the losses do not add."
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
    top: int | None,
    progress: Progress,
    model_alone: bool = False,
) -> Profile:
    """Return the profile of one model; ``model_alone``: without what its encoding reveals."""
    if persons is not None:
        persons = read_persons(persons, np.shape(X)[0] if np.shape(X) else 0, relation)
    unlisted = _unlisted(model)
    target = find_target(model, mechanism)
    if target is None:
        steps, model = Preprocessing.split(model)
        rows = steps.transform(X)
        if relation is not Neighbouring.REMOVE or candidates is not None:
            raise InvalidInput(
                "relation: models of other libraries are profiled for 'remove' only."
            )
        return _foreign_profile(model, rows, y, persons, ids, top, progress)
    if model_alone:
        target = replace(target, mechanism=model_mechanism(target.mechanism))
    problem = target.objective(X, y)
    entering = None
    if relation is not Neighbouring.REMOVE:
        if not isinstance(candidates, tuple | list) or len(candidates) != 2:
            raise InvalidInput(
                f"candidates: relation={relation.value!r} needs a pair (rows, labels)."
            )
        # Candidates go through the same preprocessing as the rows.
        others = target.objective(candidates[0], candidates[1])
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
        notices=(*target.notices, *unlisted),
        top=top,
        progress=progress,
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
    top: int | None = None,
    progress: Progress = SILENT,
) -> Profile:
    """Return the profile of a model over its rows in memory.

    Parameters
    ----------
    entering : tuple[FloatArray, FloatArray], optional
        The rows and labels that enter, encoded as those of ``objective`` are.
    top : int, optional
        Of a model without noise: the rows to refine (None: 100).
    """
    mechanism = target.mechanism
    top = checked_top(top, noisy=mechanism.is_private)
    if objective.count != mechanism.rows:
        raise WrongRows(
            f"X has {objective.count} rows: the model was made from {mechanism.rows}; pass its"
            " training rows."
        )
    change = Change.of(objective.held, relation, entering, persons)
    losses = mechanism.losses(objective, target.theta, change)
    losses = _refined(losses, objective, change, top, progress)
    if target.release is not None:
        losses = in_label_units(losses, target.release.label_scale)
    return Profile(
        losses=losses,
        description=mechanism.describe(),
        **_without_noise(losses, objective),
        rows=objective.count,
        ids=_keys(ids, persons, len(losses.loss)),
        owner=None if persons is None else persons.owner,
        notices=tuple(notices),
        release=target.whole_release,
        mechanism=mechanism,
        fit=fit_of(objective, target.theta),
        forecast=mechanism.forecast,
        guarantee=statements(mechanism),
    )


def profile_of_table(
    target: Target,
    objective: Objective,
    *,
    by_person: bool,
    notices: Sequence[str],
    top: int | None = None,
    progress: Progress = SILENT,
) -> Profile:
    """Return the profile of rows of a table in memory, whose ids are keys or persons."""
    rows = objective.held
    ids = None if rows.ids is None else list(rows.ids)
    persons = read_persons(ids, rows.count, Neighbouring.REMOVE) if by_person else None
    return profile_of(
        target,
        objective,
        persons=persons,
        ids=None if by_person else ids,
        notices=notices,
        top=top,
        progress=progress,
    )


def checked_top(top: int | None, *, noisy: bool) -> int:
    """Return the number of rows to refine; refuse one for a model with noise."""
    if top is None:
        return TOP
    if noisy:
        raise InvalidInput(
            f"top={top!r}: is for models without noise; the loss of every row of this model is"
            " certified anyway. Leave it out."
        )
    return _checks.integer("top", top, least=0)


def _refined(
    losses: RowLosses, objective: Objective, change: Change, top: int, progress: Progress
) -> RowLosses:
    """Return losses whose ``top`` rows of the largest shifts are refined, without noise."""
    if losses.influence is None:
        return losses
    refined = losses.influence.refined(objective, top=top, progress=progress)
    return influence_losses(refined, objective, change)


def _without_noise(losses: RowLosses, objective: Objective) -> dict[str, Any]:
    """Return what a profile holds about a model without noise, whose rows leave one at a time."""
    if losses.influence is None or losses.predictors is None:
        return {}
    return {
        "left_out": LeftOut.of(losses.predictors, objective.held.y),
        "top": TopRows.of(losses.influence.exact),
    }


def _keys(ids: Sequence[Any] | None, persons: Persons | None, count: int) -> tuple[Any, ...] | None:
    """Return the keys of ``count`` rows, or the labels of as many persons."""
    if persons is None:
        return row_keys(ids, count)
    return row_keys(persons.names, count, entry="persons: the label of person")


def _unlisted(model: Any) -> tuple[str, ...]:
    """Return a notice, and warn, if the ledger in a model's folder does not list it."""
    notice = ledger_notice(model) if isinstance(model, str | Path) else None
    if notice is None:
        return ()
    warn(notice, NotInLedgerWarning, stacklevel=5)
    return (notice,)


def _foreign_profile(
    model: Any,
    X: Any,
    y: Any,
    persons: Persons | None,
    ids: Sequence[Any] | None,
    top: int | None,
    progress: Progress,
) -> Profile:
    """Return how far each row moves a model of scikit-learn, and its own prediction."""
    # Imported here: it imports linear models of scikit-learn, which profiles of releases need not.
    from expost.foreign import read_foreign

    foreign = read_foreign(model, X, y)
    if foreign is None:
        raise InvalidInput(
            f"model: {type(model).__name__} is not known: neither its noise nor its objective can"
            " be read, so its rows have no privacy losses. Attack it instead: expost.audit(model,"
            f" X, y, X_out, y_out), or {audit_command(None)}. Profiles are of a fitted expost"
            " estimator, a model.json, a fitted LogisticRegression, RidgeClassifier or Ridge, or θ"
            " with its mechanism."
        )
    problem, top = foreign.problem, checked_top(top, noisy=False)
    base = minimise(
        problem, tolerance=problem.natural_tolerance, start=foreign.theta, require=False
    )
    change = Change.of(problem.held, persons=persons)
    if change.is_single_removal:
        influence = Influence.of(problem, base, keep_total_penalty=True)
        foreign.check_converged(base, influence.expansion.base_error)
        influence = influence.refined(problem, top=top, progress=progress)
        losses = influence_losses(influence, problem, change)
        if losses.predictors is not None:
            predictors = replace(losses.predictors, signs=foreign.signs)
            losses = replace(losses, predictors=predictors)
        base_error = influence.expansion.base_error
    else:
        near = tight_neighbours(problem, base, change, keep_total_penalty=True)
        foreign.check_converged(base, near.base_error)
        losses = RowLosses.without_noise(near.distance, near.error_bound, change.relation)
        losses, base_error = replace(losses, neighbours=near), near.base_error
    return Profile(
        losses=losses,
        description=f"{type(model).__name__} of scikit-learn, no noise, n={problem.count}",
        rows=problem.count,
        ids=_keys(ids, persons, len(losses.loss)),
        owner=None if persons is None else persons.owner,
        notices=(
            "The model carries no noise: every loss is infinite,"
            f" {'rows' if persons is None else 'persons'} rank by distance.",
            *foreign.early(base, base_error),
        ),
        fit=fit_of(problem, foreign.theta, signs=foreign.signs),
        model_distance=foreign.distance(base, base_error),
        **_without_noise(losses, problem),
    )
