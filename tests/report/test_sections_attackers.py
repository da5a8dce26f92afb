"""Both attackers of a training side by side, and no certainty above the guarantee unexplained."""

import re

import numpy as np
import pytest
from scipy.special import expit

from expost.mechanisms.dpsgd import Adversary
from expost.profiles.transcript import transcript_profile
from expost.report import document_of, render_html, render_text
from expost.report.document import Page
from expost.report.sections.training import training_document
from expost.risk.dpsgd import DPSGD

from .cells import check_document, column, tables
from .test_sections_training import Run, trained

DELTA = 1e-5


def sampled(rate=0.25, **options):
    """A run of sampled batches, with its guarantee if the batches are hidden."""
    transcript = trained(rate=rate, **options)
    guarantee = DPSGD(noise_multiplier=3.0, sampling_rate=rate, steps=transcript.steps)
    return transcript, guarantee


def documents(transcript, guarantee):
    profile = transcript_profile(transcript, hidden=guarantee, delta=DELTA)
    return document_of(profile), training_document(Run(transcript=transcript, guarantee=guarantee))


def attackers(document):
    section = next(section for section in document.sections if section.id == "attackers")
    assert section.brief
    # The first section of the page, of its text and of a notebook.
    assert Page(documents=(document,)).sections[0] is section
    return section.blocks[0]


def test_both_attackers_and_the_final_model_stand_in_one_table():
    transcript, guarantee = sampled()
    check_document(documents(transcript, guarantee)[1])
    for document in documents(transcript, guarantee):
        table = attackers(document)
        _, epsilon = column(table, next(c.title for c in table.columns if c.title.startswith("ε")))
        _, allowed = column(table, "certainty about any row, at most")
        assert len(table.values) == 4
        assert epsilon[0] == guarantee.epsilon(DELTA)
        assert epsilon[1] == transcript.guarantee().epsilon(DELTA)
        assert allowed[:2] == [guarantee.loss(DELTA), transcript.guarantee().loss(DELTA)]
        # The guarantee carries over to the final model, and the heuristic is marked.
        assert epsilon[2] == epsilon[0] > epsilon[3]
        assert [("heuristic" in line[0]) for line in table.values] == [False, False, False, True]
        half = [line[-1] for line in table.values]
        assert half[0] is half[2] is half[3] is None
        assert half[1] == np.quantile(np.abs(transcript.loss), 0.5, method="inverted_cdf")


PERCENT = re.compile(r"(\d+(?:\.\d+)?) %")
NAMED = ("knows the batches", "batches known", "all batches")


def test_no_certainty_is_above_the_guarantee_without_a_reason_in_the_line():
    # Much sampling: the two attackers are far apart.
    transcript, guarantee = sampled(rate=0.05, epochs=3)
    # Bounds are rounded up.
    most = 100 * expit(guarantee.loss(DELTA)) + 0.1
    assert 100 * expit(np.max(np.abs(transcript.loss))) > most + 1
    for document in documents(transcript, guarantee):
        lines = render_text(document).splitlines()
        above = [line for line in lines if any(float(p) > most for p in PERCENT.findall(line))]
        assert len(above) >= 3
        for line in above:
            assert any(name in line for name in NAMED), line


def test_rows_and_guarantee_of_hidden_batches_are_of_one_attacker():
    transcript, _ = sampled(epochs=1, adversary=Adversary.HIDDEN_BATCHES)
    for document in documents(transcript, None):
        table = attackers(document)
        half = [line[-1] for line in table.values]
        assert half[0] is not None
        assert half[1] is None
        assert "knows the batches" not in document.verdict.text


def test_without_sampling_there_is_one_attacker_and_no_heuristic():
    transcript = trained()
    for document in (document_of(transcript), document_of(transcript_profile(transcript))):
        table = attackers(document)
        assert len(table.values) == 2
        assert "batches" not in " ".join(line[0] for line in table.values)


def test_a_row_above_its_own_guarantee_is_explained_in_its_cell():
    transcript = trained(epochs=2)
    transcript.loss[7] = 60.0
    cell = attackers(document_of(transcript)).cells[0][3]
    assert "row 7" in cell
    assert "above the guarantee" in cell


@pytest.mark.parametrize(("share", "is_below"), [(0.5, True), (0.995, False), (1.2, False)])
def test_an_epsilon_of_the_accountant_below_the_guarantee_is_explained_in_its_line(share, is_below):
    # Opacus counts sampling where batches are public.
    transcript = trained()
    reported = share * transcript.guarantee().epsilon(DELTA)
    profile = transcript_profile(transcript, reported=lambda delta: reported, delta=DELTA)
    (line,) = (each for each in str(profile).splitlines() if "accountant of the run" in each)
    assert ("below the guarantee" in line and "batches are public" in line) is is_below


def test_notices_are_printed_and_on_the_page():
    transcript, guarantee = sampled()
    notice = "The divisor was computed from something."
    profile = transcript_profile(
        transcript, hidden=guarantee, notices=(notice,), reported=lambda delta: 1.25
    )
    text, page = str(profile), render_html(document_of(profile))
    for shown in (text, page):
        assert notice in shown
        assert "knows which rows were in which batch" in shown
        assert "1.25" in shown
    assert "attackers" in profile.to_json()
    first = text.splitlines()[:2]
    assert any("who knows the batches" in line for line in first)


def test_a_run_without_a_guarantee_has_no_attacker_with_one():
    profile = transcript_profile(trained(), guaranteed=False)
    table = attackers(document_of(profile))
    assert [line[1] for line in table.values] == [None, None]
    assert len(tables(document_of(profile))) > 1
