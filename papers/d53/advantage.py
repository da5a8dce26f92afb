"""D5.3 Prop. 2 and the inverse of Thm 3.

Conventions
-----------
advantage   TPR − FPR of the Bayes adversary with prior ½; TPR = Pr(A = 1 | b = 1), FPR = Pr(A = 1 |
            b = 0).
tight       tanh(ε/2) = (e^ε − 1)/(e^ε + 1), reached by randomised response (erratum 9).
"""

import math
from dataclasses import dataclass

import numpy as np

from expost.numbers import percent
from expost.risk import EpsilonDelta
from expost.types import FloatArray
from papers.common.claims import Check, Claim, quote
from papers.common.exhibits import Exhibit, Table
from papers.common.figures import BLUE, GREEN, GREY, INK, ORANGE, Curve, CurvesDisplay, Guide
from papers.d53 import formulas

__all__ = [
    "General",
    "Inverse",
    "general_claim",
    "general_exhibit",
    "inverse_claim",
    "measure_general",
    "measure_inverse",
]

_EXACT = 1e-9
# Two data sets of pure ε-DP, distinguished by S = "yes": Q(S), and the most that P(S) may then be.
_FALSE_ALARMS = 0.8
_GOALS = (0.1, 0.25, 0.5, 0.75)
_DELTA = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class General:
    """Prop. 2 over ε (e,), and a mechanism against its argument.

    ``yeom``      e^ε − 1, ``half`` (e^ε − 1)/2, ``tight`` tanh(ε/2), ``slack`` that of (ε, 0.1).
    ``response``  the advantage of randomised response, from its probabilities.
    ``rates``     (TPR, FPR) of the Bayes adversary against a mechanism with ε = 1.
    """

    epsilon: FloatArray
    yeom: FloatArray
    half: FloatArray
    tight: FloatArray
    slack: FloatArray
    response: FloatArray
    rates: tuple[float, float]


def measure_general() -> General:
    """ε from 0.02 to 4."""
    epsilon = np.linspace(0.0, 4.0, 201)[1:]
    truth = np.exp(epsilon) / (1 + np.exp(epsilon))
    return General(
        epsilon=epsilon,
        yeom=np.expm1(epsilon),
        half=np.expm1(epsilon) / 2,
        tight=np.array([EpsilonDelta(epsilon=float(e)).advantage for e in epsilon]),
        slack=np.array([EpsilonDelta(epsilon=float(e), delta=0.1).advantage for e in epsilon]),
        response=truth - (1 - truth),
        rates=(1 - math.exp(-1.0) * (1 - _FALSE_ALARMS), _FALSE_ALARMS),
    )


def general_exhibit(bounds: General) -> Exhibit:
    """Prop. 2 and the tight bound."""
    lines = (
        (bounds.yeom, r"$e^\epsilon - 1$ (Yeom et al.)", GREY, "-."),
        (bounds.half, r"$(e^\epsilon - 1)/2$ (Proposition 2)", ORANGE, "--"),
        (bounds.slack, r"tight, any $(\epsilon, 0.1)$ mechanism", GREEN, ":"),
        (bounds.tight, r"tight: tanh$(\epsilon/2)$", BLUE, "-"),
    )
    display = CurvesDisplay(
        curves=tuple(
            Curve(x=bounds.epsilon, y=y, label=label, colour=colour, style=style, width=1.9)
            for y, label, colour, style in lines
        ),
        guides=(Guide(at=1.0, axis="y", style="-", label="says nothing", colour=INK),),
        xlabel=r"$\epsilon$",
        ylabel="membership advantage",
        log_x=False,
        log_y=False,
        limits_y=(0.0, 1.6),
    )
    return Exhibit(
        name="proposition2",
        title="Proposition 2: bounds on the advantage under ε-DP",
        caption=(
            "Not in the paper. An advantage is at most 1, so e^ε − 1 says nothing from"
            f" ε = ln 2 = {math.log(2):.2f} on, and half of it nothing from ln 3 ="
            f" {math.log(3):.2f} on. Randomised response has the advantage tanh(ε/2) exactly."
        ),
        draw=lambda: display.plot().figure_,
        tables={
            "proposition2": Table(
                columns={
                    "epsilon": bounds.epsilon,
                    "yeom": bounds.yeom,
                    "proposition2": bounds.half,
                    "tight": bounds.tight,
                    "tight_delta_0.1": bounds.slack,
                    "randomised_response": bounds.response,
                }
            )
        },
        errata=(
            "The tight bound is (e^ε − 1)/(e^ε + 1) for ε-DP, and (e^ε − 1 + 2δ)/(e^ε + 1) for (ε,"
            " δ)-DP.",
            "An attacker who is right at least half of the time need not have Pr(A = 1 | b = 0) ≤"
            " ½. The bound (e^ε − 1)/2 is right all the same: FPR + FNR = 1 − Adv ≤ 1, so one of"
            " the two is at most ½, and Adv is at most (e^ε − 1) times either.",
        ),
    )


