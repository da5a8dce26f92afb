"""One summary of a result, collected once, and pages that show it.

``collect`` gathers a typed :class:`Summary` of a profile, ``collect_epsilon`` one of a choice of ε,
``collect_audit`` one of an audit; the renderers are pure functions of them: the same summary, the
same text. The figures are in :mod:`expost.report.displays`, :mod:`expost.report.transition_display`
and :mod:`expost.report.audit_displays`, which import matplotlib when they draw.
"""

from expost.report.audit_collect import collect_audit
from expost.report.audit_markdown import render_audit_markdown
from expost.report.audit_summary import AuditSummary
from expost.report.epsilon_markdown import render_epsilon_markdown
from expost.report.epsilon_summary import EpsilonSummary, collect_epsilon
from expost.report.html import render_audit_html, render_epsilon_html, render_html
from expost.report.json import render_json
from expost.report.markdown import render_markdown
from expost.report.parts import Choice, Origin
from expost.report.summary import Accuracy, Summary, collect

__all__ = [
    "Accuracy",
    "AuditSummary",
    "Choice",
    "EpsilonSummary",
    "Origin",
    "Summary",
    "collect",
    "collect_audit",
    "collect_epsilon",
    "render_audit_html",
    "render_audit_markdown",
    "render_epsilon_html",
    "render_epsilon_markdown",
    "render_html",
    "render_json",
    "render_markdown",
]
