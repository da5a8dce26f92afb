"""Seeded faults of DP-SGD code are caught; caught/seeded is printed."""

import pytest

from dpsgd.laws import LAWS
from dpsgd.mutants import MUTANTS
from evidence import record


def run() -> dict[str, str | None]:
    return {mutant.name: mutant.killed_by() for mutant in MUTANTS}


@pytest.mark.parametrize("law", LAWS)
def test_the_trainer_keeps_every_law(law):
    assert LAWS[law].__doc__
    LAWS[law]()


def test_every_fault_is_caught():
    killed = run()
    survivors = [name for name, law in killed.items() if law is None]
    print(f"faults caught/seeded: {len(killed) - len(survivors)}/{len(killed)}")
    assert len(killed) == len(MUTANTS) >= 25
    assert survivors == []


@pytest.mark.long
def test_record_the_faults():
    killed = run()
    caught = sum(law is not None for law in killed.values())
    record(
        "dpsgd-faults",
        command="pytest -m long tests/with_torch/test_faults.py",
        seed=5,
        figures={
            "caught": caught,
            "seeded": len(killed),
            "killed_by_law": {name: law or "survived" for name, law in killed.items()},
        },
    )
    assert caught == len(killed)
