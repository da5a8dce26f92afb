"""What a profile brings to a page: against its own arrays, by loops and sorting."""

import dataclasses
import math

import numpy as np
import pytest

import expost
from expost import Profile
from expost.errors import InvalidInput
from expost.mechanisms import RowLosses
from expost.report import Accuracy, Choice, Origin, collect, collect_profile
from expost.types import Audience

from .conftest import HOSTILE, noiseless, synthetic


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


@pytest.mark.parametrize("rows", [2, 399, 400, 401, 5000])
def test_the_curve_is_thinned_and_true(rows):
    profile = synthetic(rows)
    summary = collect_profile(profile)
    exposure = sorted(map(abs, profile.loss.tolist()), reverse=True)
    typical = sorted(profile.expected.tolist(), reverse=True)
    assert len(summary.curve) <= 400
    assert (summary.curve[0].rank, summary.curve[-1].rank) == (1, rows)
    ranks = [point.rank for point in summary.curve]
    assert ranks == sorted(set(ranks))
    for point in summary.curve:
        assert point.score == exposure[point.rank - 1]
        assert point.typical == typical[point.rank - 1]
    if rows <= 400:
        assert len(summary.curve) == rows


@pytest.mark.parametrize("rows", [2, 3, 100, 1000, 1001])
def test_quantiles_hold_their_share_of_the_rows(rows):
    profile = synthetic(rows)
    summary = collect_profile(profile)
    assert summary.quantiles[-1].share == 1
    for quantile in summary.quantiles:
        below = np.mean(profile.exposure <= quantile.score)
        less = np.mean(profile.exposure < quantile.score)
        assert below >= quantile.share > less or math.isclose(less, quantile.share)
        assert quantile.score in profile.exposure
        assert np.mean(profile.expected <= quantile.typical) >= quantile.share


def test_the_most_exposed_rows_come_with_their_figures():
    keys = tuple(f"p{i}" for i in range(300))
    profile = synthetic(300, ids=keys)
    summary = collect_profile(profile)
    order = sorted(range(300), key=lambda row: -abs(profile.loss[row]))[:20]
    assert [row.key for row in summary.top] == [keys[row] for row in order]
    assert [row.rank for row in summary.top] == list(range(1, 21))
    for shown, row in zip(summary.top, order, strict=True):
        assert shown.exposure == abs(profile.loss[row])
        assert shown.belief == pytest.approx(sigmoid(profile.loss[row]))
        assert (shown.low, shown.high) == (profile.loss_low[row], profile.loss_high[row])
        assert shown.precision == pytest.approx(1e-7)
        assert shown.typical == profile.expected[row]
    assert summary.keyed
    assert not collect_profile(synthetic(3)).keyed
    assert [row.key for row in collect_profile(synthetic(3)).top] == [
        str(r) for r in synthetic(3).ranking
    ]


def up(value):
    """One decimal, rounded up."""
    return math.ceil(10 * value) / 10


def test_the_answer_says_the_numbers(laplace):
    release, _, _, profile = laplace
    summary = collect(profile, release=release)
    promise, exposed, _ = summary.answer
    (others,) = summary.lead(summary.profile)
    assert f"{up(100 * sigmoid(profile.exposure.max())):.1f}" in exposed
    assert f"{up(100 * sigmoid(np.sort(profile.exposure)[74])):.1f}" in others
    assert "2 nats" in promise
    assert f"takes up {up(100 * profile.exposure.max() / 2):.1f}" in promise
    assert summary.profile.delta is None
    assert all(sentence.endswith(".") for sentence in (*summary.answer, others))


def test_gaussian_noise_does_not_promise_what_it_cannot(gaussian):
    release, _, _, profile = gaussian
    summary = collect(profile, release=release)
    assert summary.profile.delta == 1e-5
    promise = summary.answer[0]
    assert "δ" in promise
    assert "may lose more" in promise
    assert "no row does" in promise
    past = dataclasses.replace(profile.losses, worst_case=float(np.sort(profile.exposure)[-4]))
    told = collect(dataclasses.replace(profile, losses=past), release=release)
    assert "3 of the rows do" in told.answer[0]


def test_without_noise_rows_are_told_apart_by_distance(exact):
    release, _, _, profile = exact
    for summary in (collect(profile, release=release), collect(noiseless(150))):
        part = summary.profile
        assert part.is_noiseless
        assert part.measure == "distance"
        assert part.worst_case == math.inf
        assert part.seeded is None
        assert all(point.typical is None for point in part.curve)
        assert all(math.isfinite(point.score) for point in part.curve)
        assert part.top[0].exposure == math.inf
        assert part.top[0].precision == 0
        assert "no noise" in summary.answer[0]
        assert "Do not share it" in summary.answer[2]
    assert "49 of its 50 rows" in collect(noiseless(50)).answer[1]
    assert [row.distance for row in part.top] == sorted(noiseless(150).distance)[:-21:-1]


