"""The documents of an erasure: the certificate, which a person can be sent, and the record.

The certificate's document holds public constants and bounds alone. It does not show whether the
model was kept, nor anything that depends on that.
"""

import math
from collections.abc import Iterator

from expost.erasure.certificate import OTHER_FOLDERS, Certificate, Erasure, Model
from expost.groups.columns import printable
from expost.notices import listed
from expost.numbers import count, figure, for_persons, percent
from expost.report.document import (
    Alert,
    Block,
    Bullets,
    Document,
    Facts,
    Section,
    Text,
    Tile,
    Verdict,
    one_line,
    table,
)
from expost.report.sections.bounds import up
from expost.types import Audience

__all__ = ["certificate_document", "erasure_document"]

# Constants that are named; the others are counted.
_NAMED = 12
_MECHANISMS = {"output": "output perturbation", "objective": "objective perturbation"}
_GLOSSARY = (
    (
        "Law of the model",
        "The model is drawn with random noise. Its law says how likely each possible model is."
        " No method can distinguish models that have the same law.",
    ),
    (
        "Total variation",
        "The distance of two laws: the largest difference between the probabilities that they give"
        " to the same event. It is 0 for equal laws.",
    ),
    (
        "Guarantee (ε, δ)",
        "For each person in the data: whatever is computed from the model is at most e^ε times as"
        " likely with the person's rows as without them, except with probability δ.",
    ),
)


def certificate_document(certificate: Certificate) -> Document:
    """Return the document of a certificate, for the person who asked."""
    entered = certificate.is_insertion
    after = certificate.after
    sections = [
        _done(certificate),
        _meaning(certificate),
        _limits(certificate),
        _guarantee(certificate),
        *([_declaration()] if certificate.requests_independent else []),
        _checksums(certificate),
    ]
    return Document(
        kind="certificate",
        title="Certificate of an insertion" if entered else "Certificate of an erasure",
        subtitle=(
            f"{_MECHANISMS.get(certificate.mechanism, one_line(certificate.mechanism))},"
            f" {one_line(certificate.noise).capitalize()} noise",
            f"{count(after.rows)} rows",
        ),
        audience=certificate.audience,
        verdict=_verdict(certificate),
        tiles=tuple(_tiles(certificate)),
        alerts=tuple(_alerts(certificate)),
        sections=tuple(sections),
        glossary=_GLOSSARY,
        facts={
            "epsilon": after.epsilon if after.epsilon < math.inf else None,
            "delta": after.delta,
            "rows": after.rows,
        },
        why_not_public=_why_not_public(certificate),
    )


def erasure_document(erasure: Erasure) -> Document:
    """Return the document of an erasure, for the curator."""
    record, certificate = erasure.record, erasure.certificate
    fate = "kept" if record.is_kept else "redrawn"
    pairs = [("model", fate), ("method", certificate.method)]
    if record.keeping is not None:
        pairs.append(("probability of keeping it", _interval(record.keeping)))
    if record.loss is not None:
        pairs.append(("privacy loss of the rows (nats)", _interval(record.loss)))
    pairs += [("draws", count(record.tries)), ("seconds", figure(record.seconds))]
    blocks: list[Block] = [Facts(pairs=tuple(pairs))]
    if record.stale_files:
        files = tuple(printable(name, 200) for name in record.stale_files)
        blocks += [Text(text="Delete these earlier results, which were made with the rows:")]
        blocks += [Bullets(items=files)]
    if not certificate.is_insertion:
        blocks.append(Text(text=OTHER_FOLDERS))
    if record.other_releases:
        names = tuple(printable(name, 200) for name in record.other_releases)
        blocks += [Text(text="These other releases of the data are not erased:")]
        blocks += [Bullets(items=names)]
    verdict = _verdict(certificate)
    return Document(
        kind="erasure",
        title="Record of an insertion" if certificate.is_insertion else "Record of an erasure",
        subtitle=(f"{count(certificate.after.rows)} rows", certificate.made[:10]),
        audience=Audience.CURATOR_ONLY,
        verdict=Verdict(
            text=f"The model was {fate}. {verdict.text}", more=verdict.more, tone=verdict.tone
        ),
        tiles=tuple(_tiles(certificate)),
        alerts=tuple(_alerts(certificate)),
        sections=(
            Section(
                id="erasure-record",
                title="Record",
                nav="Overview",
                brief=True,
                blocks=tuple(blocks),
            ),
            _guarantee(certificate),
            _limits(certificate),
        ),
        glossary=_GLOSSARY,
    )


