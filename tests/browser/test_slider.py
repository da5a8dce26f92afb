"""The slider in a real browser: the figures are those that Python gives, at any ε."""

import json
import re
import warnings
from dataclasses import replace
from decimal import Decimal
from functools import cache

import numpy as np
import pytest
from playwright.sync_api import expect
from scipy.special import expit

import expost
import expost.report as report
from evidence import record
from expost.errors import SeededReleaseWarning
from expost.profiles.verb import profile
from expost.report.document import Document, Section
from expost.report.slider import SHARES, SliderData, Step, slider_widget
from expost.types import Audience
from read_figures import read
from report.epsilon_choices import chosen
from settings import OUTPUT

CASES = {
    "laplace-1": (1, {}),
    "laplace-2": (2, {}),
    "laplace-14": (14, {}),
    "laplace-100": (100, {}),
    "gaussian-3": (3, {"noise": "gaussian", "delta": 1e-6}),
}
LONG_CASES = {
    **CASES,
    "laplace-400": (400, {}),
    "gaussian-3-loose": (3, {"noise": "gaussian", "delta": 0.05}),
    "gaussian-3-strict": (3, {"noise": "gaussian", "delta": 1e-12}),
}
COMMAND = "pytest -m long tests/browser/test_slider.py"
SEED = 11
EPSILONS = (0.01, 0.137, 1.0, 8.5, 100.0)


@cache
def profiled(case):
    """A release of that dimension and its profile; rows that move it much, and little."""
    dimension, options = LONG_CASES[case]
    rng = np.random.default_rng(dimension)
    X = rng.normal(size=(60, dimension)) * rng.lognormal(-1, 1, size=(60, 1))
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1) * 1.001
    y = np.where(rng.random(60) < 0.5, 1, -1)
    y[:2] = [1, -1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededReleaseWarning)
        model = expost.PrivateLogisticRegression(
            epsilon=1.0,
            fit_intercept=False,
            data_norm=1.0,
            classes=[-1, 1],
            random_state=0,
            **{**OUTPUT, "regularization": 0.05, **options},
        ).fit(X, y)
    return model.release_, profile(model.release_, X, y)


def built(case):
    release, own = profiled(case)
    return report.render_html(report.page_of(own, release=release))


def expected(case, epsilon):
    """The figures by the law, without any table."""
    release, own = profiled(case)
    mechanism = replace(release.mechanism, epsilon=epsilon)
    rows = mechanism.loss_law(own.distance / mechanism.resolution).expected_exposure
    farthest = np.max(own.distance + own.losses.distance_error)
    most = mechanism.loss_law(np.array([farthest / mechanism.resolution]))
    exposures = np.quantile(rows, SHARES, method="inverted_cdf")
    return {
        **{f"exposure-{index}": float(value) for index, value in enumerate(exposures)},
        **{f"certainty-{index}": expit(value) for index, value in enumerate(exposures)},
        "posterior": float(most.expected_posterior()[0]),
        "advantage": float(most.advantage[0]),
    }


def shown(page):
    """The figures on the page, in full."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    figures = page.locator("[data-widget=slider] output").evaluate_all(
        "all => all.map(one => [one.dataset.output, one.dataset.value])"
    )
    return {name: float(value) for name, value in figures}


def near(wanted):
    return {name: pytest.approx(value, rel=1e-6) for name, value in wanted.items()}


def read_shown(page):
    """Pairs of what stands in the page and the figure in full, of what has one."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    figures = page.locator("[data-widget=slider] output").evaluate_all(
        "all => all.map(one => [one.textContent, one.dataset.value])"
    )
    return [(text, read(text), Decimal(value)) for text, value in figures]


@pytest.mark.parametrize("case", CASES)
def test_what_is_shown_is_rounded_up(open_page, shelf, case):
    page = open_page(shelf(f"slider-{case}", lambda: built(case)))
    for epsilon in (None, *EPSILONS, 0.3, 2.2, 33.0):
        if epsilon is not None:
            page.get_by_label("ε =", exact=True).fill(str(epsilon))
        for text, shown_value, value in read_shown(page):
            room = Decimal("0.001") if text.endswith("%") else value / 100
            assert value <= shown_value <= value + room, (epsilon, text, value)


