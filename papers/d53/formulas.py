"""The formulas of MOSAICrOWN D5.3, chapter 4, as printed or as corrected, to compare with print.

They are figures, not guarantees: nothing is rounded up, and some hold under conditions only, which
each docstring names. What a guarantee allows is in :mod:`expost.risk`.

Conventions
-----------
ρ_β   ``belief``: bound on the posterior belief of an attacker with prior ½ (Def. 4, Thm 2).
ρ_α   ``advantage``: bound on the expected membership advantage (Def. 5, Thm 3).
μ     √Σ(Δᵢ/σᵢ)² over the steps of Gaussian noise σᵢ on functions of sensitivity Δᵢ: under
      composition they act as one step with this μ, of Rényi divergence αμ²/2 at every order α.
"""

import math

from scipy.special import erf, erfinv, expit

from expost import _checks
from expost.errors import InvalidInput
from expost.risk.guarantee import extended, rate

__all__ = [
    "belief",
    "epsilon_from_belief",
    "epsilon_from_gaussian_advantage",
    "gaussian_advantage",
    "general_advantage",
    "rdp_advantage",
    "rdp_advantage_from_belief",
    "rdp_belief",
    "rdp_mu_from_belief",
]


def belief(epsilon: float) -> float:
    """ρ_β = 1/(1 + e^(−ε)) (Thm 2(i)); ε is the sum over the releases.

    Holds for pure ε. Thm 2(ii), the same but with probability δ under (ε, δ), does not hold in
    general (erratum 10): see :meth:`expost.risk.EpsilonDelta.loss`.
    """
    return float(expit(extended("epsilon", epsilon)))


def epsilon_from_belief(belief: float) -> float:
    """ε = ln(ρ_β/(1 − ρ_β)) (after Thm 2), ½ ≤ ρ_β < 1; validity as :func:`belief`."""
    return _log_odds(belief)


def general_advantage(epsilon: float, *, false_positive_rate: float = 0.5) -> float:
    """Return (e^ε − 1)·Pr(A = 1∣b = 0), at most 1 (Prop. 2, Eq. 4.1); holds for pure ε.

    The paper takes ½ for the probability that the row is claimed though it was not there (a
    rational attacker), and 1 for Yeom et al.'s e^ε − 1. Neither is tight: tanh(ε/2) is
    (erratum 9).
    """
    epsilon = extended("epsilon", epsilon)
    share = rate("false_positive_rate", false_positive_rate)
    if share == 0:
        return 0.0
    # From there on e^ε·share ≥ 2: the bound says nothing, and e^ε might overflow.
    if epsilon + math.log(share) >= math.log(2):
        return 1.0
    if epsilon > 700:
        return min(math.exp(epsilon + math.log(share)), 1.0)
    return min(math.expm1(epsilon) * share, 1.0)


def gaussian_advantage(epsilon: float, delta: float) -> float:
    """ρ_α = 2Φ(ε/(2√(2 ln(1.25/δ)))) − 1 (Thm 3).

    Holds for Gaussian noise of the classical σ = √(2 ln(1.25/δ))/ε at sensitivity 1, which is
    (ε, δ)-DP for ε < 1 only. For noise calibrated exactly (Balle and Wang) it is
    :attr:`expost.risk.GaussianNoise.advantage`, and larger.
    """
    epsilon = extended("epsilon", epsilon)
    # 2Φ(x) − 1 = erf(x/√2), which keeps its digits for small x.
    return float(erf(epsilon / (4 * math.sqrt(_classical(delta)))))


def epsilon_from_gaussian_advantage(advantage: float, delta: float) -> float:
    """ε = 2√(2 ln(1.25/δ))·Φ⁻¹((ρ_α + 1)/2): Thm 3 inverted, with the 2 that the print lacks.

    Erratum 7; validity as :func:`gaussian_advantage`.
    """
    return (
        4
        * math.sqrt(_classical(delta))
        * float(erfinv(_checks.probability("advantage", advantage)))
    )


def rdp_belief(mu: float, delta: float) -> float:
    """ρ_β = sigmoid(μ²/2 + μ√(2 ln(1/δ))), passed with probability at most δ (Eq. 4.7).

    (4.7) is sigmoid(ε_RDP + ln(1/δ)/(α − 1)) with ε_RDP = αμ²/2, here at the real order
    α = 1 + √(2 ln(1/δ))/μ where it is least (erratum 8 corrects 4.8; δ is for the composition).
    Holds for Gaussian noise: Mironov's conversion bounds P(ℓ > ε) itself, not only δ(ε).
    """
    mu = extended("mu", mu)
    spread = _mironov(delta)
    return float(expit(mu * (0.5 * mu + spread)))


def rdp_mu_from_belief(belief: float, delta: float) -> float:
    """Return μ with :func:`rdp_belief` = ρ_β: μ = √(2 ln(1/δ) + 2 logit ρ_β) − √(2 ln(1/δ))."""
    odds, spread = _log_odds(belief), _mironov(delta)
    # The difference of the roots, without cancellation.
    return 2 * odds / (spread + math.sqrt(spread * spread + 2 * odds)) if odds > 0 else 0.0


def rdp_advantage(epsilon_rdp: float, order: float) -> float:
    """ρ_α = 2Φ(√(ε_RDP/(2α))) − 1 (Sec. 4.3); exact for Gaussian noise, where ε_RDP = αμ²/2."""
    epsilon_rdp = extended("epsilon_rdp", epsilon_rdp)
    order = _checks.positive("order", order)
    if not order > 1:
        raise InvalidInput(f"order={order!r}: must be above 1, as the order of a Rényi divergence.")
    return float(erf(0.5 * math.sqrt(epsilon_rdp / order)))


def rdp_advantage_from_belief(belief: float, delta: float) -> float:
    """ρ_α of the μ that ρ_β allows: 2Φ(μ/2) − 1 (Sec. 4.3 and 5.1).

    Published for ρ_β = 0.9, δ = 0.01: 0.2562 (Sec. 5.2).
    """
    return float(erf(rdp_mu_from_belief(belief, delta) / math.sqrt(8)))


def _classical(delta: float) -> float:
    """ln(1.25/δ)."""
    return math.log(1.25) - math.log(_checks.probability("delta", delta))


def _mironov(delta: float) -> float:
    """Return √(2 ln(1/δ))."""
    return math.sqrt(-2 * math.log(_checks.probability("delta", delta)))


def _log_odds(belief: float) -> float:
    belief = _checks.probability("belief", belief)
    if not belief >= 0.5:
        raise InvalidInput(
            f"belief={belief!r}: must be at least 0.5, which an undecided attacker starts from."
        )
    # log(ρ/(1 − ρ)) loses its digits near ½.
    return math.log1p((belief - 0.5) / (0.5 * (1 - belief)))
