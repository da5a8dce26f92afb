"""The document of a ledger: its releases, and what they spend together."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

from expost.ledger import NAME, Ledger, Listing
from expost.report import document_of, render_markdown
from expost.types import Audience

from .cells import certainty_up, check_document, column, rounded_up, tables
from .conftest import HOSTILE
from .results import ledger

FOLDER = Path(NAME)


def listing(entries, **options):
    return Listing.of([(entry, FOLDER) for entry in entries], **options)


def releases_table(document):
    return next(each for each in tables(document) if each.columns[1].title == "release")


def test_the_figures_are_those_of_the_releases():
    """Their sides are tested in test_printed_bounds.py."""
    entries = ledger().entries
    result = listing(entries, delta=1e-3)
    document = document_of(result)
    check_document(document)
    assert document.audience is Audience.NEEDS_REVIEW
    shown = releases_table(document)
    assert column(shown, "ε")[1] == [entry.epsilon for entry in entries]
    assert column(shown, "δ")[1] == [entry.delta for entry in entries]
    (text,) = (
        block.text
        for block in document.sections[0].blocks
        if getattr(block, "text", "").startswith("By addition")
    )
    book = Ledger(salt="0" * 64, entries=entries)
    assert rounded_up(re.search("ε = (.*?),", text)[1], book.epsilon_by_addition)
    least = result.comparison.row("pld")
    assert rounded_up(re.search(r"ε = ([^ ;]+)", document.verdict.text)[1], least.epsilon)
    assert certainty_up(re.search(r"at most (.*?%)", document.verdict.more)[1], result.loss)
    (composed,) = (each for each in tables(document) if each.columns[0].title == "composed by")
    assert [row[1] for row in composed.values] == [row.epsilon for row in result.comparison.rows]


def test_a_ledger_is_shown_like_its_listing():
    book = ledger()
    document = document_of(book)
    check_document(document)
    assert document.audience is Audience.CURATOR_ONLY
    assert document.sections == document_of(listing(book.entries)).sections
    assert document_of(book, delta=1e-3).facts["delta"] == 1e-3
    empty = document_of(Ledger(salt="0" * 64))
    check_document(empty)
    assert "No release" in empty.verdict.text


def test_a_release_without_a_guarantee_leaves_none():
    document = document_of(ledger(broken=True))
    check_document(document)
    assert document.verdict.tone == "bad"
    assert [alert.severity for alert in document.alerts] == ["problem"]
    assert releases_table(document).cells[-1][3] == "–"
    assert all(each.columns[0].title != "composed by" for each in tables(document))


def test_alerts_name_what_no_epsilon_counts():
    first, second, third = ledger().entries
    entries = [
        replace(first, seeded=True, data="1" * 64, rows_per_person=3),
        replace(second, read_from_data=2, data="2" * 64, rows_per_person=5),
        third,
    ]
    entries[2] = replace(third, name="a folder/model.json")
    pairs = [(entries[0], FOLDER), (entries[1], FOLDER), (entries[2], None)]
    result = Listing.of(pairs)
    assert result.counts == {
        "without_guarantee": 0,
        "seeded": 1,
        "read_from_data": 1,
        "unlisted": 1,
        "sets_of_rows": 2,
    }
    assert {name: result.to_json()[name] for name in result.counts} == result.counts
    document = document_of(result)
    check_document(document)
    severities = [alert.severity for alert in document.alerts]
    assert severities == ["problem", "review", "review", "note", "note"]
    assert releases_table(document).cells[2][0] == "not listed"
    assert [row[6] for row in releases_table(document).cells] == ["A", "B", "?"]
    (step,) = document.steps
    words = ["expost", "ledger", "a folder", "--add", "a folder/model.json"]
    assert shlex.split(step.text) == words
    assert document_of(Listing.of([(third, None)])).steps == ()


def test_hostile_names_stay_text():
    document = document_of(ledger())
    assert "<script>" not in render_markdown(document).replace("\\<", "")
    name = releases_table(document).values[0][7]
    assert len(name) <= 60
    assert "\n" not in name
    assert HOSTILE.split("\n")[0][-5:] in name
