"""Redberg & Wang Fig. 2: what it costs to regularize more than Theorem 5 asks for.

The synthetic data of Section 4.1 is made here too:

    x, θ ~ N(0, I_d), rows divided by their norm, Y = Xθ rescaled to [0, 1].

For classification a row is +1 where its Y is at least ½. λ-inflation c: λ = c·2β/ε₁ with β = ¼.
The star is the λ that Algorithm 2 needs, 2σ₃F⁻¹(1−ρ/2) over that least one; the paper does not give
the ε₃ behind its stars: here ε₃ = ε₁/2, as in its Figure 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from expost.glm import Objective
from expost.losses import Logistic
from expost.mechanisms import ObjectivePerturbation
from expost.mechanisms.publishing import PublishingBudget
from expost.mechanisms.sampling import perturbed_minimisers
from expost.types import FloatArray
from papers.common.claims import Check, Claim, quote
from papers.common.exhibits import Exhibit, Table
from papers.common.figures import Curve, CurvesDisplay, panels

__all__ = [
    "LEAST",
    "Inflation",
    "Synthetic",
    "inflation_claim",
    "inflation_exhibit",
    "measure_inflation",
]

_EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_FACTORS = np.geomspace(1.0, 1000.0, 13)
_DELTA = _RHO = 1e-6
# ε₂ and ε₃ over ε₁ in the paper's Figure 3, 0.2 / 0.7 / 0.1.
_GRADIENT, _HESSIAN = 3.5, 0.5
# As little Λ as there is: Theorem 5 then sets λ.
LEAST = 1e-100
# "Roughly constant": a change of the 0-1 loss by at most this.
_ROUGHLY = 0.05
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10)


@dataclass(frozen=True, kw_only=True, eq=False)
class Synthetic:
    """The data of Section 4.1: X (n, d) of unit rows, ``response`` Y in [0, 1], and fresh rows.

    The rescaling of Y is that of the first n rows; fresh rows may pass its ends a little.
    """

    X: FloatArray
    response: FloatArray
    fresh: FloatArray
    fresh_response: FloatArray

    @classmethod
    def draw(cls, rng: np.random.Generator, rows: int, columns: int) -> "Synthetic":
        """``rows`` rows to train on and as many fresh ones."""
        X = rng.standard_normal((2 * rows, columns))
        # A hair less than 1, so that no row is longer.
        X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-14)
        Y = X @ rng.standard_normal(columns)
        low, high = Y[:rows].min(), Y[:rows].max()
        Y = (Y - low) / (high - low)
        return cls(X=X[:rows], response=Y[:rows], fresh=X[rows:], fresh_response=Y[rows:])

    @property
    def y(self) -> FloatArray:
        """(n,) ±1."""
        return _sides(self.response)

    @property
    def fresh_y(self) -> FloatArray:
        """(n,) ±1 of the fresh rows."""
        return _sides(self.fresh_response)


@dataclass(frozen=True, kw_only=True, eq=False)
class Inflation:
    """Means over releases for each ε₁ and c, (e, k) each; ``star`` (e,) the c of Algorithm 2.

    ``factors`` (e, k) ends with the star. ``wrong`` is the 0-1 loss on the training rows,
    ``wrong_error`` its standard error over releases.
    """

    epsilons: FloatArray
    least: FloatArray
    star: FloatArray
    factors: FloatArray
    wrong: FloatArray
    wrong_error: FloatArray
    fresh_wrong: FloatArray
    log_loss: FloatArray
    fresh_log_loss: FloatArray
    rows: int
    columns: int
    releases: int


def measure_inflation(
    data: Synthetic,
    releases: int,
    seed: np.random.SeedSequence,
    epsilons: Sequence[float] = _EPSILONS,
) -> Inflation:
    """Measure ``releases`` models for each ε₁ and c; the noises of one ε₁ serve all its c."""
    rng = np.random.default_rng(seed)
    rows, columns = data.X.shape
    least, star, factors, figures = [], [], [], []
    for epsilon in epsilons:
        mechanism = ObjectivePerturbation(
            epsilon=epsilon,
            delta=_DELTA,
            calibration="published",
            loss=Logistic(),
            regularization=LEAST,
            rows=rows,
            dimension=columns,
        )
        budget = PublishingBudget(
            epsilon_gradient=_GRADIENT * epsilon,
            epsilon_hessian=_HESSIAN * epsilon,
            delta=_DELTA,
            failure_probability=_RHO,
        )
        least.append(mechanism.penalty_sum)
        star.append(budget.penalty(mechanism.loss, rows, columns) / mechanism.penalty_sum)
        factors.append(np.append(_FACTORS, star[-1]))
        noise = mechanism.law.sample(releases, rng)
        figures.append([_scores(data, c * mechanism.penalty_sum, noise) for c in factors[-1]])
    wrong, error, fresh, loss, fresh_loss = np.moveaxis(np.array(figures), -1, 0)
    return Inflation(
        epsilons=np.array(epsilons),
        least=np.array(least),
        star=np.array(star),
        factors=np.array(factors),
        wrong=wrong,
        wrong_error=error,
        fresh_wrong=fresh,
        log_loss=loss,
        fresh_log_loss=fresh_loss,
        rows=rows,
        columns=columns,
        releases=releases,
    )


def _scores(data: Synthetic, penalty: float, noise: FloatArray) -> tuple[float, ...]:
    """Mean 0-1 loss, its standard error, that of fresh rows, and both mean logistic losses."""
    rows, columns = data.X.shape
    loss = Logistic()
    problem = Objective.of(X=data.X, y=data.y, loss=loss, penalty=np.full(columns, penalty / rows))
    models = perturbed_minimisers(problem, noise / rows)
    ours, fresh = models @ data.X.T, models @ data.fresh.T
    each = np.mean(ours * data.y <= 0, axis=1)
    return (
        float(each.mean()),
        float(each.std(ddof=1) / np.sqrt(len(each))),
        float(np.mean(fresh * data.fresh_y <= 0)),
        float(np.mean(loss.value(ours, data.y))),
        float(np.mean(loss.value(fresh, data.fresh_y))),
    )


def _sides(response: FloatArray) -> FloatArray:
    return np.where(response >= 0.5, 1.0, -1.0)


def inflation_exhibit(inflation: Inflation) -> Exhibit:
    """R&W Fig. 2, and what the 0-1 loss does not show."""
    left = CurvesDisplay(
        curves=_curves(inflation, inflation.wrong, inflation.wrong_error),
        xlabel=r"$\lambda$-inflation $c$",
        ylabel="0-1 loss, training rows",
        log_y=False,
        limits_y=(0.0, 0.52),
    )
    right = CurvesDisplay(
        curves=_curves(inflation, inflation.log_loss),
        xlabel=r"$\lambda$-inflation $c$",
        ylabel="mean logistic loss, training rows",
        legend_title=r"$\epsilon_1$",
    )

    def draw() -> Any:
        figure = panels([left, right], columns=2, size=(5.4, 4.2))
        axis = figure.axes[1]
        axis.set_yticks(_TICKS, labels=[f"{tick:g}" for tick in _TICKS])
        axis.minorticks_off()
        return figure

    spread = [float(values.max() - values.min()) for values in inflation.wrong]
    star = ", ".join(f"{value:.0f}" for value in inflation.star)
    return Exhibit(
        name="fig2",
        title="Figure 2: 0-1 loss where λ is larger than Theorem 5 asks for",
        caption=(
            f"Section 4.1's synthetic data, n = {inflation.rows:,}, d = {inflation.columns},"
            f" labelled by whether Y is at least ½; means over {inflation.releases} releases, bands"
            " of two standard errors. Stars: what Algorithm 2 needs at δ = ρ = 10⁻⁶ with ε₃ = ε₁/2"
            f" (the paper does not say which ε₃), c = {star}. The 0-1 loss moves by at most"
            f" {max(spread):.3f} over a thousandfold c: as λ grows, θ shrinks towards −(∇L(0) +"
            " b)/λ, whose direction, and so its 0-1 loss, no longer depends on λ. Its predicted"
            " probabilities do (right): all go to ½, a logistic loss of log 2; where ε₁ is small"
            " that is a gain."
        ),
        draw=draw,
        tables={"fig2": _table(inflation)},
    )


def _curves(
    inflation: Inflation, values: FloatArray, error: FloatArray | None = None
) -> tuple[Curve, ...]:
    """Return a curve for each ε₁, named where there is no band, and its star."""
    curves = []
    for index, epsilon in enumerate(inflation.epsilons):
        colour = index / max(len(inflation.epsilons) - 1, 1)
        order = np.argsort(inflation.factors[index], kind="stable")
        curves += [
            Curve(
                x=inflation.factors[index][order],
                y=values[index][order],
                label=f"{epsilon:g}" if error is None else None,
                colour=colour,
                spread=None if error is None else 2 * error[index][order],
            ),
            Curve(
                x=inflation.factors[index][-1:],
                y=values[index][-1:],
                colour=colour,
                style="",
                marker="*",
                size=14.0,
            ),
        ]
    return tuple(curves)


def _table(inflation: Inflation) -> Table:
    count = inflation.factors.shape[1]
    return Table(
        columns={
            "epsilon_1": np.repeat(inflation.epsilons, count),
            "least_lambda": np.repeat(inflation.least, count),
            "inflation": inflation.factors.ravel(),
            "is_star": np.tile(np.arange(count) == count - 1, len(inflation.epsilons)).astype(
                np.int64
            ),
            "zero_one_loss": inflation.wrong.ravel(),
            "standard_error": inflation.wrong_error.ravel(),
            "zero_one_loss_fresh": inflation.fresh_wrong.ravel(),
            "logistic_loss": inflation.log_loss.ravel(),
            "logistic_loss_fresh": inflation.fresh_log_loss.ravel(),
        }
    )


def inflation_claim(inflation: Inflation) -> Claim:
    """Check that the 0-1 loss remains roughly constant across λ."""
    checks = []
    for where, values in (("training", inflation.wrong), ("fresh", inflation.fresh_wrong)):
        checks += [
            Check(
                what=f"largest change of the 0-1 loss over c = 1 … 1000 at any ε₁, {where} rows",
                value=float(np.max(values.max(axis=1) - values.min(axis=1))),
                relation="<=",
                bound=_ROUGHLY,
            ),
            Check(
                what=f"largest rise from c = 1 to the star at any ε₁, {where} rows",
                value=float(np.max(values[:, -1] - values[:, 0])),
                relation="<=",
                bound=_ROUGHLY,
            ),
        ]
    worst = int(np.argmax(inflation.wrong[:, -1] - inflation.wrong[:, 0]))
    before, after = float(inflation.wrong[worst, 0]), float(inflation.wrong[worst, -1])
    return Claim(
        key="f",
        says=(
            "The 0-1 loss of private logistic regression remains roughly constant across scales of"
            " λ, up to the λ that Algorithm 2 needs (the star) and beyond."
        ),
        where="Section 4.1, Fig. 2",
        outcome=(
            f"From c = 1 to the star it changes most at ε₁ = {inflation.epsilons[worst]:g}, from"
            f" {quote(before)} to {quote(after)}: little in itself, but a rise by"
            f" {100 * (after / before - 1):.0f} %. At ε₁ = {inflation.epsilons[0]:g} there is"
            f" little to lose: it is {quote(inflation.wrong[0, 0])} from the start. What does"
            " change is how certain the model is: the mean logistic loss at ε₁ ="
            f" {inflation.epsilons[worst]:g} goes from {quote(inflation.log_loss[worst, 0])} to"
            f" {quote(inflation.log_loss[worst, -1])}."
        ),
        checks=tuple(checks),
        figures=("fig2",),
    )
