"""Leave-one-out minimisers and other neighbouring minimisers, each with a certified error."""

from expost.neighbouring.neighbours import Neighbours

__all__ = ["Neighbours"]
