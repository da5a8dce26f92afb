"""Law 7 for persons: refitted without all rows of one, the minimiser lies within error_bound.

A few dozen small problems solved in fifty digits here; three hundred in the long test, which writes
docs/evidence/groups.json.
"""

import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass

import mpmath as mp
import numpy as np
import pytest

import expost
from evidence import record
from expost.errors import InvalidInput, PrecisionWarning
from expost.glm import Minimiser, Objective, minimise
from expost.losses import HuberHinge, Logistic, Squared
from expost.neighbouring import change
from expost.neighbouring.change import Change
from expost.neighbouring.neighbours import neighbours_of, tight_neighbours
from expost.neighbouring.persons import read_persons
from fifty_digits import exact_rows, gradient, norm, shares_used, solve, usage


def without(problem, persons):
    return Change.of(problem.held, persons=persons)


METHODS = ("newton", "exact", "worst-case", "retrain")
KINDS = (
    "plain",
    "copies",
    "collinear",
    "separable",
    "saturated",
    "heavy-tailed",
    "zero rows",
    "short rows",
    "leverage one",
)
# Rows of each person, in a problem of d columns.
SHARES = {
    "mixed": lambda d: [1, 2, 3, d, 1],
    "pairs": lambda d: [2, 2, 2, 2],
    "five times d": lambda d: [5 * d, 1, 2],
    "half": lambda d: [6, 1, 2, 3],
    "all but one": lambda d: [7, 1],
    "as many as d": lambda d: [d, d, d + 1],
}
QUICK, FULL = 27, 300


@pytest.fixture(autouse=True)
def _fifty_digits():
    with mp.workdps(50):
        yield


@dataclass(frozen=True, kw_only=True)
class Case:
    kind: str
    share: str
    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray
    loss: object
    regularization: float


def make(seed, margin=0.0):
    """One small problem: kind and sizes go round, everything else is drawn.

    Every second one has the logistic loss, with the margin.
    """
    rng = np.random.default_rng([41, seed])
    kind = KINDS[seed % len(KINDS)]
    share = tuple(SHARES)[seed // 2 % len(SHARES)]
    d = int(rng.integers(1, 4))
    sizes = SHARES[share](d)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    n = len(groups)
    X = rng.normal(size=(n, d))
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    match kind:
        case "copies":
            # All rows of a person are one row.
            X, y = X[groups], y[groups]
        case "collinear":
            X = X[:, :1] * rng.normal(size=d)
        case "separable":
            y = np.where(X[:, 0] > 0, 1.0, -1.0)
        case "saturated":
            X, y = 30 * (np.abs(X) + 3.0), np.where(np.arange(n) == 0, -1.0, 1.0)
        case "heavy-tailed":
            X = rng.standard_cauchy((n, d)) ** 3
        case "zero rows":
            X[rng.random(n) < 0.5] = 0.0
        case "leverage one":
            X *= 1e-4
            X[0] = np.eye(d)[0]
    y[0], y[-1] = 1.0, -1.0
    X = X / max(np.linalg.norm(X, axis=1).max(), 1e-9)
    if kind == "saturated":
        X *= 30.0
    elif kind == "short rows":
        X *= 10.0 ** rng.uniform(-12, 0)
    logistic = Logistic(margin=margin)
    loss = (logistic, HuberHinge(width=0.5), logistic, Squared(label_bound=10.0))[seed % 4]
    if isinstance(loss, Squared):
        y = rng.normal(size=n)
    order = rng.permutation(n)
    return Case(
        kind=kind,
        share=share,
        X=X[order],
        y=y[order],
        groups=groups[order],
        loss=loss,
        regularization=10.0 ** rng.uniform(-4, 1),
    )


def references(X, y, groups, loss, regularization, base):
    """Every true shift in fifty digits, persons as they first appear, with its own error."""
    rows, labels = exact_rows(X, y)
    centre, centre_error = solve(rows, labels, loss, regularization, base)
    shifts = []
    for person in dict.fromkeys(groups.tolist()):
        kept = [row for row in range(len(X)) if groups[row] != person]
        data = [rows[row] for row in kept], [labels[row] for row in kept]
        there, error = solve(*data, loss, regularization, centre)
        shifts.append(([a - b for a, b in zip(there, centre, strict=True)], error + centre_error))
    return shifts


def run(seeds, margin=0.0):
    used, kinds, sizes = defaultdict(list), Counter(), Counter()
    for seed in seeds:
        case = make(seed, margin)
        options = {"loss": case.loss, "regularization": case.regularization, "persons": case.groups}
        shifts = None
        for method in METHODS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PrecisionWarning)
                neighbours = expost.neighbours(case.X, case.y, method=method, **options)
            if shifts is None:
                shifts = references(
                    case.X, case.y, case.groups, case.loss, case.regularization, neighbours.base
                )
            shares = usage(neighbours, shifts)
            assert max(shares) <= 1, (seed, case.kind, case.share, case.loss, method)
            used[f"{case.loss.name} {method}"].extend(shares)
        kinds[f"{case.kind}"] += 1
        sizes.update(np.unique(case.groups, return_counts=True)[1].tolist())
    return used, kinds, sizes


