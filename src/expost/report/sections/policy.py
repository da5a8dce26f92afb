"""The document of a check of results against a policy."""

from expost.numbers import count, lower_text, upper_text
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
    limits = f"{count(len(check.findings))} limit{'' if len(check.findings) == 1 else 's'}"
    if violated:
        text = f"The policy is violated: {count(len(violated))} of {limits}."
    elif unanswered:
        text = f"The policy is not answered: {count(len(unanswered))} of {limits}."
    else:
        text = f"The policy is satisfied: {limits}."
    order = (*violated, *unanswered, *check.of(Verdict.SATISFIED))

    def measured(finding: Finding) -> str | None:
        if finding.measured is None:
            return None
        return _shown(finding) if finding.is_public or curator else "curator only"

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
        audience=Audience.CURATOR_ONLY if curator else check.audience,
        verdict=Headline(text=text, tone=_TONES[check.verdict]),
        tiles=tuple(
            Tile(label=verdict.value.capitalize(), value=count(len(check.of(verdict))))
            for verdict in Verdict
        ),
        sections=(section,),
    )


def _shown(finding: Finding) -> str:
    """Return the measured value, rounded towards the limit that it was compared with."""
    value = finding.measured
    if not isinstance(value, float):
        return one_line(value)
    return lower_text(value) if finding.limit.quantity.least else upper_text(value)
