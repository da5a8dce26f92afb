"""Every result that no part of a report shows, as a card: which one says what.

Results of :mod:`expost.torch` are known by name, so that torch is not imported where there is none.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from expost.attacks.lower_bounds import LowerBound
from expost.attacks.roc import AttackFigures, Interval, Roc
from expost.attacks.snapshots import EpochTable, Snapshots
from expost.audits.disparity import Disparity
from expost.defences.table import MEASURES, WARNING, DefenceTable
from expost.epsilon.row_figures import EstimatedLosses
from expost.groups.exposure import Explanation, Grouping
from expost.ledger import Ledger
from expost.mechanisms import RowLosses
from expost.mechanisms.dpsgd import Transcript
from expost.neighbouring.neighbours import Neighbours
from expost.noise.coverage import Coverage
from expost.profiles.transcript import IndividualEpsilon
from expost.publishing.compare import Comparison
from expost.publishing.report import Answer
from expost.release import Release
from expost.report.card import Card, figures_of, from_lines, quantiles, text_of
from expost.report.wording import (
    count,
    figure,
    figure_up,
    number,
    number_up,
    percent,
    percent_down,
    percent_up,
    share,
)
from expost.risk.composition import CompositionComparison
from expost.risk.curves import RiskCurves
from expost.rounding import for_persons, nats
from expost.selection.private import SelectionCost
from expost.selection.tuning import SelectedRegularization

__all__ = ["CARDS", "TORCH_CARDS"]

_RATES = (0.001, 0.01, 0.1, 0.5)


def _answer(found: Answer) -> Card:
    return Card(
        title=f"What the report tells of a row with label {found.label}",
        headings=("", "exposure at most (nats)", "an attacker at most", "wrong with probability"),
        lines=(
            (
                "the model",
                figure_up(found.exposure),
                f"{percent_up(found.belief)} sure",
                number_up(found.fails_with),
            ),
            (
                "the model and its report",
                figure_up(found.everything),
                f"{percent_up(found.belief_in_everything)} sure",
                number_up(found.everything_fails_with),
            ),
        ),
        notices=found.notes,
    )


def _attack_figures(found: AttackFigures) -> Card:
    values = {name: getattr(found, name) for name in found.__dataclass_fields__}
    return Card(
        title=f"An attack on {count(found.members)} members and {count(found.others)} others",
        headings=("figure", f"value, {share(found.auc.confidence)} interval over the rows"),
        lines=tuple(
            (
                name.replace("_", " ").replace("01 percent", "0.1 %").replace("1 percent", "1 %"),
                figures_of(one.value, one.low, one.high),
            )
            for name, one in values.items()
            if isinstance(one, Interval)
        ),
    )


def _comparison(found: Comparison) -> Card:
    return from_lines(found.lines())


def _composition(found: CompositionComparison) -> Card:
    return Card(
        title=f"{found.description}, added up at δ = {number(found.delta)}",
        headings=("added up by", "ε", "times the least", "belief", "advantage"),
        lines=tuple(
            (
                row.name,
                figure_up(row.epsilon),
                figure(row.times),
                percent_up(row.belief),
                percent_up(row.advantage),
            )
            for row in found.rows
        ),
        sentences=tuple(f"{row.name}: {row.note}" for row in found.rows),
    )


def _coverage(found: Coverage) -> Card:
    return Card(
        title=f"Coverage within {number(found.radius)} of a model",
        sentences=(
            f"{count(found.inside)} of {count(found.samples)} draws lie within the radius:"
            f" {figures_of(found.probability, found.low, found.high)}, the interval at"
            f" {share(found.confidence)}.",
        ),
    )


def _defence_table(found: DefenceTable) -> Card:
    first, second, *_ = found.lines()
    return Card(
        title=first,
        sentences=(second,),
        headings=("accuracy, %", "training", "testing", "attack", "at most"),
        lines=tuple(
            (row.name, *(str(getattr(row, name)) for name in MEASURES), row.limit_in_words)
            for row in found.rows
        ),
        notices=(*found.notices, WARNING),
    )


def _disparity(found: Disparity) -> Card:
    return Card(
        title=f"{found.attack} by {found.column}",
        headings=(
            "group",
            "members",
            "others",
            "AUC",
            f"found at {share(found.false_positive_rate)} false positives",
        ),
        lines=tuple(
            (
                one.label,
                count(one.members),
                count(one.others),
                "–" if one.auc is None else str(one.auc),
                "–" if one.true_positive_rate is None else str(one.true_positive_rate),
            )
            for one in found.groups
        ),
        notices=found.notices,
    )


def _epoch_table(found: EpochTable) -> Card:
    return Card(
        title=f"Attack accuracy by observed epochs ({found.score})",
        headings=("observed epochs", "balanced accuracy", "AUC"),
        lines=tuple(
            (
                ", ".join(map(str, line.epochs)),
                str(line.figures.accuracy),
                str(line.figures.auc),
            )
            for line in found.lines
        ),
    )


def _estimated_losses(found: EstimatedLosses) -> Card:
    models, rows = found.loss.shape
    resolved = np.isfinite(found.noise) & np.isfinite(found.loss)
    size = np.where(resolved, np.abs(found.loss), 0.0).sum(axis=0)
    mean = size / np.maximum(resolved.sum(axis=0), 1)
    left = int(np.count_nonzero(~resolved))
    return Card(
        title=f"Estimated losses of {count(rows)} rows in {count(models)} models",
        **quantiles(mean, what="mean exposure (nats)"),
        notices=(f"{count(left)} losses are not resolved, and left out.",) if left else (),
    )


def _groups(found: Grouping | Explanation) -> Card:
    persons = ("persons",) if found.of_persons else ()
    return Card(
        title=found.title,
        headings=(
            "group",
            "rows",
            *persons,
            "of all",
            "of the top 1 %",
            "lift",
            "mean",
            "median",
            "largest",
        ),
        lines=tuple(
            (
                group.label,
                count(group.rows),
                *(() if group.persons is None else (count(group.persons),)),
                percent(min(group.share, 1.0)),
                percent(min(group.top_share, 1.0)),
                f"{group.lift:.2f}",
                figure(group.mean),
                figure(group.median),
                figure_up(group.largest),
            )
            for group in found.groups
        ),
        notices=found.notices,
    )


def _ledger(found: Ledger) -> Card:
    total, delta = found.epsilon_by_addition, found.delta_by_addition
    return Card(
        title=f"{count(len(found))} releases of a data set",
        sentences=(
            f"By addition they spend ε = {number_up(total)} and δ = {number_up(delta)} together;"
            " .composed(delta) counts them more closely.",
        )
        if found.entries
        else ("No release is listed yet.",),
        headings=("listed", "release", "file", "ε", "δ"),
        lines=tuple(
            (
                entry.made,
                entry.description,
                entry.name,
                figure_up(entry.epsilon) if entry.is_promised else "nothing is promised",
                number_up(entry.delta),
            )
            for entry in found.entries
        ),
    )


def _lower_bound(found: LowerBound) -> Card:
    return Card(title="What is proved about ε", sentences=(found.sentence,))


def _named_lines(found: IndividualEpsilon) -> Card:
    return from_lines(_without_mark(found.lines()))


def _neighbours(found: Neighbours) -> Card:
    return from_lines(str(found).splitlines()[:-1])


def _release(found: Release) -> Card:
    how = found.mechanism
    coefficients, intercepts = found.coefficients
    each = np.atleast_2d(coefficients)
    names = found.feature_names or tuple(f"x{place}" for place in range(each.shape[1]))
    if found.ball.fit_intercept:
        each = np.column_stack([each, np.atleast_1d(intercepts)])
        names = (*names, "(intercept)")
    labels = ["coefficient"]
    if len(each) > 1 and found.classes is not None:
        labels = [str(label) for label in found.classes]
    delta = "" if how.delta is None else f", δ = {number_up(how.delta)}"
    read = ", ".join(found.read_from_data)
    notices = []
    if found.seeded:
        notices.append("Its noise came from a seed: this is a rehearsal, and no private release.")
    if read:
        notices.append(f"Read from the data, and not private: {read}.")
    return Card(
        title=f"A released model: {how.title}",
        sentences=(
            f"{how.noise} noise, ε = {number_up(how.epsilon)}{delta}"
            f"{for_persons(how.rows_per_person)}, {count(how.rows)} rows,"
            f" regularization {number(how.regularization)}.",
        ),
        headings=("feature", *labels),
        lines=tuple(
            (name, *(figure(float(value)) for value in values))
            for name, values in zip(names, each.T, strict=True)
        ),
        notices=tuple(notices),
    )


def _risk_curves(found: RiskCurves) -> Card:
    places = np.linspace(0, len(found.epsilon) - 1, 7).round().astype(int)
    return Card(
        title="What (ε, δ) allows an attacker (D5.3 Fig. 4.2)",
        sentences=(f"She holds {share(found.prior)} beforehand; any mechanism, δ = 0.",),
        headings=("ε", "belief at most", "advantage at most"),
        lines=tuple(
            (
                number(float(found.epsilon[place])),
                percent_up(float(found.pure_belief[place])),
                percent_up(float(found.pure_advantage[place])),
            )
            for place in places
        ),
    )


def _roc(found: Roc) -> Card:
    return Card(
        title=f"A ROC curve with an area of {number(found.area)}",
        headings=("false positives", "members found"),
        lines=tuple(
            (share(rate), percent(float(np.max(found.tpr[found.fpr <= rate])))) for rate in _RATES
        ),
    )


def _row_losses(found: RowLosses) -> Card:
    if found.noiseless:
        table = quantiles(found.distance, what="distance")
        said = "Without noise every loss is infinite; rows differ by how far they move θ."
    else:
        table = quantiles(np.abs(found.loss), what="exposure (nats)")
        said = (
            f"Promised: at most {nats(number_up(found.worst_case))}."
            if np.isfinite(found.worst_case)
            else "Nothing is promised."
        )
    title = f"Losses of {count(len(found.loss))} rows ({found.relation.value})"
    return Card(title=title, sentences=(said,), **table)


def _selected_regularization(found: SelectedRegularization) -> Card:
    first, *rest = str(found).splitlines()[:-1]
    return Card(title=first, sentences=tuple(rest))


def _selection_cost(found: SelectionCost) -> Card:
    order = np.argsort(-found.probabilities, kind="stable")
    return Card(
        title=f"A private choice among {count(len(order))}",
        sentences=(
            f"The best is chosen with probability {percent(found.best_probability)};"
            f" {number(found.expected_shortfall)} of the score is lost on average, and at most"
            f" {number_up(found.shortfall_bound)} with probability"
            f" {percent_down(1 - found.failure)}.",
        ),
        headings=("candidate", "probability"),
        lines=tuple((str(place), percent(float(found.probabilities[place]))) for place in order),
    )


def _snapshots(found: Snapshots) -> Card:
    populations = found.population.shape[1]
    return Card(
        title=f"{count(found.rows)} rows at {len(found.epochs)} snapshots,"
        f" {count(found.models)} references",
        headings=("epoch", "median φ", *(("population",) if populations else ())),
        lines=tuple(
            (
                str(int(epoch)),
                figure(float(np.median(found.confidence[place]))),
                *((figure(float(np.median(found.population[place]))),) if populations else ()),
            )
            for place, epoch in enumerate(found.epochs)
        ),
    )


def _transcript(found: Transcript) -> Card:
    return Card(
        title=f"{found.steps} steps of {found.mechanism.describe()}",
        sentences=(f"{count(found.mechanism.rows)} rows, {found.adversary.value}.",),
        **quantiles(np.abs(found.loss), what="exposure (nats)"),
    )


# -- of expost.torch, by what they hold ------------------------------------------------------------


def _training(found: Any) -> Card:
    card = _transcript(found.transcript)
    notices = []
    if getattr(found, "is_local", False):
        notices.append("The noise was scaled to one row's gradient: nothing is promised.")
    if getattr(found, "is_simulation", False):
        notices.append("A simulation: whoever knows the seed can take the noise off again.")
    return Card(
        title=card.title,
        sentences=card.sentences,
        headings=card.headings,
        lines=card.lines,
        notices=tuple(notices),
    )


def _experiment(found: Any) -> Card:
    return from_lines(str(found).splitlines())


def _sensitivity(found: Any) -> Card:
    with_other = "" if found.candidate is None else f" and candidate {found.candidate}"
    return Card(
        title=f"{count(found.distances.size)} neighbours ({found.relation.value})",
        sentences=(f"The furthest differs in row {found.row}{with_other}: {number(found.value)}.",),
        **quantiles(np.ravel(found.distances), what="distance", of="neighbours"),
    )


def _adversarial_training(found: Any) -> Card:
    return Card(
        title=f"A training against an attacker, weight {found.weight:g}: nothing is promised",
        headings=("", "first epoch", f"epoch {len(found.losses)}"),
        lines=tuple(
            (name, text_of(values[0]), text_of(values[-1]))
            for name, values in (
                ("loss of the model", found.losses),
                ("gain of its attacker (−0.693: none, 0: all)", found.gains),
            )
        ),
    )


def _federated_run(found: Any) -> Card:
    how = "nobody meddles" if found.ascent is None else f"the {found.ascent.by} meddles"
    return Card(
        title=f"{len(found.uploads)} participants, {found.rounds} rounds; {how}",
        headings=("rows", "median φ before", f"after round {found.rounds}"),
        lines=tuple(
            (name, *(figure(float(np.median(values[place]))) for place in (0, -1)))
            for name, values in (("pool", found.merged), ("population", found.population))
            if values.shape[1]
        ),
    )


def _federated_game(found: Any) -> Card:
    target = found.target
    return Card(
        title=f"A federated game: {count(int(found.truth.sum()))} members of"
        f" {count(len(found.truth))} rows, {found.snapshots.models} references",
        headings=("rows", "median φ before", f"after round {target.rounds}"),
        lines=tuple(
            (name, *(figure(float(np.median(target.merged[place, rows]))) for place in (0, -1)))
            for name, rows in (("members", found.truth), ("others", ~found.truth))
        ),
    )


def _without_mark(lines: list[str]) -> list[str]:
    """A fragment has a mark of its own."""
    return [line for line in lines if not line.startswith("mark ")]


CARDS: Mapping[type, Callable[[Any], Card]] = {
    Answer: _answer,
    AttackFigures: _attack_figures,
    Comparison: _comparison,
    CompositionComparison: _composition,
    Coverage: _coverage,
    DefenceTable: _defence_table,
    Disparity: _disparity,
    EpochTable: _epoch_table,
    EstimatedLosses: _estimated_losses,
    Explanation: _groups,
    Grouping: _groups,
    IndividualEpsilon: _named_lines,
    Ledger: _ledger,
    LowerBound: _lower_bound,
    Neighbours: _neighbours,
    Release: _release,
    RiskCurves: _risk_curves,
    Roc: _roc,
    RowLosses: _row_losses,
    SelectedRegularization: _selected_regularization,
    SelectionCost: _selection_cost,
    Snapshots: _snapshots,
    Transcript: _transcript,
}

TORCH_CARDS: Mapping[str, Callable[[Any], Card]] = {
    "expost.torch._adversarial.AdversarialTraining": _adversarial_training,
    "expost.torch._experiment.Experiment": _experiment,
    "expost.torch._federated.FederatedGame": _federated_game,
    "expost.torch._federated.FederatedRun": _federated_run,
    "expost.torch._sensitivity.Sensitivity": _sensitivity,
    "expost.torch._track.Tracker": _training,
    "expost.torch._training.Training": _training,
}
