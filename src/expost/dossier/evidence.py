"""What stored results state about one model, as the answers of a dossier need it."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from expost.auditing.attacks import described
from expost.erasure.certificate import Certificate
from expost.errors import InvalidInput
from expost.files.atomic import read_json
from expost.files.sealed import number
from expost.ledger import Ledger, Listing
from expost.policy.facts import AuditFacts, Facts, GuaranteeFacts, read_facts
from expost.profiles import identifiability
from expost.profiles.stored import StoredProfile
from expost.publishing.report import PublishedReport
from expost.release import Release
from expost.risk.attacks import RISKS, baselines_of
from expost.risk.statement import Identifiability
from expost.types import Audience

__all__ = ["BASELINE", "Evidence", "ResultFile", "read_evidence"]

# The chance of success without a release, of attacks beyond membership.
BASELINE = 1 / 1000
_ALONE = (
    "RESULT: name the folder of the released model too; a certificate alone does not say which"
    " guarantee the model has."
)
# What a format is called, and the name of its copy in a dossier.
_KINDS = {
    Release.FORMAT: ("model", "result-model.json"),
    PublishedReport.FORMAT: ("published report", "result-report.json"),
    Certificate.FORMAT: ("certificate of an erasure", "result-certificate.json"),
    Ledger.FORMAT: ("ledger", ""),
    "expost-page/1": ("summary", ""),
    "expost-profile/2": ("profile", ""),
    "expost-audit/1": ("audit", ""),
    "expost-epsilon/4": ("choice of ε", ""),
}


@dataclass(frozen=True, kw_only=True)
class ResultFile:
    """A file that answers come from.

    Parameters
    ----------
    path : Path
        The file.
    kind : str
        The kind of the result.
    audience : Audience
        Who may read it; curator-only unless its content is public.
    copy : str
        The name of its copy in a dossier; "" if it is never copied.
    content : bytes
        What was read.
    """

    path: Path
    kind: str
    audience: Audience
    copy: str
    content: bytes

    @property
    def name(self) -> str:
        """The name of the file; that of its copy if it is public, because names may reveal data."""
        return self.copy if self.audience is Audience.PUBLIC and self.copy else self.path.name

    @property
    def sha256(self) -> str:
        """The checksum of the file."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What all given results state about one model.

    Parameters
    ----------
    facts : Facts
        The facts of guarantees, profiles, audits and ledgers.
    files : tuple[ResultFile, ...]
        The files.
    release : Release | None
        The released model, if it is given.
    certificate : Certificate | None
        The certificate of its last erasure, if there was one and it is given.
    groups : int
        The number of columns by which an audit compared groups; the class is not counted.
    lower_bounds : tuple[float, ...]
        The lower bounds on ε that audits state.
    baselines : Mapping[str, float]
        The probability with which each attack beyond membership succeeds without a release, by the
        name of the risk.
    assumed : frozenset[str]
        The risks whose baseline is the default.
    profiles : tuple[StoredProfile, ...]
        The profiles of the model, with their rows.
    """

    facts: Facts
    files: tuple[ResultFile, ...]
    release: Release | None
    certificate: Certificate | None
    groups: int
    lower_bounds: tuple[float, ...]
    baselines: Mapping[str, float]
    assumed: frozenset[str]
    profiles: tuple[StoredProfile, ...]

    @property
    def audience(self) -> Audience:
        """Needs review if the model does, or if a status follows from figures of an audit."""
        reviewed = any(each.audience is not Audience.PUBLIC for each in self.facts.releases)
        reviewed = reviewed or self.is_refuted or self.is_confounded
        return Audience.NEEDS_REVIEW if reviewed else Audience.PUBLIC

    @property
    def guarantee(self) -> GuaranteeFacts | None:
        """The weakest stated guarantee of the released model; None without a model."""
        releases = self.facts.releases
        return max(releases, key=lambda each: (each.epsilon, each.delta), default=None)

    @property
    def is_refuted(self) -> bool:
        """Whether an audit or a profile refutes the guarantee."""
        return self.facts.is_refuted

    @property
    def is_confounded(self) -> bool:
        """Whether members and non-members of an audit differ without the model."""
        return any(audit.confounded for audit in self.facts.audits)

    @property
    def gap(self) -> tuple[str, str] | None:
        """Why nothing is proved, and the command that would change it; None if it is."""
        guarantee = self.guarantee
        if guarantee is None:
            return "No released model was given.", "expost profile DATA --target COLUMN --out DIR"
        if self.is_refuted:
            return "A result refutes the guarantee of the model.", ""
        again = "expost profile DATA --target COLUMN --encoding public.json --out DIR"
        if not guarantee.epsilon < math.inf or guarantee.remark:
            reason = guarantee.remark or "the model has no guarantee"
            return f"Nothing is proved: {reason}.", again
        return None

    @cached_property
    def bounds(self) -> Identifiability | None:
        """What the guarantee of this model allows an attacker; None if nothing is proved."""
        guarantee = self.guarantee
        if guarantee is None or self.gap is not None:
            return None
        if self.release is not None and guarantee.epsilon <= self.release.mechanism.epsilon:
            return identifiability.identifiability(self.release, baseline=self.baselines)
        delta = guarantee.delta or None
        return identifiability.identifiability(
            epsilon=guarantee.epsilon, delta=delta, baseline=self.baselines
        )

    @cached_property
    def rows(self) -> Mapping[str, Mapping[str, float]]:
        """The largest bounds of any row on each risk; without a law of the loss, the posterior."""
        by_baseline = {
            baseline: [
                profile.identifiability(baseline=baseline).beyond_membership()
                for profile in self.profiles
            ]
            for baseline in dict.fromkeys(self.baselines.values())
        }
        names = ("baseline_posterior", *(("attack_bound",) if self.has_law else ()))
        return {
            risk: {name: max(each[name] for each in by_baseline[baseline]) for name in names}
            for risk, baseline in self.baselines.items()
            if self.profiles
        }

    @property
    def has_law(self) -> bool:
        """Whether the law of each row's loss is known."""
        return all(profile.has_law for profile in self.profiles)

    @property
    def listing(self) -> Listing | None:
        """All releases of the ledgers; None without a ledger."""
        return self.facts.listing()

    @property
    def is_listed(self) -> bool:
        """Whether the ledgers list everything that was released with the model."""
        return bool(self.facts.releases) and self.facts.is_listed

    @property
    def could_refute(self) -> bool:
        """Whether an attack that is always right would have refuted the guarantee."""
        least = 0.0 if self.guarantee is None else self.guarantee.epsilon
        return any(audit.largest_bound > least for audit in self.facts.audits)

    @property
    def results(self) -> Iterator[tuple[str, Path]]:
        """The kind and the path of every file that was read, the tables of profiles included."""
        yield from ((file.kind, file.path) for file in self.files)
        for profile in self.profiles:
            if profile.table is not None:
                yield "table of a profile", profile.table

    @property
    def attacks(self) -> tuple[str, ...]:
        """The names of all attacks that were run."""
        return tuple(dict.fromkeys(name for each in self.facts.audits for name in each.attacks))

    @property
    def has_white_box(self) -> bool:
        """Whether one of them uses the weights of the model."""
        return any(described(name).white_box for name in self.attacks)

    @property
    def attacked_rows(self) -> int:
        """The largest number of members and non-members that one attack was run on."""
        return max(
            (
                int(
                    number(figures.get("members", 0), "members")
                    + number(figures.get("non_members", 0), "non_members")
                )
                for audit in self.facts.audits
                for figures in audit.attacks.values()
            ),
            default=0,
        )

    @property
    def strongest(self) -> tuple[str, AuditFacts] | None:
        """The attack with the largest upper end of its AUC, and its audit."""
        pairs = [(name, audit) for audit in self.facts.audits for name in audit.attacks]
        return max(pairs, key=lambda pair: pair[1].attacks[pair[0]]["auc"]["high"], default=None)


