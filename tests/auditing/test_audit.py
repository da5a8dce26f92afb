"""expost.audit: the game, its result, and what is refused."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.svm import LinearSVC

import expost
from expost import PrivateLogisticRegression, audit
from expost.auditing import audit_arrays, audit_sweep
from expost.auditing.arrays import arrays_of
from expost.auditing.attacks import ATTACKS
from expost.auditing.audit import Options, audit_evidence
from expost.auditing.references import train_references
from expost.auditing.roc import figures
from expost.errors import InvalidInput
from expost.report import document_of, render_text
from expost.risk import EpsilonDelta
from expost.types import Audience
from parameters import refuse_nan
from settings import OUTPUT

RNG = np.random.default_rng(0)
X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)[:240, :6]
y = np.where(y[:240] == 1, "benign", "malignant")
PUBLIC = {
    **OUTPUT,
    **{"data_norm": 15.0, "classes": ("benign", "malignant"), "regularization": 0.01},
}
GAUSSIAN = {**PUBLIC, "noise": "gaussian", "delta": 1e-6}
FEW = {"references": 8, "random_state": 0}


@pytest.fixture(scope="module")
def released():
    return PrivateLogisticRegression(epsilon=10.0, **PUBLIC).fit(X[:120], y[:120])


@pytest.fixture(scope="module")
def audited(released):
    return audit(released, X[:120], y[:120], X[120:], y[120:], groups={"size": X[:, 0]}, **FEW)


def test_members_come_first_and_every_figure_is_there(audited):
    assert len(audited) == 240
    assert np.array_equal(audited.truth, np.arange(240) < 120)
    assert {"loss", "lira-online", "rmia-online", "gradient-norm"} <= set(audited.scores)
    assert set(audited.scores) == set(audited.figures)
    assert set(audited.skipped) == set(ATTACKS) - set(audited.scores) == {"population"}
    for name, score in audited.scores.items():
        area = roc_auc_score(audited.truth, score)
        assert audited.figures[name].auc.value == pytest.approx(area)
    assert audited.best == max(audited.figures, key=lambda name: audited.figures[name].auc.value)
    assert audited.roc().area == pytest.approx(audited.figures[audited.best].auc.value)
    assert audited.models == 8


def test_the_same_seed_gives_the_same_audit(released, audited):
    again = audit(released, X[:120], y[:120], X[120:], y[120:], groups={"size": X[:, 0]}, **FEW)
    assert again.to_json() == audited.to_json()
    other = audit(released, X[:120], y[:120], X[120:], y[120:], references=8, random_state=1)
    assert not np.array_equal(other.scores["lira-online"], audited.scores["lira-online"])


def test_exposures_stand_beside_the_attacks(released, audited):
    profile = expost.profile(released, X[:120], y[:120])
    assert np.array_equal(audited.exposures.loss, profile.loss)
    assert np.array_equal(audited.exposures.expected, profile.expected)
    assert audited.advantage_bound == released.release_.mechanism.guarantee().advantage
    of_loss, of_expected, of_apart = audited.correlations
    best = audited.scores[audited.best][:120]
    assert of_loss.value == pytest.approx(spearmanr(profile.loss, best).statistic)
    assert of_expected.value == pytest.approx(spearmanr(profile.expected, best).statistic)
    apart = audited.row_auc.value[:120]
    assert of_apart.value == pytest.approx(spearmanr(profile.expected, apart).statistic)
    for correlation in audited.correlations:
        assert correlation.low < correlation.value < correlation.high
        assert correlation.rows == 120
    columns = audited.columns()
    assert np.array_equal(columns["exposure"][:120], profile.exposure)
    assert np.isnan(columns["exposure"][120:]).all()


def test_who_is_vulnerable_and_where_theory_and_attack_disagree(audited):
    apart = audited.row_auc.value
    most = audited.vulnerable(7)
    assert np.all(audited.truth[most])
    assert np.all(np.diff(apart[audited.ranking]) <= 0)
    assert len(audited.ranking) == 120
    far = audited.disagreements(5)
    ranks = pd.Series(audited.exposures.expected).rank()
    gap = np.abs(ranks - pd.Series(apart[:120]).rank()).to_numpy()
    assert gap[far] == pytest.approx(np.sort(gap)[::-1][:5])


def test_what_is_not_known_of_a_row_does_not_read_as_private(audited):
    value = audited.row_auc.value.copy()
    value[3] = np.nan
    unknown = replace(audited, row_auc=replace(audited.row_auc, value=value))
    assert unknown.vulnerable(1)[0] == 3


def test_what_is_proved_about_epsilon(audited):
    # Members were given: no coins, so that only the trainings speak.
    assert [bound.confidence for bound in audited.bounds] == [0.95]
    assert not audited.guarantee_refuted
    assert document_of(audited).facts["proved"] == audited.bounds[0].epsilon
    labels = np.random.default_rng(3).choice(["a", "b"], size=240)
    tossed = audit(ExtraTreesClassifier(30), X, labels, references=32, random_state=0)
    both = tossed.bounds
    assert [bound.confidence for bound in both] == [0.975, 0.975]
    assert min(bound.epsilon for bound in both) > 0.5
    refuted = replace(tossed, guarantee=EpsilonDelta(epsilon=0.3))
    assert refuted.guarantee_refuted
    assert document_of(refuted).verdict.priority == 100
    assert not replace(tossed, guarantee=EpsilonDelta(epsilon=30.0)).guarantee_refuted
    # The table is not in a random order: members and non-members must be drawn to be alike.
    members, others = np.split(np.random.default_rng(1).permutation(240), 2)
    stated = audit(
        ExtraTreesClassifier(30, random_state=0).fit(X[members], labels[members]),
        X[members],
        labels[members],
        X[others],
        labels[others],
        coins=True,
        references=0,
        random_state=0,
    )
    assert len(stated.bounds) == 1


def test_gaussian_noise_is_refuted_by_its_curve():
    model = PrivateLogisticRegression(epsilon=5.0, **GAUSSIAN)
    audited = audit(model, X, y, **FEW)
    assert len(audited.bounds) == 2
    assert all(
        "GDP" in bound.assumption or "Gaussian" in bound.assumption for bound in audited.bounds
    )


def test_a_guarantee_that_does_not_cover_every_step_is_not_shown():
    private = PrivateLogisticRegression(epsilon=5.0, **GAUSSIAN)
    learned = audit(make_pipeline(StandardScaler(), private), X, y, **FEW)
    assert learned.guarantee is None
    assert learned.exposures is not None
    assert "steps before it learned from the rows" in learned.notices[0]
    assert not any(bound.assumption for bound in learned.bounds)
    fixed = audit(make_pipeline(Normalizer(), "passthrough", private), X, y, **FEW)
    assert fixed.guarantee is not None
    assert fixed.notices == ()
    assert all(bound.assumption for bound in fixed.bounds)


def test_what_was_read_from_the_data_is_said_of_a_simulation_too():
    model = PrivateLogisticRegression(epsilon=5.0, data_norm=PUBLIC["data_norm"])
    audited = audit(model, X, y, **FEW)
    assert any("Read from the data" in notice for notice in audited.notices)
    assert not any("seed" in notice for notice in audited.notices)


def test_no_attack_is_told_how_many_heads_there_were(monkeypatch):
    """As where the coins are tossed here: not by the references' size, nor as a number."""
    calls = []

    def scores(*args, members, **options):
        calls.append(members)
        return {}

    def trained(*args, share, **options):
        calls.append(share)
        return train_references(*args, share=share, **options)

    monkeypatch.setattr("expost.auditing.audit.gradient_scores", scores)
    monkeypatch.setattr("expost.auditing.audit.train_references", trained)
    rows = (X[:110], y[:110], X[110:], y[110:])
    model = LogisticRegression().fit(X[:110], y[:110])
    audit(model, *rows, coins=True, references=2, random_state=0)
    audit(model, *rows, references=2, random_state=0)
    assert calls == [120, 0.5, 110, 110 / 240]


