"""diffprivlib's LogisticRegression: its losses against brute-force densities, and its guarantee.

diffprivlib cannot be imported here, so a stand-in of its name is fitted as its documentation and
source say; ``papers/diffprivlib_066/finding.py`` checks the same against the real one.
"""

import itertools
import json
import math
import sys
import types

import numpy as np
import pytest
from scipy import optimize
from scipy.integrate import quad
from scipy.special import expit
from sklearn import linear_model
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import expost
from expost import PrivateLogisticRegression
from expost.errors import InvalidInput, SeededReleaseWarning, WrongRows
from expost.report import document_of
from papers.diffprivlib_066.reading import profile, read_private

N = 40
RNG = np.random.default_rng(11)
SHAPE = RNG.normal(size=(N, 3)) * [1.0, 2.0, 0.3]
SHAPE /= np.linalg.norm(SHAPE, axis=1).max()
Y = np.where(SHAPE @ [1.0, 2.0, -1.0] + 0.3 * RNG.normal(size=N) > 0, "in", "out")
THREE = np.array(["a", "b", "c"])[RNG.integers(3, size=N)]


class LogisticRegression(linear_model.LogisticRegression):
    """What diffprivlib 0.6.6 does, naively: q for q², an intercept that is not penalised."""

    __module__ = "diffprivlib.models.logistic_regression"

    def __init__(self, *, epsilon=1.0, data_norm=None, tol=1e-4, C=1.0, fit_intercept=True, max_iter=100, random_state=None):  # fmt: skip
        super().__init__(tol=tol, C=C, fit_intercept=fit_intercept, max_iter=max_iter, random_state=random_state)  # fmt: skip
        self.epsilon, self.data_norm = epsilon, data_norm

    def fit(self, X, y, *, noise=None, rng=None, exact=True):
        """``noise`` (K, d) or drawn; ``exact``: polished by Newton, else L-BFGS-B as it stops."""
        self.classes_ = np.unique(y)
        if self.data_norm is None:
            self.data_norm = np.linalg.norm(X, axis=1).max()
        rows = naive_rows(X, self.data_norm, self.fit_intercept)
        several = len(self.classes_) > 2
        positives = self.classes_ if several else self.classes_[1:]
        penalty, scale = naive_constants(self, len(positives), rows.shape[1])
        if noise is None:
            noise = np.array([naive_noise(rng, rows, penalty, scale, y == k) for k in positives])
        self.noise, self.n_iter_, thetas = noise, [], []
        for b, positive in zip(noise, positives, strict=True):
            s = np.where(y == positive, 1.0, -1.0)
            theta, steps = naive_minimiser(rows, s, penalty, b, self.tol, self.max_iter, exact)
            thetas.append(theta)
            self.n_iter_.append(steps)
        self.thetas = np.array(thetas)
        self.n_iter_ = np.array(self.n_iter_, dtype=np.int32)
        self.coef_ = self.thetas[:, : X.shape[1]]
        self.intercept_ = self.thetas[:, -1] if self.fit_intercept else np.zeros(len(positives))
        return self


def naive_rows(X, data_norm, intercept):
    clipped = np.array([x * min(1.0, data_norm / max(np.linalg.norm(x), 1e-300)) for x in X])
    return np.column_stack([clipped, np.ones(len(X))]) if intercept else clipped


def naive_constants(model, count, dimension):
    """Return the penalty of each coordinate of the sum, and the scale of the Gamma law of ∥b∥."""
    q = math.sqrt(model.data_norm**2 + 1) if model.fit_intercept else model.data_norm
    epsilon = model.epsilon / count
    left = epsilon - 2 * math.log(1 + 0.25 * q * model.C)
    penalty = np.full(dimension, 1 / model.C)
    if model.fit_intercept:
        penalty[-1] = 0.0
    if left <= 0:
        penalty += 0.25 * q / (math.exp(epsilon / 4) - 1) - 1 / model.C
        left = epsilon / 2
    return penalty, 2 * q / left


def naive_noise(rng, rows, penalty, scale, positive):
    """b, but none that would leave no minimiser, or one far away."""
    while True:
        b = rng.normal(size=rows.shape[1])
        b *= rng.gamma(rows.shape[1], scale) / np.linalg.norm(b)
        if penalty[-1] > 0 or abs(b[-1]) < 0.7 * min(positive.sum(), (~positive).sum()):
            return b


