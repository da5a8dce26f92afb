"""The document of a training: what its steps guarantee, and how exposures grew."""

import dataclasses
import math
import re

import numpy as np
import pytest
from scipy.stats import norm

from expost.errors import InvalidInput
from expost.mechanisms.dpsgd import Adversary, SGDMechanism, Transcript
from expost.numbers import posterior_at
from expost.profiles.transcript import individual_epsilon
from expost.report import document_of, render_markdown
from expost.report.sections.training import epochs_figure, training_document
from expost.risk.dpsgd import DPSGD
from expost.types import Audience

from .cells import blocks, certainty_up, check_document, column, rounded_up, tables
from .conftest import HOSTILE

ROWS, EPOCHS = 60, 8


def trained(*, rate=1.0, adversary=Adversary.KNOWN_BATCHES, epochs=EPOCHS, sigma=3.0, **options):
    """A run whose gradients are of fixed lengths."""
    rng = np.random.default_rng(1)
    mechanism = SGDMechanism(
        rows=ROWS, noise_multiplier=sigma, clip=1.0, sampling_rate=rate, **options
    )
    transcript, scale = Transcript(mechanism, adversary=adversary), mechanism.noise_scale
    length = rng.uniform(0.1, 1.0, ROWS)
    for _ in range(epochs):
        for _ in range(round(1 / rate)):
            batch = rng.uniform(size=ROWS) < rate
            noise = scale * length * rng.normal(size=ROWS)
            if transcript.adversary is Adversary.HIDDEN_BATCHES:
                inner = noise + batch * length**2
                transcript.add_hidden(np.arange(ROWS), inner, length**2, scale, rate)
            else:
                rows = np.flatnonzero(batch)
                transcript.add_known(rows, noise[rows], length[rows] ** 2, scale)
            transcript.end_step()
        transcript.end_epoch()
    return transcript


@dataclasses.dataclass
class Run:
    """What the report reads of a training or of a tracker."""

    transcript: Transcript
    guarantee: object = None
    is_local: bool = False
    is_simulation: bool = False
    notices: tuple = ()


