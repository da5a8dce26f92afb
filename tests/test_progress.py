"""What a long job shows: a bar at a terminal, JSON lines where they are asked for, else nothing."""

import json
import math
import os
import pty
import random
import re
import subprocess
import sys
import threading
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import typer

import expost
from expost.cli import stream as stream_module
from expost.cli.app import app
from expost.cli.mistakes import sentence
from expost.cli.progress import progress
from expost.engine import SILENT
from expost.engine import bar as progress_module
from expost.engine.tracker import SMOOTHING, JobStatus, Pass, Tracker
from expost.errors import InvalidInput
from expost.jobs import profile as profile_job
from expost.jobs.ledger import POINTER
from expost.training import LogisticTraining
from program import PROGRAM, Ran, names, people
from recorded_progress import RecordedProgress

# Speed and time left ---------------------------------------------------------------------------


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def naive_speed(blocks: list[tuple[float, int]], smoothing: float) -> float:
    """The weighted mean of the speeds, by a sum over thin slices of time."""
    end = sum(seconds for seconds, _ in blocks)
    rows = weights = start = 0.0
    for seconds, count in blocks:
        slices = 4000
        for number in range(slices):
            middle = start + (number + 0.5) * seconds / slices
            weight = math.exp(-(end - middle) / smoothing) * seconds / slices
            rows += weight * count / seconds
            weights += weight
        start += seconds
    return rows / weights


def test_the_speed_is_the_weighted_mean_of_all_speeds_so_far():
    draw, now, blocks = random.Random(1), 5.0, []
    under_way = Pass(10**6, now)
    assert under_way.speed(now) is under_way.left(now) is None
    for _ in range(12):
        blocks.append((draw.uniform(0.3, 9), draw.randrange(1000)))
        now += blocks[-1][0]
        under_way.add(blocks[-1][1], now)
        assert under_way.speed(now) == pytest.approx(naive_speed(blocks, SMOOTHING), rel=1e-6)
    assert under_way.speed(now) != pytest.approx(naive_speed(blocks, 2 * SMOOTHING), rel=1e-2)
    missing = 10**6 - sum(count for _, count in blocks)
    assert under_way.left(now) == pytest.approx(missing / under_way.speed(now))
    assert under_way.seconds(now) == pytest.approx(sum(seconds for seconds, _ in blocks))


def test_blocks_that_come_in_bursts_count_as_one():
    apart, together = Pass(1000, 0.0), Pass(1000, 0.0)
    for second in range(1, 6):
        for index in range(4):
            apart.add(10, second + 0.01 * index)
        together.add(10 if second == 1 else 40, float(second))
    assert apart.speed(5.0) == pytest.approx(together.speed(5.0))
    assert apart.done == 200


def test_a_pass_that_hangs_becomes_slower():
    under_way = Pass(1000, 0.0)
    under_way.add(100, 1.0)
    speeds = [under_way.speed(now) for now in (1.0, 2.0, 3.0, 30.0, 3000.0)]
    assert speeds[:2] == [pytest.approx(100)] * 2
    assert speeds == sorted(speeds, reverse=True)
    assert speeds[2] > speeds[3] > speeds[4]
    # Much later the rate is unknown, and nothing is divided by zero.
    assert under_way.left(1e9) is None
    under_way.add(900, 1e9)
    assert under_way.left(1e9) == 0


def test_the_end_of_a_quick_pass_has_a_speed():
    under_way = Pass(50, 0.0)
    under_way.add(50, 0.01)
    assert (under_way.speed(0.01), under_way.left(0.01)) == (pytest.approx(5000), 0)
    at_once = Pass(50, 0.0)
    at_once.add(50, 0.0)
    assert (at_once.speed(0.0), at_once.left(0.0)) == (None, 0)


# Following a job -------------------------------------------------------------------------------


