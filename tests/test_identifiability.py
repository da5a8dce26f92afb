"""The verb: guarantees in an attacker's terms, and the guarantees that keep a goal."""

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path

import mpmath
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import expost
from expost.errors import ClippedRowsWarning, InvalidInput, SeededReleaseWarning
from expost.numbers import symbols
from expost.profiles.identifiability import identifiability
from expost.profiles.posterior import RowIdentifiability
from expost.risk import DPSGD, EpsilonDelta, GaussianNoise, NormLaplaceNoise
from expost.types import Audience
from parameters import WRONG
from settings import OUTPUT

# Of figures that are rounded up by a few roundings, or by a root that is bracketed.
CLOSE = 1e-9


def naive_any(epsilon, delta, *, prior=0.5, exceeded=0.0, fpr=0.01):
    """What (ε, δ) allows, by the formulas of DESIGN.md to 50 digits."""
    with mpmath.workdps(50):
        e, d = mpmath.exp(epsilon), mpmath.mpf(delta)
        loss = mpmath.mpf(epsilon)
        if delta:
            loss -= mpmath.log(1 - d / mpmath.mpf(exceeded))
        odds = mpmath.mpf(prior) / (1 - mpmath.mpf(prior)) * mpmath.exp(loss)
        return {
            "posterior": odds / (1 + odds),
            "advantage": (e - 1 + 2 * d) / (e + 1),
            "true_positive_rate": min(1, d + e * fpr, 1 - (1 - d - fpr) / e),
            "one_in": 1 + 1 / odds,
        }


def naive_gaussian(mu, *, prior=0.5, exceeded=0.0, fpr=0.01):
    with mpmath.workdps(50):
        quantile = lambda p: mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(p) - 1)  # noqa: E731 (a formula, not a function)
        mu = mpmath.mpf(mu)
        figures = {
            "advantage": 2 * mpmath.ncdf(mu / 2) - 1,
            "true_positive_rate": mpmath.ncdf(quantile(fpr) + mu),
        }
        if exceeded:
            loss = max(mu**2 / 2 - mu * quantile(exceeded), 0)
            odds = mpmath.mpf(prior) / (1 - mpmath.mpf(prior)) * mpmath.exp(loss)
            figures |= {"posterior": odds / (1 + odds), "one_in": 1 + 1 / odds}
        return figures


def naive_delta(epsilon, mu):
    with mpmath.workdps(50):
        epsilon, mu = mpmath.mpf(epsilon), mpmath.mpf(mu)
        late = mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - late


def agrees(result, key, naive):
    """Every figure of the route is the naive one, and on its exposed side."""
    for name, exact in naive.items():
        value = result.figure(name).by[key]
        assert value == pytest.approx(float(exact), rel=CLOSE), name
        sign = -1 if name == "one_in" else 1
        assert sign * value >= sign * float(exact) * (1 - sign * 1e-15), name


@pytest.mark.parametrize("prior", [0.5, 0.01])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-6), (4.0, 0.03), (2.5, 0)])
def test_what_any_mechanism_and_gaussian_noise_allow(epsilon, delta, prior):
    risk = identifiability(epsilon=epsilon, delta=delta or None, prior=prior)
    passed = 10 * delta
    assert (risk.delta, risk.exceeded, risk.prior) == (delta, passed, prior)
    agrees(risk, "any", naive_any(epsilon, delta, prior=prior, exceeded=passed))
    assert risk.epsilon == epsilon
    assert risk.guarantee == EpsilonDelta(epsilon=epsilon, delta=delta)
    assert (risk.posterior, risk.one_in) == (
        risk.figure("posterior").by["any"],
        risk.figure("one_in").by["any"],
    )
    if not delta:
        assert [route.key for route in risk.routes] == ["any"]
        assert risk.mu is None
        return
    assert naive_delta(epsilon, risk.mu) <= delta
    assert naive_delta(epsilon, risk.mu * 1.0001) > delta
    # Where the noise is known a posterior may be exceeded with probability δ, not 10·δ.
    agrees(risk, "gaussian", naive_gaussian(risk.mu, prior=prior, exceeded=delta))
    assert [route.exceeded for route in risk.routes] == [passed, delta]
    # The known noise gives less away than the worst of all mechanisms.
    assert risk.figure("advantage").by["gaussian"] < risk.figure("advantage").by["any"]


