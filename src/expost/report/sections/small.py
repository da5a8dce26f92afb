"""Documents of one section: those of models and choices, and what the others share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from expost.mechanisms.base import noise_title
from expost.noise.coverage import Coverage
from expost.numbers import count, figure, for_persons, number, percent, share, symbols
from expost.release import Release
from expost.report.document import (
    Alert,
    Block,
    Document,
    Facts,
    Heading,
    Section,
    Text,
    Verdict,
    one_line,
    table,
)
from expost.report.sections.bounds import up
from expost.selection.private import SelectionCost
from expost.types import FloatArray

if TYPE_CHECKING:
    from expost.selection.tuning import SelectedRegularization

__all__ = [
    "coverage_document",
    "notes",
    "release_document",
    "selected_regularization_document",
    "selection_cost_document",
    "small_document",
]

# Lines of a table of candidates or coefficients; more are counted.
_LINES = 40
# How a model was made after rows left or entered.
_METHODS = {"fresh": "drawn again", "coupled": "kept or redrawn"}


def small_document(
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


def notes(notices: Sequence[str]) -> tuple[Alert, ...]:
    """Return notices as alerts."""
    return tuple(Alert(severity="note", title=one_line(notice)) for notice in notices)


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
    if release.history:
        blocks += _history(release)
    alerts = []
    warning = mechanism.forecast.warning
    if warning is not None:
        alerts.append(Alert(severity="problem", title="Useless model.", text=symbols(warning)))
    if release.seeded:
        text = "Anyone who knows the seed can remove the noise; this release is not private."
        alerts.append(Alert(severity="review", title="Seeded noise: a simulation.", text=text))
    if release.read_from_data:
        names_read = one_line(", ".join(release.read_from_data))
        title = f"Read from the data, and not private: {names_read}."
        alerts.append(Alert(severity="review", title=title))
    delta = "" if mechanism.delta is None else f", δ = {up(mechanism.delta)}"
    guarantee = f"ε = {up(mechanism.epsilon)}{delta}{for_persons(mechanism.rows_per_person)}"
    return small_document(
        release,
        "release",
        f"Released model: {one_line(mechanism.title)}",
        blocks,
        subtitle=(
            noise_title(mechanism.noise),
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


def _history(release: Release) -> tuple[Block, ...]:
    """Return the changes of the rows since the first release."""
    after = [step.rows for step in release.history[1:]] + [release.mechanism.rows]
    changes = table(
        zip(release.history, after, strict=True),
        ("model before", lambda change: change[0].model[:8], str),
        ("rows before", lambda change: change[0].rows, count),
        ("rows after", lambda change: change[1], count),
        ("method", lambda change: _METHODS[change[0].method], str),
        ("request", lambda change: change[0].request[:8], str),
        caption="Changes of its rows since the first release",
    )
    return Heading(text="History"), changes


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
    delta = "" if selected.delta is None else f", δ = {up(selected.delta)}"
    candidates = list(enumerate(zip(selected.candidates, selected.part_rows, strict=False)))
    return small_document(
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
                text=f"{count(selected.part_rows[-1])} other rows evaluated the candidates.",
                small=True,
            ),
        ),
        verdict=Verdict(
            text=(
                f"Use regularization = {number(selected.regularization)}: candidate"
                f" {selected.index + 1} of {len(selected.candidates)}, chosen by {selected.method}."
            ),
            more=(
                f"The choice and its model spend ε = {up(selected.epsilon)}{delta}. A fit of all"
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
    return small_document(
        cost,
        "selection cost",
        f"Private choice among {count(len(cost.probabilities))} candidates",
        blocks,
        verdict=Verdict(
            text=f"The best candidate is chosen with probability {percent(cost.best_probability)}.",
            more=(
                f"The expected loss of score is {number(cost.expected_shortfall)}; it is at most"
                f" {up(cost.shortfall_bound)} with probability"
                f" {percent(1 - cost.failure, 'down')}."
            ),
        ),
        heading="Candidates",
    )


def coverage_document(coverage: Coverage) -> Document:
    """Return the document of an estimated coverage."""
    return small_document(
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
