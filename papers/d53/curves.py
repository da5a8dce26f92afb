"""D5.3 Fig. 4.2: ρ_β and ρ_α against ε for several δ, by the paper's formulas and exactly.

Conventions
-----------
paper      ρ_β = sigmoid(ε) (Thm 2); ρ_α = 2Φ(μ/2) − 1 with the μ = ε/√(2 ln(1.25/δ)) of Eq. (2.1)
           (Thm 3).
exact      for Gaussian noise: the belief that is passed with probability δ,
           sigmoid(μ²/2 + μΦ⁻¹(1 − δ)), and the advantage 2Φ(μ/2) − 1, both at
least      the μ of the least noise that is (ε, δ)-DP (the analytic Gaussian mechanism), and at
classical  that of Eq. (2.1).
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from expost._numerics import bracket_root
from expost.accounting import gaussian_delta
from expost.numbers import percent
from expost.risk import EpsilonDelta, GaussianNoise
from expost.types import FloatArray
from papers.common.claims import Check, Claim, quote
from papers.common.exhibits import Exhibit, Table
from papers.common.figures import INK, Curve, CurvesDisplay, Guide, panels
from papers.d53 import formulas
from papers.d53.worlds import classical_mu, delta_text, least_mu

__all__ = [
    "Curves",
    "Games",
    "classical_claim",
    "curves_exhibit",
    "delta_claim",
    "low_and_high_claim",
    "measure_curves",
    "play",
    "tight_claim",
]

_DELTAS = (1e-6, 1e-3, 1e-2, 1e-1)
_EXACT = 1e-9
# "No significant difference": within one percentage point.
_SIGNIFICANT = 0.01
# "Tight": within one percentage point.
_TIGHT = 0.01
# "Low" and "high", of an advantage from 0 to 1 and a belief from ½ to 1.
_LOW, _HIGH = 0.2, 0.8
# The paper's example after Thm 3.
_EXAMPLE = (2.0, 1e-6)
_GAMES = 1_000_000
_AXIS = r"$\epsilon$"


@dataclass(frozen=True, kw_only=True, eq=False)
class Curves:
    """Both figures on a grid, δ by row: (d, e), or (e,) where δ does not enter.

    ``kept``      (d, e) δ(ε) of the noise of Eq. (2.1), over δ: above 1 it is not (ε, δ)-DP.
    ``crossing``  (d,) the ε from which on it is not.
    """

    epsilon: FloatArray
    delta: FloatArray
    belief: FloatArray
    belief_least: FloatArray
    belief_classical: FloatArray
    advantage: FloatArray
    advantage_least: FloatArray
    advantage_classical: FloatArray
    kept: FloatArray
    crossing: FloatArray


def measure_curves() -> Curves:
    """ε from 0.1 to 10, on a scale that has 1 and 10."""
    epsilon = np.linspace(0.0, 10.0, 101)[1:]
    delta = np.array(_DELTAS)
    grid = [[(float(e), float(d)) for e in epsilon] for d in delta]
    least = [[GaussianNoise(mu=least_mu(*at)) for at in line] for line in grid]
    classical = [[GaussianNoise(mu=classical_mu(*at)) for at in line] for line in grid]
    return Curves(
        epsilon=epsilon,
        delta=delta,
        belief=np.array([formulas.belief(float(e)) for e in epsilon]),
        belief_least=_beliefs(least, delta),
        belief_classical=_beliefs(classical, delta),
        advantage=np.array([[formulas.gaussian_advantage(*at) for at in line] for line in grid]),
        advantage_least=np.array([[noise.advantage for noise in line] for line in least]),
        advantage_classical=np.array([[noise.advantage for noise in line] for line in classical]),
        kept=np.array(
            [[gaussian_delta(at[0], classical_mu(*at)) / at[1] for at in line] for line in grid]
        ),
        crossing=np.array([_crossing(float(d)) for d in delta]),
    )


def _beliefs(noises: list[list[GaussianNoise]], delta: FloatArray) -> FloatArray:
    return np.array(
        [
            [noise.posterior(delta=float(d)) for noise in line]
            for line, d in zip(noises, delta, strict=True)
        ]
    )


def _crossing(delta: float) -> float:
    """Return the ε from which the noise of Eq. (2.1) is not (ε, δ)-DP."""
    below, above = bracket_root(
        lambda epsilon: np.array(
            [gaussian_delta(float(e), classical_mu(float(e), delta)) / delta - 1 for e in epsilon]
        ),
        np.array([1.0]),
        np.array([100.0]),
    )
    return float(below[0] + above[0]) / 2


@dataclass(frozen=True, kw_only=True)
class Games:
    """Games at (2, 10⁻⁶) with the σ of Eq. (2.1), played by the Bayes adversary.

    ``advantage``  2·(share won) − 1, with its standard error.
    ``sure``       the share in which the adversary is more than 80 % certain.
    """

    games: int
    advantage: float
    error: float
    sure: float


def play(seed: np.random.SeedSequence) -> Games:
    """Experiment 2, with f(D) = 0, f(D') = 1 and one release a game."""
    rng = np.random.default_rng(seed)
    scale = 1 / classical_mu(*_EXAMPLE)
    member = rng.random(_GAMES) < 0.5
    release = np.where(member, 0.0, 1.0) + scale * rng.normal(size=_GAMES)
    # log g(r | D) − log g(r | D'), each up to the same constant.
    belief = expit(((release - 1) ** 2 - release**2) / (2 * scale**2))
    won = (belief > 0.5) == member
    return Games(
        games=_GAMES,
        advantage=float(2 * np.mean(won) - 1),
        error=float(2 * np.std(won) / math.sqrt(_GAMES)),
        sure=float(np.mean(np.maximum(belief, 1 - belief) > _HIGH)),
    )


def curves_exhibit(curves: Curves) -> Exhibit:
    """D5.3 Fig. 4.2, and under it what the formulas leave out."""
    places = np.linspace(0.0, 0.9, len(curves.delta))
    labels = [rf"$\delta = 10^{{{math.log10(d):.0f}}}$" for d in curves.delta]
    exact_beliefs, paper_advantages, exact_advantages, gaps, advantage_gaps = [], [], [], [], []
    for row, (shade, label) in enumerate(zip(places.tolist(), labels, strict=True)):

        def curve(
            y: FloatArray,
            style: str = "-",
            *,
            shade: float = shade,
            label: str | None = label,
        ) -> Curve:
            return Curve(x=curves.epsilon, y=y, label=label, colour=shade, style=style)

        exact_beliefs.append(curve(curves.belief_least[row]))
        exact_advantages.append(curve(curves.advantage_least[row]))
        paper_advantages.append(curve(curves.advantage[row], "--", label=None))
        gaps.append(curve(curves.belief_least[row] - curves.belief))
        gaps.append(curve(curves.belief_classical[row] - curves.belief, ":", label=None))
        advantage_gaps.append(curve(curves.advantage_least[row] - curves.advantage[row]))
    displays = (
        CurvesDisplay(
            curves=(
                *exact_beliefs,
                Curve(
                    x=curves.epsilon,
                    y=curves.belief,
                    label="the paper's, every δ",
                    colour=INK,
                    style="--",
                    width=2.0,
                ),
            ),
            ylabel=r"belief $\rho_\beta$",
            title=r"(a) $\rho_\beta$: paper dashed, exact solid",
            limits_y=(0.48, 1.01),
            xlabel=_AXIS,
            log_x=False,
            log_y=False,
        ),
        CurvesDisplay(
            curves=(*exact_advantages, *paper_advantages),
            ylabel=r"advantage $\rho_\alpha$",
            title=r"(b) $\rho_\alpha$ of Gaussian noise: paper dashed, exact solid",
            limits_y=(-0.02, 1.01),
            xlabel=_AXIS,
            log_x=False,
            log_y=False,
        ),
        CurvesDisplay(
            curves=tuple(gaps),
            guides=(Guide(at=0.0, axis="y", style="-"),),
            ylabel=r"exact $\rho_\beta$ − paper's",
            title=r"(c) least noise solid, $\sigma$ of (2.1) dotted",
            xlabel=_AXIS,
            log_x=False,
            log_y=False,
        ),
        CurvesDisplay(
            curves=tuple(advantage_gaps),
            guides=(Guide(at=0.0, axis="y", style="-"),),
            ylabel=r"exact $\rho_\alpha$ − paper's",
            title="(d) least noise",
            xlabel=_AXIS,
            log_x=False,
            log_y=False,
        ),
    )
    crossings = ", ".join(
        f"{crossing:.1f} for δ = {delta_text(delta)}"
        for delta, crossing in zip(curves.delta.tolist(), curves.crossing.tolist(), strict=True)
    )
    return Exhibit(
        name="fig4.2",
        title="Figure 4.2: belief and advantage against ε",
        caption=(
            "(a), (b): the paper's formulas dashed, exact values for the least Gaussian noise that"
            " is (ε, δ)-private solid. The exact ρ_β is the belief that is passed with probability"
            " δ; the paper's does not depend on δ. (c), (d): exact minus paper. Where (d) is above"
            " 0 Theorem 3 understates what (ε, δ) allows, since Eq. (2.1) adds more noise than"
            " needed; where it is below 0 the noise of Eq. (2.1) is no longer (ε, δ)-private:"
            f" beyond ε = {crossings}."
        ),
        draw=lambda: panels(displays, columns=2, size=(5.6, 4.0)),
        tables={"fig4.2": _curves_table(curves), "fig4.2-crossing": _crossing_table(curves)},
        errata=(
            "Eq. (2.1) is proved for ε < 1 (Dwork and Roth 2014), which the paper leaves out.",
        ),
    )


def _curves_table(curves: Curves) -> Table:
    rows, columns = curves.advantage.shape
    return Table(
        columns={
            "delta": np.repeat(curves.delta, columns),
            "epsilon": np.tile(curves.epsilon, rows),
            "belief_paper": np.tile(curves.belief, rows),
            **{
                name: getattr(curves, attribute).ravel()
                for name, attribute in (
                    ("belief_least_noise", "belief_least"),
                    ("belief_classical_noise", "belief_classical"),
                    ("advantage_paper", "advantage"),
                    ("advantage_least_noise", "advantage_least"),
                    ("classical_delta_over_delta", "kept"),
                )
            },
        }
    )


def _crossing_table(curves: Curves) -> Table:
    return Table(
        columns={"delta": curves.delta, "epsilon": curves.crossing},
        note="the ε from which the noise of Eq. (2.1) is not (ε, δ)-private",
    )


def delta_claim(curves: Curves) -> Claim:
    """Check claim (e): ρ_β hardly depends on δ."""
    below = np.abs(curves.belief_classical - curves.belief)
    gap = curves.belief_least - curves.belief
    row, column = np.unravel_index(int(np.argmax(gap)), gap.shape)
    small = float(np.max(gap[0]))
    any_mechanism = EpsilonDelta(epsilon=1.0, delta=0.1).posterior(delta=0.1)
    return Claim(
        key="e",
        says=(
            "For 0 < δ < 0.1 there is no significant difference between ρ_β under ε-DP and under"
            " (ε, δ)-DP."
        ),
        where="Section 4.2, Fig. 4.2(a)",
        outcome=(
            "In the formula there is none, because δ is not in it. The belief that Gaussian noise"
            f" really passes with probability δ is up to {quote(float(gap.max()))} larger (at"
            f" ε = {curves.epsilon[column]:g}, δ = {curves.delta[row]:g}:"
            f" {curves.belief_least[row, column]:.3f} for {curves.belief[column]:.3f}), for δ ="
            f" 10⁻⁶ up to {quote(small)}; with the σ of Eq. (2.1) it is up to"
            f" {quote(float(below.max()))} off. Of an arbitrary (1, 0.1)-private mechanism nothing"
            f" short of {quote(any_mechanism)} is guaranteed with probability 0.9."
        ),
        checks=(
            *(
                Check(
                    what=f"largest difference, least Gaussian noise, δ = {delta_text(delta)}",
                    value=float(np.max(np.abs(line))),
                    relation="<=",
                    bound=_SIGNIFICANT,
                )
                for delta, line in zip(curves.delta.tolist(), gap, strict=True)
            ),
            Check(
                what="largest difference, Gaussian noise by Eq. (2.1)",
                value=float(np.max(below)),
                relation="<=",
                bound=_SIGNIFICANT,
            ),
        ),
        figures=("fig4.2",),
    )


def classical_claim(curves: Curves) -> Claim:
    """Check claim (g): Eq. (2.1)."""
    proved = curves.epsilon <= 1
    kept, large = float(np.max(curves.kept[:, proved])), float(np.max(curves.kept[:, -1]))
    first, last = (
        delta_text(float(curves.delta[index]))
        for index in (curves.crossing.argmin(), curves.crossing.argmax())
    )
    return Claim(
        key="g",
        says="σ > Δf·√(2 ln(1.25/δ))/ε gives (ε, δ)-DP (Eq. 2.1); it is used at ε = 6.",
        where="Section 2.1, Figs 4.1 and 4.2",
        outcome=(
            "Up to ε = 1, for which it is proved, it gives at most"
            f" {quote(kept)} times the δ that was asked for, so that there is more noise than"
            " needed. It holds up to"
            f" ε = {curves.crossing.min():.1f} (δ = {first}) to {curves.crossing.max():.1f}"
            f" (δ = {last}), so also in Figure 4.1; at ε = 10 it gives up to {quote(large)} times"
            " δ."
        ),
        checks=(
            Check(
                what="largest δ(ε) over δ, ε ≤ 1",
                value=kept,
                relation="<=",
                bound=1.0,
            ),
            Check(
                what="largest δ(ε) over δ, ε = 10",
                value=large,
                relation="<=",
                bound=1.0,
            ),
        ),
        figures=("fig4.2",),
    )


def tight_claim(curves: Curves, games: Games) -> Claim:
    """Check claim (h): Thm 3."""
    gap = curves.advantage_least - curves.advantage
    row, column = np.unravel_index(int(np.argmax(gap)), gap.shape)
    same = float(np.max(np.abs(curves.advantage_classical - curves.advantage)))
    return Claim(
        key="h",
        says=(
            "ρ_α = 2Φ(ε/(2√(2 ln(1.25/δ)))) − 1 bounds the advantage under the (ε, δ)-DP Gaussian"
            " mechanism, tightly (Theorem 3)."
        ),
        where="Section 4.2",
        outcome=(
            "For the σ of Eq. (2.1) it is the advantage itself:"
            f" {games.games:,} games at (2, 10⁻⁶) give {games.advantage:.4f} ±"
            f" {games.error:.4f} where it says {formulas.gaussian_advantage(*_EXAMPLE):.4f}. But"
            " Gaussian noise may be (ε, δ)-private with less: with the least noise the advantage"
            f" is up to {quote(float(gap.max()))} larger (at ε = {curves.epsilon[column]:g},"
            f" δ = {curves.delta[row]:g}: {curves.advantage_least[row, column]:.3f} for"
            f" {curves.advantage[row, column]:.3f}; for δ = 10⁻⁶ up to"
            f" {quote(float(gap[0].max()))}): it understates. Beyond the ε at which Eq. (2.1) fails"
            f" it overstates, by up to {quote(-float(gap.min()))} (ε ≤ 10)."
        ),
        checks=(
            Check(
                what="largest difference from the advantage at the σ of Eq. (2.1)",
                value=same,
                relation="<=",
                bound=_EXACT,
            ),
            Check(
                what="largest excess of the advantage at the least noise, as a bound",
                value=float(gap.max()),
                relation="<=",
                bound=_EXACT,
            ),
            Check(
                what="largest difference from the advantage at the least noise, as a tight bound",
                value=float(np.max(np.abs(gap))),
                relation="<=",
                bound=_TIGHT,
            ),
        ),
        figures=("fig4.2",),
    )


def low_and_high_claim(games: Games) -> Claim:
    """Check claim (j): a low ρ_α and a high ρ_β."""
    advantage, belief = formulas.gaussian_advantage(*_EXAMPLE), formulas.belief(_EXAMPLE[0])
    least = GaussianNoise(mu=least_mu(*_EXAMPLE))
    return Claim(
        key="j",
        says="At (2, 10⁻⁶) ρ_α is low although ρ_β is high.",
        where="Section 4.2, Fig. 4.2",
        outcome=(
            f"ρ_α = {advantage:.3f} (with the least noise {least.advantage:.3f}),"
            f" ρ_β = {belief:.3f}. They answer different questions: the attacker is right in"
            f" {percent((1 + advantage) / 2)} of the games, and more than 80 % certain in"
            f" {percent(games.sure)} of them: a belief near ρ_β is the rarest of events, and no"
            " support for a typical guess."
        ),
        checks=(
            Check(what="ρ_α by Theorem 3", value=advantage, relation="<=", bound=_LOW),
            Check(what="ρ_α at the least noise", value=least.advantage, relation="<=", bound=_LOW),
            Check(what="ρ_β", value=belief, relation=">=", bound=_HIGH),
        ),
        figures=("fig4.2",),
    )
