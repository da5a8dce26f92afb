"""A disk that is full: one clear sentence, nothing half-written, and with more room --resume goes on.

The disk is a tmpfs of so many bytes, where a test may mount one; a limit on the size of a file
stands in for it everywhere.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from evidence import record
from faults.runs import OUT, ROWS, Undisturbed, check_folder, leftovers, other_bytes

SEED = 20261117
SIZES, MANY = 3, 20
LARGE = 64 * 2**20


class Disk:
    """A disk of its own, of any size."""

    def __init__(self, folder: Path, size: int) -> None:
        self.place = folder
        folder.mkdir()
        self._mount(f"size={size}")

    def resize(self, size: int) -> None:
        self._mount(f"remount,size={size}")

    def _mount(self, options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.place)]
        subprocess.run(command, check=True, capture_output=True)


@contextmanager
def disk(folder: Path, size: int) -> Iterator[Disk]:
    made = Disk(folder, size)
    try:
        yield made
    finally:
        # Lazily: whoever looks through the machine's files at this moment may be inside.
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def mounts(tmp_path_factory) -> None:
    """Skip, and say so, where nothing can be mounted."""
    try:
        with disk(tmp_path_factory.mktemp("mount") / "disk", 2**16):
            pass
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"no tmpfs can be mounted by user {os.geteuid()} here ({error})")


def largest(wanted: Undisturbed) -> int:
    """Bytes that are too few for a run, nearly always: not all of its results fit."""
    return sum(-(-len(content) // 4096) * 4096 for content in wanted.results.values()) * 9 // 10


def check_refused(done, out: Path) -> None:
    """One sentence that says what to do, and no file that is cut short."""
    assert done.code == 2, done
    assert done.err.startswith("expost: ")
    assert done.err.count("\n") == 1, done.err
    assert "No space left on device" in done.err or "File too large" in done.err
    assert "free some space" in done.err
    counts = check_folder(out)
    # Where nothing was finished --resume begins anew.
    assert "--resume" in done.err or not counts["begun"], done.err
    assert leftovers(out) == []


def filled(server, wanted: Undisturbed, folder: Path, size: int) -> bool:
    """Run on a disk of this size, and again where there is room. Whether it was too small."""
    with disk(folder, size) as small:
        command = (*wanted.command, "--out", OUT)
        done = server.run(*command, cwd=folder)
        if done.code != 0:
            check_refused(done, folder / OUT)
            small.resize(LARGE)
            done = server.run(*command, "--resume", cwd=folder)
            assert done.code == 0, done.err
            refused = True
        else:
            refused = False
        assert other_bytes(wanted, folder) == []
        assert not check_folder(folder / OUT)["begun"]
    return refused


def limited(server, wanted: Undisturbed, folder: Path, size: int) -> bool:
    """The same with a limit on the size of a file."""
    folder.mkdir()
    command = (*wanted.command, "--out", OUT)
    done = server.run(*command, cwd=folder, limit=size)
    refused = done.code != 0
    if refused:
        check_refused(done, folder / OUT)
        done = server.run(*command, "--resume", cwd=folder)
        assert done.code == 0, done.err
    assert other_bytes(wanted, folder) == []
    return refused


def often(server, wanted: Undisturbed, folder: Path, sizes: int, seed: int) -> int:
    """On how many of so many disks of random sizes there was no room."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(2**12, largest(wanted), sizes)
    return sum(
        filled(server, wanted, folder / str(index), int(size)) for index, size in enumerate(drawn)
    )


def often_limited(server, wanted: Undisturbed, folder: Path, sizes: int, seed: int) -> int:
    rng = np.random.default_rng(seed)
    most = max(len(content) for content in wanted.results.values())
    drawn = np.exp(rng.uniform(np.log(200), np.log(most), sizes))
    return sum(
        limited(server, wanted, folder / str(index), int(size)) for index, size in enumerate(drawn)
    )


@pytest.mark.usefixtures("mounts")
def test_a_full_disk_costs_nothing_that_was_finished(server, commands, tmp_path):
    assert often(server, commands["profile"], tmp_path, SIZES, SEED) >= 2


def test_where_no_file_can_be_longer_nothing_is_cut_short(server, commands, tmp_path):
    assert often_limited(server, commands["profile"], tmp_path, SIZES, SEED) >= 2


@pytest.mark.long
@pytest.mark.usefixtures("mounts")
def test_disks_of_many_sizes(server, commands, tmp_path):
    figures = {}
    for number, name in enumerate(("profile", "epsilon", "publish")):
        (tmp_path / name).mkdir()
        full = often(server, commands[name], tmp_path / name, MANY, SEED + number)
        assert full >= MANY // 2
        figures[name] = {"disks": MANY, "full": full, "runs with other bytes": 0}
    (tmp_path / "limited").mkdir()
    full = often_limited(server, commands["profile"], tmp_path / "limited", MANY, SEED)
    assert full >= MANY // 2
    figures["profile, files limited"] = {"limits": MANY, "full": full, "runs with other bytes": 0}
    record(
        "fault-disk",
        command="pytest -m long tests/faults/test_full_disk.py",
        seed=SEED,
        figures={"rows": ROWS, "commands": figures, "files cut short under their names": 0},
    )
