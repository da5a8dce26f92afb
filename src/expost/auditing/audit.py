"""``audit``: what membership inference gets out of a model.

The game: of a pool of rows the model was trained with some, the members, and not with the
non-members. Attacks see the model's answers, and models like it that were trained for the purpose;
each gives every row a score. Nothing that they see says which rows are members.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from expost import _checks
from expost.auditing import lower_bounds, one_run
from expost.auditing.arrays import Arrays, read_arrays
from expost.auditing.attacks import ATTACKS
from expost.auditing.attacks.gradients import gradient_scores
from expost.auditing.disparity import disparity
from expost.auditing.evidence import Attack, Evidence, Flags, missing
from expost.auditing.lower_bounds import LowerBound
from expost.auditing.references import evidence_of, no_references, train_references
from expost.auditing.result import Audit, Exposures
from expost.auditing.roc import figures, row_auc
from expost.auditing.signals import as_rows, count_rows, stack_rows, take_rows
from expost.auditing.targets import EstimatorTarget, ReleaseTarget, Target, target_of
from expost.auditing.training import one_thread, without_warnings
from expost.errors import ExpostError, InvalidInput
from expost.profiles.profile import Profile
from expost.profiles.verb import SEEDED, profile
from expost.release import Release
from expost.results import row_keys
from expost.risk import Guarantee
from expost.types import FloatArray

__all__ = ["Game", "Options", "audit", "audit_arrays", "audit_evidence"]

# By what rows are grouped where nothing else is asked for.
_CLASS = "class"
_UNCOVERED = (
    "The model's guarantee is not shown: it is that of the last step alone, and steps before it"
    " learned from the rows, which it does not cover."
)


def audit(
    model: Any,
    X: Any,
    y: Any,
    X_out: Any = None,
    y_out: Any = None,
    *,
    train: Callable[[Any, Any, int], Any] | None = None,
    regression: bool | None = None,
    population: tuple[Any, Any] | None = None,
    attacks: Sequence[str | Attack] | None = None,
    references: int = 64,
    groups: Mapping[str, Any] | None = None,
    ids: Sequence[Any] | None = None,
    exposure: Profile | None = None,
    coins: bool = False,
    delta: float = 1e-5,
    confidence: float = 0.95,
    random_state: int | None = None,
    workers: int | None = None,
    checkpoint: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """What attacks get out of ``model``, row by row.

    ``model``        a released model or the path of its model.json (never redrawn), any
                     scikit-learn estimator or Pipeline, an expost estimator, or a function
                     ``train(X, y, seed)`` that gives back ``predict_proba``.
    ``X``, ``y``     of a model that exists: the rows it was trained on, its members. Of one that
                     is not fitted: the pool; a coin for each row decides whether the target, which
                     is then trained here, gets it.
    ``X_out``, ``y_out``  rows like those that the model was *not* trained on; as many as there
                     are, and only for a model that exists.
    ``train``        for a model that is a function, or has no ``fit``: how others like it are
                     trained.
    ``population``   (rows, labels) that are in nobody's training, for the attacks that compare with
                     such rows; with few non-members to spare, leave it out.
    ``attacks``      names in the catalogue (:data:`expost.auditing.attacks.ATTACKS`) or functions
                     under its Protocol; None: all that the evidence suffices for.
    ``references``   how many models like the target are trained; 0: attacks do without.
    ``groups``       columns by their names, a cell for each row of the pool (members first): the
                     attack by group. Results by class are always reported.
    ``exposure``     the members' profile where ``profile`` cannot find it itself (DP-SGD).
    ``coins``        state that independent fair coins chose the members: ε is then bounded from
                     below by this one model. Where the target is trained here they did.
    ``checkpoint``   a folder that keeps finished references; the same call resumes from there.

    An attack that fails proves nothing. Curator-only: scores are a function of the data.
    """
    options = Options(
        attacks=_chosen(attacks),
        delta=_checks.probability("delta", delta),
        confidence=_checks.probability("confidence", confidence),
    )
    if _checks.whole("references", references, least=0) == 1:
        raise InvalidInput("references=1: must be 0, or at least 2: one with a row, one without.")
    _check_kinds(population, groups, exposure)
    seeds = np.random.SeedSequence(
        None if random_state is None else _checks.whole("random_state", random_state, least=0)
    ).spawn(4)
    labels = _checks.array(y, "y") if y_out is None else _both(y, y_out)
    every = labels if population is None else _both(labels, population[1])
    game = _play(
        target_of(model, every, train=train, regression=regression), X, y, X_out, y_out, seeds[0]
    )
    # All that is asked of the target comes first: it must not fail after hours of training.
    found = no_references(game.target, game.X, game.y, population)
    evidence = evidence_of(game.target, found, game.X, game.y, population)
    # The number of heads is one of the coins' too: neither the share nor a score may know it.
    fair = coins or game.tossed
    gradients, left_out = _white_box(game, population, coins=fair)
    theory = _known(game, exposure)
    if references > 0:
        found = train_references(
            game.target,
            game.X,
            game.y,
            models=references,
            share=0.5 if fair else float(np.mean(game.truth)),
            # Without a seed a checkpoint has its own, and goes on with it.
            random_state=None if random_state is None else _number(seeds[1]),
            workers=workers,
            checkpoint=checkpoint,
            progress=progress,
            population=population,
        )
    return audit_evidence(
        replace(
            evidence,
            references=found.confidence,
            inside=found.inside,
            population_references=found.population,
            reference_views=found.views,
            extras=gradients,
        ),
        game.truth,
        options=replace(options, coins=fair, spread=True, seed=_number(seeds[2])),
        description=theory.description,
        groups=_by_class(None if game.target.classes is None else game.y) | dict(groups or {}),
        ids=ids,
        exposures=theory.exposures,
        guarantee=theory.guarantee,
        notices=(*theory.notices, *left_out),
    )


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is asked of the figures.

    ``attacks``  None: all that the evidence suffices for.
    ``coins``    whether independent fair coins chose the members.
    ``spread``   whether chance alone put rows into references, each row on its own.
    ``seed``     deals rows and references to those that choose and those that judge.
    """

    attacks: tuple[Attack, ...] | None = None
    delta: float = 1e-5
    confidence: float = 0.95
    coins: bool = False
    spread: bool = False
    seed: int = 0


