"""``expost ledger``: every release of a data set, and what they spend together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from expost import _checks
from expost.errors import InvalidInput
from expost.files.atomic import read_json
from expost.groups.columns import printable
from expost.jobs.output import RELEASES
from expost.ledger import NAME, Entry, Ledger, append, entries_of, ledger_path
from expost.report import Summary
from expost.report.ledger_part import LedgerPart, ListedRelease
from expost.report.parts import Headline, one_line
from expost.report.risk_part import added_up, added_up_heading
from expost.report.wording import count, symbols, upper
from expost.risk import Guarantee
from expost.risk.composition import CompositionComparison, compare_compositions
from expost.risk.wording import belief_sentence
from expost.rounding import at_most, for_persons, relation_words, summed_up, upper_text

__all__ = ["Line", "Listing", "add", "ledger_summary", "listing"]

# The δ at which everything is told, unless the releases' own come to more.
_DELTA = 1e-5
_ANY_LEDGER = Ledger.FORMAT.partition("/")[0] + "/"
_LONGEST_NAME = 60
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ADVICE = (
    "Every further release of these rows adds to this: look here before you make one, and list with"
    " --add what was released elsewhere."
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One release.

    ``ledger``  the ledger that lists it, or None.
    ``rows``    a letter for the rows that it was made from, the same for the same rows; "?" where
                that is not known.
    """

    entry: Entry
    ledger: Path | None
    rows: str


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Releases out of ledgers and files, each once, and what all of them spend at δ."""

    releases: tuple[Line, ...]
    delta: float

    @property
    def parts(self) -> tuple[Guarantee, ...]:
        """What each of them promises."""
        return tuple(line.entry.guarantee for line in self.releases)

    @property
    def is_promised(self) -> bool:
        """Whether all of them promise something; else together they promise nothing."""
        return all(line.entry.is_promised for line in self.releases)

    @cached_property
    def comparison(self) -> CompositionComparison | None:
        """What each way of adding them up gives; None where nothing is promised."""
        return compare_compositions(self.parts, delta=self.delta) if self.is_promised else None

    @property
    def loss(self) -> float:
        """What the evidence of all of them does not pass, but with probability δ."""
        return math.inf if self.comparison is None else self.comparison.row("pld").loss

    def lines(self) -> list[str]:
        """The table, the sums, and what they mean."""
        lines = [_counted(len(self.releases), "release"), "", *_table(self.releases), ""]
        if self.comparison is not None:
            lines += [*self.comparison.lines(), ""]
        return [*lines, *self.sentences()]

    def sentences(self) -> list[str]:
        """What to know, a sentence each."""
        entries = [line.entry for line in self.releases]
        failure = self.delta if self.loss < math.inf else 0.0
        seen = {1: "the release", 2: "both releases"}.get(
            len(entries), f"all {len(entries)} releases"
        )
        said = [belief_sentence(prior=0.5, loss=self.loss, failure=failure, seen=seen)]
        if self.is_promised and len(entries) > 1:
            epsilon, delta = (
                at_most(summed_up(getattr(entry, name) for entry in entries), 4)
                for name in ("epsilon", "delta")
            )
            replaced = all(entry.relation == "replace" for entry in entries)
            said.append(
                f"As they were asked for they add up to epsilon {epsilon}, delta {delta}"
                f" {relation_words(replaced)}."
            )
        unlisted = sum(line.ledger is None for line in self.releases)
        bare = sum(not entry.is_promised for entry in entries)
        seeded = sum(entry.seeded for entry in entries)
        read = sum(entry.read_from_data > 0 for entry in entries)
        rows = {line.rows for line in self.releases} - {"?"}
        if bare:
            said.append(
                f"{_counted(bare, 'release')} promised nothing, so that all promise nothing."
            )
        if seeded:
            said.append(
                f"{_counted(seeded, 'release')} drew noise from a seed: whoever knows it can take"
                " the noise off, and no epsilon holds."
            )
        if read:
            said.append(
                f"{_counted(read, 'release')} used bounds that were read from the data: no epsilon"
                " counts what those give away."
            )
        units = {entry.rows_per_person for entry in entries}
        if max(units) > 1:
            unit = for_persons(min(units)) or " for one row of a person"
            said.append(f"Together they hold{unit}.")
        if len(rows) > 1:
            said.append(
                f"They were made from {len(rows)} different sets of rows or columns; all count"
                " together, for the same people may be among them."
            )
        if unlisted:
            verb, it = ("stands", "it") if unlisted == 1 else ("stand", "them")
            said.append(
                f"{_counted(unlisted, 'release')} {verb} in no ledger: list {it} with --add."
            )
        return said

    def to_json(self) -> dict[str, Any]:
        """The same for a program."""
        return {
            "releases": [
                {
                    **{
                        name: value
                        for name, value in line.entry.to_json().items()
                        if name not in ("data", "run")
                    },
                    "data": line.rows,
                    "ledger": None if line.ledger is None else str(line.ledger),
                }
                for line in self.releases
            ],
            "delta": self.delta,
            "together": None if self.comparison is None else self.comparison.fields(),
            "sentences": self.sentences(),
        }


def add(path: Path, files: Sequence[Path]) -> Path:
    """List these model.json and report.json files in a ledger, which is started if need be."""
    ledger = ledger_path(path)
    if not ledger.parent.is_dir():
        raise InvalidInput(f"ledger={str(ledger)!r}: its folder is not there; make it.")
    # Read before the ledger is touched: either all are listed or none.
    entries = [entry for file in files for entry in entries_of(file)]
    try:
        append(ledger, lambda _: entries)
    except OSError as error:
        raise InvalidInput(
            f"ledger={str(ledger)!r}: cannot be written to ({error.strerror or error})."
        ) from None
    return ledger


def listing(paths: Sequence[Path], delta: float | None = None) -> Listing:
    """What these ledgers, folders, models and reports hold, each release once."""
    found: dict[str, tuple[Entry, Path | None]] = {}
    for path in paths:
        for entry, ledger in _found(path):
            known = found.get(entry.release)
            if known is None or (known[1] is None and ledger is not None):
                found[entry.release] = (entry, ledger)
    if not found:
        raise InvalidInput(f"{paths[0]}: lists no release yet.")
    letters: dict[tuple[Path | None, str], str] = {}
    lines = []
    for entry, ledger in found.values():
        rows = "?"
        if entry.data is not None:
            rows = letters.setdefault((ledger, entry.data), _letter(len(letters)))
        lines.append(Line(entry=entry, ledger=ledger, rows=rows))
    if delta is None:
        own = min(math.fsum(line.entry.delta for line in lines), 0.5)
        delta = max(_DELTA, own)
    elif delta != 0:
        delta = _checks.probability("delta", delta)
    return Listing(releases=tuple(lines), delta=delta)


def _found(path: Path) -> list[tuple[Entry, Path | None]]:
    """The releases at one path, with the ledger that lists each."""
    if not path.is_dir():
        value = read_json(path)
        # Also that of a newer expost, which is refused as what it is.
        if isinstance(value, dict) and str(value.get("format")).startswith(_ANY_LEDGER):
            return [(entry, path) for entry in Ledger.load(path).entries]
        beside = path.parent / NAME
        return _marked(entries_of(path), beside if beside.exists() else None)
    ledger = path / NAME
    listed = [(entry, ledger) for entry in Ledger.load(ledger).entries] if ledger.exists() else []
    files = [path / name for name in RELEASES if (path / name).exists()]
    if not listed and not files and not ledger.exists():
        raise InvalidInput(
            f"{path}: holds neither a ledger nor a model.json or report.json; name the folder of a"
            " release."
        )
    known = ledger if ledger.exists() else None
    return [*listed, *(one for file in files for one in _marked(entries_of(file), known))]


def _marked(entries: Sequence[Entry], ledger: Path | None) -> list[tuple[Entry, Path | None]]:
    """Each as its ledger has it, if that lists it."""
    held = {} if ledger is None else {one.release: one for one in Ledger.load(ledger).entries}
    return [
        (held.get(entry.release, entry), ledger if entry.release in held else None)
        for entry in entries
    ]


def _table(releases: Sequence[Line]) -> list[str]:
    head = ("listed (UTC)", "release", "what", "epsilon", "delta", "n", "rows", "file")
    body = [
        (
            line.entry.made[:16].replace("T", " ") if line.ledger is not None else "not listed",
            line.entry.release[:8],
            line.entry.description,
            upper_text(line.entry.epsilon) if line.entry.is_promised else "no promise",
            upper_text(line.entry.delta),
            str(line.entry.rows),
            line.rows,
            _shortened(line.entry.name),
        )
        for line in releases
    ]
    widths = [max(len(row[column]) for row in (head, *body)) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *body)
    ]


def _shortened(name: str) -> str:
    """The end of a long name, which says more than its beginning."""
    shown = printable(name, 10 * _LONGEST_NAME)
    return shown if len(shown) <= _LONGEST_NAME else "…" + shown[1 - _LONGEST_NAME :]


def _letter(place: int) -> str:
    """A, B, …, Z, A2, …"""
    round_, letter = divmod(place, len(_LETTERS))
    return _LETTERS[letter] + (str(round_ + 1) if round_ else "")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


# -- the page ------------------------------------------------------------------------------------


def ledger_summary(
    found: Listing, *, source: str | None = None, made: str | None = None
) -> Summary:
    """What a page shows of these releases."""
    belief, *others = (symbols(one_line(sentence)) for sentence in found.sentences())
    part = LedgerPart(
        model="",
        headline=Headline(epsilon=_spent(found), exposed=belief, advice=_ADVICE),
        notices=tuple(others),
        source=None if source is None else one_line(source),
        made=made,
        releases=tuple(_release(line) for line in found.releases),
        ways=tuple(added_up(found.comparison)),
        ways_heading=added_up_heading(found.comparison),
    )
    return Summary.of({"ledger": part})


def _spent(found: Listing) -> str:
    total = len(found.releases)
    releases = "One release is" if total == 1 else f"{count(total)} releases are"
    if found.comparison is None:
        return f"{releases} known, and together they promise nothing."
    least = found.comparison.row("pld")
    at = f" at δ = {upper(found.delta)}" if found.delta > 0 else ""
    epsilon = "∞" if least.epsilon == math.inf else upper(least.epsilon)
    spent = "it spends" if total == 1 else "together they spend"
    return f"{releases} known, and {spent} ε = {epsilon}{at}."


def _release(line: Line) -> ListedRelease:
    entry = line.entry
    return ListedRelease(
        listed=None if line.ledger is None else one_line(entry.made[:16].replace("T", " ")),
        release=one_line(entry.release[:8]),
        what=one_line(entry.description),
        epsilon=entry.epsilon if entry.is_promised else math.inf,
        delta=entry.delta,
        rows=entry.rows,
        data=one_line(line.rows),
        file=one_line(entry.name),
    )
