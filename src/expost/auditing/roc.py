"""ROC curves of attacks, their figures, and per-row AUCs.

Conventions
-----------
n₁ members and n₀ non-members have one score each; an attack predicts "member" where score >
threshold. TPR(t) and FPR(t) are the shares of members and of non-members predicted so.

**Sampling model of the intervals.** The rows of *this one model*: members and non-members are
independent draws from all members, and all non-members, of it. The intervals cover how figures
would differ with other rows, not with another training, and they are not bounds on ε (see
``lower_bounds`` and ``one_run`` for those). docs/theory/mathematics-audit.md, 1, proves all of them
for every n and with ties; tests/auditing/test_roc.py counts how often each of them misses.

**Per-row AUC.** For row i, references are of two kinds, trained with the row and without. The area
under the row's own ROC curve (Mann and Whitney 1947),

    row_auc_i = P(φ_in > φ_out) + ½·P(φ_in = φ_out),

is the probability that, of one reference of each kind, the one with the row has the larger
confidence in it; ½ is random guessing. Like the expected exposure it is a figure of the row and of
the training method, not of the one target.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betainc

from expost import _checks
from expost._counts import lower_limit, upper_limit
from expost._numerics import bracket_root
from expost.auditing.evidence import Confidences, Flags
from expost.errors import InvalidInput
from expost.numbers import interval_text
from expost.results import Displayed
from expost.types import Audience, FloatArray, IntArray

__all__ = [
    "AttackFigures",
    "Interval",
    "Roc",
    "RowAuc",
    "advantage_of_counts",
    "auc",
    "best_threshold",
    "figures",
    "judged_rows",
    "roc",
    "row_auc",
    "threshold_at",
    "tpr_at",
]

# Points at which the bound on a tail is tried; any of them gives a valid bound.
_POINTS = 64
# Confidences ranked at a time.
_BLOCK = 2**22


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with an interval that misses it with probability 1 − ``confidence``.

    Parameters
    ----------
    value : float
        The estimate.
    low, high : float
        The ends of the interval.
    confidence : float, default=0.95
        The probability with which the interval holds the true value.
    """

    value: float
    low: float
    high: float
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise InvalidInput(
                f"low={self.low!r}, value={self.value!r}, high={self.high!r}: must be in order."
            )
        _checks.probability("confidence", self.confidence)

    def __str__(self) -> str:
        return interval_text(self.value, self.low, self.high, 3)

    def to_json(self) -> dict[str, float]:
        """Return every figure by name.

        Returns
        -------
        dict[str, float]
            The fields by name.
        """
        return {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Roc(Displayed):
    """The ROC curve from (0, 0) to (1, 1), a point for each threshold; the last one is −∞.

    Points between two others on a straight line are left out. Rows with equal scores make a
    straight segment, which random tie-breaking attains.

    Parameters
    ----------
    fpr : FloatArray
        (k,) false-positive rates, rising from 0 to 1.
    tpr : FloatArray
        (k,) the true-positive rate at each of them.
    thresholds : FloatArray
        (k,) the scores from which on a row counts as a member, falling.
    """

    fpr: FloatArray
    tpr: FloatArray
    thresholds: FloatArray

    audience = Audience.CURATOR_ONLY

    @property
    def area(self) -> float:
        """The AUC, P(member's score > non-member's) + ½·P(equal) over all pairs."""
        return float(np.trapezoid(self.tpr, self.fpr))

    def to_json(self) -> dict[str, list[float]]:
        """Return the points; the last threshold, −∞, is left out: JSON has no infinity.

        Returns
        -------
        dict[str, list[float]]
            The three columns by name.
        """
        return {
            "fpr": self.fpr.tolist(),
            "tpr": self.tpr.tolist(),
            "thresholds": self.thresholds[:-1].tolist(),
        }


@dataclass(frozen=True, kw_only=True)
class AttackFigures(Displayed):
    """The figures of one attack on the rows of one model (sampling model: module docstring).

    Parameters
    ----------
    auc : Interval
        P(a member's score > a non-member's) + ½·P(they are equal).
    accuracy : Interval
        Balanced: (TPR + 1 − FPR)/2, ½ for random guessing.
    advantage : Interval
        TPR − FPR = 2·accuracy − 1 (Yeom et al. 2018). Both are those of a threshold that was
        chosen on some of the rows and judged on the others, and so may fall below ½ and 0 by
        chance.
    tpr_at_1_percent : Interval
        TPR at 1 % FPR;.
    tpr_at_01_percent : Interval
        … at 0.1 % (Carlini et al. 2022).
    members : int
        The number of members.
    non_members : int
        The number of non-members.
    """

    auc: Interval
    accuracy: Interval
    advantage: Interval
    tpr_at_1_percent: Interval
    tpr_at_01_percent: Interval
    members: int
    non_members: int

    audience = Audience.NEEDS_REVIEW

    def to_json(self) -> dict[str, Any]:
        """Return every figure by name.

        Returns
        -------
        dict[str, Any]
            The intervals, each as a mapping, and the numbers of rows.
        """
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            name: value.to_json() if isinstance(value, Interval) else value
            for name, value in values.items()
        }


