"""Law 7: every neighbour, solved in fifty digits, lies within error_bound of the one computed.

A few dozen small problems here; a thousand in the long test, which writes
docs/evidence/neighbours-certificate.json. Beside them, the cases that once broke a bound.
"""

import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

import expost
from evidence import record
from expost.errors import ConvergenceError, PrecisionWarning
from expost.glm import Minimiser, Objective
from expost.losses import HuberHinge, Logistic, Squared
from expost.neighbouring.certificate import point_error
from expost.neighbouring.change import Change, EvaluatedRows
from expost.neighbouring.knots import KnotBins, KnotDistances
from expost.neighbouring.neighbours import neighbours_of
from expost.rows import RowBlock
from fifty_digits import exact_rows, gradient, norm, shares_used, solve, usage

METHODS = ("newton", "exact", "worst-case", "retrain")
KINDS = (
    "plain",
    "separable",
    "duplicated",
    "collinear",
    "singleton columns",
    "heavy-tailed",
    "zero rows",
    "saturated",
    "long rows",
    "short rows",
    "leverage one",
)
QUICK, FULL = 60, 1000


@pytest.fixture(autouse=True)
def _fifty_digits():
    with mp.workdps(50):
        yield


@dataclass(frozen=True, kw_only=True)
class Case:
    kind: str
    X: np.ndarray
    y: np.ndarray
    loss: object
    regularization: float
    relation: str
    candidates: tuple | None


