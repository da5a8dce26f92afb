"""Parts on the disk: whole or absent, found again, and never taken for what they are not."""

import json
import os
import stat

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from expost.errors import InvalidInput
from expost.files.directory import Directory
from expost.files.parts import Part, PartStore, remove_store
from expost.types import Audience


def numbers(start, count):
    return pa.table({"row": list(range(start, start + count))})


@pytest.fixture
def store(tmp_path):
    return PartStore.at(tmp_path / "table.parquet")


def filled(store, parts=3):
    return {index: store.write(index, numbers(10 * index, 10)) for index in range(parts)}


def test_a_part_is_named_by_its_bytes_and_is_the_owners_alone(store):
    part = store.write(7, numbers(0, 3))
    path = store.folder / part.name
    assert path.name.startswith("part-000007-")
    assert (part.index, part.rows) == (7, 3)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    assert store.read(part).equals(numbers(0, 3))
    assert store.write(7, numbers(0, 3)) == part
    assert len(list(store.folder.iterdir())) == 1


def test_finished_parts_are_found_again_and_leftovers_are_removed(store):
    parts = filled(store)
    half = store.folder / ".part-000003-x.parquet.abc.part"
    half.write_bytes(b"half")
    other = store.folder / "notes.txt"
    other.write_text("left alone until the end")
    assert store.finished() == parts
    assert not half.exists()
    assert other.exists()


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"flipped"])
def test_a_damaged_part_is_refused_and_made_again(store, damage):
    parts = filled(store)
    path = store.folder / parts[1].name
    content = path.read_bytes()
    path.write_bytes(damage or content[:-1])
    with pytest.raises(InvalidInput, match=r"is damaged; remove it, and .*--resume"):
        store.read(parts[1])
    assert sorted(store.finished()) == [0, 2]
    assert not path.exists()
    assert store.write(1, numbers(10, 10)) == parts[1]
    assert path.read_bytes() == content


def test_a_part_that_is_gone_is_named(store):
    part = Part(index=0, rows=1, sha256="0" * 64)
    with pytest.raises(InvalidInput, match=r"part-000000-0+\.parquet: is missing"):
        store.read(part)


def test_a_store_is_finished_when_its_manifest_is_there(store):
    parts = filled(store)
    assert not store.is_finished
    with pytest.raises(InvalidInput, match=r"table\.parquet: .*--resume"):
        next(store.tables())
    (store.folder / f"part-000001-{64 * chr(48)}.parquet").write_bytes(b"stray")
    manifest = store.finish(parts, {"unit": "row"})
    assert store.is_finished
    assert store.parts() == tuple(parts.values())
    # A reader of the folder as a table reads these parts and nothing else.
    read = pyarrow.dataset.dataset(store.folder, format="parquet").to_table()
    assert read.column("row").to_pylist() == list(range(30))
    assert pa.concat_tables(store.tables()).equals(read)
    value = json.loads(manifest.read_text())
    assert (value["rows"], value["unit"], value["audience"]) == (30, "row", "curator-only")
    assert [entry["rows"] for entry in value["parts"]] == [10, 10, 10]


def test_a_store_with_a_hole_is_never_finished(store):
    parts = filled(store)
    del parts[1]
    with pytest.raises(ArithmeticError, match="part 1 is missing"):
        store.finish(parts, {})
    assert not store.is_finished


@pytest.mark.parametrize(
    "edit",
    [
        lambda value: value.pop("parts"),
        lambda value: value.update(rows=31),
        lambda value: value.update(format="other/1"),
        lambda value: value["parts"].pop(),
        lambda value: value["parts"][0].update(sha256="0" * 64),
        lambda value: value["parts"][0].pop("rows"),
        lambda value: value.update(parts="none"),
    ],
)
def test_a_manifest_that_was_edited_is_refused(store, edit):
    path = store.finish(filled(store), {})
    value = json.loads(path.read_text())
    edit(value)
    path.write_text(json.dumps(value))
    with pytest.raises(InvalidInput, match=r"_manifest\.json: was not written"):
        store.parts()


def test_the_summary_of_a_part_is_read_without_its_rows(store):
    part = store.write(0, numbers(0, 3).replace_schema_metadata({"expost": "x"}))
    assert store.about(part)[b"expost"] == b"x"
    assert store.read(part, ["row"]).column_names == ["row"]


def test_a_store_that_is_half_removed_is_not_a_finished_one(store, monkeypatch):
    store.finish(filled(store), {})
    unlink, removed = Directory.unlink, []

    def killed(folder, name):
        if removed:
            raise OSError(5, "killed")
        removed.append(name)
        unlink(folder, name)

    monkeypatch.setattr(Directory, "unlink", killed)
    with Directory.open(store.folder.parent) as folder:
        with pytest.raises(OSError, match="killed"):
            remove_store(folder, store.folder.name)
        assert not store.is_finished
        monkeypatch.undo()
        remove_store(folder, store.folder.name)
    assert not store.folder.exists()


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_what_is_not_of_a_store_is_never_removed(store, tmp_path, kind):
    parts = filled(store)
    path, outside = store.folder / "thesis.txt", tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    makers = {
        "file": lambda: path.write_text("mine"),
        "link": lambda: path.symlink_to(outside),
        "folder": path.mkdir,
    }
    makers[kind]()
    with pytest.raises(InvalidInput, match=r"thesis\.txt: was not written by expost"):
        store.finish(parts, {})
    folder = Directory.open(store.folder.parent)
    with folder, pytest.raises(InvalidInput, match=r"thesis\.txt: was not written by expost"):
        remove_store(folder, store.folder.name)
    assert path.exists()
    assert len(store.finished()) == len(parts)
    assert (outside / "kept").read_text() == "kept"


def test_a_part_reaches_the_disk_before_it_is_listed(store, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("flush"), fsync(handle)))
    monkeypatch.setattr(
        os, "replace", lambda *paths, **at: (done.append("appear"), replace(*paths, **at))
    )
    store.write(0, numbers(0, 1))
    assert done == ["flush", "appear", "flush"]


def test_the_audience_of_a_store_is_in_its_manifest(tmp_path):
    store = PartStore.at(tmp_path / "open.parquet", Audience.PUBLIC)
    path = store.finish(filled(store, 1), {})
    assert json.loads(path.read_text())["audience"] == "public"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
