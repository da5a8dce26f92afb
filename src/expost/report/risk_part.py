"""Everything that a report shows of a promise, or of a goal: what an attacker is allowed (D5.3).

Nothing of any data is in it but what a model's promise may tell of it. Text that came from outside
is one line and printable; each renderer escapes it for its own format.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from expost.errors import InvalidInput
from expost.report.parts import Context, Headline, Part, one_line
from expost.report.wording import forecast_lines, number, symbols, upper
from expost.risk import wording
from expost.risk.answer import REVIEWED, Figure, Identifiability
from expost.risk.composition import CompositionComparison
from expost.rounding import percent_at_most
from expost.types import Audience, FloatArray

__all__ = [
    "RiskCurve",
    "RiskFigure",
    "RiskPart",
    "RiskPoint",
    "RiskRoute",
    "RiskWay",
    "added_up",
    "added_up_heading",
    "collect_risk",
]

_ABSENT = "–"
# What is set, and not what an attacker reaches.
_LIMITS = ("epsilon", "epsilon_each", "mu", "sigma", "noise_multiplier")
_WAYS = {
    "sequential": "one after the other",
    "rdp-mironov": "Rényi divergences",
    "rdp-tight": "Rényi divergences, tighter",
    "pld": "privacy-loss distribution",
}
_ADVICE = (
    "If that is more than you would accept, ask for what keeps less (expost risk --belief): these"
    " are bounds for any data, and what one model gives away of its own rows is what expost"
    " profile tells the curator."
)
_GOAL_ADVICE = (
    "Release with that much noise, or let expost epsilon find the ε at which the rows that you have"
    " stay below the same belief: it is often a larger one."
)


@dataclass(frozen=True, kw_only=True)
class RiskRoute:
    """One column of the table: by which way its figures come about, and what that holds for."""

    name: str
    note: str


@dataclass(frozen=True, kw_only=True)
class RiskFigure:
    """One line of the table, an entry for each route: its value (None: it has none), as it is read.

    The texts are rounded to the safe side.
    """

    name: str
    label: str
    values: tuple[float | None, ...]
    shown: tuple[str, ...]
    sentence: str


@dataclass(frozen=True, kw_only=True)
class RiskWay:
    """What one way of adding the releases up gives; ``times`` is its ε over the least of them.

    ``loss`` and ``belief`` are passed with the probability that stands above the table.
    """

    name: str
    epsilon: float
    times: float
    loss: float
    belief: float
    advantage: float
    note: str

    @property
    def epsilon_text(self) -> str:
        """Rounded up."""
        return upper(self.epsilon, 4)

    @property
    def belief_text(self) -> str:
        """Rounded up, and 100 % only where the loss has no bound."""
        certain = self.loss == math.inf
        doubt = 0.0 if certain else max(1 - self.belief, 5e-324)
        return symbols(percent_at_most(self.belief, doubt))

    @property
    def advantage_text(self) -> str:
        """Rounded up, and 1 only where all is given away."""
        shown = upper(self.advantage)
        return "< 1" if shown == "1" and self.epsilon < math.inf else shown


@dataclass(frozen=True, kw_only=True)
class RiskPoint:
    """A curve at one ε; None where it does not tell of a belief."""

    epsilon: float
    belief: float | None
    advantage: float


@dataclass(frozen=True, kw_only=True)
class RiskCurve:
    """Belief and advantage over ε (D5.3 Fig. 4.2); ``asked``: at the δ that was asked for."""

    name: str
    delta: float
    asked: bool
    points: tuple[RiskPoint, ...]


@dataclass(frozen=True, kw_only=True)
class RiskPart(Part):
    """What a promise allows an attacker, or which promise keeps a goal. May go where that may.

    ``question``  the promise, or the goal, in a few words;  ``is_goal`` which of them.
    ``attacker``  who attacks, and how often a belief may be passed.
    ``curves``    Fig. 4.2 around ``epsilon``; none where there is no finite ε.
    ``ways``      what each way of adding several releases up gives, under ``ways_heading``.
    """

    question: str
    is_goal: bool
    attacker: str
    prior: float
    delta: float
    exceeded: float
    releases: int
    epsilon: float | None
    routes: tuple[RiskRoute, ...]
    figures: tuple[RiskFigure, ...]
    curves: tuple[RiskCurve, ...]
    ways: tuple[RiskWay, ...]
    ways_heading: str
    audience: Literal[Audience.PASS, Audience.REVIEW] = Audience.PASS

    def __post_init__(self) -> None:
        super().__post_init__()
        # A mark that was edited in a file must not publish what is told of a model under review.
        if self.audience is Audience.PASS and REVIEWED in self.notices:
            raise InvalidInput("audience: is pass where the model is review; it must be review.")

    @property
    def title(self) -> str:
        """What stands above its page."""
        return f"{'What keeps' if self.is_goal else 'What is allowed by'} {self.question}"

    @property
    def heading(self) -> str:
        """What stands above its section."""
        return "What keeps the goal" if self.is_goal else "What the promise allows"


def collect_risk(found: Identifiability, *, context: Context | None = None) -> RiskPart:
    """Gather the figures of an answer."""
    context = context or Context()
    sentences = {one.name: _text(one.sentence) for one in found.figures if one.sentence}
    epsilon, audience = found.epsilon, found.audience
    # A released model is never marked fail, and a promise without one is pass.
    assert audience in (Audience.PASS, Audience.REVIEW)
    return RiskPart(
        model="",
        headline=_headline(found, sentences),
        answer=tuple(_others(found, sentences)),
        question=_text(found.question),
        is_goal=found.is_goal,
        attacker=_attacker(found),
        prior=found.prior,
        delta=found.delta,
        exceeded=found.exceeded,
        releases=found.releases,
        epsilon=epsilon,
        routes=tuple(RiskRoute(name=_text(one.name), note=_text(one.note)) for one in found.routes),
        figures=tuple(_figure(one, found) for one in found.figures),
        curves=tuple(_curves(found)) if epsilon is not None and 0 < epsilon < math.inf else (),
        ways=tuple(added_up(found.comparison)),
        ways_heading=added_up_heading(found.comparison),
        guarantee=tuple(symbols(line) for line in found.guarantee),
        forecast=forecast_lines(found.forecast),
        audience=audience,
        **context.fields([symbols(notice) for notice in found.notices]),
    )


def _text(text: str) -> str:
    return symbols(one_line(text))


def _headline(found: Identifiability, sentences: dict[str, str]) -> Headline:
    """Of a goal, what keeps it; of a promise, what it is; then how sure an attacker gets."""
    told = "belief" if "belief" in sentences else "advantage"
    question = _text(found.question)
    kept = [sentences[name] for name in _LIMITS if name in sentences]
    promise = f"Promised to any row of any data: {question}."
    if found.is_goal:
        first = kept[0] if kept else "nothing that is known here keeps it."
        promise = f"Asked for: {question}. {first}"
    warning = None if found.forecast is None else found.forecast.warning
    return Headline(
        useless=None if warning is None else symbols(warning),
        epsilon=promise,
        exposed=sentences.get(told),
        advice=_GOAL_ADVICE if found.is_goal else _ADVICE,
    )


def _others(found: Identifiability, sentences: dict[str, str]) -> Iterator[str]:
    """The sentences that do not stand on top of a page."""
    told = "belief" if "belief" in sentences else "advantage"
    kept = [name for name in sentences if name in _LIMITS]
    on_top = {told, *(kept[:1] if found.is_goal else ())}
    return (sentence for name, sentence in sentences.items() if name not in on_top)


def _attacker(found: Identifiability) -> str:
    before = (
        "is undecided beforehand"
        if found.prior == 0.5
        else f"holds it beforehand for {wording.chosen_percent(found.prior)} likely that a person"
        " is in the data"
    )
    passed = f" {found.passed[0].upper()}{found.passed[1:]}." if found.passed else ""
    return _text(
        f"The attacker knows every other row and how the model is made, and {before}.{passed}"
    )


def _figure(one: Figure, found: Identifiability) -> RiskFigure:
    keys = [route.key for route in found.routes]
    return RiskFigure(
        name=one.name,
        label=_text(one.label),
        values=tuple(one.by.get(key) for key in keys),
        shown=tuple(symbols(one.shown.get(key, _ABSENT)) for key in keys),
        sentence=_text(one.sentence),
    )


# -- the curves ------------------------------------------------------------------------------------


def _curves(found: Identifiability) -> Iterator[RiskCurve]:
    """Gaussian noise at each δ, the asked one first, as printed at that one, and δ = 0."""
    curves = found.curves()
    deltas = sorted(curves.deltas, key=lambda one: (one.delta != found.delta, one.delta))
    for one in deltas:
        yield RiskCurve(
            name=f"Gaussian noise, δ = {_power(one.delta)}",
            delta=one.delta,
            asked=one.delta == found.delta,
            points=_points(one.epsilon, one.belief, one.advantage),
        )
    yield RiskCurve(
        name=f"as printed in D5.3 (Thm 3), δ = {_power(deltas[0].delta)}",
        delta=deltas[0].delta,
        asked=False,
        points=_points(curves.epsilon, None, deltas[0].paper_advantage),
    )
    yield RiskCurve(
        name="any mechanism, δ = 0",
        delta=0.0,
        asked=found.delta == 0,
        points=_points(curves.epsilon, curves.pure_belief, curves.pure_advantage),
    )


def _points(
    epsilon: FloatArray, belief: FloatArray | None, advantage: FloatArray
) -> tuple[RiskPoint, ...]:
    return tuple(
        RiskPoint(
            epsilon=float(epsilon[place]),
            belief=None if belief is None else float(belief[place]),
            advantage=float(advantage[place]),
        )
        for place in range(len(epsilon))
    )


def _power(delta: float) -> str:
    return number(delta).removeprefix("1\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}")


# -- several releases ------------------------------------------------------------------------------


def added_up(found: CompositionComparison | None) -> Iterator[RiskWay]:
    """What each way of adding releases up gives; nothing of a single one."""
    for row in () if found is None else found.rows:
        yield RiskWay(
            name=_WAYS.get(row.name, one_line(row.name)),
            epsilon=row.epsilon,
            times=row.times,
            loss=row.loss,
            belief=row.belief,
            advantage=row.advantage,
            note=_text(row.note),
        )


def added_up_heading(found: CompositionComparison | None) -> str:
    """What stands above them."""
    if found is None:
        return ""
    passed = f", passed with a chance of {wording.chance(found.delta)}" if found.delta > 0 else ""
    before = wording.chosen_percent(found.prior)
    return symbols(
        f"{_text(found.description)}, added up: ε at δ = {_power(found.delta)}, and beliefs from"
        f" {before}{passed}."
    )
