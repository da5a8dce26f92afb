"""Membership inference: what real attacks get out of a model.

An attack is a function of the :class:`Evidence` that gives every row a score; ``ATTACKS`` has them
by name. ``expost.audit`` gathers the evidence, makes the attacks and judges them.
"""

from expost.attacks.arrays import Arrays, arrays_of, read_arrays
from expost.attacks.catalogue import ATTACKS, available
from expost.attacks.evidence import Attack, Evidence
from expost.attacks.lower_bounds import LowerBound
from expost.attacks.references import References, train_references
from expost.attacks.roc import AttackFigures, Interval, Roc, figures
from expost.attacks.targets import Target, target_of

__all__ = [
    "ATTACKS",
    "Arrays",
    "Attack",
    "AttackFigures",
    "Evidence",
    "Interval",
    "LowerBound",
    "References",
    "Roc",
    "Target",
    "arrays_of",
    "available",
    "figures",
    "read_arrays",
    "target_of",
    "train_references",
]
