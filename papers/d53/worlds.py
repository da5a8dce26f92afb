"""D5.3 Section 3.2, Figs 3.2 and 4.1: two worlds, one release, and the attacker between them.

Conventions
-----------
f(D) = 0, f(D') = 1    as in the paper's figures: the distance is the sensitivity, Δf = 1.
r                      the release, N(f, σ²) in either world; σ = √(2 ln(1.25/δ))/ε (Eq. 2.1).
belief                 Pr(D | r), from a prior of ½.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import expit, ndtr
from scipy.stats import norm

from expost._numerics import bracket_root
from expost.accounting import gaussian_scale
from expost.numbers import percent
from expost.types import FloatArray
from papers.common.claims import Check, Claim, quote
from papers.common.exhibits import Exhibit, Table
from papers.common.figures import BLUE, ORANGE, Curve, panels
from papers.d53.displays import Region, WorldsDisplay

__all__ = [
    "Stepwise",
    "World",
    "boundary_claim",
    "classical_mu",
    "delta_text",
    "errors_exhibit",
    "guarantee_text",
    "least_mu",
    "measure_steps",
    "measure_worlds",
    "steps_claim",
    "worlds_exhibit",
]

# Fig. 4.1 has (6, 10⁻⁶) and (3, 10⁻⁶); the paper does not print those of Fig. 3.2.
_SETTINGS = ((6.0, 1e-2), (6.0, 1e-6), (3.0, 1e-6), (2.0, 1e-6))
_REGIONS = ((6.0, 1e-6), (3.0, 1e-6))
_MIDDLE = 0.5
_SIDES = ("D is said", "D′ is said")
_EXACT = 1e-9
_OUTPUTS = 401
# Of Lemma 1: the steps of the paper's chapter 5; each releases a vector.
_STEPS, _COLUMNS, _GAMES = 30, 5, 2000


def classical_mu(epsilon: float, delta: float) -> float:
    """μ = Δf/σ of D5.3 (2.1): ε/√(2 ln(1.25/δ)). Its proof needs ε < 1 (Dwork and Roth 2014)."""
    return epsilon / math.sqrt(2 * math.log(1.25 / delta))


def least_mu(epsilon: float, delta: float) -> float:
    """μ of the least Gaussian noise that is (ε, δ)-DP, by the analytic Gaussian mechanism."""
    return 1 / gaussian_scale(epsilon, delta, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """One guarantee: what both worlds look like, and what the attacker makes of it.

    ``output``           (r,) the releases; ``here``, ``there`` (r,) their densities under D and D'.
    ``belief``           (r,) in D.
    ``boundary``         the release at which the belief is ½.
    ``error``            how often the attacker is wrong, Φ(−1/2σ).
    ``least_error``      the same at the least noise that keeps the guarantee.
    """

    epsilon: float
    delta: float
    scale: float
    output: FloatArray
    here: FloatArray
    there: FloatArray
    belief: FloatArray
    boundary: float
    error: float
    least_error: float

    @property
    def advantage(self) -> float:
        """2·P(right) − 1."""
        return 1 - 2 * self.error

    @property
    def belief_at_zero(self) -> float:
        """The belief in D where the release is f(D) itself."""
        return float(expit(0.5 / self.scale**2))


def measure_worlds() -> tuple[World, ...]:
    """Measure the worlds of Fig. 3.2, the weakest guarantee first; Fig. 4.1's are among them."""
    return tuple(_world(epsilon, delta) for epsilon, delta in _SETTINGS)


def _world(epsilon: float, delta: float) -> World:
    scale = 1 / classical_mu(epsilon, delta)
    output = np.linspace(-4.0, 5.0, _OUTPUTS)

    def evidence(r: FloatArray) -> FloatArray:
        there, here = norm.logpdf(r, 1.0, scale), norm.logpdf(r, 0.0, scale)
        difference: FloatArray = there - here
        return difference

    below, above = bracket_root(evidence, np.array([-4.0]), np.array([5.0]))
    return World(
        epsilon=epsilon,
        delta=delta,
        scale=scale,
        output=output,
        here=norm.pdf(output, 0.0, scale),
        there=norm.pdf(output, 1.0, scale),
        belief=expit(-evidence(output)),
        boundary=float(below[0] + above[0]) / 2,
        error=float(ndtr(-0.5 / scale)),
        least_error=float(ndtr(-0.5 * least_mu(epsilon, delta))),
    )


def delta_text(delta: float) -> str:
    """10⁻⁶ for a sentence: a power of ten needs no factor before it."""
    return quote(delta).removeprefix("1\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}")


def guarantee_text(epsilon: float, delta: float) -> str:
    """Return (6, 10⁻⁶) for matplotlib."""
    power = math.log10(delta)
    shown = f"$10^{{{power:.0f}}}$" if math.isclose(power, round(power)) else f"{delta:g}"
    return f"({epsilon:g}, {shown})"