def test_gaussian_noise_for_a_posterior_passes_it_with_probability_delta():
    """Φ(μ/2 − ε/μ) = δ at ε = logit(0.9): μ = .805 and advantage .3127 for δ = 0.01.

    The μ that is (ε, δ)-DP, .961 with .3691, exceeds the posterior in 3.5 % of releases: not used.
    """
    risk = identifiability(max_posterior=0.9, delta=0.01)
    epsilon = math.log(9)

    def passed(mu):
        return float(mpmath.ncdf(mu / 2 - epsilon / mu))

    assert risk.mu == pytest.approx(0.805, abs=5e-4)
    assert passed(risk.mu) == pytest.approx(0.01, rel=1e-9)
    assert passed(risk.mu) <= 0.01 * (1 + 1e-12) < passed(risk.mu * 1.0001)
    assert risk.figure("advantage").by["gaussian"] == pytest.approx(0.3127, abs=5e-5)
    analytic = expost.risk.calibrate(GaussianNoise, epsilon=epsilon, delta=0.01).mu
    assert analytic == pytest.approx(0.961, abs=5e-4)
    assert GaussianNoise(mu=analytic).advantage == pytest.approx(0.3691, abs=5e-5)
    assert passed(analytic) == pytest.approx(0.035, abs=5e-4)
    # Simulated: one μ exceeds the posterior in 1 % of releases, the other in 3.5 %.
    z = np.random.default_rng(8).standard_normal(10**6)
    often = {mu: float(np.mean(mu * mu / 2 + mu * z > epsilon)) for mu in (risk.mu, analytic)}
    error = math.sqrt(0.01 * 0.99 / 10**6)
    assert often[risk.mu] == pytest.approx(0.01, abs=4 * error)
    assert often[analytic] > 0.01 + 100 * error
    # Any mechanism needs a probability above δ, and both are stated.
    assert risk.figure("posterior").by["gaussian"] == pytest.approx(0.9, rel=1e-9)
    assert {route.key: route.exceeded for route in risk.routes if route.guarantee} == {
        "any": 0.1,
        "gaussian": 0.01,
    }
    assert "1 in 10 (" in str(risk)
    assert "1 in 100 (" in str(risk)
    assert json.loads(risk.to_json())["routes"]["gaussian"]["exceeded"] == 0.01
    # A named probability is that of both.
    named = identifiability(max_posterior=0.9, delta=0.01, exceeded=0.1)
    assert passed(named.mu) == pytest.approx(0.1, rel=1e-9)
    assert named.epsilon == risk.epsilon


@pytest.mark.parametrize("delta", [None, 1e-6])
def test_gaussian_noise_and_a_model_of_it(delta):
    risk = identifiability(mu=0.7, delta=delta, prior=0.2, exceeded=delta)
    agrees(risk, "gaussian", naive_gaussian(0.7, prior=0.2, exceeded=delta or 0))
    assert risk.figure("sigma").by["gaussian"] >= 1 / 0.7
    if delta is None:
        assert risk.epsilon is None
        assert risk.posterior is None
        assert "Without a δ" in str(risk)
    else:
        assert naive_delta(risk.epsilon, 0.7) <= delta
        assert risk.figure("advantage").by["any"] > risk.advantage
    assert identifiability(GaussianNoise(mu=0.7), delta=delta).advantage == risk.advantage


