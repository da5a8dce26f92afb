"""Canaries that are planted by coins: a lower bound on ε from the one training that is made.

Conventions
-----------
Each canary is in the training data by a fair coin of its own. Scores of all canaries, from the
model and without the coins, give a lower bound on the ε of the training
(:mod:`expost.auditing.one_run`). It must not exceed the guarantee, except with probability
1 − confidence.

The number of rows depends on the coins, so the divisor and the sampling rate must not depend on
the number of rows: ``track(…, row_count="fixed")``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, Dataset, Subset

from expost.auditing.lower_bounds import LowerBound
from expost.auditing.one_run import epsilon_lower_bound
from expost.errors import InvalidInput
from expost.torch.draws import draws_from
from expost.types import Audience, IntArray

__all__ = ["Planted", "plant"]

# Fewer canaries prove next to nothing.
_LEAST = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Planted:
    """Rows with canaries planted among them. Curator-only: it holds the coins.

    Parameters
    ----------
    dataset : Dataset
        The rows, then the canaries whose coin said so: the data to train on.
    canaries : Any
        All canaries, planted or not.
    included : NDArray[np.bool_]
        (m,) whether each canary was planted.
    rows : int
        The number of rows without canaries.
    """

    dataset: Any
    canaries: Any
    included: NDArray[np.bool_]
    rows: int

    audience = Audience.CURATOR_ONLY

    @property
    def positions(self) -> IntArray:
        """The row numbers of the planted canaries in ``dataset``."""
        return self.rows + np.arange(int(self.included.sum()))

    def lower_bound(
        self, scores: Sequence[float], *, delta: float = 1e-5, confidence: float = 0.95
    ) -> LowerBound:
        """Return a lower bound on the ε of the training from scores of all canaries.

        Parameters
        ----------
        scores : Sequence[float]
            (m,) the larger, the more likely the canary was planted: e.g. by how much the training
            lowered the loss of the canary. They must depend on the coins through the model alone.
        delta : float, default=1e-05
            δ of ε.
        confidence : float, default=0.95
            The probability with which the bound holds.

        Returns
        -------
        LowerBound
            The bound; :meth:`Tracker.report_lower_bound` shows it next to the guarantee.

        Raises
        ------
        InvalidInput
            If the scores are not one number for each canary.
        """
        values = np.asarray(scores, dtype=np.float64)
        if values.shape != self.included.shape:
            raise InvalidInput(
                f"scores: has the shape {values.shape}; give one number for each of"
                f" {len(self.included)} canaries, planted or not."
            )
        return epsilon_lower_bound(
            values, self.included, coins=True, delta=delta, confidence=confidence
        )

    def __repr__(self) -> str:
        return f"Planted({self.rows} rows, {len(self.included)} canaries by coins)"


def plant(rows: Any, canaries: Any, *, random_state: Any = None) -> Planted:
    """Plant each canary among the rows of a data set by a fair coin of its own.

    Parameters
    ----------
    rows : Dataset
        The training rows.
    canaries : Dataset | Sequence
        Rows of the same kind that no one else has, at least 8; chosen without the rows.
    random_state : int | np.random.Generator, optional
        A seed, for simulations. None tosses the operating system's coins.

    Returns
    -------
    Planted
        The data set to train on, and the coins.

    Raises
    ------
    InvalidInput
        If there are too few canaries.
    """
    count = len(canaries)
    if not count >= _LEAST:
        raise InvalidInput(f"canaries: has {count} rows, which prove nothing; give at least 8.")
    included = draws_from(random_state).coins(count, 0.5)
    chosen: Dataset[Any] = Subset(canaries, np.flatnonzero(included).tolist())
    return Planted(
        dataset=ConcatDataset([rows, chosen]),
        canaries=canaries,
        included=included,
        rows=len(rows),
    )
