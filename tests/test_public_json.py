"""Standard output ends in build logs: figures of rows must be asked for."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import expost
from expost.errors import InvalidInput
from expost.report import parse_json
from expost.types import Audience

PUBLIC = {"epsilon", "delta", "mechanism", "noise", "loss", "n", "files"}
SECRET = ("summary", "accuracy", "exposure", "posterior", "auc", "recommended", "command", "p0")


def out_of(program, *words):
    done = program(*words)
    assert done.code in (0, 3), done.err
    return json.loads(done.out)


def test_json_has_public_scalars_alone(program, people_csv, tmp_path):
    table = (people_csv, "--target", "income", "--id", "number", "--seed", "1")
    value = out_of(program, "profile", *table, "--out", tmp_path / "a", "--json")
    assert value.keys() == PUBLIC
    assert (value["epsilon"], value["n"]) == (1.0, 60)
    chosen = out_of(program, "epsilon", *table, "--folds", "0", "--out", tmp_path / "b", "--json")
    assert chosen.keys() == {"n", "files"}
    audited = out_of(
        program, "audit", people_csv, "--target", "income", "--id", "number", "--references", "2",
        "--estimator", "sklearn.tree.DecisionTreeClassifier", "--out", tmp_path / "c", "--json",
    )  # fmt: skip
    assert audited.keys() == {"n", "attacks", "files"}
    listed = out_of(program, "ledger", tmp_path / "a", "--json")
    assert listed.keys() == {"n_releases", "delta", "epsilon", "files"}
    for answer in (value, chosen, audited, listed):
        text = json.dumps({name: answer[name] for name in answer if name != "files"})
        assert not any(word in text for word in SECRET)


def test_curator_figures_are_printed_if_they_are_asked_for(program, people_csv, tmp_path):
    table = (people_csv, "--target", "income", "--id", "number", "--seed", "1")
    value = out_of(program, "profile", *table, "--out", tmp_path / "a", "--json-curator")
    assert value.keys() == PUBLIC | {"summary"}
    (document,) = parse_json(json.dumps(value["summary"])).documents
    assert document.audience is Audience.CURATOR_ONLY
    profile = json.loads((tmp_path / "a" / "profile.CURATOR-ONLY.json").read_text())
    assert document.facts["largest_loss"] == max(
        pq.read_table(tmp_path / "a" / profile["table"])["loss_high"].to_pylist()
    )
    tiles = {tile.label: tile.value for tile in document.tiles}
    assert tiles["Useful?"] == f"AUC {profile['fit']['auc']:.3f}"


@pytest.fixture
def profile():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.where(X[:, 0] + rng.normal(size=60) > 0, "yes", "no")
    model = expost.PrivateLogisticRegression(epsilon=0.5, classes=("no", "yes"), data_norm=9.0)
    return expost.profile(model.fit(X, y), X, y)


def test_a_result_is_a_dict_for_an_audience(profile):
    public = profile.to_dict()
    assert public == profile.to_dict(audience="public") == profile.to_dict(Audience.NEEDS_REVIEW)
    assert public.keys() == PUBLIC - {"files"}
    assert (public["epsilon"], public["n"]) == (0.5, 60)
    whole = profile.to_dict(audience="curator-only")
    assert whole.keys() > public.keys()
    assert len(whole["table"]["loss"]) == 60
    with pytest.raises(InvalidInput, match="audience='nobody': must be one of 'curator-only'"):
        profile.to_dict(audience="nobody")