def test_rows_without_a_proof_are_counted():
    losses = synthetic(10).losses
    high = losses.high.copy()
    high[3] = math.inf
    profile = Profile(losses=dataclasses.replace(losses, high=high), description="m", rows=10)
    summary = collect_profile(profile)
    assert summary.unproved == 1
    assert summary.precision == pytest.approx(1e-7)


def test_what_is_not_a_number_is_an_error():
    losses = synthetic(4).losses
    loss = losses.loss.copy()
    loss[2] = math.nan
    with pytest.raises(ArithmeticError):
        collect(Profile(losses=dataclasses.replace(losses, loss=loss), description="", rows=4))


def test_what_it_was_made_from_is_kept(laplace):
    release, X, y, profile = laplace
    grouping, explanation = profile.by(y, name="answer"), profile.explain(X)
    choices = (
        Choice(name="epsilon", value="2", origin=Origin.GIVEN),
        Choice(name="data_norm", value="8", origin=Origin.READ),
    )
    accuracy = Accuracy(released=0.8, base_rate=0.5, noiseless=0.9)
    summary = collect(
        profile,
        release=release,
        choices=choices,
        groups=[grouping],
        explanation=explanation,
        accuracy=accuracy,
        notices=["first", *profile.notices],
        source="data.csv",
        made="2024-05-06",
        versions={"expost": "1"},
    )
    part = summary.profile
    assert part.groups == (grouping,)
    assert part.explanation is explanation
    assert summary.choices == part.choices == choices
    assert part.accuracy == accuracy
    assert part.seeded is True
    assert part.model_audience is Audience.REVIEW
    assert summary.notices == part.notices == (*profile.notices, "first")
    assert (part.source, part.made) == ("data.csv", "2024-05-06")
    assert summary.sources == ("data.csv, 2024-05-06",)
    assert summary.versions == (("expost", "1"),)
    assert summary.audience is Audience.FAIL
    assert part.model == profile.description
    assert summary.models == (profile.description,)
    assert part.evidence_in == np.mean(profile.loss > 0)


def test_nothing_is_read_from_the_clock():
    assert collect(synthetic(20)) == collect(synthetic(20))
    assert collect(synthetic(20)).sources == ()


def test_text_from_outside_is_one_printable_line():
    summary = collect(
        dataclasses.replace(synthetic(5, ids=(HOSTILE,) * 5), description=HOSTILE),
        choices=[Choice(name=HOSTILE, value=HOSTILE * 1000, origin=Origin.GIVEN)],
        notices=[HOSTILE],
        source=HOSTILE,
        made=HOSTILE,
        accuracy=Accuracy(released=1, base_rate=0, measure=HOSTILE, rows=HOSTILE),
    )
    part = summary.profile
    texts = [
        part.model,
        part.source,
        part.made,
        *part.notices,
        part.top[0].key,
        part.choices[0].value,
        part.accuracy.rows,
    ]
    assert all(text.isprintable() for text in texts)
    assert all(len(text) <= 2000 for text in texts)


def test_candidates_are_not_called_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)) / 9, np.where(rng.random(40) < 0.5, 1.0, -1.0)
    how = expost.mechanisms.OutputPerturbation(
        epsilon=1.0, loss=expost.losses.Logistic(), regularization=1.0, rows=40, dimension=2
    )
    near = expost.neighbours(X, y)
    theta = near.base + how.law.sample(1, rng)[0]
    profile = expost.profile(theta, X, y, mechanism=how, relation="add", candidates=(X[:3], y[:3]))
    summary = collect(profile)
    assert summary.profile.rows == 3
    assert "3 candidates" in summary.lead(summary.profile)[0]
    assert "most exposed candidate" in summary.answer[1]


def test_accuracy_must_be_a_number():
    for figures in ((math.nan, 0.5, None), (0.5, math.inf, None), (0.5, 0.5, math.nan)):
        with pytest.raises(InvalidInput, match="accuracy"):
            Accuracy(released=figures[0], base_rate=figures[1], noiseless=figures[2])


def test_exact_losses_of_zero_are_fine():
    zero = np.zeros(3)
    losses = RowLosses.without_noise(zero, zero, expost.types.Neighbouring.REMOVE)
    summary = collect(Profile(losses=losses, description="m", rows=3))
    assert "0 of its 3 rows" in summary.answer[1]


def test_a_broken_promise_and_a_missing_one_are_said():
    kept = synthetic(200)
    assert "broken" not in " ".join(collect(kept).answer)
    least = np.maximum(np.maximum(kept.loss_low, -kept.loss_high), 0.0)
    promise = float(np.sort(least)[-8])
    broken = dataclasses.replace(kept, losses=dataclasses.replace(kept.losses, worst_case=promise))
    promise, _, advice = collect(broken).answer
    assert "The promise is broken" in promise
    assert "and 7 of the rows are proved to lose more" in promise
    assert advice.startswith("Do not release this model")
    none = dataclasses.replace(kept, losses=dataclasses.replace(kept.losses, worst_case=math.inf))
    assert "promises no ε" in collect(none).answer[0]
