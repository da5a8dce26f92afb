"""Several snapshots of one training, put together: what an observer of federated rounds holds.

Conventions
-----------
s snapshots of the target are seen, at s epochs; φₜ is a row's confidence (``Evidence``) at the
t-th. References, if there are any, were trained like the target and seen at the same epochs.

Scores, one a row, the larger the more likely a member:

mean     the mean over t of (φₜ − aₜ)/bₜ, a and b the mean and standard deviation of the
         population's φₜ (of the rows in question where there is none): each snapshot counts alike,
         however confident models have become by then.
ratio    with references on both sides of each row: φ = (φ₁, …, φ_s) is taken for normal over
         trainings, with the row and without, and

             log N(φ; μ_in, Σ_in) − log N(φ; μ_out, Σ_out),

         means of each row and one covariance a side for all rows, enlarged by 1 + 1/k for the mean
         of k references. With one snapshot it is LiRA with pooled variances (Carlini et al. 2022).
         The covariance matters: snapshots of one training go together, and the sum of their s log
         ratios (``joint=False``) counts the same evidence s times.
offline  with references without each row alone: z = φ − μ_out and wᵀz/√(wᵀΣw), w = Σ⁻¹σ with σ the
         standard deviations, which is the best order if membership moves every φₜ by one and the
         same number of them.

Covariances are drawn towards their diagonal by ``SHRINKAGE``, since snapshots next to each other
differ by little, of which a normal law would make much.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from expost import _checks
from expost._numerics import row_blocks
from expost.auditing.evidence import LARGEST, Confidences, Flags
from expost.auditing.roc import AttackFigures, figures
from expost.errors import InvalidInput
from expost.types import Audience, FloatArray
from papers.common.drawn import Drawn
from papers.common.figures import Display
from papers.lecture import displays

__all__ = [
    "LECTURE",
    "EpochTable",
    "ObservedEpochs",
    "Snapshots",
    "accuracy_by_epochs",
    "mean_score",
    "offline_score",
    "ratio_score",
    "snapshot_scores",
]

# The sets of observed epochs in the lecture's table (Nasr et al. 2019, CIFAR100 and AlexNet).
LECTURE = (
    (5, 10, 15, 20, 25),
    (10, 20, 30, 40, 50),
    (50, 100, 150, 200, 250),
    (100, 150, 200, 250, 300),
)
SHRINKAGE = 0.1
# Of a variance: the deviation is then a few steps of float32 at φ = 36.
_LEAST = 1e-10


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshots(Drawn):
    """Confidences at several epochs; nothing of it says who was a member.

    ``epochs``      (s,) rising.
    ``confidence``  (s, n) φ of each row under the target.
    ``references``  (s, m, n) φ under each reference; ``inside`` (m, n) whether it was trained with
                    the row.
    ``population``  (s, k) φ under the target of rows that surely were not in its training.
    """

    epochs: NDArray[np.int64]
    confidence: Confidences
    references: Confidences = field(default_factory=lambda: np.zeros((0, 0, 0), np.float32))
    inside: Flags = field(default_factory=lambda: np.zeros((0, 0), np.bool_))
    population: Confidences = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    audience = Audience.CURATOR_ONLY

    def display(self) -> Display:
        """Return the confidences at each epoch."""
        return displays.snapshots(self)

    def __post_init__(self) -> None:
        epochs = np.asarray(self.epochs)
        if epochs.ndim != 1 or epochs.dtype.kind not in "iu" or not len(epochs):
            raise InvalidInput("epochs: must be integers, one for each snapshot.")
        if np.any(np.diff(epochs) <= 0):
            raise InvalidInput("epochs: must rise from one snapshot to the next.")
        object.__setattr__(self, "epochs", epochs.astype(np.int64))
        s = len(epochs)
        confidence = np.asarray(self.confidence)
        if confidence.ndim != 2 or len(confidence) != s or not confidence.shape[1]:
            raise InvalidInput(f"confidence: has the shape {confidence.shape}; must have {s} rows.")
        n = confidence.shape[1]
        object.__setattr__(self, "confidence", _clipped(confidence, "confidence"))
        references, population = np.asarray(self.references), np.asarray(self.population)
        references = references if references.size else np.zeros((s, 0, n), np.float32)
        population = population if population.size else np.zeros((s, 0), np.float32)
        if references.ndim != 3 or (len(references), references.shape[2]) != (s, n):
            raise InvalidInput(
                f"references: has the shape {references.shape}; must have ({s}, references, {n})."
            )
        if population.ndim != 2 or len(population) != s:
            raise InvalidInput(f"population: has the shape {population.shape}; must have {s} rows.")
        object.__setattr__(self, "references", _clipped(references, "references"))
        object.__setattr__(self, "population", _clipped(population, "population"))
        inside = np.asarray(self.inside)
        if not inside.size:
            inside = np.zeros((0, n), np.bool_)
        if inside.shape != self.references.shape[1:] or inside.dtype != np.bool_:
            raise InvalidInput(
                f"inside: must hold one bool for each of {self.references.shape[1]} references and"
                f" {n} rows."
            )
        object.__setattr__(self, "inside", inside)

    @property
    def rows(self) -> int:
        """n."""
        return int(self.confidence.shape[1])

    @property
    def models(self) -> int:
        """m, the references."""
        return int(self.references.shape[1])

    def at(self, epochs: Iterable[int]) -> "Snapshots":
        """Those of some epochs alone."""
        wanted = np.asarray(sorted(set(epochs)), dtype=np.int64)
        if not len(wanted) or not np.all(np.isin(wanted, self.epochs)):
            raise InvalidInput(
                f"epochs={wanted.tolist()}: must be among the observed {self.epochs.tolist()}."
            )
        chosen = np.isin(self.epochs, wanted)
        return replace(
            self,
            epochs=self.epochs[chosen],
            confidence=self.confidence[chosen],
            references=self.references[chosen],
            population=self.population[chosen],
        )


def snapshot_scores(snapshots: Snapshots) -> dict[str, FloatArray]:
    """Return every score that these snapshots allow, by name, for ``Evidence.extras``."""
    return {f"snapshots-{name}": _SCORES[name](snapshots) for name in _possible(snapshots)}


def mean_score(snapshots: Snapshots) -> FloatArray:
    """Return the mean of standardised confidences, (n,)."""
    phi = snapshots.confidence.astype(np.float64)
    known = snapshots.population if snapshots.population.shape[1] > 1 else snapshots.confidence
    centre, spread = known.mean(axis=1, dtype=np.float64), known.std(axis=1, dtype=np.float64)
    # A snapshot at which all are the same says nothing.
    scale = np.where(spread > 0, spread, np.inf)
    scores: FloatArray = ((phi - centre[:, None]) / scale[:, None]).mean(axis=0)
    return scores


def ratio_score(snapshots: Snapshots, *, joint: bool = True) -> FloatArray:
    """(n,) the log likelihood ratio of all snapshots, in nats; needs references on both sides."""
    inner, outer = _Side.of(snapshots, True), _Side.of(snapshots, False)
    return inner.log_density(snapshots, joint) - outer.log_density(snapshots, joint)


def offline_score(snapshots: Snapshots) -> FloatArray:
    """(n,) how far all snapshots are above references without the row, in standard deviations."""
    outer = _Side.of(snapshots, False)
    deviation = np.sqrt(np.diag(outer.covariance))
    weights = scipy.linalg.solve(outer.covariance, deviation, assume_a="pos")
    above = snapshots.confidence.astype(np.float64) - outer.mean
    scores: FloatArray = weights @ above / np.sqrt((weights @ deviation) * (1 + 1 / outer.count))
    return scores


@dataclass(frozen=True, kw_only=True, eq=False)
class _Side:
    """Of the references with each row, or without: (n,) k, (s, n) means, (s, s) Σ."""

    count: FloatArray
    mean: FloatArray
    covariance: FloatArray

    @classmethod
    def of(cls, snapshots: Snapshots, with_row: bool) -> "_Side":
        """In float64, a block of rows at a time."""
        chosen = snapshots.inside if with_row else ~snapshots.inside
        count = chosen.sum(axis=0).astype(np.float64)
        if not np.all(count > 0):
            word = "with" if with_row else "without"
            raise InvalidInput(f"references: some row has none that was trained {word} it.")
        s, models, rows = snapshots.references.shape
        mean, scatter = np.empty((s, rows)), np.zeros((s, s))
        for block in row_blocks(rows, s * models):
            values = snapshots.references[:, :, block].astype(np.float64)
            weights = chosen[:, block]
            mean[:, block] = (values * weights).sum(axis=1) / count[block]
            z = ((values - mean[:, None, block]) * weights).reshape(s, -1)
            scatter += z @ z.T
        freedom = float((count - 1).sum())
        if not freedom > 0:
            # One model a side: what the rows differ by stands in.
            scatter, freedom = np.cov(mean).reshape(s, s), 1.0
        covariance = (1 - SHRINKAGE) * scatter / freedom
        covariance[np.diag_indices(s)] = np.maximum(np.diag(scatter) / freedom, _LEAST)
        return cls(count=count, mean=mean, covariance=covariance)

    def log_density(self, snapshots: Snapshots, joint: bool) -> FloatArray:
        """log N(φ; μ, (1 + 1/k)Σ), less (s/2)·log 2π."""
        sigma = self.covariance if joint else np.diag(np.diag(self.covariance))
        factor = scipy.linalg.cholesky(sigma, lower=True)
        z = scipy.linalg.solve_triangular(factor, snapshots.confidence - self.mean, lower=True)
        grown = 1 + 1 / self.count
        size = np.log(np.diag(factor)).sum() + len(z) / 2 * np.log(grown)
        density: FloatArray = -0.5 * (z**2).sum(axis=0) / grown - size
        return density


@dataclass(frozen=True, kw_only=True, eq=False)
class ObservedEpochs:
    """What an attack reached that saw the target at ``epochs`` alone."""

    epochs: tuple[int, ...]
    figures: AttackFigures


@dataclass(frozen=True, kw_only=True, eq=False)
class EpochTable(Drawn):
    """The lecture's table: attack accuracy by the epochs that were observed."""

    lines: tuple[ObservedEpochs, ...]
    score: str

    audience = Audience.NEEDS_REVIEW

    def display(self) -> Display:
        """Return the accuracy of the attack by the epochs observed."""
        return displays.epoch_table(self)

    def __str__(self) -> str:
        heads = [", ".join(map(str, line.epochs)) for line in self.lines]
        width = max(len(head) for head in [*heads, "Observed epochs"])
        text = [f"{'Observed epochs':<{width}}  Attack accuracy        AUC"]
        for head, line in zip(heads, self.lines, strict=True):
            text.append(f"{head:<{width}}  {line.figures.accuracy}  {line.figures.auc}")
        return "\n".join(text)

    def to_json(self) -> dict[str, Any]:
        """Return every figure by name."""
        return {
            "score": self.score,
            "lines": [
                {"epochs": list(line.epochs), **line.figures.to_json()} for line in self.lines
            ],
        }


