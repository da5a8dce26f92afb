"""ε in the words of those who ask: beliefs, advantages, error rates, '1 in k'; and back."""

from expost.risk.guarantee import Guarantee
from expost.risk.promises import EpsilonDelta, GaussianNoise, NormLaplaceNoise

__all__ = ["EpsilonDelta", "GaussianNoise", "Guarantee", "NormLaplaceNoise"]
