"""How θ is released, and what each release gives away."""

from expost.mechanisms.grid import Grid
from expost.mechanisms.output import OutputPerturbation, automatic_regularization
from expost.mechanisms.release import Release
from expost.mechanisms.row_losses import RowLosses

__all__ = ["Grid", "OutputPerturbation", "Release", "RowLosses", "automatic_regularization"]
