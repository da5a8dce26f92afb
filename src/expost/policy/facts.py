"""What stored results state: the facts that the limits of a policy are compared with.

Results are untrusted input. Models, published reports, ledgers and pages are sealed documents and
are read strictly. Profiles, audits and choices of ε are not sealed: they are compared with the list
of files that the command wrote into their folder, if it is there.

Every figure is on the safe side: certainties are the upper ends of certified intervals, and a
guarantee is the stored one, which is never stronger than the requested ε.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from expost.errors import InvalidInput
from expost.files.atomic import read_json
from expost.ledger import Ledger, Listing
from expost.numbers import summed_up
from expost.profiles.stored import check_listed, finite, read_rows
from expost.publishing.report import PublishedReport
from expost.release import Release
from expost.types import Audience, FloatArray

__all__ = [
    "AuditFacts",
    "ChoiceFacts",
    "Facts",
    "GuaranteeFacts",
    "ProfileFacts",
    "certainties",
    "composed_epsilon",
    "read_facts",
]

_MADE = "%Y-%m-%d %H:%M UTC"
# The kinds of pages whose figures are evidence; each needs a date.
_DATED = ("profile", "audit", "epsilon")
# The columns of the certified interval of a loss.
_INTERVAL = ("loss_low", "loss_high")
# More than the roundings of sigmoid.
_ROUNDING = 1 + 8 * 2.0**-52
_UNKNOWN = (LookupError, TypeError, ValueError, AttributeError)


def composed_epsilon(listing: Listing) -> float:
    """Return ε of all releases together; infinite if one guarantees nothing or was seeded.

    Parameters
    ----------
    listing : Listing
        The releases, and the δ at which they are composed.

    Returns
    -------
    float
        ε, rounded up.
    """
    if listing.comparison is None or any(entry.seeded for entry in listing.entries):
        return math.inf
    return listing.comparison.row("pld").epsilon


@dataclass(frozen=True, kw_only=True)
class GuaranteeFacts:
    """The guarantee of a release, or of a model that ``expost risk`` explained.

    Parameters
    ----------
    source : str
        The kind of the result.
    epsilon, delta : float
        The stored guarantee; ε is infinite if there is none or the noise was seeded.
    audience : Audience, optional
        The audience of the release; None where it is not a release.
    release : str
        The checksum of the model.
    listed_as : tuple[str, ...], default=()
        How a ledger lists everything that was released; empty where it is not a release.
    model_epsilon : float, default=math.inf
        ε of the model alone, as it was requested.
    description, identity : str, optional
        The model in one line, and the digest that tells it from another draw.
    remark : str, default=""
        Why there is no guarantee, or what it does not cover.
    """

    source: str
    epsilon: float
    delta: float
    release: str
    audience: Audience | None = None
    listed_as: tuple[str, ...] = ()
    model_epsilon: float = math.inf
    description: str | None = None
    identity: str | None = None
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class ProfileFacts:
    """What a profile states: the certainty about each row, and how well the model predicts.

    Parameters
    ----------
    description, identity : str, str | None
        The model in one line, and the digest that tells it from another draw; None if it is none of
        expost.
    certainty : FloatArray, optional
        (n,) sorted, the upper end of each; None if the table of rows is not there.
    utility : Mapping[str, float]
        AUC or R², on the training rows.
    refutes : bool
        Whether the loss of a row certifiably exceeds an ε that was guaranteed without exception.
    """

    description: str
    identity: str | None
    certainty: FloatArray | None
    utility: Mapping[str, float]
    refutes: bool


@dataclass(frozen=True, kw_only=True)
class AuditFacts:
    """What an audit states.

    Parameters
    ----------
    description, identity : str, str | None
        The attacked model in one line, and the digest that tells it from another draw; None if it
        is none of expost.
    attacks : Mapping[str, Mapping[str, Any]]
        The figures of each attack that was run.
    refuted : bool
        Whether the audit refutes the guarantee of the model.
    largest_bound : float
        The largest lower bound on ε that its attacks could have proved; 0 if the audit knows of no
        guarantee that a bound was compared with.
    references : int
        The number of references; 0 if there were none, or it is not known.
    chosen_by : str
        How the members were chosen.
    confounded : bool
        Whether members and non-members differ without the model, for no known reason; curator-only.
    """

    description: str
    identity: str | None
    attacks: Mapping[str, Mapping[str, Any]]
    refuted: bool
    largest_bound: float
    references: int
    chosen_by: str
    confounded: bool


@dataclass(frozen=True, kw_only=True)
class ChoiceFacts:
    """What a choice of ε states.

    Parameters
    ----------
    epsilon : float
        The recommended ε; infinite if none was recommended.
    utility : Mapping[str, float]
        AUC or R² of models at that ε, held out.
    """

    epsilon: float
    utility: Mapping[str, float]


@dataclass(kw_only=True)
class Facts:
    """What all given results state; each list is filled by the readers below."""

    guarantees: list[GuaranteeFacts] = field(default_factory=list)
    ledgers: list[Ledger] = field(default_factory=list)
    profiles: list[ProfileFacts] = field(default_factory=list)
    audits: list[AuditFacts] = field(default_factory=list)
    choices: list[ChoiceFacts] = field(default_factory=list)
    dates: list[tuple[str, datetime]] = field(default_factory=list)
    undated: list[str] = field(default_factory=list)
    # Whether a page explains a guarantee of no model, which was typed.
    typed: bool = False

    @property
    def releases(self) -> list[GuaranteeFacts]:
        """The guarantees of releases."""
        return [each for each in self.guarantees if each.listed_as]

    @property
    def is_refuted(self) -> bool:
        """Whether an audit or a profile refutes the guarantee of the model."""
        return any(each.refuted for each in self.audits) or any(
            each.refutes for each in self.profiles
        )

    @property
    def is_listed(self) -> bool:
        """Whether the ledgers list everything that was released with the model."""
        listed = {entry.release for ledger in self.ledgers for entry in ledger.entries}
        return all(listed.issuperset(each.listed_as) for each in self.releases)

    def listing(self, delta: float | None = None) -> Listing | None:
        """Return all releases of the ledgers, each once; None if there is none.

        Parameters
        ----------
        delta : float, optional
            The δ at which they are composed; None: that of ``expost ledger``.

        Returns
        -------
        Listing | None
            The releases.
        """
        entries = {entry.release: entry for each in self.ledgers for entry in each.entries}
        return Listing.of(((entry, None) for entry in entries.values()), delta) if entries else None

    def check_one_model(self) -> None:
        """Refuse results of different models."""
        models = {each.release for each in self.guarantees}
        # Two draws with the same settings have the same description.
        named = {(each.description, each.identity) for each in self.releases}
        named |= {(each.description, each.identity) for each in self.profiles}
        named |= {(each.description, each.identity) for each in self.audits}
        if len(models) > 1 or len(named) > 1:
            raise InvalidInput(
                "RESULT: the results are of different models; check each model with its own"
                " results."
            )


def read_facts(paths: Sequence[str | Path]) -> Facts:
    """Return what the results at these paths state.

    Parameters
    ----------
    paths : Sequence[str | Path]
        Folders that expost commands wrote, or files in them.

    Returns
    -------
    Facts
        The facts.

    Raises
    ------
    InvalidInput
        If a path holds no result, a result is damaged, or results are of different models.
    """
    facts = Facts()
    files: dict[Path, Path] = {}
    for path in map(Path, paths):
        named = list(_results_in(path)) if path.is_dir() else [path]
        files |= {file.resolve(): file for file in named}
    if not files:
        raise InvalidInput("RESULT: name at least one result.")
    by_folder: dict[Path, list[Path]] = {}
    for resolved, file in files.items():
        by_folder.setdefault(resolved.parent, []).append(file)
    for group in by_folder.values():
        _read_folder(facts, group)
    facts.check_one_model()
    return facts


def _results_in(folder: Path) -> Iterator[Path]:
    """Yield the results in a folder; of an audit only the figures without rows."""
    names = sorted(path.name for path in folder.glob("*.json") if not path.name.startswith("."))
    figures = [name for name in names if name.startswith("figures.")]
    results = [
        folder / name
        for name in names
        if not (figures and name.startswith("audit.")) and _reader(folder / name) is not None
    ]
    if not results:
        raise InvalidInput(
            f"{folder}: holds no result that answers a policy; name a folder that expost profile,"
            " epsilon, publish, risk or audit wrote, or a ledger."
        )
    yield from results


def _read_folder(facts: Facts, files: Iterable[Path]) -> None:
    """Read the results of one folder, whose pages state the dates of the others."""
    needed: list[str] = []
    kinds: set[str] = set()
    for path in files:
        reader = _reader(path)
        if reader is None:
            raise InvalidInput(
                f"{path}: is not a result that answers a policy; name a model.json, report.json,"
                " profile, audit, epsilon or summary file, a ledger, or their folder."
            )
        before = len(facts.dates)
        try:
            needed += reader(facts, path)
        except _UNKNOWN as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(
                f"{path}: a field is missing or has the wrong type ({type(error).__name__}); make"
                " it again with the command that wrote it."
            ) from None
        kinds |= {kind for kind, _ in facts.dates[before:]}
    facts.undated += [kind for kind in needed if kind not in kinds]


# A reader adds the facts of a file, and returns the kinds of results that need a date.
_Reader = Callable[[Facts, Path], Sequence[str]]


def _reader(path: Path) -> _Reader | None:
    """Return the reader of a file by its format; None if it holds no facts."""
    value = read_json(path)
    name = value.get("format") if isinstance(value, dict) else None
    if not isinstance(name, str):
        return None
    family = name.partition("/")[0]
    known = {each.partition("/")[0]: each for each in _READERS}
    if family in known and name not in _READERS:
        raise InvalidInput(
            f"{path}: is of the format {name!r}, and this expost reads {known[family]!r}; make it"
            " again with this expost."
        )
    return _READERS.get(name)


# -- guarantees ----------------------------------------------------------------------------------


def _model(facts: Facts, path: Path) -> Sequence[str]:
    release, written = Release.load(path), read_json(path)
    facts.guarantees.append(_guarantee("model", release, written, release.audience))
    return ()


def _report(facts: Facts, path: Path) -> Sequence[str]:
    report, written = PublishedReport.load(path), read_json(path)
    own = _guarantee("published report", report.release, written["model"], report.audience)
    epsilon, delta = report.spending.together
    entries = report.entries(written, **_line(own.source))
    total = replace(
        own,
        epsilon=max(epsilon, own.epsilon),
        delta=max(delta, own.delta),
        listed_as=tuple(entry.release for entry in entries),
    )
    facts.guarantees.append(total)
    return ()


def _line(source: str) -> dict[str, Any]:
    """Return what a line of a ledger states and no fact depends on."""
    return {"name": source, "made": "2000-01-01T00:00:00Z", "data": None}


def _guarantee(
    source: str, release: Release, written: Mapping[str, Any], audience: Audience
) -> GuaranteeFacts:
    """Return the stored guarantee of a model; it may be weaker than the ε that was requested."""
    mechanism = release.mechanism
    epsilon, delta, remark = mechanism.epsilon, mechanism.delta or 0.0, ""
    line = _line(source)
    entries = release.entries_alone(written, **line)
    if release.seeded:
        epsilon, remark = math.inf, "the noise was seeded, so the model is not private"
    elif not mechanism.worst_case < math.inf or not all(e.has_guarantee for e in entries):
        epsilon, remark = math.inf, "the model has no guarantee"
    elif not all(entry.guarantee.keeps(entry.epsilon, entry.delta) for entry in entries):
        epsilon = summed_up(entry.guarantee.epsilon(entry.delta) for entry in entries)
    if not remark and release.read_from_data:
        remark = "ε does not cover constants that were read from the data"
    return GuaranteeFacts(
        source=source,
        epsilon=epsilon,
        delta=delta,
        audience=audience,
        release=written["sha256"],
        listed_as=tuple(entry.release for entry in release.entries(written, **line)),
        model_epsilon=mechanism.epsilon,
        description=mechanism.describe(),
        identity=release.identity,
        remark=remark,
    )


def _ledger(facts: Facts, path: Path) -> Sequence[str]:
    facts.ledgers.append(Ledger.load(path))
    return ()


# -- pages ---------------------------------------------------------------------------------------


def _page(facts: Facts, path: Path) -> Sequence[str]:
    """Read the dates of a summary, and the guarantee of a model from ``expost risk``."""
    # By name, as results display themselves: the report package is a higher layer.
    parse_json = import_module("expost.report").parse_json
    try:
        page = parse_json(path.read_bytes())
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    undated = []
    for document in page.documents:
        # A page that is not public may be of a seeded model, or of one without a guarantee.
        public = document.audience is Audience.PUBLIC
        if document.kind == "risk" and public:
            stated, model = document.facts["epsilon"], document.facts.get("model")
            facts.typed |= model is None
            if model is not None:
                epsilon = math.inf if stated in (None, math.inf) else finite(stated)
                delta = finite(document.facts["delta"])
                facts.guarantees.append(
                    GuaranteeFacts(source="risk", epsilon=epsilon, delta=delta, release=str(model))
                )
        if document.made is None:
            undated.append(document.kind)
        else:
            made = datetime.strptime(document.made, _MADE).replace(tzinfo=UTC)
            facts.dates.append((document.kind, made))
    return undated


# -- figures of rows -----------------------------------------------------------------------------


def _profile(facts: Facts, path: Path) -> Sequence[str]:
    check_listed(path)
    value = read_json(path)
    certainty = _rows(path, value["table"], value["figures"]["count"])
    utility = {}
    fit = value["fit"]
    if fit is not None and fit["auc"] is not None:
        utility["auc"] = _score(fit["auc"], 0.0)
    if fit is not None and fit["measure"] == "R²":
        utility["r2"] = _score(fit["released"])
    facts.profiles.append(
        ProfileFacts(
            description=str(value["model"]),
            identity=_identity(value),
            certainty=certainty,
            utility=utility,
            refutes=value["guarantee_exceeded"] is not False,
        )
    )
    return ("profile",)


def _rows(path: Path, table: Any, count: Any) -> FloatArray | None:
    """Return the sorted certainties of all rows of a profile; None if they are not there."""
    columns = read_rows(path, table, count, _INTERVAL)
    return None if columns is None else certainties(*(columns[name] for name in _INTERVAL))


def _identity(value: Mapping[str, Any]) -> str | None:
    """Return the digest of the model; a file that was written without one is refused."""
    identity = value["identity"]
    if identity is not None and not isinstance(identity, str):
        raise TypeError
    return identity


def _score(value: Any, least: float = -math.inf) -> float:
    """Return a score of at most 1."""
    score = finite(value)
    if not least <= score <= 1:
        raise ValueError
    return score


def certainties(low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the upper bounds of the attacker's certainty, sorted; 1 where it is not known.

    Parameters
    ----------
    low, high : FloatArray
        (n,) the certified intervals of the privacy losses, in nats.

    Returns
    -------
    FloatArray
        (n,) sigmoid(max(|low|, |high|)), rounded up.
    """
    exposure = np.maximum(np.abs(low), np.abs(high))
    rounded = np.where(exposure == 0, 0.5, expit(exposure) * _ROUNDING)
    return np.sort(np.where(np.isnan(exposure), 1.0, np.minimum(rounded, 1.0)))


