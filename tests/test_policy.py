"""Policies: a strict reader, and verdicts that are on the safe side."""

import json
import math
import random
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from mpmath import mp, mpf

from expost.errors import InvalidInput
from expost.files.atomic import write_json
from expost.jobs.profile import run as run_profile
from expost.jobs.requests import ProfileRequest
from expost.ledger import Ledger
from expost.policy import Policy, PolicyCheck, Verdict, check
from expost.policy.facts import certainties
from expost.policy.quantities import QUANTITIES
from expost.publishing.report import PublishedReport
from expost.release import Release
from expost.report import document_of, page_of, parse_json, render_json, render_markdown
from expost.types import Audience
from fuzz.damage import altered, damaged, spelled
from gates import make_gate, write_audit, write_profile

SEALED = Path(__file__).parent / "sealed"
SATISFIED, VIOLATED, UNANSWERED = Verdict.SATISFIED, Verdict.VIOLATED, Verdict.NOT_ANSWERABLE
EVERY_KEY = """
[guarantee]
epsilon = 1
delta = 1e-5
composed_epsilon = 3
composed_delta = 1e-6
audience = "public"
[rows]
certainty = 0.75
quantiles = [{ share = 0.99, certainty = 0.6 }]
above = [{ certainty = 0.6, rows = 10 }, { certainty = 0.7, share = 0.001 }]
[utility]
auc = 0.8
r2 = 0.3
[attacks]
required = ["lira-online"]
auc = 0.6
tpr = [{ fpr = 0.01, at_most = 0.05 }]
figure = "estimate"
[evidence]
age = 30
"""


def verdict_of(results, expression: str) -> Verdict:
    (finding,) = check(results, Policy.of(expression)).findings
    return finding.verdict


# -- the reader -----------------------------------------------------------------------------------


