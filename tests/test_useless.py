"""A model no better than the base rate says so first, wherever it is shown."""

import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import expost
from expost import PrivateLinearSVC, PrivateLogisticRegression
from expost.forecast import Forecast
from expost.losses import HuberHinge, Logistic, Softmax, Squared
from expost.profiles.fit import FitScores, useless_sentence
from expost.report import page_of, render_html, render_json, render_markdown
from expost.report.sections.profile_overview import useful_tile
from expost.rows import RowBlock

RNG = np.random.default_rng(5)
BETTER = Forecast(noise_ratio=0.001, rows=100)
HINGE = HuberHinge(width=0.5)
USELESS = Forecast(noise_ratio=0.5, rows=100)


def scores(**figures):
    known = {"rows": 100, "right": (60,), "classes": (70, 30), "coefficients": 3}
    return FitScores(**known | figures)


def hinged(wrong, *classes):
    """Return the scores of a hinge that takes so many rows of each class for the other."""
    y = np.repeat([-1.0, 1.0], classes)
    z = y.copy()
    z[: wrong[0]] *= -1
    z[classes[0] : classes[0] + wrong[1]] *= -1
    return replace(FitScores.of_predictors((z,), y, HINGE), coefficients=3)


# -- what is measured ------------------------------------------------------------------------------


def test_scores_of_classes_are_those_of_a_naive_count():
    X, codes = RNG.normal(size=(50, 3)), RNG.integers(0, 4, 50)
    theta = RNG.normal(size=12)
    result = FitScores.of(RowBlock.of(X, codes.astype(float)), (theta,), Softmax(classes=4))
    z = X @ theta.reshape(4, 3).T
    assert result.score == (np.mean(z.argmax(axis=1) == codes),)
    np.testing.assert_allclose(
        result.log_loss, [-np.mean(log_softmax(z, axis=1)[np.arange(50), codes])]
    )
    shares = np.bincount(codes, minlength=4) / 50
    assert result.base_score == max(shares)
    np.testing.assert_allclose(result.base_log_loss, -np.sum(shares * np.log(shares)))


def test_a_hinge_has_no_log_loss_and_a_regression_has_r2():
    X, y = RNG.normal(size=(40, 3)), RNG.choice([-1.0, 1.0], 40)
    theta = RNG.normal(size=3)
    assert FitScores.of(RowBlock.of(X, y), (theta,), HuberHinge(width=0.5)).log_loss == ()
    result = FitScores.of(RowBlock.of(X, y), (theta,), Squared(label_bound=1.0))
    assert result.measure == "R²"
    expected = 1 - np.mean((X @ theta - y) ** 2) / np.var(y)
    np.testing.assert_allclose(result.score, [expected])


def test_a_class_that_no_row_has_adds_nothing_to_the_entropy():
    assert scores(classes=(100, 0)).base_log_loss == 0
    assert scores(classes=(50, 50)).base_log_loss == pytest.approx(math.log(2))


# -- the sentence ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fit", "begins"),
    [
        # Worse by both measures.
        (scores(log_losses=(80.0,)), "This model is no better"),
        # More rows right, but worse probabilities.
        (scores(right=(75,), log_losses=(80.0,)), "The probabilities"),
        # A hinge has its accuracy alone.
        (hinged((0, 30), 70, 30), "This model is no better"),
        (FitScores(rows=10, errors=(30.0,), spread=20.0), "This model is no better"),
    ],
)
def test_a_model_no_better_than_the_base_rate_is_reported(fit, begins):
    sentence = useless_sentence(fit, BETTER)
    assert sentence.startswith(begins)
    assert "a larger epsilon" in sentence
    without_noise = useless_sentence(fit, Forecast(noise_ratio=0.0, rows=100))
    assert without_noise.startswith(begins)
    assert "epsilon" not in without_noise


