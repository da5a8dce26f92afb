"""Models without noise: certified shifts and leave-one-out predictions against naive refits."""

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import log_loss
from typer.testing import CliRunner

from expost import profile
from expost.cli.app import app
from expost.errors import InvalidInput, WrongRows
from expost.glm import Objective, minimise
from expost.jobs.profile import run
from expost.jobs.requests import ProfileRequest
from expost.losses import HuberHinge, Logistic, Squared
from expost.neighbouring import influence
from expost.neighbouring.influence import Influence
from recorded_progress import RecordedProgress

N = 80
RNG = np.random.default_rng(11)
# Two columns of numbers that are not centred, a level of three rows, and one of a single row.
X = np.column_stack(
    [
        RNG.normal(loc=[1.0, -3.0], scale=[2.0, 0.5], size=(N, 2)),
        np.arange(N) < 3,
        np.arange(N) == 7,
    ]
)
Y = np.where(X @ np.array([1.0, 2.0, -1.0, 1.0]) + 5 + RNG.normal(size=N) > 0, 1, 0)
TARGET = X @ np.array([2.0, -1.0, 0.5, 3.0]) + RNG.normal(size=N) + 100.0

MODELS = {
    "logistic": (LogisticRegression(), Y),
    "logistic, weak penalty": (LogisticRegression(C=50.0, max_iter=5000), Y),
    "logistic, no intercept": (LogisticRegression(C=3.0, fit_intercept=False), Y),
    "ridge": (Ridge(alpha=2.5), TARGET),
    "ridge classifier": (RidgeClassifier(alpha=0.5), Y),
}


def naive(X, y, total, loss, penalised):
    """Minimise Σf + (total/2)∥w∥² by Newton's method in the plainest form, to 1e-12."""
    theta = np.zeros(X.shape[1])
    for _ in range(200):
        z = X @ theta
        if loss == "logistic":
            slope, curvature = -y * expit(-y * z), expit(z) * expit(-z)
        else:
            slope, curvature = z - y, np.ones(len(y))
        gradient = X.T @ slope + total * penalised * theta
        hessian = (X.T * curvature) @ X + np.diag(total * penalised)
        step = np.linalg.solve(hessian, gradient)
        # Damped while it is long: the logistic loss is self-concordant.
        theta = theta - step / (1 + max(0.0, np.max(np.abs(X @ step)) - 1))
        if np.linalg.norm(step) <= 1e-14 * (1 + np.linalg.norm(theta)):
            break
    return theta


def refits(model, y):
    """The rows, A(D) and A(D₋ᵢ) of each row, by Newton's method on explicit arrays."""
    is_logistic = isinstance(model, LogisticRegression)
    loss = "logistic" if is_logistic else "squared"
    total = 1 / model.C if is_logistic else model.alpha
    target = y if isinstance(model, Ridge) else np.where(y == 1, 1.0, -1.0)
    rows = np.column_stack([X, np.ones(N)]) if model.fit_intercept else X.astype(float)
    penalised = np.ones(rows.shape[1])
    penalised[4:] = 0
    base = naive(rows, target, total, loss, penalised)
    each = [
        naive(np.delete(rows, i, axis=0), np.delete(target, i), total, loss, penalised)
        for i in range(N)
    ]
    return rows, base, np.array(each)


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    model, y = MODELS[request.param]
    return request.param, model.fit(X, y), y, *refits(model, y)


@pytest.mark.parametrize("top", [0, 5, N])
def test_every_interval_holds_the_refit(fitted, top):
    name, model, y, rows, base, each = fitted
    result = profile(model, X, y, top=top)
    shift = each - base
    apart = np.linalg.norm(result.neighbours.shift - shift, axis=1)
    assert np.all(apart <= result.distance_error + 1e-11)
    assert np.all(np.abs(result.distance - np.linalg.norm(shift, axis=1)) <= apart + 1e-12)
    predicted = np.einsum("ij,ij->i", rows, each)
    link = expit if "logistic" in name else np.asarray
    slack = 1e-11 * (1 + np.abs(predicted))
    assert np.all(result.prediction_without_low <= link(predicted) + slack)
    assert np.all(link(predicted) - slack <= result.prediction_without_high)
    assert np.allclose(result.prediction, link(rows @ base), atol=1e-10)


