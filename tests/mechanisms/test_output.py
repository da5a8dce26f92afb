"""Output perturbation: scales, refusals, randomness (its losses: tests/conformance)."""

import dataclasses
import math
import os

import numpy as np
import pytest

import expost
from expost.errors import InvalidInput, WrongRows
from expost.glm import Minimiser, Objective, minimise
from expost.losses import HuberHinge, Logistic, Squared
from expost.mechanisms import ObjectivePerturbation, OutputPerturbation
from expost.neighbouring.neighbours import neighbours_of
from expost.noise import Gaussian, GaussianLaw, NormLaplace, NormLaplaceLaw
from expost.risk import EpsilonDelta, GaussianNoise, NormLaplaceNoise
from expost.types import Neighbouring


def mechanism(**changes):
    values = {
        "epsilon": 2.0,
        "loss": Logistic(),
        "regularization": 0.1,
        "rows": 40,
        "dimension": 3,
        **changes,
    }
    return OutputPerturbation(**values)


def problem(seed=0, rows=40, columns=3, loss=None, regularization=0.1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    X /= np.linalg.norm(X, axis=1).max()
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=rows) > 0, 1.0, -1.0)
    penalty = np.full(columns, regularization)
    return Objective.of(X=X, y=y, loss=loss or Logistic(), penalty=penalty)


def test_beta_is_n_lambda_epsilon_over_two_lipschitz():
    """LeBlond 3.2 with the Lipschitz constant of DESIGN.md; the minimiser's 1e-12 costs little."""
    for loss, lipschitz in (
        (Logistic(), 1.0),
        (HuberHinge(), 1.0),
        (Squared(label_bound=2.0), 2.0 + 2.0 / (2 * math.sqrt(0.1))),
    ):
        perturbation = mechanism(loss=loss)
        assert perturbation.sensitivity == pytest.approx(2 * lipschitz / (40 * 0.1), rel=1e-9)
        assert perturbation.sensitivity > 2 * lipschitz / (40 * 0.1)
        assert isinstance(perturbation.law, NormLaplace)
        assert perturbation.law.rate == pytest.approx(40 * 0.1 * 2.0 / (2 * lipschitz), rel=1e-9)
        assert perturbation.resolution == 1 / perturbation.law.rate


def test_sigma_is_the_analytic_one():
    perturbation = mechanism(noise="gaussian", delta=1e-5)
    mu = perturbation.sensitivity / perturbation.law.scale
    assert isinstance(perturbation.law, Gaussian)
    # Balle and Wang: δ(2, μ) = 1e-5 at μ = 0.5156… (dp_accounting gives σ = 1.9394 at Δ = 1).
    phi = lambda z: 0.5 * math.erfc(-z / math.sqrt(2))  # noqa: E731 (a formula, not a function)
    delta = phi(mu / 2 - 2 / mu) - math.exp(2) * phi(-mu / 2 - 2 / mu)
    assert delta == pytest.approx(1e-5, rel=1e-4)
    assert delta <= 1e-5


CONSTANTS = {"epsilon": 1.0, "loss": Logistic(), "regularization": 0.1, "rows": 40, "dimension": 3}


@pytest.mark.parametrize("kind", [OutputPerturbation, ObjectivePerturbation])
@pytest.mark.parametrize(("noise", "delta"), [("laplace", None), ("gaussian", 1e-5)])
def test_every_constant_reaches_its_validator(kind, noise, delta):
    """What each refuses: tests/test_validate.py."""
    mechanism = kind(**CONSTANTS, noise=noise, delta=delta)
    for item in dataclasses.fields(mechanism):
        if item.init and item.name != "loss":
            for value in (math.nan, -1, 0.0, "1", True, object()):
                if (item.name, value) != ("rows_per_person", True):
                    with pytest.raises(InvalidInput, match=f"^{item.name}"):
                        dataclasses.replace(mechanism, **{item.name: value})
    for wrong in ({"rows": 1}, {"rows": 40.0}, {"dimension": 0}, {"epsilon": 1e-60}):
        with pytest.raises(InvalidInput, match=f"^{next(iter(wrong))}"):
            dataclasses.replace(mechanism, **wrong)
    # Gaussian noise needs a delta, and norm-Laplace noise takes none.
    with pytest.raises(InvalidInput, match=r"^delta"):
        dataclasses.replace(mechanism, delta=None if delta else 1e-5)


