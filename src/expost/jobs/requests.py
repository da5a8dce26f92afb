"""The requests of all jobs: the options of every command, each declared once.

A request is the input of a job, from the command line or from a Python function. A field that is an
option carries an :class:`Option`; :mod:`expost.cli.options` turns a request into a command. Nothing
here imports numerics, so that ``--help`` is fast.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from expost.jobs.options import (
    CRITERIA,
    FORECAST,
    GOAL,
    GUARANTEE,
    MODEL,
    PERSONS,
    RESULTS,
    TABLE,
    WORK,
    Option,
    flag_of,
    number_or_auto,
    numbers,
    options_of,
    read_baseline,
    read_bytes,
    read_id,
    read_labels,
    read_model_name,
    read_range,
    read_share,
)

if TYPE_CHECKING:
    from expost.jobs.streaming import Streaming

__all__ = [
    "AuditRequest",
    "CardRequest",
    "CheckRequest",
    "ConformRequest",
    "DemoRequest",
    "DoctorRequest",
    "DossierRequest",
    "EncodingRequest",
    "EpsilonRequest",
    "ForgetRequest",
    "LedgerRequest",
    "LookupRequest",
    "ProfileRequest",
    "PublishRequest",
    "ReportRequest",
    "Request",
    "RiskRequest",
    "TableRequest",
    "VerifyRequest",
    "command_line",
]

# Values that the shell completes. Jobs check them where they are used, and a test compares.
MECHANISMS = ("auto", "output", "objective")
NOISES = ("auto", "laplace", "gaussian")
LOSSES = ("logistic", "huber-hinge", "squared")
MEASURES = ("log_loss", "auc", "accuracy", "r2")
KINDS = ("data-independent", "data-dependent")
RELATIONS = ("remove", "replace")
DEPLOYMENTS = ("public-model", "api", "internal")
READERS = ("public", "curator-only")
NOT_FINITE = ("bounded", "refused", "absent")
ARRAYS = ("torch", "numpy")
# The entry points under which other packages name their mechanisms.
MECHANISM_PLUG_INS = "expost.mechanisms"
# Cells that count as missing, those of `expost.data.MISSING`.
MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "NULL", "null")


def _attack_names() -> tuple[str, ...]:
    """Return the names of the attacks; imports them."""
    from expost.auditing.attacks import ATTACKS

    return tuple(ATTACKS)


def command_line(
    request: "RowsRequest",
    name: str,
    command: type,
    panels: Collection[str],
    *more: str,
    drop: str | None = None,
) -> tuple[str, ...] | None:
    """Return another command on the same table; None if the table is not in a file.

    It has the given options of these panels and ``more`` arguments, and leaves out the column
    ``drop``. An address of a database may contain a password, and is not repeated.
    """
    in_files = isinstance(request.source, str | Path)
    if not in_files or not isinstance(getattr(request, "encoding", None), Path | None):
        return None
    left = () if drop is None else ("--drop", drop)
    return ("expost", name, *_arguments(request, command, (None, *panels)), *left, *more)


def _arguments(request: "Request", command: type, panels: Collection[str | None]) -> list[str]:
    arguments: list[str] = []
    taken = options_of(command)
    for name, option in options_of(type(request)).items():
        if name not in taken or option.panel not in panels or not request.is_given(name):
            continue
        value = getattr(request, name)
        if isinstance(value, tuple) and option.read is not None:
            value = ",".join(map(str, value))
        values = value if isinstance(value, tuple) else (value,)
        flags = () if option.panel is None else (flag_of(name, option),)
        arguments += [part for value in values for part in (*flags, str(value))]
    return arguments


# -- options of several requests -----------------------------------------------------------------


def _ledger(default: str) -> Option:
    return Option("Ledger of the data set.", RESULTS, metavar="FILE", default=default)


def _table(help: str, panel: str | None = None) -> Option:
    return Option(help, panel, metavar="DATA", kind=str)


CuratorJson = Annotated[
    bool,
    Option(
        "The same with curator-only figures; keep it out of logs.", RESULTS, flag="--json-curator"
    ),
]
JsonLog = Annotated[bool, Option("Log progress to stderr as JSON lines.", WORK)]
PredictedColumn = Annotated[
    str | None, Option("Column that the model predicts.", TABLE, metavar="COLUMN")
]
Key = Annotated[
    str | None, Option("Column that identifies the rows.", TABLE, flag="--id", metavar="COLUMN")
]
Dropped = Annotated[
    tuple[str, ...], Option("Column to leave out (repeatable).", TABLE, metavar="COLUMN")
]
Missing = Annotated[
    tuple[str, ...],
    Option(
        "String of missing cells (repeatable).",
        TABLE,
        metavar="TOKEN",
        default="'', ?, NA, NaN, NULL, …",
    ),
]
BASELINE = Option(
    "Bound re-identification, attribute inference and reconstruction by an attacker who"
    " succeeds with this probability without the release, as 0.001 or 1/1000; or NAME=P for"
    " some of reidentification, attribute-inference and reconstruction.",
    CRITERIA,
    metavar="P",
    read=read_baseline,
)
Baseline = Annotated[float | Mapping[str, float] | None, BASELINE]


# -- requests ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of every command.

    Parameters
    ----------
    stated : tuple[str, ...], default=()
        The options on the command line, also those that repeat a default.
    """

    stated: tuple[str, ...] = ()
    as_json: Annotated[
        bool, Option("Print public figures as one JSON object.", RESULTS, flag="--json")
    ] = False

    @property
    def prints_json(self) -> bool:
        """Whether JSON is printed in place of text."""
        return self.as_json or bool(getattr(self, "curator_json", False))

    def is_given(self, name: str) -> bool:
        """Return whether an option was given: stated, or other than its default."""
        value, default = getattr(self, name), {item.name: item.default for item in fields(self)}
        differs = value is not None and (default[name] is None or value != default[name])
        return name in self.stated or bool(differs)

    def sets(self, name: str) -> bool:
        """Return whether an option was given a value of its own, and not the word auto."""
        return self.is_given(name) and getattr(self, name) != "auto"


