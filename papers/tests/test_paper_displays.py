"""The curves and samples of the paper: what is drawn is what the display holds."""

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from expost.errors import InvalidInput
from expost.types import Audience
from papers.common.figures import (
    BLUE,
    ORANGE,
    Curve,
    CurvesDisplay,
    Guide,
    panels,
    png,
)
from papers.leblond.displays import SamplesDisplay

X = np.array([1.0, 10.0, 100.0])


def display(**options):
    curves = (
        Curve(x=X, y=X**2, label="square", colour=BLUE, spread=0.1 * X),
        Curve(x=X, y=X, label="line", colour=0.5, style="--", width=3),
        Curve(x=X[:1], y=X[:1], colour=1.0, style="", marker="o"),
    )
    guides = (Guide(at=5.0, label="low"), Guide(at=2.0, axis="y", style=":", colour=ORANGE))
    given = {"curves": curves, "guides": guides, "xlabel": "x", "ylabel": "y"} | options
    return CurvesDisplay(**given)


def samples(**options):
    rng = np.random.default_rng(0)
    given = {
        "base": rng.normal(size=(4, 2)),
        "neighbours": rng.normal(size=(3, 4, 2)),
        "order": np.array([0.0, 0.5, 1.0]),
        "title": "t",
    }
    return SamplesDisplay(**(given | options))


def by_label(ax, label):
    return next(line for line in ax.lines if line.get_label() == label)


def test_curves_and_guides_are_drawn_as_they_are():
    ax = display(title="a title", legend_title="what").plot().ax_
    ax.figure.canvas.draw()
    square, line = by_label(ax, "square"), by_label(ax, "line")
    np.testing.assert_array_equal(square.get_xydata(), np.column_stack([X, X**2]))
    np.testing.assert_array_equal(line.get_ydata(), X)
    assert line.get_linestyle() == "--"
    assert line.get_linewidth() == 3
    assert to_rgb(square.get_color()) == to_rgb(BLUE)
    assert by_label(ax, "low").get_xdata()[0] == 5.0
    across = next(one for one in ax.lines if to_rgb(one.get_color()) == to_rgb(ORANGE))
    assert across.get_ydata()[0] == 2.0
    points = next(one for one in ax.lines if one.get_marker() == "o")
    assert points.get_linestyle() == "None"
    (band,) = ax.collections
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(100**2 + 10)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert ax.get_title() == "a title"
    assert ax.get_legend().get_title().get_text() == "what"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["low", "square", "line"]


def test_axes_can_be_linear_and_cut():
    ax = display(log_x=False, log_y=False, limits_y=(0.0, 50.0)).plot().ax_
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "linear")
    assert ax.get_ylim() == (0.0, 50.0)


def test_without_labels_there_is_no_legend():
    ax = display(curves=(Curve(x=X, y=X),), guides=()).plot().ax_
    assert ax.get_legend() is None


def test_a_legend_beside_the_axes_covers_no_data():
    ax = display(beside=True).plot().ax_
    ax.figure.canvas.draw()
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1


def test_the_ordered_scale_darkens_towards_zero_and_never_reaches_white():
    curves = tuple(Curve(x=X, y=X, colour=place) for place in (0.0, 0.5, 1.0))
    lines = display(curves=curves, guides=()).plot().ax_.lines
    lightness = [np.dot(to_rgb(one.get_color()), [0.2126, 0.7152, 0.0722]) for one in lines]
    assert lightness == sorted(lightness)
    assert lightness[0] < 0.2 < 0.5 < lightness[-1] < 0.85


def test_samples_show_the_base_over_the_neighbours():
    shown = samples()
    ax = shown.plot().ax_
    ax.figure.canvas.draw()
    (circles,) = ax.collections
    np.testing.assert_array_equal(circles.get_offsets(), shown.neighbours.reshape(-1, 2))
    # Four models of each neighbour share its colour.
    np.testing.assert_array_equal(circles.get_array(), np.repeat([0.0, 0.5, 1.0], 4))
    (crosses,) = ax.lines
    np.testing.assert_array_equal(crosses.get_xydata(), shown.base)
    assert crosses.get_marker() == "x"
    assert crosses.get_zorder() > circles.get_zorder()


def test_panels_hold_one_display_each():
    figure = panels([display(), samples(), display()], columns=2, size=(3, 2))
    assert len(figure.axes) == 3
    np.testing.assert_allclose(figure.get_size_inches(), [6, 4])
    assert figure.axes[1].get_title() == "t"
    assert png(figure, dpi=50).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: Curve(x=X, y=X[:2]), "x has shape"),
        (lambda: Curve(x=X[None], y=X[None]), "x has shape"),
        (lambda: Guide(at=1.0, axis="z"), "axis="),
        (lambda: samples(base=np.zeros((3, 3))), "base"),
        (lambda: samples(neighbours=np.zeros((3, 2))), "neighbours"),
        (lambda: samples(order=np.zeros(2)), "order"),
        (lambda: panels([display()], columns=0), "columns="),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, named):
    with pytest.raises(InvalidInput, match=named):
        call()


def test_axes_that_are_given_are_used_and_nothing_global_changes():
    before = dict(rcParams)
    for shown in (display(), samples()):
        ax = Figure().add_subplot()
        assert shown.plot(ax).ax_ is ax
        assert shown.audience is Audience.CURATOR_ONLY
        assert shown._repr_png_() is None  # The figure that it was drawn into shows itself.
        assert shown.png().startswith(b"\x89PNG")
        assert shown.ax_ is not ax
        assert shown._repr_png_().startswith(b"\x89PNG")
    panels([display()], columns=1)
    assert dict(rcParams) == before
