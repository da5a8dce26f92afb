"""``python -m papers redberg-wang``: the figures and the claims of Redberg & Wang 2021."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from expost.losses import Logistic, Squared
from papers.common.reproduction import Paper, Reproduction, reproduce_into
from papers.datasets import Dataset, load_credit_default
from papers.redberg_wang import inflation, report_figures, reports, rotation

__all__ = ["PHASES", "Counts", "compute", "reproduce"]

# How often `reproduce` reports a phase.
PHASES = 6
_PAPER = Paper(
    name="Redberg & Wang 2021",
    title="Privately Publishable Per-instance Privacy",
    data="UCI's default of credit card clients",
    made_from="UCI's default of credit card clients, which is public, and from random rows",
)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many releases there are, and how large the synthetic data is; the tests take less.

    ``inflated``  for each ε₁ and λ of Fig. 2.
    ``reported``  of each kind of report on each data set, for Fig. 3 and linear regression.
    ``rows``, ``columns``  of Section 4.1's data.
    """

    inflated: int = 200
    reported: int = 30
    rows: int = 1000
    columns: int = 50


def reproduce(
    out: Path,
    *,
    data: Path | None = None,
    seed: int = 0,
    phase: Callable[[str], None] = lambda name: None,
    force: bool = False,
) -> Reproduction:
    """Write Figures 1–3 of the paper with their numbers, and a page of its claims, into ``out``.

    ``data``   a file of UCI's default of credit card clients; where
               :func:`papers.datasets.load_credit_default` finds it if None.
    ``seed``   of everything that is drawn: the same seed gives the same tables.
    ``phase``  receives the name of each phase, ``PHASES`` times.
    ``force``  write into a folder that is not empty, over an earlier run.
    """

    def from_credit(seed: int) -> Reproduction:
        phase("reading the credit data")
        credit = load_credit_default(data)
        source = credit.source if data is None else f"{credit.name}, {Path(data).name}"
        return compute(credit, seed=seed, counts=Counts(), source=source, phase=phase)

    return reproduce_into(out, from_credit, seed=seed, phase=phase, force=force)


def compute(
    credit: Dataset, *, seed: int, counts: Counts, source: str, phase: Callable[[str], None]
) -> Reproduction:
    """Return all claims and exhibits, nothing written."""
    seeds = np.random.SeedSequence(seed).spawn(10)
    phase("turning a model")
    turned = rotation.measure_rotation(seeds[0])
    phase("regularizing more and more")
    drawn = inflation.Synthetic.draw(
        np.random.default_rng(seeds[1]), rows=counts.rows, columns=counts.columns
    )
    inflated = inflation.measure_inflation(drawn, counts.inflated, seeds[2])
    phase("publishing the losses of credit clients")
    X, y = reports.credit_rows(credit)
    clients = reports.measure_reports("credit", X, y, Logistic(), counts.reported, seeds[3])
    stretch = reports.measure_stretch(X, y, seeds[4])
    tight = reports.measure_release(
        X, y, Logistic(), reports.WHOLE, None, np.random.default_rng(seeds[5]), calibration="tight"
    )
    phase("the same for random rows and for linear regression")
    squared = Squared(label_bound=1.0)
    logistic = reports.measure_reports(
        "synthetic", drawn.X, drawn.y, Logistic(), counts.reported, seeds[6]
    )
    linear = reports.measure_reports(
        "linear regression's", drawn.X, drawn.response, squared, counts.reported, seeds[7]
    )
    exact = (
        reports.measure_corollary("logistic", drawn.X, drawn.y, Logistic(), seeds[8]),
        reports.measure_corollary("linear", drawn.X, drawn.response, squared, seeds[9]),
    )
    return Reproduction(
        paper=_PAPER,
        claims=(
            report_figures.worst_case_claim(clients, logistic, tight),
            report_figures.corollary_claim(exact),
            rotation.small_angles_claim(turned),
            rotation.wide_angles_claim(turned),
            rotation.probability_claim(turned),
            inflation.inflation_claim(inflated),
            report_figures.ratios_claim(clients, (logistic, linear)),
            report_figures.total_claim(clients),
            report_figures.plain_claim(clients),
            report_figures.theorem_claim((clients, logistic, linear), stretch),
            report_figures.accuracy_claim(clients),
        ),
        exhibits=(
            rotation.rotation_exhibit(turned),
            inflation.inflation_exhibit(inflated),
            report_figures.losses_exhibit(clients),
            report_figures.ratios_exhibit(clients),
            report_figures.linear_exhibit(linear),
        ),
        source=source,
        seed=seed,
        made=_made(counts),
    )


def _made(counts: Counts) -> str:
    return (
        "Objective perturbation with Gaussian noise, σ and λ as the paper's Theorem 5 asks (Kifer"
        " et al. 2012; its printed σ is the variance), no other regularizer, δ = ρ = 10⁻⁶. The"
        " paper has d = 21 for the credit data and says neither which columns nor how they were"
        " normalised: here they are the twenty quantities (without ID and the nominal SEX,"
        " EDUCATION and MARRIAGE), each standardised, and a constant 1; then each row is divided by"
        " its own norm, as Section 4.1 does with its synthetic rows. Losses are exact, by"
        " Corollary 7, for the removal of each row. σ₂ and σ₃ are calibrated by the analytic"
        " Gaussian mechanism, the quantile of GOE(d) is exact. Figure 2 is the mean of"
        f" {counts.inflated} releases for each ε₁ and λ. Figure 3 shows one release of each kind;"
        f" its claims are decided by {counts.reported} of each, with quantiles over the rows and"
        " geometric means over the releases."
    )
