"""Rows in blocks of any size: every certificate holds, and is about as tight as in memory.

Small problems are solved in fifty digits, each cut into blocks of one row, of all but one, and with
any length taken for the common one; larger ones are retrained row by row.
"""

import pickle
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest

from expost.engine import LocalEngine
from expost.errors import ConvergenceError
from expost.glm import Objective, minimise
from expost.losses import HuberHinge, Logistic, Squared
from expost.neighbouring import knots, leave_one_out
from expost.neighbouring.expansion import curvature_of, expand
from expost.neighbouring.knots import KinkRows, energy_norms
from expost.neighbouring.leave_one_out import LeaveOneOut
from expost.neighbouring.neighbours import neighbours_of
from expost.neighbouring.refine import Refinement, refinement_for
from expost.rows import HeldRows, RowBlock
from test_certificate import make, references, usage
from test_streamed import released, streamed, table

QUICK = 33


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockRows(HeldRows):
    """Rows that come in blocks of ``size``, most of them taken to be at most ``usual`` long."""

    size: int
    usual: float | None = None
    is_held = False

    def map(self, task):
        for start in range(0, self.count, self.size):
            part = slice(start, start + self.size)
            # As they would arrive from elsewhere, and go there.
            there = pickle.loads(pickle.dumps(task))
            yield there(RowBlock.of(self.X[part].copy(), self.y[part].copy()))

    @property
    def common_norm(self):
        return super().common_norm if self.usual is None else self.usual


def in_blocks(*, X, y, loss, penalty, size, usual=None):
    return Objective(rows=BlockRows(X=X, y=y, size=size, usual=usual), loss=loss, penalty=penalty)


def expanded(problem, base):
    return expand(curvature_of(problem, base))


def refinement(problem, expansion):
    """What all rows need, whether they do or not."""
    plain = LeaveOneOut(expansion=expansion)
    longest = max(float(np.max(energy_norms(expansion, near.shift))) for near in problem.map(plain))
    return refinement_for(problem, expansion, 2 * longest)


def stepped(problem, expansion, refined):
    """Every row's neighbour, block by block."""
    expansion = refined.with_known_curvature(expansion)
    steps = list(problem.map(LeaveOneOut(expansion=expansion, refinement=refined)))
    return SimpleNamespace(
        shift=np.concatenate([item.shift for item in steps]),
        distance=np.concatenate([item.distance for item in steps]),
        error_bound=np.concatenate([item.error_bound for item in steps]),
    )


def cuts(case, seed):
    """(block size, common norm): one row, all but one, and lengths that divide nothing."""
    n = len(case.X)
    norms = np.linalg.norm(case.X, axis=1)
    sizes = (1, max(n - 1, 1), n, 2)
    lengths = (None, 0.0, float(norms.min()), 3 * float(norms.max()), float(np.median(norms)))
    return sizes[seed % len(sizes)], lengths[seed % len(lengths)]


@pytest.fixture(autouse=True)
def _fifty_digits():
    with mp.workdps(50):
        yield


