"""The sums over a transcript, against densities written out and against many digits."""

import math

import mpmath
import numpy as np
import pytest
from scipy.stats import kstest, multivariate_normal, norm

from expost.errors import ConvergenceError, InvalidInput
from expost.mechanisms.dpsgd import Adversary, SGDMechanism, Transcript, step_rounding
from expost.mechanisms.hidden_batches import drawn_losses, hidden_term, unseen_interval, unseen_mean
from expost.profiles.transcript import individual_epsilon, transcript_profile
from expost.report.registry import document_of
from expost.risk import GaussianNoise
from expost.types import Neighbouring

SIGMA, CLIP, DIMENSION = 0.8, 1.5, 3
HIDDEN = Adversary.HIDDEN_BATCHES


def mechanism(**more):
    return SGDMechanism(**{"rows": 5, "noise_multiplier": SIGMA, "clip": CLIP} | more)


def density(point, mean, scale):
    return multivariate_normal(mean, scale**2 * np.eye(len(mean))).pdf(point)


def random_steps(count, rows=5, seed=0):
    """(g, g', batch, b) of so many steps of so many rows."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        g, other = rng.normal(size=(2, rows, DIMENSION))
        yield g, other, rng.random(rows) < 0.5, rng.normal(size=DIMENSION) * 1.1


class TestSums:
    def test_known_batches(self):
        transcript, expected = Transcript(mechanism()), np.zeros(5)
        s = SIGMA * CLIP
        for g, _, batch, b in random_steps(6):
            rows = np.flatnonzero(batch)
            transcript.add_known(rows, g[rows] @ b, (g[rows] ** 2).sum(axis=1), s)
            transcript.end_step()
            noisy_sum = g[batch].sum(axis=0) + b
            for row in rows:
                without = g[batch].sum(axis=0) - g[row]
                expected[row] += np.log(density(noisy_sum, without + g[row], s))
                expected[row] -= np.log(density(noisy_sum, without, s))
        np.testing.assert_allclose(transcript.loss, expected, rtol=0, atol=1e-12)
        assert transcript.steps == 6

    def test_known_batches_replaced(self):
        transcript, expected = Transcript(mechanism(relation="replace")), np.zeros(5)
        s = 2 * SIGMA * CLIP
        assert transcript.mechanism.noise_scale == s
        for g, other, batch, b in random_steps(6):
            rows, apart = np.flatnonzero(batch), (g - other)[batch]
            transcript.add_known(rows, apart @ b, (apart**2).sum(axis=1), s)
            for row in rows:
                moved = b + g[row] - other[row]
                expected[row] += (moved @ moved - b @ b) / (2 * s**2)
        np.testing.assert_allclose(transcript.loss, expected, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("replaced", [False, True])
    def test_hidden_coin(self, replaced):
        q, s = 0.3, SIGMA * CLIP * (1 + replaced)
        perturbation = mechanism(sampling_rate=q, relation="replace" if replaced else "remove")
        transcript, expected = Transcript(perturbation, adversary=HIDDEN), np.zeros(5)
        rows = np.arange(5)
        for g, other, batch, b in random_steps(6):
            other = other if replaced else np.zeros_like(g)
            r = b + g * batch[:, None]
            mine = (r * g).sum(axis=1), (g**2).sum(axis=1)
            if replaced:
                its = (r * other).sum(axis=1), (other**2).sum(axis=1)
                apart = ((g - other) ** 2).sum(axis=1)
                transcript.add_hidden_replaced(rows, *mine, *its, apart, s, q)
            else:
                transcript.add_hidden(rows, *mine, s, q)
            nothing = np.zeros(DIMENSION)
            for row in rows:
                base = (1 - q) * density(r[row], nothing, s)
                expected[row] += np.log(base + q * density(r[row], g[row], s))
                expected[row] -= np.log(base + q * density(r[row], other[row], s))
        np.testing.assert_allclose(transcript.loss, expected, rtol=0, atol=1e-12)

    def test_order_of_rows_and_of_calls_is_free(self):
        first, two = Transcript(mechanism()), Transcript(mechanism())
        first.add_known([0, 3, 4], [1.0, 2.0, 3.0], [0.1, 0.2, 0.3], 2.0)
        two.add_known([4], [3.0], [0.3], 2.0)
        two.add_known(np.array([3, 0]), [2.0, 1.0], [0.2, 0.1], 2.0)
        np.testing.assert_array_equal(first.loss, two.loss)
        np.testing.assert_array_equal(first.separation, two.separation)
        first.add_known([], [], [], 2.0)
        np.testing.assert_array_equal(first.loss, two.loss)

    def test_epochs_are_remembered(self):
        transcript = Transcript(mechanism())
        assert transcript.epochs.shape == (0, 5)
        for _ in range(3):
            transcript.add_known([1], [1.0], [2.0], 1.0)
            transcript.end_epoch()
        np.testing.assert_array_equal(transcript.epochs[:, 1], [2.0, 4.0, 6.0])
        assert transcript.epochs.dtype == np.float32

    def test_with_a_full_batch_the_adversaries_are_one(self):
        assert Transcript(mechanism(), adversary=HIDDEN).adversary is Adversary.KNOWN_BATCHES


class TestHiddenTerm:
    @pytest.mark.parametrize("rate", [1e-12, 0.01, 0.5, 0.999, 1 - 1e-12])
    def test_many_digits(self, rate):
        exponents = [-1e6, -700.0, -40.0, -1.0, -0.3, -1e-9, 0.0, 1e-9, 0.7, 1.0, 1.5, 30.0, 900.0]
        with mpmath.workdps(60):
            q = mpmath.mpf(rate)
            expected = [float(mpmath.log(1 - q + q * mpmath.exp(a))) for a in exponents]
        np.testing.assert_allclose(hidden_term(exponents, rate), expected, rtol=1e-12, atol=2e-16)

    def test_a_coin_that_always_falls(self):
        np.testing.assert_array_equal(hidden_term([-800.0, 3.0], 1.0), [-800.0, 3.0])


class TestUnseen:
    """Rows that were in no batch and whose gradients were not computed."""

    @pytest.mark.parametrize(("rate", "separation"), [(0.05, 1.0), (0.3, 0.5), (0.01, 3.0)])
    def test_the_interval_holds_and_is_not_idle(self, rate, separation):
        rng = np.random.default_rng(5)
        steps, runs = 100, 4000
        # Lengths that react to the noise, up to the longest.
        m, total = np.full(runs, separation), np.zeros(runs)
        for _ in range(steps):
            z = rng.standard_normal(runs)
            total += hidden_term(m * z - 0.5 * m**2, rate)
            m = np.where(z > 0, separation, separation * rng.random(runs))
        (low,), (high,) = unseen_interval(np.array([steps]), rate, separation)
        assert np.all((low <= total) & (total <= high))
        # Markov's inequality at 1e-6 is about five standard deviations, more with few coins.
        assert high - low < 28 * total.std()
        assert np.any(np.abs(total - (high + low) / 2) > (high - low) / 8)

    def test_both_sums_of_a_replaced_row(self):
        (low,), (high,) = unseen_interval(np.array([50]), 0.1, 0.8)
        (less,), (more,) = unseen_interval(np.array([50]), 0.1, 0.8, replaced=True)
        assert less == -more
        assert high - low <= more <= 1.1 * (high - low)

    def test_nothing_unseen_is_nothing_lost(self):
        low, high = unseen_interval(np.array([0, 4]), 0.1, 1.0)
        assert low[0] == high[0] == 0
        assert low[1] < 0 < high[1]
        # However little noise: no term is below log(1 − q).
        assert unseen_interval(np.array([4]), 0.1, 1e6)[0] == 4 * math.log1p(-0.1)

    @pytest.mark.parametrize("rate", [0.01, 0.2])
    def test_the_mean_that_is_added(self, rate):
        m = np.array([0.0, 0.1, 0.71, 1.2, 3.0])
        z = np.random.default_rng(0).standard_normal((400_000, 1))
        terms = hidden_term(m * z - 0.5 * m**2, rate)
        mean = unseen_mean(m, rate, 3.0)
        error = terms.std(axis=0) / math.sqrt(400_000)
        assert np.all(np.abs(mean - terms.mean(axis=0)) <= 4.5 * error + 1e-5)
        assert mean[0] == pytest.approx(0, abs=1e-15)
        assert math.log1p(-rate) <= unseen_mean(1e3, rate, 1e3) < mean[-1]

    def test_in_a_transcript(self):
        mean = Transcript(mechanism(sampling_rate=0.2), adversary=HIDDEN)
        mean.add_hidden([0, 1], [0.3, 0.1], [0.5, 0.5], SIGMA * CLIP, 0.2)
        exact = mean.loss.copy()
        mean.add_unseen([1, 2], [0.5, 0.0])
        mean.end_step()
        low, high = mean.interval()
        assert mean.loss[1] < exact[1]
        assert mean.loss[2] == 0
        assert high[0] - low[0] < 1e-12
        assert exact[1] + math.log1p(-0.2) - 1e-12 < low[1] < exact[1] - 0.1
        assert np.all((low <= mean.loss) & (mean.loss <= high))
        losses = transcript_profile(mean).losses
        # Its length is not known, then: between 0 and what clipping allows.
        assert losses.distance_error[1] >= losses.distance[1]
        assert losses.distance[2] + losses.distance_error[2] == pytest.approx(CLIP)
        assert losses.distance_error[0] < 1e-12


class TestExpected:
    """Losses of a hidden coin, drawn at gradients of constant length."""

    def test_draws_have_the_law_of_a_run(self):
        m, rate, steps = np.array([0.0, 0.35, 0.8]), 0.3, 3
        drawn = np.array(list(drawn_losses(m, rate, steps, 6_000, np.random.default_rng(0))))
        rng = np.random.default_rng(1)
        z = rng.standard_normal((20_000, steps, 1))
        inside = rng.random((20_000, steps, 1)) < rate
        # r·g/s² is mz, and m² more in the batch.
        plain = hidden_term(m * z + inside * m**2 - 0.5 * m**2, rate).sum(axis=1)
        assert not drawn[:, 0].any()
        for column in (1, 2):
            assert kstest(drawn[:, column], plain[:, column]).pvalue > 1e-4
            assert kstest(1.25 * drawn[:, column], plain[:, column]).pvalue < 1e-4
            values = np.exp(-drawn[:, column])
            assert abs(values.mean() - 1) < 4.5 * values.std() / math.sqrt(6_000)

    def test_a_profile_draws_them(self):
        q, s = 0.4, SIGMA * CLIP
        transcript = Transcript(mechanism(sampling_rate=q), adversary=HIDDEN)
        lengths = np.array([0.0, 0.1, 0.5, 1.0, CLIP])
        for _ in range(4):
            transcript.add_hidden(np.arange(5), 0.0, lengths**2, s, q)
            transcript.end_step()
        profile = transcript_profile(transcript)
        assert profile.expected[0] == 0
        assert np.all(np.diff(profile.expected) > 0)
        assert np.all(profile.expected_error[1:] > 0)
        (line,) = [
            line
            for panel in document_of(profile).figures["profile"].panels
            for line in panel.lines
            if line.name == "expected over releases"
        ]
        np.testing.assert_allclose(line.y, 1 / (1 + np.exp(-profile.expected[::-1])), rtol=1e-12)
        # The sum of four terms at most as far from 0 as four lone ones.
        z = np.random.default_rng(0).standard_normal(200_000)
        m = CLIP / s
        step_exposure = np.abs(
            hidden_term(m * z + ((np.arange(200_000) % 5 < 2) - 0.5) * m**2, q)
        ).mean()
        assert step_exposure < profile.expected[-1] < 4 * step_exposure
        summary = profile.identifiability()
        assert np.all((summary.advantage >= 0) & (summary.advantage < 1))
        assert np.all(np.diff(summary.advantage) > 0)

    def test_a_row_replaced_has_none(self):
        q, s = 0.4, 2 * SIGMA * CLIP
        transcript = Transcript(mechanism(sampling_rate=q, relation="replace"), adversary=HIDDEN)
        transcript.add_hidden_replaced([0], [0.4], [1.0], [0.1], [1.0], [0.5], s, q)
        transcript.end_step()
        profile = transcript_profile(transcript)
        np.testing.assert_array_equal(profile.expected, profile.exposure)
        assert "typical  " not in str(profile)
        assert any("has no known law" in notice for notice in profile.notices)


class TestRounding:
    def test_the_bound_holds_in_single_precision(self):
        rng = np.random.default_rng(1)
        g, b = rng.normal(size=(300, 400)) / 20, rng.normal(size=400)
        exact = (g @ b + 0.5 * (g**2).sum(axis=1)) / 4.0
        small, noise = g.astype(np.float32), b.astype(np.float32)
        g, b = small.astype(np.float64), noise.astype(np.float64)
        exact = (g @ b + 0.5 * (g**2).sum(axis=1)) / 4.0
        inner = np.array(
            [np.float32(np.cumsum(row * noise, dtype=np.float32)[-1]) for row in small]
        )
        rough = (inner + 0.5 * (small**2).sum(axis=1)) / np.float32(4.0)
        bound = step_rounding(
            float(np.linalg.norm(b)), (g**2).sum(axis=1), 2.0, dimension=400, unit=2.0**-24
        )
        error = np.abs(rough - exact)
        assert np.all(error <= bound)
        assert np.any(error > 1e-4 * bound)
        # Double precision would have guaranteed too much.
        assert np.any(error > 1e6 * bound * 2.0**-29)

    def test_it_reaches_the_interval(self):
        transcript = Transcript(mechanism())
        transcript.add_known([0, 1], [0.2, 0.3], [1.0, 1.0], 1.0, error=[0.1, 0.0])
        low, high = transcript.interval()
        assert high[0] - low[0] == pytest.approx(0.2)
        assert 0 < high[1] - low[1] < 1e-14
        transcript.add_known([0], [0.2], [1.0], 1.0, error=math.inf)
        assert transcript.interval()[1][0] == math.inf
        assert step_rounding(1.0, [1.0], 1.0, dimension=2**24, unit=2.0**-24)[0] == math.inf

    def test_the_coin_damps_an_error(self):
        transcript = Transcript(mechanism(sampling_rate=0.01), adversary=HIDDEN)
        transcript.add_hidden([0, 1], [0.0, 900.0], [0.0, 0.0], 1.0, 0.01, error=0.1)
        low, high = transcript.interval()
        assert high[0] - low[0] == pytest.approx(0.01 * 0.2, rel=0.06)
        assert high[1] - low[1] == pytest.approx(0.2, rel=1e-6)


class TestGuarantees:
    def test_full_batch(self):
        assert mechanism().guarantee(9).gaussian.mu == pytest.approx(3 / SIGMA)
        assert mechanism(relation="replace").guarantee(9).gaussian.mu == pytest.approx(3 / SIGMA)
        filtered = mechanism(norm_budget=2.0)
        assert filtered.guarantee(1).gaussian.mu == pytest.approx(1 / SIGMA)
        assert filtered.guarantee(900).gaussian.mu == pytest.approx(2.0 / (SIGMA * CLIP))
        assert filtered.guarantee(900).gaussian.mu >= 2.0 / (SIGMA * CLIP)

    def test_noise_that_changes(self):
        transcript = Transcript(mechanism())
        for scale in (1.0, 2.0):
            transcript.add_known([2, 3], 0.0, 0.1, scale)
            transcript.end_step()
        transcript.add_known([3], 0.0, 0.1, 4.0)
        transcript.end_step()
        assert transcript.guarantee().gaussian.mu == pytest.approx(
            CLIP * math.sqrt(1 + 1 / 4 + 1 / 16)
        )
        np.testing.assert_allclose(transcript.separation[:3], [0, 0, math.sqrt(0.1 + 0.1 / 4)])

    @pytest.mark.parametrize("relation", list(Neighbouring)[::2])
    def test_sampling_is_amplified_where_batches_hide_the_row(self, relation):
        perturbation = mechanism(sampling_rate=0.1, relation=relation)
        guarantee = perturbation.guarantee(10)
        assert guarantee.epsilon(1e-5) < GaussianNoise(mu=math.sqrt(10) / SIGMA).epsilon(1e-5)
        # One coin that nearly always falls is a full batch: the noise is counted in the same unit.
        nearly = mechanism(sampling_rate=1 - 1e-9, relation=relation).guarantee(4)
        full = mechanism(relation=relation).guarantee(4)
        assert nearly.epsilon(1e-3) == pytest.approx(full.epsilon(1e-3), rel=1e-2)
        transcript = Transcript(perturbation, adversary=HIDDEN)
        for _ in range(10):
            if relation is Neighbouring.REMOVE:
                transcript.add_hidden([0], [0.0], [0.1], perturbation.noise_scale, 0.1)
            else:
                row = [0.0], [0.1]
                transcript.add_hidden_replaced(
                    [0], *row, *row, [0.1], perturbation.noise_scale, 0.1
                )
            transcript.end_step()
        assert transcript.guarantee().epsilon(1e-5) == pytest.approx(guarantee.epsilon(1e-5))

    def test_the_profile_shows_them(self):
        transcript = Transcript(mechanism())
        transcript.add_known(np.arange(5), 0.1, np.linspace(0, 1, 5), SIGMA * CLIP)
        transcript.end_step()
        profile = transcript_profile(
            transcript, delta=1e-3, ids=list("abcde"), notices=["Mind this."]
        )
        guarantee = mechanism().guarantee(1)
        assert profile.worst_case == pytest.approx(guarantee.loss(1e-3))
        # Evidence against the row passes it too, e^(−b) as often at most.
        mu, passed = 1 / SIGMA, profile.losses.worst_case_passed
        tails = (
            norm.sf(profile.worst_case, mu * mu / 2, mu),
            norm.cdf(-profile.worst_case, mu * mu / 2, mu),
        )
        assert tails[0] == pytest.approx(1e-3, rel=1e-9)
        assert 1e-3 < sum(tails) <= passed <= 1e-3 * (1 + math.exp(-profile.worst_case))
        assert profile.notices[-1] == "Mind this."
        np.testing.assert_allclose(profile.distance, np.sqrt(np.linspace(0, 1, 5)))
        np.testing.assert_allclose(
            profile.losses.law.separation, profile.distance / (SIGMA * CLIP), rtol=1e-12
        )
        np.testing.assert_allclose(profile.losses.far_law.separation, 1 / SIGMA)
        advantage = profile.identifiability().advantage_high
        np.testing.assert_allclose(advantage, guarantee.advantage, rtol=1e-9)
        assert transcript_profile(transcript, guaranteed=False).worst_case == math.inf

    def test_individual_epsilon_of_rows_that_did_nothing(self):
        transcript = Transcript(mechanism())
        transcript.add_known(np.arange(5), 0.0, [0.0, 0.1, 1.0, 2.0, CLIP**2], SIGMA * CLIP)
        transcript.end_step()
        own = individual_epsilon(transcript, 1e-5)
        assert own.epsilon[0] == 0
        assert np.all(np.diff(own.epsilon) > 0)
        assert own.epsilon[-1] == pytest.approx(own.worst_case, rel=1e-6)


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "match"),
        [
            ({"rows": 0}, "rows=0"),
            ({"noise_multiplier": -1.0}, "noise_multiplier"),
            ({"clip": math.nan}, "clip"),
            ({"sampling_rate": 0.0}, "sampling_rate"),
            ({"sampling_rate": math.nan}, "sampling_rate"),
            ({"relation": "add"}, "'remove' or 'replace'"),
            ({"norm_budget": math.nan}, "norm_budget"),
            ({"norm_budget": 1.0, "relation": "replace"}, "relation='remove'"),
            ({"norm_budget": 1.0, "sampling_rate": 0.5}, "full batch"),
        ],
    )
    def test_of_a_mechanism(self, options, match):
        with pytest.raises(InvalidInput, match=match):
            mechanism(**options)

    @pytest.mark.parametrize(
        ("rows", "match"),
        [
            ([0, 0], "twice"),
            ([5], "between 0 and 4"),
            ([-1], "between 0 and 4"),
            ([0.5], "row numbers"),
            ([[0]], "row numbers"),
        ],
    )
    def test_of_rows(self, rows, match):
        with pytest.raises(InvalidInput, match=match):
            Transcript(mechanism()).add_known(rows, 0.0, 0.0, 1.0)

    @pytest.mark.parametrize(
        "values", [(math.nan, 1.0), (0.0, math.inf), (0.0, -1.0), (0.0, math.nan)]
    )
    def test_of_what_is_not_finite(self, values):
        transcript = Transcript(mechanism())
        with pytest.raises(ConvergenceError, match="lower the learning rate"):
            transcript.add_known([0], [values[0]], [values[1]], 1.0)
        assert not transcript.loss.any()

    def test_of_an_error_that_is_not_a_number(self):
        with pytest.raises(ConvergenceError, match="error"):
            Transcript(mechanism()).add_known([0], [0.0], [1.0], 1.0, error=math.nan)

    def test_of_a_scale(self):
        for scale in (0.0, math.nan, math.inf):
            with pytest.raises(InvalidInput, match="scale"):
                Transcript(mechanism()).add_known([0], [0.0], [1.0], scale)

    def test_of_the_other_adversary(self):
        known = Transcript(mechanism(sampling_rate=0.5))
        with pytest.raises(InvalidInput, match="one for each adversary"):
            known.add_hidden([0], [0.0], [1.0], 1.0, 0.5)
        with pytest.raises(InvalidInput, match="one for each adversary"):
            known.add_unseen([0], [1.0])
        with pytest.raises(InvalidInput, match="one for each adversary"):
            Transcript(mechanism(sampling_rate=0.5), adversary=HIDDEN).add_known(
                [0], [0.0], [1.0], 1.0
            )
        with pytest.raises(InvalidInput, match="adversary='blind'"):
            Adversary.parse("blind")
