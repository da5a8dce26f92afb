"""The privacy loss of every row: profiles, their figures and the attacker's posterior."""

from expost.profiles.posterior import RowIdentifiability

__all__ = ["RowIdentifiability"]
