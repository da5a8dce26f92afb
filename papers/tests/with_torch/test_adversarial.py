"""Adversarial regularisation and DP-SGD as defences: the game, naively played; and what it gives."""

import math

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, ndtr
from torch import nn

import expost.torch
from evidence import record
from expost.errors import ConvergenceError, InvalidInput
from papers.lecture.adversarial import KNOWS_NOTHING, InferenceModel, adversarial_regularization
from papers.lecture.compare import compare_defences
from papers.lecture.defence import Defence
from papers.lecture.experiments import PLAIN, Effort, measure_defences, problem
from papers.lecture.run import limits_claim
from papers.lecture.torch_defences import AdversarialDefence, DPSGDDefence, Perceptron
from parameters import refuse_nan


class Confidence(nn.Module):
    """h = sigmoid(a·log p_y + b)."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(1, 1).double()

    def forward(self, outputs, labels):
        own = nn.functional.log_softmax(outputs, dim=1).gather(1, labels[:, None])
        return self.line(own)[:, 0]


class Adam:
    """Kingma and Ba's, as torch sets it."""

    def __init__(self, rate):
        self.rate, self.step, self.mean, self.square = rate, 0, 0.0, 0.0

    def __call__(self, theta, gradient):
        self.step += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.999 * self.square + 0.001 * gradient**2
        mean = self.mean / (1 - 0.9**self.step)
        square = self.square / (1 - 0.999**self.step)
        return theta - self.rate * mean / (np.sqrt(square) + 1e-8)


def slope(function, theta, step=1e-6):
    gradient = np.empty_like(theta)
    for index in range(len(theta)):
        shifted = np.zeros_like(theta)
        shifted[index] = step
        gradient[index] = (function(theta + shifted) - function(theta - shifted)) / (2 * step)
    return gradient


def naive_game(f, h, data, reference, *, weight, epochs, batch, k, rates, seed, both):
    """By numpy and finite differences: f linear without an offset, h as Confidence."""
    draws = torch.Generator().manual_seed(seed)
    descends, ascends = Adam(rates[0]), Adam(rates[1])
    (X, y), (X_ref, y_ref) = data, reference

    def own(f, X, y):
        return log_softmax(X @ f.reshape(-1, X.shape[1]).T, axis=1)[np.arange(len(y)), y]

    def log_h(f, h, X, y, sign):
        return np.mean(-np.logaddexp(0, -sign * (h[0] * own(f, X, y) + h[1])))

    gains = []
    for _ in range(epochs):
        for chosen in torch.randperm(len(X), generator=draws).split(batch):
            chosen = chosen.numpy()
            for _ in range(k):
                i = torch.randint(len(X), (min(batch, len(X)),), generator=draws).numpy()
                j = torch.randint(len(X_ref), (min(batch, len(X_ref)),), generator=draws).numpy()

                def gain(h, f=f, i=i, j=j):
                    inside = log_h(f, h, X[i], y[i], 1)
                    return (inside + log_h(f, h, X_ref[j], y_ref[j], -1)) / 2

                gains.append(gain(h))
                h = ascends(h, -slope(gain, h))
            j = None
            if both:
                j = torch.randint(len(X_ref), (min(batch, len(X_ref)),), generator=draws).numpy()

            def total(f, h=h, chosen=chosen, j=j):
                loss = -np.mean(own(f, X[chosen], y[chosen]))
                inside = log_h(f, h, X[chosen], y[chosen], 1)
                if j is None:
                    return loss + weight * inside
                return loss + weight / 2 * (inside + log_h(f, h, X_ref[j], y_ref[j], -1))

            f = descends(f, slope(total, f))
    return f, h, np.reshape(gains, (epochs, -1)).mean(axis=1)


@pytest.mark.parametrize(("k", "both"), [(1, False), (2, True)])
def test_the_game_is_the_naive_one(k, both):
    data, reference = problem(11, classes=3, features=4), problem(7, seed=1, classes=3, features=4)
    torch.manual_seed(3)
    module, inference = nn.Linear(4, 3, bias=False).double(), Confidence()
    settings = {"weight": 0.7, "epochs": 3, "seed": 5, "k": k, "both": both}
    f, h, gains = naive_game(
        module.weight.detach().numpy().ravel().copy(),
        np.array([inference.line.weight.item(), inference.line.bias.item()]),
        data,
        reference,
        batch=8,
        rates=(0.02, 0.05),
        **settings,
    )

    def played(weight):
        return adversarial_regularization(
            module,
            *data,
            *reference,
            weight=weight,
            epochs=3,
            batch_rows=8,
            learning_rate=0.02,
            inference_steps=k,
            inference_learning_rate=0.05,
            inference=inference,
            through_reference=both,
            random_state=5,
        )

    game = played(0.7)
    assert game.module.weight.detach().numpy().ravel() == pytest.approx(f, abs=1e-5)
    assert game.inference.line.weight.item() == pytest.approx(h[0], abs=1e-5)
    assert game.inference.line.bias.item() == pytest.approx(h[1], abs=1e-5)
    assert game.gains == pytest.approx(gains, abs=1e-5)
    # Another price gives another model.
    assert played(0.8).module.weight.detach().numpy().ravel() != pytest.approx(f, abs=1e-4)


