"""Pages as JSON with a checksum, which ``expost report`` combines into one page.

Cells are stored as they are shown, with the values behind them. The format is read by expost
alone: an edited file does not match its checksum and is refused.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from expost.errors import ExpostError, InvalidInput
from expost.files.sealed import checksum
from expost.report import document, figure
from expost.report.document import Document, Page

__all__ = ["FORMAT", "parse_json", "render_json"]

FORMAT = "expost-page/1"
_TYPES = {
    cls.__name__: cls
    for module in (document, figure)
    for cls in vars(module).values()
    if isinstance(cls, type) and is_dataclass(cls)
}
_INFINITIES = {"infinity": math.inf, "-infinity": -math.inf}


def render_json(page: Page | Document) -> str:
    """Return the page as strict JSON; the same page gives the same text.

    Parameters
    ----------
    page : Page | Document
        The page, or one document.

    Returns
    -------
    str
        Strict JSON.
    """
    page = Page(documents=(page,)) if isinstance(page, Document) else page
    audience = page.audience
    value = {
        "format": FORMAT,
        "audience": audience.value,
        "meaning": audience.meaning,
        "page": _encoded(page),
    }
    sealed = {**value, "sha256": checksum(value)}
    return json.dumps(sealed, allow_nan=False, ensure_ascii=False, separators=(",", ":")) + "\n"


def parse_json(content: str | bytes) -> Page:
    """Return the page in ``content``.

    Parameters
    ----------
    content : str | bytes
        What :func:`render_json` returned.

    Returns
    -------
    Page
        The page.

    Raises
    ------
    InvalidInput
        If it is not a whole page.
    """
    try:
        value = json.loads(content, parse_constant=_refused)
    except (ValueError, RecursionError):
        raise InvalidInput("is not JSON; name a summary that expost wrote.") from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InvalidInput(f"is not of the format {FORMAT}; name a summary that expost wrote.")
    stated = value.pop("sha256", None)
    try:
        matches = stated == checksum(value)
    except (TypeError, ValueError, RecursionError):
        matches = False
    if not matches:
        raise InvalidInput("does not match its checksum: it was edited or cut; make it again.")
    if not all(map(_is_shown, _texts(value))):
        raise InvalidInput("holds characters that cannot be shown; make it again.")
    try:
        page = _decoded(Page, value["page"])
    except (ExpostError, KeyError, TypeError, ValueError, RecursionError, AttributeError) as error:
        raise InvalidInput(
            f"is not a whole page ({type(error).__name__}); make it again."
        ) from None
    if not isinstance(page, Page) or page.audience.value != value["audience"]:
        raise InvalidInput("states another audience than its documents have; make it again.")
    return page


def _refused(word: str) -> float:
    raise ValueError(word)


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value, and every name."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for entry in value.values():
            yield from _texts(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _texts(entry)


def _is_shown(text: str) -> bool:
    """Return whether a text is on one line, without control or direction characters."""
    return text.replace("\N{NO-BREAK SPACE}", " ").isprintable()


def _encoded(value: Any) -> Any:
    if is_dataclass(value):
        named = {item.name: _encoded(getattr(value, item.name)) for item in fields(value)}
        return {"type": type(value).__name__, **named}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _encoded(entry) for key, entry in value.items()}
    if isinstance(value, bool | str | int) or value is None:
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        if math.isnan(value):
            raise ArithmeticError("a figure is not a number")
        return "infinity" if value > 0 else "-infinity"
    if hasattr(value, "tolist"):
        return _encoded(value.tolist())
    return [_encoded(entry) for entry in value]


def _decoded(kind: Any, value: Any) -> Any:
    """Return ``value`` as the type that a field declares, or raise ``TypeError``."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _either(arguments, value)
    if is_dataclass(kind):
        return _record(kind, value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if origin is Literal:
        return _checked(value, value in arguments)
    if origin is tuple:
        entries = _checked(value, isinstance(value, list))
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_decoded(arguments[0], entry) for entry in entries)
        return tuple(_decoded(own, entry) for own, entry in zip(arguments, entries, strict=True))
    if origin is Sequence:
        entries = _checked(value, isinstance(value, list))
        return tuple(_decoded(arguments[0], entry) for entry in entries)
    if origin is Mapping:
        _checked(value, isinstance(value, dict))
        # What scripts read is strict JSON already.
        return (
            value
            if arguments[1] is Any
            else {k: _decoded(arguments[1], v) for k, v in value.items()}
        )
    if kind is float:
        number = _INFINITIES.get(value, value) if isinstance(value, str) else value
        return _checked(number, isinstance(number, int | float) and not isinstance(number, bool))
    if kind is type(None):
        return _checked(value, value is None)
    # bool is an int for isinstance.
    return _checked(value, type(value) is kind)


def _either(kinds: tuple[Any, ...], value: Any) -> Any:
    """Return ``value`` as the first of these types that it fits; text first, but for infinities."""
    if float in kinds and isinstance(value, str) and value in _INFINITIES:
        return _INFINITIES[value]
    for kind in sorted(map(_resolved, kinds), key=lambda each: each is not str):
        try:
            return _decoded(kind, value)
        except (TypeError, KeyError):
            continue
    raise TypeError("a value has no type that is allowed here")


def _checked(value: Any, fits: bool) -> Any:
    if not fits:
        raise TypeError("a value is of another type")
    return value


def _record(kind: Any, value: Any) -> Any:
    _checked(value, isinstance(value, dict) and value.get("type") == kind.__name__)
    hints = get_type_hints(kind, vars(document) | vars(figure))
    given = {name: entry for name, entry in value.items() if name != "type"}
    return kind(**{name: _decoded(hints[name], entry) for name, entry in given.items()})


def _resolved(kind: Any) -> Any:
    """Return the type that a forward reference names."""
    name = getattr(kind, "__forward_arg__", kind)
    return _TYPES.get(name, kind) if isinstance(name, str) else kind
