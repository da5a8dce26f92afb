"""Summaries as JSON: read again they are the same, and nothing else is read."""

import json
import re
import time
from dataclasses import fields, replace
from functools import cache
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

import expost
from expost.errors import InvalidInput
from expost.report import (
    Choice,
    Origin,
    Part,
    Summary,
    collect,
    parse_json,
    render_html,
    render_json,
    render_markdown,
)
from expost.report.json import FORMAT
from expost.types import Audience

from .conftest import HOSTILE, synthetic
from .results import published
from .summaries import MAKERS, summary

# Parts that are never for everybody, and those that may be.
PRIVATE = {"profile", "epsilon", "audit", "audits", "beliefs", "training", "ledger"}
PUBLIC = {"risk", "published"}


@cache
def written(kind):
    return render_json(summary(kind))


def content(kind):
    return json.loads(written(kind))


def refused(value, words):
    """One printable sentence with these words."""
    text = value if isinstance(value, str | bytes) else json.dumps(value)
    with pytest.raises(InvalidInput, match=words) as caught:
        parse_json(text)
    message = str(caught.value)
    assert message.isprintable()
    assert message.endswith(".")
    assert len(message) < 400
    return message


# There and back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MAKERS)
def test_a_summary_read_again_is_the_same(kind):
    found = parse_json(written(kind))
    assert found == summary(kind)
    assert render_json(found) == written(kind)
    assert render_html(found) == render_html(summary(kind))
    assert render_markdown(found) == render_markdown(summary(kind))
    assert parse_json(written(kind).encode()) == found


@pytest.mark.parametrize("kind", MAKERS)
def test_every_file_starts_with_its_format_mark_and_answer(kind):
    plain = content(kind)
    assert plain["format"] == FORMAT
    assert plain["audience"] == summary(kind).audience.value
    assert plain["title"] == summary(kind).title
    assert plain["answer"] == list(summary(kind).answer)


def test_every_kind_of_part_is_among_the_pages():
    parts = {field.name for field in fields(Summary)} - {"versions"}
    assert {name for kind in MAKERS for name in summary(kind).by_name} == parts


def test_versions_keep_their_order_and_both_of_two_that_differ():
    merged = replace(summary("risk"), versions=(("numpy", "1"), ("expost", "2"), ("numpy", "2")))
    assert parse_json(render_json(merged)) == merged


def test_a_table_of_the_size_of_adult_is_written_and_read_in_a_second():
    large = collect(synthetic(48_842, ids=[f"person {row}" for row in range(48_842)]))
    assert len(large.profile.row_data.loss) == 48_842
    times = []
    # Once more if the machine was busy.
    while len(times) < 3 and not (times and max(times[-1]) < 1):
        start = time.process_time()
        text = render_json(large)
        between = time.process_time()
        found = parse_json(text)
        times.append((between - start, time.process_time() - between))
    assert found == large
    assert max(times[-1]) < 1


def test_lists_of_figures_stand_on_one_line():
    lines = written("profile-laplace").splitlines()
    assert sum(line.startswith('   "loss": [') and line.endswith("],") for line in lines) == 1
    assert not re.search(r"NaN|Infinity", written("profile-noiseless"))
    assert '"infinity"' in written("profile-noiseless")


# What comes from outside -------------------------------------------------------------------------


def test_hostile_text_is_spelled_out_when_it_is_read():
    plain = content("profile-bare")
    evil = "a\u202eb\x00\x1b[31m\n\u2028\ud800"
    plain["profile"]["model"] = evil
    plain["profile"]["top"][0]["key"] = evil
    plain["profile"]["notices"] = [evil]
    plain["versions"] = [[evil, evil]]
    plain["title"] = plain["meaning"] = evil
    plain["answer"] = [evil]
    found = parse_json(json.dumps(plain))
    harmless = "a\\u202eb\\x00\\x1b[31m\\n\\u2028\\ud800"
    assert found.profile.model == found.profile.top[0].key == harmless
    assert found.profile.notices == (harmless,)
    assert found.versions == ((harmless, harmless),)
    for text in (render_html(found), render_markdown(found), render_json(found)):
        assert not re.search("[\u202e\x00\x1b\u2028\ud800]", text)
        assert "\\u202e" in text
    # What is computed from the parts is computed anew.
    assert found.title == summary("profile-bare").title


