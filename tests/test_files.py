"""Files that are whole or absent, private unless they may be published, and strict JSON."""

import math
import os
import stat

import pytest

from expost.errors import InvalidInput
from expost.files.atomic import adopt, drafts, read_json, write_bytes, write_json, write_with
from expost.files.directory import RUN
from expost.types import Audience
from program import mode


@pytest.mark.parametrize(
    ("audience", "expected"),
    [(Audience.CURATOR_ONLY, 0o600), (Audience.NEEDS_REVIEW, 0o600), (Audience.PUBLIC, 0o644)],
)
def test_only_what_may_be_published_is_readable_by_others(tmp_path, audience, expected):
    path = write_bytes(tmp_path / "result", audience, b"content")
    assert path.read_bytes() == b"content"
    assert mode(path) == expected


def test_a_file_is_private_while_it_is_written(tmp_path):
    observed = []

    def write(file):
        file.write(b"half")
        observed.extend(mode(path) for path in tmp_path.iterdir())

    write_with(tmp_path / "result", Audience.PUBLIC, write)
    assert observed == [0o600]


def test_the_mode_does_not_depend_on_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        path = write_bytes(tmp_path / "result", Audience.PUBLIC, b"")
    finally:
        os.umask(before)
    assert mode(path) == 0o644


def test_what_comes_before_sees_the_whole_content_and_no_file(tmp_path):
    observed = []

    def before():
        (draft,) = tmp_path.iterdir()
        observed.append((draft.read_bytes(), mode(draft), draft.name == "result"))

    write_json(tmp_path / "result", Audience.PUBLIC, [1], before=before)
    assert observed == [(b"[\n 1\n]\n", 0o600, False)]
    assert mode(tmp_path / "result") == 0o644


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_if_what_comes_before_fails_nothing_appears(tmp_path, error):
    def fail():
        raise error

    with pytest.raises(type(error)):
        write_json(tmp_path / "result", Audience.PUBLIC, [1], before=fail)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = write_bytes(tmp_path / "result", Audience.CURATOR_ONLY, b"old")

    def fail(file):
        file.write(b"new, but only ha")
        raise error

    with pytest.raises(type(error)):
        write_with(path, Audience.CURATOR_ONLY, fail)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["result"]


def test_a_new_file_replaces_the_old_one_and_its_mode(tmp_path):
    path = write_bytes(tmp_path / "result", Audience.PUBLIC, b"old")
    write_bytes(path, Audience.CURATOR_ONLY, b"new")
    assert path.read_bytes() == b"new"
    assert mode(path) == 0o600


def _left_by_a_crash(tmp_path, name="result", content=b"whole", unique="x1"):
    draft = tmp_path / f".{name}.{unique}.part"
    draft.write_bytes(content)
    return draft


def test_a_whole_draft_of_a_killed_process_appears(tmp_path):
    draft = _left_by_a_crash(tmp_path)
    other = _left_by_a_crash(tmp_path, name="result.more")
    observed = []
    path = tmp_path / "result"
    assert drafts(path) == [draft]
    adopt(path, Audience.PUBLIC, draft, before=lambda: observed.append(path.exists()))
    assert (path.read_bytes(), mode(path), observed) == (b"whole", 0o644, [False])
    assert sorted(tmp_path.iterdir()) == sorted([path, other])


def test_drafts_are_found_where_they_were_written(tmp_path):
    assert drafts(tmp_path / "absent" / "result") == []
    (tmp_path / "elsewhere").mkdir()
    draft = _left_by_a_crash(tmp_path / "elsewhere")
    assert drafts(tmp_path / "result") == []
    assert drafts(tmp_path / "result", tmp_path / "elsewhere") == [draft]


def test_a_draft_stays_if_what_comes_before_fails(tmp_path):
    draft = _left_by_a_crash(tmp_path)

    def fail():
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        adopt(tmp_path / "result", Audience.CURATOR_ONLY, draft, before=fail)
    assert list(tmp_path.iterdir()) == [draft], "to be taken the next time"