def test_every_neighbour_lies_within_its_bound_however_the_rows_are_cut():
    used, tried = [], 0
    for seed in range(QUICK):
        case = replace(make(seed), relation="remove", candidates=None)
        size, usual = cuts(case, seed)
        problem = in_blocks(
            X=case.X,
            y=case.y,
            loss=case.loss,
            penalty=np.full(case.X.shape[1], case.regularization),
            size=size,
            usual=usual,
        )
        try:
            base = minimise(problem, tolerance=problem.natural_tolerance, require=False)
            expansion = expanded(problem, base)
        except ConvergenceError:
            continue
        assert expansion.curved.terms == min(size, problem.count) + -(-problem.count // size)
        _, _, shifts = references(case, base.theta, problem.count)
        for refined in (Refinement(), refinement(problem, expansion)):
            steps = stepped(problem, expansion, refined)
            used += usage(steps, shifts)
            tried += 1
    assert tried >= QUICK
    assert max(used) <= 1
    # Not idle: some bounds are nearly reached.
    assert max(used) > 0.01


def rows(n, d, seed, loss):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    score = X @ rng.normal(size=d) + rng.logistic(size=n)
    X = np.hstack([X, np.ones((n, 1))])
    X /= np.linalg.norm(X, axis=1).max() * (1 + 1e-12)
    if isinstance(loss, Squared):
        return X, np.clip(score, -3, 3)
    return X, np.where(score > 0, 1.0, -1.0)


@cache
def retrained(loss, regularization):
    """The truth, once for all who ask."""
    problem, base, _ = posed(loss, regularization=regularization)
    return neighbours_of(problem, base, method="retrain")


def posed(loss, *, regularization, n=400, d=3, size=64):
    X, y = rows(n, d, 0, loss)
    problem = in_blocks(X=X, y=y, loss=loss, penalty=np.full(d + 1, regularization), size=size)
    base = minimise(problem, tolerance=1e-12)
    return problem, base, expanded(problem, base)


@pytest.mark.parametrize(
    ("loss", "regularization"),
    [(Logistic(), 1e-2), (HuberHinge(), 1e-3)],
)
def test_refined_steps_are_as_tight_as_in_memory(loss, regularization):
    problem, _, expansion = posed(loss, regularization=regularization)
    plain = stepped(problem, expansion, Refinement())
    fine = stepped(problem, expansion, refinement(problem, expansion))
    # Newton's own certificate is not enough here; the refined one is that of rows in memory.
    assert np.mean(plain.error_bound > 1e-3 * plain.distance) > 0.5
    assert np.all(fine.error_bound <= 1e-3 * fine.distance)
    exact = retrained(loss, regularization)
    apart = np.linalg.norm(fine.shift - exact.shift, axis=1)
    assert np.all(apart <= fine.error_bound + exact.error_bound)
    apart = np.linalg.norm(plain.shift - exact.shift, axis=1)
    assert np.all(apart <= plain.error_bound + exact.error_bound)
    # Each of them takes the same steps, whatever the other rows are.
    cut = replace(problem, rows=replace(problem.rows, size=17))
    other = stepped(cut, expansion, refinement(problem, expansion))
    np.testing.assert_allclose(other.distance, fine.distance, rtol=1e-10)
    np.testing.assert_allclose(other.shift, fine.shift, rtol=1e-8, atol=1e-12)


def test_a_row_beside_a_knot_that_is_left_out_is_missed():
    """Power: what the certificate of the hinge rests on are just those rows."""
    problem, _, expansion = posed(HuberHinge(), regularization=1e-3)
    beside = refinement(problem, expansion).kinks
    assert 4 < len(beside.y) < problem.count / 2
    keep = np.arange(len(beside.y)) % 2 == 0
    names = ("X", "y", "z", "curvature", "norms", "reach_norm")
    fewer = replace(beside, **{name: getattr(beside, name)[keep] for name in names})
    wrong = stepped(problem, expansion, Refinement(kinks=fewer))
    exact = retrained(HuberHinge(), 1e-3)
    apart = np.linalg.norm(wrong.shift - exact.shift, axis=1)
    assert np.any(apart > wrong.error_bound + exact.error_bound)


def test_rows_far_from_every_knot_are_linear_on_the_segment():
    """Brute force: no row outside of what was gathered passes a knot within the reach."""
    problem, base, expansion = posed(HuberHinge(), regularization=1e-3)
    beside = KinkRows.of(problem, expansion, 0.05)
    far = np.array([not np.any(np.all(x == beside.X, axis=1)) for x in problem.held.X])
    assert 0 < np.count_nonzero(far) < problem.count
    z, y = problem.held.X @ base.theta, problem.held.y
    inside = np.abs(1 - y * z) < problem.loss.width
    rng = np.random.default_rng(1)
    root, lowest = np.linalg.cholesky(expansion.hessian), []
    for _ in range(200):
        step = rng.normal(size=problem.columns)
        step = np.linalg.solve(root.T, 0.05 * step / np.linalg.norm(step))
        there = np.abs(1 - y * (z + problem.held.X @ step)) < problem.loss.width
        assert np.array_equal(there[far], inside[far])
        curvature = problem.loss.curvature(z + problem.held.X @ step, y)
        hessian = (problem.held.X * curvature[:, None]).T @ problem.held.X / (problem.count - 1)
        least = np.linalg.eigvalsh(hessian)[0] + 1e-3
        assert least >= beside.least_eigenvalue
        lowest.append(least)
    # More than the penalty alone, and not far from what is found.
    assert beside.least_eigenvalue > 2e-3
    assert min(lowest) < 4 * beside.least_eigenvalue
    # The farthest that each row can be moved is along B⁻¹x: those beside a knot do pass it.
    leverage = np.einsum("ij,ij->i", problem.held.X @ expansion.inverse, problem.held.X)
    reached = problem.loss.knot_distance(z, y) < 0.05 * np.sqrt(leverage)
    assert np.array_equal(reached, ~far)


def test_too_many_rows_beside_a_knot_shorten_the_reach(monkeypatch):
    problem, _, expansion = posed(HuberHinge(), regularization=1e-3)
    every = refinement(problem, expansion).kinks
    monkeypatch.setattr(knots, "_MOST", 10)
    few = refinement(problem, expansion).kinks
    assert len(few.y) == 10
    assert few.reach == np.sort(every.reach_norm)[10]
    assert few.reach < every.reach
    # Steps that reach farther keep Newton's certificate; none is wrong.
    steps = stepped(problem, expansion, Refinement(kinks=few))
    plain = stepped(problem, expansion, Refinement())
    assert np.all(steps.error_bound <= plain.error_bound)
    loose = steps.error_bound > 1e-3 * steps.distance
    assert 0 < np.count_nonzero(loose) < problem.count
    exact = retrained(HuberHinge(), 1e-3)
    apart = np.linalg.norm(steps.shift - exact.shift, axis=1)
    assert np.all(apart <= steps.error_bound + exact.error_bound)


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(), Squared(label_bound=3.0)])
@pytest.mark.parametrize("kind", ["two rows", "one column", "equal rows", "one long row"])
def test_peculiar_rows(loss, kind):
    rng = np.random.default_rng(3)
    n, d = {"two rows": (2, 2), "one column": (12, 1)}.get(kind, (12, 3))
    X = rng.normal(size=(n, d)) / 8
    if kind == "equal rows":
        X[:] = X[0]
    elif kind == "one long row":
        X *= 1e-6
        X[7] = 0.0
        X[7, 0] = 1.0
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    if isinstance(loss, Squared):
        y = np.append(rng.normal(size=n - 1), 3.0)
    for size in (1, n - 1, n):
        problem = in_blocks(X=X, y=y, loss=loss, penalty=np.full(d, 0.01), size=size)
        base = minimise(problem, tolerance=1e-12)
        expansion = expanded(problem, base)
        if size == 1:
            exact = neighbours_of(problem, base, method="retrain")
        for refined in (Refinement(), refinement(problem, expansion)):
            steps = stepped(problem, expansion, refined)
            apart = np.linalg.norm(steps.shift - exact.shift, axis=1)
            assert np.all(apart <= steps.error_bound + exact.error_bound)
            assert np.all(np.isfinite(steps.error_bound))


