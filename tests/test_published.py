"""report.json and what a person reads from it: strict, small, and nothing of the rows in it."""

import json
import math
import re
import stat
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit

from expost import PrivateLogisticRegression, PrivateRidge, profile
from expost.accounting import gaussian_epsilon
from expost.data import Encoding, open_table
from expost.errors import InvalidInput
from expost.mechanisms import Tangent
from expost.mechanisms.publishing import PublishingBudget
from expost.publishing.lookup import Form
from expost.publishing.publish import publish
from expost.publishing.report import Answer, PublishedReport
from mechanisms.test_release import sealed
from settings import OUTPUT
from test_canaries import LABELS as CANARY_LABELS
from test_canaries import NORM, found_in_bytes, found_in_text
from test_canaries import X as CANARIES

BUDGET = PublishingBudget(epsilon_gradient=0.7, epsilon_hessian=0.3, delta=1e-6)
SPENT = {"kind": "data-dependent", "epsilon_gradient": 0.7, "epsilon_hessian": 0.3}
OBJECTIVE = {
    "mechanism": "objective",
    "noise": "gaussian",
    "delta": 1e-6,
    "regularization": "for-publishing",
    "publishing": BUDGET,
}
RNG = np.random.default_rng(5)
ROWS = 150
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(17, 90, size=ROWS),
        "sex": RNG.choice(["f", "m"], size=ROWS),
        "work": RNG.choice(["private", "public", ""], size=ROWS),
        "hours": np.where(RNG.uniform(size=ROWS) < 0.1, np.nan, RNG.integers(10, 60, size=ROWS)),
        "name": [f"n{i}" for i in range(ROWS)],
        "income": RNG.choice(["<=50K", ">50K"], size=ROWS),
    }
)
PUBLIC = {
    "columns": {
        "age": {"mean": 40, "scale": 20, "cut": None},
        "sex": {"levels": ["f", "m"]},
        "work": {"levels": ["private", "public"], "missing_level": True},
        "hours": {"mean": 40, "scale": 15, "fill": 40},
    },
    "dropped": ["name"],
    "target": {"classes": ["<=50K", ">50K"]},
    "data_norm": 5,
}
PERSON = {"age": 39, "sex": "f", "work": "private", "hours": 40}


@cache
def from_table(kind="data-dependent"):
    """A report of a model that was made from a table with a given encoding; the rows; the labels."""
    table = open_table(FRAME, missing=("", "?"))
    encoding = Encoding.read(table, target="income", given=PUBLIC)
    encoded = encoding.encode_table(table)
    labels = FRAME["income"].to_numpy()
    classes = ("<=50K", ">50K")
    model = PrivateLogisticRegression(**OBJECTIVE, data_norm=5.0, classes=classes)
    model.fit(encoded.X, labels)
    release = replace(
        model.release_, encoding=encoding.to_json(), feature_names=encoding.feature_names
    )
    spent = SPENT if kind == "data-dependent" else {}
    return publish(release, encoded.X, labels, **spent), encoded.X, labels


@cache
def plain(kind="data-dependent"):
    """A report of a model of the canaries, whose rows are plain numbers."""
    model = PrivateLogisticRegression(**OBJECTIVE, data_norm=NORM, classes=("no", "yes"))
    model.fit(CANARIES, CANARY_LABELS)
    return publish(
        model, CANARIES, CANARY_LABELS, **(SPENT if kind == "data-dependent" else {})
    ), model


# -- report.json -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["data-dependent", "data-independent"])
def test_round_trip_is_byte_exact(tmp_path, kind):
    report, X, labels = from_table(kind)
    path = report.save(tmp_path / "report.json")
    first = path.read_bytes()
    again = PublishedReport.load(path)
    assert again.save(tmp_path / "again.json").read_bytes() == first
    for left, two in zip(report.bound(X, labels), again.bound(X, labels), strict=True):
        assert np.array_equal(left, two)
    assert again.lookup(PERSON) == report.lookup(PERSON)
    assert again.spending == report.spending
    assert str(again) == str(report)
    # Anybody may read it, and it is small.
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert len(first) < 10_000


