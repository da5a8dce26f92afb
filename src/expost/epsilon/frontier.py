"""The frontier: what utility costs in ε and in the posterior, under each mechanism.

The mechanism of a choice was measured at every ε that was tried. The other mechanisms and noises
that take the loss are measured at a few ε, on the same folds, with the Λ of the rule of the
estimators. Their posteriors are public bounds (``PosteriorLimit.of_a_row``).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from expost.epsilon.limit import Plan, PosteriorLimit
from expost.epsilon.utility import Trials
from expost.errors import InvalidInput, ReleaseRefused
from expost.mechanisms import Mechanism
from expost.types import FloatArray

__all__ = ["FrontierCurve", "compare_mechanisms"]

# Values of ε at which other mechanisms are measured where none are given, and the most of them.
_COMPARED = (0.1, 0.3, 1.0, 3.0)
# Releases of each fold at each ε: half of those that decide, since these only compare.
_RELEASES = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class FrontierCurve:
    """One mechanism over ε.

    Parameters
    ----------
    name : str
        The mechanism and its noise.
    epsilons : FloatArray
        (k,) ascending.
    score : FloatArray
        (k,) the mean of the leading measure over releases, on held-out rows.
    posterior : FloatArray
        (k,) the bound on the posterior of a row at the limit's quantile.
    """

    name: str
    epsilons: FloatArray
    score: FloatArray
    posterior: FloatArray


def compare_mechanisms(
    trials: Trials, limit: PosteriorLimit, plans: Mapping[str, Plan], epsilons: tuple[float, ...]
) -> Iterator[FrontierCurve]:
    """Yield the curve of each of ``plans``; it is empty where a mechanism refuses every ε.

    Parameters
    ----------
    epsilons : tuple[float, ...]
        The values that were given; none: a grid. Of many, four are used.
    """
    values = _spread(epsilons or _COMPARED)
    for name, plan in plans.items():
        accepted = [pair for epsilon in values if (pair := _accepted(plan, epsilon, limit))]
        yield FrontierCurve(
            name=name,
            epsilons=np.array([mechanism.epsilon for mechanism, _ in accepted]),
            score=trials.compare([mechanism for mechanism, _ in accepted], _RELEASES),
            posterior=np.array([posterior for _, posterior in accepted]),
        )


def _spread(epsilons: tuple[float, ...]) -> list[float]:
    """Return at most four of the values, the first and the last among them."""
    most = min(len(epsilons), len(_COMPARED))
    indices = np.linspace(0, len(epsilons) - 1, most).round().astype(int)
    return [epsilons[index] for index in indices]


def _accepted(plan: Plan, epsilon: float, limit: PosteriorLimit) -> tuple[Mechanism, float] | None:
    """Return the mechanism at ε and its posterior; None if it refuses, or bounds no loss."""
    try:
        mechanism = plan(epsilon)
        # A mechanism without a safe grid refuses.
        _ = mechanism.grid
    except (InvalidInput, ReleaseRefused):
        return None
    loss = mechanism.loss_quantile(limit.quantile)
    return (mechanism, float(limit.posterior(loss))) if loss < math.inf else None
