"""The choice of ε: sweep, utility, recommendation; mechanisms that are only sampled."""

from expost.epsilon.black_box import BlackBox
from expost.epsilon.sampled import EstimatedLosses, SampledMechanism

__all__ = ["BlackBox", "EstimatedLosses", "SampledMechanism"]