def test_dpsgd_of_whole_batches_is_gaussian_noise():
    risk = identifiability(noise_multiplier=4.0, steps=16, delta=1e-5)
    assert risk.exceeded == 1e-5
    naive = naive_gaussian(1.0, exceeded=1e-5)
    for name in ("advantage", "true_positive_rate"):
        value = risk.figure(name).by["dpsgd"]
        assert float(naive[name]) * (1 - 1e-12) <= value <= float(naive[name]) * (1 + 1e-9)
    # Steps that react to each other may keep evidence: 1e-5 is found at a rate of Φ(Φ⁻¹(1e-5) − 1).
    with mpmath.workdps(30):
        score = mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf("1e-5") - 1)
        loss = mpmath.log(mpmath.mpf("1e-5") / mpmath.ncdf(score - 1))
        assert risk.posterior == pytest.approx(float(1 / (1 + mpmath.exp(-loss))), rel=1e-9)
    assert risk.posterior > naive["posterior"]
    assert naive_delta(risk.epsilon, 1.0) <= 1e-5
    sampled = identifiability(noise_multiplier=4.0, steps=16, sampling_rate=0.1, delta=1e-5)
    assert sampled.advantage < 0.5 * risk.advantage
    assert sampled.posterior < risk.posterior
    exchanged = identifiability(noise_multiplier=4.0, steps=16, relation="replace", delta=1e-5)
    assert exchanged.advantage > 1.5 * risk.advantage


GOALS = [
    {"max_posterior": 0.75},
    {"max_posterior": 0.02, "prior": 0.001},
    {"advantage": 0.3},
    {"true_positive_rate": 0.04, "false_positive_rate": 0.005},
    {"one_in": 40.0, "prior": 0.001},
]


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: next(iter(goal)))
@pytest.mark.parametrize("delta", [None, 1e-4])
def test_what_keeps_a_goal_keeps_it_and_no_noise_is_wasted(goal, delta):
    option, value = next(iter(goal.items()))
    rest, name = {key: goal[key] for key in goal if key != option}, option.removeprefix("max_")
    risk = identifiability(**goal, delta=delta)
    assert risk.is_goal
    setting = {"prior": risk.prior, "exceeded": risk.exceeded, "fpr": risk.false_positive_rate}

    def keeps(figure):
        return figure >= value * (1 - 1e-12) if name == "one_in" else figure <= value * (1 + 1e-12)

    assert keeps(naive_any(risk.epsilon, delta or 0, **setting)[name])
    assert not keeps(naive_any(risk.epsilon * 1.0001, delta or 0, **setting)[name])
    if risk.mu is not None:
        setting["exceeded"] = delta or 0.0
        assert keeps(naive_gaussian(risk.mu, **setting)[name])
        assert not keeps(naive_gaussian(risk.mu * 1.0001, **setting)[name])
        assert risk.figure("sigma").by["gaussian"] >= 1 / risk.mu
    else:
        assert delta is None
        assert name in ("posterior", "one_in")
    # Asking the other way round says the same.
    again = identifiability(epsilon=risk.epsilon, delta=delta, **rest)
    assert getattr(again, name) == pytest.approx(value, rel=1e-9)
    assert keeps(getattr(again, name))
    shown = risk.figure("epsilon").shown["any"]
    assert float(shown) <= risk.epsilon


def test_the_noise_of_dpsgd_that_keeps_a_goal():
    run = {"steps": 20, "sampling_rate": 0.05}
    for goal in ({"max_posterior": 0.9, "delta": 1e-5}, {"advantage": 0.25}):
        option, value = next(iter(goal.items()))
        name, risk = option.removeprefix("max_"), identifiability(**goal, **run)
        noise = risk.noise_multiplier
        kept, less = (DPSGD(noise_multiplier=much, **run) for much in (noise, 0.98 * noise))
        if name == "posterior":
            assert kept.posterior(delta=1e-5) <= value < less.posterior(delta=1e-5)
        else:
            assert kept.advantage <= value < less.advantage
        assert risk.figure(name).by["dpsgd"] <= value
        assert float(risk.figure("noise_multiplier").shown["dpsgd"]) >= noise * (1 - 1e-14)
    with pytest.raises(InvalidInput, match="delta"):
        identifiability(max_posterior=0.9, **run)


