"""What an attacker of the figures tried: whatever is asked, a sane number or one sentence."""

import json
import math
import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import expost
from expost.errors import ConvergenceError, InvalidInput
from expost.risk import DPSGD, EpsilonDelta, GaussianNoise, NormLaplaceNoise, calibrate
from expost.risk.composition import Composition, compare_compositions, repeat

NO_NUMBERS = (
    math.nan, -math.inf, "1", "", b"1", True, False, -1, -1e-320, np.float64("nan"), np.bool_(True),
    Decimal("0.5"), Fraction(1, 2), 10**400, -(10**400), 10**5000, 1j, [0.5], np.array(0.5), {},
)  # fmt: skip
FIGURES = ("delta", "epsilon", "loss", "true_positive_rate", "posterior", "one_in")
GUARANTEES = (
    EpsilonDelta(epsilon=1.0, delta=1e-5),
    GaussianNoise(mu=1.0),
    NormLaplaceNoise(separation=1.0, dimension=3),
    DPSGD(noise_multiplier=1.0, steps=3),
    DPSGD(noise_multiplier=1.0, sampling_rate=0.1, steps=3),
    Composition(parts=(GaussianNoise(mu=0.5), GaussianNoise(mu=1.0))),
)


def refusal(call, *arguments, **named) -> str:
    with pytest.raises((InvalidInput, ConvergenceError)) as caught:
        call(*arguments, **named)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith((".", ")"))
    assert len(message) < 600
    return message


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: str(type(value).__name__))
def test_what_is_no_number_is_refused(value):
    refusal(EpsilonDelta, epsilon=value)
    refusal(EpsilonDelta, epsilon=1.0, delta=value)
    refusal(DPSGD, noise_multiplier=1.0, sampling_rate=value)
    refusal(expost.identifiability, one_in=value)


# Each parameter reaches its validator: of what is no number, of another type, of another size.
@pytest.mark.parametrize("value", [math.nan, True, 10**400], ids=str)
def test_what_is_no_number_is_refused_everywhere(value):
    for guarantee in GUARANTEES:
        for figure in FIGURES:
            refusal(getattr(guarantee, figure), value)
        refusal(guarantee.posterior, 0.5, delta=value)
    refusal(GaussianNoise, mu=value)
    refusal(NormLaplaceNoise, separation=value, dimension=2)
    refusal(DPSGD, noise_multiplier=value)
    for name in ("epsilon", "mu", "noise_multiplier", "max_posterior", "advantage"):
        refusal(expost.identifiability, **{name: value})
    for name in ("delta", "prior", "false_positive_rate", "exceeded"):
        refusal(expost.identifiability, epsilon=1.0, **{name: value})
    for family in (EpsilonDelta, GaussianNoise, DPSGD):
        for name in ("posterior", "one_in", "advantage", "true_positive_rate", "epsilon"):
            refusal(calibrate, family, **{name: value}, delta=0.1, prior=0.2, exceeded=0.3)
        for name in ("delta", "prior", "exceeded"):
            refusal(
                calibrate, family, posterior=0.9, **{"delta": 0.1, "exceeded": 0.3, name: value}
            )
        refusal(calibrate, family, true_positive_rate=0.5, false_positive_rate=value)


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=repr)
def test_probabilities_have_ends(guarantee):
    for figure, value in (
        *(("epsilon", 1.0), ("loss", 1.0), ("posterior", 0.0), ("posterior", 1.0)),
        *(("true_positive_rate", 1.0 + 1e-12), ("true_positive_rate", math.inf)),
    ):
        refusal(getattr(guarantee, figure), value)


@pytest.mark.parametrize(
    "value",
    [0, -1, 1.0, True, "2", 10**400, 10**5000, 2**60, None],
    ids=lambda value: str(type(value).__name__),
)
def test_what_is_no_count_is_refused(value):
    refusal(NormLaplaceNoise, separation=1.0, dimension=value)
    refusal(DPSGD, noise_multiplier=1.0, steps=value)
    refusal(repeat, GaussianNoise(mu=1.0), value)
    refusal(calibrate, DPSGD, advantage=0.5, steps=value)
    refusal(expost.identifiability, epsilon=1.0, releases=value)


