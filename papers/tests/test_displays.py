"""Figures of the papers: each series that is drawn equals the arrays of its result."""

import math

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.figure import Figure

import expost
from expost.errors import InvalidInput
from expost.losses import Logistic
from expost.mechanisms import OutputPerturbation
from expost.types import Audience
from papers.common.figures import Curve, CurvesDisplay, Guide, panels, png
from papers.d53.displays import Region, WorldsDisplay
from papers.d53.training_displays import CasesDisplay, Series
from papers.leblond.displays import (
    HeatMapDisplay,
    SamplesDisplay,
    SphereDisplay,
    WorstCaseDisplay,
)
from papers.lecture.displays import EpochsDisplay
from papers.lecture.snapshots import EpochTable, ObservedEpochs, Snapshots
from papers.redberg_wang.displays import Distribution, DistributionDisplay, PlaneDisplay
from report.audits import audited
from report.conftest import noiseless, synthetic

ROWS = 60
RNG = np.random.default_rng(2)
X = RNG.normal(size=(ROWS, 2))
X /= np.linalg.norm(X, axis=1).max()
Y = np.where(RNG.random(ROWS) < 0.4, 1, -1)
NEAR = expost.neighbours(X, Y, regularization=0.05, method="exact")
MECHANISM = OutputPerturbation(
    epsilon=1.0, loss=Logistic(), regularization=0.05, rows=ROWS, dimension=2
)
GRID = np.array([1.0, 10.0, 100.0])


def line(ax, label):
    return next(line for line in ax.lines if line.get_label().strip().startswith(label))


def curves():
    given = (
        Curve(x=GRID, y=GRID**2, label="square", spread=0.1 * GRID),
        Curve(x=GRID, y=GRID, label="line"),
    )
    guides = (Guide(at=5.0, label="low"), Guide(at=2.0, axis="y", label="across"))
    return CurvesDisplay(curves=given, guides=guides, xlabel="x", ylabel="y")


def samples(**options):
    rng = np.random.default_rng(0)
    given = {
        "base": rng.normal(size=(4, 2)),
        "neighbours": rng.normal(size=(3, 4, 2)),
        "order": np.array([0.0, 0.5, 1.0]),
        "title": "t",
    }
    return SamplesDisplay(**(given | options))


def worlds(**options):
    grid = np.linspace(-2.0, 3.0, 11)
    given = {
        "curves": (
            Curve(x=grid, y=np.exp(-(grid**2)), label="here"),
            Curve(x=grid, y=np.exp(-((grid - 1) ** 2)), label="there"),
        ),
        "regions": (Region(x=grid[5:], y=grid[5:], label="wrong", colour="black"),),
        "boundary": 0.5,
        "xlabel": "r",
        "ylabel": "density",
        "title": "two worlds",
        "sides": ("D", "D′"),
        "most": 1.2,
    }
    return WorldsDisplay(**given | options)


COUNTED = Series(
    values=np.array([0.1, 0.2]),
    low=np.array([0.0, 0.1]),
    high=np.array([0.3, 0.4]),
    label="counted",
)
CLOUD = Series(
    values=np.array([0.5, 0.6]), clouds=(np.array([0.4, 0.5, 0.6]), np.array([0.6])), label="cloud"
)


def cases(*series):
    return CasesDisplay(
        cases=("one", "two"),
        series=series or (COUNTED, CLOUD),
        guides=(Guide(at=0.25, axis="y", label="bound"),),
        ylabel="advantage",
        title="cases",
    )


def plane(**options):
    given = {"X": X, "y": Y, "exposure": np.geomspace(1e-4, 1, ROWS), "theta": np.array([3.0, 4.0])}
    return PlaneDisplay(**(given | {"title": "t"} | options))


def distribution(values, **options):
    parts = (Distribution(values=np.asarray(values, dtype=float), label="a"),)
    return DistributionDisplay(parts=parts, xlabel="x", **options)


def heat_map(model=NEAR.base, losses=None):
    losses = MECHANISM.row_losses(NEAR.base, NEAR) if losses is None else losses
    return HeatMapDisplay.from_losses(NEAR, losses, model=model)


def table_of(*kinds, epochs=((5,), (5, 10))):
    lines = zip(epochs, kinds, strict=True)
    return EpochTable(
        lines=tuple(
            ObservedEpochs(epochs=epochs, figures=audited(kind).figures["lira-online"])
            for epochs, kind in lines
        ),
        score="mean",
    )


TABLES = {"passive": table_of("nothing", "promised"), "_active": table_of("promised", "memorised")}
DISPLAYS = {
    "curves": curves,
    "samples": samples,
    "worlds": worlds,
    "cases": cases,
    "plane": plane,
    "distribution": lambda: distribution(np.exp(RNG.normal(size=50))),
    "worst case": lambda: WorstCaseDisplay.from_neighbours(NEAR),
    "sphere": lambda: SphereDisplay.from_neighbours(NEAR, 1),
    "heat map": heat_map,
    "epochs": lambda: EpochsDisplay.from_tables(TABLES),
}


