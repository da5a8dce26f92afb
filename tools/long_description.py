"""The description for a package index: README.md without links and pictures of the repository.

hatchling calls it when it builds the package (pyproject.toml, ``tool.hatch.metadata.hooks``). An
index shows the text alone, so that a link to docs/ would lead nowhere. Links to other sites stay.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")
# Notes for the tests of the documentation.
_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE)


def description(readme: str) -> str:
    """Return the text of README.md as a page without other files shows it."""
    return _COMMENT.sub("", _LINK.sub(r"\1", _PICTURE.sub("", readme)))


class LongDescription(MetadataHookInterface):
    """Sets ``readme`` of the project."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Put the description into the metadata."""
        readme = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": description(readme)}
