"""Folders held by descriptor, whose entries are created, replaced and removed without links.

The names of entries are resolved by the system relative to an open folder (``dir_fd``), and folders
below it are opened with ``O_NOFOLLOW``: a link that an attacker creates between a check and its use
has no effect. On systems without these (Windows) every name is checked not to be a link before use.

Locks are those of open files, which the system releases when a process dies, by ``filelock`` on
Linux, macOS and Windows. Only its descriptor lock is used: :class:`filelock.FileLock`
opens the file by its path, which an attacker may replace by a link to another file, and without
native locks it falls back to a file whose presence is the lock, which stays when a process is
killed.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from expost.errors import InvalidInput

__all__ = ["RUN", "Directory", "can_replace_locked", "is_own", "kind_of", "lock", "parent_of"]

# The folder of the intermediate files of a run; no link in it, or to it, is ever followed.
RUN = ".expost-run"

_BY_DESCRIPTOR = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
_FOLDER: int = getattr(os, "O_DIRECTORY", 0)
# Windows translates line ends without this flag.
_BYTES: int = getattr(os, "O_BINARY", 0)
# Seconds between two attempts to lock; a ledger is held for about 10 milliseconds.
_PAUSE = 0.005


def kind_of(status: os.stat_result) -> str:
    """Name the type of a directory entry."""
    if stat.S_ISLNK(status.st_mode):
        return "a symbolic link"
    if stat.S_ISDIR(status.st_mode):
        return "a folder"
    return "a regular file" if stat.S_ISREG(status.st_mode) else "not a regular file"


def is_own(status: os.stat_result) -> bool:
    """Return whether an entry belongs to this user; True on systems without users."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


class Directory:
    """An open folder, to be closed or used in ``with``; ``path`` is its name for messages."""

    def __init__(self, path: Path, handle: int | None) -> None:
        self.path, self._handle = path, handle

    @classmethod
    def open(cls, path: Path) -> "Directory":
        """Open a folder that the user named; links in its path are followed."""
        if not _BY_DESCRIPTOR:
            return cls(path, None)
        return cls(path, os.open(path, os.O_RDONLY | _FOLDER))

    def folder(self, name: str, *, own: bool = True) -> "Directory":
        """Open a folder in this one; refuse a link and, if ``own``, one of another user."""
        status = self.status(name)
        if status is not None and not stat.S_ISDIR(status.st_mode):
            raise InvalidInput(
                f"{self.path / name}: is {kind_of(status)}, not a folder of expost; remove it, or"
                " name another folder."
            )
        opened = Directory(self.path / name, None)
        if _BY_DESCRIPTOR:
            opened._handle = os.open(name, os.O_RDONLY | _FOLDER | _NO_LINK, dir_fd=self._handle)
            status = os.fstat(opened._handle)
            if own and not is_own(status):
                opened.close()
                raise InvalidInput(
                    f"{self.path / name}: belongs to another user; remove it, or name another"
                    " folder."
                )
        return opened

    def make(self, name: str) -> bool:
        """Create a folder that only this user can read; return False if the name exists."""
        try:
            os.mkdir(self._at(name), 0o700, **self._where)
        except FileExistsError:
            return False
        return True

    def names(self) -> list[str]:
        """Return the names of all entries, sorted."""
        return sorted(os.listdir(self.path if self._handle is None else self._handle))

    def status(self, name: str) -> os.stat_result | None:
        """Return the status of an entry, of a link its own; None if there is none."""
        try:
            return os.stat(self._at(name), follow_symlinks=False, **self._where)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise InvalidInput(f"{name[:40]}…: the name is too long; use a shorter one.") from None

    def create(self, name: str) -> int:
        """Create a new file, mode 0600, and return its descriptor."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | _BYTES
        return os.open(self._at(name), flags, 0o600, **self._where)

    def open_file(self, name: str, flags: int) -> int:
        """Open an entry that is not a link, and return its descriptor."""
        return os.open(self._at(name), flags | _NO_LINK | _BYTES, 0o600, **self._where)

    def set_mode(self, name: str, mode: int) -> None:
        """Set the permissions of a file that is not a link."""
        if self._handle is None:
            os.chmod(self.path / name, mode)
            return
        handle = self.open_file(name, os.O_RDONLY)
        try:
            os.fchmod(handle, mode)
        finally:
            os.close(handle)

    def replace(self, name: str, target: "Directory", final: str) -> None:
        """Rename an entry into ``target``; a link there is replaced, not followed."""
        if self._handle is None:
            os.replace(self.path / name, target.path / final)
        else:
            os.replace(name, final, src_dir_fd=self._handle, dst_dir_fd=target._handle)

    def unlink(self, name: str) -> None:
        """Remove an entry that is not a folder, if it exists; a link is not followed."""
        with suppress(FileNotFoundError):
            os.unlink(self._at(name), **self._where)

    def rmdir(self, name: str) -> None:
        """Remove an empty folder, if it exists."""
        with suppress(FileNotFoundError):
            os.rmdir(self._at(name), **self._where)

    def is_same(self, other: "Directory") -> bool:
        """Return whether both are the same folder, under any names."""
        if self._handle is None or other._handle is None:
            return os.path.samefile(self.path, other.path)
        return os.path.samestat(os.fstat(self._handle), os.fstat(other._handle))

    def is_at(self, status: os.stat_result) -> bool:
        """Return whether this folder has that status, and was not removed and created again."""
        return self._handle is None or os.path.samestat(os.fstat(self._handle), status)

    def sync(self) -> None:
        """Flush renames to the disk, so that a power cut does not undo them."""
        if self._handle is not None:
            os.fsync(self._handle)

    def close(self) -> None:
        """Close the folder."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            os.close(handle)

    def __enter__(self) -> "Directory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _at(self, name: str) -> str | Path:
        return name if self._handle is not None else self.path / name

    @property
    def _where(self) -> dict[str, Any]:
        return {} if self._handle is None else {"dir_fd": self._handle}


@contextmanager
def parent_of(path: Path) -> Iterator[Directory]:
    """Open the folder of a file; from the folder of a run downwards no link is followed."""
    parts = path.parent.parts
    first = parts.index(RUN) if RUN in parts else len(parts)
    try:
        held = Directory.open(Path(*parts[:first]))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        if RUN in parts:
            # A worker on another machine has no such folder: its engine reports that.
            raise
        raise InvalidInput(
            f"{str(path)!r}: its folder does not exist; make it, or name another file."
        ) from None
    except OSError as error:
        raise InvalidInput(
            f"{str(path)!r}: its folder cannot be opened ({error.strerror}); name another file."
        ) from None
    try:
        for name in parts[first:]:
            below = held.folder(name, own=False)
            held.close()
            held = below
        yield held
    finally:
        held.close()


def lock(handle: int, *, wait: bool) -> bool:
    """Lock the open file ``handle`` for this process.

    The lock ends when the caller closes the descriptor, or its process dies.

    Parameters
    ----------
    handle : int
        The descriptor of a file that is open for writing.
    wait : bool
        Whether to wait until another process has released its lock.

    Returns
    -------
    bool
        Whether the file is locked; False only if another process holds it and ``wait`` is false.

    Raises
    ------
    OSError
        If the system, or the file system, has no locks.
    """
    # Imported here: it is needed late, and warns if the system has no locks.
    from filelock import lock_descriptor

    return lock_descriptor(handle, blocking=wait, poll_interval=_PAUSE)


def can_replace_locked() -> bool:
    """Return whether a file can be replaced while it is locked, which Windows does not allow."""
    from filelock import has_fcntl

    return has_fcntl