def _interval(ends: tuple[float, float]) -> str:
    return f"{figure(ends[0], 'down', 6)} to {figure(ends[1], 'up', 6)}"


def _rows(total: int) -> str:
    return f"{count(total)} row{'' if total == 1 else 's'}"


def _guaranteed(model: Model) -> str:
    """Return the guarantee of a model in symbols."""
    delta = f", δ = {up(model.delta)}" if model.delta else ""
    return f"ε = {up(model.epsilon)}{delta}{for_persons(model.rows_per_person)}"


def _law(certificate: Certificate) -> str:
    """Return the law that the model has, as the end of a sentence."""
    if certificate.is_insertion:
        return "a release made with the rows that entered"
    return "a release made without the erased rows"


def _verdict(certificate: Certificate) -> Verdict:
    error = certificate.total_variation
    within = "" if error == 0 else f", to within {up(error)} in total variation"
    text = f"The model has the law of {_law(certificate)}{within}."
    if certificate.read_from_data:
        return Verdict(
            text=f"Given its constants, {text[0].lower()}{text[1:]}",
            more="Some of these constants were read from the data, and have not changed.",
            tone="caution",
            priority=20,
        )
    return Verdict(text=text, more=_remark(certificate), tone="good", priority=20)


def _remark(certificate: Certificate) -> str:
    """Return what follows from the verdict, or how it was reached."""
    if certificate.method == "fresh":
        rows = "from all rows" if certificate.is_insertion else "from the remaining rows alone"
        return f"It was drawn again, {rows}."
    if certificate.is_insertion:
        return ""
    return "The model alone reveals no more than that about whether the rows ever were in the data."


def _tiles(certificate: Certificate) -> Iterator[Tile]:
    before, after = certificate.before, certificate.after
    yield Tile(
        label="Rows that entered" if certificate.is_insertion else "Rows erased",
        value=count(certificate.changed),
        lines=(f"{count(before.rows)} before, {count(after.rows)} after",),
    )
    exact = certificate.total_variation == 0
    yield Tile(
        label="Distance from that law",
        value="0" if exact else f"≤ {up(certificate.total_variation)}",
        lines=("in total variation",),
    )
    delta = (f"δ = {up(after.delta)}",) if after.delta else ()
    persons = for_persons(after.rows_per_person).strip()
    yield Tile(
        label="Everybody who stays",
        value=f"ε = {up(after.epsilon)}",
        lines=(*delta, *((persons,) if persons else ()), "of this model alone"),
    )


def _alerts(certificate: Certificate) -> Iterator[Alert]:
    if certificate.read_from_data:
        yield Alert(
            severity="review",
            title="Constants of the model were read from the data, those of the erased rows too.",
            text=f"They have not changed: {_named(certificate.read_from_data)}. The statement"
            " holds for these constants; release a model with given constants to be rid of them.",
        )


def _why_not_public(certificate: Certificate) -> str | None:
    if not certificate.read_from_data:
        return None
    return "constants of the model were read from the data"


def _named(names: tuple[str, ...]) -> str:
    return listed([printable(name) for name in names], _NAMED)


def _done(certificate: Certificate) -> Section:
    before, after = certificate.before, certificate.after
    changed = "rows that entered" if certificate.is_insertion else "rows that were removed"
    pairs = (
        ("date (UTC)", certificate.made.replace("T", " ").removesuffix("Z")),
        ("rows before", count(before.rows)),
        (changed, count(certificate.changed)),
        ("rows after", count(after.rows)),
        ("changes since the first release", count(certificate.changes)),
    )
    return Section(
        id="done",
        title="What was done",
        nav="Overview",
        brief=True,
        blocks=(Facts(pairs=pairs), Text(text=" ".join(_steps(certificate)))),
    )


def _steps(certificate: Certificate) -> Iterator[str]:
    noun = "rows that entered" if certificate.is_insertion else "rows that remain"
    if certificate.method == "fresh":
        yield f"A new model was drawn from the {noun}, independently of the old one."
    else:
        yield (
            "The old model and a coin decided: it was kept, or another one was drawn, with"
            " probabilities that give the result the law of a new model."
        )
    yield (
        "All other constants of the model are those of its first release, and do not depend on the"
        " number of rows."
    )


