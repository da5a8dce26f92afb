"""Documents of one figure for each row: losses, distances, ε and published bounds."""

from typing import TYPE_CHECKING

import numpy as np

from expost.mechanisms import RowLosses
from expost.neighbouring.neighbours import Neighbours
from expost.numbers import certainty, count, figure, nats, number, share, symbols
from expost.profiles.transcript import IndividualEpsilon
from expost.publishing.compare import Comparison
from expost.report.document import Block, Document, Facts, Table, Verdict, one_line, table
from expost.report.figure import Axis, Figure, Line, Panel, Rule
from expost.report.sections.bounds import cell_up, up
from expost.report.sections.ranks import certainties, drawn_ranks, ranked_figure
from expost.report.sections.small import notes, small_document
from expost.types import FloatArray

if TYPE_CHECKING:
    from expost.epsilon.row_figures import EstimatedLosses

__all__ = [
    "comparison_document",
    "comparison_figure",
    "estimated_losses_document",
    "individual_epsilon_document",
    "neighbours_document",
    "row_losses_document",
]

_SHARES = (0.5, 0.9, 0.99, 1.0)


def _quantiles(values: FloatArray, title: str, *, of: str = "rows") -> Table:
    """Return a table of what so many of the values do not exceed, rounded up."""
    levels = np.quantile(values, _SHARES, method="higher").tolist() if len(values) else []
    return table(
        list(zip(_SHARES, levels, strict=False)),
        (f"share of the {of}", lambda line: line[0], share),
        (f"{title}, at most", lambda line: line[1], cell_up),
    )


def row_losses_document(losses: RowLosses) -> Document:
    """Return the document of the losses of all rows."""
    rows = count(len(losses.loss))
    if losses.noiseless:
        verdict = Verdict(
            text="Without noise every loss is infinite: an attacker can become certain.",
            more="Rows differ only in how far they move the coefficients.",
            tone="bad",
        )
        quantiles = _quantiles(losses.distance, "distance")
    else:
        worst = float(np.max(np.abs(losses.loss), initial=0.0))
        guarantee = "There is no guarantee."
        if np.isfinite(losses.worst_case):
            guarantee = f"The guarantee allows {nats(up(losses.worst_case))}."
        text = f"The most exposed row has an exposure of {nats(up(worst))} ({certainty(worst)})."
        verdict = Verdict(text=text, more=guarantee)
        quantiles = _quantiles(np.abs(losses.loss), "exposure (nats)")
    blocks: list[Block] = [quantiles]
    if len(losses.loss):
        blocks.insert(0, row_losses_figure(losses))
    return small_document(
        losses,
        "row losses",
        f"Losses of {rows} rows ({losses.relation.value})",
        blocks,
        verdict=verdict,
        nav="Exposure",
    )


def row_losses_figure(losses: RowLosses) -> Figure:
    """Return the certainty at each row's exposure, by rank; distances where there is no noise."""
    if losses.noiseless:
        return ranked_figure(
            losses.distance,
            low=losses.distance - losses.distance_error,
            high=losses.distance + losses.distance_error,
            key="row-losses",
            title="Distance by rank",
            label="distance",
            description="How far each row moves the coefficients, the largest first.",
        )
    rules: tuple[Rule, ...] = ()
    if np.isfinite(losses.worst_case):
        words = f"guarantee: {certainty(losses.worst_case)}"
        at = float(certainties(np.array([losses.worst_case]))[0])
        rules = (Rule(name=words, at=at, label=words),)
    return ranked_figure(
        certainties(np.abs(losses.loss)),
        low=certainties(np.maximum(np.maximum(losses.low, -losses.high), 0.0)),
        high=certainties(np.maximum(np.abs(losses.low), np.abs(losses.high))),
        key="row-losses",
        title="Attacker's certainty by rank",
        label="attacker's certainty",
        description="The attacker's certainty about each row, the most exposed first.",
        percent=True,
        rules=rules,
    )


def estimated_losses_document(losses: "EstimatedLosses") -> Document:
    """Return the document of the losses of rows in sampled models."""
    models, rows = losses.loss.shape
    mean, _, unresolved = _mean_exposures(losses)
    notices: tuple[str, ...] = ()
    if unresolved:
        notices = (f"Left out because they are not resolved: {count(unresolved)} losses.",)
    return small_document(
        losses,
        "estimated losses",
        f"Estimated losses of {count(rows)} rows in {count(models)} models",
        (estimated_losses_figure(losses), _quantiles(mean, "mean exposure (nats)")),
        alerts=notes(notices),
        nav="Exposure",
    )


def _mean_exposures(losses: "EstimatedLosses") -> tuple[FloatArray, FloatArray, int]:
    """Return the mean exposure of each row, twice its error, and how many are not resolved."""
    resolved = np.isfinite(losses.noise) & np.isfinite(losses.loss)
    models = np.maximum(resolved.sum(axis=0), 1)
    mean = np.where(resolved, np.abs(losses.loss), 0.0).sum(axis=0) / models
    variance = (np.where(resolved, losses.noise, 0.0) ** 2).sum(axis=0) / models**2
    error = 2 * np.sqrt(variance + losses.shared**2)
    return mean, error, int(np.count_nonzero(~resolved))


def estimated_losses_figure(losses: "EstimatedLosses") -> Figure:
    """Return the certainty at the mean exposure of each row, by rank."""
    mean, error, _ = _mean_exposures(losses)
    return ranked_figure(
        certainties(mean),
        low=certainties(np.maximum(mean - error, 0.0)),
        high=certainties(mean + error),
        interval="two standard errors",
        key="estimated-losses",
        title="Certainty at the mean exposure, by rank",
        label="attacker's certainty",
        description="The certainty at each row's mean exposure over the models, by rank.",
        percent=True,
    )


