"""Folders of finished runs, for tests of what is made from them."""

import json
from pathlib import Path

from expost.jobs.audit import run as run_audit
from expost.jobs.epsilon import run as run_epsilon
from expost.jobs.profile import run as run_profile
from expost.jobs.publish import run as run_publish
from expost.jobs.requests import AuditRequest, EpsilonRequest, ProfileRequest, PublishRequest
from program import people, text

# Bounds that are known without the data, so that the model may be published.
ENCODING = {
    "columns": {
        "age": {"mean": 45, "scale": 20},
        "city": {"levels": ["Oslo", "Bergen", "Paris"]},
        "smoker": {"levels": ["true", "false"]},
        "hours": {"mean": 40, "scale": 10, "fill": 40},
    },
    "target": {"classes": ["<=50K", ">50K"]},
    "data_norm": 5,
}
PERSON = ("--set", "age=39", "--set", "city=Oslo", "--set", "smoker=true", "--set", "hours=40")


def make_release(folder: Path) -> Path:
    """people.csv, and of it a profile, its model and a published report."""
    table, encoding = folder / "people.csv", folder / "public.json"
    table.write_text(text(people()))
    encoding.write_text(json.dumps(ENCODING))
    run_profile(ProfileRequest(**_read(folder), out=folder / "profile"))
    model = folder / "profile" / "model.json"
    run_publish(PublishRequest(model=model, out=folder / "published"))
    return folder


def make_runs(folder: Path) -> Path:
    """The same, and a choice of ε and an audit."""
    make_release(folder)
    run_epsilon(
        EpsilonRequest(**_read(folder), out=folder / "choice", folds=0, epsilons=(1.0, 10.0))
    )
    run_audit(
        AuditRequest(
            **_table(folder),
            out=folder / "audit",
            estimator="sklearn.tree.DecisionTreeClassifier",
            references=2,
            seed=0,
        )
    )
    return folder


def _table(folder: Path) -> dict[str, str]:
    return {"source": str(folder / "people.csv"), "target": "income", "name": "people.csv"}


def _read(folder: Path) -> dict[str, object]:
    return {**_table(folder), "encoding": folder / "public.json", "id_column": "number"}
