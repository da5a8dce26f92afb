"""The form of a published report: equal to Python, and for everybody."""

import math
import os
import re
from dataclasses import dataclass

import numpy as np
import pytest

from evidence import record
from expost.errors import InvalidInput
from expost.numbers import certainty
from expost.report import page_of, render_html

from .person_cases import CASES, Case, random_report, random_rows
from .test_keyboard import tabbed_to
from .watching import DESKTOP, PHONE

FORM = "[data-widget=form]"
LOOK_UP = f"rows => rows.map(row => document.querySelector('{FORM}').lookUp(row))"
COUNT = 1_000
# A phone of 360 CSS pixels.
SMALL = (360, 740)
COMMAND = "pytest -m long tests/browser/test_person.py"


@dataclass
class Compared:
    """How far the page is from Python over some rows: relative, above (> 0) and below."""

    rows: int = 0
    figures: int = 0
    clipped: int = 0
    noted: int = 0
    below: int = 0
    most: float = 0.0
    least: float = 0.0


def page_file(shelf, name: str):
    """The page of this process' own report: its model was drawn without a seed."""
    slug = re.sub(r"\W+", "-", f"{os.environ.get('PYTEST_XDIST_WORKER', '')} {name}")
    return shelf(f"person-{slug}", lambda: render_html(page_of(CASES[name].build())))


def compared(page, case: Case, rows: int, seed: int) -> Compared:
    """Both answers to the same random values."""
    return both_answers(page, case.build(), random_rows(case, rows, seed), Compared())


def both_answers(page, report, drawn, total: Compared) -> Compared:
    """Bounds, notes and labels of the page and of Python, added to a total."""
    found = page.evaluate(LOOK_UP, [texts for _, _, texts in drawn])
    for (values, label, _), shown in zip(drawn, found, strict=True):
        answers = report.lookup(values, label)
        assert not any(shown["errors"])
        notes = [note for note in shown["notes"] if note is not None] + shown["row_notes"]
        assert set(notes) == set(answers[0].notes)
        total.rows += 1
        total.clipped += bool(shown["row_notes"])
        total.noted += bool(notes)
        for answer, own in zip(answers, shown["answers"], strict=True):
            assert own["label"] == (str(answer.label) if label is None else label)
            for name in ("exposure", "everything"):
                exact, here = getattr(answer, name), own[name]
                assert 0 <= exact < math.inf
                apart = (here - exact) / exact if exact > 0 else here
                total.most, total.least = max(total.most, apart), min(total.least, apart)
                total.figures += 1
                total.below += apart < 0
    return total


@pytest.mark.parametrize("name", CASES)
def test_the_page_computes_what_python_computes(open_page, shelf, name):
    page = open_page(page_file(shelf, name))
    total = compared(page, CASES[name], COUNT, seed=3)
    # Never less than Python, and equal to 1e-9.
    assert total.least >= 0
    assert total.most <= 1e-9
    # Rows of every kind are among them.
    assert total.rows == COUNT
    assert COUNT / 20 < total.clipped < COUNT
    assert total.noted > COUNT / 20


def compared_random(open_page, tmp_path, models: int, seed: int) -> Compared:
    """Random models: their own rows and rows of any size, a hundred of each."""
    rng, total, page, path = np.random.default_rng(seed), Compared(), None, tmp_path / "page.html"
    for _ in range(models):
        report, X = random_report(rng)
        path.write_text(render_html(page_of(report)), encoding="utf-8")
        # One window for all of them.
        if page is None:
            page = open_page(path)
        else:
            page.reload()
        own = X[rng.integers(len(X), size=100)] * rng.choice([0, 1, 1, 2], size=100)[:, None]
        other = rng.normal(size=own.shape) * 10 ** rng.uniform(-6, 6, size=100)[:, None]
        drawn = []
        for row in (*own, *other):
            texts = [repr(float(value)) for value in row]
            label = repr(float(rng.uniform(-4, 5))) if report.release.classes is None else None
            values = dict(zip(report.form.names, texts, strict=True))
            drawn.append((values, label, texts if label is None else [*texts, label]))
        both_answers(page, report, drawn, total)
    return total


