"""Results of a long computation in parts, each of which is computed once.

A part is a Parquet file whose name holds the checksum of its bytes. It is written under a temporary
name, flushed to the disk and renamed (:mod:`expost.files.atomic`), so that a file with the name of
a part is complete. A part whose bytes do not have its checksum was damaged and is computed again.
The store is finished when it has a manifest, which lists every part with its checksum.

    DIR/part-000017-3f2a….parquet  finished parts
    DIR/_manifest.json             the manifest
"""

import hashlib
import io
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from expost.errors import InvalidInput
from expost.files.atomic import is_draft, read_json, sync_folder, write_bytes, write_json
from expost.files.directory import Directory, parent_of
from expost.types import Audience

__all__ = ["MANIFEST", "Part", "PartStore", "check_store", "holds_its_parts", "remove_store"]

_PART = re.compile(r"part-([0-9]{6,})-([0-9a-f]{64})\.parquet")
# Readers of a folder of Parquet files skip names that start with an underscore.
MANIFEST = "_manifest.json"
_FORMAT = "expost-parts/1"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One finished part."""

    index: int
    rows: int
    sha256: str

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"part-{self.index:06d}-{self.sha256}.parquet"


@dataclass(frozen=True, kw_only=True)
class PartStore:
    """A folder of parts. It is pickled: workers write the parts that they compute."""

    folder: Path
    audience: Audience = Audience.CURATOR_ONLY

    @classmethod
    def at(cls, folder: Path, audience: Audience = Audience.CURATOR_ONLY) -> "PartStore":
        """Return the store in this folder, which is created if it does not exist."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(folder=folder, audience=audience)

    def finished(self) -> dict[int, Part]:
        """Return the parts with the right checksum; remove others and the drafts of a crash."""
        parts: dict[int, Part] = {}
        with parent_of(self.folder / MANIFEST) as folder:
            for name in folder.names():
                if is_draft(name):
                    folder.unlink(name)
                    continue
                match = _PART.fullmatch(name)
                if match is None:
                    continue
                with os.fdopen(folder.open_file(name, os.O_RDONLY), "rb") as file:
                    content = file.read()
                index = int(match[1])
                if hashlib.sha256(content).hexdigest() != match[2] or index in parts:
                    folder.unlink(name)
                    continue
                try:
                    rows = pa.parquet.read_metadata(io.BytesIO(content)).num_rows
                except (pa.ArrowException, OSError, ValueError):
                    raise InvalidInput(
                        f"{self.folder / name}: is not a part that expost wrote; remove it, and run"
                        " the same command again with --resume."
                    ) from None
                parts[index] = Part(index=index, rows=rows, sha256=match[2])
        return parts

    def write(self, index: int, table: Any) -> Part:
        """Write ``table`` as the part of this number, and flush it to the disk."""
        sink = io.BytesIO()
        pa.parquet.write_table(table, sink, compression="zstd")
        content = sink.getvalue()
        part = Part(index=index, rows=table.num_rows, sha256=hashlib.sha256(content).hexdigest())
        write_bytes(self.folder / part.name, self.audience, content)
        sync_folder(self.folder)
        return part

    def read(self, part: Part, columns: Sequence[str] | None = None) -> Any:
        """Return the table of a part, or some of its columns; refuse a damaged part."""
        path = self.folder / part.name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise InvalidInput(f"{path}: is missing; run the same command again.") from None
        if hashlib.sha256(content).hexdigest() != part.sha256:
            raise InvalidInput(
                f"{path}: is damaged; remove it, and run the same command again with --resume."
            )
        return pa.parquet.read_table(io.BytesIO(content), columns=columns, use_threads=False)

    def about(self, part: Part) -> Mapping[bytes, bytes]:
        """Return the metadata of a part, without reading its rows."""
        metadata: Mapping[bytes, bytes] = pa.parquet.read_schema(self.folder / part.name).metadata
        return metadata

    def finish(self, parts: Mapping[int, Part], about: Mapping[str, Any]) -> Path:
        """Write the manifest, which makes the parts a finished result; remove other files."""
        missing = [index for index in range(len(parts)) if index not in parts]
        if missing:
            raise ArithmeticError(f"part {missing[0]} is missing")
        names = {part.name for part in parts.values()}
        # Readers of a folder read every file in it.
        with parent_of(self.folder / MANIFEST) as folder:
            check_store(folder)
            for name in folder.names():
                if name not in names:
                    folder.unlink(name)
        value = {
            "format": _FORMAT,
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            **about,
            "rows": sum(part.rows for part in parts.values()),
            "parts": [
                {"file": parts[i].name, "rows": parts[i].rows, "sha256": parts[i].sha256}
                for i in range(len(parts))
            ],
        }
        path = write_json(self.folder / MANIFEST, self.audience, value)
        sync_folder(self.folder)
        return path

    @property
    def is_finished(self) -> bool:
        """Whether the store has a manifest."""
        return (self.folder / MANIFEST).is_file()

    def parts(self) -> tuple[Part, ...]:
        """Return the parts of a finished store, in order, without reading them."""
        path = self.folder / MANIFEST
        if not self.is_finished:
            raise InvalidInput(
                f"{self.folder}: is not finished; run the command that made it again with --resume."
            )
        value = read_json(path)
        try:
            if value["format"] != _FORMAT:
                raise ValueError
            parts = tuple(
                Part(index=index, rows=int(entry["rows"]), sha256=str(entry["sha256"]))
                for index, entry in enumerate(value["parts"])
            )
            if value["rows"] != sum(part.rows for part in parts):
                raise ValueError
            if [part.name for part in parts] != [entry["file"] for entry in value["parts"]]:
                raise ValueError
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidInput(f"{path}: was not written by this version of expost.") from None
        return parts

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield the tables of a finished store, in order, each checked against the manifest."""
        for part in self.parts():
            yield self.read(part, columns)


def check_store(parts: Directory) -> None:
    """Refuse a folder that holds anything but the files of a store."""
    for name in parts.names():
        status = parts.status(name)
        own = name == MANIFEST or _PART.fullmatch(name) or is_draft(name)
        if not own or status is None or not stat.S_ISREG(status.st_mode):
            raise InvalidInput(
                f"{parts.path / name}: was not written by expost; move it, or name another folder."
            )


def holds_its_parts(parts: Directory, path: Path) -> bool:
    """Return whether a finished store in ``path`` holds exactly its parts, unchanged."""
    listed = {part.name: part.sha256 for part in PartStore(folder=path).parts()}
    if {*parts.names()} - {MANIFEST} != {*listed}:
        return False
    for name, checksum in listed.items():
        with os.fdopen(parts.open_file(name, os.O_RDONLY), "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != checksum:
                return False
    return True


def remove_store(folder: Directory, name: str) -> None:
    """Remove a store, its manifest first, so that a crash leaves an unfinished store."""
    with folder.folder(name) as parts:
        check_store(parts)
        parts.unlink(MANIFEST)
        for file in parts.names():
            parts.unlink(file)
    folder.rmdir(name)
