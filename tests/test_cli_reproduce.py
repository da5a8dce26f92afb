"""The command ``expost reproduce``: what it asks for, and what it refuses."""

import pytest
from typer.testing import CliRunner

from expost.cli.app import app
from expost.errors import InvalidInput


def run(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)], catch_exceptions=True)


def test_help_names_the_papers():
    shown = run("--help")
    assert shown.exit_code == 0
    assert "leblond" in shown.output
    assert "redberg-wang" in shown.output
    assert "d5.3" in shown.output
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
