"""Figures of the lecture: what is drawn is what the results hold."""

from functools import cache

import numpy as np
import pytest

from expost._counts import Share
from expost.errors import InvalidInput
from papers.lecture.displays import EpochsDisplay
from papers.lecture.snapshots import EpochTable, ObservedEpochs, Snapshots, accuracy_by_epochs
from papers.lecture.table import Cell, DefenceRow, DefenceTable
from report.audits import audited

HOSTILE = '</td><script>alert(1)</script> $x_1$ & "quoted"'


def line(ax, label):
    return next(line for line in ax.lines if line.get_label().strip().startswith(label))


def defences():
    def cell(*hits):
        return Cell(shares=tuple(Share(hits=one, trials=100, confidence=0.95) for one in hits))

    names = ("none", HOSTILE, "DP-SGD")
    rows = tuple(
        DefenceRow(
            name=name,
            train=cell(99 - 5 * place, 98),
            test=cell(80 - place, 83),
            attack=cell(88 - 15 * place, 85 - 15 * place),
            limit=None if place == 0 else 0.9 - 0.2 * place,
            by="loss",
        )
        for place, name in enumerate(names)
    )
    return DefenceTable(rows=rows, members=100, others=100, references=16, confidence=0.95)


@cache
def snapshots():
    rng = np.random.default_rng(6)
    epochs = np.array([1, 5, 10, 20])
    truth = np.arange(200) < 100
    rise = np.sqrt(epochs)[:, None] * (0.3 + 0.5 * truth)
    return truth, Snapshots(
        epochs=epochs,
        confidence=(rise + rng.normal(size=(4, 200))).astype(np.float32),
        population=(0.3 * np.sqrt(epochs)[:, None] + rng.normal(size=(4, 50))).astype(np.float32),
    )


def table_of(*kinds, epochs=((5,), (5, 10))):
    lines = zip(epochs, kinds, strict=True)
    return EpochTable(
        lines=tuple(
            ObservedEpochs(epochs=seen, figures=audited(kind).figures["lira-online"])
            for seen, kind in lines
        ),
        score="mean",
    )


def test_accuracy_by_observed_epochs():
    tables = {
        "passive": table_of("nothing", "promised"),
        "_active": table_of("promised", "memorised"),
    }
    ax = EpochsDisplay.from_tables(tables).plot().ax_
    for name, kinds in (
        ("passive", ("nothing", "promised")),
        ("_active", ("promised", "memorised")),
    ):
        expected = [audited(kind).figures["lira-online"].accuracy for kind in kinds]
        np.testing.assert_array_equal(line(ax, name).get_ydata(), [one.value for one in expected])
    assert len(ax.collections) == 2
    assert [text.get_text() for text in ax.get_xticklabels()] == ["5", "5, 10"]
    # A name that begins with an underscore is not left out of the legend.
    shown = [text.get_text().strip() for text in ax.get_legend().get_texts()]
    assert shown == ["passive", "_active", "a coin"]
    with pytest.raises(InvalidInput, match="for each of 2 observations"):
        EpochsDisplay(observed=("5", "10"), accuracy={"short": np.zeros((1, 3))})
    other = table_of("nothing", "promised", epochs=((1,), (2,)))
    with pytest.raises(InvalidInput, match="same sets of epochs"):
        EpochsDisplay.from_tables(tables | {"other": other})


def test_a_table_of_defences_is_drawn_and_hostile_names_are_text():
    table = defences()
    drawn = line(table.plot().ax_, "of the strongest").get_xdata()
    np.testing.assert_array_equal(drawn, [row.attack.value for row in table.rows])
    assert "<script" not in table._repr_html_()
    assert "&lt;script&gt;" in table._repr_html_()


def test_snapshots_and_their_table_are_drawn():
    truth, found = snapshots()
    ax = found.plot().ax_
    np.testing.assert_allclose(
        line(ax, "rows in question").get_ydata(), np.median(found.confidence, axis=1), rtol=1e-6
    )
    table = accuracy_by_epochs(found, truth)
    assert table.plot().ax_.get_xlabel() == "observed epochs"


def test_printed_intervals_hold_the_share_and_a_limit_is_rounded_up():
    rng = np.random.default_rng(3)
    for _ in range(200):
        share = Share(hits=int(rng.integers(1, 99)), trials=100, confidence=0.95)
        cell, limit = Cell(shares=(share,)), float(rng.random())
        low, high = (float(part) for part in str(cell).split("(")[1].strip(")").split(" … "))
        assert low <= 100 * share.low <= 100 * share.high <= high
        row = DefenceRow(name="", train=cell, test=cell, attack=cell, limit=limit, by="loss")
        assert 0 <= float(row.limit_in_words) - 100 * limit < 0.1 + 1e-9
