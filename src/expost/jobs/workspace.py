"""The output folder of a command: locked by one process, which changes only expost's files.

One lock serves every command and every source of rows, and is taken before anything is drawn. A
file is listed with its checksum before it appears; nothing is replaced or removed that
is not listed, or that differs from its checksum. No link below DIR is followed
(:mod:`expost.files.directory`), and no input of the command is touched.

    DIR/.expost-manifest.CURATOR-ONLY.json  the files of DIR that expost wrote
    DIR/.expost-run/lock         locked by the process that works here
    DIR/.expost-run/drafts/      files of DIR that are being written
    DIR/.expost-run/state.json   the task, and the date of the page
    DIR/.expost-run/<name>.json  the result of one step
    DIR/.expost-run/<name>/      finished parts (:class:`~expost.files.parts.PartStore`), references
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from expost.errors import InvalidInput
from expost.files.atomic import drafts, listed_by, read_json, sync_folder, write_json
from expost.files.directory import RUN, Directory, is_own, kind_of, lock
from expost.files.parts import MANIFEST as PARTS
from expost.files.parts import PartStore, check_store, holds_its_parts, remove_store
from expost.jobs.output import MANIFEST, RESULTS, STATE, check_page_folder, check_place
from expost.types import Audience

__all__ = ["DRAFTS", "Workspace", "held"]

_LOCK, DRAFTS = "lock", "drafts"
_FORMAT = "expost-manifest/1"
# The files of a folder in which a step keeps its results.
_KEPT = re.compile(
    r"part-[0-9]{6,}-[0-9a-f]{64}\.parquet|_manifest\.json|settings\.json|reference-[0-9]{4,}\.npz"
    r"|\..+\.part"
)
# The entries of a run's folder.
_STEPS = frozenset(
    {
        *(
            STATE,
            "model.json",
            "report.json",
            "facts.json",
            "losses.json",
            "top.json",
            "copied.json",
        ),
        *("started.json", "rows.json", "drafts", "losses", "profile", "epsilon", "comparison"),
        "references",
        "encoding.json",
        *("request.json", "coin.json", "erasure.json"),
    }
)
_DRAFT = re.compile(r"\.(.+)\.[^.]+\.part")


class Workspace:
    """An output folder locked by this process; ``written`` are the names it has listed."""

    def __init__(self, out: Path, folder: Directory, run: Directory) -> None:
        self.written: set[str] = set()
        self.out, self._folder, self._run = out, folder, run
        self._files, self._steps, self._task = _read_manifest(out / MANIFEST, folder)
        for path in drafts(out / MANIFEST):
            # An earlier process was killed while it wrote the list.
            folder.unlink(path.name)

    # -- its files -------------------------------------------------------------------------------

    def check_inputs(self, inputs: Iterable[Path], releases: Sequence[str]) -> None:
        """Refuse to work if a file that the command reads has the name of a result.

        Parameters
        ----------
        releases : Sequence[str]
            The releases that the command writes.
        """
        given: dict[tuple[int, int], Path] = {}
        for path in inputs:
            for status in _statuses(path):
                given.setdefault((status.st_dev, status.st_ino), path)
        steps = [f"{RUN}/{name}" for name in self._run.names() if name != _LOCK]
        for name in (*RESULTS, *releases, *steps):
            path = self.out / name
            entries = [path, *path.iterdir()] if path.is_dir() else [path]
            for entry in entries:
                for status in _statuses(entry):
                    source = given.get((status.st_dev, status.st_ino))
                    if source is not None:
                        raise InvalidInput(
                            f"out={str(self.out)!r}: {source} is read by this command, and would be"
                            f" lost as its result {name}; move it, or name another folder."
                        )

    def check_own(self, releases: Sequence[str]) -> None:
        """Refuse to work if a result would replace a file that expost did not write."""
        for name in (*RESULTS, *releases):
            self._check_own(name)

    def _check_own(self, name: str) -> None:
        status = self._folder.status(name)
        if status is None:
            return
        known = self._files.get(name, ())
        foreign = InvalidInput(
            f"{self.out / name}: is {kind_of(status)} that expost did not write, or that was"
            " changed since; move it away, or name another folder."
        )
        if stat.S_ISREG(status.st_mode):
            if _checksum(self._folder, name) not in known:
                raise foreign
        elif stat.S_ISDIR(status.st_mode) and known:
            with self._folder.folder(name) as parts:
                check_store(parts)
                if parts.status(PARTS) is not None:
                    whole = _checksum(parts, PARTS) in known
                    if not whole or not holds_its_parts(parts, self.out / name):
                        raise foreign
        else:
            raise foreign

    def remove(self, names: Iterable[str]) -> None:
        """Remove results of these names that expost wrote, and no release."""
        own = [name for name in names if name in self._files and name in RESULTS]
        for name in own:
            self._check_own(name)
        for name in own:
            status = self._folder.status(name)
            if status is not None and stat.S_ISDIR(status.st_mode):
                remove_store(self._folder, name)
            else:
                self._folder.unlink(name)
            del self._files[name]
            self.written.discard(name)
        if own:
            self._task = None
            self._save()

    def remove_results(self, *, keep: Iterable[Path] = ()) -> None:
        """Remove the results of an earlier run, so that they are not mistaken for new ones."""
        kept = {path.name for path in keep}
        self.remove([name for name in self._files if name not in kept])

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Remove all files written in this block if it fails."""
        try:
            yield
        except BaseException:
            self.remove([*self.written])
            raise

    def deliver(self, store: PartStore, name: str) -> PartStore:
        """Move a finished store to the folder, atomically."""
        with self._run.folder(store.folder.name) as parts:
            checksum = _checksum(parts, PARTS)
        status = self._folder.status(name)
        if status is not None:
            raise InvalidInput(
                f"{self.out / name}: is {kind_of(status)} in the place of a result; move it away,"
                " or name another folder."
            )
        self._list(name, checksum)
        self._run.replace(store.folder.name, self._folder, name)
        self._folder.sync()
        self._run.sync()
        return PartStore(folder=self.out / name, audience=store.audience)

    def take_back(self, name: str, step: str) -> None:
        """Move a finished store back to the step that wrote it."""
        status = self._folder.status(name)
        if status is None:
            return
        self._check_own(name)
        if self._run.status(step) is not None:
            remove_store(self._folder, name)
        else:
            self._enter(step)
            self._folder.replace(name, self._run, step)

    # -- its list (expost.files.atomic.FileList) ---------------------------------------------------

    def holds(self, folder: Directory, name: str) -> bool:
        """Return whether files of this name and folder are listed; the list itself is not."""
        same = self._folder.is_same(folder)
        if not same and folder.path == self.out:
            raise InvalidInput(
                f"out={str(self.out)!r}: was replaced by another folder while the command worked in"
                " it; start again."
            )
        return same and name != MANIFEST

    @contextmanager
    def drafts(self) -> Iterator[Directory]:
        """Open the folder in which files are written before they appear."""
        self._make(DRAFTS)
        with self._run.folder(DRAFTS) as folder:
            yield folder

    def list_file(self, name: str, drafts: Directory, draft: str) -> None:
        """List a file that is about to appear; raise if it would replace a foreign file."""
        self._check_own(name)
        self._list(name, _checksum(drafts, draft))

    def _list(self, name: str, checksum: str) -> None:
        others = tuple(known for known in self._files.get(name, ()) if known != checksum)
        # The file that it replaces may still be there after a crash.
        self._files[name], self._task = (*others, checksum), None
        self.written.add(name)
        self._save()

    def _save(self) -> None:
        path = self.out / MANIFEST
        if not (self._files or self._steps or self._task):
            self._folder.unlink(MANIFEST)
            return
        value = {
            "format": _FORMAT,
            "audience": Audience.CURATOR_ONLY.value,
            "files": {name: list(known) for name, known in sorted(self._files.items())},
            "run": list(self._steps),
            "task": self._task,
        }
        with listed_by(self):
            write_json(path, Audience.CURATOR_ONLY, value)

    # -- the folder of a run ---------------------------------------------------------------------

    @property
    def run_folder(self) -> Path:
        """The folder of the finished steps of a run."""
        return self.out / RUN

    def _enter(self, step: str) -> None:
        """List an entry of the run's folder, before it is created."""
        assert step in _STEPS, step
        if step not in self._steps:
            self._steps = (*self._steps, step)
            self._save()

    def _make(self, step: str) -> None:
        self._enter(step)
        if not self._run.make(step):
            # Checked to be a folder of this user, not a link.
            self._run.folder(step).close()

    def write_step(self, name: str, value: Any) -> None:
        """Write a file of the run's folder."""
        self._enter(name)
        write_json(self.run_folder / name, Audience.CURATOR_ONLY, value)
        sync_folder(self.run_folder)

    def remove_step(self, name: str) -> None:
        """Remove a file of the run's folder."""
        self._run.unlink(name)

    def make_step(self, name: str) -> Path:
        """Make a folder in the run's folder, and return its path."""
        self._make(name)
        return self.run_folder / name

    def check_run(self) -> None:
        """Refuse a run's folder that holds other files than expost's."""
        for name in self._run.names():
            if name not in (*self._steps, _LOCK) and not self._is_draft(name):
                raise self._foreign(name)
            status = self._run.status(name)
            if status is not None and stat.S_ISDIR(status.st_mode):
                with self._run.folder(name) as step:
                    for file in step.names():
                        self._check_kept(step, f"{name}/{file}", file)
            else:
                self._check_kept(self._run, name, name, every=True)

    def _is_draft(self, name: str) -> bool:
        """Return whether this is the name of a draft of a file of the run."""
        draft = _DRAFT.fullmatch(name)
        return draft is not None and draft[1] in self._steps

    def _check_kept(self, folder: Directory, shown: str, name: str, *, every: bool = False) -> None:
        status = folder.status(name)
        if status is None or not stat.S_ISREG(status.st_mode):
            raise self._foreign(shown)
        if not every and _KEPT.fullmatch(name) is None:
            raise self._foreign(shown)

    def _foreign(self, name: str) -> InvalidInput:
        return InvalidInput(
            f"{self.run_folder / name}: was not written by expost; move it away, or name another"
            " folder."
        )

    def clear_run(self) -> None:
        """Remove the files of a run, its state first: without it there is no run to resume."""
        for name in sorted(self._steps, key=lambda name: name != STATE):
            status = self._run.status(name)
            if status is not None and stat.S_ISDIR(status.st_mode):
                _empty(self._run, name)
            elif status is not None:
                self._run.unlink(name)
        for name in self._run.names():
            if self._is_draft(name):
                self._run.unlink(name)
        self._steps = ()
        self._drop_absent()
        self._save()

    def clear_drafts(self) -> None:
        """Remove the drafts of a command that keeps no state."""
        if self._steps and not _has_state(self._run):
            with suppress(OSError, InvalidInput):
                self.clear_run()

    def _drop_absent(self) -> None:
        """Drop files from the list that do not exist."""
        for name in [*self._files]:
            if self._folder.status(name) is None:
                del self._files[name]
                self.written.discard(name)

    def finish(self, task: str | None) -> None:
        """Keep one version of each file, and record the finished ``task``."""
        self._drop_absent()
        self._files = {name: known[-1:] for name, known in self._files.items()}
        self._task = task
        self._save()

    @property
    def finished_task(self) -> str | None:
        """The digest of the finished task whose results are all here, or None."""
        whole = all(self._folder.status(name) is not None for name in self._files)
        return self._task if whole else None