def naive_gradient(rows, s, penalty, theta):
    return (-s * expit(-s * (rows @ theta))) @ rows + penalty * theta


def naive_hessian(rows, penalty, theta):
    z = rows @ theta
    return (rows * (expit(z) * expit(-z))[:, None]).T @ rows + np.diag(penalty)


def naive_minimiser(rows, s, penalty, b, tol, max_iter, exact):
    n = len(rows)

    def averaged(theta):
        value = np.logaddexp(0, -s * (rows @ theta)).sum() + penalty @ theta**2 / 2 + b @ theta
        return value / n, (naive_gradient(rows, s, penalty, theta) + b) / n

    start = np.zeros(rows.shape[1])
    theta, _, info = optimize.fmin_l_bfgs_b(averaged, start, factr=64, pgtol=tol, maxiter=max_iter)
    for _ in range(60 if exact else 0):
        step = np.linalg.solve(
            naive_hessian(rows, penalty, theta), naive_gradient(rows, s, penalty, theta) + b
        )
        theta = theta - step / max(1.0, np.max(np.abs(rows @ step)))
    return theta, info["nit"]


def log_density(rows, s, penalty, scale, theta):
    """log p(θ ∣ D), up to what does not depend on D: that of b = −∇J and the Jacobian det H."""
    noise = np.linalg.norm(naive_gradient(rows, s, penalty, theta)) / scale
    return np.linalg.slogdet(naive_hessian(rows, penalty, theta))[1] - noise


def brute_force(model, X, y, thetas):
    """(n,) log p(θ ∣ D) − log p(θ ∣ D₋ᵢ), densities of the rows as they are, unscaled."""
    rows = naive_rows(X, model.data_norm, model.fit_intercept)
    penalty, scale = naive_constants(model, len(thetas), rows.shape[1])
    positives = model.classes_ if len(model.classes_) > 2 else model.classes_[1:]
    total = np.zeros(len(X))
    for theta, positive in zip(thetas, positives, strict=True):
        s = np.where(y == positive, 1.0, -1.0)
        whole = log_density(rows, s, penalty, scale, theta)
        for i in range(len(X)):
            rest = np.delete(rows, i, axis=0), np.delete(s, i)
            total[i] += whole - log_density(*rest, penalty, scale, theta)
    return total


CASES = {
    "plain": ({"data_norm": 1.0}, Y),
    "much noise": ({"data_norm": 1.0, "epsilon": 0.3}, Y),
    "little noise": ({"data_norm": 1.0, "epsilon": 20.0, "C": 0.1}, Y),
    "no intercept": ({"data_norm": 1.0, "fit_intercept": False, "C": 3.0}, Y),
    "clipped": ({"data_norm": 0.4, "epsilon": 3.0, "C": 0.2}, Y),
    "q = 12": ({"data_norm": 12.0, "epsilon": 3.0}, Y),
    "q = 12, no intercept": ({"data_norm": 12.0, "fit_intercept": False}, Y),
    "q = 100": ({"data_norm": 100.0, "epsilon": 2.0}, Y),
    "q = 100, no intercept": ({"data_norm": 100.0, "epsilon": 30.0, "fit_intercept": False}, Y),
    "three classes": ({"data_norm": 12.0, "epsilon": 6.0}, THREE),
}


def rows_of(settings):
    """Rows whose longest is ``data_norm`` long, but for the case that clips."""
    return SHAPE * max(settings["data_norm"], 1.0) * 0.99


