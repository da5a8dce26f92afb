"""The ledger of a data set: every release that was made from it, and what they spend together.

Every release spends its ε, also a model that is discarded after looking at it: drawing models until
one is good, and showing only that one, spends the ε of all of them. So a release is listed *before*
it can be read, in a file that only grows.

A release is identified by the checksum in its own file, so that a copy, or the same file with other
white space, is the same release. The document of a release returns its own entries
(:class:`Listable`); the ledger imports none of them.

The file holds a salted digest of the rows behind each release, by which releases of other rows are
recognised. A digest confirms guesses about the rows, so that the file is curator-only.
"""

import hashlib
import math
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from expost import _checks
from expost.errors import ExpostError, InvalidInput
from expost.files.atomic import listed_by, read_json, sync_folder, write_json
from expost.files.digest import content_of
from expost.files.directory import can_replace_locked, lock
from expost.files.sealed import Sealed, from_fields, to_fields
from expost.numbers import for_persons, relation_words, summed_up
from expost.results import Displayed
from expost.risk import Guarantee
from expost.risk.composition import Composition, CompositionComparison, compare_compositions
from expost.types import Audience, Neighbouring

__all__ = ["NAME", "Entry", "Ledger", "Listable", "ListedRelease", "Listing", "append"]
__all__ += ["entries_of", "ledger_notice", "ledger_path", "list_release", "now"]

NAME = Audience.CURATOR_ONLY.file_name("ledger", "json")
KINDS = ("encoding", "erasure", "model", "report")
# The documents that release something, by their format. They lie above the ledger and are imported
# when a file of theirs is read.
DOCUMENTS = {
    "expost-model/1": ("expost.release", "Release"),
    "expost-report/1": ("expost.publishing.report", "PublishedReport"),
}
# The names of mechanisms and noises; those of another package need not be installed here.
_NAME = re.compile("[A-Za-z][A-Za-z0-9 _-]{0,39}")
_DIGEST = re.compile("[0-9a-f]{64}")
_MOST = 2**53
# The δ at which ε is reported, unless those of the releases come to more.
_DELTA = 1e-5
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A release: a model, what a published report added to one, or a model after an erasure.

    Attributes
    ----------
    release : str
        The checksum of its file; of an erasure the keyed hash of its request, because it is listed
        before its model exists.
    made : str
        When it was listed, in UTC.
    name : str
        The file as it was named.
    epsilon, delta : float
        What was requested; ``guarantee`` may be weaker (∞: none) and is never stronger.
    dimension, rows : int
        d and n.
    seeded : bool
        Whether its noise was seeded, so that it can be removed.
    read_from_data : int
        The number of its bounds that were read from the data, which no ε covers.
    data : str | None
        The salted digest of its rows, or None where the rows were not given.
    run : str | None
        Identifies the run that made it; None where that is not known.
    rows_per_person : int
        k: ``epsilon``, ``delta`` and ``guarantee`` hold for persons with up to k rows.
    relation : str | None
        "remove": they hold for a row that is removed or added; "replace": also for a replaced one;
        None where that is not known.
    coupled_with : str | None
        Of an erasure that may have kept its model: the checksum of the model before. A model is
        coupled once.
    """

    release: str
    kind: str
    made: str
    name: str
    mechanism: str
    noise: str
    epsilon: float
    delta: float
    guarantee: Guarantee
    dimension: int
    rows: int
    seeded: bool
    read_from_data: int
    data: str | None
    run: str | None = None
    rows_per_person: int = 1
    relation: str | None = None
    coupled_with: str | None = None

    def __post_init__(self) -> None:
        # The name of a file may hold bytes that are not UTF-8, and the ledger is UTF-8.
        name = self.name.encode("utf-8", "backslashreplace").decode()
        object.__setattr__(self, "name", name)
        for field in ("release", "data", "run", "coupled_with"):
            digits = getattr(self, field)
            if digits is None and field != "release":
                continue
            if not isinstance(digits, str) or not _DIGEST.fullmatch(digits):
                raise InvalidInput(f"{field}: must be 64 hexadecimal digits.")
        _checks.one_of("kind", self.kind, KINDS)
        for field in ("mechanism", "noise"):
            name = getattr(self, field)
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise InvalidInput(f"{field}={name!r}: must be a name of at most 40 letters.")
        if self.kind != "erasure" or self.epsilon != 0:
            _checks.positive("epsilon", self.epsilon, finite=False)
        if self.delta != 0:
            _checks.probability("delta", self.delta)
        _checks.rows_per_person(self.rows_per_person)
        if self.relation is not None:
            _checks.one_of("relation", self.relation, ("remove", "replace"))
        for field, least in (("dimension", 1), ("rows", 2), ("read_from_data", 0)):
            if _checks.integer(field, getattr(self, field), least=least) > _MOST:
                raise InvalidInput(f"{field}: must be an integer of at most 2**53.")
        _date(self.made)

    @property
    def description(self) -> str:
        """What it is, in a few words."""
        if self.kind == "report":
            return f"report: gradient and Hessian, gaussian{self._relation}"
        if self.kind == "encoding":
            persons = for_persons(self.rows_per_person)
            return f"encoding: histograms, gaussian{persons}{self._relation}"
        noise = self.noise if np.isfinite(self.epsilon) else "no noise"
        if self.kind == "erasure":
            noise = self.noise
        persons = for_persons(self.rows_per_person)
        return f"{self.kind}: {self.mechanism}, {noise}{persons}{self._relation}"

    @property
    def _relation(self) -> str:
        """The neighbouring relation of the guarantee, where there is one and it is known."""
        if self.relation is None or not self.has_guarantee:
            return ""
        replaced = self.relation == Neighbouring.REPLACE.value
        return f", {relation_words(replaced, self.rows_per_person)}"

    @property
    def has_guarantee(self) -> bool:
        """Whether there is a guarantee: none of its constants is infinite."""
        return "infinity" not in self.guarantee.to_json().values()

    def to_json(self) -> dict[str, Any]:
        """Return the fields of this line, but a ``rows_per_person`` of 1 and what is not known."""
        fields = to_fields(self)
        if self.rows_per_person == 1:
            del fields["rows_per_person"]
        return fields

    @classmethod
    def from_json(cls, value: Any) -> "Entry":
        """Invert :meth:`to_json`; refuse every value that it could not have written."""
        entry = from_fields(cls, value)
        if entry.to_json() != value:
            raise InvalidInput("an entry holds fields that do not belong there; it was edited.")
        return entry


def _date(text: Any) -> None:
    try:
        datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
    except (TypeError, ValueError):
        raise InvalidInput("made: must be a moment in UTC, as 2026-01-31T12:00:00Z.") from None


def now() -> str:
    """Return this moment in UTC, as a ledger writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, kw_only=True)
