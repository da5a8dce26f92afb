"""Objective perturbation of rows on a line: what a release really gives away, by exact masses.

In one dimension θ ↦ b is a decreasing bijection, so that the mass of a cell of θ is a difference of
the noise's distribution function at ∇J. Summing cells up gives the divergence of a release that is
rounded to them: a lower bound of the true one, and little below it. A guarantee that it passes is
broken. Nothing here imports the package.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats
from scipy.special import expit, ndtr


def slope(loss: str, z: Any, y: Any, width: float = 0.5, margin: float = 0.0) -> Any:
    """f′ of the logistic loss, the Huber hinge, Huber's or the squared loss."""
    match loss:
        case "logistic":
            return -y * expit(margin - y * z)
        case "huber-hinge":
            return -y * np.clip((1 + width - y * z) / (2 * width), 0, 1)
        case "huber":
            return np.clip(z - y, -width, width)
        case _:
            return z - y


@dataclass(frozen=True, kw_only=True, eq=False)
class Line:
    """Rows, each ``times`` over, λ, and b of scale ``unit``: σ, or 1/β. The first row counts."""

    x: Any
    y: Any
    times: Any
    loss: str
    penalty_sum: float
    noise: str
    unit: float
    width: float = 0.5
    margin: float = 0.0

    def gradient(self, theta: Any) -> Any:
        total = self.penalty_sum * theta
        for x, y, times in zip(self.x, self.y, self.times, strict=True):
            steep = slope(self.loss, x * theta, y, self.width, self.margin)
            total = total + times * x * steep
        return total

    def edges(self, cells: int) -> Any:
        """Edges of θ that are about even steps of b, out to where nothing of it is left."""
        far = 14 * self.unit if self.noise == "gaussian" else 60 * self.unit
        reach = (far + sum(self.times)) / self.penalty_sum
        theta = np.sinh(np.linspace(-12, 12, 4001)) / np.sinh(12) * reach
        return np.interp(np.linspace(-far, far, cells), self.gradient(theta), theta)

    def knots(self) -> Any:
        """Where f″ jumps."""
        if self.loss not in ("huber-hinge", "huber"):
            return np.empty(0)
        rows = [(x, y) for x, y in zip(self.x, self.y, strict=True) if x != 0]
        if self.loss == "huber":
            return np.array([(y + side * self.width) / x for x, y in rows for side in (-1, 1)])
        return np.array([y * (1 + side * self.width) / x for x, y in rows for side in (-1, 1)])

    def masses(self, edges: Any) -> Any:
        """P(θ in each cell), the two unbounded ones included."""
        at = np.concatenate([[-np.inf], self.gradient(edges), [np.inf]]) / self.unit
        below = ndtr if self.noise == "gaussian" else scipy.stats.laplace.cdf
        # On the right by the other tail, which does not cancel.
        left, right = np.diff(below(at)), -np.diff(below(-at))
        return np.where(at[:-1] > 0, right, left)

    def without_first(self) -> "Line":
        """The law of θ without the first row."""
        return dataclasses.replace(self, x=self.x[1:], y=self.y[1:], times=self.times[1:])

    def exchanged(self, x: float, y: float) -> "Line":
        """The law of θ with the first row exchanged for another."""
        return dataclasses.replace(self, x=np.append(x, self.x[1:]), y=np.append(y, self.y[1:]))


def pair(line: Line, other: Line, cells: int = 2501) -> tuple[Any, Any]:
    """Masses of two laws on cells that are fine under both, and wide enough to be accurate."""
    edges = np.unique(np.concatenate([line.edges(cells), other.edges(cells)]))
    steps = np.minimum(np.diff(line.gradient(edges)), np.diff(other.gradient(edges)))
    edges = edges[np.append(True, steps > 1e-5 * line.unit)]
    # Beside a knot the cells are narrow: what holds there alone is not averaged away.
    knots = np.concatenate([line.knots(), other.knots()])
    beside = 1e-4 * line.unit / (line.penalty_sum + sum(line.times)) if len(knots) else 0.0
    edges = np.unique(np.concatenate([edges, knots - beside, knots, knots + beside]))
    return line.masses(edges), other.masses(edges)


def divergence(p: Any, q: Any, epsilon: float) -> float:
    """δ(ε) = Σ(p − e^ε q)₊, the hockey stick."""
    return float(np.sum(np.maximum(p - np.exp(epsilon) * q, 0.0)))


def largest_ratio(p: Any, q: Any) -> float:
    """max ∣log p/q∣ over cells with mass enough to tell."""
    positive = (p > 1e-250) & (q > 1e-250)
    return float(np.max(np.abs(np.log(p[positive] / q[positive]))))


def passing(p: Any, q: Any, epsilon: float) -> float:
    """P(∣loss∣ > ε) under the first law."""
    positive = (p > 1e-250) & (q > 1e-250)
    p, q = p[positive], q[positive]
    return float(np.sum(p[np.abs(np.log(p / q)) > epsilon]))