def make(seed, margin=0.0):
    """One small problem: the kind goes round, everything else is drawn.

    Every second one has the logistic loss, with the margin.
    """
    rng = np.random.default_rng([7, seed])
    kind = KINDS[seed % len(KINDS)]
    n, d = int(rng.integers(2, 8)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d))
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    match kind:
        case "separable":
            y = np.where(X[:, 0] > 0, 1.0, -1.0)
        case "duplicated":
            X = X[rng.integers(0, max(1, n // 2), n)]
        case "collinear":
            X = X[:, :1] * rng.normal(size=d)
        case "singleton columns":
            X = np.hstack([np.eye(n) * rng.normal(size=(n, 1)), 0.1 * X])[:, : d + 2]
        case "heavy-tailed":
            X = rng.standard_cauchy((n, d)) ** 3
        case "zero rows":
            X[rng.random(n) < 0.5] = 0.0
        case "saturated":
            X, y = np.abs(X) + 3.0, np.where(np.arange(n) == 0, -1.0, 1.0)
        case "leverage one":
            X = np.vstack([np.eye(d)[0], 1e-4 * X[1:]])
    y[0], y[1] = 1.0, -1.0
    X = X / max(np.linalg.norm(X, axis=1).max(), 1e-9)
    if kind == "long rows":
        X *= 10.0 ** rng.uniform(0, 6)
    elif kind == "short rows":
        X *= 10.0 ** rng.uniform(-12, 0)
    elif kind == "saturated":
        X *= 30.0
    loss = (
        Logistic(margin=margin),
        HuberHinge(width=float(rng.choice([0.1, 0.5, 1.0]))),
        Logistic(margin=margin),
        Squared(label_bound=10.0),
    )[seed % 4]
    if isinstance(loss, Squared):
        y = rng.normal(size=n)
    relation, candidates = str(rng.choice(["remove", "remove", "add", "replace"])), None
    if relation != "remove":
        rows = X[rng.permutation(n)] * rng.choice([1.0, -1.0, 3.0]) + rng.choice([0.0, 0.1]) * X
        candidates = (rows, y[rng.permutation(n)])
        if rng.random() < 0.25:
            # Almost what was there already: everything cancels.
            candidates = (X * (1 + 10.0 ** rng.uniform(-15, -3)), y)
    return Case(
        kind=kind,
        X=X,
        y=y,
        loss=loss,
        regularization=10.0 ** rng.uniform(-6, 3),
        relation=relation,
        candidates=candidates,
    )


def neighbour_rows(rows, labels, relation, index, entering):
    """The neighbouring data set, written out."""
    if relation in ("remove", "replace"):
        rows, labels = rows[:index] + rows[index + 1 :], labels[:index] + labels[index + 1 :]
    if relation in ("add", "replace"):
        rows, labels = [*rows, entering[0][index]], [*labels, entering[1][index]]
    return rows, labels


def references(case, base, count):
    """Every true shift in fifty digits, each with a bound on its own error."""
    rows, labels = exact_rows(case.X, case.y)
    entering = None if case.candidates is None else exact_rows(*case.candidates)
    centre, centre_error = solve(rows, labels, case.loss, case.regularization, base)
    shifts = []
    for index in range(count):
        data = neighbour_rows(rows, labels, case.relation, index, entering)
        there, error = solve(*data, case.loss, case.regularization, centre)
        shifts.append(([a - b for a, b in zip(there, centre, strict=True)], error + centre_error))
    return centre, centre_error, shifts


def run(seeds, margin=0.0):
    """Usage of the bounds by loss and method, over many problems."""
    used, kinds, refused = defaultdict(list), Counter(), 0
    for seed in seeds:
        case = make(seed, margin)
        collected = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrecisionWarning)
            for method in METHODS:
                try:
                    collected[method] = expost.neighbours(
                        case.X,
                        case.y,
                        loss=case.loss,
                        regularization=case.regularization,
                        method=method,
                        relation=case.relation,
                        candidates=case.candidates,
                    )
                except ConvergenceError:
                    refused += 1
        if not collected:
            continue
        first = next(iter(collected.values()))
        centre, centre_error, shifts = references(case, first.base, len(first))
        gap = norm([mp.mpf(float(a)) - b for a, b in zip(first.base, centre, strict=True)])
        assert gap <= mp.mpf(float(first.base_error)) + centre_error, (seed, case.kind)
        kinds[case.kind] += 1
        for method, result in collected.items():
            shares = usage(result, shifts)
            assert max(shares) <= 1, (seed, case.kind, case.loss, method, case.relation)
            used[f"{case.loss.name} {method}"].extend(shares)
    return used, kinds, refused


def test_every_neighbour_lies_within_its_bound():
    used, kinds, refused = run(range(QUICK))
    assert sum(kinds.values()) >= QUICK - 2
    assert refused <= 8
    # Power: bounds fifty times smaller would have been broken, wherever they come from an
    # expansion and not from rounding alone.
    for name in ("logistic newton", "logistic exact", "huber-hinge newton", "logistic worst-case"):
        assert max(used[name]) > 1 / 50, name


@pytest.mark.parametrize("margin", [0.4, 2.5])
def test_every_neighbour_of_a_loss_with_a_margin_lies_within_its_bound(margin):
    used, _, refused = run(range(0, QUICK, 2), margin)
    assert refused <= 8
    for name in ("logistic newton", "logistic exact", "logistic worst-case"):
        assert max(used[name]) > 1 / 50, name


@pytest.mark.long
def test_a_thousand_problems_in_fifty_digits():
    used, kinds, refused = run(range(FULL))
    figures = {
        "problems": sum(kinds.values()),
        "problems by kind": dict(kinds),
        "fits refused with ConvergenceError": refused,
        "neighbours compared": sum(map(len, used.values())),
        "median share of error_bound used": {
            k: float(np.median(v)) for k, v in sorted(used.items())
        },
        **shares_used(used),
    }
    print(figures)
    assert figures["outside error_bound"] == 0
    assert figures["problems"] >= 0.99 * FULL
    command = "make test-long, tests/test_certificate.py::test_a_thousand_problems_in_fifty_digits"
    record("neighbours-certificate", command=command, seed=7, figures=figures)


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(), Squared(label_bound=10.0)], ids=str)
@pytest.mark.parametrize("relation", ["remove", "add", "replace"])
def test_a_base_that_is_off_is_accounted_for(loss, relation):
    """The tilt: shifts from a point that only nearly minimises J, with its honest gradient norm."""
    rng = np.random.default_rng(17)
    largest = 0.0
    for trial in range(4):
        n, d, regularization = 5, 2, 10.0 ** rng.uniform(-4, 1)
        X = rng.normal(size=(n, d)) / 4
        y = np.where(np.arange(n) % 2, 1.0, -1.0)
        candidates = None if relation == "remove" else (-X[::-1].copy(), y)
        problem = Objective.of(X=X, y=y, loss=loss, penalty=np.full(d, regularization))
        rows, labels = exact_rows(X, y)
        centre, _ = solve(rows, labels, loss, regularization, np.zeros(d))
        theta = np.array([float(t) for t in centre]) + 10.0 ** (-2 - trial) * rng.normal(size=d)
        _, g = gradient(rows, labels, loss, mp.mpf(regularization), [mp.mpf(t) for t in theta])
        base = Minimiser(theta=theta, gradient_bound=float(norm(g)) * (1 + 1e-12), iterations=0)
        case = Case(
            kind="",
            X=X,
            y=y,
            loss=loss,
            regularization=regularization,
            relation=relation,
            candidates=candidates,
        )
        for method in ("newton", "exact", "worst-case"):
            neighbours = neighbours_of(
                problem,
                base,
                Change.of(problem.held, expost.types.Neighbouring(relation), candidates),
                method=method,
                warn=False,
            )
            _, _, shifts = references(case, theta, n)
            shares = usage(neighbours, shifts)
            assert max(shares) <= 1, (trial, method)
            gap = norm([mp.mpf(float(a)) - b for a, b in zip(neighbours.base, centre, strict=True)])
            assert gap <= mp.mpf(float(neighbours.base_error))
            largest = max(largest, *shares)
    assert largest > 1 / 50


