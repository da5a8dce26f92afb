"""The document of an audit: the results of the attacks, then what they prove."""

import math
from collections.abc import Sequence

import numpy as np

from expost.auditing.attacks import described
from expost.auditing.lower_bounds import LowerBound
from expost.auditing.result import Audit, Correlation
from expost.auditing.roc import Interval
from expost.errors import InvalidInput
from expost.numbers import count, figure, number, percent, posterior_at, share, symbols
from expost.report.document import (
    Block,
    Code,
    Document,
    Facts,
    Fold,
    Heading,
    Section,
    Table,
    Text,
    one_line,
    table,
)
from expost.report.figure import Axis, Figure, Line, Panel, Role, Rule
from expost.report.sections.attacks import disparity_table, estimate_text, rate_text, with_values
from expost.report.sections.audit_assessment import assessment_section
from expost.report.sections.audit_overview import Attacked, fit_text, terms
from expost.report.sections.audit_shift import shift_section
from expost.report.sections.bounds import cell_down, cell_up
from expost.types import FloatArray, IntArray

__all__ = ["audit_document", "exposures_figure", "roc_figure"]

# Rows that are listed; audit.json and the table of rows have all of them.
_ROWS, _DISAGREEING = 20, 10
# Points of a curve, of that of the guarantee and of the scatter; more would not be visible.
_CURVE_POINTS, _GUARANTEE_POINTS, _SCATTERED = 160, 32, 1000
# Per-row AUCs from which on members are counted.
_LEVELS = (0.6, 0.7, 0.8, 0.9, 0.99)
# Attacks that are drawn; the table has all of them.
_ROLES: tuple[Role, ...] = ("main", "second", "third", "fourth")


def audit_document(audit: Audit, *, next_steps: Sequence[Code] = ()) -> Document:
    """Describe an audit.

    Parameters
    ----------
    audit : Audit
        The scores and figures of all attacks.
    next_steps : sequence of Code
        Commands to show as the next step.
    """
    attacked = Attacked(audit=audit)
    sections = (
        _attacks(attacked),
        shift_section(audit),
        _bounds(attacked),
        _rows(attacked),
        _exposures(attacked),
        _groups(audit),
        _more_figures(attacked),
        assessment_section(attacked),
    )
    return Document(
        kind="audit",
        title=f"Audit of {count(attacked.members)} members and"
        f" {count(attacked.non_members)} non-members",
        audience=audit.audience,
        subtitle=(symbols(one_line(audit.description)), f"{count(audit.models)} reference models"),
        verdict=attacked.verdict(),
        tiles=tuple(attacked.tiles()),
        alerts=tuple(attacked.alerts()),
        steps=tuple(next_steps),
        sections=tuple(section for section in sections if section is not None),
        glossary=terms(rows=True),
        facts=attacked.facts(),
    )


# -- attacks ---------------------------------------------------------------------------------------


def _attacks(attacked: Attacked) -> Section:
    audit = attacked.audit
    blocks: list[Block] = [
        *(() if audit.fit is None else (Text(text=f"The model: {fit_text(audit)}."),)),
        roc_figure(audit),
        with_values(
            table(
                attacked.order,
                ("attack", one_line, str),
                ("AUC", lambda name: audit.figures[name].auc, estimate_text),
                ("TPR at 1 % FPR", lambda name: audit.figures[name].tpr_at_1_percent, rate_text),
                ("advantage", lambda name: audit.figures[name].advantage, estimate_text),
            )
        ),
        Text(
            text=f"With {share(audit.confidence)} confidence intervals over the rows of this one"
            " model.",
            small=True,
        ),
    ]
    if audit.skipped:
        skipped = (f"{one_line(name)} ({one_line(why)})" for name, why in audit.skipped.items())
        blocks.append(Text(text=f"Attacks not made: {'; '.join(skipped)}.", small=True))
    return Section(
        id="attacks",
        title="Results of the attacks",
        nav="Attacks",
        brief=True,
        blocks=tuple(blocks),
    )