def test_random_models_are_those_of_python(open_page, tmp_path):
    total = compared_random(open_page, tmp_path, models=6, seed=1)
    assert total.below == 0
    assert total.most <= 1e-9


EXTREMES = (
    *("1e150", "-1e150", "1e-320", "-0", "0", "+5.", " .5 ", "80", "80.00000000000001", "1e9"),
    *("3,5", "−2", "−,25", "1,2345"),
)


@pytest.mark.parametrize(
    "name", ["plain numbers, gaussian, logistic", "dependent, laplace, logistic"]
)
def test_extreme_numbers_are_those_of_python(open_page, shelf, name):
    """Squares that over- and underflow, rows of zeros, ends of ranges."""
    page, report = open_page(page_file(shelf, name)), CASES[name].build()
    rest = ["40", "1", "1"][: len(report.form.names) - 2]
    python = ["40", "nurse", "Oslo"][: len(rest)]
    pairs = [(first, second) for first in EXTREMES for second in EXTREMES]
    found = page.evaluate(LOOK_UP, [[*pair, *rest] for pair in pairs])
    for pair, shown in zip(pairs, found, strict=True):
        values = dict(zip(report.form.names, [*pair, *python], strict=True))
        for answer, own in zip(report.lookup(values), shown["answers"], strict=True):
            assert answer.exposure <= own["exposure"] <= answer.exposure * (1 + 1e-9)
            assert answer.everything <= own["everything"] <= answer.everything * (1 + 1e-9)


REFUSED = (
    *("1_000", "1,000", "1 000", "1'000", "١٢", "½"),
    *("inf", "-Infinity", "nan", "0x10", "1e", "5%"),
)


def test_what_is_no_number_has_one_sentence_in_both(open_page, shelf):
    name = "dependent, laplace, logistic"
    page, report = open_page(page_file(shelf, name)), CASES[name].build()
    rest = {"income": "2", "hours": "40", "job": "nurse", "town": "Oslo"}
    found = page.evaluate(LOOK_UP, [[text, "2", "40", "1", "1"] for text in (*REFUSED, "1e999")])
    for text, shown in zip((*REFUSED, "1e999"), found, strict=True):
        with pytest.raises(InvalidInput) as error:
            report.lookup({"age": text} | rest)
        assert shown["errors"][0] == str(error.value)


@pytest.mark.long
def test_the_evidence_of_the_page(open_page, shelf, tmp_path):
    figures = {}
    for name, case in CASES.items():
        page = open_page(page_file(shelf, name))
        total = compared(page, case, COUNT, seed=20261118)
        assert total.below == 0
        assert total.most <= 1e-9
        figures[name] = {
            "rows": total.rows,
            "figures": total.figures,
            "rows that were clipped": total.clipped,
            "rows with a note": total.noted,
            "largest relative difference": total.most,
            "figures below Python's": total.below,
            "bytes of the page": page_file(shelf, name).stat().st_size,
        }
    total = compared_random(open_page, tmp_path, models=40, seed=20261118)
    assert total.below == 0
    assert total.most <= 1e-9
    figures["40 random models of plain numbers"] = {
        "rows": total.rows,
        "figures": total.figures,
        "rows that were clipped": total.clipped,
        "largest relative difference": total.most,
        "figures below Python's": total.below,
    }
    record("person-page", command=COMMAND, seed=20261118, figures=figures)


def test_a_difference_would_be_seen(open_page, shelf):
    """Power: the values of another person give another bound."""
    name = "objective, gaussian, softmax"
    page = open_page(page_file(shelf, name))
    values = {"age": "39", "income": "2", "hours": "40", "job": "nurse", "town": "Oslo"}
    (shown,) = page.evaluate(LOOK_UP, [["39", "2", "40", "1", "1"]])
    other = CASES[name].build().lookup(values | {"age": "40"})
    apart = [
        abs(own["exposure"] / answer.exposure - 1)
        for own, answer in zip(shown["answers"], other, strict=True)
    ]
    assert max(apart) > 1e-6


