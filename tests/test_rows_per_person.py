"""``rows_per_person``: of the estimators, in model.json, in the ledger, and where ε is printed."""

import json

import numpy as np
import pytest

import expost
from expost.errors import InvalidInput, ReleaseRefused
from expost.estimators import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from expost.ledger import Entry, entries_of
from expost.mechanisms.publishing import PublishingBudget
from expost.release import Release
from expost.risk import EpsilonDelta, GaussianNoise, NormLaplaceNoise
from settings import OUTPUT

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (240, 3))
Y = np.where(X[:, 0] + 0.3 * RNG.normal(size=240) > 0, 1, 0)
WHO = np.arange(240) // 3
MECHANISMS = [
    {"mechanism": "output", "noise": "laplace"},
    {"mechanism": "output", "noise": "gaussian", "delta": 1e-5},
    {"mechanism": "objective", "noise": "laplace"},
    {"mechanism": "objective", "noise": "gaussian", "delta": 1e-5},
]


def fit(kind=PrivateLogisticRegression, *, persons=None, **parameters):
    options = {**OUTPUT, "regularization": 0.1, "data_norm": 2.0, **parameters}
    options |= {"label_range": (-1.0, 1.0)} if kind is PrivateRidge else {"classes": (0, 1)}
    return kind(**options).fit(X, Y, persons=persons)


@pytest.mark.parametrize("parameters", MECHANISMS)
def test_epsilon_and_delta_hold_for_persons(parameters, tmp_path):
    mechanism = fit(rows_per_person=3, **parameters).release_.mechanism
    assert mechanism.rows_per_person == 3
    assert mechanism.guarantee(3).delta(1.0) <= parameters.get("delta", 0.0) * (1 + 1e-9)
    assert mechanism.guarantee().epsilon(1e-5) < 0.4
    assert mechanism.resolution > 2.5 * fit(**parameters).release_.mechanism.resolution


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC, PrivateRidge])
def test_every_estimator_takes_it_and_one_is_the_default(kind, tmp_path):
    assert kind().get_params()["rows_per_person"] == 1
    model = fit(kind, rows_per_person=4, persons=WHO)
    loaded = type(model).load(model.save(tmp_path / "model.json"))
    assert loaded.get_params()["rows_per_person"] == 4
    assert loaded.release_.mechanism == model.release_.mechanism
    with pytest.raises(InvalidInput, match="rows_per_person=0"):
        fit(kind, rows_per_person=0)


@pytest.mark.parametrize("most", [1, 2])
def test_a_person_with_more_rows_is_refused_before_anything_is_drawn(most, monkeypatch):
    monkeypatch.setattr(PrivateLogisticRegression, "release", lambda *_: pytest.fail("drawn"))
    with pytest.raises(InvalidInput, match=rf"80 persons .*rows_per_person={most} "):
        fit(rows_per_person=most, persons=WHO)
    single = WHO.copy()
    single[:3] = [999, 999, 999]
    with pytest.raises(InvalidInput, match="the largest number is 3"):
        fit(rows_per_person=most, persons=single)
    with pytest.raises(InvalidInput, match="one for each of 240 rows"):
        fit(rows_per_person=most, persons=WHO[:-1])


def test_one_person_too_many_is_counted_as_one():
    lone = np.arange(240)
    lone[:2] = 7_000
    with pytest.raises(InvalidInput, match=r"1 person .*rows_per_person=1 "):
        fit(persons=lone)
    fit(persons=np.arange(240))


@pytest.mark.parametrize("parameters", MECHANISMS)
def test_the_file_holds_it_where_it_is_not_one(parameters, tmp_path):
    single = json.loads(fit(**parameters).save(tmp_path / "one.json").read_text())
    assert "rows_per_person" not in single["mechanism"]
    path = fit(rows_per_person=3, **parameters).save(tmp_path / "model.json")
    value = json.loads(path.read_text())
    assert value["mechanism"]["rows_per_person"] == 3
    assert Release.load(path).mechanism.rows_per_person == 3
    # Anything that could not have been written is refused, however it is sealed.
    from mechanisms.test_release import sealed

    for wrong in (1, 2, 0, 3.0, True, None, "3"):
        edited = {**value, "mechanism": {**value["mechanism"], "rows_per_person": wrong}}
        path.write_text(json.dumps(sealed(edited)))
        with pytest.raises(InvalidInput):
            Release.load(path)
    bare = {name: field for name, field in value["mechanism"].items() if name != "rows_per_person"}
    path.write_text(json.dumps(sealed({**value, "mechanism": bare})))
    with pytest.raises(InvalidInput):
        Release.load(path)


