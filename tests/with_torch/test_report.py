"""What torch gives back, on a page: a training, and a tracker of one."""

import warnings

import numpy as np
import pytest
import torch

from dpsgd.tracked import HOOKS, Run
from expost.report import collect, parse_json, render_html, render_json
from expost.torch import train

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
def test_a_training_is_reported_with_its_profile(options):
    run = trained(**options)
    summary = collect(run)
    part = summary.training
    assert [*summary.by_name] == ["profile", "beliefs", "training"]
    assert part.loss == run.losses[part.row] == run.losses[np.argmax(np.abs(run.losses))]
    assert part.steps == run.steps
    expected = None if run.guarantee is None else run.guarantee.epsilon(1e-5)
    assert part.epsilon == pytest.approx(expected)
    assert (part.known_epsilon is None) == ("sampling_rate" not in options)
    assert any("A simulation" in notice for notice in summary.notices)
    assert "How it was trained" in render_html(summary)
    assert parse_json(render_json(summary)) == summary


def test_a_tracker_is_reported_too():
    tracker = Run().epochs().tracker
    summary = collect(tracker, made="2026-11-16")
    part = summary.training
    assert part.loss == tracker.transcript.loss[part.row]
    assert part.epsilon == tracker.guarantee().epsilon(1e-5)
    assert part.known_epsilon == tracker.transcript.guarantee().epsilon(1e-5)
    assert part.epsilon < part.known_epsilon
    assert len(summary.models) == 1
    assert "steps of Opacus" in summary.models[0]
    assert summary.sources == ("2026-11-16",)