def read_evidence(
    paths: Sequence[str | Path], *, baseline: float | Mapping[str, float] | None = None
) -> Evidence:
    """Return what the results at these paths state.

    Parameters
    ----------
    paths : Sequence[str | Path]
        Folders that expost commands wrote, or files in them.
    baseline : float | Mapping[str, float], optional
        The probability with which attacks beyond membership succeed without a release; of risks
        that it does not name, ``BASELINE``.

    Returns
    -------
    Evidence
        The evidence.

    Raises
    ------
    InvalidInput
        If a path holds no result, a result is damaged, or results are of different models.
    """
    certificates = [path for path in _files(paths) if _format(path) == Certificate.FORMAT]
    listed = {path.resolve() for path in certificates}
    others = [path for path in map(Path, paths) if path.resolve() not in listed]
    if not others:
        raise InvalidInput(_ALONE)
    given, facts = baselines_of(baseline), read_facts(others)
    files = tuple(_read(path) for path in _files(paths) if _format(path) in _KINDS)
    release = _release(files)
    raw = [read_json(file.path) for file in files if file.kind == "audit"]
    return Evidence(
        facts=facts,
        files=files,
        release=release,
        certificate=_certificate(certificates, facts),
        groups=len(_columns(raw)),
        lower_bounds=tuple(_lower_bounds(raw)),
        baselines={risk: given.get(risk, BASELINE) for risk in RISKS},
        assumed=frozenset(RISKS) - frozenset(given),
        profiles=tuple(_profiles(files, release)),
    )