def general_claim(bounds: General) -> Claim:
    """Check claim (f): Prop. 2."""
    tpr, fpr = bounds.rates
    index = int(np.argmin(np.abs(bounds.epsilon - 1)))
    return Claim(
        key="f",
        says=(
            "Under ε-DP the advantage is at most (e^ε − 1)/2, half of Yeom et al.'s e^ε − 1, since"
            " an attacker who is right at least half of the time has Pr(A = 1 | b = 0) ≤ ½"
            " (Proposition 2)."
        ),
        where="Section 4.2",
        outcome=(
            f"It is a bound; at ε = 1 it is {quote(float(bounds.half[index]))}, where tanh(ε/2) ="
            f" {quote(float(bounds.tight[index]))} is tight and reached by randomised response, and"
            " beyond ln 3 it says nothing. The reason given is not right: a mechanism with ε = 1"
            f' that answers "yes" with probability {tpr:.3f} under D and {fpr:.3f} under D′ is seen'
            f" through {percent((1 + tpr - fpr) / 2)} of the time by an attacker who believes it,"
            f" with Pr(A = 1 | b = 0) = {fpr:g}."
        ),
        checks=(
            Check(
                what="largest of the tight bound over (e^ε − 1)/2",
                value=float(np.max(bounds.tight / bounds.half)),
                relation="<=",
                bound=1.0,
            ),
            Check(
                what="largest of (e^ε − 1)/2 over e^ε − 1",
                value=float(np.max(bounds.half / bounds.yeom)),
                relation="<=",
                bound=1.0,
            ),
            Check(
                what="Pr(A = 1 | b = 0) of an attacker who is right more than half of the time",
                value=fpr,
                relation="<=",
                bound=0.5,
            ),
        ),
        figures=("proposition2",),
    )


@dataclass(frozen=True, kw_only=True)
class Inverse:
    """Thm 3 of what its inverse gives for ``goals``, as ``printed`` and as ``corrected``."""

    goals: tuple[float, ...]
    printed: tuple[float, ...]
    corrected: tuple[float, ...]


def measure_inverse() -> Inverse:
    """Measure at δ = 10⁻⁶; it cancels."""
    corrected = [formulas.epsilon_from_gaussian_advantage(goal, _DELTA) for goal in _GOALS]
    return Inverse(
        goals=_GOALS,
        # The printed inverse lacks the factor 2.
        printed=tuple(formulas.gaussian_advantage(epsilon / 2, _DELTA) for epsilon in corrected),
        corrected=tuple(formulas.gaussian_advantage(epsilon, _DELTA) for epsilon in corrected),
    )


def inverse_claim(inverse: Inverse) -> Claim:
    """Check claim (i): the inverse of Thm 3."""
    index = inverse.goals.index(0.5)
    off = max(abs(b - g) for g, b in zip(inverse.goals, inverse.printed, strict=True))
    corrected = max(abs(b - g) for g, b in zip(inverse.goals, inverse.corrected, strict=True))
    return Claim(
        key="i",
        says="The ε for a chosen advantage is √(2 ln(1.25/δ))·Φ⁻¹((ρ_α + 1)/2).",
        where="Section 4.2, after Theorem 3",
        outcome=(
            "Put back into Theorem 3, it turns 0.5 into"
            f" {inverse.printed[index]:.3f}: half of the ε that was allowed, and twice the noise."
            f" With a factor 2 before the root every goal comes back, to {quote(corrected)}."
        ),
        checks=(
            Check(
                what="largest difference between goal and what comes back, over goals from"
                f" {inverse.goals[0]:g} to {inverse.goals[-1]:g}",
                value=off,
                relation="<=",
                bound=_EXACT,
            ),
        ),
    )
