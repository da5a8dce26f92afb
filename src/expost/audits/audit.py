"""``audit``, the verb: what membership inference gets out of a model.

The game: of a pool of rows the model was trained with some, the members, and not with the others.
Attacks see the model's answers, and models like it that were trained for the purpose; each gives
every row a score. Nothing that they see says who is a member.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from expost import _checks
from expost.attacks import lower_bounds, one_run
from expost.attacks.arrays import Arrays, read_arrays
from expost.attacks.catalogue import ATTACKS
from expost.attacks.evidence import Attack, Evidence, Flags, missing
from expost.attacks.lower_bounds import LowerBound
from expost.attacks.references import evidence_of, no_references, train_references
from expost.attacks.roc import figures
from expost.attacks.targets import target_of
from expost.attacks.told_apart import told_apart
from expost.audits.disparity import disparity
from expost.audits.game import both, enough, known, play, white_box
from expost.audits.result import Audit, Exposures
from expost.errors import InvalidInput
from expost.profiles.profile import Profile
from expost.results import row_keys
from expost.risk import Guarantee
from expost.types import FloatArray

__all__ = ["Options", "audit", "audit_arrays", "audit_evidence"]

# By what rows are grouped where nothing else is asked for.
_CLASS = "class"


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
                     such rows; with few others to spare, leave it out.
    ``attacks``      names in the catalogue (:data:`expost.attacks.catalogue.ATTACKS`) or functions
                     under its Protocol; None: all that the evidence suffices for.
    ``references``   how many models like the target are trained; 0: attacks do without.
    ``groups``       columns by their names, a cell for each row of the pool (members first): the
                     attack by group. By class it is always told.
    ``exposure``     the members' profile where ``profile`` cannot find it itself (DP-SGD).
    ``coins``        state that independent fair coins chose the members: ε is then bounded from
                     below by this one model. Where the target is trained here they did.
    ``checkpoint``   a folder that keeps finished references; the same call goes on from there.

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
    labels = _checks.array(y, "y") if y_out is None else both(y, y_out)
    every = labels if population is None else both(labels, population[1])
    game = play(
        target_of(model, every, train=train, regression=regression), X, y, X_out, y_out, seeds[0]
    )
    # All that is asked of the target comes first: it must not fail after hours of training.
    found = no_references(game.target, game.X, game.y, population)
    evidence = evidence_of(game.target, found, game.X, game.y, population)
    # The number of heads is one of the coins' too: neither the share nor a score may know it.
    fair = coins or game.tossed
    gradients, left_out = white_box(game, population, coins=fair)
    theory = known(game, exposure)
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
                 where there are some: :func:`expost.attacks.arrays_of`, or the path of an npz
                 file, a CSV or a Parquet table (:mod:`expost.attacks.arrays` says how they are
                 laid out). The other arguments are those of :func:`audit`.
    ``coins``    state that independent fair coins chose the members, and the rows of each
                 reference: without that nothing is proved about ε.
    """
    found = answers if isinstance(answers, Arrays) else read_arrays(answers)
    if found.member is None:
        raise InvalidInput("answers: must say who was a member (member, 0 or 1 for each row).")
    enough("member", found.member)
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
        told_apart=told_apart(evidence.references, evidence.inside) if evidence.models else None,
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
                " and needs (expost.attacks.evidence.Attack)."
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
