"""What torch gives back, on a page: a training, and a tracker of one."""

import warnings

import numpy as np
import pytest
import torch

from dpsgd.tracked import HOOKS, Run
from expost.report import document_of, parse_json, render_html, render_json
from expost.report.document import Page
from expost.torch import train
from report.cells import certainty_up

pytestmark = pytest.mark.filterwarnings(HOOKS)


def trained(**options):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(
            torch.nn.Linear(3, 2),
            X,
            (X[:, 0] > 0).astype(np.int64),
            noise_multiplier=2.0,
            clip=1.0,
            learning_rate=0.5,
            epochs=3,
            random_state=0,
            **options,
        )


@pytest.mark.parametrize(
    "options", [{}, {"sampling_rate": 0.25}, {"sensitivity": "local", "row": 1}], ids=str
)
def test_a_training_is_reported(options):
    run = trained(**options)
    document = document_of(run)
    most = int(np.argmax(np.abs(run.losses)))
    (tile,) = (each for each in document.tiles if each.label == "Most exposed row")
    assert tile.lines[0] == f"row {most}"
    assert certainty_up(tile.value, abs(float(run.losses[most])))
    assert document.facts["steps"] == run.steps
    expected = None if run.guarantee is None else run.guarantee.epsilon(1e-5)
    assert document.facts["epsilon"] == pytest.approx(expected)
    assert ("knows the batches" in document.verdict.text) == ("sampling_rate" in options)
    assert any("simulation" in alert.title for alert in document.alerts)
    page = Page(documents=(document,))
    assert "noise multiplier" in render_html(page)
    assert parse_json(render_json(page)) == page


def test_a_tracker_is_reported_too():
    tracker = Run().epochs().tracker
    document = document_of(tracker)
    loss = np.abs(tracker.transcript.loss)
    (tile,) = (each for each in document.tiles if each.label == "Most exposed row")
    assert certainty_up(tile.value, float(np.max(loss)))
    assert document.facts["epsilon"] == tracker.guarantee().epsilon(1e-5)
    assert document.facts["epsilon"] < tracker.transcript.guarantee().epsilon(1e-5)
