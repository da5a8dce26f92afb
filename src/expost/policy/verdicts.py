"""The verdict on each limit of a policy: satisfied, violated or not answerable.

Where several results answer a limit, the worst of them is compared. A limit that no result answers
is never satisfied. Measured values are stored next to the verdicts, and only public ones are shown
unless the curator requests the others.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from expost import _checks
from expost.errors import InvalidInput
from expost.files.sealed import plain
from expost.policy.facts import Facts, composed_epsilon, read_facts
from expost.policy.policy import Policy
from expost.policy.quantities import RATES, Limit
from expost.results import Displayed
from expost.types import Audience, FloatArray

__all__ = ["Finding", "PolicyCheck", "Verdict", "check"]

_DAY = 86_400.0
_STRICTNESS = (Audience.PUBLIC, Audience.NEEDS_REVIEW, Audience.CURATOR_ONLY)
# The field of an audit for each stored false-positive rate.
_RATE_FIELDS = dict(zip(RATES, ("tpr_at_1_percent", "tpr_at_01_percent"), strict=True))


class Verdict(Enum):
    """Whether results satisfy a limit."""

    SATISFIED = "satisfied"
    VIOLATED = "violated"
    NOT_ANSWERABLE = "not answerable"

    @property
    def exit_code(self) -> int:
        """The exit code of ``expost check``."""
        return {"satisfied": 0, "violated": 3, "not answerable": 4}[self.value]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The verdict on one limit.

    Parameters
    ----------
    limit : Limit
        The line of the policy.
    verdict : Verdict
        Whether it is satisfied.
    reason : str
        Why, in public words; "" where the limit says it all.
    measured : float | str | None
        The value that was compared, all digits; None where there is none.
    reviewed : bool
        Whether the verdict or the reason depends on a curator-only figure of an audit, although the
        quantity is public.
    """

    limit: Limit
    verdict: Verdict
    reason: str = ""
    measured: float | str | None = None
    reviewed: bool = False

    @property
    def is_public(self) -> bool:
        """Whether the verdict, its reason and the measured value may be shown to anyone."""
        return self.limit.quantity.public and not self.reviewed

    def fields(self, audience: Audience = Audience.PUBLIC) -> dict[str, Any]:
        """Return the finding as JSON for an audience, without values that it may not see.

        Parameters
        ----------
        audience : Audience, default=Audience.PUBLIC
            The reader.

        Returns
        -------
        dict[str, Any]
            Key, limit, verdict and reason, and ``measured`` where the audience may see it.
        """
        fields: dict[str, Any] = {"key": self.limit.quantity.key, "limit": self.limit.limit}
        if self.limit.at is not None:
            fields["at"] = self.limit.at
        fields |= {"text": self.limit.text, "verdict": self.verdict.value, "reason": self.reason}
        if self.measured is not None and (self.is_public or audience is Audience.CURATOR_ONLY):
            fields["measured"] = plain(self.measured)
        return fields


@dataclass(frozen=True, kw_only=True)
class PolicyCheck(Displayed):
    """The verdicts on all limits of a policy.

    Parameters
    ----------
    findings : tuple[Finding, ...]
        One for each limit, in the order of the policy.

    Notes
    -----
    It displays verdicts and limits, and measured values only where they are public. A verdict on a
    curator-only figure still depends on the data: it reveals on which side of the limit the figure
    is. Many limits would reveal the figure itself, so fix them before the results are seen.
    """

    findings: tuple[Finding, ...]

    @property
    def audience(self) -> Audience:
        """Public if every finding is; else the verdicts need review."""
        public = all(finding.is_public for finding in self.findings)
        return Audience.PUBLIC if public else Audience.NEEDS_REVIEW

    @property
    def verdict(self) -> Verdict:
        """Violated if any limit is; else not answerable if any limit is; else satisfied."""
        verdicts = {finding.verdict for finding in self.findings}
        for verdict in (Verdict.VIOLATED, Verdict.NOT_ANSWERABLE):
            if verdict in verdicts:
                return verdict
        return Verdict.SATISFIED

    @property
    def exit_code(self) -> int:
        """0 if all limits are satisfied, 3 if one is violated, 4 if one is not answerable."""
        return self.verdict.exit_code

    def of(self, verdict: Verdict) -> tuple[Finding, ...]:
        """Return the findings of one verdict.

        Parameters
        ----------
        verdict : Verdict
            The verdict.

        Returns
        -------
        tuple[Finding, ...]
            The findings, in the order of the policy.
        """
        return tuple(finding for finding in self.findings if finding.verdict is verdict)

    def to_dict(self, audience: Audience | str = Audience.PUBLIC) -> dict[str, Any]:
        """Return the check as a dict for one audience.

        Parameters
        ----------
        audience : Audience | str, default=Audience.PUBLIC
            The reader: curator-only values are part of it only for "curator-only".

        Returns
        -------
        dict[str, Any]
            The verdict and the findings, ready for ``json.dumps``.
        """
        audience = _checks.audience(audience)
        reader = self.audience if audience is not Audience.CURATOR_ONLY else audience
        return {
            "audience": reader.value,
            "verdict": self.verdict.value,
            "exit_code": self.exit_code,
            "findings": [finding.fields(audience) for finding in self.findings],
        }


