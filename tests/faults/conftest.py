"""What the tests of struck runs share."""

from pathlib import Path

import pytest

from faults.struck import Commands, Nursery, publishable, rows_file


@pytest.fixture(scope="module")
def nursery():
    found = Nursery()
    yield found
    found.close()


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    return rows_file(tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def commands(nursery, rows, tmp_path_factory) -> Commands:
    folder = tmp_path_factory.mktemp("undisturbed")
    return Commands(nursery, rows, publishable(rows), folder)
