"""One summary of any results, made of parts; renderers only lay it out.

A part is what one result brings (see :class:`~expost.report.parts.Part`). Parts know nothing of
each other; what a page says about all of them is said here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from expost.errors import InvalidInput
from expost.report.audit_part import AuditPart
from expost.report.audits_part import AuditsPart
from expost.report.beliefs_part import BeliefsPart
from expost.report.comparison import compared, why_not_compared
from expost.report.epsilon_part import EpsilonPart
from expost.report.ledger_part import LedgerPart
from expost.report.parts import Choice, Headline, Part, installed
from expost.report.profile_part import ProfilePart
from expost.report.published_part import PublishedPart
from expost.report.risk_part import RiskPart
from expost.report.training_part import TrainingPart
from expost.types import Audience

__all__ = ["Summary"]

# From the strictest to the freest.
_STRICTNESS = (Audience.FAIL, Audience.REVIEW, Audience.PASS)
# Whose sentence stands on top of a page, by question; the others say theirs further down.
_EPSILON = (
    "epsilon",
    "profile",
    "training",
    "published",
    "risk",
    "audits",
    "audit",
    "beliefs",
    "ledger",
)
_EXPOSED = (
    "profile",
    "training",
    "epsilon",
    "beliefs",
    "published",
    "risk",
    "audit",
    "audits",
    "ledger",
)
_ADVICE = (
    "epsilon",
    "profile",
    "training",
    "published",
    "audit",
    "audits",
    "beliefs",
    "risk",
    "ledger",
)
_ASKED = (
    ("useless", _EXPOSED),
    ("epsilon", _EPSILON),
    ("exposed", _EXPOSED),
    ("advice", _ADVICE),
)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a report shows: the versions it was made with, and at most one part of each kind."""

    versions: tuple[tuple[str, str], ...]
    profile: ProfilePart | None = None
    epsilon: EpsilonPart | None = None
    beliefs: BeliefsPart | None = None
    risk: RiskPart | None = None
    published: PublishedPart | None = None
    training: TrainingPart | None = None
    audit: AuditPart | None = None
    audits: AuditsPart | None = None
    ledger: LedgerPart | None = None

    def __post_init__(self) -> None:
        if not self.parts:
            raise InvalidInput("summary: has no part; collect it from at least one result.")

    @classmethod
    def of(cls, parts: Mapping[str, Part], versions: Mapping[str, str] | None = None) -> Self:
        """A summary of ``parts`` by the names of its fields."""
        told = installed() if versions is None else versions
        by_name: dict[str, Any] = dict(parts)
        return cls(versions=tuple(told.items()), **by_name)

    @property
    def by_name(self) -> dict[str, Part]:
        """The parts that there are, by name, in the order of the page."""
        named = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: part for name, part in named if isinstance(part, Part)}

    @property
    def parts(self) -> tuple[Part, ...]:
        """The same without their names."""
        return tuple(self.by_name.values())

    @property
    def audience(self) -> Audience:
        """The strictest of the parts' marks."""
        return min((part.audience for part in self.parts), key=_STRICTNESS.index)

    @property
    def title(self) -> str:
        """What stands above the page."""
        return self.parts[0].title

    @property
    def answer(self) -> tuple[str, ...]:
        """At most four sentences: a useless model, which ε, the most exposed row, what to do."""
        # A guarantee that does not hold comes before a model that is of no use.
        alarm = any(part.headline.alarm for part in self.parts)
        asked = [pair for pair in _ASKED if not (alarm and pair[0] == "useless")]
        told = (self._first(question, order) for question, order in asked)
        return tuple(sentence for sentence in told if sentence is not None)

    def lead(self, part: Part) -> tuple[str, ...]:
        """The sentences that open a part's sections: its own, but for what the page has said."""
        said, top = part.headline, (*self.answer, *self._replaced)
        own = (said.useless, said.epsilon, said.exposed, said.advice)
        return (*(text for text in own if text is not None and text not in top), *part.answer)

    def _first(self, question: str, order: tuple[str, ...]) -> str | None:
        """What is said first: by an alarm, else of two parts together, else by one of them."""
        parts = self.by_name
        alarms = [part.headline for part in parts.values() if part.headline.alarm]
        above = alarms[:1] or self._of_both
        # What is wrong makes the other parts' figures doubtful too: they are told further down.
        headlines = (*above, *(parts[name].headline for name in order if name in parts))
        said = (getattr(headline, question) for headline in headlines)
        return next((sentence for sentence in said if sentence is not None), None)

    @property
    def _compared(self) -> Headline | None:
        if self.profile is None or self.epsilon is None:
            return None
        return compared(self.profile, self.epsilon)

    @property
    def _of_both(self) -> list[Headline]:
        """What speaks for a model and a choice of ε: both, else the model, which is there."""
        if self.profile is None or self.epsilon is None:
            return []
        return [self._compared or self.profile.headline]

    @property
    def _replaced(self) -> tuple[str | None, ...]:
        """Sentences that what the page says on top takes the place of."""
        headlines = [part.headline for part in self.parts]
        use = None if self.epsilon is None else self.epsilon.headline.epsilon
        if any(headline.alarm for headline in headlines):
            # Beside "do not release it" nothing may say how to.
            return (use, *(headline.advice for headline in headlines if not headline.alarm))
        if self.profile is None or self.epsilon is None or self._compared is None:
            return ()
        return (use, self.epsilon.headline.advice, self.profile.headline.advice)

    @property
    def models(self) -> tuple[str, ...]:
        """The models in one line each, once."""
        return tuple(dict.fromkeys(part.model for part in self.parts if part.model))

    @property
    def guarantee(self) -> tuple[str, ...]:
        """What is guaranteed, once."""
        return tuple(dict.fromkeys(line for part in self.parts for line in part.guarantee))

    @property
    def forecast(self) -> tuple[str, ...]:
        """What the noise leaves of the models, once."""
        return tuple(dict.fromkeys(line for part in self.parts for line in part.forecast))

    @property
    def sources(self) -> tuple[str, ...]:
        """File names and dates, once."""
        named = [", ".join(text for text in (p.source, p.made) if text) for p in self.parts]
        return tuple(dict.fromkeys(text for text in named if text))

    @property
    def choices(self) -> tuple[Choice, ...]:
        """All settings, once."""
        return tuple(dict.fromkeys(choice for part in self.parts for choice in part.choices))

    @property
    def notices(self) -> tuple[str, ...]:
        """All that the reader must know, once."""
        own = [notice for part in self.parts for notice in part.notices]
        if self.profile is not None and self.epsilon is not None:
            apart = why_not_compared(self.profile, self.epsilon)
            own = own if apart is None else [apart, *own]
        return tuple(dict.fromkeys(own))

    def public(self) -> "Summary":
        """The same with nothing but what is marked pass."""
        kept = {name: part.audience is Audience.PASS for name, part in self.by_name.items()}
        if not any(kept.values()):
            marks = ", ".join(f"{name}: {p.audience.value}" for name, p in self.by_name.items())
            raise InvalidInput(
                f"public: nothing here is marked pass ({marks}); publish the model with `expost"
                " publish`, or add what `expost risk --epsilon` says of its promise."
            )
        left_out: dict[str, Any] = {name: None for name, keep in kept.items() if not keep}
        return replace(self, **left_out)

    def merged(self, other: "Summary") -> "Summary":
        """Both in one; a kind of part that both have is refused."""
        twice = self.by_name.keys() & other.by_name.keys()
        if twice:
            raise InvalidInput(
                f"summary: there are two parts of the kind {sorted(twice)[0]!r}; a page shows one."
            )
        # The versions of the one that was made last are as good as any, but must not hide others.
        versions = tuple(dict.fromkeys((*self.versions, *other.versions)))
        parts: dict[str, Any] = dict(other.by_name)
        return replace(self, versions=versions, **parts)
