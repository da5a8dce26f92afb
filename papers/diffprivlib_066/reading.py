"""Private models that expost did not release: diffprivlib's LogisticRegression, version 0.6.6.

It is known by its name alone: diffprivlib cannot be imported with scikit-learn 1.8 or newer.

What it does
------------
Rows are clipped to ∥x∥ ≤ q = ``data_norm``; with an intercept x̃ = (x, 1), else x̃ = x, and
q̃ = √(q² + 1) or q bounds ∥x̃∥. It minimises (here summed, there divided by n)

    Σ ℓ(θ; x̃ᵢ, yᵢ) + (1/2C)∥w∥² + (Δ/2)∥θ∥² + b·θ,    θ = (w, intercept),

after Chaudhuri et al. 2011, Algorithm 2, b of density ∝ exp(−β∥b∥) with β = ε′/(2q̃),

    ε′ = ε − 2 ln(1 + q̃C/4) and Δ = 0;    where that is not positive,
    ε′ = ε/2 and Δ = q̃/(4(e^(ε/4) − 1)) − 1/C.

K > 2 classes are K such fits of one class against the rest, each with ε/K. Removing a row keeps
all of these constants, so a refit without it is the same mechanism on the other rows.

Why it need not hold ε
----------------------
The proof needs f″∥x̃∥² ≤ q̃²/4 where q̃/4 stands, and one penalty for every coordinate, which the
intercept lacks. What a removal can lose is ε′/2 + ln(1 + x̃ᵀP⁻¹x̃/4), P the penalties. Where
nothing penalises the intercept (Δ = 0) there is no bound, and a noise past the number of rows of
one class leaves no minimiser at all.

All of it is computed with rows x̃/q̃ in the unit ball, θ·q̃ and b/q̃: a loss has no unit.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from expost import _checks
from expost.errors import InvalidInput
from expost.glm import Objective
from expost.labels import signs
from expost.losses import Logistic
from expost.mechanisms import RowLosses
from expost.mechanisms.row_losses import finite_only, mean_exposures
from expost.noise import NormLaplace
from expost.numbers import nats, upper_text
from expost.profiles.pipelines import Preprocessing
from expost.profiles.profile import Profile
from expost.results import row_keys
from expost.types import FloatArray, Neighbouring
from papers.diffprivlib_066.fit import PerturbedFit

__all__ = ["PrivateForeign", "profile", "read_private"]

_VERSION = "0.6.6"
_CURVATURE = Logistic.curvature_bound
# Models behind the typical exposures, and their seed: the same profile twice is one.
_MODELS = 64
_SEED = 0


@dataclass(frozen=True, kw_only=True)
class _Calibration:
    """The constants of one fit.

    ``stretch``  q̃.
    ``offset``   the constant coordinate 1/q̃ of a row, 0 without an intercept.
    ``rate``     of the noise, and the penalties of the sum, all three in units of q̃.
    """

    stretch: float
    offset: float
    rate: float
    weight_penalty: float
    offset_penalty: float

    @classmethod
    def of(cls, epsilon: float, data_norm: float, C: float, intercept: bool) -> "_Calibration":
        """Return the constants of diffprivlib, q̃ for q̃² included (module docstring)."""
        stretch = math.hypot(data_norm, 1.0) if intercept else data_norm
        taken = _CURVATURE * stretch
        left, raised = epsilon - 2 * math.log1p(taken * C), 0.0
        if not left > 0:
            left, raised = epsilon / 2, taken / math.expm1(epsilon / 4) - 1 / C
        return cls(
            stretch=stretch,
            offset=1 / stretch if intercept else 0.0,
            rate=left / 2,
            weight_penalty=(1 / C + raised) / stretch**2,
            offset_penalty=raised / stretch**2,
        )

    @property
    def held(self) -> float:
        """What no removal can pass, whatever the data."""
        if self.offset and not self.offset_penalty > 0:
            return math.inf
        constant = self.offset**2 / self.offset_penalty if self.offset else 0.0
        longest = (1 - self.offset**2) / self.weight_penalty + constant
        return self.rate + math.log1p(_CURVATURE * longest)

    def rows(self, features: FloatArray, norms: FloatArray, data_norm: float) -> FloatArray:
        """x̃/q̃, with x clipped as diffprivlib clips it."""
        rows = features / (np.maximum(norms / data_norm, 1.0) * self.stretch)[:, None]
        if self.offset:
            rows = np.column_stack([rows, np.full(len(rows), self.offset)])
        return np.ascontiguousarray(rows)

    def theta(self, coef: FloatArray, intercept: Any) -> FloatArray:
        """(K, d) θ·q̃."""
        if self.offset:
            coef = np.column_stack([coef, np.ravel(np.asarray(intercept, dtype=np.float64))])
        return self.stretch * coef

    def penalty(self, columns: int) -> FloatArray:
        """(columns,) of the sum."""
        penalty = np.full(columns, self.weight_penalty)
        if self.offset:
            penalty[-1] = self.offset_penalty
        return penalty


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivateForeign:
    """A fitted private model as the objective perturbation that it is.

    ``fits``      one, or one a class against the rest; their noises are independent.
    ``epsilon``   what was guaranteed for all of them together; ``held`` what no removal can pass.
    ``stretch``   the unit of their rows.
    """

    fits: tuple[PerturbedFit, ...]
    epsilon: float
    held: float
    stretch: float
    description: str
    notices: tuple[str, ...]

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return self.fits[0].problem.count

    def check_rows(self) -> None:
        """Refuse rows that cannot have made θ."""
        for fit in self.fits:
            fit.check_rows()

    def row_losses(self) -> RowLosses:
        """log p(θ ∣ D) − log p(θ ∣ D₋ᵢ) of every row, the sum over the fits, with its interval."""
        loss, low, high, square = np.zeros((4, self.rows))
        for fit in self.fits:
            losses = fit.losses()
            loss, low, high = loss + losses.loss, low + losses.low, high + losses.high
            square = square + losses.distance**2
        return RowLosses(
            loss=loss,
            low=low,
            high=high,
            distance=np.sqrt(square) * self.stretch,
            distance_error=np.zeros(self.rows),
            relation=Neighbouring.REMOVE,
            law=None,
            worst_case=self.epsilon,
            sampled=self.expected_exposures,
            draw=self.drawn_losses,
        )

    def drawn_losses(self, size: int, rng: np.random.Generator) -> Iterator[FloatArray]:
        """Return the loss of every row for each draw of the noise; infinite without a minimiser."""
        noises = [fit.law.sample(size, rng) for fit in self.fits]
        for draws in zip(*noises, strict=True):
            losses = [fit.drawn_losses(b) for fit, b in zip(self.fits, draws, strict=True)]
            known = [loss for loss in losses if loss is not None]
            whole = len(known) == len(losses)
            yield np.sum(known, axis=0) if whole else np.full(self.rows, np.inf)

    def expected_exposures(self) -> tuple[FloatArray, FloatArray]:
        """E∣loss∣ over the minimisers of 64 draws of the noise, and its standard error.

        Left out are the draws whose fit would be refused: those without a minimiser, and those
        where it lies so far off that the objective is flat there. Infinite if fewer than two stay.
        """
        drawn = self.drawn_losses(_MODELS, np.random.default_rng(_SEED))
        return mean_exposures(finite_only(drawn), self.rows)


def profile(model: Any, X: Any, y: Any, *, ids: Sequence[Any] | None = None) -> Profile:
    """Return the loss of every row when it is removed, of a model alone or last in a Pipeline."""
    steps, last = Preprocessing.split(model)
    private = read_private(last, steps.transform(X), y)
    if private is None:
        raise InvalidInput("model: is no LogisticRegression of diffprivlib with a finite epsilon.")
    private.check_rows()
    return Profile(
        losses=private.row_losses(),
        description=private.description,
        rows=private.rows,
        ids=row_keys(ids, private.rows),
        notices=private.notices,
    )


def read_private(model: Any, X: Any, y: Any) -> PrivateForeign | None:
    """Return the mechanism of a fitted diffprivlib LogisticRegression; None for other models.

    One that was fitted with epsilon=inf carries no noise, and is None too: it is scikit-learn's.
    """
    if not _is_diffprivlib(model) or model.epsilon == math.inf:
        return None
    if getattr(model, "n_iter_", None) is None or len(model.coef_) == 0:
        raise InvalidInput("model: is not fitted; call its fit first.")
    version = getattr(sys.modules.get("diffprivlib"), "__version__", None)
    if version not in (None, _VERSION):
        raise InvalidInput(
            f"model: of diffprivlib {version}, whose noise is not known here; {_VERSION} is read."
        )
    features, coef = _checks.matrix(X), np.asarray(model.coef_, dtype=np.float64)
    if features.shape[1] != coef.shape[1]:
        raise InvalidInput(
            f"X has {features.shape[1]} columns: the model was fitted on {coef.shape[1]}."
        )
    epsilon, data_norm, C = (_constant(name, model) for name in ("epsilon", "data_norm", "C"))
    calibration = _Calibration.of(epsilon / len(coef), data_norm, C, bool(model.fit_intercept))
    norms = np.linalg.norm(features, axis=1)
    rows = calibration.rows(features, norms, data_norm)
    fits = _fits(model, calibration, rows, _targets(y, model.classes_, len(rows)))
    held = len(fits) * calibration.held
    classes = "" if len(fits) == 1 else f", {len(fits)} classes each against the rest"
    return PrivateForeign(
        fits=fits,
        epsilon=epsilon,
        held=held,
        stretch=calibration.stretch,
        description=(
            f"LogisticRegression of diffprivlib, epsilon={epsilon:g}, data_norm={data_norm:g},"
            f" C={C:g}, n={len(rows)}, d={rows.shape[1]}{classes}"
        ),
        notices=(
            *_guarantee(model, fits, held),
            *_noise(model, version, bool(norms.max() == data_norm)),
        ),
    )


def _is_diffprivlib(model: Any) -> bool:
    return any(
        kind.__name__ == "LogisticRegression" and kind.__module__.split(".")[0] == "diffprivlib"
        for kind in type(model).__mro__
    )


def _constant(name: str, model: Any) -> float:
    """Return a constant of the calibration, within the range of its squares."""
    number = _checks.positive(name, getattr(model, name))
    if not 1e-50 <= number <= 1e50:
        raise InvalidInput(f"{name}={number!r}: must lie between 1e-50 and 1e50.")
    return number


def _fits(
    model: Any, calibration: _Calibration, rows: FloatArray, targets: list[FloatArray]
) -> tuple[PerturbedFit, ...]:
    n, columns = rows.shape
    if not 0 <= model.tol < math.inf:
        raise InvalidInput(f"tol={model.tol!r}: must be a finite number of at least 0.")
    thetas = calibration.theta(np.asarray(model.coef_, dtype=np.float64), model.intercept_)
    if not np.all(np.isfinite(thetas)):
        raise InvalidInput("model: its coefficients are not finite; no loss can be computed.")
    # The solver stops by its own test, or when its steps are used up; only the first bounds r.
    stopped = np.ravel(model.n_iter_) < model.max_iter
    return tuple(
        PerturbedFit(
            problem=Objective.of(
                X=rows, y=y, loss=Logistic(), penalty=calibration.penalty(columns) / n
            ),
            theta=theta,
            law=NormLaplace(rate=calibration.rate, dimension=columns),
            tolerance=n * model.tol / calibration.stretch if met else math.inf,
        )
        for theta, y, met in zip(thetas, targets, stopped, strict=True)
    )


def _targets(y: Any, classes: Any, rows: int) -> list[FloatArray]:
    """Return ±1 for each fit: the second of two classes, or each class against the rest."""
    known = np.asarray(classes)
    if np.shape(y)[:1] != (rows,):
        raise InvalidInput("y: must have one entry for each row of X.")
    if len(known) == 2:
        return [signs(y, known)]
    labels = np.asarray(y).reshape(rows, -1)
    if labels.shape[1] != 1 or not np.all(np.isin(labels, known)):
        raise InvalidInput(f"y: must hold one of {known.tolist()!r} for each row of X.")
    return [np.where(labels[:, 0] == label, 1.0, -1.0) for label in known]


def _guarantee(model: Any, fits: tuple[PerturbedFit, ...], held: float) -> list[str]:
    """Return the notices on the mechanism."""
    notes = []
    if held > model.epsilon:
        most = "not bounded" if math.isinf(held) else nats(upper_text(held, 3))
        notes.append(
            "diffprivlib takes the curvature of a row of norm q for q/4, where it is q²/4"
            f"{', and does not penalise the intercept' if model.fit_intercept else ''}: the most"
            f" that removing a row of some data can lose is {most}, not epsilon={model.epsilon:g}."
        )
    share = max(fit.runaway_share() for fit in fits)
    if share >= 1e-3:
        notes.append(
            f"The noise leaves no minimiser in {share:.1%} of such fits, since the intercept is not"
            " penalised: typical exposures are those of the others."
        )
    if all(math.isfinite(fit.tolerance) for fit in fits):
        notes.append(
            "Its solver is taken to have stopped by its own test, at a gradient of up to"
            f" tol={model.tol:g} a row: the noise is known to within that, which every interval"
            " counts."
        )
    else:
        notes.append(
            f"Its solver used up max_iter={model.max_iter}: how far the noise is from what the"
            " coefficients imply is not known, and every interval is as wide as any noise allows."
        )
    return notes


def _noise(model: Any, version: str | None, read: bool) -> list[str]:
    """Return the notices on the noise and the bounds."""
    notes = []
    if read:
        notes.append(
            "data_norm is the norm of the longest row: read from the data, which is not private."
        )
    if getattr(model, "random_state", None) is not None:
        notes.append("The noise was drawn from a seed: anyone who knows it can remove it.")
    if version is None:
        notes.append(f"The version of diffprivlib is not known: read as {_VERSION}.")
    notes.append(
        "Its coefficients are on no public grid: what their low bits reveal is not counted."
    )
    return notes
