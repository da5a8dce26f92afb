"""How often the public bound on a row's loss is passed, in 1,000 releases of real tables.

    python bench/useful_quantile.py            prints the figures
    python bench/useful_quantile.py --record   also writes docs/evidence/useful-quantile.json

For each table and ε: the share of releases in which the row that passes the bound at q = 0.95 most
often does so, over all rows; the same of the exposure; and the share in which any row passes the
bound for all rows, q = 1 − 0.05/n. Each must be at most 0.05 but for chance: the p-value of a
binomial test is given, for the row that is worst after the fact times the number of rows.
``power`` is the p-value of a bound for q = 0.9 in place of 0.95, on the same releases.
"""

import measure  # isort: skip (it pins BLAS to one thread)
import argparse
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.stats import binom

from expost.data import Encoding, UnitBall, open_table
from expost.data.unit_ball import default_intercept
from expost.estimators import ESTIMATORS
from expost.preparing import objective_over
from expost.losses import Logistic
from expost.rows import HeldRows
from tables import TABLES

SEED, RELEASES = 18, 1000


def figures(name: str, epsilon: float) -> dict[str, Any]:
    """Draw the releases of one table at one ε, and count."""
    table = TABLES[name]()
    columns = dict(table.columns) | {"label": np.where(table.y > 0, "yes", "no")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = open_table(pa.table(columns))
        encoding = Encoding.read(source, target="label")
    encoded = encoding.encode_table(source)
    ball = UnitBall(
        data_norm=encoding.data_norm,
        fit_intercept=True,
        intercept_scaling=default_intercept(len(encoding.entries)),
    )
    X, _ = ball.rows(encoded.X)
    n = len(X)
    mechanism = ESTIMATORS["logistic"]().mechanism_for(Logistic(), n, X.shape[1], epsilon=epsilon)
    objective = objective_over(
        HeldRows(X=X, y=np.asarray(table.y)), Logistic(), mechanism.total_regularization
    )
    sampler = mechanism.sampler(objective)
    models = sampler.sample(epsilon, RELEASES, np.random.default_rng(SEED))
    losses = sampler.losses(epsilon, models, np.random.SeedSequence(0))
    record: dict[str, Any] = {"rows": n, "epsilon": epsilon, "releases": RELEASES}
    for label, sizes, bound in (
        ("loss", losses, mechanism.loss_quantile(0.95)),
        ("exposure", np.abs(losses), mechanism.loss_quantile(0.95, two_sided=True)),
    ):
        most = int(np.sum(sizes > bound, axis=0).max())
        p_value = min(n * float(binom.sf(most - 1, RELEASES, 0.05)), 1.0)
        record[label] = {"bound": bound, "most often": most / RELEASES, "p-value": p_value}
    every = int(np.sum(losses.max(axis=1) > mechanism.loss_quantile(1 - 0.05 / n)))
    p_value = float(binom.sf(every - 1, RELEASES, 0.05))
    record["all rows"] = {"passed": every / RELEASES, "p-value": p_value}
    wrong = int(np.sum(losses > mechanism.loss_quantile(0.9), axis=0).max())
    record["power"] = min(n * float(binom.sf(wrong - 1, RELEASES, 0.05)), 1.0)
    return record


def main() -> None:
    """Count on three tables at three ε."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--record", action="store_true")
    record = parser.parse_args().record
    records = {}
    for name in ("cancer", "wine", "car"):
        for epsilon in (0.3, 1.0, 2.6):
            records[f"{name}, ε = {epsilon:g}"] = figures(name, epsilon)
            print(name, records[f"{name}, ε = {epsilon:g}"], flush=True)
    if record:
        measure.record("useful-quantile", __file__, SEED, records)


if __name__ == "__main__":
    main()
