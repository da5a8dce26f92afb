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

import expost
import expost.report as report
from evidence import record
from expost.epsilon.choice import EpsilonChoice
from expost.epsilon.limit import PosteriorLimit
from expost.epsilon.recommend import Recommendation, Verdict
from expost.epsilon.sampled import SampledSweep
from expost.errors import SeededReleaseWarning
from expost.report.slider import SHARES
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
    return model.release_, expost.profile(model, X, y)


def built(case):
    release, profile = profiled(case)
    return report.render_html(report.collect(profile, release=release))


def expected(case, epsilon):
    """The figures by the law, without any table."""
    release, profile = profiled(case)
    how = replace(release.mechanism, epsilon=epsilon)
    rows = how.loss_law(profile.distance / how.resolution).expected_exposure
    farthest = np.max(profile.distance + profile.losses.distance_error)
    most = how.loss_law(np.array([farthest / how.resolution]))
    typical = np.quantile(rows, SHARES, method="inverted_cdf")
    advantage = float(most.advantage[0])
    return {
        **{f"typical-{place}": float(value) for place, value in enumerate(typical)},
        "belief": float(most.expected_belief()[0]),
        "advantage": advantage,
        "wrong": 2 / (1 - advantage) if advantage < 1 else np.inf,
    }


def shown(page):
    """The figures on the page, in full."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    found = page.locator("[data-slider] output").evaluate_all(
        "all => all.map(one => [one.dataset.figure, one.dataset.value])"
    )
    return {name: float(value) for name, value in found}


def near(wanted):
    return {
        # One over a small difference from 1: as good as the difference is.
        name: pytest.approx(value, rel=1e-6 if name != "wrong" else max(1e-6, 1e-9 * value))
        for name, value in wanted.items()
    }


def read_shown(page):
    """Pairs of what stands in the page and the figure in full, of what has one."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    found = page.locator("[data-slider] output").evaluate_all(
        "all => all.map(one => [one.textContent, one.dataset.value])"
    )
    return [
        (text, read(text.removeprefix("1 time in ")), Decimal(value))
        for text, value in found
        if not text.startswith("less than")
    ]


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
        found = shown(page)
        assert found == near(expected(case, epsilon))
        # A slider that stood still would be seen.
        assert (found == near(own)) == (epsilon == 1.0)


def test_the_curve_of_typical_exposures_moves_and_the_models_own_does_not(open_page, shelf):
    page = open_page(shelf("slider-laplace-2", lambda: built("laplace-2")))
    release, profile = profiled("laplace-2")

    def points(name):
        text = page.locator(f"[data-profile-chart] polyline.{name}").get_attribute("points")
        return [tuple(map(float, pair.split(","))) for pair in text.split()]

    own, typical = points("scores"), points("typical")
    page.get_by_label("ε =", exact=True).fill("0.5")
    shown(page)
    assert points("scores") == own
    low, high = map(float, page.locator("[data-scores]").get_attribute("data-scores").split())
    top, bottom = page.locator("[data-profile-chart] clipPath rect").evaluate(
        "one => [one.y.baseVal.value, one.y.baseVal.value + one.height.baseVal.value]"
    )
    how = replace(release.mechanism, epsilon=0.5)
    heights = np.sort(how.loss_law(profile.distance / how.resolution).expected_exposure)[::-1]
    drawn = bottom - (bottom - top) * np.log(heights / low) / np.log(high / low)
    np.testing.assert_allclose([y for _, y in points("typical")], drawn, atol=0.051)
    assert [x for x, _ in points("typical")] == [x for x, _ in typical]
    assert abs(points("typical")[0][1] - typical[0][1]) > 5


def test_it_says_where_the_typical_curve_went(open_page, shelf):
    page = open_page(shelf("slider-laplace-2", lambda: built("laplace-2")))
    note = page.locator("[data-above]")
    assert not note.is_visible()
    number = page.get_by_label("ε =", exact=True)
    number.fill("100")
    expect(note).to_have_text("At ε = 100 the typical curve begins above the chart.")
    number.fill("1")
    expect(note).to_be_hidden()


