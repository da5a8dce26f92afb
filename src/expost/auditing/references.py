"""Reference models: trained as the target was, once, and shared by all attacks.

Conventions
-----------
m, n, k   references; rows in question; rows of the population.
inside    (m, n) whether a reference was trained with a row. Each row lies in exactly r of the m,
          r = round(share·m) within 1 … m − 1, chosen uniformly and independently for each row: so
          every row has references with it and without it (Carlini et al. 2022, Algorithm 1), and a
          reference has share·n ± √n rows.

Everything random is drawn from ``random_state`` by the number of the reference: neither workers,
nor their order, nor an interruption changes a result.

A checkpoint is a folder with one small file per reference, so that a long audit can be resumed:

    settings.json       format, the digest of data and settings, the entropy of the seeds
    reference-0007.npz  the answers of reference 7 for every row

Each file is complete or absent. A folder of other data or settings is refused, and so is a file
copied from such a folder. A reference whose file cannot be read, or has another shape, is trained
again.
"""

import hashlib
import math
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from expost import _checks
from expost.auditing.evidence import Confidences, Evidence, Flags
from expost.auditing.signals import VIEWS, as_rows, count_rows, take_rows
from expost.auditing.targets import Target
from expost.auditing.training import fingerprint, one_thread, seed_number, without_warnings
from expost.errors import InvalidInput
from expost.files.atomic import BROKEN_NPZ, read_json, write_json, write_with
from expost.types import Audience

__all__ = ["Checkpoint", "References", "evidence_of", "no_references", "train_references"]

