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
from faults.nursery import BLOCK
from faults.struck import OUT, ROWS, Undisturbed, contents, leftovers, looked_at, other_bytes
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
        self._seen: dict[Path, bytes] = {}

    def look(self) -> None:
        for path in self._paths:
            if path.exists():
                assert self._seen.setdefault(path, path.read_bytes()) == path.read_bytes()

    def listed(self) -> int:
        return len(Ledger.load(self._ledger)) if self._ledger.exists() else 0


def struck(nursery, wanted: Undisturbed, folder: Path, rng, blow=signal.SIGKILL) -> int:
    """Strike a run at random moments, up to three times; then let it end. How often it was."""
    folder.mkdir(parents=True)
    out, command = folder / OUT, (*wanted.command, "--out", OUT)
    releases, blows = Releases(out, folder / NAME), 0
    for attempt in range(int(rng.integers(1, 4))):
        resume = ("--resume",) if attempt else ()
        moment = float(rng.uniform(0, wanted.seconds))
        done = nursery.run(*command, *resume, cwd=folder, strike=moment, blow=blow)
        looked_at(out)
        releases.look()
        if had_ended(done):
            break
        check_end(done, out, blow, first=not attempt)
        blows += 1
    else:
        done = nursery.run(*command, "--resume", cwd=folder)
        assert had_ended(done), done.err
        releases.look()
    # Of a model that is published the ledger lists the model, too, if the report spends.
    released = {"profile": 1, "publish": 2 if "data-dependent" in command else 0}
    assert releases.listed() == released.get(wanted.command[0], 0)
    assert not looked_at(out)["begun"]
    assert {*map(_unnamed, contents(out))} == {*map(_unnamed, wanted.results)}
    return blows


def _unnamed(name: str) -> str:
    """The name of a part without its checksum."""
    return re.sub("-[0-9a-f]{64}", "", name)


def had_ended(done) -> bool:
    """Whether all was done, by this process or by the one before: struck in its last act."""
    return done.code == 0


def check_end(done, out: Path, blow: int, *, first: bool) -> None:
    if blow == signal.SIGKILL:
        assert done.was_killed, done
        return
    # 128 + the signal; or by the signal itself, before the program could say anything.
    assert done.code in (128 + blow, -blow), done
    assert "Traceback" not in done.err
    if done.code > 0:
        assert done.err.startswith("expost: interrupted.")
        assert done.err.count("\n") == 1
        # Later a blow may come before the run was even gone on with.
        begun = looked_at(out)["begun"]
        assert ("--resume" in done.err) == begun or (begun and not first)
        assert leftovers(out) == []


def struck_often(nursery, wanted: Undisturbed, folder: Path, points: int, seed: int, **how) -> int:
    """Strike that many runs, which all end in the same bytes. How many blows there were.

    A run that ends before its blow, because the machine was faster than when ``wanted.seconds``
    was measured, is no point: another moment is drawn for it, up to nine times in all.
    """
    rng, blows, hit = np.random.default_rng(seed), 0, 0
    for point in range(points + 9):
        if hit == points:
            break
        found = struck(nursery, wanted, folder / str(point), rng, **how)
        assert other_bytes(wanted, folder / str(point)) == []
        blows, hit = blows + found, hit + (found > 0)
    return blows


# -- a few moments ---------------------------------------------------------------------------------


def test_a_profile_that_is_killed_and_gone_on_with_ends_in_the_same_bytes(
    nursery, commands, tmp_path
):
    wanted = commands["profile"]
    assert sum(name.count("part-") for name in wanted.results) == -(-ROWS // BLOCK)
    assert struck_often(nursery, wanted, tmp_path, POINTS, SEED) >= 2


@pytest.mark.parametrize("name", ["profile, no seed", "publish, data-dependent"])
def test_what_was_drawn_is_never_drawn_again(nursery, commands, tmp_path, name):
    wanted = commands[name]
    assert struck(nursery, wanted, tmp_path / "o", np.random.default_rng(SEED)) >= 1
    assert other_bytes(wanted, tmp_path / "o"), "the noise was another one"


def test_a_choice_of_epsilon_that_is_killed_ends_in_the_same_bytes(nursery, commands, tmp_path):
    assert struck_often(nursery, commands["epsilon"], tmp_path, 1, SEED) >= 1


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", EVERY)
def test_interrupted_it_ends_in_one_sentence_and_is_resumed(
    nursery, commands, tmp_path, blow, name
):
    assert struck_often(nursery, commands[name], tmp_path, 1, SEED + 2, blow=blow) >= 1


@pytest.mark.parametrize(
    "name", ["profile, in memory, no seed", "publish, in memory, data-dependent"]
)
def test_what_was_drawn_in_memory_is_never_drawn_again(nursery, commands, tmp_path, name):
    rng = np.random.default_rng(SEED)
    assert struck(nursery, commands[name], tmp_path / "k", rng) >= 1
    assert struck(nursery, commands[name], tmp_path / "i", rng, blow=signal.SIGINT) >= 1


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
    assert looked_at(tmp_path)["tables"] == 1
    (path, *_) = [path for path in sorted(tmp_path.rglob("*")) if path.name.startswith(name)]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises((AssertionError, ValueError, InvalidInput)):
        looked_at(tmp_path)
    path.unlink()
    if path.parent != tmp_path:
        with pytest.raises(InvalidInput, match=r"is missing|is not finished"):
            looked_at(tmp_path)


# -- many moments ----------------------------------------------------------------------------------


@pytest.mark.long
def test_killed_at_many_moments(nursery, commands, tmp_path):
    figures = {}
    for number, name in enumerate(("profile", "epsilon", "publish")):
        blows = struck_often(nursery, commands[name], tmp_path / name, MANY, SEED + number)
        assert blows >= MANY // 2
        figures[name] = {"runs": MANY, "kills": blows, "runs with other bytes": 0}
    for number, name in enumerate(("profile, no seed", "publish, data-dependent")):
        rng, blows = np.random.default_rng(SEED + 10 + number), 0
        for point in range(MANY // 2):
            blows += struck(nursery, commands[name], tmp_path / name / str(point), rng)
        assert blows >= MANY // 4
        figures[name] = {"runs": MANY // 2, "kills": blows, "releases drawn twice": 0}
    record(
        "fault-killed",
        command="pytest -m long tests/faults/test_killed.py",
        seed=SEED,
        figures={"rows": ROWS, "commands": figures, "files cut short under their names": 0},
    )


@pytest.mark.long
def test_interrupted_at_many_moments(nursery, commands, tmp_path):
    """At least 100 signals, at random moments of every command."""
    figures, signals = {}, 0
    for blow in (signal.SIGINT, signal.SIGTERM):
        for number, name in enumerate(EVERY):
            folder = tmp_path / blow.name / name.replace(", ", "-")
            blows = struck_often(
                nursery, commands[name], folder, MANY // 2, SEED + 100 * blow + number, blow=blow
            )
            figures[f"{name}, {blow.name}"] = {
                "runs": MANY // 2,
                "signals": blows,
                "tracebacks, or more than one sentence": 0,
                "states that --resume did not accept": 0,
                "runs with other bytes": 0,
            }
            signals += blows
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
