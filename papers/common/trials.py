"""Independent trials that can be interrupted: seeds first, results kept in a file.

Trial i depends on the entropy and on i alone, so that neither the number of workers nor an
interruption changes it, and a longer run begins with a shorter one's trials.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.errors import InvalidInput
from expost.files.atomic import BROKEN_NPZ, write_with
from expost.types import Audience
from papers.common.processes import run_each

__all__ = ["Trials"]

_FORMAT = "expost-trials/1"
# Trials that a worker makes before it reports, at most: so many are waited for at an interruption.
_BLOCK = 4
# Seconds between two writings of the checkpoint, at least.
_PAUSE = 5.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Trials:
    """``count`` calls of ``work(number, seed)``, each of which gives numbers by name.

    ``digest``   of what the work does: a checkpoint of other work is refused.
    ``entropy``  of the seeds; None: the checkpoint's, or the operating system's.
    """

    work: Callable[[int, np.random.SeedSequence], dict[str, Any]]
    count: int
    fields: tuple[str, ...]
    workers: int
    checkpoint: Path | None
    digest: str
    entropy: int | None
    progress: Callable[[int, int], None]

    def run(self) -> dict[str, NDArray[np.float64]]:
        """Return (count, …) the numbers of every trial, by name."""
        records, entropy = self._kept()
        missing = [number for number in range(self.count) if number not in records]
        self.progress(self.count - len(missing), self.count)
        size = min(_BLOCK, max(1, -(-len(missing) // (4 * self.workers))))
        blocks = [missing[start : start + size] for start in range(0, len(missing), size)]
        written = time.monotonic()

        def done(block: int, results: list[dict[str, Any]]) -> None:
            nonlocal written
            records.update(zip(blocks[block], results, strict=True))
            if time.monotonic() - written > _PAUSE:
                self._keep(records, entropy)
                written = time.monotonic()
            self.progress(sum(number in records for number in range(self.count)), self.count)

        try:
            if blocks:
                run_each(_Block(self.work, entropy), blocks, workers=self.workers, done=done)
        finally:
            if blocks:
                self._keep(records, entropy)
        return {
            name: np.array(
                [records[number][name] for number in range(self.count)], dtype=np.float64
            )
            for name in self.fields
        }

    def _keep(self, records: dict[int, dict[str, Any]], entropy: int) -> None:
        if self.checkpoint is None or not records:
            return
        numbers = sorted(records)
        arrays: dict[str, Any] = {
            name: np.array([records[number][name] for number in numbers]) for name in self.fields
        }
        try:
            write_with(
                self.checkpoint,
                Audience.CURATOR_ONLY,
                lambda file: np.savez_compressed(
                    file,
                    format=_FORMAT,
                    digest=self.digest,
                    entropy=str(entropy),
                    numbers=np.array(numbers),
                    **arrays,
                ),
            )
        except OSError as error:
            raise InvalidInput(
                f"checkpoint={str(self.checkpoint)!r}: cannot be written ({error.strerror}); name a"
                " file in a folder that exists and can be written to."
            ) from None

    def _kept(self) -> tuple[dict[int, dict[str, Any]], int]:
        """Finished trials by their numbers, and the entropy."""
        fresh = secrets.randbits(128) if self.entropy is None else self.entropy
        if self.checkpoint is None or not self.checkpoint.exists():
            return {}, fresh
        where = f"checkpoint={str(self.checkpoint)!r}"
        try:
            with self.checkpoint.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                kept = {name: file[name] for name in file.files}
            numbers = kept["numbers"].tolist()
            columns = {name: kept[name] for name in self.fields}
            format_, digest, entropy = str(kept["format"]), str(kept["digest"]), kept["entropy"]
        except (OSError, *BROKEN_NPZ):
            raise InvalidInput(f"{where}: is not a file of trials; name another one.") from None
        same_seed = self.entropy is None or int(entropy) == self.entropy
        if format_ != _FORMAT or digest != self.digest or not same_seed:
            raise InvalidInput(
                f"{where}: holds trials with other data, settings or another random_state; delete"
                " it, or name another file."
            )
        records = {
            number: {name: values[index] for name, values in columns.items()}
            for index, number in enumerate(numbers)
        }
        return records, int(entropy)


@dataclass(frozen=True)
class _Block:
    """The work of a worker: the trials of these numbers."""

    work: Callable[[int, np.random.SeedSequence], dict[str, Any]]
    entropy: int

    def __call__(self, numbers: list[int]) -> list[dict[str, Any]]:
        return [
            self.work(number, np.random.SeedSequence(self.entropy, spawn_key=(number,)))
            for number in numbers
        ]
