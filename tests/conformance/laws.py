"""The laws that every mechanism keeps (DESIGN.md), as functions that raise AssertionError.

A statistical law compares a mean with its value at five standard errors (a false alarm of about
6e-7 for each, at a fixed seed), and rejects the same losses × 1.2 (× 1.35 with fewer draws). Losses of all rows are pooled
draw by draw: rows in all directions share one θ, which takes most of the variance away, so that
1,500 draws do what one row alone would need 20,000 for.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from unittest import mock

import joblib
import numpy as np
from scipy.special import expit

from conformance.subjects import (
    ADD,
    LABEL_BOUND,
    REMOVE,
    REPLACE,
    Data,
    MechanismUnderTest,
    OutputTrial,
    Trial,
)
from expost import _numerics
from expost.errors import ClippedRowsWarning, NoGuaranteeWarning, SeededReleaseWarning
from expost.glm import Objective
from expost.mechanisms import grid
from expost.neighbouring.neighbours import neighbours_of
from expost.release import Release
from expost.types import FloatArray, Neighbouring

RELATIONS = (REMOVE, ADD, REPLACE)
SIGMAS = 5.0
SEED = 20260101
QUICK = 1500
# The farthest neighbour in units of the noise: where exp(−loss) still has a variance, and beyond.
NEAR = {True: 4.0, False: 1.0}
FAR = {True: 7.0, False: 2.0}


def check(condition: object, message: str) -> None:
    """An assertion that no optimisation flag removes, and that NaN fails."""
    if not condition:
        raise AssertionError(message)


def agrees(values: FloatArray, target: float, *, against: FloatArray | None = None) -> bool:
    """Whether the mean of ``values`` (less that of ``against``) is ``target`` at five σ."""
    error = float(np.var(values)) / len(values)
    mean = float(np.mean(values))
    if against is not None:
        error += float(np.var(against)) / len(against)
        mean -= float(np.mean(against))
    # 1e-9: under Gaussian noise the shifts of all removals cancel, and no variance is left.
    return abs(mean - target) <= SIGMAS * np.sqrt(error) + 1e-9


# Law 1: the losses are the definition's.


def losses_are_the_brute_force_log_ratio(
    subject: MechanismUnderTest, relation: Neighbouring, *, problems: int = 2
) -> float:
    """row_losses is log p(θ ∣ D) − log p(θ ∣ D'), every minimiser refitted at 50 digits.

    Returns the largest error of a loss.
    """
    worst = largest = 0.0
    for seed in range(problems):
        regularization = (1.0, 0.05)[seed % 2]
        data = subject.ordinary(SEED + seed, 7, 3, regularization)
        trial = subject.build(data, relation=relation, epsilon=20.0)
        theta = trial.release(np.random.default_rng(SEED + seed))
        losses = trial.row_losses(theta)
        check(len(losses.loss) == 7, "one loss a neighbour")
        for row in range(7):
            truth = trial.log_ratio(theta, row)
            check(
                losses.low[row] <= truth <= losses.high[row],
                f"row {row}: the loss {float(truth):.6g} lies outside"
                f" [{losses.low[row]:.6g}, {losses.high[row]:.6g}]",
            )
            largest = max(largest, abs(float(truth)))
            worst = max(worst, abs(float(losses.loss[row] - truth)))
        check(np.max(losses.high - losses.low) <= 0.05, "an interval that says something")
    check(largest >= 0.1, "losses large enough to be wrong")
    check(worst <= 2e-3 * max(largest, 1.0), f"a loss is off by {worst:.3g}")
    return worst


# Laws 2 and 3: the losses are those of the law that θ is drawn from.


@dataclass(frozen=True, kw_only=True, eq=False)
class Simulation:
    """Losses of all rows over many releases (draws, n); they must show losses × ``visible``."""

    trial: Trial
    draws: int
    visible: float

    @cached_property
    def losses(self) -> FloatArray:
        """Of θ ~ p(· ∣ D)."""
        thetas = self.trial.releases(self.draws, np.random.default_rng(SEED))
        return np.array([self.trial.row_losses(theta).loss for theta in thetas])

    @cached_property
    def neighbour_losses(self) -> FloatArray:
        """(draws,) of θ ~ p(· ∣ D'), each of the row that D' is about, as many of each."""
        rng = np.random.default_rng(SEED + 1)
        count = self.losses.shape[1]
        return np.array(
            [
                self.trial.row_losses(theta).loss[row]
                for row in range(count)
                for theta in self.trial.releases_from_neighbour(row, self.draws // count, rng)
            ]
        )

    @property
    def expected_loss(self) -> FloatArray | None:
        """E[loss] over θ ~ p(· ∣ D) by the closed form; for ADD that D lacks the row."""
        law = self.trial.row_losses(self.trial.centre).law
        if law is None:
            return None
        return -law.expected_loss if self.trial.relation is ADD else law.expected_loss


class Simulations:
    """Simulations shared by the laws of one subject; a mutant starts with none."""

    def __init__(self, draws: int = QUICK) -> None:
        self.draws = draws
        self._kept: dict[tuple[str, Neighbouring, float], Simulation] = {}

    def of(
        self, subject: MechanismUnderTest, relation: Neighbouring, separation: float
    ) -> Simulation:
        """The simulation with its farthest neighbour at ``separation``."""
        key = subject.name, relation, separation
        if key not in self._kept:
            data = subject.ordinary(SEED, 40, 3, 1.0)
            trial = subject.build_at(data, relation=relation, separation=separation)
            draws, visible = int(self.draws * subject.effort), 1.2 if subject.effort == 1 else 1.35
            self._kept[key] = Simulation(trial=trial, draws=draws, visible=visible)
        return self._kept[key]


def change_of_measure(
    subject: MechanismUnderTest, relation: Neighbouring, simulations: Simulations
) -> float:
    """E exp(−loss) = 1 over θ ~ p(· ∣ D); for ADD, where D lacks the row, E exp(+loss) = 1."""
    simulation = simulations.of(subject, relation, NEAR[subject.is_pure])
    losses, sign = simulation.losses, 1.0 if relation is ADD else -1.0
    mean = np.exp(sign * losses).mean(axis=1)
    check(agrees(mean, 1.0), f"E exp(∓loss) is {np.mean(mean):.4f}, not 1")
    wrong = np.exp(simulation.visible * sign * losses).mean(axis=1)
    check(not agrees(wrong, 1.0), "too few draws to see the wrong scale")
    return float(np.mean(mean)) - 1


def posterior_identity(
    subject: MechanismUnderTest, relation: Neighbouring, simulations: Simulations
) -> None:
    """E_out[sigmoid(ℓ + c)] = e^c·E_in[sigmoid(−ℓ − c)]: the change of measure, bounded.

    It holds at any separation, since the terms are at most 1 and e^c. c = 0 is DESIGN's identity;
    under a symmetric law (every output perturbation) that one holds for any odd function of the
    loss, so that it sees neither a wrong scale nor a turned sign. c = 4 sees both, and c = −4 does
    where the row is not in the data, so that all rows are simulated without it.
    """
    simulation = simulations.of(subject, relation, FAR[subject.is_pure])
    inside, outside = simulation.losses, simulation.neighbour_losses[:, None]
    if relation is ADD:
        inside, outside = outside, inside
    rejected = False
    for shift in (0.0, 4.0, -4.0):
        for scale in (1.0, simulation.visible):
            without = expit(scale * outside + shift).mean(axis=1)
            within = np.exp(shift) * expit(-scale * inside - shift).mean(axis=1)
            same = agrees(without, 0.0, against=within)
            if scale == 1.0:
                check(same, f"E_out[sigmoid(ℓ + {shift:g})] is not what E_in gives")
            rejected |= not same
    check(rejected, "too few draws to see the wrong scale")


def release_carries_its_noise(subject: MechanismUnderTest) -> None:
    """A release has the noise that was drawn for it, once and whole: simulation may go on from it."""
    for seed in range(5):
        data = subject.ordinary(SEED + seed, 20, 3, (1.0, 1e-3)[seed % 2])
        trial = subject.build(data, relation=REMOVE, epsilon=(0.1, 1.0, 10.0)[seed % 3])
        drawn = trial.mechanism.law.sample(1, np.random.default_rng(seed))[0]
        noise, lost = trial.noise_of(trial.release(np.random.default_rng(seed)))
        apart = float(np.linalg.norm(noise - drawn))
        check(apart <= lost + 1e-9, f"the noise of a release is off by {apart:.3g}")
        check(lost <= 0.01 * np.linalg.norm(drawn), "a noise that can be told from another")


def normalisation(subject: MechanismUnderTest, *, draws: int = 4000) -> float:
    """E over θ ~ p of q(θ)/p(θ) is 1, q uniform on a ball: density and sampler belong together."""
    data = subject.ordinary(SEED, 20, 3, 1.0)
    trial = subject.build(data, relation=REMOVE, epsilon=2.0)
    rng = np.random.default_rng(SEED)
    thetas = trial.releases(draws, rng)
    apart = np.linalg.norm(thetas - trial.centre, axis=1)
    # Fixed before the draws: the ball's radius must not depend on them.
    radius = float(np.median(np.linalg.norm(trial.releases(99, rng) - trial.centre, axis=1)))
    volume = 4 / 3 * np.pi * radius**3
    weight = np.where(apart <= radius, np.exp(-trial.log_density(thetas)) / volume, 0.0)
    check(agrees(weight, 1.0), f"E[q/p] is {np.mean(weight):.4f}, not 1")
    check(not agrees(1.2 * weight, 1.0), "too few draws to see × 1.2")
    return float(np.mean(weight)) - 1


def expected_loss(
    subject: MechanismUnderTest, relation: Neighbouring, simulations: Simulations
) -> float:
    """E[loss] ≥ 0 where the row is in the data, and what the closed form says."""
    simulation = simulations.of(subject, relation, NEAR[subject.is_pure])
    sign = -1.0 if relation is ADD else 1.0
    losses = sign * simulation.losses
    expected = simulation.expected_loss
    rows = losses.mean(axis=0)
    slack = SIGMAS * losses.std(axis=0) / np.sqrt(len(losses))
    check(np.all(rows >= -slack), "E[loss] is below 0")
    if expected is None:
        return 0.0
    check(np.all(sign * expected >= 0), "the closed form is below 0")
    check(np.all(np.abs(rows - sign * expected) <= slack), "a row's E[loss] is not its closed form")
    pooled, target = losses.mean(axis=1), float(np.mean(sign * expected))
    check(agrees(pooled, target), f"E[loss] is {np.mean(pooled):.4f}, not {target:.4f}")
    check(not agrees(1.2 * pooled, target), "too few draws to see × 1.2")
    return float(np.mean(pooled)) / target - 1


# Law 4: the guarantee.


def guarantee(subject: MechanismUnderTest, *, epsilon: float = 1.0, draws: int = 1000) -> float:
    """No exposure passes ε but with the guaranteed probability, on data made to come close.

    Returns the largest share of the guarantee that a row uses.
    """
    used = 0.0
    for extreme in subject.extremes():
        trial = subject.build(extreme.data, relation=extreme.relation, epsilon=epsilon)
        share = trial.separation(extreme.row) / subject.allowed(epsilon)
        check(share <= 1 + 1e-9, f"a row is separated by {share:.4g} of what is allowed")
        check(share >= extreme.share, f"noise for {extreme.share / share:.3g} times the guarantee")
        used = max(used, share)
        rng = np.random.default_rng(SEED)
        count = int(subject.effort * draws / (1 if len(extreme.data.X) < 100 else 10))
        exposures = np.array(
            [np.abs(trial.row_losses(trial.release(rng)).loss) for _ in range(count)]
        )
        if subject.is_pure:
            check(np.max(exposures) <= epsilon * (1 + 1e-9), "an exposure passes ε")
        bound = trial.exceeds(epsilon, extreme.row)
        passing = (exposures[:, extreme.row] > epsilon).astype(float)
        error = SIGMAS * np.sqrt(bound * (1 - bound) / len(passing))
        check(np.mean(passing) <= bound + error, "exposures pass ε too often")
    return used


def guarantee_outside_the_ball(subject: MechanismUnderTest, *, epsilon: float = 1.0) -> float:
    """Rows and labels far past their bounds still cannot pass the guarantee."""
    import warnings

    import expost

    rows = 40
    X = np.zeros((rows, 2))
    X[:, 0] = 1.0
    y = np.ones(rows)
    y[1] = -1.0
    X[0] = -50.0, 50.0
    if isinstance(subject.estimator(epsilon), expost.PrivateRidge):
        y = y * 3 * LABEL_BOUND
    largest = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededReleaseWarning)
        warnings.simplefilter("ignore", ClippedRowsWarning)
        warnings.simplefilter("ignore", NoGuaranteeWarning)
        for seed in range(5):
            model = subject.estimator(epsilon, regularization=4.0, random_state=seed).fit(X, y)
            profile = expost.profile(model, X, y)
            if subject.is_pure:
                check(np.max(profile.exposure) <= epsilon * (1 + 1e-9), "an exposure passes ε")
            if profile.losses.law is not None:
                share = float(np.max(profile.losses.law.separation)) / subject.allowed(epsilon)
                check(share <= 1 + 1e-9, f"a row uses {share:.3g} of the guarantee")
                largest = max(largest, share)
    return largest


def naive_rows(X: FloatArray, cut: float) -> FloatArray:
    """Rows in the unit ball by the rules, one by one: cut, clip to √p/2, and the constant.

    The constant has as much of the squared length as each of p columns, or as each of seven.
    """
    rows = []
    for x in np.asarray(X, dtype=float):
        p = len(x)
        x = [min(max(entry, -cut), cut) for entry in x]
        length, norm = math.sqrt(sum(entry**2 for entry in x)), math.sqrt(p) / 2
        constant = 1 / math.sqrt(p + 1) if p < 7 else math.sqrt(1 / 8)
        factor = math.sqrt(1 - constant**2) / max(length, norm)
        rows.append([*(factor * entry for entry in x), constant])
    return np.array(rows)


def predictions_follow_the_rules(subject: MechanismUnderTest) -> None:
    """Rows that are fitted and rows that are predicted are cut, clipped and extended by the rules.

    Of a table numbers are standardised and cut at ±2, of an array they are taken as they are. The
    constant stops shrinking at seven columns. The model as it was saved predicts the same.
    """
    import warnings

    rng = np.random.default_rng(SEED)
    z = rng.standard_t(2, (60, 3))
    y = np.where(np.arange(60) % 3 > 0, 1.0, -1.0)
    means, scales = np.array([3.0, -1.0, 0.0]), np.array([10.0, 0.5, 2.0])
    names = ["a", "b", "c"]
    encoding = {
        "columns": {
            name: {"mean": float(mean), "scale": float(scale)}
            for name, mean, scale in zip(names, means, scales, strict=True)
        }
    }
    check(np.mean(np.abs(z) > 2) > 0.1, "numbers that are cut")
    many = rng.standard_normal((60, 10))
    cells = z * scales + means
    table = {name: cells[:, k] for k, name in enumerate(names)}
    for X, expected, given in (
        (table, naive_rows((cells - means) / scales, 2.0), encoding),
        (z, naive_rows(z, np.inf), None),
        (many, naive_rows(many, np.inf), None),
    ):
        estimator = subject.estimator(1.0, random_state=1)
        estimator.set_params(data_norm="auto", fit_intercept=True, encoding=given)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = estimator.prepared(X, y).objective.held.X
            release = estimator.fit(X, y).release_
        check(np.allclose(fitted, expected, rtol=1e-12, atol=1e-14), "the rows of the fit")
        scores = [float(np.dot(row, release.theta)) for row in expected]
        for model in (release, Release.from_json(release.to_json())):
            computed = model.scores(X)
            check(np.allclose(computed, scores, rtol=1e-9, atol=1e-12), "the scores of rows")
        if hasattr(estimator, "decision_function"):
            computed = estimator.decision_function(X)
            check(np.allclose(computed, scores, rtol=1e-9, atol=1e-12), "the decision function")


# Law 5: less ε, less loss.


def vanishing(subject: MechanismUnderTest, relation: Neighbouring) -> None:
    """ε → 0 takes every loss to 0."""
    data = subject.ordinary(SEED, 12, 3, 0.5)
    before = np.inf
    for epsilon in (1.0, 1e-2, 1e-4, 1e-6):
        trial = subject.build(data, relation=relation, epsilon=epsilon)
        rng = np.random.default_rng(SEED)
        largest = max(
            float(np.max(np.abs(trial.row_losses(trial.release(rng)).loss))) for _ in range(20)
        )
        check(largest < before / 5, f"losses do not shrink at ε = {epsilon:g}")
        before = largest
    check(0 < before <= 1e-4, f"losses of {before:.3g} are left at ε = 1e-6")


def more_noise_less_posterior(
    subject: MechanismUnderTest, relation: Neighbouring, simulations: Simulations
) -> None:
    """A expected posterior never rises with the noise, and is what simulation finds."""
    data = subject.ordinary(SEED, 40, 3, 1.0)
    before = None
    for epsilon in np.geomspace(1e-3, 1e3, 13):
        trial = subject.build(data, relation=relation, epsilon=float(epsilon))
        law = trial.row_losses(trial.centre).law
        if law is None:
            return
        posterior = law.expected_posterior()
        check(
            np.all((posterior >= 0.5) & (posterior <= 1)),
            "a expected posterior is below random guessing",
        )
        if before is not None:
            check(np.all(posterior >= before - 1e-12), "more noise raises a expected posterior")
        before = posterior
    simulation = simulations.of(subject, relation, NEAR[subject.is_pure])
    law = simulation.trial.row_losses(simulation.trial.centre).law
    sign = -1.0 if relation is ADD else 1.0
    simulated = expit(sign * simulation.losses).mean(axis=1)
    target = float(np.mean(law.expected_posterior()))
    check(agrees(simulated, target), "the expected posterior is not what simulation finds")
    check(not agrees(expit(1.2 * sign * simulation.losses).mean(axis=1), target), "no power")


# Law 6: nothing depends on order, copies, blocks or workers.


def order_and_copies(subject: MechanismUnderTest, relation: Neighbouring) -> None:
    """Permuting rows permutes losses; copies of a row have equal losses."""
    data = subject.ordinary(SEED, 30, 4, 0.1)
    X, y = data.X.copy(), data.y.copy()
    X[11], y[11] = X[3], y[3]
    entering = (data.entering[0].copy(), data.entering[1].copy())
    for part in entering:
        part[11] = part[3]
    data = replace(data, X=X, y=y, entering=entering)
    trial = subject.build(data, relation=relation, epsilon=10.0)
    theta = trial.release(np.random.default_rng(SEED))
    losses = trial.row_losses(theta).loss
    check(abs(losses[3] - losses[11]) <= 1e-12, "copies of a row differ")
    check(np.unique(np.round(losses, 9)).size >= 25, "losses that tell rows apart")
    order = np.random.default_rng(SEED).permutation(30)
    other = subject.build(data.permuted(order), relation=relation, epsilon=10.0)
    check(np.max(np.abs(other.row_losses(theta).loss - losses[order])) <= 1e-10, "order matters")


def blocks_and_workers(subject: MechanismUnderTest, relation: Neighbouring) -> None:
    """The block size changes nothing beyond 1e-10, the number of workers no byte."""
    data = subject.ordinary(SEED, 300, 4, 0.1)

    def answer(theta: FloatArray | None = None) -> tuple[FloatArray, list[FloatArray]]:
        trial = subject.build(data, relation=relation, epsilon=10.0)
        if theta is None:
            theta = trial.release(np.random.default_rng(SEED))
        losses = trial.row_losses(theta)
        return theta, [losses.loss, losses.low, losses.high, losses.distance]

    theta, first = answer()
    again = answer(theta)[1]
    check(
        all(a.tobytes() == b.tobytes() for a, b in zip(first, again, strict=True)), "not repeated"
    )
    for entries in (1, 2**9):
        with mock.patch.object(_numerics, "_BLOCK_ENTRIES", entries):
            blocked = answer(theta)[1]
        # An interval counts the roundings of a block, so it may be wider by a thousandth.
        slack = 1e-10 + 1e-3 * (first[2] - first[1])
        for a, b in zip(first, blocked, strict=True):
            check(np.all(np.abs(a - b) <= slack), "the block size matters")
        check(np.max(np.abs(first[0] - blocked[0])) <= 1e-10, "the block size matters")
    small = subject.build(subject.ordinary(SEED, 12, 3, 0.1), relation=REMOVE, epsilon=1.0)
    if isinstance(small, OutputTrial):
        check(_retrained(small, "threading") == _retrained(small, "sequential"), "workers matter")


def _retrained(trial: OutputTrial, backend: str) -> bytes:
    penalty = np.full(trial.data.X.shape[1], trial.data.regularization)
    problem = Objective.of(
        X=trial.data.X, y=trial.data.y, loss=trial.mechanism.loss, penalty=penalty
    )
    with joblib.parallel_config(backend):
        return neighbours_of(problem, trial.base, method="retrain").shift.tobytes()


# Law 7: the certificate, at the level of losses.


def intervals_hold_the_truth(
    subject: MechanismUnderTest, *, problems: int, first: int = 0
) -> tuple[int, int]:
    """Every loss's interval holds the 50-digit truth on awkward data.

    Returns how many losses were tried, and how many intervals were no wider than a tenth of the
    loss they hold (or 1e-6).
    """
    tried = tight = 0
    for seed in range(first, first + problems):
        data = _awkward(subject, seed)
        rng = np.random.default_rng(SEED + seed)
        relation = RELATIONS[seed % 3]
        epsilon = float(10 ** rng.uniform(-1, 3))
        trial = subject.build(data, relation=relation, epsilon=epsilon)
        theta = trial.release(rng)
        losses = trial.row_losses(theta)
        for row in range(len(losses.loss)):
            truth = trial.log_ratio(theta, row)
            inside = losses.low[row] <= truth <= losses.high[row]
            check(inside, f"problem {seed}, row {row}: {float(truth)!r} is outside its interval")
            tried += 1
            width = losses.high[row] - losses.low[row]
            tight += bool(width <= max(1e-6, 0.1 * abs(float(truth))))
    return tried, tight


def _awkward(subject: MechanismUnderTest, seed: int) -> Data:
    """Separable, duplicated, collinear, singleton, tiny and zero rows; Λ from 1e-6 to 1e3."""
    rng = np.random.default_rng(10_000 + seed)
    rows, columns = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    data = subject.ordinary(seed, rows, columns, float(10 ** rng.uniform(-6, 3)))
    X, y = data.X.copy(), data.y.copy()
    match seed % 6:
        case 0:
            X[:, 0] = np.abs(X[:, 0]) * np.sign(y)
        case 1:
            X[-1], y[-1] = X[0], y[0]
        case 2:
            X[:, -1] = X[:, 0]
            X /= 2
        case 3:
            X[1:, -1] = 0.0
        case 4:
            X *= 1e-3
        case _:
            X[0] = 0.0
    return replace(data, X=X, y=y)


def intervals_hold_the_cells(subject: MechanismUnderTest) -> int:
    """The interval also holds log P(cell ∣ D) − log P(cell ∣ D'): a release is a cell, not a point.

    One dimension, where a cell's mass has a closed form, and the coarsest grid that is allowed.
    """
    tried = 0
    with mock.patch.object(grid, "_SHARP_BITS", 10):
        data = subject.ordinary(SEED, 6, 1, 0.5)
        trial = subject.build(data, relation=REMOVE, epsilon=3.0)
        step = trial.mechanism.grid.step
        rng = np.random.default_rng(SEED)
        thetas = [
            trial.mechanism.grid.snap(np.array([kink + k * step]))
            for kink in trial.kinks(6)
            for k in (-1, 0, 1)
        ]
        thetas += [trial.release(rng) for _ in range(20)]
        for theta in thetas:
            losses = trial.row_losses(theta)
            for row in range(6):
                truth = trial.cell_log_ratio(theta, row)
                check(losses.low[row] <= truth <= losses.high[row], "a cell's loss is outside")
                tried += 1
    return tried


def every_law(subject: MechanismUnderTest) -> Iterator[tuple[str, object]]:
    """The laws by name, cheap ones first, each a function without arguments (for mutants)."""
    simulations = Simulations()
    for relation in RELATIONS:
        yield (
            f"1 {relation.value}",
            lambda r=relation: losses_are_the_brute_force_log_ratio(subject, r),
        )
    yield "4", lambda: guarantee(subject)
    yield "4 clipping", lambda: guarantee_outside_the_ball(subject)
    yield "4 predictions", lambda: predictions_follow_the_rules(subject)
    yield "7 cells", lambda: intervals_hold_the_cells(subject)
    yield "7", lambda: intervals_hold_the_truth(subject, problems=6)
    yield "2 release", lambda: release_carries_its_noise(subject)
    yield "2 normaliser", lambda: normalisation(subject)
    yield "2", lambda: change_of_measure(subject, REMOVE, simulations)
    yield "3", lambda: expected_loss(subject, REMOVE, simulations)
    yield "5", lambda: more_noise_less_posterior(subject, REMOVE, simulations)
