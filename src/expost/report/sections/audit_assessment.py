"""The section of an audit for a data-protection impact assessment."""

from collections.abc import Iterator

from expost.auditing.attacks import described
from expost.auditing.result import Audit
from expost.numbers import count, number, share
from expost.report.document import Block, Bullets, Heading, Section, one_line
from expost.report.sections.audit_overview import Attacked

__all__ = ["assessment_section"]

# Attacks that are named in one sentence.
_NAMED = 6


def assessment_section(attacked: Attacked) -> Section:
    """Return the answers for an impact assessment."""
    answers = {
        "What was attacked?": _attacked_answer(attacked),
        "What did the attacker know?": _knowledge(attacked.audit),
        "What was not tried?": _untried(attacked.audit),
        "What remains?": _remains(attacked),
        "Who may read this?": _readers(attacked.audit),
    }
    blocks: list[Block] = []
    for question, items in answers.items():
        blocks += [Heading(text=question), Bullets(items=tuple(items))]
    return Section(
        id="attack-assessment",
        title="For a data-protection impact assessment",
        blocks=tuple(blocks),
    )


def _attacked_answer(attacked: Attacked) -> Iterator[str]:
    yield f"The model: {one_line(attacked.audit.description)}."
    yield (
        f"{count(attacked.members)} rows that it was trained on and"
        f" {count(attacked.non_members)} that it was not. The harm considered is that an"
        " attacker learns that a person's row was in the training data."
    )


def _knowledge(audit: Audit) -> Iterator[str]:
    yield "The row with its label, and the answers of the model to it."
    if audit.models:
        yield (
            "How models of this kind are trained, and similar rows to train"
            f" {count(audit.models)} of them on."
        )
    inside = [one_line(name) for name in audit.figures if described(name).white_box]
    if inside:
        yield f"For {_listed(inside)}: the inside of the model or its training."


def _untried(audit: Audit) -> Iterator[str]:
    if audit.skipped:
        skipped = (f"{one_line(name)} ({one_line(why)})" for name, why in audit.skipped.items())
        yield f"Attacks that could not be made: {'; '.join(skipped)}."
    if not any(described(name).white_box for name in audit.figures):
        yield "Attacks that use the inside of the model or take part in its training."
    yield (
        "Guessing unknown values of a row, reconstructing rows, poisoning the training, and"
        " combining this model with other releases about the same people."
    )


def _remains(attacked: Attacked) -> Iterator[str]:
    audit = attacked.audit
    yield (
        "The figures are of this one model and these rows, each with its"
        f" {share(audit.confidence)} confidence interval; another training gives other figures."
    )
    if audit.is_confounded:
        yield (
            "Members and non-members differ without the model, so that the success of the attacks"
            " on these rows is no evidence about the model."
        )
    yield "A better attack, or an attacker who knows more, may find what these attacks missed."
    if audit.guarantee is None or audit.advantage_bound is None:
        yield "No guarantee bounds what such an attacker finds."
    elif audit.guarantee_refuted:
        yield "The guarantee does not bound it: it is refuted."
    else:
        yield (
            f"If the guarantee ({attacked.guarantee_text()}) holds, no attacker's advantage exceeds"
            f" {number(audit.advantage_bound, 'up')} on average over models."
        )


def _readers(audit: Audit) -> Iterator[str]:
    yield (
        f"This page, its table of rows and its pictures: {audit.audience.value}. They name single"
        " rows and show who was in the training data."
    )
    yield (
        "The figures without rows, in figures.json: needs-review. Check before quoting them that no"
        " group in them is small."
    )


def _listed(names: list[str]) -> str:
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    *first, last = [*names[:_NAMED], *more]
    return f"{', '.join(first)} and {last}" if first else last
