"""Shift: whether members and non-members differ without the model.

Attacks distinguish members from non-members. Where the two differ in kind (another year, another
town), an attack succeeds without any leakage. A *blind* attack shows how far: a classifier that
sees the rows and their labels, but never the model, learns to predict membership.

The test
--------
The null hypothesis: given the rows, every choice of the members among them was equally likely.
Each kind is split at random into K parts. A classifier that was fitted to the parts before part k
scores the rows of part k. Under the hypothesis the memberships within a part are a uniformly random
arrangement, independent of those of the parts before, and hence of the classifier. So the members'
ranks in part k (ties in random order) are a uniformly random subset whatever happened before: the
K − 1 rank sums are independent, each with a known law, for every classifier and number of rows. The
p-value of a weighted sum Z of them is

    p = (1 + #{Z_b ≥ Z})/(1 + B),

Z_b the same of B random subsets: at most a with probability at most a.
docs/theory/mathematics-audit.md, section 7.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit

from expost.auditing.evidence import Flags
from expost.auditing.lower_bounds import LowerBound
from expost.auditing.roc import Interval, auc, tpr_at
from expost.auditing.signals import count_rows
from expost.auditing.training import one_thread
from expost.types import FloatArray

__all__ = ["LEVEL", "Shift", "blind_features", "detect_shift", "rank_p_value"]

# A shift is reported at this p-value: of exchangeable data at most one audit in a hundred.
LEVEL = 0.01
_DRAWS = 999
_PARTS = 5
# Rows of each kind: with fewer there is no power.
_LEAST = 20
# Rows that classifiers are fitted to; the others are scored.
_MOST_ROWS = 20_000
# Levels of a column of strings that become indicators; columns after which rows are projected.
_LEVELS, _COLUMNS = 30, 256
# Standardised numbers are clipped here: single cells decide nothing.
_FURTHEST = 5.0
_LARGEST_MATRIX = 2**27


@dataclass(frozen=True, kw_only=True, eq=False)
class Shift:
    """How well membership is predicted without the model.

    Parameters
    ----------
    propensity : FloatArray
        (n,) the estimated probability that the row is a member, by a classifier that was fitted to
        other rows.
    auc, tpr_at_1_percent : Interval
        The figures of this blind attack.
    p_value : float
        Of the hypothesis that members and non-members are exchangeable.
    bound : LowerBound | None, default=None
        A lower bound on ε that would hold if ``propensity`` were exact. It is not proved.
    """

    propensity: FloatArray
    auc: Interval
    tpr_at_1_percent: Interval
    p_value: float
    bound: LowerBound | None = None

    @property
    def is_detected(self) -> bool:
        """Whether members and non-members differ: ``p_value`` is at most :data:`LEVEL`."""
        return not self.p_value > LEVEL

    def to_json(self) -> dict[str, Any]:
        """Return the figures, without those of single rows.

        Returns
        -------
        dict[str, Any]
            The figures by name.
        """
        return {
            "detected": self.is_detected,
            "p_value": self.p_value,
            "level": LEVEL,
            "blind_auc": self.auc.to_json(),
            "blind_tpr_at_1_percent": self.tpr_at_1_percent.to_json(),
            "estimated_bound": None if self.bound is None else self.bound.to_json(),
        }


def detect_shift(
    X: Any, y: Any, truth: Flags, *, classes: bool, confidence: float, seed: int
) -> Shift | None:
    """Test whether members and non-members are exchangeable, without the model.

    Parameters
    ----------
    X : Any
        (n, …) the rows: an array, a sparse matrix or a frame.
    y : Any
        (n,) their labels; None: not used.
    truth : Flags
        (n,) whether each row is a member.
    classes : bool
        Whether labels are classes, not numbers.
    confidence : float
        The confidence of the intervals.
    seed : int
        Of the halves, the classifiers and the rearrangements.

    Returns
    -------
    Shift | None
        None if there are too few rows, or rows that are no numbers, strings or dates.
    """
    fewest = min(int(np.count_nonzero(truth)), int(np.count_nonzero(~truth)))
    features = None if fewest < _LEAST else blind_features(X, y, classes=classes, seed=seed)
    if features is None:
        return None
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(7,)))
    part = np.empty(len(truth), dtype=np.int64)
    for kind in (truth, ~truth):
        rows = rng.permutation(np.flatnonzero(kind))
        part[rows] = np.arange(len(rows)) % _PARTS
    score = np.empty(len(truth))
    # Around all fits: setting it for each takes longer than a fit.
    with one_thread():
        ahead = [
            _log_odds(features, truth, part < number, part == number, rng)
            for number in range(1, _PARTS)
        ]
        for number in range(_PARTS - 1):
            score[part == number] = _log_odds(features, truth, part != number, part == number, rng)
    score[part == _PARTS - 1] = ahead[-1]
    return Shift(
        propensity=expit(score),
        auc=auc(score, truth, confidence=confidence),
        tpr_at_1_percent=tpr_at(score, truth, 0.01, confidence=confidence),
        p_value=rank_p_value(
            [
                (scores, truth[part == number])
                for number, scores in zip(range(1, _PARTS), ahead, strict=True)
            ],
            rng,
        ),
    )


def rank_p_value(
    parts: Sequence[tuple[FloatArray, Flags]],
    rng: np.random.Generator,
    draws: int = _DRAWS,
) -> float:
    """Return the p-value of the members' ranks in parts that were scored one after the other.

    Parameters
    ----------
    parts : Sequence[tuple[FloatArray, Flags]]
        The scores and memberships of each part; later parts weigh more, because their classifiers
        saw more rows.
    rng : numpy.random.Generator
        Breaks ties and draws.
    draws : int, default=999
        The number B of random subsets.

    Returns
    -------
    float
        A p-value of at least 1/(1 + B).
    """
    reached, drawn = 0.0, np.zeros(draws)
    for number, (scores, truth) in enumerate(parts, start=1):
        count, members = len(scores), int(np.count_nonzero(truth))
        if not 0 < members < count:
            continue
        # By score, then by chance.
        ranks = np.empty(count)
        ranks[np.lexsort((rng.random(count), scores))] = np.arange(1, count + 1)
        weight = (number / (members * (count - members) * (count + 1))) ** 0.5
        reached += weight * (float(ranks[truth].sum()) - members * (count + 1) / 2)
        for index in range(draws):
            subset = rng.choice(count, members, replace=False, shuffle=False)
            drawn[index] += weight * (float(subset.sum()) + members - members * (count + 1) / 2)
    return float(1 + np.count_nonzero(drawn >= reached - 1e-9)) / (1 + draws)


def _log_odds(
    features: FloatArray, truth: Flags, fitted: Flags, scored: Flags, rng: np.random.Generator
) -> FloatArray:
    """Return the log odds of membership of the scored rows.

    The mean of a linear classifier, which finds small shifts of means, and of a boosted one, which
    finds all else.
    """
    # Imported here: it takes half a second, and reports import this module.
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    some = rng.permutation(np.flatnonzero(fitted))[:_MOST_ROWS]
    models = (
        LogisticRegression(C=0.1, max_iter=200, tol=1e-3),
        HistGradientBoostingClassifier(
            max_iter=40,
            learning_rate=0.08,
            max_leaf_nodes=8,
            l2_regularization=10.0,
            early_stopping=False,
            random_state=int(rng.integers(2**31)),
        ),
    )
    total = np.zeros(int(np.count_nonzero(scored)))
    for model in models:
        model.fit(features[some], truth[some])
        total += logit(np.clip(model.predict_proba(features[scored])[:, 1], 1e-6, 1 - 1e-6))
    return total / len(models)


# -- rows as numbers -------------------------------------------------------------------------------


def blind_features(X: Any, y: Any, *, classes: bool, seed: int) -> FloatArray | None:
    """Return (n, d) standardised numbers of the rows and labels; None if they are of other types.

    Strings become indicators of their most frequent values, empty cells an indicator of their own.
    The memberships have no part in it.

    Parameters
    ----------
    X : Any
        (n, …) the rows.
    y : Any
        (n,) the labels, or None.
    classes : bool
        Whether labels are classes.
    seed : int
        Of the projection of very wide rows.

    Returns
    -------
    FloatArray | None
        The features.
    """
    columns = _columns(X)
    if columns is None:
        return None
    if y is not None:
        labels = np.asarray(y)
        columns.append(labels.astype(str) if classes else labels)
    parts = [part for column in columns for part in _numbers(column)]
    if not parts:
        return None
    matrix: FloatArray = np.column_stack(parts).astype(np.float64, copy=False)
    spread = matrix.std(axis=0)
    kept = spread > 0
    if not np.any(kept):
        return np.zeros((len(matrix), 1))
    matrix = (matrix[:, kept] - matrix[:, kept].mean(axis=0)) / spread[kept]
    matrix = np.clip(matrix, -_FURTHEST, _FURTHEST)
    if matrix.shape[1] > _COLUMNS:
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(8,)))
        matrix = matrix @ (rng.normal(size=(matrix.shape[1], _COLUMNS)) / _COLUMNS**0.5)
    return matrix


def _columns(X: Any) -> list[Any] | None:
    """Return the columns of the rows as arrays."""
    if hasattr(X, "columns") and hasattr(X, "shape"):
        return [np.asarray(X[name]) for name in X.columns]
    if count_rows(X) * int(np.prod(X.shape[1:])) > _LARGEST_MATRIX:
        return None
    if hasattr(X, "toarray"):
        # A sparse matrix.
        rows = np.asarray(X.toarray())
    else:
        try:
            rows = np.asarray(X)
        except (TypeError, ValueError, RuntimeError):
            # A tensor on a device, or of another library.
            return None
    rows = rows.reshape(len(rows), -1)
    return list(rows.T)


def _numbers(column: Any) -> list[FloatArray]:
    """Return a column as columns of finite numbers."""
    if column.dtype == object:
        column = _plain(column)
    if column.dtype.kind in "biuf":
        values = column.astype(np.float64)
    elif column.dtype.kind in "Mm":
        values = np.where(np.isnat(column), np.nan, column.astype(np.int64).astype(np.float64))
    else:
        return _indicators(column.astype(str))
    empty = ~np.isfinite(values)
    if np.all(empty):
        return []
    if not np.any(empty):
        return [values]
    return [np.where(empty, np.median(values[~empty]), values), empty.astype(np.float64)]


def _plain(column: Any) -> Any:
    """Return objects as numbers if all of them are, else as strings."""
    try:
        return np.array([np.nan if cell is None else cell for cell in column], dtype=np.float64)
    except (TypeError, ValueError):
        return column.astype(str)


def _indicators(cells: Any) -> list[FloatArray]:
    """Return an indicator of each of the most frequent strings."""
    levels, codes, counts = np.unique(cells, return_inverse=True, return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[: min(_LEVELS, len(levels))]
    return [(codes == level).astype(np.float64) for level in frequent]
