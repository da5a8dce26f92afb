"""The black box: its losses against loops and known densities, and that it fails closed."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import evidence
from expost.epsilon.black_box import BlackBox
from expost.epsilon.choose import choose_epsilon
from expost.epsilon.row_figures import row_figures
from expost.epsilon.sampled import SampledMechanism, SampledSweep
from expost.errors import InvalidInput
from expost.noise import Gaussian, NormLaplace
from test_sampled import LIMIT, ROWS, both, output, table


def known(noise, separation, draws, rng, models=200, neighbours=None):
    """(the estimate of one row at a separation, the true losses of its models)."""
    shift = np.zeros(noise.dimension)
    shift[0] = separation
    theta = noise.sample(models, rng)
    estimate = estimated(
        lambda whole, size, rng: noise.sample(size, rng) + (0 if whole else shift),
        theta,
        rng,
        draws=draws,
        neighbours=neighbours,
    )
    return estimate, noise.loss(theta, np.broadcast_to(shift, theta.shape))


def estimated(trained, theta, rng, **options):
    """The estimated losses of the first of two rows; ``trained`` knows whether both are there."""
    box = BlackBox(
        lambda rows, labels, epsilon, size, own: trained(len(rows) == 2, size, own),
        rows=[0],
        **options,
    )
    seed = np.random.SeedSequence(int(rng.integers(2**32)))
    return box.on(np.zeros((2, 1)), None).losses(1.0, theta, seed)


def around_output(noise, **options):
    """Output perturbation as a black box: it knows its rows by their first coordinate."""
    mechanism, neighbours = output(noise)
    X, _ = table()

    def sampler(rows, labels, epsilon, size, rng):
        assert len(rows) == len(labels)
        gone = ~np.isin(X[:, 0], rows[:, 0])
        centre = neighbours.base + neighbours.shift[gone].sum(axis=0)
        return centre + replace(mechanism, epsilon=epsilon).law.sample(size, rng)

    return BlackBox(sampler, **options)


# The estimate ----------------------------------------------------------------------------------


def naive_estimate(distances_home, distances_away, k):
    """Counts by loops: (ℓ̂, noise, correction) of one model."""
    pooled = sorted([*distances_home, *distances_away])
    r, wide = pooled[k - 1], pooled[2 * k - 1]
    a = sum(d <= r for d in distances_home) + 0.5
    b = sum(d <= r for d in distances_away) + 0.5
    a2 = sum(d <= wide for d in distances_home) + 0.5
    b2 = sum(d <= wide for d in distances_away) + 0.5
    if a < 1 or b < 1:
        return math.log(a / b), math.inf, 0.0
    f = r**2 / (wide**2 - r**2)
    plain, outer = math.log(a / b), math.log(a2 / b2)
    variance = (1 + f) ** 2 * (1 / a + 1 / b) - f * (2 + f) * (1 / a2 + 1 / b2)
    return (1 + f) * plain - f * outer, math.sqrt(variance), f * (plain - outer)


@pytest.mark.parametrize("away_scale", [1.0, 1.5, 50.0])
def test_estimates_are_those_of_a_loop(away_scale):
    """With one coefficient, whose scale does not matter."""
    rng, drawn = np.random.default_rng(0), []

    def trained(whole, size, rng):
        drawn.append((1 if whole else away_scale) * rng.gamma(2, size=size))
        return drawn[-1][:, np.newaxis]

    theta = rng.gamma(2, size=(30, 1))
    estimate = estimated(trained, theta, rng, draws=100, neighbours=20)
    result = np.hstack([estimate.loss, estimate.noise, estimate.correction])
    distances = (np.abs(theta - references) for references in drawn)
    expected = [naive_estimate(*pair, 20) for pair in zip(*distances, strict=True)]
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("noise", "separation"),
    [
        (NormLaplace(rate=2.0, dimension=1), 0.5),
        (NormLaplace(rate=1.0, dimension=2), 2.0),
        (Gaussian(scale=1.0, dimension=2), 0.7),
        (NormLaplace(rate=1.0, dimension=5), 3.0),
        (Gaussian(scale=1.0, dimension=10), 1.0),
    ],
)
def test_the_error_of_a_loss_is_the_stated_one(noise, separation):
    rng = np.random.default_rng(1)
    scores = []
    for _ in range(10):
        estimate, truth = known(noise, separation, 1000, rng)
        scores.append((estimate.loss[:, 0] - truth) / estimate.noise[:, 0])
    # Models share their references: about 2000/200 of 200 errors a set are independent, which
    # leaves a relative error of 0.07. Twice or half the noise would show.
    assert 0.8 < math.sqrt(np.mean(np.square(scores))) < 1.2
    assert abs(np.mean(scores)) < 0.2


@pytest.mark.parametrize("dimension", [2, 5])
def test_what_models_share_is_the_stated_error_of_their_mean(dimension):
    noise, rng = NormLaplace(rate=1.0, dimension=dimension), np.random.default_rng(2)
    theta, shift = noise.sample(200, rng), np.eye(dimension)[0]
    means, shared = [], []
    for _ in range(80):
        estimate = estimated(
            lambda whole, size, rng: noise.sample(size, rng) + (0 if whole else shift),
            theta,
            rng,
            draws=400,
            neighbours=50,
        )
        means.append(np.mean(estimate.loss))
        shared.append(estimate.shared[0])
    # A spread of 80 is known to 8 %, and the largest of three variances is stated.
    spread = np.std(means, ddof=1)
    assert 0.75 < np.mean(shared) / spread < 1.7
    if dimension == 2:
        # Fresh references for each model would leave less.
        assert spread > 1.5 * np.mean(estimate.noise) / math.sqrt(200)


def test_extrapolation_takes_the_blur_out():
    # In ten dimensions a ball of a hundred takes in a fifth of the way.
    noise, rng = NormLaplace(rate=1.0, dimension=10), np.random.default_rng(3)
    estimate, truth = known(noise, 4.5, 4000, rng, models=1000, neighbours=250)
    plain = np.mean(estimate.loss - estimate.correction)
    assert plain < 0.8 * np.mean(truth)
    assert abs(np.mean(estimate.loss) - np.mean(truth)) < 0.5 * (np.mean(truth) - plain)


def test_beyond_what_the_draws_show_a_loss_is_not_resolved():
    noise, rng = Gaussian(scale=1.0, dimension=2), np.random.default_rng(4)
    estimate, truth = known(noise, 30.0, 200, rng)
    count = round(200 ** (2 / 3))
    assert np.all(estimate.loss == pytest.approx(math.log(2 * count + 1)))
    assert np.all(estimate.noise == np.inf)
    assert np.all(truth > estimate.loss[:, 0])


def test_a_linear_map_of_the_models_changes_nothing():
    X, y = table()
    turn = np.array([[1e5, 3e4], [0.0, 1e-3]])
    plain = around_output("laplace", draws=200, rows=[0, 1])
    mapped = BlackBox(
        lambda *arguments: plain.sampler(*arguments) @ turn + 7.0, draws=200, rows=[0, 1]
    )
    collected = []
    for box in (plain, mapped):
        on_rows = box.on(X, y)
        models = on_rows.sample(20.0, 40, np.random.default_rng(0))
        collected.append(on_rows.losses(20.0, models, np.random.SeedSequence(1)))
    # Rounding may move a reference over the edge of a ball.
    assert np.mean(np.abs(collected[0].loss - collected[1].loss) < 1e-6) > 0.95


# Around output perturbation --------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_losses_of_output_perturbation_are_estimated(noise):
    mechanism, neighbours = output(noise)
    epsilon = both(noise)[1].ceiling()
    on_rows = around_output(noise, draws=1000).on(*table())
    assert isinstance(on_rows, SampledMechanism)
    models = on_rows.sample(epsilon, 100, np.random.default_rng(5))
    losses = on_rows.losses(epsilon, models, np.random.SeedSequence(6))
    b = models - neighbours.base
    law = replace(mechanism, epsilon=epsilon).law
    truth = law.loss_from(
        np.linalg.norm(b, axis=1)[:, np.newaxis], b @ neighbours.shift.T, neighbours.distance
    )
    scores = (losses.loss - truth) / losses.noise
    assert 0.8 < math.sqrt(np.mean(scores**2)) < 1.2
    # With power: losses of half or twice the size, or of the other sign, are none of these.
    exposed = np.argmax(neighbours.distance)
    for factor in (-1.0, 0.0, 2.0):
        wrong = (losses.loss - factor * truth)[:, exposed] / losses.noise[:, exposed]
        assert math.sqrt(np.mean(wrong**2)) > 1.4


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_ceiling_is_on_the_safe_side(noise):
    X, y = table()
    truth = both(noise)[1].ceiling()
    # The three most exposed rows decide.
    rows = np.argsort(output(noise)[1].distance)[-3:].tolist()
    collected = [
        choose_epsilon(
            X,
            y,
            mechanism=around_output(noise, draws=2500, rows=rows),
            epsilons=np.geomspace(truth / 8, truth * 2, 5),
            random_state=seed,
        ).ceiling
        for seed in range(5)
    ]
    assert np.all(np.array(collected) <= truth)
    assert np.all(np.array(collected) >= truth / 4)


def test_a_choice_for_a_black_box():
    X, y = table()
    box = around_output("laplace", draws=2000, rows=[10, 2])
    choice = choose_epsilon(X, y, mechanism=box, models=120, random_state=0)
    again = choose_epsilon(X, y, mechanism=box, models=120, random_state=0, workers=2)
    exact = both("laplace")[1]
    assert 0 < choice.ceiling <= exact.ceiling()
    assert choice.high >= exact.ceiling()
    assert (choice.verdict, choice.recommended) == ("most", choice.ceiling)
    assert choice.mechanism is None
    assert choice.ids == (10, 2)
    for number in (2000, 159, 12, 2):
        assert str(number) in re.findall(r"\d+", choice.description)
    assert choice.to_json() == again.to_json()
    assert len(json.loads(choice.to_json())["table"]["critical_epsilon"]) == 2
    named = choose_epsilon(
        X, y, mechanism=box, models=20, epsilons=[1, 10], ids=list("abcdefghijkl")
    )
    assert named.ids == ("k", "c")
    # Neither is shown to be on its plateau: nothing is claimed.
    assert np.all(np.isnan(choice.critical_epsilon))


# Never private for want of draws ---------------------------------------------------------------


@pytest.mark.parametrize("dimension", [30, 80])
def test_many_dimensions_read_as_exposed(dimension):
    noise, rng = Gaussian(scale=1.0, dimension=dimension), np.random.default_rng(7)
    estimate, _ = known(noise, 3.0, 1000, rng)
    loss = float(noise.law(np.array([3.0])).quantile(0.95)[0])
    assert row_figures(estimate, LIMIT).posterior_high[0] >= expit(loss)
    # Counting alone would have found privacy.
    raw = estimate.loss - estimate.correction
    assert np.quantile(raw, 0.95) < loss / 2


def no_noise(X, y, epsilon, size, rng):
    return np.tile(np.sum(X, axis=0), (size, 1))


def test_a_trainer_without_noise_proves_its_rows():
    X = np.array([[1.0, 2.0], [0.5, 0.25], [0.0, 0.0], [-1.0, 3.0]])
    sweep_options = {"models": 120, "random_state": 0, "epsilons": [0.1, 1.0]}
    choice = choose_epsilon(X, None, mechanism=BlackBox(no_noise, draws=100), **sweep_options)
    assert choice.ceiling == 0
    assert choice.recommended is None
    assert np.all(choice.posterior == 1)
    # The row of zeros moves nothing, and is not taken for one that does.
    assert np.all(choice.expected[:, 2] == 0)
    assert np.all(np.delete(choice.expected, 2, axis=1) > 5)
    assert np.all(np.delete(choice.sweep.expected_error, 2, axis=1) == np.inf)


def test_a_coordinate_without_noise_proves_its_rows():
    def half(X, y, epsilon, size, rng):
        noisy = np.sum(X) + rng.normal(scale=1e6, size=size)
        return np.stack([noisy, np.full(size, np.sum(X))], axis=1)

    on_rows = BlackBox(half, draws=200).on(np.array([[0.1], [0.2], [0.3]]), None)
    models = on_rows.sample(1.0, 30, np.random.default_rng(0))
    losses = on_rows.losses(1.0, models, np.random.SeedSequence(0))
    assert np.all(losses.noise == np.inf)
    assert np.all(losses.loss > 0)


def test_outputs_on_a_lattice_are_counted_whole():
    # Randomised response: a model is one bit, and its loss is known.
    def bit(X, y, epsilon, size, rng):
        true = np.sum(X) > 1.5
        lie = rng.random(size) < 1 / (1 + math.exp(epsilon))
        return np.where(lie, ~true, true).astype(float)[:, np.newaxis]

    X = np.array([[1.0], [1.0]])
    on_rows = BlackBox(bit, draws=4000).on(X, None)
    models = on_rows.sample(1.0, 400, np.random.default_rng(1))
    losses = on_rows.losses(1.0, models, np.random.SeedSequence(2))
    truth = np.where(models == 1, 1.0, -1.0)
    assert np.all(np.abs(losses.loss - truth) < 5 * losses.noise)
    assert np.all(losses.noise < 0.06)
    assert not np.any(losses.correction)


# Trainers of all kinds -------------------------------------------------------------------------


def noisy_regression(X, y, epsilon, size, rng):
    """The user's own: scikit-learn's coefficients and Laplace noise."""
    fitted = LogisticRegression(C=1.0, fit_intercept=False).fit(X, y)
    return fitted.coef_ + rng.laplace(scale=2 / (len(X) * epsilon), size=(size, X.shape[1]))


def bagged(X, y, epsilon, size, rng):
    """One fit a model, each on a sample of the rows: slow, and no noise of a known law."""
    return np.stack(
        [
            np.linalg.lstsq(X[pick], y[pick], rcond=None)[0]
            + rng.normal(scale=0.3 / epsilon, size=2)
            for pick in (rng.integers(len(X), size=len(X)) for _ in range(size))
        ]
    )


@pytest.mark.parametrize("trainer", [noisy_regression, bagged])
def test_foreign_trainers_work(trainer):
    X, y = table()
    choice = choose_epsilon(
        X,
        y,
        mechanism=BlackBox(trainer, draws=300, rows=[0, 1]),
        epsilons=np.geomspace(0.1, 1e4, 6),
        models=120,
        max_posterior=0.9,
        random_state=3,
    )
    posterior = choice.posterior
    assert choice.ceiling > 0
    assert posterior[0] < 0.9
    assert np.all(np.diff(posterior) > -0.1)
    if trainer is noisy_regression:
        assert posterior[-1] == 1


def test_a_trainer_gets_its_own_rows_as_they_came():
    frame = pd.DataFrame({"colour": ["red", "blue", "red", "green"], "size": [1, 2, 3, 4]})
    labels = pd.Series([0, 1, 1, 0], index=[7, 8, 9, 10])
    received = []

    def trainer(X, y, epsilon, size, rng):
        assert list(X.columns) == ["colour", "size"]
        received.append((tuple(X["size"]), tuple(y)))
        # A rude one.
        X["size"] = 0
        y[:] = 5
        return rng.normal(size=(size, 1))

    on_rows = BlackBox(trainer, draws=100, rows=[3, 1]).on(frame, labels)
    models = on_rows.sample(1.0, 20, np.random.default_rng(0))
    on_rows.losses(1.0, models, np.random.SeedSequence(0))
    everything = ((1, 2, 3, 4), (0, 1, 1, 0))
    assert received == [everything, everything, ((1, 2, 3), (0, 1, 1)), ((1, 3, 4), (0, 1, 0))]


def test_the_rows_that_are_followed_do_not_change_the_others():
    X, y = table()
    collected = []
    for rows in (None, [7, 2]):
        on_rows = around_output("laplace", draws=100, rows=rows).on(X, y)
        models = on_rows.sample(5.0, 30, np.random.default_rng(0))
        collected.append(on_rows.losses(5.0, models, np.random.SeedSequence(1)).loss)
    assert np.array_equal(collected[0][:, [7, 2]], collected[1])


def returning(value):
    return lambda X, y, epsilon, size, rng: value(len(X), size, rng)


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (returning(lambda n, size, rng: rng.normal(size=size)), "has 1 dimensions: must have two"),
        (
            returning(lambda n, size, rng: rng.normal(size=(3, 2))),
            "has 3 rows for size=200: must have one for each model",
        ),
        (
            returning(lambda n, size, rng: np.full((size, 2), np.nan)),
            "sampler(X, y, epsilon, size, rng) holds NaN values",
        ),
        (
            returning(lambda n, size, rng: rng.normal(size=(size, 1 + (size == 200)))),
            "has 1 columns, and 2 in another call",
        ),
        (
            returning(lambda n, size, rng: rng.normal(size=(size, 11))),
            "draws=100: must be at least 110 for models of 11 coefficients",
        ),
        (
            returning(lambda n, size, rng: np.random.default_rng(0).normal(size=(size, 2))),
            "must take all of its randomness from rng",
        ),
        (returning(lambda n, size, rng: [["a"] * 2] * size), "must be numeric"),
    ],
)
def test_a_sampler_that_misbehaves_is_refused_in_a_sentence(sampler, message):
    X, y = table()
    with pytest.raises(InvalidInput, match=re.escape(message)) as caught:
        choose_epsilon(X, y, mechanism=BlackBox(sampler, draws=100))
    assert "\n" not in str(caught.value)


def test_the_width_of_references_is_checked():
    def ragged(X, y, epsilon, size, rng):
        return rng.normal(size=(size, 2 if len(X) == ROWS else 3))

    X, y = table()
    with pytest.raises(InvalidInput, match="has 3 columns, and 2 in another call"):
        choose_epsilon(X, y, mechanism=BlackBox(ragged, draws=100))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": 3}, "sampler: must be a function"),
        ({"draws": 50}, "draws=50: must be an integer of at least 100"),
        ({"neighbours": 5}, "neighbours=5: must be an integer of at least 10"),
        ({"neighbours": 80}, "neighbours=80: must be at most half of draws=100"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(InvalidInput, match=re.escape(message)):
        BlackBox(**{"sampler": no_noise, "draws": 100, **options})


@pytest.mark.parametrize(
    ("rows", "X", "y", "message"),
    [
        ([], np.ones((3, 1)), None, "rows: must hold at least one position from 0 to 2"),
        ([3], np.ones((3, 1)), None, "rows: must hold at least one position from 0 to 2"),
        ([1, 1], np.ones((3, 1)), None, "none of them twice"),
        ([-1], np.ones((3, 1)), None, "rows=-1: must be an integer of at least 0"),
        (None, np.ones((1, 1)), None, "X has 1 row(s): must have at least 2"),
        (None, np.ones((3, 1)), [1, 2], "y has 2 entries: must have one for each of 3 rows"),
    ],
)
def test_rows_are_checked(rows, X, y, message):
    with pytest.raises(InvalidInput, match=re.escape(message)):
        BlackBox(no_noise, draws=100, rows=rows).on(X, y)


# Full counts -----------------------------------------------------------------------------------


@pytest.mark.long
def test_limits_hold_at_their_confidence():
    """Posteriors and one-sidedness of known laws: how often their limits are passed."""
    seed, repeats = 20261115, 200
    rng, figures = np.random.default_rng(seed), {}
    cases = [
        (NormLaplace, 1, 2.0),
        (NormLaplace, 2, 2.5),
        (NormLaplace, 10, 5.0),
        (NormLaplace, 30, 8.0),
        (Gaussian, 2, 1.5),
        (Gaussian, 10, 1.5),
        (Gaussian, 30, 1.5),
    ]
    for kind, dimension, separation in cases:
        scale = {"rate": 1.0} if kind is NormLaplace else {"scale": 1.0}
        noise = kind(**scale, dimension=dimension)
        law = noise.law(np.array([separation]))
        posterior = float(expit(law.quantile(0.95)[0]))
        one_sided = float((law.expected_loss / law.expected_exposure)[0])
        passed, above, excess = 0, 0, []
        for _ in range(repeats):
            result = row_figures(known(noise, separation, 1000, rng)[0], LIMIT)
            passed += bool(result.posterior_high[0] < posterior)
            above += bool(result.one_sidedness_high[0] < one_sided)
            excess.append(result.posterior_high[0] - posterior)
        name = f"{kind.__name__}, d={dimension}, separation {separation:g}"
        figures[name] = {
            "posterior": posterior,
            "mean excess of its limit": float(np.mean(excess)),
            "posterior limits passed": passed,
            "one-sidedness limits passed": above,
            "runs": repeats,
        }
        # A twentieth of 200, and four standard deviations of such a count.
        assert passed <= 10 + 4 * math.sqrt(9.5)
        assert above <= 10 + 4 * math.sqrt(9.5)
    evidence.record(
        "black-box",
        command="python -m pytest -m long tests/test_blackbox.py",
        seed=seed,
        figures=figures,
    )


def test_a_sweep_can_be_made_by_hand():
    sweep = SampledSweep(
        mechanism=around_output("laplace", draws=2000, rows=[0]).on(*table()),
        epsilons=np.array([1.0, 1000.0]),
        tolerance=0.1,
        share=1.0,
        models=120,
        limit=LIMIT,
        seed=np.random.SeedSequence(0),
        halvings=0,
    )
    assert sweep.ceiling() == 1.0
    assert sweep.high == 1000.0


def test_the_page_about_black_boxes_shows_the_recorded_figures():
    page = Path(__file__).parent.parent / "docs" / "theory" / "black-box.md"
    recorded = json.loads((page.parents[1] / "evidence" / "black-box.json").read_text())["figures"]
    table_rows = re.findall(
        r"^\| (norm-Laplace|Gaussian) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| (\d+) \|$",
        page.read_text(),
        re.MULTILINE,
    )
    shown = {
        (kind.replace("norm-Laplace", "NormLaplace"), d): rest for kind, d, *rest in table_rows
    }
    assert len(shown) == len(recorded)
    for name, figures in recorded.items():
        kind, dimension = re.match(r"(\w+), d=(\d+)", name).groups()
        posterior, excess = figures["posterior"], figures["mean excess of its limit"]
        assert shown[kind, dimension] == [
            f"{posterior:.3f}",
            f"{posterior + excess:.3f}",
            str(figures["posterior limits passed"]),
        ]