def test_labels_that_are_shown_together_hold_together(open_page, shelf):
    """What the page shows for all labels is not what it would show for one alone."""
    report = CASES["objective, gaussian, softmax"].build()
    (values, _, _), *_ = random_rows(CASES["objective, gaussian, softmax"], 1, seed=4)
    for answer in report.lookup(values):
        (alone,) = report.lookup(values, answer.label)
        assert alone.exposure < answer.exposure
        assert alone.fails_with == answer.fails_with == report.fails_with


# -- what is typed ---------------------------------------------------------------------------------


def fill(page, **values):
    """Type values by the labels of their fields; those of lists are chosen."""
    for name, value in values.items():
        field = page.locator(FORM).get_by_label(name, exact=False)
        if name in ("job", "town"):
            field.select_option(label=value)
        else:
            field.fill(value)


def messages(page):
    """The visible messages next to the fields, by the label of each field."""
    return page.locator(f"{FORM} .field").evaluate_all(
        """all => Object.fromEntries(all.map(one => [
            one.querySelector('label').firstChild.textContent.trim(),
            [...one.querySelectorAll('.message')].filter(m => m.checkVisibility())
                .map(m => m.textContent).join(' '),
        ]).filter(([, text]) => text))"""
    )


@pytest.fixture
def dependent(open_page, shelf):
    return open_page(page_file(shelf, "dependent, gaussian, logistic"))


def test_an_empty_form_has_an_error_at_each_field_that_needs_a_value(dependent):
    dependent.locator("[data-show]").click()
    errors = dependent.locator("[data-errors]")
    assert errors.is_visible()
    assert errors.get_by_role("link").count() == 4
    assert errors.evaluate("one => one === document.activeElement")
    assert set(messages(dependent)) >= {"age", "income", "job", "town"}
    assert dependent.locator("[data-answer]").is_hidden()
    assert dependent.locator("[aria-invalid=true]").count() == 4
    errors.get_by_role("link").nth(1).click()
    assert dependent.evaluate("document.activeElement.labels[0].textContent").startswith("income")


@pytest.mark.parametrize(
    ("changes", "field", "fragment"),
    [
        ({"age": "39,500"}, "age", "without a comma"),
        ({"age": "1,234.5"}, "age", "without a comma"),
        ({"age": "1,2,3"}, "age", "without a comma"),
        ({"age": "old"}, "age", "must be a number"),
        ({"age": "0x10"}, "age", "must be a number"),
        ({"age": "1e999"}, "age", "too large"),
        ({"age": "Infinity"}, "age", "must be a number"),
        ({"age": ""}, "age", "must have a value"),
        ({"age": "?"}, "age", "must have a value"),
        ({"town": "choose …"}, "town", "choose a value"),
    ],
)
def test_what_is_no_number_is_an_error_next_to_its_field(dependent, changes, field, fragment):
    fill(dependent, **{"age": "39", "income": "2", "job": "nurse", "town": "Oslo"} | changes)
    dependent.locator("[data-show]").click()
    assert fragment in messages(dependent)[field]
    assert dependent.locator("[data-answer]").is_hidden()
    fill(dependent, age="39", town="Oslo")
    dependent.locator("[data-show]").click()
    assert dependent.locator("[data-errors]").is_hidden()
    assert dependent.locator("[data-answer]").is_visible()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"age": "140"}, "age"),
        ({"hours": "?"}, "hours"),
        ({"job": "not known"}, "job"),
        ({"job": "none of these"}, "job"),
        ({"town": "none of these"}, "town"),
    ],
)
def test_notes_are_those_of_python(dependent, changes, field):
    report = CASES["dependent, gaussian, logistic"].build()
    values = {"age": "39", "income": "2", "hours": "40", "job": "nurse", "town": "Oslo"} | changes
    fill(dependent, **values)
    dependent.locator("[data-show]").click()
    python = {"not known": "", "none of these": "unheard of"}
    (answer, _) = report.lookup({name: python.get(text, text) for name, text in values.items()})
    (note,) = [note for note in answer.notes if repr(field) in note]
    assert messages(dependent) == {field: note}
    assert note in dependent.locator("[data-notes]").inner_text()


