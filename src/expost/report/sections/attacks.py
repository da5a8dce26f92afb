"""Documents and tables of single attacks.

Classes of attacks are named in annotations only, so that a page without an audit imports no attack.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from expost.numbers import count, figure, interval, number, percent, share
from expost.report.document import Document, Facts, Table, Verdict, one_line, table
from expost.report.figure import Axis, Figure, Line, Panel
from expost.report.sections.bounds import cell_down, cell_up, up
from expost.report.sections.small import notes, small_document

if TYPE_CHECKING:
    from expost.auditing.disparity import Disparity
    from expost.auditing.lower_bounds import LowerBound
    from expost.auditing.roc import AttackFigures, Roc

__all__ = [
    "attack_figures_document",
    "disparity_document",
    "disparity_table",
    "estimate_text",
    "lower_bound_document",
    "rate_text",
    "roc_document",
    "with_values",
]

_RATES = (0.001, 0.01, 0.1, 0.5)
_FIGURES = (
    ("AUC", "auc"),
    ("balanced accuracy", "accuracy"),
    ("membership advantage", "advantage"),
    ("TPR at 1 % FPR", "tpr_at_1_percent"),
    ("TPR at 0.1 % FPR", "tpr_at_01_percent"),
)


def lower_bound_document(bound: "LowerBound") -> Document:
    """Return the document of a lower bound on ε."""
    text = f"Nothing is shown about ε at δ = {number(bound.delta)}."
    if bound.epsilon > 0:
        text = f"ε is at least {number(bound.epsilon, 'down')} at δ = {number(bound.delta)}."
    pairs = [
        ("method", one_line(bound.method)),
        ("confidence", share(bound.confidence)),
        ("counts", one_line(bound.detail)),
        ("largest ε that so many trials can show", up(bound.most)),
    ]
    if bound.assumption:
        pairs.append(("assumption", one_line(bound.assumption)))
    return small_document(
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
    return small_document(
        figures,
        "attack",
        f"Attack on {count(figures.members)} members and {count(figures.non_members)} non-members",
        (
            table(
                _FIGURES,
                ("figure", lambda line: line[0], str),
                ("value", lambda line: getattr(figures, line[1]).value, figure),
                ("from", lambda line: getattr(figures, line[1]).low, cell_down),
                ("to", lambda line: getattr(figures, line[1]).high, cell_up),
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
    return small_document(
        disparity,
        "disparity",
        f"{one_line(disparity.attack)} by {one_line(disparity.column)}",
        (disparity_table(disparity),),
        alerts=notes(disparity.notices),
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
    return small_document(
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
