"""Small problems of erasure, written naively: releases, laws, faults, and tests of equality."""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri
from scipy.stats import ks_2samp

from expost.accounting import gaussian_epsilon
from expost.erasure.coupling import couple
from expost.glm import Objective
from expost.losses import Logistic, Softmax
from expost.mechanisms.law_pairs import ObjectivePair, OutputPair, Ratio
from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.output import OutputPerturbation
from expost.rows import HeldRows, rows_at, without

# The false-alarm rate of each comparison of two laws.
ALARM = 1e-6
DELTA = 1e-3


@dataclass(frozen=True, kw_only=True)
class Case:
    """A change of rows: of ``kind`` and ``noise``, about ``separation`` deviations apart."""

    kind: str
    noise: str
    separation: float
    dimension: int = 1
    classes: int = 2
    rows: int = 5
    changed: int = 1
    seed: int = 0

    @property
    def name(self):
        return f"{self.kind}, {self.noise}, d = {self.dimension}, {self.separation:g}"

    @property
    def loss(self):
        return Logistic() if self.classes == 2 else Softmax(classes=self.classes)

    def data(self):
        """Rows, the first of which are as long as they may be and point the same way."""
        rng = np.random.default_rng(self.seed)
        X = rng.standard_normal((self.rows, self.dimension))
        X *= (rng.uniform(0.2, 1, self.rows) / np.linalg.norm(X, axis=1))[:, None]
        X[: self.changed] = np.eye(self.dimension)[0]
        y = rng.choice([-1.0, 1.0], self.rows)
        y[: self.changed] = 1.0
        if self.classes > 2:
            y = rng.integers(0, self.classes, self.rows).astype(float)
        return HeldRows(X=X, y=y)

    def mechanism(self, epsilon):
        loss = self.loss
        mechanism = {"output": OutputPerturbation, "objective": ObjectivePerturbation}[self.kind]
        return mechanism(
            epsilon=epsilon,
            delta=DELTA if self.noise == "gaussian" else None,
            noise=self.noise,
            loss=loss,
            regularization=0.3,
            rows=self.rows,
            dimension=self.dimension * loss.outputs,
        )

    def calibrated(self):
        """The mechanism at which the rows that leave are ``separation`` apart, about."""
        if self.kind == "objective":
            # A gradient is about half as long as it may be.
            apart = 0.5 * self.changed
            low, high = 1e-3, 1e3
            for _ in range(60):
                middle = math.sqrt(low * high)
                far = apart / self.mechanism(middle).resolution > self.separation
                low, high = (low, middle) if far else (middle, high)
            return self.mechanism(low)
        unit = self.mechanism(1.0)
        both = [self.objective(unit, rows).minimiser(1e-12).theta for rows in self.both()]
        apart = float(np.linalg.norm(both[0] - both[1]))
        share = self.separation * unit.sensitivity / apart
        return self.mechanism(share if self.noise == "laplace" else gaussian_epsilon(share, DELTA))

    def both(self):
        rows = self.data()
        return rows, without(rows, np.arange(self.changed))

    def objective(self, mechanism, rows):
        penalty = np.full(mechanism.dimension, mechanism.total_regularization)
        return Objective(rows=rows, loss=self.loss, penalty=penalty)

    def setting(self, *, insertion=False):
        return Setting.of(self, insertion=insertion)


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """The mechanism, the objectives and the laws before and after a change."""

    before: object
    after: object
    present: Objective
    changed: Objective
    pair: object

    @classmethod
    def of(cls, case, *, insertion=False):
        whole, rest = case.both()
        larger = case.calibrated()
        smaller = larger.with_rows(rest.count)
        return cls.between(
            (larger, case.objective(larger, whole)),
            (smaller, case.objective(smaller, rest)),
            rows_at(whole, np.arange(case.changed)),
            insertion=insertion,
        )

    @classmethod
    def between(cls, with_rows, without_rows, rows, *, insertion=False):
        first, second = (without_rows, with_rows) if insertion else (with_rows, without_rows)
        (before, present), (after, changed) = first, second
        if isinstance(before, OutputPerturbation):
            pair = OutputPair.of(before, after, present, changed)
        else:
            pair = ObjectivePair(
                before=before, after=after, present=present, changed=changed, rows=rows
            )
        return cls(before=before, after=after, present=present, changed=changed, pair=pair)

    @property
    def grid(self):
        return self.before.grid

    def released(self, size, rng):
        """Releases with the rows before."""
        return draws(self.before, self.present, size, rng)

    def fresh(self, size, rng):
        """Releases with the rows after."""
        return draws(self.after, self.changed, size, rng)

    def coupled(self, thetas, rng, fault=None):
        pair = self.pair if fault is None else Faulty(self.pair, fault)
        return [couple(pair, theta, self.grid, rng=rng) for theta in thetas]


