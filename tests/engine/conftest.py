"""One cluster of two workers for all tests here: starting it takes longer than most of them."""

import pytest

from expost.engine import engine_of


@pytest.fixture(scope="session")
def two_workers():
    with engine_of("dask:2") as engine:
        yield engine
