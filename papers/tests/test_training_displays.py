"""Cases side by side: what is drawn is what the display holds."""

import numpy as np
import pytest

from expost.errors import InvalidInput
from expost.types import Audience
from papers.common.figures import GREY, ORANGE, Guide, png
from papers.d53.training_displays import CasesDisplay, Series


def display(**options):
    given = {
        "cases": ("one", "two"),
        "series": (
            Series(
                values=np.array([0.1, 0.2]),
                low=np.array([0.0, 0.1]),
                high=np.array([0.3, 0.4]),
                label="counted",
            ),
            Series(
                values=np.array([0.5, 0.6]),
                clouds=(np.array([0.4, 0.5, 0.6]), np.array([0.6])),
                colour=ORANGE,
                marker="D",
            ),
        ),
        "guides": (Guide(at=0.25, axis="y", colour=GREY, label="bound"),),
        "ylabel": "advantage",
        "title": "cases",
    }
    return CasesDisplay(**given | options)


def test_values_intervals_clouds_and_guides_are_drawn():
    ax = display().plot().ax_
    guide, first, cloud, single, second = ax.get_lines()
    assert set(guide.get_ydata()) == {0.25}
    assert first.get_ydata().tolist() == [0.1, 0.2]
    assert second.get_ydata().tolist() == [0.5, 0.6]
    assert cloud.get_ydata().tolist() == [0.4, 0.5, 0.6]
    assert single.get_ydata().tolist() == [0.6]
    (intervals,) = ax.collections
    assert [segment[:, 1].tolist() for segment in intervals.get_segments()] == [
        [0.0, 0.3],
        [0.1, 0.4],
    ]
    # Each case keeps to its place, the series from left to right.
    assert np.all(np.round(first.get_xdata()) == [0, 1])
    assert np.all(first.get_xdata() < second.get_xdata())
    assert np.ptp(cloud.get_xdata()) < 0.5
    assert [text.get_text() for text in ax.get_xticklabels()] == ["one", "two"]
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"counted", "bound"}
    assert png(ax.figure).startswith(b"\x89PNG")
    assert display().audience is Audience.PUBLIC


def test_without_labels_there_is_no_legend():
    plain = Series(values=np.array([0.1, 0.2]))
    assert display(series=(plain,), guides=()).plot().ax_.get_legend() is None


@pytest.mark.parametrize(
    "wrong",
    [
        Series(values=np.zeros(3)),
        Series(values=np.zeros(2), low=np.zeros(1), high=np.zeros(2)),
        Series(values=np.zeros(2), clouds=(np.zeros(2),)),
    ],
    ids=["values", "low", "clouds"],
)
def test_every_series_has_every_case(wrong):
    with pytest.raises(InvalidInput, match="each of 2 cases"):
        display(series=(wrong,))
