"""Redberg & Wang Fig. 3: true and published losses; also of linear regression, and Corollary 7.

    data-independent   ε₁ = 1, all for θ.
    data-dependent     ε₁ = 0.2 for θ, ε₂ = 0.7 for the gradient, ε₃ = 0.1 for the Hessian.

δ = ρ = 10⁻⁶; σ and λ as Theorem 5 asks (σ² where it prints σ), λ raised to what Algorithm 2 asks
where something is released. Published is Algorithm 2 as it stands in the paper, with the absolute
values that its gradient term needs, and for comparison the bound of :mod:`expost.mechanisms.bounds`
and that of the data-independent kind for the same θ. Losses are those of each row's removal.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from expost.accounting import gaussian_scale
from expost.glm import Objective
from expost.losses import Logistic, Loss
from expost.mechanisms import ObjectivePerturbation, Tangent
from expost.mechanisms.bounds import ObjectiveBound
from expost.mechanisms.publishing import (
    NoisyTangent,
    PublishingBudget,
    TangentMechanism,
    regularization_for_publishing,
)
from expost.noise import goe_largest_eigenvalue_quantile
from expost.types import FloatArray
from papers.datasets import Dataset
from papers.redberg_wang.inflation import LEAST

__all__ = [
    "DELTA",
    "RHO",
    "SHARES",
    "SPLIT",
    "WHOLE",
    "Corollary",
    "Release",
    "Reports",
    "credit_rows",
    "measure_corollary",
    "measure_release",
    "measure_reports",
    "measure_stretch",
    "printed_bound",
]

DELTA = RHO = 1e-6
WHOLE = 1.0
SPLIT = (0.2, 0.7, 0.1)
# Of the rows, by which a release is summed up.
SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
# All quantities; the nominal SEX, EDUCATION and MARRIAGE and the ID are not among them.
QUANTITIES = (
    *("LIMIT_BAL", "AGE"),
    *(f"PAY_{month}" for month in (0, 2, 3, 4, 5, 6)),
    *(f"BILL_AMT{month}" for month in range(1, 7)),
    *(f"PAY_AMT{month}" for month in range(1, 7)),
)
# Of the gradient's release where Thm 10.3 is put to the test.
_LITTLE = 0.01


def credit_rows(credit: Dataset) -> tuple[FloatArray, FloatArray]:
    """X (30000, 21) and y (±1): twenty quantities, standardised, and a 1; rows divided by norm.

    The paper has d = 21 and does not say which, nor how it normalises. Rows of its synthetic data
    are divided by their own norm.
    """
    X = credit.numeric(QUANTITIES)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    X = np.column_stack([X, np.ones(len(X))])
    # A hair less than 1, so that no row is longer.
    return X / (np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-14)), credit.labels()


@dataclass(frozen=True, kw_only=True, eq=False)
class Release:
    """One θ, every row's true loss and what is published of it, (n,) each.

    ``published``  Algorithm 2's ε̄₁, as printed.        ``ours``  the bound of expost.
    ``plain``      the data-independent ε̄₁ for the same θ.
    ``gradient_cost``, ``hessian_cost``  ε₂(z) and ε₃(z) of Theorem 10.2.
    ``allowed``    12·ε₁ + ∣f′∣∥x∥√(2 log(2/ρ))/σ₂ of Theorem 10.3; ∞ where nothing was released.
    ``steeper``    the share of rows whose ∥∇ℓ∥ at θ passes the L that the noise is made for.
    ``wrong``, ``value``  0-1 loss (squared loss: NaN) and mean loss of θ on its rows.
    """

    mechanism: ObjectivePerturbation
    theta: FloatArray
    true: FloatArray
    published: FloatArray
    ours: FloatArray
    plain: FloatArray
    gradient_cost: FloatArray
    hessian_cost: FloatArray
    allowed: FloatArray
    steeper: float
    wrong: float
    value: float

    @property
    def total(self) -> FloatArray:
        """ε̄₁ + ε₂ + ε₃."""
        return self.published + self.gradient_cost + self.hessian_cost

    @property
    def ratio(self) -> FloatArray:
        """(n,) published over true; ∞ where the terms of the loss cancel altogether."""
        return _over(self.published, self.true)

    @property
    def ratio_ours(self) -> FloatArray:
        """The same of the bound of expost."""
        return _over(self.ours, self.true)

    @property
    def ratio_plain(self) -> FloatArray:
        """The same of the data-independent bound for the same θ."""
        return _over(self.plain, self.true)


# What is summed up of each release.
_FIGURES = ("true", "published", "ours", "plain", "total", "ratio", "ratio_ours", "ratio_plain")


@dataclass(frozen=True, kw_only=True, eq=False)
class Reports:
    """Both kinds on one data set.

    ``independent``, ``dependent``  the first release of each kind, row by row.
    ``quantiles``   {(kind, figure): (releases, len(SHARES))} of all releases.
    ``above``       {kind: rows whose true loss passes the published bound, in all releases}.
    ``stretched``   the largest published / allowed of Theorem 10.3 in all data-dependent releases.
    ``wrong``, ``value``  {kind: (releases,)}; ``rarer`` is the share of the rarer label, NaN if
                    labels are numbers.
    """

    name: str
    rows: int
    columns: int
    releases: int
    independent: Release
    dependent: Release
    quantiles: dict[tuple[str, str], FloatArray]
    above: dict[str, int]
    stretched: float
    rarer: float
    wrong: dict[str, FloatArray]
    value: dict[str, FloatArray]

    def typical(self, kind: str, figure: str, share: float) -> float:
        """Return the quantile at ``share`` of the rows, its geometric mean over the releases."""
        column = self.quantiles[kind, figure][:, SHARES.index(share)]
        return float(np.exp(np.mean(np.log(column))))


@dataclass(frozen=True, kw_only=True)
class Corollary:
    """The largest difference of Corollary 7 from log densities, over all rows of one release."""

    name: str
    rows: int
    difference: float
    largest: float


def measure_reports(
    name: str,
    X: FloatArray,
    y: FloatArray,
    loss: Loss,
    releases: int,
    seed: np.random.SeedSequence,
) -> Reports:
    """Measure ``releases`` models of each kind, with the report of each."""
    rng = np.random.default_rng(seed)
    budget = budget_of(*SPLIT[1:])
    by_kind: dict[str, list[Release]] = {"independent": [], "dependent": []}
    summed: dict[tuple[str, str], list[FloatArray]] = {}
    above, stretched = dict.fromkeys(by_kind, 0), 0.0
    scores: dict[str, list[tuple[float, float]]] = {kind: [] for kind in by_kind}
    for number in range(releases):
        for kind, epsilon, spent in (
            ("independent", WHOLE, None),
            ("dependent", SPLIT[0], budget),
        ):
            release = measure_release(X, y, loss, epsilon, spent, rng)
            if number == 0:
                by_kind[kind].append(release)
            for figure in _FIGURES:
                values = np.quantile(getattr(release, figure), SHARES)
                summed.setdefault((kind, figure), []).append(values)
            above[kind] += int(np.count_nonzero(release.true > release.published))
            stretched = max(stretched, float(np.max(release.published / release.allowed)))
            scores[kind].append((release.wrong, release.value))
    return Reports(
        name=name,
        rows=len(X),
        columns=X.shape[1],
        releases=releases,
        independent=by_kind["independent"][0],
        dependent=by_kind["dependent"][0],
        quantiles={key: np.array(values) for key, values in summed.items()},
        above=above,
        stretched=stretched,
        rarer=_rarer(y) if loss.is_classification else math.nan,
        wrong={kind: np.array([wrong for wrong, _ in pairs]) for kind, pairs in scores.items()},
        value={kind: np.array([value for _, value in pairs]) for kind, pairs in scores.items()},
    )


def measure_release(
    X: FloatArray,
    y: FloatArray,
    loss: Loss,
    epsilon: float,
    budget: PublishingBudget | None,
    rng: np.random.Generator,
    *,
    regularization: float | None = None,
    calibration: str = "published",
) -> Release:
    """Release θ, compute all rows' losses, and publish them; ``budget`` for a data-dependent one.

    ``regularization``  Λ; what Theorem 5 and Algorithm 2 ask for if None.
    """
    constants: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": DELTA,
        "noise": "gaussian",
        "calibration": calibration,
        "loss": loss,
        "rows": len(X),
        "dimension": X.shape[1],
    }
    if regularization is None:
        regularization = (
            LEAST if budget is None else regularization_for_publishing(budget, **constants)
        )
    objective = ObjectivePerturbation(regularization=regularization, **constants)
    problem = Objective.of(
        X=X, y=y, loss=loss, penalty=np.full(X.shape[1], objective.total_regularization)
    )
    theta = objective.release(problem, rng)
    tangent = Tangent.at(objective, problem, theta)
    true = np.abs(tangent.row_losses().loss)
    plain = printed_bound(objective, theta, X, y)
    slope, curvature = _steepness(objective, theta, X, y)
    mechanism = released = None
    published, allowed = plain, np.full(len(X), np.inf)
    first = second = np.zeros(len(X))
    if budget is not None:
        mechanism = TangentMechanism(budget=budget, mechanism=objective, theta=theta)
        released = mechanism.release(tangent, rng)
        published = printed_bound(objective, theta, X, y, mechanism, released)
        scale = mechanism.gradient_scale
        first = _cost(slope / scale)
        second = _cost(curvature / (math.sqrt(2) * mechanism.hessian_scale))
        allowed = 12 * true + slope / scale * math.sqrt(2 * math.log(2 / RHO))
    bound = ObjectiveBound(
        mechanism=objective, theta=theta, failure=RHO, tangent=mechanism, released=released
    )
    predictor = X @ theta
    return Release(
        mechanism=objective,
        theta=theta,
        true=true,
        published=published,
        ours=bound.exposure(X, y),
        plain=plain,
        gradient_cost=first,
        hessian_cost=second,
        allowed=allowed,
        steeper=float(np.mean(slope > objective.slope_bound)),
        wrong=float(np.mean(y * predictor <= 0)) if loss.is_classification else math.nan,
        value=float(np.mean(loss.value(predictor, y))),
    )


def measure_stretch(X: FloatArray, y: FloatArray, seed: np.random.SeedSequence) -> Release:
    """Measure a release whose gradient is published with little ε, for Theorem 10.3.

    λ ≥ 2·max(σ₂, σ₃)·F⁻¹(1−ρ/2): the condition of the theorem under either reading.
    """
    loss, budget = Logistic(), budget_of(_LITTLE, SPLIT[2])
    rows, columns = X.shape
    quantile = goe_largest_eigenvalue_quantile(RHO / 2, columns, upper=True)
    scales = (
        gaussian_scale(_LITTLE, DELTA, loss.lipschitz(1.0)),
        budget.hessian_scale(loss, rows),
    )
    return measure_release(
        X,
        y,
        loss,
        SPLIT[0],
        budget,
        np.random.default_rng(seed),
        regularization=2 * max(scales) * quantile / rows,
    )


def printed_bound(
    objective: ObjectivePerturbation,
    theta: FloatArray,
    X: FloatArray,
    y: FloatArray,
    mechanism: TangentMechanism | None = None,
    released: NoisyTangent | None = None,
) -> FloatArray:
    """Return ε̄₁ of Algorithm 2, as printed but for the absolute values (erratum 6), (n,).

        ∣log(1 − f″μ̄)∣ + ∥f′x∥²/2σ² + ∣ḡ∣/σ²

    data-independent  μ̄ = ∥x∥²/λ,        ḡ = σ∥f′x∥q          with q = Φ⁻¹(1 − ρ/2)
    data-dependent    μ̄ = 3/2·xᵀĤ⁻¹x,   ḡ = min(∣f′·ĝᵀx∣ + σ₂∥f′x∥q, σ∥f′x∥q)

    ∞ where f″μ̄ ≥ 1.
    """
    slope, curvature = objective.loss.derivatives(X @ theta, y)
    square = np.einsum("ij,ij->i", X, X)
    length, quantile = np.abs(slope) * np.sqrt(square), -float(ndtri(RHO / 2))
    scale = objective.resolution
    across = scale * length * quantile
    leverage = square / objective.penalty_sum
    if mechanism is not None and released is not None:
        inner = np.abs(slope * (X @ released.gradient))
        across = np.minimum(across, inner + mechanism.gradient_scale * length * quantile)
        leverage = 1.5 * np.einsum("ij,ij->i", X, np.linalg.solve(released.hessian, X.T).T)
    moved = curvature * leverage
    with np.errstate(divide="ignore", invalid="ignore"):
        volume = np.where(moved < 1, np.abs(np.log1p(-moved)), np.inf)
    bound: FloatArray = volume + length**2 / (2 * scale**2) + across / scale**2
    return bound


def measure_corollary(
    name: str, X: FloatArray, y: FloatArray, loss: Loss, seed: np.random.SeedSequence
) -> Corollary:
    """Cor. 7 against log p(θ ∣ D) − log p(θ ∣ D₋ᵢ), the sums made again without each row."""
    rng = np.random.default_rng(seed)
    objective = ObjectivePerturbation(
        epsilon=WHOLE,
        delta=DELTA,
        calibration="published",
        loss=loss,
        regularization=LEAST,
        rows=len(X),
        dimension=X.shape[1],
    )
    problem = Objective.of(
        X=X, y=y, loss=loss, penalty=np.full(X.shape[1], objective.total_regularization)
    )
    theta = objective.release(problem, rng)
    formula = Tangent.at(objective, problem, theta).row_losses().loss
    whole = log_density(objective, X, y, theta)
    rows = np.arange(len(X))
    losses = np.array(
        [whole - log_density(objective, X[rows != row], y[rows != row], theta) for row in rows]
    )
    return Corollary(
        name=name,
        rows=len(X),
        difference=float(np.max(np.abs(losses - formula))),
        largest=float(np.max(np.abs(formula))),
    )


def log_density(
    objective: ObjectivePerturbation, X: FloatArray, y: FloatArray, theta: FloatArray
) -> float:
    """Return log p(θ ∣ D) up to a constant: b = −∇J is normal, and its Jacobian is −∇²J."""
    slope, curvature = objective.loss.derivatives(X @ theta, y)
    gradient = slope @ X + objective.penalty_sum * theta
    hessian = (X * curvature[:, None]).T @ X + objective.penalty_sum * np.eye(len(theta))
    square = float(gradient @ gradient)
    return float(np.linalg.slogdet(hessian)[1]) - square / (2 * objective.resolution**2)


def budget_of(gradient: float, hessian: float) -> PublishingBudget:
    """Return the budget of a report with these ε of the gradient and of the Hessian."""
    return PublishingBudget(
        epsilon_gradient=gradient,
        epsilon_hessian=hessian,
        delta=DELTA,
        failure_probability=RHO,
    )


def _steepness(
    objective: ObjectivePerturbation, theta: FloatArray, X: FloatArray, y: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return ∣f′∣∥x∥ and f″∥x∥² of each row."""
    slope, curvature = objective.loss.derivatives(X @ theta, y)
    square = np.einsum("ij,ij->i", X, X)
    return np.abs(slope) * np.sqrt(square), curvature * square


def _rarer(y: FloatArray) -> float:
    positive = float(np.mean(y > 0))
    return min(positive, 1 - positive)


def _cost(separation: FloatArray) -> FloatArray:
    """μ²/2 + μ√(2 log(1/δ)) (Theorem 10.2)."""
    return separation * (separation / 2 + math.sqrt(2 * math.log(1 / DELTA)))


def _over(bound: FloatArray, true: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        ratio: FloatArray = bound / true
    return ratio