def test_more_releases_than_can_be_looked_at_are_refused_at_once():
    assert "10,000" in refusal(expost.identifiability, epsilon=1.0, releases=10**9)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.longdouble, np.int64])
def test_scalars_of_numpy_are_numbers(kind):
    zero, unit = kind(0), kind(1)
    assert EpsilonDelta(epsilon=unit, delta=zero).advantage == EpsilonDelta(epsilon=1.0).advantage
    assert GaussianNoise(mu=unit).delta(zero) == GaussianNoise(mu=1.0).delta(0.0)
    summary = expost.identifiability(epsilon=unit, delta=zero)
    assert json.loads(summary.to_json())["delta"] == 0.0
    if kind is not np.int64:
        with_prior = expost.identifiability(epsilon=unit, delta=kind(0.25), prior=kind(0.25))
        plain = expost.identifiability(epsilon=1.0, delta=0.25, prior=0.25)
        assert with_prior.to_json() == plain.to_json()


# Several releases that may tell all --------------------------------------------------------------


def spread_out(epsilon: float, delta: float, level: float) -> float:
    """The evidence of one (ε, δ) mechanism that is passed with probability ``level`` > δ.

    Two outcomes: the first has probability ``level`` with the row and
    (level − δ)/e^ε without it; P(S) = e^ε Q(S) + δ there, and less elsewhere.
    """
    return math.log(level / ((level - delta) * math.exp(-epsilon)))


@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 1e-6, 0.01, 1.0])
@pytest.mark.parametrize("releases", [2, 10])
def test_what_tells_all_may_be_spread_over_finite_losses(epsilon, releases):
    """The largest finite loss of the dominating pair bounds it alone: a posterior of 'any' was less
    than that of Gaussian noise, which is one of them."""
    delta = 1e-5
    whole = Composition(parts=(EpsilonDelta(epsilon=epsilon, delta=delta),) * releases)
    level = 10 * releases * delta
    # One of the releases alone, the others saying nothing.
    alone = spread_out(epsilon, delta, level)
    assert whole.loss(level) >= alone * (1 - 1e-12)
    assert whole.loss(level) <= EpsilonDelta(
        epsilon=epsilon * releases, delta=releases * delta
    ).loss(level) * (1 + 1e-9)
    if epsilon > 0:
        noise = repeat(calibrate(GaussianNoise, epsilon=epsilon, delta=delta), releases)
        assert noise.posterior(delta=level) <= whole.posterior(delta=level)
    rows = compare_compositions(whole.parts, delta=level).rows
    assert all(row.loss >= alone * (1 - 1e-12) for row in rows)
    # Power: the old bound, kε, is passed by one release alone where ε is small.
    assert epsilon > 1e-3 or alone > releases * epsilon


# Extremes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("separation", [5e-324, 1e-300, 1.0, 1e4, 1e11, 1e13, 1e150, 1e308])
@pytest.mark.parametrize("dimension", [1, 2, 31, 10**6, 2**53])
def test_norm_laplace_noise_is_sane_at_every_size(separation, dimension):
    noise = NormLaplaceNoise(separation=separation, dimension=dimension)
    pure = EpsilonDelta(epsilon=separation)
    for figure, level in (("delta", 0.0), ("epsilon", 1e-6), ("loss", 1e-3), ("loss", 0.0)):
        assert 0 <= getattr(noise, figure)(level) <= getattr(pure, figure)(level) * (1 + 1e-12)
    assert 0.05 <= noise.true_positive_rate(0.05) <= pure.true_positive_rate(0.05)


@pytest.mark.parametrize("epsilon", [1e-320, 1e-8, 36.0, 710.0, 1e4, 1e16, 1e101, 1e308])
def test_compositions_are_sane_at_every_size(epsilon):
    part = EpsilonDelta(epsilon=epsilon)
    whole = Composition(parts=(part,) * 3)
    assert part.delta(0.0) * (1 - 1e-9) <= whole.delta(0.0) <= 1
    assert part.true_positive_rate(0.05) * (1 - 1e-9) <= whole.true_positive_rate(0.05) <= 1
    assert whole.loss(0.0) >= 3 * epsilon
    assert all(row.epsilon >= 0 for row in compare_compositions(whole.parts, delta=1e-6).rows)


