"""One summary of a result, collected once, and pages that show it.

``collect`` gathers a typed :class:`Summary` of a profile, ``collect_epsilon`` one of a choice of ε;
the renderers are pure functions of them: the same summary, the same text. The figures are in
:mod:`expost.report.displays` and :mod:`expost.report.transition_display`, which import matplotlib
when they draw.
"""

from expost.report.epsilon_markdown import render_epsilon_markdown
from expost.report.epsilon_summary import EpsilonSummary, collect_epsilon
from expost.report.html import render_epsilon_html, render_html
from expost.report.json import render_json
from expost.report.markdown import render_markdown
from expost.report.parts import Choice, Origin
from expost.report.summary import Accuracy, Summary, collect

__all__ = [
    "Accuracy",
    "Choice",
    "EpsilonSummary",
    "Origin",
    "Summary",
    "collect",
    "collect_epsilon",
    "render_epsilon_html",
    "render_epsilon_markdown",
    "render_html",
    "render_json",
    "render_markdown",
]
