"""The curves over ε that the page and the figure of a choice of ε share.

Conventions
-----------
posterior  of a row at the limit's quantile, from the attacker's prior to 1.
way      how far a row has come from its first plateau to its second regime, from 0 to 1.
         norm-Laplace: s(t) = (E∣ℓ∣/t − c_d)/(1 − c_d), t = β·distance; at d = 1, where exposures
         have no transition, E[ℓ]/t. Gaussian noise has no second plateau, and models that are only
         sampled have no law: there it is the one-sidedness E[ℓ]/E∣ℓ∣, from 0 to 1 for every noise.
rows     the farthest from the base, which is the most exposed; and the median one.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from expost.epsilon.choice import EpsilonChoice
from expost.epsilon.sweep import LawSweep, Pair
from expost.noise.transition import first_plateau
from expost.types import FloatArray

__all__ = ["EpsilonCurves", "epsilon_curves", "is_shown"]

# Values of ε on a curve that is computed from the exact law.
_POINTS, _FEWER = 121, 19
# How far the axis reaches past an end of interest that lies at its edge.
_MARGIN = 2.0


@dataclass(frozen=True, kw_only=True, eq=False)
class EpsilonCurves:
    """Curves of the most exposed and of the middle row over ε, each (m,).

    ``middle_posterior``  None where only the largest posterior is known.
    ``is_way``         whether ``way`` is that between plateaus, and not the one-sidedness.
    ``axis``           the ends of the ε axis: all marks and curves lie between them.
    """

    epsilons: FloatArray
    posterior: FloatArray
    middle_posterior: FloatArray | None
    way: Pair
    is_way: bool
    axis: tuple[float, float]


def epsilon_curves(choice: EpsilonChoice) -> EpsilonCurves:
    """Fine curves from the exact law, or what is known at ``choice.epsilons``."""
    sweep = choice.sweep
    axis = _axis(choice)
    if not isinstance(sweep, LawSweep):
        return EpsilonCurves(
            epsilons=choice.epsilons,
            posterior=choice.posterior,
            middle_posterior=None,
            way=choice.one_sidedness,
            is_way=False,
            axis=axis,
        )
    # A public bound takes a search for each point.
    points = _FEWER if choice.is_public else _POINTS
    fine = replace(sweep, epsilons=np.geomspace(*axis, points))
    is_way = sweep.transition.plateau is not None
    return EpsilonCurves(
        epsilons=fine.epsilons,
        posterior=choice.posterior_at(fine.epsilons),
        middle_posterior=fine.posterior_at(fine.distances.median, fine.epsilons),
        way=_ways(fine) if is_way else fine.one_sidedness,
        is_way=is_way,
        axis=axis,
    )


def _axis(choice: EpsilonChoice) -> tuple[float, float]:
    """From the least to the largest ε that is tried or marked."""
    tried = choice.epsilons if choice.utility is None else choice.utility.epsilons
    # The end of the transition may lie far beyond any ε that is of use.
    ends = (choice.low,) if choice.is_public else (choice.low, choice.high)
    marks = (*ends, choice.ceiling)
    shown = [mark for mark in marks if 1e-40 < mark < 1e40]
    low, high = float(tried[0]), float(tried[-1])
    if shown:
        low, high = min(low, min(shown) / _MARGIN), max(high, max(shown) * _MARGIN)
    return (low, high) if high > low * _MARGIN else (low / _MARGIN, high * _MARGIN)


def _ways(sweep: LawSweep) -> Pair:
    """s(t), or E[ℓ]/t at d = 1; a row that the model does not depend on stays where it is."""
    dimension, distances = sweep.mechanism.dimension, sweep.distances
    start = 0.0 if dimension == 1 else first_plateau(dimension)
    ways = []
    for apart in (distances.largest, distances.median):
        separation = apart / sweep.resolutions
        law = sweep.mechanism.loss_law(separation)
        followed = law.expected_loss if dimension == 1 else law.expected_exposure
        with np.errstate(invalid="ignore"):
            way = (followed / separation - start) / (1 - start)
        ways.append(np.where(separation > 0, way, 0.0))
    return Pair(*ways)


def is_shown(epsilon: float | None) -> bool:
    """Whether an ε has a place on the axis."""
    return epsilon is not None and 0 < epsilon < math.inf
