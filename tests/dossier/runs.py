"""Real results of one small model, made by the commands, for tests of dossiers."""

import shutil
from pathlib import Path

from expost.jobs.forget import run as run_forget
from expost.jobs.requests import ForgetRequest
from gates import make_gate


def make_results(folder: Path) -> Path:
    """A profile, a published report, an audit and a ledger; then a model after an erasure."""
    make_gate(folder)
    # The erasure has a ledger of its own, so that the results above stay as they are.
    after = folder / "after"
    after.mkdir()
    for name in ("people.csv", "people.ledger.CURATOR-ONLY.json", "public.json"):
        shutil.copy(folder / name, after / name)
    run_forget(
        ForgetRequest(
            source=str(after / "people.csv"),
            name="people.csv",
            target="income",
            id_column="number",
            model=folder / "profile" / "model.json",
            remove=("p003",),
            ledger=after / "people.ledger.CURATOR-ONLY.json",
            out=after / "erased",
        )
    )
    return folder


def ledger_of(made: Path) -> Path:
    return made / "people.ledger.CURATOR-ONLY.json"


def everything(made: Path) -> list[Path]:
    """All results of the model before the erasure."""
    return [made / "profile", made / "published", made / "audit", ledger_of(made)]
