"""An erasure killed at any moment: its coin is tossed once, and its request is charged once."""

import json
from pathlib import Path

import numpy as np
import pytest

from evidence import record
from expost.erasure.certificate import Certificate, Record
from expost.files.directory import RUN
from expost.jobs.output import is_unfinished
from expost.ledger import NAME, Ledger
from expost.release import Release
from faults.runs import OUT, ROWS, check_folder, contents, leftovers, publishable

MOMENTS = 20
COUPLED = ("--requests-independent",)
# More than any run flushes.
MANY = 1_000


@pytest.fixture(scope="module")
def model(rows) -> Path:
    return publishable(rows)


@pytest.fixture
def erase(server, rows, model):
    """Run ``expost forget`` in a folder, with a ledger there."""

    def call(folder: Path, *more: object, out: str = OUT, **options):
        folder.mkdir(parents=True, exist_ok=True)
        table = (rows, "--target", "y", "--model", model, "--id", "key")
        request = ("--remove", "k17", "--remove", "k400", "--ledger", NAME, "--out", out)
        return server.run("forget", *table, *request, *more, cwd=folder, **options)

    return call


def kept(folder: Path, name: str):
    """What the run has stored of a step, or None."""
    path = folder / OUT / RUN / f"{name}.json"
    return json.loads(path.read_text())["value"] if path.exists() else None


def listed(folder: Path) -> list[str]:
    path = folder / NAME
    entries = Ledger.load(path).entries if path.exists() else ()
    return [entry.release for entry in entries if entry.kind == "erasure"]


def check_order(folder: Path) -> tuple[float | None, dict | None]:
    """What is on the disk after a crash: the charge before the coin, the coin before the model."""
    check_folder(folder / OUT)
    coin, drawn = kept(folder, "coin"), kept(folder, "erasure")
    out = folder / OUT
    assert len(listed(folder)) <= 1
    if coin is not None:
        assert listed(folder), "the coin was tossed before the charge"
    if drawn is not None:
        assert coin == drawn["record"]["coin"]
    if (out / "model.json").exists() and is_unfinished(out):
        assert drawn is not None
    return coin, drawn


def check_end(folder: Path, coin: float | None, drawn: dict | None) -> None:
    """All is written, by the coin and the model that were stored before the crash."""
    out = folder / OUT
    assert not is_unfinished(out)
    assert leftovers(out) == []
    after = Release.load(out / "model.json")
    certificate = Certificate.load(out / "certificate.json")
    written = Record.load(out / "erasure.CURATOR-ONLY.json")
    assert certificate.after.sha256 == after.to_json()["sha256"]
    assert written.certificate == certificate.to_json()["sha256"]
    assert listed(folder) == [after.history[-1].request]
    assert after.mechanism.rows == ROWS - 2
    if coin is not None:
        assert written.coin == coin
    if drawn is not None:
        assert drawn["model"] == after.to_json()
        assert drawn["record"] == written.to_json()


def flushes(erase, folder: Path, *more: object) -> int:
    """How often an undisturbed run flushes to the disk: found by halving."""
    low, high = 1, MANY
    while low < high:
        middle = (low + high) // 2
        done = erase(folder / str(middle), *more, killed_at_sync=middle)
        low, high = (middle + 1, high) if done.was_killed else (low, middle)
    return low - 1


@pytest.mark.parametrize(
    ("more", "count"), [(COUPLED, MOMENTS), ((*COUPLED, "--engine", "local:2"), 8)]
)
def test_killed_at_many_moments_the_coin_is_tossed_once(erase, tmp_path, more, count):
    total = flushes(erase, tmp_path / "count", *more)
    moments = np.unique(np.linspace(1, total, count).astype(int))
    assert len(moments) == count
    seen = {"nothing": 0, "charge": 0, "coin": 0, "model": 0, "end": 0}
    for moment in moments.tolist():
        folder = tmp_path / str(moment)
        assert erase(folder, *more, killed_at_sync=moment).was_killed
        coin, drawn = check_order(folder)
        stage = "model" if drawn else "coin" if coin else "charge" if listed(folder) else "nothing"
        # Killed in its last act: all is written, and the run's own folder is being removed.
        stage = stage if is_unfinished(folder / OUT) else "end"
        seen[stage] += 1
        files = contents(folder / OUT)
        # The same request in another folder is another run: it would toss another coin.
        if listed(folder) and seen[stage] == 1:
            other = erase(folder, *more, out="other")
            assert other.code == 2
            assert "not tossed a second time" in other.err
            assert not (folder / "other").exists()
            # Nor is the coin discarded by mistake.
            other = erase(folder, *more, "--force")
            reason = "continue it with --resume" if stage != "end" else "not tossed a second time"
            assert (other.code, reason in other.err) == (2, True)
            assert check_order(folder) == (coin, drawn) or stage == "end"
            assert contents(folder / OUT) == files
        # Some are killed again while they resume.
        if seen[stage] <= 2 and erase(folder, *more, "--resume", killed_at_sync=2).was_killed:
            coin, drawn = check_order(folder)
        done = erase(folder, *more, "--resume")
        assert done.code == 0, done.err
        check_end(folder, coin, drawn)
    # The moments lie in every part of the order.
    assert min(seen.values()) >= 1 or count < MOMENTS, seen
    assert seen["model"] >= 1


def test_a_redrawn_model_is_stored_before_it_appears(erase, tmp_path):
    total = flushes(erase, tmp_path / "count")
    for moment in np.linspace(total // 3, total, 6).astype(int).tolist():
        folder = tmp_path / str(moment)
        assert erase(folder, killed_at_sync=moment).was_killed
        coin, drawn = check_order(folder)
        assert coin is None
        done = erase(folder, "--resume")
        assert done.code == 0, done.err
        check_end(folder, None, drawn)


@pytest.mark.long
def test_killed_at_every_moment(erase, tmp_path):
    total = flushes(erase, tmp_path / "count", *COUPLED)
    for moment in range(1, total + 1):
        folder = tmp_path / str(moment)
        assert erase(folder, *COUPLED, killed_at_sync=moment).was_killed
        coin, drawn = check_order(folder)
        assert erase(folder, *COUPLED, "--resume").code == 0
        check_end(folder, coin, drawn)
    record(
        "fault-erasure",
        command="pytest -m long tests/faults/test_killed_erasure.py",
        seed=None,
        figures={"rows": ROWS, "kills": total, "coins tossed twice": 0, "charged twice": 0},
    )