def audit_arrays(
    answers: Arrays | str | Path,
    *,
    attacks: Sequence[str | Attack] | None = None,
    groups: Mapping[str, Any] | None = None,
    description: str | None = None,
    coins: bool = False,
    delta: float = 1e-5,
    confidence: float = 0.95,
    random_state: int = 0,
) -> Audit:
    """What attacks get out of answers that were computed elsewhere.

    ``answers``  losses, probabilities or log odds of the rows, who was a member, and of references
                 where there are some: :func:`expost.auditing.arrays_of`, or the path of an npz
                 file, a CSV or a Parquet table (:mod:`expost.auditing.arrays` says how they are
                 laid out). The other arguments are those of :func:`audit`.
    ``coins``    state that independent fair coins chose the members, and the rows of each
                 reference: without that nothing is proved about ε.
    """
    found = answers if isinstance(answers, Arrays) else read_arrays(answers)
    if found.member is None:
        raise InvalidInput("answers: must say who was a member (member, 0 or 1 for each row).")
    _enough("member", found.member)
    classes = None
    if found.classes is not None:
        classes = np.asarray(found.classes)[found.evidence.labels]
    what = "a model of which only answers are known" if description is None else description
    return audit_evidence(
        found.evidence,
        found.member,
        options=Options(
            attacks=_chosen(attacks),
            delta=_checks.probability("delta", delta),
            confidence=_checks.probability("confidence", confidence),
            coins=coins,
            spread=coins,
            seed=_checks.whole("random_state", random_state, least=0),
        ),
        description=what,
        groups=_by_class(classes) | dict(groups or {}),
        ids=None if found.ids is None else list(found.ids),
    )


