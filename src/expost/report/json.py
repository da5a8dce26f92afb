"""Summaries for machines."""

import json
import math
from dataclasses import fields
from enum import Enum
from typing import Any

from expost._groups import Explanation, Grouping
from expost.report.summary import Summary

__all__ = ["FORMAT", "render_json"]

FORMAT = "expost-report/2"


def render_json(summary: Summary) -> str:
    """Every field of the summary by its name; infinities are words, NaN does not occur."""
    content = {
        "format": FORMAT,
        "audience": summary.audience.value,
        "meaning": summary.audience.meaning,
        "title": summary.title,
        "answer": list(summary.answer),
        **_plain(summary),
    }
    # The pairs of the summary keep their order.
    content["versions"] = dict(summary.versions)
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    match value:
        case Grouping() | Explanation():
            return value.to_json()
        case Enum():
            return value.value
        case tuple():
            return [_plain(entry) for entry in value]
        case float() if math.isinf(value):
            return "infinity" if value > 0 else "-infinity"
        case None | str() | bool() | int() | float():
            return value
        case _:
            return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
