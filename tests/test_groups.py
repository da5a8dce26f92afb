"""Groups of rows: against loops over the rows, and labels against the rule that they state."""

import html
import json
import math
import re
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.tree import DecisionTreeRegressor

from expost.errors import InvalidInput
from expost.groups import columns as columns_module
from expost.groups import tree
from expost.groups.exposure import Explanation, Group, explain_exposure, group_exposure
from expost.types import Audience

HOSTILE = '<script>alert("x")</script>\n| a & b |\u202e'


def naive_top(scores):
    """Each row's part of the most exposed 1 %, by sorting; ties share what is left."""
    places = -(-len(scores) // 100)
    ordered = sorted(scores, reverse=True)
    edge = ordered[places - 1]
    above = sum(score > edge for score in scores)
    tied = sum(score == edge for score in scores)
    return [1.0 if s > edge else (places - above) / tied if s == edge else 0.0 for s in scores]


def naive_figures(scores, rows):
    """The figures of the rows (a list of indices), one at a time."""
    top = naive_top(scores)
    own = sorted(scores[row] for row in rows)
    share = len(rows) / len(scores)
    held = math.fsum(top[row] for row in rows) / math.fsum(top)
    middle = (own[(len(own) - 1) // 2] + own[len(own) // 2]) / 2
    return (len(rows), share, sum(own) / len(own), middle, own[-1], held, held / share)


def assert_figures(group: Group, scores, rows):
    expected = naive_figures(list(scores), list(rows))
    result = (
        group.rows,
        group.share,
        group.mean,
        group.median,
        group.largest,
        group.top_share,
        group.lift,
    )
    np.testing.assert_allclose(result, expected, rtol=1e-12)


def holds(condition: str, table: dict[str, list]) -> np.ndarray:
    """The rows (a mask) for which one condition of a label is true, read as a person would."""
    known = {
        name: np.array([v is not None and v == v for v in column]) for name, column in table.items()
    }
    if condition == "all rows":
        return np.ones(len(next(iter(table.values()))), dtype=bool)
    if condition.startswith("(") and condition.endswith(" or missing)"):
        inner = condition[1 : -len(" or missing)")]
        name = re.split(r" (?:<=|>) ", inner)[0]
        return holds(inner, table) | ~known[name]
    if result := re.fullmatch(r"(.+) (<=|>) (\S+)", condition):
        name, sign, number = result[1], result[2], float(result[3])
        values = [v if ok else math.nan for v, ok in zip(table[name], known[name], strict=True)]
        values = np.array(values, dtype=float)
        return values <= number if sign == "<=" else values > number
    name, level = re.fullmatch(r"(.+) is (.+)", condition).groups()
    if level == "missing":
        return ~known[name]
    if level == "known":
        return known[name]
    if level.startswith("not "):
        return ~holds(f"{name} is {level[4:]}", table)
    return np.array(
        [ok and str(v) == level for v, ok in zip(table[name], known[name], strict=True)]
    )


def mask_of(label: str, table: dict[str, list]) -> np.ndarray:
    return np.logical_and.reduce([holds(part, table) for part in label.split(" and ")])


# ── by one column ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rows", [2, 99, 100, 101, 450])
def test_levels_match_a_loop_over_the_rows(seed, rows):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 12, rows) / 7  # Many ties, also at the edge of the top.
    column = rng.choice(["a", "b", "longer"], rows)
    grouping = group_exposure(scores, column, name="letters")
    assert {group.label for group in grouping} == set(column)
    for group in grouping:
        assert_figures(group, scores, np.flatnonzero(column == group.label))
    means = [group.mean for group in grouping]
    assert means == sorted(means, reverse=True)
    assert math.isclose(sum(group.top_share for group in grouping), 1)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("bins", [1, 2, 4, 7])
def test_bin_labels_are_the_rule_that_was_applied(seed, bins):
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(21, 300))
    column = [
        rng.normal(size=rows) * 1e-7,
        rng.lognormal(sigma=3, size=rows),
        np.round(rng.normal(size=rows), 1),
        rng.integers(0, 1000, rows).astype(float),
        np.where(rng.random(rows) < 0.9, 0.0, rng.random(rows)),
        1e300 * rng.normal(size=rows),
    ][seed]
    scores = rng.exponential(size=rows)
    grouping = group_exposure(scores, column, name="x", bins=bins)
    assert 1 <= len(grouping) <= bins
    covered = np.zeros(rows, dtype=int)
    for group in grouping:
        parts = [] if group.label == "all values" else group.label.split(" and ")
        mask = np.ones(rows, dtype=bool)
        for part in parts:
            mask &= holds(f"x {part}", {"x": list(column)})
        covered += mask
        assert_figures(group, scores, np.flatnonzero(mask))
    assert np.all(covered == 1)


def test_bins_are_quantiles():
    column = np.random.default_rng(0).normal(size=4000)
    sizes = [group.rows for group in group_exposure(np.ones(4000), column, bins=5)]
    assert len(sizes) == 5
    assert all(abs(size - 800) <= 4 for size in sizes)


def test_ties_merge_bins():
    column = [0.5] * 95 + [1.25, 2.5, 3.5, 4.5, 5.5]
    grouping = group_exposure(np.arange(100.0), column, name="x")
    assert [(group.label, group.rows) for group in grouping] == [("<= 0.5", 95), ("> 0.5", 5)]


def test_a_constant_column_is_one_group():
    assert [g.label for g in group_exposure([1, 2, 3], [0.5, 0.5, 0.5])] == ["all values"]
    assert [g.label for g in group_exposure([1, 2, 3], [4, 4, 4])] == ["4"]


def test_small_integers_are_levels_in_their_order():
    column = np.array([10, 9, 2, 2, 10, -1])
    grouping = group_exposure(np.arange(6.0), column)
    assert [group.label for group in grouping] == ["-1", "2", "9", "10"]
    assert len(group_exposure(np.arange(40.0), np.arange(40), bins=4)) == 4


SAME = {
    "list": ["b", None, "a", "b"],
    "object array": np.array(["b", None, "a", "b"], dtype=object),
    "pandas": pd.Series(["b", None, "a", "b"]),
    "pandas object": pd.Series(["b", np.nan, "a", "b"], dtype=object),
    "pandas categorical": pd.Series(["b", None, "a", "b"], dtype="category"),
    "polars": pl.Series(["b", None, "a", "b"]),
    "polars categorical": pl.Series(["b", None, "a", "b"], dtype=pl.Categorical),
    "arrow": pa.array(["b", None, "a", "b"]),
    "arrow chunked": pa.chunked_array([["b", None], ["a", "b"]]),
    "arrow dictionary": pa.array(["b", None, "a", "b"]).dictionary_encode(),
    "arrow view": pa.array(["b", None, "a", "b"], pa.string_view()),
    "masked": np.ma.array(["b", "?", "a", "b"], mask=[0, 1, 0, 0]),
}


@pytest.mark.parametrize("kind", SAME)
def test_any_kind_of_column(kind):
    grouping = group_exposure([3.0, 5.0, 1.0, 2.0], SAME[kind], name="c")
    assert grouping == group_exposure([3.0, 5.0, 1.0, 2.0], SAME["list"], name="c")
    assert [(g.label, g.rows) for g in grouping] == [("(missing)", 1), ("b", 2), ("a", 1)]


@pytest.mark.parametrize(
    "column",
    [
        [1.5, math.nan, 7.25, None],
        pd.Series([1.5, np.nan, 7.25, None]),
        pl.Series([1.5, None, 7.25, None]),
        pa.array([1.5, None, 7.25, math.nan]),
        np.array([1.5, math.nan, 7.25, math.nan], dtype=np.float32),
        np.ma.array([1.5, 0, 7.25, 0], mask=[0, 1, 0, 1]),
    ],
)
def test_any_kind_of_numbers(column):
    grouping = group_exposure([1.0, 2.0, 3.0, 4.0], column, bins=2)
    assert [(g.label, g.rows) for g in grouping] == [("<= 1.5", 1), ("> 1.5", 1), ("(missing)", 2)]


def test_booleans_dates_and_mixtures_are_levels():
    assert [g.label for g in group_exposure([1, 2], np.array([True, False]))] == ["False", "True"]
    days = np.array(["2024-01-02", "2024-01-03"], dtype="datetime64[D]")
    assert [g.label for g in group_exposure([2, 1], days)] == ["2024-01-02", "2024-01-03"]
    mixed = group_exposure([5, 4, 3, 2, 1], [1, "a", None, math.nan, pd.NA])
    assert [(g.label, g.rows) for g in mixed] == [("1", 1), ("a", 1), ("(missing)", 3)]
    assert [g.label for g in group_exposure([2, 1], ["", "x"])] == ["(empty)", "x"]


def test_all_cells_missing():
    assert [g.label for g in group_exposure([1, 2], [None, None])] == ["(missing)"]
    assert [g.label for g in group_exposure([1, 2], [math.nan, math.nan])] == ["(missing)"]


def test_many_levels_keep_the_largest_fifty():
    column = [f"level {i:03d}" for i in range(120) for _ in range(3 if i < 50 else 2)] + [None]
    scores = np.arange(len(column), dtype=float)
    grouping = group_exposure(scores, column)
    labels = [group.label for group in grouping]
    assert len(labels) == 52
    assert set(labels) == {f"level {i:03d}" for i in range(50)} | {"(other)", "(missing)"}
    other = next(group for group in grouping if group.label == "(other)")
    assert_figures(other, scores, range(150, 290))
    assert grouping.rows == len(column)
    assert "120 levels" in str(grouping)
    assert not group_exposure(np.ones(100), [f"{i % 50}" for i in range(100)]).notices


def test_a_planted_group_has_the_lift_and_others_do_not():
    rng = np.random.default_rng(3)
    exposed = rng.random(20_000) < 0.05
    scores = rng.exponential(size=20_000) + np.where(exposed, 20.0, 0.0)
    grouping = group_exposure(scores, np.where(exposed, "them", "us"))
    them, us = grouping.groups
    assert them.label == "them"
    assert them.top_share == 1
    assert them.lift == pytest.approx(1 / exposed.mean())
    assert us.lift == 0
    shuffled = group_exposure(scores, rng.permutation(np.where(exposed, "them", "us")))
    assert all(0.3 < group.lift < 2 for group in shuffled)


def test_ties_at_the_edge_share_what_is_left():
    # 500 rows, so five places: two rows are above, ten share the other three.
    scores = [9.0, 9.0, *([5.0] * 10), *([1.0] * 488)]
    column = ["a", "b", *(["a"] * 4), *(["b"] * 6), *(["b"] * 488)]
    shares = {group.label: group.top_share for group in group_exposure(scores, column)}
    assert shares == pytest.approx({"a": (1 + 4 * 0.3) / 5, "b": (1 + 6 * 0.3) / 5})


def test_the_order_of_the_rows_changes_nothing():
    rng = np.random.default_rng(5)
    scores = rng.integers(0, 9, 700).astype(float)
    column, numbers = rng.choice(list("abcd"), 700), rng.normal(size=700)
    order = rng.permutation(700)
    assert group_exposure(scores, column) == group_exposure(scores[order], column[order])
    assert group_exposure(scores, numbers) == group_exposure(scores[order], numbers[order])


def test_constant_and_infinite_scores_single_no_one_out():
    for value in (0.0, 2.0, math.inf):
        grouping = group_exposure(np.full(300, value), np.arange(300) % 3)
        assert [group.lift for group in grouping] == pytest.approx([1, 1, 1])
        assert all(group.mean == group.median == group.largest == value for group in grouping)
    some = group_exposure([math.inf, 1.0, 2.0], ["a", "b", "b"])
    assert some.groups[0].mean == math.inf
    assert some.groups[0].top_share == 1
    json.dumps(some.to_json(), allow_nan=False)
    assert some.to_json()["groups"][0]["mean"] == "infinity"


@pytest.mark.parametrize(
    ("scores", "column", "options", "message"),
    [
        ([1.0, math.nan], ["a", "b"], {}, "scores"),
        ([1.0, -1.0], ["a", "b"], {}, "scores"),
        ([], [], {}, "scores"),
        ([[1.0]], ["a"], {}, "scores"),
        ([1.0, 2.0], ["a"], {}, "c has 1 entries"),
        ([1.0, 2.0], "ab", {}, "c has no entries"),
        ([1.0, 2.0], 3, {}, "c has no entries"),
        ([1.0, 2.0], np.ones((2, 2)), {}, "c has"),
        ([1.0, 2.0], [["a"], ["b"]], {}, "must hold numbers, strings or booleans"),
        ([1.0, 2.0], ["a", "b"], {"bins": 0}, "bins=0"),
        ([1.0, 2.0], ["a", "b"], {"bins": 2.5}, "bins=2.5"),
    ],
)
def test_bad_input_is_refused(scores, column, options, message):
    with pytest.raises(InvalidInput, match=re.escape(message)):
        group_exposure(scores, column, name="c", **options)


def test_small_groups_are_for_the_curator_only():
    large = group_exposure(np.arange(10.0), ["a"] * 5 + ["b"] * 5)
    small = group_exposure(np.arange(10.0), ["a"] * 6 + ["b"] * 4)
    assert large.audience is Audience.NEEDS_REVIEW
    assert small.audience is Audience.CURATOR_ONLY
    assert small.to_json()["audience"] == "curator-only"
    assert str(large).endswith(Audience.NEEDS_REVIEW.meaning)


def test_hostile_names_are_text():
    grouping = group_exposure([1.0, 2.0], [HOSTILE, "b"], name=HOSTILE)
    page = grouping._repr_html_()
    assert "<script" not in page
    assert html.escape("<script>alert(") in page
    shown = str(grouping)
    assert "\u202e" not in shown
    assert len(shown.splitlines()) == len(str(group_exposure([1.0, 2.0], ["a", "b"])).splitlines())
    long = group_exposure([1.0, 2.0], ["x" * 10_000, "b"], name="y" * 10_000)
    assert max(len(line) for line in str(long).splitlines()) < 250


# ── by a tree ────────────────────────────────────────────────────────────────────────────────────


def people(rows=3000, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(17, 90, rows).astype(float)
    hours = rng.integers(1, 99, rows).astype(float)
    table = {
        "age": [
            None if missing else value
            for value, missing in zip(age, rng.random(rows) < 0.1, strict=True)
        ],
        "hours-per-week": list(hours),
        "sex": list(rng.choice(["f", "m"], rows)),
        "member": [bool(value) for value in rng.random(rows) < 0.3],
        "flag": list((rng.random(rows) < 0.2).astype(float)),
        "country": [
            None if v == "?" else str(v) for v in rng.choice(["?", "ch", "de", "fr"], rows)
        ],
        "weight": list(rng.lognormal(size=rows)),
    }
    return table, rng


def assert_leaves_are_what_they_say(explanation: Explanation, scores, table):
    table = {**table, "flag": [int(value) for value in table["flag"]]}
    covered = np.zeros(len(scores), dtype=int)
    for group in explanation:
        mask = mask_of(group.label, table)
        covered += mask
        assert_figures(group, scores, np.flatnonzero(mask))
    assert np.all(covered == 1)
    means = [group.mean for group in explanation]
    assert means == sorted(means, reverse=True)
    assert min(group.rows for group in explanation) >= max(5, len(scores) / 100)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_every_leaf_holds_the_rows_of_its_label(seed, depth):
    table, rng = people(700, seed)
    missing = np.array([value is None for value in table["age"]])
    level = np.array([value == "de" for value in table["country"]])
    scores = rng.exponential(size=700) * (1 + 3 * missing + 5 * level + np.array(table["flag"]))
    scores *= 1 + (np.array(table["weight"]) > 2)
    explanation = explain_exposure(scores, pd.DataFrame(table), depth=depth)
    assert 2 <= len(explanation) <= 2**depth
    assert_leaves_are_what_they_say(explanation, scores, table)


def test_a_planted_rule_is_named():
    table, rng = people()
    age = np.array([math.nan if value is None else value for value in table["age"]])
    exposed = (age > 61) & (np.array(table["hours-per-week"]) <= 20)
    scores = rng.exponential(size=3000) * 0.01 + exposed
    explanation = explain_exposure(scores, pa.table(table))
    first = explanation.groups[0]
    assert set(first.label.split(" and ")) == {"age > 61", "hours-per-week <= 20"}
    assert first.rows == exposed.sum()
    assert first.top_share == 1
    assert explanation.explained > 0.9
    noise = explain_exposure(rng.permutation(scores), pa.table(table))
    assert noise.explained < 0.1


def test_a_planted_level_is_named_without_idle_conditions():
    table, rng = people()
    exposed = np.array([value == "fr" for value in table["country"]])
    scores = rng.exponential(size=3000) * 0.1 + exposed
    labels = [group.label for group in explain_exposure(scores, pl.DataFrame(table))]
    assert labels[0].startswith("country is fr")
    assert not any("is fr" in label and "is not" in label for label in labels)
    two = rng.exponential(size=3000) * 0.1 + (np.array(table["sex"]) == "m")
    labels = [group.label for group in explain_exposure(two, pl.DataFrame(table), depth=1)]
    assert labels == ["sex is m", "sex is f"]


def test_indicators_of_an_encoding_read_like_its_columns():
    rng = np.random.default_rng(0)
    town, gap = rng.integers(0, 3, 3000), rng.random(3000) < 0.2
    names = ("town=Oslo", "town=Paris", "town=Bergen", "age is missing")
    X = np.column_stack([town == 0, town == 1, town == 2, gap]).astype(float)
    scores = rng.exponential(size=3000) * 0.1 + 3.0 * (town == 1) + 2.0 * (town == 2) + gap
    for depth, kept in ((3, rng.permutation(3000)), (1, np.arange(3000))):
        explained = explain_exposure(scores[kept], X[kept], feature_names=names, depth=depth)
        conditions = {part for group in explained for part in group.label.split(" and ")}
        allowed = {f"town is {'not ' * no}{name[5:]}" for name in names[:3] for no in (0, 1)}
        assert conditions <= allowed | {"age is missing", "age is known"}
        for group in explained:
            assert not re.search(r"is (?!not).* is not ", group.label.replace("age is missing", ""))


def test_missing_cells_can_be_the_group():
    table, rng = people()
    exposed = np.array([value is None for value in table["age"]])
    scores = rng.exponential(size=3000) * 0.1 + exposed
    labels = [group.label for group in explain_exposure(scores, pa.table(table), depth=1)]
    assert labels == ["age is missing", "age is known"]


def test_frames_of_all_kinds_agree():
    table, rng = people(500)
    scores = rng.exponential(size=500)
    arrow = explain_exposure(scores, pa.table(table))
    assert explain_exposure(scores, pd.DataFrame(table)) == arrow
    assert explain_exposure(scores, pl.DataFrame(table)) == arrow
    mixed = np.array([table["sex"], table["weight"]], dtype=object).T
    named = explain_exposure(scores, mixed, feature_names=["sex", "weight"])
    assert named == explain_exposure(scores, pa.table({k: table[k] for k in ("sex", "weight")}))


def test_a_matrix_has_numbered_columns_or_given_names():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) * [1, 1e200, 1e-200]
    scores = np.where(X[:, 1] > 0, 5.0, 1.0) + np.where(X[:, 2] > 0, 1.0, 0.0)
    X = np.clip(X, -1e149, 1e149)
    plain = explain_exposure(scores, X)
    assert "column 1 > " in plain.groups[0].label
    named = explain_exposure(scores, X, feature_names=["a", HOSTILE, "c"])
    assert "<script" not in named._repr_html_()
    assert "\n" not in named.groups[0].label
    assert [g.rows for g in named] == [g.rows for g in plain]
    assert_leaves_are_what_they_say(
        plain, scores, {f"column {i}": list(X[:, i]) for i in range(3)} | {"flag": []}
    )


def test_the_same_input_gives_the_same_explanation():
    table, rng = people(600, seed=9)
    scores = rng.exponential(size=600)
    first = explain_exposure(scores, pa.table(table))
    assert all(explain_exposure(scores, pa.table(table)) == first for _ in range(3))
    np.random.default_rng(0).normal()
    np.random.seed(1)  # noqa: NPY002 - the global state must not matter.
    assert explain_exposure(scores, pa.table(table)) == first


@pytest.mark.parametrize("value", [0.0, 1.5, math.inf])
def test_scores_that_do_not_differ_have_one_leaf(value):
    explanation = explain_exposure(np.full(50, value), np.arange(100.0).reshape(50, 2))
    assert [group.label for group in explanation] == ["all rows"]
    assert explanation.explained == 0


def test_infinite_scores_are_ranked():
    X = np.arange(200.0).reshape(-1, 1)
    scores = np.where(X[:, 0] >= 150, math.inf, 1.0)
    explanation = explain_exposure(scores, X, feature_names=["x"])
    assert explanation.groups[0].label == "x > 149"
    assert explanation.groups[0].mean == math.inf
    json.dumps(explanation.to_json(), allow_nan=False)


def test_infinite_cells_have_their_place():
    cells = np.repeat([-math.inf, 0.25, math.inf], 20)
    scores = np.repeat([5.0, 1.0, 9.0], 20)
    explanation = explain_exposure(scores, pd.DataFrame({"x": cells}), depth=2)
    assert [group.rows for group in explanation] == [20, 20, 20]
    assert [group.mean for group in explanation] == [9.0, 5.0, 1.0]
    for group in explanation:
        assert_figures(group, scores, np.flatnonzero(mask_of(group.label, {"x": list(cells)})))
    both = explain_exposure(scores[[0, 59] * 10], pd.DataFrame({"x": cells[[0, 59] * 10]}))
    assert [group.rows for group in both] == [10, 10]
    bins = group_exposure(scores, cells, bins=3)
    assert [group.rows for group in bins] == [20, 20, 20]


@pytest.mark.parametrize("seed", range(3))
def test_thresholds_are_short_and_no_rows_own_unless_whole(seed):
    rng = np.random.default_rng(seed)
    values = np.unique(rng.normal(size=300) * 10.0 ** rng.integers(-9, 9))
    for low, high in pairwise(values[::3]):
        short = threshold_between(low, high)
        assert low < short < high
        # Rounding the middle to fewer digits than are shown leaves the gap.
        shown = len(re.sub(r"e.*|[-.]|\.0$", "", repr(short)).strip("0"))
        for fewer in range(1, shown):
            assert not low < float(f"{(low + high) / 2:.{fewer}g}") < high
    assert threshold_between(61.0, 62.0) == 61
    assert threshold_between(20.0, 30.0) == 20
    following = math.nextafter(0.1, 1)
    assert threshold_between(0.1, following) == 0.1


def threshold_between(low, high):
    """The threshold of a tree whose rows have these two values."""
    column = np.repeat([low, high], 10)
    groups = explain_exposure(np.repeat([1.0, 9.0], 10), pd.DataFrame({"x": column}))
    (threshold,) = {float(group.label.split()[-1]) for group in groups}
    return threshold


def test_few_rows_and_constant_columns_do_not_split():
    assert len(explain_exposure([1.0, 2.0], [[1.0], [2.0]])) == 1
    assert len(explain_exposure(np.arange(9.0), np.arange(9.0).reshape(-1, 1))) == 1
    assert len(explain_exposure(np.arange(10.0), np.arange(10.0).reshape(-1, 1))) == 2
    assert len(explain_exposure(np.arange(50.0), np.ones((50, 2)))) == 1


def codes_of(table, *, names):
    """The cells of the columns as numbers that order them as the tree does, missing cells first."""
    return np.column_stack([np.nan_to_num(table[name], nan=-1e6) for name in names])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_the_tree_is_that_of_scikit_learn(seed, weighted):
    rng = np.random.default_rng(seed)
    rows = 600
    table = {
        "a": np.where(rng.random(rows) < 0.1, np.nan, np.round(rng.normal(size=rows), 2)),
        "b": rng.integers(0, 9, size=rows).astype(float),
        "c": rng.integers(0, 2, size=rows).astype(float),
    }
    scores = rng.exponential(size=rows) + 2 * (table["b"] > 5) + (table["a"] > 0.3) * table["c"]
    weights = rng.uniform(0.1, 1, size=rows) if weighted else None
    columns = [columns_module.Numbers(name=name, values=table[name]) for name in table]
    grown = tree.grow(scores, columns, depth=3, least=20, weights=weights)
    leaf = (
        {"min_samples_leaf": 20}
        if weights is None
        else {"min_weight_fraction_leaf": (20 - 1e-6) / weights.sum()}
    )
    variance = np.average((scores - np.average(scores, weights=weights)) ** 2, weights=weights)
    model = DecisionTreeRegressor(
        max_depth=3, min_impurity_decrease=0.001 * variance, random_state=0, **leaf
    )
    codes = codes_of(table, names=table)
    expected = model.fit(codes, scores, sample_weight=weights).apply(codes)
    parts = grown.parts(columns, rows)
    assert len(grown.labels) == len(np.unique(expected)) == len(np.unique(parts)) > 2
    assert len(np.unique(np.column_stack([expected, parts]), axis=0)) == len(grown.labels)


def test_of_equal_cuts_the_tree_takes_the_first():
    column = np.repeat([0.0, 1.0], 50)
    columns = [columns_module.Numbers(name=name, values=column) for name in ("first", "second")]
    assert tree.grow(column, columns, depth=3, least=5).labels == ("first is 0", "first is 1")


def test_a_large_table_is_sampled_with_a_notice(monkeypatch):
    table, rng = people(4000)
    age = np.array([math.nan if value is None else value for value in table["age"]])
    scores = rng.exponential(size=4000) * 0.01 + (age > 60)
    whole = explain_exposure(scores, pa.table(table))
    monkeypatch.setattr(tree, "_MOST_ROWS", 1000)
    monkeypatch.setattr(tree, "_MOST_CUTS", 20)
    sampled = explain_exposure(scores, pa.table(table))
    assert "1,000 rows" in sampled.notices[0]
    assert not whole.notices
    assert sampled.rows == 4000
    first = sampled.groups[0].label
    assert re.fullmatch(r"age > \d+(\.\d+)?( and .*)?", first)
    covered = sum(
        mask_of(g.label, {**table, "flag": [int(v) for v in table["flag"]]}) for g in sampled
    )
    assert np.all(covered == 1)


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (np.ones((3, 1)), {}, "has 3 entries"),
        (np.ones((2, 1)), {"depth": 4}, "depth=4"),
        (np.ones((2, 1)), {"depth": 0}, "depth=0"),
        (np.ones((2, 1)), {"feature_names": ["a", "b"]}, "feature_names has 2"),
        (np.ones((2, 1)), {"feature_names": "a"}, "feature_names"),
    ],
)
def test_a_bad_table_is_refused(X, options, message):
    with pytest.raises(InvalidInput, match=message):
        explain_exposure([1.0, 2.0], X, **options)