def worlds_exhibit(worlds: tuple[World, ...]) -> Exhibit:
    """D5.3 Fig. 3.2."""
    places = np.linspace(0.0, 0.95, len(worlds))
    densities, beliefs = [], []
    for world, shade in zip(worlds, places, strict=True):
        label = guarantee_text(world.epsilon, world.delta)
        for density, style, text in ((world.here, "-", label), (world.there, "--", None)):
            densities.append(
                Curve(x=world.output, y=density, label=text, colour=float(shade), style=style)
            )
        beliefs.append(Curve(x=world.output, y=world.belief, label=label, colour=float(shade)))
    displays = (
        WorldsDisplay(
            curves=tuple(densities),
            boundary=worlds[0].boundary,
            xlabel="release r",
            ylabel="density",
            title="(a) densities: D solid, D′ dashed",
            legend_title=r"$(\epsilon, \delta)$",
            sides=_SIDES,
            most=0.88,
        ),
        WorldsDisplay(
            curves=tuple(beliefs),
            boundary=worlds[0].boundary,
            xlabel="release r",
            ylabel="belief in D",
            title="(b) posterior belief, from a prior of ½",
            legend_title=r"$(\epsilon, \delta)$",
            sides=_SIDES,
            most=1.13,
        ),
    )
    weak, strong = worlds[1], worlds[2]
    moved = (math.log(0.7 / 0.3) * world.scale**2 + _MIDDLE for world in (weak, strong))
    return Exhibit(
        name="fig3.2",
        title="Figure 3.2: two worlds, and what the attacker believes",
        caption=(
            "f(D) = 0, f(D′) = 1, Gaussian noise with the σ of Eq. (2.1). The paper does not print"
            " its guarantees; Figure 4.1's two are among these. The densities cross, and the belief"
            " is ½, at r = ½, whatever the noise. That is owed to the prior of ½: from a prior of"
            f" 0.7 for D the boundary lies at r = {quote(next(moved))} for (6, 10⁻⁶), and at"
            f" r = {quote(next(moved))} for (3, 10⁻⁶)."
        ),
        draw=lambda: panels(displays, columns=2, size=(5.6, 4.2)),
        tables={"fig3.2": _worlds_table(worlds), "fig3.2-settings": _settings_table(worlds)},
    )


def errors_exhibit(worlds: tuple[World, ...]) -> Exhibit:
    """D5.3 Fig. 4.1."""
    shown = [world for world in worlds if (world.epsilon, world.delta) in _REGIONS]
    displays = [_regions_display(letter, world) for letter, world in zip("ab", shown, strict=False)]
    return Exhibit(
        name="fig4.1",
        title="Figure 4.1: where the attacker errs",
        caption=(
            "The same two worlds; the densities are not scaled by the prior, so each area is the"
            " probability of an error in one world. "
            + " ".join(
                f"At ε = {world.epsilon:g} the attacker is wrong in {percent(world.error)} of the"
                f" games (σ = {quote(world.scale)}), and with the least noise that is"
                f" ({world.epsilon:g}, 10⁻⁶)-private in {percent(world.least_error)}."
                for world in shown
            )
        ),
        draw=lambda: panels(displays, columns=2, size=(5.6, 4.2)),
        tables={
            "fig4.1": _worlds_table(tuple(shown)),
            "fig4.1-errors": _settings_table(tuple(shown)),
        },
    )


def _regions_display(letter: str, world: World) -> WorldsDisplay:
    right = world.output >= world.boundary
    left = world.output <= world.boundary
    return WorldsDisplay(
        curves=(
            Curve(x=world.output, y=world.here, label="density under D", colour=ORANGE),
            Curve(x=world.output, y=world.there, label="density under D′", colour=BLUE, style="--"),
        ),
        regions=(
            Region(
                x=world.output[right],
                y=world.here[right],
                label="D, and D′ is said",
                colour=ORANGE,
                hatch="//",
            ),
            Region(
                x=world.output[left],
                y=world.there[left],
                label="D′, and D is said",
                colour=BLUE,
                hatch="\\\\",
            ),
        ),
        boundary=world.boundary,
        xlabel="release r",
        ylabel="density",
        title=(
            rf"({letter}) {guarantee_text(world.epsilon, world.delta)}: wrong in"
            rf" {100 * world.error:.1f} %, $\rho_\alpha$ = {world.advantage:.3f}"
        ),
        sides=_SIDES,
        most=0.5,
    )


def _worlds_table(worlds: tuple[World, ...]) -> Table:
    size = len(worlds[0].output)
    return Table(
        columns={
            "epsilon": np.repeat([world.epsilon for world in worlds], size),
            "delta": np.repeat([world.delta for world in worlds], size),
            "r": np.concatenate([world.output for world in worlds]),
            "density_D": np.concatenate([world.here for world in worlds]),
            "density_D_prime": np.concatenate([world.there for world in worlds]),
            "belief_D": np.concatenate([world.belief for world in worlds]),
        }
    )


