"""How far a row's loss is from its plateaus under objective perturbation.

Under objective perturbation a row's loss in a released θ is

    [2 b·g + ∥g∥²]/(2σ²) + u    or    β(∥b + g∥ − ∥b∥) + u,        0 ≤ u ≤ c₁,

b being the noise, g = ∇ℓ(θ) the row's gradient and u the part of the determinants. Were g fixed and
u left out, it would have the law of noise on a sum of gradients, with ∥g∥ in the place of the
distance. g changes little from release to release unless the noise is large. So the transition of
LeBlond et al. (2023) is followed in that law, at the gradients of the minimiser without noise.

``low`` holds for every gradient: none is longer than L∥x∥ (:mod:`.sweep`), so that up to ``low`` no
row with a gradient that some release has leaves its plateau in that law. It is not a bound on the
exposures of releases: u is left out, and where the noise outweighs the penalty, g follows b
(tests/mechanisms/test_gradient_noise.py has an example of either).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from expost.glm import predictors
from expost.losses import Loss
from expost.neighbouring.shifts import Shifts
from expost.rows import RowBlock
from expost.types import FloatArray

__all__ = ["Gradients", "RowGradients"]


@dataclass(frozen=True, kw_only=True, eq=False)
class RowGradients:
    """The gradients of some rows at one θ.

    Parameters
    ----------
    slope : FloatArray
        (m,) or (m, q) the slopes;  ``X`` the rows.
    distance : FloatArray
        (m,) ∥∇ℓ∥.
    """

    slope: FloatArray
    X: FloatArray
    distance: FloatArray

    @property
    def error_bound(self) -> FloatArray:
        """(m,) 0: the distances are figures of this θ."""
        return np.zeros_like(self.distance)

    @cached_property
    def shifts(self) -> Shifts:
        """(m, q·d) the gradients."""
        each = self.slope[:, None] if self.slope.ndim == 1 else self.slope
        gradients = each[:, :, None] * self.X[:, None, :]
        return Shifts.dense(gradients.reshape(len(self.X), -1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Gradients:
    """The gradients of the rows of any block at ``theta``."""

    loss: Loss
    theta: FloatArray

    def __call__(self, block: RowBlock) -> RowGradients:
        """Return the gradients of the rows of a block."""
        at = self.loss.at(predictors(block.X, self.theta, self.loss.outputs), block.y)
        return RowGradients(
            slope=np.asarray(at.slope, dtype=np.float64),
            X=block.X,
            distance=at.length * block.norms,
        )
