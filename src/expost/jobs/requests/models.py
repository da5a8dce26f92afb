"""The requests that read a table for a private linear model of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from expost.jobs.options import (
    CRITERIA,
    MODEL,
    PERSONS,
    RESULTS,
    TABLE,
    Option,
    number_or_auto,
    numbers,
    read_labels,
    read_range,
    read_share,
)
from expost.jobs.requests.base import (
    MISSING,
    BlocksRequest,
    Dropped,
    FolderRequest,
    JsonLog,
    Key,
    Missing,
    PredictedColumn,
    Request,
    ledger_option,
    table_option,
)

__all__ = [
    "LOSSES",
    "MEASURES",
    "MECHANISMS",
    "MECHANISM_PLUG_INS",
    "NOISES",
    "DemoRequest",
    "EncodingRequest",
    "EpsilonRequest",
    "ProfileRequest",
    "TableRequest",
]

# Values that the shell completes. Jobs check them where they are used, and a test compares.
MECHANISMS = ("auto", "output", "objective")
NOISES = ("auto", "laplace", "gaussian")
LOSSES = ("logistic", "huber-hinge", "squared")
MEASURES = ("log_loss", "auc", "accuracy", "r2")
# The entry points under which other packages name their mechanisms.
MECHANISM_PLUG_INS = "expost.mechanisms"


@dataclass(frozen=True, kw_only=True)
class TableRequest(BlocksRequest):
    """A table, and the private linear model of it."""

    source: Annotated[Any, table_option("File, glob, folder of Parquet files or database.")]
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
    ledger: Annotated[
        Path | None, ledger_option("TABLE.ledger.CURATOR-ONLY.json next to the table")
    ] = None

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
    ledger: Annotated[Path | None, ledger_option("ledger.CURATOR-ONLY.json in DIR")] = None
    log_json: JsonLog = False


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
