"""What the summaries of all reports share."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import version

from expost._groups import printable

__all__ = ["Choice", "Origin", "installed", "one_line", "shown_choices"]

_PACKAGES = ("expost", "numpy", "scipy", "scikit-learn")
_LONGEST_TEXT = 2000


class Origin(Enum):
    """Where a choice comes from."""

    GIVEN = "given"
    DEFAULT = "default"
    RULE = "from n, d and epsilon alone"
    MODEL = "of the model"
    READ = "read from the data"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A setting that the result depends on; what was read from the data is not private."""

    name: str
    value: str
    origin: Origin


def one_line(value: object) -> str:
    """Text that came from outside, printable and on one line."""
    return printable(value, _LONGEST_TEXT)


def shown_choices(choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """The choices with texts that can be shown."""
    return tuple(
        Choice(name=one_line(c.name), value=one_line(c.value), origin=Origin(c.origin))
        for c in choices
    )


def installed() -> dict[str, str]:
    """The versions that a result depends on."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}
