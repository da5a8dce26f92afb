"""The extension of griffe that turns our docstrings into the Markdown that mkdocstrings shows.

Docstrings are written to be read in an editor: names in double backticks with their meaning beside
them, aligned; roles of Sphinx; headings with a line of dashes below. Each of these has one rule
here, so that no docstring is written for a tool.
"""

import inspect
import re
from importlib import import_module
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`~?(?:expost\.)?([^`]+)`")
# ``name``, ``name``    what it is;  or, in the estimators, name : type
_ENTRY = re.compile(r"((?:``[^`]+``(?:, |: ?)?)+)(?: {2,}|: )(\S.*)$")
# A long name leaves no room for two blanks: among entries one will do, or what it is stands below.
_LONG_ENTRY = re.compile(r"((?:``[^`]+``(?:, )?)+)(?: +(\S.*))?$")
_PARAMETER = re.compile(r"(\w+(?:, \w+)*) : (\S.*)$")
_COLUMNS = re.compile(r"\S {3,}\S")


class Readable(griffe.Extension):
    """Rewrite every docstring once it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of ``obj``, if it has one."""
        if obj.is_class and "__doc__" in obj.members:
            obj.docstring = _computed(obj)
            obj.del_member("__doc__")
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def _computed(cls: griffe.Object) -> griffe.Docstring:
    """Return a docstring that is built with its class, which must be imported."""
    documented = getattr(import_module(cls.module.path), cls.name)
    return griffe.Docstring(inspect.cleandoc(documented.__doc__), parent=cls)


def markdown(text: str) -> str:
    """``text`` of a docstring as Markdown."""
    text = _ROLE.sub(r"`\1`", text)
    text = re.sub(r"(?m)^(\S.*)\n-{3,}\n", r"**\1**\n\n", text)
    return "\n\n".join(_paragraph(part) for part in re.split(r"\n{2,}", text.strip("\n")))


def _paragraph(part: str) -> str:
    lines = part.split("\n")
    if part.startswith((" ", "- ", "**", "|", "1. ")):
        return part
    if part.startswith(">>>"):
        return f"```pycon\n{part}\n```"
    if _ENTRY.match(lines[0]) or _PARAMETER.match(lines[0]):
        return _entries(lines)
    if any(_COLUMNS.search(line) for line in lines):
        return f"```text\n{part}\n```"
    return part


def _entries(lines: list[str]) -> str:
    """Return a list of names and their meanings; indented lines belong to the entry above."""
    items: list[str] = []
    for line in lines:
        entry = _ENTRY.match(line) or _LONG_ENTRY.match(line)
        parameter = _PARAMETER.match(line)
        if entry:
            items.append(f"- {entry[1].rstrip(' :,')}: {entry[2] or ''}".rstrip())
        elif parameter:
            items.append(f"- ``{parameter[1]}`` ({parameter[2]}):")
        elif line.startswith(" "):
            items[-1] += f" {line.strip()}"
        else:
            items.append(f"\n{line}" if items[-1].startswith("- ") else line)
    return "\n".join(items)
