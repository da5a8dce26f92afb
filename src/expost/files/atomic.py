"""Files that are whole or absent, and JSON that is read strictly.

A file is written under a temporary name in its own folder, flushed to the disk and renamed, so
that a crash leaves the old file or the new one, never half of either. A file that is not
public is readable by its owner alone.
"""

import hashlib
import json
import math
import os
import re
import secrets
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, Protocol

from expost.errors import InvalidInput
from expost.files.directory import Directory, kind_of, parent_of
from expost.types import Audience

__all__ = [
    "BROKEN_NPZ",
    "Desk",
    "adopt",
    "drafts",
    "is_same_file",
    "listed_by",
    "once",
    "read_json",
    "settle",
    "write_bytes",
    "write_json",
    "write_with",
]

# What NumPy and zipfile raise, beside OSError, for an npz file that is damaged or is none.
BROKEN_NPZ = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,  # encrypted, or compressed in a way that is not supported
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)

# How the temporary names end.
_DRAFT = ".part"
# Names of up to 255 bytes are common to file systems; a draft's has 15 more.
_LONGEST = 240


class Desk(Protocol):
    """Who keeps the list of an output folder's files (:mod:`expost.jobs.workspace`)."""

    def holds(self, folder: Directory, name: str) -> bool:
        """Whether it lists a file of this name in this folder."""

    def drafts(self) -> AbstractContextManager[Directory]:
        """Open the folder in which files are written before they appear."""

    def list_file(self, name: str, drafts: Directory, draft: str) -> None:
        """List a file that is about to appear; raise where that would replace a foreign one."""


# The list that this process writes its files into; None without one.
_DESK: ContextVar[Desk | None] = ContextVar("desk", default=None)


@contextmanager
def listed_by(desk: Desk | None) -> Iterator[None]:
    """Let ``desk``, unless None, list each file of its folder before it appears."""
    token = _DESK.set(desk)
    try:
        yield
    finally:
        _DESK.reset(token)


def write_with(
    path: str | Path,
    audience: Audience,
    write: Callable[[IO[bytes]], object],
    *,
    before: Callable[[], object] | None = None,
) -> Path:
    """Let ``write`` fill the file at ``path``: it appears whole, with its final mode, or not.

    ``before`` is called when all of it is on the disk, and before it appears under its name; if
    that fails, the file does not appear. Nothing but a regular file is ever replaced.
    """
    path = _path(path)
    with parent_of(path) as folder:
        _check_regular(folder, path)
        desk = _DESK.get()
        if desk is not None and not desk.holds(folder, path.name):
            desk = None
        with nullcontext(folder) if desk is None else desk.drafts() as place:
            draft, whole = f".{_stem(path.name)}.{secrets.token_hex(4)}{_DRAFT}", False
            try:
                with os.fdopen(place.create(draft), "wb") as file:
                    write(file)
                    file.flush()
                    os.fsync(file.fileno())
                whole = True
                if desk is not None:
                    desk.list_file(path.name, place, draft)
                _appear(place, draft, folder, path.name, audience, before)
            except BaseException as error:
                # Interrupted when it may have been entered in a ledger: the run that is resumed
                # takes this draft, so that nothing is drawn twice.
                if not whole or desk is None or isinstance(error, Exception):
                    place.unlink(draft)
                raise
    return path


def _path(path: Any) -> Path:
    try:
        named = Path(path)
        # A name that no file can have.
        os.fsencode(named)
    except (TypeError, ValueError):
        raise InvalidInput("path: must be the name of a file, as 'model.json'.") from None
    if not named.name or "\0" in named.name:
        raise InvalidInput("path: must be the name of a file, as 'model.json'.")
    return named


def _stem(name: str) -> str:
    """Return what drafts of this name are called by; a long name leaves no room for more."""
    if len(os.fsencode(name)) <= _LONGEST:
        return name
    return hashlib.sha256(os.fsencode(name)).hexdigest()


def _check_regular(folder: Directory, path: Path) -> None:
    status = folder.status(path.name)
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise InvalidInput(
            f"{path}: is {kind_of(status)}, and only a regular file is replaced; name another file."
        )


def _appear(
    place: Directory,
    draft: str,
    folder: Directory,
    name: str,
    audience: Audience,
    before: Callable[[], object] | None,
) -> None:
    if before is not None:
        before()
    place.set_mode(draft, 0o644 if audience is Audience.PUBLIC else 0o600)
    place.replace(draft, folder, name)


def drafts(path: Path, place: Path | None = None) -> list[Path]:
    """Return what is being written as ``path`` in ``place`` (default: its folder), or was when a
    process was killed."""
    folder = path.parent if place is None else place
    if not folder.is_dir():
        return []
    # The random part has no dots: drafts of "a.json" are none of "a".
    draft = re.compile(re.escape(f".{_stem(path.name)}.") + r"[^.]+" + re.escape(_DRAFT))
    return [folder / name for name in sorted(os.listdir(folder)) if draft.fullmatch(name)]


def adopt(
    path: Path,
    audience: Audience,
    draft: Path,
    *,
    before: Callable[[], object] | None = None,
) -> None:
    """Let a whole draft of ``path`` that a killed process left appear.

    So that what was drawn, and may be entered in a ledger already, is not drawn a second time. Only
    for the process that alone writes this file. ``before`` as in :func:`write_with`.
    """
    with parent_of(path) as folder, parent_of(draft) as place:
        _check_regular(folder, path)
        desk = _DESK.get()
        if desk is not None and desk.holds(folder, path.name):
            desk.list_file(path.name, place, draft.name)
        _appear(place, draft.name, folder, path.name, audience, before)


def write_bytes(path: str | Path, audience: Audience, content: bytes) -> Path:
    """Write ``content`` to ``path``, whole or not at all."""
    return write_with(path, audience, lambda file: file.write(content))


def write_json(
    path: str | Path,
    audience: Audience,
    value: object,
    *,
    before: Callable[[], object] | None = None,
) -> Path:
    """Write ``value`` as JSON; NaN and infinities are refused, they are not JSON."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    content = (text + "\n").encode()
    return write_with(path, audience, lambda file: file.write(content), before=before)


def is_same_file(one: Path, other: Path) -> bool:
    """Whether both names lead to one file, or to one folder."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def settle(folder: Path) -> None:
    """Bring renames in ``folder`` to the disk: a power cut must not undo what was seen."""
    with Directory.open(folder) as opened:
        opened.settle()


def _refuse_constant(name: str) -> float:
    raise ValueError(f"the constant {name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not abs(number) < math.inf:
        raise ValueError("a number is past what float64 holds")
    return number


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of names that differ: readers do not agree which of two holds."""
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("an object has a name twice")
    return content


def read_json(path: str | Path) -> Any:
    """Read a JSON file strictly, or raise :class:`InvalidInput` that names it."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidInput(f"path={path!r}: must be the path of a file, a string or a Path.")
    path = Path(path)
    # A pipe would be waited for, and a device has no end.
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InvalidInput(f"{path}: is not a file; name one that can be read again.")
    try:
        text = path.read_text("utf-8")
        value = json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=once
        )
        if "\\u" in text:
            # Half of a pair, \ud800, is an escape that JSON has and a text that no file can hold.
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path}: is not a whole JSON file ({error}).") from None
