"""How often a model of Adult is kept when rows are erased, and how many draws that takes.

    python bench/erasure.py            prints the figures
    python bench/erasure.py --record   also writes docs/evidence/erasure-adult.json

The default model (logistic loss) of UCI Adult at three ε, its encoding read from the data. For each
of 40 releases: min(1, e^(−ℓ)) of 500 random rows that leave alone, of the row that is kept least
often, and of random parts of 1 % of the rows that leave at once. Couplings are drawn for a random
row, or part, of each release; a redraw of probability T takes 1/T draws, so that the mean is 1.
"""

import measure  # isort: skip (it pins BLAS to one thread)
import argparse
import time
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import tables

from expost.data import Encoding, UnitBall, open_table
from expost.data.unit_ball import default_intercept
from expost.erasure.coupling import couple, total_variation
from expost.mechanisms.law_pairs import ObjectivePair
from expost.estimators import ESTIMATORS
from expost.glm import Objective
from expost.losses import Logistic
from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.person_losses import loss_of_rows
from expost.mechanisms.tangent import Tangent
from expost.rows import HeldRows, rows_at, without
from expost.types import FloatArray, IntArray

SEED, RELEASES, ROWS, PARTS = 20261118, 40, 500, 3
# The largest error of the law that a certificate states (expost.erasure.plan).
LARGEST_ERROR = 0.01


def encoded() -> HeldRows:
    """Adult as `expost profile` encodes it, in the unit ball."""
    table = tables.adult()
    columns = dict(table.columns) | {"label": np.where(table.y > 0, "yes", "no")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = open_table(pa.table(columns))
        encoding = Encoding.read(source, target="label")
    ball = UnitBall(
        data_norm=encoding.data_norm,
        fit_intercept=True,
        intercept_scaling=default_intercept(len(encoding.entries)),
    )
    X, _ = ball.rows(encoding.encode_table(source).X)
    return HeldRows(X=X, y=np.asarray(table.y))


def objective_of(mechanism: ObjectivePerturbation, rows: HeldRows) -> Objective:
    """J over the rows."""
    penalty = np.full(mechanism.dimension, mechanism.total_regularization)
    return Objective(rows=rows, loss=mechanism.loss, penalty=penalty)


def pair_of(
    mechanism: ObjectivePerturbation, rows: HeldRows, present: Objective, numbers: IntArray
) -> ObjectivePair:
    """The laws before and after these rows leave."""
    fewer = without(rows, numbers)
    assert isinstance(fewer, HeldRows)
    after = mechanism.with_rows(fewer.count)
    changed = objective_of(after, fewer)
    return ObjectivePair(
        before=mechanism, after=after, present=present, changed=changed, rows=rows_at(rows, numbers)
    )


def drawn(
    mechanism: ObjectivePerturbation,
    rows: HeldRows,
    present: Objective,
    chosen: list[tuple[FloatArray, IntArray]],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Couple each of some models without its rows, and count."""
    tries, kept, seconds = [], [], []
    for theta, numbers in chosen:
        pair = pair_of(mechanism, rows, present, numbers)
        start = time.perf_counter()
        coupled = couple(pair, theta, mechanism.grid, rng=rng)
        seconds.append(time.perf_counter() - start)
        tries.append(coupled.tries)
        kept.append(coupled.is_kept)
    redrawn = [count for count, is_kept in zip(tries, kept, strict=True) if not is_kept]
    return {
        "couplings": len(chosen),
        "kept": sum(kept),
        "mean tries": float(np.mean(tries)),
        "standard error": float(np.std(tries) / np.sqrt(len(tries))),
        "tries of those that were redrawn": redrawn,
        "median seconds": float(np.median(seconds)),
        "most seconds": float(np.max(seconds)),
    }


def summary(keeping: FloatArray) -> dict[str, float]:
    """Mean and worst of (releases, rows) probabilities; a part of the rows counts as one."""
    return {
        "mean": float(keeping.mean()),
        "worst": float(keeping.min()),
        "worst mean over releases": float(keeping.mean(axis=0).min()),
        "worst mean of a release": float(keeping.mean(axis=1).min()),
    }


def figures(rows: HeldRows, epsilon: float, couplings: int) -> dict[str, Any]:
    """Keeping probabilities and couplings at one ε."""
    rng = np.random.default_rng(SEED)
    n, loss = rows.count, Logistic()
    mechanism = ESTIMATORS["logistic"]().mechanism_for(loss, n, rows.columns, epsilon=epsilon)
    assert isinstance(mechanism, ObjectivePerturbation)
    present = objective_of(mechanism, rows)
    sampler = mechanism.sampler(present)
    models = mechanism.grid.snap(sampler.sample(epsilon, RELEASES, rng))
    losses = sampler.losses(epsilon, models, np.random.SeedSequence(0))
    keeping = np.minimum(1.0, np.exp(-losses))
    sample = np.sort(rng.choice(n, ROWS, replace=False))
    size = round(n / 100)
    parts = [np.sort(rng.choice(n, size, replace=False)) for _ in range(PARTS)]
    tangents = Tangent.at_each(mechanism, present, models)
    of_parts = np.array(
        [[loss_of_rows(tangent, rows_at(rows, part))[0] for part in parts] for tangent in tangents]
    )
    record: dict[str, Any] = {
        "rows": n,
        "columns": rows.columns,
        "noise": mechanism.noise,
        "delta": mechanism.delta,
        "releases": RELEASES,
        f"one of {ROWS} rows": summary(keeping[:, sample]),
        "one of all rows": summary(keeping),
        "public bound on the mean, one row": 1 - mechanism.advantage_of(1),
        "1 % of the rows": summary(np.minimum(1.0, np.exp(-of_parts))),
        "error of the law, one row": total_variation(mechanism, mechanism.with_rows(n - 1)),
        "error of the law, 1 %": total_variation(mechanism, mechanism.with_rows(n - size)),
    }
    print(epsilon, record, flush=True)
    singles = [
        (models[k % RELEASES], np.array([row]))
        for k, row in enumerate(rng.choice(n, couplings, replace=False))
    ]
    record["couplings of one row"] = drawn(mechanism, rows, present, singles, rng)
    print(record["couplings of one row"], flush=True)
    if record["error of the law, 1 %"] <= LARGEST_ERROR:
        some = [(models[k % RELEASES], parts[k % PARTS]) for k in range(couplings // 5)]
        record["couplings of 1 %"] = drawn(mechanism, rows, present, some, rng)
    else:
        record["couplings of 1 %"] = "refused: public constants do not bound the error"
    print(record["couplings of 1 %"], flush=True)
    return record


def main() -> None:
    """Count at three ε."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--record", action="store_true", help="also write docs/evidence")
    parser.add_argument("--couplings", type=int, default=600)
    options = parser.parse_args()
    rows = encoded()
    table: dict[str, object] = {
        f"epsilon = {epsilon:g}": figures(rows, epsilon, options.couplings)
        for epsilon in (0.1, 1.0, 8.0)
    }
    if options.record:
        measure.record("erasure-adult", __file__, SEED, table)


if __name__ == "__main__":
    main()
