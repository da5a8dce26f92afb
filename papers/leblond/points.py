"""Where the neighbours lie (LeBlond Figs 2–4), models around them (Fig. 8); claims d and e."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from expost.mechanisms import RowLosses
from expost.types import FloatArray, IntArray
from papers.common.claims import Check, Claim, quote
from papers.common.exhibits import Exhibit, Table
from papers.common.figures import panels
from papers.leblond.displays import HeatMapDisplay, SamplesDisplay, SphereDisplay, WorstCaseDisplay
from papers.leblond.setting import Setting

__all__ = [
    "LOG_EPSILONS",
    "MODELS",
    "ROWS",
    "Samples",
    "draw_samples",
    "farthest_row_claim",
    "heat_maps",
    "places",
    "removed_rows",
    "sample_displays",
    "samples_exhibit",
    "samples_table",
    "sphere_exhibit",
    "worst_case_claim",
    "worst_case_exhibit",
]

# The row that the paper names, which counts from 1.
_Y_MAX = 24239
# Of Figs 1 and 8.
ROWS, _NEIGHBOURS, MODELS = 100, 50, 20
LOG_EPSILONS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
# Where M lies in Fig. 4b, in units of the largest distance.
_OFF_CENTRE = 0.6


def worst_case_exhibit(setting: Setting) -> Exhibit:
    """LeBlond Fig. 2."""
    near = setting.neighbours
    shift, guess = near.shift, near.worst_case.all()
    error = setting.worst_case_error
    return Exhibit(
        name="fig2",
        title="Figure 2: worst-case points and exact ones",
        caption=(
            f"The exact minimisers without each of {setting.rows:,} rows (dots) and the paper's"
            " worst-case points (circles), as seen from A(x). Of all rows the worst case misses by"
            f" at most {error.max():.1%} of the distance. Many rows share a point: age and"
            " education-num are integers."
        ),
        draw=lambda: WorstCaseDisplay.from_neighbours(near).plot().figure_,
        tables={
            "fig2": Table(
                columns={
                    "i": np.arange(1, setting.rows + 1),
                    "exact_1": shift[:, 0],
                    "exact_2": shift[:, 1],
                    "worst_case_1": guess[:, 0],
                    "worst_case_2": guess[:, 1],
                }
            )
        },
    )


def sphere_exhibit(setting: Setting) -> Exhibit:
    """LeBlond Fig. 3, for the rows whose worst case is off farthest and relatively farthest."""
    relative = setting.worst_case_error
    rows = [int(np.argmax(relative * setting.distance)), int(np.argmax(relative))]
    displays = [SphereDisplay.from_neighbours(setting.neighbours, row) for row in rows]
    miss = r"|A_{wc}(y_i) - A(y_i)|"
    titles = [f"largest ${miss}$", rf"largest ${miss}\,/\,|A(y_i) - A(x)|$"]

    def draw() -> Any:
        figure = panels(displays, columns=2, size=(5.6, 3.8))
        for ax, row, title in zip(figure.axes, rows, titles, strict=False):
            # The paper counts its rows from 1.
            ax.set_title(f"i = {row + 1}: {title}", fontsize="small")
        return figure

    parts = [
        (row, name, *point, radius)
        for row, display in zip(rows, displays, strict=True)
        for name, point, radius in (
            ("sphere", display.sphere_centre, display.sphere_radius),
            ("ball", display.ball_centre, display.ball_radius),
            ("exact", display.shift, 0.0),
            ("worst_case", display.worst_case, 0.0),
        )
    ]
    rows_of, names, firsts, seconds, radii = zip(*parts, strict=True)
    return Exhibit(
        name="fig3",
        title="Figure 3: what is proved of one neighbour",
        caption=(
            "Okumura's sphere through A(x), and the ball that takes the place of the paper's"
            " half-plane (whose formula the paper does not give): by co-coercivity it holds A(y_i)"
            " and touches A_wc(y_i). Small pictures: the ball, enlarged."
        ),
        draw=draw,
        tables={
            "fig3": Table(
                columns={
                    "i": np.array(rows_of) + 1,
                    "what": names,
                    "centre_1": np.array(firsts),
                    "centre_2": np.array(seconds),
                    "radius": np.array(radii),
                }
            )
        },
    )


def heat_maps(setting: Setting) -> tuple[Exhibit, Exhibit]:
    """LeBlond Figs 4a and 4b, at ε = 1."""
    near = setting.neighbours
    reach = float(setting.distance.max())
    off = near.base + np.array([_OFF_CENTRE * reach, 0.0])
    return (
        _heat_map(
            setting,
            near.base,
            "fig4a",
            "Figure 4a: exposures for M at A(x)",
            "At ε = 1. The exposure of a row is β times the distance of its neighbour.",
        ),
        _heat_map(
            setting,
            off,
            "fig4b",
            "Figure 4b: exposures for M off the centre",
            f"At ε = 1, M lies {_OFF_CENTRE:g} of the largest distance to the right of A(x). Rows"
            " whose neighbour is as far from M as A(x) is are not exposed at all.",
        ),
    )


def _heat_map(setting: Setting, model: FloatArray, name: str, title: str, caption: str) -> Exhibit:
    near = setting.neighbours
    losses: RowLosses = setting.mechanism.row_losses(model, near)
    display = HeatMapDisplay.from_losses(near, losses, model=model)
    shift = near.shift
    return Exhibit(
        name=name,
        title=title,
        caption=caption,
        draw=lambda: display.plot().figure_,
        tables={
            name: Table(
                columns={
                    "i": np.arange(1, setting.rows + 1),
                    "exact_1": shift[:, 0],
                    "exact_2": shift[:, 1],
                    "loss": losses.loss,
                }
            )
        },
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """Models drawn for the base and for k neighbours, at e values of ε.

    ``base`` (e, m, 2), ``neighbours`` (e, k, m, 2), ``rows`` (k,) counted from 0, ``order`` (k,)
    from 0 to 1 by distance; ``worst_case_error`` only where neighbours are of output perturbation.
    """

    log_epsilons: FloatArray
    rows: IntArray
    base: FloatArray
    neighbours: FloatArray
    order: FloatArray
    worst_case_error: float = math.nan


def removed_rows() -> IntArray:
    """Return every other one of the first 100 rows."""
    return np.arange(0, ROWS, ROWS // _NEIGHBOURS, dtype=np.int64)


def places(distance: FloatArray) -> FloatArray:
    """Return the rank of each neighbour among all, from 0 for the nearest to 1."""
    ranks = np.argsort(np.argsort(distance, kind="stable"), kind="stable")
    order: FloatArray = ranks / (len(distance) - 1)
    return order


def draw_samples(X: FloatArray, y: FloatArray, seed: np.random.SeedSequence) -> Samples:
    """20 models of the first 100 rows, and 20 without every other one of them (Fig. 8)."""
    setting = Setting.of(X[:ROWS], y[:ROWS])
    near = setting.neighbours
    rows = removed_rows()
    centres = near.base + near.shift[rows]
    rng = np.random.default_rng(seed)
    unit = setting.mechanism.unit_noise
    base, around = [], []
    for power in LOG_EPSILONS:
        resolution = 1 / (setting.rate * 10.0**power)
        noise = unit.sample((1 + len(rows)) * MODELS, rng).reshape(-1, MODELS, 2)
        base.append(near.base + resolution * noise[0])
        around.append(centres[:, None] + resolution * noise[1:])
    return Samples(
        log_epsilons=np.array(LOG_EPSILONS),
        rows=rows,
        base=np.stack(base),
        neighbours=np.stack(around),
        order=places(setting.distance[rows]),
        worst_case_error=float(setting.worst_case_error.max()),
    )


def sample_displays(samples: Samples) -> list[SamplesDisplay]:
    """Return a panel for each ε."""
    return [
        SamplesDisplay(
            base=base,
            neighbours=around,
            order=samples.order,
            title=rf"$\log_{{10}}\,\epsilon$ = {power:g}",
        )
        for power, base, around in zip(
            samples.log_epsilons, samples.base, samples.neighbours, strict=True
        )
    ]


def samples_exhibit(samples: Samples) -> Exhibit:
    """LeBlond Fig. 8."""
    displays = sample_displays(samples)
    return Exhibit(
        name="fig8",
        title="Figure 8: models drawn around A(x) and around fifty neighbours",
        caption=(
            f"The first {ROWS} rows; {MODELS} models of the data itself (black crosses) and"
            f" {MODELS} without every other row (circles, one colour a row, the farthest neighbour"
            " lightest). Each panel has its own scale: at small ε nothing can be distinguished, at"
            " large ε everything. The neighbours are exact; the worst-case points would be off by"
            f" at most {samples.worst_case_error:.1%} of their distance. Figure 1 is the same for"
            " objective perturbation."
        ),
        draw=lambda: panels(displays, columns=3, size=(3.4, 3.0)),
        tables={"fig8": samples_table(samples)},
    )


def samples_table(samples: Samples) -> Table:
    """Return every model that is drawn."""
    # The base stands first, as row 0; the paper counts rows from 1.
    drawn = np.concatenate([samples.base[:, None], samples.neighbours], axis=1)
    powers, sets, models = drawn.shape[:3]
    removed = np.concatenate([[0], samples.rows + 1])
    return Table(
        columns={
            "log10_epsilon": np.repeat(samples.log_epsilons, sets * models),
            "removed_i": np.tile(np.repeat(removed, models), powers),
            "theta_1": drawn[..., 0].ravel(),
            "theta_2": drawn[..., 1].ravel(),
        },
        note="removed_i = 0: no row is removed, a model of A(x).",
    )


def farthest_row_claim(setting: Setting) -> Claim:
    """Check claim (d): y_max is i = 24239."""
    row = setting.farthest + 1
    second, first = np.partition(setting.distance, setting.rows - 2)[-2:]
    return Claim(
        key="d",
        says=f"y_max, the neighbour farthest from A(x), is that of row i = {_Y_MAX}.",
        where="Fig. 7, caption",
        outcome=(
            f"The farthest neighbour is that of row {row} (counted from 1), at a distance of"
            f" {quote(float(first))}, {first / second:.3f} times that of the next."
        ),
        checks=(
            Check(what="row with the largest distance", value=row, relation="==", bound=_Y_MAX),
        ),
        figures=("fig2", "fig7"),
    )


def worst_case_claim(train: Setting, everything: Setting) -> Claim:
    """(e) With six features the worst case is off by less than 2e-3 of the distance."""
    errors = [float(setting.worst_case_error.max()) for setting in (train, everything)]
    checks = tuple(
        Check(
            what=f"largest error of the worst case, {setting.rows:,} rows, 6 columns",
            value=error,
            relation="<",
            bound=2e-3,
        )
        for setting, error in zip((train, everything), errors, strict=True)
    )
    bound = max(
        float(np.max(setting.neighbours.error_bound / setting.distance))
        for setting in (train, everything)
    )
    return Claim(
        key="e",
        says="With six features of Adult, max |A_wc(y) − A(y)| / |A(y) − A(x)| < 2 × 10⁻³.",
        where="Section 5.1",
        outcome=(
            f"{errors[0]:.3g} on the {train.rows:,} training rows and {errors[1]:.3g} on all"
            f" {everything.rows:,} rows; the exact points are proved to {quote(bound)} of their"
            " distance. It depends on Λ, as the figure of Λ shows."
        ),
        checks=checks,
        figures=("fig2", "fig3", "regularization"),
    )
