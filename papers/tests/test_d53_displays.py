"""The two worlds of D5.3: what is drawn is what the display holds."""

import math

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from expost.errors import InvalidInput
from expost.types import Audience
from papers.common.figures import BLUE, ORANGE, Curve, png
from papers.d53.displays import Region, WorldsDisplay

X = np.linspace(-2.0, 3.0, 11)


def display(**options):
    given = {
        "curves": (
            Curve(x=X, y=np.exp(-(X**2)), label="here", colour=ORANGE),
            Curve(x=X, y=np.exp(-((X - 1) ** 2)), label="there", colour=BLUE, style="--"),
        ),
        "regions": (
            Region(x=X[5:], y=np.exp(-(X[5:] ** 2)), label="wrong", colour=ORANGE, hatch="//"),
        ),
        "boundary": 0.5,
        "xlabel": "r",
        "ylabel": "density",
        "title": "two worlds",
        "sides": ("D", "D′"),
        "most": 1.2,
    }
    return WorldsDisplay(**given | options)


def test_curves_regions_boundary_and_sides_are_drawn():
    ax = display().plot().ax_
    first, second, boundary = ax.get_lines()
    assert np.array_equal(first.get_ydata(), np.exp(-(X**2)))
    assert second.get_linestyle() == "--"
    assert list(boundary.get_xdata()) == [0.5, 0.5]
    assert (ax.get_xlim(), ax.get_ylim()) == ((-2.0, 3.0), (0.0, 1.2))
    assert [text.get_text() for text in ax.texts] == ["D", "D′"]
    shown = [text.get_text() for text in ax.get_legend().get_texts()]
    assert shown == ["wrong", "here", "there"]
    # Left of the boundary D's colour, right of it that of D'.
    left, right = ax.patches
    assert left.get_facecolor()[:3] == to_rgb(ORANGE)
    assert right.get_facecolor()[:3] == to_rgb(BLUE)
    assert left.get_x() + left.get_width() == right.get_x() == 0.5
    region = ax.collections[0].get_paths()[0].vertices
    assert region[:, 0].min() == 0.5
    assert region[:, 1].min() == 0.0


def test_a_legend_only_where_there_are_labels():
    ax = display(curves=(Curve(x=X, y=X),), regions=()).plot().ax_
    assert ax.get_legend() is None


def test_it_holds_nobodys_data_and_makes_a_picture():
    made = display()
    assert made.audience is Audience.PUBLIC
    assert png(made.plot().figure_)[:8] == b"\x89PNG\r\n\x1a\n"


def test_wrong_parts_are_refused():
    with pytest.raises(InvalidInput, match="x has shape"):
        Region(x=X, y=X[:3], label="a", colour=BLUE)
    with pytest.raises(InvalidInput, match="curves"):
        display(curves=())
    with pytest.raises(InvalidInput, match="boundary"):
        display(boundary=math.nan)