@pytest.mark.parametrize("kind", ["data-dependent", "data-independent"])
def test_no_training_value_and_no_exact_loss_is_in_it(tmp_path, kind):
    """A thousand canaries, and every exact loss, gradient and leverage of the rows."""
    report, model = plain(kind)
    content = report.save(tmp_path / "report.json").read_bytes()
    text = content.decode()
    assert not found_in_bytes(content)
    for written in (
        str(report),
        repr(report),
        repr(report.lookup(dict.fromkeys(report.form.names, 1))),
    ):
        assert not found_in_text(written)
    result = profile(model, CANARIES, CANARY_LABELS)
    exact = [result.loss, result.exposure, result.loss_low, result.loss_high, result.posterior]
    exact += [result.distance, *report.bound(CANARIES, CANARY_LABELS)[:1]]
    problem = model.release_.problem(CANARIES, CANARY_LABELS)
    tangent = Tangent.at(model.release_.mechanism, problem, model.release_.theta)
    exact += [tangent.gradient, tangent.hessian.ravel(), tangent.curvature.factor.ravel()]
    assert not shown_in(text, np.concatenate([np.ravel(part) for part in exact]))
    # Power: had the exact gradient been written, it would have been found.
    assert shown_in(text + repr(tangent.gradient.tolist()), tangent.gradient)
    assert shown_in(text + f"{result.loss[7]:.11e}", result.loss)


def shown_in(text, values):
    """Whether one of the values stands in the text, to ten digits (by chance once in 10⁵ runs)."""
    runs = (run.replace(".", "").lstrip("0") for run in re.findall(r"\d[\d.]{8,}", text))
    heads = {run[:10] for run in runs if len(run) >= 10}
    return heads & {f"{abs(value):.15e}".replace(".", "")[:10] for value in values if value}


def edits(value):
    """Ways in which a hand may have changed the file, each with what the error must say."""
    released = value["released"]
    yield {**value, "format": "expost-report/2"}, "newer expost"
    yield {**value, "format": None}, "format"
    yield {**value, "fails_with": 1e-9}, "do not agree"
    yield {**value, "failure_probability": 0.5}, "."
    yield {**value, "failure_probability": "small"}, "number"
    yield {**value, "kind": "data-independent"}, "do not agree"
    yield {**value, "audience": "curator-only"}, "do not agree"
    yield {**value, "audience": "needs-review"}, "do not agree"
    yield {**value, "read_from_data": ["the levels of 'sex'"]}, "do not agree"
    yield {**value, "steps": [{"name": "'scale' (StandardScaler)", "fitted": True}]}, "do not agree"
    yield {**value, "steps": [{"name": "'scale' (StandardScaler)"}]}, "fitted"
    yield {**value, "steps": "none"}, "Step"
    yield {**value, "note": "from a friend"}, "do not agree"
    yield {**value, "released": None}, "do not agree"
    yield {**value, "released": {**released, "delta": 0.5}}, "."
    yield {**value, "released": {**released, "epsilon_hessian": 1e-3}}, "."
    yield {**value, "released": {**released, "gradient": [0.1, *released["gradient"][1:]]}}, "grids"
    yield {**value, "released": {**released, "gradient": released["gradient"][1:]}}, "grids"
    yield (
        {**value, "released": {**released, "gradient": [True, *released["gradient"][1:]]}},
        "number",
    )
    yield {**value, "released": {**released, "gradient": None}}, "wrong type"
    yield {**value, "released": {**released, "scales": {"gradient": 1.0, "hessian": 1.0}}}, "scales"
    lower = [*released["hessian_lower_triangle"][:-1], [0.1]]
    yield {**value, "released": {**released, "hessian_lower_triangle": lower}}, "lower_triangle"
    yield {**value, "released": {**released, "note": 1}}, "do not agree"
    yield {**value, "model": {**value["model"], "n": 7}}, "."
    yield {**value, "model": {**value["model"], "seeded": True}}, "."
    yield {**value, "model": None}, "format"
    for name in value:
        if name != "sha256":
            yield {key: field for key, field in value.items() if key != name}, "."