def test_by_class_and_by_group(audited):
    by_class, by_size = audited.disparity
    assert by_class.column == "class"
    assert {group.label for group in by_class} == {"benign", "malignant"}
    assert by_size.column == "size"
    assert len(by_size) == 4
    assert by_class.attack == audited.best


def test_text_and_data(audited):
    document = document_of(audited)
    assert str(audited) == render_text(document)
    counts = tuple(document.facts[name] for name in ("members", "non_members", "references"))
    assert counts == (120, 120, 8)
    assert "not a guarantee" in str(audited)
    assert Audience.CURATOR_ONLY.meaning in str(audited)
    assert audited.audience is Audience.CURATOR_ONLY
    assert repr(audited).startswith("Audit(240 rows")
    data = json.loads(audited.to_json())
    assert data["audience"] == "curator-only"
    assert data["rows"]["exposure"][120] is None
    assert audited.aggregate()["audience"] == "needs-review"
    assert "rows" not in audited.aggregate()
    assert audited.to_frame().shape[0] == 240
    assert document.title in audited._repr_html_()


def test_the_table_is_written_for_the_curator(audited, tmp_path):
    assert audited.to_json(tmp_path / "audit.json").name == "audit.CURATOR-ONLY.json"
    assert audited.to_parquet(tmp_path / "audit.parquet").name == "audit.CURATOR-ONLY.parquet"


