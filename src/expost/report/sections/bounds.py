"""Bounds as text, rounded in the safe direction."""

from expost.numbers import figure, number

__all__ = ["at_most", "cell_down", "cell_up", "up"]


def up(value: float, digits: int = 3) -> str:
    """Return an upper bound for a sentence."""
    return number(value, "up", digits)


def cell_up(value: float) -> str:
    """Return an upper bound for a column of figures."""
    return figure(value, "up")


def cell_down(value: float) -> str:
    """Return a lower bound for a column of figures."""
    return figure(value, "down")


def at_most(text: str) -> str:
    """Return an upper bound in words: at most 73.2 %, or less than 100 % for "< 100 %"."""
    below = text.removeprefix("< ")
    return f"at most {text}" if below == text else f"less than {below}"
