"""The ledger of a data set: every release that was made from it, and what they spend together.

Each release spends its ε anew, whether or not anybody liked the model: to draw until a result
pleases, and to show only the last one, spends all of them. So whoever makes a release lists it
*before* it can be seen, in a file that only grows.

The file holds a salted digest of the rows behind each release, by which releases of other rows are
recognised. A digest answers guesses about the rows, so that the file is for the curator only.
"""

import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from expost.errors import ExpostError, InvalidInput
from expost.files.atomic import listed_by, read_json, settle, write_json
from expost.files.digest import content_of
from expost.ledger_entries import Entry, entries_of, now
from expost.results import Displayed
from expost.risk.composition import Composition, CompositionComparison, compare_compositions
from expost.rounding import summed_up
from expost.types import Audience

__all__ = [
    "FORMAT",
    "NAME",
    "Entry",
    "Ledger",
    "append",
    "entries_of",
    "ledger_notice",
    "ledger_path",
    "list_release",
    "now",
]

FORMAT = "expost-ledger/1"
NAME = Audience.FAIL.file_name("ledger", "json")


@dataclass(frozen=True, kw_only=True)
class Ledger(Displayed):
    """Every release of a data set that was listed, each once. For the curator only.

    ``salt``     32 random bytes in hexadecimal digits, made with the ledger.
    ``entries``  in the order in which they were listed.

    All entries count together, those of other rows too: the same people may be among both.
    """

    salt: str
    entries: tuple[Entry, ...] = ()

    audience = Audience.FAIL

    def __post_init__(self) -> None:
        # Both: fromhex skips blanks, which no salt has.
        if not (
            isinstance(self.salt, str) and len(self.salt) == 64 and len(_bytes_of(self.salt)) == 32
        ):
            raise InvalidInput("salt: must be 64 hexadecimal digits.")
        known = [entry.release for entry in self.entries]
        if len(set(known)) != len(known):
            raise InvalidInput("entries: a release stands in it twice; the file was edited.")

    @classmethod
    def new(cls) -> "Ledger":
        """An empty one with a salt of its own."""
        return cls(salt=secrets.token_hex(32))

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"Ledger({len(self)} releases)"

    def holds(self, release: str) -> bool:
        """Whether the release with this checksum is listed."""
        return any(entry.release == release for entry in self.entries)

    def of_run(self, run: str, kind: str) -> tuple[str, ...]:
        """Return the checksums of the releases of this kind that one run made."""
        return tuple(
            entry.release for entry in self.entries if (entry.run, entry.kind) == (run, kind)
        )

    def digest(self, X: Any, y: Any) -> str:
        """The salted digest of rows and labels, in their order."""
        return self.salted(content_of(X, y))

    def salted(self, content: bytes) -> str:
        """The digest of rows whose unsalted one is ``content``: a keyed BLAKE2b."""
        return hashlib.blake2b(content, key=_bytes_of(self.salt), digest_size=32).hexdigest()

    def with_entries(self, entries: Sequence[Entry]) -> "Ledger":
        """The same with those that were not in it; a release that was is left as it stands."""
        found = list(self.entries)
        for entry in entries:
            if all(entry.release != one.release for one in found):
                found.append(entry)
        return replace(self, entries=tuple(found))

    @property
    def epsilon_by_addition(self) -> float:
        """Σε, infinite where a release promises nothing."""
        return summed_up(entry.epsilon if entry.is_promised else math.inf for entry in self.entries)

    @property
    def delta_by_addition(self) -> float:
        """Σδ, at most 1."""
        return min(summed_up(entry.delta for entry in self.entries), 1.0)

    @property
    def guarantee(self) -> Composition:
        """What all releases together promise."""
        if not self.entries:
            raise InvalidInput("entries: the ledger lists no release yet.")
        return Composition(parts=tuple(entry.guarantee for entry in self.entries))

    def composed(self, delta: float, *, prior: float = 0.5) -> CompositionComparison:
        """ε at ``delta``, belief and advantage: by addition, by Rényi divergences and from the
        privacy-loss distribution, side by side."""
        return compare_compositions(self.guarantee.parts, delta=delta, prior=prior)

    # -- the file ----------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """What the file holds; the checksum finds an edit that all other checks would let by."""
        fields = {
            "format": FORMAT,
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "salt": self.salt,
            "entries": [entry.to_json() for entry in self.entries],
        }
        return {**fields, "sha256": _checksum(fields)}

    @classmethod
    def from_json(cls, value: Any) -> "Ledger":
        """The inverse of :meth:`to_json`; anything that it could not have written is refused."""
        found = value.get("format") if isinstance(value, dict) else None
        if not isinstance(value, dict) or found != FORMAT:
            raise InvalidInput(f"format={found!r}: must be {FORMAT!r}; is it from a newer expost?")
        theirs = {name: field for name, field in value.items() if name != "sha256"}
        if value.get("sha256") != _checksum(theirs):
            raise InvalidInput("sha256: does not fit the other fields; the file was edited.")
        try:
            entries = tuple(Entry.from_json(entry) for entry in value["entries"])
            ledger = cls(salt=value["salt"], entries=entries)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ExpostError):
                raise
            raise InvalidInput(f"a field is missing or has the wrong type: {error!r}.") from None
        if ledger.to_json() != value:
            raise InvalidInput("its fields do not agree with each other; it was edited.")
        return ledger

    @classmethod
    def load(cls, path: str | Path) -> "Ledger":
        """Read a ledger, strictly."""
        value = read_json(path)
        try:
            return cls.from_json(value)
        except ExpostError as error:
            raise InvalidInput(f"{path}: is not a whole ledger ({error})") from None


