"""What the tests of the program share."""

import sys
from pathlib import Path

import pytest

from expost.cli.main import main
from program import Ran, people, text


@pytest.fixture
def program(monkeypatch, capsys):
    """Run ``expost`` with these arguments, in this process."""

    def call(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["expost", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return Ran(code=left.value.code, out=out, err=err)

    return call


@pytest.fixture
def people_csv(tmp_path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(text(people()))
    return path