def roc_figure(audit: Audit) -> Figure:
    """Return the ROC curves of the best attacks on log scales, and what the guarantee allows.

    Both axes are logarithmic (Carlini et al. 2022): what matters is how many members are
    identified at few false positives. Curves are step functions: the TPR at an FPR is that of the
    last threshold whose FPR is not larger.
    """
    attacked = Attacked(audit=audit)
    drawn = list(dict.fromkeys((audit.best, attacked.sharpest, *attacked.order)))[: len(_ROLES)]
    lines = [_curve(audit, name, role) for name, role in zip(drawn, _ROLES, strict=False)]
    floor = _floor(attacked)
    if audit.guarantee is not None:
        rates = np.geomspace(floor, 1.0, _GUARANTEE_POINTS).tolist()
        lines.append(
            Line(
                name="allowed by the guarantee, on average over models",
                x=tuple(rates),
                y=tuple(float(audit.guarantee.true_positive_rate(rate)) for rate in rates),
                role="fifth",
            )
        )
    lines.append(Line(name="random guessing", x=(floor, 1.0), y=(floor, 1.0), role="limit"))
    reached = "; ".join(
        f"{one_line(name)}: TPR {percent(audit.figures[name].tpr_at_1_percent.value)} at 1 % FPR"
        for name in drawn
    )
    left_out = len(audit.figures) - len(drawn)
    return Figure(
        key="roc",
        description=f"True positive rate over false positive rate. {reached}.",
        panels=(
            Panel(
                title="ROC curves (log scales)",
                x=_rate_axis("false positive rate: non-members taken for members", floor),
                y=_rate_axis("true positive rate: members identified", floor),
                lines=tuple(lines),
            ),
        ),
        caption=f"The best {len(drawn)} of {len(audit.figures)} attacks." if left_out else "",
    )


def _rate_axis(label: str, floor: float) -> Axis:
    return Axis(label=label, low=floor, high=1.0, log=True, format="percent")


def _floor(attacked: Attacked) -> float:
    """Return where the log axes begin: at one row of the fewer kind, or below."""
    fewest = min(attacked.members, attacked.non_members)
    return 10.0 ** -max(1, math.ceil(math.log10(fewest)))


def _curve(audit: Audit, name: str, role: Role) -> Line:
    """Return points of the curve, as dense as a log axis shows them.

    The last points up to an FPR of 0.1 % and of 1 % are among them.
    """
    curve, figures = audit.roc(name), audit.figures[name]
    least = min(0.5, 1 / figures.non_members)
    rates = [0.0, *np.geomspace(least, 1.0, _CURVE_POINTS), 0.001, 0.01]
    last = len(curve.fpr) - 1
    kept = np.unique([0, *(np.searchsorted(curve.fpr, rates, side="right") - 1), last])
    return Line(
        name=f"{one_line(name)} (AUC {figures.auc.value:.3f})",
        x=tuple(curve.fpr[kept].tolist()),
        y=tuple(curve.tpr[kept].tolist()),
        role=role,
        step=True,
    )


def _more_figures(attacked: Attacked) -> Section:
    audit = attacked.audit
    return Section(
        id="attack-figures",
        title="The attacks and their other figures",
        blocks=(
            with_values(
                table(
                    attacked.order,
                    ("attack", one_line, str),
                    ("compares", lambda name: one_line(described(name).description), str),
                    ("access", _access, str),
                    (
                        "TPR at 0.1 % FPR",
                        lambda name: audit.figures[name].tpr_at_01_percent,
                        rate_text,
                    ),
                    ("balanced accuracy", lambda name: audit.figures[name].accuracy, estimate_text),
                )
            ),
        ),
    )


def _access(name: str) -> str:
    return "inside of the model" if described(name).white_box else "answers of the model"


# -- what is proved --------------------------------------------------------------------------------


def _bounds(attacked: Attacked) -> Section:
    audit = attacked.audit
    pairs = [("guarantee", "none is known")]
    if audit.guarantee is not None and audit.advantage_bound is not None:
        pairs = [
            ("guarantee", attacked.guarantee_text()),
            ("refuted", "yes" if audit.guarantee_refuted else "no; this does not prove it"),
            ("advantage it allows, on average", number(audit.advantage_bound, "up")),
            (
                f"advantage of {one_line(audit.best)} in this model",
                number(audit.figures[audit.best].advantage.value),
            ),
        ]
    blocks: list[Block] = [Facts(pairs=tuple(pairs))]
    if audit.bounds:
        blocks.append(_bounds_table(attacked))
    else:
        blocks.append(Text(text="This evidence proves no lower bound on ε."))
    return Section(
        id="attack-bounds",
        title="What the attacks prove about ε",
        nav="Attacks",
        brief=True,
        blocks=tuple(blocks),
    )