def roc(scores: Any, truth: Any) -> Roc:
    """Return the ROC curve of ``scores`` (n,), the larger the more likely a member."""
    return _curve(*_counted(*checked_scores(scores, truth)))


def figures(
    scores: Any, truth: Any, *, confidence: float = 0.95, random_state: int = 0
) -> AttackFigures:
    """Return all figures of an attack.

    Parameters
    ----------
    scores : Any
        (n,) the larger, the more likely a member.
    truth : Any
        (n,) whether the row is a member.
    confidence : float, default=0.95
        The confidence of each interval.
    random_state : int, default=0
        Selects the rows that choose the threshold of accuracy and advantage.

    Returns
    -------
    AttackFigures

    Raises
    ------
    InvalidInput
        If a score is not finite, or there are fewer than two members or non-members.
    """
    scores, truth = checked_scores(scores, truth)
    confidence = _checks.probability("confidence", confidence)
    advantage = _advantage(scores, truth, confidence, random_state)
    return AttackFigures(
        auc=auc(scores, truth, confidence=confidence),
        accuracy=Interval(
            value=(1 + advantage.value) / 2,
            low=(1 + advantage.low) / 2,
            high=(1 + advantage.high) / 2,
            confidence=confidence,
        ),
        advantage=advantage,
        tpr_at_1_percent=tpr_at(scores, truth, 0.01, confidence=confidence),
        tpr_at_01_percent=tpr_at(scores, truth, 0.001, confidence=confidence),
        members=int(truth.sum()),
        non_members=int((~truth).sum()),
    )


# -- the area under the curve ---------------------------------------------------------------------


def auc(scores: Any, truth: Any, *, confidence: float = 0.95) -> Interval:
    """Return the area under the ROC curve, with an interval valid for every n, law and ties.

    The area A is a two-sample U-statistic, an average of averages of k = min(n₁, n₀) independent
    variables in [0, 1] with mean θ (Hoeffding 1963, Sec. 5b). So E φ(kA) ≤ E φ(B) for every convex
    φ and B ~ Binomial(k, θ), and with φ = (· − j)₊, as Bentkus (2004) does for sums,

        P(A ≥ a) ≤ min_{j < ka} E(B − j)₊/(ka − j).

    The ends are the θ at which this, and its mirror image, come down to (1 − confidence)/2. Where
    every pair is right they are Clopper and Pearson's for k hits of k; near ½ the interval is about
    1.5 times as wide as DeLong's, which is only asymptotic and has no width at all at A = 1.
    """
    scores, truth = checked_scores(scores, truth)
    miss = (1 - _checks.probability("confidence", confidence)) / 2
    _, true, false = _counted(scores, truth)
    fewer = int(min(true[-1], false[-1]))
    # Twice the number of right pairs is an integer: nothing is rounded before the division.
    twice = int(np.dot(np.diff(false), true[1:] + true[:-1]))
    pairs = 2 * int(true[-1]) * int(false[-1])
    return Interval(
        value=twice / pairs,
        low=_least_mean(twice / pairs, fewer, miss),
        high=1 - _least_mean((pairs - twice) / pairs, fewer, miss),
        confidence=confidence,
    )