def test_no_weight_is_plain_training():
    X, y = problem(50)
    torch.manual_seed(0)
    module = Perceptron((8,))(50, 5).double()
    plain = Perceptron((8,))(50, 5).double()
    plain.load_state_dict(module.state_dict())
    optimiser = torch.optim.Adam(plain.parameters(), lr=0.01)
    draws = torch.Generator().manual_seed(0)
    for _ in range(4):
        for chosen in torch.randperm(50, generator=draws).split(20):
            optimiser.zero_grad()
            rows, labels = torch.tensor(X)[chosen], torch.tensor(y)[chosen]
            nn.functional.cross_entropy(plain(rows), labels).backward()
            optimiser.step()
    game = adversarial_regularization(
        module, X, y, X, y, weight=0, epochs=4, batch_rows=20, learning_rate=0.01
    )
    assert np.all(np.isnan(game.gains))
    assert np.all(np.diff(game.losses) < 0)
    for regularized, two in zip(game.module.parameters(), plain.parameters(), strict=True):
        assert torch.equal(regularized, two)


def test_nothing_outside_changes_and_a_seed_decides():
    X, y = problem(40)
    module = Perceptron((8,))(50, 5)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.get_rng_state()

    def play(seed):
        return adversarial_regularization(module, X, y, X[:20], y[:20], epochs=2, random_state=seed)

    first, two, other = play(1), play(1), play(2)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert np.array_equal(first.predict_proba(X), two.predict_proba(X))
    assert not np.array_equal(first.predict_proba(X), other.predict_proba(X))
    assert first.predict_proba(X).sum(axis=1) == pytest.approx(np.ones(40))
    assert repr(first).startswith("AdversarialTraining(weight=1, 2 epochs")
    assert "no guarantee" in repr(first)


def test_an_inference_model_learns_what_there_is_to_learn():
    """Against a classifier that stands still, G comes to what the best h gets."""
    rng = np.random.default_rng(0)
    n = 200
    # f is certain of its members and of no other row.
    X = np.zeros((2 * n, 2))
    y = rng.integers(2, size=2 * n)
    X[np.arange(n), y[:n]] = 5.0
    module = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        module.weight.copy_(torch.eye(2))
    game = adversarial_regularization(
        module, X[:n], y[:n], X[n:], y[n:], weight=1e-9, learning_rate=1e-12, epochs=20
    )
    assert game.gains[0] < KNOWS_NOTHING / 2
    assert game.gains[-1] > -0.05
    same = adversarial_regularization(
        module, X[:n], y[:n], X[:n], y[:n], weight=1e-9, learning_rate=1e-12, epochs=20
    )
    assert same.gains[-1] == pytest.approx(KNOWS_NOTHING, abs=0.03)


def test_the_loss_threshold_falls_and_at_what_cost():
    X, y = problem(500)
    plain = AdversarialDefence(weight=0.0, reference=problem(250, seed=9), epochs=60)
    settings = {"reference": plain.reference, "epochs": 60}
    defences = [
        plain,
        AdversarialDefence(weight=1.0, **settings),
        AdversarialDefence(weight=30.0, through_reference=True, **settings),
    ]
    comparison = compare_defences(X, y, defences=defences, references=0, random_state=1)
    free, held, both = comparison.rows
    assert [row.limit for row in comparison.rows] == [None] * 3
    assert free.train.value > 0.97
    assert held.attack.over_rows.high < free.attack.over_rows.low
    assert held.test.value > free.test.value - 0.15
    # Both ways the attack falls further, and reference rows have taught something.
    assert both.attack.over_rows.high < held.attack.value
    assert both.test.value > free.test.value


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight": -1.0}, "weight=-1.0"),
        ({"module": "net"}, "module"),
        ({"module": nn.ReLU()}, "with parameters"),
        ({"module": nn.Linear(4, 2)}, "2 outputs"),
        ({"y": np.linspace(0, 1, 20)}, "integer"),
        ({"X": np.full((20, 4), np.nan)}, "NaN"),
        ({"inference": lambda outputs, labels: labels}, "inference"),
    ],
)
def test_refusals(settings, message):
    X, y = problem(20, classes=3, features=4)
    rows = {"X": X, "y": y, "X_reference": X, "y_reference": y}
    given = {"module": nn.Linear(4, 3), "epochs": 1, **rows}
    with pytest.raises(InvalidInput, match=message):
        adversarial_regularization(**given | settings)
    assert len(refuse_nan(adversarial_regularization, given)) == 7


