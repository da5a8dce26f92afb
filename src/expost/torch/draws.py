"""Sources of a run's noise and sampling: the operating system, or a seed for simulations."""

import os
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from expost.errors import InvalidInput
from expost.noise._secure import normals
from expost.types import FloatArray

__all__ = ["Draws", "SecureDraws", "SeededDraws", "draws_from"]


class Draws(Protocol):
    """Independent standard normals and coins."""

    def normals(self, count: int) -> FloatArray:
        """Return (count,) standard normals."""

    def coins(self, count: int, rate: float) -> NDArray[np.bool_]:
        """Return (count,) true with probability ``rate``."""


class SecureDraws:
    """Draws from the operating system's CSPRNG: there is no seed that could leak."""

    def normals(self, count: int) -> FloatArray:
        """Return (count,) standard normals."""
        return normals((count,))

    def coins(self, count: int, rate: float) -> NDArray[np.bool_]:
        """Return (count,) true with probability ``rate``, to within 2⁻⁶⁴."""
        words = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        return words < np.uint64(min(int(rate * 2.0**64), 2**64 - 1))


@dataclass(frozen=True)
class SeededDraws:
    """Draws from a seed, for simulations: anyone who knows the seed can remove the noise."""

    rng: np.random.Generator

    def normals(self, count: int) -> FloatArray:
        """Return (count,) standard normals."""
        return self.rng.standard_normal(count)

    def coins(self, count: int, rate: float) -> NDArray[np.bool_]:
        """Return (count,) true with probability ``rate``."""
        return self.rng.random(count) < rate


def draws_from(random_state: Any) -> Draws:
    """Return the operating system's draws for None, else those of a seed or of a generator."""
    if random_state is None:
        return SecureDraws()
    if isinstance(random_state, np.random.Generator):
        return SeededDraws(random_state)
    if isinstance(random_state, int | np.integer) and random_state >= 0:
        return SeededDraws(np.random.default_rng(int(random_state)))
    raise InvalidInput(
        f"random_state={random_state!r}: must be None, an integer of at least 0 or a"
        " numpy Generator."
    )
