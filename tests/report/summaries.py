"""Summaries of every kind of page: small, seeded, with a given date and given versions."""

from functools import cache

import numpy as np

import expost
from expost.report import Accuracy, Choice, Origin, Summary, collect

from .audits import audited
from .conftest import HOSTILE, fitted, noiseless, synthetic
from .epsilon_choices import chosen

# Not what is installed: a snapshot must not change with that.
GIVEN = {"versions": {"expost": "1.0", "numpy": "2.0"}, "made": "2026-11-16"}
OWNER = np.random.default_rng(1).permutation(np.minimum(np.arange(60) // 3, 14))


def _profile(*, persons=False, hostile=False, **options):
    release, X, y, profile = fitted(rows=60, **options)
    if persons:
        profile = expost.profile(release, X, y, groups=[f"person {place}" for place in OWNER])
    name = HOSTILE if hostile else "answer"
    return collect(
        profile,
        release=release,
        groups=[profile.by(y, name=name), profile.by(X[:, 0], name="size")],
        explanation=profile.explain(X, feature_names=[name, "second", "third"]),
        accuracy=Accuracy(released=0.8, base_rate=0.5, noiseless=0.93),
        choices=[Choice(name=name, value=f"2 {name}", origin=Origin.READ)],
        notices=[f"A notice about {name}."],
        source=f"{name}.csv",
        **GIVEN,
    )


def _combined():
    release, _, _, profile = fitted(rows=60)
    results = (profile, chosen("laplace"), audited("promised"))
    risk = expost.identifiability(epsilon=2.0, delta=1e-5)
    return collect(*results, risk, release=release, command="expost profile t.csv", **GIVEN)


MAKERS = {
    "profile-laplace": _profile,
    "profile-gaussian": lambda: _profile(noise="gaussian", delta=1e-5),
    "profile-noiseless": lambda: _profile(epsilon=np.inf),
    "profile-persons": lambda: _profile(persons=True),
    "profile-hostile": lambda: _profile(hostile=True),
    "profile-bare": lambda: collect(synthetic(3), **GIVEN),
    "profile-still": lambda: collect(noiseless(4), **GIVEN),
    "epsilon": lambda: collect(chosen("laplace"), command="expost profile t.csv", **GIVEN),
    "epsilon-gaussian": lambda: collect(chosen("gaussian"), **GIVEN),
    "epsilon-none": lambda: collect(chosen("none"), **GIVEN),
    "audit": lambda: collect(audited("promised"), **GIVEN),
    "audit-refuted": lambda: collect(audited("refuted"), **GIVEN),
    "audit-bare": lambda: collect(audited("bare"), **GIVEN),
    "risk": lambda: collect(expost.identifiability(epsilon=1.0, delta=1e-5), **GIVEN),
    "risk-goal": lambda: collect(expost.identifiability(belief=0.9, delta=1e-5), **GIVEN),
    "combined": _combined,
    "public": lambda: _combined().public(),
}


@cache
def summary(kind: str) -> Summary:
    """The summary of one kind; the same object each time."""
    return MAKERS[kind]()
