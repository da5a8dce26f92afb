"""The interface of a noise, and draws from it."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from expost._numerics import gamma
from expost.noise.law import LossLaw
from expost.types import FloatArray

__all__ = ["Noise", "draw", "rounding_of"]


@runtime_checkable
class Noise(Protocol):
    """The noise b ∈ R^d that output perturbation adds: θ = A + b.

    The law they share
    ------------------
    The density depends on ∥b∥ alone and falls with it. So the direction is uniform, p(b) = p(−b),
    and a row whose removal moves A by ``shift`` s has the loss log p(b) − log p(b − s) (θ without
    the row would have needed the noise b − s), whose law under b ~ p depends on ∥s∥ alone:
    :meth:`law`. E[exp(−loss)] = 1 for every s.

    Arguments written (n,) hold one entry a row; results then do as well.
    """

    @property
    def dimension(self) -> int:
        """d."""

    @property
    def resolution(self) -> float:
        """1/β or σ: the length over which the density is nearly constant."""

    @property
    def mean_square(self) -> float:
        """E∥b∥²."""

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw (size, d) for simulation; never for a release.

        Parameters
        ----------
        size : int
            The number of draws.
        rng : np.random.Generator
            The generator of the simulation. Its seed reveals the noise.

        Returns
        -------
        FloatArray
            (size, d) the draws.
        """

    def sample_secure(self, size: int | None = None) -> FloatArray:
        """Draw (d,), or (size, d), every bit of it from the operating system's CSPRNG.

        Parameters
        ----------
        size : int, optional
            The number of draws; None: one, of shape (d,).

        Returns
        -------
        FloatArray
            The draws.
        """

    def log_density(self, noise: Any) -> FloatArray:
        """Return log p at each row of ``noise`` (…, d), normalised.

        Parameters
        ----------
        noise : Any
            (…, d) points b.

        Returns
        -------
        FloatArray
            (…,) log p(b).
        """

    def coverage(self, offset_norm: Any, radius: float) -> FloatArray:
        """Return P(∥b − p∥ ≤ ``radius``) for points p with ∥p∥ = ``offset_norm`` (n,).

        Parameters
        ----------
        offset_norm : Any
            (n,) the lengths ∥p∥.
        radius : float
            The radius of the ball around p.

        Returns
        -------
        FloatArray
            (n,) the probabilities.
        """

    def norm_tails(self, norm: Any) -> tuple[FloatArray, FloatArray]:
        """Return (P(∥b∥ < ``norm``), P(∥b∥ > ``norm``)), each without cancellation.

        Parameters
        ----------
        norm : Any
            Lengths ≥ 0.

        Returns
        -------
        tuple[FloatArray, FloatArray]
            The lower and the upper tail.
        """

    def norm_exceeded_with(self, probability: float) -> float:
        """Return the norm that ∥b∥ exceeds with ``probability``, accurately however small it is.

        Parameters
        ----------
        probability : float
            The upper tail, in (0, 1).

        Returns
        -------
        float
            The norm.
        """

    def loss(self, noise: Any, shift: Any) -> FloatArray:
        """Return log p(b) − log p(b − s) for rows of ``noise`` and ``shift`` (…, d).

        Parameters
        ----------
        noise : Any
            (…, d) draws b.
        shift : Any
            (…, d) how far removing the row moves A.

        Returns
        -------
        FloatArray
            (…,) the losses in nats.
        """

    def loss_from(self, noise_norm: Any, inner: Any, distance: Any) -> FloatArray:
        """Return the loss from lengths and inner products: no (n, d) array of shifts is needed.

        Parameters
        ----------
        noise_norm : Any
            ∥b∥.
        inner : Any
            (n,) b·s.
        distance : Any
            (n,) ∥s∥.

        Returns
        -------
        FloatArray
            (n,) the losses in nats.
        """

    def loss_in_place(self, noise_norm: float, excess: NDArray[Any], scratch: NDArray[Any]) -> None:
        """Overwrite ``excess`` by the loss, lengths in units of 1/β or σ.

        For the inner loop of simulations: nothing is checked.

        Parameters
        ----------
        noise_norm : float
            ∥b∥ > 0.
        excess : NDArray[Any]
            (n,) ∥b − s∥² − ∥b∥²; holds the losses afterwards.
        scratch : NDArray[Any]
            (n,) memory that is overwritten too.
        """

    def loss_error(
        self,
        noise_norm: Any,
        distance: Any,
        shift_error: Any,
        base_error: Any = 0.0,
        *,
        inner_error: Any = 0.0,
    ) -> FloatArray:
        """Bound ∣:meth:`loss_from` − the true loss∣.

        Rounding is included: norms and b·s as NumPy computes them from d entries.

        Parameters
        ----------
        noise_norm : Any
            ∥b∥.
        distance : Any
            (n,) ∥s∥.
        shift_error : Any
            A bound on the error of s.
        base_error : Any, default=0.0
            A bound on the error of b.
        inner_error : Any, default=0.0
            What the given b·s is off by (for the b and s that were used) beyond the rounding of a
            plain dot product.

        Returns
        -------
        FloatArray
            (n,) the bounds in nats.
        """

    def law(self, distance: Any) -> LossLaw:
        """Return the exact law of the loss of rows with ∥s∥ = ``distance`` (n,).

        Parameters
        ----------
        distance : Any
            (n,) ∥s∥.

        Returns
        -------
        LossLaw
            The law, one entry per row.
        """


def draw(noise: Noise, rng: np.random.Generator | None = None) -> FloatArray:
    """Return one draw (d,) from the operating system's CSPRNG; ``rng`` is for tests.

    Parameters
    ----------
    noise : Noise
        The law of b.
    rng : np.random.Generator, optional
        For simulation and tests, since its seed reveals the noise; None: the operating system's
        CSPRNG.

    Returns
    -------
    FloatArray
        (d,) b.
    """
    return noise.sample_secure() if rng is None else noise.sample(1, rng)[0]


def rounding_of(dimension: int) -> float:
    """Return the relative rounding of a norm or dot product of d entries and what follows it."""
    return gamma(dimension + 16)
