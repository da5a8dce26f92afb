"""The pages of a summary, written and read again.

A page is report.html; its folder also holds it as Markdown and the summary as JSON, from which
``expost report`` makes a page of several. All carry the mark of their strictest part in their names
and modes.
"""

from pathlib import Path

from expost.errors import InvalidInput
from expost.files.atomic import write_bytes
from expost.jobs.output import NOTHING_LEFT, writing
from expost.jobs.workspace import Workspace
from expost.report import Summary, parse_json, render_html, render_json, render_markdown
from expost.types import Audience

__all__ = [
    "SUMMARIES",
    "named_source",
    "read_summary",
    "store_page",
    "write_summary",
]

SUMMARIES = tuple(
    audience.file_name("summary", "json") for audience in (Audience.PASS, Audience.FAIL)
)
# A summary of a hundred thousand rows takes 10 MB.
_LARGEST = 200_000_000


def named_source(path: Path, mark: Audience, *, usual: str, what: str) -> str:
    """The file's name, which a page gives as its source; on one for everybody the ``usual`` alone.

    ``what`` stands in place of any other, which may tell of the data.
    """
    return path.name if mark is not Audience.PASS or path.name == usual else what


def write_summary(out: Path, summary: Summary) -> Path:
    """Write the summary into the folder of its page."""
    path = out / summary.audience.file_name("summary", "json")
    return write_bytes(path, summary.audience, render_json(summary).encode())


def store_page(
    workspace: Workspace,
    summary: Summary,
    *,
    alone: bool = True,
    readers: Audience | None = None,
    remedy: str = NOTHING_LEFT,
) -> dict[str, Path]:
    """Write the page, its Markdown and its JSON: all of them whole, or none.

    ``alone``    remove the results of an earlier run.
    ``readers``  whose mode the files have, if not that of the summary's mark.
    """
    out, mark = workspace.out, summary.audience
    readers = mark if readers is None else readers
    contents = {
        "report": (mark.file_name("report", "html"), render_html(summary)),
        "text": (mark.file_name("report", "md"), render_markdown(summary)),
        "summary": (mark.file_name("summary", "json"), render_json(summary)),
    }
    files: dict[str, Path] = {}
    with writing(out, remedy), workspace.all_or_none():
        for name, (file, content) in contents.items():
            files[name] = write_bytes(out / file, readers, content.encode())
        if alone:
            workspace.remove_results(keep=files.values())
    return files


def read_summary(path: Path) -> Summary:
    """The summary in a file, or :class:`InvalidInput` that names it in one sentence."""
    # A pipe would be waited for, and a device has no end.
    if path.exists() and not path.is_file():
        raise InvalidInput(f"{path}: is not a file; name a summary that expost wrote.")
    try:
        size = path.stat().st_size
        if not size <= _LARGEST:
            raise InvalidInput(
                f"{path}: is {size:,} bytes long, and a summary takes {_LARGEST:,} at most; name a"
                " summary that expost wrote."
            )
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None
    try:
        return parse_json(content)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
