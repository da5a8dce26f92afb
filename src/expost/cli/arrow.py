"""Starting pyarrow without pandas.

pyarrow imports pandas, where it is installed, when it first converts a value, because that value
could be a frame. No command ever converts one, and the import takes longer than pyarrow's own.
"""

import sys
from importlib.machinery import ModuleSpec

__all__ = ["start_arrow"]


class _WithoutPandas:
    """A finder of modules that finds no pandas."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def start_arrow() -> None:
    """Let pyarrow look for pandas while there is none; it does not look again.

    pandas can be imported afterwards, by a plug-in for instance.
    """
    if "pandas" in sys.modules:
        return
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        # Both directions: each looks for itself.
        pa.array([0.0]).to_numpy()
    finally:
        sys.meta_path.remove(finder)
