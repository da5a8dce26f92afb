"""Documents of audits: their figures are those of the audits, bounds on the safe side."""

import dataclasses
import re

import numpy as np
import pytest

from expost.auditing.attacks import described
from expost.auditing.result import WARNING
from expost.auditing.roc import auc, figures
from expost.auditing.sweep import AuditSweep
from expost.errors import InvalidInput
from expost.numbers import posterior_at
from expost.report import document_of, page_of, render_html, render_json, render_markdown
from expost.report.sections.audit import exposures_figure, roc_figure
from expost.report.sections.audit_overview import RISK_LEVEL, Attacked, Leakage
from expost.report.sections.audits import audits_figure
from expost.risk import EpsilonDelta
from expost.types import Audience

from .audits import KINDS, MEMBERS, MODELS, OTHERS, audited, bound
from .cells import check_document, column, rounded_down, rounded_up, tables
from .conftest import HOSTILE

SWEEPS = {
    "usual": ((0.1, 1.0, 30.0), ("one attack", "promised", "promised")),
    "unknown": ((0.1, 1.0), ("nothing", "memorised")),
    "refuted": ((0.1, 1.0, 10.0), ("promised", "refuted", "promised")),
    "one": ((2.0,), ("promised",)),
}


def sweep_of(kind):
    epsilons, kinds = SWEEPS[kind]
    return AuditSweep(epsilons=epsilons, audits=tuple(map(audited, kinds)))


def table_with(document, *titles):
    """The one table with these columns."""
    (match,) = (
        table
        for table in tables(document)
        if set(titles) <= {column.title for column in table.columns}
    )
    return match


def tiles(document):
    return {tile.label: tile for tile in document.tiles}


def ends(cell):
    """The numbers of a cell with an interval."""
    value, low, high = re.findall(r"−?[\d.]+", cell)
    return tuple(float(text.replace("−", "-")) for text in (value, low, high))


def check_intervals(cells, estimates, *, scale=1.0, digits=3):
    for cell, estimate in zip(cells, estimates, strict=True):
        if estimate is None:
            assert cell == "–"
            continue
        value, low, high = ends(cell)
        unit = 10.0**-digits
        assert value == pytest.approx(scale * estimate.value, abs=0.51 * unit)
        assert -1e-9 <= scale * estimate.low - low <= 1.01 * unit
        assert -1e-9 <= high - scale * estimate.high <= 1.01 * unit


# An audit --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_audit_has_a_document(kind):
    audit = audited(kind)
    document = document_of(audit)
    check_document(document)
    assert document.audience is Audience.CURATOR_ONLY
    assert document.facts["members"] == MEMBERS
    assert document.facts["non_members"] == OTHERS
    assert document.facts["references"] == (0 if kind in ("bare", "one attack") else MODELS)
    assert WARNING in [alert.title for alert in document.alerts]
    assert render_json(document) == render_json(document_of(audit))
    assert str(audit).startswith(document.verdict.text)
    assert render_html(page_of(audit, versions={})).count('id="attacks"') == 1


@pytest.mark.parametrize("kind", KINDS)
def test_attacks_and_their_intervals(kind):
    audit = audited(kind)
    document = document_of(audit)
    order = sorted(audit.figures, key=lambda name: -audit.figures[name].auc.value)
    shown = table_with(document, "attack", "AUC")
    assert column(shown, "attack")[1] == order
    for title, field, scale, digits in (
        ("AUC", "auc", 1, 3),
        ("advantage", "advantage", 1, 3),
        ("TPR at 1 % FPR", "tpr_at_1_percent", 100, 1),
    ):
        cells, values = column(shown, title)
        estimates = [getattr(audit.figures[name], field) for name in order]
        assert values == [estimate.value for estimate in estimates]
        check_intervals(cells, estimates, scale=scale, digits=digits)
    more = table_with(document, "attack", "compares")
    assert column(more, "compares")[1] == [described(name).description for name in order]
    estimates = [audit.figures[name].accuracy for name in order]
    check_intervals(column(more, "balanced accuracy")[0], estimates)
    estimates = [audit.figures[name].tpr_at_01_percent for name in order]
    check_intervals(column(more, "TPR at 0.1 % FPR")[0], estimates, scale=100, digits=1)
    assert f"{audit.figures[order[0]].auc.value:.3f}" in tiles(document)["Best attack"].value
    largest = max(each.tpr_at_1_percent.value for each in audit.figures.values())
    rate = tiles(document)["TPR at 1 % FPR"].value.removesuffix(" %")
    assert float(rate) == pytest.approx(100 * largest, abs=0.051)
    assert ("shadow (needs views)" in render_markdown(document)) == (kind == "bare")


