"""``audit``: membership inference attacks on a model.

The game: the model was trained on some rows of a pool, the members, and not on the non-members.
Attacks see the model's answers, and the answers of reference models trained for the purpose. Each
attack returns a score for every row. Nothing that they see states which rows are members.
"""

import math
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
from expost.auditing.attacks.linear_gradients import gradient_scores
from expost.auditing.disparity import disparity
from expost.auditing.evidence import Attack, Evidence, Flags, missing
from expost.auditing.fit import Fit, fit_of
from expost.auditing.lower_bounds import LowerBound
from expost.auditing.references import evidence_of, no_references, train_references
from expost.auditing.result import Audit, Exposures
from expost.auditing.roc import figures, row_auc
from expost.auditing.shift import Shift, detect_shift
from expost.auditing.signals import as_rows, count_rows, stack_rows, take_rows
from expost.auditing.targets import EstimatorTarget, ReleaseTarget, Target, target_of
from expost.auditing.training import one_thread, seed_number, without_warnings
from expost.errors import ExpostError, InvalidInput
from expost.profiles.profile import Profile
from expost.profiles.verb import SEEDED, profile
from expost.release import Release
from expost.results import row_keys
from expost.risk import Guarantee
from expost.types import FloatArray

__all__ = ["Game", "Options", "audit", "audit_arrays", "audit_evidence"]