# Rows of persons ---------------------------------------------------------------------------------


def rows_of_persons(seed=0, count=60, most=7):
    """Scores of persons, and whose row each row is."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most + 1, count)
    owner = rng.permutation(np.repeat(np.arange(count), sizes))
    return rng.exponential(size=count), owner, rng


def test_each_row_counts_with_the_score_of_its_person():
    scores, owner, rng = rows_of_persons()
    city = rng.choice(["Oslo", "Bergen", "Paris"], len(owner))
    result = group_exposure(scores, city, name="city", owner=owner)
    spread = [float(scores[person]) for person in owner]
    for group in result:
        rows = [row for row in range(len(owner)) if city[row] == group.label]
        assert_figures(group, spread, rows)
        assert group.persons == len({int(owner[row]) for row in rows}) < group.rows
        assert group.to_json()["persons"] == group.persons
    assert result.rows == len(owner)
    shown = str(result)
    assert f"{len(owner)} rows, each with its person" in shown
    assert re.search(r"^ +group .* persons ", shown, re.MULTILINE)
    assert "persons" in result._repr_html_()
    # Rows on their own say nothing of persons.
    plain = group_exposure(spread, city, name="city")
    assert "person" not in str(plain) + plain._repr_html_()
    assert {group.to_json()["persons"] for group in plain} == {None}
    assert [group.rows for group in plain] == [group.rows for group in result]


def test_many_rows_of_few_persons_are_not_for_review():
    scores, owner, _ = rows_of_persons(most=30)
    few = np.where(owner < 4, "few", "many")
    assert np.count_nonzero(few == "few") > 5
    assert group_exposure(scores, few, owner=owner).audience is Audience.CURATOR_ONLY
    assert group_exposure(scores[owner], few).audience is Audience.NEEDS_REVIEW
    five = np.where(owner < 5, "few", "many")
    assert group_exposure(scores, five, owner=owner).audience is Audience.NEEDS_REVIEW


def test_a_tree_of_persons_singles_no_one_out():
    scores, owner, rng = rows_of_persons(count=100)
    # One exposed person with very many rows, who is alone at a place of a column; and ten more.
    owner = np.concatenate([owner, np.zeros(300, dtype=np.int64)])
    scores[0] = 40.0
    scores[90:] += 5.0
    column = rng.normal(size=len(owner))
    column[owner == 0] = 10.0
    column[owner >= 90] += 100.0
    result = explain_exposure(scores, column[:, None], owner=owner)
    assert len(result) > 1
    assert min(group.persons for group in result) >= 5
    assert result.audience is Audience.NEEDS_REVIEW
    assert result.groups[0].label.startswith("column 0 > ")
    # Power: the same rows on their own make a leaf of hers.
    alone = explain_exposure(scores[owner], column[:, None])
    assert any(group.mean == group.largest == 40.0 for group in alone)
    assert not any(group.mean == group.largest for group in result)


def test_where_there_are_few_persons_nothing_is_divided():
    scores, owner, rng = rows_of_persons(count=9, most=40)
    result = explain_exposure(scores, rng.normal(size=(len(owner), 2)), owner=owner)
    assert [(group.label, group.persons) for group in result] == [("all rows", 9)]


def test_persons_of_one_row_give_the_same_groups_and_the_same_tree():
    rng = np.random.default_rng(4)
    scores, X = rng.exponential(size=300), rng.normal(size=(300, 3))
    scores[X[:, 0] > 1] += 3
    owner = np.arange(300)
    for result, plain in (
        (group_exposure(scores, X[:, 0], owner=owner), group_exposure(scores, X[:, 0])),
        (explain_exposure(scores, X, owner=owner), explain_exposure(scores, X)),
    ):
        assert len(result) > 1
        assert [{**group.to_json(), "persons": group.rows} for group in plain] == [
            group.to_json() for group in result
        ]
