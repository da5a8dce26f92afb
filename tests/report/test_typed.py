"""Dataclasses as plain values and back: against a naive walk over values, and what is refused."""

import json
import math
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.errors import InvalidInput
from expost.report.typed import from_plain, to_plain


class Colour(Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Point:
    """A point; None of it is private.

    ``x``  where it is,
           from the left.
    ``y, label``  the others, as a :class:`~expost.Thing` or ``x``.
    Not indented: of the point again.
    """

    x: float
    y: float | None = None
    label: str = ""

    def __post_init__(self):
        if not self.x >= -100:
            raise InvalidInput("x: is too far left.")


@dataclass(frozen=True, kw_only=True)
class Base:
    """``name``  and what else all have.

    ``name``  of the thing.
    """

    name: str
    colour: Colour = Colour.RED


@dataclass(frozen=True, kw_only=True)
class Everything(Base):
    """All kinds of fields."""

    colour: Literal[Colour.BLUE] = Colour.BLUE
    any_colour: Colour | None
    number: int
    flag: bool
    maybe: bool | None
    points: tuple[Point, ...]
    figures: tuple[float, ...]
    whole: tuple[int, ...] | None
    words: tuple[str, ...]
    pairs: tuple[tuple[str, float], ...]
    nested: tuple[tuple[float, ...], ...]
    fixed: tuple[float, int, str]


figure = st.floats(allow_nan=False)
word = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), max_size=8)
whole = st.integers(-(2**53) + 1, 2**53 - 1)
point = st.builds(Point, x=st.floats(-100, allow_nan=False), y=st.none() | figure, label=word)
everything = st.builds(
    Everything,
    name=word,
    colour=st.just(Colour.BLUE),
    any_colour=st.none() | st.sampled_from(Colour),
    number=whole,
    flag=st.booleans(),
    maybe=st.none() | st.booleans(),
    points=st.lists(point, max_size=3).map(tuple),
    figures=st.lists(figure, max_size=4).map(tuple),
    whole=st.none() | st.lists(whole, max_size=4).map(tuple),
    words=st.lists(word, max_size=4).map(tuple),
    pairs=st.lists(st.tuples(word, figure), max_size=2).map(tuple),
    nested=st.lists(st.lists(figure, max_size=3).map(tuple), max_size=3).map(tuple),
    fixed=st.tuples(figure, whole, word),
)


