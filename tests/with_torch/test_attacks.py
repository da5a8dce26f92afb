"""White-box scores of modules: against autograd row by row; modules as targets of an audit."""

import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.covariance import ledoit_wolf
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from torch import nn

import expost
import expost.torch.attacks as module_under_test
from expost.auditing.attacks.linear_gradients import gradient_scores as scores_of_any
from expost.auditing.targets import target_of
from expost.errors import ConvergenceError, InvalidInput
from expost.torch import ModuleGradients, gradient_scores, torch_target
from expost.torch.attacks import evaluate, fresh_copy, log_odds
from parameters import refuse_nan


def network(seed=0, inputs=4, outputs=3, hidden=5):
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))
    return layers.double()


def data(rows=12, inputs=4, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, inputs)), rng.integers(classes, size=rows)


def autograd(module, X, y, loss=nn.functional.cross_entropy):
    """(n, D), one backward pass for each row."""
    gradients = []
    for x, label in zip(X, y, strict=True):
        module.zero_grad()
        loss(module(torch.tensor(x)[None]), torch.tensor([label])).backward()
        gradients.append(
            torch.cat([p.grad.reshape(-1) for p in module.parameters()]).numpy().copy()
        )
    return np.array(gradients)


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "computed again"])
def test_gradients_are_those_of_autograd_row_by_row(kept, monkeypatch):
    if not kept:
        monkeypatch.setattr(module_under_test, "_KEPT", 0)
        monkeypatch.setattr("expost.torch.gradients._BLOCK_ENTRIES", 200)
    module, (X, y) = network(), data()
    slow, fast = autograd(module, X, y), ModuleGradients.of(module, X, y)
    assert (fast.rows, fast.dimension) == slow.shape
    direction = np.random.default_rng(1).normal(size=fast.dimension)
    np.testing.assert_allclose(fast.squares(), np.sum(slow**2, axis=1), rtol=1e-10)
    np.testing.assert_allclose(fast.mean(), slow.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(fast.along(direction), slow @ direction, atol=1e-10)
    other = fast.take(np.array([7, 2]))
    np.testing.assert_allclose(fast.gram(other), slow @ slow[[7, 2]].T, atol=1e-10)
    flat = torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()
    np.testing.assert_array_equal(fast.parameters, flat)


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("alone", [False, True])
def test_scores_are_the_formula_written_out(weight_decay, alone):
    module, (X, y), outside = network(), data(), data(rows=30, seed=1)
    population = None if alone else outside
    scores = gradient_scores(
        module, X, y, members=5, population=population, weight_decay=weight_decay
    )
    g = autograd(module, X, y)
    np.testing.assert_allclose(scores["gradient-norm"], -np.linalg.norm(g, axis=1), rtol=1e-10)
    theta = torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()
    total = -5 * weight_decay * theta
    p = g if alone else autograd(module, *outside)
    centre = (g.sum(axis=0) - total) / (12 - 5) if alone else p.mean(axis=0)
    covariance, _ = ledoit_wolf(p - centre, assume_centered=True)
    inverse = np.linalg.inv(5 * (1 + 5 / len(p)) * covariance)
    slow = [h @ inverse @ (total - 5 * centre) - h @ inverse @ h / 2 for h in (g - centre)]
    np.testing.assert_allclose(scores["gradient-inner-product"], slow, rtol=1e-6, atol=1e-8)


def test_a_module_of_one_layer_scores_as_the_linear_model_that_it_is():
    X, y = data(rows=60, classes=3)
    model = LogisticRegression(C=2.0, tol=1e-10, max_iter=2000).fit(X[:30], y[:30])
    layer = nn.Linear(4, 3).double()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(model.coef_))
        layer.bias.copy_(torch.from_numpy(model.intercept_))
    linear = scores_of_any(model, X, y, members=30)["gradient-norm"]
    scores = gradient_scores(layer, X, y, members=30)
    np.testing.assert_allclose(scores["gradient-norm"], linear, rtol=1e-10)


def test_gradients_tell_members_of_a_network_that_has_learnt_by_heart():
    rng = np.random.default_rng(2)
    rule = rng.normal(size=(20, 3))
    X = rng.normal(size=(480, 20))
    y = (X @ rule + 2 * rng.gumbel(size=(480, 3))).argmax(axis=1)
    recipe = torch_target(
        network(inputs=20, hidden=16), classes=range(3), epochs=60, learning_rate=0.5, batch_size=40
    )
    model = recipe(X[:120], y[:120], seed=1)
    truth = np.arange(240) < 120
    scores = scores_of_any(model, X[:240], y[:240], members=120, population=(X[240:], y[240:]))
    for values in scores.values():
        assert roc_auc_score(truth, values) > 0.65
    untrained = recipe.model()
    chance = untrained.gradient_scores(X[:240], y[:240], members=120)
    assert abs(roc_auc_score(truth, chance["gradient-norm"]) - 0.5) < 0.12


def test_log_odds_are_finite_where_probabilities_coincide():
    outputs = torch.tensor([[0.3, -1.0, 2.0], [500.0, 0.0, 0.0], [0.0, 900.0, 0.0]])
    odds = log_odds(outputs, torch.tensor([2, 0, 0]))
    p = torch.softmax(outputs[0].double(), dim=0)[2].item()
    assert odds[0] == pytest.approx(math.log(p / (1 - p)), rel=1e-6)
    assert odds[1:].tolist() == [36.0, -36.0]
    assert odds.dtype == np.float32
    with pytest.raises(ConvergenceError, match="NaN"):
        log_odds(torch.full((1, 2), math.nan), torch.tensor([0]))


