"""The part of a report that shows a profile, collected once."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from expost.groups.exposure import Explanation, Grouping, printable
from expost.profiles.profile import PrivacyProfile
from expost.release import Release
from expost.report.parts import Context, one_line
from expost.report.profile_answer import ProfileAnswer
from expost.report.profile_part import (
    Accuracy,
    CurvePoint,
    ExposedRow,
    PersonFigures,
    ProfilePart,
    Quantile,
)
from expost.report.rows import rows_of_profile
from expost.report.slider import slider_of_profile
from expost.report.wording import certainty
from expost.types import FloatArray

__all__ = ["collect_profile"]

_TOP_ROWS = 20
_CURVE_POINTS = 400
_SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)


def collect_profile(
    profile: PrivacyProfile,
    *,
    release: Release | None = None,
    groups: Sequence[Grouping] = (),
    explanation: Explanation | None = None,
    accuracy: Accuracy | None = None,
    context: Context | None = None,
) -> ProfilePart:
    """Gather the figures of a profile.

    ``release``   the model that was profiled, for its ε, δ and seed flag; None if it is foreign.
    ``groups``, ``explanation``  of ``profile.by`` and ``profile.explain``.
    """
    context = context or Context()
    scores = profile.distance if profile.is_noiseless else profile.exposure
    if not np.all(scores >= 0):
        raise ArithmeticError("an exposure is not a number")
    typical = None if profile.is_noiseless else np.sort(profile.typical)
    mechanism = None if release is None else release.mechanism
    private = mechanism is not None and mechanism.is_private
    half = 0.5 * (profile.loss_high - profile.loss_low) if not profile.is_noiseless else np.zeros(1)
    proved = np.isfinite(half)
    persons = _persons(profile, release)
    told = ProfileAnswer(profile=profile.figures, release=release, persons=persons)
    return ProfilePart(
        measure="distance" if profile.is_noiseless else "exposure",
        rows=len(profile) if persons is None else profile.rows,
        relation=profile.losses.relation,
        headline=told.headline,
        answer=told.answer,
        model=one_line(profile.description),
        model_audience=None if release is None else release.audience,
        seeded=release.seeded if release is not None and private else None,
        epsilon=None if mechanism is None else mechanism.epsilon,
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
        persons=persons,
        row_data=rows_of_profile(profile),
        slider=slider_of_profile(profile, release),
        **context.fields(profile.notices),
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
    typical, sizes = profile.typical, profile.sizes
    return tuple(
        ExposedRow(
            rank=place + 1,
            key=printable(profile.key(int(row))),
            loss=float(profile.loss[row]),
            low=float(profile.loss_low[row]),
            high=float(profile.loss_high[row]),
            belief=certainty(float(profile.loss[row])),
            typical=None if profile.is_noiseless else float(typical[row]),
            distance=float(profile.distance[row]),
            rows=None if sizes is None else int(sizes[row]),
        )
        for place, row in enumerate(profile.ranking[:_TOP_ROWS])
    )
