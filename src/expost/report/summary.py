"""Everything that a report shows, collected once; renderers only lay it out.

A summary holds figures, keys of rows and names, and no row's values: of the table only the names
of levels, and the edges of bins and conditions, in groupings that its maker asked for. Text that
came from outside is one line and printable; each renderer escapes it for its own format.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from expost._groups import Explanation, Grouping, printable
from expost._privacy_profile import PrivacyProfile
from expost.errors import InvalidInput
from expost.mechanisms import Release
from expost.report.parts import Choice, installed, one_line, shown_choices
from expost.report.wording import count, number, percent
from expost.types import Audience, FloatArray, Neighbouring

__all__ = [
    "Accuracy",
    "CurvePoint",
    "ExposedRow",
    "PersonFigures",
    "Quantile",
    "Summary",
    "collect",
]

_TOP_ROWS = 20
_CURVE_POINTS = 400
_SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """How useful the released model is, beside one that knows nothing and one without noise.

    ``measure``    "accuracy", or "R²" for a regression.
    ``base_rate``  what the most frequent label (the mean) achieves.
    ``noiseless``  what ε = ∞ would achieve on the same rows: not released, not private.
    ``rows``       which rows it was measured on, in words.
    """

    released: float
    base_rate: float
    noiseless: float | None = None
    measure: str = "accuracy"
    rows: str = "the training rows"

    def __post_init__(self) -> None:
        figures = (self.released, self.base_rate, self.noiseless)
        if not all(figure is None or math.isfinite(figure) for figure in figures):
            raise InvalidInput("accuracy: its figures must be finite numbers.")


@dataclass(frozen=True, kw_only=True)
class Quantile:
    """At least ``share`` of the rows have at most this ``score``, and this ``typical`` exposure."""

    share: float
    score: float
    typical: float | None

    @property
    def certainty(self) -> float:
        """sigmoid(score): how sure an undecided attacker gets at this exposure, in or out."""
        return _sure(self.score)


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """The ``rank``-th largest score, and the ``rank``-th largest typical exposure."""

    rank: int
    score: float
    typical: float | None


@dataclass(frozen=True, kw_only=True)
class ExposedRow:
    """One of the most exposed rows, by its key; ``low`` and ``high`` are the loss's interval.

    ``rows``  how many a person has, where it is one.
    """

    rank: int
    key: str
    loss: float
    low: float
    high: float
    belief: float
    typical: float | None
    distance: float
    rows: int | None = None

    @property
    def exposure(self) -> float:
        """∣loss∣."""
        return abs(self.loss)

    @property
    def precision(self) -> float:
        """The loss is proved to lie within so many nats of its figure."""
        return max(self.high - self.loss, self.loss - self.low) if self.low < self.high else 0.0


@dataclass(frozen=True, kw_only=True)
class PersonFigures:
    """Who was profiled where all rows of a person are taken out at once.

    ``count``        how many persons there are.
    ``median_rows``, ``most_rows``  how many rows half of them have at most, and any of them.
    ``row_epsilon``  what the mechanism promises to one row; None where it is not known.
    ``passed``       how likely it is at most that a person of ``most_rows`` rows loses more than
                     the worst case.
    """

    count: int
    median_rows: int
    most_rows: int
    row_epsilon: float | None
    passed: float

    @property
    def anyone(self) -> str:
        """Whom the worst case is promised to."""
        return f"any person of up to {_rows(self.most_rows)}"

    @property
    def sentence(self) -> str:
        """What was done, and how many rows they have."""
        return (
            "All rows of a person are taken out at once. Half of the persons have at most"
            f" {_rows(self.median_rows)}, and nobody has more than {count(self.most_rows)}."
        )


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a report shows. For the curator only.

    ``rows``        how many rows there are, or candidates.
    ``persons``     whose they are, where every figure is one of a person and not of a row.
    ``measure``     "exposure" in nats; "distance" where the model carries no noise.
    ``answer``      what was found, in three sentences.
    ``quantiles``, ``curve``, ``top``  the profile: a few shares, a chart, the most exposed rows.
    ``keyed``       whether rows have ids; else they are counted from 0.
    ``precision``   every loss is proved to within this many nats, but for ``unproved`` rows.
    ``evidence_in`` the share of rows whose loss is > 0.
    ``seeded``      whether the noise came from a seed (None: it has no noise or is unknown).
    ``source``, ``made``  a file name and a date, if the caller gave them.
    """

    measure: str
    rows: int
    relation: Neighbouring
    answer: tuple[str, str, str]
    model: str
    model_audience: Audience | None
    seeded: bool | None
    worst_case: float
    delta: float | None
    accuracy: Accuracy | None
    quantiles: tuple[Quantile, ...]
    curve: tuple[CurvePoint, ...]
    top: tuple[ExposedRow, ...]
    keyed: bool
    precision: float
    unproved: int
    evidence_in: float
    groups: tuple[Grouping, ...]
    explanation: Explanation | None
    choices: tuple[Choice, ...]
    notices: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]
    source: str | None
    made: str | None
    persons: PersonFigures | None = None

    audience = Audience.FAIL

    @property
    def is_noiseless(self) -> bool:
        """Whether rows are told apart by distances alone."""
        return self.measure == "distance"

    @property
    def unit(self) -> str:
        """What every figure is of."""
        return "row" if self.persons is None else "person"

    @property
    def heading(self) -> str:
        """How many of them there are, in words."""
        if self.persons is not None:
            return f"{count(self.persons.count)} persons with {_rows(self.rows)}"
        noun = "rows" if self.relation is Neighbouring.REMOVE else "candidates"
        return f"{count(self.rows)} {noun}"


