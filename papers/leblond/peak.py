"""The coverage peak of the paper's conclusion: claim f.

Conventions
-----------
C(y, M) = p(M ∣ y), the density of the neighbour's mechanism at a model M drawn from that of x, in
d dimensions; normalised as it must be (DESIGN erratum 1). t = β·distance. For typical M:

geometric mean   log: E[log C(y, M)] = E[log C(x, M)] − E[ℓ] (the sign of DESIGN erratum 2), and
                 E[log C(x, M)] = log c + d log β − d, c = Γ(d/2)/(2 π^(d/2) Γ(d)). At a fixed
                 distance it peaks where t·dE[ℓ]/dt = d.
arithmetic mean  E[C(y, M)] is the density p convolved with itself, at the shift. The Fourier
                 transform of p is (1 + k²/β²)^(−(d+1)/2); that of p∗p, its square, is a Matérn
                 law of order ν = d/2 + 1:

                     E[C(y, M)] = c (β/2)^d · t^ν K_ν(t) / (2^(ν−1) Γ(ν)),

                 which the paper takes to have no closed form. It peaks where
                 t·K_{d/2}(t)/K_{d/2+1}(t) = d, since (t^ν K_ν)' = −t^ν K_{ν−1}.

As d → ∞ the peaks go to √φ·d (φ the golden ratio; E[ℓ] there to d/φ) and to √2·d.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, kve

from expost._numerics import bracket_root
from expost.errors import ConvergenceError
from expost.noise import NormLaplace, NormLaplaceLaw
from expost.noise._bessel import ratio_below
from expost.types import FloatArray, IntArray
from papers.common.claims import Check, Claim
from papers.common.exhibits import Exhibit, Table
from papers.common.figures import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    Curve,
    CurvesDisplay,
    Guide,
    panels,
)
from papers.leblond.onset import SPECTRUM, Sampled, sampled_roots
from papers.leblond.setting import TOLERANCE, Effort, Setting

__all__ = [
    "Peak",
    "arithmetic_coverage",
    "arithmetic_peak",
    "geometric_coverage",
    "geometric_peak",
    "loss_slope",
    "measure_peak",
    "peak_claim",
    "peak_exhibit",
]

# The step in log t of a difference of the fourth order: its error and its rounding are 1e-10.
_STEP = 3e-3
_SEPARATIONS = np.geomspace(1e-2, 1e2, 161)
# Sampled peaks are right to about half a per cent.
_SAMPLED = 0.03
_ERRATA = (
    "Section 3.2 prints the normaliser β/2, which is that of d = 1; in two dimensions it is"
    " β²/(2π), and the coverage C(x, M) decays like β², not β.",
    "Section 4.4 has the sign of E[ℓ] reversed: E[log C(y, M)] is E[log C(x, M)] − E[ℓ]. It says"
    " that E[C(y, M)] has no closed form; it is a Matérn function of β·distance.",
)


def loss_slope(separation: FloatArray, dimension: int) -> FloatArray:
    """t·dE[ℓ]/dt."""

    def loss(steps: int) -> FloatArray:
        t = separation * math.exp(steps * _STEP)
        return NormLaplaceLaw(separation=t, dimension=dimension).expected_loss

    return (8 * (loss(1) - loss(-1)) - (loss(2) - loss(-2))) / (12 * _STEP)


def geometric_peak(dimension: int) -> float:
    """Return the t at which exp E[log C(y, M)] is largest."""
    return _root(lambda t: loss_slope(t, dimension) - dimension, *_around(dimension))


def arithmetic_peak(dimension: int) -> float:
    """Return the t at which E[C(y, M)] is largest."""
    return _root(lambda t: t * ratio_below(dimension, t) - dimension, *_around(dimension))


def _around(dimension: int) -> tuple[float, float]:
    """Return a bracket of the peaks, which lie between d and √2·d + 1."""
    return 0.5 * dimension, 2.0 * dimension + 1.0


def _root(function: Callable[[FloatArray], FloatArray], low: float, high: float) -> float:
    start, stop = np.array([low]), np.array([high])
    # 40 halvings leave 1e-12 of the bracket, less than the slopes are right to.
    below, above = bracket_root(function, start, stop, halvings=40)
    if not (function(start)[0] <= 0 < function(stop)[0]):
        raise ConvergenceError(f"no root of the coverage's slope between {low:g} and {high:g}.")
    return float(0.5 * (below[0] + above[0]))


def geometric_coverage(beta: FloatArray, distance: float, dimension: int) -> FloatArray:
    """log of the typical C(y, M) as geometric mean; that of C(x, M) at distance 0."""
    law = NormLaplaceLaw(separation=beta * distance, dimension=dimension)
    return _log_normaliser(dimension) + dimension * (np.log(beta) - 1) - law.expected_loss


def arithmetic_coverage(beta: FloatArray, distance: float, dimension: int) -> FloatArray:
    """log of the typical C(y, M) as arithmetic mean, distance > 0."""
    t, order = beta * distance, dimension / 2 + 1
    matern = np.log(kve(order, t)) - t + order * np.log(t)
    matern -= (order - 1) * math.log(2) + float(gammaln(order))
    return _log_normaliser(dimension) + dimension * np.log(beta / 2) + matern


def _log_normaliser(dimension: int) -> float:
    """log c of the density c·β^d·exp(−β∥b∥)."""
    half = dimension / 2
    return float(gammaln(half) - gammaln(dimension)) - math.log(2) - half * math.log(math.pi)


@dataclass(frozen=True, kw_only=True, eq=False)
class Peak:
    """The peaks of some rows' typical coverage, in t = β·distance.

    ``geometric``, ``arithmetic``  the exact ones, the same for every row.
    ``sampled``   (r,) the geometric one from refitted models and sampled noise.
    ``onset``     where a row leaves its first plateau.
    ``maxima``    how many maxima each of the two curves over β has.
    ``decay``     d log C(y, M)/d log β over d, far below the peak (geometric, arithmetic).
    ``ratio``     C(y, M)/C(x, M) at the peak (geometric, arithmetic).
    ``alike``     the t below which C(y, M) decays like C(x, M) to a tenth.
    """

    rows: IntArray
    distance: FloatArray
    geometric: float
    arithmetic: float
    sampled: tuple[Sampled, ...]
    onset: float
    maxima: tuple[int, int]
    decay: tuple[float, float]
    ratio: tuple[float, float]
    alike: float
    dimension: int


def measure_peak(setting: Setting, effort: Effort, seed: np.random.SeedSequence) -> Peak:
    """Measure the peaks, by the law and by brute force."""
    d = setting.dimension
    rows = setting.spectrum(SPECTRUM)
    geometric, arithmetic = geometric_peak(d), arithmetic_peak(d)
    curves = [
        geometric_coverage(_SEPARATIONS, 1.0, d),
        arithmetic_coverage(_SEPARATIONS, 1.0, d),
    ]
    log_step = math.log(_SEPARATIONS[1] / _SEPARATIONS[0])
    noise = NormLaplace(rate=1.0, dimension=d)
    # E[C(x, M)] = c (β/2)^d: the Matérn factor alone is the ratio of the arithmetic means.
    itself = _log_normaliser(d) + d * math.log(arithmetic / 2)
    matern = float(arithmetic_coverage(np.array([arithmetic]), 1.0, d)[0]) - itself
    kept = NormLaplaceLaw(separation=np.array([geometric]), dimension=d).expected_loss
    return Peak(
        rows=rows,
        distance=setting.distance[rows],
        geometric=geometric,
        arithmetic=arithmetic,
        sampled=tuple(
            _sampled_peak(setting, int(row), noise, effort, child)
            for row, child in zip(rows, seed.spawn(len(rows)), strict=True)
        ),
        onset=setting.sweep().transition.leaves,
        maxima=(_maxima(curves[0]), _maxima(curves[1])),
        decay=(
            float(curves[0][1] - curves[0][0]) / log_step / d,
            float(curves[1][1] - curves[1][0]) / log_step / d,
        ),
        ratio=(math.exp(-float(kept[0])), math.exp(matern)),
        alike=_root(lambda t: loss_slope(t, d) - TOLERANCE * d, 1e-3 * d, 1.0 * d),
        dimension=d,
    )


def _maxima(curve: FloatArray) -> int:
    """Return how often a curve turns from rising to falling."""
    rising = np.diff(curve) > 0
    return int(np.count_nonzero(rising[:-1] & ~rising[1:]))


def _sampled_peak(
    setting: Setting, row: int, noise: NormLaplace, effort: Effort, seed: np.random.SeedSequence
) -> Sampled:
    """β·distance at which the mean of log C(y, M) over sampled M is largest.

    log C(y, M) = d log β − β∣A(y) − M∣ + constant with M = A(x) + b/β; its derivative by log β is
    d − β(A(y) − A(x))·(A(y) − M)/∣A(y) − M∣.
    """
    base = setting.neighbours.base
    neighbour = setting.refitted(row)
    apart = float(np.linalg.norm(neighbour - base))
    rng = np.random.default_rng(seed)
    # The slope varies little from model to model: fewer are enough.
    batches = [noise.sample(effort.draws // 4, rng) for _ in range(effort.batches)]

    def falling(betas: FloatArray) -> FloatArray:
        slopes = []
        for beta, draws in zip(betas, batches, strict=True):
            steps = neighbour - (base + draws / beta)
            pull = steps @ (neighbour - base) / np.linalg.norm(steps, axis=1)
            slopes.append(beta * np.mean(pull) - setting.dimension)
        return np.array(slopes)

    return sampled_roots(falling, effort.batches, apart)


def peak_claim(peak: Peak) -> Claim:
    """Check claim (f): the onset of the plateau is where the typical coverage peaks (Section 7)."""
    values = np.array([root.value for root in peak.sampled])
    spread = float(np.max(np.abs(values / peak.geometric - 1)))
    apart = [abs(coverage / peak.onset - 1) for coverage in (peak.geometric, peak.arithmetic)]
    return Claim(
        key="f",
        says=(
            "As β falls the typical coverage C(y_i, M) rises to a maximum; from there on it decays"
            " as C(x, M) does, and the onset of the plateau is where this peak is."
        ),
        where="Section 7",
        outcome=(
            f"The geometric mean of C(y, M) peaks at β·distance = {peak.geometric:.5g} for every"
            f" row (on refitted models with sampled noise: {values.min():.3f} to"
            f" {values.max():.3f}), its arithmetic mean at {peak.arithmetic:.5g}: like the onset,"
            f" the peak scales as 1/distance. The onset is at {peak.onset:.5g},"
            f" {peak.onset / peak.geometric:.2f} and {peak.onset / peak.arithmetic:.2f} times that,"
            " and this factor changes with d (see the figure of d). At the peak C(y, M) is"
            f" {peak.ratio[0]:.2f} and {peak.ratio[1]:.2f} of C(x, M); the two fall off alike, to a"
            f" tenth of the power, below β·distance = {peak.alike:.2g}."
        ),
        checks=(
            Check(
                what="maxima of the typical coverage over β, geometric mean",
                value=peak.maxima[0],
                relation="==",
                bound=1,
            ),
            Check(
                what="maxima of the typical coverage over β, arithmetic mean",
                value=peak.maxima[1],
                relation="==",
                bound=1,
            ),
            Check(
                what="sampled peaks of the rows: largest miss from one β·distance, relative",
                value=spread,
                relation="<=",
                bound=_SAMPLED,
            ),
            Check(
                what="decay far below the peak against that of C(x, M), off 1",
                value=max(abs(ratio - 1) for ratio in peak.decay),
                relation="<=",
                bound=0.01,
            ),
            Check(
                what="C(y, M)/C(x, M) at the peak, geometric mean",
                value=peak.ratio[0],
                relation=">=",
                bound=1 - TOLERANCE,
            ),
            Check(
                what="peak of the geometric mean, relative distance from the onset",
                value=apart[0],
                relation="<=",
                bound=TOLERANCE,
            ),
            Check(
                what="peak of the arithmetic mean, relative distance from the onset",
                value=apart[1],
                relation="<=",
                bound=TOLERANCE,
            ),
        ),
        figures=("coverage-peak", "dimension"),
    )


def peak_exhibit(peak: Peak) -> Exhibit:
    """Typical coverage over β for rows of the spectrum, and over β·distance for all of them."""
    d, t = peak.dimension, _SEPARATIONS
    betas = np.geomspace(t[0] / peak.distance[-1], t[-1] / peak.distance[0], 161)
    shown = [geometric_coverage(betas, apart, d) for apart in peak.distance]
    itself = geometric_coverage(betas, 0.0, d)
    labels = [f"{row + 1}" for row in peak.rows]
    labels[-1] += r" ($y_{max}$)"
    colours = np.linspace(0, 1, len(labels))
    # Where a curve has fallen by so much from its peak it is not shown.
    depth = 12
    left = CurvesDisplay(
        curves=(
            *(
                Curve(x=betas, y=np.exp(curve), label=label, colour=float(colour))
                for curve, label, colour in zip(shown, labels, colours, strict=True)
            ),
            *(
                Curve(
                    x=np.array([root.value / apart]),
                    y=np.exp(geometric_coverage(np.array([root.value / apart]), apart, d)),
                    colour=float(colour),
                    style="",
                    marker="o",
                )
                for root, apart, colour in zip(peak.sampled, peak.distance, colours, strict=True)
            ),
            Curve(x=betas, y=np.exp(itself), label="C(x, M)", colour=INK, style="--", width=1.2),
        ),
        xlabel=r"$\beta$",
        ylabel=r"typical coverage $C(y_i, M)$, geometric mean",
        legend_title="$i$",
        limits_y=(
            math.exp(float(itself[0])) / 3,
            math.exp(max(float(curve.max()) for curve in shown) + depth / 3),
        ),
        beside=True,
    )
    pair = {
        "geometric": geometric_coverage(t, 1.0, d),
        "arithmetic": arithmetic_coverage(t, 1.0, d),
    }
    own = geometric_coverage(t, 0.0, d)
    # E[C(x, M)] = c (β/2)^d.
    own_mean = _log_normaliser(d) + d * np.log(t / 2)
    top = max(float(curve.max()) for curve in pair.values())
    right = CurvesDisplay(
        curves=(
            Curve(x=t, y=np.exp(pair["geometric"]), label="geometric mean", colour=BLUE, width=2),
            Curve(
                x=t,
                y=np.exp(pair["arithmetic"]),
                label="arithmetic mean",
                colour=ORANGE,
                style="-.",
                width=2,
            ),
            Curve(x=t, y=np.exp(own), label="C(x, M)", colour=BLUE, style="--", width=1),
            Curve(x=t, y=np.exp(own_mean), label="C(x, M)", colour=ORANGE, style="--", width=1),
        ),
        guides=(
            Guide(at=peak.geometric, label=f"peak, {peak.geometric:.3f}", colour=BLUE, style=":"),
            Guide(
                at=peak.arithmetic, label=f"peak, {peak.arithmetic:.3f}", colour=ORANGE, style=":"
            ),
            Guide(at=peak.onset, label=f"onset, {peak.onset:.3f}", colour=GREEN, style="--"),
        ),
        xlabel=r"$\beta\,|A(x) - A(y_i)|$",
        ylabel=r"typical coverage $\cdot\,|A(x) - A(y_i)|^d$",
        limits_y=(math.exp(top - depth), math.exp(top + 3)),
        beside=True,
    )
    return Exhibit(
        name="coverage-peak",
        title="Section 7: the coverage peak",
        caption=(
            "Left: the typical coverage of rows of the spectrum over β (circles: the peak as found"
            " on refitted models with sampled noise); dashed, C(x, M). Right: for every row at"
            " once, over β·distance, in both means; dotted, their peaks, and dashed the onset of"
            " the plateau in the mean exposure."
        ),
        draw=lambda: panels([left, right], columns=2, size=(6.4, 4.2)),
        tables={
            "coverage-peak": Table(
                columns={
                    "beta_times_distance": t,
                    "log_geometric_times_distance_d": pair["geometric"],
                    "log_arithmetic_times_distance_d": pair["arithmetic"],
                    "log_self_geometric_times_distance_d": own,
                    "log_self_arithmetic_times_distance_d": own_mean,
                }
            ),
            "coverage-peak-rows": Table(
                columns={
                    "i": peak.rows + 1,
                    "distance": peak.distance,
                    "beta_peak_geometric": peak.geometric / peak.distance,
                    "beta_peak_arithmetic": peak.arithmetic / peak.distance,
                    "beta_onset": peak.onset / peak.distance,
                    "t_peak_sampled": np.array([root.value for root in peak.sampled]),
                    "standard_error": np.array([root.error for root in peak.sampled]),
                }
            ),
        },
        errata=_ERRATA,
    )
