"""Figures on a page and on the terminal, read back as exact numbers."""

import re
from decimal import Decimal

SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-")
NUMBER = (
    r"(?:[<>]\s)?[-−]?(?:10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+|\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?(?:\s×\s10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?)"
    r"(?:\s?%)?"
)


def read(text):
    """The number that a figure says, exactly."""
    text = text.replace("\\", "").replace(",", "").replace("\N{NO-BREAK SPACE}", " ")
    percent, text = text.endswith("%"), text.rstrip("% ").lstrip("<> ")
    mantissa, times, power = text.partition(" × 10")
    if not times and re.match(r"10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]", text):
        mantissa, power = "1", text[2:]
    exponent = int(power.translate(SUPERSCRIPTS)) if power else 0
    return Decimal(mantissa.translate(SUPERSCRIPTS)).scaleb(exponent - 2 * percent)
