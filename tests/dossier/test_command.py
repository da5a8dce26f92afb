"""``expost dossier``: its files, their audience and the manifest."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from expost.files.manifest import verify_manifest
from program import mode, names, refused
from test_cli_check import figures_of, keys_of

from .runs import everything, make_results

PUBLIC = {"dossier.html", "dossier.md", "dossier.json", "manifest.json"}
SALTS = {"salts.CURATOR-ONLY.json"}
COPIES = {"result-model.json", "result-report.json"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_results(tmp_path_factory.mktemp("results"))


def assert_clean(text, made):
    """No key, and no curator-only figure to six digits; fewer may stand there by chance."""
    exact = {each for each in figures_of(made) if len(each.lstrip("0.").replace(".", "")) >= 6}
    assert len(exact) > 100
    assert not [each for each in (*exact, *keys_of(made)) if each in text]


def texts(folder):
    """What the command wrote; copies of public results hold many digits, and are compared below."""
    written = sorted(names(folder) - COPIES - SALTS)
    return [(folder / name).read_text() for name in written]


def test_a_public_dossier_holds_no_curator_only_figure_and_no_key(program, made, tmp_path):
    out = tmp_path / "dossier"
    options = (*everything(made), "--context", "public-model", "--out", out)
    done = program("dossier", *options)
    assert (done.code, done.err) == (0, "")
    assert names(out) == PUBLIC | COPIES | SALTS
    assert {mode(out / name) for name in names(out) - SALTS} == {0o644}
    assert {mode(out / name) for name in SALTS} == {0o600}
    as_json = program("dossier", *options, "--force", "--json")
    assert json.loads(as_json.out)["not done"] > 0
    for text in (done.out, as_json.out, *texts(out)):
        assert_clean(text, made)
        # The checksum of a curator-only file is a function of its content.
        assert "profile.CURATOR-ONLY" not in text
    listed = json.loads((out / "manifest.json").read_text())["files"]
    assert set(listed) == names(out) - SALTS - {"manifest.json"}
    results = {each["name"] for each in json.loads((out / "dossier.json").read_text())["results"]}
    assert results == COPIES
    # The copies are the results.
    for copy, result in (("model", "profile/model.json"), ("report", "published/report.json")):
        assert (out / f"result-{copy}.json").read_bytes() == (made / result).read_bytes()


def test_a_curator_only_dossier_is_named_so(program, made, tmp_path):
    out = tmp_path / "dossier"
    options = ("--context", "internal", "--audience", "curator-only", "--out", out)
    done = program("dossier", *everything(made), *options)
    assert (done.code, done.err) == (0, "")
    private = {name.replace(".", ".CURATOR-ONLY.") for name in PUBLIC}
    assert names(out) == private | COPIES | SALTS
    assert {mode(out / name) for name in private} == {0o600}
    value = json.loads((out / "dossier.CURATOR-ONLY.json").read_text())
    assert {each["kind"] for each in value["results"]} >= {"profile", "audit", "ledger", "model"}
    assert any(
        figure["audience"] == "curator-only"
        for item in value["items"]
        for figure in item["figures"]
    )
    # Nothing of that is printed.
    assert_clean(done.out, made)
    # No row is copied.
    for text in texts(out):
        assert "p003" not in text


def test_what_the_curator_reads_is_in_no_public_file(program, made, tmp_path):
    """The very strings of the curator-only figures: rounded figures are no secret less."""
    for audience in ("public", "curator-only"):
        given = ("--context", "public-model", "--audience", audience, "--out", tmp_path / audience)
        assert program("dossier", *everything(made), *given).code == 0
    value = json.loads((tmp_path / "curator-only" / "dossier.CURATOR-ONLY.json").read_text())
    secret = {
        figure["value"]
        for item in value["items"]
        for figure in item["figures"]
        if figure["audience"] != "public"
    }
    digests = {
        each["sha256"] for each in value["results"] if not each["name"].startswith("result-")
    }
    assert len(secret) >= 3
    assert len(digests) >= 3
    public = "".join(texts(tmp_path / "public"))
    assert not [each for each in secret | digests if each in public]
    # Power: they are in the page of the curator.
    page = (tmp_path / "curator-only" / "dossier.CURATOR-ONLY.md").read_text()
    assert all(each in page for each in secret | digests)


def test_verify_finds_an_edit(program, made, tmp_path):
    out = tmp_path / "dossier"
    assert program("dossier", made / "profile", "--context", "api", "--out", out).code == 0
    done = program("verify", out)
    assert (done.code, done.err) == (0, "")
    results = {"model 1", "profile 1", "summary 1", "table of a profile 1"}
    listed = names(out) - SALTS - {"manifest.json"}
    assert {each.name for each in verify_manifest(out)} == listed | results
    path = out / "dossier.md"
    path.write_text(path.read_text().replace("not done", "proved", 1))
    done = program("verify", out)
    assert done.code == 3
    assert "changed" in done.out


def test_verify_finds_an_edited_result(program, made, tmp_path):
    """Of any audience; with its salts, and wherever the results were moved to."""
    results = [Path(shutil.copytree(made / name, tmp_path / name)) for name in ("profile", "audit")]
    out = tmp_path / "dossier"
    assert program("dossier", *results, "--context", "api", "--out", out).code == 0
    manifest = (out / "manifest.json").read_text()
    digests = {
        hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in results
        for path in folder.glob("*.CURATOR-ONLY.*")
    }
    # A plain checksum of a result would answer whether a candidate was in the data.
    assert len(digests) > 5
    assert not [each for each in digests if each in manifest]
    assert program("verify", out).code == 0
    edited = tmp_path / "audit" / "figures.CURATOR-ONLY.json"
    before = edited.read_bytes()
    edited.write_bytes(before.replace(b"0.9", b"0.8", 1))
    done = program("verify", out)
    assert (done.code, "changed      audit 1" in done.out) == (3, True)
    edited.write_bytes(before)
    moved = tmp_path / "moved"
    (tmp_path / "audit").rename(moved)
    done = program("verify", out)
    assert (done.code, "missing      audit 1" in done.out) == (3, True)
    assert program("verify", out, moved).code == 0
    # Without the salts the files are compared, and the output names what was not checked.
    (out / "salts.CURATOR-ONLY.json").unlink()
    done = program("verify", out)
    assert done.code == 0
    assert "not checked  audit 1" in done.out
    assert "Not checked:" in done.out


def test_a_baseline_by_the_name_of_the_risk(program, made, tmp_path):
    out = tmp_path / "dossier"
    given = ("--context", "api", "--baseline", "attribute-inference=0.5", "--out", out)
    assert program("dossier", made / "profile", *given).code == 0
    baselines = json.loads((out / "dossier.json").read_text())["baselines"]
    assert baselines["attribute_inference"] == 0.5


def test_force_replaces_a_dossier_and_its_manifest(program, made, tmp_path):
    out = tmp_path / "dossier"
    given = ("--context", "api", "--out", out)
    assert program("dossier", *everything(made), *given).code == 0
    assert program("dossier", made / "profile", *given).code == 2
    for audience in ("curator-only", "public"):
        done = program("dossier", made / "profile", *given, "--audience", audience, "--force")
        assert done.code == 0, done.err
        assert program("verify", out).code == 0
        assert "result-report.json" not in names(out)


def test_a_model_that_needs_review_gives_no_public_file(program, people_csv, tmp_path):
    model, out = tmp_path / "model", tmp_path / "dossier"
    table = ("--target", "income", "--id", "number", "--out", model)
    assert program("profile", people_csv, *table).code == 0
    assert program("dossier", model, "--context", "api", "--out", out).code == 0
    assert all("CURATOR-ONLY" in name for name in names(out))
    assert program("verify", out).code == 0


def test_mistakes(program, made, tmp_path):
    out = tmp_path / "dossier"
    refused(program("dossier", made / "profile", "--out", out), out, "--context")
    done = program("dossier", tmp_path, "--context", "api", "--out", out)
    refused(done, out, "holds no result")
    given = ("--context", "api", "--out", out)
    refused(program("dossier", made / "profile", made / "after" / "erased", *given), out, "models")
    refused(program("dossier", made / "profile", *given, "--baseline", "2"), out, "--baseline")
    done = program("dossier", made / "profile", "--context", "api", "--out", made / "profile")
    assert done.code == 2
