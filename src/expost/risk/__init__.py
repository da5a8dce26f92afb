"""ε in the words of those who ask: beliefs, advantages, error rates, '1 in k'; and back."""

from expost.risk.guarantee import Guarantee

__all__ = ["Guarantee"]
