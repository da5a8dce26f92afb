"""One attack by class and by group."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from expost.auditing.disparity import disparity
from expost.errors import InvalidInput
from expost.types import Audience

RNG = np.random.default_rng(0)
TRUTH = RNG.random(2000) < 0.5
GROUP = RNG.choice(["a", "b", "c"], size=2000, p=[0.6, 0.3, 0.1])
# The attack sees members of c, and of nobody else.
SCORES = RNG.normal(size=2000) + 2.0 * (TRUTH & (GROUP == "c"))


def by_group(column=GROUP, **options):
    return disparity(SCORES, TRUTH, column, name="group", attack="lira", **options)


def test_each_group_has_its_own_curve_and_the_threshold_of_all():
    computed = by_group(false_positive_rate=0.05)
    assert computed.groups[0].label == "c"
    assert computed.audience is Audience.NEEDS_REVIEW
    others = np.sort(SCORES[~TRUTH])[::-1]
    threshold = others[int(0.05 * len(others))]
    for group in computed:
        rows = group.label == GROUP
        assert group.members == np.sum(rows & TRUTH)
        assert group.non_members == np.sum(rows & ~TRUTH)
        assert group.auc.value == pytest.approx(roc_auc_score(TRUTH[rows], SCORES[rows]))
        assert group.auc.low < group.auc.value < group.auc.high
        hits = np.mean(SCORES[rows & TRUTH] > threshold)
        assert group.true_positive_rate.value == pytest.approx(hits)
        assert group.false_positive_rate.value == np.mean(SCORES[rows & ~TRUTH] > threshold)
    assert computed.groups[0].lift > 3
    assert computed.groups[0].auc.low > 0.75
    for group in computed.groups[1:]:
        assert group.auc.low < 0.5 < group.auc.high


def test_a_small_group_has_no_curve_and_is_for_the_curator():
    column = GROUP.astype("U4")
    column[np.flatnonzero(TRUTH)[:3]] = "rare"
    computed = by_group(column)
    rare = computed.groups[-1]
    assert rare.label == "rare"
    assert (rare.members, rare.non_members) == (3, 0)
    assert rare.auc is None
    assert rare.true_positive_rate is None
    assert rare.lift is None
    assert computed.audience is Audience.CURATOR_ONLY


def test_numbers_are_binned_and_frames_are_columns():
    computed = by_group(pd.Series(np.arange(2000.0)))
    assert len(computed) == 4
    assert sum(group.members + group.non_members for group in computed) == 2000


def test_words_and_data():
    computed = by_group(np.where(GROUP == "c", "<script>", GROUP))
    assert "lira by group" in str(computed)
    assert Audience.NEEDS_REVIEW.meaning in str(computed)
    assert "&lt;script&gt;" in computed._repr_html_()
    assert computed.to_json()["groups"][0]["auc"]["value"] == computed.groups[0].auc.value


def test_a_cell_for_each_row():
    with pytest.raises(InvalidInput, match="group"):
        by_group(GROUP[:-1])
