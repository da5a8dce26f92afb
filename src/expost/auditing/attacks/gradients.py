"""White-box scores: what a row's gradient at the target says of whether it was trained on.

Conventions
-----------
g       (D,) the gradient of a row's own loss at the target's θ, without any penalty.
S       the sum of gradients over the target's n members, or what is known of it: an update that
        was seen, or, since a fitted model is a minimiser, −nΛθ (0 without a penalty).
ḡ, C    mean and covariance of g over a population; h = g − ḡ.

Which inner product is a likelihood ratio
-----------------------------------------
With noise. A step that publishes S = Σ g + b, b ~ N(0, s²I), to one who knows the sum m of the
other rows' gradients, is N(m + g, s²I) with the row and N(m, s²I) without it:

    log p(S ∣ with) − log p(S ∣ without) = [g·(S − m) − ½∥g∥²]/s².                            (1)

With the row S − m = g + b, and this is the (2b·g + ∥g∥²)/(2s²) of :mod:`expost.torch`. A row's g is
the same in both worlds only where θ was fixed before S: in each step of a training. Log ratios of
steps add up.

Without noise. To one who does not know the other rows they are the noise: drawn from the population
their gradients add up to about N(nḡ, nC), and the row's exchange for one of them moves that by h:

    hᵀM⁻¹(S − nḡ) − ½hᵀM⁻¹h,     M = nC + s²I.                                                (2)

So ⟨g, S − nḡ⟩ in the metric of M⁻¹ is what counts, less half of g's own length in it. Of one who
has no S and no population only the second term is left: a member's gradient is short (Nasr et al.
2019), the score −∥g∥. At a minimiser (2) takes g for fixed though θ moved with the row; it leaves
out log(1 + f″μ) of the change of variables, which matters where a row has a large leverage μ.

C is estimated with the shrinkage of Ledoit and Wolf (2004), and nothing of size D × D is formed:
only inner products of gradients are needed.

Gradients of linear models are exact, and are not formed either. With x a row (and its 1 where there
is an intercept), Θ (K, d) one predictor per class, z = Θx and u (K,) the derivative of the row's
loss in z (K = 1: f′), g = u ⊗ x and

    ∥g∥ = ∥u∥∥x∥,    g·V = u·Vx for V (K, d),    g·g' = (u·u')(x·x').

At a fitted model S = −(penalty)·Θ: −Θ/C where scikit-learn minimises C·Σ ℓ + ½∥Θ∥², −αΘ for ridge
regression, −nΛθ − b for ours with b unknown.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    Ridge,
    RidgeClassifier,
)
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC

from expost import _checks
from expost._numerics import row_blocks
from expost.auditing.evidence import Signal
from expost.errors import InvalidInput
from expost.glm import Objective
from expost.labels import class_codes, signs
from expost.losses import Logistic, Loss, Softmax, Squared
from expost.release import Release
from expost.types import FloatArray, IntArray

__all__ = [
    "GRADIENT_INNER_PRODUCT",
    "GRADIENT_NORM",
    "DenseGradients",
    "Gradients",
    "LinearGradients",
    "gradient_norm",
    "gradient_ratio",
    "gradient_scores",
    "linear_gradients",
    "update_ratio",
]

GRADIENT_NORM = Signal(
    name="gradient-norm",
    description="how short the row's own gradient is in the model's parameters (Nasr 2019)",
)
GRADIENT_INNER_PRODUCT = Signal(
    name="gradient-inner-product",
    description="how the row's own gradient lies to the parameters (Nasr 2019)",
)
# Rows of the population from which C is estimated: a Gram matrix of 32 MiB.
MOST_ROWS = 2048


class Gradients(Protocol):
    """The gradients of n rows; of whatever kind, all that is asked of them are inner products."""

    @property
    def rows(self) -> int:
        """n."""

    @property
    def dimension(self) -> int:
        """D."""

    def squares(self) -> FloatArray:
        """(n,) ∥g∥²."""

    def mean(self) -> FloatArray:
        """(D,) the mean gradient."""

    def along(self, direction: FloatArray) -> FloatArray:
        """(n,) g·direction."""

    def take(self, rows: IntArray) -> Self:
        """The gradients of some of the rows."""

    def gram(self, others: Self) -> FloatArray:
        """(n, k) the inner products with other rows' gradients of the same model."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DenseGradients:
    """Gradients that were computed elsewhere: ``vectors`` (n, D)."""

    vectors: FloatArray

    def __post_init__(self) -> None:
        vectors = _checks.matrix(self.vectors, name="vectors", min_rows=1)
        object.__setattr__(self, "vectors", vectors)

    @property
    def rows(self) -> int:
        """n."""
        return len(self.vectors)

    @property
    def dimension(self) -> int:
        """D."""
        return int(self.vectors.shape[1])

    def squares(self) -> FloatArray:
        """(n,) ∥g∥²."""
        found: FloatArray = np.einsum("ij,ij->i", self.vectors, self.vectors)
        return found

    def mean(self) -> FloatArray:
        """(D,) the mean gradient."""
        found: FloatArray = self.vectors.mean(axis=0)
        return found

    def along(self, direction: FloatArray) -> FloatArray:
        """(n,) g·direction."""
        found: FloatArray = self.vectors @ direction
        return found

    def take(self, rows: IntArray) -> "DenseGradients":
        """The gradients of some of the rows."""
        return DenseGradients(vectors=self.vectors[rows])

    def gram(self, others: "DenseGradients") -> FloatArray:
        """(n, k) inner products."""
        found: FloatArray = self.vectors @ others.vectors.T
        return found


