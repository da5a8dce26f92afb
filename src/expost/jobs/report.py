"""``expost report``: the summaries of other commands on one page.

Nothing is computed. Summaries are untrusted input: those that are damaged or do not belong together
are refused with one sentence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

from expost.errors import ExpostError, InvalidInput
from expost.jobs.output import check_page_folder
from expost.jobs.pages import SUMMARIES, files_at, read_page, store_page
from expost.jobs.requests import ReportRequest
from expost.jobs.workspace import Workspace, held
from expost.report import Page, render_text
from expost.report.compare import compared
from expost.report.document import Document
from expost.types import Neighbouring

__all__ = ["Outcome", "run"]

# Documents whose source is a table; the source of the others is a model or a guarantee.
_OF_A_TABLE = ("profile", "epsilon", "audit")
_MISSING = (
    f"summary of a result ({' or '.join(SUMMARIES)}); name a folder that expost profile, epsilon,"
    " publish, risk or audit wrote."
)
# The order of the documents of a page; others follow by name.
_ORDER = ("profile", "epsilon", "training", "audit", "audits", "published", "risk", "ledger")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The page and its files.

    ``left_out`` are the kinds of documents that a public page omits, ``reasons`` explain it.
    """

    page: Page
    files: dict[str, Path]
    read: tuple[Path, ...]
    left_out: tuple[str, ...]
    reasons: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return the lines that the command prints."""
        lines = [render_text(self.page), "", f"shown     {', '.join(self.page.kinds)}"]
        if self.left_out:
            lines += [f"left out  {', '.join(self.left_out)}: not public"]
            lines += [f"          {reason}" for reason in self.reasons]
        lines += ["", "Files", *(f"  {name:<9} {path}" for name, path in self.files.items())]
        return [*lines, "", f"Report: {self.files['report'].resolve()}"]


def run(job: ReportRequest) -> Outcome:
    """Run the job."""
    read = files_at(job.paths, SUMMARIES, _MISSING)
    _check_out(job, read)
    merged = _merged(read)
    page = compared(merged.public() if job.public else merged)
    left_out = [document for document in merged.documents if document.kind not in page.kinds]
    with held(job.out, force=job.force, inputs=read, page=True) as workspace:
        files = _stored(workspace, page)
    return Outcome(
        page=page,
        files=files,
        read=tuple(read),
        left_out=tuple(document.kind for document in left_out),
        reasons=tuple(d.why_not_public for d in left_out if d.why_not_public is not None),
    )


def _stored(workspace: Workspace, page: Page) -> dict[str, Path]:
    """Write the page; figures of a file may have valid types and still be impossible to show."""
    try:
        return store_page(workspace, page)
    except (ExpostError, OSError):
        raise
    # Templates and charts raise errors of their own.
    except Exception as error:  # noqa: BLE001 (see above)
        raise InvalidInput(
            f"summary: holds figures that cannot be shown ({type(error).__name__}); make it again"
            " with the command that wrote it."
        ) from None


def _check_out(job: ReportRequest, read: Sequence[Path]) -> None:
    """Refuse a folder that holds a release or an input, before any work."""
    for path in read:
        if path.resolve().parent == job.out.resolve():
            raise InvalidInput(
                f"out={str(job.out)!r}: {path} is in it, and would be written over; name another"
                " folder."
            )
    check_page_folder(job.out, force=job.force)


def _merged(files: Sequence[Path]) -> Page:
    """Return one page of all documents: one of each kind, and all of one table."""
    pages: list[Page] = []
    kept: dict[str, Path] = {}
    for file in files:
        page = read_page(file)
        for kind in page.kinds:
            if kind in kept:
                raise InvalidInput(
                    f"{file}: holds a result of the kind {kind!r}, and so does {kept[kind]}; a page"
                    " shows one, so make two pages."
                )
        kept |= dict.fromkeys(page.kinds, file)
        pages.append(page)
    whole = reduce(Page.merged, sorted(pages, key=lambda page: min(map(_rank, page.documents))))
    _check_together(whole, kept)
    return replace(whole, documents=tuple(sorted(whole.documents, key=_rank)))


def _rank(document: Document) -> tuple[int, str]:
    kind = document.kind
    return (_ORDER.index(kind) if kind in _ORDER else len(_ORDER), kind)


def _check_together(whole: Page, kept: dict[str, Path]) -> None:
    """Refuse documents that state different tables or models."""
    stated = [
        (document.source, kept[kind])
        for kind in _OF_A_TABLE
        if (document := whole.get(kind)) is not None and document.source is not None
    ]
    for source, path in stated[1:]:
        first, other = stated[0]
        if source != first:
            raise InvalidInput(
                f"{path}: is of {source!r}, and {other} of {first!r}; a page is of one table, so"
                " make two pages."
            )
    profile = whole.get("profile")
    if profile is None:
        return
    published, risk = whole.get("published"), whole.get("risk")
    if risk is not None and not _is_same_guarantee(profile, risk):
        raise InvalidInput(
            f"{kept['risk']}: is of another model than {kept['profile']} (epsilon differs); run"
            " expost risk on the model that was profiled, or make two pages."
        )
    removed = profile.facts.get("relation") == Neighbouring.REMOVE.value
    if published is not None and removed and not _is_same_model(profile, published):
        raise InvalidInput(
            f"{kept['published']}: is of another model than {kept['profile']} (rows or epsilon"
            " differ); publish the model that was profiled, or make two pages."
        )


def _is_same_guarantee(profile: Document, risk: Document) -> bool:
    """Return whether the guarantee may be that of the profiled model."""
    mine, theirs = profile.facts, risk.facts
    # At another δ, or for several releases, or where no model was named, ε is another figure.
    of_a_model = risk.source is not None and theirs.get("releases") == 1
    same_delta = theirs.get("delta") == (mine.get("delta") or 0.0)
    # A Gaussian scale is rounded up by 1e-6.
    return not (of_a_model and same_delta) or _close(
        mine.get("epsilon"), theirs.get("epsilon"), 1e-4
    )


def _is_same_model(profile: Document, published: Document) -> bool:
    """Return whether the published report may be of the profiled model."""
    mine, theirs = profile.facts, published.facts
    return mine.get("rows") == theirs.get("rows") and _close(
        mine.get("epsilon"), theirs.get("epsilon"), 1e-9
    )


def _close(first: object, second: object, tolerance: float) -> bool:
    """Return whether two figures agree; unknown figures agree with any."""
    if not isinstance(first, int | float) or not isinstance(second, int | float):
        return True
    return not math.isfinite(second) or math.isclose(first, second, rel_tol=tolerance)
