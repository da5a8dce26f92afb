"""Trainings and what observers of them hold, as displays: quantiles of the rows over time.

Results of :mod:`expost.torch` are taken by what they hold: nothing here imports torch.
"""

import math
from typing import Any

import numpy as np
from scipy.special import expit, logit

from expost.attacks.snapshots import EpochTable, Snapshots
from expost.mechanisms.dpsgd import Transcript
from expost.report.audit_displays import EpochsDisplay
from expost.report.display import BLUE, GREEN, GREY, INK, ORANGE, Display
from expost.report.paper_displays import Guide
from expost.report.plots_rows import ranked, row_losses
from expost.report.result_displays import (
    Band,
    BandsDisplay,
    Histogram,
    HistogramsDisplay,
    RanksDisplay,
)
from expost.rounding import fixed
from expost.types import FloatArray

__all__ = [
    "adversarial_training",
    "epoch_table",
    "experiment",
    "federated_game",
    "federated_run",
    "sensitivity",
    "snapshots",
    "training",
    "transcript",
]

_CONFIDENCE = "confidence in the row's label, φ (log odds)"
# An attacker who tosses a coin: G of a training against one.
_COIN = -math.log(2)


def transcript(found: Transcript) -> Display:
    """Beliefs after each epoch; the losses by rank where no epoch was finished."""
    if not len(found.epochs):
        return row_losses(found.row_losses(promised=found.steps > 0))
    beliefs = expit(found.epochs.astype(np.float64))
    epochs = np.arange(1.0, len(beliefs) + 1)
    low, middle, high = np.quantile(beliefs, [0.01, 0.5, 0.99], axis=1)
    return BandsDisplay(
        bands=(
            Band(
                x=epochs,
                middle=np.max(beliefs, axis=1),
                label="the row it is surest of",
                colour=ORANGE,
                style="--",
            ),
            Band(x=epochs, middle=middle, low=low, high=high, label="median, and 98 % of the rows"),
        ),
        guides=(Guide(at=0.5, axis="y", style=":", colour=GREY, label="undecided, before"),),
        xlabel="epochs",
        ylabel="belief that the row was there",
        title=f"{found.mechanism.describe()} ({found.adversary.value})",
        percent=True,
    )


def training(found: Any) -> Display:
    """Of a ``Training`` or a ``Tracker``: its transcript."""
    return transcript(found.transcript)


def experiment(found: Any) -> Display:
    """The evidence at the end of every training, by the world that it was made in."""
    last, edge = found.losses[:, -1], float(logit(found.belief))
    words = f"belief {found.belief:g}"
    return HistogramsDisplay(
        parts=(
            Histogram(values=last[found.truth], label="trained with the row (D)", colour=BLUE),
            Histogram(
                values=last[~found.truth],
                label="without it, or with another (D')",
                colour=ORANGE,
                style="--",
            ),
        ),
        guides=(
            Guide(at=0.0, style=":", colour=GREY, label="undecided"),
            Guide(at=edge, style="-.", colour=INK, label=words),
            Guide(at=-edge, style="-.", colour=INK),
        ),
        xlabel="evidence for the row after the last step (nats)",
        ylabel="share of the trainings",
        title=f"advantage {found.advantage}, at most {fixed(found.analytic_advantage, 3, 'up')}",
    )


def sensitivity(found: Any) -> RanksDisplay:
    """All neighbours by distance."""
    return ranked(
        np.ravel(found.distances),
        label=f"neighbours ({found.relation.value})",
        ylabel="distance from D",
        unit="neighbour",
    )


def adversarial_training(found: Any) -> Display:
    """The model's loss and its attacker's gain over the epochs."""
    epochs = np.arange(1.0, len(found.losses) + 1)
    bands = [Band(x=epochs, middle=found.losses, label="loss of the model")]
    guides = []
    if not np.all(np.isnan(found.gains)):
        bands.append(
            Band(
                x=epochs,
                middle=found.gains,
                label="gain of its attacker",
                colour=ORANGE,
                style="--",
            )
        )
        words = "an attacker who knows nothing"
        guides.append(Guide(at=_COIN, axis="y", style=":", colour=GREY, label=words))
    return BandsDisplay(
        bands=tuple(bands),
        guides=tuple(guides),
        xlabel="epochs",
        ylabel="nats",
        title=f"weight {found.weight:g}; nothing is promised",
    )


def snapshots(found: Snapshots) -> Display:
    """Confidences of the rows in question, and of the population, at each epoch."""
    epochs = found.epochs.astype(np.float64)
    bands = [_band(epochs, found.confidence, "rows in question", BLUE, "-")]
    if found.population.shape[1]:
        bands.append(_band(epochs, found.population, "population", GREEN, "--"))
    return BandsDisplay(bands=tuple(bands), xlabel="epochs", ylabel=_CONFIDENCE)


def epoch_table(found: EpochTable) -> Display:
    """Attack accuracy by the epochs that were observed."""
    return EpochsDisplay.from_tables({found.score: found})


def federated_run(found: Any) -> Display:
    """Confidences of the pool and the population under the merged model of each round."""
    rounds = np.arange(found.rounds + 1.0)
    bands = [_band(rounds, found.merged, "pool", BLUE, "-")]
    if found.population.shape[1]:
        bands.append(_band(rounds, found.population, "population", GREEN, "--"))
    return _rounds(found, bands)


def federated_game(found: Any) -> Display:
    """The same, with members apart from the others."""
    rounds = np.arange(found.target.rounds + 1.0)
    merged = found.target.merged
    bands = [
        _band(rounds, merged[:, found.truth], "members", BLUE, "-"),
        _band(rounds, merged[:, ~found.truth], "others", ORANGE, "--"),
    ]
    return _rounds(found.target, bands)


def _rounds(run: Any, bands: list[Band]) -> Display:
    guides = []
    if run.ascent is not None:
        words = f"active {run.ascent.by} from here"
        guides.append(Guide(at=float(run.ascent.first_round), style=":", colour=INK, label=words))
    return BandsDisplay(
        bands=tuple(bands),
        guides=tuple(guides),
        xlabel="rounds",
        ylabel=_CONFIDENCE,
        title=f"{len(run.uploads)} participants; medians, and 90 % of the rows",
    )


def _band(x: FloatArray, values: Any, label: str, colour: str, style: str) -> Band:
    low, middle, high = np.quantile(np.asarray(values, dtype=np.float64), [0.05, 0.5, 0.95], axis=1)
    return Band(x=x, middle=middle, low=low, high=high, label=label, colour=colour, style=style)