def _bounds_table(attacked: Attacked) -> Table:
    def counts(bound: LowerBound) -> str:
        return one_line(
            f"{bound.detail}; given {bound.assumption}" if bound.assumption else bound.detail
        )

    return table(
        attacked.audit.bounds,
        ("method", lambda bound: one_line(bound.method), str),
        ("ε is at least", lambda bound: float(bound.epsilon), cell_down),
        ("largest ε it can show", lambda bound: float(bound.most), cell_up),
        ("δ", lambda bound: float(bound.delta), number),
        ("ε of the guarantee", attacked.guaranteed, cell_up),
        ("confidence", lambda bound: float(bound.confidence), share),
        ("evidence", counts, str),
    )


# -- rows ------------------------------------------------------------------------------------------


def _rows(attacked: Attacked) -> Section:
    audit = attacked.audit
    blocks: list[Block] = []
    if attacked.mean_row_auc is not None:
        blocks += [
            Text(
                text=f"The mean per-row AUC of the members is {number(attacked.mean_row_auc)};"
                " random guessing is 0.5."
            ),
            table(
                _LEVELS,
                ("per-row AUC, at least", lambda level: level, number),
                ("members", attacked.reaching, count),
                ("expected by chance, about", attacked.mirrored, count),
            ),
        ]
    blocks.append(_rows_table(attacked))
    ranked = "per-row AUC" if audit.row_auc is not None else f"score of {one_line(audit.best)}"
    blocks.append(
        Text(
            text=f"Members by {ranked}, the largest first; an unknown one counts as the largest."
            " The table of rows holds all of them.",
            small=True,
        )
    )
    return Section(
        id="attack-rows", title="Most exposed members", nav="Attacks", blocks=tuple(blocks)
    )


def _rows_table(attacked: Attacked) -> Table:
    audit, theory = attacked.audit, attacked.audit.exposures
    scores = audit.scores[audit.best]
    others = np.sort(scores[~audit.truth])
    position = {int(row): at for at, row in enumerate(audit.members)}

    def as_high(row: int) -> float:
        return float(len(others) - np.searchsorted(others, scores[row], side="left")) / len(others)

    row_auc = audit.row_auc
    return table(
        audit.vulnerable(_ROWS).tolist(),
        ("row", lambda row: one_line(audit.key(row)), str),
        None
        if row_auc is None
        else ("per-row AUC", lambda row: _known(row_auc.value[row]), "{:.3f}".format),
        None
        if row_auc is None
        else ("standard error", lambda row: _known(row_auc.error[row]), cell_up),
        ("non-members that score as high", as_high, percent),
        None
        if theory is None or theory.is_noiseless
        else ("exposure (nats)", lambda row: _known(theory.exposure[position[row]]), cell_up),
        None
        if theory is None
        else (
            _measure_label(audit),
            lambda row: _known(theory.measure[1][position[row]]),
            figure,
        ),
    )


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _measure_label(audit: Audit) -> str:
    assert audit.exposures is not None
    unit = "" if audit.exposures.is_noiseless else " (nats)"
    return f"{audit.exposures.measure[0]}{unit}"


# -- exposures -------------------------------------------------------------------------------------


def _exposures(attacked: Attacked) -> Section | None:
    audit = attacked.audit
    if audit.exposures is None:
        return None
    blocks: list[Block] = []
    if len(_scattered(attacked)):
        blocks.append(exposures_figure(audit))
    if audit.correlations:
        blocks.append(
            with_values(
                table(
                    audit.correlations,
                    ("rank correlation of", lambda each: one_line(each.what), str),
                    ("Spearman's ρ", lambda each: each, lambda each: estimate_text(each, 2)),
                    ("members", lambda each: each.rows, count),
                )
            )
        )
    blocks.append(Fold(title="Members ranked most differently", blocks=(_disagreements(attacked),)))
    return Section(
        id="attack-exposures",
        title="Attacks and exposures",
        nav="Attacks",
        blocks=tuple(blocks),
    )