def test_an_edited_file_is_refused_in_one_sentence(tmp_path):
    report, *_ = from_table()
    path = report.save(tmp_path / "report.json")
    value = json.loads(path.read_text())
    for edited, match in edits(value):
        path.write_text(json.dumps(sealed(edited)))
        with pytest.raises(InvalidInput, match=match) as error:
            PublishedReport.load(path)
        assert str(error.value).startswith(f"{path}: is not a published report (")
        assert "\n" not in str(error.value)
        # Without the seal it is found at once.
        path.write_text(json.dumps({**edited, "sha256": value["sha256"]}))
        with pytest.raises(InvalidInput):
            PublishedReport.load(path)


def test_a_model_that_may_not_be_published_is_refused_in_a_file_too(tmp_path):
    report, *_ = from_table()
    path = report.save(tmp_path / "report.json")
    value = json.loads(path.read_text())
    seeded = replace(report.release, seeded=True).to_json()
    path.write_text(json.dumps(sealed({**value, "model": seeded})))
    with pytest.raises(InvalidInput, match="random_state"):
        PublishedReport.load(path)


def test_a_model_is_no_report(tmp_path):
    report, _ = plain()
    path = report.release.save(tmp_path / "model.json")
    with pytest.raises(InvalidInput, match="expost-report/1"):
        PublishedReport.load(path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        PublishedReport.load(tmp_path / "none.json")


# -- bound ---------------------------------------------------------------------------------------


def test_bound_is_vectorised():
    report, X, labels = from_table()
    exposure, first, second = report.bound(X, labels)
    for i in (0, 7, 149):
        single = report.bound(X[i], labels[i])
        assert all(isinstance(number, float) for number in single)
        assert single == pytest.approx((exposure[i], first[i], second[i]), rel=1e-12)
    # Frames have the columns of the table.
    assert np.array_equal(report.bound(FRAME.drop(columns="income"), labels)[0], exposure)
    with pytest.raises(InvalidInput, match="column 'sex': is not in the table"):
        report.bound(pd.DataFrame(X, columns=report.release.feature_names), labels)
    everything = report.everything(X, labels)
    assert report.everything(X[3], labels[3]) == pytest.approx(everything[3], rel=1e-12)


def test_the_costs_of_a_row_by_their_formulas():
    """μ₂ = ∣f′∣∥x∥/σ₂ and μ₃ = f″∥x∥²/(√2σ₃) (Thm 10.2, erratum 6); both for everything."""
    report, X, labels = from_table()
    rows, _ = report.release.ball.rows(X)
    margin = np.where(labels == ">50K", 1, -1) * (rows @ report.release.theta)
    slope, norms = expit(-margin), np.linalg.norm(rows, axis=1)
    scales = report.to_json()["released"]["scales"]
    first = slope * norms / scales["gradient"]
    second = slope * (1 - slope) * norms**2 / (math.sqrt(2) * scales["hessian"])
    exposure, *costs = report.bound(X, labels)
    for mu, cost in zip((first, second), costs, strict=True):
        for separation, epsilon in zip(mu[:20], cost[:20], strict=True):
            assert epsilon == pytest.approx(gaussian_epsilon(separation, 1e-6), rel=1e-4)
    mu = np.hypot(first, second)
    more = mu**2 / 2 + mu * stats.norm.isf(1e-6 / 2)
    assert report.everything(X, labels) - exposure == pytest.approx(more, rel=1e-4)


def test_bound_takes_features_in_their_own_units():
    """Rows past the data norm are clipped, as in training; others are scaled."""
    report, model = plain("data-independent")
    long = 100 * CANARIES[:5]
    onto = long / np.linalg.norm(long, axis=1)[:, None] * NORM
    first, second = (
        report.bound(long, CANARY_LABELS[:5])[0],
        report.bound(onto, CANARY_LABELS[:5])[0],
    )
    assert first == pytest.approx(second, rel=1e-9)
    assert np.all(report.bound(CANARIES[:5], CANARY_LABELS[:5])[0] < first)
    del model


@pytest.mark.parametrize(
    ("x", "y", "match"),
    [
        ([[1.0, 2.0]], ["yes"], "columns"),
        ([[1.0] * 4], ["yes", "no"], "one entry"),
        ([1.0] * 4, ["yes", "no"], "one entry"),
        ([[1.0] * 4], "yes", "one entry|labels"),
        (7.0, "yes", "dimensions"),
    ],
)
def test_bound_of_nonsense(x, y, match):
    report, _ = plain()
    with pytest.raises(InvalidInput, match=match):
        report.bound(x, y)


# -- lookup ----------------------------------------------------------------------------------------


def encoded(**changes):
    """A person's features, by the formulas of the encoding."""
    person = PERSON | changes
    work = person["work"]
    hours = person["hours"]
    return np.array(
        [
            (float(person["age"]) - 40) / 20,
            person["sex"] == "f",
            person["sex"] == "m",
            work == "private",
            work == "public",
            work == "",
            0.0 if hours == "" else (float(hours) - 40) / 15,
            hours == "",
        ],
        dtype=float,
    )


def test_a_person_types_what_stands_on_a_form():
    report, *_ = from_table()
    for changes in ({}, {"age": "62", "sex": "m"}, {"work": "", "hours": ""}, {"hours": 12.5}):
        values = PERSON | changes
        for label in ("<=50K", ">50K"):
            expected = report.bound(encoded(**changes), label)
            assert report.bound_for(values, label) == expected
            (answer,) = report.lookup(values, label)
            assert answer.label == label
            assert (answer.exposure, answer.epsilon_gradient, answer.epsilon_hessian) == expected
            assert answer.everything == report.everything(encoded(**changes), label)
            assert answer.certainty == pytest.approx(expit(answer.exposure))
            assert answer.certainty_in_everything == pytest.approx(expit(answer.everything))
            assert answer.delta == 1e-6
    both = report.lookup(PERSON)
    assert [answer.label for answer in both] == ["<=50K", ">50K"]
    assert all(isinstance(answer, Answer) for answer in both)
    assert not both[0].notes
    spaced = {"age": " 39 ", "sex": " f", "work": "private ", "hours": "40.0"}
    assert report.lookup(spaced) == both


def test_the_answers_of_all_labels_hold_together():
    """With two classes θ's bounds are those of one label; what ĝ and Ĥ add is split over both."""
    report, *_ = from_table()
    for answer in report.lookup(PERSON):
        (alone,) = report.lookup(PERSON, answer.label)
        assert answer.exposure == alone.exposure
        assert answer.fails_with == alone.fails_with == report.fails_with
        assert answer.everything_fails_with == report.everything_fails_with
        rows, _ = report.release.ball.rows(encoded()[None, :])
        y = np.array([1.0 if answer.label == ">50K" else -1.0])
        mu = float(np.hypot(*report.separations(rows, y))[0])
        more = mu * (stats.norm.isf(1e-6 / 4) - stats.norm.isf(1e-6 / 2))
        assert answer.everything - alone.everything == pytest.approx(more, rel=1e-5)


def test_the_ids_of_training_rows_do_not_matter():
    """A training row looked up by its cells has the bound of its features."""
    report, X, labels = from_table()
    exposure = report.bound(X, labels)[0]
    for i in range(0, ROWS, 17):
        row = FRAME.iloc[i]
        hours = "" if np.isnan(row["hours"]) else row["hours"]
        values = {"age": int(row["age"]), "sex": row["sex"], "work": row["work"], "hours": hours}
        assert report.bound_for(values, labels[i])[0] == pytest.approx(exposure[i], rel=1e-12)


@pytest.mark.parametrize(
    ("text", "number"), [("39,5", "39.5"), ("−3", "-3"), (" -,5 ", "-0.5"), ("1,2345", "1.2345")]
)
def test_a_decimal_comma_and_a_minus_sign_are_understood(text, number):
    report, *_ = from_table()
    assert report.lookup(PERSON | {"age": text}) == report.lookup(PERSON | {"age": number})


@pytest.mark.parametrize("text", ["1,234", "1,234.5", "1.234,5", "1,2,3", "5,", ","])
def test_a_comma_that_may_separate_thousands_is_refused(text):
    report, *_ = from_table()
    with pytest.raises(InvalidInput, match="without a comma"):
        report.lookup(PERSON | {"age": text})


def test_what_is_done_with_values_is_noted():
    report, *_ = from_table()

    def notes(**changes):
        return " ".join(report.lookup(PERSON | changes, ">50K")[0].notes)

    assert "'hours' has no value" in notes(hours="")
    assert "'hours' has no value" in notes(hours="?")
    assert "'hours' has no value" in notes(hours=None)
    assert "'work' has no value" in notes(work="")
    assert "'sex' has no value: it counts as none" in notes(sex="")
    message = notes(sex="female")
    assert "'sex' is none of its levels ('f', 'm')" in message
    # The value is a person's own, and is not repeated.
    assert "female" not in message
    assert "clipped" in notes(age=5000)
    assert "'hours' lies outside of 10 to 70:" in notes(hours=71)
    assert not notes(hours=70)
    assert "'name' is not used by the model" in notes(name="Ada")
    assert not notes()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"age": ""}, "age: must have a value"),
        ({"age": "old"}, "age: must be a number"),
        ({"age": "nan"}, "age: must be a number"),
        ({"age": math.inf}, "age: is too large"),
        ({"age": "1e999"}, "age: is too large"),
        ({"age": 10**400}, "age: is too large"),
        ({"age": "inf"}, "age: must be a number"),
        # float() reads these, and the form on a page does not.
        ({"age": "1_000"}, "age: must be a number"),
        ({"age": "١٢"}, "age: must be a number"),
        ({"age": True}, "age: must be a number"),
        ({"height": 3}, "'height': .* age, sex, work, hours"),
        ({"income": ">50K"}, "give it as the label"),
    ],
)
def test_values_of_nonsense(changes, match):
    report, *_ = from_table()
    with pytest.raises(InvalidInput, match=match) as error:
        report.lookup(PERSON | changes)
    assert "\n" not in str(error.value)


