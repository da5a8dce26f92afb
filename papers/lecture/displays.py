"""Figures of the lecture: defences by name, and what observers hold over the epochs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from expost.errors import InvalidInput
from expost.groups.columns import printable
from expost.numbers import share
from expost.types import FloatArray
from papers.common.figures import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    Band,
    BandsDisplay,
    Display,
    DotsDisplay,
    Guide,
    NamedSeries,
    intervals,
    plain,
)

if TYPE_CHECKING:
    from papers.lecture.snapshots import EpochTable, Snapshots
    from papers.lecture.table import DefenceTable

__all__ = [
    "EpochsDisplay",
    "adversarial_training",
    "defence_table",
    "epoch_table",
    "federated_game",
    "federated_run",
    "snapshots",
]

_CONFIDENCE = "confidence in the row's label, φ (log odds)"
# An attacker who tosses a coin: G of a training against one.
_COIN = -math.log(2)
_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, INK)
_DASHES: tuple[Any, ...] = ("-", "--", (0, (2, 2)), "-.", (0, (8, 3)))


@dataclass(frozen=True, kw_only=True, eq=False)
class EpochsDisplay(Display):
    """What observers of several snapshots reach: the lecture's table, as lines.

    ``observed``  the sets of epochs that were seen, in words: k of them, from left to right.
    ``accuracy``  (k, 3) value, low and high of each attack, by its name.
    """

    observed: tuple[str, ...]
    accuracy: Mapping[str, FloatArray]

    is_marked = True

    def __post_init__(self) -> None:
        for name, values in self.accuracy.items():
            if np.shape(values) != (len(self.observed), 3):
                raise InvalidInput(
                    f"{name}: must have a value, its low and its high end for each of"
                    f" {len(self.observed)} observations."
                )

    @classmethod
    def from_tables(cls, tables: Mapping[str, "EpochTable"]) -> "EpochsDisplay":
        """Tables of the same sets of epochs, by the names of their attacks."""
        sets = {tuple(line.epochs for line in table.lines) for table in tables.values()}
        if len(sets) != 1:
            raise InvalidInput("tables: must be of the same sets of epochs, one table at least.")
        return cls(
            observed=tuple(", ".join(map(str, epochs)) for epochs in sets.pop()),
            accuracy={
                name: np.array(
                    [
                        (interval.value, interval.low, interval.high)
                        for interval in (line.figures.accuracy for line in table.lines)
                    ]
                )
                for name, table in tables.items()
            },
        )

    def _draw(self, ax: Any) -> None:
        """Draw the lines with their intervals, and the coin."""
        places = np.arange(len(self.observed))
        for number, (name, values) in enumerate(self.accuracy.items()):
            colour = _COLOURS[number % len(_COLOURS)]
            ax.fill_between(places, values[:, 1], values[:, 2], color=colour, alpha=0.15, lw=0)
            ax.plot(
                places,
                values[:, 0],
                color=colour,
                ls=_DASHES[number % len(_DASHES)],
                marker="o",
                ms=4,
                label=plain(name),
            )
        ax.axhline(0.5, color=GREY, ls=":", lw=1.4, label="a coin")
        ax.set_xticks(places, self.observed)
        ax.set(xlabel="observed epochs", ylabel="balanced accuracy of the attack")
        ax.legend(loc="best", fontsize="small")


def defence_table(table: "DefenceTable") -> Display:
    """Accuracies of model and attack by defence, with intervals over rows, and what is proved."""
    shown = (("train", BLUE, "o"), ("test", GREEN, "s"), ("attack", ORANGE, "^"))
    words = {"train": "on members", "test": "on others", "attack": "of the strongest attack"}
    series = [
        intervals([getattr(row, name).over_rows for row in table.rows], words[name], colour, marker)
        for name, colour, marker in shown
    ]
    limits = np.array([np.nan if row.limit is None else row.limit for row in table.rows])
    if not np.all(np.isnan(limits)):
        series.append(NamedSeries(values=limits, label="no attack passes", colour=INK, marker="|"))
    return DotsDisplay(
        names=tuple(printable(row.name) for row in table.rows),
        series=tuple(series),
        guides=(Guide(at=0.5, style=":", colour=GREY, label="a coin"),),
        xlabel=f"accuracy ({share(table.confidence)} intervals over rows)",
        percent=True,
    )


def adversarial_training(training: Any) -> Display:
    """Display the model's loss and its attacker's gain over the epochs."""
    epochs = np.arange(1.0, len(training.losses) + 1)
    bands = [Band(x=epochs, middle=training.losses, label="loss of the model")]
    guides = []
    if not np.all(np.isnan(training.gains)):
        bands.append(
            Band(
                x=epochs,
                middle=training.gains,
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
        title=f"weight {training.weight:g}; no guarantee",
    )


def snapshots(watched: "Snapshots") -> Display:
    """Return confidences of the rows in question, and of the population, at each epoch."""
    epochs = watched.epochs.astype(np.float64)
    bands = [_band(epochs, watched.confidence, "rows in question", BLUE, "-")]
    if watched.population.shape[1]:
        bands.append(_band(epochs, watched.population, "population", GREEN, "--"))
    return BandsDisplay(bands=tuple(bands), xlabel="epochs", ylabel=_CONFIDENCE)


def epoch_table(table: "EpochTable") -> Display:
    """Attack accuracy by the epochs that were observed."""
    return EpochsDisplay.from_tables({table.score: table})


def federated_run(run: Any) -> Display:
    """Return confidences of the pool and the population under the merged model of each round."""
    rounds = np.arange(run.rounds + 1.0)
    bands = [_band(rounds, run.merged, "pool", BLUE, "-")]
    if run.population.shape[1]:
        bands.append(_band(rounds, run.population, "population", GREEN, "--"))
    return _rounds(run, bands)


def federated_game(game: Any) -> Display:
    """Display the same, members and non-members separately."""
    rounds = np.arange(game.target.rounds + 1.0)
    merged = game.target.merged
    bands = [
        _band(rounds, merged[:, game.truth], "members", BLUE, "-"),
        _band(rounds, merged[:, ~game.truth], "others", ORANGE, "--"),
    ]
    return _rounds(game.target, bands)


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
