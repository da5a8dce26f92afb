"""Writing and reading of pages.

A page is report.html; its folder also holds Markdown and JSON (summary.json), from which
``expost report`` combines several pages. The names and modes of all files follow the strictest
audience of the page's documents.
"""

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from expost.errors import InvalidInput
from expost.files.atomic import write_bytes
from expost.jobs.output import NOTHING_LEFT, check_page_folder, writing
from expost.jobs.requests import AnswerRequest
from expost.jobs.workspace import Workspace, held
from expost.report import Page, parse_json, render_html, render_json, render_markdown
from expost.types import Audience

__all__ = [
    "SUMMARIES",
    "check_answer",
    "files_at",
    "named_source",
    "read_page",
    "store_answer",
    "store_page",
    "write_page",
]

SUMMARIES = tuple(
    audience.file_name("summary", "json") for audience in (Audience.PUBLIC, Audience.CURATOR_ONLY)
)
# A summary of a hundred thousand rows takes 10 MB.
_LARGEST = 200_000_000


def files_at(paths: Iterable[Path], names: Iterable[str], missing: str) -> list[Path]:
    """Return these files, and of folders the files of these names; each once.

    A folder without any is refused, with what is ``missing`` and what to name instead.
    """
    files = []
    for path in paths:
        inside = [path / name for name in names if (path / name).exists()]
        if path.is_dir() and not inside:
            raise InvalidInput(f"{path}: holds no {missing}")
        files += inside or [path]
    return list({file.resolve(): file for file in files}.values())


def named_source(path: Path, audience: Audience, *, usual: str, what: str) -> str:
    """Return the name of a file as a page shows it as its source.

    A public page shows only the ``usual`` name, and ``what`` in place of any other name, which
    might reveal something about the data.
    """
    return path.name if audience is not Audience.PUBLIC or path.name == usual else what


def write_page(out: Path, page: Page) -> Path:
    """Write the page's JSON into its folder."""
    path = out / page.audience.file_name("summary", "json")
    return write_bytes(path, page.audience, render_json(page).encode())


def store_page(
    workspace: Workspace,
    page: Page,
    *,
    alone: bool = True,
    readers: Audience | None = None,
    remedy: str = NOTHING_LEFT,
) -> dict[str, Path]:
    """Write the page, its Markdown and its JSON: all of them, or none.

    Parameters
    ----------
    alone : bool, default=True
        Remove the results of an earlier run.
    readers : Audience, optional
        The audience that sets the mode of the files, if not that of the page.
    """
    out, audience = workspace.out, page.audience
    readers = audience if readers is None else readers
    contents = {
        "report": (audience.file_name("report", "html"), render_html(page)),
        "text": (audience.file_name("report", "md"), render_markdown(page)),
        "summary": (audience.file_name("summary", "json"), render_json(page)),
    }
    files: dict[str, Path] = {}
    with writing(out, remedy), workspace.all_or_none():
        for name, (file, content) in contents.items():
            files[name] = write_bytes(out / file, readers, content.encode())
        if alone:
            workspace.remove_results(keep=files.values())
    return files


def check_answer(request: AnswerRequest) -> None:
    """Refuse a folder for a page that cannot be written to, before any work."""
    if request.out is not None:
        check_page_folder(request.out, force=request.force)


def store_answer(
    request: AnswerRequest,
    inputs: Iterable[Path],
    store: Callable[[Workspace], dict[str, Path]],
) -> dict[str, Path]:
    """Write the page of an answer if it is requested, and return its files.

    Without a named folder the page is written to a new one that only its owner can open (mode
    0700).
    """
    if request.out is None and not request.open_page:
        return {}
    folder = request.out or Path(tempfile.mkdtemp(prefix="expost-"))
    with held(folder, force=request.force, inputs=inputs, page=True) as workspace:
        return store(workspace)


def read_page(path: Path) -> Page:
    """Return the page in a file, or raise :class:`InvalidInput` that names it in one sentence."""
    # Reading a pipe would block, and a device has no end.
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
