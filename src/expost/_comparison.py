"""Published bounds beside the exact losses, row by row. For the curator only."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from expost._columns import nats
from expost._files import write_bytes
from expost._privacy_profile import PrivacyProfile
from expost._published import PublishedReport
from expost._table import RowTable
from expost.types import Audience, FloatArray

__all__ = ["Comparison"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison(RowTable):
    """How far above each row's exact exposure its published bound lies.

    ``bound``, ``epsilon_gradient``, ``epsilon_hessian``  (n,) what the report tells of each row.
    ``everything``  (n,) its bound for θ and the report's own releases together.
    """

    profile: PrivacyProfile
    bound: FloatArray
    epsilon_gradient: FloatArray
    epsilon_hessian: FloatArray
    everything: FloatArray
    fails_with: float

    audience = Audience.FAIL

    @classmethod
    def of(cls, report: PublishedReport, profile: PrivacyProfile, X: Any, y: Any) -> "Comparison":
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
        with np.errstate(divide="ignore", over="ignore"):
            return np.where(exposure > 0, self.bound / np.where(exposure > 0, exposure, 1), np.inf)

    @property
    def failures(self) -> int:
        """How many rows lose more than their bound says."""
        return int(np.count_nonzero(self.profile.exposure > self.bound))

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
        ratio = self.ratio
        return {
            "rows": len(self),
            "failures": self.failures,
            "fails_with": self.fails_with,
            "median exposure": float(np.median(self.profile.exposure)),
            "largest exposure": float(np.max(self.profile.exposure)),
            "median bound": float(np.median(self.bound)),
            "largest bound": float(np.max(self.bound)),
            "median ratio": _finite(float(np.median(ratio))),
        }

    def lines(self) -> list[str]:
        """A few readable lines."""
        figures = self.summary()
        failed = "no row loses" if not self.failures else f"{self.failures} rows lose"
        ratio = figures["median ratio"]
        return [
            f"Beside the exact losses of {len(self)} rows (for the curator only)",
            f"exact        median {figures['median exposure']:.3g}, largest"
            f" {nats(format(figures['largest exposure'], '.3g'))}",
            f"published    median {figures['median bound']:.3g}, largest"
            f" {nats(format(figures['largest bound'], '.3g'))}; the median ratio is"
            f" {ratio if isinstance(ratio, str) else format(ratio, '.3g')}",
            f"failures     {failed} more than the bound says",
        ]

    def to_json(self, path: str | Path) -> Path:
        """Write the table by columns to a CURATOR-ONLY file."""
        value = {
            "format": "expost-comparison/1",
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "model": self.profile.description,
            "summary": self.summary(),
            "rows": {name: _listed(values) for name, values in self.columns().items()},
        }
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        return write_bytes(self.audience.path(path), self.audience, text.encode())


def _listed(values: Any) -> list[Any]:
    array = values if isinstance(values, list) else np.asarray(values).tolist()
    return [_finite(value) if isinstance(value, float) else value for value in array]


def _finite(number: float) -> float | str:
    if np.isnan(number):
        raise ArithmeticError("a figure is not a number")
    return number if np.isfinite(number) else "infinity"
