"""The rank-averaged profiles over ε (LeBlond Figs 5 and 6): claims a, b and h.

Conventions
-----------
profile   mean over sampled models of the sorted ∣ℓ∣, over β: (k, n) for k values of ε.
first     its limit for β → 0, where ∣ℓ∣/β is ∣s·u∣ with u the direction of the noise.
last      its limit for β → ∞, the sorted distances.
way       (profile − first)/(last − first), from 0 to 1 at every rank.

The models of every ε share their draws, the two limits included.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from expost.types import FloatArray, IntArray
from papers.common.claims import Check, Claim, quote
from papers.common.exhibits import Exhibit, Table, thinned
from papers.common.figures import Curve, CurvesDisplay, Guide
from papers.leblond.setting import TOLERANCE, Setting

__all__ = [
    "Regimes",
    "crossing",
    "measure_regimes",
    "onset_claim",
    "profiles_exhibits",
    "range_claim",
    "ranks_exhibit",
    "regimes_claim",
]

_STEPS_A_DECADE = 5
# β·distance beyond which a profile is at its limit to single precision.
_LIMITS = (1e-9, 1e12)
# The exposures of the lowest ranks are near 0, where 200 models leave their mean uncertain.
_MOST_RANKS = (0.05, 0.95)
# Ranks that are drawn as a curve.
_DRAWN = 3000
# "Shared": a factor that is hardly seen on an axis of seven decades.
_SHARED = 2.0
_SHOWN_RANKS = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
_ERRATUM_LIPSCHITZ = (
    "Section 3.2: β = nΛε/2 guarantees ε for losses of slope at most 1, as the logistic loss on the"
    " unit ball; it then covers the removal of a row as well as its replacement."
)
_ERRATUM_CAPTION = (
    "The caption of Figure 5 calls the highest ranks the most private ones; by the definition of"
    " Section 4.3 and the text on Figure 6 the losses ascend with the rank, as here."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Regimes:
    """The rank-averaged profiles over ε (module docstring: conventions).

    ``low``, ``high``  where the transition begins and ends, from the exact law: the ε at which the
                       farthest row leaves its first plateau, and half of the rows have reached
                       their second. ``settled``: all rows have.
    ``single``         the same two for the farthest row alone.
    """

    epsilons: FloatArray
    rate: float
    profile: FloatArray
    error: FloatArray
    first: FloatArray
    last: FloatArray
    low: float
    high: float
    settled: float
    single: tuple[float, float]
    models: int

    @property
    def betas(self) -> FloatArray:
        """(k,) β at each ε."""
        return self.rate * self.epsilons

    @cached_property
    def progress(self) -> FloatArray:
        """(k, n)."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return (self.profile - self.first) / (self.last - self.first)

    @cached_property
    def leaves(self) -> FloatArray:
        """(n,) the β at which each rank leaves its first plateau."""
        return crossing(self.betas, self.progress, TOLERANCE)

    @cached_property
    def arrives(self) -> FloatArray:
        """(n,) the β at which each rank reaches its second plateau."""
        return crossing(self.betas, self.progress, 1 - TOLERANCE)


def crossing(betas: FloatArray, progress: FloatArray, level: float) -> FloatArray:
    """Return where each column of ``progress`` (k, n) passes ``level`` for the last time, (n,).

    Between two values of β progress is taken as linear in log β; NaN where it does not pass.
    """
    count, columns = progress.shape
    below = count - 1 - np.argmax((progress <= level)[::-1], axis=0)
    here = np.arange(columns)
    passes = (progress[below, here] <= level) & (below < count - 1)
    below = np.minimum(below, count - 2)
    start, stop = progress[below, here], progress[below + 1, here]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = (level - start) / (stop - start)
    logs = np.log(betas)
    at = np.exp(logs[below] + share * (logs[below + 1] - logs[below]))
    return np.where(passes, at, math.nan)