@pytest.mark.parametrize(
    "fit",
    [
        # Where a class is rare nothing predicts more rows right than the most frequent one.
        scores(right=(99,), classes=(99, 1), log_losses=(4.0,)),
        hinged((0, 29), 70, 30),
        FitScores(rows=10, errors=(19.0,), spread=20.0, coefficients=3),
        None,
    ],
)
def test_a_gain_by_chance_is_not_reported_and_a_useless_forecast_is(fit):
    assert useless_sentence(fit, BETTER) is None
    assert useless_sentence(fit, None) is None
    sentence = useless_sentence(fit, USELESS)
    assert sentence.startswith("This model is forecast")
    assert ("Measured, " in sentence) == (fit is not None)


@pytest.mark.parametrize(
    "fit",
    [
        scores(right=(80,), log_losses=(50.0,)),
        hinged((0, 5), 70, 30),
        FitScores(rows=100, errors=(10.0,), spread=20.0, coefficients=3),
    ],
)
def test_no_forecast_contradicts_what_was_measured(fit):
    assert useless_sentence(fit, BETTER) is None
    assert useless_sentence(fit, USELESS) is None


def test_a_negative_r2_has_the_sign_of_the_page():
    fit = FitScores(rows=10, errors=(30.0,), spread=20.0, coefficients=3)
    assert "R² −0.500" in useless_sentence(fit, BETTER)
    assert useful_tile(fit, useless=True).value == "R² −0.500"


# -- chance ----------------------------------------------------------------------------------------


def test_the_gain_is_that_of_the_likelihood():
    assert scores(log_losses=(50.0,)).gain == pytest.approx(scores().base_log_loss - 0.5)
    # Normal errors: half the log of the ratio of the variances.
    regression = FitScores(rows=10, errors=(5.0,), spread=20.0)
    assert regression.gain == pytest.approx(math.log(4) / 2)
    assert FitScores(rows=10, errors=(0.0,), spread=20.0).gain == math.inf


def test_the_gain_of_a_hinge_is_that_of_the_best_line_through_its_scores():
    X, y = RNG.normal(size=(300, 3)), RNG.choice([-1.0, 1.0], 300)
    theta = RNG.normal(size=3)
    for shift in (0.0, 0.3):
        scored = FitScores.of(RowBlock.of(X + shift * y[:, None] * theta, y), (theta,), HINGE)
        z = ((X + shift * y[:, None] * theta) @ theta)[:, None]
        line = LogisticRegression(C=1e9).fit(z, y)
        naive = -np.mean(line.predict_log_proba(z)[np.arange(300), (y > 0).astype(int)])
        expected = scored.base_log_loss - naive if line.coef_[0, 0] > 0 else 0.0
        assert scored.gain == pytest.approx(expected, abs=1e-4)
    against = FitScores.of(RowBlock.of(-X + 0.3 * y[:, None], y), (np.full(3, -1.0),), HINGE)
    assert against.gain == 0
    perfect = FitScores.of(RowBlock.of(y[:, None] * 0.01, y), (np.ones(1),), HINGE)
    assert perfect.gain == pytest.approx(perfect.base_log_loss, rel=0.01)