def _least_mean(value: float, terms: int, miss: float) -> float:
    """Return the θ below which an area ≥ ``value`` has probability ≤ ``miss``; rounded down."""
    if value == 0:
        return 0.0
    total = terms * value
    last = math.ceil(total) - 1
    gaps = np.unique(np.geomspace(1, last + 1, _POINTS).round().astype(np.int64))
    points = (last + 1 - gaps).astype(np.float64)

    def too_likely(mean: FloatArray) -> FloatArray:
        return np.asarray(_tail(float(mean), terms, total, points) - miss)

    below, _ = bracket_root(too_likely, 0.0, value, halvings=40)
    return float(below)


def _tail(mean: float, terms: int, total: float, points: FloatArray) -> float:
    """Return min over j in ``points`` of E(B − j)₊/(total − j), B ~ Binomial(terms, mean).

    E(B − j)₊ = k·θ·P(Binomial(k − 1, θ) ≥ j) − j·P(B > j), and a binomial tail is a beta integral.
    """
    with np.errstate(invalid="ignore"):
        one_less = np.where(points > 0, betainc(points, terms - points, mean), 1.0)
    excess = terms * mean * one_less - points * betainc(points + 1, terms - points, mean)
    return float(np.min(excess / (total - points)))


# -- true positives at few false ones --------------------------------------------------------------


def threshold_at(scores: Any, truth: Any, rate: float) -> float:
    """Return the least t with a share ≤ ``rate`` of the non-members above it; −∞ if all may be."""
    scores, truth = checked_scores(scores, truth)
    return _threshold(_falling(scores[~truth]), _checks.probability("rate", rate))


def tpr_at(scores: Any, truth: Any, rate: float, *, confidence: float = 0.95) -> Interval:
    """Return sup{TPR(t) : FPR(t) ≤ ``rate``}, with an interval valid for every n, law and ties.

    A threshold at the j-th largest score of non-members has, for any law, an FPR of at most (with
    ties counted in: at least) a Beta(j, n₀ − j + 1) variable (Wilks 1941). Two such j bracket the
    threshold in question, and the members, which are independent of it, are counted at both by
    Clopper and Pearson; each of the four limits misses with probability at most (1 − confidence)/4.
    The lower end is 0 with fewer than about 4/rate non-members: too few to bound the FPR.
    """
    scores, truth = checked_scores(scores, truth)
    rate = _checks.probability("rate", rate)
    miss = (1 - _checks.probability("confidence", confidence)) / 4
    members, others = scores[truth], _falling(scores[~truth])
    count = len(members)
    # Imported here: it takes half a second, and reports import this module.
    from scipy.stats import binom

    least, most = (int(binom.ppf(share, len(others), rate)) for share in (miss, 1 - miss))
    certain = int(np.count_nonzero(members > others[least - 1])) if least > 0 else 0
    open_ = int(np.count_nonzero(members >= others[most])) if most < len(others) else count
    return Interval(
        value=float(np.mean(members > _threshold(others, rate))),
        low=lower_limit(certain, count, miss),
        high=upper_limit(open_, count, miss),
        confidence=confidence,
    )


def _falling(scores: FloatArray) -> FloatArray:
    return np.sort(scores)[::-1]


def _threshold(others: FloatArray, rate: float) -> float:
    """Return the threshold of ``others`` in falling order; a rounded integer count is exact."""
    above = math.floor(rate * len(others) + 1e-9)
    return float(others[above]) if above < len(others) else -math.inf


# -- accuracy and advantage ------------------------------------------------------------------------


