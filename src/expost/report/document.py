"""Results as documents: sections made of blocks, which renderers turn into any format.

A result is described once, by a function in :mod:`expost.report.sections` that returns a
:class:`Document`. HTML, Markdown, terminal text and JSON are renderings of it. Text from outside
(keys, names of columns) is plain text here; each renderer escapes it for its own format.

A :class:`Page` shows one document or several.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal

from expost.errors import InvalidInput
from expost.groups.columns import printable
from expost.report.figure import Figure
from expost.types import Audience

__all__ = [
    "Alert",
    "Block",
    "Bullets",
    "Code",
    "Column",
    "Context",
    "Document",
    "Facts",
    "Fold",
    "Heading",
    "Origin",
    "Page",
    "Section",
    "Setting",
    "Table",
    "Text",
    "Tile",
    "Verdict",
    "Widget",
    "one_line",
    "prose",
    "table",
]

_LONGEST_TEXT = 2000
# A command inside a sentence: `expost epsilon --max-posterior`.
_COMMAND = re.compile(r"`(expost(?: [a-z-]+)*)`")
# The first clause of a notice, which ends in a colon or a full stop, and the rest.
_CLAUSE = re.compile(r"(.+?(?:[.:](?=\s)|$))\s*(.*)")
# Sections under this entry stand above the figures of the overview.
YOUR_ROW = "Your row"
# Navigation: sections of a page are shown in this order.
NAVIGATION = (
    YOUR_ROW,
    "Overview",
    "Not done",
    "Tested",
    "Proved",
    "Exposure",
    "Attacks",
    "Groups",
    "Find a row",
    "Utility",
    "Guarantee",
    "Ledger",
    "Details",
)
Scalar = str | int | float | bool | None
Tone = Literal["good", "caution", "bad", "plain"]
Severity = Literal["problem", "review", "note"]
_SEVERITIES: tuple[Severity, ...] = ("problem", "review", "note")
# Tiles that come first, by the beginnings of their labels, and how many a page shows.
_LEADING, _TILES = ("Useful?", "Guarantee", "Most exposed"), 4
_STRICTNESS = (Audience.CURATOR_ONLY, Audience.NEEDS_REVIEW, Audience.PUBLIC)


# -- blocks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Text:
    """A paragraph; ``small`` for remarks below a table or chart."""

    text: str
    small: bool = False


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A heading inside a section."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Bullets:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Pairs of a name and a value."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Code:
    """A command to type, and what it is for."""

    text: str
    purpose: str = ""


@dataclass(frozen=True, kw_only=True)
class Column:
    """The heading of a column, and whether its cells are numbers (set flush right)."""

    title: str
    numeric: bool = True


@dataclass(frozen=True, kw_only=True)
class Table:
    """Formatted cells, and the unformatted ``values`` behind them.

    ``label`` is the index of the column that names each row; ``caption`` describes the table.
    """

    columns: tuple[Column, ...]
    cells: tuple[tuple[str, ...], ...]
    values: tuple[tuple[Scalar, ...], ...] = ()
    caption: str = ""
    label: int = 0


@dataclass(frozen=True, kw_only=True)
class Widget:
    """An interactive part of the page.

    ``name`` is "slider", "search" or "form"; ``data`` is what the script reads, as strict JSON;
    ``blocks`` show its initial state, in every format and where no script runs.
    """

    name: Literal["slider", "search", "form"]
    data: Mapping[str, Any]
    blocks: tuple["Block", ...] = ()


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Blocks that are shown closed under a title."""

    title: str
    blocks: tuple["Block", ...]


Block = Text | Heading | Bullets | Facts | Code | Table | Figure | Widget | Fold


