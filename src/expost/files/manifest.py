"""The manifest of a folder: the SHA-256 of each of its files, in a sealed document.

The manifest shows that files are the ones that were listed. It is no signature: a person who can
replace a file can write another manifest too. Keep the checksum of the manifest elsewhere.

A checksum is an exact function of a file. So the manifest of curator-only files is curator-only:
an attacker who knows all other rows could make the file of each candidate and compare.

The manifest may hold commitments to results elsewhere, SHA-256(salt ∥ content) with a secret salt
of 32 bytes for each. Without the salt a commitment reveals nothing about the content. The salts and
the paths are in a curator-only file of the folder.
"""

import hashlib
import os
import re
import secrets
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Self

from expost.errors import InvalidInput
from expost.files.atomic import write_json
from expost.files.directory import Directory, kind_of
from expost.files.sealed import Sealed
from expost.types import Audience

__all__ = [
    "NAMES",
    "FileStatus",
    "Manifest",
    "Salts",
    "manifest_in",
    "verify_manifest",
    "write_manifest",
]

# The names of the manifest, for each audience.
NAMES = tuple(
    audience.file_name("manifest", "json") for audience in (Audience.PUBLIC, Audience.CURATOR_ONLY)
)
# Entries of expost that list or lock a folder while it is written are not results.
_OWN = (
    ".expost-manifest.CURATOR-ONLY.json",
    ".expost-run",
    Audience.CURATOR_ONLY.file_name("salts", "json"),
)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_CURATOR = "CURATOR-ONLY"


@dataclass(frozen=True, kw_only=True)
class Manifest(Sealed):
    """The checksums of files in a folder.

    Parameters
    ----------
    files : dict[str, str]
        The SHA-256 of each file, in hexadecimal, by its path relative to the folder.
    results : dict[str, str]
        The commitment to each result that the files were made from, by its kind and number.
    """

    files: dict[str, str]
    results: dict[str, str] = field(default_factory=dict)

    FORMAT = "expost-checksums/1"
    NOUN = "a manifest"

    def __post_init__(self) -> None:
        if not self.files:
            raise InvalidInput("files: a manifest lists at least one file.")
        for name, digest in self.files.items():
            _check_name(name)
            _check_digest("files", name, digest)
        for name, digest in self.results.items():
            _check_digest("results", name, digest)

    @property
    def audience(self) -> Audience:
        """Public if every file is, by its name; else curator-only."""
        private = any(_CURATOR in name for name in self.files)
        return Audience.CURATOR_ONLY if private else Audience.PUBLIC

    def content(self) -> dict[str, Any]:
        """Return the files and the commitments by name, in order."""
        results = {"results": dict(sorted(self.results.items()))} if self.results else {}
        return {"files": dict(sorted(self.files.items())), **results}

    @classmethod
    def from_content(cls, value: dict[str, Any]) -> Self:
        """Return the manifest with these files."""
        files, results = value["files"], value.get("results", {})
        for name, listed in (("files", files), ("results", results)):
            if not isinstance(listed, dict):
                raise InvalidInput(f"{name}: must be an object.")
        return cls(files=files, results=results)


@dataclass(frozen=True, kw_only=True)
class Salts(Sealed):
    """What opens the commitments of a manifest. Curator-only.

    Parameters
    ----------
    salts, paths : dict[str, str]
        The salt of each result, in hexadecimal, and its path when the manifest was written.
    """

    salts: dict[str, str]
    paths: dict[str, str]

    FORMAT = "expost-salts/1"
    NOUN = "the salts of a manifest"
    NAME = Audience.CURATOR_ONLY.file_name("salts", "json")

    def __post_init__(self) -> None:
        if self.salts.keys() != self.paths.keys():
            raise InvalidInput("paths: must name the same results as salts.")
        for name, salt in self.salts.items():
            _check_digest("salts", name, salt)
            if not isinstance(self.paths[name], str):
                raise InvalidInput(f"paths: {name!r} must be a string.")

    @property
    def audience(self) -> Audience:
        """Curator-only: a salt makes a commitment a checksum of the result."""
        return Audience.CURATOR_ONLY

    def content(self) -> dict[str, Any]:
        """Return the salts and the paths."""
        return {"salts": self.salts, "paths": self.paths}

    @classmethod
    def from_content(cls, value: dict[str, Any]) -> Self:
        """Return the salts."""
        if not all(isinstance(value[name], dict) for name in ("salts", "paths")):
            raise InvalidInput("salts, paths: must be objects.")
        return cls(salts=value["salts"], paths=value["paths"])

    def commitment(self, name: str, path: Path) -> str | None:
        """Return SHA-256(salt ∥ content) of a file; None if there is no file."""
        if not path.is_file():
            return None
        digest = hashlib.sha256(bytes.fromhex(self.salts[name]))
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()

    def status(self, name: str, commitment: str, moved: Iterable[Path]) -> str:
        """Return "ok", "changed" or "missing" of a result, at its path or among ``moved`` files."""
        path, moved = Path(self.paths[name]), list(moved)
        if any(self.commitment(name, each) == commitment for each in (path, *moved)):
            return "ok"
        is_there = path.is_file() or any(each.name == path.name for each in moved)
        return "changed" if is_there else "missing"