@dataclass(frozen=True, kw_only=True)
class PageRequest(Request):
    """The options of a command that writes a page."""

    force: Annotated[bool, Option("Overwrite the results of an earlier run in DIR.", RESULTS)] = (
        False
    )
    open_page: Annotated[
        bool, Option("Open the report in your browser.", RESULTS, flag="--open")
    ] = False


@dataclass(frozen=True, kw_only=True)
class FolderRequest(PageRequest):
    """The options of a command that writes a folder."""

    curator_json: CuratorJson = False
    out: Annotated[
        Path,
        Option("Folder for the results.", RESULTS, metavar="DIR", default="a new one, expost-…"),
    ]


@dataclass(frozen=True, kw_only=True)
class WorkRequest(FolderRequest):
    """The options of a command that can be resumed."""

    resume: Annotated[
        bool, Option("Continue the unfinished run (default: the only one).", WORK)
    ] = False
    log_json: JsonLog = False


@dataclass(frozen=True, kw_only=True)
class RowsRequest(WorkRequest):
    """The options of a command that reads the rows of a table.

    Parameters
    ----------
    source : Any
        A path, glob, address of a database, :class:`~expost.data.Query`, frame, Arrow table or Dask
        dataframe.
    name : str, optional
        The name of the table in results; None: the name of its file.
    """

    source: Any
    name: str | None = None
    query: Annotated[
        str | None,
        Option("SELECT or name of a table, for a database.", TABLE, metavar="SELECT"),
    ] = None
    id_column: Key = None

    def __post_init__(self) -> None:
        """Turn the address of a database into a query, which shows no password."""
        from expost.data._query import query_of

        if self.source is None:
            if self.query is not None:
                from expost.errors import InvalidInput

                raise InvalidInput("--query: name the database of the query as DATA.")
            return
        object.__setattr__(self, "source", query_of(self.source, self.query, self.id_column))
        object.__setattr__(self, "query", None)

    @property
    def title(self) -> str:
        """The name of the table in results."""
        if self.name is not None:
            return self.name
        if isinstance(self.source, str | Path):
            return Path(self.source).name
        return str(getattr(self.source, "title", "a table"))


@dataclass(frozen=True, kw_only=True)
class BlocksRequest(RowsRequest):
    """The options of a command that can process a table in blocks."""

    engine: Annotated[
        Any,
        Option(
            "Process the table in blocks on local, local:4, dask or dask://host:port.",
            WORK,
            metavar="NAME",
            kind=str,
            choices=("local", "dask"),
        ),
    ] = None
    memory: Annotated[
        int | None,
        Option(
            "Most memory to use, e.g. 2GiB: in blocks if the rows need more.",
            WORK,
            metavar="SIZE",
            read=read_bytes,
            default="half of the available memory",
        ),
    ] = None

    @property
    def streaming(self) -> "Streaming":
        """Whether and where rows are processed in blocks."""
        from expost.jobs.streaming import Streaming

        return Streaming(engine=self.engine, resume=self.resume, memory=self.memory)


