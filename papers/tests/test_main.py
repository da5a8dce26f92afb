"""``python -m papers``: what it asks for, and what it refuses."""

from importlib import import_module

import pytest
from typer.testing import CliRunner

import papers.__main__
from expost.errors import InvalidInput
from papers.__main__ import app, main
from papers.common.reproduction import Reproduction


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=True)


def test_help_names_the_papers():
    shown = run("--help")
    assert shown.exit_code == 0
    assert "leblond" in shown.output
    assert "redberg-wang" in shown.output
    assert "d5.3" in shown.output
    assert "lecture" in shown.output
    assert "claims" in run("leblond", "--help").output


PAPERS = pytest.mark.parametrize("paper", ["leblond", "redberg-wang"])


@pytest.mark.parametrize(
    "command", [["leblond"], ["redberg-wang"], ["d5.3", "--bounds"]], ids=lambda words: words[0]
)
def test_a_folder_that_is_not_empty_is_refused(tmp_path, command):
    (tmp_path / "kept.txt").write_text("mine")
    result = run(*command, "--out", tmp_path)
    assert isinstance(result.exception, InvalidInput)
    assert "is not empty" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


@PAPERS
@pytest.mark.parametrize("content", ["a,b\n1,2\n", ""])
def test_another_table_is_refused_and_nothing_is_written(tmp_path, content, paper):
    data = tmp_path / "other.csv"
    data.write_text(content)
    result = run(paper, "--data", data, "--out", tmp_path / "out")
    assert isinstance(result.exception, InvalidInput)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("paper", ["leblond", "redberg-wang", "d5.3"])
def test_open_shows_the_page(tmp_path, monkeypatch, paper):
    """The papers take a while: they are not made again here."""
    module = import_module(f"papers.{paper.replace('-', '_').replace('.', '')}.run")
    found = Reproduction(
        paper=None, claims=(), exhibits=(), source="", seed=0, made="",
        files=(tmp_path / "claims.json", tmp_path / "index.html"),
    )  # fmt: skip
    opened = []
    monkeypatch.setattr(Reproduction, "lines", lambda self: [f"Page: {self.files[-1]}"])
    monkeypatch.setattr(module, "reproduce", lambda *_, **__: found)
    monkeypatch.setattr(papers.__main__, "show", opened.append)
    assert run(paper, "--out", tmp_path / "o", "--open").exit_code == 0
    assert opened == [tmp_path / "index.html"]
    assert run(paper, "--out", tmp_path / "o").exit_code == 0
    assert len(opened) == 1


def test_a_mistake_is_one_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / "kept.txt").write_text("mine")
    monkeypatch.setattr("sys.argv", ["papers", "leblond", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith("papers: ")
    assert shown.count("\n") == 1
