"""The coins of an erasure: exponentials, all bits of them from the operating system.

A coin that shows heads with probability min(1, e^(−ℓ)) is an exponential E: heads is E > ℓ. So one
number decides for every ℓ, and it can be stored before ℓ is known.
"""

import numpy as np

from expost.noise import _secure
from expost.types import FloatArray

__all__ = ["exponentials"]


def exponentials(count: int, rng: np.random.Generator | None = None) -> FloatArray:
    """Return standard exponentials, from the operating system's CSPRNG unless ``rng`` is given.

    Parameters
    ----------
    count : int
        How many.
    rng : np.random.Generator, optional
        For simulation and tests, since its seed reveals the coins.

    Returns
    -------
    FloatArray
        (count,) independent exponentials of mean 1.
    """
    return _secure.exponentials((count,)) if rng is None else rng.standard_exponential(count)
