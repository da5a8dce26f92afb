"""The noise of objective perturbation as noise on the sum of all rows' gradients."""

from dataclasses import dataclass

from expost.mechanisms.base import Mechanism
from expost.mechanisms.output import OutputPerturbation

__all__ = ["GradientNoise"]


@dataclass(frozen=True, kw_only=True)
class GradientNoise(OutputPerturbation):
    """The noise that objective perturbation adds to the sum of gradients, at any ε.

    ``slope``  L, a bound on the length of a row's gradient.

    Its scale is that at Λ → ∞, where determinants cost nothing. That of a release is not smaller,
    so that a row's separation is not underestimated.
    """

    slope: float

    @classmethod
    def of(cls, mechanism: Mechanism) -> "GradientNoise":
        """Return the noise of an objective perturbation."""
        rank, _ = mechanism.loss.determinant
        return cls(
            epsilon=mechanism.epsilon,
            delta=None if mechanism.delta is None else mechanism.delta / rank,
            noise=mechanism.noise,
            loss=mechanism.loss,
            regularization=mechanism.regularization,
            rows=mechanism.rows,
            dimension=mechanism.dimension,
            rows_per_person=mechanism.rows_per_person,
            slope=mechanism.loss.lipschitz(mechanism.total_regularization),
        )

    @property
    def sensitivity(self) -> float:
        """L under Gaussian noise; 2L under norm-Laplace noise, which also covers an exchange."""
        return self.slope if self.noise == "gaussian" else 2 * self.slope
