"""Redberg & Wang Fig. 1: the losses of two separable classes where θ is turned by an angle ω.

    loss = −log(1 − f″μ) + ∥∇ℓ∥²/2σ² − ∇J·∇ℓ/σ²          (removal; R&W Cor. 7)

The paper gives n = 1000, d = 2, λ = 1 and a margin of 0.4, but neither ε nor σ. Its Theorem 5 asks
for λ = 1 at ε = ½: that ε is taken, with δ = 10⁻⁶. Tabulated too are ε = 1, and ε = ½ with the
printed formula, which is the variance, taken for σ. The margin is read as the gap between the
classes; the other reading, each class that far from the boundary, is tabulated as well.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.stats import spearmanr

from expost.glm import Objective, minimise
from expost.losses import Logistic
from expost.mechanisms import ObjectivePerturbation, Tangent
from expost.numbers import percent
from expost.types import FloatArray
from papers.common.claims import Check, Claim, quote
from papers.common.exhibits import Exhibit, Table
from papers.common.figures import panels
from papers.redberg_wang.displays import PlaneDisplay

__all__ = [
    "Rotation",
    "Terms",
    "Turned",
    "measure_rotation",
    "probability_claim",
    "removal_terms",
    "rotation_exhibit",
    "small_angles_claim",
    "wide_angles_claim",
]

_ROWS, _PENALTY, _MARGIN = 1000, 1.0, 0.4
# λ = 2·¼/ε = 1 (Theorem 5); and another ε.
_EPSILON, _LARGER, _DELTA = 0.5, 1.0, 1e-6
_ANGLES = (0, 1 / 12, 1 / 4, 1 / 2, 3 / 4, 1)
_ANGLE_NAMES = ("0", "π/12", "π/4", "π/2", "3π/4", "π")
# From here on a rank correlation counts as a rule with few exceptions.
_STRONG = 0.8
# "Astronomically low".
_ASTRONOMICAL = 1e-20


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """The three terms of every row's loss, (n,) each: determinant, square, inner product."""

    volume: FloatArray
    square: FloatArray
    inner: FloatArray

    @property
    def exposure(self) -> FloatArray:
        """(n,) the absolute value of their sum."""
        exposure: FloatArray = np.abs(self.volume + self.square + self.inner)
        return exposure

    @property
    def shares(self) -> FloatArray:
        """(3,) of the sum of all terms' sizes over all rows."""
        sizes = np.array([np.sum(np.abs(term)) for term in (self.volume, self.square, self.inner)])
        share: FloatArray = sizes / sizes.sum()
        return share


