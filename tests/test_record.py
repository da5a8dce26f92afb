"""The comparison of recorded values notices what it is there to notice."""

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parent.parent / "tools" / "record.py"
STRICT = "memory/logistic/remove/output/laplace/0.001/120x7:loss"
LENIENT = "memory/logistic/add/output/laplace/0.001/120x7:loss"
LOSSES = [0.1 * row - 0.7 for row in range(20)]


@pytest.fixture(scope="module")
def record():
    spec = importlib.util.spec_from_file_location("record", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules["record"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["record"]


def changed(index: int, value: float) -> list[float]:
    return [*LOSSES[:index], value, *LOSSES[index + 1 :]]


def outcome(compare, key, old, new) -> str:
    return compare(key, old, new).outcome


def test_the_last_bit_counts_where_bit_identity_is_asked(record):
    new = changed(3, float(np.nextafter(LOSSES[3], 1)))
    assert outcome(record.compare_exactly, STRICT, LOSSES, LOSSES) == "identical"
    assert outcome(record.compare_exactly, STRICT, LOSSES, new) == "differing"
    assert outcome(record.compare_exactly, LENIENT, LOSSES, new) == "within"
    assert outcome(record.compare_exactly, STRICT, [0.0], [-0.0]) == "differing"


def test_more_than_the_tolerance_differs_whatever_the_size_of_the_entry(record):
    near_zero = changed(7, LOSSES[7] + 1e-11)
    assert outcome(record.compare_exactly, LENIENT, LOSSES, near_zero) == "differing"
    assert outcome(record.compare_digests, LENIENT, LOSSES, near_zero) == "within"


@pytest.mark.parametrize("index", range(len(LOSSES)))
def test_a_change_of_any_entry_shows_in_the_stored_digest(record, index):
    old, new = record.digest(LOSSES), record.digest(changed(index, LOSSES[index] - 1e-6))
    assert outcome(record.compare_digests, LENIENT, old, new) == "differing"


def test_a_change_of_1e_8_shows_in_a_digest(record):
    new = record.digest([value * (1 + 1e-8) for value in LOSSES])
    assert outcome(record.compare_digests, LENIENT, record.digest(LOSSES), new) == "differing"
    assert outcome(record.compare_digests, LENIENT, record.digest(LOSSES), new[:-1]) == "differing"


def test_error_bounds_need_only_have_the_same_magnitude_in_a_digest(record):
    key = STRICT.replace(":loss", ":error")
    assert outcome(record.compare_digests, key, [1e-12, 0.0], [5e-12, 1e-310]) == "within"
    assert outcome(record.compare_digests, key, [1e-12, 0.0], [2e-11, 0.0]) == "differing"
    assert outcome(record.compare_digests, key, [1e-12], [math.inf]) == "differing"
    assert outcome(record.compare_digests, key, [40, 1e-12], [41, 1e-12]) == "differing"
    assert outcome(record.compare_exactly, key, [1e-12], [1.1e-12]) == "differing"


@pytest.mark.parametrize("key", [STRICT, LENIENT])
@pytest.mark.parametrize("compare", ["compare_exactly", "compare_digests"])
def test_what_is_not_finite_equals_only_itself(record, key, compare):
    compare = getattr(record, compare)
    special = [math.nan, math.inf, -math.inf, None, True, "remove"]
    for entry in special:
        assert outcome(compare, key, [1.0, entry], [1.0, entry]) == "identical"
        for other in [1.0, *special]:
            if other is not entry:
                assert outcome(compare, key, [1.0, entry], [1.0, other]) == "differing"
                assert outcome(compare, key, [1.0, other], [1.0, entry]) == "differing"


def test_a_missing_and_a_new_key_differ(record):
    old, new = {STRICT: [1.0], LENIENT: [1.0]}, {STRICT: [1.0], "commands/new:key": [1.0]}
    verdicts = record.compare_records(old, new, record.compare_exactly)
    differing = {verdict.key for verdict in verdicts if verdict.outcome == "differing"}
    assert differing == {LENIENT, "commands/new:key"}
    assert record.report(verdicts, 1e-12) == 1
    assert record.report(verdicts[-1:], 1e-12) == 0


def test_renamed_keys_and_explained_differences_pass(record, monkeypatch):
    monkeypatch.setattr(record, "KEYS", {r"\.belief$": ".posterior"})
    monkeypatch.setattr(record, "WORDS", {"fail": "curator-only"})
    old = {"commands/a:x.belief": [0.5, "fail"], "commands/a:y": [1.0]}
    new = {"commands/a:x.posterior": [0.5, "curator-only"], "commands/a:y": [2.0]}
    verdicts = record.compare_records(record.rename(old), new, record.compare_exactly)
    assert record.report(verdicts, 1e-12) == 1
    monkeypatch.setattr(record, "EXPLAINED", {r":y$": "y is counted twice."})
    assert record.report(verdicts, 1e-12) == 0


def test_values_are_read_back_to_the_last_bit(record, tmp_path):
    values = {STRICT: [0.1, 5e-324, -0.0, math.inf, math.nan, None, "remove", 3]}
    record.write(tmp_path / "values.json", values)
    verdicts = record.compare_records(
        values, record.read(tmp_path / "values.json"), record.compare_exactly
    )
    assert [verdict.outcome for verdict in verdicts] == ["identical"]
