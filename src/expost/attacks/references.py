"""Models like the target, trained once and shared by all attacks.

Conventions
-----------
m, n, k   references; rows in question; rows of the population.
inside    (m, n) whether a reference was trained with a row. Each row lies in exactly r of the m,
          r = round(share·m) within 1 … m − 1, chosen uniformly for each row on its own: so every
          row has references with it and without it (Carlini et al. 2022, Algorithm 1), and a
          reference has share·n rows give or take √n.

Everything random is drawn from ``random_state`` by the number of the reference: neither workers,
nor their order, nor an interruption changes a result.
"""

import hashlib
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from expost import _checks
from expost.attacks import _rows, signals
from expost.attacks._checkpoint import Checkpoint
from expost.attacks._fingerprint import fingerprint
from expost.attacks._quiet import one_thread, without_warnings
from expost.attacks.evidence import Confidences, Evidence, Flags
from expost.attacks.targets import Target
from expost.errors import InvalidInput

__all__ = ["References", "evidence_of", "no_references", "train_references"]

# References whose views are kept: as many shadow models (Shokri et al. 2017) as n rows each need.
SHADOWS = 8
# Rows whose places are drawn at a time.
_DRAWN = 2**16


@dataclass(frozen=True, kw_only=True, eq=False)
class References:
    """What m references say.

    ``confidence``  (m, n) φ of every row in question; in a file past ``most_memory``.
    ``inside``      (m, n) whether the reference was trained with the row.
    ``population``  (m, k) φ of the population.
    ``views``       (s, n, c) the largest probabilities, of the first s references.
    """

    confidence: Confidences
    inside: Flags
    population: Confidences
    views: Confidences

    @property
    def models(self) -> int:
        """m."""
        return len(self.confidence)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Game:
    """What every worker is given: the rows, and how models are trained, without the target's."""

    target: Target
    X: Any
    y: NDArray[Any]
    population: tuple[Any, NDArray[Any]] | None

    def reference(
        self, number: int, rows: NDArray[np.intp], seed: int, views: bool
    ) -> dict[str, NDArray[np.float32]]:
        """Train a reference on these rows and ask it about all."""
        name = f"reference {number}"
        with one_thread(), without_warnings():
            model = self.target.trained(_rows.take(self.X, rows), self.y[rows], seed, name=name)
            found = model.signals(self.X, self.y)
            outside = np.empty(0, dtype=np.float32)
            if self.population is not None:
                outside = model.signals(*self.population).confidence
        kept = found.views if views else found.views[:, :0]
        return {"confidence": found.confidence, "population": outside, "views": kept}


def train_references(
    target: Target,
    X: Any,
    y: Any,
    *,
    models: int,
    share: float = 0.5,
    random_state: int | None = None,
    workers: int | None = None,
    checkpoint: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    population: tuple[Any, Any] | None = None,
    shadows: int = SHADOWS,
    most_memory: int = 2**30,
) -> References:
    """Train ``models`` references, each on a random part of the rows in question.

    Args:
        target: what they are trained like.
        X: the rows in question, those of members and of others.
        y: their labels.
        models: m ≥ 2.
        share: of the rows in each reference; members/rows makes references of the target's size.
        random_state: a seed; None draws one from the operating system.
        workers: processes at a time, −1 for all processors; None for one, or what
            ``joblib.parallel_config`` says (threads, dask …).
        checkpoint: a folder for what is finished: a second call goes on from there.
        progress: called with (finished, models).
        population: (X, y) of rows that are in nobody's training.
        shadows: references whose views are kept.
        most_memory: bytes of φ past which it lies in a temporary file.
    """
    m = _checks.whole("models", models, least=2)
    share = _checks.probability("share", share)
    kept = min(_checks.whole("shadows", shadows, least=0), m)
    seed = None if random_state is None else _checks.whole("random_state", random_state, least=0)
    if workers is not None:
        _check_workers(workers)
    if not target.can_train:
        raise InvalidInput("references: nothing like this target can be trained; pass train=.")
    game = _game(target, X, y, population)
    n, k = len(game.y), 0 if game.population is None else len(game.population[1])
    if n < 2:
        raise InvalidInput(f"X has {n} row: an audit needs at least two.")
    digest = "" if checkpoint is None else _digest(game, m, share, kept)
    store = Checkpoint.open(checkpoint, digest, seed)

    def room(shape: tuple[int, ...], kind: Any) -> NDArray[Any]:
        return _room(shape, kind, most_memory, store.folder)

    references = References(
        confidence=room((m, n), np.float32),
        inside=room((m, n), np.bool_),
        population=room((m, k), np.float32),
        views=room((kept, n, _width(target)), np.float32),
    )
    _spread(references.inside, share, store.entropy)
    _fill(references, game, store, workers, progress)
    return references


def no_references(
    target: Target, X: Any, y: Any, population: tuple[Any, Any] | None = None
) -> References:
    """None at all, for attacks that look at the target alone; arguments as when there are some."""
    game = _game(target, X, y, population)
    n, k = len(game.y), 0 if game.population is None else len(game.population[1])
    return References(
        confidence=np.empty((0, n), dtype=np.float32),
        inside=np.empty((0, n), dtype=np.bool_),
        population=np.empty((0, k), dtype=np.float32),
        views=np.empty((0, n, _width(target)), dtype=np.float32),
    )


def evidence_of(
    target: Target,
    references: References,
    X: Any,
    y: Any,
    population: tuple[Any, Any] | None = None,
) -> Evidence:
    """Ask the target about the rows in question; with the references, all that attacks are given.

    ``X``, ``y`` and ``population`` are those that the references were trained with.
    """
    found = target.signals(X, y)
    outside, numbers = np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int32)
    if population is not None:
        outside = target.signals(*population).confidence
        numbers = target.labels.numbers(population[1])
    return Evidence(
        confidence=found.confidence,
        labels=target.labels.numbers(y),
        references=references.confidence,
        inside=references.inside,
        population=outside,
        population_labels=numbers,
        population_references=references.population,
        views=found.views,
        reference_views=references.views,
    )


