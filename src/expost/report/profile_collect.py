"""Collect the part of a report that shows a profile."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from expost.groups.exposure import Explanation, Grouping, printable
from expost.profiles.profile import Profile
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
from expost.report.rows import MOST_ROWS, rows_of_profile
from expost.report.slider import curve_ranks, slider_of_profile
from expost.report.wording import certainty, count, forecast_lines, symbols
from expost.rounding import upper_text

__all__ = ["collect_profile"]

_TOP_ROWS = 20
_SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)


def collect_profile(
    profile: Profile,
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
    release = profile.release if release is None else release
    mechanism = None if release is None else release.mechanism
    private = mechanism is not None and mechanism.is_private
    persons = _persons(profile, release)
    told = ProfileAnswer(profile=profile.figures, release=release, persons=persons)
    return ProfilePart(
        measure=profile.terms.measure,
        rows=len(profile) if persons is None else profile.rows,
        relation=profile.relation,
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
        quantiles=_quantiles(profile),
        curve=_curve(profile),
        top=_top(profile),
        keyed=profile.keyed,
        precision=profile.digest.half_width,
        unproved=profile.digest.unproved,
        evidence_in=profile.digest.inside / len(profile),
        groups=tuple(groups),
        explanation=explanation,
        persons=persons,
        row_data=rows_of_profile(profile),
        slider=slider_of_profile(profile, release),
        guarantee=tuple(symbols(line) for line in profile.guarantee),
        forecast=forecast_lines(profile.forecast),
        **context.fields((*profile.notices, *_notices(profile))),
    )


def _persons(profile: Profile, release: Release | None) -> PersonFigures | None:
    if profile.sizes is None:
        return None
    promised = release is not None and profile.worst_case < np.inf
    return PersonFigures(
        count=len(profile),
        median_rows=int(np.quantile(profile.sizes, 0.5, method="inverted_cdf")),
        most_rows=int(np.max(profile.sizes)),
        row_epsilon=_row_epsilon(release) if promised else None,
        passed=profile.terms.worst_case_passed,
    )


def _row_epsilon(release: Release | None) -> float | None:
    """The ε of a row; None where it is not known, or where ε is that of a person."""
    if release is None or release.mechanism.rows_per_person > 1:
        return None
    return release.mechanism.epsilon


def _quantiles(profile: Profile) -> tuple[Quantile, ...]:
    # With few rows the outer quantiles are the largest one again.
    shares = [share for share in _SHARES if share == 1 or len(profile) * (1 - share) >= 1]
    scores, expected = profile.scores.quantile(np.array(shares)), profile.expected_scores
    usual = None if expected is None else expected.quantile(np.array(shares))
    return tuple(
        Quantile(
            share=share,
            score=float(scores[place]),
            typical=None if usual is None else float(usual[place]),
        )
        for place, share in enumerate(shares)
    )


def _curve(profile: Profile) -> tuple[CurvePoint, ...]:
    """Return at most 400 ranks, evenly spread on a log scale."""
    ranks = curve_ranks(len(profile))
    ascending = len(profile) + 1 - ranks
    scores, expected = profile.scores.at_most(ascending), profile.expected_scores
    usual = None if expected is None else expected.at_most(ascending)
    if profile.scores.error > 0:
        # The scores of the most exposed rows are known exactly.
        name = "distance" if profile.is_noiseless else "loss"
        known = np.abs(profile.most(MOST_ROWS, (name,)).column(name).to_numpy())
        exact = ranks <= len(known)
        scores[exact] = known[ranks[exact] - 1]
    return tuple(
        CurvePoint(
            rank=int(rank),
            score=float(scores[place]),
            typical=None if usual is None else float(usual[place]),
        )
        for place, rank in enumerate(ranks)
    )


def _top(profile: Profile) -> tuple[ExposedRow, ...]:
    key = "id" if profile.keyed else profile.unit
    return tuple(
        ExposedRow(
            rank=place + 1,
            key=printable(row[key]),
            loss=row["loss"],
            low=row["loss_low"],
            high=row["loss_high"],
            belief=certainty(row["loss"]),
            typical=None if profile.is_noiseless else row.get("expected"),
            distance=row["distance"],
            rows=row.get("rows"),
        )
        for place, row in enumerate(profile.most(_TOP_ROWS).to_pylist())
    )


def _notices(profile: Profile) -> tuple[str, ...]:
    """Return what is approximate, or left out, where rows were processed in blocks."""
    if profile.is_held:
        return ()
    notices = [
        "The rows were processed in blocks. Exposures, their intervals, counts and the ranks of the"
        f" {count(min(len(profile), MOST_ROWS))} most exposed rows are exact. Quantiles are rounded"
        f" up, by at most {upper_text(100 * profile.scores.error, 1)} % of themselves, and the"
        " table states the error of each rank.",
    ]
    if profile.expected_scores is None and not profile.is_noiseless:
        notices.append(
            "Expected exposures are left out: under objective perturbation they are sampled, which"
            " takes too much memory for so many coefficients."
        )
    return tuple(notices)
