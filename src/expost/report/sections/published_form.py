"""The section of a published report where a person types a row and reads its bounds."""

import math
from collections.abc import Callable, Iterator

from expost.groups.columns import printable
from expost.numbers import certainty, chance, count
from expost.publishing.report import PublishedReport
from expost.report.document import YOUR_ROW, Block, Bullets, Code, Fold, Heading, Section, Text
from expost.report.person_form import form_widget, no_form
from expost.report.sections.bounds import at_most, up

__all__ = ["CERTAINTY", "EXPOSURE", "certainty_sentence", "fixed_row", "form_section"]
__all__ += ["verdict_remarks"]

# Columns that the section lists; the others are counted.
_NAMED = 60
# The titles of columns, of the model alone and of the model with its report.
CERTAINTY = ("certainty, model alone, at most", "certainty, model and report, at most")
EXPOSURE = ("exposure at most (nats)", "exposure, model and report (nats)")


def form_section(report: PublishedReport, command: Code) -> Section:
    """Return the form with what its answers mean; without a form, why, and the command."""
    reason = no_form(report)
    still = tuple(_by_command(report, command))
    folded = Fold(title="At the command line", blocks=still)
    blocks: tuple[Block, ...]
    if reason is None:
        blocks = (
            Text(
                text="Type your values as they stand on your form. This page then computes, in your"
                " browser, how certain an attacker can become whether your row was in the data. It"
                " sends nothing and stores nothing. A number outside of the range of its column"
                " counts as the nearest end."
            ),
            form_widget(report, _texts(report), (folded,)),
        )
    else:
        absent = Text(text=f"There is no form on this page. {reason}")
        blocks = (absent,) if report.input_condition is not None else (absent, *still)
    return Section(
        id="look-up",
        title="What can this model reveal about you?",
        nav=YOUR_ROW,
        blocks=(
            *blocks,
            Heading(text="What the bound means"),
            Bullets(items=tuple(_meaning(report))),
            Heading(text="What the bound does not mean"),
            Bullets(items=tuple(_not_meant(report))),
        ),
    )


def certainty_sentence(bound: str, *, row: str = "your row", several: bool = False) -> str:
    """Return the sentence of a bound, e.g. "at most 61.5 %"."""
    label = ", for every label" if several else ""
    return (
        f"An attacker who knows every other row is {bound} certain whether {row} was in the"
        f" data{label}."
    )


def verdict_remarks(
    report: PublishedReport, labels: int, *more: str, shown_as: Callable[[float], str] = up
) -> str:
    """Return what is stated beside a bound of so many labels, in sentences."""
    remarks = (
        "Random guessing is 50 %.",
        _joint_failure(report, labels, shown_as),
        *more,
        _of_persons(report),
    )
    return " ".join(filter(None, remarks))


def _joint_failure(
    report: PublishedReport, labels: int, shown_as: Callable[[float], str] = up
) -> str:
    """Return a sentence on the failure probability of the bounds of so many labels."""
    fails = shown_as(report.everything_fails_with)
    if labels == 1:
        return f"The bound fails with probability at most {fails}."
    shown = "both labels" if labels == 2 else f"all {count(labels)} labels"
    return f"The bounds of {shown} together fail with probability at most {fails}."


def _of_persons(report: PublishedReport) -> str:
    """Return the guarantee for all rows of a person; "" if a person has one row."""
    mechanism = report.release.mechanism
    rows = mechanism.rows_per_person
    if rows == 1:
        return ""
    sentence = "The bound is about one row, and the attacker knows your other rows as well."
    worst, passed = mechanism.worst_case_of(rows)
    if not worst < math.inf:
        return sentence
    but = f", except with probability at most {chance(passed)}" if passed else ""
    return (
        f"{sentence} If up to {count(rows)} rows of the data are yours, an attacker who knows all"
        f" others is {at_most(certainty(worst))} certain whether they were in the data{but}."
    )


def _by_command(report: PublishedReport, command: Code) -> Iterator[Block]:
    names, classes = report.form.names, report.release.classes
    shown = ", ".join(printable(name) for name in names[:_NAMED])
    more = f" and {count(len(names) - _NAMED)} more" if len(names) > _NAMED else ""
    label = "The label is a number."
    if classes is not None:
        labels = " or ".join(printable(label) for label in classes.tolist())
        label = f"The label is {labels}; without --label the bound of each label is printed."
    file = report.audience.file_name("report", "json")
    yield Text(text=f"Download {file}. The command reads it and your values, and sends nothing.")
    yield command
    yield Text(text=f"Columns: {shown}{more}. {label}", small=True)


def _texts(report: PublishedReport) -> dict[str, object]:
    """Return the sentences of an answer; {} stands for a figure."""
    classes = report.release.classes
    labels = 1 if classes is None else len(classes)
    both = report.budget is not None
    fixed = "" if report.exposure_bound.is_uniform else f"{fixed_row(report)}."
    caption = "Largest certainty and exposure for each label; one of them is yours."
    return {
        "sentence": certainty_sentence("{}", several=labels > 1),
        "fails": verdict_remarks(report, labels, fixed, shown_as=chance),
        "judged": "If an attacker judged 100 people with this bound, at most {} judgements would be"
        " correct on average. Guessing alone gets 50, in grey.",
        "empty": "Type your values first.",
        "tried": None
        if report.exposure_bound.is_uniform
        else "You have tried {} different rows. The bound holds for the values that were yours"
        " before the model was made, not for values that were picked because of their bound.",
        "caption": caption if labels > 1 else "Largest certainty and exposure.",
        "columns": [*CERTAINTY[: 1 + both], *EXPOSURE[: 1 + both]],
    }


def _meaning(report: PublishedReport) -> Iterator[str]:
    classes = report.release.classes
    yield (
        "The attacker knows every other row and how the model was made, and starts from 50 %, which"
        " is guessing. 100 % would be certainty."
    )
    yield "The bound holds whether or not your row was in the data."
    if report.exposure_bound.is_uniform:
        yield "It holds for all rows at once, also for rows that were made up."
    else:
        yield f"{fixed_row(report)}, and not for values that are tried until one pleases."
    labels = 1 if classes is None else len(classes)
    fails = _joint_failure(report, labels).removesuffix(".")
    yield f"{fails}, which is {chance(report.everything_fails_with)}{_split(report, labels)}."
    if report.release.mechanism.rows_per_person > 1:
        yield _of_persons(report)


def fixed_row(report: PublishedReport) -> str:
    """Return for which rows a bound holds that does not hold for all at once."""
    noise = "the model" if report.budget is None else "the model and of this report"
    return f"A bound holds for a row fixed before the noise of {noise} was drawn, as yours was"


def _split(report: PublishedReport, labels: int) -> str:
    """Return how the failure probability is shared by several labels, as a part of a sentence."""
    if labels == 1 or report.exposure_bound.is_uniform:
        return ""
    return "; it is split over the labels shown wherever the noise acts differently on each"


def _not_meant(report: PublishedReport) -> Iterator[str]:
    yield "Whether your row was in the data. Your exposure may be far below the bound."
    yield (
        "What the model predicts about people like you: the bound is about membership, whether your"
        " own row was used."
    )
    published = "this model" if report.budget is None else "this model and this report"
    yield (
        f"What other releases from the same data reveal. The bound is about {published} alone, and"
        " what several releases reveal adds up."
    )
    if report.read_from_data:
        yield "What the constants that were read from the data reveal, which no bound covers."
