"""Every item of a dossier: its source, its status, and the result behind each figure."""

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from expost.dossier import ITEMS, Deployment, Status, make_dossier
from expost.dossier.answers import ANSWERS
from expost.dossier.dossier import DISCLAIMER
from expost.errors import InvalidInput
from expost.files.atomic import write_json
from expost.jobs.profile import run as run_profile
from expost.jobs.requests import ProfileRequest
from expost.jobs.requests.evidence import DEPLOYMENTS
from expost.ledger import Ledger
from expost.numbers import percent, upper_text
from expost.profiles.identifiability import identifiability
from expost.profiles.stored import StoredProfile
from expost.publishing.report import PublishedReport
from expost.release import Release
from expost.report import document_of, render_html, render_json, render_markdown
from expost.report.document import Page
from expost.types import Audience
from gates import edited_audit
from report.cells import check_document
from report.conftest import HOSTILE

from .runs import everything, ledger_of, make_results

# What an audit answers, and what a guarantee does. This audit has too few references to refute one.
BY_ATTACKS = {"iso-testing", "aisvs-simulation", "ico-intruder"}
BY_BOUNDS = {
    *("edpb-likelihood", "edpb-membership", "edpb-attribute", "edpb-reconstruction"),
    *("edpb-inversion", "edpb-regurgitation", "gdpr-35-risks", "gdpr-35-measures"),
    *("nist-unit", "nist-epsilon", "nist-algorithm", "iso-worst-case", "iso-re-identification"),
    "aisvs-training",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_results(tmp_path_factory.mktemp("results"))


def keys(dossier, status):
    return {each.item.key for each in dossier.of(status)}


def answer(dossier, key):
    (each,) = (each for each in dossier.answers if each.item.key == key)
    return each.answer


def figures(dossier):
    return [figure for each in dossier.answers for figure in each.answer.figures]


# The table of items ------------------------------------------------------------------------------


def test_every_item_has_a_question_a_source_and_an_answer():
    assert len({item.key for item in ITEMS}) == len({item.title for item in ITEMS}) == len(ITEMS)
    for item in ITEMS:
        assert item.question.endswith("?")
        assert item.source.document
        assert item.answer in ANSWERS
        # A paragraph is cited, or the text is marked as not checked; never both.
        assert item.source.is_checked != item.source.text.endswith("text not checked")
    assert {item.answer for item in ITEMS} == set(ANSWERS)


def test_every_document_is_asked():
    documents = " ".join(item.source.document for item in ITEMS)
    for name in ("28/2024", "GDPR", "800-226", "27559", "AISVS", "ICO"):
        assert name in documents
    assert [each.value for each in Deployment] == list(DEPLOYMENTS)


# Statuses follow from what is given --------------------------------------------------------------


@pytest.mark.parametrize("context", DEPLOYMENTS)
@pytest.mark.parametrize("audience", ["public", "curator-only"])
def test_every_item_has_a_status_and_gaps_come_first(made, context, audience):
    dossier = make_dossier(everything(made), context=context, audience=audience)
    assert len(dossier.ordered) == len(dossier.answers) == len(ITEMS)
    order = [*Status, None]
    places = [order.index(None if e.exempt else e.answer.status) for e in dossier.ordered]
    assert places == sorted(places)
    assert {0, 1, 2, 3} == set(places)
    for each in dossier.answers:
        assert each.answer.text
        # What is answered has a figure, and what is a gap needs no figure.
        assert each.answer.figures or each.answer.status is Status.NOT_DONE
    document = document_of(dossier)
    check_document(document)
    sections = [section.id for section in Page(documents=(document,)).sections]
    assert sections[:4] == ["items", "not-done", "tested", "proved"]


def test_statuses_of_all_results(made):
    dossier = make_dossier(everything(made), context="public-model")
    assert keys(dossier, Status.TESTED) == BY_ATTACKS
    assert keys(dossier, Status.PROVED) == BY_BOUNDS | {"nist-composition"}


def test_without_the_audit_nothing_is_tested(made):
    without = make_dossier([made / "profile", ledger_of(made)], context="public-model")
    assert keys(without, Status.TESTED) == set()
    assert keys(without, Status.NOT_DONE) >= BY_ATTACKS
    assert keys(without, Status.PROVED) == BY_BOUNDS | {"nist-composition"}
    assert all("expost audit" in answer(without, key).command for key in BY_ATTACKS)
    assert not [figure for figure in figures(without) if figure.result == "audit"]


def test_without_the_ledger_nothing_is_composed(made):
    without = make_dossier([made / "profile"], context="api")
    assert "nist-composition" in keys(without, Status.NOT_DONE)
    assert "expost ledger" in answer(without, "nist-composition").command


def test_a_ledger_of_other_data_composes_nothing(made):
    after = made / "after"
    own = make_dossier([after / "erased", after / ledger_of(made).name], context="api")
    assert "nist-composition" in keys(own, Status.PROVED)
    # The ledger before the erasure does not list the model after it.
    other = make_dossier([after / "erased", ledger_of(made)], context="api")
    assert "nist-composition" in keys(other, Status.NOT_DONE)
    assert not [figure for figure in figures(other) if figure.result == "ledger"]


def test_without_the_model_nothing_is_proved(made):
    dossier = make_dossier([made / "audit"], context="api")
    assert keys(dossier, Status.PROVED) == set()
    # Attacks alone answer these.
    assert keys(dossier, Status.TESTED) == BY_ATTACKS | {"edpb-membership", "gdpr-35-risks"}


def test_an_audit_that_refutes_the_guarantee_leaves_nothing_proved(made, tmp_path):
    refuted = edited_audit(made, tmp_path / "refuted", guarantee_refuted=True)
    given = [made / "profile", refuted, ledger_of(made)]
    dossier = make_dossier(given, context="public-model")
    assert keys(dossier, Status.PROVED) == set()
    assert dossier.audience is Audience.NEEDS_REVIEW
    assert "refutes" in answer(dossier, "nist-correctness").text


@pytest.mark.parametrize(
    ("guarantee", "most", "status"),
    [
        ("epsilon = 1, delta = 1e-06", (0.0, 0.9), Status.NOT_DONE),
        ("epsilon = 1, delta = 1e-06", (0.0, 1.1), Status.TESTED),
        ("epsilon = 1, delta = 1e-06", (), Status.NOT_DONE),
        (None, (0.0, 1.1), Status.NOT_DONE),
    ],
)
def test_only_attacks_that_could_refute_the_guarantee_test_it(
    made, tmp_path, guarantee, most, status
):
    bounds = [{"epsilon": 0.0, "most": each} for each in most]
    folder = edited_audit(made, tmp_path / "audit", guarantee=guarantee, lower_bounds=bounds)
    dossier = make_dossier([made / "profile", folder], context="public-model")
    assert answer(dossier, "nist-correctness").status is status
    assert keys(dossier, Status.TESTED) >= BY_ATTACKS


def test_an_audit_of_a_model_without_a_guarantee_tests_no_guarantee(made, tmp_path):
    folder = edited_audit(
        made, tmp_path / "tree", model="a tree", identity=None, guarantee=None, lower_bounds=[]
    )
    assert "nist-correctness" in keys(make_dossier([folder], context="api"), Status.NOT_DONE)


def test_a_ledger_with_a_seeded_release_composes_nothing(made, tmp_path):
    ledger = Ledger.load(ledger_of(made))
    seeded = [replace(entry, release="0" * 64, seeded=True) for entry in ledger.entries]
    path = tmp_path / "ledger.json"
    write_json(path, Audience.CURATOR_ONLY, ledger.with_entries(seeded).to_json())
    dossier = make_dossier([made / "profile", path], context="api")
    assert "nist-composition" in keys(dossier, Status.NOT_DONE)
    assert "seeded noise" in answer(dossier, "nist-composition").text


def test_results_of_another_draw_are_refused(made, tmp_path):
    request = ProfileRequest(
        source=str(made / "people.csv"),
        target="income",
        id_column="number",
        encoding=made / "public.json",
        ledger=tmp_path / "ledger.CURATOR-ONLY.json",
        out=tmp_path / "again",
    )
    run_profile(request)
    given = [made / "profile" / "model.json", tmp_path / "again" / "profile.CURATOR-ONLY.json"]
    with pytest.raises(InvalidInput, match="different models"):
        make_dossier(given, context="api")
    with pytest.raises(InvalidInput, match="profile of another model"):
        StoredProfile.load(given[1], Release.load(given[0]))


def test_black_box_attacks_are_enough_for_an_api_alone(made, tmp_path):
    value = json.loads((made / "audit" / "figures.CURATOR-ONLY.json").read_text())
    attacks = {name: each for name, each in value["attacks"].items() if "gradient" not in name}
    columns = [{"column": "city"}]
    folder = edited_audit(made, tmp_path / "black-box", attacks=attacks, disparity=columns)
    for context, status in (("api", Status.TESTED), ("public-model", Status.NOT_DONE)):
        dossier = make_dossier([made / "profile", folder], context=context)
        assert keys(dossier, status) >= BY_ATTACKS | {"nist-bias"}


def test_groups_are_tested_if_they_were_compared(made, tmp_path):
    def compared(column):
        folder = edited_audit(made, tmp_path / column, disparity=[{"column": column}])
        return make_dossier([made / "profile", folder], context="api")

    assert "nist-bias" in keys(compared("city"), Status.TESTED)
    # The classes are always compared, and say nothing of groups of people.
    assert "nist-bias" in keys(compared("class"), Status.NOT_DONE)


def test_an_audit_of_rows_that_differ_tests_nothing(made, tmp_path):
    """The shift test found a difference: that is curator-only, and so is the reason."""
    shift = {"detected": True}
    results = {
        chosen: edited_audit(made, tmp_path / chosen, shift=shift, members_chosen_by=chosen)
        for chosen in ("unknown", "coins", "propensity")
    }
    for chosen, folder in results.items():
        dossier = make_dossier([made / "profile", folder], context="public-model")
        # Members that were chosen with given probabilities differ for a known reason.
        known = chosen == "propensity"
        assert keys(dossier, Status.TESTED) == (BY_ATTACKS if known else set())
        assert dossier.audience is (Audience.PUBLIC if known else Audience.NEEDS_REVIEW)
        assert ("differ without" in answer(dossier, "iso-testing").text) is not known
    clean = make_dossier(everything(made), context="public-model")
    shown = {each.label: each.value for each in answer(clean, "iso-testing").figures}
    assert shown["References"] == "4"
    assert shown["Members were chosen"] == "unknown"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", shown["Date of the audit"])


@pytest.mark.parametrize("encoded", [True, False])
def test_constants_that_were_read_from_the_data_leave_nothing_proved(made, tmp_path, encoded):
    request = ProfileRequest(
        source=str(made / "people.csv"),
        target="income",
        id_column="number",
        encoding=made / "public.json" if encoded else None,
        ledger=tmp_path / "ledger.CURATOR-ONLY.json",
        out=tmp_path / "profile",
    )
    run_profile(request)
    dossier = make_dossier([tmp_path / "profile"], context="public-model")
    assert keys(dossier, Status.PROVED) == (BY_BOUNDS if encoded else set())
    assert dossier.audience is (Audience.PUBLIC if encoded else Audience.NEEDS_REVIEW)
    if not encoded:
        assert "constants" in answer(dossier, "edpb-likelihood").text


def test_a_guarantee_that_bounds_nothing_proves_nothing_about_attacks(made, tmp_path):
    request = ProfileRequest(
        source=str(made / "people.csv"),
        target="income",
        id_column="number",
        encoding=made / "public.json",
        ledger=tmp_path / "ledger.CURATOR-ONLY.json",
        epsilon=60.0,
        out=tmp_path / "profile",
    )
    run_profile(request)
    dossier = make_dossier([tmp_path / "profile"], context="public-model")
    proved = keys(dossier, Status.PROVED)
    assert proved.isdisjoint({"edpb-likelihood", "edpb-reconstruction", "iso-re-identification"})
    assert "nist-epsilon" in proved


def test_the_risks_of_attacks_are_bounded_if_each_of_them_is(made, tmp_path):
    request = ProfileRequest(
        source=str(made / "people.csv"),
        target="income",
        id_column="number",
        encoding=made / "public.json",
        ledger=tmp_path / "ledger.CURATOR-ONLY.json",
        epsilon=13.5,
        out=tmp_path / "profile",
    )
    run_profile(request)
    for baseline, status in ((0.001, Status.PROVED), (0.5, Status.NOT_DONE)):
        dossier = make_dossier(
            [tmp_path / "profile"], context="api", baseline={"attribute_inference": baseline}
        )
        assert {"edpb-attribute", "gdpr-35-risks"} <= keys(dossier, status)
        assert "edpb-reconstruction" in keys(dossier, Status.PROVED)


def test_context_decides_what_applies(made):
    exempt = {
        context: {
            each.item.key for each in make_dossier([made / "profile"], context=context).exempt
        }
        for context in DEPLOYMENTS
    }
    assert exempt == {
        "public-model": {"aisvs-rate-limits"},
        "api": {"gdpr-17-copies"},
        "internal": {"aisvs-rate-limits", "gdpr-17-copies"},
    }


# Erasure -----------------------------------------------------------------------------------------


def test_a_certificate_answers_erasure(made):
    erased = make_dossier([made / "after" / "erased"], context="api")
    assert "gdpr-17-erasure" in keys(erased, Status.PROVED)
    before = make_dossier([made / "profile"], context="api")
    assert "gdpr-17-erasure" in keys(before, Status.NOT_DONE)
    assert "expost forget" in answer(before, "gdpr-17-erasure").command


def test_a_certificate_of_another_model_is_refused(made, tmp_path):
    certificate = made / "after" / "erased" / "certificate.json"
    with pytest.raises(InvalidInput, match="another model"):
        make_dossier([made / "profile", certificate], context="api")
    for without_model in ([certificate], [made / "audit", certificate]):
        with pytest.raises(InvalidInput, match="folder of the released model"):
            make_dossier(without_model, context="api")
    (tmp_path / "two").mkdir()
    shutil.copy(certificate, tmp_path / "two" / "certificate.json")
    with pytest.raises(InvalidInput, match="two certificates"):
        make_dossier(
            [made / "after" / "erased", tmp_path / "two" / "certificate.json"], context="api"
        )


# Figures -----------------------------------------------------------------------------------------


def test_figures_are_those_of_the_results(made):
    dossier = make_dossier(
        everything(made), context="public-model", audience="curator-only", baseline=0.02
    )
    stated = identifiability(made / "profile" / "model.json", baseline=0.02)
    key = stated.routes[0].key
    extraction, *rows, posterior, certainty = answer(dossier, "edpb-likelihood").figures
    assert posterior.value == f"at most {stated.figure('posterior').shown[key]}"
    table = pq.read_table(made / "profile" / "profile.CURATOR-ONLY.parquet")
    largest = np.max([np.abs(table[name].to_numpy()) for name in ("loss_low", "loss_high")])
    assert certainty.value == f"at most {percent(1 / (1 + np.exp(-largest)), 'up')}"
    assert certainty.audience is Audience.CURATOR_ONLY
    bound, *others = answer(dossier, "edpb-reconstruction").figures
    assert (bound, others) == (extraction, rows)
    assert ", 2 % without" in bound.label
    within = re.fullmatch(r"at most ([\d.]+) %", bound.value)
    reconstruction = next(e for e in stated.attacks if e.risk.name == "reconstruction")
    assert 0.98 < 100 * reconstruction.by[key] / float(within[1]) <= 1
    # Of the rows: the posterior of this model, and the bound over releases where there is a law.
    prior = math.log(0.02 / 0.98) + np.max(table["loss_high"].to_numpy())
    assert rows[0].value == f"at most {percent(1 / (1 + np.exp(-prior)), 'up')}"
    assert {each.audience for each in rows} == {Audience.CURATOR_ONLY}
    law = Release.load(made / "profile" / "model.json").mechanism.closed_form is not None
    assert len(rows) == 1 + law
    audit = json.loads((made / "audit" / "figures.CURATOR-ONLY.json").read_text())
    auc = max(audit["attacks"].values(), key=lambda each: each["auc"]["high"])["auc"]
    shown = [figure.value for figure in answer(dossier, "iso-testing").figures]
    assert any(value.startswith(f"{auc['value']:.3f} (") for value in shown)
    assert "120" in shown


def test_a_baseline_for_each_risk_and_what_it_assumes(made):
    dossier = make_dossier([made / "profile"], context="api", baseline={"attribute_inference": 0.5})
    assert dossier.baselines == {
        "re_identification": 0.001,
        "attribute_inference": 0.5,
        "reconstruction": 0.001,
    }
    given, assumed = (answer(dossier, key) for key in ("edpb-attribute", "edpb-reconstruction"))
    assert ", 50 % without" in given.figures[0].label
    (text,) = given.assumptions
    assert "all other attributes" in text
    assert "default" not in text
    assert "default and not from the data" in assumed.assumptions[0]
    markdown = render_markdown(document_of(dossier)).replace("\\", "")
    assert text in markdown
    assert "it::" not in markdown


def test_the_headline_states_the_guarantee_with_the_report(made):
    """A data-dependent report costs more than the model: the headline has the sum."""
    report = Path(__file__).parent.parent / "sealed" / "report-dependent.json"
    dossier = make_dossier([report], context="api")
    epsilon, _delta = answer(dossier, "nist-epsilon").figures
    own = PublishedReport.load(report).release.mechanism
    assert float(epsilon.value) > own.epsilon
    assert f"epsilon = {epsilon.value}, delta = " in dossier.model
    assert f"ε = {epsilon.value}" in document_of(dossier).subtitle[0]
    assert f"epsilon = {upper_text(own.epsilon)}," not in dossier.model


def test_no_figure_without_a_result_behind_it(made):
    kinds = {
        "profile": {"model", "profile"},
        "published": {"model", "published report"},
        "audit": {"audit"},
    }
    for folder, allowed in kinds.items():
        dossier = make_dossier([made / folder], context="api", audience="curator-only")
        assert {figure.result for figure in figures(dossier)} <= allowed
        assert set(dossier.kinds) - {"summary"} <= allowed
    # Texts hold no figure at all, except the AUC of random guessing.
    dossier = make_dossier(everything(made), context="api", audience="curator-only")
    for each in dossier.answers:
        assert not re.search(r"\d", each.answer.text.replace("0.5", "")), each.answer.text


def test_a_public_dossier_has_no_curator_only_figure(made):
    public = make_dossier(everything(made), context="public-model")
    assert public.audience is Audience.PUBLIC
    assert {figure.audience for figure in figures(public)} == {Audience.PUBLIC}
    assert {file.audience for file in public.files} == {Audience.PUBLIC}
    curator = make_dossier(everything(made), context="public-model", audience="curator-only")
    assert Audience.CURATOR_ONLY in {figure.audience for figure in figures(curator)}
    # Statuses are the same for both.
    assert [e.answer.status for e in public.answers] == [e.answer.status for e in curator.answers]


# Text --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", DEPLOYMENTS)
def test_no_compliance_is_claimed(made, context):
    dossier = make_dossier(everything(made), context=context, audience="curator-only")
    document = document_of(dossier)
    for text in (render_html(Page(documents=(document,))), render_markdown(document)):
        assert "No compliance" in text
    rest = render_json(document).replace(DISCLAIMER, "") + json.dumps(dossier.fields()).replace(
        DISCLAIMER, ""
    )
    assert not re.search("complian|complies|comply", rest, re.IGNORECASE)


def test_hostile_names_stay_text(made, tmp_path):
    value = json.loads((made / "audit" / "figures.CURATOR-ONLY.json").read_text())
    attacks = {f"{HOSTILE}{name}": each for name, each in value["attacks"].items()}
    folder = edited_audit(made, tmp_path / "hostile", attacks=attacks)
    dossier = make_dossier([made / "profile", folder], context="api", audience="curator-only")
    document = document_of(replace(dossier, model=HOSTILE))
    check_document(document)
    page = render_html(Page(documents=(document,)))
    assert "alert(" in page
    assert '<script>alert("x")' not in page
    assert "<img" not in page
    rest = [line for line in render_markdown(document).splitlines() if not line.startswith("    ")]
    assert not any(re.search(r"(?<!\\)<(?!\s)", line) for line in rest)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"context": "cloud"}, "context"),
        ({"context": "api", "audience": "everybody"}, "audience"),
        ({"context": "api", "baseline": 0.0}, "baseline"),
        ({"context": "api", "baseline": float("nan")}, "baseline"),
    ],
)
def test_wrong_options_are_refused(made, options, words):
    with pytest.raises(InvalidInput, match=words):
        make_dossier([made / "profile"], **options)
