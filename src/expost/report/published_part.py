"""Everything that a report shows of a published one, and of what it answers to a person.

It is for everybody, and for the one who asks about her own row. None of her values is in it: not
her label either, where she gave one. Text that came from outside is one line and printable; each
renderer escapes it for its own format.
"""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from expost.errors import InvalidInput
from expost.groups.exposure import printable
from expost.mechanisms.statement import statements
from expost.publishing.report import Answer, PublishedReport
from expost.report.parts import Context, Headline, Part, one_line
from expost.report.wording import count, forecast_lines, sure_text, symbols, upper
from expost.types import Audience

__all__ = ["BudgetLine", "PersonBound", "PublishedPart", "collect_published"]

# Columns that the command names, and that the page lists; more are counted.
_NAMED = 60
# Cut off it would be another command.
_LONGEST_COMMAND = 10**6
# How a note begins that repeats a value: everything up to here is left out.
_REPEATED = " is none of the levels of "


@dataclass(frozen=True, kw_only=True)
class BudgetLine:
    """What was spent for one thing; ``epsilon`` is infinite where nothing is promised."""

    what: str
    epsilon: float
    delta: float
    words: str

    @property
    def epsilon_text(self) -> str:
        """Rounded up."""
        return upper(self.epsilon)

    @property
    def delta_text(self) -> str:
        """Rounded up."""
        return upper(self.delta)


@dataclass(frozen=True, kw_only=True)
class PersonBound:
    """What the report answers about one row, with one label.

    ``label``      the label that it holds for, where the person gave none and gets one for each.
    ``exposure``   ∣loss∣ is at most this, of the model alone.
    ``everything`` the same of the model and the report together.
    ``epsilon_gradient``, ``epsilon_hessian``  what the report's own releases cost her at ``delta``.
    ``fails_with``, ``everything_fails_with``  how probable it is that those bounds are wrong.
    """

    label: str | None
    exposure: float
    everything: float
    epsilon_gradient: float
    epsilon_hessian: float
    delta: float
    fails_with: float
    everything_fails_with: float

    @property
    def exposure_text(self) -> str:
        """Rounded up."""
        return upper(self.exposure)

    @property
    def belief_text(self) -> str:
        """How sure an attacker can get, in or out, who was undecided; rounded up."""
        return sure_text(self.exposure)

    @property
    def everything_text(self) -> str:
        """The same of one who has seen the report's own releases too."""
        return sure_text(self.everything)

    @property
    def fails_text(self) -> str:
        """Rounded up."""
        return upper(self.fails_with)

    @property
    def gradient_text(self) -> str:
        """What the report's gradient costs her, rounded up."""
        return upper(self.epsilon_gradient)

    @property
    def hessian_text(self) -> str:
        """The same of its Hessian."""
        return upper(self.epsilon_hessian)

    @property
    def delta_text(self) -> str:
        """With which probability those are passed, at most."""
        return upper(self.delta)


@dataclass(frozen=True, kw_only=True)
class PublishedPart(Part):
    """What a report shows of a published one: for everybody, and for the person who asks.

    ``kind``         "data-independent": made from the model alone; or "data-dependent".
    ``budget``       what was spent for what, the sum last.
    ``fails_with``   how probable it is that a bound is wrong;  ``for_all`` for all rows at once,
                     else for one row that was fixed before the noise was drawn.
    ``most``         no bound is above this, in nats; None where there is no such ε.
    ``statements``, ``limits``  what the report says, and what it does not.
    ``columns``      what a person is asked for;  ``more_columns`` so many are not listed.
    ``labels``       the labels that there are; none where a number is predicted.
    ``command``      what to type to ask.
    ``bounds``       what was answered; none where nobody has asked.
    """

    kind: str
    rows: int
    dimension: int
    budget: tuple[BudgetLine, ...]
    fails_with: float
    for_all: bool
    most: float | None
    statements: tuple[str, ...]
    limits: tuple[str, ...]
    columns: tuple[str, ...]
    more_columns: int
    labels: tuple[str, ...]
    command: str
    bounds: tuple[PersonBound, ...]
    # A page of a report may go where its model may.
    audience: Literal[Audience.PASS, Audience.REVIEW]

    def __post_init__(self) -> None:
        super().__post_init__()
        # A mark that was edited in a file must not publish what promises nothing.
        promised = bool(self.budget) and all(line.epsilon < math.inf for line in self.budget)
        if self.audience is Audience.PASS and not promised:
            raise InvalidInput("audience: is pass where no ε is promised; it must be review.")

    @property
    def title(self) -> str:
        """What stands above its page."""
        if self.bounds:
            return "What a released model can give away about you, at most"
        return f"What anybody may know about a model of {count(self.rows)} rows"

    @property
    def is_spending(self) -> bool:
        """Whether the report itself released something."""
        return self.kind == "data-dependent"

    @property
    def fails_text(self) -> str:
        """Rounded up."""
        return upper(self.fails_with)


