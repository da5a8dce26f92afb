"""Everything that the report on an audit shows; renderers only lay it out.

It holds figures of attacks, of groups and of single rows, keyed by their ids, and no row's values.
Text that came from outside is one line and printable; each renderer escapes it for its own format.
"""

from dataclasses import dataclass
from typing import Literal

from expost.attacks.roc import Interval
from expost.report.audit_answer import Question
from expost.report.parts import Part
from expost.report.wording import count
from expost.types import Audience

__all__ = [
    "AttackLine",
    "AuditPart",
    "BoundLine",
    "CorrelationLine",
    "CurvePoint",
    "DisagreeingRow",
    "DisparityTable",
    "GroupLine",
    "ScatterPoint",
    "ToldShare",
    "VulnerableRow",
]


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One point of a ROC curve."""

    false_positive_rate: float
    true_positive_rate: float


@dataclass(frozen=True, kw_only=True)
class AttackLine:
    """One attack: ``words`` say what it does, ``curve`` is thinned out for drawing."""

    name: str
    words: str
    auc: Interval
    accuracy: Interval
    advantage: Interval
    tpr_at_1_percent: Interval
    tpr_at_01_percent: Interval
    curve: tuple[CurvePoint, ...]


@dataclass(frozen=True, kw_only=True)
class VulnerableRow:
    """One member; None where nothing is known, and no exposure where a model carries no noise.

    ``told_apart``     of one model with the row and one without, how often the right one is found.
    ``beyond_average`` its 2·told_apart − 1 over the members' mean of that.
    ``as_high``        the share of the others that the best attack gives at least its score.
    """

    rank: int
    key: str
    told_apart: float | None
    error: float | None
    beyond_average: float | None
    as_high: float
    exposure: float | None
    measured: float | None


@dataclass(frozen=True, kw_only=True)
class ToldShare:
    """``members`` that are told apart ``level`` of the time or more.

    ``mirrored``: those on the other side, at 1 − level or less. A row that nothing tells apart
    falls on either side with the same probability, so about as many members got there by luck.
    """

    level: float
    members: int
    mirrored: int


@dataclass(frozen=True, kw_only=True)
class GroupLine:
    """One group of a :class:`DisparityTable`; None where it is too small for a figure."""

    label: str
    members: int
    others: int
    auc: Interval | None
    found: Interval | None
    accused: Interval | None


@dataclass(frozen=True, kw_only=True)
class DisparityTable:
    """The best attack by class or group; ``spread``: whether two groups' intervals lie apart."""

    column: str
    attack: str
    false_positive_rate: float
    groups: tuple[GroupLine, ...]
    spread: bool
    notices: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CorrelationLine:
    """Spearman's rank correlation over ``rows`` members."""

    what: str
    value: float
    low: float
    high: float
    rows: int


@dataclass(frozen=True, kw_only=True)
class ScatterPoint:
    """One member: what theory says of it (see ``measure``), and how often it is told apart."""

    measured: float
    told_apart: float


@dataclass(frozen=True, kw_only=True)
class DisagreeingRow:
    """A member that theory and attacks rank differently; rank 1 is the most exposed."""

    key: str
    measured: float | None
    measured_rank: int
    told_apart: float | None
    attack_rank: int


@dataclass(frozen=True, kw_only=True)
class BoundLine:
    """What is proved about ε at δ, beside the ε that was promised there (None: no promise).

    ``most``     the largest ε that so many trials could have shown.
    ``rests_on`` the counts behind it, and what it takes for granted.
    """

    epsilon: float
    most: float
    delta: float
    confidence: float
    method: str
    rests_on: str
    sentence: str
    promised: float | None
    refutes: bool


@dataclass(frozen=True, kw_only=True)
class AuditPart(Part):
    """What a report on an audit shows. For the curator only.

    ``promise``          the model's promise in words, or None; ``promised`` its trade-off curve.
    ``advantage_bound``  what the promise allows an attack, in expectation; None without one.
    ``average``          the members' mean told_apart, or None; ``unknown`` members have none.
    ``measure``          what theory ranks members by, with its unit: typical exposure, or distance
                         where there is no noise; None where nothing is known of them.
    ``exposed``          whether members have an exposure, and not a distance alone.
    ``placed``           members with both figures, of whom ``scatter`` shows some.
    """

    # No other mark can be given, or read from a file.
    audience: Literal[Audience.FAIL] = Audience.FAIL
    members: int
    others: int
    references: int
    confidence: float
    best: str
    warning: str
    attacks: tuple[AttackLine, ...]
    skipped: tuple[tuple[str, str], ...]
    promise: str | None
    promise_refuted: bool
    advantage_bound: float | None
    promised: tuple[CurvePoint, ...]
    bounds: tuple[BoundLine, ...]
    vulnerable: tuple[VulnerableRow, ...]
    keyed: bool
    average: float | None
    unknown: int
    levels: tuple[ToldShare, ...]
    disparity: tuple[DisparityTable, ...]
    measure: str | None
    exposed: bool
    correlations: tuple[CorrelationLine, ...]
    scatter: tuple[ScatterPoint, ...]
    placed: int
    disagreements: tuple[DisagreeingRow, ...]
    questions: tuple[Question, ...]

    @property
    def title(self) -> str:
        """What stands above its page."""
        return f"What attacks get out of a model of {count(self.members)} rows"
