"""Documents for the tests of renderers: one with every block, one whose texts are hostile."""

import math
from dataclasses import replace
from functools import cache

import numpy as np

from expost.report.document import (
    Alert,
    Bullets,
    Code,
    Document,
    Facts,
    Fold,
    Heading,
    Origin,
    Page,
    Section,
    Setting,
    Text,
    Tile,
    Verdict,
    Widget,
    table,
)
from expost.report.figure import Axis, Band, Figure, Line, Panel, Rule
from expost.report.rows import packed_rows, rows_of_profile, search_widget
from expost.report.slider import slider_of_profile, slider_widget
from expost.types import Audience

from .conftest import HOSTILE, fitted

VERSIONS = (("python", "3.12.1"), ("expost", "0.1.0"))


@cache
def release_and_profile(rows=150):
    release, _, _, profile = fitted(epsilon=1.0, rows=rows)
    return release, profile


def profile_figure(exposure, expected, limit=0.75):
    """Certainty by rank, as a page of a profile has it."""
    ranks = np.arange(1, len(exposure) + 1)

    def certainty(values):
        return 1 / (1 + np.exp(-np.sort(values)[::-1]))

    return Figure(
        key="profile",
        description="The attacker's certainty falls with the rank.",
        panels=(
            Panel(
                title="Certainty by rank",
                x=Axis(
                    label="rank of the row, most exposed first (log scale)",
                    low=1.0,
                    high=float(len(exposure)),
                    log=True,
                    format="count",
                    quantity="rank",
                ),
                y=Axis(label="attacker's certainty", low=0.5, high=0.8, format="percent"),
                lines=(
                    Line(name="this model", x=ranks, y=certainty(exposure)),
                    Line(
                        name="expected over releases",
                        x=ranks,
                        y=certainty(expected),
                        role="second",
                    ),
                ),
                rules=(Rule(name="your limit, 75 %", at=limit),),
            ),
        ),
        caption="Rows by rank, the most exposed at the left.",
    )


def epsilon_figure():
    """Two panels over ε with everything that a panel can have."""
    epsilons = np.geomspace(0.01, 100, 41)
    axis = Axis(label="ε (log scale)", low=0.01, high=100.0, log=True, quantity="epsilon")
    score = 0.5 + 0.4 / (1 + 1 / epsilons)
    rules = (
        Rule(name="", at=0.5, axis="x", role="main", label="recommended, ε = 0.5"),
        Rule(name="transition", at=0.2, to=3.0, axis="x"),
        Rule(name="", at=2.0, axis="x", label="your model, ε = 2"),
    )
    return Figure(
        key="transition",
        description="The score grows with ε, and so does the certainty.",
        panels=(
            Panel(
                title="What the model learns",
                x=axis,
                y=Axis(label="AUC", low=0.5, high=1.0),
                lines=(Line(name="AUC", x=epsilons, y=score),),
                bands=(Band(name="interval", x=epsilons, low=score - 0.03, high=score + 0.03),),
                rules=(*rules, Rule(name="without privacy", at=0.93, label="without privacy")),
            ),
            Panel(
                title="What an attacker learns",
                x=axis,
                y=Axis(label="certainty", low=0.5, high=1.0, format="percent"),
                lines=(
                    Line(
                        name="certified",
                        x=epsilons,
                        y=1 / (1 + np.exp(-epsilons)),
                        role="third",
                        step=True,
                    ),
                    Line(
                        name="estimates",
                        x=epsilons[::8],
                        y=score[::8],
                        role="fourth",
                        dots=True,
                        low=score[::8] - 0.05,
                        high=score[::8] + 0.05,
                    ),
                ),
                rules=rules[:1],
            ),
        ),
    )


def group_figure(names=("women", "men", "children of a very long name")):
    """Dots over categories."""
    places = np.arange(len(names), dtype=float)
    return Figure(
        key="groups",
        description="Certainty by group.",
        panels=(
            Panel(
                title="Groups",
                x=Axis(label="attacker's certainty", low=0.5, high=0.7, format="percent"),
                y=Axis(label="group", low=-0.5, high=len(names) - 0.5, categories=tuple(names)),
                lines=(
                    Line(name="median", x=0.55 + 0.02 * places, y=places, dots=True),
                    Line(name="99 %", x=0.6 + 0.03 * places, y=places, dots=True, role="second"),
                ),
            ),
            Panel(
                title="Rows of each group",
                x=Axis(label="group", low=-0.5, high=len(names) - 0.5, categories=tuple(names)),
                y=Axis(label="rows", low=1.0, high=1000.0, log=True, format="count"),
                lines=(Line(name="rows", x=places, y=10.0 ** (1 + places), dots=True),),
            ),
        ),
    )


def top_table(profile, rows=8):
    """The most exposed rows."""
    return table(
        profile.ranking[:rows],
        ("row", int, lambda row: f"row {row}"),
        ("certainty", lambda row: float(profile.posterior[row]), lambda p: f"{100 * p:.1f} %"),
        ("exposure (nats)", lambda row: float(profile.exposure[row]), lambda x: f"{x:.3g} × 10⁻²"),
        ("expected", lambda row: None, str),
        caption="The most exposed rows",
    )


