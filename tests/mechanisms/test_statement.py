"""The neighbouring relation of a guarantee, δ at other ε, and where they are printed."""

import json
import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import expost
from expost import PrivateLogisticRegression
from expost.glm import Objective
from expost.ledger import Entry
from expost.losses import HuberHinge, Logistic, Softmax, Squared
from expost.mechanisms import MECHANISMS
from expost.mechanisms.statement import for_replacement, relation_text, statements
from expost.neighbouring.change import Change
from expost.numbers import symbols
from expost.report import page_of, render_json
from naive import gaussian_delta

REMOVED, REPLACED = "if a row is removed or added", "if a row is removed or added or replaced"


def mechanism(kind="objective", noise="gaussian", loss=None, **constants):
    settings = {"epsilon": 1.0, "regularization": 0.05, "rows": 200, "dimension": 3, **constants}
    delta = 1e-6 if noise == "gaussian" else None
    return MECHANISMS.create(kind, noise=noise, delta=delta, loss=loss or Logistic(), **settings)


# -- the relation ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "noise", "words"),
    [
        ("objective", "gaussian", REMOVED),
        ("objective", "laplace", REPLACED),
        ("output", "gaussian", REPLACED),
        ("output", "laplace", REPLACED),
    ],
)
def test_every_line_about_a_guarantee_names_its_relation(kind, noise, words):
    perturbation = mechanism(kind, noise)
    assert relation_text(perturbation) == words
    assert f"{words}, regularization=" in perturbation.describe()
    assert words in statements(perturbation)[0]
    # A choice of ε describes its models by the same items, but for ε.
    items = {
        item for item in perturbation.describe().split(", ") if not item.startswith("epsilon=")
    }
    assert items == set(perturbation.describe(epsilon=False).split(", "))


def test_nothing_is_stated_where_nothing_is_guaranteed():
    unbounded = mechanism(loss=Squared(label_bound=1.0))
    assert statements(unbounded) == ()
    assert "removed" not in unbounded.describe()
    assert statements(mechanism(epsilon=math.inf)) == ()


def test_persons_have_rows():
    perturbation = mechanism(rows_per_person=4)
    line = statements(perturbation)[0]
    assert line.startswith("(ε, δ) = (1, 1e-06) for persons with ")
    assert "up to 4 rows, " in line
    assert "removed or added" in line


# -- replacement -----------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 20.0])
def test_a_replaced_row_is_one_removed_and_one_added(epsilon):
    twice, slip = for_replacement(epsilon, 1e-6)
    assert twice == 2 * Fraction(str(epsilon))
    exact = (1 + math.exp(epsilon)) * 1e-6
    assert exact * (1 - 1e-12) <= float(slip) <= exact * (1 + 1e-12)
    # Gaussian noise of which the row moves the centre by 1 keeps it: the other one by 2.
    for mu in (0.05, 0.2, 1.0, 3.0):
        each = gaussian_delta(epsilon, mu)
        if each > 1e-13:
            bound = float(for_replacement(epsilon, float(each))[1])
            assert gaussian_delta(2 * epsilon, 2 * mu) <= bound


def test_replacement_is_stated_where_it_is_not_covered():
    assert "(2ε, (1 + e^ε)δ) = (2, 3.72e-06)" in statements(mechanism())[1]
    assert not any("e^ε" in line for line in statements(mechanism(noise="laplace")))
    assert "no guarantee" in statements(mechanism(epsilon=30.0))[1]


@pytest.mark.parametrize("epsilon", [1e7, 1e9, 1e308])
def test_no_epsilon_is_too_large_for_a_sentence(epsilon):
    assert for_replacement(epsilon, 1e-6)[1] > 1
    assert for_replacement(epsilon, 0.0)[1] == 0
    if epsilon < 1e300:
        assert "no guarantee" in statements(mechanism(epsilon=epsilon))[1]


# -- the curve -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["objective", "output"])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("persons", [1, 3])
def test_the_curve_falls_and_keeps_what_is_guaranteed(kind, noise, persons):
    perturbation = mechanism(kind, noise, rows_per_person=persons)
    curve = [
        perturbation.delta_at(epsilon) for epsilon in (0.0, 0.1, 0.5, 0.999, 1.0, 1.5, 2.0, 5.0)
    ]
    assert all(0 <= delta <= 1 for delta in curve)
    assert all(a >= b for a, b in pairwise(curve))
    assert curve[4] <= (perturbation.delta or 0.0)
    assert curve[2] > 1e-5