def test_release_lies_on_the_grid_and_near_the_minimiser():
    perturbation, base = mechanism(), minimise(problem())
    rng = np.random.default_rng(1)
    for _ in range(50):
        theta = perturbation.add_noise(base, rng)
        assert perturbation.grid.holds(theta)
        assert theta.shape == (3,)
    assert not np.array_equal(perturbation.add_noise(base, rng), perturbation.add_noise(base, rng))


def test_release_refuses_a_base_above_the_tolerance():
    """The sensitivity counts on ∥∇J∥ ≤ 1e-12."""
    base = minimise(problem())
    for bound in (1.1e-12, math.nan, math.inf):
        loose = Minimiser(theta=base.theta, gradient_bound=bound, iterations=1)
        with pytest.raises(InvalidInput, match="gradient"):
            mechanism().add_noise(loose, np.random.default_rng(0))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_release_without_a_generator_uses_the_operating_system(monkeypatch, noise):
    """No NumPy generator is made or drawn from; the operating system is asked for 64 bits each."""
    base = minimise(problem())

    def fail(*_, **__):
        raise AssertionError("a release must not use NumPy's generators")

    for name in ("default_rng", "Generator", "PCG64", "RandomState", "SeedSequence"):
        monkeypatch.setattr(np.random, name, fail)
    for name in ("normal", "standard_normal", "gamma", "random", "exponential", "seed"):
        monkeypatch.setattr(np.random, name, fail)
    monkeypatch.setattr("random.random", fail)
    sizes = []
    urandom = os.urandom
    monkeypatch.setattr(os, "urandom", lambda count: sizes.append(count) or urandom(count))
    perturbation = mechanism(noise=noise, delta=1e-5 if noise == "gaussian" else None)
    first, second = perturbation.add_noise(base), perturbation.add_noise(base)
    assert not np.array_equal(first, second)
    assert sum(sizes) >= 2 * 8 * 3
    assert perturbation.grid.holds(first)


def test_epsilon_infinity_is_the_minimiser_itself():
    perturbation, base = mechanism(epsilon=math.inf), minimise(problem())
    theta = perturbation.add_noise(base)
    assert np.array_equal(theta, base.theta)
    assert theta is not base.theta
    assert not perturbation.is_private
    with pytest.raises(InvalidInput, match="no noise"):
        _ = perturbation.law
    losses = perturbation.row_losses(theta, neighbours_of(problem(), base))
    assert np.all(np.isinf(losses.loss))
    assert np.all(losses.low == np.inf)
    assert losses.law is None
    assert losses.worst_case == math.inf


class TestGuarantee:
    def test_of_norm_laplace_noise_it_is_pure_and_less_than_pure_allows(self):
        for dimension in (1, 3, 40):
            for epsilon in (1e-50, 1e-8, 2.0, 1e4):
                guarantee = mechanism(epsilon=epsilon, dimension=dimension).guarantee()
                assert guarantee == NormLaplaceNoise(separation=epsilon, dimension=dimension)
                assert guarantee.epsilon(0.0) == epsilon
                assert guarantee.loss() == epsilon
                assert 0 < guarantee.advantage <= EpsilonDelta(epsilon=epsilon).advantage

    @pytest.mark.parametrize("epsilon", [0.01, 2.0, 50.0])
    @pytest.mark.parametrize("delta", [1e-9, 1e-3])
    def test_of_gaussian_noise_it_is_the_whole_curve(self, epsilon, delta):
        perturbation = mechanism(noise="gaussian", epsilon=epsilon, delta=delta)
        guarantee = perturbation.guarantee()
        assert isinstance(guarantee, GaussianNoise)
        # The noise keeps its guarantee, and a thousandth less ε would not be kept.
        assert guarantee.delta(epsilon) <= delta * (1 + 1e-9)
        assert guarantee.delta(epsilon * 0.999) > delta
        assert guarantee.mu >= perturbation.sensitivity / perturbation.resolution
        assert guarantee.mu == pytest.approx(perturbation.sensitivity / perturbation.resolution)

    def test_without_noise_nothing_is_guaranteed(self):
        guarantee = mechanism(epsilon=math.inf).guarantee()
        assert guarantee == EpsilonDelta(epsilon=math.inf)
        assert guarantee.advantage == 1.0

    def test_the_losses_carry_it(self):
        for perturbation in (mechanism(), mechanism(noise="gaussian", delta=1e-5)):
            base = minimise(problem())
            theta = perturbation.add_noise(base, np.random.default_rng(0))
            losses = perturbation.row_losses(theta, neighbours_of(problem(), base))
            assert losses.guarantee == perturbation.guarantee()


