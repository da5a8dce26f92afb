"""The document of a published report, and of its answers to a person.

The document is public, or for the person who looks up their own row. It holds none of the
values that the person gave, and their label only if it lists all labels.
"""

import math
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from expost.groups.columns import printable
from expost.mechanisms.base import noise_title
from expost.mechanisms.statement import relation_text, statements
from expost.notices import listed
from expost.numbers import certainty, count, for_persons, symbols
from expost.publishing.report import Answer, PublishedReport
from expost.report.document import (
    Alert,
    Block,
    Bullets,
    Code,
    Document,
    Heading,
    Section,
    Table,
    Text,
    Tile,
    Verdict,
    one_line,
    table,
)
from expost.report.sections.bounds import at_most, up
from expost.report.sections.published_figure import bounds_figure, largest_bound
from expost.report.sections.published_form import (
    CERTAINTY,
    EXPOSURE,
    certainty_sentence,
    fixed_row,
    form_section,
    verdict_remarks,
)
from expost.types import Audience

__all__ = ["answer_document", "lookup_command", "published_document"]

# Columns that the command names and the page lists; the others are counted.
_NAMED = 60
# A command that is cut off would be another command.
_LONGEST_COMMAND = 10**6
_GLOSSARY = (
    (
        "Attacker's certainty",
        "The probability that an attacker assigns to the correct answer, present or absent, after"
        " seeing what was published. The attacker knows every other row and how the model was made,"
        " and started from 50 % (guessing).",
    ),
    (
        "Exposure",
        "The absolute privacy loss in nats: by which factor, as a logarithm, the released model is"
        " more or less likely with the row than without it. 0.1 is a factor of 1.1, 0.7 of 2, 2.3"
        " of 10.",
    ),
    (
        "Failure probability",
        "The model and the report contain random noise. With at most this probability the noise was"
        " such that a bound does not hold.",
    ),
)


class _Cost(NamedTuple):
    """What a release spends: its name, (ε, δ) and a remark."""

    name: str
    epsilon: float
    delta: float
    remark: str


def published_document(
    report: PublishedReport, *, answers: Sequence[Answer] = (), file: str | None = None
) -> Document:
    """Return the document of a published report.

    Parameters
    ----------
    report : PublishedReport
        The report.
    answers : sequence of Answer
        The answers of ``report.lookup`` for one person.
    file : str, optional
        The file of the report, for the command that looks up a row; its usual name by default.
    """
    mechanism = report.release.mechanism
    epsilon, delta = report.spending.model
    command = Code(
        text=lookup_command(report, file),
        purpose="Look up your row at the command line (your values for the dots; nothing is sent)",
    )
    sections = [
        *([_answers(report, answers)] if answers else []),
        _look_up(report, command) if answers else form_section(report, command),
        _guarantee(report),
        _statements(report),
        _examples(report),
        *([_constants(report)] if report.conditions else []),
    ]
    return Document(
        kind="published",
        title=_title(report, answers),
        subtitle=(
            one_line(f"{mechanism.title}, {noise_title(mechanism.noise)}"),
            f"{count(mechanism.rows)} rows",
            f"{count(mechanism.dimension)} coefficients",
        ),
        audience=report.audience,
        verdict=_verdict(report, answers),
        tiles=tuple(_tiles(report, answers)),
        alerts=tuple(_alerts(report, answers)),
        steps=() if answers else (command,),
        sections=tuple(sections),
        glossary=_GLOSSARY,
        facts={
            "epsilon": epsilon if epsilon < math.inf else None,
            "delta": delta,
            "rows": mechanism.rows,
            "model": one_line(mechanism.describe()),
        },
        why_not_public=_why_not_public(report),
    )


def answer_document(answer: Answer) -> Document:
    """Return the document of what a report states about one row."""
    return Document(
        kind="answer",
        title=f"Bound for a row with the label {one_line(answer.label)}",
        audience=answer.audience,
        verdict=Verdict(
            text=_certainty_sentence((answer,)),
            more=f"The bound fails with probability at most {up(answer.everything_fails_with)}.",
        ),
        alerts=tuple(_notes((answer,))),
        sections=(
            Section(
                id="answer",
                title="Bounds",
                nav="Overview",
                brief=True,
                blocks=(_bounds_table((answer,), is_named=False),),
            ),
        ),
        glossary=_GLOSSARY,
    )