def gradient_norm(gradients: Gradients) -> FloatArray:
    """(n,) −∥g∥: members' gradients are short."""
    return _finite(-np.sqrt(gradients.squares()))


def update_ratio(
    gradients: Gradients,
    update: Any,
    *,
    others: Any = None,
    scale: float | None = None,
) -> FloatArray:
    """(n,) Eq. 1 for an ``update`` S that was seen, at the θ from which it was made.

    ``update``  (D,) a sum of gradients: minus the change of θ over the learning rate, times the
                number of rows where the step took their mean.
    ``others``  (D,) m: what S would be without the row; None for 0. An estimate will do, n times
                a population's mean.
    ``scale``   s, the noise's standard deviation; None where there is none that is known: then the
                part that does not depend on s, g·(S − m) − ½∥g∥².
    """
    size = gradients.dimension
    seen = _checks.vector(update, name="update", length=size)
    if others is not None:
        seen = seen - _checks.vector(others, name="others", length=size)
    variance = 1.0 if scale is None else _checks.positive("scale", scale) ** 2
    return _finite((gradients.along(seen) - gradients.squares() / 2) / variance)


def gradient_ratio(
    gradients: Gradients,
    population: Gradients | None = None,
    *,
    members: int,
    within: int | None = None,
    total: Any = None,
    noise_variance: float = 0.0,
    most_rows: int | None = None,
) -> FloatArray:
    """(n,) Eq. 2: the log likelihood ratio of a model at which its members' gradients sum to S.

    ``population``      gradients, at the same θ, of rows that were surely not trained on. None: the
                        rows in question stand in, of which ``within`` are members, with a mean of
                        S/n, and the others the population. That is to know more than from a
                        population of strangers: where all members are among the rows in question,
                        what the others sum to is then known exactly.
    ``members``         n, the rows that the target was trained on.
    ``within``          how many of them are in question; None for all.
    ``total``           (D,) S; None for 0.
    ``noise_variance``  s², the variance of each coordinate of noise on S.
    ``most_rows``       of the population, from which C is estimated; ḡ is that of all. None: eight
                        a coordinate, 512 at least and ``MOST_ROWS`` at most.
    """
    n = _checks.whole("members", members, least=1)
    if not 0 <= noise_variance < np.inf:
        raise InvalidInput(f"noise_variance={noise_variance!r}: must be a finite number ≥ 0.")
    size = gradients.dimension
    known = np.zeros(size) if total is None else _checks.vector(total, name="total", length=size)
    inside = n if within is None else _checks.whole("within", within, least=0)
    centre, reference = _centre(gradients, population, inside, known / n)
    grown = n * (1 + n / reference.rows)
    most = min(MOST_ROWS, max(512, 8 * size)) if most_rows is None else most_rows
    if reference.rows > _checks.whole("most_rows", most, least=2):
        # Spread over all of them: files are often sorted.
        places = np.linspace(0, reference.rows - 1, most).astype(np.int64)
        reference = reference.take(places)
    law = _OthersLaw.of(reference, centre, grown, noise_variance, known - n * centre)
    scores = np.empty(gradients.rows)
    for block in row_blocks(gradients.rows, reference.rows):
        scores[block] = law.ratio(gradients.take(np.arange(block.start, block.stop)))
    return _finite(scores)


