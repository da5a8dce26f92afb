"""Pages whose examples are Python sessions: what a page shows is what happens.

Pages with commands and their output: tests/test_docs.py; with torch: tests/with_torch.
"""

import doctest
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
# How many examples each has at least.
PAGES = {
    "estimators.md": 10,
    "groups.md": 10,
    "theory/black-box.md": 3,
    "theory/objective.md": 6,
    "theory/selection.md": 3,
    "theory/softmax.md": 8,
}


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_is_what_happens(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = DOCS / page
    blocks = re.findall(r"^```pycon\n(.*?)^```", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page, str(path), 0)
    assert len(test.examples) >= PAGES[page]
    assert doctest.DocTestRunner().run(test).failed == 0