@pytest.mark.parametrize("kind", ["promised", "one attack"])
def test_every_point_of_a_curve_is_a_threshold(kind):
    """Also with ties, of which the rounded scores have many."""
    audit = audited(kind)
    (panel,) = roc_figure(audit).panels
    assert document_of(audit).figures["roc"] == roc_figure(audit)
    curves = [line for line in panel.lines if line.step]
    assert len(curves) == len(audit.figures)
    for line in curves:
        name = line.name.partition(" (AUC")[0]
        scores = audit.scores[name]
        naive = {(0.0, 0.0)}
        for threshold in scores:
            above = scores >= threshold
            naive.add((np.mean(above[~audit.truth]), np.mean(above[audit.truth])))
        points = list(zip(line.x, line.y, strict=True))
        assert set(points) <= naive
        assert points == sorted(points)
        assert (points[0], points[-1]) == ((0.0, 0.0), (1.0, 1.0))
        # What is identified without a false positive is not left out, nor what is at 1 %.
        for rate in (0.0, 0.01):
            assert max(y for x, y in points if x <= rate) == max(y for x, y in naive if x <= rate)
    guarantee, guessing = panel.lines[-2:]
    for rate, allowed in zip(guarantee.x, guarantee.y, strict=True):
        assert allowed == audit.guarantee.true_positive_rate(rate) >= rate
    assert guessing.x == guessing.y
    assert panel.x.low <= 1 / OTHERS
    assert panel.x.log
    assert panel.y.log


def test_bounds_are_beside_the_guarantee():
    audit = audited("refuted")
    document = document_of(audit)
    shown = table_with(document, "ε is at least")
    cells, values = column(shown, "ε is at least")
    assert values == [each.epsilon for each in audit.bounds]
    assert all(map(rounded_down, cells, values))
    cells, values = column(shown, "ε of the guarantee")
    assert values == [audit.guarantee.epsilon(each.delta) for each in audit.bounds]
    assert all(map(rounded_up, cells, values))
    assert all(map(rounded_up, *column(shown, "largest ε it can show")))
    assert column(shown, "confidence")[1] == [each.confidence for each in audit.bounds]
    assert document.verdict.priority == 100
    assert document.verdict.tone == "bad"
    assert document.facts["guarantee_refuted"]
    assert document.alerts[0].severity == "problem"
    assert tiles(document)["Proved lower bound on ε"].value == "ε ≥ 3.5"
    unknown = table_with(document_of(audited("memorised")), "ε is at least")
    assert column(unknown, "ε of the guarantee")[1] == [None]


def test_a_bound_is_never_rounded_up():
    audit = dataclasses.replace(audited("refuted"), bounds=(bound(1.23999),))
    document = document_of(audit)
    assert "at least 1.23 at" in document.verdict.text
    assert "1.24" not in render_markdown(document)
    assert tiles(document)["Proved lower bound on ε"].value == "ε ≥ 1.23"


def test_rows_at_risk():
    audit = audited()
    document = document_of(audit)
    row_auc = audit.row_auc.value[:MEMBERS]
    order = sorted(range(MEMBERS), key=lambda row: -row_auc[row])[:20]
    shown = table_with(document, "row", "standard error")
    scores = audit.scores[audit.best]
    assert column(shown, "row")[0] == [f"person {row}" for row in order]
    assert column(shown, "per-row AUC")[1] == [row_auc[row] for row in order]
    assert column(shown, "standard error")[1] == [audit.row_auc.error[row] for row in order]
    assert column(shown, "non-members that score as high")[1] == [
        pytest.approx(np.mean(scores[MEMBERS:] >= scores[row])) for row in order
    ]
    cells, values = column(shown, "exposure (nats)")
    assert values == [abs(audit.exposures.loss[row]) for row in order]
    assert all(map(rounded_up, cells, values))
    assert column(shown, "expected exposure (nats)")[1] == [
        audit.exposures.expected[row] for row in order
    ]
    levels = table_with(document, "per-row AUC, at least")
    for level, members, by_chance in levels.values:
        assert members == sum(value >= level - 1e-9 for value in row_auc)
        assert by_chance == sum(value <= 1 - level + 1e-9 for value in row_auc)
    at_risk = sum(value >= RISK_LEVEL - 1e-9 for value in row_auc)
    assert tiles(document)["Rows at risk"].value == str(at_risk)
    # Power: what the models reveal is on one side.
    assert at_risk > 5 * Attacked(audit=audit).mirrored(RISK_LEVEL)


