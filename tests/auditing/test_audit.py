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
def found(released):
    return audit(released, X[:120], y[:120], X[120:], y[120:], groups={"size": X[:, 0]}, **FEW)


def test_members_come_first_and_every_figure_is_there(found):
    assert len(found) == 240
    assert np.array_equal(found.truth, np.arange(240) < 120)
    assert {"loss", "lira-online", "rmia-online", "gradient-norm"} <= set(found.scores)
    assert set(found.scores) == set(found.figures)
    assert set(found.skipped) == set(ATTACKS) - set(found.scores) == {"population"}
    for name, score in found.scores.items():
        area = roc_auc_score(found.truth, score)
        assert found.figures[name].auc.value == pytest.approx(area)
    assert found.best == max(found.figures, key=lambda name: found.figures[name].auc.value)
    assert found.roc().area == pytest.approx(found.figures[found.best].auc.value)
    assert found.models == 8


def test_the_same_seed_gives_the_same_audit(released, found):
    again = audit(released, X[:120], y[:120], X[120:], y[120:], groups={"size": X[:, 0]}, **FEW)
    assert again.to_json() == found.to_json()
    other = audit(released, X[:120], y[:120], X[120:], y[120:], references=8, random_state=1)
    assert not np.array_equal(other.scores["lira-online"], found.scores["lira-online"])


def test_exposures_stand_beside_the_attacks(released, found):
    profile = expost.profile(released, X[:120], y[:120])
    assert np.array_equal(found.exposures.loss, profile.loss)
    assert np.array_equal(found.exposures.expected, profile.expected)
    assert found.advantage_bound == released.release_.mechanism.guarantee().advantage
    of_loss, of_typical, of_apart = found.correlations
    best = found.scores[found.best][:120]
    assert of_loss.value == pytest.approx(spearmanr(profile.loss, best).statistic)
    assert of_typical.value == pytest.approx(spearmanr(profile.expected, best).statistic)
    apart = found.row_auc.value[:120]
    assert of_apart.value == pytest.approx(spearmanr(profile.expected, apart).statistic)
    for one in found.correlations:
        assert one.low < one.value < one.high
        assert one.rows == 120
    columns = found.columns()
    assert np.array_equal(columns["exposure"][:120], profile.exposure)
    assert np.isnan(columns["exposure"][120:]).all()


def test_who_is_vulnerable_and_where_theory_and_attack_disagree(found):
    apart = found.row_auc.value
    most = found.vulnerable(7)
    assert np.all(found.truth[most])
    assert np.all(np.diff(apart[found.ranking]) <= 0)
    assert len(found.ranking) == 120
    far = found.disagreements(5)
    typical = pd.Series(found.exposures.expected).rank()
    gap = np.abs(typical - pd.Series(apart[:120]).rank()).to_numpy()
    assert gap[far] == pytest.approx(np.sort(gap)[::-1][:5])


def test_what_is_not_known_of_a_row_does_not_read_as_private(found):
    value = found.row_auc.value.copy()
    value[3] = np.nan
    unknown = replace(found, row_auc=replace(found.row_auc, value=value))
    assert unknown.vulnerable(1)[0] == 3


def test_what_is_proved_about_epsilon(found):
    # Members were given: no coins, so that only the trainings speak.
    assert [one.confidence for one in found.bounds] == [0.95]
    assert not found.guarantee_refuted
    assert document_of(found).facts["proved"] == found.bounds[0].epsilon
    labels = RNG.choice(["a", "b"], size=240)
    tossed = audit(ExtraTreesClassifier(30), X, labels, references=32, random_state=0)
    both = tossed.bounds
    assert [one.confidence for one in both] == [0.975, 0.975]
    assert min(one.epsilon for one in both) > 0.5
    refuted = replace(tossed, guarantee=EpsilonDelta(epsilon=0.3))
    assert refuted.guarantee_refuted
    assert document_of(refuted).verdict.priority == 100
    assert not replace(tossed, guarantee=EpsilonDelta(epsilon=30.0)).guarantee_refuted
    stated = audit(
        ExtraTreesClassifier(30).fit(X[:120], labels[:120]),
        X[:120],
        labels[:120],
        X[120:],
        labels[120:],
        coins=True,
        references=0,
    )
    assert len(stated.bounds) == 1


def test_gaussian_noise_is_refuted_by_its_curve():
    model = PrivateLogisticRegression(epsilon=5.0, **GAUSSIAN)
    found = audit(model, X, y, **FEW)
    assert len(found.bounds) == 2
    assert all("GDP" in one.assumption or "Gaussian" in one.assumption for one in found.bounds)