# The name of the column by which rows are always grouped.
_CLASS = "class"
_ONLY_ANSWERS = "a model of which only answers are known"
_UNCOVERED = (
    "The model's guarantee is not shown: it covers the last step alone, and steps before it learned"
    " from the rows."
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
    propensity: Any = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    random_state: int | None = None,
    workers: int | None = None,
    checkpoint: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Attack ``model`` and return how exposed its training rows are, row by row.

    Parameters
    ----------
    model : Any
        A released model or the path of its model.json (never redrawn), any scikit-learn estimator
        or Pipeline, an expost estimator, a saved model of another library
        (:func:`expost.auditing.load_model`), or a function ``train(X, y, seed)`` that returns
        ``predict_proba``.
    X, y : Any
        For a fitted model: the rows it was trained on, its members. For an unfitted model: the
        pool. The target is then trained here, on a random half: each row is included by a fair
        coin of its own.
    X_out, y_out : Any, optional
        Rows of the same kind that the model was *not* trained on, as many as possible; only for a
        fitted model.
    train : callable, optional
        The training function ``(X, y, seed)`` of a model that is a function or has no ``fit``.
    regression : bool, optional
        Whether labels are numbers to be predicted; None: decided by the estimator, and False for a
        function.
    population : tuple[Any, Any], optional
        (rows, labels) that are in no training data, for the attacks that compare with such rows.
        Leave it out if non-members are few.
    attacks : Sequence[str | Attack], optional
        Names in the catalogue (:data:`expost.auditing.attacks.ATTACKS`) or functions under its
        Protocol; None: all that the evidence suffices for.
    references : int, default=64
        The number of reference models to train; 0: only attacks that need none.
    groups : Mapping[str, Any], optional
        Columns by name, a cell for each row of the pool (members first): the best attack is
        reported by group. Results by class are always reported.
    ids : Sequence[Any], optional
        A key for each row of the pool.
    exposure : Profile, optional
        The members' profile where ``profile`` cannot compute it (DP-SGD).
    coins : bool, default=False
        State that independent fair coins chose the members: one model then suffices for a lower
        bound on ε. If the target is trained here, this holds.
    propensity : Any, optional
        The probability with which each row of the pool was included in the training data,
        independently of the others; one number if it is the same for all. Known by design, as
        ``coins`` is (which are propensities of ½).
    delta : float, default=1e-05
        The δ at which ε is bounded from below.
    confidence : float, default=0.95
        The confidence of intervals and lower bounds.
    random_state : int, optional
        A seed; None: from the operating system.
    workers : int, optional
        Processes that train references; None: one, -1: all processors.
    checkpoint : str | Path, optional
        A folder that keeps finished references; the same call resumes from there.
    progress : callable, optional
        Called with (finished, references).

    Returns
    -------
    Audit
        Curator-only: scores are a function of the data.

    Raises
    ------
    InvalidInput
        If an argument is invalid, or a model cannot be trained or does not answer.

    Notes
    -----
    An attack that fails proves nothing. If the members were not chosen here, members and
    non-members are first compared without the model (:mod:`expost.auditing.shift`): where they
    differ, attacks succeed without any leakage.
    """
    options = Options(
        attacks=_chosen(attacks),
        delta=_checks.probability("delta", delta),
        confidence=_checks.probability("confidence", confidence),
    )
    if _checks.integer("references", references, least=0) == 1:
        raise InvalidInput("references=1: must be 0, or at least 2: one with a row, one without.")
    _check_kinds(population, groups, exposure)
    seeds = np.random.SeedSequence(
        None if random_state is None else _checks.integer("random_state", random_state, least=0)
    ).spawn(4)
    labels = _checks.array(y, "y") if y_out is None else _both(y, y_out)
    every = labels if population is None else _both(labels, population[1])
    game = _play(
        target_of(model, every, train=train, regression=regression), X, y, X_out, y_out, seeds[0]
    )
    chances = _chances(propensity, game, coins=coins)
    # The target is evaluated first: it must not fail after hours of training references.
    trained = no_references(game.target, game.X, game.y, population)
    evidence = evidence_of(game.target, trained, game.X, game.y, population)
    # The number of members is decided by the coins too: neither the share nor a score may use it.
    drawn = coins or game.tossed or chances is not None
    share = float(np.mean(game.truth))
    if drawn:
        share = 0.5 if chances is None else float(np.clip(np.mean(chances), 0.01, 0.99))
    members = math.floor(share * len(game.truth) + 1e-9)
    gradients, left_out = _white_box(game, population, members=members)
    theory = _theory(game, exposure)
    shift = fit = None
    if not game.tossed:
        classes = game.target.labels.classes
        fit = fit_of(
            evidence,
            game.truth,
            game.y,
            scale=game.target.labels.scale if classes is None else None,
            confidence=options.confidence,
        )
        shift = detect_shift(
            game.X,
            game.y,
            game.truth,
            classes=classes is not None,
            confidence=options.confidence,
            seed=seed_number(seeds[3]),
        )
    if references > 0:
        trained = train_references(
            game.target,
            game.X,
            game.y,
            models=references,
            share=share,
            # Without a seed, a checkpoint has its own and is resumed with it.
            random_state=None if random_state is None else seed_number(seeds[1]),
            workers=workers,
            checkpoint=checkpoint,
            progress=progress,
            population=population,
        )
    return audit_evidence(
        replace(
            evidence,
            references=trained.confidence,
            inside=trained.inside,
            population_references=trained.population,
            reference_views=trained.views,
            extras=gradients,
        ),
        game.truth,
        options=replace(
            options,
            coins=drawn,
            propensity=chances,
            # References that another method trained say nothing about the ε of this one.
            spread=getattr(train, "trains_target", True),
            seed=seed_number(seeds[2]),
        ),
        description=theory.description,
        groups=_by_class(None if game.target.labels.classes is None else game.y)
        | dict(groups or {}),
        ids=ids,
        exposures=theory.exposures,
        guarantee=theory.guarantee,
        shift=shift,
        fit=fit,
        identity=None if game.release is None else game.release.identity,
        notices=(*theory.notices, *left_out),
    )


@dataclass(frozen=True, kw_only=True)
class Options:
    """How the figures are computed.

    Parameters
    ----------
    attacks : tuple[Attack, ...], optional
        None: all that the evidence suffices for.
    coins : bool, default=False
        Whether independent coins chose the members, fair ones or with ``propensity``.
    propensity : FloatArray, optional
        (n,) the probability with which each row was a member; None: ½.
    spread : bool, default=False
        Whether each row was put into references at random, independently of the others.
    seed : int, default=0
        Splits rows and references into those that choose and those that judge.
    """

    attacks: tuple[Attack, ...] | None = None
    delta: float = 1e-5
    confidence: float = 0.95
    coins: bool = False
    propensity: FloatArray | None = None
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
    """Run attacks on answers that were computed elsewhere.

    Parameters
    ----------
    answers : Arrays | str | Path
        Losses, probabilities or log odds of the rows, which of them were members, and the same of
        references if there are any: :func:`expost.auditing.arrays_of`, or the path of an npz file,
        a CSV or a Parquet table (:mod:`expost.auditing.arrays` documents their layout).
    attacks : Sequence[str | Attack], optional
        As for :func:`expost.audit`.
    groups : Mapping[str, Any], optional
        As for :func:`expost.audit`.
    description : str, optional
        The model in one line.
    coins : bool, default=False
        State that independent fair coins chose the members, and the rows of each reference: without
        that nothing is proved about ε. If the arrays hold ``propensity``, the coins have these
        probabilities.
    delta, confidence : float
        As for :func:`expost.audit`.
    random_state : int, default=0
        As for :func:`expost.audit`.

    Returns
    -------
    Audit
        Curator-only: scores are a function of the data.

    Raises
    ------
    InvalidInput
        If the arrays are invalid, or do not state which rows were members.
    """
    arrays = answers if isinstance(answers, Arrays) else read_arrays(answers)
    if arrays.member is None:
        raise InvalidInput("answers: must state which rows were members (member, 0 or 1 each).")
    _enough("member", arrays.member)
    classes = None
    if arrays.classes is not None:
        classes = np.asarray(arrays.classes)[arrays.evidence.labels]
    seed = _checks.integer("random_state", random_state, least=0)
    confidence = _checks.probability("confidence", confidence)
    shift = None
    if arrays.features is not None:
        shift = detect_shift(
            arrays.features,
            classes,
            arrays.member,
            classes=True,
            confidence=confidence,
            seed=seed,
        )
    return audit_evidence(
        arrays.evidence,
        arrays.member,
        options=Options(
            attacks=_chosen(attacks),
            delta=_checks.probability("delta", delta),
            confidence=confidence,
            coins=coins or arrays.propensity is not None,
            propensity=arrays.propensity,
            spread=coins,
            seed=seed,
        ),
        description=_ONLY_ANSWERS if description is None else description,
        groups=_by_class(classes) | dict(groups or {}),
        ids=None if arrays.ids is None else list(arrays.ids),
        shift=shift,
        fit=fit_of(arrays.evidence, arrays.member, classes, scale=None, confidence=confidence),
    )


def audit_evidence(
    evidence: Evidence,
    truth: Any,
    *,
    options: Options | None = None,
    description: str = _ONLY_ANSWERS,
    groups: Mapping[str, Any] | None = None,
    ids: Sequence[Any] | None = None,
    exposures: Exposures | None = None,
    guarantee: Guarantee | None = None,
    shift: Shift | None = None,
    fit: Fit | None = None,
    identity: str | None = None,
    notices: tuple[str, ...] = (),
) -> Audit:
    """Run every attack that ``evidence`` suffices for; ``truth`` (n,) states the members."""
    options = Options() if options is None else options
    truth = _flags(truth, evidence.rows)
    scores, skipped = _scores(evidence, options.attacks)
    by_attack = {
        name: figures(score, truth, confidence=options.confidence, random_state=options.seed)
        for name, score in scores.items()
    }
    best = max(by_attack, key=lambda name: by_attack[name].auc.value)
    chosen_by = _chosen_by(options)
    if shift is not None and shift.is_detected and chosen_by != "propensity":
        # Rows that coins of one probability choose are exchangeable: the statement is false.
        options = replace(options, coins=False)
    return Audit(
        description=description,
        truth=truth,
        scores=scores,
        figures=by_attack,
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
        shift=_with_bound(shift, scores, truth, best, options),
        chosen_by=chosen_by,
        fit=fit,
        identity=identity,
        notices=notices,
    )


def _chosen_by(options: Options) -> str:
    if not options.coins:
        return "unknown"
    if options.propensity is None or bool(np.all(options.propensity == 0.5)):
        return "coins"
    # One number that a table or float32 rounded is still one number.
    return "constant propensity" if np.ptp(options.propensity) < 1e-6 else "propensity"


def _with_bound(
    shift: Shift | None,
    scores: Mapping[str, FloatArray],
    truth: Flags,
    best: str,
    options: Options,
) -> Shift | None:
    """Return the shift with the bound on ε that rests on its propensities.

    Where coins chose the members, their true propensities are used instead, in a proved bound.
    """
    if shift is None or options.coins:
        return shift
    bound = one_run.epsilon_lower_bound(
        scores[best],
        truth,
        coins=True,
        propensity=shift.propensity,
        chosen_from=len(scores),
        delta=options.delta,
        confidence=options.confidence,
        random_state=options.seed,
    )
    return replace(
        shift,
        bound=replace(
            bound,
            method="One training, estimated propensities",
            detail=bound.detail.replace("the given", "the estimated"),
            assumption="that the memberships were drawn independently, with the probabilities that"
            " the blind classifier estimated",
        ),
    )


def _scores(
    evidence: Evidence, chosen: tuple[Attack, ...] | None
) -> tuple[dict[str, FloatArray], dict[str, str]]:
    """Return scores by attack, and why others were skipped; a chosen attack is never skipped."""
    scores: dict[str, FloatArray] = {}
    skipped: dict[str, str] = {}
    for attack in ATTACKS.values() if chosen is None else chosen:
        reason = missing(attack, evidence)
        if reason is None:
            scores[attack.name] = np.asarray(attack(evidence))
        elif chosen is None:
            skipped[attack.name] = reason
        else:
            raise InvalidInput(f"attacks: {attack.name} {reason}, which the evidence lacks.")
    if chosen is None:
        scores |= evidence.extras
    for name, score in scores.items():
        if score.shape != (evidence.rows,) or not np.all(np.isfinite(score)):
            raise InvalidInput(f"attacks: {name} did not return a finite score for each row.")
    return scores, skipped


def _bounds(
    evidence: Evidence,
    scores: Mapping[str, FloatArray],
    truth: Flags,
    best: str,
    guarantee: Guarantee | None,
    options: Options,
) -> tuple[LowerBound, ...]:
    """Return lower bounds on ε: from all trainings, and from the one whose members coins chose.

    All hold simultaneously at the confidence. Gaussian noise is refuted by its own trade-off curve,
    which is sharper than one point of it.
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
                propensity=options.propensity,
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
    return tuple(ATTACKS[attack] if isinstance(attack, str) else attack for attack in attacks)


def _check_kinds(population: Any, groups: Any, exposure: Any) -> None:
    if population is not None and not (
        isinstance(population, tuple | list) and len(population) == 2
    ):
        raise InvalidInput("population: must be a pair (rows, labels).")
    if groups is not None and not isinstance(groups, Mapping):
        raise InvalidInput("groups: must be columns by their names, {name: cells}.")
    if exposure is not None and not isinstance(exposure, Profile):
        raise InvalidInput(
            f"exposure: is a {type(exposure).__name__}; must be the members' profile"
            " (expost.profile)."
        )


def _by_class(labels: Any) -> dict[str, Any]:
    """Return the classes as strings: classes named by numbers have no order to bin by."""
    return {} if labels is None else {_CLASS: np.asarray(labels).astype(str)}


def _flags(truth: Any, rows: int) -> Flags:
    flags = np.asarray(truth)
    if flags.dtype != np.bool_ or flags.shape != (rows,):
        raise InvalidInput(f"truth: must be {rows} booleans, one for each row in question.")
    return flags


# -- the game: the pool, the target, the members, and their exposures -----------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Game:
    """A pool of rows and a target that was trained on those for which ``truth`` is true.

    Parameters
    ----------
    description : str
        The model, or how it is trained, in one line.
    tossed : bool
        Whether the members were chosen here, by a coin for each row.
    """

    description: str
    target: Target
    X: Any
    y: NDArray[Any]
    truth: Flags
    tossed: bool

    @property
    def members(self) -> tuple[Any, NDArray[Any]]:
        """The rows and labels that the target was trained on, in the order of the pool."""
        rows = np.flatnonzero(self.truth)
        return take_rows(self.X, rows), self.y[rows]

    @property
    def model(self) -> Any:
        """The model as other verbs take it; None for a training function."""
        if isinstance(self.target, EstimatorTarget):
            return self.target.estimator
        return self.target.release if isinstance(self.target, ReleaseTarget) else None

    @property
    def release(self) -> Release | None:
        """The release of an expost model; None for other models."""
        model = self.model
        last = model[-1] if isinstance(model, Pipeline) else model
        release = last if isinstance(last, Release) else getattr(last, "release_", None)
        return release if isinstance(release, Release) else None


def _play(
    target: Target, X: Any, y: Any, X_out: Any, y_out: Any, seed: np.random.SeedSequence
) -> Game:
    """Take the members as given, or choose them by coins and train the target."""
    X, labels = as_rows(X), _vector(y, "y")
    if target.is_fitted:
        if X_out is None or y_out is None:
            raise InvalidInput(
                "X_out, y_out: must be given with a fitted model: rows like its own that it was"
                " not trained on. With an unfitted model, half of X is left out."
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
            "X_out, y_out: the model is not fitted, and is trained here on a random half of X;"
            " leave them out, or fit the model first."
        )
    coins, training = seed.spawn(2)
    truth = np.random.default_rng(coins).random(len(labels)) < 0.5
    game = Game(
        description=target.description, target=target, X=X, y=labels, truth=truth, tossed=True
    )
    _check(game)
    with one_thread(), without_warnings():
        trained = target.trained(*game.members, seed_number(training), name="the target")
    return replace(game, target=trained)


def _chances(propensity: Any, game: Game, *, coins: bool) -> FloatArray | None:
    """Return (n,) the given propensities of the pool, checked."""
    if propensity is None:
        return None
    if game.tossed:
        raise InvalidInput(
            "propensity: the model is not fitted, and its members are chosen here by fair coins;"
            " leave it out."
        )
    if coins:
        raise InvalidInput("propensity, coins: give one; fair coins are a propensity of 0.5.")
    chances = one_run.checked_propensity(propensity, len(game.truth))
    if np.any(game.truth & (chances == 0)) or np.any(~game.truth & (chances == 1)):
        raise InvalidInput(
            "propensity: is 0 for a member, or 1 for a non-member; such a row could not be there."
        )
    return chances


def _check(game: Game) -> None:
    if count_rows(game.X) != len(game.y):
        raise InvalidInput(
            f"y has {len(game.y)} entries: must have one for each of {count_rows(game.X)} rows."
        )
    _enough("X", game.truth)


def _enough(name: str, truth: Flags) -> None:
    """Refuse too few rows early: a threshold is chosen on some of each kind, judged on others."""
    members = int(np.count_nonzero(truth))
    if not 2 <= members <= len(truth) - 2:
        raise InvalidInput(
            f"{name}: {members} members and {len(truth) - members} non-members: an audit needs at"
            " least two of each; give more rows."
        )


def _white_box(
    game: Game, population: tuple[Any, Any] | None, *, members: int
) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """Return the white-box scores of a linear model or a torch module; none for other models.

    If such a model's gradients cannot be computed, a notice states why, and the audit continues.
    """
    # A model made by a training function may compute its own scores, as a torch module does.
    model = getattr(game.target, "model", None) if game.model is None else game.model
    if model is None:
        return {}, ()
    left_out = "The attacks on gradients were left out: "
    if _lacks_classes(model, game.y if population is None else _both(game.y, population[1])):
        return {}, (f"{left_out}the model has not seen every class of these rows.",)
    try:
        scores = gradient_scores(model, game.X, game.y, members=members, population=population)
    except ExpostError as error:
        return {}, (f"{left_out}{error}",)
    return scores, ()


def _lacks_classes(model: Any, labels: NDArray[Any]) -> bool:
    """Return whether some label is not among the model's classes."""
    known = getattr(model, "classes", None) if isinstance(model, Release) else None
    known = getattr(model, "classes_", known)
    return known is not None and not bool(np.all(np.isin(labels, np.asarray(known))))


@dataclass(frozen=True, kw_only=True)
class _Theory:
    """What theory states: the description, the members' exposures, the guarantee, and notices."""

    description: str
    exposures: Exposures | None = None
    guarantee: Guarantee | None = None
    notices: tuple[str, ...] = ()


def _theory(game: Game, exposure: Profile | None) -> _Theory:
    """Return the losses and the guarantee of an expost model; for other models what is given."""
    if exposure is not None:
        return _Theory(
            description=exposure.description,
            exposures=_exposures(game, exposure),
            guarantee=exposure.terms.guarantee,
            notices=exposure.notices,
        )
    release = game.release
    if release is None:
        return _Theory(description=game.description)
    guarantee = release.mechanism.guarantee() if release.mechanism.is_private else None
    notices: tuple[str, ...] = ()
    if guarantee is not None and _learns_before(game.model):
        guarantee, notices = None, (_UNCOVERED,)
    try:
        with without_warnings():
            members_profile = profile(game.model, *game.members)
    except ExpostError as error:
        notice = f"Exposures are not shown with the attacks: {error}"
        return _Theory(
            description=game.description, guarantee=guarantee, notices=(*notices, notice)
        )
    return _Theory(
        description=members_profile.description,
        exposures=_exposures(game, members_profile),
        guarantee=guarantee,
        # A target that was trained here is a simulation: it is meant to have a seed.
        notices=(
            *notices,
            *(
                notice
                for notice in members_profile.notices
                if not (game.tossed and notice == SEEDED)
            ),
        ),
    )


def _learns_before(model: Any) -> bool:
    """Return whether a step before the last of a Pipeline learns from the rows."""
    steps = [step for _, step in model.steps[:-1]] if isinstance(model, Pipeline) else []
    return any(_learns(step) for step in steps if step not in (None, "passthrough"))


def _learns(step: Any) -> bool:
    if isinstance(step, FrozenEstimator):
        return False
    try:
        return bool(get_tags(step).requires_fit)
    except (AttributeError, TypeError):
        # Unknown: assume that it does.
        return True


def _exposures(game: Game, members_profile: Profile) -> Exposures:
    members = int(np.count_nonzero(game.truth))
    if len(members_profile) != members:
        raise InvalidInput(
            f"exposure: has {len(members_profile)} rows; must have the {members} members in their"
            " order."
        )
    return Exposures(
        loss=members_profile.loss,
        expected=members_profile.expected,
        distance=members_profile.distance,
    )


def _both(first: Any, second: Any) -> NDArray[Any]:
    """Return the labels of both, concatenated."""
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
