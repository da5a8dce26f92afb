"""The game of an audit: a pool of rows, a target, who was a member, and what theory knows."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from expost import _checks
from expost.attacks import _rows
from expost.attacks._quiet import one_thread, without_warnings
from expost.attacks.evidence import Flags
from expost.attacks.linear import gradient_scores
from expost.attacks.targets import EstimatorTarget, ReleaseTarget, Target
from expost.audits.result import Exposures
from expost.errors import ExpostError, InvalidInput
from expost.profiles.profile import Profile
from expost.profiles.verb import SEEDED, profile
from expost.release import Release
from expost.risk import Guarantee
from expost.types import FloatArray

__all__ = ["Game", "Known", "both", "enough", "known", "play", "white_box"]

_UNCOVERED = (
    "The model's promise is not shown: it is that of the last step alone, and steps before it"
    " learned from the rows, which it does not cover."
)


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
        return _rows.take(self.X, rows), self.y[rows]

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


def play(
    target: Target, X: Any, y: Any, X_out: Any, y_out: Any, seed: np.random.SeedSequence
) -> Game:
    """Take the members as they are given, or toss coins for them and train the target."""
    X, labels = _rows.whole(X), _vector(y, "y")
    if target.is_fitted:
        if X_out is None or y_out is None:
            raise InvalidInput(
                "X_out, y_out: must be given with a model that is fitted: rows like its own that"
                " it was not trained on. Of a model that is not fitted, half of X is left out."
            )
        others = _vector(y_out, "y_out")
        pool = _rows.stacked(X, X_out)
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
    if _rows.count(game.X) != len(game.y):
        raise InvalidInput(
            f"y has {len(game.y)} entries: must have one for each of {_rows.count(game.X)} rows."
        )
    enough("X", game.truth)


def enough(name: str, truth: Flags) -> None:
    """Before hours of training: a threshold is chosen by some of each kind, judged by others."""
    members = int(np.count_nonzero(truth))
    if not 2 <= members <= len(truth) - 2:
        raise InvalidInput(
            f"{name}: {members} members and {len(truth) - members} others: an audit needs at least"
            " two of each; give more rows."
        )


def white_box(
    game: Game, population: tuple[Any, Any] | None, *, coins: bool
) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """Scores of who sees the parameters of a linear model or a torch module; none of another.

    Where such a model's gradients cannot be had, the notice that says why: the others go on.
    """
    # What a training function has made may speak for itself, as a torch module does.
    model = getattr(game.target, "model", None) if game.model is None else game.model
    if model is None:
        return {}, ()
    told = "The attacks on gradients were left out: "
    if _is_unheard(model, game.y if population is None else both(game.y, population[1])):
        return {}, (f"{told}the model has not seen every class of these rows.",)
    # Where coins decided, their number is one of theirs: it is no one's to know.
    members = len(game.truth) // 2 if coins else int(np.count_nonzero(game.truth))
    try:
        scores = gradient_scores(model, game.X, game.y, members=members, population=population)
    except ExpostError as error:
        return {}, (f"{told}{error}",)
    return scores, ()


def _is_unheard(model: Any, labels: NDArray[Any]) -> bool:
    """Whether some label is none of the classes that the model tells apart."""
    known = getattr(model, "classes", None) if isinstance(model, Release) else None
    known = getattr(model, "classes_", known)
    return known is not None and not bool(np.all(np.isin(labels, np.asarray(known))))


@dataclass(frozen=True, kw_only=True)
class Known:
    """What theory says: of the model, of its members, of any row, and what must be said of it."""

    description: str
    exposures: Exposures | None = None
    guarantee: Guarantee | None = None
    notices: tuple[str, ...] = ()


def known(game: Game, exposure: Profile | None) -> Known:
    """Of an expost model its members' losses and its promise; of others what is given."""
    described = game.description
    if exposure is not None:
        return Known(
            description=exposure.description,
            exposures=_exposures(game, exposure),
            guarantee=exposure.terms.guarantee,
            notices=exposure.notices,
        )
    release = game.release
    if release is None:
        return Known(description=described)
    guarantee = release.mechanism.guarantee() if release.mechanism.is_private else None
    notices: tuple[str, ...] = ()
    if guarantee is not None and _learns_before(game.model):
        guarantee, notices = None, (_UNCOVERED,)
    try:
        with without_warnings():
            found = profile(game.model, *game.members)
    except ExpostError as error:
        notice = f"Exposures are not shown beside the attacks: {error}"
        return Known(description=described, guarantee=guarantee, notices=(*notices, notice))
    return Known(
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
    return Exposures(loss=found.loss, typical=found.expected, distance=found.distance)


def both(first: Any, second: Any) -> NDArray[Any]:
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
