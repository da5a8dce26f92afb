"""The pages that the tests open, by kind; each is made from results as a user would get them."""

import csv
import tempfile
from functools import cache, reduce
from operator import or_
from pathlib import Path

import expost
from expost.datasets import load_adult
from expost.jobs.profile import ProfileJob, run
from expost.report import Summary, collect, render_html
from program import people
from report import summaries
from report.conftest import fitted

KINDS = ("profile", "epsilon", "audit", "risk", "published", "combined", "public")
# A part of every kind there is.
_ALL = (
    "training",
    "profile-persons",
    "epsilon",
    "risk",
    "published-answers",
    "audit",
    "audits",
    "ledger",
)
PEOPLE = 240
# Adult has so many.
MANY = 48_842


def page(kind: str) -> str:
    """The page, as text."""
    return render_html(summary(kind))


@cache
def summary(kind: str) -> Summary:
    """What the page of a kind shows."""
    match kind:
        case "profile":
            # Only the law of output perturbation over ε is known: its page has a slider.
            noise = {"mechanism": "output", "noise": "laplace"}
            return profiled(people(PEOPLE), target="income", id_column="number", **noise)
        case "combined":
            # A training brings a profile and beliefs too; those of persons come after it.
            parts = [summaries.summary(one).by_name for one in _ALL]
            return Summary.of(reduce(or_, parts), summaries.GIVEN["versions"])
        case "public":
            return summary("combined").public()
        case "large":
            release, X, y, _ = fitted(rows=MANY)
            ids = [f"person {row}" for row in range(MANY)]
            return collect(expost.profile(release, X, y, ids=ids), release=release)
        case "adult":
            table = load_adult().table.drop_columns(["split"])
            columns = (table.column(name).to_pylist() for name in table.column_names)
            rows = ([*map(str, row)] for row in zip(*columns, strict=True))
            return profiled([table.column_names, *rows], "adult.csv", target="income")
        case _:
            return summaries.summary(kind)


def profiled(table: list[list[str]], name: str = "people.csv", **options: str) -> Summary:
    """The summary that `expost profile` makes of a table in a file of this name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(table)
        out = Path(folder, "out")
        return run(ProfileJob(source=path, name=name, out=out, seed=1, **options)).summary
