"""Numbers as a person reads them; never rounded to a certainty that is not there."""

import math
import re
from decimal import Decimal

from scipy.special import expit

from expost.forecast import Forecast
from expost.rounding import (
    Side,
    at_most,
    certainty_at_most,
    fixed,
    interval_text,
    percent_at_least,
    percent_at_most,
    significant,
    trimmed,
)

__all__ = [
    "certainty",
    "count",
    "end",
    "figure",
    "figure_down",
    "figure_up",
    "forecast_lines",
    "grouped",
    "interval",
    "number",
    "number_down",
    "number_up",
    "percent",
    "percent_down",
    "percent_up",
    "rate_interval",
    "share",
    "sure_text",
    "symbols",
    "uncertain",
    "upper",
]

# Between a number and its unit or sign.
_SPACE = "\N{NO-BREAK SPACE}"
_TIMES_TEN = f"{_SPACE}×{_SPACE}10"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LEAST_PLAIN = 1e-4
_GREEK = {"epsilon": "ε", "delta": "δ", "mu": "μ", "sigma": "σ"}
# Neither in an option's name nor in that of a parameter.
_SPELLED = re.compile(rf"(?<![\w.-])({'|'.join(_GREEK)})(?![\w=-])")
_EXPONENT = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]\d+)(?!\w)")
_PERCENT = re.compile(r"(?<=\d) %")
# Neither in a name nor behind a point.
_THOUSANDS = re.compile(r"(?<![\w.,])\d{4,}(?!\w)")


def count(value: int) -> str:
    """48842 as 48,842."""
    return f"{value:,}"


def figure(value: float, side: Side = "nearest") -> str:
    """Three digits, for a column: 0.0120, 1.00, 1,230, 1.20 × 10⁻⁷, ∞."""
    if math.isnan(value):
        raise ArithmeticError("a figure is not a number")
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    shown = significant(value, 3, side)
    sign, size, power = "−" if shown < 0 else "", abs(shown), shown.adjusted()
    if -4 <= power < 6:
        return f"{sign}{size:,.{max(0, 2 - power)}f}"
    return f"{sign}{size.scaleb(-power):.2f}{_TIMES_TEN}{str(power).translate(_SUPERSCRIPTS)}"


def figure_up(value: float) -> str:
    """The same of an upper bound, rounded up."""
    return figure(value, "up")


def figure_down(value: float) -> str:
    """The same of a lower bound, rounded down."""
    return figure(value, "down")


def number(value: float, side: Side = "nearest") -> str:
    """The same for a sentence, without idle zeros: 0.012, 1, 1,230, 1.2 × 10⁻⁷, ∞."""
    mantissa, times, power = figure(value, side).partition(_TIMES_TEN)
    return f"{trimmed(mantissa)}{times}{power}"


def number_up(value: float) -> str:
    """An upper bound for a sentence, rounded up."""
    return number(value, "up")


def number_down(value: float) -> str:
    """A lower bound for a sentence, rounded down."""
    return number(value, "down")


def percent(probability: float) -> str:
    """One decimal; what is not 0 or 1 never reads like it."""
    if not 0 <= probability <= 1:
        raise ArithmeticError("a probability lies outside of [0, 1]")
    if 0 < probability < 0.0005:
        return f"<{_SPACE}0.1{_SPACE}%"
    if 0.9995 <= probability < 1:
        return f">{_SPACE}99.9{_SPACE}%"
    text = f"{100 * probability:.1f}"
    return f"{text.removesuffix('.0') if probability in (0, 1) else text}{_SPACE}%"


def percent_up(probability: float) -> str:
    """An upper bound of a share, rounded up: one decimal, more near 0 and near 1."""
    return symbols(percent_at_most(probability)).replace(" ", _SPACE)


def percent_down(probability: float) -> str:
    """A lower bound of a share, rounded down: one decimal, more near 0."""
    return symbols(percent_at_least(probability)).replace(" ", _SPACE)


def share(value: float) -> str:
    """A share that was chosen, as it was: 50 %, 99.9 %, all."""
    return "all" if value == 1 else f"{100 * value:g}{_SPACE}%"


def symbols(text: str) -> str:
    """A sentence for the terminal as a page writes it: ε for epsilon, 10⁻⁵ for 1e-05."""

    def power(found: re.Match[str]) -> str:
        times = "" if found[1] == "1" else f"{found[1]}{_SPACE}×{_SPACE}"
        return f"{times}10{str(int(found[2])).translate(_SUPERSCRIPTS)}"

    spelled = _SPELLED.sub(lambda found: _GREEK[found[1]], text)
    return _PERCENT.sub(f"{_SPACE}%", _EXPONENT.sub(power, spelled))


def forecast_lines(forecast: Forecast | None) -> tuple[str, ...]:
    """What the noise leaves of a model, as a page writes it."""
    if forecast is None:
        return ()
    return tuple(symbols(f"{line[0].upper()}{line[1:]}") for line in forecast.lines())


def grouped(text: str) -> str:
    """A sentence for the terminal with the numbers in it as a page writes them: 1,810 for 1810."""
    return _THOUSANDS.sub(lambda found: count(int(found[0])), symbols(text))


def uncertain(belief: float) -> float:
    """A belief that is never 1, though the nearest float may be."""
    return min(float(belief), math.nextafter(1.0, 0.0))


def certainty(log_odds: float) -> float:
    """The belief at these log odds: certain where they are infinite, and only there."""
    belief = float(expit(log_odds))
    return max(uncertain(belief), 5e-324) if math.isfinite(log_odds) else belief


def upper(value: float, digits: int = 3) -> str:
    """A bound ≥ 0, rounded up: what is shown is still a bound."""
    if value == math.inf:
        return "∞"
    text = at_most(value, digits)
    # 10⁻⁵, and no zeros to be counted.
    return symbols(f"{Decimal(text):e}" if 0 < value < _LEAST_PLAIN and "e" not in text else text)


def sure_text(log_odds: float) -> str:
    """A belief by its log odds, rounded up; 100 % only where they are infinite."""
    return symbols(certainty_at_most(log_odds)).replace(" ", _SPACE)


def interval(value: float, low: float, high: float, places: int) -> str:
    """An estimate to the nearest, with the ends of its interval rounded outwards."""
    return interval_text(value, low, high, places, to="to").replace("-", "−")


def rate_interval(value: float, low: float, high: float) -> str:
    """The same of a share."""
    return f"{percent(value)} ({percent_down(low)} to {percent_up(high)})"


def end(value: float, places: int, side: Side) -> str:
    """An end of an interval with so many decimals."""
    return fixed(value, places, side).replace("-", "−")
