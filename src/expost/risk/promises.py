"""Promises with closed forms: any (ε, δ) mechanism, Gaussian noise, norm-Laplace noise.

Conventions
-----------
As in :mod:`expost.risk.guarantee`. For the two noises the promise is about *this* noise on a
function of bounded sensitivity. Its density is log-concave, so ℓ = log p(b) − log p(b − s·v) is
convex in the distance s and 0 at s = 0: once above c ≥ 0 it stays there. Hence P(ℓ > c) grows with
the separation, and so does δ(ε) = ∫ e^(ε−c) P(ℓ > c) dc over c > ε: the pair that is furthest apart
bounds every other pair, in every figure (docs/mathematics-risk.md).
"""

from expost.risk.epsilon_delta import EpsilonDelta
from expost.risk.gaussian import GaussianNoise
from expost.risk.norm_laplace import NormLaplaceNoise

__all__ = ["EpsilonDelta", "GaussianNoise", "NormLaplaceNoise"]
