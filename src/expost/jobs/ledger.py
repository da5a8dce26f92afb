"""Releases of jobs: drawn once, and recorded in the ledger before they appear.

When all of model.json is on the disk, its checksum is stored; then the ledger lists it; then it
appears. A resumed run finds model.json or its complete draft. If a ledger lists a model of the run
and neither is left, the run ends with an error.
"""

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from glob import has_magic, iglob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expost.data import Query
from expost.errors import ExpostError, InvalidInput
from expost.files.atomic import (
    adopt,
    drafts,
    is_same_file,
    read_json,
    sync_folder,
    write_bytes,
    write_json,
)
from expost.files.directory import RUN
from expost.jobs.output import CONTINUE, RELEASES, RESULTS, is_unfinished, writing
from expost.jobs.runs import Run, identity_of, kept_in, read_state
from expost.jobs.workspace import DRAFTS
from expost.ledger import NAME, Entry, Ledger, append, entries_of, ledger_path, now
from expost.numbers import number
from expost.release import Release
from expost.types import Audience

if TYPE_CHECKING:
    from expost.publishing.report import PublishedReport

__all__ = ["MODEL", "Drawn", "Lister", "check_ledgers", "copy_model", "drawn_before", "drawn_in"]
__all__ += [
    "POINTER",
    "ledger_in",
    "ledgers_for",
    "listed_for",
    "model_notices",
    "store_drawn",
    "store_model",
    "table_ledger",
]
__all__ += ["composition_notices"]

MODEL = "model.json"
# The file that names the ledger of model.json.
POINTER = Audience.CURATOR_ONLY.file_name("ledger-path", "json")
_NOT_RELEASED = "nothing was released; free some space, or name another folder"
# Names that no ledger may have in the folder of the results.
GUARDED = frozenset({*RESULTS, *RELEASES})


def ledgers_for(folder: Path, given: Path | None, source: Any) -> tuple[Path, ...]:
    """Return the ledgers that list a release of ``source``.

    The first is the ``given`` ledger, or the one next to the table. Ledgers that exist in the
    folder or next to the table are updated too: a ledger that is found there must be complete.
    """
    own = folder / NAME
    of_table = table_ledger(source) if given is None or _is_file(source) else None
    ledgers = [of_table or own if given is None else ledger_path(given)]
    for path in (own, of_table):
        known = [ledger.resolve() for ledger in ledgers]
        if path is not None and path.exists() and path.resolve() not in known:
            ledgers.append(path)
    return tuple(ledgers)


def _is_file(source: Any) -> bool:
    return isinstance(source, str | Path) and Path(source).exists()


def table_ledger(source: Any) -> Path | None:
    """Return the ledger of a table: ``<table>.ledger.CURATOR-ONLY.json`` next to its file.

    None for a table in memory. The rows of a database or a glob have no single file, so that their
    ledger must be named.
    """
    if isinstance(source, Query):
        raise InvalidInput(
            f"{source.label}: a database has no folder for a ledger; name the ledger of this data"
            " set with --ledger FILE.json, the same for every release."
        )
    if not isinstance(source, str | Path):
        return None
    path = Path(source)
    if path.name in ("", ".."):
        # The current folder, or its parent: their names are needed.
        path = path.resolve()
    if not path.exists() and has_magic(str(source)) and any(iglob(str(source))):
        raise InvalidInput(
            f"{source}: several files have no common ledger; name the ledger of this data set with"
            " --ledger FILE.json, the same for every release."
        )
    name = path.name.removesuffix(".gz")
    stem = Path(name).stem if path.suffix and not path.is_dir() else name
    return path.parent / Audience.CURATOR_ONLY.file_name(f"{stem}.ledger", "json")


def ledger_in(folder: Path) -> Path | None:
    """Return the ledger in a folder, or the one that lists the folder's model."""
    own, pointer = folder / NAME, folder / POINTER
    if own.exists() or not pointer.is_file():
        return own if own.exists() else None
    value = read_json(pointer)
    path = value.get("ledger") if isinstance(value, dict) else None
    if not isinstance(path, str):
        raise InvalidInput(f"{pointer}: is damaged; name the ledger with --ledger.")
    ledger = Path(os.path.normpath(folder / path))
    return ledger if ledger.exists() else None