def test_names_from_a_table_survive_as_they_were_shown():
    shown = summary("profile-hostile").profile.groups[0].name
    assert "<script>" in shown
    assert shown == parse_json(written("profile-hostile")).profile.groups[0].name
    assert HOSTILE not in written("profile-hostile")


def test_files_that_are_too_large_are_refused():
    plain = content("profile-bare")
    plain["profile"]["model"] = "x" * 10_000_000
    refused(plain, r"^profile\.model: is a text of 10,000,000 characters")
    refused(" " * 200_000_001, "^summary: is 200,000,001 characters long")


def test_what_is_not_json_is_refused():
    whole = written("profile-bare")
    for text in ("", "{", whole[:-3], whole + "x", "nonsense", b"\xff\xfe", b"\x00", "\ufeff{}"):
        refused(text, "^summary: is not whole JSON")
    for deep in ("[" * 100_000, '{"a":' * 100_000, '{"format": ' + "[" * 50_000):
        refused(deep, "^summary: is not whole JSON")
    for constant in ("NaN", "Infinity", "-Infinity"):
        refused(whole.replace('"rows": 3', f'"rows": {constant}', 1), "is not JSON")
    refused(whole.replace('"rows": 3', '"rows": ' + "9" * 5000, 1), "is not whole JSON")
    for text in ("[]", "1", '"x"', "null", "true"):
        refused(text, "^summary: must be a JSON object")


def test_a_name_that_occurs_twice_is_refused():
    twice = written("profile-bare").replace(
        '"audience": "fail"', '"audience": "fail", "audience": "pass"'
    )
    refused(twice, "a name twice")


def test_a_number_past_float64_is_refused():
    text = re.sub(r'("worst_case": )[^,]+', r"\g<1>1e999", written("profile-bare"), count=1)
    refused(text, r"^profile\.worst_case: must be a number that float64 holds")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ("expost-report/3", "was made by a newer expost"),
        ("expost-report/20", "was made by a newer expost"),
        ("expost-report/1", "expost publish"),
        ("expost-model/1", "a released model"),
        ("expost-profile/1", "is not a summary of results"),
        ("expost-report/2x", "is not a summary of results"),
        ("expost-report/02", "is not a summary of results"),
        ("\u202e" * 1000, "is not a summary of results"),
        (2, "is not a summary of results"),
        ([[[]]], "is not a summary of results"),
        (None, "^format: is missing"),
    ],
)
def test_other_formats_are_named(found, words):
    refused(content("profile-bare") | {"format": found}, words)


def test_an_object_without_a_format_is_refused():
    refused({}, "^format: is missing")
    refused({"coefficients": [1, 2]}, "^format: is missing")


def test_a_place_is_named():
    plain = content("profile-laplace")
    plain["profile"]["top"][3]["loss"] = "much"
    refused(plain, r"^profile\.top\[3\]\.loss: must be a number")
    plain = content("audit")
    plain["audit"]["attacks"][1]["auc"]["low"] = 0.99
    refused(plain, r"^audit\.attacks\[1\]\.auc: does not hold together \(low=0.99, value=")


def test_a_summary_of_nothing_is_refused():
    plain = content("risk") | {"risk": None}
    refused(plain, "has no part")


@pytest.mark.parametrize("name", ["audience", "meaning", "title", "answer", "versions", "profile"])
def test_what_stands_on_top_must_be_there(name):
    plain = content("profile-bare")
    del plain[name]
    refused(plain, name)
    plain[name] = 3
    refused(plain, name)


# Marks -------------------------------------------------------------------------------------------


def test_the_type_of_every_part_says_which_marks_it_may_have():
    marks = {}
    for field in fields(Summary):
        hint = get_type_hints(Summary)[field.name]
        part = next((each for each in get_args(hint) if isinstance(each, type)), None)
        if field.name == "versions":
            continue
        assert issubclass(part, Part)
        audience = get_type_hints(part)["audience"]
        # Without a narrower type any mark could be read from a file.
        assert get_origin(audience) is Literal, part
        marks[field.name] = set(get_args(audience))
    assert marks.keys() <= PRIVATE | PUBLIC
    for name in marks.keys() & PRIVATE:
        assert Audience.PASS not in marks[name]
    for name in PUBLIC:
        assert marks[name] == {Audience.PASS, Audience.REVIEW}