def collect(
    profile: PrivacyProfile,
    *,
    release: Release | None = None,
    choices: Sequence[Choice] = (),
    groups: Sequence[Grouping] = (),
    explanation: Explanation | None = None,
    accuracy: Accuracy | None = None,
    notices: Sequence[str] = (),
    source: str | None = None,
    made: str | None = None,
    versions: Mapping[str, str] | None = None,
) -> Summary:
    """Gather a report's figures.

    ``release``   the model that was profiled, for its seed flag and its δ; None if it is foreign.
    ``choices``   every setting that the figures depend on, with where it comes from.
    ``groups``, ``explanation``  of ``profile.by`` and ``profile.explain``.
    ``notices``   what the reader must know beside the profile's own notices.
    ``made``      a date to show; the clock is not read, so the same input gives the same page.
    ``versions``  of the packages; read from what is installed if None.
    """
    scores = profile.distance if profile.is_noiseless else profile.exposure
    if not np.all(scores >= 0):
        raise ArithmeticError("an exposure is not a number")
    typical = None if profile.is_noiseless else np.sort(profile.typical)
    mechanism = None if release is None else release.mechanism
    private = mechanism is not None and mechanism.is_private
    half = 0.5 * (profile.loss_high - profile.loss_low) if not profile.is_noiseless else np.zeros(1)
    proved = np.isfinite(half)
    persons = _persons(profile, release)
    return Summary(
        measure="distance" if profile.is_noiseless else "exposure",
        rows=len(profile) if persons is None else profile.rows,
        relation=profile.losses.relation,
        answer=_answer(profile, None if mechanism is None else mechanism.delta, persons),
        model=one_line(profile.description),
        model_audience=None if release is None else release.audience,
        seeded=release.seeded if release is not None and private else None,
        worst_case=profile.worst_case,
        delta=None if mechanism is None else mechanism.delta,
        accuracy=None
        if accuracy is None
        else replace(accuracy, measure=one_line(accuracy.measure), rows=one_line(accuracy.rows)),
        quantiles=_quantiles(scores, typical),
        curve=_curve(np.sort(scores)[::-1], None if typical is None else typical[::-1]),
        top=_top(profile),
        keyed=profile.ids is not None,
        precision=float(np.max(half[proved], initial=0.0)),
        unproved=int(np.count_nonzero(~proved)),
        evidence_in=float(np.mean(profile.loss > 0)),
        groups=tuple(groups),
        explanation=explanation,
        choices=shown_choices(choices),
        notices=tuple(dict.fromkeys(one_line(notice) for notice in (*profile.notices, *notices))),
        versions=tuple((installed() if versions is None else dict(versions)).items()),
        source=None if source is None else one_line(source),
        made=None if made is None else one_line(made),
        persons=persons,
    )