def measure_regimes(setting: Setting, models: int, seed: np.random.SeedSequence) -> Regimes:
    """Sample the models and average their sorted exposures, from below ``low`` to past the end."""
    exact = setting.sweep()
    mechanism, where = setting.mechanism, exact.transition
    settled = mechanism.epsilon_from(where.arrives, float(setting.distance.min()))
    reach = float(setting.distance.max())
    decades = range(
        math.floor(math.log10(exact.low)) - 3, math.ceil(math.log10(min(settled, 1e12))) + 2
    )
    steps = np.arange(_STEPS_A_DECADE * decades[0], _STEPS_A_DECADE * decades[-1] + 1)
    epsilons = 10.0 ** (steps / _STEPS_A_DECADE)
    limits = np.array(_LIMITS) / (setting.rate * reach)
    sweep = setting.sweep(np.concatenate([epsilons, limits]), models=models, seed=seed)
    profile = sweep.ranked.mean * sweep.resolutions[:, None]
    return Regimes(
        epsilons=epsilons,
        rate=setting.rate,
        profile=profile[:-2],
        error=(sweep.ranked.error * sweep.resolutions[:, None])[:-2],
        first=profile[-2],
        last=profile[-1],
        low=exact.low,
        high=exact.high,
        settled=settled,
        single=(exact.low, mechanism.epsilon_from(where.arrives, reach)),
        models=models,
    )


def regimes_claim(regimes: Regimes) -> Claim:
    """Check claim (a): the three regimes of Fig. 5."""
    early = regimes.epsilons <= regimes.low
    late = regimes.epsilons >= regimes.settled
    between = (regimes.epsilons >= regimes.low) & (regimes.epsilons <= regimes.settled)
    # All but the lowest ranks.
    kept = slice(round(_MOST_RANKS[0] * len(regimes.first)), None)
    profile, first, last = regimes.profile[:, kept], regimes.first[kept], regimes.last[kept]
    off_first = _largest(np.abs(profile[early] / first - 1))
    off_last = _largest(np.abs(profile[late] / last - 1))
    falls = _largest(-np.diff(profile[between], axis=0) / profile[between][:-1])
    rise = float(np.sum(last) / np.sum(first))
    dip = -float(np.min(regimes.progress[early], initial=0.0))
    decades = np.log10([regimes.low / regimes.epsilons[0], regimes.epsilons[-1] / regimes.settled])
    return Claim(
        key="a",
        says=(
            "The mean exposure over β has three regimes in ε at every rank: the same below, the"
            " same above, and rising with ε between them."
        ),
        where="Section 5.4, Fig. 5",
        outcome=(
            f"Over {decades[0]:.1f} decades below ε = {quote(regimes.low)} the averaged profile"
            f" stays within {off_first:.1%} of its limit, over {decades[1]:.1f} decades above ε ="
            f" {quote(regimes.settled)} within {off_last:.1%} of the other, which is {rise:.2f}"
            f" times as high; between them no rank falls by more than {max(falls, 0.0):.1%} from"
            " one ε to the next (all ranks but the lowest twentieth). What the paper does not"
            f" mention: right before the rise the profile dips, the highest ranks by {dip:.2f} of"
            " what they will then rise."
        ),
        checks=(
            Check(
                what="furthest off the first plateau at ε ≤ low, relative",
                value=off_first,
                relation="<=",
                bound=TOLERANCE,
            ),
            Check(
                what="furthest off the second plateau past the last row's arrival, relative",
                value=off_last,
                relation="<=",
                bound=TOLERANCE,
            ),
            Check(
                what="largest fall between them from one ε to the next, relative",
                value=falls,
                relation="<=",
                bound=TOLERANCE,
            ),
            Check(
                what="second plateau over the first, mean of the ranks",
                value=rise,
                relation=">=",
                bound=1 + TOLERANCE,
            ),
        ),
        figures=("fig5a", "fig5b"),
    )