def _statuses(path: Path) -> Iterator[os.stat_result]:
    """Yield the status of an entry, and of the target of a link."""
    for follow in (False, True):
        with suppress(OSError, ValueError):
            yield path.stat(follow_symlinks=follow)


def _checksum(folder: Directory, name: str) -> str:
    with os.fdopen(folder.open_file(name, os.O_RDONLY), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_manifest(
    path: Path, folder: Directory
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...], str | None]:
    """Return the files of a folder with their checksums, the steps of its run, its last task."""
    status = folder.status(path.name)
    if status is None:
        return {}, (), None
    problem = InvalidInput(f"{path}: is not a list that this expost wrote; name another folder.")
    # The list of another user could name files of that user.
    if not stat.S_ISREG(status.st_mode) or not is_own(status):
        raise problem
    value = read_json(path)
    names = {"format", "audience", "files", "run", "task"}
    if not isinstance(value, dict) or set(value) != names or value["format"] != _FORMAT:
        raise problem
    files, steps, task = value["files"], value["run"], value["task"]
    whole = (
        isinstance(files, dict)
        and all(isinstance(known, list) and _are_names(known) for known in files.values())
        and _are_names([*files])
        and isinstance(steps, list)
        and all(isinstance(step, str) and step in _STEPS for step in steps)
        and (task is None or isinstance(task, str))
    )
    if not whole:
        raise problem
    return {name: tuple(known) for name, known in files.items()}, tuple(steps), task


