"""Results with a figure for each row, as displays: the rows by rank, the most exposed first."""

from typing import Any

import numpy as np

from expost.epsilon.row_figures import EstimatedLosses
from expost.mechanisms import RowLosses
from expost.neighbouring.neighbours import Neighbours
from expost.profiles.posterior import RowIdentifiability
from expost.profiles.profile import Profile
from expost.profiles.transcript import IndividualEpsilon
from expost.report.display import GREY, INK, Display
from expost.report.displays import ProfileDisplay, WorstCaseDisplay
from expost.report.paper_displays import Guide
from expost.report.result_displays import RanksDisplay
from expost.report.wording import number_up, percent_up
from expost.rounding import nats
from expost.types import FloatArray

__all__ = [
    "estimated_losses",
    "individual_epsilon",
    "neighbours",
    "privacy_profile",
    "ranked",
    "row_identifiability",
    "row_losses",
]


def privacy_profile(found: Profile) -> Display:
    """Exposures, typical ones and the promise."""
    return ProfileDisplay.from_profile(found)


def row_identifiability(found: RowIdentifiability) -> Display:
    """Beliefs with their proved intervals, what was held before, and what is promised."""
    worst, order = found.worst_case, found.ranking
    levels = [Guide(at=found.prior, axis="y", style=":", colour=GREY, label="held beforehand")]
    if worst.promise != "nothing":
        words = f"allowed by the promise: {percent_up(worst.posterior)}"
        levels.append(Guide(at=worst.posterior, axis="y", style="--", colour=INK, label=words))
    return RanksDisplay(
        values=found.posterior[order],
        low=found.posterior_low[order],
        high=found.posterior_high[order],
        levels=tuple(levels),
        label="belief after seeing the model",
        xlabel=f"rank of the {found.unit}, the surest first (log scale)",
        ylabel=f"attacker's belief that the {found.unit} was there",
        percent=True,
    )


def row_losses(found: RowLosses) -> Display:
    """Exposures with their proved intervals; distances where there is no noise."""
    if found.noiseless:
        low, high = found.distance - found.distance_error, found.distance + found.distance_error
        return ranked(found.distance, low, high, label="how far a row moves θ", ylabel="distance")
    low = np.maximum(np.maximum(found.low, -found.high), 0.0)
    high = np.maximum(np.abs(found.low), np.abs(found.high))
    words = (
        f"promised: {nats(number_up(found.worst_case))}" if np.isfinite(found.worst_case) else ""
    )
    level = Guide(at=found.worst_case, axis="y", style="--", colour=INK, label=words)
    return ranked(np.abs(found.loss), low, high, label="this model", levels=(level,))


def estimated_losses(found: EstimatedLosses) -> Display:
    """The mean over the models, with twice the error that their estimates leave."""
    resolved = np.isfinite(found.noise) & np.isfinite(found.loss)
    count = np.maximum(resolved.sum(axis=0), 1)
    mean = np.where(resolved, np.abs(found.loss), 0.0).sum(axis=0) / count
    variance = np.where(resolved, found.noise, 0.0) ** 2
    error = 2 * np.sqrt(variance.sum(axis=0) / count**2 + found.shared**2)
    left_out = int(np.count_nonzero(~resolved))
    title = f"not resolved, and left out: {left_out:,} of {resolved.size:,} losses"
    return ranked(
        mean,
        np.maximum(mean - error, 0.0),
        mean + error,
        label=f"mean of {len(found.loss)} models",
        interval="twice the error of the estimate",
        title=title if left_out else "",
    )


def individual_epsilon(found: IndividualEpsilon) -> Display:
    """Each row's own ε beside that of the run."""
    words = f"the run, any row of any data: {number_up(found.worst_case)}"
    level = Guide(at=found.worst_case, axis="y", style="--", colour=INK, label=words)
    return ranked(
        found.epsilon,
        label="the row's own",
        ylabel=f"ε at δ = {number_up(found.delta)}",
        levels=(level,),
    )


def neighbours(found: Neighbours) -> Display:
    """In two dimensions the points of LeBlond Fig. 2; else the distances with their errors."""
    if len(found.base) == 2 and found.method != "worst-case":
        return WorstCaseDisplay.from_neighbours(found)
    low, high = found.distance - found.error_bound, found.distance + found.error_bound
    unit = "row" if found.persons is None else "person"
    return ranked(
        found.distance,
        low,
        high,
        label=f"method {found.method!r}",
        ylabel="how far the minimiser moves",
        unit=unit,
    )


def ranked(
    values: FloatArray,
    low: FloatArray | None = None,
    high: FloatArray | None = None,
    *,
    label: str,
    ylabel: str = "exposure (nats)",
    unit: str = "row",
    **options: Any,
) -> RanksDisplay:
    """``values`` (n,) in falling order, on log scales; what is infinite comes first."""
    order = np.argsort(-values, kind="stable")
    return RanksDisplay(
        values=values[order],
        low=None if low is None else low[order],
        high=None if high is None else high[order],
        label=label,
        xlabel=f"rank of the {unit}, the largest first (log scale)",
        ylabel=ylabel,
        log_y=True,
        **options,
    )
