"""Private selection and tuning."""

from expost.selection.private import (
    SelectionCost,
    select_privately,
    selection_cost,
    selection_probabilities,
)
from expost.selection.tuning import SelectedRegularization, select_regularization

__all__ = [
    "SelectedRegularization",
    "SelectionCost",
    "select_privately",
    "select_regularization",
    "selection_cost",
    "selection_probabilities",
]
