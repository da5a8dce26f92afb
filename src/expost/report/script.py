"""The page's script, put together from its files: one expression, no names in the page's scope."""

from functools import cache
from importlib.resources import files

__all__ = ["script"]

# From what knows nothing of the others to what starts them all.
_FILES = (
    "words",
    "decode",
    "law",
    "figures",
    "slider",
    "chart",
    "profile",
    "search",
    "csv",
    "file",
    "main",
)


@cache
def script() -> str:
    """The text between the page's script tags."""
    folder = files("expost.report") / "scripts"
    parts = [(folder / f"{name}.js").read_text(encoding="utf-8") for name in _FILES]
    body = "\n".join(parts)
    if "</script" in body.lower() or "<!--" in body:
        raise AssertionError("a script must not hold what would end it")
    return f"(() => {{\n'use strict';\n\n{body}}})();\n"