@dataclass(frozen=True, kw_only=True)
class FileStatus:
    """A file of a folder, compared with the manifest.

    Parameters
    ----------
    name : str
        The path relative to the folder, or the kind and number of a result.
    status : str
        "ok", "changed", "missing", "additional": not in the manifest; or "not checked": a result
        whose salt is not there.
    """

    name: str
    status: str


def write_manifest(
    folder: str | Path,
    files: Iterable[str | Path],
    *,
    results: Iterable[tuple[str, Path]] = (),
) -> Path:
    """Write the manifest of files in a folder.

    Parameters
    ----------
    folder : str | Path
        The folder.
    files : Iterable[str | Path]
        The files to list, relative to the folder or below it.
    results : Iterable[tuple[str, Path]], default=()
        The kind and the path of each result to commit to; the salts are in ``Salts.NAME``.

    Returns
    -------
    Path
        The manifest: manifest.json, or manifest.CURATOR-ONLY.json if a file is curator-only.

    Raises
    ------
    InvalidInput
        If a file is outside the folder, is a link or is not a regular file.
    """
    folder = Path(folder)
    names = sorted({_relative(folder, Path(file)) for file in files})
    digests: dict[str, str] = {}
    with _opened(folder) as opened:
        for name in names:
            digest = _digest(opened, name)
            if digest is None:
                raise InvalidInput(f"{folder / name}: does not exist; name files that do.")
            digests[name] = digest
    paths = dict(_numbered(results))
    salts = Salts(
        salts={name: secrets.token_hex(32) for name in paths},
        paths={name: str(each.resolve()) for name, each in paths.items()},
    )
    commitments = {}
    for name, each in paths.items():
        commitment = salts.commitment(name, each)
        if commitment is None:
            raise InvalidInput(f"{each}: is not a file; name results that are.")
        commitments[name] = commitment
    if paths:
        write_json(folder / Salts.NAME, salts.audience, salts.to_json())
    manifest = Manifest(files=digests, results=commitments)
    path = folder / manifest.audience.file_name("manifest", "json")
    return write_json(path, manifest.audience, manifest.to_json())


def _numbered(results: Iterable[tuple[str, Path]]) -> Iterator[tuple[str, Path]]:
    """Yield each result with a name that says nothing but its kind: "audit 1"."""
    counts: Counter[str] = Counter()
    for kind, path in results:
        counts[kind] += 1
        yield f"{kind} {counts[kind]}", path


def manifest_in(folder: str | Path) -> Path:
    """Return the manifest of a folder.

    Parameters
    ----------
    folder : str | Path
        The folder.

    Returns
    -------
    Path
        The manifest.

    Raises
    ------
    InvalidInput
        If the folder has none, or two.
    """
    folder = Path(folder)
    present = [folder / name for name in NAMES if os.path.lexists(folder / name)]
    if len(present) != 1:
        number = "no manifest" if not present else "two manifests"
        raise InvalidInput(f"{folder}: holds {number} ({' or '.join(NAMES)}); name another folder.")
    return present[0]


