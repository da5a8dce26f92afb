"""Every number in a sentence, read back, is on the exposed side of the figure behind it."""

import math
import re

import mpmath
import pytest

from expost.errors import InvalidInput
from expost.risk import wording

# What the fifteenth digit of a figure may hide.
SLACK = 1e-14
LOSSES = [0.0, 1e-8, 0.01, 0.3, 1.0, 2.197, 3.9, 4.1, 7.0, 12.0, 20.0, 40.0, 300.0, 1e4, math.inf]
PRIORS = [0.5, 0.001, 0.01, 1 / 3, 0.9, 1e-9]


def belief(prior, loss):
    """sigmoid(logit(prior) + loss) to 200 digits."""
    with mpmath.workdps(200):
        odds = mpmath.mpf(prior) / (1 - mpmath.mpf(prior)) * mpmath.exp(loss)
        return odds / (1 + odds) if loss < math.inf else mpmath.mpf(1)


def number(text):
    return float(text.replace(",", ""))


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("loss", LOSSES)
def test_beliefs_are_bounds_and_not_certain_unless_they_are(prior, loss):
    said = wording.belief_sentence(prior=prior, loss=loss, failure=1e-4)
    exact = belief(prior, loss)
    assert ("can be certain" in said) is (loss == math.inf)
    assert "100 %" not in said
    if shown := re.search(r"at most ([\d.e-]+) % sure", said):
        assert number(shown[1]) / 100 >= float(exact) * (1 - SLACK)
        assert number(shown[1]) / 100 <= float(exact) * 1.1 + 0.001
    elif doubt := re.search(r"doubt of ([\d.e-]+) is left", said):
        assert number(doubt[1]) <= float(1 - exact) * (1 + SLACK)
        assert number(doubt[1]) >= 0.9 * float(1 - exact)
    else:
        assert loss == math.inf or "less than 1e-300" in said
    assert ("1 in 10,000" in said) is (loss < math.inf)
    assert ("is undecided" in said) is (prior == 0.5)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("loss", LOSSES)
def test_groups_are_rounded_down(prior, loss):
    said = wording.one_in_sentence(prior=prior, loss=loss)
    start = 1 / mpmath.mpf(1000) if prior == 0.5 else mpmath.mpf(repr(prior))
    group = 1 / belief(start, loss)
    if shown := re.search(r"at most 1 in ([\d.,]*\d)(?: after|\.$)", said):
        assert 1 < number(shown[1]) <= group * (1 + SLACK)
        # Three digits; more where it must not read as 1.
        assert number(shown[1]) >= 0.9 * group
    else:
        assert "singled out" in said
        assert group < 1 + 2e-6
    assert ("as good as" in said) is ("singled out" in said and loss < math.inf)
    if hidden := re.search(r"among ([\d.]+) people", said):
        assert prior == 0.5
        assert 1 < number(hidden[1]) <= 1 / belief(0.5, loss)


@pytest.mark.parametrize("advantage", [0.0, 1e-9, 0.1, 0.46211715726, 0.9, 0.99999, 1 - 1e-9, 1.0])
def test_right_guesses_are_rounded_up(advantage):
    said = wording.advantage_sentence(advantage)
    if shown := re.search(r"at most ([\d.]+) times in 100,", said):
        assert (1 + advantage) / 2 <= number(shown[1]) / 100 <= (1 + advantage) / 2 + 0.0011
        assert number(shown[1]) < 100
    else:
        assert advantage > 1 - 1e-5
        assert ("right every time" in said) is (advantage == 1)
    assert "nearly every time" in wording.advantage_sentence(1.0, certain=False)


@pytest.mark.parametrize("fpr", [0.01, 0.001, 0.037, 0.5, 1e-6, 1e-12])
@pytest.mark.parametrize("tpr", [0.0272, 0.5, 0.999, 0.99999, 1e-5, 3e-9, 1 - 1e-12, 1.0])
def test_members_found_are_rounded_up(fpr, tpr):
    said = wording.true_positive_sentence(false_positive_rate=fpr, true_positive_rate=tpr)
    wrong = re.search(r"If (?:([\d.,]+) in ([\d,]+)|a share of ([\d.e-]+) of the) people", said)
    taken = number(wrong[1]) / number(wrong[2]) if wrong[1] else number(wrong[3])
    assert taken == pytest.approx(fpr, rel=1e-12)
    if found := re.search(r"at most (fewer than )?([\d.,]+) in ([\d,]+) members", said):
        shown = number(found[2]) / number(found[3])
        assert tpr * (1 - SLACK) <= shown <= 1.1 * tpr + 0.001 / number(found[3])
        assert bool(found[1]) is (shown == 1)
    else:
        assert ("all members can be found" in said) is (tpr > 1 - 1e-6)
        assert ("nearly all" in said) is (tpr < 1)
    assert "nearly all" in wording.true_positive_sentence(
        false_positive_rate=fpr, true_positive_rate=1.0, certain=False
    )


def test_shares_and_chances():
    assert wording.chosen_percent(0.01) == "1 %"
    assert wording.chosen_percent(1e-5) == "0.001 %"
    assert wording.chance(1e-4) == "1 in 10,000"
    assert wording.chance(1e-5) == "1 in 100,000"
    assert wording.chance(3e-5) == "1 in 33,300"
    assert wording.chance(0.1) == "1 in 10"
    assert wording.chance(1e-299) == "1 in 10^299"
    assert wording.chance(0.951) == "95.1 in 100"
    assert wording.chance(0.0) == "0"


def test_what_is_no_number_is_never_told():
    for bad in (math.nan, -0.1, 1.1):
        with pytest.raises(ArithmeticError):
            wording.chance(bad)
        with pytest.raises(ArithmeticError):
            wording.advantage_sentence(bad)
        with pytest.raises(ArithmeticError):
            wording.true_positive_sentence(false_positive_rate=0.01, true_positive_rate=bad)
        with pytest.raises(InvalidInput, match="prior"):
            wording.belief_sentence(prior=bad, loss=1.0)
    for loss in (math.nan, -1.0):
        with pytest.raises(InvalidInput, match="loss"):
            wording.belief_sentence(prior=0.5, loss=loss)
        with pytest.raises(InvalidInput, match="loss"):
            wording.one_in_sentence(prior=0.5, loss=loss)
    with pytest.raises(ArithmeticError):
        wording.at_most(math.nan)
