"""A privacy profile whose rows lie on the disk, in parts: what is known of them together.

Conventions
-----------
largest figures, counts   exact, and the ranks of the rows in ``most``;
quantiles                 from a histogram (:mod:`expost._order`): rounded towards more exposed, to
                          within 2⁻⁹ of themselves;
ranks in the parts        ± their own ``rank_error``.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from expost._order import Histogram
from expost.files.atomic import write_json
from expost.files.parts import PartStore
from expost.files.sealed import plain
from expost.groups.columns import printable
from expost.profiles.figures import ProfileFigures
from expost.profiles.streamed import Digest, Tops
from expost.release import Release
from expost.results import Displayed
from expost.types import Audience, FloatArray, IntArray, Neighbouring

__all__ = ["QUANTILE_ERROR", "StreamedProfile"]

# How much larger a quantile may be told than it is, relative.
QUANTILE_ERROR = 2 * Histogram.RELATIVE_ERROR
_FORMAT = "expost-profile-parts/1"
_SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)
_NAMED = 20


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StreamedProfile(Displayed):
    """How much one released model gives each row of a table of any length away. Curator only.

    ``release``      the model.
    ``description``  the same in one line.
    ``digest``       what is known of all rows together.
    ``most``         the most exposed rows, in the order of their ranks: a pyarrow table of their
                     numbers, ids, losses with their intervals, and distances.
    ``store``        the folder of parts, with a line for each row of the table.
    ``notices``      what the reader must know.
    """

    release: Release
    description: str
    digest: Digest
    tops: Tops
    most: Any
    store: PartStore
    notices: tuple[str, ...] = ()
    relation: Neighbouring = Neighbouring.REMOVE

    audience = Audience.FAIL

    def __len__(self) -> int:
        return self.digest.rows

    @property
    def is_noiseless(self) -> bool:
        """Whether the model carries no noise, so that only distances tell rows apart."""
        return not self.release.mechanism.is_private

    @property
    def worst_case(self) -> float:
        """The exposure that the mechanism promises (pure ε), or its ε at δ."""
        return math.inf if self.is_noiseless else self.release.mechanism.worst_case

    @property
    def keyed(self) -> bool:
        """Whether rows have ids; else they are counted from 0."""
        return "id" in self.most.column_names

    @property
    def largest(self) -> float:
        """The largest exposure, or distance where there is no noise."""
        if self.digest.infinite:
            return math.inf
        return self.tops.distance if self.is_noiseless else self.tops.exposure

    def quantile(self, share: float) -> float:
        """What at least this ``share`` of the rows are exposed by at most (moved by, ε = ∞)."""
        return float(self.scores_at(np.array([share]))[0])

    def scores_at(self, shares: FloatArray) -> FloatArray:
        """The same of several shares."""
        ranks = np.clip(np.ceil(shares * len(self)), 1, len(self)).astype(np.int64)
        return self.scores_of(ranks)

    def scores_of(self, ranks: IntArray) -> FloatArray:
        """The exposures at ``ranks``, 1 for the least exposed row: no less than they are."""
        found = np.minimum(self.digest.scores.at_most(ranks), self.largest)
        return np.where(ranks > len(self) - self.digest.infinite, np.inf, found)

    def typical_of(self, ranks: IntArray) -> FloatArray | None:
        """The typical exposures at ``ranks``, 1 for the least; None where they are not known."""
        if self.digest.typical is None:
            return None
        return np.minimum(self.digest.typical.at_most(ranks), self.tops.typical)

    @property
    def top(self) -> list[dict[str, Any]]:
        """The twenty most exposed rows, the most exposed first."""
        found: list[dict[str, Any]] = self.most.slice(0, _NAMED).to_pylist()
        return found

    @property
    def parts(self) -> tuple[Path, ...]:
        """The Parquet files of the table, in order."""
        return tuple(self.store.folder / part.name for part in self.store.parts())

    def batches(self) -> Iterator[Any]:
        """The table in its order, as pyarrow tables of one part each, checked as they are read."""
        yield from self.store.tables()

    @cached_property
    def figures(self) -> ProfileFigures:
        """What is said of all rows together."""
        digest, noisy = self.digest, not self.is_noiseless
        middle, late = self.scores_at(np.array([0.5, 0.99]))
        half = np.array([-(-len(self) // 2)])
        typical = self.typical_of(half)
        keys = self.most.column("id" if self.keyed else "row").slice(0, 5).to_pylist()
        return ProfileFigures(
            description=self.description,
            relation=self.relation,
            count=len(self),
            rows=len(self),
            most_rows=None,
            noiseless=self.is_noiseless,
            middle=float(middle),
            late=float(late),
            largest=self.largest,
            typical=None if typical is None else (float(typical[0]), self.tops.typical),
            worst_case=self.worst_case,
            worst_case_passed=self.release.mechanism.worst_case_passed if noisy else 0.0,
            least_exposure=digest.least,
            outer=digest.outer,
            width=math.inf if digest.unproved else 2 * digest.half_width,
            past_promise=digest.past_promise,
            proved_past=digest.proved_past,
            past_belief=digest.past_belief,
            inside=digest.inside,
            top=tuple(printable(key) for key in keys),
        )

    def __repr__(self) -> str:
        return f"StreamedProfile({len(self)} rows, {self.description})"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Ten readable lines; no row's values, but ranks and exposures: curator only."""
        return self.figures.lines()

    def to_json(self, path: str | Path) -> Path:
        """Write what is known of all rows to a CURATOR-ONLY file; the rows stay in their parts."""
        ranks = np.clip(np.ceil(np.array(_SHARES) * len(self)), 1, len(self)).astype(np.int64)
        scores, typical = self.scores_of(ranks), self.typical_of(ranks)
        value = {
            "format": _FORMAT,
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "model": self.description,
            "relation": self.relation.value,
            "unit": "row",
            "rows": len(self),
            "table": self.store.folder.name,
            "measure": "distance" if self.is_noiseless else "exposure",
            "worst_case": plain(self.worst_case),
            "promise_broken": self.figures.promise_broken,
            "quantiles": [
                {
                    "share": share,
                    "at_most": plain(scores[place]),
                    "typical": None if typical is None else plain(typical[place]),
                }
                for place, share in enumerate(_SHARES)
            ],
            "quantile_error": QUANTILE_ERROR,
            "precision": plain(self.digest.half_width),
            "unproved": self.digest.unproved,
            "evidence_in": self.digest.inside / len(self),
            "top": plain(self.top),
            "notices": list(self.notices),
        }
        return write_json(self.audience.path(path), self.audience, value)