def check(
    results: Sequence[str | Path] | str | Path,
    policy: Policy | str | Path,
    *,
    now: datetime | None = None,
) -> PolicyCheck:
    """Compare stored results with the limits of a policy.

    Parameters
    ----------
    results : Sequence[str | Path] | str | Path
        Folders that expost commands wrote, or files in them, all of one model.
    policy : Policy | str | Path
        The policy, or the path of a policy.toml.
    now : datetime, optional
        The time at which the age of the evidence is measured, with its time zone; None: now.

    Returns
    -------
    PolicyCheck
        A verdict on each limit.

    Raises
    ------
    InvalidInput
        If the policy is not valid, a result is damaged, or results are of different models.
    """
    if not isinstance(policy, Policy):
        policy = Policy.load(policy)
    facts = read_facts([results] if isinstance(results, str | Path) else list(results))
    now = datetime.now(UTC) if now is None else now
    if now.tzinfo is None:
        raise InvalidInput("now: has no time zone; pass one, as datetime.now(UTC).")
    case = _Case(facts=facts, policy=policy, now=now)
    return PolicyCheck(findings=tuple(_ANSWERS[each.name](case, each) for each in policy.limits))


# -- answers -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Case:
    facts: Facts
    policy: Policy
    now: datetime


def _unanswered(limit: Limit, reason: str | None = None) -> Finding:
    return Finding(
        limit=limit,
        verdict=Verdict.NOT_ANSWERABLE,
        reason=reason or f"no result answers it; name {limit.quantity.source}",
    )


def _compared(limit: Limit, values: Sequence[float], reason: str = "") -> Finding:
    """Return the finding on the worst of these values; a value that is NaN violates the limit."""
    if not values:
        return _unanswered(limit)
    bound = float(limit.limit)
    worst = min(values) if limit.quantity.least else max(values)
    if any(map(math.isnan, values)):
        return Finding(limit=limit, verdict=Verdict.VIOLATED, reason="a figure is not known")
    holds = worst >= bound if limit.quantity.least else worst <= bound
    verdict = Verdict.SATISFIED if holds else Verdict.VIOLATED
    return Finding(limit=limit, verdict=verdict, measured=worst, reason=reason)


def _guaranteed(case: _Case, limit: Limit) -> Finding:
    """Compare ε or δ; a guarantee that a result refutes satisfies no limit."""
    guarantees = case.facts.guarantees
    if guarantees and case.facts.is_refuted:
        reason = "an audit or a profile contradicts the guarantee"
        return Finding(limit=limit, verdict=Verdict.VIOLATED, reason=reason, reviewed=True)
    if not guarantees and case.facts.typed:
        return _unanswered(
            limit,
            "the guarantee was typed into expost risk and is not of a model; name a model.json or"
            " report.json",
        )
    values = [float(getattr(each, limit.name)) for each in guarantees]
    # δ alone guarantees nothing.
    if any(each.epsilon == math.inf for each in guarantees):
        values = [math.inf] * len(values)
    remarks = dict.fromkeys(each.remark for each in guarantees if each.remark)
    return _compared(limit, values, "; ".join(remarks))


def _composed(case: _Case, limit: Limit) -> Finding:
    listing = case.facts.listing(limit.at)
    if listing is None:
        return _unanswered(limit)
    if not case.facts.is_listed:
        return _unanswered(
            limit, "the ledger does not list the model and its report; add them to the ledger"
        )
    return _compared(limit, [composed_epsilon(listing)])


def _audience(case: _Case, limit: Limit) -> Finding:
    audiences = [each.audience for each in case.facts.releases if each.audience is not None]
    if not audiences:
        return _unanswered(limit)
    worst = max(audiences, key=_STRICTNESS.index)
    holds = _STRICTNESS.index(worst) <= _STRICTNESS.index(Audience(limit.limit))
    return Finding(
        limit=limit,
        verdict=Verdict.SATISFIED if holds else Verdict.VIOLATED,
        measured=worst.value,
    )


