"""The requests about a model that was released."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from expost.jobs.options import (
    CRITERIA,
    MODEL,
    TABLE,
    Option,
)
from expost.jobs.requests.base import (
    AnswerRequest,
    BlocksRequest,
    CuratorJson,
    PredictedColumn,
    ledger_option,
    table_option,
)

__all__ = [
    "KINDS",
    "ForgetRequest",
    "LedgerRequest",
    "LookupRequest",
    "PublishRequest",
]

KINDS = ("data-independent", "data-dependent")


@dataclass(frozen=True, kw_only=True)
class PublishRequest(BlocksRequest):
    """Options of ``expost publish``.

    Parameters
    ----------
    ledger : Path, optional
        Lists what the report spends; None: the one that lists the model.
    """

    source: Annotated[Any, table_option("Table or database that the model was made from.")] = None
    target: PredictedColumn = None
    model: Annotated[
        Path, Option("model.json to report on; no model is drawn.", MODEL, metavar="FILE")
    ]
    kind: Annotated[
        str,
        Option(
            "data-independent, which spends nothing, or data-dependent.",
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
    ledger: Annotated[Path | None, ledger_option("the ledger of the model")] = None

    @property
    def lost(self) -> str:
        """What overwriting an earlier run costs."""
        return " (a report in it is then lost, but what it spent is not)"


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
        table_option(
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
    ledger: Annotated[Path | None, ledger_option("the ledger of the model")] = None

    @property
    def lost(self) -> str:
        """What overwriting an earlier run costs."""
        return (
            " (a model.json in it is then lost, but what it spent is not, and a request that is"
            " listed is not answered a second time)"
        )


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
