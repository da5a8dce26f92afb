"""The ledger as users of the program meet it: kept by every release, and read by ``expost ledger``."""

import dataclasses
import inspect
import json
import math
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

import expost
from expost import _files
from expost._cli_ledger import ledger_command
from expost._jobs import profile as profile_job

from expost._jobs import releases
from expost._ledger import Ledger
from expost.errors import InvalidInput
from expost.risk import GaussianNoise
from program import PROGRAM, finished, imported, mode, names, people, refused, text
from test_cli_publish import BUDGET, SPENT, made

LEDGER = "ledger.CURATOR-ONLY.json"


@pytest.fixture
def ask(program, people_csv, tmp_path):
    """Run ``expost profile`` on the people; the results go to tmp_path/out."""

    def call(options="", *more, out="o", data=people_csv):
        where = ("--target", "income", "--id", "number", "--out", tmp_path / out)
        return program("profile", data, *where, *options.split(), *more)

    return call


def entries(folder: Path) -> tuple:
    return Ledger.load(folder / LEDGER).entries


def said(done) -> str:
    assert done.code == 0, done.err
    return " ".join(done.out.split())


def checksum(model: Path) -> str:
    return json.loads(model.read_text())["sha256"]


# Releasing ---------------------------------------------------------------------------------------


def test_every_release_is_listed(ask, tmp_path):
    first = said(ask("--epsilon 0.5"))
    assert "has been released" not in first
    assert f"ledger {tmp_path / 'o' / LEDGER}" in first
    (one,) = entries(tmp_path / "o")
    model = tmp_path / "o" / "model.json"
    assert (one.release, one.name, one.epsilon) == (checksum(model), str(model), 0.5)
    assert mode(tmp_path / "o" / LEDGER) == 0o600
    # To draw until one likes it: the model that was written over stays spent.
    again = said(ask("--epsilon 0.25 --force"))
    assert "released 2 times, and seeing all of it spends epsilon 0.75 by addition" in again
    assert "other rows" not in again
    two = entries(tmp_path / "o")
    assert two[0] == one
    assert two[1].release == checksum(model)
    assert two[0].data == two[1].data
    page = (tmp_path / "o" / "report.CURATOR-ONLY.html").read_text()
    assert "has been released 2 times" in page
    # No row is in it, but what a curator may see: its digest, and that of no other salt.
    assert not re.search("Oslo|Bergen|p0[0-9][0-9]", (tmp_path / "o" / LEDGER).read_text())


def test_one_ledger_for_several_folders(ask, tmp_path):
    shared = tmp_path / "people.json"
    said(ask("--ledger", shared, out="a"))
    assert "released 2 times" in said(ask("--drop city --ledger", shared, out="b"))
    path = tmp_path / "people.CURATOR-ONLY.json"
    assert [entry.name for entry in Ledger.load(path).entries] == [
        str(tmp_path / name / "model.json") for name in "ab"
    ]
    assert LEDGER not in names(tmp_path / "a") | names(tmp_path / "b")
    third = said(ask("--ledger", path, out="c"))
    # Without a column the rows are not known to be the same people's; they count all the same.
    assert "1 of the 3 were made from other rows, or with other columns" in third
    # A folder that has a ledger of its own keeps it whole.
    said(ask(out="d"))
    said(ask("--force --ledger", path, out="d"))
    assert len(Ledger.load(path)) == 4
    assert [entry.release for entry in entries(tmp_path / "d")][1] == checksum(
        tmp_path / "d" / "model.json"
    )


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.write_text("{"), "is not a whole JSON file"),
        (lambda path: path.write_text(path.read_text().replace("0.5", "0.1")), "was edited"),
    ],
)
def test_nothing_is_released_past_a_damaged_ledger(ask, tmp_path, spoil, words):
    said(ask("--epsilon 0.5"))
    ledger, model = tmp_path / "o" / LEDGER, tmp_path / "o" / "model.json"
    spoil(ledger)
    before = model.read_bytes(), ledger.read_bytes()
    done = ask("--force")
    assert (done.code, done.out) == (2, "")
    assert words in done.message
    assert "nothing is released while it is" in done.message
    assert (model.read_bytes(), ledger.read_bytes()) == before
    refused(ask("--ledger", ledger, out="n"), tmp_path / "n", "restore it from a copy | --ledger")


def test_a_ledger_that_cannot_be_written_is_refused_before_any_work(ask, tmp_path, monkeypatch):
    refused(ask("--ledger", tmp_path / "no" / "x.json"), tmp_path / "o", "its folder is not there")
    (tmp_path / "shut").mkdir()
    real = os.access
    monkeypatch.setattr(
        os, "access", lambda path, how: Path(path).name != "shut" and real(path, how)
    )
    done = ask("--ledger", tmp_path / "shut" / "x.json")
    refused(done, tmp_path / "o", "cannot be written to | what is not listed is not released")


def test_a_process_killed_once_it_has_listed_leaves_no_release(people_csv, tmp_path):
    """The only moment at which ledger and folder differ: listed, and not there to be seen."""
    out = tmp_path / "o"
    script = (
        "import os, signal\n"
        "from expost import cli\n"
        "from expost._jobs import ledger\n"
        "real = ledger.append\n"
        "def dying(*arguments):\n"
        "    real(*arguments)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "ledger.append = dying\n"
        "cli.main()\n"
    )
    asked = ["profile", str(people_csv), "--target", "income", "--out", str(out)]
    done = finished([sys.executable, "-c", script, *asked])
    assert done.code == -signal.SIGKILL, done.err
    assert not (out / "model.json").exists()
    assert len(entries(out)) == 1


