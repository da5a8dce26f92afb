"""Everything that a report shows of a ledger: the releases of a data set, and what they spend.

File names came from outside; they are one line and printable here, and each renderer escapes them
for its own format.
"""

import math
from dataclasses import dataclass
from typing import Literal

from expost.report.parts import Part
from expost.report.risk_part import RiskWay
from expost.report.wording import count, number_up
from expost.types import Audience

__all__ = ["LedgerPart", "ListedRelease"]


@dataclass(frozen=True, kw_only=True)
class ListedRelease:
    """One release.

    ``listed``   when it was listed, in UTC; None where no ledger lists it.
    ``release``  how the checksum of its file begins;  ``what`` it is, in a few words.
    ``epsilon``, ``delta``  what it promises; ε is infinite where that is nothing.
    ``rows``     how many it was made from;  ``data`` a letter for them, the same for the same rows.
    """

    listed: str | None
    release: str
    what: str
    epsilon: float
    delta: float
    rows: int
    data: str
    file: str

    @property
    def epsilon_text(self) -> str:
        """As it was asked for."""
        return number_up(self.epsilon) if self.epsilon < math.inf else "no promise"


@dataclass(frozen=True, kw_only=True)
class LedgerPart(Part):
    """Every release of a data set. What they are of depends on the data: for a review.

    ``ways``  what each way of adding them up gives, under ``ways_heading``; none where one of them
              promises nothing.
    """

    releases: tuple[ListedRelease, ...]
    ways: tuple[RiskWay, ...]
    ways_heading: str
    audience: Literal[Audience.REVIEW] = Audience.REVIEW

    @property
    def title(self) -> str:
        """What stands above its page."""
        total = len(self.releases)
        return f"{count(total)} release{'' if total == 1 else 's'} of a data set"