@pytest.mark.parametrize(
    ("parameters", "kind"),
    list(
        zip(MECHANISMS, (NormLaplaceNoise, GaussianNoise, EpsilonDelta, EpsilonDelta), strict=True)
    ),
)
def test_the_ledger_lists_what_persons_are_guaranteed(parameters, kind, tmp_path):
    path = fit(rows_per_person=3, **parameters).save(tmp_path / "model.json")
    (entry,) = entries_of(path)
    assert isinstance(entry.guarantee, kind)
    assert entry.guarantee == Release.load(path).mechanism.guarantee(3)
    assert entry.rows_per_person == 3
    assert entry.to_json()["rows_per_person"] == 3
    assert Entry.from_json(entry.to_json()) == entry
    assert "persons with up to 3 rows" in entry.description
    (plain,) = entries_of(fit(**parameters).save(tmp_path / "plain.json"))
    assert "rows_per_person" not in plain.to_json()
    with pytest.raises(InvalidInput):
        Entry.from_json({**plain.to_json(), "rows_per_person": 1})


def test_rows_per_person_is_stated_next_to_epsilon():
    model = fit(rows_per_person=3)
    words = "epsilon=1 for persons with up to 3 rows"
    assert words in repr(model.release_)
    profile = expost.profile(model, X, Y)
    assert "for persons with up to 3 rows" in str(profile)
    assert "for persons with up to 3 rows" in str(expost.publish(model))
    assert "for persons with up to 3 rows" in str(expost.identifiability(model))
    assert "for persons" not in str(expost.profile(fit(), X, Y))


@pytest.mark.parametrize("parameters", MECHANISMS)
def test_a_profile_of_persons_has_epsilon_for_its_worst_case(parameters):
    model = fit(rows_per_person=3, persons=WHO, **parameters)
    profile = expost.profile(model, X, Y, persons=WHO)
    assert profile.worst_case == 1.0
    assert np.max(profile.exposure) <= 1.0
    rows = expost.profile(model, X, Y)
    assert rows.worst_case == pytest.approx(1 / 3)
    assert np.max(rows.exposure) <= 1 / 3 * (1 + 1e-9)


def test_a_choice_of_epsilon_takes_as_much_noise_as_persons_need():
    """Δ is the same, the noise of an ε three times as large: so is the ε of the same exposure."""
    mechanisms = [fit(rows_per_person=k).release_.mechanism for k in (1, 3)]
    distance = np.array([1e-3, 1e-2])
    first, three = (mechanism.epsilon_at(0.2, distance) for mechanism in mechanisms)
    assert three == pytest.approx(3 * first, rel=1e-9)
    first, three = (mechanism.epsilon_from(0.2, 1e-3) for mechanism in mechanisms)
    assert three == pytest.approx(3 * first, rel=1e-9)


def test_a_data_dependent_report_is_for_one_row_a_person():
    budget = PublishingBudget(epsilon_gradient=1.0, epsilon_hessian=1.0, delta=1e-5)
    options = {"mechanism": "objective", "noise": "gaussian", "delta": 1e-5, "rows_per_person": 2}
    with pytest.raises(InvalidInput, match="persons with one row"):
        fit(publishing=budget, **options)
    model = fit(**options, regularization=10.0)
    with pytest.raises(ReleaseRefused, match="persons with one row"):
        expost.publish(
            model, X, Y, kind="data-dependent", epsilon_gradient=1.0, epsilon_hessian=1.0
        )
    assert expost.publish(model).spending.model == (1.0, 1e-5)


def test_regularization_is_chosen_for_persons():
    first, many = (fit(regularization="auto", rows_per_person=k).release_.mechanism for k in (1, 6))
    assert many.regularization > first.regularization


def test_a_ledger_states_for_whom_its_releases_hold_together(tmp_path):
    from expost.jobs.releases import listing
    from expost.report import document_of

    paths = [fit(rows_per_person=k, data_norm=2.0).save(tmp_path / f"{k}.json") for k in (1, 3, 5)]
    together = {
        (0,): None,
        (1, 2): "Together they hold for persons with up to 3 rows.",
        (0, 1): "Together they hold for one row of a person.",
    }
    for chosen, sentence in together.items():
        document = document_of(listing([paths[index] for index in chosen]))
        titles = [alert.title for alert in document.alerts if "Together they hold" in alert.title]
        assert titles == ([] if sentence is None else [sentence])
