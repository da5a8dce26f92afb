"""Numbers as strings: rounded to the nearest, or in the safe direction of a bound.

This module formats every number for readers. :func:`count`, :func:`figure`, :func:`number`,
:func:`percent`, :func:`share`, :func:`chance`, :func:`out_of`, :func:`certainty` and
:func:`interval` are for documents; the other functions return plain decimals for terminals and
files.

Conventions
-----------
A float64 counts as the shortest decimal number that reads back as the same float (``repr``): 0.05
is five hundredths, not the 0.05000000000000000277 that is stored. An upper bound is shown as a
decimal number that is at least as large, a lower bound as one that is at most as large. There is no
tolerance: 0.30000000000000004 is above 0.3 and is shown as 0.301.

Bounds are rounded "up" or "down"; estimates are rounded to the nearest. NaN raises
``ArithmeticError``.
"""

import math
import re
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Literal

__all__ = [
    "LEAST_DOUBT",
    "Side",
    "at_least",
    "at_most",
    "certainty",
    "certainty_at_most",
    "chance",
    "check_probability",
    "chosen_chance",
    "count",
    "decimal",
    "figure",
    "fixed",
    "for_persons",
    "in_words",
    "interval",
    "interval_text",
    "lower_text",
    "nats",
    "number",
    "out_of",
    "percent",
    "percent_at_least",
    "percent_at_most",
    "plain",
    "posterior_at",
    "range_text",
    "relation_words",
    "rounded_down",
    "rounded_up",
    "share",
    "significant",
    "summed_up",
    "symbols",
    "trimmed",
    "upper_text",
]

Side = Literal["nearest", "up", "down"]

# A smaller doubt is not shown as a percentage: 99.99…9 % is not readable.
LEAST_DOUBT = 1e-6
_LEAST_PROBABILITY = Decimal("1e-300")
# A larger count is written as a power of ten.
_LARGEST_COUNT = 10**9
_DIRECTIONS = {"up": ROUND_CEILING, "down": ROUND_FLOOR}
_TIMES_TEN = " × 10"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_GREEK = {"epsilon": "ε", "delta": "δ", "mu": "μ", "sigma": "σ"}
# A name of a Greek letter that is not a part of the name of an option or a parameter.
_SPELLED = re.compile(rf"(?<![\w.-])({'|'.join(_GREEK)})(?![\w=-])")
_EXPONENT = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]\d+)(?!\w)")
# Enough digits for any float64 with any displayed number of decimals.
_CONTEXT = Context(prec=800)


def decimal(value: float | Decimal) -> Decimal:
    """Return the shortest decimal number that reads back as ``value``."""
    if isinstance(value, Decimal):
        return value
    if math.isnan(value):
        raise ArithmeticError("a figure is not a number")
    return Decimal(repr(float(value)))


def significant(number: float | Decimal, digits: int, side: Side = "nearest") -> Decimal:
    """Return a finite number, rounded to ``digits`` significant digits."""
    if side == "nearest":
        return Decimal(f"{number:.{digits - 1}e}")
    exact = decimal(number)
    if exact == 0:
        return Decimal(0)
    unit = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    return exact.quantize(unit, _DIRECTIONS[side], _CONTEXT)


def fixed(value: float, places: int, side: Side = "nearest", *, percent: bool = False) -> str:
    """Return a number with ``places`` decimals, times 100 if ``percent``."""
    if not math.isfinite(value):
        return _infinite(value)
    if side == "nearest":
        text = f"{100 * value if percent else value:.{places}f}"
    else:
        exact = decimal(value).scaleb(2 if percent else 0, _CONTEXT)
        unit = Decimal(1).scaleb(-places)
        text = f"{exact.quantize(unit, _DIRECTIONS[side], _CONTEXT):f}"
    # A zero has no sign.
    return text.removeprefix("-") if not text.strip("-0.") else text


def at_most(value: float | Decimal, digits: int = 3) -> str:
    """Return an upper bound, rounded up to ``digits`` digits: 0.0272, 1.1, 368, 1.2e-09."""
    return _bound(value, digits, "up")


