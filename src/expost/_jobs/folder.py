"""The folder that a job writes to: refused before any work, and never left half-filled."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from expost._files import drafts
from expost._store import remove_store
from expost.errors import InvalidInput
from expost.types import Audience

__all__ = [
    "RUN",
    "STATE",
    "check_folder",
    "check_page_folder",
    "holds_anything",
    "remove_stale",
    "writing",
]

# Where a run in blocks keeps what it has finished, and the file that makes it one.
RUN, STATE = ".expost-run", "state.json"

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
# What a run of any command leaves, beside model.json and report.json, which are releases and never
# removed.
_RESULTS = (
    *(
        audience.file_name(*names)
        for audience in (Audience.PASS, Audience.FAIL)
        for names in _STEMS
    ),
    Audience.FAIL.file_name("report", "json"),
)


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
    """Whether there is anything in a folder; what is left of a run without its state is nothing."""
    return out.is_dir() and any(
        path.name != RUN or (path / STATE).exists() for path in out.iterdir()
    )


def check_page_folder(out: Path, *, force: bool) -> None:
    """The same for a folder that gets a page alone, and no release: it must not hold one."""
    check_folder(out, force=force)
    for name in ("model.json", "report.json"):
        if (out / name).exists():
            raise InvalidInput(
                f"out={str(out)!r}: holds {name}, whose own page would be lost; name a folder for"
                " this page alone."
            )


@contextmanager
def writing(out: Path, remedy: str) -> Iterator[None]:
    """Say what could not be written, and leave no folder behind that is empty."""
    made = [folder for folder in (out, *out.absolute().parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        raise InvalidInput(
            f"out={str(out)!r}: cannot be written to ({error.strerror or error}); {remedy}."
        ) from None


def remove_drafts(out: Path) -> None:
    """Remove what a process that was killed had begun to write of its results, but no release."""
    for name in _RESULTS:
        for draft in drafts(out / name):
            draft.unlink(missing_ok=True)


def remove_stale(out: Path, *, keep: Iterable[Path | None] = ()) -> None:
    """Remove the results of an earlier run, which beside new ones would be read as theirs."""
    kept = {path.resolve() for path in keep if path is not None}
    for stale in (out / name for name in _RESULTS):
        if stale.resolve() in kept:
            continue
        # A table that was made in parts is a folder.
        if stale.is_dir() and not stale.is_symlink():
            remove_store(stale)
        else:
            stale.unlink(missing_ok=True)
