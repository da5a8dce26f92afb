"""The hook of mkdocs.yml that puts the pages of the root and the notebooks on the site.

A link is written as the repository needs it, relative to the file that holds it: ``../SECURITY.md``
in docs/, ``docs/audit.md`` in README.md. On the site README.md is the first page and its neighbours
are pages beside those of docs/, and the notebooks of examples/ are pages too, so that all links are
rewritten here, and nowhere else. A link to a file that the site does not have is a warning, which
``--strict`` makes an error.
"""

import logging
import posixpath
import re
from pathlib import Path

from docs_notebooks import markdown_of, with_outputs
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
_ROOT = Path(__file__).parent.parent
NOTEBOOKS = {
    f"examples/{path.name}": f"examples/{path.stem}.md"
    for path in sorted((_ROOT / "examples").glob("*.ipynb"))
}
_SITE_PATHS = ROOT_PAGES | NOTEBOOKS
_REPOSITORY_PATHS = {page: source for source, page in _SITE_PATHS.items()}
_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
_log = logging.getLogger("mkdocs.hooks.docs_site")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root, and the notebooks."""
    for source, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(_ROOT / source)))
    for source, page in NOTEBOOKS.items():
        files.append(File.generated(config, page, content=markdown_of(_ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    uri = page.file.src_uri
    return _LINK.sub(lambda link: site_link(link[1], uri, files), markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the outputs of a notebook in their places."""
    source = _REPOSITORY_PATHS.get(page.file.src_uri)
    return with_outputs(html, _ROOT / source) if source in NOTEBOOKS else html


def site_link(link: str, page: str, files: Files) -> str:
    """``link`` of the site's ``page``, as the site needs it."""
    folder = posixpath.dirname(_REPOSITORY_PATHS.get(page, f"docs/{page}"))
    target = posixpath.normpath(posixpath.join(folder, link))
    path = _SITE_PATHS.get(target, target.removeprefix("docs/"))
    if files.get_file_from_path(path) is None:
        _log.warning("%s links to %s, which is not on the site", page, target)
        return link
    return posixpath.relpath(path, posixpath.dirname(page) or ".")
