"""The extension of griffe that reads our docstrings, before mkdocstrings shows their sections.

Docstrings follow numpydoc. Markdown has no roles, and griffe cannot compute a docstring that is
built with its class.
"""

import inspect
import re
from importlib import import_module
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`~?(?:expost\.)?([^`]+)`")


class Readable(griffe.Extension):
    """Rewrite every docstring once it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of ``obj``, if it has one."""
        if obj.is_class and "__doc__" in obj.members:
            obj.docstring = _computed(obj)
            obj.del_member("__doc__")
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(r"`\1`", obj.docstring.value)


def _computed(cls: griffe.Object) -> griffe.Docstring:
    """Return a docstring that is built with its class, which must be imported."""
    computed = getattr(import_module(cls.module.path), cls.name).__doc__
    return griffe.Docstring(inspect.cleandoc(computed), parent=cls, parser="numpy")
