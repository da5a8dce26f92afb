"""What each attacker of a training can learn, side by side: for pages of trainings and profiles."""

import math
from dataclasses import dataclass

from expost.numbers import certainty, count, number, share
from expost.profiles.attackers import Attacker, Attackers
from expost.report.document import Section, Text, Tile, Tone, table
from expost.report.sections.bounds import at_most, cell_up, up

__all__ = ["RowFigures", "above", "attackers_section", "guarantee_tile", "rows_tile"]


@dataclass(frozen=True, kw_only=True)
class RowFigures:
    """The figures of rows, or persons, that stand next to guarantees.

    Parameters
    ----------
    unit : str
        "row" or "person".
    key : str
        The key of the most exposed one.
    largest, half : float
        Its exposure in nats, and the exposure that half of them do not exceed.
    outer : float
        The largest upper end of an exposure's interval; infinite where there is none.
    """

    unit: str
    key: str
    largest: float
    half: float
    outer: float

    @property
    def reach(self) -> str:
        """What the certainty about the most exposed one may be, where that reads otherwise."""
        if math.isinf(self.outer) and self.largest < self.outer:
            return "an estimate without a certified interval"
        most = certainty(self.outer)
        return "" if most == certainty(self.largest) else at_most(most)


def attackers_section(attackers: Attackers, rows: RowFigures) -> Section:
    """Return the table of attackers: that of the accountant's ε first."""
    unit = rows.unit

    def most(attacker: Attacker) -> str:
        if not attacker.knows_rows:
            return "not known" if attacker.is_final else "not computed"
        details = [f"{unit} {rows.key}", rows.reach]
        about = ", ".join(part for part in details if part) + above(attacker, rows)
        return f"{certainty(rows.largest)} ({about})"

    def half(attacker: Attacker) -> float | None:
        return rows.half if attacker.knows_rows else None

    texts = list(attackers.sentences())
    texts += [*_accounted(attackers), *_proved(attackers)]
    return Section(
        id="attackers",
        title="What each attacker can learn",
        blocks=(
            table(
                attackers.lines,
                ("attacker", lambda each: each.name, str),
                (f"ε (δ = {up(attackers.delta)})", lambda each: each.epsilon, cell_up),
                (f"certainty about any {unit}, at most", lambda each: each.loss, certainty),
                (f"certainty about the most exposed {unit}", most, str),
                (f"certainty about half of the {unit}s, at most", half, certainty),
            ),
            *(Text(text=text) for text in texts),
        ),
        nav="Overview",
        brief=True,
    )


def _accounted(attackers: Attackers) -> list[str]:
    """Return what the accountant of the training library reports, and why it may be less."""
    reported, guaranteed = attackers.accountant, attackers.first.epsilon
    if reported is None:
        return []
    if attackers.unit != "row":
        return [f"The accountant of the run reports ε = {up(reported)} for one row."]
    text = f"The accountant of the run reports ε = {up(reported)}."
    # Beyond the numerical errors of accountants.
    if guaranteed is not None and guaranteed > 0 and reported < 0.99 * guaranteed:
        text += (
            " It is below the guarantee, which takes the least noise of any step, counts no"
            " sampling where batches are public, and adds the ε of a noisy number of rows if there"
            " is one."
        )
    return [text]


def _proved(attackers: Attackers) -> list[str]:
    """Return what canaries prove, next to the guarantee."""
    audited, guaranteed = attackers.audited, attackers.canary_epsilon
    if audited is None:
        return []
    of_row = "" if attackers.unit == "row" else " for one row"
    beside = "" if guaranteed is None else f" The guarantee{of_row} is ε = {up(guaranteed)}."
    proved = (
        f"Canaries prove ε ≥ {number(audited.epsilon, 'down')} (δ = {up(audited.delta)}) with"
        f" {share(audited.confidence)} confidence: {audited.detail}."
    )
    if audited.epsilon == 0:
        proved = f"Canaries prove no ε above 0: {audited.detail}. This is not a guarantee."
    if attackers.is_contradicted:
        beside += " The canaries contradict it: do not release the model before the cause is known."
    return [proved + beside]


def above(attacker: Attacker, rows: RowFigures) -> str:
    """Return why an exposure is above the guarantee of the same attacker, if it is."""
    if attacker.loss is None or not rows.outer > attacker.loss:
        return ""
    if rows.largest > attacker.loss:
        return ", above the guarantee, which allows that with a small probability"
    if math.isinf(rows.outer):
        return ""
    return "; only the upper end of its interval is above the guarantee"


def guarantee_tile(attackers: Attackers, *, anyone: str) -> Tile:
    """Return the guarantee against the attacker that the ε of an accountant is about."""
    shown, noun = attackers.first, attackers.accounted
    if shown.epsilon is None and attackers.second is not None:
        shown, noun = attackers.second, "attacker who knows the batches"
    if shown.epsilon is None or shown.loss is None:
        return Tile(label="Guarantee", value="none", lines=("no ε is guaranteed",), tone="bad")
    more = count(attackers.untracked)
    return Tile(
        label="Guarantee",
        value=f"ε = {up(shown.epsilon)}",
        lines=(
            f"δ = {up(attackers.delta)}",
            f"{noun}: {at_most(certainty(shown.loss))} certain about {anyone}",
            *([f"of the tracked steps, not of {more} others"] if attackers.untracked else []),
        ),
    )


def rows_tile(
    attackers: Attackers, rows: RowFigures, *, tone: Tone = "plain", people: int | None = None
) -> Tile:
    """Return the most exposed row, with the attacker that its figure is about."""
    unit = rows.unit
    about = f"certainty about {unit} {rows.key} of an {attackers.noun}"
    about += f", {rows.reach}" if rows.reach else ""
    if attackers.rows_differ:
        about += ": another attacker than that of ε"
    else:
        about += above(attackers.first, rows)
    return Tile(
        label=f"Most exposed {unit}",
        value=certainty(rows.largest),
        lines=(about, f"{up(rows.largest)} nats, every step seen"),
        tone=tone,
        people=people,
    )
