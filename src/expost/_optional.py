"""Optional dependencies: imported when asked for, by one helper."""

from importlib import import_module
from types import ModuleType

from expost.errors import MissingExtra

__all__ = ["require"]


def require(module: str, *, caller: str, extra: str) -> ModuleType:
    """Import ``module`` for ``caller``, or say which ``pip install`` brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"{caller} needs {module}, which is not installed: pip install 'expost[{extra}]'."
        ) from error
