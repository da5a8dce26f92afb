"""What the summaries of all reports share."""

import math
import platform
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import version
from typing import Any

from expost.errors import InvalidInput
from expost.groups.exposure import printable
from expost.types import Audience

__all__ = [
    "Choice",
    "Context",
    "Headline",
    "Origin",
    "Part",
    "installed",
    "known",
    "one_line",
    "shown_choices",
]

_PACKAGES = ("expost", "numpy", "scipy", "scikit-learn")
_LONGEST_TEXT = 2000


class Origin(Enum):
    """Where a choice comes from."""

    GIVEN = "given"
    DEFAULT = "default"
    RULE = "by rule, from public numbers alone"
    MODEL = "of the model"
    READ = "read from the data"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A setting that the result depends on; what was read from the data is not private."""

    name: str
    value: str
    origin: Origin


@dataclass(frozen=True, kw_only=True)
class Headline:
    """What a part has to say to the three questions of a page; None: nothing.

    ``useless``  that the model is no better than the base rate; said first.
    ``epsilon``  which ε was, or is to be, used.
    ``exposed``  how sure an attacker gets of the most exposed row.
    ``advice``   what to do.
    ``alarm``    whether the advice comes before that of other parts.
    """

    useless: str | None = None
    epsilon: str | None = None
    exposed: str | None = None
    advice: str | None = None
    alarm: bool = False


@dataclass(frozen=True, kw_only=True)
class Part(ABC):
    """What one result brings to a report; every part of a page has these.

    ``model``     the model in one line.
    ``headline``  its sentences for the top of the page.
    ``answer``    further sentences, with which its own sections begin.
    ``guarantee``  what is guaranteed, in sentences: its relation, and δ at other ε.
    ``forecast``  what the noise leaves of the model, in sentences.
    ``source``, ``made``  a file name and a date, if the caller gave them.
    ``audience``  for whom it is.
    """

    model: str
    headline: Headline
    answer: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()
    notices: tuple[str, ...] = ()
    guarantee: tuple[str, ...] = ()
    forecast: tuple[str, ...] = ()
    source: str | None = None
    made: str | None = None
    audience: Audience = Audience.FAIL

    def __post_init__(self) -> None:
        read = any(choice.origin is Origin.READ for choice in self.choices)
        if self.audience is Audience.PASS and read:
            raise InvalidInput("choices: one was read from the data, so that this cannot be pass.")

    @property
    @abstractmethod
    def title(self) -> str:
        """What stands above the page where this is its only part."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What whoever reports a result says of it: settings, warnings, a file name and a date.

    The clock is not read, so that the same input gives the same page.
    """

    choices: Sequence[Choice] = ()
    notices: Sequence[str] = ()
    source: str | None = None
    made: str | None = None

    def fields(self, *own: Iterable[str]) -> dict[str, Any]:
        """The fields of a :class:`Part` that say it, after the result's ``own`` notices."""
        notices = [notice for some in (*own, self.notices) for notice in some]
        return {
            "choices": shown_choices(self.choices),
            "notices": tuple(dict.fromkeys(one_line(notice) for notice in notices)),
            "source": None if self.source is None else one_line(self.source),
            "made": None if self.made is None else one_line(self.made),
        }


def one_line(value: object) -> str:
    """Text that came from outside, printable and on one line."""
    return printable(value, _LONGEST_TEXT)


def known(value: float) -> float | None:
    """A figure; None for NaN, which says that it is not known."""
    return None if math.isnan(value) else float(value)


def shown_choices(choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """The choices with texts that can be shown."""
    return tuple(
        Choice(name=one_line(c.name), value=one_line(c.value), origin=Origin(c.origin))
        for c in choices
    )


def installed() -> dict[str, str]:
    """The versions that a result depends on."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}
