"""LiRA against the paper's formulas, row by row, and its shared estimates against a plain loop."""

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy.stats import norm, t

from auditing.games import area_of, balanced, evidence, made_up
from expost.auditing.attacks.lira import LiraOffline, LiraOnline, variance_prior


def sides(made, row):
    values = made.references[:, row].astype(float)
    return values[made.inside[:, row]], values[~made.inside[:, row]]


@pytest.mark.parametrize("share", [0.5, 0.3])
def test_row_estimates_are_algorithm_1(share):
    made, _ = made_up(1, share=share)
    scores, alone = LiraOnline(estimates="row")(made), LiraOffline(estimates="row")(made)
    for row, phi in enumerate(made.confidence.astype(float)):
        inner, outer = sides(made, row)
        expected = norm.logpdf(phi, inner.mean(), inner.std(ddof=1)) - norm.logpdf(
            phi, outer.mean(), outer.std(ddof=1)
        )
        assert scores[row] == pytest.approx(expected, rel=1e-9)
        tail = norm.sf(phi, outer.mean(), outer.std(ddof=1))
        assert norm.cdf(alone[row]) == pytest.approx(1 - tail, rel=1e-9)


def test_pooled_estimates_share_one_variance_a_side():
    made, _ = made_up(2)
    pairs = [sides(made, row) for row in range(made.rows)]
    variances = [
        sum(((side - side.mean()) ** 2).sum() for side in both)
        / sum(len(side) - 1 for side in both)
        for both in zip(*pairs, strict=True)
    ]
    scores, alone = LiraOnline(estimates="pooled")(made), LiraOffline(estimates="pooled")(made)
    for row, phi in enumerate(made.confidence.astype(float)):
        (inner, outer), (wide, narrow) = pairs[row], np.sqrt(variances)
        expected = norm.logpdf(phi, inner.mean(), wide) - norm.logpdf(phi, outer.mean(), narrow)
        assert scores[row] == pytest.approx(expected, rel=1e-9)
        assert alone[row] == pytest.approx((phi - outer.mean()) / narrow, rel=1e-9)


def moderated(made):
    """The formulas of the module in a plain loop, (d₀, s₀²) given."""
    pairs = [sides(made, row) for row in range(made.rows)]
    inner, outer = zip(*pairs, strict=True)
    squares = [[((side - side.mean()) ** 2).sum() for side in some] for some in (inner, outer)]
    freedom = [[len(side) - 1 for side in some] for some in (inner, outer)]
    pooled = [sum(a) / sum(b) for a, b in zip(squares, freedom, strict=True)]
    rho = pooled[0] / pooled[1]
    d = np.add(*freedom)
    own = (np.array(squares[1]) + np.array(squares[0]) / rho) / d
    d0, s0 = variance_prior(own, d.astype(float))
    variance = (d0 * s0 + d * own) / (d0 + d) if math.isfinite(d0) else np.full(len(d), pooled[1])
    s = np.sqrt(variance)
    g = np.array([(a.mean() - b.mean()) / s[i] for i, (a, b) in enumerate(pairs)])
    v = np.array([rho / len(a) + 1 / len(b) for a, b in pairs])
    tau2 = max(0, g.var() - v.mean())
    scores = []
    for i, (a, b) in enumerate(pairs):
        gap = (v[i] * g.mean() + tau2 * g[i]) / (v[i] + tau2)
        error = tau2 * v[i] / (tau2 + v[i])
        precise = len(a) / rho, len(b)
        centre = (precise[0] * a.mean() + precise[1] * b.mean()) / sum(precise)
        up, down = precise[1] / sum(precise), precise[0] / sum(precise)
        law = norm if math.isinf(d0) else t(d0 + d[i])
        ends = []
        for mean, variance_here in (
            (centre + up * gap * s[i], rho + 1 / sum(precise) + up**2 * error),
            (centre - down * gap * s[i], 1 + 1 / sum(precise) + down**2 * error),
        ):
            scale = s[i] * math.sqrt(variance_here)
            ends.append(law.logpdf((made.confidence[i] - mean) / scale) - math.log(scale))
        scores.append(ends[0] - ends[1])
    return np.array(scores)


