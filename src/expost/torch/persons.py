"""The products of persons: all rows of a person leave at once.

Conventions
-----------
G    the sum of the clipped gradients of a person's rows in a step's batch.

Without the person the noise would have been b + G, so that the step's term is (2b·G + ∥G∥²)/(2s²).
b·G is the sum of the rows' products. ∥G∥² is not: it needs the inner products between the rows, so
G itself is held for every person with two rows or more in a batch, until the step ends.

What is guaranteed for a person with up to k rows: batches known, μ² = Σ(jC/s)² over the steps, j
the person's rows in the batch; batches hidden, ``DPSGD(…, rows_per_person=k)``.
"""

import numpy as np
import torch

from expost.errors import InvalidInput
from expost.neighbouring.persons import Persons
from expost.torch.account import Products
from expost.torch.noisy_step import Piece
from expost.types import FloatArray, IntArray

__all__ = ["PersonSums"]


class PersonSums:
    """The sums G of the persons of the step in progress.

    Parameters
    ----------
    persons : Persons
        Whose row each row is.
    """

    def __init__(self, persons: Persons) -> None:
        self._owner = persons.owner
        self._sums: dict[int, torch.Tensor] = {}
        # Persons whose rows of a batch are complete.
        self._complete: set[int] = set()

    def add(self, rows: IntArray, to_come: IntArray, piece: Piece) -> None:
        """Add a piece of these rows, of a batch with the rows ``to_come`` in later pieces."""
        owners = self._owner[rows]
        present, counts = np.unique(owners, return_counts=True)
        if self._complete.intersection(present.tolist()):
            raise InvalidInput(
                "persons: a person has rows in two batches that one step sums, so that the sum of"
                " the person's gradients is not known; step on every batch."
            )
        later = set(self._owner[to_come].tolist())
        held = [
            person
            for person, count in zip(present.tolist(), counts.tolist(), strict=True)
            if count > 1 or person in later or person in self._sums
        ]
        self._complete |= set(present.tolist()) - later
        if not held:
            return
        if piece.combined is None:
            raise InvalidInput(
                "persons: a person has several rows in one batch, and ghost clipping computes no"
                " row's gradient, so that the length of their sum is not known; use"
                " grad_sample_mode='hooks', or sample one row of a person at a time."
            )
        weights = torch.from_numpy(owners[None, :] == np.array(held)[:, None])
        for person, total in zip(held, piece.combined(weights), strict=True):
            earlier = self._sums.get(person)
            self._sums[person] = total.clone() if earlier is None else earlier + total

    def finish(self, rows: IntArray, products: Products) -> tuple[IntArray, Products]:
        """Return the persons of the step and their products; start a new step."""
        present, where = np.unique(self._owner[rows], return_inverse=True)
        count = len(present)

        def summed(values: FloatArray) -> FloatArray:
            return np.bincount(where, values, minlength=count).astype(np.float64)

        square = summed(products.square)
        for person, total in self._sums.items():
            square[np.searchsorted(present, person)] = float(torch.dot(total, total))
        joined = Products(
            inner=summed(products.inner),
            square=square,
            rows=np.bincount(where, minlength=count),
            reach=summed(np.sqrt(products.square)),
            error=None if products.error is None else summed(products.error),
        )
        self._sums.clear()
        self._complete.clear()
        return present, joined
