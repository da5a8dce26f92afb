"""The summary of an audit: its figures are those of the audit, counted again here one by one."""

import dataclasses
import json

import numpy as np
import pytest

from expost.attacks.roc import figures
from expost.audits.result import WARNING
from expost.report import collect, collect_audit, render_json, render_markdown
from expost.report.audit_answer import Finding, finding, is_spread
from expost.report.audit_words import is_white_box, words
from expost.risk import EpsilonDelta
from expost.types import Audience

from .audits import KINDS, MEMBERS, MODELS, OTHERS, audited, bound


def test_attacks_are_those_of_the_audit_and_the_best_comes_first():
    audit = audited()
    summary = collect_audit(audit)
    assert [one.name for one in summary.attacks] == ["lira-online", "loss", "my_own $signal$"]
    assert summary.best == audit.best == "lira-online"
    for one in summary.attacks:
        found = audit.figures[one.name]
        assert (one.auc, one.advantage, one.accuracy) == (
            found.auc,
            found.advantage,
            found.accuracy,
        )
        assert one.tpr_at_1_percent == found.tpr_at_1_percent
        assert one.tpr_at_01_percent == found.tpr_at_01_percent
    assert (summary.members, summary.others, summary.references) == (MEMBERS, OTHERS, MODELS)
    assert summary.audience is Audience.FAIL
    assert summary.warning == WARNING


@pytest.mark.parametrize("kind", ["promised", "one attack"])
def test_every_point_of_a_curve_is_a_threshold(kind):
    """Also with ties, of which the rounded scores have many."""
    audit = audited(kind)
    for one in collect_audit(audit).attacks:
        scores = audit.scores[one.name]
        naive = {(0.0, 0.0)}
        for threshold in scores:
            said = scores >= threshold
            naive.add((np.mean(said[~audit.truth]), np.mean(said[audit.truth])))
        points = [(p.false_positive_rate, p.true_positive_rate) for p in one.curve]
        assert set(points) <= naive
        assert points == sorted(points)
        assert (points[0], points[-1]) == ((0.0, 0.0), (1.0, 1.0))
        # What is found without a single false one is not left out.
        alone = max(true for false, true in naive if false == 0)
        assert (0.0, alone) in points


def test_the_promise_beside_the_attacks():
    audit = audited()
    summary = collect_audit(audit)
    assert summary.advantage_bound == audit.guarantee.advantage
    for point in summary.promised:
        allowed = audit.guarantee.true_positive_rate(point.false_positive_rate)
        assert point.true_positive_rate == allowed >= point.false_positive_rate
    assert summary.promised[0].false_positive_rate < 1 / OTHERS
    (line,) = summary.bounds
    assert (line.epsilon, line.promised, line.refutes) == (
        0.25,
        audit.guarantee.epsilon(1e-5),
        False,
    )
    refuted = collect_audit(audited("refuted"))
    assert [one.refutes for one in refuted.bounds] == [True, False]
    assert refuted.promise_refuted
    bare = collect_audit(audited("memorised"))
    assert (bare.promise, bare.promised, bare.bounds[0].promised) == (None, (), None)


def test_rows_and_how_much_more_than_the_average():
    audit = audited()
    summary = collect_audit(audit)
    told = audit.told_apart.value[:MEMBERS]
    assert summary.average == pytest.approx(sum(told) / MEMBERS)
    assert summary.unknown == 0
    order = sorted(range(MEMBERS), key=lambda row: -told[row])
    scores = audit.scores["lira-online"]
    for row in summary.vulnerable:
        place = order[row.rank - 1]
        assert row.key == f"person {place}"
        assert (row.told_apart, row.error) == (told[place], audit.told_apart.error[place])
        assert row.beyond_average == pytest.approx((told[place] - 0.5) / (summary.average - 0.5))
        higher = [other for other in scores[MEMBERS:] if other >= scores[place]]
        assert row.as_high == pytest.approx(len(higher) / OTHERS)
        assert row.exposure == abs(audit.exposures.loss[place])
        assert row.measured == audit.exposures.typical[place]
    assert len(summary.vulnerable) == 20
    for level in summary.levels:
        assert level.members == sum(value >= level.level - 1e-9 for value in told)
        assert level.mirrored == sum(value <= 1 - level.level + 1e-9 for value in told)
    # Power: what is told apart is on one side.
    assert summary.levels[1].members > 5 * summary.levels[1].mirrored


def test_by_luck_as_many_fall_on_one_side_as_on_the_other():
    """Of rows that nothing tells apart the mirrored count is the count, give or take chance."""
    audit = audited("nothing")
    first = collect_audit(audit).levels[0]
    total = first.members + first.mirrored
    assert total > 10
    assert abs(first.members - first.mirrored) < 3 * total**0.5


