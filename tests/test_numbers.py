"""Text of a bound, read back exactly, lies on the safe side of it, and no further than its digits.

A float counts as its shortest decimal text: 0.05 is five hundredths.
"""

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from expost import numbers
from expost.numbers import range_text
from read_figures import read as read_figure

POSITIVE = st.floats(min_value=5e-324, allow_nan=False, allow_infinity=False)
ANY = st.floats(allow_nan=False, allow_infinity=False)
SHARES = st.one_of(st.floats(0, 1), st.floats(0, 1e-3), st.floats(0, 1e-3).map(lambda p: 1 - p))


def read(text):
    return Decimal(text.replace(",", ""))


def exact(value):
    return Decimal(repr(float(value)))


@given(ANY, st.integers(1, 17))
@example(0.1, 3)
@example(0.30000000000000004, 3)
@example(9.999999, 3)
@example(-9.999999, 2)
@example(999.9999999, 3)
@example(5e-324, 2)
@example(1.7976931348623157e308, 3)
@example(-0.0, 3)
def test_a_bound_is_on_its_side_within_its_digits(value, digits):
    up, down = read(numbers.at_most(value, digits)), read(numbers.at_least(value, digits))
    assert down <= exact(value) <= up
    unit = abs(exact(value)) * Decimal(10) ** (1 - digits)
    assert up - exact(value) <= unit
    assert exact(value) - down <= unit
    assert read(numbers.lower_text(value, digits)) == down
    assert read(numbers.upper_text(value, digits)) == up
    # With fewer than 16 digits the float of the text is the text.
    if digits < 16 and 1e-300 < abs(value) < 1e308:
        assert exact(numbers.rounded_down(value, digits)) == down
        assert exact(numbers.rounded_up(value, digits)) == up


@given(st.floats(-1e6, 1e6), st.integers(0, 6), st.booleans())
@example(-0.0001, 2, True)
@example(0.0005, 3, False)
def test_fixed_decimals_are_on_their_side(value, places, percent):
    shown = {side: read(numbers.fixed(value, places, side, percent=percent)) for side in SIDES}
    whole = exact(value) * (100 if percent else 1)
    assert shown["down"] <= whole <= shown["up"]
    assert shown["down"] <= shown["nearest"] <= shown["up"]
    assert shown["up"] - shown["down"] <= Decimal(1).scaleb(-places)


SIDES = ("nearest", "up", "down")


@given(SHARES)
@example(0.9999999)
@example(0.9995)
@example(0.5000000001)
@example(5e-324)
def test_percentages_are_on_their_side_and_only_1_reads_as_100(share):
    up, down = numbers.percent_at_most(share), numbers.percent_at_least(share)
    assert (up == "100 %") is (share == 1)
    assert (down == "100 %") is (share == 1)
    assert read(down.removesuffix(" %")) <= 100 * exact(share)
    if up == "< 100 %":
        assert 1 - share < numbers.LEAST_DOUBT
    else:
        assert 100 * exact(share) <= read(up.removesuffix(" %"))
        assert read(up.removesuffix(" %")) <= 100 * exact(share) + Decimal("0.1")


@given(st.floats(-40, 40))
@example(0.0)
@example(1e-30)
def test_a_posterior_is_on_its_side(log_odds):
    text = numbers.certainty_at_most(log_odds)
    posterior = 1 / (1 + (-exact(log_odds)).exp())
    if not text.startswith("<"):
        assert 100 * posterior <= read(text.removesuffix(" %"))
    assert (text == "50.0 %") <= (log_odds <= 0)


def test_what_is_short_in_decimal_stays():
    for exponent in range(-12, 12):
        for digits in range(100, 1000, 7):
            value = float(f"{digits}e{exponent}")
            assert read(numbers.at_most(value)) == read(numbers.at_least(value)) == exact(value)


def test_shares_as_they_are_read():
    assert numbers.percent_at_most(0.9) == "90.0 %"
    assert numbers.percent_at_most(0.9 + 1e-9) == "90.1 %"
    assert numbers.percent_at_most(0.99999) == "99.999 %"
    assert numbers.percent_at_most(1 - 1e-9) == "< 100 %"
    assert numbers.percent_at_most(1.0, 1e-30) == "< 100 %"
    assert numbers.percent_at_most(0.0) == numbers.percent_at_least(0.0) == "0 %"
    assert numbers.percent_at_most(2.5e-7) == "0.000025 %"
    assert numbers.percent_at_least(0.99999) == "99.9 %"
    assert numbers.certainty_at_most(math.inf) == "100 %"
    assert numbers.certainty_at_most(-math.inf) == "0 %"
    assert numbers.certainty_at_most(1e308) == "< 100 %"


