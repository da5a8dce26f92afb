"""The accountant of an Opacus run, read from the optimizer.

``make_private`` attaches a step hook that its accountant made, a closure over the accountant. It is
read and never called: the accountant counts what it counted without the tracker.
"""

import inspect
import warnings
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

__all__ = ["read_accountant", "recorded_steps", "reported_epsilon"]


def read_accountant(optimizer: Any) -> Any | None:
    """Return the accountant behind the optimizer's step hook, or None where there is none.

    Parameters
    ----------
    optimizer : Any
        The optimizer of ``PrivacyEngine.make_private``.

    Returns
    -------
    Any | None
        An object with ``get_epsilon(delta)`` and a length, the number of recorded entries.
    """
    hook = getattr(optimizer, "step_hook", None)
    if not inspect.isfunction(hook):
        return None
    accountant = inspect.getclosurevars(hook).nonlocals.get("self")
    readable = callable(getattr(accountant, "get_epsilon", None)) and hasattr(accountant, "__len__")
    return accountant if readable else None


def reported_epsilon(accountant: Any | None) -> Callable[[float], float] | None:
    """Return the ε that the accountant reports now, as a function of δ.

    It is not computed before it is called: orders of Rényi divergence can take longer than steps.

    Parameters
    ----------
    accountant : Any | None
        The result of :func:`read_accountant`; what it records later does not change the function.

    Returns
    -------
    callable, optional
        None where there is no accountant, or it has recorded no step.
    """
    if accountant is None or not len(accountant):
        return None
    return partial(_epsilon, deepcopy(accountant))


def recorded_steps(accountant: Any | None) -> int:
    """Return the number of steps that the accountant has recorded; 0 where there is none.

    Parameters
    ----------
    accountant : Any | None
        The result of :func:`read_accountant`.

    Returns
    -------
    int
        The steps, of every optimizer and training of its engine.
    """
    return sum(int(steps) for *_, steps in getattr(accountant, "history", ()))


def _epsilon(accountant: Any, delta: float) -> float:
    with warnings.catch_warnings():
        # Opacus warns where its orders of Rényi divergence do not suffice.
        warnings.simplefilter("ignore")
        return float(accountant.get_epsilon(delta))
