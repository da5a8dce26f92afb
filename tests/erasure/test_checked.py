"""A policy reads a model after an erasure as the model that it is, and finds it in the ledger."""

import pytest

from erasure.test_constants import released
from expost import forget
from expost.ledger import Ledger, list_release
from expost.policy import Policy, Verdict, check

EPSILON = 2.0


@pytest.mark.parametrize("coupled", [False, True])
def test_guarantee_is_of_the_model_and_the_ledger_lists_its_request(coupled, tmp_path):
    release, X, y = released()
    ledger = tmp_path / "ledger.CURATOR-ONLY.json"
    list_release(ledger, release.save(tmp_path / "before.json"))
    erasure = forget(release, X, y, remove=[0], requests_independent=coupled, ledger=ledger)
    after = erasure.save(tmp_path)["model"]
    entry = Ledger.load(ledger).entries[-1]
    # The charge of a coupling is not the guarantee of the model.
    assert (entry.epsilon != EPSILON) is coupled
    policy = Policy.of(f"epsilon>{EPSILON}", "composed_epsilon@0.001>0.1")
    alone, together = check([after, ledger], policy).findings
    assert (alone.verdict, alone.measured) == (Verdict.SATISFIED, EPSILON)
    assert together.verdict is Verdict.VIOLATED
    # A ledger that does not list the request does not answer.
    other = tmp_path / "other.CURATOR-ONLY.json"
    list_release(other, tmp_path / "before.json")
    assert check([after, other], policy).findings[1].verdict is Verdict.NOT_ANSWERABLE
