"""How typical figures depend on ε: the tables of a page against the law itself."""

import math
from dataclasses import fields, is_dataclass, replace
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest

import expost
from expost.epsilon.choice import EpsilonChoice
from expost.epsilon.limit import PosteriorLimit
from expost.epsilon.recommend import Recommendation, Verdict
from expost.epsilon.sampled import SampledSweep
from expost.errors import InvalidInput
from expost.losses import Logistic
from expost.mechanisms import OutputPerturbation
from expost.noise import GaussianLaw, NormLaplaceLaw
from expost.report.law_table import SMALLEST, law_table, scale_table
from expost.report.slider import SHARES, Step, slider_of_choice, slider_of_profile
from report.conftest import fitted, noiseless, synthetic
from report.epsilon_choices import chosen

CASES = [("laplace", 1), ("laplace", 2), ("laplace", 14), ("laplace", 100), ("gaussian", 3)]


def mechanism(noise="laplace", dimension=2, epsilon=1.0, delta=1e-6, rows=1000):
    return OutputPerturbation(
        epsilon=epsilon,
        delta=delta if noise == "gaussian" else None,
        noise=noise,
        loss=Logistic(),
        regularization=0.01,
        rows=rows,
        dimension=dimension,
    )


def law(noise, dimension, separation):
    separation = np.asarray(separation, dtype=float)
    if noise == "gaussian":
        return GaussianLaw(separation=separation)
    return NormLaplaceLaw(separation=separation, dimension=dimension)


@pytest.mark.parametrize(
    ("noise", "dimension", "prior"),
    [*((*case, 0.5) for case in CASES), ("laplace", 2, 1e-4), ("gaussian", 3, 0.97)],
)
def test_the_table_is_the_law(noise, dimension, prior):
    table = law_table(mechanism(noise, dimension), prior, 1e-9, 300.0)
    separations = np.random.default_rng(1).uniform(np.log(1e-9), np.log(300.0), 200)
    exact = law(noise, dimension, np.exp(separations))
    moments = [
        (table.exposure_at(t), table.advantage_at(t), table.posterior_at(t))
        for t in np.exp(separations).tolist()
    ]
    exposure, advantage, posterior = np.array(moments).T
    np.testing.assert_allclose(exposure, exact.expected_exposure, rtol=table.error)
    np.testing.assert_allclose(advantage, exact.advantage, rtol=1e-9, atol=table.error)
    np.testing.assert_allclose(posterior, exact.expected_posterior(prior), rtol=0, atol=table.error)
    assert 0 < table.error < 2e-11


def test_one_dimension_by_its_closed_forms():
    """d = 1: E∣ℓ∣ = t·½(1+e^−t) + ∫ a·¼e^((a−t)/2)(1+e^−a) da, advantage 1 − e^(−t/2)."""
    table = law_table(mechanism(dimension=1), 0.5, 0.01, 50.0)
    for t in (0.013, 0.7, 3.0, 41.0):
        with mpmath.workdps(30):
            inner = mpmath.quad(
                lambda a, t=t: a * mpmath.exp((a - t) / 2) * (1 + mpmath.exp(-a)) / 4, [0, t]
            )
            exposure = float(t * (1 + mpmath.exp(-t)) / 2 + inner)
        assert table.exposure_at(t) == pytest.approx(exposure, rel=1e-11)
        assert table.advantage_at(t) == pytest.approx(-math.expm1(-t / 2), rel=1e-11)
        # Another dimension would be seen.
        wrong = law("laplace", 2, t).expected_exposure
        assert abs(table.exposure_at(t) - wrong) > 1e-6


@pytest.mark.parametrize(("noise", "dimension"), CASES)
def test_below_the_table_the_limits_hold(noise, dimension):
    table = law_table(mechanism(noise, dimension), 0.5, 1e-30, 1.0)
    assert table.exposure.low >= math.log(SMALLEST) - 1
    for t in (SMALLEST / 2, 1e-20, 1e-150):
        exact = law(noise, dimension, t)
        assert table.exposure_at(t) == pytest.approx(float(exact.expected_exposure), rel=1e-11)
        assert table.advantage_at(t) == pytest.approx(float(exact.advantage), rel=1e-9)
        assert table.posterior_at(t) == pytest.approx(float(exact.expected_posterior()), abs=1e-12)
    assert (table.exposure_at(0.0), table.advantage_at(0.0), table.posterior_at(0.0)) == (0, 0, 0.5)


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.3])
def test_the_scale_of_gaussian_noise_over_epsilon(delta):
    perturbation = mechanism("gaussian", delta=delta)
    pieces, error = scale_table(perturbation, 0.01, 100.0)
    assert error < 1e-9
    for epsilon in np.geomspace(0.01, 100.0, 23).tolist():
        scale = epsilon * math.exp(pieces(math.log(epsilon)))
        exact = 1 / replace(perturbation, epsilon=epsilon).resolution
        assert scale == pytest.approx(exact, rel=1e-9)


