"""Conformance of a private trainer: what it publishes, compared with what it claims.

``expost.torch.conform`` does the same for trainers in PyTorch.
"""

from expost.conformance.claims import Claims
from expost.conformance.conform import conform
from expost.conformance.result import Conformance, Finding, Verdict
from expost.conformance.tasks import Task

__all__ = ["Claims", "Conformance", "Finding", "Task", "Verdict", "conform"]
