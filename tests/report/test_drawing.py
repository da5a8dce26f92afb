"""Figures by matplotlib: the same series and ticks as on the page, with the audience."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas
from PIL import Image

import expost
from expost.auditing.attacks import ATTACKS
from expost.errors import InvalidInput
from expost.report import drawing
from expost.report.drawing import draw, plot
from expost.report.svg import ticks
from expost.types import Audience

from .audits import audited
from .conftest import fitted
from .epsilon_choices import chosen
from .examples import epsilon_figure, every_block, group_figure


@pytest.mark.parametrize("figure", every_block().figures.values(), ids=lambda figure: figure.key)
def test_series_and_ticks_are_those_of_the_figure(figure):
    made = draw(figure, Audience.CURATOR_ONLY)
    assert len(made.axes_) == len(figure.panels)
    for ax, panel in zip(made.axes_, figure.panels, strict=True):
        by_label = {line.get_label(): line for line in ax.lines}
        for line in panel.lines:
            artist = by_label[line.name]
            np.testing.assert_array_equal(artist.get_xdata(), line.x)
            np.testing.assert_array_equal(artist.get_ydata(), line.y)
        assert ax.get_xlim() == (panel.x.low, panel.x.high)
        assert ax.get_ylim() == (panel.y.low, panel.y.high)
        assert [label.get_text() for label in ax.get_xticklabels()] == [
            label for _, label in ticks(panel.x)
        ]
        assert Audience.CURATOR_ONLY.meaning in {text.get_text() for text in ax.texts}
    assert made.png().startswith(b"\x89PNG")


def test_axes_of_the_caller_are_used_and_the_strictest_audience_stays():
    ax = Canvas().subplots()
    figure = every_block().figures["profile"]
    draw(figure, Audience.PUBLIC, ax=ax)
    made = draw(figure, Audience.CURATOR_ONLY, ax=ax)
    draw(figure, Audience.NEEDS_REVIEW, ax=ax)
    meanings = {audience.meaning for audience in Audience}
    printed = [text.get_text() for text in ax.texts if text.get_text() in meanings]
    assert printed == [Audience.CURATOR_ONLY.meaning]
    assert made.ax_ is ax
    assert made.figure_ is ax.figure
    assert made._repr_png_() is None
    with pytest.raises(InvalidInput, match="one for each of 2 panels"):
        draw(epsilon_figure(), Audience.PUBLIC, ax=ax)


def test_the_repr_of_a_drawing_has_no_figures_of_rows():
    """A notebook keeps it next to the picture."""
    figure = every_block().figures["profile"]
    assert repr(draw(figure, Audience.CURATOR_ONLY)) == "Drawing('profile', curator-only)"


def test_plot_chooses_a_figure_by_its_key(monkeypatch):
    monkeypatch.setattr(drawing, "document_of", lambda result, **options: every_block())
    assert plot(object()).figure.key == "profile"
    assert plot(object(), kind="groups").figure.key == "groups"
    with pytest.raises(InvalidInput, match="'profile', 'transition', 'groups'"):
        plot(object(), kind="rank")


def test_names_are_not_read_as_mathematics():
    made = draw(group_figure(("$x$", "_hidden", r"\alpha")), Audience.PUBLIC)
    assert made.png()
    labels = [label.get_text() for label in made.axes_[1].get_xticklabels()]
    assert labels == [r"\$x\$", " _hidden", r"\alpha"]


def test_matplotlib_is_imported_when_something_is_drawn():
    code = "import sys, expost.report.drawing; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


IMAGES = Path(__file__).parents[2] / "docs" / "images"
# Of each picture of the documentation: a small result with the same figure.
PICTURES = {
    "audit-roc": (audited, "roc"),
    "frontier": (lambda: chosen("objective"), "frontier"),
    "profile": (lambda: fitted()[-1], None),
    "risk": (lambda: expost.identifiability(epsilon=1.0, delta=1e-5), "epsilon"),
    "transition": (lambda: chosen("enough"), "transition"),
}


def wording(figure_texts):
    """What is written in a figure, without its numbers and the names of attacks."""
    attacks = "|".join([*ATTACKS, r"my_own \$signal\$"])
    texts = (re.sub(rf"^({attacks})(?= \()", "attack", text) for text in figure_texts)
    return {re.sub(r"[\d.,⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", "#", text) for text in texts}


@pytest.mark.parametrize("name", PICTURES)
def test_the_documentation_shows_what_is_drawn_today(name):
    """A picture with other words is stale: `make screenshots`."""
    make, kind = PICTURES[name]
    made = plot(make(), kind=kind)
    with Image.open(IMAGES / f"{name}.png") as picture:
        picture.load()
        _, *texts = picture.text["Description"].split("\n")
    assert texts[-1] == made.audience.meaning
    assert wording(texts[:-1]) <= wording(made.figure.texts)
