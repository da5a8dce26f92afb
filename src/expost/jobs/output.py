"""The folder of a command's results: its names, and what is refused before any work."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path

from expost.errors import InvalidInput
from expost.files.atomic import drafts
from expost.files.directory import RUN
from expost.types import Audience

__all__ = [
    "CONTINUE",
    "MANIFEST",
    "NOTHING_LEFT",
    "RELEASES",
    "REPORTS",
    "RESULTS",
    "STATE",
    "begun",
    "check_folder",
    "check_page_folder",
    "check_place",
    "default_folder",
    "holds_anything",
    "made_now",
    "nothing_to_resume",
    "writing",
]

# The list of files that expost wrote there, and the file that makes a run unfinished.
MANIFEST, STATE = Audience.CURATOR_ONLY.file_name(".expost-manifest", "json"), "state.json"
# The remedies where the disk is full: of a run that can be resumed, and of one that cannot.
CONTINUE = "progress was saved: free some space, and continue with --resume"
NOTHING_LEFT = "nothing is left of this run; free some space, or name another folder"
# What was drawn: it may be replaced by another run, and is never removed. A report that is not
# public has a name that says so.
REPORTS = ("report.json", Audience.NEEDS_REVIEW.file_name("report", "json"))
RELEASES = ("model.json", *REPORTS)
_STEMS = (
    ("encoding", "json"),
    ("profile", "json"),
    ("profile", "parquet"),
    ("epsilon", "json"),
    ("epsilon", "parquet"),
    ("transition", "png"),
    ("report", "html"),
    ("report", "md"),
    ("summary", "json"),
    ("audit", "json"),
    ("audit", "parquet"),
    ("figures", "json"),
    ("roc", "png"),
    ("exposure", "png"),
    ("comparison", "json"),
    ("comparison", "parquet"),
)
# The files that a command may write, beside releases.
RESULTS = tuple(
    audience.file_name(*names)
    for audience in (Audience.PUBLIC, Audience.CURATOR_ONLY)
    for names in _STEMS
)


def made_now() -> str:
    """Return the date that a page is given; renderers do not read the clock."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def check_folder(out: Path, *, force: bool, lost: str = "") -> None:
    """Refuse a folder that cannot be written to, or that holds another run, before any work.

    ``lost`` says what writing over an earlier run would cost.
    """
    nearest = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not nearest.is_dir():
        raise InvalidInput(f"out={str(out)!r}: {nearest} is a file; name a folder.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InvalidInput(
            f"out={str(out)!r}: {nearest} cannot be written to; name another folder, or change its"
            " mode."
        )
    if holds_anything(out) and not force:
        raise InvalidInput(
            f"out={str(out)!r}: is not empty; name another folder, or pass --force to write over"
            f" an earlier run{lost}."
        )


def holds_anything(out: Path) -> bool:
    """Whether a folder holds anything but the remains of a run that has no state, and its list."""
    if not out.is_dir():
        return False
    lists = {MANIFEST, *(path.name for path in drafts(out / MANIFEST))}
    remains = [out / name for name in os.listdir(out) if name not in lists]
    return any(path.name != RUN or path.is_symlink() or begun(out) for path in remains)


def default_folder(command: str, *, resume: bool) -> Path:
    """Return the folder of a command that names none: ``expost-<command>``, ``-2``, ``-3``, …

    It is a new folder of the current one, or with ``resume`` the only one with an unfinished run.
    """
    stem = f"expost-{command}"
    if resume:
        pattern = re.compile(rf"{re.escape(stem)}(-[0-9]+)?")
        folders = [Path(name) for name in os.listdir() if pattern.fullmatch(name)]
        unfinished = sorted((path for path in folders if begun(path)), key=_number)
        if len(unfinished) == 1:
            return unfinished[0]
        if not unfinished:
            raise InvalidInput(
                f"--resume: no folder {stem} or {stem}-2, … here holds an unfinished run; name its"
                " folder with --out, or leave --resume out."
            )
        listed = ", ".join(map(str, unfinished))
        raise InvalidInput(f"--resume: {listed} hold unfinished runs; name one with --out.")
    names = chain([stem], (f"{stem}-{number}" for number in count(2)))
    return Path(next(name for name in names if not os.path.lexists(name)))


def _number(path: Path) -> int:
    digits = path.name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 1


def begun(out: Path) -> bool:
    """Whether a run in this folder is unfinished."""
    folder = out / RUN
    return not folder.is_symlink() and (folder / STATE).exists()


def check_page_folder(out: Path, *, force: bool) -> None:
    """Check a folder that gets a page alone, and no release: it must not hold one."""
    check_folder(out, force=force)
    for name in RELEASES:
        if (out / name).exists():
            raise InvalidInput(
                f"out={str(out)!r}: holds {name}, whose own page would be lost; name a folder for"
                " this page alone."
            )


def check_place(out: Path, *, resume: bool, force: bool, lost: str = "") -> None:
    """Refuse a folder that a run must not write to, before any work.

    ``lost`` says what writing over an earlier run would cost.
    """
    if begun(out):
        if resume:
            return
        if not force:
            raise InvalidInput(
                f"out={str(out)!r}: a run was begun here and is not finished; pass --resume to"
                f" continue it, or --force to throw it away{lost}."
            )
    elif resume and not force and holds_anything(out) and not (out / MANIFEST).exists():
        raise nothing_to_resume(out)
    check_folder(out, force=force or resume, lost=lost)


def nothing_to_resume(out: Path) -> InvalidInput:
    """Return the error of ``--resume`` where no run is unfinished."""
    return InvalidInput(
        f"out={str(out)!r}: holds no unfinished run; leave --resume out, and name another folder."
    )


@contextmanager
def writing(out: Path, remedy: str) -> Iterator[None]:
    """Turn an error of the disk into a sentence that says what to do."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(
            f"out={str(out)!r}: cannot be written to ({error.strerror or error}); {remedy}."
        ) from None