def naive(value):
    """The plain form by what a value is, and not by what its type is declared as."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [naive(each) for each in value]
    if is_dataclass(value):
        return {field.name: naive(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, float) and math.isinf(value):
        return {math.inf: "infinity", -math.inf: "-infinity"}[value]
    return value


@given(everything)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_a_round_trip_through_json_gives_the_same(value):
    plain = to_plain(value)
    assert plain == naive(value)
    again = json.loads(json.dumps(plain, allow_nan=False))
    assert from_plain(Everything, again) == value


SOME = Everything(
    name="n",
    any_colour=None,
    number=3,
    flag=True,
    maybe=None,
    points=(Point(x=1.0), Point(x=2.0, y=math.inf)),
    figures=(1.0, 2.0),
    whole=(1, 2),
    words=("a", "b"),
    pairs=(("a", 1.0),),
    nested=((1.0,), ()),
    fixed=(1.0, 2, "c"),
)


def edited(path, value):
    """The plain form with another value at a place; the way to it is written as messages do."""
    plain = to_plain(SOME)
    target = plain
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return plain


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["name"], 3, 'name: must be a text, not a number'),
        (["name"], None, "name: must be a text, not null"),
        (["name"], "x" * 1_000_001, "name: is a text of 1,000,001 characters"),
        (["number"], 1.5, "number: must be a whole number"),
        (["number"], True, "number: must be a whole number, not a truth value"),
        (["number"], 2**53, "number: must be a whole number of at most"),
        (["number"], "3", "number: must be a whole number, not '3'"),
        (["number"], math.inf, "number: must be a whole number"),
        (["flag"], 1, "flag: must be true or false, not a number"),
        (["colour"], "red", 'colour: must be "blue", not \'red\''),
        (["any_colour"], "green", 'any_colour: must be "red" or "blue", not \'green\''),
        (["any_colour"], ["red"], "any_colour: must be"),
        (["points"], {}, "points: must be a list, not an object"),
        (["points", 1, "x"], None, 'points[1].x: must be a number, "infinity"'),
        (["points", 1, "x"], math.nan, "points[1].x: must be a number that float64 holds"),
        (["points", 1, "x"], math.inf, "points[1].x: must be a number that float64 holds"),
        (["points", 1, "x"], 10**400, "points[1].x: must be a number that float64 holds"),
        (["points", 1, "x"], "Infinity", "points[1].x: must be a number"),
        (["points", 1, "x"], False, "points[1].x: must be a number"),
        (["points", 1, "x"], "-infinity", "points[1]: does not hold together (x: is too far left)"),
        (["points", 0], [], "points[0]: must be an object, not a list of 0"),
        (["points", 0, "z"], 1, "points[0]: has a field 'z', which nothing here has"),
        (["figures", 1], "1", "figures[1]: must be a number"),
        (["figures", 1], math.nan, "figures[1]: must be a number"),
        (["words", 1], 1, "words[1]: must be a text"),
        (["whole", 0], 10**30, "whole[0]: must be a whole number"),
        (["whole"], 3, "whole: must be a list, not a number"),
        (["pairs", 0], ["a"], "pairs[0]: must be a list of 2 entries, not a list of 1"),
        (["pairs", 0, 1], "a", "pairs[0][1]: must be a number"),
        (["nested", 0, 0], [], "nested[0][0]: must be a number"),
        (["fixed"], [1, 2, "c", 4], "fixed: must be a list of 3 entries, not a list of 4"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_place(path, value, said):
    with pytest.raises(InvalidInput) as caught:
        from_plain(Everything, edited(path, value))
    message = str(caught.value)
    assert message.startswith(said)
    assert message.endswith("; make the summary again.")
    assert len(message) < 200


def test_missing_fields_are_refused_even_where_they_have_a_default():
    plain = to_plain(SOME)
    del plain["points"][0]["label"]
    with pytest.raises(InvalidInput, match=r"^points\[0\]: has no field 'label'"):
        from_plain(Everything, plain)
    for wrong in (None, 1, "x", [], True):
        with pytest.raises(InvalidInput, match=r"^summary: must be an object"):
            from_plain(Everything, wrong)


def test_names_and_values_in_messages_are_short_and_printable():
    for name in ("\u202e\x00" * 500, "\ud800", "a\nb"):
        with pytest.raises(InvalidInput) as caught:
            from_plain(Point, {**to_plain(Point(x=1.0)), name: 1})
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 200
        with pytest.raises(InvalidInput) as caught:
            from_plain(Point, {**to_plain(Point(x=1.0)), "x": name})
        assert str(caught.value).isprintable()


def test_whole_figures_and_numbers_may_be_written_either_way():
    plain = edited(["number"], 4.0) | {"figures": [1, 2.5, "infinity"], "whole": [1.0, 2]}
    found = from_plain(Everything, plain)
    assert (found.number, found.figures, found.whole) == (4, (1.0, 2.5, math.inf), (1, 2))
    assert [type(each) for each in (found.number, *found.figures, *found.whole)] == [
        int, float, float, float, int, int
    ]  # fmt: skip


def test_texts_become_one_printable_line():
    texts = ["a\nb", "\x1b[31m", "\u202eevil", "\ud800", "\x00", "\u2028", "fine\u00a0é ε"]
    found = from_plain(Everything, edited(["words"], texts))
    assert found.words == (
        "a\\nb", "\\x1b[31m", "\\u202eevil", "\\ud800", "\\x00", "\\u2028", "fine\u00a0é ε"
    )  # fmt: skip
    assert from_plain(Everything, edited(["name"], "\r")).name == "\\r"
    assert from_plain(Everything, to_plain(found)) == found


def test_numbers_of_other_libraries_become_plain_ones():
    point = Point(x=np.float64(0.5), y=np.float32(2), label=np.str_("a"))
    plain = to_plain(point)
    assert plain == {"x": 0.5, "y": 2.0, "label": "a"}
    assert {type(each) for each in plain.values()} == {float, str}
    assert json.dumps(plain)


def test_what_cannot_be_written_is_refused():
    with pytest.raises(InvalidInput, match=r"^points\[1\]\.y: is not a number"):
        to_plain(_with(points=(Point(x=1.0), Point(x=1.0, y=math.nan))))
    with pytest.raises(InvalidInput, match=r"^figures\[1\]: is not a number"):
        to_plain(_with(figures=(1.0, math.nan)))
    with pytest.raises(InvalidInput, match=r'^colour: must be "blue"'):
        to_plain(_with(colour=Colour.RED))
    with pytest.raises(InvalidInput, match=r"^number: must be a whole number"):
        to_plain(_with(number=True))


def _with(**changes):
    return Everything(**{f.name: getattr(SOME, f.name) for f in fields(SOME)} | changes)


def test_a_type_without_a_plain_form_is_a_mistake_of_ours():
    @dataclass
    class Loose:
        content: dict[str, int]

    for hint in (Loose, dict[str, int], int | str, list[int], Literal["a"]):
        with pytest.raises(TypeError, match="no plain form"):
            from_plain(hint, {})