@pytest.mark.parametrize("case", CASES)
def test_the_figures_are_those_of_python(open_page, shelf, case):
    page = open_page(shelf(f"slider-{case}", lambda: built(case)))
    number = page.get_by_label("ε =", exact=True)
    own = shown(page)
    assert own == near(expected(case, 1.0))
    for epsilon in EPSILONS:
        number.fill(str(epsilon))
        figures = shown(page)
        assert figures == near(expected(case, epsilon))
        # A slider that stood still would be seen.
        assert (figures == near(own)) == (epsilon == 1.0)


def test_the_expected_curve_moves_and_the_models_own_does_not(open_page, shelf):
    page = open_page(shelf("slider-laplace-2", lambda: built("laplace-2")))
    release, own_profile = profiled("laplace-2")
    chart = page.locator("figure[data-figure=profile] svg[data-quantity=rank]")

    def points(role):
        text = chart.locator(f"polyline.{role}").get_attribute("points")
        return [tuple(map(float, pair.split(","))) for pair in text.split()]

    own, before = points("main"), points("second")
    page.get_by_label("ε =", exact=True).fill("0.5")
    shown(page)
    assert points("main") == own
    low, high, kind = chart.get_attribute("data-y").split()
    assert kind == "linear"
    top, bottom = chart.locator("clipPath rect").evaluate(
        "one => [one.y.baseVal.value, one.y.baseVal.value + one.height.baseVal.value]"
    )
    mechanism = replace(release.mechanism, epsilon=0.5)
    law = mechanism.loss_law(own_profile.distance / mechanism.resolution)
    heights = expit(np.sort(law.expected_exposure)[::-1])
    drawn = bottom - (bottom - top) * (heights - float(low)) / (float(high) - float(low))
    np.testing.assert_allclose([y for _, y in points("second")], drawn, atol=0.051)
    assert [x for x, _ in points("second")] == [x for x, _ in before]
    assert abs(points("second")[0][1] - before[0][1]) > 1


def test_the_curve_at_the_models_own_epsilon_is_the_one_that_python_drew(open_page, shelf):
    path = shelf("slider-laplace-2", lambda: built("laplace-2"))
    line = "figure[data-figure=profile] polyline.second"
    before = open_page(path, scripts=False).locator(line).get_attribute("points")
    assert open_page(path).locator(line).get_attribute("points") == before


def test_a_curve_beyond_the_chart_is_announced(open_page, shelf):
    page = open_page(shelf("slider-laplace-2", lambda: built("laplace-2")))
    note = page.locator("[data-beyond]")
    assert not note.is_visible()
    number = page.get_by_label("ε =", exact=True)
    number.fill("100")
    expect(note).to_contain_text("ε = 100")
    number.fill("1")
    expect(note).to_be_hidden()


def test_sliding_by_keyboard(open_page, shelf):
    page = open_page(shelf("slider-laplace-14", lambda: built("laplace-14")))
    slider = page.get_by_role("slider", name=re.compile("log scale"))
    slider.focus()
    assert slider.get_attribute("aria-valuetext") == "ε = 1"
    page.keyboard.press("ArrowRight")
    first = shown(page)
    # The figures next to the slider are those that are computed.
    used = float(page.locator("[data-widget=slider]").get_attribute("data-epsilon"))
    assert float(page.get_by_label("ε =", exact=True).input_value()) == used
    assert 1 < used < 1.02
    assert first == near(expected("laplace-14", used))
    page.keyboard.press("Home")
    assert shown(page) == near(expected("laplace-14", 0.01))
    page.keyboard.press("End")
    assert shown(page) == near(expected("laplace-14", 100.0))
    assert slider.get_attribute("aria-valuetext") == "ε = 100"
    page.get_by_role("button", name="back to the ε of this model").press("Enter")
    assert shown(page) == near(expected("laplace-14", 1.0))


