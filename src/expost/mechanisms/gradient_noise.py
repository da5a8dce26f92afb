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
    def of(cls, how: Mechanism) -> "GradientNoise":
        """Return the noise of an objective perturbation."""
        rank, _ = how.loss.determinant
        return cls(
            epsilon=how.epsilon,
            delta=None if how.delta is None else how.delta / rank,
            noise=how.noise,
            loss=how.loss,
            regularization=how.regularization,
            rows=how.rows,
            dimension=how.dimension,
            rows_per_person=how.rows_per_person,
            slope=how.loss.lipschitz(how.total_regularization),
        )

    @property
    def sensitivity(self) -> float:
        """L under Gaussian noise; 2L under norm-Laplace noise, which also covers an exchange."""
        return self.slope if self.noise == "gaussian" else 2 * self.slope
