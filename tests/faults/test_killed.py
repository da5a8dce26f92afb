"""The program killed at any moment, or asked to end: nothing half-made, and --resume goes on."""

import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from evidence import record
from expost.errors import InvalidInput
from expost.ledger import NAME, Ledger
from faults.fork_server import BLOCK
from faults.runs import OUT, ROWS, Undisturbed, check_folder, contents, leftovers, other_bytes
from program import finished

SEED = 20261116
POINTS, MANY = 3, 20
# Each command, and where it works on its rows.
EVERY = (
    "profile",
    "profile, in memory",
    "epsilon",
    "epsilon, in memory",
    "publish",
    "publish, in memory",
    "audit",
)


class Releases:
    """model.json, report.json and a ledger, watched: what was there once never changes."""

    def __init__(self, out: Path, ledger: Path) -> None:
        self._paths, self._ledger = (out / "model.json", out / "report.json"), ledger
        self._contents: dict[Path, bytes] = {}

    def check_unchanged(self) -> None:
        for path in self._paths:
            if path.exists():
                assert self._contents.setdefault(path, path.read_bytes()) == path.read_bytes()

    def listed(self) -> int:
        return len(Ledger.load(self._ledger)) if self._ledger.exists() else 0


def interrupt(server, wanted: Undisturbed, folder: Path, rng, kill_signal=signal.SIGKILL) -> int:
    """Strike a run at random moments, up to three times; then let it end. How often it was."""
    folder.mkdir(parents=True)
    out, command = folder / OUT, (*wanted.command, "--out", OUT)
    releases, signals = Releases(out, folder / NAME), 0
    for attempt in range(int(rng.integers(1, 4))):
        resume = ("--resume",) if attempt else ()
        moment = float(rng.uniform(0, wanted.seconds))
        done = server.run(*command, *resume, cwd=folder, kill_after=moment, kill_signal=kill_signal)
        check_folder(out)
        releases.check_unchanged()
        if had_ended(done):
            break
        check_end(done, out, kill_signal, first=not attempt)
        signals += 1
    else:
        done = server.run(*command, "--resume", cwd=folder)
        assert had_ended(done), done.err
        releases.check_unchanged()
    # Of a model that is published the ledger lists the model, too, if the report spends.
    released = {"profile": 1, "publish": 2 if "data-dependent" in command else 0}
    assert releases.listed() == released.get(wanted.command[0], 0)
    assert not check_folder(out)["begun"]
    assert {*map(_unnamed, contents(out))} == {*map(_unnamed, wanted.results)}
    return signals


def _unnamed(name: str) -> str:
    """The name of a part without its checksum."""
    return re.sub("-[0-9a-f]{64}", "", name)


def had_ended(done) -> bool:
    """Whether all was done, by this process or by the one before: killed in its last act."""
    return done.code == 0


def check_end(done, out: Path, kill_signal: int, *, first: bool) -> None:
    if kill_signal == signal.SIGKILL:
        assert done.was_killed, done
        return
    # 128 + the signal; or by the signal itself, before the program could say anything.
    assert done.code in (128 + kill_signal, -kill_signal), done
    assert "Traceback" not in done.err
    if done.code > 0:
        assert done.err.startswith("expost: interrupted.")
        assert done.err.count("\n") == 1
        # Later a kill_signal may come before the run was even resumed.
        begun = check_folder(out)["begun"]
        assert ("--resume" in done.err) == begun or (begun and not first)
        assert leftovers(out) == []


def interrupt_often(
    server, wanted: Undisturbed, folder: Path, points: int, seed: int, **options
) -> int:
    """Strike that many runs, which all end in the same bytes. How many signals there were.

    A run that ends before its kill_signal, because the machine was faster than when ``wanted.seconds``
    was measured, is no point: another moment is drawn for it, up to nine times in all.
    """
    rng, signals, hit = np.random.default_rng(seed), 0, 0
    for point in range(points + 9):
        if hit == points:
            break
        outcome = interrupt(server, wanted, folder / str(point), rng, **options)
        assert other_bytes(wanted, folder / str(point)) == []
        signals, hit = signals + outcome, hit + (outcome > 0)
    return signals


# -- a few moments ---------------------------------------------------------------------------------


