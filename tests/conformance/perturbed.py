"""Objective perturbation at 50 digits: densities of θ by their definition, every determinant taken.

p(θ ∣ D) = p_b(−∇J(θ; D))·det ∇²J(θ; D), J the summed objective. Nothing here imports the package.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpmath import mp, mpf

from conformance import exact


@dataclass(frozen=True, kw_only=True, eq=False)
class Perturbed:
    """θ = argmin Σℓ + (λ/2)∥θ∥² + b·θ with b of scale ``unit``: σ, or 1/β."""

    X: Any
    y: Any
    penalty_sum: float
    loss: str
    noise: str
    unit: float
    width: float = 0.5
    margin: float = 0.0

    def tangent(self, theta: Sequence[mpf]) -> tuple[list[mpf], Any]:
        """∇J and ∇²J, summed over the rows."""
        rows = len(self.X)
        objective = exact.Objective(
            X=self.X,
            y=self.y,
            # One of its rows' shares: the sum of the rows and λ, divided by their number.
            regularization=mpf(self.penalty_sum) / rows,
            loss=self.loss,
            width=self.width,
            margin=self.margin,
        )
        _, gradient, hessian = objective.evaluate(theta)
        return [rows * entry for entry in gradient], rows * hessian

    def log_density(self, theta: Sequence[mpf]) -> mpf:
        """log p(θ ∣ D), but for the normaliser of b, which neighbours share."""
        with mp.workdps(exact.DIGITS):
            gradient, hessian = self.tangent(theta)
            norm = mp.norm(mp.matrix(gradient)) / mpf(self.unit)
            falling = norm if self.noise == "laplace" else norm**2 / 2
            return mp.log(mp.det(hessian)) - falling

    def minimiser(self, noise: Any, hint: Any) -> list[mpf]:
        """Where ∇J = −b, by Newton; ∥∇J + b∥ ≤ 1e-38 proves it, whatever the hint."""
        with mp.workdps(exact.DIGITS):
            theta = mp.matrix([mpf(float(entry)) for entry in hint])
            b = mp.matrix([mpf(float(entry)) for entry in noise])
            for _ in range(200):
                gradient, hessian = self.tangent(list(theta))
                residual = mp.matrix(gradient) + b
                if mp.norm(residual) <= mpf(10) ** -38:
                    return list(theta)
                theta -= mp.lu_solve(hessian, residual)
        raise ArithmeticError("the reference minimiser did not converge")


def points(theta: Any, step: Any = None) -> list[mpf]:
    """θ + step at 50 digits: their sum is not rounded."""
    with mp.workdps(exact.DIGITS):
        moved = np.zeros(len(theta)) if step is None else step
        return [mpf(float(a)) + mpf(float(b)) for a, b in zip(theta, moved, strict=True)]