def test_without_noise_a_row_that_moves_nothing_loses_nothing():
    """A zero row at A = 0: its distance is exactly 0; one that may be 0 is not called private."""
    apart = np.array([0.0, 0.0, 1e-3, 1e-3])
    error = np.array([0.0, 1e-9, 1e-9, 1e-2])
    losses = expost.mechanisms.RowLosses.without_noise(apart, error, Neighbouring.REMOVE)
    assert losses.loss.tolist() == [0.0, math.inf, math.inf, math.inf]
    assert losses.low.tolist() == [0.0, 0.0, math.inf, 0.0]
    assert losses.high.tolist() == [0.0, math.inf, math.inf, math.inf]


def test_without_noise_a_stranger_is_proved_to_be_absent():
    """ADD: p(θ ∣ D ∪ z) = 0 at θ = A(D), so the loss is −∞ and nobody believes that z was there."""
    apart = np.array([0.0, 0.0, 1e-3, 1e-3])
    error = np.array([0.0, 1e-9, 1e-9, 1e-2])
    losses = expost.mechanisms.RowLosses.without_noise(apart, error, Neighbouring.ADD)
    assert losses.loss.tolist() == [0.0, -math.inf, -math.inf, -math.inf]
    assert losses.low.tolist() == [0.0, -math.inf, -math.inf, -math.inf]
    assert losses.high.tolist() == [0.0, 0.0, -math.inf, 0.0]
    data, perturbation = problem(), mechanism(epsilon=math.inf)
    result = expost.profile(
        minimise(data).theta,
        data.held.X,
        data.held.y,
        relation="add",
        candidates=(data.held.X[:3] / 2, data.held.y[:3]),
        mechanism=perturbation,
    )
    assert result.posterior.tolist() == [0.0, 0.0, 0.0]
    assert result.certainty.tolist() == [1.0, 1.0, 1.0]


class TestCheckRows:
    def test_accepts_what_the_law_draws(self):
        """False refusals are 1e-9: none in 3,000, however few dimensions there are."""
        for dimension in (1, 2, 5):
            data = problem(columns=dimension)
            perturbation, base = mechanism(dimension=dimension), minimise(data)
            rng = np.random.default_rng(2)
            for _ in range(1000):
                perturbation.check_rows(perturbation.add_noise(base, rng), base.theta, 0.0)

    def test_accepts_a_release_on_its_own_centre(self):
        """A on the grid, one dimension: θ = A happens, and says nothing against the rows."""
        mechanism = OutputPerturbation(
            epsilon=2e8, loss=HuberHinge(), regularization=1.0, rows=10, dimension=1
        )
        mechanism.check_rows(np.zeros(1), np.zeros(1), 0.0)

    def test_refuses_a_noise_outside_its_law(self):
        perturbation, base = mechanism(), minimise(problem()).theta
        far = perturbation.law.norm_exceeded_with(1e-10)
        with pytest.raises(WrongRows, match="cannot have made this model"):
            perturbation.check_rows(base + np.array([far, 0, 0]), base, 0.0)
        likely = perturbation.law.norm_exceeded_with(1e-8)
        perturbation.check_rows(base + np.array([likely, 0, 0]), base, 0.0)

    def test_refuses_too_little_noise(self):
        """In fifty dimensions a norm of nearly 0 is as impossible as a huge one."""
        perturbation = mechanism(dimension=50)
        with pytest.raises(WrongRows):
            perturbation.check_rows(np.full(50, 1e-4), np.zeros(50), 0.0)

    def test_without_noise_the_point_must_agree(self):
        perturbation = mechanism(epsilon=math.inf)
        perturbation.check_rows(np.full(3, 1e-9), np.zeros(3), 0.0)
        with pytest.raises(WrongRows):
            perturbation.check_rows(np.full(3, 1e-6), np.zeros(3), 0.0)

    def test_nan_is_refused(self):
        for epsilon in (1.0, math.inf):
            with pytest.raises(InvalidInput):
                mechanism(epsilon=epsilon).check_rows(np.full(3, np.nan), np.zeros(3), 0.0)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_clamped_release_has_the_widest_interval(noise):
    """The cell on the clamp is unbounded, so the log ratio of its mass can be anything."""
    data = problem()
    perturbation = mechanism(noise=noise, delta=1e-5 if noise == "gaussian" else None)
    near = neighbours_of(data, minimise(data))
    theta = np.array([perturbation.grid.clamp, 0.0, 0.0])
    losses = perturbation.row_losses(theta, near)
    if noise == "laplace":
        # Within ±t, whatever happened beyond the clamp.
        assert np.all(losses.low <= -perturbation.law.rate * near.distance)
        assert np.all(losses.high >= perturbation.law.rate * near.distance)
    else:
        assert np.all(np.isinf(losses.high - losses.low))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_an_unproved_shift_gives_an_unproved_loss(noise):
    data = problem()
    perturbation = mechanism(noise=noise, delta=1e-5 if noise == "gaussian" else None)
    near = neighbours_of(data, minimise(data))
    blind = dataclasses.replace(near, error_bound=np.full(40, np.inf))
    losses = perturbation.row_losses(np.zeros(3), blind)
    assert np.all(losses.low == -np.inf)
    assert np.all(losses.high == np.inf)
    with pytest.raises(InvalidInput, match="NaN"):
        perturbation.row_losses(
            np.zeros(3), dataclasses.replace(near, error_bound=np.full(40, np.nan))
        )


