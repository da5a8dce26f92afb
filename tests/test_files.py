"""Files that are whole or absent, private unless they may be published, and strict JSON."""

import json
import math
import os
import stat

import pytest

from expost._files import adopt, drafts, read_json, write_bytes, write_json, write_with
from expost.errors import InvalidInput
from expost.types import Audience


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("audience", "mode"),
    [(Audience.FAIL, 0o600), (Audience.REVIEW, 0o600), (Audience.PASS, 0o644)],
)
def test_only_what_may_be_published_is_readable_by_others(tmp_path, audience, mode):
    path = write_bytes(tmp_path / "result", audience, b"content")
    assert path.read_bytes() == b"content"
    assert _mode(path) == mode


def test_a_file_is_private_while_it_is_written(tmp_path):
    seen = []

    def write(file):
        file.write(b"half")
        seen.extend(_mode(path) for path in tmp_path.iterdir())

    write_with(tmp_path / "result", Audience.PASS, write)
    assert seen == [0o600]


def test_the_mode_does_not_depend_on_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        path = write_bytes(tmp_path / "result", Audience.PASS, b"")
    finally:
        os.umask(before)
    assert _mode(path) == 0o644


def test_what_comes_before_sees_the_whole_content_and_no_file(tmp_path):
    seen = []

    def before():
        (draft,) = tmp_path.iterdir()
        seen.append((draft.read_bytes(), _mode(draft), draft.name == "result"))

    write_json(tmp_path / "result", Audience.PASS, [1], before=before)
    assert seen == [(b"[\n 1\n]\n", 0o600, False)]
    assert _mode(tmp_path / "result") == 0o644


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_if_what_comes_before_fails_nothing_appears(tmp_path, error):
    def fail():
        raise error

    with pytest.raises(type(error)):
        write_json(tmp_path / "result", Audience.PASS, [1], before=fail)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = write_bytes(tmp_path / "result", Audience.FAIL, b"old")

    def fail(file):
        file.write(b"new, but only ha")
        raise error

    with pytest.raises(type(error)):
        write_with(path, Audience.FAIL, fail)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["result"]


def test_a_new_file_replaces_the_old_one_and_its_mode(tmp_path):
    path = write_bytes(tmp_path / "result", Audience.PASS, b"old")
    write_bytes(path, Audience.FAIL, b"new")
    assert path.read_bytes() == b"new"
    assert _mode(path) == 0o600


def _left_by_a_crash(tmp_path, name="result", content=b"whole", unique="x1"):
    draft = tmp_path / f".{name}.{unique}.part"
    draft.write_bytes(content)
    return draft


def _is_whole(path):
    return path.read_bytes() == b"whole"


def test_a_whole_draft_of_a_killed_process_appears_and_halves_are_removed(tmp_path):
    _left_by_a_crash(tmp_path, content=b"who", unique="a")
    _left_by_a_crash(tmp_path, unique="b")
    other = _left_by_a_crash(tmp_path, name="result.more")
    seen = []
    path = tmp_path / "result"
    assert adopt(path, Audience.PASS, _is_whole, before=lambda: seen.append(path.exists()))
    assert (path.read_bytes(), _mode(path), seen) == (b"whole", 0o644, [False])
    assert sorted(tmp_path.iterdir()) == sorted([path, other])


def test_a_draft_never_takes_the_place_of_a_file(tmp_path):
    path = write_bytes(tmp_path / "result", Audience.FAIL, b"drawn")
    _left_by_a_crash(tmp_path)
    assert not adopt(path, Audience.FAIL, _is_whole)
    assert path.read_bytes() == b"drawn"
    assert list(tmp_path.iterdir()) == [path]


def test_only_one_draft_is_taken_and_without_any_nothing_appears(tmp_path):
    assert not adopt(tmp_path / "absent" / "result", Audience.FAIL, _is_whole)
    assert not adopt(tmp_path / "result", Audience.FAIL, _is_whole)
    _left_by_a_crash(tmp_path, unique="a")
    _left_by_a_crash(tmp_path, unique="b")
    assert len(drafts(tmp_path / "result")) == 2
    calls = []
    assert adopt(tmp_path / "result", Audience.FAIL, _is_whole, before=lambda: calls.append(1))
    assert calls == [1]
    assert [entry.name for entry in tmp_path.iterdir()] == ["result"]


def test_a_draft_stays_if_what_comes_before_fails(tmp_path):
    draft = _left_by_a_crash(tmp_path)

    def fail():
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        adopt(tmp_path / "result", Audience.FAIL, _is_whole, before=fail)
    assert list(tmp_path.iterdir()) == [draft], "to be taken the next time"


def test_json_comes_back_as_it_went(tmp_path):
    value = {"θ": [1.5, -0.0, 5e-324, 1e308], "name": "ä", "none": None, "deep": {"a": [True]}}
    path = write_json(tmp_path / "value.json", Audience.FAIL, value)
    assert read_json(path) == value
    assert math.copysign(1, read_json(path)["θ"][1]) == -1
    assert "θ" in path.read_text("utf-8"), "readable by people too"
    assert path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf], {"a": math.nan}])
def test_what_is_not_json_is_not_written(tmp_path, value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "value.json", Audience.FAIL, value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b'{"a": NaN}', b"Infinity", b'{"a": 1} x', b"\xff\xfe", b"[" * 100_000),
        *(b'{"a": {"b": 1, "b": 1}}', b'["\\ud800"]', b'{"\\udc00": 1}', b'{"a": -1e400}'),
    ],
    ids=[
        *("empty", "half", "NaN", "Infinity", "more", "no UTF-8", "deep"),
        *("twice", "half a pair", "half a name", "past float64"),
    ],
)
def test_broken_json_is_refused_by_name(tmp_path, content):
    path = tmp_path / "value.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"value\.json: is not a whole JSON file"):
        read_json(path)


def test_escapes_that_are_text_are_read(tmp_path):
    path = tmp_path / "value.json"
    path.write_bytes(b'{"\\u00e9": "\\ud83d\\ude00 \\\\u"}')
    assert read_json(path) == {"é": "\U0001f600 \\u"}


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InvalidInput, match=r"absent\.json: cannot be read"):
        read_json(tmp_path / "absent.json")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_json(tmp_path)


def test_names_say_who_may_read():
    assert Audience.PASS.file_name("model", "json") == "model.json"
    assert Audience.FAIL.file_name("profile", "json") == "profile.CURATOR-ONLY.json"
    assert Audience.REVIEW.file_name("summary", "html") == "summary.CURATOR-ONLY.html"
    assert len({audience.meaning for audience in Audience}) == 3
    assert json.dumps([audience.value for audience in Audience]) == '["fail", "review", "pass"]'
