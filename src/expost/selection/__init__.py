"""Private selection and tuning."""

from typing import TYPE_CHECKING

from expost._lazy import importer

if TYPE_CHECKING:
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

__getattr__ = importer(
    "expost.selection",
    {
        "SelectedRegularization": "tuning",
        "SelectionCost": "private",
        "select_privately": "private",
        "select_regularization": "tuning",
        "selection_cost": "private",
        "selection_probabilities": "private",
    },
)