def test_a_policy_has_a_limit_for_every_quantity():
    policy = Policy.from_toml(EVERY_KEY)
    assert {limit.name for limit in policy.limits} == set(QUANTITIES)
    assert policy.figure == "estimate"
    keyed = {limit.name: (limit.limit, limit.at) for limit in policy.limits}
    assert keyed["composed_epsilon"] == (3.0, 1e-6)
    assert keyed["certainty_quantile"] == (0.6, 0.99)
    assert keyed["rows_above"] == (10.0, 0.6)
    assert keyed["share_above"] == (0.001, 0.7)
    assert keyed["attack_tpr"] == (0.05, 0.01)
    assert keyed["audience"] == ("public", None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "states no limit"),
        ("[attacks]", "states no limit"),
        ("[guarantee]\nepsilom = 1", "guarantee.epsilom | Did you mean 'epsilon'"),
        ("[garantee]\nepsilon = 1", "garantee | Did you mean 'guarantee'"),
        ("epsilon = 1", "epsilon | guarantee, rows"),
        ("guarantee = 1", "must be a table"),
        ("[guarantee]\nepsilon = '1'", "guarantee.epsilon | must be a number"),
        ("[guarantee]\nepsilon = nan", "guarantee.epsilon | > 0"),
        ("[guarantee]\nepsilon = inf", "guarantee.epsilon | finite"),
        ("[guarantee]\nepsilon = true", "guarantee.epsilon | must be a number"),
        ("[guarantee]\ndelta = 1", "guarantee.delta | between 0 and 1"),
        ("[guarantee]\ncomposed_delta = 1e-6", "belongs to composed_epsilon"),
        ("[guarantee]\naudience = 'curator-only'", "guarantee.audience | 'public'"),
        ("[rows]\ncertainty = 0.4", "rows.certainty | at least 0.5"),
        ("[rows]\nquantiles = [{ share = 0.9 }]", "rows.quantiles[0] | lacks certainty"),
        ("[rows]\nabove = [{ certainty = 0.6, row = 1 }]", "rows.above[0].row | 'rows'"),
        ("[rows]\nabove = [{ certainty = 0.6 }]", "states no limit; add rows or share"),
        ("[rows]\nabove = [{ certainty = 0.6, rows = 1.5 }]", "rows.above[0].rows | integer"),
        (f"[rows]\nabove = [{{ certainty = 0.6, rows = 1{'0' * 400} }}]", "limits nothing"),
        ("[rows]\nabove = []", "must be a list of tables"),
        ("[attacks]\nrequired = ['lira-onlin']", "Did you mean 'lira-online'"),
        ("[attacks]\nrequired = 'lira-online'", "must be a list of attacks"),
        ("[attacks]\ntpr = [{ fpr = 0.05, at_most = 0.1 }]", "0.01 or 0.001"),
        ("[attacks]\nfigure = 'upper'", "belongs to auc or tpr"),
        ("[attacks]\nauc = 0.6\nfigure = 'mean'", "attacks.figure | 'upper'"),
        ("[evidence]\nage = 0", "evidence.age | > 0"),
        ("[guarantee]\nepsilon = 1\nepsilon = 2", "is not TOML"),
    ],
)
def test_a_policy_that_is_wrong_is_refused(text, words, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(InvalidInput) as refusal:
        Policy.load(path)
    for word in (str(path), *words.split(" | ")):
        assert word in str(refusal.value)


def test_a_file_that_is_no_policy_is_refused(tmp_path):
    for path, content in ((tmp_path / "a", b"\xff"), (tmp_path / "b", b"#" * 1_000_001)):
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match=r"name a policy\.toml"):
            Policy.load(path)
    with pytest.raises(InvalidInput, match="is not a file"):
        Policy.load(tmp_path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        Policy.load(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("expression", "key", "limit", "at"),
    [
        ("epsilon>1", "guarantee.epsilon", 1.0, None),
        (" delta > 1e-5 ", "guarantee.delta", 1e-5, None),
        ("composed_epsilon>3", "guarantee.composed_epsilon", 3.0, 1e-5),
        ("composed_epsilon@1e-6>3", "guarantee.composed_epsilon", 3.0, 1e-6),
        ("certainty>0.75", "rows.certainty", 0.75, None),
        ("certainty@0.99>0.6", "rows.quantiles", 0.6, 0.99),
        ("rows@0.6>10", "rows.above", 10.0, 0.6),
        ("share@0.6>0", "rows.above", 0.0, 0.6),
        ("auc<0.8", "utility.auc", 0.8, None),
        ("r2<0.3", "utility.r2", 0.3, None),
        ("attack_auc>0.6", "attacks.auc", 0.6, None),
        ("attack_tpr@0.001>0.05", "attacks.tpr", 0.05, 0.001),
        ("age>30", "evidence.age", 30.0, None),
    ],
)
def test_an_expression_states_a_limit(expression, key, limit, at):
    (stated,) = Policy.of(expression).limits
    assert (stated.quantity.key, stated.limit, stated.at) == (key, limit, at)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("epsilon", "must be a name"),
        ("epsilon>", "must be a name"),
        ("epsilom>1", "Did you mean 'epsilon'"),
        ("epsilon>=1", "write epsilon>1"),
        ("epsilon<1", "write epsilon>1"),
        ("epsilon=1", "write epsilon>1"),
        ("auc>0.8", "write auc<0.8"),
        ("rows>3", "state the certainty too"),
        ("epsilon@2>1", "leave out @2"),
        ("epsilon>one", "'one' is not a number"),
        ("epsilon>nan", "> 0"),
        ("attack_tpr@0.05>0.1", "0.01 or 0.001"),
    ],
)
def test_an_expression_that_is_wrong_is_refused(expression, words):
    with pytest.raises(InvalidInput) as refusal:
        Policy.of(expression)
    assert words in str(refusal.value)


# -- rows, against a naive count --------------------------------------------------------------------


def naive_certainty(low: float, high: float) -> mpf:
    with mp.workdps(40):
        return 1 / (1 + mp.exp(-max(abs(mpf(low)), abs(mpf(high)))))


