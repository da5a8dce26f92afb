"""Every result as a fragment of the report, for a notebook: the same components, and no script.

A result that has a part in a report is shown by the sections of that part; any other by a card
(:mod:`expost.report.card`). Both carry the mark and the one style sheet, which hangs under a class
so that it styles nothing else on the notebook's page. The same result gives the same bytes.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from expost.audits.result import Audit
from expost.audits.sweep import AuditSweep
from expost.epsilon.choice import EpsilonChoice
from expost.errors import InvalidInput
from expost.profiles.posterior import RowIdentifiability
from expost.profiles.profile import Profile
from expost.publishing.report import PublishedReport
from expost.report.audit_collect import collect_audit
from expost.report.audits_part import collect_audits
from expost.report.beliefs_part import collect_beliefs
from expost.report.card import Card
from expost.report.cards import CARDS, TORCH_CARDS
from expost.report.epsilon_part import collect_epsilon
from expost.report.html import environment, style_sheet
from expost.report.parts import Context, Part
from expost.report.plots import audience_of
from expost.report.profile_collect import collect_profile
from expost.report.published_part import collect_published
from expost.report.risk_part import collect_risk
from expost.report.summary import Summary
from expost.report.training_part import collect_training, run_profile, transcript_of
from expost.risk.answer import Identifiability

__all__ = ["PARTS", "fragment"]

# The part of each result, and the sections of it that are shown: what a page has first.
PARTS: Mapping[type, tuple[str, Callable[[Any], Part], tuple[str, ...]]] = {
    Audit: ("audit", collect_audit, ("audit_roc.html", "audit_attacks.html", "audit_rows.html")),
    AuditSweep: ("audits", collect_audits, ("audits.html",)),
    EpsilonChoice: ("epsilon", collect_epsilon, ("epsilon_charts.html", "epsilon_reasons.html")),
    Identifiability: ("risk", collect_risk, ("risk.html",)),
    Profile: ("profile", collect_profile, ("profile.html", "top.html")),
    PublishedReport: ("published", collect_published, ("published.html",)),
    RowIdentifiability: ("beliefs", collect_beliefs, ("beliefs.html",)),
}
# Where an id stands or is pointed at. Text from outside has no quotes left: Jinja escapes them.
_ID = re.compile(r'(?<![\w-])(id|for|href|aria-labelledby|aria-describedby|clip-path)="([^"]*)"')
_DIGITS = 12


def fragment(result: Any) -> str:
    """``result`` as HTML that can stand anywhere on a page, beside other fragments."""
    kinds = type(result).__mro__
    for kind in kinds:
        if kind in PARTS:
            return _of_part(result, *PARTS[kind])
    run = transcript_of(result)
    # With sampling each ε of the page takes a second, for which no cell of a notebook should wait.
    if run is not None and run.steps and run.mechanism.sampling_rate == 1:
        return _of_part(result, "training", _training, ("training.html",))
    for kind in kinds:
        card = CARDS.get(kind) or TORCH_CARDS.get(f"{kind.__module__}.{kind.__qualname__}")
        if card is not None:
            return _of_card(card(result).shown(audience_of(result)))
    raise InvalidInput(f"result: a {type(result).__name__} has no fragment.")


def _of_part(
    result: Any, name: str, collect: Callable[[Any], Part], sections: tuple[str, ...]
) -> str:
    part = collect(result)
    summary = Summary.of({name: part}, {})
    return _filled(summary=summary, part=part, sections=sections, card=None)


def _training(run: Any) -> Part:
    """How a run came about, with what its profile gives to know: that it was a rehearsal, say."""
    return collect_training(run, context=Context(notices=run_profile(run).notices))


def _of_card(card: Card) -> str:
    return _filled(summary=card, card=card)


def _filled(**content: Any) -> str:
    style = style_sheet()
    text = environment().get_template("fragment.html").render(style=style, **content)
    # No id of another fragment, or of the notebook itself, is ever the same.
    prefix = f"x{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}-"
    head, tag, body = text.partition("</style>")
    return head + tag + _ID.sub(lambda found: _apart(found, prefix), body)


def _apart(found: re.Match[str], prefix: str) -> str:
    """The attribute with every id in it prefixed; addresses within the page alone are ids."""
    name, value = found.groups()
    match name:
        case "href":
            value = re.sub(r"^#", f"#{prefix}", value)
        case "clip-path":
            value = re.sub(r"^url\(#", f"url(#{prefix}", value)
        case _:
            value = " ".join(prefix + one for one in value.split())
    return f'{name}="{value}"'