def _of_rows(measure: Callable[[FloatArray, Limit], float]) -> Callable[[_Case, Limit], Finding]:
    """Return the answer from the certainties of each profile."""

    def answer(case: _Case, limit: Limit) -> Finding:
        profiles = case.facts.profiles
        if any(profile.certainty is None for profile in profiles):
            return _unanswered(
                limit, "the table of rows of the profile is not there; name its folder"
            )
        rows = [each.certainty for each in profiles if each.certainty is not None]
        return _compared(limit, [measure(certainty, limit) for certainty in rows])

    return answer


def _largest(certainty: FloatArray, _: Limit) -> float:
    return float(certainty[-1]) if len(certainty) else math.nan


def _quantile(certainty: FloatArray, limit: Limit) -> float:
    """Return the least certainty that a share of the rows does not exceed."""
    # The share as it is written: 0.99 of 100 rows are 99 rows.
    rank = math.ceil(Fraction(repr(limit.at)) * len(certainty))
    return float(certainty[max(rank, 1) - 1]) if len(certainty) else math.nan


def _rows_above(certainty: FloatArray, limit: Limit) -> float:
    level = 1.0 if limit.at is None else limit.at
    return float(len(certainty) - np.searchsorted(certainty, level, side="right"))


def _share_above(certainty: FloatArray, limit: Limit) -> float:
    return _rows_above(certainty, limit) / len(certainty) if len(certainty) else math.nan


def _utility(case: _Case, limit: Limit) -> Finding:
    """Compare the profile of the model if there is one, else the choice of an ε that it has."""
    facts = case.facts
    sources = [each.utility for each in facts.profiles or facts.choices]
    models = [each.model_epsilon for each in facts.releases]
    if not facts.profiles and any(
        choice.epsilon > epsilon for choice in facts.choices for epsilon in models
    ):
        return _unanswered(
            limit, "the choice is of a larger ε than that of the model; name its profile"
        )
    if any(limit.name not in utility for utility in sources):
        return _unanswered(limit, "the given results do not hold this figure")
    return _compared(limit, [utility[limit.name] for utility in sources])


def _attack(case: _Case, limit: Limit) -> Finding:
    if not case.facts.audits:
        return _unanswered(limit)
    run = {name for audit in case.facts.audits for name in audit.attacks}
    verdict = Verdict.SATISFIED if limit.limit in run else Verdict.VIOLATED
    reason = "" if verdict is Verdict.SATISFIED else "it was not run"
    return _doubted(case, Finding(limit=limit, verdict=verdict, reason=reason))


def _attacked(case: _Case, limit: Limit) -> Finding:
    name = "auc" if limit.at is None else _RATE_FIELDS[limit.at]
    end = "high" if case.policy.figure == "upper" else "value"
    values = [
        float(figures[name][end])
        for audit in case.facts.audits
        for figures in audit.attacks.values()
    ]
    compared = "of upper ends of confidence intervals" if end == "high" else "of estimates"
    return _doubted(case, _compared(limit, values, compared))


def _doubted(case: _Case, finding: Finding) -> Finding:
    """Return a finding on attacks, with a remark if an audit is confounded; that needs review.

    Attacks on such rows show neither leakage nor its absence: no figure of them satisfies a limit.
    """
    if not any(audit.confounded for audit in case.facts.audits):
        return finding
    remark = "members and non-members differ without the model, so that attacks prove little"
    reason = f"{finding.reason}; {remark}" if finding.reason else remark
    if finding.verdict is Verdict.SATISFIED and finding.measured is not None:
        finding = replace(finding, verdict=Verdict.NOT_ANSWERABLE)
    return replace(finding, reason=reason, reviewed=True)


def _age(case: _Case, limit: Limit) -> Finding:
    if case.facts.undated:
        kinds = ", ".join(sorted(set(case.facts.undated)))
        return _unanswered(limit, f"no date is known of: {kinds}; name folders, not single files")
    ages = [(case.now - made).total_seconds() / _DAY for _, made in case.facts.dates]
    if any(age < -1 for age in ages):
        return _unanswered(limit, "a result is dated in the future; check the clock")
    return _compared(limit, [max(age, 0.0) for age in ages])


_ANSWERS: dict[str, Callable[[_Case, Limit], Finding]] = {
    "epsilon": _guaranteed,
    "delta": _guaranteed,
    "composed_epsilon": _composed,
    "audience": _audience,
    "certainty": _of_rows(_largest),
    "certainty_quantile": _of_rows(_quantile),
    "rows_above": _of_rows(_rows_above),
    "share_above": _of_rows(_share_above),
    "auc": _utility,
    "r2": _utility,
    "attack": _attack,
    "attack_auc": _attacked,
    "attack_tpr": _attacked,
    "age": _age,
}
