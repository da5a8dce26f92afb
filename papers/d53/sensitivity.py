"""Which neighbour is furthest: by a distance of rows (D5.3 Def. 6), or by their gradients.

    DS(D) = max over D' of ∥D − D'∥

D' is D with one row exchanged for one of the pool (bounded), or without one row (unbounded), so
that ∥D − D'∥ is the distance of two rows, or how far one row lies from all others. D5.3 takes it
for what makes ∥ḡ(D) − ḡ(D')∥ largest. The gradients themselves tell: at given parameters that is
∥ḡ(x₁) − ḡ(x₂)∥, or ∥ḡ(x₁)∥, of clipped gradients, exactly and for any pool.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from expost import _checks
from expost.errors import InvalidInput
from expost.torch.gradients import RowGradients
from expost.torch.training import as_tensors
from expost.types import Audience, FloatArray, IntArray, Neighbouring
from papers.common.drawn import Drawn
from papers.common.figures import Display
from papers.d53 import training_displays
from papers.d53.ssim import ssim_distances

__all__ = ["Sensitivity", "dataset_sensitivity", "gradient_sensitivity"]

Distance = Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sensitivity(Drawn):
    """How far each neighbour of D is. For the curator only: it is a function of the rows.

    ``distances``  (n, m) of each row and each of the pool where rows are replaced, (n,) of each
                   row where they are removed; larger is further.
    """

    distances: FloatArray
    relation: Neighbouring

    audience = Audience.CURATOR_ONLY

    def display(self) -> Display:
        """Return all neighbours by distance."""
        return training_displays.sensitivity(self)

    @property
    def value(self) -> float:
        """The largest distance: DS(D)."""
        return float(np.max(self.distances))

    @property
    def row(self) -> int:
        """The row of D in which the furthest neighbour differs."""
        return int(self.furthest(1)[0, 0])

    @property
    def candidate(self) -> int | None:
        """The one of the pool that stands in for it; None where rows are removed."""
        return int(self.furthest(1)[0, 1]) if self.distances.ndim == 2 else None

    def furthest(self, count: int) -> IntArray:
        """(count, 2) or (count, 1): row and candidate of the furthest neighbours, in order."""
        return self._ordered(-self.distances, count)

    def nearest(self, count: int) -> IntArray:
        """(count, 2) or (count, 1): row and candidate of the nearest neighbours, in order."""
        return self._ordered(self.distances, count)

    def rank_correlation(self, other: "Sensitivity") -> float:
        """Spearman's ρ of two distances of the same neighbours: 1 where they order them alike."""
        if self.distances.shape != other.distances.shape:
            raise InvalidInput(
                f"distances have shapes {self.distances.shape} and {other.distances.shape}: must"
                " be of the same rows and the same pool."
            )
        return float(spearmanr(self.distances, other.distances, axis=None).statistic)

    def _ordered(self, keys: FloatArray, count: int) -> IntArray:
        count = _checks.integer("count", count, least=1)
        if not count <= keys.size:
            raise InvalidInput(f"count={count}: there are {keys.size} neighbours.")
        places = np.argsort(keys, axis=None, kind="stable")[:count]
        return np.stack(np.unravel_index(places, keys.shape), axis=1).astype(np.int64)

    def __repr__(self) -> str:
        return f"Sensitivity({self.relation.value}, {self.distances.size} neighbours)"


def dataset_sensitivity(
    X: Any,
    pool: Any = None,
    *,
    distance: str | Distance = "ssim",
    relation: Neighbouring | str = Neighbouring.REPLACE,
) -> Sensitivity:
    """Return the distance of every neighbour of X by a distance of its rows (D5.3 Def. 6).

    ``pool``      rows that may stand in (relation "replace").
    ``distance``  "ssim": 1 − structural similarity, of grey images (integers in 0 … 255 or real
                  numbers in 0 … 1); or a function of (rows, others) that returns a matrix.
    ``relation``  "replace"; or "remove", with the mean distance of a row to all others.
    """
    relation = _relation(relation, pool)
    others = X if relation is Neighbouring.REMOVE else pool
    if isinstance(distance, str):
        _checks.one_of("distance", distance, ("ssim",))
        distances = ssim_distances(X, others)
    else:
        distances = np.asarray(distance(X, others), dtype=np.float64)
    if distances.shape != (len(X), len(others)) or not np.all(np.isfinite(distances)):
        raise InvalidInput(
            f"distance: must give a finite matrix ({len(X)}, {len(others)}), rows and others."
        )
    if relation is Neighbouring.REMOVE:
        if not len(X) >= 2:
            raise InvalidInput("X: must have at least two rows.")
        distances = (np.sum(distances, axis=1) - np.diagonal(distances)) / (len(X) - 1)
    return Sensitivity(distances=distances, relation=relation)


def gradient_sensitivity(
    module: torch.nn.Module,
    X: Any,
    y: Any,
    pool: tuple[Any, Any] | None = None,
    *,
    clip: float,
    loss: Callable[[Any, Any], torch.Tensor] = torch.nn.functional.cross_entropy,
    relation: Neighbouring | str = Neighbouring.REPLACE,
) -> Sensitivity:
    """Return the exact distance of every neighbour by clipped gradients at the parameters.

    That is local sensitivity as DP-SGD meets it: ∥ḡ(x₁) − ḡ(x₂)∥ for x₁ in X and x₂ in ``pool`` =
    (rows, labels), or ∥ḡ(x₁)∥ where rows are removed (D5.3 Sec. 5 with erratum 11).
    """
    relation = _relation(relation, pool)
    gradients = RowGradients(module, loss, _checks.positive("clip", clip))
    mine = _all(gradients, *as_tensors(module, X, y, "X, y"))
    if pool is None:
        lengths = torch.linalg.vector_norm(mine, dim=1)
        return Sensitivity(distances=lengths.numpy(), relation=relation)
    others = as_tensors(module, pool[0], pool[1], "pool")
    distances = np.empty((len(mine), len(others[0])))
    for block in gradients.blocks(len(others[0])):
        theirs = gradients.at(gradients.start, others[0][block], others[1][block])
        # Differences first: norms and products would cancel where gradients are alike.
        distances[:, block] = torch.cdist(
            mine, theirs, compute_mode="donot_use_mm_for_euclid_dist"
        ).numpy()
    return Sensitivity(distances=distances, relation=relation)


def _all(gradients: RowGradients, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    blocks = gradients.blocks(len(X))
    return torch.cat([gradients.at(gradients.start, X[block], y[block]) for block in blocks])


def _relation(relation: Neighbouring | str, pool: Any) -> Neighbouring:
    relation = Neighbouring.parse(relation)
    if relation is Neighbouring.ADD:
        raise InvalidInput("relation='add': must be 'replace' or 'remove'.")
    if (pool is None) != (relation is Neighbouring.REMOVE):
        remedy = "needs a pool" if pool is None else "takes no pool"
        raise InvalidInput(f"pool: relation={relation.value!r} {remedy}.")
    return relation
