"""What the README shows must run as it stands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    _, code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert "Privacy profile of 500 rows" in capsys.readouterr().out
    assert (tmp_path / "profile.CURATOR-ONLY.parquet").exists()


@pytest.mark.parametrize(
    "page",
    ["README.md", "SECURITY.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))],
)
def test_links_lead_somewhere(page):
    path = ROOT / page
    for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / link).exists(), f"{page} links to {link}"
