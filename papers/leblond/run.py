"""``python -m papers leblond``: the figures and the claims of LeBlond et al. 2023."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from papers.common.reproduction import Paper, Reproduction, reproduce_into
from papers.datasets import Dataset, load_adult
from papers.leblond import gaussian, objective, onset, peak, points, questions, regimes
from papers.leblond.setting import SIX, Effort, Setting, normalised_rows

__all__ = ["PHASES", "Reproduction", "reproduce"]

# How often `reproduce` reports a phase.
PHASES = 9
_PAPER = Paper(
    name="LeBlond et al. 2023",
    title=(
        "Probing the Transition to Dataset-Level Privacy in ML Models Using an Output-Specific and"
        " Data-Resolved Privacy Profile"
    ),
    data="UCI Adult",
    made_from="UCI Adult, which is public",
)


def reproduce(
    out: Path,
    *,
    data: Path | None = None,
    seed: int = 0,
    phase: Callable[[str], None] = lambda name: None,
    force: bool = False,
) -> Reproduction:
    """Write Figures 1–8 of the paper with their numbers, and a page of its claims, into ``out``.

    ``data``   a file of UCI Adult; where :func:`papers.datasets.load_adult` finds it if None.
    ``seed``   of everything that is sampled: the same seed gives the same tables.
    ``phase``  receives the name of each phase, ``PHASES`` times.
    ``force``  write into a folder that is not empty, over an earlier run.
    """

    def from_adult(seed: int) -> Reproduction:
        phase("reading Adult")
        adult = load_adult(data)
        source = adult.source if data is None else f"UCI Adult, {Path(data).name}"
        return compute(adult, seed=seed, effort=Effort(), source=source, phase=phase)

    return reproduce_into(out, from_adult, seed=seed, phase=phase, force=force)


def compute(
    adult: Dataset, *, seed: int, effort: Effort, source: str, phase: Callable[[str], None]
) -> Reproduction:
    """Return all claims and exhibits, nothing written."""
    train = adult.rows("train")
    X, y = normalised_rows(train)
    seeds = np.random.SeedSequence(seed).spawn(8)
    phase("finding every row's neighbour")
    setting = Setting.of(X, y)
    six = [Setting.of(*normalised_rows(part, SIX)) for part in (train, adult)]
    samples = points.draw_samples(X, y, seeds[0])
    phase("averaging profiles over models")
    ranked = regimes.measure_regimes(setting, effort.models, seeds[1])
    phase("sampling single rows")
    rows = onset.measure_onset(setting, effort, seeds[2])
    phase("finding the coverage peak")
    covered = peak.measure_peak(setting, effort, seeds[3])
    phase("the same under Gaussian noise")
    normal = gaussian.measure_gaussian(setting, effort, seeds[4])
    phase("the same under objective perturbation")
    drawn = objective.draw_objective_samples(X, y, seeds[5])
    default = objective.draw_objective_samples(X, y, seeds[6], penalty=1.0)
    perturbed = objective.measure_objective(setting, (samples, drawn), effort.releases, seeds[7])
    phase("other dimensions, other regularizations")
    widths = questions.measure_dimensions(train, effort.dimensions)
    penalties = questions.measure_regularizations(train, effort.regularizations)
    first, second = objective.objective_samples_exhibits(drawn, default)
    return Reproduction(
        paper=_PAPER,
        claims=(
            regimes.regimes_claim(ranked),
            regimes.onset_claim(ranked),
            onset.scaling_claim(rows),
            points.farthest_row_claim(setting),
            points.worst_case_claim(*six),
            peak.peak_claim(covered),
            gaussian.gaussian_claim(normal),
            regimes.range_claim(ranked),
            onset.protection_claim(rows),
            objective.objective_claim(perturbed),
        ),
        exhibits=(
            points.worst_case_exhibit(setting),
            points.sphere_exhibit(setting),
            *points.heat_maps(setting),
            *regimes.profiles_exhibits(ranked),
            regimes.ranks_exhibit(ranked),
            onset.onset_exhibit(rows, setting),
            first,
            points.samples_exhibit(samples),
            second,
            peak.peak_exhibit(covered),
            gaussian.gaussian_exhibit(normal),
            objective.objective_exhibit(perturbed),
            questions.dimension_exhibit(widths),
            questions.regularization_exhibit(penalties),
        ),
        source=source,
        seed=seed,
        made=_made(effort),
    )


def _made(effort: Effort) -> str:
    return (
        "Training split of Adult, columns age and education-num, each standardised, then all rows"
        " divided by the largest row's norm (the paper's footnote 2). Logistic loss, Λ = 1 unless"
        " said otherwise, no intercept, β = nΛε/2. Neighbours are exact minimisers with a proved"
        " error, not the paper's worst-case points. Rows are counted from 1, as in the paper."
        " Whatever has a closed law (single rows, low and high) is computed from it; the averages"
        f" by rank are over {effort.models} sampled models; the brute-force checks on single rows"
        " fit the model again without the row and draw"
        f" {effort.batches} × {effort.draws:,} models; objective perturbation is sampled"
        f" {effort.releases} times at each ε, with exact losses. A row counts as on a plateau while"
        " it is less than a tenth of the way to the other."
    )
