"""Results of trainings as figures."""

import numpy as np
import pytest
import torch

from expost.types import Audience
from papers.common.drawn import Drawn
from papers.d53.adversary import strong_adversary
from papers.d53.sensitivity import gradient_sensitivity
from papers.lecture.adversarial import adversarial_regularization
from papers.lecture.federated import Ascent, federated_game

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 2))


def experiment():
    return strong_adversary(
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
    return federated_game(
        network(), X, Y, participants=2, rounds=3, learning_rate=0.5, random_state=0, **options
    )


def adversarial(weight=1.0):
    return adversarial_regularization(
        network(), X, Y, X[::2], Y[::2], weight=weight, epochs=3, batch_rows=8
    )


RESULTS = {
    "experiment": experiment,
    "sensitivity": lambda: gradient_sensitivity(network(), X, Y, (X[::3], Y[::3]), clip=1.0),
    "adversarial training": adversarial,
    "adversarial training without weight": lambda: adversarial(weight=0.0),
    "federated run": lambda: game(population=(X[:4], Y[:4])).target,
    "federated game": lambda: game(ascent=Ascent(rate=0.1, first_round=2)),
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_is_drawn_and_marked(name):
    result = RESULTS[name]()
    assert isinstance(result, Drawn)
    assert result.audience is Audience.CURATOR_ONLY
    display = result.plot()
    display.figure_.draw_without_rendering()
    printed = [text.get_text() for text in display.ax_.texts]
    assert printed.count(Audience.CURATOR_ONLY.meaning) == 1
    assert Audience.PUBLIC.meaning not in printed
    assert display.ax_.has_data()
    assert "<pre>" in result._repr_html_()