@pytest.mark.parametrize("name", CASES)
def test_losses_are_ratios_of_densities(name):
    settings, y = CASES[name]
    X, rng = rows_of(settings), np.random.default_rng(3)
    for _ in range(3):
        model = LogisticRegression(**settings, tol=0.0).fit(X, y, rng=rng)
        result = profile(model, X, y)
        expected = brute_force(model, X, y, model.thetas)
        assert np.max(np.abs(result.loss - expected)) < 1e-9 * (1 + np.max(np.abs(expected)))
        assert np.all(
            (result.loss_low <= expected + 1e-10) & (expected <= result.loss_high + 1e-10)
        )
        assert result.worst_case == model.epsilon
        # Power: another ε would be seen.
        wrong = LogisticRegression(**settings | {"epsilon": 1.2 * model.epsilon})
        wrong.classes_ = model.classes_
        assert np.max(np.abs(result.loss - brute_force(wrong, X, y, model.thetas))) > 1e-5


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tol", [1e-3, 1e-4, 1e-7, 1e-14])
def test_intervals_hold_the_loss_of_the_minimiser_behind_a_stopped_solver(name, tol):
    settings, y = CASES[name]
    X, rng = rows_of(settings), np.random.default_rng(5)
    widths = []
    for _ in range(4):
        model = LogisticRegression(**settings, tol=tol, max_iter=1000).fit(
            X, y, rng=rng, exact=False
        )
        stopped = model.thetas.copy()
        behind = LogisticRegression(**settings, tol=tol).fit(X, y, noise=model.noise).thetas
        result = profile(model, X, y)
        expected = brute_force(model, X, y, behind)
        # The naive densities subtract norms.
        slack = 1e-10 * (1 + np.linalg.norm(model.noise))
        assert np.all(result.loss_low - slack <= expected)
        assert np.all(expected <= result.loss_high + slack)
        assert np.array_equal(stopped, model.thetas)
        widths.append(np.max(result.loss_high - result.loss_low))
    # The intervals say something, and shrink with tol.
    if tol < 1e-3:
        assert np.median(widths) < (0.5 if tol == 1e-4 else 1e-2)


def test_intervals_without_the_residual_would_fail():
    """Power: the loss of θ as if it were exact is off by more than rounding."""
    settings, y = CASES["q = 12"]
    X, rng = rows_of(settings), np.random.default_rng(5)
    model = LogisticRegression(**settings, tol=1e-3).fit(X, y, rng=rng, exact=False)
    behind = LogisticRegression(**settings).fit(X, y, noise=model.noise).thetas
    assert np.max(np.abs(profile(model, X, y).loss - brute_force(model, X, y, behind))) > 1e-4


def test_densities_integrate_to_one():
    """d = 1: ∫ p(θ ∣ D) e^(−loss) dθ = 1 = ∫ p(θ ∣ D) dθ; a wrong scale or determinant is seen."""
    X, y = np.linspace(-12, 12, 9)[:, None], np.array([0, 1, 0, 0, 1, 0, 1, 1, 1])
    model = LogisticRegression(data_norm=12.0, fit_intercept=False, epsilon=2.0)
    model.fit(X, y, noise=np.array([[0.7]]))
    penalty, scale = naive_constants(model, 1, 1)
    s = np.where(y == 1, 1.0, -1.0)

    def integral(row=None):
        def density(theta):
            theta = np.array([theta])
            whole = math.exp(log_density(X, s, penalty, scale, theta)) / (2 * scale)
            if row is None:
                return whole
            return whole * math.exp(
                -read_private(model, X, y).fits[0].exact_losses(12 * theta)[row]
            )

        edges = [-60, -6, -1, -0.2, 0, 0.2, 1, 6, 60]
        pairs = itertools.pairwise(edges)
        return sum(quad(density, a, b, limit=80, epsrel=1e-6)[0] for a, b in pairs)

    assert integral() == pytest.approx(1, abs=1e-4)
    assert integral(8) == pytest.approx(1, abs=1e-4)
    assert integral(4) == pytest.approx(1, abs=1e-4)


# The guarantee.


def lonely(q, rows=30):
    """Rows along the first axis, and one alone along the second: only the penalty holds it."""
    X = np.zeros((rows, 2))
    X[:, 0] = q * np.linspace(-1, 1, rows)
    X[-1] = [0.0, q]
    y = np.where(X[:, 0] + X[:, 1] > 0, 1, 0)
    return X, y