def verify_manifest(
    folder: str | Path, results: Iterable[str | Path] = ()
) -> tuple[FileStatus, ...]:
    """Compare the files of a folder, and the results that they were made from, with its manifest.

    Parameters
    ----------
    folder : str | Path
        The folder.
    results : Iterable[str | Path], default=()
        Results that were moved, or their folders.

    Returns
    -------
    tuple[FileStatus, ...]
        Each file of the manifest or of the folder, by name. A link is never followed: a listed
        file that is a link counts as changed.

    Raises
    ------
    InvalidInput
        If the folder has no manifest, or the manifest was edited.
    """
    folder = Path(folder)
    path = manifest_in(folder)
    if path.is_symlink():
        raise InvalidInput(f"{path}: is a symbolic link; name a folder with its own manifest.")
    manifest = Manifest.load(path)
    with _opened(folder) as opened:
        statuses = {name: _status(opened, name, known) for name, known in manifest.files.items()}
        for name in _walk(opened, ""):
            if name not in statuses and name != path.name and name not in _OWN:
                statuses[name] = "additional"
    files = [FileStatus(name=name, status=statuses[name]) for name in sorted(statuses)]
    return (*files, *_results(folder, manifest, [Path(each) for each in results]))


def _results(folder: Path, manifest: Manifest, moved: Iterable[Path]) -> Iterator[FileStatus]:
    """Yield the status of each result that the manifest commits to."""
    path = folder / Salts.NAME
    salts = Salts.load(path) if manifest.results and path.exists() else None
    files = [
        file for each in moved for file in (sorted(each.iterdir()) if each.is_dir() else [each])
    ]
    for name, commitment in sorted(manifest.results.items()):
        known = salts is not None and name in salts.salts
        status = salts.status(name, commitment, files) if salts and known else "not checked"
        yield FileStatus(name=name, status=status)


def _status(opened: Directory, name: str, known: str) -> str:
    try:
        digest = _digest(opened, name)
    except InvalidInput:
        # A link, a folder or a device took its place.
        return "changed"
    if digest is None:
        return "missing"
    return "ok" if digest == known else "changed"


def _check_digest(field_name: str, name: str, digest: Any) -> None:
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise InvalidInput(f"{field_name}: {name!r} must have 64 hexadecimal digits.")


def _check_name(name: Any) -> None:
    """Refuse a path that leaves the folder, or that is not written as expost writes it."""
    parts = name.split("/") if isinstance(name, str) else [""]
    bad = {"", ".", ".."} & {*parts} or any({"\\", "\0"} & {*part} for part in parts)
    if bad or PurePosixPath(name).is_absolute() or name in NAMES:
        raise InvalidInput(f"files: {name!r} must be the relative path of a file in the folder.")


def _relative(folder: Path, file: Path) -> str:
    if file.is_absolute() or ".." in file.parts:
        try:
            file = file.parent.resolve().relative_to(folder.resolve()) / file.name
        except ValueError:
            raise InvalidInput(f"{file}: is outside {folder}; name files in it.") from None
    name = file.as_posix()
    _check_name(name)
    return name


@contextmanager
def _opened(folder: Path) -> Iterator[Directory]:
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: is not a folder; name one with a manifest.")
    with Directory.open(folder) as opened:
        yield opened


def _digest(opened: Directory, name: str) -> str | None:
    """Return the SHA-256 of a regular file, None if there is none; refuse links on the way."""
    *folders, last = name.split("/")
    with ExitStack() as stack:
        for part in folders:
            if opened.status(part) is None:
                return None
            opened = stack.enter_context(opened.folder(part, own=False))
        status = opened.status(last)
        if status is None:
            return None
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInput(
                f"{opened.path / last}: is {kind_of(status)}; a manifest lists regular files."
            )
        with os.fdopen(opened.open_file(last, os.O_RDONLY), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def _walk(opened: Directory, prefix: str) -> Iterator[str]:
    """Yield every entry below a folder that is not a folder itself; links are not followed."""
    for name in opened.names():
        status = opened.status(name)
        if status is None or prefix + name in _OWN:
            continue
        if stat.S_ISDIR(status.st_mode):
            with opened.folder(name, own=False) as inner:
                yield from _walk(inner, f"{prefix}{name}/")
        else:
            yield prefix + name
