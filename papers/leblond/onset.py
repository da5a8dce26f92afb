"""Single rows over β (LeBlond Fig. 7): the onset scales as 1/distance. Claims c and i.

A row's E∣ℓ∣/β is distance·g(t), t = β·distance, with one g for all rows: the law of its loss
depends on t alone (DESIGN: the law of a row's loss). So it leaves its plateau at one t, that of
:func:`expost.noise.transition.transition`. That is checked here against nothing of the kind:
models fitted again without the row, noise drawn, and LeBlond Eq. 3 taken at its word.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from expost._numerics import bracket_root
from expost.noise import NormLaplace
from expost.noise.transition import first_plateau
from expost.types import FloatArray, IntArray
from papers.common.claims import Check, Claim, quote
from papers.common.exhibits import Exhibit, Table
from papers.common.figures import GREY, INK, Curve, CurvesDisplay, Guide, panels
from papers.leblond.setting import TOLERANCE, Effort, Setting

__all__ = [
    "SPECTRUM",
    "Onset",
    "Sampled",
    "measure_onset",
    "onset_exhibit",
    "protection_claim",
    "sampled_roots",
    "scaling_claim",
]

# From the nearest neighbour to y_max, by share of the rows.
SPECTRUM = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
# Where the plateau is measured.
_ON_PLATEAU = 1e-3
_HALVINGS = 16
# Sampled constants are right to about half a per cent.
_SAMPLED = 0.03
_ERRATUM = (
    "Section 4.4 has the sign of E[ℓ] reversed, and Section 1 calls the mean of |ℓ| the"
    " Kullback–Leibler divergence; that is the mean of ℓ itself, which has no first plateau: over"
    " β it falls like β (dotted, right). The figure shows the mean of |ℓ|."
)

# β (one a batch) ↦ the mean of |ℓ| over each batch of models.
Mean = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """A root that was found on batches of sampled models: its mean and standard error."""

    value: float
    error: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Onset:
    """Rows of the spectrum, nearest first, y_max last.

    ``distance``  (r,) exact.      ``critical`` (r,) the exact β*.
    ``sampled``   (r,) β*·distance from refitted models and sampled noise.
    ``constant``  the exact one.   ``smallest``: the least exact β* of all rows of the data.
    ``posterior``, ``exposure``  of y_max at low, and its exposure at a tenth of low.
    """

    rows: IntArray
    distance: FloatArray
    critical: FloatArray
    sampled: tuple[Sampled, ...]
    constant: float
    smallest: float
    low: float
    posterior: tuple[float, float]
    exposure: tuple[float, float]
    dimension: int
    rate: float


def measure_onset(setting: Setting, effort: Effort, seed: np.random.SeedSequence) -> Onset:
    """Measure the onset of some rows, by the law and by brute force."""
    sweep = setting.sweep()
    rows = setting.spectrum(SPECTRUM)
    noise = NormLaplace(rate=1.0, dimension=setting.dimension)
    sampled = tuple(
        sampled_onset(setting, int(row), noise, effort, child)
        for row, child in zip(rows, seed.spawn(len(rows)), strict=True)
    )
    at = setting.mechanism.loss_law(sweep.transition.leaves * np.array([1.0, 0.1]))
    return Onset(
        rows=rows,
        distance=setting.distance[rows],
        critical=setting.rate * sweep.critical[rows],
        sampled=sampled,
        constant=sweep.transition.leaves,
        smallest=setting.rate * float(sweep.critical.min()),
        low=sweep.low,
        posterior=_two(at.expected_posterior()),
        exposure=_two(at.expected_exposure),
        dimension=setting.dimension,
        rate=setting.rate,
    )


def _two(values: FloatArray) -> tuple[float, float]:
    return float(values[0]), float(values[1])


def sampled_onset(
    setting: Setting, row: int, noise: NormLaplace, effort: Effort, seed: np.random.SeedSequence
) -> Sampled:
    """Return β*·distance of one row, refitted: LeBlond Eq. 3 averaged over sampled M."""
    base = setting.neighbours.base
    neighbour = setting.refitted(row)
    apart = float(np.linalg.norm(neighbour - base))
    rng = np.random.default_rng(seed)
    batches = [noise.sample(effort.draws, rng) for _ in range(effort.batches)]

    def mean(betas: FloatArray) -> FloatArray:
        means = []
        for beta, draws in zip(betas, batches, strict=True):
            model = base + draws / beta
            to_base = np.linalg.norm(model - base, axis=1)
            means.append(
                beta * np.mean(np.abs(np.linalg.norm(model - neighbour, axis=1) - to_base))
            )
        return np.array(means)

    start = mean(np.full(effort.batches, _ON_PLATEAU / apart)) / _ON_PLATEAU

    def passed(betas: FloatArray) -> FloatArray:
        ratio = mean(betas) / (betas * apart)
        return (ratio - start) / (1 - start) - TOLERANCE

    return sampled_roots(passed, effort.batches, apart)


def sampled_roots(
    passed: Mean, batches: int, apart: float, *, bracket: tuple[float, float] = (1.0, 40.0)
) -> Sampled:
    """Return the separation β·``apart`` in ``bracket`` where ``passed`` changes sign, by batch."""
    ends = [np.full(batches, end / apart) for end in bracket]
    below, above = bracket_root(passed, ends[0], ends[1], halvings=_HALVINGS)
    roots = 0.5 * (below + above) * apart
    bracketed = (passed(ends[0]) <= 0) & (passed(ends[1]) > 0)
    roots = np.where(bracketed, roots, math.nan)
    error = float(np.std(roots, ddof=1)) / math.sqrt(batches) if batches > 1 else math.inf
    return Sampled(value=float(np.mean(roots)), error=error)


def scaling_claim(onset: Onset) -> Claim:
    """Check claim (c): the onset scales as 1/distance (Fig. 7)."""
    values = np.array([root.value for root in onset.sampled])
    errors = np.array([root.error for root in onset.sampled])
    miss = float(np.max(np.abs(values / onset.constant - 1)))
    betas = values / onset.distance
    slope = float(np.polyfit(np.log(onset.distance), np.log(betas), 1)[0])
    return Claim(
        key="c",
        says=(
            "The onset of the plateau scales inversely with |A(x) − A(y_i)|: β*·distance is the"
            " same for all rows, and β* is smallest for y_max."
        ),
        where="Section 5.4, Fig. 7",
        outcome=(
            f"By the exact law β*·distance = {onset.constant:.6g} for every row, a tenth off the"
            f" plateau. On {len(values)} rows whose models were fitted again, with sampled noise,"
            f" it is {values.min():.3f} to {values.max():.3f} (standard errors up to"
            f" {errors.max():.3f}), while β* itself spans a factor of"
            f" {betas.max() / betas.min():.3g}; y_max has {values[-1]:.3f}."
        ),
        checks=(
            Check(
                what="largest miss of a sampled β*·distance from the exact constant, relative",
                value=miss,
                relation="<=",
                bound=_SAMPLED,
            ),
            Check(
                what="power of the distance in the sampled β*, off −1",
                value=abs(slope + 1),
                relation="<=",
                bound=_SAMPLED,
            ),
            Check(
                what="β* of y_max over the smallest of all rows",
                value=float(onset.critical[-1]) / onset.smallest,
                relation="<=",
                bound=1.0,
            ),
        ),
        figures=("fig7",),
    )


def protection_claim(onset: Onset) -> Claim:
    """Check claim (i): below the onset nothing is gained by a smaller ε."""
    gain = onset.exposure[0] / onset.exposure[1]
    return Claim(
        key="i",
        says=(
            "Beneath the threshold all rows are effectively protected, and reducing ε further gains"
            " no benefit in privacy."
        ),
        where="Sections 1, 3.3 and 5.4",
        outcome=(
            "What stays the same is the shape of the profile; the losses themselves go on"
            f" shrinking. At low, ε = {quote(onset.low)}, the farthest row is exposed by"
            f" {onset.exposure[0]:.2g} nats on average, and an undecided attacker's posterior that"
            f" it was there is {onset.posterior[0]:.3f} on average; at a tenth of that ε it is"
            f" {onset.exposure[1]:.2g} nats and {onset.posterior[1]:.3f}."
        ),
        checks=(
            Check(
                what="expected posterior of y_max's presence at low, prior ½",
                value=onset.posterior[0],
                relation="<=",
                bound=0.75,
            ),
            Check(
                what="y_max's mean exposure at low over that at low/10",
                value=gain,
                relation="<=",
                bound=1 + TOLERANCE,
            ),
        ),
        figures=("fig7",),
    )


def onset_exhibit(onset: Onset, setting: Setting) -> Exhibit:
    """LeBlond Fig. 7, both panels."""
    t = np.geomspace(1e-2, 1e3, 121)
    law = setting.mechanism.loss_law(t)
    exposure, loss = law.expected_exposure / t, law.expected_loss / t
    labels = [f"{row + 1}" for row in onset.rows]
    labels[-1] += r" ($y_{max}$)"
    colours = np.linspace(0, 1, len(labels))
    # All rows over the same β, so that the curves of the left panel end together.
    betas = np.geomspace(t[0] / onset.distance[-1], t[-1] / onset.distance[0], 161)
    curves = [
        setting.mechanism.loss_law(betas * apart).expected_exposure / betas
        for apart in onset.distance
    ]
    start = onset.constant / float(onset.distance[-1])
    left = CurvesDisplay(
        curves=(
            *(
                Curve(x=betas, y=curve, label=label, colour=float(colour))
                for curve, label, colour in zip(curves, labels, colours, strict=True)
            ),
            *(
                Curve(
                    x=np.array([root.value / apart]),
                    y=np.array([apart * _at(t, exposure, root.value)]),
                    colour=float(colour),
                    style="",
                    marker="o",
                )
                for root, apart, colour in zip(onset.sampled, onset.distance, colours, strict=True)
            ),
        ),
        guides=(Guide(at=start, label="low (exact)"),),
        xlabel=r"$\beta$",
        ylabel=r"$\overline{|\ell|}\,/\,\beta$",
        legend_title="$i$",
        beside=True,
    )
    right = CurvesDisplay(
        curves=(
            Curve(x=t, y=exposure, label=r"$\overline{|\ell|}$, exact", colour=INK, width=1),
            Curve(x=t, y=loss, label=r"$\overline{\ell}$, no plateau", colour=GREY, style=":"),
            *_collapsed(betas, curves, onset.distance, colours, (float(t[0]), float(t[-1]))),
        ),
        guides=(
            Guide(at=onset.constant, label=f"onset, {onset.constant:.3f}"),
            Guide(at=first_plateau(onset.dimension), axis="y", style=":", colour=INK),
        ),
        xlabel=r"$\beta\,|A(x) - A(y_i)|$",
        ylabel=r"$\overline{|\ell|}\,/\,(\beta\,|A(x) - A(y_i)|)$",
        log_y=False,
    )
    return Exhibit(
        name="fig7",
        title="Figure 7: single rows over β, and over β times their distance",
        caption=(
            "Mean exposures by the exact law. Left: each row leaves its own plateau at its own β"
            " (circles: where it was found on refitted models with sampled noise); dashed, the β of"
            " y_max. Right: divided by the distance and against β·distance they are one curve, with"
            f" one onset at {onset.constant:.5f}."
        ),
        draw=lambda: panels([left, right], columns=2, size=(5.8, 4.2)),
        tables={
            "fig7": Table(
                columns={
                    "i": np.repeat(onset.rows + 1, len(betas)),
                    "distance": np.repeat(onset.distance, len(betas)),
                    "beta": np.tile(betas, len(labels)),
                    "mean_exposure_over_beta": np.concatenate(curves),
                }
            ),
            "fig7-onset": Table(
                columns={
                    "i": onset.rows + 1,
                    "distance": onset.distance,
                    "beta_exact": onset.critical,
                    "beta_times_distance_exact": np.full(len(labels), onset.constant),
                    "beta_times_distance_sampled": np.array([root.value for root in onset.sampled]),
                    "standard_error": np.array([root.error for root in onset.sampled]),
                }
            ),
        },
        errata=(_ERRATUM,),
    )


def _at(x: FloatArray, y: FloatArray, point: float) -> float:
    return float(np.interp(math.log(point), np.log(x), y))


def _collapsed(
    betas: FloatArray,
    curves: list[FloatArray],
    distance: FloatArray,
    colours: FloatArray,
    window: tuple[float, float],
) -> list[Curve]:
    """Return some points of every row's curve, divided by its distance; none coincide."""
    step = 2 * len(curves)
    points = []
    for index, (curve, apart, colour) in enumerate(zip(curves, distance, colours, strict=True)):
        t = betas * apart
        inside = np.flatnonzero((t >= window[0]) & (t <= window[1]))[2 * index :: step]
        points.append(
            Curve(
                x=t[inside],
                y=curve[inside] / apart,
                colour=float(colour),
                style="",
                marker="o",
            )
        )
    return points
