"""One summary of a profile, collected once, and pages that show it.

``collect`` gathers a typed :class:`Summary`; ``render_html``, ``render_markdown`` and
``render_json`` are pure functions of it: the same summary, the same text. The figures of the paper
are in :mod:`expost.report.displays`, which alone imports matplotlib.
"""

from expost.report.html import render_html
from expost.report.json import render_json
from expost.report.markdown import render_markdown
from expost.report.summary import Accuracy, Choice, Origin, Summary, collect

__all__ = [
    "Accuracy",
    "Choice",
    "Origin",
    "Summary",
    "collect",
    "render_html",
    "render_json",
    "render_markdown",
]
