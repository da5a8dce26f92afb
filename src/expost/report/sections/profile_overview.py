"""The overview of a profile: verdict, tiles, alerts, terms and facts."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from expost.groups.exposure import printable
from expost.numbers import (
    certainty,
    count,
    fixed,
    for_persons,
    nats,
    number,
    posterior_at,
    share,
    symbols,
    upper_text,
)
from expost.profiles.digest import POSTERIOR
from expost.profiles.fit import FitScores
from expost.profiles.profile import Profile
from expost.profiles.verb import SEEDED
from expost.release import Release
from expost.report.compare import model_facts
from expost.report.document import Alert, Tile, Tone, Verdict, one_line
from expost.report.rows import MOST_ROWS
from expost.report.sections.attackers import RowFigures, guarantee_tile, rows_tile
from expost.report.sections.bounds import at_most, exception
from expost.report.sections.left_out import left_out_tile, top_sentence
from expost.types import Audience, Neighbouring

__all__ = ["Subject", "rows_text", "useful_tile"]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A profile with its model and the nouns of its sentences."""

    profile: Profile
    release: Release | None

    @classmethod
    def of(cls, profile: Profile, release: Release | None) -> "Subject":
        """Return the subject of a profile; by default with the model that it knows."""
        return cls(profile=profile, release=profile.release if release is None else release)

    @property
    def unit(self) -> str:
        """What every figure is of: row, candidate or person."""
        if self.profile.owner is not None:
            return "person"
        removed = self.profile.relation is Neighbouring.REMOVE
        return "row" if removed or self.profile.is_noiseless else "candidate"

    @property
    def heading(self) -> str:
        """The number of rows, candidates or persons."""
        profile = self.profile
        if profile.owner is not None:
            return f"{count(len(profile))} persons with {rows_text(profile.rows)}"
        return f"{count(len(profile))} {self.unit}s"

    @property
    def epsilon(self) -> float | None:
        """The ε of the model, where it is known."""
        return None if self.release is None else self.release.mechanism.epsilon

    @property
    def delta(self) -> float | None:
        """The δ of the model; None under pure ε or where it is not known."""
        return None if self.release is None else self.release.mechanism.delta

    @property
    def past(self) -> int:
        """The number of rows past the limit."""
        return self.profile.digest.past_posterior

    @property
    def largest_key(self) -> str:
        """The key of the most exposed row."""
        key = "id" if self.profile.keyed else self.profile.unit
        return printable(self.profile.most(1, ()).column(key)[0].as_py())

    @property
    def _largest_loss(self) -> float | None:
        """The largest loss, evidence of presence; None where there is no noise."""
        if self.profile.is_noiseless:
            return None
        return float(self.profile.identifiability().digest.highest.largest)

    def subtitle(self) -> Iterator[str]:
        """Return the model in short phrases."""
        if self.release is None:
            yield symbols(one_line(self.profile.description))
            return
        mechanism = self.release.mechanism
        yield mechanism.title
        if mechanism.is_private:
            delta = "" if mechanism.delta is None else f", δ = {number(mechanism.delta, 'up')}"
            yield f"ε = {number(mechanism.epsilon, 'up')}{delta}"
        else:
            yield "no noise"

    # -- the overview --------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        """Return the result and the decision."""
        profile, unit = self.profile, self.unit
        if profile.guarantee_exceeded:
            return Verdict(
                text=f"The guarantee is exceeded: {count(profile.rows_past_guarantee)} of"
                f" {count(len(profile))} {unit}s are certified to lose more than the"
                f" {nats(number(profile.worst_case, 'up'))} that the mechanism guarantees.",
                more="Do not release this model or any other of the same mechanism until the cause"
                " is known. The rows may not be those that the model was trained on.",
                tone="bad",
                priority=100,
            )
        useless = profile.useless
        if useless is not None:
            return Verdict(text=symbols(useless), more=self._exposed(), tone="bad", priority=90)
        if profile.is_noiseless:
            return Verdict(
                text="This model carries no noise: an attacker who knows the other rows can be"
                f" certain about {count(profile.digest.inside)} of {count(len(profile))} {unit}s.",
                more="Do not share it with anyone who may not see the data. Its figures are"
                " influence, which is not leakage: only noise (`expost epsilon`) or an audit"
                " (`expost audit`) says more.",
                tone="bad",
                priority=50,
            )
        limit = share(POSTERIOR)
        if self.past:
            attacker = "attacker" if profile.attackers is None else profile.attackers.noun
            exceed = f"{count(self.past)} {unit}{' exceeds' if self.past == 1 else 's exceed'}"
            return Verdict(
                text=f"{exceed} the limit: an {attacker} can be more than {limit} certain about"
                f" {'it' if self.past == 1 else 'each of them'}.",
                more=self._past_limit(),
                tone="caution",
                priority=50,
            )
        exceeds = f"no {unit} exceeds the limit of {limit}."
        if profile.fit is None:
            text = exceeds.capitalize()
        elif profile.fit.is_within_chance:
            return Verdict(
                text=f"This model is not shown to be useful, and {exceeds}",
                more="Its gain over the base rate on its own rows may be chance: `expost epsilon`"
                " measures on rows that were held out.",
                tone="caution",
                priority=50,
            )
        else:
            text = f"This model is useful, and {exceeds}"
        if self.release is not None and self.release.seeded:
            return Verdict(
                text=text,
                more="The noise was seeded, so this is a simulation and not a private release.",
                tone="caution",
                priority=50,
            )
        if self.release is not None and self.release.audience is not Audience.PUBLIC:
            return Verdict(text=text, more=self._before_sharing(), tone="good", priority=50)
        if self.release is None and (profile.notices or not profile.worst_case < math.inf):
            # Whether the noise was seeded, or a constant read from the data, is in the notices.
            return Verdict(text=text, more=self._before_sharing(), tone="caution", priority=50)
        return Verdict(
            text=text,
            more="The model can be shared if its guarantee is acceptable to you.",
            tone="good",
            priority=50,
        )

    def _past_limit(self) -> str:
        """Return what to do about rows past the limit, and what is guaranteed otherwise."""
        attackers = self.profile.attackers
        if attackers is None:
            return (
                "Release at a smaller ε if that is too much. `expost epsilon` keeps its limit for"
                " each row in 95 % of releases, and of many rows a few can exceed it: a larger"
                " --quantile makes that rarer."
            )
        train = "Train with more noise or fewer steps if that is too much."
        first = attackers.first
        if not attackers.rows_differ or first.epsilon is None or first.loss is None:
            return train
        return (
            f"ε = {number(first.epsilon, 'up')} (δ = {number(attackers.delta, 'up')}) is about an"
            f" {attackers.accounted}, who is {at_most(certainty(first.loss))} certain about"
            f" {self._anyone()}. {train}"
        )

    @property
    def qualifier(self) -> str:
        """What the attacker sees, for titles, where that must be said."""
        return "" if self.profile.attackers is None else self.profile.attackers.qualifier

    @property
    def row_figures(self) -> RowFigures:
        """The figures of rows that stand next to the guarantees of a training."""
        return RowFigures(
            unit=self.unit,
            key=self.largest_key,
            largest=float(self.profile.digest.scores.largest),
            half=self.profile.quantile(0.5),
            outer=self.profile.digest.outer,
        )

    def _exposed(self) -> str:
        return (
            f"The most exposed {self.unit}: an attacker is"
            f" {at_most(certainty(self.profile.digest.outer))} certain."
        )

    def _before_sharing(self) -> str:
        if not self.profile.worst_case < math.inf:
            return (
                "Nothing is guaranteed for other data: have the model reviewed before sharing it."
            )
        if self.release is None:
            return "Read the alerts before you share the model."
        return (
            "Have the constants that were read from the data reviewed before you share the model:"
            " ε does not cover them."
        )

    def tiles(self) -> Iterator[Tile]:
        """Return what a reader sees first."""
        profile = self.profile
        if profile.fit is not None:
            yield useful_tile(profile.fit, useless=profile.useless is not None)
        yield self._guarantee_tile()
        if profile.left_out is not None:
            yield self._shift_tile()
            yield left_out_tile(profile.left_out)
            return
        if profile.is_noiseless:
            yield Tile(
                label=f"{self.unit.capitalize()}s exposed",
                value=count(profile.digest.inside),
                lines=(f"of {count(len(profile))} move the model",),
                tone="bad",
            )
            return
        yield self._rows_tile()
        yield Tile(
            label=f"{self.unit.capitalize()}s above the limit",
            value=count(self.past),
            lines=(
                f"of {count(len(profile))} exceed {share(POSTERIOR)}{self.qualifier}",
                f"half of the {self.unit}s: {at_most(certainty(profile.quantile(0.5)))}",
            ),
            tone="good" if self.past == 0 else "caution",
        )

    def _rows_tile(self) -> Tile:
        """Return the most exposed row."""
        attackers, rows = self.profile.attackers, self.row_figures
        outer = rows.outer if attackers is None else rows.largest
        tone: Tone = "plain" if self.past == 0 else "caution"
        people = min(100, math.ceil(100 * posterior_at(outer) - 1e-9))
        if attackers is not None:
            return rows_tile(attackers, rows, tone=tone, people=people)
        return Tile(
            label=f"Most exposed {self.unit}",
            value=certainty(outer),
            lines=(
                f"attacker's certainty about {self.unit} {self.largest_key}",
                "50 % is guessing",
            ),
            tone=tone,
            people=people,
        )

    def _shift_tile(self) -> Tile:
        """Return the largest distance by which a row moves a model without noise."""
        profile = self.profile
        largest = profile.most(1, ("distance", "distance_error")).to_pylist()[0]
        exact = largest["distance_error"] <= 1e-3 * largest["distance"]
        within = (
            "exact" if exact else f"certified to ± {number(largest['distance_error'], 'up', 2)}"
        )
        return Tile(
            label="Largest shift",
            value=number(largest["distance"]),
            lines=(
                f"by {self.unit} {self.largest_key}, {within}",
                f"{count(profile.digest.inside)} of {count(len(profile))} rows move the model",
            ),
            tone="bad",
        )

    def _guarantee_tile(self) -> Tile:
        profile = self.profile
        worst, passed = profile.worst_case, profile.terms.worst_case_passed
        if profile.is_noiseless or not worst < math.inf:
            return Tile(label="Guarantee", value="none", lines=("no ε is guaranteed",), tone="bad")
        if profile.attackers is not None:
            return guarantee_tile(profile.attackers, anyone=self._anyone())
        allowed = f"attacker {at_most(certainty(worst))} certain about {self._anyone()}"
        unless = exception(passed)
        if self.epsilon is None:
            value = f"{number(worst, 'up')} nats"
            return Tile(label="Guarantee", value=value, lines=_given(allowed, unless))
        delta = "" if self.delta is None else f"δ = {number(self.delta, 'up')}"
        of_persons = for_persons(self.release.mechanism.rows_per_person) if self.release else ""
        return Tile(
            label="Guarantee",
            value=f"ε = {number(self.epsilon, 'up')}",
            lines=_given(delta + of_persons, allowed, unless),
            tone="bad" if profile.guarantee_exceeded else "plain",
        )

    def _anyone(self) -> str:
        if self.profile.sizes is None:
            return "any row"
        return f"any person with up to {rows_text(int(np.max(self.profile.sizes)))}"

    def alerts(self) -> Iterator[Alert]:
        """Return what the reader must know."""
        profile, release = self.profile, self.release
        if profile.guarantee_exceeded:
            yield Alert(severity="problem", title="The guarantee is exceeded.")
        elif profile.digest.past_guarantee and not profile.is_noiseless:
            rows = f"{count(profile.digest.past_guarantee)} of {count(len(profile))} {self.unit}s"
            yield Alert(
                severity="note",
                title=f"{rows} lose more than {nats(number(profile.worst_case, 'up'))}.",
                text="The guarantee allows that with a small probability.",
            )
        if profile.useless is not None:
            measured = profile.fit is not None and profile.fit.is_useless
            yield Alert(
                severity="problem",
                title=f"The model is {'' if measured else 'forecast to be '}no better than the base"
                " rate.",
            )
        if release is not None and release.seeded and release.mechanism.is_private:
            yield Alert.of("problem", SEEDED)
        if profile.digest.unproved:
            yield Alert(
                severity="problem",
                title=f"{_units(profile.digest.unproved, self.unit)} without a certified interval.",
                text="What is not certified counts as exposed without bound.",
            )
        if profile.top is not None and not profile.top.is_certified:
            yield Alert.of("review", top_sentence(profile.top))
        for notice in profile.notices:
            if notice != SEEDED:
                yield Alert.of("review", notice)
        if not profile.is_held:
            yield Alert(
                severity="note",
                title="The rows were processed in blocks.",
                text="Exposures, their intervals, counts and the ranks of the"
                f" {count(min(len(profile), MOST_ROWS))} most exposed rows are exact. Quantiles are"
                f" rounded up by at most {upper_text(100 * profile.scores.error, 1)} % of"
                " themselves.",
            )
            if profile.expected_scores is None and not profile.is_noiseless:
                yield Alert(
                    severity="note",
                    title="Expected exposures are left out.",
                    text="With a private encoding they are not computed in blocks."
                    if profile.release is not None and profile.release.has_private_encoding
                    else "Under objective perturbation they are sampled, which takes too much"
                    " memory for so many coefficients.",
                )

    def glossary(self) -> Iterator[tuple[str, str]]:
        """Return the terms of the page."""
        unit = self.unit
        others = "the rows of everyone else" if unit == "person" else "every other row"
        if self.profile.is_noiseless:
            yield (
                "distance",
                f"How far the parameters of the model move when the {unit} is removed. Without"
                f" noise any move reveals the {unit} to an attacker who knows {others}.",
            )
            if self.profile.left_out is not None:
                yield (
                    "prediction without the row",
                    "What the model of all other rows predicts for the row: a probability"
                    " (logistic loss), else the predicted value.",
                )
            return
        yield (
            "certainty",
            f"max(posterior, 1 − posterior) of an attacker with prior 50 % who knows {others} and"
            " how the model was trained: the strongest attacker there is.",
        )
        yield ("posterior", f"The attacker's probability that the {unit} was in the data.")
        yield (
            "exposure",
            "The absolute privacy loss ∣log p(θ ∣ D) − log p(θ ∣ D′)∣ of this model, in nats: 0"
            " reveals nothing, 0.1 is a likelihood ratio of 1.1, 0.7 of 2, 2.3 of 10.",
        )
        yield (
            "expected exposure",
            f"The mean exposure of the {unit} over all models that the mechanism might have"
            " released.",
        )
        yield (
            "guarantee",
            f"What the mechanism's ε allows for {self._anyone()} of any data, not what happened"
            " in this release.",
        )

    def facts(self) -> dict[str, Any]:
        """Return what other documents on the page are compared with."""
        profile, release = self.profile, self.release
        facts: dict[str, Any] = {
            "unit": self.unit,
            "relation": profile.relation.value,
            "rows": profile.rows,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "noiseless": profile.is_noiseless,
            "seeded": None if release is None else release.seeded,
            "model_audience": None if release is None else release.audience.value,
            "largest_loss": self._largest_loss,
            "past_certainty": 0 if profile.is_noiseless else self.past,
        }
        if release is not None:
            facts |= model_facts(release.mechanism)
        return facts


def useful_tile(fit: FitScores, *, useless: bool) -> Tile:
    """Return how well the released model predicts its rows, next to two others."""
    if fit.auc:
        values, base, name = fit.auc, 0.5, "AUC"
    else:
        values, base, name = fit.score, fit.base_score, fit.measure
    lines = [f"{base:.3f} by {'guessing' if fit.auc else 'the base rate'}"]
    if len(values) > 1:
        lines.insert(0, f"{values[1]:.3f} without noise")
    shown: Tone = "caution" if fit.is_within_chance else "good"
    return Tile(
        label="Useful?",
        value=f"{name} {fixed(values[0], 3)}".replace("-", "−"),
        lines=(*(line.replace("-", "−") for line in lines), "on the training rows"),
        tone="bad" if useless else shown,
    )


def _units(number_of_units: int, unit: str) -> str:
    return f"{count(number_of_units)} {unit}{'' if number_of_units == 1 else 's'}"


def _given(*lines: str) -> tuple[str, ...]:
    return tuple(line for line in lines if line)


def rows_text(number_of_rows: int) -> str:
    """Return a number of rows in words."""
    return f"{count(number_of_rows)} row{'' if number_of_rows == 1 else 's'}"
