"""Sealed documents: old files load and are written again as they were, and no edit passes."""

import copy
import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from expost.errors import InvalidInput
from expost.files.atomic import write_json
from expost.files.sealed import Sealed, checksum, from_fields, number, plain, to_fields
from expost.ledger import DOCUMENTS, Ledger, entries_of
from expost.publishing.report import PublishedReport
from expost.release import Release
from expost.types import Audience

# Written by expost and stored, so that a change of what is written is seen.
WRITTEN = sorted((Path(__file__).parent / "sealed").glob("*.json"))
CLASSES = {"model": Release, "report": PublishedReport, "ledger": Ledger}


def class_of(path):
    return CLASSES[path.name.partition("-")[0].removesuffix(".json")]


def numbers_at(value, paths):
    for path in paths:
        value_at = value
        for name in path:
            value_at = value_at[name]
        yield value_at


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_a_stored_file_is_written_again_byte_by_byte(path, tmp_path):
    document = class_of(path).load(path)
    # What follows by floating-point work may differ by an ulp on another machine, and only that.
    value = document.to_json()
    written = json.loads(path.read_text("utf-8"))
    inner = document.release if isinstance(document, PublishedReport) else None
    derived = [*document.derived()]
    if inner is not None:
        derived += [("model", *path) for path in inner.derived()]
    assert [*numbers_at(value, derived)] == pytest.approx(
        [*numbers_at(written, derived)], rel=1e-12
    )
    if [*numbers_at(value, derived)] == [*numbers_at(written, derived)]:
        again = write_json(tmp_path / "again.json", document.audience, value)
        assert again.read_bytes() == path.read_bytes()


def test_the_stored_files_are_of_every_kind():
    names = {path.stem for path in WRITTEN}
    assert {"ledger", "report-dependent", "report-independent"} <= names
    assert sum(name.startswith("model-") for name in names) == 7
    formats = {json.loads(path.read_text("utf-8"))["format"] for path in WRITTEN}
    assert formats == {*DOCUMENTS, Ledger.FORMAT}


def test_the_stored_ledger_lists_the_stored_files():
    """The entries that documents return now are those that were listed then."""
    ledger = Ledger.load(next(path for path in WRITTEN if path.stem == "ledger"))
    listed = {entry.release: entry for entry in ledger.entries}
    value_at = [entry for path in WRITTEN if path.stem != "ledger" for entry in entries_of(path)]
    assert {entry.release for entry in value_at} == listed.keys()
    # Of one listing alone; older ones state no relation.
    free = ("made", "name", "data", "run", "relation")
    for entry in value_at:
        old = listed[entry.release]
        assert old.relation in (None, entry.relation)
        assert dataclasses.replace(entry, **{name: getattr(old, name) for name in free}) == old


def test_every_document_of_the_ledger_has_its_format():
    for format, (module, name) in DOCUMENTS.items():
        (document,) = {cls for cls in CLASSES.values() if cls.__module__ == module}
        assert (document.FORMAT, document.__name__) == (format, name)