def point_to(ledger: Path, folder: Path) -> None:
    """Write the path of the ledger of a model into its folder, if the ledger is elsewhere."""
    if ledger.parent.resolve() == folder.resolve():
        return
    try:
        path = os.path.relpath(ledger.resolve(), folder.resolve())
    except ValueError:
        # Another drive.
        path = str(ledger.resolve())
    write_json(folder / POINTER, Audience.CURATOR_ONLY, {"ledger": path})


def check_ledgers(ledgers: Sequence[Path], out: Path) -> None:
    """Refuse ledgers that cannot be written, before a release; ``out`` may not exist yet."""
    own = out / NAME
    # A broken link is no ledger yet, and might lead somewhere later.
    for path in (*ledgers, own) if own.is_symlink() else ledgers:
        folder = path.parent
        if is_same_file(folder, out) and (path.name in GUARDED or path.is_symlink()):
            problem = "is a symbolic link" if path.is_symlink() else "is the name of a result"
            raise InvalidInput(
                f"ledger={str(path)!r}: {problem} in the folder of the results; name another with"
                " --ledger."
            )
        if not folder.is_dir() and folder != out:
            raise InvalidInput(
                f"ledger={str(path)!r}: its folder does not exist; create it, or name another with"
                " --ledger."
            )
        if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
            raise InvalidInput(
                f"ledger={str(path)!r}: its folder cannot be written to, and nothing is released"
                " without a ledger; name another with --ledger."
            )
        if path.exists():
            _usable(path)


def _usable(path: Path) -> Ledger:
    try:
        return Ledger.load(path)
    except ExpostError as error:
        raise InvalidInput(
            f"{str(error).rstrip('.')}; nothing is released without a valid ledger: restore it from"
            " a copy, or name another with --ledger."
        ) from None


def listed_for(ledgers: Sequence[Path], identity: str, kind: str) -> dict[str, Path]:
    """Return the releases of a ``kind`` that ledgers list for a run, each with its ledger."""
    return {
        release: path
        for path in ledgers
        if path.exists()
        for release in Ledger.load(path).of_run(identity, kind)
    }


@dataclass(kw_only=True)
class Lister:
    """A callback that lists one release in several ledgers.

    It is called when all of the release is on the disk and before it appears, so that no crash
    leaves a release that is not listed.

    Parameters
    ----------
    release : Release | PublishedReport
        A model, or a report of the released ``model``, which is listed with it.
    path : Path
        The file that holds it.
    digest : callable
        The digest of the rows under a ledger's own salt.

    Attributes
    ----------
    notices : tuple[str, ...]
        On the composition of the releases in the first ledger.
    """

    release: "Release | PublishedReport"
    path: Path
    ledgers: tuple[Path, ...]
    digest: Callable[[Ledger], str]
    run: Run
    model: Path | None = None
    notices: tuple[str, ...] = field(default=(), init=False)

    def __call__(self) -> None:
        """Append to every ledger."""
        for index, path in enumerate(self.ledgers):
            ledger = append(path, lambda ledger: self._entries(self.digest(ledger)))
            if index == 0:
                self.notices = composition_notices(ledger, path, self.digest(ledger))

    def _entries(self, data: str) -> Sequence[Entry]:
        written = self.release.to_json()
        lines = self.release.entries(written, name=str(self.path), made=now(), data=data)
        own = [replace(line, run=self.run.identity) for line in lines]
        return own if self.model is None else (*entries_of(self.model, data=data), own[-1])


def composition_notices(ledger: Ledger, path: Path, data: str | None) -> tuple[str, ...]:
    """Return notices on what all releases of a ledger spend; none for the first release.

    Parameters
    ----------
    data : str | None
        The digest of the rows, if known.
    """
    # An encoding is released with a model.
    models = [entry for entry in ledger.entries if entry.kind != "encoding"]
    if len(models) < 2:
        return ()
    delta = ledger.delta_by_addition
    spent = f"ε = {number(ledger.epsilon_by_addition, 'up')}"
    spent += f", δ = {number(delta, 'up')}" if delta else ""
    known = [entry.data for entry in models if None not in (entry.data, data)]
    others = sum(digest != data for digest in known)
    notice = (
        f"This data set has {len(models)} releases, which together spend {spent} by addition:"
        f" profile them together; expost ledger {shlex.quote(str(path))} lists and composes them."
    )
    if not others:
        return (notice,)
    return (
        notice,
        f"{others} of the {len(models)} were made from other rows, columns or encodings; they"
        " count too,"
        " because the same people may be among them.",
    )


