"""D5.3 Section 4.3: several releases, by sequential composition, by RDP, and exactly.

Conventions
-----------
μ        of all releases: k of them with μ/√k each act as one (Gaussian noise).
Mironov  ε = αμ²/2 + ln(1/δ)/(α − 1), at the best real order α = 1 + √(2 ln(1/δ))/μ unless said
         otherwise. It bounds P(ℓ > ε) by δ, so that it bounds the belief as well.
tighter  ε = αμ²/2 + ln(1 − 1/α) − ln(αδ)/(α − 1) (Canonne, Kamath and Steinke 2020, Prop. 12), what
         dp-accounting takes; it bounds δ(ε), not P(ℓ > ε).
exact    the least ε with δ(ε, μ) ≤ δ (Balle and Wang 2018).

The goal throughout is that of the paper's chapter 5: ρ_β = 0.9 at δ = 0.01, in 30 steps.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, log_ndtr

from expost._numerics import bracket_root
from expost.accounting import gaussian_epsilon
from expost.risk import GaussianNoise
from expost.types import FloatArray
from papers.common.claims import Check, Claim
from papers.common.exhibits import Exhibit, Table
from papers.common.figures import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    Curve,
    CurvesDisplay,
    Guide,
    panels,
)
from papers.d53 import formulas
from papers.d53.worlds import least_mu

__all__ = [
    "BELIEF",
    "DELTA",
    "STEPS",
    "Composed",
    "Printed",
    "belief_mu",
    "composition_claim",
    "composition_exhibit",
    "measure_composed",
    "measure_printed",
    "mironov_order",
    "printed_claim",
    "tighter_epsilon",
    "tighter_mu",
]

BELIEF, DELTA, STEPS = 0.9, 0.01, 30
# "Tight": an ε that is at most a twentieth too large.
_TIGHT = 1.05
# Long dashes, in matplotlib's terms.
_LONG = (0, (5, 1))
_ORDERS = 1 + np.geomspace(1e-2, 1e4, 20_000)


def tighter_epsilon(mu: float, delta: float) -> float:
    """Return the ε of the tighter conversion, at the best order of a fine grid."""
    log_odds = np.log1p(-1 / _ORDERS) - np.log(_ORDERS * delta) / (_ORDERS - 1)
    return float(np.min(_ORDERS * (0.5 * mu * mu) + log_odds))


def mironov_order(mu: float, delta: float) -> float:
    """Return the order α at which Mironov's ε is least."""
    return 1 + math.sqrt(-2 * math.log(delta)) / mu


def mironov_epsilon(mu: float, delta: float) -> float:
    """μ²/2 + μ√(2 ln(1/δ))."""
    return 0.5 * mu * mu + mu * math.sqrt(-2 * math.log(delta))


@dataclass(frozen=True, kw_only=True)
class Printed:
    """Section 4.3's formulas at the goal, the noise being Mironov's for it.

    ``last``     (4.8) as printed, Σε_RDP − ln(1/δ^k)/(α − 1).
    ``middle``   the line before it, of which it is the exponent.
    ``corrected``  sigmoid(Σε_RDP + ln(1/δ)/(α − 1)).
    ``exact``    the belief that is passed with probability δ.
    ``overrun``  the largest log(P(belief > (4.7))/δ^k) over orders, k, δ and μ.
    """

    last: float
    middle: float
    corrected: float
    exact: float
    overrun: float


def measure_printed() -> Printed:
    """Measure all from μ of the goal; δ^k is the goal's δ, δᵢ its k-th root."""
    mu = formulas.rdp_mu_from_belief(BELIEF, DELTA)
    order = mironov_order(mu, DELTA)
    divergence, excess = order * mu * mu / 2, -math.log(DELTA) / (order - 1)
    overruns = []
    for alpha in (1.5, order, 20.0):
        for steps in (1, 2, 5, STEPS):
            for delta in (1e-5, DELTA, 0.5):
                for size in (0.1, mu, 3.0):
                    loss = alpha * size * size / 2 - steps * math.log(delta) / (alpha - 1)
                    passed = float(log_ndtr(size / 2 - loss / size))
                    overruns.append(passed - steps * math.log(delta))
    return Printed(
        last=divergence - excess,
        middle=float(expit(divergence - excess)),
        corrected=float(expit(divergence + excess)),
        exact=GaussianNoise(mu=mu).posterior(delta=DELTA),
        overrun=max(overruns),
    )


