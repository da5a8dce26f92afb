"""Every result can be drawn: none is forgotten, all are marked, and nothing else is touched."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import typing
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.figure import Figure

import expost
from expost.errors import InvalidInput
from expost.report.cards import CARDS, TORCH_CARDS
from expost.report.display import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    Display,
    PanelsDisplay,
    drawn_places,
    mark,
)
from expost.report.fragments import PARTS
from expost.report.html import style_sheet
from expost.report.plots import PLOTS, TORCH_PLOTS, audience_of
from expost.results import Displayed
from expost.types import Audience

from .results import RESULTS

MODULES = (
    *("expost", "expost.risk", "expost.attacks", "expost.data", "expost.mechanisms"),
    *("expost.audits", "expost.defences", "expost.epsilon", "expost.selection", "expost.noise"),
)
# What functions and results give away that is no result of its own, and why.
NO_RESULTS = {
    "Advantage": "of one row of `RowIdentifiability`",
    "Arrays": "what an attack is given",
    "Composition": "a promise",
    "CompositionRow": "a line of a comparison",
    "DefenceRow": "a line of a table",
    "Encoding": "how a table becomes numbers",
    "Entry": "a line of a ledger",
    "Figure": "a line of an identifiability",
    "RowBounds": "the arrays behind `PublishedReport.bound`",
    "Persons": "rows",
    "References": "what an attack is given",
    "Objective": "rows",
    "Spending": "a part of a published report",
    "Table": "rows",
}


def classes_in(annotation):
    """The classes of expost that an annotation names."""
    if isinstance(annotation, type):
        return {annotation} if annotation.__module__.startswith("expost") else set()
    return {one for part in typing.get_args(annotation) for one in classes_in(part)}


def returned(function):
    """What a function says that it returns."""
    try:
        found = typing.get_type_hints(function).get("return")
    except NameError:
        # A name for type checkers alone; the classes of those are found elsewhere.
        return set()
    return classes_in(found)


def results():
    """All classes that public functions return, and what those give in turn."""
    found, waiting = set(), []
    for name in MODULES:
        module = importlib.import_module(name)
        for public in (getattr(module, one) for one in module.__all__):
            if inspect.isfunction(public):
                waiting += returned(public)
            elif isinstance(public, type) and issubclass(public, Displayed):
                waiting.append(public)
    while waiting:
        one = waiting.pop()
        if one in found or not issubclass(one, Displayed):
            found.add(one)
            continue
        found.add(one)
        for name, member in inspect.getmembers(one):
            if not name.startswith("_"):
                getter = member.fget if isinstance(member, property) else member
                if inspect.isfunction(getter):
                    waiting += returned(getter)
    return found


def is_record(kind):
    return "__dataclass_fields__" in vars(kind)


def test_no_result_is_forgotten():
    """Whatever a public function returns is displayed, or is said to be no result."""
    found = results()
    records = {one.__name__ for one in found if is_record(one) and not issubclass(one, Displayed)}
    assert records == set(NO_RESULTS)
    displayed = {one.__name__ for one in found if issubclass(one, Displayed)}
    assert displayed >= {"Profile", "RowIdentifiability", "Ledger", "Answer", "Roc"}


def subclasses(kind):
    for one in kind.__subclasses__():
        yield one
        yield from subclasses(one)


def test_every_displayed_result_has_a_figure_and_a_fragment():
    known = {one for one in subclasses(Displayed) if one.__module__.startswith("expost.")}
    abstract = {"RowTable", "_Table"}
    assert {one.__name__ for one in known} >= abstract
    final = {one for one in known if one.__name__ not in abstract and "torch" not in one.__module__}
    assert final == set(PLOTS)
    assert final == set(CARDS) | set(PARTS)
    assert not set(CARDS) & set(PARTS)
    assert final == {type(make()) for make in RESULTS.values()}


def test_every_result_of_torch_has_a_figure_and_a_fragment():
    """By their source, for torch need not be there."""
    folder = Path(expost.__file__).parent / "torch"
    named = set()
    for path in folder.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                if "Displayed" in bases:
                    named.add(f"expost.torch.{path.stem}.{node.name}")
    assert len(named) == 7
    assert named == set(TORCH_PLOTS) == set(TORCH_CARDS)


def test_the_guide_lists_every_result():
    page = (Path(__file__).parents[2] / "docs" / "figures.md").read_text("utf-8")
    listed = {
        name
        for line in page.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    named = {one.__name__ for one in PLOTS} | {one.rpartition(".")[2] for one in TORCH_PLOTS}
    assert listed == named


def marks(figure):
    return [text for ax in figure.axes for text in ax.texts if text.get_gid() == "expost-mark"]


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_is_drawn_and_marked(name):
    result = RESULTS[name]()
    before = dict(rcParams)
    display = result.plot()
    assert isinstance(display, Display | PanelsDisplay)
    figure = display.figure_
    figure.draw_without_rendering()
    assert dict(rcParams) == before
    (said,) = marks(figure)
    assert said.get_text().startswith(audience_of(result).value.upper())
    axes = display.axes_ if isinstance(display, PanelsDisplay) else [display.ax_]
    assert all(ax.figure is figure for ax in axes)
    assert axes[-1].get_xlabel()
    assert all(ax.has_data() for ax in axes)
    # Labels, legends and marks are within the figure, whatever their length.
    whole = figure.bbox
    for ax in figure.axes:
        box = ax.get_tightbbox()
        assert box.x0 >= whole.x0 - 2
        assert box.y0 >= whole.y0 - 2
        assert box.x1 <= whole.x1 + 2
        assert box.y1 <= whole.y1 + 2


def test_a_notebook_shows_a_picture():
    content = RESULTS["disparity"]().plot()._repr_png_()
    assert content.startswith(b"\x89PNG")
    assert len(content) < 100_000


def test_given_axes_are_used():
    profile, grouping = RESULTS["profile"](), RESULTS["grouping"]()
    ax = Figure().add_subplot()
    display = profile.plot(ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    assert display._repr_png_() is None
    axes = Figure().subplots(1, 2)
    assert grouping.plot(axes=axes).axes_ is axes
    with pytest.raises(InvalidInput, match="ax: this figure has 2 panels"):
        grouping.plot(ax=ax)
    with pytest.raises(InvalidInput, match="axes: this figure has one panel"):
        profile.plot(axes=axes)
    with pytest.raises(InvalidInput, match="axes: are 1"):
        grouping.plot(axes=axes[:1])


def test_the_strictest_mark_stays():
    ax = Figure().add_subplot()
    for audience, told in (
        (Audience.PASS, "PASS"),
        (Audience.REVIEW, "REVIEW"),
        (Audience.FAIL, "FAIL"),
        (Audience.PASS, "FAIL"),
    ):
        mark(ax, audience)
        (said,) = marks(ax.figure)
        assert said.get_text().startswith(told)


def test_what_does_not_say_its_audience_is_for_the_curator():
    assert audience_of(object()) is Audience.FAIL


def test_options_choose_among_figures():
    audit = RESULTS["audit"]()
    assert audit.plot().ax_.get_xlabel() == "false positive rate"
    assert audit.plot(kind="exposures").ax_.get_ylabel() == "told apart by references"
    with pytest.raises(InvalidInput, match="kind='x'"):
        audit.plot(kind="x")
    found = RESULTS["identifiability"]()
    assert len(found.plot().axes_) == 2
    assert "at most" in found.plot(kind="rates").ax_.get_ylabel()
    ledger = RESULTS["ledger"]()
    labels = [one.get_label() for one in ledger.plot(delta=1e-6).ax_.lines]
    assert any("composed" in label for label in labels)


def line(ax, start):
    return next(one for one in ax.lines if one.get_label().strip().startswith(start))


def test_what_is_drawn_is_what_the_result_holds():
    """One figure of each generic display, against the arrays themselves."""
    found = RESULTS["row identifiability"]()
    drawn = line(found.plot().ax_, "belief").get_ydata()
    np.testing.assert_array_equal(drawn, found.posterior[found.ranking])
    own = RESULTS["individual epsilon"]()
    drawn = line(own.plot().ax_, "the row's own").get_ydata()
    np.testing.assert_array_equal(drawn, np.sort(own.epsilon)[::-1])
    table = RESULTS["defence table"]()
    drawn = line(table.plot().ax_, "of the strongest").get_xdata()
    np.testing.assert_array_equal(drawn, [row.attack.value for row in table.rows])
    run = RESULTS["transcript"]()
    drawn = line(run.plot().ax_, "the row it is surest of").get_ydata()
    np.testing.assert_allclose(drawn, 1 / (1 + np.exp(-run.epochs.max(axis=1))), rtol=1e-6)
    grouping = RESULTS["grouping"]()
    drawn = line(grouping.plot().axes_[1], "of the most").get_xdata()
    np.testing.assert_array_equal(drawn, [group.top_share for group in grouping.groups])
    ledger = RESULTS["ledger"]()
    heights = [bar.get_height() for bar in ledger.plot().ax_.patches]
    assert heights == [entry.epsilon for entry in ledger.entries]
    compared = RESULTS["comparison"]()
    columns = compared.columns()
    dots = line(compared.plot().ax_, "a row")
    drawn = dict(zip(dots.get_xdata(), dots.get_ydata(), strict=True))
    for exposure, bound in zip(columns["exposure"], columns["bound"], strict=True):
        assert exposure == 0 or drawn[exposure] == bound


def test_a_published_bound_is_asked_of_the_report_itself():
    report = RESULTS["published report"]()
    ax = report.plot().ax_
    drawn = line(ax, "label no")
    coef, _ = report.release.coefficients
    for place, height in list(zip(drawn.get_xdata(), drawn.get_ydata(), strict=True))[::20]:
        row = place * report.release.ball.data_norm * coef / np.linalg.norm(coef)
        assert height == report.bound(row, "no")[0]


@pytest.mark.parametrize("count", [1, 2, 20_000, 20_001, 3_000_000])
def test_many_rows_are_drawn_by_those_that_are_seen(count):
    at = drawn_places(count)
    assert at[0] == 0
    assert at[-1] == count - 1
    assert np.all(np.diff(at) > 0)
    assert len(at) == count if count <= 20_000 else len(at) < 6_000
    # The first and the last ranks are all there, and no gap is wider than a pixel can show.
    np.testing.assert_array_equal(at[:50], np.arange(len(at[:50])))
    np.testing.assert_array_equal(count - 1 - at[::-1][:50], np.arange(len(at[:50])))
    assert np.max(np.diff(at), initial=1) <= max(1, count / 1000)
    assert np.max(np.diff(np.log(at + 1)), initial=0.0) <= np.log(2) + 1e-9


def test_infinite_figures_are_said():
    ax = RESULTS["ledger without a promise"]().plot().ax_
    assert [text.get_text() for text in ax.texts].count("∞") == 1


def test_colours_are_those_of_the_page():
    light = style_sheet().partition("@media")[0].lower()
    for name, colour in zip(
        ("accent", "second", "fourth", "fifth"), (BLUE, ORANGE, GREEN, PURPLE), strict=True
    ):
        assert f"--{name}: {colour.lower()};" in light


# Brettel-like matrices of Machado et al. (2009) for a full deficiency, in linear RGB.
DEFICIENCIES = {
    "none": np.eye(3),
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


def linear(colour):
    code = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(code <= 0.04045, code / 12.92, ((code + 0.055) / 1.055) ** 2.4)


def lab(light):
    rgb = np.clip(light, 0, 1)
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]  # fmt: skip
    xyz = np.array(to_xyz) @ rgb / [0.95047, 1, 1.08883]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def nearest(colours):
    return min(
        np.linalg.norm(lab(np.array(how) @ linear(one)) - lab(np.array(how) @ linear(two)))
        for how in DEFICIENCIES.values()
        for place, one in enumerate(colours)
        for two in colours[:place]
    )


def test_colours_are_told_apart_by_the_colour_blind():
    assert nearest((BLUE, ORANGE, GREEN, PURPLE, GREY)) > 15
    # The purple that stood there before was the blue to most of them.
    assert nearest(("#0067a5", "#7d3c98")) < 8


def test_matplotlib_is_imported_only_when_drawing_and_pyplot_never():
    """Whatever is imported: every display, every job and every reproduction there is."""
    script = """
import pkgutil, sys
from importlib import import_module
import expost, expost.jobs, expost.report, expost.reproduce
for package in (expost.report, expost.jobs, expost.reproduce):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        import_module(module.name)
result = expost.selection.selection_cost([1.0, 2.0], 1.0, 1.0)
print("matplotlib" in sys.modules, end=" ")
result.plot().png()
print("matplotlib" in sys.modules, "matplotlib.pyplot" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert (done.stdout.split(), done.stderr) == (["False", "True", "False"], "")


def test_pyplot_axes_work_too():
    """Whoever uses pyplot passes its axes; nothing is shown or left open by a plot."""
    matplotlib.use("agg")
    from matplotlib import pyplot

    _, ax = pyplot.subplots()
    assert RESULTS["coverage"]().plot(ax=ax).ax_ is ax
    opened = len(pyplot.get_fignums())
    RESULTS["coverage"]().plot()
    assert len(pyplot.get_fignums()) == opened
    pyplot.close("all")