def test_the_answer_shows_what_lookup_prints(dependent):
    report = CASES["dependent, gaussian, logistic"].build()
    values = {"age": "39", "income": "2", "hours": "40", "job": "nurse", "town": "Oslo"}
    fill(dependent, **values)
    dependent.locator("[data-show]").click()
    answers = report.lookup(values)
    worst = max(answer.everything for answer in answers)
    shown = certainty(worst).replace(" ", "\N{NO-BREAK SPACE}")
    assert f"at most {shown} certain" in dependent.locator("[data-sentence]").inner_text()
    assert dependent.locator("[data-live]").text_content() == (
        dependent.locator("[data-sentence]").text_content()
    )
    cells = dependent.locator("[data-answers] tr").evaluate_all(
        "all => all.map(line => [...line.children].map(cell => cell.textContent))"
    )
    for answer, line in zip(answers, cells, strict=True):
        figures = (certainty(answer.exposure), certainty(answer.everything))
        assert line[:3] == [
            answer.label,
            *(figure.replace(" ", "\N{NO-BREAK SPACE}") for figure in figures),
        ]
    # Of 100 people, rounded up; the first fifty by guessing.
    judged = dependent.locator("[data-judged]").inner_text()
    people_shown = int(re.search(r"at most (\d+) judgements", judged)[1])
    assert people_shown == math.ceil(100 / (1 + math.exp(-worst)))
    drawn = dependent.locator("[data-people] path").evaluate_all(
        "all => all.map(one => one.getAttribute('d').split('M').length - 1)"
    )
    assert drawn == [50, people_shown - 50, 100 - people_shown]
    # The same row in other characters was not tried twice.
    fill(dependent, age=" 39,0 ")
    dependent.locator("[data-show]").click()
    assert "different rows" not in dependent.locator("[data-notes]").inner_text()
    # A changed value takes the answer away; the next one counts what was tried.
    fill(dependent, age="40")
    assert dependent.locator("[data-answer]").is_hidden()
    dependent.locator("[data-show]").click()
    assert "tried 2 different rows" in dependent.locator("[data-notes]").inner_text()
    dependent.locator("[data-clear]").click()
    assert dependent.locator("[data-answer]").is_hidden()
    assert dependent.locator(f"{FORM} input").first.input_value() == ""


def test_a_regression_asks_for_the_number_that_is_predicted(open_page, shelf):
    name = "output, laplace, huber"
    page, report = open_page(page_file(shelf, name)), CASES[name].build()
    values = {"age": "39", "income": "2", "hours": "40", "job": "nurse", "town": "Oslo"}
    fill(page, **values)
    page.locator("[data-show]").click()
    assert "predicts a number" in messages(page)["y"]
    page.locator(f"{FORM} fieldset").last.get_by_role("textbox").fill("30")
    page.locator("[data-show]").click()
    (answer,) = report.lookup(values, "30")
    assert answer.notes[0] in page.locator("[data-notes]").inner_text()
    shown = page.locator("[data-answers] td").first.inner_text()
    assert shown.replace("\N{NO-BREAK SPACE}", " ") == certainty(answer.exposure)


def test_the_meaning_of_the_bound_is_next_to_it(dependent, open_page, shelf):
    """Where a phone shows it, the chance in words."""
    verdict = dependent.locator("[data-answer] .verdict").text_content()
    assert (
        "fixed before the noise of the model and of this report was drawn, as yours was." in verdict
    )
    assert re.search(r"at most 1 in \d", verdict)
    assert "⁻" not in verdict
    uniform = open_page(page_file(shelf, "output, laplace, logistic"))
    assert "fixed before" not in uniform.locator("[data-answer] .verdict").text_content()


# -- who uses it -----------------------------------------------------------------------------------


