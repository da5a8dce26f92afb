"""What :mod:`utility` runs: the fits of one library, in the environment that has it.

    python bench/utility_peers.py NAME        NAME is one of FITS below

Each line of standard input is a request, ``{"data": a .npz that utility.py wrote, "fits":
[{"epsilon": …, "delta": …, "seed": …, "setting": {…}}, …]}``; each fit is answered by a line with
its held-out AUC, log loss and seconds of CPU. Each function below returns log-odds of the held-out
rows. The libraries are imported inside of these functions, because no environment has all of them.
"""

import functools
import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm, rankdata

MISSING = ("", "?")


class Split:
    """The rows of one split: encoded (``X``), as raw columns (``columns``), and labels ±1."""

    def __init__(self, path: str) -> None:
        with np.load(path) as file:
            self._arrays = {name: file[name] for name in file.files}
        self.X, self.X_test = self._arrays["X_train"], self._arrays["X_test"]
        self.names = [str(name) for name in self._arrays["names"]]
        self.y, self.y_test = self._arrays["y_train"], self._arrays["y_test"]
        self._made: dict[str, Any] = {}
        self.encoded: Any = None

    def columns(self, part: str) -> dict[str, np.ndarray]:
        """The raw columns of "train" or "test"."""
        return {name: self._arrays[f"{part}:{k}"] for k, name in enumerate(self.names)}

    def once(self, name: str, make: Callable[[np.ndarray], np.ndarray]) -> Any:
        """``make`` of the encoded rows of both parts, computed once."""
        if name not in self._made:
            self._made[name] = make(self.X), make(self.X_test)
        return self._made[name]


Fit = Callable[[Split, float, float, int, dict[str, Any]], np.ndarray]


def auc(z: np.ndarray, y: np.ndarray) -> float:
    """The area under the ROC curve; ties count one half."""
    ranks, positive = rankdata(z), y > 0
    count = np.count_nonzero(positive)
    above = ranks[positive].sum() - count * (count + 1) / 2
    return float(above / (count * (len(y) - count)))


def log_loss(z: np.ndarray, y: np.ndarray) -> float:
    """−log probability of the true label, mean over rows."""
    return float(np.mean(np.logaddexp(0, -y * z)))


@functools.cache
def gaussian_scale(epsilon: float, delta: float) -> float:
    """σ of the exactly (ε, δ)-DP Gaussian mechanism of sensitivity 1 (Balle & Wang 2018)."""

    def excess(log_scale: float) -> float:
        scale = np.exp(log_scale)
        lost = norm.logcdf(-epsilon * scale - 1 / (2 * scale)) + epsilon
        return float(norm.cdf(1 / (2 * scale) - epsilon * scale) - np.exp(lost) - delta)

    return float(np.exp(brentq(excess, -10, 15, xtol=1e-12)))


# -- expost ----------------------------------------------------------------------------------------


def _encoded(split: Split) -> tuple[Any, Any, Any]:
    """The command line's encoding of the training rows, and the rows of both parts under it."""
    import pyarrow as pa
    from expost.data import Encoding, open_table

    if split.encoded is None:

        def table(part: str, y: np.ndarray) -> Any:
            columns = {
                name: pa.array(cells.tolist()) for name, cells in split.columns(part).items()
            }
            return pa.table(columns | {"label": pa.array(np.where(y > 0, "yes", "no"))})

        rows = open_table(table("train", split.y), missing=MISSING)
        encoding = Encoding.read(rows, target="label")
        others = encoding.open(table("test", split.y_test))
        split.encoded = encoding, encoding.encode_table(rows), encoding.encode_table(others)
    return split.encoded


def _log_odds(estimator: Any, X: np.ndarray) -> np.ndarray:
    logs = estimator.predict_log_proba(X)
    return logs[:, 1] - logs[:, 0]


def fit_before(split: Split, epsilon: float, delta: float, seed: int, _: dict) -> np.ndarray:
    """Expost of commit 50f0466, with what its command line does by default (delta is not used)."""
    from expost import PrivateLogisticRegression

    encoding, train, test = _encoded(split)
    estimator = PrivateLogisticRegression(
        epsilon=epsilon,
        mechanism="output",
        noise="laplace",
        regularization="auto",
        intercept_scaling=0.1,
        data_norm=encoding.data_norm,
        classes=("no", "yes"),
        random_state=seed,
    )
    estimator.fit(train.X, np.where(train.y > 0, "yes", "no"))
    return _log_odds(estimator, test.X)


