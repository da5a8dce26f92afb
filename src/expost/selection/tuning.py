"""The private choice of Λ among candidates (Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 3).

Every row is assigned to one of k + 1 parts. Part j ≤ k trains one private model with the j-th
candidate and the whole ε; the last part counts the mistakes of the k models, and one of them is
chosen with ε.

Formal guarantees
-----------------
(Λ, model) is ε-DP, (ε, δ) under Gaussian noise, for a row removed, added or replaced:

1. Each row's part is its own uniform draw, independent of all rows. So for neighbouring data sets
   D, D' the other rows' draws have the same law in both, and the row in question has its draw
   whether it is present or not. Given all draws, D and D' differ in that row, in one part.
   (Shuffled parts of equal size would suffice for a replaced row only: if a row is removed, a
   second part must change to balance the sizes.)
2. If it is one of the first k parts, only that part's model changes its law, by (ε, δ); the other
   models and the last part are the same, and the choice is a function of them all.
3. If it is the last part, no model changes; each count changes by at most 1, and the choice is
   ε-DP by :func:`~expost.selection.private.select_privately`.
4. Each case is (ε, δ) given the draws; so is their mean over the draws.

The total is therefore ε and δ, not the sum over candidates. As everywhere here the relations
compare data under the same public constants: the number of rows of each part (which sets the noise
of its model) is one of them, as n is. Losing models and the counts are never kept.

Squared loss has no mistakes: each row counts (y − ŷ)² clipped at 1 in units of half the
label range, the largest error of the prediction 0, in integer units of 2⁻²⁰ of it rounded down, so
that sums are exact.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from expost import _checks
from expost._numerics import row_blocks
from expost.errors import ClippedRowsWarning, InvalidInput, PrivacyLeakWarning
from expost.estimators import ESTIMATORS
from expost.glm import Objective
from expost.mechanisms import Mechanism
from expost.notices import warn
from expost.numbers import upper_text
from expost.release import Release
from expost.results import Displayed
from expost.selection.private import METHODS, byte_source, draw_index, simulation_generator
from expost.training import Prepared
from expost.types import Audience, FloatArray, IntArray

__all__ = ["SelectedRegularization", "row_predictions", "select_regularization", "split_rows"]

# With fewer rows per part, noise dominates every model; and a part of one row has none.
_ROWS_A_PART = 20
# The units in which a clipped squared error is counted.
_UNITS = 2**20


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SelectedRegularization(Displayed):
    """The chosen Λ, and the private model that was chosen with it.

    Parameters
    ----------
    regularization : float
        The chosen Λ.
    index : int
        The index of Λ among ``candidates``.
    candidates : tuple[float, ...]
        The values of Λ to choose from.
    epsilon : float
        ε spent in total, for the choice and the model.
    delta : float | None
        δ of the model with Gaussian noise; None for pure ε.
    model : Any
        The fitted estimator, of the rows of its own part only.
    part_rows : tuple[int, ...]
        How many rows each part has; the last one counted mistakes.
    method : str
        How the choice was made.
    """

    regularization: float
    index: int
    candidates: tuple[float, ...]
    epsilon: float
    delta: float | None
    model: Any
    part_rows: tuple[int, ...]
    method: str

    @property
    def release(self) -> Release:
        """The release of the chosen model."""
        release: Release = self.model.release_
        return release

    @property
    def audience(self) -> Audience:
        """The audience of the chosen model."""
        return self.release.audience

    def __repr__(self) -> str:
        return (
            f"SelectedRegularization(regularization={self.regularization:g},"
            f" index={self.index}, epsilon={upper_text(self.epsilon)}, model={self.release!r})"
        )


def select_regularization(
    X: Any,
    y: Any,
    candidates: Sequence[float],
    *,
    epsilon: float,
    delta: float | str | None = "auto",
    loss: str = "logistic",
    noise: str = "auto",
    data_norm: float | str = "auto",
    classes: Any = None,
    label_range: tuple[float, float] | None = None,
    huber_width: float = 0.5,
    fit_intercept: bool = True,
    intercept_scaling: float | str = "auto",
    method: str = "permute-and-flip",
    random_state: Any = None,
) -> SelectedRegularization:
    """Choose Λ among ``candidates`` and release a model with it, for ``epsilon`` in total.

    The module docstring has the algorithm and the proof that it costs ε once. The models are
    trained with output perturbation, which covers a replaced row and uses each candidate unchanged.

    Parameters
    ----------
    X, y : Any
        The rows and their labels.
    candidates : Sequence[float]
        The values of Λ, a list made independently of these rows.
    epsilon : float
        The privacy cost of the choice and the model together.
    delta : float | str | None, default="auto"
        δ of Gaussian noise, as for the estimators.
    loss : str, default="logistic"
        "logistic", "huber-hinge" or "squared".
    noise, data_norm, fit_intercept, intercept_scaling : str, float | str, bool
        As for the estimators.
    classes : Any, optional
        The labels, for "logistic" and "huber-hinge"; None: read from the data, with a
        PrivacyLeakWarning.
    label_range : tuple[float, float], optional
        The least and the largest label, for "squared"; None: read from the data, with a
        PrivacyLeakWarning.
    huber_width : float, default=0.5
        h ≤ 1, half the width of the smoothed corner, for "huber-hinge".
    method : str, default="permute-and-flip"
        How the choice is made, as for :func:`~expost.selection.select_privately`.
    random_state : Any, optional
        An integer or a Generator, for simulation; None: the operating system's randomness.

    Returns
    -------
    SelectedRegularization

    Raises
    ------
    InvalidInput
        If there are too few rows for the candidates, or an argument is invalid.

    Notes
    -----
    The other parameters are those of the estimators (``classes`` for the first two losses,
    ``label_range`` for the third, ``huber_width`` for the second) and of
    :func:`~expost.selection.select_privately`. Bounds of labels that are left at None are read from
    the data, with a PrivacyLeakWarning, and the result needs review.
    """
    values = _candidates(candidates)
    _checks.one_of("method", method, METHODS)
    estimator = _estimator(
        loss,
        classes=classes,
        label_range=label_range,
        huber_width=huber_width,
        epsilon=epsilon,
        delta=delta,
        mechanism="output",
        noise=noise,
        fit_intercept=fit_intercept,
        intercept_scaling=intercept_scaling,
        data_norm=data_norm,
    )
    prepared = estimator.prepared(X, y)
    _check_enough(prepared.problem.count, len(values))
    rng = simulation_generator(random_state)
    _warn(prepared)
    members = split_rows(prepared.problem.count, len(values) + 1, byte_source(rng))
    *training, judging = members
    releases = [
        _release(prepared, mechanism, part, rng)
        for mechanism, part in zip(_mechanisms(prepared, values, training), training, strict=True)
    ]
    scores = [-_errors(prepared.problem, release.theta, judging) for release in releases]
    unit = _UNITS if not prepared.problem.loss.is_classification else 1
    budget = prepared.mechanism
    index = draw_index(scores, unit, budget.epsilon, method=method, rng=rng)
    estimator.set_params(regularization=values[index])
    return SelectedRegularization(
        regularization=values[index],
        index=index,
        candidates=values,
        epsilon=budget.epsilon,
        delta=budget.delta,
        model=type(estimator).from_release(releases[index]),
        part_rows=tuple(len(part) for part in members),
        method=method,
    )


def _candidates(candidates: Sequence[float]) -> tuple[float, ...]:
    if isinstance(candidates, str) or not hasattr(candidates, "__iter__"):
        raise InvalidInput(f"candidates={candidates!r}: must be a list of numbers > 0.")
    values = tuple(_checks.regularization(value) for value in candidates)
    if len(values) < 2 or len(set(values)) < len(values):
        raise InvalidInput(
            f"candidates={list(values)!r}: must be at least two different numbers; to use one, fit"
            " an estimator with it."
        )
    return values


def _estimator(
    loss: str, *, classes: Any, label_range: Any, huber_width: float, **shared: Any
) -> Any:
    """Return the unfitted estimator, which prepares the rows and will hold the model."""
    kind = ESTIMATORS[_checks.one_of("loss", loss, tuple(ESTIMATORS))]
    own = {"label_range": label_range} if loss == "squared" else {"classes": classes}
    for name, value in (("classes", classes), ("label_range", label_range)):
        if value is not None and name not in own:
            raise InvalidInput(f"{name}: is not used by loss={loss!r}; leave it out.")
    if loss == "huber-hinge":
        own["huber_width"] = huber_width
    return kind(**own, **shared)


def _check_enough(rows: int, candidates: int) -> None:
    least = _ROWS_A_PART * (candidates + 1)
    if not rows >= least:
        raise InvalidInput(
            f"X has {rows} rows: {candidates} candidates need at least {least}, {_ROWS_A_PART} for"
            " each part; give fewer candidates, or use regularization='auto', which needs none."
        )


def _warn(prepared: Prepared) -> None:
    for clipped in prepared.clipped:
        warn(clipped, ClippedRowsWarning, stacklevel=3)
    if prepared.read_from_data:
        warn(
            f"read from the data, which is not private: {', '.join(prepared.read_from_data)}; give"
            " bounds that you know without the data.",
            PrivacyLeakWarning,
            stacklevel=3,
        )


def split_rows(rows: int, parts: int, source: Callable[[int], bytes]) -> list[IntArray]:
    """Split rows at random: every row's part is uniform and independent of all others'.

    Of 64 random bits those below the largest multiple of ``parts`` are kept, so that the remainder
    is exactly uniform.

    Parameters
    ----------
    rows : int
        The number of rows.
    parts : int
        The number of parts.
    source : Callable[[int], bytes]
        Returns so many random bytes.

    Returns
    -------
    list[IntArray]
        The row numbers of each part, rising.
    """
    last = np.uint64(2**64 - 2**64 % parts - 1)
    drawn = np.empty(0, dtype=np.uint64)
    while len(drawn) < rows:
        words = np.frombuffer(source(8 * (rows - len(drawn))), dtype="<u8").astype(np.uint64)
        drawn = np.concatenate([drawn, words[words <= last]])
    part = drawn % np.uint64(parts)
    return [np.flatnonzero(part == number) for number in range(parts)]


def _mechanisms(
    prepared: Prepared, values: Sequence[float], training: Sequence[IntArray]
) -> list[Mechanism]:
    """Return the mechanism of each part; refuse unsafe ones before any model is released."""
    if min(map(len, training)) < 2:
        raise InvalidInput(
            "X: chance gave a part fewer than two rows; call again, with fewer candidates."
        )
    mechanisms = [
        prepared.mechanism.with_constants(regularization=value, rows=len(part))
        for value, part in zip(values, training, strict=True)
    ]
    for mechanism in mechanisms:
        if mechanism.is_private:
            _ = mechanism.grid
    return mechanisms


def _release(
    prepared: Prepared, mechanism: Mechanism, part: IntArray, rng: np.random.Generator | None
) -> Release:
    """Release the private model of one part, within bounds that do not depend on the part.

    Not by the estimator's ``fit``: it refuses rows of one class, which here would reveal that a
    part has no other class, and the choice can use a model of such rows.
    """
    problem = Objective.of(
        X=prepared.problem.held.X[part],
        y=prepared.problem.held.y[part],
        loss=mechanism.loss,
        penalty=mechanism.total_regularization,
    )
    return Release(
        theta=mechanism.release(problem, rng),
        mechanism=mechanism,
        ball=prepared.ball,
        classes=prepared.classes,
        label_scale=prepared.label_scale,
        feature_names=prepared.feature_names,
        read_from_data=prepared.read_from_data,
        seeded=rng is not None,
    )


def _errors(problem: Objective, theta: FloatArray, judging: IntArray) -> int:
    """Return the mistakes of the model, or its clipped squared errors in integer units."""
    predicted, target = row_predictions(problem.held.X[judging], theta), problem.held.y[judging]
    if problem.loss.is_classification:
        return int(np.count_nonzero((predicted > 0) != (target > 0)))
    with np.errstate(over="ignore"):
        off = target - predicted
        return int(np.floor(np.minimum(off * off, 1.0) * _UNITS).sum())


def row_predictions(rows: FloatArray, theta: FloatArray) -> FloatArray:
    """Return x·θ of each row, in bits that depend on the row alone.

    A matrix product may round a row differently if another row is missing, and so change the sign
    of a prediction close to 0: the count would then change by more than that row.

    Parameters
    ----------
    rows : FloatArray
        (m, d) the rows.
    theta : FloatArray
        (d,) the parameters of the model.

    Returns
    -------
    FloatArray
        (m,) the predictions.
    """
    predicted = np.empty(len(rows))
    for block in row_blocks(*rows.shape):
        predicted[block] = (rows[block] * theta).sum(axis=1)
    return predicted
