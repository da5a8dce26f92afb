"""The truth at 50 digits: minimisers and log-density ratios, by the formulas as they stand.

Nothing here imports the package: losses, objective and densities are written out again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpmath import mp, mpf

DIGITS = 50


@dataclass(frozen=True, kw_only=True, eq=False)
class Objective:
    """J(θ) = (1/n) Σ f(xᵢ·θ; yᵢ) + (Λ/2)∥θ∥² for one of three losses, at 50 digits."""

    X: Any
    y: Any
    regularization: float
    loss: str
    width: float = 0.5
    margin: float = 0.0

    def pieces(self, z: mpf, y: mpf) -> tuple[mpf, mpf, mpf]:
        """(f, f′, f″) at the predictor z."""
        if self.loss == "squared":
            return (z - y) ** 2 / 2, z - y, mpf(1)
        if self.loss == "huber":
            gap, h = z - y, mpf(self.width)
            if abs(gap) < h:
                return gap**2 / 2, gap, mpf(1)
            return h * (abs(gap) - h / 2), h * mp.sign(gap), mpf(0)
        if self.loss == "logistic":
            excess = mp.exp(mpf(self.margin) - y * z)
            tail = excess / (1 + excess)
            return mp.log1p(excess), -y * tail, tail * (1 - tail)
        h, u = mpf(self.width), y * z
        if u >= 1 + h:
            return mpf(0), mpf(0), mpf(0)
        if u <= 1 - h:
            return 1 - u, -y, mpf(0)
        return (1 + h - u) ** 2 / (4 * h), -y * (1 + h - u) / (2 * h), 1 / (2 * h)

    def evaluate(self, theta: Sequence[mpf]) -> tuple[mpf, list[mpf], Any]:
        """J, ∇J and ∇²J at θ."""
        n, d = np.shape(self.X)
        rows, counts = np.unique(np.column_stack([self.X, self.y]), axis=0, return_counts=True)
        penalty = mpf(self.regularization)
        value = penalty / 2 * sum(t * t for t in theta)
        gradient = [penalty * t for t in theta]
        hessian = mp.diag([penalty] * d)
        for row, count in zip(rows, counts, strict=True):
            share = mpf(int(count)) / n
            *x, label = (mpf(float(entry)) for entry in row)
            f, slope, curvature = self.pieces(mp.fdot(x, theta), label)
            value += share * f
            for j in range(d):
                gradient[j] += share * slope * x[j]
                for k in range(d):
                    hessian[j, k] += share * curvature * x[j] * x[k]
        return value, gradient, hessian

    def minimiser(self, hint: Any) -> list[mpf]:
        """A, by Newton from ``hint``; ∥∇J∥ ≤ 1e-42 proves where it lies, whatever the hint."""
        with mp.workdps(DIGITS):
            theta = [mpf(float(t)) for t in hint]
            _, gradient, hessian = self.evaluate(theta)
            for _ in range(100):
                size = mp.norm(mp.matrix(gradient))
                if size <= mpf(10) ** -42:
                    return theta
                step = mp.lu_solve(hessian, -mp.matrix(gradient))
                trial = [t + s for t, s in zip(theta, step, strict=True)]
                there = self.evaluate(trial)
                if mp.norm(mp.matrix(there[1])) > size / 2:
                    trial = self.along(theta, step)
                    there = self.evaluate(trial)
                theta, (_, gradient, hessian) = trial, there
        raise ArithmeticError("the reference minimiser did not converge")

    def along(self, theta: list[mpf], step: Any) -> list[mpf]:
        """The minimum of J on the way from θ to θ + 2·step, by bisecting its derivative."""
        low, high = mpf(0), mpf(2)
        for _ in range(30):
            middle = (low + high) / 2
            trial = [t + middle * s for t, s in zip(theta, step, strict=True)]
            if mp.fdot(self.evaluate(trial)[1], step) <= 0:
                low = middle
            else:
                high = middle
        return [t + (low or high) * s for t, s in zip(theta, step, strict=True)]


def laplace_log_ratio(theta: Any, centre: Any, other: Any, rate: float) -> mpf:
    """log of exp(−β∥θ − centre∥)/exp(−β∥θ − other∥)."""
    with mp.workdps(DIGITS):
        return mpf(rate) * (_apart(theta, other) - _apart(theta, centre))


def gaussian_log_ratio(theta: Any, centre: Any, other: Any, scale: float) -> mpf:
    """log of exp(−∥θ − centre∥²/2σ²)/exp(−∥θ − other∥²/2σ²)."""
    with mp.workdps(DIGITS):
        far, near = _apart(theta, other), _apart(theta, centre)
        return (far * far - near * near) / (2 * mpf(scale) ** 2)


def laplace_cell(low: Any, high: Any, rate: float) -> mpf:
    """P(low ≤ b ≤ high) for one-dimensional Laplace noise of density (β/2)exp(−β∣b∣)."""
    with mp.workdps(DIGITS):
        beta = mpf(rate)
        if low >= 0:
            return (mp.exp(-beta * low) - mp.exp(-beta * high)) / 2
        if high <= 0:
            return laplace_cell(-high, -low, rate)
        return 1 - (mp.exp(-beta * high) + mp.exp(beta * low)) / 2


def gaussian_cell(low: Any, high: Any, scale: float) -> mpf:
    """P(low ≤ b ≤ high) for N(0, σ²)."""
    with mp.workdps(DIGITS):
        return mp.ncdf(high / mpf(scale)) - mp.ncdf(low / mpf(scale))


def gaussian_delta(epsilon: float, mu: float) -> mpf:
    """Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) (Balle and Wang 2018)."""
    with mp.workdps(DIGITS):
        e, m = mpf(epsilon), mpf(mu)
        return mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)


def gaussian_separation(epsilon: float, delta: float) -> float:
    """The largest μ with δ(ε, μ) ≤ δ."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(epsilon, middle) <= delta else (low, middle)
    return low


def _apart(theta: Any, centre: Any) -> mpf:
    pairs = zip(theta, centre, strict=True)
    return mp.sqrt(sum((mpf(float(t)) - c) ** 2 for t, c in pairs))