def at_least(value: float | Decimal, digits: int = 3) -> str:
    """Return a lower bound, rounded down to ``digits`` significant digits."""
    return _bound(value, digits, "down")


def upper_text(value: float, digits: int = 6) -> str:
    """Return an upper bound in the form of ``f"{value:.6g}"``: 1e-05, 1000, inf."""
    return _general(value, digits, "up")


def lower_text(value: float, digits: int = 6) -> str:
    """Return a lower bound in the form of ``f"{value:.6g}"``."""
    return _general(value, digits, "down")


def rounded_up(value: float, digits: int = 3) -> float:
    """Return ``value``, rounded up to ``digits`` significant digits; NaN and ±∞ are kept."""
    return float(significant(value, digits, "up")) if math.isfinite(value) else value


def rounded_down(value: float, digits: int = 3) -> float:
    """Return ``value``, rounded down to ``digits`` significant digits; NaN and ±∞ are kept."""
    return float(significant(value, digits, "down")) if math.isfinite(value) else value


def interval_text(
    value: float, low: float, high: float, places: int, *, percent: bool = False, to: str = "…"
) -> str:
    """Return an estimate to the nearest, with the ends of its interval rounded outwards."""
    middle = fixed(value, places, percent=percent)
    ends = fixed(low, places, "down", percent=percent), fixed(high, places, "up", percent=percent)
    return f"{middle} ({ends[0]} {to} {ends[1]})"


def percent_at_most(probability: float | Decimal, doubt: float | None = None) -> str:
    """Return an upper bound of a share: one decimal, more near 0 and 1, '< 100 %' next to 1.

    ``doubt`` is 1 − probability, where it is known better than by subtraction.
    """
    check_probability(probability)
    doubt = float(1 - probability) if doubt is None else doubt
    if doubt == 0:
        return "100 %"
    if doubt < LEAST_DOUBT:
        return "< 100 %"
    hundredfold = decimal(probability).scaleb(2)
    if hundredfold < 1:
        return f"{plain(significant(hundredfold, 2, 'up'))} %"
    for places in range(1, 12):
        shown = hundredfold.quantize(Decimal(1).scaleb(-places), ROUND_CEILING)
        if shown < 100:
            return f"{shown} %"
    return "< 100 %"


def percent_at_least(probability: float | Decimal) -> str:
    """Return a lower bound of a share: one decimal, more near 0; '100 %' only for 1."""
    check_probability(probability)
    hundredfold = decimal(probability).scaleb(2)
    if hundredfold in (0, 100):
        return f"{hundredfold:.0f} %"
    if hundredfold < 1:
        return f"{plain(significant(hundredfold, 2, 'down'))} %"
    return f"{hundredfold.quantize(Decimal('0.1'), ROUND_FLOOR)} %"


def certainty_at_most(log_odds: float) -> str:
    """Return an upper bound of the posterior at these log odds; 50 % at 0, 100 % only at ∞."""
    size = abs(decimal(log_odds))
    if size.is_infinite():
        return "100 %" if log_odds > 0 else "0 %"
    # In decimals, with the odds of the less likely side: no digit is lost near 0, 1/2 and 1.
    odds = (-size).exp()
    less, more = odds / (1 + odds), 1 / (1 + odds)
    probability, doubt = (more, less) if log_odds >= 0 else (less, more)
    if size > 0:
        probability = min(max(probability.next_plus(), _LEAST_PROBABILITY), Decimal(1))
    return percent_at_most(probability, max(float(doubt), 5e-324))


def summed_up(values: Iterable[float]) -> float:
    """Return the sum of ``values``, rounded up: 0.3 for three times 0.1."""
    total = sum(map(decimal, values), Decimal(0))
    nearest = float(total)
    return nearest if decimal(nearest) >= total else math.nextafter(nearest, math.inf)


def check_probability(probability: float | Decimal) -> None:
    """Raise unless ``probability`` lies in [0, 1]."""
    if not 0 <= probability <= 1:
        raise ArithmeticError("a probability lies outside of [0, 1]")


