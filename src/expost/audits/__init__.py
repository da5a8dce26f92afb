"""Audits by attack: the verb, its result and its tables."""

from expost.audits.audit import audit_arrays
from expost.audits.sweep import AuditSweep, audit_sweep

__all__ = ["AuditSweep", "audit_arrays", "audit_sweep"]
