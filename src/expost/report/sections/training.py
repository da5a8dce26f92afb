"""The document of a run of DP-SGD: its guarantee, and how exposures grew over its epochs.

Nothing here imports torch: a run is, or holds, a :class:`~expost.mechanisms.dpsgd.Transcript`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from expost import _checks
from expost.errors import InvalidInput
from expost.groups.columns import printable
from expost.mechanisms.dpsgd import Adversary, SGDMechanism, Transcript
from expost.mechanisms.row_count import Scaling
from expost.numbers import certainty, count, number
from expost.profiles.attackers import Attackers, attackers_of
from expost.profiles.transcript import LAST_MODEL, NO_GUARANTEE, individual_epsilon
from expost.report.document import (
    Alert,
    Block,
    Document,
    Facts,
    Section,
    Table,
    Tile,
    Verdict,
    one_line,
    table,
)
from expost.report.figure import Axis, Figure, Line, Panel, Role
from expost.report.sections.attackers import (
    RowFigures,
    above,
    attackers_section,
    guarantee_tile,
    rows_tile,
)
from expost.report.sections.bounds import cell_up, up
from expost.report.sections.ranks import certainties
from expost.risk import Guarantee
from expost.risk.dpsgd import DPSGD
from expost.types import Audience, FloatArray, Neighbouring

__all__ = ["epochs_figure", "training_document"]

# Epochs and numbers of steps that the figures show. With sampling each ε takes a second.
_EPOCHS, _CLOSED_FORM, _SAMPLED = 60, 33, 6
# Lines of the table of epochs.
_LINES = 8
_DELTA = 1e-5
_SIMULATION = "Seeded noise: a simulation."
_QUANTILES = (("median", 0.5), ("99th percentile", 0.99), ("largest", 1.0))


def training_document(run: Any, *, delta: float = _DELTA) -> Document:
    """Return the document of a training, a tracker of one, or a transcript.

    Parameters
    ----------
    run : Training, Tracker or Transcript
        A run of DP-SGD.
    delta : float
        The δ at which ε is reported.
    """
    transcript = run if isinstance(run, Transcript) else getattr(run, "transcript", None)
    if not isinstance(transcript, Transcript):
        raise InvalidInput("run: must be a run of DP-SGD.")
    mechanism = transcript.mechanism
    details = Section(
        id="training-settings", title="Training", blocks=(Facts(pairs=tuple(_facts(run))),)
    )
    document = Document(
        kind="training",
        title=f"Training of {_steps(transcript.steps)} on {_units(run, mechanism.rows)}",
        subtitle=(one_line(getattr(run, "description", mechanism.describe())),),
        audience=Audience.CURATOR_ONLY,
        alerts=tuple(_alerts(run)),
        sections=(details,),
        facts={"rows": mechanism.rows, "steps": transcript.steps},
    )
    if not transcript.steps:
        return replace(document, verdict=Verdict(text="No step was made yet.", priority=35))
    delta = _checks.probability("delta", delta)
    budget, rows = _Budget.of(run, transcript, delta), _row_figures(run, transcript)
    return replace(
        document,
        verdict=_verdict(transcript, rows, budget),
        tiles=tuple(_tiles(rows, budget)),
        sections=(
            attackers_section(budget.attackers, rows),
            *_sections(transcript, budget),
            details,
        ),
        facts={**document.facts, "epsilon": budget.epsilon, "delta": delta},
    )


@dataclass(frozen=True, kw_only=True)
class _Budget:
    """What a run guarantees at δ.

    Parameters
    ----------
    attackers : Attackers
        The guarantees against each attacker.
    individual : FloatArray | None
        The rows' own ε (n,), where the lengths of all gradients are known.
    """

    attackers: Attackers
    individual: FloatArray | None
    is_filtered: bool

    @classmethod
    def of(cls, run: Any, transcript: Transcript, delta: float) -> "_Budget":
        mechanism = transcript.mechanism
        has_guarantee = not getattr(run, "is_local", False)
        own = None
        full_batch = mechanism.sampling_rate == 1 and mechanism.relation is Neighbouring.REMOVE
        if has_guarantee and full_batch:
            own = individual_epsilon(transcript, delta).epsilon
        describe = getattr(run, "attackers", None)
        if callable(describe):
            attackers = describe(delta=delta)
        else:
            hidden = _hidden(run, transcript) if has_guarantee else None
            attackers = attackers_of(
                transcript, delta=delta, hidden=hidden, guaranteed=has_guarantee
            )
        return cls(
            attackers=attackers, individual=own, is_filtered=mechanism.norm_budget is not None
        )

    @property
    def delta(self) -> float:
        """The δ of every figure."""
        return self.attackers.delta

    @property
    def epsilon(self) -> float | None:
        """The ε against an attacker who does not know the batches."""
        return self.attackers.first.epsilon

    @property
    def known_epsilon(self) -> float | None:
        """The ε against an attacker who knows the batches, where it is another one."""
        second = self.attackers.second
        return None if second is None else second.epsilon


def _hidden(run: Any, transcript: Transcript) -> Guarantee | None:
    """Return the guarantee against an attacker who does not know the batches, where it is known."""
    hides = transcript.adversary is Adversary.HIDDEN_BATCHES
    if transcript.mechanism.sampling_rate == 1 or hides:
        return transcript.guarantee()
    # A transcript alone does not know whether its noise was the same at every step.
    guarantee = None if isinstance(run, Transcript) else getattr(run, "guarantee", None)
    guarantee = guarantee() if callable(guarantee) else guarantee
    return guarantee if isinstance(guarantee, Guarantee) else None


# -- overview --------------------------------------------------------------------------------------


def _units(run: Any, entries: int) -> str:
    persons = getattr(run, "persons", None)
    if persons is None:
        return f"{count(entries)} rows"
    return f"{count(entries)} persons with {count(len(persons.owner))} rows"


def _steps(total: int) -> str:
    return f"{count(total)} step{'' if total == 1 else 's'}"


def _verdict(transcript: Transcript, rows: RowFigures, budget: _Budget) -> Verdict:
    attackers = budget.attackers
    why = above(attackers.first, rows)
    if attackers.rows_differ:
        why = ": another attacker than that of ε"
    reach = f" ({rows.reach})" if rows.reach else ""
    exposed = (
        f"An {attackers.noun} is {certainty(rows.largest)} certain{reach} about the most exposed"
        f" {rows.unit}{why}."
    )
    if budget.epsilon is None and budget.known_epsilon is None:
        return Verdict(
            text="This training has no privacy guarantee.", more=exposed, tone="bad", priority=35
        )
    return Verdict(text=_guaranteed(transcript, budget), more=exposed, priority=35)


def _guaranteed(transcript: Transcript, budget: _Budget) -> str:
    steps, slip = _steps(transcript.steps), f"(δ = {up(budget.delta)})"
    if budget.attackers.untracked:
        steps += f" that were tracked, without {count(budget.attackers.untracked)} others,"
    if budget.known_epsilon is None:
        assert budget.epsilon is not None
        return f"The training of {steps} guarantees ε = {up(budget.epsilon)} {slip}."
    known = f"ε = {up(budget.known_epsilon)}"
    if budget.epsilon is None:
        return (
            f"The training of {steps} guarantees {known} {slip} against an attacker who knows the"
            " batches."
        )
    return (
        f"The training of {steps} guarantees ε = {up(budget.epsilon)} {slip}, and {known} against"
        " an attacker who knows the batches."
    )


def _row_figures(run: Any, transcript: Transcript) -> RowFigures:
    exposure = np.abs(transcript.loss)
    row = int(np.argmax(exposure))
    persons = getattr(run, "persons", None)
    low, high = transcript.interval()
    return RowFigures(
        unit="row" if persons is None else "person",
        key=count(row) if persons is None else printable(persons.names[row]),
        largest=float(exposure[row]),
        half=float(np.quantile(exposure, 0.5, method="inverted_cdf")),
        outer=float(np.max(np.maximum(np.abs(low), np.abs(high)))),
    )


def _tiles(rows: RowFigures, budget: _Budget) -> Iterator[Tile]:
    yield guarantee_tile(budget.attackers, anyone=f"any {rows.unit}")
    yield rows_tile(budget.attackers, rows)


def _alerts(run: Any) -> Iterator[Alert]:
    if getattr(run, "is_local", False):
        yield Alert(severity="problem", title="No guarantee.", text=NO_GUARANTEE)
    if getattr(run, "is_simulation", False):
        text = "Anyone who knows the seed can remove the noise."
        yield Alert(severity="review", title=_SIMULATION, text=text)
    for notice in getattr(run, "notices", ()):
        yield Alert(severity="review", title=one_line(notice))
    yield Alert(severity="note", title=LAST_MODEL)


def _facts(run: Any) -> Iterator[tuple[str, str]]:
    transcript: Transcript = run if isinstance(run, Transcript) else run.transcript
    mechanism = transcript.mechanism
    yield "steps", count(transcript.steps)
    yield "noise multiplier (σ)", number(mechanism.noise_multiplier)
    yield "standard deviation of the noise", number(mechanism.noise_scale)
    yield "clipping norm (C)", number(mechanism.clip)
    yield "batches", _batches(mechanism, transcript.adversary)
    scaling = getattr(run, "scaling", None)
    if isinstance(scaling, Scaling):
        yield from scaling.facts()
    if mechanism.norm_budget is not None:
        limit = number(mechanism.norm_budget)
        yield "filter", f"a row is left out before its gradients reach a total of {limit}"
    if mechanism.relation is Neighbouring.REPLACE:
        yield "neighbouring data set", "one row replaced"
    unseen = int(np.count_nonzero(transcript.unseen))
    if unseen:
        yield "gradients not computed", f"of {count(unseen)} rows, at some of the steps"
    cost = getattr(run, "cost", None)
    if cost is not None:
        yield "cost of tracking", one_line(cost)


def _batches(mechanism: SGDMechanism, adversary: Adversary) -> str:
    if mechanism.sampling_rate == 1:
        return "every row is in every step"
    knows = adversary is Adversary.KNOWN_BATCHES
    known = "known to the attacker" if knows else "not known to the attacker"
    return f"each row is in a step with probability {number(mechanism.sampling_rate)}, {known}"


# -- sections --------------------------------------------------------------------------------------


def _sections(transcript: Transcript, budget: _Budget) -> Iterator[Section]:
    if len(transcript.epochs):
        epochs: list[Block] = [_epochs_table(transcript)]
        if len(transcript.epochs) > 1:
            epochs.insert(0, epochs_figure(transcript))
        yield Section(
            id="training-epochs",
            title="Exposure by epoch",
            nav="Exposure",
            blocks=tuple(epochs),
        )
    spent = tuple(_spent(transcript, budget))
    blocks: list[Block] = []
    if len(spent) > 1:
        blocks += [_budget_figure(spent, budget.delta), _budget_table(spent)]
    if budget.individual is not None:
        blocks.append(_individual_table(budget))
    if blocks:
        yield Section(
            id="training-budget", title="ε by step", nav="Guarantee", blocks=tuple(blocks)
        )


def _shown(last: int, most: int) -> list[int]:
    """Return at most ``most`` integers from 1 to ``last``, evenly spread, with both ends."""
    return [int(value) for value in np.unique(np.linspace(1, last, min(most, last)).round())]


def _epoch_exposures(transcript: Transcript, most: int) -> tuple[list[int], FloatArray]:
    """Return epochs, and (4, k): quantiles of the exposures, and that of the row most exposed."""
    losses = np.abs(transcript.epochs.astype(np.float64))
    epochs = _shown(len(losses), most)
    own = int(np.argmax(np.abs(transcript.loss)))
    chosen = losses[[epoch - 1 for epoch in epochs]]
    levels = [level for _, level in _QUANTILES]
    quantiles = np.quantile(chosen, levels, axis=1, method="inverted_cdf")
    return epochs, np.vstack([quantiles, chosen[:, own]])


def epochs_figure(transcript: Transcript) -> Figure:
    """Return the attacker's certainty after each epoch: quantiles over the rows."""
    epochs, exposures = _epoch_exposures(transcript, _EPOCHS)
    curves = [certainties(values) for values in exposures]
    names = (*(name for name, _ in _QUANTILES), "row that is most exposed in the end")
    roles: tuple[Role, ...] = ("main", "second", "third", "fourth")
    lines = tuple(
        Line(name=name, x=tuple(map(float, epochs)), y=tuple(curve.tolist()), role=role)
        for name, role, curve in zip(names, roles, curves, strict=True)
    )
    highest = max(float(np.max(curve)) for curve in curves)
    return Figure(
        key="epochs",
        description=(
            "The attacker's certainty after each epoch: median, 99th percentile and maximum over"
            " the rows, and the row that is most exposed in the end."
        ),
        panels=(
            Panel(
                title=f"Attacker's certainty by epoch{_qualifier(transcript)}",
                x=Axis(label="epoch", low=float(epochs[0]), high=float(epochs[-1]), format="count"),
                y=Axis(
                    label="attacker's certainty",
                    low=0.5,
                    high=min(0.5 + 1.08 * max(highest - 0.5, 1e-4), 1.0),
                    format="percent",
                ),
                lines=lines,
            ),
        ),
    )