def test_a_row_that_is_not_known_is_not_private():
    told = audited().told_apart
    value = told.value.copy()
    value[[5, 7]] = np.nan
    audit = dataclasses.replace(audited(), told_apart=dataclasses.replace(told, value=value))
    summary = collect_audit(audit)
    assert summary.unknown == 2
    assert [row.key for row in summary.vulnerable[:2]] == ["person 5", "person 7"]
    assert summary.vulnerable[0].told_apart is None
    assert summary.vulnerable[0].beyond_average is None
    assert summary.placed == MEMBERS - 2
    assert "unknown" in render_markdown(collect(audit))


def test_without_references_rows_are_ranked_by_score():
    audit = audited("bare")
    summary = collect_audit(audit)
    scores = audit.scores[audit.best][:MEMBERS]
    assert (summary.average, summary.levels, summary.scatter) == (None, (), ())
    best = sorted(range(MEMBERS), key=lambda row: -scores[row])[:20]
    # Without ids a row is called by its place.
    assert [row.key for row in summary.vulnerable] == [str(row) for row in best]
    assert [row.as_high for row in summary.vulnerable] == sorted(
        row.as_high for row in summary.vulnerable
    )
    assert summary.skipped == (("shadow", "needs views"),)


def test_where_theory_and_attacks_disagree():
    audit = audited()
    summary = collect_audit(audit)
    typical, told = audit.exposures.typical, audit.told_apart.value[:MEMBERS]
    for row in summary.disagreements:
        place = int(row.key.removeprefix("person "))
        assert row.measured_rank == 1 + sum(typical > typical[place])
        # Ties are ranked as they come.
        assert row.attack_rank >= 1 + sum(told > told[place])
        assert row.attack_rank <= sum(told >= told[place])
        assert (row.measured, row.told_apart) == (typical[place], told[place])
    gaps = [abs(row.measured_rank - row.attack_rank) for row in summary.disagreements]
    assert min(gaps) > MEMBERS / 4
    assert {(p.measured, p.told_apart) for p in summary.scatter} == set(
        zip(typical, told, strict=True)
    )
    assert [one.what for one in summary.correlations][-1] == "typical exposure and told apart"
    assert summary.correlations[-1].value > 0.4


def test_a_model_without_noise_is_ranked_by_distance():
    audit = audited()
    still = dataclasses.replace(
        audit.exposures, typical=np.full(MEMBERS, np.inf), loss=np.full(MEMBERS, np.inf)
    )
    quiet = dataclasses.replace(audit, exposures=still)
    summary = collect_audit(quiet)
    assert (summary.measure, summary.exposed) == ("distance", False)
    assert summary.vulnerable[0].exposure is None
    assert summary.vulnerable[0].measured == still.distance[0]
    assert summary.scatter[-1].measured == still.distance.max()
    assert "distance" in render_markdown(collect(quiet))


def test_groups_are_those_of_the_disparity():
    audit = audited()
    region, parity = collect_audit(audit).disparity
    assert (region.column, parity.column, region.attack) == ("region", "class", "lira-online")
    for line, one in zip(region.groups, audit.disparity[0], strict=True):
        assert (line.label, line.members, line.others) == (one.label, one.members, one.others)
        assert line.auc == one.auc
        if one.true_positive_rate is not None:
            share = one.true_positive_rate
            assert (line.found.value, line.found.low, line.found.high) == (
                share.value,
                share.low,
                share.high,
            )
    tiny = next(line for line in region.groups if line.label == "tiny")
    assert (tiny.members, tiny.auc, tiny.found, tiny.accused) == (3, None, None, None)


def test_intervals_that_lie_apart():
    weak, strong = (audited(kind).figures["lira-online"].auc for kind in ("nothing", "memorised"))
    assert is_spread([weak, strong, None])
    assert not is_spread([weak, weak])
    assert not is_spread([None])
    assert not is_spread([])


# The answer ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "found", "start", "promise", "advice"),
    [
        ("promised", Finding.SOME, "can guess better", "is not refuted", "most vulnerable rows"),
        ("memorised", Finding.MUCH, "can often tell", "No promise", "Treat the model like"),
        ("refuted", Finding.SOME, "can guess better", "is refuted: ε is at least 3.5", "Do not"),
        ("nothing", Finding.NOTHING, "learns nothing", "No promise", "nothing here vouches"),
        ("one attack", Finding.SOME, "loss, the one attack,", "not refuted", "vulnerable rows"),
    ],
)
def test_the_answer_is_three_sentences(kind, found, start, promise, advice):
    audit = audited(kind)
    assert finding(audit) is found
    answer = collect(audit).answer
    assert len(answer) == 3
    for sentence, words_ in zip(answer, (promise, start, advice), strict=True):
        assert words_ in sentence
        assert sentence.endswith(".")
    area = audit.figures[audit.best].auc.value
    assert f"{100 * area:.1f}\xa0%" in answer[1]
    alarm = collect_audit(audit).headline.alarm
    assert alarm == (audit.promise_refuted or found is Finding.MUCH)


