"""Figures 2 to 4 of LeBlond et al.: what is drawn is what the result objects hold."""

import numpy as np
import pytest
from matplotlib import colors, rcParams
from matplotlib.figure import Figure

import expost
from expost.errors import InvalidInput
from expost.losses import Logistic
from expost.mechanisms import OutputPerturbation
from expost.types import Audience
from papers.leblond.displays import HeatMapDisplay, SphereDisplay, WorstCaseDisplay
from report.conftest import noiseless, synthetic

ROWS = 60


@pytest.fixture(scope="module")
def near():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(ROWS, 2))
    X /= np.linalg.norm(X, axis=1).max()
    y = np.where(rng.random(ROWS) < 0.4, 1, -1)
    return expost.neighbours(X, y, regularization=0.05, method="exact")


@pytest.fixture(scope="module")
def mechanism():
    return OutputPerturbation(
        epsilon=1.0, loss=Logistic(), regularization=0.05, rows=ROWS, dimension=2
    )


def line(ax, label):
    return next(line for line in ax.lines if line.get_label().startswith(label))


def test_worst_case_over_exact_points(near):
    ax = WorstCaseDisplay.from_neighbours(near).plot().ax_
    ax.figure.canvas.draw()
    shift, guess = near.shift, near.worst_case.all()
    np.testing.assert_array_equal(line(ax, "$A(y_i)$").get_xydata(), shift)
    np.testing.assert_array_equal(line(ax, "$A_{wc}(y_i)$").get_xydata(), guess)
    assert ax.get_aspect() == 1
    rough = expost.neighbours(
        near.objective.held.X, near.objective.held.y, regularization=0.05, method="worst-case"
    )
    with pytest.raises(InvalidInput, match="nothing to compare"):
        WorstCaseDisplay.from_neighbours(rough)


@pytest.mark.parametrize("row", [0, 17, ROWS - 1])
def test_sphere_and_ball_hold_the_point(near, row):
    display = SphereDisplay.from_neighbours(near, row)
    ax = display.plot().ax_
    ax.figure.canvas.draw()
    sphere, ball = ax.patches[:2]
    point = line(ax, "$A(y_i)$").get_xydata()[0]
    guess = line(ax, "$A_{wc}(y_i)$").get_xydata()[0]
    np.testing.assert_array_equal(point, near.shift[row])
    for circle in (sphere, ball):
        assert np.linalg.norm(point - circle.center) <= circle.radius * (1 + 1e-9)
        assert np.linalg.norm(guess - circle.center) == pytest.approx(circle.radius)
    assert np.linalg.norm(sphere.center) == pytest.approx(sphere.radius)  # A(x) is on it.
    reach = np.linalg.norm(np.subtract(ball.center, sphere.center)) + ball.radius
    assert reach <= sphere.radius * (1 + 1e-9)
    low, high = ax.get_xlim()
    assert low < sphere.center[0] - sphere.radius < sphere.center[0] + sphere.radius < high


def test_a_small_ball_is_shown_enlarged():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2)) * 0.05
    flat = expost.neighbours(X, np.where(rng.random(30) < 0.5, 1, -1), method="exact")
    ax = SphereDisplay.from_neighbours(flat, 3).plot().ax_
    ax.figure.canvas.draw()
    (inset,) = ax.child_axes
    ball = ax.patches[1]
    assert inset.get_xlim()[1] - inset.get_xlim()[0] == pytest.approx(2.6 * ball.radius)


def test_heat_maps_are_coloured_by_exposure(near, mechanism):
    for offset in (np.zeros(2), np.array([0.3, -0.1])):
        model = near.base + offset
        losses = mechanism.row_losses(model, near)
        ax = HeatMapDisplay.from_losses(near, losses, model=model).plot().ax_
        ax.figure.canvas.draw()
        (points,) = ax.collections
        # Naively: the law of LeBlond Eq. 3, one neighbour at a time.
        rate = mechanism.law.rate
        expected = sorted(
            abs(rate * (np.linalg.norm(s - offset) - np.linalg.norm(offset))) for s in near.shift
        )
        np.testing.assert_allclose(points.get_array(), expected, rtol=1e-9, atol=1e-12)
        order = np.argsort(np.abs(losses.loss), kind="stable")
        np.testing.assert_array_equal(points.get_offsets(), near.shift[order])
        np.testing.assert_allclose(line(ax, "$M$").get_xydata()[0], offset, atol=1e-15)


def test_what_cannot_be_drawn_is_refused(near, mechanism):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    three = expost.neighbours(X, np.where(X[:, 0] > 0, 1, -1))
    losses = mechanism.row_losses(near.base, near)
    for call in (
        lambda: WorstCaseDisplay.from_neighbours(three),
        lambda: SphereDisplay.from_neighbours(three, 0),
        lambda: HeatMapDisplay.from_losses(three, losses, model=[0.0, 0.0]),
    ):
        with pytest.raises(InvalidInput, match="needs two"):
            call()
    for row in (ROWS, -1, 1.5):
        with pytest.raises(InvalidInput, match="row="):
            SphereDisplay.from_neighbours(near, row)
    with pytest.raises(InvalidInput, match="model"):
        HeatMapDisplay.from_losses(near, losses, model=[0.0, 0.0, 0.0])
    with pytest.raises(InvalidInput, match="infinite"):
        HeatMapDisplay.from_losses(near, noiseless(ROWS).losses, model=near.base)
    with pytest.raises(InvalidInput, match="neighbours"):
        HeatMapDisplay.from_losses(near, synthetic(3).losses, model=near.base)


def test_axes_that_are_given_are_used_and_nothing_global_changes(near, mechanism):
    before = dict(rcParams)
    figure = Figure()
    axes = figure.subplots(1, 3)
    losses = mechanism.row_losses(near.base, near)
    displays = [
        WorstCaseDisplay.from_neighbours(near),
        SphereDisplay.from_neighbours(near, 1),
        HeatMapDisplay.from_losses(near, losses, model=near.base),
    ]
    for display, ax in zip(displays, axes, strict=True):
        assert display.plot(ax).ax_ is ax
        assert display.audience is Audience.CURATOR_ONLY
        assert display._repr_png_() is None  # The figure that it was drawn into shows itself.
        assert display.png().startswith(b"\x89PNG")
        assert display.ax_ is not ax
        assert display._repr_png_().startswith(b"\x89PNG")
    assert dict(rcParams) == before


def test_colours_differ_in_lightness(near):
    ax = WorstCaseDisplay.from_neighbours(near).plot().ax_
    inks = [line(ax, "$A_{wc}(y_i)$").get_markeredgecolor(), line(ax, "$A(y_i)$").get_color()]
    grey = [np.dot(colors.to_rgb(ink), [0.2126, 0.7152, 0.0722]) for ink in inks]
    assert abs(grey[0] - grey[1]) > 0.01