def _persons(profile: PrivacyProfile, release: Release | None) -> PersonFigures | None:
    if profile.sizes is None:
        return None
    promised = release is not None and profile.worst_case < np.inf
    return PersonFigures(
        count=len(profile),
        median_rows=int(np.quantile(profile.sizes, 0.5, method="inverted_cdf")),
        most_rows=int(np.max(profile.sizes)),
        row_epsilon=release.mechanism.epsilon if release is not None and promised else None,
        passed=profile.losses.worst_case_passed,
    )


def _rows(number_of_rows: int) -> str:
    return f"{count(number_of_rows)} row{'' if number_of_rows == 1 else 's'}"


def _answer(
    profile: PrivacyProfile, delta: float | None, persons: PersonFigures | None
) -> tuple[str, str, str]:
    """What was found; numbers only, so that no name from outside stands in these sentences."""
    if profile.is_noiseless:
        return _noiseless_answer(profile, persons)
    exposure = profile.exposure
    largest = float(np.max(exposure))
    # ADD and REPLACE answer for people who are not in the data.
    noun = "row" if profile.losses.relation is Neighbouring.REMOVE else "candidate"
    knows, whether = "all other rows", "it was"
    if persons is not None:
        noun, knows, whether = "person", "the rows of all others", "that person was"
    middle, most = (float(q) for q in np.quantile(exposure, (0.5, 0.99), method="inverted_cdf"))
    promise = profile.worst_case
    first = (
        f"This released model exposes its most exposed {noun} by {number(largest)} nats: somebody"
        f" who knows {knows} and was undecided would be {percent(_sure(largest))} sure whether"
        f" {whether} in the data (a coin toss: 50 %)."
    )
    second = (
        f"Half of the {count(len(profile))} {noun}s are exposed by at most {number(middle)} nats"
        f" ({percent(_sure(middle))} sure), and 99 of 100 by at most {number(most)} nats"
        f" ({percent(_sure(most))} sure)."
    )
    if not promise < np.inf:
        third = (
            "The mechanism promises no ε for this loss: what it gives away is known only for this"
            " model."
        )
    elif persons is not None:
        third = _promise_to_persons(profile, delta, persons)
    elif profile.promise_broken:
        third = (
            f"The promise is broken: at most {number(promise)} nats ({percent(_sure(promise))}"
            f" sure) were promised for any row of any data, and {count(profile.rows_past_promise)}"
            f" of the {noun}s are proved to lose more."
        )
    elif delta is None:
        third = (
            f"The mechanism promises at most {number(promise)} nats ({percent(_sure(promise))}"
            f" sure) for any row of any data, and the most exposed {noun} here takes up"
            f" {percent(min(largest / promise, 1.0))} of it."
        )
    else:
        past = int(np.count_nonzero(exposure > promise))
        third = (
            f"The mechanism promises ε = {number(promise)} together with δ = {number(delta)}, so a"
            f" row may lose more than {number(promise)} nats ({percent(_sure(promise))} sure):"
            f" here {'no row does' if past == 0 else f'{count(past)} of the rows do'}."
        )
    return first, second, third