def draws(mechanism, objective, size, rng):
    """(size, q·d) releases on the grid: naive minimisers for all noises at once."""
    noise = mechanism.law.sample(size, rng)
    if isinstance(mechanism, OutputPerturbation):
        centre = naive_minimisers(objective, np.zeros((1, mechanism.dimension)), mechanism.rows)
        return mechanism.grid.snap(centre + noise)
    return mechanism.grid.snap(naive_minimisers(objective, noise, mechanism.rows))


def derivatives(objective, thetas):
    """∇J and ∇²J of the summed objective at each θ, naively."""
    X, y, penalty = objective.rows.X, objective.rows.y, objective.penalty[0] * objective.count
    m, dimension = thetas.shape
    gradient, hessian = penalty * thetas, np.zeros((m, dimension, dimension))
    hessian += penalty * np.eye(dimension)
    classes = objective.loss.outputs
    for x, label in zip(X, y, strict=True):
        z = thetas.reshape(m, classes, -1) @ x
        if classes == 1:
            p = 1 / (1 + np.exp(label * z))
            u, S = -label * p, (p * (1 - p))[:, :, None]
        else:
            e = np.exp(z - z.max(axis=1, keepdims=True))
            p = e / e.sum(axis=1, keepdims=True)
            u = p - (np.arange(classes) == label)
            S = p[:, :, None] * np.eye(classes) - p[:, :, None] * p[:, None, :]
        gradient = gradient + np.einsum("ma,j->maj", u, x).reshape(m, dimension)
        hessian += np.einsum("mab,j,k->majbk", S, x, x).reshape(m, dimension, dimension)
    return gradient, hessian


def naive_minimisers(objective, noise, rows):
    """Newton's method with halved steps on Σℓ + λ∥θ∥²/2 + b·θ, for every b at once."""
    thetas = -noise / (objective.penalty[0] * rows)
    for _ in range(60):
        gradient, hessian = derivatives(objective, thetas)
        gradient = gradient + noise
        step = np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
        if np.max(np.abs(step)) < 1e-13:
            break
        length = np.ones(len(thetas))
        size = np.linalg.norm(gradient, axis=1)
        for _ in range(30):
            trial = derivatives(objective, thetas - length[:, None] * step)[0] + noise
            worse = np.linalg.norm(trial, axis=1) > size * (1 + 1e-12)
            if not worse.any():
                break
            length[worse] /= 2
        thetas = thetas - length[:, None] * step
    return thetas


def naive_log_density(mechanism, objective, thetas):
    """log p(θ ∣ D) of each θ before it is rounded."""
    if isinstance(mechanism, OutputPerturbation):
        centre = naive_minimisers(objective, np.zeros((1, mechanism.dimension)), mechanism.rows)
        return mechanism.law.log_density(thetas - centre)
    gradient, hessian = derivatives(objective, thetas)
    return mechanism.law.log_density(gradient) + np.linalg.slogdet(hessian)[1]


def line_advantage(setting, points=400_001):
    """TV(P, Q) at d = 1, by quadrature of min(P, Q)."""
    widest = 4 * setting.before.grid.clamp
    theta = np.linspace(-widest, widest, points)[:, None]
    both = [
        np.exp(naive_log_density(mechanism, objective, theta))
        for mechanism, objective in (
            (setting.before, setting.present),
            (setting.after, setting.changed),
        )
    ]
    step = float(theta[1, 0] - theta[0, 0])
    assert abs(step * both[0].sum() - 1) < 1e-4
    return 1 - step * float(np.minimum(*both).sum())


# -- faults ----------------------------------------------------------------------------------------