class Listener:
    """A tracker with a clock that is set by hand, and what it told."""

    def __init__(self, phases: int = 3):
        self.clock, self.reports = Clock(), []
        self.tracker = Tracker(
            phases, on_phase=self.reports.append, on_rows=self.reports.append, clock=self.clock
        )

    @property
    def rows(self) -> list[tuple[int, int, int]]:
        """Of each time that rows were told of: the pass, rows done, rows in all."""
        return [
            (item.pass_number, item.done, item.total) for item in self.reports if item.pass_number
        ]


def test_rows_are_reported_once_a_second_and_at_the_end_of_a_pass():
    job = Listener()
    job.tracker.phase("first")
    job.tracker.rows(100)
    for _ in range(100):
        job.clock.now += 0.03125
        job.tracker.advance(1)
    assert job.rows == [(1, 32, 100), (1, 64, 100), (1, 96, 100), (1, 100, 100)]
    # The next one is counted; it is broken off, and what was done of it is told once.
    job.tracker.rows(70)
    job.tracker.advance(7)
    job.tracker.phase("second")
    job.tracker.phase("third")
    assert job.rows[4:] == [(2, 7, 70)]
    # A new phase counts its passes from 1; rows beyond the end are no second end.
    job.tracker.rows(10)
    job.tracker.advance(10)
    job.tracker.advance(5)
    assert job.rows[5:] == [(1, 10, 10)]
    job.tracker.close()
    assert job.rows[5:] == [(1, 10, 10), (1, 15, 10)]
    assert [
        (item.phase, item.number, item.phases) for item in job.reports if not item.pass_number
    ] == [("first", 1, 3), ("second", 2, 3), ("third", 3, 3)]


def test_unexpected_rows_are_no_error():
    job = Listener(phases=1)
    # Before any phase, and without a pass.
    job.tracker.advance(5)
    assert job.tracker.status() == JobStatus(phase="starting", number=0, phases=1)
    job.tracker.phase("one")
    job.tracker.phase("another")
    assert (job.reports[-1].number, job.reports[-1].phases) == (2, 2)
    job.tracker.rows(0)
    assert (job.tracker.status().left, job.tracker.status().speed) == (0, None)
    job.tracker.close()
    assert job.rows == [(1, 0, 0)]
    job.tracker.advance(5)
    assert job.tracker.status().pass_number == 0


def test_threads_may_report_at_once_and_often():
    written = []
    tracker = Tracker(50, on_phase=written.append, on_rows=written.append)
    tracker.phase("counting")
    tracker.rows(10**9)
    start = time.perf_counter()

    def advance() -> None:
        for _ in range(25_000):
            tracker.advance(3)

    threads = [threading.Thread(target=advance) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        assert tracker.status().done <= 300_000
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    assert tracker.status().done == 300_000
    # A microsecond or so a call; the bound is for a machine that does other things too.
    assert seconds < 10
    assert len(written) <= 2 + seconds


# At a terminal ---------------------------------------------------------------------------------


class Terminal:
    """A pseudo-terminal in the place of stderr, and what was written to it."""

    def __init__(self, monkeypatch):
        self.master, slave = pty.openpty()
        self.file = os.fdopen(slave, "w", encoding="utf-8")
        monkeypatch.setattr(sys, "stderr", self.file)
        monkeypatch.setenv("TERM", "xterm")
        self.shown = b""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self.master, 4096)
            except OSError:
                return
            if not part:
                return
            self.shown += part

    def close(self) -> str:
        self.file.close()
        self.reader.join(5)
        os.close(self.master)
        return self.shown.decode()


@pytest.fixture
def ask(program, people_csv, tmp_path):
    """Run ``expost profile`` on the people, with these options; the results go to tmp_path/o."""

    def call(options: str = "", data: object = people_csv, out: str = "o") -> Ran:
        where = ("--target", "income", "--out", tmp_path / out)
        return program("profile", data, *where, *options.split())

    return call


