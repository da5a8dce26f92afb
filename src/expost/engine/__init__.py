"""Where work on blocks of rows is done: threads of this machine, or a Dask cluster.

An engine maps a task over items and gives the results in the order of the items; it knows no
mathematics, and no result depends on it: tasks run with one BLAS thread each, and whoever reduces
does so in that order.

The engines are imported when they are used: the command line needs :mod:`expost.engine.progress`
alone, and answers ``--help`` before NumPy is there.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from expost.engine.base import Engine, engine_of
    from expost.engine.local import LocalEngine

__all__ = ["Engine", "LocalEngine", "engine_of"]

_MODULES = {"Engine": "base", "engine_of": "base", "LocalEngine": "local"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
