"""Settings of tests that are about something other than the defaults.

A test passes them explicitly, so that its numbers do not depend on what the defaults are.
"""

from dataclasses import fields
from typing import Any

from expost.epsilon.choose import Question
from expost.jobs.epsilon import QUESTION
from expost.jobs.requests import EpsilonRequest

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


def question_of(**options: Any) -> Question:
    """Return the question with these options, and the defaults of the others."""
    defaults = {item.name: item.default for item in fields(EpsilonRequest)}
    return Question.of(**({name: defaults[name] for name in QUESTION} | options))