FAULTS = ("1 − ℓ", "wrong sign", "redrawn from Q", "0.5 nats")


@dataclass(frozen=True, eq=False)
class Faulty:
    """The laws with a fault in the rule."""

    pair: object
    fault: str

    error_bound = math.inf

    def point_of(self, theta, rng=None):
        return self.pair.point_of(theta, rng)

    def draw(self, most, rng=None):
        point = self.pair.draw(-math.inf, rng)
        return _Drawn(point) if self.fault == "redrawn from Q" else point

    def ratio(self, point):
        if isinstance(point, _Drawn):
            return Ratio(loss=-math.inf, error=0.0)
        ratio = self.pair.ratio(point)
        if self.fault == "1 − ℓ" and ratio.loss > 0:
            kept = max(1 - ratio.loss, 1e-300)
            return replace(ratio, loss=-math.log(kept))
        if self.fault == "wrong sign":
            return replace(ratio, loss=-ratio.loss)
        if self.fault == "0.5 nats":
            return replace(ratio, error=0.5)
        return ratio


class _Drawn(np.ndarray):
    """A draw from Q, which a fault accepts."""

    def __new__(cls, point):
        return np.asarray(point).view(cls)


# -- tests of equality -----------------------------------------------------------------------------


def alarms(sample, fresh, direction):
    """p-values of KS on projections and radii, and the energy statistic over its threshold."""
    projections = {"along": direction}
    if sample.shape[1] > 1:
        projections |= {f"coordinate {j}": row for j, row in enumerate(np.eye(sample.shape[1]))}
    values = {
        name: float(ks_2samp(sample @ v, fresh @ v, method="asymp").pvalue)
        for name, v in projections.items()
    }
    centre = fresh.mean(axis=0)
    radii = (np.linalg.norm(points - centre, axis=1) for points in (sample, fresh))
    values["radius"] = float(ks_2samp(*radii, method="asymp").pvalue)
    return values, energy(sample, fresh[: 2 * len(sample)]), len(values) + 1


def energy(sample, fresh, most=4000):
    """The energy statistic of Székely and Rizzo over its mean: a quadratic form of mean 1.

    P(it exceeds z²) ≤ P(∣Z∣ > z) for z ≥ 1.3 (Székely and Bakirov 2003), for many draws.
    """
    x, y = sample[:most], fresh[: 2 * most]
    across = _mean_distance(x, y)
    within = (_mean_distance(x, x), _mean_distance(y, y))
    n, m = len(x), len(y)
    return n * m / (n + m) * (2 * across - sum(within)) / across


def _mean_distance(x, y):
    total = 0.0
    for start in range(0, len(x), 500):
        part = x[start : start + 500]
        if x.shape[1] == 1:
            total += float(np.abs(part - y.T).sum())
        else:
            square = (part**2).sum(axis=1)[:, None] + (y**2).sum(axis=1) - 2 * part @ y.T
            total += float(np.sqrt(np.maximum(square, 0.0)).sum())
    return total / (len(x) * len(y))


def rejected(found):
    """Whether the laws differ, with a false alarm in one of 10⁶ comparisons at most."""
    values, statistic, tests = found
    share = ALARM / tests
    return min(values.values()) < share or statistic > float(ndtri(1 - share / 2)) ** 2


def direction(setting):
    """Where the rows that change move θ."""
    both = [
        naive_minimisers(objective, np.zeros((1, mechanism.dimension)), mechanism.rows)[0]
        for mechanism, objective in (
            (setting.before, setting.present),
            (setting.after, setting.changed),
        )
    ]
    apart = both[1] - both[0]
    return apart / np.linalg.norm(apart)


def erased(setting, size, seed, fault=None):
    """(θ before, the couplings) of so many pairs."""
    rng = np.random.default_rng(seed)
    before = setting.released(size, rng)
    return before, setting.coupled(before, rng, fault)


def compared(setting, couplings, fresh):
    """What the tests of equality say; ``fresh``: releases without the rows, or their seed."""
    after = np.array([coupled.theta for coupled in couplings])
    if isinstance(fresh, int):
        fresh = setting.fresh(20 * len(after), np.random.default_rng(fresh))
    return alarms(after, fresh, direction(setting))