@pytest.fixture
def slow(monkeypatch):
    """Let the job go over 600 rows twice, for a while; what it told."""
    monkeypatch.setattr(progress_module, "PATIENCE", 0.0)
    profile, work, recorded = profile_job.profile_of_table, profile_job.run, RecordedProgress()

    class Both:
        def __init__(self, progress):
            self.listeners = (recorded, progress)

        def __getattr__(self, name):
            return lambda value: [getattr(listener, name)(value) for listener in self.listeners]

    def listening(job, progress):
        both = Both(progress)

        def slowly(*arguments, **keywords):
            for _ in range(2):
                both.rows(600)
                for _ in range(4):
                    time.sleep(0.15)
                    both.advance(150)
            return profile(*arguments, **keywords)

        monkeypatch.setattr(profile_job, "profile_of_table", slowly)
        return work(job, both)

    monkeypatch.setattr(profile_job, "run", listening)
    return recorded


@pytest.mark.parametrize(
    ("patience", "options", "shown"), [(0.0, "", True), (60.0, "", False), (0.0, "--json", False)]
)
def test_a_long_job_shows_a_bar_at_a_terminal(ask, slow, monkeypatch, patience, options, shown):
    terminal = Terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(progress_module, "PATIENCE", patience)
    threads = threading.active_count()
    done = ask(options)
    observed = terminal.close()
    assert done.code == 0
    assert len(slow.phases) == profile_job.PHASES
    # The one pass that reads the rows, and the two of the slow step.
    assert slow.passes == {0: [[60, 60]], 2: [[600, 150, 150, 150, 150]] * 2}
    assert ("3/6 finding every row's neighbour" in observed) is shown
    figures = re.search(r"pass 2 +(50|75|100) % +[\d.]+ (k )?rows/s +0:00:0\d left", observed)
    assert (figures is not None) is shown
    assert (observed != "") is shown
    assert "neighbour" not in done.out
    # The bar leaves no thread behind.
    assert threading.active_count() <= threads


def test_an_error_removes_the_bar(ask, monkeypatch):
    terminal = Terminal(monkeypatch)
    monkeypatch.setattr(progress_module, "PATIENCE", 0.0)
    assert ask(data="none.csv").code == 2
    assert terminal.close().rstrip().endswith("none.csv: no such file.")