class Ledger(Sealed, Displayed):
    """Every listed release of a data set, each once. Curator-only.

    All entries are composed, those of other rows too: the same persons may be in both.

    Attributes
    ----------
    salt : str
        32 random bytes in hexadecimal digits, made with the ledger.
    entries : tuple[Entry, ...]
        In the order in which they were listed.
    """

    salt: str
    entries: tuple[Entry, ...] = ()

    FORMAT = "expost-ledger/1"
    NOUN = "a whole ledger"
    audience = Audience.CURATOR_ONLY

    def __post_init__(self) -> None:
        # Both checks: fromhex skips blanks, which no salt has.
        if not (
            isinstance(self.salt, str) and len(self.salt) == 64 and len(_bytes_of(self.salt)) == 32
        ):
            raise InvalidInput("salt: must be 64 hexadecimal digits.")
        known = [entry.release for entry in self.entries]
        if len(set(known)) != len(known):
            raise InvalidInput("entries: a release is listed twice; the file was edited.")

    @classmethod
    def new(cls) -> "Ledger":
        """Return an empty ledger with a new salt.

        Returns
        -------
        Ledger
            The ledger; nothing is written.
        """
        return cls(salt=secrets.token_hex(32))

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"Ledger({len(self)} releases)"

    def holds(self, release: str) -> bool:
        """Return whether the release with this checksum is listed.

        Parameters
        ----------
        release : str
            The checksum of a model.json or report.json.

        Returns
        -------
        bool
            True if it is listed.
        """
        return any(entry.release == release for entry in self.entries)

    def of_run(self, run: str, kind: str) -> tuple[str, ...]:
        """Return the checksums of the releases of this kind that one run made.

        Parameters
        ----------
        run : str
            The identifier of the run.
        kind : str
            The kind of release: "model", "report" or "encoding".

        Returns
        -------
        tuple[str, ...]
            The checksums in the order of the entries.
        """
        return tuple(
            entry.release for entry in self.entries if (entry.run, entry.kind) == (run, kind)
        )

    def digest(self, X: Any, y: Any) -> str:
        """Return the salted digest of rows and labels, in their order.

        Parameters
        ----------
        X, y : Any
            The rows and their labels.

        Returns
        -------
        str
            The digest in hexadecimal digits. It can only be compared within this ledger.
        """
        return self.salted(content_of(X, y))

    def salted(self, content: bytes) -> str:
        """Return the salted digest of rows from the unsalted ``content``: a keyed BLAKE2b.

        Parameters
        ----------
        content : bytes
            The unsalted digest of the rows; see :mod:`expost.files.digest`.

        Returns
        -------
        str
            The digest in hexadecimal digits.
        """
        return hashlib.blake2b(content, key=_bytes_of(self.salt), digest_size=32).hexdigest()

    def with_entries(self, entries: Sequence[Entry]) -> "Ledger":
        """Return the ledger with the entries whose release it does not list yet.

        Parameters
        ----------
        entries : Sequence[Entry]
            The entries to append.

        Returns
        -------
        Ledger
            A new ledger; this one is unchanged.
        """
        listed = {entry.release: entry for entry in self.entries}
        for entry in entries:
            listed.setdefault(entry.release, entry)
        return replace(self, entries=tuple(listed.values()))

    @property
    def epsilon_by_addition(self) -> float:
        """Σε, infinite where a release has no guarantee."""
        return summed_up(
            entry.epsilon if entry.has_guarantee else math.inf for entry in self.entries
        )

    @property
    def delta_by_addition(self) -> float:
        """Σδ, at most 1."""
        return min(summed_up(entry.delta for entry in self.entries), 1.0)

    @property
    def guarantee(self) -> Composition:
        """The guarantee of all releases together."""
        if not self.entries:
            raise InvalidInput("entries: the ledger lists no release yet.")
        return Composition(parts=tuple(entry.guarantee for entry in self.entries))

    def composed(self, delta: float, *, prior: float = 0.5) -> CompositionComparison:
        """Return ε at ``delta``, posterior and advantage by each composition theorem.

        Parameters
        ----------
        delta : float
            The δ at which ε is reported, in (0, 1).
        prior : float, default=0.5
            The attacker's probability of presence before the releases.

        Returns
        -------
        CompositionComparison
            One row for each theorem.

        Raises
        ------
        InvalidInput
            If the ledger lists no release, or a guarantee that cannot be composed.
        InvalidInput
            If the ledger lists no release, a guarantee cannot be composed, or a probability is out
            of range.
        """
        return compare_compositions(self.guarantee.parts, delta=delta, prior=prior)

    # -- the file ----------------------------------------------------------------------------

    def content(self) -> dict[str, Any]:
        """Return the salt and the entries.

        Returns
        -------
        dict[str, Any]
            The fields of the file.
        """
        return {"salt": self.salt, "entries": [entry.to_json() for entry in self.entries]}

    @classmethod
    def from_content(cls, value: dict[str, Any]) -> Self:
        """Return the ledger with this salt and these entries.

        Parameters
        ----------
        value : dict[str, Any]
            The fields of the file.

        Returns
        -------
        Self
            The checked ledger.

        Raises
        ------
        InvalidInput
            If a field is missing or invalid.
        """
        return cls(salt=value["salt"], entries=tuple(map(Entry.from_json, value["entries"])))


