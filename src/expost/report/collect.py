"""Any results in one summary, collected once."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from expost.audits.result import Audit
from expost.audits.sweep import AuditSweep
from expost.epsilon.choice import EpsilonChoice
from expost.errors import InvalidInput
from expost.groups.exposure import Explanation, Grouping
from expost.profiles.posterior import RowIdentifiability
from expost.profiles.profile import Profile
from expost.publishing.report import Answer, PublishedReport
from expost.release import Release
from expost.report.audit_collect import collect_audit
from expost.report.audits_part import collect_audits
from expost.report.beliefs_part import collect_beliefs
from expost.report.epsilon_part import collect_epsilon
from expost.report.parts import Choice, Context, Headline, Part
from expost.report.plots import audience_of
from expost.report.profile_collect import collect_profile
from expost.report.profile_part import Accuracy
from expost.report.published_part import collect_published
from expost.report.risk_part import collect_risk
from expost.report.summary import Summary
from expost.report.training_part import collect_training, run_profile, transcript_of
from expost.risk.answer import Identifiability
from expost.types import Audience

__all__ = ["collect"]


def collect(
    *results: Any,
    release: Release | None = None,
    groups: Sequence[Grouping] = (),
    explanation: Explanation | None = None,
    accuracy: Accuracy | None = None,
    command: str | None = None,
    answers: Sequence[Answer] = (),
    choices: Sequence[Choice] = (),
    notices: Sequence[str] = (),
    source: str | None = None,
    made: str | None = None,
    versions: Mapping[str, str] | None = None,
) -> Summary:
    """Gather what a report shows of ``results``, each of another kind.

    ``release``, ``groups``, ``explanation``, ``accuracy``  go with a profile.
    ``command``   goes with a choice of ε, or with a published report: what to type next.
    ``answers``   go with a published report: what it answered to a person.
    ``choices``   every setting that the figures depend on, with where it comes from.
    ``notices``   what the reader must know beside the results' own notices.
    ``made``      a date to show; the clock is not read, so the same input gives the same page.
    ``versions``  of the packages; read from what is installed if None.

    ``choices`` to ``made`` are told of the first result that is not for everybody, if there is one,
    so that a public page leaves them out: they may tell of the data.
    """
    context = Context(choices=choices, notices=notices, source=source, made=made)
    parts: dict[str, Part] = {}
    results = (*results, *_profiles(results))
    private = [each for each in results if not isinstance(each, Identifiability | PublishedReport)]
    # Those have the mark of their model.
    reviewed = [each for each in results if audience_of(each) is not Audience.PASS]
    told = next(iter((*private, *reviewed, *results)), None)
    for result in results:
        found = _parts(
            result,
            context if result is told else Context(),
            release=release,
            groups=groups,
            explanation=explanation,
            accuracy=accuracy,
            command=command,
            answers=answers,
        )
        twice = parts.keys() & found.keys()
        if twice:
            raise InvalidInput(
                f"results: two of them are of the kind {sorted(twice)[0]!r}; a report shows one of"
                " each."
            )
        parts |= found
    if _is_of_run(results) and not parts["profile"].headline.alarm:
        # Both tell of the same run, and its training knows best what was promised.
        parts["profile"] = replace(parts["profile"], headline=Headline())
        parts["training"] = replace(parts["training"], model=parts["profile"].model)
    if "beliefs" not in parts:
        parts |= _beliefs(results)
    return Summary.of(parts, versions)


def _profiles(results: Sequence[Any]) -> list[Profile]:
    """The profile of a training goes with it, where it was not given."""
    if any(isinstance(result, Profile) for result in results):
        return []
    return [run_profile(result) for result in results if transcript_of(result) is not None]


def _is_of_run(results: Sequence[Any]) -> bool:
    """Whether there are a training and its own profile."""
    runs = [run.loss for each in results if (run := transcript_of(each)) is not None]
    profiles = [each.loss for each in results if isinstance(each, Profile) and each.is_held]
    return any(np.array_equal(run, profile) for run in runs for profile in profiles)


def _beliefs(results: Sequence[Any]) -> dict[str, Part]:
    """What a profile says of beliefs goes with it, where it was not given."""
    for result in results:
        if isinstance(result, Profile) and not result.is_noiseless:
            found = result.identifiability()
            return {"beliefs": collect_beliefs(found, beside_profile=True)}
    return {}


def _parts(result: Any, context: Context, **options: Any) -> dict[str, Part]:
    """The parts that one result brings, by the names they have in a summary."""
    match result:
        case Profile():
            names = ("release", "groups", "explanation", "accuracy")
            own = {name: options[name] for name in names}
            return {"profile": collect_profile(result, context=context, **own)}
        case EpsilonChoice():
            command = options["command"]
            return {"epsilon": collect_epsilon(result, command=command, context=context)}
        case RowIdentifiability():
            return {"beliefs": collect_beliefs(result, context=context)}
        case Identifiability():
            return {"risk": collect_risk(result, context=context)}
        case PublishedReport():
            asked = {name: options[name] for name in ("answers", "command")}
            return {"published": collect_published(result, context=context, **asked)}
        case AuditSweep():
            return {"audits": collect_audits(result, context=context)}
        case Audit():
            return {"audit": collect_audit(result, context=context)}
        case _ if transcript_of(result) is not None:
            return {"training": collect_training(result, context=context)}
        case _:
            raise InvalidInput(
                f"results: cannot report a {type(result).__name__}; give profiles, choices of ε,"
                " audits and what else the verbs of expost return."
            )
