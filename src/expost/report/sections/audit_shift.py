"""What is said of members and non-members that differ without the model."""

from collections.abc import Iterator

from expost.auditing.result import Audit
from expost.auditing.shift import LEVEL, Shift
from expost.numbers import number, percent, share
from expost.report.document import Alert, Block, Bullets, Facts, Section, Text, Verdict, one_line
from expost.report.sections.attacks import estimate_text, rate_text
from expost.report.sections.bounds import cell_down

__all__ = ["confounded_verdict", "shift_alerts", "shift_section"]

_BLIND = "a classifier that sees the rows and labels, but not the model"
_REMEDY = (
    "Take non-members of the same source and time as the members, or, if rows"
    " were included with probabilities that differ by design, state them (--propensity COLUMN)."
)
_UNTESTED = (
    "Members and non-members were not compared without the model.",
    "If they differ in kind, attacks succeed without any leakage. Pass the rows as features with"
    " the arrays, and at least twenty rows of each kind.",
)


def confounded_verdict(audit: Audit, nevertheless: str) -> Verdict:
    """Return the verdict where the success of attacks is no evidence.

    Parameters
    ----------
    audit : Audit
        The audit, whose members and non-members differ.
    nevertheless : str
        What is shown all the same; empty if nothing is.
    """
    assert audit.shift is not None
    best = audit.figures[audit.best].auc.value
    more = f"Valid all the same: {nevertheless}. {_REMEDY}" if nevertheless else _REMEDY
    return Verdict(
        text="Members and non-members differ without the model: the attacks on these rows are no"
        f" evidence about it (blind AUC {audit.shift.auc.value:.3f}, best attack {best:.3f}).",
        more=more,
        tone="caution",
        priority=40,
    )


def shift_alerts(audit: Audit) -> Iterator[Alert]:
    """Yield an alert on a shift, or on one that was not looked for."""
    shift = audit.shift
    if shift is None:
        if audit.chosen_by == "unknown":
            yield Alert(severity="note", title=_UNTESTED[0], text=_UNTESTED[1])
        return
    if not audit.is_confounded:
        return
    reached = (
        f"AUC {shift.auc.value:.3f}, TPR {percent(shift.tpr_at_1_percent.value)} at 1 % FPR,"
        f" {_p_text(shift)}"
    )
    stated = (
        f" This contradicts the statement that {audit.contradicted}: no bound on ε rests on it."
        if audit.contradicted
        else ""
    )
    yield Alert(
        severity="problem",
        title=f"Members and non-members differ: {_BLIND}, separates them ({reached}).",
        text=f"An attack that does no better shows nothing about the model.{stated} {_REMEDY}",
    )


def shift_section(audit: Audit) -> Section | None:
    """Return the section on the blind attack; None if it was not made."""
    shift = audit.shift
    if shift is None:
        return None
    better = [one_line(name) for name in audit.figures if audit.exceeds_blind(name)]
    pairs = [
        ("blind AUC", estimate_text(shift.auc)),
        ("blind TPR at 1 % FPR", rate_text(shift.tpr_at_1_percent)),
        (
            "members and non-members",
            f"differ ({_p_text(shift)})"
            if shift.is_detected
            else f"not shown to differ ({_p_text(shift)})",
        ),
        ("attacks that certainly exceed the blind AUC", ", ".join(better) or "none"),
    ]
    blocks: list[Block] = [
        Text(
            text=f"The blind attack is {_BLIND}. If members and non-members are exchangeable, a"
            f" difference is reported with probability {share(LEVEL)} at most; that none is"
            " reported does not show that there is none.",
            small=True,
        ),
        Facts(pairs=tuple(pairs)),
    ]
    if shift.bound is not None:
        blocks += [
            Text(
                text="Not proved: a lower bound on ε of"
                f" {cell_down(float(shift.bound.epsilon))} at δ = {number(shift.bound.delta)}, if"
                " memberships were drawn independently with the probabilities that the blind"
                f" classifier estimated ({one_line(shift.bound.detail)})."
            )
        ]
    if audit.is_confounded:
        blocks.append(Bullets(items=tuple(_valid(audit))))
    return Section(
        id="attack-shift",
        title="Without the model",
        nav="Attacks",
        brief=True,
        blocks=tuple(blocks),
    )


def _valid(audit: Audit) -> Iterator[str]:
    """Yield what holds although members and non-members differ."""
    yield "Not valid as evidence of leakage: AUC, TPR and advantage of the attacks on these rows."
    if audit.models:
        yield (
            "Valid: per-row AUCs, which compare models trained with and without the same row, and"
            " lower bounds on ε from many trainings of one row."
        )
    if audit.contradicted:
        yield (
            "Not valid, and left out: a lower bound on ε from this one training. It rests on the"
            f" statement that {audit.contradicted}, which the difference contradicts."
        )
    yield (
        "Valid: lower bounds on ε with propensities that are known by design and differ between"
        " rows (--propensity COLUMN), of rows that were included independently."
    )


def _p_text(shift: Shift) -> str:
    return f"p = {number(shift.p_value, 'up')}"
