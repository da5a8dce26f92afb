"""Fits as JSON lines, for :mod:`papers.diffprivlib_066.finding`, where diffprivlib is installed.

Each line of standard input is one request, ``{"data": a .npz with X and y, "settings": …, "seeds":
[…]}``; the answer is a line with each fit's public attributes, its seconds, and the noise that its
seed draws. Nothing of expost is imported here.
"""

import json
import sys
import time
import warnings

import diffprivlib
import numpy as np
import scipy
import sklearn
from diffprivlib.mechanisms import Vector
from diffprivlib.models import LogisticRegression

READ = ("coef_", "intercept_", "n_iter_", "classes_")


def noise(model: LogisticRegression, rows: int, seed: int) -> list[list[float]]:
    """b of each fit of a model: what its mechanism adds to the gradient of 0, times n."""
    count, dimension = len(model.coef_), model.coef_.shape[1] + model.fit_intercept
    rng = np.random.RandomState(seed)  # What diffprivlib makes of a seed.
    mechanism = Vector(
        epsilon=model.epsilon / count,
        dimension=dimension,
        alpha=1 / model.C,
        function_sensitivity=0.25,
        data_sensitivity=np.sqrt(model.data_norm**2 + model.fit_intercept),
        n=rows,
        random_state=rng,
    )
    draws = []
    for _ in range(count):
        flat = mechanism.randomise(lambda theta: (0.0, np.zeros_like(theta)))
        draws.append((flat(np.zeros(dimension))[1] * rows).tolist())
    return draws


def fit(X: np.ndarray, y: np.ndarray, settings: dict[str, object], seed: int) -> dict[str, object]:
    """Return the public attributes of one fit, its seconds and its noise."""
    model = LogisticRegression(random_state=seed, **settings)
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    record = {name: np.asarray(getattr(model, name)).tolist() for name in READ}
    record |= {"max_iter": model.max_iter, "tol": model.tol}
    return record | {"seconds": seconds, "noise": noise(model, len(X), seed)}


def main() -> None:
    """Answer requests until standard input ends."""
    # One of them for each fit: that a seed is not private, that scikit-learn will drop 'ovr'.
    warnings.simplefilter("ignore")
    versions = {part.__name__: part.__version__ for part in (np, scipy, sklearn, diffprivlib)}
    print(json.dumps(versions), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        with np.load(request["data"]) as data:
            X, y = data["X"], data["y"]
        fits = [fit(X, y, request["settings"], seed) for seed in request["seeds"]]
        print(json.dumps(fits), flush=True)


if __name__ == "__main__":
    main()