def ledger_path(path: str | Path) -> Path:
    """The ledger that ``path`` names: a file of it, or the folder that it lies in."""
    path = Path(path)
    if path.is_dir():
        return path / NAME
    if not path.suffix:
        raise InvalidInput(
            f"ledger={str(path)!r}: must be a file whose name ends in .json, or a folder that is"
            " there."
        )
    return Audience.FAIL.path(path)


def append(path: Path, entries: Callable[[Ledger], Sequence[Entry]]) -> Ledger:
    """List what ``entries`` makes of the ledger at ``path``, which is started if it is not there.

    Whole or not at all, and on the disk before this returns. Two processes that append at once wait
    for each other: none takes back what the other has listed.
    """
    # A link to a ledger elsewhere stays one: the file behind it is replaced.
    path = path.resolve()
    # It is a list of its own, which the commands of several folders may share.
    with listed_by(None):
        return _append(path, entries)


def _append(path: Path, entries: Callable[[Ledger], Sequence[Entry]]) -> Ledger:
    while True:
        if not path.exists():
            ledger = Ledger.new()
            ledger = ledger.with_entries(entries(ledger))
            if _start(path, ledger):
                return ledger
        with _locked(path) as held:
            if not held:
                # Another process replaced the file, or removed it, while this one waited.
                continue
            before = Ledger.load(path)
            ledger = before.with_entries(entries(before))
            if len(ledger) > len(before):
                write_json(path, Audience.FAIL, ledger.to_json())
                settle(path.parent)
            return ledger


def list_release(ledger: str | Path, release: str | Path, X: Any = None, y: Any = None) -> Ledger:
    """List a model.json or report.json that was made in Python, and return the ledger.

    ``ledger``   its file, or the folder that it lies in; started if it is not there.
    ``X``, ``y`` the rows behind the release, so that releases of other rows are recognised.
    """
    path = ledger_path(ledger)
    if not path.parent.is_dir():
        raise InvalidInput(f"ledger={str(path)!r}: its folder is not there; make it.")
    if (X is None) is not (y is None):
        raise InvalidInput("X, y: pass both, or neither.")
    # Read before the ledger is touched, which a file of nonsense must not start.
    found = entries_of(Path(release))

    def entries(before: Ledger) -> list[Entry]:
        data = None if X is None else before.digest(X, y)
        return [replace(entry, data=data) for entry in found]

    return append(path, entries)


def _start(path: Path, ledger: Ledger) -> bool:
    """Write the first ledger; False where another process was quicker."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        write_json(draft, Audience.FAIL, ledger.to_json())
        # A link appears whole, and never takes the place of a file that is there.
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    settle(path.parent)
    return True


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold the ledger at ``path`` alone; False where it is no longer the file that was opened."""
    try:
        import fcntl
    except ImportError:
        raise InvalidInput(
            f"ledger={str(path)!r}: this system has no file locks, and two programs could lose an"
            " entry; release on Linux or macOS."
        ) from None
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        yield False
        return
    try:
        # Let go of by the system if the process dies.
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            same = os.path.samestat(os.fstat(handle), path.stat())
        except FileNotFoundError:
            same = False
        yield same
    finally:
        os.close(handle)


def ledger_notice(path: str | Path) -> str | None:
    """What to know of a model.json beside which a ledger lies that does not list it; else None."""
    model = Path(path)
    beside = model.parent / NAME
    if not beside.is_file():
        return None
    try:
        ledger = Ledger.load(beside)
        missing = [entry for entry in entries_of(model) if not ledger.holds(entry.release)]
    except ExpostError as error:
        return f"The ledger beside the model cannot be relied on: {error}"
    if not missing:
        return None
    return (
        f"{model} is not in the ledger beside it, {beside}: what it spent is not counted there;"
        f" list it with: expost ledger {beside} --add {model}"
    )


def _bytes_of(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise InvalidInput("salt: must be 64 hexadecimal digits.") from None


def _checksum(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
