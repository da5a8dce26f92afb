"""Summaries of every kind of page: small, seeded, with a given date and given versions."""

from dataclasses import replace
from functools import cache

import numpy as np

import expost
from expost.report import Accuracy, Choice, Headline, Origin, Summary, collect
from expost.report.ledger_part import LedgerPart, ListedRelease
from expost.report.risk_part import added_up, added_up_heading
from expost.risk import GaussianNoise, compare_compositions

from .audits import audited
from .conftest import HOSTILE, fitted, noiseless, synthetic
from .epsilon_choices import chosen
from .results import sweep, transcript

# Not what is installed: a page must not change with that.
GIVEN = {"versions": {"expost": "1.0", "numpy": "2.0"}, "made": "2026-11-16"}
OWNER = np.random.default_rng(1).permutation(np.minimum(np.arange(60) // 3, 14))


def _profile(*, persons=False, hostile=False, **options):
    release, X, y, profile = fitted(rows=60, **options)
    if persons:
        profile = expost.profile(release, X, y, persons=[f"person {place}" for place in OWNER])
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


def _published(*, answers=False, **options):
    """As if its noise had come from no seed: else nothing could be published, or kept."""
    release, _, _, _ = fitted(rows=60, **options)
    report = expost.publish(replace(release, seeded=False))
    asked = {f"column {place}": 0.5 for place in range(3)}
    return collect(report, answers=report.lookup(asked) if answers else (), **GIVEN)


def _ledger():
    """Two releases of one table, the second of which promises nothing, and three that do."""
    found = compare_compositions([GaussianNoise(mu=0.2)] * 3, delta=1e-5)
    entry = {"what": "logistic, Laplace noise", "delta": 0.0, "rows": 60, "data": "A"}
    part = LedgerPart(
        model="",
        headline=Headline(epsilon="Two releases are known.", advice="Look before the next."),
        releases=(
            ListedRelease(
                listed="2026-11-16 09:00", release="00ff", epsilon=2.0, file="a.json", **entry
            ),
            ListedRelease(listed=None, release="01fe", epsilon=np.inf, file="b.json", **entry),
        ),
        ways=tuple(added_up(found)),
        ways_heading=added_up_heading(found),
        made=GIVEN["made"],
    )
    return Summary.of({"ledger": part}, GIVEN["versions"])


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
    "epsilon-unmeasured": lambda: collect(chosen("unmeasured"), **GIVEN),
    "epsilon-none": lambda: collect(chosen("none"), **GIVEN),
    "audit": lambda: collect(audited("promised"), **GIVEN),
    "audit-refuted": lambda: collect(audited("refuted"), **GIVEN),
    "audit-bare": lambda: collect(audited("bare"), **GIVEN),
    "audits": lambda: collect(sweep(), **GIVEN),
    "risk": lambda: collect(expost.identifiability(epsilon=1.0, delta=1e-5), **GIVEN),
    "risk-goal": lambda: collect(expost.identifiability(belief=0.9, delta=1e-5), **GIVEN),
    "published": _published,
    "published-answers": lambda: _published(answers=True),
    "beliefs": lambda: collect(synthetic(40, seed=2).identifiability(0.2), **GIVEN),
    "training": lambda: collect(transcript(), **GIVEN),
    "ledger": _ledger,
    "combined": _combined,
    "public": lambda: _combined().public(),
}


@cache
def summary(kind: str) -> Summary:
    """The summary of one kind; the same object each time."""
    return MAKERS[kind]()
