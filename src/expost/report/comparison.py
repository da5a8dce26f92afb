"""What the page of a profile and a choice of ε says of both: the model's ε beside the advised one.

Both must speak of the same mechanism on the same rows. Numbers only, so that no name from outside
stands in these sentences.
"""

import math
import re

from expost.report.epsilon_part import EpsilonPart
from expost.report.parts import Headline
from expost.report.profile_answer import before_sharing
from expost.report.profile_part import ProfilePart
from expost.report.wording import number_down, number_up
from expost.report.wording import share as share_text
from expost.types import Audience

__all__ = ["compared", "why_not_compared"]

# As expost.rounding.relation_words has it.
_RELATION = re.compile(r" if (a row is|rows are) removed(, added or replaced| or added)")


def compared(profile: ProfilePart, choice: EpsilonPart) -> Headline | None:
    """Which ε and what to do, in place of what each part says; None where they are incomparable."""
    if why_not_compared(profile, choice) is not None:
        return None
    released, advised = profile.epsilon, choice.recommended
    if advised is None:
        return Headline(
            epsilon=f"No ε is recommended, and this model {_noise(profile)}.",
            advice=(
                "Whichever ε this model has, it misses a bound that was set: allow an attacker more"
                " (a higher belief), ask less of the model, gather more rows, or do not share it."
            ),
        )
    use = f"ε = {number_down(advised)}"
    if profile.is_noiseless or released is None:
        return Headline(
            epsilon=f"Use {use}: this model carries no noise.",
            advice=(
                "Do not share this model with anybody who may not see its rows: release another"
                f" at {use}, and profile that one."
            ),
        )
    return Headline(
        epsilon=_beside(released, advised, profile, use),
        advice=_rehearsal(use) if profile.seeded else _advice(released, profile, choice),
    )


def why_not_compared(profile: ProfilePart, choice: EpsilonPart) -> str | None:
    """Why the ε of the two say nothing about each other; None where they do."""
    if profile.persons is not None:
        return (
            "The profile takes out all rows of a person, and the choice of ε single rows: the ε"
            " that it finds protects a person of several rows less, and they are not compared."
        )
    known = profile.is_noiseless or profile.epsilon is not None
    if not known or _described(profile.model, profile) != _described(choice.model, profile):
        return (
            "The choice of ε is of another mechanism, other settings or other rows than the model"
            " that was profiled, as their descriptions say: they are not compared."
        )
    return None


def _described(model: str, profile: ProfilePart) -> set[str]:
    """What a description says but for ε and its relation, and the noise that the profile lacks."""
    said = {
        item for item in _RELATION.sub("", model).split(", ") if not item.startswith("epsilon=")
    }
    if profile.is_noiseless:
        said = {one for one in said if not (one.endswith(" noise") or one.startswith("delta="))}
    return said


def _noise(profile: ProfilePart) -> str:
    if profile.is_noiseless or profile.epsilon is None:
        return "carries no noise"
    return f"was released at ε = {number_up(profile.epsilon)}"


def _beside(released: float, advised: float, profile: ProfilePart, use: str) -> str:
    this = f"This model {_noise(profile)}"
    if released == advised:
        return f"{this}, the recommended one."
    if released < advised:
        return f"{this}, less than the {use} that is recommended."
    return f"{this}, and no more than {use} is recommended."


def _rehearsal(use: str) -> str:
    return (
        "Its noise came from a seed, so this is a rehearsal: release a model without one, at"
        f" {use} or less, before anything leaves the building."
    )


def _advice(released: float, profile: ProfilePart, choice: EpsilonPart) -> str:
    advised, ceiling = choice.recommended, choice.ceiling
    assert advised is not None
    use = f"ε = {number_down(advised)}"
    bound = f"the limit on the posterior ({share_text(choice.limit.max_posterior)})"
    if ceiling is None or not released <= ceiling:
        return (
            f"At its ε {bound} is not kept: release another model at {use}, and do not share this"
            " one."
        )
    if _is_unlucky(profile, choice):
        return _unlucky(bound, choice.limit.quantile)
    if released > advised:
        return (
            f"It keeps {bound}, but less is enough: release another at"
            f" {use} in its place, unless it has been shared already."
        )
    if profile.model_audience is Audience.REVIEW:
        return f"It keeps {bound}; but {before_sharing(promised=profile.worst_case < math.inf)}"
    if released < advised:
        return (
            f"It keeps {bound} with room to spare: share it if it is useful enough; if not, release"
            f" another at {use} or less, and count both, for what they give away adds up."
        )
    return (
        f"It keeps {bound}: share it if that is sure enough for you to accept, keep this page to"
        " yourself, and let expost publish make what may be shown."
    )


def _unlucky(bound: str, quantile: float) -> str:
    # To draw again and keep what looks best is a choice that no noise covers.
    return (
        f"For one row its ε keeps {bound} with probability {quantile:g}, but this model passes it"
        " for some row. Do not draw again until one pleases, for that choice is not private; if it"
        f" is too much, ask expost epsilon with a --quantile above {quantile:g} and release at the"
        " smaller ε that it finds."
    )


def _is_unlucky(profile: ProfilePart, choice: EpsilonPart) -> bool:
    """Whether some row's posterior in this very model passes the limit."""
    # Where no row of the list speaks for "in", what is farthest from 0 stands for what is not seen.
    worst = max((row.loss for row in profile.top if row.loss > 0), default=profile.top[0].exposure)
    return bool(worst > choice.limit.largest_loss)