def test_certainties_are_upper_bounds_and_close():
    rng = np.random.default_rng(0)
    middle = rng.normal(size=500) * 10.0 ** rng.integers(-9, 2, size=500)
    width = np.abs(rng.normal(size=500)) * 1e-6
    low, high = middle - width, middle + width
    exact = sorted(naive_certainty(a, b) for a, b in zip(low, high, strict=True))
    bounds = certainties(low, high)
    for bound, value in zip(bounds, exact, strict=True):
        assert value <= mpf(bound) <= value * (1 + mpf(10) ** -14) or bound == 1
    # The middle of an interval is no bound: the test sees the difference.
    assert np.any(certainties(middle, middle) < bounds)


def test_what_is_not_known_counts_as_certain():
    np.testing.assert_array_equal(
        certainties(np.array([0.0, np.nan, -np.inf]), np.array([0.0, 1.0, 0.0])), [0.5, 1.0, 1.0]
    )


def test_rows_are_counted_as_by_hand(tmp_path):
    rng = np.random.default_rng(1)
    for turn in range(20):
        rows = int(rng.integers(1, 60))
        low = rng.normal(size=rows)
        high = low + np.abs(rng.normal(size=rows)) * 0.1
        path = write_profile(tmp_path / str(turn), low, high)
        exact = [naive_certainty(a, b) for a, b in zip(low, high, strict=True)]
        for level in (0.55, 0.7, 0.9):
            above = sum(value > level for value in exact)
            assert verdict_of(path, f"rows@{level}>{above}") is SATISFIED
            if above:
                assert verdict_of(path, f"rows@{level}>{above - 1}") is VIOLATED
                assert verdict_of(path, f"share@{level}>{(above - 0.5) / rows}") is VIOLATED
            if 0 < above < rows:
                assert verdict_of(path, f"share@{level}>{above / rows}") is SATISFIED
            for share in (0.5, 0.9, 0.99):
                holds = Fraction(rows - above, rows) >= Fraction(str(share))
                expected = SATISFIED if holds else VIOLATED
                assert verdict_of(path, f"certainty@{share}>{level}") is expected
            expected = VIOLATED if above else SATISFIED
            assert verdict_of(path, f"certainty>{level}") is expected


def test_a_share_is_the_number_that_is_written(tmp_path):
    """0.07 · 100 is 7.000000000000001 in float64: the eighth row is not part of it."""
    low = np.concatenate([np.zeros(7), np.full(93, 3.0)])
    assert 0.07 * 100 > 7
    path = write_profile(tmp_path, low, low)
    assert verdict_of(path, "certainty@0.07>0.6") is SATISFIED
    assert verdict_of(path, "certainty@0.08>0.6") is VIOLATED


def test_a_limit_that_is_met_exactly_is_satisfied_and_the_next_number_is_not(tmp_path):
    fit = {"measure": "R²", "released": 0.5, "auc": 0.8}
    path = write_profile(tmp_path / "p", [0.0], [0.0], fit=fit)
    assert verdict_of(path, "certainty>0.5") is SATISFIED
    for name, value in (("auc", 0.8), ("r2", 0.5)):
        assert verdict_of(path, f"{name}<{value}") is SATISFIED
        assert verdict_of(path, f"{name}<{math.nextafter(value, 1)!r}") is VIOLATED
    model = SEALED / "model-output-laplace.json"
    assert verdict_of(model, "epsilon>0.7") is SATISFIED
    assert verdict_of(model, f"epsilon>{math.nextafter(0.7, 0)!r}") is VIOLATED