def test_every_neighbour_lies_within_its_bound():
    used, kinds, sizes = run(range(QUICK))
    assert len(kinds) == len(KINDS)
    assert {1, 2, 3, 6, 7} <= set(sizes)
    # Power: bounds fifty times smaller would have been broken, where they come from an expansion.
    for name in ("logistic newton", "logistic exact", "huber-hinge newton", "logistic worst-case"):
        assert max(used[name]) > 1 / 50, name


def test_every_neighbour_of_a_loss_with_a_margin_lies_within_its_bound():
    used, _, _ = run(range(0, QUICK, 2), margin=1.5)
    for name in ("logistic newton", "logistic exact", "logistic worst-case"):
        assert max(used[name]) > 1 / 50, name


@pytest.mark.long
def test_three_hundred_problems_in_fifty_digits():
    used, kinds, sizes = run(range(FULL))
    figures = {
        "problems by kind": dict(kinds),
        "persons by number of rows": {str(size): count for size, count in sorted(sizes.items())},
        "persons compared, all methods": sum(map(len, used.values())),
        **shares_used(used),
    }
    print(figures)
    assert figures["outside error_bound"] == 0
    assert sum(kinds.values()) == FULL
    command = (
        "make test-long,"
        " tests/test_person_neighbours.py::test_three_hundred_problems_in_fifty_digits"
    )
    record("groups", command=command, seed=41, figures=figures)


def data(n=120, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1).max()
    y = np.where(X[:, 0] + 0.2 * rng.normal(size=n) > 0, 1.0, -1.0)
    return X, y


@pytest.mark.parametrize("method", METHODS)
def test_everyone_with_one_row_gives_the_very_same_numbers(method):
    X, y = data(30)
    plain = expost.neighbours(X, y, regularization=0.01, method=method)
    neighbours = expost.neighbours(
        X, y, regularization=0.01, method=method, persons=[f"p{row}" for row in range(30)]
    )
    for name in ("base", "distance", "error_bound", "shift", "worst_case_distance"):
        assert getattr(neighbours, name).tobytes() == getattr(plain, name).tobytes()
    # Power: with one pair among them the pair's shift is another.
    pair = expost.neighbours(
        X, y, regularization=0.01, method=method, persons=np.maximum(np.arange(30), 1)
    )
    assert len(pair) == 29
    assert abs(pair.distance[0] - plain.distance[0]) > 0.01 * plain.distance[0]


@pytest.mark.parametrize("loss", ["logistic", "huber-hinge", "squared"])
def test_persons_of_one_row_among_others_move_as_their_rows_do(loss):
    X, y = data(40)
    groups = np.arange(40)
    groups[30:] = 30
    neighbours = expost.neighbours(X, y, loss=loss, regularization=0.1, persons=groups)
    plain = expost.neighbours(X, y, loss=loss, regularization=0.1)
    gap = np.linalg.norm(neighbours.shift[:30] - plain.shift[:30], axis=1)
    assert np.all(gap <= neighbours.error_bound[:30] + plain.error_bound[:30])
    assert np.all(neighbours.error_bound[:30] <= 1.5 * plain.error_bound[:30] + 1e-13)


