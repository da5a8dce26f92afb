"""``--open``, and the pages of commands that need not write any."""

import inspect
import json
import shutil
import sys
import tempfile
import webbrowser
from dataclasses import replace
from pathlib import Path

import pytest

from expost.cli.app import app
from expost.report import parse_json
from expost.types import Audience
from program import finished, listed, mode, names, refused
from report.cells import column, tables
from runs import PERSON, make_runs

PAGE = {"report.html", "report.md", "summary.json"}
CURATORS = {"report.CURATOR-ONLY.html", "report.CURATOR-ONLY.md", "summary.CURATOR-ONLY.json"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(autouse=True)
def opened(monkeypatch, tmp_path) -> list[str]:
    """The addresses that are opened, by a browser that is none; temporary files are under it."""
    pages: list[str] = []

    def browser(address: str) -> bool:
        pages.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", browser)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return pages


@pytest.fixture
def temporary(tmp_path) -> Path:
    return tmp_path / "temporary"


def last_path(printed: str) -> Path:
    """The path that a command ends with."""
    word, _, path = printed.rstrip("\n").splitlines()[-1].partition(": ")
    assert word in ("Report", "Page")
    return Path(path)


# Every command that computes -------------------------------------------------------------------


def test_every_command_that_computes_can_open_its_report():
    commands = {command.name: command.callback for command in app.registered_commands}
    # These write no page.
    computing = set(commands) - {"doctor", "encoding", "card", "check", "verify"}
    for name in computing:
        callback = commands[name]
        assert "open_page" in inspect.signature(callback).parameters, name


@pytest.mark.parametrize(
    ("command", "page"),
    [
        ("profile {table} --target income", "report.CURATOR-ONLY.html"),
        ("risk --max-posterior 0.9", "report.html"),
        ("report {runs}/profile {runs}/published --public", "report.html"),
    ],
)
def test_a_command_ends_with_its_report_and_opens_it(
    program, runs, tmp_path, opened, temporary, command, page
):
    # A table of its own: what is released of it is in no ledger of the other tests.
    table = shutil.copy(runs / "people.csv", tmp_path)
    words = command.format(runs=runs, table=table, person=" ".join(PERSON)).split()
    out = tmp_path / "out"
    done = program(*words, "--out", out, "--open")
    assert (done.code, done.err) == (0, "")
    path = last_path(done.out)
    assert path == (out / page).resolve()
    assert opened == [path.as_uri()]
    assert path.read_text().startswith("<!doctype html>")
    # Nothing is written but what was asked for.
    assert not names(temporary)


def test_an_audit_opens_its_report(program, runs, tmp_path, opened):
    out = tmp_path / "a u d i t"
    done = program(
        "audit", runs / "people.csv", "--target", "income", "--references", "0", "--seed", "0",
        "--estimator", "sklearn.tree.DecisionTreeClassifier", "--out", out, "--open",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert opened == [(out / "report.CURATOR-ONLY.html").resolve().as_uri()]
    assert "%20" in opened[0]


# Where no browser can be opened ----------------------------------------------------------------


def fail(_):
    raise webbrowser.Error("planted")


@pytest.mark.parametrize("browser", [lambda _: False, fail], ids=["none", "broken"])
def test_without_a_browser_the_path_is_printed_and_the_job_is_done(
    program, tmp_path, monkeypatch, browser
):
    monkeypatch.setattr(webbrowser, "open", browser)
    done = program("risk", "--epsilon", "1", "--out", tmp_path / "o", "--open")
    page = (tmp_path / "o" / "report.html").resolve()
    assert done.code == 0
    assert "No browser" in done.err
    assert done.err.endswith(f" {page}\n")
    assert last_path(done.out) == page
    # For machines too nothing but JSON is on stdout.
    answer = program("risk", "--epsilon", "1", "--out", tmp_path / "p", "--open", "--json")
    assert json.loads(answer.out)["files"]["report"] == str(tmp_path / "p" / "report.html")
    assert "No browser" in answer.err


def test_a_browser_that_prints_does_not_stand_in_the_answer(tmp_path):
    """The installed program with a browser of the environment: the answer comes first."""
    command = [str(Path(sys.executable).with_name("expost")), "risk", "--epsilon", "1", "--open"]
    done = finished(command, env={"BROWSER": "echo", "TMPDIR": str(tmp_path)})
    assert (done.code, done.err) == (0, "")
    *answer, shown = done.out.splitlines()
    assert shown == last_path("\n".join(answer)).as_uri()


# Short answers ---------------------------------------------------------------------------------


SHORT = {
    "risk --epsilon 1 --delta 1e-6": PAGE,
    "lookup {runs}/published/report.json {person}": PAGE,
    "ledger {runs}/profile": CURATORS,
}


@pytest.mark.parametrize("command", list(SHORT))
def test_a_short_answer_is_printed_and_nothing_is_written(
    program, runs, tmp_path, temporary, opened, command
):
    words = command.format(runs=runs, person=" ".join(PERSON)).split()
    before = names(tmp_path)
    plain = program(*words)
    assert plain.code == 0
    assert (names(tmp_path), names(temporary), opened) == (before, set(), [])
    # A page that is written too changes nothing of what is printed, except its path.
    paged = program(*words, "--out", tmp_path / "o")
    assert paged.out.startswith(plain.out.rstrip("\n"))
    assert names(tmp_path / "o") == SHORT[command]


@pytest.mark.parametrize("command", list(SHORT))
def test_with_open_alone_it_is_written_to_a_private_folder(
    program, runs, temporary, opened, command
):
    words = command.format(runs=runs, person=" ".join(PERSON)).split()
    done = program(*words, "--open")
    assert done.code == 0, done.err
    (folder,) = temporary.iterdir()
    assert mode(folder) == 0o700
    assert names(folder) == SHORT[command]
    assert opened == [last_path(done.out).as_uri()]
    assert last_path(done.out).parent == folder.resolve()
    # Each time another one.
    assert program(*words, "--open", "--json").code == 0
    assert len(names(temporary)) == 2


def test_who_may_read_the_pages_of_short_answers(program, runs, tmp_path):
    def modes(name, *words):
        done = program(*words, "--out", tmp_path / name)
        assert done.code == 0, done.err
        summary = next((tmp_path / name).glob("summary*"))
        return {mode(path) for path in listed(tmp_path / name)}, parse_json(
            summary.read_text()
        ).audience

    assert modes("r", "risk", "--mu", "1") == ({0o644}, Audience.PUBLIC)
    assert modes("l", "ledger", runs / "profile") == ({0o600}, Audience.NEEDS_REVIEW)
    # What the report says of her may be shown by her: but it is hers to show.
    answered = modes("a", "lookup", runs / "published" / "report.json", *PERSON)
    assert answered == ({0o600}, Audience.PUBLIC)


def test_the_page_of_a_person_holds_her_bound_and_none_of_her_values(program, runs, tmp_path):
    person = ("--set", "age=39.25", "--set", "city=Bergen", "--set", "smoker=true")
    done = program(
        "lookup", runs / "published" / "report.json", *person, "--set", "hours=41.75",
        "--label", ">50K", "--out", tmp_path / "o", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    (answer,) = json.loads(done.out)["answers"]
    document = parse_json((tmp_path / "o" / "summary.json").read_text()).get("published")
    (section,) = (each for each in document.sections if each.id == "your-row")
    (table,) = tables(replace(document, sections=(section,)))
    cells, values = column(table, "exposure at most (nats)")
    assert values == [answer["exposure"]]
    assert column(table, "fails with probability")[1] == [answer["fails_with"]]
    shown = column(table, "certainty, model alone, at most")[0]
    for path in (tmp_path / "o").iterdir():
        for value in ("39.25", "41.75"):
            assert value not in path.read_text(), path.name
    page = (tmp_path / "o" / "report.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert all(cell in page for cell in (*cells, *shown))


@pytest.mark.parametrize("command", list(SHORT))
def test_a_folder_that_holds_something_else_is_refused_before_any_work(
    program, runs, tmp_path, temporary, command
):
    words = command.format(runs=runs, person=" ".join(PERSON)).split()
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    nowhere = tmp_path / "nowhere"
    refused(program(*words, "--out", full), nowhere, "is not empty | --force")
    assert program(*words, "--out", full, "--force").code == 0
    assert (full / "notes.txt").read_text() == "mine"
    # A release has a page of its own, which this one would take the place of.
    for name in ("profile", "published"):
        before = names(runs / name)
        refused(program(*words, "--out", runs / name, "--force"), nowhere, "a folder for this page")
        assert names(runs / name) == before
    # A mistake leaves no temporary folder behind.
    assert program("risk", "--epsilon", "-1", "--open").code == 2
    assert not names(temporary)
