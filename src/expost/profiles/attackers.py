"""The attackers of a DP-SGD training: what each of them sees, and what is guaranteed against them.

The ε of an accountant and the losses of a transcript are often about two attackers. Whatever shows
a figure of one next to a figure of the other takes its words from here.

hidden   sees every noisy gradient, and knows of the row's batches only how they are drawn: the
         attacker that the ε of an accountant is about.
known    sees every noisy gradient, and knows which rows were in which batch.
final    sees the final model only. Every guarantee for the transcript holds (post-processing); the
         loss of a row is not known (docs/dp-sgd.md, section 3).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from expost.mechanisms.dpsgd import Adversary, Transcript
from expost.numbers import count as steps_text
from expost.risk import Composition, Guarantee
from expost.risk.dpsgd import DPSGD
from expost.risk.last_model import LinearLastModel
from expost.types import Neighbouring

__all__ = ["Attacker", "Attackers", "Audited", "attackers_of"]

EVERY_STEP = "sees every step"
HIDDEN = "sees every step, not the {unit}'s batches"
KNOWN = "sees every step and all batches"
FINAL = "sees the final model only"
LINEAR = "sees the final model only; heuristic: as if losses were linear"
ACCOUNTED = "The ε of an accountant is about the first attacker."
ONE_ROW = "The ε of an accountant is about the first attacker, and for one row of a person."
ANOTHER = (
    "Certainties about single {unit}s are those of an attacker who knows the batches. They may"
    " exceed what ε allows for an attacker who does not."
)
AFTERWARDS = (
    "Every guarantee for all steps holds for the final model too. What it reveals about a single"
    " {unit} is not known."
)
UNTRACKED = (
    "The accountant has recorded {} more steps than were tracked: every figure here is of the"
    " tracked steps alone. The final model depends on all steps and has no such guarantee."
)
HEURISTIC = (
    "The heuristic is not a guarantee: it is exact for losses that are linear in the parameters,"
    " and may be too small for others."
)


@dataclass(frozen=True, kw_only=True)
class Attacker:
    """One kind of attacker, with what is allowed to them at δ.

    Parameters
    ----------
    name : str
        What the attacker sees.
    epsilon, loss : float, optional
        ε(δ), and the evidence that is passed with probability δ, in nats; None: nothing is
        guaranteed, or it is not known.
    knows_rows : bool, default=False
        Whether the losses of the rows are about this attacker.
    is_final : bool, default=False
        Whether only the final model is seen: the losses of rows are not known.
    """

    name: str
    epsilon: float | None
    loss: float | None
    knows_rows: bool = False
    is_final: bool = False


@dataclass(frozen=True, kw_only=True)
class Audited:
    """A lower bound on ε that an attack on the final model proves.

    Parameters
    ----------
    epsilon, delta : float
        ε is at least so large at δ.
    confidence : float
        The probability with which the bound holds.
    detail : str
        The counts that it is computed from.
    """

    epsilon: float
    delta: float
    confidence: float
    detail: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Attackers:
    """The attackers of one training.

    Parameters
    ----------
    delta : float
        δ of every figure.
    hidden, known : Guarantee, optional
        The guarantee against the two attackers who see every step; None where there is none or it
        is not known. Without sampling both are one, and ``known`` is None.
    rows_know : bool
        Whether the losses of the rows are those for an attacker who knows the batches.
    is_sampled : bool
        Whether batches are sampled.
    last_model : LinearLastModel, optional
        The heuristic for the final model, where it says more than the guarantee.
    reported : callable, optional
        A function from δ to the ε that the accountant of the training library reports, where it
        could be read.
    audited : Audited, optional
        What canaries prove, where some were planted.
    unit : str, default="row"
        "row", or "person" where all rows of a person leave at once.
    untracked : int, default=0
        The steps that the accountant recorded and that no figure here is of.
    one_row : Guarantee, optional
        The guarantee for one row against the first attacker, where figures are of persons.
    """

    delta: float
    hidden: Guarantee | None
    known: Guarantee | None
    rows_know: bool
    is_sampled: bool
    last_model: LinearLastModel | None = None
    reported: Callable[[float], float] | None = None
    audited: Audited | None = None
    unit: str = "row"
    untracked: int = 0
    one_row: Guarantee | None = None

    @property
    def is_contradicted(self) -> bool:
        """Whether canaries prove more than the guarantee allows, at their confidence."""
        epsilon = self.canary_epsilon
        return (
            self.audited is not None
            and epsilon is not None
            and self.audited.delta == self.delta
            and self.audited.epsilon > epsilon
        )

    @cached_property
    def canary_epsilon(self) -> float | None:
        """The ε that is guaranteed for one row, as a canary is, at δ."""
        if self.one_row is None or self.first.epsilon is None:
            return self.first.epsilon
        return min(self.first.epsilon, self.one_row.epsilon(self.delta))

    @property
    def noun(self) -> str:
        """The attacker that the losses of the rows are about."""
        if not self.is_sampled:
            return "attacker who sees every step"
        return "attacker who knows the batches" if self.rows_know else self.accounted

    @property
    def qualifier(self) -> str:
        """The same in a few words, for titles."""
        if not self.is_sampled:
            return ", every step seen"
        return f", batches {'known' if self.rows_know else 'hidden'}"

    @property
    def accounted(self) -> str:
        """The attacker that the ε of an accountant is about."""
        hides = f"does not know the {self.unit}'s batches"
        return f"attacker who {hides if self.is_sampled else 'sees every step'}"

    @property
    def rows_differ(self) -> bool:
        """Whether the losses of the rows and the ε of an accountant are about two attackers."""
        return self.is_sampled and self.rows_know

    @cached_property
    def accountant(self) -> float | None:
        """The ε that the accountant of the training library reports at δ."""
        return None if self.reported is None else self.reported(self.delta)

    @cached_property
    def first(self) -> Attacker:
        """The attacker that the ε of an accountant is about."""
        return self._attacker(
            HIDDEN.format(unit=self.unit) if self.is_sampled else EVERY_STEP,
            self.hidden,
            knows_rows=not self.rows_differ,
        )

    @cached_property
    def second(self) -> Attacker | None:
        """The attacker who knows the batches, where that is another one."""
        if not self.is_sampled:
            return None
        return self._attacker(KNOWN, self.known, knows_rows=self.rows_differ)

    @cached_property
    def lines(self) -> tuple[Attacker, ...]:
        """All of them, that of the accountant first."""
        return tuple(self._lines())

    def _lines(self) -> Iterator[Attacker]:
        yield self.first
        if self.second is not None:
            yield self.second
        if self.untracked:
            yield Attacker(name=FINAL, epsilon=None, loss=None, is_final=True)
            return
        yield Attacker(name=FINAL, epsilon=self.first.epsilon, loss=self.first.loss, is_final=True)
        if self.last_model is not None:
            yield Attacker(
                name=LINEAR,
                epsilon=self.last_model.epsilon(self.delta),
                loss=self.last_model.loss(self.delta),
                is_final=True,
            )

    def _attacker(self, name: str, guarantee: Guarantee | None, *, knows_rows: bool) -> Attacker:
        return Attacker(
            name=name,
            epsilon=None if guarantee is None else guarantee.epsilon(self.delta),
            loss=None if guarantee is None else guarantee.loss(self.delta),
            knows_rows=knows_rows,
        )

    def sentences(self) -> Iterator[str]:
        """Yield what a reader of the figures must know.

        Yields
        ------
        str
            A sentence or two.
        """
        if self.is_sampled:
            yield ACCOUNTED if self.unit == "row" else ONE_ROW
        if self.rows_differ:
            yield ANOTHER.format(unit=self.unit)
        if self.untracked:
            yield UNTRACKED.format(steps_text(self.untracked))
            return
        yield AFTERWARDS.format(unit=self.unit)
        if self.last_model is not None:
            yield HEURISTIC

    def fields(self) -> dict[str, Any]:
        """Return the figures as values of JSON.

        Returns
        -------
        dict[str, Any]
            δ, the accountant's ε, and the attackers in their order.
        """
        return {
            "delta": self.delta,
            "accountant": self.accountant,
            "untracked_steps": self.untracked,
            "audited": None if self.audited is None else vars(self.audited),
            "attackers": [vars(attacker) for attacker in self.lines],
        }


def attackers_of(
    transcript: Transcript,
    *,
    delta: float,
    hidden: Guarantee | None,
    guaranteed: bool = True,
    count: Guarantee | None = None,
    reported: Callable[[float], float] | None = None,
    of_persons: bool = False,
    untracked: int = 0,
    audited: Audited | None = None,
    one_row: Guarantee | None = None,
) -> Attackers:
    """Return the attackers of a run.

    Parameters
    ----------
    transcript : Transcript
        The run.
    delta : float
        δ of every figure.
    hidden : Guarantee | None
        The guarantee of the steps if the batches are hidden; a transcript alone does not know
        whether its noise was the same at every step.
    guaranteed : bool, default=True
        False where the noise was read from the data.
    count : Guarantee, optional
        The guarantee of a noisy number of rows that was released before the steps.
    reported : callable, optional
        A function from δ to the ε that an accountant reports.
    of_persons : bool, default=False
        Whether the entries of the transcript are persons: guarantees are for all rows of a person,
        the accountant's ε is for a row.
    untracked : int, default=0
        The steps that the accountant recorded and the transcript does not have.
    audited : Audited, optional
        What canaries prove.
    one_row : Guarantee, optional
        The guarantee for one row, with that of the noisy number of rows, where the entries of the
        transcript are persons.

    Returns
    -------
    Attackers
        Their guarantees are computed when they are shown.
    """
    mechanism = transcript.mechanism
    sampled, knows = mechanism.sampling_rate < 1, transcript.adversary is Adversary.KNOWN_BATCHES
    has_steps = transcript.steps > 0
    known = transcript.guarantee() if sampled and knows and guaranteed and has_steps else None
    heuristic = None
    removed = mechanism.relation is Neighbouring.REMOVE and not of_persons
    if guaranteed and sampled and removed and isinstance(hidden, DPSGD) and hidden.steps > 1:
        heuristic = LinearLastModel(
            noise_multiplier=hidden.noise_multiplier,
            sampling_rate=hidden.sampling_rate,
            steps=hidden.steps,
        )
    return Attackers(
        delta=delta,
        hidden=_together(hidden if guaranteed else None, count),
        known=_together(known, count),
        rows_know=knows,
        is_sampled=sampled,
        last_model=heuristic,
        reported=reported,
        audited=audited,
        unit="person" if of_persons else "row",
        untracked=untracked,
        one_row=one_row,
    )


def _together(guarantee: Guarantee | None, count: Guarantee | None) -> Guarantee | None:
    if guarantee is None or count is None:
        return guarantee
    return Composition((guarantee, count))
