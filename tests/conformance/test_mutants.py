"""Law 8: mutants die. Each seeded fault breaks a law; caught/seeded is printed."""

import pytest

from conformance.mutants import MUTANTS
from evidence import record


def run() -> dict[str, str | None]:
    return {mutant.name: mutant.killed_by() for mutant in MUTANTS}


def test_every_mutant_dies():
    killed = run()
    survivors = [name for name, law in killed.items() if law is None]
    print(f"mutants caught/seeded: {len(killed) - len(survivors)}/{len(killed)}")
    assert len(killed) == len(MUTANTS) >= 14
    assert survivors == []


@pytest.mark.long
def test_record_the_mutants():
    killed = run()
    caught = sum(law is not None for law in killed.values())
    figures = {
        "caught": caught,
        "seeded": len(killed),
        "killed_by_law": {name: law or "survived" for name, law in killed.items()},
    }
    record(
        "mutants",
        command="pytest -m long tests/conformance/test_mutants.py",
        seed=20260101,
        figures=figures,
    )
    assert caught == len(killed)
