"""Numbers as text: three digits, and no certainty that is not there."""

import math

import pytest

from expost.report.wording import count, figure, grouped, number, percent, share

NB = "\N{NO-BREAK SPACE}"


@pytest.mark.parametrize(
    ("value", "in_a_column", "in_a_sentence"),
    [
        (0.0, "0", "0"),
        (1.0, "1.00", "1"),
        (0.5, "0.500", "0.5"),
        (0.012345, "0.0123", "0.0123"),
        (0.0120, "0.0120", "0.012"),
        (9.999, "10.0", "10"),
        (100.0, "100", "100"),
        (1234.5, "1,230", "1,230"),
        (0.00012, "0.000120", "0.00012"),
        (0.000012, f"1.20{NB}×{NB}10⁻⁵", f"1.2{NB}×{NB}10⁻⁵"),
        (1e-7, f"1.00{NB}×{NB}10⁻⁷", f"1{NB}×{NB}10⁻⁷"),
        (2.5e12, f"2.50{NB}×{NB}10¹²", f"2.5{NB}×{NB}10¹²"),
        (-0.25, "−0.250", "−0.25"),
        (math.inf, "∞", "∞"),
        (-math.inf, "−∞", "−∞"),
    ],
)
def test_figures(value, in_a_column, in_a_sentence):
    assert figure(value) == in_a_column
    assert number(value) == in_a_sentence


@pytest.mark.parametrize("value", [999.0, 1810.0, 39.6, 123000.0, 1.81e6, 1.23e-5, 0.000123])
def test_a_sentence_of_the_terminal_has_its_numbers_as_sentences_of_the_page_have(value):
    assert grouped(f"Above ε = {value:g} no more.") == f"Above ε = {number(value)} no more."


def test_only_numbers_are_grouped():
    for text in ("column x1234", "1234abc", "0.12345", "1,810", "v2.12345", "row_12345"):
        assert grouped(text) == text
    assert grouped("add values between 1810 and 25000.") == "add values between 1,810 and 25,000."


@pytest.mark.parametrize("exponent", range(-12, 13))
def test_a_figure_is_within_half_a_unit_of_its_third_digit(exponent):
    for mantissa in (1.0, 1.2345, 9.994, 9.996):
        value = mantissa * 10.0**exponent
        text = figure(value).replace(",", "").replace(f"{NB}×{NB}10", "e")
        read = float(text.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")))
        assert abs(read - value) <= 0.00501 * 10.0 ** math.floor(math.log10(value) + 1e-12) * 1.01


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.5, "50.0 %"),
        (0.73106, "73.1 %"),
        (0.9994, "99.9 %"),
        (0.9999999, "> 99.9 %"),
        (1e-9, "< 0.1 %"),
        (0.0006, "0.1 %"),
    ],
)
def test_percentages_never_round_to_certainty(value, text):
    assert percent(value) == text.replace(" ", NB)


@pytest.mark.parametrize("value", [math.nan, -0.1, 1.1])
def test_what_is_no_probability_is_an_error(value):
    with pytest.raises(ArithmeticError):
        percent(value)


def test_nan_is_an_error():
    with pytest.raises(ArithmeticError):
        figure(math.nan)


def test_counts_and_shares():
    assert count(48842) == "48,842"
    assert [share(s) for s in (0.5, 0.999, 1)] == [f"50{NB}%", f"99.9{NB}%", "all"]
