"""The answer of an audit in a few sentences, and what a data-protection impact assessment asks.

How much an attack finds is judged by intervals that hold for all attacks together: the best of
many is flattered, and so each interval is taken at 1 − (1 − confidence)/(2·attacks), two figures
of each attack being looked at.

NOTHING   neither the AUC passes ½ nor the share of members found passes 1 % at a 1 % FPR, and
          no ε > 0 is proved.
MUCH      the AUC surely passes ¾, or a tenth of the members is surely found at a 1 % FPR.
SOME      in between.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from expost.attacks.lower_bounds import LowerBound
from expost.attacks.roc import Interval, auc, tpr_at
from expost.audits.result import Audit
from expost.report.audit_words import is_white_box
from expost.report.parts import Headline, one_line
from expost.report.wording import count, interval, number, number_down, number_up, percent, symbols
from expost.report.wording import share as share_text

__all__ = ["Finding", "Question", "audit_headline", "audit_questions", "finding", "is_spread"]

_MUCH_AUC, _MUCH_FOUND = 0.75, 0.1
# Attacks that are named in one sentence.
_NAMED = 6


class Finding(Enum):
    """How much the attacks found; see the module."""

    NOTHING = "nothing"
    SOME = "some"
    MUCH = "much"


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question of an impact assessment, and the sentences that answer it."""

    question: str
    answer: tuple[str, ...]


def finding(audit: Audit) -> Finding:
    """How much the best attacks surely find."""
    sure = 1 - (1 - audit.confidence) / (2 * len(audit.figures))
    area = auc(audit.scores[audit.best], audit.truth, confidence=sure)
    found = tpr_at(audit.scores[_finder(audit)], audit.truth, 0.01, confidence=sure)
    if area.low > _MUCH_AUC or found.low > _MUCH_FOUND:
        return Finding.MUCH
    if area.low > 0.5 or found.low > 0.01 or any(one.epsilon > 0 for one in audit.bounds):
        return Finding.SOME
    return Finding.NOTHING


def _finder(audit: Audit) -> str:
    """The attack that finds most members at a 1 % FPR; the best one where that is among them."""
    most = max(one.tpr_at_1_percent.value for one in audit.figures.values())
    if audit.figures[audit.best].tpr_at_1_percent.value == most:
        return audit.best
    return next(name for name, one in audit.figures.items() if one.tpr_at_1_percent.value == most)


def audit_headline(audit: Audit) -> Headline:
    """The promise; how well the best attack does and what that means; what to do."""
    found = finding(audit)
    return Headline(
        epsilon=_promise_sentence(audit),
        exposed=_attack_sentence(audit, found),
        advice=_advice(audit, found),
        alarm=audit.promise_refuted or found is Finding.MUCH,
    )


def _attack_sentence(audit: Audit, found: Finding) -> str:
    start = {
        Finding.NOTHING: "Somebody who has the model and a person's row learns nothing that these"
        " attacks could show about whether she was in the data",
        Finding.SOME: "Somebody who has the model and a person's row can guess better than a coin,"
        " of some persons at least, whether they were in the data",
        Finding.MUCH: "Somebody who has the model and a person's row can often tell that she was in"
        " the data",
    }[found]
    finder, many = _finder(audit), len(audit.figures)
    who = "" if finder == audit.best else f"{one_line(finder)} "
    best = "the one attack" if many == 1 else f"the best of {many} attacks"
    return (
        f"{start}: {one_line(audit.best)}, {best}, picks the member out of a pair"
        f" {percent(audit.figures[audit.best].auc.value)} of the time (a coin: {share_text(0.5)}),"
        f" and {who}finds {percent(audit.figures[finder].tpr_at_1_percent.value)} of the members"
        f" while taking {share_text(0.01)} of the others for members."
    )


def _promise_sentence(audit: Audit) -> str:
    proved = max(audit.bounds, key=lambda one: one.epsilon, default=None)
    if audit.guarantee is None:
        least = "" if proved is None or proved.epsilon == 0 else _proved(proved)
        return (
            "No promise of privacy is known of this model, so there is none to refute, and none"
            f" that would cover what these attacks miss{least}."
        )
    promise = symbols(one_line(audit.guarantee.describe()))
    if audit.promise_refuted:
        worst = max(
            (one for one in audit.bounds if one.epsilon > audit.guarantee.epsilon(one.delta)),
            key=lambda one: one.epsilon,
        )
        least = number_down(worst.epsilon)
        return (
            f"The promise, {promise}, is refuted: ε is at least {least} at δ ="
            f" {number(worst.delta)}, proved with {share_text(worst.confidence)} confidence, where"
            f" {number_up(audit.guarantee.epsilon(worst.delta))} was promised."
        )
    said = (
        "nothing was proved about ε"
        if proved is None or proved.epsilon == 0
        else f"the attacks prove no more than ε ≥ {number_down(proved.epsilon)}"
    )
    return (
        f"The promise, {promise}, is not refuted: {said}, and that no attack refutes it is no proof"
        f" that it is kept.{_passed(audit)}"
    )


def _proved(bound: LowerBound) -> str:
    return (
        f"; they prove that ε would be at least {number_down(bound.epsilon)} at δ ="
        f" {number(bound.delta)}"
    )


def _passed(audit: Audit) -> str:
    """What to say where the advantage of one model lies above what is expected of all."""
    bound = audit.advantage_bound
    assert bound is not None
    passing = [
        name
        for name, one in audit.figures.items()
        if one.advantage.low > bound and one.advantage.value > bound
    ]
    if not passing:
        return ""
    worst = max(passing, key=lambda name: audit.figures[name].advantage.value)
    return (
        f" But {one_line(worst)} has an advantage of"
        f" {number(audit.figures[worst].advantage.value)} in this one model, and the promise allows"
        f" {number_up(bound)} on average over models: look whether members and others differ in"
        " more"
        " than membership."
    )


