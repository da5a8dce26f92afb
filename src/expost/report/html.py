"""The summary as one self-contained page: no script, nothing from the network.

Everything that came from outside is escaped by Jinja. The content policy allows nothing but the
page's own style sheet, by its hash; a style that was smuggled in would not apply either.
"""

import base64
import hashlib
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from expost.report import wording
from expost.report.chart import profile_chart
from expost.report.summary import Summary

__all__ = ["render_html"]


def render_html(summary: Summary) -> str:
    """The page; the same summary gives the same bytes."""
    environment = _environment()
    style = _style(environment)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return environment.get_template("page.html").render(
        summary=summary, chart=profile_chart(summary), style=style, style_hash=f"sha256-{digest}"
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
        "number": wording.number,
        "percent": wording.percent,
        "share": wording.share,
    }
    return environment


def _style(environment: Environment) -> str:
    loader = environment.loader
    assert loader is not None
    source, _, _ = loader.get_source(environment, "style.css")
    return source
