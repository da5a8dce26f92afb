"""model.json of a run: drawn once, entered in the ledger before it appears, and never drawn twice.

When all of model.json is on the disk, its checksum is kept; then the ledger lists it; then it
appears. A run that is resumed has model.json, or the whole draft of it; where neither is left of a
model that a ledger lists for this run, it ends with an error.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from expost.errors import ExpostError, InvalidInput
from expost.files.atomic import (
    adopt,
    drafts,
    is_same_file,
    read_json,
    settle,
    write_bytes,
    write_json,
)
from expost.files.directory import RUN
from expost.jobs.ledger import Lister, ledgers_for
from expost.jobs.output import begun, writing
from expost.jobs.runs import Run, identity_of, kept_in, read_state
from expost.ledger import Ledger
from expost.release import Release

__all__ = ["MODEL", "Drawn", "copy_model", "drawn_before", "drawn_in", "store_drawn", "store_model"]

MODEL = "model.json"
_NOT_RELEASED = "nothing was released; free some space, or name another folder"
_CONTINUE = "progress was saved: free some space, and continue with --resume"


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A model that a run has drawn.

    ``place``              the file that holds it: model.json, or a draft of it.
    ``reading``, ``fitting``  the notices of the process that drew it.
    """

    release: Release
    place: Path
    reading: tuple[str, ...]
    fitting: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Kept:
    sha256: str
    reading: tuple[str, ...] = ()
    fitting: tuple[str, ...] = ()

    @classmethod
    def parse(cls, value: Any) -> "_Kept":
        lines = {name: tuple(value[name]) for name in ("reading", "fitting")}
        if not all(isinstance(line, str) for name in lines for line in lines[name]):
            raise TypeError
        if set(value) != {"sha256", "reading", "fitting"} or not isinstance(value["sha256"], str):
            raise TypeError
        return cls(sha256=value["sha256"], **lines)


def drawn_before(out: Path, ledger: Path | None) -> Drawn | None:
    """Return the model that the unfinished run in ``out`` has drawn, if it has."""
    if not begun(out):
        return None
    return _drawn(out, read_state(out)["salt"], ledgers_for(out, ledger))


def drawn_in(run: Run, ledger: Path | None) -> Drawn | None:
    """Return the model that this run has drawn, if it has."""
    return _drawn(run.out, run.salt, ledgers_for(run.out, ledger))


def _drawn(out: Path, salt: str, ledgers: Sequence[Path]) -> Drawn | None:
    kept = kept_in(out, salt, "model", _Kept.parse)
    listed = {
        release: path
        for path in ledgers
        if path.exists()
        for release in Ledger.load(path).of_run(identity_of(salt), "model")
    }
    if kept is None or (listed and kept.sha256 not in listed):
        if not listed:
            return None
        # The ledger is believed, not the folder: what it lists was released.
        kept = _Kept(sha256=next(iter(listed)))
    path = out / MODEL
    for place in (path, *drafts(path, out / RUN / "drafts")):
        if not place.is_symlink() and place.exists() and _is_model(place, kept.sha256):
            return Drawn(
                release=Release.load(place),
                place=place,
                reading=kept.reading,
                fitting=kept.fitting,
            )
    if listed:
        raise InvalidInput(
            f"out={str(out)!r}: this run has drawn a model, which {listed[kept.sha256]} lists and"
            " which is gone; it is not drawn a second time: restore model.json, or release another"
            " one with --force, which spends its epsilon again."
        )
    return None


def _is_model(path: Path, checksum: str) -> bool:
    try:
        value = read_json(path)
        return isinstance(value, dict) and Release.from_json(value).to_json()["sha256"] == checksum
    except ExpostError:
        return False


def store_model(
    run: Run,
    release: Release,
    lister: Lister,
    *,
    reading: Sequence[str],
    fitting: Sequence[str],
) -> None:
    """Store a model that was drawn, before anything is computed from it."""
    path, value = run.out / MODEL, release.to_json()
    kept = _Kept(sha256=value["sha256"], reading=tuple(reading), fitting=tuple(fitting))

    def before() -> None:
        run.keep("model", asdict(kept))
        try:
            lister()
        except Exception:
            # What cannot be listed is not released.
            run.forget("model")
            raise

    with writing(run.out, _NOT_RELEASED):
        # Results of an earlier run belong to another model.
        run.workspace.remove_results()
        write_json(path, release.audience, value, before=before)
        settle(run.out)


def store_drawn(run: Run, drawn: Drawn, lister: Lister) -> None:
    """List the model that this run has drawn, and let it appear, where that is still to be done."""
    path = run.out / MODEL
    with writing(run.out, _CONTINUE):
        if drawn.place == path:
            lister()
        else:
            run.workspace.remove_results()
            adopt(path, drawn.release.audience, drawn.place, before=lister)
            settle(run.out)


def copy_model(run: Run, release: Release, given: Path | None) -> None:
    """Store the model that was given, once its rows are known to be the right ones."""
    path = run.out / MODEL
    if run.kept("copied", bool) is None:
        content = None if given is None else given.read_bytes()
        run.workspace.remove_results()
        if content is None:
            write_json(path, release.audience, release.to_json())
        elif given is not None and not is_same_file(given, path):
            write_bytes(path, release.audience, content)
        run.keep("copied", True)
