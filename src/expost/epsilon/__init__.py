"""The choice of ε: sweep, utility, recommendation; mechanisms that are only sampled."""

from typing import TYPE_CHECKING

from expost._lazy import importer

if TYPE_CHECKING:
    from expost.epsilon.black_box import BlackBox
    from expost.epsilon.sampled import EstimatedLosses, SampledMechanism

__all__ = ["BlackBox", "EstimatedLosses", "SampledMechanism"]

__getattr__ = importer(
    "expost.epsilon",
    {"BlackBox": "black_box", "EstimatedLosses": "sampled", "SampledMechanism": "sampled"},
)
