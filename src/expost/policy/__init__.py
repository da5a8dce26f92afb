"""Policies: limits on the results of expost, and whether results satisfy them.

``policy.toml`` states the limits (:class:`Policy`), :func:`check` compares stored results with them
and returns a :class:`PolicyCheck`. ``expost check`` is the same on the command line.
"""

from expost.policy.policy import Limit, Policy
from expost.policy.verdicts import Finding, PolicyCheck, Verdict, check

__all__ = ["Finding", "Limit", "Policy", "PolicyCheck", "Verdict", "check"]
