"""expost: how much one released model gives each training row away."""

from expost._neighbours import Neighbours, neighbours
from expost._profile import PrivacyProfile, profile
from expost.estimators import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from expost.types import Audience, Neighbouring

__all__ = [
    "Audience",
    "Neighbouring",
    "Neighbours",
    "PrivacyProfile",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "neighbours",
    "profile",
]