def audit_evidence(
    evidence: Evidence,
    truth: Any,
    *,
    options: Options | None = None,
    description: str = "a model of which only answers are known",
    groups: Mapping[str, Any] | None = None,
    ids: Sequence[Any] | None = None,
    exposures: Exposures | None = None,
    guarantee: Guarantee | None = None,
    notices: tuple[str, ...] = (),
) -> Audit:
    """Every attack that ``evidence`` suffices for, judged by ``truth`` (n,), who was a member."""
    options = Options() if options is None else options
    truth = _flags(truth, evidence.rows)
    scores, skipped = _scores(evidence, options.attacks)
    found = {
        name: figures(score, truth, confidence=options.confidence, random_state=options.seed)
        for name, score in scores.items()
    }
    best = max(found, key=lambda name: found[name].auc.value)
    return Audit(
        description=description,
        truth=truth,
        scores=scores,
        figures=found,
        row_auc=row_auc(evidence.references, evidence.inside) if evidence.models else None,
        bounds=_bounds(evidence, scores, truth, best, guarantee, options),
        guarantee=guarantee,
        exposures=exposures,
        disparity=tuple(
            disparity(
                scores[best], truth, column, name=name, attack=best, confidence=options.confidence
            )
            for name, column in (groups or {}).items()
        ),
        models=evidence.models,
        confidence=options.confidence,
        skipped=skipped,
        ids=row_keys(ids, evidence.rows),
        notices=notices,
    )


def _scores(
    evidence: Evidence, chosen: tuple[Attack, ...] | None
) -> tuple[dict[str, FloatArray], dict[str, str]]:
    """The scores of each attack, and why some were not made; one that was asked for must be."""
    scores: dict[str, FloatArray] = {}
    skipped: dict[str, str] = {}
    for attack in ATTACKS.values() if chosen is None else chosen:
        why = missing(attack, evidence)
        if why is None:
            scores[attack.name] = np.asarray(attack(evidence))
        elif chosen is None:
            skipped[attack.name] = why
        else:
            raise InvalidInput(f"attacks: {attack.name} {why}, which there is not.")
    if chosen is None:
        scores |= evidence.extras
    for name, score in scores.items():
        if score.shape != (evidence.rows,) or not np.all(np.isfinite(score)):
            raise InvalidInput(f"attacks: {name} did not give each row a finite score.")
    return scores, skipped


def _bounds(
    evidence: Evidence,
    scores: Mapping[str, FloatArray],
    truth: Flags,
    best: str,
    guarantee: Guarantee | None,
    options: Options,
) -> tuple[LowerBound, ...]:
    """What is proved about ε: from all trainings, and from the one where coins chose the members.

    All hold together at the confidence. Gaussian noise is refuted by its own curve, which is
    sharper than one point of it.
    """
    methods: list[Callable[..., LowerBound]] = []
    if options.spread and evidence.models >= lower_bounds.LEAST_MODELS:
        methods.append(
            partial(lower_bounds.epsilon_lower_bound, evidence.references, evidence.inside)
        )
    if options.coins:
        methods.append(
            partial(
                one_run.epsilon_lower_bound,
                scores[best],
                truth,
                coins=True,
                chosen_from=len(scores),
                random_state=options.seed,
            )
        )
    miss = (1 - options.confidence) / max(len(methods), 1)
    return tuple(
        method(
            delta=options.delta,
            confidence=1 - miss,
            gaussian=guarantee is not None and guarantee.is_gaussian,
        )
        for method in methods
    )


def _chosen(attacks: Sequence[str | Attack] | None) -> tuple[Attack, ...] | None:
    if attacks is None:
        return None
    if isinstance(attacks, str) or not attacks:
        raise InvalidInput("attacks: must be a list of names, of functions, or both.")
    for attack in attacks:
        if isinstance(attack, str):
            _checks.one_of("attacks", attack, tuple(ATTACKS))
        elif not all(hasattr(attack, part) for part in ("name", "needs", "__call__")):
            raise InvalidInput(
                f"attacks: has a {type(attack).__name__}; must be names, or functions with a name"
                " and needs (expost.auditing.evidence.Attack)."
            )
    return tuple(ATTACKS[one] if isinstance(one, str) else one for one in attacks)


