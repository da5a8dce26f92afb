"""Summaries as self-contained pages: nothing comes from the network.

Everything that came from outside is escaped by Jinja. The content policy allows nothing but the
page's own style sheet and its own script, by their hashes; what was smuggled in would not apply.
"""

import base64
import hashlib
import math
import re
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from expost.epsilon.recommend import score_text
from expost.report import wording
from expost.report.audit_chart import roc_chart, scatter_chart
from expost.report.audits_chart import audit_panels
from expost.report.chart import profile_chart
from expost.report.comparison import why_not_compared
from expost.report.epsilon_chart import epsilon_panels
from expost.report.markup import or_unknown
from expost.report.page_data import page_data
from expost.report.risk_chart import risk_panels
from expost.report.script import script
from expost.report.slider import SliderData
from expost.report.summary import Summary
from expost.report.training_chart import training_panels

__all__ = ["environment", "render_html", "style_sheet"]

# An option with the number that goes with it, as it is typed.
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*(?: [\d.]*\d)?")


def render_html(summary: Summary) -> str:
    """The page; the same summary gives the same bytes."""
    profile, slider = summary.profile, page_slider(summary)
    data = page_data(
        None if profile is None else profile.row_data,
        slider,
        follows_slider=profile is not None and profile.slider is not None,
        choice_follows=_choice_follows(summary),
    )
    return _filled("page.html", summary=summary, slider=slider, data=data)


def page_slider(summary: Summary) -> SliderData | None:
    """The one slider of a page: the profile's, else that of the choice of ε."""
    parts = (summary.profile, summary.epsilon)
    return next((part.slider for part in parts if part is not None and part.slider), None)


def _choice_follows(summary: Summary) -> bool:
    """Whether the charts of the choice of ε are of the models that the slider speaks of."""
    profile, choice = summary.profile, summary.epsilon
    if choice is None:
        return False
    if profile is None or profile.slider is None:
        return True
    return why_not_compared(profile, choice) is None


def by_options(text: str) -> list[tuple[str, bool]]:
    """Pieces of a sentence, and whether each is an option: no line may end inside of that.

    Hyphens that do not break would be copied, and no program knows an option by them.
    """
    pieces, end = [], 0
    for found in _OPTION.finditer(text):
        pieces += [(text[end : found.start()], False), (found[0], True)]
        end = found.end()
    return [*pieces, (text[end:], False)]


def _filled(template: str, **content: Any) -> str:
    """A template with its content and the one style sheet that its policy allows."""
    style = style_sheet()
    return (
        environment()
        .get_template(template)
        .render(
            style=style,
            style_hash=_digest(style),
            script=script(),
            script_hash=_digest(script()),
            **content,
        )
    )


def _digest(text: str) -> str:
    """What a content policy knows an inline style or script by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def environment() -> Environment:
    """The templates of pages and fragments, with autoescaping, and what they call."""
    jinja = Environment(
        loader=PackageLoader("expost.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    jinja.filters |= {
        "by_options": by_options,
        "count": wording.count,
        "end": wording.end,
        "figure": wording.figure,
        "figure_down": wording.figure_down,
        "figure_up": wording.figure_up,
        "finite": math.isfinite,
        "grouped": wording.grouped,
        "number": wording.number,
        "number_down": wording.number_down,
        "number_up": wording.number_up,
        "or_unknown": or_unknown,
        "percent": wording.percent,
        "percent_down": wording.percent_down,
        "percent_up": wording.percent_up,
        "score": lambda value, measure: score_text(measure, value),
        "share": wording.share,
        "sure": wording.sure_text,
        "uncertain": wording.uncertain,
    }
    # A section draws its own charts from its part alone.
    jinja.globals |= {
        "audit_panels": audit_panels,
        "epsilon_panels": epsilon_panels,
        "profile_chart": profile_chart,
        "risk_panels": risk_panels,
        "roc_chart": roc_chart,
        "scatter_chart": scatter_chart,
        "training_panels": training_panels,
    }
    return jinja


def style_sheet() -> str:
    """The one style sheet, of pages and fragments."""
    loader = environment().loader
    assert loader is not None
    source, _, _ = loader.get_source(environment(), "style.css")
    return source