def leaves(value, path=()):
    """The paths of all fields, of containers too."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, entry in items if isinstance(value, dict | list) else ():
        if isinstance(entry, dict | list):
            yield from leaves(entry, (*path, key))
        else:
            yield (*path, key)


def at(value, path):
    for key in path:
        value = value[key]
    return value


def resealed(value):
    """With checksums that fit, the inner one first."""
    if isinstance(value.get("model"), dict):
        value["model"] = resealed(value["model"])
    fields = {name: field for name, field in value.items() if name != "sha256"}
    return {**fields, "sha256": checksum(fields)}


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_every_field_that_is_taken_out_or_added_is_refused(path):
    """Even if the checksums are computed again."""
    cls, whole = class_of(path), json.loads(path.read_text("utf-8"))
    assert resealed(copy.deepcopy(whole)) == whole
    refused = 0
    for where in leaves(whole):
        edits = []
        if where and isinstance(at(whole, where[:-1]), dict) and where[-1] not in ("sha256", "run"):
            edits.append(lambda value, where=where: at(value, where[:-1]).pop(where[-1]))
        if isinstance(at(whole, where), dict) and where != ("encoding",):
            edits.append(lambda value, where=where: at(value, where).update(note="fine"))
        for edit in edits:
            value = copy.deepcopy(whole)
            edit(value)
            with pytest.raises(InvalidInput):
                cls.from_json(resealed(value))
            refused += 1
    assert refused >= 10


@dataclasses.dataclass(frozen=True)
class Note(Sealed):
    """A small document with a derived number and one that another machine may compute otherwise."""

    text: str
    size: float

    FORMAT = "note/1"
    NOUN = "a note"
    audience = Audience.PUBLIC

    def content(self):
        return {"text": self.text, "size": plain(self.size), "more": {"root": math.sqrt(self.size)}}

    @classmethod
    def from_content(cls, value):
        return cls(value["text"], number(value["size"]))

    def derived(self):
        return [("more", "root")]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"text": "b"}, None),
        ({"more": {"root": math.nextafter(math.sqrt(2), 2)}}, None),
        ({"more": {"root": 1.41421}}, "more.root: does not follow from the other fields"),
        ({"more": {"root": True}}, "must be a number"),
        ({"more": None}, "missing or has the wrong type"),
        ({"size": 2}, "do not agree"),
        ({"size": "2"}, "must be a number"),
        ({"size": "infinity"}, "must be a number"),
        ({"size": 10**400}, "must be a finite number"),
        ({"size": math.nan}, "must be a finite number"),
        ({"size": -1.0}, "missing or has the wrong type"),
        ({"audience": "curator-only"}, "do not agree"),
        ({"meaning": ""}, "do not agree"),
        ({"note": 1}, "do not agree"),
        ({"format": "note/2"}, "format='note/2'"),
        ({"format": ["note/1"]}, "format="),
    ],
)
def test_what_is_refused_of_a_document(edit, words):
    value = Note("a", 2.0).to_json()
    assert Note.from_json(value) == Note("a", 2.0)
    assert [*value] == ["format", "audience", "meaning", "text", "size", "more", "sha256"]
    with pytest.raises(InvalidInput, match=words if "format" in edit else "sha256"):
        Note.from_json(value | edit)
    edited = value | edit
    edited["sha256"] = checksum({name: edited[name] for name in edited if name != "sha256"})
    if words is None:
        Note.from_json(edited)
        return
    with pytest.raises(InvalidInput, match=words):
        Note.from_json(edited)


@pytest.mark.parametrize("value", [None, [], "note/1", 3, {}])
def test_what_is_no_document_is_refused(value, tmp_path):
    with pytest.raises(InvalidInput, match="format=None"):
        Note.from_json(value)
    path = tmp_path / "note.json"
    path.write_text(json.dumps(value))
    with pytest.raises(InvalidInput, match=r"note\.json: is not a note \(format=None"):
        Note.load(path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    name: str
    size: float
    count: int
    certain: bool
    data: str | None
    run: str | None = None


LINE = {"name": "a", "size": "infinity", "count": 3, "certain": True, "data": None}


def test_fields_of_a_dataclass():
    line = Line(name="a", size=math.inf, count=3, certain=True, data=None)
    assert to_fields(line) == LINE
    assert from_fields(Line, LINE) == line
    assert from_fields(Line, LINE | {"run": "b"}) == dataclasses.replace(line, run="b")
    # Integers in a float's place are numbers all the same.
    assert from_fields(Line, LINE | {"size": 2}).size == 2.0


@pytest.mark.parametrize(
    "edit",
    [{"name": 3}, {"name": None}, {"size": "many"}, {"size": True}, {"size": None}, {"count": 3.0},
     {"count": True}, {"certain": 1}, {"data": 4}, {"other": 1}],
)  # fmt: skip
def test_fields_of_other_types_are_refused(edit):
    with pytest.raises(InvalidInput):
        from_fields(Line, LINE | edit)
    for name in LINE:
        with pytest.raises(InvalidInput, match=name):
            from_fields(Line, {key: field for key, field in LINE.items() if key != name})
    for value in (None, [], "line"):
        with pytest.raises(InvalidInput):
            from_fields(Line, value)


def test_numbers_as_json():
    inf = math.inf
    assert plain(np.array([[1.0, inf], [-inf, 0.5]])) == [[1.0, "infinity"], ["-infinity", 0.5]]
    assert plain({"a": (np.float64(2), np.int64(3), "b", None, True)}) == {
        "a": [2.0, 3, "b", None, True]
    }
    assert type(plain(np.float64(2))) is float
    assert plain([math.nan, 1.0], missing=True) == [None, 1.0]
    for value in (math.nan, np.nan, [math.nan], {"a": np.array([np.nan])}):
        with pytest.raises(ArithmeticError, match="not a number"):
            plain(value)
