"""The mechanisms that the laws run on. A further one is a line in ``SUBJECTS``."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from mpmath import fabs, mp, mpf
from scipy.special import ndtr

import expost
from conformance import exact
from conformance.line import Line, divergence, largest_ratio, pair, passing
from conformance.perturbed import Perturbed, points
from expost import glm
from expost.glm import Minimiser, minimise
from expost.losses import Loss, make_loss
from expost.mechanisms import ObjectivePerturbation, OutputPerturbation, RowLosses, Tangent
from expost.mechanisms.sampling import perturbed_minimisers
from expost.neighbouring.change import Change
from expost.noise import NormLaplace
from expost.types import FloatArray, Neighbouring
from plug_ins.coordinate_laplace import CoordinatePerturbation

REMOVE, ADD, REPLACE = Neighbouring.REMOVE, Neighbouring.ADD, Neighbouring.REPLACE
# Labels of regressions reach 1.5, so that a bound that is taken for 1 shows.
LABEL_BOUND = 1.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Data:
    """Rows in the unit ball, the people who would enter, and Λ."""

    X: FloatArray
    y: FloatArray
    entering: tuple[FloatArray, FloatArray]
    regularization: float

    def neighbour(self, relation: Neighbouring, row: int) -> tuple[FloatArray, FloatArray]:
        """The rows of the neighbouring data set, copied."""
        X, y = self.X, self.y
        if relation is not ADD:
            X, y = np.delete(X, row, axis=0), np.delete(y, row)
        if relation is not REMOVE:
            X = np.vstack([X, self.entering[0][row]])
            y = np.append(y, self.entering[1][row])
        return X, y

    def permuted(self, order: Any) -> "Data":
        """The same people in another order."""
        entering = (self.entering[0][order], self.entering[1][order])
        return replace(self, X=self.X[order], y=self.y[order], entering=entering)


@dataclass(frozen=True, kw_only=True, eq=False)
class Extreme:
    """Data whose ``row`` moves the centre by the ``share`` of what the mechanism allows for."""

    data: Data
    relation: Neighbouring
    row: int
    share: float


class Trial(Protocol):
    """One mechanism on one data set, for one relation."""

    relation: Neighbouring

    @property
    def epsilon(self) -> float:
        """What the mechanism guarantees."""

    def release(self, rng: np.random.Generator) -> FloatArray:
        """θ ~ p(· ∣ D), by the product."""

    def releases(self, count: int, rng: np.random.Generator) -> FloatArray:
        """(count, d) such θ, however the product simulates them fastest."""

    def releases_from_neighbour(self, row: int, count: int, rng: np.random.Generator) -> FloatArray:
        """(count, d) θ ~ p(· ∣ D'), by the product, with D's public constants."""

    def noise_of(self, theta: FloatArray) -> tuple[FloatArray, float]:
        """The b that θ was released with, and a bound on what rounding takes from it."""

    def row_losses(self, theta: FloatArray) -> RowLosses:
        """The product's answer."""

    def log_ratio(self, theta: FloatArray, row: int) -> mpf:
        """Brute force, at 50 digits: the loss by its definition, every point refitted."""

    def log_density(self, thetas: FloatArray) -> FloatArray:
        """log p(θ ∣ D) of each row of ``thetas``, by the product."""

    @property
    def centre(self) -> FloatArray:
        """About where p(· ∣ D) has its mass."""

    def exceeds(self, level: float, row: int) -> float:
        """P(exposure > ``level``) for θ ~ p(· ∣ D), or a bound on it."""

    def separation(self, row: int) -> float:
        """How far apart the laws of θ with and without the row are, by brute force."""

    def kinks(self, rows: int) -> list[float]:
        """In one dimension: where the log ratio of one of the first ``rows`` is least smooth."""

    def cell_log_ratio(self, theta: FloatArray, row: int) -> mpf:
        """In one dimension: log P(θ's cell ∣ D) − log P(θ's cell ∣ D'), at 50 digits."""


class MechanismUnderTest(Protocol):
    """A mechanism with everything that the laws need to know of it.

    ``is_pure``  whether it guarantees that no exposure passes ε.
    ``effort``   the share of the usual draws that is enough, or affordable.
    """

    name: str
    is_pure: bool
    effort: float

    def ordinary(self, seed: int, rows: int, columns: int, regularization: float) -> Data:
        """Random rows in the unit ball."""

    def extremes(self) -> Iterator[Extreme]:
        """Data made against the mechanism."""

    def build(self, data: Data, *, relation: Neighbouring, epsilon: float) -> Trial:
        """The mechanism at ``epsilon`` on ``data``."""

    def build_at(self, data: Data, *, relation: Neighbouring, separation: float) -> Trial:
        """The mechanism with the noise that puts the farthest neighbour at ``separation``."""

    def allowed(self, epsilon: float) -> float:
        """The largest separation of two laws of θ that the guarantee of ``epsilon`` allows."""

    def estimator(self, epsilon: float, **parameters: Any) -> Any:
        """The scikit-learn face of the mechanism, for rows outside the unit ball."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputTrial:
    """θ = A + b."""

    data: Data
    relation: Neighbouring
    mechanism: OutputPerturbation
    margin: float = 0.0

    @property
    def epsilon(self) -> float:
        return self.mechanism.epsilon

    def minimiser(self, X: FloatArray, y: FloatArray) -> Minimiser:
        mechanism = self.mechanism
        penalty = np.full(X.shape[1], mechanism.regularization)
        return minimise(glm.Objective.of(X=X, y=y, loss=mechanism.loss, penalty=penalty))

    @cached_property
    def base(self) -> Minimiser:
        return self.minimiser(self.data.X, self.data.y)

    @cached_property
    def neighbour_bases(self) -> dict[int, Minimiser]:
        return {}

    @cached_property
    def profile(self) -> expost.Profile:
        """Of one release, for its neighbours: what ``expost.profile`` works with."""
        candidates = None if self.relation is REMOVE else self.data.entering
        return expost.profile(
            self.release(np.random.default_rng(0)),
            self.data.X,
            self.data.y,
            mechanism=self.mechanism,
            relation=self.relation,
            candidates=candidates,
        )

    @property
    def centre(self) -> FloatArray:
        return self.base.theta

    def release(self, rng: np.random.Generator) -> FloatArray:
        return self.mechanism.add_noise(self.base, rng)

    def releases(self, count: int, rng: np.random.Generator) -> FloatArray:
        return np.array([self.release(rng) for _ in range(count)])

    def releases_from_neighbour(self, row: int, count: int, rng: np.random.Generator) -> FloatArray:
        if row not in self.neighbour_bases:
            neighbour = self.data.neighbour(self.relation, row)
            self.neighbour_bases[row] = self.minimiser(*neighbour)
        base = self.neighbour_bases[row]
        return np.array([self.mechanism.add_noise(base, rng) for _ in range(count)])

    def noise_of(self, theta: FloatArray) -> tuple[FloatArray, float]:
        return theta - self.base.theta, self.mechanism.grid.diagonal(len(theta))

    def row_losses(self, theta: FloatArray) -> RowLosses:
        return self.mechanism.row_losses(theta, self.profile.neighbours)

    def log_density(self, thetas: FloatArray) -> FloatArray:
        return self.mechanism.law.log_density(thetas - self.base.theta)

    def exact_minimiser(self, X: FloatArray, y: FloatArray, hint: FloatArray) -> list[mpf]:
        objective = exact.Objective(
            X=X,
            y=y,
            regularization=self.data.regularization,
            loss=self.mechanism.loss.name,
            margin=self.margin,
        )
        return objective.minimiser(hint)

    @cached_property
    def exact_base(self) -> list[mpf]:
        return self.exact_minimiser(self.data.X, self.data.y, self.base.theta)

    @cached_property
    def exact_neighbours(self) -> dict[int, list[mpf]]:
        return {}

    def exact_neighbour(self, row: int) -> list[mpf]:
        if row not in self.exact_neighbours:
            neighbour = self.data.neighbour(self.relation, row)
            hint = self.base.theta + self.profile.neighbours.shifts.block(slice(row, row + 1))[0]
            self.exact_neighbours[row] = self.exact_minimiser(*neighbour, hint)
        return self.exact_neighbours[row]

    def log_ratio(self, theta: FloatArray, row: int) -> mpf:
        law = self.mechanism.law
        base, other = self.exact_base, self.exact_neighbour(row)
        inside, outside = (other, base) if self.relation is ADD else (base, other)
        if isinstance(law, NormLaplace):
            return exact.laplace_log_ratio(theta, inside, outside, law.rate)
        return exact.gaussian_log_ratio(theta, inside, outside, law.scale)

    def exceeds(self, level: float, row: int) -> float:
        """Φ(μ/2 − ε/μ) + Φ(−μ/2 − ε/μ); 0 from t on."""
        apart = self.separation(row)
        if isinstance(self.mechanism.law, NormLaplace):
            return 0.0 if level >= apart else 1.0
        return float(ndtr(apart / 2 - level / apart) + ndtr(-apart / 2 - level / apart))

    def separation(self, row: int) -> float:
        ends = zip(self.exact_base, self.exact_neighbour(row), strict=True)
        return float(np.linalg.norm([float(a - b) for a, b in ends])) / self.mechanism.resolution

    def kinks(self, rows: int) -> list[float]:
        centres = [self.exact_base, *(self.exact_neighbour(row) for row in range(rows))]
        return [float(centre[0]) for centre in centres]

    @property
    def line_law(self) -> Any:
        """The law of the noise in one dimension."""
        return self.mechanism.law

    def cell_log_ratio(self, theta: FloatArray, row: int) -> mpf:
        half = mpf(self.mechanism.grid.step) / 2
        with mp.workdps(exact.DIGITS):
            here, there = (
                _log_mass(mpf(float(theta[0])) - centre[0], half, self.line_law)
                for centre in (self.exact_base, self.exact_neighbour(row))
            )
            return here - there


def _log_mass(middle: mpf, half: mpf, law: Any) -> mpf:
    """log P(∣b − middle∣ ≤ half)."""
    return _log_probability(middle - half, middle + half, law)


def _log_probability(low: mpf, high: mpf, law: Any) -> mpf:
    """log P(low ≤ b ≤ high), one-dimensional."""
    if isinstance(law, NormLaplace):
        return mp.log(exact.laplace_cell(low, high, law.rate))
    return mp.log(exact.gaussian_cell(low, high, law.scale))


@dataclass(frozen=True, kw_only=True, eq=False)
class ObjectiveTrial:
    """θ = argmin Σℓ + (λ/2)∥θ∥² + b·θ; what is compared with takes nothing of the product but b."""

    data: Data
    relation: Neighbouring
    mechanism: ObjectivePerturbation
    margin: float = 0.0

    @property
    def epsilon(self) -> float:
        return self.mechanism.epsilon

    @cached_property
    def penalty_sum(self) -> float:
        """λ by hand: nΛ, or what leaves half of ε for the noise."""
        mechanism = self.mechanism
        requested = len(self.data.X) * self.data.regularization
        curvature = {"logistic": 0.25, "huber-hinge": 1.0, "huber": 1.0, "squared": 1.0}[
            mechanism.loss.name
        ]
        if mechanism.calibration == "published":
            return max(requested, 2 * curvature / mechanism.epsilon)
        return max(requested, curvature / float(np.expm1(mechanism.epsilon / 2)))

    def problem(self, X: FloatArray, y: FloatArray) -> glm.Objective:
        """The averaged objective of any rows under D's public constants."""
        penalty = np.full(X.shape[1], self.penalty_sum / len(X))
        return glm.Objective.of(X=X, y=y, loss=self.mechanism.loss, penalty=penalty)

    @cached_property
    def own(self) -> glm.Objective:
        """As the product poses it."""
        mechanism = self.mechanism
        penalty = np.full(mechanism.dimension, mechanism.total_regularization)
        return glm.Objective.of(X=self.data.X, y=self.data.y, loss=mechanism.loss, penalty=penalty)

    @cached_property
    def centre(self) -> FloatArray:
        return minimise(self.own).theta

    def release(self, rng: np.random.Generator) -> FloatArray:
        return self.mechanism.release(self.own, rng)

    def releases(self, count: int, rng: np.random.Generator) -> FloatArray:
        noise = self.mechanism.law.sample(count, rng)
        return perturbed_minimisers(self.own, noise / self.mechanism.rows)

    def releases_from_neighbour(self, row: int, count: int, rng: np.random.Generator) -> FloatArray:
        neighbour = self.problem(*self.data.neighbour(self.relation, row))
        noise = self.mechanism.law.sample(count, rng)
        return perturbed_minimisers(neighbour, noise / neighbour.count)

    def noise_of(self, theta: FloatArray) -> tuple[FloatArray, float]:
        gradient, hessian = self.exact(self.data.X, self.data.y).tangent(points(theta))
        lost = float(mp.mnorm(hessian, "F")) * self.mechanism.grid.diagonal(len(theta))
        return -np.array([float(entry) for entry in gradient]), lost

    def row_losses(self, theta: FloatArray) -> RowLosses:
        entering = None if self.relation is REMOVE else self.data.entering
        change = Change.of(self.own.held, self.relation, entering)
        return Tangent.at(self.mechanism, self.own, theta).row_losses(change)

    def log_density(self, thetas: FloatArray) -> FloatArray:
        tangents = [Tangent.at(self.mechanism, self.own, theta) for theta in thetas]
        volume = [2 * np.sum(np.log(np.diag(tangent.curvature.factor))) for tangent in tangents]
        gradients = np.array([tangent.gradient for tangent in tangents])
        return self.mechanism.law.log_density(-gradients) + np.array(volume)

    def exact(self, X: FloatArray, y: FloatArray) -> Perturbed:
        return Perturbed(
            X=X,
            y=y,
            penalty_sum=self.penalty_sum,
            loss=self.mechanism.loss.name,
            noise=self.mechanism.noise,
            unit=self.mechanism.resolution,
            margin=self.margin,
        )

    def log_ratio(self, theta: FloatArray, row: int) -> mpf:
        here = self.exact(self.data.X, self.data.y).log_density(points(theta))
        there = self.exact(*self.data.neighbour(self.relation, row)).log_density(points(theta))
        return there - here if self.relation is ADD else here - there

    def masses(self, row: int) -> tuple[FloatArray, FloatArray]:
        """Of cells of θ, with and without the row (one dimension)."""
        X, y = np.delete(self.data.X[:, 0], row), np.delete(self.data.y, row)
        rows, times = np.unique(np.column_stack([X, y]), axis=0, return_counts=True)
        line = Line(
            x=np.append(self.data.X[row, 0], rows[:, 0]),
            y=np.append(self.data.y[row], rows[:, 1]),
            times=np.append(1, times),
            loss=self.mechanism.loss.name,
            penalty_sum=self.penalty_sum,
            noise=self.mechanism.noise,
            unit=self.mechanism.resolution,
            margin=self.margin,
        )
        if self.relation is REMOVE:
            return pair(line, line.without_first())
        return pair(line, line.exchanged(*(float(part[row].item()) for part in self.data.entering)))

    def exceeds(self, level: float, row: int) -> float:
        return passing(*self.masses(row), level)

    def separation(self, row: int) -> float:
        """The largest exposure; for Gaussian noise the μ that would leak as much at ε."""
        p, q = self.masses(row)
        if self.mechanism.noise == "laplace":
            return largest_ratio(p, q)
        delta = max(divergence(p, q, self.epsilon), divergence(q, p, self.epsilon))
        return exact.gaussian_separation(self.epsilon, delta)

    def kinks(self, rows: int) -> list[float]:
        data = [(self.data.X, self.data.y)]
        data += [self.data.neighbour(self.relation, row) for row in range(rows)]
        return [float(minimise(self.problem(*each)).theta[0]) for each in data]

    def cell_log_ratio(self, theta: FloatArray, row: int) -> mpf:
        """b falls as θ grows: its values over the cell are an interval."""
        half = self.mechanism.grid.step / 2
        whole = self.exact(self.data.X, self.data.y)
        other = self.exact(*self.data.neighbour(self.relation, row))
        ends = [points(theta, np.array([side * half])) for side in (1, -1)]
        with mp.workdps(exact.DIGITS):
            here, there = (
                _log_probability(*(-law.tangent(end)[0][0] for end in ends), self.mechanism.law)
                for law in (whole, other)
            )
            return here - there


@dataclass(frozen=True, kw_only=True)
class Output:
    """Output perturbation with one noise and one loss."""

    noise: str
    loss: str
    margin: float = 0.0

    effort = 1.0

    @property
    def name(self) -> str:
        return f"output-{self.noise}-{self.loss}{self.variant}"

    @property
    def variant(self) -> str:
        """What the name adds for a margin."""
        return "-margin" if self.margin else ""

    @property
    def own_loss(self) -> Loss:
        """The product's loss."""
        return make_loss(self.loss, label_bound=LABEL_BOUND, margin=self.margin)

    @property
    def is_pure(self) -> bool:
        return self.noise == "laplace"

    def delta(self, epsilon: float) -> float | None:
        """Falls with ε: at a fixed δ the Gaussian mechanism keeps an advantage of δ at ε = 0."""
        return None if self.is_pure else 0.05 * min(1.0, epsilon)

    def allowed(self, epsilon: float) -> float:
        delta = self.delta(epsilon)
        return epsilon if delta is None else exact.gaussian_separation(epsilon, delta)

    def estimator(self, epsilon: float, **parameters: Any) -> Any:
        cls = {
            "logistic": expost.PrivateLogisticRegression,
            "huber-hinge": expost.PrivateLinearSVC,
            "huber": expost.PrivateRidge,
            "squared": expost.PrivateRidge,
        }[self.loss]
        bounds: dict[str, Any] = {"classes": [-1.0, 1.0]}
        if self.loss == "huber":
            bounds = {"label_range": (-1, 1)}
        if self.loss == "squared":
            bounds = {"label_range": (-LABEL_BOUND, LABEL_BOUND), "huber_width": None}
        if self.margin:
            bounds["margin"] = self.margin
        parameters = {"mechanism": "output", **parameters}
        budget = {"epsilon": epsilon, "delta": self.delta(epsilon), "noise": self.noise}
        return cls(data_norm=1.0, fit_intercept=False, **budget, **bounds, **parameters)

    def labels(self, rng: np.random.Generator, rows: int) -> FloatArray:
        if self.loss == "huber":
            return rng.uniform(-1, 1, rows)
        if self.loss == "squared":
            return rng.uniform(-LABEL_BOUND, LABEL_BOUND, rows)
        labels = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
        labels[:2] = 1.0, -1.0
        return labels

    def ordinary(self, seed: int, rows: int, columns: int, regularization: float) -> Data:
        rng = np.random.default_rng(seed)
        draws = rng.standard_normal((2 * rows, columns))
        draws *= rng.uniform(0.7, 1.0, (2 * rows, 1)) / np.linalg.norm(draws, axis=1, keepdims=True)
        y = self.labels(rng, 2 * rows)
        return Data(
            X=draws[:rows],
            y=y[:rows],
            entering=(draws[rows:], y[rows:]),
            regularization=regularization,
        )

    def build(self, data: Data, *, relation: Neighbouring, epsilon: float) -> OutputTrial:
        rows, columns = data.X.shape
        mechanism = OutputPerturbation(
            epsilon=epsilon,
            delta=self.delta(epsilon),
            noise=self.noise,
            loss=self.own_loss,
            regularization=data.regularization,
            rows=rows,
            dimension=columns,
        )
        return OutputTrial(data=data, relation=relation, mechanism=mechanism, margin=self.margin)

    def build_at(self, data: Data, *, relation: Neighbouring, separation: float) -> OutputTrial:
        distance = float(np.max(self.build(data, relation=relation, epsilon=1.0).profile.distance))
        low, high = 1e-3, 1e6
        while high / low > 1 + 1e-6:
            middle = float(np.sqrt(low * high))
            trial = self.build(data, relation=relation, epsilon=middle)
            if distance / trial.mechanism.resolution > separation:
                high = middle
            else:
                low = middle
        return self.build(data, relation=relation, epsilon=low)

    def extremes(self) -> Iterator[Extreme]:
        if self.loss == "huber-hinge":
            # Every slope is ±1 on the linear piece: one row against all others is the worst case.
            yield _one_against_all(regularization=4.0, share=0.999)
        elif self.loss == "squared":
            yield _one_against_all(
                regularization=100.0, share=0.97, label=LABEL_BOUND, turned_label=True
            )
            yield _far_prediction()
        else:
            yield _one_against_all(regularization=100.0, share=0.49)
            yield _two_misclassified()


def _one_against_all(
    *, regularization: float, share: float, label: float = 1.0, turned_label: bool = False
) -> Extreme:
    """n − 1 equal rows and one opposite: v = ∇ℓ − mean ∇ℓ is as long as it can be."""
    rows = 20
    X = np.zeros((rows, 2))
    X[:, 0] = 1.0
    y = np.full(rows, label)
    if turned_label:
        y[0] = -label
    else:
        X[0, 0] = -1.0
    data = Data(X=X, y=y, entering=(X, y), regularization=regularization)
    return Extreme(data=data, relation=REMOVE, row=0, share=share)


def _two_misclassified() -> Extreme:
    """Logistic: a row at a slope near 1 against A, exchanged for its mirror image."""
    rows, cosine = 400, 0.6
    X = np.zeros((rows, 2))
    X[:, 0] = 1.0
    X[0] = -cosine, np.sqrt(1 - cosine**2)
    mirrored = X.copy()
    mirrored[0, 1] *= -1
    y = np.ones(rows)
    data = Data(X=X, y=y, entering=(mirrored, y), regularization=5e-4)
    return Extreme(data=data, relation=REPLACE, row=0, share=0.55)


def _far_prediction() -> Extreme:
    """Squared: short rows drive ∥A∥ to Y/(2√Λ), and a long one is predicted that far off."""
    rows, regularization = 1000, 1e-2
    X = np.full((rows, 1), np.sqrt(regularization))
    X[0] = 1.0
    y = np.full(rows, LABEL_BOUND)
    y[0] = -LABEL_BOUND
    data = Data(X=X, y=y, entering=(X, y), regularization=regularization)
    return Extreme(data=data, relation=REMOVE, row=0, share=0.24)


@dataclass(frozen=True, kw_only=True)
class Objective(Output):
    """Objective perturbation with one noise, one loss and one calibration."""

    calibration: str = "tight"

    # The losses of one model take about a millisecond.
    effort = 0.45

    @property
    def name(self) -> str:
        published = "" if self.calibration == "tight" else "-published"
        return f"objective-{self.noise}-{self.loss}{self.variant}{published}"

    @property
    def is_pure(self) -> bool:
        """The squared loss has no guarantee: its gradient is not bounded."""
        return self.noise == "laplace" and self.loss != "squared"

    def delta(self, epsilon: float) -> float | None:
        return None if self.noise == "laplace" else 0.05 * min(1.0, epsilon)

    def estimator(self, epsilon: float, **parameters: Any) -> Any:
        own = {"mechanism": "objective", "calibration": self.calibration}
        return super().estimator(epsilon, **own, **parameters)

    def build(self, data: Data, *, relation: Neighbouring, epsilon: float) -> ObjectiveTrial:
        rows, columns = data.X.shape
        mechanism = ObjectivePerturbation(
            epsilon=epsilon,
            delta=self.delta(epsilon),
            noise=self.noise,
            calibration=self.calibration,
            loss=self.own_loss,
            regularization=data.regularization,
            rows=rows,
            dimension=columns,
        )
        return ObjectiveTrial(data=data, relation=relation, mechanism=mechanism, margin=self.margin)

    def build_at(self, data: Data, *, relation: Neighbouring, separation: float) -> ObjectiveTrial:
        low, high = 1e-3, 1e4
        while high / low > 1.02:
            trial = self.build(data, relation=relation, epsilon=float(np.sqrt(low * high)))
            distance = np.max(trial.row_losses(trial.centre).distance)
            if distance / trial.mechanism.resolution > separation:
                high = trial.epsilon
            else:
                low = trial.epsilon
        return self.build(data, relation=relation, epsilon=low)

    def extremes(self) -> Iterator[Extreme]:
        if self.loss == "squared":
            return
        if self.loss == "logistic":
            # So many rows against one that no noise moves θ to where it is well classified.
            yield _against_a_crowd(share=0.95 if self.noise == "gaussian" else 0.48)
        elif self.loss == "huber":
            if self.noise == "gaussian":
                yield _alone(share=0.8)
            else:
                yield replace(_alone(share=0.98, turned=True), relation=REPLACE)
        elif self.noise == "gaussian":
            yield _alone(share=0.99 if self.calibration == "tight" else 0.2)
        else:
            yield _at_the_corner(penalty=0.9, share=0.99)
            yield _at_the_corner(penalty=300.0, share=0.99)


def _alone(*, share: float, turned: bool = False) -> Extreme:
    """A row of the largest slope and one without any feature; λ so large that the slope stays.

    ``turned``: those who would enter have the other label, and so the slope of the other sign.
    """
    X, y = np.array([[1.0], [0.0]]), np.ones(2)
    data = Data(X=X, y=y, entering=(X, -y if turned else y), regularization=150.0)
    return Extreme(data=data, relation=REMOVE, row=0, share=share)


def _against_a_crowd(*, share: float) -> Extreme:
    rows = 3000
    X, y = np.full((rows, 1), -1.0), np.ones(rows)
    X[0] = 1.0
    data = Data(X=X, y=y, entering=(X, y), regularization=3.0 / rows)
    return Extreme(data=data, relation=REMOVE, row=0, share=share)


def _at_the_corner(*, penalty: float, share: float) -> Extreme:
    """A Huber hinge exchanged for its mirror image just past its corner.

    There it has slope 1 and its full curvature, the other slope 1 against it, and the three others
    push without any: the shift is 2L and the determinants' ratio 1 + c/λ, at once.
    """
    X, y = np.array([[1.0], [-1.0], [-1.0], [-1.0]]), np.ones(4)
    data = Data(X=X, y=y, entering=(-X, y), regularization=penalty / 4)
    return Extreme(data=data, relation=REPLACE, row=0, share=share)


class CoordinateTrial(OutputTrial):
    """θ = A + b with independent noise; what is compared with takes its scale alone."""

    def log_ratio(self, theta, row):
        with mp.workdps(exact.DIGITS):
            scale = mpf(self.mechanism.resolution)
            here, there = (
                sum(fabs(mpf(float(t)) - c) for t, c in zip(theta, centre, strict=True)) / scale
                for centre in (self.exact_base, self.exact_neighbour(row))
            )
            ratio = there - here
        return -ratio if self.relation is ADD else ratio

    def exceeds(self, level, row):
        return 0.0 if level >= self.separation(row) else 1.0

    @property
    def line_law(self):
        return NormLaplace(rate=1 / self.mechanism.resolution, dimension=1)

    def separation(self, row):
        ends = zip(self.exact_base, self.exact_neighbour(row), strict=True)
        return sum(abs(float(a - b)) for a, b in ends) / self.mechanism.resolution


@dataclass(frozen=True, kw_only=True)
class Coordinate(Output):
    """A mechanism of another package (plug_ins/coordinate_laplace.py)."""

    noise: str = "laplace"

    @property
    def name(self):
        return f"coordinate-{self.loss}"

    def estimator(self, epsilon, **parameters):
        return super().estimator(epsilon, mechanism="coordinate", **parameters)

    def build(self, data, *, relation, epsilon):
        rows, columns = data.X.shape
        mechanism = CoordinatePerturbation(
            epsilon=epsilon,
            loss=self.own_loss,
            regularization=data.regularization,
            rows=rows,
            dimension=columns,
        )
        return CoordinateTrial(data=data, relation=relation, mechanism=mechanism)

    def build_at(self, data, *, relation, separation):
        """At most √d times as far apart in the ℓ₁ norm."""
        apart = separation / np.sqrt(data.X.shape[1])
        return super().build_at(data, relation=relation, separation=apart)

    def extremes(self):
        """A shift along one axis uses 1/√d of the guarantee."""
        for case in super().extremes():
            yield replace(case, share=case.share / np.sqrt(case.data.X.shape[1]))


SUBJECTS: list[MechanismUnderTest] = [
    Output(noise=noise, loss=loss)
    for noise in ("laplace", "gaussian")
    for loss in ("logistic", "huber-hinge", "squared")
]
SUBJECTS += [
    Objective(noise=noise, loss=loss)
    for noise in ("laplace", "gaussian")
    for loss in ("logistic", "huber-hinge", "huber", "squared")
]
SUBJECTS += [
    Output(noise="laplace", loss="logistic", margin=1.5),
    Objective(noise="gaussian", loss="logistic", margin=1.5),
]
SUBJECTS += [Coordinate(loss=loss) for loss in ("logistic", "squared")]
# Of the published calibrations only the guarantee is a matter of its own.
PUBLISHED = Objective(noise="gaussian", loss="huber-hinge", calibration="published")