def removal_terms(tangent: Tangent, scale: float) -> Terms:
    """Return the terms of Cor. 7 for the removal of each row, under N(0, ``scale``²I)."""
    problem = tangent.problem
    slope, curvature = problem.loss.derivatives(problem.held.X @ tangent.theta, problem.held.y)
    roots = scipy.linalg.solve_triangular(tangent.curvature.factor, problem.held.X.T, lower=True)
    leverage = np.einsum("ij,ij->j", roots, roots)
    length = slope * np.linalg.norm(problem.held.X, axis=1)
    return Terms(
        volume=-np.log1p(-curvature * leverage),
        square=length**2 / (2 * scale**2),
        inner=-slope * (problem.held.X @ tangent.gradient) / scale**2,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Turned:
    """What one angle ω gives under one σ.

    ``near``   of the most exposed tenth of the rows, the share among the quarter of all rows that
               is closest to the boundary of θ_{+ω}; ``near_ranks`` the rank correlation.
    ``wrong``  the rank correlation of a row's loss with how badly θ_{+ω} predicts it.
    ``noise``  ∥∇J(θ_{+ω})∥, the length of the noise that would have made θ_{+ω}.
    """

    scale: float
    theta: FloatArray
    terms: Terms
    near: float
    near_ranks: float
    wrong: float
    errors: float
    noise: float

    @property
    def log_probability(self) -> float:
        """log₁₀ of the probability of a noise at least that long in the plane, e^(−∥b∥²/2σ²)."""
        return -(self.noise**2) / (2 * self.scale**2) / math.log(10)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rotation:
    """Fig. 1: six angles under each σ. ``other`` reads the margin the other way.

    The first σ is that of Theorem 5 at ε = ½, the second at ε = 1, the third the misprint's.
    """

    X: FloatArray
    y: FloatArray
    turned: tuple[tuple[Turned, ...], ...]
    other: tuple[tuple[Turned, ...], ...]


def measure_rotation(seed: np.random.SeedSequence) -> Rotation:
    """Draw the two classes, fit, and turn."""
    rng = np.random.default_rng(seed)
    X, y = separable_classes(_ROWS, _MARGIN / 2, rng)
    mechanism = _mechanism(_EPSILON)
    scales = (mechanism.resolution, _mechanism(_LARGER).resolution, mechanism.resolution**2)
    wider = separable_classes(_ROWS, _MARGIN, rng)
    return Rotation(
        X=X,
        y=y,
        turned=tuple(_turned(X, y, mechanism, scale) for scale in scales),
        other=tuple(_turned(*wider, mechanism, scale) for scale in scales),
    )


def separable_classes(
    rows: int, apart: float, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Uniform on the unit disc without the strip ∣x₁∣ < ``apart``; y is the sign of x₁."""
    X = np.empty((0, 2))
    while len(X) < rows:
        drawn = rng.uniform(-1.0, 1.0, size=(4 * rows, 2))
        inside = np.linalg.norm(drawn, axis=1) <= 1
        X = np.concatenate([X, drawn[inside & (np.abs(drawn[:, 0]) >= apart)]])
    return X[:rows], np.sign(X[:rows, 0])


def _mechanism(epsilon: float) -> ObjectivePerturbation:
    return ObjectivePerturbation(
        epsilon=epsilon,
        delta=_DELTA,
        calibration="published",
        loss=Logistic(),
        regularization=_PENALTY / _ROWS,
        rows=_ROWS,
        dimension=2,
    )


def _turned(
    X: FloatArray, y: FloatArray, mechanism: ObjectivePerturbation, scale: float
) -> tuple[Turned, ...]:
    problem = Objective.of(
        X=X, y=y, loss=mechanism.loss, penalty=np.full(2, mechanism.total_regularization)
    )
    base = minimise(problem).theta
    turns = []
    for part in _ANGLES:
        theta = _rotated(base, part * math.pi)
        tangent = Tangent.at(mechanism, problem, theta)
        terms = removal_terms(tangent, scale)
        predictor = X @ theta
        turns.append(
            Turned(
                scale=scale,
                theta=theta,
                terms=terms,
                near=_closest(terms.exposure, np.abs(predictor)),
                near_ranks=_ranks(terms.exposure, -np.abs(predictor)),
                wrong=_ranks(terms.exposure, mechanism.loss.value(predictor, y)),
                errors=float(np.mean(y * predictor <= 0)),
                noise=float(np.linalg.norm(tangent.gradient)),
            )
        )
    return tuple(turns)


def _rotated(theta: FloatArray, angle: float) -> FloatArray:
    """Counter-clockwise."""
    cosine, sine = math.cos(angle), math.sin(angle)
    return np.array([[cosine, -sine], [sine, cosine]]) @ theta


def _closest(exposure: FloatArray, distance: FloatArray) -> float:
    """Of the most exposed tenth, the share that is among the closest quarter."""
    most = np.argsort(-exposure, kind="stable")[: len(exposure) // 10]
    return float(np.mean(distance[most] <= np.quantile(distance, 0.25)))


def _ranks(first: FloatArray, second: FloatArray) -> float:
    return float(spearmanr(first, second).statistic)


def rotation_exhibit(rotation: Rotation) -> Exhibit:
    """R&W Fig. 1, under the σ of Theorem 5."""
    turned, _, misprinted = rotation.turned
    displays = [
        PlaneDisplay(
            X=rotation.X,
            y=rotation.y,
            exposure=turn.terms.exposure,
            theta=turn.theta,
            title=rf"$\omega$ = {name}",
        )
        for name, turn in zip(_ANGLE_NAMES, turned, strict=True)
    ]
    largest = [float(turn.terms.exposure.max()) for turn in turned]
    return Exhibit(
        name="fig1",
        title="Figure 1: losses where the model is turned by ω",
        caption=(
            f"{_ROWS:,} rows of the unit disc in two classes (circles: +1, triangles: −1) with a"
            f" gap of {_MARGIN:g} between them; logistic regression with λ = 1, turned"
            " counter-clockwise by ω. The line is its boundary, the arrow points to what it calls"
            " +1. Colour: the ex-post loss of the row's removal in nats, on a scale of its own in"
            f" each panel; the largest goes from {quote(largest[0])} at ω = 0 to"
            f" {quote(largest[-1])} at ω = π. The paper gives neither ε nor σ: λ = 1 is what"
            f" Theorem 5 asks for at ε = ½, and with δ = 10⁻⁶ its σ is {quote(turned[0].scale)}."
        ),
        draw=lambda: panels(displays, columns=3, size=(4.3, 3.5)),
        tables={"fig1": _rows_table(rotation), "fig1-terms": _terms_table(rotation)},
        errata=(
            "Theorem 5 prints σ = ξ²(8 log(2/δ) + 4ε)/ε²: that is the variance. Taken for σ it"
            f" would be {quote(misprinted[0].scale)} here instead of {quote(turned[0].scale)}.",
        ),
    )


def _rows_table(rotation: Rotation) -> Table:
    turned = rotation.turned[0]
    columns = {"x_1": rotation.X[:, 0], "x_2": rotation.X[:, 1], "y": rotation.y.astype(np.int64)}
    for part, turn in zip(_ANGLES, turned, strict=True):
        columns[f"exposure_{part * 180:.0f}_degrees"] = turn.terms.exposure
    return Table(columns=columns)


def _terms_table(rotation: Rotation) -> Table:
    lines = [
        (gap, turn, name)
        for gap, runs in ((_MARGIN, rotation.turned), (2 * _MARGIN, rotation.other))
        for run in runs
        for name, turn in zip(_ANGLE_NAMES, run, strict=True)
    ]
    shares = np.array([turn.terms.shares for _, turn, _ in lines])
    exposures = np.array([np.quantile(turn.terms.exposure, [0.5, 1.0]) for _, turn, _ in lines])
    return Table(
        columns={
            "gap": np.array([gap for gap, _, _ in lines]),
            "sigma": np.array([turn.scale for _, turn, _ in lines]),
            "omega": [name for _, _, name in lines],
            "share_determinant": shares[:, 0],
            "share_square": shares[:, 1],
            "share_inner": shares[:, 2],
            "most_exposed_tenth_in_closest_quarter": np.array([turn.near for _, turn, _ in lines]),
            "rank_correlation_with_closeness": np.array([turn.near_ranks for _, turn, _ in lines]),
            "rank_correlation_with_loss": np.array([turn.wrong for _, turn, _ in lines]),
            "wrong_side": np.array([turn.errors for _, turn, _ in lines]),
            "median_exposure": exposures[:, 0],
            "largest_exposure": exposures[:, 1],
            "noise_length": np.array([turn.noise for _, turn, _ in lines]),
            "log10_probability": np.array([turn.log_probability for _, turn, _ in lines]),
        }
    )


def small_angles_claim(rotation: Rotation) -> Claim:
    """For ω ∈ {0, π/12} rows near the boundary have the highest loss, by their leverage."""
    main, larger, _ = rotation.turned
    checks = []
    for name, turn in list(zip(_ANGLE_NAMES, main, strict=True))[:2]:
        checks += [
            Check(
                what="of the most exposed tenth, the share among the quarter closest to the"
                f" boundary, ω = {name}",
                value=turn.near,
                relation=">=",
                bound=_STRONG,
            ),
            Check(
                what=f"the first term's share of the three, ω = {name}",
                value=float(turn.terms.shares[0]),
                relation=">=",
                bound=0.5,
            ),
        ]
    other = rotation.other[0]
    return Claim(
        key="c",
        says=(
            "For ω = 0 and π/12 the rows closest to the decision boundary have the highest loss;"
            " the first term, their leverage, dominates."
        ),
        where="Section 3.1, Fig. 1",
        outcome=(
            f"Under the σ of Theorem 5 at ε = ½ ({quote(main[0].scale)}) the first term has"
            f" {percent(main[0].terms.shares[0])} of the three at ω = 0 and"
            f" {percent(main[1].terms.shares[0])} at π/12, where it and the third partly cancel."
            " Of the most exposed tenth of the rows,"
            f" {percent(main[0].near)} and {percent(main[1].near)} are among the closest quarter."
            f" It hangs on σ: at ε = 1 ({quote(larger[0].scale)}) these are"
            f" {percent(larger[0].near)} and {percent(larger[1].near)}, but the third term has"
            f" {percent(larger[1].terms.shares[2])} at π/12. With the classes twice as far apart,"
            f" the other reading of the margin, {percent(other[0].near)} and"
            f" {percent(other[1].near)} are."
        ),
        checks=tuple(checks),
        figures=("fig1",),
    )


def wide_angles_claim(rotation: Rotation) -> Claim:
    """As ω grows the other two terms take over, and badly predicted rows are exposed."""
    main = rotation.turned[0]
    rest = np.array([1 - turn.terms.shares[0] for turn in main])
    checks = (
        Check(
            what="least growth of the other two terms' share from one ω to the next",
            value=float(np.diff(rest).min()),
            relation=">=",
            bound=0.0,
        ),
        Check(
            what="their least share, ω ≥ π/4",
            value=float(rest[2:].min()),
            relation=">=",
            bound=0.5,
        ),
        Check(
            what="least rank correlation of loss and how badly the row is predicted, ω ≥ π/4",
            value=min(turn.wrong for turn in main[2:]),
            relation=">=",
            bound=_STRONG,
        ),
    )
    return Claim(
        key="d",
        says=(
            "As the perturbation grows the second and third terms dominate; the more badly a model"
            " predicts a row, the less protected the row is."
        ),
        where="Section 3.1, Fig. 1",
        outcome=(
            f"The third term does, with {percent(main[2].terms.shares[2])} of the three at ω = π/4;"
            f" the second never has more than {percent(max(o.terms.shares[1] for o in main))}. The"
            " rank"
            " correlation of a row's loss with how badly it is predicted is"
            f" {', '.join(f'{turn.wrong:.2f}' for turn in main[2:])} at ω = π/4, π/2, 3π/4 and π:"
            " it is not 1 because the third term also asks how a row lies to the noise."
        ),
        checks=checks,
        figures=("fig1",),
    )


def probability_claim(rotation: Rotation) -> Claim:
    """θ_{+π} is astronomically improbable."""
    last, _, misprinted = (run[-1] for run in rotation.turned)
    return Claim(
        key="e",
        says=(
            "The probability of an output like θ turned by π is astronomically low for any"
            " reasonable privacy setting."
        ),
        where="Section 3.1",
        outcome=(
            f"It takes a noise of length {quote(last.noise)}, and under the σ of Theorem 5 at ε ="
            f" ½, {quote(last.scale)}, one at least that long has probability"
            f" {quote(10**last.log_probability)}. Under the misprinted σ,"
            f" {quote(misprinted.scale)}, it would have {quote(10**misprinted.log_probability)}."
        ),
        checks=(
            Check(
                what="log₁₀ of the probability of a noise at least that long",
                value=last.log_probability,
                relation="<",
                bound=math.log10(_ASTRONOMICAL),
            ),
        ),
        figures=("fig1",),
    )
