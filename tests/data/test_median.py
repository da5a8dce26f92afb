"""The median in passes, against NumPy's."""

import numpy as np
import pytest

from expost._order import median
from expost.data import _summaries, open_table
from expost.errors import InvalidInput

NUMBERS = {
    "normal, odd": np.random.default_rng(0).normal(size=1001),
    "normal, even": np.random.default_rng(1).normal(size=1000),
    "ties": np.repeat([3.0, -2.0, 0.0, 7.0], [5, 1, 2, 6]),
    "zeros of either sign": np.array([-0.0, 0.0, 0.0, -0.0]),
    "tiny and huge": np.array([5e-324, -5e-324, 1e308, -1e308, 1.7e308, 1.6e308]),
    "one": np.array([-4.5]),
    "two": np.array([-1.0, 2.0]),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_median_is_that_of_numpy(name, size):
    numbers = NUMBERS[name]
    found = median(lambda: (numbers[k : k + size] for k in range(0, len(numbers), size)))
    ordered = np.sort(numbers)
    middle = ordered[(len(numbers) - 1) // 2], ordered[len(numbers) // 2]
    assert found == 0.5 * middle[0] + 0.5 * middle[1]
    assert middle[0] <= found <= middle[1]


def test_a_long_column_has_the_median_of_a_short_one(monkeypatch):
    rng = np.random.default_rng(2)
    cells = [None if rng.random() < 0.2 else float(x) for x in rng.normal(size=5001)]
    table = open_table({"x": cells, "y": ["a", "b"] * 2500 + ["a"]})
    at_once = table.median("x")
    monkeypatch.setattr(_summaries, "HELD", 1000)
    assert table.median("x") == at_once == np.median([x for x in cells if x is not None])


def test_ids_are_told_apart_a_share_at_a_time(monkeypatch):
    monkeypatch.setattr(_summaries, "HELD", 1000)
    keys = [f"p{k}" for k in range(4321)]
    cells = {"x": list(range(4321)), "id": keys}
    assert open_table(cells, id_column="id").rows == 4321
    for place, twin in [(0, 4320), (17, 18), (2000, 3000)]:
        repeated = [*keys]
        repeated[place] = repeated[twin]
        with pytest.raises(InvalidInput, match=r"1 row\(s\) repeat the id"):
            open_table({**cells, "id": repeated}, id_column="id")
