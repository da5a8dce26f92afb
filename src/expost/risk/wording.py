"""What a figure means, in a sentence for somebody who knows no ε.

Every number is rounded towards more exposed, so that a sentence is true of the figure behind it:
shares and chances upwards, '1 in k' and what is left of doubt downwards. What is short of certain
never reads as 100 %.
"""

import math
from decimal import ROUND_CEILING, Decimal

from expost import _checks
from expost.errors import InvalidInput
from expost.risk.guarantee import belief_after, one_in_after
from expost.rounding import (
    LEAST_DOUBT,
    at_least,
    at_most,
    check_probability,
    decimal,
    percent_at_most,
    plain,
    significant,
    trimmed,
)

__all__ = [
    "advantage_sentence",
    "belief_sentence",
    "chance",
    "chosen_percent",
    "doubt_after",
    "one_in_sentence",
    "one_in_text",
    "true_positive_sentence",
]

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


def chance(probability: float) -> str:
    """A chance rounded up: '1 in 10,000', or '95.2 in 100' where it is not small."""
    check_probability(probability)
    if probability == 0:
        return "0"
    if probability > 0.5:
        return _share(probability)
    times = significant(1 / decimal(probability), 3, "down")
    if times > _LARGEST_COUNT:
        return f"1 in 10^{times.adjusted()}"
    return f"1 in {plain(times)}"


def belief_sentence(
    *,
    prior: float,
    loss: float,
    failure: float = 0.0,
    seen: str = "the model",
    known: str = "every other row",
) -> str:
    """How sure an attacker gets who knows every other row (D5.3 Lemma 1)."""
    prior = _checks.probability("prior", prior)
    doubt = doubt_after(prior, loss)
    who = "is undecided" if prior == 0.5 else f"holds it for {chosen_percent(prior)} likely"
    left = ""
    if loss == math.inf:
        sure, failure = "can be certain", 0.0
    elif doubt < LEAST_DOUBT:
        sure = "can get all but certain"
        left = f" (a doubt of {at_least(doubt, 2) if doubt > 0 else 'less than 1e-300'} is left)"
    else:
        sure = f"is at most {percent_at_most(belief_after(prior, loss), doubt)} sure"
    return (
        f"An attacker who {who}, and knows {known}, {sure} after seeing {seen} that a"
        f" person was in the data{left}{_except(failure)}."
    )


def advantage_sentence(advantage: float, *, certain: bool | None = None) -> str:
    """What the Bayes adversary gains on a coin (D5.3 Def. 5).

    ``certain``: whether an advantage of 1 is no rounding of what is short of it.
    """
    check_probability(advantage)
    wrong = (1 - advantage) / 2
    if wrong < LEAST_DOUBT:
        certain = advantage == 1 if certain is None else certain
        often = "every time" if certain else "nearly every time"
    else:
        right = percent_at_most((1 + decimal(advantage)) / 2, wrong).removesuffix(" %")
        often = f"at most {trimmed(right)} times in 100"
    return (
        "If a coin decides whether a person is in the data, the attacker guesses right"
        f" {often}, instead of 50 times in 100."
    )


def true_positive_sentence(
    *, false_positive_rate: float, true_positive_rate: float, certain: bool | None = None
) -> str:
    """What a careful attacker finds."""
    check_probability(true_positive_rate)
    wrong = _share(_checks.probability("false_positive_rate", false_positive_rate), exact=True)
    found = f"at most {_share(true_positive_rate)} members are found"
    if 1 - true_positive_rate < LEAST_DOUBT:
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
    prior = _checks.probability("prior", prior)
    suspects = Decimal(_SUSPECTS) if prior == 0.5 else 1 / decimal(prior)
    start = float(1 / suspects)
    one_of = plain(significant(suspects, 4, "down"))
    if loss == math.inf or doubt_after(start, loss) < LEAST_DOUBT:
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
    if doubt_after(prior, loss) < LEAST_DOUBT:
        return "1"
    # 1/belief without cancellation, from the prior as it is written; a float might not hold it.
    number = 1 + (1 / decimal(prior) - 1) * decimal(math.exp(-loss))
    number = min(number, decimal(one_in_after(prior, loss)))
    digits = 2 if number < 10 else 3
    while digits < 8 and significant(number, digits, "down") <= 1:
        digits += 1
    return plain(significant(number, digits, "down"))


def _except(failure: float) -> str:
    return "" if failure == 0 else f", except with a chance of {chance(failure)}"


def _share(probability: float, *, exact: bool = False) -> str:
    """'2.8 in 100' of a share, rounded up; in a thousand, and so on, where it is smaller."""
    if probability == 0:
        return "0 in 100"
    number = decimal(probability)
    # 0.9 in 100 is 9 in 1,000.
    power = max(2, -number.adjusted())
    if power > 9:
        return f"a share of {at_most(probability, 2)} of the"
    scaled = number.scaleb(power)
    count = scaled if exact else scaled.quantize(Decimal("0.1"), ROUND_CEILING)
    if count >= 10**power and probability < 1:
        return f"fewer than {10**power:,} in {10**power:,}"
    return f"{plain(count)} in {10**power:,}"


def chosen_percent(share: float) -> str:
    """A share that was chosen, as it was."""
    return f"{plain(100 * decimal(share))} %"