def test_the_scale_of_laplace_noise_is_linear():
    perturbation = mechanism(rows=77)
    pieces, error = scale_table(perturbation, 0.2, 7.0)
    assert error == 0
    for epsilon in (0.2, 1.0, 7.0):
        exact = 1 / replace(perturbation, epsilon=epsilon).resolution
        assert epsilon * math.exp(pieces(math.log(epsilon))) == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize("options", [{}, {"noise": "gaussian", "delta": 1e-5}])
def test_a_profile_at_another_epsilon_is_that_of_another_mechanism(options):
    release, _, _, profile = fitted(**options)
    slider = slider_of_profile(profile, release)
    assert slider.start == release.mechanism.epsilon
    assert slider.low <= slider.start / 100 * (1 + 1e-12)
    assert slider.high >= slider.start * 100
    for epsilon in (slider.low, 0.3, slider.start, 17.0, slider.high):
        mechanism = replace(release.mechanism, epsilon=epsilon)
        rows = mechanism.loss_law(profile.distance / mechanism.resolution)
        far = mechanism.loss_law(
            np.array(
                [np.max(profile.distance + profile.losses.distance_error) / mechanism.resolution]
            )
        )
        figures = slider.figures(epsilon)
        expected = np.quantile(rows.expected_exposure, SHARES, method="inverted_cdf")
        np.testing.assert_allclose(figures.exposures, expected, rtol=1e-9)
        assert figures.posterior == pytest.approx(far.expected_posterior()[0], abs=1e-9)
        assert figures.advantage == pytest.approx(far.advantage[0], abs=1e-9)
        assert figures.wrong == pytest.approx(2 / (1 - far.advantage[0]), rel=1e-6)
    # At the model's own ε it says what the profile says.
    own = np.quantile(profile.expected, SHARES, method="inverted_cdf")
    np.testing.assert_allclose(slider.figures(slider.start).exposures, own, rtol=1e-9)
    assert slider.figures(2 * slider.start).exposures[-1] > 1.5 * own[-1]


def test_distances_stand_at_their_ranks():
    release, *_ = fitted()
    profile = synthetic(5000)
    law = release.mechanism.loss_law(profile.distance / release.mechanism.resolution)
    # Whatever law the rows have must be that of the release.
    assert slider_of_profile(profile, release) is None
    losses = replace(profile.losses, law=law)
    slider = slider_of_profile(replace(profile, losses=losses), release)
    descending = sorted(profile.distance.tolist(), reverse=True)
    ranks = slider.exact.ranks
    assert len(ranks) <= 400
    assert (ranks[0], ranks[-1]) == (1, 5000)
    assert list(ranks) == sorted(set(ranks))
    assert list(slider.exact.distances) == [descending[rank - 1] for rank in ranks]
    at_most = [descending[math.floor(5000 * (1 - share) + 1e-9)] for share in SHARES[:-1]]
    assert list(slider.exact.quantiles) == [*at_most, descending[0]]


@pytest.mark.parametrize("kind", ["laplace", "gaussian", "objective", "line", "regression", "none"])
def test_a_choice_of_epsilon_slides_over_its_own_axis(kind):
    choice = chosen(kind)
    slider = slider_of_choice(choice)
    assert slider.low < slider.start < slider.high
    sweep = choice.sweep
    for epsilon in (slider.low, slider.start, slider.high):
        there = replace(sweep, epsilons=np.array([epsilon]))
        expected = np.quantile(there.expected[0], SHARES, method="inverted_cdf")
        figures = slider.figures(epsilon)
        np.testing.assert_allclose(figures.exposures, expected, rtol=1e-8)
        mechanism = sweep.mechanism.with_constants(epsilon=epsilon)
        law = mechanism.loss_law(np.array([sweep.farthest / mechanism.resolution]))
        posterior = law.expected_posterior(choice.limit.prior)[0]
        assert figures.posterior == pytest.approx(posterior, abs=1e-8)


class Coins:
    """A mechanism without a closed form: losses of ±ε·size in two models of three."""

    rows = 6

    def sample(self, epsilon, count, rng):
        return rng.normal(size=(count, 1))

    def losses(self, epsilon, models, seed):
        size = np.arange(1, self.rows + 1) / self.rows
        return epsilon * size * np.tanh(models + 0.2)