def test_at_every_step_what_can_be_seen_is_listed(ask, tmp_path, monkeypatch):
    """Each file that is renamed, linked or removed along the way is a moment to look."""
    looked = []
    out = tmp_path / "o"

    def look(real):
        def looking(*arguments):
            real(*arguments)
            if (out / "model.json").exists():
                seen = checksum(out / "model.json")
                looked.append(any(entry.release == seen for entry in entries(out)))

        return looking

    said(ask())
    for name in ("replace", "link", "fsync", "chmod"):
        monkeypatch.setattr(_files.os, name, look(getattr(os, name)))
    said(ask("--force"))
    said(ask("--force --ledger", tmp_path / "all.json"))
    assert len(looked) > 10
    assert all(looked)


def test_a_failure_to_list_releases_nothing(ask, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("expost._jobs.ledger.append", full)
    refused(ask(), tmp_path / "o", "No space left on device | nothing was released")


# A model that exists -------------------------------------------------------------------------------


def test_profiling_a_listed_model(ask, tmp_path):
    said(ask())
    model = tmp_path / "o" / "model.json"
    quiet = said(ask("--model", model, out="p"))
    assert "ledger" not in quiet.lower()
    # The copy is no further release, and a ledger of it alone would not be whole.
    assert LEDGER not in names(tmp_path / "p")
    assert len(entries(tmp_path / "o")) == 1
    said(ask("--force"))
    told = said(ask("--model", model, out="q"))
    assert "released 2 times, and seeing all of it spends epsilon 2 by addition" in told
    assert "not the rows" not in told
    assert len(entries(tmp_path / "o")) == 2


def test_profiling_a_model_that_no_ledger_lists(ask, tmp_path):
    said(ask())
    model, ledger = tmp_path / "o" / "model.json", tmp_path / "o" / LEDGER
    kept = model.read_bytes()
    said(ask("--force"))
    model.write_bytes(kept)
    ledger.unlink()
    # An old folder has no ledger: it works as before, and is told so.
    told = said(ask("--model", model, out="p"))
    assert "No ledger lies beside the model" in told
    assert f"--add {model}" in told
    said(ask(out="other"))
    ledger.write_bytes((tmp_path / "other" / LEDGER).read_bytes())
    told = said(ask("--model", model, out="q"))
    assert f"The model is not in {ledger}" in told
    assert "released 2 times" in told
    refused(
        ask("--model", model, "--ledger", tmp_path / "none.json", out="r"),
        tmp_path / "r",
        "none.CURATOR-ONLY.json | is not there (start it with: expost ledger",
    )
    ledger.write_text("{}")
    assert "The ledger cannot be relied on" in said(ask("--model", model, out="s"))


def test_rows_that_are_not_those_of_the_model_are_recognised(ask, tmp_path):
    """One cell of one row: too little for the noise to tell, but not for the digest."""
    table = people()
    said(ask("--epsilon 0.01"))
    table[7][1] = str(int(table[7][1]) + 1)
    other = tmp_path / "other.csv"
    other.write_text(text(table))
    told = said(ask("--model", tmp_path / "o" / "model.json", out="p", data=other))
    assert "These are not the rows that the model was made from" in told


def test_from_python_a_model_out_of_its_ledger_is_told(ask, tmp_path):
    said(ask())
    assert expost._ledger.ledger_notice(tmp_path / "o" / "model.json") is None


# Publishing ----------------------------------------------------------------------------------------


@pytest.fixture
def publish(program, people_csv, tmp_path):
    model = made(
        people_csv, tmp_path, mechanism="objective", noise="gaussian", delta=1e-6,
        regularization="for-publishing", publishing=BUDGET,
    )  # fmt: skip

    def call(*more, out="p"):
        return program("publish", people_csv, "--model", model, "--out", tmp_path / out, *more)

    return call


def test_what_a_report_spends_is_listed_beside_its_model(publish, tmp_path):
    told = said(publish())
    # A report from the model alone releases nothing more.
    assert "No ledger lies beside the model" in told
    assert not (tmp_path / LEDGER).exists()
    told = said(publish(*SPENT, out="q"))
    assert "released 2 times, and seeing all of it spends epsilon 2, delta 3e-06" in told
    model, report = entries(tmp_path)
    assert model.release == checksum(tmp_path / "model.json")
    assert report.release == checksum(tmp_path / "q" / "report.json")
    assert (report.kind, report.epsilon) == ("report", 1.0)
    assert isinstance(report.guarantee, GaussianNoise)
    assert report.data == model.data
    assert LEDGER not in names(tmp_path / "q")
    # Another one spends again; the first stays.
    assert "released 3 times" in said(publish(*SPENT, "--force", out="q"))
    assert entries(tmp_path)[:2] == (model, report)
    assert "released 3 times" in said(publish(out="r"))
    named = tmp_path / "all.CURATOR-ONLY.json"
    said(publish(*SPENT, "--ledger", named, out="s"))
    assert [entry.kind for entry in Ledger.load(named).entries] == ["model", "report"]
    assert len(entries(tmp_path)) == 4


def test_a_report_that_cannot_be_listed_is_not_published(publish, tmp_path, monkeypatch):
    (tmp_path / LEDGER).write_text("{}")
    refused(publish(*SPENT), tmp_path / "p", "is not a whole ledger | nothing is released")
    (tmp_path / LEDGER).unlink()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("expost._jobs.ledger.append", full)
    refused(publish(*SPENT), tmp_path / "p", "nothing was published")
