"""The profile of a scikit-learn model without noise, beside one fit of it.

Run by ``make bench``; :mod:`measure` says how ratios are taken. The two sides alternate. Times are
those of the processor: both sides have one thread, and other work on the machine disturbs them less
than the clock.

    python bench/noiseless.py [--record] [--times 9]
"""

import gc
import time
import warnings
from collections.abc import Callable

import measure
import numpy as np
from sklearn.linear_model import LogisticRegression

from expost import profile

SEED = 20261118
ROWS, NUMBERS, LEVELS = 20_594, 20, 43


def data() -> tuple[np.ndarray, np.ndarray]:
    """20 columns of numbers and 43 of levels that 0 to 30 % of the rows have; noisy labels."""
    rng = np.random.default_rng(SEED)
    X = np.column_stack(
        [
            rng.standard_normal((ROWS, NUMBERS)),
            rng.random((ROWS, LEVELS)) < 0.3 * rng.random(LEVELS),
        ]
    )
    weights = 0.5 * rng.standard_normal(X.shape[1])
    return X, (X @ weights + rng.logistic(size=ROWS) > 0).astype(int)


def processor(work: Callable[[], object]) -> float:
    """Seconds of processor time."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def against_one_fit(C: float, times: int) -> dict[str, object]:
    """All rows certified and the top 100 exact, over one fit at scikit-learn's default tol."""
    X, y = data()
    model = LogisticRegression(C=C).fit(X, y)
    result = profile(model, X, y)
    seconds = np.array(
        [
            (processor(lambda: profile(model, X, y)), processor(lambda: model.fit(X, y)))
            for _ in range(times)
        ]
    )
    assert result.top is not None
    assert result.left_out is not None
    relative = result.distance_error / result.distance
    ours = seconds[:, 0]
    name = f"profile without noise / one fit, {ROWS:,} × {X.shape[1]}, C = {C:g}"
    return {
        **measure.row(name, ours / seconds[:, 1]),
        "seconds": round(float(np.median(ours)), 3),
        "rows refined": result.top.refined,
        "ranks certified": result.top.certified,
        "median relative error of a shift": float(f"{np.median(relative):.3g}"),
        "rows without an interval": int(np.count_nonzero(~np.isfinite(relative))),
        "distance of the model from the minimiser": float(f"{result.model_distance:.3g}"),
        "undecided classes": result.left_out.undecided,
    }


def main() -> None:
    options = measure.options(__doc__, peak=1)
    warnings.simplefilter("ignore")
    if options.peak:
        X, y = data()
        profile(LogisticRegression(C=float(options.peak[0])).fit(X, y), X, y)
        measure.print_peak()
        return
    print(f"{'ratio of paired times, one thread each':<{measure.WIDTH}} {'median':>11}  (range)")
    table: dict[str, object] = {f"C={C:g}": against_one_fit(C, options.times) for C in (1.0, 0.01)}
    name = f"profile without noise of {ROWS:,} rows"
    table["peak C=1"] = measure.peak_memory(name, __file__, "1")
    if options.record:
        measure.record("bench-noiseless", __file__, SEED, table)


if __name__ == "__main__":
    main()