@pytest.mark.parametrize("mark", Audience)
@pytest.mark.parametrize("kind", sorted(set(MAKERS) - {"published", "published-answers"}))
def test_no_edited_mark_makes_private_figures_public(kind, mark):
    plain = content(kind)
    for name, part in summary(kind).by_name.items():
        own = part.audience.value
        plain[name]["audience"] = plain["audience"] = mark.value
        if name in PUBLIC:
            # Their mark is that of a model: they may be stricter, and are never the curator's.
            if mark is Audience.FAIL:
                refused(plain, rf'^{name}\.audience: must be "pass" or "review", not')
        elif mark is not part.audience:
            refused(plain, rf"^{name}\.audience: must be \"{own}\", not '{mark.value}'")
        plain[name]["audience"] = own


@pytest.mark.parametrize("mark", ["review", "pass"])
def test_the_mark_of_the_whole_is_that_of_its_parts(mark):
    plain = content("combined") | {"audience": mark}
    message = refused(plain, "^audience: the summary is marked")
    assert f"'{mark}', but its parts are 'fail'" in message
    with pytest.raises(InvalidInput, match="nothing here is marked pass"):
        parse_json(written("audit")).public()


def test_a_published_part_without_a_promise_is_not_for_everybody():
    plain = content("published")
    assert plain["audience"] == "pass"
    plain["published"]["budget"][0]["epsilon"] = "infinity"
    refused(
        plain, r"^published: does not hold together \(audience: is pass where no ε is promised\b"
    )
    plain["published"]["budget"] = []
    refused(plain, r"^published: does not hold together")
    plain["published"]["audience"] = plain["audience"] = "review"
    assert parse_json(json.dumps(plain)).audience is Audience.REVIEW


def test_what_is_told_of_a_model_under_review_is_not_for_everybody():
    risk = expost.identifiability(epsilon=1.0, delta=1e-5)
    of_a_model = replace(risk, audience=Audience.REVIEW)
    reviewed = collect(of_a_model)
    assert (reviewed.audience, reviewed.risk.audience) == (Audience.REVIEW, Audience.REVIEW)
    assert parse_json(render_json(reviewed)) == reviewed
    with pytest.raises(InvalidInput, match=r"nothing here is marked pass \(risk: review\)"):
        reviewed.public()
    plain = json.loads(render_json(reviewed))
    plain["risk"]["audience"] = plain["audience"] = "pass"
    refused(plain, r"^risk: does not hold together \(audience: is pass where the model is review\b")
    # Of a promise that anybody may know the same mark is right; and stricter is never wrong.
    free = json.loads(render_json(collect(risk)))
    assert parse_json(json.dumps(free)).public().audience is Audience.PASS
    free["risk"]["audience"] = free["audience"] = "review"
    assert parse_json(json.dumps(free)).audience is Audience.REVIEW
    # What is said beside it goes with what is not for everybody.
    both = collect(published(), of_a_model, source="patients.json")
    assert (both.published.source, both.risk.source) == (None, "patients.json")
    assert "patients" not in render_json(both.public())


def test_what_is_told_of_the_data_is_not_on_a_public_page():
    told = {
        "choices": [Choice(name="bound", value="71 years", origin=Origin.READ)],
        "notices": ["Three rows were left out."],
        "source": "patients.csv",
        "made": "2026-11-16",
    }
    risk, profile = expost.identifiability(epsilon=1.0), synthetic(3)
    for results in ((risk, profile), (profile, risk)):
        both = collect(*results, **told)
        assert both.profile.source == "patients.csv"
        assert "Three rows" in render_json(both)
        for shown in (render_json(both.public()), render_html(both.public())):
            assert not any(words in shown for words in ("71 years", "Three rows", "patients"))
    alone = collect(risk, source="promise.json")
    assert alone.public().risk.source == "promise.json"
    with pytest.raises(InvalidInput, match="read from the data"):
        collect(risk, choices=told["choices"])
    for name in PUBLIC:
        plain = content(name)
        plain[name]["choices"] = [{"name": "a", "value": "b", "origin": "read from the data"}]
        refused(plain, rf"^{name}: does not hold together \(choices: one was read from the data")


def test_a_public_summary_holds_nothing_of_the_other_parts():
    public = parse_json(written("combined")).public()
    assert public == summary("public")
    assert parse_json(render_json(public)) == public
    assert public.audience is Audience.PASS
    names = [name for name, part in summary("combined").by_name.items() if name in PRIVATE]
    assert names
    assert all(content("public")[name] is None for name in names)