class TestAutomaticRegularization:
    def risk(self, value, *, epsilon, rows, dimension):
        """(c/d + Λ)/2·E∥b∥² + Λ/2 with E∥b∥² = d(d + 1)/β², β = nΛε/2, c = ¼."""
        beta = rows * value * epsilon / 2
        spread = dimension * (dimension + 1) / beta**2
        return (0.25 / dimension + value) / 2 * spread + value / 2

    @pytest.mark.parametrize("epsilon", [0.01, 1.0, 100.0])
    @pytest.mark.parametrize("rows", [20, 5000])
    @pytest.mark.parametrize("dimension", [1, 30])
    def test_minimises_the_stated_risk(self, epsilon, rows, dimension):
        budget = {"epsilon": epsilon, "rows": rows, "dimension": dimension}
        chosen = OutputPerturbation.automatic_regularization(
            delta=None, noise="laplace", loss=Logistic(), **budget
        )
        grid = np.geomspace(max(1 / rows, 1e-8), 1e3, 4000)
        best = min(self.risk(value, **budget) for value in grid)
        assert chosen >= 1 / rows
        assert self.risk(chosen, **budget) <= 1.01 * best

    def test_more_noise_wants_more_regularization(self):
        def chosen(**budget):
            return OutputPerturbation.automatic_regularization(
                **{
                    "epsilon": 1.0,
                    "delta": None,
                    "noise": "laplace",
                    "loss": Logistic(),
                    "rows": 1000,
                    "dimension": 10,
                    **budget,
                }
            )

        assert chosen(epsilon=0.1) > chosen() > chosen(epsilon=10.0)
        assert chosen(rows=100) > chosen() > chosen(rows=10_000)
        assert chosen(dimension=100) > chosen()
        assert chosen(epsilon=math.inf) == pytest.approx(1 / 1000, rel=0.06)
        gaussian = chosen(noise="gaussian", delta=1e-6, loss=Squared(label_bound=5.0))
        assert 1e-3 <= gaussian <= 1e3


def both_noises():
    return mechanism(), mechanism(noise="gaussian", delta=1e-5)