def _centre(
    gradients: Gradients, population: Gradients | None, members: int, theirs: FloatArray
) -> tuple[FloatArray, Gradients]:
    """ḡ, and the rows from which C is estimated; ``theirs``: the members' mean."""
    if population is not None:
        if population.dimension != gradients.dimension:
            raise InvalidInput("population: must hold gradients of the same model.")
        if not population.rows >= 2:
            raise InvalidInput("population: must hold at least two rows.")
        return population.mean(), population
    others = gradients.rows - members
    if not others >= 1:
        raise InvalidInput(
            f"members={members}: without a population some of the {gradients.rows} rows in question"
            " must be non-members; pass a population."
        )
    # What members' gradients do not account for is the others'.
    return (gradients.rows * gradients.mean() - members * theirs) / others, gradients


@dataclass(frozen=True, kw_only=True, eq=False)
class _OthersLaw:
    """M = ``even``·I + ``weight``·P̃ᵀP̃, P̃ the population's centred gradients (k, D), and S − nḡ.

    M⁻¹v = (v − P̃ᵀA⁻¹P̃v)/even with A = (even/weight)·I + P̃P̃ᵀ (Woodbury). ``factor`` is A's
    Cholesky factor, None where weight = 0; ``shifted`` (k,) P̃(S − nḡ).
    """

    population: Gradients
    centre: FloatArray
    gap: FloatArray
    even: float
    factor: FloatArray | None
    along_centre: FloatArray
    shifted: FloatArray

    @classmethod
    def of(
        cls,
        population: Gradients,
        centre: FloatArray,
        grown: float,
        noise_variance: float,
        gap: FloatArray,
    ) -> "_OthersLaw":
        """``grown``: n(1 + n/k), since ḡ is itself an estimate of k rows."""
        along = population.along(centre)
        square = float(centre @ centre)
        gram = population.gram(population) - along[:, None] - along[None, :] + square
        shrinkage, mean = _ledoit_wolf(gram, population.dimension)
        even = grown * shrinkage * mean + noise_variance
        if not even > 0:
            raise InvalidInput(
                "population: the gradients of its rows do not vary, and no noise was given: pass"
                " other rows, or a noise_variance."
            )
        weight = grown * (1 - shrinkage) / population.rows
        factor = None
        if weight > 0:
            gram[np.diag_indices_from(gram)] += even / weight
            factor = scipy.linalg.cholesky(gram, lower=True, overwrite_a=True)
        return cls(
            population=population,
            centre=centre,
            gap=gap,
            even=even,
            factor=factor,
            along_centre=along,
            shifted=population.along(gap) - float(centre @ gap),
        )

    def ratio(self, rows: Gradients) -> FloatArray:
        """hᵀM⁻¹(S − nḡ) − ½hᵀM⁻¹h."""
        along, square = rows.along(self.centre), float(self.centre @ self.centre)
        linear = rows.along(self.gap) - float(self.centre @ self.gap)
        length = rows.squares() - 2 * along + square
        if self.factor is not None:
            cross = rows.gram(self.population) - self.along_centre - along[:, None] + square
            half = scipy.linalg.solve_triangular(self.factor, cross.T, lower=True)
            moved = scipy.linalg.solve_triangular(self.factor, self.shifted, lower=True)
            linear = linear - moved @ half
            length = length - np.einsum("ji,ji->i", half, half)
        ratio: FloatArray = (linear - length / 2) / self.even
        return ratio


def _ledoit_wolf(gram: FloatArray, dimension: int) -> tuple[float, float]:
    """(ρ, μ) with C* = ρμI + (1 − ρ)C, from the Gram matrix of the centred rows alone.

    Ledoit and Wolf (2004): μ = tr C/D, d² = ∥C − μI∥²/D, b² = min(d², Σ∥ggᵀ − C∥²/(k²D)), ρ = b²/d²
    in the Frobenius norm, where ∥C∥ = ∥Gram∥/k and ∥ggᵀ∥ = ∥g∥².
    """
    k = len(gram)
    squares = np.diag(gram)
    mean = float(squares.sum()) / (k * dimension)
    whole = float(np.sum(gram * gram)) / k**2
    spread = whole / dimension - mean**2
    error = (float(squares @ squares) / k**2 - whole / k) / dimension
    if not spread > 0:
        return 1.0, mean
    return min(max(error, 0.0) / spread, 1.0), mean