def _promise_to_persons(
    profile: PrivacyProfile, delta: float | None, persons: PersonFigures
) -> str:
    """What the promise, which is made to rows, comes to for who has most of them."""
    promise, largest = profile.worst_case, float(np.max(profile.exposure))
    bound = f"at most {number(promise)} nats ({percent(_sure(promise))} sure)"
    reach = f"for {persons.anyone} of any data"
    if profile.promise_broken:
        return (
            f"The promise is broken: {bound} were promised {reach}, and"
            f" {count(profile.rows_past_promise)} of the persons are proved to lose more."
        )
    known = ""
    if persons.row_epsilon is not None:
        beside = "" if delta is None else f" with δ = {number(delta)}"
        known = f"ε = {number(persons.row_epsilon)}{beside} for a row, and so "
    passed = f", except with probability {number(persons.passed)}" if persons.passed > 0 else ""
    past = int(np.count_nonzero(profile.exposure > promise))
    here = (
        f"and the most exposed person here takes up {percent(min(largest / promise, 1.0))} of it"
        if past == 0
        else f"and {count(past)} of the persons here lose more"
    )
    return f"The mechanism promises {known}{bound} {reach}{passed}, {here}."


def _noiseless_answer(
    profile: PrivacyProfile, persons: PersonFigures | None
) -> tuple[str, str, str]:
    noun = "row" if persons is None else "person"
    known = "all other rows" if persons is None else "the rows of all others"
    moved = int(np.count_nonzero(profile.loss > 0))
    median, largest = float(np.median(profile.distance)), float(np.max(profile.distance))
    return (
        f"This model carries no noise: somebody who knows {known} can be certain whether a {noun}"
        f" was in the data, for {count(moved)} of its {count(len(profile))} {noun}s.",
        f"{noun.capitalize()}s can only be told apart by how far the model moves without them: half"
        f" of them move it by at most {number(median)}, the one that moves it most by"
        f" {number(largest)}.",
        "Release a model with a finite epsilon to get losses that are finite.",
    )


def _sure(exposure: float) -> float:
    return float(expit(exposure))


def _quantiles(scores: FloatArray, typical: FloatArray | None) -> tuple[Quantile, ...]:
    # inverted_cdf: the figure is a row's own, and at least that share of rows is at or below it.
    own = np.quantile(scores, _SHARES, method="inverted_cdf")
    usual = None if typical is None else np.quantile(typical, _SHARES, method="inverted_cdf")
    return tuple(
        Quantile(
            share=share,
            score=float(own[place]),
            typical=None if usual is None else float(usual[place]),
        )
        for place, share in enumerate(_SHARES)
        # With few rows the outer quantiles are the largest one again.
        if share == 1 or len(scores) * (1 - share) >= 1
    )


def _curve(scores: FloatArray, typical: FloatArray | None) -> tuple[CurvePoint, ...]:
    """At most 400 ranks of the descending scores, evenly spread on a log scale."""
    rows = len(scores)
    ranks = np.arange(1, rows + 1)
    if rows > _CURVE_POINTS:
        ranks = np.unique(np.round(np.geomspace(1, rows, _CURVE_POINTS)).astype(np.int64))
    return tuple(
        CurvePoint(
            rank=int(rank),
            score=float(scores[rank - 1]),
            typical=None if typical is None else float(typical[rank - 1]),
        )
        for rank in ranks
    )


def _top(profile: PrivacyProfile) -> tuple[ExposedRow, ...]:
    belief, typical, sizes = profile.belief, profile.typical, profile.sizes
    return tuple(
        ExposedRow(
            rank=place + 1,
            key=printable(profile.key(int(row))),
            loss=float(profile.loss[row]),
            low=float(profile.loss_low[row]),
            high=float(profile.loss_high[row]),
            belief=float(belief[row]),
            typical=None if profile.is_noiseless else float(typical[row]),
            distance=float(profile.distance[row]),
            rows=None if sizes is None else int(sizes[row]),
        )
        for place, row in enumerate(profile.ranking[:_TOP_ROWS])
    )
