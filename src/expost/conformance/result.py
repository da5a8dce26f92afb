"""The result of a check of a trainer: a verdict on each claim, with its evidence."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from expost.conformance.claims import Claims
from expost.results import Displayed
from expost.types import Audience

__all__ = ["Conformance", "Finding", "Verdict"]


class Verdict(Enum):
    """Whether a trainer keeps a claim."""

    CONFORMS = "conforms"
    VIOLATES = "violates"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The verdict of one check.

    Parameters
    ----------
    check : str
        Its name, as "noise scale".
    verdict : Verdict
        Whether the claim holds, as far as the check can tell.
    evidence : str
        What was measured, or why nothing was.
    figures : Mapping[str, float]
        The measured values, all digits: intervals as ``…_low`` and ``…_high``, and p-values.
    weakens : bool, default=False
        Whether the guarantee is weaker than claimed, or void.
    meaning : str, default=""
        What a violation, or the condition of conformity, means.
    remedy : str, default=""
        What to do.
    """

    check: str
    verdict: Verdict
    evidence: str
    figures: Mapping[str, float]
    weakens: bool = False
    meaning: str = ""
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as values of JSON.

        Returns
        -------
        dict[str, Any]
            All fields by name.
        """
        return {
            "check": self.check,
            "verdict": self.verdict.value,
            "weakens_guarantee": self.weakens,
            "evidence": self.evidence,
            "meaning": self.meaning,
            "remedy": self.remedy,
            "figures": dict(self.figures),
        }


@dataclass(frozen=True, kw_only=True)
class Conformance(Displayed):
    """The verdicts on all claims of a trainer. Public: the rows are made up.

    Parameters
    ----------
    claims : Claims
        What was claimed.
    findings : tuple[Finding, ...]
        One for each check.
    false_alarm : float
        The largest probability with which a trainer that keeps all claims is reported to violate
        one.
    steps : int
        The number of steps that were observed.
    name : str, default="trainer"
        The name of the trainer.
    """

    claims: Claims
    findings: tuple[Finding, ...]
    false_alarm: float
    steps: int
    name: str = "trainer"

    audience = Audience.PUBLIC

    def of(self, verdict: Verdict) -> tuple[Finding, ...]:
        """Return the findings of one verdict.

        Parameters
        ----------
        verdict : Verdict
            The verdict.

        Returns
        -------
        tuple[Finding, ...]
            The findings, in the order of the checks.
        """
        return tuple(finding for finding in self.findings if finding.verdict is verdict)

    @property
    def violated(self) -> tuple[str, ...]:
        """The names of the checks that found a violation."""
        return tuple(finding.check for finding in self.of(Verdict.VIOLATES))

    @property
    def conforms(self) -> bool:
        """Whether no violation was found."""
        return not self.violated

    @property
    def exit_code(self) -> int:
        """0 if no violation was found, else 3."""
        return 0 if self.conforms else 3

    def __getitem__(self, check: str) -> Finding:
        """Return the finding of a check by its name."""
        return {finding.check: finding for finding in self.findings}[check]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as values of JSON.

        Returns
        -------
        dict[str, Any]
            The verdict, the false-alarm rate and the findings.
        """
        return {
            "trainer": self.name,
            "audience": self.audience.value,
            "conforms": self.conforms,
            "false_alarm": self.false_alarm,
            "steps": self.steps,
            "findings": [finding.to_dict() for finding in self.findings],
        }
