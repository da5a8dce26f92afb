"""What torch gives back, shown: a training, and a tracker of one, as page, fragment and figure."""

import numpy as np
import pytest
import torch

import expost.torch
from dpsgd.tracked import HOOKS, Run
from expost.errors import SeededReleaseWarning
from expost.numbers import certainty
from expost.report import document_of, parse_json, render_fragment, render_json
from expost.report.document import Page
from expost.results import Displayed
from expost.types import Audience
from report.cells import certainty_up

pytestmark = [
    pytest.mark.filterwarnings(HOOKS),
    pytest.mark.filterwarnings("ignore::expost.errors.PrivacyLeakWarning"),
]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)
OPTIONS = {
    "training": {},
    "training of batches": {"sampling_rate": 0.5},
    "training with local noise": {"sensitivity": "local", "row": 1},
}
RESULTS = (*OPTIONS, "tracker")


def training(**options):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 2))
    settings = {"noise_multiplier": 1.0, "clip": 1.0, "learning_rate": 0.5, "epochs": 3}
    with pytest.warns(SeededReleaseWarning):
        return expost.torch.train(module, X, Y, random_state=0, **settings | options)


def result(name):
    return Run().epochs().tracker if name == "tracker" else training(**OPTIONS[name])


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_is_drawn_marked_and_shown(name):
    shown = result(name)
    assert isinstance(shown, Displayed)
    assert shown.audience is Audience.CURATOR_ONLY
    display = shown.plot()
    display.figure_.draw_without_rendering()
    assert Audience.CURATOR_ONLY.meaning in {text.get_text() for text in display.ax_.texts}
    assert display.ax_.has_data()
    text, document = shown._repr_html_(), document_of(shown)
    assert text == render_fragment(document)
    assert "<strong>Curator only:</strong>" in text
    assert "<script" not in text
    page = Page(documents=(document,))
    assert parse_json(render_json(page)) == page


@pytest.mark.parametrize("name", RESULTS)
def test_numbers_are_those_of_the_result(name):
    shown = result(name)
    document = document_of(shown)
    loss = np.abs(shown.transcript.loss)
    (tile,) = (each for each in document.tiles if each.label == "Most exposed row")
    assert f" row {np.argmax(loss)} " in tile.lines[0]
    assert certainty_up(tile.value, float(np.max(loss)))
    assert document.facts["steps"] == shown.steps
    if name == "tracker":
        assert document.facts["epsilon"] == shown.guarantee().epsilon(1e-5)
        assert document.facts["epsilon"] < shown.transcript.guarantee().epsilon(1e-5)
        return
    expected = None if shown.guarantee is None else shown.guarantee.epsilon(1e-5)
    assert document.facts["epsilon"] == pytest.approx(expected)
    # A simulation is marked.
    (alert,) = (each for each in document.alerts if "simulation" in each.title)
    assert alert.severity == "review"
    assert alert.title in shown._repr_html_()
    assert alert.title in str(shown)


def test_an_end_of_an_interval_is_not_shown_as_a_certainty():
    options = {"adversary": "hidden-batches", "every": 10}
    run = Run(rows=60, batch_size=6, tracking=options).epochs(5)
    profile, attackers = run.tracker.profile(), run.tracker.attackers()
    outer = np.max(np.maximum(np.abs(profile.loss_low), np.abs(profile.loss_high)))
    assert np.max(profile.exposure) < attackers.first.loss < outer
    for shown in (profile, run.tracker):
        (tile,) = (t for t in document_of(shown).tiles if t.label == "Most exposed row")
        assert certainty_up(tile.value, float(np.max(profile.exposure)))
        text = str(shown)
        assert text.count("only the upper end of its interval is above the guarantee") >= 2
        assert "allows that with a small probability" not in text
        assert f"at most {certainty(float(outer))}" in text


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_an_estimate_is_not_shown_as_a_certainty_of_100_percent(mode):
    run = Run(mode=mode, dtype=torch.bfloat16).epochs()
    for shown in (run.tracker.profile(), run.tracker):
        (tile,) = (t for t in document_of(shown).tiles if t.label == "Most exposed row")
        assert certainty_up(tile.value, float(np.max(run.tracker.profile().exposure)))
        assert "inf nats" not in str(shown)
        assert "100 % (" not in str(shown)
        assert str(shown).count("an estimate without a certified interval") >= 2


def test_a_loss_above_the_guarantee_is_explained_wherever_it_is_shown():
    run = Run(tracking={"adversary": "hidden-batches"}).epochs()
    run.tracker.transcript.loss[3] = 50.0
    for shown in (run.tracker.profile(), run.tracker):
        assert str(shown).count("above the guarantee, which allows that with a small") >= 2
    text = str(run.tracker).splitlines()
    assert any("certain" in line and "above the guarantee" in line for line in text[:3])


@pytest.mark.parametrize("name", ["training", "training with local noise"])
def test_neither_a_simulation_nor_local_noise_is_for_sharing(name):
    profile = training(noise_multiplier=50.0, **OPTIONS[name]).profile()
    assert document_of(profile).verdict.tone == "caution"


def test_what_is_drawn_is_what_the_result_holds():
    run = training()
    drawn = {line.get_label(): line.get_ydata() for line in run.plot().ax_.lines}
    # Exposure is the size of the loss, on either side.
    certainty = np.maximum(run.posteriors, 1 - run.posteriors)
    np.testing.assert_allclose(drawn["largest"], certainty.max(axis=1), rtol=1e-6)
    own = certainty[:, np.argmax(np.abs(run.losses))]
    np.testing.assert_allclose(drawn["row that is most exposed in the end"], own, rtol=1e-6)
