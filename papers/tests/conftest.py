"""A small table with Adult's columns, and everything that is reproduced from it."""

import numpy as np
import pyarrow as pa
import pytest

from papers.datasets import Dataset
from papers.leblond.run import compute
from papers.leblond.setting import Effort, Setting, normalised_rows

TRAIN, TEST = 300, 100
SMALL = Effort(
    models=12,
    batches=4,
    draws=2_000,
    releases=20,
    dimensions=(1, 2, 6),
    regularizations=(1e-3, 1.0),
)


def small_adult(seed=0):
    """Adult's columns with made-up cells."""
    rng = np.random.default_rng(seed)
    n = TRAIN + TEST
    age, years = rng.integers(17, 91, n), rng.integers(1, 17, n)
    rich = rng.random(n) < 1 / (1 + np.exp(-(0.05 * (age - 50) + 0.4 * (years - 9))))
    table = pa.table(
        {
            "age": age,
            "workclass": rng.choice(["Private", "State-gov"], n),
            "fnlwgt": rng.integers(10_000, 400_000, n),
            "education": rng.choice(["Bachelors", "HS-grad", "Masters"], n),
            "education-num": years,
            "sex": rng.choice(["Female", "Male"], n),
            "capital-gain": rng.integers(0, 3, n) * 2000,
            "capital-loss": rng.integers(0, 3, n) * 500,
            "hours-per-week": rng.integers(10, 80, n),
            "income": np.where(rich, ">50K", "<=50K"),
            "split": ["train"] * TRAIN + ["test"] * TEST,
        }
    )
    return Dataset(name="small", table=table, target="income", positive=">50K", source="a test")


def computed(seed=0):
    return compute(small_adult(), seed=seed, effort=SMALL, source="a test", phase=lambda name: None)


@pytest.fixture(scope="session")
def reproduction():
    """Claims and exhibits of the small table."""
    return computed()


@pytest.fixture(scope="session")
def setting():
    return Setting.of(*normalised_rows(small_adult().rows("train")))


def column(reproduction, stem, *names):
    """Columns of the CSV ``stem``, read from its bytes."""
    table = next(e.tables[stem] for e in reproduction.exhibits if stem in e.tables)
    header, *lines = table.csv().decode().splitlines()
    places = [header.split(",").index(name) for name in names]
    cells = [line.split(",") for line in lines]
    return [np.array([float(cell[index]) for cell in cells]) for index in places]
