"""What docstrings say of a notion and of its fields, for the schema of its JSON."""

import re
from collections.abc import Collection
from inspect import cleandoc

__all__ = ["described"]

# How a docstring begins to tell of one field, or of several.
_ABOUT = re.compile(r"((?:``[\w, ]+``,? ?)+) (.*)")


def described(notion: type, names: Collection[str] = ()) -> tuple[str, dict[str, str]]:
    """What docstrings say of the whole, and of ``names``: lines like "``name``  what it is".

    A line that is indented goes on with what stands above it. The first line is of the whole; of
    fields that a class inherits its bases tell.
    """
    told: dict[str, list[str]] = {}
    whole: list[str] = []
    for each in reversed(notion.__mro__[:-1]):
        current = whole = []
        for place, line in enumerate(cleandoc(each.__doc__ or "").splitlines()):
            about = _ABOUT.match(line) if place else None
            words = re.findall(r"\w+", about[1]) if about else []
            if about and set(words) <= set(names):
                current = [about[2]]
                told |= dict.fromkeys(words, current)
            else:
                current = current if line.startswith(" ") else whole
                current.append(line)
    return _joined(whole), {name: _joined(lines) for name, lines in told.items()}


def _joined(lines: list[str]) -> str:
    text = re.sub(r":\w+:`~?([\w.]+\.)?(\w+)`", r"\2", " ".join(lines).replace("``", ""))
    text = " ".join(text.split())
    return re.sub(r"\bNone\b", "null", text)