# -- tables and models ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TableRequest(BlocksRequest):
    """A table, and the private linear model of it."""

    source: Annotated[Any, _table("File, glob, folder of Parquet files or database.")]
    target: Annotated[str, Option("Column to predict.", TABLE, metavar="COLUMN")]
    drop: Dropped = ()
    missing: Missing = MISSING
    encoding: Annotated[
        Any,
        Option(
            "encoding.json with means, scales and levels known without the data.",
            TABLE,
            metavar="FILE",
            kind=Path,
        ),
    ] = None
    data_norm: Annotated[
        float | str,
        Option(
            "Clip rows to this norm, or auto: √p/2 for p columns.",
            TABLE,
            metavar="NUMBER",
            read=number_or_auto("> 0"),
        ),
    ] = "auto"
    classes: Annotated[
        tuple[str, ...] | None,
        Option("Labels known without the data.", TABLE, metavar="NO,YES", read=read_labels),
    ] = None
    label_range: Annotated[
        tuple[float, float] | None,
        Option(
            "Range of the target, for the squared loss.", TABLE, metavar="LOW,HIGH", read=read_range
        ),
    ] = None
    mechanism: Annotated[
        str,
        Option(
            "objective (noise in the objective), output (noise on the model) or auto.",
            MODEL,
            metavar="NAME",
            choices=MECHANISMS,
            plug_ins=MECHANISM_PLUG_INS,
        ),
    ] = "auto"
    noise: Annotated[
        str, Option("gaussian, laplace (δ = 0) or auto.", MODEL, metavar="NAME", choices=NOISES)
    ] = "auto"
    delta: Annotated[
        float | str,
        Option(
            "δ, or auto: 1e-6, less above 10⁵ rows.",
            MODEL,
            metavar="NUMBER",
            read=number_or_auto("≥ 0"),
        ),
    ] = "auto"
    loss: Annotated[
        str, Option("logistic, huber-hinge or squared.", MODEL, metavar="NAME", choices=LOSSES)
    ] = "logistic"
    regularization: Annotated[
        float | str,
        Option(
            "Λ, or auto: from n, d, ε and δ.",
            MODEL,
            metavar="NUMBER",
            read=number_or_auto("> 0"),
            choices=("auto",),
        ),
    ] = "auto"
    margin: Annotated[
        float | str,
        Option(
            "Margin of the logistic loss, or auto.",
            MODEL,
            metavar="NUMBER",
            read=number_or_auto("≥ 0"),
            choices=("auto",),
        ),
    ] = 0.0
    seed: Annotated[
        int | None, Option("Seed, for simulation: a seeded model is not private.", MODEL)
    ] = None


@dataclass(frozen=True, kw_only=True)
class ProfileRequest(TableRequest):
    """Options of ``expost profile``.

    Parameters
    ----------
    top : int, optional
        The rows to refine, of a model without noise; None: 100.
    person_column : str, optional
        Identifies the person of each row; persons are profiled, not rows.
    max_rows_per_person : int, optional
        The number of rows of a person that ε and δ are calibrated to.
    cap_rows : bool, default=False
        Whether rows beyond that number are left out; else they are refused.
    ledger : Path, optional
        Lists the release, or the model; None: the one next to the table.
    """

    epsilon: Annotated[float, Option("ε; inf: no noise.", MODEL)] = 1.0
    private_encoding: Annotated[
        float | None,
        Option(
            "Spend this share of ε on means, scales and levels (0.1 if none is given).",
            TABLE,
            metavar="[SHARE]",
            read=read_share,
            alone="0.1",
        ),
    ] = None
    model: Annotated[
        Path | None,
        Option("Profile this model.json; no model is drawn.", MODEL, metavar="FILE"),
    ] = None
    top: Annotated[
        int | None,
        Option(
            "Rows to refine if ε = ∞.",
            MODEL,
            metavar="NUMBER",
            default="100",
        ),
    ] = None
    person_column: Annotated[
        str | None,
        Option("Column that identifies persons.", PERSONS, flag="--person", metavar="COLUMN"),
    ] = None
    max_rows_per_person: Annotated[
        int | None,
        Option(
            "Calibrate ε and δ to persons with up to this many rows; refuse more.",
            PERSONS,
            metavar="NUMBER",
        ),
    ] = None
    cap_rows: Annotated[
        bool, Option("Keep the first rows of each person instead of refusing more.", PERSONS)
    ] = False
    ledger: Annotated[Path | None, _ledger("TABLE.ledger.CURATOR-ONLY.json next to the table")] = (
        None
    )

    def __post_init__(self) -> None:
        """Turn the address of a database into a query."""
        source = self.source
        super().__post_init__()
        if self.person_column is not None and self.source is not source:
            # The id orders the rows of a database, and persons are the keys of the results.
            object.__setattr__(self, "id_column", None)

    @property
    def keeps_model(self) -> bool:
        """Whether the model to profile is the one in the folder of the results."""
        from expost.files.atomic import is_same_file

        return self.model is not None and is_same_file(self.model, self.out / "model.json")

    @property
    def lost(self) -> str:
        """What overwriting an earlier run costs."""
        if self.keeps_model:
            return ""
        return " (a model.json in it is then lost, but what it spent is not)"


