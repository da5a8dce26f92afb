"""The document of a check of results against a policy."""

from typing import Any

from expost.numbers import count, figure
from expost.policy.verdicts import Finding, PolicyCheck, Verdict
from expost.report.document import Document, Section, Tile, Tone, one_line, table
from expost.report.document import Verdict as Headline
from expost.types import Audience

__all__ = ["policy_document"]

_TONES: dict[Verdict, Tone] = {
    Verdict.SATISFIED: "good",
    Verdict.VIOLATED: "bad",
    Verdict.NOT_ANSWERABLE: "caution",
}


def policy_document(check: PolicyCheck, *, curator: bool = False) -> Document:
    """Return the document of a check; ``curator``: with the measured curator-only values."""
    violated, unanswered = check.of(Verdict.VIOLATED), check.of(Verdict.NOT_ANSWERABLE)
    lines = len(check.findings)
    if violated:
        text = f"The policy is violated: {_limits(len(violated))} of {count(lines)}."
    elif unanswered:
        text = f"The policy is not answered: {_limits(len(unanswered))} of {count(lines)}."
    else:
        text = f"The policy is satisfied: {_limits(lines)}."
    order = sorted(check.findings, key=lambda each: list(_TONES).index(each.verdict) != 1)

    def measured(finding: Finding) -> str | None:
        if finding.measured is None:
            return None
        return _shown(finding.measured) if finding.is_public or curator else "curator only"

    section = Section(
        id="policy",
        title="Limits",
        nav="Overview",
        brief=True,
        blocks=(
            table(
                order,
                ("verdict", lambda finding: finding.verdict.value, str),
                ("limit", lambda finding: one_line(finding.limit.text), str),
                ("measured", measured, str),
                ("remark", lambda finding: one_line(finding.reason), str),
                caption="Measured values are the ones that were compared, on the safe side.",
                label=1,
            ),
        ),
    )
    return Document(
        kind="policy",
        title="Results and their policy",
        audience=Audience.CURATOR_ONLY if curator else Audience.PUBLIC,
        verdict=Headline(text=text, tone=_TONES[check.verdict]),
        tiles=tuple(
            Tile(label=verdict.value.capitalize(), value=count(len(check.of(verdict))))
            for verdict in Verdict
        ),
        sections=(section,),
    )


def _limits(number: int) -> str:
    return "1 limit" if number == 1 else f"{count(number)} limits"


def _shown(value: Any) -> str:
    """Return a measured value; more digits than usual, because it is compared with a limit."""
    return figure(value, "up", 6) if isinstance(value, float) else one_line(value)
