"""Copies of an estimator to be fitted: what is random inside them, from one seed."""

import copy
from typing import Any

import numpy as np
from sklearn.base import clone

from expost.attacks._quiet import without_warnings

__all__ = ["prototype", "seeded"]

# expost's estimators count their copies, to warn of a search (estimators, ``__sklearn_clone__``).
_COUNT = "_copies"


def prototype(estimator: Any) -> Any:
    """An unfitted copy without any random state; ``estimator`` does not count it among its copies.

    None where there is no such copy: not scikit-learn's interface.
    """
    if not (hasattr(estimator, "fit") and hasattr(estimator, "get_params")):
        return None
    parts = [estimator, *estimator.get_params(deep=True).values()]
    counts = [(part, getattr(part, _COUNT)) for part in parts if hasattr(part, _COUNT)]
    fresh = [part for part in parts if hasattr(part, "get_params") and not hasattr(part, _COUNT)]
    try:
        with without_warnings():
            found = clone(estimator)
    except (TypeError, RuntimeError):
        return None
    for part, count in counts:
        setattr(part, _COUNT, count)
    for part in fresh:
        vars(part).pop(_COUNT, None)
    return found.set_params(**dict.fromkeys(_stateful(found)))


def seeded(estimator: Any, seed: int) -> Any:
    """``estimator`` with every ``random_state`` in it set from ``seed``, nested ones included.

    A splitter (``cv=KFold(shuffle=True)``) is no estimator and has no parameters to be set: it is
    copied with another state. Names are gone through in order, so that the same estimator gets the
    same states.
    """
    parameters, stateful = estimator.get_params(deep=True), _stateful(estimator)
    splitters = [
        name
        for name, value in sorted(parameters.items())
        if not hasattr(value, "get_params")
        and not isinstance(value, type)
        and hasattr(value, "random_state")
    ]
    # 31 bits: what every library takes for a seed.
    drawn = np.random.SeedSequence(seed).generate_state(len(stateful) + len(splitters)) >> 1
    changed: dict[str, Any] = {}
    for name, state in zip([*stateful, *splitters], drawn.tolist(), strict=True):
        if name in stateful:
            changed[name] = state
        else:
            changed[name] = copy.copy(parameters[name])
            changed[name].random_state = state
    return estimator.set_params(**changed) if changed else estimator


def _stateful(estimator: Any) -> list[str]:
    """The names of the random states in it."""
    names = sorted(estimator.get_params(deep=True))
    return [name for name in names if name.split("__")[-1] == "random_state"]
