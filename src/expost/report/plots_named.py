"""Results with a few named figures, as displays: a line for each, with its interval."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from expost.attacks.lower_bounds import LowerBound
from expost.attacks.roc import AttackFigures
from expost.audits.disparity import Disparity
from expost.defences.table import DefenceTable
from expost.groups.columns import printable
from expost.noise.coverage import Coverage
from expost.publishing.report import Answer, PublishedReport
from expost.release import Release
from expost.report.display import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, Display
from expost.report.paper_displays import Guide
from expost.report.plots_rows import ranked
from expost.report.result_displays import Band, BandsDisplay, DotsDisplay
from expost.report.training_displays import Series
from expost.report.wording import number, number_up, share
from expost.risk.composition import CompositionComparison
from expost.selection.private import SelectionCost
from expost.selection.tuning import SelectedRegularization
from expost.types import FloatArray

__all__ = [
    "answer",
    "attack_figures",
    "composition",
    "coverage",
    "defence_table",
    "disparity",
    "lower_bound",
    "published_report",
    "release",
    "selected_regularization",
    "selection_cost",
]

_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, INK)
_MARKERS = ("o", "^", "s", "D", "v")
_DASHES = ("-", "--", "-.", ":", (0, (6, 2)))
# More names than that are drawn by rank, without the names.
_MOST_NAMES = 40
_COIN = Guide(at=0.5, style=":", colour=GREY, label="a coin")
# Places along a model's coefficients at which a published bound is asked for.
_PLACES = 81
# Of a label in a legend.
_LONGEST = 40


def disparity(found: Disparity) -> Display:
    """The AUC within each group, and the members found at one threshold."""
    rate = Guide(
        at=found.false_positive_rate,
        style="--",
        colour=INK,
        label=f"taken for members: {share(found.false_positive_rate)}",
    )
    hits = [one.true_positive_rate for one in found.groups]
    return DotsDisplay(
        names=tuple(f"{printable(one.label)} ({one.members:,})" for one in found.groups),
        series=(
            _intervals([one.auc for one in found.groups], "AUC within the group", BLUE, "o"),
            _intervals(hits, "members found", ORANGE, "^"),
        ),
        guides=(_COIN, rate),
        xlabel=f"{printable(found.attack)} by {printable(found.column)} (members in brackets)",
        percent=True,
        limits=(-0.02, 1.02),
    )


def defence_table(found: DefenceTable) -> Display:
    """Accuracies of model and attack by defence, with intervals over rows, and what is proved."""
    shown = (("train", BLUE, "o"), ("test", GREEN, "s"), ("attack", ORANGE, "^"))
    words = {"train": "on members", "test": "on others", "attack": "of the strongest attack"}
    series = [
        _intervals(
            [getattr(row, name).over_rows for row in found.rows], words[name], colour, marker
        )
        for name, colour, marker in shown
    ]
    limits = np.array([np.nan if row.limit is None else row.limit for row in found.rows])
    if not np.all(np.isnan(limits)):
        series.append(Series(values=limits, label="no attack passes", colour=INK, marker="|"))
    return DotsDisplay(
        names=tuple(printable(row.name) for row in found.rows),
        series=tuple(series),
        guides=(_COIN,),
        xlabel=f"accuracy ({share(found.confidence)} intervals over rows)",
        percent=True,
    )


def coverage(found: Coverage) -> Display:
    """The estimate and its interval."""
    series = _intervals([_Ends(found.probability, found.low, found.high)], None, BLUE, "o")
    return DotsDisplay(
        names=(f"{found.inside:,} of {found.samples:,} draws",),
        series=(series,),
        xlabel=f"coverage within {number(found.radius)}, {share(found.confidence)} interval",
        log_x=found.low > 0 and found.high < 0.1,
    )


def attack_figures(found: AttackFigures) -> Display:
    """All five with their intervals."""
    names = {
        "auc": "AUC",
        "accuracy": "balanced accuracy",
        "advantage": "advantage",
        "tpr_at_1_percent": "found at 1 % FPR",
        "tpr_at_01_percent": "found at 0.1 % FPR",
    }
    series = _intervals([getattr(found, name) for name in names], None, BLUE, "o")
    return DotsDisplay(
        names=tuple(names.values()),
        series=(series,),
        guides=(_COIN,),
        xlabel=f"{found.members:,} members, {found.others:,} others;"
        f" {share(found.auc.confidence)} intervals",
    )


def lower_bound(found: LowerBound) -> Display:
    """What is proved beside what could have been."""
    return DotsDisplay(
        names=(found.method,),
        series=(
            Series(values=np.array([found.epsilon]), label="proved: ε is at least", marker="o"),
            Series(
                values=np.array([found.most]),
                label="the most that so many trials show",
                colour=GREY,
                marker="|",
            ),
        ),
        xlabel=f"ε at δ = {number(found.delta)}, {share(found.confidence)} confidence",
    )


def composition(found: CompositionComparison) -> Display:
    """ε by each way of adding up."""
    values = np.array([row.epsilon for row in found.rows])
    finite = values[np.isfinite(values)]
    return DotsDisplay(
        names=tuple(row.name for row in found.rows),
        series=(Series(values=values),),
        xlabel=f"ε of all {found.releases:,} releases at δ = {number(found.delta)}",
        title=found.description,
        log_x=bool(len(finite) and finite.min() > 0 and finite.max() > 20 * finite.min()),
    )


def selection_cost(found: SelectionCost) -> Display:
    """How probable each candidate is."""
    if len(found.probabilities) > _MOST_NAMES:
        return ranked(
            found.probabilities,
            label="probability of being chosen",
            ylabel="probability",
            unit="candidate",
        )
    return DotsDisplay(
        names=tuple(f"candidate {place}" for place in range(len(found.probabilities))),
        series=(Series(values=found.probabilities),),
        xlabel="probability of being chosen",
        title=f"on average {number(found.expected_shortfall)} of the score is lost",
        percent=True,
        limits=(-0.02, 1.02),
    )


def selected_regularization(found: SelectedRegularization) -> Display:
    """The candidates by the rows of their parts, the chosen one marked."""
    rows = np.array(found.part_rows, dtype=np.float64)
    chosen = np.arange(len(rows)) == found.index
    names = [f"Λ = {candidate:g}" for candidate in found.candidates]
    return DotsDisplay(
        names=(*names, "judges of all"),
        series=(
            Series(values=np.where(chosen, np.nan, rows), label="other parts", colour=GREY),
            Series(
                values=np.where(chosen, rows, np.nan), label="chosen", colour=ORANGE, marker="D"
            ),
        ),
        xlabel="rows of the part",
        limits=(0.0, 1.08 * float(rows.max())),
        title=f"chosen by {found.method}, ε = {number_up(found.epsilon)} in all",
    )


def release(found: Release) -> Display:
    """The coefficients, in the units of the features."""
    coefficients, intercepts = found.coefficients
    each = np.atleast_2d(coefficients)
    names = [f"x{place}" for place in range(each.shape[1])]
    if found.feature_names is not None:
        names = [printable(name) for name in found.feature_names]
    if found.ball.fit_intercept:
        each = np.column_stack([each, np.atleast_1d(intercepts)])
        names.append("(intercept)")
    how = f"{found.mechanism.loss.name}, ε = {number_up(found.mechanism.epsilon)}"
    if len(names) > _MOST_NAMES:
        largest = np.max(np.abs(each), axis=0)
        return ranked(largest, label=how, ylabel="size of the coefficient", unit="feature")
    labels: Sequence[Any] = [None]
    if len(each) > 1 and found.classes is not None:
        labels = [printable(label) for label in found.classes]
    return DotsDisplay(
        names=tuple(names),
        series=tuple(
            Series(
                values=values,
                label=label,
                colour=_COLOURS[place % len(_COLOURS)],
                marker=_MARKERS[place % len(_MARKERS)],
            )
            for place, (values, label) in enumerate(zip(each, labels, strict=True))
        ),
        guides=(Guide(at=0.0, style=":", colour=GREY),),
        xlabel="released coefficient, noise included",
        title=how,
    )


def published_report(found: PublishedReport) -> Display:
    """The bound for rows that lie along the model's coefficients, by label."""
    release = found.release
    each, _ = release.coefficients
    along = np.atleast_2d(each)
    places = np.linspace(-1.0, 1.0, _PLACES)
    labels, directions = _labels(release, along)
    guides = []
    epsilon = found.spending.model[0]
    if release.mechanism.delta is None and np.isfinite(epsilon):
        words = f"promised: ε = {number_up(epsilon)}"
        guides.append(Guide(at=epsilon, axis="y", style=":", colour=GREY, label=words))
    bands = []
    for place, (label, direction) in enumerate(zip(labels, directions, strict=True)):
        rows = places[:, None] * release.ball.data_norm * _unit(direction)
        bound, _, _ = found.bound(rows, [label] * len(rows))
        bands.append(
            Band(
                x=places,
                middle=bound,
                label=f"label {printable(label, _LONGEST)}",
                colour=_COLOURS[place % len(_COLOURS)],
                style=_DASHES[place % len(_DASHES)],
            )
        )
    return BandsDisplay(
        bands=tuple(bands),
        guides=tuple(guides),
        xlabel="a row along the model's coefficients, in units of the data norm",
        ylabel="exposure at most (nats)",
        title=f"{found.kind}; fails with probability {number_up(found.fails_with)}",
        whole=False,
    )