@cache
def every_block(rows=150):
    """A document with every kind of block."""
    release, profile = release_and_profile(rows)
    slider = slider_of_profile(profile, release)
    return Document(
        kind="profile",
        title="bank_marketing.csv",
        audience=Audience.CURATOR_ONLY,
        subtitle=(
            "41,188 rows",
            "logistic regression, objective perturbation, Gaussian noise",
            "ε = 1, δ = 10⁻⁶",
        ),
        source="bank_marketing.csv",
        made="16 November 2026",
        verdict=Verdict(
            text="This model is useful, and nobody is exposed beyond your limit.",
            more="ε = 0.5 would be enough: it keeps 97 % of what can be learnt.",
            tone="good",
            priority=50,
        ),
        tiles=(
            Tile(
                label="Useful?",
                value="AUC 0.934",
                lines=("0.937 without privacy", "0.500 by random guessing"),
                tone="good",
            ),
            Tile(
                label="Guarantee",
                value="ε = 1",
                lines=("an attacker is at most 73.2 % certain about anybody", "δ = 10⁻⁶"),
            ),
            Tile(
                label="Most exposed row",
                value="66.8 %",
                lines=("certainty that row 35924 was in the data; 50 % is guessing",),
                people=67,
            ),
            Tile(
                label="Rows above the limit",
                value="0",
                lines=("of 41,188 exceed 75 %", "half of the rows: at most 50.2 %"),
                tone="good",
            ),
        ),
        alerts=(
            Alert(severity="note", title="24 % of the rows were clipped", text="to length 2.2."),
            Alert(
                severity="review",
                title="Constants were read from the data.",
                text="Means and scales of 20 columns are in model.json and are not covered by ε."
                " Give them in an encoding file, or use --private-encoding.",
            ),
            Alert(severity="problem", title="The guarantee was exceeded.", text="By 1.2 × 10⁻⁷."),
        ),
        steps=(
            Code(
                text="expost publish bank_marketing.csv --target y --model report/model.json",
                purpose="Make a page where a person can look up the bound of a row",
            ),
        ),
        sections=(
            Section(
                id="exposure",
                title="How certain an attacker gets, row by row",
                nav="Exposure",
                brief=True,
                blocks=(
                    Text(text="The attacker knows every other row and starts undecided (50 %)."),
                    profile_figure(profile.exposure, profile.expected),
                    top_table(profile),
                    Text(text="Certified to ± 1.2 × 10⁻⁷ nats.", small=True),
                ),
            ),
            Section(
                id="slider",
                title="What another ε would mean",
                nav="Exposure",
                blocks=(
                    Text(text="Means over all models that might be released at an ε."),
                    slider_widget(slider),
                    epsilon_figure(),
                ),
            ),
            Section(id="groups", title="Groups", nav="Groups", blocks=(group_figure(),)),
            Section(
                id="search",
                title="Find a row",
                nav="Find a row",
                blocks=(search_widget(profile),),
            ),
            Section(
                id="method",
                title="Method",
                blocks=(
                    Heading(text="Certificates"),
                    Bullets(items=("First sentence.", "Second sentence with --option.")),
                    Facts(pairs=(("mechanism", "output perturbation"), ("noise", "Laplace"))),
                    Fold(title="More", blocks=(Text(text="Inside a fold."),)),
                    Code(text="expost profile data.csv --target y"),
                ),
            ),
        ),
        settings=(
            Setting(name="epsilon", value="1", origin=Origin.GIVEN),
            Setting(name="data_norm", value="2.2", origin=Origin.READ),
        ),
        glossary=(("exposure", "Absolute privacy loss, in nats."),),
        facts={"epsilon": 1.0},
    )


def every_page(rows=150):
    return Page(documents=(every_block(rows),), versions=VERSIONS)


def hostile():
    """A document all of whose texts try to leave it."""
    text = HOSTILE.replace("\n", " ")
    return Document(
        kind="hostile",
        title=text,
        audience=Audience.NEEDS_REVIEW,
        subtitle=(text,),
        source=text,
        made=text,
        verdict=Verdict(text=text, more=text, tone="bad"),
        tiles=(Tile(label=text, value=text, lines=(text,), people=3),),
        alerts=(Alert(severity="note", title=text, text=text),),
        steps=(Code(text=text, purpose=text),),
        sections=(
            Section(
                id=text,
                title=text,
                nav="Groups",
                brief=True,
                blocks=(
                    Text(text=text),
                    Heading(text=text),
                    Bullets(items=(text,)),
                    Facts(pairs=((text, text),)),
                    Code(text=text, purpose=text),
                    table((text,), (text, str, str), (f"{text}2", len, str), caption=text),
                    Fold(title=text, blocks=(Text(text=text),)),
                    _renamed(group_figure((text, "plain")), text),
                    Widget(
                        name="search",
                        data={
                            **packed_rows(rows_of_profile(release_and_profile()[1])),
                            "unit": text,
                            "keys": [text] * 150,
                        },
                        blocks=(Text(text=text),),
                    ),
                ),
            ),
        ),
        settings=(Setting(name=text, value=text, origin=Origin.READ),),
        glossary=((text, text),),
        facts={text: math.inf},
    )


def _renamed(figure, text):
    panels = tuple(
        replace(
            panel,
            title=text,
            x=replace(panel.x, label=text),
            y=replace(panel.y, label=text),
            lines=tuple(replace(line, name=text) for line in panel.lines),
            rules=(Rule(name=text, at=1.0, label=text),),
        )
        for panel in figure.panels
    )
    return replace(figure, key=text, description=text, caption=text, panels=panels)
