"""The noise of output perturbation, and the exact law of a row's loss under it.

:class:`NormLaplace` and :class:`Gaussian` are interchangeable under the protocol :class:`Noise`;
``law(distance)`` of each returns a :class:`LossLaw`.
"""

from expost.noise.base import Noise, draw
from expost.noise.coverage import Coverage, empirical_coverage
from expost.noise.gaussian import Gaussian
from expost.noise.goe import goe_largest_eigenvalue_quantile
from expost.noise.law import GaussianLaw, LossLaw, NormLaplaceLaw
from expost.noise.norm_laplace import NormLaplace

__all__ = [
    "Coverage",
    "Gaussian",
    "GaussianLaw",
    "LossLaw",
    "Noise",
    "NormLaplace",
    "NormLaplaceLaw",
    "draw",
    "empirical_coverage",
    "goe_largest_eigenvalue_quantile",
]
