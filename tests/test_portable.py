"""expost imports on every system, and its file locks are those it relies on."""

import ast
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import filelock
import pytest

import expost
from expost.errors import InvalidInput
from expost.files.atomic import write_json
from expost.files.directory import Directory, can_replace_locked, lock
from expost.ledger import NAME, Ledger, append

SOURCE = Path(expost.__file__).parent
# Modules of the standard library that some systems lack.
POSIX = {"fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog", "msvcrt", "winreg"}


def imported_at_once(tree):
    """The modules that are imported as the module itself is, but not inside functions."""
    waiting = list(ast.iter_child_nodes(tree))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]
        waiting += ast.iter_child_nodes(node)


def test_no_module_imports_what_some_systems_lack():
    trees = {path: ast.parse(path.read_text("utf-8")) for path in SOURCE.rglob("*.py")}
    assert len(trees) > 100
    collected = {
        str(path.relative_to(SOURCE)): sorted(POSIX & {*imported_at_once(tree)})
        for path, tree in trees.items()
        if POSIX & {*imported_at_once(tree)}
    }
    assert collected == {}


def test_power_of_the_walk():
    for text in ("import fcntl", "if True:\n    import fcntl as f", "class A:\n    from fcntl import flock",
                 "try:\n    import os, fcntl\nexcept ImportError:\n    pass"):  # fmt: skip
        assert "fcntl" in {*imported_at_once(ast.parse(text))}
    assert "fcntl" not in {*imported_at_once(ast.parse("def f():\n    import fcntl"))}


def test_the_program_imports_without_fcntl():
    script = (
        "import sys\n"
        "sys.modules['fcntl'] = None\n"
        "import expost, expost.cli.main, expost.cli.app, expost.ledger, expost.jobs.workspace\n"
        "for name in expost.__all__: getattr(expost, name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_without_locks_nothing_is_listed(tmp_path):
    """On a system without fcntl the ledger refuses in one sentence, and is not touched."""
    append(tmp_path / NAME, lambda ledger: [])
    before = (tmp_path / NAME).read_bytes()
    script = (
        "import sys\n"
        "sys.modules['fcntl'] = None\n"
        "from pathlib import Path\n"
        "from expost.ledger import append\n"
        "from expost.errors import InvalidInput\n"
        "try:\n"
        "    append(Path(sys.argv[1]), lambda ledger: [])\n"
        "except InvalidInput as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / NAME)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "no file locks" in done.stdout
    assert (tmp_path / NAME).read_bytes() == before


# What expost relies on in filelock -----------------------------------------------------------------


@pytest.fixture
def opened(tmp_path):
    """Descriptors of one file, opened again each time."""
    path, handles = tmp_path / "lock", []
    path.write_bytes(b"content")

    def again():
        handles.append(os.open(path, os.O_RDWR))
        return handles[-1]

    yield again
    for handle in handles:
        os.close(handle)


def test_a_lock_excludes_every_other_descriptor_and_ends_with_its_own(opened, tmp_path):
    """Of the same process too: two runs in one notebook are two runs."""
    first = opened()
    assert lock(first, wait=False)
    second = opened()
    assert not lock(second, wait=False)
    copy = os.dup(first)
    os.close(copy)
    # POSIX record locks (fcntl.lockf) would be gone with any descriptor of the file; flock's stay.
    with open(tmp_path / "lock", "rb"):
        pass
    assert not lock(second, wait=False)
    filelock.unlock_descriptor(first)
    assert lock(second, wait=False)


def test_the_locked_file_is_left_as_it_is(opened, tmp_path):
    """Neither truncated nor chmodded nor removed: a ledger is its own lock."""
    path = tmp_path / "lock"
    path.chmod(0o600)
    before = path.stat()
    assert lock(opened(), wait=False)
    filelock.unlock_descriptor(opened())
    after = path.stat()
    assert path.read_bytes() == b"content"
    assert os.listdir(tmp_path) == ["lock"]
    assert (before.st_mode, before.st_ino, before.st_size) == (
        after.st_mode,
        after.st_ino,
        after.st_size,
    )


def hold(path, ready):
    handle = os.open(path, os.O_RDWR)
    lock(handle, wait=True)
    ready.send(True)
    time.sleep(60)


def test_a_lock_dies_with_its_process_and_waiting_ends(opened, tmp_path):
    here, there = multiprocessing.Pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        worker = multiprocessing.get_context("fork").Process(
            target=hold, args=(tmp_path / "lock", there)
        )
        worker.start()
    assert here.recv()
    handle = opened()
    assert not lock(handle, wait=False)
    os.kill(worker.pid, signal.SIGKILL)
    assert lock(handle, wait=True)
    worker.join()
    assert worker.exitcode == -signal.SIGKILL


def test_a_lock_that_the_file_system_refuses_is_an_error(opened, monkeypatch, tmp_path):
    """No fall back to a file whose presence is the lock."""

    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    for wait in (False, True):
        with pytest.raises(OSError, match="Function not implemented"):
            lock(opened(), wait=wait)
    assert os.listdir(tmp_path) == ["lock"]
    path = tmp_path / NAME
    append(path, lambda ledger: [])
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="has no file locks"):
        append(path, lambda ledger: [])
    assert path.read_bytes() == before


def test_the_lock_of_a_folder_is_taken_by_descriptor(tmp_path):
    """A link in the place of the lock is not followed, however the folder is named."""
    (tmp_path / "victim").write_bytes(b"content")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").symlink_to(tmp_path / "victim")
    with (
        Directory.open(tmp_path / "run") as folder,
        pytest.raises(OSError, match="symbolic links"),
    ):
        folder.open_file("lock", os.O_RDWR | os.O_CREAT)
    assert (tmp_path / "victim").read_bytes() == b"content"


def test_a_ledger_that_is_replaced_during_a_wait_is_opened_again(tmp_path, monkeypatch):
    """The lock of a file that is no longer the ledger is no lock of the ledger (samestat)."""
    assert can_replace_locked()
    path, waits = tmp_path / NAME, []
    append(path, lambda ledger: [])
    new = Ledger.new()

    def slow(handle, *, wait):
        waits.append(handle)
        if len(waits) == 1:
            # Another process replaces the ledger between opening and locking.
            write_json(path, new.audience, new.to_json())
        return lock(handle, wait=wait)

    monkeypatch.setattr("expost.ledger.lock", slow)
    assert append(path, lambda ledger: []).salt == new.salt
    assert len(waits) == 2
