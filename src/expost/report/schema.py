"""The published schema of a summary's JSON.

``schema.json`` beside this module is what ``python -m expost.report.schema`` writes; a test checks
that it is what the types say. :func:`parse_json` refuses whatever the schema does, and some more:
names that occur twice, and figures that do not hold together.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

from expost.files.atomic import write_bytes
from expost.report.json import FORMAT, laid_out
from expost.report.summary import Summary
from expost.report.typed import DIALECT, definitions
from expost.types import Audience

__all__ = ["PATH", "schema_text", "summary_schema"]

PATH = Path(__file__).with_name("schema.json")


def summary_schema() -> dict[str, Any]:
    """The JSON schema (2020-12) of what :func:`expost.report.render_json` writes."""
    root, notions = definitions(Summary)
    derived = {
        "format": {"const": FORMAT},
        "audience": {
            "description": "The strictest of the parts' marks.",
            "enum": [each.value for each in Audience],
        },
        "meaning": {"description": "The mark in a sentence.", "type": "string"},
        "title": {"description": "What stands above the page.", "type": "string"},
        "answer": {
            "description": "Which ε, how exposed the most exposed row is, what to do.",
            "type": "array",
            "items": {"type": "string"},
        },
    }
    parts = [field.name for field in fields(Summary) if field.name != "versions"]
    return {
        "$schema": DIALECT,
        "$id": f"urn:{FORMAT.replace('/', ':')}",
        "title": FORMAT,
        **root,
        "properties": {**derived, **root["properties"]},
        "required": [*derived, *root["required"]],
        # At least one part.
        "anyOf": [{"properties": {name: {"type": "object"}}} for name in parts],
        "$defs": notions,
    }


def schema_text() -> str:
    """The schema as it is published."""
    return laid_out(summary_schema()) + "\n"


if __name__ == "__main__":
    print(write_bytes(PATH, Audience.PASS, schema_text().encode()))