def test_missing_columns_and_labels():
    report, *_ = from_table()
    with pytest.raises(InvalidInput, match=r"work, hours: must be given as well"):
        report.lookup({"age": 39, "sex": "f"})
    with pytest.raises(InvalidInput, match="label: must be '<=50K' or '>50K'"):
        report.lookup(PERSON, "rich")


def test_a_form_of_many_columns_names_the_first_of_them():
    form = Form(encoding=None, names=tuple(f"c{index}" for index in range(30)))
    with pytest.raises(InvalidInput, match=r"c1, c2, c3, c4, c5, c6 and 23 more: must be given"):
        form.features({"c0": 1.0})
    with pytest.raises(InvalidInput, match=r"it has c0, .*c5 and 24 more"):
        form.features({"z": 1.0})


def test_a_model_of_plain_numbers_asks_for_its_columns_by_number():
    report, _ = plain()
    values = {f"column {index}": 10 * index for index in range(4)}
    (answer,) = report.lookup(values, "yes")
    assert answer.exposure == report.bound([0, 10, 20, 30], "yes")[0]
    with pytest.raises(InvalidInput, match="must be a number"):
        report.lookup(values | {"column 2": ""})
    with pytest.raises(InvalidInput, match="column 3: must be given"):
        report.lookup(dict.fromkeys(list(values)[:3], 1))


