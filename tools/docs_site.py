"""The hook of mkdocs.yml that puts the pages of the repository's root on the site.

A link is written as the repository needs it, relative to the file that holds it: ``../SECURITY.md``
in docs/, ``docs/audit.md`` in README.md. On the site README.md is the first page and its neighbours
are pages beside those of docs/, so that both kinds of link are rewritten here, and nowhere else. A
link to a file that the site does not have is a warning, which ``--strict`` makes an error.
"""

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
_REPOSITORY_PATHS = {page: source for source, page in ROOT_PAGES.items()}
_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
_log = logging.getLogger("mkdocs.hooks.docs_site")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root."""
    root = Path(config.config_file_path).parent
    for source, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(root / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    uri = page.file.src_uri
    return _LINK.sub(lambda link: site_link(link[1], uri, files), markdown)


def site_link(link: str, page: str, files: Files) -> str:
    """``link`` of the site's ``page``, as the site needs it."""
    folder = posixpath.dirname(_REPOSITORY_PATHS.get(page, f"docs/{page}"))
    target = posixpath.normpath(posixpath.join(folder, link))
    path = ROOT_PAGES.get(target, target.removeprefix("docs/"))
    if files.get_file_from_path(path) is None:
        _log.warning("%s links to %s, which is not on the site", page, target)
        return link
    return posixpath.relpath(path, posixpath.dirname(page) or ".")