def lookup_command(report: PublishedReport, file: str | None = None) -> str:
    """Return the command that looks up a row, with dots in place of values."""
    names = report.form.names
    values = [f"--set {shlex.quote(printable(name) + '=')}…" for name in names[:_NAMED]]
    more = ["…"] if len(names) > _NAMED else []
    file = report.audience.file_name("report", "json") if file is None else file
    words = ["expost lookup", shlex.quote(file), *values, *more, "--label …"]
    return printable(" ".join(words), _LONGEST_COMMAND)


# -- overview --------------------------------------------------------------------------------------


def _title(report: PublishedReport, answers: Sequence[Answer]) -> str:
    if answers:
        return "Your row in a released model"
    rows = count(report.release.mechanism.rows)
    if report.audience is not Audience.PUBLIC:
        return f"Privacy report of a model of {rows} rows, to be reviewed"
    return f"Privacy report of a model of {rows} rows"


def _verdict(report: PublishedReport, answers: Sequence[Answer]) -> Verdict:
    spent = _spent(report)
    if answers:
        return Verdict(
            text=_certainty_sentence(answers, yours=True),
            more=verdict_remarks(report, len(answers)),
            priority=30,
        )
    if report.release.mechanism.forecast.is_useless:
        return Verdict(
            text="The model is expected to be no better than the base rate.",
            more=spent,
            tone="bad",
            priority=90,
        )
    if report.read_from_data:
        return Verdict(
            text=(
                "Do not publish this report before a review: it contains constants that were read"
                " from the data."
            ),
            more=spent,
            tone="caution",
            priority=30,
        )
    if report.audience is not Audience.PUBLIC:
        return Verdict(
            text="Have this report reviewed before you publish it: its model guarantees no ε.",
            more=spent,
            tone="caution",
            priority=30,
        )
    largest = largest_bound(report)
    text = (
        "Anyone can look up a bound on how certain an attacker can become whether their own row was"
        " in the data."
    )
    if largest is not None:
        text = (
            f"An attacker becomes {at_most(certainty(largest))} certain whether your row was in the"
            " data; look up the bound of your own row."
        )
    return Verdict(text=text, more=spent, tone="good", priority=30)


def _certainty_sentence(answers: Sequence[Answer], *, yours: bool = False) -> str:
    worst = max(answers, key=lambda answer: answer.everything)
    return certainty_sentence(
        at_most(certainty(worst.everything)),
        row="your row" if yours else "this row",
        several=len(answers) > 1,
    )


def _spent(report: PublishedReport) -> str:
    spending = report.spending
    epsilon, delta = spending.model
    model = (
        f"The model was released at ε = {up(epsilon)}{_at(delta)}"
        if epsilon < math.inf
        else "The model guarantees no ε because its loss has no bounded gradient"
    )
    if spending.gradient is None or spending.hessian is None:
        return f"{model}; this report spends nothing more."
    extra = (
        f"this report spent ε = {up(spending.gradient[0])} and ε = {up(spending.hessian[0])}"
        f"{_at(spending.gradient[1])} in addition"
    )
    total, slip = spending.together
    together = f", ε = {up(total)}{_at(slip)} in total" if total < math.inf else ""
    return f"{model}; {extra}{together}."


def _at(delta: float) -> str:
    return f" (δ = {up(delta)})" if delta > 0 else ""


def _tiles(report: PublishedReport, answers: Sequence[Answer]) -> Iterator[Tile]:
    mechanism = report.release.mechanism
    if answers:
        worst = max(answer.everything for answer in answers)
        yield Tile(label="Your row", value=at_most(certainty(worst)), lines=("50 % is guessing",))
    forecast = mechanism.forecast
    yield Tile(
        label="Useful?",
        value="No"
        if forecast.is_useless
        else f"{forecast.level.name[0].upper()}{forecast.level.name[1:]}",
        lines=(f"noise ratio {up(forecast.noise_ratio)}",),
        tone="bad" if forecast.is_useless else "plain",
    )
    epsilon, delta = report.spending.model
    if epsilon < math.inf:
        lines = (
            f"δ = {up(delta)}" if delta > 0 else "",
            for_persons(mechanism.rows_per_person).strip(),
            relation_text(mechanism),
        )
        shown = tuple(line for line in lines if line)
        yield Tile(label="Guarantee", value=f"ε = {up(epsilon)}", lines=shown)
    else:
        yield Tile(label="Guarantee", value="None", tone="bad")
    scope = "for all rows at once" if report.exposure_bound.is_uniform else "for one row"
    yield Tile(label="Bounds fail with", value=f"at most {up(report.fails_with)}", lines=(scope,))


