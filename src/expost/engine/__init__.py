"""Where work on blocks of rows is done: threads of this machine, or a Dask cluster.

An engine maps a task over items and gives the results in the order of the items; it knows no
mathematics, and no result depends on it: tasks run with one BLAS thread each, and whoever reduces
does so in that order.
"""

from expost.engine.base import Engine, engine_of
from expost.engine.local import LocalEngine

__all__ = ["Engine", "LocalEngine", "engine_of"]
