"""The document of a published report: what was spent, what it bounds, and what a person looks up."""

import dataclasses
import math
import re
import shlex
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from expost import PrivateLogisticRegression, PrivateRidge
from expost.data import Encoding, NumericEntry, open_table
from expost.errors import InvalidInput
from expost.mechanisms.publishing import PublishingBudget
from expost.numbers import posterior_at
from expost.publishing.lookup import cut_range
from expost.publishing.publish import publish
from expost.report import Context, document_of, page_of, render_json, render_markdown, render_text
from expost.report.document import Bullets, Widget
from expost.report.sections.published_figure import bounds_figure
from expost.types import Audience
from read_figures import read

from .cells import certainty_up, check_document, column, rounded_up, tables
from .conftest import HOSTILE

ROWS = 80
BUDGET = PublishingBudget(epsilon_gradient=0.7, epsilon_hessian=0.3, delta=1e-6)
PERSON = {"age": 73.5192837, "town": "Bergen"}
PUBLIC = {
    "columns": {"age": {"mean": 45, "scale": 20}, "town": {"levels": ["Bergen", "Oslo"]}},
    "target": {"classes": ["poor", "rich"]},
    "data_norm": 5,
}


@cache
def report(kind="data-dependent", noise="gaussian"):
    """Of a model made from a table, whose noise came from no seed."""
    rng = np.random.default_rng(2)
    ages, towns = rng.integers(18, 90, ROWS), rng.choice(["Bergen", "Oslo"], ROWS)
    labels = np.where(ages + rng.normal(scale=20, size=ROWS) > 50, "rich", "poor")
    table = open_table(pd.DataFrame({"age": ages, "town": towns, "income": labels}))
    encoding = Encoding.read(table, target="income", given=PUBLIC)
    X = encoding.encode_table(table).X
    options = {"mechanism": "objective", "noise": noise, "regularization": 0.5}
    if noise == "gaussian":
        options |= {"delta": 1e-6, "regularization": "for-publishing", "publishing": BUDGET}
    model = PrivateLogisticRegression(**options, data_norm=5.0, classes=("poor", "rich"))
    release = dataclasses.replace(
        model.fit(X, labels).release_,
        encoding=encoding.to_json(),
        feature_names=encoding.feature_names,
    )
    spent = {"epsilon_gradient": 0.7, "epsilon_hessian": 0.3}
    return publish(release, X, labels, kind=kind, **(spent if kind == "data-dependent" else {}))


@cache
def uniform():
    """Of output perturbation with norm-Laplace noise: one event serves all rows."""
    rng = np.random.default_rng(2)
    table = pd.DataFrame(
        {"age": rng.integers(18, 90, ROWS), "town": rng.choice(["Bergen", "Oslo"], ROWS)}
    )
    model = PrivateLogisticRegression(
        **{"mechanism": "output", "noise": "laplace", "regularization": 0.5},
        encoding=PUBLIC,
        classes=("poor", "rich"),
    )
    return publish(model.fit(table, np.where(table["age"] > 50, "rich", "poor")))


KINDS = {
    "dependent": lambda: report(),
    "independent": lambda: report("data-independent"),
    "pure": lambda: report("data-independent", "laplace"),
}


def spent_table(document):
    (table,) = (each for each in tables(document) if each.columns[0].title == "release")
    return table