def test_model_json_is_asked_as_it_is(released, audited, tmp_path):
    path = released.release_.save(tmp_path / "model.json")
    before = path.read_bytes()
    again = audit(path, X[:120], y[:120], X[120:], y[120:], groups={"size": X[:, 0]}, **FEW)
    assert path.read_bytes() == before
    assert np.array_equal(again.scores["loss"], audited.scores["loss"])


def test_a_coin_for_each_row_of_a_model_that_is_not_fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        audited = audit(PrivateLogisticRegression(epsilon=5.0, **PUBLIC), X, y, **FEW)
    assert len(audited) == 240
    assert 90 < np.count_nonzero(audited.truth) < 150
    assert not np.array_equal(audited.truth, np.sort(audited.truth)[::-1])
    assert len(audited.exposures.loss) == np.count_nonzero(audited.truth)
    assert audited.notices == ()
    # The coins are the seed's alone.
    other = audit(LogisticRegression(), X, y, **FEW)
    assert np.array_equal(other.truth, audited.truth)
    assert other.exposures is None
    assert other.guarantee is None


@pytest.mark.parametrize("seed", [None, 3])
def test_a_second_call_goes_on_from_the_checkpoint(seed, released, tmp_path):
    rows = (X[:120], y[:120], X[120:], y[120:])
    kept = {"references": 8, "random_state": seed, "checkpoint": tmp_path / "kept"}
    first = audit(released, *rows, **kept)
    calls = []
    second = audit(released, *rows, progress=lambda done, all_: calls.append(done), **kept)
    assert calls == [8]
    assert np.array_equal(first.scores["lira-online"], second.scores["lira-online"])


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        LinearSVC(),
        make_pipeline(StandardScaler(), PrivateLogisticRegression(**PUBLIC)),
    ],
)
def test_any_estimator(model):
    audited = audit(model, pd.DataFrame(X, columns=list("abcdef")), pd.Series(y), **FEW)
    assert np.isfinite(audited.figures[audited.best].auc.value)


def test_a_regression():
    audited = audit(Ridge(), X, X[:, 0] + RNG.normal(size=240), **FEW)
    assert audited.disparity == ()
    assert "lira-online" in audited.scores


def test_a_training_function():
    def train(rows, labels, seed):
        return LogisticRegression(random_state=seed).fit(rows, labels).predict_proba

    audited = audit(train, X, y, **FEW)
    same = audit(LogisticRegression(), X, y, **FEW)
    assert np.array_equal(audited.scores["lira-online"], same.scores["lira-online"])


def test_a_model_without_noise_is_compared_by_distances():
    model = LogisticRegression().fit(X[:120], y[:120])
    given = expost.profile(model, X[:120], y[:120])
    audited = audit(model, X[:120], y[:120], X[120:], y[120:], exposure=given, **FEW)
    assert audited.exposures.is_noiseless
    assert [correlation.what.split(" and ")[0] for correlation in audited.correlations] == [
        "distance",
        "distance",
    ]


def test_rows_that_the_model_was_not_trained_on_have_no_exposures(released):
    audited = audit(released, X[:100], y[:100], X[120:], y[120:], **FEW)
    assert audited.exposures is None
    assert any("Exposures are not shown" in notice for notice in audited.notices)
    assert audited.guarantee is not None


def test_without_references(released):
    audited = audit(released, X[:120], y[:120], X[120:], y[120:], references=0)
    assert audited.row_auc is None
    assert "loss" in audited.scores
    assert audited.skipped["lira-online"] == "needs both, references"
    assert len(audited.vulnerable(3)) == 3


def test_a_population_serves_the_attacks_that_need_one(released):
    audited = audit(
        released, X[:120], y[:120], X[120:200], y[120:200], population=(X[200:], y[200:]), **FEW
    )
    assert "population" in audited.scores
    assert audited.skipped == {}


def test_chosen_attacks(released):
    def lengths(evidence):
        return np.asarray(evidence.confidence, dtype=np.float64)

    class Mine:
        name, needs = "mine", frozenset()

        def __call__(self, evidence):
            return lengths(evidence)

    rows = (X[:120], y[:120], X[120:], y[120:])
    audited = audit(released, *rows, attacks=["loss", Mine()], references=0)
    assert list(audited.scores) == ["loss", "mine"]
    with pytest.raises(InvalidInput, match="lira-online needs both, references"):
        audit(released, *rows, attacks=["lira-online"], references=0)
    with pytest.raises(InvalidInput, match="attacks='liar'"):
        audit(released, *rows, attacks=["liar"], references=0)
    with pytest.raises(InvalidInput, match="attacks: must be a list"):
        audit(released, *rows, attacks="loss")

    class Broken(Mine):
        def __call__(self, evidence):
            return np.full(evidence.rows, np.nan)

    with pytest.raises(InvalidInput, match="finite score"):
        audit(released, *rows, attacks=[Broken()], references=0)