def plain(number: Decimal, *, least: int = -5, most: int = 10, comma: str = ",") -> str:
    """Return a number without trailing zeros, with an exponent only outside 10^least to 10^most."""
    if number == 0:
        return "0"
    power = number.adjusted()
    if least <= power < most:
        return trimmed(f"{number:{comma}f}")
    return f"{trimmed(f'{number.scaleb(-power):f}')}e{power:+03d}"


def trimmed(text: str) -> str:
    """Return a formatted number without trailing zeros."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _bound(value: float | Decimal, digits: int, side: Side) -> str:
    return plain(significant(value, digits, side)) if math.isfinite(value) else _infinite(value)


def _general(value: float, digits: int, side: Side) -> str:
    if not math.isfinite(value):
        return _infinite(value).replace("infinity", "inf")
    return plain(significant(value, digits, side), least=-4, most=max(digits, 6), comma="")


def _infinite(value: float | Decimal) -> str:
    if math.isnan(value):
        raise ArithmeticError("a figure is not a number")
    return "infinity" if value > 0 else "-infinity"


def for_persons(rows_per_person: int) -> str:
    """Return " for persons with up to k rows", or "" for a record-level guarantee."""
    return "" if rows_per_person == 1 else f" for persons with up to {rows_per_person:,} rows"


def relation_words(covers_replacement: bool, rows_per_person: int = 1) -> str:
    """Return the neighbouring relation of a guarantee: 'if a row is removed or added'.

    It has no comma, which separates the items of a description.
    """
    subject = "a row is" if rows_per_person == 1 else "rows are"
    return (
        f"if {subject} removed or added or replaced"
        if covers_replacement
        else f"if {subject} removed or added"
    )


def nats(figure: str) -> str:
    """Return a formatted figure with its unit."""
    return f"{figure} nat{'' if figure == '1' else 's'}"


# -- for documents ---------------------------------------------------------------------------------


def count(value: int) -> str:
    """Return an integer with its thousands separated: 48,842."""
    return f"{value:,}"


def figure(value: float, side: Side = "nearest", digits: int = 3) -> str:
    """Return a number for a column of a table: 0.0120, 1.00, 1,230, 1.20 × 10⁻⁷, ∞."""
    if math.isnan(value):
        raise ArithmeticError("a figure is not a number")
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    shown = significant(value, digits, side)
    sign, size, power = "−" if shown < 0 else "", abs(shown), shown.adjusted()
    if -4 <= power < 6:
        return f"{sign}{size:,.{max(0, digits - 1 - power)}f}"
    mantissa = f"{size.scaleb(-power):.{digits - 1}f}"
    return f"{sign}{mantissa}{_TIMES_TEN}{str(power).translate(_SUPERSCRIPTS)}"


def number(value: float, side: Side = "nearest", digits: int = 3) -> str:
    """Return a number for a sentence, without trailing zeros: 0.012, 1, 1,230, 10⁻⁶, ∞."""
    mantissa, times, power = figure(value, side, digits).partition(_TIMES_TEN)
    mantissa = trimmed(mantissa)
    return f"10{power}" if times and mantissa == "1" else f"{mantissa}{times}{power}"


def percent(probability: float, side: Side = "nearest") -> str:
    """Return a share with one decimal; only 0 and 1 are shown as 0 % and 100 %.

    Bounds have more decimals near 0 and near 1.
    """
    check_probability(probability)
    if side == "up":
        return symbols(percent_at_most(probability))
    if side == "down":
        return symbols(percent_at_least(probability))
    if 0 < probability < 0.0005:
        return "< 0.1 %"
    if 0.9995 <= probability < 1:
        return "> 99.9 %"
    text = f"{100 * probability:.1f}"
    return f"{text.removesuffix('.0') if probability in (0, 1) else text} %"


def share(value: float) -> str:
    """Return a chosen share with all its digits: 50 %, 99.9 %, all."""
    return "all" if value == 1 else f"{plain(100 * decimal(value))} %"


def chance(probability: float) -> str:
    """Return a probability, rounded up: 1 in 10,000, or 95.2 in 100 where it exceeds ½."""
    check_probability(probability)
    if probability == 0:
        return "0"
    if probability > 0.5:
        return out_of(probability)
    times = significant(1 / decimal(probability), 3, "down")
    if times > _LARGEST_COUNT:
        return f"1 in 10^{times.adjusted()}"
    return f"1 in {plain(times)}"


def chosen_chance(probability: float) -> str:
    """Return a chosen probability, not rounded: 1 in 1,000, or as a share where it is no 1 in k."""
    check_probability(probability)
    times = round(1 / probability) if probability * _LARGEST_COUNT >= 1 else 0
    is_one_in = times > 1 and 1 / times == probability
    return f"1 in {count(times)}" if is_one_in else share(probability)


def in_words(text: str) -> str:
    """Return an upper bound in words: at most 73.2 %, or less than 100 % for "< 100 %"."""
    if text.startswith("fewer than "):
        return text
    below = text.removeprefix("< ")
    return f"at most {text}" if below == text else f"less than {below}"


def out_of(probability: float, side: Side = "up") -> str:
    """Return a share as 2.8 in 100, or in 1,000 and so on where it is smaller.

    It is rounded up or down, or not rounded ("nearest") unless it is below 10⁻⁹.
    """
    check_probability(probability)
    if probability == 0:
        return "0 in 100"
    number = decimal(probability)
    # 0.9 in 100 is 9 in 1,000.
    power = max(2, -number.adjusted())
    if power > 9:
        return f"a share of {_bound(probability, 2, side)} of the"
    scaled = number.scaleb(power)
    count = scaled.quantize(Decimal("0.1"), _DIRECTIONS[side]) if side != "nearest" else scaled
    if count >= 10**power and probability < 1:
        return f"fewer than {10**power:,} in {10**power:,}"
    return f"{plain(count)} in {10**power:,}"


def range_text(low: float, high: float) -> str:
    """Return the range of a column, its ends rounded outwards: 0 to 2,000,000, −1.5 to 0.333334.

    An end has six digits, and more where its whole part needs them. Its last digits are those of
    rounding: 14.999999999999996 is 15.
    """

    def end(value: float, side: Side) -> str:
        exact = significant(value, 12)
        digits = max(6, exact.adjusted() + 2)
        return plain(significant(exact, digits, side), most=15).replace("-", "−", 1)

    return f"{end(low, 'down')} to {end(high, 'up')}"


def certainty(log_odds: float) -> str:
    """Return the posterior at these log odds, rounded up; 100 % only where they are infinite."""
    return symbols(certainty_at_most(log_odds))


def posterior_at(log_odds: float) -> float:
    """Return the posterior at these log odds: 0 or 1 where they are infinite, and only there."""
    if math.isinf(log_odds):
        return float(log_odds > 0)
    odds = math.exp(-abs(log_odds))
    posterior = 1 / (1 + odds) if log_odds >= 0 else odds / (1 + odds)
    return min(max(posterior, 5e-324), math.nextafter(1.0, 0.0))


def interval(
    value: float, low: float, high: float, places: int = 3, *, percent: bool = False
) -> str:
    """Return an estimate to the nearest, with the ends of its interval rounded outwards."""
    text = interval_text(value, low, high, places, percent=percent, to="to").replace("-", "−")
    return text.replace(")", " %)").replace(" (", " % (") if percent else text


def symbols(text: str) -> str:
    """Return a sentence with ε for epsilon and 10⁻⁵ for 1e-05."""

    def power(match: re.Match[str]) -> str:
        times = "" if match[1] == "1" else f"{match[1]} × "
        return f"{times}10{str(int(match[2])).translate(_SUPERSCRIPTS)}"

    spelled = _SPELLED.sub(lambda match: _GREEK[match[1]], text)
    return _EXPONENT.sub(power, spelled)