def test_sliding_by_keyboard(open_page, shelf):
    page = open_page(shelf("slider-laplace-14", lambda: built("laplace-14")))
    slider = page.get_by_role("slider", name=re.compile("log scale"))
    slider.focus()
    assert slider.get_attribute("aria-valuetext") == "ε = 1"
    page.keyboard.press("ArrowRight")
    first = shown(page)
    # What is shown beside it is what is computed.
    used = float(page.locator("[data-slider]").get_attribute("data-epsilon"))
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
    live = page.locator("[data-slider] [data-live]")
    assert live.text_content() == ""
    # All in one go: a machine that is busy between two of them would make a rest of it.
    at_once = page.evaluate(
        """() => {
            const live = document.querySelector('[data-slider] [data-live]');
            window.said = 0;
            new MutationObserver(() => { window.said += 1; }).observe(live, {childList: true});
            const box = document.querySelector('#slider-number');
            for (const epsilon of ['3', '4', '5']) {
                box.value = epsilon;
                box.dispatchEvent(new Event('input', {bubbles: true}));
            }
            return live.textContent;
        }"""
    )
    assert at_once == ""
    expect(live).to_contain_text("At ε = 5 the largest typical exposure is ")
    assert page.evaluate("window.said") == 1
    assert page.locator("[data-slider] output:not([aria-live=off])").count() == 0


def test_without_scripts_the_figures_of_the_model_stand_there(open_page, shelf):
    page = open_page(shelf("slider-laplace-2", lambda: built("laplace-2")), scripts=False)
    section = page.locator("[data-slider]")
    assert not section.locator("input, button").first.is_visible()
    assert "At ε = 1, the ε of this model" in section.inner_text()
    found = {
        one.get_attribute("data-figure"): float(one.get_attribute("data-value"))
        for one in section.locator("output").all()
    }
    assert found == near(expected("laplace-2", 1.0))


def test_a_choice_of_epsilon_moves_a_line_in_its_charts(open_page, shelf):
    choice = chosen("laplace")
    path = shelf("slider-choice", lambda: report.render_html(report.collect(choice)))
    page = open_page(path)
    slider = json.loads(page.locator("#expost-data").text_content())["slider"]
    lines = page.locator("[data-transition] line.moving")
    assert lines.count() == 3
    low, high = slider["low"], slider["high"]
    for epsilon in (low * 1.5, (low * high) ** 0.5, high / 1.5):
        page.get_by_label("ε =", exact=True).fill(repr(epsilon))
        found = shown(page)
        there = replace(choice.sweep, epsilons=np.array([epsilon]))
        assert found["typical-3"] == pytest.approx(np.max(there.typical), rel=1e-6)
        how = there.mechanism.with_constants(epsilon=epsilon)
        law = how.loss_law(np.array([there.farthest / how.resolution]))
        belief = law.expected_belief(choice.limit.prior)[0]
        assert found["belief"] == pytest.approx(belief, rel=1e-6)
        places = lines.evaluate_all(
            "all => all.map(one => [one.x1.baseVal.value, one.x2.baseVal.value])"
        )
        left, right = page.locator("[data-transition] clipPath rect").first.evaluate(
            "one => [one.x.baseVal.value, one.x.baseVal.value + one.width.baseVal.value]"
        )
        at = left + (right - left) * np.log(epsilon / low) / np.log(high / low)
        np.testing.assert_allclose(places, at, atol=0.051)


