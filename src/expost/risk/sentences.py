"""The meaning of a figure, in a sentence for readers who do not know ε.

Every number is rounded towards more exposed, so that a sentence is true of the figure behind it:
shares and chances upwards, '1 in k' and doubts downwards. A bound short of certainty never reads as
100 %.
"""

import math

from expost import _checks
from expost.numbers import (
    LEAST_DOUBT,
    at_least,
    at_most,
    chance,
    check_probability,
    chosen_chance,
    decimal,
    in_words,
    out_of,
    percent_at_most,
    plain,
    share,
    significant,
    trimmed,
)
from expost.risk.guarantee import doubt_after, one_in_after, posterior_after

__all__ = [
    "advantage_sentence",
    "gaussian_dp_sentence",
    "one_in_sentence",
    "one_in_text",
    "posterior_sentence",
    "right_guesses",
    "true_positive_sentence",
]

# From a prior of ½ '1 in k' means little: the example starts from 1 in 1,000.
_SUSPECTS = 1000


def posterior_sentence(
    *,
    prior: float,
    loss: float,
    failure: float = 0.0,
    observed: str = "the model",
    known: str = "every other row",
) -> str:
    """Return the posterior of an attacker who knows every other row (D5.3 Lemma 1)."""
    prior = _checks.probability("prior", prior)
    doubt = doubt_after(prior, loss)
    attacker = f"With a prior of {share(prior)}, an attacker who knows {known}"
    if loss == math.inf:
        return f"{attacker} can be certain of a person's presence after seeing {observed}."
    if doubt < LEAST_DOUBT:
        left = at_least(doubt, 2) if doubt > 0 else "less than 1e-300"
        return (
            f"{attacker} can be all but certain of a person's presence after seeing {observed} (a"
            f" doubt of {left} is left){_except(failure)}."
        )
    posterior = percent_at_most(posterior_after(prior, loss), doubt)
    return (
        f"{attacker} assigns a posterior of at most {posterior} to a person's presence after seeing"
        f" {observed}{_except(failure)}."
    )


def advantage_sentence(advantage: float, *, certain: bool | None = None) -> str:
    """Return how often the Bayes adversary is right, against random guessing (D5.3 Def. 5)."""
    often = right_guesses(advantage, certain=certain)
    return (
        f"An attacker who guesses whether a person is in the data is right {often}; random guessing"
        " is right 50 times in 100."
    )


def gaussian_dp_sentence(mu: float, *, slip: float, error: float) -> str:
    """Return the Gaussian guarantee that a guarantee implies; "" where it is no other."""
    if error == 0 and slip == 0:
        return ""
    up_to = f", up to an additive {at_most(slip, 2)}" if slip > 0 else ""
    return (
        f"No attack detects more than under Gaussian noise with mu = {at_most(mu, 4)}{up_to}."
        " That overstates how often a guess about membership is right by at most"
        f" {at_most(100 * error, 2)} times in 100."
    )


def right_guesses(advantage: float, *, certain: bool | None = None) -> str:
    """Return how often guesses of this membership advantage are right, rounded up.

    ``certain``: whether an advantage of 1 is no rounding of what is short of it.
    """
    check_probability(advantage)
    wrong = (1 - advantage) / 2
    if wrong < LEAST_DOUBT:
        certain = advantage == 1 if certain is None else certain
        return "every time" if certain else "nearly every time"
    right = percent_at_most((1 + decimal(advantage)) / 2, wrong).removesuffix(" %")
    return f"at most {trimmed(right)} times in 100"


def true_positive_sentence(
    *, false_positive_rate: float, true_positive_rate: float, certain: bool | None = None
) -> str:
    """Return the share of members that is detected at a false-positive rate."""
    check_probability(true_positive_rate)
    wrong = out_of(_checks.probability("false_positive_rate", false_positive_rate), "nearest")
    detected = f"{in_words(out_of(true_positive_rate))} members are detected"
    if 1 - true_positive_rate < LEAST_DOUBT:
        certain = true_positive_rate == 1 if certain is None else certain
        detected = f"{'all' if certain else 'nearly all'} members can be detected"
    return f"If {wrong} non-members are taken for members, {detected}."


def one_in_sentence(
    *, prior: float, loss: float, failure: float = 0.0, observed: str = "the model"
) -> str:
    """Return the posterior as '1 in k', from 1 in 1,000 where the prior is ½."""
    prior = _checks.probability("prior", prior)
    start = 1 / _SUSPECTS if prior == 0.5 else prior
    before = chosen_chance(start)
    if loss == math.inf:
        return f"A person with a prior of {before} can be singled out after seeing {observed}."
    if doubt_after(start, loss) < LEAST_DOUBT:
        return (
            f"A person with a prior of {before} can be as good as singled out after seeing"
            f" {observed}{_except(failure)}."
        )
    return (
        f"A prior of {before} becomes a posterior of at most 1 in {one_in_text(start, loss)}"
        f" after seeing {observed}{_except(failure)}."
    )


def one_in_text(prior: float, loss: float) -> str:
    """Return k with posterior = 1/k, rounded down; 1 only where next to no doubt is left."""
    if doubt_after(prior, loss) < LEAST_DOUBT:
        return "1"
    # 1/posterior without cancellation, from the prior as it is written; a float might not hold it.
    number = 1 + (1 / decimal(prior) - 1) * decimal(math.exp(-loss))
    number = min(number, decimal(one_in_after(prior, loss)))
    digits = 2 if number < 10 else 3
    while digits < 8 and significant(number, digits, "down") <= 1:
        digits += 1
    return plain(significant(number, digits, "down"))


def _except(failure: float) -> str:
    return "" if failure == 0 else f", except with a chance of {chance(failure)}"
