"""Summaries and their Markdown as they were when somebody last looked at them.

Texts are compared exactly, numbers to 10⁻⁹: another machine's BLAS adds up in another order. A
change that is meant is written by

    EXPOST_UPDATE_SNAPSHOTS=1 python -m pytest -n 0 tests/report/test_snapshots.py

and is looked at in the diff before it is committed. Long lists are thinned out, and the tables of
the slider are left out: their last coefficients are rounding errors, and test_slider.py compares
them with the law.
"""

import copy
import json
import math
import os
import re
from pathlib import Path

import pytest

from expost.report import render_json, render_markdown
from expost.report.json import laid_out

from .summaries import MAKERS, summary

FOLDER = Path(__file__).parent / "snapshots"
UPDATE = "EXPOST_UPDATE_SNAPSHOTS"
# Summaries that differ from another one in a few figures alone, and those of hostile names.
LEFT_OUT = {"profile-hostile", "profile-still", "epsilon-unmeasured", "audit-refuted"}
KINDS = sorted(set(MAKERS) - LEFT_OUT)
_LONG, _KEPT = 24, 8


def thinned(value, name=""):
    """``value`` without the tables, and with a few entries of each long list."""
    if isinstance(value, dict):
        return {key: thinned(each, key) for key, each in value.items()}
    if name == "coefficients":
        return f"{len(value)} pieces"
    if not isinstance(value, list):
        return value
    if len(value) <= _LONG:
        return [thinned(each) for each in value]
    places = [round(step * (len(value) - 1) / (_KEPT - 1)) for step in range(_KEPT)]
    return {"length": len(value), "some": {str(at): thinned(value[at]) for at in places}}


def differences(kept, found, path=""):
    """Where the two differ, in words."""
    if isinstance(kept, dict) and isinstance(found, dict):
        for name in (*kept, *(found.keys() - kept.keys())):
            if name in kept and name in found:
                yield from differences(kept[name], found[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}: only {'kept' if name in kept else 'found'}"
    elif isinstance(kept, list) and isinstance(found, list) and len(kept) == len(found):
        for place, (one, other) in enumerate(zip(kept, found, strict=True)):
            yield from differences(one, other, f"{path}[{place}]")
    elif isinstance(kept, float) and isinstance(found, float):
        if not math.isclose(kept, found, rel_tol=1e-9, abs_tol=1e-9):
            yield f"{path}: {kept!r} was kept, {found!r} found"
    elif kept != found or type(kept) is not type(found):
        yield f"{path}: {kept!r} was kept, {found!r} found"


def masked(text):
    """``text`` without errors so small that they are of rounding, and differ between machines."""
    return re.sub(r"± \d\.\d+ × 10⁻(¹[⁰-⁹¹²³]|[²³⁴-⁹][⁰-⁹¹²³])", "± rounding", text)


def kept(name, text):
    """The snapshot of this name; written first where that is asked for."""
    path = FOLDER / name
    if os.environ.get(UPDATE):
        path.write_text(text, "utf-8")
    assert path.exists(), f"{path.name} is missing; run this with {UPDATE}=1"
    return path.read_text("utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_a_summary_is_as_it_was(kind):
    found = thinned(json.loads(render_json(summary(kind))))
    was = json.loads(kept(f"{kind}.json", laid_out(found) + "\n"))
    assert list(differences(was, found)) == [], f"if that is meant, run this with {UPDATE}=1"


@pytest.mark.parametrize("kind", KINDS)
def test_its_markdown_is_as_it_was(kind):
    found = render_markdown(summary(kind))
    was = kept(f"{kind}.md", found)
    assert masked(found) == masked(was), f"if that is meant, run this with {UPDATE}=1"


def test_there_are_no_other_snapshots():
    assert {path.name for path in FOLDER.iterdir()} == {
        f"{kind}.{suffix}" for kind in KINDS for suffix in ("json", "md")
    }


def test_a_difference_is_found_wherever_it_is():
    was = {"a": [1.0, {"b": "text", "c": None}], "d": True, "e": 3}
    assert list(differences(was, copy.deepcopy(was))) == []
    assert list(differences(was, was | {"a": [1.0 + 1e-12, was["a"][1]]})) == []
    changed = {
        ".a[0]": was | {"a": [1.0 + 1e-6, was["a"][1]]},
        ".a[1].b": was | {"a": [1.0, {"b": "Text", "c": None}]},
        ".a[1].c": was | {"a": [1.0, {"b": "text", "c": 0.0}]},
        ".a": was | {"a": [1.0]},
        ".d": was | {"d": 1},
        ".e": was | {"e": 4},
        ".f": was | {"f": 1},
    }
    for place, found in changed.items():
        (one,) = differences(was, found)
        assert one.startswith(f"{place}:")
    (gone,) = differences(was, {"a": was["a"], "d": True})
    assert gone == ".e: only kept"


def test_rounding_errors_in_texts_are_masked():
    small, large = "x ± 2.66 × 10⁻¹⁴ y ± 1.00 × 10⁻²⁰", "± 9.51 × 10⁻⁶ and 2 × 10⁻¹⁴"
    assert masked(small) == "x ± rounding y ± rounding"
    assert masked(large) == large


def test_long_lists_are_thinned_and_tables_left_out():
    found = thinned({"x": list(range(100)), "y": [1, 2], "coefficients": [[1.0], [2.0]]})
    assert found["x"]["length"] == 100
    assert [found["x"]["some"][at] for at in ("0", "99")] == [0, 99]
    assert len(found["x"]["some"]) == 8
    assert (found["y"], found["coefficients"]) == ([1, 2], "2 pieces")