def test_several_releases():
    single = identifiability(epsilon=0.5, delta=1e-6)
    five = identifiability(epsilon=0.5, delta=1e-6, releases=5)
    assert five.delta == pytest.approx(5e-6)
    assert five.exceeded == pytest.approx(5e-5)
    assert (
        single.advantage
        < five.advantage
        <= naive_any(2.5, 5e-6, exceeded=0.5)["advantage"] * (1 + 1e-9)
    )
    assert five.posterior <= naive_any(2.5, 5e-6, exceeded=five.exceeded)["posterior"] * (1 + 1e-9)
    agrees(five, "gaussian", naive_gaussian(five.mu * math.sqrt(5), exceeded=five.delta))
    assert five.comparison is not None
    assert "all 5 releases" in str(five)
    pure = identifiability(epsilon=0.5, releases=3)
    assert pure.posterior == pytest.approx(1 / (1 + math.exp(-1.5)), rel=1e-6)
    goal = identifiability(max_posterior=0.9, delta=1e-6, releases=4)
    each = goal.figure("epsilon_each").by["any"]
    assert 4 * each <= goal.epsilon
    naive = naive_any(4 * each, 4e-6, exceeded=4e-5)["posterior"]
    assert 0.8999 <= naive <= 0.9
    naive = naive_gaussian(2 * goal.mu, exceeded=4e-6)["posterior"]
    assert 0.8999 <= naive <= 0.9 * (1 + 1e-12)
    with pytest.raises(InvalidInput, match="fewer releases"):
        identifiability(epsilon=1, delta=0.1, releases=10)


def released(tmp_path, **options):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 3))
    y = np.where(X[:, 0] > 0, 1, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededReleaseWarning)
        model = expost.PrivateLogisticRegression(
            data_norm=8.0, classes=[0, 1], random_state=0, **{**OUTPUT, **options}
        ).fit(X, y)
    return model, model.release_.save(tmp_path / "model.json"), (X, y)


def test_the_answer_has_the_audience_of_its_model(tmp_path):
    """Asked of the model, of its release and of its file; and so do its files and its figures."""
    model, path, _ = released(tmp_path, epsilon=2.0)
    public = replace(model.release_, seeded=False)
    assert (public.audience, model.release_.audience) == (Audience.PUBLIC, Audience.NEEDS_REVIEW)
    free = identifiability(public, delta=1e-6, releases=2)
    assert free.audience is free.comparison.audience is free.curves().audience is Audience.PUBLIC
    assert "needs review" not in str(free)
    assert free.to_json(tmp_path / "free.json").name == "free.json"
    for subject in (model, model.release_, path, str(path)):
        risk = identifiability(subject, delta=1e-6, releases=2)
        assert risk.audience is Audience.NEEDS_REVIEW
        assert risk.comparison.audience is risk.curves().audience is Audience.NEEDS_REVIEW
        assert str(risk).endswith(Audience.NEEDS_REVIEW.meaning)
        assert sum("needs review" in notice for notice in risk.notices) == 1
        assert (risk.posterior, risk.epsilon) == (free.posterior, free.epsilon)
    written = risk.to_json(tmp_path / "found.json")
    assert written.name == "found.CURATOR-ONLY.json"
    assert json.loads(written.read_text())["audience"] == "needs-review"
    for result in (free, risk):
        for drawn in (result, result.curves()):
            axes = drawn.plot("epsilon").axes_
            assert all(result.audience.meaning in {t.get_text() for t in ax.texts} for ax in axes)
    assert "needs review" in risk._repr_html_()
    assert "needs review" not in free._repr_html_()