def test_a_terminal_that_goes_away_costs_nothing(monkeypatch):
    master, slave = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress_module, "PATIENCE", 0.0)
    with os.fdopen(slave, "w", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stderr", file)
        with progress(2, quiet=False, log=False) as shown:
            shown.phase("before")
            # A picture may come in several parts, on a busy machine some time after the first.
            drawn, until = b"", time.monotonic() + 20
            while b"before" not in drawn and time.monotonic() < until:
                drawn += os.read(master, 10**5)
            assert b"before" in drawn
            os.close(master)
            shown.phase("after")
            # Several pictures of it are lost; an error in the thread that draws would be seen.
            time.sleep(0.5)
    assert file.closed


# JSON lines ------------------------------------------------------------------------------------


def events(err: str) -> list[dict]:
    """Every line of it as an object, none more than two minutes old."""
    collected = [json.loads(line) for line in err.splitlines()]
    for event in collected:
        age = datetime.now(UTC) - datetime.fromisoformat(event["time"])
        assert 0 <= age.total_seconds() < 120
        assert datetime.fromisoformat(event["time"]).utcoffset().total_seconds() == 0
    return collected


@pytest.mark.parametrize("at_terminal", [False, True])
def test_a_job_writes_json_lines(ask, slow, monkeypatch, at_terminal):
    terminal = Terminal(monkeypatch) if at_terminal else None
    done = ask("--log-json --json --id number")
    err = done.err if terminal is None else terminal.close()
    assert done.code == 0, err
    written = events(err)
    phases = [event for event in written if event["event"] == "phase"]
    assert [event["phase"] for event in phases] == slow.phases
    assert [(event["number"], event["of"]) for event in phases] == [
        (number, profile_job.PHASES) for number in range(1, profile_job.PHASES + 1)
    ]
    # The one pass that reads the rows, then the two of the slow step.
    assert (written[1]["event"], written[1]["number"], written[1]["total"]) == ("rows", 1, 60)
    rows = written[4:-4]
    assert {event["event"] for event in rows} == {"rows"}
    for event in rows:
        assert set(event) == {
            *("event", "time", "phase", "number", "of", "pass", "done", "total", "seconds"),
            *("rows_per_second", "seconds_left"),
        }
        assert (event["phase"], event["number"], event["of"]) == (slow.phases[2], 3, 6)
        assert event["total"] == 600
    # On a slow machine a pass is told of on the way, too.
    ends = [event for event in rows if event["done"] == 600]
    assert [event["pass"] for event in ends] == [1, 2]
    for event in ends:
        assert event["seconds_left"] == 0
        assert event["seconds"] >= 0.6
        assert event["rows_per_second"] == pytest.approx(600 / event["seconds"], rel=0.3)
    assert written[-1]["event"] == "done"
    assert set(written[-1]) == {"event", "time", "seconds"}
    assert 1.2 <= written[-1]["seconds"] < 60
    # The result is where it always is, and no cell and no id is anywhere else.
    public = {"epsilon", "delta", "mechanism", "noise", "loss", "n"}
    assert set(json.loads(done.out)) == {"files", *public}
    # Those with letters: a number may be a speed as well.
    cells = {cell for row in people()[1:] for cell in row if re.search("[a-z]", cell)}
    assert "p007" in cells
    assert not [cell for cell in cells if cell in err]


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (InvalidInput("x=3:\nmust be 4."), "x=3: must be 4.", 2),
        (OSError(28, "No space left on device", "o/part"), "o/part: No space left on device.", 2),
        (MemoryError(), "not enough memory; drop columns, or use fewer rows.", 2),
        (KeyboardInterrupt(), "interrupted.", 130),
    ],
)
def test_every_end_is_reported(ask, tmp_path, monkeypatch, error, message, code):
    def failing(*arguments, **keywords):
        raise error

    monkeypatch.setattr(LogisticTraining, "ready_table", failing)
    done = ask("--log-json")
    assert (done.code, done.out) == (code, "")
    written = events(done.err)
    assert [event["event"] for event in written] == ["phase", "rows", "phase", "failed"]
    assert written[-1]["error"] == message
    # What is told is what is said without it.
    assert sentence(error) == (message if code == 2 else None)
    plain = ask(out="p")
    assert (plain.code, plain.out) == (code, "")
    assert plain.err == f"expost: {message}\n"
    assert not (tmp_path / "p").exists()


def test_an_unforeseen_error_is_reported_without_its_message(capsys):
    def job() -> None:
        with progress(2, quiet=True, log=True) as shown:
            shown.phase("one")
            shown.rows(10)
            shown.advance(4)
            raise ValueError("cell 'kanarie'")

    with pytest.raises(ValueError, match="kanarie"):
        job()
    out, err = capsys.readouterr()
    written = events(err)
    assert [event["event"] for event in written] == ["phase", "rows", "failed"]
    assert (written[1]["done"], written[1]["total"]) == (4, 10)
    assert written[2]["error"] == "an error in expost itself (ValueError)."
    assert out == ""


# Readers that go away --------------------------------------------------------------------------


def check_files(out: str, data: Path, folder: Path) -> None:
    """Assert that the files that a profile names exist: a ledger beside the data, the others here.

    The folder names its ledger in a file of its own.
    """
    files = {name: Path(path) for name, path in json.loads(out)["files"].items()}
    ledger = files.pop("ledger")
    assert ledger.is_file()
    assert ledger.resolve().parent == data.resolve().parent
    assert {path.name for path in files.values()} | {POINTER} == names(folder)


