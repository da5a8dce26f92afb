"""The certificate of an erasure, for everybody, and its record, for the curator.

The certificate holds public constants and bounds alone. The probability with which a model was
kept, the number of draws and the time that they took depend on the rows of everybody: they are in
the record, which is curator-only.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from expost import _checks
from expost.erasure.coupling import Coupled
from expost.erasure.plan import ErasurePlan
from expost.errors import InvalidInput
from expost.files.atomic import write_json
from expost.files.sealed import Sealed, from_fields, number, plain, to_fields
from expost.ledger import now
from expost.release import METHODS, Release, coupling_charge
from expost.results import Displayed
from expost.risk import EpsilonDelta
from expost.types import Audience

__all__ = ["LIMITS", "OTHER_FOLDERS", "Certificate", "Erasure", "Record"]

# What an erasure does not do, one sentence each.
LIMITS = (
    "Copies of the old model are not called back.",
    "Often nothing changes: the statement is about the law of the model, and the old model may have"
    " been kept.",
    "Other releases from the same data are not changed.",
)
# What stale_files cannot list: commands that release nothing are in no ledger.
OTHER_FOLDERS = (
    "Results in other folders, such as a choice of ε, an audit or a comparison of a published"
    " report, are not known here: delete those too."
)
# The second of them for a model that was drawn again.
_DRAWN_AGAIN = (
    "Often the predictions hardly change: the statement is about the law of the model, on which"
    " single people have little influence."
)


@dataclass(frozen=True, kw_only=True)
class Model:
    """What a certificate says about a model.

    Attributes
    ----------
    sha256 : str
        The checksum of its model.json.
    rows : int
        The number of its rows.
    epsilon : float
        Its ε.
    delta : float
        Its δ.
    rows_per_person : int
        ε and δ hold for persons with up to this many rows.
    """

    sha256: str
    rows: int
    epsilon: float
    delta: float
    rows_per_person: int = 1

    @classmethod
    def of(cls, release: Release) -> "Model":
        """Return what is public of a model.

        Parameters
        ----------
        release : Release
            The model.

        Returns
        -------
        Model
            Its checksum, rows and guarantee.
        """
        mechanism = release.mechanism
        return cls(
            sha256=release.to_json()["sha256"],
            rows=mechanism.rows,
            epsilon=mechanism.epsilon,
            delta=mechanism.delta or 0.0,
            rows_per_person=mechanism.rows_per_person,
        )


@dataclass(frozen=True, kw_only=True)
class Certificate(Sealed, Displayed):
    """The public certificate of one erasure or insertion.

    Attributes
    ----------
    made : str
        When it was made, in UTC.
    before, after : Model
        The two models.
    mechanism, noise : str
        The mechanism of both.
    method : str
        "fresh" or "coupled".
    requests_independent : bool
        The curator's declaration that the request did not depend on the model.
    total_variation : float
        A bound on the distance of the law of the model from that of a release without the rows.
    distance : float
        How far a computed model may be from the exact one that the law is about.
    least_keeping, mean_keeping : float
        Lower bounds on the probability of keeping the model: of every release, and on average.
    charge : EpsilonDelta | None
        What the ledger charges for the models of a coupling together; None for a fresh redraw,
        which is charged as a release of its own.
    request : str
        The keyed hash of the request.
    data : str
        HMAC-SHA256 of the rows after, under a key that stays with the curator.
    changes : int
        How often the rows of the model have changed since its first release, this time included.
    read_from_data : tuple[str, ...]
        The constants of the model that were read from the data of everybody, those who left too.
    """

    made: str
    before: Model
    after: Model
    mechanism: str
    noise: str
    method: str
    requests_independent: bool
    total_variation: float
    distance: float
    least_keeping: float
    mean_keeping: float
    charge: EpsilonDelta | None
    request: str
    data: str
    changes: int = 1
    read_from_data: tuple[str, ...] = ()

    FORMAT = "expost-erasure/1"
    NOUN = "a certificate of an erasure"

    def __post_init__(self) -> None:
        _checks.one_of("method", self.method, METHODS)
        _checks.integer("changes", self.changes, least=1)
        if self.before.rows == self.after.rows:
            raise InvalidInput("after: has as many rows as before; the file was edited.")
        for name in ("total_variation", "least_keeping", "mean_keeping"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidInput(f"{name}: must be between 0 and 1.")

    @classmethod
    def of(
        cls, plan: ErasurePlan, after: Release, *, errors: tuple[float, float], data: str
    ) -> "Certificate":
        """Return the certificate of a model after a change.

        Parameters
        ----------
        plan : ErasurePlan
            What was decided before.
        after : Release
            The model after.
        errors : tuple[float, float]
            Its distance from the exact law (:meth:`ErasurePlan.errors`).
        data : str
            The keyed hash of the rows after.

        Returns
        -------
        Certificate
            The certificate.
        """
        mechanism = plan.after
        charge = None
        if not plan.is_fresh:
            charge = coupling_charge(
                mechanism, after.coupled_rows, rows_per_person=mechanism.rows_per_person
            )
        return cls(
            made=now(),
            before=Model.of(plan.release),
            after=Model.of(after),
            mechanism=mechanism.kind,
            noise=mechanism.noise,
            method=plan.method,
            requests_independent=plan.requests_independent,
            total_variation=errors[0],
            distance=errors[1],
            least_keeping=plan.least_keeping,
            mean_keeping=plan.mean_keeping,
            charge=charge,
            request=after.history[-1].request,
            data=data,
            changes=len(after.history),
            read_from_data=after.read_from_data,
        )

    @property
    def audience(self) -> Audience:
        """Public, unless constants of the model were read from the data."""
        return Audience.NEEDS_REVIEW if self.read_from_data else Audience.PUBLIC

    @property
    def is_insertion(self) -> bool:
        """Whether rows entered."""
        return self.after.rows > self.before.rows

    @property
    def limits(self) -> tuple[str, ...]:
        """What the change does not do, one sentence each."""
        if self.method == "coupled":
            return LIMITS
        return LIMITS[0], _DRAWN_AGAIN, LIMITS[2]

    @property
    def changed(self) -> int:
        """The number of rows that left or entered."""
        return abs(self.after.rows - self.before.rows)

    def content(self) -> dict[str, Any]:
        """Return the fields of the file.

        Returns
        -------
        dict[str, Any]
            The fields by name.
        """
        charge = self.charge
        return {
            "made": self.made,
            "before": _model_fields(self.before),
            "after": _model_fields(self.after),
            "mechanism": self.mechanism,
            "noise": self.noise,
            "method": self.method,
            "requests_independent": self.requests_independent,
            "total_variation": self.total_variation,
            "distance": self.distance,
            "least_keeping": self.least_keeping,
            "mean_keeping": self.mean_keeping,
            "charge": None if charge is None else charge.to_json(),
            "request": self.request,
            "data": self.data,
            "changes": self.changes,
            "read_from_data": list(self.read_from_data),
            "limits": list(self.limits),
        }

    @classmethod
    def from_content(cls, value: dict[str, Any]) -> Self:
        """Return the certificate with these fields.

        Parameters
        ----------
        value : dict[str, Any]
            The fields of the file.

        Returns
        -------
        Self
            The checked certificate.

        Raises
        ------
        InvalidInput
            If a field is missing or invalid.
        """
        charge = value["charge"]
        if charge is not None:
            charge = EpsilonDelta.from_json(charge)
            if not isinstance(charge, EpsilonDelta):
                raise InvalidInput("charge: must be an epsilon and a delta.")
        numbers = ("total_variation", "distance", "least_keeping", "mean_keeping")
        return cls(
            made=value["made"],
            before=_model(value["before"]),
            after=_model(value["after"]),
            mechanism=value["mechanism"],
            noise=value["noise"],
            method=value["method"],
            requests_independent=bool(value["requests_independent"]),
            **{name: number(value[name], name) for name in numbers},
            charge=charge,
            request=value["request"],
            data=value["data"],
            changes=value["changes"],
            read_from_data=tuple(str(name) for name in value["read_from_data"]),
        )


@dataclass(frozen=True, kw_only=True)
class Record(Sealed):
    """What the curator keeps of an erasure.

    Attributes
    ----------
    certificate : str
        The checksum of the certificate.
    is_kept : bool
        Whether the model before was kept.
    coin : float | None
        The exponential that decided; None for a fresh redraw.
    loss : tuple[float, float] | None
        The interval of ℓ at the model before; None where it was not computed.
    keeping : tuple[float, float] | None
        The interval of the probability with which it was kept.
    tries : int
        The number of draws.
    seconds : float
        The time that they took.
    stale_files : tuple[str, ...]
        Earlier results of expost that were made with the rows that left, to be deleted.
    other_releases : tuple[str, ...]
        The other releases of the ledger, which are not changed.
    """

    certificate: str
    is_kept: bool
    coin: float | None
    loss: tuple[float, float] | None
    keeping: tuple[float, float] | None
    tries: int
    seconds: float
    stale_files: tuple[str, ...] = ()
    other_releases: tuple[str, ...] = ()

    FORMAT = "expost-erasure-record/1"
    NOUN = "the record of an erasure"
    audience = Audience.CURATOR_ONLY

    @classmethod
    def of(
        cls, certificate: Certificate, coupled: Coupled, coin: float | None, seconds: float
    ) -> "Record":
        """Return the record of a coupling or a fresh redraw.

        Parameters
        ----------
        certificate : Certificate
            Its certificate.
        coupled : Coupled
            Its result.
        coin : float or None
            The coin that was tossed.
        seconds : float
            The time that it took.

        Returns
        -------
        Record
            The record.
        """
        ratio = coupled.ratio
        return cls(
            certificate=certificate.to_json()["sha256"],
            is_kept=coupled.is_kept,
            coin=coin,
            loss=None if ratio is None else (ratio.low, ratio.high),
            keeping=None if ratio is None else coupled.keeping,
            tries=coupled.tries,
            seconds=seconds,
        )

    def content(self) -> dict[str, Any]:
        """Return the fields of the file.

        Returns
        -------
        dict[str, Any]
            The fields by name.
        """
        return {
            "certificate": self.certificate,
            "is_kept": self.is_kept,
            "coin": self.coin,
            "loss": None if self.loss is None else list(self.loss),
            "keeping": None if self.keeping is None else list(self.keeping),
            "tries": self.tries,
            "seconds": self.seconds,
            "stale_files": list(self.stale_files),
            "other_releases": list(self.other_releases),
        }

    @classmethod
    def from_content(cls, value: dict[str, Any]) -> Self:
        """Return the record with these fields.

        Parameters
        ----------
        value : dict[str, Any]
            The fields of the file.

        Returns
        -------
        Self
            The checked record.
        """
        coin = value["coin"]
        return cls(
            certificate=str(value["certificate"]),
            is_kept=bool(value["is_kept"]),
            coin=None if coin is None else number(coin, "coin"),
            loss=_interval(value["loss"], "loss"),
            keeping=_interval(value["keeping"], "keeping"),
            tries=_checks.integer("tries", value["tries"], least=0),
            seconds=number(value["seconds"], "seconds"),
            stale_files=tuple(str(name) for name in value["stale_files"]),
            other_releases=tuple(str(name) for name in value["other_releases"]),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Erasure(Displayed):
    """The result of :func:`expost.forget`.

    Attributes
    ----------
    release : Release
        The model after, with its history.
    certificate : Certificate
        What may be shown to everybody.
    record : Record
        What the curator keeps.
    """

    release: Release
    certificate: Certificate
    record: Record

    audience = Audience.CURATOR_ONLY

    @property
    def is_kept(self) -> bool:
        """Whether the model before was kept."""
        return self.record.is_kept

    def save(self, folder: str | Path) -> dict[str, Path]:
        """Write model.json, the certificate and the record into a folder.

        Parameters
        ----------
        folder : str or Path
            The folder, which must exist.

        Returns
        -------
        dict[str, Path]
            The paths that were written.
        """
        folder, certificate = Path(folder), self.certificate
        names = {
            "model": (folder / "model.json", self.release),
            "certificate": (
                folder / certificate.audience.file_name("certificate", "json"),
                certificate,
            ),
            "record": (folder / Audience.CURATOR_ONLY.file_name("erasure", "json"), self.record),
        }
        return {
            name: write_json(path, document.audience, document.to_json())
            for name, (path, document) in names.items()
        }


def _interval(value: Any, name: str) -> tuple[float, float] | None:
    if value is None:
        return None
    low, high = value
    return number(low, name), number(high, name)


def _model_fields(model: Model) -> dict[str, Any]:
    return {**to_fields(model), "epsilon": plain(model.epsilon)}


def _model(value: dict[str, Any]) -> Model:
    epsilon = number(value["epsilon"], "epsilon", infinite=True)
    return from_fields(Model, {**value, "epsilon": epsilon})