_FORMAT = "expost-references/1"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The folder that keeps finished references; ``folder`` None keeps nothing."""

    folder: Path | None
    digest: str
    entropy: int

    @classmethod
    def open(cls, folder: str | Path | None, digest: str, entropy: int | None) -> "Checkpoint":
        """Open or create the folder; ``entropy`` None: that of the folder, or a fresh one."""
        fresh = secrets.randbits(128) if entropy is None else entropy
        if folder is None:
            return cls(folder=None, digest=digest, entropy=fresh)
        folder = Path(folder)
        label, settings = f"checkpoint={str(folder)!r}", folder / "settings.json"
        if settings.exists():
            kept = _read_settings(settings, label)
            if kept["digest"] != digest or entropy not in (None, int(kept["entropy"])):
                raise InvalidInput(
                    f"{label}: holds references of other data, settings or another random_state;"
                    " delete it, or name another folder."
                )
            return cls(folder=folder, digest=digest, entropy=int(kept["entropy"]))
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A crash may have left an incomplete file, whose name starts with a dot.
            if any(not path.name.startswith(".") for path in folder.iterdir()):
                raise InvalidInput(f"{label}: holds other files; name a folder that is empty.")
            content = {"format": _FORMAT, "digest": digest, "entropy": str(fresh)}
            write_json(settings, Audience.CURATOR_ONLY, content)
        except OSError as error:
            raise InvalidInput(f"{label}: cannot be written to ({error.strerror}).") from None
        return cls(folder=folder, digest=digest, entropy=fresh)

    def keep(self, number: int, arrays: dict[str, Any]) -> None:
        """Write the answers of reference ``number``."""
        if self.folder is None:
            return
        path = self._path(number)
        try:
            write_with(
                path,
                Audience.CURATOR_ONLY,
                lambda file: np.savez(file, digest=self._mark(number), **arrays),
            )
        except OSError as error:
            raise InvalidInput(f"{path}: cannot be written ({error.strerror}).") from None

    def kept(
        self, number: int, shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, NDArray[np.float32]] | None:
        """Return what :meth:`keep` wrote; None if the reference must be trained (again)."""
        if self.folder is None or not self._path(number).exists():
            return None
        path = self._path(number)
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                mark = str(file["digest"])
                arrays = {name: file[name] for name in shapes}
        except (OSError, *BROKEN_NPZ):
            return None
        if mark != self._mark(number):
            raise InvalidInput(f"{path}: is a reference of another audit; delete it.")
        whole = all(
            array.shape == shapes[name] and array.dtype == np.float32 and np.all(np.isfinite(array))
            for name, array in arrays.items()
        )
        return arrays if whole else None

    def _path(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"reference-{number:04d}.npz"

    def _mark(self, number: int) -> str:
        """Return the mark that identifies the file of one reference of this audit."""
        return f"{_FORMAT} {self.digest} {self.entropy} {number}"


def _read_settings(path: Path, label: str) -> dict[str, str]:
    kept = read_json(path)
    fields = ("format", "digest", "entropy")
    if (
        not isinstance(kept, dict)
        or any(not isinstance(kept.get(name), str) for name in fields)
        or kept["format"] != _FORMAT
        or not kept["entropy"].isdecimal()
    ):
        raise InvalidInput(f"{label}: its settings.json is not of references; name another folder.")
    return kept


# References whose views are kept: as many shadow models (Shokri et al. 2017) as n rows each need.
SHADOWS = 8
# Rows whose memberships are drawn at a time.
_DRAWN = 2**16


@dataclass(frozen=True, kw_only=True, eq=False)
class References:
    """The answers of m references.

    Parameters
    ----------
    confidence : Confidences
        (m, n) φ of every row in question; in a file past ``most_memory``.
    inside : Flags
        (m, n) whether the reference was trained with the row.
    population : Confidences
        (m, k) φ of the population.
    views : Confidences
        (s, n, c) the largest probabilities, of the first s references.
    """

    confidence: Confidences
    inside: Flags
    population: Confidences
    views: Confidences

    @property
    def models(self) -> int:
        """The number m of references."""
        return len(self.confidence)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Game:
    """What every worker receives: the rows, and the target without its model."""

    target: Target
    X: Any
    y: NDArray[Any]
    population: tuple[Any, NDArray[Any]] | None

    def reference(
        self, number: int, rows: NDArray[np.intp], seed: int, views: bool
    ) -> dict[str, NDArray[np.float32]]:
        """Train a reference on these rows and return its answers for all rows."""
        name = f"reference {number}"
        with one_thread(), without_warnings():
            model = self.target.trained(take_rows(self.X, rows), self.y[rows], seed, name=name)
            signals = model.signals(self.X, self.y)
            outside = np.empty(0, dtype=np.float32)
            if self.population is not None:
                outside = model.signals(*self.population).confidence
        kept = signals.views if views else signals.views[:, :0]
        return {"confidence": signals.confidence, "population": outside, "views": kept}


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

    Parameters
    ----------
    target : Target
        The target whose training is repeated.
    X : Any
        The rows in question, those of members and of non-members.
    y : Any
        Their labels.
    models : int
        The number m ≥ 2 of references.
    share : float, default=0.5
        The share of the rows in each reference; members/rows gives references of the target's size.
    random_state : int, optional
        A seed; None draws one from the operating system.
    workers : int, optional
        Processes at a time, −1 for all processors; None for one, or that of
        ``joblib.parallel_config`` (threads, dask …).
    checkpoint : str | Path, optional
        A folder for finished references: a second call resumes from there.
    progress : callable, optional
        Called with (finished, models).
    population : tuple[Any, Any], optional
        (X, y) of rows that are in no training data.
    shadows : int, default=SHADOWS
        References whose views are kept.
    most_memory : int, default=2 ** 30
        The largest number of bytes of φ in memory; more are kept in a temporary file.

    Returns
    -------
    references : References
        The models, and what they answer for every row.

    Raises
    ------
    InvalidInput
        If an argument is invalid, the target cannot be trained again, or the checkpoint belongs to
        another audit.
    """
    m = _checks.integer("models", models, least=2)
    share = _checks.probability("share", share)
    kept = min(_checks.integer("shadows", shadows, least=0), m)
    most_memory = _checks.integer("most_memory", most_memory, least=0)
    seed = None if random_state is None else _checks.integer("random_state", random_state, least=0)
    if workers is not None:
        _check_workers(workers)
    if not target.can_train:
        raise InvalidInput("references: this target cannot be trained again; pass train=.")
    game = _game(target, X, y, population)
    n, k = len(game.y), 0 if game.population is None else len(game.population[1])
    if n < 2:
        raise InvalidInput(f"X has {n} row: an audit needs at least two.")
    digest = "" if checkpoint is None else _digest(game, m, share, kept)
    store = Checkpoint.open(checkpoint, digest, seed)

    def allocate(shape: tuple[int, ...], kind: Any) -> NDArray[Any]:
        return _allocate(shape, kind, most_memory, store.folder)

    references = References(
        confidence=allocate((m, n), np.float32),
        inside=allocate((m, n), np.bool_),
        population=allocate((m, k), np.float32),
        views=allocate((kept, n, _width(target)), np.float32),
    )
    _spread(references.inside, share, store.entropy)
    _fill(references, game, store, workers, progress)
    return references


