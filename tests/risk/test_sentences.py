"""Every number in a sentence, read back, is on the exposed side of the figure behind it."""

import math
import re

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expost import numbers
from expost.errors import InvalidInput
from expost.risk import sentences

# What the fifteenth digit of a figure may hide.
SLACK = 1e-14
LOSSES = st.one_of(
    st.sampled_from([0.0, 1e-8, 0.01, 1.0, 2.197, 3.9, 4.1, 40.0, 300.0, 1e4, math.inf]),
    st.floats(0, 60),
)
PRIORS = st.one_of(st.sampled_from([0.5, 0.001, 0.01, 1 / 3, 0.9, 1e-9]), st.floats(1e-9, 0.999))
SHARES = st.one_of(
    st.sampled_from([0.0, 1e-9, 0.1, 0.46211715726, 0.9, 0.99999, 1 - 1e-9, 1.0]), st.floats(0, 1)
)


def posterior(prior, loss):
    """sigmoid(logit(prior) + loss) to 200 digits."""
    with mpmath.workdps(200):
        odds = mpmath.mpf(prior) / (1 - mpmath.mpf(prior)) * mpmath.exp(loss)
        return odds / (1 + odds) if loss < math.inf else mpmath.mpf(1)


def number(text):
    return float(text.replace(",", ""))


@given(PRIORS, LOSSES)
def test_posteriors_are_bounds_and_not_certain_unless_they_are(prior, loss):
    sentence = sentences.posterior_sentence(prior=prior, loss=loss, failure=1e-4)
    exact = posterior(prior, loss)
    assert ("can be certain" in sentence) is (loss == math.inf)
    assert "100 %" not in sentence
    if shown := re.search(r"posterior of at most ([\d.e-]+) % to", sentence):
        assert number(shown[1]) / 100 >= float(exact) * (1 - SLACK)
        assert number(shown[1]) / 100 <= float(exact) * 1.1 + 0.001
    elif doubt := re.search(r"doubt of ([\d.e-]+) is left", sentence):
        assert number(doubt[1]) <= float(1 - exact) * (1 + SLACK)
        assert number(doubt[1]) >= 0.9 * float(1 - exact)
    else:
        assert loss == math.inf or "less than 1e-300" in sentence
    assert ("1 in 10,000" in sentence) is (loss < math.inf)
    assert sentence.startswith(f"With a prior of {numbers.share(prior)},")


@given(PRIORS, LOSSES)
def test_groups_are_rounded_down(prior, loss):
    sentence = sentences.one_in_sentence(prior=prior, loss=loss)
    start = 1 / mpmath.mpf(1000) if prior == 0.5 else mpmath.mpf(repr(prior))
    group = 1 / posterior(start, loss)
    # The prior is printed as it was given: 1 in k, or all digits of a share.
    printed = re.search(r"prior of (?:1 in ([\d.,]*\d)|([\d.e-]+) %)", sentence)
    shown_prior = 1 / number(printed[1]) if printed[1] else number(printed[2]) / 100
    assert shown_prior == pytest.approx(float(start), rel=1e-15)
    if shown := re.search(r"at most 1 in ([\d.,]*\d)(?: after|\.$)", sentence):
        assert 1 < number(shown[1]) <= group * (1 + SLACK)
        # Three digits; more where it must not read as 1.
        assert number(shown[1]) >= 0.9 * group
    else:
        assert "singled out" in sentence
        assert group < 1 + 2e-6
    assert ("as good as" in sentence) is ("singled out" in sentence and loss < math.inf)


@given(SHARES)
def test_right_guesses_are_rounded_up(advantage):
    sentence = sentences.advantage_sentence(advantage)
    if shown := re.search(r"at most ([\d.]+) times in 100;", sentence):
        right = (1 + advantage) / 2
        assert right * (1 - SLACK) <= number(shown[1]) / 100 <= right + 0.0011
        assert number(shown[1]) < 100
    else:
        assert advantage > 1 - 1e-5
        assert ("right every time" in sentence) is (advantage == 1)
    assert "nearly every time" in sentences.advantage_sentence(1.0, certain=False)


@pytest.mark.parametrize("fpr", [0.01, 0.001, 0.037, 0.5, 1e-6, 1e-12])
@pytest.mark.parametrize("tpr", [0.0272, 0.5, 0.999, 0.99999, 1e-5, 3e-9, 1 - 1e-12, 1.0])
def test_detected_members_are_rounded_up(fpr, tpr):
    sentence = sentences.true_positive_sentence(false_positive_rate=fpr, true_positive_rate=tpr)
    wrong = re.search(
        r"If (?:([\d.,]+) in ([\d,]+)|a share of ([\d.e-]+) of the) non-members", sentence
    )
    taken = number(wrong[1]) / number(wrong[2]) if wrong[1] else number(wrong[3])
    assert taken == pytest.approx(fpr, rel=1e-12)
    if match := re.search(r"(?:at most|(fewer than)) ([\d.,]+) in ([\d,]+) members", sentence):
        shown = number(match[2]) / number(match[3])
        assert tpr * (1 - SLACK) <= shown <= 1.1 * tpr + 0.001 / number(match[3])
        assert bool(match[1]) is (shown == 1)
    else:
        assert ("all members can be detected" in sentence) is (tpr > 1 - 1e-6)
        assert ("nearly all" in sentence) is (tpr < 1)
    assert "nearly all" in sentences.true_positive_sentence(
        false_positive_rate=fpr, true_positive_rate=1.0, certain=False
    )


def test_shares_and_chances():
    assert numbers.share(0.01) == "1 %"
    assert numbers.share(1e-5) == "0.001 %"
    assert numbers.chance(1e-4) == "1 in 10,000"
    assert numbers.chance(1e-5) == "1 in 100,000"
    assert numbers.chance(3e-5) == "1 in 33,300"
    assert numbers.chance(0.1) == "1 in 10"
    assert numbers.chance(1e-299) == "1 in 10^299"
    assert numbers.chance(0.951) == "95.1 in 100"
    assert numbers.chance(0.0) == "0"


def test_what_is_no_number_is_never_shown():
    for bad in (math.nan, -0.1, 1.1):
        with pytest.raises(ArithmeticError):
            numbers.chance(bad)
        with pytest.raises(ArithmeticError):
            sentences.advantage_sentence(bad)
        with pytest.raises(ArithmeticError):
            sentences.true_positive_sentence(false_positive_rate=0.01, true_positive_rate=bad)
        with pytest.raises(InvalidInput, match="prior"):
            sentences.posterior_sentence(prior=bad, loss=1.0)
    for loss in (math.nan, -1.0):
        with pytest.raises(InvalidInput, match="loss"):
            sentences.posterior_sentence(prior=0.5, loss=loss)
        with pytest.raises(InvalidInput, match="loss"):
            sentences.one_in_sentence(prior=0.5, loss=loss)
    with pytest.raises(ArithmeticError):
        numbers.at_most(math.nan)
