"""``expost card``: public figures alone, metadata and entries that parse, and what is left out."""

import json
import math
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

import expost
from expost.jobs.pages import read_page
from expost.release import Release
from expost.report.card import SCHEMA
from program import mode, names, refused
from runs import make_runs

# The fields of the registry's schema at the commit that the entry names, and the values of those
# that take a choice; fields that the registry requires are marked.
SCHEMA_FIELDS = {
    "basic": {
        "name": True,
        "data_curators": True,
        "description": True,
        "intended_use": True,
        "data_product_type": True,
        "data_product_region": True,
        "data_product_sector": False,
        "publication_date": True,
    },
    "dp_variant": {"variant_name": False, "data_domain": False, "unprotected_quantities": False},
    "privacy_loss": {
        "privacy_unit": False,
        "privacy_unit_details": False,
        "number_of_privacy_units": False,
        "privacy_parameters": False,
        "privacy_parameters_details": False,
    },
    "deployment_model": dict.fromkeys(
        (
            "model_name", "model_name_details", "trust_assumptions", "actors", "release_type",
            "release_type_details", "data_source_type", "data_source_type_details", "access_type",
            "access_type_details",
        ),
        False,
    ),
    "implementation": dict.fromkeys(
        (
            "preprocessing_and_hyperparameter_tuning", "mechanisms", "composition",
            "post_processing", "justification", "utility", "additional_information",
        ),
        False,
    ),
    "administrative": {
        "evidence_sources": False,
        "status": True,
        "registry_authors": True,
        "tier": True,
    },
}  # fmt: skip
CHOICES = {
    "data_product_type": {"Machine learning model"},
    "variant_name": {"Pure DP", "Approximate DP"},
    "model_name": {"Central"},
    "access_type": {"Non-interactive"},
    "status": {"Draft"},
    "tier": {1, 2, 3},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp("card"))


def made(program, out, *arguments):
    done = program("card", *arguments, "--out", out)
    assert done.code == 0, done.err
    card, entry = (out / "card.md").read_text(), (out / "deployment.yaml").read_text()
    _, metadata, body = card.split("---\n", 2)
    return done, yaml.safe_load(metadata), body, entry


def test_the_card_of_a_public_model(program, runs, tmp_path):
    out = tmp_path / "card"
    model = runs / "profile" / "model.json"
    options = ("--name", "org/income", "--license", "apache-2.0", "--baseline", "1/1000")
    done, metadata, body, _ = made(program, out, model, *options)
    release = Release.load(model)
    assert metadata["license"] == "apache-2.0"
    assert metadata["library_name"] == "expost"
    assert metadata["pipeline_tag"] == "tabular-classification"
    assert "differential-privacy" in metadata["tags"]
    assert "model-index" not in metadata, "there is no public evaluation"
    stated = metadata["differential_privacy"]
    answer = expost.identifiability(release, baseline=1 / 1000)
    assert stated["epsilon"] == release.mechanism.epsilon
    assert stated["delta"] == release.mechanism.delta
    assert stated["rows"] == release.mechanism.rows
    assert stated["mu"] == answer.gaussian_dp
    assert stated["mu_error"] == answer.gaussian_dp_error
    assert stated["needs_review"] is False
    assert "# org/income" in body
    assert "Re-identification" in body.replace("\\", "")
    assert mode(out / "card.md") == mode(out / "deployment.yaml") == 0o644
    assert {"card.md", "deployment.yaml"} <= names(out)
    assert "card.md" in done.out


def test_the_entry_has_the_fields_of_the_registry(program, runs, tmp_path):
    model = runs / "profile" / "model.json"
    *_, text = made(program, tmp_path / "card", model, "--name", "org/income")
    assert SCHEMA in text
    entry = yaml.safe_load(text)
    assert entry.keys() == {"url_slug", "deployment"}
    assert entry["url_slug"] == "org-income"
    for section, fields in entry["deployment"].items():
        assert fields.keys() <= SCHEMA_FIELDS[section].keys(), section
        for name in CHOICES.keys() & fields.keys():
            assert fields[name] in CHOICES[name], name
    for section, fields in SCHEMA_FIELDS.items():
        for name, required in fields.items():
            if required and name not in entry["deployment"][section]:
                assert f"    # {name}: FILL IN" in text, "what is missing is marked"
    release = Release.load(model)
    loss = entry["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"] == {
        "epsilon": release.mechanism.epsilon,
        "delta": release.mechanism.delta,
    }
    assert all(isinstance(value, float) for value in loss["privacy_parameters"].values())
    assert loss["number_of_privacy_units"] == release.mechanism.rows


