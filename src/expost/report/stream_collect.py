"""The part of a report that shows a profile whose rows lie on the disk, collected once."""

from dataclasses import dataclass, replace

import numpy as np

from expost._order import share_ranks
from expost.groups.exposure import printable
from expost.profiles.streamed_result import QUANTILE_ERROR, StreamedProfile
from expost.report.beliefs_part import BeliefQuantile, BeliefsPart, collect_beliefs
from expost.report.parts import Context, one_line
from expost.report.profile_answer import ProfileAnswer
from expost.report.profile_part import Accuracy, CurvePoint, ExposedRow, ProfilePart, Quantile
from expost.report.rows import RowsData, shown_key
from expost.report.slider import curve_ranks, slider_of_distances
from expost.report.wording import certainty, count
from expost.rounding import upper_text
from expost.types import FloatArray, IntArray

__all__ = ["collect_stream", "collect_stream_beliefs"]

_SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)


def collect_stream(
    profile: StreamedProfile, *, accuracy: Accuracy | None = None, context: Context | None = None
) -> ProfilePart:
    """Gather the figures of a profile that was worked out in parts."""
    context = context or Context()
    release, digest = profile.release, profile.digest
    mechanism, figures = release.mechanism, profile.figures
    told = ProfileAnswer(profile=figures, release=release, persons=None)
    return ProfilePart(
        measure="distance" if profile.is_noiseless else "exposure",
        rows=len(profile),
        relation=profile.relation,
        headline=told.headline,
        answer=told.answer,
        model=one_line(profile.description),
        model_audience=release.audience,
        seeded=release.seeded if mechanism.is_private else None,
        epsilon=mechanism.epsilon,
        worst_case=profile.worst_case,
        delta=mechanism.delta,
        accuracy=None
        if accuracy is None
        else replace(accuracy, measure=one_line(accuracy.measure), rows=one_line(accuracy.rows)),
        quantiles=_quantiles(profile),
        curve=_curve(profile),
        top=_top(profile),
        keyed=profile.keyed,
        precision=digest.half_width,
        unproved=digest.unproved,
        evidence_in=digest.inside / len(profile),
        groups=(),
        explanation=None,
        row_data=_rows(profile),
        slider=slider_of_distances(mechanism, _Distances(profile=profile)),
        **context.fields((*profile.notices, *_notices(profile))),
    )


def collect_stream_beliefs(profile: StreamedProfile) -> BeliefsPart | None:
    """How sure an attacker gets of the rows; None where there is no noise."""
    beliefs, how = profile.digest.beliefs, profile.release.mechanism
    if beliefs is None:
        return None
    found = beliefs.extremes(how, description=profile.description, notices=profile.notices)
    # Sentences and extremes are of three rows, which stand for all; the rest was counted.
    part = collect_beliefs(found, beside_profile=True)
    shares, ranks = _known_shares(len(profile))
    odds = beliefs.at_most(ranks)
    return replace(
        part,
        rows=len(profile),
        levels=tuple(
            replace(level, rows=above, rows_out=doubted)
            for level, above, doubted in zip(
                part.levels, beliefs.above, beliefs.doubted, strict=True
            )
        ),
        quantiles=tuple(
            BeliefQuantile(share=share, log_odds=float(odds[place]))
            for place, share in enumerate(shares)
        ),
        # Without a law it would be sampled.
        advantage=None if found.losses.law is None else part.advantage,
    )


def _known_shares(rows: int) -> tuple[list[float], IntArray]:
    """The shares that are told of so many rows, and the ranks, 1 for the least exposed."""
    # With few rows the outer quantiles are the largest one again.
    shares = [share for share in _SHARES if share == 1 or rows * (1 - share) >= 1]
    return shares, share_ranks(rows, np.array(shares))


def _notices(profile: StreamedProfile) -> tuple[str, ...]:
    """What is approximate here, or left out, beside the profile of a table in memory."""
    notices = [
        f"The rows were worked on in blocks. Exposures, their intervals, counts and the ranks of"
        f" the {count(len(profile.most))} most exposed rows are exact; quantiles are rounded up, by"
        f" at most {upper_text(100 * QUANTILE_ERROR, 1)} % of themselves, and each rank in the"
        " table has its"
        " own error beside it.",
        "Exposures by column, and in plain conditions, are left out: they need all rows at once.",
    ]
    if profile.digest.typical is None and not profile.is_noiseless:
        notices.append(
            "Typical exposures are left out: under objective perturbation they are sampled, which"
            " needs all rows at once."
        )
    return tuple(notices)


def _quantiles(profile: StreamedProfile) -> tuple[Quantile, ...]:
    shares, ranks = _known_shares(len(profile))
    scores, typical = profile.scores_of(ranks), profile.typical_of(ranks)
    return tuple(
        Quantile(
            share=share,
            score=float(scores[place]),
            typical=None if typical is None else float(typical[place]),
        )
        for place, share in enumerate(shares)
    )


def _curve(profile: StreamedProfile) -> tuple[CurvePoint, ...]:
    """At most 400 ranks, evenly spread on a log scale; those of the most exposed rows are exact."""
    ranks = curve_ranks(len(profile))
    ascending = len(profile) + 1 - ranks
    scores, typical = profile.scores_of(ascending), profile.typical_of(ascending)
    known = _scores(profile)
    exact = ranks <= len(known)
    scores[exact] = known[ranks[exact] - 1]
    return tuple(
        CurvePoint(
            rank=int(rank),
            score=float(scores[place]),
            typical=None if typical is None else float(typical[place]),
        )
        for place, rank in enumerate(ranks)
    )


def _scores(profile: StreamedProfile) -> FloatArray:
    """Of the most exposed rows, descending."""
    name = "distance" if profile.is_noiseless else "loss"
    scores: FloatArray = np.abs(profile.most.column(name).to_numpy())
    return scores


def _top(profile: StreamedProfile) -> tuple[ExposedRow, ...]:
    key = "id" if profile.keyed else "row"
    return tuple(
        ExposedRow(
            rank=place + 1,
            key=printable(row[key]),
            loss=row["loss"],
            low=row["loss_low"],
            high=row["loss_high"],
            belief=certainty(row["loss"]),
            typical=None if profile.is_noiseless else row.get("typical"),
            distance=row["distance"],
        )
        for place, row in enumerate(profile.top)
    )


def _rows(profile: StreamedProfile) -> RowsData:
    cells = {name: profile.most.column(name).to_pylist() for name in profile.most.column_names}
    return RowsData(
        unit="row",
        total=len(profile),
        rows=len(profile),
        numbers=tuple(cells["row"]),
        keys=tuple(map(shown_key, cells["id"])) if profile.keyed else None,
        loss=tuple(cells["loss"]),
        low=tuple(cells["loss_low"]),
        high=tuple(cells["loss_high"]),
        distance=tuple(cells["distance"]),
        noiseless=profile.is_noiseless,
        in_order=True,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Distances:
    """The distances of the rows of a profile: told rounded up."""

    profile: StreamedProfile

    error = QUANTILE_ERROR

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return len(self.profile)

    @property
    def farthest(self) -> float:
        """The largest upper end."""
        return self.profile.digest.farthest

    @property
    def least(self) -> float:
        """The least distance > 0, or infinity."""
        return self.profile.digest.nearest

    def at(self, ranks: IntArray) -> FloatArray:
        """Those at ``ranks``, 1 for the farthest."""
        found = self.profile.digest.distance.at_most(self.rows + 1 - ranks)
        return np.minimum(found, self.profile.tops.distance)
