"""What a guarantee allows an attacker, or which guarantee keeps a goal, as a document (D5.3).

It holds nothing of any data, except for the guarantee of a model. Bounds are those of the result,
rounded to the safe side; sentences are about the first route.
"""

import math
from collections.abc import Iterator, Mapping

from expost.numbers import chance, number, share, symbols
from expost.report.document import (
    Alert,
    Block,
    Bullets,
    Code,
    Column,
    Document,
    Heading,
    Section,
    Table,
    Text,
    Tile,
    Verdict,
    one_line,
)
from expost.report.figure import Axis, Figure, Line, Panel, Role, Rule
from expost.report.sections.bounds import at_most
from expost.report.sections.composition import composition_blocks
from expost.risk import statement
from expost.risk.curves import RiskCurves
from expost.risk.sentences import right_guesses
from expost.risk.statement import Identifiability

__all__ = [
    "curves_document",
    "epsilon_figure",
    "rates_figure",
    "risk_document",
]

_PRIORITY = 20
_ABSENT = "–"
_ROLES: tuple[Role, ...] = ("main", "second", "third", "fourth")
_AT_OTHER_EPSILON = ("delta_at_half", "delta_at_double")
# A smaller posterior than most guarantees allow, for the next command.
_SMALL_POSTERIOR = 0.6
_GLOSSARY = (
    (
        "posterior",
        "The attacker's probability that a row was in the data, after seeing what was released.",
    ),
    (
        "membership advantage",
        "TPR minus FPR of the best attack. 0 is random guessing, 1 is always right.",
    ),
    (
        "baseline",
        "How often an attack succeeds without the release; its gain is what the release adds.",
    ),
    (
        "TPR, FPR",
        "The shares of members and of non-members that an attack takes for members.",
    ),
)


def risk_document(identifiability: Identifiability) -> Document:
    """Describe what a guarantee allows an attacker, or which guarantee keeps a goal."""
    epsilon = identifiability.epsilon
    return Document(
        kind="risk",
        title=_title(identifiability),
        audience=identifiability.audience,
        subtitle=(f"prior {share(identifiability.prior)}",),
        verdict=_verdict(identifiability),
        tiles=tuple(_tiles(identifiability)),
        alerts=tuple(_alerts(identifiability)),
        steps=tuple(_steps(identifiability)),
        sections=tuple(_sections(identifiability)),
        glossary=_GLOSSARY,
        facts={
            "epsilon": None if epsilon == math.inf else epsilon,
            "delta": identifiability.delta,
            "releases": identifiability.releases,
            "prior": identifiability.prior,
            "is_goal": identifiability.is_goal,
            # Without it a gate does not take the guarantee for that of a model.
            "model": identifiability.model,
        },
    )


def curves_document(curves: RiskCurves) -> Document:
    """Describe posterior and advantage over ε for several δ."""
    return Document(
        kind="curves",
        title="Posterior and membership advantage over ε",
        audience=curves.audience,
        subtitle=(f"prior {share(curves.prior)}",),
        sections=(
            Section(
                id="curves",
                title="Bounds over ε",
                nav="Guarantee",
                brief=True,
                blocks=(_curves_figure(curves, {}, ""),),
            ),
        ),
        glossary=_GLOSSARY[:2],
        facts={"prior": curves.prior},
    )


# -- the overview ----------------------------------------------------------------------------------


def _title(identifiability: Identifiability) -> str:
    question = _text(identifiability.question)
    if identifiability.is_goal:
        return f"Noise that guarantees {question}"
    return f"Bounds on an attacker under {question}"


def _verdict(identifiability: Identifiability) -> Verdict:
    text = _goal_text(identifiability) if identifiability.is_goal else _bound_text(identifiability)
    more = ""
    if identifiability.exceeded > 0 and identifiability.posterior is not None:
        more = f"The posterior may be exceeded with a chance of {chance(identifiability.exceeded)}."
    forecast = identifiability.forecast
    if forecast is not None and forecast.is_useless:
        return Verdict(
            text="The model is expected to be no better than the base rate.",
            more=text,
            tone="bad",
            priority=90,
        )
    return Verdict(text=text, more=symbols(more), priority=_PRIORITY)


def _goal_text(identifiability: Identifiability) -> str:
    epsilon, releases = identifiability.epsilon_each, identifiability.releases
    assert epsilon is not None
    each = "" if releases == 1 else " for each release"
    at = ""
    if identifiability.delta > 0:
        at = f" at δ = {number(identifiability.delta / releases, 'down')}"
    value = number(epsilon, "down", statement.DIGITS)
    return f"ε = {value}{at}{each} keeps {_text(identifiability.question)}."


