"""A profile and a choice of ε on one page: the ε of the model and the recommended one.

Documents are compared by their facts, never by their sentences.
"""

import math
from dataclasses import replace
from typing import Any

from expost.numbers import count, number, share
from expost.profiles.digest import POSTERIOR
from expost.report.document import Alert, Document, Page, Verdict

__all__ = ["compared", "model_facts"]

_SHARED = ("mechanism", "noise", "loss", "n", "d")


def model_facts(mechanism: Any) -> dict[str, Any]:
    """Return the settings of a mechanism that two results must share to be compared.

    Regularization is not among them: by rule it depends on ε.
    """
    return {
        "mechanism": mechanism.kind,
        "noise": mechanism.noise,
        "loss": mechanism.loss.name,
        "n": mechanism.rows,
        "d": mechanism.dimension,
    }


def compared(page: Page) -> Page:
    """Return the page with one verdict on both, if it has a profile and a choice of ε."""
    profile, choice = page.get("profile"), page.get("epsilon")
    if profile is None or choice is None:
        return page
    reason = _why_not(profile, choice)
    if reason is None:
        profile = _with_verdict(profile, choice)
    else:
        alert = Alert(
            severity="note", title="The choice of ε is not compared with this model.", text=reason
        )
        profile = replace(profile, alerts=(*profile.alerts, alert))
    documents = tuple(profile if each.kind == "profile" else each for each in page.documents)
    return replace(page, documents=documents)


def _why_not(profile: Document, choice: Document) -> str | None:
    """Return why the two ε cannot be compared; None if they can."""
    mine, theirs = profile.facts, choice.facts
    if mine.get("unit") == "person":
        return (
            "The profile removes all rows of a person, the choice of ε single rows: the recommended"
            " ε protects a person with several rows less."
        )
    unknown = mine.get("epsilon") is None and not mine.get("noiseless")
    names = [name for name in _SHARED if not (name == "noise" and mine.get("noiseless"))]
    if unknown or any(mine.get(name) != theirs.get(name) for name in names):
        return "It is about another mechanism, other settings or other rows."
    return None


def _with_verdict(profile: Document, choice: Document) -> Document:
    """Return the profile with the verdict on its ε."""
    released, advised = profile.facts.get("epsilon"), choice.facts.get("recommended")
    if profile.verdict is not None and profile.verdict.priority >= 90:
        # The verdict on a wrong or useless model stays.
        return profile
    if not isinstance(advised, int | float):
        return _judged(
            profile,
            "No ε is recommended for this table.",
            "Accept a larger posterior, accept less utility or collect more rows; otherwise do"
            " not share this model.",
            "bad",
        )
    use = f"ε = {number(advised, 'down')}"
    if not isinstance(released, int | float) or not math.isfinite(released):
        return _judged(
            profile, f"Use {use}: this model carries no noise.", "Do not share this model.", "bad"
        )
    this = f"This model was released at ε = {number(released, 'up')}"
    ceiling, limit = choice.facts.get("ceiling"), choice.facts.get("max_posterior")
    bound = (
        f"the limit on the posterior ({share(limit)})" if isinstance(limit, float) else "the limit"
    )
    if not isinstance(ceiling, int | float) or not released <= ceiling:
        return _judged(
            profile,
            f"{this}, which exceeds {bound}: {use} is recommended.",
            "Do not share it; release another model.",
            "bad",
        )
    largest = choice.facts.get("largest_loss")
    worst = profile.facts.get("largest_loss")
    if isinstance(largest, float) and isinstance(worst, float) and worst > largest:
        return _judged(
            profile,
            f"{this}, which keeps {bound} for one row with the chosen probability, but this release"
            " exceeds it for some row.",
            "Do not redraw until you like the result: choosing among draws is not private. To lower"
            " the risk, run `expost epsilon` with a larger --quantile and release at the ε it"
            " recommends.",
            "caution",
        )
    if released > advised:
        return _judged(
            profile,
            f"{this}; {use} is enough.",
            f"Release another model at {use} unless this one has been shared already.",
            "caution",
        )
    more = profile.verdict.more if profile.verdict is not None else ""
    kept, tone = f"It keeps {bound}", "good"
    past = profile.facts.get("past_certainty")
    if isinstance(past, int) and past > 0:
        # Evidence that a row was absent is no matter of the posterior.
        rows = f"{count(past)} {'row' if past == 1 else 'rows'}"
        kept += f", but the attacker's certainty about {rows} exceeds {share(POSTERIOR)}"
        tone = "caution"
    which = f"less than the recommended {use}" if released < advised else "the recommended one"
    return _judged(profile, f"{this}, {which}. {kept}.", more, tone)


def _judged(profile: Document, text: str, more: str, tone: Any) -> Document:
    seeded = profile.facts.get("seeded")
    if seeded:
        more = f"{more} The noise was seeded, so this is a simulation.".strip()
        tone = "caution" if tone == "good" else tone
    verdict = Verdict(text=text, more=more, tone=tone, priority=70)
    return replace(profile, verdict=verdict)
