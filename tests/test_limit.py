"""The public bound on a row's posterior: naive formulas, real releases, and the ε that keeps it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom, norm

from expost.epsilon.limit import PosteriorLimit, find_ceiling
from expost.errors import InvalidInput
from expost.estimators import ESTIMATORS
from expost.glm import Objective
from expost.losses import HuberHinge, Logistic, Softmax, Squared
from expost.mechanisms import ObjectivePerturbation, OutputPerturbation
from expost.noise import NormLaplace

LOSSES = {
    "logistic": Logistic(),
    "margin": Logistic(margin=2.0),
    "huber-hinge": HuberHinge(),
    "softmax": Softmax(classes=3),
}


def objective_perturbation(loss="logistic", epsilon=1.0, noise="gaussian", penalty=2.0, **more):
    constants = {"rows": 100, "dimension": 6, **more}
    return ObjectivePerturbation(
        epsilon=epsilon,
        delta=1e-6 if noise == "gaussian" else None,
        noise=noise,
        loss=LOSSES[loss],
        regularization=penalty / constants["rows"],
        **constants,
    )


# -- formulas --------------------------------------------------------------------------------------


def naive_logistic(z, reach, penalty):
    """h(z) = max over p of log(1 + p(1 − p)/λ) + p²A²/2 + pAz, on a fine grid."""
    p = np.linspace(0, 1, 200_001)
    return np.max(np.log1p(p * (1 - p) / penalty) + (p * reach) ** 2 / 2 + p * reach * z)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.6, 8.0])
@pytest.mark.parametrize("penalty", [0.05, 2.0, 100.0])
@pytest.mark.parametrize("level", [0.5, 0.95, 1 - 1e-6])
def test_logistic_is_h_of_the_normal_quantile(epsilon, penalty, level):
    mechanism = objective_perturbation(epsilon=epsilon, penalty=penalty)
    expected = naive_logistic(norm.ppf(level), 1 / mechanism.resolution, mechanism.penalty_sum)
    quantile = mechanism.loss_quantile(level)
    assert expected <= quantile <= expected * (1 + 1e-4) + 1e-4


@pytest.mark.parametrize("margin", [0.0, 0.7, 2.0, 30.0])
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_a_margin_keeps_the_curve_of_slopes_and_curvatures(margin, label):
    """h uses f″ = p(1 − p) of p = ∣f′∣ ≤ 1, and nothing else of the logistic loss.

    So the largest value over predictors of any size, by the derivatives of the loss itself, is h.
    """
    z = label * np.linspace(margin - 40, margin + 40, 400_001)
    slope, curvature = Logistic(margin=margin).derivatives(z, np.full(len(z), label))[:2]
    p = np.abs(slope)
    np.testing.assert_allclose(curvature, p * (1 - p), rtol=1e-9, atol=1e-15)
    assert p.max() <= 1
    assert curvature.max() <= 0.25
    for level in (0.6, 0.95):
        mechanism = objective_perturbation("margin", penalty=0.5)
        mechanism = replace(mechanism, loss=Logistic(margin=margin))
        reach, normal = 1 / mechanism.resolution, norm.ppf(level)
        each = (
            np.log1p(curvature / mechanism.penalty_sum) + (p * reach) ** 2 / 2 + p * reach * normal
        )
        assert each.max() <= mechanism.loss_quantile(level) <= each.max() * (1 + 1e-3) + 1e-3


@pytest.mark.parametrize("epsilon", [0.3, 2.6])
def test_hinge_and_softmax_have_closed_forms(epsilon):
    z = norm.ppf(0.95)
    hinge = objective_perturbation("huber-hinge", epsilon=epsilon)
    a, spent = 1 / hinge.resolution, math.log1p(1 / hinge.penalty_sum)
    assert hinge.loss_quantile(0.95) == pytest.approx(spent + max(0, a * a / 2 + a * z), rel=1e-6)
    softmax = objective_perturbation("softmax", epsilon=epsilon)
    # r = 2 vertices, each a Gaussian loss of μ = √2/σ.
    mu, w = math.sqrt(2) / softmax.resolution, 1.0
    left = max(0.0, 1 - softmax.penalty_sum / (2 * softmax.resolution**2)) * w
    spent = left * 2 * math.log1p(1 / (3 * softmax.penalty_sum))
    top = spent + mu**2 / 2 + mu * norm.ppf(1 - 0.05 / 2)
    assert softmax.loss_quantile(0.95) == pytest.approx(top, rel=1e-6)


def test_the_squared_loss_has_no_bound():
    estimator = ESTIMATORS["squared"](mechanism="objective", noise="gaussian")
    assert estimator.mechanism_for(Squared(label_bound=1.0), 100, 5).loss_quantile(0.95) == math.inf


def test_two_sided_adds_the_other_tail():
    """.761 for .750 at ε = 2.6, as both tails together have 1 − q."""
    mechanism = objective_perturbation(epsilon=2.6, penalty=1e6)
    a = 1 / mechanism.resolution
    t = brentq(lambda t: norm.sf((t - a * a / 2) / a) + norm.cdf(-a / 2 - t / a) - 0.05, 1e-3, 9)
    assert t > a * a / 2
    assert mechanism.loss_quantile(0.95, two_sided=True) == pytest.approx(t, rel=1e-4)
    limit = PosteriorLimit()
    assert limit.of_a_row(mechanism) == pytest.approx(0.750, abs=5e-4)
    assert limit.certainty(mechanism) == pytest.approx(0.761, abs=5e-4)
    # The largest of all rows: each at q = 1 − .05/n.
    every = expit(a * a / 2 + a * norm.ppf(1 - 0.05 / 100))
    assert limit.of_all_rows(mechanism) == pytest.approx(every, abs=5e-4)
    assert (
        0.5
        < limit.of_a_row(mechanism)
        < limit.certainty(mechanism)
        < limit.of_all_rows(mechanism)
        < 1
    )


@pytest.mark.parametrize("kind", ["objective", "output"])
@pytest.mark.parametrize("dimension", [1, 2, 40])
def test_laplace_quantiles_against_draws(kind, dimension):
    """The loss β(∥b + g∥ − ∥b∥) at the longest g, and its negative, in 200,000 draws."""
    if kind == "objective":
        mechanism = objective_perturbation(
            noise="laplace", epsilon=2.0, penalty=1e9, dimension=dimension
        )
        apart = 1.0
    else:
        mechanism = OutputPerturbation(
            epsilon=2.0, loss=Logistic(), regularization=0.1, rows=50, dimension=dimension
        )
        apart = mechanism.sensitivity
    law = mechanism.law
    assert isinstance(law, NormLaplace)
    b = law.sample(200_000, np.random.default_rng(dimension))
    g = np.zeros(dimension)
    g[0] = apart
    loss = law.rate * (np.linalg.norm(b + g, axis=1) - np.linalg.norm(b, axis=1))
    for level in (0.6, 0.9, 0.99):
        exact = np.quantile(loss, level)
        quantile = mechanism.loss_quantile(level)
        assert quantile >= exact - 0.02
        if exact > 0.05:
            assert quantile <= exact * 1.05 + 0.02
        both = np.quantile(np.abs(loss), level)
        assert mechanism.loss_quantile(level, two_sided=True) >= both - 0.02
    # Pure: never more than ε, however small the probability.
    assert mechanism.loss_quantile(1 - 1e-12) <= 2.0 * (1 + 1e-9)


def test_a_quantile_grows_with_its_level_and_with_epsilon():
    for loss in LOSSES:
        for noise in ("gaussian", "laplace"):
            levels = [
                objective_perturbation(loss, noise=noise).loss_quantile(q)
                for q in (0.5, 0.9, 0.99, 1 - 1e-9)
            ]
            assert levels == sorted(levels)
            sizes = [
                objective_perturbation(loss, noise=noise, epsilon=e, penalty=20.0).loss_quantile(
                    0.9
                )
                for e in (0.1, 1.0, 5.0)
            ]
            assert sizes == sorted(sizes)


# -- real releases ---------------------------------------------------------------------------------


def exposed_rows(loss):
    """Rows of norm 1, the first far on the wrong side of all others: its slope is nearly L."""
    rng = np.random.default_rng(7)
    n, d = 60, 2
    X = rng.normal(size=(n, d)) * 0.05 + [0.95, 0.0]
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1)
    X[0] = [1.0, 0.0]
    y = np.ones(n)
    y[0] = -1.0
    if loss == "softmax":
        y = np.where(y > 0, 1.0, 0.0)
        y[1] = 2.0
    return X, y


@pytest.mark.parametrize("loss", LOSSES)
def test_the_bound_holds_over_1000_releases(loss):
    """A binomial test at 1e-4, and its power: a bound for q = .88 would fail it."""
    X, y = exposed_rows(loss)
    outputs = LOSSES[loss].outputs
    mechanism = objective_perturbation(
        loss, epsilon=2.0, penalty=1.0, rows=60, dimension=2 * outputs
    )
    penalty = np.full(2 * outputs, mechanism.total_regularization)
    objective = Objective.of(X=X, y=y, loss=LOSSES[loss], penalty=penalty)
    sampler = mechanism.sampler(objective)
    models = sampler.sample(2.0, 1000, np.random.default_rng(3))
    losses = sampler.losses(2.0, models, np.random.SeedSequence(0))
    for two_sided in (False, True):
        sizes = np.abs(losses) if two_sided else losses
        passed = np.sum(sizes > mechanism.loss_quantile(0.95, two_sided=two_sided), axis=0)
        # 60 rows: a union bound over them.
        assert binom.sf(passed.max() - 1, 1000, 0.05) > 1e-4 / 60
    if loss in ("logistic", "margin"):
        # The most exposed row comes near the bound, so that one for a smaller q is passed.
        wrong = np.sum(losses[:, 0] > mechanism.loss_quantile(0.88))
        assert binom.sf(wrong - 1, 1000, 0.05) < 1e-4
    # All rows of a release at once.
    every = np.sum(losses.max(axis=1) > mechanism.loss_quantile(1 - 0.05 / 60))
    assert binom.sf(every - 1, 1000, 0.05) > 1e-4


# -- the ε that keeps the limit --------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(), Softmax(classes=4)])
@pytest.mark.parametrize("options", [{}, {"delta": 0}])
@pytest.mark.parametrize("most", [0.55, 0.75, 0.99])
def test_the_ceiling_keeps_the_limit_and_hardly_more_would(loss, options, most):
    name = "huber-hinge" if loss.name == "huber-hinge" else "logistic"
    estimator = ESTIMATORS[name](**options)

    def plan(epsilon):
        return estimator.mechanism_for(loss, 5000, 10 * loss.outputs, epsilon=epsilon)

    limit = PosteriorLimit(max_posterior=most)
    ceiling = find_ceiling(plan, limit)
    assert limit.of_a_row(plan(ceiling)) <= most < limit.of_a_row(plan(ceiling * 1.02))
    # Three digits, rounded down.
    assert float(f"{ceiling:.3g}") == ceiling


def test_the_default_limit_is_about_two_and_a_half():
    """A²/2 + 1.645·A = log 3 at A = .569: ε = 2.60 at δ = 1e-6, but for the determinants."""
    ceiling = find_ceiling(
        lambda e: ESTIMATORS["logistic"]().mechanism_for(Logistic(), 40_000, 60, epsilon=e),
        PosteriorLimit(),
    )
    assert 2.5 <= ceiling <= 2.6
    # A prior moves it: odds of 9 : 1 from 1 : 1 are more than from 2 : 1.
    wide = PosteriorLimit(max_posterior=0.9)
    narrow = PosteriorLimit(max_posterior=0.9, prior=2 / 3)
    plan = lambda e: ESTIMATORS["logistic"]().mechanism_for(Logistic(), 40_000, 60, epsilon=e)  # noqa: E731
    assert find_ceiling(plan, narrow) < find_ceiling(plan, wide)
    assert find_ceiling(plan, PosteriorLimit(quantile=0.99)) < ceiling


def test_no_epsilon_keeps_the_limit_where_nothing_is_guaranteed():
    estimator = ESTIMATORS["squared"](mechanism="objective", noise="gaussian")
    plan = lambda e: estimator.mechanism_for(Squared(label_bound=1.0), 100, 5, epsilon=e)  # noqa: E731
    assert find_ceiling(plan, PosteriorLimit()) == 0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        *[
            ({"max_posterior": bad}, "max_posterior")
            for bad in (0.5, 0.4, 0, 1, math.nan, "a", None)
        ],
        ({"max_posterior": 0.75, "prior": 0.8}, "max_posterior"),
        *[({"prior": bad}, "prior") for bad in (0, 1, -0.1, math.nan, "a", True, None)],
        *[({"quantile": bad}, "quantile") for bad in (0.49, 0, 1, 1.5, math.nan, "a", True, None)],
    ],
)
def test_a_limit_is_checked(options, word):
    with pytest.raises(InvalidInput, match=word):
        PosteriorLimit(**options)


def test_posteriors_follow_bayes():
    limit = PosteriorLimit(prior=0.2, max_posterior=0.6)
    assert limit.posterior(0.0) == pytest.approx(0.2)
    assert limit.posterior(limit.largest_loss) == pytest.approx(0.6)
    assert limit.posterior(math.log(2)) == pytest.approx(0.4 / 1.2)
