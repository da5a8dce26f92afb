"""``expost report``: what other commands found, on one page, or what of it everybody may see."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from expost.files import atomic
from expost.files.sealed import checksum
from expost.jobs import pages
from expost.report import parse_json, render_json
from expost.report.document import Alert
from expost.types import Audience
from program import Ran, listed, mode, names, page_in, refused
from runs import make_runs

CURATORS = {"report.CURATOR-ONLY.html", "report.CURATOR-ONLY.md", "summary.CURATOR-ONLY.json"}
PUBLIC = {"report.html", "report.md", "summary.json"}
SUMMARY = "summary.CURATOR-ONLY.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def runs(made, tmp_path) -> Path:
    """Folders of their own, which a test may spoil."""
    return Path(shutil.copytree(made, tmp_path / "runs"))


@pytest.fixture
def ask(program, runs, tmp_path):
    """Run ``expost report`` on these folders of runs; the page goes to tmp_path/o."""

    def call(folders: str, *more: object, out: str = "o") -> Ran:
        paths = [runs / name for name in folders.split()]
        return program("report", *paths, "--out", tmp_path / out, *more)

    return call


def change(path: Path, **changes: object) -> None:
    """Write the page of a file again, with its first document changed."""
    page = parse_json(path.read_text())
    first, *others = page.documents
    documents = (replace(first, **changes), *others)
    path.write_text(render_json(replace(page, documents=documents)))


# One page of several results -------------------------------------------------------------------


def test_every_command_leaves_what_its_page_shows(runs):
    kinds = {"profile": "profile", "choice": "epsilon", "audit": "audit", "published": "published"}
    for folder, kind in kinds.items():
        assert page_in(runs / folder).kinds == (kind,)
    marks = {name: page_in(runs / name).audience for name in kinds}
    assert marks.pop("published") is Audience.PUBLIC
    assert set(marks.values()) == {Audience.CURATOR_ONLY}
    for folder in kinds:
        (path,) = (runs / folder).glob("summary*.json")
        assert (path.name == "summary.json") is (folder == "published")
        assert mode(path) == (0o644 if folder == "published" else 0o600)


def test_everything_on_one_page(ask, program, runs, tmp_path):
    risk = program("risk", "--epsilon", "1", "--out", runs / "risk")
    assert risk.code == 0, risk.err
    done = ask("choice profile published audit risk")
    assert (done.code, done.err) == (0, "")
    out = tmp_path / "o"
    assert names(out) == CURATORS
    assert {mode(path) for path in listed(out)} == {0o600}
    whole = page_in(out)
    assert whole.audience is Audience.CURATOR_ONLY
    # Every document is the one that its own command wrote, to the last digit, except for what a
    # profile beside a choice of ε is judged by.
    for folder in ("choice", "profile", "published", "audit", "risk"):
        for document in page_in(runs / folder).documents:
            shown = whole.get(document.kind)
            beside = {"verdict": shown.verdict, "alerts": shown.alerts}
            assert shown == replace(document, **(beside if document.kind == "profile" else {}))
    assert set(whole.kinds) == {"profile", "epsilon", "published", "audit", "risk"}
    assert f"shown     {', '.join(whole.kinds)}\n" in done.out
    assert done.out.rstrip().endswith(f"Report: {(out / 'report.CURATOR-ONLY.html').resolve()}")
    assert Audience.CURATOR_ONLY.meaning in done.out
    page = (out / "report.CURATOR-ONLY.html").read_text()
    assert len(whole.settings) > 10
    assert all(setting.name in page for setting in whole.settings)


def test_the_order_of_the_folders_and_the_time_of_day_change_nothing(ask, tmp_path):
    assert ask("profile choice").code == 0
    assert ask("choice profile", out="other").code == 0
    for name in ("report.CURATOR-ONLY.html", "report.CURATOR-ONLY.md"):
        first, second = (tmp_path / folder / name for folder in ("o", "other"))
        assert first.read_bytes() == second.read_bytes()


def test_a_page_of_one_folder_is_that_of_its_command(ask, runs, tmp_path):
    assert ask("audit").code == 0
    name = "report.CURATOR-ONLY.html"
    assert (tmp_path / "o" / name).read_bytes() == (runs / "audit" / name).read_bytes()


def test_summaries_may_be_named_themselves_and_count_once(ask, program, runs, tmp_path):
    file = runs / "profile" / SUMMARY
    done = program("report", runs / "profile", file, file, "--out", tmp_path / "o")
    assert done.code == 0, done.err
    # What it wrote can be read again.
    again = program("report", tmp_path / "o", runs / "choice", "--out", tmp_path / "p")
    assert again.code == 0, again.err
    assert set(page_in(tmp_path / "p").kinds) == {"profile", "epsilon"}


def test_it_prints_json(ask, tmp_path):
    answer = json.loads(ask("profile published", "--json-curator").out)
    assert set(answer) == {"files", "summary"}
    assert answer["files"]["report"] == str(tmp_path / "o" / "report.CURATOR-ONLY.html")
    page = parse_json(json.dumps(answer["summary"]))
    assert page == page_in(tmp_path / "o")
    assert page.get("profile").facts["rows"] == page.get("published").facts["rows"] == 60


def test_a_folder_may_hold_a_private_and_a_public_summary(ask, runs, tmp_path):
    shutil.copy(runs / "published" / "summary.json", runs / "profile")
    assert ask("profile").code == 0
    assert set(page_in(tmp_path / "o").kinds) == {"profile", "published"}


# For everybody ---------------------------------------------------------------------------------


def test_a_public_page_shows_what_is_public_and_nothing_else(ask, runs, tmp_path):
    done = ask("choice profile published audit", "--public")
    assert (done.code, done.err) == (0, "")
    out = tmp_path / "o"
    assert names(out) == PUBLIC
    assert {mode(path) for path in listed(out)} == {0o644}
    shown = page_in(out)
    assert shown.documents == page_in(runs / "published").documents
    assert shown.audience is Audience.PUBLIC
    (left_out,) = (line for line in done.out.splitlines() if line.startswith("left out "))
    assert all(kind in left_out for kind in ("profile", "epsilon", "audit"))
    assert Audience.PUBLIC.meaning in done.out
    # As if the others had not been there.
    assert ask("published", "--public", out="alone").code == 0
    for name in PUBLIC - {"summary.json"}:
        alone = tmp_path / "alone" / name
        assert (out / name).read_bytes() == alone.read_bytes()


def test_no_figure_of_a_private_part_is_on_a_public_page(ask, runs, tmp_path):
    """Every number of more than a few digits in the private summaries is a canary."""
    assert ask("choice profile published audit", "--public").code == 0
    public = "".join((tmp_path / "o" / name).read_text() for name in PUBLIC)
    known = json.dumps(json.loads((runs / "published" / "summary.json").read_text()))
    secrets = {
        folder: numbers_of(runs / folder / SUMMARY) for folder in ("choice", "profile", "audit")
    }
    secrets = {
        folder: {item for item in numbers if item not in known}
        for folder, numbers in secrets.items()
    }
    assert len(secrets["choice"]) > 300
    assert not [item for numbers in secrets.values() for item in numbers if item in public]
    # Power: the private page holds every number of its profile.
    assert ask("profile published", out="private").code == 0
    private = (tmp_path / "private" / SUMMARY).read_text()
    assert len(secrets["profile"]) > 200
    assert all(item in private for item in secrets["profile"])


def numbers_of(path: Path) -> set[str]:
    result: set[str] = set()
    walk(json.loads(path.read_text()), result)
    return result


def walk(value, result: set[str]) -> None:
    """Every long number, and every key of a row, in a summary."""
    if isinstance(value, dict):
        for entry in value.values():
            walk(entry, result)
    elif isinstance(value, list):
        for entry in value:
            walk(entry, result)
    elif isinstance(value, float) and len(repr(value)) > 9:
        result.add(repr(value)[:9])
    elif isinstance(value, str) and len(value) == 4 and value[0] == "p" and value[1:].isdigit():
        result.add(value)


def test_a_public_page_of_nothing_is_refused(ask, tmp_path):
    done = ask("profile choice audit", "--public")
    refused(done, tmp_path / "o", "nothing here is public | expost publish")


def test_a_public_page_takes_the_place_of_a_private_one(ask, tmp_path):
    assert ask("profile published").code == 0
    assert ask("profile published", "--public", "--force").code == 0
    # A curator who passes the folder on must not pass the older page on with it.
    assert names(tmp_path / "o") == PUBLIC


def test_an_audience_that_was_edited_is_refused(ask, runs, tmp_path):
    path = runs / "profile" / SUMMARY
    original = path.read_text()
    for stated, of_document in (("public", None), (None, "public"), ("public", "public")):
        content = json.loads(original)
        content["audience"] = stated or content["audience"]
        document = content["page"]["documents"][0]
        document["audience"] = of_document or document["audience"]
        path.write_text(json.dumps(content))
        refused(ask("profile published", "--public"), tmp_path / "o", f"{SUMMARY} | checksum")
        if stated is None or of_document is None:
            # Sealed again it contradicts itself.
            del content["sha256"]
            path.write_text(json.dumps({**content, "sha256": checksum(content)}))
            refused(ask("profile published", "--public"), tmp_path / "o", f"{SUMMARY} | audience")
    path.write_text(original)
    assert ask("profile published", "--public").code == 0


# What does not belong together -----------------------------------------------------------------


def test_two_of_a_kind_are_refused_and_both_are_named(ask, runs, tmp_path):
    shutil.copytree(runs / "choice", runs / "another")
    done = ask("choice profile another")
    refused(done, tmp_path / "o", "kind 'epsilon' | make two pages")
    for folder in ("choice", "another"):
        assert str(runs / folder / SUMMARY) in done.message


def test_results_of_two_tables_are_refused(ask, runs, tmp_path):
    change(runs / "choice" / SUMMARY, source="others.csv")
    done = ask("profile choice")
    refused(done, tmp_path / "o", "'others.csv' | 'people.csv' | one table")


def test_a_report_of_another_model_is_refused(ask, program, runs, tmp_path):
    drawn = program(
        "profile", runs / "people.csv", "--target", "income", "--id", "number",
        "--encoding", runs / "public.json", "--epsilon", "2", "--out", runs / "second",
    )  # fmt: skip
    assert drawn.code == 0, drawn.err
    refused(ask("second published"), tmp_path / "o", "another model | epsilon")
    # A guarantee stands next to its own profile alone; a question about no model, next to
    # any.
    model, renamed = runs / "second" / "model.json", runs / "renamed.json"
    renamed.write_bytes(model.read_bytes())
    for name, what in (("hers", model), ("other", renamed), ("any", "--epsilon=2")):
        assert program("risk", what, "--out", runs / name).code == 0
    for name in ("hers", "other"):
        refused(ask(f"profile {name}"), tmp_path / "o", "another model | epsilon differs")
    assert ask("profile any").code == 0


# What is not a summary -------------------------------------------------------------------------


def nested(depth: int) -> bytes:
    return b'{"format": "expost-page/1", "page": ' + b"[" * depth + b"]" * depth + b"}"


def sealed(content: dict) -> bytes:
    return json.dumps({**content, "sha256": checksum(content)}).encode()


EMPTY = {"format": "expost-page/1", "audience": "public", "meaning": ""}
# What no page is read from, whatever is wrong with it, is in report/test_stored.py.
FOREIGN = {
    "not UTF-8": (b'{"format": "\xff"}', "is not JSON"),
    "another thing": (b'{"cells": []}', "not of the format"),
    "deep": (nested(100_000), "summary.CURATOR-ONLY.json"),
    "control characters": (b'{"format": "\\u001b[31m\\n<script>"}', "not of the format"),
    "no checksum": (b'{"format": "expost-page/1", "page": {}}', "checksum"),
    "no page": (sealed(EMPTY), "not a whole page"),
}


@pytest.mark.parametrize("case", list(FOREIGN))
def test_what_is_not_a_summary_is_refused_in_one_sentence(ask, runs, tmp_path, case):
    content, words = FOREIGN[case]
    (runs / "profile" / SUMMARY).write_bytes(content)
    done = ask("profile choice")
    refused(done, tmp_path / "o", words)
    assert str(runs / "profile" / SUMMARY) in done.message
    assert "\x1b" not in done.err


def test_a_torn_summary_is_refused(ask, runs, tmp_path):
    path = runs / "profile" / SUMMARY
    path.write_bytes(path.read_bytes()[:-9])
    refused(ask("profile"), tmp_path / "o", "is not JSON")


def test_a_huge_file_is_refused_unread(ask, runs, tmp_path):
    path = runs / "profile" / SUMMARY
    with path.open("r+b") as file:
        file.truncate(200_000_001)
    refused(ask("profile"), tmp_path / "o", "200,000,001 bytes")


@pytest.mark.parametrize(
    "name", ["profile/model.json", "published/report.json", "people.ledger.CURATOR-ONLY.json"]
)
def test_other_files_of_expost_are_no_summaries(program, runs, tmp_path, name):
    done = program("report", runs / name, "--out", tmp_path / "o")
    refused(done, tmp_path / "o", f"{Path(name).name} | name a summary")


def test_paths_that_are_no_summary_are_refused(program, runs, tmp_path):
    out, empty = tmp_path / "o", tmp_path / "empty"
    empty.mkdir()
    refused(program("report", tmp_path / "none", "--out", out), out, "No such file")
    refused(program("report", empty, "--out", out), out, "holds no summary of a result")
    (empty / SUMMARY).mkdir()
    refused(program("report", empty, "--out", out), out, "is not a file")
    (empty / SUMMARY).rmdir()
    # It must not wait for a writer.
    os.mkfifo(empty / SUMMARY)
    refused(program("report", empty, "--out", out), out, "is not a file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_summary_without_permission_is_refused(ask, runs, tmp_path):
    (runs / "profile" / SUMMARY).chmod(0)
    refused(ask("profile"), tmp_path / "o", "cannot be read (Permission denied)")


def test_a_hostile_summary_is_shown_as_text(ask, runs, tmp_path):
    evil = "<script>alert(1)</script>"
    alerts = tuple(
        Alert(severity="note", title=text) for text in (evil, "[x](javascript:alert(1))")
    )
    change(runs / "profile" / SUMMARY, source=evil, alerts=alerts)
    assert ask("profile").code == 0
    page = (tmp_path / "o" / "report.CURATOR-ONLY.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    text = (tmp_path / "o" / "report.CURATOR-ONLY.md").read_text()
    assert "<script>" not in text.replace("\\<", "")
    assert "[x](" not in text


@pytest.mark.parametrize("evil", ["\u202e", "\x1b[31m", "\n", "\ud800", "\u2028"])
def test_text_that_steers_what_shows_it_is_refused(ask, runs, tmp_path, evil):
    path = runs / "profile" / SUMMARY
    content = json.loads(path.read_text())
    del content["sha256"]
    content["page"]["documents"][0]["title"] += evil
    path.write_text(json.dumps({**content, "sha256": checksum(content)}))
    done = ask("profile")
    refused(done, tmp_path / "o", f"{SUMMARY} | cannot be shown")
    assert "\x1b" not in done.err


# Where it is written ---------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["profile", "published"])
def test_no_release_loses_its_own_page(ask, runs, tmp_path, folder):
    before = {path.name: path.read_bytes() for path in (runs / folder).iterdir()}
    done = ask("choice", "--force", out=f"runs/{folder}")
    refused(done, tmp_path / "o", "a folder for this page alone")
    assert {path.name: path.read_bytes() for path in (runs / folder).iterdir()} == before


def test_what_is_read_is_not_written_over(ask, runs, tmp_path):
    before = names(runs / "audit")
    refused(ask("audit", "--force", out="runs/audit"), tmp_path / "o", "would be written over")
    assert names(runs / "audit") == before


def test_a_folder_that_is_not_empty_needs_force(ask, tmp_path):
    assert ask("audit").code == 0
    done = ask("audit choice")
    assert (done.code, done.out) == (2, "")
    assert "is not empty" in done.message
    (tmp_path / "o" / "notes.txt").write_text("mine")
    assert ask("audit choice", "--force").code == 0
    assert names(tmp_path / "o") == CURATORS | {"notes.txt"}


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_failure_at_any_file_leaves_none(ask, tmp_path, monkeypatch, index):
    written = []

    def failing(path, *rest):
        written.append(path)
        if len(written) == index + 1:
            raise OSError(28, "No space left on device")
        return atomic.write_bytes(path, *rest)

    monkeypatch.setattr(pages, "write_bytes", failing)
    refused(ask("profile"), tmp_path / "o", "No space left on device")
    assert len(written) == index + 1