@pytest.mark.parametrize("method", METHODS)
def test_permuting_rows_permutes_nothing_but_the_order(method):
    X, y = data(60)
    groups = np.random.default_rng(1).integers(0, 12, 60)
    options = {"regularization": 0.01, "method": method}
    neighbours = expost.neighbours(X, y, persons=groups, **options)
    order = np.random.default_rng(2).permutation(60)
    turned = expost.neighbours(X[order], y[order], persons=groups[order], **options)
    index_of = {name: k for k, name in enumerate(turned.persons.names)}
    same = [index_of[name] for name in neighbours.persons.names]
    assert same != list(range(len(same)))
    gap = np.linalg.norm(turned.shift[same] - neighbours.shift, axis=1)
    assert np.all(gap <= turned.error_bound[same] + neighbours.error_bound)
    assert turned.distance[same] == pytest.approx(neighbours.distance, rel=1e-9)


def test_the_order_of_a_persons_own_rows_does_not_matter():
    X, y = data(12)
    groups = [0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3]
    neighbours = expost.neighbours(X, y, regularization=0.1, persons=groups)
    order = [2, 0, 1, 4, 3, 5, 6, 7, 8, 9, 10, 11]
    turned = expost.neighbours(X[order], y[order], regularization=0.1, persons=groups)
    assert turned.distance == pytest.approx(neighbours.distance, rel=1e-12)


def test_a_persons_shift_is_not_the_sum_of_those_of_her_rows():
    """The mutant that removes rows one by one and adds up is far outside every bound."""
    X, y = data(40)
    X[20:], y[20:] = X[20], 1.0
    groups = np.where(np.arange(40) < 20, np.arange(40), 20)
    options = {"regularization": 1e-2}
    truth = expost.neighbours(X, y, persons=groups, method="retrain", **options)
    neighbours = expost.neighbours(X, y, persons=groups, method="exact", **options)
    rows = expost.neighbours(X, y, method="exact", **options)
    summed = np.zeros_like(neighbours.shift)
    np.add.at(summed, neighbours.persons.owner, rows.shift)
    assert np.all(
        np.linalg.norm(neighbours.shift - truth.shift, axis=1)
        <= neighbours.error_bound + truth.error_bound
    )
    gap = np.linalg.norm(summed[20] - truth.shift[20])
    assert gap > 1e5 * (neighbours.error_bound[20] + truth.error_bound[20])
    assert gap > 0.2 * truth.distance[20]


@pytest.mark.parametrize("keep_total_penalty", [False, True])
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(), Squared(label_bound=10.0)], ids=str)
def test_the_penalty_that_is_kept(loss, keep_total_penalty):
    """Λ of the average, or n·Λ of the sum, as scikit-learn's C does; by refits in fifty digits."""
    X, y = data(14, 2)
    groups = np.array([0] * 7 + [1, 1, 1, 2, 2, 3, 4, 4])[:14]
    problem = Objective.of(X=X, y=y, loss=loss, penalty=np.full(2, 0.05))
    base = minimise(problem)
    persons = read_persons(groups, 14)
    rows, labels = exact_rows(X, y)
    centre, _ = solve(rows, labels, loss, 0.05, base.theta)
    for method in METHODS:
        neighbours = neighbours_of(
            problem,
            base,
            without(problem, persons),
            method=method,
            keep_total_penalty=keep_total_penalty,
        )
        for person in range(len(persons)):
            kept = np.flatnonzero(groups != person)
            penalty = mp.mpf(0.05) * 14 / len(kept) if keep_total_penalty else mp.mpf(0.05)
            rest = [rows[i] for i in kept], [labels[i] for i in kept]
            there, _ = solve(*rest, loss, penalty, centre)
            wanted = [a - b for a, b in zip(there, centre, strict=True)]
            shift = neighbours.shift[person]
            gap = norm([mp.mpf(float(a)) - b for a, b in zip(shift, wanted, strict=True)])
            assert gap <= mp.mpf(float(neighbours.error_bound[person])), (method, person)