@dataclass(frozen=True, kw_only=True)
class ListedRelease:
    """One release.

    Parameters
    ----------
    ledger : Path | None
        The ledger that lists it, or None.
    rows : str
        A letter for the rows that it was made from, the same for the same rows; "?" where that is
        not known.
    """

    entry: Entry
    ledger: Path | None
    rows: str


@dataclass(frozen=True, kw_only=True)
class Listing(Displayed):
    """Releases out of ledgers and files, each once, and what all of them spend at δ."""

    releases: tuple[ListedRelease, ...]
    delta: float

    audience = Audience.NEEDS_REVIEW

    @classmethod
    def of(
        cls, entries: Iterable[tuple[Entry, Path | None]], delta: float | None = None
    ) -> "Listing":
        """Return a listing of entries, each with the ledger that lists it.

        ``delta``: by default 1e-5, or the sum of those of the releases if that is more.
        """
        letters: dict[tuple[Path | None, str], str] = {}
        releases = []
        for entry, ledger in entries:
            rows = "?"
            if entry.data is not None:
                rows = letters.setdefault((ledger, entry.data), _letter(len(letters)))
            releases.append(ListedRelease(entry=entry, ledger=ledger, rows=rows))
        if delta is None:
            own = min(math.fsum(release.entry.delta for release in releases), 0.5)
            delta = max(_DELTA, own)
        elif delta != 0:
            delta = _checks.probability("delta", delta)
        return cls(releases=tuple(releases), delta=delta)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entry of each release."""
        return tuple(release.entry for release in self.releases)

    @property
    def has_guarantee(self) -> bool:
        """Whether all of them guarantee something; else together they guarantee nothing."""
        return bool(self.releases) and all(entry.has_guarantee for entry in self.entries)

    @cached_property
    def comparison(self) -> CompositionComparison | None:
        """Their composition by each method; None where nothing is guaranteed."""
        if not self.has_guarantee:
            return None
        parts = tuple(entry.guarantee for entry in self.entries)
        return compare_compositions(parts, delta=self.delta)

    @property
    def loss(self) -> float:
        """The largest privacy loss of all of them together, except with probability δ."""
        return math.inf if self.comparison is None else self.comparison.row("pld").loss

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of releases without a guarantee, with a seed, with constants of the data, ….

        Also of releases that no ledger lists, and of sets of rows.
        """
        entries = self.entries
        return {
            "without_guarantee": sum(not entry.has_guarantee for entry in entries),
            "seeded": sum(entry.seeded for entry in entries),
            "read_from_data": sum(entry.read_from_data > 0 for entry in entries),
            "unlisted": sum(release.ledger is None for release in self.releases),
            "sets_of_rows": len({release.rows for release in self.releases} - {"?"}),
        }

    @property
    def rows_per_person(self) -> int:
        """The number of rows of a person that all of them cover."""
        return min((entry.rows_per_person for entry in self.entries), default=1)

    def scalars(self) -> dict[str, Any]:
        """Return the public figures: how many releases, and the ε that they compose to."""
        comparison = self.comparison
        epsilon = math.inf if comparison is None else comparison.row("pld").epsilon
        return {
            "n_releases": len(self.releases),
            "delta": self.delta,
            "epsilon": epsilon if epsilon < math.inf else "infinity",
        }

    def to_json(self) -> dict[str, Any]:
        """Return the releases and what they spend, ready for ``json.dumps``."""
        return {
            "releases": [
                {
                    **{
                        name: value
                        for name, value in release.entry.to_json().items()
                        if name not in ("data", "run")
                    },
                    "data": release.rows,
                    "ledger": None if release.ledger is None else str(release.ledger),
                }
                for release in self.releases
            ],
            "delta": self.delta,
            "together": None if self.comparison is None else self.comparison.fields(),
            **self.counts,
        }