def printed_claim(lines: Printed) -> Claim:
    """Check claim (k): Eqs (4.7) and (4.8), and δ^k."""
    return Claim(
        key="k",
        says=(
            "Composed by RDP the belief is bounded as in Eq. (4.8), with a composed δ of δ^k, which"
            " is less than the kδ of sequential composition."
        ),
        where="Section 4.3, Eqs (4.7) and (4.8)",
        outcome=(
            f"At the noise of the paper's chapter 5 (4.8) is {lines.last:.3f}, which is no belief"
            f" that starts from ½, and the line before it {lines.middle:.3f}; but one release"
            f" in a hundred carries a belief above {lines.exact:.3f}. From (4.7) on the sign before"
            " ln(1/δ) is turned, and (4.8) is the exponent alone. With both corrected, 1/(1 +"
            f" exp(−(Σε_RDP + ln(1/δ)/(α − 1)))), it is {lines.corrected:.3f}. The composed δ^k is"
            " right, at the order α and for the sum of the ε of all steps."
        ),
        checks=(
            Check(
                what="(4.8) as printed, as a belief from a prior of ½",
                value=lines.last,
                relation=">=",
                bound=0.5,
            ),
            Check(
                what="the line before (4.8), as a bound on the belief that one release in a hundred"
                " passes",
                value=lines.middle,
                relation=">=",
                bound=lines.exact,
            ),
            Check(
                what="largest log of P(belief > the bound of (4.7)) over δ^k",
                value=lines.overrun,
                relation="<=",
                bound=0.0,
            ),
        ),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Composed:
    """k releases of μ/√k, so that only the bookkeeping differs: ε at δ, by k (k,) or one number.

    ``sequential``       Σ of the exact ε of each step, at δ/k.
    ``sequential_rdp``   the same of Mironov's, as in (4.7).
    ``noise``            (k,) σ that sequential composition asks for at the goal, over the least.
    ``noise_rdp``, ``noise_tighter``, ``noise_belief``  the same by RDP; and for the belief itself.
    """

    mu: float
    steps: FloatArray
    sequential: FloatArray
    sequential_rdp: FloatArray
    rdp: float
    tighter: float
    exact: float
    noise: FloatArray
    noise_rdp: float
    noise_tighter: float
    noise_belief: float

    def at(self, steps: int) -> int:
        """Return the index of this number of steps."""
        return int(np.flatnonzero(self.steps == steps)[0])


def measure_composed() -> Composed:
    """Measure at the noise that Mironov's conversion asks for."""
    mu, epsilon = formulas.rdp_mu_from_belief(BELIEF, DELTA), formulas.epsilon_from_belief(BELIEF)
    steps = np.unique(np.round(np.geomspace(1, 1000, 40)))
    steps = np.union1d(steps, [2.0, float(STEPS)])
    each = [(float(k), mu / math.sqrt(k), DELTA / k) for k in steps]
    least = least_mu(epsilon, DELTA)
    return Composed(
        mu=mu,
        steps=steps,
        sequential=np.array([k * gaussian_epsilon(part, delta) for k, part, delta in each]),
        sequential_rdp=np.array([k * mironov_epsilon(part, delta) for k, part, delta in each]),
        rdp=mironov_epsilon(mu, DELTA),
        tighter=tighter_epsilon(mu, DELTA),
        exact=gaussian_epsilon(mu, DELTA),
        noise=np.array(
            [least / (least_mu(epsilon / k, DELTA / k) * math.sqrt(k)) for k in steps.tolist()]
        ),
        noise_rdp=least / mu,
        noise_tighter=least / tighter_mu(epsilon),
        noise_belief=least / belief_mu(epsilon),
    )


def tighter_mu(epsilon: float) -> float:
    """Return the μ whose tighter ε at δ is ``epsilon``."""
    below, _ = bracket_root(
        lambda mu: np.array([tighter_epsilon(float(m), DELTA) - epsilon for m in mu]),
        np.array([0.01]),
        np.array([10.0]),
    )
    return float(below[0])


def belief_mu(epsilon: float) -> float:
    """Return the μ whose loss passes ``epsilon`` with probability δ: μ²/2 + μΦ⁻¹(1 − δ) = ε."""
    below, _ = bracket_root(
        lambda mu: np.array([GaussianNoise(mu=float(m)).loss(DELTA) - epsilon for m in mu]),
        np.array([0.01]),
        np.array([10.0]),
    )
    return float(below[0])


def composition_exhibit(bounds: Composed) -> Exhibit:
    """Return the cost of each composition: in ε for the same noise, in noise for the same ε."""
    flat = np.ones_like(bounds.steps)
    displays = (
        CurvesDisplay(
            curves=(
                _curve(bounds, bounds.sequential_rdp, "sequential, Mironov each", GREY, ":"),
                _curve(bounds, bounds.sequential, "sequential, exact each", ORANGE, "-."),
                _curve(bounds, bounds.rdp * flat, "RDP, Mironov", GREEN, "--"),
                _curve(bounds, bounds.tighter * flat, "RDP, tighter conversion", PURPLE, _LONG),
                _curve(bounds, bounds.exact * flat, "exact", BLUE, "-"),
            ),
            xlabel="releases k",
            ylabel=rf"$\epsilon$ at $\delta$ = {DELTA:g}",
            title="(a) the same noise in all",
        ),
        CurvesDisplay(
            curves=(
                _curve(bounds, bounds.noise, "sequential, exact each", ORANGE, "-."),
                _curve(bounds, bounds.noise_rdp * flat, "RDP, Mironov", GREEN, "--"),
                _curve(
                    bounds,
                    bounds.noise_tighter * flat,
                    "RDP, tighter conversion",
                    PURPLE,
                    (0, (5, 1)),
                ),
            ),
            guides=(
                Guide(
                    at=bounds.noise_belief,
                    axis="y",
                    style=":",
                    label=rf"least for the belief {BELIEF:g}",
                ),
                Guide(at=1.0, axis="y", style="-", colour=BLUE, label="exact"),
            ),
            xlabel="releases k",
            ylabel=r"$\sigma$ / least $\sigma$",
            title=rf"(b) the same $\epsilon$ = ln 9 at $\delta$ = {DELTA:g}",
        ),
    )
    return Exhibit(
        name="composition",
        title="Section 4.3: what each way of composing costs",
        caption=(
            "Not in the paper. k releases with Gaussian noise. (a) Each has √k times the noise of"
            " one, so that all together stay the same; their ε by each way of adding up. (b) The"
            " noise that each way asks for, so that all together are (ln 9, 0.01)-private, which"
            " Theorem 2 calls a belief of 0.9. To keep the belief itself (dotted) takes"
            f" {bounds.noise_belief:.2f} times the least noise for (ε, δ)."
        ),
        draw=lambda: panels(displays, columns=2, size=(5.6, 4.2)),
        tables={
            "composition": Table(
                columns={
                    "releases": bounds.steps.astype(np.int64),
                    "epsilon_sequential_exact": bounds.sequential,
                    "epsilon_sequential_mironov": bounds.sequential_rdp,
                    "epsilon_rdp_mironov": bounds.rdp * flat,
                    "epsilon_rdp_tighter": bounds.tighter * flat,
                    "epsilon_exact": bounds.exact * flat,
                    "noise_sequential": bounds.noise,
                    "noise_rdp_mironov": bounds.noise_rdp * flat,
                    "noise_rdp_tighter": bounds.noise_tighter * flat,
                    "noise_for_the_belief": bounds.noise_belief * flat,
                }
            )
        },
        errata=(
            "(4.7) is 1/(1 + exp(−(Σε_RDP + ln(1/δ)/(α − 1)))). The lines after it turn the sign of"
            " the second term, and (4.8) leaves the outer function out.",
        ),
    )


def _curve(bounds: Composed, y: FloatArray, label: str, colour: str, style: Any) -> Curve:
    return Curve(x=bounds.steps, y=y, label=label, colour=colour, style=style)


def composition_claim(bounds: Composed) -> Claim:
    """Check claim (l): RDP against sequential composition."""
    two, all_steps = bounds.at(2), bounds.at(STEPS)
    later = bounds.steps >= 2
    return Claim(
        key="l",
        says=(
            "RDP composes tightly: for the same δ its ρ_β is smaller than that of sequential"
            " composition, which asks for more noise than necessary."
        ),
        where="Sections 2.1 and 4.3",
        outcome=(
            f"In {STEPS} steps at the noise of the paper's chapter 5, δ = {DELTA:g}, the same"
            f" releases have ε = {bounds.exact:.3f} exactly, {bounds.tighter:.3f} by the tighter"
            f" conversion, {bounds.rdp:.3f} by Mironov's (which is that of ρ_β = 0.9),"
            f" {bounds.sequential[all_steps]:.2f} sequentially. So RDP is far better there, but not"
            f" tight: {bounds.rdp / bounds.exact:.2f} times the exact ε. In two steps sequential"
            f" composition of exact ε is the better one, {bounds.sequential[two]:.3f}: Mironov's"
            " conversion costs more than composing does."
        ),
        checks=(
            Check(
                what=f"ε by RDP over sequential ε, {STEPS} steps",
                value=bounds.rdp / bounds.sequential[all_steps],
                relation="<",
                bound=1.0,
            ),
            Check(
                what="largest ε by RDP over sequential ε by Mironov's conversion, from 2 steps on",
                value=float(np.max(bounds.rdp / bounds.sequential_rdp[later])),
                relation="<",
                bound=1.0,
            ),
            Check(
                what="ε by RDP over sequential exact ε, 2 steps",
                value=bounds.rdp / bounds.sequential[two],
                relation="<",
                bound=1.0,
            ),
            Check(
                what="ε by RDP over the exact ε",
                value=bounds.rdp / bounds.exact,
                relation="<=",
                bound=_TIGHT,
            ),
        ),
        figures=("composition",),
    )
