"""The same transition under Gaussian noise: claim g (LeBlond 4.1, "preliminary results").

Conventions
-----------
μ = distance/σ takes the place of t = β·distance, 1/σ that of β. ℓ ~ N(μ²/2, μ²) in any dimension,
so that E∣ℓ∣/μ starts on the plateau √(2/π); it then rises like μ/2 and has no second plateau.
"""

import math
from dataclasses import dataclass

import numpy as np

from expost.epsilon.ranked import rank_averages
from expost.noise import Gaussian, GaussianLaw
from expost.types import FloatArray, IntArray
from papers.common.claims import Check, Claim, quote
from papers.common.exhibits import Exhibit, Table
from papers.common.figures import BLUE, INK, ORANGE, Curve, CurvesDisplay, Guide, panels
from papers.leblond.onset import SPECTRUM, Sampled, sampled_roots
from papers.leblond.setting import TOLERANCE, Effort, Setting

__all__ = ["GaussianTransition", "gaussian_claim", "gaussian_exhibit", "measure_gaussian"]

_DELTA = 1e-6
_STEPS_A_DECADE = 5
# μ of the farthest row at which every profile is on its first plateau to single precision.
_LIMIT = 1e-9
_ON_PLATEAU = 1e-3
_SAMPLED = 0.03
_SHOWN_RANKS = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianTransition:
    """Profiles (k, n) over 1/σ (k,), each divided by 1/σ, and the onset of single rows.

    ``leaves``, ``arrives``  the exact μ at which any row leaves √(2/π) and joins μ²/2.
    ``sampled``              (r,) the first of them from refitted models and sampled noise.
    ``low``, ``high``        the ε of the transition at δ = 1e-6; low is 0 where none is.
    """

    inverse_scales: FloatArray
    profile: FloatArray
    error: FloatArray
    first: FloatArray
    rows: IntArray
    distance: FloatArray
    sampled: tuple[Sampled, ...]
    leaves: float
    arrives: float
    farthest: float
    low: float
    high: float
    models: int


def measure_gaussian(
    setting: Setting, effort: Effort, seed: np.random.SeedSequence
) -> GaussianTransition:
    """Rank-averaged profiles over σ, and the onset of rows of the spectrum by brute force."""
    exact = setting.sweep(noise="gaussian", delta=_DELTA)
    where = exact.transition
    far, near = float(setting.distance.max()), float(setting.distance.min())
    steps = np.arange(
        math.floor(_STEPS_A_DECADE * (math.log10(where.leaves / far) - 2)),
        math.ceil(_STEPS_A_DECADE * (math.log10(where.arrives / max(near, 1e-9 * far)) + 1)),
    )
    inverse = 10.0 ** (steps / _STEPS_A_DECADE)
    rank_seed, *row_seeds = seed.spawn(1 + len(SPECTRUM))
    noise = Gaussian(scale=1.0, dimension=setting.dimension)
    ranked = rank_averages(
        setting.neighbours.shifts,
        setting.distance,
        noise,
        1 / np.append(inverse, _LIMIT / far),
        noise.sample(effort.models, np.random.default_rng(rank_seed)),
    )
    profile = ranked.mean / np.append(inverse, _LIMIT / far)[:, None]
    rows = setting.spectrum(SPECTRUM)
    return GaussianTransition(
        inverse_scales=inverse,
        profile=profile[:-1],
        error=ranked.error[:-1] / inverse[:, None],
        first=profile[-1],
        rows=rows,
        distance=setting.distance[rows],
        sampled=tuple(
            _sampled_onset(setting, int(row), noise, effort, child)
            for row, child in zip(rows, row_seeds, strict=True)
        ),
        leaves=where.leaves,
        arrives=where.arrives,
        farthest=far,
        low=exact.low,
        high=exact.high,
        models=effort.models,
    )


def _sampled_onset(
    setting: Setting, row: int, noise: Gaussian, effort: Effort, seed: np.random.SeedSequence
) -> Sampled:
    """distance/σ at which one row leaves its plateau: refitted, its log density ratio averaged."""
    base = setting.neighbours.base
    neighbour = setting.refitted(row)
    apart = float(np.linalg.norm(neighbour - base))
    rng = np.random.default_rng(seed)
    batches = [noise.sample(effort.draws, rng) for _ in range(effort.batches)]

    def mean(inverses: FloatArray) -> FloatArray:
        means = []
        for inverse, draws in zip(inverses, batches, strict=True):
            # log N(M; A(x), σ²) − log N(M; A(y), σ²) at M = A(x) + σb.
            shifted = draws + inverse * (base - neighbour)
            loss = 0.5 * (np.sum(shifted**2, axis=1) - np.sum(draws**2, axis=1))
            means.append(np.mean(np.abs(loss)))
        return np.array(means)

    start = mean(np.full(effort.batches, _ON_PLATEAU / apart)) / _ON_PLATEAU

    def passed(inverses: FloatArray) -> FloatArray:
        return mean(inverses) / (inverses * apart) / start - 1 - TOLERANCE

    return sampled_roots(passed, effort.batches, apart, bracket=(0.1, 10.0))