# -- attacks and choices -------------------------------------------------------------------------


def _audit(facts: Facts, path: Path) -> Sequence[str]:
    check_listed(path)
    value = read_json(path)
    attacks = value["attacks"]
    for figures in attacks.values():
        for name in ("auc", "tpr_at_1_percent", "tpr_at_01_percent"):
            for end in ("value", "high"):
                _score(figures[name][end], 0.0)
    chosen_by, shift = str(value.get("members_chosen_by", "unknown")), value.get("shift")
    facts.audits.append(
        AuditFacts(
            description=str(value["model"]),
            identity=_identity(value),
            attacks=attacks,
            refuted=value["guarantee_refuted"] is not False,
            largest_bound=_largest_bound(value),
            references=int(finite(value.get("references") or 0)),
            chosen_by=chosen_by,
            # As AuditResult.is_confounded.
            confounded=bool(shift) and shift["detected"] is not False and chosen_by != "propensity",
        )
    )
    return ("audit",)


def _largest_bound(value: Mapping[str, Any]) -> float:
    """Return the largest lower bound on ε that the attacks could have proved."""
    if value["guarantee"] is None:
        return 0.0
    return max((finite(bound["most"]) for bound in value["lower_bounds"]), default=0.0)


def _choice(facts: Facts, path: Path) -> Sequence[str]:
    """Read the held-out utility at the recommended ε, its lower end over releases."""
    check_listed(path)
    value = read_json(path)
    recommended, utility = value["recommended"], value["utility"]
    scores: dict[str, float] = {}
    if recommended is not None and utility is not None:
        epsilons = utility["epsilons"]
        for name in ("auc", "r2"):
            if name in utility and recommended in epsilons:
                index = epsilons.index(recommended)
                scores[name] = _score(utility[name]["low"][index])
    epsilon = math.inf if recommended is None else finite(recommended)
    facts.choices.append(ChoiceFacts(epsilon=epsilon, utility=scores))
    return ("epsilon",)


_READERS: dict[str, _Reader] = {
    Release.FORMAT: _model,
    PublishedReport.FORMAT: _report,
    Ledger.FORMAT: _ledger,
    "expost-page/1": _page,
    "expost-profile/2": _profile,
    "expost-audit/1": _audit,
    "expost-epsilon/4": _choice,
}
