"""Files that are complete or absent, and JSON that is read strictly.

A file is written under a temporary name in its own folder, flushed to the disk and renamed, so
that a crash leaves the old file or the new one, never a part. Only its owner can read a file that
is not public.
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
    "FileList",
    "adopt",
    "drafts",
    "is_draft",
    "is_same_file",
    "listed_by",
    "read_json",
    "sync_folder",
    "write_bytes",
    "write_json",
    "write_with",
]

# The errors of NumPy and zipfile, besides OSError, for a file that is not a complete npz file.
BROKEN_NPZ = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,  # encrypted, or an unsupported compression
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)

# The suffix of the temporary names.
_DRAFT = ".part"
# File systems commonly allow names of 255 bytes; the name of a draft is 15 longer.
_LONGEST = 240


class FileList(Protocol):
    """The list of the files of an output folder (:mod:`expost.jobs.workspace`)."""

    def holds(self, folder: Directory, name: str) -> bool:
        """Return whether the list covers a file of this name in this folder."""

    def drafts(self) -> AbstractContextManager[Directory]:
        """Open the folder in which files are written before they appear."""

    def list_file(self, name: str, drafts: Directory, draft: str) -> None:
        """List a file that is about to appear; raise where that would replace a foreign one."""


# The list of the files that this process writes; None without one.
_FILES: ContextVar[FileList | None] = ContextVar("files", default=None)


@contextmanager
def listed_by(files: FileList | None) -> Iterator[None]:
    """Add each file to the list ``files``, unless None, before it appears."""
    token = _FILES.set(files)
    try:
        yield
    finally:
        _FILES.reset(token)


def write_with(
    path: str | Path,
    audience: Audience,
    write: Callable[[IO[bytes]], object],
    *,
    before: Callable[[], object] | None = None,
) -> Path:
    """Write the file at ``path`` by ``write``: it appears complete, with its final mode, or not.

    ``before`` is called when the file is on the disk, before it appears under its name; if that
    fails, the file does not appear. Only a regular file is ever replaced.
    """
    path = _path(path)
    with parent_of(path) as folder:
        _check_regular(folder, path)
        files = _FILES.get()
        if files is not None and not files.holds(folder, path.name):
            files = None
        with nullcontext(folder) if files is None else files.drafts() as draft_folder:
            draft, complete = f".{_stem(path.name)}.{secrets.token_hex(4)}{_DRAFT}", False
            try:
                with os.fdopen(draft_folder.create(draft), "wb") as file:
                    write(file)
                    file.flush()
                    os.fsync(file.fileno())
                complete = True
                if files is not None:
                    files.list_file(path.name, draft_folder, draft)
                _appear(draft_folder, draft, folder, path.name, audience, before)
            except BaseException as error:
                # After an interrupt the release may be in a ledger already: the resumed run uses
                # this draft, so that no release is drawn twice.
                if not complete or files is None or isinstance(error, Exception):
                    draft_folder.unlink(draft)
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
    """Return the first part of the names of drafts; of a long name, its digest."""
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
    draft_folder: Directory,
    draft: str,
    folder: Directory,
    name: str,
    audience: Audience,
    before: Callable[[], object] | None,
) -> None:
    if before is not None:
        before()
    draft_folder.set_mode(draft, 0o644 if audience is Audience.PUBLIC else 0o600)
    draft_folder.replace(draft, folder, name)


def drafts(path: Path, folder: Path | None = None) -> list[Path]:
    """Return the drafts of ``path`` in ``folder`` (default: its own).

    A draft is being written, or was left by a process that was killed.
    """
    folder = path.parent if folder is None else folder
    if not folder.is_dir():
        return []
    # The random part has no dots: a draft of "a.json" is not one of "a".
    draft = re.compile(re.escape(f".{_stem(path.name)}.") + r"[^.]+" + re.escape(_DRAFT))
    return [folder / name for name in sorted(os.listdir(folder)) if draft.fullmatch(name)]


def is_draft(name: str) -> bool:
    """Return whether a file of this name is a draft."""
    return name.startswith(".") and name.endswith(_DRAFT)


def adopt(
    path: Path,
    audience: Audience,
    draft: Path,
    *,
    before: Callable[[], object] | None = None,
) -> None:
    """Rename a complete draft of ``path``, left by a killed process, to ``path``.

    A release in it may be in a ledger already, and is not drawn a second time. The caller must be
    the only process that writes this file. ``before`` as in :func:`write_with`.
    """
    with parent_of(path) as folder, parent_of(draft) as draft_folder:
        _check_regular(folder, path)
        files = _FILES.get()
        if files is not None and files.holds(folder, path.name):
            files.list_file(path.name, draft_folder, draft.name)
        _appear(draft_folder, draft.name, folder, path.name, audience, before)


def write_bytes(path: str | Path, audience: Audience, content: bytes) -> Path:
    """Write ``content`` to ``path``, completely or not at all."""
    return write_with(path, audience, lambda file: file.write(content))


def write_json(
    path: str | Path,
    audience: Audience,
    value: object,
    *,
    before: Callable[[], object] | None = None,
) -> Path:
    """Write ``value`` as JSON; refuse NaN and infinities, which are not JSON."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    content = (text + "\n").encode()
    return write_with(path, audience, lambda file: file.write(content), before=before)


def is_same_file(first: Path, second: Path) -> bool:
    """Return whether both paths lead to the same file or folder."""
    try:
        return os.path.samefile(first, second)
    except OSError:
        return False


def sync_folder(folder: Path) -> None:
    """Flush renames in ``folder`` to the disk, so that a power cut does not undo them."""
    with Directory.open(folder) as opened:
        opened.sync()


def _refuse_constant(name: str) -> float:
    raise ValueError(f"the constant {name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not abs(number) < math.inf:
        raise ValueError("a number is too large for float64")
    return number


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; refuse a repeated name, of which readers take different values."""
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("an object has a name twice")
    return content


def read_json(path: str | Path) -> Any:
    """Read a JSON file strictly, or raise :class:`InvalidInput` that names it."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidInput(f"path={path!r}: must be the path of a file, a string or a Path.")
    path = Path(path)
    # A pipe would block, and a device has no end.
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InvalidInput(f"{path}: is not a file; name one that can be read again.")
    try:
        text = path.read_text("utf-8")
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_unique_names,
        )
        if "\\u" in text:
            # A lone surrogate, \ud800, is valid JSON, but no file can hold the string.
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path}: is not a whole JSON file ({error}).") from None