def test_the_curve_is_that_of_a_gaussian_after_the_determinant():
    perturbation = mechanism(loss=HuberHinge(width=0.5))
    for epsilon in (0.3, 0.5, 0.9, 1.2):
        spent = math.log1p(1.0 / perturbation.penalty_sum)
        naive = gaussian_delta(epsilon - spent, 1 / perturbation.resolution)
        assert perturbation.delta_at(epsilon) == pytest.approx(min(naive, 1), rel=1e-6)
    softmax = mechanism(loss=Softmax(classes=3), dimension=9)
    assert softmax.delta_at(2.0) < softmax.delta_at(1.0) <= 1e-6


def test_the_losses_of_releases_keep_the_curve():
    """E(1 − e^(ε − loss))₊ of the longest row over 400 releases; 3.1 standard errors: 1 in 1,000."""
    rng = np.random.default_rng(4)
    perturbation = mechanism(epsilon=2.0, rows=60, regularization=0.2)
    X, y = rng.normal(size=(60, 3)), rng.choice([-1.0, 1.0], 60)
    X /= 1.01 * np.linalg.norm(X, axis=1).max()
    X[0] = (-0.999 * y[0], 0.0, 0.0)
    objective = Objective.of(X=X, y=y, loss=Logistic(), penalty=perturbation.total_regularization)
    change = Change.of(objective.held)
    loss = np.array(
        [
            perturbation.losses(objective, perturbation.release(objective, rng), change).loss[0]
            for _ in range(400)
        ]
    )
    for epsilon in (0.0, 0.25, 0.5):
        each = np.maximum(0, -np.expm1(epsilon - loss))
        error = 3.1 * np.std(each) / 20
        assert np.mean(each) - error <= perturbation.delta_at(epsilon)
        # It is a bound of this noise, and not only (ε, δ) at a smaller ε.
        assert perturbation.delta_at(epsilon) < perturbation.guarantee().delta(epsilon)


# -- where it is printed ---------------------------------------------------------------------------


def released():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.4, 0.4, (900, 5))
    y = (X[:, 0] > 0).astype(int)
    return PrivateLogisticRegression(1.0, classes=(0, 1), data_norm=1.0).fit(X, y), X, y


def test_results_print_the_guarantee_with_its_relation_and_curve(tmp_path):
    model, X, y = released()
    lines = statements(model.release_.mechanism)
    assert f"delta=1e-06 {REMOVED}, noise='gaussian'" in repr(model)
    profile = expost.profile(model, X, y)
    shown = render_json(page_of(profile))
    assert all(symbols(line) in shown for line in lines)
    assert json.loads(profile.to_json())["guarantee"] == list(lines)
    report = expost.publish(model)
    shown = render_json(page_of(report))
    assert all(symbols(line) in shown for line in lines)
    summary = expost.identifiability(model)
    assert summary.statements == lines
    assert REMOVED in summary.question
    assert symbols(lines[1]) in str(summary)


def test_risk_prints_delta_at_half_and_at_twice_epsilon():
    summary = expost.identifiability(epsilon=1.0, delta=1e-6)
    half, double = summary.figure("delta_at_half"), summary.figure("delta_at_double")
    assert half.label == "delta at epsilon = 0.5"
    mu = summary.mu
    assert half.by["gaussian"] == pytest.approx(gaussian_delta(0.5, mu), rel=1e-6)
    assert double.by["gaussian"] == pytest.approx(gaussian_delta(2.0, mu), rel=1e-3)
    assert double.by["any"] == 1e-6
    for figure in (half, double):
        assert all(float(figure.shown[key]) >= value for key, value in figure.by.items())


def test_a_ledger_line_names_the_relation(tmp_path):
    model, _, _ = released()
    path = model.save(tmp_path / "model.json")
    written = json.loads(path.read_text())
    entry, *_ = model.release_.entries(written, name="m", made="2026-01-01T00:00:00Z", data=None)
    assert entry.description == f"model: objective, gaussian, {REMOVED}"
    assert Entry.from_json(entry.to_json()) == entry
    # A line of an earlier ledger does not know it.
    earlier = {name: value for name, value in entry.to_json().items() if name != "relation"}
    assert Entry.from_json(earlier).description == "model: objective, gaussian"