def test_ridge_in_exact_fractions():
    """n·Λ − (n−1)·Λ rounds: formed by subtraction, Λ = 1e-3 was 6 bounds off at n = 10,007."""
    rng = np.random.default_rng(1)
    n = 10_007
    x = rng.normal(size=n)
    x /= np.abs(x).max()
    y = np.round(2 * x + 0.01 * rng.normal(size=n), 3)
    fx, fy = [Fraction(float(v)) for v in x], [Fraction(float(v)) for v in y]
    xx, xy = sum(v * v for v in fx), sum(a * b for a, b in zip(fx, fy, strict=True))
    for regularization in (1e-3, 0.1, 123.456):
        neighbours = expost.neighbours(x[:, None], y, loss="squared", regularization=regularization)
        penalty, shift = Fraction(regularization), neighbours.shift[:, 0]
        base = xy / (xx + n * penalty)
        for i in range(0, n, 97):
            there = (xy - fx[i] * fy[i]) / (xx - fx[i] ** 2 + (n - 1) * penalty)
            error = abs(Fraction(float(shift[i])) - (there - base))
            assert error <= Fraction(float(neighbours.error_bound[i]))
        # Power: the bound is of the size of rounding, 1e-12 of the distance and less.
        assert np.max(neighbours.error_bound) < 1e-10 * np.median(neighbours.distance)


def check(X, y, **options):
    """Every method on one problem; returns the largest share of a bound that is used."""
    X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
    options = {"loss": Logistic(), "relation": "remove", "candidates": None} | options
    case = Case(kind="", X=X, y=y, **options)
    largest = 0.0
    for method in METHODS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrecisionWarning)
            neighbours = expost.neighbours(X, y, method=method, **options)
        _, _, shifts = references(case, neighbours.base, len(neighbours))
        shares = usage(neighbours, shifts)
        assert max(shares) <= 1, method
        largest = max(largest, *shares)
    return largest


def test_rows_whose_sigmoid_underflows():
    """z = ±723.5: the increment once was a quotient of subnormals, 2e7 bounds off."""
    X = [[81520.49570905], [-81520.49570905], [-1115.45318869]]
    check(X, [1, -1, -1], regularization=2.101352412972857)


@pytest.mark.parametrize("exponent", [-310, -200, -160, -20])
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(), Squared(label_bound=1.0)], ids=str)
def test_rows_whose_squares_underflow(exponent, loss):
    X = np.random.default_rng(5).normal(size=(4, 2)) * 10.0**exponent
    check(X, [1, -1, 1, -1], loss=loss, regularization=1.0)