def _letter(index: int) -> str:
    """Return A, B, …, Z, A2, … for 0, 1, …."""
    turn, letter = divmod(index, len(_LETTERS))
    return _LETTERS[letter] + (str(turn + 1) if turn else "")


class Listable(Protocol):
    """The document of a release, as :class:`expost.Release`."""

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Return the document that was written as ``value``, or raise :class:`InvalidInput`."""

    def entries(
        self, written: Mapping[str, Any], *, name: str, made: str, data: str | None
    ) -> tuple[Entry, ...]:
        """Return what the document ``written`` releases, a line each.

        The lines take their checksums from ``written``: of a document from another machine the
        derived fields, and so the checksum, may be others here.
        """


def entries_of(path: Path, *, data: str | None = None) -> tuple[Entry, ...]:
    """Return what a model.json or a report.json releases: the model, and what the report added."""
    value = read_json(path)
    kind = value.get("format") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in DOCUMENTS:
        raise InvalidInput(
            f"{path}: is neither a released model nor a published report nor a ledger; name a"
            " model.json, a report.json, a ledger, or their folder."
        )
    module, name = DOCUMENTS[kind]
    document: type[Listable] = getattr(import_module(module), name)
    try:
        return document.from_json(value).entries(value, name=str(path), made=now(), data=data)
    except ExpostError as error:
        raise InvalidInput(f"{path}: is damaged ({error})") from None


def ledger_path(path: str | Path) -> Path:
    """Return the path of the ledger: ``path`` itself, or the ledger in the folder ``path``."""
    path = Path(path)
    if path.is_dir():
        return path / NAME
    if not path.suffix:
        raise InvalidInput(
            f"ledger={str(path)!r}: must be a file whose name ends in .json, or an existing folder."
        )
    return Audience.CURATOR_ONLY.path(path)


# A ledger is not part of a folder's list of files: the commands of several folders may share it.
@listed_by(None)
def append(path: Path, entries: Callable[[Ledger], Sequence[Entry]]) -> Ledger:
    """List the entries that ``entries`` returns in the ledger at ``path``; create it if needed.

    All of them or none, and on the disk before this returns. Two processes that append at once wait
    for each other: neither removes what the other has listed.
    """
    # A link to a ledger elsewhere stays a link: its target is replaced.
    path = path.resolve()
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
                write_json(path, Audience.CURATOR_ONLY, ledger.to_json())
                sync_folder(path.parent)
            return ledger


def list_release(ledger: str | Path, release: str | Path, X: Any = None, y: Any = None) -> Ledger:
    """List a model.json or report.json that was made in Python, and return the ledger.

    Parameters
    ----------
    ledger : str or Path
        The file of the ledger, or the folder that it lies in; created if it does not exist.
    release : str or Path
        The model.json or report.json.
    X, y : arrays, default=None
        The rows behind the release, so that releases of other rows are recognised.

    Returns
    -------
    Ledger
        The ledger with the release.

    Raises
    ------
    InvalidInput
        If a file cannot be read, or only one of X and y is given.
    """
    path = ledger_path(ledger)
    if not path.parent.is_dir():
        raise InvalidInput(f"ledger={str(path)!r}: its folder does not exist; create it.")
    if (X is None) is not (y is None):
        raise InvalidInput("X, y: pass both, or neither.")
    # Read before the ledger is touched: an invalid file must not create one.
    listed = entries_of(Path(release))

    def entries(before: Ledger) -> list[Entry]:
        data = None if X is None else before.digest(X, y)
        return [replace(entry, data=data) for entry in listed]

    return append(path, entries)


def _start(path: Path, ledger: Ledger) -> bool:
    """Write the first ledger; return False where another process was quicker."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        write_json(draft, Audience.CURATOR_ONLY, ledger.to_json())
        # A link appears completely, and never replaces an existing file.
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Lock the ledger at ``path``; yield False where it is no longer the file that was opened."""
    problem = InvalidInput(
        f"ledger={str(path)!r}: this system has no file locks, and two programs could lose an"
        " entry; release on Linux or macOS, on a local disk."
    )
    if not can_replace_locked():
        raise problem
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        yield False
        return
    try:
        try:
            lock(handle, wait=True)
        except OSError:
            raise problem from None
        try:
            same = os.path.samestat(os.fstat(handle), path.stat())
        except FileNotFoundError:
            same = False
        yield same
    finally:
        os.close(handle)


def ledger_notice(path: str | Path) -> str | None:
    """Return a notice if the ledger next to a model.json does not list it; else None."""
    model = Path(path)
    ledger_file = model.parent / NAME
    if not ledger_file.is_file():
        return None
    try:
        ledger = Ledger.load(ledger_file)
        missing = [entry for entry in entries_of(model) if not ledger.holds(entry.release)]
    except ExpostError as error:
        return f"The ledger next to the model cannot be used: {error}"
    if not missing:
        return None
    return (
        f"{model} is not in the ledger next to it, {ledger_file}: its privacy loss is not counted"
        f" there; list it with: expost ledger {ledger_file} --add {model}"
    )


def _bytes_of(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise InvalidInput("salt: must be 64 hexadecimal digits.") from None
