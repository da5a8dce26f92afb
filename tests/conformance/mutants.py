"""Faults to seed in the product: each must break a law.

A mutant patches the product for the time of one trial. ``law`` names the law that should see it
first; the others follow only if that one does not.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import expost.neighbouring.neighbours
import expost.profiles.verb
import expost.training
from conformance.laws import every_law
from conformance.subjects import PUBLISHED, SUBJECTS
from expost.data import Encoding, UnitBall
from expost.data._entries import NumericEntry
from expost.errors import WrongRows
from expost.labels import LabelScale
from expost.losses import Huber, HuberHinge, Logistic, Squared
from expost.mechanisms import ObjectivePerturbation, OutputPerturbation, Tangent, leverage
from expost.neighbouring.change import Change
from expost.noise import Gaussian, NormLaplace
from expost.noise.law import GaussianLaw, NormLaplaceLaw
from expost.release import Release
from expost.types import Neighbouring

LAPLACE, GAUSSIAN = "output-laplace-logistic", "output-gaussian-logistic"
HUBER, SQUARED = "output-laplace-huber-hinge", "output-laplace-squared"
GAUSSIAN_HUBER, GAUSSIAN_SQUARED = "output-gaussian-huber-hinge", "output-gaussian-squared"
OBJECTIVE, OBJECTIVE_PURE = "objective-gaussian-logistic", "objective-laplace-logistic"
OBJECTIVE_HUBER, PURE_HUBER = "objective-gaussian-huber-hinge", "objective-laplace-huber-hinge"
OBJECTIVE_SQUARED = "objective-gaussian-squared"
MARGIN, OBJECTIVE_MARGIN = f"{LAPLACE}-margin", f"{OBJECTIVE}-margin"
REGRESSION, PURE_REGRESSION = "objective-gaussian-huber", "objective-laplace-huber"

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One fault: what it is, where it is seeded, and the law that should see it."""

    name: str
    subject: str
    law: str
    patch: Patch

    def killed_by(self) -> str | None:
        """The first law that fails, or None: it survived."""
        subject = next(s for s in [*SUBJECTS, PUBLISHED] if s.name == self.subject)
        laws = dict(every_law(subject))
        order = [self.law, *(name for name in laws if name != self.law)]
        with pytest.MonkeyPatch.context() as patch:
            self.patch(patch)
            for name in order:
                try:
                    laws[name]()
                except AssertionError:
                    return name
                except WrongRows:
                    # The product itself finds that θ does not come from its own law.
                    return "refused"
        return None


MUTANTS: list[Mutant] = []


def mutant(name: str, *, subject: str, law: str) -> Callable[[Patch], Patch]:
    """Seed the decorated patch."""

    def register(patch: Patch) -> Patch:
        MUTANTS.append(Mutant(name=name, subject=subject, law=law, patch=patch))
        return patch

    return register


# The sampler.


def _norm_sampler(shape: Callable[[int], float]) -> Any:
    def sample(self: NormLaplace, size: int, rng: np.random.Generator) -> Any:
        norm = rng.standard_gamma(shape(self.dimension), size)
        return self._assemble(norm, rng.standard_normal((size, self.dimension)))

    return sample


def _scaled_sampler(cls: type, factor: float) -> Any:
    sample = cls.sample
    return lambda self, size, rng: factor * sample(self, size, rng)


@mutant("norms drawn from Gamma(d + 1)", subject=LAPLACE, law="2")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NormLaplace, "sample", _norm_sampler(lambda d: d + 1))


@mutant("norms drawn from Gamma(d − 1)", subject=LAPLACE, law="2")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NormLaplace, "sample", _norm_sampler(lambda d: d - 1))


@mutant("norm-Laplace noise drawn at twice its scale", subject=LAPLACE, law="2")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NormLaplace, "sample", _scaled_sampler(NormLaplace, 2.0))


@mutant("norm-Laplace noise drawn at half its scale", subject=LAPLACE, law="2")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NormLaplace, "sample", _scaled_sampler(NormLaplace, 0.5))


@mutant("Gaussian noise drawn at twice its scale", subject=GAUSSIAN, law="2")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Gaussian, "sample", _scaled_sampler(Gaussian, 2.0))


@mutant("Gaussian noise drawn at half its scale", subject=GAUSSIAN, law="2")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Gaussian, "sample", _scaled_sampler(Gaussian, 0.5))