def test_an_entering_row_that_is_flat_at_the_base():
    """f″ of the new row is 1e-18 at Â and ¼ where it moves to; the others hardly curve at all."""
    X = [[1e-3], [-1e-3], [1e-3]]
    candidates = (np.array([[40.0], [4.0], [400.0]]), np.array([-1.0, 1.0, -1.0]))
    for regularization in (1e-3, 1e-5):
        options = {"regularization": regularization, "relation": "add", "candidates": candidates}
        check(X, [1, -1, 1], **options)


@pytest.mark.parametrize("offset", [-1e-9, -1e-15, 0.0, 1e-15, 1e-9])
def test_a_minimiser_beside_a_knot(offset):
    """The third row's f″ jumps where the minimiser lies: on one side all there is is Λ."""
    h, penalty, n = 0.5, 1e-6, 3
    left = 0.25 - n * penalty * (1 + h) - n * penalty * offset
    X = [[left], [0.25], [1.0]]
    check(X, [-1, 1, 1], loss=HuberHinge(width=h), regularization=penalty)


def test_a_base_on_the_wrong_side_of_a_knot():
    """∥∇J∥ = 1e-13 and yet 1e-7 away: the curvature at Â says nothing about the way to A."""
    h, penalty, n = 0.5, 1e-6, 3
    left = 0.25 - n * penalty * (1 + h) - n * penalty * 1e-7
    X, y = np.array([[left], [0.25], [1.0]]), np.array([-1.0, 1.0, 1.0])
    loss, theta = HuberHinge(width=h), np.array([1.5 - 1e-14])
    rows, labels = exact_rows(X, y)
    centre, _ = solve(rows, labels, loss, penalty, theta)
    _, g = gradient(rows, labels, loss, mp.mpf(penalty), [mp.mpf(float(theta[0]))])
    base = Minimiser(theta=theta, gradient_bound=float(abs(g[0])) * (1 + 1e-12), iterations=0)
    assert base.gradient_bound < 2e-13
    problem = Objective.of(X=X, y=y, loss=loss, penalty=np.array([penalty]))
    neighbours = neighbours_of(problem, base)
    assert 5e-8 < abs(float(centre[0]) - theta[0]) <= neighbours.base_error


def exact_knots(loss, X, y, theta):
    """(∥x∥, way to the nearest knot) of every row, in fifty digits."""
    theta = [mp.mpf(float(t)) for t in theta]
    rows = zip(*exact_rows(X, y), strict=True)
    return [
        (norm(x), abs(abs(1 - label * mp.fdot(x, theta)) - mp.mpf(loss.width))) for x, label in rows
    ]


def exact_remainder(loss, knots, length):
    """Σ∥x∥(∥x∥ρ − dist)₊/(2h)."""
    length = mp.mpf(float(length))
    return mp.fsum(size * max(size * length - offset, 0) for size, offset in knots) / (
        2 * loss.width
    )


def knots_by_blocks(kind, problem, theta):
    """What seven rows at a time hand over, merged."""
    result = None
    for start in range(0, problem.count, 7):
        rows = problem.held.take(np.arange(start, min(start + 7, problem.count)))
        rows = EvaluatedRows.of(RowBlock.of(rows.X, rows.y), theta, problem.loss)
        part = kind.of(problem.constants, rows, theta)
        result = part if result is None else result.merged(part)
    return result.knots(problem.loss)