def test_charts_of_other_models_stand_still(open_page, shelf):
    """A profile and a choice of ε that are not compared: the slider is the profile's alone."""
    release, profile = profiled("laplace-2")
    both = report.collect(profile, chosen(), release=release)
    page = open_page(shelf("slider-mixed", lambda: report.render_html(both)))
    assert "they are not compared" in page.locator("body").inner_text()
    assert page.locator("[data-transition] svg[role=img]").count() == 3
    page.get_by_label("ε =", exact=True).fill("50")
    assert shown(page) == near(expected("laplace-2", 50.0))
    assert page.locator("line.moving").count() == 0


class Halves:
    """A mechanism without a closed form."""

    rows = 4

    def sample(self, epsilon, count, rng):
        return rng.normal(size=(count, 1))

    def losses(self, epsilon, models, seed):
        return epsilon * np.arange(1, 5) / 4 * np.tanh(models + 0.3)


def test_what_is_only_sampled_goes_by_steps(open_page, shelf):
    limit = PosteriorLimit(max_posterior=0.9)
    sweep = SampledSweep(
        mechanism=Halves(),
        epsilons=np.array([0.5, 1.0, 2.0, 8.0]),
        tolerance=0.1,
        share=0.5,
        models=200,
        limit=limit,
        seed=np.random.SeedSequence(3),
    )
    choice = EpsilonChoice(
        sweep=sweep,
        limit=limit,
        utility=None,
        recommendation=Recommendation(
            verdict=Verdict.MOST, epsilon=2.0, ceiling=2.0, reasons=("because",)
        ),
        description="halves",
        notices=(),
    )
    page = open_page(shelf("slider-steps", lambda: report.render_html(report.collect(choice))))
    slider = page.get_by_role("slider", name=re.compile("tried"))
    slider.focus()
    assert slider.get_attribute("aria-valuetext") == "ε = 2"
    for key, place in (("Home", 0), ("ArrowRight", 1), ("End", 3), ("ArrowLeft", 2)):
        page.keyboard.press(key)
        found = shown(page)
        assert set(found) == {"typical-0", "typical-1", "typical-2", "typical-3", "belief"}
        assert found["typical-0"] == sorted(sweep.typical[place])[1]
        assert found["typical-3"] == max(sweep.typical[place])
        assert found["belief"] == sweep.posterior(sweep.epsilons)[place]
        assert float(page.get_by_label("ε =", exact=True).input_value()) == sweep.epsilons[place]
    # Between two steps: the nearest.
    page.get_by_label("ε =", exact=True).fill("3.5")
    assert shown(page)["typical-3"] == max(sweep.typical[2])


@pytest.mark.long
def test_the_figures_at_three_hundred_epsilons(open_page, shelf):
    """The largest difference from the law, of each figure and case, relative."""
    epsilons = np.exp(np.random.default_rng(SEED).uniform(np.log(0.01), np.log(100), 300)).tolist()
    found = {}
    for case in LONG_CASES:
        page = open_page(shelf(f"slider-{case}", lambda case=case: built(case)))
        shown_at = page.evaluate(
            """async epsilons => {
                const number = document.getElementById('slider-number'), found = [];
                for (const epsilon of epsilons) {
                    number.value = String(epsilon);
                    number.dispatchEvent(new Event('input'));
                    await new Promise(requestAnimationFrame);
                    await new Promise(requestAnimationFrame);
                    found.push([...document.querySelectorAll('[data-slider] output')].map(
                        one => [one.dataset.figure, Number(one.dataset.value)]));
                }
                return found;
            }""",
            epsilons,
        )
        errors = {}
        for epsilon, figures in zip(epsilons, shown_at, strict=True):
            wanted = expected(case, epsilon)
            for name, value in figures:
                if name != "wrong":
                    error = abs(value / wanted[name] - 1)
                    errors[name] = max(errors.get(name, 0.0), error)
        assert set(errors) == set(expected(case, 1.0)) - {"wrong"}
        assert max(errors.values()) < 1e-8
        found[case] = errors
    figures = {"epsilons": len(epsilons), "largest relative error": found}
    print(json.dumps(figures, indent=1))
    record("report-slider", command=COMMAND, seed=SEED, figures=figures)