def test_a_base_that_is_off_is_accounted_for():
    """Shifts from a point that only nearly minimises J, with its honest gradient norm."""
    rng = np.random.default_rng(17)
    largest = 0.0
    for trial, loss in enumerate((Logistic(), HuberHinge(), Squared(label_bound=10.0))):
        n, d, regularization = 8, 2, 10.0 ** rng.uniform(-3, 0)
        X, y = rng.normal(size=(n, d)) / 4, np.where(np.arange(n) % 2, 1.0, -1.0)
        groups = np.array([0, 0, 0, 0, 1, 1, 2, 3])
        rows, labels = exact_rows(X, y)
        centre, _ = solve(rows, labels, loss, regularization, np.zeros(d))
        theta = np.array([float(t) for t in centre]) + 10.0 ** (-2 - trial) * rng.normal(size=d)
        _, g = gradient(rows, labels, loss, mp.mpf(regularization), [mp.mpf(t) for t in theta])
        base = Minimiser(theta=theta, gradient_bound=float(norm(g)) * (1 + 1e-12), iterations=0)
        problem = Objective.of(X=X, y=y, loss=loss, penalty=np.full(d, regularization))
        shifts = references(X, y, groups, loss, regularization, theta)
        for method in ("newton", "exact", "worst-case"):
            neighbours = neighbours_of(
                problem, base, without(problem, read_persons(groups, n)), method=method, warn=False
            )
            shares = usage(neighbours, shifts)
            assert max(shares) <= 1, (loss, method)
            largest = max(largest, *shares)
    assert largest > 1 / 50