def _bound_text(identifiability: Identifiability) -> str:
    subject = f"Under {_text(identifiability.question)},"
    epsilon, advantage = identifiability.epsilon, identifiability.advantage
    assert advantage is not None
    if epsilon is not None:
        if epsilon == math.inf:
            return "Nothing is guaranteed: an attacker can be certain about any row."
        subject = f"At {_epsilon_text(identifiability)}"
    if identifiability.posterior is None:
        right = right_guesses(advantage)
        return f"{subject} an attacker's guess about any row is right {right}."
    bound = _bound(identifiability, "posterior")
    if identifiability.prior == 0.5:
        return f"{subject} an attacker gets {bound} certain about any row."
    return (
        f"{subject} an attacker with a prior of {share(identifiability.prior)} reaches a posterior"
        f" of {bound} for any row."
    )


def _epsilon_text(identifiability: Identifiability) -> str:
    """Return ε, rounded up, δ and the number of releases."""
    text = f"ε = {_shown(identifiability, 'epsilon')}"
    if identifiability.delta > 0:
        text += f" and δ = {number(identifiability.delta, 'up')}"
    releases = identifiability.releases
    return text if releases == 1 else f"{text} of all {releases:,} releases together"


def _tiles(identifiability: Identifiability) -> Iterator[Tile]:
    epsilon, forecast = identifiability.epsilon, identifiability.forecast
    if forecast is not None:
        name = forecast.level.name
        yield Tile(
            label="Useful?",
            value="No" if forecast.is_useless else f"{name[0].upper()}{name[1:]}",
            lines=(f"noise ratio {number(forecast.noise_ratio, 'up')}", "forecast, without data"),
            tone="bad" if forecast.is_useless else "plain",
        )
    if epsilon is not None:
        delta, releases = identifiability.delta, identifiability.releases
        yield Tile(
            label="Guarantee",
            value=f"ε = {_shown(identifiability, 'epsilon')}" if epsilon < math.inf else "None",
            lines=(
                *((f"δ = {number(delta, 'up')}",) if delta > 0 else ()),
                *((f"of all {releases:,} releases",) if releases > 1 else ()),
            ),
            tone="bad" if epsilon == math.inf else "plain",
        )
    posterior = identifiability.posterior
    if posterior is not None:
        even = identifiability.prior == 0.5
        yield Tile(
            label="Attacker's certainty" if even else "Posterior",
            value=_bound(identifiability, "posterior"),
            lines=("random guessing: 50 %",)
            if even
            else (f"prior {share(identifiability.prior)}",),
            people=min(100, math.ceil(100 * posterior - 1e-9)),
        )
    yield Tile(
        label="Membership advantage",
        value=_bound(identifiability, "advantage"),
        lines=("random guessing: 0",),
    )
    if forecast is None:
        false = share(identifiability.false_positive_rate)
        yield Tile(
            label=f"TPR at {false} FPR",
            value=_bound(identifiability, "true_positive_rate"),
            lines=(f"random guessing: {false}",),
        )


def _alerts(identifiability: Identifiability) -> Iterator[Alert]:
    forecast = identifiability.forecast
    if forecast is not None and forecast.warning is not None:
        yield Alert(
            severity="problem", title="The model is useless.", text=symbols(forecast.warning)
        )
    for notice in identifiability.notices:
        is_reviewed = notice == statement.REVIEWED
        yield Alert(severity="review" if is_reviewed else "note", title=_text(notice))


def _steps(identifiability: Identifiability) -> Iterator[Code]:
    posterior = identifiability.posterior
    if identifiability.is_goal or identifiability.prior != 0.5 or posterior is None:
        return
    if posterior > _SMALL_POSTERIOR:
        delta, releases = identifiability.delta, identifiability.releases
        at = f" --delta {delta / releases:.6g}" if delta > 0 else ""
        many = f" --releases {releases}" if releases > 1 else ""
        yield Code(
            text=f"expost risk --max-posterior {_SMALL_POSTERIOR:g}{at}{many}",
            purpose="which ε keeps a smaller posterior",
        )


# -- sections --------------------------------------------------------------------------------------


