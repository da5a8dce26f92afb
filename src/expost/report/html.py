"""Documents as self-contained HTML: pages, and fragments for notebooks.

Nothing comes from the network. The content policy allows the page's own style sheet and script by
their hashes and nothing else. Documents hold no markup: :func:`_text` escapes all text.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from expost.report.document import (
    NAVIGATION,
    YOUR_ROW,
    Block,
    Bullets,
    Code,
    Document,
    Facts,
    Fold,
    Heading,
    Page,
    Section,
    Table,
    Text,
    Widget,
    prose,
    table,
)
from expost.report.figure import Figure
from expost.report.svg import figure_key, panel_svg, role_css, spaced
from expost.types import Audience

__all__ = ["render_fragment", "render_html", "script", "style_sheet"]

# From files that know nothing of the others to the file that starts them all.
_SCRIPTS = ("numbers", "law", "slider", "chart", "search")
# Those of a page with a form.
_FORM_SCRIPTS = ("encoding", "losses", "bound", "form")
# Characters with a meaning in HTML or in a script at any position of JSON.
_ESCAPES = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}
# An option of a command: no line may end inside of it.
_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*)")
# Attributes that hold ids. Text has no quotes left: it is escaped.
_ID = re.compile(r'(?<![\w-])(id|for|href|aria-labelledby|aria-describedby|clip-path)="([^"]*)"')
_PREFIX_DIGITS = 12


def render_html(page: Page | Document) -> str:
    """Return the whole page; the same page gives the same bytes.

    Parameters
    ----------
    page : Page | Document
        The page, or one document.

    Returns
    -------
    str
        HTML in one file, without links to other files.
    """
    page = Page(documents=(page,)) if isinstance(page, Document) else page
    writer = _Writer(scripted=True)
    shown = [
        (section.nav, writer.section(section, document.kind))
        for document, section in _ordered(page)
    ]
    details = [html for nav, html in shown if nav == "Details"]
    data = _data_block(writer.data)
    style = style_sheet()
    source = script(form=any("form" in widgets for widgets in writer.data.values()))
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            bar=_audience(page.audience),
            navigation=_navigation(shown),
            leading=[html for nav, html in shown if nav == YOUR_ROW],
            sections=[html for nav, html in shown if nav not in (YOUR_ROW, "Details")],
            details=[*details, *_closing(page, writer)],
            people=_people,
            style=Markup(style),
            style_hash=_digest(style),
            data=data,
            script=Markup(source),
            script_hash=_digest(source),
        )
    )


def render_fragment(document: Document) -> str:
    """Return the overview, a figure and the brief sections for a notebook, without script.

    The style sheet applies under one class, and ids begin with a hash of the content, so that a
    fragment neither styles nor names anything else on the notebook's page.

    Parameters
    ----------
    document : Document
        The document of one result.

    Returns
    -------
    str
        HTML.
    """
    page = Page(documents=(document,))
    writer = _Writer(scripted=False, level=3)
    text = (
        _environment()
        .get_template("fragment.html")
        .render(
            page=page,
            bar=_audience(page.audience),
            leading=[],
            sections=[writer.section(section, document.kind) for section in _brief(page)],
            people=_people,
            style=Markup(style_sheet()),
        )
    )
    prefix = f"x{hashlib.sha256(text.encode()).hexdigest()[:_PREFIX_DIGITS]}-"
    head, tag, body = text.partition("</style>")
    return head + tag + _ID.sub(lambda match: _prefixed(match, prefix), body)


@cache
def style_sheet() -> str:
    """Return the style sheet of pages and fragments."""
    source = (files("expost.report") / "templates" / "style.css").read_text(encoding="utf-8")
    return source + role_css()


@cache
def script(*, form: bool = False) -> str:
    """Return the script of a page, with a ``form`` or without: one expression, no names left."""
    folder, names = (
        files("expost.report") / "scripts",
        (*_SCRIPTS, *(_FORM_SCRIPTS if form else ())),
    )
    body = "\n".join(
        (folder / f"{name}.js").read_text(encoding="utf-8") for name in (*names, "main")
    )
    if "</script" in body.lower() or "<!--" in body:
        raise AssertionError("a script must not contain what ends its block")
    return f"(() => {{\n'use strict';\n\n{body}}})();\n"


# -- blocks ----------------------------------------------------------------------------------------


@dataclass
class _Writer:
    """A writer of sections that collects the data of the page's script.

    Parameters
    ----------
    scripted : bool
        Whether the page has a script.
    level : int, default=2
        The level of the heading of a section.
    data : dict[str, dict[str, Any]], optional
        The data by kind of document and name of widget.
    """

    scripted: bool
    level: int = 2
    data: dict[str, dict[str, Any]] = field(default_factory=dict)
    _ids: dict[str, int] = field(default_factory=dict)

    def section(self, section: Section, kind: str) -> Markup:
        """Return a section; those under Details are closed."""
        key = self._unique(section.id)
        closed = section.nav == "Details"
        # Inside Details, sections are below its heading.
        level = self.level + closed
        blocks = self._blocks(section.blocks, kind, key, level + 1)
        if closed:
            return self.fold(section.title, blocks, key=key, level=level)
        return Markup(
            '<section class="card" aria-labelledby="{key}">\n'
            '<h{level} id="{key}">{title}</h{level}>\n{blocks}\n</section>'
        ).format(key=key, level=level, title=_text(section.title), blocks=blocks)

    def fold(self, title: str, blocks: Markup, *, key: str, level: int) -> Markup:
        """Return a part of the page that is closed at first, with a heading."""
        return Markup(
            '<details class="card">\n<summary><h{level} id="{key}">{title}</h{level}></summary>'
            '\n<div class="folded">\n{blocks}\n</div>\n</details>'
        ).format(key=key, level=level, title=_text(title), blocks=blocks)

    def _blocks(self, blocks: Iterable[Block], kind: str, anchor: str, level: int) -> Markup:
        return Markup("\n").join(self._block(block, kind, anchor, level) for block in blocks)

    def _block(self, block: Block, kind: str, anchor: str, level: int) -> Markup:
        match block:
            case Text(text=text, small=small):
                name = Markup(' class="quiet"') if small else ""
                return Markup("<p{}>{}</p>").format(name, _prose(text))
            case Heading(text=text):
                return Markup("<h{0}>{1}</h{0}>").format(level, _text(text))
            case Bullets(items=items):
                entries = (Markup("<li>{}</li>").format(_prose(item)) for item in items)
                return Markup("<ul>\n{}\n</ul>").format(Markup("\n").join(entries))
            case Facts(pairs=pairs):
                return _facts(pairs)
            case Code():
                return _code(block)
            case Table():
                return _table(block, anchor)
            case Figure():
                return self._figure(block, kind)
            case Fold(title=title, blocks=inner):
                return Markup(
                    '<details>\n<summary>{}</summary>\n<div class="folded">\n{}\n</div>\n</details>'
                ).format(_text(title), self._blocks(inner, kind, anchor, level))
            case Widget():
                return self._widget(block, kind, anchor, level)

    def _figure(self, figure: Figure, kind: str) -> Markup:
        key = self._unique(f"figure-{figure.key}")
        several = len(figure.panels) > 1
        panels = [
            Markup('<div class="panel">\n{}<div class="chart">\n{}\n</div>\n</div>').format(
                Markup('<p class="panel-title">{}</p>\n').format(_text(panel.title))
                if several
                else "",
                panel_svg(figure, panel, f"{key}-{index}"),
            )
            for index, panel in enumerate(figure.panels)
        ]
        caption = (
            Markup("\n<figcaption>{}</figcaption>").format(_prose(figure.caption))
            if figure.caption
            else ""
        )
        return Markup(
            '<figure data-document="{}" data-figure="{}">\n{}\n<div class="panels">\n{}\n</div>{}'
            "\n</figure>"
        ).format(kind, figure.key, figure_key(figure), Markup("\n").join(panels), caption)

    def _widget(self, widget: Widget, kind: str, anchor: str, level: int) -> Markup:
        """Return the widget; its script replaces all but the texts of its initial state."""
        if not self.scripted:
            return self._blocks(widget.blocks, kind, anchor, level)
        if widget.name in self.data.setdefault(kind, {}):
            raise AssertionError(f"a document has one {widget.name}")
        self.data[kind][widget.name] = widget.data
        texts = [block for block in widget.blocks if isinstance(block, Text)]
        others = [block for block in widget.blocks if not isinstance(block, Text)]
        return Markup(
            _environment()
            .get_template(f"{widget.name}.html")
            .render(
                data=widget.data,
                kind=kind,
                key=self._unique(widget.name),
                still=self._blocks(others, kind, anchor, level),
                notes=self._blocks(texts, kind, anchor, level),
                people=_people,
            )
        )

    def _unique(self, name: str) -> str:
        """Return an id that no other element of the page has."""
        name = re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-") or "part"
        number = self._ids[name] = self._ids.get(name, 0) + 1
        return name if number == 1 else f"{name}-{number}"


def _text(text: str) -> Markup:
    """Return text in which nothing is markup."""
    return escape(spaced(text))


def _prose(text: str) -> Markup:
    """Return text whose commands, and options of commands, are set as code."""
    return Markup(prose(text, _with_options, "<code>{}</code>".format))


def _with_options(text: str) -> str:
    return _OPTION.sub(r"<code>\1</code>", str(_text(text)))


def _facts(pairs: Iterable[tuple[str, str]]) -> Markup:
    entries = (
        Markup("<dt>{}</dt>\n<dd>{}</dd>").format(_text(name), _prose(value))
        for name, value in pairs
    )
    return Markup('<dl class="facts">\n{}\n</dl>').format(Markup("\n").join(entries))


def _code(code: Code) -> Markup:
    purpose = (
        Markup('<p class="purpose">{}</p>\n').format(_prose(code.purpose)) if code.purpose else ""
    )
    # No line ends inside a word, as after the hyphens of an option.
    words = (
        word if word.isspace() else Markup("<span>{}</span>").format(word)
        for word in re.split(r"(\s+)", code.text)
        if word
    )
    return Markup('{}<pre class="command" tabindex="0"><code>{}</code></pre>').format(
        purpose, Markup("").join(words)
    )


def _table(block: Table, anchor: str) -> Markup:
    # Numbers are flush right (n), except those that name the rows (k); text (t) has room.
    names = [
        ("k" if index == block.label else "n") if column.numeric else "t"
        for index, column in enumerate(block.columns)
    ]
    head = Markup("").join(
        Markup('<th scope="col" class="{}">{}</th>').format(name, _text(column.title))
        for name, column in zip(names, block.columns, strict=True)
    )
    lines = []
    for cells in block.cells:
        line = (
            Markup(
                '<th scope="row" class="{}">{}</th>'
                if index == block.label
                else '<td class="{}">{}</td>'
            ).format(names[index], _text(cell))
            for index, cell in enumerate(cells)
        )
        lines.append(Markup("<tr>{}</tr>").format(Markup("").join(line)))
    caption = (
        Markup("<caption>{}</caption>\n").format(_prose(block.caption)) if block.caption else ""
    )
    return Markup(
        '<div class="scroll" tabindex="0" role="group" aria-labelledby="{}"><table>\n{}'
        "<thead><tr>{}</tr></thead>\n<tbody>\n{}\n</tbody>\n</table></div>"
    ).format(anchor, caption, head, Markup("\n").join(lines))


# -- parts of a page -------------------------------------------------------------------------------


def _ordered(page: Page) -> list[tuple[Document, Section]]:
    pairs = [(document, section) for document in page.documents for section in document.sections]
    return sorted(pairs, key=lambda pair: NAVIGATION.index(pair[1].nav))


def _brief(page: Page) -> list[Section]:
    """Return the brief sections, and the first figure of the page where they have none."""
    brief = [section for section in page.sections if section.brief]
    if any(isinstance(block, Figure) for section in brief for block in section.blocks):
        return brief
    for section in page.sections:
        figures = [block for block in section.blocks if isinstance(block, Figure)]
        if figures:
            return [replace(section, blocks=(figures[0],)), *brief]
    return brief


def _navigation(shown: Iterable[tuple[str, Markup]]) -> list[tuple[str, str]]:
    """Return the entries that the page has, and the id that each leads to."""
    entries = {"Overview": "overview"}
    for nav, html in shown:
        key = re.search(r' id="([^"]+)"', html)
        if nav not in entries and key is not None:
            entries[nav] = key[1]
    entries.pop("Details", None)
    return [*entries.items(), ("Details", "details")]


def _closing(page: Page, writer: _Writer) -> list[Markup]:
    """Return the last parts of the details: settings, terms and versions."""
    parts: list[tuple[str, tuple[Block, ...]]] = []
    if page.settings:
        settings = table(
            page.settings,
            ("setting", lambda setting: setting.name, str),
            ("value", lambda setting: setting.value, str),
            ("origin", lambda setting: setting.origin.value, str),
        )
        parts.append(("Settings", (settings,)))
    if page.glossary:
        parts.append(("Terms", (Facts(pairs=page.glossary),)))
    if page.versions:
        parts.append(("Versions", (Facts(pairs=page.versions),)))
    return [
        writer.section(
            Section(id=title.lower(), title=title, blocks=blocks), page.documents[0].kind
        )
        for title, blocks in parts
    ]


def _audience(audience: Audience) -> Markup:
    """Return the bar with the audience."""
    word, colon, rest = audience.meaning.partition(":")
    name = audience.name.lower().replace("_", "-")
    return Markup('<p class="audience audience-{}" role="note"><strong>{}{}</strong>{}</p>').format(
        name, word, colon, rest
    )


# Twenty people in each row: a head, and a body below it.
_PERSON = "m3.4 0a1.9 1.9 0 1 0 .01 0zm-3.4 9.6v-2.2q0-2.6 2.4-2.6h2q2.4 0 2.4 2.6v2.2z"


def _people(filled: int, guessed: int = 0) -> Markup:
    """Return 100 people, ``filled`` of them filled; the first ``guessed`` in another colour."""
    places = [(10 * (index % 20) + 1.6, 12 * (index // 20) + 1.2) for index in range(100)]
    shapes = [f"M{x:g} {y:g}{_PERSON}" for x, y in places]
    groups = {"on": shapes[guessed:filled], "off": shapes[filled:]}
    if guessed:
        groups = {"guess": shapes[:guessed], **groups}
    paths = (
        Markup('<path class="{}" d="{}"/>').format(name, "".join(own))
        for name, own in groups.items()
    )
    return Markup(
        '<svg class="people" viewBox="0 0 200 62" role="img" aria-label="{0} of 100 people">'
        "{1}</svg>"
    ).format(filled, Markup("").join(paths))


def _data_block(data: Mapping[str, Mapping[str, Any]]) -> Markup | None:
    """Return the data of the script as JSON that cannot end its block; None without a script."""
    if not data:
        return None
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_ESCAPES))


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _prefixed(match: re.Match[str], prefix: str) -> str:
    """Return the attribute with every id in it prefixed."""
    name, value = match.groups()
    match name:
        case "href":
            value = re.sub(r"^#", f"#{prefix}", value)
        case "clip-path":
            value = re.sub(r"^url\(#", f"url(#{prefix}", value)
        case _:
            value = " ".join(prefix + each for each in value.split())
    return f'{name}="{value}"'


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("expost.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"text": _text, "prose": _prose, "code": _code}
    return environment
