"""The folder of a command's results: its file names, and checks before any work."""

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
    "check_folder",
    "check_page_folder",
    "check_place",
    "default_folder",
    "holds_anything",
    "is_unfinished",
    "made_now",
    "nothing_to_resume",
    "writing",
]

# The list of files that expost wrote there, and the file that makes a run unfinished.
MANIFEST, STATE = Audience.CURATOR_ONLY.file_name(".expost-manifest", "json"), "state.json"
# The remedies where the disk is full: of a run that can be resumed, and of one that cannot.
CONTINUE = "progress was saved: free some space, and continue with --resume"
NOTHING_LEFT = "nothing is left of this run; free some space, or name another folder"
# Releases may be replaced by another run, and are never removed.
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
    ("certificate", "json"),
    ("certificate", "html"),
    ("certificate", "md"),
    ("erasure", "json"),
    ("card", "md"),
    ("deployment", "yaml"),
    ("dossier", "html"),
    ("dossier", "md"),
    ("dossier", "json"),
    ("result-model", "json"),
    ("result-report", "json"),
    ("result-certificate", "json"),
    ("manifest", "json"),
    ("salts", "json"),
)
# The files other than releases that a command may write.
RESULTS = tuple(
    audience.file_name(*names)
    for audience in (Audience.PUBLIC, Audience.CURATOR_ONLY)
    for names in _STEMS
)


def made_now() -> str:
    """Return the date for a page; renderers do not read the clock."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def check_folder(out: Path, *, force: bool, lost: str = "") -> None:
    """Refuse a folder that cannot be written to, or that holds another run, before any work.

    Parameters
    ----------
    lost : str, default=""
        A remark on what overwriting an earlier run loses.
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
    """Return whether a folder holds anything but its list and a run without state."""
    if not out.is_dir():
        return False
    lists = {MANIFEST, *(path.name for path in drafts(out / MANIFEST))}
    remains = [out / name for name in os.listdir(out) if name not in lists]
    return any(path.name != RUN or path.is_symlink() or is_unfinished(out) for path in remains)


def default_folder(command: str, *, resume: bool) -> Path:
    """Return the default folder of a command: ``expost-<command>``, ``-2``, ``-3`` and so on.

    It is new, or with ``resume`` the only one with an unfinished run.
    """
    stem = f"expost-{command}"
    if resume:
        pattern = re.compile(rf"{re.escape(stem)}(-[0-9]+)?")
        folders = [Path(name) for name in os.listdir() if pattern.fullmatch(name)]
        unfinished = sorted((path for path in folders if is_unfinished(path)), key=_number)
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


def is_unfinished(out: Path) -> bool:
    """Return whether a run in this folder is unfinished."""
    folder = out / RUN
    return not folder.is_symlink() and (folder / STATE).exists()


def check_page_folder(out: Path, *, force: bool) -> None:
    """Check a folder for a page without a release: it must not hold a release."""
    check_folder(out, force=force)
    for name in RELEASES:
        if (out / name).exists():
            raise InvalidInput(
                f"out={str(out)!r}: holds {name}, whose own page would be lost; name a folder for"
                " this page alone."
            )


def check_place(out: Path, *, resume: bool, force: bool, lost: str = "") -> None:
    """Refuse a folder that a run must not write to, before any work.

    Parameters
    ----------
    lost : str, default=""
        A remark on what overwriting an earlier run loses.
    """
    if is_unfinished(out):
        if resume:
            return
        if not force:
            raise InvalidInput(
                f"out={str(out)!r}: holds an unfinished run; pass --resume to continue it, or"
                f" --force to discard it{lost}."
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
    """Turn an error of the disk into an :class:`InvalidInput` with a ``remedy``."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(
            f"out={str(out)!r}: cannot be written to ({error.strerror or error}); {remedy}."
        ) from None