def collect_published(
    report: PublishedReport,
    *,
    answers: Sequence[Answer] = (),
    command: str | None = None,
    context: Context | None = None,
) -> PublishedPart:
    """Gather what a published report says.

    ``answers``  of ``report.lookup``, where a person has asked.
    ``command``  what to type to ask; one for report.json if None.
    """
    context = context or Context()
    audience = report.audience
    # A model that may not be shown is refused before there is a report of it.
    assert audience in (Audience.PASS, Audience.REVIEW)
    bounds = tuple(_bound(one, named=len(answers) > 1) for one in answers)
    how, names = report.release.mechanism, report.form.names
    classes = report.release.classes
    return PublishedPart(
        model=_model(report),
        headline=_headline(report, bounds),
        answer=(_spent(report),) if bounds else (),
        kind=report.kind,
        rows=how.rows,
        dimension=how.dimension,
        budget=tuple(_budget(report)),
        fails_with=report.fails_with,
        for_all=report.exposure_bound.is_uniform,
        most=_most(report),
        statements=tuple(_statements(report)),
        limits=tuple(_limits(report)),
        columns=tuple(printable(name) for name in names[:_NAMED]),
        more_columns=max(len(names) - _NAMED, 0),
        labels=() if classes is None else tuple(printable(one) for one in classes.tolist()),
        command=_command(report) if command is None else printable(command, _LONGEST_COMMAND),
        bounds=bounds,
        guarantee=tuple(symbols(line) for line in statements(how)),
        forecast=forecast_lines(how.forecast),
        audience=audience,
        **context.fields(_notes(answers)),
    )


# -- of the report ---------------------------------------------------------------------------------


def _model(report: PublishedReport) -> str:
    how = report.release.mechanism
    return one_line(
        f"{how.title}, {how.noise.capitalize()} noise, {count(how.rows)} rows,"
        f" {count(how.dimension)} coefficients"
    )


def _most(report: PublishedReport) -> float | None:
    """The largest bound that anybody gets, where the model promises one for certain."""
    epsilon = report.spending.model[0]
    return epsilon if report.release.mechanism.delta is None and epsilon < math.inf else None


def _headline(report: PublishedReport, bounds: tuple[PersonBound, ...]) -> Headline:
    """What was spent; how sure an attacker can get, of anybody or of who asked; what to do."""
    if bounds:
        # Her own bound comes first; what was spent opens the section.
        return Headline(
            exposed=_yours(report, max(bounds, key=lambda one: one.everything)),
            advice=(
                "If that is surer than you would accept, tell whoever published the model: one with"
                " a smaller ε gives less away. This page is about your row: show it to whom you"
                " like."
            ),
        )
    warning = report.release.mechanism.forecast.warning
    useless = None if warning is None else symbols(warning)
    most = _most(report)
    limit = f"; nobody's bound is above {sure_text(most)}" if most is not None else ""
    return Headline(
        useless=useless,
        epsilon=_spent(report),
        exposed=(
            "With this report anybody can learn how sure an attacker can get at most, from this"
            f" model, whether her own row was in the data{limit}."
        ),
        advice=(
            "Ask about your own row with the command below: it reads the report and what you type,"
            " and sends nothing anywhere."
        ),
    )


