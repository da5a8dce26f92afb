"""How θ is released, and what each release gives away."""

from expost.mechanisms.base import Mechanism
from expost.mechanisms.grid import Grid
from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.output import OutputPerturbation, automatic_regularization
from expost.mechanisms.row_losses import RowLosses
from expost.mechanisms.tangent import Tangent

__all__ = [
    "Grid",
    "Mechanism",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "RowLosses",
    "Tangent",
    "automatic_regularization",
]
