"""What an attacker can tell of each row: against naive formulas and games that are played out."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize

import expost
from expost.errors import InvalidInput
from expost.glm import Objective, minimise
from expost.losses import Logistic
from expost.mechanisms import ObjectivePerturbation, OutputPerturbation, RowLosses
from expost.mechanisms.sampling import perturbed_minimisers
from expost.neighbouring.neighbours import tight_neighbours
from expost.noise import Gaussian, GaussianLaw, NormLaplace
from expost.risk import EpsilonDelta, GaussianNoise
from expost.types import Audience, Neighbouring

ROWS, COLUMNS, REGULARIZATION = 12, 2, 0.05
RNG = np.random.default_rng(7)
X = RNG.normal(size=(ROWS, COLUMNS))
X /= np.linalg.norm(X, axis=1).max()
Y = np.where(X[:, 0] + 0.3 * RNG.normal(size=ROWS) > 0, 1.0, -1.0)
PROBLEM = Objective.of(X=X, y=Y, loss=Logistic(), penalty=np.full(COLUMNS, REGULARIZATION))
CONSTANTS = {
    "loss": Logistic(),
    "regularization": REGULARIZATION,
    "rows": ROWS,
    "dimension": COLUMNS,
}
GAMES = 40_000


def made(loss, width=0.0, **changes):
    """Losses that were put together by hand."""
    loss = np.asarray(loss, dtype=float)
    values = {
        "loss": loss,
        "low": loss - width,
        "high": loss + width,
        "distance": np.abs(loss),
        "distance_error": np.zeros(len(loss)),
        "relation": Neighbouring.REMOVE,
        "law": None,
        "worst_case": 2.0,
        **changes,
    }
    return RowLosses(**values)


def view(losses, **options):
    rows = len(losses.loss)
    return expost.Profile(losses=losses, description="a model", rows=rows).identifiability(
        **options
    )


def released(mechanism):
    """The identifiability of a release by output perturbation, and its neighbours."""
    near = tight_neighbours(PROBLEM, minimise(PROBLEM, tolerance=1e-12))
    theta = mechanism.release(PROBLEM, np.random.default_rng(0))
    return view(mechanism.row_losses(theta, near))


def centre(keep):
    """The minimiser by another solver: the mean over the rows that are kept."""

    def objective(theta):
        margin = Y[keep] * (X[keep] @ theta)
        return np.mean(np.logaddexp(0, -margin)) + REGULARIZATION / 2 * theta @ theta

    solution = scipy.optimize.minimize(
        objective, np.zeros(COLUMNS), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13}
    )
    return solution.x


def games_won(rng, with_row, without, log_density):
    """The share of games that a Bayes adversary wins who must tell which centre it was."""
    won = 0
    for _ in range(GAMES // 1000):
        for there in (True, False):
            noise = rng(500)
            theta = noise + (with_row if there else without)
            evidence = log_density(theta - with_row) - log_density(theta - without)
            won += np.count_nonzero((evidence > 0) == there)
    return won / GAMES


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_advantage_is_what_a_bayes_adversary_wins_by(noise):
    """40,000 games against three rows: within 4 standard errors, and never that of × 1.25."""
    delta = 1e-3 if noise == "gaussian" else None
    mechanism = OutputPerturbation(epsilon=20.0, noise=noise, delta=delta, **CONSTANTS)
    risk = released(mechanism)
    rng = np.random.default_rng(3)
    if noise == "laplace":

        def sample(size):
            direction = rng.normal(size=(size, COLUMNS))
            direction /= np.linalg.norm(direction, axis=1)[:, None]
            return direction * rng.gamma(COLUMNS, 1 / mechanism.law.rate, size=size)[:, None]

        def log_density(b):
            return -mechanism.law.rate * np.linalg.norm(b, axis=1)
    else:

        def sample(size):
            return rng.normal(scale=mechanism.law.scale, size=(size, COLUMNS))

        def log_density(b):
            return -np.sum(b**2, axis=1) / (2 * mechanism.law.scale**2)

    for row in np.argsort(-risk.advantage)[:3]:
        won = games_won(
            sample, centre(np.arange(ROWS) >= 0), centre(np.arange(ROWS) != row), log_density
        )
        error = 2 * math.sqrt(won * (1 - won) / GAMES)
        assert abs(2 * won - 1 - risk.advantage[row]) <= 4 * error
        assert abs(2 * won - 1 - 1.25 * risk.advantage[row]) > 4 * error
        assert risk.advantage_error[row] == 0


def test_the_advantage_under_objective_perturbation_is_sampled():
    """Both worlds are drawn and judged by the densities themselves."""
    mechanism = ObjectivePerturbation(epsilon=8.0, delta=1e-2, **CONSTANTS)
    problem = replace(PROBLEM, penalty=np.full(COLUMNS, mechanism.total_regularization))
    theta = mechanism.release(problem, np.random.default_rng(1))
    risk = expost.profile(theta, X, Y, mechanism=mechanism).identifiability()
    row = risk.row
    keep = np.arange(ROWS) != row
    # Without the row λ and the law of b stay, and the sum runs over the others.
    others = Objective.of(
        X=X[keep],
        y=Y[keep],
        loss=Logistic(),
        penalty=np.full(COLUMNS, mechanism.penalty_sum / (ROWS - 1)),
    )
    rng, size = np.random.default_rng(2), 4000

    def log_density(models, rows, labels):
        slope = -labels / (1 + np.exp(labels * (models @ rows.T)))
        curve = np.abs(slope) * (1 - np.abs(slope))
        gradient = slope @ rows + mechanism.penalty_sum * models
        hessian = np.einsum("mi,ij,ik->mjk", curve, rows, rows) + mechanism.penalty_sum * np.eye(
            COLUMNS
        )
        return -np.sum(gradient**2, axis=1) / (2 * mechanism.law.scale**2) + np.log(
            np.linalg.det(hessian)
        )

    won = 0
    for there, drawn, count in ((True, problem, ROWS), (False, others, ROWS - 1)):
        models = perturbed_minimisers(drawn, mechanism.law.sample(size, rng) / count)
        evidence = log_density(models, X, Y) - log_density(models, X[keep], Y[keep])
        won += np.count_nonzero((evidence > 0) == there)
    played = 2 * won / (2 * size) - 1
    error = math.hypot(risk.advantage_error[row], 2 * math.sqrt(0.25 / (2 * size)))
    assert 0 < risk.advantage_error[row] < 0.05
    assert abs(played - risk.advantage[row]) <= 4 * error
    assert abs(played - 1.6 * risk.advantage[row]) > 4 * error
    assert "± " in str(risk)


@pytest.mark.parametrize("relation", [Neighbouring.REMOVE, Neighbouring.ADD])
def test_sampled_advantages_know_which_world_was_drawn(relation):
    """A Gaussian loss with a known advantage; for ADD the model is drawn without the row."""
    mu = np.array([0.2, 1.0, 3.0])
    sign = -1.0 if relation is Neighbouring.ADD else 1.0

    def draw(size, rng):
        for _ in range(size):
            yield sign * mu * (mu / 2 + rng.standard_normal(3))

    risk = view(made(np.zeros(3), relation=relation, draw=draw))
    exact = GaussianLaw(separation=mu).advantage
    assert np.all(np.abs(risk.advantage - exact) <= 4 * risk.advantage_error)
    assert np.all(risk.advantage_error < 0.05)
    turned = view(made(np.zeros(3), relation=Neighbouring.REMOVE, draw=draw)).advantage
    if relation is Neighbouring.ADD:
        assert np.all(np.abs(turned - exact)[1:] > 4 * risk.advantage_error[1:])


def test_posteriors_follow_from_the_losses():
    loss = np.array([0.3, -2.0, 0.0, 40.0, 1.5])
    for prior in (0.5, 0.001, 0.9):
        risk = view(made(loss, 0.1), prior=prior)
        for row in range(5):
            ends = (("posterior", 0.0), ("posterior_low", -0.1), ("posterior_high", 0.1))
            for name, value in ends:
                odds = prior / (1 - prior) * math.exp(loss[row] + value)
                assert getattr(risk, name)[row] == pytest.approx(odds / (1 + odds), rel=1e-13)
            certainty = max(risk.posterior[row], 1 - risk.posterior[row])
            assert risk.certainty[row] == certainty
            assert risk.certainty_high[row] >= certainty
        assert risk.row == 3
        assert risk.ranking.tolist() == [3, 4, 0, 2, 1]


def test_shares_are_counted_on_the_exposed_end():
    rng = np.random.default_rng(0)
    loss, width = rng.normal(size=200), rng.exponential(0.2, size=200)
    risk = view(made(loss, width))
    for level in (0.0, 0.3, 0.5, 0.6, 0.75, 0.9, 1.0):
        counted = sum(
            1 for row in range(200) if 1 / (1 + math.exp(-loss[row] - width[row])) > level
        )
        assert risk.rows_above(level) == counted
        assert risk.share_above(level) == counted / 200
    middle = view(made(loss)).rows_above(0.6)
    assert middle < risk.rows_above(0.6)
    for level in (-0.1, 1.1, math.nan):
        with pytest.raises(InvalidInput, match="posterior"):
            risk.share_above(level)
    for prior in (0.0, 1.0, math.nan, "a"):
        with pytest.raises(InvalidInput, match="prior"):
            view(made(loss), prior=prior)


def test_what_is_not_known_counts_as_identified():
    bad = made([0.1, math.nan, 0.2])
    risk = view(replace(bad, high=np.array([0.1, math.nan, math.inf])))
    assert risk.posterior[1] == 1
    assert risk.posterior_high.tolist()[1:] == [1, 1]
    assert risk.rows_above(0.9) == 2
    # Neither a law nor draws: nothing is known of the advantage.
    assert np.all(risk.advantage == 1)
    assert np.all(risk.advantage_high == 1)
    # A law without its far end.
    near = view(replace(bad, law=GaussianLaw(separation=np.ones(3))))
    assert np.all(near.advantage < 0.5)
    assert np.all(near.advantage_high == 1)
    # A release that cannot be told.
    lost = view(made([0.0], draw=lambda size, rng: iter([np.array([math.nan])] * size)))
    assert lost.advantage[0] == 1


def test_errors_of_distances_widen_the_advantage_upwards():
    distance, error = np.array([0.0, 0.5, 2.0]), np.array([0.25, 0.5, 0.0])
    for noise in (NormLaplace(rate=2.0, dimension=3), Gaussian(scale=0.5, dimension=3)):
        losses = made(
            distance,
            distance_error=error,
            law=noise.law(distance),
            far_law=noise.law(distance + error),
        )
        risk = view(losses)
        exact = noise.law(distance + error).advantage
        assert np.all(risk.advantage_high >= exact)
        assert np.all(risk.advantage_high >= risk.advantage)
        np.testing.assert_allclose(risk.advantage_high, exact, rtol=1e-9)
        assert risk.advantage[0] == 0 < risk.advantage_high[0]
    mechanism = OutputPerturbation(epsilon=6.0, **CONSTANTS)
    near = tight_neighbours(PROBLEM, minimise(PROBLEM, tolerance=1e-12))
    wide = replace(near, error_bound=np.where(np.arange(ROWS) == 4, math.inf, 0.1))
    theta = mechanism.release(PROBLEM, np.random.default_rng(0))
    risk = view(mechanism.row_losses(theta, wide))
    assert risk.advantage_high[4] == 1
    assert np.all(risk.advantage_high > risk.advantage)


def test_without_noise_everybody_who_moves_the_model_is_identified():
    losses = RowLosses.without_noise(
        np.array([0.0, 1.0, 0.0]), np.array([0.0, 1e-9, 1e-9]), Neighbouring.REMOVE
    )
    risk = view(losses)
    assert risk.posterior.tolist() == [0.5, 1, 1]
    assert risk.advantage.tolist() == [0, 1, 1]
    assert risk.row == 1
    worst = risk.worst_case
    assert (worst.posterior, worst.advantage, worst.true_positive_rate) == (1, 1, 1)
    assert "at most 100 % certain" in str(risk)


def test_the_worst_case_is_what_the_guarantee_allows():
    guarantee = EpsilonDelta(epsilon=2.0, delta=1e-3)
    losses = made([0.1], guarantee=guarantee, worst_case=2.5, worst_case_passed=1e-2)
    worst = view(losses, prior=0.2).worst_case
    assert worst.posterior == pytest.approx(0.25 * math.exp(2.5) / (1 + 0.25 * math.exp(2.5)))
    assert worst.failure == 1e-2
    assert worst.advantage == guarantee.advantage
    assert worst.true_positive_rate == guarantee.true_positive_rate(0.01)
    silent = view(made([0.1], worst_case=math.inf)).worst_case
    assert (silent.posterior, silent.advantage, silent.true_positive_rate) == (1, 1, 1)
    assert "Nothing is guaranteed" in str(view(made([0.1], worst_case=math.inf)))


@pytest.mark.parametrize("mechanism", ["output", "objective"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_what_happened_stays_within_what_was_guaranteed(mechanism, noise):
    kind = OutputPerturbation if mechanism == "output" else ObjectivePerturbation
    delta = 1e-4 if noise == "gaussian" else None
    perturbation = kind(epsilon=1.5, noise=noise, delta=delta, **CONSTANTS)
    problem = replace(PROBLEM, penalty=np.full(COLUMNS, perturbation.total_regularization))
    theta = perturbation.release(problem, np.random.default_rng(5))
    risk = expost.profile(theta, X, Y, mechanism=perturbation).identifiability()
    worst = risk.worst_case
    assert np.max(risk.advantage_high) > 0
    assert np.all(risk.advantage_high - 4 * risk.advantage_error <= worst.advantage)
    assert worst.advantage < 1
    assert 0.01 < worst.true_positive_rate < 1
    if noise == "laplace":
        assert np.max(risk.posterior_high) <= worst.posterior * (1 + 1e-12)
        assert worst.failure == 0
    else:
        assert worst.failure > 0
        assert (mechanism == "output") is isinstance(risk.losses.guarantee, GaussianNoise)


def test_a_table_for_the_curator_only():
    """Files: tests/test_table.py."""
    losses = made([0.2, -0.3, 1.0], 0.1)
    profile = expost.Profile(
        losses=losses, description="<b>", rows=3, ids=("ann", "bob", "<i>"), notices=("see",)
    )
    risk = profile.identifiability(0.25)
    assert risk.audience is Audience.CURATOR_ONLY
    assert risk.key(risk.row) == "<i>"
    assert "<i>" in str(risk)
    assert "<i>" not in risk._repr_html_()
    content = json.loads(risk.to_json())
    assert content["most_certain"] == "<i>"
    assert content["audience"] == "curator-only"
    assert content["notices"] == ["see"]
    assert content["table"]["posterior"] == risk.posterior.tolist()
    assert risk.to_arrow()["rank"].to_pylist() == [2, 3, 1]


def test_persons_are_called_so():
    losses = made([0.2, -0.3], 0.1)
    profile = expost.Profile(
        losses=losses, description="a model", rows=5, owner=np.array([0, 0, 1, 1, 1])
    )
    risk = profile.identifiability()
    assert json.loads(risk.to_json())["unit"] == "person"
    assert "person" in risk.columns()
