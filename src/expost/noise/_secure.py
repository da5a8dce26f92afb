"""Exponentials and normals of which every bit comes from the operating system's CSPRNG.

No generator is seeded: one draw reveals nothing about another. Each variate uses
64 random bits (a normal 64 on average), which is where its tail ends: an exponential never passes
64 ln 2 = 44.4 and a normal never √(128 ln 2) = 9.4, where the true probability is 5e-20.
"""

import os

import numpy as np

from expost.types import FloatArray

__all__ = ["exponentials", "normals", "uniforms"]


def uniforms(count: int) -> FloatArray:
    """Return (k + ½)/2⁶⁴ for uniform 64-bit k, in float64: in (0, 1), full precision near 0."""
    words = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    # What rounds to 1 goes to the float below it: a norm of exactly 0 must not come out.
    return np.minimum((words.astype(np.float64) + 0.5) * 2.0**-64, 1 - 2.0**-53)


def exponentials(shape: tuple[int, ...]) -> FloatArray:
    """Return independent standard exponentials, −log U."""
    return -np.log(uniforms(int(np.prod(shape)))).reshape(shape)


def normals(shape: tuple[int, ...]) -> FloatArray:
    """Return independent standard normals (Box and Muller): √(−2 log U)·(cos 2πV, sin 2πV)."""
    count = int(np.prod(shape))
    pairs = (count + 1) // 2
    radius = np.sqrt(-2 * np.log(uniforms(pairs)))
    turn = 2 * np.pi * uniforms(pairs)
    return np.concatenate([radius * np.cos(turn), radius * np.sin(turn)])[:count].reshape(shape)
