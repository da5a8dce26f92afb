"""Trainings of simulated models: without warnings, in one thread, seeded, and identified.

A reference is a simulation, not a release, so that the warnings of a release do not apply to it.
Thread limits belong to a process, not to a thread. Trainings that overlap in several threads share
one change of them: the first sets it, the last resets it.

A fingerprint identifies a training function, so that the checkpoint of another function is not
used. It covers the function's code, constants, defaults and closure; functions that it calls are
identified by their names. Two functions that differ deeper down have the same fingerprint. Tensors
and modules of torch are identified by their numbers: pickled twice they differ.
"""

import copy
import functools
import hashlib
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

import joblib
import numpy as np
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from expost.engine.threads import one_torch_thread
from expost.errors import (
    BudgetWarning,
    ClippedRowsWarning,
    NoGuaranteeWarning,
    PrivacyLeakWarning,
    RaisedRegularizationWarning,
    SeededReleaseWarning,
    UselessModelWarning,
)
from expost.notices import ignored

__all__ = [
    "fingerprint",
    "one_thread",
    "prototype",
    "seed_number",
    "seeded",
    "without_addresses",
    "without_warnings",
]

# These apply to a release; a reference is none, and the target's own fit has already warned.
_OF_RELEASES = (
    BudgetWarning,
    ClippedRowsWarning,
    NoGuaranteeWarning,
    PrivacyLeakWarning,
    RaisedRegularizationWarning,
    SeededReleaseWarning,
    UselessModelWarning,
)
# expost's estimators count their copies, to warn of a search (estimators, ``__sklearn_clone__``).
_COUNT = "_copies"
# In the default repr of an object; it differs in every process.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_DIGITS = 12


def without_warnings() -> AbstractContextManager[None]:
    """Ignore, in this thread, the warnings of a release."""
    return ignored(*_OF_RELEASES)


class _Shared:
    """A change of the process that its first user makes and its last user reverts."""

    def __init__(self, change: Callable[[], AbstractContextManager[Any]]) -> None:
        self._change = change
        self._lock = threading.Lock()
        self._users = 0
        self._made = ExitStack()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._users:
                self._made.enter_context(self._change())
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._made.close()


@contextmanager
def _single() -> Iterator[None]:
    """Limit to one thread: more threads round sums differently and compete for cores."""
    with threadpool_limits(limits=1), one_torch_thread():
        yield


one_thread = _Shared(_single)


def prototype(estimator: Any) -> Any:
    """Return an unfitted copy without random states that ``estimator`` does not count as a copy.

    None if there is no such copy: not scikit-learn's interface.
    """
    if not (hasattr(estimator, "fit") and hasattr(estimator, "get_params")):
        return None
    parts = [estimator, *estimator.get_params(deep=True).values()]
    counts = [(part, getattr(part, _COUNT)) for part in parts if hasattr(part, _COUNT)]
    fresh = [part for part in parts if hasattr(part, "get_params") and not hasattr(part, _COUNT)]
    try:
        with without_warnings():
            unfitted = clone(estimator)
    except (TypeError, RuntimeError):
        return None
    for part, count in counts:
        setattr(part, _COUNT, count)
    for part in fresh:
        vars(part).pop(_COUNT, None)
    return unfitted.set_params(**dict.fromkeys(_stateful(unfitted)))


def seeded(estimator: Any, seed: int) -> Any:
    """Set every ``random_state`` of ``estimator`` from ``seed``, nested ones included.

    A splitter (``cv=KFold(shuffle=True)``) has no parameters to set: it is copied with another
    state. Names are sorted, so that the same estimator gets the same states.
    """
    parameters, stateful = estimator.get_params(deep=True), _stateful(estimator)
    splitters = [
        name
        for name, value in sorted(parameters.items())
        if not hasattr(value, "get_params")
        and not isinstance(value, type)
        and hasattr(value, "random_state")
    ]
    # 31 bits: every library accepts such a seed.
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
    """Return the names of the random states in ``estimator``."""
    names = sorted(estimator.get_params(deep=True))
    return [name for name in names if name.split("__")[-1] == "random_state"]


def seed_number(seed: np.random.SeedSequence) -> int:
    """Return a seed of 31 bits, which every library accepts."""
    return int(seed.generate_state(1)[0] >> 1)


def fingerprint(value: Any) -> str:
    """Return twelve hexadecimal digits of a function or data, equal in every process."""
    return hashlib.sha256(repr(_parts(value)).encode()).hexdigest()[:_DIGITS]


def without_addresses(text: str) -> str:
    """Return a repr that is the same in every process."""
    return _ADDRESS.sub("", text)


def _parts(value: Any, around: tuple[Any, ...] = ()) -> Any:
    """Return nested lists of strings; ``around`` are the functions that hold ``value``."""
    if isinstance(value, FunctionType):
        if any(value is function for function in around):
            return value.__qualname__  # It calls itself.
        held = [_cell(cell) for cell in value.__closure__ or ()]
        held += [value.__defaults__, value.__kwdefaults__]
        inner = [_parts(part, (*around, value)) for part in held]
        return value.__qualname__, _code(value.__code__), inner
    if isinstance(value, MethodType):
        value = [value.__func__, value.__self__]
    elif isinstance(value, functools.partial):
        value = [value.func, value.args, value.keywords]
    elif hasattr(value, "state_dict") and not isinstance(value, type):
        value = [type(value), repr(value), dict(value.state_dict())]
    # A fitted estimator holds more than its parameters.
    elif is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "get_params"):
        value = [type(value), {field.name: getattr(value, field.name) for field in fields(value)}]
    if isinstance(value, tuple | list):
        return [_parts(part, around) for part in value]
    if isinstance(value, dict):
        return [(repr(key), _parts(part, around)) for key, part in value.items()]
    if value is None or isinstance(value, str | bytes | int | float | complex | type):
        return repr(value)
    return _hash(value)


def _hash(value: Any) -> str:
    try:
        array = value.detach().cpu().numpy() if hasattr(value, "detach") else value
        return str(joblib.hash(array))
    except (pickle.PicklingError, AttributeError, TypeError, ValueError, RecursionError):
        # It cannot be pickled: use its repr.
        return f"{type(value).__qualname__} {without_addresses(repr(value))}"


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        # Empty: not yet defined where the function is.
        return None


def _code(code: CodeType) -> Any:
    return code.co_code, [_constant(part) for part in code.co_consts], code.co_names


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, frozenset):
        # Its order differs in every process.
        return sorted(repr(part) for part in value)
    return repr(value)