def test_a_profile_that_is_killed_and_gone_on_with_ends_in_the_same_bytes(
    server, commands, tmp_path
):
    wanted = commands["profile"]
    assert sum(name.count("part-") for name in wanted.results) == -(-ROWS // BLOCK)
    assert interrupt_often(server, wanted, tmp_path, POINTS, SEED) >= 2


@pytest.mark.parametrize("name", ["profile, no seed", "publish, data-dependent"])
def test_what_was_drawn_is_never_drawn_again(server, commands, tmp_path, name):
    wanted = commands[name]
    assert interrupt(server, wanted, tmp_path / "o", np.random.default_rng(SEED)) >= 1
    assert other_bytes(wanted, tmp_path / "o"), "the noise was another one"


def test_a_choice_of_epsilon_that_is_killed_ends_in_the_same_bytes(server, commands, tmp_path):
    assert interrupt_often(server, commands["epsilon"], tmp_path, 1, SEED) >= 1


@pytest.mark.parametrize("kill_signal", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", EVERY)
def test_interrupted_it_ends_in_one_sentence_and_is_resumed(
    server, commands, tmp_path, kill_signal, name
):
    assert (
        interrupt_often(server, commands[name], tmp_path, 1, SEED + 2, kill_signal=kill_signal) >= 1
    )


@pytest.mark.parametrize(
    "name", ["profile, in memory, no seed", "publish, in memory, data-dependent"]
)
def test_what_was_drawn_in_memory_is_never_drawn_again(server, commands, tmp_path, name):
    rng = np.random.default_rng(SEED)
    assert interrupt(server, commands[name], tmp_path / "k", rng) >= 1
    assert interrupt(server, commands[name], tmp_path / "i", rng, kill_signal=signal.SIGINT) >= 1


@pytest.mark.parametrize(
    "name",
    [
        "model.json",
        "report.CURATOR-ONLY.html",
        "profile.CURATOR-ONLY.json",
        "_manifest.json",
        "part",
    ],
)
def test_whoever_looks_sees_a_file_that_is_cut_short(commands, tmp_path, name):
    for path, content in commands["profile"].results.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    assert check_folder(tmp_path)["tables"] == 1
    (path, *_) = [path for path in sorted(tmp_path.rglob("*")) if path.name.startswith(name)]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises((AssertionError, ValueError, InvalidInput)):
        check_folder(tmp_path)
    path.unlink()
    if path.parent != tmp_path:
        with pytest.raises(InvalidInput, match=r"is missing|is not finished"):
            check_folder(tmp_path)


# -- many moments ----------------------------------------------------------------------------------


@pytest.mark.long
def test_killed_at_many_moments(server, commands, tmp_path):
    figures = {}
    for number, name in enumerate(("profile", "epsilon", "publish")):
        signals = interrupt_often(server, commands[name], tmp_path / name, MANY, SEED + number)
        assert signals >= MANY // 2
        figures[name] = {"runs": MANY, "kills": signals, "runs with other bytes": 0}
    for number, name in enumerate(("profile, no seed", "publish, data-dependent")):
        rng, signals = np.random.default_rng(SEED + 10 + number), 0
        for point in range(MANY // 2):
            signals += interrupt(server, commands[name], tmp_path / name / str(point), rng)
        assert signals >= MANY // 4
        figures[name] = {"runs": MANY // 2, "kills": signals, "releases drawn twice": 0}
    record(
        "fault-killed",
        command="pytest -m long tests/faults/test_killed.py",
        seed=SEED,
        figures={"rows": ROWS, "commands": figures, "files cut short under their names": 0},
    )


@pytest.mark.long
def test_interrupted_at_many_moments(server, commands, tmp_path):
    """At least 100 signals, at random moments of every command."""
    figures, signals = {}, 0
    for kill_signal in (signal.SIGINT, signal.SIGTERM):
        for number, name in enumerate(EVERY):
            folder = tmp_path / kill_signal.name / name.replace(", ", "-")
            signals = interrupt_often(
                server,
                commands[name],
                folder,
                MANY // 2,
                SEED + 100 * kill_signal + number,
                kill_signal=kill_signal,
            )
            figures[f"{name}, {kill_signal.name}"] = {
                "runs": MANY // 2,
                "signals": signals,
                "tracebacks, or more than one sentence": 0,
                "states that --resume did not accept": 0,
                "runs with other bytes": 0,
            }
            signals += signals
    assert signals >= 100
    record(
        "fault-interrupted",
        command="pytest -m long tests/faults/test_killed.py -k interrupted",
        seed=SEED,
        figures={"signals": signals, "failures": 0, "commands": figures},
    )


HALF_MADE = """
import signal
import sys
from expost.cli.mistakes import handle_signals

class HalfMade:
    def __del__(self):
        raise AttributeError("'HalfMade' object has no attribute 'whole'")

def work():
    half = HalfMade()
    signal.raise_signal(signal.SIGINT)

try:
    with handle_signals(signal.SIG_IGN):
        work()
    kept = None
except KeyboardInterrupt as stopped:
    kept = stopped
del kept
"""


def test_what_an_interruption_left_half_made_is_not_reported():
    """A library whose import was stopped frees its objects when the program has had its say."""
    done = finished([sys.executable, "-c", HALF_MADE])
    assert (done.code, done.out, done.err) == (0, "", "")
    # Without a signal a destructor's error is as loud as ever.
    loud = finished([sys.executable, "-c", HALF_MADE.replace("signal.raise_signal", "str")])
    assert "HalfMade" in loud.err