def _labels(release: Release, along: FloatArray) -> tuple[list[Any], list[FloatArray]]:
    """Some labels, and the direction in which a row is asked about with each."""
    scale = release.label_scale
    if scale is not None:
        low, high = scale.ends
        return [low, scale.centre, high], [along[0]] * 3
    assert release.classes is not None
    labels = release.classes.tolist()[: len(_COLOURS)]
    if len(along) == 1:
        return labels, [along[0]] * len(labels)
    return labels, list(along[: len(labels)])


def _unit(direction: FloatArray) -> FloatArray:
    """Of length 1; a model of zeros looks along the first feature."""
    length = float(np.linalg.norm(direction))
    if length > 0:
        unit: FloatArray = direction / length
        return unit
    first: FloatArray = np.eye(1, len(direction))[0]
    return first


def answer(found: Answer) -> Display:
    """How sure an attacker can be at most, who was undecided before."""
    return DotsDisplay(
        names=("after the model", "after the model and its report"),
        series=(Series(values=np.array([found.belief, found.belief_in_everything])),),
        guides=(Guide(at=0.5, style=":", colour=GREY, label="undecided, before"),),
        xlabel="an attacker's certainty about you, at most",
        title=f"with label {printable(found.label)}",
        percent=True,
        limits=(0.48, 1.02),
    )


class _Ends:
    """What has a value with its ends."""

    def __init__(self, value: float, low: float, high: float) -> None:
        self.value, self.low, self.high = value, low, high


def _intervals(found: Sequence[Any], label: str | None, colour: str, marker: str) -> Series:
    """Values with their ends, each with ``value``, ``low`` and ``high``; NaN for None."""
    value, low, high = (
        np.array([np.nan if one is None else getattr(one, name) for one in found])
        for name in ("value", "low", "high")
    )
    return Series(values=value, low=low, high=high, label=label, colour=colour, marker=marker)