LABELS = np.array(["no", "perhaps", "yes"])


def training(**options):
    given = {"classes": LABELS, "epochs": 3, "learning_rate": 0.2, "batch_size": 5}
    return torch_target(network(), **given | options)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_training_is_that_of_a_plain_loop_and_of_its_seed_alone(optimizer):
    X, y = data()
    recipe = training(optimizer=optimizer, weight_decay=0.01)
    torch.manual_seed(11)
    before = torch.random.get_rng_state()
    first, same, other = (recipe(X, LABELS[y], seed) for seed in (4, 4, 5))
    assert torch.equal(torch.random.get_rng_state(), before)
    np.testing.assert_array_equal(first.predict_proba(X), same.predict_proba(X))
    assert not np.allclose(first.predict_proba(X), other.predict_proba(X))
    # The same, written out.
    rng = np.random.default_rng(4)
    module = fresh_copy(network(), rng)
    torch.manual_seed(int(rng.integers(2**62)))
    kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adam
    rule = kind(module.parameters(), lr=0.2, weight_decay=0.01)
    for _ in range(3):
        order = torch.randperm(12)
        for start in range(0, 12, 5):
            rows = order[start : start + 5]
            rule.zero_grad()
            nn.functional.cross_entropy(
                module(torch.tensor(X)[rows]), torch.tensor(y)[rows]
            ).backward()
            rule.step()
    expected = torch.softmax(module(torch.tensor(X)), dim=1).detach().numpy()
    np.testing.assert_allclose(first.predict_proba(X), expected, rtol=1e-12)


def own_training(module, X, y):
    rule = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(2):
        rule.zero_grad()
        nn.functional.cross_entropy(module(X), y).backward()
        rule.step()


def test_a_training_of_the_users_own_and_a_module_that_starts_as_it_is():
    X, y = data()
    recipe = training(train=own_training, fresh=False)
    first, second = recipe(X, LABELS[y], 1), recipe(X, LABELS[y], 2)
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    assert not np.allclose(first.predict_proba(X), recipe.model().predict_proba(X))
    again = pickle.loads(pickle.dumps(recipe))(X, LABELS[y], 1)
    np.testing.assert_array_equal(first.predict_proba(X), again.predict_proba(X))


def test_it_is_a_target():
    X, y = data(rows=40)
    labels = LABELS[y]
    recipe = training()
    target = target_of(recipe, labels)
    assert not target.is_fitted
    trained = target.trained(X[:20], labels[:20], seed=3)
    phi = trained.signals(X, labels).confidence
    model = recipe(X[:20], labels[:20], 3)
    direct = log_odds(evaluate(model.module, X), torch.tensor(y))
    np.testing.assert_allclose(phi, direct, rtol=1e-5, atol=1e-5)
    present = target_of(model, labels, train=recipe)
    assert present.is_fitted
    np.testing.assert_allclose(present.signals(X, labels).confidence, phi)


def test_an_audit_takes_the_gradients_of_a_module():
    X, y = data(rows=40)
    recipe = training()
    model = recipe(X[:20], LABELS[y[:20]], 1)
    halves = (X[:20], LABELS[y[:20]], X[20:], LABELS[y[20:]])
    result = expost.audit(model, *halves, train=recipe, references=2, random_state=0, workers=1)
    norms = np.linalg.norm(autograd(model.module, X, y), axis=1)
    np.testing.assert_allclose(result.scores["gradient-norm"], -norms, rtol=1e-10)
    assert np.all(np.isfinite(result.scores["gradient-inner-product"]))


def test_modules_are_asked_in_evaluation_mode_and_left_as_they_were():
    noisy = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    X, y = data()
    recipe = torch_target(noisy, classes=range(3), epochs=2)
    model = recipe(X, y, 1)
    assert model.module.training
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(X))
    scores = model.gradient_scores(X, y, members=6)
    np.testing.assert_array_equal(
        scores["gradient-norm"], model.gradient_scores(X, y, members=6)["gradient-norm"]
    )
    assert model.module.training
    assert set(model.gradient_scores(X, y, members=12)) == {"gradient-norm"}


def test_what_cannot_be_done_is_refused():
    X, y = data()
    for options, message in (
        ({"classes": ["a", "a"]}, "classes: must be"),
        ({"momentum": 1.0}, "momentum=1.0"),
        ({"optimizer": "lion"}, "optimizer='lion'"),
    ):
        with pytest.raises(InvalidInput, match=message):
            training(**options)
    with pytest.raises(InvalidInput, match=r"pass a torch\.nn\.Module"):
        torch_target("network", classes=range(3))
    with pytest.raises(InvalidInput, match="labels other than"):
        training()(X, y, 0)
    with pytest.raises(InvalidInput, match="one for each of 2 classes"):
        torch_target(network(), classes=[0, 1]).model().predict_proba(X)
    with pytest.raises(ConvergenceError, match="learning_rate=1e"):
        training(learning_rate=1e308, epochs=9)(X, LABELS[y], 0)
    assert len(refuse_nan(torch_target, {"module": network(), "classes": range(3)})) == 5
    with pytest.raises(InvalidInput, match="weight_decay=-1"):
        gradient_scores(network(), X, y, members=3, weight_decay=-1.0)
    with pytest.raises(InvalidInput, match=r"pass a torch\.nn\.Module"):
        gradient_scores("network", X, y, members=3)
