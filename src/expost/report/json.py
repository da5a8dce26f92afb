"""Summaries for machines."""

import json
import math
from dataclasses import fields
from enum import Enum
from typing import Any

from expost._groups import Explanation, Grouping
from expost.report.audit_summary import AuditSummary
from expost.report.epsilon_summary import EpsilonSummary
from expost.report.summary import Summary

__all__ = ["AUDIT_FORMAT", "EPSILON_FORMAT", "FORMAT", "render_json"]

FORMAT = "expost-report/1"
EPSILON_FORMAT = "expost-epsilon-report/1"
AUDIT_FORMAT = "expost-audit-report/1"
_FORMATS: dict[type, str] = {
    Summary: FORMAT,
    EpsilonSummary: EPSILON_FORMAT,
    AuditSummary: AUDIT_FORMAT,
}


def render_json(summary: Summary | EpsilonSummary | AuditSummary) -> str:
    """Every field of the summary by its name; infinities are words, NaN does not occur."""
    content = {
        "format": _FORMATS[type(summary)],
        "audience": summary.audience.value,
        "meaning": summary.audience.meaning,
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