@pytest.mark.parametrize(("seed", "models", "share"), [(3, 12, 0.5), (4, 7, 0.5), (5, 20, 0.25)])
def test_moderated_estimates_follow_the_module(seed, models, share):
    made, _ = made_up(seed, models=models, share=share)
    np.testing.assert_allclose(LiraOnline()(made), moderated(made), rtol=1e-8, atol=1e-9)


def alike(seed, *, rows=30, models=8):
    """Every row has the same spread and the same gap."""
    rng = np.random.default_rng(seed)
    inside = balanced(rng, models, rows)
    phi = rng.normal(size=(models + 1, rows)) + rng.normal(size=rows)
    phi[1:] += inside
    return evidence(phi[0], phi[1:], inside)


# Of variances and of gaps: spread in neither, in the first, in the second, in both.
@pytest.mark.parametrize("seed", [5, 8, 9, 0])
def test_moderated_estimates_of_rows_that_agree(seed):
    made = alike(seed)
    np.testing.assert_allclose(LiraOnline()(made), moderated(made), rtol=1e-8, atol=1e-9)


def test_rows_that_agree_in_all_are_judged_by_one_rule():
    """The score is then one parabola in φ less the row's mean over all references."""
    made = alike(5)
    pairs = [sides(made, row) for row in range(made.rows)]
    rho = np.divide(
        *(np.mean([side.var(ddof=1) for side in both]) for both in zip(*pairs, strict=True))
    )
    centre = [(a.mean() / rho + b.mean()) / (1 / rho + 1) for a, b in pairs]
    scores, distance = LiraOnline()(made), made.confidence - np.array(centre)
    parabola = np.polyfit(distance, scores, 2)
    np.testing.assert_allclose(np.polyval(parabola, distance), scores, atol=1e-6)
    assert parabola[1] > 0.3


def test_moderated_offline_counts_the_error_of_the_mean():
    made, _ = made_up(6)
    outer = [sides(made, row)[1] for row in range(made.rows)]
    d = np.array([len(side) - 1.0 for side in outer])
    own = np.array([side.var(ddof=1) for side in outer])
    d0, s0 = variance_prior(own, d)
    assert math.isfinite(d0)
    for row, side in enumerate(outer):
        variance = (d0 * s0 + d[row] * own[row]) / (d0 + d[row]) * (1 + 1 / len(side))
        expected = (made.confidence[row] - side.mean()) / math.sqrt(variance)
        assert LiraOffline()(made)[row] == pytest.approx(expected, rel=1e-9)


def test_the_prior_solves_its_moment_equations():
    rng = np.random.default_rng(7)
    d0, s0, d = 6.0, 2.5, rng.integers(3, 12, 20_000).astype(float)
    sigma2 = d0 * s0 / rng.chisquare(d0, len(d))
    variances = sigma2 * rng.chisquare(d) / d
    computed, scale = variance_prior(variances, d)
    assert computed == pytest.approx(d0, rel=0.1)
    assert scale == pytest.approx(s0, rel=0.05)
    # And exactly what it set out to solve, by another route.
    e = [
        math.log(x) - mpmath.digamma(k / 2) + mpmath.log(k / 2)
        for x, k in zip(variances[:50], d[:50], strict=True)
    ]
    mean = sum(e) / 50
    excess = sum((x - mean) ** 2 for x in e) / 49 - sum(mpmath.psi(1, k / 2) for k in d[:50]) / 50
    half = mpmath.findroot(lambda x: mpmath.psi(1, x) - excess, 2.0)
    few = variance_prior(variances[:50], d[:50])
    assert few[0] == pytest.approx(float(2 * half), rel=1e-9)
    assert few[1] == pytest.approx(
        float(mpmath.exp(mean + mpmath.digamma(half) - mpmath.log(half))), rel=1e-9
    )