def naive_delta(epsilon, mu):
    """δ(ε) of Gaussian noise (Balle and Wang 2018)."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def facts(document):
    (block,) = (each for each in blocks(document) if hasattr(each, "pairs"))
    return dict(block.pairs)


def test_the_figures_are_those_of_the_run():
    run = trained()
    document = document_of(run)
    check_document(document)
    assert document.audience is Audience.CURATOR_ONLY
    worst = max(range(ROWS), key=lambda row: abs(run.loss[row]))
    tiles = {tile.label: tile for tile in document.tiles}
    assert certainty_up(tiles["Most exposed row"].value, abs(run.loss[worst]))
    assert f" row {worst} " in tiles["Most exposed row"].lines[0]
    (panel,) = epochs_figure(run).panels
    assert document.figures["epochs"] == epochs_figure(run)
    median, late, largest, own = panel.lines
    assert own.x == tuple(range(1, EPOCHS + 1))
    for index, losses in enumerate(run.epochs):
        exposure = sorted(abs(float(loss)) for loss in losses)
        assert median.y[index] == posterior_at(exposure[math.ceil(0.5 * ROWS) - 1])
        assert late.y[index] == posterior_at(exposure[math.ceil(0.99 * ROWS) - 1])
        assert largest.y[index] == posterior_at(exposure[-1])
        assert own.y[index] == posterior_at(abs(float(losses[worst])))
    (epochs,) = (each for each in tables(document) if each.caption.startswith("Exposure in nats"))
    cells, values = column(epochs, "largest")
    assert values == np.abs(run.epochs.astype(float)).max(axis=1).tolist()
    assert all(map(rounded_up, cells, values))


def test_epsilon_by_step_is_that_of_gaussian_noise():
    document = document_of(trained())
    # T full-batch steps are one Gaussian mechanism of μ = √T/σ.
    epsilon = document.facts["epsilon"]
    assert rounded_up(re.search(r"ε = ([\d.]+)", document.verdict.text)[1], epsilon)
    (line,) = document.figures["budget"].panels[0].lines
    assert (line.x[0], line.x[-1], line.y[-1]) == (1, EPOCHS, epsilon)
    for steps, value in zip(line.x, line.y, strict=True):
        assert naive_delta(value, math.sqrt(steps) / 3) <= 1e-5
        assert naive_delta(value * 0.99, math.sqrt(steps) / 3) > 1e-5
    (own,) = (each for each in tables(document) if each.columns[0].title == "rows")
    individual = np.sort(individual_epsilon(trained(), 1e-5).epsilon)
    assert own.values[-1] == ("largest", individual[-1])
    assert all(map(rounded_up, *column(own, "ε")))
    assert training_document(trained(), delta=1e-3).facts["epsilon"] < epsilon


def test_batches_that_are_known_and_hidden_ones():
    known = trained(rate=0.25)
    alone = document_of(known)
    # A transcript of known batches does not know what sampling would have hidden.
    assert alone.facts["epsilon"] is None
    assert "budget" not in alone.figures
    assert "knows the batches" in alone.verdict.text
    shown = re.search(r"ε = ([\d.]+)", alone.verdict.text)[1]
    assert rounded_up(shown, known.guarantee().epsilon(1e-5))
    guarantee = DPSGD(noise_multiplier=3.0, sampling_rate=0.25, steps=known.steps)
    # A tracker computes its guarantee, a training has it.
    for given in (guarantee, lambda: guarantee):
        document = training_document(Run(transcript=known, guarantee=given))
        check_document(document)
        assert document.facts["epsilon"] == guarantee.epsilon(1e-5)
        (line,) = document.figures["budget"].panels[0].lines
        assert line.y[0] < line.y[-1] == guarantee.epsilon(1e-5)
        assert (line.x[0], line.x[-1]) == (1, known.steps)
    hidden = trained(rate=0.25, epochs=1, adversary=Adversary.HIDDEN_BATCHES)
    short = DPSGD(noise_multiplier=3.0, sampling_rate=0.25, steps=hidden.steps)
    document = document_of(hidden)
    assert document.facts["epsilon"] == pytest.approx(short.epsilon(1e-5), rel=1e-6)
    assert facts(document)["batches"].endswith("not known to the attacker")
    assert facts(alone)["batches"].endswith(", known to the attacker")


def test_what_is_not_guaranteed_is_not_reported():
    local = training_document(Run(transcript=trained(), is_local=True))
    check_document(local)
    assert local.facts["epsilon"] is None
    assert local.verdict.tone == "bad"
    assert local.alerts[0].severity == "problem"
    assert set(local.figures) == {"epochs"}
    # Where a filter is used, or the noise changed, ε after some of the steps is not known.
    filtered = document_of(trained(norm_budget=1.0))
    assert "budget" not in filtered.figures
    assert filtered.facts["epsilon"] < document_of(trained()).facts["epsilon"]
    assert "filter" in facts(filtered)
    changed = trained(epochs=4)
    changed.add_known(np.arange(ROWS), np.zeros(ROWS), np.full(ROWS, 0.1), 9.0)
    changed.end_step()
    assert "budget" not in document_of(changed).figures
    assert document_of(changed).facts["epsilon"] is not None
    assert "budget" not in document_of(changed).figures
    replaced = document_of(trained(relation="replace"))
    assert facts(replaced)["neighbouring data set"] == "one row replaced"
    assert all(each.columns[0].title != "rows" for each in tables(replaced))


def test_alerts_of_a_run():
    document = training_document(Run(transcript=trained(), is_simulation=True, notices=(HOSTILE,)))
    check_document(document)
    assert [alert.severity for alert in document.alerts] == ["review", "review", "note"]
    assert "\n" not in document.alerts[1].title
    assert not re.search(r"(?<!\\)<(?!\s)", render_markdown(document))


def test_a_run_without_steps_has_no_figures():
    transcript = Transcript(SGDMechanism(rows=3, noise_multiplier=1, clip=1))
    document = document_of(transcript)
    check_document(document)
    assert (document.figures, document.tiles) == ({}, ())
    with pytest.raises(InvalidInput, match="must be a run of DP-SGD"):
        training_document(7)


def test_long_trainings_are_thinned_out():
    document = document_of(trained(epochs=150, sigma=20.0))
    line = document.figures["epochs"].panels[0].lines[0]
    assert len(line.x) == 60
    assert (line.x[0], line.x[-1]) == (1, 150)
    (epochs,) = (each for each in tables(document) if each.caption.startswith("Exposure in nats"))
    assert [row[0] for row in epochs.values][::7] == [1, 150]
    assert len(document.figures["budget"].panels[0].lines[0].x) <= 33