def test_a_profile_without_its_rows_or_with_others_is_no_answer(tmp_path):
    path = write_profile(tmp_path / "a", [0.1], [0.2])
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, "table": "profile.CURATOR-ONLY.parquet"}))
    assert verdict_of(path, "certainty>0.9") is UNANSWERED
    for table in ("../profile.parquet", "/etc/passwd", ".."):
        path.write_text(json.dumps({**value, "table": table}))
        with pytest.raises(InvalidInput, match="in another folder"):
            check(path, Policy.of("certainty>0.9"))
    with pytest.raises(InvalidInput, match="states another number"):
        check(write_profile(tmp_path / "b", [0.1], [0.2], count=2), Policy.of("certainty>0.9"))
    path.write_text(json.dumps({"format": "expost-profile/2"}))
    with pytest.raises(InvalidInput, match="a field is missing"):
        check(path, Policy.of("certainty>0.9"))


# -- guarantees -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "epsilon", "delta"),
    [
        ("model-objective-gaussian", 2.0, 1e-6),
        ("model-output-gaussian", 1.5, 1e-6),
        ("model-three-classes", 3.0, 0.0),
        ("report-independent", 0.7, 0.0),
        ("model-no-noise", math.inf, math.inf),
        # ε = 1 was requested; its noise is seeded and its regularization too small.
        ("model-leaking", math.inf, math.inf),
    ],
)
def test_the_stored_guarantee_is_compared(name, epsilon, delta):
    outcome = check(SEALED / f"{name}.json", Policy.of("epsilon>0.5", "delta>1e-9"))
    assert [finding.measured for finding in outcome.findings] == [epsilon, delta]


def test_a_report_costs_what_it_adds(tmp_path):
    outcome = check(SEALED / "report-dependent.json", Policy.of("epsilon>2"))
    spent = json.loads((SEALED / "report-dependent.json").read_text())["released"]
    (finding,) = outcome.findings
    assert finding.verdict is VIOLATED
    assert finding.measured > 2
    assert spent is not None


def test_a_page_about_a_guarantee_answers_if_it_is_public_and_of_a_model(program, tmp_path):
    for options, expected in (
        # A guarantee that was typed is of no model.
        (("--epsilon", 1, "--delta", 1e-6), UNANSWERED),
        (("--noise-multiplier", 1, "--delta", 1e-6), UNANSWERED),
        (("--max-posterior", 0.6), UNANSWERED),
        ((SEALED / "model-output-laplace.json",), SATISFIED),
        ((SEALED / "model-output-laplace.json", "--releases", 2), VIOLATED),
        # ε = 1 is requested of it, and its page cannot be told from that of a private model.
        ((SEALED / "model-leaking.json",), UNANSWERED),
    ):
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        assert program("risk", *options, "--out", out).code == 0
        (finding,) = check(out, Policy.of("epsilon>1")).findings
        assert finding.verdict is expected, options
        assert ("typed" in finding.reason) is str(options[0]).startswith("--")
        if not str(options[0]).startswith("--") and expected is not UNANSWERED:
            with pytest.raises(InvalidInput, match="different models"):
                check([out, SEALED / "model-output-gaussian.json"], Policy.of("epsilon>1"))


def test_a_refuted_guarantee_satisfies_no_limit(tmp_path):
    model = SEALED / "model-output-laplace.json"
    release = Release.load(model)
    for refuted, expected in ((False, SATISFIED), (True, VIOLATED)):
        audit = write_audit(
            tmp_path / str(refuted),
            model=release.mechanism.describe(),
            identity=release.identity,
            refuted=refuted,
            loss=((0.5, 0.6), (0.0, 0.1), (0.0, 0.1)),
        )
        outcome = check([model, audit], Policy.of("epsilon>0.7", "delta>0.1"))
        assert outcome.verdict is expected
        # That an audit refutes a guarantee is read from its curator-only figures.
        audience = Audience.NEEDS_REVIEW if refuted else Audience.PUBLIC
        assert outcome.audience is audience
        assert [finding.is_public for finding in outcome.findings] == [not refuted] * 2