@pytest.mark.parametrize(("q", "epsilon"), [(12.0, 1.0), (12.0, 2.0), (100.0, 1.0), (100.0, 3.0)])
def test_an_exceeded_guarantee_is_the_verdict(q, epsilon):
    """A noise that leaves the lonely row's predictor near 0, where f″ is 1/4."""
    X, y = lonely(q)
    model = LogisticRegression(data_norm=q, epsilon=epsilon, fit_intercept=False, tol=1e-8)
    model.fit(X, y, noise=np.array([[q, q / 2]]))
    result = profile(model, X, y)
    expected = brute_force(model, X, y, model.thetas)
    assert abs(expected[-1]) > epsilon
    assert result.guarantee_exceeded
    assert result.rows_past_guarantee == 1
    first = str(result).partition("\n")[0]
    assert f"exceeded: 1 of {len(X)} rows" in first
    unit = "nat" if epsilon == 1 else "nats"
    assert f"more than the {epsilon:g} {unit} " in first
    document = document_of(result)
    assert (document.verdict.tone, document.verdict.priority) == ("bad", 100)
    assert document.alerts[0].severity == "problem"
    assert first.partition(":")[0] in result._repr_html_().partition("</style>")[2]
    assert json.loads(result.to_json())["guarantee_exceeded"] is True
    assert result.ranking[0] == len(X) - 1
    assert "q²/4" in result.notices[0]
    private = read_private(model, X, y)
    assert private.held >= np.max(np.abs(expected))


@pytest.mark.parametrize(("q", "epsilon"), [(12.0, 1.0), (12.0, 2.0), (100.0, 1.0), (100.0, 3.0)])
@pytest.mark.parametrize("calibration", ["tight", "published"])
def test_ours_keeps_its_guarantee_on_the_same_rows(q, epsilon, calibration):
    """Rows of norm q: the Hessian is bounded by q²/4, and no θ whatever passes ε."""
    X, y = lonely(q)
    ours = PrivateLogisticRegression(
        epsilon=epsilon,
        mechanism="objective",
        noise="laplace",
        calibration=calibration,
        data_norm=q,
        classes=(0, 1),
        fit_intercept=False,
        regularization=1 / len(X),
        random_state=0,
    )
    with pytest.warns(SeededReleaseWarning):
        ours.fit(X, y)
    result = expost.profile(ours, X, y)
    assert not result.guarantee_exceeded
    mechanism, problem = ours.release_.mechanism, ours.release_.problem(X, y)
    # The same noise that breaks the other's guarantee, and twenty times less of it.
    for noise in (np.array([1.0, 0.5]), np.array([0.05, 0.5]), np.array([0.0, -0.5])):
        theta = mechanism.minimiser(problem, noise).theta
        rows, s = problem.held.X, problem.held.y
        penalty, scale = np.full(2, mechanism.penalty_sum), 1 / mechanism.law.rate
        whole = log_density(rows, s, penalty, scale, theta)
        for i in range(len(X)):
            rest = np.delete(rows, i, axis=0), np.delete(s, i)
            assert abs(whole - log_density(*rest, penalty, scale, theta)) <= epsilon


@pytest.mark.parametrize("name", CASES)
def test_a_guarantee_that_holds_is_not_called_exceeded(name):
    settings, y = CASES[name]
    X, rng = rows_of(settings), np.random.default_rng(8)
    for _ in range(3):
        model = LogisticRegression(**settings, tol=1e-8).fit(X, y, rng=rng)
        expected = np.max(np.abs(brute_force(model, X, y, model.thetas)))
        result = profile(model, X, y)
        assert result.guarantee_exceeded == (expected > model.epsilon)
        private = read_private(model, X, y)
        assert expected <= private.held
    assert str(result).startswith("The guarantee is exceeded") == result.guarantee_exceeded


def test_what_is_held_within_the_guarantee_is_not_complained_of():
    """q ≤ 1 without an intercept: q/4 is no less than q²/4, and ε holds."""
    model = LogisticRegression(data_norm=1.0, fit_intercept=False).fit(
        SHAPE, Y, rng=np.random.default_rng(0)
    )
    result = profile(model, SHAPE, Y)
    assert read_private(model, SHAPE, Y).held <= 1.0
    assert not any("q²/4" in notice for notice in result.notices)
    assert not result.guarantee_exceeded
    with_intercept = LogisticRegression(data_norm=1.0, epsilon=9.0).fit(
        SHAPE, Y, rng=np.random.default_rng(0)
    )
    assert read_private(with_intercept, SHAPE, Y).held == math.inf
    assert "not bounded" in profile(with_intercept, SHAPE, Y).notices[0]