def _alerts(report: PublishedReport, answers: Sequence[Answer]) -> Iterator[Alert]:
    warning = report.release.mechanism.forecast.warning
    if warning is not None:
        yield Alert(severity="problem", title="The model is useless.", text=symbols(warning))
    if report.is_void:
        yield Alert(
            severity="problem",
            title="The bound is 100 % for everyone.",
            text=(
                f"With failure probability {up(report.failure_probability)} the report bounds"
                " nothing; publish it again with a larger one (--failure-probability)."
            ),
        )
    if report.read_from_data:
        names = one_line(listed(report.read_from_data, most=4))
        yield Alert(
            severity="review",
            title=f"Read from the data: {names}.",
            text=(
                "Every ε and every bound holds given these constants; what the constants reveal is"
                " not accounted for."
            ),
        )
    elif report.audience is not Audience.PUBLIC:
        yield Alert(severity="review", title="The model guarantees no ε.")
    if report.input_condition is not None and not answers:
        yield Alert(severity="note", title=one_line(report.input_condition))
    yield from _notes(answers)


def _notes(answers: Sequence[Answer]) -> Iterator[Alert]:
    notes = dict.fromkeys(note for answer in answers for note in answer.notes)
    yield from (Alert(severity="note", title=one_line(note)) for note in notes)


def _why_not_public(report: PublishedReport) -> str | None:
    if report.read_from_data:
        names = one_line(listed(report.read_from_data, most=4))
        return (
            f"the published report contains constants that were read from the data ({names}), which"
            " no ε covers: give these constants, fit and publish again, or have it reviewed"
        )
    if report.audience is not Audience.PUBLIC:
        return "the model of the published report guarantees no ε: have it reviewed"
    return None


# -- sections --------------------------------------------------------------------------------------


def _answers(report: PublishedReport, answers: Sequence[Answer]) -> Section:
    remarks = ["These bounds hold whether or not your row was in the data."]
    if report.exposure_bound.is_uniform:
        remarks.append("They hold for all rows at once, also for rows that were made up.")
    else:
        published = "the model" if report.budget is None else "the model or this report"
        remarks.append(
            f"{fixed_row(report)}, and not for rows that are picked or made up after looking at"
            f" {published}."
        )
    if len(answers) > 1:
        remarks.append(
            "One of these labels is yours. The bounds of all labels hold together, so that the"
            " largest bound holds for any of them."
        )
    if report.budget is not None:
        remarks.append(
            "The gradient and the Hessian of the report cost you this ε at"
            f" δ = {up(answers[0].delta)} each."
        )
    remarks.append("The values that you typed are not on this page.")
    return Section(
        id="your-row",
        title="Your row",
        nav="Overview",
        brief=True,
        blocks=(
            _bounds_table(answers, is_named=len(answers) > 1),
            Text(text=" ".join(remarks), small=True),
        ),
    )


def _bounds_table(answers: Sequence[Answer], *, is_named: bool) -> Table:
    spends = any(answer.everything != answer.exposure for answer in answers)
    return table(
        answers,
        ("label", lambda answer: printable(answer.label), str) if is_named else None,
        (CERTAINTY[0], lambda answer: answer.exposure, certainty),
        (CERTAINTY[1], lambda answer: answer.everything, certainty) if spends else None,
        (EXPOSURE[0], lambda answer: answer.exposure, up),
        (EXPOSURE[1], lambda answer: answer.everything, up) if spends else None,
        ("ε of the gradient", lambda answer: answer.epsilon_gradient, up) if spends else None,
        ("ε of the Hessian", lambda answer: answer.epsilon_hessian, up) if spends else None,
        ("fails with probability", lambda answer: answer.fails_with, up),
        ("fails, model and report", lambda answer: answer.everything_fails_with, up)
        if spends
        else None,
    )