def _check_kinds(population: Any, groups: Any, exposure: Any) -> None:
    if population is not None and not (
        isinstance(population, tuple | list) and len(population) == 2
    ):
        raise InvalidInput("population: must be a pair (rows, labels).")
    if groups is not None and not isinstance(groups, Mapping):
        raise InvalidInput("groups: must be columns by their names, {name: cells}.")
    if exposure is not None and not isinstance(exposure, Profile):
        raise InvalidInput(
            f"exposure: is a {type(exposure).__name__}; must be what expost.profile gives of the"
            " members."
        )


def _by_class(labels: Any) -> dict[str, Any]:
    """Classes as words: those with numbers for names have no order that bins would follow."""
    return {} if labels is None else {_CLASS: np.asarray(labels).astype(str)}


def _flags(truth: Any, rows: int) -> Flags:
    flags = np.asarray(truth)
    if flags.dtype != np.bool_ or flags.shape != (rows,):
        raise InvalidInput(f"truth: must be {rows} truth values, one for each row in question.")
    return flags


def _number(seed: np.random.SeedSequence) -> int:
    return int(seed.generate_state(1)[0] >> 1)


# -- the game: the pool, the target, the members, and what theory knows ---------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Game:
    """``target`` was trained with the rows of the pool for which ``truth`` is true.

    ``description``  of the model, or of how one is trained, in one line.
    ``tossed``       whether a coin for each row decided who was a member, here.
    """

    description: str
    target: Target
    X: Any
    y: NDArray[Any]
    truth: Flags
    tossed: bool

    @property
    def members(self) -> tuple[Any, NDArray[Any]]:
        """The rows and labels that the target was trained with, in the order of the pool."""
        rows = np.flatnonzero(self.truth)
        return take_rows(self.X, rows), self.y[rows]

    @property
    def model(self) -> Any:
        """The model itself, as other verbs take it; None of a training function."""
        if isinstance(self.target, EstimatorTarget):
            return self.target.estimator
        return self.target.release if isinstance(self.target, ReleaseTarget) else None

    @property
    def release(self) -> Release | None:
        """What expost released, where it did."""
        model = self.model
        last = model[-1] if isinstance(model, Pipeline) else model
        release = last if isinstance(last, Release) else getattr(last, "release_", None)
        return release if isinstance(release, Release) else None


def _play(
    target: Target, X: Any, y: Any, X_out: Any, y_out: Any, seed: np.random.SeedSequence
) -> Game:
    """Take the members as they are given, or toss coins for them and train the target."""
    X, labels = as_rows(X), _vector(y, "y")
    if target.is_fitted:
        if X_out is None or y_out is None:
            raise InvalidInput(
                "X_out, y_out: must be given with a model that is fitted: rows like its own that"
                " it was not trained on. Of a model that is not fitted, half of X is left out."
            )
        others = _vector(y_out, "y_out")
        pool = stack_rows(X, X_out)
        truth = np.arange(len(labels) + len(others)) < len(labels)
        game = Game(
            description=target.description,
            target=target,
            X=pool,
            y=np.concatenate([labels, others]),
            truth=truth,
            tossed=False,
        )
        _check(game)
        return game
    if X_out is not None or y_out is not None:
        raise InvalidInput(
            "X_out, y_out: the model is not fitted, so that a coin decides which rows of X it is"
            " trained on; leave them out, or fit the model first."
        )
    coins, training = seed.spawn(2)
    truth = np.random.default_rng(coins).random(len(labels)) < 0.5
    game = Game(
        description=target.description, target=target, X=X, y=labels, truth=truth, tossed=True
    )
    _check(game)
    number = int(training.generate_state(1)[0] >> 1)
    with one_thread(), without_warnings():
        trained = target.trained(*game.members, number, name="the target")
    return replace(game, target=trained)


def _check(game: Game) -> None:
    if count_rows(game.X) != len(game.y):
        raise InvalidInput(
            f"y has {len(game.y)} entries: must have one for each of {count_rows(game.X)} rows."
        )
    _enough("X", game.truth)


def _enough(name: str, truth: Flags) -> None:
    """Before hours of training: a threshold is chosen by some of each kind, judged by others."""
    members = int(np.count_nonzero(truth))
    if not 2 <= members <= len(truth) - 2:
        raise InvalidInput(
            f"{name}: {members} members and {len(truth) - members} non-members: an audit needs at"
            " least two of each; give more rows."
        )


