"""The harness finds what it is there to find: faults that are planted in a reader or a job."""

import json
import warnings
from pathlib import Path

import pytest

from expost.data import _csv, open_table
from expost.errors import InvalidInput, PrivacyLeakWarning
from expost.files import sealed
from expost.jobs import pages, report
from expost.release import Release

from . import harness
from .commands import check_nothing_partial, check_whole
from .harness import Fault, Tally, Target, choices, judge, run
from .worker import TARGETS, run_apart


def made(rng, folder):
    path = folder / "case"
    path.write_text(str(rng.random()))
    return path


def refuse(case):
    raise InvalidInput("case: is not whole.")


def raising(error):
    def read(case):
        raise error

    return read


def shown(case):
    try:
        int("zq7kanarie")
    except ValueError as error:
        raise InvalidInput("case: is no number.") from error


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (raising(KeyError("theta")), "KeyError"),
        (raising(RecursionError()), "RecursionError"),
        (raising(MemoryError()), "MemoryError"),
        (raising(ValueError("x")), "ValueError"),
        (raising(OverflowError("x")), "OverflowError"),
        (raising(AssertionError("not finite")), "not finite"),
        (raising(InvalidInput("")), "without a word"),
        (shown, "shows what it was made from"),
        (lambda case: warnings.warn("overflow", RuntimeWarning, stacklevel=1), "RuntimeWarning"),
        (lambda case: case.with_name(".case.part").write_text("half"), "left files behind"),
        (lambda case: case.unlink(), "left files behind"),
    ],
)
def test_a_planted_fault_is_found(tmp_path, read, words):
    target = Target(name="planted", make=made, read=read)
    with pytest.raises(Fault, match=words):
        judge(target, choices("planted", 0), tmp_path)
    tally = run(target, range(3), Tally())
    assert (tally.accepted, tally.refused, len(tally.faults)) == (0, 0, 3)
    assert tally.faults[2].startswith("planted 2: ")


def test_what_is_slow_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "LIMIT", 1e-3)
    target = Target(name="planted", make=made, read=lambda case: sum(range(10**6)))
    with pytest.raises(Fault, match="took"):
        judge(target, choices("planted", 0), tmp_path)


def test_what_keeps_the_law_is_none(tmp_path):
    def warned(case):
        warnings.warn("read from the data", PrivacyLeakWarning, stacklevel=1)

    for read in (warned, refuse):
        tally = run(Target(name="planted", make=made, read=read), range(3), Tally())
        assert tally.faults == []
        assert tally.cases == 3


def test_a_parser_that_lets_a_key_error_through_is_found(monkeypatch):
    """As the reader of models would, did it not catch what its fields raise."""
    whole = run(TARGETS["model"], range(60), Tally())
    monkeypatch.setattr(
        Release, "from_json", classmethod(lambda cls, value: cls.from_content(value))
    )
    broken = run(TARGETS["model"], range(60), Tally())
    assert whole.faults == []
    assert any("KeyError" in fault for fault in broken.faults)


def test_a_model_that_is_taken_with_an_edited_field_is_found(monkeypatch):
    monkeypatch.setattr(sealed, "_agree", lambda *_: True)
    broken = run(TARGETS["model"], range(150), Tally())
    assert sum("AssertionError" in fault for fault in broken.faults) >= 3


def test_a_reader_that_lets_a_library_speak_is_found(monkeypatch):
    """As the walk over a CSV file would, did it not say itself that a text is no UTF-8."""
    monkeypatch.setattr(_csv, "_decoded", lambda path, content, line: content.decode())
    broken = run(TARGETS["csv"], range(10), Tally())
    assert any("UnicodeDecodeError" in fault for fault in broken.faults)


def test_a_job_that_leaves_half_a_page_is_found(monkeypatch):
    """As ``expost report`` would, did it write its page before it knew all of it."""

    def half(workspace, summary, **options):
        (workspace.out / "report.CURATOR-ONLY.html").write_text("<html>")
        raise InvalidInput("summary: cannot be shown.")

    monkeypatch.setattr(report, "store_page", half)
    # A few of these cases are summaries that can be read.
    broken = run(TARGETS["on-file"], range(150), Tally())
    assert any("['report.CURATOR-ONLY.html']" in fault for fault in broken.faults)
    assert pages.store_page is not half


def test_files_that_are_not_whole_are_found(tmp_path):
    check_nothing_partial(tmp_path / "absent")
    check_nothing_partial(tmp_path)
    (tmp_path / "model.json").write_text(json.dumps({"format": "expost-model/1"}))
    with pytest.raises(InvalidInput, match="is not a released model"):
        check_nothing_partial(tmp_path)
    with pytest.raises(json.JSONDecodeError):
        _with(tmp_path / "a", "profile.CURATOR-ONLY.json", '{"rows": [')
    with pytest.raises(AssertionError):
        _with(tmp_path / "b", "report.html", "<html><body>")
    with pytest.raises(Fault, match="left"):
        _with(tmp_path / "c", ".report.html.x.part", "<html>")


def _with(folder: Path, name: str, content: str) -> None:
    folder.mkdir()
    (folder / name).write_text(content)
    check_whole(folder)


@pytest.mark.long
def test_a_worker_that_dies_is_a_fault_and_the_next_goes_on(tmp_path, monkeypatch):
    """A crash of the whole process at case 3, as of a library that is given a broken file."""
    folder = tmp_path / "path"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import os, random\n"
        "seed = random.Random.__init__\n"
        "def planted(self, x=None):\n"
        "    if x == '9/given/3':\n"
        "        os.abort()\n"
        "    seed(self, x)\n"
        "random.Random.__init__ = planted\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder))
    tally = run_apart("given", 6, chunk=2)
    assert tally.accepted + tally.refused == 4
    (fault,) = tally.faults
    assert fault.startswith("given: ")
    assert fault.endswith("range(2, 4)")


def test_a_table_that_is_whole_is_still_read_after_all_that():
    """A broken file may not spoil the one connection that all readers share."""
    run(TARGETS["parquet"], range(10), Tally())
    assert open_table({"x": [1.0, 2.0]}).column("x").to_pylist() == [1.0, 2.0]