def test_a_rate_next_to_nothing_does_not_overflow():
    assert EpsilonDelta(epsilon=744.0).true_positive_rate(5e-324) < 1
    assert EpsilonDelta(epsilon=700.0).true_positive_rate(1e-310) == pytest.approx(
        math.exp(700 + math.log(1e-310)), rel=1e-9
    )


def test_nobody_hides_among_infinitely_many():
    for prior in (5e-324, 1e-310):
        summary = expost.identifiability(epsilon=1.0, prior=prior)
        assert 1e308 < summary.one_in < math.inf
        assert "infinity" not in str(summary)
    assert expost.identifiability(epsilon=1.0, prior=1e-300).one_in == pytest.approx(
        1e300 * math.exp(-1)
    )


def test_a_goal_is_shown_as_it_was_given_and_kept():
    summary = expost.identifiability(one_in=1.999999)
    assert "at most 1 in 1.999999" in str(summary)
    assert summary.one_in >= 1.999999
    assert "0.1234567" in str(expost.identifiability(advantage=0.1234567))


def drawn(rng: random.Random) -> dict[str, object]:
    """A question, mostly an extreme one."""
    tiny = (5e-324, 1e-320, 1e-300, 1e-16, 1e-8, 1e-3)
    share = (*tiny, 0.01, 0.3, 0.5, math.nextafter(0.5, 1), 0.9, 1 - 1e-10, 1 - 2.0**-53)
    size = (0, *tiny, 0.5, 1, 5.0, 36.0, 709.0, 745.0, 1e4, 1e16, 1e150, 1e308, math.inf)
    name = rng.choice(
        ("epsilon", "mu", "max_posterior", "advantage", "true_positive_rate", "one_in")
    )
    value = rng.choice(size if name in ("epsilon", "mu") else share)
    if name == "one_in":
        value = rng.choice((1 + 2.0**-52, 1.5, 1.999999, 10.0, 1e10, 1e300))
    return {
        name: value,
        "delta": rng.choice((None, 0, 0.0, *share)),
        "prior": rng.choice((0.5, *share)),
        "false_positive_rate": rng.choice((0.01, *share)),
        "exceeded": rng.choice((None, None, 0, *share)),
    }


def test_extreme_questions_have_sane_answers():
    """Three hundred of them; about half are refused, in one sentence."""
    rng, answered = random.Random(0), 0
    refusals: list[str] = []
    for _ in range(300):
        question = drawn(rng)
        try:
            summary = expost.identifiability(**question)
            text = str(summary)
            json.loads(summary.to_json())
        except (InvalidInput, ConvergenceError) as error:
            refusals.append(str(error))
            continue
        answered += 1
        prior, fpr = question["prior"], question["false_positive_rate"]
        by = {figure.name: dict(figure.by) for figure in summary.figures}
        for values in by.values():
            assert all(value >= 0 for value in values.values()), question
        assert all(prior <= value <= 1 for value in by.get("posterior", {}).values()), question
        assert all(value <= 1 for value in by["advantage"].values()), question
        assert all(fpr <= value <= 1 for value in by["true_positive_rate"].values()), question
        assert all(1 <= value <= 1 / prior for value in by.get("one_in", {}).values()), question
        assert "nan" not in text
        if summary.is_goal:
            (goal,) = question.keys() & {
                "max_posterior",
                "advantage",
                "true_positive_rate",
                "one_in",
            }
            for value in by[goal.removeprefix("max_")].values():
                kept = value >= question[goal] if goal == "one_in" else value <= question[goal]
                assert kept, question
        elif "epsilon" in question and "gaussian" in by["advantage"] and question["delta"] > 1e-300:
            # Gaussian noise is one of any mechanisms; below, digits are few.
            for name in ("posterior", "advantage", "true_positive_rate"):
                assert by[name]["gaussian"] <= by[name]["any"] * (1 + 1e-9), question
    assert 100 < answered < 250
    assert not any("\n" in message or len(message) > 600 for message in refusals)