def test_the_intervals_have_power(fitted):
    """A wrong sign, another penalty, and intervals of a hundredth of the width are caught."""
    name, model, y, rows, base, each = fitted
    result = profile(model, X, y, top=0)
    known = np.isfinite(result.distance_error)
    assert np.count_nonzero(known) >= (0.75 if "weak" in name else 0.9) * N
    own = result.losses.predictors
    mirrored = own.value - (own.without - own.value)
    outside = np.abs(mirrored - np.einsum("ij,ij->i", rows, each)) > own.without_error
    assert np.count_nonzero(outside) >= 0.7 * N
    if "logistic" in name:
        apart = np.linalg.norm(result.neighbours.shift - (each - base), axis=1)
        assert np.any(apart[known] > result.distance_error[known] / 100)
    else:
        assert np.all(result.distance_error <= 1e-9 * (1 + result.distance))


def test_the_top_rows_are_exact_and_ranked(fitted):
    _, model, y, _, base, each = fitted
    result = profile(model, X, y, top=7)
    distance = np.linalg.norm(each - base, axis=1)
    assert result.top.is_certified
    assert result.ranking[:7].tolist() == np.argsort(-distance)[:7].tolist()
    first = result.ranking[:7]
    assert np.all(result.distance_error[first] <= 1e-6 * result.distance[first] + 1e-10)
    assert np.allclose(result.distance[first], distance[first], rtol=1e-6)


def test_the_scores_are_those_of_leave_one_out_cross_validation(fitted):
    name, model, y, rows, base, each = fitted
    left_out = profile(model, X, y).left_out
    with_row, without = rows @ base, np.einsum("ij,ij->i", rows, each)
    if name == "ridge":
        spread = np.sum((y - y.mean()) ** 2)
        scores = [1 - np.sum((z - y) ** 2) / spread for z in (with_row, without)]
        assert left_out.scores.score[:2] == pytest.approx(scores, rel=1e-6)
        assert left_out.flipped == 0
        return
    assert left_out.scores.score[:2] == pytest.approx(
        [np.mean((z > 0) == (y == 1)) for z in (with_row, without)]
    )
    flips = np.count_nonzero((with_row > 0) != (without > 0))
    assert left_out.flipped <= flips <= left_out.flipped + left_out.undecided
    if "logistic" in name:
        exact = log_loss(y, expit(without))
        worst, best = left_out.scores.log_loss[2:]
        assert best - 1e-12 <= exact <= worst + 1e-12
        assert worst - best <= 0.2 * abs(exact - left_out.scores.log_loss[0])
        change = np.max(np.abs(expit(without) - expit(with_row)))
        assert change <= left_out.change <= 1.5 * change


