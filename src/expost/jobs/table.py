"""The table of a job: its options, how it is opened, and the settings of the result."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expost import _checks
from expost.data import (
    MISSING,
    Encoding,
    LevelEntry,
    Mark,
    NumericEntry,
    Table,
    Target,
    given_encoding,
    open_encoded,
)
from expost.data.encoding import ReleaseHistograms
from expost.data.sources import origin_of
from expost.engine import Engine
from expost.errors import (
    InvalidInput,
    PrivacyLeakWarning,
    SeededReleaseWarning,
    UselessModelWarning,
)
from expost.jobs.requests import TableRequest
from expost.labels import LabelScale
from expost.losses import Huber, make_loss
from expost.mechanisms import MECHANISMS, Mechanism
from expost.notices import collected
from expost.release import Release
from expost.report import Origin, Setting
from expost.training import TRAININGS, LinearTraining, LogisticTraining

__all__ = [
    "OF_AN_ENCODING",
    "Chosen",
    "budget_of",
    "check_no_feature",
    "check_options",
    "key_options",
    "model_encoding",
    "noted",
    "opened",
    "refuse_fixed",
    "table_notices",
    "target_notices",
    "training_of",
    "unknown_notices",
]

# The options that a complete encoding fixes.
OF_AN_ENCODING = ("data_norm", "drop", "missing")
# Consecutive numbers in so few rows may be figures.
_FEWEST_NUMBERED = 20
# More different numbers than these in a target are rarely classes.
_NUMBERED_CLASSES = 10


def table_notices(table: Table, encoding: Encoding, unknown: Mapping[str, int]) -> tuple[str, ...]:
    """Return notices on a table; ``unknown`` is the number of cells of no level, by column."""
    keys = (
        f"column {entry.name!r}: {reason}; if it is a key, name it with --id or leave it out with"
        " --drop."
        for entry in encoding.entries
        if (reason := _key_sign(entry, table.rows))
    )
    released = {} if encoding.histograms is None else encoding.histograms.kinds
    # A private encoding leaves rare levels out on purpose.
    unknown = {name: count for name, count in unknown.items() if name not in released}
    return (*encoding.notices, *table.notices, *keys, *unknown_notices(unknown))


def _key_sign(entry: LevelEntry | NumericEntry, rows: int) -> str:
    """Return why a column may be a key of the rows; nothing if no sign of it is known."""
    if isinstance(entry, LevelEntry):
        return "has a level for most rows" if len(entry.levels) > max(2, rows / 2) else ""
    # The standard deviation of n consecutive numbers, in any order.
    numbered = math.sqrt((rows**2 - 1) / 12)
    whole = float(2 * entry.mean).is_integer()
    same = whole and math.isclose(entry.scale, numbered, rel_tol=1e-9)
    return "numbers the rows" if same and rows >= _FEWEST_NUMBERED else ""


def target_notices(target: Target) -> tuple[str, ...]:
    """Return a notice on a target of many numbers that were taken for classes."""
    labels = () if target.classes is None or target.mark is not Mark.READ else target.classes
    if len(labels) <= _NUMBERED_CLASSES or not all(map(_is_number, labels)):
        return ()
    return (
        f"target {target.column!r}: its {len(labels)} numbers are taken for classes; to predict the"
        " number itself, choose a regression (loss=squared).",
    )


def _is_number(label: str) -> bool:
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False


def unknown_notices(unknown: Mapping[str, int]) -> tuple[str, ...]:
    """Return a notice for each column with cells of no level."""
    return tuple(
        f"column {name!r}: {count:,} cells hold no level of the encoding and count as none."
        for name, count in unknown.items()
    )


def check_options(job: TableRequest, epsilon: float = 1.0) -> None:
    """Refuse options that are wrong for every table, before one is read."""
    name = _checks.one_of("loss", job.loss, tuple(TRAININGS))
    if job.label_range is not None and not is_regression(job):
        raise InvalidInput(
            f"label_range={job.label_range!r}: only the squared loss has one; leave it out, or use"
            " loss='squared'."
        )
    regularization = job.regularization
    if isinstance(regularization, str):
        _checks.one_of("regularization", regularization, ("auto",))
        regularization = 1.0
    _check_margin(job)
    # The mechanism checks its own constants, with the smallest possible table in place of the data.
    label_scale_of(job)
    loss = Huber() if is_regression(job) else make_loss(name)
    TRAININGS[name](
        epsilon=epsilon,
        regularization=regularization,
        **_budget(job),
    ).mechanism_for(loss, 2, 1)
    if job.data_norm != "auto":
        _checks.positive("data_norm", job.data_norm)
    if job.seed is not None:
        _checks.integer("seed", job.seed, least=0)


def _check_margin(job: TableRequest) -> None:
    """Refuse a margin that is out of range, or of a loss that has none."""
    if not job.is_given("margin"):
        return
    if job.loss != "logistic":
        raise InvalidInput(
            f"margin={job.margin!r}: only the logistic loss has one; leave --margin or --loss out."
        )
    LogisticTraining(margin=job.margin).loss_of(2)


def label_scale_of(job: TableRequest) -> LabelScale | None:
    """Return the scale of labels; None for classes, or if it is read from the data."""
    return None if job.label_range is None else LabelScale.within(job.label_range)


def is_regression(job: TableRequest) -> bool:
    """Return whether the target is a number, not a class."""
    return TRAININGS[job.loss].is_regression


def check_mechanism(job: TableRequest, encoding: Encoding) -> None:
    """Refuse a mechanism or a loss that does not take the number of classes of the target."""
    count = len(encoding.target.classes or ())
    if count <= 2:
        return
    target = f"target {encoding.target.column!r}: has {count} classes, which only"
    if job.loss != "logistic":
        raise InvalidInput(f"{target} the logistic loss takes; leave --loss out.")
    if job.mechanism != "auto" and not MECHANISMS[job.mechanism].is_multiclass:
        raise InvalidInput(
            f"{target} objective perturbation takes; leave --mechanism out, or name a column with"
            " two classes."
        )


def budget_of(job: TableRequest, **known: Any) -> LinearTraining:
    """Return a training that knows what may be spent, and not yet the table."""
    return TRAININGS[job.loss](**_budget(job), **known)


def _budget(job: TableRequest) -> dict[str, Any]:
    """Return the parameters of a training that determine the noise."""
    return {"mechanism": job.mechanism, "noise": job.noise, "delta": job.delta}


def training_of(
    job: TableRequest,
    encoding: Encoding,
    *,
    epsilon: float,
    random_state: int | None = None,
    rows_per_person: int = 1,
) -> LinearTraining:
    """Return the training that would release the model of a job."""
    classes = encoding.target.classes
    own: dict[str, Any] = {"label_range": job.label_range}
    if classes is not None:
        own = {"classes": classes}
    if job.is_given("margin"):
        own["margin"] = job.margin
    check_mechanism(job, encoding)
    return TRAININGS[job.loss](
        epsilon=epsilon,
        **_budget(job),
        regularization=job.regularization,
        random_state=random_state,
        data_norm=encoding.data_norm,
        rows_per_person=rows_per_person,
        **own,
    )


def refuse_fixed(job: TableRequest, owner: str, names: tuple[str, ...]) -> None:
    """Refuse options that an existing model or encoding fixes."""
    for name in names:
        if job.is_given(name):
            option = "--" + name.replace("_", "-")
            raise InvalidInput(f"{option}: the {owner} has its own; leave {option} out.")


def opened(
    job: TableRequest,
    person: str | None = None,
    limited: Callable[[Table], Table] = lambda table: table,
    release: ReleaseHistograms | None = None,
    engine: Engine | None = None,
) -> tuple[Table, Encoding]:
    """Open the table and return it with its encoding; no row is held.

    Parameters
    ----------
    person : str, optional
        The column of persons.
    limited : callable, optional
        Returns the table with the rows to read.
    release : ReleaseHistograms, optional
        Releases the histograms of a private encoding.
    engine : Engine, optional
        The workers of all passes over the table.
    """
    options: dict[str, Any] = {
        "target": job.target,
        "classes": job.classes,
        "regression": is_regression(job),
        "limited": limited,
        "release": release,
        "engine": engine,
        **key_options(job.id_column, person),
    }
    given = None if job.encoding is None else given_encoding(job.encoding)
    if isinstance(given, Encoding):
        refuse_fixed(job, "encoding", OF_AN_ENCODING)
        check_no_feature(person, given, "encoding")
        return open_encoded(job.source, given=given, **options)
    if job.data_norm != "auto":
        if given is not None:
            raise InvalidInput("--data-norm: give it in the encoding, or leave --encoding out.")
        given = {"data_norm": job.data_norm}
    return open_encoded(
        job.source,
        given=given,
        columns=_columns(job, person),
        missing=job.missing,
        **options,
    )


def model_encoding(
    release: Release, model: Path | None, target: str | None, *, remedy: str
) -> Encoding:
    """Return the encoding of a model, which must be of a table and predict ``target``.

    Parameters
    ----------
    remedy : str
        What to do with a model that was not made from a table.
    """
    encoding = release.table_encoding
    if encoding is None:
        raise InvalidInput(f"{model}: was not made from a table; {remedy}.")
    if target not in (None, encoding.target.column):
        raise InvalidInput(
            f"target={target!r}: the model predicts {encoding.target.column!r}; name that."
        )
    return encoding


def key_options(id_column: str | None, person: str | None) -> dict[str, Any]:
    """Return the options of :func:`open_table` for the column of ids or of persons."""
    if person is None:
        return {"id_column": id_column}
    return {"id_column": person, "ids_repeat": True}


def check_no_feature(
    person: str | None, encoding: Encoding, owner: str, *, flag: str = "--person"
) -> None:
    """Refuse a column of persons that is a feature."""
    if person in [entry.name for entry in encoding.entries]:
        raise InvalidInput(
            f"{flag} {person!r}: is a feature of the {owner}; name a column that is not."
        )


def _columns(job: TableRequest, person: str | None) -> list[str] | None:
    """Return all columns but those dropped, which are not read; None if nothing is dropped."""
    if not job.drop:
        return None
    origin = origin_of(job.source)
    names = [column.name for column in origin.columns]
    for name in job.drop:
        parts = {
            person: "the person column",
            job.id_column: "the id column",
            job.target: "the target",
        }
        if name in parts:
            raise InvalidInput(f"drop={name!r}: is {parts[name]}; drop another column.")
        if name not in names:
            raise InvalidInput(
                f"drop={name!r}: is not a column of {origin.label}; leave it out, or"
                f" name a column as its header does.{_checks.did_you_mean(name, names)}"
            )
    # The key of a database orders its rows, and is no feature.
    return [name for name in names if name not in job.drop and name != origin.key]


@contextmanager
def noted() -> Iterator[Callable[[], list[str]]]:
    """Collect warnings as notices of the report; return a function that lists them."""
    # The results report these themselves, in full.
    elsewhere = (PrivacyLeakWarning, SeededReleaseWarning, UselessModelWarning)
    with collected() as warned:
        yield lambda: [
            message for category, message in warned if not issubclass(category, elsewhere)
        ]


# -- settings ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The settings of a job: every constant that a result depends on, and its origin.

    Parameters
    ----------
    settled : Origin, optional
        The origin of all of them, if an existing model fixes them.
    """

    job: TableRequest
    encoding: Encoding
    settled: Origin | None = None

    def setting(
        self, name: str, value: str, given: bool, otherwise: Origin = Origin.DEFAULT
    ) -> Setting:
        """Return a setting: ``given`` by the user, or of the origin ``otherwise``."""
        origin = Origin.GIVEN if given else otherwise
        return Setting(name=name, value=value, origin=self.settled or origin)

    def target(self, scale: LabelScale | None) -> tuple[Setting, ...]:
        """Return the settings of the target."""
        job, goal = self.job, self.encoding.target
        column = self.setting("target", goal.column, True)
        if goal.classes is None:
            ends = "that of the labels"
            if scale is not None:
                ends = " to ".join(f"{end:.6g}" for end in scale.ends)
            return column, self.setting(
                "label_range", ends, job.is_given("label_range"), Origin.READ
            )
        classes = ", ".join(goal.classes or ())
        return column, self.setting("classes", classes, goal.mark is Mark.GIVEN, Origin.READ)

    def model(
        self, mechanism: Mechanism, *, intercept: str, remark: str = ""
    ) -> tuple[Setting, ...]:
        """Return the settings of the model; ``remark`` is added to a default Λ or margin."""
        job = self.job
        given, rule = job.sets("regularization"), Origin.RULE
        penalty = f"{mechanism.regularization:.6g}{'' if given else remark}"
        norm, mark = f"{self.encoding.data_norm:.6g}", self.encoding.data_norm_mark
        read = Origin.READ if mark is Mark.READ else rule
        settings = [
            self.setting(
                "mechanism", f"{mechanism.kind} perturbation", job.sets("mechanism"), rule
            ),
            self.setting("noise", mechanism.noise, job.sets("noise"), rule),
            self.setting("loss", mechanism.loss.name, job.is_given("loss")),
            self.setting("regularization", penalty, given, rule),
            self.setting("data_norm", norm, mark is Mark.GIVEN, read),
            self.setting("intercept", intercept, False, rule),
            self.setting("rows", str(mechanism.rows), False, Origin.READ),
        ]
        if mechanism.delta is not None:
            delta = f"{mechanism.delta:g}"
            settings.insert(1, self.setting("delta", delta, job.sets("delta"), rule))
        margin = getattr(mechanism.loss, "margin", 0.0)
        if margin or job.is_given("margin"):
            given = job.sets("margin")
            value = f"{margin:.6g}{'' if given else remark}"
            settings.append(self.setting("margin", value, given, rule))
        return tuple(settings)

    def table(self) -> tuple[Setting, ...]:
        """Return the settings of the table."""
        job, tokens = self.job, self.encoding.missing
        text = ", ".join(map(repr, tokens)) or "none"
        settings = [self.setting("missing cells", text, tokens != MISSING)]
        if job.drop:
            settings.append(self.setting("dropped columns", ", ".join(map(repr, job.drop)), True))
        if job.encoding is not None:
            name = job.encoding.name if isinstance(job.encoding, Path) else "given in Python"
            settings.append(self.setting("encoding", name, True))
        return tuple(settings)