@dataclass(frozen=True, kw_only=True)
class EpsilonRequest(TableRequest):
    """Options of ``expost epsilon``."""

    max_posterior: Annotated[
        float,
        Option("Largest posterior probability that any row was in the training data.", CRITERIA),
    ] = 0.75
    prior: Annotated[float, Option("Prior probability of the attacker.", CRITERIA)] = 0.5
    quantile: Annotated[float, Option("Share of releases in which the limit holds.", CRITERIA)] = (
        0.95
    )
    share: Annotated[
        float, Option("Share of the best reachable gain that is enough.", CRITERIA)
    ] = 0.95
    measure: Annotated[
        str | None,
        Option(
            "Compare models by log_loss, auc, accuracy or r2.",
            CRITERIA,
            metavar="NAME",
            default="the first that applies",
            choices=MEASURES,
        ),
    ] = None
    tolerance: Annotated[
        float, Option("Distance from its plateau at which a row still counts as on it.", CRITERIA)
    ] = 0.1
    rows: Annotated[float, Option("Share of rows past the transition where it ends.", CRITERIA)] = (
        0.5
    )
    epsilons: Annotated[
        tuple[float, ...] | None,
        Option(
            "Values of ε to try, e.g. 0.1,1,10.",
            CRITERIA,
            metavar="E,E,…",
            read=numbers("0.1,1,10"),
            default="a refined grid from 0.01 to 10",
        ),
    ] = None
    models: Annotated[int, Option("Models drawn at each ε for the transition.", CRITERIA)] = 200
    folds: Annotated[int, Option("Folds, each held out once; 0 measures no utility.", CRITERIA)] = 5
    seed: Annotated[int | None, Option("Seed of the simulation.", CRITERIA)] = None
    picture: Annotated[bool, Option("Also write the charts as a PNG.", RESULTS)] = False


@dataclass(frozen=True, kw_only=True)
class DemoRequest(FolderRequest):
    """Options of ``expost demo``."""

    epsilon: Annotated[float, Option("ε of this one release.", MODEL)] = 1.0
    ledger: Annotated[Path | None, _ledger("ledger.CURATOR-ONLY.json in DIR")] = None
    log_json: JsonLog = False


@dataclass(frozen=True, kw_only=True)
class PublishRequest(BlocksRequest):
    """Options of ``expost publish``.

    Parameters
    ----------
    ledger : Path, optional
        Lists what the report spends; None: the one that lists the model.
    """

    source: Annotated[Any, _table("Table or database that the model was made from.")] = None
    target: PredictedColumn = None
    model: Annotated[
        Path, Option("model.json to report on; no model is drawn.", MODEL, metavar="FILE")
    ]
    kind: Annotated[
        str,
        Option(
            "data-independent (spends nothing) or data-dependent.",
            CRITERIA,
            metavar="NAME",
            choices=KINDS,
        ),
    ] = "data-independent"
    epsilon_gradient: Annotated[
        float | None, Option("ε that a noisy gradient spends.", CRITERIA)
    ] = None
    epsilon_hessian: Annotated[float | None, Option("ε that a noisy Hessian spends.", CRITERIA)] = (
        None
    )
    delta: Annotated[
        float | None, Option("δ of each of the two.", CRITERIA, default="that of the model")
    ] = None
    failure_probability: Annotated[
        float, Option("Probability with which a part of the bound may fail.", CRITERIA)
    ] = 1e-06
    ledger: Annotated[Path | None, _ledger("the ledger of the model")] = None

    @property
    def lost(self) -> str:
        """What overwriting an earlier run costs."""
        return " (a report in it is then lost, but what it spent is not)"