def test_a_regression_needs_its_label_and_clips_it():
    rng = np.random.default_rng(6)
    X = rng.uniform(-1, 1, size=(60, 2))
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = PrivateRidge(data_norm=2.0, label_range=(-1.0, 1.0), huber_width=None, **OUTPUT).fit(
        frame, np.clip(X[:, 0], -1, 1)
    )
    report = publish(model)
    values = {"a": 0.3, "b": -0.2}
    with pytest.raises(InvalidInput, match="label: must be given"):
        report.lookup(values)
    (answer,) = report.lookup(values, "0.5")
    assert answer.label == 0.5
    assert answer.exposure == report.bound([0.3, -0.2], 0.5)[0]
    (past,) = report.lookup(values, 30)
    assert "clipped" in past.notes[0]
    assert past.exposure == report.lookup(values, 1)[0].exposure
    with pytest.raises(InvalidInput, match="label: must be"):
        report.lookup(values, "x")


def test_labels_that_are_numbers_may_be_typed():
    rng = np.random.default_rng(7)
    X = rng.uniform(-1, 1, size=(60, 2))
    model = PrivateLogisticRegression(data_norm=2.0, classes=(0, 1)).fit(X, (X[:, 0] > 0) * 1)
    report = publish(model)
    values = {"column 0": 0.3, "column 1": -0.2}
    assert report.lookup(values, "1") == report.lookup(values, 1)
    assert [answer.label for answer in report.lookup(values)] == [0, 1]