def test_chance_falls_on_either_side():
    attacked = Attacked(audit=audited("nothing"))
    both = attacked.reaching(0.6), attacked.mirrored(0.6)
    assert sum(both) > 10
    assert abs(both[0] - both[1]) < 3 * sum(both) ** 0.5


def test_an_unknown_row_is_not_private():
    row_auc = audited().row_auc
    value = row_auc.value.copy()
    value[[50, 70]] = np.nan
    audit = dataclasses.replace(audited(), row_auc=dataclasses.replace(row_auc, value=value))
    document = document_of(audit)
    check_document(document)
    shown = table_with(document, "row", "standard error")
    assert column(shown, "row")[0][:2] == ["person 50", "person 70"]
    assert column(shown, "per-row AUC")[0][:2] == ["–", "–"]
    known = sum(value[:MEMBERS] >= RISK_LEVEL - 1e-9)
    assert tiles(document)["Rows at risk"].value == str(known + 2)
    assert len(exposures_figure(audit).panels[0].lines[0].x) == MEMBERS - 2


def test_without_references_rows_are_ranked_by_score():
    audit = audited("bare")
    document = document_of(audit)
    scores = audit.scores[audit.best][:MEMBERS]
    shown = table_with(document, "row", "non-members that score as high")
    # Without ids a row is named by its index.
    best = sorted(range(MEMBERS), key=lambda row: -scores[row])[:20]
    assert column(shown, "row")[0] == [str(row) for row in best]
    assert tiles(document)["Rows at risk"].value == "unknown"
    assert [*document.figures] == ["roc"]
    with pytest.raises(InvalidInput, match="references"):
        exposures_figure(audit)


def test_attacks_beside_exposures():
    audit = audited()
    (panel,) = exposures_figure(audit).panels
    assert document_of(audit).figures["exposures"] == exposures_figure(audit)
    expected, row_auc = audit.exposures.expected, audit.row_auc.value[:MEMBERS]
    (line,) = panel.lines
    pairs = {(posterior_at(x), y) for x, y in zip(expected, row_auc, strict=True)}
    assert set(zip(line.x, line.y, strict=True)) == pairs
    document = document_of(audit)
    shown = table_with(document, "rank correlation of")
    assert column(shown, "Spearman's ρ")[1] == [each.value for each in audit.correlations]
    shown = table_with(document, "rank by attacks")
    for key, measure, by_exposure, per_row, by_attacks in shown.values:
        row = int(key.removeprefix("person "))
        assert (measure, per_row) == (expected[row], row_auc[row])
        assert by_exposure == 1 + sum(expected > expected[row])
        # Ties are ranked as they come.
        assert 1 + sum(row_auc > per_row) <= by_attacks <= sum(row_auc >= per_row)
        assert abs(by_exposure - by_attacks) > MEMBERS / 4


def test_without_noise_rows_have_distances():
    audit = audited()
    infinite = np.full(MEMBERS, np.inf)
    exposures = dataclasses.replace(audit.exposures, expected=infinite, loss=infinite)
    noiseless = dataclasses.replace(audit, exposures=exposures)
    document = document_of(noiseless)
    check_document(document)
    (line,) = exposures_figure(noiseless).panels[0].lines
    assert max(line.x) == exposures.distance.max()
    shown = table_with(document, "row", "standard error")
    titles = [each.title for each in shown.columns]
    assert "exposure (nats)" not in titles
    assert column(shown, "distance")[1][0] == exposures.distance[audit.ranking[0]]


def test_groups_are_those_of_the_disparity():
    audit = audited()
    document = document_of(audit)
    for disparity in audit.disparity:
        shown = table_with(document, disparity.column, "members")
        groups = disparity.groups
        assert column(shown, disparity.column)[1] == [group.label for group in groups]
        assert column(shown, "members")[1] == [group.members for group in groups]
        assert column(shown, "non-members")[1] == [group.non_members for group in groups]
        check_intervals(column(shown, "AUC")[0], [group.auc for group in groups])
        for title, field in (
            ("TPR at 1 % FPR of all rows", "true_positive_rate"),
            ("FPR of the group", "false_positive_rate"),
        ):
            rates = [getattr(group, field) for group in groups]
            check_intervals(column(shown, title)[0], rates, scale=100, digits=1)
            assert column(shown, title)[1] == [rate and rate.value for rate in rates]
    assert "attack-groups" not in [section.id for section in document_of(audited("bare")).sections]