def test_a_hinge_that_recognises_a_rare_class_is_useful():
    """By accuracy alone no model of so many columns and a class of 10 % would be."""
    X, digits = load_digits(return_X_y=True)
    is_zero = (digits == 0).astype(int)
    model = PrivateLinearSVC(1.0, data_norm=60.0, classes=(0, 1), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        profile = expost.profile(model.fit(X, is_zero), X, is_zero)
    assert profile.fit.score[0] > 0.98
    assert page_of(profile).verdicts[0].text.startswith("This model is useful")


@pytest.mark.parametrize("columns", [2, 12])
@pytest.mark.parametrize("kind", ["logistic", "softmax", "squared", "hinge"])
def test_labels_that_no_column_predicts_show_nothing(kind, columns):
    """Of the best possible models on labels drawn at random, 2.5 % pass as evidence."""
    rng, trials, rows = np.random.default_rng(1), 400, 500
    passed = 0
    for _ in range(trials):
        X = np.column_stack([rng.normal(size=(rows, columns)), np.ones(rows)])
        passed += not best_fit(kind, X, rng).is_within_chance
    # Four standard deviations; the intercept, which the base rate has too, makes fewer.
    assert passed <= trials * 0.025 + 4 * math.sqrt(trials * 0.025)


def best_fit(kind, X, rng):
    if kind == "squared":
        y = rng.normal(size=len(X))
        theta = np.linalg.lstsq(X, y, rcond=None)[0]
        return FitScores.of(RowBlock.of(X, y), (theta,), Squared(label_bound=9.0))
    options = {"fit_intercept": False, "C": 1e6, "max_iter": 200}
    if kind == "hinge":
        y = rng.choice([-1.0, 1.0], len(X))
        svm = LinearSVC(loss="squared_hinge", dual=False, fit_intercept=False)
        return FitScores.of(RowBlock.of(X, y), (svm.fit(X, y).coef_[0],), HINGE)
    if kind == "logistic":
        y = rng.choice([-1.0, 1.0], len(X), p=[0.3, 0.7])
        theta = LogisticRegression(**options).fit(X, y).coef_[0]
        return FitScores.of(RowBlock.of(X, y), (theta,), Logistic())
    y = rng.choice(3, len(X), p=[0.2, 0.3, 0.5]).astype(float)
    theta = LogisticRegression(**options).fit(X, y).coef_.ravel()
    return FitScores.of(RowBlock.of(X, y), (theta,), Softmax(classes=3))


def test_a_signal_is_no_chance_and_blocks_merge_to_the_same():
    X = RNG.normal(size=(400, 3))
    y = np.where(X[:, 0] + RNG.normal(size=400) > 0, 1.0, -1.0)
    theta = np.array([1.5, 0.0, 0.0])
    whole = FitScores.of(RowBlock.of(X, y), (theta,), Logistic())
    assert whole.coefficients == 3
    assert not whole.is_within_chance
    parts = [
        FitScores.of(RowBlock.of(X[part], y[part]), (theta,), Logistic())
        for part in (slice(0, 150), slice(150, None))
    ]
    merged = FitScores().merged(parts[0]).merged(parts[1])
    assert merged.coefficients == 3
    assert merged.gain == pytest.approx(whole.gain)


# -- where it is said ------------------------------------------------------------------------------


def fitted(rows, epsilon, seed=1):
    rng = np.random.default_rng(7)
    X = rng.uniform(-0.4, 0.4, (rows, 5))
    y = (X[:, 0] + 0.1 * rng.normal(size=rows) > 0.1).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PrivateLogisticRegression(epsilon, classes=(0, 1), random_state=seed).fit(X, y)
    return model, X, y


def test_a_profile_reports_it_first():
    model, X, y = fitted(120, 0.02)
    profile = expost.profile(model, X, y)
    assert profile.useless.startswith("This model is ")
    assert "no better than the base rate" in profile.useless
    assert str(profile).startswith(profile.useless.replace("epsilon", "ε"))
    assert repr(profile).startswith(profile.useless)
    content = json.loads(profile.to_json())
    assert content["useless"] == profile.useless
    assert content["fit"]["base_rate"] == pytest.approx(max(np.mean(y), 1 - np.mean(y)))
    assert content["forecast"]["level"] == "useless"


def test_the_page_reports_it_first():
    model, X, y = fitted(120, 0.02)
    page = page_of(expost.profile(model, X, y))
    assert "no better than the base rate" in page.verdicts[0].text
    assert page.verdicts[0].tone == "bad"
    assert page.alerts[0].severity == "problem"
    assert page.alerts[0].title == "The model is no better than the base rate."
    forecast = page_of(replace(expost.profile(model, X, y), fit=None))
    assert forecast.alerts[0].title == "The model is forecast to be no better than the base rate."
    html = render_html(page)
    assert html.index("no better than the base rate") < html.index("Guarantee")


def test_a_useful_model_has_no_notice():
    model, X, y = fitted(4_000, 2.0)
    profile = expost.profile(model, X, y)
    assert profile.useless is None
    assert repr(profile).startswith("Profile(")
    page = page_of(profile)
    assert all("no better" not in verdict.text for verdict in page.verdicts)
    assert "as good as non-private" in render_markdown(page)


def test_a_gain_by_chance_is_not_called_useful():
    """A model of labels drawn at random is better than the base rate on its own rows."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (4_000, 3)), np.where(rng.random(4_000) < 0.3, "yes", "no")
    model = PrivateLogisticRegression(
        3.0, data_norm=1.8, classes=("no", "yes"), random_state=None
    ).fit(X, y)
    profile = expost.profile(model, X, y)
    assert profile.useless is None
    assert profile.fit.gain > 0
    page = page_of(profile)
    assert page.verdicts[0].text.startswith("This model is not shown to be useful")
    assert page.verdicts[0].tone == "caution"
    tile = page.documents[0].tiles[0]
    assert (tile.label, tile.tone) == ("Useful?", "caution")


def test_the_next_command_after_a_gain_by_chance_is_a_choice_of_epsilon(program, tmp_path):
    rng = np.random.default_rng(0)
    cells = zip(rng.normal(size=2_000), rng.random(2_000) < 0.3, strict=True)
    lines = [f"{a:.3f},{'yn'[int(b)]}" for a, b in cells]
    (tmp_path / "table.csv").write_text("a,label\n" + "\n".join(lines) + "\n")
    done = program(
        *("profile", tmp_path / "table.csv", "--target", "label", "--epsilon", "3"),
        *("--seed", "0", "--out", tmp_path / "out"),
    )
    assert done.out.startswith("This model is not shown to be useful")
    assert "expost epsilon " in done.out
    assert "expost publish " not in done.out


def test_a_published_report_has_the_forecast_and_no_measured_figure():
    model = fitted(120, 0.02, None)[0]
    report = expost.publish(model)
    assert "no better than the base rate" in str(report).splitlines()[0]
    page = page_of(report)
    assert page.audience is expost.types.Audience.PUBLIC
    assert "no better than the base rate" in page.verdicts[0].text
    assert "% of its rows" not in render_html(page)
    assert "Measured" not in render_json(page)


def test_several_releases_name_the_useless_ones():
    bad, X, y = fitted(120, 0.02)
    worse, _, _ = fitted(120, 0.01)
    profile = expost.profile([bad, worse], X, y)
    assert profile.useless is None
    assert sum("no better than the base rate" in notice for notice in profile.notices) == 2


def test_the_command_prints_it_first(program, tmp_path):
    rows = ["a,b,c,label"]
    for _ in range(60):
        a, b, c = RNG.normal(size=3)
        rows.append(f"{a:.3f},{b:.3f},{c:.3f},{'yes' if a > 0.8 else 'no'}")
    (tmp_path / "table.csv").write_text("\n".join(rows))
    done = program(
        *("profile", tmp_path / "table.csv", "--target", "label", "--epsilon", "0.01"),
        *("--out", tmp_path / "out"),
    )
    assert done.code == 0
    assert "no better than the base rate" in done.out.splitlines()[0]
    assert "Privacy profile of 60 rows" in done.out


def test_the_command_that_publishes_prints_it_first(program, tmp_path):
    path = fitted(120, 0.02, None)[0].save(tmp_path / "model.json")
    done = program("publish", "--model", path, "--out", tmp_path / "published")
    assert done.code == 0
    assert "no better than the base rate" in done.out.splitlines()[0]
    done = program("publish", "--model", path, "--out", tmp_path / "again", "--json-curator")
    assert json.loads(done.out)["forecast"]["level"] == "useless"


def test_a_broken_guarantee_comes_before_a_useless_model():
    model, X, y = fitted(120, 0.02)
    profile = expost.profile(model, X, y)
    broken = replace(profile.losses, worst_case=1e-9, worst_case_passed=0.0)
    page = page_of(replace(profile, losses=broken))
    assert page.verdicts[0].text.startswith("The guarantee is exceeded")
    assert any("no better than the base rate" in alert.title for alert in page.alerts)