@dataclass(frozen=True, kw_only=True)
class ForgetRequest(BlocksRequest):
    """Options of ``expost forget``.

    Parameters
    ----------
    remove, insert : tuple[str, ...]
        Keys of ``id_column``, or files with a key on each line. One of the two is given.
    fresh : bool, optional
        Whether the model is drawn independently of the present one; None: unless
        ``requests_independent`` is declared and no report is known.
    ledger : Path, optional
        Lists the erasure; None: the one that lists the model.
    """

    source: Annotated[
        Any,
        _table(
            "Table or database that the model was made from; with --insert also the rows that"
            " enter."
        ),
    ]
    target: PredictedColumn = None
    id_column: Annotated[
        str,
        Option(
            "Column that identifies persons; all rows of a person change.",
            TABLE,
            flag="--id",
            metavar="COLUMN",
        ),
    ] = field()
    remove: Annotated[
        tuple[str, ...],
        Option(
            "Key of a person whose rows leave, or a file with a key on each line (repeatable).",
            TABLE,
            metavar="ID",
        ),
    ] = ()
    insert: Annotated[
        tuple[str, ...],
        Option(
            "Instead: key of a person whose rows enter, or a file of keys (repeatable).",
            TABLE,
            metavar="ID",
        ),
    ] = ()
    model: Annotated[
        Path, Option("model.json of the present model; it is not changed.", MODEL, metavar="FILE")
    ]
    fresh: Annotated[
        bool | None,
        Option(
            "Draw the new model independently of the present one, or keep the present one if"
            " possible.",
            CRITERIA,
            flag="--fresh/--no-fresh",
            default="--fresh, unless requests are independent and no report is known",
        ),
    ] = None
    requests_independent: Annotated[
        bool,
        Option(
            "Declare that the request depends neither on the model nor on an earlier one.",
            CRITERIA,
        ),
    ] = False
    ledger: Annotated[Path | None, _ledger("the ledger of the model")] = None

    @property
    def lost(self) -> str:
        """What overwriting an earlier run costs."""
        return (
            " (a model.json in it is then lost, but what it spent is not, and a request that is"
            " listed is not answered a second time)"
        )


@dataclass(frozen=True, kw_only=True)
class AuditRequest(RowsRequest):
    """Options of ``expost audit``.

    One of ``model`` (a model.json or a saved model of another library), ``estimator`` (a class by
    its name, with parameters) and ``arrays`` (a file of answers that were computed elsewhere) is
    attacked. With a saved model that cannot be trained again, ``estimator`` trains the references.

    Parameters
    ----------
    source : Any
        The rows that it was trained on; for an estimator without ``holdout`` the rows of which a
        random half is used for training.
    """

    source: Annotated[
        Any,
        _table(
            "Rows that the model was trained on. With --estimator and without --holdout a random"
            " half of them is."
        ),
    ] = None
    target: PredictedColumn = None
    holdout: Annotated[
        Any, _table("Table of rows that the model was not trained on (non-members).", TABLE)
    ] = None
    population: Annotated[
        Any, _table("Table of further rows that no model was trained on, for comparison.", TABLE)
    ] = None
    groups: Annotated[
        tuple[str, ...],
        Option(
            "Report attack results by this column, next to the class (repeatable).",
            TABLE,
            flag="--group",
            metavar="COLUMN",
        ),
    ] = ()
    drop: Dropped = ()
    missing: Missing = MISSING
    model: Annotated[
        Path | None,
        Option(
            "Attack this model: model.json, joblib, skops, XGBoost, LightGBM or ONNX.",
            MODEL,
            metavar="FILE",
        ),
    ] = None
    trust_pickle: Annotated[
        bool,
        Option(
            "Load a pickle or joblib file, which runs its code: only if you trust its maker.",
            MODEL,
        ),
    ] = False
    trust_types: Annotated[
        tuple[str, ...],
        Option(
            "Type in a skops file to trust, although loading it may run code (repeatable).",
            MODEL,
            flag="--trust-type",
            metavar="NAME",
        ),
    ] = ()
    classes: Annotated[
        tuple[str, ...] | None,
        Option(
            "Labels in the order of the outputs of a model that knows numbers only.",
            MODEL,
            metavar="NO,YES",
            read=read_labels,
        ),
    ] = None
    estimator: Annotated[
        str | None,
        Option(
            "Attack a model of this class with fit and predict_proba, trained here (parameters:"
            " CLASS:NAME=VALUE,…). With a --model that cannot be trained again: train references.",
            MODEL,
            metavar="CLASS[:…]",
        ),
    ] = None
    arrays: Annotated[
        Path | None,
        Option(
            "Attack the answers in this file: npz, CSV or Parquet of losses, probabilities or log"
            " odds, and which rows were members.",
            MODEL,
            metavar="FILE",
        ),
    ] = None
    references: Annotated[
        int, Option("Reference models to train, for attacks that compare with them.", CRITERIA)
    ] = 64
    attacks: Annotated[
        tuple[str, ...] | None,
        Option(
            "Attack to run (repeatable).",
            CRITERIA,
            flag="--attack",
            metavar="NAME",
            default="all that are possible",
            choices=_attack_names,
        ),
    ] = None
    delta: Annotated[float, Option("δ at which ε is bounded from below.", CRITERIA)] = 1e-05
    confidence: Annotated[float, Option("Confidence of every interval and bound.", CRITERIA)] = 0.95
    coins: Annotated[
        bool,
        Option(
            "State that a fair coin per row decided between DATA and --holdout. ε is then bounded"
            " from this one model.",
            CRITERIA,
        ),
    ] = False
    propensity: Annotated[
        str | None,
        Option(
            "State the probability with which each row was put into DATA, independently: a number"
            " or a column. ε is then bounded as with --coins.",
            CRITERIA,
            metavar="P",
        ),
    ] = None
    seed: Annotated[int | None, Option("Seed, for reproducible figures.", CRITERIA)] = None
    workers: Annotated[
        int | None,
        Option(
            "Processes that train reference models; -1 for all processors.", WORK, default="one"
        ),
    ] = None

    @property
    def title(self) -> str:
        """The name of the table in results, or that of the file of answers."""
        return self.arrays.name if self.source is None and self.arrays else super().title