@pytest.mark.parametrize("width", [0.5, 1.0])
@pytest.mark.parametrize("kind", ["plain", "lengths", "at knots", "equal"])
def test_what_the_knots_leave_is_never_too_little(width, kind):
    """Sorted, and counted in bins by blocks of any size: above the exact sum, and not far above."""
    rng = np.random.default_rng(9)
    loss, n = HuberHinge(width=width), 30
    X, theta = rng.normal(size=(n, 3)), rng.normal(size=3)
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    if kind == "lengths":
        X *= 10.0 ** rng.uniform(-9, 9, size=(n, 1))
        X[4] = 0.0
    elif kind == "at knots":
        # On a knot, or as near to one as float64 can tell; for h = 1 a knot is at z = 0.
        X *= ((1 - width) / (y * (X @ theta)))[:, None]
        X[::2] *= 1 + 1e-15 * rng.normal(size=(n // 2, 1))
    elif kind == "equal":
        X[:] = X[0]
    problem = Objective.of(X=X, y=y, loss=loss, penalty=np.ones(3))
    sorted_knots, bins = (
        knots_by_blocks(kind, problem, theta) for kind in (KnotDistances, KnotBins)
    )
    lengths = np.concatenate([10.0 ** rng.uniform(-14, 3, size=25), sorted_knots.reach[:9]])
    lengths, exact = lengths[np.isfinite(lengths)], exact_knots(loss, X, y, theta)
    for knots in (sorted_knots, bins):
        result = knots.remainder(lengths)
        for length, bound in zip(lengths, result, strict=True):
            assert mp.mpf(float(bound)) >= exact_remainder(loss, exact, length)
            farther = exact_remainder(loss, exact, length * (1 + 2**-5))
            slack = 1e-11 * float(length * np.sum(problem.held.norms**2))
            assert mp.mpf(float(bound)) <= 1.1 * farther + slack


def _left_hand_side(r, floor, c, spread):
    """floor·r + c(1 − e^(−r·spread))/spread: the least gradient at distance r."""
    return floor * r + c * -mp.expm1(-r * mp.mpf(spread)) / mp.mpf(spread)


@pytest.mark.parametrize("widest", [3, 30])
def test_point_error_solves_its_inequality(widest):
    """A gradient of norm R cannot be farther from 0 than the bound: LHS(bound) ≥ R."""
    rng = np.random.default_rng(3)
    tight = 0
    for _ in range(400):
        floor, extra, spread, residual = 10.0 ** rng.uniform(-widest, widest, size=4)
        decay = float(rng.uniform(0, 1))
        bound = float(
            point_error(residual, floor=floor, curvature=floor + extra, spread=spread, decay=decay)
        )
        c = mp.mpf(floor + extra) - mp.mpf(floor)
        reached = _left_hand_side(mp.mpf(bound), floor, c * decay, spread)
        assert reached >= residual * (1 - mp.mpf("1e-14"))
        assert bound <= residual / floor * (1 + 1e-9)
        tight += reached <= 1.01 * residual
    # Power: mostly it is no more than the inequality asks for.
    assert tight > 200


def test_dividing_by_the_curvature_is_not_a_bound():
    """The shortcut that point_error replaces, where the curvature falls on the way."""
    residual, floor, extra, spread = 0.19, 1e-3, 1.0, 5.0
    shortcut = residual / (floor + extra)
    assert _left_hand_side(mp.mpf(shortcut), floor, extra, spread) < residual
    bound = point_error(residual, floor=floor, curvature=floor + extra, spread=spread, decay=1.0)
    assert float(bound) > shortcut


def test_an_error_of_the_shift_counts_as_a_residual():
    """E(R + μ′e) ≥ E(R) + e: what a certificate adds to its residual it need not add again."""
    rng = np.random.default_rng(4)
    tight = 0
    for _ in range(2000):
        floor, extra, spread, residual, error = 10.0 ** rng.uniform(-4, 4, size=5)
        known = {"floor": floor, "spread": spread, "decay": float(rng.uniform(0, 1))}
        curvature = floor + extra
        before = float(point_error(residual, curvature=curvature, **known))
        after = float(point_error(residual + curvature * error, curvature=curvature, **known))
        assert after >= (before + error) * (1 - 1e-14)
        # Power: less of it is too little.
        less = float(point_error(residual + 0.5 * curvature * error, curvature=curvature, **known))
        tight += less < before + error
    assert tight > 200


@pytest.mark.parametrize("residual", [0.0, 1.0, np.inf, np.nan])
def test_nothing_is_proved_without_penalty_and_curvature(residual):
    bound = float(point_error(residual, floor=0.0, curvature=0.0, spread=1.0, decay=1.0))
    assert bound == np.inf


@pytest.mark.parametrize("residual", [0.0, np.inf, np.nan])
def test_point_error_of_nothing_and_of_no_number(residual):
    bound = float(point_error(residual, floor=1.0, curvature=2.0, spread=1.0, decay=1.0))
    np.testing.assert_equal(bound, residual)
