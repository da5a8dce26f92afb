"""A folder with one small file a reference, so that a long audit can be interrupted.

    settings.json       format, the digest of data and settings, the entropy of the seeds
    reference-0007.npz  what reference 7 says of every row

Each file is whole or absent. A folder of other data or settings is refused, and so is a file that
was put there from one; a file that cannot be read, or is of another shape, is made again.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.errors import InvalidInput
from expost.files.atomic import BROKEN_NPZ, read_json, write_json, write_with
from expost.types import Audience

__all__ = ["Checkpoint"]

_FORMAT = "expost-references/1"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """``folder`` None keeps nothing."""

    folder: Path | None
    digest: str
    entropy: int

    @classmethod
    def open(cls, folder: str | Path | None, digest: str, entropy: int | None) -> "Checkpoint":
        """The folder, made or found; ``entropy`` None is what is found there, or fresh."""
        fresh = secrets.randbits(128) if entropy is None else entropy
        if folder is None:
            return cls(folder=None, digest=digest, entropy=fresh)
        folder = Path(folder)
        where, settings = f"checkpoint={str(folder)!r}", folder / "settings.json"
        if settings.exists():
            kept = _read_settings(settings, where)
            if kept["digest"] != digest or entropy not in (None, int(kept["entropy"])):
                raise InvalidInput(
                    f"{where}: holds references of other data, settings or another random_state;"
                    " delete it, or name another folder."
                )
            return cls(folder=folder, digest=digest, entropy=int(kept["entropy"]))
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A crash may have left a beginning of a file, whose name starts with a dot.
            if any(not path.name.startswith(".") for path in folder.iterdir()):
                raise InvalidInput(f"{where}: holds other files; name a folder that is empty.")
            content = {"format": _FORMAT, "digest": digest, "entropy": str(fresh)}
            write_json(settings, Audience.FAIL, content)
        except OSError as error:
            raise InvalidInput(f"{where}: cannot be written to ({error.strerror}).") from None
        return cls(folder=folder, digest=digest, entropy=fresh)

    def keep(self, number: int, arrays: dict[str, Any]) -> None:
        """Write what reference ``number`` says."""
        if self.folder is None:
            return
        path = self._path(number)
        try:
            write_with(
                path,
                Audience.FAIL,
                lambda file: np.savez(file, digest=self._mark(number), **arrays),
            )
        except OSError as error:
            raise InvalidInput(f"{path}: cannot be written ({error.strerror}).") from None

    def kept(
        self, number: int, shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, NDArray[np.float32]] | None:
        """What :meth:`keep` wrote, or None where it is to be made (again)."""
        if self.folder is None or not self._path(number).exists():
            return None
        path = self._path(number)
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                mark = str(file["digest"])
                arrays = {name: file[name] for name in shapes}
        except (OSError, *BROKEN_NPZ):
            return None
        if mark != self._mark(number):
            raise InvalidInput(f"{path}: is a reference of another audit; delete it.")
        whole = all(
            found.shape == shapes[name] and found.dtype == np.float32 and np.all(np.isfinite(found))
            for name, found in arrays.items()
        )
        return arrays if whole else None

    def _path(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"reference-{number:04d}.npz"

    def _mark(self, number: int) -> str:
        """So that no file is taken for another's."""
        return f"{_FORMAT} {self.digest} {self.entropy} {number}"


def _read_settings(path: Path, where: str) -> dict[str, str]:
    kept = read_json(path)
    fields = ("format", "digest", "entropy")
    if (
        not isinstance(kept, dict)
        or any(not isinstance(kept.get(name), str) for name in fields)
        or kept["format"] != _FORMAT
        or not kept["entropy"].isdecimal()
    ):
        raise InvalidInput(f"{where}: its settings.json is not of references; name another folder.")
    return kept