def test_what_is_only_sampled_has_steps():
    limit = PosteriorLimit(max_posterior=0.9)
    sweep = SampledSweep(
        mechanism=Coins(),
        epsilons=np.array([0.5, 1.0, 4.0]),
        tolerance=0.1,
        share=0.5,
        models=200,
        limit=limit,
        seed=np.random.SeedSequence(3),
    )
    choice = EpsilonChoice(
        sweep=sweep,
        limit=limit,
        utility=None,
        recommendation=Recommendation(verdict=Verdict.MOST, epsilon=1.0, ceiling=1.0),
        description="coins",
        notices=(),
    )
    slider = slider_of_choice(choice)
    assert slider.exact is None
    assert [step.epsilon for step in slider.steps] == [0.5, 1.0, 4.0]
    assert (slider.low, slider.start, slider.high) == (0.5, 1.0, 4.0)
    for index, step in enumerate(slider.steps):
        ascending = sorted(sweep.expected[index].tolist())
        assert step.exposures == (ascending[2], ascending[5], ascending[5], ascending[5])
        assert step.posterior == sweep.posterior(sweep.epsilons)[index]
        assert step.error == max(sweep.expected_error[index])
    # An ε between them that is recommended is one more.
    between = replace(choice, recommendation=replace(choice.recommendation, epsilon=1.5))
    assert [step.epsilon for step in slider_of_choice(between).steps] == [0.5, 1.0, 1.5, 4.0]
    assert slider_of_choice(between).start == 1.5
    none = replace(choice, recommendation=replace(choice.recommendation, epsilon=None))
    assert slider_of_choice(none).start in (0.5, 1.0, 4.0)
    # Between two steps the nearest counts, on a log scale.
    assert slider.figures(1.9).exposures == slider.steps[1].exposures
    assert slider.figures(2.1).exposures == slider.steps[2].exposures
    assert slider.figures(1.0).wrong is None
    assert slider.figures(1.0).wrong_text == "not known"


def test_no_slider_where_no_law_over_epsilon_is_known(laplace, exact):
    release, _, _, profile = laplace
    assert slider_of_profile(profile) is None
    assert slider_of_profile(noiseless(), exact[0]) is None
    objective = fitted(mechanism="objective")
    assert slider_of_profile(objective[3], objective[0]) is None
    still = replace(profile.losses, distance=np.zeros(len(profile)))
    assert slider_of_profile(replace(profile, losses=still), release) is None


def test_candidates_and_persons_are_called_what_they_are(laplace):
    release, X, y, _ = laplace
    added = expost.profile(release, X, y, relation="add", candidates=(X[:5], y[:5]))
    slider = slider_of_profile(added, release)
    assert (slider.unit, slider.absent) == ("candidate", True)
    persons = expost.profile(release, X, y, persons=np.arange(len(X)) // 2)
    assert slider_of_profile(persons, release).unit == "person"


@pytest.mark.parametrize("epsilon", [1e-30, 1e-3, 1.0, 1e6, 1e20])
def test_the_axis_holds_any_epsilon_of_a_model(epsilon):
    release, _, _, profile = fitted()
    # No release: its θ would have to lie on another grid.
    release = SimpleNamespace(mechanism=replace(release.mechanism, epsilon=epsilon))
    exact = release.mechanism.loss_law(profile.distance / release.mechanism.resolution)
    losses = replace(profile.losses, law=exact)
    slider = slider_of_profile(replace(profile, losses=losses), release)
    assert slider.low < epsilon < slider.high
    assert slider.high / slider.low <= 1.01e10
    assert slider.figures(epsilon).exposures[-1] == pytest.approx(
        float(np.max(exact.expected_exposure)), rel=1e-9
    )


def test_how_often_a_guess_is_wrong(laplace):
    release, _, _, profile = laplace
    figures = slider_of_profile(profile, release).figures(2.0)
    assert replace(figures, advantage=0.0).wrong == 2
    assert replace(figures, advantage=0.5).wrong_text == "1 time in 4"
    assert replace(figures, advantage=1.0).wrong == math.inf
    assert replace(figures, advantage=1.0).wrong_text.startswith("less than 1 time in 1")


def test_only_plain_values_are_in_it(laplace):
    def plain(value):
        if is_dataclass(value):
            return all(plain(getattr(value, field.name)) for field in fields(value))
        if type(value) is tuple:
            return all(map(plain, value))
        return type(value) in (str, float, int, bool, type(None))

    release, _, _, profile = laplace
    assert plain(slider_of_profile(profile, release))
    assert plain(slider_of_choice(chosen("gaussian")))
    assert not plain((np.float64(1),))


def test_what_does_not_hold_together_is_refused(laplace):
    release, _, _, profile = laplace
    slider = slider_of_profile(profile, release)
    exact, step = slider.exact, Step(epsilon=1.0, exposures=(1.0,) * 4, posterior=0.6, error=0.0)
    pieces = exact.scale
    for whole, changed in (
        (slider, {"low": 0.0}),
        (slider, {"start": 2 * slider.high}),
        (slider, {"high": math.inf}),
        (slider, {"low": math.nan}),
        (slider, {"exact": None}),
        (slider, {"steps": (step,)}),
        (exact, {"ranks": exact.ranks[:-1]}),
        (exact, {"quantiles": exact.quantiles[:-1]}),
        (exact, {"farthest": math.inf}),
        (exact, {"distances": (math.nan, *exact.distances[1:])}),
        (step, {"epsilon": 0.0}),
        (step, {"exposures": (1.0,)}),
        (pieces, {"width": 0.0}),
        (pieces, {"coefficients": ()}),
        (pieces, {"coefficients": ((),)}),
        (pieces, {"coefficients": ((math.inf,),)}),
        (pieces, {"low": math.nan}),
    ):
        with pytest.raises(InvalidInput, match=r"^(slider|distances|steps|pieces): "):
            replace(whole, **changed)
