"""How useful a released model is, on rows it has not seen, where rows are read in passes.

The same figures as :func:`expost.epsilon.utility.held_out_utility`, with two differences. A row's
fold comes from a keyed hash of its number, so that whoever reads the row knows it: folds are of
about, and not just, the same size, and so are their shares of the classes. And the minimisers of
all folds are found together: they are a few standard errors of a coefficient away from the
minimiser of all rows, so that Newton's method with the Hessian there takes them down in a few
passes that all folds share.

    θ_f ← θ_f − H_f⁻¹ ∇J_f(θ_f),      H_f = ∇²J_f at the minimiser of all rows.

A fold that does not get there this way (a Huber hinge whose rows cross a knot) is minimised alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from expost.epsilon.utility import (
    FIT,
    MOST_SCORED,
    HeldOut,
    Utility,
    check_folds,
    knows_nothing,
    utility_of,
)
from expost.errors import InvalidInput
from expost.glm import Objective, minimise
from expost.losses import Loss
from expost.mechanisms import OutputPerturbation
from expost.rows import RowBlock, Rows
from expost.types import FloatArray, IntArray

__all__ = ["Folds", "streamed_utility"]

T = TypeVar("T")
# Shared steps before a fold is minimised alone.
_STEPS = 12
# Entries of all scored rows together: 128 MiB.
_ENTRIES = 2**24


@dataclass(frozen=True, kw_only=True)
class Folds:
    """Which fold each row is in: a keyed hash of its number."""

    count: int
    key: int

    def of(self, block: RowBlock) -> IntArray:
        """(rows,) the folds of the rows of a block."""
        # The upper half of a product: even to count/2³².
        folds = ((_hash(block, self.key) >> np.uint64(32)) * np.uint64(self.count)) >> np.uint64(32)
        return folds.astype(np.int64)

    def chance(self, block: RowBlock) -> FloatArray:
        """(rows,) another number in [0, 1) of each row, by which rows are drawn."""
        bits = (_hash(block, self.key ^ _OTHER) >> np.uint64(11)).astype(np.float64)
        return bits * np.float64(2.0**-53)


_OTHER = 0x5851F42D4C957F2D


def _hash(block: RowBlock, key: int) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014) of key + row·γ."""
    gamma = np.uint64(0x9E3779B97F4A7C15)
    start = np.arange(block.start, block.start + len(block), dtype=np.uint64)
    value = start * gamma + np.uint64(key)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sums:
    """Of the rows of each fold of f: ``rows``, ``positive``, Σy, Σf′x (f, d), Σf″x xᵀ (f, d, d)."""

    rows: IntArray
    positive: IntArray
    total: FloatArray
    gradient: FloatArray
    hessian: FloatArray

    def merged(self, other: "_Sums") -> "_Sums":
        names = ("rows", "positive", "total", "gradient", "hessian")
        return _Sums(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, kw_only=True, eq=False)