def test_a_width_that_straddles_the_guarantee_is_no_proof():
    """A solver that used up its steps: the loss passes ε, its interval does not prove it."""
    X, y = lonely(12.0)
    model = LogisticRegression(data_norm=12.0, fit_intercept=False, tol=1e-8)
    model.fit(X, y, noise=np.array([[12.0, 6.0]]))
    assert profile(model, X, y).guarantee_exceeded
    model.n_iter_ = np.array([model.max_iter])
    result = profile(model, X, y)
    assert result.exposure[-1] > result.worst_case
    assert not result.guarantee_exceeded
    assert any("max_iter=100" in notice for notice in result.notices)
    held = read_private(model, X, y).held
    assert np.all((result.loss_low >= -held) & (result.loss_high <= held * (1 + 1e-9)))


def test_ours_with_a_probability_is_never_called_broken():
    with pytest.warns(SeededReleaseWarning):
        model = PrivateLogisticRegression(
            epsilon=1.0, delta=1e-5, mechanism="output", noise="gaussian", regularization=1.0, data_norm=1.0, classes=("in", "out"), random_state=1
        ).fit(SHAPE, Y)  # fmt: skip
    result = expost.profile(model, SHAPE, Y)
    losses = result.losses
    wide = type(losses)(**{**vars(losses), "low": losses.low + 5, "high": losses.high + 5})
    again = type(result)(losses=wide, description="", rows=N)
    assert not again.guarantee_exceeded
    wide = type(losses)(**{**vars(wide), "worst_case_passed": 0.0})
    assert type(result)(losses=wide, description="", rows=N).guarantee_exceeded


# The views.


def test_typical_exposures_are_means_over_models():
    settings = {"data_norm": 1.0, "epsilon": 6.0, "fit_intercept": False}
    X, rng = SHAPE, np.random.default_rng(2)
    draws = [LogisticRegression(**settings).fit(X, Y, rng=rng) for _ in range(225)]
    exposures = np.abs([brute_force(model, X, Y, model.thetas) for model in draws])
    result = profile(draws[0], X, Y)
    error = np.hypot(result.expected_error, exposures.std(axis=0) / 15)
    assert np.max(np.abs(result.expected - exposures.mean(axis=0)) / error) < 4.5
    assert np.max(np.abs(1.5 * result.expected - exposures.mean(axis=0)) / error) > 4.5
    (panel,) = document_of(result).figures["profile"].panels
    (drawn,) = (line for line in panel.lines if line.name == "expected over releases")
    np.testing.assert_allclose(np.sort(drawn.y), np.sort(expit(result.expected)), rtol=1e-9)


def test_a_noise_past_the_rows_of_one_class_leaves_no_minimiser():
    X, y = SHAPE[:12], np.arange(12) % 2
    settings = {"data_norm": 1.0, "epsilon": 0.4, "C": 0.1}
    model = LogisticRegression(**settings).fit(X, y, noise=np.array([[2.0, 1.0, 0.0, 3.0]]))
    result = profile(model, X, y)
    (notice,) = [notice for notice in result.notices if "no minimiser" in notice]
    rng, scale = np.random.default_rng(1), naive_constants(model, 1, 4)[1]
    direction = rng.normal(size=(100_000, 4))
    noise = direction[:, -1] / np.linalg.norm(direction, axis=1) * rng.gamma(4, scale, 100_000)
    share = float(notice.partition(" in ")[2].partition("%")[0]) / 100
    assert share == pytest.approx(np.mean(np.abs(noise) >= 6), abs=0.03)
    assert np.all(np.isfinite(result.expected))
    # One that ran off is refused.
    model.intercept_ = np.array([4e3])
    with pytest.raises(InvalidInput, match="run off"):
        profile(model, X, y)


def test_what_weakens_the_guarantee_is_noticed():
    def profiled(**settings):
        model = LogisticRegression(epsilon=5.0, **settings)
        return profile(model.fit(SHAPE, Y, rng=np.random.default_rng(0)), SHAPE, Y)

    weak, text = profiled(random_state=3), " ".join(profiled(data_norm=1.5).notices)
    for word in ("longest row", "seed"):
        assert word in " ".join(weak.notices)
        assert word not in text
    # A seed, or a constant read from the data, is no reason to share the model.
    assert document_of(weak).verdict.tone != "good"


