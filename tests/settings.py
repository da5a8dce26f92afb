"""Settings of tests that are about something other than the defaults.

A test passes them explicitly, so that its numbers do not depend on what the defaults are.
"""

from typing import Any

# Output perturbation with norm-Laplace noise, Λ = 1 and a short constant feature.
OUTPUT: dict[str, Any] = {
    "mechanism": "output",
    "noise": "laplace",
    "delta": None,
    "regularization": 1.0,
    "intercept_scaling": 0.1,
}
# The same mechanism at the command line; Λ, data_norm and the intercept follow the rules.
OUTPUT_OPTIONS = ("--mechanism", "output", "--noise", "laplace")
