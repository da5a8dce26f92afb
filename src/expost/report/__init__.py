"""One summary of any results, collected once, and pages that show it.

``collect`` gathers a typed :class:`Summary`, made of one part for each result; the renderers are
pure functions of it: the same summary, the same text. The figures are in
:mod:`expost.report.displays` and the other modules of displays, which import matplotlib when they
draw.
"""

from expost.report.audit_collect import collect_audit
from expost.report.audit_part import AuditPart
from expost.report.audits_part import AuditsPart, collect_audits
from expost.report.beliefs_part import BeliefsPart, collect_beliefs
from expost.report.collect import collect
from expost.report.epsilon_part import EpsilonPart, collect_epsilon
from expost.report.html import render_html
from expost.report.json import parse_json, render_json
from expost.report.markdown import render_markdown
from expost.report.parts import Choice, Context, Headline, Origin, Part
from expost.report.profile_collect import collect_profile
from expost.report.profile_part import Accuracy, ProfilePart
from expost.report.published_part import PublishedPart, collect_published
from expost.report.risk_part import RiskPart, collect_risk
from expost.report.summary import Summary
from expost.report.training_part import TrainingPart, collect_training

__all__ = [
    "Accuracy",
    "AuditPart",
    "AuditsPart",
    "BeliefsPart",
    "Choice",
    "Context",
    "EpsilonPart",
    "Headline",
    "Origin",
    "Part",
    "ProfilePart",
    "PublishedPart",
    "RiskPart",
    "Summary",
    "TrainingPart",
    "collect",
    "collect_audit",
    "collect_audits",
    "collect_beliefs",
    "collect_epsilon",
    "collect_profile",
    "collect_published",
    "collect_risk",
    "collect_training",
    "parse_json",
    "render_html",
    "render_json",
    "render_markdown",
]