def test_rows_of_one_variance_are_pooled():
    rng = np.random.default_rng(8)
    d0, _ = variance_prior(rng.chisquare(9, 4000) / 9, np.full(4000, 9.0))
    assert d0 > 200


@pytest.mark.parametrize("estimates", ["moderated", "row", "pooled"])
@pytest.mark.parametrize("models", [2, 3, 4, 5])
def test_few_models_do_and_help(estimates, models):
    areas = []
    for seed in range(6):
        made, truth = made_up(seed, rows=300, models=models)
        for attack in (LiraOnline(estimates=estimates), LiraOffline(estimates=estimates)):
            scores = attack(made)
            assert np.isfinite(scores).all()
            areas.append(area_of(scores, truth))
    assert np.mean(areas) > 0.55


def test_one_model_serves_the_offline_attack():
    made, truth = made_up(10, rows=400, models=1, share=0.0)
    scores = LiraOffline()(made)
    assert np.array_equal(
        np.argsort(scores), np.argsort(made.confidence.astype(float) - made.references[0])
    )
    assert area_of(scores, truth) > 0.6


def test_two_models_give_one_rule_for_all_rows():
    """Once in and once out, nothing is known of a row's own gap: φ less the mean of both decides."""
    made, _ = made_up(14, rows=200, models=2)
    distance = made.confidence - made.references.mean(axis=0, dtype=float)
    assert np.array_equal(np.argsort(LiraOnline()(made)), np.argsort(distance))


@pytest.mark.parametrize("estimates", ["moderated", "row", "pooled"])
def test_rounding_of_float32_is_no_evidence(estimates):
    rng = np.random.default_rng(15)
    above = np.nextafter(np.float32(35), np.float32(36))
    phi = np.where(rng.random((17, 50)) < 0.5, np.float32(35), above)
    made = evidence(phi[0], phi[1:], balanced(rng, 16, 50))
    for attack in (LiraOnline(estimates=estimates), LiraOffline(estimates=estimates)):
        assert np.abs(attack(made)).max() < 1


def certain(seed, *, rows=400, models=10, wrong=0.4):
    """A tree's answers: p is 0 or 1, members always 1."""
    rng = np.random.default_rng(seed)
    inside = rng.random((models, rows)).argsort(axis=0) < models // 2
    truth = rng.random(rows) < 0.5
    hard = rng.random(rows) < 0.5
    member = np.vstack([truth, inside])
    fooled = ~member & hard & (rng.random(member.shape) < 2 * wrong)
    phi = np.where(fooled, -36.0, 36.0)
    return evidence(phi[0], phi[1:], inside), truth


@pytest.mark.parametrize("estimates", ["moderated", "row", "pooled"])
def test_signals_without_variance_give_finite_scores_in_order(estimates):
    made, truth = certain(11)
    loss = area_of(made.confidence.astype(float), truth)
    for attack in (LiraOnline(estimates=estimates), LiraOffline(estimates=estimates)):
        scores = attack(made)
        assert np.isfinite(scores).all()
        # It knows besides which rows a model without them gets wrong.
        assert area_of(scores, truth) > loss + 0.03


def test_scores_of_rows_of_different_scales_compare():
    """Rows stretched and shifted by any factor keep their scores, but for the shared estimates."""
    made, _ = made_up(12)
    rng = np.random.default_rng(0)
    stretch, shift = rng.uniform(0.5, 2, made.rows), rng.normal(size=made.rows)
    moved = replace(
        made,
        confidence=(made.confidence * stretch + shift).astype(np.float32),
        references=(made.references * stretch + shift).astype(np.float32),
    )
    for attack in (LiraOnline(estimates="row"), LiraOffline(estimates="row")):
        np.testing.assert_allclose(attack(moved), attack(made), rtol=1e-3, atol=1e-4)
