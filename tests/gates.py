"""Results for tests of policies: small stored files, and folders of real runs."""

import json
from pathlib import Path

from expost.jobs.audit import run as run_audit
from expost.jobs.requests import AuditRequest
from program import people, text
from runs import make_release

MODEL = "a model"


def write_profile(
    folder: Path, low, high, *, fit=None, model=MODEL, identity=None, count=None, exceeded=False
) -> Path:
    """Write a profile whose rows have these certified intervals."""
    folder.mkdir(parents=True, exist_ok=True)
    value = {
        "format": "expost-profile/2",
        "model": model,
        "identity": identity,
        "figures": {"count": len(low) if count is None else count},
        "fit": fit,
        "guarantee_exceeded": exceeded,
        "table": {"loss_low": list(low), "loss_high": list(high)},
    }
    path = folder / "profile.CURATOR-ONLY.json"
    path.write_text(json.dumps(value))
    return path


def write_audit(
    folder: Path, *, model=MODEL, identity=None, refuted=False, shift=None, **attacks
) -> Path:
    """Write an audit; an attack is (estimate, upper end) of its AUC and of its TPR at both rates."""
    folder.mkdir(parents=True, exist_ok=True)

    def interval(value, high):
        return {"value": value, "low": 0.0, "high": high, "confidence": 0.95}

    names = ("auc", "tpr_at_1_percent", "tpr_at_01_percent")
    figures = {
        name.replace("_", "-"): dict(zip(names, (interval(*pair) for pair in pairs), strict=True))
        for name, pairs in attacks.items()
    }
    value = {
        "format": "expost-audit/1",
        "model": model,
        "identity": identity,
        "attacks": figures,
        "guarantee": None,
        "guarantee_refuted": refuted,
        "lower_bounds": [],
        "shift": shift,
    }
    path = folder / "figures.CURATOR-ONLY.json"
    path.write_text(json.dumps(value))
    return path


def make_gate(folder: Path) -> Path:
    """A release with its profile, a published report, and an audit of the same model."""
    make_release(folder)
    others = [
        [f"q{cells[0]}", *cells[1:]] if index else cells
        for index, cells in enumerate(people(seed=7))
    ]
    (folder / "others.csv").write_text(text(others))
    run_audit(
        AuditRequest(
            source=str(folder / "people.csv"),
            name="people.csv",
            target="income",
            id_column="number",
            model=folder / "profile" / "model.json",
            holdout=str(folder / "others.csv"),
            out=folder / "audit",
            references=4,
            seed=0,
        )
    )
    return folder


def edited_audit(made: Path, to: Path, **changes) -> Path:
    """The figures of the audit with other values; without the list of files that tells of it."""
    to.mkdir(parents=True)
    value = json.loads((made / "audit" / "figures.CURATOR-ONLY.json").read_text())
    (to / "figures.CURATOR-ONLY.json").write_text(json.dumps(value | changes))
    return to