def test_a_promise_that_does_not_cover_every_step_is_not_shown():
    private = PrivateLogisticRegression(epsilon=5.0, **GAUSSIAN)
    learned = audit(make_pipeline(StandardScaler(), private), X, y, **FEW)
    assert learned.guarantee is None
    assert learned.exposures is not None
    assert "steps before it learned from the rows" in learned.notices[0]
    assert not any(one.assumption for one in learned.bounds)
    fixed = audit(make_pipeline(Normalizer(), "passthrough", private), X, y, **FEW)
    assert fixed.guarantee is not None
    assert fixed.notices == ()
    assert all(one.assumption for one in fixed.bounds)


def test_what_was_read_from_the_data_is_said_of_a_simulation_too():
    model = PrivateLogisticRegression(epsilon=5.0, data_norm=PUBLIC["data_norm"])
    found = audit(model, X, y, **FEW)
    assert any("Read from the data" in notice for notice in found.notices)
    assert not any("seed" in notice for notice in found.notices)


def test_no_attack_is_told_how_many_heads_there_were(monkeypatch):
    """As where the coins are tossed here: not by the references' size, nor as a number."""
    told = []

    def scores(*args, members, **options):
        told.append(members)
        return {}

    def trained(*args, share, **options):
        told.append(share)
        return train_references(*args, share=share, **options)

    monkeypatch.setattr("expost.auditing.audit.gradient_scores", scores)
    monkeypatch.setattr("expost.auditing.audit.train_references", trained)
    rows = (X[:110], y[:110], X[110:], y[110:])
    model = LogisticRegression().fit(X[:110], y[:110])
    audit(model, *rows, coins=True, references=2, random_state=0)
    audit(model, *rows, references=2, random_state=0)
    assert told == [120, 0.5, 110, 110 / 240]


def test_by_class_and_by_group(found):
    by_class, by_size = found.disparity
    assert by_class.column == "class"
    assert {one.label for one in by_class} == {"benign", "malignant"}
    assert by_size.column == "size"
    assert len(by_size) == 4
    assert by_class.attack == found.best


def test_text_and_data(found):
    document = document_of(found)
    assert str(found) == render_text(document)
    counts = tuple(document.facts[name] for name in ("members", "non_members", "references"))
    assert counts == (120, 120, 8)
    assert "not a guarantee" in str(found)
    assert Audience.CURATOR_ONLY.meaning in str(found)
    assert found.audience is Audience.CURATOR_ONLY
    assert repr(found).startswith("Audit(240 rows")
    data = json.loads(found.to_json())
    assert data["audience"] == "curator-only"
    assert data["rows"]["exposure"][120] is None
    assert found.aggregate()["audience"] == "needs-review"
    assert "rows" not in found.aggregate()
    assert found.to_frame().shape[0] == 240
    assert document.title in found._repr_html_()


def test_the_table_is_written_for_the_curator(found, tmp_path):
    assert found.to_json(tmp_path / "audit.json").name == "audit.CURATOR-ONLY.json"
    assert found.to_parquet(tmp_path / "audit.parquet").name == "audit.CURATOR-ONLY.parquet"


def test_model_json_is_asked_as_it_is(released, found, tmp_path):
    path = released.release_.save(tmp_path / "model.json")
    before = path.read_bytes()
    again = audit(path, X[:120], y[:120], X[120:], y[120:], groups={"size": X[:, 0]}, **FEW)
    assert path.read_bytes() == before
    assert np.array_equal(again.scores["loss"], found.scores["loss"])


def test_a_coin_for_each_row_of_a_model_that_is_not_fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = audit(PrivateLogisticRegression(epsilon=5.0, **PUBLIC), X, y, **FEW)
    assert len(found) == 240
    assert 90 < np.count_nonzero(found.truth) < 150
    assert not np.array_equal(found.truth, np.sort(found.truth)[::-1])
    assert len(found.exposures.loss) == np.count_nonzero(found.truth)
    assert found.notices == ()
    # The coins are the seed's alone.
    other = audit(LogisticRegression(), X, y, **FEW)
    assert np.array_equal(other.truth, found.truth)
    assert other.exposures is None
    assert other.guarantee is None


@pytest.mark.parametrize("seed", [None, 3])
def test_a_second_call_goes_on_from_the_checkpoint(seed, released, tmp_path):
    rows = (X[:120], y[:120], X[120:], y[120:])
    kept = {"references": 8, "random_state": seed, "checkpoint": tmp_path / "kept"}
    first = audit(released, *rows, **kept)
    told = []
    second = audit(released, *rows, progress=lambda done, all_: told.append(done), **kept)
    assert told == [8]
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
    found = audit(model, pd.DataFrame(X, columns=list("abcdef")), pd.Series(y), **FEW)
    assert np.isfinite(found.figures[found.best].auc.value)


