"""The folder and the ledger of a command that names neither."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from expost.jobs import profile as profile_job
from expost.jobs.ledger import table_ledger
from expost.ledger import Ledger
from program import mode, people, refused, text


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current folder, and a table in another."""
    folder = tmp_path / "here"
    folder.mkdir()
    (tmp_path / "people.csv").write_text(text(people()))
    monkeypatch.chdir(folder)
    return folder


def run(program, *options):
    return program("profile", "../people.csv", "--target", "income", "--drop", "number", *options)


def test_each_run_has_a_new_folder_and_prints_it(program, here):
    for name in ("expost-profile", "expost-profile-2", "expost-profile-3"):
        done = run(program, "--seed", "1")
        assert done.code == 0, done.err
        assert str(here / name / "report.CURATOR-ONLY.html") in done.out
    assert {path.name for path in here.iterdir()} == {
        "expost-profile", "expost-profile-2", "expost-profile-3",
    }  # fmt: skip


def test_a_taken_name_of_any_kind_is_not_used(program, here):
    Path("expost-profile").write_text("a file")
    Path("expost-profile-2").symlink_to("nowhere")
    assert run(program).code == 0
    assert Path("expost-profile-3/model.json").exists()


def test_other_commands_have_folders_of_their_own(program, here):
    assert run(program).code == 0
    assert program("publish", "--model", "expost-profile/model.json").code == 0
    assert program("report", "expost-publish").code == 0
    assert {"expost-publish", "expost-report"} <= {path.name for path in here.iterdir()}


@pytest.fixture
def stop(program, here, monkeypatch):
    """Begin a run and stop it after its model."""

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    def call(*options):
        with monkeypatch.context() as patch:
            patch.setattr(profile_job, "page_of", interrupt)
            assert run(program, *options).code == 130

    return call


def test_resume_continues_the_only_unfinished_run(program, here, stop):
    assert run(program).code == 0
    stop()
    model = json.loads(Path("expost-profile-2/model.json").read_text())
    done = run(program, "--resume")
    assert done.code == 0, done.err
    assert json.loads(Path("expost-profile-2/model.json").read_text()) == model
    assert (Path("expost-profile-2") / "report.CURATOR-ONLY.html").exists()
    assert not Path("expost-profile-3").exists()


def test_resume_lists_several_unfinished_runs(program, here, stop):
    for _ in range(3):
        stop()
    names = "expost-profile, expost-profile-2, expost-profile-3"
    refused(run(program, "--resume"), here / "expost-profile-4", f"{names} | name one with --out")
    assert run(program, "--resume", "--out", "expost-profile-2").code == 0


def test_resume_without_an_unfinished_run_is_refused(program, here):
    assert run(program).code == 0
    refused(run(program, "--resume"), here / "expost-profile-2", "no folder | leave --resume out")


# The ledger ------------------------------------------------------------------------------------

LEDGER = "people.ledger.CURATOR-ONLY.json"


def test_releases_of_one_table_compose_whatever_their_folder(program, here):
    first, second = run(program), run(program, "--out", "other")
    assert (first.code, second.code) == (0, 0)
    ledger = here.parent / LEDGER
    assert len(Ledger.load(ledger)) == 2
    assert mode(ledger) == 0o600
    assert "has 2 releases" in second.out
    assert "releases, which together" not in first.out
    # From each folder the whole ledger is found.
    for path in ("expost-profile", "other", ledger):
        done = program("ledger", path, "--json-curator")
        assert done.code == 0, done
        assert len(json.loads(done.out)["releases"]) == 2
    for path in ("expost-profile", "other", "other/model.json"):
        done = program("ledger", path)
        assert "in no ledger" not in done.out
    again = program("profile", "../people.csv", "--target", "income", "--model", "other/model.json")
    assert again.code == 0
    assert "There is no ledger" not in again.out
    assert len(Ledger.load(ledger)) == 2


def test_what_a_report_spends_is_in_the_ledger_of_its_model(program, here):
    options = ("--mechanism", "objective", "--regularization", "1", "--noise", "gaussian")
    assert run(program, *options, "--epsilon", "3").code == 0
    spends = ("--kind", "data-dependent", "--epsilon-gradient", "1", "--epsilon-hessian", "1")
    moved = here / "moved.csv"
    moved.write_bytes((here.parent / "people.csv").read_bytes())
    done = program(
        "publish", moved, "--target", "income", "--model", "expost-profile/model.json", *spends
    )
    assert done.code == 0, done.err
    assert len(Ledger.load(here.parent / LEDGER)) == 2
    assert not list(here.glob("*.ledger.*"))


@pytest.mark.parametrize("source", ["../p*.csv", "sqlite:///../people.db"])
def test_a_table_without_a_file_needs_a_named_ledger(program, here, source):
    options = ["--query", "people", "--id", "number"] if "sqlite" in source else []
    if options:
        with closing(sqlite3.connect("../people.db")) as base:
            header, *rows = people()
            base.execute(f"create table people ({', '.join(header)})")
            base.executemany(f"insert into people values ({','.join('?' * len(header))})", rows)
            base.commit()
    out = here / "expost-profile"
    command = ("profile", source, "--target", "income", *options)
    refused(program(*command), out, "name the ledger of this data set with --ledger")
    assert program(*command, "--ledger", "mine.json").code == 0
    assert len(Ledger.load(here / "mine.CURATOR-ONLY.json")) == 1


@pytest.mark.parametrize(
    ("table", "ledger"),
    [
        ("data.csv", "data.ledger.CURATOR-ONLY.json"),
        ("a.b.csv.gz", "a.b.ledger.CURATOR-ONLY.json"),
        ("x/data.parquet", "x/data.ledger.CURATOR-ONLY.json"),
        ("plain", "plain.ledger.CURATOR-ONLY.json"),
    ],
)
def test_the_name_of_the_ledger(table, ledger):
    assert table_ledger(table) == table_ledger(Path(table)) == Path(ledger)
    assert table_ledger({"a": [1]}) is None


def test_the_ledger_of_a_folder_is_next_to_it(here):
    ledger = here.parent / "here.ledger.CURATOR-ONLY.json"
    assert table_ledger(here) == table_ledger(".") == ledger
    inside = here / "inside"
    inside.mkdir()
    assert table_ledger("inside/..").resolve() == table_ledger(str(here)).resolve()


@pytest.mark.parametrize("folder", [".", "..", "/"])
def test_a_folder_without_a_table_is_one_sentence(program, here, folder):
    assert not program("profile", folder, "--target", "income").out
