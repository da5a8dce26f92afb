"""One small result of every kind, for what holds of all of them; names come from outside."""

import tempfile
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

import expost
from expost.auditing.roc import roc
from expost.auditing.sweep import AuditSweep
from expost.conformance import Claims, Conformance, Finding, Verdict
from expost.dossier import make_dossier
from expost.errors import SeededReleaseWarning
from expost.jobs.requests import ProfileRequest
from expost.ledger import Entry, Ledger
from expost.mechanisms.dpsgd import SGDMechanism, Transcript
from expost.profiles.transcript import individual_epsilon
from expost.publishing.compare import compare
from expost.publishing.publish import ReleasedRows, publish
from expost.risk import EpsilonDelta, GaussianNoise, NormLaplaceNoise, compare_compositions
from expost.selection.tuning import select_regularization

from .audits import audited, bound
from .conftest import HOSTILE, fitted, synthetic
from .epsilon_choices import chosen

ROWS = 120


@cache
def data():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(ROWS, 3))
    X /= 1.01 * np.linalg.norm(X, axis=1).max()
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=ROWS) > 0, HOSTILE, "no")
    return X, y


@cache
def objective():
    """An estimator whose model may be published, with a report's budget."""
    X, y = data()
    model = expost.PrivateLogisticRegression(
        mechanism="objective",
        epsilon=2.0,
        regularization=0.5,
        data_norm=1.0,
        classes=[HOSTILE, "no"],
    )
    return model.fit(X, y)


@cache
def published():
    return publish(objective())


def comparison():
    X, y = data()
    return compare(published(), ReleasedRows.of_arrays(objective().release_, X, y))


def hostile_profile():
    return synthetic(ROWS, ids=tuple(f"{index} {HOSTILE}" for index in range(ROWS)))


def streamed_profile(**options):
    from expost.jobs.profile import run

    X, y = data()
    keys = [f"{index} {HOSTILE}" for index in range(ROWS)]
    columns = {"key": keys, **{f"x{index}": X[:, index] for index in range(3)}, "label": y}
    with tempfile.TemporaryDirectory() as folder:
        job = ProfileRequest(
            source=columns,
            target="label",
            id_column="key",
            out=Path(folder) / "o",
            name=HOSTILE,
            engine="local:1",
            **options,
        )
        return run(job).profile


def grouping():
    column = np.where(np.arange(ROWS) % 3 == 0, HOSTILE, "south")
    column[:40] = "$north$"
    return hostile_profile().by(column, name=HOSTILE)


def explanation():
    X, _ = data()
    return hostile_profile().explain(X, feature_names=(HOSTILE, "_b", "$c$"))


def neighbours(columns):
    X, y = data()
    return expost.neighbours(X[:, :columns], y, regularization=0.05)


def coverage():
    def sampler(size, rng):
        return rng.normal(size=(size, 2))

    return expost.noise.empirical_coverage(sampler, [0.0, 0.0], 0.5, 400, random_state=0)


def ledger(*, broken=False):
    def entry(index, epsilon, guarantee):
        return Entry(
            release=f"{index:064x}",
            kind="model",
            made=f"2026-11-{10 + index:02}T09:00:00Z",
            name=f"{HOSTILE}.json",
            mechanism="output",
            noise="laplace",
            epsilon=epsilon,
            delta=0.0,
            guarantee=guarantee,
            dimension=3,
            rows=100,
            seeded=False,
            read_from_data=0,
            data=None,
        )

    entries = [
        entry(position, epsilon, NormLaplaceNoise(separation=epsilon, dimension=3))
        for position, epsilon in enumerate((1.0, 0.5, 2.0))
    ]
    if broken:
        entries.append(entry(9, np.inf, EpsilonDelta(epsilon=np.inf)))
    return Ledger(salt="0" * 64, entries=tuple(entries))


def estimated():
    rng = np.random.default_rng(3)
    loss = rng.normal(size=(20, 30)) * np.linspace(0.1, 2, 30)
    noise = np.full(loss.shape, 0.1)
    noise[0, 0] = np.inf
    return expost.epsilon.EstimatedLosses(
        loss=loss, noise=noise, correction=np.zeros_like(loss), shared=np.full(30, 0.02)
    )


def selected():
    X, y = data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededReleaseWarning)
        return select_regularization(
            X,
            y,
            [0.01, 0.1, 1.0],
            epsilon=2.0,
            data_norm=1.0,
            classes=[HOSTILE, "no"],
            random_state=0,
        )


@cache
def erasure():
    """Of a coupling, with constants that were read from the data and names from outside."""
    X, y = data()
    result = expost.forget(objective(), X, y, remove=[3, 8], fresh=False, requests_independent=True)
    read = (f"the mean of {HOSTILE}",)
    return replace(
        result,
        certificate=replace(result.certificate, read_from_data=read),
        record=replace(result.record, stale_files=(HOSTILE,), other_releases=(HOSTILE,)),
    )