def test_a_regression():
    found = audit(Ridge(), X, X[:, 0] + RNG.normal(size=240), **FEW)
    assert found.disparity == ()
    assert "lira-online" in found.scores


def test_a_training_function():
    def train(rows, labels, seed):
        return LogisticRegression(random_state=seed).fit(rows, labels).predict_proba

    found = audit(train, X, y, **FEW)
    same = audit(LogisticRegression(), X, y, **FEW)
    assert np.array_equal(found.scores["lira-online"], same.scores["lira-online"])


def test_a_model_without_noise_is_compared_by_distances():
    model = LogisticRegression().fit(X[:120], y[:120])
    given = expost.profile(model, X[:120], y[:120])
    found = audit(model, X[:120], y[:120], X[120:], y[120:], exposure=given, **FEW)
    assert found.exposures.is_noiseless
    assert [one.what.split(" and ")[0] for one in found.correlations] == ["distance", "distance"]


def test_rows_that_the_model_was_not_trained_on_have_no_exposures(released):
    found = audit(released, X[:100], y[:100], X[120:], y[120:], **FEW)
    assert found.exposures is None
    assert any("Exposures are not shown" in notice for notice in found.notices)
    assert found.guarantee is not None


def test_without_references(released):
    found = audit(released, X[:120], y[:120], X[120:], y[120:], references=0)
    assert found.row_auc is None
    assert "loss" in found.scores
    assert found.skipped["lira-online"] == "needs both, references"
    assert len(found.vulnerable(3)) == 3


def test_a_population_serves_the_attacks_that_need_one(released):
    found = audit(
        released, X[:120], y[:120], X[120:200], y[120:200], population=(X[200:], y[200:]), **FEW
    )
    assert "population" in found.scores
    assert found.skipped == {}


def test_chosen_attacks(released):
    def lengths(evidence):
        return np.asarray(evidence.confidence, dtype=np.float64)

    class Mine:
        name, needs = "mine", frozenset()

        def __call__(self, evidence):
            return lengths(evidence)

    rows = (X[:120], y[:120], X[120:], y[120:])
    found = audit(released, *rows, attacks=["loss", Mine()], references=0)
    assert list(found.scores) == ["loss", "mine"]
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
    found = audit(released, X[:120], y[:120], X[120:], y[120:], ids=keys, references=0)
    assert found.key(5) == "p5"
    assert found.columns()["id"][5] == "p5"


def test_answers_from_elsewhere(found):
    evidence = arrays_of(confidence=found.scores["loss"]).evidence
    alone = audit_evidence(evidence, found.truth, options=Options(confidence=0.9))
    assert alone.figures["loss"].auc.value == found.figures["loss"].auc.value
    with pytest.raises(InvalidInput, match="truth"):
        audit_evidence(evidence, found.truth[:-1])
    with pytest.raises(InvalidInput, match="truth"):
        audit_evidence(evidence, found.truth.astype(float))


def test_a_file_of_answers(found, tmp_path):
    table = pd.DataFrame(
        {"confidence": found.scores["loss"], "member": found.truth.astype(int), "label": y}
    )
    table.to_csv(tmp_path / "answers.csv", index=False)
    alone = audit_arrays(tmp_path / "answers.csv", description="mine")
    assert alone.description == "mine"
    assert alone.figures["loss"].auc.value == found.figures["loss"].auc.value
    assert alone.disparity[0].column == "class"
    assert {one.label for one in alone.disparity[0]} == {"benign", "malignant"}
    # Who says nothing of coins gets no bound.
    inside = RNG.random((8, 240)) < 0.5
    phi = RNG.normal(size=(8, 240))
    answers = arrays_of(
        confidence=found.scores["loss"], member=found.truth, references=phi, inside=inside
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
        one = replace(
            allowed, scores=low.scores | {"loss": score}, figures=low.figures | {"loss": made}
        )
        assert replace(sweep, audits=(one, high)).beaten == beaten
    assert len(sweep.correlations) == 2
    assert str(sweep) == render_text(document_of(sweep))
    assert sweep.to_json()["audits"][1]["epsilon"] == 100.0
    with pytest.raises(InvalidInput, match="parameter epsilon"):
        audit_sweep(LogisticRegression(), X, y)
    with pytest.raises(InvalidInput, match="epsilons"):
        audit_sweep(PrivateLogisticRegression(**PUBLIC), X, y, epsilons=())
    with pytest.raises(InvalidInput, match="epsilons"):
        audit_sweep(PrivateLogisticRegression(**PUBLIC), X, y, epsilons=(0.0,))