def test_results_of_different_models_are_refused(tmp_path):
    policy = Policy.of("epsilon>1")
    with pytest.raises(InvalidInput, match="different models"):
        check([SEALED / "model-output-laplace.json", SEALED / "model-output-gaussian.json"], policy)
    profile = write_profile(tmp_path, [0.1], [0.2])
    with pytest.raises(InvalidInput, match="different models"):
        check([SEALED / "model-output-laplace.json", profile], policy)
    # The model inside a report is the same one.
    assert check(SEALED / "report-independent.json", policy).exit_code == 0


def test_a_row_that_exceeds_the_guarantee_refutes_it(tmp_path):
    model = SEALED / "model-output-laplace.json"
    release = Release.load(model)
    of_model = {"model": release.mechanism.describe(), "identity": release.identity}
    for exceeded, expected in ((False, SATISFIED), (True, VIOLATED)):
        profile = write_profile(
            tmp_path / str(exceeded), [0.1], [0.2], exceeded=exceeded, **of_model
        )
        outcome = check([model, profile], Policy.of("epsilon>0.7"))
        assert outcome.verdict is expected
        assert outcome.audience is (Audience.NEEDS_REVIEW if exceeded else Audience.PUBLIC)


@pytest.mark.parametrize("write", [write_profile, write_audit])
def test_a_result_of_another_draw_with_the_same_settings_is_refused(tmp_path, write):
    model = SEALED / "model-output-laplace.json"
    release = Release.load(model)
    rows = ([0.1], [0.2]) if write is write_profile else ()
    other = replace(release, theta=2 * release.theta)
    assert other.mechanism.describe() == release.mechanism.describe()
    for identity, refused in ((release.identity, False), (other.identity, True), (None, True)):
        folder = tmp_path / str(identity)
        path = write(folder, *rows, model=release.mechanism.describe(), identity=identity)
        if refused:
            with pytest.raises(InvalidInput, match="different models"):
                check([model, path], Policy.of("epsilon>1"))
        else:
            assert check([model, path], Policy.of("epsilon>1")).exit_code == 0


def write_choice(folder: Path, recommended: float, auc: float) -> Path:
    folder.mkdir(parents=True)
    utility = {"epsilons": [recommended], "auc": {"low": [auc]}}
    value = {"format": "expost-epsilon/4", "recommended": recommended, "utility": utility}
    path = folder / "epsilon.CURATOR-ONLY.json"
    path.write_text(json.dumps(value))
    return path


def test_a_choice_of_a_larger_epsilon_states_nothing_about_the_model(tmp_path):
    model = SEALED / "model-output-laplace.json"
    for recommended, expected in ((0.5, SATISFIED), (0.7, SATISFIED), (1.0, UNANSWERED)):
        choice = write_choice(tmp_path / str(recommended), recommended, 0.9)
        assert verdict_of([model, choice], "auc<0.8") is expected
        assert verdict_of([SEALED / "report-independent.json", choice], "auc<0.8") is expected
        # Without a model it is the utility of the recommended one.
        assert verdict_of(choice, "auc<0.8") is SATISFIED


def test_a_ledger_from_before_the_report_composes_too_little(tmp_path):
    path = SEALED / "report-dependent.json"
    written = json.loads(path.read_text())
    made = {"name": "report.json", "made": "2026-01-01T00:00:00Z", "data": None}
    entries = PublishedReport.load(path).entries(written, **made)
    assert [entry.kind for entry in entries] == ["model", "report"]
    for kept, expected in ((entries[:1], UNANSWERED), (entries, SATISFIED)):
        ledger = tmp_path / f"{len(kept)}.json"
        write_json(ledger, Audience.CURATOR_ONLY, Ledger.new().with_entries(kept).to_json())
        assert verdict_of([path, ledger], "composed_epsilon>100") is expected


