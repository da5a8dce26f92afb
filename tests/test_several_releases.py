"""``profile`` of several releases: losses add, and what is not in the ledger is said."""

import warnings

import numpy as np
import pytest

import expost
from expost.errors import InvalidInput, NotInLedgerWarning, SeededReleaseWarning
from expost.glm import Objective, minimise
from expost.ledger import list_release
from expost.mechanisms import OutputPerturbation
from settings import OUTPUT

LABELS = ("no", "yes")


def table(rows=60, columns=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    X /= 1.01 * np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.where(X[:, 0] + 0.4 * rng.normal(size=rows) > 0, *LABELS)


def fitted(X, y, **options):
    given = {**OUTPUT, "regularization": 0.1, "data_norm": 1.0, "classes": LABELS}
    options = {**given, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededReleaseWarning)
        return expost.PrivateLogisticRegression(**options).fit(X, y)


def naive_loss(theta, mechanism, X, y, row):
    """log p(θ ∣ D) − log p(θ ∣ D₋ᵢ) from two fits and the noise's log-density."""

    def centre(keep):
        data = Objective.of(
            X=X[keep], y=y[keep], loss=mechanism.loss, penalty=np.full(X.shape[1], 0.1)
        )
        return minimise(data, tolerance=1e-13).theta

    every = np.arange(len(X))
    return float(
        mechanism.law.log_density(theta - centre(every))
        - mechanism.law.log_density(theta - centre(every[every != row]))
    )


def test_losses_of_two_releases_are_the_log_density_ratio_of_both():
    X, y = table()
    models = [
        fitted(X, y, epsilon=20.0, random_state=1),
        fitted(X, y, epsilon=5.0, delta=1e-5, noise="gaussian", random_state=2),
    ]
    profile = expost.profile(models, X, y)
    problem = models[0].release_.problem(X, y)
    for row in (0, 17, 59):
        naive = sum(
            naive_loss(
                model.release_.theta, model.release_.mechanism, problem.held.X, problem.held.y, row
            )
            for model in models
        )
        assert profile.loss[row] == pytest.approx(naive, abs=1e-4)
        assert profile.loss_low[row] <= naive <= profile.loss_high[row]
        assert profile.loss_high[row] - profile.loss_low[row] < 0.01
    # Power: one of them alone is something else.
    alone = expost.profile(models[0], X, y)
    assert np.max(np.abs(profile.loss - alone.loss)) > 1e-2
    assert profile.worst_case > alone.worst_case
    assert "2 releases" in profile.description
    assert any("have seeded noise" in notice for notice in profile.notices)
    assert not any("have seeded noise" in notice for notice in alone.notices)


def test_persons_of_several_releases():
    X, y = table()
    models = [fitted(X, y, epsilon=10.0, random_state=k) for k in range(2)]
    owners = [f"person {index // 3}" for index in range(len(X))]
    profile = expost.profile(models, X, y, persons=owners)
    each = [expost.profile(model, X, y, persons=owners) for model in models]
    np.testing.assert_allclose(profile.loss, each[0].loss + each[1].loss, rtol=1e-14)
    assert len(profile) == 20
    assert profile.key(0) == "person 0"


def test_bare_coefficients_with_their_mechanisms():
    X, y = table()
    signs = np.where(y == "yes", 1.0, -1.0)
    mechanism = OutputPerturbation(
        epsilon=5.0, loss=expost.losses.make_loss("logistic"), regularization=0.1, rows=60,
        dimension=3,
    )  # fmt: skip
    base = minimise(
        Objective.of(X=X, y=signs, loss=mechanism.loss, penalty=np.full(3, 0.1)), tolerance=1e-12
    )
    thetas = [mechanism.add_noise(base, np.random.default_rng(k)) for k in range(2)]
    both = expost.profile(thetas, X, signs, mechanism=[mechanism, mechanism])
    each = [expost.profile(theta, X, signs, mechanism=mechanism) for theta in thetas]
    np.testing.assert_allclose(both.loss, each[0].loss + each[1].loss, rtol=1e-14)
    # A list of numbers is still one model.
    single = expost.profile(list(thetas[0]), X, signs, mechanism=mechanism)
    np.testing.assert_array_equal(single.loss, each[0].loss)
    with pytest.raises(InvalidInput, match=r"mechanism: must be a list of 2"):
        expost.profile(thetas, X, signs, mechanism=mechanism)
    with pytest.raises(InvalidInput, match=r"mechanism: is a list"):
        expost.profile(thetas[0], X, signs, mechanism=[mechanism])


def test_the_same_release_twice_is_refused(tmp_path):
    X, y = table()
    model = fitted(X, y, epsilon=5.0, random_state=1)
    path = model.release_.save(tmp_path / "model.json")
    with pytest.raises(InvalidInput, match=r"the same release"):
        expost.profile([model, path], X, y)
    with pytest.raises(InvalidInput, match=r"model: is an empty list"):
        expost.profile([], X, y)
    alone = expost.profile([model], X, y)
    np.testing.assert_array_equal(alone.loss, expost.profile(model, X, y).loss)


def test_a_model_that_its_ledger_does_not_list_has_a_notice(tmp_path):
    X, y = table()
    listed = fitted(X, y, epsilon=5.0, random_state=1).release_.save(tmp_path / "model.json")
    other = fitted(X, y, epsilon=5.0, random_state=2).release_.save(tmp_path / "other.json")
    # No ledger, no warning (warnings are errors here).
    assert not any("ledger" in notice for notice in expost.profile(listed, X, y).notices)
    list_release(tmp_path, listed, X, y)
    assert not any("ledger" in notice for notice in expost.profile(listed, X, y).notices)
    with pytest.warns(NotInLedgerWarning, match=r"other\.json is not in the ledger") as caught:
        profile = expost.profile(str(other), X, y)
    assert caught[0].filename == __file__
    assert any("is not in the ledger" in notice for notice in profile.notices)