def test_what_is_typed_is_kept_within_the_range(open_page, shelf):
    page = open_page(shelf("slider-laplace-2", lambda: built("laplace-2")))
    number = page.get_by_label("ε =", exact=True)
    for typed, used in (("1e9", 100.0), ("0.000001", 0.01), ("2.5", 2.5)):
        number.fill(typed)
        number.press("Tab")
        assert shown(page) == near(expected("laplace-2", used))
        assert float(number.input_value()) == used
    for senseless in ("", "-3", "0"):
        number.fill(senseless)
        assert shown(page) == near(expected("laplace-2", 2.5))


def test_it_is_said_once_when_the_slider_rests(open_page, shelf):
    page = open_page(shelf("slider-laplace-2", lambda: built("laplace-2")))
    live = page.locator("[data-widget=slider] [data-live]")
    assert live.text_content() == ""
    # All in one go: a machine that is busy between two of them would make a rest of it.
    at_once = page.evaluate(
        """() => {
            const live = document.querySelector('[data-widget=slider] [data-live]');
            window.said = 0;
            new MutationObserver(() => { window.said += 1; }).observe(live, {childList: true});
            const box = document.querySelector('[data-widget=slider] input[type=number]');
            for (const epsilon of ['3', '4', '5']) {
                box.value = epsilon;
                box.dispatchEvent(new Event('input', {bubbles: true}));
            }
            return live.textContent;
        }"""
    )
    assert at_once == ""
    expect(live).to_contain_text("At ε = 5 ")
    assert page.evaluate("window.said") == 1
    assert page.locator("output:not([aria-live=off])").count() == 0


def test_without_scripts_the_figures_of_the_model_stand_there(open_page, shelf):
    page = open_page(shelf("slider-laplace-2", lambda: built("laplace-2")), scripts=False)
    widget = page.locator("[data-widget=slider]")
    assert not widget.locator("input, button").first.is_visible()
    assert "1, the ε of this model" in widget.inner_text()
    values = expected("laplace-2", 1.0)
    shown_texts = widget.locator("dd:visible").all_inner_texts()
    texts = [text.removeprefix("at most ").removesuffix(" nats") for text in shown_texts[1:5]]
    for index, text in enumerate(texts):
        value = Decimal(values[f"exposure-{index}"])
        assert value <= read(text) <= value * Decimal("1.01")
    # The script replaces them by figures that move.
    assert (
        not open_page(shelf("slider-laplace-2", lambda: built("laplace-2")))
        .locator("[data-still] dd")
        .first.is_visible()
    )


def test_a_slider_moves_the_charts_of_its_own_document(open_page, made):
    page = open_page(made("several"))
    own = page.locator("figure[data-document=other] svg[data-quantity=epsilon]")
    assert own.count() == 2
    sliders = page.get_by_label("ε =", exact=True)
    assert sliders.count() == 2
    line = page.locator("[data-document=profile] polyline.second")
    curve = line.get_attribute("points")
    widget = page.locator("[data-widget=slider][data-document=other]")
    left, right = own.first.locator("clipPath rect").evaluate(
        "one => [one.x.baseVal.value, one.x.baseVal.value + one.width.baseVal.value]"
    )
    for epsilon in (0.02, 1.0, 50.0):
        widget.get_by_label("ε =", exact=True).fill(str(epsilon))
        shown(page)
        places = own.locator("line.moving").evaluate_all(
            "all => all.map(one => [one.x1.baseVal.value, one.x2.baseVal.value])"
        )
        at = left + (right - left) * np.log(epsilon / 0.01) / np.log(1e4)
        np.testing.assert_allclose(places, at, atol=0.051)
    assert line.get_attribute("points") == curve


