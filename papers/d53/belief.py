"""D5.3 Thm 2: what bounds the belief, when it is reached, and how often it is passed.

Conventions
-----------
ρ_β      sigmoid(Σε).
passed   P(ℓ > ε) where the row was there: how often the belief passes ρ_β.
tilted   randomised response that tells the truth with probability (e^ε + δ)/(e^ε + 1): it is
         (ε, δ)-DP with equality, and its loss is above ε whenever it tells the truth.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtr

from expost._numerics import bracket_root
from expost.numbers import percent
from expost.risk import EpsilonDelta, GaussianNoise
from expost.types import FloatArray
from papers.common.claims import Check, Claim, quote
from papers.common.exhibits import Exhibit, Table
from papers.common.figures import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    Curve,
    CurvesDisplay,
    Guide,
    panels,
)
from papers.d53 import formulas
from papers.d53.worlds import classical_mu, least_mu

__all__ = [
    "Attained",
    "Passed",
    "attained_claim",
    "measure_attained",
    "measure_passed",
    "passed_claim",
    "passed_exhibit",
    "tilted_truth",
]

_EXACT = 1e-9
_EPSILONS = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0)
_RELEASES = (1, 2, 10, 30)
# The examples of Thm 2(ii).
_EXAMPLE, _SMALL = (1.0, 0.01), (1.0, 1e-6)
_GAMES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Attained:
    """Thm 2(i) on mechanisms whose densities are written out, the belief by Lemma 1.

    ``shortfall``   the largest of ρ_β minus the largest belief, over ``_EPSILONS``, ``_RELEASES``
                    and two mechanisms: randomised response, Laplace noise.
    ``excess``      the same of the largest belief minus ρ_β.
    ``inverse``     the largest relative error of ln(ρ_β/(1 − ρ_β)).
    ``often``       how often randomised response with ε = 0.1 reaches ρ_β in 1, and in 30 releases.
    """

    shortfall: float
    excess: float
    inverse: float
    often: tuple[float, float]


def measure_attained() -> Attained:
    """Measure the largest belief after k releases, which is that of the k most revealing ones."""
    gaps, errors = [], []
    for epsilon in _EPSILONS:
        for releases in _RELEASES:
            bound = formulas.belief(releases * epsilon)
            gaps += [
                repeated_belief(pair, releases) - bound
                for pair in (_answers(epsilon), _laplace(epsilon))
            ]
        errors.append(abs(formulas.epsilon_from_belief(formulas.belief(epsilon)) / epsilon - 1))
    truth = math.exp(0.1) / (1 + math.exp(0.1))
    return Attained(
        shortfall=-min(gaps),
        excess=max(gaps),
        inverse=max(errors),
        often=(truth, truth**30),
    )


def _answers(epsilon: float) -> tuple[float, float]:
    """Randomised response: the probability of "yes" with the row and without it."""
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    return truth, 1 - truth


def _laplace(epsilon: float) -> tuple[float, float]:
    """Densities at a release of 0 − 1 = −1, with scale 1/ε around f(D) = 0 and f(D') = 1."""
    return epsilon / 2 * math.exp(-epsilon), epsilon / 2 * math.exp(-2 * epsilon)


def repeated_belief(pair: tuple[float, float], releases: int) -> float:
    """Return the belief after the same answer at every release, by Lemma 1 step by step."""
    belief = 0.5
    for _ in range(releases):
        belief = belief * pair[0] / (belief * pair[0] + (1 - belief) * pair[1])
    return belief


def attained_claim(game: Attained) -> Claim:
    """Check claim (c): Thm 2(i)."""
    once, thirty = game.often
    return Claim(
        key="c",
        says=(
            "Under pure ε-DP the belief stays below 1/(1 + e^(−Σε)), tightly, and ε = ln(ρ_β/(1 −"
            " ρ_β)) is what a belief allows (Theorem 2(i))."
        ),
        where="Section 4.1",
        outcome=(
            "It does, and randomised response and Laplace noise reach it: the largest belief is"
            f" within {quote(max(game.shortfall, game.excess))} of the bound over ε from"
            f" {_EPSILONS[0]:g} to {_EPSILONS[-1]:g} and up to {_RELEASES[-1]} releases. How often"
            " is another matter: randomised response with ε = 0.1 reaches its bound in"
            f" {percent(once)} of single releases, and with probability {quote(thirty)} in thirty,"
            " where all answers must agree."
        ),
        checks=(
            Check(
                what="largest belief above the bound",
                value=game.excess,
                relation="<=",
                bound=_EXACT,
            ),
            Check(
                what="largest belief short of the bound",
                value=game.shortfall,
                relation="<=",
                bound=_EXACT,
            ),
            Check(
                what="relative error of the inverse",
                value=game.inverse,
                relation="<=",
                bound=_EXACT,
            ),
        ),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Passed:
    """How often the belief passes ρ_β where Thm 2(ii) allows δ.

    ``epsilon``    (e,); ``delta`` (d,): the grid.
    ``least``      (d, e) P(ℓ > ε) under the least Gaussian noise that is (ε, δ)-DP.
    ``classical``  (d, e) the same with the σ of Eq. (2.1).
    ``tilted``     (d, e) the same of tilted randomised response.
    ``sampled``    the share of sampled releases that passed, at (1, 0.01): least noise, tilted.
    ``crossing``   the ε from which Eq. (2.1) passes ρ_β more often than 10⁻⁶.
    """

    epsilon: FloatArray
    delta: FloatArray
    least: FloatArray
    classical: FloatArray
    tilted: FloatArray
    sampled: tuple[float, float]
    crossing: float

    def at(self, name: str, epsilon: float, delta: float) -> float:
        """Return an entry of one of the grids."""
        row = int(np.flatnonzero(np.isclose(self.delta, delta))[0])
        column = int(np.flatnonzero(np.isclose(self.epsilon, epsilon))[0])
        return float(getattr(self, name)[row, column])


def measure_passed(seed: np.random.SeedSequence) -> Passed:
    """Measure closed forms over a grid, and sampled releases at one point of it."""
    rng = np.random.default_rng(seed)
    epsilon = np.union1d(np.geomspace(0.1, 20.0, 40), [1.0, 6.0])
    delta = np.array([_SMALL[1], 1e-4, _EXAMPLE[1]])
    grid = [[(float(e), float(d)) for e in epsilon] for d in delta]
    mu, truth = least_mu(*_EXAMPLE), tilted_truth(*_EXAMPLE)
    bound = formulas.belief(_EXAMPLE[0])
    release = rng.normal(size=_GAMES)
    member = rng.random(_GAMES) < truth
    below, above = bracket_root(
        lambda e: _overdraft(e, _SMALL[1]), np.array([0.1]), np.array([20.0])
    )
    return Passed(
        epsilon=epsilon,
        delta=delta,
        least=np.array([[_past(least_mu(*at), at[0]) for at in line] for line in grid]),
        classical=np.array([[_past(classical_mu(*at), at[0]) for at in line] for line in grid]),
        tilted=np.array([[tilted_truth(*at) for at in line] for line in grid]),
        sampled=(
            # D's release is N(0, 1) and that of D' N(μ, 1).
            float(np.mean(expit(0.5 * mu * mu - mu * release) > bound)),
            float(np.mean(np.where(member, truth, 1 - truth) > bound)),
        ),
        crossing=float(below[0] + above[0]) / 2,
    )


def _past(mu: float, epsilon: float) -> float:
    """P(ℓ > ε) = Φ(μ/2 − ε/μ), ℓ ~ N(μ²/2, μ²) (erratum 10)."""
    return float(ndtr(mu / 2 - epsilon / mu))


def _overdraft(epsilon: FloatArray, delta: float) -> FloatArray:
    """P(ℓ > ε) − δ under Eq. (2.1); increasing in ε."""
    return np.array([_past(classical_mu(float(e), delta), float(e)) for e in epsilon]) - delta


def tilted_truth(epsilon: float, delta: float) -> float:
    """Return (e^ε + δ)/(e^ε + 1)."""
    return (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))


def passed_exhibit(excess: Passed) -> Exhibit:
    """Return how often the belief passes ρ_β, and how far."""
    epsilon, delta = _EXAMPLE
    bound = formulas.belief(epsilon)
    passed = np.concatenate([np.geomspace(1e-4, delta * 1.001, 40), _past_grid(delta)])
    guarantees = {
        "any_mechanism": EpsilonDelta(epsilon=epsilon, delta=delta),
        "least_noise": GaussianNoise(mu=least_mu(epsilon, delta)),
        "classical_noise": GaussianNoise(mu=classical_mu(epsilon, delta)),
    }
    beliefs = {
        name: np.array([guarantee.posterior(delta=float(p)) for p in passed])
        for name, guarantee in guarantees.items()
    }
    looks = (
        ("any_mechanism", "the worst of all mechanisms", GREEN, "-"),
        ("least_noise", "Gaussian, least noise", BLUE, "--"),
        ("classical_noise", r"Gaussian, $\sigma$ of (2.1)", ORANGE, "-."),
    )
    displays = (
        _ratios_display(excess),
        CurvesDisplay(
            curves=(
                *(
                    Curve(x=beliefs[name], y=passed, label=label, colour=colour, style=style)
                    for name, label, colour, style in looks
                ),
                Curve(
                    x=np.array([bound, bound, 1.0]),
                    y=np.array([1.0, delta, delta]),
                    label="what Theorem 2(ii) allows",
                    colour=INK,
                    style=":",
                    width=2.0,
                ),
            ),
            xlabel="belief",
            ylabel="probability of a larger belief",
            title=rf"(b) at $\epsilon$ = {epsilon:g}, $\delta$ = {delta:g}",
            log_x=False,
            limits_y=(1e-4, 1.3),
        ),
    )
    return Exhibit(
        name="theorem2",
        title="Theorem 2(ii): how often the belief passes its bound",
        caption=(
            "Not in the paper. (a) How often the belief passes ρ_β = sigmoid(ε), as a multiple of"
            " δ: Gaussian noise, Φ(μ/2 − ε/μ)/δ, with the least noise that is (ε, δ)-private and"
            " with the σ of Eq. (2.1). (b) How far it passes: at each belief the most that any"
            " (1, 0.01)-private mechanism does, and what Gaussian noise does. Below a probability"
            " of δ no belief short of certainty is guaranteed."
        ),
        draw=lambda: panels(displays, columns=2, size=(5.6, 4.2)),
        tables={
            "theorem2": _passed_table(excess),
            "theorem2-tails": Table(
                columns={"probability": passed}
                | {f"belief_{name}": values for name, values in beliefs.items()}
            ),
        },
        errata=(
            "(ε, δ)-DP gives no more than P(ℓ > ε + γ) ≤ δ/(1 − e^(−γ)). The printed proof of"
            " Theorem 2 ends with δ = 0.",
        ),
    )


def _past_grid(delta: float) -> FloatArray:
    """Probabilities from δ to nearly 1, closer together next to δ."""
    grid: FloatArray = delta + (0.999 - delta) * np.geomspace(1e-4, 1.0, 160)
    return grid


def _ratios_display(excess: Passed) -> CurvesDisplay:
    curves = []
    for row, colour in ((0, BLUE), (len(excess.delta) - 1, ORANGE)):
        delta = float(excess.delta[row])
        power = rf"$\delta = 10^{{{math.log10(delta):.0f}}}$"
        curves += [
            Curve(
                x=excess.epsilon,
                y=excess.least[row] / delta,
                label=f"least noise, {power}",
                colour=colour,
            ),
            Curve(
                x=excess.epsilon,
                y=excess.classical[row] / delta,
                label=rf"$\sigma$ of (2.1), {power}",
                colour=colour,
                style="--",
            ),
        ]
    return CurvesDisplay(
        curves=tuple(curves),
        guides=(Guide(at=1.0, axis="y", style=":", label="what Theorem 2(ii) allows"),),
        xlabel=r"$\epsilon$",
        ylabel=r"$P(\mathrm{belief} > \rho_\beta)\,/\,\delta$",
        title="(a) Gaussian noise",
        limits_y=(0.03, 3000.0),
    )


def _passed_table(excess: Passed) -> Table:
    rows, columns = excess.least.shape
    return Table(
        columns={
            "delta": np.repeat(excess.delta, columns),
            "epsilon": np.tile(excess.epsilon, rows),
            "passed_least_noise": excess.least.ravel(),
            "passed_classical_noise": excess.classical.ravel(),
            "passed_tilted_randomised_response": excess.tilted.ravel(),
        }
    )


def passed_claim(excess: Passed) -> Claim:
    """Check claim (d): Thm 2(ii): for arbitrary mechanisms, so that one is enough against it."""
    tilted = excess.at("tilted", *_SMALL)
    least, large = excess.at("least", *_SMALL), excess.at("least", *_EXAMPLE)
    six = excess.at("classical", 6.0, _SMALL[1])
    mironov = _past(formulas.rdp_mu_from_belief(formulas.belief(_SMALL[0]), _SMALL[1]), _SMALL[0])
    return Claim(
        key="d",
        says=(
            "For arbitrary (ε, δ)-DP mechanisms the same bound holds with probability 1 − Σδ"
            " (Theorem 2(ii))."
        ),
        where="Section 4.1",
        outcome=(
            f"Randomised response that tells the truth with probability {tilted:.7f} is exactly (1,"
            " 10⁻⁶)-private, and its belief passes ρ_β whenever it does:"
            f" {percent(tilted)} instead of 10⁻⁶, if by little. Gaussian noise with the least σ for"
            f" (1, 10⁻⁶) passes it with probability {quote(least)}, for (1, 0.01) with"
            f" {quote(large)} ({quote(excess.sampled[0])} of {_GAMES:,} sampled releases). The"
            f" larger σ of Eq. (2.1) keeps to δ up to ε = {excess.crossing:.2f} (δ = 10⁻⁶), not at"
            f" the paper's own (6, 10⁻⁶): {quote(six)}. Noise calibrated by Mironov's conversion"
            f" does keep it ({quote(mironov)} at (1, 10⁻⁶))."
        ),
        checks=(
            Check(
                what="P(belief > ρ_β)/δ, randomised response, (1, 10⁻⁶)",
                value=tilted / _SMALL[1],
                relation="<=",
                bound=1.0,
            ),
            Check(
                what="P(belief > ρ_β)/δ, least Gaussian noise, (1, 10⁻⁶)",
                value=least / _SMALL[1],
                relation="<=",
                bound=1.0,
            ),
            Check(
                what="P(belief > ρ_β)/δ, least Gaussian noise, (1, 0.01)",
                value=large / _EXAMPLE[1],
                relation="<=",
                bound=1.0,
            ),
            Check(
                what="P(belief > ρ_β)/δ, Gaussian noise by Eq. (2.1), (6, 10⁻⁶)",
                value=six / _SMALL[1],
                relation="<=",
                bound=1.0,
            ),
        ),
        figures=("theorem2",),
    )
