"""Locks of open files, which the system releases when a process dies.

``filelock`` takes the lock, on Linux, macOS and Windows. Only its descriptor lock is used:
:class:`filelock.FileLock` opens the file by its path, which an attacker may replace by a link to
another file, and without native locks it falls back to a file whose presence is the lock, which
stays when a process is killed.
"""

__all__ = ["can_replace_locked", "lock"]

# Seconds between two attempts; a ledger is held for about 10 milliseconds.
_PAUSE = 0.005


def lock(handle: int, *, wait: bool) -> bool:
    """Lock the open file ``handle`` for this process alone.

    The lock ends when the descriptor is closed, which the caller does, or its process dies.

    Parameters
    ----------
    handle
        The descriptor of a file that is open for writing.
    wait
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
    # Imported here: it is needed late, and warns where the system has no locks.
    from filelock import lock_descriptor

    return lock_descriptor(handle, blocking=wait, poll_interval=_PAUSE)


def can_replace_locked() -> bool:
    """Return whether a file can be replaced while it is locked, which Windows does not allow."""
    from filelock import has_fcntl

    return has_fcntl
