"""Summaries for machines: as JSON, and read again.

``schema.json`` beside this module says what a file holds; ``docs/report-schema.md`` explains it.
Nothing in a file is trusted when it is read: see :mod:`expost.report._kinds` for its values. What a
file says of the whole (mark, title, answer) is computed anew from its parts, and each part has the
type of its mark, so that a mark cannot be edited to make private figures public.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from expost.errors import InvalidInput
from expost.files.atomic import once
from expost.groups.columns import printable
from expost.report.summary import Summary
from expost.report.typed import from_plain, to_plain

__all__ = ["FORMAT", "laid_out", "parse_json", "render_json"]

FORMAT = "expost-report/2"
# A summary of 100,000 rows takes 10 MB.
_LARGEST = 200 * 10**6
_DERIVED = ("format", "audience", "meaning", "title", "answer")
# What else of expost one may take for a summary.
_OTHERS = {
    "expost-report/1": "a report that `expost publish` made, and not a summary of one",
    "expost-model/1": "a released model, and not a summary of a result",
}


def render_json(summary: Summary) -> str:
    """Every field of the summary by its name; infinities are words, NaN does not occur."""
    content = {
        "format": FORMAT,
        "audience": summary.audience.value,
        "meaning": summary.audience.meaning,
        "title": summary.title,
        "answer": list(summary.answer),
        **to_plain(summary),
    }
    return laid_out(content) + "\n"


def parse_json(text: str | bytes) -> Summary:
    """The summary that ``text`` was rendered from; :class:`InvalidInput` if it is of none."""
    content = _read(text)
    _check_format(content)
    parts = {name: value for name, value in content.items() if name not in _DERIVED}
    _check_derived(content)
    summary = from_plain(Summary, parts)
    if content["audience"] != summary.audience.value:
        raise InvalidInput(
            f"audience: the summary is marked {printable(content['audience'], 20)!r}, but its parts"
            f" are {summary.audience.value!r}; it was edited, make it again."
        )
    return summary


def laid_out(value: Any, newline: str = "\n") -> str:
    """JSON with one entry on a line, but for flat lists and objects of one entry."""
    inner = newline + " "
    if isinstance(value, dict) and (len(value) > 1 or _is_nested(value.values())):
        entries = [
            f"{json.dumps(name, ensure_ascii=False)}: {laid_out(each, inner)}"
            for name, each in value.items()
        ]
        return "{" + inner + ("," + inner).join(entries) + newline + "}"
    if isinstance(value, list) and _is_nested(value):
        listed = [laid_out(each, inner) for each in value]
        return "[" + inner + ("," + inner).join(listed) + newline + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _is_nested(values: Iterable[Any]) -> bool:
    return any(issubclass(kind, dict | list) for kind in set(map(type, values)))


def _read(text: str | bytes) -> dict[str, Any]:
    if not len(text) <= _LARGEST:
        raise InvalidInput(
            f"summary: is {len(text):,} characters long, and may be {_LARGEST:,}; it is of"
            " something else."
        )
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        content = json.loads(decoded, parse_constant=_no_constant, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        why = printable(error, 200)
        raise InvalidInput(f"summary: is not whole JSON ({why}); make it again.") from None
    if not isinstance(content, dict):
        raise InvalidInput("summary: must be a JSON object; give what `render_json` wrote.")
    return content


def _no_constant(name: str) -> float:
    raise ValueError(f"the constant {name} is not JSON")


def _check_format(content: dict[str, Any]) -> None:
    found = content.get("format")
    if found == FORMAT:
        return
    if found is None:
        raise InvalidInput(
            f"format: is missing; a summary of expost begins with {FORMAT!r}: give one."
        )
    shown = printable(found, 60)
    if isinstance(found, str) and found in _OTHERS:
        raise InvalidInput(f"format={shown!r}: this is {_OTHERS[found]}; give {FORMAT!r}.")
    if isinstance(found, str) and re.fullmatch(r"expost-report/[1-9][0-9]{0,5}", found):
        raise InvalidInput(
            f"format={shown!r}: was made by a newer expost, this one reads {FORMAT!r}; upgrade it."
        )
    raise InvalidInput(f"format={shown!r}: this is not a summary of results; give {FORMAT!r}.")


def _check_derived(content: dict[str, Any]) -> None:
    """What is computed anew must be there, and be of its sort."""
    for name in ("audience", "meaning", "title"):
        if not isinstance(content.get(name), str):
            raise InvalidInput(f"{name}: must be a text; make the summary again.")
    answer = content.get("answer")
    if not isinstance(answer, list) or not all(isinstance(each, str) for each in answer):
        raise InvalidInput("answer: must be a list of texts; make the summary again.")
