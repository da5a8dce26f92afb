"""What the tests of interrupted runs share."""

from pathlib import Path

import pytest

from faults.runs import Commands, ForkServer, publishable, rows_file


@pytest.fixture(scope="module")
def server():
    forks = ForkServer()
    yield forks
    forks.close()


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    return rows_file(tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def commands(server, rows, tmp_path_factory) -> Commands:
    folder = tmp_path_factory.mktemp("undisturbed")
    return Commands(server, rows, publishable(rows), folder)
