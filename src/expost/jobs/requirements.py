"""What our own metadata asks for, and whether a version satisfies it.

The bounds stand in pyproject.toml alone; here they are read from the installed metadata. Nothing
but the standard library is imported, for whatever else there is may be what is broken. Of markers
only ``extra == '…'`` is understood, which is all that our metadata has (a test sees to that).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

__all__ = ["Requirement", "parse_requirement", "satisfies"]

_SHAPE = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(;.*)?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_BOUND = re.compile(r"(>=|<=|==|!=|~=|>|<)\s*([^\s,]+)")
# A release is followed by nothing, or by what comes after it; 2.0rc1 and 2.0.dev3 come before 2.0.
_RELEASE = re.compile(r"v?(?:\d+!)?(\d+(?:\.\d+)*)(.*)", re.DOTALL)
_BEFORE = re.compile(r"[._-]?(?:a|b|c|rc|alpha|beta|pre|preview|dev)[._-]?\d*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """A distribution that is asked for; ``bounds`` as ">=2.0", ``extra`` None where always."""

    name: str
    bounds: str
    extra: str | None


def parse_requirement(text: str) -> Requirement | None:
    """One ``Requires-Dist`` of the metadata; None if it is none."""
    shaped = _SHAPE.fullmatch(text)
    if shaped is None:
        return None
    name, bounds, marker = shaped.groups()
    extra = _EXTRA.search(marker or "")
    return Requirement(
        name=name, bounds=bounds.replace(" ", ""), extra=None if extra is None else extra[1]
    )


def satisfies(version: str, bounds: str) -> bool:
    """Whether ``version`` keeps all of ``bounds``; a version that cannot be read keeps none."""
    return all(_keeps(version, sign, bound) for sign, bound in _BOUND.findall(bounds))


def _keeps(version: str, sign: str, bound: str) -> bool:
    wildcard = bound.endswith(".*")
    have, want = _parsed(version), _parsed(bound.removesuffix(".*"))
    if have is None or want is None:
        return False
    begins_so = _begins(have[0], want[0] if wildcard else want[0][:-1])
    match sign:
        case "==":
            return begins_so if wildcard else _compared(have, want) == 0
        case "!=":
            return not begins_so if wildcard else _compared(have, want) != 0
        case "~=":
            return _compared(have, want) >= 0 and begins_so
        case ">=":
            return _compared(have, want) >= 0
        case "<=":
            return _compared(have, want) <= 0
        case ">":
            return _compared(have, want) > 0
        case _:
            return _compared(have, want) < 0


def _parsed(text: str) -> tuple[list[int], bool] | None:
    """The numbers of a release, and whether it is one (and not what came before it)."""
    found = _RELEASE.fullmatch(text.strip())
    if found is None:
        return None
    return [int(part) for part in found[1].split(".")], _BEFORE.match(found[2]) is None


def _compared(have: tuple[list[int], bool], want: tuple[list[int], bool]) -> int:
    """−1, 0 or 1; 2.0 and 2.0.0 are the same, and rc1 and rc2 count as the same."""
    for left, right in zip_longest(have[0], want[0], fillvalue=0):
        if left != right:
            return 1 if left > right else -1
    return have[1] - want[1]


def _begins(have: Sequence[int], want: Sequence[int]) -> bool:
    padded = [*have, *[0] * len(want)]
    return padded[: len(want)] == list(want)