def _finite(scores: FloatArray) -> FloatArray:
    if not np.all(np.isfinite(scores)):
        raise InvalidInput(
            "gradients: a score is NaN or infinite; rescale the rows, or check the model's"
            " coefficients."
        )
    return scores


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearGradients:
    """g = u ⊗ x of n rows.

    ``features``        (n, d) x.  ``residuals``  (n, K) u.
    ``total``           (K·d,) S, class by class; None where it is not known.
    ``noise_variance``  of each coordinate of the noise on S.
    ``members``         how many rows the model was trained on; None where it does not say.
    """

    features: FloatArray
    residuals: FloatArray
    total: FloatArray | None = None
    noise_variance: float = 0.0
    members: int | None = None

    def __post_init__(self) -> None:
        if self.residuals.ndim != 2 or len(self.residuals) != len(self.features):
            raise InvalidInput("residuals: must hold a row for each row of the features.")
        if self.total is not None and self.total.shape != (self.dimension,):
            raise InvalidInput(f"total: must hold {self.dimension} numbers.")

    @classmethod
    def of(
        cls,
        X: Any,
        targets: Any,
        theta: Any,
        loss: Loss | Softmax,
        *,
        regularization: float | None = None,
        members: int | None = None,
    ) -> "LinearGradients":
        """From plain arrays: θ as :mod:`expost.glm` and :mod:`expost.losses` have it.

        ``regularization``  Λ and ``members`` n of the averaged objective that θ minimises, where
                            that is known.
        """
        features = _checks.matrix(X, min_rows=1)
        target = _checks.vector(targets, name="targets", length=len(features))
        found = _checks.vector(theta, name="theta")
        if len(found) % features.shape[1]:
            raise InvalidInput(
                f"theta: must hold a number for each of {features.shape[1]} columns."
            )
        total = None
        if regularization is not None:
            n = _checks.whole("members", members, least=1)
            total = -n * _checks.regularization(regularization) * found
        predictors = features @ found.reshape(-1, features.shape[1]).T
        z = predictors if isinstance(loss, Softmax) else predictors[:, 0]
        return cls(features=features, residuals=_columns(loss.slope(z, target)), total=total)

    @property
    def rows(self) -> int:
        """n."""
        return len(self.features)

    @property
    def dimension(self) -> int:
        """D = K·d."""
        return int(self.features.shape[1] * self.residuals.shape[1])

    def squares(self) -> FloatArray:
        """(n,) ∥u∥²∥x∥²."""
        found: FloatArray = _squares(self.residuals) * _squares(self.features)
        return found

    def mean(self) -> FloatArray:
        """(D,) the mean gradient."""
        found: FloatArray = (self.residuals.T @ self.features).ravel() / self.rows
        return found

    def along(self, direction: FloatArray) -> FloatArray:
        """(n,) u·Vx."""
        matrix = direction.reshape(self.residuals.shape[1], -1)
        found: FloatArray = np.einsum("ij,ij->i", self.residuals, self.features @ matrix.T)
        return found

    def take(self, rows: IntArray) -> "LinearGradients":
        """The gradients of some of the rows."""
        return LinearGradients(features=self.features[rows], residuals=self.residuals[rows])

    def gram(self, others: "LinearGradients") -> FloatArray:
        """(n, k) (u·u')(x·x')."""
        found: FloatArray = self.residuals @ others.residuals.T
        found *= self.features @ others.features.T
        return found