@mutant("Gaussian noise drawn with the variance for its scale", subject=GAUSSIAN, law="2")
def _(patch: pytest.MonkeyPatch) -> None:
    sample = Gaussian.sample
    patch.setattr(Gaussian, "sample", lambda self, size, rng: self.scale * sample(self, size, rng))


@mutant("Laplace noise for each coordinate", subject=LAPLACE, law="2")
def _(patch: pytest.MonkeyPatch) -> None:
    def sample(self: NormLaplace, size: int, rng: np.random.Generator) -> Any:
        return rng.laplace(scale=1 / self.rate, size=(size, self.dimension))

    patch.setattr(NormLaplace, "sample", sample)


@mutant("a direction divided by its squared length", subject=LAPLACE, law="2")
def _(patch: pytest.MonkeyPatch) -> None:
    def assemble(self: NormLaplace, norm: Any, direction: Any) -> Any:
        length = (direction**2).sum(axis=1)
        return direction * (norm / self.rate / length)[:, None]

    patch.setattr(NormLaplace, "_assemble", assemble)


@mutant("a release without its noise", subject=LAPLACE, law="2")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        OutputPerturbation, "add_noise", lambda self, base, rng=None: self.grid.snap(base.theta)
    )


# The density.


def _offset_density(cls: type, offset: Callable[[Any], float]) -> Any:
    log_density = cls.log_density
    return lambda self, noise: log_density(self, noise) + offset(self)


@mutant("normaliser with Γ(d + 1)", subject=LAPLACE, law="2 normaliser")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = _offset_density(NormLaplace, lambda law: -np.log(law.dimension))
    patch.setattr(NormLaplace, "log_density", wrong)


@mutant("normaliser with Γ(d − 1)", subject=LAPLACE, law="2 normaliser")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = _offset_density(NormLaplace, lambda law: np.log(law.dimension - 1))
    patch.setattr(NormLaplace, "log_density", wrong)


@mutant("normaliser β/2 of one dimension (erratum 1)", subject=LAPLACE, law="2 normaliser")
def _(patch: pytest.MonkeyPatch) -> None:
    def log_density(self: NormLaplace, noise: Any) -> Any:
        return np.log(self.rate / 2) - self.rate * np.linalg.norm(noise, axis=-1)

    patch.setattr(NormLaplace, "log_density", log_density)


@mutant("Gaussian normaliser of one dimension", subject=GAUSSIAN, law="2 normaliser")
def _(patch: pytest.MonkeyPatch) -> None:
    def offset(law: Gaussian) -> float:
        return (law.dimension - 1) * (np.log(law.scale) + 0.5 * np.log(2 * np.pi))

    patch.setattr(Gaussian, "log_density", _offset_density(Gaussian, offset))


# The loss.


@mutant("∥b − s∥ without its square root", subject=LAPLACE, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    def loss_from(self: NormLaplace, norm: Any, inner: Any, distance: Any) -> Any:
        numerator = distance * distance - 2 * inner
        return self.rate * numerator / (norm * norm + numerator + norm)

    patch.setattr(NormLaplace, "loss_from", loss_from)


@mutant("Gaussian loss over σ for σ²", subject=GAUSSIAN, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    loss_from = Gaussian.loss_from
    patch.setattr(Gaussian, "loss_from", lambda self, *given: loss_from(self, *given) * self.scale)


@mutant("Gaussian loss without its ½", subject=GAUSSIAN, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    loss_from = Gaussian.loss_from
    patch.setattr(Gaussian, "loss_from", lambda self, *given: 2 * loss_from(self, *given))


@mutant("the inner product's sign flipped", subject=LAPLACE, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    loss_from = NormLaplace.loss_from
    patch.setattr(
        NormLaplace,
        "loss_from",
        lambda self, norm, inner, distance: loss_from(self, norm, -inner, distance),
    )


def _turned(relation: Neighbouring) -> Any:
    row_losses = OutputPerturbation.row_losses

    def turned(self: OutputPerturbation, theta: Any, neighbours: Any) -> Any:
        losses = row_losses(self, theta, neighbours)
        if neighbours.relation is not relation:
            return losses
        return replace(losses, loss=-losses.loss, low=-losses.high, high=-losses.low)

    return turned


@mutant("the sign of the loss flipped", subject=LAPLACE, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OutputPerturbation, "row_losses", _turned(Neighbouring.REMOVE))


@mutant("the sign not turned for ADD", subject=GAUSSIAN, law="1 add")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OutputPerturbation, "row_losses", _turned(Neighbouring.ADD))


@mutant("the sign of the loss flipped, as simulation sees it", subject=LAPLACE, law="2")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OutputPerturbation, "row_losses", _turned(Neighbouring.REMOVE))


# The scale of the noise.


def _scaled_law(factor: float) -> Any:
    law = OutputPerturbation.law.func

    def scaled(self: OutputPerturbation) -> Any:
        right = law(self)
        if isinstance(right, NormLaplace):
            return replace(right, rate=right.rate * factor)
        return replace(right, scale=right.scale / factor)

    wrong = cached_property(scaled)
    wrong.__set_name__(OutputPerturbation, "law")
    return wrong


@mutant("β twice what ε allows", subject=HUBER, law="4")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OutputPerturbation, "law", _scaled_law(2.0))


@mutant("β half of what ε allows", subject=HUBER, law="4")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OutputPerturbation, "law", _scaled_law(0.5))