def test_the_whole_form_by_keyboard_alone(open_page, shelf):
    page = open_page(page_file(shelf, "dependent, gaussian, logistic"), size=SMALL)
    tabbed_to(page, f"{FORM} input")
    page.keyboard.type("39")
    page.keyboard.press("Tab")
    page.keyboard.type("x")
    # Enter shows the errors, which take the focus; a link leads to the field.
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.matches('[data-errors]')")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.labels[0].textContent").startswith("income")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("2.5")
    page.keyboard.press("Tab")
    page.keyboard.type("40")
    page.keyboard.press("Tab")
    page.keyboard.type("pilot")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('[data-show]')")
    page.keyboard.press("Space")
    assert page.locator("[data-errors]").is_hidden()
    values = {"age": "39", "income": "2.5", "hours": "40", "job": "pilot", "town": "Oslo"}
    worst = max(
        answer.everything
        for answer in CASES["dependent, gaussian, logistic"].build().lookup(values)
    )
    shown = certainty(worst).replace(" ", "\N{NO-BREAK SPACE}")
    sentence = page.locator("[data-sentence]")
    assert f"at most {shown} certain" in sentence.inner_text()
    # The answer is spoken, and its beginning can be seen without scrolling by hand.
    assert page.locator("[aria-live=polite][data-live]").text_content() == sentence.text_content()
    assert sentence.evaluate("one => one.getBoundingClientRect().top < innerHeight")


@pytest.mark.parametrize("name", ["dependent, gaussian, logistic", "output, laplace, huber"])
def test_axe_finds_nothing_with_errors_and_with_an_answer(axe, shelf, name):
    page, found = axe.open(page_file(shelf, name)), []
    for size, scheme in ((DESKTOP, "light"), (PHONE, "dark"), (SMALL, "light")):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.emulate_media(color_scheme=scheme)
        page.locator("[data-clear]").click()
        page.locator("[data-show]").click()
        found += axe.violations(page) + axe.contrasts(page)
        fill(page, age="390", income="2", hours="", job="nurse", town="none of these")
        if CASES[name].classes is None:
            page.locator(f"{FORM} fieldset").last.get_by_role("textbox").fill("3")
        page.locator("[data-show]").click()
        assert page.locator("[data-answer]").is_visible()
        found += axe.violations(page) + axe.contrasts(page)
        assert page.evaluate("document.documentElement.scrollWidth") == size[0]
    assert found == []


def test_every_field_has_a_label_a_hint_and_its_message(open_page, shelf):
    page = open_page(page_file(shelf, "dependent, gaussian, logistic"))
    age = page.get_by_role("textbox", name="age (years)")
    assert age.get_attribute("aria-required") == "true"
    # A keyboard for decimals may have no minus sign, or no point.
    assert age.get_attribute("inputmode") is None
    described = age.get_attribute("aria-describedby").split()
    assert page.locator(f"#{described[0]}").inner_text() == "15 to 75"
    assert page.get_by_text("any number", exact=True).count() == 1
    # Nothing typed is remembered by the browser, or sent to a spelling service.
    for field in page.locator(f"{FORM} [data-value]").all():
        assert field.get_attribute("autocomplete") == "off"
    assert page.locator(f"{FORM} input:not([spellcheck=false])").count() == 0
    assert page.get_by_role("group", name="Your values").count() == 1
    town = page.get_by_role("combobox", name="town").locator("option")
    assert town.all_inner_texts() == ["choose …", "Bergen", "Oslo", "none of these", "not known"]


def test_paper_shows_the_answer_without_the_form(dependent):
    fill(dependent, age="39", income="2", hours="40", job="nurse", town="Oslo")
    dependent.locator("[data-show]").click()
    dependent.emulate_media(media="print")
    assert dependent.locator(f"{FORM} input").locator("visible=true").count() == 0
    assert dependent.locator("[data-sentence]").is_visible()


def test_the_form_comes_first(dependent):
    titles = dependent.locator("main h2").all_inner_texts()
    assert titles[0].startswith("What can this model reveal")
    top = dependent.locator("[data-show]").bounding_box()
    assert top["y"] < dependent.locator(".tiles").bounding_box()["y"]