def _spent(report: PublishedReport) -> str:
    spent = report.spending
    epsilon, delta = spent.model
    promised = (
        f"The model was released at ε = {upper(epsilon)}{_at(delta)}"
        if epsilon < math.inf
        else "The model promises no ε, for its loss has no steepest slope"
    )
    if spent.gradient is None or spent.hessian is None:
        return f"{promised}, and this report was made from it alone: it spends nothing more."
    extra = (
        f"this report spent ε = {upper(spent.gradient[0])} and ε = {upper(spent.hessian[0])}"
        f"{_at(spent.gradient[1])} each beyond it"
    )
    if not spent.together[0] < math.inf:
        return f"{promised}; {extra}."
    return f"{promised}; {extra}, in all ε = {upper(spent.together[0])}{_at(spent.together[1])}."


def _at(delta: float) -> str:
    return f" (δ = {upper(delta)})" if delta > 0 else ""


def _yours(report: PublishedReport, worst: PersonBound) -> str:
    seen = "the model and this report" if report.budget is not None else "the model"
    wrong = upper(worst.everything_fails_with)
    which = " (whichever label is yours)" if worst.label is not None else ""
    return (
        "Somebody who knows all other rows, and had no idea whether yours was in the data"
        f" (50\N{NO-BREAK SPACE}%), is at most {worst.everything_text} sure of it, in or out, after"
        f" seeing {seen}{which}; that is wrong with a probability of at most {wrong}."
    )


def _budget(report: PublishedReport) -> Iterator[BudgetLine]:
    spent = report.spending

    def line(what: str, cost: tuple[float, float], words: str) -> BudgetLine:
        return BudgetLine(what=what, epsilon=cost[0], delta=cost[1], words=words)

    yield line("the model", spent.model, "its coefficients, released with noise once")
    if spent.gradient is None or spent.hessian is None:
        yield line("this report", (0.0, 0.0), "made from the model and public constants alone")
        return
    yield line("gradient", spent.gradient, "how the data pulls at the model, with noise")
    yield line("Hessian", spent.hessian, "how firmly the data holds the model, with noise")
    yield line("together", spent.together, "the three, composed")


def _statements(report: PublishedReport) -> Iterator[str]:
    """The report's own statements, in plain words."""
    yield (
        "For the row of anybody, in the data or not, the report gives an upper bound of its"
        " exposure: how much more likely, or less, the released model is with that row than"
        " without it."
    )
    wrong = f"A bound is wrong with a probability of at most {upper(report.fails_with)}"
    yield f"{wrong}, for all rows at once." if report.exposure_bound.is_uniform else f"{wrong}."
    most = _most(report)
    if most is not None:
        yield f"No bound is above ε = {upper(most)}, which the model promises to everybody."
    if report.budget is None:
        yield "Nothing of the data went into it but the released model."
    else:
        yield (
            "Beside the released model a gradient and a Hessian of the data went into it, both with"
            " noise; what that spent stands below."
        )


def _limits(report: PublishedReport) -> Iterator[str]:
    yield "It does not say whether anybody's row was in the data."
    yield (
        "It is a bound, not the exposure itself: what the model gives away of a row may be far"
        " less, and that only the curator knows."
    )
    if not report.exposure_bound.is_uniform:
        yield (
            "It holds for a row that was fixed before the noise was drawn, as that of every person"
            " was; it says nothing of a row that is picked or made up after looking at the model or"
            " at the report."
        )
    if report.budget is not None:
        yield "Another report of the same model would spend its part of the budget again."


def _command(report: PublishedReport) -> str:
    # An option's value with … in it is to be filled in.
    asked = [f"--set {shlex.quote(printable(name) + '=')}…" for name in report.form.names[:_NAMED]]
    more = ["…"] if len(report.form.names) > _NAMED else []
    label = ["--label …"]
    return " ".join(["expost lookup report.json", *asked, *more, *label])


# -- of an answer ----------------------------------------------------------------------------------


def _bound(one: Answer, *, named: bool) -> PersonBound:
    return PersonBound(
        label=printable(one.label) if named else None,
        exposure=one.exposure,
        everything=one.everything,
        epsilon_gradient=one.epsilon_gradient,
        epsilon_hessian=one.epsilon_hessian,
        delta=one.delta,
        fails_with=one.fails_with,
        everything_fails_with=one.everything_fails_with,
    )


def _notes(answers: Sequence[Answer]) -> list[str]:
    """What was done with the values, without the values."""
    notes = [note for one in answers for note in one.notes]
    return [
        f"A value that you gave is none of the levels of {note.rpartition(_REPEATED)[2]}"
        if _REPEATED in note
        else note
        for note in notes
    ]