def _white_box(
    game: Game, population: tuple[Any, Any] | None, *, coins: bool
) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """Scores of who sees the parameters of a linear model or a torch module; none of another.

    Where such a model's gradients cannot be had, the notice that says why: the others go on.
    """
    # What a training function has made may speak for itself, as a torch module does.
    model = getattr(game.target, "model", None) if game.model is None else game.model
    if model is None:
        return {}, ()
    left_out = "The attacks on gradients were left out: "
    if _is_unheard(model, game.y if population is None else _both(game.y, population[1])):
        return {}, (f"{left_out}the model has not seen every class of these rows.",)
    # Where coins decided, their number is one of theirs: it is no one's to know.
    members = len(game.truth) // 2 if coins else int(np.count_nonzero(game.truth))
    try:
        scores = gradient_scores(model, game.X, game.y, members=members, population=population)
    except ExpostError as error:
        return {}, (f"{left_out}{error}",)
    return scores, ()


def _is_unheard(model: Any, labels: NDArray[Any]) -> bool:
    """Whether some label is none of the classes that the model tells apart."""
    known = getattr(model, "classes", None) if isinstance(model, Release) else None
    known = getattr(model, "classes_", known)
    return known is not None and not bool(np.all(np.isin(labels, np.asarray(known))))


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What theory says: of the model, of its members, of any row, and what must be said of it."""

    description: str
    exposures: Exposures | None = None
    guarantee: Guarantee | None = None
    notices: tuple[str, ...] = ()


def _known(game: Game, exposure: Profile | None) -> _Known:
    """Of an expost model its members' losses and its guarantee; of other models what is given."""
    described = game.description
    if exposure is not None:
        return _Known(
            description=exposure.description,
            exposures=_exposures(game, exposure),
            guarantee=exposure.terms.guarantee,
            notices=exposure.notices,
        )
    release = game.release
    if release is None:
        return _Known(description=described)
    guarantee = release.mechanism.guarantee() if release.mechanism.is_private else None
    notices: tuple[str, ...] = ()
    if guarantee is not None and _learns_before(game.model):
        guarantee, notices = None, (_UNCOVERED,)
    try:
        with without_warnings():
            found = profile(game.model, *game.members)
    except ExpostError as error:
        notice = f"Exposures are not shown beside the attacks: {error}"
        return _Known(description=described, guarantee=guarantee, notices=(*notices, notice))
    return _Known(
        description=found.description,
        exposures=_exposures(game, found),
        guarantee=guarantee,
        # A target that was trained here is a simulation: that it has a seed is as it should be.
        notices=(*notices, *(one for one in found.notices if not (game.tossed and one == SEEDED))),
    )


def _learns_before(model: Any) -> bool:
    """Whether a step before the last of a Pipeline learns from the rows it is fitted to."""
    steps = [step for _, step in model.steps[:-1]] if isinstance(model, Pipeline) else []
    return any(_learns(step) for step in steps if step not in (None, "passthrough"))


def _learns(step: Any) -> bool:
    if isinstance(step, FrozenEstimator):
        return False
    try:
        return bool(get_tags(step).requires_fit)
    except (AttributeError, TypeError):
        # It does not say: then it may.
        return True


def _exposures(game: Game, found: Profile) -> Exposures:
    members = int(np.count_nonzero(game.truth))
    if len(found) != members:
        raise InvalidInput(
            f"exposure: is of {len(found)} rows, must be of the {members} members in their order."
        )
    return Exposures(loss=found.loss, expected=found.expected, distance=found.distance)


def _both(first: Any, second: Any) -> NDArray[Any]:
    """Labels, one after the other."""
    labels = _vector(first, "y"), _vector(second, "y_out")
    try:
        return np.concatenate(labels)
    except TypeError:
        raise InvalidInput(
            f"y holds {labels[0].dtype} labels, the others {labels[1].dtype}: use one type for all."
        ) from None


def _vector(y: Any, name: str) -> NDArray[Any]:
    labels = _checks.array(y, name)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1:
        raise InvalidInput(f"{name}: must be one label for each row.")
    return labels
