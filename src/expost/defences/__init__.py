"""Comparison of defences against membership inference."""

from expost.defences.compare import compare_defences
from expost.defences.defence import Defence, LogisticDefence
from expost.defences.table import DefenceTable

__all__ = ["Defence", "DefenceTable", "LogisticDefence", "compare_defences"]