def table(
    items: Iterable[Any],
    *columns: tuple[str, Callable[[Any], Any], Callable[[Any], str]] | None,
    caption: str = "",
    label: int = 0,
) -> Table:
    """Return a table with one row for each item.

    Parameters
    ----------
    items : iterable
        The rows.
    *columns : tuple or None
        The title of a column, a function from an item to its value, and a function from the value
        to its text (``str`` for a column of text). None: the column is left out. A value of None
        is shown as "–".
    caption, label : str, int
        As in :class:`Table`.
    """
    shown = [column for column in columns if column is not None]
    values = tuple(tuple(value(item) for _, value, _ in shown) for item in items)
    cells = tuple(
        tuple(
            "–" if value is None else text(value)
            for value, (_, _, text) in zip(row, shown, strict=True)
        )
        for row in values
    )
    titles = tuple(Column(title=title, numeric=text is not str) for title, _, text in shown)
    return Table(columns=titles, cells=cells, values=values, caption=caption, label=label)


def prose(text: str, words: Callable[[str], str], command: Callable[[str], str]) -> str:
    """Return a sentence, with its commands in backticks and its other words rendered apart."""
    parts = _COMMAND.split(text)
    return "".join((command if index % 2 else words)(part) for index, part in enumerate(parts))


# -- documents -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Section:
    """A titled sequence of blocks.

    Parameters
    ----------
    id : str
        The anchor, unique on a page.
    nav : str
        One of ``NAVIGATION``: the position of the section, and the link to it. Sections
        under "Your row" come before the figures of the overview, those under "Details" are shown
        closed.
    brief : bool
        Whether the terminal and notebooks show the section too.
    """

    id: str
    title: str
    blocks: tuple[Block, ...]
    nav: str = "Details"
    brief: bool = False

    def __post_init__(self) -> None:
        if self.nav not in NAVIGATION:
            raise InvalidInput(f"nav={self.nav!r}: must be one of {', '.join(NAVIGATION)}.")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result and the decision.

    Parameters
    ----------
    text : str
        The result and the decision in one sentence.
    more : str, default=""
        A remark.
    tone : Tone, default="plain"
        The colour of the verdict.
    priority : int, default=0
        Of several verdicts on a page the one with the largest comes first.
    """

    text: str
    more: str = ""
    tone: Tone = "plain"
    priority: int = 0


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One figure at the top of a page.

    Parameters
    ----------
    label : str
        What the figure is of.
    value : str
        The figure, as displayed.
    lines : tuple[str, ...], default=()
        Short remarks below it.
    tone : Tone, default="plain"
        The colour of the figure.
    people : int, optional
        Of 100 people, how many are drawn filled; None: no icon array.
    """

    label: str
    value: str
    lines: tuple[str, ...] = ()
    tone: Tone = "plain"
    people: int | None = None


@dataclass(frozen=True, kw_only=True)
class Alert:
    """A notice to the reader: a title, a sentence, and its severity."""

    severity: Severity
    title: str
    text: str = ""

    @classmethod
    def of(cls, severity: Severity, notice: str) -> "Alert":
        """Return a notice as an alert: its first clause is the title."""
        notice = one_line(notice)
        clause = _CLAUSE.match(notice)
        title, text = (notice, "") if clause is None else clause.groups()
        return cls(severity=severity, title=title, text=text)


