"""Trainers in PyTorch against their claims: ours, Opacus', and the seeded faults of ours."""

import re
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch

import documents
from dpsgd.conforming import (
    FLAT,
    MEANT_FOR,
    NOT_IN_STEPS,
    OWN,
    RIGHT,
    checked,
    opacus,
    own,
    violated,
)
from dpsgd.mutants import MUTANTS
from dpsgd.tracked import HOOKS
from evidence import record
from expost.conformance import Claims, Verdict
from expost.conformance import conform as conform_arrays
from expost.torch import TorchTask, conform

pytestmark = [
    pytest.mark.filterwarnings(HOOKS),
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
]


@pytest.fixture(autouse=True)
def seeded():
    """Seed torch's generator, which Opacus draws from.

    Without it a test starts where the tests before it left the generator, so that one alarm by
    chance would come back in every run of the suite. A right trainer alarms in 0.001 of all runs
    at most; those of this file are a few.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(20261118)
        yield


def test_our_trainer_conforms():
    result = conform(own(1), OWN, name="expost.torch.train")
    assert result.violated == (), [result[name] for name in result.violated]
    names = [finding.check for finding in result.of(Verdict.NOT_CHECKED)]
    assert names == ["norm budget"]
    assert "expost.torch.train" in str(result)


def test_opacus_conforms_if_n_is_public_and_gradients_are_finite():
    result = conform(opacus(), FLAT)
    assert result.violated == (), [result[name] for name in result.violated]
    # Without these conditions it does not.
    claims = Claims(**{**vars(FLAT), "n_public": False, "not_finite": "bounded"})
    result = conform(opacus(), claims)
    assert result.violated == ("number of rows", "not finite")
    assert result["number of rows"].figures["extra_nats"] > 0
    # Its noise comes from torch's global generator.
    assert "seed" in result["seeds"].meaning


def test_the_trainers_of_the_page_run(tmp_path, monkeypatch, program):
    path = Path(__file__).parents[2] / "docs" / "dp-sgd.md"
    page = path.read_text()
    first, second = re.findall(
        r"^```python\n(.*?)^```",
        page.partition("check a trainer: begin")[2].partition("check a trainer: end")[0],
        re.DOTALL | re.MULTILINE,
    )
    names = {"np": np}
    monkeypatch.chdir(tmp_path)
    Path("steps.py").write_text(first)
    assert documents.run(path, tmp_path, program, None) == 1
    exec(second, names)
    assert conform_arrays(names["trainer"], FLAT).violated == ()


@pytest.mark.parametrize("name", [name for name in RIGHT if "Opacus, " in name])
def test_other_clipping_of_opacus_conforms(name):
    _, make, claims = RIGHT[name]
    assert conform(make(2), claims).violated == ()


def test_opacus_per_layer_claimed_as_flat_is_found():
    _, make, claims = RIGHT["Opacus, clipping per layer"]
    flat = Claims(**{**vars(claims), "clip": claims.bound})
    assert "clipping" in conform(make(2), flat).violated


def test_opacus_with_shuffled_batches_is_found():
    assert "sampling" in conform(opacus(poisson_sampling=False), FLAT).violated


@pytest.mark.parametrize("name", MEANT_FOR)
def test_a_fault_of_our_trainer_is_found_by_its_check(name):
    assert MEANT_FOR[name] in checked(name, 4).violated


def test_only_faults_of_the_account_show_in_no_step():
    assert set(MEANT_FOR) <= {mutant.name for mutant in MUTANTS}
    assert not any("noise that" in name or "clip" in name for name in NOT_IN_STEPS)


def test_a_task_has_gradients_that_are_known():
    seen = []

    def trainer(task: TorchTask):
        outputs = task.module(task.X)
        task.loss(outputs, task.y).backward()
        parts = [p.grad.ravel() for p in task.module.parameters()]
        seen.append((torch.cat(parts), (task.y[:, None] * task.X).mean(0)))
        with torch.no_grad():
            while True:
                for p in task.module.parameters():
                    p.normal_()
                yield

    conform(trainer, Claims(clip=1.0, noise_multiplier=1.0))
    for gradient, expected in seen[:3]:
        torch.testing.assert_close(gradient, expected)


def jax_privacy(task):
    """The same loop in jax_privacy: batches are padded, since it takes no empty ones."""
    import jax
    import jax.numpy as jnp
    from jax_privacy import batch_selection, clipping, noise_addition

    summed = clipping.clipped_grad(
        task.loss, l2_clip_norm=1.0, batch_argnums=(1, 2), keep_batch_dim=False
    )
    privatizer = noise_addition.gaussian_privatizer(stddev=1.1 * summed.sensitivity())
    theta = {name: jnp.asarray(value, jnp.float32) for name, value in task.parameters.items()}
    X, y = jnp.asarray(task.X, jnp.float32), jnp.asarray(task.y, jnp.float32)
    scale = task.learning_rate / (task.rate * len(X))

    @jax.jit
    def step(theta, state, batch):
        total = summed(theta, X[batch], y[batch], is_padding_example=batch == -1)
        noisy, state = privatizer.update(total, state, theta)
        return {name: theta[name] - scale * noisy[name] for name in theta}, state

    state = privatizer.init(theta)
    sampling = batch_selection.CyclicPoissonSampling(task.rate, task.steps)
    for batch in sampling.batch_iterator(len(X)):
        padded = batch_selection.pad_to_multiple_of(batch, 64)
        if not len(padded):
            padded = -1 + 0 * jnp.arange(64)
        theta, state = step(theta, state, padded)
        yield theta


def spread(runs):
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        return list(pool.map(violated, runs))


@pytest.mark.long
def test_record_right_trainers():
    """200 runs of correct trainers at a false-alarm rate of 0.001."""
    runs = [(name, seed) for name, (count, _, _) in RIGHT.items() for seed in range(count)]
    results = spread(runs)
    alarms = [[*run, *names] for run, names in zip(runs, results, strict=True) if names]
    record(
        "conform",
        command="pytest -m long tests/with_torch/test_conform.py",
        seed=0,
        figures={
            "false_alarm": 1e-3,
            "right_runs": {name: count for name, (count, _, _) in RIGHT.items()},
            "all_right_runs": len(runs),
            "false_alarms": alarms,
        },
    )
    assert len(runs) == 200
    assert alarms == []


@pytest.mark.long
def test_record_faults():
    """Each fault of our trainer three times, and what Opacus does by default."""
    runs = [(name, seed) for name in MEANT_FOR for seed in range(3)]
    found = dict.fromkeys(MEANT_FOR, 0)
    for (name, _), names in zip(runs, spread(runs), strict=True):
        found[name] += MEANT_FOR[name] in names
    default = Claims(**{**vars(FLAT), "n_public": False, "not_finite": "bounded"})
    record(
        "conform-faults",
        command="pytest -m long tests/with_torch/test_conform.py",
        seed=0,
        figures={
            "faults_found_of_3": found,
            "faults_in_no_step": sorted(NOT_IN_STEPS),
            "opacus_by_default": conform(opacus(accountant="prv"), default).to_dict(),
        },
    )
    assert set(found.values()) == {3}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(find_spec("jax_privacy") is None, reason="jax_privacy is not installed")
def test_jax_privacy_conforms():
    bounded = Claims(**{**vars(FLAT), "not_finite": "bounded"})
    assert conform_arrays(jax_privacy, bounded).violated == ()
