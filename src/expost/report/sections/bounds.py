"""Bounds as text, rounded in the safe direction."""

from expost.numbers import figure, number, percent
from expost.numbers import in_words as at_most

__all__ = ["at_most", "cell_down", "cell_up", "exception", "up"]


def exception(probability: float) -> str:
    """Return when a bound may fail: except with probability 0.0099 %; or "" if never."""
    return f"except with probability {percent(probability, 'up')}" if probability > 0 else ""


def up(value: float, digits: int = 3) -> str:
    """Return an upper bound for a sentence."""
    return number(value, "up", digits)


def cell_up(value: float) -> str:
    """Return an upper bound for a column of figures."""
    return figure(value, "up")


def cell_down(value: float) -> str:
    """Return a lower bound for a column of figures."""
    return figure(value, "down")