def test_numbers_as_they_are_read():
    assert numbers.at_most(math.inf) == "infinity"
    assert numbers.at_most(-math.inf) == "-infinity"
    assert numbers.at_least(1e4) == "10,000"
    assert numbers.upper_text(3e-6, 3) == "3e-06"
    assert numbers.upper_text(1422.5, 3) == "1430"
    assert numbers.upper_text(math.inf) == "inf"
    assert numbers.interval_text(0.5, 0.12349, 0.87651, 3) == "0.500 (0.123 … 0.877)"
    assert numbers.at_most(np.float64(1.2345)) == "1.24"


def test_sums_are_no_less():
    assert numbers.summed_up([0.1] * 3) == 0.3
    assert numbers.summed_up([1.0, math.inf]) == math.inf
    assert numbers.summed_up([]) == 0
    rng = np.random.default_rng(3)
    for _ in range(200):
        values = rng.exponential(size=5) * 10.0 ** rng.integers(-12, 3, size=5)
        total = sum(map(exact, values))
        assert total <= exact(numbers.summed_up(values)) <= total * (1 + Decimal("4e-16"))


def test_what_is_not_a_number_is_no_bound():
    for show in (numbers.at_most, numbers.at_least, numbers.upper_text, numbers.lower_text):
        with pytest.raises(ArithmeticError):
            show(math.nan)
    for show in (numbers.percent_at_most, numbers.percent_at_least):
        for bad in (math.nan, -0.1, 1.1):
            with pytest.raises(ArithmeticError):
                show(bad)
    with pytest.raises(ArithmeticError):
        numbers.certainty_at_most(math.nan)
    with pytest.raises(ArithmeticError):
        numbers.fixed(math.nan, 3, "up")


# -- figures of documents --------------------------------------------------------------------------


@given(ANY, st.integers(1, 6))
@example(0.30000000000000004, 3)
@example(9.999999, 3)
@example(1e-6, 3)
@example(5e-324, 3)
def test_figures_of_documents_are_on_their_side(value, digits):
    for text in (numbers.figure, numbers.number):
        up, down = (read_figure(text(value, side, digits)) for side in ("up", "down"))
        assert down <= exact(value) <= up
        unit = abs(exact(value)) * Decimal(10) ** (1 - digits)
        assert max(up - exact(value), exact(value) - down) <= unit
        # A subnormal float has fewer digits than its shortest text shows: 5e-324 is 4.94e-324.
        if value == 0 or abs(value) >= 2.2250738585072014e-308:
            nearest = read_figure(text(value, "nearest", digits))
            assert abs(nearest - exact(value)) <= unit


@given(SHARES)
@example(0.0)
@example(1.0)
@example(0.5)
def test_percentages_of_documents_are_on_their_side(share):
    up, down = (numbers.percent(share, side) for side in ("up", "down"))
    assert read_figure(up) >= exact(share)
    assert read_figure(down) <= exact(share)
    # What is not certain never reads like it.
    assert (up == "100 %") == (share == 1 or 1 - share == 0)
    assert (down == "0 %") == (share == 0)
    assert (numbers.percent(share) in ("0 %", "100 %")) == (share in (0.0, 1.0))


@given(st.floats(-800, 800))
def test_a_certainty_is_not_below_the_posterior(log_odds):
    posterior = 1 / (1 + Decimal(repr(-log_odds)).exp())
    assert read_figure(numbers.certainty(log_odds)) >= posterior - Decimal("1e-25")
    assert 0 < numbers.posterior_at(log_odds) < 1


TINY = st.floats(5e-324, 1)


def read_ratio(text):
    """The probability that "1 in 10,000" or "2.8 in 100" states; tiny shares are written out."""
    if text.startswith("a share of "):
        return read(text.removeprefix("a share of ").removesuffix(" of the"))
    top, bottom = (
        Decimal(10) ** int(part[3:]) if part.startswith("10^") else read(part)
        for part in text.removeprefix("fewer than ").split(" in ")
    )
    return top / bottom


