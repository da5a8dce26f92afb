"""One line of a ledger: what was released, when, and what it promises.

A release is known by the checksum that its own file holds, so that a copy, or the same file in
other white space, is the same release.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from expost import _checks
from expost.errors import ExpostError, InvalidInput
from expost.files.atomic import read_json
from expost.mechanisms.output import NOISES
from expost.publishing.report import FORMAT as REPORT
from expost.publishing.report import PublishedReport
from expost.release import FORMAT as MODEL
from expost.release import Release
from expost.risk import EpsilonDelta, GaussianNoise, Guarantee, NormLaplaceNoise

__all__ = ["KINDS", "Entry", "entries_of", "now"]

KINDS = ("model", "report")
_MECHANISMS = ("output", "objective", "gradient and Hessian")
_DIGITS = frozenset("0123456789abcdef")
_MOST = 2**53


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A release: a model, or the gradient and Hessian that a published report added to one.

    ``release``         the checksum of its file.
    ``made``            when it was listed, in UTC.
    ``name``            the file as it was named.
    ``epsilon``, ``delta``  what was asked for; ``guarantee`` is what is promised, which may be
                        less (∞: nothing) and is never more.
    ``dimension``, ``rows``  d and n.
    ``seeded``          whether its noise can be taken off by whoever knows the seed.
    ``read_from_data``  how many of its bounds were read from the data, which no ε counts.
    ``data``            the salted digest of its rows, or None where they were not at hand.
    ``run``             identifies the run that made it; None where that is not known.
    """

    release: str
    kind: str
    made: str
    name: str
    mechanism: str
    noise: str
    epsilon: float
    delta: float
    guarantee: Guarantee
    dimension: int
    rows: int
    seeded: bool
    read_from_data: int
    data: str | None
    run: str | None = None

    def __post_init__(self) -> None:
        # The name of a file may hold bytes that are no text, and the ledger is text.
        name = self.name.encode("utf-8", "backslashreplace").decode()
        object.__setattr__(self, "name", name)
        _checksum("release", self.release)
        if self.data is not None:
            _checksum("data", self.data)
        if self.run is not None:
            _checksum("run", self.run)
        _checks.one_of("kind", self.kind, KINDS)
        _checks.one_of("mechanism", self.mechanism, _MECHANISMS)
        _checks.one_of("noise", self.noise, NOISES)
        _checks.positive("epsilon", self.epsilon, finite=False)
        if self.delta != 0:
            _checks.probability("delta", self.delta)
        for field, least in (("dimension", 1), ("rows", 2), ("read_from_data", 0)):
            if _checks.whole(field, getattr(self, field), least=least) > _MOST:
                raise InvalidInput(f"{field}: must be a whole number of at most 2**53.")
        _date(self.made)

    @property
    def description(self) -> str:
        """What it is, in a few words."""
        if self.kind == "report":
            return "report: gradient and Hessian, gaussian"
        noise = self.noise if np.isfinite(self.epsilon) else "no noise"
        return f"model: {self.mechanism}, {noise}"

    @property
    def is_promised(self) -> bool:
        """Whether anything is, however little."""
        match self.guarantee:
            case NormLaplaceNoise(separation=size) | GaussianNoise(mu=size):
                return size < math.inf
            case EpsilonDelta(promised_epsilon=size):
                return size < math.inf
            case _:
                return False

    @classmethod
    def of_model(
        cls, release: Release, checksum: str, *, name: str, made: str, data: str | None
    ) -> "Entry":
        """The line of a released model."""
        how = release.mechanism
        return cls(
            release=checksum,
            kind="model",
            made=made,
            name=name,
            mechanism=how.kind,
            noise=how.noise,
            epsilon=how.epsilon,
            delta=how.delta or 0.0,
            guarantee=how.guarantee,
            dimension=how.dimension,
            rows=how.rows,
            seeded=release.seeded,
            read_from_data=len(release.read_from_data),
            data=data,
        )

    @classmethod
    def of_report(
        cls, report: PublishedReport, checksum: str, *, name: str, made: str, data: str | None
    ) -> "Entry":
        """The line of what a data-dependent report released beyond its model."""
        assert report.tangent is not None
        assert report.budget is not None
        spent, how = report.budget, report.release.mechanism
        return cls(
            release=checksum,
            kind="report",
            made=made,
            name=name,
            mechanism="gradient and Hessian",
            noise="gaussian",
            epsilon=spent.epsilon_gradient + spent.epsilon_hessian,
            delta=min(2 * spent.delta, 1 - 2.0**-53),
            guarantee=report.tangent.guarantee,
            dimension=how.dimension,
            rows=how.rows,
            seeded=False,
            read_from_data=0,
            data=data,
        )

    def to_json(self) -> dict[str, Any]:
        """The line as the ledger holds it."""
        run = {} if self.run is None else {"run": self.run}
        return {
            "release": self.release,
            "kind": self.kind,
            "made": self.made,
            "name": self.name,
            "mechanism": self.mechanism,
            "noise": self.noise,
            "epsilon": _or_infinite(self.epsilon),
            "delta": self.delta,
            "guarantee": _guarantee_to_json(self.guarantee),
            "dimension": self.dimension,
            "rows": self.rows,
            "seeded": self.seeded,
            "read_from_data": self.read_from_data,
            "data": self.data,
            **run,
        }

    @classmethod
    def from_json(cls, value: Any) -> "Entry":
        """The inverse of :meth:`to_json`; anything that it could not have written is refused."""
        try:
            entry = cls(
                release=value["release"],
                kind=value["kind"],
                made=value["made"],
                name=_text(value["name"]),
                mechanism=value["mechanism"],
                noise=value["noise"],
                epsilon=_number(value["epsilon"]),
                delta=_number(value["delta"]),
                guarantee=_guarantee_from_json(value["guarantee"]),
                dimension=value["dimension"],
                rows=value["rows"],
                seeded=bool(value["seeded"]),
                read_from_data=value["read_from_data"],
                data=value["data"],
                run=value.get("run"),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(f"a field is missing or has the wrong type: {error!r}.") from None
        if entry.to_json() != value:
            raise InvalidInput("an entry holds fields that do not belong there; it was edited.")
        return entry


def now() -> str:
    """This moment in UTC, as a ledger writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def entries_of(path: Path, *, data: str | None = None) -> tuple[Entry, ...]:
    """What a model.json or a report.json releases: the model, and what the report added to it."""
    value = read_json(path)
    found = value.get("format") if isinstance(value, dict) else None
    if found not in (MODEL, REPORT):
        raise InvalidInput(
            f"{path}: is neither a released model nor a published report nor a ledger; name a"
            " model.json, a report.json, a ledger, or their folder."
        )
    common: dict[str, Any] = {"name": str(path), "made": now(), "data": data}
    try:
        if found == MODEL:
            return (Entry.of_model(Release.from_json(value), value["sha256"], **common),)
        report = PublishedReport.from_json(value)
        inner = Entry.of_model(report.release, value["model"]["sha256"], **common)
        if report.released is None:
            # Computed from the model alone: nothing more was released.
            return (inner,)
        return inner, Entry.of_report(report, value["sha256"], **common)
    except ExpostError as error:
        raise InvalidInput(f"{path}: is damaged ({error})") from None


# -- JSON ----------------------------------------------------------------------------------------


def _guarantee_to_json(guarantee: Guarantee) -> dict[str, Any]:
    match guarantee:
        case NormLaplaceNoise(separation=separation, dimension=dimension):
            return {
                "law": "norm-laplace",
                "separation": _or_infinite(separation),
                "dimension": dimension,
            }
        case GaussianNoise(mu=mu):
            return {"law": "gaussian", "mu": _or_infinite(mu)}
        case EpsilonDelta(promised_epsilon=epsilon, promised_delta=delta):
            return {"law": "epsilon-delta", "epsilon": _or_infinite(epsilon), "delta": delta}
        case _:
            raise InvalidInput(f"guarantee: a ledger knows no {type(guarantee).__name__}.")


def _guarantee_from_json(value: Any) -> Guarantee:
    match value["law"]:
        case "norm-laplace":
            return NormLaplaceNoise(
                separation=_number(value["separation"]), dimension=value["dimension"]
            )
        case "gaussian":
            return GaussianNoise(mu=_number(value["mu"]))
        case "epsilon-delta":
            return EpsilonDelta(epsilon=_number(value["epsilon"]), delta=_number(value["delta"]))
        case law:
            raise InvalidInput(f"guarantee.law={law!r}: is not known; is it from a newer expost?")


def _checksum(name: str, value: Any) -> None:
    if not isinstance(value, str) or len(value) != 64 or not _DIGITS.issuperset(value):
        raise InvalidInput(f"{name}: must be 64 hexadecimal digits.")


def _date(text: Any) -> None:
    try:
        datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
    except (TypeError, ValueError):
        raise InvalidInput("made: must be a moment in UTC, as 2026-01-31T12:00:00Z.") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInput("a field that must be text is none.")
    return value


def _number(value: Any) -> float:
    if value == "infinity":
        return float("inf")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput("a field that must be a number is none.")
    try:
        return float(value)
    except OverflowError:
        raise InvalidInput("a number is past what float64 holds.") from None


def _or_infinite(number: float) -> float | str:
    return number if np.isfinite(number) else "infinity"