def test_ledgers_are_composed_together(made, tmp_path):
    first = Ledger.load(made / "people.ledger.CURATOR-ONLY.json")
    again = tmp_path / "again.json"
    others = [replace(entry, release="0" * 64) for entry in first.entries]
    write_json(again, Audience.CURATOR_ONLY, Ledger.new().with_entries(others).to_json())
    one, two, twice = (
        check(ledgers, Policy.of("composed_epsilon>100")).findings[0].measured
        for ledgers in (
            [made / "people.ledger.CURATOR-ONLY.json"],
            [made / "people.ledger.CURATOR-ONLY.json", again],
            [again, again],
        )
    )
    assert one == twice < two


# -- attacks ----------------------------------------------------------------------------------------


def test_attacks_are_compared_by_the_upper_end_or_by_the_estimate(tmp_path):
    audit = write_audit(
        tmp_path,
        lira_online=((0.55, 0.65), (0.02, 0.08), (0.0, 0.03)),
        loss=((0.5, 0.6), (0.01, 0.1), (0.0, 0.02)),
    )
    upper = """[attacks]\nrequired = ["lira-online", "shadow"]\nauc = 0.62
    tpr = [{ fpr = 0.01, at_most = 0.09 }, { fpr = 0.001, at_most = 0.03 }]"""
    verdicts = [each.verdict for each in check(audit, Policy.from_toml(upper)).findings]
    assert verdicts == [SATISFIED, VIOLATED, VIOLATED, VIOLATED, SATISFIED]
    estimates = Policy.from_toml(upper + '\nfigure = "estimate"')
    verdicts = [each.verdict for each in check(audit, estimates).findings]
    assert verdicts == [SATISFIED, VIOLATED, SATISFIED, SATISFIED, SATISFIED]


def test_attacks_on_rows_that_differ_have_a_remark_that_needs_review(tmp_path):
    policy = Policy.from_toml('[attacks]\nrequired = ["loss"]\nauc = 0.9')
    for detected in (False, True):
        figures = {"loss": ((0.5, 0.6), (0.01, 0.1), (0.0, 0.02))}
        audit = write_audit(tmp_path / str(detected), shift={"detected": detected}, **figures)
        was_run, area = check(audit, policy).findings
        assert was_run.verdict is SATISFIED
        # As in a dossier, an audit of rows that differ without the model tests nothing.
        assert area.verdict is (UNANSWERED if detected else SATISFIED)
        assert verdict_of(audit, "attack_auc>0.55") is VIOLATED
        for finding in (was_run, area):
            assert ("differ without the model" in finding.reason) is detected
            assert not (finding.is_public and detected)


def test_an_audit_without_an_attack_answers_nothing(tmp_path):
    audit = write_audit(tmp_path)
    assert verdict_of(audit, "attack_auc>0.6") is UNANSWERED


# -- real results -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return make_gate(tmp_path_factory.mktemp("gate"))


@pytest.fixture(scope="module")
def results(made) -> list[Path]:
    ledger = made / "people.ledger.CURATOR-ONLY.json"
    return [made / "profile", made / "audit", made / "published", ledger]


def test_every_limit_but_r2_is_answered_by_real_results(results):
    outcome = check(results, Policy.from_toml(EVERY_KEY))
    unanswered = [finding.limit.name for finding in outcome.of(UNANSWERED)]
    assert unanswered == ["r2"]
    by_name = {finding.limit.name: finding for finding in outcome.findings}
    assert by_name["epsilon"].measured == 1.0
    assert by_name["audience"].measured == "public"
    assert by_name["audience"].verdict is SATISFIED
    assert by_name["composed_epsilon"].measured <= 1.0 + 1e-9
    assert by_name["attack"].verdict is SATISFIED


def test_the_rows_of_a_real_profile_are_those_of_its_table(made):
    table = pq.read_table(made / "profile" / "profile.CURATOR-ONLY.parquet")
    low, high = (table.column(name).to_pylist() for name in ("loss_low", "loss_high"))
    exact = max(naive_certainty(a, b) for a, b in zip(low, high, strict=True))
    (finding,) = check(made / "profile", Policy.of("certainty>0.5")).findings
    assert finding.verdict is VIOLATED
    assert exact <= mpf(finding.measured) <= exact * (1 + mpf(10) ** -14)