def test_small_problems_of_every_kind():
    """Separable, collinear and tiny problems at weak and strong penalties: no interval fails."""
    finite = total_rows = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(4, 25)), int(rng.integers(1, 5))
        rows = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-1, 2, size=d)
        if seed % 3 == 0:
            rows[:, -1] = rng.random(n) < 0.2
        y = np.where(rows[:, 0] + (seed % 2) * rng.normal(size=n) > 0, 1.0, -1.0)
        penalty = np.full(d, 10.0 ** rng.integers(-3, 2))
        if seed % 5 == 0 and abs(np.sum(y)) < n - 4:
            rows, penalty = np.column_stack([rows, np.ones(n)]), np.append(penalty, 0.0)
        problem = Objective.of(X=rows, y=y, loss=Logistic(), penalty=penalty / n)
        base = minimise(problem, tolerance=problem.natural_tolerance, require=False)
        near, own = problem.rows.on_first(
            Influence.of(problem, base, keep_total_penalty=True).refined(problem, top=seed % 4), n
        )
        for i in range(n):
            if penalty[-1] == 0 and len(set(np.delete(y, i))) < 2:
                continue
            after = naive(np.delete(rows, i, axis=0), np.delete(y, i), 1.0, "logistic", penalty)
            off = np.linalg.norm(near.shift[i] - (after - base.theta))
            assert off <= near.error_bound[i] + 1e-9 * (1 + np.linalg.norm(after)), seed
            gap = abs(rows[i] @ after - own.without[i])
            scale = np.linalg.norm(rows[i]) * np.linalg.norm(after)
            assert gap <= own.without_error[i] + 1e-9 * (1 + scale), seed
            total_rows += 1
            finite += bool(np.isfinite(own.without_error[i]))
    assert finite >= 0.7 * total_rows


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(), Squared(label_bound=1.0)])
def test_a_kept_average_penalty(loss):
    """ε = ∞ of expost keeps Λ, so that the penalty pulls too; the hinge has no self-concordance."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(50, 3))
    rows /= np.linalg.norm(rows, axis=1).max() * 1.01
    y = np.where(rows[:, 0] + 0.2 * rng.normal(size=50) > 0, 1.0, -1.0)
    problem = Objective.of(X=rows, y=y, loss=loss, penalty=0.05)
    near, own = problem.rows.on_first(Influence.of(problem, minimise(problem)), 50)
    for i in range(50):
        fewer = Objective.of(
            X=np.delete(rows, i, axis=0), y=np.delete(y, i), loss=loss, penalty=0.05
        )
        after = minimise(fewer, tolerance=1e-13, require=False).theta
        off = np.linalg.norm(near.shift[i] + near.base - after)
        assert off <= near.error_bound[i] + 1e-10
        assert abs(rows[i] @ after - own.without[i]) <= own.without_error[i] + 1e-10


def test_a_limit_that_is_reached_is_stated(monkeypatch):
    monkeypatch.setattr(influence, "_LIMIT", 1)
    monkeypatch.setattr(influence, "_TOGETHER", 1)
    model, y = MODELS["logistic, weak penalty"]
    result = profile(model.fit(X, y), X, y, top=30)
    assert result.top.refined == 30
    assert result.top.certified < 30
    assert "Only the first" in str(result)
    # Those that are certified are the first ones of the refits.
    _, base, each = refits(model, y)
    first = np.argsort(-np.linalg.norm(each - base, axis=1))[: result.top.certified]
    assert set(first) <= set(result.ranking[:30].tolist())


def unscaled():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(400, 4)) * [1.0, 0.05, 1.0, 0.001]
    y = (rows @ [1, 20, -1, 800] + rng.logistic(size=400) > 0).astype(int)
    return rows, y


def test_a_model_that_stopped_early_is_profiled():
    rows, y = unscaled()
    model = LogisticRegression(C=1000.0, tol=1e-3).fit(rows, y)
    result = profile(model, rows, y)
    with_ones = np.column_stack([rows, np.ones(400)])
    labels, penalised = np.where(y == 1, 1.0, -1.0), np.array([1.0, 1, 1, 1, 0])
    base = naive(with_ones, labels, 1e-3, "logistic", penalised)
    distance = np.linalg.norm(np.append(model.coef_[0], model.intercept_) - base)
    # More than a twentieth of its norm: refused before.
    assert distance > 0.05 * (1 + np.linalg.norm(base))
    assert distance <= result.model_distance <= 1.0001 * distance
    (early,) = (notice for notice in result.notices if "stopped early" in notice)
    assert "smaller tol" in early
    # Shifts and predictions are those of the minimiser, not of the model.
    for i in result.ranking[:3]:
        after = naive(
            np.delete(with_ones, i, axis=0), np.delete(labels, i), 1e-3, "logistic", penalised
        )
        assert np.linalg.norm(after - base) == pytest.approx(result.distance[i], rel=1e-5)
        assert expit(with_ones[i] @ after) == pytest.approx(result.prediction_without[i], rel=1e-6)


def test_a_model_that_is_too_far_is_refused_with_its_distance():
    rows, y = unscaled()
    with pytest.warns(UserWarning, match="lbfgs failed"):
        model = LogisticRegression(C=1000.0, max_iter=3).fit(rows, y)
    with pytest.raises(WrongRows, match=r"from the minimiser.*tol.*max_iter"):
        profile(model, rows, y)
    # A gradient within tol proves the rows; a large tol proves nothing.
    model = LogisticRegression(C=1000.0, tol=1e-3).fit(rows, y)
    model.tol = 10.0
    with pytest.raises(WrongRows):
        profile(model, rows[::-1], y)


def test_converged_models_have_no_notice_of_it():
    model, y = MODELS["ridge"]
    result = profile(model.fit(X, y), X, y)
    assert not any("stopped" in notice for notice in result.notices)
    assert result.model_distance <= 1e-9


def test_progress_is_reported():
    model, y = MODELS["logistic"]
    recorded = RecordedProgress()
    profile(model.fit(X, y), X, y, top=N, progress=recorded)
    passes = [each for phase in recorded.passes.values() for each in phase]
    assert sum(each[0] for each in passes) == N
    assert all(sum(each[1:]) == each[0] for each in passes)


@pytest.mark.parametrize("top", [-1, 2.5, "many"])
def test_a_wrong_top_is_refused(top):
    model, y = MODELS["logistic"]
    with pytest.raises(InvalidInput, match="top"):
        profile(model.fit(X, y), X, y, top=top)


def test_persons_still_leave_together():
    model, y = MODELS["logistic"]
    result = profile(model.fit(X, y), X, y, persons=np.arange(N) // 2)
    assert len(result) == N // 2
    assert result.left_out is None
    with pytest.raises(InvalidInput, match="one at a time"):
        _ = result.prediction_without
    alone = profile(model, X, y, persons=np.arange(N))
    assert np.array_equal(alone.distance, profile(model, X, y).distance)


# -- tables and the command ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("noiseless") / "people.csv"
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    frame["city"] = np.where(X[:, 2] > 0, "Oslo", np.where(X[:, 3] > 0, "Rome", "Paris"))
    frame["label"] = np.where(Y == 1, "yes", "no")
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def outcomes(table):
    """The same command in memory and in blocks."""

    def made(name, **options):
        out = table.parent / name
        return run(
            ProfileRequest(source=table, target="label", epsilon=np.inf, top=6, out=out, **options)
        )

    return made("held"), made("blocks", engine="local")


def test_rows_in_blocks_have_the_same_figures(outcomes):
    held, blocks = outcomes
    parts = pq.read_table(blocks.files["table"]).to_pandas()
    frame = held.profile.to_frame()
    names = ["distance", "prediction", "prediction_without", "prediction_without_high"]
    for name in names:
        assert np.allclose(parts[name], frame[name], rtol=1e-9), name
    assert blocks.profile.top == held.profile.top
    ours, theirs = blocks.profile.left_out, held.profile.left_out
    assert ours.scores.score == pytest.approx(theirs.scores.score)
    assert (ours.flipped, ours.row) == (theirs.flipped, theirs.row)
    assert blocks.profile.digest.reach.largest == pytest.approx(held.profile.digest.reach.largest)


def test_the_files_hold_the_predictions(outcomes):
    for outcome in outcomes:
        value = json.loads(outcome.files["profile"].read_text())
        assert value["left_out"]["rows"] == N
        assert value["top_rows"]["top"] == 6
        assert {"prediction", "prediction_without", "distance_error"} <= set(value["top"][0])
        page = outcome.files["report"].read_text()
        assert "Predictions without each row" in page
        assert "influence is not leakage" in page


def test_the_command(table):
    out = table.parent / "command"
    options = ["profile", str(table), "--target", "label", "--epsilon", "inf", "--top", "3"]
    ran = CliRunner().invoke(app, [*options, "--out", str(out)])
    assert ran.exit_code == 0, ran.output
    assert "Leave-one-out" in ran.output


def test_top_is_refused_before_a_model_with_noise_is_drawn(table):
    out = table.parent / "refused"
    with pytest.raises(InvalidInput, match="top=3: is for models without noise"):
        run(ProfileRequest(source=table, target="label", epsilon=1.0, top=3, out=out))
    assert not (out / "model.json").exists()
