"""The pages that the tests open, by kind."""

from dataclasses import replace
from functools import cache

from expost.profiles.verb import profile
from expost.report import Context, Page, page_of, render_html
from expost.report.document import Document, Section, Text
from expost.types import Audience
from report.conftest import fitted
from report.epsilon_choices import chosen
from report.examples import every_block, every_page, hostile, profile_figure
from report.results import dossier, erasure, published

KINDS = (
    *("profile", "epsilon", "published", "certificate", "dossier", "every", "several", "public"),
)
PEOPLE = 240
# Adult has so many.
MANY = 48_842


def page(kind: str) -> str:
    """The page, as text."""
    return render_html(document_page(kind))


@cache
def document_page(kind: str) -> Page:
    """What the page of a kind shows."""
    match kind:
        case "profile":
            return _profiled(PEOPLE, [f"p{row:03}" for row in range(PEOPLE)])
        case "large":
            return _profiled(MANY, [f"person {row}" for row in range(MANY)])
        case "epsilon":
            return page_of(chosen("laplace"))
        case "published":
            return page_of(published())
        case "certificate":
            return page_of(erasure().certificate)
        case "dossier":
            return page_of(dossier())
        case "every":
            return every_page()
        case "hostile":
            return Page(documents=(hostile(),))
        case "several":
            other = replace(every_block(), kind="other", title="Another", steps=())
            return Page(documents=(*document_page("profile").documents, other))
        case "public":
            return Page(documents=(_public(),))
        case _:
            raise AssertionError(kind)


def _profiled(rows: int, ids: list[str]) -> Page:
    release, X, y, _ = fitted(rows=rows)
    context = Context(source="people.csv", made="16 November 2026")
    return page_of(profile(release, X, y, ids=ids), context=context, release=release)


def _public() -> Document:
    blocks = (Text(text="Independent of the data."), profile_figure([0.9, 0.5], [0.3, 0.2]))
    section = Section(id="guarantee", title="The guarantee", nav="Guarantee", blocks=blocks)
    return Document(
        kind="risk", title="What ε = 1 allows", audience=Audience.PUBLIC, sections=(section,)
    )
