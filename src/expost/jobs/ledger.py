"""How the jobs list what they release, and what a ledger tells of a model that exists."""

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from expost.errors import ExpostError, InvalidInput
from expost.files.atomic import is_same_file
from expost.jobs.output import RELEASES, RESULTS
from expost.ledger import NAME, Entry, Ledger, append, entries_of, ledger_path
from expost.rounding import at_most

__all__ = ["Lister", "check_ledgers", "ledgers_for", "model_notices", "together"]

# Names that no ledger may have in the folder of the results.
GUARDED = frozenset({*RESULTS, *RELEASES})


def ledgers_for(folder: Path, given: Path | None) -> tuple[Path, ...]:
    """The ledgers that list a release: the one that was named, and the folder's own.

    A folder's own ledger is kept up beside one that was named, if it is there: whoever finds it
    beside model.json must not take it for whole when it is not.
    """
    own = folder / NAME
    if given is None:
        return (own,)
    named = ledger_path(given)
    return (named, own) if own.exists() and own.resolve() != named.resolve() else (named,)


def check_ledgers(ledgers: Sequence[Path], out: Path) -> None:
    """Refuse what cannot be listed before it is released; ``out`` is made later if need be."""
    for path in ledgers:
        folder = path.parent
        if is_same_file(folder, out) and (path.name in GUARDED or path.is_symlink()):
            what = "is a symbolic link" if path.is_symlink() else "is the name of a result"
            raise InvalidInput(
                f"ledger={str(path)!r}: {what} in the folder of the results; name another with"
                " --ledger."
            )
        if not folder.is_dir() and folder != out:
            raise InvalidInput(
                f"ledger={str(path)!r}: its folder is not there; make it, or name another with"
                " --ledger."
            )
        if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
            raise InvalidInput(
                f"ledger={str(path)!r}: its folder cannot be written to, and what is not listed is"
                " not released; name another with --ledger."
            )
        if path.exists():
            _usable(path)


def _usable(path: Path) -> Ledger:
    try:
        return Ledger.load(path)
    except ExpostError as error:
        raise InvalidInput(
            f"{str(error).rstrip('.')}; nothing is released while it is: restore it from a copy, or"
            " name another with --ledger."
        ) from None


class Lister:
    """Lists one release in several ledgers; to be called before the release can be seen.

    ``digest``   of the rows under a ledger's own salt.
    ``entries``  makes the lines, given that digest.
    """

    def __init__(
        self,
        ledgers: Sequence[Path],
        digest: Callable[[Ledger], str],
        entries: Callable[[str], Sequence[Entry]],
    ) -> None:
        self.ledgers = tuple(ledgers)
        self._digest = digest
        self._entries = entries
        self._notices: tuple[str, ...] = ()

    def __call__(self) -> None:
        """Append to every ledger."""
        for place, path in enumerate(self.ledgers):
            data = ""

            def listed(ledger: Ledger) -> Sequence[Entry]:
                nonlocal data
                data = self._digest(ledger)
                return self._entries(data)

            ledger = append(path, listed)
            if place == 0:
                self._notices = together(ledger, path, data)

    @property
    def notices(self) -> tuple[str, ...]:
        """What the first ledger says now."""
        return self._notices


def together(ledger: Ledger, path: Path, data: str | None) -> tuple[str, ...]:
    """That there were other releases, and what all of them spend; nothing for the first one.

    ``data`` is the digest of the rows in question, where it is known.
    """
    if len(ledger) < 2:
        return ()
    delta = ledger.delta_by_addition
    spent = f"epsilon {at_most(ledger.epsilon_by_addition, 4)}"
    spent += f", delta {at_most(delta)}" if delta else ""
    known = [entry.data for entry in ledger.entries if None not in (entry.data, data)]
    others = sum(one != data for one in known)
    notice = (
        f"This data set has been released {len(ledger)} times, and seeing all of it spends {spent}"
        f" by addition: profile these releases together; expost ledger {shlex.quote(str(path))}"
        " lists and composes them."
    )
    if not others:
        return (notice,)
    return (
        notice,
        f"{others} of the {len(ledger)} were made from other rows, or with other columns; they"
        " count all the same, for the same people may be among them.",
    )


def model_notices(
    model: Path, given: Path | None, digest: Callable[[Ledger], str] | None
) -> tuple[str, ...]:
    """What a ledger tells of a model that exists: the one that was named, or the one beside it.

    ``digest`` is that of the rows under a ledger's own salt, where there are rows.
    """
    path = model.parent / NAME if given is None else ledger_path(given)
    add = f"expost ledger {shlex.quote(str(path))} --add {shlex.quote(str(model))}"
    if not path.exists():
        if given is not None:
            raise InvalidInput(f"ledger={str(path)!r}: is not there (start it with: {add})")
        return (
            "No ledger lies beside the model, so that it is not known how often its data was"
            f" released; name one with --ledger, or start one with: {add}",
        )
    try:
        ledger = Ledger.load(path)
    except ExpostError as error:
        return (f"The ledger cannot be relied on: {error}",)
    listed = {entry.release: entry for entry in ledger.entries}
    (first, *_) = entries_of(model)
    if first.release not in listed:
        return (
            f"The model is not in {path}: what it spent is not counted there; list it with: {add}",
            *together(ledger.with_entries([first]), path, None),
        )
    entry = listed[first.release]
    if digest is None or entry.data is None or digest(ledger) == entry.data:
        return together(ledger, path, entry.data)
    return (
        f"These are not the rows that the model was made from, says {path}: other rows, another"
        " order, or other cells.",
        *together(ledger, path, entry.data),
    )
