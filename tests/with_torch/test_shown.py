"""Every result of expost.torch as a figure and as a fragment."""

import numpy as np
import pytest
import torch

import expost.torch
from dpsgd.tracked import HOOKS, Run
from expost.errors import SeededReleaseWarning
from expost.report import document_of, render_fragment
from expost.results import Displayed
from expost.types import Audience

pytestmark = pytest.mark.filterwarnings(HOOKS)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 2))


def training(**options):
    settings = {"noise_multiplier": 1.0, "clip": 1.0, "learning_rate": 0.5, "epochs": 3}
    with pytest.warns(SeededReleaseWarning):
        return expost.torch.train(network(), X, Y, random_state=0, **settings | options)


def tracker():
    run = Run()
    run.epochs(2)
    return run.tracker


RESULTS = {
    "training": training,
    "training of batches": lambda: training(sampling_rate=0.5),
    "tracker": tracker,
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_is_drawn_marked_and_shown(name):
    result = RESULTS[name]()
    assert isinstance(result, Displayed)
    assert result.audience is Audience.CURATOR_ONLY
    display = result.plot()
    display.figure_.draw_without_rendering()
    assert Audience.CURATOR_ONLY.meaning in {text.get_text() for text in display.ax_.texts}
    assert display.ax_.has_data()
    text = result._repr_html_()
    assert text == render_fragment(document_of(result))
    assert "<strong>Curator only:</strong>" in text
    assert "<script" not in text


def test_a_simulation_is_marked():
    for run in (training(), training(sampling_rate=0.5)):
        (alert,) = (each for each in document_of(run).alerts if "simulation" in each.title)
        assert alert.severity == "review"
        assert alert.title in run._repr_html_()
        assert alert.title in str(run)


@pytest.mark.filterwarnings("ignore::expost.errors.PrivacyLeakWarning")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "Read the alerts before you share the model."),
        ({"sensitivity": "local", "row": 2}, "Nothing is guaranteed for other data"),
    ],
    ids=["seeded", "local"],
)
def test_neither_a_simulation_nor_local_noise_is_for_sharing(options, reason):
    profile = training(noise_multiplier=50.0, **options).profile()
    verdict = document_of(profile).verdict
    assert verdict.tone == "caution"
    assert verdict.more.startswith(reason)


def test_what_is_drawn_is_what_the_result_holds():
    run = training()
    drawn = {line.get_label(): line.get_ydata() for line in run.plot().ax_.lines}
    # Exposure is the size of the loss, on either side.
    certainty = np.maximum(run.posteriors, 1 - run.posteriors)
    np.testing.assert_allclose(drawn["largest"], certainty.max(axis=1), rtol=1e-6)
    own = certainty[:, np.argmax(np.abs(run.losses))]
    np.testing.assert_allclose(drawn["row that is most exposed in the end"], own, rtol=1e-6)
