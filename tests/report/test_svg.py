"""Figures as SVG: points stand where the axes say, and many points make a small drawing."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from expost.report.figure import Axis, Figure, Line, Panel, Rule
from expost.report.svg import panel_svg, ticks

from .examples import group_figure

BOX = re.compile(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"/></clipPath>')


def drawn(panel, description="what it shows"):
    figure = Figure(key="k", description=description, panels=(panel,))
    return str(panel_svg(figure, panel, "k"))


def polylines(text):
    return [
        (role, np.array([tuple(map(float, pair.split(","))) for pair in points.split()]))
        for role, points in re.findall(r'<polyline class="series (\w+)" points="([^"]*)"', text)
    ]


def area(text):
    left, top, width, height = map(float, BOX.search(text).groups())
    return left, left + width, top + height, top


@pytest.mark.parametrize("log_x", [False, True])
@pytest.mark.parametrize("log_y", [False, True])
def test_points_stand_where_the_axes_say(log_x, log_y):
    x, y = np.geomspace(1, 50, 9), np.geomspace(0.2, 0.9, 9)
    panel = Panel(
        title="t",
        x=Axis(label="x", low=1.0, high=50.0, log=log_x, quantity="rank"),
        y=Axis(label="y", low=0.1, high=1.0, log=log_y, format="percent"),
        lines=(Line(name="a", x=x, y=y),),
    )
    text = drawn(panel)
    left, right, bottom, top = area(text)
    ((role, points),) = polylines(text)
    assert role == "main"

    def share(values, low, high, log):
        on = np.log if log else np.asarray
        return (on(values) - on(low)) / (on(high) - on(low))

    wanted = np.column_stack(
        [
            left + (right - left) * share(x, 1.0, 50.0, log_x),
            bottom + (top - bottom) * share(y, 0.1, 1.0, log_y),
        ]
    )
    np.testing.assert_allclose(points, wanted, atol=0.051)
    assert f'data-x="1.0 50.0 {"log" if log_x else "linear"}"' in text
    assert 'data-quantity="rank"' in text
    assert '<title id="k-title">t</title>' in text
    assert '<desc id="k-text">what it shows</desc>' in text


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("form", ["number", "percent", "count"])
def test_every_range_has_a_few_ticks_inside_of_it(log, form):
    rng = np.random.default_rng(3)
    for _ in range(300):
        low = 10.0 ** rng.uniform(-12 if form != "count" else 0, 5)
        high = low * 10.0 ** rng.uniform(0.7, 9)
        places = ticks(Axis(label="x", low=low, high=high, log=log, format=form))
        assert 2 <= len(places) <= 10, (low, high, places)
        values = [value for value, _ in places]
        assert values == sorted(set(values))
        assert low * (1 - 1e-6) <= values[0]
        assert values[-1] <= high * (1 + 1e-6)
        assert len({label for _, label in places}) == len(places), places


def test_categories_are_named_at_their_places():
    axis = group_figure().panels[0].y
    assert ticks(axis) == [(float(at), name) for at, name in enumerate(axis.categories)]


def test_names_of_categories_are_cut_only_where_there_is_no_room():
    names = ("short", "Married-civ-spouse, absent", "x" * 80)
    axis = Axis(label="group", low=-0.5, high=2.5, categories=names)
    panel = Panel(title="t", x=Axis(label="share", low=0.0, high=1.0), y=axis)
    figure = Figure(key="f", description="d", panels=(panel,))
    shown = re.findall(
        r'class="tick( \w+)?" x="[^"]+" y="[^"]+" text-anchor="end">([^<]+)<',
        panel_svg(figure, panel, "f"),
    )
    names = {fit: [name for each, name in shown if each == fit] for fit in ("", " wide", " narrow")}
    assert "short" in names[""]
    assert names[" wide"] == ["Married-civ-spouse, absent", "x" * 26 + "…"]
    assert names[" narrow"] == ["Married-civ-spou…", "x" * 16 + "…"]


def test_what_is_not_known_interrupts_the_line_and_what_is_infinite_leaves_the_panel():
    y = [0.1, math.nan, 0.3, math.inf, -math.inf]
    axis = Axis(label="x", low=0.0, high=4.0)
    panel = Panel(
        title="t", x=axis, y=replace(axis, high=1.0), lines=(Line(name="a", x=range(5), y=y),)
    )
    pieces = polylines(drawn(panel))
    assert [len(points) for _, points in pieces] == [3]
    _, _, bottom, top = area(drawn(panel))
    assert pieces[0][1][1, 1] < top - 100
    assert pieces[0][1][2, 1] > bottom + 100
    # A zero lies below every log scale.
    log = replace(panel, y=replace(axis, low=0.01, high=1.0, log=True))
    log = replace(log, lines=(Line(name="a", x=[1, 2], y=[0.0, 0.5]),))
    assert polylines(drawn(log))[0][1][0, 1] > bottom + 100


def test_a_single_point_is_seen_and_a_rule_outside_of_the_panel_is_not_labelled():
    axis = Axis(label="x", low=0.0, high=2.0)
    rules = tuple(
        Rule(name="r", at=at, axis=which, label=f"{which} at {at}")
        for which in ("x", "y")
        for at in (1.0, 3.0, math.inf)
    )
    panel = Panel(title="t", x=axis, y=axis, lines=(Line(name="a", x=[1], y=[1]),), rules=rules)
    text = drawn(panel)
    assert text.count('<circle class="dot main"') == 1
    assert re.findall(r'"rule-label"[^>]*>([^<]*)<', text) == ["x at 1.0", "y at 1.0"]


def test_an_axis_without_width_has_its_value_in_the_middle():
    axis = Axis(label="x", low=2.0, high=2.0, log=True)
    assert ticks(axis) == [(2.0, "2")]
    text = drawn(Panel(title="t", x=axis, y=axis, lines=(Line(name="a", x=[2], y=[2]),)))
    left, right, bottom, top = area(text)
    ((x, y),) = re.findall(r'"dot main" cx="([\d.]+)" cy="([\d.]+)"', text)
    assert (float(x), float(y)) == ((left + right) / 2, (bottom + top) / 2)


def test_a_step_is_continuous_from_the_right():
    axis = Axis(label="x", low=0.0, high=2.0)
    line = Line(name="a", x=[0, 1, 2], y=[0, 1, 2], step=True)
    ((_, points),) = polylines(drawn(Panel(title="t", x=axis, y=axis, lines=(line,))))
    assert len(points) == 5
    assert points[1][0] == points[2][0]
    assert points[0][1] == points[1][1]


def test_many_points_make_a_small_drawing_of_the_same_outline():
    count = 48_842
    y = 0.5 + 0.3 * np.random.default_rng(1).random(count)
    axis = Axis(label="x", low=1.0, high=float(count), log=True)
    panel = Panel(
        title="t",
        x=axis,
        y=Axis(label="y", low=0.5, high=0.8),
        lines=(Line(name="a", x=np.arange(1, count + 1), y=y),),
    )
    text = drawn(panel)
    assert len(text) < 60_000
    ((_, points),) = polylines(text)
    _, _, bottom, top = area(text)
    drawn_values = 0.5 + 0.3 * (points[:, 1] - bottom) / (top - bottom)
    assert drawn_values.max() == pytest.approx(y.max(), abs=1e-3)
    assert drawn_values.min() == pytest.approx(y.min(), abs=1e-3)
