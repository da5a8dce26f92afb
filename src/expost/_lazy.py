"""Packages that import a name when it is first used, so that programs start quickly."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["importer"]


def importer(package: str, contents: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package.

    Parameters
    ----------
    contents : Mapping[str, str]
        The exported names, and the submodule that each is imported from.
    """

    def find(name: str) -> Any:
        if name not in contents:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{contents[name]}"), name)
        setattr(import_module(package), name, value)
        return value

    return find
