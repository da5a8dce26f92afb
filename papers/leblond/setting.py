"""The paper's setting: Adult as its footnote 2 prepares it, exact neighbours, output perturbation.

    x ← (x − mean)/standard deviation, column by column; then every row by the largest row's norm.

Training split, columns age and education-num, Λ = 1, logistic loss, no intercept, β = nΛε/2 (the
mechanism's β is smaller by the 3e-8 that its certified minimiser costs).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from expost.data import Encoding, UnitBall, open_table
from expost.epsilon.limit import PosteriorLimit
from expost.epsilon.sweep import LawSweep
from expost.errors import InvalidInput, PrivacyLeakWarning
from expost.glm import Objective, minimise
from expost.losses import Logistic
from expost.mechanisms import OutputPerturbation
from expost.neighbouring.neighbours import Neighbours, neighbours_of, tight_neighbours
from expost.notices import ignored
from expost.types import FloatArray, IntArray
from papers.datasets import Dataset

__all__ = ["SIX", "TOLERANCE", "TWO", "Effort", "Setting", "encoded_rows", "normalised_rows"]

TWO = ("age", "education-num")
SIX = (*TWO, "hours-per-week", "capital-gain", "capital-loss", "fnlwgt")
# How far off a plateau still counts as on it: a tenth of the way to the other one.
TOLERANCE = 0.1


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is sampled; the tests take less.

    ``models``      for the rank-averaged profiles of Figs 5 and 6.
    ``batches``     of ``draws`` models each, for every row's sampled onset (Fig. 7).
    ``releases``    by objective perturbation at each ε.
    ``dimensions``, ``regularizations``  at which the open questions are answered.
    """

    models: int = 200
    batches: int = 10
    draws: int = 40_000
    releases: int = 100
    dimensions: tuple[int, ...] = (
        *(1, 2, 3, 4, 5, 6, 8, 10, 14, 20, 30, 50, 80, 108),
        *(200, 300, 500, 1000, 2000, 3000),
    )
    regularizations: tuple[float, ...] = tuple(10.0 ** (step / 4) for step in range(-16, 5))


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """Rows in the unit ball, the minimisers without each of them, and the mechanism at ε = 1."""

    neighbours: Neighbours
    mechanism: OutputPerturbation

    @classmethod
    def of(
        cls, X: FloatArray, y: FloatArray, *, regularization: float = 1.0, exact: bool = True
    ) -> "Setting":
        """Return the setting of these rows; neighbours to 1e-9 of their distance, or else 1e-3."""
        n, d = X.shape
        loss = Logistic()
        problem = Objective.of(X=X, y=y, loss=loss, penalty=np.full(d, regularization))
        base = minimise(problem)
        return cls(
            neighbours=(
                neighbours_of(problem, base, method="exact")
                if exact
                else tight_neighbours(problem, base)
            ),
            mechanism=OutputPerturbation(
                epsilon=1.0, loss=loss, regularization=regularization, rows=n, dimension=d
            ),
        )

    @property
    def rows(self) -> int:
        """n."""
        return len(self.neighbours)

    @property
    def dimension(self) -> int:
        """d."""
        return self.mechanism.dimension

    @property
    def distance(self) -> FloatArray:
        """(n,) ∣A(x) − A(yᵢ)∣."""
        return self.neighbours.distance

    @property
    def farthest(self) -> int:
        """The row of y_max, counted from 0."""
        return int(np.argmax(self.distance))

    @property
    def rate(self) -> float:
        """β at ε = 1."""
        return 1 / self.mechanism.resolution

    @property
    def worst_case_error(self) -> FloatArray:
        """(n,) ∣A_wc(yᵢ) − A(yᵢ)∣/∣A(yᵢ) − A(x)∣ (LeBlond 5.1)."""
        miss = self.neighbours.worst_case.all() - self.neighbours.shift
        error: FloatArray = np.linalg.norm(miss, axis=1) / self.distance
        return error

    @property
    def flattest(self) -> float:
        """The least eigenvalue of the mean loss's Hessian at A(x), the penalty left out."""
        problem = self.neighbours.objective
        _, curvature = problem.loss.derivatives(
            problem.held.X @ self.neighbours.base, problem.held.y
        )
        hessian = (problem.held.X * curvature[:, None]).T @ problem.held.X / self.rows
        return float(np.linalg.eigvalsh(hessian)[0])

    def sweep(
        self,
        epsilons: FloatArray | None = None,
        *,
        noise: str = "laplace",
        delta: float | None = None,
        models: int = 2,
        seed: np.random.SeedSequence | None = None,
    ) -> LawSweep:
        """Return all rows' losses over ε: low, high, and the rank-averaged profiles."""
        return LawSweep.of(
            self.neighbours,
            mechanism=replace(self.mechanism, noise=noise, delta=delta),
            limit=PosteriorLimit(),
            epsilons=np.ones(1) if epsilons is None else epsilons,
            tolerance=TOLERANCE,
            share=0.5,
            models=models,
            seed=np.random.SeedSequence(0) if seed is None else seed,
        )

    def spectrum(self, shares: Sequence[float]) -> IntArray:
        """Rows at these shares of the distances, from the nearest (0) to y_max (1)."""
        order = np.argsort(self.distance, kind="stable")
        order[-1] = self.farthest
        places = [round(share * (self.rows - 1)) for share in shares]
        return np.asarray(order[places], dtype=np.int64)

    def refitted(self, row: int) -> FloatArray:
        """A(yᵢ) by brute force: the model fitted again without ``row``."""
        problem = self.neighbours.objective
        kept = np.arange(self.rows) != row
        return minimise(replace(problem, rows=problem.held.take(kept))).theta


def normalised_rows(adult: Dataset, columns: Sequence[str] = TWO) -> tuple[FloatArray, FloatArray]:
    """X (n, d) as footnote 2 of the paper prepares it, and y (±1)."""
    X = adult.numeric(columns)
    scale = X.std(axis=0)
    if not np.all(scale > 0):
        raise InvalidInput("Adult: a column is constant in these rows; take more of them.")
    X = (X - X.mean(axis=0)) / scale
    return X / np.linalg.norm(X, axis=1).max(), adult.labels()


def encoded_rows(adult: Dataset) -> tuple[FloatArray, FloatArray]:
    """All columns: numbers standardised, the others one 0/1 feature a level; by the largest row."""
    table = open_table(adult.table.drop_columns(["split"]))
    # Adult is public: nothing leaks by reading its levels.
    with ignored(PrivacyLeakWarning):
        encoding = Encoding.read(table, target=adult.target, classes=("<=50K", ">50K"))
    encoded = encoding.uncut().encode_table(table)
    return encoded.X / UnitBall.largest_norm(encoded.X), encoded.y
