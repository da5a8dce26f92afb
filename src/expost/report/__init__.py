"""Reports: every result as a document, and renderers of documents.

``page_of(result, …)`` describes results once, as documents of sections and blocks
(:mod:`expost.report.document`). The renderers are pure functions: the same page, the same bytes.
"""

from typing import TYPE_CHECKING

from expost._lazy import importer
from expost.report.document import Context, Document, Origin, Page, Setting
from expost.report.registry import document_of, page_of

if TYPE_CHECKING:
    from expost.report.html import render_fragment, render_html
    from expost.report.markdown import render_markdown
    from expost.report.stored import parse_json, render_json
    from expost.report.text import render_text

__all__ = [
    "Context",
    "Document",
    "Origin",
    "Page",
    "Setting",
    "document_of",
    "page_of",
    "parse_json",
    "render_fragment",
    "render_html",
    "render_json",
    "render_markdown",
    "render_text",
]

__getattr__ = importer(
    "expost.report",
    {
        "parse_json": "stored",
        "render_fragment": "html",
        "render_html": "html",
        "render_json": "stored",
        "render_markdown": "markdown",
        "render_text": "text",
    },
)