@given(st.one_of(TINY, SHARES))
@example(1 / 3)
@example(0.5)
@example(0.5000000000000001)
@example(0.9999999999999999)
@example(1e-9)
@example(9.99e-10)
@example(5e-324)
def test_a_chance_is_not_below_its_probability(probability):
    text = numbers.chance(probability)
    if probability == 0:
        assert text == "0"
        return
    stated = read_ratio(text)
    assert stated >= exact(probability)
    # A power of ten, where the number is not readable.
    assert stated <= exact(probability) * (10 if "^" in text else Decimal("1.011"))
    assert "fewer than" in text or stated < 1 or probability == 1


@given(st.one_of(TINY, SHARES), st.sampled_from(SIDES))
@example(0.0095, "up")
@example(0.00999, "up")
@example(0.9999, "up")
@example(0.9999, "nearest")
@example(1e-9, "up")
@example(1.01e-10, "down")
def test_a_share_of_many_is_on_its_side(probability, side):
    text = numbers.out_of(probability, side)
    if probability == 0:
        assert text == "0 in 100"
        return
    stated, value = read_ratio(text), exact(probability)
    assert side != "up" or stated >= value
    assert side != "down" or stated <= value
    assert side != "nearest" or stated == value or text.startswith("a share")
    assert abs(stated - value) <= value * Decimal("0.101")
    assert "fewer than" in text or stated < 1 or probability == 1


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.floats(0, 1e6), st.integers(0, 6), st.booleans())
@example(-0.00001, 0.0, 0.0, 2, False)
@example(0.5, 0.37651, 0.37651, 3, True)
def test_the_ends_of_an_interval_contain_it(value, below, above, places, percent):
    low, high = value - below, value + above
    factor, unit = (100 if percent else 1), Decimal(1).scaleb(-places)
    for show, dash in ((numbers.interval_text, " … "), (numbers.interval, " to ")):
        text = show(value, low, high, places, percent=percent)
        middle, ends = text.replace("−", "-").replace(" %", "").rstrip(")").split(" (")
        start, end = map(read, ends.split(dash))
        assert 0 <= factor * exact(low) - start <= unit
        assert 0 <= end - factor * exact(high) <= unit
        assert start <= read(middle) <= end
        assert text.count("%") == (2 if percent and dash == " to " else 0)


@given(st.one_of(TINY, SHARES))
@example(0.07)
@example(1.0)
def test_a_chosen_share_has_all_its_digits(value):
    text = numbers.share(value)
    assert (text == "all") is (value == 1)
    if value < 1:
        assert read(text.removesuffix(" %")) == 100 * exact(value)


@given(st.floats(0, 1e9))
@example(1.0)
@example(1.0000001)
def test_nats_are_those_of_their_figure(value):
    figure, unit = numbers.nats(numbers.number(value, "up")).rsplit(" ", 1)
    assert read_figure(figure) >= exact(value)
    assert (unit == "nat") is (read_figure(figure) == 1)


def test_infinite_log_odds_are_certain():
    assert numbers.certainty(math.inf) == "100 %"
    assert (numbers.posterior_at(math.inf), numbers.posterior_at(-math.inf)) == (1.0, 0.0)


@pytest.mark.parametrize(
    "text",
    [
        numbers.figure,
        numbers.number,
        numbers.percent,
        numbers.chance,
        numbers.out_of,
        numbers.share,
    ],
)
def test_what_is_not_a_number_is_not_shown(text):
    with pytest.raises(ArithmeticError):
        text(math.nan)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0, 2e6, "0 to 2,000,000"),
        (-2500.5, 1234567, "−2,500.5 to 1,234,567"),
        (-1234567.25, 12345678.91, "−1,234,567.3 to 12,345,679"),
        (14.999999999999996, 75.00000000000001, "15 to 75"),
        (-2 / 3, 1 / 3, "−0.666667 to 0.333334"),
        (0.1, 0.30000000000000004, "0.1 to 0.3"),
    ],
)
def test_a_range_holds_its_column(low, high, text):
    assert range_text(low, high) == text
    ends = [float(end.replace("−", "-").replace(",", "")) for end in text.split(" to ")]
    slack = 1e-12 * max(abs(low), abs(high))
    assert ends[0] <= low + slack
    assert ends[1] >= high - slack