@pytest.mark.parametrize("name", DISPLAYS)
def test_given_axes_are_used_and_nothing_global_changes(name):
    before, display, ax = dict(rcParams), DISPLAYS[name](), Figure().add_subplot()
    assert display.plot(ax).ax_ is ax
    # The figure that it was drawn into shows itself.
    assert display._repr_png_() is None
    assert display.png().startswith(b"\x89PNG")
    assert display.ax_ is not ax
    assert dict(rcParams) == before
    public = name in ("worlds", "cases")
    assert display.audience is (Audience.PUBLIC if public else Audience.CURATOR_ONLY)


def test_curves_bands_and_guides():
    ax = curves().plot().ax_
    np.testing.assert_array_equal(line(ax, "square").get_xydata(), np.column_stack([GRID, GRID**2]))
    np.testing.assert_array_equal(line(ax, "line").get_ydata(), GRID)
    assert line(ax, "low").get_xdata()[0] == 5.0
    assert line(ax, "across").get_ydata()[0] == 2.0
    (band,) = ax.collections
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(100**2 + 10)


def test_panels_hold_one_display_each():
    figure = panels([curves(), samples(), curves()], columns=2, size=(3, 2))
    assert len(figure.axes) == 3
    assert png(figure, dpi=50).startswith(b"\x89PNG")


def test_samples_and_worst_cases_and_worlds():
    shown = samples()
    (circles,) = shown.plot().ax_.collections
    np.testing.assert_array_equal(circles.get_offsets(), shown.neighbours.reshape(-1, 2))
    # Four models of each neighbour share its colour.
    np.testing.assert_array_equal(circles.get_array(), np.repeat([0.0, 0.5, 1.0], 4))
    np.testing.assert_array_equal(shown.ax_.lines[0].get_xydata(), shown.base)
    ax = WorstCaseDisplay.from_neighbours(NEAR).plot().ax_
    np.testing.assert_array_equal(line(ax, "$A(y_i)$").get_xydata(), NEAR.shift)
    np.testing.assert_array_equal(line(ax, "$A_{wc}(y_i)$").get_xydata(), NEAR.worst_case.all())
    shown = worlds()
    first, second, boundary = shown.plot().ax_.get_lines()
    for drawn, curve in zip((first, second), shown.curves, strict=True):
        np.testing.assert_array_equal(drawn.get_ydata(), curve.y)
    assert list(boundary.get_xdata()) == [0.5, 0.5]


@pytest.mark.parametrize("row", [0, 17, ROWS - 1])
def test_sphere_and_ball_hold_the_point(row):
    ax = SphereDisplay.from_neighbours(NEAR, row).plot().ax_
    sphere, ball = ax.patches[:2]
    point = line(ax, "$A(y_i)$").get_xydata()[0]
    guess = line(ax, "$A_{wc}(y_i)$").get_xydata()[0]
    np.testing.assert_array_equal(point, NEAR.shift[row])
    for circle in (sphere, ball):
        assert np.linalg.norm(point - circle.center) <= circle.radius * (1 + 1e-9)
        assert np.linalg.norm(guess - circle.center) == pytest.approx(circle.radius)
    # A(x) is on the sphere, and the ball lies inside it.
    assert np.linalg.norm(sphere.center) == pytest.approx(sphere.radius)
    reach = np.linalg.norm(np.subtract(ball.center, sphere.center)) + ball.radius
    assert reach <= sphere.radius * (1 + 1e-9)


def test_heat_maps_are_coloured_by_exposure():
    for offset in (np.zeros(2), np.array([0.3, -0.1])):
        model = NEAR.base + offset
        losses = MECHANISM.row_losses(model, NEAR)
        ax = heat_map(model, losses).plot().ax_
        (points,) = ax.collections
        # Naively: the law of LeBlond Eq. 3, one neighbour at a time.
        rate = MECHANISM.law.rate
        expected = sorted(
            abs(rate * (np.linalg.norm(s - offset) - np.linalg.norm(offset))) for s in NEAR.shift
        )
        np.testing.assert_allclose(points.get_array(), expected, rtol=1e-9, atol=1e-12)
        order = np.argsort(np.abs(losses.loss), kind="stable")
        np.testing.assert_array_equal(points.get_offsets(), NEAR.shift[order])
        np.testing.assert_allclose(line(ax, "$M$").get_xydata()[0], offset, atol=1e-15)


def test_planes_show_every_row_with_its_own_exposure():
    shown = plane()
    ax = shown.plot().ax_
    drawn = [
        (tuple(position), float(value))
        for points in ax.collections[:2]
        for position, value in zip(points.get_offsets(), points.get_array(), strict=True)
    ]
    assert sorted(drawn) == sorted((tuple(x), e) for x, e in zip(X, shown.exposure, strict=True))
    # The boundary is across theta.
    np.testing.assert_allclose(ax.lines[0].get_xydata() @ [3.0, 4.0], 0, atol=1e-12)


