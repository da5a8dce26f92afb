"""Results of a long computation, part by part: what is finished stays finished.

A part is a Parquet file whose name holds the checksum of its bytes. It is written under a temporary
name, flushed to the disk and renamed (:mod:`expost._files`), so that a file with a part's name is
that part, whole; one whose bytes do not fit its name is a damaged disk's, and is made again. The
whole is finished when its manifest is there, which lists every part with its checksum.

    DIR/part-000017-3f2a….parquet  finished parts
    DIR/_manifest.json             all of them
"""

import hashlib
import io
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from expost._files import read_json, write_bytes, write_json
from expost.errors import InvalidInput
from expost.types import Audience

__all__ = ["Part", "PartStore"]

_PART = re.compile(r"part-([0-9]{6,})-([0-9a-f]{64})\.parquet")
# Readers of a folder of Parquet files pass over names that begin so.
_MANIFEST = "_manifest.json"
_FORMAT = "expost-parts/1"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One finished part."""

    index: int
    rows: int
    sha256: str

    @property
    def name(self) -> str:
        """Its file."""
        return f"part-{self.index:06d}-{self.sha256}.parquet"


@dataclass(frozen=True, kw_only=True)
class PartStore:
    """A folder of parts. Small enough to travel: workers write the parts that they make."""

    folder: Path
    audience: Audience = Audience.FAIL

    @classmethod
    def at(cls, folder: Path, audience: Audience = Audience.FAIL) -> "PartStore":
        """The store in this folder, which is made if it is not there."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(folder=folder, audience=audience)

    def finished(self) -> dict[int, Part]:
        """The parts whose bytes fit their names; leftovers of a crash are removed."""
        found: dict[int, Part] = {}
        for path in sorted(self.folder.iterdir()):
            if path.name.startswith(".") and path.name.endswith(".part"):
                path.unlink(missing_ok=True)
                continue
            match = _PART.fullmatch(path.name)
            if match is None:
                continue
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != match[2]:
                path.unlink(missing_ok=True)
                continue
            rows = pa.parquet.read_metadata(io.BytesIO(content)).num_rows
            part = Part(index=int(match[1]), rows=rows, sha256=match[2])
            found[part.index] = part
        return found

    def write(self, index: int, table: Any) -> Part:
        """Make ``table`` the part of this number; it is on the disk when this returns."""
        sink = io.BytesIO()
        pa.parquet.write_table(table, sink, compression="zstd")
        content = sink.getvalue()
        part = Part(index=index, rows=table.num_rows, sha256=hashlib.sha256(content).hexdigest())
        write_bytes(self.folder / part.name, self.audience, content)
        _flush(self.folder)
        return part

    def read(self, part: Part) -> Any:
        """The table of a part; a damaged one is refused."""
        content = (self.folder / part.name).read_bytes()
        if hashlib.sha256(content).hexdigest() != part.sha256:
            raise InvalidInput(
                f"{self.folder / part.name}: is damaged; remove it, and pass --resume."
            )
        return pa.parquet.read_table(io.BytesIO(content))

    def finish(self, parts: Mapping[int, Part], about: Mapping[str, Any]) -> Path:
        """Write the manifest: from now on the parts are a whole result."""
        missing = [index for index in range(len(parts)) if index not in parts]
        if missing:
            raise ArithmeticError(f"part {missing[0]} is missing")
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
        path = write_json(self.folder / _MANIFEST, self.audience, value)
        _flush(self.folder)
        return path

    def tables(self) -> Iterator[Any]:
        """The tables of a finished store, in order, each checked against the manifest."""
        manifest = self.folder / _MANIFEST
        if not manifest.exists():
            raise InvalidInput(
                f"{self.folder}: is not finished; run the same command again with --resume."
            )
        for index, entry in enumerate(read_json(manifest)["parts"]):
            yield self.read(Part(index=index, rows=entry["rows"], sha256=entry["sha256"]))


def _flush(folder: Path) -> None:
    """Let a rename survive a power cut too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
