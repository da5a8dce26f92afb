"""Choices of ε to report on: small, and of every kind that a page must cope with."""

from functools import cache

import numpy as np

import expost
from settings import OUTPUT

MODELS = 30


def data(rows=90, columns=2, seed=5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=rows) > 0, "yes", "no")
    return X, y


@cache
def chosen(kind="laplace"):
    """A choice of ε; the same object each time."""
    X, y = data()
    options = {
        **OUTPUT,
        "regularization": 0.05,
        "models": MODELS,
        "folds": 3,
        "random_state": 1,
        "data_norm": 6.0,
        "classes": ("no", "yes"),
    }
    match kind:
        case "laplace":
            pass
        case "gaussian":
            options |= {"noise": "gaussian", "delta": 1e-6, "prior": 0.1, "quantile": 0.9}
        case "none":
            options |= {"max_posterior": 0.501}
        case "objective" | "enough":
            options |= {"mechanism": "objective", "noise": "gaussian", "delta": "auto"}
            options |= {"regularization": "auto", "data_norm": "auto"}
            options |= {"max_posterior": 0.75 if kind == "objective" else 0.999}
        case "unmeasured":
            options |= {"folds": 0, "epsilons": [3.0]}
        case "line":
            X = X[:, :1]
            options |= {"fit_intercept": False, "rows": 1.0}
        case "regression":
            y = X[:, 0] + 0.1 * X[:, 1]
            del options["classes"]
            options |= {"loss": "squared", "label_range": (-4.0, 4.0)}
        case "still":
            # Pairs of opposite labels put the minimiser at 0, where rows of zeros move nothing.
            X = np.repeat(np.where(np.arange(45)[:, None] < 12, X[:45], 0.0), 2, axis=0)
            y = np.where(np.arange(90) % 2, "yes", "no")
            options |= {"fit_intercept": False}
        case "no plateau":
            # At this δ the noise stays small however small ε is.
            options |= {"noise": "gaussian", "delta": 0.9999, "folds": 0, "max_posterior": 0.999}
            options |= {"regularization": 10.0, "data_norm": 1.0}
    return expost.choose_epsilon(X, y, **options)


KINDS = (
    *("laplace", "gaussian", "objective", "enough", "none", "unmeasured", "line", "regression"),
    *("still", "no plateau"),
)
