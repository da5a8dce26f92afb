"""Small tables that are worked on in many blocks, and disks that stop at a given moment."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import expost.data._feeds
import expost.jobs.runs
import expost.rows
from expost.files.directory import Directory
from expost.jobs.output import MANIFEST
from expost.jobs.requests import ProfileRequest
from expost.report import parse_json

ROWS = 400
MADE = "2026-01-02 03:04 UTC"


def table(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    age, hours = rng.integers(18, 80, rows), rng.normal(40, 8, rows)
    return pa.table(
        {
            "number": [f"p{row}" for row in range(rows)],
            "age": age.astype(float),
            "hours": hours,
            "city": rng.choice(["Oslo", "Bergen", "Paris"], rows),
            "pay": age / 20 + rng.normal(0, 0.5, rows),
            "income": np.where(age + rng.normal(0, 10, rows) > 50, "high", "low"),
        }
    )


def write(folder, **options):
    path = folder / "people.parquet"
    pyarrow.parquet.write_table(table(**options), path, row_group_size=150)
    return path


def small_blocks(monkeypatch, rows=128):
    """Blocks of few rows, one a part, and a clock that stands still."""
    monkeypatch.setattr(expost.rows, "_BLOCK_ROWS", rows)
    monkeypatch.setattr(expost.data._feeds, "_BLOCKS_AN_ITEM", 1)
    monkeypatch.setattr(expost.jobs.runs, "made_now", lambda: MADE)


def job(source, out, *, engine="local:2", resume=False, memory=None, **options):
    given = {"target": "income", "id_column": "number", "seed": 1, "drop": ("pay",)}
    if "model" not in options:
        given |= {"mechanism": "output", "noise": "laplace"}
        # One table serves many tests: each has a ledger of its own.
        given |= {"ledger": out / "ledger.CURATOR-ONLY.json"}
    given |= {"engine": engine, "resume": resume, "memory": memory} | options
    return ProfileRequest(source=str(source), out=out, name="people", **given)


def contents(folder):
    """The bytes of every file by its name, but for the ledger, which has dates and a salt.

    The next command of a page names the folder: it is left out, and so is the checksum with it.
    """
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(folder)): _unplaced(path, folder)
        for path in files
        if "ledger" not in path.name and path.name != MANIFEST
    }


def _unplaced(path, folder):
    content = path.read_bytes()
    if path.name.startswith("summary"):
        parse_json(content)
        content, _, _ = content.rpartition(b',"sha256":')
    return content.replace(str(folder).encode(), b"FOLDER")


class Killed(BaseException):
    """The process is no more."""


class Disk:
    """Lets nothing reach the disk any more from the moment that a file appears, or would have.

    ``path_part``  how the path ends, or a part of it;  ``after`` whether it still appears.
    """

    def __init__(self, monkeypatch, path_part, *, after):
        self.path_part, self.after, self.dead = path_part, after, False
        replace = Directory.replace
        monkeypatch.setattr(
            Directory,
            "replace",
            self._appear(replace, lambda source, name, folder, final: folder.path / final),
        )
        monkeypatch.setattr(os, "link", self._appear(os.link, lambda source, target: target))
        for owner, name in (
            (Directory, "unlink"),
            (Directory, "rmdir"),
            (Path, "unlink"),
            (Path, "rmdir"),
        ):
            monkeypatch.setattr(owner, name, self._unless_dead(getattr(owner, name)))
        monkeypatch.setattr(Directory, "create", self._refuse(Directory.create))

    def _appear(self, real, target_of):
        def appear(*arguments):
            if self.dead:
                raise Killed
            if self.path_part in str(target_of(*arguments)):
                if self.after:
                    real(*arguments)
                self.dead = True
                raise Killed
            return real(*arguments)

        return appear

    def _unless_dead(self, real):
        return lambda *arguments, **options: None if self.dead else real(*arguments, **options)

    def _refuse(self, real):
        def refuse(*arguments, **options):
            if self.dead:
                raise Killed
            return real(*arguments, **options)

        return refuse