def _are_names(values: Sequence[object]) -> bool:
    """Return whether all values are names of entries of one folder."""
    return all(
        isinstance(value, str) and value not in ("", ".", "..") and not {"/", "\\", "\0"} & {*value}
        for value in values
    )


@contextmanager
def held(
    out: Path,
    *,
    force: bool,
    resume: bool = False,
    lost: str = "",
    inputs: Iterable[Path] = (),
    releases: Sequence[str] = (),
    page: bool = False,
) -> Iterator[Workspace]:
    """Lock the folder ``out``, which is created if it does not exist.

    Parameters
    ----------
    inputs : Iterable[Path], default=()
        The files that the command reads.
    releases : Sequence[str], default=()
        The releases that it writes.
    page : bool, default=False
        The command writes a page alone: the folder must hold no release.
    """
    made = [folder for folder in (out, *out.absolute().parents) if not folder.exists()]
    check_place(out, resume=resume, force=force, lost=lost)
    try:
        with _locked(out) as workspace, listed_by(workspace):
            # Again: another process may have written in between.
            check_place(out, resume=resume, force=force, lost=lost)
            if page:
                check_page_folder(out, force=force)
            workspace.check_run()
            workspace.check_inputs(inputs, releases)
            workspace.check_own(releases)
            yield workspace
    finally:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def _locked(out: Path) -> Iterator[Workspace]:
    """Lock a folder; the operating system releases the lock when the process ends."""
    with ExitStack() as stack:
        try:
            out.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(Directory.open(out))
            run, handle, made = _lock(folder)
        except OSError as error:
            raise InvalidInput(
                f"out={str(out)!r}: cannot be written to ({error.strerror or error}); free some"
                " space, or name another folder."
            ) from None
        stack.callback(os.close, handle)
        stack.enter_context(run)
        try:
            workspace = Workspace(out, folder, run)
            try:
                yield workspace
            finally:
                workspace.clear_drafts()
        finally:
            _tidy(folder, run, made=made)


