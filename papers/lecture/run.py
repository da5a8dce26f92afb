"""``python -m papers lecture``: defences compared, and observers of trainings.

The lecture's tables are those of Nasr, Shokri and Houmansadr (2018, 2019). Their networks and data
are of another size: what is made again is the comparison, not its figures.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from expost.errors import require
from expost.types import Audience
from papers.common.claims import Check, Claim, quote
from papers.common.exhibits import Exhibit, Table
from papers.common.figures import BLUE, GREY, ORANGE, PURPLE, DotsDisplay, Guide, NamedSeries
from papers.common.reproduction import Paper, Reproduction, reproduce_into
from papers.lecture.displays import EpochsDisplay
from papers.lecture.table import MEASURES, DefenceRow, DefenceTable

if TYPE_CHECKING:
    from papers.lecture.experiments import Effort, Observers

__all__ = ["PHASES", "compute", "reproduce"]

# How often `reproduce` reports a phase.
PHASES = 7
_PAPER = Paper(
    name="The lecture's defences and observers (Nasr et al. 2018, 2019)",
    title="Defences against membership inference, and observers of federated learning",
    data="made-up classes and scikit-learn's digits",
    made_from="random rows and public digits",
)
# What the lecture's table loses of test accuracy to adversarial regularisation (Purchase100).
_COST = 0.036
# The rows are random or public: their figures may be shown.
_AUDIENCE = Audience.PUBLIC
_COLOURS = (BLUE, ORANGE, PURPLE, GREY)
_MARKERS = ("o", "^", "s", "D")


def reproduce(
    out: Path,
    *,
    seed: int = 0,
    effort: "Effort | None" = None,
    phase: Callable[[str], None] = lambda name: None,
    force: bool = False,
) -> Reproduction:
    """Write the tables and figures of the lecture, and a page of its claims, into ``out``.

    ``seed``    of all that is drawn; 0 gives the numbers of the page.
    ``effort``  how much is trained; None: as much as the page.
    ``phase``   receives the name of each phase, ``PHASES`` times.
    ``force``   write into a folder that is not empty, over an earlier run.
    """

    def from_trainings(seed: int) -> Reproduction:
        require("torch", caller="papers lecture", extra="torch")
        return compute(seed=seed, effort=effort, phase=phase)

    return reproduce_into(out, from_trainings, seed=seed, phase=phase, force=force)


def compute(*, seed: int, effort: "Effort | None", phase: Callable[[str], None]) -> Reproduction:
    """Return all claims and exhibits, nothing written."""
    from papers.lecture import experiments

    effort = experiments.Effort() if effort is None else effort
    phase("comparing defences")
    tables = experiments.measure_defences(effort, seed)
    observers = experiments.measure_observers(effort, seed, phase=phase)
    weak, strong = tables[0], tables[effort.references]
    return Reproduction(
        paper=_PAPER,
        claims=(
            adversarial_claim(weak),
            penalty_claim(weak, strong),
            limits_claim([weak, strong]),
            epochs_claim(observers),
            active_claim(observers),
        ),
        exhibits=(
            _defences("defences-loss", "the loss threshold alone", weak),
            _defences("defences", f"{effort.references} reference models", strong),
            _observers(observers),
            _epochs(observers),
        ),
        source="none; scikit-learn's digits for the observers",
        seed=seed,
        made=(
            f"Defences: five classes of 50 features, {weak.members} members and {weak.others}"
            f" others, {effort.repetitions} partings. Attack and threshold are chosen on other rows"
            " than they are judged on. Observers: three participants of forty digits each, a"
            f" perceptron of 64 units, {observers.trainings} trainings of each kind."
        ),
    )


def adversarial_claim(weak: DefenceTable) -> Claim:
    """Nasr et al. 2018: the attack falls, and the model hardly does."""
    from papers.lecture import experiments

    free = next(row for row in weak.rows if row.name.startswith("no defence"))
    held = next(row for row in weak.rows if row.name.startswith(experiments.DEFENDED))
    gain, cost = free.attack.value - held.attack.value, free.test.value - held.test.value
    return Claim(
        key="a",
        says="Adversarial regularisation takes accuracy from the attack for little of the model's.",
        where="Nasr et al. 2018; the lecture's table",
        outcome=f"The attack by loss falls by {quote(gain)}, the test accuracy by {quote(cost)}.",
        checks=(
            Check(what="what the attack loses", value=gain, relation=">=", bound=0.01),
            Check(what="what the model loses", value=cost, relation="<=", bound=_COST),
        ),
        figures=("defences-loss",),
    )


def penalty_claim(weak: DefenceTable, strong: DefenceTable) -> Claim:
    """Check that a smaller generalisation gap is a smaller leak: to a weak attack."""

    def fall(table: DefenceTable) -> float:
        return table.rows[0].attack.value - table.rows[2].attack.value

    falls = fall(weak), fall(strong)
    return Claim(
        key="b",
        says="A stronger penalty, which closes the gap between training and testing, protects.",
        where="the lecture's table",
        outcome=(
            f"From Λ = 1e-6 to 0.1 the attack by loss falls by {quote(falls[0])}, the one with"
            f" reference models by {quote(falls[1])}: an exact minimiser moves with each row."
        ),
        checks=(
            Check(what="fall of the attack by loss", value=falls[0], relation=">=", bound=0.05),
            Check(what="fall with references", value=falls[1], relation=">=", bound=0.05),
        ),
        figures=("defences-loss", "defences"),
    )


def limits_claim(tables: list[DefenceTable]) -> Claim:
    """Check that the proved limits hold against every attack here."""
    rows = [row for table in tables for row in table.rows if row.limit is not None]
    past = sum(_passes(row) for row in rows)
    return Claim(
        key="c",
        says="No attack passes what a private defence guarantees.",
        where="Section 'The proved column' of the page",
        outcome=f"{past} of {len(rows)} private defences were passed beyond their interval.",
        checks=(Check(what="defences passed", value=past, relation="==", bound=0),),
        figures=("defences",),
    )


def _passes(row: DefenceRow) -> bool:
    return row.limit is not None and row.attack.over_rows.low > row.limit


def epochs_claim(observers: "Observers") -> Claim:
    """Nasr et al. 2019, the table by observed epochs."""
    early, late = (list(observers.accuracy.values())[index]["ratio"][1] for index in (0, -1))
    return Claim(
        key="d",
        says="The later and the farther apart the observed epochs, the more an observer learns.",
        where="Nasr et al. 2019; the lecture's table",
        outcome=f"The accuracy rises from {quote(early)} in the first rounds to {quote(late)}.",
        checks=(Check(what="rise of the accuracy", value=late - early, relation=">=", bound=0.05),),
        figures=("epochs",),
    )


def active_claim(observers: "Observers") -> Claim:
    """Nasr et al. 2019: gradient ascent on the rows in question."""
    server, participant = (
        observers.gains[name]["merged models"] for name in ("active server", "active participant")
    )
    return Claim(
        key="e",
        says="An attacker who changes the model learns more than one who only observes.",
        where="Nasr et al. 2019",
        outcome=(
            f"Over the best passive score ({observers.best}) the server gains {quote(server[1])} of"
            f" AUC, a participant {quote(participant[1])}."
        ),
        checks=(
            Check(what="lower end of the server's gain", value=server[0], relation=">=", bound=0),
            Check(what="of the participant's", value=participant[0], relation=">=", bound=0),
        ),
        figures=("observers",),
    )


def _defences(name: str, attack: str, table: DefenceTable) -> Exhibit:
    columns: dict[str, Any] = {"defence": [row.name for row in table.rows]}
    for measure in MEASURES:
        cells = [getattr(row, measure) for row in table.rows]
        columns[measure] = [cell.value for cell in cells]
        columns[f"{measure}-low"] = [cell.over_rows.low for cell in cells]
        columns[f"{measure}-high"] = [cell.over_rows.high for cell in cells]
    columns["at-most"] = [np.nan if row.limit is None else row.limit for row in table.rows]
    return Exhibit(
        name=name,
        title=f"Defences: {attack}",
        caption=(
            "Accuracies on members, on others and of the strongest attack, with intervals over"
            " rows; and what no attack passes in expectation, where anything is guaranteed."
        ),
        draw=lambda: table.display().of(_AUDIENCE).plot().figure_,
        tables={name: Table(columns=columns)},
    )


def _observers(observers: "Observers") -> Exhibit:
    names = [name for name in observers.auc if name in ("passive", *observers.gains)]
    scores = list(observers.auc["passive"])
    each = [[observers.auc[name][score] for score in scores] for name in names]
    display = DotsDisplay(
        names=tuple(scores),
        series=tuple(
            _series(name, values, colour, marker)
            for name, values, colour, marker in zip(names, each, _COLOURS, _MARKERS, strict=False)
        ),
        guides=(Guide(at=0.5, style=":", colour=GREY, label="random guessing"),),
        xlabel="AUC, 95 % intervals over trainings",
    )
    lines = [
        (name, score, *values) for name, by in observers.auc.items() for score, values in by.items()
    ]
    heads = ("observer", "score", "low", "auc", "high")
    return Exhibit(
        name="observers",
        title="Observers of federated rounds",
        caption="What a passive observer learns, and an active one (gradient ascent from round 4).",
        draw=lambda: display.of(_AUDIENCE).plot().figure_,
        tables={
            "observers": Table(columns=dict(zip(heads, zip(*lines, strict=True), strict=True)))
        },
    )


def _series(name: str, values: Any, colour: str, marker: str) -> NamedSeries:
    low, mean, high = np.array(values).T
    return NamedSeries(values=mean, low=low, high=high, label=name, colour=colour, marker=marker)


def _epochs(observers: "Observers") -> Exhibit:
    observed, by = tuple(observers.accuracy), observers.accuracy
    words: Mapping[str, str] = {"ratio": "with references", "mean": "without references"}
    accuracy = {
        label: np.array([[by[key][score][index] for index in (1, 0, 2)] for key in observed])
        for score, label in words.items()
    }
    display = EpochsDisplay(observed=observed, accuracy=accuracy)
    columns: dict[str, Any] = {"observed": observed}
    for score in words:
        for index, end in enumerate(("low", "accuracy", "high")):
            columns[f"{score}-{end}"] = [by[key][score][index] for key in observed]
    return Exhibit(
        name="epochs",
        title="Accuracy by observed rounds",
        caption="Balanced accuracy of the attack by the rounds that were observed.",
        draw=lambda: display.of(_AUDIENCE).plot().figure_,
        tables={"epochs": Table(columns=columns)},
    )
