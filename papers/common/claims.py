"""A paper's claims compared with the results: the verdict is decided by numbers, only here.

A claim is taken apart into checks, each of one number against one bound that stands in the code.
All pass: it holds. None passes: it does not hold. Otherwise it holds in part.
"""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

from expost import _checks
from expost.errors import InvalidInput
from expost.numbers import number

__all__ = ["Check", "Claim", "Verdict", "quote"]

_RELATIONS = ("<", "<=", ">=", "==")


class Verdict(Enum):
    """What the numbers say of a claim."""

    HOLDS = "holds"
    PARTLY = "holds in part"
    FAILS = "does not hold"


@dataclass(frozen=True, kw_only=True)
class Check:
    """``value`` stands in ``relation`` to ``bound``, or it does not; NaN never does."""

    what: str
    value: float
    relation: str
    bound: float

    def __post_init__(self) -> None:
        _checks.one_of("relation", self.relation, _RELATIONS)
        # Plain numbers, for JSON and for the page.
        object.__setattr__(self, "value", float(self.value))
        object.__setattr__(self, "bound", float(self.bound))

    @property
    def passed(self) -> bool:
        """Whether the relation holds."""
        match self.relation:
            case "<":
                return self.value < self.bound
            case "<=":
                return self.value <= self.bound
            case ">=":
                return self.value >= self.bound
            case _:
                return self.value == self.bound


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of a paper.

    ``key``      a letter.        ``where``    its place in the paper.
    ``says``     the claim.       ``outcome``  what came out, in a sentence or two.
    ``checks``   the numbers that decide it.
    ``figures``  the names of the exhibits that show it.
    """

    key: str
    says: str
    where: str
    outcome: str
    checks: tuple[Check, ...]
    figures: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.checks:
            raise InvalidInput(f"claim {self.key!r}: has no checks: must have at least one.")

    @property
    def verdict(self) -> Verdict:
        """Decided by the checks alone."""
        passed = sum(check.passed for check in self.checks)
        if passed == len(self.checks):
            return Verdict.HOLDS
        return Verdict.PARTLY if passed else Verdict.FAILS

    def to_json(self) -> dict[str, Any]:
        """Return every field and the verdict, as JSON values."""
        return {
            "key": self.key,
            "says": self.says,
            "where": self.where,
            "verdict": self.verdict.value,
            "found": self.outcome,
            "checks": [
                {
                    "what": check.what,
                    # Strict JSON has no NaN.
                    "value": check.value if math.isfinite(check.value) else None,
                    "relation": check.relation,
                    "bound": check.bound,
                    "passed": check.passed,
                }
                for check in self.checks
            ],
            "figures": list(self.figures),
        }


def quote(value: float) -> str:
    """Return a number for a sentence, or a remark that there is none."""
    return "not found" if math.isnan(value) else number(value)
