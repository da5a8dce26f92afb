"""Every result of expost.torch as a figure and as a fragment."""

import numpy as np
import pytest
import torch

import expost.torch
from dpsgd.tracked import HOOKS, Run
from expost.attacks.snapshots import accuracy_by_epochs
from expost.errors import SeededReleaseWarning
from expost.report.fragments import fragment
from expost.report.plots import TORCH_PLOTS
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


def experiment():
    return expost.torch.strong_adversary(
        network(),
        X,
        Y,
        row=0,
        trainings=12,
        noise_multiplier=2.0,
        clip=1.0,
        learning_rate=0.1,
        steps=4,
        workers=1,
        random_state=0,
    )


def game(**options):
    return expost.torch.federated_game(
        network(), X, Y, participants=2, rounds=3, learning_rate=0.5, random_state=0, **options
    )


def adversarial(weight=1.0):
    return expost.torch.adversarial_regularization(
        network(), X, Y, X[::2], Y[::2], weight=weight, epochs=3, batch_rows=8
    )


RESULTS = {
    "training": training,
    "training of batches": lambda: training(sampling_rate=0.5),
    "tracker": tracker,
    "experiment": experiment,
    "sensitivity": lambda: expost.torch.gradient_sensitivity(
        network(), X, Y, (X[::3], Y[::3]), clip=1.0
    ),
    "adversarial training": adversarial,
    "adversarial training without weight": lambda: adversarial(weight=0.0),
    "federated run": lambda: game(population=(X[:4], Y[:4])).target,
    "federated game": lambda: game(ascent=expost.torch.Ascent(rate=0.1, first_round=2)),
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_is_drawn_marked_and_shown(name):
    result = RESULTS[name]()
    assert isinstance(result, Displayed)
    assert f"{type(result).__module__}.{type(result).__qualname__}" in TORCH_PLOTS
    assert result.audience is Audience.FAIL
    display = result.plot()
    display.figure_.draw_without_rendering()
    (mark,) = [text for text in display.ax_.texts if text.get_gid() == "expost-mark"]
    assert mark.get_text().startswith("FAIL")
    assert display.ax_.has_data()
    text = result._repr_html_()
    assert text == fragment(result)
    assert ">FAIL</span>" in text
    assert "<script" not in text


def test_a_rehearsal_is_said_to_be_one():
    for found in (training(), training(sampling_rate=0.5)):
        assert "A simulation" in found._repr_html_()


def test_what_is_drawn_is_what_the_result_holds():
    found = experiment()
    title = found.plot().ax_.get_title()
    assert f"{found.advantage.value:.3f}" in title
    run = training()
    drawn = next(
        line for line in run.plot().ax_.lines if line.get_label().startswith("the row it is")
    )
    np.testing.assert_allclose(drawn.get_ydata(), run.beliefs.max(axis=1), rtol=1e-6)
    played = game()
    lines = {line.get_label(): line for line in played.plot().ax_.lines}
    merged = played.target.merged
    np.testing.assert_allclose(
        lines["members"].get_ydata(), np.median(merged[:, played.truth], axis=1), rtol=1e-6
    )
    table = accuracy_by_epochs(played.snapshots, played.truth)
    assert table.plot().ax_.get_xlabel() == "observed epochs"
