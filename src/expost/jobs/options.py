"""The description of an option of the command line, and the parsers of its values.

Nothing here imports numerics, so that ``--help`` is fast.
"""

import math
import re
from collections.abc import Callable
from dataclasses import KW_ONLY, MISSING, dataclass, fields
from typing import Any, get_type_hints

__all__ = ["Option", "flag_of", "number_or_auto", "numbers", "options_of"]
__all__ += [
    "read_baseline",
    "read_bytes",
    "read_id",
    "read_labels",
    "read_model_name",
    "read_range",
    "read_share",
]

# The panels of the help.
TABLE, MODEL, PERSONS = "Table", "Model", "Persons with several rows"
CRITERIA, RESULTS, WORK = "Criteria", "Results", "Work"
GUARANTEE, GOAL, FORECAST = "One guarantee", "Or one goal", "A forecast without data"
PANELS = (*(None, TABLE, MODEL, PERSONS, GUARANTEE, GOAL, FORECAST, CRITERIA, RESULTS, WORK),)


@dataclass(frozen=True)
class Option:
    """The description of a field of a request as an option of the command line.

    Attributes
    ----------
    help : str
        What the option does, its unit, and an example where the form is not obvious.
    panel : str, optional
        The panel of the help; None for positional arguments.
    flag : str, optional
        The name on the command line, if not that of the field.
    metavar : str, optional
        The placeholder of the value in the help.
    kind : Any, optional
        The type on the command line, if not that of the field.
    read : callable, optional
        Turns the string of the command line into a value; raises ValueError with a message.
    alone : str, optional
        The value of an option that is given without one.
    default : str, optional
        Description of a default that is not a single value. The command line has one for a field
        without a default: the folder of the results.
    choices, plug_ins : tuple[str, ...] | callable, str | None
        Values that the shell completes, or a function that lists them, and the entry points that
        add to them.
    """

    help: str
    panel: str | None = None
    _: KW_ONLY
    flag: str | None = None
    metavar: str | None = None
    kind: Any = None
    read: Callable[[str], Any] | None = None
    alone: str | None = None
    default: str | None = None
    choices: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    plug_ins: str | None = None


def options_of(request: type) -> dict[str, Option]:
    """Return the options of a request by their fields: by panel, required ones first."""
    hints = get_type_hints(request, include_extras=True)
    options = {name: hint.__metadata__[0] for name, hint in hints.items() if _is_option(hint)}
    defaults = {item.name: item.default is not MISSING for item in fields(request)}
    order = sorted(options, key=lambda name: (PANELS.index(options[name].panel), defaults[name]))
    return {name: options[name] for name in order}


def _is_option(hint: Any) -> bool:
    return isinstance(next(iter(getattr(hint, "__metadata__", ())), None), Option)


def flag_of(name: str, option: Option) -> str:
    """Return the name of an option on the command line, or the metavar of an argument."""
    if option.panel is None:
        return option.metavar or name.upper()
    return option.flag or "--" + name.replace("_", "-")


# -- parsers -------------------------------------------------------------------------------------

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


def read_bytes(text: str) -> int:
    """Return a number of bytes, as 500MB or 2GiB."""
    digits = text.strip().rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text.strip()[len(digits) :].strip().upper()
    try:
        size = float(digits) * _UNITS[unit]
    except (KeyError, ValueError):
        size = math.nan
    if not 0 <= size < 2**63:
        raise ValueError(f"{text!r} must be a number of bytes, as 500MB or 2GiB")
    return int(size)


def number_or_auto(least: str) -> Callable[[str], float | str]:
    """Return a parser of a number (``least`` is its range in words) or of the word auto."""

    def read(text: str) -> float | str:
        if text == "auto":
            return text
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"{text!r} must be a number {least} or 'auto'") from None

    return read


def numbers(example: str) -> Callable[[str], tuple[float, ...]]:
    """Return a parser of comma-separated numbers."""

    def read(text: str) -> tuple[float, ...]:
        try:
            return tuple(float(part) for part in text.split(","))
        except ValueError:
            raise ValueError(
                f"{text!r} must be numbers separated by commas, as {example}"
            ) from None

    return read


def read_share(text: str) -> float:
    """Return a share between 0 and 1."""
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise ValueError(f"{text!r} must be a share between 0 and 1, as 0.1")
    return share


def read_baseline(text: str) -> float | dict[str, float]:
    """Return a probability, as 0.001 or 1/1000, or one for each named risk."""
    parts = [part.split("=") for part in text.split(",")]
    if len(parts) == 1 and len(parts[0]) == 1:
        return read_fraction(text)
    if not all(len(part) == 2 for part in parts):
        raise ValueError(f"{text!r} must be a probability, or NAME=P separated by commas")
    names = [name.strip().replace("-", "_") for name, _ in parts]
    if len(set(names)) < len(names):
        raise ValueError(f"{text!r} must name each risk once")
    return {name: read_fraction(part[1]) for name, part in zip(names, parts, strict=True)}


def read_fraction(text: str) -> float:
    """Return a probability, as 0.001 or 1/1000."""
    over, slash, under = text.partition("/")
    try:
        value = float(over) / float(under) if slash else float(over)
    except (ValueError, ZeroDivisionError):
        value = math.nan
    if not 0 < value < 1:
        raise ValueError(f"{text!r} must be a probability between 0 and 1, as 0.001 or 1/1000")
    return value


def read_id(text: str) -> str:
    """Return an identifier of a licence, as apache-2.0."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", text):
        raise ValueError(f"{text!r} must be letters a to z, digits, points and hyphens, as mit")
    return text


def read_model_name(text: str) -> str:
    """Return the name of a model in a repository, as model or org/model."""
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", text):
        raise ValueError(f"{text!r} must be the name of a model, as income or org/income")
    return text


def read_range(text: str) -> tuple[float, float]:
    """Return two numbers, LOW,HIGH."""
    ends = numbers("0,100")(text)
    if len(ends) != 2:
        raise ValueError(f"{text!r} must be two numbers, as 0,100")
    return ends[0], ends[1]


def read_labels(text: str) -> tuple[str, ...]:
    """Return comma-separated labels."""
    labels = tuple(label.strip() for label in text.split(","))
    if len(labels) < 2:
        raise ValueError(f"{text!r} must be at least two labels, separated by commas")
    return labels