def test_the_ledger_composes_all_releases_and_must_list_the_model(made):
    ledger, model = made / "people.ledger.CURATOR-ONLY.json", made / "profile" / "model.json"
    assert verdict_of([ledger, model], "composed_epsilon>1.1") is SATISFIED
    assert verdict_of([ledger, model], "composed_epsilon>0.9") is VIOLATED
    finding = check(ledger, Policy.of("composed_epsilon@1e-4>0.9")).findings[0]
    composed = Ledger.load(ledger).composed(1e-4).row("pld").epsilon
    assert finding.measured == composed
    other = SEALED / "model-output-laplace.json"
    assert verdict_of([ledger, other], "composed_epsilon>100") is UNANSWERED
    # One of its releases has a seed or no guarantee, so that all together have none.
    assert verdict_of(SEALED / "ledger.json", "composed_epsilon>100") is VIOLATED


def test_old_evidence_violates_and_undated_evidence_does_not_answer(made):
    policy = Policy.of("age>30")
    now = datetime.now(UTC)
    for days, expected in ((0, SATISFIED), (29, SATISFIED), (31, VIOLATED), (-3, UNANSWERED)):
        outcome = check(made / "profile", policy, now=now + timedelta(days=days))
        assert outcome.verdict is expected
    single = made / "profile" / "profile.CURATOR-ONLY.json"
    assert check(single, policy).verdict is UNANSWERED
    with pytest.raises(InvalidInput, match="time zone"):
        check(made / "profile", policy, now=now.replace(tzinfo=None))


def test_a_file_that_was_edited_is_refused(made, tmp_path):
    policy = Policy.of("certainty>0.9")
    for name in (
        "profile.CURATOR-ONLY.json",
        "profile.CURATOR-ONLY.parquet",
        "model.json",
        "summary.CURATOR-ONLY.json",
    ):
        folder = Path(shutil.copytree(made / "profile", tmp_path / name))
        assert check(folder, policy).exit_code == 0
        path = folder / name
        content = path.read_bytes()
        path.chmod(0o600)
        path.write_bytes(content.replace(b"1", b"2", 1))
        with pytest.raises(InvalidInput, match=name.partition(".")[0]):
            check(folder, policy)


def test_the_parts_of_a_profile_in_blocks_are_read_and_checked(made, tmp_path):
    out = tmp_path / "blocks"
    run_profile(
        ProfileRequest(
            source=str(made / "people.csv"),
            name="people.csv",
            target="income",
            id_column="number",
            model=made / "profile" / "model.json",
            engine="local:1",
            out=out,
            ledger=made / "people.ledger.CURATOR-ONLY.json",
        )
    )
    whole, parts = (
        check(folder, Policy.of("certainty>0.9")).findings[0].measured
        for folder in (made / "profile", out)
    )
    assert parts == pytest.approx(whole, abs=1e-6)
    (part,) = (out / "profile.CURATOR-ONLY.parquet").glob("part-*.parquet")
    content = part.read_bytes()
    part.write_bytes(content.replace(b"PAR1", b"PAR2", 1))
    with pytest.raises(InvalidInput, match="is damaged"):
        check(out, Policy.of("certainty>0.9"))
    part.write_bytes(content)
    listed = out / "profile.CURATOR-ONLY.parquet" / "_manifest.json"
    listed.write_text(listed.read_text() + " ")
    with pytest.raises(InvalidInput, match="was changed"):
        check(out, Policy.of("certainty>0.9"))