def _look_up(report: PublishedReport, command: Code) -> Section:
    """Return how to look up another row, next to an answer."""
    file = report.audience.file_name("report", "json")
    return Section(
        id="look-up",
        title="Look up a row",
        nav="Find a row",
        blocks=(
            Text(text=f"Download {file}. The command reads it and your values, and sends nothing."),
            command,
        ),
    )


def _examples(report: PublishedReport) -> Section:
    return Section(
        id="published-examples",
        title="Bounds of example rows",
        nav="Guarantee",
        blocks=(bounds_figure(report),),
    )


def _guarantee(report: PublishedReport) -> Section:
    mechanism = report.release.mechanism
    spent = table(
        _costs(report),
        ("release", lambda cost: cost.name, str),
        ("ε", lambda cost: cost.epsilon, up),
        ("δ", lambda cost: cost.delta, up),
        ("remark", lambda cost: cost.remark, str),
        caption="What was spent",
    )
    forecast = tuple(symbols(line[0].upper() + line[1:]) for line in mechanism.forecast.lines())
    blocks: tuple[Block, ...] = (
        spent,
        Heading(text="Expected usefulness"),
        Bullets(items=forecast),
    )
    guarantee = tuple(symbols(line) for line in statements(mechanism))
    if guarantee:
        blocks = (spent, Bullets(items=guarantee), *blocks[1:])
    return Section(id="published-guarantee", title="Guarantee", nav="Guarantee", blocks=blocks)


def _costs(report: PublishedReport) -> Iterator[_Cost]:
    spending = report.spending
    yield _Cost("model", *spending.model, "its coefficients, released with noise once")
    if spending.gradient is None or spending.hessian is None:
        constants = (
            "constants that were read from the data"
            if report.read_from_data
            else ("public constants")
        )
        yield _Cost("this report", 0.0, 0.0, f"computed from the model and {constants}")
        return
    yield _Cost("gradient", *spending.gradient, "the gradient of the objective at θ, with noise")
    yield _Cost("Hessian", *spending.hessian, "the Hessian of the objective at θ, with noise")
    yield _Cost("total", *spending.together, "all three, composed")


def _statements(report: PublishedReport) -> Section:
    return Section(
        id="published-statements",
        title="What the report states",
        nav="Guarantee",
        blocks=(
            Bullets(items=tuple(_stated(report))),
            Heading(text="What it does not state"),
            Bullets(items=tuple(_not_stated(report))),
        ),
    )


def _stated(report: PublishedReport) -> Iterator[str]:
    yield (
        "For any row, in the data or not, the report gives an upper bound of its exposure: how much"
        " more or less likely the released model is with the row than without it."
    )
    fails = f"A bound fails with probability at most {up(report.fails_with)}"
    yield f"{fails}, for all rows at once." if report.exposure_bound.is_uniform else f"{fails}."
    largest = largest_bound(report)
    if largest is not None:
        yield f"No bound exceeds ε = {up(largest)}, the guarantee of the model."
    if report.budget is None:
        constants = " and constants that were read from them" if report.read_from_data else ""
        yield f"The report uses nothing of the rows except the released model{constants}."
    else:
        yield "The report uses the released model, and a noisy gradient and Hessian of the rows."


def _not_stated(report: PublishedReport) -> Iterator[str]:
    yield "Whether a row was in the data."
    yield "The exposure itself, which may be far below the bound. Only the curator can compute it."
    if not report.exposure_bound.is_uniform:
        yield (
            "Anything about a row that was picked or made up after looking at the model or the"
            " report: a bound holds for a row that was fixed before the noise was drawn."
        )
    if report.budget is not None:
        yield "What another report of the same model would spend: its budget is spent again."


def _constants(report: PublishedReport) -> Section:
    names = [printable(name) for name in report.read_from_data[:_NAMED]]
    rest = len(report.read_from_data) - len(names)
    if rest:
        names.append(f"and {count(rest)} more")
    return Section(
        id="published-constants",
        title="Constants that were read from the data",
        nav="Guarantee",
        blocks=(Text(text=symbols(report.conditions[-1])), Bullets(items=tuple(names))),
    )