class TestOverEpsilon:
    DISTANCE = np.array([1.0, 1e-3, 0.37, 0.5, 1e-12])

    def separation(self, mechanism, epsilon, distance):
        """β·distance or distance/σ of an actual release at this ε."""
        law = dataclasses.replace(mechanism, epsilon=float(epsilon)).law
        return law.rate * distance if isinstance(law, NormLaplace) else distance / law.scale

    @pytest.mark.parametrize("mechanism", both_noises(), ids=["laplace", "gaussian"])
    @pytest.mark.parametrize("separation", [0.05, 0.9, 3.87354, 40.0])
    def test_epsilon_at_is_the_largest_that_keeps_the_separation(self, mechanism, separation):
        # Distances in units of the sensitivity, none of them beyond it.
        distance = self.DISTANCE[:4] * mechanism.sensitivity
        computed = mechanism.epsilon_at(separation, distance)
        for apart, epsilon in zip(distance, computed, strict=True):
            if epsilon == 0:
                assert self.separation(mechanism, 1e-9, apart) > separation
                continue
            assert self.separation(mechanism, epsilon, apart) <= separation
            assert self.separation(mechanism, epsilon * (1 + 1e-5), apart) > separation
        assert np.argmin(computed) == 0

    @pytest.mark.parametrize("mechanism", both_noises(), ids=["laplace", "gaussian"])
    @pytest.mark.parametrize("separation", [0.9, 2.353, 40.0])
    def test_epsilon_from_is_the_least_that_reaches_it(self, mechanism, separation):
        for apart in self.DISTANCE[:4] * mechanism.sensitivity:
            epsilon = mechanism.epsilon_from(separation, float(apart))
            assert self.separation(mechanism, epsilon, apart) >= separation
            assert self.separation(mechanism, epsilon * (1 - 1e-5), apart) < separation
            assert epsilon == pytest.approx(
                float(mechanism.epsilon_at(separation, np.array([apart]))[0]), rel=1e-5
            )

    @pytest.mark.parametrize("mechanism", both_noises(), ids=["laplace", "gaussian"])
    def test_a_row_that_does_not_move_the_model(self, mechanism):
        assert mechanism.epsilon_at(1.0, np.zeros(2)).tolist() == [math.inf, math.inf]
        assert mechanism.epsilon_from(1.0, 0.0) == math.inf
        assert mechanism.epsilon_from(1.0, math.nan) == math.inf
        assert mechanism.epsilon_at(1.0, np.array([5e-324]))[0] > 1e100
        assert mechanism.epsilon_at(1.0, np.array([math.inf]))[0] == 0, "fail closed"

    def test_the_pure_constant(self):
        """ε = Δ·separation/distance, to the last digits."""
        perturbation = mechanism()
        distance = self.DISTANCE * perturbation.sensitivity
        np.testing.assert_allclose(
            perturbation.epsilon_at(2.0, distance),
            2.0 * perturbation.sensitivity / distance,
            rtol=1e-14,
        )
        assert np.all(
            perturbation.epsilon_at(2.0, distance) < 2.0 * perturbation.sensitivity / distance
        )

    @pytest.mark.parametrize("mechanism", both_noises(), ids=["laplace", "gaussian"])
    def test_unit_noise_times_the_resolution_is_the_noise(self, mechanism):
        unit = mechanism.unit_noise
        assert type(unit) is type(mechanism.law)
        assert unit.dimension == mechanism.dimension
        b = np.random.default_rng(0).normal(size=(6, 3))
        # The density of ρ·b' at b is that of b' at b/ρ, over ρ^d.
        np.testing.assert_allclose(
            mechanism.law.log_density(b),
            unit.log_density(b / mechanism.resolution) - 3 * math.log(mechanism.resolution),
            rtol=1e-12,
        )

    def test_the_law_is_free_of_epsilon(self):
        t = np.array([0.0, 0.3, 5.0])
        laplace, gaussian = both_noises()
        assert isinstance(laplace.loss_law(t), NormLaplaceLaw)
        assert isinstance(gaussian.loss_law(t), GaussianLaw)
        for mechanism in (laplace, gaussian):
            distance = t * mechanism.resolution
            np.testing.assert_allclose(
                mechanism.loss_law(t).expected_exposure,
                mechanism.law.law(distance).expected_exposure,
                rtol=1e-12,
            )
            other = dataclasses.replace(mechanism, epsilon=77.0)
            np.testing.assert_array_equal(
                other.loss_law(t).expected_loss, mechanism.loss_law(t).expected_loss
            )
        assert laplace.loss_law(t).dimension == 3
