"""Ghost clipping at full counts: equality with per-row gradients, and E[e^(−loss)] = 1.

A statistical law has a fixed seed and fails by chance less than once in 10⁵ seeds.
"""

import itertools
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from torch import nn

from dpsgd.laws import deviation
from dpsgd.nets import NETS, Attention, net
from dpsgd.tracked import HOOKS, Run
from evidence import record

pytestmark = pytest.mark.filterwarnings(HOOKS)

SEED = 4


def seeded(make):
    """The same first weights in every run."""

    def made():
        with torch.random.fork_rng():
            torch.manual_seed(SEED)
            return make()

    return made


def apart(rows=300):
    """Row i has one feature of its own: a run is as many independent ones."""
    rng = np.random.default_rng(SEED)
    X = np.diag(rng.uniform(1.0, 1.8, size=rows))

    def make():
        layer = nn.Linear(rows, 2, bias=False)
        nn.init.zeros_(layer.weight)
        return layer

    return {"make": make, "given": (X, rng.integers(2, size=rows)), "rows": rows}


def shared(rows=12):
    """A transformer, whose rows share every parameter."""
    return {**net("transformer", rows=rows), "make": seeded(Attention)}


CASES = {
    "full batch": (apart, {"batch_size": 300}, 20),
    "Poisson, known": (apart, {"batch_size": 150}, 30),
    "Poisson, hidden": (apart, {"batch_size": 150, "adversary": "hidden-batches"}, 70),
    "transformer, known": (shared, {"batch_size": 6}, 1500),
}


def losses(case, draws):
    """(runs, n) losses of four steps at μ ≤ 1, and the largest μ."""
    made, options, _ = CASES[case]
    options = dict(options)
    tracking = {"adversary": options.pop("adversary")} if "adversary" in options else {}
    options |= {**made(), "mode": "ghost", "tracking": tracking, "rate": 0.5}
    options |= {"private": {"noise_multiplier": 2.1, "max_grad_norm": 0.8}}
    drawn, widest = [], 0.0
    for draw in draws:
        run = Run(seed=1000 * SEED + draw, **options)
        run.epochs(4 if options["batch_size"] == options["rows"] else 2)
        drawn.append(run.tracker.profile().loss)
        widest = max(widest, float(np.max(run.tracker.transcript.separation)))
    return np.array(drawn), widest


def figures(case, parts):
    loss = np.concatenate([loss for loss, _ in parts])
    by_run = loss if CASES[case][0] is shared else loss.reshape(-1)
    return {
        "losses": loss.size,
        "largest_mu": max(widest for _, widest in parts),
        "mean": float(np.exp(-loss).mean()),
        "standard_errors": deviation(by_run),
        "standard_errors_at_1.2": deviation(1.2 * by_run),
    }


def assert_expectation(figure):
    assert figure["largest_mu"] <= 1.0
    assert abs(figure["standard_errors"]) < 4.5
    assert figure["standard_errors_at_1.2"] > 4.5


@pytest.mark.parametrize("case", list(CASES)[:2])
def test_the_expectation_of_the_likelihood_ratio(case):
    assert_expectation(figures(case, [losses(case, range(CASES[case][2]))]))


def gaps(name, mode, dtype):
    """The largest gap to brute force, and to the end of its interval in units of its width."""
    run = Run(mode=mode, dtype=dtype, batch_size=16, **net(name, rows=48)).epochs()
    profile, expected = run.tracker.profile(), run.losses()
    gap = np.abs(profile.loss - expected)
    width = (profile.loss_high - profile.loss_low)[gap > 0] / 2
    return {
        "largest_loss": float(np.max(np.abs(expected))),
        "largest_gap": float(np.max(gap)),
        "largest_gap_over_half_width": float(np.max(gap[gap > 0] / width)),
        "largest_half_width": float(np.max(width)),
    }


@pytest.mark.long
def test_record_ghost_clipping():
    types = {"float32": torch.float32, "float64": torch.float64}
    nets = list(itertools.product(NETS, ("ghost", "fast"), types))
    with ProcessPoolExecutor(8, mp_context=get_context("fork")) as pool:
        each = [pool.submit(gaps, name, mode, types[kind]) for name, mode, kind in nets]
        draws = {
            case: [
                pool.submit(losses, case, range(start, min(start + 10, count)))
                for start in range(0, count, 10)
            ]
            for case, (*_, count) in CASES.items()
        }
        names = (", ".join(parts) for parts in nets)
        equality = dict(zip(names, (gap.result() for gap in each), strict=True))
        expectation = {
            case: figures(case, [part.result() for part in parts]) for case, parts in draws.items()
        }
    record(
        "ghost-law",
        command="pytest -m long tests/with_torch/test_ghost_law.py",
        seed=SEED,
        figures={
            "losses against brute force": equality,
            "E[exp(-loss)]": expectation,
            "torch": torch.__version__,
        },
    )
    for name, figure in equality.items():
        assert figure["largest_loss"] > 0.1
        assert figure["largest_gap"] < (1e-5 if "float32" in name else 1e-11)
        if "float32" in name:
            assert figure["largest_gap_over_half_width"] < 0.5
    for figure in expectation.values():
        assert_expectation(figure)
