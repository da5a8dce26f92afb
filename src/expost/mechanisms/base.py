"""The mechanisms by which models are released."""

from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.output import OutputPerturbation

__all__ = ["Mechanism"]

Mechanism = OutputPerturbation | ObjectivePerturbation