def test_cases_show_values_intervals_and_clouds():
    ax = cases().plot().ax_
    assert line(ax, "counted").get_ydata().tolist() == [0.1, 0.2]
    assert line(ax, "cloud").get_ydata().tolist() == [0.5, 0.6]
    assert [0.4, 0.5, 0.6] in [list(curve.get_ydata()) for curve in ax.lines]
    (intervals,) = ax.collections
    ends = [segment[:, 1].tolist() for segment in intervals.get_segments()]
    assert ends == [[0.0, 0.3], [0.1, 0.4]]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["one", "two"]


def test_histograms_are_shares_and_lose_no_row():
    values = np.exp(RNG.normal(size=5000))
    values[:3] = 1e-12, 1e12, np.inf
    (patch,) = distribution(values).plot().ax_.patches
    heights, edges = patch.get_data().values, patch.get_data().edges
    assert heights.sum() == pytest.approx(1, abs=1e-12)
    assert edges[0] > 1e-3
    assert edges[-1] < 1e3
    # Naively: the share of the rows between two edges.
    for k in (5, 30, 60):
        naive = np.mean([edges[k] <= v < edges[k + 1] for v in values])
        assert heights[k] == pytest.approx(naive)
    assert DistributionDisplay.ends_of(distribution(np.full(10, 2.0)).parts) == (1.0, 4.0)


def test_accuracy_by_observed_epochs():
    ax = EpochsDisplay.from_tables(TABLES).plot().ax_
    for name, table in TABLES.items():
        expected = [row.figures.accuracy.value for row in table.lines]
        np.testing.assert_array_equal(line(ax, name).get_ydata(), expected)
    # A name that begins with an underscore is not left out of the legend.
    shown = [text.get_text().strip() for text in ax.get_legend().get_texts()]
    assert set(TABLES) <= set(shown)


def test_confidences_of_snapshots():
    rng = np.random.default_rng(6)
    watched = Snapshots(epochs=np.array([1, 5]), confidence=rng.normal(size=(2, 30)))
    drawn = line(watched.plot().ax_, "rows in question").get_ydata()
    np.testing.assert_allclose(drawn, np.median(watched.confidence, axis=1), rtol=1e-6)


THREE = expost.neighbours(RNG.normal(size=(20, 3)), np.tile([1, -1], 10))
ROUGH = expost.neighbours(X, Y, regularization=0.05, method="worst-case")


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: Curve(x=GRID, y=GRID[:2]), "x has shape"),
        (lambda: Guide(at=1.0, axis="z"), "axis="),
        (lambda: panels([curves()], columns=0), "columns="),
        (lambda: samples(base=np.zeros((3, 3))), "base"),
        (lambda: samples(neighbours=np.zeros((3, 2))), "neighbours"),
        (lambda: samples(order=np.zeros(2)), "order"),
        (lambda: worlds(curves=()), "curves"),
        (lambda: worlds(boundary=math.nan), "boundary"),
        (lambda: Region(x=GRID, y=GRID[:2], label="a", colour="black"), "x has shape"),
        (lambda: cases(Series(values=np.zeros(3))), "each of 2 cases"),
        (lambda: cases(Series(values=np.zeros(2), clouds=(np.zeros(2),))), "each of 2 cases"),
        (lambda: plane(X=X[:, :1]), "two columns"),
        (lambda: plane(y=Y[:5]), "y has shape"),
        (lambda: plane(exposure=np.full(ROWS, np.nan)), "exposure: must be > 0"),
        (lambda: plane(theta=np.zeros(2)), "theta"),
        (lambda: distribution([1.0, 0.0]), "> 0"),
        (lambda: distribution([np.nan]), "> 0"),
        (lambda: distribution([np.inf]).plot(), "infinite"),
        (lambda: distribution([1.0], guides=(Guide(at=1.0, axis="y"),)).plot(), "axis"),
        (lambda: WorstCaseDisplay.from_neighbours(THREE), "needs two"),
        (lambda: WorstCaseDisplay.from_neighbours(ROUGH), "nothing to compare"),
        (lambda: SphereDisplay.from_neighbours(NEAR, ROWS), "row="),
        (lambda: heat_map([0.0, 0.0, 0.0]), "model"),
        (lambda: heat_map(losses=noiseless(ROWS).losses), "infinite"),
        (lambda: heat_map(losses=synthetic(3).losses), "neighbours"),
        (lambda: EpochsDisplay(observed=("5",), accuracy={"a": np.zeros((2, 3))}), "observations"),
        (
            lambda: EpochsDisplay.from_tables(
                TABLES | {"b": table_of("nothing", "promised", epochs=((1,), (2,)))}
            ),
            "same sets of epochs",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, named):
    with pytest.raises(InvalidInput, match=named):
        call()
