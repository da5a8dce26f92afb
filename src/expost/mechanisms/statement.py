"""A guarantee in sentences: (ε, δ), the neighbouring relation that it covers, and δ at other ε.

Formal guarantees
-----------------
replacement  A mechanism that is (ε, δ) for a row that is removed or added is (2ε, (1 + e^ε)δ) for a
             row that is replaced. With D′ the data without the row and D″ with the other one,
             P(S) ≤ e^ε P′(S) + δ ≤ e^ε(e^ε P″(S) + δ) + δ.
curve        δ(ε′) is nonincreasing in ε′. :meth:`Mechanism.delta_at` bounds it for the same noise.

Every figure is rounded up.
"""

import math
from decimal import MAX_EMAX, Context, Decimal
from typing import TYPE_CHECKING

from expost.mechanisms.base import noise_title
from expost.numbers import at_most, decimal, for_persons, relation_words, upper_text
from expost.types import Neighbouring

if TYPE_CHECKING:
    from expost.mechanisms.base import Mechanism

__all__ = ["description_at", "for_replacement", "relation_text", "statements"]

# The multiples of ε at which δ is reported.
_MULTIPLES = (0.5, 1, 2)
# e^ε of a large ε is past the usual range of decimals; what is past this one is infinite.
_UP = Context(prec=30, Emax=MAX_EMAX, traps=[])


def description_at(mechanism: "Mechanism", epsilon: float, delta: float | None) -> str:
    """Return one line about a release, with the (ε, δ) that is stated of it.

    Parameters
    ----------
    mechanism : Mechanism
        The mechanism.
    epsilon, delta : float, float | None
        The guarantee: the mechanism's own, or that of everything that was released.

    Returns
    -------
    str
        Mechanism, noise, guarantee and relation.
    """
    at = "" if delta is None else f", delta = {upper_text(delta)}"
    unit = for_persons(mechanism.rows_per_person)
    return (
        f"{mechanism.title}, {noise_title(mechanism.noise)},"
        f" epsilon = {upper_text(epsilon)}{at}{unit} {relation_text(mechanism)}"
    )


def relation_text(mechanism: "Mechanism") -> str:
    """Return the neighbouring relation: 'if a row is removed or added'."""
    return relation_words(mechanism.covers(Neighbouring.REPLACE), mechanism.rows_per_person)


def for_replacement(epsilon: float, delta: float) -> tuple[Decimal, Decimal]:
    """Return (2ε, (1 + e^ε)δ), exactly and rounded up."""
    factor = _UP.add(1, decimal(epsilon).exp(_UP)).next_plus(_UP)
    slip = _UP.multiply(factor, decimal(delta)).next_plus(_UP) if delta else Decimal(0)
    return 2 * decimal(epsilon), slip


def statements(mechanism: "Mechanism") -> tuple[str, ...]:
    """Return the guarantee of the mechanism in sentences; none where there is no guarantee."""
    if not mechanism.is_private or not mechanism.worst_case < math.inf:
        return ()
    epsilon, delta = mechanism.epsilon, mechanism.delta or 0.0
    persons = for_persons(mechanism.rows_per_person)
    lines = [
        f"(ε, δ) = ({upper_text(epsilon)}, {upper_text(delta)}){persons},"
        f" {relation_text(mechanism)}."
    ]
    if not mechanism.covers(Neighbouring.REPLACE):
        twice, slip = for_replacement(epsilon, delta)
        lines[0] += " A removed row counts as a null row: the number of rows is public."
        follows = "no guarantee, as the second is above 1"
        if slip < 1:
            follows = f"({upper_text(float(twice))}, {at_most(slip)})"
        lines.append(
            f"If {'a row is' if not persons else 'rows are'} replaced: (2ε, (1 + e^ε)δ) ="
            f" {follows}."
        )
    curve = [
        f"{at_most(mechanism.delta_at(times * epsilon))} at ε = {upper_text(times * epsilon)}"
        for times in _MULTIPLES
    ]
    lines.append(f"The same noise has δ(ε) of at most {', '.join(curve)}.")
    return tuple(lines)
