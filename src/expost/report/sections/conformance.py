"""The document of a check of a private trainer against its claims."""

from collections.abc import Iterator

from expost.conformance.result import Conformance, Finding, Verdict
from expost.notices import listed
from expost.numbers import chance, count, number, share
from expost.report.document import (
    Alert,
    Block,
    Document,
    Facts,
    Heading,
    Origin,
    Section,
    Setting,
    Text,
    Tile,
    Tone,
    one_line,
    table,
)
from expost.report.document import Verdict as Headline

__all__ = ["conformance_document"]

_TONES: dict[Verdict, Tone] = {
    Verdict.VIOLATES: "bad",
    Verdict.CONFORMS: "good",
    Verdict.NOT_CHECKED: "plain",
}


def conformance_document(result: Conformance) -> Document:
    """Return the document of a check of a trainer."""
    violated = result.of(Verdict.VIOLATES)
    order = (*violated, *result.of(Verdict.CONFORMS), *result.of(Verdict.NOT_CHECKED))
    overview = table(
        order,
        ("check", lambda finding: finding.check, str),
        ("verdict", lambda finding: finding.verdict.value, str),
        ("evidence", lambda finding: one_line(finding.evidence), str),
        caption="Intervals and p-values are at the false-alarm rate of a check.",
    )
    sections = [
        Section(id="checks", title="Checks", nav="Overview", brief=True, blocks=(overview,))
    ]
    explained = [finding for finding in order if finding.meaning]
    if explained:
        blocks = tuple(block for finding in explained for block in _explanation(finding))
        sections.append(
            Section(
                id="meaning",
                title="What it means, and what to do",
                nav="Overview",
                brief=bool(violated),
                blocks=blocks,
            )
        )
    measured = [
        (finding.check, name, value) for finding in order for name, value in finding.figures.items()
    ]
    sections.append(
        Section(
            id="measured",
            title="Measured values",
            blocks=(
                table(
                    measured,
                    ("check", lambda line: line[0], str),
                    ("value of", lambda line: line[1].replace("_", " "), str),
                    ("value", lambda line: line[2], number),
                ),
            ),
        )
    )
    return Document(
        kind="conformance",
        title="A private trainer and its claims",
        audience=result.audience,
        subtitle=(one_line(result.name), f"{count(result.steps)} steps observed"),
        verdict=_headline(result),
        tiles=tuple(
            Tile(
                label=verdict.value.capitalize(),
                value=count(len(result.of(verdict))),
                tone=_TONES[verdict] if result.of(verdict) else "plain",
            )
            for verdict in _TONES
        ),
        alerts=(
            Alert(
                severity="note",
                title="No data was used.",
                text="The trainer was run on synthetic rows: the result is public.",
            ),
            Alert(
                severity="note",
                title="Conforms is not a proof.",
                text="Faults that are smaller than the intervals, or that appear only with other"
                " models, data or settings, are not found.",
            ),
        ),
        sections=tuple(sections),
        settings=_settings(result),
    )


def _headline(result: Conformance) -> Headline:
    most = chance(result.false_alarm)
    rate = f"A trainer that keeps its claims is reported with a chance of at most {most}."
    violated = result.of(Verdict.VIOLATES)
    if not violated:
        checked = len(result.findings) - len(result.of(Verdict.NOT_CHECKED))
        return Headline(
            text=f"The trainer conforms to its claims in {count(checked)} checks.",
            more=rate,
            tone="good",
        )
    weaker = any(finding.weakens for finding in violated)
    effect = "its guarantee does not hold as claimed" if weaker else "its guarantee is not affected"
    names = listed([finding.check for finding in violated])
    text = f"The trainer violates its claims ({names}): {effect}."
    return Headline(text=text, more=rate, tone="bad" if weaker else "caution")


def _explanation(finding: Finding) -> Iterator[Block]:
    pairs = [("Meaning", finding.meaning)]
    if finding.remedy:
        pairs.append(("Remedy", finding.remedy))
    yield Heading(text=f"{finding.check.capitalize()}: {finding.verdict.value}")
    if finding.verdict is Verdict.CONFORMS:
        yield Text(text=finding.evidence)
    yield Facts(pairs=tuple((name, one_line(text)) for name, text in pairs))


def _settings(result: Conformance) -> tuple[Setting, ...]:
    claims = result.claims
    clip = claims.clip if isinstance(claims.clip, tuple) else (claims.bound,)
    divisor = "expected batch size" if claims.divisor is None else number(claims.divisor)
    values = {
        "clip": ", ".join(number(each) for each in clip),
        "noise multiplier": number(claims.noise_multiplier),
        "sampling rate": share(claims.sampling_rate),
        "learning rate": number(claims.learning_rate),
        "divisor": divisor,
        "number of rows is public": "yes" if claims.n_public else "no",
        "gradients that are not finite": claims.not_finite,
        "secure noise": "yes" if claims.secure else "no",
    }
    return tuple(
        Setting(name=name, value=value, origin=Origin.GIVEN) for name, value in values.items()
    )
