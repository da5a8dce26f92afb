"""Manifests: every change is seen, nothing outside the folder is listed or read."""

import hashlib
import json
import os

import pytest

from expost.errors import InvalidInput
from expost.files.manifest import NAMES, Manifest, verify_manifest, write_manifest
from expost.files.sealed import checksum
from program import mode


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "folder"
    (path / "deep" / "er").mkdir(parents=True)
    for name in ("a.json", "deep/b.json", "deep/er/c.json"):
        (path / name).write_text(name)
    return path


FILES = ("a.json", "deep/b.json", "deep/er/c.json")


def statuses(folder) -> dict[str, str]:
    return {file.name: file.status for file in verify_manifest(folder)}


def test_a_manifest_holds_the_checksums_of_its_files(folder):
    path = write_manifest(folder, [*FILES, folder / "a.json"])
    assert (path.name, mode(path)) == ("manifest.json", 0o644)
    listed = json.loads(path.read_text())["files"]
    assert listed == {name: hashlib.sha256(name.encode()).hexdigest() for name in FILES}
    assert statuses(folder) == dict.fromkeys(FILES, "ok")
    # The same files give the same bytes.
    before = path.read_bytes()
    assert write_manifest(folder, reversed(FILES)).read_bytes() == before


def test_the_manifest_of_curator_only_files_is_curator_only(folder):
    (folder / "x.CURATOR-ONLY.json").write_text("x")
    path = write_manifest(folder, ["x.CURATOR-ONLY.json"])
    assert (path.name, mode(path)) == ("manifest.CURATOR-ONLY.json", 0o600)
    assert statuses(folder)["x.CURATOR-ONLY.json"] == "ok"


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_is_seen(folder, name):
    write_manifest(folder, FILES)
    content = bytearray((folder / name).read_bytes())
    for index in range(len(content)):
        content[index] ^= 1
        (folder / name).write_bytes(content)
        assert statuses(folder)[name] == "changed"
        content[index] ^= 1


def test_what_is_missing_or_additional_is_seen(folder):
    write_manifest(folder, FILES[:2])
    (folder / "a.json").unlink()
    (folder / ".expost-manifest.CURATOR-ONLY.json").write_text("the list of the command")
    assert statuses(folder) == {
        "a.json": "missing",
        "deep/b.json": "ok",
        "deep/er/c.json": "additional",
    }


@pytest.mark.parametrize("name", ["../out.json", "/etc/hostname", "deep/../../out.json", ".", ""])
def test_a_file_outside_is_refused(folder, name):
    (folder.parent / "out.json").write_text("x")
    with pytest.raises(InvalidInput):
        write_manifest(folder, [name])
    assert not [each for each in NAMES if (folder / each).exists()]


def test_links_are_refused_when_written_and_seen_when_verified(folder, tmp_path):
    outside = tmp_path / "out.json"
    outside.write_text("a.json")
    (folder / "link.json").symlink_to(outside)
    (folder / "linked").symlink_to(folder / "deep")
    for name in ("link.json", "linked/b.json"):
        with pytest.raises(InvalidInput, match="symbolic link"):
            write_manifest(folder, [name])
    write_manifest(folder, FILES)
    (folder / "a.json").unlink()
    # The same content behind a link is another file.
    (folder / "a.json").symlink_to(outside)
    seen = statuses(folder)
    assert seen["a.json"] == "changed"
    assert seen["link.json"] == seen["linked"] == "additional"
    (folder / "deep").rename(folder / "moved")
    (folder / "deep").symlink_to(folder / "moved")
    assert statuses(folder)["deep/b.json"] == "changed"


def test_pipes_are_not_read(folder):
    os.mkfifo(folder / "pipe")
    with pytest.raises(InvalidInput, match="not a regular file"):
        write_manifest(folder, ["pipe"])


def test_a_manifest_that_was_edited_is_refused(folder):
    path = write_manifest(folder, FILES)
    value = json.loads(path.read_text())
    value["files"]["a.json"] = "0" * 64
    path.write_text(json.dumps(value))
    with pytest.raises(InvalidInput, match="edited or damaged"):
        verify_manifest(folder)


@pytest.mark.parametrize("name", ["../a.json", "/a.json", "a//b", "a\\b", "", "manifest.json"])
def test_a_sealed_manifest_cannot_name_files_outside(folder, name):
    digest = "0" * 64
    with pytest.raises(InvalidInput):
        Manifest(files={name: digest})
    value = Manifest(files={"a.json": digest}).to_json()
    value["files"] = {name: digest}
    value.pop("sha256")
    path = folder / "manifest.json"
    path.write_text(json.dumps({**value, "sha256": checksum(value)}))
    with pytest.raises(InvalidInput):
        verify_manifest(folder)


def test_a_folder_with_two_manifests_or_a_linked_one_is_refused(folder, tmp_path):
    path = write_manifest(folder, FILES)
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(InvalidInput, match="symbolic link"):
        verify_manifest(folder)
    (folder / NAMES[1]).write_text("{}")
    with pytest.raises(InvalidInput, match="two manifests"):
        verify_manifest(folder)