def answers_table(document):
    (section,) = (each for each in document.sections if each.id == "your-row")
    return section.blocks[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_budget_is_that_of_the_report(kind):
    result = KINDS[kind]()
    document = document_of(result)
    page = check_document(document)
    assert document.audience is Audience.PUBLIC
    assert page.public() == page
    spending = result.spending
    costs = {"model": spending.model}
    if kind == "dependent":
        costs |= {"gradient": (0.7, 1e-6), "Hessian": (0.3, 1e-6), "total": spending.together}
    else:
        costs |= {"this report": (0.0, 0.0)}
    table = spent_table(document)
    assert {row[0]: row[1:3] for row in table.values} == costs
    for title in ("ε", "δ"):
        assert all(map(rounded_up, *column(table, title)))
    tiles = {tile.label: tile for tile in document.tiles}
    assert rounded_up(tiles["Guarantee"].value.removeprefix("ε = "), spending.model[0])
    assert rounded_up(tiles["Bounds fail with"].value.removeprefix("at most "), result.fails_with)
    assert document.facts["rows"] == ROWS
    assert document.facts["epsilon"] == spending.model[0]
    # With norm-Laplace noise no bound exceeds the guarantee.
    is_pure = result.release.mechanism.noise == "laplace"
    assert ("An attacker becomes at most" in document.verdict.text) is is_pure
    if is_pure:
        shown = re.search(r"at most (.*?%) certain", document.verdict.text)[1]
        assert certainty_up(shown, spending.model[0])


def test_the_page_starts_with_what_a_person_can_look_up():
    page = page_of(report())
    assert page.sections[0].id == "look-up"
    command = "expost lookup report.json --set age=… --set town=… --label …"
    assert [step.text for step in page.steps] == [command]
    assert f"\n    {command}\n" in render_markdown(page)
    other = document_of(report(), file="o/report.json")
    assert other.steps[0].text.startswith("expost lookup o/report.json --set")
    answered = page_of(report(), answers=report().lookup(PERSON))
    assert [section.id for section in answered.sections[:2]] == ["your-row", "look-up"]


@pytest.mark.parametrize("kind", [*KINDS, "uniform"])
def test_the_form_stands_first_with_what_its_bound_means(kind):
    result = uniform() if kind == "uniform" else KINDS[kind]()
    first, *_ = page_of(result).sections
    assert first.nav == "Your row"
    (form,) = (block for block in first.blocks if isinstance(block, Widget))
    assert form.name == "form"
    assert [field["label"] for field in form.data["fields"]] == ["age", "town"]
    (number,) = (field for field in form.data["fields"] if field["kind"] == "number")
    (entry,) = (each for each in result.encoding.entries if isinstance(each, NumericEntry))
    low, high = cut_range(entry)
    shown = [float(read(end)) for end in number["hint"].split(";")[0].split(" to ")]
    assert shown[0] <= low <= high <= shown[1]
    assert all(len(end) <= 7 for end in number["hint"].split(";")[0].split(" to "))
    assert [label["text"] for label in form.data["labels"]] == ["poor", "rich"]
    text = " ".join(
        item for block in first.blocks if isinstance(block, Bullets) for item in block.items
    )
    # Only norm-Laplace noise of output perturbation bounds all rows at once.
    assert ("tried until one pleases" in text) is (kind != "uniform")
    assert ("split over the labels shown" in text) is (kind != "uniform")
    assert ("for all rows at once" in text) is (kind == "uniform")
    assert ("of the model and of this report" in text) is (kind == "dependent")
    assert (form.data["texts"]["tried"] is None) is (kind == "uniform")
    # An answer of one row has no form.
    answered = page_of(result, answers=result.lookup(PERSON))
    assert not any(
        isinstance(block, Widget) for section in answered.sections for block in section.blocks
    )


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_a_person_with_several_rows_reads_the_guarantee_for_all_of_them(noise):
    """The bound of one row is far below it, at the form and at an answer."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, size=(400, 3))
    options = {"noise": noise, "delta": 1e-6 if noise == "gaussian" else None, "data_norm": 2.0}
    labels = np.where(X[:, 0] > 0, "yes", "no")
    for rows, shown in ((1, False), (20, True)):
        model = PrivateLogisticRegression(
            epsilon=1.0, classes=("no", "yes"), rows_per_person=rows, **options
        )
        result = publish(model.fit(X, labels))
        answers = result.lookup(dict.fromkeys(result.form.names, 0.1))
        blocks = [block for each in document_of(result).sections for block in each.blocks]
        (form,) = (block for block in blocks if isinstance(block, Widget))
        sentences = (item for each in blocks if isinstance(each, Bullets) for item in each.items)
        for text in (
            form.data["texts"]["fails"],
            document_of(result, answers=answers).verdict.more,
            " ".join(sentences),
        ):
            assert ("the attacker knows your other rows as well" in text) is shown
            assert ("If up to 20 rows of the data are yours" in text) is shown
            # The guarantee of ε = 1, with the probability that it is passed.
            assert ("is at most 73.2 % certain whether they were" in text) is shown
        worst, passed = result.release.mechanism.worst_case_of(rows)
        assert worst == pytest.approx(1.0)
        but = ", except with probability at most" in form.data["texts"]["fails"]
        assert but is (shown and passed > 0)
        assert max(answer.exposure for answer in answers) < worst


@pytest.mark.parametrize("kind", KINDS)
def test_the_figure_shows_the_bounds_of_the_report(kind):
    result = KINDS[kind]()
    figure = bounds_figure(result)
    assert document_of(result).figures == {"bounds": figure}
    (panel,) = figure.panels
    direction = result.release.coefficients[0]
    unit = direction / np.linalg.norm(direction)
    assert len(panel.lines) == 2
    for label, line in zip(("poor", "rich"), panel.lines, strict=True):
        rows = np.array(line.x)[:, None] * 5.0 * unit
        bound, _, _ = result.bound(rows, [label] * len(rows))
        assert line.y == tuple(posterior_at(float(value)) for value in bound)
        assert max(line.y) <= panel.y.high
    limits = [rule.at for rule in panel.rules]
    assert limits == ([posterior_at(result.spending.model[0])] if kind == "pure" else [])


@pytest.mark.parametrize("label", [None, "rich"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_person_reads_the_bound_of_their_row_and_none_of_their_values(kind, label):
    result = KINDS[kind]()
    answers = result.lookup(PERSON, label)
    document = document_of(result, answers=answers)
    page = check_document(document)
    table = answers_table(document)
    worst = max(answer.everything for answer in answers)
    shown = re.search(r"at most (.*?%) certain", document.verdict.text)[1]
    assert certainty_up(shown, worst)
    cells, values = column(table, "certainty, model alone, at most")
    assert values == [answer.exposure for answer in answers]
    assert all(map(certainty_up, cells, values))
    assert all(map(rounded_up, *column(table, "exposure at most (nats)")))
    assert all(map(rounded_up, *column(table, "fails with probability")))
    if kind == "dependent":
        cells, values = column(table, "certainty, model and report, at most")
        assert values == [answer.everything for answer in answers]
        assert all(map(certainty_up, cells, values))
        for title, name in (("gradient", "epsilon_gradient"), ("Hessian", "epsilon_hessian")):
            cells, values = column(table, f"ε of the {title}")
            assert values == [getattr(answer, name) for answer in answers]
            assert all(map(rounded_up, cells, values))
    for text in (render_text(page), render_markdown(page), render_json(page)):
        assert "73.5192837" not in text
        assert "Bergen" not in text
        # One label of all that there are is no statement about the person.
        assert label is None or text.count("rich") == text.count("poor")


def test_a_value_that_the_model_does_not_know_is_not_repeated():
    result = report()
    answers = result.lookup({"age": 40, "town": "Trondheim is none of its levels"})
    document = document_of(result, answers=answers)
    assert "Trondheim" not in render_json(document)
    assert "Trondheim" not in str(answers[0])
    (alert,) = document.alerts
    assert "'town' is none of its levels" in alert.title
    far = document_of(result, answers=result.lookup({"age": 43219876, "town": "Oslo"}))
    assert any("cut to that range" in alert.title for alert in far.alerts)
    assert "43219876" not in render_json(far)


def test_an_answer_alone():
    for kind in KINDS:
        (answer,) = KINDS[kind]().lookup(PERSON, "rich")
        document = document_of(answer)
        check_document(document)
        assert document.audience is answer.audience
        shown = re.search(r"at most (.*?%) certain", str(answer))[1]
        assert certainty_up(shown, answer.everything)
        assert answer.certainty == pytest.approx(posterior_at(answer.exposure))
        assert answer.certainty_in_everything == pytest.approx(posterior_at(answer.everything))
    endless = document_of(dataclasses.replace(answer, exposure=math.inf, everything=math.inf))
    (table,) = tables(endless)
    assert table.cells[0][:2] == ("100 %", "∞")


def test_a_regression_takes_a_number():
    rng = np.random.default_rng(6)
    X = rng.uniform(-1, 1, size=(60, 2))
    frame = pd.DataFrame(X, columns=["first column", "$(rm -rf)"])
    model = PrivateRidge(data_norm=2.0, label_range=(-1.0, 1.0), huber_width=None).fit(
        frame, np.clip(X[:, 0], -1, 1)
    )
    result = publish(model)
    answers = result.lookup({"first column": 0.3, "$(rm -rf)": -0.2}, 0.43719283)
    document = document_of(result, answers=answers)
    check_document(document)
    assert "0.43719283" not in render_json(document)
    # A shell reads a name as one word, whatever is in it.
    words = shlex.split(document_of(result).steps[0].text.replace("…", ""))
    assert words[2:7] == ["report.json", "--set", "first column=", "--set", "$(rm -rf)="]
    assert len(document.figures["bounds"].panels[0].lines) == 3


@pytest.mark.parametrize("name", [HOSTILE, "<script>alert(1)</script>"])
def test_hostile_names_stay_text(name):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(ROWS, 2))
    y = np.where(X[:, 0] > 0, name, "other")
    frame = pd.DataFrame(X, columns=[name, "b"])
    model = PrivateLogisticRegression(data_norm=5.0, classes=(name, "other")).fit(frame, y)
    result = publish(model)
    answers = result.lookup({name: 0.1, "b": 0.2})
    document = document_of(result, Context(source=name), answers=answers)
    check_document(document)
    check_document(document_of(answers[0]))
    text = render_markdown(document)
    # The command is code, which Markdown shows as it stands.
    rest = [line for line in text.splitlines() if not line.startswith("    ")]
    assert not any(re.search(r"(?<!\\)<(?!\s)", line) for line in rest)
    assert all("\n" not in line for tile in document.tiles for line in tile.lines)


def test_a_useless_model_is_reported_first():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 6))
    model = PrivateLogisticRegression(epsilon=0.01, data_norm=5.0, classes=(0, 1))
    result = publish(model.fit(X, (X[:, 0] > 0).astype(int)))
    assert result.release.mechanism.forecast.is_useless
    document = document_of(result)
    check_document(document)
    assert document.verdict.priority == 90
    assert document.verdict.tone == "bad"
    assert document.alerts[0].severity == "problem"
    assert {tile.label: tile.value for tile in document.tiles}["Useful?"] == "No"


@pytest.mark.filterwarnings("ignore::expost.errors.ClippedRowsWarning")
@pytest.mark.filterwarnings("ignore::expost.errors.PrivacyLeakWarning")
@pytest.mark.parametrize("name", ["scale", HOSTILE])
def test_a_report_for_review_lists_what_was_read_from_the_data(name):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(ROWS, 70))
    last = PrivateLogisticRegression(classes=("no", "yes"))
    steps = [(name.replace("__", ""), StandardScaler()), ("model", last)]
    model = Pipeline(steps).fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    whole = publish(model)
    assert any("pipeline" in alert.title for alert in document_of(whole).alerts)
    read = (*whole.read_from_data, *(f"the mean of {index}" for index in range(80)))
    result = publish(dataclasses.replace(last.release_, read_from_data=read))
    document = document_of(result)
    page = check_document(document)
    assert document.audience is Audience.NEEDS_REVIEW
    (section,) = (each for each in document.sections if each.id == "published-constants")
    assert len(section.blocks[1].items) == 61
    assert section.blocks[1].items[-1] == "and 21 more"
    assert any(alert.severity == "review" for alert in document.alerts)
    assert document.steps[0].text.startswith("expost lookup report.CURATOR-ONLY.json ")
    with pytest.raises(InvalidInput, match=r"which no ε covers"):
        page.public()