@mutant("σ half of what (ε, δ) needs", subject=GAUSSIAN_HUBER, law="4")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OutputPerturbation, "law", _scaled_law(2.0))


@mutant("σ twice what (ε, δ) needs", subject=GAUSSIAN_HUBER, law="4")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OutputPerturbation, "law", _scaled_law(0.5))


@mutant("sensitivity L/(nΛ) for 2L/(nΛ)", subject=HUBER, law="4")
def _(patch: pytest.MonkeyPatch) -> None:
    sensitivity = OutputPerturbation.sensitivity.fget
    patch.setattr(OutputPerturbation, "sensitivity", property(lambda self: sensitivity(self) / 2))


@mutant("sensitivity without n", subject=HUBER, law="4")
def _(patch: pytest.MonkeyPatch) -> None:
    sensitivity = OutputPerturbation.sensitivity.fget
    patch.setattr(
        OutputPerturbation, "sensitivity", property(lambda self: sensitivity(self) * self.rows)
    )


@mutant("squared loss taken for 1-Lipschitz", subject=SQUARED, law="4")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Squared, "lipschitz", lambda self, regularization: 1.0)


@mutant("squared loss taken for Y-Lipschitz", subject=SQUARED, law="4")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Squared, "lipschitz", lambda self, regularization: self.label_bound)


@mutant("Huber's loss taken for half as steep, Gaussian noise", subject=REGRESSION, law="4")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Huber, "lipschitz", lambda self, regularization: self.width / 2)


@mutant("Huber's loss taken for half as steep, pure", subject=PURE_REGRESSION, law="4")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Huber, "lipschitz", lambda self, regularization: self.width / 2)


@mutant("Huber's loss curved beyond its knots", subject=REGRESSION, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Huber, "curvature", lambda self, z, y: np.ones_like(z))


# The neighbours.


def _changed_neighbours(change: Callable[[Any], Any], **options: Any) -> Any:
    neighbours_of = expost.neighbouring.neighbours.neighbours_of

    def changed(*args: Any, **kwargs: Any) -> Any:
        return change(neighbours_of(*args, **{**kwargs, **options}))

    return changed


def _changed_rows(change: Callable[[Any], Any]) -> Any:
    rows_of = Change.changed_rows
    return lambda *args: change(rows_of(*args))