def test_parameters_are_checked():
    given = {"model": LogisticRegression(), "X": X[:120], "y": y[:120]}
    assert set(refuse_nan(audit, given)) == {
        *("references", "confidence", "random_state", "workers", "delta"),
    }


def test_what_is_refused(released):
    rows = (X[:120], y[:120])
    with pytest.raises(InvalidInput, match="X_out, y_out: must be given"):
        audit(released, *rows)
    with pytest.raises(InvalidInput, match="the model is not fitted"):
        audit(LogisticRegression(), *rows, X[120:], y[120:])
    with pytest.raises(InvalidInput, match="y has 119 entries"):
        audit(LogisticRegression(), X[:120], y[:119])
    with pytest.raises(InvalidInput, match="size"):
        audit(LogisticRegression(), *rows, groups={"size": [1, 2]}, **FEW)
    with pytest.raises(InvalidInput, match="ids has 3 entries"):
        audit(LogisticRegression(), *rows, ids=[1, 2, 3], **FEW)


def test_keys_of_rows(released):
    keys = [f"p{number}" for number in range(240)]
    audited = audit(released, X[:120], y[:120], X[120:], y[120:], ids=keys, references=0)
    assert audited.key(5) == "p5"
    assert audited.columns()["id"][5] == "p5"


def test_answers_from_elsewhere(audited):
    evidence = arrays_of(confidence=audited.scores["loss"]).evidence
    alone = audit_evidence(evidence, audited.truth, options=Options(confidence=0.9))
    assert alone.figures["loss"].auc.value == audited.figures["loss"].auc.value
    with pytest.raises(InvalidInput, match="truth"):
        audit_evidence(evidence, audited.truth[:-1])
    with pytest.raises(InvalidInput, match="truth"):
        audit_evidence(evidence, audited.truth.astype(float))


def test_a_file_of_answers(audited, tmp_path):
    table = pd.DataFrame(
        {"confidence": audited.scores["loss"], "member": audited.truth.astype(int), "label": y}
    )
    table.to_csv(tmp_path / "answers.csv", index=False)
    alone = audit_arrays(tmp_path / "answers.csv", description="mine")
    assert alone.description == "mine"
    assert alone.figures["loss"].auc.value == audited.figures["loss"].auc.value
    assert alone.disparity[0].column == "class"
    assert {group.label for group in alone.disparity[0]} == {"benign", "malignant"}
    # Who says nothing of coins gets no bound.
    inside = RNG.random((8, 240)) < 0.5
    phi = RNG.normal(size=(8, 240))
    answers = arrays_of(
        confidence=audited.scores["loss"], member=audited.truth, references=phi, inside=inside
    )
    assert audit_arrays(answers).bounds == ()
    assert len(audit_arrays(answers, coins=True).bounds) == 2
    with pytest.raises(InvalidInput, match="must state which rows"):
        audit_arrays(arrays_of(losses=np.ones(4)))


def test_over_epsilon():
    sweep = audit_sweep(PrivateLogisticRegression(**PUBLIC), X, y, epsilons=(100.0, 0.1), **FEW)
    assert sweep.epsilons == (0.1, 100.0)
    low, high = sweep.audits
    assert np.array_equal(low.truth, high.truth)
    assert low.advantage_bound < high.advantage_bound
    assert sweep.beaten == ()
    allowed = replace(low, guarantee=EpsilonDelta(epsilon=0.1))
    for share, beaten in ((0.08, ()), (1.0, ((0.1, "loss"),))):
        score = np.where(RNG.random(240) < share, low.truth, RNG.random(240) < 0.5) + 0.0
        made = figures(score, low.truth)
        scaled = replace(
            allowed, scores=low.scores | {"loss": score}, figures=low.figures | {"loss": made}
        )
        assert replace(sweep, audits=(scaled, high)).beaten == beaten
    assert len(sweep.correlations) == 2
    assert str(sweep) == render_text(document_of(sweep))
    assert sweep.to_json()["audits"][1]["epsilon"] == 100.0
    with pytest.raises(InvalidInput, match="parameter epsilon"):
        audit_sweep(LogisticRegression(), X, y)
    with pytest.raises(InvalidInput, match="epsilons"):
        audit_sweep(PrivateLogisticRegression(**PUBLIC), X, y, epsilons=())
    with pytest.raises(InvalidInput, match="epsilons"):
        audit_sweep(PrivateLogisticRegression(**PUBLIC), X, y, epsilons=(0.0,))