# How much leaks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "leakage", "tone"),
    [
        ("promised", Leakage.SOME, "caution"),
        ("memorised", Leakage.MUCH, "bad"),
        ("refuted", Leakage.SOME, "bad"),
        ("nothing", Leakage.NONE, "plain"),
        ("one attack", Leakage.SOME, "caution"),
    ],
)
def test_the_verdict(kind, leakage, tone):
    audit = audited(kind)
    assert Attacked(audit=audit).leakage is leakage
    verdict = document_of(audit).verdict
    assert verdict.tone == tone
    assert verdict.priority == (100 if kind == "refuted" else 40)
    named = Attacked(audit=audit).separation is not Leakage.NONE and kind != "refuted"
    assert (audit.best in verdict.text) == named
    assert (f"{audit.figures[audit.best].auc.value:.3f}" in verdict.text) == named


@pytest.mark.parametrize(
    ("sharp", "identified"), [(0, False), (25, False), (600, True)], ids=["none", "luck", "many"]
)
def test_members_are_identified_only_where_that_is_certain(sharp, identified):
    """All members fit a little better; some of them far better than any non-member."""
    rng = np.random.default_rng(9)
    truth = np.arange(4000) < 2000
    scores = rng.normal(size=4000) + 0.5 * truth
    scores[truth] = np.minimum(scores[truth], np.quantile(scores[~truth], 0.98))
    scores[:sharp] += 9
    made = figures(scores, truth)
    audit = dataclasses.replace(
        audited("bare"), truth=truth, scores={"loss": scores}, figures={"loss": made}
    )
    # By luck the share of the members alone exceeds that of guessing.
    assert (made.tpr_at_1_percent.value > 0.01) == (sharp > 0)
    text = document_of(audit).verdict.text
    assert Attacked(audit=audit).separation is not Leakage.NONE
    assert (("identifies" in text), ("FPR" in text)) == (identified, identified)
    assert f"{made.auc.value:.3f}" in text


def test_what_is_proved_is_leakage():
    audit = dataclasses.replace(audited("nothing"), bounds=(bound(0.0), bound(0.972)))
    assert Attacked(audit=audit).separation is Leakage.NONE
    assert Attacked(audit=audit).leakage is Leakage.SOME
    assert "at least 0.972" in document_of(audit).verdict.text


def test_the_best_of_many_attacks_is_not_taken_for_more_than_luck():
    """Sixty attacks of chance alone: the best passes its own interval, and not that of all."""
    rng = np.random.default_rng(8)
    truth = audited("nothing").truth
    scores = {f"own {index}": rng.normal(size=len(truth)) for index in range(60)}
    scores["own 0"] = np.where(truth, 0.52, 0.0) + scores["own 0"]
    made = {name: figures(each, truth) for name, each in scores.items()}
    audit = dataclasses.replace(audited("nothing"), scores=scores, figures=made)
    assert audit.figures[audit.best].auc.low > 0.5
    assert Attacked(audit=audit).leakage is Leakage.NONE
    # Power: alone it would count.
    alone = dataclasses.replace(
        audit,
        scores={audit.best: scores[audit.best]},
        figures={audit.best: made[audit.best]},
        confidence=0.9,
    )
    assert Attacked(audit=alone).leakage is Leakage.SOME


def test_an_advantage_beyond_the_guarantee_is_an_alert():
    audit = dataclasses.replace(
        audited("memorised"), guarantee=EpsilonDelta(epsilon=0.1), bounds=()
    )

    def warned(result):
        alerts = document_of(result).alerts
        return [a for a in alerts if a.severity == "review" and a.title not in result.notices]

    (alert,) = warned(audit)
    assert audit.best in alert.title
    assert warned(audited()) == []


def test_hostile_names_stay_text():
    audit = audited()
    disparity = dataclasses.replace(audit.disparity[0], column=HOSTILE, attack=HOSTILE)
    scores = {HOSTILE: audit.scores["lira-online"]}
    bad = dataclasses.replace(
        audit,
        description=HOSTILE,
        scores=scores,
        figures={HOSTILE: audit.figures["lira-online"]},
        disparity=(disparity,),
        skipped={HOSTILE: HOSTILE},
        ids=tuple(f"{row} {HOSTILE}" for row in range(len(audit))),
        notices=(HOSTILE,),
        bounds=(bound(0.5, method=HOSTILE),),
    )
    for result in (bad, AuditSweep(epsilons=(1.0, 2.0), audits=(bad, bad))):
        document = document_of(result)
        check_document(document)
        assert not re.search(r"(?<!\\)<(?![\s])", render_markdown(document))
        page = render_html(page_of(result, versions={}))
        assert "<script>alert(" not in page
        assert "<img" not in page


