"""The requests that put a model or a trainer to the test."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from expost.jobs.options import (
    CRITERIA,
    GUARANTEE,
    MODEL,
    TABLE,
    WORK,
    Option,
    numbers,
    read_labels,
)
from expost.jobs.requests.base import (
    MISSING,
    RELATIONS,
    AnswerRequest,
    Dropped,
    Missing,
    PredictedColumn,
    RowsRequest,
    table_option,
)

__all__ = [
    "ARRAYS",
    "NOT_FINITE",
    "AuditRequest",
    "ConformRequest",
]

NOT_FINITE = ("bounded", "refused", "absent")
ARRAYS = ("torch", "numpy")


def _attack_names() -> tuple[str, ...]:
    """Return the names of the attacks; imports them."""
    from expost.auditing.attacks import ATTACKS

    return tuple(ATTACKS)


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
        table_option(
            "Rows that the model was trained on. With --estimator and without --holdout a random"
            " half of them is."
        ),
    ] = None
    target: PredictedColumn = None
    holdout: Annotated[
        Any, table_option("Table of rows that the model was not trained on (non-members).", TABLE)
    ] = None
    population: Annotated[
        Any,
        table_option("Table of further rows that no model was trained on, for comparison.", TABLE),
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
