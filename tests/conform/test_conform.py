"""A private trainer against its claims: seeded faults are found, a right one is not reported."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from conform.steps import CLAIMS, FAULTS, RIGHT, SIGMA, Step
from evidence import record
from expost.conformance import Claims, Verdict, conform
from expost.conformance.checks import extra_loss
from expost.conformance.statistics import (
    cosine_p_value,
    count_quantiles,
    extreme_p_value,
    law_p_value,
    mean_interval,
    ratio_interval,
    scale_interval,
    successive_p_value,
    uniform_p_value,
)
from expost.errors import InvalidInput
from parameters import every_parameter_reaches

NAMES = (
    *("clipping", "norm budget", "noise scale", "noise independence", "noise distribution"),
    *("divisor", "number of rows", "seeds", "not finite", "sampling"),
    *("sampled clipping", "empty batches", "accountant"),
)


def seeded(step, seed):
    """The trainer with other draws in each run, the same in each test."""
    seeds = np.random.default_rng(seed)
    return replace(step, seed=lambda: int(seeds.integers(2**60))) if step.seed is None else step


def test_a_right_trainer_conforms():
    result = conform(seeded(RIGHT, 1), CLAIMS)
    assert result.violated == ()
    assert result.conforms
    assert result.exit_code == 0
    assert tuple(finding.check for finding in result.findings) == NAMES
    assert [finding.check for finding in result.of(Verdict.NOT_CHECKED)] == ["norm budget"]
    scale = result["noise scale"].figures
    assert scale["noise_multiplier_low"] < SIGMA < scale["noise_multiplier_high"]
    # A scale that is wrong by 3 % is outside of the interval.
    assert scale["noise_multiplier_high"] < 1.06 * scale["noise_multiplier_low"]
    # The condition of its guarantee is named.
    assert "public" in result["number of rows"].evidence
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["conforms"] is True


@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_is_found_by_its_check(name):
    fault = FAULTS[name]
    result = conform(seeded(fault.step, 2), fault.claims)
    assert fault.check in result.violated
    assert result.exit_code == 3
    finding = result[fault.check]
    assert finding.weakens is fault.weakens
    assert finding.evidence
    assert finding.meaning
    assert finding.remedy


def test_other_settings_conform():
    def trainer(clip, sigma, divisor=None):
        def total(g, sizes):
            norms = np.linalg.norm(g, axis=1, keepdims=True)
            return (g * np.minimum(1.0, clip / np.maximum(norms, 1e-300))).sum(axis=0)

        def noise(rng, total, step):
            return sigma * clip * rng.standard_normal(len(total))

        step = Step(total=total, noise=noise, account=lambda steps, rate: None)
        return step if divisor is None else replace(step, divisor=lambda n, rate, batch: divisor)

    common = {"n_public": True, "not_finite": "absent"}
    for clip, sigma, rate in ((0.1, 3.0, 0.05), (5.0, 0.4, 0.5), (1.0, 1.0, 0.3)):
        claims = Claims(clip=clip, noise_multiplier=sigma, sampling_rate=rate, **common)
        assert conform(seeded(trainer(clip, sigma), 3), claims).violated == ()
    full = Claims(clip=1.0, noise_multiplier=2.0, divisor=50.0, not_finite="absent")
    result = conform(seeded(trainer(1.0, 2.0, 50.0), 4), full)
    assert result.violated == ()
    names = [finding.check for finding in result.of(Verdict.NOT_CHECKED)]
    assert names == [
        *("norm budget", "not finite", "sampling"),
        *("sampled clipping", "empty batches", "accountant"),
    ]
    # The noise of a removed row where rows are replaced.
    replaced = replace(full, relation="replace", noise_multiplier=1.0)
    assert conform(seeded(trainer(1.0, 2.0, 50.0), 5), replaced).violated == ()
    assert "noise scale" in conform(seeded(trainer(1.0, 1.0, 50.0), 5), replaced).violated


def test_extra_loss_is_the_divergence_of_the_scales():
    ratio, d = 1.3, 7
    # KL(N(0, κ²) ∥ N(0, 1)), by quadrature.
    x = np.linspace(-15, 15, 200_001)
    p = stats.norm.pdf(x, scale=ratio)
    kl = np.trapezoid(p * (stats.norm.logpdf(x, scale=ratio) - stats.norm.logpdf(x)), x)
    assert extra_loss(d, ratio) == pytest.approx(d * kl, rel=1e-6)
    assert extra_loss(d, 1.0) == 0
    # About d/n² nats for n and n − 1 rows.
    assert extra_loss(1000, 60_000 / 59_999) == pytest.approx(1000 / 60_000**2, rel=1e-3)


def test_trainers_that_do_not_fit_are_refused():
    def stops(task):
        yield task.parameters

    def wrong(task):
        yield None

    def raises(task):
        raise KeyError("lr")
        yield

    def diverges(task):
        while True:
            yield {name: np.full_like(value, np.nan) for name, value in task.parameters.items()}

    refusals = {
        stops: "yielded 1 steps",
        wrong: "must yield",
        raises: "KeyError",
        diverges: "not finite",
    }
    for trainer, words in refusals.items():
        with pytest.raises(InvalidInput, match=words):
            conform(trainer, CLAIMS)


def test_every_claim_reaches_its_check():
    good = {
        "clip": 1.0,
        "noise_multiplier": 1.0,
        "sampling_rate": 0.5,
        "learning_rate": 1.0,
        "delta": 1e-5,
        "relation": "remove",
        "not_finite": "bounded",
    }
    every_parameter_reaches(Claims, good)
    with pytest.raises(InvalidInput, match="divisor"):
        Claims(**good, divisor=math.nan)
    with pytest.raises(InvalidInput, match="norm_budget"):
        Claims(**good, norm_budget=1.0)
    with pytest.raises(InvalidInput, match="clip has 2 entries"):
        Claims(**good | {"clip": (1.0, 2.0)})
    for name, value in {"false_alarm": 0, "steps": 3}.items():
        with pytest.raises(InvalidInput, match=name):
            conform(RIGHT, CLAIMS, **{name: value})


def test_clipping_is_flat_or_by_layer():
    g = np.random.default_rng(0).normal(size=(3, 192))
    flat = Claims(clip=0.5, noise_multiplier=1.0)
    np.testing.assert_allclose(np.linalg.norm(flat.clipped(g), axis=1), 0.5)
    layered = Claims(clip=(3.0, 4.0, 12.0), noise_multiplier=1.0)
    lengths = [
        np.linalg.norm(part, axis=1) for part in np.split(layered.clipped(g), [96, 160], axis=1)
    ]
    np.testing.assert_allclose(lengths[0], 3.0)
    np.testing.assert_allclose(lengths[1], 4.0)
    assert np.all(lengths[2] < 12.0)
    assert layered.bound == pytest.approx(13.0)


def test_p_values_are_uniform_or_larger():
    """2,000 p-values each: P(p ≤ a) ≤ a, up to 4.5 standard deviations; intervals likewise."""
    rng = np.random.default_rng(6)

    def p_values():
        z = rng.standard_normal((40, 30))
        counts = rng.binomial(20, 0.3, size=50) + 0.7 * rng.standard_normal(50)
        yield "cosine", cosine_p_value(z)[1]
        yield "extreme", extreme_p_value(z)
        yield "law", law_p_value(count_quantiles(counts, 20, 0.3, 0.7))
        opposite = rng.binomial(20, 0.3, size=50) + counts - rng.binomial(9, 0.3, size=50)
        yield "opposite", law_p_value(count_quantiles(opposite, 40, 0.3, 0.7, 9))
        yield "successive", successive_p_value(z[:10], z[10:17])[1]
        yield "uniform", uniform_p_value(stats.norm.cdf(z[0]))
        for name, (low, high) in {
            "mean": mean_interval(z[0], 0.05),
            "scale": scale_interval(float(np.sum(z**2)), z.size, 0.05),
            "ratio": ratio_interval(z[:10], z[10:], 0.05),
        }.items():
            yield name, 1.0 if low <= (0.0 if name == "mean" else 1.0) <= high else 0.0

    drawn = {}
    for _ in range(2000):
        for name, value in p_values():
            drawn.setdefault(name, []).append(value)
    for name, values in drawn.items():
        for a in (0.05, 0.2):
            share = np.mean(np.array(values) <= a)
            assert share <= max(a, 0.05) + 4.5 * np.sqrt(a * (1 - a) / 2000), name


def test_counts_have_their_own_law():
    rng = np.random.default_rng(7)
    right = rng.binomial(100, 0.25, size=200) + rng.standard_normal(200)
    assert law_p_value(count_quantiles(right, 100, 0.25, 1.0)) > 1e-4
    fixed = 25 + rng.standard_normal(200)
    assert law_p_value(count_quantiles(fixed, 100, 0.25, 1.0)) < 1e-12


def test_successive_steps_are_compared_once_each():
    rng = np.random.default_rng(8)
    for steps in (2, 7, 12):
        values = rng.standard_normal((steps, 5))
        pairs = [(values[t], values[t + 1]) for t in range(steps - 1)]
        before, after = (np.concatenate(part) for part in zip(*pairs, strict=True))
        correlation, p_value = successive_p_value(values)
        assert correlation == pytest.approx(
            before @ after / (np.linalg.norm(before) * np.linalg.norm(after))
        )
        assert 0 < p_value < 1
    # Noise of which 5 % is left in the next step: 100 steps of 200 coordinates.
    left = rng.standard_normal((100, 200))
    for t in range(1, 100):
        left[t] = np.sqrt(1 - 0.05**2) * left[t] + 0.05 * left[t - 1]
    correlation, p_value = successive_p_value(left)
    assert correlation == pytest.approx(0.05, abs=0.02)
    assert p_value < 1e-6


@pytest.mark.long
def test_record_false_alarms_and_faults():
    """500 right runs with a false-alarm rate of 0.2, and all p-values; every fault ten times."""
    alarms, p_values = {}, {}
    runs = 500
    for run in range(runs):
        result = conform(seeded(RIGHT, 1000 + run), CLAIMS, false_alarm=0.2)
        alarms["any"] = alarms.get("any", 0) + (not result.conforms)
        for name in result.violated:
            alarms[name] = alarms.get(name, 0) + 1
        for finding in result.findings:
            for name, value in finding.figures.items():
                if name.startswith("p_value"):
                    p_values.setdefault(f"{finding.check}: {name}", []).append(value)
    shares = {
        name: {str(a): float(np.sum(np.array(values) <= a)) / runs for a in (0.1, 0.05, 0.01)}
        for name, values in p_values.items()
    }
    found = {
        name: sum(
            fault.check in conform(seeded(fault.step, 5000 + at), fault.claims).violated
            for at in range(10)
        )
        for name, fault in FAULTS.items()
    }
    record(
        "conform-steps",
        command="pytest -m long tests/conform",
        seed=1000,
        figures={
            "right_runs": runs,
            "false_alarm_rate_of_the_test": 0.2,
            "false_alarms": alarms,
            "share_of_p_values_at_most": shares,
            "found_of_10": found,
        },
    )
    for name, each in shares.items():
        for a, share in each.items():
            level = float(a)
            assert share <= level + 4.5 * math.sqrt(level * (1 - level) / runs), (name, a)
    assert alarms["any"] <= 0.2 * runs + 3 * math.sqrt(0.16 * runs)
    assert set(found.values()) == {10}
