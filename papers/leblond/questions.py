"""What the paper leaves open (Section 7): how the transition depends on d, and on Λ.

As d → ∞ at t = x·d the loss over t goes to (√(1 + x²) − 1)/x, so that a row leaves its first
plateau at x = 2τ/(1 − τ²) and reaches its second at the same with 1 − τ for τ.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from expost.noise.transition import transition
from expost.types import FloatArray, IntArray
from papers.common.claims import quote
from papers.common.exhibits import Exhibit, Table
from papers.common.figures import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    Curve,
    CurvesDisplay,
    panels,
)
from papers.datasets import Dataset
from papers.leblond.peak import arithmetic_peak, geometric_peak
from papers.leblond.setting import (
    SIX,
    TOLERANCE,
    TWO,
    Setting,
    encoded_rows,
    normalised_rows,
)

__all__ = [
    "Dimensions",
    "Regularizations",
    "dimension_exhibit",
    "measure_dimensions",
    "measure_regularizations",
    "regularization_exhibit",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Dimensions:
    """The transition in t for each d, and in ε on Adult with more and more columns.

    ``leaves``, ``arrives``, ``geometric``, ``arithmetic``  (k,) in t = β·distance.
    ``names``, ``widths``, ``low``, ``high``                of Adult.
    """

    dimensions: IntArray
    leaves: FloatArray
    arrives: FloatArray
    geometric: FloatArray
    arithmetic: FloatArray
    names: tuple[str, ...]
    widths: IntArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Regularizations:
    """low and high on Adult, and the largest error of the worst case, over Λ: (k,) each.

    ``flattest``: the least eigenvalue of the loss's Hessian at the smallest Λ. Keyed by the number
    of columns.
    """

    regularizations: FloatArray
    low: dict[int, FloatArray]
    high: dict[int, FloatArray]
    worst_case_error: dict[int, FloatArray]
    flattest: dict[int, float]


def measure_dimensions(adult: Dataset, dimensions: Sequence[int]) -> Dimensions:
    """Measure the transition for each d by the exact law, then on Adult at Λ = 1."""
    transitions = [
        transition(noise="laplace", dimension=d, tolerance=TOLERANCE) for d in dimensions
    ]
    tables = [
        (", ".join(SIX[:count]), normalised_rows(adult, SIX[:count])) for count in range(1, 7)
    ]
    tables.append(("all columns, encoded", encoded_rows(adult)))
    sweeps = [Setting.of(X, y, exact=False).sweep() for _, (X, y) in tables]
    return Dimensions(
        dimensions=np.array(dimensions, dtype=np.int64),
        leaves=np.array([exact.leaves for exact in transitions]),
        arrives=np.array([exact.arrives for exact in transitions]),
        geometric=np.array([geometric_peak(d) for d in dimensions]),
        arithmetic=np.array([arithmetic_peak(d) for d in dimensions]),
        names=tuple(name for name, _ in tables),
        widths=np.array([X.shape[1] for _, (X, _) in tables], dtype=np.int64),
        low=np.array([sweep.low for sweep in sweeps]),
        high=np.array([sweep.high for sweep in sweeps]),
    )


def measure_regularizations(adult: Dataset, regularizations: Sequence[float]) -> Regularizations:
    """low, high and the error of the worst case for every Λ, on two and on six columns."""
    low, high, error, flattest = {}, {}, {}, {}
    for columns in (TWO, SIX):
        X, y = normalised_rows(adult, columns)
        settings = [
            Setting.of(X, y, regularization=value, exact=False) for value in regularizations
        ]
        sweeps = [setting.sweep() for setting in settings]
        width = len(columns)
        low[width] = np.array([sweep.low for sweep in sweeps])
        high[width] = np.array([sweep.high for sweep in sweeps])
        error[width] = np.array([float(setting.worst_case_error.max()) for setting in settings])
        flattest[width] = settings[0].flattest
    return Regularizations(
        regularizations=np.array(regularizations),
        low=low,
        high=high,
        worst_case_error=error,
        flattest=flattest,
    )


def dimension_exhibit(dimensions: Dimensions) -> Exhibit:
    """Return the transition over d."""
    d = dimensions.dimensions.astype(np.float64)
    several = d > 1
    limits = [2 * tau / (1 - tau * tau) for tau in (TOLERANCE, 1 - TOLERANCE)]
    lines = (
        ("second plateau reached", dimensions.arrives, ORANGE, "-", "s"),
        ("first plateau left", dimensions.leaves, BLUE, "-", "o"),
        ("coverage peak, geometric", dimensions.geometric, GREEN, "-.", ""),
        ("coverage peak, arithmetic", dimensions.arithmetic, PURPLE, ":", ""),
    )
    single = (("d = 1, E[ℓ]/t instead", (dimensions.leaves, dimensions.arrives)),)
    left = CurvesDisplay(
        curves=(
            *(
                Curve(x=d[several], y=y[several], label=label, colour=colour, style=style, marker=m)
                for label, y, colour, style, m in lines
            ),
            *(
                Curve(
                    x=d[several],
                    y=limit * d[several],
                    colour=GREY,
                    style=(0, (1, 3)),
                    width=1.2,
                    label=f"limits, {limits[0]:.3g} d and {limits[1]:.3g} d"
                    if index == 0
                    else None,
                )
                for index, limit in enumerate(limits)
            ),
            *(
                Curve(
                    x=np.repeat(d[~several], 2),
                    y=np.concatenate([y[~several] for y in pair]),
                    label=label,
                    colour=GREY,
                    style="",
                    marker="x",
                )
                for label, pair in single
            ),
        ),
        xlabel="d",
        ylabel=r"$\beta\,|A(x) - A(y_i)|$",
        title="any data, a tenth off each plateau",
    )
    widths = dimensions.widths.astype(np.float64)
    wide = widths > 1
    right = CurvesDisplay(
        curves=(
            Curve(
                x=widths[wide],
                y=dimensions.high[wide],
                label="high: half of the rows arrived",
                colour=ORANGE,
                marker="s",
            ),
            Curve(
                x=widths[wide],
                y=dimensions.low[wide],
                label="low: all rows on the first plateau",
                colour=BLUE,
                marker="o",
            ),
            Curve(
                x=np.repeat(widths[~wide], 2),
                y=np.concatenate([dimensions.low[~wide], dimensions.high[~wide]]),
                label="d = 1, E[ℓ]/t instead",
                colour=GREY,
                style="",
                marker="x",
            ),
        ),
        xlabel="d, columns after encoding",
        ylabel=r"$\epsilon$",
        title=r"Adult, $\Lambda$ = 1",
    )
    return Exhibit(
        name="dimension",
        title="Left open: how the transition depends on d",
        caption=_dimension_caption(dimensions),
        draw=lambda: panels([left, right], columns=2, size=(5.6, 4.4)),
        tables={
            "dimension": Table(
                columns={
                    "d": dimensions.dimensions,
                    "t_leaves": dimensions.leaves,
                    "t_arrives": dimensions.arrives,
                    "t_peak_geometric": dimensions.geometric,
                    "t_peak_arithmetic": dimensions.arithmetic,
                }
            ),
            "dimension-adult": Table(
                columns={
                    "columns": dimensions.names,
                    "d": dimensions.widths,
                    "epsilon_low": dimensions.low,
                    "epsilon_high": dimensions.high,
                }
            ),
        },
    )


def _dimension_caption(dimensions: Dimensions) -> str:
    last, ratio = int(dimensions.dimensions[-1]), dimensions.geometric / dimensions.leaves
    second = int(np.flatnonzero(dimensions.dimensions >= 2)[0])
    return (
        "Left: β·distance at which a row leaves its first plateau and reaches its second, for any"
        f" data; both end up proportional to d. At d = {last} they are"
        f" {quote(dimensions.leaves[-1])} and {quote(dimensions.arrives[-1])}. The coverage peak is"
        f" no constant multiple of the onset: from {ratio[second]:.2f} of it at d ="
        f" {dimensions.dimensions[second]} to {ratio[-1]:.2f} at d = {last}. d = 1 has no"
        " transition in exposures; there the mean loss takes their place. Right: low and high on"
        " Adult with one to six numeric columns, and with all columns encoded:"
        f" {quote(dimensions.low[1])} … {quote(dimensions.high[1])} at d = {dimensions.widths[1]},"
        f" {quote(dimensions.low[-1])} … {quote(dimensions.high[-1])} at d ="
        f" {dimensions.widths[-1]}."
    )


def regularization_exhibit(penalties: Regularizations) -> Exhibit:
    """Return the transition over Λ."""
    x = penalties.regularizations
    styles = {2: ("-", "o"), 6: ("--", "s")}
    left = CurvesDisplay(
        curves=tuple(
            Curve(
                x=x,
                y=values[width],
                label=f"{name}, {width} columns",
                colour=colour,
                style=styles[width][0],
                marker=styles[width][1],
            )
            for name, values, colour in (
                ("high", penalties.high, ORANGE),
                ("low", penalties.low, BLUE),
            )
            for width in sorted(values, reverse=True)
        ),
        xlabel=r"$\Lambda$",
        ylabel=r"$\epsilon$",
        title="where the transition begins and ends",
    )
    right = CurvesDisplay(
        curves=tuple(
            Curve(
                x=x,
                y=error,
                label=f"{width} columns",
                colour=GREEN,
                style=styles[width][0],
                marker=styles[width][1],
            )
            for width, error in sorted(penalties.worst_case_error.items(), reverse=True)
        ),
        xlabel=r"$\Lambda$",
        ylabel=r"$\max\,|A_{wc} - A(y)|\,/\,|A(y) - A(x)|$",
        title="error of the paper's worst-case points",
    )
    widths = sorted(penalties.low)
    return Exhibit(
        name="regularization",
        title="Left open: how the transition depends on Λ",
        caption=_regularization_caption(penalties),
        draw=lambda: panels([left, right], columns=2, size=(5.4, 4.2)),
        tables={
            "regularization": Table(
                columns={
                    "columns": np.repeat(widths, len(x)),
                    "regularization": np.tile(x, len(widths)),
                    "epsilon_low": np.concatenate([penalties.low[width] for width in widths]),
                    "epsilon_high": np.concatenate([penalties.high[width] for width in widths]),
                    "worst_case_error": np.concatenate(
                        [penalties.worst_case_error[width] for width in widths]
                    ),
                }
            )
        },
    )


def _regularization_caption(penalties: Regularizations) -> str:
    ends = [
        f"{quote(penalties.low[width][index])} … {quote(penalties.high[width][index])}"
        for width in (2, 6)
        for index in (-1, 0)
    ]
    largest, smallest = (quote(penalties.regularizations[index]) for index in (-1, 0))
    return (
        "Adult, training split. The noise is made for a worst case of 2/(nΛ), which grows as Λ"
        " falls; but once Λ is below the curvature of the loss, real rows move the model by less,"
        f" so that the range shifts to larger ε, at last like 1/Λ. Two columns: {ends[0]} at Λ ="
        f" {largest}, {ends[1]} at Λ = {smallest}; six columns: {ends[2]} and {ends[3]}. A row that"
        " pulls along a flat direction of the loss does not follow: the least curvature at Λ ="
        f" {smallest} is {quote(penalties.flattest[2])} with two columns,"
        f" {quote(penalties.flattest[6])} with six. The paper's worst-case points, which take the"
        f" Hessian for ΛI, err by {quote(penalties.worst_case_error[2][-1])} of the distance at Λ ="
        f" {largest} (two columns), and by {quote(penalties.worst_case_error[2][0])} times it at Λ"
        f" = {smallest}."
    )
