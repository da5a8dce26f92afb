"""The pages that the tests open, by kind; each is made from results as a user would get them."""

import csv
import tempfile
from functools import cache
from pathlib import Path

import expost
from expost._jobs.profile import ProfileJob, run
from expost.report import Summary, collect, render_html
from program import people
from report.audits import audited
from report.conftest import fitted, synthetic
from report.epsilon_choices import chosen

KINDS = ("profile", "epsilon", "audit", "risk", "published", "combined", "public")
# Adult has so many.
MANY = 48_842
PEOPLE = 240


def page(kind: str) -> str:
    """The page, as text."""
    return render_html(summary(kind))


@cache
def summary(kind: str) -> Summary:
    """What the page of a kind shows."""
    match kind:
        case "profile":
            return profiled(people(PEOPLE), target="income", id_column="number")
        case "epsilon":
            return collect(chosen("laplace"), command="expost profile people.csv --epsilon 1")
        case "audit":
            return collect(audited("promised"))
        case "risk":
            return collect(expost.identifiability(epsilon=1.0, delta=1e-5))
        case "published":
            return collect(expost.publish(released()))
        case "combined":
            release, _, _, profile = fitted()
            risk = expost.identifiability(epsilon=2.0)
            published = expost.publish(released())
            results = (profile, chosen("laplace"), risk, published, audited("promised"))
            return collect(*results, release=release)
        case "public":
            return summary("combined").public()
        case "large":
            return collect(synthetic(MANY, ids=[f"person {row}" for row in range(MANY)]))
        case _:
            raise ValueError(kind)


def released() -> expost.Release:
    """A model that may be published: nothing in it was read from the rows, and no seed is known."""
    _, X, y, _ = fitted()
    settings = {"epsilon": 2.0, "regularization": 0.1, "data_norm": 8.0, "classes": ["no", "yes"]}
    return expost.PrivateLogisticRegression(**settings).fit(X, y).release_


def profiled(table: list[list[str]], name: str = "people.csv", **options: str) -> Summary:
    """The summary that `expost profile` makes of a table in a file of this name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(table)
        out = Path(folder, "out")
        return run(ProfileJob(source=path, name=name, out=out, seed=1, **options)).summary