def _meaning(certificate: Certificate) -> Section:
    return Section(
        id="meaning",
        title="What it means",
        nav="Overview",
        blocks=(Bullets(items=tuple(_statements(certificate))),),
    )


def _statements(certificate: Certificate) -> Iterator[str]:
    law, error = _law(certificate), certificate.total_variation
    yield (
        "A model is drawn with random noise, which hides single people. Its law is how likely each"
        " possible model is."
    )
    if error == 0:
        yield f"Each possible model is as likely now as it would be in {law}."
    else:
        yield (
            f"The probability of every event differs by at most {up(error)} from its probability"
            f" in {law}."
        )
    if certificate.distance > 0:
        yield (
            f"The statement is about the exact minimiser. The computed model lies within"
            f" {up(certificate.distance)} of it, as every computed release does."
        )
    if certificate.method == "coupled":
        if certificate.mean_keeping > 0:
            yield (
                "On average over releases, the old model stays as it is with a probability of at"
                f" least {percent(certificate.mean_keeping, 'down')}. This bound follows from"
                " public constants."
            )
        yield "A person who has both models, and sees that they differ, knows that rows changed."


def _limits(certificate: Certificate) -> Section:
    return Section(
        id="limits",
        title="What it does not do",
        nav="Overview",
        brief=True,
        blocks=(Bullets(items=certificate.limits),),
    )


def _guarantee(certificate: Certificate) -> Section:
    models = (("before", certificate.before), ("after", certificate.after))
    compared = table(
        models,
        ("model", lambda line: line[0], str),
        ("rows", lambda line: line[1].rows, count),
        ("ε", lambda line: line[1].epsilon, up),
        ("δ", lambda line: line[1].delta, up),
        caption="The guarantee of each model alone",
    )
    return Section(
        id="erasure-guarantee",
        title="The guarantee of everybody who stays",
        nav="Guarantee",
        blocks=(compared, Bullets(items=tuple(_charges(certificate)))),
    )


def _charges(certificate: Certificate) -> Iterator[str]:
    after, charge = certificate.after, certificate.charge
    times = "one change" if certificate.changes == 1 else f"{count(certificate.changes)} changes"
    yield f"After {times} of its rows the model alone has {_guaranteed(after)}."
    if after.epsilon > certificate.before.epsilon:
        yield "The noise is that of the first release, and fewer rows share it: ε is larger."
    if charge is None:
        yield (
            "A person may have both models. The ledger therefore lists the new model as a release"
            f" of its own, with {_guaranteed(after)}."
        )
        return
    if charge.guaranteed_epsilon == math.inf:
        yield "No guarantee covers both models together; the ledger says so."
    elif charge.guaranteed_epsilon == 0:
        yield (
            "A person may have both models. The ledger therefore charges"
            f" δ = {up(charge.guaranteed_delta)} in addition to the old model: whether the model"
            " changed depends on everybody's rows."
        )
    else:
        yield (
            "A person may have all models that were kept or redrawn. The ledger therefore charges"
            f" ε = {up(charge.guaranteed_epsilon)}, δ = {up(charge.guaranteed_delta)} for all of"
            " them."
        )


def _declaration() -> Section:
    return Section(
        id="declaration",
        title="Declaration of the curator",
        nav="Guarantee",
        blocks=(
            Text(
                text="The curator declares that the request depended neither on the old model, nor"
                " on an earlier one or on whether that was kept. Without this the statement would"
                " hold only for a model that is drawn again, independently."
            ),
        ),
    )


def _checksums(certificate: Certificate) -> Section:
    return Section(
        id="checksums",
        title="Checksums",
        nav="Details",
        blocks=(
            Facts(
                pairs=(
                    ("model before", certificate.before.sha256),
                    ("model after", certificate.after.sha256),
                    ("request", one_line(certificate.request)),
                    ("rows after", one_line(certificate.data)),
                    ("certificate", certificate.to_json()["sha256"]),
                )
            ),
            Text(
                text="Those of the models are the field sha256 of their model.json. Those of the"
                " request and of the rows are keyed: only the curator has the key, and can test"
                " guesses about the data with them.",
                small=True,
            ),
        ),
    )