@pytest.mark.parametrize("loss", ["logistic", "huber-hinge", "squared"])
def test_blocks_and_chunks_change_nothing(loss, monkeypatch):
    """A few persons, and a few rows of each, at a time: the same to rounding."""
    X, y = data(200, 3)
    groups = np.concatenate([np.zeros(90), np.arange(110) // 3 + 1])
    options = {"loss": loss, "regularization": 0.05, "persons": groups}
    for method in ("newton", "exact"):
        whole = expost.neighbours(X, y, method=method, **options)
        with monkeypatch.context() as patch:
            patch.setattr(change, "_ENTRIES", 40)
            patch.setattr(change, "_CHUNK", 4)
            parts = expost.neighbours(X, y, method=method, **options)
        assert np.max(np.abs(parts.shift - whole.shift)) <= 1e-10 * whole.distance.max()
        assert parts.error_bound == pytest.approx(whole.error_bound, rel=0.2, abs=1e-13)


def test_a_person_who_owns_half_of_the_data():
    X, y = data(2000, 5)
    groups = np.where(np.arange(2000) % 2, 0, np.arange(2000))
    problem = Objective.of(X=X, y=y, loss=Logistic(), penalty=np.full(5, 1e-3))
    base = minimise(problem)
    persons = read_persons(groups, 2000)
    near = tight_neighbours(problem, base, without(problem, persons))
    half = persons.names.index(0)
    assert persons.sizes[half] == 1001
    rest = Objective.of(
        X=X[groups != 0], y=y[groups != 0], loss=Logistic(), penalty=np.full(5, 1e-3)
    )
    there = minimise(rest).theta
    assert np.linalg.norm(near.shift[half] - (there - base.theta)) <= near.error_bound[half] + 1e-8
    assert np.all(near.error_bound <= 1e-3 * near.distance)
    # She moves the model by far more than any single row does.
    assert near.distance[half] > 5 * np.sort(near.distance)[-2]


def test_worst_case_and_ball():
    """The ball of co-coercivity holds for any rows that leave; κ is that of the largest person."""
    X, y = data(60)
    groups = np.random.default_rng(3).integers(0, 9, 60)
    groups[:25] = 3
    for regularization in (1e-3, 0.1, 10.0):
        truth = expost.neighbours(
            X, y, persons=groups, regularization=regularization, method="retrain"
        )
        points = truth.base + truth.shift
        gap = np.linalg.norm(points - truth.ball_centre, axis=1)
        assert np.all(gap <= truth.ball_radius + truth.error_bound)
        assert np.all(
            np.linalg.norm(points - truth.sphere_centre, axis=1)
            <= truth.sphere_radius + truth.error_bound
        )
        wanted = np.array(
            [
                (regularization * rows.sum() * truth.base + slopes(truth, rows) @ X)
                / (regularization * (60 - rows.sum()))
                for rows in (groups == name for name in truth.persons.names)
            ]
        )
        assert truth.worst_case.all() == pytest.approx(wanted, rel=1e-9, abs=1e-12)
        vector = np.arange(4.0)
        assert truth.worst_case.inner(vector) == pytest.approx(wanted @ vector, rel=1e-9)
        several = np.eye(4)[:2]
        assert truth.worst_case.inners(several, slice(2, 5)) == pytest.approx(
            several @ wanted[2:5].T, rel=1e-9
        )
        # Power: the largest person makes the ball too small by its own κ.
        small = expost.neighbours(X, y, regularization=regularization, method="worst-case")
        assert truth.curvature_ratio < small.curvature_ratio


def slopes(result, rows):
    """f′ of these rows at the base, 0 elsewhere."""
    z = result.objective.held.X @ result.base
    return np.where(rows, -result.objective.held.y / (1 + np.exp(result.objective.held.y * z)), 0.0)


def test_penalties_that_differ_have_no_worst_case():
    X, y = data(20)
    X[:, -1] = 1.0
    problem = Objective.of(X=X, y=y, loss=Logistic(), penalty=np.array([0.1, 0.1, 0.1, 0.0]))
    base = minimise(problem)
    persons = read_persons(np.arange(20) // 3, 20)
    near = neighbours_of(
        problem,
        base,
        without(problem, persons),
        method="exact",
        keep_total_penalty=True,
        tolerance=1e-6,
    )
    truth = neighbours_of(
        problem, base, without(problem, persons), method="retrain", keep_total_penalty=True
    )
    assert np.max(np.linalg.norm(near.shift - truth.shift, axis=1)) < 1e-6
    assert np.all(near.error_bound < 1e-6 * near.distance)
    worst = neighbours_of(
        problem, base, without(problem, persons), method="worst-case", keep_total_penalty=True
    )
    assert np.all(np.isinf(worst.error_bound))


def test_persons_reach_their_validator():
    """What it refuses: tests/test_persons.py."""
    X, y = data(20)
    with pytest.raises(InvalidInput, match="entry 0 is missing"):
        expost.neighbours(X, y, persons=[None] * 20)
    other = {"persons": [0, 1] * 10, "relation": "add", "candidates": ([[0.0] * 4], [1])}
    with pytest.raises(InvalidInput, match="remove"):
        expost.neighbours(X, y, **other)


def test_a_tolerance_that_float64_does_not_reach_warns():
    X, y = data(30)
    with pytest.warns(PrecisionWarning, match=r"of 3 shifts .* above 1e-30"):
        expost.neighbours(X, y, persons=np.arange(30) // 10, method="exact", tolerance=1e-30)


@pytest.mark.parametrize("groups", [None, np.arange(40) // 10], ids=["rows", "persons"])
def test_a_hessian_whose_determinant_underflows(groups):
    """Its 80 eigenvalues of 1e-5 multiply to 0: it once was taken for singular, and left alone."""
    X, y = data(40, 80)
    options = {"regularization": 1e-5, "persons": groups}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        neighbours = expost.neighbours(X, y, method="exact", **options)
    truth = expost.neighbours(X, y, method="retrain", **options)
    gap = np.linalg.norm(neighbours.shift - truth.shift, axis=1)
    assert np.all(gap <= neighbours.error_bound + truth.error_bound)
    assert np.all(neighbours.error_bound <= 1e-4 * neighbours.distance)
    newton = expost.neighbours(X, y, **options)
    assert np.any(newton.error_bound > 0.1 * newton.distance)