def gaussian_claim(transition: GaussianTransition) -> Claim:
    """Check claim (g): the key findings apply to Gaussian noise as well."""
    values = np.array([root.value for root in transition.sampled])
    miss = float(np.max(np.abs(values / transition.leaves - 1)))
    early = transition.inverse_scales * transition.farthest <= transition.leaves
    # Nine ranks in ten: the lowest are near 0, the highest those of the very rows that leave.
    edge = round(0.05 * len(transition.first))
    kept = slice(edge, len(transition.first) - edge)
    off = np.abs(transition.profile[early][:, kept] / transition.first[kept] - 1)
    growth = _growth(transition)
    start = f"ε = {quote(transition.low)}" if transition.low > 0 else "below every ε"
    return Claim(
        key="g",
        says="The key findings apply to Gaussian noise as well.",
        where="Section 4.1",
        outcome=(
            "With μ = distance/σ for β·distance, E|ℓ|/μ leaves its first plateau, √(2/π), for"
            f" every row at μ = {transition.leaves:.4g} by the exact law, and at {values.min():.3f}"
            f" to {values.max():.3f} on refitted models with sampled noise: the onset scales as"
            f" 1/distance here too. Past μ = {transition.arrives:.4g} the mean exposure joins the"
            f" mean loss, μ²/2, so that over 1/σ it continues to grow with the power {growth:.3f},"
            f" where norm-Laplace noise has a second plateau. At δ = {quote(_DELTA)} the transition"
            f" runs from {start} to {quote(transition.high)}."
        ),
        checks=(
            Check(
                what="furthest off the first plateau before the onset, nine ranks in ten, relative",
                value=float(np.max(off)) if off.size else math.nan,
                relation="<=",
                bound=TOLERANCE,
            ),
            Check(
                what="largest miss of a sampled onset from the exact μ, relative",
                value=miss,
                relation="<=",
                bound=_SAMPLED,
            ),
            Check(
                what="power with which the exposure over 1/σ still grows at the end",
                value=growth,
                relation="<=",
                bound=TOLERANCE,
            ),
        ),
        figures=("gaussian",),
    )


def _growth(transition: GaussianTransition) -> float:
    """d log(profile)/d log(1/σ) of the median rank between the last two σ."""
    middle = transition.profile.shape[1] // 2
    rise = math.log(transition.profile[-1, middle] / transition.profile[-2, middle])
    return rise / math.log(transition.inverse_scales[-1] / transition.inverse_scales[-2])


def gaussian_exhibit(transition: GaussianTransition) -> Exhibit:
    """Figs 6 and 7 (right) again, under Gaussian noise."""
    count = transition.profile.shape[1]
    chosen = np.unique([round(share * (count - 1)) for share in _SHOWN_RANKS])
    left = CurvesDisplay(
        curves=tuple(
            Curve(
                x=transition.inverse_scales,
                y=transition.profile[:, rank],
                label=f"{rank + 1:,}",
                colour=index / max(1, len(chosen) - 1),
                spread=2 * transition.error[:, rank],
            )
            for index, rank in enumerate(chosen)
        ),
        guides=(Guide(at=transition.leaves / transition.farthest, label="low (exact)"),),
        xlabel=r"$1/\sigma$",
        ylabel=r"mean exposure $\cdot\,\sigma$",
        legend_title="rank",
        beside=True,
    )
    mu = np.geomspace(1e-2, 1e2, 121)
    law = GaussianLaw(separation=mu)
    exposure = law.expected_exposure / mu
    right = CurvesDisplay(
        curves=(
            Curve(x=mu, y=exposure, label=r"$\overline{|\ell|}\,/\,\mu$", colour=BLUE, width=2),
            Curve(
                x=mu, y=mu / 2, label=r"$\overline{\ell}\,/\,\mu$ = μ/2", colour=ORANGE, style="-."
            ),
        ),
        guides=(
            Guide(at=transition.leaves, label=f"leaves, {transition.leaves:.3f}"),
            Guide(at=transition.arrives, label=f"joins μ²/2, {transition.arrives:.3f}", style=":"),
            Guide(at=math.sqrt(2 / math.pi), axis="y", style=":", colour=INK),
        ),
        xlabel=r"$\mu = |A(x) - A(y_i)|\,/\,\sigma$",
        ylabel=r"mean loss / $\mu$",
        limits_y=(5e-3, 1e2),
    )
    return Exhibit(
        name="gaussian",
        title="Section 4.1: the transition under Gaussian noise",
        caption=(
            f"Left: as Figure 6, {transition.models} models, with 1/σ for β (bands: two standard"
            " errors). Right: every row at once, by the exact law; the plateau √(2/π), its end, and"
            " where the mean exposure joins the mean loss μ²/2."
        ),
        draw=lambda: panels([left, right], columns=2, size=(5.8, 4.2)),
        tables={
            "gaussian": Table(
                columns={
                    "rank": np.repeat(chosen + 1, len(transition.inverse_scales)),
                    "inverse_sigma": np.tile(transition.inverse_scales, len(chosen)),
                    "mean_exposure_times_sigma": transition.profile[:, chosen].T.ravel(),
                    "standard_error": transition.error[:, chosen].T.ravel(),
                },
                note="The ranks of the figure.",
            ),
            "gaussian-law": Table(
                columns={
                    "mu": mu,
                    "mean_exposure_over_mu": exposure,
                    "mean_loss_over_mu": law.expected_loss / mu,
                }
            ),
            "gaussian-onset": Table(
                columns={
                    "i": transition.rows + 1,
                    "distance": transition.distance,
                    "mu_exact": np.full(len(transition.rows), transition.leaves),
                    "mu_sampled": np.array([root.value for root in transition.sampled]),
                    "standard_error": np.array([root.error for root in transition.sampled]),
                }
            ),
        },
    )