def _folder(path):
    path.mkdir()


def _link(path):
    target = path.with_name("target")
    target.write_bytes(b"of another")
    path.symlink_to(target)


def _dangling_link(path):
    path.symlink_to(path.with_name("nowhere"))


@pytest.mark.parametrize("make", [_folder, _link, _dangling_link, os.mkfifo])
def test_nothing_but_a_regular_file_is_replaced(tmp_path, make):
    path = tmp_path / "result"
    make(path)
    before = sorted((entry.name, entry.lstat()) for entry in tmp_path.iterdir())
    with pytest.raises(InvalidInput, match="only a regular file is replaced"):
        write_bytes(path, Audience.CURATOR_ONLY, b"new")
    assert [name for name, _ in before] == sorted(entry.name for entry in tmp_path.iterdir())
    assert stat.S_IFMT(path.lstat().st_mode) != stat.S_IFREG
    if (tmp_path / "target").exists():
        assert (tmp_path / "target").read_bytes() == b"of another"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent/model.json", "its folder does not exist; make it"),
        ("file/model.json", "its folder does not exist; make it"),
        ("", "must be the name of a file"),
        (None, "must be the name of a file"),
        (3, "must be the name of a file"),
        ("a\0b.json", "must be the name of a file"),
        ("\ud800.json", "must be the name of a file"),
    ],
)
def test_a_name_that_cannot_be_written_is_refused(tmp_path, monkeypatch, name, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=words):
        write_json(name, Audience.CURATOR_ONLY, [])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_name_of_any_length_that_the_system_takes_is_written(tmp_path):
    for length in (240, 250, 255):
        path = tmp_path / (length * "n")
        assert write_bytes(path, Audience.CURATOR_ONLY, b"whole").read_bytes() == b"whole"
    with pytest.raises(InvalidInput, match="the name is too long"):
        write_bytes(tmp_path / (300 * "n"), Audience.CURATOR_ONLY, b"")


def test_no_link_in_the_folder_of_a_run_is_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    run = tmp_path / RUN
    run.symlink_to(outside)
    with pytest.raises(InvalidInput, match="symbolic link"):
        write_bytes(run / "state.json", Audience.CURATOR_ONLY, b"")
    run.unlink()
    run.mkdir()
    (run / "losses").symlink_to(outside)
    with pytest.raises(InvalidInput, match="symbolic link"):
        write_bytes(run / "losses" / "part", Audience.CURATOR_ONLY, b"")
    assert list(outside.iterdir()) == []


def test_json_comes_back_as_it_went(tmp_path):
    value = {"θ": [1.5, -0.0, 5e-324, 1e308], "name": "ä", "none": None, "deep": {"a": [True]}}
    path = write_json(tmp_path / "value.json", Audience.CURATOR_ONLY, value)
    assert read_json(path) == value
    assert math.copysign(1, read_json(path)["θ"][1]) == -1
    assert "θ" in path.read_text("utf-8"), "readable by people too"
    assert path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf], {"a": math.nan}])
def test_what_is_not_json_is_not_written(tmp_path, value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "value.json", Audience.CURATOR_ONLY, value)
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


def test_names_state_the_audience():
    assert Audience.PUBLIC.file_name("model", "json") == "model.json"
    assert Audience.CURATOR_ONLY.file_name("profile", "json") == "profile.CURATOR-ONLY.json"
    assert Audience.NEEDS_REVIEW.file_name("summary", "html") == "summary.CURATOR-ONLY.html"
    assert len({audience.meaning for audience in Audience}) == 3
    assert [audience.value for audience in Audience] == ["curator-only", "needs-review", "public"]
    for audience in Audience:
        word, _, reason = audience.line.partition(": ")
        assert word == audience.value
        assert audience.meaning == f"{word.replace('-', ' ').capitalize()}: {reason}"