def _qualifier(transcript: Transcript) -> str:
    if transcript.mechanism.sampling_rate == 1:
        return ", every step seen"
    knows = transcript.adversary is Adversary.KNOWN_BATCHES
    return f", batches {'known' if knows else 'hidden'}"


def _epochs_table(transcript: Transcript) -> Table:
    epochs, exposures = _epoch_exposures(transcript, _LINES)
    lines = list(zip(epochs, *exposures.tolist(), strict=True))

    def column(name: str, index: int) -> Any:
        return name, lambda line: line[index], cell_up

    return table(
        lines,
        ("epoch", lambda line: line[0], count),
        *(column(name, index) for index, (name, _) in enumerate(_QUANTILES, 1)),
        column("row most exposed in the end", 4),
        caption=f"Exposure in nats{_qualifier(transcript)}",
    )


def _spent(transcript: Transcript, budget: _Budget) -> Iterator[tuple[int, float]]:
    """Yield ε after some of the steps, where all have the same noise and there is no filter."""
    mechanism, hidden = transcript.mechanism, budget.attackers.hidden
    if not isinstance(hidden, DPSGD) or mechanism.norm_budget is not None or transcript.steps < 2:
        return
    multiplier = mechanism.noise_scale / mechanism.clip
    constant = math.isclose(hidden.noise_multiplier, multiplier, rel_tol=1e-6)
    if not constant or hidden.steps != transcript.steps:
        return
    points = _CLOSED_FORM if hidden.sampling_rate == 1 else _SAMPLED
    # ε grows about as the root of the steps: denser where it bends.
    roots = np.linspace(1, math.sqrt(transcript.steps), min(points, transcript.steps))
    for steps in np.unique((roots**2).round()).astype(int).tolist():
        yield steps, replace(hidden, steps=steps).epsilon(budget.delta)