def _sections(identifiability: Identifiability) -> Iterator[Section]:
    forecast, comparison = identifiability.forecast, identifiability.comparison
    if forecast is not None:
        lines = (symbols(line[0].upper() + line[1:]) for line in forecast.lines())
        yield Section(
            id="risk-forecast",
            title="Forecast of a model",
            nav="Utility",
            brief=True,
            blocks=(Bullets(items=tuple(lines)),),
        )
    yield Section(
        id="risk",
        title="What keeps the goal" if identifiability.is_goal else "What the guarantee allows",
        nav="Guarantee",
        brief=True,
        blocks=tuple(_blocks(identifiability)),
    )
    if identifiability.attacks:
        yield Section(
            id="risk-attacks",
            title="Attacks beyond membership",
            nav="Guarantee",
            brief=True,
            blocks=tuple(_attack_blocks(identifiability)),
        )
    if comparison is not None:
        yield Section(
            id="risk-composition",
            title="Several releases, composed" if identifiability.releases > 1 else "Composition",
            nav="Guarantee",
            brief=True,
            blocks=tuple(composition_blocks(comparison)),
        )


def _blocks(identifiability: Identifiability) -> Iterator[Block]:
    for sentence in identifiability.statements:
        yield Text(text=_text(sentence))
    yield Bullets(items=tuple(_text(sentence) for sentence in identifiability.sentences))
    epsilon = identifiability.epsilon
    if epsilon is not None and 0 < epsilon < math.inf:
        yield epsilon_figure(identifiability)
    yield rates_figure(identifiability)
    figures = [each for each in identifiability.figures if each.name not in _AT_OTHER_EPSILON]
    yield _table(identifiability, figures)
    yield Text(text=_attacker(identifiability), small=True)
    other = [each for each in identifiability.figures if each.name in _AT_OTHER_EPSILON]
    if other:
        yield Heading(text="δ at other ε")
        yield _table(identifiability, other)
    notes = (f"{_text(route.name)}: {_text(route.note)}" for route in identifiability.routes)
    yield Bullets(items=tuple(notes))


def _attack_blocks(identifiability: Identifiability) -> Iterator[Block]:
    """Yield the bounds on re-identification, attribute inference and reconstruction."""
    attacks, routes = identifiability.attacks, identifiability.routes
    yield Bullets(items=tuple(_text(attack.sentence) for attack in attacks))
    columns = [
        (key, f"{title}{_text(route.name)}")
        for route in routes
        for key, title in ((("by", route.key), "success, "), (("gain", route.key), "gain, "))
    ]
    yield Table(
        columns=(
            Column(title="", numeric=False),
            Column(title="baseline"),
            *(Column(title=f"{title}, at most") for _, title in columns),
        ),
        cells=tuple(
            (
                _text(attack.risk.label),
                share(attack.baseline),
                *(
                    _cell((attack.shown if kind == "by" else attack.gain_shown)[key])
                    for (kind, key), _ in columns
                ),
            )
            for attack in attacks
        ),
        values=tuple(
            (
                attack.risk.name,
                attack.baseline,
                *((attack.by if kind == "by" else attack.gain)[key] for (kind, key), _ in columns),
            )
            for attack in attacks
        ),
    )
    yield Bullets(items=tuple(attack.risk.assumption for attack in attacks))


def _table(identifiability: Identifiability, figures: list[statement.Figure]) -> Table:
    """Return a line for each figure and a column for each route."""
    keys = [route.key for route in identifiability.routes]
    return Table(
        columns=(
            Column(title="", numeric=False),
            *(Column(title=_text(route.name)) for route in identifiability.routes),
        ),
        cells=tuple(
            (_text(each.label), *(_cell(each.shown.get(key, _ABSENT)) for key in keys))
            for each in figures
        ),
        values=tuple((each.name, *(each.by.get(key) for key in keys)) for each in figures),
    )


def _attacker(identifiability: Identifiability) -> str:
    """Return what the attacker knows, and with which chance a posterior may be exceeded."""
    text = (
        "The attacker knows every other row and the mechanism, and starts from a prior of"
        f" {share(identifiability.prior)}."
    )
    routes = identifiability.routes
    if not any(route.exceeded > 0 for route in routes):
        return text
    exceeded = chance(identifiability.exceeded)
    if len({route.exceeded for route in routes}) > 1:
        exceeded = ", ".join(f"{chance(each.exceeded)} ({_text(each.name)})" for each in routes)
    return symbols(f"{text} The posterior may be exceeded with a chance of {exceeded}.")


# -- figures ---------------------------------------------------------------------------------------


def epsilon_figure(identifiability: Identifiability) -> Figure:
    """Return posterior and advantage over ε around that of the result (D5.3 Fig. 4.2)."""
    epsilon, advantage = identifiability.epsilon, identifiability.advantage
    assert epsilon is not None
    assert advantage is not None
    points = {"advantage": (epsilon, advantage, _bound(identifiability, "advantage"))}
    posterior = identifiability.posterior
    if posterior is not None:
        points["posterior"] = (epsilon, posterior, _bound(identifiability, "posterior"))
    label = f"ε = {_shown(identifiability, 'epsilon')}"
    return _curves_figure(identifiability.curves(), points, label)