def _advantage(scores: FloatArray, truth: Flags, confidence: float, seed: int) -> Interval:
    """Return TPR − FPR of a threshold, on other rows than those it was chosen on.

    Given the threshold, the accuracy (1 + TPR − FPR)/2 is, as an area is, an average of averages of
    2k independent Bernoulli variables, k the smaller number of members and non-members: its
    interval is that of ``auc``, proved for every n. (Newcombe's squares are shorter, but for a
    nearly perfect attack they miss in 5 % at any nominal level. Cross-fitting would judge on all
    rows, but thresholds of folds that share rows are dependent: intervals at 95 % then missed in 6
    to 7 %.)
    """
    judged = judged_rows(truth, seed)
    positive = scores > best_threshold(scores[~judged], truth[~judged])
    members, others = (int(np.count_nonzero(judged & kind)) for kind in (truth, ~truth))
    hits = int(np.count_nonzero(positive & judged & truth))
    spared = int(np.count_nonzero(~positive & judged & ~truth))
    return advantage_of_counts(hits, members, spared, others, confidence)


def advantage_of_counts(
    hits: int, members: int, spared: int, others: int, confidence: float
) -> Interval:
    """Return TPR − FPR of a threshold that was chosen on other rows, with its interval.

    Parameters
    ----------
    hits, members : int
        How many members are predicted to be members, and how many there are.
    spared, others : int
        How many non-members are predicted to be non-members, and how many there are.
    confidence : float
        The confidence of the interval.

    Returns
    -------
    Interval
        TPR − FPR; the interval misses it with probability at most 1 − ``confidence``, whatever the
        rates are.
    """
    # Integers: nothing is rounded before the division.
    right, pairs = hits * others + spared * members, 2 * members * others
    coins, miss = 2 * min(members, others), (1 - confidence) / 2
    return Interval(
        value=(2 * right - pairs) / pairs,
        low=2 * _least_mean(right / pairs, coins, miss) - 1,
        high=1 - 2 * _least_mean((pairs - right) / pairs, coins, miss),
        confidence=confidence,
    )