def _empty(run: Directory, name: str) -> None:
    """Remove the files that expost wrote from a folder of a run, and the folder if empty."""
    with run.folder(name) as step:
        for file in step.names():
            status = step.status(file)
            if _KEPT.fullmatch(file) and status is not None and stat.S_ISREG(status.st_mode):
                step.unlink(file)
    with suppress(OSError):
        run.rmdir(name)


def _has_state(run: Directory) -> bool:
    status = run.status(STATE)
    return status is not None and stat.S_ISREG(status.st_mode)


def _tidy(folder: Directory, run: Directory, *, made: bool) -> None:
    """Remove the lock that was ``made`` or is the only file, and the run's folder if empty."""
    with suppress(OSError):
        status = run.status(_LOCK)
        alone = run.names() == [_LOCK] and status is not None and status.st_size == 0
        if alone or (made and not _has_state(run)):
            run.unlink(_LOCK)
            folder.rmdir(RUN)


def _lock(folder: Directory) -> tuple[Directory, int, bool]:
    """Return the run's folder, its lock, and whether the lock was created here."""
    while True:
        folder.make(RUN)
        try:
            run = folder.folder(RUN)
        except FileNotFoundError:
            # The process that worked here has just finished.
            continue
        try:
            made = run.status(_LOCK) is None
            handle = run.open_file(_LOCK, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            run.close()
            continue
        except OSError:
            run.close()
            raise
        try:
            if not lock(handle, wait=False):
                raise InvalidInput(
                    f"out={str(folder.path)!r}: another process is at work here; wait for its end,"
                    " or name another folder."
                )
        except (InvalidInput, OSError):
            os.close(handle)
            run.close()
            raise
        # It must be the lock of the folder that exists now.
        status = folder.status(RUN)
        held = run.status(_LOCK)
        if (
            status is not None
            and held is not None
            and os.path.samestat(os.fstat(handle), held)
            and run.is_at(status)
        ):
            return run, handle, made
        os.close(handle)
        run.close()
