"""Audits: membership inference attacks on a model, and what they reach.

An attack is a function of the :class:`Evidence` that returns a score for every row; ``ATTACKS``
lists them by name. ``expost.audit`` collects the evidence, runs the attacks and measures them.
"""

from typing import TYPE_CHECKING

from expost._lazy import importer

if TYPE_CHECKING:
    from expost.auditing.arrays import Arrays, arrays_of, read_arrays
    from expost.auditing.attacks import ATTACKS, available
    from expost.auditing.audit import audit_arrays
    from expost.auditing.evidence import Attack, Evidence
    from expost.auditing.lower_bounds import LowerBound
    from expost.auditing.model_files import load_model
    from expost.auditing.references import References, train_references
    from expost.auditing.roc import AttackFigures, Interval, Roc, figures
    from expost.auditing.saved_model import LoadedModel
    from expost.auditing.shift import Shift
    from expost.auditing.sweep import AuditSweep, audit_sweep
    from expost.auditing.targets import Target, target_of

__all__ = [
    "ATTACKS",
    "Arrays",
    "Attack",
    "AttackFigures",
    "AuditSweep",
    "Evidence",
    "Interval",
    "LoadedModel",
    "LowerBound",
    "References",
    "Roc",
    "Shift",
    "Target",
    "arrays_of",
    "audit_arrays",
    "audit_sweep",
    "available",
    "figures",
    "load_model",
    "read_arrays",
    "target_of",
    "train_references",
]

__getattr__ = importer(
    "expost.auditing",
    {
        "ATTACKS": "attacks",
        "Arrays": "arrays",
        "Attack": "evidence",
        "AttackFigures": "roc",
        "AuditSweep": "sweep",
        "Evidence": "evidence",
        "Interval": "roc",
        "LoadedModel": "saved_model",
        "LowerBound": "lower_bounds",
        "References": "references",
        "Roc": "roc",
        "Shift": "shift",
        "Target": "targets",
        "arrays_of": "arrays",
        "audit_arrays": "audit",
        "audit_sweep": "sweep",
        "available": "attacks",
        "figures": "roc",
        "load_model": "model_files",
        "read_arrays": "arrays",
        "target_of": "targets",
        "train_references": "references",
    },
)