def test_a_filled_in_entry_parses(program, runs, tmp_path):
    model = runs / "profile" / "model.json"
    *_, text = made(program, tmp_path / "card", model)
    filled = re.sub(r"^( *)# (\w+): FILL IN$", r"\1\2: 'x'", text, flags=re.MULTILINE)
    entry = yaml.safe_load(filled)
    assert entry["url_slug"] == "x"
    for section, fields in SCHEMA_FIELDS.items():
        required = {name for name, needed in fields.items() if needed}
        assert required <= entry["deployment"][section].keys()


# --------------------------------------------------------------------------- canaries


def numbers_in(value):
    """Every number of a JSON document that has at least six significant digits."""
    if isinstance(value, dict):
        return set().union(*map(numbers_in, value.values()))
    if isinstance(value, list):
        return set().union(*map(numbers_in, value))
    if isinstance(value, float) and math.isfinite(value):
        digits = re.sub(r"^0+|\.", "", f"{abs(value):.15f}".strip("0"))
        digits = digits.lstrip("0")
        return {digits[:6]} if len(digits) >= 6 else set()
    return set()


def digits_of(text):
    return {run.replace(".", "").lstrip("0")[:6] for run in re.findall(r"\d[\d.]{5,}", text)}


def test_no_curator_only_figure_is_in_a_card(program, runs, tmp_path):
    """Figures of rows, of the audit and of the choice of ε, and the keys of rows."""
    folders = [runs / name for name in ("profile", "published", "audit", "choice")]
    done, *_ = made(program, tmp_path / "card", *folders, "--baseline", "0.01")
    files = [tmp_path / "card" / name for name in ("card.md", "deployment.yaml")]
    # Checksums of released files hold digits that may look like any figure.
    written = re.sub(r"[0-9a-f]{40,64}", "", "".join(path.read_text() for path in files))
    private, tiles = set(), set()
    for folder in folders:
        for path in folder.glob("*CURATOR-ONLY*"):
            if path.suffix == ".json":
                private |= numbers_in(json.loads(path.read_text()))
            if path.suffix == ".parquet":
                private |= numbers_in(pq.read_table(path).to_pydict())
        for path in folder.glob("summary.CURATOR-ONLY.json"):
            for document in read_page(path).documents:
                tiles |= {tile.value for tile in document.tiles}
    public = numbers_in(json.loads((runs / "profile" / "model.json").read_text()))
    private -= public
    assert len(private) > 500
    answer = expost.identifiability(Release.load(runs / "profile" / "model.json"), baseline=0.01)
    allowed = numbers_in(json.loads(answer.to_json()))
    assert not (digits_of(written) & private) - allowed
    planted = sorted(private)[7]
    assert digits_of(f"value 0.{planted}12") & private, "the search finds one that is there"
    shown = {value for value in tiles if value in written.replace("\\", "")}
    known = {tile.value for tile in _public_tiles(answer)} | {"Good"}
    assert not {value for value in shown - known if re.search(r"\d.*\d", value)}
    assert "left out" in done.out
    assert not re.search(r"CURATOR", written)


def _public_tiles(answer):
    from expost.report import document_of

    return document_of(answer).tiles


def test_a_model_that_needs_review_shows_its_guarantee_alone(program, runs, tmp_path):
    X = np.random.default_rng(0).normal(size=(80, 2))
    X /= np.linalg.norm(X, axis=1).max()
    y = np.where(X[:, 0] > 0, "canary-yes", "canary-no")
    with pytest.warns(expost.errors.PrivacyLeakWarning):
        model = expost.PrivateLogisticRegression(data_norm=1.0).fit(X, y)
    path = model.save(tmp_path / "mine.json")
    done, metadata, body, text = made(program, tmp_path / "card", path, "--baseline", "0.1")
    assert "needs review" in done.out
    assert metadata["differential_privacy"]["needs_review"] is True
    assert "mu" not in metadata["differential_privacy"]
    for written in (body, text):
        assert "needs review" in written
        assert "canary" not in written
        assert "mine.json" not in written, "the name of a file may reveal something"
    assert "Attacks beyond membership" not in body


