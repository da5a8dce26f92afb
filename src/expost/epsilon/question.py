"""What is asked of a sweep over ε: which belief is too much, how many rows, what a model must get.

The checks of :func:`expost.choose_epsilon`, apart from the rows that it is asked about.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from expost import _checks
from expost.epsilon.sweep import BeliefBound, LawSweep
from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = ["Question", "ends_of", "seeds_of", "values_around"]

# A belief that is closer to its prior is not told from it by the law's accuracy.
_LEAST_GAIN = 1e-9
# The values of ε that are looked at where none are given.
_EPSILONS = 25
# An end past this is left out of them: nobody wants it, and Gaussian noise has no scale there.
_LARGEST_END = 1e10
# How far they reach beyond the ends of interest: below, accuracy has yet to be seen to fall.
_BELOW, _ABOVE = 100.0, 10.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """The options of :func:`expost.choose_epsilon` that go with no data, checked.

    ``epsilons``  the values to tabulate, ascending, or None: 25 around the transition.
    ``utility``   the least mean accuracy (R²) on held-out rows, or None.
    """

    epsilons: FloatArray | None
    models: int
    tolerance: float
    share: float
    bound: BeliefBound
    utility: float | None
    folds: int

    @classmethod
    def of(
        cls,
        *,
        epsilons: Sequence[float] | None = None,
        models: int = 200,
        tolerance: float = 0.1,
        rows: float = 0.5,
        max_belief: float = 0.75,
        prior: float = 0.5,
        quantile: float | None = None,
        utility: float | None = None,
        folds: int = 5,
    ) -> "Question":
        """The defaults are those of :func:`expost.choose_epsilon`."""
        bound = _bound(max_belief, prior, quantile)
        share = _share(rows)
        models = _checks.whole("models", models, least=2)
        folds = _checks.whole("folds", folds, least=0)
        if folds == 1:
            raise InvalidInput("folds=1: must be 0, or at least 2: every fold is held out once.")
        return cls(
            epsilons=None if epsilons is None else _given(epsilons),
            models=models,
            tolerance=tolerance,
            share=share,
            bound=bound,
            utility=None if utility is None else _least_utility(utility, folds),
            folds=folds,
        )

    @property
    def releases(self) -> int:
        """Models that are scored on each fold."""
        return max(2, self.models // self.folds)


def seeds_of(random_state: int | np.random.Generator | None) -> list[np.random.SeedSequence]:
    """Of the models that are ranked, and of those whose utility is measured."""
    if isinstance(random_state, np.random.Generator):
        words = [int(word) for word in random_state.integers(2**32, size=8)]
        return np.random.SeedSequence(words).spawn(2)
    if random_state is not None:
        random_state = _checks.whole("random_state", random_state, least=0)
    return np.random.SeedSequence(random_state).spawn(2)


def values_around(sweep: LawSweep, limit: float) -> FloatArray:
    """25 values from well below the first end of interest to well above the last."""
    ends = [end for end in (sweep.low, sweep.high, limit) if 1e-40 < end < _LARGEST_END]
    if not ends:
        return np.geomspace(1e-2, 1e2, _EPSILONS)
    return np.geomspace(min(ends) / _BELOW, max(ends) * _ABOVE, _EPSILONS)


def ends_of(low: float, high: float, limit: float) -> list[float]:
    """The ends of interest at which the utility is measured too."""
    return [end for end in (low, high, limit) if 0 < end < _LARGEST_END]


def _share(rows: float) -> float:
    share = _checks.positive("rows", rows)
    if not share <= 1:
        raise InvalidInput(f"rows={rows!r}: must be a share of the rows, above 0 and at most 1.")
    return share


def _bound(max_belief: float, prior: float, quantile: float | None) -> BeliefBound:
    prior = _checks.probability("prior", prior)
    largest = _checks.probability("max_belief", max_belief)
    if not largest > prior + _LEAST_GAIN:
        raise InvalidInput(
            f"max_belief={max_belief!r}: must lie above prior={prior!r}, which no model lowers, by"
            f" more than {_LEAST_GAIN:g}."
        )
    if quantile is not None:
        quantile = _checks.probability("quantile", quantile)
        if not 0.5 <= quantile <= 1 - _LEAST_GAIN:
            raise InvalidInput(
                f"quantile={quantile!r}: must lie between 0.5, below which more noise may raise it,"
                f" and 1 - {_LEAST_GAIN:g}."
            )
    return BeliefBound(largest=largest, prior=prior, quantile=quantile)


def _least_utility(utility: float, folds: int) -> float:
    number = isinstance(utility, int | float | np.integer | np.floating)
    if isinstance(utility, bool) or not number:
        raise InvalidInput(f"utility={utility!r}: must be the least accuracy (R²), or None.")
    if not -math.inf < utility <= 1:
        raise InvalidInput(f"utility={utility!r}: must be at most 1, the best there is.")
    if not folds:
        raise InvalidInput("folds=0: the utility asked for needs held-out folds; take 5.")
    return float(utility)


def _given(epsilons: Sequence[float]) -> FloatArray:
    values = _checks.vector(epsilons, name="epsilons")
    if not len(values) or not np.all((values >= 1e-50) & (values <= 1e50)):
        raise InvalidInput("epsilons: must hold numbers between 1e-50 and 1e50, at least one.")
    return np.unique(values)
