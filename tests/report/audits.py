"""Audits to report on: put together by hand, of every kind that a page must cope with."""

from functools import cache

import numpy as np

from expost.auditing.disparity import disparity
from expost.auditing.lower_bounds import LowerBound
from expost.auditing.result import Audit, Exposures
from expost.auditing.roc import figures, row_auc
from expost.risk import EpsilonDelta

KINDS = ("promised", "memorised", "refuted", "nothing", "bare", "one attack")
MEMBERS, OTHERS, MODELS = 120, 140, 32


def bound(epsilon, delta=1e-5, method="one run"):
    """A bound that nobody proved."""
    return LowerBound(
        epsilon=epsilon,
        delta=delta,
        confidence=0.95,
        method=method,
        detail="20 of 21 guesses right",
        most=4.25,
        assumption="fair coins",
    )


def references(strength, seed=3):
    """Told apart: the first rows by much, the others less and less."""
    rng = np.random.default_rng(seed)
    rows = MEMBERS + OTHERS
    inside = np.zeros((MODELS, rows), dtype=np.bool_)
    for row in range(rows):
        inside[rng.permutation(MODELS)[: MODELS // 2], row] = True
    reach = strength * np.exp(-(np.arange(rows) % MEMBERS) / 20)
    return row_auc((rng.normal(size=inside.shape) + reach * inside).astype(np.float32), inside)


@cache
def audited(kind="promised"):
    """An audit; the same object each time."""
    rng = np.random.default_rng(0)
    truth = np.arange(MEMBERS + OTHERS) < MEMBERS
    shift = {"memorised": 4.0, "nothing": 0.0}.get(kind, 0.8)
    scores = {
        name: rng.normal(size=len(truth)) + part * shift * truth
        for name, part in (("loss", 0.5), ("lira-online", 1.0), ("my_own $signal$", 0.2))
    }
    if kind == "one attack":
        scores = {"loss": np.round(scores["loss"])}
    column = np.where(np.arange(len(truth)) % 3 == 0, "north", "south")
    column[:3] = "tiny"
    attack_figures = {name: figures(attack_scores, truth) for name, attack_scores in scores.items()}
    best = max(attack_figures, key=lambda name: attack_figures[name].auc.value)
    tables = [
        disparity(scores[best], truth, column, name="region", attack=best),
        disparity(scores[best], truth, np.arange(len(truth)) % 2, name="class", attack=best),
    ]
    has_guarantee = kind in ("promised", "refuted", "one attack")
    expected = np.exp(-np.arange(MEMBERS) / 20) * 0.4
    loss = rng.normal(size=MEMBERS) * 0.3
    return Audit(
        description="logistic regression, output perturbation",
        truth=truth,
        scores=scores,
        figures=attack_figures,
        row_auc=None if kind in ("bare", "one attack") else references(3 * shift),
        bounds={
            "refuted": (bound(3.5), bound(0.5, method="many trainings")),
            "nothing": (bound(0.0),),
            "bare": (),
        }.get(kind, (bound(0.25),)),
        guarantee=EpsilonDelta(epsilon=1.0, delta=1e-6) if has_guarantee else None,
        exposures=Exposures(loss=loss, expected=expected, distance=expected / 2)
        if has_guarantee
        else None,
        disparity=() if kind == "bare" else tuple(tables),
        models=0 if kind in ("bare", "one attack") else MODELS,
        confidence=0.95,
        skipped={"shadow": "needs views"} if kind == "bare" else {},
        ids=tuple(f"person {row}" for row in range(len(truth))) if kind == "promised" else None,
        notices=("Members were chosen by coins.",),
    )
