"""What a page carries for its script, as JSON that cannot end its block."""

import json
import math
from dataclasses import fields, is_dataclass
from typing import Any

from expost.report.rows import RowsData, packed_rows
from expost.report.slider import SliderData

__all__ = ["page_data"]

# Characters that mean something to HTML, or to a script, wherever they stand.
_ESCAPES = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


def page_data(
    rows: RowsData | None, slider: SliderData | None, *, follows_slider: bool, choice_follows: bool
) -> str | None:
    """The block's text; None where the page has nothing that moves.

    ``follows_slider``  whether the slider's typical figures are of the profile's own rows.
    ``choice_follows``  whether they are of the models that the charts of the choice of ε show.
    """
    if rows is None and slider is None:
        return None
    content = {
        "followsSlider": follows_slider,
        "choiceFollows": choice_follows,
        "slider": None if slider is None else _plain(slider),
        "rows": None if rows is None else packed_rows(rows),
    }
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def _plain(value: Any) -> Any:
    """Fields by name; JSON has no infinity, and JavaScript reads the word for it."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value