def test_a_released_model_and_its_profile(tmp_path):
    model, path, rows = released(tmp_path, epsilon=2.0)
    risk = identifiability(path)
    own = NormLaplaceNoise(separation=2.0, dimension=4)
    assert risk.guarantee == own
    assert risk.advantage == own.advantage
    # Tighter than any mechanism with its ε.
    assert risk.advantage < risk.figure("advantage").by["any"] == pytest.approx(math.tanh(1))
    assert risk.epsilon == 2.0
    for subject in (str(path), model, model.release_):
        assert identifiability(subject).fields() == risk.fields()
    profile = expost.profile(model, *rows)
    rowwise = identifiability(profile, prior=0.1)
    assert isinstance(rowwise, RowIdentifiability)
    np.testing.assert_array_equal(rowwise.posterior, profile.identifiability(0.1).posterior)
    with pytest.raises(InvalidInput, match="no option except prior"):
        identifiability(profile, delta=1e-5)
    with pytest.raises(InvalidInput, match="no option except prior"):
        identifiability(profile, releases=2)


def test_models_by_other_mechanisms(tmp_path):
    _, path, _ = released(tmp_path, epsilon=2.0, delta=1e-4, noise="gaussian")
    risk = identifiability(path)
    assert risk.delta == 1e-4
    assert isinstance(risk.guarantee, GaussianNoise)
    assert risk.epsilon == pytest.approx(2.0, rel=1e-4)
    objective = {"mechanism": "objective", "noise": "gaussian"}
    _, path, _ = released(tmp_path, epsilon=2.0, delta=1e-4, **objective)
    risk = identifiability(path)
    assert risk.guarantee == EpsilonDelta(epsilon=2.0, delta=1e-4)
    with pytest.raises(InvalidInput, match="has its own"):
        identifiability(path, delta=1e-9)
    _, path, _ = released(tmp_path, epsilon=math.inf)
    assert identifiability(path).audience is Audience.NEEDS_REVIEW
    bare = identifiability(path)
    assert (bare.posterior, bare.advantage, bare.true_positive_rate, bare.one_in) == (1, 1, 1, 1)
    assert "can be certain" in str(bare)
    assert "every time" in str(bare)


EXTREME_EPSILONS = [1e-8, 1e-3, 1.0, 30.0, 700.0, 1e4]
EXTREME_DELTAS = [None, 1e-300, 1e-12, 1e-3, 0.3, 0.9]


@pytest.mark.parametrize("delta", EXTREME_DELTAS)
def test_extremes_give_a_right_number(delta):
    """No overflow, no warning (they are errors), nothing certain or private that is not."""
    before = None
    for epsilon in EXTREME_EPSILONS:
        risk = identifiability(epsilon=epsilon, delta=delta)
        text = str(risk)
        assert "nan" not in text
        assert " 100 %" not in text.replace("< 100 %", "").replace("less than 100 %", "")
        assert "can be certain" not in text
        agrees(
            risk,
            "any",
            {
                name: value
                for name, value in naive_any(epsilon, delta or 0, exceeded=risk.exceeded).items()
                if name in ("advantage", "true_positive_rate")
            },
        )
        assert 0.5 < risk.posterior <= 1
        assert risk.advantage > 0
        json.loads(risk.to_json())
        figures = [risk.posterior, risk.advantage, risk.true_positive_rate]
        if before is not None:
            assert all(now >= then for now, then in zip(figures, before, strict=True))
        before = figures
    for posterior in (0.5 + 1e-9, 0.6, 1 - 1e-12):
        goal = identifiability(max_posterior=posterior) if delta is None else None
        if goal is not None:
            assert 0 < goal.epsilon < 30


