"""Notebooks as pages of the site: cells are Markdown, outputs are put in once that is HTML.

Text is escaped, pictures are data in the page, and HTML is taken from reports of expost alone: its
elements and attributes are compared with a list, and anything else is an error. So a page runs no
script of a notebook, and asks no other server for anything.
"""

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

# What render_fragment writes: text, tables and figures as SVG.
# fmt: off
ELEMENTS = frozenset({
    "caption", "circle", "clippath", "dd", "desc", "div", "dl", "dt", "figcaption", "figure", "g",
    "h2", "h3", "h4", "li", "line", "ol", "p", "path", "polygon", "polyline", "rect", "section",
    "span", "strong", "style", "svg", "table", "tbody", "td", "text", "th", "thead", "title", "tr",
    "ul",
})
ATTRIBUTES = frozenset({
    "class", "clip-path", "colspan", "cx", "cy", "d", "height", "id", "points", "r", "role",
    "rowspan", "scope", "tabindex", "text-anchor", "viewbox", "width", "x", "x1", "x2", "y", "y1",
    "y2",
})
# fmt: on
_PREFIXES = ("aria-", "data-")
# In a style sheet: what would fetch something.
_FETCHES = re.compile(r"@import|url\((?!['\"]?#)", re.IGNORECASE)
_SLOT = '<div class="notebook-output" data-output="{}"></div>'
_LINE_MAGIC = re.compile(r"^\s*[!%]", re.MULTILINE)


def markdown_of(path: Path) -> str:
    """Return the cells of a notebook as Markdown, with an empty element for each output."""
    parts = []
    for number, cell in enumerate(_cells(path)):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        # Commands after an exclamation mark are not Python.
        language = "ipython" if _LINE_MAGIC.search(source) else "python"
        parts.append(f"```{language}\n{source}\n```")
        if cell["outputs"]:
            parts.append(_SLOT.format(number))
    return "\n\n".join(parts) + "\n"


def with_outputs(page: str, path: Path) -> str:
    """Return the HTML of a page with the outputs of its notebook in their places."""
    for number, cell in enumerate(_cells(path)):
        if cell.get("outputs"):
            shown = "".join(_output(output) for output in cell["outputs"])
            slot = _SLOT.format(number)
            if slot not in page:
                raise ValueError(f"{path.name}: the page has no slot for the output {number}.")
            page = page.replace(slot, f'<div class="notebook-output">{shown}</div>')
    return page


def _cells(path: Path) -> list[dict]:
    return json.loads(path.read_text("utf-8"))["cells"]


def _output(output: dict) -> str:
    """Return the richest form of an output."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "text/html" in data:
        return checked("".join(data["text/html"]))
    text = html.escape("".join(data.get("text/plain", "")))
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f'<img alt="{text}" src="data:image/png;base64,{picture}">'
    return f"<pre><code>{text}</code></pre>"


def checked(fragment: str) -> str:
    """Return a fragment of a report; raise ValueError if it is none."""
    reader = _Reader()
    reader.feed(fragment)
    reader.close()
    if not fragment.lstrip().startswith('<div class="expost'):
        raise ValueError("HTML in a notebook must be a result of expost.")
    if reader.others:
        raise ValueError(f"HTML in a notebook has {', '.join(sorted(reader.others))}.")
    return fragment


class _Reader(HTMLParser):
    """Collects what is not on the lists."""

    def __init__(self) -> None:
        super().__init__()
        self.others: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ELEMENTS:
            self.others.add(f"<{tag}>")
        for name, text in attrs:
            if name not in ATTRIBUTES and not name.startswith(_PREFIXES):
                self.others.add(name)
            if _FETCHES.search(text or ""):
                self.others.add(f"{name}={text}")

    def handle_data(self, data: str) -> None:
        if self.lasttag == "style" and _FETCHES.search(data):
            self.others.add("a style that fetches something")

    def handle_comment(self, data: str) -> None:
        self.others.add("a comment")

    def handle_decl(self, decl: str) -> None:
        self.others.add("a declaration")

    def handle_pi(self, data: str) -> None:
        self.others.add("a processing instruction")

    def unknown_decl(self, data: str) -> None:
        self.others.add("a declaration")