# Audits over ε ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SWEEPS)
def test_every_figure_is_beside_its_epsilon(kind):
    sweep = sweep_of(kind)
    document = document_of(sweep)
    check_document(document)
    assert document.audience is Audience.NEEDS_REVIEW
    shown, guaranteed = tables(document)
    best = [each.figures[each.best] for each in sweep.audits]
    assert column(shown, "ε")[1] == list(sweep.epsilons)
    assert column(shown, "best attack")[1] == [each.best for each in sweep.audits]
    check_intervals(column(shown, "AUC")[0], [each.auc for each in best])
    check_intervals(column(shown, "advantage")[0], [each.advantage for each in best])
    assert column(shown, "AUC")[1] == [each.auc.value for each in best]
    cells, values = column(guaranteed, "advantage it allows")
    assert values == [each.advantage_bound for each in sweep.audits]
    for cell, value in zip(cells, values, strict=True):
        assert cell == "–" if value is None else rounded_up(cell, value)
    cells, values = column(guaranteed, "ε is at least")
    assert values == [max(b.epsilon for b in each.bounds) for each in sweep.audits]
    assert all(map(rounded_down, cells, values))
    check_intervals(column(guaranteed, "rank correlation")[0], sweep.correlations, digits=2)
    assert WARNING in [alert.title for alert in document.alerts]
    assert str(sweep).startswith(document.verdict.text)


@pytest.mark.parametrize("kind", SWEEPS)
def test_the_figure_of_audits(kind):
    sweep = sweep_of(kind)
    panels = audits_figure(sweep).panels
    assert document_of(sweep).figures["audits"] == audits_figure(sweep)
    best = [each.figures[each.best] for each in sweep.audits]
    related = [each for each in sweep.correlations if each is not None]
    drawn = [[each.auc for each in best], [each.advantage for each in best], related]
    assert len(panels) == (3 if related else 2)
    for panel, estimates in zip(panels, drawn, strict=False):
        line = panel.lines[0]
        assert line.y == tuple(each.value for each in estimates)
        assert line.low == tuple(each.low for each in estimates)
        assert line.high == tuple(each.high for each in estimates)
        assert panel.y.low <= min(line.low)
        assert panel.x.quantity == "epsilon"
    assert panels[0].lines[0].x == sweep.epsilons
    bounds = tuple(e.advantage_bound for e in sweep.audits if e.advantage_bound is not None)
    assert tuple(line.y for line in panels[1].lines[1:]) == ((bounds,) if bounds else ())


def test_nothing_of_a_row_is_in_the_audits():
    """The audits name rows by their ids; a page that may be reviewed does not."""
    sweep = sweep_of("usual")
    assert any(each.ids is not None for each in sweep.audits)
    page = page_of(sweep, versions={})
    for text in (render_html(page), render_markdown(page), render_json(page)):
        assert "person 1" not in text


def test_the_verdict_on_audits():
    refuted = document_of(sweep_of("refuted"))
    assert (refuted.verdict.priority, refuted.verdict.tone) == (100, "bad")
    assert "ε = 1." in refuted.verdict.text
    shown = table_with(refuted, "guarantee")
    assert column(shown, "guarantee")[0] == ["not refuted", "refuted", "not refuted"]
    assert document_of(sweep_of("usual")).verdict.priority == 38
    # An attack counts where its interval does, widened for all of them.
    sweep = sweep_of("unknown")
    tried = sum(len(each.figures) for each in sweep.audits)
    better = [
        max(auc(s, each.truth, confidence=1 - 0.05 / tried).low for s in each.scores.values()) > 0.5
        for each in sweep.audits
    ]
    assert better == [False, True]
    document = document_of(sweep)
    assert "ε = 1 " in document.verdict.text
    assert document.verdict.tone == "caution"
    nothing = AuditSweep(epsilons=(1.0,), audits=(audited("nothing"),))
    assert document_of(nothing).verdict.tone == "plain"


def test_a_page_of_both_an_audit_and_audits():
    page = page_of(sweep_of("usual"), audited(), versions={})
    assert page.kinds == ("audits", "audit")
    assert page.audience is Audience.CURATOR_ONLY
    identifiers = [section.id for section in page.sections]
    assert len(set(identifiers)) == len(identifiers)


def test_the_line_of_all_models_names_no_epsilon():
    audit = dataclasses.replace(audited(), description="logistic, epsilon=3, n=4")
    (model, _) = document_of(AuditSweep(epsilons=(1.0,), audits=(audit,))).subtitle
    assert model == "logistic, n=4"