@pytest.mark.parametrize(
    ("loss", "regularization", "needed"),
    [
        ("logistic", 0.01, "tensor"),
        ("huber-hinge", 0.01, "kinks"),
        ("squared", 0.01, None),
        ("logistic", 3.0, None),
    ],
)
def test_the_first_rows_decide_what_all_are_refined_by(monkeypatch, loss, regularization, needed):
    release, _, source, encoding = released(table(700), loss, regularization=regularization)
    engine = LocalEngine(1)
    problem = streamed(release, source, encoding, engine, size=100)
    steps = release.mechanism.prepare(problem, release.theta).leave_one_out.refinement
    for name in ("tensor", "kinks"):
        assert (getattr(steps, name) is not None) == (name == needed)
    # They are the same first rows whatever the blocks; and a few loose ones cost no long pass.
    monkeypatch.setattr(leave_one_out, "_FIRST", 50)
    cut = streamed(release, source, encoding, engine, size=30)
    again = release.mechanism.prepare(cut, release.theta).leave_one_out.refinement
    if needed == "kinks":
        same = release.mechanism.prepare(problem, release.theta).leave_one_out.refinement
        assert same.kinks.reach == pytest.approx(again.kinks.reach, rel=1e-9)
        assert same.kinks.reach < steps.kinks.reach
    monkeypatch.setattr(leave_one_out, "_COSTLY", 0)
    monkeypatch.setattr(leave_one_out, "_FEW", 1.0)
    assert release.mechanism.prepare(problem, release.theta).leave_one_out.refinement.tensor is None
    engine.close()