def test_paths_without_a_result_are_refused(tmp_path):
    policy = Policy.of("epsilon>1")
    with pytest.raises(InvalidInput, match="holds no result"):
        check(tmp_path, policy)
    with pytest.raises(InvalidInput, match="at least one result"):
        check([], policy)
    with pytest.raises(InvalidInput, match="cannot be read"):
        check(tmp_path / "none.json", policy)
    other = tmp_path / "x.json"
    other.write_text("{}")
    with pytest.raises(InvalidInput, match="is not a result"):
        check(other, policy)
    other.write_text('{"format": "expost-profile/99"}')
    with pytest.raises(InvalidInput, match="this expost reads 'expost-profile/2'"):
        check(other, policy)


def test_damaged_results_and_policies_are_read_or_refused(made, tmp_path):
    """No damage ends in another error; which file it is, is part of the message."""
    rng = random.Random(23)
    policy = Policy.from_toml(EVERY_KEY)
    read: list[str] = []
    refused: list[tuple[str, str]] = []

    def attempt(name, call):
        try:
            call()
            read.append(name)
        except InvalidInput as refusal:
            refused.append((name, str(refusal)))

    whole = {
        name: json.loads((made / folder / name).read_text())
        for folder, name in (
            ("profile", "profile.CURATOR-ONLY.json"),
            ("audit", "figures.CURATOR-ONLY.json"),
        )
    }
    profile = whole["profile.CURATOR-ONLY.json"]
    profile["table"] = {"loss_low": [0.1, None, "-infinity"], "loss_high": [0.2, 0.3, "infinity"]}
    profile["figures"]["count"] = 3
    for _ in range(400):
        for name, value in whole.items():
            path = tmp_path / name
            path.write_bytes(spelled(rng, altered(rng, value)))
            attempt(name, lambda: check(path, policy).to_dict("curator-only"))  # noqa: B023 (now)
        path = tmp_path / "policy.toml"
        path.write_bytes(damaged(rng, EVERY_KEY.encode()))
        attempt(path.name, lambda: Policy.load(path))  # noqa: B023 (called now)
    assert [message for name, message in refused if name not in message] == []
    assert min(len(read), len(refused)) > 100


# -- what is shown ----------------------------------------------------------------------------------


def test_the_verdict_of_all_is_the_worst_one(made):
    def verdicts(*expressions):
        return check(made / "profile", Policy.of(*expressions))

    assert verdicts("epsilon>1").exit_code == 0
    assert verdicts("epsilon>1", "r2<0.5").exit_code == 4
    assert verdicts("epsilon>1", "r2<0.5", "epsilon>0.5").exit_code == 3


def test_measured_values_are_shown_where_they_are_public(made):
    outcome = check(made / "profile", Policy.of("epsilon>1", "certainty>0.9", "auc<0.1"))
    assert isinstance(outcome, PolicyCheck)
    secret = [finding.measured for finding in outcome.findings[1:]]
    for text in (str(outcome), outcome._repr_html_(), json.dumps(outcome.to_dict())):
        assert "epsilon" in text or "ε" in text
        for value in secret:
            assert f"{value:.4g}" not in text
    assert outcome.to_dict()["findings"][0]["measured"] == 1.0
    curator = outcome.to_dict("curator-only")
    assert [finding["measured"] for finding in curator["findings"]] == [1.0, *secret]
    with pytest.raises(InvalidInput, match="audience"):
        outcome.to_dict("anybody")


def test_verdicts_on_curator_only_figures_need_review(made):
    assert check(made / "profile", Policy.of("epsilon>1")).audience is Audience.PUBLIC
    mixed = check(made / "profile", Policy.of("epsilon>1", "certainty>0.9"))
    assert mixed.audience is Audience.NEEDS_REVIEW
    assert document_of(mixed).audience is Audience.NEEDS_REVIEW
    assert document_of(mixed, curator=True).audience is Audience.CURATOR_ONLY


def test_the_document_survives_json_and_lists_every_limit(results):
    outcome = check(results, Policy.from_toml(EVERY_KEY))
    page = page_of(outcome)
    assert parse_json(render_json(page)) == page
    markdown = render_markdown(page)
    for finding in outcome.findings:
        assert finding.limit.text in markdown.replace("\\", "")