def redrawn():
    X, y = data()
    return expost.forget(objective(), X, y, remove=[3])


@cache
def dossier():
    """Of a published report; names come from outside."""
    with tempfile.TemporaryDirectory() as folder:
        published().save(Path(folder) / "report.json")
        made = make_dossier([folder], context="api", audience="curator-only")
    return replace(made, model=HOSTILE, kinds=(HOSTILE, *made.kinds))


def conformance():
    """Of a trainer that violates a claim; its name comes from outside."""
    right = Finding(
        check="clipping", verdict=Verdict.CONFORMS, evidence="As claimed.", figures={"length": 1.0}
    )
    wrong = Finding(
        check="noise scale",
        verdict=Verdict.VIOLATES,
        evidence=f"{HOSTILE} is claimed.",
        figures={"noise_multiplier_low": 0.48, "noise_multiplier_high": 0.52},
        weakens=True,
        meaning="Less noise.",
        remedy="Add noise.",
    )
    return Conformance(
        claims=Claims(clip=1.0, noise_multiplier=1.0),
        findings=(right, wrong),
        false_alarm=1e-3,
        steps=60,
        name=HOSTILE,
    )


def transcript(*, epochs=4, rate=1.0):
    rng = np.random.default_rng(5)
    mechanism = SGDMechanism(rows=40, noise_multiplier=2.0, clip=1.0, sampling_rate=rate)
    steps = Transcript(mechanism)
    lengths = rng.uniform(0.1, 1.0, 40)
    for _ in range(max(epochs, 1)):
        for _ in range(5):
            inner = rng.normal(size=40) * lengths * mechanism.noise_scale
            steps.add_known(np.arange(40), inner, lengths**2, mechanism.noise_scale)
            steps.end_step()
        if epochs:
            steps.end_epoch()
    return steps


def sweep():
    few = tuple(audited(kind) for kind in ("nothing", "promised", "memorised"))
    return AuditSweep(epsilons=(0.1, 1.0, 10.0), audits=few)


_MAKERS = {
    "answer": lambda: published().lookup(dict.fromkeys(published().form.names, 0.1), "no")[0],
    "attack figures": lambda: audited().figures["loss"],
    "audit": audited,
    "audit without references": lambda: audited("bare"),
    "audit sweep": sweep,
    "certificate": lambda: redrawn().certificate,
    "certificate of a coupling": lambda: erasure().certificate,
    "comparison": comparison,
    "composition": lambda: compare_compositions([GaussianNoise(mu=0.1)] * 20, delta=1e-5),
    "conformance": conformance,
    "coverage": coverage,
    "disparity": lambda: audited().disparity[0],
    "dossier": dossier,
    "epsilon choice": chosen,
    "erasure": erasure,
    "erasure by a redraw": redrawn,
    "estimated losses": estimated,
    "explanation": explanation,
    "grouping": grouping,
    "identifiability": lambda: expost.identifiability(epsilon=1.0, delta=1e-5),
    "identifiability without an epsilon": lambda: expost.identifiability(mu=0.5),
    "individual epsilon": lambda: individual_epsilon(transcript(), 1e-5),
    "ledger": ledger,
    "ledger without a promise": lambda: ledger(broken=True),
    "lower bound": lambda: bound(0.5, method=HOSTILE),
    "neighbours": lambda: neighbours(3),
    "neighbours of two columns": lambda: neighbours(2),
    "profile": hostile_profile,
    "profile without noise": lambda: fitted(epsilon=np.inf)[3],
    "published report": published,
    "release": lambda: objective().release_,
    "release after an erasure": lambda: erasure().release,
    "risk curves": lambda: expost.identifiability(epsilon=1.0).curves(),
    "roc": lambda: roc(audited().scores["loss"], audited().truth),
    "row identifiability": lambda: hostile_profile().identifiability(0.2),
    "row losses": lambda: hostile_profile().losses,
    "row losses without noise": lambda: fitted(epsilon=np.inf)[3].losses,
    "selected regularization": selected,
    "selection cost": lambda: expost.selection.selection_cost([3.0, 2.0, 9.0, 8.5], 1.0, 1.0),
    "streamed profile": streamed_profile,
    "streamed profile without noise": lambda: streamed_profile(epsilon=np.inf),
    "transcript": transcript,
    "transcript of batches": lambda: transcript(rate=0.5),
    "transcript without an epoch": lambda: transcript(epochs=0),
}

# The same object each time.
RESULTS = {name: cache(make) for name, make in _MAKERS.items()}
