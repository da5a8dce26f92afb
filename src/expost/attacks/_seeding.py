"""One seed for everything random inside an estimator."""

import copy
from typing import Any

import numpy as np

__all__ = ["seeded"]


def seeded(estimator: Any, seed: int) -> Any:
    """``estimator`` with every ``random_state`` in it set from ``seed``, nested ones included.

    A splitter (``cv=KFold(shuffle=True)``) is no estimator and has no parameters to be set: it is
    copied with another state. Names are gone through in order, so that the same estimator gets the
    same states.
    """
    parameters = estimator.get_params(deep=True)
    stateful = [name for name in sorted(parameters) if name.split("__")[-1] == "random_state"]
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