def test_a_reader_that_stops_reading_costs_nothing(people_csv, tmp_path):
    command = ["profile", people_csv, "--target", "income", "--out", tmp_path / "o", "--log-json"]
    with subprocess.Popen(
        [str(PROGRAM), *map(str, command), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as running:
        assert json.loads(running.stderr.readline())["number"] == 1
        running.stderr.close()
        out = running.stdout.read()
    # Not 120 either, with which Python ends when its last words are lost.
    assert running.returncode == 0
    check_files(out, people_csv, tmp_path / "o")


def test_stderr_may_be_closed_from_the_beginning(ask, monkeypatch, people_csv, tmp_path):
    monkeypatch.setattr(sys, "stderr", None)
    with progress(1, quiet=False, log=False) as shown:
        assert shown is SILENT
    with progress(1, quiet=False, log=True) as shown:
        shown.phase("shown to no reader")
    done = ask("--log-json --json")
    # Something stands in its place, so that no result gets its number and its errors.
    with sys.stderr as nowhere:
        assert nowhere.name == os.devnull
    assert done.code == 0
    check_files(done.out, people_csv, tmp_path / "o")


def test_output_without_a_reader_is_lost_and_nothing_else():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="ascii") as file:
        stream = stream_module.Stream(file)
        # What cannot be written is no reason to stop.
        stream.write("ε")
        assert stream.fileno() == writer
        stream.write("words\n")
        stream.flush()
        stream.write("more words\n")
        with pytest.raises(OSError, match="closed"):
            stream.fileno()
        assert (stream.isatty(), stream.encoding) == (False, "ascii")
        # Other writers are spared the error too, and so is the end of the program.
        print("last words", file=file, flush=True)
    closed = stream_module.Stream(file)
    assert closed.write("words") == 5


# The option ------------------------------------------------------------------------------------


def test_every_command_that_takes_a_while_has_the_option():
    having = {
        name
        for name, command in typer.main.get_command(app).commands.items()
        if any("--log-json" in option.opts for option in command.params)
    }
    assert having == {"demo", "profile", "epsilon", "publish", "forget", "audit"}


# From Python.


def lines_of(capsys):
    return capsys.readouterr().err.splitlines()


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("\n".join(",".join(line) for line in people(200)) + "\n")
    return path


def test_verbs_print_the_share_done_to_stderr(table, tmp_path, capsys):
    options = {"ids": "number", "models": 20, "folds": 3, "random_state": 1}
    quiet = expost.choose_epsilon(table, target="income", **options)
    assert capsys.readouterr().err == ""
    choice = expost.choose_epsilon(table, target="income", progress=True, **options)
    assert choice.to_json() == quiet.to_json()
    lines = lines_of(capsys)
    assert lines[0] == "1/2  reading the table"
    assert any(re.fullmatch(r"1/2  reading.*  100 %  .*0:00:00 left", x) for x in lines)
    assert any(re.match(r"2/2  following every row .* 100 %", line) for line in lines)
    expost.choose_epsilon(table, target="income", out=tmp_path / "o", progress=True, **options)
    assert lines_of(capsys)[-1].startswith("4/4  writing the report")


def test_a_listener_hears_of_the_verbs_of_arrays():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) / 4
    y = X[:, 0] > 0
    model = expost.PrivateLogisticRegression(epsilon=1.0, data_norm=1.0, classes=(False, True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
        tracker = Tracker(1)
        expost.profile(model, X, y, progress=tracker)
        assert tracker.status().phase == "computing the loss of every row"
        expost.publish(model, progress=tracker)
        assert tracker.status().phase == "making the report"
        expost.choose_epsilon(X, y, models=20, folds=2, progress=tracker)
    moment = tracker.status()
    assert moment.phase.startswith("following every row")
    assert moment.done == moment.total > 0
