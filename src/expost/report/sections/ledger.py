"""The document of a ledger: the releases of a data set, and what they spend together."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from expost.groups.columns import printable
from expost.ledger import NAME, Entry, Ledger, ListedRelease, Listing
from expost.numbers import certainty, count, for_persons, relation_words, summed_up
from expost.report.document import (
    Alert,
    Block,
    Code,
    Document,
    Section,
    Table,
    Text,
    Tile,
    Verdict,
    one_line,
    table,
)
from expost.report.sections.bounds import at_most, exception, up
from expost.report.sections.composition import composition_blocks
from expost.types import Audience

__all__ = ["ledger_document", "listing_document"]

_LONGEST_NAME = 60


def ledger_document(ledger: Ledger, *, delta: float | None = None) -> Document:
    """Return the document of the releases of a ledger; ``delta`` as in :meth:`Listing.of`."""
    listing = Listing.of(((entry, Path(NAME)) for entry in ledger.entries), delta)
    return _document(listing, Audience.CURATOR_ONLY)


def listing_document(listing: Listing) -> Document:
    """Return the document of releases out of ledgers and files."""
    return _document(listing, listing.audience)


def _document(listing: Listing, audience: Audience) -> Document:
    sections = [
        Section(
            id="releases",
            title="Releases",
            nav="Ledger",
            brief=True,
            blocks=tuple(_releases(listing)),
        )
    ]
    if listing.comparison is not None:
        sections.append(
            Section(
                id="composition",
                title="Composition",
                nav="Ledger",
                brief=True,
                blocks=tuple(composition_blocks(listing.comparison)),
            )
        )
    total = len(listing.releases)
    return Document(
        kind="ledger",
        title=f"{_counted(total, 'release')} of a data set",
        audience=audience,
        verdict=_verdict(listing),
        tiles=tuple(_tiles(listing)),
        alerts=tuple(_alerts(listing)),
        steps=tuple(_steps(listing)),
        sections=tuple(sections),
        facts={"releases": total, "delta": listing.delta},
    )


def _counted(total: int, noun: str) -> str:
    return f"{count(total)} {noun}{'' if total == 1 else 's'}"


def _verdict(listing: Listing) -> Verdict:
    if not listing.releases:
        return Verdict(text="No release is listed yet.", priority=10)
    if listing.comparison is None:
        return Verdict(
            text="Together the releases have no privacy guarantee.",
            more="An attacker who sees all of them can become certain.",
            tone="bad",
            priority=10,
        )
    epsilon = listing.comparison.row("pld").epsilon
    slip = f" (δ = {up(listing.delta)})" if listing.delta > 0 else ""
    more = (
        f"An attacker who sees {_all(len(listing.releases))} and knows every other row is"
        f" {at_most(certainty(listing.loss))} certain whether a row was in the data"
    )
    if listing.delta > 0 and listing.loss < float("inf"):
        more += f", {exception(listing.delta)}"
    spend = "The release spends" if len(listing.releases) == 1 else "Together the releases spend"
    return Verdict(
        text=f"{spend} ε = {up(epsilon)}{slip}; every further release adds to it.",
        more=f"{more}.",
        priority=10,
    )


def _all(total: int) -> str:
    return {1: "the release", 2: "both releases"}.get(total, f"all {count(total)} releases")


def _tiles(listing: Listing) -> Iterator[Tile]:
    comparison = listing.comparison
    if comparison is None:
        if listing.releases:
            yield Tile(label="Budget spent", value="no guarantee", tone="bad")
        return
    slip = (f"δ = {up(listing.delta)}",) if listing.delta > 0 else ()
    unit = for_persons(listing.rows_per_person).strip()
    yield Tile(
        label="Budget spent",
        value=f"ε = {up(comparison.row('pld').epsilon)}",
        lines=(*slip, _all(len(listing.releases)), *((unit,) if unit else ())),
    )


def _alerts(listing: Listing) -> Iterator[Alert]:
    counts = listing.counts
    if counts["without_guarantee"]:
        title = f"{_counted(counts['without_guarantee'], 'release')} without a guarantee."
        yield Alert(severity="problem", title=title, text="Together they guarantee nothing.")
    if counts["seeded"]:
        yield Alert(
            severity="problem",
            title=f"{_counted(counts['seeded'], 'release')} with seeded noise.",
            text="Anyone who knows the seed can remove the noise; no ε holds.",
        )
    if counts["read_from_data"]:
        yield Alert(
            severity="review",
            title=f"{_counted(counts['read_from_data'], 'release')} used constants of the data.",
            text="No ε accounts for what these constants reveal.",
        )
    if counts["unlisted"]:
        title = f"{_counted(counts['unlisted'], 'release')} in no ledger."
        yield Alert(severity="review", title=title, text="List it with --add.")
    if counts["sets_of_rows"] > 1:
        yield Alert(
            severity="note",
            title=f"Made from {count(counts['sets_of_rows'])} different sets of rows or columns.",
            text="All count together, because the same people may be among them.",
        )
    if any(entry.rows_per_person > 1 for entry in listing.entries):
        unit = for_persons(listing.rows_per_person).strip() or "for one row of a person"
        yield Alert(severity="note", title=f"Together they hold {unit}.")


def _steps(listing: Listing) -> Iterator[Code]:
    unlisted = [release.entry.name for release in listing.releases if release.ledger is None]
    # A name that cannot be shown as it is cannot be typed either.
    if unlisted and one_line(unlisted[0]) == unlisted[0]:
        file = Path(unlisted[0])
        words = ("expost", "ledger", str(file.parent), "--add", str(file))
        yield Code(text=shlex.join(words), purpose="list the release in the ledger of its folder")


def _releases(listing: Listing) -> Iterator[Block]:
    if not listing.releases:
        return
    yield _table(listing)
    entries = listing.entries
    if listing.has_guarantee and len(entries) > 1:
        epsilon, delta = (
            summed_up(getattr(entry, name) for entry in entries) for name in ("epsilon", "delta")
        )
        replaced = all(entry.relation == "replace" for entry in entries)
        text = (
            f"By addition they spend ε = {up(epsilon, 4)}, δ = {up(delta, 4)},"
            f" {relation_words(replaced)}."
        )
        yield Text(text=text, small=True)


def _table(listing: Listing) -> Table:
    return table(
        listing.releases,
        ("listed (UTC)", _listed, str),
        ("release", lambda release: one_line(release.entry.release[:8]), str),
        ("description", lambda release: one_line(release.entry.description), str),
        ("ε", lambda release: _epsilon(release.entry), _epsilon_text),
        ("δ", lambda release: release.entry.delta, up),
        ("rows", lambda release: release.entry.rows, count),
        ("of", lambda release: one_line(release.rows), str),
        ("file", lambda release: _shortened(release.entry.name), str),
        label=1,
    )


def _listed(release: ListedRelease) -> str:
    made = release.entry.made[:16].replace("T", " ")
    return "not listed" if release.ledger is None else one_line(made)


def _epsilon(entry: Entry) -> float | None:
    return entry.epsilon if entry.has_guarantee else None


def _epsilon_text(epsilon: float) -> str:
    return up(epsilon, 6)


def _shortened(name: str) -> str:
    """Return the end of a long name, which is more specific than its beginning."""
    shown = printable(name, 10 * _LONGEST_NAME)
    return shown if len(shown) <= _LONGEST_NAME else "…" + shown[1 - _LONGEST_NAME :]