@mutant("q for q² in the curvature of the row that leaves", subject=LAPLACE, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(rows: Any) -> Any:
        return replace(rows, curvature=rows.curvature / rows.norms)

    patch.setattr(Change, "changed_rows", _changed_rows(wrong))


@mutant("the row that leaves kept in the Hessian", subject=LAPLACE, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(rows: Any) -> Any:
        return replace(rows, curvature=0 * rows.curvature)

    patch.setattr(Change, "changed_rows", _changed_rows(wrong))


def _changed_expansion(change: Callable[[Any], Any], **options: Any) -> Any:
    expand = expost.neighbouring.neighbours.expand
    return lambda *args, **kwargs: change(expand(*args, **{**kwargs, **options}))


@mutant("the row that enters taken for one that leaves", subject=SQUARED, law="1 add")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = _changed_expansion(lambda right: replace(right, leaving=1, entering=0))
    patch.setattr(expost.neighbouring.neighbours, "expand", wrong)


@mutant("replace (by an empty row) for remove", subject=LAPLACE, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = _changed_expansion(lambda right: replace(right, leaving=1, entering=0), entering=1)
    patch.setattr(expost.neighbouring.neighbours, "expand", wrong)


@mutant("v/n for v/(n − 1)", subject=HUBER, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(near: Any) -> Any:
        factor = near.rows_after / (near.rows_after + 1)
        constant, scale = factor * near.shifts.constant, factor * near.shifts.scale
        shifts = replace(near.shifts, constant=constant, scale=scale)
        return replace(near, shifts=shifts, distance=factor * near.distance)

    patch.setattr(expost.neighbouring.neighbours, "neighbours_of", _changed_neighbours(wrong))


@mutant("Λ dropped from v", subject=LAPLACE, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = _changed_expansion(lambda right: replace(right, pull=0 * right.pull))
    patch.setattr(expost.neighbouring.neighbours, "expand", wrong)


@mutant("the total penalty kept for Λ", subject=SQUARED, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = _changed_neighbours(lambda near: near, keep_total_penalty=True)
    patch.setattr(expost.neighbouring.neighbours, "neighbours_of", wrong)


@mutant("the paper's 2R − A with Newton's certificate", subject=LAPLACE, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(near: Any) -> Any:
        return replace(near, shifts=near.worst_case, distance=near.worst_case_distance)

    patch.setattr(expost.neighbouring.neighbours, "neighbours_of", _changed_neighbours(wrong))


@mutant("the Huber hinge's curvature 1/h", subject=HUBER, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HuberHinge, "curvature_bound", property(lambda self: 1 / self.width))


@mutant("the logistic curvature taken for ¼", subject=LAPLACE, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    def derivatives(self: Logistic, z: Any, y: Any) -> Any:
        return self.slope(z, y), np.full_like(z, 0.25)

    patch.setattr(Logistic, "derivatives", derivatives)
    patch.setattr(Logistic, "curvature", lambda self, z, y: np.full_like(z, 0.25))


# The certificate.


@mutant("no certificate: errors taken for 0", subject=LAPLACE, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(near: Any) -> Any:
        return replace(near, error_bound=0 * near.error_bound, base_error=0.0)

    patch.setattr(expost.neighbouring.neighbours, "neighbours_of", _changed_neighbours(wrong))


@mutant("no widening for the grid (norm-Laplace)", subject=LAPLACE, law="7 cells")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OutputPerturbation, "_grid_width", lambda self, theta, distance: 0 * distance)


@mutant("no widening for the grid (Gaussian)", subject=GAUSSIAN_SQUARED, law="7 cells")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OutputPerturbation, "_grid_width", lambda self, theta, distance: 0 * distance)


# Clipping.


@mutant("rows not clipped", subject=HUBER, law="4 clipping")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UnitBall, "rows", lambda self, X: (np.asarray(X) / self.data_norm, 0))


@mutant("coordinates clipped for rows", subject=HUBER, law="4 clipping")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UnitBall, "rows", lambda self, X: (np.clip(X, -1, 1) / self.data_norm, 0))


@mutant("labels not clipped", subject=SQUARED, law="4 clipping")
def _(patch: pytest.MonkeyPatch) -> None:
    def inside(self: LabelScale, y: Any) -> Any:
        return (np.asarray(y) - self.centre) / self.scale

    patch.setattr(LabelScale, "inside", inside)


# The law of the loss.


@mutant("E∣ℓ∣ for E[ℓ] (erratum 2)", subject=LAPLACE, law="3")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NormLaplaceLaw, "expected_loss", NormLaplaceLaw.expected_exposure)


@mutant("the law of d + 1 dimensions", subject=LAPLACE, law="3")
def _(patch: pytest.MonkeyPatch) -> None:
    law = NormLaplace.law

    def wrong(self: NormLaplace, distance: Any) -> Any:
        return replace(law(self, distance), dimension=self.dimension + 1)

    patch.setattr(NormLaplace, "law", wrong)


@mutant("μ² for μ²/2", subject=GAUSSIAN, law="3")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GaussianLaw, "expected_loss", property(lambda self: self.separation**2))


@mutant("½(1 + TV) for the expected posterior", subject=LAPLACE, law="5")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: NormLaplaceLaw, prior: float = 0.5) -> Any:
        return 0.5 * (1 + self.advantage)

    patch.setattr(NormLaplaceLaw, "expected_posterior", wrong)


# Objective perturbation: the determinant.


def _changed_volume(change: Callable[..., tuple[Any, Any]]) -> Any:
    volume = Tangent._volume

    def wrong(self: Tangent, parts: Any) -> Any:
        h = self.leverage.eigenvalues(parts[0])[:, 0]
        return change(*volume(self, parts), h)

    return wrong


@mutant("no determinant in the loss", subject=OBJECTIVE, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = _changed_volume(lambda value, error, h: (0 * value, error))
    patch.setattr(Tangent, "_volume", wrong)


@mutant("no determinant in the loss of an exchange", subject=OBJECTIVE_SQUARED, law="1 replace")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = _changed_volume(lambda value, error, h: (0 * value, error))
    patch.setattr(Tangent, "_volume", wrong)


@mutant("+log(1 − f″μ) for −log(1 − f″μ) (erratum 5)", subject=OBJECTIVE_HUBER, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = _changed_volume(lambda value, error, h: (-value, error))
    patch.setattr(Tangent, "_volume", wrong)


@mutant("log(1 + f″μ) for −log(1 − f″μ)", subject=OBJECTIVE_SQUARED, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = _changed_volume(lambda value, error, h: (np.log1p(h), error))
    patch.setattr(Tangent, "_volume", wrong)


@mutant("−log(1 − f″μ) for a row that enters", subject=OBJECTIVE_SQUARED, law="1 add")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = _changed_volume(lambda value, error, h: (-np.log1p(-h), error))
    patch.setattr(Tangent, "_volume", wrong)


@mutant("the Hessian without the row in −log(1 − f″μ)", subject=OBJECTIVE_HUBER, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    own = leverage._ScalarLeverage._own

    def wrong(self: Any, rows: Any, roots: Any) -> Any:
        h = own(self, rows, roots)
        return np.minimum(h / (1 - h), 0.9)

    patch.setattr(leverage._ScalarLeverage, "_own", wrong)


@mutant("the leaving row still in the Hessian of an exchange", subject=OBJECTIVE, law="1 replace")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, first: Any, second: Any, spread: float, error: Any) -> Any:
        w = self.eigenvalues(second)
        return w, np.zeros(len(w)), np.zeros(len(w))

    patch.setattr(leverage._ScalarLeverage, "after", wrong)


@mutant("μ = ∥x∥²/λ for xᵀH⁻¹x", subject=OBJECTIVE_PURE, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, rows: Any, roots: Any) -> Any:
        return rows.derivatives.curvature * rows.norms**2 / self.hessian.penalty

    patch.setattr(leverage._ScalarLeverage, "_own", wrong)


# Objective perturbation: the gradient.


def _changed_tangent(change: Callable[[Tangent], Tangent]) -> Any:
    at = Tangent.at.__func__
    return classmethod(lambda cls, *given: change(at(cls, *given)))


@mutant("the gradient of the averaged objective", subject=OBJECTIVE, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(losses: Tangent) -> Tangent:
        return replace(losses, gradient=losses.gradient / losses.problem.count)

    patch.setattr(Tangent, "at", _changed_tangent(wrong))


@mutant("the gradient without its penalty", subject=OBJECTIVE_PURE, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(losses: Tangent) -> Tangent:
        penalty = losses.mechanism.penalty_sum * losses.theta
        return replace(losses, gradient=losses.gradient - penalty)

    patch.setattr(Tangent, "at", _changed_tangent(wrong))


@mutant("b for −b", subject=OBJECTIVE, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = _changed_tangent(lambda losses: replace(losses, gradient=-losses.gradient))
    patch.setattr(Tangent, "at", wrong)


@mutant("σ for σ² under objective perturbation", subject=OBJECTIVE, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    loss_from = Gaussian.loss_from
    patch.setattr(Gaussian, "loss_from", lambda self, *given: loss_from(self, *given) * self.scale)


@mutant("λ of n − 1 rows", subject=OBJECTIVE, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    penalty = ObjectivePerturbation.penalty_sum.fget
    patch.setattr(
        ObjectivePerturbation,
        "penalty_sum",
        property(lambda self: penalty(self) * (self.rows - 1) / self.rows),
    )


@mutant("a row that enters taken for one that leaves", subject=OBJECTIVE_SQUARED, law="1 add")
def _(patch: pytest.MonkeyPatch) -> None:
    row_losses = Tangent.row_losses

    def wrong(self: Tangent, change: Any) -> Any:
        if change.relation is Neighbouring.ADD:
            change = Change(leaving=change.entering)
        return row_losses(self, change)

    patch.setattr(Tangent, "row_losses", wrong)


@mutant("the sign not turned for ADD, objective", subject=OBJECTIVE_PURE, law="1 add")
def _(patch: pytest.MonkeyPatch) -> None:
    row_losses = Tangent.row_losses

    def wrong(self: Tangent, change: Any) -> Any:
        losses = row_losses(self, change)
        if change.relation is not Neighbouring.ADD:
            return losses
        return replace(losses, loss=-losses.loss, low=-losses.high, high=-losses.low)

    patch.setattr(Tangent, "row_losses", wrong)


# Objective perturbation: the interval.


def _ignore_the_cell(patch: pytest.MonkeyPatch) -> None:
    for name in ("half_cell", "reach_of_cell"):
        patch.setattr(ObjectivePerturbation, name, property(lambda self: 0.0))


@mutant("no widening for the grid, objective", subject=OBJECTIVE, law="7 cells")
def _(patch: pytest.MonkeyPatch) -> None:
    _ignore_the_cell(patch)


@mutant("no widening for the grid, pure objective", subject=PURE_HUBER, law="7 cells")
def _(patch: pytest.MonkeyPatch) -> None:
    _ignore_the_cell(patch)


# Objective perturbation: the release.


def _tilted_by(change: Callable[[ObjectivePerturbation, Any], Any]) -> Any:
    minimiser = ObjectivePerturbation.minimiser
    return lambda self, problem, noise: minimiser(self, problem, change(self, noise))


@mutant("b·θ beside the averaged objective", subject=OBJECTIVE, law="2 release")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = _tilted_by(lambda self, noise: noise * self.rows)
    patch.setattr(ObjectivePerturbation, "minimiser", wrong)


@mutant("½b·θ for b·θ", subject=OBJECTIVE_PURE, law="2 release")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ObjectivePerturbation, "minimiser", _tilted_by(lambda self, noise: noise / 2))


@mutant("the minimiser without its b", subject=PURE_HUBER, law="2 release")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ObjectivePerturbation, "minimiser", _tilted_by(lambda self, noise: 0 * noise))


@mutant("a coordinate of b left out", subject=OBJECTIVE_SQUARED, law="2 release")
def _(patch: pytest.MonkeyPatch) -> None:
    wrong = _tilted_by(lambda self, noise: np.where(np.arange(len(noise)) > 0, noise, 0.0))
    patch.setattr(ObjectivePerturbation, "minimiser", wrong)


@mutant("objective noise drawn at twice its scale", subject=OBJECTIVE, law="2")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Gaussian, "sample", _scaled_sampler(Gaussian, 2.0))


@mutant("objective norms drawn from Gamma(d + 1)", subject=OBJECTIVE_PURE, law="2")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NormLaplace, "sample", _norm_sampler(lambda d: d + 1))


# Objective perturbation: the calibration.


def _objective_law(change: Callable[[ObjectivePerturbation, Any], Any]) -> Any:
    law = ObjectivePerturbation.law.func
    wrong = cached_property(lambda self: change(self, law(self)))
    wrong.__set_name__(ObjectivePerturbation, "law")
    return wrong


def _scaled_by(factor: float) -> Any:
    def change(self: ObjectivePerturbation, right: Any) -> Any:
        if isinstance(right, NormLaplace):
            return replace(right, rate=right.rate * factor)
        return replace(right, scale=right.scale / factor)

    return _objective_law(change)


@mutant("objective σ 0.8 of what (ε, δ) needs, logistic", subject=OBJECTIVE, law="4")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ObjectivePerturbation, "law", _scaled_by(1.25))


@mutant("objective σ 0.8 of what (ε, δ) needs, Huber hinge", subject=OBJECTIVE_HUBER, law="4")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ObjectivePerturbation, "law", _scaled_by(1.25))


@mutant("objective σ twice what (ε, δ) needs", subject=OBJECTIVE_HUBER, law="4")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ObjectivePerturbation, "law", _scaled_by(0.5))


@mutant("β of a removal taken for an exchange's", subject=PURE_HUBER, law="4")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ObjectivePerturbation, "law", _scaled_by(2.0))


@mutant("the determinant's part of ε forgotten", subject=PURE_HUBER, law="4")
def _(patch: pytest.MonkeyPatch) -> None:
    def change(self: ObjectivePerturbation, right: Any) -> Any:
        return replace(right, rate=self.epsilon / 2)

    patch.setattr(ObjectivePerturbation, "law", _objective_law(change))


@mutant("the printed σ of Kifer et al., a variance (erratum 4)", subject=PUBLISHED.name, law="4")
def _(patch: pytest.MonkeyPatch) -> None:
    def change(self: ObjectivePerturbation, right: Any) -> Any:
        return replace(right, scale=right.scale**2)

    patch.setattr(ObjectivePerturbation, "law", _objective_law(change))


@mutant("λ not raised for a small ε", subject=OBJECTIVE_HUBER, law="7")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        ObjectivePerturbation,
        "penalty_sum",
        property(lambda self: self.rows * self.regularization),
    )


# The margin of the logistic loss.


@mutant("no margin in the curvature", subject=OBJECTIVE_MARGIN, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    derivatives = Logistic.derivatives

    def wrong(self: Logistic, z: Any, y: Any) -> Any:
        return derivatives(self, z, y)[0], derivatives(Logistic(), z, y)[1]

    patch.setattr(Logistic, "derivatives", wrong)


@mutant("no margin in the increment", subject=MARGIN, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    increment = Logistic.increment
    patch.setattr(Logistic, "increment", lambda self, *given: increment(Logistic(), *given))


@mutant("z + ya for z − ya", subject=OBJECTIVE_MARGIN, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    shares = Logistic._shares

    def wrong(self: Logistic, z: Any, y: Any) -> Any:
        share, rest = shares(self, -z, y)
        return rest, share

    patch.setattr(Logistic, "_shares", wrong)


@mutant("the margin for either label that of the positive one", subject=MARGIN, law="1 remove")
def _(patch: pytest.MonkeyPatch) -> None:
    for name in ("slope", "derivatives", "increment"):
        function = getattr(Logistic, name)

        def wrong(self: Logistic, z: Any, y: Any, *rest: Any, _right: Any = function) -> Any:
            return _right(Logistic(), z - self.margin, y, *rest)

        patch.setattr(Logistic, name, wrong)


# The rows that are fitted and predicted.


@mutant("rows of predictions not clipped", subject=OBJECTIVE, law="4 predictions")
def _(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Release, X: Any) -> Any:
        if self.encodes(X):
            X = self.table_encoding.encode_features(X)
        coef, intercept = self.ball.coefficients(self.theta)
        return np.asarray(X) @ coef + intercept

    patch.setattr(Release, "scores", wrong)


@mutant("numbers not cut", subject=GAUSSIAN, law="4 predictions")
def _(patch: pytest.MonkeyPatch) -> None:
    encode = NumericEntry.encode
    wrong = lambda self, *given: encode(replace(self, cut=None), *given)  # noqa: E731
    patch.setattr(NumericEntry, "encode", wrong)


@mutant("numbers of predictions not cut", subject=OBJECTIVE_HUBER, law="4 predictions")
def _(patch: pytest.MonkeyPatch) -> None:
    encode = Encoding.encode_features
    patch.setattr(Encoding, "encode_features", lambda self, X: encode(self.uncut(), X))


@mutant("numbers cut at ±3", subject=LAPLACE, law="4 predictions")
def _(patch: pytest.MonkeyPatch) -> None:
    encode = NumericEntry.encode
    patch.setattr(
        NumericEntry, "encode", lambda self, *given: encode(replace(self, cut=3.0), *given)
    )


@mutant("an intercept of 0.1", subject=OBJECTIVE, law="4 predictions")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(expost.training, "default_intercept", lambda columns: 0.1)


@mutant("an intercept of 1/√p", subject=PURE_HUBER, law="4 predictions")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(expost.training, "default_intercept", lambda columns: columns**-0.5)


@mutant("an intercept of 1/√(p + 1), whatever p", subject=OBJECTIVE, law="4 predictions")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(expost.training, "default_intercept", lambda columns: (columns + 1) ** -0.5)


@mutant("an intercept of 1/√8, whatever p", subject=OBJECTIVE_HUBER, law="4 predictions")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(expost.training, "default_intercept", lambda columns: 8**-0.5)


@mutant("clipped to √p", subject=OBJECTIVE, law="4 predictions")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(expost.training, "default_norm", lambda columns: columns**0.5)