def test_pipelines_ids_and_subclasses():
    class Mine(LogisticRegression):
        pass

    double = FunctionTransformer(lambda X: 2 * X)
    model = Mine(data_norm=2.0, epsilon=4.0).fit(2 * SHAPE, Y, rng=np.random.default_rng(0))
    pipeline = make_pipeline(double, model)
    result = profile(pipeline, SHAPE, Y, ids=[f"p{i}" for i in range(N)])
    assert np.array_equal(result.loss, profile(model, 2 * SHAPE, Y).loss)
    assert result.key(0) == "p0"


def test_labels_of_any_order_and_permuted_rows():
    model = LogisticRegression(data_norm=1.0, epsilon=4.0).fit(
        SHAPE, Y, rng=np.random.default_rng(0)
    )
    order = np.random.default_rng(0).permutation(N)
    assert np.allclose(
        profile(model, SHAPE[order], Y[order]).loss,
        profile(model, SHAPE, Y).loss[order],
        atol=1e-12,
    )


# Refusals.


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    return LogisticRegression(data_norm=1.0, epsilon=8.0, C=0.1).fit(SHAPE, Y, rng=rng)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda X, y: (X * 20, np.roll(y, 3)), WrongRows),
        (lambda X, y: (X, np.where(y == "in", "out", "in")), WrongRows),
        (lambda X, y: (np.tile(X, (30, 1)), np.tile(y, 30)), WrongRows),
        (lambda X, y: (X[:, :2], y), InvalidInput),
        (lambda X, y: (X, y[:-1]), InvalidInput),
        (lambda X, y: (X, np.full(N, "else")), InvalidInput),
        (lambda X, y: (X * np.nan, y), InvalidInput),
    ],
    ids=["others", "labels turned", "too many", "narrow", "short", "unknown labels", "nan"],
)
def test_rows_that_did_not_make_the_model_are_refused(fitted, change, error):
    little = LogisticRegression(data_norm=1.0, epsilon=200.0, C=1.0)
    little.fit(SHAPE, Y, rng=np.random.default_rng(0))
    with pytest.raises(error):
        profile(little, *change(SHAPE, Y))


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("epsilon", 0.0, "epsilon"),
        ("epsilon", math.nan, "epsilon"),
        ("data_norm", -1.0, "data_norm"),
        ("C", math.inf, "C="),
        ("C", 1e-60, "C="),
        ("tol", -1.0, "tol"),
        ("tol", math.nan, "tol"),
        ("coef_", np.array([[np.nan, 0.0, 0.0]]), "finite"),
        ("n_iter_", None, "not fitted"),
    ],
)
def test_models_that_cannot_be_read_are_refused(fitted, name, value, word):
    broken = LogisticRegression()
    vars(broken).update(vars(fitted))
    setattr(broken, name, value)
    with pytest.raises(InvalidInput, match=word):
        profile(broken, SHAPE, Y)


@pytest.mark.parametrize(
    ("version", "known"), [("0.6.6", True), ("0.6.5", False), ("0.7.0", False)]
)
def test_another_version_is_refused(fitted, monkeypatch, version, known):
    module = types.ModuleType("diffprivlib")
    module.__version__ = version
    monkeypatch.setitem(sys.modules, "diffprivlib", module)
    if known:
        assert not any("version" in notice for notice in profile(fitted, SHAPE, Y).notices)
    else:
        with pytest.raises(InvalidInput, match=version):
            profile(fitted, SHAPE, Y)


def test_without_noise_there_is_nothing_to_read(fitted):
    model = LogisticRegression()
    vars(model).update(vars(fitted) | {"epsilon": math.inf})
    assert read_private(model, SHAPE, Y) is None
    with pytest.raises(InvalidInput, match="finite epsilon"):
        profile(model, SHAPE, Y)


def test_a_class_of_the_name_alone_is_not_taken_for_it():
    model = linear_model.LogisticRegression(tol=1e-9).fit(SHAPE, Y)
    assert read_private(model, SHAPE, Y) is None