class Origin(Enum):
    """Where a setting comes from."""

    GIVEN = "given"
    DEFAULT = "default"
    RULE = "by rule, from public numbers alone"
    MODEL = "of the model"
    READ = "read from the data"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting that the result depends on; what was read from the data is not private.

    Parameters
    ----------
    name : str
        The name of the setting.
    value : str
        Its value, as displayed.
    origin : Origin
        Where the value comes from.
    """

    name: str
    value: str
    origin: Origin


@dataclass(frozen=True, kw_only=True)
class Context:
    """What the caller adds to a result's document: settings, notices, a file name and a date.

    The clock is not read, so that the same input gives the same page.

    Parameters
    ----------
    settings : tuple[Setting, ...], default=()
        Settings of the caller that the result depends on.
    notices : tuple[str, ...], default=()
        Sentences for the reader.
    source : str, optional
        A file name to show.
    made : str, optional
        A date to show.
    """

    settings: tuple[Setting, ...] = ()
    notices: tuple[str, ...] = ()
    source: str | None = None
    made: str | None = None


@dataclass(frozen=True, kw_only=True)
class Document:
    """One result.

    Parameters
    ----------
    kind : str
        The kind of the result: a page shows one document of each kind.
    title : str
        The title of the page where this is its first document.
    audience : Audience
        Who may read it.
    subtitle : tuple of str
        The model and the data, in short phrases.
    verdict : Verdict or None
        The result and the decision.
    tiles : tuple of Tile
        At most four figures.
    alerts : tuple of Alert
        Notices to the reader.
    steps : tuple of Code
        What to do next: one command, at most two.
    sections : tuple of Section
        Everything else.
    settings : tuple of Setting
        Every setting the figures depend on.
    glossary : tuple of (str, str)
        Terms that the document uses.
    source, made : str or None
        A file name and a date, if the caller gave them.
    facts : mapping
        Scalars that several documents of a page are compared by.
    why_not_public : str or None
        Why a public page omits the document, if the audience alone does not explain it.
    """

    kind: str
    title: str
    audience: Audience
    subtitle: tuple[str, ...] = ()
    verdict: Verdict | None = None
    tiles: tuple[Tile, ...] = ()
    alerts: tuple[Alert, ...] = ()
    steps: tuple[Code, ...] = ()
    sections: tuple[Section, ...] = ()
    settings: tuple[Setting, ...] = ()
    glossary: tuple[tuple[str, str], ...] = ()
    source: str | None = None
    made: str | None = None
    facts: Mapping[str, Scalar] = field(default_factory=dict)
    why_not_public: str | None = None

    def __post_init__(self) -> None:
        read = any(setting.origin is Origin.READ for setting in self.settings)
        if self.audience is Audience.PUBLIC and read:
            raise InvalidInput("settings: one was read from the data, so this cannot be public.")

    def within(self, context: Context | None) -> "Document":
        """Return the document with what the caller adds to it.

        Parameters
        ----------
        context : Context | None
            The additions; None: there are none.

        Returns
        -------
        Document
            A new document.
        """
        if context is None:
            return self
        settings = tuple(
            Setting(name=one_line(s.name), value=one_line(s.value), origin=Origin(s.origin))
            for s in context.settings
        )
        known = {(alert.title, alert.text) for alert in self.alerts}
        noted = (Alert.of("note", notice) for notice in context.notices)
        added = (alert for alert in noted if (alert.title, alert.text) not in known)
        return replace(
            self,
            settings=(*self.settings, *settings),
            alerts=_unique(self.alerts, added),
            source=self.source if context.source is None else one_line(context.source),
            made=self.made if context.made is None else one_line(context.made),
        )

    @property
    def figures(self) -> dict[str, Figure]:
        """Every figure of the document by its key."""
        blocks = (block for section in self.sections for block in _flat(section.blocks))
        return {block.key: block for block in blocks if isinstance(block, Figure)}


@dataclass(frozen=True, kw_only=True)
class Page:
    """One document or several, each of another kind, with the versions they were made with.

    Parameters
    ----------
    documents : tuple[Document, ...]
        The documents, at most one of each kind.
    versions : tuple[tuple[str, str], ...], default=()
        Names of packages and their versions.
    """

    documents: tuple[Document, ...]
    versions: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.documents:
            raise InvalidInput("page: has no document; give at least one result.")
        kinds = [document.kind for document in self.documents]
        twice = next((kind for kind in kinds if kinds.count(kind) > 1), None)
        if twice is not None:
            raise InvalidInput(
                f"page: there are two results of the kind {twice!r}; a page shows one."
            )

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the documents."""
        return tuple(document.kind for document in self.documents)

    @property
    def audience(self) -> Audience:
        """The strictest audience of the documents."""
        return min((document.audience for document in self.documents), key=_STRICTNESS.index)

    @property
    def title(self) -> str:
        """The title of the first document."""
        return self.documents[0].title

    @property
    def subtitle(self) -> tuple[str, ...]:
        """Model and data, each phrase once."""
        return _unique(*(document.subtitle for document in self.documents))

    @property
    def sources(self) -> tuple[str, ...]:
        """File names and dates, each once."""
        named = (
            ", ".join(text for text in (document.source, document.made) if text is not None)
            for document in self.documents
        )
        return _unique(text for text in named if text)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts of the documents, the first one first."""
        verdicts = [d.verdict for d in self.documents if d.verdict is not None]
        return tuple(sorted(verdicts, key=lambda verdict: -verdict.priority))

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """The tiles of the documents: one of each label, and four in all."""
        by_label: dict[str, Tile] = {}
        for document in self.documents:
            for tile in document.tiles:
                by_label.setdefault(tile.label, tile)
        leading = sorted(by_label.values(), key=lambda tile: not tile.label.startswith(_LEADING))
        return tuple(leading[:_TILES])

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """All alerts, the most severe first, each once."""
        alerts = _unique(*(document.alerts for document in self.documents))
        return tuple(sorted(alerts, key=lambda alert: _SEVERITIES.index(alert.severity)))

    @property
    def steps(self) -> tuple[Code, ...]:
        """What to do next, by the document whose verdict comes first."""
        ranked = sorted(
            self.documents, key=lambda d: -d.verdict.priority if d.verdict is not None else 1
        )
        return next((document.steps for document in ranked if document.steps), ())

    @property
    def sections(self) -> tuple[Section, ...]:
        """All sections in the order of the navigation."""
        sections = [section for document in self.documents for section in document.sections]
        return tuple(sorted(sections, key=lambda section: NAVIGATION.index(section.nav)))

    @property
    def settings(self) -> tuple[Setting, ...]:
        """All settings, each once."""
        return _unique(*(document.settings for document in self.documents))

    @property
    def glossary(self) -> tuple[tuple[str, str], ...]:
        """All terms, each once."""
        return _unique(*(document.glossary for document in self.documents))

    def get(self, kind: str) -> Document | None:
        """Return the document of this kind, or None.

        Parameters
        ----------
        kind : str
            The kind, such as "profile".

        Returns
        -------
        Document | None
            The document; None if the page has none of this kind.
        """
        return next((document for document in self.documents if document.kind == kind), None)

    def public(self) -> "Page":
        """Return the page with its public documents alone.

        Returns
        -------
        Page
            A new page.

        Raises
        ------
        InvalidInput
            If no document is public.
        """
        public = tuple(d for d in self.documents if d.audience is Audience.PUBLIC)
        if not public:
            audiences = ", ".join(f"{d.kind}: {d.audience.value}" for d in self.documents)
            reasons = [d.why_not_public for d in self.documents if d.why_not_public is not None]
            remedy = reasons[0] if reasons else "publish the model with `expost publish`"
            raise InvalidInput(
                f"public: nothing here is public ({audiences}); {remedy}, or add what `expost risk"
                " --epsilon` reports about its guarantee."
            )
        return replace(self, documents=public)

    def merged(self, other: "Page") -> "Page":
        """Return a page with the documents of both.

        Parameters
        ----------
        other : Page
            The page to add.

        Returns
        -------
        Page
            A new page.

        Raises
        ------
        InvalidInput
            If both have a document of one kind.
        """
        return Page(
            documents=(*self.documents, *other.documents),
            versions=_unique(self.versions, other.versions),
        )


def one_line(value: object) -> str:
    """Return untrusted text, printable and on one line."""
    return printable(value, _LONGEST_TEXT)


def _unique(*groups: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))


def _flat(blocks: Iterable[Block]) -> Iterable[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Fold | Widget):
            yield from _flat(block.blocks)
