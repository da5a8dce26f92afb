"""The grid that a released θ lies on."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.errors import ReleaseRefused
from expost.losses import HuberHinge, Logistic, Squared
from expost.mechanisms import Grid, OutputPerturbation


def grids():
    for reach in (1e-3, 0.7, 1.0, 3.0, 1e4):
        for resolution in (1e-5, 0.01, 1.0, 50.0):
            for dimension in (1, 3, 100, 4000):
                # A grid exists at all (what happens where none does is tested below).
                if resolution >= 2**21 * math.ulp(2 * reach) * math.sqrt(dimension):
                    yield reach, resolution, dimension


@pytest.mark.parametrize(("reach", "resolution", "dimension"), list(grids()))
def test_both_inequalities_of_the_design(reach, resolution, dimension):
    """2^k ≥ 2¹⁰·ulp(B) and √d·2^k ≤ 2⁻¹⁰·resolution, B a power of two past the reach."""
    grid = Grid.for_noise(reach=reach, resolution=resolution, dimension=dimension)
    assert grid.clamp >= reach
    assert grid.clamp < 2 * reach * (1 + 1e-12)
    assert math.frexp(grid.clamp)[0] == 0.5
    assert grid.step == 2.0**grid.exponent
    assert grid.step >= 2**10 * math.ulp(grid.clamp)
    assert math.sqrt(dimension) * grid.step <= 2**-10 * resolution
    assert grid.diagonal(dimension) == pytest.approx(math.sqrt(dimension) * grid.step, rel=1e-15)
    # Twenty bits finer than the noise where the arithmetic allows it.
    if grid.step > 2**10 * math.ulp(grid.clamp):
        assert math.sqrt(dimension) * grid.step == pytest.approx(2**-20 * resolution, rel=0.5)


def test_refuses_where_no_grid_exists():
    """The noise is finer than ten bits above twice ten bits of the arithmetic."""
    clamp, dimension = 8.0, 9
    least = 2**20 * math.ulp(clamp) * math.sqrt(dimension)
    Grid.for_noise(reach=clamp, resolution=least * 1.0001, dimension=dimension)
    with pytest.raises(ReleaseRefused, match="epsilon or raise regularization"):
        Grid.for_noise(reach=clamp, resolution=least * 0.4999, dimension=dimension)


@settings(max_examples=200)
@given(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=True), min_size=1, max_size=8),
    st.integers(-30, 3),
    st.integers(4, 12),
)
def test_snap_is_the_nearest_multiple_within_the_clamp(values, exponent, power):
    grid = Grid(clamp=2.0**power, exponent=exponent)
    theta = np.array(values)
    snapped = grid.snap(theta)
    step = Fraction(grid.step)
    for before, after in zip(values, snapped, strict=True):
        clipped = min(max(Fraction(before), -Fraction(grid.clamp)), Fraction(grid.clamp))
        assert (Fraction(after) / step).denominator == 1
        assert abs(Fraction(after) - clipped) <= step / 2
        assert not (after == 0 and math.copysign(1, after) < 0)
    assert np.array_equal(grid.snap(snapped), snapped)
    assert grid.holds(snapped)
    assert np.max(np.abs(snapped)) <= grid.clamp


def test_holds_refuses_what_is_between_or_beyond():
    grid = Grid(clamp=4.0, exponent=-3)
    assert grid.holds(np.array([0.125, -4.0, 0.0]))
    assert not grid.holds(np.array([0.125, np.nextafter(0.125, 1)]))
    assert not grid.holds(np.array([4.125]))
    assert grid.is_clamped(np.array([0.0, -4.0]))
    assert not grid.is_clamped(np.array([0.0, -3.875]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_snap_refuses_what_is_not_finite(value):
    """NaN passes through a clip: it must not be released."""
    with pytest.raises(ReleaseRefused, match="nothing is released"):
        Grid(clamp=4.0, exponent=-3).snap(np.array([0.0, value]))


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(), Squared(label_bound=3.0)], ids=str)
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_grid_is_a_public_constant(loss, noise):
    """It follows from the mechanism's constants alone: data does not come in anywhere."""
    constants = {
        "epsilon": 2.0,
        "delta": 1e-6 if noise == "gaussian" else None,
        "noise": noise,
        "loss": loss,
        "regularization": 0.1,
        "rows": 500,
        "dimension": 7,
    }
    mechanism = OutputPerturbation(**constants)
    assert mechanism.grid == OutputPerturbation(**constants).grid
    reach = loss.solution_bound(0.1) + mechanism.law.norm_exceeded_with(1e-12)
    assert mechanism.grid.clamp == 2.0 ** math.ceil(math.log2(reach))
    assert mechanism.grid.clamp >= loss.solution_bound(0.1)


def test_the_mechanism_refuses_before_it_sees_data():
    """So much ε that the noise falls below what float64 hides."""
    mechanism = OutputPerturbation(
        epsilon=1e12, loss=Logistic(), regularization=1e-3, rows=10_000, dimension=4
    )
    with pytest.raises(ReleaseRefused):
        _ = mechanism.grid