def individual_epsilon_document(result: IndividualEpsilon) -> Document:
    """Return the document of the ε of single rows."""
    largest = float(np.max(result.epsilon))
    return small_document(
        result,
        "individual epsilon",
        f"ε of {count(len(result))} single rows at δ = {up(result.delta)}",
        (individual_epsilon_figure(result), _quantiles(result.epsilon, "ε")),
        verdict=Verdict(
            text=(
                f"No row has spent more than ε = {up(largest)}; the run guarantees"
                f" ε = {up(result.worst_case)} to any row of any data."
            ),
            more=symbols(result.meaning),
        ),
        facts={"epsilon": result.worst_case, "delta": result.delta},
        nav="Exposure",
    )


def individual_epsilon_figure(result: IndividualEpsilon) -> Figure:
    """Return the ε of each row by rank, and that of the run."""
    words = f"the run, any row of any data: {up(result.worst_case)}"
    return ranked_figure(
        result.epsilon,
        key="individual-epsilon",
        title="ε of single rows, by rank",
        label=f"ε at δ = {up(result.delta)}",
        description="The ε of each row by the lengths of its gradients, the largest first.",
        rules=(Rule(name=words, at=result.worst_case, label=words),),
    )


def neighbours_document(neighbours: Neighbours) -> Document:
    """Return the document of leave-one-out minimisers."""
    unit = "row" if neighbours.persons is None else "person"
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = neighbours.error_bound / neighbours.distance
        relative = float(np.max(np.where(neighbours.error_bound == 0, 0.0, ratio)))
    persons: tuple[tuple[str, str], ...] = ()
    if neighbours.persons is not None:
        persons = (("largest person", f"{count(neighbours.persons.largest)} rows"),)
    facts = Facts(
        pairs=(
            ("neighbouring relation", neighbours.relation.value),
            *persons,
            ("method", neighbours.method),
            ("median distance", figure(float(np.median(neighbours.distance)))),
            ("largest distance", figure(float(np.max(neighbours.distance)))),
            ("certified to ±", cell_up(float(np.max(neighbours.error_bound)))),
            ("largest relative error", cell_up(relative)),
        )
    )
    return small_document(
        neighbours,
        "neighbours",
        f"Minimisers of {count(len(neighbours))} neighbouring data sets",
        (neighbours_figure(neighbours), facts),
        verdict=Verdict(
            text=(
                f"The {unit} with the most influence moves the coefficients by"
                f" {number(float(np.max(neighbours.distance)))}."
            )
        ),
        nav="Exposure",
    )


def neighbours_figure(neighbours: Neighbours) -> Figure:
    """Return the distances by rank, with their certified errors."""
    return ranked_figure(
        neighbours.distance,
        low=np.maximum(neighbours.distance - neighbours.error_bound, 0.0),
        high=neighbours.distance + neighbours.error_bound,
        key="neighbours",
        title="Distance of the minimiser, by rank",
        label="distance",
        description="How far the minimiser moves without each row, the largest first.",
        unit="row" if neighbours.persons is None else "person",
    )


# -- published bounds ------------------------------------------------------------------------------


def comparison_document(comparison: Comparison) -> Document:
    """Return the document of published bounds next to the exact exposures."""
    figures = comparison.figures
    failed = "Every published bound holds"
    if figures.failures:
        failed = f"{count(figures.failures)} published bounds do not hold"
    ratio = figures.median_ratio
    blocks: list[Block] = [
        table(
            (
                ("exact exposure", figures.median_exposure, figures.largest_exposure),
                ("published bound", figures.median_bound, figures.largest_bound),
            ),
            ("nats", lambda line: line[0], str),
            ("median", lambda line: line[1], cell_up),
            ("largest", lambda line: line[2], cell_up),
        )
    ]
    if comparison.held is not None:
        blocks.insert(0, comparison_figure(comparison))
    return small_document(
        comparison,
        "comparison",
        f"Published bounds and exact exposures of {count(figures.rows)} rows",
        blocks,
        subtitle=(one_line(comparison.description),),
        verdict=Verdict(
            text=f"{failed}; a bound is {number(ratio)} times the exact exposure (median).",
            more=f"A bound may fail with probability {up(figures.fails_with)}.",
            tone="caution" if figures.failures else "plain",
        ),
        heading="Bounds and exposures",
        nav="Exposure",
    )


def comparison_figure(comparison: Comparison) -> Figure:
    """Return a dot for each row: the certainty by its bound over that by its exact exposure.

    Of many rows some are drawn; those whose bound fails are among them.
    """
    columns = comparison.columns()
    exposure, bound = columns["exposure"], columns["bound"]
    order = np.argsort(-exposure, kind="stable")
    failures = np.flatnonzero(exposure > bound)
    rows = np.unique(np.concatenate([order[drawn_ranks(len(order)) - 1], failures]))
    x, y = certainties(exposure[rows]), certainties(bound[rows])
    high = min(0.5 + 1.08 * max(float(np.max([x, y])) - 0.5, 1e-4), 1.0)
    ends = (0.5, high)
    return Figure(
        key="comparison",
        description="Published bound over exact exposure of each row; failures lie below the line.",
        panels=(
            Panel(
                title="Published bound and exact exposure",
                x=Axis(
                    label="certainty by the exact exposure", low=0.5, high=high, format="percent"
                ),
                y=Axis(
                    label="certainty by the published bound", low=0.5, high=high, format="percent"
                ),
                lines=(
                    Line(name="row", x=tuple(x.tolist()), y=tuple(y.tolist()), dots=True),
                    Line(name="equal", x=ends, y=ends, role="limit"),
                ),
            ),
        ),
    )