# -- small answers -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AnswerRequest(PageRequest):
    """The options of a command that prints an answer, and writes a page on request."""

    out: Annotated[
        Path | None,
        Option(
            "Folder for a page of the answer, with the same as Markdown and JSON.",
            RESULTS,
            metavar="DIR",
            default="no page, or with --open a private temporary folder",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class LookupRequest(AnswerRequest):
    """Options of ``expost lookup``."""

    report: Annotated[Path, Option("report.json of expost publish.", metavar="REPORT")]
    values: Annotated[
        tuple[str, ...],
        Option(
            "A value of your row as written on a form (repeat for each column).",
            TABLE,
            flag="--set",
            metavar="COLUMN=VALUE",
        ),
    ] = ()
    label: Annotated[
        str | None,
        Option(
            "Your label, which the model predicts.",
            TABLE,
            metavar="LABEL",
            default="the answer for every label",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class RiskRequest(AnswerRequest):
    """Options of ``expost risk``."""

    curator_json: CuratorJson = False
    model: Annotated[
        Path | None,
        Option(
            "model.json whose guarantee is explained, or the folder or file of a profile.",
            metavar="MODEL",
        ),
    ] = None
    epsilon: Annotated[float | None, Option("Any mechanism with this ε.", GUARANTEE)] = None
    delta: Annotated[
        float | None,
        Option(
            "δ of ε, or the δ at which the ε of noise is reported.",
            GUARANTEE,
            default="0, or with --rows that of a release",
        ),
    ] = None
    mu: Annotated[
        float | None, Option("Gaussian noise with this sensitivity / sigma.", GUARANTEE)
    ] = None
    noise_multiplier: Annotated[
        float | None, Option("DP-SGD with this noise multiplier.", GUARANTEE)
    ] = None
    sampling_rate: Annotated[
        float | None, Option("DP-SGD: share of rows in a batch.", GUARANTEE, default="1")
    ] = None
    steps: Annotated[int | None, Option("DP-SGD: number of steps.", GUARANTEE, default="1")] = None
    relation: Annotated[
        str | None,
        Option(
            "DP-SGD: whether a row is removed or added (remove), or replaced (replace).",
            GUARANTEE,
            metavar="NAME",
            default="remove",
            choices=RELATIONS,
        ),
    ] = None
    releases: Annotated[int, Option("Number of releases, each with that guarantee.", GUARANTEE)] = 1
    max_posterior: Annotated[
        float | None, Option("Largest posterior probability of an attacker, from 0 to 1.", GOAL)
    ] = None
    advantage: Annotated[
        float | None, Option("Largest membership advantage, from 0 to 1.", GOAL)
    ] = None
    true_positive_rate: Annotated[
        float | None, Option("Largest true-positive rate at --fpr.", GOAL, flag="--tpr")
    ] = None
    one_in: Annotated[float | None, Option("A posterior of at most 1 in this number.", GOAL)] = None
    rows: Annotated[
        int | None, Option("Forecast a model of this many rows (with --features).", FORECAST)
    ] = None
    features: Annotated[
        int | None,
        Option("Number of features of that model; a column of K levels counts K times.", FORECAST),
    ] = None
    prior: Annotated[float, Option("Prior probability of the attacker, from 0 to 1.", CRITERIA)] = (
        0.5
    )
    false_positive_rate: Annotated[
        float, Option("False-positive rate of the attack.", CRITERIA, flag="--fpr")
    ] = 0.01
    exceeded: Annotated[
        float | None,
        Option(
            "Probability with which the posterior may exceed its bound.",
            CRITERIA,
            default="δ if the noise is known, 10 δ for any mechanism",
        ),
    ] = None
    baseline: Baseline = None
    plot: Annotated[
        Path | None,
        Option(
            "Draw posterior and advantage over ε, with this guarantee.", RESULTS, metavar="FILE.png"
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class LedgerRequest(AnswerRequest):
    """Options of ``expost ledger``."""

    curator_json: CuratorJson = False
    paths: Annotated[
        tuple[Path, ...],
        Option("Ledgers, folders of releases, model.json or report.json files.", metavar="PATH"),
    ]
    add: Annotated[
        tuple[Path, ...],
        Option(
            "Record this model.json or report.json in the ledger PATH (repeatable).",
            CRITERIA,
            metavar="FILE",
        ),
    ] = ()
    delta: Annotated[
        float | None,
        Option(
            "δ at which ε is reported.",
            CRITERIA,
            default="1e-5, or that of all releases together if larger",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ReportRequest(FolderRequest):
    """Options of ``expost report``."""

    paths: Annotated[
        tuple[Path, ...],
        Option("Folders that expost commands wrote, or summaries in them.", metavar="PATH"),
    ]
    public: Annotated[bool, Option("Show only what is public.", CRITERIA)] = False


@dataclass(frozen=True, kw_only=True)
class CheckRequest(Request):
    """Options of ``expost check``."""

    paths: Annotated[
        tuple[Path, ...],
        Option("Folders that expost commands wrote, files in them or a ledger.", metavar="RESULT"),
    ]
    policy: Annotated[
        Path | None, Option("policy.toml with the limits.", CRITERIA, metavar="FILE")
    ] = None
    fail_on: Annotated[
        tuple[str, ...],
        Option(
            "A limit in one expression, as 'epsilon>1' or 'auc<0.8' (repeatable).",
            CRITERIA,
            metavar="EXPRESSION",
        ),
    ] = ()
    junit: Annotated[
        Path | None, Option("Write the verdicts as JUnit XML.", RESULTS, metavar="FILE")
    ] = None
    markdown: Annotated[
        Path | None, Option("Write the verdicts as Markdown.", RESULTS, metavar="FILE")
    ] = None
    curator: Annotated[
        bool, Option("Print measured curator-only values too; keep them out of logs.", RESULTS)
    ] = False
    force: Annotated[bool, Option("Write over files that exist.", RESULTS)] = False


@dataclass(frozen=True, kw_only=True)
class ConformRequest(AnswerRequest):
    """Options of ``expost conform``."""

    trainer: Annotated[
        str, Option("Function of a module in the current folder, which is run.", metavar="TRAINER")
    ]
    arrays: Annotated[
        str,
        Option(
            "Library of the trainer: torch, or numpy (also for JAX).",
            MODEL,
            metavar="NAME",
            choices=ARRAYS,
        ),
    ] = "torch"
    clip: Annotated[
        tuple[float, ...],
        Option(
            "Claimed bound C on a row's gradient, or one for each of three layers, as 1,1,0.5.",
            GUARANTEE,
            metavar="C[,C,C]",
            read=numbers("1 or 1,1,0.5"),
        ),
    ]
    noise_multiplier: Annotated[float, Option("Claimed noise multiplier σ.", GUARANTEE)]
    sampling_rate: Annotated[
        float, Option("Claimed probability that a row is in a batch.", GUARANTEE)
    ] = 1.0
    learning_rate: Annotated[float, Option("Claimed learning rate, of plain SGD.", GUARANTEE)] = 1.0
    divisor: Annotated[
        float | None,
        Option(
            "Claimed constant by which sums are divided.",
            GUARANTEE,
            default="the expected batch size",
        ),
    ] = None
    n_public: Annotated[bool, Option("Claim that the number of rows is public.", GUARANTEE)] = False
    relation: Annotated[
        str,
        Option(
            "Whether a row is removed or added (remove), or replaced (replace: noise 2σC).",
            GUARANTEE,
            metavar="NAME",
            choices=RELATIONS,
        ),
    ] = "remove"
    not_finite: Annotated[
        str,
        Option(
            "Claim on rows whose gradient is NaN or infinite: bounded, refused or absent (not"
            " checked).",
            GUARANTEE,
            metavar="NAME",
            choices=NOT_FINITE,
        ),
    ] = "bounded"
    secure: Annotated[bool, Option("Claim that no seed controls the noise.", GUARANTEE)] = False
    norm_budget: Annotated[
        float | None, Option("Claimed bound on the root of a row's Σ∥g∥².", GUARANTEE)
    ] = None
    delta: Annotated[float, Option("δ at which the accountant is compared.", GUARANTEE)] = 1e-05
    false_alarm: Annotated[
        float, Option("Largest probability of a violation by chance.", CRITERIA)
    ] = 0.001
    steps: Annotated[int, Option("Steps of a run; more steps find smaller faults.", CRITERIA)] = 60


@dataclass(frozen=True, kw_only=True)
class DossierRequest(FolderRequest):
    """Options of ``expost dossier``."""

    paths: Annotated[
        tuple[Path, ...],
        Option("Folders that expost commands wrote, files in them or a ledger.", metavar="RESULT"),
    ]
    deployment: Annotated[
        str,
        Option(
            "Who can use the model: everybody has the weights (public-model), users see answers"
            " (api), or staff have the model (internal).",
            CRITERIA,
            flag="--context",
            metavar="NAME",
            choices=DEPLOYMENTS,
        ),
    ]
    audience: Annotated[
        str,
        Option(
            "Who may read the dossier: public figures alone (public), or those of single rows too"
            " (curator-only).",
            CRITERIA,
            metavar="NAME",
            choices=READERS,
        ),
    ] = "public"
    baseline: Annotated[
        float | Mapping[str, float] | None, replace(BASELINE, default="1/1000 for each")
    ] = None


@dataclass(frozen=True, kw_only=True)
class VerifyRequest(Request):
    """Options of ``expost verify``."""

    folder: Annotated[Path, Option("Folder with a manifest.", metavar="DIR")]
    results: Annotated[
        tuple[Path, ...],
        Option(
            "Results that were moved since the manifest was written, or their folders.",
            metavar="RESULT",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class CardRequest(Request):
    """Options of ``expost card``."""

    paths: Annotated[
        tuple[Path, ...],
        Option("model.json, report.json, summaries, or folders with them.", metavar="RESULT"),
    ]
    name: Annotated[
        str | None,
        Option("Name of the model, as org/model.", CRITERIA, metavar="NAME", read=read_model_name),
    ] = None
    license: Annotated[
        str | None,
        Option("Identifier of its licence, as apache-2.0.", CRITERIA, metavar="ID", read=read_id),
    ] = None
    baseline: Baseline = None
    out: Annotated[
        Path,
        Option("Folder for the results.", RESULTS, metavar="DIR", default="a new one, expost-…"),
    ]
    force: Annotated[bool, Option("Overwrite the results of an earlier run in DIR.", RESULTS)] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class EncodingRequest(Request):
    """Options of ``expost encoding``."""

    source: Annotated[
        Any, Option("File, glob or folder of Parquet files.", metavar="DATA", kind=str)
    ]
    template: Annotated[bool, Option("Write a file of constants to fill in.", TABLE)] = False
    encoding: Annotated[
        Path | None,
        Option("Report what is missing in this file.", TABLE, metavar="FILE"),
    ] = None
    target: PredictedColumn = None
    id_column: Key = None
    drop: Dropped = ()
    missing: Missing = MISSING
    file: Annotated[
        Path | None,
        Option(
            "File to write.",
            RESULTS,
            flag="--out",
            metavar="FILE",
            default="TABLE.encoding.json",
        ),
    ] = None
    force: Annotated[bool, Option("Write over a file that exists.", RESULTS)] = False

    @property
    def title(self) -> str:
        """What results call the table."""
        return Path(str(self.source)).name


@dataclass(frozen=True, kw_only=True)
class DoctorRequest(Request):
    """Options of ``expost doctor``."""