def _game(target: Target, X: Any, y: Any, population: tuple[Any, Any] | None) -> _Game:
    """Check before hours of training what would fail after them."""
    X, labels = _rows.whole(X), _column(y)
    target.labels.numbers(labels)
    if _rows.count(X) != len(labels):
        raise InvalidInput(f"y has {len(labels)} entries: must have one for each row of X.")
    if population is None:
        return _Game(target=target.untrained, X=X, y=labels, population=None)
    if not isinstance(population, tuple | list) or len(population) != 2:
        raise InvalidInput("population: must be a pair (rows, labels).")
    outside, theirs = _rows.whole(population[0], name="population"), _column(population[1])
    target.labels.numbers(theirs)
    if _rows.count(outside) != len(theirs):
        raise InvalidInput("population: must have one label for each of its rows.")
    return _Game(target=target.untrained, X=X, y=labels, population=(outside, theirs))


def _column(y: Any) -> NDArray[Any]:
    labels = np.asarray(y)
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels


def _width(target: Target) -> int:
    return 0 if target.classes is None else min(signals.VIEWS, len(target.classes))


def _digest(game: _Game, models: int, share: float, shadows: int) -> str:
    """Of all that a result depends on but the seed."""
    labels = game.target.labels

    def told(y: NDArray[Any]) -> NDArray[Any]:
        return labels.numbers(y) if labels.classes is not None else y.astype(np.float64)

    parts = [game.target.description, labels.scale, models, share, shadows]
    parts += [fingerprint(game.X), fingerprint(told(game.y))]
    parts.append(None if labels.classes is None else labels.classes.tolist())
    if game.population is not None:
        parts += [fingerprint(game.population[0]), fingerprint(told(game.population[1]))]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _room(shape: tuple[int, ...], kind: Any, most: int, folder: Path | None) -> NDArray[Any]:
    """Memory, or a file without a name that goes with the array, for more than ``most`` bytes."""
    size = math.prod(shape) * np.dtype(kind).itemsize
    if size <= most:
        return np.empty(shape, dtype=kind)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return np.memmap(file, dtype=kind, mode="w+", shape=shape)
    except (OSError, OverflowError, ValueError):
        raise InvalidInput(
            f"references={shape[0]}: {size / 2**30:.3g} GiB of answers do not fit on the disk; take"
            " fewer, or fewer rows."
        ) from None


def _check_workers(workers: Any) -> None:
    whole = isinstance(workers, int | np.integer) and not isinstance(workers, bool)
    if not whole or workers == 0:
        raise InvalidInput(
            f"workers={workers!r}: must be a whole number of at least 1, -1 for all processors, or"
            " None."
        )


def _spread(inside: Flags, share: float, entropy: int) -> None:
    """Put each row into exactly r of the m references."""
    m, n = inside.shape
    held = min(max(round(share * m), 1), m - 1)
    rng = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(0,)))
    for start in range(0, n, _DRAWN):
        places = np.zeros((min(_DRAWN, n - start), m), dtype=np.bool_)
        places[:, :held] = True
        inside[:, start : start + _DRAWN] = rng.permuted(places, axis=1).T


def _fill(
    references: References,
    game: _Game,
    store: Checkpoint,
    workers: int | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Read what is kept, train the rest, and put each where it belongs as it comes."""
    m, kept = references.models, len(references.views)
    missing = []
    for number in range(m):
        shapes = {
            "confidence": references.confidence.shape[1:],
            "population": references.population.shape[1:],
            "views": (
                references.views.shape[1:] if number < kept else (references.inside.shape[1], 0)
            ),
        }
        found = store.kept(number, shapes)
        if found is None:
            missing.append(number)
        else:
            _put(references, number, found)
    done = m - len(missing)
    if progress is not None:
        progress(done, m)
    # Around all of them too: to set it for each takes as long as fitting a small model.
    with one_thread(), without_warnings():
        for number, found in _trained(
            references.inside, game, store.entropy, missing, kept, workers
        ):
            store.keep(number, found)
            _put(references, number, found)
            done += 1
            if progress is not None:
                progress(done, m)


def _put(references: References, number: int, found: dict[str, NDArray[np.float32]]) -> None:
    references.confidence[number] = found["confidence"]
    references.population[number] = found["population"]
    if number < len(references.views):
        references.views[number] = found["views"]


def _trained(
    inside: Flags, game: _Game, entropy: int, numbers: list[int], kept: int, workers: int | None
) -> Iterator[tuple[int, dict[str, NDArray[np.float32]]]]:
    """References as they are finished, in any order."""
    if not numbers:
        return
    tasks = (
        joblib.delayed(_task)(game, number, np.flatnonzero(inside[number]), entropy, number < kept)
        for number in numbers
    )
    yield from _pool(workers)(tasks)


def _pool(workers: int | None) -> Any:
    try:
        return joblib.Parallel(n_jobs=workers, return_as="generator_unordered")
    except ValueError:
        # A backend that gives everything at the end, or nothing.
        return joblib.Parallel(n_jobs=workers)


def _task(
    game: _Game, number: int, rows: NDArray[np.intp], entropy: int, views: bool
) -> tuple[int, dict[str, NDArray[np.float32]]]:
    # The key 0 is the spread's.
    seed = np.random.SeedSequence(entropy, spawn_key=(1, number)).generate_state(1)[0] >> 1
    return number, game.reference(number, rows, int(seed), views)
