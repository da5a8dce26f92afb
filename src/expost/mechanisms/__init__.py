"""How θ is released, and what each release costs each row."""

from expost.mechanisms.base import MECHANISMS, ClosedForm, Losses, Mechanism
from expost.mechanisms.grid import Grid
from expost.mechanisms.minimiser import MinimiserPerturbation
from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.output import OutputPerturbation
from expost.mechanisms.perturbation import Perturbation
from expost.mechanisms.row_losses import RowLosses
from expost.mechanisms.tangent import Tangent

__all__ = [
    "MECHANISMS",
    "ClosedForm",
    "Grid",
    "Losses",
    "Mechanism",
    "MinimiserPerturbation",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "Perturbation",
    "RowLosses",
    "Tangent",
]
