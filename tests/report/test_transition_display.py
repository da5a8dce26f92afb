"""The figure of a choice of ε: what is drawn is what the choice holds, and nothing else changes."""

import dataclasses
import io

import numpy as np
import pytest
from matplotlib import image, rcParams
from matplotlib.figure import Figure

from expost.errors import InvalidInput
from expost.report.epsilon_curves import epsilon_curves
from expost.report.transition_display import TransitionDisplay
from expost.types import Audience

from .epsilon_choices import KINDS, chosen
from .test_epsilon_page import Estimated


def line(ax, label):
    return next(line for line in ax.lines if line.get_label().startswith(label))


def upright(ax):
    """The ε of the lines that go from bottom to top, by colour."""
    found = [part for part in ax.lines if len(part.get_xdata()) == 2]
    return {
        part.get_color(): part.get_xdata()[0]
        for part in found
        if part.get_xdata()[0] == part.get_xdata()[1]
    }


def test_the_panels_hold_the_curves_of_the_choice():
    choice = chosen("enough")
    curves = epsilon_curves(choice)
    posterior, way, utility = TransitionDisplay.from_choice(choice).plot().axes_
    for ax, name, expected in (
        (posterior, "most exposed row", curves.posterior),
        (posterior, "middle row", curves.middle_posterior),
        (way, "most exposed row", curves.way.farthest),
        (way, "middle row", curves.way.median),
    ):
        np.testing.assert_array_equal(line(ax, name).get_xdata(), curves.epsilons)
        np.testing.assert_allclose(line(ax, name).get_ydata(), expected, rtol=1e-15)
    assert line(posterior, "limit, 99.9").get_ydata()[0] == 0.999
    curve = choice.utility.leading
    np.testing.assert_array_equal(line(utility, "released").get_ydata(), curve.mean)
    np.testing.assert_array_equal(line(utility, "released").get_xdata(), choice.utility.epsilons)
    (band,) = (part for part in utility.collections if part.get_label().startswith("nine"))
    corners = band.get_paths()[0].vertices
    for ends in (curve.low, curve.high):
        for point in zip(choice.utility.epsilons, ends, strict=True):
            assert np.min(np.abs(corners - point).sum(axis=1)) < 1e-12
    assert line(utility, f"base rate, {curve.base_rate:.3f}").get_ydata()[0] == curve.base_rate
    assert line(utility, f"best reachable, {curve.best:.3f}").get_ydata()[0] == curve.best
    for ax in (posterior, way, utility):
        assert ax.get_xscale() == "log"
        np.testing.assert_allclose(ax.get_xlim(), curves.axis)
        (shade,) = ax.patches
        left, right = shade.get_extents().transformed(ax.transData.inverted()).intervalx
        # The axis need not reach the end of the transition; the shade ends with it.
        assert (left, right) == pytest.approx((choice.low, min(choice.high, curves.axis[1])))
        marks = upright(ax)
        assert marks["black"] == pytest.approx(choice.recommended, rel=0.01)
        assert marks["black"] <= choice.recommended
        assert choice.ceiling in marks.values()
    texts = {text.get_text() for text in posterior.texts}
    assert texts == {"recommended: ε = 10", f"ceiling: ε = {choice.ceiling:g}"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_choice_can_be_drawn(kind):
    display = TransitionDisplay.from_choice(chosen(kind))
    axes = display.plot().axes_
    assert len(axes) == display.panels == (3 if chosen(kind).utility is not None else 2)
    axes[0].figure.canvas.draw()
    assert len(axes[1].patches) == (kind != "no plateau")
    assert ("black" in upright(axes[0])) == (chosen(kind).recommended is not None)
    is_laplace = chosen(kind).sweep.mechanism.noise == "laplace"
    assert axes[1].get_ylabel() == ("protection lost" if is_laplace else "one-sidedness")
    if kind == "regression":
        assert axes[2].get_ylabel() == "held-out R²"


def test_a_mechanism_that_can_only_be_sampled_can_be_drawn():
    choice = dataclasses.replace(chosen("unmeasured"), sweep=Estimated(chosen().sweep))
    posterior, way = TransitionDisplay.from_choice(choice).plot().axes_
    assert np.isnan(line(way, "most exposed row").get_ydata()[:3]).all()
    assert len(posterior.lines) == 3  # One row, the limit, the recommended ε.


def test_axes_that_are_given_are_used_and_nothing_global_changes():
    before = dict(rcParams)
    display = TransitionDisplay.from_choice(chosen())
    axes = Figure().subplots(3, 1, sharex=True)
    assert display.plot(axes).axes_ is axes
    with pytest.raises(InvalidInput, match="3 panels"):
        display.plot(axes[:2])
    assert display.audience is Audience.FAIL
    assert dict(rcParams) == before


def test_the_picture_is_a_png_of_a_page_width():
    content = TransitionDisplay.from_choice(chosen())._repr_png_()
    height, width, _ = image.imread(io.BytesIO(content)).shape
    assert 700 < width < 900
    assert 700 < height < 900
    assert len(content) < 200_000