def onset_claim(regimes: Regimes) -> Claim:
    """(b) All ranks leave at a shared β, and arrive at one that depends on the rank (Fig. 6)."""
    leaving, arriving = _factor(regimes.leaves), _factor(regimes.arrives)
    most = [_factor(values, *_MOST_RANKS) for values in (regimes.leaves, regimes.arrives)]
    start = regimes.rate * regimes.low
    tail = max(1, round(_MOST_RANKS[0] * len(regimes.leaves)))
    width = regimes.arrives / regimes.leaves
    bottom, top = float(np.median(width[:tail])), float(np.median(width[-tail:]))
    ends = float(np.median(regimes.leaves[:tail])), float(np.median(regimes.leaves[-tail:]))
    return Claim(
        key="b",
        says=(
            "All ranks leave the first plateau at a shared β; they reach the second at a β that"
            " depends on the rank, the higher ranks after a narrower transition."
        ),
        where="Section 5.4, Fig. 6",
        outcome=(
            f"The first rank leaves at β = {quote(_least(regimes.leaves))}; the exact law keeps"
            f" every row on its plateau up to {quote(start)}. The β at which ranks leave spans a"
            f" factor of {leaving:.2f} ({most[0]:.2f} for nine in ten): the lowest twentieth leaves"
            f" at {quote(ends[0])}, the highest at {quote(ends[1])}. That at which they arrive"
            f" spans {arriving:.1f} ({most[1]:.2f}). From the one to the other it takes the lowest"
            f" ranks a factor of {bottom:.3g}, the highest {top:.3g}. Single rows leave at β that"
            f" span a factor of {regimes.last[-1] / regimes.last[0]:.3g}; a rank mixes near rows"
            " with far ones."
        ),
        checks=(
            Check(
                what="first β at which any rank leaves, over the β of the exact low",
                value=_least(regimes.leaves) / start,
                relation=">=",
                bound=1.0,
            ),
            Check(
                what="factor between the β at which the ranks leave",
                value=leaving,
                relation="<=",
                bound=_SHARED,
            ),
            Check(
                what="factor between the β at which the ranks arrive",
                value=arriving,
                relation=">=",
                bound=_SHARED,
            ),
            Check(
                what="width of the highest ranks' transition over that of the lowest",
                value=top / bottom,
                relation="<",
                bound=1.0,
            ),
        ),
        figures=("fig6",),
    )


def range_claim(regimes: Regimes) -> Claim:
    """Check claim (h): an order of magnitude of ε is left to search (Fig. 6, caption)."""
    single = math.log10(regimes.single[1] / regimes.single[0])
    whole = math.log10(regimes.high / regimes.low)
    return Claim(
        key="h",
        says="The transition leaves about one order of magnitude in which ε should be searched.",
        where="Fig. 6, caption",
        outcome=(
            f"A tenth off either plateau, the transition of one row spans {single:.2f} orders of"
            f" magnitude. The data as a whole spans {whole:.2f}: from ε = {quote(regimes.low)},"
            f" where the farthest row leaves, to {quote(regimes.high)}, where half of the rows"
            " have arrived."
        ),
        checks=(
            Check(
                what="orders of magnitude of one row's transition",
                value=single,
                relation="<=",
                bound=1.25,
            ),
            Check(
                what="orders of magnitude from low to high",
                value=whole,
                relation="<=",
                bound=1.25,
            ),
        ),
        figures=("fig6",),
    )


def profiles_exhibits(regimes: Regimes) -> tuple[Exhibit, Exhibit]:
    """LeBlond Figs 5a (all regimes) and 5b (the transition)."""
    powers = np.log10(regimes.epsilons)
    wide = np.flatnonzero(np.abs(powers - np.round(powers)) < 1e-9)
    narrow = np.flatnonzero(
        (regimes.epsilons >= regimes.low / 2) & (regimes.epsilons <= 2 * regimes.high)
    )
    common = (
        f"Mean of the sorted exposures over {regimes.models} models, divided by β, of"
        f" {regimes.profile.shape[1]:,} rows."
    )
    return (
        Exhibit(
            name="fig5a",
            title="Figure 5a: averaged profiles at any ε",
            caption=(
                f"{common} The curves of low ε fall on each other, and so do those of high ε (they"
                " are drawn ever thinner, so that each is seen)."
            ),
            draw=lambda: _profiles(regimes, wide, nested=True).plot().figure_,
            tables={"fig5a": _profiles_table(regimes, wide)},
            errata=(_ERRATUM_LIPSCHITZ, _ERRATUM_CAPTION),
        ),
        Exhibit(
            name="fig5b",
            title="Figure 5b: averaged profiles through the transition",
            caption=(
                f"{common} From below the exact low, {quote(regimes.low)}, to above the exact"
                f" high, {quote(regimes.high)}."
            ),
            draw=lambda: _profiles(regimes, narrow, nested=False).plot().figure_,
            tables={"fig5b": _profiles_table(regimes, narrow)},
        ),
    )