def test_no_guarantee_is_never_private():
    risk = identifiability(epsilon=math.inf)
    assert (risk.posterior, risk.advantage, risk.true_positive_rate, risk.one_in) == (1, 1, 1, 1)
    assert risk.epsilon == math.inf
    assert json.loads(risk.to_json())["figures"]["epsilon"]["values"]["any"] == "infinity"
    assert "Nothing is guaranteed" in str(risk)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "nothing given: must be one guarantee"),
        ({"delta": 1e-5}, "nothing given"),
        ({"epsilon": 1, "mu": 1}, "epsilon and mu given"),
        ({"epsilon": 1, "max_posterior": 0.9}, "epsilon and max_posterior given"),
        ({"max_posterior": 0.9, "advantage": 0.2}, "max_posterior and advantage given"),
        ({"epsilon": 1, "delta": 1e-3, "exceeded": 1e-4}, "exceeded=0.0001: must be above delta"),
        ({"epsilon": 1, "steps": 5}, "steps=5: belongs to DP-SGD"),
        ({"epsilon": 1, "relation": "remove"}, "relation='remove': belongs to DP-SGD"),
        ({"max_posterior": 0.9, "sampling_rate": 0.1}, "sampling_rate=0.1: belongs to DP-SGD"),
        ({"max_posterior": 0.4}, "posterior=0.4: must lie strictly between"),
        ({"subject": 3}, "subject: int is not known"),
        ({"subject": "nowhere.json"}, "nowhere.json: cannot be read"),
        (
            {"subject": EpsilonDelta(epsilon=1, delta=1e-5), "delta": 1e-9},
            "the guarantee has its own",
        ),
        (
            {"subject": EpsilonDelta(epsilon=1), "delta": 1e-9},
            "delta=1e-09: the guarantee has its own",
        ),
        ({"subject": GaussianNoise(mu=1), "steps": 3}, "steps=3: belongs to DP-SGD"),
        ({"subject": GaussianNoise(mu=1), "epsilon": 1}, "a model and epsilon given"),
    ],
)
def test_a_mistake_is_one_sentence(options, words):
    with pytest.raises(InvalidInput) as caught:
        identifiability(**options)
    message = str(caught.value)
    assert words in message
    assert message.endswith((".", ")"))
    assert "\n" not in message


@pytest.mark.parametrize(
    ("good", "names"),
    [
        ({"epsilon": 1.0}, ("epsilon", "delta", "prior", "false_positive_rate", "releases")),
        ({"epsilon": 1.0, "delta": 1e-5}, ("exceeded",)),
        ({"mu": 1.0}, ("mu",)),
        ({"noise_multiplier": 1.0}, ("noise_multiplier", "sampling_rate", "steps", "relation")),
        *[({goal: 0.9}, (goal,)) for goal in ("max_posterior", "advantage", "true_positive_rate")],
        ({"one_in": 1.5}, ("one_in",)),
    ],
)
def test_every_parameter_reaches_its_validator(good, names):
    identifiability(**good)
    for name in names:
        # Perfect privacy is a guarantee.
        for value in WRONG if name in ("epsilon", "delta", "mu") else (*WRONG, 0):
            with pytest.raises(InvalidInput, match=name.removeprefix("max_")):
                identifiability(**{**good, name: value})


def test_the_answer_is_readable_and_public(tmp_path):
    risk = identifiability(epsilon=1, delta=1e-5, releases=2)
    assert risk.audience is Audience.PUBLIC
    assert repr(risk).startswith("Identifiability(2 releases ")
    shown = str(risk)
    assert all(symbols(sentence) in shown for sentence in risk.sentences)
    path = risk.to_json(tmp_path / "risk.json")
    assert path.name == "risk.json"
    assert json.loads(path.read_text()) == json.loads(risk.to_json())
    with pytest.raises(InvalidInput, match="name='sigmas'"):
        risk.figure("sigmas")


def test_the_page_shows_what_is_printed():
    """The rows' block of docs/identifiability.md; tests/test_docs.py runs the commands."""
    page = (Path(__file__).parent.parent / "docs" / "identifiability.md").read_text("utf-8")
    patients = load_breast_cancer()
    X = (patients.data - patients.data.mean(axis=0)) / patients.data.std(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededReleaseWarning)
        known = {"data_norm": 10.0, "classes": [0, 1], "random_state": 0}
        model = expost.PrivateLogisticRegression(
            epsilon=20.0, **{**OUTPUT, "regularization": 0.1}, **known
        )
        with pytest.warns(ClippedRowsWarning):
            model.fit(X, patients.target)
    risk = expost.profile(model, X, patients.target).identifiability()
    assert all(f"    {line}".rstrip() + "\n" in page for line in str(risk).splitlines())
