"""Broken and hostile files: any bytes and any values are read, or refused in one sentence."""

import copy
import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.errors import ExpostError, InvalidInput
from expost.jobs.report import ReportJob, run
from expost.report import Summary, parse_json, render_json
from expost.types import Audience

from .test_json import content, refused, written

# What a mutation puts in the place of a value.
OTHERS = [
    None,
    True,
    0,
    -1,
    3.5,
    1e308,
    10**15,
    2**60,
    "infinity",
    "",
    "pass",
    "\u202e\x00",
    [],
    {},
]
OTHERS += [[1.0], ["a", "b"], {"audience": "pass"}]


def read(text) -> Summary | str:
    """The summary, or the sentence that refuses it; anything else that is raised is a failure."""
    try:
        return parse_json(text)
    except ExpostError as error:
        return str(error)


def places(value, path=()):
    """The way to every value, but for the middle of long lists."""
    if path:
        yield path
    if isinstance(value, dict):
        for name, each in value.items():
            yield from places(each, (*path, name))
    elif isinstance(value, list):
        for place in sorted({0, len(value) // 2, len(value) - 1}) if value else ():
            yield from places(value[place], (*path, place))


def mutated(plain, path, other, way):
    """``plain`` with another value at a place, without it, or with one beside it."""
    plain = copy.deepcopy(plain)
    target = plain
    for step in path[:-1]:
        target = target[step]
    last = path[-1]
    if way == "gone":
        del target[last]
    elif way == "beside" and isinstance(target, dict):
        target["another"] = other
    elif way == "beside":
        target.insert(last, other)
    else:
        target[last] = other
    return plain


SMALL = ("profile-bare", "profile-still")
PLACES = {kind: list(places(content(kind))) for kind in SMALL}


@given(
    st.sampled_from(SMALL).flatmap(lambda k: st.tuples(st.just(k), st.sampled_from(PLACES[k]))),
    st.sampled_from(OTHERS)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    st.sampled_from(["other", "other", "other", "gone", "beside"]),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_what_is_read_is_read_the_same_again(place, other, way):
    kind, path = place
    plain = mutated(content(kind), path, other, way)
    found = read(json.dumps(plain))
    if isinstance(found, Summary):
        assert parse_json(render_json(found)) == found
    else:
        assert found.isprintable()


# Any bytes ---------------------------------------------------------------------------------------


def cut(rng, data):
    """Bytes changed in one of the ways in which files break, or are broken."""
    start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    match rng.randrange(6):
        case 0:
            place = rng.randrange(len(data))
            return data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
        case 1:
            return data[:start]
        case 2:
            return data[:start] + data[min(end, start + 40) :]
        case 3:
            return data[:start] + data[start : start + 60] * 2 + data[start + 60 :]
        case 4:
            junk = rng.choice([b"\x00", b"\xff", b'"', b"[" * 50, b"1e999", b"\\ud800", b"}"])
            return data[:start] + junk + data[start:]
        case _:
            # One digit, quote or brace for another: it is often still JSON.
            found = [place for place, byte in enumerate(data) if byte in b'0123456789"{}[],-.']
            place = rng.choice(found)
            return data[:place] + rng.choice([b"9", b"-", b".", b'"', b"e"]) + data[place + 1 :]


def test_no_bytes_make_it_fail_in_another_way():
    rng = random.Random(8)
    data = [written(kind).encode() for kind in (*SMALL, "risk")]
    whole = 0
    for case in range(1000):
        text = cut(rng, rng.choice(data[:2] if case % 10 else data))
        found = read(text)
        whole += isinstance(found, Summary)
        assert isinstance(found, Summary) or len(found) < 400
    # Most are refused; a digit of a figure may be another.
    assert 20 < whole < 500


def test_no_values_make_it_fail_in_another_way():
    rng = random.Random(9)
    whole = 0
    for case in range(1000):
        kind = SMALL[case % 2]
        plain = content(kind)
        for _ in range(rng.choice([1, 1, 3])):
            path = rng.choice(list(places(plain)))
            plain = mutated(
                plain, path, rng.choice(OTHERS), rng.choice(["other", "gone", "beside"])
            )
        found = read(json.dumps(plain))
        whole += isinstance(found, Summary)
        assert (
            found.audience is Audience.FAIL if isinstance(found, Summary) else found.isprintable()
        )
    assert 20 < whole < 500


def test_figures_are_never_nan():
    plain = content("profile-laplace")
    figures = [path for path in places(plain) if isinstance(_at(plain, path), float)]
    assert len(figures) > 50
    for path in figures[:: len(figures) // 40]:
        text = json.dumps(mutated(plain, path, math.nan, "other"))
        assert "NaN" in text
        refused(text, "the constant NaN is not JSON")


def _at(plain, path):
    for step in path:
        plain = plain[step]
    return plain


def test_figures_of_the_right_type_that_cannot_be_shown_are_refused_too(tmp_path):
    for place, (path, other) in enumerate(
        [
            (("profile", "top", 0, "belief"), 3.0),
            (("profile", "curve", 0, "typical"), None),
        ]
    ):
        file = tmp_path / f"{place}.json"
        file.write_text(json.dumps(mutated(content("profile-bare"), path, other, "other")))
        out = tmp_path / str(place)
        with pytest.raises(InvalidInput, match=r"^summary: holds figures that cannot be shown"):
            run(ReportJob(paths=(file,), out=out))
        assert not out.exists() or not list(out.iterdir())


def test_rows_whose_figures_are_not_one_for_each_are_refused():
    plain = content("profile-laplace")
    for name in ("numbers", "keys", "loss", "low", "high", "distance"):
        shorter = (plain["profile"]["row_data"][name] or ["a"] * 60)[:-1]
        broken = mutated(plain, ("profile", "row_data", name), shorter, "other")
        refused(broken, r"^profile\.row_data: does not hold together \(rows: must have one")
    for number in (-1, 2**32):
        broken = mutated(plain, ("profile", "row_data", "numbers", 3), number, "other")
        refused(broken, r"^profile\.row_data: does not hold together \(numbers: must")
