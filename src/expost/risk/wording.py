"""What a figure means, in a sentence for somebody who knows no ε.

Every number is rounded towards more exposed, so that a sentence is true of the figure behind it:
shares and chances upwards, '1 in k' and what is left of doubt downwards. What is short of certain
never reads as 100 %.
"""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from expost import _validate
from expost.errors import InvalidInput
from expost.risk.guarantee import belief_after

__all__ = [
    "advantage_sentence",
    "at_least",
    "at_most",
    "belief_sentence",
    "chance",
    "chosen_percent",
    "doubt_after",
    "one_in_sentence",
    "one_in_text",
    "percent",
    "true_positive_sentence",
]

# A doubt below this is told as a doubt: 99.99…9 % is no longer read.
_LEAST_DOUBT = 1e-6
# The suspects of the example where the attacker is undecided.
_SUSPECTS = 1000
# Past this loss the group of two that an undecided attacker starts from has shrunk to one.
_HIDDEN = 4.0
# Past this a count is written as a power of ten.
_LARGEST_COUNT = 10**9


def doubt_after(prior: float, loss: float) -> float:
    """1 − belief = (1 − prior)e^(−loss)/(prior + (1 − prior)e^(−loss)), without cancellation."""
    if not loss >= 0:
        raise InvalidInput(f"loss={loss!r}: must be a number of at least 0.")
    rest = (1 - prior) * math.exp(-loss)
    return rest / (prior + rest)


def at_most(value: float, digits: int = 3) -> str:
    """A number ≥ 0 with ``digits`` digits, rounded up: 0.0272, 1.1, 368, 1.2e-09."""
    return _rounded(value, digits, ROUND_CEILING)


def at_least(value: float, digits: int = 3) -> str:
    """A number ≥ 0 with ``digits`` digits, rounded down."""
    return _rounded(value, digits, ROUND_FLOOR)


def percent(probability: float, doubt: float | None = None) -> str:
    """A share rounded up: one decimal, more near 0 and near 1; '< 100 %' where none is enough.

    ``doubt`` is 1 − probability, where it is known better than by subtraction.
    """
    _check(probability)
    doubt = 1 - probability if doubt is None else doubt
    if doubt == 0:
        return "100 %"
    if doubt < _LEAST_DOUBT:
        return "< 100 %"
    hundredfold = 100 * _decimal(probability)
    if hundredfold < 1:
        return f"{_plain(_digits(hundredfold, 2, ROUND_CEILING))} %"
    for places in range(1, 12):
        shown = hundredfold.quantize(Decimal(1).scaleb(-places), ROUND_CEILING)
        if shown < 100:
            return f"{shown} %"
    return "< 100 %"


def chance(probability: float) -> str:
    """A chance rounded up: '1 in 10,000', or '95.2 in 100' where it is not small."""
    _check(probability)
    if probability == 0:
        return "0"
    if probability > 0.5:
        return _share(probability)
    times = _digits(1 / _decimal(probability), 3, ROUND_FLOOR)
    if times > _LARGEST_COUNT:
        return f"1 in 10^{times.adjusted()}"
    return f"1 in {_plain(times)}"


def belief_sentence(
    *,
    prior: float,
    loss: float,
    failure: float = 0.0,
    seen: str = "the model",
    known: str = "every other row",
) -> str:
    """How sure an attacker gets who knows every other row (D5.3 Lemma 1)."""
    prior = _validate.probability("prior", prior)
    doubt = doubt_after(prior, loss)
    who = "is undecided" if prior == 0.5 else f"holds it for {chosen_percent(prior)} likely"
    left = ""
    if loss == math.inf:
        sure, failure = "can be certain", 0.0
    elif doubt < _LEAST_DOUBT:
        sure = "can get all but certain"
        left = f" (a doubt of {at_least(doubt, 2) if doubt > 0 else 'less than 1e-300'} is left)"
    else:
        sure = f"is at most {percent(belief_after(prior, loss), doubt)} sure"
    return (
        f"An attacker who {who}, and knows {known}, {sure} after seeing {seen} that a"
        f" person was in the data{left}{_except(failure)}."
    )


def advantage_sentence(advantage: float, *, certain: bool | None = None) -> str:
    """What the Bayes adversary gains on a coin (D5.3 Def. 5).

    ``certain``: whether an advantage of 1 is no rounding of what is short of it.
    """
    _check(advantage)
    wrong = (1 - advantage) / 2
    if wrong < _LEAST_DOUBT:
        certain = advantage == 1 if certain is None else certain
        often = "every time" if certain else "nearly every time"
    else:
        often = f"at most {_trimmed(percent(1 - wrong, wrong).removesuffix(' %'))} times in 100"
    return (
        "If a coin decides whether a person is in the data, the attacker guesses right"
        f" {often}, instead of 50 times in 100."
    )


