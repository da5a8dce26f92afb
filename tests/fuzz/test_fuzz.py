"""Whatever the bytes are: a result that means something, or a sentence of ours, and no half files.

A case that fails here is made again by its target and number: see ``harness.choices``.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evidence import record

from .harness import SEED, Tally, fresh_folder, judge, run
from .parsers import PARSERS
from .worker import TARGETS, run_apart

# (in `make test`, in the long run), shared out by what a case costs.
CASES = {
    "model": (260, 16_000),
    "published": (250, 14_000),
    "encoding": (270, 15_000),
    "given": (270, 12_000),
    "ledger": (270, 12_000),
    "summary": (150, 14_000),
    "arrays": (100, 6_000),
    "store": (30, 500),
    "csv": (80, 2_500),
    "parquet": (80, 2_500),
    "arrow": (80, 2_000),
    "folder": (40, 1_000),
    "sqlite": (80, 1_500),
    "in-memory": (50, 1_000),
    "on-table": (4, 200),
    "on-file": (8, 300),
}
# Of the cases, at least this share passes as whole, and as broken: else nothing is tried.
LEAST = 0.01


def test_there_are_as_many_cases_as_are_told():
    assert CASES.keys() <= TARGETS.keys()
    assert sum(few for few, _ in CASES.values()) >= 2_000
    assert sum(many for _, many in CASES.values()) >= 100_000


@pytest.mark.parametrize("name", CASES)
def test_read_or_refused(name):
    few, _ = CASES[name]
    tally = run(TARGETS[name], range(few), Tally())
    assert not tally.faults
    assert tally.cases == few
    assert tally.accepted >= LEAST * few
    assert tally.refused >= LEAST * few


@pytest.mark.parametrize("name", ["model", "encoding", "summary"])
def test_choices_that_hypothesis_makes(name):
    """Hypothesis prefers the ends of ranges, and makes what it finds small."""
    judged_cases = 0

    @given(st.randoms(use_true_random=False))
    @settings(max_examples=50, suppress_health_check=list(HealthCheck))
    def judged(rng):
        nonlocal judged_cases
        with fresh_folder() as folder:
            judge(TARGETS[name], rng, folder)
        judged_cases += 1

    judged()
    assert judged_cases >= 50


@pytest.mark.long
def test_a_hundred_thousand_cases():
    figures, faults = {}, []
    with ThreadPoolExecutor(max_workers=2) as pool:
        # The dear ones first, so that none is waited for alone at the end.
        names = sorted(CASES, key=lambda name: name in PARSERS)
        tallies = pool.map(lambda name: run_apart(name, CASES[name][1]), names)
        by_target = dict(zip(names, tallies, strict=True))
    for name, tally in by_target.items():
        figures[name] = {
            "cases": tally.cases,
            "accepted": tally.accepted,
            "refused": tally.refused,
            "faults": len(tally.faults),
            "slowest case in seconds": round(tally.slowest, 2),
            "seconds": round(tally.seconds),
        }
        faults += tally.faults
        print(name, figures[name], *tally.faults, sep="\n  ", flush=True)
    total = {key: sum(each[key] for each in figures.values()) for key in ("cases", "accepted", "refused", "faults", "seconds")}  # fmt: skip
    record(
        "fuzz",
        command="pytest -m long tests/fuzz",
        seed=SEED,
        figures={"targets": figures, "total": total},
    )
    assert not faults
    assert total["cases"] >= 100_000
