"""The document of a dossier: gaps first, then what was tested and what is proved."""

from collections.abc import Iterable, Iterator

from expost.dossier.dossier import DISCLAIMER, Answered, Dossier
from expost.dossier.items import Status
from expost.notices import listed
from expost.numbers import count, share, symbols
from expost.report.document import (
    Alert,
    Block,
    Code,
    Document,
    Facts,
    Heading,
    Section,
    Text,
    Tile,
    Tone,
    Verdict,
    one_line,
    table,
)
from expost.risk.attacks import RISKS
from expost.types import Audience

__all__ = ["dossier_document"]

_TONES: dict[Status, Tone] = {
    Status.NOT_DONE: "caution",
    Status.TESTED: "plain",
    Status.PROVED: "good",
}
_MEANINGS = {
    Status.NOT_DONE: "No given result answers these items.",
    Status.TESTED: "Attacks were run. Tested does not mean passed: how well the attacks did is"
    " curator-only. An attack is no guarantee: other attacks may find what these miss.",
    Status.PROVED: "A guarantee or a certified bound answers these items, for any attack.",
}
_DOES_NOT_APPLY = "does not apply"
_GLOSSARY = (
    ("Proved", "A guarantee or a certified bound holds, for every attack."),
    ("Tested", "Attacks were run on the model, with any outcome. Other attacks may do better."),
    ("Not done", "No given result answers the item."),
    (
        "Text not checked",
        "The document is named as the origin of the question. Its text was not read for this item,"
        " so that no paragraph is cited.",
    ),
    (
        "Chance without the model",
        "The baseline: how often an attack succeeds if the attacker does not see the model.",
    ),
)


def dossier_document(dossier: Dossier) -> Document:
    """Return the document of a dossier."""
    gaps, applicable = dossier.of(Status.NOT_DONE), len(dossier.answers) - len(dossier.exempt)
    sections = [_overview(dossier)]
    sections += [
        Section(
            id=status.value.replace(" ", "-"),
            title=status.value.capitalize(),
            nav=status.value.capitalize(),
            blocks=(Text(text=_MEANINGS[status]), *_items(dossier.of(status))),
        )
        for status in Status
        if dossier.of(status)
    ]
    if dossier.exempt:
        sections.append(
            Section(
                id="does-not-apply",
                title="Does not apply to this context",
                blocks=tuple(_items(dossier.exempt)),
            )
        )
    if dossier.files:
        sections.append(_results(dossier))
    return Document(
        kind="dossier",
        title="Dossier of a trained model",
        audience=dossier.audience,
        subtitle=(() if dossier.model is None else (symbols(one_line(dossier.model)),)),
        verdict=Verdict(
            text=f"{count(len(gaps))} of {count(applicable)} items are not done.",
            more=DISCLAIMER,
            tone="caution" if gaps else "good",
        ),
        tiles=(
            *(
                Tile(
                    label=status.value.capitalize(),
                    value=count(len(dossier.of(status))),
                    tone=_TONES[status],
                )
                for status in Status
            ),
            Tile(label="Does not apply", value=count(len(dossier.exempt))),
        ),
        alerts=tuple(_alerts(dossier)),
        sections=tuple(sections),
        glossary=_GLOSSARY,
        facts={
            **dossier.scalars(),
            **{f"baseline_{name}": value for name, value in dossier.baselines.items()},
        },
    )


def _alerts(dossier: Dossier) -> Iterator[Alert]:
    yield Alert(
        severity="note",
        title=f"Context: {dossier.deployment.value}.",
        text=dossier.deployment.attacker,
    )
    yield Alert(
        severity="note",
        title="The bounds are of this model alone.",
        text="Re-identification, attribute inference and reconstruction are bounded for an attacker"
        f" who succeeds with these chances without the model: {_baselines(dossier)}.",
    )
    if dossier.audience is not Audience.CURATOR_ONLY:
        yield Alert(
            severity="note",
            title="Curator-only figures are left out.",
            text="Figures of single rows and of attacks are in the dossier with --audience"
            " curator-only.",
        )


def _baselines(dossier: Dossier) -> str:
    return ", ".join(
        f"{RISKS[name].label} {share(value)}" for name, value in dossier.baselines.items()
    )


def _overview(dossier: Dossier) -> Section:
    def status(each: Answered) -> str:
        return _DOES_NOT_APPLY if each.exempt else each.answer.status.value

    def item(each: Answered) -> str:
        # One column, so that the table fits on a phone.
        return f"{each.item.title} ({each.item.source.document})"

    kinds = [one_line(kind) for kind in dossier.kinds]
    return Section(
        id="items",
        title="All items",
        nav="Overview",
        brief=True,
        blocks=(
            table(
                dossier.ordered,
                ("item", item, str),
                ("status", status, str),
                caption="What is not done comes first.",
            ),
            Text(text=f"Results that were read: {listed(kinds)}.", small=True),
        ),
    )


def _items(answers: Iterable[Answered]) -> Iterator[Block]:
    for each in answers:
        item, answer = each.item, each.answer
        applies = f"no: {each.exempt}" if each.exempt else "yes"
        status = _DOES_NOT_APPLY if each.exempt else answer.status.value
        figures = (
            (one_line(figure.label), f"{one_line(figure.value)} (from the {figure.result})")
            for figure in (() if each.exempt else answer.figures)
        )
        yield Heading(text=item.title)
        yield Facts(
            pairs=(
                ("Question", item.question),
                ("Status", status),
                *([] if each.exempt else [("Answer", answer.text)]),
                *figures,
                *([] if each.exempt else [("Assumption", text) for text in answer.assumptions]),
                ("Source", item.source.text),
                ("Applies in this context", applies),
            )
        )
        if answer.command and not each.exempt:
            yield Code(text=answer.command, purpose="The command that would do it")


def _results(dossier: Dossier) -> Section:
    return Section(
        id="results",
        title="Results and their checksums",
        blocks=(
            table(
                dossier.files,
                ("result", lambda file: file.kind, str),
                ("file", lambda file: one_line(file.name), str),
                ("SHA-256", lambda file: file.sha256, str),
                caption="The files that the figures come from. expost verify compares the copies"
                " in the folder of this dossier.",
                label=1,
            ),
        ),
    )