def _budget_figure(spent: Sequence[tuple[int, float]], delta: float) -> Figure:
    steps = tuple(float(step) for step, _ in spent)
    epsilons = tuple(epsilon for _, epsilon in spent)
    return Figure(
        key="budget",
        description=f"ε from {up(epsilons[0])} after the first to {up(epsilons[-1])} at the end.",
        panels=(
            Panel(
                title=f"ε by step (δ = {up(delta)})",
                x=Axis(label="steps", low=steps[0], high=steps[-1], format="count"),
                y=Axis(label="ε", low=0.0, high=1.08 * max(epsilons) or 1.0, quantity="epsilon"),
                lines=(Line(name="", x=steps, y=epsilons),),
            ),
        ),
    )


def _budget_table(spent: Sequence[tuple[int, float]]) -> Table:
    chosen = [spent[index - 1] for index in _shown(len(spent), _LINES)]
    return table(
        chosen,
        ("steps", lambda point: point[0], count),
        ("ε", lambda point: point[1], cell_up),
    )


def _individual_table(budget: _Budget) -> Table:
    assert budget.individual is not None
    levels = [level for _, level in _QUANTILES]
    values = np.quantile(budget.individual, levels, method="higher").tolist()
    meaning = (
        "a filter guarantees that no row exceeds its limit"
        if budget.is_filtered
        else "computed after the fact, not a guarantee"
    )
    return table(
        list(zip((name for name, _ in _QUANTILES), values, strict=True)),
        ("rows", lambda line: line[0], str),
        ("ε", lambda line: line[1], cell_up),
        caption=f"ε of single rows by the lengths of their gradients ({meaning})",
    )
