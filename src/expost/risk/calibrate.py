"""The guarantee that keeps a goal: one search over the parameter of a family.

Conventions
-----------
family    guarantees that differ in one number: the ε of :class:`EpsilonDelta`, the μ of
          :class:`GaussianNoise`, the separation of :class:`NormLaplaceNoise`, the noise multiplier
          of :class:`DPSGD` (:class:`expost.risk.guarantee.Parameter`). More noise is a degradation
          of the same release, so every figure is monotone in it.
goal      a limit on one figure of the guarantee.
exceeded  the probability with which a posterior may be exceeded. (ε, δ) with δ > 0 bounds no
          posterior with certainty, nor except with probability δ (erratum 10): only except with a
          probability above δ, which has to be given. Noise whose law is known has no δ of its own,
          and there this probability is δ unless another one is given.

The search shrinks a bracket until its ends are neighbours in float64 and returns the safe end,
whose figures were evaluated and keep the goal. Figures that are costly are searched on a draft to
1e-4 and then checked; the result is then at most 5e-4 of itself more noise than needed.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from expost import _checks
from expost._numerics import bracket_root
from expost.errors import ConvergenceError, InvalidInput
from expost.risk.guarantee import Guarantee, Parameter, extended, level
from expost.types import FloatArray

__all__ = ["POSTERIOR_GOALS", "calibrate"]

# The goals that bound a posterior.
POSTERIOR_GOALS = ("posterior", "one_in")
# Enough for neighbours in float64 from any range, and for 1e-4 of a noise multiplier.
_HALVINGS = 120
_DRAFT_HALVINGS = 19
# Steps towards more noise, should the full figures be a little above the draft.
_STEP = 1e-4
_STEPS = 20

G = TypeVar("G", bound=Guarantee)


def calibrate(
    family: type[G],
    *,
    epsilon: float | None = None,
    posterior: float | None = None,
    one_in: float | None = None,
    advantage: float | None = None,
    true_positive_rate: float | None = None,
    prior: float = 0.5,
    delta: float = 0.0,
    exceeded: float | None = None,
    false_positive_rate: float = 0.01,
    **constants: Any,
) -> G:
    """Return the guarantee of a family that keeps a goal with the least noise.

    Parameters
    ----------
    family : type
        EpsilonDelta, GaussianNoise, NormLaplaceNoise, DPSGD, or another Guarantee with a PARAMETER.
    epsilon, posterior, one_in, advantage, true_positive_rate : float
        The goal, exactly one of them: (ε, δ)-DP; the largest posterior; k, for a posterior of at
        most 1/k; the largest membership advantage; the largest true-positive rate at
        ``false_positive_rate``.
    prior : float
        The probability of presence before the release, for a posterior.
    delta : float
        The δ of an EpsilonDelta, or at which ``epsilon`` holds.
    exceeded : float, optional
        The probability with which the posterior may be exceeded (default: ``delta``). It must be
        above the ``delta`` of an EpsilonDelta.
    false_positive_rate : float
        The rate at which ``true_positive_rate`` is limited.
    **constants : Any
        The other arguments of the family, such as ``steps`` and ``sampling_rate`` of DPSGD.

    Returns
    -------
    Guarantee
        It was evaluated and keeps the goal. The next number in float64 towards less noise does not
        (DP-SGD with sampling: 5e-4 of the noise multiplier less), unless the least noise of the
        family keeps the goal.

    Raises
    ------
    InvalidInput
        If an attacker reaches the goal without any release, or nothing exceeds it.

    Examples
    --------
    >>> from expost.risk import GaussianNoise, calibrate
    >>> round(calibrate(GaussianNoise, posterior=0.9, delta=0.01).mu, 3)
    0.805
    """
    parameter = family.PARAMETER
    if parameter is None:
        raise InvalidInput(f"family: {family.__name__} has no parameter to calibrate.")
    delta, prior = level("delta", delta), _checks.probability("prior", prior)
    fpr = _checks.probability("false_positive_rate", false_positive_rate)
    name, value = _single(
        epsilon=epsilon,
        posterior=posterior,
        one_in=one_in,
        advantage=advantage,
        true_positive_rate=true_positive_rate,
    )
    own = delta if parameter.with_delta else 0.0
    _check(name, value, prior=prior, least={"advantage": own, "true_positive_rate": own + fpr})
    passed = _passed(delta, exceeded, own) if name in POSTERIOR_GOALS else 0.0

    def member(number: float) -> G:
        own_delta = {"delta": delta} if parameter.with_delta else {}
        return family(**{parameter.name: number}, **own_delta, **constants)

    def is_kept(guarantee: Guarantee) -> bool:
        match name:
            case "epsilon":
                return guarantee.keeps(value, delta)
            case "posterior":
                return guarantee.posterior(prior, delta=passed) <= value
            case "one_in":
                return guarantee.one_in(prior, delta=passed) >= value
            case "advantage":
                return guarantee.advantage <= value
            case _:
                return guarantee.true_positive_rate(fpr) <= value

    goal = f"{name}={value!r}"
    number = _search(member, is_kept, parameter, goal)
    guarantee = member(number)
    if guarantee.draft is None:
        return guarantee
    for _ in range(_STEPS):
        if is_kept(guarantee):
            return guarantee
        number *= 1 + _STEP if parameter.is_noise else 1 - _STEP
        guarantee = member(number)
    raise ConvergenceError(
        f"{goal}: no {parameter.name} keeps this goal near that of the draft, {number!r}: the goal"
        " is too extreme; use a less extreme one."
    )


def _search(
    member: Callable[[float], Guarantee],
    is_kept: Callable[[Guarantee], bool],
    parameter: Parameter,
    goal: str,
) -> float:
    """Return the number with the least noise that keeps the goal, by drafts where there are any."""

    def keeps(number: float) -> bool:
        guarantee = member(number)
        try:
            return is_kept(guarantee if guarantee.draft is None else guarantee.draft)
        except ConvergenceError:
            # Unknown figures keep nothing.
            return False

    exposed, safe = parameter.low, parameter.high
    if not parameter.is_noise:
        exposed, safe = safe, exposed
    if keeps(exposed):
        return exposed
    if not keeps(safe):
        raise InvalidInput(
            f"{goal}: no {parameter.name} from {parameter.low:g} to {parameter.high:g} keeps this"
            " goal, which is too close to what an attacker reaches without any release, or needs a"
            " delta; allow a little more, or change delta or exceeded."
        )

    def sign(number: FloatArray) -> FloatArray:
        return np.array(1.0 if keeps(float(number)) == parameter.is_noise else -1.0)

    halvings = _HALVINGS if member(safe).draft is None else _DRAFT_HALVINGS
    below, above = bracket_root(sign, parameter.low, parameter.high, halvings=halvings)
    return float(above if parameter.is_noise else below)


def _single(**goals: float | None) -> tuple[str, float]:
    """Return the name and the value of the only goal."""
    given = {name: value for name, value in goals.items() if value is not None}
    if len(given) != 1:
        raise InvalidInput(
            f"{' and '.join(given) or 'no goal'} given: must be exactly one of {', '.join(goals)}."
        )
    ((name, value),) = given.items()
    return name, extended(name, value)


def _check(name: str, value: float, *, prior: float, least: dict[str, float]) -> None:
    """Refuse what an attacker has without any release, and what nothing exceeds."""
    if name == "epsilon":
        if value == np.inf:
            raise InvalidInput("epsilon=inf: must be finite; any noise keeps an infinite epsilon.")
        return
    low, reason, high = least.get(name, 0.0), "what no noise lowers", 1.0
    hint = ""
    if name == "posterior":
        low, reason = prior, "the prior"
    elif name == "one_in":
        low, reason, high = 1.0, "certainty", 1 / prior
        hint = "; for one of 1,000 suspects set prior=0.001"
    if not low < value < high:
        end = f"1/prior = {high:g}" if name == "one_in" else "1"
        raise InvalidInput(
            f"{name}={value!r}: must lie strictly between {low:g} ({reason}) and {end}{hint}."
        )


def _passed(delta: float, exceeded: float | None, own: float) -> float:
    """Return the probability with which a posterior may be exceeded."""
    passed = delta if exceeded is None else level("exceeded", exceeded)
    if own > 0 and not (exceeded is not None and passed > own):
        raise InvalidInput(
            f"exceeded={exceeded!r}: a guarantee with delta={own!r} bounds a posterior only except"
            " with a probability above delta; give one, such as exceeded=2*delta, or set delta=0."
        )
    return passed