def test_what_is_proved_is_not_called_nothing():
    audit = dataclasses.replace(audited("nothing"), bounds=(bound(0.0), bound(0.972)))
    assert finding(audit) is Finding.SOME
    promise, found, _ = collect(audit).answer
    assert "of some persons at least" in found
    assert "they prove that ε would be at least 0.972" in promise
    assert "prove" not in collect(audited("nothing")).answer[0]


def test_a_bound_is_never_told_larger_than_it_is():
    audit = dataclasses.replace(audited("refuted"), bounds=(bound(1.23999),))
    summary = collect(audit)
    assert "at least 1.23 at" in summary.answer[0]
    assert "| 1.23 |" in render_markdown(summary)
    assert "1.24" not in " ".join(summary.answer)


def test_the_best_of_many_attacks_is_not_taken_for_more_than_luck():
    """Sixty attacks of chance alone: the best passes its own interval, and not that of all."""
    rng = np.random.default_rng(8)
    truth = audited("nothing").truth
    scores = {f"own {place}": rng.normal(size=len(truth)) for place in range(60)}
    # One that passes its own interval, as the best of many may by luck.
    scores["own 0"] = np.where(truth, 0.52, 0.0) + scores["own 0"]
    found = {name: figures(one, truth) for name, one in scores.items()}
    audit = dataclasses.replace(audited("nothing"), scores=scores, figures=found)
    assert audit.figures[audit.best].auc.low > 0.5
    assert finding(audit) is Finding.NOTHING
    # Power: alone it would count.
    alone = dataclasses.replace(
        audit,
        scores={audit.best: scores[audit.best]},
        figures={audit.best: found[audit.best]},
        confidence=0.9,
    )
    assert finding(alone) is Finding.SOME


def test_an_advantage_past_the_promise_is_told():
    audit = dataclasses.replace(
        audited("memorised"), guarantee=EpsilonDelta(epsilon=0.1), bounds=()
    )
    sentence = collect(audit).answer[0]
    assert "lira-online has an advantage of" in sentence
    assert "differ in more than membership" in sentence
    assert "nothing was proved about ε" in sentence
    assert "But" not in collect(audited()).answer[0]


# What an assessment asks -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_assessment_is_answered(kind):
    audit = audited(kind)
    summary = collect_audit(audit)
    asked = {entry.question: " ".join(entry.answer) for entry in summary.questions}
    assert [*asked] == [
        "What was attacked?",
        "What did the attacker know?",
        "With what result?",
        "What was not tried?",
        "What remains?",
        "Who may read this?",
    ]
    assert audit.description in asked["What was attacked?"]
    assert ("to train 32 of them on" in asked["What did the attacker know?"]) == (audit.models > 0)
    assert audit.best in asked["With what result?"]
    assert ("shadow (needs views)" in asked["What was not tried?"]) == (kind == "bare")
    inside = "my_own $signal$" in audit.figures
    assert ("inside of the model" in asked["What did the attacker know?"]) == inside
    assert ("advantage passes" in asked["What remains?"]) == (
        audit.guarantee is not None and not audit.promise_refuted
    )
    assert "fail" in asked["Who may read this?"]
    assert "review" in asked["Who may read this?"]


def test_every_attack_of_the_catalogue_has_words():
    from expost.attacks.catalogue import ATTACKS

    for name in ATTACKS:
        assert not is_white_box(name), name
        assert "of its own, given" not in words(name)
    assert is_white_box("gradient-norm")
    assert "gradient" in words("gradient-norm")
    assert "of its own" in words("whatever")


# For machines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_json_holds_every_figure(kind):
    summary = collect(audited(kind), versions={"expost": "1"})
    content = json.loads(render_json(summary), parse_constant=pytest.fail)
    assert content["format"] == "expost-report/2"
    assert content["audience"] == "fail"
    assert content["versions"] == [["expost", "1"]]
    assert content["answer"] == list(summary.answer)
    assert content["profile"] is content["epsilon"] is None
    part, first = content["audit"], summary.audit.attacks[0]
    assert part["attacks"][0]["auc"]["value"] == first.auc.value
    assert part["attacks"][0]["auc"]["confidence"] == 0.95
    assert len(part["vulnerable"]) == len(summary.audit.vulnerable)
    assert part["headline"]["advice"] == summary.audit.headline.advice
    assert part["promise_refuted"] == (kind == "refuted")