def test_a_game_that_leaves_the_numbers_says_so():
    X, y = problem(20, classes=3, features=4)
    torch.manual_seed(0)
    with pytest.raises(ConvergenceError, match="learning_rate"):
        adversarial_regularization(nn.Linear(4, 3), X, y, X, y, learning_rate=3e37, epochs=20)


def test_an_inference_model_bears_a_certain_classifier():
    model = InferenceModel(3)
    outputs = torch.tensor([[1e6, 0.0, -1e6], [0.0, 0.0, 0.0]])
    answers = model(outputs, torch.tensor([2, 0]))
    assert answers.shape == (2,)
    assert bool(torch.isfinite(answers).all())


# -- DP-SGD ----------------------------------------------------------------------------------------


def test_dpsgd_keeps_its_guarantee_and_warns_of_nothing():
    X, y = problem(60, classes=2, features=3)
    defence = DPSGDDefence(epsilon=2.0, delta=1e-3, steps=10)
    guarantee = expost.risk.DPSGD(noise_multiplier=defence.noise_multiplier, steps=10)
    assert guarantee.epsilon(1e-3) == pytest.approx(2.0, rel=1e-3)
    assert guarantee.epsilon(1e-3) <= 2.0
    # One row exchanged: μ = 2√T/σ, and the best attack is right with Φ(μ/2).
    expected = ndtr(math.sqrt(10) / defence.noise_multiplier)
    assert defence.attack_limit(X, y) == pytest.approx(expected, rel=1e-6)
    first, two, other = (defence.trained(X, y, seed)(X) for seed in (1, 1, 2))
    assert np.array_equal(first, two)
    assert not np.array_equal(first, other)
    assert isinstance(defence, Defence)
    comparison = compare_defences(X, y, defences=[defence], references=2)
    assert comparison.rows[0].attack.over_rows.low < comparison.rows[0].limit


def test_defences_are_checked_when_they_are_made():
    for settings in ({"epsilon": -1.0}, {"epsilon": 1.0, "steps": 0}, {"epsilon": 1.0, "scale": 0}):
        with pytest.raises(InvalidInput):
            DPSGDDefence(**settings)
    with pytest.raises(InvalidInput, match="reference=None"):
        AdversarialDefence(weight=1.0)
    with pytest.raises(InvalidInput, match="hidden"):
        Perceptron((0,))
    X, y = problem(20)
    with pytest.raises(InvalidInput, match="number of each row's class"):
        AdversarialDefence(weight=0.0, epochs=1).trained(X, y.astype(str), 0)


def test_the_default_table_has_networks_where_there_are_reference_rows():
    X, y = problem(40, classes=2, features=3)
    settings = {"references": 0, "epsilons": (1.0,), "regularizations": ()}
    comparison = compare_defences(X, y, reference=problem(20, classes=2, features=3), **settings)
    assert [row.name for row in comparison.rows][3:] == [
        "DP-SGD, ε = 1, δ = 1e-05, linear",
        "no defence, 64 units, 100 epochs",
        "adversarial, λ = 1, 64 units, 100 epochs",
        "adversarial, both ways, λ = 10, 64 units, 100 epochs",
    ]
    without = compare_defences(X, y, **settings)
    assert [row.name for row in without.rows][3:] == ["DP-SGD, ε = 1, δ = 1e-05, linear"]
    assert any("reference=(X, y)" in notice for notice in without.notices)


# -- the table of docs/papers/defences.md -----------------------------------------------------------------


@pytest.mark.long
def test_the_table_of_the_page():
    figures = {}
    for count, comparison in measure_defences(Effort()).items():
        print(comparison, flush=True)
        figures[f"{count} references"] = [row.to_json() for row in comparison.rows]
        assert not limits_claim([comparison]).checks[0].value
        if not count:
            free, held = comparison[PLAIN.name], comparison.rows[-1]
            assert held.attack.over_rows.high < free.attack.over_rows.low
    record(
        "defences",
        command=".venv-torch/bin/python -m pytest -m long -s"
        " papers/tests/with_torch/test_adversarial.py",
        seed=0,
        figures=figures,
    )