def _files(paths: Sequence[str | Path]) -> list[Path]:
    """Return the JSON files at these paths, each once; of an audit only those without rows."""
    files: dict[Path, Path] = {}
    for path in map(Path, paths):
        named = sorted(path.glob("*.json")) if path.is_dir() else [path]
        figures = any(file.name.startswith("figures.") for file in named)
        for file in named:
            rows = figures and file.name.startswith("audit.")
            if not file.name.startswith(".") and not rows:
                files.setdefault(file.resolve(), file)
    return list(files.values())


def _format(path: Path) -> str | None:
    value = read_json(path)
    name = value.get("format") if isinstance(value, dict) else None
    return name if isinstance(name, str) else None


def _read(path: Path) -> ResultFile:
    kind, copy = _KINDS[_format(path) or ""]
    audience = Audience.CURATOR_ONLY
    if kind == "model":
        audience = Release.load(path).audience
    elif kind == "published report":
        audience = PublishedReport.load(path).audience
    elif kind == "certificate of an erasure":
        audience = Certificate.load(path).audience
    return ResultFile(path=path, kind=kind, audience=audience, copy=copy, content=path.read_bytes())


def _release(files: Sequence[ResultFile]) -> Release | None:
    """Return the released model, out of its file or out of its published report."""
    for file in files:
        if file.kind == "model":
            return Release.load(file.path)
    for file in files:
        if file.kind == "published report":
            return PublishedReport.load(file.path).release
    return None


def _profiles(files: Sequence[ResultFile], release: Release | None) -> Iterator[StoredProfile]:
    """Yield the profiles whose rows are there; without a model nothing is known of them."""
    for file in files:
        if file.kind == "profile" and release is not None:
            profile = StoredProfile.load(file.path, release)
            if profile.has_rows:
                yield profile


def _certificate(paths: Sequence[Path], facts: Facts) -> Certificate | None:
    """Return the certificate of the model; refuse one of another model."""
    if len(paths) > 1:
        raise InvalidInput(
            "RESULT: holds two certificates; name the one of the last erasure, which is of the"
            " present model."
        )
    models = {each.release for each in facts.releases}
    if paths and not models:
        raise InvalidInput(_ALONE)
    for path in paths:
        certificate = Certificate.load(path)
        if certificate.after.sha256 not in models:
            raise InvalidInput(
                f"{path}: is of another model than the other results; name the results of the model"
                " after the erasure."
            )
        return certificate
    return None


def _columns(audits: Sequence[Any]) -> set[str]:
    return {
        str(each.get("column"))
        for audit in audits
        for each in audit.get("disparity", ())
        if isinstance(each, dict) and each.get("column") != "class"
    }


def _lower_bounds(audits: Sequence[Any]) -> Iterator[float]:
    for audit in audits:
        for each in audit.get("lower_bounds", ()):
            value = each.get("epsilon") if isinstance(each, dict) else None
            if isinstance(value, int | float) and math.isfinite(value):
                yield float(value)
