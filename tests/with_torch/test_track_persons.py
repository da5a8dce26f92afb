"""Persons as the unit of a tracked run: all rows of a person leave at once."""

import math

import numpy as np
import pytest
import torch

from dpsgd.naive import log_normal
from dpsgd.tracked import HOOKS, SIGMA, Run
from expost.errors import InvalidInput
from expost.risk import DPSGD

pytestmark = pytest.mark.filterwarnings(HOOKS)

# Twelve rows of five persons.
PERSONS = ["ann", "ann", "bob", "cid", "bob", "ann", "dan", "eve", "cid", "ann", "bob", "eve"]
KEYS = ["ann", "bob", "cid", "dan", "eve"]
LOOPS = {
    "plain": {"batch_size": 6},
    "pieces": {"batch_size": 6, "pieces": 2},
    "small batches": {"batch_size": 2},
    "full batch": {"batch_size": 12},
    "full batch in pieces": {"batch_size": 12, "pieces": 5},
    "shuffled": {"batch_size": 4, "poisson": False, "public": True},
    "by layer": {
        "batch_size": 6,
        "private": {"clipping": "per_layer", "max_grad_norm": [0.5, 0.2, 1.0, 0.1]},
    },
}


def tracked(loop, **options):
    settings = dict(LOOPS[loop])
    public = {"public_batches": True} if settings.pop("public", False) else {}
    return Run(tracking={"persons": PERSONS, **public}, **settings, **options).epochs()


def naive(run, persons=PERSONS):
    """log p(transcript ∣ D) − log p(transcript ∣ D without the person), by the densities."""
    total = dict.fromkeys(persons, 0.0)
    for noted in run.noted:
        g = run.gradients(noted)
        everything = g[noted.batch].sum(axis=0)
        for person in total:
            rest = g[[row for row in noted.batch if persons[row] != person]].sum(axis=0)
            total[person] += log_normal(noted.published, everything, noted.scale)
            total[person] -= log_normal(noted.published, rest, noted.scale)
    return np.array(list(total.values()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("loop", LOOPS)
def test_losses_are_the_ratio_of_densities_without_the_person(loop, dtype):
    run = tracked(loop, dtype=dtype)
    expected, profile = naive(run), run.tracker.profile()
    slack = 1e-5 if dtype is torch.float32 else 1e-9
    np.testing.assert_allclose(profile.loss, expected, rtol=0, atol=slack)
    assert np.all(profile.loss_low - slack <= expected)
    assert np.all(expected <= profile.loss_high + slack)
    assert np.max(profile.loss_high - profile.loss_low) < (1e-3 if slack == 1e-5 else 1e-9)
    assert np.max(np.abs(expected)) > 0.1
    # Sums of the rows' losses would be another figure.
    alone = run.losses()
    summed = [alone[[p == key for p in PERSONS]].sum() for key in KEYS]
    assert np.max(np.abs(np.array(summed) - expected)) > 0.05


def test_the_profile_is_of_persons():
    run = tracked("plain")
    profile = run.tracker.profile()
    assert (profile.unit, len(profile), profile.rows) == ("person", 5, 12)
    assert list(profile.ids) == KEYS
    assert profile.sizes.tolist() == [4, 3, 2, 1, 2]
    for shown in (str(profile), str(run.tracker)):
        assert "5 persons with 12 rows" in shown
        assert "up to 4 rows" in shown
        assert "heuristic" not in shown
    with pytest.raises(InvalidInput, match="persons have the keys"):
        run.tracker.profile(ids=range(5))


def test_each_row_its_own_person_changes_nothing():
    rows = Run().epochs().tracker.profile()
    persons = Run(tracking={"persons": list(range(12))}).epochs().tracker
    np.testing.assert_allclose(persons.profile().loss, rows.loss, rtol=1e-12, atol=1e-12)
    exact = Run().epochs().tracker.guarantee().epsilon(1e-5)
    assert persons.guarantee().epsilon(1e-5) == pytest.approx(exact, rel=1e-6)
    assert persons.profile().worst_case == pytest.approx(rows.worst_case, rel=1e-12)


def test_known_batches_guarantee_as_many_gradients_as_a_person_has_in_a_batch():
    run = tracked("full batch")
    # Ann has four rows in each of the steps: μ = 4√T/σ.
    mu = 4 * math.sqrt(run.tracker.steps) / SIGMA
    assert run.tracker.transcript.guarantee().gaussian.mu == pytest.approx(mu, rel=1e-9)
    assert (
        run.tracker.profile().worst_case > Run(batch_size=12).epochs().tracker.profile().worst_case
    )


def test_hidden_batches_guarantee_as_many_rows_as_a_person_has():
    guarantee = tracked("plain").tracker.guarantee()
    assert guarantee == DPSGD(
        noise_multiplier=guarantee.noise_multiplier,
        sampling_rate=0.5,
        steps=4,
        rows_per_person=4,
    )
    assert guarantee.noise_multiplier == pytest.approx(SIGMA)


def test_what_persons_exclude():
    with pytest.raises(InvalidInput, match="all subsets"):
        Run(tracking={"persons": PERSONS, "adversary": "hidden-batches"})
    with pytest.raises(
        InvalidInput, match=r"^persons has 11 entries: must have one for each of 12"
    ):
        Run(tracking={"persons": PERSONS[:-1]})
    for missing in (None, math.nan):
        with pytest.raises(InvalidInput, match="persons: entry 11 is missing"):
            Run(tracking={"persons": [*PERSONS[:-1], missing]})
    run = Run(mode="ghost", batch_size=12, tracking={"persons": PERSONS})
    with pytest.raises(InvalidInput, match="several rows in one batch"):
        run.epochs(1)


def test_ghost_clipping_with_one_row_of_a_person_in_a_batch():
    # Rows 0 and 6, 1 and 7, … never meet in a batch of six in order.
    persons = [row % 6 for row in range(12)]
    run = Run(
        mode="ghost",
        batch_size=6,
        poisson=False,
        tracking={"persons": persons, "public_batches": True},
    )
    run.loader.sampler.__class__ = torch.utils.data.SequentialSampler
    run.epochs(1)
    np.testing.assert_allclose(run.tracker.profile().loss, naive(run, persons), atol=1e-9)


def test_a_person_in_two_batches_of_one_step_is_refused():
    tracking = {"persons": [0] * 11 + [1], "public_batches": True}
    run = Run(batch_size=4, poisson=False, tracking=tracking)
    batches = iter(run.loader)
    run.optimizer.signal_skip_step(do_skip=True)
    run.step(next(batches))
    run.optimizer.signal_skip_step(do_skip=False)
    with pytest.raises(InvalidInput, match="two batches that one step sums"):
        run.step(next(batches))