def no_references(
    target: Target, X: Any, y: Any, population: tuple[Any, Any] | None = None
) -> References:
    """Return the empty set of references, for attacks that use the target alone."""
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
    """Return the evidence: the target's answers for the rows in question, and the references'.

    ``X``, ``y`` and ``population`` are those of the references.
    """
    signals = target.signals(X, y)
    outside, numbers = np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int32)
    if population is not None:
        outside = target.signals(*population).confidence
        numbers = target.labels.numbers(population[1])
    return Evidence(
        confidence=signals.confidence,
        labels=target.labels.numbers(y),
        references=references.confidence,
        inside=references.inside,
        population=outside,
        population_labels=numbers,
        population_references=references.population,
        views=signals.views,
        reference_views=references.views,
    )


def _game(target: Target, X: Any, y: Any, population: tuple[Any, Any] | None) -> _Game:
    """Check the rows before hours of training."""
    X, labels = as_rows(X), _column(y)
    target.labels.numbers(labels)
    if count_rows(X) != len(labels):
        raise InvalidInput(f"y has {len(labels)} entries: must have one for each row of X.")
    if population is None:
        return _Game(target=target.untrained, X=X, y=labels, population=None)
    if not isinstance(population, tuple | list) or len(population) != 2:
        raise InvalidInput("population: must be a pair (rows, labels).")
    outside, theirs = as_rows(population[0], name="population"), _column(population[1])
    target.labels.numbers(theirs)
    if count_rows(outside) != len(theirs):
        raise InvalidInput("population: must have one label for each of its rows.")
    return _Game(target=target.untrained, X=X, y=labels, population=(outside, theirs))


def _column(y: Any) -> NDArray[Any]:
    labels = np.asarray(y)
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels


def _width(target: Target) -> int:
    classes = target.labels.classes
    return 0 if classes is None else min(VIEWS, len(classes))


def _digest(game: _Game, models: int, share: float, shadows: int) -> str:
    """Return the digest of all that a result depends on, except the seed."""
    labels = game.target.labels

    def codes(y: NDArray[Any]) -> NDArray[Any]:
        return labels.numbers(y) if labels.classes is not None else y.astype(np.float64)

    parts = [game.target.description, labels.scale, models, share, shadows]
    parts += [fingerprint(game.X), fingerprint(codes(game.y))]
    parts.append(None if labels.classes is None else labels.classes.tolist())
    if game.population is not None:
        parts += [fingerprint(game.population[0]), fingerprint(codes(game.population[1]))]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _allocate(shape: tuple[int, ...], kind: Any, most: int, folder: Path | None) -> NDArray[Any]:
    """Return an array in memory, or in an unnamed file if it has more than ``most`` bytes."""
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
            f"workers={workers!r}: must be an integer of at least 1, -1 for all processors, or"
            " None."
        )


def _spread(inside: Flags, share: float, entropy: int) -> None:
    """Put each row into exactly r of the m references."""
    m, n = inside.shape
    held = min(max(round(share * m), 1), m - 1)
    rng = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(0,)))
    for start in range(0, n, _DRAWN):
        memberships = np.zeros((min(_DRAWN, n - start), m), dtype=np.bool_)
        memberships[:, :held] = True
        inside[:, start : start + _DRAWN] = rng.permuted(memberships, axis=1).T


def _fill(
    references: References,
    game: _Game,
    store: Checkpoint,
    workers: int | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Read the references that are kept, and train the others."""
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
        answers = store.kept(number, shapes)
        if answers is None:
            missing.append(number)
        else:
            _put(references, number, answers)
    done = m - len(missing)
    if progress is not None:
        progress(done, m)
    # Also around the loop: setting it for each reference takes as long as fitting a small model.
    with one_thread(), without_warnings():
        for number, answers in _trained(
            references.inside, game, store.entropy, missing, kept, workers
        ):
            store.keep(number, answers)
            _put(references, number, answers)
            done += 1
            if progress is not None:
                progress(done, m)


def _put(references: References, number: int, answers: dict[str, NDArray[np.float32]]) -> None:
    references.confidence[number] = answers["confidence"]
    references.population[number] = answers["population"]
    if number < len(references.views):
        references.views[number] = answers["views"]


def _trained(
    inside: Flags, game: _Game, entropy: int, numbers: list[int], kept: int, workers: int | None
) -> Iterator[tuple[int, dict[str, NDArray[np.float32]]]]:
    """Yield references as they are finished, in any order."""
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
        # A backend that returns all results at the end.
        return joblib.Parallel(n_jobs=workers)


def _task(
    game: _Game, number: int, rows: NDArray[np.intp], entropy: int, views: bool
) -> tuple[int, dict[str, NDArray[np.float32]]]:
    # The key 0 is the spread's.
    seed = seed_number(np.random.SeedSequence(entropy, spawn_key=(1, number)))
    return number, game.reference(number, rows, seed, views)
