"""Packages whose names are imported when they are first used, so that programs start quickly."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["importer"]


def importer(package: str, contents: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package.

    ``contents``  the names that it offers, and the module below it that each comes from.
    """

    def find(name: str) -> Any:
        if name not in contents:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{contents[name]}"), name)
        setattr(import_module(package), name, value)
        return value

    return find