def true_positive_sentence(
    *, false_positive_rate: float, true_positive_rate: float, certain: bool | None = None
) -> str:
    """What a careful attacker finds."""
    _check(true_positive_rate)
    wrong = _share(_validate.probability("false_positive_rate", false_positive_rate), exact=True)
    found = f"at most {_share(true_positive_rate)} members are found"
    if 1 - true_positive_rate < _LEAST_DOUBT:
        certain = true_positive_rate == 1 if certain is None else certain
        found = f"{'all' if certain else 'nearly all'} members can be found"
    return f"If {wrong} people who are not in the data may be taken for members, {found}."


def one_in_sentence(
    *, prior: float, loss: float, failure: float = 0.0, seen: str = "the model"
) -> str:
    """The belief as a group to hide in: '1 in k'.

    From a prior of ½ there are two to hide among, which says little: 1,000 suspects stand beside
    them.
    """
    prior = _validate.probability("prior", prior)
    suspects = Decimal(_SUSPECTS) if prior == 0.5 else 1 / _decimal(prior)
    start = float(1 / suspects)
    one_of = _plain(_digits(suspects, 4, ROUND_FLOOR))
    if loss == math.inf or doubt_after(start, loss) < _LEAST_DOUBT:
        nearly, failure = ("", 0.0) if loss == math.inf else ("as good as ", failure)
        return (
            f"A person who was one of {one_of} suspects can be {nearly}singled out after seeing"
            f" {seen}{_except(failure)}."
        )
    crowd = one_in_text(start, loss)
    if prior == 0.5 and loss <= _HIDDEN:
        hidden = (
            f"The person is as if hidden among {one_in_text(prior, loss)} people instead of 2; one"
        )
        return f"{hidden} of {one_of} suspects becomes at most 1 in {crowd}{_except(failure)}."
    return (
        f"A person who was one of {one_of} suspects is at most 1 in {crowd} after seeing"
        f" {seen}{_except(failure)}."
    )


def one_in_text(prior: float, loss: float) -> str:
    """k with belief = 1/k, rounded down; 1 only where next to no doubt is left."""
    if doubt_after(prior, loss) < _LEAST_DOUBT:
        return "1"
    # 1/belief without cancellation, from the prior as it is written; a float might not hold it.
    number = 1 + (1 / _decimal(prior) - 1) * Decimal(math.exp(-loss))
    number = Decimal(f"{number:.14e}")
    digits = 2 if number < 10 else 3
    while digits < 8 and _digits(number, digits, ROUND_FLOOR) <= 1:
        digits += 1
    return _plain(_digits(number, digits, ROUND_FLOOR))


def _except(failure: float) -> str:
    return "" if failure == 0 else f", except with a chance of {chance(failure)}"


def _share(probability: float, *, exact: bool = False) -> str:
    """'2.8 in 100' of a share, rounded up; in a thousand, and so on, where it is smaller."""
    if probability == 0:
        return "0 in 100"
    number = _decimal(probability)
    # 0.9 in 100 is 9 in 1,000.
    power = max(2, -number.adjusted())
    if power > 9:
        return f"a share of {at_most(probability, 2)} of the"
    scaled = number.scaleb(power)
    count = scaled if exact else scaled.quantize(Decimal("0.1"), ROUND_CEILING)
    if count >= 10**power and probability < 1:
        return f"fewer than {10**power:,} in {10**power:,}"
    return f"{_plain(count)} in {10**power:,}"


def chosen_percent(share: float) -> str:
    """A share that was chosen, as it was."""
    return f"{_plain(100 * _decimal(share))} %"


def _rounded(value: float, digits: int, rounding: str) -> str:
    if not value >= 0:
        raise ArithmeticError("a figure is not a number of at least 0")
    if value == math.inf:
        return "infinity"
    return _plain(_digits(_decimal(value), digits, rounding))


def _decimal(value: float) -> Decimal:
    """The number as it is written to fifteen digits: what is below them is rounding of its own.

    So 0.9 is nine tenths, and not an ulp above them.
    """
    return Decimal(f"{float(value):.15g}")


def _digits(number: Decimal, digits: int, rounding: str) -> Decimal:
    if number == 0:
        return number
    return number.quantize(Decimal(1).scaleb(number.adjusted() - digits + 1), rounding)


def _plain(number: Decimal) -> str:
    """Without idle zeros, and without an exponent where it is of a usual size."""
    if number == 0:
        return "0"
    power = number.adjusted()
    if -5 <= power < 10:
        text = f"{number:,f}"
        return _trimmed(text)
    mantissa = _trimmed(f"{number.scaleb(-power):f}")
    return f"{mantissa}e{power:+03d}"


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _check(probability: float) -> None:
    if not 0 <= probability <= 1:
        raise ArithmeticError("a probability lies outside of [0, 1]")