class _FoldSums:
    """Those of one block, at one θ for all folds."""

    loss: Loss
    theta: FloatArray
    folds: Folds

    def __call__(self, block: RowBlock) -> _Sums:
        """Work them out."""
        slope, curvature = self.loss.derivatives(block.X @ self.theta, block.y)
        where, every = self.folds.of(block), range(self.folds.count)
        rows = [np.flatnonzero(where == fold) for fold in every]
        return _Sums(
            rows=np.array([len(some) for some in rows]),
            positive=np.array([np.count_nonzero(block.y[some] > 0) for some in rows]),
            total=np.array([np.sum(block.y[some]) for some in rows]),
            gradient=np.stack([slope[some] @ block.X[some] for some in rows]),
            hessian=np.stack(
                [(block.X[some] * curvature[some, None]).T @ block.X[some] for some in rows]
            ),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _KeptGradients:
    """(f, d) Σf′x over the rows that are not in each fold, at its own θ (f, d)."""

    loss: Loss
    thetas: FloatArray
    folds: Folds

    def __call__(self, block: RowBlock) -> FloatArray:
        """Those of one block."""
        z = block.X @ self.thetas.T
        where = self.folds.of(block)
        slopes = np.stack(
            [
                np.where(where == fold, 0.0, self.loss.slope(np.ascontiguousarray(column), block.y))
                for fold, column in enumerate(z.T)
            ]
        )
        gradients: FloatArray = slopes @ block.X
        return gradients


@dataclass(frozen=True, kw_only=True, eq=False)
class _KeptRows:
    """The rows that are not in one fold, ``count`` of them."""

    rows: Rows
    folds: Folds
    number: int
    count: int

    is_held: ClassVar[bool] = False

    @property
    def columns(self) -> int:
        """The number d of columns."""
        return self.rows.columns

    @property
    def longest(self) -> float:
        """The largest norm of all rows, which bounds those that are kept."""
        return self.rows.longest

    @property
    def common_norm(self) -> float:
        """That of all rows."""
        return self.rows.common_norm

    @property
    def label_size(self) -> float:
        """The largest ∣y∣ of all rows, which bounds those that are kept."""
        return self.rows.label_size

    def map(self, task: Callable[[RowBlock], T]) -> Iterator[T]:
        """Yield the result of ``task`` for the kept rows of every block that has any."""
        for results in self.rows.map(_OnKept(task, self.folds, self.number)):
            yield from results

    def on_first(self, task: Callable[[RowBlock], T], count: int) -> T:
        """Return the result of ``task`` for the first rows, kept or not: a search begins there."""
        return self.rows.on_first(task, count)


class _OnKept:
    """A task of those rows of a block that are not in a fold: a list of one result, or of none."""

    def __init__(self, task: Callable[[RowBlock], Any], folds: Folds, number: int) -> None:
        self._task, self._folds, self._number = task, folds, number

    def __call__(self, block: RowBlock) -> list[Any]:
        """What it gives."""
        kept = self._folds.of(block) != self._number
        return [self._task(block.take(kept))] if np.any(kept) else []


@dataclass(frozen=True, kw_only=True, eq=False)
class _Minimised:
    """The rows of each fold, and the minimiser (f, d) without them."""

    held: _Sums
    thetas: FloatArray

    @cached_property
    def kept(self) -> IntArray:
        """(f,) the rows that are not in each fold."""
        return int(self.held.rows.sum()) - self.held.rows


def _minimised(problem: Objective, folds: Folds, start: FloatArray) -> _Minimised:
    """The minimisers without each fold, from that of all rows: ∥∇J_f∥ ≤ ``FIT``."""
    first = _FoldSums(loss=problem.loss, theta=start, folds=folds)
    sums: _Sums | None = None
    for part in problem.map(first):
        sums = part if sums is None else sums.merged(part)
    assert sums is not None
    _check(problem.loss, folds.count, sums)
    found = _Minimised(held=sums, thetas=np.tile(start, (folds.count, 1)))
    kept, penalty = found.kept[:, None], problem.penalty
    curved = (sums.hessian.sum(axis=0) - sums.hessian) / kept[:, :, None] + np.diag(penalty)
    factors = [scipy.linalg.cho_factor(hessian) for hessian in curved]
    gradient = (sums.gradient.sum(axis=0) - sums.gradient) / kept + penalty * start
    thetas, before = found.thetas.copy(), np.full(folds.count, np.inf)
    left = np.ones(folds.count, dtype=bool)
    for _ in range(_STEPS):
        size = np.linalg.norm(gradient, axis=1)
        # One that grows is on the wrong way, and waits for its own search.
        left &= (size > FIT) & (size < before)
        if not np.any(left):
            break
        for fold in np.flatnonzero(left):
            thetas[fold] -= scipy.linalg.cho_solve(factors[fold], gradient[fold])
        before = size
        task = _KeptGradients(loss=problem.loss, thetas=thetas, folds=folds)
        total = np.zeros_like(thetas)
        for gradients in problem.map(task):
            total += gradients
        gradient = total / kept + penalty * thetas
    for number in np.flatnonzero(~(np.linalg.norm(gradient, axis=1) <= FIT)).tolist():
        rows = _KeptRows(
            rows=problem.rows, folds=folds, number=number, count=int(found.kept[number])
        )
        alone = replace(problem, rows=rows)
        thetas[number] = minimise(alone, tolerance=FIT, start=thetas[number]).theta
    return replace(found, thetas=thetas)


def _check(loss: Loss, folds: int, held: _Sums) -> None:
    rows, positive = int(held.rows.sum()), int(held.positive.sum())
    rarest = min(positive, rows - positive) if loss.is_classification else None
    check_folds(folds, rows, rarest)
    classes = np.stack([held.positive, held.rows - held.positive])
    least = classes.min() if loss.is_classification else held.rows.min()
    if not least >= 1:
        raise InvalidInput(
            f"folds={folds!r}: one of them has no row of the rarer class; take fewer folds, another"
            " seed, or 0 to leave the utility out."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Drawn:
    """Rows of a block that may be scored: (fold, chance, X, y).

    ``below``  (f, 2) which chances are taken, by fold and by whether y > 0.
    """

    folds: Folds
    below: FloatArray

    def __call__(self, block: RowBlock) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        """Those of one block."""
        where, chance = self.folds.of(block), self.folds.chance(block)
        some = np.flatnonzero(chance < self.below[where, (block.y > 0).astype(np.int64)])
        return where[some], chance[some], block.X[some], block.y[some]


def _scored_rows(
    problem: Objective, folds: Folds, held: _Sums
) -> list[tuple[FloatArray, FloatArray]]:
    """(X, y) of each fold: at most about 20,000 rows, of either class the same share."""
    most = min(MOST_SCORED, max(1, _ENTRIES // (problem.columns * folds.count)))
    # Of a regression, labels > 0 and others: the same share of either does no harm.
    classes = np.stack([held.rows - held.positive, held.positive], axis=1)
    share = np.minimum(1.0, most / held.rows)[:, None]
    wanted = np.ceil(classes * share)
    # So many more that as good as never too few are found.
    below = (wanted + 8 * np.sqrt(wanted) + 40) / np.maximum(classes, 1)
    task = _Drawn(folds=folds, below=below)
    found = list(problem.map(task))
    where, chance, X, y = (np.concatenate(column) for column in zip(*found, strict=True))
    scored = []
    for fold in range(folds.count):
        chosen = [
            here[np.argsort(chance[here], kind="stable")][: int(wanted[fold, sign])]
            for sign in (1, 0)
            for here in [np.flatnonzero((where == fold) & ((y > 0) == bool(sign)))]
        ]
        rows = np.concatenate(chosen)
        scored.append((X[rows], y[rows]))
    return scored


def streamed_utility(
    problem: Objective,
    mechanism: OutputPerturbation,
    start: FloatArray,
    epsilons: FloatArray,
    *,
    folds: int,
    releases: int,
    rng: np.random.Generator,
) -> Utility:
    """Score ``releases`` models a fold at each ε; ``start`` is the minimiser of all rows."""
    where = Folds(count=folds, key=int(rng.integers(2**64, dtype=np.uint64)))
    draws = mechanism.unit_noise.sample(folds * releases, rng).reshape(folds, releases, -1)
    found = _minimised(problem, where, start)
    scored = _scored_rows(problem, where, found.held)

    def held() -> Iterator[HeldOut]:
        whole, positive = int(found.held.rows.sum()), int(found.held.positive.sum())
        total = float(found.held.total.sum())
        for fold, (X, y) in enumerate(scored):
            kept = int(found.kept[fold])
            yield HeldOut(
                exact=found.thetas[fold],
                X=X,
                y=y,
                known=knows_nothing(
                    problem.loss,
                    whole - int(found.held.rows[fold]),
                    positive - int(found.held.positive[fold]),
                    total - float(found.held.total[fold]),
                ),
                models=_Models(replace(mechanism, rows=kept), found.thetas[fold], draws[fold]),
            )

    return utility_of(held(), problem.loss, epsilons, folds=folds, releases=releases)


class _Models:
    """A function of ε: the minimiser with noise."""

    def __init__(self, mechanism: OutputPerturbation, exact: FloatArray, noise: FloatArray) -> None:
        self._mechanism, self._exact, self._noise = mechanism, exact, noise

    def __call__(self, epsilon: float) -> FloatArray:
        """(m, d) the releases."""
        scale = replace(self._mechanism, epsilon=epsilon).resolution
        return self._exact + scale * self._noise