def accuracy_by_epochs(
    snapshots: Snapshots,
    truth: Any,
    sets: Sequence[Sequence[int]] | None = None,
    *,
    score: str | None = None,
    confidence: float = 0.95,
    random_state: int = 0,
) -> EpochTable:
    """Return figures of the attack for each of several sets of observed epochs.

    ``truth``   (n,) who was a member.
    ``sets``    of epochs; None: each epoch and all before it.
    ``score``   "ratio", "offline" or "mean"; None: the first of them that the references allow.

    Accuracies are balanced, of thresholds that were chosen on other rows (``roc.figures``).
    """
    if sets is None:
        sets = [snapshots.epochs[: t + 1].tolist() for t in range(len(snapshots.epochs))]
    if not len(sets):
        raise InvalidInput("sets: must name at least one set of epochs.")
    possible = _possible(snapshots)
    chosen = _checks.one_of("score", score or possible[0], possible)
    lines = []
    for epochs in sets:
        chosen_epochs = snapshots.at(epochs)
        scores = _SCORES[chosen](chosen_epochs)
        result = figures(scores, truth, confidence=confidence, random_state=random_state)
        lines.append(ObservedEpochs(epochs=tuple(chosen_epochs.epochs.tolist()), figures=result))
    return EpochTable(lines=tuple(lines), score=chosen)


def _possible(snapshots: Snapshots) -> tuple[str, ...]:
    """Return the names of the scores that these snapshots allow, the best first."""
    inside = snapshots.inside
    if snapshots.models < 2 or np.any(inside.all(axis=0)):
        return ("mean",)
    return ("ratio", "offline", "mean") if np.all(inside.any(axis=0)) else ("offline", "mean")


_SCORES: dict[str, Callable[[Snapshots], FloatArray]] = {
    "ratio": ratio_score,
    "offline": offline_score,
    "mean": mean_score,
}


def _clipped(values: NDArray[Any], name: str) -> Confidences:
    if values.dtype.kind != "f" or np.any(np.isnan(values)):
        raise InvalidInput(f"{name}: must hold log odds, none of them NaN.")
    clipped: Confidences = np.clip(values, -LARGEST, LARGEST).astype(np.float32, copy=False)
    return clipped