def _scattered(attacked: Attacked) -> IntArray:
    """Return the members with both figures, by rising exposure; every k-th where they are many."""
    assert attacked.audit.exposures is not None
    measure = attacked.audit.exposures.measure[1]
    known = np.flatnonzero(np.isfinite(measure) & ~np.isnan(attacked.row_auc))
    order = known[np.argsort(measure[known], kind="stable")]
    if len(order) > _SCATTERED:
        order = order[np.linspace(0, len(order) - 1, _SCATTERED).round().astype(np.int64)]
    return order


def exposures_figure(audit: Audit) -> Figure:
    """Return a dot for each member: its per-row AUC over its expected exposure.

    Without noise it is the distance that the row moves the model.
    """
    attacked = Attacked(audit=audit)
    if audit.exposures is None or not len(order := _scattered(attacked)):
        raise InvalidInput(
            "audit: knows no exposures, or has no references; audit an expost model with"
            " references."
        )
    measure = audit.exposures.measure[1][order]
    noiseless = audit.exposures.is_noiseless
    x = measure if noiseless else np.array([posterior_at(value) for value in measure])
    row_auc = attacked.row_auc[order]
    related = " ".join(_described(each) for each in audit.correlations[-1:])
    return Figure(
        key="exposures",
        description=f"Per-row AUC of {count(len(order))} members over {audit.exposures.measure[0]}."
        f" {related}".strip(),
        panels=(
            Panel(
                title="Per-row AUC and exposure",
                x=_measure_axis(x, noiseless),
                y=Axis(
                    label="per-row AUC",
                    low=math.floor(10 * min(0.4, float(row_auc.min()))) / 10,
                    high=1.0,
                ),
                lines=(
                    Line(name="member", x=tuple(x.tolist()), y=tuple(row_auc.tolist()), dots=True),
                ),
                rules=(Rule(name="random guessing", at=0.5),),
            ),
        ),
        caption=related,
    )


def _measure_axis(x: FloatArray, noiseless: bool) -> Axis:
    most = float(x.max())
    if noiseless:
        return Axis(label="distance", low=0.0, high=1.05 * most or 1.0)
    high = min(0.5 + 1.05 * max(most - 0.5, 1e-6), 1.0)
    return Axis(
        label="attacker's certainty at the expected exposure", low=0.5, high=high, format="percent"
    )


def _described(related: Correlation) -> str:
    return f"Rank correlation of {one_line(related.what)}: {estimate_text(related, 2)}."


def _disagreements(attacked: Attacked) -> Table:
    """Return the members that exposures and attacks rank most differently; rank 1 is the first."""
    audit = attacked.audit
    assert audit.exposures is not None
    measure = audit.exposures.measure[1]
    # An unknown exposure counts as the largest.
    order = np.argsort(-np.where(np.isnan(measure), np.inf, measure), kind="stable")
    by_exposure = {int(audit.members[at]): rank for rank, at in enumerate(order, 1)}
    by_attacks = {int(row): rank for rank, row in enumerate(audit.ranking, 1)}
    position = {int(row): at for at, row in enumerate(audit.members)}
    return table(
        audit.disagreements(_DISAGREEING).tolist(),
        ("row", lambda row: one_line(audit.key(row)), str),
        (_measure_label(audit), lambda row: _known(measure[position[row]]), figure),
        ("rank by exposure", lambda row: by_exposure[row], count),
        (
            "per-row AUC",
            lambda row: _known(attacked.row_auc[position[row]]),
            "{:.3f}".format,
        ),
        ("rank by attacks", lambda row: by_attacks[row], count),
    )


# -- groups ----------------------------------------------------------------------------------------


def _groups(audit: Audit) -> Section | None:
    if not audit.disparity:
        return None
    blocks: list[Block] = []
    for disparity in audit.disparity:
        spread = (
            "Groups differ beyond their intervals."
            if _is_spread([group.auc for group in disparity])
            else "No group differs from another beyond the intervals."
        )
        blocks += [
            Heading(text=f"{one_line(disparity.attack)} by {one_line(disparity.column)}"),
            disparity_table(disparity),
            Text(text=spread, small=True),
            *(Text(text=one_line(notice), small=True) for notice in disparity.notices),
        ]
    return Section(id="attack-groups", title="Attack by group", nav="Groups", blocks=tuple(blocks))


def _is_spread(areas: list[Interval | None]) -> bool:
    """Return whether the intervals of two groups do not overlap."""
    known = [area for area in areas if area is not None]
    return bool(known) and max(area.low for area in known) > min(area.high for area in known)
