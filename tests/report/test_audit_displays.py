"""The figures of an audit: what is drawn is what the audit holds, and nothing else changes."""

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.figure import Figure

from expost.attacks.snapshots import EpochTable, ObservedEpochs
from expost.audits.sweep import AuditSweep
from expost.errors import InvalidInput
from expost.report import collect_audit
from expost.report.audit_displays import EpochsDisplay, ExposureDisplay, RocDisplay
from expost.report.audit_sweep_display import AuditSweepDisplay
from expost.types import Audience

from .audits import KINDS, audited


def line(ax, start):
    return next(one for one in ax.lines if one.get_label().strip().startswith(start))


@pytest.mark.parametrize("kind", KINDS)
def test_every_curve_is_drawn(kind):
    audit = audited(kind)
    before = dict(rcParams)
    display = RocDisplay.from_audit(audit)
    ax = display.plot().ax_
    ax.figure.canvas.draw()
    assert dict(rcParams) == before
    assert display.audience is Audience.FAIL
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    for one in collect_audit(audit).attacks:
        drawn = line(ax, one.name.replace("$", r"\$"))
        expected = [max(p.true_positive_rate, display.floor) for p in one.curve]
        np.testing.assert_array_equal(drawn.get_ydata(), expected)
        expected = [max(p.false_positive_rate, display.floor) for p in one.curve]
        np.testing.assert_array_equal(drawn.get_xdata(), expected)
        # A point's height holds until the next one: nothing between them was counted.
        assert drawn.get_drawstyle() == "steps-post"
    smooth = [one for one in ax.lines if one.get_drawstyle() == "default"]
    names = [one.get_label().strip().split(",")[0] for one in smooth]
    assert names == ["allowed by the promise", "a coin"][-len(names) :]
    extra = 2 if audit.guarantee is not None else 1
    assert len(ax.lines) == len(audit.figures) + extra
    looks = [(one.get_color(), one.get_linestyle(), one.get_linewidth()) for one in ax.lines]
    assert len(set(looks)) == len(looks)


def test_members_are_drawn_by_theory_and_by_attacks():
    audit = audited()
    ax = Figure().add_subplot()
    display = ExposureDisplay.from_audit(audit)
    assert display.plot(ax).ax_ is ax
    dots = ax.lines[0]
    drawn = set(zip(dots.get_xdata(), dots.get_ydata(), strict=True))
    told = audit.told_apart.value[audit.truth]
    assert drawn == set(zip(audit.exposures.typical, told, strict=True))
    assert "typical exposure and told apart" in ax.get_title()
    assert ax.get_xlabel() == "typical exposure (nats)"
    for kind in ("memorised", "one attack"):
        with pytest.raises(InvalidInput, match="expost model with references"):
            ExposureDisplay.from_audit(audited(kind))


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


def test_a_picture_is_a_png():
    content = RocDisplay.from_audit(audited())._repr_png_()
    assert content.startswith(b"\x89PNG")
    assert len(content) < 200_000


def test_audits_over_epsilon():
    few = tuple(audited(kind) for kind in ("nothing", "promised", "memorised"))
    sweep = AuditSweep(epsilons=(0.1, 1.0, 10.0), audits=few)
    display = AuditSweepDisplay.from_sweep(sweep)
    reached, related = display.plot().axes_
    assert display.audience is Audience.REVIEW
    best = [one.figures[one.best].advantage.value for one in few]
    np.testing.assert_array_equal(line(reached, "reached").get_ydata(), best)
    np.testing.assert_array_equal(
        line(reached, "allowed").get_ydata(), [np.nan, few[1].advantage_bound, np.nan]
    )
    np.testing.assert_array_equal(
        line(related, "with its").get_ydata(), [np.nan, few[1].correlations[-1].value, np.nan]
    )
    assert related.get_xscale() == "log"
    reached.figure.canvas.draw()
    with pytest.raises(InvalidInput, match="2 panels"):
        display.plot([reached])
