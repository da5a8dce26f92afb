"""A run: one task in one folder, which can be resumed after a crash.

A run stores its finished steps in ``DIR/.expost-run`` and removes that folder at its end: while its
state exists, the results are incomplete. The steps belong to one task (options, data, version of
expost), and files that the run did not write are refused.
"""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from expost.errors import AlreadyFinished, ExpostError, InvalidInput
from expost.files.atomic import read_json
from expost.files.directory import RUN
from expost.files.parts import Part, PartStore
from expost.files.sealed import checksum
from expost.jobs.output import (
    RELEASES,
    STATE,
    holds_anything,
    is_unfinished,
    made_now,
    nothing_to_resume,
    writing,
)
from expost.jobs.workspace import Workspace, held

__all__ = ["Run", "identity_of", "kept_in", "read_state", "running"]

_Value = TypeVar("_Value")
_FORMAT = "expost-run/2"
_RESUME = "Progress was saved. Run the same command with --resume to continue."


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run of one task; ``made`` is the date of its results, ``blocks`` whether it uses blocks."""

    workspace: Workspace
    made: str
    salt: str
    blocks: bool
    resumed: bool

    @property
    def out(self) -> Path:
        """The output folder."""
        return self.workspace.out

    @property
    def folder(self) -> Path:
        """The folder of its finished steps."""
        return self.workspace.run_folder

    @property
    def identity(self) -> str:
        """The identity of this run in a ledger."""
        return identity_of(self.salt)

    def store(self, name: str) -> PartStore:
        """Return the finished parts of one step."""
        return PartStore(folder=self.workspace.make_step(name))

    def check_rows(self, parts: Mapping[int, Part], rows: int) -> None:
        """Refuse parts that do not hold a line for each row."""
        if sum(part.rows for part in parts.values()) != rows or [*sorted(parts)] != [
            *range(len(parts))
        ]:
            raise InvalidInput(
                f"{self.folder}: holds parts that this run did not write; pass --force without"
                " --resume to start again, or name another folder."
            )

    def keep(self, name: str, value: Any) -> None:
        """Store the result of a step for a later process, replacing an earlier value."""
        seal = _seal(self.salt, value)
        self.workspace.write_step(f"{name}.json", {"value": value, "seal": seal})

    def forget(self, name: str) -> None:
        """Drop the result of a step."""
        self.workspace.remove_step(f"{name}.json")

    def kept(self, name: str, parse: Callable[[Any], _Value]) -> _Value | None:
        """Return the stored result of a step, read by ``parse``, or None."""
        return kept_in(self.out, self.salt, name, parse)

    @property
    def has_results(self) -> bool:
        """Whether the run has stored anything, above all what a ledger may list."""
        releases = [self.folder / name for name in (*RELEASES, "request.json")]
        results = [self.out / name for name in self.workspace.written]
        steps = ("*/part-*", "*/reference-*")
        return any(path.exists() for path in (*releases, *results)) or any(
            path for step in steps for path in self.folder.glob(step)
        )


def kept_in(out: Path, salt: str, name: str, parse: Callable[[Any], _Value]) -> _Value | None:
    """Return the result of a step that the run of this ``salt`` stored, or None.

    A file that the run did not write, or that was changed since, is refused.
    """
    path = out / RUN / f"{name}.json"
    if not os.path.lexists(path):
        return None
    problem = InvalidInput(
        f"{path}: is not one that this run wrote; pass --force without --resume to start again, or"
        " name another folder."
    )
    value = read_json(path)
    try:
        if set(value) != {"value", "seal"} or value["seal"] != _seal(salt, value["value"]):
            raise problem
        return parse(value["value"])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise problem from None


def _seal(salt: str, value: Any) -> str:
    content = json.dumps(value, sort_keys=True).encode()
    return hashlib.blake2b(content, key=bytes.fromhex(salt), digest_size=32).hexdigest()


def identity_of(salt: str) -> str:
    """Return the identity of the run with this ``salt`` in a ledger."""
    return hashlib.sha256(bytes.fromhex(salt)).hexdigest()


@contextmanager
def running(
    out: Path,
    task: Mapping[str, Any],
    *,
    resume: bool,
    force: bool,
    blocks: bool,
    lost: str = "",
    inputs: Iterable[Path] = (),
    releases: Sequence[str] = (),
) -> Iterator[Run]:
    """Run ``task`` in ``out``: a new run, or with ``resume`` the unfinished one.

    A run that fails is kept for ``--resume`` if it has results, and removed otherwise. ``blocks``
    is whether a new run uses blocks, ``lost`` a remark on what overwriting an earlier run loses;
    ``inputs`` and ``releases`` are those of :func:`held`.
    """
    digest = hashlib.sha256(json.dumps(dict(task), sort_keys=True).encode()).hexdigest()
    with held(
        out, force=force, resume=resume, lost=lost, inputs=inputs, releases=releases
    ) as workspace:
        run = _resumed(workspace, task) if resume and is_unfinished(out) else None
        if run is None and resume and workspace.finished_task == digest:
            raise AlreadyFinished(
                f"out={str(out)!r}: this run is finished; there is nothing to resume."
            )
        if run is None and resume and holds_anything(out) and not force:
            raise nothing_to_resume(out)
        try:
            run = run or _new(workspace, task, blocks)
            yield run
            workspace.finish(digest)
            workspace.clear_run()
        except BaseException as error:
            if is_unfinished(out) and run is not None and run.has_results:
                error.add_note(_RESUME)
            elif workspace.finished_task != digest:
                with suppress(OSError, InvalidInput):
                    workspace.clear_run()
            if run is not None and run.resumed and _is_unreadable(error):
                raise InvalidInput(
                    f"{run.folder}: holds a file that this run did not write"
                    f" ({type(error).__name__}); pass --force without --resume to start again, or"
                    " name another folder."
                ) from None
            raise


def _is_unreadable(error: BaseException) -> bool:
    """Return whether an error may come from a part that was changed."""
    kinds = (AttributeError, LookupError, TypeError, ValueError)
    return isinstance(error, (*kinds, pa.ArrowException)) and not isinstance(error, ExpostError)


def _new(workspace: Workspace, task: Mapping[str, Any], blocks: bool) -> Run:
    workspace.clear_run()
    run = Run(
        workspace=workspace,
        made=made_now(),
        salt=secrets.token_hex(32),
        blocks=blocks,
        resumed=False,
    )
    state = {
        "format": _FORMAT,
        "made": run.made,
        "salt": run.salt,
        "blocks": run.blocks,
        "task": dict(task),
    }
    with writing(workspace.out, "free some space, or name another folder"):
        workspace.write_step(STATE, {**state, "sha256": checksum(state)})
    return run


def _resumed(workspace: Workspace, task: Mapping[str, Any]) -> Run:
    out = workspace.out
    state = read_state(out)
    other = _differences(state["task"], task)
    if other:
        raise InvalidInput(
            f"out={str(out)!r}: the unfinished run differs in {', '.join(other)}; give the"
            " same options and data, or name another folder."
        )
    return Run(
        workspace=workspace,
        made=state["made"],
        salt=state["salt"],
        blocks=state["blocks"],
        resumed=True,
    )


def read_state(out: Path) -> dict[str, Any]:
    """Read the state of an unfinished run, strictly."""
    path = out / RUN / STATE
    state = read_json(path)
    names = {"format", "made", "salt", "blocks", "task", "sha256"}
    if (
        not isinstance(state, dict)
        or set(state) != names
        or state["format"] != _FORMAT
        or state.pop("sha256") != checksum(state)
        or not isinstance(state["made"], str)
        or not isinstance(state["salt"], str)
        or re.fullmatch("[0-9a-f]{64}", state["salt"]) is None
        or not isinstance(state["blocks"], bool)
        or not isinstance(state["task"], dict)
    ):
        raise InvalidInput(f"{path}: is not one that this expost wrote; name another folder.")
    return state


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of the differences, never their values."""
    names: list[str] = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
            names += ["--" + key.replace("_", "-") for key in changed]
        else:
            names.append({"files": "the files (they changed)", "rows": "the rows"}.get(name, name))
    return names
