"""Published bounds beside the exact losses, row by row. For the curator only."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from expost.files.atomic import write_bytes
from expost.files.sealed import plain
from expost.profiles.profile import Profile
from expost.publishing.report import PublishedReport
from expost.results import RowTable
from expost.rounding import nats, upper_text
from expost.types import Audience, FloatArray

__all__ = ["Comparison", "ComparisonFigures", "ratios"]

FORMAT = "expost-comparison/1"


@dataclass(frozen=True, kw_only=True)
class ComparisonFigures:
    """Aggregates of all rows; they depend on the data.

    ``failures``      rows that lose more than their bound says.
    ``median_ratio``  of bound/exposure; infinite where most rows lose nothing.
    ``median_error``  how far the medians may be off, relative to themselves: 0 where rows were
                      sorted, and not counted.
    """

    rows: int
    failures: int
    fails_with: float
    median_exposure: float
    largest_exposure: float
    median_bound: float
    largest_bound: float
    median_ratio: float
    median_error: float = 0.0

    def summary(self) -> dict[str, Any]:
        """By name, as JSON knows them."""
        figures = {
            "rows": self.rows,
            "failures": self.failures,
            "fails_with": self.fails_with,
            "median exposure": self.median_exposure,
            "largest exposure": self.largest_exposure,
            "median bound": plain(self.median_bound),
            "largest bound": plain(self.largest_bound),
            "median ratio": plain(self.median_ratio),
        }
        return figures | ({"median error": self.median_error} if self.median_error else {})

    def lines(self) -> list[str]:
        """A few readable lines."""
        failed = "no row loses" if not self.failures else f"{self.failures} rows lose"
        ratio = plain(self.median_ratio)
        return [
            f"Beside the exact losses of {self.rows} rows (for the curator only)",
            f"exact        median {upper_text(self.median_exposure, 3)}, largest"
            f" {nats(upper_text(self.largest_exposure, 3))}",
            f"published    median {upper_text(self.median_bound, 3)}, largest"
            f" {nats(upper_text(self.largest_bound, 3))}; the median ratio is"
            f" {ratio if isinstance(ratio, str) else format(ratio, '.3g')}",
            f"failures     {failed} more than the bound says",
        ]

    def to_json(self, description: str) -> dict[str, Any]:
        """What a file of them begins with."""
        return {
            "format": FORMAT,
            "audience": Audience.FAIL.value,
            "meaning": Audience.FAIL.meaning,
            "model": description,
            "summary": self.summary(),
        }


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison(RowTable):
    """How far above each row's exact exposure its published bound lies.

    ``bound``, ``epsilon_gradient``, ``epsilon_hessian``  (n,) what the report tells of each row.
    ``everything``  (n,) its bound for θ and the report's own releases together.
    """

    profile: Profile
    bound: FloatArray
    epsilon_gradient: FloatArray
    epsilon_hessian: FloatArray
    everything: FloatArray
    fails_with: float

    audience = Audience.FAIL

    @classmethod
    def of(cls, report: PublishedReport, profile: Profile, X: Any, y: Any) -> "Comparison":
        """The report's bounds for the rows that were profiled."""
        bound, first, second = report.bound(X, y)
        return cls(
            profile=profile,
            bound=bound,
            epsilon_gradient=first,
            epsilon_hessian=second,
            everything=report.everything(X, y),
            fails_with=report.fails_with,
        )

    @property
    def ratio(self) -> FloatArray:
        """(n,) bound/exposure: at least 1 where the bound holds; infinite where nothing is lost."""
        exposure = self.profile.exposure
        return ratios(self.bound, exposure)

    @property
    def failures(self) -> int:
        """How many rows lose more than their bound says."""
        return int(np.count_nonzero(self.profile.exposure > self.bound))

    @property
    def figures(self) -> ComparisonFigures:
        """Aggregates of all rows."""
        return ComparisonFigures(
            rows=len(self),
            failures=self.failures,
            fails_with=self.fails_with,
            median_exposure=float(np.median(self.profile.exposure)),
            largest_exposure=float(np.max(self.profile.exposure)),
            median_bound=float(np.median(self.bound)),
            largest_bound=float(np.max(self.bound)),
            median_ratio=float(np.median(self.ratio)),
        )

    def __len__(self) -> int:
        return len(self.bound)

    def columns(self) -> dict[str, Any]:
        """Every per-row figure, by name."""
        columns: dict[str, Any] = {"row": np.arange(len(self))}
        if self.profile.ids is not None:
            columns["id"] = list(self.profile.ids)
        return columns | {
            "loss": self.profile.loss,
            "exposure": self.profile.exposure,
            "bound": self.bound,
            "ratio": self.ratio,
            "epsilon_gradient": self.epsilon_gradient,
            "epsilon_hessian": self.epsilon_hessian,
            "everything": self.everything,
        }

    def summary(self) -> dict[str, Any]:
        """Aggregates; they depend on the data."""
        return self.figures.summary()

    def lines(self) -> list[str]:
        """A few readable lines."""
        return self.figures.lines()

    def to_json(self, path: str | Path) -> Path:
        """Write the table by columns to a CURATOR-ONLY file."""
        value = {
            **self.figures.to_json(self.profile.description),
            "rows": plain(self.columns()),
        }
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        return write_bytes(self.audience.path(path), self.audience, text.encode())


def ratios(bound: FloatArray, exposure: FloatArray) -> FloatArray:
    """bound/exposure, infinite where nothing is lost."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(exposure > 0, bound / np.where(exposure > 0, exposure, 1), np.inf)
