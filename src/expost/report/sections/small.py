"""Documents of small results: mostly one table, or pairs of a name and a value.

The results of attacks are described here too. Their classes are named in annotations only, so that
a page without an audit imports no attack.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from expost.mechanisms import RowLosses
from expost.neighbouring.neighbours import Neighbours
from expost.noise.coverage import Coverage
from expost.numbers import (
    certainty,
    count,
    figure,
    for_persons,
    interval,
    nats,
    number,
    percent,
    share,
    symbols,
)
from expost.profiles.transcript import IndividualEpsilon
from expost.publishing.compare import Comparison
from expost.release import Release
from expost.report.document import (
    Alert,
    Block,
    Document,
    Facts,
    Section,
    Table,
    Text,
    Verdict,
    one_line,
    table,
)
from expost.report.figure import Axis, Figure, Line, Panel, Rule
from expost.report.sections.ranks import certainties, drawn_ranks, ranked_figure
from expost.selection.private import SelectionCost
from expost.types import FloatArray

if TYPE_CHECKING:
    from expost.auditing.disparity import Disparity
    from expost.auditing.lower_bounds import LowerBound
    from expost.auditing.roc import AttackFigures, Roc
    from expost.epsilon.row_figures import EstimatedLosses
    from expost.selection.tuning import SelectedRegularization

__all__ = [
    "attack_figures_document",
    "comparison_document",
    "comparison_figure",
    "coverage_document",
    "disparity_document",
    "disparity_table",
    "estimate_text",
    "estimated_losses_document",
    "estimated_losses_figure",
    "individual_epsilon_document",
    "individual_epsilon_figure",
    "lower_bound_document",
    "neighbours_document",
    "neighbours_figure",
    "rate_text",
    "release_document",
    "roc_document",
    "roc_figure",
    "row_losses_document",
    "row_losses_figure",
    "selected_regularization_document",
    "selection_cost_document",
    "with_values",
]

_SHARES = (0.5, 0.9, 0.99, 1.0)
_RATES = (0.001, 0.01, 0.1, 0.5)
# Lines of a table of candidates or coefficients; more are counted.
_LINES = 40
_FIGURES = (
    ("AUC", "auc"),
    ("balanced accuracy", "accuracy"),
    ("membership advantage", "advantage"),
    ("TPR at 1 % FPR", "tpr_at_1_percent"),
    ("TPR at 0.1 % FPR", "tpr_at_01_percent"),
)


def _up(value: float) -> str:
    return number(value, "up")


def _cell_up(value: float) -> str:
    return figure(value, "up")


def _cell_down(value: float) -> str:
    return figure(value, "down")


def _document(
    result: Any, kind: str, title: str, blocks: Sequence[Block], **options: Any
) -> Document:
    """Return a document with one section, which terminals show too."""
    section = Section(
        id=kind.replace(" ", "-"),
        title=options.pop("heading", "Result"),
        nav=options.pop("nav", "Overview"),
        brief=True,
        blocks=tuple(blocks),
    )
    return Document(
        kind=kind, title=title, audience=result.audience, sections=(section,), **options
    )


def _notes(notices: Sequence[str]) -> tuple[Alert, ...]:
    return tuple(Alert(severity="note", title=one_line(notice)) for notice in notices)


def _quantiles(values: FloatArray, title: str, *, of: str = "rows") -> Table:
    """Return a table of what so many of the values do not exceed, rounded up."""
    levels = np.quantile(values, _SHARES, method="higher").tolist() if len(values) else []
    return table(
        list(zip(_SHARES, levels, strict=False)),
        (f"share of the {of}", lambda line: line[0], share),
        (f"{title}, at most", lambda line: line[1], _cell_up),
    )


# -- rows ------------------------------------------------------------------------------------------


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
            guarantee = f"The guarantee allows {nats(_up(losses.worst_case))}."
        text = f"The most exposed row has an exposure of {nats(_up(worst))} ({certainty(worst)})."
        verdict = Verdict(text=text, more=guarantee)
        quantiles = _quantiles(np.abs(losses.loss), "exposure (nats)")
    blocks: list[Block] = [quantiles]
    if len(losses.loss):
        blocks.insert(0, row_losses_figure(losses))
    return _document(
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
    return _document(
        losses,
        "estimated losses",
        f"Estimated losses of {count(rows)} rows in {count(models)} models",
        (estimated_losses_figure(losses), _quantiles(mean, "mean exposure (nats)")),
        alerts=_notes(notices),
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
    return _document(
        result,
        "individual epsilon",
        f"ε of {count(len(result))} single rows at δ = {_up(result.delta)}",
        (individual_epsilon_figure(result), _quantiles(result.epsilon, "ε")),
        verdict=Verdict(
            text=(
                f"No row has spent more than ε = {_up(largest)}; the run guarantees"
                f" ε = {_up(result.worst_case)} to any row of any data."
            ),
            more=symbols(result.meaning),
        ),
        facts={"epsilon": result.worst_case, "delta": result.delta},
        nav="Exposure",
    )


def individual_epsilon_figure(result: IndividualEpsilon) -> Figure:
    """Return the ε of each row by rank, and that of the run."""
    words = f"the run, any row of any data: {_up(result.worst_case)}"
    return ranked_figure(
        result.epsilon,
        key="individual-epsilon",
        title="ε of single rows, by rank",
        label=f"ε at δ = {_up(result.delta)}",
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
            ("certified to ±", _cell_up(float(np.max(neighbours.error_bound)))),
            ("largest relative error", _cell_up(relative)),
        )
    )
    return _document(
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
            ("median", lambda line: line[1], _cell_up),
            ("largest", lambda line: line[2], _cell_up),
        )
    ]
    if comparison.held is not None:
        blocks.insert(0, comparison_figure(comparison))
    return _document(
        comparison,
        "comparison",
        f"Published bounds and exact exposures of {count(figures.rows)} rows",
        blocks,
        subtitle=(one_line(comparison.description),),
        verdict=Verdict(
            text=f"{failed}; a bound is {number(ratio)} times the exact exposure (median).",
            more=f"A bound may fail with probability {_up(figures.fails_with)}.",
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


# -- models and choices ----------------------------------------------------------------------------


def release_document(release: Release) -> Document:
    """Return the document of a released model."""
    mechanism = release.mechanism
    names, labels, coefficients = _coefficients(release)
    lines = list(zip(names, *coefficients.tolist(), strict=True))

    def column(label: str, index: int) -> Any:
        return label, lambda line: line[index], figure

    blocks: list[Block] = [
        table(
            lines[:_LINES],
            ("feature", lambda line: line[0], str),
            *(column(label, index) for index, label in enumerate(labels, 1)),
            caption="Coefficients, noise included",
        )
    ]
    if len(lines) > _LINES:
        blocks.append(Text(text=f"{count(len(lines) - _LINES)} more are not shown.", small=True))
    alerts = []
    warning = mechanism.forecast.warning
    if warning is not None:
        alerts.append(Alert(severity="problem", title="Useless model.", text=symbols(warning)))
    if release.seeded:
        text = "Anybody who knows the seed can remove the noise; this is no private release."
        alerts.append(Alert(severity="review", title="Seeded noise: a simulation.", text=text))
    if release.read_from_data:
        names_read = one_line(", ".join(release.read_from_data))
        title = f"Read from the data, and not private: {names_read}."
        alerts.append(Alert(severity="review", title=title))
    delta = "" if mechanism.delta is None else f", δ = {_up(mechanism.delta)}"
    guarantee = f"ε = {_up(mechanism.epsilon)}{delta}{for_persons(mechanism.rows_per_person)}"
    return _document(
        release,
        "release",
        f"Released model: {one_line(mechanism.title)}",
        blocks,
        subtitle=(
            f"{mechanism.noise} noise",
            f"{count(mechanism.rows)} rows",
            f"regularization {number(mechanism.regularization)}",
        ),
        verdict=Verdict(
            text=f"Released at {guarantee}."
            if mechanism.worst_case < np.inf
            else "This model has no ε guarantee."
        ),
        alerts=tuple(alerts),
        heading="Coefficients",
    )


def _coefficients(release: Release) -> tuple[tuple[str, ...], list[str], FloatArray]:
    """Return the names of the features, of the outputs, and (outputs, features)."""
    coefficients, intercepts = release.coefficients
    each = np.atleast_2d(coefficients)
    names = release.feature_names or tuple(f"x{index}" for index in range(each.shape[1]))
    if release.ball.fit_intercept:
        each = np.column_stack([each, np.atleast_1d(intercepts)])
        names = (*names, "(intercept)")
    labels = ["coefficient"]
    if len(each) > 1 and release.classes is not None:
        labels = [one_line(label) for label in release.classes.tolist()]
    return tuple(one_line(name) for name in names), labels, each


def selected_regularization_document(selected: "SelectedRegularization") -> Document:
    """Return the document of a private choice of the regularization."""
    delta = "" if selected.delta is None else f", δ = {_up(selected.delta)}"
    candidates = list(enumerate(zip(selected.candidates, selected.part_rows, strict=False)))
    return _document(
        selected,
        "selected regularization",
        "Private choice of the regularization",
        (
            table(
                candidates,
                ("regularization", lambda line: line[1][0], number),
                ("rows of its part", lambda line: line[1][1], count),
                ("", lambda line: "chosen" if line[0] == selected.index else "", str),
            ),
            Text(
                text=f"{count(selected.part_rows[-1])} other rows judged the candidates.",
                small=True,
            ),
        ),
        verdict=Verdict(
            text=(
                f"Use regularization = {number(selected.regularization)}: candidate"
                f" {selected.index + 1} of {len(selected.candidates)}, chosen by {selected.method}."
            ),
            more=(
                f"The choice and its model spend ε = {_up(selected.epsilon)}{delta}. A fit of all"
                " rows with this regularization spends its own ε in addition."
            ),
        ),
        heading="Candidates",
        facts={"epsilon": selected.epsilon, "delta": selected.delta},
    )


def selection_cost_document(cost: SelectionCost) -> Document:
    """Return the document of what a private choice costs."""
    order = np.argsort(-cost.probabilities, kind="stable")[:_LINES].tolist()
    blocks: list[Block] = [
        table(
            order,
            ("candidate", lambda index: index, count),
            ("probability", lambda index: min(float(cost.probabilities[index]), 1.0), percent),
        )
    ]
    rest = len(cost.probabilities) - len(order)
    if rest:
        blocks.append(Text(text=f"{count(rest)} more are not shown.", small=True))
    return _document(
        cost,
        "selection cost",
        f"Private choice among {count(len(cost.probabilities))} candidates",
        blocks,
        verdict=Verdict(
            text=f"The best candidate is chosen with probability {percent(cost.best_probability)}.",
            more=(
                f"The expected loss of score is {number(cost.expected_shortfall)}; it is at most"
                f" {_up(cost.shortfall_bound)} with probability"
                f" {percent(1 - cost.failure, 'down')}."
            ),
        ),
        heading="Candidates",
    )


def coverage_document(coverage: Coverage) -> Document:
    """Return the document of an estimated coverage."""
    return _document(
        coverage,
        "coverage",
        f"Coverage within {number(coverage.radius)} of a model",
        (
            Facts(
                pairs=(
                    ("coverage", figure(coverage.probability)),
                    (
                        f"{share(coverage.confidence)} confidence interval",
                        f"{figure(coverage.low, 'down')} to {figure(coverage.high, 'up')}",
                    ),
                    ("draws", count(coverage.samples)),
                    ("draws within the radius", count(coverage.inside)),
                )
            ),
        ),
        heading="Estimate",
    )


# -- attacks ---------------------------------------------------------------------------------------


def lower_bound_document(bound: "LowerBound") -> Document:
    """Return the document of a lower bound on ε."""
    text = f"Nothing is shown about ε at δ = {number(bound.delta)}."
    if bound.epsilon > 0:
        text = f"ε is at least {number(bound.epsilon, 'down')} at δ = {number(bound.delta)}."
    pairs = [
        ("method", one_line(bound.method)),
        ("confidence", share(bound.confidence)),
        ("counts", one_line(bound.detail)),
        ("largest ε that so many trials can show", _up(bound.most)),
    ]
    if bound.assumption:
        pairs.append(("assumption", one_line(bound.assumption)))
    return _document(
        bound,
        "lower bound",
        "Lower bound on ε",
        (Facts(pairs=tuple(pairs)),),
        verdict=Verdict(text=text),
        heading="Evidence",
        nav="Attacks",
    )


def attack_figures_document(figures: "AttackFigures") -> Document:
    """Return the document of one attack on the rows of one model."""
    return _document(
        figures,
        "attack",
        f"Attack on {count(figures.members)} members and {count(figures.non_members)} non-members",
        (
            table(
                _FIGURES,
                ("figure", lambda line: line[0], str),
                ("value", lambda line: getattr(figures, line[1]).value, figure),
                ("from", lambda line: getattr(figures, line[1]).low, _cell_down),
                ("to", lambda line: getattr(figures, line[1]).high, _cell_up),
                caption=f"With {share(figures.auc.confidence)} confidence intervals",
            ),
        ),
        verdict=Verdict(
            text=f"The attack reaches an AUC of {estimate_text(figures.auc)}; random guessing is"
            " 0.5."
        ),
        nav="Attacks",
    )


def rate_text(estimate: Any) -> str:
    """Return a rate with its interval, in percent."""
    return interval(estimate.value, estimate.low, estimate.high, 1, percent=True)


def estimate_text(estimate: Any, places: int = 3) -> str:
    """Return an estimate with its interval."""
    return interval(estimate.value, estimate.low, estimate.high, places)


def with_values(shown: Table) -> Table:
    """Return the table with the value of each estimate in place of the estimate."""
    values = tuple(tuple(getattr(cell, "value", cell) for cell in row) for row in shown.values)
    return replace(shown, values=values)


def disparity_document(disparity: "Disparity") -> Document:
    """Return the document of an attack by the levels of a column."""
    return _document(
        disparity,
        "disparity",
        f"{one_line(disparity.attack)} by {one_line(disparity.column)}",
        (disparity_table(disparity),),
        alerts=_notes(disparity.notices),
        heading="Groups",
        nav="Groups",
    )


def disparity_table(disparity: "Disparity") -> Table:
    """Return the figures of each group, "–" where it has too few rows for them."""
    rate = share(disparity.false_positive_rate)
    return with_values(
        table(
            disparity.groups,
            (one_line(disparity.column), lambda group: one_line(group.label), str),
            ("members", lambda group: group.members, count),
            ("non-members", lambda group: group.non_members, count),
            ("AUC", lambda group: group.auc, estimate_text),
            (f"TPR at {rate} FPR of all rows", lambda group: group.true_positive_rate, rate_text),
            ("FPR of the group", lambda group: group.false_positive_rate, rate_text),
        )
    )


def roc_document(roc: "Roc") -> Document:
    """Return the document of a ROC curve."""
    return _document(
        roc,
        "roc",
        "ROC curve",
        (
            roc_figure(roc),
            table(
                list(_reached(roc)),
                ("FPR", lambda line: line[0], share),
                ("TPR", lambda line: line[1], percent),
            ),
        ),
        verdict=Verdict(text=f"The AUC is {number(roc.area)}; random guessing is 0.5."),
        nav="Attacks",
    )


def _reached(roc: "Roc") -> Iterator[tuple[float, float]]:
    for rate in _RATES:
        yield rate, float(np.max(roc.tpr[roc.fpr <= rate]))


def roc_figure(roc: "Roc") -> Figure:
    """Return the curve, with random guessing."""
    return Figure(
        key="roc",
        description=f"True positive rate over false positive rate; the AUC is {number(roc.area)}.",
        panels=(
            Panel(
                title="ROC curve",
                x=Axis(label="false positive rate", low=0.0, high=1.0, format="percent"),
                y=Axis(label="true positive rate", low=0.0, high=1.0, format="percent"),
                lines=(
                    Line(name="attack", x=tuple(roc.fpr.tolist()), y=tuple(roc.tpr.tolist())),
                    Line(name="random guessing", x=(0.0, 1.0), y=(0.0, 1.0), role="limit"),
                ),
            ),
        ),
    )