def _profiles(regimes: Regimes, places: IntArray, *, nested: bool) -> CurvesDisplay:
    """Curves that coincide are seen through each other: ever thinner ones, or dashes."""
    ranks = thinned(regimes.profile.shape[1], _DRAWN)
    powers = np.log10(regimes.epsilons[places]).round(9)
    return CurvesDisplay(
        curves=tuple(
            Curve(
                x=(ranks + 1).astype(np.float64),
                y=regimes.profile[at, ranks],
                label=f"{power:g}".replace("-", "−"),
                colour=index / max(1, len(places) - 1),
                style="-" if nested or index % 2 == 0 else (0, (4, 4)),
                width=4.8 - 3.8 * index / max(1, len(places) - 1) if nested else 1.8,
            )
            for index, (at, power) in enumerate(zip(places, powers, strict=True))
        ),
        xlabel="rank, least exposed first",
        ylabel=r"mean exposure / $\beta$",
        legend_title=r"$\log_{10}\,\epsilon$",
        log_x=False,
        beside=True,
    )


def _profiles_table(regimes: Regimes, places: IntArray) -> Table:
    ranks = thinned(regimes.profile.shape[1])
    return Table(
        columns={
            "log10_epsilon": np.repeat(np.log10(regimes.epsilons[places]).round(9), len(ranks)),
            "beta": np.repeat(regimes.betas[places], len(ranks)),
            "rank": np.tile(ranks + 1, len(places)),
            "mean_exposure_over_beta": regimes.profile[places][:, ranks].ravel(),
            "standard_error": regimes.error[places][:, ranks].ravel(),
        },
        note=f"{len(ranks)} of {regimes.profile.shape[1]:,} ranks, closer together at both ends.",
    )


def ranks_exhibit(regimes: Regimes) -> Exhibit:
    """LeBlond Fig. 6."""
    count = regimes.profile.shape[1]
    chosen = np.unique([round(share * (count - 1)) for share in _SHOWN_RANKS])
    display = CurvesDisplay(
        curves=tuple(
            Curve(
                x=regimes.betas,
                y=regimes.profile[:, rank],
                label=f"{rank + 1:,}",
                colour=index / max(1, len(chosen) - 1),
                spread=2 * regimes.error[:, rank],
            )
            for index, rank in enumerate(chosen)
        ),
        guides=(
            Guide(at=regimes.rate * regimes.low, label="low (exact)"),
            Guide(at=regimes.rate * regimes.high, label="high (exact)", style=":"),
        ),
        xlabel=r"$\beta$",
        ylabel=r"mean exposure / $\beta$",
        legend_title="rank",
        beside=True,
    )
    ranks = thinned(count)
    return Exhibit(
        name="fig6",
        title="Figure 6: from the first plateau to the second, rank by rank",
        caption=(
            f"The same averages against β (bands: two standard errors of {regimes.models} models)."
            " Dashed: the β below which every row is on its first plateau, exactly; dotted: the β"
            " at which half of the rows have reached their second."
        ),
        draw=lambda: display.plot().figure_,
        tables={
            "fig6": Table(
                columns={
                    "rank": np.repeat(chosen + 1, len(regimes.betas)),
                    "epsilon": np.tile(regimes.epsilons, len(chosen)),
                    "beta": np.tile(regimes.betas, len(chosen)),
                    "mean_exposure_over_beta": regimes.profile[:, chosen].T.ravel(),
                    "standard_error": regimes.error[:, chosen].T.ravel(),
                },
                note="The ranks of the figure.",
            ),
            "fig6-transition": Table(
                columns={
                    "rank": ranks + 1,
                    "first_plateau": regimes.first[ranks],
                    "second_plateau": regimes.last[ranks],
                    "beta_leaves": regimes.leaves[ranks],
                    "beta_arrives": regimes.arrives[ranks],
                },
                note=f"Where {len(ranks)} of {count:,} ranks leave and arrive, a tenth off.",
            ),
        },
        errata=(_ERRATUM_LIPSCHITZ,),
    )


def _least(values: FloatArray) -> float:
    """Return the least entry; infinite where none is a number."""
    return float(np.min(values, initial=math.inf, where=~np.isnan(values)))


def _largest(values: FloatArray) -> float:
    """Return the largest entry; NaN where there is none or one is not a number."""
    return float(np.max(values)) if values.size else math.nan


def _factor(values: FloatArray, low: float = 0.0, high: float = 1.0) -> float:
    """Return the factor between two quantiles of the values; NaN where one is not a number."""
    least, most = np.quantile(values, (low, high))
    return float(most / least)