def test_the_unit_of_privacy_is_that_of_the_guarantee(program, tmp_path):
    table = tmp_path / "visits.csv"
    lines = [f"p{i // 2},{i % 7},{'yes' if i % 3 else 'no'}" for i in range(80)]
    table.write_text("\n".join(["person,a,y", *lines, ""]))
    done = program(
        "profile", table, "--target", "y", "--person", "person", "--max-rows-per-person", "2",
        "--epsilon", "2", "--out", tmp_path / "profile",
    )  # fmt: skip
    assert done.code == 0, done.err
    _, metadata, _, text = made(program, tmp_path / "card", tmp_path / "profile" / "model.json")
    assert metadata["differential_privacy"]["unit"] == "user-level"
    loss = yaml.safe_load(text)["deployment"]["privacy_loss"]
    assert loss["privacy_unit"] == "user-level"
    assert "all rows of one person (at most 2)" in loss["privacy_unit_details"].lower()
    assert "number_of_privacy_units" not in loss, "rows are counted, persons are not"


@pytest.mark.filterwarnings("ignore::expost.errors.PrivacyLeakWarning")
def test_a_model_without_a_guarantee(program, tmp_path):
    X = np.random.default_rng(0).normal(size=(80, 2))
    X /= np.linalg.norm(X, axis=1).max()
    model = expost.PrivateLogisticRegression(epsilon=math.inf, data_norm=1.0, classes=[0, 1])
    path = model.fit(X, (X[:, 0] > 0).astype(int)).save(tmp_path / "model.json")
    _, metadata, body, text = made(program, tmp_path / "card", path)
    assert metadata["differential_privacy"]["epsilon"] is None
    assert "No ε is guaranteed" in body
    assert "privacy_loss" not in yaml.safe_load(text)["deployment"]


def test_a_report_counts_what_it_spent(program, runs, tmp_path):
    out = tmp_path / "published"
    done = program(
        "publish", runs / "people.csv", "--target", "income", "--id", "number", "--model",
        runs / "profile" / "model.json", "--kind", "data-dependent", "--epsilon-gradient", "1",
        "--epsilon-hessian", "20", "--ledger", tmp_path / "ledger.CURATOR-ONLY.json", "--out", out,
    )  # fmt: skip
    assert done.code == 0, done.err
    report = expost.PublishedReport.load(out / "report.json")
    _, metadata, _, text = made(
        program, tmp_path / "card", out / "report.json", runs / "profile" / "model.json"
    )
    epsilon, delta = report.spending.together
    assert metadata["differential_privacy"]["epsilon"] == epsilon > report.spending.model[0]
    parameters = yaml.safe_load(text)["deployment"]["privacy_loss"]["privacy_parameters"]
    assert parameters == {"epsilon": epsilon, "delta": delta}


def test_refusals(program, runs, tmp_path):
    out = tmp_path / "out"
    refused(program("card", runs / "audit", "--out", out), out, "no model.json")
    (tmp_path / "empty").mkdir()
    refused(program("card", tmp_path / "empty", "--out", out), out, "holds no release")
    other = tmp_path / "other.json"
    X = np.random.default_rng(1).normal(size=(80, 2))
    X /= np.linalg.norm(X, axis=1).max()
    model = expost.PrivateLogisticRegression(data_norm=1.0, classes=[0, 1])
    model.fit(X, (X[:, 0] > 0).astype(int)).save(other)
    two = program("card", runs / "profile" / "model.json", other, "--out", out)
    refused(two, out, "a card is of one model")
    inside = program("card", runs / "profile", "--out", runs / "profile", "--force")
    assert inside.code == 2
    assert "holds model.json" in inside.message


def test_json_and_force(program, runs, tmp_path):
    out, model = tmp_path / "card", runs / "profile" / "model.json"
    done = program("card", model, "--out", out, "--json")
    assert json.loads(done.out)["epsilon"] == Release.load(model).mechanism.epsilon
    assert program("card", model, "--out", out).code == 2
    assert program("card", model, "--out", out, "--force").code == 0