def _settings_table(worlds: tuple[World, ...]) -> Table:
    return Table(
        columns={
            name: np.array([getattr(world, name) for world in worlds])
            for name in (
                "epsilon",
                "delta",
                "scale",
                "boundary",
                "error",
                "advantage",
                "least_error",
            )
        },
        note="scale is σ by Eq. (2.1), least_error that of the least noise",
    )


def boundary_claim(worlds: tuple[World, ...]) -> Claim:
    """Check claim (a): the boundary stays, the belief falls, the errors grow."""
    steps = list(pairwise(worlds))
    weak, strong = (
        next(world for world in worlds if (world.epsilon, world.delta) == region)
        for region in _REGIONS
    )
    return Claim(
        key="a",
        says=(
            "A stronger guarantee leaves the boundary between saying D and saying D′ where it is;"
            " it lowers how certain the attacker is, and the advantage."
        ),
        where="Section 3.2, Fig. 3.2; Section 4.2, Fig. 4.1",
        outcome=(
            f"The boundary is r = ½ for each of {len(worlds)} guarantees. From (6, 10⁻⁶) to (3,"
            f" 10⁻⁶) the belief in D at r = 0 falls from {quote(weak.belief_at_zero)} to"
            f" {quote(strong.belief_at_zero)}, the advantage from {quote(weak.advantage)} to"
            f" {quote(strong.advantage)}. (With a prior other than ½ the boundary does move.)"
        ),
        checks=(
            Check(
                what="largest distance of a boundary from ½",
                value=max(abs(world.boundary - _MIDDLE) for world in worlds),
                relation="<=",
                bound=_EXACT,
            ),
            Check(
                what="largest change of the belief in D at r = 0, to the next stronger guarantee",
                value=max(b.belief_at_zero - a.belief_at_zero for a, b in steps),
                relation="<",
                bound=0.0,
            ),
            Check(
                what="largest change of the advantage, to the next stronger guarantee",
                value=max(b.advantage - a.advantage for a, b in steps),
                relation="<",
                bound=0.0,
            ),
        ),
        figures=("fig3.2", "fig4.1"),
    )


@dataclass(frozen=True, kw_only=True)
class Stepwise:
    """Lemma 1 in sampled games: beliefs updated step by step beside the one of all steps.

    ``difference``  the largest between the two.
    ``one_step``    the largest from that of one release, the sum of all steps.
    """

    games: int
    steps: int
    columns: int
    difference: float
    one_step: float


def measure_steps(seed: np.random.SeedSequence) -> Stepwise:
    """Games of 30 releases of vectors, each with a shift of its own and noise of its own scale."""
    rng = np.random.default_rng(seed)
    shift = rng.normal(size=(_STEPS, _COLUMNS))
    scale = rng.uniform(4.0, 12.0, size=_STEPS)
    noise = rng.normal(size=(_GAMES, _STEPS, _COLUMNS)) * scale[:, None]
    member = rng.random(_GAMES) < 0.5
    # f(D) = 0 and f(D') = shift at each step.
    release = noise + np.where(member, 0.0, 1.0)[:, None, None] * shift
    here = np.sum(norm.logpdf(release, 0.0, scale[:, None]), axis=2)
    there = np.sum(norm.logpdf(release, shift, scale[:, None]), axis=2)
    belief = np.full(_GAMES, 0.5)
    for step in range(_STEPS):
        mine = np.exp(here[:, step]) * belief
        belief = mine / (mine + np.exp(there[:, step]) * (1 - belief))
    whole = expit((here - there).sum(axis=1))
    # Σ r·shift/σ² is sufficient, and Σ ∥shift∥²/σ² its shift as well as its variance.
    weight = shift / scale[:, None] ** 2
    spread = float(np.sum(weight * shift))
    single = expit(spread / 2 - np.sum(release * weight, axis=(1, 2)))
    return Stepwise(
        games=_GAMES,
        steps=_STEPS,
        columns=_COLUMNS,
        difference=float(np.max(np.abs(belief - whole))),
        one_step=float(np.max(np.abs(belief - single))),
    )


def steps_claim(game: Stepwise) -> Claim:
    """Check claim (b): Lemma 1."""
    return Claim(
        key="b",
        says=(
            "The belief after k releases follows from the belief after k − 1: it is that of the"
            " products of all densities (Lemma 1)."
        ),
        where="Section 3.2",
        outcome=(
            f"In {game.games:,} games of {game.steps} releases in {game.columns} dimensions the"
            f" two differ by at most {quote(game.difference)}; so does the belief from one release"
            " with the noise of all (Gaussian)."
        ),
        checks=(
            Check(
                what="largest difference, step by step against all at once",
                value=game.difference,
                relation="<=",
                bound=_EXACT,
            ),
            Check(
                what="largest difference, step by step against one release",
                value=game.one_step,
                relation="<=",
                bound=_EXACT,
            ),
        ),
    )