def test_a_choice_of_epsilon_moves_a_line_in_its_charts(open_page, made):
    choice = chosen("laplace")
    page = open_page(made("epsilon"))
    charts = page.locator("svg[data-quantity=epsilon]")
    lines = charts.locator("line.moving")
    assert lines.count() == charts.count() > 0
    box = page.get_by_label("ε =", exact=True)
    low, high = (float(box.get_attribute(name)) for name in ("min", "max"))
    for epsilon in (low * 1.5, (low * high) ** 0.5, high / 1.5):
        box.fill(repr(epsilon))
        values = shown(page)
        sweep = replace(choice.sweep, epsilons=np.array([epsilon]))
        assert values["exposure-3"] == pytest.approx(np.max(sweep.expected), rel=1e-6)
        mechanism = sweep.mechanism.with_constants(epsilon=epsilon)
        law = mechanism.loss_law(np.array([sweep.farthest / mechanism.resolution]))
        posterior = law.expected_posterior(choice.limit.prior)[0]
        assert values["posterior"] == pytest.approx(posterior, rel=1e-6)
        for chart in charts.all():
            first, last, scale = chart.get_attribute("data-x").split()
            assert scale == "log"
            share = np.log(epsilon / float(first)) / np.log(float(last) / float(first))
            left, width = chart.locator("clipPath rect").evaluate(
                "one => [one.x.baseVal.value, one.width.baseVal.value]"
            )
            line = chart.locator("line.moving")
            assert float(line.get_attribute("x1")) == pytest.approx(left + share * width, abs=0.051)


STEPS = tuple(
    Step(
        epsilon=at,
        exposures=(0.1 * at, 0.2 * at, 0.3 * at, 0.4 * at),
        posterior=0.6 + at / 100,
        error=0,
    )
    for at in (0.5, 1.0, 2.0, 8.0)
)


def stepped():
    """A page whose slider has the values of ε that were tried."""
    slider = SliderData(
        low=0.5,
        high=8.0,
        start=2.0,
        start_label="the recommended ε",
        unit="row",
        prior=0.5,
        steps=STEPS,
    )
    section = Section(id="slider", title="Other ε", blocks=(slider_widget(slider),), nav="Exposure")
    document = Document(
        kind="epsilon", title="ε", audience=Audience.CURATOR_ONLY, sections=(section,)
    )
    return report.render_html(document)


def test_what_is_only_sampled_goes_by_steps(open_page, shelf):
    page = open_page(shelf("slider-steps", stepped))
    slider = page.get_by_role("slider", name=re.compile("tried"))
    slider.focus()
    assert slider.get_attribute("aria-valuetext") == "ε = 2"
    for key, index in (("Home", 0), ("ArrowRight", 1), ("End", 3), ("ArrowLeft", 2)):
        page.keyboard.press(key)
        values, step = shown(page), STEPS[index]
        for at, exposure in enumerate(step.exposures):
            assert values[f"exposure-{at}"] == exposure
            assert values[f"certainty-{at}"] == pytest.approx(expit(exposure))
        assert values["posterior"] == step.posterior
        assert "advantage" not in values
        assert float(page.get_by_label("ε =", exact=True).input_value()) == step.epsilon
    # Between two steps: the nearest.
    page.get_by_label("ε =", exact=True).fill("3.5")
    assert shown(page)["exposure-3"] == STEPS[2].exposures[3]


@pytest.mark.long
def test_the_figures_at_three_hundred_epsilons(open_page, shelf):
    """The largest difference from the law, of each figure and case, relative."""
    epsilons = np.exp(np.random.default_rng(SEED).uniform(np.log(0.01), np.log(100), 300)).tolist()
    computed = {}
    for case in LONG_CASES:
        page = open_page(shelf(f"slider-{case}", lambda case=case: built(case)))
        shown_at = page.evaluate(
            """async epsilons => {
                const number = document.querySelector('[data-widget=slider] input[type=number]'), found = [];
                for (const epsilon of epsilons) {
                    number.value = String(epsilon);
                    number.dispatchEvent(new Event('input'));
                    await new Promise(requestAnimationFrame);
                    await new Promise(requestAnimationFrame);
                    found.push([...document.querySelectorAll('[data-widget=slider] output')].map(
                        one => [one.dataset.output, Number(one.dataset.value)]));
                }
                return found;
            }""",
            epsilons,
        )
        errors = {}
        for epsilon, figures in zip(epsilons, shown_at, strict=True):
            wanted = expected(case, epsilon)
            for name, value in figures:
                error = abs(value / wanted[name] - 1)
                errors[name] = max(errors.get(name, 0.0), error)
        assert set(errors) == set(expected(case, 1.0))
        assert max(errors.values()) < 1e-8
        computed[case] = errors
    figures = {"epsilons": len(epsilons), "largest relative error": computed}
    print(json.dumps(figures, indent=1))
    record("report-slider", command=COMMAND, seed=SEED, figures=figures)