def fit_default(
    split: Split, epsilon: float, delta: float, seed: int, setting: dict[str, Any]
) -> np.ndarray:
    """The current package as the command line uses it: nothing is set but ε (δ is its own)."""
    from pathlib import Path

    from expost import PrivateLogisticRegression
    from expost.jobs.requests import TableRequest
    from expost.jobs.table import training_of

    encoding, train, test = _encoded(split)
    job = TableRequest(source=None, target="label", out=Path(), name="utility")
    training = training_of(job, encoding, epsilon=epsilon, random_state=seed)
    # The rows are encoded already: p is the number of columns of the table, as in a command.
    ball = training.ball(len(encoding.entries))
    parameters = vars(training) | {"intercept_scaling": ball.intercept_scaling} | setting
    estimator = PrivateLogisticRegression(**parameters)
    estimator.fit(train.X, np.where(train.y > 0, "yes", "no"))
    return _log_odds(estimator, test.X)


def fit_oracle(
    split: Split, epsilon: float, delta: float, seed: int, setting: dict[str, Any]
) -> np.ndarray:
    """Objective perturbation with Gaussian noise, its clip and Λ given as multiples.

    ``clip``: data_norm in units of √p, p raw columns. ``factor``: Λ in units of r/20 + r², where
    r = σ√d/n and σ is the plain scale of Gaussian noise at (ε, δ). Numbers are cut at ±2, held-out
    rows are clipped as the others are, the intercept is 1/√(p + 1).
    """
    from expost import PrivateLogisticRegression

    p, (count, width) = len(split.names), split.X.shape
    bound = setting["clip"] * np.sqrt(p)
    r = gaussian_scale(epsilon, delta) * np.sqrt(width + 1) / count
    estimator = PrivateLogisticRegression(
        epsilon=epsilon,
        delta=delta,
        mechanism="objective",
        noise="gaussian",
        regularization=float(setting["factor"] * (r / 20 + r * r)),
        intercept_scaling=float(1 / np.sqrt(p + 1)),
        data_norm=float(bound),
        classes=(-1.0, 1.0),
        random_state=seed,
    )
    X, X_test = split.once(
        f"cut, {bound}", lambda X: _clipped(np.clip(X, -2, 2), bound * (1 - 1e-12))
    )
    estimator.fit(X, split.y)
    return _log_odds(estimator, X_test)


def _clipped(X: np.ndarray, bound: float) -> np.ndarray:
    lengths = np.sqrt(np.einsum("ij,ij->i", X, X))
    return X * np.minimum(1, bound / np.maximum(lengths, 1e-300))[:, None]


# -- others ----------------------------------------------------------------------------------------


def fit_without(split: Split, epsilon: float, delta: float, seed: int, _: dict) -> np.ndarray:
    """scikit-learn's logistic regression without privacy, C by 3-fold cross-validated log loss."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score

    def model(C: float) -> Any:
        return LogisticRegression(C=C, solver="newton-cholesky", max_iter=100)

    def score(C: float) -> float:
        scores = cross_val_score(model(C), split.X, split.y, cv=3, scoring="neg_log_loss")
        return float(scores.mean())

    best = max((0.001, 0.01, 0.1, 1.0, 10.0, 100.0), key=score)
    return np.asarray(model(best).fit(split.X, split.y).decision_function(split.X_test))


def fit_diffprivlib(
    split: Split, epsilon: float, delta: float, seed: int, setting: dict[str, Any]
) -> np.ndarray:
    """diffprivlib's logistic regression; pure ε, so delta is not used.

    Without a setting: its defaults, data_norm = the largest norm, C = 1. Else ``clip``, data_norm
    in units of √p, and ``C``; held-out rows are clipped too.
    """
    from diffprivlib.models import LogisticRegression

    X, X_test, options = split.X, split.X_test, {}
    if setting:
        bound = float(setting["clip"] * np.sqrt(len(split.names)))
        X, X_test = split.once(f"{bound}", lambda X: _clipped(X, bound * (1 - 1e-12)))
        options = {"data_norm": bound, "C": setting["C"]}
    model = LogisticRegression(epsilon=epsilon, random_state=seed, **options)
    return np.asarray(model.fit(X, split.y).decision_function(X_test))


def fit_interpret(split: Split, epsilon: float, delta: float, seed: int, _: dict) -> np.ndarray:
    """interpret's DP-EBM on the raw columns, all defaults; types of columns are declared."""
    import pandas as pd
    from interpret.privacy import DPExplainableBoostingClassifier

    train, test = (pd.DataFrame(split.columns(part)) for part in ("train", "test"))
    types = [
        "nominal" if column.dtype.kind == "U" else "continuous"
        for column in split.columns("train").values()
    ]
    model = DPExplainableBoostingClassifier(
        epsilon=epsilon, delta=delta, feature_types=types, random_state=seed, n_jobs=1
    )
    return np.asarray(model.fit(train, split.y > 0).decision_function(test))