def _curves_figure(
    curves: RiskCurves, points: Mapping[str, tuple[float, float, str]], label: str
) -> Figure:
    """Return the curves of Gaussian noise at each δ and of any mechanism.

    ``points`` are marked: by the name of the figure, ε, the value and its text. ``label`` is the
    text of their ε.
    """
    panels = []
    for name, title, low in (
        ("posterior", "Posterior, at most", curves.prior),
        ("advantage", "Membership advantage, at most", 0.0),
    ):
        lines = [
            Line(
                name=f"Gaussian noise, δ = {number(each.delta)}",
                x=tuple(each.epsilon.tolist()),
                y=tuple(getattr(each, name).tolist()),
                role=_ROLES[index % len(_ROLES)],
            )
            for index, each in enumerate(curves.deltas)
        ]
        lines.append(
            Line(
                name="any mechanism, δ = 0",
                x=tuple(curves.epsilon.tolist()),
                y=tuple(getattr(curves, f"pure_{name}").tolist()),
                role="fifth",
            )
        )
        rules: tuple[Rule, ...] = ()
        point = points.get(name)
        if point is not None:
            epsilon, value, bound = point
            lines.append(
                Line(
                    name=f"this guarantee: {bound}",
                    x=(epsilon,),
                    y=(value,),
                    dots=True,
                )
            )
            rules = (Rule(name="", at=epsilon, axis="x", label=label),)
        panels.append(
            Panel(
                title=title,
                x=Axis(
                    label="ε (log scale)",
                    low=float(curves.epsilon[0]),
                    high=float(curves.epsilon[-1]),
                    log=True,
                    quantity="epsilon",
                ),
                y=Axis(
                    label=title.partition(",")[0].lower(),
                    low=low,
                    high=1.0,
                    format="percent" if name == "posterior" else "number",
                ),
                lines=tuple(lines),
                rules=rules,
            )
        )
    ends = f"{number(float(curves.epsilon[0]))} to {number(float(curves.epsilon[-1]))}"
    return Figure(
        key="epsilon",
        description=f"Bounds on the posterior, from {share(curves.prior)}, and on the membership"
        f" advantage for ε from {ends}: of Gaussian noise at {len(curves.deltas)} δ, and of any"
        " mechanism at δ = 0.",
        panels=tuple(panels),
        caption=_exceeded_note(curves),
    )


def _exceeded_note(curves: RiskCurves) -> str:
    return (
        f"From a prior of {share(curves.prior)}. The posterior of Gaussian noise may be exceeded"
        " with probability δ."
    )


def rates_figure(identifiability: Identifiability) -> Figure:
    """Return the largest true-positive rate over false-positive rates, by each route."""
    curves = identifiability.rates
    rates = tuple(curves.false_positive_rate.tolist())
    names = {route.key: _text(route.name) for route in identifiability.routes}
    lines = [
        Line(name=names[key], x=rates, y=tuple(values.tolist()), role=_ROLES[index % len(_ROLES)])
        for index, (key, values) in enumerate(curves.by.items())
    ]
    lines.append(Line(name="random guessing", x=rates, y=rates, role="limit"))
    low = rates[0]
    return Figure(
        key="rates",
        description="The largest true-positive rate of any attack over its false-positive rate, by"
        f" {len(curves.by)} routes.",
        panels=(
            Panel(
                title="TPR over FPR, at most",
                x=Axis(
                    label="false-positive rate (log scale)",
                    low=low,
                    high=1.0,
                    log=True,
                    format="percent",
                ),
                y=Axis(
                    label="true-positive rate (log scale)",
                    low=low,
                    high=1.0,
                    log=True,
                    format="percent",
                ),
                lines=tuple(lines),
            ),
        ),
    )


def _shown(identifiability: Identifiability, name: str) -> str:
    """Return a figure by the first route that has it, rounded to the safe side."""
    shown = identifiability.figure(name).shown
    first = next(route.key for route in identifiability.routes if route.key in shown)
    return _cell(shown[first])


def _bound(identifiability: Identifiability, name: str) -> str:
    """Return an upper bound in words."""
    return at_most(_shown(identifiability, name))


def _cell(text: str) -> str:
    return "∞" if text == "infinity" else symbols(text)


def _text(text: str) -> str:
    return symbols(one_line(text))
