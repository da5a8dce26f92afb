"""Every step of a command is taken once: rows enter the unit ball, A(D) is minimised, labels encoded."""

import sys
from collections import Counter

import pytest

import streams
from expost import glm, labels
from expost.data import UnitBall
from expost.data._entries import Target
from expost.jobs.profile import run


@pytest.fixture
def counted(monkeypatch):
    """How often each step was taken."""
    calls = Counter()

    def count(owner, name):
        inner = getattr(owner, name)

        def counting(*given, **named):
            calls[name] += 1
            return inner(*given, **named)

        monkeypatch.setattr(owner, name, counting)

    count(UnitBall, "rows")
    count(Target, "encode")
    for name, function in (("minimise", glm.minimise), ("signs", labels.signs)):
        for module in list(sys.modules.values()):
            if module.__name__.startswith("expost") and vars(module).get(name) is function:
                count(module, name)
    return calls


@pytest.mark.parametrize("mechanism", ["output", "objective"])
def test_rows_in_memory_are_encoded_and_minimised_once(counted, tmp_path, mechanism):
    given = {"engine": None, "mechanism": mechanism, "data_norm": 5.0}
    run(streams.job(streams.write(tmp_path), tmp_path / "o", **given))
    # One block of rows: it enters the unit ball once, and its labels are never names again.
    assert counted["rows"] == 1
    assert counted["encode"] == 1
    assert counted["signs"] == 0
    # A(D), where models behind expected exposures start; under objective perturbation also θ.
    assert counted["minimise"] == (1 if mechanism == "output" else 2)
