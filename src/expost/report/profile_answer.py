"""What a profile answers, in sentences.

Numbers only, so that no name from outside stands in these sentences.
"""

from dataclasses import dataclass

import numpy as np

from expost.mechanisms.statement import relation_text
from expost.profiles.digest import POSTERIOR
from expost.profiles.profile import ProfileFigures
from expost.release import Release
from expost.report.parts import Headline
from expost.report.profile_part import PersonFigures
from expost.report.wording import count, number_up, percent_up, sure_text, symbols
from expost.report.wording import share as share_text
from expost.rounding import for_persons, nats
from expost.types import Audience, Neighbouring

__all__ = ["ProfileAnswer", "before_sharing"]


@dataclass(frozen=True, kw_only=True)
class ProfileAnswer:
    """The sentences of one profile."""

    profile: ProfileFigures
    release: Release | None
    persons: PersonFigures | None

    @property
    def headline(self) -> Headline:
        """Which ε, how exposed the most exposed is, what to do."""
        if self.profile.noiseless:
            return self._noiseless
        return Headline(
            useless=self._useless,
            epsilon=self._promise,
            exposed=self._exposed,
            advice=self._advice,
            alarm=self.profile.promise_broken,
        )

    @property
    def answer(self) -> tuple[str, ...]:
        """How the others fare."""
        profile = self.profile
        if profile.noiseless:
            return (
                f"{self._noun.capitalize()}s can only be told apart by how far the model moves"
                f" without them: half of them move it by at most {number_up(profile.median)}, the"
                " one"
                f" that moves it most by {number_up(profile.largest)}.",
            )
        middle, most = profile.median, profile.late
        return (
            f"Half of the {count(profile.count)} {self._noun}s are exposed by at most"
            f" {_nats(middle)} ({sure_text(middle)} sure), and 99 of 100 by at most"
            f" {_nats(most)} ({sure_text(most)} sure).",
        )

    @property
    def _useless(self) -> str | None:
        useless = self.profile.useless
        return None if useless is None else symbols(useless)

    @property
    def _noun(self) -> str:
        if self.persons is not None:
            return "person"
        # ADD and REPLACE answer for people who are not in the data.
        removed = self.profile.relation is Neighbouring.REMOVE
        return "row" if removed or self.profile.noiseless else "candidate"

    @property
    def _known(self) -> str:
        return "all other rows" if self.persons is None else "the rows of all others"

    @property
    def _largest(self) -> float:
        return self.profile.largest

    @property
    def _delta(self) -> float | None:
        return None if self.release is None else self.release.mechanism.delta

    @property
    def _exposed(self) -> str:
        whether = "it was" if self.persons is None else "that person was"
        return (
            f"This released model exposes its most exposed {self._noun} by"
            f" {_nats(self._largest)}: somebody who knows {self._known} and was undecided"
            f" would be {sure_text(self._largest)} sure whether {whether} in the data (a"
            " coin toss: 50\N{NO-BREAK SPACE}%)."
        )

    @property
    def _promise(self) -> str:
        profile, promise = self.profile, self.profile.worst_case
        if not promise < np.inf:
            return (
                "The mechanism promises no ε for this loss: what it gives away is known only for"
                " this model."
            )
        if self.persons is not None:
            return self._promise_to_persons(self.persons)
        bound = f"at most {_nats(promise)} ({sure_text(promise)} sure)"
        if profile.promise_broken:
            return (
                f"The promise is broken: {bound} were promised for any row of any data, and"
                f" {count(profile.rows_past_promise)} of the {self._noun}s are proved to lose more."
            )
        passed = profile.worst_case_passed
        past = profile.past_promise
        unit = for_persons(1 if self.release is None else self.release.mechanism.rows_per_person)
        if self.release is not None and unit:
            delta = "" if self._delta is None else f" with δ = {number_up(self._delta)}"
            unless = f", except with probability {number_up(passed)}" if passed > 0 else ""
            return (
                f"The mechanism guarantees ε = {number_up(self.release.mechanism.epsilon)}{delta}"
                f"{unit}, and so {bound} for any single row of any data{unless}."
            )
        if self.release is None and passed > 0:
            here = (
                f"no {self._noun} does" if past == 0 else f"{count(past)} of the {self._noun}s do"
            )
            return (
                f"The mechanism promises {bound} for any row of any data, except with probability"
                f" {number_up(passed)}, so a row may lose more: here {here}."
            )
        if self._delta is None:
            return (
                f"The mechanism promises ε = {number_up(promise)}, {bound} for any row of any data,"
                f" and the most exposed {self._noun} here takes up"
                f" {percent_up(min(self._largest / promise, 1.0))} of it."
            )
        covered = "" if self.release is None else f" {relation_text(self.release.mechanism)}"
        return (
            f"The mechanism promises ε = {number_up(promise)} together with δ ="
            f" {number_up(self._delta)}{covered}, so a row may lose more than {_nats(promise)}"
            f" ({sure_text(promise)} sure): here"
            f" {'no row does' if past == 0 else f'{count(past)} of the rows do'}."
        )

    def _promise_to_persons(self, persons: PersonFigures) -> str:
        """What the promise, which is made to rows, comes to for who has most of them."""
        profile, promise = self.profile, self.profile.worst_case
        bound = f"at most {_nats(promise)} ({sure_text(promise)} sure)"
        reach = f"for {persons.anyone} of any data"
        if profile.promise_broken:
            return (
                f"The promise is broken: {bound} were promised {reach}, and"
                f" {count(profile.rows_past_promise)} of the persons are proved to lose more."
            )
        known = ""
        if persons.row_epsilon is not None:
            beside = "" if self._delta is None else f" with δ = {number_up(self._delta)}"
            known = f"ε = {number_up(persons.row_epsilon)}{beside} for a row, and so "
        passed = (
            f", except with probability {number_up(persons.passed)}" if persons.passed > 0 else ""
        )
        past = profile.past_promise
        taken = percent_up(min(self._largest / promise, 1.0))
        here = (
            f"and the most exposed person here takes up {taken} of it"
            if past == 0
            else f"and {count(past)} of the persons here lose more"
        )
        return f"The mechanism promises {known}{bound} {reach}{passed}, {here}."

    @property
    def _advice(self) -> str:
        profile = self.profile
        if profile.promise_broken:
            return (
                "Do not release this model, and trust no other by the same mechanism, until it is"
                " known why: the rows may not be those that it was trained on."
            )
        seeded = self.release is not None and self.release.seeded
        past = profile.past_posterior
        limit = share_text(POSTERIOR)
        if past:
            many = f"{count(past)} {self._noun}{' is' if past == 1 else 's are'}"
            rehearsed = "Its noise came from a seed, so this is a rehearsal; and " if seeded else ""
            return (
                f"{rehearsed}{many} exposed past {limit}: let expost epsilon find an ε at which no"
                " row's typical belief passes the bound that you set, and release at that one"
                f"{' without a seed' if seeded else ''}{self._of_persons}."
            )
        if seeded:
            return (
                "Its noise came from a seed, so this is a rehearsal: release a model without one"
                " before anything leaves the building."
            )
        kept = (
            f"No {self._noun} is exposed past {limit}, the bound that expost epsilon keeps unless"
            " told otherwise"
        )
        if self.release is not None and self.release.audience is not Audience.PASS:
            return f"{kept}; but {before_sharing(promised=profile.worst_case < np.inf)}"
        return (
            f"{kept}: share the model if its promise is what you want, keep this page to yourself,"
            " and let expost publish make what may be shown."
        )

    @property
    def _of_persons(self) -> str:
        """What a bound on rows leaves open."""
        if self.persons is None:
            return ""
        return "; for a person of several rows choose a smaller one, and profile persons again"

    @property
    def _noiseless(self) -> Headline:
        moved = self.profile.inside
        noun = self._noun
        return Headline(
            useless=self._useless,
            epsilon="This model carries no noise, so no ε is promised.",
            exposed=(
                f"Somebody who knows {self._known} can be certain whether a {noun} was in the"
                f" data, for {count(moved)} of its {count(self.profile.count)} {noun}s."
            ),
            advice=(
                "Do not share it with anybody who may not see its rows: let expost epsilon find an"
                " ε for them, and release a model that carries the noise of that one."
            ),
        )


def before_sharing(*, promised: bool) -> str:
    """What to do first with a model that is for a review, though its noise came from no seed."""
    if not promised:
        return (
            "nothing is promised for other data: have the model reviewed before you share it, and"
            " keep this page to yourself."
        )
    # What was read from the rows stands in model.json as it is, and expost publish refuses it.
    return (
        "the model holds what was read from its rows, which its ε does not cover: have that"
        " reviewed before you share it, or give it beforehand and release again, and keep this"
        " page to yourself."
    )


def _nats(exposure: float) -> str:
    return nats(number_up(exposure))
