"""Tangents of rows that are visited in blocks: the same losses and expected exposures."""

import pickle
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from expost.errors import InvalidInput
from expost.glm import Objective
from expost.losses import HuberHinge, Logistic, Softmax, Squared
from expost.mechanisms import ObjectivePerturbation, Tangent, tangent
from expost.mechanisms.sampling import SampledTangents, expected_exposures, perturbed_minimisers
from expost.rows import HeldRows
from mechanisms.changes import changed

N, D = 90, 4
LOSSES = (Logistic(), HuberHinge(), Squared(label_bound=1.5), Softmax(classes=3))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReadRows(HeldRows):
    """Rows in blocks of seven, as those of a table."""

    is_held: ClassVar[bool] = False

    def blocks(self):
        return (slice(start, min(start + 7, self.count)) for start in range(0, self.count, 7))


def posed(loss, noise="gaussian", **options):
    """(mechanism, objective, θ)."""
    mechanism = ObjectivePerturbation(
        epsilon=3.0,
        delta=1e-3 if noise == "gaussian" else None,
        noise=noise,
        loss=loss,
        regularization=1e-2,
        rows=N,
        dimension=loss.outputs * D,
        **options,
    )
    rng = np.random.default_rng(4)
    X = rng.normal(size=(N, D))
    X *= (rng.uniform(0.2, 1.0, N) / np.linalg.norm(X, axis=1))[:, None]
    y = rng.integers(0, loss.outputs, N).astype(float)
    if loss.outputs == 1:
        y = np.where(X[:, 0] + 0.3 * rng.normal(size=N) > 0, 1.0, -1.0)
    problem = Objective.of(X=X, y=y, loss=loss, penalty=mechanism.total_regularization)
    return mechanism, problem, mechanism.release(problem, np.random.default_rng(5))


def in_blocks(problem):
    return replace(problem, rows=ReadRows(X=problem.held.X, y=problem.held.y))


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_tangent_that_was_sent_gives_the_losses_of_all_rows(loss, noise):
    mechanism, problem, theta = posed(loss, noise)
    whole = Tangent.at(mechanism, problem, theta).row_losses()
    blocks = in_blocks(problem)
    made = Tangent.at(mechanism, blocks, theta)
    made.check_rows()
    sent = pickle.loads(pickle.dumps(made.detached()))
    assert sent.objective is None
    parts = list(blocks.map(sent.block_losses))
    for name in ("loss", "low", "high", "distance"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_allclose(joined, getattr(whole, name), rtol=0, atol=1e-11)
    sampled = np.concatenate(list(blocks.map(sent.sampled_block_losses)))
    np.testing.assert_allclose(sampled, whole.loss, rtol=0, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_sampled_models_of_read_rows_are_those_of_held_rows(loss):
    mechanism, problem, _ = posed(loss)
    linear = mechanism.law.sample(5, np.random.default_rng(1)) / N
    held, read = (perturbed_minimisers(rows, linear) for rows in (problem, in_blocks(problem)))
    np.testing.assert_allclose(held, read, atol=1e-8)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_expected_exposures_of_blocks_are_those_of_all_rows(loss):
    mechanism, problem, _ = posed(loss)
    mean, error = expected_exposures(mechanism, problem, changed(problem))
    blocks = in_blocks(problem)
    sent = pickle.loads(pickle.dumps(SampledTangents.of(mechanism, blocks)))
    parts = list(blocks.map(sent.exposures))
    np.testing.assert_allclose(
        np.concatenate([part[0] for part in parts]), mean, rtol=1e-6, atol=1e-9
    )
    np.testing.assert_allclose(
        np.concatenate([part[1] for part in parts]), error, rtol=1e-5, atol=1e-9
    )
    assert np.mean(error > 0) > 0.5


@pytest.mark.parametrize("loss", [Logistic(), Softmax(classes=3)], ids=lambda loss: loss.name)
def test_several_tangents_of_one_pass_are_those_of_many(loss, monkeypatch):
    mechanism, problem, theta = posed(loss)
    thetas = np.stack([theta, theta / 2, -theta])
    monkeypatch.setattr(tangent, "_ENTRIES", 2 * problem.dimension**2)
    for point, computed in zip(thetas, Tangent.at_each(mechanism, problem, thetas), strict=True):
        alone = Tangent.at(mechanism, problem, point)
        assert computed.gradient.tobytes() == alone.gradient.tobytes()
        assert computed.hessian.tobytes() == alone.hessian.tobytes()
        # Simulated losses are rounded differently from certified ones, and are the same otherwise.
        simulated = computed.sampled_losses(changed(problem))
        np.testing.assert_allclose(simulated, alone.row_losses().loss, rtol=1e-11, atol=1e-14)
        assert simulated.tobytes() == alone.sampled_losses(changed(problem)).tobytes()


def test_what_needs_all_rows_says_so_of_a_table():
    mechanism, problem, theta = posed(Logistic())

    class Elsewhere:
        """Rows that are not in memory."""

        def __getattr__(self, name):
            return getattr(problem.rows, name)

    made = Tangent.at(mechanism, problem, theta)
    read = replace(made, objective=replace(problem, rows=Elsewhere()))
    with pytest.raises(InvalidInput, match="all rows in memory"):
        read.row_losses()
