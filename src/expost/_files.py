"""Files that are whole or absent, and JSON that is read strictly.

A file is written under a temporary name in its own folder, flushed to the disk and renamed, so
that a crash leaves the old file or the new one, never half of either. A file that is not marked
``pass`` is readable by its owner alone.
"""

import json
import math
import os
import re
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from expost.errors import InvalidInput
from expost.types import Audience

__all__ = [
    "BROKEN_NPZ",
    "adopt",
    "drafts",
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


def write_with(
    path: Path,
    audience: Audience,
    write: Callable[[IO[bytes]], object],
    *,
    before: Callable[[], object] | None = None,
) -> Path:
    """Let ``write`` fill the file at ``path``: it appears whole, with its final mode, or not.

    ``before`` is called when all of it is on the disk, and before it appears under its name; if
    that fails, the file does not appear.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_DRAFT)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        _appear(Path(name), path, audience, before)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def _appear(
    draft: Path, path: Path, audience: Audience, before: Callable[[], object] | None
) -> None:
    if before is not None:
        before()
    os.chmod(draft, 0o644 if audience is Audience.PASS else 0o600)
    os.replace(draft, path)


def drafts(path: Path) -> list[Path]:
    """What is being written as ``path``, or was when a process was killed."""
    if not path.parent.is_dir():
        return []
    # What `tempfile` puts between has no dots: those of "a.json" are none of "a".
    draft = re.compile(re.escape(f".{path.name}.") + r"[^.]+" + re.escape(_DRAFT))
    return [path.parent / one for one in sorted(os.listdir(path.parent)) if draft.fullmatch(one)]


def adopt(
    path: Path,
    audience: Audience,
    is_whole: Callable[[Path], bool],
    *,
    before: Callable[[], object] | None = None,
) -> bool:
    """Let a whole draft of ``path`` that a killed process left appear; all others are removed.

    So that what was drawn, and may be listed already, is not drawn a second time. Only for whoever
    alone writes this file: the draft of another process would be taken from it. ``before`` as in
    :func:`write_with`. Where ``path`` is there, that is what was drawn. Says whether one appeared.
    """
    appeared = False
    for draft in drafts(path):
        if not path.exists() and is_whole(draft):
            _appear(draft, path, audience, before)
            appeared = True
        else:
            draft.unlink(missing_ok=True)
    return appeared


def write_bytes(path: Path, audience: Audience, content: bytes) -> Path:
    """Write ``content`` to ``path``, whole or not at all."""
    return write_with(path, audience, lambda file: file.write(content))


def write_json(
    path: Path, audience: Audience, value: object, *, before: Callable[[], object] | None = None
) -> Path:
    """Write ``value`` as JSON; NaN and infinities are refused, they are not JSON."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    content = (text + "\n").encode()
    return write_with(path, audience, lambda file: file.write(content), before=before)


def settle(folder: Path) -> None:
    """Bring renames in ``folder`` to the disk: a power cut must not undo what was seen."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
