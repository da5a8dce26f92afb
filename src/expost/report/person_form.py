"""The form of a published report on its page: its fields, and the constants of its bounds.

Everything is public: what ``report.json`` holds, or follows from it. The page's script encodes a
person's values, maps them into the unit ball and evaluates the bound; :func:`form_widget` computes
all constants. Sentences are those of :meth:`expost.publishing.report.PublishedReport.lookup`.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from expost.data import NumericEntry
from expost.groups.columns import printable
from expost.numbers import count, range_text
from expost.publishing.lookup import (
    cut_note,
    cut_range,
    missing_fault,
    missing_note,
    number_fault,
    size_fault,
    unknown_note,
)
from expost.publishing.report import PublishedReport
from expost.report.document import Block, Widget, one_line

__all__ = ["form_widget", "no_form"]

# A page with more of either would be long to fill in, or slow to open.
MOST_FIELDS, MOST_NUMBERS = 200, 200_000
_LONGEST_LEVEL = 200
# The hint of a number that is not cut.
_ANY = "any number"


def no_form(report: PublishedReport) -> str | None:
    """Return why the page of a report has no form, as a sentence; None: it has one."""
    if report.input_condition is not None:
        return one_line(report.input_condition)
    fields = len(report.form.names)
    if fields > MOST_FIELDS:
        return f"The model has {count(fields)} columns, too many for a form on this page."
    formula = report.formula()
    if formula is None:
        return "The bounds of this mechanism are not computed on a page."
    if sum(array.size for array in _arrays(formula)) > MOST_NUMBERS:
        return "The bounds need more constants than fit on a page."
    return None


def form_widget(
    report: PublishedReport, texts: Mapping[str, Any], blocks: tuple[Block, ...]
) -> Widget:
    """Return the form of a report.

    Parameters
    ----------
    texts : mapping
        Sentences of the answer: see templates/form.html.
    blocks : tuple of Block
        What is shown where no script runs.
    """
    release = report.release
    ball, width = release.ball, np.shape(release.coefficients[0])[-1]
    factor, constant = ball.factors(width)
    encoding = report.encoding
    return Widget(
        name="form",
        data={
            "fields": list(_fields(report)),
            "label": _label(report),
            "labels": _labels(report),
            "missing": [] if encoding is None else list(_typed(encoding.missing)),
            "ball": {
                "norm": ball.data_norm,
                "factor": factor,
                "constant": constant if ball.fit_intercept else None,
                "note": one_line(report.clip_note),
            },
            "formula": _packed(report.formula()),
            "texts": dict(texts),
        },
        blocks=blocks,
    )


def _fields(report: PublishedReport) -> Iterator[dict[str, Any]]:
    if report.encoding is None:
        yield from (_plain_field(name) for name in report.form.names)
        return
    for entry in report.encoding.entries:
        missing = missing_note(entry)
        shared: dict[str, Any] = {
            "label": one_line(entry.name),
            "unit": None,
            "required": missing is None or not isinstance(entry, NumericEntry),
        }
        if isinstance(entry, NumericEntry):
            yield shared | _number_field(entry, missing)
            continue
        yield shared | {
            "kind": "levels",
            "levels": [printable(level, _LONGEST_LEVEL) for level in entry.levels],
            "missing_level": entry.missing_level,
            "hint": "",
            "notes": {
                "required": one_line(f"{entry.name}: choose a value, or “not known”."),
                "missing": one_line(missing or ""),
                "unknown": one_line(unknown_note(entry)),
            },
        }


def _number_field(entry: NumericEntry, missing: str | None) -> dict[str, Any]:
    ends, cut = cut_range(entry), cut_note(entry)
    span = _ANY if ends is None else range_text(*ends)
    empty = "" if missing is None else "empty if not known"
    return {
        "kind": "number",
        "unit": None if entry.unit is None else one_line(entry.unit),
        "mean": entry.mean,
        "scale": entry.scale,
        "cut": entry.cut,
        "fill": entry.fill,
        "indicator": entry.marks_missing,
        "hint": "; ".join(hint for hint in (span, empty) if hint),
        "notes": {
            **_faults(entry.name),
            "required": one_line(missing_fault(entry.name)),
            "missing": one_line(missing or ""),
            "cut": one_line(cut or ""),
        },
    }


def _plain_field(name: str) -> dict[str, Any]:
    """Return the field of a feature as the model takes it: x itself, which must be given."""
    faults = _faults(name)
    return {
        "kind": "number",
        "label": one_line(name),
        "unit": None,
        "mean": 0.0,
        "scale": 1.0,
        "cut": None,
        "fill": None,
        "indicator": False,
        "required": True,
        "hint": _ANY,
        "notes": {**faults, "required": faults["number"], "missing": "", "cut": ""},
    }


def _faults(name: str) -> dict[str, str]:
    """Return the errors of a number."""
    return {"number": one_line(number_fault(name)), "size": one_line(size_fault(name))}


def _label(report: PublishedReport) -> dict[str, Any] | None:
    """Return the field of the label of a regression; None for classes."""
    scale, encoding = report.release.label_scale, report.encoding
    if scale is None:
        return None
    name = "label" if encoding is None else encoding.target.column
    return {
        "label": one_line(name),
        "centre": scale.centre,
        "scale": scale.scale,
        "bound": scale.bound,
        "required": True,
        "hint": range_text(*scale.ends),
        "notes": {
            **_faults(name),
            "required": one_line(f"{name}: must be given, because the model predicts a number."),
            "cut": one_line(report.label_note or ""),
        },
    }


def _labels(report: PublishedReport) -> list[dict[str, Any]]:
    """Return every class as it is shown, and as the loss takes it."""
    classes = report.release.classes
    if classes is None:
        return []
    targets = report.release.targets(classes, len(classes))
    return [
        {"text": printable(label, _LONGEST_LEVEL), "y": y}
        for label, y in zip(classes.tolist(), targets.tolist(), strict=True)
    ]


def _typed(tokens: tuple[str, ...]) -> Iterator[str]:
    """Yield the tokens of a missing cell that can be typed."""
    return (token.strip() for token in tokens if token.strip() and token.isprintable())


# -- constants -----------------------------------------------------------------------------------


def _arrays(formula: Any) -> Iterator[Any]:
    """Yield the arrays of a formula."""
    if isinstance(formula, np.ndarray):
        yield formula
    elif isinstance(formula, Mapping):
        for value in formula.values():
            yield from _arrays(value)
    elif isinstance(formula, tuple):
        for value in formula:
            yield from _arrays(value)


def _packed(formula: Any) -> Any:
    """Return a formula as JSON: arrays become base64 of little-endian float64."""
    if isinstance(formula, np.ndarray):
        return base64.b64encode(np.ascontiguousarray(formula, dtype="<f8").tobytes()).decode()
    if isinstance(formula, Mapping):
        return {name: _packed(value) for name, value in formula.items()}
    if isinstance(formula, tuple):
        return [_packed(value) for value in formula]
    return formula