@functools.cache
def _noise_multiplier(epsilon: float, delta: float, rate: float, steps: int) -> float:
    from opacus.accountants.utils import get_noise_multiplier

    # The accountant's own error is .01 by default, which at ε = .01 would be all of ε.
    error = min(0.01, epsilon / 50)
    return get_noise_multiplier(
        target_epsilon=epsilon,
        target_delta=delta,
        sample_rate=rate,
        steps=steps,
        accountant="prv",
        epsilon_tolerance=error,
        eps_error=error,
    )


def fit_opacus(
    split: Split, epsilon: float, delta: float, seed: int, setting: dict[str, Any]
) -> np.ndarray:
    """Logistic regression by DP-SGD: Poisson batches, starts at 0, last iterate.

    ``batches``: batches an epoch (1/sampling rate); ``steps``; ``clip``: the bound of a gradient's
    norm in units of √p (without it, the bound is 1); ``rate``: learning rate × that bound.
    """
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, Dataset

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    X = torch.tensor(split.X, dtype=torch.float32)
    y = torch.tensor(split.y > 0, dtype=torch.float32)

    class Rows(Dataset):
        """A batch is taken at once, not row by row."""

        def __len__(self) -> int:
            return len(y)

        def __getitem__(self, index: int) -> Any:
            return X[index], y[index]

        def __getitems__(self, index: list[int]) -> Any:
            return X[index], y[index]

    batches, steps = setting["batches"], setting["steps"]
    bound = setting["clip"] * float(np.sqrt(len(split.names))) if "clip" in setting else 1.0
    module = torch.nn.Linear(X.shape[1], 1)
    torch.nn.init.zeros_(module.weight)
    torch.nn.init.zeros_(module.bias)
    model, optimizer, loader = PrivacyEngine(accountant="prv").make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=setting["rate"] / bound),
        data_loader=DataLoader(Rows(), batch_size=-(-len(y) // batches), collate_fn=lambda b: b),
        noise_multiplier=_noise_multiplier(epsilon, delta, 1 / batches, steps),
        max_grad_norm=bound,
    )
    loss = torch.nn.BCEWithLogitsLoss()
    assert (len(loader), steps % batches) == (batches, 0)
    for _ in range(steps // batches):
        for rows, labels in loader:
            optimizer.zero_grad()
            loss(model(rows)[:, 0], labels).backward()
            optimizer.step()
    with torch.no_grad():
        return module(torch.tensor(split.X_test, dtype=torch.float32))[:, 0].double().numpy()


FITS: dict[str, Fit] = {
    "before": fit_before,
    "default": fit_default,
    "oracle": fit_oracle,
    "without": fit_without,
    "diffprivlib": fit_diffprivlib,
    "interpret": fit_interpret,
    "opacus": fit_opacus,
}


def main() -> None:
    warnings.simplefilter("ignore")  # seeds, bounds read from the data: utility.md names them
    fit = FITS[sys.argv[1]]
    for line in sys.stdin:
        request = json.loads(line)
        split = Split(request["data"])
        for wanted in request["fits"]:
            start = time.process_time()
            known = (wanted["epsilon"], wanted["delta"], wanted["seed"], wanted["setting"])
            z = fit(split, *known)
            answer = {"auc": auc(z, split.y_test), "log_loss": log_loss(z, split.y_test)}
            print(json.dumps(answer | {"seconds": time.process_time() - start}), flush=True)


if __name__ == "__main__":
    main()
