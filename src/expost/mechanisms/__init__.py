"""The mechanisms that release θ, and the privacy loss of each row in a release."""

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
