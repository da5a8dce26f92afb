"""The notebooks of examples/ run in a new kernel and an empty folder, and hold their own outputs.

The one with a network is executed in tests/with_torch.
"""

import copy
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import docs_notebooks  # noqa: E402 (a tool, not a package)
import docs_site  # noqa: E402 (the same)
import notebooks  # noqa: E402 (the same)

PATHS = sorted((ROOT / "examples").glob("*.ipynb"))
WITH_TORCH = {"3-opacus-network"}


def named(path: Path) -> str:
    return path.stem


def run_tool(path: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "tools" / "notebooks.py"), str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_there_are_five():
    assert len(PATHS) == 5


@pytest.mark.parametrize("path", [path for path in PATHS if path.stem not in WITH_TORCH], ids=named)
def test_a_notebook_runs_in_an_empty_folder(path):
    done = run_tool(path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", PATHS, ids=named)
def test_a_notebook_is_short_and_ends_in_a_decision(path):
    cells = notebooks.read(path).cells
    assert 10 <= len(cells) <= 20
    assert cells[0].source.startswith("# ")
    assert any(cell.source.startswith("## Decision") for cell in cells[-3:])


@pytest.mark.parametrize("path", PATHS, ids=named)
def test_outputs_are_of_these_cells(path):
    notebook = notebooks.read(path)
    assert not notebooks.stale(notebook)
    assert not notebooks.unfit(notebook)
    assert [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"] == list(
        range(1, 1 + sum(cell.cell_type == "code" for cell in notebook.cells))
    )


def test_a_changed_cell_is_noticed():
    notebook = notebooks.read(PATHS[0])
    notebook.cells[1].source += "\nprint(1)"
    assert notebooks.stale(notebook)


@pytest.mark.parametrize(
    "text",
    ["/tmp/x/report.html", "/home/you/data", "<Figure at 0x7f0123456789>", "12:30:59", "\x1b[1m"],
)
def test_outputs_of_a_machine_are_noticed(text):
    notebook = copy.deepcopy(notebooks.read(PATHS[0]))
    cell = next(cell for cell in notebook.cells if cell.get("outputs"))
    cell.outputs[0].text = text
    assert notebooks.unfit(notebook)


def test_missing_outputs_are_noticed():
    stored = notebooks.read(PATHS[0])
    fewer = copy.deepcopy(stored)
    next(cell for cell in fewer.cells if cell.get("outputs")).outputs = []
    assert notebooks.different(fewer, stored)
    assert not notebooks.different(stored, stored)


# -- the site ---------------------------------------------------------------------------------------


def test_every_notebook_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text()
    sections = {
        name: pages for entry in yaml.safe_load(text)["nav"] for name, pages in entry.items()
    }
    pages = [page for entry in sections["Examples"] for page in entry.values()]
    assert pages == list(docs_site.NOTEBOOKS.values())


@pytest.mark.parametrize("path", PATHS, ids=named)
def test_links_of_a_notebook_exist(path):
    for cell in notebooks.read(path).cells:
        if cell.cell_type == "markdown":
            for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)", cell.source):
                assert (path.parent / link).exists(), link


@pytest.mark.parametrize("path", PATHS, ids=named)
def test_a_page_shows_every_output(path):
    page = docs_notebooks.markdown_of(path)
    shown = docs_notebooks.with_outputs(page, path)
    outputs = [output for cell in notebooks.read(path).cells for output in cell.get("outputs", ())]
    images = sum("image/png" in output.get("data", {}) for output in outputs)
    results = sum("text/html" in output.get("data", {}) for output in outputs)
    assert shown.count("data:image/png;base64,") == images
    assert shown.count('<div class="expost') == results
    assert shown.count("<pre><code>") == len(outputs) - images - results
    assert "data-output" not in shown


@pytest.mark.parametrize(
    "html",
    [
        "<script>1</script>",
        '<img src="https://example.org/a.png">',
        '<p onclick="alert(1)">',
        '<a href="javascript:alert(1)">',
        "<style>@import 'https://example.org/a.css'</style>",
        "<style>p { background: url(https://example.org/a.png) }</style>",
        '<iframe src="a.html">',
        '<p style="color: red">',
    ],
)
def test_html_that_is_no_report_is_refused(html):
    assert docs_notebooks.checked('<div class="expost"><p>1</p></div>')
    with pytest.raises(ValueError, match="HTML in a notebook"):
        docs_notebooks.checked(f'<div class="expost">{html}</div>')
    with pytest.raises(ValueError, match="must be a result"):
        docs_notebooks.checked("<p>1</p>")


def test_text_of_an_output_is_escaped(tmp_path):
    path = tmp_path / "hostile.ipynb"
    notebook = notebooks.read(PATHS[0])
    cell = next(cell for cell in notebook.cells if cell.get("outputs"))
    cell.outputs[0].text = "<script>alert(1)</script>"
    path.write_text(notebooks.nbformat.writes(notebook))
    assert "<script>" not in docs_notebooks.with_outputs(docs_notebooks.markdown_of(path), path)