def gradient_scores(
    model: Any,
    X: Any,
    y: Any,
    *,
    members: int,
    population: tuple[Any, Any] | None = None,
    trained_on: int | None = None,
) -> dict[str, FloatArray]:
    """The white-box scores of a linear model's rows, by name, for ``Evidence.extras``.

    ``members``      how many of these rows the target was trained on.
    ``population``   (X, y) of rows that surely were not. None: the attack uses the rows in question
                     alone, and knows that ``members`` of them are (see
                     :func:`gradient_ratio`).
    ``trained_on``   how many rows the target was trained on in all; None: a release says so, and
                     of any other model it is ``members``.

    {} for a model that is not linear; ``gradient-norm``; and ``gradient-inner-product`` where it is
    known what the model minimises. A model that has a method of this name speaks for itself (that
    of a torch module does: :class:`expost.torch.TorchModel`).
    """
    own = getattr(model, "gradient_scores", None)
    if callable(own):
        told: dict[str, FloatArray] = own(
            X, y, members=members, population=population, trained_on=trained_on
        )
        return told
    rows = linear_gradients(model, X, y)
    if rows is None:
        return {}
    scores = {GRADIENT_NORM.name: gradient_norm(rows)}
    outside = None if population is None else linear_gradients(model, *population)
    if rows.total is None or (outside is None and not members < rows.rows):
        return scores
    scores[GRADIENT_INNER_PRODUCT.name] = gradient_ratio(
        rows,
        outside,
        members=trained_on or rows.members or members,
        within=members,
        total=rows.total,
        noise_variance=rows.noise_variance,
    )
    return scores


def linear_gradients(model: Any, X: Any, y: Any) -> LinearGradients | None:
    """The gradients of (X, y) at a fitted linear model, or None for a model that is not one.

    Taken: a release (model.json, its path, an expost estimator), scikit-learn's LogisticRegression,
    Ridge, RidgeClassifier, LinearRegression and LinearSVC, and a Pipeline that ends in one of them
    (gradients are then in its coefficients).
    """
    if isinstance(model, Pipeline):
        if len(model) > 1:
            X = model[:-1].transform(X)
            X = X.toarray() if hasattr(X, "toarray") else X
        return linear_gradients(model[-1], X, y)
    if isinstance(model, str | Path):
        model = Release.load(model)
    release = model if isinstance(model, Release) else getattr(model, "release_", None)
    if isinstance(release, Release):
        return _released(release, X, y)
    if isinstance(model, LogisticRegression):
        return _logistic(model, X, y)
    if isinstance(model, LinearSVC) and model.multi_class != "ovr":
        return None
    if isinstance(model, RidgeClassifier | LinearSVC):
        slope = _squared_slope if isinstance(model, RidgeClassifier) else _hinge_slope(model)
        rows = _fitted(model, X)
        target = _one_against_rest(y, model.classes_)
        return rows.result(slope(rows.predictors, target))
    if isinstance(model, Ridge | LinearRegression):
        rows = _fitted(model, X)
        target = _checks.matrix(_columns(np.asarray(y)), name="y", min_rows=1)
        if target.shape != rows.predictors.shape:
            raise InvalidInput(f"y: must have {rows.predictors.shape[1]} value(s) for each row.")
        return rows.result(_squared_slope(rows.predictors, target))
    return None


def _released(release: Release, X: Any, y: Any) -> LinearGradients:
    problem, theta = release.objective(X, y), release.theta
    how = release.mechanism
    found = LinearGradients.of(
        problem.held.X,
        problem.held.y,
        theta,
        problem.loss,
        regularization=how.total_regularization,
        members=how.rows,
    )
    variance = 0.0
    if how.is_private:
        curved = _mean_square_curvature(problem, theta, how.total_regularization)
        variance = how.gradient_variance(curved)
    return LinearGradients(
        features=found.features,
        residuals=found.residuals,
        total=found.total,
        noise_variance=variance,
        members=how.rows,
    )


def _mean_square_curvature(objective: Objective, theta: FloatArray, regularization: float) -> float:
    """tr H²/d of H = (1/n) Σ∇²ℓ + ΛI: noise that is even in θ is taken to be so in S."""
    hessian = regularization * np.eye(objective.dimension)
    for block in objective.held.blocks():
        X, y = objective.held.X[block], objective.held.y[block]
        hessian += objective.constants.at(X, y, theta).curvature_sum(X) / objective.count
    return float(np.sum(hessian**2)) / len(hessian)


