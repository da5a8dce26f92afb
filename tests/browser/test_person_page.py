"""What the page of a published report holds: constants and no row; and pages without a form."""

import base64
import json
import re
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from expost import PrivateLogisticRegression, publish
from expost.report import page_of, render_html, render_json
from expost.report.html import script
from expost.report.stored import parse_json
from report.conftest import HOSTILE
from test_canaries import LABELS, NORM, ROWS, X, found_in_bytes

from .person_cases import CASES
from .test_person import FORM, SMALL, fill, page_file


def form_data(html: str) -> dict:
    (text,) = re.findall(r'id="expost-data">(.*?)</script>', html, re.DOTALL)
    return json.loads(text)["published"]["form"]


def packed_numbers(value):
    """Every array of a formula, unpacked."""
    if isinstance(value, dict):
        for name, entry in value.items():
            if name not in ("name", "kind"):
                yield from packed_numbers(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from packed_numbers(entry)
    elif isinstance(value, str):
        yield from np.frombuffer(base64.b64decode(value, validate=True), dtype="<f8").tolist()
    elif isinstance(value, float):
        yield value


def test_no_value_of_a_training_row_is_in_the_page():
    """A thousand canaries: neither as text nor in an array of constants."""
    model = PrivateLogisticRegression(
        **{"mechanism": "objective", "noise": "gaussian", "delta": 1e-6, "data_norm": NORM},
        classes=("no", "yes"),
    )
    html = render_html(page_of(publish(model.fit(X, LABELS))))
    assert not found_in_bytes(html.encode())
    data = form_data(html)
    numbers = np.array(list(packed_numbers(data["formula"])))
    assert len(numbers) > 8
    inside, _ = model.release_.ball.rows(X)
    for rows in (X, inside):
        assert not np.isin(numbers, rows[:, : X.shape[1]].ravel()).any()
    # Power: had a row been packed, it would have been found.
    packed = base64.b64encode(inside[ROWS // 2].astype("<f8").tobytes()).decode()
    found = np.array(list(packed_numbers({"theta": packed})))
    assert np.isin(found, inside.ravel()).all()


def test_a_page_with_many_columns_stays_small():
    """As many coefficients as Adult has, with a noisy Hessian: 109 by 109 constants and more."""
    rng = np.random.default_rng(2)
    table = pd.DataFrame(rng.normal(size=(400, 108)), columns=[f"column {i}" for i in range(108)])
    given = {"columns": {name: {"mean": 0, "scale": 1} for name in table.columns}}
    case = CASES["dependent, gaussian, logistic"].build()
    options = {"regularization": "for-publishing", "publishing": case.budget, "data_norm": 30.0}
    model = PrivateLogisticRegression(
        encoding=given | {"target": {"classes": ["no", "yes"]}},
        classes=("no", "yes"),
        **{"mechanism": "objective", "noise": "gaussian", "delta": 1e-6, **options},
    ).fit(table, np.where(table["column 0"] > 0, "yes", "no"))
    spent = {"epsilon_gradient": 0.7, "epsilon_hessian": 0.3}
    report = publish(
        model, table, np.where(table["column 0"] > 0, "yes", "no"), kind="data-dependent", **spent
    )
    html = render_html(page_of(report))
    assert len(form_data(html)["formula"]["released"]["vectors"]) > 109 * 109 * 8
    assert len(html.encode()) < 1_000_000


@pytest.mark.filterwarnings("ignore::expost.errors.ClippedRowsWarning")
def test_hostile_names_levels_units_and_labels_stay_text(open_page, tmp_path):
    rng = np.random.default_rng(3)
    name, other = HOSTILE.replace("\n", " "), '"><img src=x onerror=alert(1)>'
    table = pd.DataFrame(
        {name: rng.normal(size=80), "level": rng.choice([other, "</option></select>"], 80)}
    )
    given = {
        "columns": {
            name: {"mean": 0, "scale": 1, "unit": "<b>kg</b>"},
            "level": {"levels": [other, "</option></select>"]},
        }
    }
    model = PrivateLogisticRegression(encoding=given, classes=(other, "{{ 7 * 7 }}"))
    model.fit(table, np.where(table[name] > 0, other, "{{ 7 * 7 }}"))
    result = page_of(publish(model))
    # It can be stored, read again and shown.
    assert parse_json(render_json(result)) == result
    path = tmp_path / "hostile.html"
    path.write_text(render_html(result), encoding="utf-8")
    page = open_page(path, size=SMALL)
    assert page.locator("img, b, script[src]").count() == 0
    page.locator(f"{FORM} input").first.fill("x")
    page.locator("[data-show]").click()
    assert page.locator("[data-errors] a").count() == 2
    page.locator(f"{FORM} input").first.fill("9")
    page.locator(f"{FORM} select").select_option(index=1)
    page.locator("[data-show]").click()
    labels = page.locator("[data-answers] th").all_inner_texts()
    assert set(labels) == {other, "{{ 7 * 7 }}"}
    assert page.locator("img, b").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") == SMALL[0]


def test_nothing_is_sent_and_nothing_is_left_behind(open_page, shelf):
    """The page's policy forbids all connections, and the script leaves no name."""
    path = page_file(shelf, "dependent, gaussian, logistic")
    head = path.read_text().partition("</head>")[0]
    assert "default-src 'none'" in head
    assert "connect-src" not in head
    page = open_page(path)
    before = page.evaluate("Object.getOwnPropertyNames(globalThis).length")
    fill(page, age="39", income="2", hours="40", job="nurse", town="Oslo")
    page.locator("[data-show]").click()
    assert page.evaluate("Object.getOwnPropertyNames(globalThis).length") == before
    assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [
        *(0, 0),
        "",
    ]
    assert page.url == path.as_uri()
    text = script(form=True)
    for word in ("localStorage", "sessionStorage", "cookie", "location", "sendBeacon", "WebSocket"):
        assert word not in text


# -- pages without a form --------------------------------------------------------------------------


def fitted(width: int):
    rng = np.random.default_rng(4)
    table = rng.uniform(-1, 1, size=(120, width))
    model = PrivateLogisticRegression(data_norm=float(width), classes=("no", "yes"))
    return model, table, np.where(table[:, 0] > 0, "yes", "no")


def test_a_pipeline_cannot_be_typed():
    model, table, y = fitted(3)
    pipeline = make_pipeline(FunctionTransformer(np.asarray), model).fit(table, y)
    html = render_html(page_of(publish(pipeline)))
    assert '<div class="widget"' not in html
    assert "for values as they stand on a form the bound is not valid" in html


def test_more_columns_than_a_person_can_type_have_the_command():
    model, table, y = fitted(201)
    html = render_html(page_of(publish(model.fit(table, y))))
    assert '<div class="widget"' not in html
    assert "too many for a form" in html
    assert "<span>lookup</span>" in html


def test_a_bound_without_a_script_has_the_command():
    report = CASES["output, laplace, logistic"].build()

    @dataclass(frozen=True, kw_only=True)
    class Silent(type(report.release.mechanism)):
        def bound(self, *arguments, **options):
            class Bound(type(super().bound(*arguments, **options))):
                def formula(self):
                    return None

            own = super().bound(*arguments, **options)
            return Bound(**{each.name: getattr(own, each.name) for each in dataclass_fields(own)})

    mechanism = report.release.mechanism
    fields = {each.name: getattr(mechanism, each.name) for each in dataclass_fields(mechanism)}
    silent = replace(report, release=replace(report.release, mechanism=Silent(**fields)))
    html = render_html(page_of(silent))
    assert '<div class="widget"' not in html
    assert "<span>lookup</span>" in html
