"""Fig. 4.2: what is drawn is what was computed, and nothing else changes."""

import dataclasses
import io
import math

import numpy as np
import pytest
from matplotlib import image, rcParams
from matplotlib.figure import Figure

from expost.errors import InvalidInput
from expost.profiles.identifiability import identifiability
from expost.report.risk_displays import RiskDisplay
from expost.risk.curves import risk_curves
from expost.types import Audience


def line(ax, label):
    return next(line for line in ax.lines if line.get_label() == label)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_the_curves_are_those_of_the_paper_and_of_the_noise():
    found = identifiability(epsilon=1.0, delta=1e-5)
    display = RiskDisplay.from_identifiability(found)
    belief, advantage = display.plot().axes_
    paper = line(belief, "paper (Thm 2)")
    expected = [sigmoid(epsilon) for epsilon in paper.get_xdata()]
    np.testing.assert_allclose(paper.get_ydata(), expected, rtol=1e-12)
    printed = line(advantage, "paper (Thm 3), δ = 10⁻⁵")
    classical = math.sqrt(2 * math.log(1.25e5))
    expected = [math.erf(e / (2 * classical) / math.sqrt(2)) for e in printed.get_xdata()]
    np.testing.assert_allclose(printed.get_ydata(), expected, rtol=1e-12)
    pure = line(advantage, "any mechanism at δ = 0")
    np.testing.assert_allclose(pure.get_ydata(), np.tanh(pure.get_xdata() / 2), rtol=1e-12)
    # Gaussian noise at the same (ε, δ), by asking for it.
    for place in (10, 40, 70):
        curve = line(advantage, "Gaussian noise, δ = 10⁻⁵")
        epsilon = float(curve.get_xdata()[place])
        again = identifiability(epsilon=epsilon, delta=1e-5)
        value = again.figure("advantage").by["gaussian"]
        assert curve.get_ydata()[place] == pytest.approx(value, rel=1e-6)
        sure = line(belief, "Gaussian noise, δ = 10⁻⁵").get_ydata()[place]
        assert sure == pytest.approx(again.figure("belief").by["gaussian"], rel=1e-6)


@pytest.mark.parametrize(
    "asked",
    [
        {"epsilon": 1.0, "delta": 1e-5},
        {"belief": 0.9},
        {"mu": 0.5, "delta": 1e-3},
        {"epsilon": 300.0, "delta": 1e-6, "prior": 0.01},
        {"epsilon": 1e-4},
    ],
)
def test_what_was_asked_is_marked(asked):
    found = identifiability(**asked)
    axes = RiskDisplay.from_identifiability(found).plot().axes_
    for ax, name in zip(axes, ("belief", "advantage"), strict=True):
        (mark,) = (part for part in ax.lines if part.get_marker() == "o")
        assert mark.get_xdata()[0] == found.epsilon
        assert mark.get_ydata()[0] == getattr(found, name)
        low, high = ax.get_xlim()
        assert low <= found.epsilon <= high
        text = ax.texts[0]
        first = found.routes[0].key
        assert text.get_text().endswith(found.figure(name).shown[first])
        assert found.figure("epsilon").shown[first] in text.get_text()


def test_labels_and_marks_stay_inside_the_figure():
    for asked in ({"epsilon": 1.0, "delta": 1e-5}, {"epsilon": 300.0}, {"epsilon": 1e-3}):
        axes = RiskDisplay.from_identifiability(identifiability(**asked)).plot().axes_
        figure = axes[0].figure
        figure.draw_without_rendering()
        for ax in axes:
            for text in ax.texts:
                box = text.get_window_extent()
                assert figure.bbox.x0 <= box.x0
                assert box.x1 <= figure.bbox.x1
            legend = ax.get_legend().get_window_extent()
            assert legend.y0 >= figure.bbox.y0 - 1
            # Below the axes: it hides nothing.
            assert legend.y1 <= ax.get_window_extent().y0


def test_without_an_epsilon_there_is_nothing_to_draw():
    with pytest.raises(InvalidInput, match="name a delta"):
        RiskDisplay.from_identifiability(identifiability(mu=0.5))
    with pytest.raises(InvalidInput, match="finite"):
        RiskDisplay.from_identifiability(identifiability(epsilon=math.inf))
    with pytest.raises(InvalidInput, match="axes"):
        RiskDisplay(curves=risk_curves([1e-5])).plot(Figure().subplots(1, 3))
    with pytest.raises(InvalidInput, match="low"):
        risk_curves([1e-5], low=2.0, high=1.0)


def test_it_may_be_published_and_changes_nothing_global():
    before = dict(rcParams)
    display = RiskDisplay(curves=risk_curves([1e-5, 0.2]))
    axes = Figure().subplots(1, 2)
    assert display.plot(axes).axes_ is axes
    assert dict(rcParams) == before
    assert display.audience is Audience.PASS
    assert display._repr_png_() is None  # The figure that it was drawn into shows itself.
    pixels = image.imread(io.BytesIO(display.png()))
    assert pixels.shape[1] > 1000
    assert 0.01 < np.mean(pixels[..., :3] < 0.5) < 0.3
    # δ = 0.2 has no tenfold: each chance is named.
    assert "0.6" in axes[0].get_legend().get_title().get_text()
    with pytest.raises(dataclasses.FrozenInstanceError):
        display.asked = None