def judged_rows(truth: Flags, seed: int) -> Flags:
    """Return the rows that do not choose the threshold: all but n^¾ of each kind, ≥ half.

    A threshold chosen on k rows loses about k^(−⅔) of the advantage: at n^¾ rows less than the
    sampling error n^(−½) of the judged rows.

    Parameters
    ----------
    truth : Flags
        (n,) whether the row is a member.
    seed : int
        Selects the rows.

    Returns
    -------
    Flags
        (n,) True for the rows that are judged.

    Raises
    ------
    InvalidInput
        If there are fewer than two members or non-members.
    """
    rng = np.random.default_rng(seed)
    judged = np.ones(len(truth), dtype=np.bool_)
    for rows in (np.flatnonzero(truth), np.flatnonzero(~truth)):
        if len(rows) < 2:
            raise InvalidInput(
                "truth: has only one member or one non-member, so that a threshold would be both"
                " chosen and judged on it; pass at least two of each."
            )
        choosing = min(len(rows) // 2, math.ceil(len(rows) ** 0.75))
        judged[rng.permutation(rows)[:choosing]] = False
    return judged


def best_threshold(scores: FloatArray, truth: Flags) -> float:
    """Return the threshold of the largest TPR − FPR, halfway to the next score above.

    Parameters
    ----------
    scores : FloatArray
        (n,) the larger, the more likely a member.
    truth : Flags
        (n,) whether the row is a member.

    Returns
    -------
    float
        The threshold; −∞ where all rows are predicted to be members.
    """
    thresholds, true, false = _counted(scores, truth)
    gain = true / true[-1] - false / false[-1]
    index = int(np.argmax(gain))
    above = thresholds[index - 1] if index > 0 else thresholds[index]
    # −∞, where all rows are called members, stays −∞.
    return float(thresholds[index] / 2 + above / 2)


# -- counting --------------------------------------------------------------------------------------


def checked_scores(scores: Any, truth: Any) -> tuple[FloatArray, Flags]:
    """Return finite scores (n,) and booleans (n,) of both kinds, or raise."""
    scores = _checks.vector(scores, name="scores")
    truth = np.asarray(truth)
    if truth.dtype != np.bool_ or truth.shape != scores.shape:
        raise InvalidInput(
            f"truth: has the shape {truth.shape} and holds {truth.dtype}; must hold one bool for"
            f" each of {len(scores)} scores."
        )
    if not 0 < truth.sum() < len(truth):
        raise InvalidInput("truth: has only one kind of row; pass both members and non-members.")
    return scores, truth


def _counted(scores: FloatArray, truth: Flags) -> tuple[FloatArray, IntArray, IntArray]:
    """Return (thresholds, members above each, non-members above each), falling to −∞."""
    order = np.argsort(-scores, kind="stable")
    falling, member = scores[order], truth[order]
    last = np.flatnonzero(np.append(falling[1:] != falling[:-1], True))
    true = np.concatenate([[0], np.cumsum(member, dtype=np.int64)[last]])
    false = np.concatenate([[0], np.cumsum(~member, dtype=np.int64)[last]])
    return np.append(falling[np.append(0, last[:-1] + 1)], -np.inf), true, false


def _curve(thresholds: FloatArray, true: IntArray, false: IntArray) -> Roc:
    """Return the curve without points on the straight line between their neighbours."""
    right, up = false[1:] - false[:-1], true[1:] - true[:-1]
    bends = right[1:] * up[:-1] != right[:-1] * up[1:]
    kept = np.concatenate([[True], bends, [True]])
    return Roc(fpr=false[kept] / false[-1], tpr=true[kept] / true[-1], thresholds=thresholds[kept])


# -- the area under the curve of one row -----------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class RowAuc:
    """The AUC of each row over the references, with its standard error.

    Parameters
    ----------
    value : FloatArray
        (n,) NaN for a row that is in all references or in none.
    error : FloatArray
        (n,) the standard error.
    """

    value: FloatArray
    error: FloatArray


def row_auc(confidence: Confidences, inside: Flags) -> RowAuc:
    """Return the AUC of each column of ``confidence`` (m, n), by ``inside`` (m, n).

    The standard error is Hanley and McNeil's (1982, Eq. 2), bounded from below by that of half a
    pair: it is not 0 even if every pair is right.
    """
    # Imported here: it takes half a second, and reports import this module.
    from scipy.stats import rankdata

    models, rows = confidence.shape
    value, error = np.full(rows, np.nan), np.full(rows, np.nan)
    step = max(1, _BLOCK // max(models, 1))
    for start in range(0, rows, step):
        block = slice(start, start + step)
        within = np.asarray(inside[:, block])
        with_row = within.sum(axis=0).astype(np.float64)
        without = models - with_row
        both = (with_row > 0) & (without > 0)
        if not np.any(both):
            continue
        ranks = rankdata(np.asarray(confidence[:, block]), axis=0)
        total = np.where(within, ranks, 0.0).sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            area = (total - with_row * (with_row + 1) / 2) / (with_row * without)
            spread = _standard_error(area, with_row, without)
        value[block] = np.where(both, area, np.nan)
        error[block] = np.where(both, spread, np.nan)
    return RowAuc(value=value, error=error)


def _standard_error(area: FloatArray, first: FloatArray, second: FloatArray) -> FloatArray:
    """Return √[(A(1−A) + (m₁−1)(Q₁−A²) + (m₂−1)(Q₂−A²))/(m₁m₂)], Q₁ = A/(2−A), Q₂ = 2A²/(1+A).

    The larger of those for A and for 1 − A, at an A kept from 0 and 1 by half a pair.
    """
    room = 0.5 / (first * second)
    kept = np.clip(area, room, 1 - room)

    def variance(a: FloatArray) -> FloatArray:
        q1, q2 = a / (2 - a), 2 * a**2 / (1 + a)
        spread = a * (1 - a) + (first - 1) * (q1 - a**2) + (second - 1) * (q2 - a**2)
        return spread / (first * second)

    return np.asarray(np.sqrt(np.maximum(variance(kept), variance(1 - kept))))