def _logistic(model: LogisticRegression, X: Any, y: Any) -> LinearGradients:
    rows = _fitted(model, X)
    if len(model.classes_) == 2:
        slope = Logistic().slope(rows.predictors[:, 0], signs(y, model.classes_))
    else:
        codes = class_codes(y, model.classes_)
        slope = Softmax(classes=len(model.classes_)).slope(rows.predictors, codes)
    return rows.result(slope)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fitted:
    """A scikit-learn model's rows (with their 1), predictors and S."""

    features: FloatArray
    predictors: FloatArray
    total: FloatArray | None

    def result(self, slope: FloatArray) -> LinearGradients:
        return LinearGradients(features=self.features, residuals=_columns(slope), total=self.total)


def _fitted(model: Any, X: Any) -> _Fitted:
    if not hasattr(model, "coef_"):
        raise InvalidInput(f"model: {type(model).__name__} is not fitted; call its fit first.")
    features = _checks.matrix(X, min_rows=1)
    weights = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    if features.shape[1] != weights.shape[1]:
        raise InvalidInput(
            f"X has {features.shape[1]} columns: the model was fitted on {weights.shape[1]}."
        )
    penalty = _penalty(model)
    total = None if penalty is None else -penalty * weights
    if model.fit_intercept:
        ones, offset = _intercept_column(model), np.reshape(model.intercept_, (-1, 1)).astype(float)
        features = np.column_stack([features, np.full(len(features), ones)])
        weights = np.column_stack([weights, offset / ones])
        if total is not None:
            # liblinear penalises its intercept as one more column; the other solvers do not.
            total = np.column_stack([total, -_intercept_penalty(model) * weights[:, -1:]])
    return _Fitted(
        features=features,
        predictors=features @ weights.T,
        total=None if total is None else total.ravel(),
    )


def _penalty(model: Any) -> float | None:
    """λ of the sum Σℓ + (λ/2)∥Θ∥² that the model minimises, or None where it minimises another."""
    if getattr(model, "class_weight", None) is not None or getattr(model, "positive", False):
        return None
    if isinstance(model, LinearRegression):
        return 0.0
    if isinstance(model, LogisticRegression):
        kind = getattr(model, "penalty", "l2")
        if getattr(model, "l1_ratio", 0) not in (None, 0) or kind in ("l1", "elasticnet"):
            return None
        if kind is None:
            return 0.0
        # LogisticRegressionCV chose its own, one for each class.
        return 1 / float(model.C) if hasattr(model, "C") else None
    if isinstance(model, LinearSVC):
        # At the hinge's corner the solver takes some slope between 0 and 1, we do not know which.
        smooth = model.loss == "squared_hinge" and model.penalty == "l2"
        return 1 / float(model.C) if smooth else None
    alpha = np.ravel(model.alpha)
    return float(alpha[0]) if len(alpha) == 1 else None


def _is_liblinear(model: Any) -> bool:
    return isinstance(model, LinearSVC) or getattr(model, "solver", None) == "liblinear"


def _intercept_column(model: Any) -> float:
    return float(model.intercept_scaling) if _is_liblinear(model) else 1.0


def _intercept_penalty(model: Any) -> float:
    return 1 / float(model.C) if _is_liblinear(model) else 0.0


def _one_against_rest(y: Any, classes: NDArray[Any]) -> FloatArray:
    """(n, K) ±1, or (n, 1) for two classes."""
    if len(classes) == 2:
        return _columns(signs(y, classes))
    codes = class_codes(y, classes)
    return np.where(codes[:, None] == np.arange(len(classes)), 1.0, -1.0)


def _squared_slope(z: FloatArray, y: FloatArray) -> FloatArray:
    """Of (z − y)²/2."""
    return Squared(label_bound=1.0).slope(z, y)


def _hinge_slope(model: LinearSVC) -> Any:
    """Of max(0, 1 − yz), or of its square."""
    squared = model.loss == "squared_hinge"

    def slope(z: FloatArray, y: FloatArray) -> FloatArray:
        gap = np.maximum(1 - y * z, 0.0)
        found: FloatArray = -y * (2 * gap if squared else (gap > 0).astype(np.float64))
        return found

    return slope


def _columns(values: NDArray[Any]) -> NDArray[Any]:
    return values[:, None] if values.ndim == 1 else values


def _squares(rows: FloatArray) -> FloatArray:
    found: FloatArray = np.einsum("ij,ij->i", rows, rows)
    return found