def _advice(audit: Audit, found: Finding) -> str:
    if audit.promise_refuted:
        return (
            "Do not rely on the promise and do not release the model: look for the fault in how its"
            " noise is drawn, in the bounds that it is scaled by, or in the data that it saw twice."
        )
    if found is Finding.MUCH:
        return (
            "Treat the model like the rows it was trained on, and give it to those alone who may"
            " see them; or train it with a defence (more regularization, or noise: expost epsilon"
            " says how much) and audit it again."
        )
    if found is Finding.SOME:
        return (
            "Look at the most vulnerable rows and groups below before the model is shared: an"
            " average that is low says nothing about them; more regularization or noise (expost"
            " epsilon) makes it lower."
        )
    return (
        "Nothing here speaks against sharing the model, and nothing here vouches for it: if a"
        " guarantee is needed, release it with noise (expost epsilon says how much)."
        if audit.guarantee is None
        else "Nothing here speaks against sharing the model; what vouches for it is its promise"
        " alone."
    )


# -- what an assessment asks -----------------------------------------------------------------------


def audit_questions(audit: Audit) -> tuple[Question, ...]:
    """What was attacked, with what knowledge, with what result, what was not tried, what remains,
    and who may read it."""
    return (
        Question(question="What was attacked?", answer=_attacked(audit)),
        Question(question="What did the attacker know?", answer=_knowledge(audit)),
        Question(question="With what result?", answer=_result(audit)),
        Question(question="What was not tried?", answer=_untried(audit)),
        Question(question="What remains?", answer=_remains(audit)),
        Question(question="Who may read this?", answer=_readers(audit)),
    )


def _attacked(audit: Audit) -> tuple[str, ...]:
    inside = int(np.count_nonzero(audit.truth))
    return (
        f"The model: {one_line(audit.description)}.",
        f"It was asked about {count(inside)} rows that it was trained with and"
        f" {count(len(audit) - inside)} that it was not; the harm looked for is that somebody"
        " learns that a person's row was in the training.",
    )


def _knowledge(audit: Audit) -> tuple[str, ...]:
    said = ["The row in question with its label, and what the model answers to it."]
    if audit.models:
        said.append(
            f"How models of this kind are trained, and rows like these to train"
            f" {count(audit.models)} of them on."
        )
    inside = [one_line(name) for name in audit.figures if is_white_box(name)]
    if inside:
        said.append(f"For {_listed(inside)}, also what is inside of the model or its training.")
    return tuple(said)


def _result(audit: Audit) -> tuple[str, ...]:
    best = audit.figures[audit.best]
    said = [
        f"{count(len(audit.figures))} attacks were made; the best, {one_line(audit.best)}, reached"
        f" an AUC of {interval(best.auc.value, best.auc.low, best.auc.high, 3)} and a"
        f" balanced accuracy of {percent(min(max(best.accuracy.value, 0.0), 1.0))}."
    ]
    apart = [table for table in audit.disparity if is_spread(one.auc for one in table)]
    if apart:
        columns = _listed([one_line(one.column) for one in apart])
        said.append(
            f"It does not hit all alike: by {columns}, some groups are told apart better than"
            " others beyond their intervals."
        )
    elif audit.disparity:
        said.append("No class or group was told apart better than another beyond the intervals.")
    return tuple(said)


def is_spread(areas: Iterable[Interval | None]) -> bool:
    """Whether some group is told apart better than another beyond both of their intervals."""
    known = [one for one in areas if one is not None]
    return bool(known) and max(one.low for one in known) > min(one.high for one in known)


def _untried(audit: Audit) -> tuple[str, ...]:
    said = []
    if audit.skipped:
        each = "; ".join(
            f"{one_line(name)} ({one_line(why)})" for name, why in audit.skipped.items()
        )
        said.append(f"Attacks that could not be made: {each}.")
    if not any(is_white_box(name) for name in audit.figures):
        said.append("Nothing that looks inside of the model or takes part in its training.")
    said.append(
        "Guessing unknown values of a row, rebuilding rows, poisoning the training, and putting"
        " this model together with other releases about the same people."
    )
    return tuple(said)


def _remains(audit: Audit) -> tuple[str, ...]:
    said = [
        f"Figures are of this one model and these rows, each within its interval at"
        f" {share_text(audit.confidence)}; another training would give others.",
        "A better attack, or an attacker who knows more, may find what these missed.",
    ]
    if audit.guarantee is None:
        said.append("No promise bounds what such an attacker finds.")
    else:
        bound = audit.advantage_bound
        assert bound is not None
        said.append(
            f"If the promise, {symbols(one_line(audit.guarantee.describe()))}, is kept, no"
            f" attacker's advantage passes {number_up(bound)} on average over models."
            if not audit.promise_refuted
            else "The promise does not bound it: it is refuted."
        )
    return tuple(said)


def _readers(audit: Audit) -> tuple[str, ...]:
    return (
        f"This page, its table of rows and its pictures: {audit.audience.value}. They name single"
        " rows, and whoever reads them learns who was in the training.",
        "The figures without rows, which figures.json holds: review. An assessment may quote them"
        " once somebody has looked whether a group in them is small.",
    )


def _listed(names: list[str]) -> str:
    shown = names[:_NAMED]
    more = [] if len(names) <= _NAMED else [f"{len(names) - _NAMED} more"]
    *first, last = [*shown, *more]
    return f"{', '.join(first)} and {last}" if first else last