def model_notices(
    model: Path, given: Path | None, source: Any, digest: Callable[[Ledger], str] | None
) -> tuple[str, ...]:
    """Return the notices of a model's ledger: the one ``given``, of its folder, or of its table.

    Parameters
    ----------
    digest : callable | None
        Returns the digest of the rows under a ledger's salt; None without rows.
    """
    path = ledger_in(model.parent) or model.parent / NAME
    if not path.exists() and _is_file(source):
        of_table = table_ledger(source)
        path = of_table if of_table is not None and of_table.exists() else path
    if given is not None:
        path = ledger_path(given)
    add = f"expost ledger {shlex.quote(str(path))} --add {shlex.quote(str(model))}"
    if not path.exists():
        if given is not None:
            raise InvalidInput(f"ledger={str(path)!r}: does not exist (start it with: {add})")
        return (
            "There is no ledger next to the model, so the number of releases of its data is"
            f" unknown; name one with --ledger, or start one with: {add}",
        )
    try:
        ledger = Ledger.load(path)
    except ExpostError as error:
        return (f"The ledger is not valid: {error}",)
    listed = {entry.release: entry for entry in ledger.entries}
    (first, *_) = entries_of(model)
    if first.release not in listed:
        return (
            f"The model is not in {path}: what it spent is not counted there; list it with: {add}",
            *composition_notices(ledger.with_entries([first]), path, None),
        )
    entry = listed[first.release]
    if digest is None or entry.data is None or digest(ledger) == entry.data:
        return composition_notices(ledger, path, entry.data)
    return (
        f"According to {path}, the model was made from other rows, another order of them, or other"
        " cells.",
        *composition_notices(ledger, path, entry.data),
    )


# -- model.json ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A model that a run has drawn.

    Parameters
    ----------
    path : Path
        The file that holds it: model.json, or a draft of it.
    reading, fitting : tuple[str, ...]
        The notices of the process that drew it.
    """

    release: Release
    path: Path
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


def drawn_before(out: Path, ledgers: Sequence[Path]) -> Drawn | None:
    """Return the model that the unfinished run in ``out`` has drawn, or None."""
    if not is_unfinished(out):
        return None
    return _drawn(out, read_state(out)["salt"], ledgers)


def drawn_in(run: Run, ledgers: Sequence[Path]) -> Drawn | None:
    """Return the model that this run has drawn, or None."""
    return _drawn(run.out, run.salt, ledgers)


def _drawn(out: Path, salt: str, ledgers: Sequence[Path]) -> Drawn | None:
    kept = kept_in(out, salt, "model", _Kept.parse)
    listed = listed_for(ledgers, identity_of(salt), "model")
    if kept is None or (listed and kept.sha256 not in listed):
        if not listed:
            return None
        # The ledger decides, not the folder: its entries were released.
        kept = _Kept(sha256=next(iter(listed)))
    model = out / MODEL
    for path in (model, *drafts(model, out / RUN / DRAFTS)):
        if not path.is_symlink() and path.exists() and _is_model(path, kept.sha256):
            return Drawn(
                release=Release.load(path),
                path=path,
                reading=kept.reading,
                fitting=kept.fitting,
            )
    if listed:
        raise InvalidInput(
            f"out={str(out)!r}: the model of this run is listed in {listed[kept.sha256]}, but its"
            " file is gone; it is not drawn a second time: restore model.json, or release another"
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
            # A model that cannot be listed is not released.
            run.forget("model")
            raise

    with writing(run.out, _NOT_RELEASED):
        # Results of an earlier run belong to another model.
        run.workspace.remove_results()
        write_json(path, release.audience, value, before=before)
        point_to(lister.ledgers[0], run.out)
        sync_folder(run.out)


def store_drawn(run: Run, drawn: Drawn, lister: Lister) -> None:
    """List the model that this run has drawn, and write model.json, unless already done."""
    path = run.out / MODEL
    with writing(run.out, CONTINUE):
        if drawn.path == path:
            lister()
        else:
            run.workspace.remove_results()
            adopt(path, drawn.release.audience, drawn.path, before=lister)
        point_to(lister.ledgers[0], run.out)
        sync_folder(run.out)


def copy_model(run: Run, release: Release, given: Path | None) -> None:
    """Store the given model, after its rows were checked."""
    path = run.out / MODEL
    if run.kept("copied", bool) is None:
        content = None if given is None else given.read_bytes()
        run.workspace.remove_results()
        if content is None:
            write_json(path, release.audience, release.to_json())
        elif given is not None and not is_same_file(given, path):
            write_bytes(path, release.audience, content)
        run.keep("copied", True)
