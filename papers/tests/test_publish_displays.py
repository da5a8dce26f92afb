"""Losses over the plane, and distributions: what is drawn is what the display holds."""

import numpy as np
import pytest

from expost.errors import InvalidInput
from papers.common.figures import Guide
from papers.redberg_wang.displays import Distribution, DistributionDisplay, PlaneDisplay

RNG = np.random.default_rng(0)
X = RNG.uniform(-0.7, 0.7, size=(40, 2))
Y = np.where(X[:, 0] > 0, 1.0, -1.0)
EXPOSURE = np.geomspace(1e-4, 1, 40)


def plane(**options):
    given = {"X": X, "y": Y, "exposure": EXPOSURE, "theta": np.array([3.0, 4.0]), "title": "t"}
    return PlaneDisplay(**(given | options))


def test_every_row_is_drawn_with_its_own_exposure():
    ax = plane().plot().ax_
    ax.figure.canvas.draw()
    drawn = [
        (tuple(place), float(value))
        for points in ax.collections[:2]
        for place, value in zip(points.get_offsets(), points.get_array(), strict=True)
    ]
    expected = [(tuple(x), e) for x, e in zip(X, EXPOSURE, strict=True)]
    assert sorted(drawn) == sorted(expected)
    sizes = [len(points.get_offsets()) for points in ax.collections[:2]]
    assert sizes == [int(np.sum(Y == 1)), int(np.sum(Y == -1))]
    # The most exposed are on top.
    for points in ax.collections[:2]:
        assert np.all(np.diff(points.get_array()) > 0)


def test_the_boundary_is_across_theta_and_the_arrow_along():
    ax = plane().plot().ax_
    line = ax.lines[0].get_xydata()
    np.testing.assert_allclose(line @ [3.0, 4.0], 0, atol=1e-12)
    (arrow,) = ax.texts
    assert arrow.xy == pytest.approx((0.42 * 0.6, 0.42 * 0.8))


@pytest.mark.parametrize("low", [1e-4, 0.3])
def test_scales_have_ticks_that_are_numbers(low):
    display = plane(exposure=np.geomspace(low, 1, 40))
    figure = display.plot().figure_
    figure.canvas.draw()
    bar = figure.axes[1]
    inside = [t for t in bar.get_yticks() if bar.get_ylim()[0] <= t <= bar.get_ylim()[1]]
    assert len(inside) >= 2


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"X": X[:, :1]}, "two columns"),
        ({"y": Y[:5]}, "y has shape"),
        ({"exposure": EXPOSURE[:5]}, "exposure has shape"),
        ({"exposure": 0 * EXPOSURE}, "exposure: must be > 0"),
        ({"exposure": np.full(40, np.nan)}, "exposure: must be > 0"),
        ({"theta": np.zeros(2)}, "theta"),
        ({"theta": np.ones(3)}, "theta"),
    ],
)
def test_wrong_planes_are_refused(options, match):
    with pytest.raises(InvalidInput, match=match):
        plane(**options)


def heights(ax, place):
    return ax.patches[place].get_data().values


def test_histograms_are_shares_and_lose_no_row():
    values = np.exp(RNG.normal(size=5000))
    values[:3] = 1e-12, 1e12, np.inf
    parts = (
        Distribution(values=values, label="a", filled=True),
        Distribution(values=values[3:103] * 3, label="b", style="--"),
    )
    display = DistributionDisplay(parts=parts, guides=(Guide(at=1.0, label="one"),), xlabel="x")
    ax = display.plot().ax_
    ax.figure.canvas.draw()
    # The filled one is drawn twice: its area, and its outline.
    assert len(ax.patches) == 3
    for place in range(3):
        assert heights(ax, place).sum() == pytest.approx(1, abs=1e-12)
    edges = ax.patches[1].get_data().edges
    assert edges[0] > 1e-3
    assert edges[-1] < 1e3
    # Naively: the share of the rows between two edges.
    for k in (5, 30, 60):
        naive = np.mean([edges[k] <= v < edges[k + 1] for v in values])
        assert heights(ax, 1)[k] == pytest.approx(naive)
    labels = {text.get_text() for text in ax.get_legend().get_texts()}
    assert labels == {"a", "b", "one"}


def test_ends_may_be_shared_and_a_single_value_has_some():
    parts = (Distribution(values=np.full(10, 2.0), label="a"),)
    assert DistributionDisplay.ends_of(parts) == (1.0, 4.0)
    display = DistributionDisplay(parts=parts, xlabel="x", ends=(0.5, 50.0))
    edges = display.plot().ax_.patches[0].get_data().edges
    assert edges[[0, -1]] == pytest.approx([0.5, 50.0])


@pytest.mark.parametrize("values", [np.array([]), np.array([1.0, 0.0]), np.array([np.nan])])
def test_wrong_values_are_refused(values):
    with pytest.raises(InvalidInput, match="> 0"):
        Distribution(values=values, label="a")


def test_guides_stand_upright():
    parts = (Distribution(values=np.ones(3), label="a"),)
    display = DistributionDisplay(parts=parts, xlabel="x", guides=(Guide(at=1.0, axis="y"),))
    with pytest.raises(InvalidInput, match="axis"):
        display.plot()


def test_nothing_finite_is_nothing_to_draw():
    parts = (Distribution(values=np.full(3, np.inf), label="a"),)
    with pytest.raises(InvalidInput, match="infinite"):
        DistributionDisplay(parts=parts, xlabel="x").plot()
