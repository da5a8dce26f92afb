"""Summaries as self-contained pages: nothing comes from the network.

Everything that came from outside is escaped by Jinja. The content policy allows nothing but the
page's own style sheet, by its hash; a style that was smuggled in would not apply either.
"""

import base64
import hashlib
import math
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from expost._recommend import rounded_down
from expost.report import wording
from expost.report.audit_chart import roc_chart, scatter_chart
from expost.report.chart import profile_chart
from expost.report.epsilon_answer import score_text
from expost.report.epsilon_chart import epsilon_panels
from expost.report.summary import Summary

__all__ = ["render_html"]


def render_html(summary: Summary) -> str:
    """The page; the same summary gives the same bytes."""
    return _filled("page.html", summary=summary)


def _filled(template: str, **content: Any) -> str:
    """A template with its content and the one style sheet that its policy allows."""
    environment = _environment()
    style = _style(environment)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return environment.get_template(template).render(
        style=style, style_hash=f"sha256-{digest}", **content
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("expost.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "count": wording.count,
        "figure": wording.figure,
        "finite": math.isfinite,
        "number": wording.number,
        "percent": wording.percent,
        "score": lambda value, measure: score_text(measure, value),
        "rounded": lambda epsilon: wording.number(rounded_down(epsilon)),
        "share": wording.share,
    }
    # A section draws its own charts from its part alone.
    environment.globals |= {
        "epsilon_panels": epsilon_panels,
        "profile_chart": profile_chart,
        "roc_chart": roc_chart,
        "scatter_chart": scatter_chart,
    }
    return environment


def _style(environment: Environment) -> str:
    loader = environment.loader
    assert loader is not None
    source, _, _ = loader.get_source(environment, "style.css")
    return source
